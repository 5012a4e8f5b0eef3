use crate::{
    definition::{self, Cache, Options},
    object::Digest,
    revision::Revision,
    snapshot::{Content, File, Snapshot},
    template::{Engine, TemplateFile},
};

use super::*;

const MODULE_TEMPLATE: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleTemplate
metadata:
  name: cache-1.0.0
  namespace: kcp-system
  annotations: {tidegate.dev/module-path: modules/cache/objects}
spec: {moduleName: cache, version: 1.0.0}
";
const RELEASE: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleReleaseMeta
metadata: {name: cache, namespace: kcp-system}
spec:
  moduleName: cache
  ocmComponentName: example.com/module/cache
  channels: [{channel: regular, version: 1.0.0}]
";
const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cache, namespace: kyma-system}\n";

fn kyma(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {{name: {name}, namespace: kcp-system}}\n\
         spec: {{channel: regular{spec}}}\n"
    )
}

/// A module and Kymas, as a source declares them.
fn definitions(kymas: &[String]) -> Definitions {
    let mut files = vec![
        ("modules/cache/template.yaml", MODULE_TEMPLATE.to_owned()),
        ("modules/cache/release.yaml", RELEASE.to_owned()),
        ("modules/cache/objects/config.yaml", OBJECT.to_owned()),
    ];
    files.push(("kymas.yaml", kymas.join("---\n")));
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    let oid = |text: &str| Digest::of_bytes(text.as_bytes()).to_string()[..40].parse().unwrap();
    for (path, text) in files {
        for (end, _) in path.match_indices('/') {
            snapshot.trees.insert(path[..end].into(), oid(&path[..end]));
        }
        let file = File { id: oid(&text), content: Content::Text(text.into_bytes().into()) };
        snapshot.files.insert(path.into(), file);
    }
    let mut diagnostics = Diagnostics::default();
    let namespaces = ["kcp-system", "other"].map(str::to_owned).into();
    let options = Options { namespaces, ..Options::default() };
    let definitions = definition::read(&mut diagnostics, &snapshot, &options, &mut Cache::default());
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    definitions
}

/// Overrides whose last lines are comments that read a value. They pass with their examples.
fn overrides(read: &[(Template, &str)]) -> Templates {
    let files = read.iter().map(|(template, read)| TemplateFile {
        name: template.name().to_owned(),
        path: format!("templates/{}", template.name()).into(),
        text: Some(format!("{}# {{{{ {read} }}}}\n", template.text())),
    });
    let mut diagnostics = Diagnostics::default();
    let mut templates = Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, files);
    templates.check(&mut diagnostics);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    templates
}

fn run(definitions: &Definitions, installed: &[(&str, &str)], templates: &Templates) -> Vec<String> {
    let mut modules: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
    for (kyma, module) in installed {
        modules.entry(Key::new("kcp-system", kyma)).or_default().insert((*module).to_owned());
    }
    let source = &SourceName::new(Key::new("kcp-system", "landscape"));
    let catalog = &Landscape::default();
    let mut diagnostics = Diagnostics::default();
    let agents = &sample_agents();
    Trial { source, definitions, catalog, installed: &modules, agents }.run(&mut diagnostics, templates);
    diagnostics.sorted().iter().map(ToString::to_string).collect()
}

#[test]
fn templates_with_values_of_a_cluster_are_tried_on_samples_of_them() {
    const WATCHER: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: Watcher
metadata: {name: watcher, namespace: kcp-system, labels: {operator.kyma-project.io/managed-by: lifecycle-manager}}
spec:
  resourceToWatch: {group: operator.kyma-project.io, version: '*', resource: kymas}
  labelsToWatch: {operator.kyma-project.io/watched-by: kyma}
  field: spec
  serviceInfo: {name: events, namespace: kcp-system, port: 8082}
  gateway: {selector: {matchLabels: {app: gateway}}}
";
    let watched = [kyma("a", ""), WATCHER.to_owned()];
    let elsewhere = [kyma("a", "").replace("kcp-system", "other")];
    let without = [kyma("a", "")];
    let annotation = "{'{}': 1}[secret.annotations|tojson]";
    for (definitions_of, read, expected) in [
        // The example has each of these values.
        (&watched[..], (Template::Webhook, "{'LS0tLS1CRUdJTg==': 1}[caBundle]"), Some("the webhook configuration")),
        (&watched, (Template::Webhook, "drift.name"), Some("the webhook configuration of runtimes")),
        (&watched, (Template::Webhook, "watches[0].manager"), None),
        // Without a Watcher of the source, its template is not used.
        (&without, (Template::Webhook, "drift.name"), None),
        (&watched, (Template::VirtualService, "{1: 1}[hosts|length]"), Some("Watcher kcp-system/watcher")),
        (&without, (Template::VirtualService, "{1: 1}[hosts|length]"), None),
        (&without, (Template::AgentDeployment, "{'runtime-watcher': 1}[agent.program]"), Some("the agent of runtimes")),
        (&without, (Template::AgentSecret, "{'skr-webhook': 1}[name]"), None),
        (&without, (Template::AgentPullSecret, "{'registry-credentials': 1}[name]"), Some("the agent of runtimes")),
        (&without, (Template::Certificate, annotation), None),
        (&elsewhere, (Template::Certificate, annotation), Some("the certificate of Kyma other/a")),
        (&without, (Template::GardenerCertificate, "{'kcp-system': 1}[kyma.namespace]"), None),
        (
            &elsewhere,
            (Template::GardenerCertificate, "{'kcp-system': 1}[kyma.namespace]"),
            Some("the certificate of Kyma other/a"),
        ),
    ] {
        let found = run(&definitions(definitions_of), &[], &overrides(&[read]));
        match (expected, &found[..]) {
            (None, []) => {}
            (Some(subject), [one]) => {
                let line = read.0.text().lines().count() + 1;
                assert!(one.starts_with(&format!("templates/{}:{line}", read.0.name())), "{one}");
                assert!(one.contains(&format!("(rendering a sample: {subject}")), "{one}");
            }
            _ => panic!("{read:?}: {found:?}"),
        }
    }
}

#[test]
fn what_only_the_example_has_is_found_before_the_template_is_used_and_named_once() {
    let without = ["a", "b", "c"].map(|name| kyma(name, ""));
    let with = [kyma("a", ", modules: [{name: cache, managed: true}]")];
    for (kymas, installed, read, expected) in [
        (&without[..], &[][..], (Template::Kyma, "spec.modules[0].name"), Some("Kyma kcp-system/a")),
        (&with, &[], (Template::Kyma, "spec.modules[0].name"), None),
        (&with, &[], (Template::Manifest, "manager.kind"), Some("module cache of Kyma kcp-system/a")),
        (&with, &[], (Template::Manifest, "module.version"), None),
        // Nothing uses the template, until a user adds a module in a runtime.
        (&without, &[], (Template::Manifest, "manager.kind"), None),
        (&without, &[("b", "cache")], (Template::Manifest, "manager.kind"), Some("module cache of Kyma kcp-system/b")),
        (
            &without,
            &[],
            (Template::ModuleTemplate, "{'1.2.0': 1}[spec.version]"),
            Some("ModuleTemplate kcp-system/cache-1.0.0"),
        ),
        (&without, &[], (Template::ModuleReleaseMeta, "spec.channels[0].channel"), None),
    ] {
        let found = run(&definitions(kymas), installed, &overrides(&[read]));
        match (expected, &found[..]) {
            (None, []) => {}
            (Some(subject), [one]) => {
                let line = read.0.text().lines().count() + 1;
                assert!(one.starts_with(&format!("templates/{}:{line}", read.0.name())), "{one}");
                assert!(one.contains(&format!("(rendering a sample: {subject})")), "{one}");
            }
            _ => panic!("{read:?}: {found:?}"),
        }
    }
}

#[test]
fn each_template_is_named_and_an_embedded_one_is_not_tried() {
    let kymas = [kyma("a", ", modules: [{name: cache, managed: true}]"), kyma("b", "")];
    let templates = overrides(&[(Template::Manifest, "manager.kind"), (Template::Kyma, "spec.modules[0].name")]);
    assert_eq!(run(&definitions(&kymas), &[], &templates).len(), 2);
    assert!(run(&definitions(&kymas), &[], &Templates::embedded()).is_empty());
}

#[test]
fn objects_that_differ_only_in_values_have_one_shape() {
    let of = |text: &str| shape_of(&serde_json::from_str::<Value>(text).unwrap());
    for (one, other, is_same) in [
        (r#"{"a": 1, "b": "x"}"#, r#"{"a": 2, "b": "y"}"#, true),
        (r#"{"a": [1, 2, 3]}"#, r#"{"a": [4]}"#, true),
        (r#"{"a": [1]}"#, r#"{"a": []}"#, false),
        (r#"{"a": 1}"#, r#"{"a": null}"#, false),
        (r#"{"a": 1}"#, r#"{"a": 1, "b": 1}"#, false),
        (r#"[{"a": 1}, {"b": 1}]"#, r#"[{"b": 1}, {"a": 1}, {"a": 2}]"#, true),
    ] {
        assert_eq!(of(one) == of(other), is_same, "{one} {other}");
    }
}
