//! kubectl, of the same Go module as the real server: each command says the same of both.

use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Stdio, time::Duration};

use kube_sim::{Kubeconfig, Options, Served, Server};
use serde_json::json;
use tidegate_testbed::Folder;
use tokio::process::Command;

use super::custom::definition;
use crate::harness;

/// What a command printed, and whether it did what it was asked.
#[derive(Debug, PartialEq)]
struct Said {
    well: bool,
    out: String,
    err: String,
}

/// One server, as kubectl reaches it.
struct Side {
    kubectl: &'static Path,
    folder: Folder,
    namespace: String,
}

/// The real server and the simulated one, behind TLS.
struct Sides {
    real: Side,
    simulated: Side,
    _served: Served,
}

/// Longest time for one command: kubectl waits for nothing here that takes a second.
const COMMAND_MAX: Duration = Duration::from_secs(120);

const OBJECTS: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: map, labels: {app: web}}
data: {color: red}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {password: one}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
---
apiVersion: sim.example.com/v1
kind: Thing
metadata: {name: thing}
spec: {color: red, size: 3}
"#;

/// What modules bring beside them, as far as a server alone makes the same of it.
const MORE: &str = r#"apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: example.org}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
---
apiVersion: v1
kind: Event
metadata: {name: web.1}
involvedObject: {apiVersion: v1, kind: ConfigMap, name: map, namespace: NAMESPACE}
reason: Scaled
message: scaled up
type: Normal
source: {component: tester, host: here}
firstTimestamp: "2010-03-01T00:00:00Z"
lastTimestamp: "2011-03-01T00:00:00Z"
count: 2
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: lease}
spec: {holderIdentity: me, leaseDurationSeconds: 15}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: role}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: binding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: role}
subjects:
- {kind: ServiceAccount, name: web, namespace: default}
- {kind: User, name: jane, apiGroup: rbac.authorization.k8s.io}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: policy}
spec:
  podSelector:
    matchLabels: {app: web}
    matchExpressions: [{key: tier, operator: In, values: [front, back]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: budget}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec:
  replicas: 0
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec: {containers: [{name: one, image: "one:1"}, {name: two, image: "two:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere}
spec:
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec: {containers: [{name: one, image: "one:1"}], nodeSelector: {disk: fast}}
"#;

const OTHER: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {a: b}}";

// === impl Side ===

impl Side {
    async fn new(kubeconfig: &Kubeconfig, namespace: &str) -> Side {
        let kubectl = harness::kubectl().await;
        let folder = harness::folder();
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig.text()).unwrap();
        std::fs::write(folder.path().join("objects.yaml"), OBJECTS).unwrap();
        std::fs::write(folder.path().join("other.yaml"), OTHER).unwrap();
        std::fs::write(folder.path().join("more.yaml"), MORE.replace("NAMESPACE", namespace)).unwrap();
        Side { kubectl, folder, namespace: namespace.to_owned() }
    }

    async fn run(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(self.kubectl);
        command
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", "kubeconfig")
            .env("KUBE_EDITOR", self.folder.path().join("editor"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND_MAX, command.output()).await.expect("kubectl ends").unwrap();
        let text = |bytes: Vec<u8>| normal(&String::from_utf8(bytes).unwrap());
        Said { well: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// From now on `kubectl edit` replaces one text by another.
    fn edit_with(&self, from: &str, to: &str) {
        let path = self.folder.path().join("editor");
        std::fs::write(&path, format!("#!/bin/sh\nexec sed -i 's/{from}/{to}/' \"$1\"\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A text without what a server makes up: uids, versions, times and ages, and names of temporary files.
fn normal(text: &str) -> String {
    let patterns = [
        ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r#"resourceVersion: "[0-9]+""#, "resourceVersion: N"),
        (r#""resourceVersion": "[0-9]+""#, "\"resourceVersion\": N"),
        (r"(Created on: +).*", "${1}TIME"),
        (r"(Resource Version: +)[0-9]+", "${1}N"),
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z", "TIME"),
        (r"(?m)(CreationTimestamp: +).*$", "${1}TIME"),
        (r"(?m) +[0-9]+m?[0-9]*s$", " AGE"),
        (r"(?m) +[0-9]+m?[0-9]*s( +\S.*)$", " AGE$1"),
        (r"kubectl-edit-[0-9]+", "kubectl-edit-N"),
    ];
    patterns.into_iter().fold(text.to_owned(), |text, (pattern, with)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, with).into_owned()
    })
}

// === impl Sides ===

impl Sides {
    async fn new() -> Sides {
        tidegate_process::tls::install();
        let server = harness::api_server().await;
        let client = server.client().unwrap();
        let namespace = harness::namespace(&client, "kubectl").await;
        harness::install_crds(&client, &[definition()]).await;
        let served = Server::new(&Options::default()).listen("simulated").await.unwrap();
        let client = served.kubeconfig().client().unwrap();
        harness::apply(&client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .await;
        harness::install_crds(&client, &[definition()]).await;
        let real = Side::new(&server.kubeconfig(), &namespace).await;
        let simulated = Side::new(served.kubeconfig(), &namespace).await;
        Sides { real, simulated, _served: served }
    }

    /// Both say the same of each command, and whether they do it is as told.
    async fn check(&self, commands: &[(bool, &[&str])]) {
        let mut problems = Vec::new();
        for (well, arguments) in commands {
            let (real, simulated) = tokio::join!(self.real.run(arguments), self.simulated.run(arguments));
            if real != simulated || real.well != *well {
                problems.push(format!("kubectl {}\nreal: {real:#?}\nsimulated: {simulated:#?}", arguments.join(" ")));
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n").replace("\\n", "\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_says_the_same_of_both() {
    let sides = Sides::new().await;
    let apply: &[&str] = &["apply", "--server-side", "-f", "objects.yaml"];
    sides
        .check(&[
            (true, apply),
            (true, apply),
            (
                false,
                &[
                    "apply",
                    "--server-side",
                    "-f",
                    "objects.yaml",
                    "--field-manager=other",
                    "--dry-run=server",
                    "-l",
                    "none",
                ],
            ),
            (true, &["get", "configmaps,secrets,things"]),
            (true, &["get", "configmap", "map", "-o", "yaml"]),
            (true, &["get", "deployment", "web"]),
            (true, &["get", "things", "-o", "wide"]),
            (true, &["get", "things", "--field-selector", "spec.color=blue"]),
            (true, &["get", "configmaps", "-l", "app=web", "-o", "name"]),
            (true, &["get", "thing", "thing", "-o", "jsonpath={.spec.size}"]),
            (false, &["get", "configmap", "none"]),
            (false, &["get", "nones"]),
            (true, &["describe", "configmap", "map"]),
            (true, &["describe", "secret", "secret"]),
            (true, &["describe", "thing", "thing"]),
            (true, &["label", "configmap", "map", "tier=front"]),
            (true, &["annotate", "thing", "thing", "note=one"]),
            (true, &["patch", "thing", "thing", "--type=merge", "-p", r#"{"spec":{"size":4}}"#]),
            (false, &["patch", "thing", "thing", "--type=merge", "-p", r#"{"spec":{"size":0}}"#]),
            (
                true,
                &["patch", "configmap", "map", "--type=json", "-p", r#"[{"op":"add","path":"/data/x","value":"1"}]"#],
            ),
            (true, &["wait", "--for=jsonpath={.spec.size}=4", "thing/thing", "--timeout=60s"]),
            (false, &["wait", "--for=condition=Ready", "thing/thing", "--timeout=1s"]),
            (false, &["create", "-f", "other.yaml", "--validate=false", "-n", "none"]),
            (true, &["create", "-f", "other.yaml"]),
            (false, &["create", "-f", "other.yaml"]),
            (true, &["delete", "configmap", "other", "--wait"]),
            (true, &["wait", "--for=delete", "configmap/other", "--timeout=60s"]),
            (false, &["delete", "configmap", "other"]),
            (true, &["delete", "-f", "objects.yaml"]),
            (true, &["get", "configmaps,secrets,deployments,things"]),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_each_kind_alike() {
    let sides = Sides::new().await;
    let kinds = "configmaps,secrets,deployments,services,serviceaccounts,leases,roles,rolebindings,networkpolicies,\
        poddisruptionbudgets,statefulsets,daemonsets,things";
    sides
        .check(&[
            (true, &["apply", "--server-side", "-f", "objects.yaml"]),
            (true, &["apply", "--server-side", "-f", "more.yaml"]),
            (true, &["get", kinds]),
            (true, &["get", kinds, "-o", "wide"]),
            (true, &["get", "events"]),
            (true, &["get", "events", "-o", "wide"]),
            (true, &["get", "events", "--field-selector", "involvedObject.name=map,reason=Scaled"]),
            (true, &["get", "events.events.k8s.io"]),
            (true, &["events", "--for", "configmap/map"]),
            (true, &["describe", "configmap", "map"]),
            (true, &["describe", "role,rolebinding,networkpolicy,lease"]),
            (true, &["get", "crd", "things.sim.example.com"]),
            (true, &["get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[*].image}"]),
            (true, &["get", "configmap", "map", "-o", "json"]),
            (true, &["explain", "thing.spec.color"]),
            (true, &["explain", "thing.spec", "--recursive"]),
            (true, &["auth", "can-i", "get", "pods"]),
            (true, &["wait", "--for=jsonpath={.data.color}=red", "configmap/map", "--timeout=60s"]),
            (true, &["create", "configmap", "made", "--from-literal=a=b"]),
            (true, &["create", "secret", "generic", "made", "--from-literal=a=b"]),
            (true, &["create", "serviceaccount", "made"]),
            (true, &["create", "deployment", "made", "--image=made:1", "--replicas=0"]),
            (true, &["get", "configmap,secret,serviceaccount", "made", "-o", "yaml"]),
            (true, &["get", "deployment", "made", "-o", "jsonpath={.spec}"]),
            (true, &["delete", "configmap,secret,serviceaccount", "made", "--cascade=background"]),
            (true, &["delete", "deployment", "made", "--cascade=orphan", "--wait=false"]),
            (false, &["delete", "configmap", "made"]),
            (true, &["delete", "-f", "more.yaml"]),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_edits_custom_resources() {
    let sides = Sides::new().await;
    for side in [&sides.real, &sides.simulated] {
        side.edit_with("color: red", "color: blue");
    }
    sides
        .check(&[
            (true, &["apply", "--server-side", "-f", "objects.yaml"]),
            (true, &["edit", "thing", "thing"]),
            (true, &["get", "thing", "thing", "-o", "yaml", "--show-managed-fields"]),
            (true, &["edit", "thing", "thing"]),
            (true, &["delete", "-f", "objects.yaml"]),
        ])
        .await;
}

/// What is built in is edited by strategic merge, which the simulator does not have, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_is_told_what_cannot_be_edited() {
    let sides = Sides::new().await;
    sides.simulated.edit_with("color: red", "color: blue");
    assert!(sides.simulated.run(&["apply", "--server-side", "-f", "objects.yaml"]).await.well);
    let said = sides.simulated.run(&["edit", "configmap", "map"]).await;
    assert!(!said.well && said.err.contains("use `kubectl apply --server-side`"), "{said:?}");
}
