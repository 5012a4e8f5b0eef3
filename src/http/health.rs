//! `/healthz` and `/readyz`.
//!
//! Healthy is a process that answers. Ready is one that leads and has seen the whole landscape; what is missing is said
//! in words, one line each, because whoever looks here wants to know why.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};

/// Asks what is missing to be ready.
pub type Missing = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The routes.
pub fn router(missing: Missing) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(missing)
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(missing): State<Missing>) -> impl IntoResponse {
    let missing = missing();
    if missing.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let mut text = String::from("not ready\n");
    for line in missing {
        text.push_str(&line);
        text.push('\n');
    }
    (StatusCode::SERVICE_UNAVAILABLE, text)
}
