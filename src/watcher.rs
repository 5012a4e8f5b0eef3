//! One pass over a Watcher: its VirtualService in KCP, its finalizer, its status.
//!
//! The webhooks in the runtimes follow with the next pass over each runtime (see [`crate::daemon`]). If the Watcher's
//! selector matches no Gateway, the Watcher waits until a Gateway appears. A change to its VirtualService also triggers
//! a pass.
//!
//! If two Watchers with one manager send their events to different services, the older Watcher owns the path, and the
//! status of the other reports it. With two routes for one path, the service that gets an event would be undefined.
//!
//! If agents send to a listener of this process ([`reporting::ListenerSettings::address`]), the Watchers of this
//! process need no route and no Istio.
//!
//! Tidegate does not change a VirtualService of that name that another client created, and reports its field managers
//! in the status. A forced apply would replace its routes, and the deletion of the Watcher would delete it.

mod decide;
mod enact;
pub(crate) mod inbox;
mod state;

use kube::core::SelectorExt as _;
use tidegate_cluster::{Cause, Cluster, Error};
use tidegate_core::{
    api::Watcher,
    landscape::Landscape,
    name::Key,
    plan::{reporting, selector},
    template::{Library, Templates},
};
use tidegate_process::ambient;

use self::{
    decide::{Act, Next, Start, decide},
    state::{Known, Observed},
};
use crate::{
    controller::{self, Failure, Pass},
    queue::{Finish, Triggers},
    renderer::{CurrentTemplates, Renderer},
    source::registry::SourceRegistry,
    stores::{Stores, Table},
};

pub use state::AppliedVirtualServices;

/// The parts of the daemon that passes over Watchers use.
#[derive(Clone, Copy)]
pub struct WatcherContext<'a> {
    /// The control plane. It refuses writes while this process does not lead.
    pub kcp: &'a Cluster,
    /// The objects in the control plane.
    pub stores: &'a Stores,
    /// Which sources have been read, so that their templates are known.
    pub sources: &'a SourceRegistry,
    /// The templates.
    pub templates: CurrentTemplates<'a>,
    /// What this process remembers of each Watcher.
    pub memories: &'a AppliedVirtualServices,
    /// Whether agents send to an address of this process.
    pub has_address: bool,
}

/// Moves the VirtualService of a Watcher to its desired state.
///
/// # Errors
///
/// Errors of the control plane, and waiting if the templates have not been read yet.
pub async fn reconcile(context: WatcherContext<'_>, key: &Key, triggers: Triggers) -> Pass {
    let landscape = context.stores.landscape();
    let unreadable = context.stores.unreadable_object(Table::Watchers, key);
    let unreadable = unreadable.as_ref().map(|found| &found.object.metadata);
    let watcher = match decide::start(landscape.watchers.get(key), unreadable) {
        Start::Begin(watcher) => watcher,
        Start::BeginWithTemplates(watcher) => {
            controller::templates_read(context.stores, context.sources, &watcher.metadata)?;
            watcher
        }
        Start::Defer => return Ok(Finish::Deferred),
        Start::Forget => {
            context.memories.remember(key, None);
            return Ok(Finish::Gone);
        }
    };
    let cause = controller::cause(triggers);
    let library = context.templates.library();
    let renderer = context.templates.renderer;
    let pass = WatcherPass { kcp: context.kcp, library: &library, renderer, cause: &cause, key };
    let mut known = Known {
        watcher,
        key,
        remembered: context.memories.recall(key),
        rival: reporting::rival(watcher, all(&landscape)),
        companions: reporting::companions(watcher, all(&landscape)),
        gateways: gateways(context.stores, watcher),
        has_address: context.has_address,
        look: decide::looks(triggers, watcher),
    };
    let (mut observed, now) = (Observed::new(watcher), ambient::now());
    loop {
        let decision = decide(&known, &observed, now);
        known.remembered = decision.remembered;
        context.memories.remember(key, known.remembered);
        let act = match decision.next {
            Next::Do(act) => act,
            Next::End(finish) => return Ok(finish),
        };
        let done = pass.enact(&known, &mut observed, act).await;
        done.map_err(|error| Failure::new(error.class(), error.reason(), error))?;
    }
}

/// Writes into the status of a Watcher why its last pass failed; a pass that ends by itself writes its own.
///
/// # Errors
///
/// Errors of the control plane.
pub(crate) async fn report_failure(
    context: WatcherContext<'_>,
    key: &Key,
    triggers: Triggers,
    failure: &Failure,
) -> Result<(), Failure> {
    let landscape = context.stores.landscape();
    let Some(watcher) = landscape.watchers.get(key) else { return Ok(()) };
    let status = decide::failed(watcher, &failure.error.to_string(), ambient::now());
    if watcher.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let written = enact::report(context.kcp, &controller::cause(triggers), key, &status).await;
    written.map_err(|error| Failure::new(error.class(), error.reason(), error))
}

fn all(landscape: &Landscape) -> impl Iterator<Item = &Watcher> {
    landscape.watchers.values().map(|watcher| &**watcher)
}

/// The Gateways that the selector of a Watcher matches.
fn gateways(stores: &Stores, watcher: &Watcher) -> Vec<reporting::Gateway> {
    let Some(selector) = selector::parse(&watcher.spec.gateway.selector) else { return Vec::new() };
    let all = stores.gateways();
    let matched = all.iter().filter(|entry| selector.matches(&entry.labels));
    matched.map(|entry| entry.gateway.clone()).collect()
}

/// One pass over a Watcher.
struct WatcherPass<'a> {
    kcp: &'a Cluster,
    library: &'a Library,
    renderer: &'a Renderer,
    cause: &'a Cause,
    key: &'a Key,
}

// === impl WatcherPass ===

impl WatcherPass<'_> {
    /// Enacts one act and records its result.
    async fn enact(&self, known: &Known<'_>, observed: &mut Observed, act: Act) -> Result<(), Error> {
        let WatcherPass { kcp, library, renderer, cause, key } = *self;
        match act {
            Act::TakeCharge => observed.charge = enact::take_charge(kcp, cause, key, known.watcher).await?,
            Act::Discover(gvk) => {
                let served = kcp.kind(&gvk).await?;
                observed.kinds.insert(gvk, served);
            }
            Act::Render => {
                let (watcher, gateways) = (known.watcher.clone(), known.gateways.clone());
                let render = move |templates: &Templates| decide::desired(&watcher, gateways, templates);
                let templates = library.for_object(&known.watcher.metadata);
                observed.desired = Some(renderer.with(templates, render).await);
            }
            Act::Read(kind) => observed.route = enact::read(kcp, &kind, key).await?,
            Act::Apply(kind, object) => observed.route = enact::apply(kcp, cause, &kind, &object).await?,
            Act::Delete(kind, live) => observed.route = enact::delete(kcp, cause, &kind, &live).await?,
            Act::Report(status) => {
                enact::report(kcp, cause, key, &status).await?;
                observed.is_reported = true;
            }
            Act::Release => observed.charge = enact::release(kcp, cause, known.watcher).await?,
        }
        Ok(())
    }
}
