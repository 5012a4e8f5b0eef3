//! Decides the next act for a Watcher: a decision over values, made again after every act.
//!
//! Each act is one request, or one rendering. It fills one field in [`Observed`] that is never filled twice, so a pass
//! ends. The rules:
//!
//! * Tidegate adds the finalizer before it creates anything that it must clean up later.
//! * Of two Watchers with one manager and two services, the older one owns the path.
//! * Tidegate does not apply over a VirtualService that another client created, and deletes only the one of this
//!   Watcher.
//! * Tidegate reads an applied VirtualService again only after a reported change or after the interval.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tidegate_cluster::Kind;
use tidegate_core::{
    api::{
        Watcher,
        names::{self, annotation},
        shared::{ObjectMeta, State, Time},
        watcher::WatcherStatus,
    },
    changes::covers,
    conditions, landscape,
    object::{Digest, Gvk, Object},
    plan::reporting,
    render, status,
    template::Templates,
};
use tidegate_process::retry::Class;

use super::state::{Charge, Known, Observed, Route};
use crate::queue::{Finish, Trigger, Triggers};

/// How a pass starts.
#[derive(Clone, Debug)]
pub(super) enum Start<'a> {
    /// Reconcile the Watcher, once the templates have been read.
    BeginWithTemplates(&'a Watcher),
    /// Reconcile a Watcher that is being deleted. Its VirtualService goes without a template.
    Begin(&'a Watcher),
    /// Leave everything as it is until the Watcher can be read.
    Defer,
    /// Forget the Watcher: it is gone.
    Forget,
}

/// The memory to keep, and the next step.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    /// As [`Known::remembered`].
    pub(super) remembered: Option<Digest>,
    /// The next step.
    pub(super) next: Next,
}

/// The next step of a pass.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// Enact this act, then decide again.
    Do(Act),
    /// End the pass.
    End(Finish),
}

/// One act.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Adds Tidegate's finalizer to the Watcher.
    TakeCharge,
    /// Asks whether the control plane serves a kind.
    Discover(Gvk),
    /// Renders the desired VirtualService.
    Render,
    /// Reads the VirtualService.
    Read(Kind),
    /// Applies the VirtualService.
    Apply(Kind, Object),
    /// Deletes this VirtualService, unless it has changed since.
    Delete(Kind, Object),
    /// Writes the status of the Watcher.
    Report(WatcherStatus),
    /// Removes Tidegate's finalizer from the Watcher.
    Release,
}

/// The result of a pass over a Watcher that is not being deleted.
#[derive(Clone, Debug)]
enum Verdict {
    /// The VirtualService is in its desired state.
    Routed(Digest),
    /// The Watcher needs no VirtualService.
    Direct,
    /// The VirtualService cannot be created, for this reason: one sentence.
    Refused(String),
    /// The control plane does not serve a required kind: one sentence.
    Unserved(String),
    /// Another Watcher owns the path: one sentence.
    Rival(String),
}

/// How often the VirtualService is compared without a report of its watch.
const LOOK: Duration = Duration::from_secs(300);

/// Type of the condition that reports the VirtualService.
const CONDITION: &str = "VirtualService";

/// Group and version of Istio's kinds.
const ISTIO: (&str, &str) = ("networking.istio.io", "v1beta1");
const GATEWAY: &str = "Gateway";
const VIRTUAL_SERVICE: &str = "VirtualService";

/// Decides how a pass starts, from the last readable state of the Watcher and, if it cannot be read now, its metadata.
///
/// A Watcher that was never readable keeps its VirtualService. One that is being deleted keeps it too while it is
/// unreadable: which VirtualService it names is not known.
pub(super) fn start<'a>(watcher: Option<&'a Arc<Watcher>>, unreadable: Option<&ObjectMeta>) -> Start<'a> {
    let is_leaving = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_some();
    match (watcher, unreadable) {
        (None, None) => Start::Forget,
        (None, Some(_)) => Start::Defer,
        (Some(watcher), Some(now)) if is_leaving(now) || is_leaving(&watcher.metadata) => Start::Defer,
        (Some(watcher), _) if is_leaving(&watcher.metadata) => Start::Begin(watcher),
        (Some(watcher), _) => Start::BeginWithTemplates(watcher),
    }
}

/// Decides the next step.
pub(super) fn decide(known: &Known<'_>, observed: &Observed, now: Timestamp) -> Decision {
    if known.watcher.metadata.deletion_timestamp.is_some() {
        return leave(known, observed);
    }
    if observed.charge != Charge::Taken {
        return known.keep(Act::TakeCharge);
    }
    match verdict(known, observed) {
        ControlFlow::Break(act) => known.keep(act),
        ControlFlow::Continue(verdict) => end(known, observed, &verdict, now),
    }
}

/// Whether to compare the VirtualService although no change is known.
pub(super) fn looks(triggers: Triggers, watcher: &Watcher) -> bool {
    let handled = watcher
        .status
        .as_ref()
        .and_then(|status| conditions::message(&status.conditions, conditions::RECONCILE_REQUESTED));
    let requested = landscape::annotation(&watcher.metadata, annotation::RECONCILE_REQUESTED_AT);
    (requested.is_some() && requested != handled)
        || triggers.iter().any(|trigger| matches!(trigger, Trigger::Drift | Trigger::Resync | Trigger::Requested))
}

/// The desired VirtualService. Fails with one sentence if there can be none.
pub(super) fn desired(
    watcher: &Watcher,
    gateways: Vec<reporting::Gateway>,
    templates: &Templates,
) -> Result<Object, String> {
    let watch = reporting::watch(watcher).map_err(|error| error.to_string())?;
    let port = watch.port().map_err(|error| error.to_string())?;
    let gateways = reporting::Gateways::from_matches(&landscape::key(&watcher.metadata), gateways)
        .map_err(|error| error.to_string())?;
    let uid = watcher.metadata.uid.clone().unwrap_or_default();
    render::virtual_service(templates, &watch, port, &gateways, &uid).map_err(|error| error.to_string())
}

/// Deletes the VirtualService, then removes the finalizer.
fn leave(known: &Known<'_>, observed: &Observed) -> Decision {
    match observed.charge {
        Charge::None => Decision { remembered: known.remembered, next: Next::End(Finish::Gone) },
        Charge::Released => Decision { remembered: None, next: Next::End(Finish::Gone) },
        Charge::Taken => known.keep(withdraw(known, observed).break_value().unwrap_or(Act::Release)),
    }
}

/// The result of the pass, once all its acts are done.
fn verdict(known: &Known<'_>, observed: &Observed) -> ControlFlow<Act, Verdict> {
    if let Some(rival) = &known.rival {
        withdraw(known, observed)?;
        return ControlFlow::Continue(Verdict::Rival(format!(
            "Watcher {rival} has the same manager and sends its events to another service; give this Watcher another \
             manager, or delete one of them"
        )));
    }
    if is_direct(known) {
        if known.has_applied() {
            withdraw(known, observed)?;
        }
        return ControlFlow::Continue(Verdict::Direct);
    }
    let Some(desired) = &observed.desired else { return ControlFlow::Break(Act::Render) };
    match desired {
        Ok(object) if known.look || !known.has_applied_this(&object.digest()) => route(known, observed, object),
        Ok(object) => ControlFlow::Continue(Verdict::Routed(object.digest())),
        Err(message) => ControlFlow::Continue(match kind(observed, &istio(GATEWAY))? {
            None if known.gateways.is_empty() => unserved(GATEWAY),
            None | Some(_) => Verdict::Refused(message.clone()),
        }),
    }
}

/// Whether events reach this process without a route: agents send to the listener's own address, and the Watcher names
/// no Gateway.
fn is_direct(known: &Known<'_>) -> bool {
    known.has_address
        && reporting::watch(known.watcher).is_ok_and(|watch| watch.manager == names::MANAGED_BY_KCP)
        && known.gateways.is_empty()
}

/// Moves the VirtualService to its desired state.
fn route(known: &Known<'_>, observed: &Observed, object: &Object) -> ControlFlow<Act, Verdict> {
    let Some(served) = kind(observed, &object.gvk())? else {
        return ControlFlow::Continue(match kind(observed, &istio(VIRTUAL_SERVICE))? {
            None => unserved(VIRTUAL_SERVICE),
            Some(_) => Verdict::Refused("the control plane has only just started to serve VirtualServices".to_owned()),
        });
    };
    let apply = || ControlFlow::Break(Act::Apply(served.clone(), object.clone()));
    match &observed.route {
        // Before the first apply, and after the interval, the VirtualService may belong to another client.
        Route::Unread if known.look || !known.has_applied() => ControlFlow::Break(Act::Read(served.clone())),
        Route::Unread | Route::Absent => apply(),
        Route::Found(live) => match reporting::strangers(known.watcher, live.value()) {
            // A forced apply would replace its routes, and the deletion of the Watcher would delete it.
            Some(managers) => ControlFlow::Continue(Verdict::Refused(reporting::foreign(known.key, &managers))),
            None if known.look && covers(object.value(), live.value()) => {
                ControlFlow::Continue(Verdict::Routed(object.digest()))
            }
            None => apply(),
        },
        Route::Applied => ControlFlow::Continue(Verdict::Routed(object.digest())),
        Route::Refused(message) => ControlFlow::Continue(Verdict::Refused(message.clone())),
    }
}

/// Deletes the VirtualService of this Watcher, if there is one.
fn withdraw(known: &Known<'_>, observed: &Observed) -> ControlFlow<Act> {
    let Some(served) = kind(observed, &istio(VIRTUAL_SERVICE))? else { return ControlFlow::Continue(()) };
    match &observed.route {
        Route::Unread => ControlFlow::Break(Act::Read(served.clone())),
        Route::Found(live) if is_owned(known.watcher, live) => {
            ControlFlow::Break(Act::Delete(served.clone(), live.clone()))
        }
        Route::Found(_) | Route::Absent | Route::Applied | Route::Refused(_) => ControlFlow::Continue(()),
    }
}

fn is_owned(watcher: &Watcher, live: &Object) -> bool {
    let uid = watcher.metadata.uid.as_deref().unwrap_or_default();
    let owners = live.value().pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
}

/// Reports the result, then ends the pass.
fn end(known: &Known<'_>, observed: &Observed, verdict: &Verdict, now: Timestamp) -> Decision {
    let status = report(known, verdict, now);
    let is_reported = observed.is_reported || status == known.watcher.status.clone().unwrap_or_default();
    let remembered = match verdict {
        // If the status cannot be written, the next pass compares the VirtualService again.
        Verdict::Routed(digest) if is_reported => Some(*digest),
        Verdict::Routed(_) | Verdict::Refused(_) | Verdict::Unserved(_) => known.remembered,
        Verdict::Direct | Verdict::Rival(_) => None,
    };
    let next = if is_reported { Next::End(verdict.finish()) } else { Next::Do(Act::Report(status)) };
    Decision { remembered, next }
}

/// The status after a pass.
fn report(known: &Known<'_>, verdict: &Verdict, now: Timestamp) -> WatcherStatus {
    let metadata = &known.watcher.metadata;
    let now = Time(status::seconds(now));
    let mut all = known.watcher.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let (state, message) = match verdict {
        Verdict::Routed(_) => (State::Ready, "VirtualService is configured"),
        Verdict::Direct => (
            State::Ready,
            "VirtualService is not needed: runtimes send events directly to the listener of this Tidegate",
        ),
        // Lifecycle Manager's text, which tools compare.
        Verdict::Refused(_) | Verdict::Unserved(_) | Verdict::Rival(_) => {
            (State::Error, "VirtualService is not configured")
        }
    };
    let requested = landscape::annotation(metadata, annotation::RECONCILE_REQUESTED_AT);
    let mut set = |type_: &str, holds: bool, reason: &str, message: Option<&str>| match message {
        Some(message) => {
            conditions::set(&mut all, type_, holds.into(), reason, message, metadata.generation, &now);
        }
        None => {
            conditions::remove(&mut all, type_);
        }
    };
    set(CONDITION, state == State::Ready, conditions::kyma::REASON, Some(message));
    match verdict {
        Verdict::Routed(_) => {}
        // The VirtualService of an earlier pass is deleted.
        Verdict::Direct | Verdict::Rival(_) => set(conditions::APPLIED, true, conditions::APPLIED_REASON, None),
        Verdict::Refused(_) | Verdict::Unserved(_) => {}
    }
    set(conditions::ROUTE, false, conditions::ROUTE_REASON, verdict.problem());
    set(conditions::SHARED_MANAGER, true, conditions::SHARED_MANAGER_REASON, companions(known).as_deref());
    if requested.is_some() {
        set(conditions::RECONCILE_REQUESTED, true, conditions::RECONCILE_REQUESTED_REASON, requested);
    }
    if let Verdict::Routed(digest) = verdict {
        let message = "the VirtualService is applied";
        conditions::record(&mut all, conditions::APPLIED, digest, message, metadata.generation, &now);
    }
    WatcherStatus { state, conditions: all, observed_generation: metadata.generation }
}

/// The status after a pass that came to no result: all that is recorded stays.
pub(super) fn failed(watcher: &Watcher, message: &str, now: Timestamp) -> WatcherStatus {
    let generation = watcher.metadata.generation;
    let mut all = watcher.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let now = Time(status::seconds(now));
    conditions::set(&mut all, conditions::ROUTE, false.into(), conditions::ROUTE_REASON, message, generation, &now);
    WatcherStatus { state: State::Error, conditions: all, observed_generation: generation }
}

/// The note for a Watcher whose manager has other Watchers.
fn companions(known: &Known<'_>) -> Option<String> {
    let others: Vec<String> = known.companions.iter().map(|key| format!("Watcher {key}")).collect();
    (!others.is_empty()).then(|| {
        format!("this Watcher and {} share one event path, because their manager is the same", others.join(", "))
    })
}

/// A kind of the control plane; `None` if it does not serve the kind.
fn kind<'a>(observed: &'a Observed, gvk: &Gvk) -> ControlFlow<Act, Option<&'a Kind>> {
    match observed.kinds.get(gvk) {
        Some(served) => ControlFlow::Continue(served.as_ref()),
        None => ControlFlow::Break(Act::Discover(gvk.clone())),
    }
}

fn istio(kind: &str) -> Gvk {
    Gvk::new(ISTIO.0, ISTIO.1, kind)
}

fn unserved(kind: &str) -> Verdict {
    Verdict::Unserved(format!(
        "the control plane serves no {kind}s: install Istio's CRDs, or have runtimes send to this Tidegate \
         (--listener-address)"
    ))
}

// === impl Known ===

impl Known<'_> {
    /// An act that does not change what is remembered.
    fn keep(&self, act: Act) -> Decision {
        Decision { remembered: self.remembered, next: Next::Do(act) }
    }
}

// === impl Verdict ===

impl Verdict {
    /// Why there is no VirtualService, if that is a problem.
    fn problem(&self) -> Option<&str> {
        match self {
            Verdict::Refused(why) | Verdict::Unserved(why) | Verdict::Rival(why) => Some(why),
            Verdict::Routed(_) | Verdict::Direct => None,
        }
    }

    fn finish(&self) -> Finish {
        match self {
            Verdict::Routed(_) => Finish::After(LOOK, Trigger::Resync),
            Verdict::Direct => Finish::Done,
            // A new Gateway or an edit of the Watcher triggers the next pass.
            Verdict::Refused(_) | Verdict::Rival(_) => Finish::Failed(Class::Stalled),
            // Nothing triggers a pass when the control plane begins to serve the kind.
            Verdict::Unserved(_) => Finish::Failed(Class::Waiting),
        }
    }
}

#[cfg(test)]
mod tests;
