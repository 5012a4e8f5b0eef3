//! Which changes of definitions make a runtime lose a module that its Kyma names, or that it had to have.

use serde_json::json;

use super::*;
use crate::api::ModuleTemplate;

fn key(name: &str) -> Key {
    Key::new("kcp-system", name)
}

/// A Kyma of git with module `m` of channel `regular`, and a label that is `true`.
fn kyma(name: &str, labels: &[&str], modules: &[&str]) -> Kyma {
    let labels: BTreeMap<&str, &str> = labels.iter().map(|label| (*label, "true")).collect();
    let modules: Vec<Value> = modules.iter().map(|name| json!({"name": name, "managed": true})).collect();
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": name, "namespace": "kcp-system", "labels": labels,
            "annotations": {"tidegate.dev/modules-from": "git"}},
        "spec": {"channel": "regular", "modules": modules},
    }))
    .unwrap()
}

fn template(version: &str, labels: &[&str]) -> ModuleTemplate {
    let labels: BTreeMap<&str, &str> = labels.iter().map(|label| (*label, "true")).collect();
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": format!("m-{version}"), "namespace": "kcp-system", "labels": labels},
        "spec": {"moduleName": "m", "version": version},
    }))
    .unwrap()
}

/// Module `m` in a version on channel `regular`, or as a mandatory one.
fn release(version: &str, is_mandatory: bool, selector: Value) -> ModuleReleaseMeta {
    let mut spec = json!({"moduleName": "m", "ocmComponentName": "x.io/m"});
    if is_mandatory {
        spec["mandatory"] = json!({"version": version});
    } else {
        spec["channels"] = json!([{"channel": "regular", "version": version}]);
    }
    if !selector.is_null() {
        spec["kymaSelector"] = selector;
    }
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": "m", "namespace": "kcp-system"}, "spec": spec,
    }))
    .unwrap()
}

#[derive(Default)]
struct Of {
    kymas: Vec<Kyma>,
    templates: Vec<ModuleTemplate>,
    releases: Vec<ModuleReleaseMeta>,
}

fn landscape(of: Of) -> Landscape {
    let mut landscape = Landscape::default();
    let name = |metadata: &crate::api::shared::ObjectMeta| key(metadata.name.as_deref().unwrap());
    landscape.kymas.extend(of.kymas.into_iter().map(|one| (name(&one.metadata), Arc::new(one))));
    landscape.templates.extend(of.templates.into_iter().map(|one| (name(&one.metadata), Arc::new(one))));
    landscape.releases.extend(of.releases.into_iter().map(|one| (name(&one.metadata), Arc::new(one))));
    landscape
}

/// Checks which definitions take module `m` from which runtimes. `a` is for beta modules, and `b` is not.
#[track_caller]
fn check(before: Of, changed: Of, standing: Standing, expected: &[&str]) {
    let settings = Settings { restricted_modules: ["r".to_owned()].into(), ..Settings::default() };
    let installed = ["a", "b"].map(|runtime| Installed {
        runtime: key(runtime),
        module: "m".to_owned(),
        version: "1.0.0".to_owned(),
        standing,
    });
    let found = of_access(&landscape(before), &landscape(changed), &installed, &settings);
    let found: Vec<String> = found
        .iter()
        .flat_map(|(id, removals)| removals.iter().map(move |removal| (id, removal)))
        .map(|((kind, key), removal)| {
            let runtimes: Vec<&str> = removal.runtimes.iter().map(Key::name).collect();
            assert_eq!((removal.module.name(), &removal.loss), ("m", &Removed::Module));
            format!("{kind} {} from {}", key.name(), runtimes.join(" "))
        })
        .collect();
    assert_eq!(found, expected);
}

fn world() -> Of {
    Of {
        kymas: vec![kyma("a", &[label::BETA], &["m"]), kyma("b", &[], &["m"])],
        templates: vec![template("1.0.0", &[]), template("2.0.0", &[label::BETA])],
        releases: vec![release("1.0.0", false, Value::Null)],
    }
}

#[test]
fn a_label_of_a_module_takes_it_from_the_runtimes_that_may_not_have_it() {
    let labelled = |label| Of { templates: vec![template("1.0.0", &[label])], ..Of::default() };
    check(world(), labelled(label::BETA), Standing::Selected, &["ModuleTemplate m-1.0.0 from b"]);
    check(world(), labelled(label::INTERNAL), Standing::Selected, &["ModuleTemplate m-1.0.0 from a b"]);
    check(world(), labelled("other"), Standing::Selected, &[]);
    check(world(), labelled(label::BETA), Standing::Leaving, &[]);
    let unused = Of { templates: vec![template("3.0.0", &[label::BETA])], ..Of::default() };
    check(world(), unused, Standing::Selected, &[]);
}

#[test]
fn a_channel_that_offers_a_version_for_others_takes_the_module_away() {
    let bump = Of { releases: vec![release("2.0.0", false, Value::Null)], ..Of::default() };
    check(world(), bump, Standing::Selected, &["ModuleReleaseMeta m from b"]);
    let selector = json!({"matchLabels": {"region": "eu"}});
    let selects = Of { releases: vec![release("1.0.0", false, selector)], ..Of::default() };
    check(world(), selects, Standing::Selected, &["ModuleReleaseMeta m from a b"]);
    let to_mandatory = Of { releases: vec![release("1.0.0", true, Value::Null)], ..Of::default() };
    check(world(), to_mandatory, Standing::Selected, &[]);
}

#[test]
fn a_label_that_a_kyma_loses_takes_its_modules_away() {
    let beta = || Of { templates: vec![template("1.0.0", &[label::BETA])], ..world() };
    let loses = || Of { kymas: vec![kyma("a", &[], &["m"])], ..Of::default() };
    check(beta(), loses(), Standing::Selected, &["Kyma a from a"]);
    check(world(), loses(), Standing::Selected, &[]);
    // What it no longer names is another removal.
    check(beta(), Of { kymas: vec![kyma("a", &[], &[])], ..Of::default() }, Standing::Selected, &[]);
    // Together they take it away, and none does alone.
    let both = Of { templates: vec![template("1.0.0", &[label::BETA])], ..loses() };
    check(world(), both, Standing::Selected, &["ModuleTemplate m-1.0.0 from a b", "Kyma a from a"]);
}

#[test]
fn a_module_that_is_no_longer_mandatory_leaves_the_runtimes_that_do_not_select_it() {
    let mandatory = || Of {
        kymas: vec![kyma("a", &[], &[]), kyma("b", &[], &[])],
        releases: vec![release("1.0.0", true, Value::Null)],
        ..world()
    };
    let turned = || Of { releases: vec![release("1.0.0", false, Value::Null)], ..Of::default() };
    check(mandatory(), turned(), Standing::Mandatory, &["ModuleReleaseMeta m from a b"]);
    let selected = Of { kymas: vec![kyma("b", &[], &["m"])], ..turned() };
    check(mandatory(), selected, Standing::Mandatory, &["ModuleReleaseMeta m from a"]);
    let bump = Of { releases: vec![release("2.0.0", true, Value::Null)], ..Of::default() };
    check(mandatory(), bump, Standing::Mandatory, &[]);
}

#[test]
fn most_changes_of_modules_take_nothing_from_runtimes() {
    let may = |changed: Of| may_take(&landscape(world()), &landscape(changed));
    let releases = |release| Of { releases: vec![release], ..Of::default() };
    assert!(!may(Of::default()));
    assert!(!may(releases(release("1.0.0", false, Value::Null))));
    assert!(!may(Of { templates: vec![template("1.0.0", &["x"])], ..Of::default() }));
    assert!(may(Of { templates: vec![template("1.0.0", &[label::INTERNAL])], ..Of::default() }));
    assert!(may(releases(release("2.0.0", false, Value::Null))));
    assert!(may(releases(release("1.0.0", false, json!({})))));
    let mandatory = Of { releases: vec![release("1.0.0", true, Value::Null)], ..world() };
    assert!(may_take(&landscape(mandatory), &landscape(releases(release("1.0.0", false, Value::Null)))));
}

#[test]
fn only_labels_and_channels_of_a_kyma_may_change_what_it_may_have() {
    let settings = Settings::default();
    let restricts = Settings { restricted_modules: ["r".to_owned()].into(), ..Settings::default() };
    let value = |kyma: &Kyma| serde_json::to_value(kyma).unwrap();
    let live = kyma("a", &["x"], &["m"]);
    assert!(!may_change_access(&value(&live), &live, &settings));
    assert!(!may_change_access(&value(&kyma("a", &["x"], &["m", "n"])), &live, &settings));
    assert!(may_change_access(&value(&kyma("a", &["x", label::BETA], &["m"])), &live, &settings));
    let other = value(&kyma("a", &["y"], &["m"]));
    assert!(!may_change_access(&other, &live, &settings));
    assert!(may_change_access(&other, &live, &restricts));
    let mut channel = value(&live);
    channel["spec"]["channel"] = json!("fast");
    assert!(may_change_access(&channel, &live, &settings));
    let mut channel = value(&live);
    channel["spec"]["modules"][0]["channel"] = json!("fast");
    assert!(may_change_access(&channel, &live, &settings));
}
