//! Compares what a landscape should have with what lives, object by object.
//!
//! `tidegate diff --live` compares the landscape after a revision, and `tidegate run --observe` the one that the daemon
//! would bring about now. Both use the daemon's functions: they decide what runtimes get, what is pruned, and what
//! stays.
//!
//! `world` is what is read of the control plane, `desired` the objects that runtimes share, `compare` one object,
//! `route` the VirtualService of a Watcher, and `runtime` one runtime. This module does not decide which definitions
//! reach the control plane: its callers do, and pass the landscape afterwards as an [`Intent`]. It writes nothing. With
//! [`Method::DryRun`] it asks API servers what an apply would change; with [`Method::Reads`] it computes that here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_cluster::Error;
use tidegate_core::{
    api::Kyma,
    content::ContentId,
    definition::{Definitions, Kind},
    diagnostic::{Diagnostic, FilePosition},
    intake::Id,
    landscape::Landscape,
    maintenance::Policy,
    name::Key,
    object::{Object, ObjectId},
    plan::{PolicyAt, Settings},
    render::CompleteModule,
    template::Library,
};
use tidegate_diff::{
    clean::REFUSED,
    gather::ObjectDifference,
    model::{Effect, Held, NotKnown, Unreached},
    policy::Labels,
};

use self::{compare::Comparer, desired::Agents, world::typed};

pub(crate) mod compare;
pub(crate) mod desired;
pub(crate) mod route;
pub(crate) mod runtime;
pub(crate) mod world;

/// How the change of an existing object is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// By the API server's answer to a dry run. It needs the right to patch.
    DryRun,
    /// From the live object, without any request but reads.
    Reads,
}

/// What definitions, templates and options want. All comparisons share it.
pub(crate) struct Wanted {
    /// The definitions, with the objects of modules in git.
    pub(crate) definitions: Definitions,
    /// The sources whose modules are among the definitions.
    pub(crate) sources: BTreeSet<Key>,
    pub(crate) library: Library,
    pub(crate) settings: Settings,
    /// The agent in runtimes. Without it, what others installed is left out of the comparison.
    pub(crate) agents: Option<Agents>,
}

/// The policy of maintenance windows at some time.
#[derive(Clone, Copy)]
pub(crate) struct WindowsAt<'a> {
    /// Without a policy, no upgrade that requires downtime is installed.
    pub(crate) policy: Option<&'a Policy>,
    pub(crate) now: Timestamp,
    pub(crate) size_min: Duration,
}

/// The objects of modules in registries, by content, beside those of [`Wanted`].
pub(crate) type Layers = BTreeMap<ContentId, CompleteModule>;

/// The control plane before and after a change.
pub(crate) struct Intent {
    /// The landscape after the change.
    pub(crate) after: Landscape,
    /// The landscape now.
    pub(crate) before: Landscape,
    /// Kymas that would be deleted.
    pub(crate) gone: BTreeSet<Key>,
    /// Modules of other repositories that come, of which only the names of the objects are known.
    pub(crate) outlines: Layers,
    /// The same until a user confirms what waits; `None` if nothing waits.
    pub(crate) until_confirmed: Option<Box<Intent>>,
}

/// The result for one cluster.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) found: Vec<ObjectDifference>,
    /// The ModuleTemplates of modules that stay in the runtime, because users have custom resources of them.
    pub(crate) in_use: BTreeSet<Key>,
    /// Objects with the desired content that Tidegate has not applied yet: it would take over their fields.
    pub(crate) to_take_over: Vec<ObjectId>,
    pub(crate) held: Vec<Held>,
    pub(crate) unknown: Vec<NotKnown>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) problems: Vec<Unreached>,
}

impl<'a> From<&'a PolicyAt> for WindowsAt<'a> {
    fn from(at: &'a PolicyAt) -> WindowsAt<'a> {
        WindowsAt { policy: Some(&at.policy), now: at.now, size_min: at.size_min }
    }
}

/// Whether an error concerns the cluster as a whole rather than one object.
pub(crate) fn concerns_all(error: &Error) -> bool {
    error.is_unreachable() || matches!(error, Error::Unauthorized { .. } | Error::TooManyRequests { .. })
}

/// Whether the API server rejected an object.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Invalid { .. } | Error::UndeclaredField { .. })
}

/// The names of an object's field managers.
pub(crate) fn managers(object: &Object) -> Arc<[String]> {
    let entries = object.value().pointer("/metadata/managedFields").and_then(Value::as_array);
    let names = entries.into_iter().flatten().filter_map(|entry| entry["manager"].as_str());
    names.map(str::to_owned).collect::<BTreeSet<String>>().into_iter().collect()
}

/// The landscape of these objects.
pub(crate) fn landscape_of(objects: &BTreeMap<Id, Value>) -> Landscape {
    let mut landscape = Landscape::default();
    for (id, value) in objects {
        insert(&mut landscape, id, value);
    }
    landscape
}

/// Adds an object to a landscape, in place of one with the same key.
pub(crate) fn insert(landscape: &mut Landscape, (kind, key): &Id, value: &Value) {
    fn typed_into<K: DeserializeOwned>(into: &mut BTreeMap<Key, Arc<K>>, key: &Key, value: &Value) {
        if let Some(object) = typed(value) {
            into.insert(key.clone(), Arc::new(object));
        }
    }
    match kind {
        Kind::ModuleTemplate => typed_into(&mut landscape.templates, key, value),
        Kind::ModuleReleaseMeta => typed_into(&mut landscape.releases, key, value),
        Kind::Watcher => typed_into(&mut landscape.watchers, key, value),
        Kind::Kyma => typed_into(&mut landscape.kymas, key, value),
        Kind::Setup(kind) => drop(landscape.setup.insert(*kind, key, value.clone())),
    }
}

/// Removes an object from the landscape after a change.
pub(crate) fn remove(intent: &mut Intent, (kind, key): &Id) {
    match kind {
        Kind::ModuleTemplate => drop(intent.after.templates.remove(key)),
        Kind::ModuleReleaseMeta => drop(intent.after.releases.remove(key)),
        Kind::Watcher => drop(intent.after.watchers.remove(key)),
        Kind::Kyma => {
            intent.after.kymas.remove(key);
            intent.gone.insert(key.clone());
        }
        Kind::Setup(kind) => intent.after.setup.remove(*kind, key),
    }
}

// === impl Outcome ===

impl Outcome {
    /// Records that a comparison failed, or that the API server rejected an object.
    pub(crate) fn problem(
        &mut self,
        target: &str,
        place: Option<&FilePosition>,
        error: &Error,
        comparer: &Comparer<'_>,
    ) {
        let message = comparer.shared.scrub(&error.to_string());
        if !is_refusal(error) {
            self.problems.push(Unreached { target: target.to_owned(), message });
            return;
        }
        let diagnostic = Diagnostic::error(REFUSED, format!("{target} rejects the object: {message}"));
        self.diagnostics.push(match place {
            Some(place) => diagnostic.at(place.clone()),
            None => diagnostic,
        });
    }

    /// Adds what takes effect at once to what is there after a confirmation.
    pub(crate) fn follow(&mut self, at_once: Outcome) {
        let after = std::mem::replace(&mut self.found, at_once.found);
        for mut found in after {
            if self.found.iter().any(|known| known.effect == found.effect && known.is_alike(&found)) {
                continue;
            }
            if found.effect != Effect::Held {
                found.effect = Effect::NeedsConfirmation;
                // What keeps it until then is resolved by the confirmation.
                self.found.retain(|known| known.effect != Effect::Held || !known.is_alike(&found));
            }
            self.found.push(found);
        }
        self.in_use.extend(at_once.in_use);
        self.held.extend(at_once.held);
        let is_new = |one: &NotKnown| self.unknown.iter().all(|known| known.value != one.value);
        let unknown: Vec<NotKnown> = at_once.unknown.into_iter().filter(is_new).collect();
        self.unknown.extend(unknown);
        self.problems.extend(at_once.problems);
    }

    pub(crate) fn append(&mut self, other: Outcome) {
        self.found.extend(other.found);
        self.in_use.extend(other.in_use);
        self.to_take_over.extend(other.to_take_over);
        self.held.extend(other.held);
        self.unknown.extend(other.unknown);
        self.diagnostics.extend(other.diagnostics);
        self.problems.extend(other.problems);
    }
}

// === impl Intent ===

impl Intent {
    /// The labels of all runtimes: the new ones, if the runtime stays.
    pub(crate) fn labels(&self) -> Labels {
        let kymas = self.before.kymas.iter().chain(&self.after.kymas);
        kymas.map(|(key, kyma)| (key.clone(), kyma.metadata.labels.clone().unwrap_or_default())).collect()
    }

    /// All runtimes, before and afterwards.
    pub(crate) fn runtimes(&self) -> BTreeSet<Key> {
        self.before.kymas.keys().chain(self.after.kymas.keys()).cloned().collect()
    }

    /// Keeps ModuleTemplates that would be deleted. Returns those.
    pub(crate) fn keep(&mut self, templates: &BTreeSet<Key>) -> BTreeSet<Key> {
        let until = self.until_confirmed.as_mut().map(|until| until.keep(templates)).unwrap_or_default();
        let goes = |key: &&Key| !self.after.templates.contains_key(*key);
        let template = |key: &Key| Some((key.clone(), Arc::clone(self.before.templates.get(key)?)));
        let kept: Vec<_> = templates.iter().filter(goes).filter_map(template).collect();
        self.after.templates.extend(kept.iter().cloned());
        kept.into_iter().map(|(key, _)| key).chain(until).collect()
    }

    /// A Kyma after the change, or before it if the change deletes the Kyma, and its landscape.
    pub(crate) fn kyma(&self, key: &Key) -> Option<(&Landscape, &Kyma)> {
        let landscape = if self.after.kymas.contains_key(key) { &self.after } else { &self.before };
        landscape.kymas.get(key).map(|kyma| (landscape, &**kyma))
    }
}
