//! One server: git servers that never answer or that fail, and runtimes whose access changes.

mod access;
mod git_errors;
mod lanes;
mod outage;
mod prune;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::{git::server::Server, harness::apply, stage::Stage};

/// A git server over https that serves the repository of a stage, and its URL of that repository. Its certificate is
/// in the Secret `git`, which a GitSource names.
async fn git_server(stage: &Stage) -> (Server, String) {
    let server = Server::start(stage.repository.path().parent().expect("a folder"));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "git", "namespace": "kcp-system"},
        "data": {"ca.crt": STANDARD.encode(&server.ca)},
    });
    apply(&stage.kcp, &secret).await;
    let name = stage.repository.path().file_name().and_then(|name| name.to_str()).expect("a name");
    let url = server.url(name);
    (server, url)
}
