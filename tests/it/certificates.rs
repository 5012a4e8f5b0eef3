//! Certificates issued by the real cert-manager on a real control plane, or by the daemon itself: from the first one to
//! the last, and through every change of the CA.
//!
//! The daemon of a test has the watches, the queue and the gateway controller of the real one. A value represents each
//! runtime: its certificate, and the CAs that it trusts.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate::internals::{
    Metrics, Renderer,
    controller::{Context, Queue, Subject, events},
    gateway,
    gateway::certificates::{self, Certificates},
    queue::{self, Finish, Trigger},
    source::registry::SourceRegistry,
    stores::{AccessSecret, Stores, feed},
};
use tidegate_cluster::{Cause, Cluster, ClusterName, Limits, Pool, access};
use tidegate_core::{
    api::{Kyma, names},
    landscape,
    name::Key,
    object::Digest,
    plan::{
        self,
        certificate::{Backend, CertificateState, Rules},
        reporting::ListenerSettings,
    },
    template::{Library, Templates},
};
use tidegate_git as git;
use tidegate_process::{ambient, lock::RwLock};
use tidegate_testbed::{Folder, Guarded};
use tokio::{sync::OnceCell, task::JoinSet};

use crate::{
    deploy,
    harness::{self, SOON, eventually, holds},
    stage::{ADMINISTRATORS, Server, scenarios},
};

mod handshake;
mod rights;
mod rotation;
mod runtimes;

pub(crate) use handshake::shake;

/// A namespace for one test with everything in it: Kymas, certificates, the gateway's Secret.
struct World {
    server: Server,
    client: Client,
    namespace: String,
    rules: Rules,
    user: String,
    folder: Folder,
    /// The kubeconfig of the daemon, if it does not act as an administrator.
    access: Option<kube_sim::Kubeconfig>,
    daemon: Option<Daemon>,
    issuer: Mutex<Option<Guarded>>,
}

/// The daemon.
struct Daemon {
    context: Arc<Context>,
    /// The simulated runtimes, by Kyma.
    runtimes: Runtimes,
    tasks: JoinSet<()>,
}

type Runtimes = Arc<Mutex<BTreeMap<String, Runtime>>>;

/// The certificate data of a runtime.
#[derive(Clone, Default)]
struct Runtime {
    /// The state of its certificate after the last pass.
    standing: Option<CertificateState>,
    /// Its certificate and key.
    leaf: Option<(Vec<u8>, Vec<u8>)>,
    /// The CAs that it trusts.
    bundle: Vec<u8>,
    /// Whether it is unreachable: its data does not change.
    sleeps: bool,
}

static CRDS: OnceCell<()> = OnceCell::const_new();

impl World {
    /// On a real server, which runs cert-manager's webhooks and evaluates RBAC.
    async fn new(name: &str, backend: Option<Backend>) -> World {
        let server = Server::real_kcp().await;
        let client = server.client();
        CRDS.get_or_init(|| async {
            harness::install_istio_crds(&client).await;
            harness::install_crds_from(&client, "cert-manager-crds.yaml", &[]).await;
        })
        .await;
        World::on(server, name, backend).await
    }

    /// Without cert-manager, within a scenario.
    async fn builtin(name: &str) -> World {
        World::on(Server::kcp().await, name, Some(Backend::Builtin)).await
    }

    /// With short periods: a change of the CA takes seconds.
    async fn on(server: Server, name: &str, backend: Option<Backend>) -> World {
        let client = server.client();
        let namespace = harness::namespace(&client, name).await;
        let rules = Rules {
            backend,
            namespace: namespace.clone(),
            renew_buffer: Duration::from_secs(1),
            switch_grace: Duration::from_secs(2),
            ..Rules::default()
        };
        let folder = harness::folder();
        let user = format!("certificates-{namespace}");
        World { server, client, namespace, rules, user, folder, access: None, daemon: None, issuer: Mutex::default() }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        harness::namespaced(&self.client, &self.namespace)
    }

    /// `Certificate`s of cert-manager.
    async fn certificates(&self) -> Api<DynamicObject> {
        let sample = json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"namespace": self.namespace}});
        harness::api_of(&self.client, &sample).await.expect("it is served")
    }

    // --- cert-manager ---

    /// Applies the shipped CA and its issuers, in this world's namespace.
    async fn install_issuers(&self) {
        for mut object in deploy::objects("overlays/istio-cert-manager") {
            if object["apiVersion"] == "cert-manager.io/v1" {
                object["metadata"]["namespace"] = self.namespace.clone().into();
                harness::apply(&self.client, &object).await;
            }
        }
    }

    async fn start_cert_manager(&self) {
        let kubeconfig = self.folder.path().join("cert-manager.kubeconfig");
        let access = self.server.kubeconfig_of("cert-manager", ADMINISTRATORS);
        std::fs::write(&kubeconfig, access.text()).expect("a file");
        let log = self.folder.path().join("cert-manager.log");
        let arguments = [format!("--kubeconfig={}", kubeconfig.display()), format!("--namespace={}", self.namespace)];
        let issuer = Guarded::start(harness::cert_manager().await, arguments, self.folder.path(), &log);
        *self.issuer.lock().unwrap_or_else(PoisonError::into_inner) = Some(issuer.expect("cert-manager starts"));
    }

    fn stop_cert_manager(&self) {
        self.issuer.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Has cert-manager issue a new CA.
    async fn replace_authority(&self) {
        let condition = json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let patch = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "status": {"conditions": [condition]},
        });
        let parameters = PatchParams::apply("a-test").force();
        let certificates = self.certificates().await;
        certificates
            .patch_status("klm-watcher-serving", &parameters, &Patch::Apply(&patch))
            .await
            .expect("it is asked");
    }

    // --- Kymas ---

    async fn kyma(&self, name: &str, domain: Option<&str>) {
        let annotations = domain.map_or(json!({}), |domain| json!({names::annotation::SKR_DOMAIN: domain}));
        let kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {
                "name": name, "namespace": self.namespace, "annotations": annotations,
                "labels": {names::label::RUNTIME_ID: format!("id-{name}")},
            },
            "spec": {"channel": "regular", "modules": []},
        });
        harness::apply(&self.client, &kyma).await;
    }

    // --- the daemon ---

    async fn start(&mut self) {
        let kubeconfig = match &self.access {
            Some(access) => access.clone(),
            None => self.server.kubeconfig_of(&self.user, ADMINISTRATORS),
        };
        let config = access::parse(kubeconfig.text().as_bytes()).expect("it parses").config().expect("it is one");
        let network = Server::network([&self.server]);
        let kcp = Cluster::on(&network, ClusterName::Kcp, &config, Limits::default()).expect("a client");
        let kcp = Arc::new(kcp);
        let limits = queue::Limits { running_max: 8, subjects_max: 1000, interval: Duration::from_secs(60) };
        let queue = Queue::new(Subject::lane, limits);
        let stores = Stores::new(queue.clone());
        let listener = ListenerSettings {
            gateway: Key::new(&self.namespace, "klm-watcher"),
            port_overwrite: None,
            address: Some("listener.example.com:443".parse().expect("an address")),
        };
        let (recorder, writer) = events::recorder("test");
        let namespaces = BTreeSet::from([self.namespace.clone()]);
        let state = eventually("the former daemon lets go of its state", SOON, async || {
            // The lock uses the machine's clock, not the simulated one.
            let opened = git::State::open(&self.folder.path().join("state"));
            opened.inspect_err(|_| std::thread::yield_now()).map_err(|error| error.to_string())
        })
        .await;
        let context = Arc::new(Context {
            pool: Pool::new(Arc::clone(&kcp), Limits::default(), None),
            kcp: Arc::clone(&kcp),
            stores: stores.clone(),
            queue: queue.clone(),
            settings: plan::Settings::default(),
            metrics: Metrics::default(),
            events: recorder,
            namespaces: namespaces.clone(),
            allow_local_sources: false,
            resync: Duration::from_secs(3600),
            rollout_delay_max: Duration::ZERO,
            drift_repair_pause_max: Duration::from_secs(60),
            renderer: Renderer::local(),
            library: RwLock::new(Arc::new(Library::new(Templates::embedded()))),
            sources: SourceRegistry::new(state),
            runtimes: Default::default(),
            inbox: Default::default(),
            shared: Default::default(),
            maintenance: tidegate::internals::Maintenance::default(),
            components: tidegate::internals::Components::open(
                &tidegate::internals::config::Registries::default(),
                Path::new(""),
                tidegate_oci::Unpacker::local(),
            )
            .unwrap(),
            contacts: Default::default(),
            agent: None,
            watchers: Default::default(),
            setup_memory: Default::default(),
            panicked: Default::default(),
            observation: None,
            certificates: Arc::new(Certificates::new(self.rules.clone(), true, listener)),
        });
        let runtimes = Runtimes::default();
        let mut tasks = JoinSet::new();
        for watch in feed::feed(&kcp, &stores, &context.events, &namespaces, &self.namespace, &context.certificates) {
            tasks.spawn(watch);
        }
        tasks.spawn(writer.run(kcp));
        let listed = tokio::time::timeout(SOON, stores.complete()).await;
        assert!(listed.is_ok(), "not listed: {:?}", stores.missing());
        stores.start();
        for _ in 0..4 {
            let (context, runtimes) = (Arc::clone(&context), Arc::clone(&runtimes));
            tasks.spawn(async move {
                while let Some(work) = context.queue.next().await {
                    let pass = match work.subject().clone() {
                        Subject::Gateway(key) => gateway::reconcile(context.gateway(), &key, work.triggers()).await,
                        Subject::Runtime(key) => Ok(pass(&context, &key, &runtimes).await),
                        Subject::Source(_) | Subject::Watcher(_) | Subject::Release(_) | Subject::Setup(..) => {
                            Ok(Finish::Done)
                        }
                    };
                    context.queue.finish(work, pass.unwrap_or_else(|failure| Finish::Failed(failure.class)));
                }
            });
        }
        self.daemon = Some(Daemon { context, runtimes, tasks });
    }

    async fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.tasks.shutdown().await;
        }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a daemon runs")
    }

    // --- what there is ---

    async fn secret(&self, name: &str) -> Option<Secret> {
        self.api::<Secret>().get_opt(name).await.expect("an answer")
    }

    /// One key of a Secret; empty if it is not there.
    async fn data(&self, name: &str, key: &str) -> Vec<u8> {
        let data = self.secret(name).await.and_then(|secret| secret.data);
        data.and_then(|mut data| data.remove(key)).map(|bytes| bytes.0).unwrap_or_default()
    }

    async fn gateway(&self, key: &str) -> Vec<u8> {
        self.data(names::GATEWAY_SECRET, key).await
    }

    /// Waits until a runtime has a certificate that its own bundle and the gateway's trust.
    async fn issued(&self, kyma: &str) -> Runtime {
        eventually("the runtime has a certificate", SOON, async || {
            let runtime = self.daemon().runtime(kyma);
            match (&runtime.standing, &runtime.leaf) {
                (Some(CertificateState::Issued(_)), Some(_)) if !runtime.bundle.is_empty() => Ok(runtime),
                (standing, _) => Err(format!("{standing:?}, {:?}", self.daemon().context.certificates.problem())),
            }
        })
        .await
    }

    /// The daemon's writes since a mark of the audit log, sorted.
    fn writes(&self, mark: u64) -> Vec<String> {
        let records = self.server.records_since(mark);
        let is_write = |verb: &str| !["get", "list", "watch"].contains(&verb);
        let mut writes: Vec<String> = records
            .iter()
            .filter(|record| record.user == self.user && is_write(&record.verb))
            .filter(|record| !record.resource.starts_with("events"))
            .map(|record| format!("{} {} {}", record.verb, record.resource, record.name))
            .collect();
        writes.sort();
        writes
    }

    fn mark(&self) -> u64 {
        self.server.mark()
    }
}

impl Daemon {
    fn runtime(&self, kyma: &str) -> Runtime {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner).get(kyma).cloned().unwrap_or_default()
    }

    /// Makes a runtime unreachable, or reachable again.
    fn sleeps(&self, kyma: &str, sleeps: bool) {
        let mut runtimes = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        runtimes.entry(kyma.to_owned()).or_default().sleeps = sleeps;
        drop(runtimes);
        self.look();
    }

    /// Starts a pass over everything.
    fn look(&self) {
        for kyma in self.context.stores.kymas() {
            self.context.queue.push(Subject::Runtime(landscape::key(&kyma.metadata)), Trigger::Changed);
        }
        let key = Key::new(&self.context.certificates.rules.namespace, names::GATEWAY_SECRET);
        self.context.queue.push(Subject::Gateway(key), Trigger::Changed);
    }

    fn overdue(&self) -> Vec<String> {
        gateway::overdue(self.context.gateway(), ambient::now())
    }
}

/// A pass over the certificate of a runtime.
async fn pass(context: &Context, key: &Key, runtimes: &Runtimes) -> Finish {
    let cause = Cause::trigger("test");
    let Some(kyma) = context.stores.kyma(key) else {
        certificates::remove(context.runtime().certificates, &cause, key).await.expect("it is removed");
        return Finish::Gone;
    };
    let known = runtimes.lock().unwrap_or_else(PoisonError::into_inner).get(key.name()).cloned().unwrap_or_default();
    if known.sleeps {
        return Finish::Done;
    }
    let standing = match certificates::ensure(context.runtime().certificates, &cause, &kyma, ambient::now()).await {
        Ok(standing) => standing,
        Err(error) => return Finish::Failed(error.class()),
    };
    let bundle = context.stores.ca_bundle();
    let mut runtime = Runtime { standing: Some(standing.clone()), ..known };
    if let (CertificateState::Issued(issued), Some(bundle)) = (&standing, &bundle) {
        match certificates::load(context.runtime().certificates, issued).await {
            Ok(Some(leaf)) => {
                runtime.leaf = Some((leaf.certificate, leaf.key));
                runtime.bundle = bundle.to_vec();
            }
            Ok(None) => {}
            Err(error) => return Finish::Failed(error.class()),
        }
    }
    let is_up = runtime.leaf.is_some();
    runtimes.lock().unwrap_or_else(PoisonError::into_inner).insert(key.name().to_owned(), runtime);
    if let Some(bundle) = bundle.filter(|_| is_up) {
        context.certificates.trusts(key, Digest::of_bytes(&bundle), &context.queue);
    }
    Finish::Done
}

/// Makes the gateway wait for this runtime as well.
fn open(daemon: &Daemon, namespace: &str, kyma: &str) {
    let access = AccessSecret { kyma: Key::new(namespace, kyma), resource_version: "1".to_owned() };
    daemon.context.stores.set_access(&Key::new(namespace, &format!("access-{kyma}")), Some(Arc::new(access)));
}

/// Data of a Secret.
fn data(entries: &[(&str, &str)]) -> Value {
    entries
        .iter()
        .map(|(key, text)| ((*key).to_owned(), Value::from(STANDARD.encode(text))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
