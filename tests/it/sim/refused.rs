//! What is refused, in the server's words: selectors, tokens, names, texts that are no JSON, keys that stand twice, and
//! expressions that do not compile.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{
    both::{Ask, Both},
    custom::{bad, definition},
};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const THINGS: &str = "/apis/sim.example.com/v1/namespaces/{ns}/things";

fn one(name: &str) -> String {
    format!("{MAPS}/{name}")
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// A custom resource and a ConfigMap, both named `t`.
fn samples() -> [Value; 2] {
    let thing = json!({
        "apiVersion": "sim.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"color": "red"},
    });
    [thing, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t"}})]
}

#[tokio::test(flavor = "multi_thread")]
async fn label_selectors_that_do_not_parse_are_told_as_the_server_tells_them() {
    let both = Both::new().await;
    let long = "a".repeat(64);
    let selectors = [
        "=",
        "==",
        "a==",
        "a=,b",
        "a!=",
        "a=in",
        "in=a",
        "in in (in)",
        "notin",
        "!in",
        "!a=b",
        "! a",
        "!!a",
        "a in",
        "a in (",
        "a in (b,",
        "a in (b,,c)",
        "a in (,b)",
        "a in (b,)",
        "a in (=)",
        "a in (b=)",
        "a in (b c)",
        "a in (b,=)",
        "a in (,=)",
        "a in b)",
        "a in ((b))",
        "a in (b))",
        "a in (b) c",
        "a>",
        "a>b",
        "a<-1",
        "a>1.5",
        "a>9223372036854775807",
        "a>9223372036854775808",
        "a>99999999999999999999999999999999999999999999999999999999999999999",
        "a>=1",
        "a<=1",
        "a=>1",
        "a>1,b<x",
        "(a)",
        ")",
        "a)",
        "a,,b",
        "a, b",
        "a.b/c=d",
        "A.b/c=d",
        "/a",
        "a/",
        "a/b/c=d",
        "-a",
        "a-",
        "a_.b",
        "ä=b",
        "a=ä",
        "a=b/c",
        "a=b:c",
        "a=b*",
        "a\tin\t(b)",
        &format!("{long}=b"),
        &format!("b={long}"),
        &format!("b in ({long},-)"),
        &format!("{}/a", "b".repeat(254)),
    ];
    let asks: Vec<Ask> =
        selectors.iter().map(|selector| Ask::get(&format!("{MAPS}?labelSelector={}", encoded(selector)))).collect();
    both.check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn field_selectors_ask_for_what_each_kind_has() {
    let both = Both::new().await;
    both.install(&definition()).await;
    let places = [
        MAPS,
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/api/v1/namespaces/{ns}/pods",
        "/api/v1/namespaces/{ns}/secrets",
        "/api/v1/namespaces/{ns}/services",
        "/api/v1/namespaces/{ns}/events",
        "/api/v1/namespaces/{ns}/replicationcontrollers",
        "/apis/events.k8s.io/v1/namespaces/{ns}/events",
        "/apis/apps/v1/namespaces/{ns}/deployments",
        "/apis/apps/v1/namespaces/{ns}/statefulsets",
        "/apis/apps/v1/namespaces/{ns}/replicasets",
        "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        THINGS,
    ];
    let fields = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "status.phase",
        "spec.unschedulable",
        "spec.nodeName",
        "spec.host",
        "spec.hostNetwork",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.nominatedNodeName",
        "status.podIPs",
        "type",
        "spec.type",
        "spec.clusterIP",
        "status.replicas",
        "reason",
        "source",
        "reportingComponent",
        "reportingController",
        "involvedObject.kind",
        "involvedObject.fieldPath",
        "regarding.kind",
        "regarding.fieldPath",
        "spec.color",
        "spec.size",
        "name",
    ];
    let mut asks = Vec::new();
    for place in places {
        // No object has this name, so every list is empty, whatever other clients create on the server.
        asks.extend(fields.iter().map(|field| {
            Ask::get(&format!("{place}?fieldSelector={}", encoded(&format!("metadata.name=no.such,{field}=none"))))
        }));
    }
    both.check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn field_selectors_compare_what_objects_have() {
    let both = Both::new().await;
    let event = |name: &str, kind: &str, source: Value| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "Tried", "type": "Normal",
            "involvedObject": {"kind": kind, "name": "a", "namespace": "{ns}"}, "source": source,
        })
    };
    let secret = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind});
    let events = "/api/v1/namespaces/{ns}/events";
    let new_events = "/apis/events.k8s.io/v1/namespaces/{ns}/events";
    let secrets = "/api/v1/namespaces/{ns}/secrets";
    let select = |place: &str, selector: &str| Ask::get(&format!("{place}?fieldSelector={}", encoded(selector)));
    both.check(&[
        Ask::post(secrets, &secret("one", "example.com/one")),
        Ask::post(secrets, &secret("two", "example.com/two")),
        select(secrets, "type=example.com/one"),
        select(secrets, "type!=example.com/one,metadata.name!=none"),
        select(secrets, "type==example.com/one,metadata.name=two"),
        Ask::post(events, &event("one", "Pod", json!({"component": "test"}))),
        Ask::post(events, &event("two", "Node", json!({}))),
        select(events, "involvedObject.kind=Pod"),
        select(events, "involvedObject.kind!=Pod,reason=Tried"),
        select(events, "source=test"),
        select(events, "source="),
        select(new_events, "regarding.kind=Pod"),
        select(new_events, "reason=Tried,regarding.kind!=Pod"),
        select(events, "="),
        select(events, "=,involvedObject.kind=Pod"),
        select(events, "!="),
        select(events, "=a"),
        select(events, "a="),
        select(events, "reason=Tried,foo=a,bar=b"),
        select(events, "zoo,foo"),
        select(events, "foo=a,zoo"),
        select(events, "reason>1"),
        select(events, "reason===Tried"),
        select(events, " reason=Tried"),
        select(events, "reason= Tried"),
        select(events, "reason=Tried,"),
        select(events, ",,"),
        Ask::get(&format!("{events}?fieldSelector=foo&labelSelector=a%20b&limit=x")),
        Ask::get(&format!("{events}?fieldSelector=foo%3Da&resourceVersionMatch=Foo")),
        Ask::get(&format!("{events}?fieldSelector=foo&resourceVersionMatch=Foo")),
        Ask::get(&format!("{events}?labelSelector=a%20b&fieldSelector=foo&resourceVersionMatch=Foo")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_pages_that_are_none_are_refused() {
    let both = Both::new().await;
    let tokens = [
        "abc".to_owned(),
        "a".to_owned(),
        "abcde".to_owned(),
        "ab=c".to_owned(),
        "abcd=".to_owned(),
        "ab c".to_owned(),
        "ab+/".to_owned(),
        "ä".to_owned(),
    ];
    let texts = [
        "",
        "x",
        "{",
        "[]",
        "7",
        "null",
        "\"a\"",
        "{}",
        r#"{"v":1}"#,
        r#"{"v":"meta.k8s.io/v2"}"#,
        r#"{"v":"meta.k8s.io/v1"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":"1","start":"a"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":1.5,"start":"a"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":""}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":7}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"../a"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"/a/../b"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a//b"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a/"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"./a"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"b"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"/b\u0000"}"#,
        r#"{"V":"meta.k8s.io/v1","RV":-1,"Start":"b"}"#,
    ];
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let mut asks: Vec<Ask> = ["a", "b", "c"].iter().map(|name| Ask::post(MAPS, &map(name))).collect();
    let tokens = tokens.into_iter().chain(texts.iter().map(|text| URL_SAFE_NO_PAD.encode(text)));
    let tokens: Vec<String> = tokens.collect();
    asks.extend(tokens.iter().map(|token| Ask::get(&format!("{MAPS}?continue={}", encoded(token)))));
    asks.push(Ask::get(&format!("{MAPS}?continue=x&resourceVersion=5")));
    asks.push(Ask::get(&format!("{MAPS}?continue=x&resourceVersion=abc")));
    asks.push(Ask::get(&format!("{MAPS}?continue=x&fieldSelector=metadata.name%3Da")));
    both.check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_nothing_can_be_stored_by_are_refused() {
    let both = Both::new().await;
    both.install(&definition()).await;
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let thing = |name: &str| {
        json!({
            "apiVersion": "sim.example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"color": "red"},
        })
    };
    let mut asks = Vec::new();
    for (path, name) in [("..", ".."), (".", "."), ("a%25b", "a%b"), ("%2E%2E", ".."), ("a%20b", "a b"), ("A", "A")] {
        for (place, object) in [(MAPS, map(name)), (THINGS, thing(name))] {
            let path = format!("{place}/{path}");
            let mut versioned = object.clone();
            versioned["metadata"]["resourceVersion"] = json!("1");
            asks.extend([
                Ask::get(&path),
                Ask::get(&format!("{path}?resourceVersion=x")),
                Ask::put(&path, &object),
                Ask::put(&path, &versioned),
                Ask::merge(&path, &json!({})),
                Ask::json(&path, &json!([])),
                Ask::apply(&format!("{path}?fieldManager=m"), &object),
                Ask::delete(&path),
            ]);
        }
    }
    both.check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subresources_that_are_not_there_are_not_found() {
    let both = Both::new().await;
    both.install(&definition()).await;
    let [thing, map] = samples();
    let mut asks = vec![Ask::post(THINGS, &thing), Ask::post(MAPS, &map)];
    for (place, object) in [(THINGS, &thing), (MAPS, &map)] {
        for subresource in ["foo", "scale", "foo/bar", "a/b/c"] {
            let path = format!("{place}/t/{subresource}");
            asks.extend([
                Ask::get(&path),
                Ask::post(&path, object),
                Ask::put(&path, object),
                Ask::merge(&path, &json!({})),
                Ask::delete(&path),
                Ask::get(&format!("{place}/none/{subresource}")),
            ]);
        }
        asks.extend([Ask::put(place, object), Ask::merge(place, &json!({}))]);
    }
    asks.extend([
        Ask::post(&format!("{THINGS}/t/status"), &thing),
        Ask::delete(&format!("{THINGS}/t/status")),
        Ask::post("/apis/sim.example.com/v1/things", &thing),
        Ask::delete("/apis/sim.example.com/v1/things"),
        Ask::get("/apis/sim.example.com/v1/things/t"),
        Ask::get("/api/v1/namespaces/{ns}/foo"),
        Ask::get("/api/v1/namespaces/{ns}/status/foo"),
        Ask::get("/apis/apps/v1/namespaces/{ns}/deployments/none/foo"),
        Ask::get("/apis/apps/v1/namespaces/{ns}/deployments/none/status"),
    ]);
    both.check(&asks).await;
}

/// Texts that are no JSON, or no object in it.
const TEXTS: &[&str] = &[
    "",
    " ",
    "x",
    "{",
    "}",
    "[",
    "]",
    "{}x",
    "{} {}",
    "{}}",
    "[1",
    "[1,",
    "[1,]",
    "[1 2]",
    "{\"a\"",
    "{\"a\":",
    "{\"a\":1",
    "{\"a\":1,",
    "{\"a\":1,}",
    "{\"a\" 1}",
    "{a:1}",
    "{'a':1}",
    "{\"a\":'b'}",
    "{\"a\":b}",
    "{\"a\":tru}",
    "{\"a\":nul",
    "{\"a\":01}",
    "{\"a\":1.}",
    "{\"a\":.5}",
    "{\"a\":-}",
    "{\"a\":+1}",
    "{\"a\":1e}",
    "{\"a\":NaN}",
    "{\"a\":\"b}",
    "{\"a\":\"b\nc\"}",
    "{\"a\":\"\\x\"}",
    "{\"a\":\"\\u12\"}",
    "{\"a\":1}//",
    "<a/>",
    "a: b",
    "true",
    "7",
    "\"a\"",
    "[]",
    "[{}]",
    "null",
];

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_are_no_json_are_told_as_the_server_tells_them() {
    let both = Both::new().await;
    both.install(&definition()).await;
    let [thing, map] = samples();
    let mut asks = vec![Ask::post(THINGS, &thing), Ask::post(MAPS, &map)];
    for place in [MAPS, THINGS] {
        for text in TEXTS {
            let path = format!("{place}/t");
            asks.extend([
                Ask::raw("POST", place, "application/json", text),
                Ask::raw("PUT", &path, "application/json", text),
                Ask::raw("PATCH", &path, "application/merge-patch+json", text),
                Ask::raw("PATCH", &path, "application/json-patch+json", text),
            ]);
        }
        asks.push(Ask::raw("PATCH", &format!("{place}/none"), "application/merge-patch+json", "{"));
        asks.push(Ask::raw("PATCH", &format!("{place}/none"), "application/json-patch+json", "{}"));
        asks.push(Ask::raw("PATCH", &format!("{place}/t?fieldValidation=Ignore"), "application/merge-patch+json", "{"));
        asks.push(Ask::raw("PATCH", &format!("{place}/t?fieldValidation=Ignore"), "application/json-patch+json", "{}"));
        asks.push(Ask::raw("PATCH", &format!("{place}/t"), "application/json-patch+json", "[{\"op\":1}]"));
        asks.push(Ask::raw("PATCH", &format!("{place}/t"), "application/json-patch+json", "[7]"));
    }
    both.check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_stand_twice_are_warned_of_or_refused() {
    let both = Both::new().await;
    both.install(&definition()).await;
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","labels":{"a":"b","a":"c"}},
        "data":{"x":"1","y":"2","x":"3","x":"4"},"foo":{"a":1,"a":2}}"#;
    let thing = r#"{"apiVersion":"sim.example.com/v1","kind":"Thing","metadata":{"name":"t","name":"t"},
        "spec":{"color":"red","items":[{"name":"a"},{"name":"b","name":"c"}],"no":{"a":1,"a":2},"color":"blue"}}"#;
    let mut asks = Vec::new();
    for (place, text) in [(MAPS, map), (THINGS, thing)] {
        for mode in ["?fieldValidation=Strict", "?fieldValidation=Ignore&dryRun=All", "?dryRun=All", ""] {
            asks.push(Ask::raw("POST", &format!("{place}{mode}"), "application/json", text));
        }
    }
    let nested = r#"{"metadata":{"labels":{"a":"b","a":"c"}},"metadata":{"labels":{"d":"e"}}}"#;
    let operations = r#"[{"op":"add","op":"add","path":"/metadata/labels","value":{"a":"b"},"foo":1}]"#;
    let escaped = r#"{"metadata":{"labels":{"ab":"1","\u0061b":"2"}}}"#;
    for path in [one("m"), format!("{THINGS}/t")] {
        for (kind, text) in
            [("merge-patch+json", nested), ("merge-patch+json", escaped), ("json-patch+json", operations)]
        {
            let kind = format!("application/{kind}");
            asks.push(Ask::raw("PATCH", &path, &kind, text));
            asks.push(Ask::raw("PATCH", &format!("{path}?fieldValidation=Ignore"), &kind, text));
            // The refusal quotes the object, with a time in it.
            asks.push(Ask::raw("PATCH", &format!("{path}?fieldValidation=Strict"), &kind, text).loosely());
        }
    }
    let applied = "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"n\"},\n\"data\":{\"x\":\"1\",\n\"x\":\"2\"},\"kind\":\"ConfigMap\"}";
    for mode in ["", "&fieldValidation=Ignore", "&fieldValidation=Strict"] {
        let path = format!("{}?fieldManager=m{mode}", one("n"));
        asks.push(Ask::raw("PATCH", &path, "application/apply-patch+yaml", applied));
    }
    both.check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_are_no_unicode_are_mended() {
    let both = Both::new().await;
    let map = |name: &str, text: &[u8]| {
        let begin = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"x":""#);
        Ask::bytes(MAPS, "application/json", [begin.as_bytes(), text, b"\"}}"].concat())
    };
    both.check(&[
        map("a", br"\ud800"),
        map("b", br"\udc00\ud800x"),
        map("c", br"\ud83d\ude00 \\ud800 \n"),
        map("d", b"a\xffb"),
        Ask::raw("PATCH", &one("a"), "application/merge-patch+json", r#"{"data":{"y":"\ud800"}}"#),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_from_the_future_and_bodies_too_large_are_refused_of_every_kind() {
    let both = Both::new().await;
    both.install(&definition()).await;
    let large = "a".repeat(3 << 20);
    // Side by side: a real server waits three seconds for each version from the future.
    let checks = [MAPS, THINGS, "/apis/apps/v1/namespaces/{ns}/deployments"].map(async |place| {
        let far = "resourceVersion=99999999";
        let asks = [
            Ask::get(&format!("{place}?{far}")),
            Ask::get(&format!("{place}?{far}&resourceVersionMatch=Exact")),
            Ask::get(&format!("{place}?{far}&resourceVersionMatch=NotOlderThan")),
            Ask::get(&format!("{place}?{far}&limit=1")),
            Ask::get(&format!("{place}?{far}&fieldSelector=metadata.name%3Da")),
            Ask::get(&format!("{place}?{far}&labelSelector=a")),
            Ask::get(&format!("{place}/none?{far}")),
            Ask::get(&format!("{place}?watch=1&timeoutSeconds=1&{far}")),
            Ask::delete(&format!("{place}?{far}")),
            Ask::post(place, &json!({"x": large})),
            Ask::put(&format!("{place}/none"), &json!({"x": large})),
            Ask::merge(&format!("{place}/none"), &json!({"x": large})),
            Ask::json(&format!("{place}/none"), &json!([large])),
            Ask::apply(&format!("{place}/none?fieldManager=m"), &json!({"x": large})),
            Ask::delete_with(&format!("{place}/none"), &json!({"x": large})),
            Ask::delete_with(place, &json!({"x": large})),
            Ask::raw("POST", place, "text/plain", "{}"),
            Ask::raw("POST", place, "application/xml", "<a/>"),
            Ask::raw("POST", place, "nonsense", "{}"),
            Ask::raw("POST", place, "application/merge-patch+json", "{}"),
            Ask::raw("PUT", &format!("{place}/none"), "text/plain", "{}"),
            Ask::raw("PATCH", &format!("{place}/none"), "text/plain", "{}"),
            Ask::raw("PATCH", &format!("{place}/none"), "application/json", "{}"),
            Ask::raw("PATCH", &format!("{place}/none"), "application/yaml", "{}"),
            Ask::raw("DELETE", &format!("{place}/none"), "text/plain", "{}"),
        ];
        both.check(&asks).await;
    });
    futures::future::join_all(checks).await;
}

/// Every kind of value that a rule can see.
fn seen() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "maxLength": 9},
            "other": {"type": "string", "maxLength": 9},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
            "when": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"},
            "blob": {"type": "string", "format": "byte", "maxLength": 9},
            "port": {"x-kubernetes-int-or-string": true},
            "texts": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 9}},
            "counts": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "integer"}},
            "inner": {"type": "object", "properties": {"a-b": {"type": "string", "maxLength": 9}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "items": {
                "type": "array", "maxItems": 3,
                "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_do_not_compile_are_told_as_the_compiler_tells_them() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
    let both = Both::new().await;
    let rules = [
        "self.none",
        "self.none == 1",
        "has(self.none)",
        "self.inner.none == 'a'",
        "self.inner.a-b == 'a'",
        "self.inner.a__dash__c == 'a'",
        "self.text.none == 'a'",
        "self.texts.none == 'a'",
        "self.counts.none == 1",
        "self.counts.none == 'a'",
        "self.free.none == 1",
        "self.port.none == 1",
        "self.items[0].none == 'a'",
        "self.items.all(item, item.none == 'a')",
        "self.items.exists(item, item.name == 1)",
        "self.metadata.name == 'a'",
        "other",
        "other == 1 || another == 2",
        "self.text == none",
        "none(self)",
        "self.none()",
        "self.text.none()",
        "self.text.startswith('a')",
        "self.text == 1",
        "self.text != 1.5",
        "self.count == 1.0",
        "self.count == 'a'",
        "self.count == null",
        "self.inner == null",
        "self.flag == 'true'",
        "self.text < 1",
        "self.count < 1.5",
        "self.text > self.count",
        "self.text + 1 == 'a'",
        "self.count + 1.5 > 2.0",
        "self.count - 'a' == 1",
        "self.ratio % 2.0 == 1.0",
        "-self.text == 'a'",
        "!self.text",
        "!self.count",
        "self.text && true",
        "self.flag && self.count",
        "self.count || self.text",
        "self.flag ? 1 : 2",
        "self.flag ? 1 : 'a'",
        "self.count ? true : false",
        "self.text in 'abc'",
        "1 in self.texts",
        "1 in self.counts",
        "self.texts['a'] == 'a'",
        "self.counts[1] == 1",
        "self.text[0] == 'a'",
        "self.texts == ['a', 1]",
        "{'a': 1, 'b': 'c'} == {}",
        "self.count.all(c, c > 1)",
        "self.text.exists(c, c == 'a')",
        "self.texts.all(t, t)",
        "self.texts.filter(t, t)",
        "self.texts.map(t, t.size()) == ['a']",
        "self.texts.all(t, t == other)",
        "self.text.startsWith(1)",
        "self.count.startsWith('a')",
        "self.text.matches(1)",
        "self.count.size() == 1",
        "size(self.flag) == 1",
        "self",
        "self.text",
        "self.count",
        "self.texts",
        "self.port",
        "self.text.size()",
        "'a'",
        "1",
        "null",
        "[true]",
        "{}",
        "self.when > 1",
        "self.when + 1 > self.when",
        "self.wait == 'a'",
        "self.blob == 'a'",
        "oldSelf.none == 1",
        "oldSelf.count == 'a'",
        "self.a.b.c == self.d.e.f",
        "",
        "self.",
        "self.text ==",
        "== 1",
        "self.text = 'a'",
        "self.text === 'a'",
        "self.text & true",
        "self.flag and self.flag",
        "(self.flag",
        "self.flag)",
        "self.texts[0",
        "self.texts]",
        "'a",
        "\"a",
        "'a' == 'b",
        "self.text == \"a'",
        "self.count == 1 2",
        "self..text == 'a'",
        "self.text == 'a' &&",
        "&& self.flag",
        "if self.flag",
        "self.flag ? true",
        "self.flag ? : true",
        "self.text == #",
        "self.text @ 1",
        "self.text == 'a';",
        "self.items.all(item)",
        "self.items.all(1, true)",
        "has(self)",
        "has(self.text",
        "self.for == 1",
        "for == 1",
        "self.text == 'ä' && none",
        "  none",
        "true &&\n  none",
        "true\n&& self.none\n|| other",
        "99999999999999999999 == 1",
        "1.2.3 == 1",
        "'\\q' == 'a'",
    ];
    let mut asks: Vec<Ask> = rules
        .iter()
        .map(|rule| {
            let mut schema = seen();
            schema["x-kubernetes-validations"] = json!([{"rule": rule, "message": "no"}]);
            let root = json!({"type": "object", "properties": {"spec": schema}});
            Ask::post(DEFINITIONS, &bad("bads.bad.example.com", root))
        })
        .collect();
    let with = |of: Value, rule: Value| {
        let mut of = of;
        of["x-kubernetes-validations"] = json!([rule]);
        let root = json!({"type": "object", "properties": {"spec": of}});
        Ask::post(DEFINITIONS, &bad("bads.bad.example.com", root))
    };
    for message in ["none", "self.text +", "1", "self.count", "self.text + 1", "self.none", "'a' + string(other)"] {
        asks.push(with(seen(), json!({"rule": "self.flag", "messageExpression": message})));
    }
    asks.push(with(seen(), json!({"rule": "self.none", "messageExpression": "none"})));
    asks.push(with(json!({"type": "string", "maxLength": 9}), json!({"rule": "self.a == 'b'"})));
    asks.push(with(json!({"type": "string", "maxLength": 9}), json!({"rule": "self > 1"})));
    asks.push(with(json!({"type": "integer"}), json!({"rule": "self.size() > 1"})));
    asks.push(with(json!({"type": "integer"}), json!({"rule": "oldSelf.value() == self", "optionalOldSelf": true})));
    asks.push(with(json!({"type": "integer"}), json!({"rule": "oldSelf == self", "optionalOldSelf": true})));
    let mut root = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
    for rule in ["self.metadata.labels == 1", "self.metadata.name == 1", "self.kind == 1", "self.status == 1"] {
        root["x-kubernetes-validations"] = json!([{"rule": rule}]);
        asks.push(Ask::post(DEFINITIONS, &bad("bads.bad.example.com", root.clone())));
    }
    both.check(&asks).await;
}
