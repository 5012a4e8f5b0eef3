//! Values of Secrets, planted wherever a definition can hold one, and looked for in every output of every command that
//! reads definitions: as they are, in parts, and in base64 at each of its three offsets.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use tidegate_testbed::Repository;

use crate::harness;

/// The values in the repository; each names its place.
const PLANTED: &[&str] = &[
    "hunter2-string-data-old",
    "hunter2-string-data-new",
    "hunter2-in-base64-old",
    "hunter2-in-base64-new",
    "hunter2-created",
    "hunter2-deleted",
    "hunter2-default-resource-old",
    "hunter2-default-resource-new",
    "hunter2-last-applied-old",
    "hunter2-last-applied-new",
    "hunter2-list-of-secrets",
    "hunter2-broken-yaml",
    "hunter2-duplicate-key",
    "hunter2-wrong-label",
    "hunter2-landscape-file",
    "hunter2-source-file",
    "hunter2-assumptions",
];

const OBJECTS: &str = "modules/cache/1.1.0/objects";
const TEMPLATE: &str = "modules/cache/1.1.0/module-template.yaml";

/// The example with Secrets in it, committed, and other values on top of that.
fn repository() -> (tempfile::TempDir, Repository) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    harness::copy(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/landscape")), repository.path());
    let template = repository.read(TEMPLATE).unwrap();
    let start = template.find("  data:\n").unwrap();
    repository.write(TEMPLATE, &format!("{}{}", &template[..start], default_resource("old"))).unwrap();
    secrets(&repository, "old");
    repository.write(&format!("{OBJECTS}/gone.yaml"), &secret("gone", "hunter2-deleted")).unwrap();
    repository.commit("old values").unwrap();
    repository.write(TEMPLATE, &format!("{}{}", &template[..start], default_resource("new"))).unwrap();
    secrets(&repository, "new");
    repository.remove(&format!("{OBJECTS}/gone.yaml")).unwrap();
    repository.write(&format!("{OBJECTS}/created.yaml"), &secret("created", "hunter2-created")).unwrap();
    (folder, repository)
}

fn secret(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  namespace: kyma-system\nstringData:\n  password: {value}\n"
    )
}

fn default_resource(age: &str) -> String {
    format!(
        "  data:\n    apiVersion: v1\n    kind: Secret\n    metadata:\n      name: default\n      namespace: kyma-system\n    \
         stringData:\n      password: hunter2-default-resource-{age}\n"
    )
}

/// A Secret in JSON.
const SECRET: &str = r#"{"kind":"Secret","metadata":{"name":"x"},"stringData":{"password":"VALUE"}}"#;

fn base64_of(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Secrets whose values are different in each age, and an object that holds one in an annotation.
fn secrets(repository: &Repository, age: &str) {
    let write = |name: &str, text: &str| repository.write(&format!("{OBJECTS}/{name}.yaml"), text).unwrap();
    write("plain", &secret("plain", &format!("hunter2-string-data-{age}")));
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("hunter2-in-base64-{age}"));
    write("encoded", &secret("encoded", &encoded).replace("stringData", "data"));
    let applied = format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"x"}},"stringData":{{"password":"hunter2-last-applied-{age}"}}}}"#
    );
    // What repeats a value is not left in clear, in whatever form.
    let value = format!("hunter2-string-data-{age}");
    let plain = secret("plain", &value).replace(
        "metadata:\n",
        &format!(
            "metadata:\n  annotations:\n    note: a copy of {value}\n    login: {}\n",
            base64_of(&format!("a:{value}"))
        ),
    );
    write("plain", &plain);
    let applied_by = format!("base: &b {{stringData: {{k: {value}}}}}\nmade:\n  kind:\n    !!str Secret\n  <<: *b\n");
    write(
        "copies",
        &format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: copies, namespace: kyma-system}}\ndata:\n  copy: {value}\n  \
             encoded: {}\n  {value}: a key\n  quoted: {}\n  made: {}\nbinaryData:\n  made: {}\n",
            base64_of(&value),
            serde_json::Value::from(serde_json::Value::from(SECRET.replace("VALUE", &value)).to_string()),
            serde_json::Value::from(applied_by),
            base64_of(&SECRET.replace("VALUE", &value)),
        ),
    );
    write(
        "annotated",
        &format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: annotated\n  namespace: kyma-system\n  annotations:\n    \
             kubectl.kubernetes.io/last-applied-configuration: |\n      {applied}\n"
        ),
    );
}

/// Runs a command and gives all that it prints.
fn printed(repository: &Repository, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .current_dir(repository.path())
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Runs a command once and gives each of its outputs by format, and what it prints beside them.
fn outputs(repository: &Repository, command: &str, more: &[&str]) -> BTreeMap<&'static str, String> {
    let folder = tempfile::tempdir().unwrap();
    let formats = FORMATS.into_iter().filter(|format| command == "diff" || *format != "markdown");
    let files: Vec<(&str, String)> =
        formats.map(|format| (format, folder.path().join(format).to_str().unwrap().to_owned())).collect();
    let mut arguments: Vec<String> = match command {
        "diff" => ["diff", "--from", "HEAD"].map(str::to_owned).into(),
        _ => [command, "."].map(str::to_owned).into(),
    };
    arguments.extend(files.iter().flat_map(|(format, file)| ["-o".to_owned(), format!("{format}={file}")]));
    arguments.extend(more.iter().map(ToString::to_string));
    let printed = printed(repository, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut all: BTreeMap<&str, String> =
        files.iter().map(|(format, file)| (*format, fs::read_to_string(file).unwrap_or_default())).collect();
    all.insert("printed", printed);
    all
}

/// Fails if an output of `diff` or `validate` has a planted value.
#[track_caller]
fn nothing_leaks_anywhere(repository: &Repository, more: &[&str], whence: &str) {
    for command in ["diff", "validate"] {
        for (format, text) in outputs(repository, command, more) {
            nothing_leaks(&text, &format!("{command} {format}: {whence}"));
        }
    }
}

/// Fails if a planted value is in a text, as it is or in base64.
#[track_caller]
fn nothing_leaks(text: &str, whence: &str) {
    // An escape sequence within a value must not hide it.
    let plain = regex::Regex::new("\u{1b}\\[[0-9;]*m").unwrap().replace_all(text, "").into_owned();
    assert!(!plain.contains("hunter2"), "{whence}: {}", around(&plain, "hunter2"));
    for value in PLANTED {
        for part in [*value, value.trim_start_matches("hunter2-"), "hunter2"] {
            for form in base64_forms(part) {
                assert!(!plain.contains(&form), "{whence}: base64 of {part}: {}", around(&plain, &form));
            }
        }
    }
}

/// What base64 of any text that holds `part` must hold, at each offset within groups of three bytes.
fn base64_forms(part: &str) -> Vec<String> {
    let forms = (0..3).map(|offset| {
        let encoded = STANDARD_NO_PAD.encode([&vec![b' '; offset][..], part.as_bytes()].concat());
        // The first and last characters depend on the text before and behind.
        let start = [0, 2, 3][offset];
        let whole = (offset + part.len()) / 3 * 4;
        encoded[start..whole.max(start)].to_owned()
    });
    forms.filter(|form| form.len() >= 6).collect()
}

fn around(text: &str, found: &str) -> String {
    let at = text.find(found).unwrap();
    text[..at].chars().rev().take(200).collect::<String>().chars().rev().collect::<String>()
        + &text[at..].chars().take(100).collect::<String>()
}

const FORMATS: [&str; 7] = ["text", "markdown", "json", "sarif", "github", "gitlab", "junit"];

#[test]
fn the_search_finds_what_it_looks_for() {
    let encoded = |prefix: &str| STANDARD_NO_PAD.encode(format!("{prefix}hunter2-created{prefix}"));
    for prefix in ["", "a", "ab", "abc"] {
        let text = encoded(prefix);
        assert!(base64_forms("hunter2-created").iter().any(|form| text.contains(form)), "{text}");
    }
}

#[test]
fn no_output_of_a_comparison_has_a_value_of_a_secret() {
    let (_folder, repository) = repository();
    let all = outputs(&repository, "diff", &["--all-runtimes"]);
    for (format, text) in &all {
        nothing_leaks(text, format);
    }
    // What is shown is masked, not left out, and what differs is seen to differ.
    for object in ["plain", "encoded", "annotated", "created", "gone", "default"] {
        assert!(all["json"].contains(&format!("\"name\": \"{object}\"")), "{object}: {}", all["json"]);
    }
    for format in ["text", "markdown", "json"] {
        assert!(all[format].contains("(masked: Secret "), "{format}: {}", all[format]);
    }
    assert_eq!(outputs(&repository, "diff", &["--all-runtimes"]), all, "two runs print the same");
}

#[test]
fn what_colours_a_terminal_does_not_hide_a_value() {
    let (_folder, repository) = repository();
    nothing_leaks(&printed(&repository, &["diff", "--from", "HEAD"]), "text");
    nothing_leaks(&printed(&repository, &["validate", "."]), "validate");
}

#[test]
fn no_rule_can_print_a_value_of_a_secret() {
    let (folder, repository) = repository();
    let file = folder.path().join("policies.yaml");
    let rule = "- name: thief\n  match: {kinds: [Secret]}\n  rule: 'false'\n  messageExpression: 'string(object)'\n  message: none\n\
                - name: second\n  match: {kinds: [Secret, ModuleTemplate]}\n  rule: '!(\"hunter2\" in object)'\n\
                - name: third\n  match: {kinds: [Secret]}\n  rule: 'has(object.stringData)'\n  \
                messageExpression: 'object.data.password'\n\
                - name: fourth\n  match: {kinds: [Secret], actions: [create]}\n  rule: 'false'\n  \
                messageExpression: 'object.stringData.password'\n";
    fs::write(&file, rule).unwrap();
    let all = outputs(&repository, "diff", &["--policy", file.to_str().unwrap()]);
    for (format, text) in &all {
        nothing_leaks(text, format);
    }
    assert!(all["json"].contains("\"rule\": \"fourth\""), "{}", all["json"]);
}

/// Mistakes in files that hold a Secret: what is said of them quotes nothing.
#[test]
fn no_problem_of_a_secret_quotes_it() {
    let head = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  password: ";
    let mistakes = [
        ("broken", format!("{head}hunter2-broken-yaml: 3\n")),
        ("twice", format!("{head}a\n  password: hunter2-duplicate-key\n")),
        ("label", format!("{head}hunter2-wrong-label\n").replace("{name: a}", "{name: a, labels: {tier: 1}}")),
        (
            "list",
            format!("apiVersion: v1\nkind: SecretList\nitems:\n- {}", head.replace('\n', "\n  "))
                + "hunter2-list-of-secrets\n",
        ),
        ("unnamed", secret("''", "hunter2-created")),
    ];
    for folder in [OBJECTS, "landscapes/dev"] {
        // Each mistake holds back only its own file.
        let (_folder, repository) = repository();
        for (name, text) in &mistakes {
            repository.write(&format!("{folder}/{name}.yaml"), text).unwrap();
        }
        nothing_leaks_anywhere(&repository, &[], folder);
    }
}

#[test]
fn no_error_of_a_template_quotes_a_secret() {
    // Templates see the copies of definitions, and a ModuleTemplate may hold a Secret.
    let expressions = [
        "{{ spec.data.stringData.password|int }}",
        "{{ spec.data.stringData.password.absent.more }}",
        "{{ (spec|tojson)|int }}",
        "{{ spec.data.stringData.password }}: [",
        "{{ resource.stringData.password|int }}",
        "{{ resource.stringData.password.absent.more }}",
        "{{ resource.stringData.password }}: [",
        "{% include resource.stringData.password %}",
        "{% include resource.stringData.password[:12] %}",
        "{% include resource.stringData.password|replace('-', '') %}",
        "{% import resource.stringData.password[:12] as a %}",
        "1\nmetadata: { {{ resource.stringData.password[:12] }}: 1 }",
        "1\nmetadata: {labels: { {{ resource.stringData.password[:12] }}: 1 }}",
        "1\nstatus: 1\n? {{ resource.stringData.password[:12] }}\n? {{ resource.stringData.password[:12] }}",
    ];
    let (folder, repository) = repository();
    let source = repository.read(".tidegate/dev.yaml").unwrap() + "  templates: templates\n";
    let path = folder.path().join("source.yaml");
    fs::write(&path, source).unwrap();
    for expression in expressions {
        let (file, kind) = if expression.contains("resource") {
            ("kcp/manifest.yaml", "Manifest")
        } else {
            ("skr/module-template.yaml", "ModuleTemplate")
        };
        let text = format!("apiVersion: operator.kyma-project.io/v1beta2\nkind: {kind}\nx: {expression}\n");
        repository.write(&format!("templates/{file}"), &text).unwrap();
        let said = outputs(&repository, "diff", &["--source-file", path.to_str().unwrap()]);
        for (format, text) in &said {
            nothing_leaks(text, &format!("{format}: {expression}"));
        }
        assert!(
            said["json"].contains(&format!("templates/{file}")),
            "the template fails: {expression}: {}",
            said["json"]
        );
        repository.remove(&format!("templates/{file}")).unwrap();
    }
}

/// A template may put a value where it does not belong.
#[test]
fn no_template_carries_a_secret_into_the_open() {
    let (folder, repository) = repository();
    let source = repository.read(".tidegate/dev.yaml").unwrap() + "  templates: templates\n";
    let path = folder.path().join("source.yaml");
    fs::write(&path, source).unwrap();
    // Not every module has a Secret, and neither has the example that a template is checked with.
    let text = "{%- set has = resource is defined and resource.stringData is defined -%}\n\
        {%- set password = resource.stringData.password if has else 'none' -%}\n\
        apiVersion: operator.kyma-project.io/v1beta2\nkind: Manifest\nmetadata:\n  annotations:\n    \
        example.org/a: {{ password|tojson }}\n    example.org/b: {{ password|upper|tojson }}\n\
        spec: {install: {{ install|tojson }}, version: {{ module.version|tojson }}}\n";
    repository.write("templates/kcp/manifest.yaml", text).unwrap();
    let all = outputs(&repository, "diff", &["--source-file", path.to_str().unwrap()]);
    for (format, text) in &all {
        nothing_leaks(text, format);
        assert!(!text.contains("HUNTER2"), "{format}: {text}");
    }
    assert!(all["json"].contains("example.org/b"), "{}", all["json"]);
    assert_eq!(
        outputs(&repository, "diff", &["--source-file", path.to_str().unwrap()]),
        all,
        "two runs print the same"
    );
}

#[test]
fn no_file_that_a_command_is_given_is_quoted() {
    let (folder, repository) = repository();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let landscapes = [
        "version: 1\nwritten: hunter2-landscape-file\nkymas: []\n",
        "version: hunter2-landscape-file\n",
        "version: 1\nwritten: 2026-11-20T08:00:00Z\nkymas:\n- namespace: kcp-system\n  name: a\n  password: hunter2-landscape-file\n",
        "version: 1\nwritten: 2026-11-20T08:00:00Z\nkymas: [{name: hunter2-landscape-file: 3}]\n",
        &secret("a", "hunter2-landscape-file"),
    ];
    for text in landscapes {
        let path = file("landscape.yaml", text);
        let said = printed(&repository, &["diff", "--from", "HEAD", "--landscape", &path]);
        nothing_leaks(&said, text);
        assert!(said.starts_with("error: ") || said.contains("\u{1b}"), "{said}");
    }
    for text in [&secret("a", "hunter2-source-file"), "spec: {url: hunter2-source-file: 3}\n"] {
        let path = file("source.yaml", text);
        nothing_leaks(&printed(&repository, &["diff", "--from", "HEAD", "--source-file", &path]), text);
        nothing_leaks(&printed(&repository, &["validate", ".", "--source-file", &path]), text);
    }
    let path = file("assume.yaml", "CA bundle: {password: hunter2-assumptions}\n");
    nothing_leaks(&printed(&repository, &["diff", "--from", "HEAD", "--assume", &path]), "assumptions");
    let path = file("policies.yaml", &format!("- {}", secret("a", "hunter2-assumptions").replace('\n', "\n  ")));
    nothing_leaks(&printed(&repository, &["diff", "--from", "HEAD", "--policy", &path]), "policies");
}
