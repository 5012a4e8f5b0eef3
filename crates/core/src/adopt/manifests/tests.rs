use serde_json::{Value, json};

use super::{super::tests::lines, *};
use crate::{
    api::{ModuleReleaseMeta, ModuleTemplate, names::annotation},
    component::{Layer, LayerKind, Module},
    plan::ComponentRecord,
};

const VERSION: &str = "operator.kyma-project.io/v1beta2";
const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn object(kind: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": VERSION, "kind": kind, "metadata": {"name": name, "namespace": "kcp-system"},
    });
    for (field, value) in more.as_object().unwrap() {
        match field.as_str() {
            "labels" | "annotations" | "deletionTimestamp" => object["metadata"][field] = value.clone(),
            _ => object[field] = value.clone(),
        }
    }
    object
}

fn typed<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// The Manifest of a module of Kyma `one`, as Lifecycle Manager writes it.
fn manifest(module: &str, source: Value) -> Manifest {
    let labels = json!({label::KYMA_NAME: "one", label::MODULE_NAME: module});
    let spec = json!({"remote": true, "version": "1.0.0", "install": {"name": "raw-manifest", "source": source}});
    let annotations = json!({annotation::OCM_COMPONENT_NAME: format!("example.org/module/{module}")});
    let more = json!({"labels": labels, "annotations": annotations, "spec": spec});
    typed(object("Manifest", &format!("one-{module}"), &more))
}

fn in_registry(module: &str) -> Value {
    let name = format!("example.org/module/{module}");
    json!({"type": "oci-dir", "repo": "r.example.com/prod", "name": name, "ref": DIGEST})
}

/// Modules in a registry, in channel `regular` as version 1.0.0; Kyma `one` has all of them, by its status.
fn landscape(modules: &[&str]) -> Landscape {
    let mut landscape = Landscape::default();
    for module in modules {
        let spec = json!({
            "moduleName": module, "ocmComponentName": format!("example.org/module/{module}"),
            "channels": [{"channel": "regular", "version": "1.0.0"}],
        });
        let release: ModuleReleaseMeta = typed(object("ModuleReleaseMeta", module, &json!({"spec": spec})));
        landscape.releases.insert(Key::new("kcp-system", module), Arc::new(release));
        let spec = json!({"moduleName": module, "version": "1.0.0", "descriptor": {}});
        let name = format!("{module}-1.0.0");
        let template: ModuleTemplate = typed(object("ModuleTemplate", &name, &json!({"spec": spec})));
        landscape.templates.insert(Key::new("kcp-system", &name), Arc::new(template));
    }
    let installed: Vec<Value> = modules
        .iter()
        .map(|module| json!({"name": module, "state": "Ready", "channel": "regular", "version": "1.0.0"}))
        .collect();
    let status = json!({"state": "Ready", "activeChannel": "regular", "modules": installed});
    let kyma = object("Kyma", "one", &json!({"spec": {"channel": "regular"}, "status": status}));
    landscape.kymas.insert(Key::new("kcp-system", "one"), Arc::new(typed(kyma)));
    landscape
}

/// The registry that the daemon will read.
fn named() -> NamedRegistries {
    [("r.example.com/prod".to_owned(), "--oci-registry-host=r.example.com/prod".to_owned())].into()
}

/// The findings if no registry was asked.
fn found(landscape: &Landscape, manifests: &[Manifest], named: &NamedRegistries) -> Vec<Finding> {
    rendering(landscape, manifests, &Settings::default(), named, &BTreeMap::new(), &Answers::new())
}

#[track_caller]
fn check(landscape: &Landscape, manifests: &[Manifest], expected: &[&str]) {
    assert_eq!(lines(&found(landscape, manifests, &named())), expected);
}

#[test]
fn installed_modules_are_where_their_manifests_say() {
    check(
        &landscape(&["keda"]),
        &[manifest("keda", in_registry("keda"))],
        &[
            "Note: installed modules are in the registry r.example.com/prod, which was not asked; start the daemon with \
             `--oci-registry-host=r.example.com/prod`",
            "Ready: Tidegate can render every installed module",
        ],
    );
}

#[test]
fn a_named_registry_that_does_not_let_the_daemon_read_what_is_installed_blocks() {
    let landscape = landscape(&["keda", "mailer"]);
    let manifests = [manifest("keda", in_registry("keda")), manifest("mailer", in_registry("mailer"))];
    let settings = Settings::default();
    let of = |manifests: &[Manifest], named: &NamedRegistries| samples(&landscape, manifests, &settings, named);
    let names = |samples: BTreeMap<String, Source>| -> Vec<(String, String)> {
        samples.into_iter().map(|(place, source)| (place, source.name.as_str().to_owned())).collect()
    };
    let keda = ("r.example.com/prod".to_owned(), "example.org/module/keda".to_owned());
    assert_eq!(names(of(&manifests, &named())), [keda], "one for each registry");
    let other = [("other.example.com".to_owned(), "--oci-registry-host=other.example.com".to_owned())].into();
    assert!(of(&manifests, &other).is_empty());
    // What is being deleted needs no registry.
    let mut leaving = manifests.clone();
    for manifest in &mut leaving {
        manifest.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    }
    assert!(of(&leaving, &named()).is_empty());

    let said = |answer: Result<(), String>| {
        let answers = Answers::from([("r.example.com/prod".to_owned(), answer)]);
        let found = rendering(&landscape, &manifests, &settings, &named(), &BTreeMap::new(), &answers);
        (lines(&found), super::super::may_begin(&found))
    };
    let blocks = "Blocks: the daemon cannot read what is installed from the registry r.example.com/prod, and would set \
                  Kymas to Error: it does not answer; from there are 2 installed modules: keda 1.0.0 in 1 runtime, \
                  mailer 1.0.0 in 1 runtime; let the registry answer, with `--oci-registry-cred-secret` if it needs \
                  credentials; if it cannot be reached from here, add `--no-registries`";
    assert_eq!(said(Err("it does not answer".to_owned())), (vec![blocks.to_owned()], false));
    let note = "Note: installed modules are in the registry r.example.com/prod; start the daemon with \
                `--oci-registry-host=r.example.com/prod`";
    let ready = "Ready: Tidegate can render every installed module";
    assert_eq!(said(Ok(())), (vec![note.to_owned(), ready.to_owned()], true));
}

#[test]
fn modules_in_a_registry_block_unless_the_daemon_reads_one() {
    let manifests = [manifest("keda", in_registry("keda")), manifest("mailer", in_registry("mailer"))];
    let blocking = found(&landscape(&["keda", "mailer"]), &manifests, &NamedRegistries::new());
    assert!(!super::super::may_begin(&blocking));
    let expected = "Blocks: Tidegate cannot render 2 installed modules from the registry r.example.com/prod without an \
                    option that names it, and leaves them unchecked: keda 1.0.0 in 1 runtime, mailer 1.0.0 in 1 \
                    runtime; name each registry that the daemon will read; for a daemon with \
                    `--oci-registry-host=r.example.com/prod`, add `--oci-registry-host=r.example.com/prod` here";
    assert_eq!(lines(&blocking), [expected]);
    let blocking = lines(&found(&landscape(&["keda"]), &[], &NamedRegistries::new()));
    let expected = "Blocks: no Manifest records 1 component, and no option names its registry: \
                    example.org/module/keda:1.0.0; name each registry that the daemon will read, with \
                    `--oci-registry-host`";
    assert_eq!(blocking, [expected]);
}

#[test]
fn the_option_that_names_a_registry_is_repeated() {
    let by_secret = [("r.example.com/prod".to_owned(), "--oci-registry-cred-secret=login".to_owned())].into();
    let lines = lines(&found(&landscape(&["keda"]), &[manifest("keda", in_registry("keda"))], &by_secret));
    let expected = "Note: installed modules are in the registry r.example.com/prod, which was not asked; start the daemon with \
                    `--oci-registry-cred-secret=login`";
    assert_eq!(lines[0], expected);
}

#[test]
fn what_is_installed_from_a_registry_that_no_option_names_blocks_unless_a_named_one_has_it() {
    let landscape = landscape(&["keda", "mailer"]);
    let manifests = [manifest("keda", in_registry("keda")), manifest("mailer", in_registry("mailer"))];
    let wrong = [("wrong.example.com/prod".to_owned(), "--oci-registry-host=wrong.example.com/prod".to_owned())].into();
    let settings = Settings::default();
    let component = |module: &str| Component::new(&format!("example.org/module/{module}"), "1.0.0").unwrap();
    let wanted = elsewhere(&landscape, &manifests, &settings, &wrong);
    assert_eq!(wanted, BTreeSet::from([component("keda"), component("mailer")]));
    for other in [named(), NamedRegistries::new()] {
        assert_eq!(elsewhere(&landscape, &manifests, &settings, &other), BTreeSet::new());
    }
    // What is being deleted needs no registry.
    let mut leaving = manifests.clone();
    leaving[0].metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert!(!elsewhere(&landscape, &leaving, &settings, &wrong).contains(&component("keda")));
    let said = |asked: &BTreeMap<Component, Lookup>| {
        let found = rendering(&landscape, &manifests, &settings, &wrong, asked, &Answers::new());
        (lines(&found), super::super::may_begin(&found))
    };
    let blocks = |modules: &str, why: &str| {
        let expected = format!(
            "Blocks: the daemon cannot read {modules}; {why}; correct the option that names the registry, here and for \
             the daemon, or add `--oci-registry-host=r.example.com/prod`"
        );
        (vec![expected], false)
    };
    let both = "2 installed modules from the registry r.example.com/prod, because no option names it, and would set \
                their Kymas to Error: keda 1.0.0 in 1 runtime, mailer 1.0.0 in 1 runtime";
    assert_eq!(said(&BTreeMap::new()), blocks(both, "no registry was asked whether it has the same content"));
    let all = |lookup: &dyn Fn() -> Lookup| {
        ["keda", "mailer"].map(|module| (component(module), lookup())).into_iter().collect::<BTreeMap<_, _>>()
    };
    assert_eq!(said(&all(&|| Lookup::Refused("it does not exist".to_owned()))), blocks(both, "it does not exist"));
    assert_eq!(said(&all(&|| Lookup::Unanswered("no answer".to_owned()))), blocks(both, "no answer"));

    // A mirror: the daemon reads from there what Lifecycle Manager has installed.
    let published = |digest: &str| {
        let layer = Layer { digest: digest.parse().unwrap(), kind: LayerKind::Tar };
        let module = Module { layer, localized_images: Vec::new() };
        let record = ComponentRecord::default();
        Lookup::Found(Arc::new(Published { repo: "wrong.example.com/prod".to_owned(), module, record }))
    };
    let mirrored = "Note: installed modules are from the registry r.example.com/prod, which no option names; the daemon \
                    reads them from a registry that an option names, and that has the same content";
    let ready = "Ready: Tidegate can render every installed module";
    assert_eq!(said(&all(&|| published(DIGEST))), (vec![mirrored.to_owned(), ready.to_owned()], true));
    let other = format!("sha256:{}", "0".repeat(64));
    let mut one = all(&|| published(DIGEST));
    one.insert(component("mailer"), published(&other));
    let mailer = "1 installed module from the registry r.example.com/prod, because no option names it, and would set \
                  their Kymas to Error: mailer 1.0.0 in 1 runtime";
    assert_eq!(said(&one), blocks(mailer, "wrong.example.com/prod has this version with other content"));
}

#[test]
fn what_no_registry_has_blocks_and_names_the_kymas() {
    let landscape = landscape(&["keda", "mailer"]);
    let manifests = [manifest("keda", in_registry("keda"))];
    let mailer = Component::new("example.org/module/mailer", "1.0.0").unwrap();
    let wanted = unrecorded(&landscape, &manifests, &Settings::default());
    assert_eq!(wanted, BTreeSet::from([mailer.clone()]), "an installed version needs no registry");
    let said = |lookup: Lookup| {
        let asked = BTreeMap::from([(mailer.clone(), lookup)]);
        let found = rendering(&landscape, &manifests, &Settings::default(), &named(), &asked, &Answers::new());
        let mut lines = lines(&found);
        lines.retain(|line| !line.starts_with("Note: installed modules are in the registry "));
        (lines, super::super::may_begin(&found))
    };
    let ready = ["Ready: Tidegate can render every installed module".to_owned()].to_vec();

    let module =
        Module { layer: Layer { digest: DIGEST.parse().unwrap(), kind: LayerKind::Tar }, localized_images: Vec::new() };
    let published = Published { repo: "r.example.com/prod".to_owned(), module, record: ComponentRecord::default() };
    assert_eq!(said(Lookup::Found(Arc::new(published))), (ready.clone(), true));
    let refused = "Blocks: example.org/module/mailer:1.0.0 cannot be read from a registry that an option names, so 1 \
                   Kyma would be set to Error: kcp-system/one; it does not exist; push this version of the component, \
                   let the channel offer another version, or name the registry that has it";
    assert_eq!(said(Lookup::Refused("it does not exist".to_owned())), ([refused.to_owned()].to_vec(), false));
    let unanswered = "Blocks: no Manifest records 1 component, and no registry says whether it exists: \
                      example.org/module/mailer:1.0.0; cannot reach it; let the registry answer, with \
                      `--oci-registry-cred-secret` if it needs credentials; if it cannot be reached from here, add \
                      `--no-registries`";
    assert_eq!(said(Lookup::Unanswered("cannot reach it".to_owned())), ([unanswered.to_owned()].to_vec(), false));
    let skipped = "Note: no Manifest records 1 component, and no registry was asked: \
                   example.org/module/mailer:1.0.0; omit `--no-registries` to learn whether a registry has it, where \
                   one can be reached";
    check(
        &landscape,
        &manifests,
        &[
            skipped,
            "Note: installed modules are in the registry r.example.com/prod, which was not asked; start the daemon with \
             `--oci-registry-host=r.example.com/prod`",
            &ready[0],
        ],
    );
}

#[test]
fn a_module_that_tidegate_would_remove_blocks_and_one_that_stays_does_not() {
    let mut two = landscape(&["keda", "mailer"]);
    let spec = json!({"moduleName": "keda", "version": "1.0.0", "descriptor": {}});
    let more = json!({"labels": {label::BETA: "true"}, "spec": spec});
    let beta: ModuleTemplate = typed(object("ModuleTemplate", "keda-1.0.0", &more));
    two.templates.insert(Key::new("kcp-system", "keda-1.0.0"), Arc::new(beta));
    two.templates.remove(&Key::new("kcp-system", "mailer-1.0.0"));
    let manifests = [manifest("keda", in_registry("keda")), manifest("mailer", in_registry("mailer"))];
    let blocking = found(&two, &manifests, &named());
    assert!(!super::super::may_begin(&blocking));
    let blocking = lines(&blocking);
    assert_eq!(
        blocking[0],
        "Blocks: 1 runtime would lose module keda: kcp-system/one; module template not allowed: beta module; remove the \
         module from these runtimes, or correct its definitions"
    );
    assert!(
        blocking[1].starts_with("Note: module mailer is refused in 1 runtime: kcp-system/one; failed to get"),
        "{blocking:?}"
    );
    assert!(blocking[1].ends_with("what is installed stays"), "{blocking:?}");
    // Without a Manifest, nothing is lost.
    let found = found(&two, &manifests[1..], &named());
    assert!(super::super::may_begin(&found), "{found:?}");
}

#[test]
fn a_source_that_tidegate_does_not_read_blocks_unless_it_is_replaced() {
    let chart = manifest("keda", json!({"type": "helm-chart", "url": "https://charts.example.org"}));
    let mut none = landscape(&["keda"]);
    none.releases.clear();
    let found = lines(&found(&none, std::slice::from_ref(&chart), &named()));
    assert!(
        found.contains(
            &"Blocks: 1 Manifest has a source that Tidegate does not read: kcp-system/one-keda (source type `helm-chart` \
              is not supported: use `git`, `oci-ref` or `oci-dir`); publish the module to an OCI registry, or remove it \
              from the runtime"
                .to_owned()
        ),
        "{found:?}"
    );
    let leaving =
        object("Kyma", "one", &json!({"spec": {"channel": "regular"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    none.kymas.insert(Key::new("kcp-system", "one"), Arc::new(typed(leaving)));
    check(&none, &[chart], &["Ready: Tidegate can render every installed module"]);
}

#[test]
fn a_manifest_without_a_kyma_is_reported_and_stays() {
    let (kept, mut leaving) = (manifest("keda", in_registry("keda")), manifest("mailer", in_registry("mailer")));
    leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let mut unlabelled = manifest("dns", in_registry("dns"));
    unlabelled.metadata.labels = None;
    let manifests = [kept, leaving, unlabelled];
    assert_eq!(
        lines(&orphans(&manifests, &BTreeSet::new())),
        [
            "Note: 2 Manifests have no Kyma, and stay with the objects: kcp-system/one-keda, kcp-system/one-dns; delete \
             those whose objects are to be removed",
            "Note: 1 Manifest has no Kyma and is being deleted; Tidegate removes the objects: kcp-system/one-mailer",
        ]
    );
    let one = BTreeSet::from([Key::new("kcp-system", "one")]);
    assert_eq!(lines(&orphans(&manifests[..2], &one)), ["Ready: every Manifest has a Kyma"]);
    // A Kyma of the same name elsewhere is another one.
    let other = BTreeSet::from([Key::new("other", "one")]);
    assert_eq!(orphans(&manifests[..1], &other)[0].level, Level::Note);
}

#[test]
fn modules_with_objects_in_git_have_no_way_back() {
    let in_git = json!({
        "type": "git", "source": "kcp-system/landscape", "path": "modules/a/objects", "tree": "a".repeat(40),
    });
    let found = |landscape: &Landscape, manifests: &[Manifest]| lines(&from_git(landscape, manifests));
    let said = |names: &str, (count, have, their): (&str, &str, &str)| {
        format!(
            "Note: {count} {have} {their} objects in git, and {have} no way back to Lifecycle Manager, which reads \
             registries only: {names}; push these modules to an OCI registry before `tidegate adopt release`"
        )
    };
    let mut offered = landscape(&["a", "b", "c"]);
    assert_eq!(found(&offered, &[manifest("a", in_registry("a"))]), [""; 0]);
    assert_eq!(found(&offered, &[manifest("a", in_git.clone())]), [said("a", ("1 module", "has", "its"))]);
    for name in ["a-1.0.0", "b-1.0.0"] {
        let template = offered.templates.get_mut(&Key::new("kcp-system", name)).unwrap();
        let annotations = &mut Arc::make_mut(template).metadata.annotations;
        annotations.get_or_insert_default().insert(annotation::MODULE_PATH.to_owned(), "modules".to_owned());
    }
    let both = [said("a, b", ("2 modules", "have", "their"))];
    assert_eq!(found(&offered, &[manifest("a", in_git), manifest("c", in_registry("c"))]), both);
}

#[test]
fn manifests_say_which_trees_of_git_runtimes_have() {
    let in_git =
        |digit: &str| json!({"type": "git", "source": "kcp-system/apps", "path": "a", "tree": digit.repeat(40)});
    let tree = |digit: &str| Some(digit.repeat(40).parse().unwrap());
    let manifests = [
        manifest("a", in_git("a")),
        manifest("a", in_git("b")),
        manifest("b", in_git("a")),
        manifest("b", in_registry("b")),
    ];
    let key = |name: &str| Key::new("kcp-system", name);
    let expected = BTreeMap::from([
        (key("a-1.0.0"), BTreeSet::from([tree("a"), tree("b")])),
        (key("b-1.0.0"), BTreeSet::from([tree("a"), None])),
    ]);
    assert_eq!(trees_installed(&manifests), expected);
}

#[test]
fn a_registry_that_does_not_answer_is_a_note_if_another_one_has_the_component() {
    assert_eq!(silent(&BTreeMap::new()), None);
    let mailer = Component::new("example.org/module/mailer", "1.0.0").unwrap();
    let found = silent(&BTreeMap::from([(mailer, "a does not answer".to_owned())])).unwrap();
    let expected = "Note: a registry did not answer for 1 component that another one has: \
                    example.org/module/mailer:1.0.0; a does not answer; check that the daemon can reach the registry, \
                    or leave it out";
    assert_eq!(lines(&[found]), [expected]);
}
