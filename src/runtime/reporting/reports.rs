//! What reports changes in runtimes, rendered once for all runtimes that share it.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::super::{RuntimePass, shelf::Shelf};
use tidegate_core::{
    landscape::{Landscape, SourceName},
    object::Digest,
    plan::reporting::{Address, Agent, Drift},
    render::{self, Mark, Reporting, SharedObjects},
    template::{self, Library, Templates},
};

use crate::controller::Context;

/// What runtimes share, by what it is made from besides the landscape.
#[derive(Default)]
pub struct Reports {
    /// All of it.
    reports: Shelf<(Kin, Option<Arc<str>>), Inputs, Report>,
    /// What has no part in who we are in a runtime.
    parts: Shelf<Kin, Inputs, Parts>,
}

/// Where the events of a runtime go, and what of.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    /// Where they go.
    pub(super) address: &'a Address,
    /// The kinds that it has of us.
    pub(super) drift: &'a Drift,
    /// As whom we write there, where that is known. As a rule it is the same in all runtimes.
    pub(super) user: Option<&'a Arc<str>>,
}

/// Runtimes that get the same objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kin {
    /// Where their events go, and the kinds that they have; none without an agent.
    agent: Option<(Address, Drift)>,
    /// The source of their Kymas, if that overrides templates.
    overriding: Option<SourceName>,
}

/// What a report is made from and may change.
#[derive(Clone)]
struct Inputs {
    landscape: Arc<Landscape>,
    library: Arc<Library>,
    /// What runtimes trust, and its digest.
    trusted: Option<(Arc<[u8]>, Digest)>,
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

/// Objects of an agent that runtimes of a kin share.
struct Parts {
    objects: SharedObjects,
    own: Digest,
    problems: Vec<String>,
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
    pub(super) async fn reported_by(
        &self,
        pass: &RuntimePass<'_>,
        landscape: &Arc<Landscape>,
        told: Option<Told<'_>>,
    ) -> Arc<Report> {
        let context = pass.context;
        let bundle = context.stores.ca_bundle();
        let inputs = Inputs {
            landscape: Arc::clone(landscape),
            library: context.library(),
            trusted: bundle.map(|bundle| (Arc::clone(&bundle), Digest::of_bytes(&bundle))),
        };
        let kin = Kin {
            agent: told.map(|told| (told.address.clone(), told.drift.clone())),
            overriding: inputs.library.overriding(&pass.kyma.metadata),
        };
        let user = told.and_then(|told| told.user.cloned());
        let make = async {
            let parts = self.parts.get(kin.clone(), inputs.clone(), make_parts(context, &inputs, &kin)).await;
            make_report(context, &inputs, &kin, user.clone(), parts).await
        };
        self.reports.get((kin.clone(), user.clone()), inputs.clone(), make).await
    }
}

async fn make_parts(context: &Context, inputs: &Inputs, kin: &Kin) -> Parts {
    let (agent, of_kin) = (context.agent.clone(), kin.clone());
    let render = move |library: &Library| parts(agent.as_ref(), library, &of_kin);
    context.renderer.with_library(&inputs.library, render).await
}

async fn make_report(
    context: &Context,
    inputs: &Inputs,
    kin: &Kin,
    user: Option<Arc<str>>,
    parts: Arc<Parts>,
) -> Report {
    let (agent, made_of, of_kin) = (context.agent.clone(), inputs.clone(), kin.clone());
    let render = move |_: &Library| report(agent.as_ref(), &made_of, &of_kin, user.as_deref(), &parts);
    context.renderer.with_library(&inputs.library, render).await
}

// === impl Inputs ===

impl PartialEq for Inputs {
    fn eq(&self, other: &Inputs) -> bool {
        let trusted = |of: &Inputs| of.trusted.as_ref().map(|(_, digest)| *digest);
        Arc::ptr_eq(&self.landscape, &other.landscape)
            && Arc::ptr_eq(&self.library, &other.library)
            && trusted(self) == trusted(other)
    }
}

/// The webhook configuration, and with it all that runtimes share.
fn report(agent: Option<&Agent>, inputs: &Inputs, kin: &Kin, user: Option<&str>, parts: &Parts) -> Report {
    let Inputs { landscape, library, trusted } = inputs;
    let (watches, unusable) = render::watches(landscape.watchers.values().map(|watcher| &**watcher));
    for error in unusable {
        tracing::warn!(error = %error, "watcher is left out of the webhook configurations");
    }
    let bundle = trusted.as_ref().map(|(bundle, _)| STANDARD.encode(bundle));
    let mut reporting = Reporting::of_watchers(&watches, bundle.as_deref());
    if let Some((agent, (_, drift))) = agent.zip(kin.agent.as_ref()) {
        reporting.timeout_seconds = agent.program.timeout_seconds();
        reporting.drift = Some(drift);
        reporting.user = user;
    }
    // What all runtimes share takes the overrides of a source only if everything behind it is from that source.
    let of_watchers = library.of_all(landscape.watchers.values().map(|watcher| &watcher.metadata));
    let (mut problems, mut webhook) = (Vec::new(), None);
    match render::webhook(of_watchers, &reporting) {
        Ok(object) => webhook = Some(object),
        Err(error) => problems.push(error.to_string()),
    }
    problems.extend(parts.problems.iter().cloned());
    let webhook = SharedObjects::new(&webhook, Mark::Runtime, &|_| None);
    let objects = Arc::new(SharedObjects::joined([&webhook, &parts.objects]));
    let state = |watcher: &tidegate_core::api::Watcher| {
        let metadata = &watcher.metadata;
        json!([metadata.uid, metadata.name, metadata.generation])
    };
    let states: Vec<Value> = landscape.watchers.values().map(|watcher| state(watcher)).collect();
    let digest = Digest::all([&objects.digest, &Digest::from_value(&Value::from(states))]);
    let (library, overriding) = (Arc::clone(library), kin.overriding.clone());
    Report { objects, digest, own: parts.own, problems, library, overriding }
}

/// What has no part in who we are.
fn parts(agent: Option<&Agent>, library: &Library, kin: &Kin) -> Parts {
    let of_kymas = library.of_source(kin.overriding.as_ref());
    let (mut own, mut objects, mut problems) = (Value::Null, Vec::new(), Vec::new());
    if let Some((agent, (address, _))) = agent.zip(kin.agent.as_ref()) {
        for result in render::agent(of_kymas, agent, address) {
            match result {
                Ok(object) => objects.push(object),
                Err(error) => problems.push(error.to_string()),
            }
        }
        match own_digests(of_kymas, agent, address) {
            Ok(digests) => own = digests,
            Err(error) => problems.push(error.to_string()),
        }
    }
    Parts { objects: SharedObjects::new(&objects, Mark::Runtime, &|_| None), own: Digest::from_value(&own), problems }
}

/// What the certificate has no part in.
fn own_digests(templates: &Templates, agent: &Agent, address: &Address) -> Result<Value, template::Error> {
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
