//! What is known of a Watcher: before its pass asks anything, from pass to pass, and as the answers come in.

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

/// What this process remembers of all Watchers: the digest of the VirtualService that it applied.
#[derive(Debug, Default)]
pub struct AppliedVirtualServices(Mutex<HashMap<Key, Digest>>);

/// What is known before the pass makes a request: from watches, the configuration and earlier passes.
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    /// The Watcher, as its watch shows it.
    pub(super) watcher: &'a Watcher,
    /// Namespace and name of the Watcher, and of its VirtualService.
    pub(super) key: &'a Key,
    /// The VirtualService that this process applied and has not deleted since.
    pub(super) remembered: Option<Digest>,
    /// The older Watcher that leads the events of the same manager to another service.
    pub(super) rival: Option<Key>,
    /// The other Watchers of its manager, sorted.
    pub(super) companions: Vec<Key>,
    /// The Gateways that its selector matches.
    pub(super) gateways: Vec<reporting::Gateway>,
    /// Whether agents send to an address of this process.
    pub(super) has_address: bool,
    /// Whether the VirtualService is compared although nothing is known to have changed.
    pub(super) look: bool,
}

/// What the requests of this pass have answered so far.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    /// Whether our finalizer holds the Watcher.
    pub(super) charge: Charge,
    /// The kinds that were asked for; `None` for one that the control plane does not serve.
    pub(super) kinds: BTreeMap<Gvk, Option<Kind>>,
    /// The VirtualService in the control plane.
    pub(super) route: Route,
    /// The VirtualService as it should be, or why there can be none, once it is rendered.
    pub(super) desired: Option<Result<Object, String>>,
    /// Whether the status is written.
    pub(super) is_reported: bool,
}

/// Whether our finalizer holds the Watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// It has never borne our finalizer, or no longer does.
    None,
    /// It bears our finalizer.
    Taken,
    /// This pass has dropped our finalizer.
    Released,
}

/// What this pass knows of the VirtualService in the control plane.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// It was not read.
    Unread,
    /// There is none, or it is on its way out.
    Absent,
    /// It was read.
    Found(Object),
    /// It was applied.
    Applied,
    /// The API server does not accept it: one sentence.
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
    /// Whether just this VirtualService was applied, by this process or, as the status records, by an earlier one.
    pub(super) fn has_applied_this(&self, digest: &Digest) -> bool {
        self.remembered.as_ref() == Some(digest) || self.recorded() == Some(digest.to_string().as_str())
    }

    /// Whether a VirtualService was applied for this Watcher, in whatever form.
    pub(super) fn has_applied(&self) -> bool {
        self.remembered.is_some() || self.recorded().is_some()
    }

    fn recorded(&self) -> Option<&str> {
        let status = self.watcher.status.as_ref()?;
        conditions::message(&status.conditions, conditions::APPLIED)
    }
}

// === impl Observed ===

impl Observed {
    /// Nothing is asked yet.
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
