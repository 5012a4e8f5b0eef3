use serde_json::{Value, json};

use super::{Api, Version, is_quantity};
use crate::{budget::Budget, object::DisplayPath};

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

/// The violations of an object in Kubernetes 1.36, one line each: the path, the message, and the hint.
#[track_caller]
fn check(object: Value, expected: &[&str]) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let Api::Served(served) = version("1.36").api(text("apiVersion"), text("kind")) else { panic!("not served") };
    let (found, more) = served.check(&object, 10, &Budget::default());
    let found: Vec<String> = found
        .iter()
        .map(|violation| {
            let hint = violation.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{}: {}{hint}", DisplayPath(&violation.path), violation.message)
        })
        .collect();
    assert_eq!((found, more), (expected.iter().map(|line| (*line).to_owned()).collect(), 0));
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec})
}

fn container(container: Value) -> Value {
    deployment(json!({"template": {"spec": {"containers": [container]}}}))
}

/// What is said of a kind: where, the message, and the hint.
#[track_caller]
fn says(of: &str, api_version: &str, kind: &str, expected: &str) {
    let found = match version(of).api(api_version, kind) {
        Api::Served(served) => format!("served, namespaced: {}", served.is_namespaced),
        Api::Foreign { did_you_mean } => format!("foreign {}", did_you_mean.unwrap_or_default()),
        Api::Absent { message, hint, field } => format!("{field}: {message} ({hint})"),
    };
    assert_eq!(found.trim(), expected);
}

#[test]
fn kinds_are_known_by_version() {
    says("1.36", "apps/v1", "Deployment", "served, namespaced: true");
    says("1.36", "rbac.authorization.k8s.io/v1", "ClusterRole", "served, namespaced: false");
    says(
        "1.36",
        "apps/v1",
        "Deploymnt",
        "kind: Kubernetes 1.36 does not serve Deploymnt of `apps/v1` (did you mean `Deployment`?)",
    );
    says(
        "1.36",
        "v1",
        "Deploiment",
        "kind: Kubernetes 1.36 does not serve Deploiment of `v1` (did you mean `Deployment` of `apps/v1`?)",
    );
    says("1.36", "v1", "Deployment", "apiVersion: Kubernetes 1.36 does not serve Deployment of `v1` (use `apps/v1`)");
    says(
        "1.36",
        "app/v1",
        "Deployment",
        "apiVersion: Kubernetes 1.36 does not serve Deployment of `app/v1` (use `apps/v1`)",
    );
    says(
        "1.36",
        "apps/v1beta1",
        "Deployment",
        "apiVersion: Kubernetes 1.16 removed Deployment of `apps/v1beta1` (use `apps/v1`)",
    );
    says(
        "1.36",
        "extensions/v1beta1",
        "Ingress",
        "apiVersion: Kubernetes 1.22 removed Ingress of `extensions/v1beta1` (use `networking.k8s.io/v1`)",
    );
    says(
        "1.36",
        "policy/v1beta1",
        "PodSecurityPolicy",
        "apiVersion: Kubernetes 1.25 removed PodSecurityPolicy of `policy/v1beta1` (Kubernetes has no replacement; \
         remove it)",
    );
    says(
        "1.36",
        "v1",
        "Zebra",
        "kind: Kubernetes 1.36 does not serve Zebra of `v1` (`kubectl api-resources` lists the kinds of a cluster)",
    );
    // A stable version goes before others.
    says(
        "1.36",
        "networking.k8s.io/v1alpha1",
        "ServiceCIDR",
        "apiVersion: Kubernetes 1.36 does not serve ServiceCIDR of `networking.k8s.io/v1alpha1` (use \
         `networking.k8s.io/v1`)",
    );
    // Versions differ.
    says("1.37", "scheduling.k8s.io/v1beta1", "Workload", "served, namespaced: true");
    says(
        "1.34",
        "scheduling.k8s.io/v1beta1",
        "Workload",
        "apiVersion: Kubernetes 1.34 does not serve Workload of `scheduling.k8s.io/v1beta1` (Kubernetes 1.37 serves \
         it: name the version of the runtimes)",
    );
    // Only a CustomResourceDefinition can tell.
    says("1.36", "example.org/v1", "Deployment", "foreign");
    says("1.36", "rbac.authorisation.k8s.io/v1", "Role", "foreign rbac.authorization.k8s.io/v1");
    says("1.36", "gateway.networking.k8s.io/v1", "Gateway", "foreign");
}

#[test]
fn every_removed_version_names_one_that_is_served() {
    for removed in &super::removed::ALL {
        for (version, kind) in Version::all().flat_map(|version| removed.kinds.iter().map(move |kind| (version, kind)))
        {
            assert!(
                !matches!(version.api(removed.api_version, kind), Api::Served(_)),
                "{kind} {}",
                removed.api_version
            );
            if let Some(instead) = removed.instead {
                assert!(matches!(version.api(instead, kind), Api::Served(_)), "{version}: {kind} of {instead}");
            }
        }
    }
}

#[test]
fn versions_are_named_with_and_without_a_release() {
    for text in ["1.36", "v1.36", "1.36.3", "v1.36.11"] {
        assert_eq!(text.parse::<Version>().unwrap().to_string(), "1.36");
    }
    for text in ["", "1", "1.3", "1.20", "36", "latest"] {
        let error = text.parse::<Version>().unwrap_err().to_string();
        assert_eq!(error, "the kinds of this version are not known; use 1.34, 1.35, 1.36, 1.37");
    }
    assert_eq!(Version::newest().to_string(), "1.37");
}

#[test]
fn a_misspelt_field_is_named_with_the_right_one() {
    check(
        deployment(json!({"replicaz": 3})),
        &["spec.replicaz: Kubernetes 1.36 knows no field `replicaz` (did you mean `replicas`?)"],
    );
    check(
        container(json!({"name": "a", "imagePullPolice": "Always"})),
        &["spec.template.spec.containers[0].imagePullPolice: Kubernetes 1.36 knows no field `imagePullPolice` (did \
             you \
           mean `imagePullPolicy`?)"],
    );
    check(
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "rulez": []}),
        &["rulez: Kubernetes 1.36 knows no field `rulez` (remove it, or correct its name or indentation)"],
    );
    // Names are case-sensitive, and null is a value of a field as well.
    check(
        deployment(json!({"Replicas": null})),
        &["spec.Replicas: Kubernetes 1.36 knows no field `Replicas` (did you mean `replicas`?)"],
    );
}

#[test]
fn values_of_the_wrong_type_are_found() {
    check(
        container(json!({"name": "a", "ports": [{"containerPort": "eighty"}]})),
        &["spec.template.spec.containers[0].ports[0].containerPort: must be a whole number, not a string"],
    );
    check(
        container(json!({"name": "a", "env": [{"name": "A", "value": 1}, {"name": "B", "value": true}]})),
        &[
            "spec.template.spec.containers[0].env[0].value: must be a string, not a number (write it in quotes)",
            "spec.template.spec.containers[0].env[1].value: must be a string, not `true` or `false` (write it in \
             quotes)",
        ],
    );
    check(
        container(json!({"name": "a", "resources": {"limits": {"memory": "64MB", "cpu": true}}})),
        &[
            "spec.template.spec.containers[0].resources.limits.memory: is not a quantity (write a number with a \
             unit, for \
             example `100m`, `64Mi` or `2G`)",
            "spec.template.spec.containers[0].resources.limits.cpu: must be a quantity, not `true` or `false`",
        ],
    );
    check(deployment(json!({"replicas": "3"})), &["spec.replicas: must be a whole number, not a string"]);
    check(
        deployment(json!({"replicas": 1.5})),
        &["spec.replicas: must be a whole number, not a number with a fraction"],
    );
    check(
        deployment(json!({"replicas": 3_000_000_000_u32})),
        &["spec.replicas: does not fit into 32 bits (write a smaller number)"],
    );
    check(
        json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "YQ==", "b": "hunter2", "c": 1}}),
        &[
            "data.b: is not base64 (encode the bytes, for example with `base64 -w0`)",
            "data.c: must be a string in base64, not a number (write it in quotes)",
        ],
    );
    check(
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"renewTime": "yesterday"}}),
        &["spec.renewTime: is not a time (write it as `2026-01-31T12:00:00Z`)"],
    );
    check(deployment(json!({"paused": "true"})), &["spec.paused: must be `true` or `false`, not a string"]);
    check(deployment(json!({"selector": []})), &["spec.selector: must be a mapping, not a list"]);
    check(deployment(json!([])), &["spec: must be a mapping, not a list"]);
}

#[test]
fn what_a_server_accepts_is_accepted() {
    check(deployment(json!({"replicas": null, "selector": null, "template": null})), &[]);
    check(
        container(json!({"name": "a", "resources": {"limits": {"cpu": 1, "memory": "1e3", "x": 0.5}}, "livenessProbe":
            {"httpGet": {"port": "http"}, "tcpSocket": {"port": 80}}})),
        &[],
    );
    check(
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "a"},
            "data": [1, {"a": "b"}],
            "revision": 1}),
        &[],
    );
    check(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": null}}), &[]);
}

#[test]
fn quantities_are_read_as_the_server_does() {
    for good in ["1", "0.5", ".5", "5.", "100m", "64Mi", "1E", "1e3", "1E-3", "+2k", "-1n", " 1 "] {
        assert!(is_quantity(good), "{good}");
    }
    for bad in ["", ".", "64MB", "64 Mi", "1.2.3", "Mi", "1K", "e3", "1e", "one", "1ee3"] {
        assert!(!is_quantity(bad), "{bad}");
    }
}

#[test]
fn violations_beyond_the_limit_are_counted() {
    let fields = (0..1_000).map(|index| (format!("replica{index}"), json!(1)));
    let Api::Served(served) = version("1.36").api("apps/v1", "Deployment") else { panic!("not served") };
    let (listed, more) = served.check(&deployment(fields.collect()), 50, &Budget::default());
    assert_eq!((listed.len(), more), (50, 950));
}

/// Each type that a field names is in the table, and each kind has one.
#[test]
fn the_table_is_complete() {
    fn named(kind: super::Type) -> Option<&'static str> {
        match kind {
            super::Type::Named(name) => Some(name),
            super::Type::List(inner) | super::Type::Map(inner) => named(*inner),
            _ => None,
        }
    }
    let table = &super::TABLE;
    let of_fields = table.types.values().flatten().filter_map(|field| named(field.kind));
    let of_kinds = table.kinds.values().flatten().map(|row| row.type_name);
    let missing: Vec<&str> = of_fields.chain(of_kinds).filter(|name| !table.types.contains_key(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(table.kinds.len() > 80 && table.types.len() > 500, "{} {}", table.kinds.len(), table.types.len());
}
