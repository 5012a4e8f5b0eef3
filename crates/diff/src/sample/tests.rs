use serde_json::json;

use super::*;

fn key(name: &str) -> Key {
    Key::new("kcp-system", name)
}

/// Runtimes named by stratum and number.
fn runtimes(sizes: &[(&'static str, usize)]) -> Vec<(Key, &'static str)> {
    let of = |(stratum, size): &(&'static str, usize)| {
        let stratum = *stratum;
        (0..*size).map(move |index| (key(&format!("{stratum}-{index}")), stratum))
    };
    sizes.iter().flat_map(of).collect()
}

/// The sample size of each stratum.
#[track_caller]
fn check(sizes: &[(&'static str, usize)], size: usize, expected: &[usize]) {
    let chosen = sample(runtimes(sizes), size);
    let count = |stratum: &str| chosen.iter().filter(|key| key.name().starts_with(&format!("{stratum}-"))).count();
    assert_eq!(sizes.iter().map(|(stratum, _)| count(stratum)).collect::<Vec<_>>(), expected);
}

#[test]
fn every_stratum_has_a_part_and_the_rest_goes_by_size() {
    check(&[("a", 900), ("b", 90), ("c", 10)], 3, &[1, 1, 1]);
    check(&[("a", 900), ("b", 90), ("c", 10)], 20, &[16, 3, 1]);
    check(&[("a", 900), ("b", 90), ("c", 10)], 2, &[1, 1, 0]);
    check(&[("a", 1), ("b", 50)], 1, &[0, 1]);
    check(&[("a", 2), ("b", 2)], 100, &[2, 2]);
    check(&[("a", 3)], 0, &[0]);
    check(&[], 5, &[]);
}

#[test]
fn no_size_is_exceeded_and_none_is_wasted() {
    for size in 0..=60 {
        let chosen = sample(runtimes(&[("a", 31), ("b", 17), ("c", 7), ("d", 1), ("e", 1)]), size);
        assert_eq!(chosen.len(), size.min(57));
    }
}

#[test]
fn two_runs_choose_the_same_and_a_new_runtime_displaces_at_most_one() {
    let all = runtimes(&[("a", 100)]);
    let chosen = sample(all.clone(), 10);
    assert_eq!(sample(all.iter().rev().cloned(), 10), chosen, "whatever the order");
    let more = sample(all.into_iter().chain([(key("new"), "a")]), 10);
    assert!(more.intersection(&chosen).count() >= 9);
}

#[test]
fn what_is_wanted_and_not_installed_counts() {
    let class = Class { namespace: "kcp-system".into(), beta: false, internal: false, restricted: BTreeSet::new() };
    let kyma: Kyma = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "a"},
        "spec": {"channel": "regular", "modules": [{"name": "cache"}, {"name": "mailer", "channel": "fast"}, {"name": "new"}]},
        "status": {"modules": [{"name": "cache", "channel": "regular", "version": "1.0.0", "state": "Ready"},
            {"name": "mailer", "channel": "regular", "version": "2.0.0", "state": "Ready"}]},
    }))
    .unwrap();
    let expected = [["cache", "regular", "1.0.0"], ["mailer", "regular", "2.0.0"], ["new", "regular", ""]];
    let stratum = Stratum::for_kyma(&kyma, class);
    assert_eq!(stratum.modules.iter().map(|one| one.each_ref().map(String::as_str)).collect::<Vec<_>>(), expected);
}
