//! Templates that take all the memory and time that they can get: one sentence at their line, and nothing else happens.

use std::{fs, process::Command, time::Instant};

use tidegate::internals::Renderer;
use tidegate_core::{
    diagnostic::Diagnostics,
    template::{Template, TemplateFile, Templates},
};

/// Line 2 of an override, and what its diagnostic says.
const BOMBS: [(&str, &str); 16] = [
    (
        r#"{% set ns = namespace(a="x") %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}#{{ ns.a|length }}"#,
        MEMORY,
    ),
    (r#"{{ ("x" * 1000000)|replace("x", "y" * 1000000) }}"#, MEMORY),
    (r#"{% set a = "x" * 60000000 %}{% set b = a ~ a ~ a ~ a ~ a ~ a %}#{{ b|length }}"#, MEMORY),
    (r#"#{{ [1]|batch(1000000000, "x")|list }}"#, MEMORY),
    (r#"#{{ "%999999999d"|format(1) }}"#, MEMORY),
    (r#"#{{ "a"|indent(2000000000) }}"#, MEMORY),
    (r#"#{{ ([1] * 90000000)|list|length }}"#, MEMORY),
    (r#"{% set x %}{% for i in range(80000) %}{{ "z" * 10000 }}{% endfor %}{% endset %}#{{ x|length }}"#, MEMORY),
    // A list that contains itself repeatedly costs no memory, but time to count.
    (
        r#"{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}#{{ ns.a|length }}"#,
        TIME,
    ),
    (
        r#"{% set ns = namespace(a=1) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}#{{ ns.a|tojson }}"#,
        EITHER,
    ),
    (
        r#"{% set ns = namespace(a=1, b=1) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}#{{ ns.a == ns.b }}"#,
        TIME,
    ),
    // The stack ends before the memory does.
    (r#"{% set ns = namespace() %}{% set ns.a = ns %}#{{ ns ~ "" }}"#, MEMORY),
    (
        r#"{% set ns = namespace(a=[]) %}{% for i in range(20000) %}{% set ns.a = [[[[ns.a]]]] %}{% endfor %}#{{ ns.a|tojson }}"#,
        MEMORY,
    ),
    // Constants are computed when the template is read.
    (r#"#{{ ("x" * 90000000) ~ ("x" * 90000000) ~ ("x" * 90000000) }}"#, MEMORY),
    (
        r#"{% macro f(x, n) %}{% if n %}{{ f(x ~ x, n - 1) }}{% endif %}{% endmacro %}#{{ f("x", 60) }}"#,
        "recursion limit exceeded",
    ),
    (r#"{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"#, "exceeds 250000 steps"),
];
const MEMORY: &str = "exceeds 64 MiB of memory";
const TIME: &str = "exceeds 1000 ms of CPU time";
/// A fast machine runs out of memory first, a slow one of time.
const EITHER: &str = "exceeds ";

#[test]
fn a_template_that_takes_all_memory_or_time_is_one_diagnostic_at_its_line() {
    for (bomb, expected) in BOMBS {
        let folder = tempfile::tempdir().unwrap();
        let begin = Instant::now();
        let found = validate(folder.path(), bomb);
        let [(line, message)] = &found[..] else { panic!("{bomb}: {found:?}") };
        assert!(message.contains(expected), "{bomb}: {message}");
        assert_eq!(*line, 2, "{bomb}: {message}");
        // Far above what it takes, on a busy machine in a debug build; without bounds it is minutes, or the end.
        assert!(begin.elapsed().as_secs() < 60, "{bomb}: {:?}", begin.elapsed());
    }
}

#[test]
fn a_chain_that_exhausts_the_stack_of_the_parser_is_one_diagnostic() {
    let folder = tempfile::tempdir().unwrap();
    let found = validate(folder.path(), &format!("#{{{{ {} }}}}", vec!["1"; 200_000].join("+")));
    assert!(matches!(&found[..], [(2, message)] if message.contains(MEMORY)), "{found:?}");
}

#[test]
fn a_renderer_goes_on_after_a_process_has_ended() {
    let renderer = Renderer::by(env!("CARGO_BIN_EXE_tidegate").into()).unwrap();
    let read = |first: &str| {
        let name = Template::Namespace.name();
        let text = format!("{first}\n{}", Template::Namespace.text());
        let file = TemplateFile { name: name.to_owned(), path: name.into(), text: Some(text) };
        let mut diagnostics = Diagnostics::default();
        let templates = Templates::embedded().with_overrides(renderer.engine(), &mut diagnostics, [file]);
        assert_eq!(diagnostics.sorted().len(), 0, "it is read");
        templates
    };
    let check = |templates: &Templates| -> Vec<String> {
        let mut diagnostics = Diagnostics::default();
        templates.clone().check(&mut diagnostics);
        diagnostics.sorted().iter().map(|diagnostic| format!("{diagnostic}")).collect()
    };
    let (memory, time) = (read(BOMBS[3].0), read(BOMBS[10].0));
    let harmless = [read("# one"), read("# two"), read("# three")];
    // More sets of overrides than there are processes, and each process serves more than one.
    for round in 0..2 {
        for (bomb, expected) in [(&memory, MEMORY), (&time, TIME)] {
            let found = check(bomb);
            assert!(matches!(&found[..], [one] if one.contains(expected)), "round {round}: {found:?}");
        }
        for templates in &harmless {
            assert_eq!(check(templates), Vec::<String>::new(), "round {round}");
        }
    }
}

/// Lines and messages of what `validate` says of a repository whose override has this second line. The program gets
/// less memory than any of the bombs takes.
fn validate(folder: &std::path::Path, line: &str) -> Vec<(u64, String)> {
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/kcp/manifest.yaml")).unwrap();
    fs::create_dir_all(folder.join("templates/kcp")).unwrap();
    fs::write(folder.join("templates/kcp/manifest.yaml"), format!("# one\n{line}\n{manifest}")).unwrap();
    fs::create_dir_all(folder.join("repository")).unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 700000; exec \"$0\" validate repository --templates templates -o json"])
        .arg(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let template = |diagnostic: &&serde_json::Value| diagnostic["code"] == "template";
    let text = |diagnostic: &serde_json::Value| {
        assert_eq!(diagnostic["path"], "templates/kcp/manifest.yaml");
        (diagnostic["line"].as_u64().unwrap(), diagnostic["message"].as_str().unwrap().to_owned())
    };
    value["diagnostics"].as_array().unwrap().iter().filter(template).map(text).collect()
}
