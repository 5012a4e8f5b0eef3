use serde_json::json;

use super::*;
use crate::name::Key;

fn file(name: &str, text: &str) -> TemplateFile {
    TemplateFile { name: name.to_owned(), path: format!("templates/{name}").into(), text: Some(text.to_owned()) }
}

/// The error if `text` overrides the template of the namespace.
fn mistake(text: &str) -> String {
    let mut diagnostics = Diagnostics::default();
    let templates = Templates::embedded().with_overrides(
        &Engine::Local,
        &mut diagnostics,
        [file(Template::Namespace.name(), text)],
    );
    let stamp = Stamp::new("", "kyma-system").label("operator.kyma-project.io/managed-by", "kyma");
    let result = templates.render(Template::Namespace, &json!({"name": "kyma-system"}), &stamp, "the namespace");
    let error = result.expect_err("the template is wrong");
    assert_eq!(error.path.as_deref(), Some("templates/skr/namespace.yaml"));
    error.to_string()
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(mistake(text), expected);
}

const HEAD: &str = "apiVersion: v1\nkind: Namespace\n";

#[test]
fn embedded_templates_render_their_documented_context() {
    for template in Template::ALL {
        let stamp = Stamp::new("kcp-system", "example");
        let rendered = Templates::embedded().render(template, &example(template), &stamp, "the example");
        let object = rendered.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(&*object.gvk().kind, template.produces().kind);
        assert_eq!(object.gvk().api_version(), template.produces().api_versions[0]);
    }
}

#[test]
fn embedded_templates_use_every_field_that_is_documented_or_say_so() {
    // A context documents what overrides may use. Fields that embedded templates do not use are listed here on purpose.
    let unused = [
        "kcp/certificate.yaml kyma",
        "kcp/gardener-certificate.yaml kyma",
        "kcp/gardener-certificate.yaml renewBefore",
        "kcp/manifest.yaml kyma",
        "kcp/manifest.yaml name",
        "kcp/virtual-service.yaml manager",
        "setup/certificate.yaml resource",
        "setup/deployment.yaml resource",
        "setup/issuer.yaml resource",
        "setup/path-mapping.yaml resource",
        "setup/pod-disruption-budget.yaml resource",
        "setup/secret.yaml key",
        "setup/secret.yaml resource",
        "setup/service.yaml resource",
    ];
    let unused_names = [
        "skr/kyma.yaml kyma",
        "skr/module-release-meta.yaml release",
        "skr/module-template.yaml template",
        "skr/agent/priority-class.yaml name",
        "skr/agent/pull-secret.yaml name",
        "skr/agent/secret.yaml name",
    ];
    for template in Template::ALL {
        for field in example(template).as_object().expect("a context is a mapping").keys() {
            let named = format!("{} {field}", template.name());
            let expected = !unused.contains(&named.as_str())
                && !unused_names.contains(&named.as_str())
                && named != "skr/namespace.yaml name";
            assert_eq!(Templates::embedded().may_use(template, field), expected, "{named}");
        }
    }
}

#[test]
fn an_undefined_variable_is_named_with_its_line() {
    check(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  labels:\n    a: {{ nmae }}\n",
        "template skr/namespace.yaml:5: `nmae` is not in the context (rendering the namespace)",
    );
}

#[test]
fn a_template_that_does_not_end_is_stopped() {
    check(
        &format!("{HEAD}{{% for i in range(90000) %}}{{% for j in range(90000) %}}{{% endfor %}}\n{{% endfor %}}"),
        "template skr/namespace.yaml:3: exceeds 250000 steps: check it for endless loops (rendering the namespace)",
    );
}

#[test]
fn huge_output_is_stopped() {
    check(
        &format!("{HEAD}{{% for i in range(9999) %}}{}\n{{% endfor %}}", "#".repeat(1000)),
        "template skr/namespace.yaml:3: writes more than 2097152 bytes (rendering the namespace)",
    );
}

#[test]
fn one_template_writes_one_object() {
    check(
        &format!("{HEAD}---\n{HEAD}"),
        "template skr/namespace.yaml:4: writes more than one object (rendering the namespace)",
    );
    check("# nothing\n", "template skr/namespace.yaml: writes no object (rendering the namespace)");
}

#[test]
fn a_template_writes_only_its_kind() {
    check(
        "{# why #}\napiVersion: v1\n{% if true %}\nkind: Secret\n{% endif %}\n",
        "template skr/namespace.yaml:4: writes `kind: Secret`; it may only write `kind: Namespace` (rendering the namespace)",
    );
    check(
        "apiVersion: v2\nkind: Namespace\n",
        "template skr/namespace.yaml:1: writes `apiVersion: v2`; it may only write `apiVersion: v1` (rendering the namespace)",
    );
}

/// A value that a template computes may be part of a secret, even if it is invalid.
#[test]
fn what_is_computed_is_not_quoted() {
    let all = [
        (format!("{HEAD}{{% include 'absent.yaml' %}}\n"), "template `absent.yaml` does not exist"),
        (format!("{HEAD}{{% include name[:4] %}}\n"), "includes a template with a computed name"),
        (format!("{HEAD}{{% include [name|upper, 'b'] %}}\n"), "includes a template with a computed name"),
        (format!("{{% import name|upper as a %}}{HEAD}"), "includes a template with a computed name"),
        (format!("{{% extends name|upper %}}{HEAD}"), "includes a template with a computed name"),
        (
            format!("{HEAD}x: {{{{ (name|length) * 9999999999999999999999999 * 9999999999999999999999999 }}}}\n"),
            "too large",
        ),
        ("apiVersion: v1\nkind: {{ name|upper }}\n".to_owned(), "writes a computed `kind`"),
        (format!("{HEAD}metadata: {{ {{{{ name|upper }}}}: 1 }}\n"), "writes a computed field of `metadata`"),
        (format!("{HEAD}metadata: {{ labels: {{ {{{{ name|upper }}}}: 1 }} }}\n"), "writes label with a computed key"),
        (format!("{HEAD}a: {{ {{{{ name|upper }}}}: 1, {{{{ name|upper }}}}: 2 }}\n"), "a computed key occurs twice"),
    ];
    for (text, expected) in all {
        let said = mistake(&text);
        assert!(said.contains(expected), "{text}: {said}");
        assert!(!said.contains("kyma-") && !said.contains("KYMA-"), "{text}: {said}");
    }
}

/// An unreadable file is not replaced by the embedded template.
#[test]
fn a_template_that_cannot_be_read_does_not_make_way_for_the_embedded_one() {
    let unread = |template: Template| TemplateFile { text: None, ..file(template.name(), "") };
    let mut diagnostics = Diagnostics::default();
    let base = Templates::embedded().with_overrides(
        &Engine::Local,
        &mut diagnostics,
        [file(Template::Namespace.name(), HEAD)],
    );
    for below in [Templates::embedded(), base] {
        let templates = below.with_overrides(&Engine::Local, &mut diagnostics, [unread(Template::Namespace)]);
        let stamp = Stamp::new("", "kyma-system");
        let render = |templates: &Templates| {
            templates.render(Template::Namespace, &json!({"name": "kyma-system"}), &stamp, "the namespace")
        };
        let error = render(&templates).unwrap_err().to_string();
        assert!(error.contains("does not replace it (rendering the namespace)"), "{error}");
        assert!(templates != below, "it is another set of templates");
        assert!(
            render(&templates.with_overrides(
                &Engine::Local,
                &mut diagnostics,
                [file(Template::Namespace.name(), HEAD)]
            ))
            .is_ok()
        );
    }
    assert!(diagnostics.is_empty(), "the reader has already reported it: {diagnostics:?}");
}

#[test]
fn marks_and_identity_cannot_be_forged() {
    let metadata = |text: &str| format!("{HEAD}metadata:\n  {text}\n");
    check(
        &metadata("labels: {operator.kyma-project.io/managed-by: me}"),
        "template skr/namespace.yaml:4: writes label `operator.kyma-project.io/managed-by`, which only Tidegate sets \
         (rendering the namespace)",
    );
    check(
        &metadata("annotations: {tidegate.dev/prune: enabled}"),
        "template skr/namespace.yaml:4: writes annotation `tidegate.dev/prune`, which only Tidegate sets \
         (rendering the namespace)",
    );
    for forged in ["name: other", "namespace: other", "finalizers: [x]", "ownerReferences: []", "generateName: a"] {
        let field = forged.split_once(':').unwrap().0;
        check(
            &metadata(forged),
            &format!(
                "template skr/namespace.yaml:4: writes `metadata.{field}`; only Tidegate sets identity and ownership \
                 (rendering the namespace)"
            ),
        );
    }
}

#[test]
fn what_is_not_yaml_is_shown_in_the_template_and_not_in_the_output() {
    let text = "apiVersion: v1\n{% for i in range(3) %}\n# {{ i }}\n{% endfor %}\nkind: [Namespace\n";
    let message = mistake(text);
    assert!(message.starts_with("template skr/namespace.yaml:5: writes invalid YAML: "), "{message}");
}

#[test]
fn a_syntax_error_is_a_diagnostic_when_the_template_is_read() {
    let mut diagnostics = Diagnostics::default();
    let text = "apiVersion: v1\nkind: {% if %}\n";
    let templates =
        Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, [file("skr/namespace.yaml", text)]);
    let found: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("templates/skr/namespace.yaml:2: template skr/namespace.yaml: syntax error: "),
        "{found:?}"
    );
    let error = templates.render(Template::Namespace, &json!({}), &Stamp::new("", "a"), "the namespace");
    assert!(error.is_err(), "the embedded template does not step in for a broken one");
}

#[test]
fn a_file_that_replaces_nothing_is_a_diagnostic() {
    let mut diagnostics = Diagnostics::default();
    let _ = Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, [file("skr/namespaces.yaml", "")]);
    let found: Vec<&Diagnostic> = diagnostics.iter().collect();
    assert_eq!(found[0].code, CODE_TEMPLATE_UNKNOWN);
    assert!(found[0].hint.as_deref().is_some_and(|hint| hint.contains("skr/namespace.yaml")));
}

#[test]
fn a_partial_template_is_included_and_named_when_it_is_wrong() {
    let mut diagnostics = Diagnostics::default();
    let files = [
        file("skr/namespace.yaml", &format!("{HEAD}{{% include \"_labels.yaml\" %}}\n")),
        file("_labels.yaml", "metadata:\n  labels:\n    a: {{ b }}\n"),
    ];
    let templates = Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, files);
    assert!(diagnostics.is_empty());
    let error = templates.render(Template::Namespace, &json!({}), &Stamp::new("", "a"), "the namespace").unwrap_err();
    assert_eq!((error.template.as_str(), error.line), ("_labels.yaml", Some(3)));
    let object =
        templates.render(Template::Namespace, &json!({"b": "c"}), &Stamp::new("", "a"), "the namespace").unwrap();
    assert_eq!(object.label("a"), Some("c"));
}

#[test]
fn check_finds_what_the_example_shows() {
    let mut diagnostics = Diagnostics::default();
    let mut templates = Templates::embedded().with_overrides(
        &Engine::Local,
        &mut diagnostics,
        [file("skr/kyma.yaml", "apiVersion: {{ version }}\nkind: Kyma\n")],
    );
    templates.check(&mut diagnostics);
    // Objects that need it have the same problem, which is reported once.
    for kyma in ["a", "b"] {
        let error = templates.render(Template::Kyma, &json!({}), &Stamp::new("", kyma), kyma).unwrap_err();
        diagnostics.push(error.diagnostic());
    }
    let found: Vec<String> = diagnostics.sorted().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        ["templates/skr/kyma.yaml:1: template skr/kyma.yaml: `version` is not in the context \
          (rendering the example of its context, and 2 more)"]
    );
}

#[test]
fn a_template_may_refuse() {
    check(
        "{{ fail(\"no runtimes here\") }}\n",
        "template skr/namespace.yaml:1: no runtimes here (rendering the namespace)",
    );
}

#[test]
fn values_are_printed_as_yaml() {
    let mut diagnostics = Diagnostics::default();
    let text = "apiVersion: v1\nkind: Namespace\nmetadata:\n  labels:\n    a: {{ a|quote }}\n    b: {{ b|tojson }}\n\
                spec:\n  on: {{ on }}\n  off: {{ off }}\n  list:\n    {{ list|toyaml|indent(4) }}\n";
    let templates =
        Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, [file("skr/namespace.yaml", text)]);
    let context = json!({"a": 1, "b": "yes", "on": true, "off": null, "list": ["0644", {"x": ["y"]}]});
    let object = templates.render(Template::Namespace, &context, &Stamp::new("", "a"), "the namespace").unwrap();
    assert_eq!((object.label("a"), object.label("b")), (Some("1"), Some("yes")));
    // `on` and `off` are keys here, which YAML 1.1 reads as booleans.
    let spec = object.value()["spec"].as_object().unwrap();
    assert!(spec.values().any(|value| *value == json!(true)) && spec.values().any(Value::is_null), "{spec:?}");
    assert_eq!(spec["list"], json!(["0644", {"x": ["y"]}]));
}

#[test]
fn a_list_is_not_printed_as_it_is() {
    let mut diagnostics = Diagnostics::default();
    let templates = Templates::embedded().with_overrides(
        &Engine::Local,
        &mut diagnostics,
        [file("skr/namespace.yaml", "apiVersion: v1\nkind: {{ list }}\n")],
    );
    let error =
        templates.render(Template::Namespace, &json!({"list": []}), &Stamp::new("", "a"), "the namespace").unwrap_err();
    assert_eq!(error.message, "cannot print a list or mapping directly: use the filter `tojson` or `toyaml`");
}

#[test]
fn overrides_hold_for_objects_of_their_source_only() {
    let source = |name: &str| SourceName::new(Key::new("kcp-system", name));
    let metadata = |name: &str| ObjectMeta {
        labels: Some([("tidegate.dev/source".to_owned(), source(name).label_value())].into()),
        annotations: Some([("tidegate.dev/source".to_owned(), source(name).to_string())].into()),
        ..ObjectMeta::default()
    };
    let text = "apiVersion: v1\nkind: Namespace\nmetadata: {labels: {own: \"yes\"}}\n";
    let own = Templates::embedded().with_overrides(
        &Engine::Local,
        &mut Diagnostics::default(),
        [file("skr/namespace.yaml", text)],
    );
    let mut library = Library::new(Templates::embedded());
    library.set(source("a"), own);
    let label = |templates: &Templates| {
        let stamp = Stamp::new("", "kyma-system");
        let object = templates.render(Template::Namespace, &json!({"name": "x"}), &stamp, "a test").unwrap();
        object.label("own").map(str::to_owned)
    };
    let (a, b) = (metadata("a"), metadata("b"));
    assert_eq!(label(library.for_object(&a)).as_deref(), Some("yes"));
    assert_eq!(label(library.for_object(&b)), None);
    assert_eq!(label(library.for_object(&ObjectMeta::default())), None);
    assert_eq!(label(library.of_all([&a, &a])).as_deref(), Some("yes"));
    assert_eq!(label(library.of_all([&a, &b])), None, "what several sources share is none of theirs");
}

/// A link has no children, so a linked folder would silently fall back to the embedded templates.
#[test]
fn a_folder_of_templates_that_is_a_link_is_told() {
    use crate::{
        revision::{Oid, Revision},
        snapshot::{Content, File, Snapshot},
    };
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    snapshot.files.insert("infra/templates".into(), File { id: Oid::new([1; 20]), content: Content::Symlink });
    for (folder, expected) in [("infra/templates", 1), ("infra/templates/kcp", 1), ("templates", 0)] {
        let mut diagnostics = Diagnostics::default();
        let found = files(&mut diagnostics, &snapshot, folder);
        // It is unknown which templates it would override.
        assert_eq!(found.len(), expected * Template::ALL.len(), "{folder}");
        assert!(found.iter().all(|file| file.text.is_none()));
        let codes: Vec<&str> = diagnostics.iter().map(|one| one.code).collect();
        assert_eq!(codes, [if expected == 1 { "symlink" } else { CODE_TEMPLATES_ABSENT }], "{folder}");
    }
}

#[test]
fn an_object_for_which_an_active_override_fails_is_rendered_by_the_last_good_templates() {
    use std::sync::{Arc, Mutex};
    let of = |labels: &str| {
        let text = format!("{HEAD}metadata: {{labels: {{by: {labels}}}}}\n");
        let file = file(Template::Namespace.name(), &text);
        Templates::embedded().with_overrides(&Engine::Local, &mut Diagnostics::default(), [file])
    };
    let only_a = of("\"{{ {'a': 1}[name] }}\"");
    let a_and_b = of("\"{{ {'a': 1, 'b': 2}[name] }}\"");
    let never = of("\"{{ nothing }}\"");
    for (templates, name, expected, failed) in [
        (vec![a_and_b.clone(), Templates::embedded()], "a", Some("1"), false),
        (vec![a_and_b.clone(), Templates::embedded()], "b", Some("2"), true),
        (vec![a_and_b.clone(), Templates::embedded()], "c", None, true),
        (vec![never.clone(), a_and_b], "b", Some("2"), true),
    ] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        let report = move |template: Template, subject: &str, error: Option<&Error>| {
            sink.lock().unwrap().push((template, subject.to_owned(), error.map(ToString::to_string)));
        };
        let templates = only_a.clone().with_fallback(templates, Box::new(report));
        let stamp = Stamp::new("", name);
        let object = templates.render(Template::Namespace, &json!({ "name": name }), &stamp, "it").unwrap();
        assert_eq!(object.label("by"), expected, "{name}");
        let told = told.lock().unwrap();
        let [(Template::Namespace, subject, error)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((subject.as_str(), error.is_some()), ("it", failed), "{name}: {error:?}");
    }
    let alone = only_a.with_fallback(vec![never], Box::new(|_, _, _| {}));
    let result = alone.render(Template::Namespace, &json!({ "name": "b" }), &Stamp::new("", "b"), "it");
    assert!(result.unwrap_err().path.is_some(), "the error is that of the active template");
}

#[test]
fn an_engine_that_cannot_be_asked_brings_back_no_other_template() {
    use std::sync::Arc;
    let ask: Ask = Arc::new(|overrides, request| match request {
        Request::Read(_) => Ok(Answer::Read(overrides.iter().map(|_| Ok(Vec::new())).collect())),
        Request::Render { .. } => Err(Failure { cause: Cause::Broken("it is away".to_owned()), at: None }),
    });
    let file = file(Template::Namespace.name(), &format!("{HEAD}metadata: {{name: x}}\n"));
    let templates = Templates::embedded().with_overrides(&Engine::Elsewhere(ask), &mut Diagnostics::default(), [file]);
    let report = |_: Template, _: &str, _: Option<&Error>| panic!("the template is not the cause");
    let templates = templates.with_fallback(vec![Templates::embedded()], Box::new(report));
    let result = templates.render(Template::Namespace, &json!({ "name": "x" }), &Stamp::new("", "x"), "it");
    assert!(result.unwrap_err().message.contains("it is away"));
}

#[test]
fn a_template_that_exceeds_a_limit_is_named_with_the_limit_and_its_line_if_that_is_known() {
    use std::sync::Arc;
    let name = Template::Namespace.name();
    for (cause, at, expected) in [
        (
            Cause::Memory(64),
            Some((name.to_owned(), 3)),
            "template skr/namespace.yaml:3: exceeds 64 MiB of memory: check it for growing strings or lists",
        ),
        (
            Cause::Memory(64),
            None,
            "template skr/namespace.yaml: exceeds 64 MiB of memory: check it for growing strings or lists",
        ),
        (
            Cause::Time(1000),
            None,
            "template skr/namespace.yaml: exceeds 1000 ms of CPU time: check it for endless loops",
        ),
    ] {
        let failure = Failure { cause, at };
        let ask: Ask = Arc::new(move |overrides, request| match request {
            Request::Read(_) => Ok(Answer::Read(overrides.iter().map(|_| Ok(Vec::new())).collect())),
            Request::Render { .. } => Err(failure.clone()),
        });
        let files = [file(name, HEAD)];
        let templates =
            Templates::embedded().with_overrides(&Engine::Elsewhere(ask), &mut Diagnostics::default(), files);
        let result = templates.render(Template::Namespace, &json!({}), &Stamp::new("", "a"), "a sample: it");
        let error = result.unwrap_err();
        assert_eq!(error.to_string(), format!("{expected} (rendering a sample: it)"));
        assert_eq!(error.path.as_deref(), Some("templates/skr/namespace.yaml"));
    }
}
