#![expect(clippy::needless_pass_by_value, reason = "`json!` makes a value where it is passed")]

use serde_json::{Value, json};

use super::super::{
    Answer, Components, InstalledModules, ModuleOutcome, Settings, runtime,
    tests::{add_release, add_template, kyma, landscape, merge},
};
use super::*;
use crate::landscape::Landscape;

static NOTHING_HELD: HeldVersions = HeldVersions::new();

/// 2026-11-22 is a Sunday.
const SUNDAY: &str = "2026-11-22T12:00:00Z";
/// Saturdays for region `eu`, one evening in 2026 for `jp`, Sundays for all others.
const POLICY: &str = r#"{
  "rules": [
    {"match": {"region": "^eu"}, "windows": [{"days": ["Sat"], "begin": "20:00:00Z", "end": "22:00:00Z"}]},
    {"match": {"region": "^jp"}, "windows": [{"begin": "2026-10-10T20:00:00Z", "end": "2026-10-10T22:00:00Z"}]}
  ]
}"#;
const KLM: &str = "Error NoMaintenancePolicy keep: failed to determine if maintenance window is active: no maintenance \
                   window policy configured";

/// The landscape where 1.3.0, in channel `fast`, requires downtime.
fn with_downtime() -> Landscape {
    let mut landscape = landscape();
    add_template(&mut landscape, "cache", "1.3.0", json!({"spec": {"requiresDowntime": true}}));
    landscape
}

/// A Kyma that wants `cache` from channel `fast`, in a region.
fn fast(region: &str, more: Value) -> Kyma {
    let mut with = json!({
        "metadata": {"labels": {"kyma-project.io/region": region}},
        "spec": {"channel": "fast", "modules": [{"name": "cache"}]},
    });
    merge(&mut with, &more);
    kyma(with)
}

fn version(version: &str) -> InstalledVersions {
    let installed = InstalledVersion { version: version.to_owned(), channel: Some("regular".to_owned()) };
    [("cache".to_owned(), installed)].into()
}

/// The decision about `cache` with these versions installed.
fn decide(landscape: &Landscape, kyma: &Kyma, installed: &InstalledVersions, now: &str) -> ModuleOutcome {
    let policy = Policy::parse(POLICY).unwrap();
    decide_by(landscape, kyma, installed, now, Some(&policy))
}

fn decide_by(
    landscape: &Landscape,
    kyma: &Kyma,
    installed: &InstalledVersions,
    now: &str,
    policy: Option<&Policy>,
) -> ModuleOutcome {
    let labels = kyma.metadata.labels.clone().unwrap_or_default();
    let windows = Windows::Known(RuntimeWindows {
        policy,
        now: now.parse().unwrap(),
        size_min: Duration::from_secs(1200),
        labels: &labels,
        installed,
        held: &NOTHING_HELD,
    });
    let settings = Settings::default();
    runtime(landscape, &Components::default(), kyma, &kyma.spec, &settings, &InstalledModules::default(), windows)
        .modules
        .remove(0)
        .outcome
}

/// The decision in one line: what is installed now, and what waits for when.
fn line(outcome: &ModuleOutcome) -> String {
    match outcome {
        ModuleOutcome::Wait(wait) => {
            let kept = |kept: &Installation| format!("{} of {}", kept.version, kept.offer);
            let kept = wait.kept.as_ref().map_or("as it is".to_owned(), kept);
            let next = wait.next.map_or("never".to_owned(), |next| next.to_string());
            format!("keep {kept}; {} to {} waits: {next}", wait.from, wait.to)
        }
        other => super::super::tests::line(other),
    }
}

#[test]
fn an_upgrade_that_requires_downtime_waits_for_the_window_of_its_runtime() {
    let waits = |next: &str| format!("keep 1.2.0 of regular; 1.2.0 to 1.3.0 waits: {next}");
    for (region, now, expected) in [
        ("eu-1", SUNDAY, waits("2026-11-28T20:00:00Z")),
        ("eu-1", "2026-11-28T20:00:00Z", waits("2026-11-28T20:00:00Z")),
        ("eu-1", "2026-11-28T20:00:01Z", "install 1.3.0".to_owned()),
        ("eu-1", "2026-11-28T21:39:59Z", "install 1.3.0".to_owned()),
        // Less than 20 minutes are left.
        ("eu-1", "2026-11-28T21:40:00Z", waits("2026-12-05T20:00:00Z")),
        ("jp-1", "2026-10-10T21:00:00Z", "install 1.3.0".to_owned()),
        ("jp-1", SUNDAY, waits("never")),
        ("us-1", SUNDAY, waits("never")),
    ] {
        let found = decide(&with_downtime(), &fast(region, json!({})), &version("1.2.0"), now);
        assert_eq!(line(&found), expected, "{region} at {now}");
    }
}

#[test]
fn nothing_else_waits() {
    let skips = json!({"spec": {"skipMaintenanceWindows": true}});
    for (what, landscape, more, installed, expected) in [
        ("the first installation", with_downtime(), json!({}), InstalledVersions::new(), "install 1.3.0"),
        ("the installed version", with_downtime(), json!({}), version("1.3.0"), "install 1.3.0"),
        ("a Kyma that skips windows", with_downtime(), skips, version("1.2.0"), "install 1.3.0"),
        ("an upgrade without downtime", landscape(), json!({}), version("1.2.0"), "install 1.3.0"),
        (
            "a version that requires none, after one that does",
            with_downtime(),
            json!({"spec": {"channel": "regular"}}),
            version("1.1.0"),
            "install 1.2.0",
        ),
    ] {
        for policy in [None, Some(Policy::parse(POLICY).unwrap())] {
            let found = decide_by(&landscape, &fast("eu-1", more.clone()), &installed, SUNDAY, policy.as_ref());
            assert_eq!(line(&found), expected, "{what}, with a policy: {}", policy.is_some());
        }
    }
}

#[test]
fn without_a_policy_the_upgrade_is_an_error_and_the_module_is_kept() {
    let found = decide_by(&with_downtime(), &fast("eu-1", json!({})), &version("1.2.0"), SUNDAY, None);
    assert_eq!(line(&found), KLM);
}

#[test]
fn a_command_that_knows_no_window_shows_the_upgrade() {
    let (landscape, kyma) = (with_downtime(), fast("eu-1", json!({})));
    let settings = Settings::default();
    let plan = runtime(
        &landscape,
        &Components::default(),
        &kyma,
        &kyma.spec,
        &settings,
        &InstalledModules::default(),
        Windows::Unknown,
    );
    assert_eq!(line(&plan.modules[0].outcome), "install 1.3.0");
}

#[test]
fn refusals_come_before_the_window() {
    let mut landscape = with_downtime();
    let kyma = fast("eu-1", reported("1.4.0"));
    let found = decide(&landscape, &kyma, &version("1.4.0"), SUNDAY);
    assert!(line(&found).starts_with("Warning Downgrade keep: "), "{}", line(&found));
    landscape.templates.remove(&crate::name::Key::new("kcp-system", "cache-1.3.0"));
    let found = decide(&landscape, &fast("eu-1", json!({})), &version("1.2.0"), SUNDAY);
    assert!(line(&found).starts_with("Error NoTemplate keep: "), "{}", line(&found));
}

/// The status of a Kyma with `cache` in this version.
fn reported(version: &str) -> Value {
    json!({"status": {"state": "Ready", "modules": [{"name": "cache", "state": "Ready", "version": version}]}})
}

/// A user has edited the version in the Manifest.
#[test]
fn the_status_names_the_installed_version_if_the_manifest_does_not() {
    let landscape = with_downtime();
    let edited = decide(&landscape, &fast("eu-1", reported("1.2.0")), &version("0.9.0"), SUNDAY);
    assert_eq!(edited.installed().map(|kept| kept.version.as_str()), Some("1.2.0"));
    let unknown = decide(&landscape, &fast("eu-1", json!({})), &version("0.9.0"), SUNDAY);
    assert_eq!(unknown.installed(), None, "the Manifest stays as it is");
}

/// The Manifest of the old version is repaired as long as something says what belongs in it.
#[test]
fn the_old_version_is_kept_as_its_template_says() {
    let mut landscape = with_downtime();
    let found = decide(&landscape, &fast("eu-1", json!({})), &version("1.2.0"), SUNDAY);
    let kept = found.installed().unwrap();
    assert_eq!((kept.version.as_str(), kept.offer.channel()), ("1.2.0", Some("regular")));
    assert_eq!(kept.template.name(), "cache-1.2.0");
    let ModuleOutcome::Wait(wait) = &found else { panic!("{found:?}") };
    let coming = wait.coming.as_ref().unwrap();
    assert_eq!((coming.version.as_str(), coming.offer.channel()), ("1.3.0", Some("fast")));
    assert_eq!(kept.manifest_name, coming.manifest_name);

    landscape.templates.remove(&crate::name::Key::new("kcp-system", "cache-1.2.0"));
    let found = decide(&landscape, &fast("eu-1", json!({})), &version("1.2.0"), SUNDAY);
    assert_eq!(line(&found), "keep as it is; 1.2.0 to 1.3.0 waits: 2026-11-28T20:00:00Z");
    assert_eq!(found.installed(), None);
}

/// The component is looked up before the window, so that the window is not spent on it.
#[test]
fn the_component_of_the_coming_version_is_wanted_while_it_waits() {
    let mut landscape = landscape();
    let more = json!({"metadata": {"annotations": null}, "spec": {"requiresDowntime": true}});
    add_template(&mut landscape, "cache", "1.3.0", more);
    add_release(&mut landscape, "cache", json!({"channels": [{"channel": "fast", "version": "1.3.0"}]}));
    let (kyma, installed) = (fast("eu-1", json!({})), version("1.2.0"));
    let (policy, settings) = (Policy::parse(POLICY).unwrap(), Settings::default());
    let labels = kyma.metadata.labels.clone().unwrap();
    let windows = Windows::Known(RuntimeWindows {
        policy: Some(&policy),
        now: SUNDAY.parse().unwrap(),
        size_min: Duration::ZERO,
        labels: &labels,
        installed: &installed,
        held: &NOTHING_HELD,
    });
    let components = Components::new(std::sync::Arc::default(), Answer::Failed("away".to_owned()));
    let plan = runtime(&landscape, &components, &kyma, &kyma.spec, &settings, &InstalledModules::default(), windows);
    let module = &plan.modules[0];
    assert_eq!(line(&module.outcome), "keep 1.2.0 of regular; 1.2.0 to 1.3.0 waits: 2026-11-28T20:00:00Z");
    assert_eq!(module.component.as_ref().unwrap().to_string(), "kyma-project.io/module/cache:1.3.0");
    let ModuleOutcome::Wait(wait) = &module.outcome else { panic!("{module:?}") };
    assert_eq!(wait.coming.as_ref().unwrap_err().reason, reason::COMPONENT_FAILED);
}
