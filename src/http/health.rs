//! `/healthz` and `/readyz`.
//!
//! The process is healthy if it answers. It is ready if it leads and has listed the whole landscape. `/readyz` says
//! what is missing, one line each.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};

/// Lists what is missing for readiness.
pub(crate) type Missing = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The routes.
pub(crate) fn router(missing: Missing) -> Router {
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
