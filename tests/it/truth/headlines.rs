//! The headline of `tidegate diff --live` beside what runtimes have.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::{
    harness::{api_of, apply},
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    a_headline_says_what_comes_goes_and_stays,
    a_headline_counts_each_version_that_goes,
    a_comment_of_a_live_comparison_groups_runtimes_by_their_labels,
    a_runtime_with_errors_is_named_once_in_a_report_about_another_one,
    what_a_deleted_source_has_left_is_taken_back_as_predicted,
}

async fn report(stage: &Stage) -> Value {
    let path = stage.repository.path().to_str().expect("UTF-8");
    let output = stage.command(&["diff", path, "--live", "-o", "json"]).await;
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What the same command prints.
async fn printed(stage: &Stage) -> String {
    let path = stage.repository.path().to_str().expect("UTF-8");
    let output = stage.command(&["diff", path, "--live"]).await;
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The actions on the objects of a kind, with the number of runtimes.
fn actions(report: &Value, kind: &str) -> Vec<(String, usize)> {
    let differences = report["differences"].as_array().expect("a list").iter();
    let of_kind = differences.filter(|one| one["object"]["kind"] == kind);
    let action = |one: &Value| one["action"].as_str().expect("an action").to_owned();
    of_kind.map(|one| (action(one), one["runtimes"].as_array().map_or(0, Vec::len))).collect()
}

async fn a_headline_says_what_comes_goes_and_stays() {
    let stage = stage::ready(2).await;
    let write = |path: &str, text: &str| stage.repository.write(path, text).expect("written");
    let release = "modules/cache/release.yaml";

    // The users' custom resource keeps the module in one of the two runtimes.
    let things =
        json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "mine", "namespace": "default"}});
    apply(&stage.skrs[0], &things).await;
    for name in ["one", "two"] {
        write(&format!("kymas/{name}.yaml"), &stage::kyma(name, &["mailer"]));
    }
    let dropped = printed(&stage).await;
    let expected = "cache 1.0.0 goes from 1 of 2 runtimes; cache 1.0.0 stays in 1 of 2 runtimes for now; ";
    assert!(dropped.contains(expected), "{dropped}");
    // Of the objects of the module, each of those that go counts once, and none of those that stay.
    let line = dropped.lines().find(|line| line.contains(expected)).expect("it is there");
    assert!(line.contains("2 ConfigMaps go") && !line.contains("stay for now"), "{line}");

    // Under its new name the module makes its default custom resource anew.
    for (path, text) in stage::module("cache", "1.0.0", "one") {
        let text = text.replace("/cache/", "/depot/").replace("name: cache-1.0.0", "name: depot-1.0.0");
        write(&path.replace("/cache/", "/depot/"), &text.replace("moduleName: cache", "moduleName: depot"));
    }
    write("modules/depot/1.0.0/objects/crd.yaml", stage::THING_CRD);
    write("modules/depot/release.yaml", &stage::release("depot", &[("regular", "1.0.0")]));
    write("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer"]));
    write("kymas/two.yaml", &stage::kyma("two", &["depot", "mailer"]));
    let renamed = report(&stage).await;
    let of_things = actions(&renamed, "Thing");
    assert_eq!(of_things.len(), 2, "{of_things:?}");
    for action in ["create", "delete"] {
        assert!(of_things.contains(&(action.to_owned(), 1)), "{of_things:?}");
    }
    write("kymas/two.yaml", &stage::kyma("two", &["cache", "mailer"]));

    // A channel that goes had the module in both.
    write(release, &stage::release("cache", &[("fast", "1.1.0")]));
    let left = printed(&stage).await;
    assert!(left.contains("cache 1.0.0 leaves regular: 2 of 2 runtimes"), "{left}");

    // A rollout that a user suspended changes no runtime.
    write(release, &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    let output = stage.command(&["suspend", "rollout/cache", "--reason", "it fails"]).await;
    assert!(output.status.success(), "{output:?}");
    let suspended = report(&stage).await;
    let said = printed(&stage).await;
    assert!(said.contains("; the rollout of cache is suspended, so 2 runtimes wait"), "{said}");
    let held = suspended["held"].as_array().expect("a list").iter().find(|one| one["module"] == "cache");
    assert_eq!(held.map(|held| held["why"].clone()), Some(json!("suspended")), "{suspended:#}");
}

async fn a_comment_of_a_live_comparison_groups_runtimes_by_their_labels() {
    let names = &stage::MANY[..6];
    let mut files = stage::files(0);
    for (index, name) in names.iter().enumerate() {
        let labels = format!("namespace: kcp-system, labels: {{region: {}}}}}", if index < 4 { "eu" } else { "us" });
        let text = stage::kyma(name, &["mailer"]).replacen("namespace: kcp-system}", &labels, 1);
        files.push((format!("kymas/{name}.yaml"), text));
    }
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(names.len(), &files).await;
    stage.start();
    for name in names {
        stage.kyma_in(name, "Ready").await;
    }
    stage.rests().await;
    for (path, text) in stage::module("mailer", "2.0.0", "other mail") {
        stage.repository.write(&path, &text).expect("written");
    }
    let path = stage.repository.path().to_str().expect("UTF-8");
    let output = stage.command(&["diff", path, "--live", "-o", "markdown"]).await;
    let comment = String::from_utf8(output.stdout).expect("UTF-8");
    let groups = "- by region: eu 4 of 4, us 2 of 2";
    assert!(comment.lines().any(|line| line.replace('`', "") == groups), "{comment}");
    assert!(comment.contains("6 of 6 runtimes"), "{comment}");
}

async fn a_headline_counts_each_version_that_goes() {
    let mut files = stage::files(2);
    let on_fast = stage::kyma("two", &["cache", "mailer"]).replace("channel: regular", "channel: fast");
    files.retain(|(path, _)| path != "kymas/two.yaml");
    files.push(("kymas/two.yaml".to_owned(), on_fast.clone()));
    files.push((
        "modules/mailer/release.yaml".to_owned(),
        stage::release("mailer", &[("regular", "2.0.0"), ("fast", "2.0.0")]),
    ));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(2, &files).await;
    stage.start();
    for name in stage::KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    stage.rests().await;
    let write = |name: &str, text: &str| stage.repository.write(&format!("kymas/{name}.yaml"), text).expect("written");
    write("one", &stage::kyma("one", &["mailer"]));
    write("two", &stage::kyma("two", &["mailer"]).replace("channel: regular", "channel: fast"));
    let dropped = printed(&stage).await;
    let expected = "cache 1.0.0 goes from 1 of 2 runtimes; cache 1.1.0 goes from 1 of 2 runtimes";
    assert!(dropped.contains(expected), "{dropped}");
    write("one", &stage::kyma("one", &["cache", "mailer"]).replace("channel: regular", "channel: fast"));
    write("two", &on_fast);
    let moved = printed(&stage).await;
    assert!(moved.contains("cache 1.0.0 → 1.1.0 in 1 of 2 runtimes"), "{moved}");
}

async fn a_runtime_with_errors_is_named_once_in_a_report_about_another_one() {
    let mut files = stage::files(2);
    let fixed = |text: &str| {
        let mut module = stage::module("extra", "1.0.0", "extra");
        module[1].1 = module[1].1.replace("data: {text: same}", &format!("data: {{text: {text}}}\nimmutable: true"));
        module
    };
    files.retain(|(path, _)| path != "kymas/two.yaml");
    files.push(("kymas/two.yaml".to_owned(), stage::kyma("two", &["cache", "extra", "mailer"])));
    files.push(("modules/extra/release.yaml".to_owned(), stage::release("extra", &[("regular", "1.0.0")])));
    files.extend(fixed("before"));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(2, &files).await;
    stage.start();
    for name in stage::KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    let (path, text) = &fixed("after")[1];
    stage.commit(path, text);
    stage.kyma_in("two", "Error").await;
    stage.rests().await;
    let refused = |report: &Value| actions(report, "ConfigMap").iter().filter(|(action, _)| action == "refuse").count();
    // A report about nothing else shows it.
    let alone = report(&stage).await;
    assert_eq!(refused(&alone), 1, "{alone:#}");
    assert!(printed(&stage).await.contains("refused by the API server"));
    stage.repository.write("kymas/one.yaml", &stage::kyma("one", &["cache"])).expect("written");
    let said = printed(&stage).await;
    let headline = said.lines().nth(2).expect("a headline");
    assert!(headline.contains("mailer 2.0.0 goes from 1 of 2 runtimes"), "{headline}");
    assert!(headline.ends_with("; 1 runtime with errors differs already"), "{headline}");
    assert!(!headline.contains("refused"), "{headline}");
    let path = stage.repository.path().to_str().expect("UTF-8");
    let judged = stage.command(&["diff", path, "--live", "--fail-on", "refused"]).await;
    assert_eq!(judged.status.code(), Some(1), "{judged:?}");
}

async fn what_a_deleted_source_has_left_is_taken_back_as_predicted() {
    let stage = stage::ready(1).await;
    let source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    let sources = api_of(&stage.kcp, &source).await.expect("a kind that is served");
    sources.delete("landscape", &DeleteParams::default()).await.expect("a delete");
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
    let label = |object: &Value| object["metadata"]["labels"]["tidegate.dev/source"].clone();
    let kyma = async || read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it is there");
    assert_eq!(label(&kyma().await), Value::Null, "it was left");

    // Everything is as git says, so each object only gets its label again.
    let back = report(&stage).await;
    assert_eq!(back["held"], json!([]), "{back:#}");
    let differences = back["differences"].as_array().expect("a list");
    assert!(!differences.is_empty());
    for one in differences {
        let found = (&one["target"], &one["action"], &one["effect"]);
        assert_eq!(found, (&json!("kcp"), &json!("change"), &json!("applies")), "{one:#}");
    }
    // What git has changed meanwhile stays as it is.
    let text = stage::kyma("one", &["cache"]);
    stage.repository.write("kymas/one.yaml", &text).expect("written");
    let differs = report(&stage).await;
    let held = differs["held"].as_array().expect("a list");
    let said = "Kyma kcp-system/one is owned by a GitSource that no longer exists, and differs from this definition";
    assert!(held.len() == 1 && held[0]["message"] == said, "{held:#?}");

    stage.repository.write("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer"])).expect("written");
    let again = json!({
        "apiVersion": source["apiVersion"], "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": "kcp-system"}, "spec": source["spec"],
    });
    apply(&stage.kcp, &again).await;
    let is_back = |object: &Value| label(object) == "kcp-system.landscape";
    for one in differences {
        let (kind, name) = (one["object"]["kind"].as_str().expect("a kind"), one["object"]["name"].as_str());
        stage.until("it is taken back", &stage.kcp, kind, "kcp-system", name.expect("a name"), is_back).await;
    }
}
