//! What is deployed: the base is accepted by a real API server, and its rules are just what a tour needs.

pub(crate) mod chart;

use std::{collections::BTreeSet, fs, path::Path};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tidegate_core::yaml::{self, Limits};
use tidegate_testbed::{Extent, Record};

use crate::{
    events,
    harness::{self, SOON, eventually},
    stage::{self, Stage},
};

pub(crate) const ACCOUNT: &str = "system:serviceaccount:kcp-system:tidegate";
/// Its name alone.
pub(crate) const NAME: &str = "tidegate";

/// All objects that a folder's kustomization yields: its resources in their order, then patched.
///
/// As much of `kubectl kustomize` as our folders use: files and folders, and JSON patches of one named object.
/// `kubectl_renders_what_these_tests_render` compares the two.
pub(crate) fn objects(folder: &str) -> Vec<Value> {
    render(&Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(folder))
}

fn render(folder: &Path) -> Vec<Value> {
    let kustomization = read(&folder.join("kustomization.yaml")).remove(0);
    let known = ["apiVersion", "kind", "resources", "patches", "images"];
    let unknown = kustomization.as_object().expect("a mapping").keys().find(|key| !known.contains(&key.as_str()));
    assert_eq!(unknown, None, "a part of {} that is not rendered here", folder.display());
    let resources = kustomization["resources"].as_array().expect("resources").iter();
    let paths = resources.map(|path| folder.join(path.as_str().expect("a path")));
    let mut all: Vec<Value> = paths.flat_map(|path| if path.is_dir() { render(&path) } else { read(&path) }).collect();
    for patch in kustomization["patches"].as_array().into_iter().flatten() {
        let (kind, name) = (&patch["target"]["kind"], &patch["target"]["name"]);
        let is_target = |object: &&mut Value| object["kind"] == *kind && object["metadata"]["name"] == *name;
        let target = all.iter_mut().find(is_target).expect("the patch has a target");
        let steps = yaml::parse(patch["patch"].as_str().expect("a patch"), &Limits::default()).expect("YAML");
        for step in steps[0].to_json().as_array().expect("steps") {
            patched(target, step);
        }
    }
    all
}

fn patched(object: &mut Value, step: &Value) {
    let path = step["path"].as_str().expect("a path");
    match (step["op"].as_str().expect("an operation"), path.strip_suffix("/-")) {
        ("test", None) => assert_eq!(object.pointer(path), Some(&step["value"]), "{path}"),
        ("replace", None) => *object.pointer_mut(path).expect("something to replace") = step["value"].clone(),
        ("add", Some(list)) => {
            let list = object.pointer_mut(list).and_then(Value::as_array_mut).expect("a list");
            list.push(step["value"].clone());
        }
        ("add", None) => {
            let (parent, key) = path.rsplit_once('/').expect("a path");
            let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).expect("a mapping");
            parent.insert(key.replace("~1", "/").replace("~0", "~"), step["value"].clone());
        }
        (other, _) => panic!("{other} at {path} is not rendered here"),
    }
}

fn read(path: &Path) -> Vec<Value> {
    documents(&fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The documents of a YAML text that are not empty.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let documents = yaml::parse(text, &Limits::default()).unwrap_or_else(|error| panic!("{error:?}:\n{text}"));
    documents.iter().map(yaml::Node::to_json).filter(|document| !document.is_null()).collect()
}

/// One verb on one resource that the service account may use: everywhere, or in one namespace; on all objects, or on
/// one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    verb: String,
    /// `resource.group`, with `/subresource`.
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
}

/// What a request needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    verb: String,
    resource: String,
    namespace: String,
    name: String,
}

/// The rules that all bindings grant, if every binding is for this service account.
pub(crate) fn rules(objects: &[Value], account: &str) -> BTreeSet<Rule> {
    let of_kind =
        |kinds: &'static [&str]| objects.iter().filter(move |object| kinds.iter().any(|kind| object["kind"] == **kind));
    let account = json!([{"kind": "ServiceAccount", "name": account, "namespace": "kcp-system"}]);
    let mut rules = BTreeSet::new();
    for binding in of_kind(&["RoleBinding", "ClusterRoleBinding"]) {
        assert_eq!(binding["subjects"], account, "of {}", binding["metadata"]);
        let namespace = binding["metadata"]["namespace"].as_str().map(str::to_owned);
        assert_eq!(namespace.is_some(), binding["kind"] == "RoleBinding");
        let role = of_kind(&["Role", "ClusterRole"]).find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && (role["kind"] == "ClusterRole" || role["metadata"]["namespace"].as_str() == namespace.as_deref())
        });
        let role = role.unwrap_or_else(|| panic!("no role for {}", binding["metadata"]));
        rules.extend(role["rules"].as_array().expect("rules").iter().flat_map(|rule| expanded(rule, &namespace)));
    }
    rules
}

/// The rules of one Role, as if it stood in `namespace`.
pub(crate) fn rules_of(objects: &[Value], role: &str, namespace: &str) -> BTreeSet<Rule> {
    let is_it = |object: &&Value| object["kind"] == "Role" && object["metadata"]["name"] == role;
    let role = objects.iter().find(is_it).unwrap_or_else(|| panic!("no Role {role}"));
    let place = Some(namespace.to_owned());
    role["rules"].as_array().expect("rules").iter().flat_map(|rule| expanded(rule, &place)).collect()
}

pub(crate) fn expanded(rule: &Value, namespace: &Option<String>) -> Vec<Rule> {
    let texts = |field: &str| -> Vec<String> {
        rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let names = texts("resourceNames");
    let names = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
    let mut rules = Vec::new();
    for (group, resource) in texts("apiGroups").iter().flat_map(|group| {
        let resources = texts("resources");
        resources.into_iter().map(move |resource| (group.clone(), resource))
    }) {
        let (plural, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
        let group = if group.is_empty() { group } else { format!(".{group}") };
        let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        for (verb, name) in texts("verbs").iter().flat_map(|verb| names.iter().map(move |name| (verb, name))) {
            rules.push(Rule {
                verb: verb.clone(),
                resource: format!("{plural}{group}{subresource}"),
                namespace: namespace.clone(),
                name: name.clone(),
            });
        }
    }
    rules
}

/// Waits until the API server grants these rules to a user: what it knows of roles and bindings is a moment old.
pub(crate) async fn until_granted(client: &Client, user: &str, rules: &BTreeSet<Rule>) {
    eventually("the rules are granted", SOON, async || {
        for rule in rules {
            if !is_granted(client, user, rule).await {
                return Err(format!("{rule:?} of {user} is not"));
            }
        }
        Ok(())
    })
    .await;
}

/// Whether a user may do what a rule says.
pub(crate) async fn is_granted(client: &Client, user: &str, rule: &Rule) -> bool {
    let (resource, subresource) = rule.resource.split_once('/').unwrap_or((&rule.resource, ""));
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let attributes = json!({
        "verb": rule.verb, "group": group, "resource": plural, "subresource": subresource,
        "namespace": rule.namespace.clone().unwrap_or_default(), "name": rule.name.clone().unwrap_or_default(),
    });
    let review = json!({"metadata": {}, "spec": {"user": user, "resourceAttributes": attributes}});
    let review: SubjectAccessReview = serde_json::from_value(review).expect("a review");
    let api = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await.expect("an administrator may ask");
    answer.status.is_some_and(|status| status.allowed)
}

/// An apply that creates needs `create` beside `patch`.
pub(crate) fn needs(record: &Record) -> Vec<Need> {
    let creates = record.verb == "patch" && record.code == 201;
    let need = |verb: &str| Need {
        verb: verb.to_owned(),
        resource: record.resource.clone(),
        namespace: record.namespace.clone(),
        name: record.name.clone(),
    };
    std::iter::once(need(&record.verb)).chain(creates.then(|| need("create"))).collect()
}

impl Rule {
    /// Whether it holds in this namespace only.
    pub(crate) fn is_in(&self, namespace: &str) -> bool {
        self.namespace.as_deref() == Some(namespace)
    }

    pub(crate) fn only_reads(&self) -> bool {
        ["get", "list", "watch"].contains(&self.verb.as_str())
    }

    pub(crate) fn allows(&self, need: &Need) -> bool {
        self.verb == need.verb
            && self.resource == need.resource
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == need.namespace)
            && self.name.as_ref().is_none_or(|name| *name == need.name)
    }
}

/// The rules without which every request would have been allowed as well.
pub(crate) fn idle<'a>(rules: &'a BTreeSet<Rule>, needs: &BTreeSet<Need>) -> Vec<&'a Rule> {
    let others_allow = |rule: &Rule, need: &Need| rules.iter().any(|other| other != rule && other.allows(need));
    rules.iter().filter(|rule| !needs.iter().any(|need| rule.allows(need) && !others_allow(rule, need))).collect()
}

#[test]
fn nothing_runs_as_root_or_writes_to_its_root() {
    let all = objects("base");
    let deployment = all.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert!(container[probe]["httpGet"]["path"].is_string(), "{probe}");
    }
    assert!(container["resources"]["limits"]["memory"].is_string());
    assert!(!format!("{:?}", rules(&all, NAME)).contains('*'), "a rule for everything");
}

/// `kubectl delete -k` deletes all that a folder has. Definitions and their namespaces are in a folder of their own.
#[test]
fn no_definition_goes_with_the_program() {
    let kinds = |folder: &str| -> BTreeSet<String> {
        objects(folder).iter().filter_map(|object| object["kind"].as_str()).map(str::to_owned).collect()
    };
    assert_eq!(Vec::from_iter(kinds("setup")), ["ClusterRole", "CustomResourceDefinition", "Namespace"]);
    let overlays = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/overlays")).unwrap();
    let overlays = overlays.map(|entry| format!("overlays/{}", entry.unwrap().file_name().display()));
    for folder in std::iter::once("base".to_owned()).chain(overlays) {
        assert!(!kinds(&folder).contains("CustomResourceDefinition"), "{folder}");
        let namespaces: Vec<Value> = objects(&folder).into_iter().filter(|one| one["kind"] == "Namespace").collect();
        let names: Vec<&Value> = namespaces.iter().map(|one| &one["metadata"]["name"]).collect();
        // The namespace of the built-in CA, where nothing else is.
        let expected = if folder == "overlays/direct-mtls" { vec!["tidegate-certificates"] } else { Vec::new() };
        assert_eq!(names, expected, "{folder}");
    }
    let all = objects("setup");
    let namespace = all.iter().find(|object| object["kind"] == "Namespace").expect("a Namespace");
    assert_eq!(namespace["metadata"], json!({"name": "kcp-system"}), "others may run pods in it");
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_repository_and_may_write_its_state() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let toolchain = read("rust-toolchain.toml");
    let channel =
        toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).expect("a channel").trim_matches('"');
    let dockerfile = read("deploy/Dockerfile");
    for line in [
        format!("FROM rust:{channel}-bookworm AS build"),
        format!("ENV RUSTUP_TOOLCHAIN={channel}"),
        "COPY --from=build --chown=65532:65532 /state /var/lib/tidegate".to_owned(),
    ] {
        assert!(dockerfile.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn one_more_namespace_is_one_more_binding_of_the_same_rules() {
    let (base, overlay) = (objects("base"), objects("overlays/namespaces"));
    let of_base = rules(&base, NAME);
    let more: Vec<Rule> = rules(&overlay, NAME).into_iter().filter(|rule| !of_base.contains(rule)).collect();
    assert!(!more.is_empty() && more.iter().all(|rule| rule.namespace.as_deref() == Some("team-a")), "{more:?}");
    // The daemon reads a namespace of Kymas to see whether it is being deleted, and writes none.
    let is_own = |rule: &Rule| rule.verb == "get" || !rule.resource.starts_with("namespaces");
    assert!(more.iter().all(|rule| !rule.resource.starts_with("leases") && is_own(rule)));
    let args = |objects: &[Value]| -> Vec<String> {
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
        let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().expect("arguments");
        args.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let expected = [args(&base), vec!["--namespace=kcp-system".to_owned(), "--namespace=team-a".to_owned()]].concat();
    assert_eq!(args(&overlay), expected);
}

#[test]
fn mirrors_may_live_on_a_volume() {
    let all = objects("overlays/persistent");
    let deployment = all.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    let expected = json!({"name": "state", "persistentVolumeClaim": {"claimName": "tidegate"}});
    assert_eq!(deployment["spec"]["template"]["spec"]["volumes"][0], expected);
    let claim = |object: &&Value| object["kind"] == "PersistentVolumeClaim" && object["metadata"]["name"] == "tidegate";
    assert_eq!(all.iter().filter(claim).count(), 1);
}

/// The arguments and container ports of the Deployment in a folder.
fn container(folder: &str) -> (Vec<String>, Vec<u64>) {
    let all = objects(folder);
    let deployment = all.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().expect("arguments").iter().filter_map(Value::as_str).map(str::to_owned);
    let ports = container["ports"].as_array().expect("ports").iter().filter_map(|port| port["containerPort"].as_u64());
    (args.collect(), ports.collect())
}

#[test]
fn way_of_events_is_deployed_whole() {
    for (folder, port) in [("overlays/istio-cert-manager", 8082), ("overlays/direct-mtls", 8443)] {
        let all = objects(folder);
        let (args, ports) = container(folder);
        assert!(ports.contains(&port), "{folder}: {ports:?}");
        // The options that it sets are options that there are.
        let arguments = args.iter().skip(1).map(String::as_str);
        let outcome = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["run", "--print-config"])
            .args(arguments)
            .output()
            .expect("it runs");
        assert!(outcome.status.success(), "{folder}: {}", String::from_utf8_lossy(&outcome.stderr));
        let watcher = all.iter().find(|object| object["kind"] == "Watcher").expect("a Watcher");
        assert_eq!(watcher["spec"]["manager"], "lifecycle-manager", "as upstream's shipped Watcher has it (I26)");
        let service = &watcher["spec"]["serviceInfo"];
        let is_it = |object: &&Value| object["kind"] == "Service" && object["metadata"]["name"] == service["name"];
        let found = all.iter().find(is_it).expect("the Service that the Watcher names");
        assert_eq!(found["spec"]["ports"][0]["port"], service["port"], "{folder}");
        let name = found["spec"]["ports"][0]["targetPort"].as_str().expect("a name");
        let deployment = all.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
        let named = deployment["spec"]["template"]["spec"]["containers"][0]["ports"].to_string();
        assert!(named.contains(&format!(r#""name":"{name}""#)), "{folder}: {named}");
    }
}

#[test]
fn way_of_webhooks_is_deployed_whole() {
    let all = objects("overlays/hooks");
    let (args, ports) = container("overlays/hooks");
    assert!(ports.contains(&8090), "{ports:?}");
    let outcome = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", "--print-config"])
        .args(args.iter().skip(1))
        .output()
        .expect("it runs");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    let find = |kind: &str| all.iter().find(|object| object["kind"] == kind).expect("it is there");
    let path = &find("Ingress")["spec"]["rules"][0]["http"]["paths"][0];
    assert_eq!((&path["path"], &path["pathType"]), (&json!("/hooks/"), &json!("Prefix")), "nothing else is public");
    let (service, port) = (find("Service"), &path["backend"]["service"]);
    assert_eq!(port["name"], service["metadata"]["name"]);
    let ports = service["spec"]["ports"].as_array().expect("ports");
    let found = ports.iter().find(|found| found["name"] == port["port"]["name"]).expect("the port of the Ingress");
    assert_eq!((&found["port"], &found["targetPort"]), (&json!(8090), &json!("hooks")));
}

#[test]
fn objects_of_the_event_path_bear_lifecycle_managers_names() {
    let all = objects("overlays/istio-cert-manager");
    let has = |kind: &str, namespace: &str, name: &str| {
        all.iter().any(|object| {
            object["kind"] == kind && object["metadata"]["name"] == name && object["metadata"]["namespace"] == namespace
        })
    };
    for (kind, namespace, name) in [
        ("Issuer", "istio-system", "klm-watcher-root"),
        ("Certificate", "istio-system", "klm-watcher-serving"),
        ("Issuer", "istio-system", "klm-watcher-selfsigned"),
        ("Gateway", "kcp-system", "klm-watcher"),
        ("Service", "kcp-system", "klm-controller-manager-events"),
        ("Watcher", "kcp-system", "klm-watcher"),
    ] {
        assert!(has(kind, namespace, name), "{kind} {namespace}/{name}");
    }
    let find = |kind: &str| all.iter().find(|object| object["kind"] == kind).expect("it is there");
    let certificate = find("Certificate");
    assert_eq!(certificate["spec"]["secretName"], "klm-watcher");
    let gateway = find("Gateway");
    let tls = &gateway["spec"]["servers"][0]["tls"];
    assert_eq!((&tls["mode"], &tls["credentialName"]), (&json!("MUTUAL"), &json!("klm-istio-gateway")));
    assert_eq!(gateway["metadata"]["labels"]["operator.kyma-project.io/watcher-gateway"], "default");
    // Only a gateway may send events. Upstream's policy allows any client.
    let rules = &find("AuthorizationPolicy")["spec"]["rules"];
    let events = rules.as_array().expect("rules").iter().filter(|rule| rule.to_string().contains("/v2/"));
    assert!(events.clone().count() == 1 && events.clone().all(|rule| rule["from"].is_array()), "{rules}");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_deployed_is_accepted() {
    let client = harness::kcp().await.client().unwrap();
    // What must be there already.
    let istio = ["gateways.networking.istio.io", "authorizationpolicies.security.istio.io"];
    harness::install_crds_from(&client, "istio-crds.yaml", &istio).await;
    harness::install_crds_from(&client, "cert-manager-crds.yaml", &[]).await;
    harness::apply(&client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}}))
        .await;
    let overlays = [
        "overlays/namespaces",
        "overlays/persistent",
        "overlays/istio-cert-manager",
        "overlays/direct-mtls",
        "overlays/hooks",
        "overlays/kcp-landscapes",
        "overlays/network-policy",
        "overlays/observe",
        "overlays/priority",
    ];
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}});
    harness::apply(&client, &team).await;
    for folder in ["setup", "base"].into_iter().chain(overlays).chain(["pipelines", "adopt"]) {
        for object in objects(folder) {
            harness::apply(&client, &object).await;
        }
    }
}

/// Everything else here takes what this file renders for what `kubectl apply -k` applies.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_renders_what_these_tests_render() {
    let kubectl = harness::kubectl().await;
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let overlays = fs::read_dir(deploy.join("overlays")).expect("a folder").map(|entry| entry.expect("an entry"));
    let overlays = overlays.map(|entry| format!("overlays/{}", entry.file_name().to_str().expect("UTF-8")));
    let folders: Vec<String> = overlays.chain(["base", "setup", "pipelines", "adopt"].map(str::to_owned)).collect();
    assert!(4 < folders.len(), "{folders:?}");
    for folder in folders {
        let output = std::process::Command::new(kubectl).arg("kustomize").arg(deploy.join(&folder)).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
        let rendered = chart::by_id(documents(std::str::from_utf8(&output.stdout).expect("UTF-8")));
        let wanted = chart::by_id(chart::kustomized(&folder));
        assert_eq!(Vec::from_iter(rendered.keys()), Vec::from_iter(wanted.keys()), "{folder}");
        for (id, object) in &wanted {
            assert_eq!(rendered[id], *object, "{id} of {folder}");
        }
    }
}

/// `docs/take-over.md`.
pub(crate) fn take_over_page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/take-over.md")).unwrap()
}

/// The objects of the overlay of the page, as a user makes it.
pub(crate) fn take_over_overlay() -> Vec<Value> {
    let page = take_over_page();
    assert!(page.contains("cp -r deploy/overlays/istio-cert-manager deploy/overlays/take-over"));
    let removed = page.lines().find_map(|line| line.trim().strip_prefix("* remove ")).expect("what is removed");
    let removed: Vec<&str> = removed.split('`').skip(1).step_by(2).collect();
    assert_eq!(removed, ["certificates.yaml", "gateway.yaml", "events.yaml"]);

    let folder = tempfile::tempdir().unwrap();
    harness::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy"), folder.path());
    let overlay = folder.path().join("overlays/take-over");
    harness::copy(&folder.path().join("overlays/istio-cert-manager"), &overlay);
    let file = overlay.join("kustomization.yaml");
    let mut text = fs::read_to_string(&file).unwrap();
    for name in removed {
        let line = format!("- {name}\n");
        assert!(text.contains(&line), "{name} is a resource of the overlay");
        text = text.replace(&line, "");
    }
    fs::write(&file, text).unwrap();
    render(&overlay)
}

/// The overlay and the patch of `docs/take-over.md`, as a user makes them from the page.
#[test]
fn the_take_over_page_leads_events_to_the_daemon_and_brings_nothing_that_exists() {
    let page = take_over_page();
    let names = |all: &[Value]| -> BTreeSet<String> {
        all.iter().map(|one| format!("{} {}", one["kind"], one["metadata"]["name"])).collect()
    };
    let (copied, whole) = (take_over_overlay(), objects("overlays/istio-cert-manager"));
    let policy = |one: &&Value| one["kind"] == "AuthorizationPolicy";
    assert_eq!(copied.iter().filter(policy).count(), 1, "only the gateway may send events");
    let gone: Vec<String> = names(&whole).difference(&names(&copied)).cloned().collect();
    // What Lifecycle Manager has under the same names, and no more.
    assert!(gone.iter().any(|name| name.contains("klm-watcher")), "{gone:?}");
    assert!(!names(&copied).iter().any(|name| name.contains("\"klm-")), "{:?}", names(&copied));

    let deployment = copied.iter().find(|one| one["kind"] == "Deployment").expect("the daemon");
    let steps = page.split("--type=json -p '").nth(1).and_then(|rest| rest.split('\'').next()).expect("a patch");
    let steps: Value = serde_json::from_str(steps).unwrap();
    let mut service = json!({"spec": {
        "selector": {"app.kubernetes.io/name": "lifecycle-manager", "app.kubernetes.io/instance": "klm"},
        "ports": [{"name": "event", "port": 8082, "targetPort": 8082}],
    }});
    for step in steps.as_array().expect("steps") {
        patched(&mut service, step);
    }
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let selector = service["spec"]["selector"].as_object().expect("a selector");
    assert!(selector.iter().all(|(key, value)| labels[key] == *value), "{selector:?} of {labels}");
    let ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().expect("ports");
    assert!(ports.iter().any(|port| port["name"] == service["spec"]["ports"][0]["targetPort"]), "{ports:?}");
}

/// The roles of Kubernetes include the rights for GitSources, and no user can write a status.
#[tokio::test(flavor = "multi_thread")]
async fn users_with_the_roles_view_edit_and_admin_have_their_rights_for_gitsources() {
    let client = harness::kcp().await.client().unwrap();
    for object in objects("setup") {
        harness::apply(&client, &object).await;
    }
    let namespace = harness::namespace(&client, "roles").await;
    for role in ["view", "edit", "admin"] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("{namespace}-{role}")}],
        });
        harness::apply(&client, &binding).await;
    }
    let allowed = async |role: &str, verb: &str, subresource: &str| {
        let rule = Rule {
            verb: verb.to_owned(),
            resource: format!("gitsources.tidegate.dev{subresource}"),
            namespace: Some(namespace.clone()),
            name: None,
        };
        is_granted(&client, &format!("{namespace}-{role}"), &rule).await
    };
    // A controller adds the rules to the roles.
    eventually("the roles have the rules", SOON, async || {
        let found = (allowed("view", "list", "").await, allowed("edit", "create", "").await);
        if found == (true, true) && allowed("admin", "delete", "").await { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    for verb in ["get", "list", "watch"] {
        for role in ["view", "edit", "admin"] {
            assert!(allowed(role, verb, "").await, "{role} {verb}");
        }
    }
    for verb in ["create", "update", "patch", "delete"] {
        assert!(!allowed("view", verb, "").await, "{verb}");
        for role in ["edit", "admin"] {
            assert!(allowed(role, verb, "").await, "{role} {verb}");
        }
        for role in ["view", "edit", "admin"] {
            assert!(!allowed(role, verb, "/status").await, "{role} {verb}");
        }
    }
}

/// E31: the rules of the base are all that the daemon needs, and it needs each.
#[tokio::test(flavor = "multi_thread")]
async fn e31_a_tour_needs_every_rule_of_the_service_account_and_no_other() {
    let mut files = events::files(2);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    // Only real servers decide by rules of RBAC.
    let stage = Stage::real(2, Extent::Controllers, &files, &[]).await;
    let base = objects("base");
    for object in &base {
        harness::apply(&stage.kcp, object).await;
    }
    harness::apply(&stage.kcp, &gateway()).await;
    let kubeconfig = stage.landscape.kcp.real().kubeconfig_of_service_account("kcp-system", "tidegate").await.unwrap();
    let certificates = events::Certificates::new();
    certificates.install(&stage.kcp, "istio-system").await;
    stage.start_as(&kubeconfig);
    for kyma in stage::KYMAS {
        stage.kyma_in(kyma, "Ready").await;
    }
    // What is written down of the first event is the journal's first key, of the second only one more.
    for kyma in stage::KYMAS {
        let event = events::event("", "v1", "ConfigMap", "mailer-a");
        events::tell(&stage, &certificates.header(kyma), &event).await;
    }
    tour(&stage).await;

    let records = stage.landscape.kcp.records();
    let ours: Vec<&Record> = records.iter().filter(|record| record.user == ACCOUNT).collect();
    let refused: Vec<&&Record> = ours.iter().filter(|record| record.code == 403).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let needs: BTreeSet<Need> = ours.iter().flat_map(|record| needs(record)).collect();
    let rules = rules(&base, NAME);
    let idle = idle(&rules, &needs);
    assert!(idle.is_empty(), "rules that a tour does not need: {idle:#?}");
    // All users may read discovery and health.
    let beyond = |need: &&Need| !need.resource.starts_with('/') && !rules.iter().any(|rule| rule.allows(need));
    let beyond: Vec<&Need> = needs.iter().filter(beyond).collect();
    assert!(beyond.is_empty(), "allowed by no rule of ours: {beyond:#?}");
}

/// Install, update, prune, disable a module, and remove everything, including a runtime that is unreachable.
async fn tour(stage: &Stage) {
    for kyma in stage::KYMAS {
        stage.kyma_in(kyma, "Ready").await;
    }
    stage.until("events find their way", &stage.kcp, "VirtualService", "kcp-system", "watcher", |_| true).await;
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0")]));
    stage
        .until("the bump arrives", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"].to_string().contains(r#""version":"1.1.0""#) && kyma["status"]["state"] == "Ready"
        })
        .await;
    stage.repository.remove("modules/cache/1.0.0").unwrap();
    stage.repository.commit("an unused version").unwrap();
    stage.until_gone(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await;

    // Without definitions and workloads a module goes in one pass.
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    stage
        .until("the module is out", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["modules"].as_array().is_some_and(|modules| modules.len() == 1)
                && kyma["status"]["state"] == "Ready"
        })
        .await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "access-two", "namespace": "kcp-system"}});
    let secrets = harness::api_of(&stage.kcp, &secret).await.unwrap();
    secrets.delete("access-two", &DeleteParams::default()).await.unwrap();

    for folder in ["modules", "kymas", "watcher.yaml"] {
        stage.repository.remove(folder).unwrap();
    }
    let commit = stage.repository.commit("all of it goes").unwrap();
    let confirm = json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": commit}}});
    patch_source(stage, &confirm).await;
    for (kind, name) in [
        ("Kyma", "one"),
        ("Kyma", "two"),
        ("Watcher", "watcher"),
        ("ModuleReleaseMeta", "cache"),
        ("ModuleTemplate", "cache-1.1.0"),
        ("VirtualService", "watcher"),
    ] {
        stage.until_gone(&stage.kcp, kind, "kcp-system", name).await;
    }
    patch_source(stage, &json!({"spec": {"deletionPolicy": "Delete"}})).await;
    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &source).await.unwrap();
    api.delete("landscape", &DeleteParams::default()).await.unwrap();
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
}

async fn patch_source(stage: &Stage, patch: &Value) {
    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &source).await.unwrap();
    let patch = kube::api::Patch::Merge(patch);
    api.patch("landscape", &kube::api::PatchParams::default(), &patch).await.unwrap();
}

pub(crate) fn gateway() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {"name": "klm-watcher", "namespace": "kcp-system", "labels": {"app": "watcher-gateway"}},
        "spec": {"servers": [{
            "hosts": ["watcher.example.org"],
            "port": {"number": 443, "name": "https", "protocol": "HTTPS"},
            "tls": {"mode": "MUTUAL", "credentialName": "klm-istio-gateway"},
        }]},
    })
}
