//! `/observed` and `/observed.json`: what a process that observes has found. Other processes do not serve them.

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::get};

use crate::{
    controller::Context,
    http::health::Missing,
    observe::{Observation, show::Report},
};

/// What the routes show.
#[derive(Clone)]
struct Shown {
    context: Arc<Context>,
    missing: Missing,
}

/// The routes; none unless the process observes. `missing` lists what the process lacks of the control plane.
pub(crate) fn router(context: &Arc<Context>, missing: Missing) -> Router {
    if context.observation.is_none() {
        return Router::new();
    }
    let shown = Shown { context: Arc::clone(context), missing };
    Router::new().route("/observed", get(text)).route("/observed.json", get(json)).with_state(shown)
}

async fn text(State(shown): State<Shown>) -> String {
    shown.report().to_text()
}

async fn json(State(shown): State<Shown>) -> Json<Report> {
    Json(shown.report())
}

// === impl Shown ===

impl Shown {
    fn report(&self) -> Report {
        let report = |observation: &Observation| observation.report((self.missing)());
        self.context.observation.as_ref().map(report).unwrap_or_default()
    }
}
