//! A source that cannot be read keeps from being pruned only what it might declare itself.

use serde_json::{Value, json};

use crate::{
    harness::apply,
    stage::{self, Stage, WATCHER, kyma, module, release, scenarios},
};

scenarios! {
    a_source_that_cannot_be_read_delays_only_prunes_of_what_it_might_declare,
}

async fn a_source_that_cannot_be_read_delays_only_prunes_of_what_it_might_declare() {
    let mut files = module("mailer", "1.0.0", "one");
    files.extend(module("mailer", "2.0.0", "two"));
    files.push(("modules/mailer/release.yaml".to_owned(), release("mailer", &[("regular", "1.0.0")])));
    files.push(("watcher.yaml".to_owned(), WATCHER.to_owned()));
    files.push(("kymas/one.yaml".to_owned(), kyma("one", &[])));
    files.push(("kymas/two.yaml".to_owned(), kyma("two", &[])));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(0, &files).await;
    stage.start();
    ready(&stage, |message| message.ends_with("6 definitions")).await;
    declare_unread(&stage, json!({"kinds": ["Watcher"]})).await;

    // Removed: a Watcher, which the unread source might declare, and a ModuleTemplate and a Kyma, which it cannot.
    for path in
        ["watcher.yaml", "modules/mailer/2.0.0/module-template.yaml", "modules/mailer/2.0.0/objects/objects.yaml"]
    {
        stage.repository.remove(path).unwrap();
    }
    stage.repository.remove("kymas/two.yaml").unwrap();
    let commit = stage.repository.commit("fewer").unwrap();
    stage.until_gone(&stage.kcp, "ModuleTemplate", "kcp-system", "mailer-2.0.0").await;
    let patch = json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {
            "name": "landscape", "namespace": "kcp-system", "annotations": {"tidegate.dev/confirm-prune": commit},
        },
        "spec": {"url": stage.repository.url(), "ref": {"branch": "main"}, "interval": "10s"},
    });
    apply(&stage.kcp, &patch).await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "two").await;
    let source = ready(&stage, |message| {
        message.ends_with(
            "; 1 object removed from git and not pruned before these sources have been read: kcp-system/unread",
        )
    })
    .await;
    assert_eq!(source["status"]["counts"]["toPrune"], 1, "{source}");
    assert!(stage::read(&stage.kcp, "Watcher", "kcp-system", "watcher").await.is_some());

    // A source that might declare anything delays everything; one that is limited again does not.
    declare_unread(&stage, json!({})).await;
    stage.repository.remove("modules/mailer/1.0.0/objects/objects.yaml").unwrap();
    stage.repository.remove("modules/mailer/1.0.0/module-template.yaml").unwrap();
    stage.repository.remove("modules/mailer/release.yaml").unwrap();
    stage.repository.commit("even fewer").unwrap();
    ready(&stage, |message| message.contains("; 3 objects removed from git and not pruned")).await;
    declare_unread(&stage, json!({"names": ["team-*"]})).await;
    stage.until_gone(&stage.kcp, "Watcher", "kcp-system", "watcher").await;
}

/// Declares a source whose repository does not exist.
async fn declare_unread(stage: &Stage, allow: Value) {
    let source = json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "unread", "namespace": "kcp-system"},
        "spec": {"url": format!("{}-absent", stage.repository.url()), "interval": "10s", "allow": allow},
    });
    apply(&stage.kcp, &source).await;
}

/// Waits until the source is Ready with such a message, and returns it.
async fn ready(stage: &Stage, says: impl Fn(&str) -> bool) -> Value {
    stage
        .until("the source is ready", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            let conditions = source["status"]["conditions"].as_array();
            let ready = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "Ready"));
            ready.is_some_and(|ready| ready["status"] == "True" && ready["message"].as_str().is_some_and(&says))
        })
        .await
}
