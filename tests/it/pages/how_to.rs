//! How-tos, word for word: to stop a bad release and to roll it back, and several teams that share a landscape. kubectl
//! and this program reach simulated servers as they reach real ones.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_testbed::{Extent, Repository};

use super::{Shell, blocks_of, section};
use crate::{
    git::server::{Action, Server},
    harness::{self, SOON, eventually},
    stage::{self, Stage, read},
};

const PAGE: &str = "how-to.md";
const RELEASE: &str = "modules/cache/release.yaml";

/// What stands in a text as code and begins with these words.
fn code(text: &str, beginning: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2).map(|part| part.replace('\n', " "));
    parts.filter(|part| part.starts_with(beginning)).collect()
}

/// The only block of YAML of a text.
fn yaml_of(text: &str) -> &str {
    let mut blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.next().expect("a block of YAML");
    assert_eq!(blocks.next(), None, "there is another one");
    block
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// A version of the module `cache`. The later one has a Deployment, which is ready when the test says so.
fn version(version: &str, text: &str) -> Vec<(String, String)> {
    let mut files = stage::module("cache", version, text);
    files.push((format!("modules/cache/{version}/objects/crd.yaml"), stage::THING_CRD.to_owned()));
    if version == "1.2.0" {
        let labels = "{app: cache}";
        let deployment = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: cache, namespace: kyma-system}}\nspec:\n  \
             selector: {{matchLabels: {labels}}}\n  template:\n    metadata: {{labels: {labels}}}\n    spec: \
             {{containers: [{{name: cache, image: \"example.org/cache:1\"}}]}}\n"
        );
        files.push((format!("modules/cache/{version}/objects/deployment.yaml"), deployment));
    }
    files
}

/// The release of the module, of which one runtime at a time is upgraded.
fn release(version: &str) -> String {
    let metadata = "metadata:\n  name: cache\n  namespace: kcp-system\n  annotations:\n    \
                    tidegate.dev/rollout-max-unavailable: \"1\"\n";
    let text = stage::release("cache", &[("fast", version)]);
    let replaced = text.replace("metadata: {name: cache, namespace: kcp-system}\n", metadata);
    assert_ne!(replaced, text);
    replaced
}

/// Its pods are ready in a runtime.
async fn becomes_ready(skr: &kube::Client) {
    let deployment = read(skr, "Deployment", "kyma-system", "cache").await.expect("it is there");
    let api = harness::api_of(skr, &deployment).await.expect("a kind that is served");
    let status = json!({"status": {
        "observedGeneration": deployment["metadata"]["generation"],
        "conditions": [{"type": "Available", "status": "True"}],
    }});
    api.patch_status("cache", &PatchParams::default(), &Patch::Merge(&status)).await.expect("a patch");
}

/// Which version of the module a runtime has.
async fn text_of(skr: &kube::Client) -> String {
    let map = read(skr, "ConfigMap", "kyma-system", "cache-a").await.unwrap_or_default();
    map["data"]["text"].as_str().unwrap_or_default().to_owned()
}

async fn until_text(stage: &Stage, skr: &kube::Client, text: &str) {
    let is = |map: &Value| map["data"]["text"] == text;
    stage.until(&format!("it has {text}"), skr, "ConfigMap", "kyma-system", "cache-a", is).await;
}

/// A release that does not become ready is stopped, judged a false alarm, and rolled back in the end.
#[tokio::test(flavor = "multi_thread")]
async fn stopping_a_bad_release_is_followed_word_for_word() {
    const KYMAS: [&str; 2] = ["dev", "two"];
    tidegate_process::tls::install();
    let mut files = [version("1.1.0", "former"), version("1.2.0", "new")].concat();
    files.push((RELEASE.to_owned(), release("1.1.0")));
    for name in KYMAS {
        let kyma = stage::kyma(name, &["cache"]).replace("channel: regular", "channel: fast");
        files.push((format!("kymas/{name}.yaml"), kyma));
    }
    // The test is the controller of Deployments.
    let stage = Stage::on_simulated(2, Extent::Controllers, &borrowed(&files), &[]).await;
    harness::apply(&stage.kcp, &stage::access_secret("dev", &stage.landscape.skrs[0])).await;
    stage.start();
    for name in KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    let shell = Shell::new(stage.repository.path(), Some(stage.kubeconfig())).await;
    let text = section(PAGE, "## Stop a bad release");
    let [suspend] = &blocks_of(&text)[..] else { panic!("one block") };
    let inline = code(&text, "tidegate ");
    let [resume, suspend_kyma, suspend_source] = &inline[..] else { panic!("{inline:#?}") };

    // The first runtime does not become ready, so the second one waits.
    stage.commit(RELEASE, &release("1.2.0"));
    let [first, second] = eventually("one of them is upgraded", SOON * 2, async || {
        let texts = [text_of(&stage.skrs[0]).await, text_of(&stage.skrs[1]).await];
        match [texts[0].as_str(), texts[1].as_str()] {
            ["new", "former"] => Ok([0, 1]),
            ["former", "new"] => Ok([1, 0]),
            _ => Err(texts.join(" ")),
        }
    })
    .await;
    let said = shell.well(suspend).await;
    let is_paused = |kyma: &Value| {
        let conditions = kyma["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|one| one["type"] == "tidegate.dev/Rollout").any(|one| one["reason"] == "Paused")
    };
    let what = format!("it waits, as `suspend` said: {said}");
    stage.until(&what, &stage.kcp, "Kyma", "kcp-system", KYMAS[second], is_paused).await;
    becomes_ready(&stage.skrs[first]).await;
    stage.kyma_in(KYMAS[first], "Ready").await;
    // The others are still repaired, with the former version.
    let changed = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cache-a", "namespace": "kyma-system"},
        "data": {"text": "changed"},
    });
    for index in [first, second] {
        harness::apply(&stage.skrs[index], &changed).await;
        shell.well(&format!("tidegate reconcile kyma/{}", KYMAS[index])).await;
    }
    until_text(&stage, &stage.skrs[first], "new").await;
    until_text(&stage, &stage.skrs[second], "former").await;

    // A false alarm.
    assert_eq!(resume, "tidegate resume rollout/cache");
    shell.well(resume).await;
    until_text(&stage, &stage.skrs[second], "new").await;
    becomes_ready(&stage.skrs[second]).await;
    stage.kyma_in(KYMAS[second], "Ready").await;

    // It was bad after all. One runtime is left alone, and the repository too while it is rolled back.
    shell.well(suspend_kyma).await;
    shell.well(suspend_source).await;
    let text = section(PAGE, "## Roll back");
    let [steps] = &blocks_of(&text)[..] else { panic!("one block") };
    let [revert, diff, commit] = &steps.lines().collect::<Vec<_>>()[..] else { panic!("{steps}") };
    shell.well(revert).await;
    let annotation = yaml_of(&text).lines().last().expect("a line");
    assert_eq!(annotation.trim(), "tidegate.dev/allow-downgrade: cache-1.1.0");
    stage.repository.replace(RELEASE, "  annotations:\n", &format!("  annotations:\n{annotation}\n")).expect("a file");
    let (said, code) = shell.run(diff).await;
    assert!(code == 1 && said.contains("\ncache 1.2.0 → 1.1.0 on fast: 2 of 2 runtimes"), "{code} {said}");
    shell.well(commit).await;
    let released = read(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache").await.expect("it is there");
    assert_eq!(released["spec"]["channels"][0]["version"], "1.2.0", "its source is suspended");
    shell.well("tidegate resume gitsource/landscape").await;
    until_text(&stage, &stage.skrs[1], "former").await;
    stage.kyma_in("two", "Ready").await;
    assert_eq!(text_of(&stage.skrs[0]).await, "new", "its Kyma is suspended");
    let [alone] = &blocks_of(&section(PAGE, "## Leave one runtime alone"))[..] else { panic!("one block") };
    let back = alone.lines().find(|line| line.starts_with("tidegate resume ")).expect("a line");
    shell.well(back).await;
    until_text(&stage, &stage.skrs[0], "former").await;
    stage.kyma_in("dev", "Ready").await;
}

/// Codes of what a GitSource says of its definitions.
fn codes(source: &Value) -> Vec<&str> {
    let all = source["status"]["diagnostics"].as_array().into_iter().flatten();
    all.filter_map(|one| one["code"].as_str()).collect()
}

/// The team of a module gets a repository of its own, and takes the module over from that of the landscape.
#[tokio::test(flavor = "multi_thread")]
async fn sharing_a_landscape_between_teams_is_followed_word_for_word() {
    const URL: &str = "https://git.example.com/cache/release.git";
    const TEAM: &str = "team-cache";
    tidegate_process::tls::install();
    let stage = Stage::with(1, Extent::Controllers, &borrowed(&stage::files(1)), &[]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let before = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it is installed");
    let template = async || read(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await.expect("it is there");
    let released = async || read(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache").await.expect("it is there");
    let owner = |object: &Value| object["metadata"]["labels"]["tidegate.dev/source"].clone();

    // The repository of the team: the same module with a version more, and a Kyma, which is not the team's.
    let folder = harness::folder();
    let team = Repository::init(&folder.path().join("team")).expect("a repository");
    let mut files: Vec<(String, String)> =
        stage::files(1).into_iter().filter(|(path, _)| path.starts_with("modules/cache/")).collect();
    files.extend(stage::module("cache", "1.2.0", "three"));
    files.push(("modules/cache/1.2.0/objects/crd.yaml".to_owned(), stage::THING_CRD.to_owned()));
    let release = stage::release("cache", &[("regular", "1.0.0"), ("fast", "1.2.0")]);
    files.push((RELEASE.to_owned(), release.clone()));
    files.push(("kymas/theirs.yaml".to_owned(), stage::kyma("theirs", &["cache"])));
    for (path, text) in &files {
        team.write(path, text).expect("a file");
    }
    team.commit("first").expect("a commit");
    let server = Server::start(folder.path());
    let wanted = format!("Basic {}", STANDARD.encode("git:TOKEN"));
    server.behave(move |request| match request.authorization() {
        Some(found) if found == wanted => Action::Serve,
        _ => Action::Answer(401, vec![("www-authenticate", "Basic realm=\"git\"".to_owned())], Vec::new()),
    });
    let place = stage.repository.path();
    let shell = Shell::new(place, Some(stage.kubeconfig())).await;
    // Its Secret, as the page makes one for another repository; the server of the test has a CA of its own.
    let [secret, _] = &blocks_of(&section(PAGE, "## Read a private repository"))[..] else { panic!("two blocks") };
    assert!(secret.starts_with("kubectl create secret generic landscape-auth "), "{secret}");
    let ca = folder.path().join("ca.crt");
    fs::write(&ca, &server.ca).expect("a file");
    let secret = secret.replace("landscape-auth", "team-cache-auth");
    shell.well(&format!("{} --from-file=ca.crt={}", secret.trim_end(), ca.display())).await;
    let text = section(PAGE, "## Share a landscape between teams");
    let source = yaml_of(&text);
    assert!(source.contains(URL), "{source}");
    let file = folder.path().join("team-cache.yaml");
    fs::write(&file, source.replace(URL, &server.url("team"))).expect("a file");
    shell.well(&format!("kubectl apply -f {}", file.display())).await;

    let said =
        |wanted: &'static [&'static str]| move |source: &Value| wanted.iter().all(|code| codes(source).contains(code));
    let until = async |what: &str, holds: &dyn Fn(&Value) -> bool| {
        stage.until(what, &stage.kcp, "GitSource", "kcp-system", TEAM, holds).await
    };
    until("what is not the team's is held back", &said(&["not-allowed", "owned-by-source"])).await;
    let new = read(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.2.0").await.expect("the rest is applied");
    assert_eq!(owner(&new), "kcp-system.team-cache");
    assert!(read(&stage.kcp, "Kyma", "kcp-system", "theirs").await.is_none());
    let kept = template().await;
    assert_eq!(owner(&kept), "kcp-system.landscape", "the first one keeps it");

    // The landscape drops the module. What its Kyma needs is in the other repository.
    let commands = code(&text, "tidegate ");
    let [warned, export, diff] = &commands[..] else { panic!("{commands:#?}") };
    assert_eq!(warned, "tidegate diff");
    stage.repository.remove("modules/cache").expect("a folder");
    shell.well(export).await;
    let said_by_diff = shell.well(diff).await;
    assert!(said_by_diff.contains("team-cache") && said_by_diff.contains("tidegate.dev/adopt"), "{said_by_diff}");
    fs::remove_file(place.join("landscape.yaml")).expect("a file");
    stage.repository.commit("the module has a team").expect("a commit");
    until("the rest waits for its consent", &said(&["other-content"])).await;
    let moved = |object: &Value| owner(object) == "kcp-system.team-cache";
    stage.until("it moves", &stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0", moved).await;
    assert_eq!(template().await["metadata"]["uid"], kept["metadata"]["uid"], "nothing is deleted");
    assert_eq!(released().await["spec"]["channels"][1]["version"], "1.1.0", "it stays as it is");
    let annotation = code(&text, "tidegate.dev/adopt").pop().expect("an annotation");
    let consent = "metadata: {name: cache, namespace: kcp-system}\n";
    let with = format!("metadata: {{name: cache, namespace: kcp-system, annotations: {{{annotation}}}}}\n");
    team.replace(RELEASE, consent, &with).expect("a file");
    team.commit("adopt").expect("a commit");
    let fetch = format!("tidegate reconcile gitsource/{TEAM}");
    shell.well(&fetch).await;
    stage.until("it moves", &stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache", moved).await;
    assert_eq!(released().await["spec"]["channels"][1]["version"], "1.2.0");

    // A mistake of the team, and then a server that does not answer, hold up nothing of the landscape.
    team.write(RELEASE, "kind: [").expect("a file");
    team.commit("broken").expect("a commit");
    shell.well(&fetch).await;
    until("it says so", &said(&["yaml-syntax"])).await;
    for text in ["broken", "away"] {
        stage.commit("modules/mailer/2.0.0/objects/objects.yaml", &stage::module("mailer", "2.0.0", text)[1].1);
        let is_new = |map: &Value| map["data"]["text"] == text;
        stage.until("it arrives", &stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a", is_new).await;
        server.behave(|_| Action::Answer(503, Vec::new(), Vec::new()));
        shell.well(&fetch).await;
    }
    stage.rests().await;
    assert!(moved(&template().await) && moved(&released().await), "the last good revision stays");
    let after = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it stays");
    assert_eq!((&after["data"], &after["metadata"]["uid"]), (&before["data"], &before["metadata"]["uid"]));
    stage.kyma_in("one", "Ready").await;
}
