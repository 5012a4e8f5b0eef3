//! The shared objects of reporting, rendered once for all runtimes that get the same objects.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use tidegate_core::{
    api::shared::ObjectMeta,
    landscape::{Landscape, SourceName},
    object::Digest,
    plan::reporting::{Address, Agent, Drift},
    render::{self, Mark, Reporting, SharedObjects},
    template::{self, Library, Templates},
};

use crate::runtime::{RuntimeContext, RuntimePass, shared_values::SharedValues};

/// The shared objects of all runtimes, valid for one landscape.
#[derive(Default)]
pub(crate) struct Reports {
    /// All objects.
    reports: SharedValues<ReportKey, Inputs, Report>,
    /// The objects that do not depend on our user.
    parts: SharedValues<Kin, Inputs, Parts>,
}

/// Runtimes of a kin, with our user in them and the webhooks that stay there.
type ReportKey = (Kin, Option<Arc<str>>, Arc<[Value]>);

/// What the webhook configuration of a runtime with an agent depends on.
#[derive(Clone, Copy)]
pub(super) struct WebhookInputs<'a> {
    /// Where the agent sends events.
    pub(super) address: &'a Address,
    /// The kinds of the objects that Tidegate applies in the runtime.
    pub(super) drift: &'a Drift,
    /// Our user in the runtime, if known. Usually it is the same in all runtimes.
    pub(super) user: Option<&'a Arc<str>>,
    /// Whether the agent of Lifecycle Manager stays: it needs more time to answer, and is not asked about drift.
    pub(super) is_held: bool,
}

/// Runtimes that get the same objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kin {
    /// Where their agents send events, and the kinds of their objects; none without an agent.
    agent: Option<(Address, Drift)>,
    /// The source of the Kymas, if it overrides templates.
    overriding: Option<SourceName>,
    /// Whether their agents are those of Lifecycle Manager.
    is_held: bool,
}

/// What the objects are rendered from, beside the kin.
#[derive(Clone)]
struct Inputs {
    landscape: Arc<Landscape>,
    library: Arc<Library>,
    /// The CA bundle that runtimes trust, and its digest.
    trusted: Option<(Arc<[u8]>, Digest)>,
}

/// The shared objects of a kin.
pub(super) struct Report {
    /// The objects.
    pub(super) objects: Arc<SharedObjects>,
    /// Digest of the objects and of the generations of the Watchers behind them. A Watcher that gets its former text
    /// again has a new digest: some runtimes may have the text in between.
    pub(super) digest: Digest,
    /// Digest of the inputs of a runtime's own objects, without its certificate.
    pub(super) own: Digest,
    /// Why some objects were not rendered.
    pub(super) problems: Vec<String>,
    library: Arc<Library>,
    overriding: Option<SourceName>,
    /// Whether the objects are the webhook configuration, and nothing else: no agent is configured.
    is_alone: bool,
}

/// The shared objects of a kin that do not depend on our user.
struct Parts {
    objects: SharedObjects,
    own: Digest,
    problems: Vec<String>,
}

// === impl Report ===

impl Report {
    /// The same without the webhook configuration, if nothing else is shared; else `None`.
    pub(super) fn without_webhooks(&self) -> Option<Report> {
        if !self.is_alone {
            return None;
        }
        let objects = SharedObjects::new(&[], Mark::Runtime, &|_| None);
        Some(Report {
            digest: Digest::all([&objects.digest, &self.digest]),
            objects: Arc::new(objects),
            own: self.own,
            problems: self.problems.clone(),
            library: Arc::clone(&self.library),
            overriding: self.overriding.clone(),
            is_alone: true,
        })
    }

    /// The templates for a runtime's own objects.
    pub(super) fn templates(&self) -> &Templates {
        self.library.of_source(self.overriding.as_ref())
    }
}

// === impl Reports ===

impl Reports {
    /// The shared objects of a runtime. `kept` are webhooks that stay while a Watcher cannot be read; `webhook` is none
    /// if no agent is configured.
    pub(super) async fn of_runtime(
        &self,
        pass: &RuntimePass<'_>,
        landscape: &Arc<Landscape>,
        kept: &Arc<[Value]>,
        webhook: Option<WebhookInputs<'_>>,
    ) -> Arc<Report> {
        let context = pass.context;
        let bundle = context.stores.ca_bundle();
        let inputs = Inputs {
            landscape: Arc::clone(landscape),
            library: context.templates.library(),
            trusted: bundle.map(|bundle| (Arc::clone(&bundle), Digest::of_bytes(&bundle))),
        };
        let kin = Kin {
            agent: webhook.map(|webhook| (webhook.address.clone(), webhook.drift.clone())),
            overriding: inputs.library.overriding(&pass.kyma.metadata),
            is_held: webhook.is_some_and(|webhook| webhook.is_held),
        };
        let user = webhook.and_then(|webhook| webhook.user.cloned());
        let make = async {
            let parts = self.parts.get(kin.clone(), inputs.clone(), make_parts(context, &inputs, &kin)).await;
            make_report(context, &inputs, &kin, (user.clone(), Arc::clone(kept)), parts).await
        };
        self.reports.get((kin.clone(), user.clone(), Arc::clone(kept)), inputs.clone(), make).await
    }
}

async fn make_parts(context: RuntimeContext<'_>, inputs: &Inputs, kin: &Kin) -> Parts {
    let (agent, of_kin) = (context.settings.agent.cloned(), kin.clone());
    let render = move |library: &Library| parts(agent.as_ref(), library, &of_kin);
    context.templates.renderer.with_library(&inputs.library, render).await
}

async fn make_report(
    context: RuntimeContext<'_>,
    inputs: &Inputs,
    kin: &Kin,
    (user, kept): (Option<Arc<str>>, Arc<[Value]>),
    parts: Arc<Parts>,
) -> Report {
    let (agent, made_of, of_kin) = (context.settings.agent.cloned(), inputs.clone(), kin.clone());
    let render = move |_: &Library| report(agent.as_ref(), &made_of, &of_kin, (user.as_deref(), &kept), &parts);
    context.templates.renderer.with_library(&inputs.library, render).await
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

/// Renders the webhook configuration, and adds the other shared objects.
fn report(
    agent: Option<&Agent>,
    inputs: &Inputs,
    kin: &Kin,
    (user, kept): (Option<&str>, &[Value]),
    parts: &Parts,
) -> Report {
    let Inputs { landscape, library, trusted } = inputs;
    let (watches, unusable) = render::watches(landscape.watchers.values().map(|watcher| &**watcher));
    for error in unusable {
        tracing::warn!(error = %error, "webhook configurations omit an invalid Watcher");
    }
    let bundle = trusted.as_ref().map(|(bundle, _)| STANDARD.encode(bundle));
    let mut reporting = Reporting::of_watchers(&watches, bundle.as_deref());
    if let Some((agent, (_, drift))) = agent.zip(kin.agent.as_ref()).filter(|_| !kin.is_held) {
        reporting.timeout_seconds = agent.program.timeout_seconds();
        reporting.drift = Some(drift);
        reporting.user = user;
    }
    // Objects of all runtimes use the overrides of a source only if every Watcher is from that source.
    let of_watchers = library.of_all(landscape.watchers.values().map(|watcher| &watcher.metadata));
    let (mut problems, mut webhook) = (Vec::new(), None);
    match render::webhook(of_watchers, &reporting) {
        Ok(mut object) => {
            if !kept.is_empty() {
                render::keep(&mut object, kept, bundle.as_deref());
            }
            webhook = Some(object);
        }
        Err(error) => problems.push(error.to_string()),
    }
    problems.extend(parts.problems.iter().cloned());
    let is_alone = kin.agent.is_none() && webhook.is_some();
    let webhook = SharedObjects::new(&webhook, Mark::Runtime, &|_| None);
    let objects = Arc::new(SharedObjects::joined([&webhook, &parts.objects]));
    let generation = |metadata: &ObjectMeta| json!([metadata.uid, metadata.name, metadata.generation]);
    let generations: Vec<Value> = landscape.watchers.values().map(|watcher| generation(&watcher.metadata)).collect();
    let digest = Digest::all([&objects.digest, &Digest::from_value(&Value::from(generations))]);
    let (library, overriding) = (Arc::clone(library), kin.overriding.clone());
    Report { objects, digest, own: parts.own, problems, library, overriding, is_alone }
}

/// Renders the shared objects that do not depend on our user.
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

/// Digests of a runtime's own objects without the certificate.
fn own_digests(templates: &Templates, agent: &Agent, address: &Address) -> Result<Value, template::Error> {
    let secret = render::agent_secret(templates, [])?.digest().to_string();
    let deployment = if agent.program.restarts_for_certificates() {
        Some(render::agent_deployment(templates, agent, address, Some("-"))?.digest().to_string())
    } else {
        None
    };
    // An earlier version had a third object here. Without its place, all runtimes would be written once.
    Ok(json!([secret, deployment, null]))
}
