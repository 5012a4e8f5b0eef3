//! Answers that depend on single values: unchanged objects, null, impersonation and others.

use serde_json::{Value, json};

use super::both::{Ask, Both};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/{ns}/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn named(api_version: &str, kind: &str, name: &str, mut fields: Value) -> Value {
    fields["apiVersion"] = json!(api_version);
    fields["kind"] = json!(kind);
    if fields["metadata"].is_null() {
        fields["metadata"] = json!({});
    }
    fields["metadata"]["name"] = json!(name);
    fields
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_immutable_stays() {
    let both = Both::new().await;
    let group = "rbac.authorization.k8s.io";
    let role = |kind: &str, name: &str| json!({"apiGroup": group, "kind": kind, "name": name});
    let bindings = format!("{RBAC}/namespaces/{{ns}}/rolebindings");
    let wide = format!("{RBAC}/clusterrolebindings");
    let binding =
        |kind: &str, name: &str, role: Value| named(&format!("{group}/v1"), kind, name, json!({"roleRef": role}));
    let selecting = |kind: &str| {
        named("apps/v1", kind, "a", json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}}))
    };
    let another =
        json!({"spec": {"selector": {"matchLabels": {"c": "d"}}, "template": {"metadata": {"labels": {"c": "d"}}}}});
    let apps = |plural: &str| format!("/apis/apps/v1/namespaces/{{ns}}/{plural}");
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let class = named("networking.k8s.io/v1", "IngressClass", "{ns}", json!({"spec": {"controller": "a.io/b"}}));
    let priorities = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let priority = named("scheduling.k8s.io/v1", "PriorityClass", "{ns}", json!({"value": 1}));
    both.check(&[
        Ask::post(&bindings, &binding("RoleBinding", "a", role("Role", "a"))),
        Ask::merge(&format!("{bindings}/a"), &json!({"roleRef": {"name": "b"}})),
        Ask::merge(&format!("{bindings}/a"), &json!({"roleRef": {"kind": "ClusterRole"}})),
        Ask::put(&format!("{bindings}/a"), &binding("RoleBinding", "a", role("Role", "b"))),
        Ask::merge(&format!("{bindings}/a"), &json!({"roleRef": {"name": "a"}, "subjects": []})),
        Ask::post(&wide, &binding("ClusterRoleBinding", "{ns}", role("ClusterRole", "a"))),
        Ask::merge(&format!("{wide}/{{ns}}"), &json!({"roleRef": {"name": "b"}})),
        Ask::delete(&format!("{wide}/{{ns}}")),
        Ask::post(SECRETS, &named("v1", "Secret", "a", json!({"type": "x.io/a"}))),
        Ask::merge(&format!("{SECRETS}/a"), &json!({"type": "x.io/b"})),
        Ask::merge(&format!("{SECRETS}/a"), &json!({"type": null})),
        Ask::post(&apps("daemonsets"), &selecting("DaemonSet")),
        Ask::merge(&format!("{}/a", apps("daemonsets")), &another),
        Ask::post(&apps("statefulsets"), &selecting("StatefulSet")),
        Ask::merge(&format!("{}/a", apps("statefulsets")), &another),
        Ask::merge(&format!("{}/a", apps("statefulsets")), &json!({"spec": {"serviceName": "b"}})),
        Ask::merge(&format!("{}/a", apps("statefulsets")), &json!({"spec": {"minReadySeconds": 1}})),
        Ask::post(&apps("replicasets"), &selecting("ReplicaSet")),
        Ask::merge(&format!("{}/a", apps("replicasets")), &another),
        Ask::post(classes, &class),
        Ask::merge(&format!("{classes}/{{ns}}"), &json!({"spec": {"controller": "a.io/c"}})),
        Ask::delete(&format!("{classes}/{{ns}}")),
        Ask::post(priorities, &priority),
        Ask::merge(&format!("{priorities}/{{ns}}"), &json!({"value": 2})),
        Ask::merge(&format!("{priorities}/{{ns}}"), &json!({"preemptionPolicy": "Never"})),
        Ask::delete(&format!("{priorities}/{{ns}}")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn null_is_the_empty_value_of_its_type() {
    let both = Both::new().await;
    let texts = json!({"x": null, "y": "z"});
    let limits = json!({"resources": {"limits": {"cpu": null}}, "name": "c", "image": "i", "args": [null, "a"]});
    let mut pod = template();
    pod["spec"]["containers"] = json!([limits]);
    pod["spec"]["nodeSelector"] = json!({"a": null});
    let deployment = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod}});
    both.check(&[
        Ask::post(MAPS, &named("v1", "ConfigMap", "a", json!({"data": texts}))),
        Ask::get(&format!("{MAPS}/a")),
        Ask::apply(&format!("{MAPS}/b?fieldManager=m"), &named("v1", "ConfigMap", "b", json!({"data": texts}))),
        Ask::apply(
            &format!("{MAPS}/b?fieldManager=m"),
            &named("v1", "ConfigMap", "b", json!({"data": {"x": null, "w": null}})),
        ),
        Ask::json(&format!("{MAPS}/a"), &json!([{"op": "add", "path": "/data/v", "value": null}])),
        Ask::put(&format!("{MAPS}/a"), &named("v1", "ConfigMap", "a", json!({"data": {"u": null}}))),
        Ask::merge(&format!("{MAPS}/a"), &json!({"data": {"u": null, "t": "s"}})),
        Ask::post(MAPS, &named("v1", "ConfigMap", "c", json!({"metadata": {"labels": texts, "annotations": texts}}))),
        Ask::get(&format!("{MAPS}/c")),
        Ask::apply(
            &format!("{MAPS}/d?fieldManager=m"),
            &named("v1", "ConfigMap", "d", json!({"metadata": {"labels": texts}})),
        ),
        Ask::post(SECRETS, &named("v1", "Secret", "a", json!({"data": {"x": null}, "stringData": {"b": null}}))),
        Ask::get(&format!("{SECRETS}/a")),
        Ask::post(ACCOUNTS, &named("v1", "ServiceAccount", "a", json!({"imagePullSecrets": [null, {"name": "b"}]}))),
        Ask::get(&format!("{ACCOUNTS}/a")),
        Ask::post("/apis/apps/v1/namespaces/{ns}/deployments", &named("apps/v1", "Deployment", "a", deployment)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_impersonates_a_user_is_that_user() {
    let both = Both::new().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ask = || Ask::post(path, &review);
    let jane = || ask().header("impersonate-user", "jane");
    let account = "system:serviceaccount:a:b";
    both.check(&[
        jane(),
        jane().header("impersonate-group", "one").header("impersonate-group", "two"),
        jane().header("impersonate-group", "system:authenticated"),
        jane()
            .header("impersonate-uid", "u-1")
            .header("impersonate-extra-scopes", "a")
            .header("impersonate-extra-scopes", "b"),
        jane().header("impersonate-extra-x.io%2fy", "a"),
        ask().header("impersonate-user", account),
        ask().header("impersonate-user", account).header("impersonate-group", "one"),
        ask().header("impersonate-group", "one"),
        ask().header("impersonate-uid", "one"),
        ask().header("impersonate-extra-a", "one"),
        Ask::get(MAPS).header("impersonate-user", "jane").header("impersonate-group", "system:masters"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_the_future_say_when_to_ask_again() {
    let both = Both::new().await;
    let asks = [
        Ask::get(&format!("{MAPS}?resourceVersion=999999999999")),
        Ask::get(&format!("{MAPS}/a?resourceVersion=999999999999")),
    ];
    both.check(&asks.map(Ask::loosely)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_owners_are_what_they_may_be() {
    let both = Both::new().await;
    both.install(&super::custom::definition()).await;
    let services = "/api/v1/namespaces/{ns}/services?dryRun=All";
    let service =
        |name: &str| named("v1", "Service", name, json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}));
    let owned = |api_version: &str, kind: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x"});
        named(api_version, kind, "a", json!({"metadata": {"ownerReferences": [owner]}}))
    };
    let long = "a".repeat(64);
    both.check(&[
        // The server gives it addresses.
        Ask::post(services, &service("0abc")).loosely(),
        Ask::post(services, &service("a.b")),
        Ask::post(services, &service("A")),
        Ask::post(services, &service(&long)),
        Ask::post("/api/v1/namespaces?dryRun=All", &named("v1", "Namespace", &long, json!({}))),
        Ask::post("/api/v1/namespaces?dryRun=All", &named("v1", "Namespace", "{ns}-x", json!({}))),
        Ask::post(MAPS, &named("v1", "ConfigMap", "long", json!({"metadata": {"labels": {"a": long}}}))),
        Ask::apply(&format!("{MAPS}/a?fieldManager=m"), &owned("v1", "ConfigMap")),
        Ask::apply(
            "/apis/sim.example.com/v1/namespaces/{ns}/things/a?fieldManager=m",
            &owned("sim.example.com/v1", "Thing"),
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_served_is_told_by_a_status() {
    let both = Both::new().await;
    both.install(&super::custom::definition()).await;
    let paths = [
        "/api/v2",
        "/api/v2/pods",
        "/api/v2/namespaces/a/pods/b",
        "/api/v1/nothings",
        "/apis/apps/v2",
        "/apis/apps/v2/deployments",
        "/apis/apps/v1/nothings",
        "/apis/apps/v2/namespaces/a/deployments/b",
        "/apis/none.example.com",
        "/apis/none.example.com/v1",
        "/apis/none.example.com/v1/things",
        "/apis/sim.example.com/v9",
        "/apis/sim.example.com/v9/things",
        "/apis/sim.example.com/v1/nothings",
    ];
    both.check(&paths.map(Ask::get)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_gives_nothing_says_nothing_of_its_field() {
    let both = Both::new().await;
    let text = json!({"type": "string"});
    let schema = json!({
        "type": "object",
        "properties": {"spec": {
            "type": "object",
            "properties": {
                "fixed": text,
                "free": {"type": "integer"},
                "gate": {"type": "integer", "x-kubernetes-validations": [{"rule": "6 / self > 1"}]},
            },
            "x-kubernetes-validations": [
                {
                    "rule": "!has(oldSelf.fixed) || self.fixed == oldSelf.fixed", "reason": "FieldValueForbidden",
                    "fieldPath": ".fixed", "message": "fixed is fixed",
                },
                {"rule": "!has(self.free) || 6 / self.free > 1", "fieldPath": ".free"},
            ],
        }},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "fixeds.library.example.com"},
        "spec": {
            "group": "library.example.com", "scope": "Namespaced", "names": {"kind": "Fixed", "plural": "fixeds"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    both.install(&definition).await;
    let fixeds = "/apis/library.example.com/v1/namespaces/{ns}/fixeds";
    let fixed = named("library.example.com/v1", "Fixed", "a", json!({"spec": {"fixed": "a"}}));
    both.check(&[
        Ask::post(fixeds, &fixed),
        Ask::merge(&format!("{fixeds}/a"), &json!({"spec": {"fixed": "b"}})),
        Ask::merge(&format!("{fixeds}/a"), &json!({"spec": {"fixed": null}})),
        Ask::merge(&format!("{fixeds}/a"), &json!({"spec": {"free": 0}})),
        Ask::merge(&format!("{fixeds}/a"), &json!({"spec": {"free": 6}})),
        Ask::merge(&format!("{fixeds}/a"), &json!({"spec": {"free": 3, "gate": 0}})),
    ])
    .await;
}
