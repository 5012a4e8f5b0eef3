use serde_json::{Value, json};

use super::*;
use crate::{
    api::setup::Kind,
    landscape::setup::Resources,
    plan::{self, setup::Known},
    yaml,
};

const EXAMPLE: &str = include_str!("../../../../../examples/kcp/landscape.yaml");

/// The plans of the example, with all images of one version of kcp.
fn plans(version: &str) -> Vec<Plan> {
    plans_with(version, &|_| {})
}

fn plans_with(version: &str, change: &dyn Fn(&mut Value)) -> Vec<Plan> {
    let mut resources = Resources::default();
    for node in yaml::parse(EXAMPLE, &yaml::Limits::default()).expect("YAML") {
        let mut value = node.to_json();
        let key = Key::new("kcp-system", value["metadata"]["name"].as_str().expect("a name"));
        for pointer in ["/spec/image/tag", "/spec/proxy/image/tag"] {
            if let Some(tag) = value.pointer_mut(pointer) {
                *tag = json!(version);
            }
        }
        change(&mut value);
        let kind = Kind::ALL.into_iter().find(|kind| value["kind"] == kind.as_str()).expect("a kind");
        resources.insert(kind, &key, value).expect("a resource");
    }
    let (plans, problems) = resources.plans(&Known::default());
    assert_eq!((problems, plan::setup::problems(&resources, &plans)), (Vec::new(), Vec::new()));
    plans
}

/// All objects of the example.
fn objects(version: &str) -> Vec<Object> {
    rendered(&plans(version))
}

fn rendered(plans: &[Plan]) -> Vec<Object> {
    let templates = Templates::embedded();
    let rendered = plans.iter().flat_map(|plan| setup(&templates, plan, &|name| live::placeholder(name)));
    rendered.map(|(_, object)| object.expect("the embedded templates render the example")).collect()
}

/// Compares the objects of the example with a recorded file.
#[track_caller]
fn check(version: &str, recorded: &str) {
    let text: String =
        objects(version).iter().map(|object| format!("---\n{}", yaml::to_string(object.value()))).collect();
    let line = text.lines().zip(recorded.lines()).position(|(found, recorded)| found != recorded);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/render/setup/golden");
        std::fs::write(format!("{folder}/{}.yaml", version.trim_end_matches(".3")), &text).expect("the folder exists");
        return;
    }
    assert!(text == recorded, "{version} differs from line {:?} on", line.map(|line| line + 1));
}

#[test]
fn kcp_0_30_renders_as_recorded() {
    check("v0.30.3", include_str!("golden/v0.30.yaml"));
}

#[test]
fn kcp_0_31_renders_as_recorded() {
    check("v0.31.3", include_str!("golden/v0.31.yaml"));
}

#[test]
fn kcp_0_32_renders_as_recorded() {
    check("v0.32.3", include_str!("golden/v0.32.yaml"));
}

#[test]
fn kcp_0_33_renders_as_recorded() {
    check("v0.33.3", include_str!("golden/v0.33.yaml"));
}

#[test]
fn kcp_0_34_renders_as_recorded() {
    check("v0.34.3", include_str!("golden/v0.34.yaml"));
}

#[test]
fn everything_bears_the_mark_of_its_resource_and_no_owner() {
    let objects = objects("v0.34.0");
    assert!(objects.len() > 60, "only {} objects", objects.len());
    for object in &objects {
        assert!(object.label(label::SETUP).is_some(), "{}", object.id());
        assert_eq!(object.value()["metadata"].get("ownerReferences"), None, "{}", object.id());
        if object.gvk().kind.as_ref() == "Certificate" {
            let labels = &object.value()["spec"]["secretTemplate"]["labels"];
            assert_eq!(labels[label::SETUP].as_str(), object.label(label::SETUP), "{}", object.id());
        }
    }
}

#[test]
fn no_two_objects_have_one_name() {
    let mut ids: Vec<_> = objects("v0.34.0").iter().map(Object::id).collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn what_only_a_cluster_knows_is_a_placeholder_by_name() {
    let objects = objects("v0.32.3");
    let unknown: std::collections::BTreeSet<String> =
        objects.iter().flat_map(|object| live::placeholders(object.value())).map(|(_, name)| name).collect();
    assert!(unknown.contains("data of Secret kcp-system/admin-kubeconfig"), "{unknown:?}");
    assert!(unknown.contains("data of Secret kcp-system/public-merged-client-ca"), "{unknown:?}");
    assert!(unknown.contains("mounts of Deployment kcp-system/main-kcp"), "{unknown:?}");
    assert!(!unknown.iter().any(|name| name.contains("logical-cluster-admin")), "{unknown:?}");
}

#[test]
fn a_gate_is_printed_with_what_it_waits_for() {
    let plans = plans("v0.32.3");
    let cache = plans.first().expect("the cache comes first");
    let deployment = objects("v0.32.3")
        .into_iter()
        .find(|object| object.name() == "cache-cache-server" && &*object.gvk().kind == "Deployment");
    let gates = setup_gates(cache, &deployment.expect("a Deployment"));
    let first: Vec<&Value> = gates.iter().take(2).collect();
    assert_eq!(
        first,
        [
            &json!({"kind": "Certificate", "name": "cache-ca", "condition": "Ready"}),
            &json!({"kind": "Certificate", "name": "cache-server", "condition": "Ready"}),
        ]
    );
}

#[test]
fn a_container_never_runs_with_more_rights_than_upstream() {
    for object in objects("v0.32.3").iter().filter(|object| object.gvk().kind.as_ref() == "Deployment") {
        let pod = &object.value()["spec"]["template"]["spec"];
        let context = &pod["containers"][0]["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false, "{}", object.id());
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{}", object.id());
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{}", object.id());
    }
}

#[test]
fn row_62_hardened_pods_do_not_run_as_root_and_have_no_token() {
    let is_hardened = |object: &Object| {
        let pod = &object.value()["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{}", object.id());
        (pod["securityContext"]["runAsNonRoot"] == true, pod["automountServiceAccountToken"] == false)
    };
    let plans = plans_with("v0.32.3", &|value| {
        if value["kind"] == "Shard" {
            value["metadata"]["annotations"] = json!({annotation::HARDENING: "enabled"});
        }
    });
    let objects = rendered(&plans);
    let deployments: Vec<_> = objects.iter().filter(|object| object.gvk().kind.as_ref() == "Deployment").collect();
    assert!(deployments.len() > 1);
    for deployment in deployments {
        let expected = deployment.name() == "eu-shard-kcp";
        assert_eq!(is_hardened(deployment), (expected, expected), "{}", deployment.id());
    }
}

#[test]
fn d09_ports_of_services_have_no_node_port() {
    let objects = objects("v0.32.3");
    let services: Vec<_> = objects.iter().filter(|object| object.gvk().kind.as_ref() == "Service").collect();
    assert!(services.iter().any(|service| service.value()["spec"]["type"] == "LoadBalancer"));
    for service in services {
        let ports = service.value()["spec"]["ports"].as_array().expect("ports");
        assert!(!ports.is_empty() && ports.iter().all(|port| port.get("nodePort").is_none()), "{}", service.id());
    }
}

#[test]
fn d29_the_root_ca_is_where_the_documentation_says() {
    let documented = include_str!("../../../../../docs/kcp.md")
        .split_once("that needs the root CA is `")
        .and_then(|(_, rest)| rest.split_once('`'))
        .map(|(path, _)| path)
        .expect("the path in the documentation");
    let (folder, file) = documented.rsplit_once('/').expect("a folder");
    let objects = objects("v0.32.3");
    let proxy = objects
        .iter()
        .find(|object| object.name() == "public-front-proxy" && object.gvk().kind.as_ref() == "Deployment");
    let pod = &proxy.expect("a FrontProxy").value()["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["mountPath"] == folder).expect("a mount at this path");
    let volume = pod["volumes"].as_array().and_then(|all| all.iter().find(|volume| volume["name"] == mount["name"]));
    let secret = &volume.expect("its volume")["secret"];
    assert_eq!((&secret["secretName"], &secret["items"][0]["path"]), (&json!("main-ca"), &json!(file)));
}

#[test]
fn row_4_no_compiled_resource_is_made() {
    let kinds: std::collections::BTreeSet<String> =
        objects("v0.32.3").iter().map(|object| object.gvk().kind.to_string()).collect();
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["Certificate", "ConfigMap", "Deployment", "Issuer", "Secret", "Service"]
    );
}
