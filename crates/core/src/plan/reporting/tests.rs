use serde_json::{Value, json};

use super::*;

fn settings() -> ListenerSettings {
    ListenerSettings { gateway: Key::new("kcp-system", "klm-watcher"), port_overwrite: None, address: None }
}

fn gateway(servers: &Value) -> Gateway {
    Gateway::new(Key::new("kcp-system", "klm-watcher"), &json!({ "servers": servers }))
}

#[track_caller]
fn check(settings: &ListenerSettings, gateways: &[Gateway], expected: &str) {
    let said = match settings.resolve(gateways) {
        Ok(address) => address.to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(said, expected);
}

/// KLM 6.3, KCP address.
#[test]
fn the_address_is_that_of_the_one_host_of_the_gateway() {
    let one = gateway(&json!([{"hosts": ["listener.example.com"], "port": {"number": 443}}]));
    let other = Gateway::new(Key::new("kcp-system", "other"), &Value::Null);
    check(&settings(), &[other, one.clone()], "listener.example.com:443");
    let overwritten = ListenerSettings { port_overwrite: Some(9443), ..settings() };
    check(&overwritten, &[one], "listener.example.com:9443");
    let direct = ListenerSettings { address: Some("10.0.0.7:8443".parse().unwrap()), ..settings() };
    check(&direct, &[], "10.0.0.7:8443");
}

/// KLM 6.3, KCP address.
#[test]
fn an_address_that_is_not_clear_is_none() {
    let server = "the server of Gateway kcp-system/klm-watcher";
    check(&settings(), &[], "Gateway kcp-system/klm-watcher does not exist: create it, or set --listener-address");
    let none = "Gateway kcp-system/klm-watcher has 0 servers; it must have exactly one";
    check(&settings(), &[gateway(&json!([]))], none);
    check(&settings(), &[gateway(&json!("many"))], none);
    let port = json!({"number": 443});
    for (hosts, found) in [(json!([]), 0), (json!([" "]), 0), (json!(["a.example.com", "b.example.com"]), 2)] {
        let expected = format!("{server} has {found} hosts; it must have exactly one");
        check(&settings(), &[gateway(&json!([{"hosts": hosts, "port": port}]))], &expected);
    }
    let wild = gateway(&json!([{"hosts": ["*.example.com"], "port": port}]));
    check(&settings(), &[wild], "host `*.example.com` of Gateway kcp-system/klm-watcher is not a single host name");
    for port in [Value::Null, json!({"number": 0}), json!({"number": 65536}), json!({"number": "443"})] {
        let gateway = gateway(&json!([{"hosts": ["a.example.com"], "port": port}]));
        check(&settings(), &[gateway], &format!("{server} has no port from 1 to 65535"));
    }
}

#[test]
fn an_address_is_a_host_and_a_port() {
    for good in ["a.example.com:443", "10.0.0.1:1", "[::1]:8443", "localhost:65535"] {
        assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
    }
    for bad in ["", "a", "a:", ":1", "a:0", "a:65536", "a b:1", "https://a:1", "a/b:1", "::1:8443", "[x]:1", "-a:1"] {
        assert!(bad.parse::<Address>().is_err(), "{bad}");
    }
}

#[test]
fn kinds_of_drift_are_sorted_and_a_group_of_custom_resources_is_named_whole() {
    let mut drift = Drift::default();
    drift.insert("example.org", None);
    drift.insert("apps", Some("statefulsets"));
    drift.insert("", Some("services"));
    drift.insert("apps", Some("deployments"));
    drift.insert("", Some("configmaps"));
    drift.insert("example.org", Some("things"));
    drift.insert("admissionregistration.k8s.io", Some("validatingwebhookconfigurations"));
    let rules: Vec<(&str, Vec<&str>)> = drift.rules().collect();
    assert_eq!(
        rules,
        [
            ("", vec!["configmaps", "services"]),
            ("apps", vec!["deployments", "statefulsets"]),
            ("example.org", vec!["*"]),
        ]
    );
    assert_eq!(drift.scaled(), ["deployments/status", "statefulsets/status"]);
    assert_eq!(Drift::default().scaled(), Vec::<String>::new());
}

/// A Watcher: name, manager, service, second of its creation.
fn watcher(name: &str, manager: &str, service: &str, created: i64) -> Watcher {
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {
            "namespace": "kcp-system", "name": name, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z"),
        },
        "spec": {
            "manager": manager,
            "serviceInfo": {"name": service, "namespace": "kcp-system", "port": 8082},
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "field": "spec",
            "gateway": {"selector": {}},
        },
    }))
    .unwrap()
}

#[test]
fn of_two_watchers_that_want_one_path_the_older_has_it() {
    let old = watcher("z", "manager", "events", 1);
    let new = watcher("a", "manager", "others", 2);
    let all = [old.clone(), new.clone()];
    assert_eq!(rival(&old, &all), None);
    assert_eq!(rival(&new, &all), Some(Key::new("kcp-system", "z")));
    // Of two that are equally old, the first by name.
    let twin = watcher("b", "manager", "events", 2);
    assert_eq!(rival(&twin, &[new.clone(), twin.clone()]), Some(Key::new("kcp-system", "a")));
    // A Watcher with the same service as the owner of the path has no conflict, even if an older one has no path.
    let late = watcher("c", "manager", "events", 3);
    assert_eq!(rival(&late, &[old.clone(), new.clone(), late.clone()]), None);
    // A Watcher with the same service, with a path of its own, or being deleted has no conflict.
    let friend = watcher("a", "manager", "events", 2);
    assert_eq!(rival(&friend, &[old.clone(), friend.clone()]), None);
    let other = watcher("a", "inspector", "others", 2);
    assert_eq!(rival(&other, &[old.clone(), other.clone()]), None);
    let mut going = old;
    going.metadata.deletion_timestamp = new.metadata.creation_timestamp.clone();
    assert_eq!(rival(&new, &[going, new.clone()]), None);
}

#[test]
fn watchers_of_one_manager_are_told_of_each_other_whatever_their_services_are() {
    let (one, two) = (watcher("z", "manager", "events", 1), watcher("a", "manager", "events", 2));
    let (three, other) = (watcher("b", "manager", "others", 3), watcher("c", "inspector", "events", 3));
    let all = [one.clone(), two.clone(), three.clone(), other.clone()];
    let keys = |names: &[&str]| names.iter().map(|name| Key::new("kcp-system", name)).collect::<Vec<_>>();
    assert_eq!(companions(&one, &all), keys(&["a", "b"]));
    assert_eq!(companions(&three, &all), keys(&["a", "z"]));
    assert_eq!(companions(&other, &all), keys(&[]));
    let mut going = two;
    going.metadata.deletion_timestamp = one.metadata.creation_timestamp.clone();
    assert_eq!(companions(&one, &[one.clone(), going]), keys(&[]));
    assert_eq!(companions(&watcher("d", "", "events", 1), &all), keys(&[]), "without a manager");
}
