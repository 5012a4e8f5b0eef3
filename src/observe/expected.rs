//! The landscape as the daemon would bring it about: the control plane as the watches show it, with what each source
//! would apply, and everything else that runtimes depend on. Made anew only when a part of it changes.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tidegate_core::{
    definition::Definitions,
    landscape::{self, Landscape},
    name::Key,
    object::Object,
    render::RuntimeCrds,
    template::Library,
};
use tidegate_process::ambient;

use super::Observation;
use crate::{
    controller::{self, Context},
    live::{
        Intent, Wanted, WindowsAt,
        desired::{Agents, Bases},
        insert, remove,
        world::{Trusted, World},
    },
    source::registry::Loaded,
};

/// The landscape as it would be.
pub(super) struct Expected {
    pub(super) wanted: Wanted,
    pub(super) intent: Intent,
    pub(super) bases: Bases,
    trusted: Trusted,
    crds: Arc<RuntimeCrds>,
    parts: Parts,
}

/// What it is made of. Equal parts make equal landscapes.
struct Parts {
    landscape: Arc<Landscape>,
    library: Arc<Library>,
    crds: Arc<RuntimeCrds>,
    bundle: Option<Arc<[u8]>>,
    loaded: BTreeMap<Key, Arc<Loaded>>,
    agents: Option<Agents>,
    policy: Option<Arc<tidegate_core::maintenance::Policy>>,
    /// The version of what sources would apply.
    version: u64,
}

// === impl Observation ===

impl Observation {
    /// The landscape as it would be now.
    pub(super) fn expected(&self, context: &Context) -> Arc<Expected> {
        let parts = Parts::now(context, self.seen.lock().version);
        let mut expected = self.expected.lock();
        if let Some(known) = expected.as_ref().filter(|known| known.parts.are(&parts)) {
            return Arc::clone(known);
        }
        let made = Arc::new(Expected::new(context, self, parts));
        *expected = Some(Arc::clone(&made));
        made
    }
}

// === impl Parts ===

impl Parts {
    fn now(context: &Context, version: u64) -> Parts {
        let stores = &context.stores;
        let loaded = stores.sources().into_iter().filter_map(|source| {
            let key = source.key();
            let loaded = context.sources.loaded(&key)?;
            Some((key, loaded))
        });
        let gateways = stores.gateways();
        let agents = context.agent.as_ref().and_then(|agent| {
            let address = agent.listener.resolve(gateways.iter().map(|entry| &entry.gateway)).ok()?;
            Some(Agents { agent: agent.clone(), address })
        });
        Parts {
            landscape: stores.landscape(),
            library: controller::library(&context.library),
            crds: stores.runtime_crds(),
            bundle: stores.ca_bundle(),
            loaded: loaded.collect(),
            agents,
            policy: context.maintenance.policy(),
            version,
        }
    }

    fn are(&self, other: &Parts) -> bool {
        let same_policy = match (&self.policy, &other.policy) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        Arc::ptr_eq(&self.landscape, &other.landscape)
            && Arc::ptr_eq(&self.library, &other.library)
            && Arc::ptr_eq(&self.crds, &other.crds)
            && self.bundle == other.bundle
            && self.agents == other.agents
            && same_policy
            && self.version == other.version
            && self.loaded.keys().eq(other.loaded.keys())
            && self.loaded.values().zip(other.loaded.values()).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

// === impl Expected ===

impl Expected {
    fn new(context: &Context, observation: &Observation, parts: Parts) -> Expected {
        let mut definitions = Definitions::default();
        for loaded in parts.loaded.values() {
            let known = &loaded.definitions;
            definitions.good.extend(known.good.iter().map(|(id, definition)| (id.clone(), Arc::clone(definition))));
            definitions.modules.extend(known.modules.iter().map(|(id, module)| (*id, Arc::clone(module))));
        }
        let mut before = (*parts.landscape).clone();
        let kymas = context.stores.kymas();
        before.kymas.extend(kymas.into_iter().map(|kyma| (landscape::key(&kyma.metadata), kyma)));
        let mut intent = Intent {
            after: before.clone(),
            before,
            gone: std::collections::BTreeSet::new(),
            outlines: crate::live::Layers::new(),
            until_confirmed: None,
        };
        for source in observation.seen.lock().sources.values() {
            source.after.iter().for_each(|(id, value)| insert(&mut intent.after, id, value));
            for id in &source.gone {
                remove(&mut intent, id);
            }
        }
        let trusted = match &parts.bundle {
            Some(bundle) => Trusted::Bundle(STANDARD.encode(bundle)),
            None => Trusted::Nothing,
        };
        let wanted = Wanted {
            definitions,
            sources: parts.loaded.keys().cloned().collect(),
            library: (*parts.library).clone(),
            settings: context.settings.clone(),
            agents: parts.agents.clone(),
        };
        let crds = Arc::clone(&parts.crds);
        Expected { wanted, intent, bases: Bases::default(), trusted, crds, parts }
    }

    /// The maintenance windows now.
    pub(super) fn windows(&self, context: &Context) -> WindowsAt<'_> {
        let policy = self.parts.policy.as_deref();
        WindowsAt { policy, now: ambient::now(), size_min: context.maintenance.size_min() }
    }

    /// The control plane, as the comparison of a runtime with these Manifests uses it.
    pub(super) fn world(&self, context: &Context, manifests: Vec<Object>) -> World {
        let kcp = Arc::clone(&context.kcp);
        World::of_runtime(kcp, manifests, self.trusted.clone(), (*self.crds).clone())
    }
}
