//! What reports changes in runtimes, rendered once for all runtimes that share it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::super::Round;
use crate::{
    controller::Context,
    landscape::{Landscape, SourceName},
    object::Digest,
    plan::watch::{Address, Agent, Drift},
    render::{self, Mark, Reporting, SharedObjects},
    template::{Library, Templates},
};

/// What runtimes share, by what it is made from besides the landscape.
#[derive(Default)]
pub struct Reports(Mutex<HashMap<Kin, (Inputs, Arc<Report>)>>);

/// Runtimes that get the same objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kin {
    /// Where their events go, and the kinds that they have; none without an agent.
    agent: Option<(Address, Drift)>,
    /// The source of their Kymas, if that overrides templates.
    overriding: Option<SourceName>,
}

/// What a report is made from and may change.
struct Inputs {
    landscape: Arc<Landscape>,
    library: Arc<Library>,
    /// Digest of what runtimes trust.
    trusted: Option<Digest>,
}

/// What runtimes of a kin share.
pub(super) struct Report {
    pub(super) objects: Arc<SharedObjects>,
    /// Of the objects, and of the states of the Watchers that they were made of: an earlier text that comes back is another
    /// state.
    pub(super) digest: Digest,
    /// Of what a runtime's own objects are made from, but for its certificate.
    pub(super) own: Digest,
    /// What could not be rendered.
    pub(super) problems: Vec<String>,
    library: Arc<Library>,
    overriding: Option<SourceName>,
}

// === impl Report ===

impl Report {
    /// The templates of a runtime's own objects.
    pub(super) fn templates(&self) -> &Templates {
        self.library.of_source(self.overriding.as_ref())
    }
}

// === impl Reports ===

impl Reports {
    /// What a runtime shares with others.
    pub(super) fn of(
        &self,
        round: &Round<'_>,
        landscape: &Arc<Landscape>,
        agent: Option<(&Address, &Drift)>,
    ) -> Arc<Report> {
        let bundle = round.context.stores.ca_bundle();
        let inputs = Inputs {
            landscape: Arc::clone(landscape),
            library: round.context.library(),
            trusted: bundle.as_deref().map(Digest::of_bytes),
        };
        let kin = Kin {
            agent: agent.map(|(address, drift)| (address.clone(), drift.clone())),
            overriding: inputs.library.overriding(&round.kyma.metadata),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, report)) = known.get(&kin)
            && of.are(&inputs)
        {
            return Arc::clone(report);
        }
        let report = Arc::new(report(round.context, &inputs, &kin, bundle.as_deref()));
        // What was made from older inputs is of no use.
        known.retain(|_, (of, _)| of.are(&inputs));
        known.insert(kin, (inputs, Arc::clone(&report)));
        report
    }
}

// === impl Inputs ===

impl Inputs {
    fn are(&self, other: &Inputs) -> bool {
        Arc::ptr_eq(&self.landscape, &other.landscape)
            && Arc::ptr_eq(&self.library, &other.library)
            && self.trusted == other.trusted
    }
}

fn report(context: &Context, inputs: &Inputs, kin: &Kin, bundle: Option<&[u8]>) -> Report {
    let Inputs { landscape, library, .. } = inputs;
    let (watches, unusable) = render::watches(landscape.watchers.values().map(|watcher| &**watcher));
    for error in unusable {
        tracing::warn!(error = %error, "watcher is left out of the webhook configurations");
    }
    let bundle = bundle.map(|bundle| STANDARD.encode(bundle));
    let mut reporting = Reporting::of_watchers(&watches, bundle.as_deref());
    let agent = context.agent.as_ref().zip(kin.agent.as_ref());
    if let Some((agent, (_, drift))) = agent {
        reporting.timeout_seconds = agent.program.timeout_seconds();
        reporting.drift = Some(drift);
    }
    // What all runtimes share takes the overrides of a source only if everything behind it is from that source.
    let of_watchers = library.of_all(landscape.watchers.values().map(|watcher| &watcher.metadata));
    let mut rendered = vec![render::webhook(of_watchers, &reporting)];
    let of_kymas = library.of_source(kin.overriding.as_ref());
    let mut own = Value::Null;
    let mut problems = Vec::new();
    if let Some((agent, (address, _))) = agent {
        rendered.extend(render::agent(of_kymas, agent, address));
        match own_digests(of_kymas, agent, address) {
            Ok(digests) => own = digests,
            Err(error) => problems.push(error.to_string()),
        }
    }
    let mut objects = Vec::new();
    for result in rendered {
        match result {
            Ok(object) => objects.push(object),
            Err(error) => problems.push(error.to_string()),
        }
    }
    let objects = Arc::new(SharedObjects::new(&objects, Mark::Runtime, &|_| None));
    let state = |watcher: &crate::api::Watcher| {
        let metadata = &watcher.metadata;
        json!([metadata.uid, metadata.name, metadata.generation])
    };
    let states: Vec<Value> = landscape.watchers.values().map(|watcher| state(watcher)).collect();
    let digest = Digest::all([&objects.digest, &Digest::of(&Value::from(states))]);
    let library = Arc::clone(library);
    Report { objects, digest, own: Digest::of(&own), problems, library, overriding: kin.overriding.clone() }
}

/// What the certificate has no part in.
fn own_digests(templates: &Templates, agent: &Agent, address: &Address) -> Result<Value, crate::template::Error> {
    let secret = render::agent_secret(templates, [])?.digest().to_string();
    let deployment = if agent.program.restarts_for_certificates() {
        Some(render::agent_deployment(templates, agent, address, Some("-"))?.digest().to_string())
    } else {
        None
    };
    let pull_secret = match &agent.pull_secret {
        Some(name) => {
            let secret = render::agent_pull_secret(templates, name, "-", &BTreeMap::new(), [])?;
            Some(secret.digest().to_string())
        }
        None => None,
    };
    Ok(json!([secret, deployment, pull_secret]))
}
