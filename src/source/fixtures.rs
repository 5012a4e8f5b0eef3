//! Values that the tests of several files use.

use serde_json::{Value, json};
use tidegate_core::api::GitSource;

use super::state::{ReadFailure, ReadOutcome, Remedy};

/// GitSource `kcp-system/dev` with a URL and `spec`.
pub(super) fn source(spec: &Value) -> GitSource {
    let mut all = json!({ "url": "https://git.example.org/dev.git" });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": { "name": "dev", "namespace": "kcp-system" },
        "spec": all,
    }))
    .unwrap()
}

/// A failure that `remedy` may help.
pub(super) fn failed(remedy: Remedy) -> ReadOutcome {
    let (message, retry_after) = ("it failed".to_owned(), None);
    ReadOutcome::Failed(ReadFailure { reason: "Test", message, said: None, remedy, retry_after, unverified: None })
}
