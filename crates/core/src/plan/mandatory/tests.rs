//! What decides about mandatory modules.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::{Components, ModuleOutcome, RuntimePlan, Settings, runtime},
    *,
};
use crate::api::{Kyma, ModuleTemplate};

const TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// A landscape with these ModuleReleaseMetas, each as its name and what is added to it, and these ModuleTemplates from
/// git.
fn landscape(releases: &[(&str, Value)], templates: &[(&str, Value)]) -> Landscape {
    let mut landscape = Landscape::default();
    for (name, more) in releases {
        let mut release = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
            "metadata": {"namespace": "kcp-system", "name": name, "uid": "1"},
            "spec": {"moduleName": name, "ocmComponentName": format!("kyma-project.io/module/{name}")},
        });
        merge(&mut release, more);
        let release: ModuleReleaseMeta = serde_json::from_value(release).unwrap();
        landscape.releases.insert(landscape::key(&release.metadata), Arc::new(release));
    }
    for (name, more) in templates {
        let mut template = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": {
                "namespace": "kcp-system", "name": name,
                "labels": {"tidegate.dev/source": "kcp-system.landscape"},
                "annotations": {
                    "tidegate.dev/source": "kcp-system/landscape", "tidegate.dev/module-path": "modules/x",
                    "tidegate.dev/module-tree": TREE,
                },
            },
            "spec": {"descriptor": {}},
        });
        merge(&mut template, more);
        let template: ModuleTemplate = serde_json::from_value(template).unwrap();
        landscape.templates.insert(landscape::key(&template.metadata), Arc::new(template));
    }
    landscape
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn mandatory(version: &str) -> Value {
    json!({"spec": {"mandatory": {"version": version}}})
}

fn channels(version: &str) -> Value {
    json!({"spec": {"channels": [{"channel": "regular", "version": version}]}})
}

fn kyma(more: &Value) -> Kyma {
    let mut kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"namespace": "kcp-system", "name": "one"}, "spec": {"channel": "regular"},
    });
    merge(&mut kyma, more);
    serde_json::from_value(kyma).unwrap()
}

fn installed(modules: &[(&str, &str, bool)]) -> InstalledModules {
    let module = |&(name, version, is_mandatory): &(&str, &str, bool)| {
        (name.to_owned(), InstalledModule { version: version.to_owned(), is_mandatory })
    };
    InstalledModules(modules.iter().map(module).collect())
}

fn plan(landscape: &Landscape, kyma: &Kyma, installed: &InstalledModules) -> RuntimePlan {
    runtime(
        landscape,
        &Components::default(),
        kyma,
        &kyma.spec,
        &Settings::default(),
        installed,
        crate::plan::Windows::Unknown,
    )
}

fn line(module: &ModulePlan) -> String {
    let ModulePlan { name, offer, outcome, .. } = module;
    match outcome {
        ModuleOutcome::Install(installation) => {
            assert_eq!(installation.offer, *offer);
            format!("{name} ({offer}): install {}", installation.version)
        }
        ModuleOutcome::Unmanage => format!("{name} ({offer}): unmanage"),
        ModuleOutcome::Wait(_) => panic!("a mandatory module waits for no window"),
        ModuleOutcome::Refuse(refusal) => {
            let fate = if refusal.keep { "keep" } else { "remove" };
            format!("{name} ({offer}): {} {fate}: {}", refusal.state, refusal.message)
        }
    }
}

/// The mandatory modules of Kyma `one`, and then those that decide Manifests.
#[track_caller]
fn check(landscape: &Landscape, more: &Value, installed: &InstalledModules, mandatory: &[&str], deciding: &[&str]) {
    let plan = plan(landscape, &kyma(more), installed);
    let lines: Vec<String> = plan.mandatory.iter().map(line).collect();
    assert_eq!(lines, mandatory);
    let all: Vec<String> = plan.deciding().into_iter().map(line).collect();
    assert_eq!(all, deciding);
}

const WARDEN: &str = "warden (mandatory): install 1.0.0";

/// #69, E13: every Kyma of the namespace, with the CreateAndDelete policy.
#[test]
fn every_kyma_has_a_mandatory_module_without_asking() {
    let landscape = landscape(&[("warden", mandatory("1.0.0"))], &[("warden-1.0.0", json!({}))]);
    let nothing = InstalledModules::default();
    check(&landscape, &json!({}), &nothing, &[WARDEN], &[WARDEN]);
    check(&landscape, &json!({"metadata": {"namespace": "other"}}), &nothing, &[], &[]);
    let plan = plan(&landscape, &kyma(&json!({})), &nothing);
    assert_eq!(plan.modules, []);
    let ModuleOutcome::Install(installation) = &plan.mandatory[0].outcome else { panic!("it is installed") };
    assert_eq!(installation.policy, CustomResourcePolicy::CreateAndDelete);
    assert_eq!(
        installation.manifest_name,
        super::super::manifest_name("one", "kyma-project.io/module/warden", "warden")
    );
}

/// The flags that keep users from a module do not keep a mandatory one from runtimes.
#[test]
fn flags_of_definitions_keep_no_mandatory_module_away() {
    let labels = json!({"operator.kyma-project.io/beta": "true", "operator.kyma-project.io/internal": "true"});
    for template in [
        json!({"spec": {"mandatory": true}}),
        json!({"spec": {"mandatory": false}}),
        json!({"metadata": {"labels": labels}}),
    ] {
        for release in [json!({}), json!({"spec": {"kymaSelector": {"matchLabels": {"a": "b"}}}})] {
            let mut release = release;
            merge(&mut release, &mandatory("1.0.0"));
            let landscape = landscape(&[("warden", release)], &[("warden-1.0.0", template.clone())]);
            check(&landscape, &json!({}), &InstalledModules::default(), &[WARDEN], &[WARDEN]);
        }
    }
}

/// I10, E13: a Kyma that selects it learns that it cannot, and has the module nevertheless.
#[test]
fn a_mandatory_module_decides_even_if_a_kyma_selects_it() {
    let landscape = landscape(&[("warden", mandatory("1.0.0"))], &[("warden-1.0.0", json!({}))]);
    for managed in [true, false] {
        let selecting = json!({"spec": {"modules": [{"name": "warden", "managed": managed}]}});
        check(&landscape, &selecting, &InstalledModules::default(), &[WARDEN], &[WARDEN]);
    }
    let selecting = kyma(&json!({"spec": {"modules": [{"name": "warden"}]}}));
    let plan = plan(&landscape, &selecting, &InstalledModules::default());
    let expected = "warden (regular): Warning keep: no templates were found: for module warden in channel regular ";
    assert_eq!(line(&plan.modules[0]), expected);
}

/// #69: a template that is missing or wrong stops its own module only.
#[test]
fn one_bad_template_stops_its_own_module_only() {
    let releases = [("bad", mandatory("1.0.0")), ("homeless", mandatory("1.0.0")), ("warden", mandatory("1.0.0"))];
    let homeless = json!({"metadata": {"labels": null}});
    let landscape = landscape(&releases, &[("homeless-1.0.0", homeless), ("warden-1.0.0", json!({}))]);
    let expected = [
        "bad (mandatory): Error keep: failed to get module template: \
         ModuleTemplate.operator.kyma-project.io \"bad-1.0.0\" not found",
        "homeless (mandatory): Warning keep: ModuleTemplate homeless-1.0.0 was left by GitSource kcp-system/landscape, \
         which does not own it any more; what is installed stays as it is",
        WARDEN,
    ];
    check(&landscape, &json!({}), &InstalledModules::default(), &expected, &expected);
}

/// #44: as with selected modules, unless a definition allows exactly this downgrade.
#[test]
fn a_lower_version_is_refused() {
    let templates = [("warden-1.0.0", json!({})), ("warden-1.0.0-rc.1", json!({}))];
    let refused = "warden (mandatory): Warning keep: module template update not allowed: a higher version (1.1.0) of \
                   the module was previously installed";
    let nothing = json!({});
    for (version, before, expected) in [
        ("1.0.0", "1.1.0", refused),
        ("1.0.0", "1.0.0", WARDEN),
        ("1.0.0", "0.9.0", WARDEN),
        ("1.0.0", "not a version", WARDEN),
        ("1.0.0-rc.1", "1.1.0", refused),
    ] {
        let landscape = landscape(&[("warden", mandatory(version))], &templates);
        // Whether it was mandatory before does not matter.
        for was_mandatory in [true, false] {
            let before = installed(&[("warden", before, was_mandatory)]);
            check(&landscape, &nothing, &before, &[expected], &[expected]);
        }
    }
    let before = installed(&[("warden", "1.1.0", true)]);
    let allow = json!({"metadata": {"annotations": {"tidegate.dev/allow-downgrade": "warden-1.0.0"}}});
    let mut release = allow.clone();
    merge(&mut release, &mandatory("1.0.0"));
    check(&landscape(&[("warden", release)], &templates), &nothing, &before, &[WARDEN], &[WARDEN]);
    check(&landscape(&[("warden", mandatory("1.0.0"))], &templates), &allow, &before, &[WARDEN], &[WARDEN]);
}

/// #70: a release that is being deleted removes its module; one that is gone removes nothing.
#[test]
fn only_a_release_that_is_being_deleted_removes_its_module() {
    let mut deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    merge(&mut deleted, &mandatory("1.0.0"));
    let templates = [("warden-1.0.0", json!({}))];
    let being_deleted = landscape(&[("warden", deleted)], &templates);
    let removed = "warden (mandatory): Processing remove: its ModuleReleaseMeta is being deleted";
    for was_mandatory in [true, false] {
        let before = installed(&[("warden", "1.0.0", was_mandatory)]);
        check(&being_deleted, &json!({}), &before, &[removed], &[removed]);
    }
    check(&being_deleted, &json!({}), &InstalledModules::default(), &[], &[]);

    let gone = landscape(&[], &templates);
    let stays = "warden (mandatory): Warning keep: no ModuleReleaseMeta found";
    let before = installed(&[("warden", "1.0.0", true)]);
    check(&gone, &json!({}), &before, &[stays], &[stays]);
    check(&gone, &json!({}), &installed(&[("warden", "1.0.0", false)]), &[], &[]);
    // A comparison knows that it was there before.
    let before = before.released_in("kcp-system", &being_deleted);
    check(&gone, &json!({}), &before, &[], &[]);
}

/// #69: from mandatory to channels, only Kymas that select the module keep it; and back, all have it.
#[test]
fn a_release_that_turns_keeps_the_module_where_it_is_wanted() {
    let templates = [("warden-1.0.0", json!({}))];
    let before = installed(&[("warden", "1.0.0", true)]);
    let turned = landscape(&[("warden", channels("1.0.0"))], &templates);
    check(&turned, &json!({}), &before, &[], &[]);
    let selecting = json!({"spec": {"modules": [{"name": "warden"}]}});
    check(&turned, &selecting, &before, &[], &["warden (regular): install 1.0.0"]);
    let back = landscape(&[("warden", mandatory("1.0.0"))], &templates);
    check(&back, &selecting, &installed(&[("warden", "1.0.0", false)]), &[WARDEN], &[WARDEN]);
}

/// Modules of registries are looked up before a runtime wants them.
#[test]
fn components_of_mandatory_modules_are_looked_up() {
    let no_path = json!({"metadata": {"annotations": null}});
    let landscape = landscape(&[("warden", mandatory("1.0.0"))], &[("warden-1.0.0", no_path)]);
    let named = super::super::components_named(&landscape);
    assert_eq!(named.keys().map(ToString::to_string).collect::<Vec<_>>(), ["kyma-project.io/module/warden:1.0.0"]);
    let plan = plan(&landscape, &kyma(&json!({})), &InstalledModules::default());
    assert!(plan.mandatory[0].component.is_some());
    let ModuleOutcome::Refuse(refusal) = &plan.mandatory[0].outcome else { panic!("it waits") };
    assert!(refusal.keep, "what is installed stays meanwhile");
}

#[test]
fn the_label_of_lifecycle_manager_says_which_manifest_is_mandatory() {
    let manifest = |name: &str, label: Option<&str>| -> Manifest {
        let mut manifest = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {"name": name, "labels": {label::MODULE_NAME: name}},
            "spec": {"remote": true, "version": "1.0.0", "install": {"name": "raw-manifest", "source": {}}},
        });
        if let Some(value) = label {
            manifest["metadata"]["labels"][label::MANDATORY_MODULE] = json!(value);
        }
        serde_json::from_value(manifest).unwrap()
    };
    let manifests = [manifest("a", None), manifest("b", Some("true")), manifest("c", Some("false"))];
    let found = InstalledModules::from_manifests(&manifests);
    assert_eq!(found, installed(&[("a", "1.0.0", false), ("b", "1.0.0", true), ("c", "1.0.0", false)]));
}
