//! One template: a mistake in an override of a source.
//!
//! The daemon of most of these tests is that of [`crate::source`]: what it renders with is in its library of templates.

use std::{fs, path::Path, process::Command};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_core::{
    api::GitSource,
    landscape::SourceName,
    name::Key,
    template::{Template, Templates},
};
use tidegate_testbed::Repository;

use crate::{
    harness::{self, holds},
    source::{World, ready},
    stage::{self, QUIET, Stage, scenarios},
};

const OVERRIDE: &str = "templates/skr/kyma.yaml";
const PARTIAL: &str = "templates/_labels.yaml";

scenarios! {
    a_typo_in_an_override_leaves_the_last_good_templates_active,
    a_restart_finds_the_last_good_templates_again_also_without_its_mirror,
    a_misspelt_file_name_of_an_override_does_not_bring_back_the_embedded_template,
    an_override_that_only_its_example_satisfies_changes_no_kyma_until_it_is_corrected,
    a_kyma_for_which_the_active_override_fails_does_not_bring_back_an_older_one,
    an_active_override_that_fails_for_a_real_object_changes_no_kyma,
    the_first_override_of_a_source_that_fails_for_a_real_object_changes_no_kyma,
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

/// Two runtimes whose Kymas want the same, so that only the first is a sample.
async fn two_runtimes(files: &[(&str, String)]) -> Stage {
    let mut all = stage::files(2);
    all.extend(files.iter().map(|(path, text)| ((*path).to_owned(), text.clone())));
    let files: Vec<(&str, String)> = all.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(2, &files).await;
    let sample = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let sources = harness::api_of(&stage.kcp, &sample).await.unwrap();
    let templates = json!({"spec": {"templates": "templates"}});
    sources.patch("landscape", &PatchParams::default(), &Patch::Merge(templates)).await.unwrap();
    stage
}

/// An override with a label that fails for every Kyma but the first and the example.
fn only_for_the_first(label: &str) -> String {
    format!("{}# {{{{ {{'one': 1, 'runtime-one': 1}}[kyma.name] }}}}\n", text(label))
}

/// The label that templates give the Kyma in a runtime.
async fn generation(stage: &Stage, runtime: usize, expected: Option<&str>) {
    stage
        .until("the Kyma has its label", &stage.skrs[runtime], "Kyma", "kyma-system", "default", |kyma| {
            kyma["metadata"]["labels"]["example.com/generation"].as_str() == expected
        })
        .await;
}

/// Waits until the source reports the override, and nothing else.
async fn reports_one_object(stage: &Stage) {
    let is_invalid = |source: &Value| {
        source["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|one| one["type"] == "Ready" && one["status"] == "False" && one["reason"] == "Invalid")
        })
    };
    let source =
        stage.until("the source is not Ready", &stage.kcp, "GitSource", "kcp-system", "landscape", is_invalid).await;
    let diagnostics = source["status"]["diagnostics"].as_array().unwrap();
    let [one] = &diagnostics[..] else { panic!("{diagnostics:?}") };
    let line = text("1").lines().count() + 1;
    assert_eq!((one["path"].as_str(), one["line"].as_u64()), (Some(OVERRIDE), Some(line as u64)));
    let message = one["message"].as_str().unwrap();
    assert!(message.contains("kcp-system/two") && message.contains("the template fails for 1 object;"), "{message}");
}

/// Expects that no Kyma is anything but Ready.
async fn all_stay_ready(stage: &Stage) {
    holds("all Kymas are Ready", QUIET, async || {
        for name in ["one", "two"] {
            let kyma = stage::read(&stage.kcp, "Kyma", "kcp-system", name).await.ok_or("it is gone")?;
            if kyma["status"]["state"] != "Ready" {
                return Err(kyma["status"].to_string());
            }
        }
        Ok(())
    })
    .await;
}

async fn an_active_override_that_fails_for_a_real_object_changes_no_kyma() {
    let stage = two_runtimes(&[(OVERRIDE, text("1"))]).await;
    stage.start();
    for (runtime, kyma) in ["one", "two"].into_iter().enumerate() {
        stage.kyma_in(kyma, "Ready").await;
        generation(&stage, runtime, Some("1")).await;
    }
    stage.commit(OVERRIDE, &only_for_the_first("2"));
    generation(&stage, 0, Some("2")).await;
    // While it runs, after a restart, and without its disk.
    for round in 0..3 {
        reports_one_object(&stage).await;
        all_stay_ready(&stage).await;
        generation(&stage, 0, Some("2")).await;
        generation(&stage, 1, Some("1")).await;
        stage.kill().await;
        if round == 1 {
            stage.forget();
        }
        stage.start();
    }
    stage.commit(OVERRIDE, &text("3"));
    for runtime in 0..2 {
        generation(&stage, runtime, Some("3")).await;
    }
    stage
        .until("the source is Ready", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
        })
        .await;
    all_stay_ready(&stage).await;
}

async fn the_first_override_of_a_source_that_fails_for_a_real_object_changes_no_kyma() {
    let stage = two_runtimes(&[]).await;
    stage.start();
    for kyma in ["one", "two"] {
        stage.kyma_in(kyma, "Ready").await;
    }
    stage.commit(OVERRIDE, &only_for_the_first("1"));
    generation(&stage, 0, Some("1")).await;
    reports_one_object(&stage).await;
    generation(&stage, 1, None).await;
    all_stay_ready(&stage).await;
}

/// The embedded template of Manifests with a label, and with a comment that reads a value.
fn manifest_text(label: &str, read: &str) -> String {
    let labelled = format!("kind: Manifest\nmetadata: {{labels: {{example.com/generation: \"{label}\"}}}}");
    format!("{}# {{{{ {read} }}}}\n", Template::Manifest.text().replace("kind: Manifest", &labelled))
}

async fn an_override_that_only_its_example_satisfies_changes_no_kyma_until_it_is_corrected() {
    const MANIFEST: &str = "templates/kcp/manifest.yaml";
    let mut files = stage::files(2);
    files.push((MANIFEST.to_owned(), manifest_text("1", "module.name")));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(2, &files).await;
    let sample = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let sources = harness::api_of(&stage.kcp, &sample).await.unwrap();
    let templates = json!({"spec": {"templates": "templates"}});
    sources.patch("landscape", &PatchParams::default(), &Patch::Merge(templates)).await.unwrap();
    stage.start();
    let mut manifests = Vec::new();
    for kyma in ["one", "two"] {
        let kyma = stage.kyma_in(kyma, "Ready").await;
        let modules = kyma["status"]["modules"].as_array().unwrap().clone();
        manifests
            .extend(modules.iter().map(|module| module["manifest"]["metadata"]["name"].as_str().unwrap().to_owned()));
    }
    assert_eq!(manifests.len(), 4);
    let is_labelled = |manifest: &Value, label: &str| manifest["metadata"]["labels"]["example.com/generation"] == label;
    stage.rests().await;

    // The example has a manager, and no module of this landscape does.
    stage.commit(MANIFEST, &manifest_text("2", "manager.kind"));
    let line = manifest_text("2", "").lines().count();
    let marks = stage.marks();
    let told = async || {
        let source =
            stage.until("the source is not Ready", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
                source["status"]["conditions"].as_array().is_some_and(|all| {
                    all.iter()
                        .any(|one| one["type"] == "Ready" && one["status"] == "False" && one["reason"] == "Invalid")
                })
            });
        let source = source.await;
        let diagnostics = source["status"]["diagnostics"].as_array().unwrap();
        let [one] = &diagnostics[..] else { panic!("{diagnostics:?}") };
        assert_eq!((one["path"].as_str(), one["line"].as_u64()), (Some(MANIFEST), Some(line as u64)));
        let message = one["message"].as_str().unwrap();
        assert!(message.contains("4 objects use this template"), "{message}");
    };
    let nothing_changes = async |marks: &[u64]| {
        holds("no Kyma changes", QUIET, async || {
            for kyma in ["one", "two"] {
                let kyma = stage::read(&stage.kcp, "Kyma", "kcp-system", kyma).await.ok_or("it is gone")?;
                if kyma["status"]["state"] != "Ready" {
                    return Err(kyma["status"].to_string());
                }
            }
            let is_read = |one: &String| [" get ", " list ", " watch "].iter().any(|verb| one.contains(verb));
            let is_meant = |one: &String| !is_read(one) && (one.contains("kymas") || one.contains("manifests"));
            let touched: Vec<String> = stage.requests_since(marks).into_iter().filter(is_meant).collect();
            if touched.is_empty() { Ok(()) } else { Err(format!("{touched:?}")) }
        })
        .await;
    };
    told().await;
    nothing_changes(&marks).await;

    // Neither a restart nor another commit changes that; what else git says is applied.
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    told().await;
    nothing_changes(&marks).await;
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    for skr in &stage.skrs {
        let is_bumped = |map: &Value| map["data"]["text"] == "two";
        stage.until("a new version arrives", skr, "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    }
    told().await;
    for manifest in &manifests {
        let manifest = stage::read(&stage.kcp, "Manifest", "kcp-system", manifest).await.unwrap();
        assert!(is_labelled(&manifest, "1"), "{manifest}");
    }

    stage.commit(MANIFEST, &manifest_text("3", "module.name"));
    for manifest in &manifests {
        stage
            .until("the correction is active", &stage.kcp, "Manifest", "kcp-system", manifest, |manifest| {
                is_labelled(manifest, "3")
            })
            .await;
    }
    for kyma in ["one", "two"] {
        stage.kyma_in(kyma, "Ready").await;
    }
}

async fn a_kyma_for_which_the_active_override_fails_does_not_bring_back_an_older_one() {
    let (mut world, _) = landscape("template-late", 2).await;
    world.repository.write(OVERRIDE, &format!("{}# {{{{ spec.modules[0].name }}}}\n", text("2"))).unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    world.daemon().quiet().await;
    let active = templates(&world);

    // A Kyma without modules.
    let late = format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {{name: late, namespace: {}}}\n\
         spec: {{channel: regular}}\n",
        world.namespace
    );
    world.repository.write("late.yaml", &late).unwrap();
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    for round in ["running", "restarted"] {
        world.daemon().quiet().await;
        assert!(templates(&world) == active, "{round}");
        let source = world.source("landscape").await;
        assert_eq!(ready(&source), "False Invalid");
        let diagnostics = &source.status.as_ref().unwrap().diagnostics;
        let [one] = &diagnostics[..] else { panic!("{diagnostics:?}") };
        assert!(one.message.contains("/late)"), "{}", one.message);
        world.restart().await;
        world.attempted("landscape", &commit).await;
    }
}

#[test]
fn validate_render_and_diff_report_a_mistake_in_an_override_once() {
    report_once("kyma.nam", "`kyma.nam` is not in the context");
    // The example has modules, and none of the Kymas does.
    report_once("spec.modules[0].name", "`.modules[0]` is not in the context");
    // The example takes no memory, and the first Kyma takes all.
    let bomb = "('%999999999d'|format(1)) if kyma.name == 'k0' else spec|tojson";
    report_once(bomb, "template skr/kyma.yaml: exceeds 64 MiB of memory: check it for growing strings or lists");
}

/// Commits an override that reads a value, and expects one diagnostic for all Kymas, which contains a text.
fn report_once(mistake: &str, expected: &str) {
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
    repository.write(OVERRIDE, &text("1").replace("spec|tojson", mistake)).unwrap();
    repository.commit("a mistake").unwrap();

    for arguments in [&["validate"][..], &["render", "-o", "json"], &["diff", "--from", "HEAD~1", "--to", "HEAD"]] {
        let (code, output) = run(folder.path(), arguments);
        assert_eq!(code, Some(3), "{arguments:?}: {output}");
        let told = output.matches(expected).count();
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
