use serde_json::{Value, json};

use super::*;

fn rendered() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {
            "name": "eu-cache-1", "namespace": "kcp-system",
            "labels": {"operator.kyma-project.io/module-name": "cache"},
            "finalizers": ["declarative.kyma-project.io/finalizer"],
        },
        "spec": {
            "remote": true, "version": "1.0.0", "customResourcePolicy": "CreateAndDelete",
            "install": {"name": "raw-manifest", "source": {"type": "git", "tree": "1"}},
        },
    })
}

#[track_caller]
fn check(edit: impl FnOnce(&mut Value), expected: bool) {
    let mut live = rendered();
    edit(&mut live);
    let live: Manifest = serde_json::from_value(live).unwrap();
    assert_eq!(matches(&Object::new(rendered()).unwrap(), &live), expected);
}

#[test]
fn a_manifest_is_written_only_if_it_differs() {
    check(|_| {}, true);
    check(|live| live["metadata"]["labels"]["operator.kyma-project.io/skip-reconciliation"] = json!("true"), true);
    check(|live| live["metadata"]["finalizers"] = json!(["theirs", "declarative.kyma-project.io/finalizer"]), true);
    check(|live| live["metadata"]["finalizers"] = json!([]), false);
    check(|live| live["metadata"]["labels"] = json!({}), false);
    // Lifecycle Manager repairs neither of these two.
    check(|live| live["spec"]["customResourcePolicy"] = json!("Ignore"), false);
    check(|live| live["spec"]["install"]["source"]["tree"] = json!("2"), false);
}
