//! The Kyma in the runtime: Tidegate reads it, writes differences, and copies the status of the Kyma in KCP to it.
//!
//! `state` is what is known of it, `decide` says what to do next, and `enact` does it with one request. This file only
//! joins them.

use std::sync::Arc;

use super::{RuntimePass, outcome::Failed};
use tidegate_cluster::{Cluster, Error};
use tidegate_core::{
    api::{Kyma, kyma::KymaStatus},
    object::Object,
    render,
    template::Templates,
};

use crate::controller::events::Severity;

mod decide;
mod enact;
mod state;

pub(super) use decide::CounterpartReport;
pub(super) use state::KnownCounterpart;

use decide::{Progress, Step};

/// Reads the Kyma in the runtime, if it is not known or may have changed.
///
/// # Errors
///
/// The error of the request.
pub(super) async fn refresh(cluster: &Cluster, known: &mut KnownCounterpart, has_changed: bool) -> Result<(), Error> {
    if decide::must_read(known, has_changed) {
        known.refreshed(enact::read(cluster).await)?;
    }
    Ok(())
}

/// Creates the Kyma in the runtime, or writes what differs.
///
/// # Errors
///
/// The error of a request, or of a template.
pub(super) async fn reconcile(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    known: &mut KnownCounterpart,
) -> Result<CounterpartReport, Failed> {
    let mut progress = Progress::Begun;
    let report = loop {
        progress = match decide::next(known, pass.kyma, progress) {
            Step::Render => Progress::Rendered(render(pass).await?),
            Step::Create(object) => {
                enact::create(cluster, pass.cause, &object).await?;
                Progress::Written(CounterpartReport::Created)
            }
            Step::Merge { patch, reverted } => {
                let merged = enact::merge(cluster, pass.cause, &patch).await;
                merged.inspect_err(|error| known.refused(error))?;
                Progress::Written(CounterpartReport::Merged { reverted })
            }
            Step::Read(report) => {
                let found = enact::read(cluster).await?;
                *known = std::mem::take(known).found(found);
                Progress::Read(report)
            }
            Step::End(report) => break report,
        };
    };
    *known = std::mem::take(known).after(&report);
    if let Some((reason, action, note)) = report.event() {
        pass.publish(Severity::Normal, reason, action, note);
    }
    Ok(report)
}

async fn render(pass: &RuntimePass<'_>) -> Result<Object, Failed> {
    let kyma: Arc<Kyma> = Arc::clone(pass.kyma);
    let render = move |templates: &Templates| render::runtime_kyma(templates, &kyma, &kyma.spec);
    Ok(pass.context.templates.for_object(&pass.kyma.metadata, render).await?)
}

/// Copies the status to the Kyma in the runtime, if it differs.
///
/// # Errors
///
/// The error of the request.
pub(super) async fn show(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    status: &KymaStatus,
    known: &mut KnownCounterpart,
) -> Result<(), Error> {
    if let Some(shown) = decide::to_show(known, status) {
        let written = enact::show(cluster, pass.cause, shown).await?;
        *known = std::mem::take(known).shows(written);
    }
    Ok(())
}
