//! `/observed` and `/observed.json`: what a process that observes has found. Other processes do not serve them.

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::get};

use crate::{
    controller::Context,
    observe::{Observation, show::Report},
};

/// The routes; none unless the process observes.
pub(crate) fn router(context: &Arc<Context>) -> Router {
    if context.observation.is_none() {
        return Router::new();
    }
    Router::new().route("/observed", get(text)).route("/observed.json", get(json)).with_state(Arc::clone(context))
}

async fn text(State(context): State<Arc<Context>>) -> String {
    report(&context).to_text()
}

async fn json(State(context): State<Arc<Context>>) -> Json<Report> {
    Json(report(&context))
}

fn report(context: &Context) -> Report {
    context.observation.as_ref().map(Observation::report).unwrap_or_default()
}
