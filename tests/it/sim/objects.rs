//! Creating, reading, changing and deleting objects of built-in kinds.

use kube_sim::Authority;
use serde_json::{Value, json};

use super::both::{Ask, Both};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn one(name: &str) -> String {
    format!("{MAPS}/{name}")
}

fn with(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_created_read_changed_and_deleted() {
    let both = Both::new().await;
    both.check(&[
        Ask::post(MAPS, &map("a", json!({"x": "1"}))),
        Ask::post(MAPS, &map("a", json!({"x": "1"}))),
        Ask::get(&one("a")),
        Ask::merge(&one("a"), &json!({"data": {"y": "2"}})),
        Ask::merge(&one("a"), &json!({"data": {"y": "2"}})),
        Ask::json(&one("a"), &json!([{"op": "remove", "path": "/data/x"}])),
        Ask::put(&one("a"), &map("a", json!({"z": "3"}))),
        Ask::apply(&format!("{}?fieldManager=m", one("b")), &map("b", json!({"x": "1"}))),
        Ask::apply(&format!("{}?fieldManager=m", one("b")), &map("b", json!({"x": "1"}))),
        Ask::apply(&format!("{}?fieldManager=n", one("b")), &map("b", json!({"x": "2"}))),
        Ask::apply(&format!("{}?fieldManager=n&force=true", one("b")), &map("b", json!({"x": "2"}))),
        Ask::get(MAPS),
        Ask::delete(&one("a")),
        Ask::delete(&one("a")),
        Ask::get(&one("a")),
        Ask::delete(MAPS),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_not_found() {
    let both = Both::new().await;
    both.check(&[
        Ask::get(&one("none")),
        Ask::get("/api/v1/namespaces/none/configmaps/none"),
        Ask::get("/api/v1/namespaces/none/configmaps"),
        Ask::get("/apis/none.example.com/v1/things"),
        Ask::get("/api/v1/things"),
        Ask::get("/none"),
        Ask::merge(&one("none"), &json!({})),
        Ask::put(&one("none"), &map("none", json!({}))),
        Ask::put(&one("none"), &with(json!({"name": "none", "uid": "x"}))),
        Ask::post("/api/v1/namespaces/none/configmaps", &map("a", json!({}))),
        Ask::get(&format!("{}/status", one("a"))),
        Ask::get("/api/v1/namespaces/{ns}/namespaces"),
        Ask::get("/apis/apps/v1/namespaces/{ns}/deployments/none"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_that_do_not_fit_are_refused() {
    let both = Both::new().await;
    both.check(&[
        Ask::post(&one("a"), &json!({})),
        Ask::put(MAPS, &json!({})),
        Ask::merge(MAPS, &json!({})),
        Ask::post("/api/v1/configmaps", &json!({})),
        Ask::delete("/api/v1/configmaps"),
        Ask::delete("/api/v1/namespaces"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_labels_and_finalizers_are_checked() {
    let both = Both::new().await;
    both.check(&[
        Ask::post(MAPS, &with(json!({"name": "A_b"}))),
        Ask::post(MAPS, &with(json!({}))),
        Ask::post(MAPS, &with(json!({"name": "a".repeat(254)}))),
        Ask::post(MAPS, &with(json!({"name": "a", "namespace": "other"}))),
        Ask::post(MAPS, &with(json!({"name": "a", "resourceVersion": "5"}))),
        Ask::post(
            MAPS,
            &with(json!({"name": "a", "labels": {"a b": "c"}, "annotations": {"x/y/z": ""}, "finalizers": ["foo", "a b"]})),
        ),
        Ask::post(MAPS, &with(json!({"name": "a", "labels": {"a": "-"}}))),
        Ask::post(MAPS, &with(json!({"name": "a", "labels": {"/a": "b"}}))),
        Ask::post(MAPS, &with(json!({"name": "a", "labels": {"a/": "b"}}))),
        Ask::post(MAPS, &with(json!({"name": "a", "labels": {"a": "b".repeat(64)}}))),
        Ask::post(MAPS, &with(json!({"name": "a", "annotations": {"a": "b".repeat(262_145)}}))),
        Ask::post("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_has_keys_limits_and_may_be_immutable() {
    let both = Both::new().await;
    let core = "/api/v1/namespaces/{ns}";
    let secret = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    let pair = Authority::new("a").unwrap().server("a", &["a"]).unwrap();
    let typed = |kind: &str, data: Value| {
        let mut typed = secret("typed", data);
        typed["type"] = json!(format!("kubernetes.io/{kind}"));
        Ask::post(&format!("{core}/secrets?dryRun=All"), &typed)
    };
    let mut fixed = map("fixed", json!({"x": "1"}));
    fixed["immutable"] = json!(true);
    let mut twice = map("twice", json!({"x": "1"}));
    twice["binaryData"] = json!({"x": "eA=="});
    let deployments = "/apis/apps/v1/namespaces/{ns}/deployments";
    let deployment = |label: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": label}},
                "template": {
                    "metadata": {"labels": {"app": label}}, "spec": {"containers": [{"name": "web", "image": "web"}]},
                },
            },
        })
    };
    both.check(&[
        Ask::post(MAPS, &map("a", json!({"a b": "1"}))),
        Ask::post(MAPS, &map("a", json!({"..": "1"}))),
        Ask::post(MAPS, &map("a", json!({"..a": "1"}))),
        Ask::post(MAPS, &twice),
        Ask::post(MAPS, &map("a", json!({"x": "a".repeat((1 << 20) + 1)}))),
        Ask::post(&format!("{core}/secrets"), &secret("a", json!({"x": "a".repeat((1 << 20) + 1)}))),
        Ask::post(&format!("{core}/secrets"), &secret("a", json!({"a b": "1"}))),
        typed("tls", json!({})),
        typed("tls", json!({"tls.crt": ""})),
        typed("tls", json!({"tls.crt": pair.certificate, "tls.key": pair.key})),
        typed("basic-auth", json!({"token": "a"})),
        typed("basic-auth", json!({"password": ""})),
        typed("ssh-auth", json!({"ssh-privatekey": ""})),
        typed("ssh-auth", json!({"ssh-privatekey": "a"})),
        typed("dockercfg", json!({".dockerconfigjson": "{}"})),
        typed("dockerconfigjson", json!({".dockercfg": "{}"})),
        typed("dockerconfigjson", json!({".dockerconfigjson": "{}"})),
        typed("service-account-token", json!({"token": "a"})),
        Ask::post(MAPS, &fixed),
        Ask::merge(&one("fixed"), &json!({"data": {"x": "2"}})),
        Ask::merge(&one("fixed"), &json!({"immutable": null})),
        Ask::merge(&one("fixed"), &json!({"metadata": {"labels": {"a": "b"}}})),
        Ask::post(&format!("{deployments}?dryRun=All"), &deployment("web")),
        Ask::post(deployments, &deployment("web")).loosely(),
        Ask::apply(&format!("{deployments}/web?fieldManager=m&force=true"), &deployment("other")).loosely(),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_not_objects_of_the_kind_are_refused() {
    let both = Both::new().await;
    let json = "application/json";
    let raw = |content_type: &str, body: &str| Ask::raw("POST", MAPS, content_type, body);
    both.check(&[
        raw(json, ""),
        raw(json, "x"),
        raw(json, "[]"),
        raw(json, "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\","),
        raw("text/plain", "{}"),
        raw(json, "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"b\"}}"),
        raw(json, "{\"apiVersion\":\"v1\",\"kind\":\"Foo\",\"metadata\":{\"name\":\"b\"}}"),
        raw(json, "{\"apiVersion\":\"foo/v1\",\"kind\":\"Foo\",\"metadata\":{\"name\":\"b\"}}"),
        raw(json, "{\"metadata\":{\"name\":\"untyped\"}}"),
        raw("application/yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\n"),
        raw(json, &map("big", json!({"x": "a".repeat(3 << 20)})).to_string()),
        raw("application/yaml", &map("big", json!({"x": "a".repeat(3 << 20)})).to_string()),
        Ask::put(&one("yaml"), &map("yaml", json!({"x": "a".repeat(3 << 20)}))),
        Ask::merge(&one("yaml"), &json!({"data": {"x": "a".repeat(3 << 20)}})),
        Ask::apply(&format!("{}?fieldManager=m", one("yaml")), &map("yaml", json!({"x": "a".repeat(3 << 20)}))),
        Ask::raw("PATCH", &one("yaml"), json, "{}"),
        Ask::raw("PATCH", &one("yaml"), "application/merge-patch+json", "x"),
        Ask::raw("PATCH", &one("yaml"), "application/merge-patch+json", "[]"),
        Ask::raw("PATCH", &one("yaml"), "application/json-patch+json", "{}"),
        Ask::raw("PATCH", &one("yaml"), "application/json-patch+json", "{"),
        Ask::json(&one("yaml"), &json!([{"op": "test", "path": "/data/x", "value": "9"}])),
        Ask::json(&one("yaml"), &json!([{"op": "remove", "path": "/data/x"}])),
        Ask::raw("PATCH", &format!("{}?fieldManager=m", one("yaml")), "application/apply-patch+yaml", "x"),
        Ask::raw("PATCH", &format!("{}?fieldManager=m", one("yaml")), "application/apply-patch+yaml", ""),
        Ask::merge(&one("yaml"), &json!({"metadata": {"name": "other"}})),
        Ask::merge(&one("yaml"), &json!({"metadata": {"name": null}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn applies_that_do_not_fit_are_refused() {
    let both = Both::new().await;
    let apply = |body: Value| Ask::apply(&format!("{}?fieldManager=m", one("a")), &body);
    both.check(&[
        Ask::apply(&one("a"), &map("a", json!({}))),
        Ask::apply(&format!("{}?fieldManager={}", one("a"), "m".repeat(129)), &map("a", json!({}))),
        Ask::merge(&format!("{}?force=true", one("a")), &json!({})),
        apply(json!({"kind": "ConfigMap", "metadata": {"name": "a"}})),
        apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})),
        apply(with(json!({"name": "b"}))),
        apply(with(json!({"name": "a", "namespace": "other"}))),
        apply(with(json!({"name": "a", "uid": "x"}))),
        apply(with(json!({"name": "a", "managedFields": [{}]}))),
        apply(with(json!({"name": "a", "resourceVersion": "1"}))),
        apply(with(json!({"name": "a", "resourceVersion": "1"}))),
        apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}})),
        apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "foo": 1})),
        apply(map("a", json!({"x": 1}))),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_checked() {
    let both = Both::new().await;
    let post = |query: &str| Ask::post(&format!("{MAPS}?{query}"), &map("a", json!({})));
    let get = |query: &str| Ask::get(&format!("{MAPS}?{query}"));
    both.check(&[
        post("fieldValidation=Foo"),
        post("dryRun=Foo"),
        post("dryRun=All"),
        get("limit=x"),
        get("timeoutSeconds=x"),
        get("resourceVersion=x"),
        get("resourceVersion=99999999"),
        get("resourceVersion=99999999&resourceVersionMatch=Exact"),
        get("resourceVersion=99999999&resourceVersionMatch=NotOlderThan"),
        get("resourceVersion=99999999&limit=2"),
        get("watch=1&timeoutSeconds=1&resourceVersion=99999999"),
        get(
            "watch=1&timeoutSeconds=1&resourceVersion=99999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
             allowWatchBookmarks=true",
        ),
        Ask::get(&format!("{}?resourceVersion=99999999", one("a"))),
        get("resourceVersionMatch=Foo"),
        get("continue=abc"),
        get("fieldSelector=data.x%3Da"),
        get("fieldSelector=foo"),
        get("fieldSelector=metadata.name%3E1"),
        get("fieldSelector=metadata.name%3Da%5C"),
        get("fieldSelector=metadata.name%3Da%5Cb"),
        get("fieldSelector=metadata.name%3Da%3Db"),
        get("fieldSelector=metadata.name%3Da%3Db%21%3Dc"),
        get("fieldSelector=metadata.name%3Da%5C%3Db%5C%2Cc"),
        get("fieldSelector=%3Da"),
        get("fieldSelector=%2C&labelSelector=nobody"),
        get("watch=1&fieldSelector=foo"),
        get("watch=1&labelSelector=a%20b"),
        Ask::delete(&format!("{MAPS}?labelSelector=a%20b")),
        Ask::delete(&format!("{MAPS}?fieldSelector=foo")),
        get("watch=1&resourceVersion=x"),
        get("watch=1&sendInitialEvents=true"),
        get("watch=1&resourceVersionMatch=NotOlderThan"),
        get("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        Ask::get(MAPS).accept("text/plain"),
        Ask::get(MAPS).accept("application/json;as=Foo;g=meta.k8s.io;v=v1"),
        Ask::get(MAPS).accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn label_selectors_are_parsed_as_the_server_parses_them() {
    let both = Both::new().await;
    let labelled = |name: &str, labels: Value| Ask::post(MAPS, &with(json!({"name": name, "labels": labels})));
    let mut asks = vec![
        labelled("a", json!({"app": "one", "n": "5"})),
        labelled("b", json!({"app": "two"})),
        labelled("c", json!({"x.io/y": ""})),
    ];
    let selectors = [
        "app",
        "!app",
        "app=one",
        "app==one",
        "app!=one",
        "app in (one,two)",
        "app notin (one)",
        "app in ()",
        "app in (,)",
        "x.io/y=",
        "n>4",
        "n<4",
        "n>5",
        "app,n",
        "app=one,n=5",
        " app = one ",
        "a===b",
        "a in (b",
        "!",
        "a b",
        "a,b,",
        "a=b=c",
        "a>x",
        "a exists b",
        "-a=b",
        "a=-b",
        "a=b c",
        "a!b",
        "a=!",
        ",",
        "a in b",
        "a notin (b",
        "a/b/c",
    ];
    asks.extend(selectors.iter().map(|selector| {
        let encoded: String = selector.bytes().map(|byte| format!("%{byte:02X}")).collect();
        Ask::get(&format!("{MAPS}?labelSelector={encoded}"))
    }));
    both.check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages() {
    let both = Both::new().await;
    let labelled = |name: &str| Ask::post(MAPS, &with(json!({"name": name, "labels": {"a": "b"}})));
    both.check(&[
        labelled("a"),
        labelled("b"),
        labelled("c"),
        Ask::get(&format!("{MAPS}?limit=2")),
        Ask::get(&format!("{MAPS}?limit=2&continue={{continue:3}}")),
        Ask::get(&format!("{MAPS}?limit=2&labelSelector=a%3Db")),
        Ask::get(&format!("{MAPS}?fieldSelector=metadata.name%3Db")),
        Ask::get(&format!("{MAPS}?fieldSelector=metadata.name!%3Db")),
        Ask::get("/api/v1/configmaps?labelSelector=a%3Db&fieldSelector=metadata.namespace%3D{ns}"),
        Ask::get(&format!("{MAPS}?limit=2&resourceVersion=5&continue={{continue:3}}")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_form_that_is_asked_for() {
    let both = Both::new().await;
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let metadata_list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    both.check(&[
        Ask::post(MAPS, &map("a", json!({"x": "1"}))).accept(metadata),
        Ask::get(&one("a")).accept(metadata),
        Ask::get(&one("a")).accept(metadata_list),
        Ask::get(MAPS).accept(metadata_list),
        Ask::get(MAPS).accept(&format!("{metadata_list},application/json")),
        Ask::merge(&one("a"), &json!({"data": {"x": "2"}})).accept(metadata),
        Ask::apply(&format!("{}?fieldManager=m", one("b")), &map("b", json!({}))).accept(metadata),
        Ask::apply(&format!("{}?fieldManager=m&dryRun=All", one("c")), &map("c", json!({"a": "b"}))).accept(metadata),
        Ask::delete(&one("a")).accept(metadata),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_with_an_old_version_are_told() {
    let both = Both::new().await;
    let at = |name: &str, version: &str| with(json!({"name": name, "resourceVersion": version}));
    both.check(&[
        Ask::post(MAPS, &map("a", json!({"x": "1"}))),
        Ask::put(&one("a"), &at("a", "5")),
        Ask::put(&one("a"), &at("a", "99999999")),
        Ask::merge(&one("a"), &json!({"metadata": {"resourceVersion": "99999999"}})),
        Ask::delete_with(&one("a"), &json!({"preconditions": {"resourceVersion": "99999999"}})),
        Ask::put(&one("a"), &at("a", "abc")),
        Ask::put(&one("a"), &at("a", "{rv:0}")),
        Ask::put(&one("a"), &at("a", "{rv:0}")),
        Ask::put(&one("a"), &with(json!({"name": "b"}))),
        Ask::put(&one("a"), &with(json!({}))),
        Ask::put(&one("a"), &with(json!({"name": "a", "uid": "xx"}))),
        Ask::merge(&one("a"), &json!({"metadata": {"resourceVersion": "5"}})),
        Ask::merge(&one("a"), &json!({"metadata": {"uid": "5"}})),
        Ask::merge(&one("a"), &json!({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}})).loosely(),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_have_conditions_and_finalizers_hold_them() {
    let both = Both::new().await;
    let options = |body: Value| Ask::delete_with(&one("a"), &body);
    both.check(&[
        Ask::post(MAPS, &map("a", json!({}))),
        options(json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "x"}})),
        options(json!({"preconditions": {"resourceVersion": "1"}})),
        options(json!({"kind": "Foo", "apiVersion": "v1"})),
        options(json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foo"})),
        Ask::delete(&format!("{}?propagationPolicy=Foreground&orphanDependents=true", one("a"))),
        Ask::raw("DELETE", &one("a"), "application/json", "x"),
        options(json!({"dryRun": ["All"]})),
        options(json!({"preconditions": {"uid": "{uid:0}", "resourceVersion": "{rv:0}"}})),
        Ask::post(MAPS, &with(json!({"name": "f", "finalizers": ["x.io/a"]}))),
        Ask::delete(&one("f")),
        Ask::delete(&one("f")),
        Ask::merge(&one("f"), &json!({"metadata": {"finalizers": ["x.io/a", "x.io/b"]}})),
        Ask::merge(&one("f"), &json!({"metadata": {"labels": {"a": "b"}}})),
        Ask::merge(&one("f"), &json!({"metadata": {"finalizers": null}})),
        Ask::get(&one("f")),
        Ask::delete("/api/v1/namespaces/default"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_what_happened_in_order() {
    let both = Both::new().await;
    let watch = |query: &str| Ask::get(&format!("{MAPS}?watch=1&timeoutSeconds=1&{query}"));
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let own = "fieldSelector=metadata.name!%3Dkube-root-ca.crt";
    both.check(&[
        Ask::post(MAPS, &with(json!({"name": "a", "labels": {"a": "b"}}))),
        Ask::post(MAPS, &map("b", json!({"x": "1"}))),
        Ask::merge(&one("a"), &json!({"metadata": {"labels": {"a": "c"}}})),
        Ask::merge(&one("a"), &json!({"metadata": {"labels": {"a": "b"}}})),
        Ask::delete(&one("b")),
        watch(&format!("{own}&resourceVersion={{rv:0}}")),
        watch(&format!("{own}&resourceVersion={{rv:0}}&labelSelector=a%3Db")),
        watch(&format!("{own}&resourceVersion={{rv:0}}")).accept(metadata),
        watch(&format!("{own}&resourceVersion=0")),
        watch(&format!("{own}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")),
        watch(&format!("{own}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")),
        watch(&format!("{own}&resourceVersion=99999999")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_that_modules_bring_come_out_as_from_the_server() {
    let both = Both::new().await;
    let of = |api_version: &str, kind: &str, name: &str, rest: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    let labels = json!({"app": "web"});
    let container = json!({
        "name": "web", "image": "web:1", "ports": [{"containerPort": 8080}], "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
    });
    let deployment = of(
        "apps/v1",
        "Deployment",
        "web",
        json!({"spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], "serviceAccountName": "web"}},
        }}),
    );
    let secret = of("v1", "Secret", "s", json!({"stringData": {"password": "one"}, "data": {"other": "Zm9v"}}));
    let role = of(
        "rbac.authorization.k8s.io/v1",
        "Role",
        "r",
        json!({"rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        ]}),
    );
    let binding = of(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "r",
        json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": "default"}],
        }),
    );
    let lease = of(
        "coordination.k8s.io/v1",
        "Lease",
        "l",
        json!({"spec": {"holderIdentity": "one", "leaseDurationSeconds": 15}}),
    );
    let texts = |name: &str, rest: Value| of("v1", "Secret", name, rest);
    let claims = json!([{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}}]);
    let moved = json!([{"op": "replace", "path": "/metadata/managedFields", "value": claims}]);
    let u = "/api/v1/namespaces/{ns}/secrets/u?fieldManager=m&force=true".to_owned();
    let core = "/api/v1/namespaces/{ns}";
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
    let deployments = "/apis/apps/v1/namespaces/{ns}/deployments";
    both.check(&[
        Ask::post(&format!("{core}/secrets"), &secret),
        Ask::merge(&format!("{core}/secrets/s"), &json!({"stringData": {"password": "two"}})),
        Ask::apply(
            &format!("{core}/secrets/t?fieldManager=m"),
            &of("v1", "Secret", "t", json!({"stringData": {"a": "b"}})),
        ),
        // The claims of an apply stay on a field that is never stored. Moved to the data, they remove what goes.
        Ask::apply(&u, &texts("u", json!({"stringData": {"a": "1", "b": "2"}}))),
        Ask::apply(&u, &texts("u", json!({"stringData": {"a": "1"}}))),
        Ask::apply(&u, &texts("u", json!({"data": {"a": "MQ=="}}))),
        Ask::apply(&u, &texts("u", json!({"stringData": {"a": "1", "b": "2"}}))),
        Ask::json(&format!("{core}/secrets/u?fieldManager=m"), &moved),
        Ask::apply(&u, &texts("u", json!({"data": {"a": "MQ=="}}))),
        Ask::post(&format!("{core}/serviceaccounts"), &of("v1", "ServiceAccount", "web", json!({}))),
        Ask::post(&format!("{rbac}/roles"), &role),
        Ask::post(&format!("{rbac}/rolebindings"), &binding),
        Ask::apply(&format!("{deployments}/web?fieldManager=m&dryRun=All"), &deployment),
        Ask::post(&format!("{deployments}?dryRun=All"), &deployment),
        Ask::put(&format!("{leases}/l"), &lease),
        Ask::put(&format!("{leases}/l"), &lease),
        Ask::post(&format!("{core}/configmaps"), &of("v1", "ConfigMap", "c", json!({"data": {"a": 1}}))),
        Ask::post(&format!("{core}/configmaps"), &of("v1", "ConfigMap", "c", json!({"data": []}))),
        Ask::post(
            &format!("{core}/configmaps?fieldValidation=Strict"),
            &of("v1", "ConfigMap", "c", json!({"datta": {}})),
        ),
        Ask::post(&format!("{core}/configmaps?dryRun=All"), &of("v1", "ConfigMap", "c", json!({"datta": {}}))),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_answered_and_not_stored() {
    let both = Both::new().await;
    let review = |group: &str, kind: &str, spec: Value| {
        let scope = if kind.starts_with("Local") { "/namespaces/{ns}" } else { "" };
        let body = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
        Ask::post(&format!("/apis/{group}/v1{scope}/{}s", kind.to_lowercase()), &body)
    };
    let (who, what) = ("authentication.k8s.io", "authorization.k8s.io");
    let attributes = json!({"verb": "get", "resource": "pods"});
    both.check(&[
        review(what, "SelfSubjectAccessReview", json!({"resourceAttributes": attributes})),
        review(what, "SelfSubjectAccessReview", json!({"nonResourceAttributes": {"verb": "get", "path": "/x"}})),
        review(what, "SelfSubjectAccessReview", json!({})),
        review(what, "SubjectAccessReview", json!({"resourceAttributes": attributes})),
        review(
            what,
            "SubjectAccessReview",
            json!({"user": "jane", "groups": ["system:masters"], "resourceAttributes": attributes}),
        ),
        review(
            what,
            "LocalSubjectAccessReview",
            json!({
                "user": "jane", "groups": ["system:masters"],
                "resourceAttributes": {"namespace": "{ns}", "verb": "get", "resource": "pods"},
            }),
        ),
        review(who, "TokenReview", json!({})),
        Ask::get("/apis/authentication.k8s.io/v1"),
        Ask::get("/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        Ask::get("/apis/authorization.k8s.io/v1/subjectaccessreviews/a"),
        Ask::delete("/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ])
    .await;
    for client in [&both.real, &both.simulated] {
        let ask = review(who, "SelfSubjectReview", Value::Null);
        let answer = ask.send(client, &both.namespace, &[]).await;
        let groups = answer.body["status"]["userInfo"]["groups"].as_array().cloned().unwrap_or_default();
        assert!(answer.code == 201 && groups.contains(&json!("system:masters")), "{answer:?}");
        let answer = review(who, "TokenReview", json!({"token": "x"})).send(client, &both.namespace, &[]).await;
        assert!(answer.code == 201 && answer.body["status"]["authenticated"].is_null(), "{answer:?}");
    }
    both.server.accept_token("known", kube_sim::User::admin());
    let answer = review(who, "TokenReview", json!({"token": "known"})).send(&both.simulated, "", &[]).await;
    assert_eq!(answer.body["status"]["user"]["username"], "admin", "{answer:?}");
}
