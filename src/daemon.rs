//! The daemon: creates, starts and stops everything, in order.
//!
//! [`Daemon::load`] does everything that can fail at start-up. [`Daemon::run`] starts the tasks, waits until this
//! process leads and has listed the control plane, and then works through the queue until it is stopped. All tasks are
//! in one set. If one of them ends unexpectedly, the process exits, and its supervisor restarts it.
//!
//! The shutdown, in order: no new events and no new work; running work gets some time; the Lease is released; the
//! servers stop. The next process repeats aborted work, because nothing that was acknowledged is only in memory.

mod event_ports;
mod hook_port;
mod identity;
mod observe;
mod once;
mod outage;
mod proxy;
mod ready;
mod sources;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::config::KubeConfigOptions;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::{
    event_ports::{EventPorts, Threads},
    hook_port::HookPort,
    observe::{KcpOperatorGauges, Observer},
    ready::Readiness,
};
use tidegate_cluster::{
    Cluster, ClusterName, Leadership, Limits, Network, Pool, kubeconfig_problem, lease, read_kubeconfig,
};
use tidegate_core::{
    api::names,
    diagnostic::{Diagnostics, Severity},
    name::Key,
    plan::Settings,
    template::{Engine, Library, TemplateFile, Templates},
};
use tidegate_diff::mask::MaskKey;
use tidegate_git as git;
use tidegate_oci::Unpacker;
use tidegate_process::{lock::RwLock, tls};

use crate::{
    components::Components,
    config::Config,
    confine,
    controller::{
        Context, Queue, Subject, dispatch,
        events::{self, Writer},
    },
    gateway::certificates::Certificates,
    http::{self, Bound},
    maintenance::Maintenance,
    metrics::Metrics,
    observe::Observation,
    queue::{Finish, Limits as QueueLimits, Queue as KeyedQueue, Work},
    renderer::Renderer,
    runtime::reporting,
    setup,
    source::registry::SourceRegistry,
    stores::{Source, Stores, Table, feed},
    watcher::inbox::Inbox,
};

#[cfg(feature = "internals")]
pub use event_ports::EventReceiver;
#[cfg(feature = "internals")]
pub use hook_port::routes as hook_routes;
pub use once::Report;

/// A daemon that is loaded and bound but not started.
pub struct Daemon {
    config: Config,
    context: Arc<Context>,
    leadership: Leadership,
    /// Takes part in leader election; `None` if the daemon writes without a Lease.
    elector: Option<lease::Elector>,
    /// The connection of the elector, whose requests are counted as well.
    election: Arc<Cluster>,
    writer: Writer,
    metrics: Option<Bound>,
    health: Option<Bound>,
    event_ports: EventPorts,
    hook_port: HookPort,
    readiness: Arc<Readiness>,
}

/// What unpacks the data of git servers and registries.
struct Engines {
    git: git::Engine,
    unpacker: Unpacker,
}

/// How long a daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Until it is stopped.
    Forever,
    /// Until nothing is left to do, with a time-out.
    Once(Duration),
}

/// How a daemon ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was stopped, as one that runs forever is.
    Stopped,
    /// Nothing was left to do, the time was over, or the pass was stopped.
    Once(Report),
}

/// Running work.
struct Workers(JoinSet<()>);

/// Limit of known subjects: far more runtimes than any landscape has.
const SUBJECTS_MAX: usize = 200_000;
/// A commit changes many definitions one after another. Runtimes are woken after no change came for this long.
const CATALOG_SETTLE: Duration = Duration::from_millis(50);
/// Interval of dropping idle clients.
const SWEEP: Duration = Duration::from_secs(60);
/// Interval of checking the required kinds, until the control plane serves them.
const KINDS_RETRY: Duration = Duration::from_secs(2);
/// The folder of modules from OCI registries, in the state folder.
pub(crate) const MODULES: &str = "modules";
/// Limit for the TCP connection to the control plane.
const CONNECT_MAX: Duration = Duration::from_secs(5);

// === impl Daemon ===

impl Daemon {
    /// Does everything that can fail at start-up, and binds the ports. Sends no request.
    ///
    /// # Errors
    ///
    /// Fails if the state folder, the kubeconfig, a template, a source or a port cannot be used.
    pub async fn load(config: Config) -> anyhow::Result<Daemon> {
        let engine = confine::git_engine(config.git_engine).context("cannot start engines for git")?;
        let engines = Engines { git: engine, unpacker: confine::unpacker().context("cannot start unpackers")? };
        Daemon::load_with(config, &Network::real(), confined()?, engines, Threads::start()?).await
    }

    /// The same, with API servers on a given network, and with a renderer and an engine for git of its own. Blobs of
    /// registries are unpacked in this process, and the event ports share the threads of the daemon, because a
    /// simulation has one clock for everything.
    ///
    /// # Errors
    ///
    /// Fails like [`Daemon::load`].
    #[cfg(feature = "internals")]
    pub async fn load_on(
        config: Config,
        network: &Network,
        renderer: Renderer,
        engine: git::Engine,
    ) -> anyhow::Result<Daemon> {
        let engines = Engines { git: engine, unpacker: Unpacker::local() };
        Daemon::load_with(config, network, renderer, engines, Threads::Shared).await
    }

    async fn load_with(
        config: Config,
        network: &Network,
        renderer: Renderer,
        engines: Engines,
        threads: Threads,
    ) -> anyhow::Result<Daemon> {
        let config = config.observing();
        let metrics = Bound::bind_if(config.metrics_address, "metrics").await?;
        let health = Bound::bind_if(config.health_address, "health").await?;
        let hook_port = HookPort::bind(&config.hooks, threads.clone())?;
        let event_ports = EventPorts::bind(&config.events, threads)?;
        let kube = kube_config(config.kubeconfig.as_deref()).await?;
        let templates = templates(renderer.engine(), config.templates.as_deref())?;
        let sources = sources::load(&config)?;
        let proxy = proxy::of_environment(|name| std::env::var(name).ok())?;
        let state = git::State::open(&config.state).context("cannot use the state folder")?;
        let state = state.with_engine(engines.git).with_proxy(proxy);
        let identity = identity::holder(&config);

        let limits = Limits {
            concurrency: config.control_plane_requests,
            request_timeout: config.request_timeout,
            connect_timeout: CONNECT_MAX,
        };
        let connect = || Cluster::on(network, ClusterName::Kcp, &kube, limits).context("cannot use the kubeconfig");
        // The Lease has its own connections: its renewal must not wait behind a thousand applies.
        let election = Arc::new(connect()?);
        let (elector, leadership) = election_of(&config, &identity, &election);
        let kcp = connect()?.guarded(leadership.clone());
        let kcp = Arc::new(if config.observe.is_some() { kcp.read_only() } else { kcp });
        let runtime_limits = Limits { concurrency: config.runtime_requests, ..limits };
        let pool = Pool::new(Arc::clone(&kcp), runtime_limits, Some(leadership.clone()));

        // In the namespace of the Lease, because the leader writes both.
        let journal = config.lease.as_ref().map_or(names::KCP_NAMESPACE, |lease| lease.namespace.as_str());
        let inbox = Inbox::new(journal, leadership.clone(), config.events.pinning, config.events.settle);
        let queue = queue(&config);
        let stores = Stores::new(queue.clone());
        for source in sources {
            stores.add_local_source(source);
        }
        let elector = elector.map(|elector| elector.annotating(stores.local_sources()));
        let (recorder, writer) = events::recorder(&identity);
        let context = Arc::new(Context {
            kcp,
            pool,
            stores,
            queue,
            settings: Settings {
                default_channel: config.default_channel.clone(),
                restricted_modules: config.restricted_modules.clone(),
                pull_secret: config.pull_secret.clone(),
            },
            metrics: Metrics::default(),
            events: recorder,
            namespaces: config.namespaces.clone(),
            allow_local_sources: config.allow_local_sources,
            resync: config.observe.unwrap_or(config.resync),
            rollout_delay_max: config.rollout_delay_max,
            drift_repair_pause_max: config.drift_repair_pause_max,
            renderer,
            library: RwLock::new(Arc::new(Library::new(templates))),
            sources: SourceRegistry::new(state),
            runtimes: crate::runtime::KnownRuntimes::default(),
            contacts: crate::runtime::contacts::Contacts::new(config.watch_probe_interval),
            agent: config.agent.clone(),
            inbox,
            shared: crate::runtime::SharedByRuntimes::default(),
            maintenance: Maintenance::open(&config.maintenance),
            components: Components::open(&config.registries, &config.state.join(MODULES), engines.unpacker)?,
            watchers: crate::watcher::AppliedVirtualServices::default(),
            certificates: Arc::new(Certificates::new(
                config.certificates.clone(),
                config.agent.is_some(),
                config.listener.clone(),
            )),
            setup_memory: crate::setup::SetupMemory::default(),
            panicked: dispatch::Panicked::default(),
            observation: match config.observe {
                Some(interval) => {
                    let key = tls::random().context("the system has no random bytes")?;
                    Some(Observation::new(interval, MaskKey::new(key)))
                }
                None => None,
            },
        });
        tracing::info!(identity, namespaces = ?config.namespaces, state = %config.state.display(), "loaded");
        let readiness = Arc::new(Readiness::new(Arc::clone(&context), leadership.clone(), config.paused));
        Ok(Daemon {
            config,
            context,
            leadership,
            elector,
            election,
            writer,
            metrics,
            health,
            event_ports,
            hook_port,
            readiness,
        })
    }

    /// The receiver of events, without sockets.
    #[cfg(feature = "internals")]
    pub fn door(&self) -> EventReceiver {
        EventReceiver::new(&self.context)
    }

    /// The receiver of deliveries of git hosts, without sockets.
    #[cfg(feature = "internals")]
    pub fn hooks(&self) -> axum::Router {
        hook_port::routes(self.config.hooks.trusted_peers.clone(), &self.context, &self.leadership)
    }

    /// Runs until `stop` completes, this process loses the Lease, or `mode` is over.
    ///
    /// # Errors
    ///
    /// Fails if leadership is lost or a background task ends.
    pub async fn run(self, mode: Mode, stop: impl Future<Output = ()>) -> anyhow::Result<Ended> {
        let Daemon {
            config,
            context,
            leadership,
            elector,
            election,
            writer,
            metrics,
            health,
            event_ports,
            hook_port,
            readiness,
        } = self;
        let (served, given_back, halt) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let deaf = CancellationToken::new();
        let mut services = JoinSet::new();
        if let Some(elector) = elector {
            services.spawn(elector.run(given_back.clone().cancelled_owned()));
        }
        let missing = readiness.missing();
        let observer = Observer {
            context: Arc::clone(&context),
            leadership: leadership.clone(),
            election,
            paused: config.paused,
            kcp_landscapes: config.kcp_landscapes.then_some(match config.kcp_operator_metrics {
                true => KcpOperatorGauges::Served,
                false => KcpOperatorGauges::Left,
            }),
            missing: Arc::clone(&missing),
        };
        let pages = http::metrics::router(observer.render()).merge(http::observed::router(&context, missing));
        for (bound, pages) in [(metrics, pages), (health, http::health::router(readiness.missing()))] {
            if let Some(bound) = bound {
                services.spawn(bound.serve(pages, halt.clone().cancelled_owned()));
            }
        }
        let mut inlets = JoinSet::new();
        event_ports.serve(&context, &mut inlets, &deaf);
        hook_port.serve(&context, &leadership, &mut inlets, &deaf);
        let mut background = background(&config, &context, writer, &served);
        background.spawn(outage::follow(Arc::clone(&context), leadership.clone()));
        let mut workers = Workers(JoinSet::new());

        let ended = tokio::select! {
            () = stop => {
                tracing::info!("stopping");
                Ok(match mode {
                    Mode::Forever => Ended::Stopped,
                    Mode::Once(_) => Ended::Once(once::interrupted(&context, &readiness)),
                })
            }
            error = unexpected_end(&mut background) => Err(error),
            error = lost(&leadership) => Err(error),
            report = once::run(&context, &readiness, mode) => Ok(Ended::Once(report)),
            never = work(&context, &leadership, &readiness, &served, &mut workers) => match never {},
        };

        // New events go to another replica; events in progress are still written to the journal.
        deaf.cancel();
        context.stores.stop();
        context.queue.close();
        // The journal is written in the background, also for the last requests.
        tokio::join!(workers.finish(config.shutdown_timeout), end(inlets));
        drop(background);
        given_back.cancel();
        halt.cancel();
        end(services).await;
        tracing::info!("stopped");
        ended
    }
}

/// The given kubeconfig, or that of the environment.
async fn kube_config(path: Option<&Path>) -> anyhow::Result<kube::Config> {
    match path {
        Some(path) => {
            let kubeconfig = read_kubeconfig(path)
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(|error| anyhow::Error::msg(kubeconfig_problem(&error)))
                .with_context(|| format!("cannot use the kubeconfig {}", path.display()))
        }
        // The text of this error already contains its causes.
        None => kube::Config::infer().await.map_err(|error| anyhow::anyhow!("{error}")).context(
            "no control plane configured: use --kubeconfig, set KUBECONFIG, or run in a cluster with a \
             ServiceAccount",
        ),
    }
}

/// Checks everything that a configuration names on this machine. Starts nothing.
///
/// # Errors
///
/// Fails if a file, a template or a source cannot be used.
pub fn check(config: &Config) -> anyhow::Result<()> {
    sources::load(config)?;
    templates(confined()?.engine(), config.templates.as_deref()).map(|_| ())
}

fn confined() -> anyhow::Result<Renderer> {
    Renderer::confined().context("cannot start the renderer of templates")
}

/// The embedded templates, and those of a folder, which replace them by name. Fails if the folder cannot be read, or if
/// one of its templates is invalid.
pub(crate) fn templates(engine: &Engine, folder: Option<&Path>) -> anyhow::Result<Templates> {
    let embedded = Templates::embedded();
    let Some(folder) = folder else { return Ok(embedded) };
    let mut files = Vec::new();
    read_templates(folder, folder, &mut files)
        .with_context(|| format!("cannot read the templates in {}", folder.display()))?;
    let mut diagnostics = Diagnostics::default();
    let mut templates = embedded.with_overrides(engine, &mut diagnostics, files);
    templates.check(&mut diagnostics);
    for diagnostic in diagnostics.sorted() {
        if diagnostic.severity == Severity::Error {
            anyhow::bail!("invalid template: {diagnostic}");
        }
        tracing::warn!(code = diagnostic.code, problem = %diagnostic, "a template has a problem");
    }
    Ok(templates)
}

fn read_templates(root: &Path, folder: &Path, files: &mut Vec<TemplateFile>) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // A mounted ConfigMap stores its versions in folders that begin with two dots.
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            read_templates(root, &path, files)?;
        } else {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let text = Some(std::fs::read_to_string(&path)?);
            files.push(TemplateFile { name, path: path.to_string_lossy().into(), text });
        }
    }
    Ok(())
}

/// The elector and the leadership; without a Lease, this process always leads.
fn election_of(config: &Config, identity: &str, election: &Arc<Cluster>) -> (Option<lease::Elector>, Leadership) {
    let Some(lease) = &config.lease else { return (None, Leadership::unconditional()) };
    let options = lease::Options {
        lease: Key::new(&lease.namespace, names::LEASE),
        identity: format!("tidegate_{identity}"),
        timing: lease::Timing {
            duration: lease.duration,
            renew_deadline: lease.renew_deadline,
            retry_period: lease.retry_period,
        },
    };
    let (elector, leadership) = lease::Elector::new(Arc::clone(election), options);
    (Some(elector), leadership)
}

fn queue(config: &Config) -> Queue {
    // A process that observes compares when a pass says so, and otherwise once in its interval.
    let interval = config.observe.unwrap_or(config.resync);
    let limits = QueueLimits { running_max: config.workers, subjects_max: SUBJECTS_MAX, interval };
    KeyedQueue::new(Subject::lane, limits)
}

/// The tasks that never end by themselves. Watches start after the control plane serves the required kinds.
fn background(config: &Config, context: &Arc<Context>, writer: Writer, served: &CancellationToken) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let gateway = config.listener.gateway.namespace();
    if context.observation.is_some() {
        context.stores.observe();
    }
    let mut watches =
        feed::feed(&context.kcp, &context.stores, &context.events, &config.namespaces, gateway, &context.certificates);
    if let Some(name) = &config.pull_secret {
        let key = Key::new(names::KCP_NAMESPACE, name);
        watches.push(feed::pull_secret(&context.kcp, &context.stores, &context.events, &key));
    }
    // While the module is not restricted, no Secret of it gets data.
    if config.restricted_modules.contains(names::DEPLOYER) {
        watches.push(feed::source_secrets(&context.kcp, &context.stores, &context.events));
    }
    if config.kcp_landscapes {
        tracing::info!("reconciling kcp landscapes");
        watches.extend(feed::setup(
            &context.kcp,
            &context.stores,
            &context.events,
            &config.namespaces,
            &config.kcp_image,
        ));
        let shared = Arc::clone(context);
        tasks.spawn(async move { setup::operator::follow(&shared.kcp, &shared.stores).await });
        let shared = Arc::clone(context);
        tasks.spawn(async move { setup::place::follow(&shared.kcp, &shared.stores).await });
    }
    watches.extend(context.components.secrets().into_iter().map(|key| feed::registry_secret(context, key)));
    for watch in watches {
        let served = served.clone();
        tasks.spawn(async move {
            served.cancelled().await;
            watch.await;
        });
    }
    if context.observation.is_some() {
        tracing::info!("observing: this process compares and writes nothing");
        tasks.spawn(writer.discard());
    } else {
        tasks.spawn(writer.run(Arc::clone(&context.kcp)));
        tasks.spawn(event_ports::run(Arc::clone(context)));
    }
    let shared = Arc::clone(context);
    tasks.spawn(async move { shared.sources.watch_local(&shared.queue).await });
    let shared = Arc::clone(context);
    tasks.spawn(async move { shared.sources.run_receivers(&shared.queue).await });
    let shared = Arc::clone(context);
    tasks.spawn(async move { shared.sources.run_fetches(&shared.kcp, &shared.queue).await });
    let shared = Arc::clone(context);
    tasks.spawn(async move {
        loop {
            shared.stores.catalog_changed().await;
            tokio::time::sleep(CATALOG_SETTLE).await;
            shared.components.follow(&shared.stores.landscape());
            shared.stores.spread();
        }
    });
    let shared = Arc::clone(context);
    tasks.spawn(async move {
        let Context { components, queue, events, shared, .. } = &*shared;
        components.run(queue, events, &shared.modules).await;
    });
    if config.agent.is_some() && context.observation.is_none() {
        tasks.spawn(reporting::probe::run(Arc::clone(context), config.watch_probes_max));
    }
    let shared = Arc::clone(context);
    tasks.spawn(async move { shared.maintenance.follow(&shared.events, &shared.stores).await });
    // Only passes that delete ask for holds.
    let shared = Arc::clone(context);
    let is_observing = context.observation.is_some();
    tasks.spawn(async move {
        if is_observing {
            std::future::pending::<()>().await;
        }
        let definitions = shared.stores.definitions();
        loop {
            let lines = shared.stores.next_hold(&shared.kcp, &shared.namespaces).await;
            definitions.say(&lines);
            if definitions.has_new_answer() {
                shared.stores.wake_all();
            }
        }
    });
    let shared = Arc::clone(context);
    tasks.spawn(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            shared.pool.sweep();
        }
    });
    tasks
}

/// Waits until work is possible, and then works through the queue.
async fn work(
    context: &Arc<Context>,
    leadership: &Leadership,
    readiness: &Arc<Readiness>,
    served: &CancellationToken,
    workers: &mut Workers,
) -> std::convert::Infallible {
    while !readiness.ask_for_kinds().await {
        tokio::time::sleep(KINDS_RETRY).await;
    }
    served.cancel();
    context.stores.complete().await;
    // Before any pass: passes compare what Manifests record with what is found.
    context.components.follow(&context.stores.landscape());
    leadership.acquired().await;
    context.maintenance.lead(&context.events);
    if readiness.is_paused() {
        tracing::warn!("paused by the configuration: not fetching, applying or pruning");
        std::future::pending::<()>().await;
    }
    let (sources, runtimes) = (context.stores.sources().len(), context.stores.kymas().len());
    match context.observation {
        Some(_) => tracing::info!(sources, runtimes, "the control plane is read; starting to compare"),
        None => tracing::info!(sources, runtimes, "leading; starting work"),
    }
    let unread = context.stores.all_unknown(&[Table::Sources], None);
    let known =
        context.stores.sources().iter().map(Source::key).chain(unread.iter().map(|found| found.object.key())).collect();
    context.sources.sweep(&known).await;
    context.stores.start();
    context.stores.tell_unreadable(&context.events);
    loop {
        tokio::select! {
            Some(work) = context.queue.next() => workers.start(context, readiness, work),
            Some(ended) = workers.0.join_next() => report_panic(ended),
            // The queue is closed and no work runs, so the shutdown follows.
            else => std::future::pending().await,
        }
    }
}

/// Returns when this process has led and no longer does.
async fn lost(leadership: &Leadership) -> anyhow::Error {
    leadership.acquired().await;
    leadership.lost().await;
    match leadership.other_holder() {
        Some(holder) => anyhow::anyhow!("lost leadership to {}", holder.name),
        None => match leadership.denial() {
            Some(denial) => anyhow::anyhow!("lost leadership: {denial}"),
            None => anyhow::anyhow!("lost leadership: could not renew the Lease in time"),
        },
    }
}

/// Returns when a task ends unexpectedly.
async fn unexpected_end(tasks: &mut JoinSet<()>) -> anyhow::Error {
    match tasks.join_next().await {
        Some(Err(error)) => anyhow::Error::new(error).context("a background task failed"),
        Some(Ok(())) => anyhow::anyhow!("a background task ended"),
        None => std::future::pending().await,
    }
}

/// Waits for the servers and the elector. Each has its own limit; this one is a safety net.
async fn end(mut services: JoinSet<()>) {
    const SERVICES_END_MAX: Duration = Duration::from_secs(8);
    let all = async { while services.join_next().await.is_some() {} };
    if tokio::time::timeout(SERVICES_END_MAX, all).await.is_err() {
        tracing::warn!("a server did not stop in time");
    }
}

fn report_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        // The work was dropped, so the queue retries its subject.
        tracing::error!(%error, "a pass panicked");
    }
}

// === impl Workers ===

impl Workers {
    fn start(&mut self, context: &Arc<Context>, readiness: &Arc<Readiness>, work: Work<Subject>) {
        let (context, readiness) = (Arc::clone(context), Arc::clone(readiness));
        self.0.spawn(async move {
            let finish: Finish = dispatch::pass(&context, &work).await;
            readiness.reconciled(work.subject());
            context.queue.finish(work, finish);
        });
    }

    /// Waits for running work, up to a limit.
    async fn finish(&mut self, shutdown: Duration) {
        let all = async {
            while let Some(ended) = self.0.join_next().await {
                report_panic(ended);
            }
        };
        if tokio::time::timeout(shutdown, all).await.is_err() {
            tracing::warn!(cut = self.0.len(), "aborting running work after the shutdown time-out");
            self.0.shutdown().await;
        }
    }
}
