//! etcd, kube-apiserver and what makes Deployments ready.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Node, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use kube_sim::{Authority, Credentials, Identity, Kubeconfig};
use serde_json::json;

use crate::{Assets, Audit, Egress, Error, Folder, Guarded, Program, egress, guard::tail, ports};

/// A loaded machine takes its time; an idle one needs three seconds.
const READY_MAX: Duration = Duration::from_secs(120);
/// How often we look.
const POLL: Duration = Duration::from_millis(100);
/// A port that was free may be taken when the server binds it; more than a few times in a row means something else.
const PORT_TRIES: usize = 5;
/// The only simulated node.
const NODE: &str = "node-1";

/// A running etcd. Several API servers may share it, each below its own prefix.
pub struct Etcd {
    port: u16,
    _process: Guarded,
    // After the process, so that it is gone before its folder.
    folder: Place,
}

/// Where a server keeps its files.
enum Place {
    /// In a folder that goes with it.
    Temporary(Folder),
    /// In a folder that its user keeps.
    Given(PathBuf),
}

/// What runs beside the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// Nothing: no garbage collection, namespaces stay in deletion for ever.
    #[default]
    Server,
    /// kube-controller-manager: owner references and deletion of namespaces work.
    Controllers,
    /// kube-scheduler and one simulated node as well: Deployments become ready.
    Node,
}

/// What kind of control plane is wanted.
#[derive(Clone, Default)]
pub struct Options {
    /// Short name, used in kubeconfigs, logs and as etcd prefix. Unique among those that share an etcd.
    pub name: String,
    /// An etcd to share; its own where none is given.
    pub etcd: Option<Arc<Etcd>>,
    /// What runs beside the API server.
    pub extent: Extent,
    /// Whether requests are logged, see [`ControlPlane::audit`].
    pub audit: bool,
    /// More flags of the API server.
    pub flags: Vec<String>,
    /// Where certificates, logs and data go; a temporary folder where none is given. A given folder is kept.
    pub folder: Option<PathBuf>,
}

/// A running control plane. It ends when this value is dropped or this process ends.
pub struct ControlPlane {
    name: String,
    authority: Authority,
    admin: Identity,
    port: u16,
    api: Mutex<Guarded>,
    start: ApiStart,
    beside: Vec<Guarded>,
    audit: Option<Audit>,
    egress: Arc<Egress>,
    // Fields are dropped in this order: the servers, then what they stand on.
    etcd: Arc<Etcd>,
    folder: PathBuf,
    _place: Option<Place>,
}

/// What is needed to start the API server, the first time and again.
struct ApiStart {
    program: PathBuf,
    flags: Vec<String>,
}

// === impl Place ===

impl Place {
    fn of(given: Option<&Path>, prefix: &str) -> Result<Place, Error> {
        let place = match given {
            Some(folder) => Place::Given(folder.to_owned()),
            None => Place::Temporary(Folder::temporary(prefix)?),
        };
        fs::create_dir_all(place.path()).map_err(Error::file("make the folder", place.path()))?;
        Ok(place)
    }

    fn path(&self) -> &Path {
        match self {
            Place::Temporary(folder) => folder.path(),
            Place::Given(folder) => folder,
        }
    }
}

// === impl Etcd ===

impl Etcd {
    /// Its data and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts one on free ports, with its data in the given folder or else in a temporary one.
    pub async fn start(assets: &Assets, folder: Option<&Path>) -> Result<Arc<Etcd>, Error> {
        let folder = Place::of(folder, "tidegate-etcd-")?;
        let log = folder.path().join("etcd.log");
        for attempt in 1..=PORT_TRIES {
            let (port, peers) = (ports::free(), ports::free());
            let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
            let flags = [
                // A member remembers its ports, so each attempt begins anew.
                format!("--data-dir=data-{attempt}"),
                // What is lost with the machine is of no use to anybody.
                "--unsafe-no-fsync".to_owned(),
                "--log-level=warn".to_owned(),
                "--max-txn-ops=4096".to_owned(),
                "--quota-backend-bytes=8589934592".to_owned(),
                format!("--listen-client-urls={clients}"),
                format!("--advertise-client-urls={clients}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster=default={peers}"),
            ];
            let mut process = Guarded::start(&assets.program(Program::Etcd), &flags, folder.path(), &log)?;
            if listens(port, &mut process).await? {
                return Ok(Arc::new(Etcd { port, _process: process, folder }));
            }
        }
        Err(Error::Ended { server: "etcd".to_owned(), log: tail(&log, 12) })
    }
}

/// Waits until `process` serves on `port`; false if it ended because somebody else has the port.
async fn listens(port: u16, process: &mut Guarded) -> Result<bool, Error> {
    let start = Instant::now();
    while start.elapsed() < READY_MAX {
        if process.ended().is_some() {
            return port_was_taken(process);
        }
        // It must be ours: whoever finds its port taken ends at once.
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() && process.ended().is_none() {
            return Ok(true);
        }
        tokio::time::sleep(POLL).await;
    }
    Err(Error::NotReady {
        server: process.name().to_owned(),
        waited: READY_MAX,
        last: "nobody listens".to_owned(),
        log: process.log_tail(),
    })
}

/// False after a lost race for a port, which is worth another try; an error after anything else.
fn port_was_taken(process: &Guarded) -> Result<bool, Error> {
    let log = tail(process.log(), 40);
    if log.contains("address already in use") {
        return Ok(false);
    }
    Err(Error::Ended { server: process.name().to_owned(), log: process.log_tail() })
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts one and waits until it answers, with its node ready if it has one.
    pub async fn start(assets: &Assets, options: Options) -> Result<ControlPlane, Error> {
        let place = Place::of(options.folder.as_deref(), &format!("tidegate-{}-", options.name))?;
        let folder = place.path().to_owned();
        let etcd = match options.etcd.clone() {
            Some(etcd) => etcd,
            None => Etcd::start(assets, None).await?,
        };
        let authority = Authority::new(&format!("{} authority", options.name))?;
        let admin = authority.client("admin", Some("system:masters"))?;
        prepare(&folder, &authority)?;
        let egress = Arc::new(Egress::start()?);
        write(&folder.join(egress::FILE), &egress.configuration().to_string())?;
        let audit = options.audit.then(|| Audit::new(folder.join("audit.log")));
        let program = assets.program(Program::ApiServer);
        let log = folder.join("kube-apiserver.log");
        for _ in 0..PORT_TRIES {
            let port = ports::free();
            let start = ApiStart { program: program.clone(), flags: api_flags(&options, &etcd, port) };
            let api = Guarded::start(&start.program, &start.flags, &folder, &log)?;
            let mut plane = ControlPlane {
                name: options.name.clone(),
                authority: Authority::clone(&authority),
                admin: admin.clone(),
                port,
                api: Mutex::new(api),
                start,
                beside: Vec::new(),
                audit: audit.clone(),
                egress: Arc::clone(&egress),
                etcd: etcd.clone(),
                folder: folder.clone(),
                _place: None,
            };
            if plane.ready().await? {
                plane._place = Some(place);
                plane.start_beside(assets, options.extent).await?;
                return Ok(plane);
            }
        }
        Err(Error::Ended { server: "kube-apiserver".to_owned(), log: tail(&log, 12) })
    }

    /// Its short name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it serves.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Its certificates, logs and data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What keeps its objects.
    pub fn etcd(&self) -> &Arc<Etcd> {
        &self.etcd
    }

    /// The authority of its server and client certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The audit log, where one was asked for.
    pub fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// Where its calls to webhooks go.
    pub fn webhooks(&self) -> &Egress {
        &self.egress
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig_with(Credentials::Certificate(self.admin.clone()))
    }

    /// A kubeconfig with a client certificate for any user. RBAC decides what the user may do.
    pub fn kubeconfig_of(&self, user: &str, group: Option<&str>) -> Result<Kubeconfig, Error> {
        Ok(self.kubeconfig_with(Credentials::Certificate(self.authority.client(user, group)?)))
    }

    /// A kubeconfig with a fresh token of an existing service account.
    pub async fn kubeconfig_of_service_account(&self, namespace: &str, name: &str) -> Result<Kubeconfig, Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client()?, namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(|source| self.failed("request a token", source))?;
        Ok(self.kubeconfig_with(Credentials::Token(answer.status.and_then(|status| status.token).unwrap_or_default())))
    }

    /// A kubeconfig with these credentials.
    pub fn kubeconfig_with(&self, credentials: Credentials) -> Kubeconfig {
        Kubeconfig {
            name: self.name.clone(),
            server: self.url(),
            authority: self.authority.pem().to_owned(),
            credentials,
        }
    }

    /// A new client of the administrator. Clients belong to the tokio runtime that they are made in.
    pub fn client(&self) -> Result<Client, Error> {
        Ok(self.kubeconfig().client()?)
    }

    /// Ends the API server, as a crash would; [`ControlPlane::start_again`] brings it back with all its data.
    pub fn stop(&self) {
        self.api().end();
    }

    /// Starts a stopped API server on its old port and waits until it answers.
    pub async fn start_again(&self) -> Result<(), Error> {
        let log = self.folder.join("kube-apiserver.log");
        let api = Guarded::start(&self.start.program, &self.start.flags, &self.folder, &log)?;
        *self.api() = api;
        if self.ready().await? {
            return Ok(());
        }
        Err(Error::Ended { server: "kube-apiserver".to_owned(), log: tail(&log, 12) })
    }

    /// Makes the API server a black hole: connections are accepted by the system, and nobody answers.
    pub fn freeze(&self) {
        self.api().signal("STOP");
    }

    /// Ends what [`ControlPlane::freeze`] began.
    pub fn thaw(&self) {
        self.api().signal("CONT");
    }

    fn api(&self) -> std::sync::MutexGuard<'_, Guarded> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, action: &'static str, source: kube::Error) -> Error {
        Error::Request { server: self.name.clone(), action, source: Box::new(source) }
    }

    /// Waits for readiness; false if the port went to somebody else.
    async fn ready(&self) -> Result<bool, Error> {
        let client = self.client()?;
        let start = Instant::now();
        let mut last = String::new();
        while start.elapsed() < READY_MAX {
            if self.api().ended().is_some() {
                return port_was_taken(&self.api());
            }
            let request = http::Request::get("/readyz").body(Vec::new());
            let answer = match request {
                Ok(request) => client.request_text(request).await,
                Err(error) => return Err(Error::Client { server: self.name.clone(), message: error.to_string() }),
            };
            match answer {
                Ok(text) if text == "ok" => return Ok(true),
                Ok(text) => last = text,
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(POLL).await;
        }
        let log = self.api().log_tail();
        Err(Error::NotReady { server: format!("{} kube-apiserver", self.name), waited: READY_MAX, last, log })
    }

    async fn start_beside(&mut self, assets: &Assets, extent: Extent) -> Result<(), Error> {
        if extent >= Extent::Controllers {
            let kubeconfig = self.write_kubeconfig("system:kube-controller-manager", None)?;
            let mut flags = leaderless(&kubeconfig);
            // Each controller acts as its own service account, since RBAC's defaults are made for that.
            flags.extend(
                [
                    "--use-service-account-credentials",
                    "--service-account-private-key-file=sa.key",
                    "--root-ca-file=ca.crt",
                ]
                .map(str::to_owned),
            );
            self.start_one(assets, Program::ControllerManager, &flags)?;
        }
        if extent >= Extent::Node {
            let kubeconfig = self.write_kubeconfig("system:kube-scheduler", None)?;
            self.start_one(assets, Program::Scheduler, &leaderless(&kubeconfig))?;
            let kubeconfig = self.write_kubeconfig("kwok", Some("system:masters"))?;
            let flags = [
                format!("--kubeconfig={kubeconfig}"),
                format!("--config={}", assets.file("kwok-stages.yaml").display()),
                "--manage-all-nodes=true".to_owned(),
                "--node-ip=127.0.0.1".to_owned(),
                "--cidr=10.244.0.0/16".to_owned(),
                "--node-lease-duration-seconds=40".to_owned(),
            ];
            self.start_one(assets, Program::Kwok, &flags)?;
            self.add_node().await?;
        }
        Ok(())
    }

    fn start_one(&mut self, assets: &Assets, program: Program, flags: &[String]) -> Result<(), Error> {
        let log = self.folder.join(format!("{}.log", program.name()));
        self.beside.push(Guarded::start(&assets.program(program), flags, &self.folder, &log)?);
        Ok(())
    }

    /// Writes a component's kubeconfig and returns its path.
    fn write_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<String, Error> {
        let path = self.folder.join(format!("{}.kubeconfig", user.replace(':', "-")));
        write(&path, &self.kubeconfig_of(user, group)?.text())?;
        Ok(path.display().to_string())
    }

    /// A node that kwok plays, with room for everything.
    async fn add_node(&mut self) -> Result<(), Error> {
        let room = json!({"cpu": "512", "memory": "4Ti", "pods": "100000"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": NODE,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            },
        });
        let nodes: Api<Node> = Api::all(self.client()?);
        let apply = PatchParams::apply("testbed").force();
        nodes.patch(NODE, &apply, &Patch::Apply(node)).await.map_err(|e| self.failed("add a node", e))?;
        let status = json!({
            "apiVersion": "v1", "kind": "Node",
            "status": {"capacity": room, "allocatable": room},
        });
        nodes.patch_status(NODE, &apply, &Patch::Apply(status)).await.map_err(|e| self.failed("add a node", e))?;
        let start = Instant::now();
        while start.elapsed() < READY_MAX {
            let node = nodes.get_status(NODE).await.map_err(|e| self.failed("read a node", e))?;
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                return Ok(());
            }
            if let Some(ended) = self.beside.iter_mut().find_map(|one| one.ended().is_some().then_some(one)) {
                return Err(Error::Ended { server: ended.name().to_owned(), log: ended.log_tail() });
            }
            tokio::time::sleep(POLL).await;
        }
        let log = self.beside.last().map(Guarded::log_tail).unwrap_or_default();
        let server = format!("{}'s node", self.name);
        Err(Error::NotReady { server, waited: READY_MAX, last: "no condition Ready".to_owned(), log })
    }
}

/// Writes what the API server reads at its start.
fn prepare(folder: &Path, authority: &Authority) -> Result<(), Error> {
    let serving = authority.server("kube-apiserver", &["localhost", "127.0.0.1", "kubernetes.default.svc"])?;
    let (public, private) = Authority::key_pair("service accounts")?;
    write(&folder.join("ca.crt"), authority.pem())?;
    write(&folder.join("api.crt"), &serving.certificate)?;
    write(&folder.join("api.key"), &serving.key)?;
    write(&folder.join("sa.pub"), &public)?;
    write(&folder.join("sa.key"), &private)?;
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [{"level": "Metadata"}],
    });
    write(&folder.join("audit-policy.yaml"), &policy.to_string())
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::file("write", path))
}

fn api_flags(options: &Options, etcd: &Etcd, port: u16) -> Vec<String> {
    let mut flags: Vec<String> = [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--cert-dir=certs",
        "--tls-cert-file=api.crt",
        "--tls-private-key-file=api.key",
        "--client-ca-file=ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=sa.pub",
        "--service-account-signing-key-file=sa.key",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        // Pods get no token mounted: nothing runs in them.
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    .map(str::to_owned)
    .into();
    flags.push(format!("--secure-port={port}"));
    flags.push(format!("--egress-selector-config-file={}", egress::FILE));
    flags.push(format!("--etcd-servers=http://127.0.0.1:{}", etcd.port));
    flags.push(format!("--etcd-prefix=/{}", options.name));
    if options.audit {
        flags.push("--audit-policy-file=audit-policy.yaml".to_owned());
        flags.push("--audit-log-path=audit.log".to_owned());
        // In MiB: a log that is rotated away under a test would be one that counts too little.
        flags.push("--audit-log-maxsize=100000".to_owned());
    }
    flags.extend(options.flags.iter().cloned());
    flags
}

/// Flags of a component that is the only one of its kind and serves nothing.
fn leaderless(kubeconfig: &str) -> Vec<String> {
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}
