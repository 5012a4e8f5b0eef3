//! One template: a typo in an override of a source.
//!
//! The daemon of these tests is that of [`crate::source`]: what it renders with is in its library of templates.

use std::{fs, path::Path, process::Command};

use serde_json::json;
use tidegate_core::{
    api::GitSource,
    landscape::SourceName,
    name::Key,
    template::{Template, Templates},
};
use tidegate_testbed::Repository;

use crate::{
    source::{World, ready},
    stage::scenarios,
};

const OVERRIDE: &str = "templates/skr/kyma.yaml";
const PARTIAL: &str = "templates/_labels.yaml";

scenarios! {
    a_typo_in_an_override_leaves_the_last_good_templates_active,
    a_restart_finds_the_last_good_templates_again_also_without_its_mirror,
    a_misspelt_file_name_of_an_override_does_not_bring_back_the_embedded_template,
}

async fn a_typo_in_an_override_leaves_the_last_good_templates_active() {
    let (mut world, good) = landscape("template-typo", 3).await;
    world.mark();

    world.kyma("late", "mail");
    let commit = broken(&world);
    world.attempted("landscape", &commit).await;
    world.daemon().quiet().await;

    assert!(templates(&world) == good, "the last good templates are active");
    assert_eq!(world.writes(), ["kymas late"], "definitions of the same commit are applied");
    let source = world.source("landscape").await;
    assert_eq!(ready(&source), "False Invalid");
    assert_one_diagnostic(&source, "4 objects use this template");

    let commit = overrides(&world, "2");
    world.settled("landscape", &commit).await;
    world.daemon().quiet().await;
    assert!(templates(&world) != good, "the corrected templates are active");
}

async fn a_restart_finds_the_last_good_templates_again_also_without_its_mirror() {
    let (mut world, good) = landscape("template-restart", 1).await;
    let first = broken(&world);
    world.attempted("landscape", &first).await;
    world.repository.write(PARTIAL, "metadata: {labels: {a: {{ also.wrong }}}}\n").unwrap();
    let second = world.commit();
    world.attempted("landscape", &second).await;

    for state in ["kept", "lost"] {
        world.stop().await;
        if state == "lost" {
            world.lose_state();
        }
        world.start().await;
        world.attempted("landscape", &second).await;
        world.daemon().quiet().await;
        assert!(templates(&world) == good, "the state is {state}");
        assert_eq!(ready(&world.source("landscape").await), "False Invalid");
    }
}

async fn a_misspelt_file_name_of_an_override_does_not_bring_back_the_embedded_template() {
    let (mut world, good) = landscape("template-name", 1).await;
    world.repository.remove(OVERRIDE).unwrap();
    world.repository.write("templates/skr/kyna.yaml", &text("1")).unwrap();
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    world.daemon().quiet().await;
    assert!(templates(&world) == good);
    world.restart().await;
    world.attempted("landscape", &commit).await;
    world.daemon().quiet().await;
    assert!(templates(&world) == good);
}

#[test]
fn validate_render_and_diff_report_a_typo_in_an_override_once() {
    const KYMAS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repository")).unwrap();
    for kyma in 0..KYMAS {
        let text = format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\n\
             metadata: {{name: k{kyma}, namespace: kcp-system}}\nspec: {{channel: regular}}\n"
        );
        repository.write(&format!("kymas/{kyma}.yaml"), &text).unwrap();
    }
    let source = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: a, namespace: kcp-system}\n\
                  spec: {url: \"https://git.example.com/a\", templates: templates}\n";
    fs::write(folder.path().join("source.yaml"), source).unwrap();
    repository.write(OVERRIDE, &text("1")).unwrap();
    repository.commit("good").unwrap();
    repository.write(OVERRIDE, &text("1").replace("spec|tojson", "kyma.nam")).unwrap();
    repository.commit("a typo").unwrap();

    for arguments in [&["validate"][..], &["render", "-o", "json"], &["diff", "--from", "HEAD~1", "--to", "HEAD"]] {
        let (code, output) = run(folder.path(), arguments);
        assert_eq!(code, Some(3), "{arguments:?}: {output}");
        let told = output.matches("`kyma.nam` is not in the context").count();
        assert_eq!(told, 1, "{arguments:?}: {output}");
        assert!(output.contains("templates/skr/kyma.yaml:4"), "{arguments:?}: {output}");
        assert!(output.contains("200 objects use this template"), "{arguments:?}: {output}");
    }
}

// === the world of a test ===

/// Kymas with a valid override, settled, and the templates that are active then.
async fn landscape(prefix: &str, kymas: usize) -> (World, Templates) {
    let mut world = World::new(prefix).await;
    world.module("mail", &["1.0.0"], "1.0.0");
    for kyma in 0..kymas {
        world.kyma(&format!("k{kyma}"), "mail");
    }
    overrides(&world, "1");
    world.begin(json!({"templates": "templates"})).await;
    world.daemon().quiet().await;
    let good = templates(&world);
    assert!(good.overridden_by(Template::Kyma).is_some());
    (world, good)
}

/// Commits a valid override.
fn overrides(world: &World, label: &str) -> String {
    world.repository.write(OVERRIDE, &text(label)).unwrap();
    world.commit()
}

/// Commits an override with a typo.
fn broken(world: &World) -> String {
    world.repository.write(OVERRIDE, &text("1").replace("spec|tojson", "kyma.nam")).unwrap();
    world.commit()
}

fn text(label: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\n\
         metadata: {{labels: {{example.com/generation: \"{label}\"}}}}\nspec: {{{{ spec|tojson }}}}\n"
    )
}

fn templates(world: &World) -> Templates {
    let source = SourceName::new(Key::new(&world.namespace, "landscape"));
    world.daemon().context.library.read().of_source(Some(&source)).clone()
}

#[track_caller]
fn assert_one_diagnostic(source: &GitSource, hint: &str) {
    let diagnostics = &source.status.as_ref().unwrap().diagnostics;
    let [one] = &diagnostics[..] else { panic!("{diagnostics:?}") };
    assert_eq!((one.path.as_deref(), one.line, one.code.as_str()), (Some(OVERRIDE), Some(4), "template"));
    assert!(one.message.contains("`kyma.nam` is not in the context"), "{}", one.message);
    assert!(one.message.contains(hint), "{}", one.message);
}

/// Exit code and both outputs of a command in the repository.
fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).args(["--source-file", "../source.yaml"]).current_dir(folder.join("repository"));
    if arguments[0] != "diff" {
        command.arg(".");
    }
    let output = command.env("NO_COLOR", "1").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}
