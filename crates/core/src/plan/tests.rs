#![expect(clippy::needless_pass_by_value, reason = "`json!` makes a value where it is passed")]

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{
    api::{Manifest, ModuleReleaseMeta, ModuleTemplate},
    component::LayerKind,
};

const TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// A landscape with module `cache`: `regular` is 1.2.0, `fast` is 1.3.0.
pub(super) fn landscape() -> Landscape {
    let mut landscape = Landscape::default();
    add_release(
        &mut landscape,
        "cache",
        json!({"channels": [
            {"channel": "regular", "version": "1.2.0"},
            {"channel": "fast", "version": "1.3.0"},
        ]}),
    );
    add_template(&mut landscape, "cache", "1.2.0", json!({}));
    add_template(&mut landscape, "cache", "1.3.0", json!({}));
    landscape
}

pub(super) fn add_release(landscape: &mut Landscape, module: &str, mut spec: Value) {
    spec["moduleName"] = json!(module);
    spec["ocmComponentName"] = json!(format!("kyma-project.io/module/{module}"));
    let release: ModuleReleaseMeta = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"namespace": "kcp-system", "name": module}, "spec": spec,
    }))
    .unwrap();
    landscape.releases.insert(landscape::key(&release.metadata), Arc::new(release));
}

/// Adds a ModuleTemplate from git with the extra fields `more`.
pub(super) fn add_template(landscape: &mut Landscape, module: &str, version: &str, more: Value) {
    let mut template = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {
            "namespace": "kcp-system", "name": format!("{module}-{version}"), "generation": 7,
            "labels": {"tidegate.dev/source": "kcp-system.landscape"},
            "annotations": {
                "tidegate.dev/source": "kcp-system/landscape",
                "tidegate.dev/module-path": format!("modules/{module}/{version}"),
                "tidegate.dev/module-tree": TREE,
            },
        },
        "spec": {"moduleName": module, "version": version, "descriptor": {}},
    });
    merge(&mut template, &more);
    let template: ModuleTemplate = serde_json::from_value(template).unwrap();
    landscape.templates.insert(landscape::key(&template.metadata), Arc::new(template));
}

pub(super) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.shift_remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

pub(super) fn kyma(more: Value) -> Kyma {
    let mut kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"namespace": "kcp-system", "name": "one"},
        "spec": {"channel": "regular", "modules": [{"name": "cache"}]},
    });
    merge(&mut kyma, &more);
    serde_json::from_value(kyma).unwrap()
}

fn plan(landscape: &Landscape, kyma: &Kyma) -> RuntimePlan {
    plan_with(landscape, &Components::default(), kyma)
}

fn plan_with(landscape: &Landscape, components: &Components, kyma: &Kyma) -> RuntimePlan {
    runtime(
        landscape,
        components,
        kyma,
        &kyma.spec,
        &Settings::default(),
        &InstalledModules::default(),
        Windows::Unknown,
    )
}

/// The decision about the first module, in one line.
fn outcome(landscape: &Landscape, kyma: &Kyma) -> String {
    line(&plan(landscape, kyma).modules[0].outcome)
}

pub(super) fn line(outcome: &ModuleOutcome) -> String {
    match outcome {
        ModuleOutcome::Install(installation) => format!("install {}", installation.version),
        ModuleOutcome::Wait(wait) => format!("keep {}, wait for {}", wait.from, wait.to),
        ModuleOutcome::Unmanage => "unmanage".to_owned(),
        ModuleOutcome::Refuse(refusal) => {
            let fate = if refusal.keep { "keep" } else { "remove" };
            format!("{} {} {fate}: {}", refusal.state, refusal.reason, refusal.message)
        }
    }
}

#[track_caller]
fn check(landscape: &Landscape, kyma: &Kyma, expected: &str) {
    assert_eq!(outcome(landscape, kyma), expected);
}

#[test]
fn a_channel_leads_to_everything_that_a_manifest_says() {
    let mut landscape = landscape();
    let manager = json!({"group": "apps", "version": "v1", "kind": "Deployment", "name": "cache-manager"});
    add_template(
        &mut landscape,
        "cache",
        "1.2.0",
        json!({
            "metadata": {"labels": {"operator.kyma-project.io/controller-name": "special"}},
            "spec": {"manager": manager, "data": {"apiVersion": "example.com/v1", "kind": "Cache"}},
        }),
    );
    let plan = plan(&landscape, &kyma(json!({})));
    let ModuleOutcome::Install(installation) = &plan.modules[0].outcome else { panic!("{plan:?}") };
    let expected = Installation {
        kyma: Key::new("kcp-system", "one"),
        manifest_name: manifest_name("one", "kyma-project.io/module/cache", "cache"),
        module: "cache".to_owned(),
        component: "kyma-project.io/module/cache".to_owned(),
        version: "1.2.0".to_owned(),
        offer: Offer::Channel("regular".to_owned()),
        template: Key::new("kcp-system", "cache-1.2.0"),
        template_generation: Some(7),
        policy: CustomResourcePolicy::CreateAndDelete,
        default_resource: Some(json!({
            "apiVersion": "example.com/v1", "kind": "Cache",
            "metadata": {"name": installation.manifest_name, "namespace": "kyma-system"},
        })),
        default_resource_cluster_scoped: false,
        manager: Some(serde_json::from_value(manager).unwrap()),
        controller: Some("special".to_owned()),
        source: InstallSource::Git {
            source: Key::new("kcp-system", "landscape"),
            path: "modules/cache/1.2.0".to_owned(),
            tree: TREE.parse().unwrap(),
        },
        localized_images: Vec::new(),
        record: ComponentRecord::default(),
    };
    assert_eq!(**installation, expected);
}

#[test]
fn a_default_resource_keeps_its_own_name_and_namespace() {
    let mut landscape = landscape();
    let data = json!({
        "apiVersion": "example.com/v1", "kind": "Cache", "metadata": {"name": "default", "namespace": "elsewhere"},
    });
    add_template(&mut landscape, "cache", "1.2.0", json!({"spec": {"data": data}}));
    let plan = plan(&landscape, &kyma(json!({})));
    let ModuleOutcome::Install(installation) = &plan.modules[0].outcome else { panic!("{plan:?}") };
    assert_eq!(installation.default_resource, Some(data));
}

#[test]
fn a_source_survives_its_way_through_a_manifest() {
    let source = InstallSource::Git {
        source: Key::new("kcp-system", "landscape"),
        path: "modules/cache".to_owned(),
        tree: TREE.parse().unwrap(),
    };
    assert_eq!(InstallSource::try_from(&source.to_value()), Ok(source));
    let image = json!({
        "type": "oci-dir", "repo": "r.example.com/modules", "name": "kyma-project.io/module/cache",
        "ref": format!("sha256:{}", "0".repeat(64)),
    });
    let source = InstallSource::try_from(&image).unwrap();
    assert!(matches!(&source, InstallSource::Oci(source) if source.kind == LayerKind::Tar), "{source:?}");
    assert_eq!(source.to_value(), image);
    for (field, value, expected) in [
        ("type", "helm-chart", "source type `helm-chart` is not supported: use `git`, `oci-ref` or `oci-dir`"),
        ("ref", "sha256:0", "`ref` of the OCI source is missing or malformed"),
    ] {
        let mut other = image.clone();
        other[field] = json!(value);
        assert_eq!(InstallSource::try_from(&other).unwrap_err().to_string(), expected);
    }
}

#[test]
fn the_modules_own_channel_comes_before_the_kymas_and_both_before_the_default() {
    let landscape = landscape();
    check(&landscape, &kyma(json!({})), "install 1.2.0");
    check(&landscape, &kyma(json!({"spec": {"channel": "fast"}})), "install 1.3.0");
    let modules = json!([{"name": "cache", "channel": "fast"}]);
    check(&landscape, &kyma(json!({"spec": {"modules": modules}})), "install 1.3.0");
    check(&landscape, &kyma(json!({"spec": {"channel": ""}})), "install 1.2.0");
}

#[test]
fn refusals_speak_as_upstream_does() {
    let mut landscape = landscape();
    let with = |module: Value| kyma(json!({"spec": {"modules": [module]}}));
    check(&landscape, &with(json!({"name": "mailer"})), "Warning NoRelease keep: no ModuleReleaseMeta found");
    check(
        &landscape,
        &with(json!({"name": "cache", "channel": "rapid"})),
        "Error NoChannel keep: no versions found for channel: rapid in module cache",
    );
    check(
        &landscape,
        &with(json!({"name": "cache", "channel": "none"})),
        "Error NoChannel keep: invalid kyma spec: channel `none` of module cache is reserved",
    );
    landscape.templates.remove(&Key::new("kcp-system", "cache-1.3.0"));
    check(
        &landscape,
        &with(json!({"name": "cache", "channel": "fast"})),
        "Error NoTemplate keep: failed to get module template: \
         ModuleTemplate.operator.kyma-project.io \"cache-1.3.0\" not found",
    );
    add_release(&mut landscape, "empty", json!({"channels": []}));
    check(&landscape, &with(json!({"name": "empty"})), "Error NoChannel keep: no channels found for module");
}

#[test]
fn definitions_of_other_namespaces_do_not_count() {
    let elsewhere = kyma(json!({"metadata": {"namespace": "other"}}));
    check(&landscape(), &elsewhere, "Warning NoRelease keep: no ModuleReleaseMeta found");
}

#[test]
fn mandatory_modules_cannot_be_asked_for() {
    let mut landscape = landscape();
    add_release(&mut landscape, "warden", json!({"mandatory": {"version": "1.0.0"}}));
    add_template(&mut landscape, "warden", "1.0.0", json!({}));
    let asking = kyma(json!({"spec": {"modules": [{"name": "warden"}]}}));
    let refused =
        |module| format!("Warning NotAllowed keep: no templates were found: for module {module} in channel regular ");
    check(&landscape, &asking, &refused("warden"));
    add_template(&mut landscape, "cache", "1.2.0", json!({"spec": {"mandatory": true}}));
    check(&landscape, &kyma(json!({})), &refused("cache"));
}

/// I03 and I12: installed iff (not beta or Kyma beta) and (not internal or Kyma internal).
#[test]
fn beta_and_internal_modules_need_a_kyma_of_that_kind() {
    let flags = [false, true];
    for (module_beta, module_internal) in flags.iter().flat_map(|a| flags.map(|b| (*a, b))) {
        for (kyma_beta, kyma_internal) in flags.iter().flat_map(|a| flags.map(|b| (*a, b))) {
            let labels = |beta: bool, internal: bool| {
                json!({"metadata": {"labels": {
                    "operator.kyma-project.io/beta": beta.to_string(),
                    "operator.kyma-project.io/internal": internal.to_string(),
                }}})
            };
            let mut landscape = landscape();
            add_template(&mut landscape, "cache", "1.2.0", labels(module_beta, module_internal));
            let kyma = kyma(labels(kyma_beta, kyma_internal));
            let expected = if module_internal && !kyma_internal {
                "Error NotAllowed remove: module template not allowed: internal module"
            } else if module_beta && !kyma_beta {
                "Error NotAllowed remove: module template not allowed: beta module"
            } else {
                "install 1.2.0"
            };
            check(&landscape, &kyma, expected);
            let class = Class::for_kyma(&landscape, &kyma, &Settings::default());
            let catalog = catalog(&landscape, &class, &Settings::default());
            let shown = catalog.templates.iter().any(|key| key.name() == "cache-1.2.0");
            assert_eq!(shown, expected == "install 1.2.0", "the catalog shows what can be installed");
        }
    }
}

#[test]
fn a_label_counts_in_any_case_and_its_absence_is_no() {
    let mut landscape = landscape();
    let beta = |value: &str| json!({"metadata": {"labels": {"operator.kyma-project.io/beta": value}}});
    add_template(&mut landscape, "cache", "1.2.0", beta("TRUE"));
    check(&landscape, &kyma(beta("True")), "install 1.2.0");
    let refused = "Error NotAllowed remove: module template not allowed: beta module";
    check(&landscape, &kyma(beta("yes")), refused);
    check(&landscape, &kyma(json!({})), refused);
}

/// E33: the texts are Lifecycle Manager's, to the letter.
#[test]
fn restricted_modules_are_closed_until_a_selector_opens_them() {
    let listed = Settings { restricted_modules: ["cache".to_owned()].into(), ..Settings::default() };
    let labelled = kyma(json!({"metadata": {"labels": {"kyma-project.io/global-account-id": "a"}}}));
    let matching = json!({"matchLabels": {"kyma-project.io/global-account-id": "a"}});
    let other = json!({"matchLabels": {"kyma-project.io/global-account-id": "b"}});
    let denied = "Error NotAllowed remove: module template not allowed: restricted module not allowed for this Kyma";
    let mistaken = "Error NotAllowed remove: module template not allowed: module has kymaSelector but is not in \
                    restricted modules list";
    let bare = "Error NotAllowed remove: module template not allowed";
    for (settings, selector, expected) in [
        (&Settings::default(), None, "install 1.2.0"),
        (&Settings::default(), Some(matching.clone()), mistaken),
        (&listed, None, bare),
        (&listed, Some(json!({})), denied),
        (&listed, Some(matching), "install 1.2.0"),
        (&listed, Some(other), denied),
    ] {
        let mut landscape = landscape();
        let channels = json!([{"channel": "regular", "version": "1.2.0"}]);
        let mut spec = json!({"channels": channels});
        if let Some(selector) = &selector {
            spec["kymaSelector"] = selector.clone();
        }
        add_release(&mut landscape, "cache", spec);
        let plan = runtime(
            &landscape,
            &Components::default(),
            &labelled,
            &labelled.spec,
            settings,
            &InstalledModules::default(),
            Windows::Unknown,
        );
        assert_eq!(line(&plan.modules[0].outcome), expected, "{selector:?} {settings:?}");
        let is_shown = !catalog(&landscape, &plan.class, settings).releases.is_empty();
        assert_eq!(is_shown, expected.starts_with("install"));
    }
}

/// The Kyma with `cache` installed.
fn installed(version: &str, channel: &str, more: Value) -> Kyma {
    let mut with = json!({"status": {"state": "Ready", "modules": [
        {"name": "cache", "state": "Ready", "version": version, "channel": channel},
    ]}});
    merge(&mut with, &more);
    kyma(with)
}

const GUARDED: &str = "Warning Downgrade keep: module template update not allowed: ignore channel skew \
    (from fast to regular), as a higher version (1.3.0) of the module was previously installed";

#[test]
fn a_lower_version_is_refused_in_upstreams_words() {
    let landscape = landscape();
    check(&landscape, &installed("1.3.0", "fast", json!({})), GUARDED);
    check(&landscape, &installed("1.2.0", "regular", json!({})), "install 1.2.0");
    check(&landscape, &installed("1.1.9", "fast", json!({})), "install 1.2.0");
    check(&landscape, &installed("", "fast", json!({})), "install 1.2.0");
    let plan = plan(&landscape, &installed("1.3.0", "fast", json!({})));
    let ModuleOutcome::Refuse(refusal) = &plan.modules[0].outcome else { panic!("{plan:?}") };
    assert_eq!(
        refusal.hint.as_deref(),
        Some(
            "to go back to 1.2.0, commit annotation `tidegate.dev/allow-downgrade: cache-1.2.0` on \
             ModuleReleaseMeta cache or on the Kyma"
        )
    );
}

#[test]
fn pre_releases_count_in_the_downgrade_guard() {
    let mut landscape = landscape();
    add_release(&mut landscape, "cache", json!({"channels": [{"channel": "regular", "version": "1.3.0-rc"}]}));
    add_template(&mut landscape, "cache", "1.3.0-rc", json!({}));
    assert!(outcome(&landscape, &installed("1.3.0", "regular", json!({}))).starts_with("Warning Downgrade"));
    check(&landscape, &installed("1.3.0-beta", "regular", json!({})), "install 1.3.0-rc");
}

#[test]
fn a_definition_may_allow_going_back_to_one_version() {
    let allow = |value: &str| json!({"metadata": {"annotations": {"tidegate.dev/allow-downgrade": value}}});
    let landscape = landscape();
    check(&landscape, &installed("1.3.0", "fast", allow("cache-1.2.0")), "install 1.2.0");
    check(&landscape, &installed("1.3.0", "fast", allow("mailer-1.0.0, cache-1.2.0")), "install 1.2.0");
    check(&landscape, &installed("1.3.0", "fast", allow("cache-1.1.0")), GUARDED);
    let mut on_release = landscape;
    let release = on_release.releases.get_mut(&Key::new("kcp-system", "cache")).unwrap();
    Arc::make_mut(release).metadata.annotations =
        Some([("tidegate.dev/allow-downgrade".to_owned(), "cache-1.2.0".to_owned())].into());
    check(&on_release, &installed("1.3.0", "fast", json!({})), "install 1.2.0");
}

#[test]
fn objects_come_from_git_only_where_a_source_owns_the_template() {
    let mut landscape = landscape();
    let left = json!({"metadata": {"labels": null}});
    add_template(&mut landscape, "cache", "1.2.0", left);
    check(
        &landscape,
        &kyma(json!({})),
        "Warning NoSource keep: ModuleTemplate cache-1.2.0 was left by GitSource kcp-system/landscape, which does not \
         own it any more; what is installed stays as it is",
    );
    let homeless = json!({"metadata": {"labels": null, "annotations": {"tidegate.dev/source": null}}});
    add_template(&mut landscape, "cache", "1.2.0", homeless);
    check(
        &landscape,
        &kyma(json!({})),
        "Error NoSource keep: ModuleTemplate cache-1.2.0 has annotation tidegate.dev/module-path, but no GitSource owns it",
    );
    add_template(&mut landscape, "cache", "1.2.0", json!({"metadata": {"annotations": null}}));
    check(
        &landscape,
        &kyma(json!({})),
        "Error SourceUnavailable keep: kyma-project.io/module/cache:1.2.0 is not known offline: its component is in an \
         OCI registry, which this command does not read",
    );
}

/// The landscape with module `cache` in a registry.
fn landscape_in_registry() -> Landscape {
    let mut landscape = landscape();
    for version in ["1.2.0", "1.3.0"] {
        add_template(&mut landscape, "cache", version, json!({"metadata": {"annotations": null}}));
    }
    landscape
}

fn components(answer: Answer) -> Components {
    Components::new(Arc::default(), answer)
}

#[test]
fn a_module_in_a_registry_waits_for_its_component_and_is_kept_without_it() {
    let landscape = landscape_in_registry();
    for (answer, expected) in [
        (
            Answer::Pending,
            "Processing ComponentPending keep: waiting for the component descriptor of \
             kyma-project.io/module/cache:1.2.0",
        ),
        (Answer::Failed("no".to_owned()), "Error ComponentFailed keep: error finding ComponentDescriptor: no"),
        (
            Answer::Unknown("no".to_owned()),
            "Error SourceUnavailable keep: kyma-project.io/module/cache:1.2.0 is not known offline: no",
        ),
        (Answer::Found(components::tests::published(1)), "install 1.2.0"),
    ] {
        let plan = plan_with(&landscape, &components(answer), &kyma(json!({})));
        assert_eq!(line(&plan.modules[0].outcome), expected);
    }
}

#[test]
fn a_found_component_is_what_the_manifest_says() {
    let published = components::tests::published(1);
    let found = components(Answer::Found(Arc::clone(&published)));
    let plan = plan_with(&landscape_in_registry(), &found, &kyma(json!({})));
    let ModuleOutcome::Install(installation) = &plan.modules[0].outcome else { panic!("{plan:?}") };
    let expected = json!({
        "repo": "r.example.com/modules", "name": "kyma-project.io/module/cache", "type": "oci-dir",
        "ref": published.module.layer.digest.to_string(),
    });
    assert_eq!(installation.source.to_value(), expected);
    assert_eq!(installation.localized_images, published.module.localized_images);
    assert_eq!(installation.record, published.record);
}

#[test]
fn a_runtime_keeps_objects_from_git_whose_template_lost_its_path_and_its_owner() {
    let in_git = InstallSource::Git {
        source: Key::new("kcp-system", "landscape"),
        path: "modules/cache/1.2.0".to_owned(),
        tree: TREE.parse().unwrap(),
    };
    let manifest = |version: &str| -> Manifest {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {
                "namespace": "kcp-system", "name": "one-cache-1",
                "annotations": {"operator.kyma-project.io/ocm-component-name": "kyma-project.io/module/cache"},
            },
            "spec": {
                "remote": true, "version": version,
                "install": {"name": "raw-manifest", "source": in_git.to_value()},
            },
        }))
        .unwrap()
    };
    let mut given_back = landscape();
    add_template(&mut given_back, "cache", "1.2.0", json!({"metadata": {"annotations": null, "labels": null}}));
    let failed = || Answer::Failed("no".to_owned());
    let found = Answer::Found(components::tests::published(1));
    let refused = "Error ComponentFailed keep: error finding ComponentDescriptor: no";
    let kept = in_git.to_value();
    for (what, landscape, answer, version, expected) in [
        ("no registry", &given_back, failed(), "1.2.0", Ok(&kept)),
        ("a registry that has not answered", &given_back, Answer::Pending, "1.2.0", Ok(&kept)),
        ("another version", &given_back, failed(), "1.1.0", Err(refused)),
        ("the owner says that it is in a registry", &landscape_in_registry(), failed(), "1.2.0", Err(refused)),
    ] {
        let seen = components(answer).seen_by([&manifest(version)], &|_| false);
        let plan = plan_with(landscape, &seen, &kyma(json!({})));
        match (&plan.modules[0].outcome, expected) {
            (ModuleOutcome::Install(one), Ok(kept)) => assert_eq!(one.source.to_value(), *kept, "{what}"),
            (outcome, expected) => assert_eq!(Err(&*line(outcome)), expected, "{what}"),
        }
    }
    // It was pushed to a registry.
    let seen = components(found).seen_by([&manifest("1.2.0")], &|_| false);
    let plan = plan_with(&given_back, &seen, &kyma(json!({})));
    let ModuleOutcome::Install(installation) = &plan.modules[0].outcome else { panic!("{plan:?}") };
    assert_eq!(installation.source.to_value()["type"], "oci-dir");
}

#[test]
fn the_downgrade_guard_comes_before_the_registry() {
    let landscape = landscape_in_registry();
    let pending = components(Answer::Pending);
    let plan = plan_with(&landscape, &pending, &installed("1.3.0", "fast", json!({})));
    let ModuleOutcome::Refuse(refusal) = &plan.modules[0].outcome else { panic!("{plan:?}") };
    assert_eq!(refusal.reason, reason::DOWNGRADE);
}

#[test]
fn a_component_without_a_valid_version_is_refused() {
    let mut landscape = landscape();
    add_release(&mut landscape, "cache", json!({"channels": [{"channel": "regular", "version": "new"}]}));
    add_template(&mut landscape, "cache", "new", json!({"metadata": {"annotations": null}}));
    check(
        &landscape,
        &kyma(json!({})),
        "Error NoComponent keep: invalid component version: use a semantic version, for example 1.2.0",
    );
}

#[test]
fn an_unmanaged_module_is_left_to_the_user() {
    let unmanaged = kyma(json!({"spec": {"modules": [{"name": "cache", "managed": false}]}}));
    check(&landscape(), &unmanaged, "unmanage");
}

#[test]
fn what_is_wanted_no_more_is_not_planned() {
    let without = installed("1.2.0", "regular", json!({"spec": {"modules": []}}));
    assert!(plan(&landscape(), &without).modules.is_empty());
}

#[test]
fn who_decides_the_modules_follows_annotation_then_origin() {
    let annotated = |value: &str| json!({"metadata": {"annotations": {"tidegate.dev/modules-from": value}}});
    let from_git = json!({"metadata": {"labels": {"tidegate.dev/source": "kcp-system.landscape"}}});
    assert_eq!(modules_from(&kyma(json!({}))), ModulesFrom::Runtime);
    assert_eq!(modules_from(&kyma(from_git.clone())), ModulesFrom::Git);
    assert_eq!(modules_from(&kyma(annotated("git"))), ModulesFrom::Git);
    assert_eq!(modules_from(&kyma(annotated("merge"))), ModulesFrom::Merge);
    let mut without_modules = from_git.clone();
    without_modules["spec"] = json!({"modules": null});
    assert_eq!(modules_from(&kyma(without_modules.clone())), ModulesFrom::Runtime);
    without_modules["spec"] = json!({"modules": []});
    assert_eq!(modules_from(&kyma(without_modules.clone())), ModulesFrom::Runtime, "another client's list");
    merge(&mut without_modules, &annotated("git"));
    assert_eq!(modules_from(&kyma(without_modules)), ModulesFrom::Git, "none is what git wants");
    let mut runtime = from_git;
    merge(&mut runtime, &annotated("runtime"));
    assert_eq!(modules_from(&kyma(runtime)), ModulesFrom::Runtime);
}

#[test]
fn the_effective_spec_follows_who_decides() {
    let runtime: KymaSpec = serde_json::from_value(json!({
        "channel": "fast", "skipMaintenanceWindows": true,
        "modules": [{"name": "cache", "channel": "fast"}, {"name": "mailer"}],
    }))
    .unwrap();
    let spec = |from: &str| {
        let kyma = kyma(json!({"metadata": {"annotations": {"tidegate.dev/modules-from": from}}}));
        let spec = effective(&kyma, Some(&runtime));
        let modules: Vec<String> = spec
            .modules
            .iter()
            .map(|module| format!("{}@{}", module.name, module.channel.as_deref().unwrap_or("-")))
            .collect();
        assert!(!spec.skip_maintenance_windows, "only KCP decides this");
        format!("{}: {}", spec.channel, modules.join(" "))
    };
    assert_eq!(spec("git"), "regular: cache@-");
    assert_eq!(spec("runtime"), "fast: cache@fast mailer@-");
    assert_eq!(spec("merge"), "regular: cache@- mailer@-");
    let new = kyma(json!({}));
    assert_eq!(effective(&new, None), new.spec, "a runtime without a Kyma gets that of KCP");
}

#[test]
fn what_counts_is_known_from_the_status_where_the_runtime_decides() {
    let spec = |from: &str, status: Value| {
        let more = json!({"metadata": {"annotations": {"tidegate.dev/modules-from": from}}, "status": status});
        let spec = reported(&kyma(more));
        let module = |module: &Module| {
            let unmanaged = if module.managed { "" } else { " unmanaged" };
            format!("{}@{}{unmanaged}", module.name, module.channel.as_deref().unwrap_or("-"))
        };
        format!("{}: {}", spec.channel, spec.modules.iter().map(module).collect::<Vec<_>>().join(" "))
    };
    let status = json!({"state": "Ready", "activeChannel": "fast", "modules": [
        {"name": "mailer", "channel": "fast", "state": "Ready"},
        {"name": "own", "channel": "regular", "state": "Unmanaged"},
        {"name": "old", "channel": "fast", "state": "Deleting"},
    ]});
    assert_eq!(spec("runtime", status.clone()), "fast: mailer@- own@regular unmanaged");
    assert_eq!(spec("git", status.clone()), "regular: cache@-");
    assert_eq!(spec("merge", status), "regular: cache@- mailer@fast own@- unmanaged");
    assert_eq!(spec("runtime", Value::Null), "regular: cache@-", "the runtime has not been reconciled yet");
}

#[test]
fn the_catalog_shows_channels_that_have_a_template() {
    let mut landscape = landscape();
    add_release(&mut landscape, "warden", json!({"mandatory": {"version": "1.0.0"}}));
    add_template(&mut landscape, "warden", "1.0.0", json!({}));
    add_release(&mut landscape, "gone", json!({"channels": [{"channel": "regular", "version": "9.9.9"}]}));
    add_template(&mut landscape, "unnamed", "1.0.0", json!({}));
    landscape.templates.remove(&Key::new("kcp-system", "cache-1.3.0"));
    let class = Class::for_kyma(&landscape, &kyma(json!({})), &Settings::default());
    let catalog = catalog(&landscape, &class, &Settings::default());
    let releases: Vec<String> = catalog
        .releases
        .iter()
        .map(|release| {
            let channels: Vec<&str> = release.channels.iter().map(|entry| entry.channel.as_str()).collect();
            format!("{} {}", release.key.name(), channels.join(","))
        })
        .collect();
    assert_eq!(releases, ["cache regular"]);
    assert_eq!(catalog.templates, [Key::new("kcp-system", "cache-1.2.0")]);
}

#[test]
fn kymas_with_equal_rights_share_a_class() {
    let landscape = landscape();
    let class = |more| Class::for_kyma(&landscape, &kyma(more), &Settings::default());
    let beta = json!({"metadata": {"name": "two", "labels": {"operator.kyma-project.io/beta": "true"}}});
    assert_eq!(class(json!({"metadata": {"name": "two"}})), class(json!({})));
    assert_ne!(class(beta), class(json!({})));
}
