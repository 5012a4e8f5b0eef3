use std::{
    fmt::Write as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::{
    revision::{Oid, Revision},
    snapshot::{Content, File},
};

const TEMPLATE: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleTemplate
metadata:
  name: cache-1.0.0
  namespace: kcp-system
  annotations: {tidegate.dev/module-path: modules/cache/objects}
spec:
  moduleName: cache
  version: 1.0.0
";
const RELEASE: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleReleaseMeta
metadata: {name: cache, namespace: kcp-system}
spec:
  moduleName: cache
  ocmComponentName: example.com/module/cache
  channels:
  - {channel: regular, version: 1.0.0}
";
const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cache, namespace: kyma-system}\n";

fn kyma(name: &str, channel: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {{name: {name}, namespace: kcp-system}}\n\
         spec:\n  channel: {channel}\n  modules: [{{name: cache}}]\n"
    )
}

fn oid(text: &str) -> Oid {
    let digest = Digest::of_bytes(text.as_bytes()).to_string();
    digest[..40].parse().unwrap()
}

/// A snapshot of texts. The id of a folder is derived from its path, that of a file from its
/// content.
fn snapshot<'a>(files: impl IntoIterator<Item = (&'a str, String)>) -> Snapshot {
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    for (path, text) in files {
        for (end, _) in path.match_indices('/') {
            snapshot.trees.insert(path[..end].into(), oid(&path[..end]));
        }
        let file = File { id: oid(&text), content: Content::Text(text.into_bytes().into()) };
        snapshot.files.insert(path.into(), file);
    }
    snapshot
}

fn good() -> Vec<(&'static str, String)> {
    vec![
        ("modules/cache/template.yaml", TEMPLATE.to_owned()),
        ("modules/cache/release.yaml", RELEASE.to_owned()),
        ("modules/cache/objects/config.yaml", OBJECT.to_owned()),
        ("kymas/dev.yaml", kyma("dev", "regular")),
    ]
}

fn with(path: &'static str, text: &str) -> Snapshot {
    snapshot(good().into_iter().filter(|(other, _)| *other != path).chain([(path, text.to_owned())]))
}

/// The valid definitions, those that are held back, and the codes of the diagnostics, each as
/// `path:line code`.
fn look(snapshot: &Snapshot, options: &Options) -> (Vec<String>, Vec<String>, Vec<String>) {
    let mut diagnostics = Diagnostics::default();
    let definitions = read(&mut diagnostics, snapshot, options, &mut Cache::default());
    let good = definitions.good.keys().map(|(kind, key)| format!("{kind} {}", key.name())).collect();
    let withheld =
        definitions.withheld.iter().map(|withheld| format!("{} {}", withheld.kind, withheld.key.name())).collect();
    let codes = diagnostics.sorted().into_iter().map(|diagnostic| {
        let place = diagnostic.place.map_or_else(String::new, |place| format!("{}:{}", place.path, place.line));
        format!("{place} {}", diagnostic.code)
    });
    (good, withheld, codes.collect())
}

#[track_caller]
fn check(snapshot: &Snapshot, good: &[&str], withheld: &[&str], codes: &[&str]) {
    let owned = |texts: &[&str]| -> Vec<String> { texts.iter().map(ToString::to_string).collect() };
    assert_eq!(look(snapshot, &Options::default()), (owned(good), owned(withheld), owned(codes)));
}

#[test]
fn what_a_repository_declares_is_found_however_it_is_written() {
    let head = "apiVersion: operator.kyma-project.io/v1beta2";
    let rest = "metadata: {name: a, namespace: kcp-system}\nspec: {channel: regular}";
    let flow = "{apiVersion: operator.kyma-project.io/v1beta2, \"kind\" : Kyma, metadata: {name: a, namespace: kcp-system}, \
                spec: {channel: regular}}\n";
    let quoted =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kcp-system}\ndata:\n  a: |\n    kind: Kyma\n";
    for (text, expected) in [
        (format!("{head}\nkind: Kyma # of a customer\n{rest}\n"), true),
        (format!("{head}\nkind: 'Kyma'\n{rest}\n"), true),
        (flow.to_owned(), true),
        (quoted.to_owned(), false),
        (String::new(), false),
    ] {
        let snapshot = snapshot([("a.yaml", text.clone())]);
        let found = declares(&snapshot, &Options::default(), |kind, key| {
            (kind, key) == (Kind::Kyma, &Key::new("kcp-system", "a"))
        });
        assert_eq!(found, expected, "{text}");
        assert!(!declares(&snapshot, &Options::default(), |kind, _| kind == Kind::Watcher), "{text}");
    }
}

#[test]
fn a_good_repository_is_all_good() {
    let snapshot = snapshot(good());
    check(&snapshot, &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache", "Kyma dev"], &[], &[]);
}

#[test]
fn the_descriptor_of_a_module_in_git_is_filled_in() {
    let definitions = read(&mut Diagnostics::default(), &snapshot(good()), &Options::default(), &mut Cache::default());
    let template = &definitions.good[&(Kind::ModuleTemplate, Key::new("kcp-system", "cache-1.0.0"))];
    let component = template.object.value().pointer("/spec/descriptor/component").unwrap();
    assert_eq!(component, &serde_json::json!({"name": "example.com/module/cache", "version": "1.0.0"}));
    assert_eq!(template.digest, template.object.digest());
    let source = template.module.clone().unwrap();
    assert_eq!(source, ModuleSource { path: "modules/cache/objects".to_owned(), tree: oid("modules/cache/objects") });
    assert_eq!(definitions.modules[&source.tree.into()].objects()[0].object().name(), "cache");
}

#[test]
fn a_release_that_is_held_back_changes_no_descriptor() {
    let template = (Kind::ModuleTemplate, Key::new("kcp-system", "cache-1.0.0"));
    for (before, after) in [("moduleName: cache", "moduleName: cash"), ("{name: cache,", "{name: cash,")] {
        assert!(RELEASE.contains(before), "{RELEASE}");
        let snapshot = with("modules/cache/release.yaml", &RELEASE.replacen(before, after, 1));
        let definitions = read(&mut Diagnostics::default(), &snapshot, &Options::default(), &mut Cache::default());
        assert_eq!(definitions.withheld[0].kind, Kind::ModuleReleaseMeta, "{after}");
        let component = definitions.good[&template].object.value().pointer("/spec/descriptor/component/name");
        assert_eq!(component.and_then(|name| name.as_str()), Some("example.com/module/cache"), "{after}");
    }
}

#[test]
fn a_broken_template_withholds_its_release_and_no_kyma() {
    let broken = TEMPLATE.replace("version: 1.0.0", "version: 1.0.0\n  mandatory: maybe");
    check(
        &with("modules/cache/template.yaml", &broken),
        &["Kyma dev"],
        &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache"],
        &["modules/cache/release.yaml:8 reference-withheld", "modules/cache/template.yaml:10 wrong-type"],
    );
}

#[test]
fn a_field_without_an_effect_is_a_warning_at_its_line() {
    let all = &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache", "Kyma dev"];
    let of_template = format!("{TEMPLATE}  customStateCheck: [{{jsonPath: a, value: b, mappedState: Ready}}]\n");
    check(&with("modules/cache/template.yaml", &of_template), all, &[], &["modules/cache/template.yaml:10 no-effect"]);
    let of_release = format!("{RELEASE}  beta: true\n  internal: false\n");
    check(&with("modules/cache/release.yaml", &of_release), all, &[], &["modules/cache/release.yaml:9 no-effect"]);
    let of_kyma = kyma("dev", "regular").replace("{name: cache}", "{name: cache, remoteModuleTemplateRef: x}");
    check(&with("kymas/dev.yaml", &of_kyma), all, &[], &["kymas/dev.yaml:6 no-effect"]);
    for (descriptor, codes) in [
        ("{component: {version: 1.0.0}}", &[][..]),
        ("{component: {version: 1.0.1}}", &["modules/cache/template.yaml:10 no-effect"]),
        ("{metadata: {version: 1.0.1}}", &["modules/cache/template.yaml:10 no-effect"]),
    ] {
        let text = format!("{TEMPLATE}  descriptor: {descriptor}\n");
        check(&with("modules/cache/template.yaml", &text), all, &[], codes);
    }
}

#[test]
fn a_secret_that_asks_for_data_and_gets_none_is_a_warning() {
    let all = &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache", "Kyma dev"];
    for (kind, value, codes) in [
        ("Secret", "true", &["modules/cache/objects/config.yaml:1 no-effect"][..]),
        ("Secret", "false", &[]),
        ("ConfigMap", "true", &[]),
    ] {
        let object = format!(
            "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: a\n  namespace: b\n  annotations: \
             {{operator.kyma-project.io/inject-data-from-kcp: '{value}'}}\n"
        );
        check(&with("modules/cache/objects/config.yaml", &object), all, &[], codes);
    }
}

#[test]
fn a_manager_that_the_module_does_not_have_is_a_warning_at_its_line() {
    let all = &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache", "Kyma dev"];
    let warned = &["modules/cache/template.yaml:10 module-manager"][..];
    for (kind, name, namespace, codes) in [
        ("ConfigMap", "cache", ", namespace: kyma-system", &[][..]),
        ("ConfigMap", "cache", "", &[]),
        ("ConfigMap", "cache", ", namespace: default", warned),
        ("ConfigMap", "cashe", "", warned),
        ("Secret", "cache", "", warned),
    ] {
        let manager = format!("{{group: \"\", version: v1, kind: {kind}, name: {name}{namespace}}}");
        let text = format!("{TEMPLATE}  manager: {manager}\n");
        check(&with("modules/cache/template.yaml", &text), all, &[], codes);
    }
    let found = look(
        &snapshot(good().into_iter().map(|(path, text)| match path {
            "modules/cache/template.yaml" => {
                let manager = "{group: \"\", version: v1, kind: ConfigMap, name: cache, namespace: default}";
                (path, format!("{text}  manager: {manager}\n"))
            }
            "modules/cache/objects/config.yaml" => (path, text.replace(", namespace: kyma-system", "")),
            _ => (path, text),
        })),
        &Options::default(),
    );
    assert_eq!(found.2, ["modules/cache/objects/config.yaml:3 namespace-missing"], "`default` is where it is created");
}

#[test]
fn a_channel_whose_version_no_kyma_can_select_is_a_warning() {
    let all = &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache", "Kyma dev"];
    let template = format!("{TEMPLATE}  mandatory: true\n");
    check(
        &with("modules/cache/template.yaml", &template),
        all,
        &[],
        &["modules/cache/release.yaml:8 mandatory-module"],
    );
    let release = RELEASE.replace("channels:\n  - {channel: regular, version: 1.0.0}", "mandatory: {version: 1.0.0}");
    let both = good().into_iter().filter_map(|(path, text)| match path {
        "modules/cache/template.yaml" => Some((path, template.clone())),
        "modules/cache/release.yaml" => Some((path, release.clone())),
        "kymas/dev.yaml" => None,
        _ => Some((path, text)),
    });
    check(&snapshot(both), &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache"], &[], &[]);
}

/// What is not whole has no [`ModuleObjects`], and only these can be pruned by: see `changes`.
#[test]
fn a_large_module_is_checked_as_a_small_one() {
    const OTHERS: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: cache, namespace: kyma-system}
data: {key: '?'}
---
apiVersion: example.com/v1
kind: Cache
metadata: {name: cache}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
";
    const DEFINITION: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Cache, plural: caches}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
";
    let found = |others: &str, padding: usize| {
        let large = format!("{OBJECT}data: {{text: \"{}\"}}\n", "a".repeat(padding));
        let files = [
            ("modules/cache/objects/config.yaml", large),
            ("modules/cache/objects/others.yaml", others.to_owned()),
            // Comes last, and is needed for the scope of the resource above.
            ("modules/cache/objects/z.yaml", DEFINITION.to_owned()),
        ];
        let kept = good().into_iter().filter(|(path, _)| !path.starts_with("modules/cache/objects/"));
        look(&snapshot(kept.chain(files)), &Options::default()).2
    };
    let items = OTHERS.split("---\n").map(|object| format!("- {}\n", object.trim_end().replace('\n', "\n  ")));
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}", items.collect::<String>());
    for others in [OTHERS, list.as_str()] {
        let small = found(others, 1);
        assert_eq!(small.len(), 5, "{small:?}");
        assert_eq!(found(others, 3 << 20), small);
    }
}

/// The objects of a module that is one file, each with its place; otherwise the place and the code of the first error.
fn objects_of(text: &str) -> Vec<String> {
    let path: Arc<str> = "a.yaml".into();
    match module_objects(oid("module"), [(&path, text.as_bytes())].into_iter(), &yaml::Limits::default()) {
        Ok(module) => module.objects().iter().map(|source| format!("{} {}", source.place, source.id())).collect(),
        Err(error) => vec![format!("{} {}", error.place.unwrap(), error.code)],
    }
}

#[test]
fn a_list_of_objects_is_its_items_each_at_its_place() {
    let map = |name: &str| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}");
    let list = |kind: &str, items: &str| format!("apiVersion: v1\nkind: {kind}\nitems: {items}\n");
    let (a, b, c) = (map("a"), map("b"), map("c"));
    let kyma = "{apiVersion: operator.kyma-project.io/v1beta2, kind: Kyma, metadata: {name: a}}";
    let deep = format!("{}{}", "{apiVersion: v1, kind: List, items: [".repeat(60), "]}".repeat(60));
    for (text, expected) in [
        (
            list("List", &format!("\n- {a}\n- {b}\n---\n{c}")),
            &["a.yaml:4:3 ConfigMap a", "a.yaml:5:3 ConfigMap b", "a.yaml:7:1 ConfigMap c"][..],
        ),
        (
            list("List", &format!("\n- apiVersion: v1\n  kind: List\n  items:\n  - {a}\n- {b}")),
            &["a.yaml:7:5 ConfigMap a", "a.yaml:8:3 ConfigMap b"],
        ),
        (
            list("ConfigMapList", &format!("[{{metadata: {{name: d}}}}, {a}]")),
            &["a.yaml:3:9 ConfigMap d", "a.yaml:3:32 ConfigMap a"],
        ),
        (list("List", "[]"), &[]),
        // What is wrong is said at its place.
        (list("List", "[{metadata: {name: d}}]"), &["a.yaml:3:9 module-object"]),
        (list("List", "\n- apiVersion: v1\n  kind: ConfigMap"), &["a.yaml:4:3 module-object"]),
        (list("List", &format!("[{a}, text]")), &["a.yaml:3:65 module-object"]),
        (list("List", &format!("[{a}, {a}]")), &["a.yaml:3:65 module-duplicate-object"]),
        (list("List", &format!("[{kyma}]")), &["a.yaml:3:9 definition-in-module"]),
        (list("List", "[]\nsops: {mac: x}"), &["a.yaml:1:1 sops-encrypted"]),
        (list("List", "{}"), &["a.yaml:1:1 list"]),
        ("apiVersion: v1\nkind: List\n".to_owned(), &["a.yaml:1:1 list"]),
    ] {
        assert_eq!(objects_of(&text), expected, "{text}");
    }
    let limited = objects_of(&deep);
    assert!(matches!(&*limited, [only] if only.ends_with(" yaml-limit")), "{limited:?}");
}

#[test]
fn a_module_with_an_error_yields_no_objects_to_prune_by() {
    let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    for (more, is_complete) in [
        ("", true),
        ("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n", true),
        // A warning: every object is there.
        ("---\nkind: Kustomization\napiVersion: kustomize.config.k8s.io/v1beta1\nnamePrefix: x-\n", true),
        ("---\napiVersion: v1\nkind: ConfigMap\n", false),
        ("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", false),
        ("---\na: [\n", false),
        ("---\nv1\n", false),
    ] {
        let (path, text) = (Arc::from("modules/cache/objects/config.yaml"), format!("{good}{more}"));
        let files = [(&path, text.as_bytes())].into_iter();
        let alone = module_objects(oid("modules/cache/objects"), files, &Options::default().limits);
        assert_eq!(alone.is_ok(), is_complete, "{more:?}: {alone:?}");
        let snapshot = with("modules/cache/objects/config.yaml", &text);
        let definitions = read(&mut Diagnostics::default(), &snapshot, &Options::default(), &mut Cache::default());
        assert_eq!(definitions.modules.len(), usize::from(is_complete), "{more:?}");
    }
}

#[test]
fn a_broken_object_of_a_module_withholds_its_template() {
    check(
        &with("modules/cache/objects/config.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
        &["Kyma dev"],
        &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache"],
        &[
            "modules/cache/objects/config.yaml:1 module-object",
            "modules/cache/release.yaml:8 reference-withheld",
            "modules/cache/template.yaml:6 module-broken",
        ],
    );
}

#[test]
fn what_is_declared_twice_is_applied_by_neither() {
    check(
        &with("kymas/more.yaml", &kyma("dev", "regular")),
        &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache"],
        &["Kyma dev"],
        &["kymas/more.yaml:1 duplicate-definition"],
    );
}

#[test]
fn a_broken_kyma_withholds_itself_only() {
    check(
        &with("kymas/more.yaml", &format!("{}---\n{}", kyma("one", "fast"), kyma("two", "regular"))),
        &["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache", "Kyma dev", "Kyma two"],
        &["Kyma one"],
        &["kymas/more.yaml:5 unknown-channel"],
    );
}

#[test]
fn paths_ignore_and_templates_say_what_is_read() {
    let files = good().into_iter().chain([("overrides/kcp/manifest.yaml", "a: {".to_owned())]);
    let snapshot = snapshot(files);
    let options = Options {
        paths: vec!["./modules/".to_owned(), "overrides".to_owned()],
        ignore: vec!["**/release.yaml".to_owned()],
        templates: Some("overrides".to_owned()),
        ..Options::default()
    };
    assert_eq!(look(&snapshot, &options), (vec!["ModuleTemplate cache-1.0.0".to_owned()], vec![], vec![]));
}

/// The daemon reads the objects of a module from their git tree, so a command that left some out would disagree.
#[test]
fn ignore_has_no_effect_within_a_module_and_a_warning_says_so() {
    let snapshot = with(
        "modules/cache/objects/extra.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra, namespace: other}\n",
    );
    let count = |ignore: &[&str]| {
        let options = Options { ignore: ignore.iter().map(ToString::to_string).collect(), ..Options::default() };
        let mut found = Diagnostics::default();
        let read = read(&mut found, &snapshot, &options, &mut Cache::default());
        let lacking = lacking_modules(&mut Cache::default(), &snapshot, &options, &crate::snapshot::Limits::default());
        let codes: Vec<String> =
            found.iter().map(|one| format!("{} {}", one.place.as_ref().unwrap(), one.code)).collect();
        (read.modules.values().map(|module| module.objects().len()).sum::<usize>(), codes, lacking.len())
    };
    let (all, codes, lacking) = count(&[]);
    assert_eq!((codes, lacking), (vec![], 0));
    let warning = vec!["modules/cache/objects/extra.yaml module-ignore".to_owned()];
    assert_eq!(count(&["extra.yaml"]), (all, warning, 1), "the files that were left out are read as well");
    // A module in a folder that is no part of the source is no mistake.
    assert_eq!(count(&["/modules/cache/objects/"]).1, Vec::<String>::new());
}

#[test]
fn what_a_source_may_not_declare_is_withheld() {
    let snapshot = snapshot(good());
    let allow = Allow { kinds: vec!["Kyma".to_owned()], names: vec!["d*".to_owned()], ..Allow::default() };
    let (good, withheld, codes) = look(&snapshot, &Options { allow, ..Options::default() });
    // The control plane resolves references to kinds that this source must not declare.
    assert_eq!(good, ["Kyma dev"]);
    assert_eq!(withheld, ["ModuleTemplate cache-1.0.0", "ModuleReleaseMeta cache"]);
    assert!(codes.iter().all(|code| code.ends_with(" not-allowed")), "{codes:?}");
}

#[test]
fn references_may_resolve_elsewhere() {
    let snapshot = snapshot([("kyma.yaml", kyma("dev", "regular"))]);
    let (_, _, codes) = look(&snapshot, &Options::default());
    assert_eq!(codes, ["kyma.yaml:6 unknown-module"]);
    let channels = Channels::Known(BTreeSet::from(["regular".to_owned()]));
    let releases = BTreeMap::from([(Key::new("kcp-system", "cache"), channels)]);
    let elsewhere = Arc::new(Elsewhere { releases, ..Elsewhere::default() });
    let (good, _, codes) = look(&snapshot, &Options { elsewhere, ..Options::default() });
    assert_eq!((good, codes), (vec!["Kyma dev".to_owned()], vec![]));
    let definitions = read(&mut Diagnostics::default(), &snapshot, &Options::default(), &mut Cache::default());
    let outside = BTreeSet::from([(Kind::ModuleReleaseMeta, Key::new("kcp-system", "cache"))]);
    assert_eq!(definitions.outside, outside, "what may come from elsewhere is known, also while it is not there");
}

#[test]
fn of_many_definitions_only_a_changed_file_is_parsed_again() {
    const FILES: usize = 200;
    const IN_EACH: usize = 100;
    let bundle = |file: usize| {
        (0..IN_EACH).fold(String::new(), |mut text, number| {
            let name = format!("runtime-{file}-{number}");
            write!(text, "---\n{}", kyma(&name, "regular")).unwrap();
            text
        })
    };
    let paths: Vec<String> = (0..FILES).map(|file| format!("kymas/{file}.yaml")).collect();
    let files = || paths.iter().enumerate().map(|(file, path)| (path.as_str(), bundle(file)));
    let mut snapshot = snapshot(good().into_iter().chain(files()));
    let (mut cache, mut diagnostics) = (Cache::default(), Diagnostics::default());
    let definitions = read(&mut diagnostics, &snapshot, &Options::default(), &mut cache);
    assert_eq!((definitions.good.len(), diagnostics.len()), (FILES * IN_EACH + 3, 0));
    let parsed = cache.parsed();

    let text = bundle(7).replace("channel: regular", "channel: fast");
    let file = File { id: oid(&text), content: Content::Text(text.into_bytes().into()) };
    snapshot.files.insert("kymas/7.yaml".into(), file);
    let definitions = read(&mut diagnostics, &snapshot, &Options::default(), &mut cache);
    assert_eq!((cache.parsed() - parsed, definitions.withheld.len()), (1, IN_EACH));
}

#[test]
fn names_that_are_near_are_suggested() {
    assert_eq!(near::nearest("cahce", ["cache", "telemetry"].into_iter()), Some("cache"));
    assert_eq!(
        near::nearest("ModuleTemplat", ["ModuleReleaseMeta", "ModuleTemplate"].into_iter()),
        Some("ModuleTemplate")
    );
    assert_eq!(near::nearest("Serverless", ["Kyma", "Watcher"].into_iter()), None);
}

#[test]
fn a_check_ends_with_its_room_and_counts_the_values_of_definitions_alone() {
    let many = |name: &str| {
        let modules: String = (0..40).map(|number| format!("{{name: m{number}, managed: true}}, ")).collect();
        format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {{name: {name}, namespace: kcp-system}}\n\
             spec: {{channel: regular, modules: [{modules}]}}\n"
        )
    };
    let foreign = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: [{}]\n", "1, ".repeat(1_000));
    let snapshot = snapshot([("a.yaml", many("a")), ("b.yaml", many("b")), ("c.yaml", many("c")), ("d.yaml", foreign)]);
    let read = |room: Room| {
        let (mut diagnostics, mut cache) = (Diagnostics::default(), Cache::default());
        let options = Options { room, ..Options::default() };
        let definitions = super::read(&mut diagnostics, &snapshot, &options, &mut cache);
        (definitions.good.len() + definitions.withheld.len(), cache.values(), diagnostics)
    };
    let (all, values, diagnostics) = read(Room::default());
    assert_eq!(all, 3);
    assert!((3 * 120..3 * 140).contains(&values), "{values}");
    assert!(!diagnostics.has_code(|found| found == code::UNFINISHED));
    let (some, _, diagnostics) = read(Room::new(move |asked| asked < values / 2));
    assert!(some < 3, "{some}");
    assert!(diagnostics.has_code(|found| found == code::UNFINISHED));
}

/// Options whose budget ends after so many questions, and how many were asked.
fn hurried(asks_max: usize) -> (Options, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let budget = Budget::new(move || counter.fetch_add(1, Ordering::Relaxed) < asks_max);
    (Options { budget, ..Options::default() }, asked)
}

#[test]
fn a_check_ends_with_its_budget_and_nothing_that_is_incomplete_is_kept() {
    let mut files = good();
    files.push(("kymas/b.yaml", kyma("b", "none-such")));
    files.push(("modules/cache/objects/crd.yaml", CRD_WITH_RULES.to_owned()));
    let snapshot = snapshot(files);
    let read_with = |cache: &mut Cache, options: &Options| {
        let mut diagnostics = Diagnostics::default();
        let definitions = read(&mut diagnostics, &snapshot, options, cache);
        let objects: Vec<_> = definitions.modules.values().flat_map(|module| module.objects().to_vec()).collect();
        let good: Vec<_> = definitions.good.keys().cloned().collect();
        (diagnostics, good, definitions.withheld, objects)
    };
    let complete = read_with(&mut Cache::default(), &Options::default());
    let (unhurried, asked) = hurried(usize::MAX);
    assert_eq!(read_with(&mut Cache::default(), &unhurried), complete);
    assert!(!unhurried.budget.was_exceeded());
    let all = asked.load(Ordering::Relaxed);
    assert!(50 < all, "{all}: each document, each value and each loop asks");
    for asks_max in 0..all {
        let (options, asked) = hurried(asks_max);
        let mut cache = Cache::default();
        let early = read_with(&mut cache, &options);
        assert!(early.0.iter().any(|found| found.code == code::UNFINISHED) && early.0.has_errors(), "{asks_max}");
        assert_eq!(asked.load(Ordering::Relaxed), asks_max + 1, "nothing is asked after the end");
        assert_eq!(read_with(&mut cache, &Options::default()), complete, "{asks_max}: the next check");
    }
}

const CRD_WITH_RULES: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.example.com}
spec:
  group: example.com
  names: {kind: Cache, plural: caches}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              sizes:
                type: array
                items: {type: integer}
                x-kubernetes-validations: [{rule: 'self.all(a, self.all(b, a + b >= 0))'}]
---
apiVersion: example.com/v1
kind: Cache
metadata: {name: a, namespace: kyma-system}
spec: {sizes: [1, 2, 3, 4]}
";
