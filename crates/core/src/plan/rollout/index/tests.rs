use serde_json::json;

use super::*;
use crate::plan::rollout::policy;

/// Runtimes of module `cache`, of which the first two are canaries.
struct Fleet(Index);

fn key(name: &str) -> Key {
    Key::new("kcp-system", name)
}

fn line() -> Line {
    Line { release: key("cache"), offer: Offer::Channel("regular".to_owned()) }
}

fn two_canaries_first(more: &[(&str, &str)]) -> Policy {
    let mut annotations = json!({
        "tidegate.dev/rollout-max-unavailable": "2",
        "tidegate.dev/rollout-waves": "stage=canary",
    });
    for (name, value) in more {
        annotations[*name] = json!(value);
    }
    policy(&serde_json::from_value(json!({"annotations": annotations})).unwrap()).unwrap().unwrap()
}

/// The Manifest of a runtime, with further or other metadata.
fn manifest(kyma: &str, version: &str, state: &str, more: &serde_json::Value) -> Manifest {
    let mut manifest = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": format!("{kyma}-cache"), "namespace": "kcp-system", "generation": 1, "labels": {
            "operator.kyma-project.io/module-name": "cache", "operator.kyma-project.io/channel": "regular",
            "operator.kyma-project.io/kyma-name": kyma,
        }},
        "spec": {"remote": true, "version": version, "install": {"name": "raw-manifest", "source": {}}},
        "status": {"state": state},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        manifest["metadata"][field] = value.clone();
    }
    serde_json::from_value(manifest).unwrap()
}

impl Fleet {
    fn new() -> Fleet {
        let mut fleet = Fleet(Index::default());
        for number in 0..10 {
            let name = format!("k{number}");
            let stage = if number < 2 { "canary" } else { "all" };
            let facts = KymaFacts { labels: [("stage".to_owned(), stage.to_owned())].into(), is_stopped: false };
            // The watches show them in any order.
            if number % 2 == 0 {
                fleet.0.set_kyma(&key(&name), Some(facts));
                fleet.is(&name, "1.0.0", "Ready");
            } else {
                fleet.is(&name, "1.0.0", "Ready");
                fleet.0.set_kyma(&key(&name), Some(facts));
            }
        }
        fleet
    }

    fn is(&mut self, kyma: &str, version: &str, state: &str) {
        let manifest = manifest(kyma, version, state, &json!({}));
        self.0.set_manifest(&key(&format!("{kyma}-cache")), Some(&manifest));
    }

    fn ask(&mut self, kyma: &str, to: &str, policy: &Policy) -> Verdict {
        self.0.ask(&Ask { kyma: &key(kyma), line: &line(), to, policy })
    }

    /// All runtimes ask, the last ones first. Returns those that may begin.
    fn begin(&mut self, to: &str, policy: &Policy) -> Vec<String> {
        let all = (0..10).rev().map(|number| format!("k{number}"));
        all.filter(|name| self.ask(name, to, policy) == Verdict::Begin).collect()
    }

    fn woken(&mut self) -> Vec<String> {
        self.0.take_woken().into_iter().map(|key| key.name().to_owned()).collect()
    }

    fn counts(&self) -> WaveCounts {
        self.0.counts()[0].counts
    }
}

#[test]
fn canaries_come_first_then_two_at_a_time_and_each_that_is_ready_wakes_the_next() {
    let (mut fleet, policy) = (Fleet::new(), two_canaries_first(&[]));
    assert_eq!(fleet.begin("1.1.0", &policy), ["k1", "k0"]);
    // They may go on asking.
    assert_eq!(fleet.begin("1.1.0", &policy), ["k1", "k0"]);
    assert!(fleet.woken().is_empty());
    // The watch shows something old: they stay reserved.
    fleet.is("k0", "1.0.0", "Ready");
    assert_eq!(fleet.ask("k2", "1.1.0", &policy), Verdict::Hold(Hold::Wave { wave: 1, of: 2 }));
    fleet.is("k0", "1.1.0", "Processing");
    fleet.is("k0", "1.1.0", "Ready");
    assert!(fleet.woken().is_empty(), "the other canary is not ready");
    fleet.is("k1", "1.1.0", "Ready");
    assert_eq!(fleet.woken(), ["k2", "k3"]);
    assert_eq!(fleet.ask("k2", "1.1.0", &policy), Verdict::Begin);
    assert_eq!(fleet.ask("k9", "1.1.0", &policy), Verdict::Begin, "the first that asks, not the first by name");
    assert_eq!(fleet.ask("k3", "1.1.0", &policy), Verdict::Hold(Hold::Unavailable));
    assert_eq!(fleet.counts(), WaveCounts { pending: 6, upgrading: 2, done: 2, ..WaveCounts::default() });
    for (ready, next) in [("k2", "k3"), ("k9", "k4"), ("k3", "k5"), ("k4", "k6"), ("k5", "k7"), ("k6", "k8")] {
        fleet.is(ready, "1.1.0", "Ready");
        assert_eq!(fleet.woken(), [next], "after {ready}");
        assert_eq!(fleet.ask(next, "1.1.0", &policy), Verdict::Begin);
    }
    fleet.is("k7", "1.1.0", "Ready");
    fleet.is("k8", "1.1.0", "Ready");
    assert!(fleet.woken().is_empty());
    assert_eq!(fleet.counts(), WaveCounts { done: 10, ..WaveCounts::default() });
}

#[test]
fn a_new_process_goes_on_where_the_former_one_ended() {
    let (mut fleet, policy) = (Fleet::new(), two_canaries_first(&[]));
    fleet.is("k0", "1.1.0", "Ready");
    fleet.is("k1", "1.1.0", "Ready");
    fleet.is("k5", "1.1.0", "Processing");
    assert_eq!(fleet.begin("1.1.0", &policy), ["k9", "k5", "k1", "k0"]);
    assert_eq!(fleet.counts(), WaveCounts { pending: 6, upgrading: 2, done: 2, ..WaveCounts::default() });
}

#[test]
fn a_failure_halts_it_and_a_heal_an_acceptance_or_another_version_goes_on() {
    let policy = two_canaries_first(&[]);
    let failed = || {
        let mut fleet = Fleet::new();
        fleet.begin("1.1.0", &policy);
        fleet.is("k0", "1.1.0", "Error");
        fleet.is("k1", "1.1.0", "Error");
        fleet
    };
    let mut fleet = failed();
    assert_eq!(fleet.woken(), ["k2"], "one of those that wait reports it");
    fleet.is("k1", "1.1.0", "Error");
    assert!(fleet.woken().is_empty(), "once");
    assert_eq!(fleet.ask("k2", "1.1.0", &policy), Verdict::Hold(Hold::Halted));
    assert!(fleet.0.counts()[0].is_halted);
    assert_eq!(fleet.0.failed(&line(), "1.1.0"), [&key("k0"), &key("k1")]);
    assert!(fleet.woken().is_empty());
    // A user accepts both.
    let accepted = two_canaries_first(&[("tidegate.dev/rollout-resumed", "1.1.0=2")]);
    assert_eq!(fleet.begin("1.1.0", &accepted).len(), 4);
    // A new version: the canaries that failed get it first.
    assert_eq!(failed().begin("1.1.1", &policy), ["k1", "k0"]);
    // They heal by themselves.
    let mut fleet = failed();
    fleet.woken();
    fleet.begin("1.1.0", &policy);
    fleet.is("k0", "1.1.0", "Ready");
    fleet.is("k1", "1.1.0", "Ready");
    assert_eq!(fleet.woken(), ["k2", "k3"]);
}

#[test]
fn what_cannot_be_upgraded_delays_no_runtime() {
    let policy = two_canaries_first(&[]);
    let begins = |change: &dyn Fn(&mut Fleet)| {
        let mut fleet = Fleet::new();
        fleet.is("k0", "1.1.0", "Ready");
        change(&mut fleet);
        fleet.ask("k2", "1.1.0", &policy) == Verdict::Begin
    };
    let stopped = KymaFacts { labels: [("stage".to_owned(), "canary".to_owned())].into(), is_stopped: true };
    let aside = |version: &str| [(line(), version.to_owned())].into();
    let metadata = |fleet: &mut Fleet, more: &serde_json::Value| {
        fleet.0.set_manifest(&key("k1-cache"), Some(&manifest("k1", "1.0.0", "Ready", more)));
    };
    let skipped = json!({"labels": {
        "operator.kyma-project.io/module-name": "cache", "operator.kyma-project.io/channel": "regular",
        "operator.kyma-project.io/kyma-name": "k1", "operator.kyma-project.io/skip-reconciliation": "true",
    }});
    assert!(!begins(&|_| {}), "the second canary holds the others");
    assert!(!begins(&|fleet| fleet.is("k1", "1.0.0", "Error")), "the new version may heal it");
    assert!(begins(&|fleet| fleet.0.set_reachable(&key("k1"), false)));
    assert!(!begins(&|fleet| {
        fleet.0.set_reachable(&key("k1"), false);
        fleet.0.set_reachable(&key("k1"), true);
    }));
    assert!(begins(&|fleet| fleet.0.set_kyma(&key("k1"), Some(stopped.clone()))));
    assert!(begins(&|fleet| fleet.0.set_aside(&key("k1"), &aside("1.1.0"))));
    assert!(!begins(&|fleet| fleet.0.set_aside(&key("k1"), &aside("1.0.9"))), "it waited for another version");
    assert!(begins(&|fleet| fleet.0.set_manifest(&key("k1-cache"), None)));
    assert!(begins(&|fleet| metadata(fleet, &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))));
    assert!(begins(&|fleet| metadata(
        fleet,
        &json!({"annotations": {"operator.kyma-project.io/is-unmanaged": "true"}})
    )));
    assert!(begins(&|fleet| metadata(fleet, &skipped)));
}

#[test]
fn a_runtime_that_went_away_gives_its_place_back_and_is_no_failure() {
    let (mut fleet, policy) = (Fleet::new(), two_canaries_first(&[]));
    fleet.begin("1.1.0", &policy);
    fleet.is("k0", "1.1.0", "Ready");
    fleet.0.set_reachable(&key("k1"), false);
    assert_eq!(fleet.woken(), ["k2", "k3"]);
    // Without access, its Manifest is in Error.
    fleet.is("k1", "1.1.0", "Error");
    assert_eq!(fleet.ask("k2", "1.1.0", &policy), Verdict::Begin);
    assert_eq!(fleet.counts().aside, 1);
}

#[test]
fn the_status_of_an_earlier_version_says_nothing() {
    let outdated = |state: &str| {
        let mut manifest = manifest("k0", "1.1.0", state, &json!({"generation": 2}));
        let status = manifest.status.as_mut().unwrap();
        status.conditions = serde_json::from_value(json!([{
            "type": "Installation", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]))
        .unwrap();
        manifest
    };
    for state in ["Ready", "Error"] {
        assert_eq!(progress(&outdated(state)), Progress::Busy, "{state}");
    }
    for (state, expected) in [("Ready", Progress::Ready), ("Warning", Progress::Ready), ("Error", Progress::Failed)] {
        assert_eq!(progress(&manifest("k0", "1.1.0", state, &json!({}))), expected, "{state}");
    }
}

#[test]
fn new_waves_sort_all_runtimes_again_and_those_that_wait_stay_known() {
    let (mut fleet, policy) = (Fleet::new(), two_canaries_first(&[]));
    fleet.begin("1.1.0", &policy);
    let other = two_canaries_first(&[("tidegate.dev/rollout-waves", "stage=all")]);
    assert_eq!(fleet.ask("k5", "1.1.0", &other), Verdict::Hold(Hold::Unavailable), "both canaries are under way");
    fleet.is("k0", "1.1.0", "Ready");
    assert_eq!(fleet.woken(), ["k2"], "it is in the first wave now");
}

#[test]
fn the_counts_are_those_of_the_members_whatever_happens() {
    let (mut fleet, policy) = (Fleet::new(), two_canaries_first(&[]));
    let states = ["Ready", "Processing", "Error", "Warning"];
    // Any sequence will do: this one visits each runtime in many orders.
    for step in 0..2000_usize {
        let name = format!("k{}", step * 7 % 10);
        match step % 6 {
            0 | 4 => fleet.is(&name, if step % 3 == 0 { "1.0.0" } else { "1.1.0" }, states[step / 6 % 4]),
            1 => _ = fleet.ask(&name, "1.1.0", &policy),
            2 => fleet.0.set_reachable(&key(&name), step % 4 < 2),
            3 if step % 11 == 0 => fleet.0.set_manifest(&key(&format!("{name}-cache")), None),
            _ => fleet.0.set_aside(&key(&name), &[(line(), "1.1.0".to_owned())].into()),
        }
        for runtimes in fleet.0.lines.values() {
            let mut counted: BTreeMap<Group, usize> = BTreeMap::new();
            for member in runtimes.members.values() {
                *counted.entry(member.group()).or_default() += 1;
            }
            assert_eq!(runtimes.counts, counted, "after step {step}");
        }
    }
}
