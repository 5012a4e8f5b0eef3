use serde_json::json;

use super::*;

fn live(fields: &Value) -> Value {
    json!({"metadata": {"name": "a", "managedFields": [
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:theirs": {}}}},
        {"manager": "us", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
        {"manager": "us", "operation": "Apply", "fieldsV1": fields},
    ]}})
}

#[track_caller]
fn check(desired: Value, fields: Value, expected: bool) {
    assert_eq!(drops(&desired, &live(&fields), "us"), expected);
    assert!(!drops(&desired, &live(&fields), "them"), "fields of others are not ours to remove");
}

#[test]
fn what_we_applied_and_no_longer_say_goes() {
    check(json!({"data": {"a": "1"}}), json!({"f:data": {"f:a": {}}}), false);
    check(json!({"data": {"b": "1"}}), json!({"f:data": {"f:a": {}}}), true);
    check(json!({}), json!({"f:data": {".": {}, "f:a": {}}}), true);
    check(json!({"data": {}}), json!({"f:data": {".": {}}}), false);
    check(json!({"metadata": {"finalizers": ["x"]}}), json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}}}}), false);
    check(json!({"metadata": {"finalizers": ["y"]}}), json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}}}}), true);
    check(json!({"list": [1]}), json!({"f:list": {"i:1": {}}}), true);
}

#[test]
fn items_are_found_by_their_keys_whatever_the_server_filled_in() {
    let ports = json!({"f:ports": {r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:containerPort": {}}}});
    check(json!({"ports": [{"containerPort": 80}]}), ports.clone(), false);
    check(json!({"ports": [{"containerPort": 80, "protocol": "TCP"}]}), ports.clone(), false);
    check(json!({"ports": [{"containerPort": 80, "protocol": "UDP"}]}), ports.clone(), true);
    check(json!({"ports": [{"containerPort": 81}]}), ports, true);
    let env = json!({"f:env": {r#"k:{"name":"A"}"#: {".": {}, "f:name": {}, "f:value": {}}}});
    check(json!({"env": [{"name": "B"}, {"name": "A", "value": "x"}]}), env.clone(), false);
    check(json!({"env": [{"name": "A"}]}), env, true);
}

#[test]
fn what_we_no_longer_set_of_a_service_and_the_server_keeps() {
    let gvk = Gvk::from_api_version("v1", "Service");
    let port = json!({".": {}, "f:name": {}, "f:nodePort": {}, "f:port": {}});
    let fields = json!({"f:spec": {
        "f:clusterIP": {}, "f:type": {}, "f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: port},
    }});
    let spec = json!({
        "type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
        "ports": [{"name": "web", "port": 80, "protocol": "TCP", "nodePort": 30000}, {"name": "b", "port": 81, "nodePort": 30001}],
    });
    let live = |fields: &Value| {
        let mut live = live(fields);
        live["spec"] = spec.clone();
        live
    };
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "spec": spec});
    let ports = |port: Value| json!([port, {"name": "b", "port": 81}]);
    let all = json!({"name": "web", "port": 80, "nodePort": 30000});
    let fewer = json!({"name": "web", "port": 80});
    for (desired, expected) in [
        (json!({"type": "NodePort", "clusterIP": "10.0.0.1", "ports": ports(all.clone())}), &[][..]),
        (json!({"type": "NodePort", "ports": ports(all)}), &["spec.clusterIP"]),
        (json!({"type": "NodePort", "ports": ports(fewer.clone())}), &["spec.clusterIP", "spec.ports[].nodePort"]),
        (json!({"type": "ExternalName", "externalName": "a"}), &[]),
    ] {
        assert_eq!(kept(&gvk, &service(desired.clone()), &live(&fields), "us"), expected, "{desired}");
        assert!(kept(&gvk, &service(desired), &live(&fields), "them").is_empty(), "they have applied nothing");
    }
    // What the API server has assigned was never set.
    let few = json!({"f:spec": {"f:type": {}, "f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:name": {}, "f:port": {}}}}});
    let desired = service(json!({"ports": ports(fewer)}));
    assert!(kept(&gvk, &desired, &live(&few), "us").is_empty());
}

#[test]
fn what_only_the_server_writes_is_left_out() {
    let object = json!({"kind": "A", "status": {"ready": true}, "spec": {"status": "kept"},
        "metadata": {"name": "a", "uid": "1", "generation": 2, "resourceVersion": "3", "labels": {"uid": "kept"},
            "creationTimestamp": "now", "selfLink": "/a", "managedFields": []}});
    let expected =
        json!({"kind": "A", "spec": {"status": "kept"}, "metadata": {"name": "a", "labels": {"uid": "kept"}}});
    assert_eq!(stripped(&object), expected);
}

#[test]
fn a_secret_is_what_the_server_would_make_of_it() {
    let mut live = live(&json!({"f:data": {"f:ours": {}, "f:old": {}}, "f:metadata": {"f:labels": {"f:gone": {}}}}));
    live["data"] = json!({"ours": "MQ==", "old": "Mg==", "theirs": "Mw=="});
    live["metadata"]["labels"] = json!({"gone": "x"});
    let (before, after) =
        secret_after(&json!({"stringData": {"ours": "1"}, "metadata": {"name": "a"}}), &live, &["us"]);
    assert_eq!(before["data"], json!({"ours": "MQ==", "old": "Mg==", "theirs": "Mw=="}));
    assert_eq!(after["data"], json!({"ours": "MQ==", "theirs": "Mw=="}));
    assert_eq!((&before["metadata"]["labels"]["gone"], after["metadata"].get("labels")), (&json!("x"), None));
    let same =
        json!({"type": "Opaque", "data": {"ours": "MQ\n==", "old": "Mg=="}, "metadata": {"labels": {"gone": "x"}}});
    live["type"] = "Opaque".into();
    let (before, after) = secret_after(&same, &live, &["us"]);
    assert_eq!(before, after, "equal in whatever form");
}

#[test]
fn a_text_that_a_secret_no_longer_has_goes_unless_another_manager_has_it() {
    let mut live = live(&json!({"f:stringData": {"f:ours": {}, "f:old": {}, "f:shared": {}}}));
    live["apiVersion"] = "v1".into();
    live["kind"] = "Secret".into();
    let other = json!({"manager": "them", "operation": "Update", "fieldsV1": {"f:data": {"f:shared": {}}}});
    live["metadata"]["managedFields"].as_array_mut().unwrap().push(other);
    live["data"] = json!({"ours": "MQ==", "old": "Mg==", "shared": "Mw=="});
    let desired = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"ours": "MQ=="}, "type": "Opaque"
    });
    let expected = json!({"ours": "MQ==", "shared": "Mw=="});
    assert_eq!(secret_after(&desired, &live, &["us"]).1["data"], expected);
    assert_eq!(applied_by(&live, &desired, &["us"])["data"], expected);
}

/// An object whose fields Lifecycle Manager applied, with its managers.
fn applied_by_klm(entries: Value) -> Value {
    json!({
        "metadata": {"name": "a", "labels": {"old": "1", "kept": "1"}, "managedFields": entries},
        "data": {"a": "1", "left": "1", "shared": "1"},
        "spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "web"}, {"port": 81, "protocol": "TCP"}]},
    })
}

#[test]
fn what_a_manager_applied_that_is_taken_over_leaves_with_it() {
    let fields = json!({
        "f:metadata": {"f:labels": {"f:old": {}, "f:kept": {}}},
        "f:data": {"f:a": {}, "f:left": {}, "f:shared": {}},
        "f:spec": {"f:ports": {
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}},
            "k:{\"port\":81,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
        }},
    });
    let entries = json!([
        {"manager": "applier", "operation": "Apply", "fieldsV1": fields},
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:shared": {}}}},
    ]);
    let live = applied_by_klm(entries);
    let desired = json!({
        "metadata": {"name": "a", "labels": {"kept": "1"}}, "data": {"a": "2"}, "spec": {"ports": [{"port": 80}]},
    });
    let expected = json!({
        "metadata": {"name": "a", "labels": {"kept": "1"}},
        "data": {"a": "2", "shared": "1"},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]},
    });
    assert_eq!(applied_by(&live, &desired, &["us", "applier"]), expected);
    // What is not taken over stays.
    let mut more = stripped(&live);
    more["data"]["a"] = json!("2");
    assert_eq!(applied_by(&live, &desired, &["us"]), more);
    // So does what kubectl noted, and what the API server sets again by default.
    let noted = "kubectl.kubernetes.io/last-applied-configuration";
    let live = json!({
        "metadata": {"annotations": {noted: "{}"}, "managedFields": [{
            "manager": "applier", "operation": "Apply", "fieldsV1": {
                "f:metadata": {"f:annotations": {(format!("f:{noted}")): {}}},
                "f:spec": {"f:beta": {}, "f:channel": {}, "f:internal": {}},
            },
        }]},
        "spec": {"beta": false, "channel": "", "internal": true},
    });
    let expected = json!({"metadata": {"annotations": {noted: "{}"}}, "spec": {"beta": false, "channel": ""}});
    assert_eq!(applied_by(&live, &json!({"metadata": {}, "spec": {}}), &["applier"]), expected);
}

#[test]
fn what_the_api_server_keeps_of_a_service_stays() {
    let service = |kind: &str, spec: Value, fields: Value| {
        json!({
            "apiVersion": "v1", "kind": kind, "spec": spec,
            "metadata": {"name": "a", "managedFields": [
                {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": fields}},
            ]},
        })
    };
    let ports = |more: Value| {
        let mut port = json!({"name": "web", "port": 80, "protocol": "TCP"});
        port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"clusterIP": "10.0.0.1", "type": "NodePort", "ports": [port]})
    };
    let claims = json!({
        "f:clusterIP": {}, "f:type": {},
        "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:nodePort": {}}},
    });
    let live = service("Service", ports(json!({"nodePort": 30000})), claims.clone());
    let declared =
        |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
    let port = json!({"name": "web", "port": 80});
    // Neither the address nor the port is in git any more: the apply changes nothing.
    let desired = declared(json!({"type": "NodePort", "ports": [port]}));
    assert_eq!(applied_by(&live, &desired, &["us"]), stripped(&live));
    // A Service of another type has no such port. Its address stays.
    let after = applied_by(&live, &declared(json!({"type": "ClusterIP", "ports": [port]})), &["us"]);
    assert_eq!(after["spec"]["ports"], json!([{"name": "web", "port": 80, "protocol": "TCP"}]));
    assert_eq!(after["spec"]["clusterIP"], "10.0.0.1");
    // A field of the same name in another kind goes.
    let live = service("Other", ports(json!({"nodePort": 30000})), claims);
    let after = applied_by(&live, &desired, &["us"]);
    assert_eq!(after["spec"]["ports"][0]["nodePort"], Value::Null);
    assert_eq!(after["spec"]["clusterIP"], Value::Null);
}
