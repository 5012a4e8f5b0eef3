//! Takes the objects of kcp landscapes over from kcp-operator, in place.
//!
//! kcp-operator and the daemon make objects with the same names. The daemon writes none that lacks the label of its
//! resource, so each object has to be handed over once:
//!
//! 1. Owner references to resources of kcp-operator go. The Deployments belong to `Compiled…` objects, which nothing
//!    needs any more: with one of those, the garbage collector would delete its Deployment. So this comes first.
//!    Objects other than Deployments get the label `tidegate.dev/setup` of their resource in the same write.
//! 2. What kcp-operator updated becomes Tidegate's, as if it had applied it. Otherwise, fields that only kcp-operator
//!    writes would stay for ever: an apply removes only its own.
//! 3. Secrets, ConfigMaps, Issuers and Services become as Tidegate renders them. No pod restarts because of that, and
//!    no certificate is issued. Secrets that pods are to mount are created.
//! 4. Deployments get the label.
//! 5. And their fields become Tidegate's.
//!
//! Deployments and Certificates stay as they are, see [`super::hold`]: only the label and an annotation come, and in
//! Certificates what concerns neither the certificate nor its key: that the key is not replaced on renewal, and the
//! labels of the Secret. Deployments come last because the annotation contains a digest of what their pods mount, and
//! step 3 changes Secrets. With `--now`, they get no such annotation, or lose it, and the daemon applies them, in its
//! order and with its gates.
//!
//! [`decide::next`] is pure: it looks at everything, and returns the writes of the first step that is not done. After
//! them, everything is read again. So a process that is killed anywhere leaves a state from which the next one goes on,
//! and a daemon may run meanwhile. Each write is conditional on the version that was read. An object with the label is
//! handed over, and its annotation is not set again: what has changed since must not be held.
//!
//! Only objects that a resource has as Tidegate plans it are handed over, and only if they are recognizably those of
//! kcp-operator: by owner, label or field manager. Objects of others stay, and so does what kcp-operator left of
//! resources that have other names now. A resource without a plan, or whose templates are not known, is skipped and
//! named: with another image or other templates than the daemon's, its first pass would end every hold. This module
//! deletes nothing. While kcp-operator holds its Lease, it writes nothing.

mod decide;
mod enact;
mod read;
mod templates;
mod words;

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_cluster::OnConflict;
use tidegate_core::{api::setup::Kind, landscape::setup::Resources, name::Key, object::Object};

use super::state::{Known, ObjectName, Observed};

pub(crate) use self::{
    decide::{left, next},
    enact::{Written, enact},
    read::{leases, plain, read},
    templates::DaemonTemplates,
};

/// An object of a namespace.
pub(crate) type Place = (String, ObjectName);

/// What the control plane has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The resources.
    pub(crate) resources: Resources,
    /// All objects of the kinds that resources have, in their namespaces.
    pub(crate) objects: BTreeMap<Place, Object>,
    /// The objects that the API server rejected, and why: one sentence. They are not written again.
    pub(crate) rejected: BTreeMap<Place, String>,
    /// How many objects of the kinds `Compiled…` there are.
    pub(crate) compiled: usize,
}

/// One act: one write.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Removes owner references, or adds or removes marks: a merge patch.
    Patch {
        /// The object.
        place: Place,
        /// The patch. It names the version that was read.
        patch: Value,
        /// Whether it removes owner references.
        frees: bool,
        /// Whether it adds the label of a resource.
        marks: bool,
    },
    /// Makes kcp-operator's fields of an object Tidegate's.
    Claim(Place, Box<Object>),
    /// Applies an object.
    Apply(Place, Box<Object>, OnConflict),
}

/// A resource with what is known of its objects.
struct Subject<'a> {
    kind: Kind,
    key: &'a Key,
    known: Known,
    observed: Observed,
}

// === impl Act ===

impl Act {
    /// The object that is written.
    pub(crate) fn place(&self) -> &Place {
        match self {
            Act::Patch { place, .. } | Act::Claim(place, _) | Act::Apply(place, ..) => place,
        }
    }
}

#[cfg(test)]
mod tests;
