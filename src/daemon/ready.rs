//! Whether this process is ready, and if not, what is missing.

use std::{collections::BTreeSet, sync::Arc};

use tokio::time::Instant;

use super::{Context, Leadership, outage::Repeated};
use tidegate_cluster::{Error, lease::Holder};
use tidegate_core::{
    api::{KYMA_GROUP, KYMA_VERSION, TIDEGATE_GROUP},
    landscape,
    name::Key,
    object::Gvk,
};
use tidegate_process::lock::Mutex;

use crate::{
    controller::{Subject, chain},
    http::health::Missing,
};

/// Knows what is missing.
pub(super) struct Readiness {
    context: Arc<Context>,
    leadership: Leadership,
    paused: bool,
    kinds: Mutex<Kinds>,
    /// What the log last had of the required kinds.
    said: Mutex<Repeated>,
    /// Sources with a finished pass.
    reconciled: Mutex<BTreeSet<Key>>,
}

/// Whether the control plane serves the required kinds.
enum Kinds {
    /// It has not answered yet.
    Unasked,
    /// It cannot be reached, rejects the credentials of this process, or does not list its kinds to it. Contains the
    /// error.
    Unusable(String),
    /// It answers with an error.
    Unknown(String),
    /// The control plane lacks these kinds.
    Lacking(Vec<String>),
    /// The control plane serves all of them.
    Served,
}

impl Readiness {
    pub(super) fn new(context: Arc<Context>, leadership: Leadership, paused: bool) -> Readiness {
        let kinds = Mutex::new(Kinds::Unasked);
        Readiness { context, leadership, paused, kinds, said: Mutex::default(), reconciled: Mutex::default() }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// A function that lists what is missing, for `/readyz`.
    pub(super) fn missing(self: &Arc<Self>) -> Missing {
        let readiness = Arc::clone(self);
        Arc::new(move || readiness.lines())
    }

    /// What is missing, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(outage) = self.context.kcp.outage() {
            let seconds = outage.since.elapsed().as_secs();
            let server = self.context.kcp.server();
            lines.push(format!("the control plane at {server} cannot be reached since {seconds} s: {}", outage.cause));
        }
        match &*self.kinds.lock() {
            Kinds::Unasked => lines.push("the control plane has not answered yet".to_owned()),
            Kinds::Unusable(why) | Kinds::Unknown(why) => lines.push(why.clone()),
            Kinds::Lacking(kinds) => lines.push(not_served(kinds)),
            Kinds::Served => {
                lines.extend(self.rejected());
                lines.extend(self.context.stores.not_listed());
                let (definitions, namespaces) = (self.context.stores.definitions(), &self.context.namespaces);
                lines.extend(match self.context.observation {
                    Some(_) => definitions.observed_lines(namespaces),
                    None => definitions.lines(namespaces),
                });
            }
        }
        if !self.leadership.is_leading() {
            lines.push(match self.leadership.other_holder() {
                Some(holder) => waiting(&holder, Instant::now()),
                None => match self.leadership.denial() {
                    Some(denial) => not_allowed(&denial),
                    None => "not leading: this process has not taken the Lease yet".to_owned(),
                },
            });
        } else if self.context.observation.is_none() && !self.context.inbox.is_open() {
            lines.push("events: the journal of the previous process is not read yet".to_owned());
        } else if self.paused {
            // A paused process is ready: it does what its configuration says.
        } else {
            let reconciled = self.reconciled.lock();
            let sources = self.context.stores.sources();
            let fresh = sources.iter().map(|source| landscape::key(&source.object.metadata));
            let fresh = fresh.filter(|key| !reconciled.contains(key));
            lines.extend(fresh.map(|key| format!("source {key}: not reconciled yet")));
        }
        lines
    }

    /// Whether this process leads, and knows what is in the control plane.
    pub(super) fn may_work(&self) -> bool {
        self.leadership.is_leading() && self.context.stores.missing().is_empty()
    }

    /// The missing rights without which no work begins, one line each; `None` if there is none, or while something else
    /// is missing that may come by itself.
    pub(super) fn denied(&self) -> Option<Vec<String>> {
        let stores = &self.context.stores;
        if !stores.missing().is_empty() && !stores.is_denied() {
            return None;
        }
        // A leader works until its Lease ends, even if it may not renew it.
        let is_leading = self.leadership.is_leading();
        let denial = self.leadership.denial().filter(|_| !is_leading);
        if !is_leading && self.leadership.other_holder().is_none() && denial.is_none() {
            return None;
        }
        let mut lines = stores.not_listed();
        lines.extend(denial.iter().map(|denial| not_allowed(denial)));
        (!lines.is_empty()).then_some(lines)
    }

    /// Why this process, which leads, cannot renew its Lease; `None` if no right is missing for that.
    pub(super) fn unrenewed(&self) -> Option<String> {
        let denial = self.leadership.denial().filter(|_| self.leadership.is_leading())?;
        Some(format!("the Lease is not renewed: {denial}"))
    }

    /// That the control plane rejects the credentials that it has accepted before; `None` if it does not. As long as it
    /// was never of use, [`Readiness::unusable`] says so.
    pub(super) fn rejected(&self) -> Option<String> {
        self.context.kcp.rejects_credentials().then(|| rejects(self.context.kcp.server()))
    }

    /// Why nothing can be known of the control plane, if it was asked: it has never answered, rejects the credentials,
    /// does not list its kinds, or lacks some.
    pub(super) fn unusable(&self) -> Option<String> {
        match &*self.kinds.lock() {
            Kinds::Unusable(why) => Some(why.clone()),
            Kinds::Lacking(kinds) => Some(not_served(kinds)),
            Kinds::Unasked | Kinds::Unknown(_) | Kinds::Served => None,
        }
    }

    /// Records a finished pass.
    pub(super) fn reconciled(&self, subject: &Subject) {
        match subject {
            Subject::Source(key) => {
                self.reconciled.lock().insert(key.clone());
            }
            Subject::Runtime(_)
            | Subject::Watcher(_)
            | Subject::Gateway(_)
            | Subject::Release(_)
            | Subject::Setup(..) => {}
        }
    }

    /// Checks whether the control plane serves all required kinds.
    pub(super) async fn ask_for_kinds(&self) -> bool {
        let kinds = match self.lacking().await {
            Ok(lacking) if lacking.is_empty() => Kinds::Served,
            Ok(lacking) => {
                let kinds = lacking.join(", ");
                if self.said.lock().admits(&kinds, Instant::now()) {
                    tracing::warn!(kinds, "the control plane lacks kinds");
                }
                Kinds::Lacking(lacking)
            }
            Err(error) => {
                let is_unusable =
                    error.is_unreachable() || matches!(error, Error::Unauthorized { .. } | Error::Forbidden { .. });
                let server = self.context.kcp.server();
                let error = match &error {
                    Error::Unreachable { cause, .. } => {
                        format!("the control plane at {server} cannot be reached: {cause}")
                    }
                    Error::Unauthorized { .. } => rejects(server),
                    // Of an authenticated user, this is rare: each has this right unless it was taken away.
                    Error::Forbidden { message, .. } => {
                        let why =
                            format!("the control plane at {server} does not list its kinds to this process: {message}");
                        why.trim_end_matches([':', ' ']).to_owned()
                    }
                    other => chain(other),
                };
                let now = Instant::now();
                // Until work begins, this is the only line about an outage.
                if self.said.lock().admits("", now) {
                    tracing::warn!(error, "the control plane does not answer");
                }
                if is_unusable { Kinds::Unusable(error) } else { Kinds::Unknown(error) }
            }
        };
        let served = matches!(kinds, Kinds::Served);
        *self.kinds.lock() = kinds;
        served
    }

    async fn lacking(&self) -> Result<Vec<String>, Error> {
        let ours = ["Kyma", "Manifest", "ModuleReleaseMeta", "ModuleTemplate", "Watcher"];
        let mut kinds: Vec<Gvk> = ours.iter().map(|kind| Gvk::new(KYMA_GROUP, KYMA_VERSION, kind)).collect();
        // A control plane of Lifecycle Manager has no GitSources, and is observed as it is.
        if self.context.observation.is_none() {
            kinds.push(Gvk::new(TIDEGATE_GROUP, "v1alpha1", "GitSource"));
        }
        let mut lacking = Vec::new();
        for gvk in kinds {
            if self.context.kcp.kind(&gvk).await?.is_none() {
                lacking.push(gvk.kind.to_string());
            }
        }
        Ok(lacking)
    }
}

fn rejects(server: &str) -> String {
    format!("the control plane at {server} rejected the credentials of this process")
}

fn not_served(kinds: &[String]) -> String {
    format!("the control plane does not serve {}: apply what `tidegate crds` prints", kinds.join(", "))
}

/// That a right is missing to hold the Lease.
fn not_allowed(denial: &str) -> String {
    format!("not leading: {denial}")
}

/// Who leads, and how long this process may have to wait. A holder that has stopped may not have released the Lease:
/// Lifecycle Manager does not. This process compares no clocks, so it only says what it has seen itself.
fn waiting(holder: &Holder, now: Instant) -> String {
    let (name, silence, wait) = (&holder.name, holder.silence(now).as_secs(), holder.wait(now).as_secs());
    format!(
        "not leading: {name} holds the Lease, and this process has seen no renewal for {silence} s; it takes over when \
         the Lease is released, or in {wait} s if it is not renewed"
    )
}
