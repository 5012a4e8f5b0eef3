//! The data of a pass over a Watcher: known at its start, remembered between passes, and observed by its requests.

use std::{
    collections::{BTreeMap, HashMap},
    sync::MutexGuard,
};

use tidegate_cluster::Kind;
use tidegate_core::{
    api::{Watcher, names::finalizer},
    conditions,
    name::Key,
    object::{Digest, Gvk, Object},
    plan::reporting,
};
use tidegate_process::lock::Mutex;

/// What this process remembers of all Watchers: the digest of each VirtualService that it applied.
#[derive(Debug, Default)]
pub struct AppliedVirtualServices(Mutex<HashMap<Key, Digest>>);

/// The data at the start of a pass: from watches, the configuration and earlier passes.
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    /// The Watcher, from its watch.
    pub(super) watcher: &'a Watcher,
    /// Namespace and name of the Watcher, and of its VirtualService.
    pub(super) key: &'a Key,
    /// The VirtualService that this process applied and has not deleted since.
    pub(super) remembered: Option<Digest>,
    /// The older Watcher of the same manager that sends its events to another service.
    pub(super) rival: Option<Key>,
    /// The other Watchers of its manager, sorted.
    pub(super) companions: Vec<Key>,
    /// The Gateways that its selector matches.
    pub(super) gateways: Vec<reporting::Gateway>,
    /// Whether agents send to an address of this process.
    pub(super) has_address: bool,
    /// Whether to compare the VirtualService although no change is known.
    pub(super) look: bool,
}

/// The results of this pass's acts so far.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    /// Whether the Watcher has Tidegate's finalizer.
    pub(super) charge: Charge,
    /// The kinds that were looked up; `None` for a kind that the control plane does not serve.
    pub(super) kinds: BTreeMap<Gvk, Option<Kind>>,
    /// The VirtualService in the control plane.
    pub(super) route: Route,
    /// The rendered VirtualService, or why there can be none.
    pub(super) desired: Option<Result<Object, String>>,
    /// Whether the status is written.
    pub(super) is_reported: bool,
}

/// Whether the Watcher has Tidegate's finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// It never had the finalizer, or lost it before this pass.
    None,
    /// It has the finalizer.
    Taken,
    /// This pass has removed the finalizer.
    Released,
}

/// The state of the VirtualService in the control plane, as far as this pass knows it.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// The pass has not read it.
    Unread,
    /// It does not exist, or is being deleted.
    Absent,
    /// The pass has read it.
    Found(Object),
    /// The pass has applied it.
    Applied,
    /// The API server rejects it: one sentence.
    Refused(String),
}

// === impl AppliedVirtualServices ===

impl AppliedVirtualServices {
    pub(super) fn recall(&self, key: &Key) -> Option<Digest> {
        self.lock().get(key).copied()
    }

    pub(super) fn remember(&self, key: &Key, applied: Option<Digest>) {
        match applied {
            Some(digest) => self.lock().insert(key.clone(), digest),
            None => self.lock().remove(key),
        };
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Digest>> {
        self.0.lock()
    }
}

// === impl Known ===

impl Known<'_> {
    /// Whether this exact VirtualService was applied: by this process or, according to the status, by an earlier one.
    pub(super) fn has_applied_this(&self, digest: &Digest) -> bool {
        self.remembered.as_ref() == Some(digest) || self.recorded() == Some(digest.to_string().as_str())
    }

    /// Whether any VirtualService was applied for this Watcher.
    pub(super) fn has_applied(&self) -> bool {
        self.remembered.is_some() || self.recorded().is_some()
    }

    fn recorded(&self) -> Option<&str> {
        let status = self.watcher.status.as_ref()?;
        conditions::recorded(&status.conditions, conditions::APPLIED)
    }
}

// === impl Observed ===

impl Observed {
    /// The state before the first act.
    pub(super) fn new(watcher: &Watcher) -> Observed {
        let is_held = watcher.metadata.finalizers.iter().flatten().any(|name| name == finalizer::WATCHER);
        Observed {
            charge: if is_held { Charge::Taken } else { Charge::None },
            kinds: BTreeMap::new(),
            route: Route::Unread,
            desired: None,
            is_reported: false,
        }
    }
}
