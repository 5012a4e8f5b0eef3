#![expect(clippy::needless_pass_by_value, reason = "`json!` makes a value where it is passed")]

use serde_json::{Value, json};

use super::*;
use crate::{
    maintenance::Policy as MaintenancePolicy,
    plan::{
        Components, InstalledModules, RuntimeWindows, Settings, runtime,
        tests::{add_release, add_template, landscape},
    },
};

fn metadata(annotations: Value) -> ObjectMeta {
    serde_json::from_value(json!({"annotations": annotations})).unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn annotations_are_the_policy() {
    assert_eq!(policy(&metadata(json!({"tidegate.dev/prune": "disabled"}))), Ok(None));
    // What users have accepted is no policy by itself.
    assert_eq!(policy(&metadata(json!({ROLLOUT_RESUMED: "1.1.0=2"}))), Ok(None));
    let found = policy(&metadata(json!({
        ROLLOUT_MAX_UNAVAILABLE: "10%", ROLLOUT_MAX_FAILURES: "1", ROLLOUT_PAUSED: "true",
        ROLLOUT_WAVES: "stage=canary; region in (eu, us),tier!=free;", ROLLOUT_RESUMED: "1.1.0=2, 1.2.0=0",
    })));
    let found = found.unwrap().unwrap();
    assert_eq!((found.max_unavailable, found.max_failures), (Some(Share::Percent(10)), Share::Number(1)));
    assert!(found.is_paused);
    assert_eq!(found.resumed, [("1.1.0".to_owned(), 2), ("1.2.0".to_owned(), 0)].into());
    for (labels, wave) in [
        (labels(&[("stage", "canary"), ("region", "eu")]), 0),
        (labels(&[("region", "eu"), ("tier", "paid")]), 1),
        (labels(&[("region", "eu"), ("tier", "free")]), 2),
        (labels(&[]), 2),
    ] {
        assert_eq!(found.wave(&labels), wave, "{labels:?}");
    }
    assert_eq!(found.summary(), "3 waves, at most 10 % of the runtimes at once, paused");
    assert_eq!(held_everywhere(&metadata(json!({ROLLOUT_PAUSED: "true"}))), Some(Hold::Paused(None)));
    let suspended = json!({ROLLOUT_PAUSED: "true", SUSPENDED: "by anna since noon: it is slow"});
    let hold = held_everywhere(&metadata(suspended)).unwrap();
    let said =
        "the rollout is paused by annotation tidegate.dev/rollout-paused, suspended by anna since noon: it is slow";
    assert_eq!(hold.to_string(), said);
    assert_eq!(held_everywhere(&metadata(json!({ROLLOUT_WAVES: "stage=canary"}))), None);
    assert!(matches!(held_everywhere(&metadata(json!({ROLLOUT_PAUSED: "yes"}))), Some(Hold::Invalid(_))));
    assert_eq!(resumed_text([("1.1.0", 2), ("1.2.0", 1)]), "1.1.0=2,1.2.0=1");
}

#[test]
fn an_annotation_that_cannot_be_read_is_named() {
    let many = vec!["a=b"; WAVES_MAX + 1].join(";");
    for (annotation, text, expected) in [
        (ROLLOUT_MAX_UNAVAILABLE, "0", "invalid value `0`: use a number or a percentage from 1, for example 2 or 10%"),
        (ROLLOUT_MAX_UNAVAILABLE, "101%", "invalid value `101%`"),
        (ROLLOUT_MAX_UNAVAILABLE, "two", "invalid value `two`"),
        (ROLLOUT_MAX_FAILURES, "-1", "invalid value `-1`: use a number or a percentage from 0"),
        (ROLLOUT_WAVES, "stage in canary", "`stage in canary` is not a requirement"),
        (ROLLOUT_WAVES, &many, "33 waves are too many: use at most 32"),
        (ROLLOUT_PAUSED, "yes", "must be `true` or `false`"),
        (ROLLOUT_RESUMED, "1.1.0", "invalid entry `1.1.0`: use a version and a number of failures"),
    ] {
        let error = policy(&metadata(json!({annotation: text}))).unwrap_err();
        assert_eq!(error.annotation, annotation);
        assert!(error.message.starts_with(expected), "{error}");
    }
}

/// Counts of a wave: pending, upgrading, failed, done, aside.
fn wave([pending, upgrading, failed, done, aside]: [usize; 5]) -> WaveCounts {
    WaveCounts { pending, upgrading, failed, done, aside }
}

#[test]
fn a_runtime_begins_when_its_wave_and_its_turn_have_come() {
    let two_waves = |max: Option<Share>| Policy {
        max_unavailable: max,
        waves: vec![Wave { text: "stage=canary".to_owned(), selector: selector::read("stage=canary").unwrap() }],
        ..Policy::default()
    };
    let two = || two_waves(Some(Share::Number(2)));
    let tenth = || two_waves(Some(Share::Percent(10)));
    let begin = || Verdict::Begin;
    let wave_one = || Verdict::Hold(Hold::Wave { wave: 1, of: 2 });
    let full = || Verdict::Hold(Hold::Unavailable);
    let halted = || Verdict::Hold(Hold::Halted);
    let rest = [8, 0, 0, 0, 0];
    for (policy, canaries, others, of_wave, expected) in [
        // Canaries come first.
        (two(), [2, 0, 0, 0, 0], rest, 0, begin()),
        (two(), [2, 0, 0, 0, 0], rest, 1, wave_one()),
        (two(), [1, 1, 0, 0, 0], rest, 0, begin()),
        (two(), [0, 2, 0, 0, 0], rest, 0, full()),
        (two(), [0, 1, 0, 1, 0], rest, 1, wave_one()),
        (two(), [0, 0, 0, 2, 0], rest, 1, begin()),
        // Canaries that cannot be upgraded delay no runtime.
        (two(), [0, 0, 0, 1, 1], rest, 1, begin()),
        // As many at once as allowed.
        (two(), [0, 0, 0, 2, 0], [7, 1, 0, 0, 0], 1, begin()),
        (two(), [0, 0, 0, 2, 0], [6, 2, 0, 0, 0], 1, full()),
        (two_waves(None), [0, 0, 0, 2, 0], [1, 7, 0, 0, 0], 1, begin()),
        // A percentage is rounded down, but one runtime may always begin.
        (tenth(), [0, 0, 0, 2, 0], [17, 1, 0, 0, 0], 1, begin()),
        (tenth(), [0, 0, 0, 2, 0], [16, 2, 0, 0, 0], 1, full()),
        (tenth(), [2, 0, 0, 0, 0], [1, 0, 0, 0, 0], 0, begin()),
        // One failure halts everything.
        (two(), [1, 0, 1, 0, 0], rest, 0, halted()),
        (two(), [0, 0, 0, 2, 0], [7, 0, 1, 0, 0], 1, halted()),
        (Policy { max_failures: Share::Number(1), ..two() }, [1, 0, 1, 0, 0], rest, 0, begin()),
        (Policy { max_failures: Share::Number(1), ..two() }, [0, 1, 1, 0, 0], rest, 0, full()),
        (Policy { max_failures: Share::Percent(10), ..two() }, [0, 0, 1, 1, 0], rest, 1, begin()),
        // Accepted failures neither halt it nor take a place, but further ones do.
        (Policy { resumed: [("1.1.0".to_owned(), 2)].into(), ..two() }, [0, 0, 2, 0, 0], rest, 1, begin()),
        (Policy { resumed: [("1.1.0".to_owned(), 1)].into(), ..two() }, [0, 0, 2, 0, 0], rest, 1, halted()),
        (Policy { resumed: [("1.0.9".to_owned(), 9)].into(), ..two() }, [0, 0, 1, 1, 0], rest, 1, halted()),
        (Policy { is_paused: true, ..two() }, [2, 0, 0, 0, 0], rest, 0, Verdict::Hold(Hold::Paused(None))),
    ] {
        let counts = [wave(canaries), wave(others)];
        assert_eq!(policy.verdict("1.1.0", &counts, of_wave), expected, "{policy:?} {counts:?} {of_wave}");
    }
}

fn kyma(name: &str, conditions: Value) -> Kyma {
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"namespace": "kcp-system", "name": name},
        "spec": {"channel": "regular", "modules": [{"name": "cache"}]},
        "status": {"state": "Ready", "conditions": conditions, "lastOperation": {"operation": ""}},
    }))
    .unwrap()
}

#[test]
fn delays_spread_evenly_and_count_from_the_first_time_that_the_status_says_so() {
    let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
    let max = Duration::from_secs(300);
    let delay = |kyma: &Kyma, version: &str, max| delayed(kyma, "cache", version, max, now);
    assert_eq!(delay(&kyma("one", json!([])), "1.1.0", Duration::ZERO), None);
    let delays: Vec<i64> = (0..200)
        .filter_map(|number| delay(&kyma(&format!("kyma-{number}"), json!([])), "1.1.0", max))
        .map(|until| until.as_second() - now.as_second())
        .collect();
    assert!(delays.iter().all(|delay| (0..=300).contains(delay)));
    for part in 0..3 {
        let count = delays.iter().filter(|delay| (part * 100..part * 100 + 100).contains(*delay)).count();
        assert!((40..95).contains(&count), "{count} of 200 are in part {part}");
    }
    let waiting = |since: &str| {
        let condition = json!({
            "type": conditions::ROLLOUT, "status": "False", "reason": "Delayed", "message": "",
            "lastTransitionTime": since,
        });
        kyma("one", json!([condition]))
    };
    let first = delay(&waiting("2026-11-23T12:00:00Z"), "1.1.0", max).unwrap();
    let later = delay(&waiting("2026-11-23T11:59:59Z"), "1.1.0", max).unwrap();
    assert_eq!(first.as_second() - later.as_second(), 1, "a restart changes nothing");
    assert_eq!(delay(&waiting("2026-11-23T11:00:00Z"), "1.1.0", max), None);
    assert_ne!(delay(&kyma("one", json!([])), "1.2.0", max), delay(&kyma("one", json!([])), "1.1.0", max));
}

/// The plan for `cache` and the mandatory module `warden`, of which 1.1.0 and 1.0.0 are installed.
fn plan_with(held: &HeldVersions) -> (RuntimePlan, InstalledVersions) {
    let mut landscape = landscape();
    add_release(&mut landscape, "warden", json!({"mandatory": {"version": "1.1.0"}}));
    for version in ["1.0.0", "1.1.0"] {
        add_template(&mut landscape, "warden", version, json!({}));
    }
    add_template(&mut landscape, "cache", "1.1.0", json!({}));
    let manifest = |module: &str, version: &str, label: (&str, &str)| -> Manifest {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {"name": module, "namespace": "kcp-system", "labels": {
                "operator.kyma-project.io/module-name": module, label.0: label.1,
            }},
            "spec": {"remote": true, "version": version, "install": {"name": "raw-manifest", "source": {}}},
        }))
        .unwrap()
    };
    let manifests = [
        manifest("cache", "1.1.0", ("operator.kyma-project.io/channel", "regular")),
        manifest("warden", "1.0.0", ("operator.kyma-project.io/mandatory-module", "true")),
    ];
    let installed = crate::plan::window::installed_in_manifests(&manifests);
    let kyma = kyma("one", json!([]));
    let labels = BTreeMap::new();
    let policy: Option<&MaintenancePolicy> = None;
    let windows = Windows::Known(RuntimeWindows {
        policy,
        now: "2026-11-23T12:00:00Z".parse().unwrap(),
        size_min: Duration::ZERO,
        labels: &labels,
        installed: &installed,
        held,
    });
    let before = InstalledModules::from_manifests(&manifests);
    let components = Components::default();
    let plan = runtime(&landscape, &components, &kyma, &kyma.spec, &Settings::default(), &before, windows);
    (plan, installed)
}

#[test]
fn a_held_version_leaves_the_installed_one_as_it_is() {
    let (plan, installed) = plan_with(&HeldVersions::new());
    let found: Vec<(&str, &str)> =
        upgrades(&plan, &installed).into_iter().map(|upgrade| (upgrade.module, upgrade.to)).collect();
    assert_eq!(found, [("cache", "1.2.0"), ("warden", "1.1.0")]);

    let hold = |version: &str, hold: Hold| HeldVersion { version: version.to_owned(), hold };
    let until: Timestamp = "2026-11-23T12:03:00Z".parse().unwrap();
    let held = [
        ("cache".to_owned(), hold("1.2.0", Hold::Delay(until))),
        ("warden".to_owned(), hold("1.1.0", Hold::Unavailable)),
    ];
    let (plan, installed) = plan_with(&held.into());
    assert!(upgrades(&plan, &installed).is_empty());
    for (name, from, to, next) in [("cache", "1.1.0", "1.2.0", Some(until)), ("warden", "1.0.0", "1.1.0", None)] {
        let module = plan.deciding().into_iter().find(|module| module.name == name).unwrap();
        let ModuleOutcome::Wait(wait) = &module.outcome else { panic!("{name} waits: {module:?}") };
        assert_eq!((wait.from.as_str(), wait.to.as_str(), wait.next), (from, to, next));
        assert!(matches!(wait.why, WaitFor::Rollout(_)));
        assert_eq!(wait.kept.as_ref().map(|kept| kept.version.as_str()), Some(from));
        assert_eq!(wait.coming.as_ref().map(|coming| coming.version.as_str()), Ok(to));
    }
    // Another version than the held one is not held.
    let (plan, _) = plan_with(&[("cache".to_owned(), hold("1.1.9", Hold::Paused(None)))].into());
    assert!(matches!(plan.modules[0].outcome, ModuleOutcome::Install(_)));
    assert_eq!(aside(&plan).count(), 0);
}

#[test]
fn another_channel_is_no_rollout() {
    let (plan, installed) = plan_with(&HeldVersions::new());
    let elsewhere = installed.into_iter().map(|(module, installed)| {
        let channel = Some("fast".to_owned());
        (module, InstalledVersion { channel, ..installed })
    });
    assert!(upgrades(&plan, &elsewhere.collect()).is_empty());
}

#[test]
fn the_failures_of_the_versions_that_are_offered_can_be_accepted() {
    let manifest = |kyma: &str, version: &str, state: &str| -> Manifest {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {"name": format!("{kyma}-cache"), "namespace": "kcp-system", "labels": {
                "operator.kyma-project.io/module-name": "cache", "operator.kyma-project.io/channel": "regular",
                "operator.kyma-project.io/kyma-name": kyma,
            }},
            "spec": {"remote": true, "version": version, "install": {"name": "raw-manifest", "source": {}}},
            "status": {"state": state},
        }))
        .unwrap()
    };
    let manifests = [
        manifest("one", "1.2.0", "Error"),
        manifest("two", "1.2.0", "Error"),
        manifest("three", "1.2.0", "Ready"),
        manifest("four", "1.1.0", "Error"),
    ];
    let landscape = landscape();
    let release = landscape.releases.values().next().unwrap();
    let found = failures(release, &manifests);
    assert_eq!(found, [("1.2.0", 2)].into());
    let text = resumed_text(found);
    let accepted = policy(&metadata(json!({ROLLOUT_RESUMED: text, ROLLOUT_PAUSED: "false"}))).unwrap().unwrap();
    assert_eq!(accepted.resumed, [("1.2.0".to_owned(), 2)].into());
}
