//! Row 22: a CA is replaced, and whatever a pod may hold meanwhile, every other pod accepts it.
//!
//! The test plays the kubelets, one Deployment after the other, each in two steps: pods of the new template begin, then
//! those of the former one end. The files of a pod follow its Secrets, and its processes read them when they like. So a
//! pod may hold everything that its files had since it began. After each change of a Secret and after each step of a
//! rollout, each certificate that a pod may present is verified with all that each other pod may trust.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{
    Client,
    api::{WatchEvent, WatchParams},
};
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use serde_json::{Value, json};
use tidegate::internals::gateway::pki;
use tidegate_core::plan::certificate::Authority;
use tidegate_process::ambient;

use super::{DEPLOYMENTS, KcpLandscape, condition, object, resources};
use crate::{harness, stage::scenarios};

scenarios! {
    whatever_a_pod_holds_is_accepted_while_each_ca_is_replaced,
    the_replacement_of_all_cas_survives_restarts,
    a_former_key_of_service_accounts_is_accepted_for_a_day,
    a_key_that_another_program_replaces_is_noticed_at_once_and_after_a_restart,
    cert_manager_replaces_a_ca_and_both_are_trusted_until_certificates_are_renewed,
}

/// How often a kubelet may do something until everything is as it should be.
const TURNS: usize = 1500;

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Server,
    Client,
    RequestHeader,
    Cache,
}

/// The Secrets, and what pods may hold of them.
#[derive(Default)]
struct World {
    /// Version and data of each.
    secrets: BTreeMap<String, (u64, Value)>,
    /// The pods of each Deployment, those of the newest template last.
    pods: BTreeMap<String, Vec<Pods>>,
    /// Chains and bundles that were verified.
    accepted: HashSet<(String, String)>,
    /// What these certificates were for.
    roles: BTreeSet<Role>,
    failures: Vec<String>,
}

/// Pods of one template.
struct Pods {
    generation: i64,
    files: Vec<File>,
}

/// The files of a mounted Secret.
struct File {
    path: String,
    secret: String,
    version: u64,
    /// What they had since the pods began.
    contents: Vec<Value>,
}

/// Plays the kubelets.
struct Kubelet<'a> {
    landscape: &'a KcpLandscape,
    world: Arc<Mutex<World>>,
    turns: usize,
}

/// What the CAs at a path of a pod are for.
fn trusted_at(path: &str) -> Option<Role> {
    match path {
        "/etc/kcp/tls/ca" | "/etc/kcp/tls/ca/root" | "/etc/kcp/tls/ca/server" | "/etc/kcp/tls/ca/ca-bundle" => {
            Some(Role::Server)
        }
        "/etc/kcp/tls/ca/client" | "/etc/kcp-front-proxy/client-ca" => Some(Role::Client),
        "/etc/kcp/tls/ca/requestheader-client" => Some(Role::RequestHeader),
        "/etc/cache-server/tls/ca/root" => Some(Role::Cache),
        _ => None,
    }
}

/// What the certificate of a Secret is for.
fn presented_by(secret: &str, data: &Value) -> Option<Role> {
    let ends_with = |suffixes: &[&str]| suffixes.iter().any(|suffix| secret.ends_with(suffix));
    if data["tls.key"].is_null() || secret.starts_with("etcd-") || ends_with(&["-ca", "-service-account"]) {
        return None;
    }
    Some(match secret {
        "cache-server" | "cache-client-certificate" => Role::Cache,
        _ if ends_with(&["-server"]) => Role::Server,
        _ if ends_with(&["-requestheader", "-mounts-proxy"]) => Role::RequestHeader,
        _ => Role::Client,
    })
}

/// Whether who trusts a bundle accepts a certificate with its chain.
fn is_accepted(chain: &str, bundle: &str) -> bool {
    let read = |text: &str| {
        let text = STANDARD.decode(text).unwrap_or_default();
        pki::read_bundle(&text).map(|found| found.authorities().to_vec()).unwrap_or_default()
    };
    let (chain, trusted) = (read(chain), read(bundle));
    let mut above = chain.iter();
    let Some(mut last) = above.next() else { return false };
    loop {
        if trusted.iter().any(|ca| pki::is_of(last, ca)) {
            return true;
        }
        match above.next() {
            Some(next) if pki::is_of(last, next) => last = next,
            Some(_) | None => return false,
        }
    }
}

fn version(found: &Value) -> u64 {
    found["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}

/// Tells the world of each change of a Secret.
async fn follow(client: Client, world: Arc<Mutex<World>>) {
    let api = harness::api_of(&client, &object("v1", "Secret", "any")).await.unwrap();
    let mut since = "0".to_owned();
    loop {
        let Ok(events) = api.watch(&WatchParams::default(), &since).await else {
            // The version may be too old. What was seen is not seen again.
            "0".clone_into(&mut since);
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let mut events = events.boxed();
        while let Ok(Some(event)) = events.try_next().await {
            match event {
                WatchEvent::Added(found) | WatchEvent::Modified(found) => {
                    since = found.metadata.resource_version.clone().expect("a version");
                    world.lock().unwrap().see(&serde_json::to_value(found).unwrap());
                }
                // The files of pods stay.
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => "0".clone_into(&mut since),
            }
        }
    }
}

// === impl World ===

impl World {
    fn see(&mut self, found: &Value) {
        let name = found["metadata"]["name"].as_str().unwrap();
        let (version, data) = (version(found), found["data"].clone());
        let files = self.pods.values_mut().flatten().flat_map(|pods| &mut pods.files);
        for file in files.filter(|file| file.secret == name && file.version < version) {
            file.version = version;
            if file.contents.last() != Some(&data) {
                file.contents.push(data.clone());
            }
        }
        self.secrets.insert(name.to_owned(), (version, data));
        self.check();
    }

    /// Verifies what each may present with what each may trust.
    fn check(&mut self) {
        let (mut presented, mut trusted) = (BTreeSet::new(), BTreeSet::new());
        let text = |data: &Value, key: &str| data[key].as_str().unwrap_or_default().to_owned();
        for (name, pods) in self.pods.iter().flat_map(|(name, all)| all.iter().map(move |pods| (name, pods))) {
            for file in &pods.files {
                for data in &file.contents {
                    if let Some(role) = presented_by(&file.secret, data) {
                        presented.insert((role, text(data, "tls.crt"), format!("{} of {name}", file.secret)));
                    }
                    if let Some(role) = trusted_at(&file.path) {
                        trusted.insert((role, text(data, "tls.crt"), format!("{} of {name}", file.secret)));
                    }
                }
            }
        }
        // A user reads the kubeconfig anew for each request.
        if let Some((_, data)) = self.secrets.get("admin-kubeconfig") {
            let kubeconfig = STANDARD.decode(text(data, "kubeconfig")).unwrap();
            let kubeconfig: Value = serde_yaml::from_slice(&kubeconfig).unwrap();
            let (user, cluster) = (&kubeconfig["users"][0]["user"], &kubeconfig["clusters"][0]["cluster"]);
            presented.insert((Role::Client, text(user, "client-certificate-data"), "a user".to_owned()));
            trusted.insert((Role::Server, text(cluster, "certificate-authority-data"), "a user".to_owned()));
        }
        for (role, chain, whose) in &presented {
            for (_, bundle, who) in trusted.iter().filter(|(of, _, _)| of == role) {
                let pair = (chain.clone(), bundle.clone());
                if self.accepted.contains(&pair) {
                    continue;
                }
                if is_accepted(chain, bundle) {
                    self.accepted.insert(pair);
                    self.roles.insert(*role);
                } else {
                    self.failures.push(format!("{role:?}: {whose} is not trusted by {who}"));
                }
            }
        }
    }
}

// === impl Kubelet ===

impl Kubelet<'_> {
    fn start(landscape: &KcpLandscape) -> Kubelet<'_> {
        let world = Arc::new(Mutex::new(World::default()));
        tokio::spawn(follow(landscape.client.clone(), Arc::clone(&world)));
        Kubelet { landscape, world, turns: 0 }
    }

    /// A step of the rollout of one Deployment, and time for the daemon. So far, everything was accepted.
    async fn turn(&mut self) {
        self.turn_unchecked().await;
        let failures = self.world.lock().unwrap().failures.clone();
        assert_eq!(failures, [""; 0], "turn {}\n{}", self.turns, self.landscape.log());
    }

    async fn turn_unchecked(&mut self) {
        let name = DEPLOYMENTS[self.turns % DEPLOYMENTS.len()];
        self.turns += 1;
        if let Some(found) = self.landscape.read("Deployment", name).await {
            let generation = found["metadata"]["generation"].as_i64().unwrap();
            let known: Vec<i64> = {
                let world = self.world.lock().unwrap();
                world.pods.get(name).into_iter().flatten().map(|pods| pods.generation).collect()
            };
            match known.as_slice() {
                [.., newest] if *newest == generation => self.end(name, &found, known.len()).await,
                _ => self.begin(name, &found).await,
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Pods of the current template begin, if everything that they mount exists.
    async fn begin(&self, name: &str, found: &Value) {
        let pod = &found["spec"]["template"]["spec"];
        let mut files = Vec::new();
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            let Some(secret) = volume["secret"]["secretName"].as_str() else { continue };
            let Some(read) = self.landscape.read("Secret", secret).await else { return };
            let mounts = pod["containers"][0]["volumeMounts"].as_array().into_iter().flatten();
            for mount in mounts.filter(|mount| mount["name"] == volume["name"]) {
                files.push(File {
                    path: mount["mountPath"].as_str().unwrap().to_owned(),
                    secret: secret.to_owned(),
                    version: version(&read),
                    contents: vec![read["data"].clone()],
                });
            }
        }
        let generation = found["metadata"]["generation"].as_i64().unwrap();
        {
            let mut world = self.world.lock().unwrap();
            world.pods.entry(name.to_owned()).or_default().push(Pods { generation, files });
            world.check();
        }
        let wanted = found["spec"]["replicas"].as_i64().unwrap();
        self.report(name, generation, [wanted + 1, 1, wanted]).await;
    }

    /// Pods of former templates end.
    async fn end(&self, name: &str, found: &Value, templates: usize) {
        let wanted = found["spec"]["replicas"].as_i64().unwrap();
        if templates == 1 && found["status"]["updatedReplicas"] == wanted {
            return;
        }
        let generation = found["metadata"]["generation"].as_i64().unwrap();
        {
            let mut world = self.world.lock().unwrap();
            world.pods.entry(name.to_owned()).or_default().retain(|pods| pods.generation == generation);
            world.check();
        }
        self.report(name, generation, [wanted; 3]).await;
    }

    async fn report(&self, name: &str, generation: i64, [all, updated, ready]: [i64; 3]) {
        let status = json!({"observedGeneration": generation, "replicas": all, "updatedReplicas": updated,
            "readyReplicas": ready, "availableReplicas": ready});
        self.landscape.merge("Deployment", name, Some("status"), json!({"status": status})).await;
    }

    /// Until all of the example runs.
    async fn runs(&mut self) {
        for _ in 0..TURNS {
            self.turn().await;
            let mut running = 0;
            for (kind, name, phase) in [
                ("RootShard", "main", "Running"),
                ("Shard", "eu", "Running"),
                ("FrontProxy", "public", "Running"),
                ("Kubeconfig", "admin", "Ready"),
            ] {
                let found = self.landscape.read(kind, name).await.unwrap_or_default();
                running += usize::from(found["status"]["phase"] == phase);
            }
            if running == 4 && self.are_current().await {
                return;
            }
        }
        panic!("it does not run\n{}", self.landscape.log());
    }

    /// Whether all pods are of the current templates.
    async fn are_current(&self) -> bool {
        for name in DEPLOYMENTS {
            let found = self.landscape.read("Deployment", name).await.unwrap_or_default();
            let wanted = found["spec"]["replicas"].clone();
            let generations: Vec<i64> = {
                let world = self.world.lock().unwrap();
                world.pods.get(name).into_iter().flatten().map(|pods| pods.generation).collect()
            };
            let is_current = json!(generations) == json!([found["metadata"]["generation"]])
                && found["status"]["observedGeneration"] == found["metadata"]["generation"]
                && found["status"]["updatedReplicas"] == wanted
                && found["status"]["replicas"] == wanted;
            if wanted.is_null() || !is_current {
                return false;
            }
        }
        true
    }

    /// Until no trust Secret of these CAs is left, and all have another certificate. Returns the trust Secrets that
    /// there were, with the state in their annotation.
    async fn replaced(&mut self, before: &BTreeMap<&str, Value>, restarts: &[usize]) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        for turn in 0..TURNS {
            self.turn().await;
            if restarts.contains(&turn) {
                self.landscape.stage.kill().await;
                self.landscape.stage.start();
            }
            let mut left = 0;
            for (ca, before) in before {
                let now = self.landscape.read("Secret", ca).await.unwrap_or_default();
                let is_new = !now.is_null() && now["data"]["tls.crt"] != before["data"]["tls.crt"];
                let trust = self.landscape.read("Secret", &format!("{ca}-trust")).await;
                left += usize::from(!is_new || trust.is_some());
                if let Some(trust) = trust {
                    let note = trust["metadata"]["annotations"]["tidegate.dev/trusts"].as_str().unwrap_or("no state");
                    let (_, state) = note.split_once(' ').unwrap();
                    seen.insert(format!("{ca} {state}"));
                }
            }
            if left == 0 && self.are_current().await {
                return seen;
            }
        }
        let root = self.landscape.read("RootShard", "main").await.unwrap();
        panic!("{}\n{}", condition(&root, "tidegate.dev/Trust"), self.landscape.log());
    }

    /// Deletes the Secrets of CAs, and returns them.
    async fn delete<'c>(&self, cas: &[&'c str]) -> BTreeMap<&'c str, Value> {
        let mut before = BTreeMap::new();
        for ca in cas {
            before.insert(*ca, self.landscape.read("Secret", ca).await.unwrap());
            self.landscape.delete("Secret", ca).await;
        }
        before
    }
}

/// The example runs with the built-in CA.
async fn running() -> KcpLandscape {
    let landscape = KcpLandscape::builtin().await;
    for resource in resources() {
        harness::apply(&landscape.client, &resource).await;
    }
    landscape.stage.start();
    landscape
}

async fn first(landscape: &KcpLandscape, secret: &str) -> Authority {
    let found = landscape.read("Secret", secret).await.unwrap();
    pki::read_first(&STANDARD.decode(found["data"]["tls.crt"].as_str().unwrap()).unwrap()).unwrap()
}

/// The certificates of a trust Secret.
fn trusted(found: &Value) -> Vec<Authority> {
    let text = STANDARD.decode(found["data"]["tls.crt"].as_str().unwrap()).unwrap();
    pki::read_bundle(&text).unwrap().authorities().to_vec()
}

/// How far a trust Secret of a key says that its replacement is, and since when the new key is in place.
fn noted(found: &Value) -> (&str, Timestamp) {
    let note = found["metadata"]["annotations"]["tidegate.dev/trusts"].as_str().expect("a note");
    let mut words = note.split(' ').skip(1);
    (words.next().expect("a state"), words.next().expect("a moment").parse().expect("a time"))
}

/// Another program replaces a key of service accounts in place. The certificate of the new one is from 1975.
async fn replace_key(landscape: &KcpLandscape, secret: &str) {
    let ca = landscape.read("Secret", "main-service-account-ca").await.unwrap();
    let text = |key: &str| String::from_utf8(STANDARD.decode(ca["data"][key].as_str().unwrap()).unwrap()).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&text("tls.crt"), KeyPair::from_pem(&text("tls.key")).unwrap()).unwrap();
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.distinguished_name.push(DnType::CommonName, secret);
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    let data = json!({"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key.serialize_pem())});
    landscape.merge("Secret", secret, None, json!({ "data": data })).await;
}

/// The CAs of the example, each with something that it signs.
const CAS: [(&str, &str); 6] = [
    ("cache-ca", "cache-server"),
    ("main-server-ca", "eu-server"),
    ("main-client-ca", "eu-client"),
    ("main-requestheader-client-ca", "main-public-requestheader"),
    ("main-service-account-ca", "eu-service-account"),
    ("main-ca", "main-server-ca"),
];

async fn whatever_a_pod_holds_is_accepted_while_each_ca_is_replaced() {
    let landscape = running().await;
    let mut kubelet = Kubelet::start(&landscape);
    kubelet.runs().await;
    // A leaf alone.
    for leaf in ["eu-server", "main-client", "main-public-requestheader", "cache-client-certificate"] {
        let before = first(&landscape, leaf).await;
        landscape.delete("Secret", leaf).await;
        landscape.until("Secret", leaf, "it is issued again", |_| true).await;
        kubelet.runs().await;
        assert_ne!(first(&landscape, leaf).await, before, "{leaf}");
    }
    for (ca, issued) in CAS {
        let before = kubelet.delete(&[ca]).await;
        let seen = kubelet.replaced(&before, &[]).await;
        let expected = ["ending", "everywhere", "spreading"].map(|state| format!("{ca} {state}"));
        assert!(expected.iter().all(|state| seen.contains(state)), "{seen:?}");
        assert!(pki::is_of(&first(&landscape, issued).await, &first(&landscape, ca).await), "{ca}");
        landscape.stage.rests().await;
        let (kind, owner) = if ca == "cache-ca" { ("CacheServer", "cache") } else { ("RootShard", "main") };
        let found = landscape.read(kind, owner).await.unwrap();
        let text = found["metadata"]["annotations"]["tidegate.dev/status"].as_str().map(str::to_owned);
        let text = text.unwrap_or_else(|| found["status"].to_string());
        assert!(!text.contains("tidegate.dev/Trust"), "{text}");
    }
    let verified: Vec<Role> = kubelet.world.lock().unwrap().roles.iter().copied().collect();
    assert_eq!(verified, [Role::Server, Role::Client, Role::RequestHeader, Role::Cache]);
}

async fn the_replacement_of_all_cas_survives_restarts() {
    let landscape = running().await;
    let mut kubelet = Kubelet::start(&landscape);
    kubelet.runs().await;
    let before = kubelet.delete(&CAS.map(|(ca, _)| ca)).await;
    let waits = |found: &Value| condition(found, "tidegate.dev/Trust").starts_with("False Replacing: ");
    landscape.until("RootShard", "main", "it says that CAs are being replaced", waits).await;
    // Meanwhile, the former ones cannot be made again, and nothing that they signed is.
    assert!(landscape.read("Secret", "main-client-ca").await.is_none());
    let seen = kubelet.replaced(&before, &[4, 30, 70, 120, 180]).await;
    assert!(seen.contains("main-ca everywhere") && seen.contains("main-client-ca everywhere"), "{seen:?}");
    for (ca, issued) in CAS {
        assert!(pki::is_of(&first(&landscape, issued).await, &first(&landscape, ca).await), "{ca}");
    }
}

async fn a_former_key_of_service_accounts_is_accepted_for_a_day() {
    let landscape = running().await;
    let mut kubelet = Kubelet::start(&landscape);
    kubelet.runs().await;
    let former = first(&landscape, "eu-service-account").await;
    let recorded = condition(&landscape.read("Shard", "eu").await.unwrap(), "tidegate.dev/Key");
    let recorded = recorded.strip_prefix("True Recorded: ").expect("a record").to_owned();
    landscape.delete("Secret", "eu-service-account").await;
    let has_both = |found: &Value| trusted(found).len() == 2;
    landscape.until("Secret", "eu-service-account-trust", "it has both", has_both).await;
    let is_everywhere = |found: &Value| noted(found).0 == "everywhere";
    for _ in 0..TURNS {
        kubelet.turn().await;
        let found = landscape.read("Secret", "eu-service-account-trust").await.unwrap();
        if is_everywhere(&found) {
            break;
        }
    }
    let trust = landscape.until("Secret", "eu-service-account-trust", "all pods have it", is_everywhere).await;
    assert_eq!(trusted(&trust), [first(&landscape, "eu-service-account").await, former]);
    for name in ["main-kcp", "eu-shard-kcp", "public-front-proxy"] {
        let found = landscape.read("Deployment", name).await.unwrap();
        assert!(found["spec"]["template"].to_string().contains("\"eu-service-account-trust\""), "{name}");
    }
    let said = "the key of service accounts in Secret eu-service-account is being replaced: tokens of the former one \
                are valid until ";
    let says = |found: &Value| condition(found, "tidegate.dev/Trust").contains(said);
    landscape.until("Shard", "eu", "it says until when", says).await;

    // A restart in between does not forget it, and it ends by itself. Nothing runs for a day: a daemon renews its Lease
    // all the time.
    let until = noted(&trust).1 + SignedDuration::from_hours(24);
    let left = Duration::try_from(until.duration_since(ambient::now())).unwrap();
    landscape.stage.kill().await;
    tokio::time::sleep(left - Duration::from_secs(60)).await;
    landscape.stage.start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(landscape.read("Secret", "eu-service-account-trust").await.is_some());
    tokio::time::sleep(Duration::from_secs(60)).await;
    for _ in 0..TURNS {
        kubelet.turn().await;
        if landscape.read("Secret", "eu-service-account-trust").await.is_none() {
            break;
        }
    }
    landscape.until_gone("Secret", "eu-service-account-trust").await;
    let found = landscape.read("Deployment", "public-front-proxy").await.unwrap();
    assert!(!found["spec"]["template"].to_string().contains("-trust"), "{found}");

    // Another client writes the former key into the status.
    let is_new = |found: &Value| {
        let said = condition(found, "tidegate.dev/Key");
        said.starts_with("True Recorded: ") && !said.contains(&recorded)
    };
    landscape.until("Shard", "eu", "the new key is recorded", is_new).await;
    landscape.stage.kill().await;
    let mut eu = landscape.read("Shard", "eu").await.unwrap();
    let conditions = eu["status"]["conditions"].as_array_mut().unwrap();
    conditions.iter_mut().find(|one| one["type"] == "tidegate.dev/Key").unwrap()["message"] = json!(recorded);
    let conditions = json!({"status": {"conditions": conditions}});
    landscape.merge("Shard", "eu", Some("status"), conditions).await;
    landscape.stage.start();
    landscape.until("Shard", "eu", "the new key is recorded again", is_new).await;
    assert!(landscape.read("Secret", "eu-service-account-trust").await.is_none(), "the former one is not accepted");
}

/// The day counts from when the key was seen, and not from its certificate.
async fn a_key_that_another_program_replaces_is_noticed_at_once_and_after_a_restart() {
    let landscape = KcpLandscape::built().await;
    let former = first(&landscape, "eu-service-account").await;
    let eu = landscape.read("Shard", "eu").await.unwrap();
    let recorded = |found: &Value| {
        let condition = condition(found, "tidegate.dev/Key");
        pki::read_first(condition.strip_prefix("True Recorded: ").expect("a record").as_bytes()).unwrap()
    };
    assert_eq!(recorded(&eu), former);

    // While the daemon runs: no pod restarts before the trust Secret has both.
    let mark = landscape.stage.landscape.kcp.mark();
    replace_key(&landscape, "eu-service-account").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let trust = landscape.read("Secret", "eu-service-account-trust").await.expect("it is made within a second");
    assert_eq!(trusted(&trust), [first(&landscape, "eu-service-account").await, former.clone()]);
    let mounts = |found: &Value| found["spec"]["template"].to_string().contains("\"eu-service-account-trust\"");
    for name in ["main-kcp", "eu-shard-kcp", "public-front-proxy"] {
        landscape.until("Deployment", name, "its pods accept both", mounts).await;
    }
    for _ in 0..5 {
        for name in DEPLOYMENTS {
            landscape.pods_are_ready(name).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let is_everywhere = |found: &Value| noted(found).0 == "everywhere";
    landscape.until("Secret", "eu-service-account-trust", "all pods have it", is_everywhere).await;
    landscape.stage.rests().await;
    let requests = landscape.requests_since(mark);
    let of = |request: &str| -> Vec<usize> {
        let all = requests.iter().enumerate().filter(|(_, found)| *found == request);
        all.map(|(position, _)| position).collect()
    };
    let made = of("patch secrets eu-service-account-trust")[0];
    for name in ["main-kcp", "eu-shard-kcp", "public-front-proxy"] {
        let restarts = of(&format!("patch deployments.apps {name}"));
        assert!(matches!(restarts.as_slice(), [only] if made < *only), "{name}: {requests:#?}");
    }
    let eu = landscape.read("Shard", "eu").await.unwrap();
    assert!(condition(&eu, "tidegate.dev/Trust").contains(": tokens of the former one are valid until "), "{eu}");
    assert_eq!(recorded(&eu), former, "as long as it is accepted");

    // While no daemon runs. Another restart changes nothing.
    let former = first(&landscape, "main-service-account").await;
    landscape.stage.kill().await;
    replace_key(&landscape, "main-service-account").await;
    let before = ambient::now() - SignedDuration::from_secs(1);
    landscape.stage.start();
    let trust = landscape.until("Secret", "main-service-account-trust", "it is made", |_| true).await;
    assert_eq!(trusted(&trust), [first(&landscape, "main-service-account").await, former]);
    let (_, since) = noted(&trust);
    assert!(before <= since, "{since}");
    landscape.stage.kill().await;
    landscape.stage.start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let now = landscape.read("Secret", "main-service-account-trust").await.unwrap();
    assert_eq!((trusted(&now), noted(&now).1), (trusted(&trust), since));
}

async fn cert_manager_replaces_a_ca_and_both_are_trusted_until_certificates_are_renewed() {
    let landscape = KcpLandscape::built().await;
    let mut kubelet = Kubelet::start(&landscape);
    kubelet.runs().await;
    let former = first(&landscape, "main-client-ca").await;
    let before = kubelet.delete(&["main-client-ca"]).await;
    landscape.until("Secret", "main-client-ca", "cert-manager makes it again", |_| true).await;
    let waits = |found: &Value| {
        condition(found, "tidegate.dev/Trust").contains("all pods trust both until these Certificates are renewed: ")
    };
    // In pods that run, kcp may read the new file before the pods restart, so nothing is verified meanwhile.
    for _ in 0..TURNS {
        kubelet.turn_unchecked().await;
        if waits(&landscape.read("RootShard", "main").await.unwrap()) {
            break;
        }
    }
    landscape.until("RootShard", "main", "it names what is left", waits).await;
    kubelet.world.lock().unwrap().failures.clear();
    let trust = landscape.read("Secret", "main-client-ca-trust").await.unwrap();
    assert_eq!(trusted(&trust), [first(&landscape, "main-client-ca").await, former]);
    // From here on, certificates may be renewed in any order, and pods restart when they like.
    for leaf in [
        "main-logical-cluster-admin",
        "eu-client",
        "main-public-kubeconfig",
        "main-external-logical-cluster-admin",
        "main-client",
        "eu-workspaces-client",
        "kubeconfig-cert-admin",
        "main-kcp-operator",
        "main-proxy-kubeconfig",
        "eu-logical-cluster-admin",
        "eu-external-logical-cluster-admin",
    ] {
        assert!(landscape.read("Secret", "main-client-ca-trust").await.is_some(), "{leaf} is left");
        landscape.delete("Secret", leaf).await;
        landscape.until("Secret", leaf, "it is issued again", |_| true).await;
        for _ in 0..3 {
            kubelet.turn().await;
        }
    }
    kubelet.replaced(&before, &[]).await;
    landscape.stage.rests().await;
    let root = landscape.read("RootShard", "main").await.unwrap();
    assert_eq!(condition(&root, "tidegate.dev/Trust"), "none none: none");
}
