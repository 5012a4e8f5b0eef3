use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::*;
use crate::{
    object::DisplayPath,
    schema::{Schema, ViolationKind},
};

fn schema(kind: &str) -> Schema {
    let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind).expect("one of the six kinds");
    let crd = kind.crd();
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    Schema::compile(schema).unwrap()
}

/// Checks a specification. `expected` are the paths of violations with their messages.
#[track_caller]
fn check(kind: &str, spec: Value, expected: &[&str]) {
    let object =
        json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let found: Vec<String> = schema(kind)
        .check(&object)
        .into_iter()
        .map(|violation| format!("{}: {}", DisplayPath(&violation.path), violation.message))
        .collect();
    assert_eq!(found, expected);
}

fn root_shard() -> Value {
    json!({
        "external": {"hostname": "kcp.example.com", "port": 443}, "cache": {}, "certificates": {},
        "etcd": {"endpoints": ["https://etcd:2379"]},
    })
}

/// A specification with one more field.
fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

#[test]
fn what_upstream_requires_is_required() {
    check("RootShard", root_shard(), &[]);
    check(
        "RootShard",
        json!({}),
        &[
            "spec.cache: the required field `cache` is missing",
            "spec.certificates: the required field `certificates` is missing",
            "spec.etcd: the required field `etcd` is missing",
            "spec.external: the required field `external` is missing",
        ],
    );
    check("FrontProxy", json!({"rootShard": {}}), &[]);
}

#[test]
fn an_unknown_field_is_an_error_with_its_path() {
    let template = json!({"spec": {"template": {"spec": {"runtimeClassName": "a"}}}});
    let object = json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": "RootShard", "metadata": {"name": "a"},
        "spec": with(root_shard(), "deploymentTemplate", template)});
    let found = schema("RootShard").check(&object);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(matches!(found[0].kind, ViolationKind::UnknownField { .. }));
    assert_eq!(DisplayPath(&found[0].path).to_string(), "spec.deploymentTemplate.spec.template.spec.runtimeClassName");
}

#[test]
fn d22_two_host_names_of_a_front_proxy_are_refused_only_if_both_are_set() {
    let proxy = |more: Value| {
        let mut spec = json!({"rootShard": {"ref": {"name": "main"}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    check("FrontProxy", proxy(json!({"externalHostname": "a.example.com"})), &[]);
    check("FrontProxy", proxy(json!({"externalHostname": "a", "external": {"hostname": "", "port": 1}})), &[]);
    check("FrontProxy", proxy(json!({"externalHostname": "", "external": {"hostname": "a", "port": 1}})), &[]);
    check(
        "FrontProxy",
        proxy(json!({"externalHostname": "a", "external": {"hostname": "b", "port": 1}})),
        &["spec: Cannot set both ExternalHostname (deprecated) and External.hostname. Use External.hostname only."],
    );
}

#[test]
fn rules_of_upstream_hold_offline() {
    check(
        "FrontProxy",
        json!({"rootShard": {}, "auth": {"oidc": {"issuerURL": "a", "clientID": "b"}}}),
        &["spec.auth: OIDC requires ServiceAccount auth to be enabled."],
    );
    check(
        "CacheServer",
        json!({"certificates": {}, "replicas": 2}),
        &["spec: etcd must be specified when replicas > 1"],
    );
    check(
        "VirtualWorkspace",
        json!({"external": {"hostname": "a", "port": 1}, "target": {}}),
        &["spec.target: Must specify exactly one of rootShardRef or shardRef"],
    );
    let kubeconfig = json!({
        "target": {}, "username": "a", "validity": "1h", "secretRef": {"name": "a"}, "targetWorkspace": "root",
        "authorization": {"clusterRoleBindings": {"cluster": "root", "clusterRoles": []}},
    });
    check(
        "Kubeconfig",
        kubeconfig,
        &["spec: Cannot set both targetWorkspace and authorization.clusterRoleBindings.cluster. Use targetWorkspace \
           only."],
    );
}

#[test]
fn a_volume_is_mounted_once_and_quantities_are_checked() {
    let twice = json!([{"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/b"}]);
    let object = |spec| json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": "RootShard", "metadata": {"name": "a"}, "spec": spec});
    let kinds = |spec| -> Vec<ViolationKind> {
        schema("RootShard").check(&object(spec)).into_iter().map(|violation| violation.kind).collect()
    };
    assert_eq!(kinds(with(root_shard(), "extraVolumeMounts", twice)), [ViolationKind::Duplicate]);
    assert_eq!(kinds(with(root_shard(), "resources", json!({"limits": {"cpu": 2, "memory": "2Gi"}}))), []);
    let twice = json!([{"name": "a"}, {"name": "a"}]);
    assert_eq!(kinds(with(root_shard(), "resources", json!({"claims": twice}))), [ViolationKind::Duplicate]);
    let limited = json!([{"name": "a", "emptyDir": {"sizeLimit": "much"}}]);
    assert_eq!(kinds(with(root_shard(), "extraVolumes", limited)), [ViolationKind::Pattern]);
    let unnamed = json!([{"name": "a", "configMap": {}}]);
    assert_eq!(kinds(with(root_shard(), "extraVolumes", unnamed)), []);
    let lots = json!({"limits": {"memory": "lots"}});
    assert_eq!(kinds(with(root_shard(), "resources", lots)), [ViolationKind::Pattern]);
    assert_eq!(kinds(with(root_shard(), "logging", json!({"level": 11}))), [ViolationKind::Range]);
}

/// A round trip loses no field and adds none.
#[track_caller]
fn check_survives<T: Serialize + DeserializeOwned>(kind: &str, spec: Value) {
    let value =
        json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let typed: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), value);
}

#[test]
fn every_field_survives_the_types() {
    let template = json!({"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}, "spec": {
        "subject": {"organizations": ["a"], "countries": ["a"], "organizationalUnits": ["a"], "localities": ["a"],
            "provinces": ["a"], "streetAddresses": ["a"], "postalCodes": ["a"], "serialNumber": "1"},
        "issuerRef": {"name": "a", "kind": "Issuer", "group": "b"}, "dnsNames": ["a"], "ipAddresses": ["::1"],
        "secretTemplate": {"labels": {"a": "b"}}, "duration": "1h", "renewBefore": "1m",
        "privateKey": {"rotationPolicy": "Never", "encoding": "PKCS8", "algorithm": "RSA", "size": 4096}}});
    let shard = json!({
        "clusterDomain": "a.b", "shardBaseURL": "https://a", "replicas": 3, "resources": {"limits": {"cpu": "1"}},
        "etcd": {"endpoints": ["a"], "prefix": "/a", "tlsConfig": {"secretRef": {"name": "a"}}},
        "image": {"repository": "a", "tag": "b", "imagePullSecrets": [{"name": "c"}]},
        "audit": {"policy": {"configMap": {"name": "a", "key": "b"}}, "webhook": {"batchBufferSize": 1,
            "batchMaxSize": 2, "batchMaxWait": "1s", "batchThrottleBurst": 3, "batchThrottleEnable": true,
            "batchThrottleQPS": "1.5", "configSecretName": "a", "initialBackoff": "1s", "mode": "batch",
            "truncateEnabled": true, "truncateMaxBatchSize": 4, "truncateMaxEventSize": 5, "version": "v1"}},
        "authorization": {"allowPaths": [], "order": ["RBAC"], "webhook": {"allowPaths": ["/a"],
            "cacheAuthorizedTTL": "1s", "cacheUnauthorizedTTL": "1s", "configSecretName": "a", "version": "v1"}},
        "auth": {"oidc": {"issuerURL": "a", "clientID": "b", "clientSecret": "c", "groupsClaim": "d",
            "usernameClaim": "e", "groupsPrefix": "f", "usernamePrefix": "g", "caFileRef": {"name": "h", "key": "i"}},
            "webhook": {"configSecretName": "a", "cacheAuthenticationTTL": "1s", "version": "v1"},
            "tokenAuthFile": {"secretName": "a", "key": "b"}, "serviceAccount": {"enabled": true},
            "dropGroups": ["a"], "passOnGroups": ["b"]},
        "kcpVirtualWorkspace": {"name": "a"}, "certificateTemplates": {"server": template},
        "serviceTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"type": "NodePort", "clusterIP": "None"}},
        "deploymentTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"spec": {
            "nodeSelector": {"a": "b"}, "hostAliases": [{"ip": "::1", "hostnames": ["a"]}],
            "tolerations": [{"key": "a"}], "imagePullSecrets": [{"name": "a"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}],
            "affinity": {"nodeAffinity": {}}}}}},
        "caBundleSecretRef": {"name": "a"}, "clientCABundleRef": {"name": "b"}, "extraArgs": ["-a"],
        "extraVolumes": [{"name": "a", "emptyDir": {}}], "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
        "logging": {"level": 4},
    });
    let shard =
        with(with(shard, "rootShard", json!({"ref": {"name": "main"}})), "cache", json!({"ref": {"name": "c"}}));
    check("Shard", shard.clone(), &[]);
    check_survives::<Shard>("Shard", shard);
    let init = json!([{"name": "a", "image": {"tag": "b"}, "command": ["c"], "args": ["d"], "resources": {},
        "kubeconfigSecretRef": {"name": "e"}, "volumes": [{"name": "f"}], "volumeMounts": [{"name": "f", "mountPath": "/f"}]}]);
    let server = json!({"target": {"shardRef": {"name": "a"}}, "external": {"hostname": "a", "port": 1,
        "privateHostname": "b", "privatePort": 2}, "command": ["/a"], "initContainers": init,
        "kubeconfigSecretRef": {"name": "a"}, "caBundleSecretRef": {"name": "b"}});
    check("VirtualWorkspace", server.clone(), &[]);
    check_survives::<VirtualWorkspace>("VirtualWorkspace", server);
}
