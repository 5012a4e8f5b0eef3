//! etcd, kube-apiserver, and the programs that make Deployments ready.

mod reset;

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
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
use tidegate_process::lock::Mutex;

pub use reset::Baseline;

use crate::{Assets, Audit, Egress, Error, Folder, Guarded, Program, egress, guard::tail, ports};

/// Limit until a server is ready. A loaded machine needs long; an idle one needs three seconds.
const READY_MAX: Duration = Duration::from_secs(120);
/// Interval of checking.
const POLL: Duration = Duration::from_millis(100);
/// Another program may take a free port before the server binds it. More than a few times in a row means something
/// else.
const PORT_TRIES: usize = 5;
/// The only simulated node.
const NODE: &str = "node-1";

/// A running etcd. Several API servers may share it, each with its own prefix.
pub struct Etcd {
    port: u16,
    _process: Guarded,
    // Dropped after the process, so that the process ends before its folder is removed.
    folder: DataFolder,
}

/// The folder of a server's files.
enum DataFolder {
    /// A temporary folder.
    Temporary(Folder),
    /// A folder of the user, which is kept.
    Given(PathBuf),
}

/// Which programs run besides the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// None: no garbage collection, and namespaces never finish terminating.
    #[default]
    Server,
    /// kube-controller-manager: owner references and the deletion of namespaces work.
    Controllers,
    /// Also kube-scheduler and one simulated node: Deployments become ready.
    Node,
}

/// The options of a control plane.
#[derive(Clone, Default)]
pub struct Options {
    /// A short name for kubeconfigs and logs.
    pub name: String,
    /// The beginning of its keys in a shared etcd, unique there; by default its name.
    pub prefix: Option<String>,
    /// A shared etcd; by default the control plane starts its own.
    pub etcd: Option<Arc<Etcd>>,
    /// Which programs run besides the API server.
    pub extent: Extent,
    /// Whether requests are logged, see [`ControlPlane::audit`].
    pub audit: bool,
    /// Additional flags of the API server.
    pub flags: Vec<String>,
    /// The folder of certificates, logs and data, which is kept; by default a temporary folder.
    pub folder: Option<PathBuf>,
}

/// A running control plane. It ends when this value is dropped or this process ends.
pub struct ControlPlane {
    name: String,
    /// The beginning of its keys in etcd, between slashes.
    prefix: String,
    authority: Authority,
    admin: Identity,
    port: u16,
    api: Mutex<Guarded>,
    start: ApiStart,
    beside: Vec<Guarded>,
    audit: Option<Audit>,
    egress: Arc<Egress>,
    // Fields are dropped in this order: the servers, then what they depend on.
    etcd: Arc<Etcd>,
    folder: PathBuf,
    _place: Option<DataFolder>,
}

/// What the API server needs for its first and later starts.
struct ApiStart {
    program: PathBuf,
    flags: Vec<String>,
}

// === impl Options ===

impl Options {
    fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or(&self.name)
    }
}

// === impl DataFolder ===

impl DataFolder {
    fn new(given: Option<&Path>, prefix: &str) -> Result<DataFolder, Error> {
        let place = match given {
            Some(folder) => DataFolder::Given(folder.to_owned()),
            None => DataFolder::Temporary(Folder::temporary(prefix)?),
        };
        fs::create_dir_all(place.path()).map_err(Error::file("make the folder", place.path()))?;
        Ok(place)
    }

    fn path(&self) -> &Path {
        match self {
            DataFolder::Temporary(folder) => folder.path(),
            DataFolder::Given(folder) => folder,
        }
    }
}

// === impl Etcd ===

impl Etcd {
    /// The folder of its data and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts etcd on free ports, with its data in the given folder or in a temporary one.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be started or does not become ready.
    pub async fn start(assets: &Assets, folder: Option<&Path>) -> Result<Arc<Etcd>, Error> {
        let folder = DataFolder::new(folder, "tidegate-etcd-")?;
        let log = folder.path().join("etcd.log");
        for attempt in 1..=PORT_TRIES {
            let (port, peers) = (ports::free(), ports::free());
            let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
            let flags = [
                // A member remembers its ports, so each attempt needs new data.
                format!("--data-dir=data-{attempt}"),
                // The data need not survive a crash of the machine.
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

/// Waits until `process` serves on `port`; false if it ended because another program has the port.
async fn listens(port: u16, process: &mut Guarded) -> Result<bool, Error> {
    let start = Instant::now();
    while start.elapsed() < READY_MAX {
        if process.ended().is_some() {
            return port_was_taken(process);
        }
        // It must be ours: a server whose port is taken ends at once.
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() && process.ended().is_none() {
            return Ok(true);
        }
        tokio::time::sleep(POLL).await;
    }
    Err(Error::NotReady {
        server: process.name().to_owned(),
        waited: READY_MAX,
        last: "no process listens".to_owned(),
        log: process.log_tail(),
    })
}

/// Returns false if the port was taken, so that the caller retries; fails for any other cause.
fn port_was_taken(process: &Guarded) -> Result<bool, Error> {
    let log = tail(process.log(), 40);
    if log.contains("address already in use") {
        return Ok(false);
    }
    Err(Error::Ended { server: process.name().to_owned(), log: process.log_tail() })
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts a control plane and waits until it answers, and until its node is ready if it has one.
    ///
    /// # Errors
    ///
    /// Fails if a program cannot be started or does not become ready.
    pub async fn start(assets: &Assets, options: Options) -> Result<ControlPlane, Error> {
        let place = DataFolder::new(options.folder.as_deref(), &format!("tidegate-{}-", options.name))?;
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
                prefix: format!("/{}/", options.prefix()),
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

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The folder of its certificates, logs and data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its etcd.
    pub fn etcd(&self) -> &Arc<Etcd> {
        &self.etcd
    }

    /// The CA of its server and client certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The audit log, if it was requested.
    pub fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// The proxy for its calls to webhooks.
    pub fn webhooks(&self) -> &Egress {
        &self.egress
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig_with(Credentials::Certificate(self.admin.clone()))
    }

    /// A kubeconfig with a client certificate for any user. RBAC decides what the user may do.
    ///
    /// # Errors
    ///
    /// Fails if the certificate cannot be created.
    pub fn kubeconfig_of(&self, user: &str, group: Option<&str>) -> Result<Kubeconfig, Error> {
        Ok(self.kubeconfig_with(Credentials::Certificate(self.authority.client(user, group)?)))
    }

    /// A kubeconfig with a new token of an existing service account.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses the token.
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

    /// A new client of the administrator. It belongs to the tokio runtime that creates it.
    ///
    /// # Errors
    ///
    /// Fails if the kubeconfig cannot be used.
    pub fn client(&self) -> Result<Client, Error> {
        Ok(self.kubeconfig().client()?)
    }

    /// Kills the API server, like a crash; [`ControlPlane::start_again`] restarts it with all its data.
    pub fn stop(&self) {
        self.api().end();
    }

    /// Starts a stopped API server on its old port and waits until it answers.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be started or does not become ready.
    pub async fn start_again(&self) -> Result<(), Error> {
        let log = self.folder.join("kube-apiserver.log");
        let api = Guarded::start(&self.start.program, &self.start.flags, &self.folder, &log)?;
        *self.api() = api;
        if self.ready().await? {
            return Ok(());
        }
        Err(Error::Ended { server: "kube-apiserver".to_owned(), log: tail(&log, 12) })
    }

    /// Stops the API server's process: the system still accepts connections, but no request is answered.
    pub fn freeze(&self) {
        self.api().signal("STOP");
    }

    /// Undoes [`ControlPlane::freeze`].
    pub fn thaw(&self) {
        self.api().signal("CONT");
    }

    fn api(&self) -> std::sync::MutexGuard<'_, Guarded> {
        self.api.lock()
    }

    fn failed(&self, action: &'static str, source: kube::Error) -> Error {
        Error::Request { server: self.name.clone(), action, source: Box::new(source) }
    }

    /// Waits for readiness; false if another program took the port.
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
            // Each controller uses its own service account, because RBAC's defaults expect that.
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

    /// Adds a node that kwok simulates, with room for everything.
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

/// Writes the files that the API server reads at its start.
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
        // Pods need no token, because nothing runs in them.
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    .map(str::to_owned)
    .into();
    flags.push(format!("--secure-port={port}"));
    flags.push(format!("--egress-selector-config-file={}", egress::FILE));
    flags.push(format!("--etcd-servers=http://127.0.0.1:{}", etcd.port));
    flags.push(format!("--etcd-prefix=/{}", options.prefix()));
    if options.audit {
        flags.push("--audit-policy-file=audit-policy.yaml".to_owned());
        flags.push("--audit-log-path=audit.log".to_owned());
        // In MiB. A log that is rotated during a test would lose records.
        flags.push("--audit-log-maxsize=100000".to_owned());
    }
    flags.extend(options.flags.iter().cloned());
    flags
}

/// Flags of a component that needs no leader election and serves nothing.
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
