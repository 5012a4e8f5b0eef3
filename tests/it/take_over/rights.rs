//! The rights that `docs/adopt.md` documents: with the roles of `deploy/adopt`, each command works on real API servers,
//! and without any one of their rules it fails with a sentence that names it.

use std::{
    collections::BTreeSet,
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::{StreamExt as _, stream};
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tidegate_testbed::{Extent, Folder};
use tokio::process::Command;

use super::{
    BEFORE, LEASE, apply, apply_before, cut::apply_manifest, definition_of, files_before, manifest_of, merge, outdate,
};
use crate::{
    deploy,
    harness::{self, SOON},
    stage::{self, Stage, read},
};

/// Roles and their bindings, as files of `deploy/adopt` have them.
pub(crate) struct Rights {
    /// Kind, name and namespace of each role.
    roles: Vec<(String, String, Option<String>)>,
    /// Each rule with one verb on one kind, and the position of its role.
    rules: Vec<(usize, Value)>,
}

/// Users who run commands. Each is new.
pub(crate) struct Users {
    /// For kubeconfigs and exports.
    folder: Folder,
    /// How many there are.
    count: AtomicUsize,
}

/// A landscape of Lifecycle Manager on real API servers.
struct Place {
    stage: Stage,
    users: Users,
}

/// Commands at a time, where they only read.
const AT_ONCE: usize = 4;
/// The kinds of which API servers may have stored objects in an outdated version.
const OUTDATED: [&str; 4] = ["kymas", "manifests", "moduletemplates", "watchers"];
/// The definitions of the landscape by kind and name.
const MARKED: [(&str, &str); 7] = [
    ("Kyma", "one"),
    ("ModuleTemplate", "cache-1.0.0"),
    ("ModuleTemplate", "cache-1.1.0"),
    ("ModuleTemplate", "mailer-2.0.0"),
    ("ModuleReleaseMeta", "cache"),
    ("ModuleReleaseMeta", "mailer"),
    ("Watcher", "watcher"),
];

// === impl Rights ===

impl Rights {
    /// The roles of these files.
    pub(crate) fn of(files: &[&str]) -> Rights {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/adopt");
        let text = |file: &&str| std::fs::read_to_string(folder.join(file)).expect("a file");
        let objects: Vec<Value> = files.iter().flat_map(|file| deploy::documents(&text(file))).collect();
        let mut rights = Rights { roles: Vec::new(), rules: Vec::new() };
        for role in objects.iter().filter(|one| ["Role", "ClusterRole"].iter().any(|kind| one["kind"] == **kind)) {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let position = rights.roles.len();
            let metadata = &role["metadata"];
            let name = text(&metadata["name"]).expect("a name");
            rights.roles.push((text(&role["kind"]).expect("a kind"), name, text(&metadata["namespace"])));
            for rule in role["rules"].as_array().expect("rules") {
                for resource in rule["resources"].as_array().expect("resources") {
                    for verb in rule["verbs"].as_array().expect("verbs") {
                        let mut one = rule.clone();
                        (one["resources"], one["verbs"]) = (json!([resource]), json!([verb]));
                        rights.rules.push((position, one));
                    }
                }
            }
        }
        assert!(!rights.rules.is_empty());
        rights
    }

    /// The same in another namespace than `kcp-system`.
    fn in_namespace(mut self, namespace: &str) -> Rights {
        for (.., own) in &mut self.roles {
            if own.as_deref() == Some("kcp-system") {
                *own = Some(namespace.to_owned());
            }
        }
        self
    }

    /// The positions of the rules with this verb on kinds with these plurals; `*` is any.
    pub(crate) fn positions(&self, verb: &str, plurals: &[&str]) -> Vec<usize> {
        let is_meant = |rule: &Value| {
            (verb == "*" || rule["verbs"][0] == verb)
                && (plurals == ["*"] || plurals.iter().any(|plural| rule["resources"][0] == **plural))
        };
        (0..self.rules.len()).filter(|position| is_meant(&self.rules[*position].1)).collect()
    }

    /// The verb and the kind of a rule.
    pub(crate) fn words(&self, position: usize) -> (&str, &str) {
        let rule = &self.rules[position].1;
        (rule["verbs"][0].as_str().expect("a verb"), rule["resources"][0].as_str().expect("a kind"))
    }

    /// Grants all rules but one to a user, and waits until the API server knows.
    async fn grant(&self, stage: &Stage, user: &str, without: Option<usize>) {
        let mut granted = BTreeSet::new();
        for (position, (kind, role, namespace)) in self.roles.iter().enumerate() {
            let rules = self.rules.iter().enumerate();
            let rules = rules.filter(|(index, (of, _))| *of == position && Some(*index) != without);
            let rules: Vec<Value> = rules.map(|(_, (_, rule))| rule.clone()).collect();
            for rule in &rules {
                granted.extend(deploy::expanded(rule, namespace));
            }
            let name = format!("{role}-{user}");
            let mut metadata = json!({"name": name});
            if let Some(namespace) = namespace {
                metadata["namespace"] = json!(namespace);
            }
            let group = "rbac.authorization.k8s.io";
            let api = format!("{group}/v1");
            let binding = json!({
                "apiVersion": api, "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": kind, "name": name},
                "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
            });
            let role = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules});
            for object in [role, binding] {
                harness::apply(&stage.kcp, &object).await;
            }
        }
        deploy::until_granted(&stage.kcp, user, &granted).await;
    }
}

// === impl Users ===

impl Users {
    pub(crate) fn new() -> Users {
        Users { folder: harness::folder(), count: AtomicUsize::new(0) }
    }

    /// Runs a command as a new user who has all rules but one. Returns what it says, and its exit code.
    pub(crate) async fn run(
        &self,
        stage: &Stage,
        rights: &Rights,
        without: Option<usize>,
        arguments: &[&str],
    ) -> (String, i32) {
        let user = format!("user-{}", self.count.fetch_add(1, Ordering::Relaxed));
        rights.grant(stage, &user, without).await;
        self.run_as(stage, &user, arguments).await
    }

    async fn run_as(&self, stage: &Stage, user: &str, arguments: &[&str]) -> (String, i32) {
        let kubeconfig = self.folder.path().join(format!("{user}.kubeconfig"));
        std::fs::write(&kubeconfig, stage.landscape.kcp.kubeconfig_of(user, None).text()).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).arg("--kubeconfig").arg(&kubeconfig).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.expect("the program starts");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (text, output.status.code().expect("an exit code"))
    }

    /// Without one of these rules, the command fails with a sentence that names it.
    pub(crate) async fn fails_without(&self, stage: &Stage, rights: &Rights, positions: &[usize], arguments: &[&str]) {
        assert!(!positions.is_empty());
        let checks = stream::iter(positions).map(async |position| {
            let (text, code) = self.run(stage, rights, Some(*position), arguments).await;
            assert_named(rights, *position, &text, code);
        });
        checks.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    }
}

// === impl Place ===

impl Place {
    /// A landscape with everything that a rule is for.
    async fn new() -> Place {
        let mut files = files_before(&[]);
        files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
        let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        let stage = Stage::real(1, Extent::Server, &files, &[]).await;
        apply_before(&stage, &files).await;
        for namespace in ["istio-system", "team-a", "empty"] {
            apply(&stage.kcp, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        }
        let registry = json!({"auths": {"r.example.com": {"username": "a", "password": "b"}}});
        let registry = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "registry", "namespace": "kcp-system"},
            "stringData": {".dockerconfigjson": registry.to_string()},
        });
        apply(&stage.kcp, &registry).await;
        let crds = [
            definition_of("cert-manager.io", "v1", "Certificate", "certificates"),
            definition_of("cert.gardener.cloud", "v1alpha1", "Certificate", "certificates"),
            definition_of("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"),
            definition_of("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
            definition_of("argoproj.io", "v1alpha1", "Application", "applications"),
        ];
        harness::install_crds(&stage.kcp, &crds).await;
        for kind in ["Kyma", "ModuleTemplate", "Manifest", "Watcher"] {
            let spec = match kind {
                "Kyma" => json!({"channel": "regular"}),
                "ModuleTemplate" => json!({"moduleName": "other", "version": "1.0.0", "descriptor": {}}),
                "Manifest" => {
                    manifest_of("other", "other", json!({"type": "oci-dir", "repo": "r.example.com"}))["spec"].clone()
                }
                _ => serde_yaml::from_str::<Value>(stage::WATCHER).expect("YAML")["spec"].clone(),
            };
            let other = json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": kind,
                "metadata": {"name": "other", "namespace": "team-a"}, "spec": spec,
            });
            apply(&stage.kcp, &other).await;
        }
        Place { stage, users: Users::new() }
    }

    fn path(&self) -> String {
        self.stage.repository.path().to_string_lossy().into_owned()
    }

    /// As [`Users::run`].
    async fn run(&self, rights: &Rights, without: Option<usize>, arguments: &[&str]) -> (String, i32) {
        self.users.run(&self.stage, rights, without, arguments).await
    }

    /// As [`Users::fails_without`].
    async fn fails_without(&self, rights: &Rights, positions: &[usize], arguments: &[&str]) {
        self.users.fails_without(&self.stage, rights, positions, arguments).await;
    }

    /// Everything is as Lifecycle Manager and the client from before left it.
    async fn reset(&self) {
        let kcp = &self.stage.kcp;
        let unmarked = json!({"metadata": {
            "labels": {"tidegate.dev/source": null}, "annotations": {"tidegate.dev/adopted": null},
        }});
        for (kind, name) in MARKED {
            merge(kcp, &of_kyma(kind, name), unmarked.clone()).await;
        }
        let reached = json!([{
            "type": "CRDsSync", "status": "True", "reason": "Ready", "message": "CRDs are synchronized to the SKR",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let kymas = harness::api_of(kcp, &of_kyma("Kyma", "one")).await.expect("a kind that is served");
        let status = json!({"status": {"state": "Ready", "conditions": reached}});
        kymas.patch_status("one", &PatchParams::default(), &Patch::Merge(&status)).await.expect("a status");
        let manifests =
            harness::api_of(kcp, &of_kyma("Manifest", "one-mandatory")).await.expect("a kind that is served");
        if read(kcp, "Manifest", "kcp-system", "one-mandatory").await.is_some() {
            manifests.delete("one-mandatory", &DeleteParams::default()).await.expect("a delete");
        }
        apply_manifest(&self.stage, "one", "mandatory").await;
    }
}

/// A sentence of a command names the verb and the kind of a rule that its user lacks.
#[track_caller]
fn assert_named(rights: &Rights, position: usize, text: &str, code: i32) {
    let (verb, resource) = rights.words(position);
    let of_server = format!("cannot {verb} resource \"{resource}\"");
    let ours = format!("cannot {verb} {resource}");
    let is_named = text.contains(&of_server) || [" ", "."].iter().any(|after| text.contains(&format!("{ours}{after}")));
    assert!(code != 0 && is_named, "without {}: exit code {code}, {text}", rights.rules[position].1);
}

/// The name of an object of Lifecycle Manager in the control plane.
fn of_kyma(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": kind,
        "metadata": {"name": name, "namespace": "kcp-system"},
    })
}

#[track_caller]
pub(crate) fn succeeded((text, code): (String, i32)) -> String {
    assert!(code == 0 && !text.contains("forbidden"), "exit code {code}, {text}");
    text
}

#[test]
fn all_files_at_once_let_no_command_write_in_all_namespaces() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/adopt");
    let applied = std::fs::read_to_string(folder.join("kustomization.yaml")).expect("a file");
    let applied = deploy::documents(&applied).remove(0)["resources"].clone();
    let applied: Vec<String> = serde_json::from_value(applied).expect("names of files");
    let entries = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut left_out: BTreeSet<String> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    for file in &applied {
        assert!(left_out.remove(file), "{file}");
    }
    assert_eq!(left_out, BTreeSet::from(["kustomization.yaml".to_owned(), "outdated.yaml".to_owned()]));
    let rights = Rights::of(&applied.iter().map(String::as_str).collect::<Vec<&str>>());
    for (position, (role, rule)) in rights.rules.iter().enumerate() {
        let (kind, ..) = &rights.roles[*role];
        assert!(kind == "Role" || rights.words(position).0 == "list", "{rule}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_with_the_documented_rights_and_names_the_one_that_it_lacks() {
    let place = Place::new().await;
    place.reset().await;
    exports(&place).await;
    are_handed_over(&place).await;
    plans_and_takes(&place).await;
    finishes(&place).await;
    releases(&place).await;
}

async fn exports(place: &Place) {
    let rights = Rights::of(&["export.yaml"]);
    let into = |name: &str| place.users.folder.path().join(name).display().to_string();
    place.fails_without(&rights, &rights.positions("*", &["*"]), &["export", "--as-git", &into("nothing")]).await;
    assert!(!Path::new(&into("nothing")).exists());
    // Templates with their objects in git are not exported, and that is not about rights.
    let (text, code) = place.run(&rights, None, &["export", "--as-git", &into("all")]).await;
    assert!(code == 5 && text.contains("not exported: ") && !text.contains("forbidden"), "{code} {text}");
    assert!(Path::new(&into("all")).join("kymas/one.yaml").is_file());
}

async fn are_handed_over(place: &Place) {
    for command in ["from-flux", "from-argocd"] {
        let file = format!("{command}.yaml");
        let rights = Rights::of(&[file.as_str()]);
        place.fails_without(&rights, &rights.positions("*", &["*"]), &["adopt", command]).await;
        let text = succeeded(place.run(&rights, None, &["adopt", command]).await);
        assert!(text.contains(" manages no definition in kcp-system: "), "{text}");
    }
}

async fn plans_and_takes(place: &Place) {
    let path = place.path();
    let plan = ["adopt", "plan", "--oci-registry-cred-secret=registry", "--no-registries", &path];
    let rights = Rights::of(&["plan.yaml"]);
    succeeded(place.run(&rights, None, &plan).await);
    place.fails_without(&rights, &rights.positions("*", &["*"]), &[&plan[..], &["--no-runtimes"]].concat()).await;

    // Objects of all namespaces are stored again.
    let take = ["adopt", "take", "--yes", &path];
    for plural in OUTDATED {
        outdate(&place.stage, &format!("{plural}.operator.kyma-project.io")).await;
    }
    let rights = Rights::of(&["plan.yaml", "take.yaml", "outdated.yaml"]);
    let first = Rights::of(&["plan.yaml", "take.yaml"]).rules.len();
    let (text, code) = place.run(&Rights::of(&["plan.yaml"]), None, &plan).await;
    assert!(code == 2 && text.contains("; deploy/adopt/outdated.yaml has the rights"), "{code} {text}");
    let of_cluster = |verb: &str, plurals: &[&str]| -> Vec<usize> {
        rights.positions(verb, plurals).into_iter().filter(|position| *position >= first).collect()
    };
    place.fails_without(&rights, &of_cluster("list", &OUTDATED), &[&plan[..], &["--no-runtimes"]].concat()).await;
    // In the order of the writes: a definition that is done is not written again.
    let writes = [of_cluster("patch", &["customresourcedefinitions/status"]), of_cluster("patch", &OUTDATED)].concat();
    assert_eq!(writes.len() + OUTDATED.len(), rights.rules.len() - first);
    for position in writes {
        place.reset().await;
        place.fails_without(&rights, &[position], &take).await;
    }
    place.reset().await;
    let text = succeeded(place.run(&rights, None, &take).await);
    assert!(text.contains(" stored again, 7 definitions marked "), "{text}");

    let rights = Rights::of(&["plan.yaml", "take.yaml"]);
    let plurals = ["kymas", "manifests", "moduletemplates", "modulereleasemetas", "watchers"];
    let writes = rights.positions("patch", &plurals);
    assert_eq!(writes.len(), plurals.len());
    for position in writes {
        place.reset().await;
        place.fails_without(&rights, &[position], &take).await;
    }
    // A Lease that nobody renews takes a while.
    place.reset().await;
    let renewed = k8s_openapi::jiff::Timestamp::now() - k8s_openapi::jiff::SignedDuration::from_hours(1);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kcp-system"},
        "spec": {"holderIdentity": "klm-1_x", "leaseDurationSeconds": 180, "renewTime": format!("{renewed:.6}")},
    });
    apply(&place.stage.kcp, &lease).await;
    place.fails_without(&rights, &rights.positions("patch", &["leases"]), &take).await;
    let text = succeeded(place.run(&rights, None, &take).await);
    assert!(text.contains("the Lease of klm-1_x, which has ended, is released\n"), "{text}");
}

async fn finishes(place: &Place) {
    let finish = ["adopt", "take", "--finish", "--yes"];
    let rights = Rights::of(&["finish.yaml"]);
    let of_kymas = [rights.positions("*", &["kymas"]), rights.positions("*", &["leases"])].concat();
    place.fails_without(&rights, &of_kymas, &finish).await;
    let text = succeeded(place.run(&rights, None, &finish).await);
    assert!(text.starts_with("1 runtime finished: kcp-system/one"), "{text}");
    // To say that there is none, it lists the other kinds.
    let rights = rights.in_namespace("empty");
    let finish = [&finish[..], &["-n", "empty"]].concat();
    place.fails_without(&rights, &rights.positions("list", &["*"]), &finish).await;
    let (text, code) = place.run(&rights, None, &finish).await;
    assert!(code == 1 && text.contains("there is no object of Lifecycle Manager in empty"), "{code} {text}");
}

async fn releases(place: &Place) {
    let (stage, kcp) = (&place.stage, &place.stage.kcp);
    let source = read(kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    let sources = harness::api_of(kcp, &source).await.expect("a kind that is served");
    sources.delete("landscape", &DeleteParams::default()).await.expect("a delete");
    stage.until_gone(kcp, "GitSource", "kcp-system", "landscape").await;
    let objects = to_give_back(kcp).await;
    let condition = json!({"status": {"state": "Ready", "conditions": [{
        "type": "tidegate.dev/Watch", "status": "True", "reason": "Installed", "message": "a message",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});

    let release = ["adopt", "release"];
    let rights = Rights::of(&["release.yaml"]);
    let of_gateway = |position: &usize| rights.rules[*position].1["resourceNames"] == json!(["klm-istio-gateway"]);
    let gets = rights.positions("get", &["*"]);
    let reads: Vec<usize> = gets.iter().copied().filter(of_gateway).collect();
    let reads = [reads, rights.positions("get", &["leases"]), rights.positions("list", &["*"])].concat();
    place.fails_without(&rights, &reads, &release).await;
    let yes = [&release[..], &["--yes"]].concat();
    for position in rights.positions("patch", &["*"]) {
        for (count, object) in objects.iter().map(|(_, object)| object).enumerate() {
            mark(kcp, object, count).await;
        }
        for (kind, name) in [("Kyma", "one"), ("Manifest", "one-mandatory"), ("Watcher", "watcher")] {
            let api = harness::api_of(kcp, &of_kyma(kind, name)).await.expect("a kind that is served");
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(&condition)).await.expect("a status");
        }
        place.fails_without(&rights, &[position], &yes).await;
    }
    reads_again(place, &rights, &objects).await;
    succeeded(place.run(&rights, None, &yes).await);
}

/// What is to be given back in the control plane, by its plural. The last one is the Secret of the gateway.
async fn to_give_back(kcp: &Client) -> Vec<(&'static str, Value)> {
    let certificate = |version: &str| {
        json!({
            "apiVersion": version, "kind": "Certificate",
            "metadata": {"name": "one-webhook-tls", "namespace": "istio-system"}, "spec": {"commonName": "one"},
        })
    };
    let route = json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {"name": "watcher", "namespace": "kcp-system"}, "spec": {"hosts": ["listener.kcp.example.org"]},
    });
    // What each kind is given back for, by its plural.
    let mut objects = vec![
        ("kymas", of_kyma("Kyma", "one")),
        ("manifests", of_kyma("Manifest", "one-mandatory")),
        ("moduletemplates", of_kyma("ModuleTemplate", "cache-1.0.0")),
        ("modulereleasemetas", of_kyma("ModuleReleaseMeta", "cache")),
        ("watchers", of_kyma("Watcher", "watcher")),
        ("virtualservices", route),
        ("certificates", certificate("cert-manager.io/v1")),
        ("certificates", certificate("cert.gardener.cloud/v1alpha1")),
    ];
    for (_, object) in &objects[5..] {
        apply(kcp, object).await;
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"tls.crt": "YQ=="},
        "metadata": {"name": "klm-istio-gateway", "namespace": "istio-system"},
    });
    let secrets = harness::api_of(kcp, &secret).await.expect("a kind that is served");
    let by = PostParams { field_manager: Some(BEFORE.to_owned()), ..PostParams::default() };
    secrets.create(&by, &serde_json::from_value(secret.clone()).expect("an object")).await.expect("a new object");
    objects.push(("secrets", secret));
    objects
}

/// Has an object bear something of Tidegate.
async fn mark(kcp: &Client, object: &Value, count: usize) {
    merge(kcp, object, json!({"metadata": {"annotations": {"tidegate.dev/note": count.to_string()}}})).await;
}

/// Another client changes an object all the time, so it is to be read again, and the right for that is missing.
async fn reads_again(place: &Place, rights: &Rights, objects: &[(&str, Value)]) {
    let (stage, kcp) = (&place.stage, &place.stage.kcp);
    let is_meant = |position: &usize| rights.rules[*position].1["resourceNames"].is_null();
    for position in rights.positions("get", &["*"]).into_iter().filter(is_meant) {
        let (_, plural) = rights.words(position);
        let group = rights.rules[position].1["apiGroups"][0].as_str().expect("a group").to_owned();
        let is_of_group = |object: &Value| object["apiVersion"].as_str().is_some_and(|api| api.starts_with(&group));
        let (_, object) = objects.iter().find(|(of, object)| *of == plural && is_of_group(object)).expect("an object");
        let user = format!("again-{position}");
        rights.grant(stage, &user, Some(position)).await;
        let changes = async {
            for count in 0_usize.. {
                mark(kcp, object, count).await;
            }
        };
        let asked = async {
            loop {
                let (text, code) = place.users.run_as(stage, &user, &["adopt", "release", "--yes"]).await;
                if code != 0 {
                    return (text, code);
                }
            }
        };
        let (text, code) = tokio::select! {
            said = tokio::time::timeout(SOON, asked) => said.expect("it changes between the list and the write"),
            () = changes => unreachable!("it changes until the command has failed"),
        };
        assert_named(rights, position, &text, code);
    }
}
