//! `/metrics`, in OpenMetrics text.

use std::sync::Arc;

use axum::{Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::get};

/// Renders the metrics of now.
pub(crate) type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// The routes.
pub(crate) fn router(render: Render) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(render)
}

async fn metrics(State(render): State<Render>) -> impl IntoResponse {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, OPEN_METRICS)], render())
}
