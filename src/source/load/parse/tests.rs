use serde_json::json;
use tidegate_core::{
    definition::Kind,
    name::Key,
    revision::{Oid, Revision},
    snapshot::{Content, File},
};

use super::*;
use crate::source::fixtures::source;

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

#[test]
fn a_definition_has_a_digest_and_names_what_it_needs() {
    let loaded = loaded('a', TEMPLATE, None);
    assert_eq!(loaded.declared.keys().collect::<Vec<_>>(), [&template(), &release()]);
    assert_eq!(loaded.declared[&release()].needs, [template()]);
    assert_eq!(loaded.declared[&template()].needs, []);
    assert_eq!(*loaded.declares, [template(), release()].into());
    assert!(!loaded.declared[&release()].digest.is_empty() && loaded.withheld.is_empty());
}

#[test]
fn an_invalid_definition_is_declared_and_withheld_with_those_that_refer_to_it() {
    let loaded = loaded('a', &TEMPLATE.replace("version: 1.0.0", "version: [1]"), None);
    assert!(loaded.declared.is_empty() && loaded.diagnostics.has_errors());
    assert_eq!(loaded.withheld.iter().map(|withheld| &withheld.id).collect::<Vec<_>>(), [&template(), &release()]);
    assert_eq!(*loaded.declares, [template(), release()].into());
}

#[test]
fn an_unchanged_definition_keeps_its_digest_from_the_active_revision() {
    let before = Arc::new(loaded('a', TEMPLATE, None));
    let after = loaded('b', &TEMPLATE.replace("spec:", "  labels: {a: b}\nspec:"), Some(Arc::clone(&before)));
    let digest = |loaded: &Loaded, id: &Id| Arc::clone(&loaded.declared[id].digest);
    assert!(Arc::ptr_eq(&digest(&before, &release()), &digest(&after, &release())));
    assert_ne!(digest(&before, &template()), digest(&after, &template()));
}

#[test]
fn a_definition_without_a_namespace_gets_that_of_kcp() {
    let terms = Terms::from_source(&source(&json!({}))).unwrap();
    let namespaces = ["a".to_owned(), KCP_NAMESPACE.to_owned(), "z".to_owned()].into();
    assert_eq!(options(&terms, &namespaces).namespaces, [KCP_NAMESPACE, "a", "z"]);
}

/// A revision with a module `cache`: its ModuleTemplate has this text.
pub(in crate::source) fn loaded(commit: char, module_template: &str, before: Option<Arc<Loaded>>) -> Loaded {
    let files = [
        ("modules/cache/template.yaml", module_template),
        ("modules/cache/release.yaml", RELEASE),
        ("modules/cache/objects/config.yaml", OBJECT),
    ];
    let revision = Revision::Commit { name: "main".to_owned(), commit: commit.to_string().repeat(40).parse().unwrap() };
    let mut snapshot = Snapshot::empty(revision);
    for (path, text) in files {
        for (end, _) in path.match_indices('/') {
            snapshot.trees.insert(path[..end].into(), oid(&path[..end]));
        }
        let content = Content::Text(text.as_bytes().to_vec().into());
        snapshot.files.insert(path.into(), File { id: oid(text), content });
    }
    let terms = Terms::from_source(&source(&json!({}))).unwrap();
    let parse = Parse {
        name: SourceName::new(Key::new("kcp-system", "dev")),
        snapshot: Arc::new(snapshot),
        options: options(&terms, &[KCP_NAMESPACE.to_owned()].into()),
        reading: terms.reading(),
        spec: terms.spec.clone(),
        engine: Engine::Local,
        base: Templates::embedded(),
        before,
        landscape: Arc::default(),
        installed: BTreeMap::new(),
        agent: None,
        kcp_landscapes: KcpLandscapes::Applied,
    };
    parse.run(Cache::default()).0
}

/// The text of a valid ModuleTemplate.
pub(in crate::source) fn valid() -> &'static str {
    TEMPLATE
}

fn template() -> Id {
    (Kind::ModuleTemplate, Key::new("kcp-system", "cache-1.0.0"))
}

fn release() -> Id {
    (Kind::ModuleReleaseMeta, Key::new("kcp-system", "cache"))
}

fn oid(text: &str) -> Oid {
    Digest::of_bytes(text.as_bytes()).to_string()[..40].parse().unwrap()
}
