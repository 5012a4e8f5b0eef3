//! The API servers of a stage: simulated in this process, or real ones. Tests see no difference but in how they come to
//! be.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, future::BoxFuture};
use http::{Request, Response};
use kube::Client;
use kube_sim::{self as sim, Answered, Kubeconfig, Options, Readiness, Served, Service, User};
use serde_json::{Value, json};
use tidegate_cluster::Network;
use tidegate_core::api::names;
use tidegate_process::ambient;
use tidegate_testbed::{self as testbed, ControlPlane, Extent, Record};
use tokio::sync::{OnceCell, watch};
use tower::ServiceExt as _;

use super::{Servers, servers};
use crate::harness::{self, apply, install_istio_crds, install_own_crds};

/// One API server. It ends with this value.
pub(crate) enum Server {
    Simulated(Box<Simulated>),
    /// Its own, or one that it shares.
    Real(Box<dyn Borrow<ControlPlane> + Send + Sync>),
}

/// One in this process. Other processes reach it over TLS, and a daemon of this process without.
pub(crate) struct Simulated {
    served: Served,
    /// Whether it answers.
    runs: watch::Sender<bool>,
    /// Whether requests wait for their answers without end.
    hangs: watch::Sender<bool>,
    /// Whether open watches show nothing.
    blind: watch::Sender<bool>,
    /// What it answers of objects in another way than it has them.
    spoiled: Spoiled,
    /// What happens before a request of the daemon of this process.
    before: Before,
    /// The plural of a kind whose objects the daemon of this process may not list or watch.
    denied: Denied,
    /// The API servers below `/clusters/`, by path: to the daemon of this process, it is a kcp as well.
    workspaces: Workspaces,
}

/// The workspaces of a server, by path. Each comes to be when it is asked for.
#[derive(Clone, Default)]
struct Workspaces(Arc<Mutex<BTreeMap<String, Workspace>>>);

#[derive(Clone)]
struct Workspace {
    server: sim::Server,
    /// Whether it refuses every request, as kcp does of a workspace that is gone.
    refuses: Arc<AtomicBool>,
}

/// Copies of simulated servers, each with the objects that the server had when it was copied. Only this process reaches
/// them, where the servers are.
pub(crate) struct Copies(Vec<Copy>);

struct Copy {
    name: String,
    /// Host and port of the server.
    authority: String,
    server: sim::Server,
    /// It always answers.
    runs: watch::Sender<bool>,
}

/// The end of the path of a request, and what happens just before the next such request arrives.
type Before = Arc<Mutex<Option<(&'static str, BoxFuture<'static, ()>)>>>;

/// A resource that the daemon of this process may not use: the plural of a kind, perhaps with a subresource.
type Denied = Arc<Mutex<Option<&'static str>>>;

/// The names of objects, each with a field and what the daemon of this process reads there, as of a server with other
/// types.
type Spoiled = Arc<Mutex<BTreeMap<String, (&'static str, Value)>>>;

/// The way of the daemon of this process, or of a test, to a simulated server.
#[derive(Clone)]
struct Wire {
    server: sim::Server,
    runs: watch::Receiver<bool>,
    hangs: watch::Receiver<bool>,
    blind: watch::Receiver<bool>,
    latency: Duration,
    spoiled: Spoiled,
    before: Before,
    denied: Denied,
    refuses: Arc<AtomicBool>,
}

/// What a request of the daemon takes in a simulation, half of it before it arrives: whatever happens meanwhile happens
/// between two requests, as it does on a network.
const LATENCY: Duration = Duration::from_millis(4);
/// The path of the place at which kcp administers its Shards, beside those of workspaces.
pub(crate) const ADMIN: &str = ":admin";
/// When Deployments become ready, where there is a node.
const READINESS: Readiness = Readiness::After(Duration::from_secs(1));

// === impl Server ===

impl Server {
    /// A simulated KCP, furnished with our kinds and those of Istio.
    pub(super) async fn simulated_kcp() -> Server {
        let options = Options { began: ambient::now(), readiness: Readiness::Never, ..Options::default() };
        Server::serve(furnished().restored(&options), "kcp").await
    }

    /// A simulated runtime.
    pub(super) async fn simulated(name: &str, extent: Extent) -> Server {
        let readiness = match extent {
            Extent::Server | Extent::Controllers => Readiness::Never,
            Extent::Node => READINESS,
        };
        let options = Options { began: ambient::now(), readiness, ..Options::default() };
        Server::serve(sim::Server::new(&options), name).await
    }

    async fn serve(server: sim::Server, name: &str) -> Server {
        server.keep_requests();
        let served = server.listen(name).await.expect("a port on loopback");
        let (runs, spoiled, before) = (watch::Sender::new(true), Spoiled::default(), Before::default());
        let (hangs, workspaces) = (watch::Sender::new(false), Workspaces::default());
        let (blind, denied) = (watch::Sender::new(false), Denied::default());
        Server::Simulated(Box::new(Simulated { served, runs, hangs, blind, spoiled, before, denied, workspaces }))
    }

    #[track_caller]
    fn as_simulated(&self) -> &Simulated {
        let Server::Simulated(simulated) = self else { panic!("only a simulated server has a copy") };
        simulated
    }

    /// A server with the objects that this one has, which is simulated.
    #[track_caller]
    pub(crate) fn copied(&self) -> sim::Server {
        let options = Options { began: ambient::now(), readiness: Readiness::Never, ..Options::default() };
        let copied = self.as_simulated().served.server().restored(&options);
        copied.keep_requests();
        copied
    }

    /// A control plane for tests that keep to a namespace: one of their own, or the real one that they share.
    pub(crate) async fn kcp() -> Server {
        match servers() {
            Servers::Simulated => Server::simulated_kcp().await,
            Servers::Real => Server::real_kcp().await,
        }
    }

    /// The real control plane that tests share, whatever is asked for, with our kinds.
    pub(crate) async fn real_kcp() -> Server {
        static CRDS: OnceCell<()> = OnceCell::const_new();
        let server = harness::kcp().await;
        let client = server.client().expect("a client");
        CRDS.get_or_init(|| install_own_crds(&client)).await;
        Server::Real(Box::new(server))
    }

    /// A server that serves what every cluster does, and nothing of ours.
    pub(crate) async fn bare() -> Server {
        match servers() {
            Servers::Simulated => Server::simulated("bare", Extent::Server).await,
            Servers::Real => {
                let options = testbed::Options { name: "bare".to_owned(), audit: true, ..testbed::Options::default() };
                Server::Real(Box::new(harness::dedicated(options).await))
            }
        }
    }

    /// How a daemon in this process reaches these servers, as the users that its kubeconfigs name.
    pub(crate) fn network<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Network {
        let here = servers.into_iter().filter_map(|server| match server {
            Server::Simulated(server) => Some((
                format!("127.0.0.1:{}", server.served.port()),
                (server.wire(LATENCY, &server.spoiled, &server.before), server.workspaces.clone()),
            )),
            Server::Real(_) => None,
        });
        let here: BTreeMap<String, (Wire, Workspaces)> = here.collect();
        Network::in_process(move |config| {
            let (wire, workspaces) = here.get(config.cluster_url.authority()?.as_str())?;
            let workspace = match config.cluster_url.path() {
                "/services/admin" => Some(ADMIN),
                path => path.strip_prefix("/clusters/"),
            };
            let mut wire = wire.clone();
            if let Some(path) = workspace {
                Workspace { server: wire.server, refuses: wire.refuses } = workspaces.at(path);
            }
            Some(wire.client(user(config)?))
        })
    }

    /// A workspace of a simulated server, which plays kcp.
    #[track_caller]
    pub(crate) fn workspace(&self, path: &str) -> sim::Server {
        self.as_simulated().workspaces.at(path).server
    }

    /// From now on, a workspace refuses every request of the daemon, or answers again.
    #[track_caller]
    pub(crate) fn refuse_workspace(&self, path: &str, refuses: bool) {
        self.as_simulated().workspaces.at(path).refuses.store(refuses, Ordering::Relaxed);
    }

    /// What only a real one has.
    #[track_caller]
    pub(crate) fn real(&self) -> &ControlPlane {
        match self {
            Server::Real(server) => (**server).borrow(),
            Server::Simulated(_) => panic!("a test that needs a real server asks for a real stage"),
        }
    }

    /// Its short name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Server::Simulated(server) => server.served.name(),
            Server::Real(_) => self.real().name(),
        }
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> Kubeconfig {
        match self {
            Server::Simulated(server) => server.served.kubeconfig().clone(),
            Server::Real(_) => self.real().kubeconfig(),
        }
    }

    /// A kubeconfig with a client certificate for any user.
    pub(crate) fn kubeconfig_of(&self, user: &str, group: Option<&str>) -> Kubeconfig {
        match self {
            Server::Simulated(server) => server.served.kubeconfig_of(user, group).expect("a kubeconfig"),
            Server::Real(_) => self.real().kubeconfig_of(user, group).expect("a kubeconfig"),
        }
    }

    /// A client of the administrator.
    pub(crate) fn client(&self) -> Client {
        match self {
            Server::Simulated(server) => {
                server.wire(Duration::ZERO, &Spoiled::default(), &Before::default()).client(User::admin())
            }
            Server::Real(_) => self.real().client().expect("a client"),
        }
    }

    /// Where its records stand now.
    pub(crate) fn mark(&self) -> u64 {
        match self {
            Server::Simulated(server) => server.served.server().kept_request_count() as u64,
            Server::Real(_) => self.real().audit().expect("audited").mark(),
        }
    }

    /// The requests since a mark, each once, in the order of their answers.
    pub(crate) fn records_since(&self, mark: u64) -> Vec<Record> {
        match self {
            Server::Simulated(server) => {
                let from = usize::try_from(mark).expect("a mark of this server");
                server.served.server().kept_requests(from).into_iter().map(record).collect()
            }
            Server::Real(_) => self.real().audit().expect("audited").since(mark).expect("an audit log"),
        }
    }

    /// All requests so far.
    pub(crate) fn records(&self) -> Vec<Record> {
        self.records_since(0)
    }

    /// Ends it, as a crash would; [`Server::start_again`] brings it back with all its data.
    pub(crate) async fn stop(&self) {
        match self {
            Server::Simulated(server) => {
                server.runs.send_replace(false);
                server.served.stop().await;
            }
            Server::Real(_) => self.real().stop(),
        }
    }

    /// Starts a stopped server again, where it was.
    pub(crate) async fn start_again(&self) {
        match self {
            Server::Simulated(server) => {
                server.served.start_again().await.expect("its port is free");
                server.runs.send_replace(true);
            }
            Server::Real(_) => self.real().start_again().await.expect("it starts"),
        }
    }

    /// From now on, it accepts connections and answers nothing. Open watches of a simulated one continue.
    pub(crate) fn freeze(&self) {
        match self {
            Server::Simulated(server) => server.served.freeze(),
            Server::Real(_) => self.real().freeze(),
        }
    }

    /// Undoes [`Server::freeze`].
    pub(crate) fn thaw(&self) {
        match self {
            Server::Simulated(server) => server.served.thaw(),
            Server::Real(_) => self.real().thaw(),
        }
    }

    /// From now on, a simulated one answers no request of the daemon of this process, or answers again. Open watches
    /// continue.
    pub(crate) fn hang(&self, hangs: bool) {
        let Server::Simulated(server) = self else { panic!("only a simulated server hangs on demand") };
        server.hangs.send_replace(hangs);
    }

    /// From now on, watches of the daemon of this process at a simulated one show nothing, or all that they have held
    /// back. Other requests are answered.
    pub(crate) fn blind(&self, blind: bool) {
        self.as_simulated().blind.send_replace(blind);
    }

    /// From now on, a simulated one refuses the daemon of this process to list, watch or create the objects of a kind,
    /// given by its plural, or to use a subresource of them, as in `kymas/status`; `None` ends that. Open watches
    /// continue.
    pub(crate) fn deny(&self, resource: Option<&'static str>) {
        *self.as_simulated().denied.lock().expect("a lock") = resource;
    }

    /// Cuts all connections to a simulated one. From then on, it answers every request with this status, as a load
    /// balancer does that has no server left behind it; `None` ends that.
    pub(crate) async fn fail(&self, status: Option<http::StatusCode>) {
        let Server::Simulated(server) = self else { panic!("only a simulated server fails on demand") };
        server.served.stop().await;
        server.served.fail(status);
        server.served.start_again().await.expect("its port is free");
    }

    /// From now on, a simulated one answers reads and writes of the object with this name as if this field of it were
    /// `value`; `None` ends that. Watches are not concerned.
    pub(crate) fn spoil(&self, name: &str, field: Option<(&'static str, Value)>) {
        let Server::Simulated(server) = self else { panic!("only a simulated server answers what it does not have") };
        let mut spoiled = server.spoiled.lock().expect("a lock");
        match field {
            Some(field) => _ = spoiled.insert(name.to_owned(), field),
            None => _ = spoiled.remove(name),
        }
    }

    /// Just before the next request of the daemon of this process whose path ends so arrives at a simulated one, this
    /// happens.
    pub(crate) fn before(&self, path_end: &'static str, happens: impl Future<Output = ()> + Send + 'static) {
        let Server::Simulated(server) = self else {
            panic!("only at a simulated server is the order of requests known")
        };
        *server.before.lock().expect("a lock") = Some((path_end, Box::pin(happens)));
    }

    /// From now on its calls to the agent's webhook go to this loopback port; to none, they fail.
    pub(crate) fn lead_webhooks_to(&self, port: Option<u16>) {
        match self {
            Server::Simulated(server) => {
                server.served.server().lead_to(names::SKR_WEBHOOK, names::SKR_NAMESPACE, port);
            }
            Server::Real(_) => self.real().webhooks().lead_to(port),
        }
    }

    /// Has it serve these kinds of Istio's, by their plurals: as Istio defines them on a real server, with any content
    /// on a simulated one, which needs no file of Istio's for that.
    pub(crate) async fn install_istio(&self, plurals: &[&str]) {
        let client = self.client();
        match self {
            Server::Simulated(_) => harness::install_crds(&client, &istio(plurals)).await,
            Server::Real(_) => {
                let crds: Vec<String> = plurals.iter().map(|plural| format!("{plural}.networking.istio.io")).collect();
                let crds: Vec<&str> = crds.iter().map(String::as_str).collect();
                harness::install_crds_from(&client, "istio-crds.yaml", &crds).await;
            }
        }
    }
}

// === impl Copies ===

impl Copies {
    /// Copies servers, all of which are simulated.
    #[track_caller]
    pub(crate) fn of<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Copies {
        let copy = |server: &Server| Copy {
            name: server.name().to_owned(),
            authority: format!("127.0.0.1:{}", server.as_simulated().served.port()),
            server: server.copied(),
            runs: watch::Sender::new(true),
        };
        Copies(servers.into_iter().map(copy).collect())
    }

    /// How a command in this process reaches them.
    pub(crate) fn network(&self) -> Network {
        let here: BTreeMap<String, Wire> = self.0.iter().map(|copy| (copy.authority.clone(), copy.wire())).collect();
        Network::in_process(move |config| {
            let wire = here.get(config.cluster_url.authority()?.as_str())?;
            Some(wire.client(user(config)?))
        })
    }

    /// Their names, each with a client of the administrator and the number of all objects.
    pub(crate) fn clients(&self) -> impl Iterator<Item = (&str, Client, usize)> {
        self.0.iter().map(|copy| (copy.name.as_str(), copy.server.client(), copy.server.len()))
    }

    /// The writes that were answered since they were copied: cluster, verb and path.
    pub(crate) fn writes(&self) -> Vec<String> {
        let all = self.0.iter().flat_map(|copy| {
            let records = copy.server.kept_requests(0).into_iter().map(record).filter(Record::is_write);
            records.map(|record| {
                let path = record.uri.split('?').next().unwrap_or_default().to_owned();
                format!("{} {} {path}", copy.name, record.verb)
            })
        });
        all.collect()
    }
}

// === impl Copy ===

impl Copy {
    fn wire(&self) -> Wire {
        Wire {
            server: self.server.clone(),
            runs: self.runs.subscribe(),
            hangs: watch::channel(false).1,
            blind: watch::channel(false).1,
            latency: LATENCY,
            spoiled: Spoiled::default(),
            before: Before::default(),
            denied: Denied::default(),
            refuses: Arc::default(),
        }
    }
}

/// What a KCP has before anything of a test is there.
pub(super) async fn furnish(kcp: &Client) {
    install_own_crds(kcp).await;
    install_istio_crds(kcp).await;
    apply(kcp, &kcp_system()).await;
}

/// The user in the client certificate of a configuration.
fn user(config: &kube::Config) -> Option<User> {
    let pem = STANDARD.decode(config.auth_info.client_certificate_data.as_ref()?).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    Some(User { name, groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()], ..User::default() })
}

fn record(answered: Answered) -> Record {
    let Answered { user, agent, verb, resource, namespace, name, code, uri, received, answered } = answered;
    // Such texts sort as times do.
    let (received, answered) = (format!("{received:020}"), format!("{answered:020}"));
    Record { user, agent, verb, resource, namespace, name, code, uri, received, answered }
}

/// A control plane with what all of them have. Made once: definitions are large.
fn furnished() -> &'static sim::Server {
    static FURNISHED: OnceLock<sim::Server> = OnceLock::new();
    FURNISHED.get_or_init(|| {
        // A separate tokio runtime, because the first caller runs in another one.
        let make = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let server = sim::Server::new(&Options::default());
                let client = server.client();
                install_own_crds(&client).await;
                harness::install_crds(&client, &istio(&["gateways", "virtualservices"])).await;
                apply(&client, &kcp_system()).await;
                server
            })
        };
        std::thread::spawn(make).join().expect("a control plane is furnished")
    })
}

fn kcp_system() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kcp-system"}})
}

/// Kinds of Istio's that may hold anything.
fn istio(plurals: &[&str]) -> Vec<Value> {
    let kinds = [("gateways", "Gateway"), ("virtualservices", "VirtualService")];
    let wanted = kinds.into_iter().filter(|(plural, _)| plurals.contains(plural));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = |(plural, kind): (&str, &str)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.networking.istio.io")},
            "spec": {
                "group": "networking.istio.io", "scope": "Namespaced",
                "names": {
                    "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
                },
                "versions": [{
                    "name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    };
    wanted.map(crd).collect()
}

/// The answer to a request for a resource that is denied, or to the question whether it is; `None` for any other.
fn denial(resource: &str, request: &Request<kube::client::Body>) -> Option<Response<Body>> {
    let path = request.uri().path();
    if path.ends_with("/selfsubjectaccessreviews") {
        let answer = Response::builder().status(201).header("content-type", "application/json");
        return Some(answer.body(Body::from(json!({"status": {"allowed": false}}).to_string())).expect("an answer"));
    }
    let is_its = match resource.split_once('/') {
        None => path.ends_with(&format!("/{resource}")),
        Some((plural, part)) => path.contains(&format!("/{plural}/")) && path.ends_with(&format!("/{part}")),
    };
    let verb = match request.method().as_str() {
        "POST" => "create",
        "PATCH" => "patch",
        _ => "list",
    };
    let group = path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let right =
        format!("cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \"kcp-system\"");
    is_its.then(|| forbidden(&format!("{resource} is forbidden: User \"a\" {right}")))
}

fn forbidden(message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
        "message": message, "code": 403});
    let answer = Response::builder().status(403).header("content-type", "application/json");
    answer.body(Body::from(status.to_string())).expect("an answer")
}

// === impl Simulated ===

impl Simulated {
    fn wire(&self, latency: Duration, spoiled: &Spoiled, before: &Before) -> Wire {
        let (spoiled, before) = (Arc::clone(spoiled), Arc::clone(before));
        let (server, runs, hangs) = (self.served.server().clone(), self.runs.subscribe(), self.hangs.subscribe());
        let (blind, denied) = (self.blind.subscribe(), Arc::clone(&self.denied));
        Wire { server, runs, hangs, blind, latency, spoiled, before, denied, refuses: Arc::default() }
    }
}

// === impl Workspaces ===

impl Workspaces {
    fn at(&self, path: &str) -> Workspace {
        let make = || {
            let options = Options { began: ambient::now(), readiness: Readiness::Never, ..Options::default() };
            let server = sim::Server::new(&options);
            server.keep_requests();
            Workspace { server, refuses: Arc::default() }
        };
        self.0.lock().expect("a lock").entry(path.to_owned()).or_insert_with(make).clone()
    }
}

// === impl Wire ===

impl Wire {
    /// A client that acts as this user.
    fn client(&self, user: User) -> Client {
        let (wire, service) = (self.clone(), self.server.service_as(user));
        let ask = move |request| wire.clone().ask(service.clone(), request);
        Client::new(tower::service_fn(ask), "default")
    }

    async fn ask(mut self, service: Service, request: Request<kube::client::Body>) -> io::Result<Response<Body>> {
        self.pause().await;
        if !*self.runs.borrow() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let is_of_daemon = !self.latency.is_zero();
        if is_of_daemon && self.hangs.wait_for(|hangs| !hangs).await.is_err() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let before = self.before.lock().expect("a lock").take_if(|before| request.uri().path().ends_with(before.0));
        if let Some((_, happens)) = before {
            happens.await;
        }
        if self.refuses.load(Ordering::Relaxed) {
            return Ok(forbidden("access denied"));
        }
        let denied = self.denied.lock().expect("a lock").filter(|_| is_of_daemon);
        if let Some(answer) = denied.and_then(|resource| denial(resource, &request)) {
            return Ok(answer);
        }
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let Ok(response) = service.oneshot(request).await;
        let response = if is_watch { response } else { self.spoil(response).await };
        self.pause().await;
        let blind = (is_watch && is_of_daemon).then(|| self.blind.clone());
        let shown = move |chunk| {
            let blind = blind.clone();
            async move {
                if let Some(mut blind) = blind {
                    _ = blind.wait_for(|blind| !blind).await;
                }
                chunk
            }
        };
        // Streams such as watches end with the server.
        let ended = async move { self.runs.wait_for(|runs| !runs).await.map(drop) };
        Ok(response.map(|body| {
            let chunks = body.into_data_stream().then(shown);
            Body::from_stream(chunks.take_until(Box::pin(ended)))
        }))
    }

    /// The answer with what was spoiled of it.
    async fn spoil(&self, response: Response<Body>) -> Response<Body> {
        let spoiled = self.spoiled.lock().expect("a lock").clone();
        if spoiled.is_empty() {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("an answer");
        let Ok(mut answer) = serde_json::from_slice::<Value>(&bytes) else {
            return Response::from_parts(parts, Body::from(bytes));
        };
        let alone = answer["items"].is_null();
        let items =
            if alone { std::slice::from_mut(&mut answer) } else { answer["items"].as_array_mut().expect("items") };
        for item in items {
            let field = item["metadata"]["name"].as_str().and_then(|name| spoiled.get(name));
            if let Some((field, value)) = field {
                item["metadata"][field] = value.clone();
            }
        }
        parts.headers.remove(http::header::CONTENT_LENGTH);
        Response::from_parts(parts, Body::from(answer.to_string()))
    }

    async fn pause(&self) {
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency / 2).await;
        }
    }
}
