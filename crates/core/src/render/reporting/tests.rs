use serde_json::{Value, json};

use super::*;
use crate::{
    diagnostic::Diagnostics,
    name::Key,
    plan::reporting::{ListenerSettings, Program},
    template::{Engine, TemplateFile},
};

fn settings(program: Program) -> Agent {
    Agent {
        program,
        image: "registry.example.org/agent:1.0.0".to_owned(),
        pull_secret: None,
        priority_class: PRIORITY_CLASS.to_owned(),
        memory_limit: "200Mi".to_owned(),
        cpu_limit: "0.1".to_owned(),
        godebug: None,
        listener: ListenerSettings {
            gateway: Key::new("kcp-system", "klm-watcher"),
            port_overwrite: None,
            address: None,
        },
    }
}

fn address() -> Address {
    "listener.example.com:9443".parse().unwrap()
}

fn rendered(program: Program) -> Vec<Object> {
    agent(&Templates::embedded(), &settings(program), &address()).into_iter().map(Result::unwrap).collect()
}

fn find<'a>(objects: &'a [Object], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|object| &*object.gvk().kind == kind && object.name() == name);
    found.unwrap_or_else(|| panic!("there is {kind} {name}")).value()
}

fn names(objects: &[Object]) -> Vec<String> {
    objects.iter().map(|object| object.id().to_string()).collect()
}

/// W76: the names are Lifecycle Manager's.
#[test]
fn the_objects_of_the_agent_have_the_names_that_they_always_had() {
    let all = [
        "Service kyma-system/skr-webhook",
        "Service kyma-system/skr-webhook-metrics",
        "NetworkPolicy.networking.k8s.io kyma-system/kyma-project.io--seed-to-watcher",
        "NetworkPolicy.networking.k8s.io kyma-system/kyma-project.io--watcher-to-apiserver",
        "NetworkPolicy.networking.k8s.io kyma-system/kyma-project.io--metrics-to-watcher",
        "NetworkPolicy.networking.k8s.io kyma-system/kyma-project.io--watcher-to-dns",
        "PriorityClass.scheduling.k8s.io skr-webhook-priority",
        "Deployment.apps kyma-system/skr-webhook",
    ];
    let objects = rendered(Program::Tidegate);
    assert_eq!(names(&objects), all);
    assert!(objects.iter().all(|object| object.label(label::MANAGED_BY) == Some("kyma")));
    // The other agent's Deployment is rendered for each runtime.
    assert_eq!(names(&rendered(Program::RuntimeWatcher)), all[..7]);
    let own_class = Agent { priority_class: "high".to_owned(), ..settings(Program::Tidegate) };
    let objects: Vec<Object> =
        agent(&Templates::embedded(), &own_class, &address()).into_iter().map(Result::unwrap).collect();
    assert_eq!(objects.len(), 7, "a priority class that is given is not made");
    let class = find(&objects, "Deployment", "skr-webhook").pointer("/spec/template/spec/priorityClassName");
    assert_eq!(class, Some(&json!("high")));
}

/// KLM 6.4, Deployment: image, address, limits; W45, W76: probes, no token, health on the plain port.
#[test]
fn the_deployment_has_image_address_limits_and_probes() {
    let objects = rendered(Program::Tidegate);
    let pod = &find(&objects, "Deployment", "skr-webhook")["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"], json!({"app": "skr-webhook", "sidecar.istio.io/inject": "false"}));
    let spec = &pod["spec"];
    assert_eq!(spec["automountServiceAccountToken"], json!(false));
    assert_eq!(spec["imagePullSecrets"], Value::Null);
    let container = &spec["containers"][0];
    assert_eq!(
        (&container["name"], &container["image"]),
        (&json!("server"), &json!("registry.example.org/agent:1.0.0"))
    );
    assert_eq!(container["resources"]["limits"], json!({"memory": "200Mi", "cpu": "0.1"}));
    assert_eq!(container["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": "metrics-port"}));
    assert_eq!(container["livenessProbe"]["httpGet"], json!({"path": "/healthz", "port": "metrics-port"}));
    let env = |name: &str| {
        let all = container["env"].as_array().unwrap();
        all.iter().find(|entry| entry["name"] == name).map(|entry| entry["value"].clone())
    };
    for (name, value) in [
        ("WEBHOOK_PORT", "8443"),
        ("METRICS_PORT", "2112"),
        ("TLS_KEY", "/app/etc/ssl/tls.key"),
        ("TLS_CERT", "/app/etc/ssl/tls.crt"),
        ("CA_CERT", "/app/etc/ssl/ca.crt"),
        ("KCP_CONTRACT", "v2"),
        ("KCP_ADDR", "listener.example.com:9443"),
    ] {
        assert_eq!(env(name), Some(json!(value)), "{name}");
    }
    assert_eq!(env("GODEBUG"), None);
}

/// KLM 6.4: restart label, GODEBUG copied, pull secret added; W78.
#[test]
fn a_program_that_must_restart_has_the_label_for_it() {
    let settings = Agent {
        godebug: Some("fips140=only".to_owned()),
        pull_secret: Some("credentials".to_owned()),
        ..settings(Program::RuntimeWatcher)
    };
    let object = agent_deployment(&Templates::embedded(), &settings, &address(), Some("0123abcd")).unwrap();
    let pod = &object.value()["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["operator.kyma-project.io/pod-restart-trigger"], json!("0123abcd"));
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "credentials"}]));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["env"].as_array().unwrap().last(), Some(&json!({"name": "GODEBUG", "value": "fips140=only"})));
    // This program has no health endpoints.
    assert_eq!(container["livenessProbe"], Value::Null);
    assert_eq!(container["readinessProbe"]["tcpSocket"], json!({"port": "watcher-port"}));
}

/// KLM 6.4, NetworkPolicy: only the policy for the control plane contains its port; W79, W80.
#[test]
fn policies_open_what_the_agent_needs_and_no_more() {
    let objects = rendered(Program::Tidegate);
    let policy = |name: &str| find(&objects, "NetworkPolicy", &format!("kyma-project.io--{name}"));
    assert_eq!(
        policy("watcher-to-apiserver")["spec"]["egress"],
        json!([{"ports": [{"port": 9443, "protocol": "TCP"}]}])
    );
    assert_eq!(
        policy("metrics-to-watcher")["spec"]["ingress"],
        json!([{"ports": [{"port": 2112, "protocol": "TCP"}]}])
    );
    assert_eq!(
        policy("seed-to-watcher")["spec"]["ingress"],
        json!([{"from": [{
            "namespaceSelector": {"matchLabels": {"gardener.cloud/purpose": "kube-system"}},
            "podSelector": {"matchLabels": {"app": "vpn-shoot"}},
        }]}])
    );
    let dns = policy("watcher-to-dns");
    assert_eq!(dns["spec"]["egress"][0]["to"][0], json!({"ipBlock": {"cidr": "0.0.0.0/0"}}));
    assert_eq!(dns["spec"]["egress"][0]["to"][1], json!({"ipBlock": {"cidr": "::/0"}}));
    assert!(!dns.to_string().contains("9443"));
    for policy in objects.iter().filter(|object| &*object.gvk().kind == "NetworkPolicy") {
        assert_eq!(policy.value()["spec"]["podSelector"], json!({"matchLabels": {"app": "skr-webhook"}}));
        assert_eq!(policy.label("app"), Some("skr-webhook"));
    }
}

/// KLM 6.4, secret: exact object; W75.
#[test]
fn the_secret_is_filled_after_rendering() {
    let data = [("tls.crt", &b"crt"[..]), ("tls.key", b"key"), ("ca.crt", b"ca")];
    let secret = agent_secret(&Templates::embedded(), data).unwrap();
    assert_eq!(
        secret.value(),
        &json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": "skr-webhook-tls", "namespace": "kyma-system",
                "labels": {"operator.kyma-project.io/managed-by": "kyma"},
            },
            "data": {"tls.crt": "Y3J0", "tls.key": "a2V5", "ca.crt": "Y2E="},
        })
    );
    let mut diagnostics = Diagnostics::default();
    let file = TemplateFile {
        name: "skr/agent/secret.yaml".to_owned(),
        path: "templates/skr/agent/secret.yaml".into(),
        text: Some("apiVersion: v1\nkind: Secret\nstringData: {tls.key: mine}\n".to_owned()),
    };
    let overridden = Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, [file]);
    let error = agent_secret(&overridden, data).unwrap_err().to_string();
    assert_eq!(
        error,
        "template skr/agent/secret.yaml: writes `stringData`, which Tidegate sets after rendering (rendering the agent of \
         runtimes)"
    );
}

#[test]
fn what_the_image_is_pulled_with_is_as_in_the_control_plane() {
    let labels = BTreeMap::from([
        ("team".to_owned(), "registry".to_owned()),
        ("operator.kyma-project.io/managed-by".to_owned(), "lifecycle-manager".to_owned()),
    ]);
    let data = [(".dockerconfigjson", &b"{}"[..])];
    let type_ = "kubernetes.io/dockerconfigjson";
    let secret = agent_pull_secret(&Templates::embedded(), "registry", type_, &labels, data).unwrap();
    assert_eq!(
        *secret.value(),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": type_,
            "metadata": {
                "name": "registry", "namespace": "kyma-system",
                "labels": {"operator.kyma-project.io/managed-by": "kyma", "team": "registry"},
            },
            "data": {".dockerconfigjson": "e30="},
        })
    );
}

#[test]
fn drift_is_reported_of_the_kinds_that_a_runtime_has() {
    let mut drift = Drift::default();
    drift.insert("", Some("configmaps"));
    drift.insert("apps", Some("deployments"));
    drift.insert("example.org", None);
    let reporting = Reporting { drift: Some(&drift), timeout_seconds: 5, ..Reporting::of_watchers(&[], Some("Y2E=")) };
    let object = webhook(&Templates::embedded(), &reporting).unwrap();
    let hooks = object.value()["webhooks"].as_array().unwrap();
    let names: Vec<&str> = hooks.iter().map(|hook| hook["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["drift.tidegate.dev", "scale.tidegate.dev"]);
    for hook in hooks {
        assert_eq!(hook["failurePolicy"], "Ignore");
        assert_eq!(hook["timeoutSeconds"], 5);
        assert_eq!(hook["clientConfig"]["service"]["path"], "/validate/lifecycle-manager");
        assert_eq!(hook["clientConfig"]["caBundle"], "Y2E=");
        assert_eq!(hook["objectSelector"], json!({"matchLabels": {"operator.kyma-project.io/managed-by": "kyma"}}));
    }
    let rule = |group: &str, resources: Value| {
        json!({
            "apiGroups": [group], "apiVersions": ["*"], "resources": resources, "operations": ["UPDATE", "DELETE"],
        })
    };
    assert_eq!(
        hooks[0]["rules"],
        json!([
            rule("", json!(["configmaps"])),
            rule("apps", json!(["deployments"])),
            rule("example.org", json!(["*"]))
        ])
    );
    assert_eq!(
        hooks[1]["rules"],
        json!([{
            "apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["deployments/status"], "operations": ["UPDATE"],
        }])
    );
    let mut unscaled = Drift::default();
    unscaled.insert("", Some("configmaps"));
    let reporting = Reporting { drift: Some(&unscaled), ..reporting };
    let object = webhook(&Templates::embedded(), &reporting).unwrap();
    assert_eq!(object.value()["webhooks"].as_array().unwrap().len(), 1);
}

#[test]
fn only_what_we_write_as_ourselves_is_left_out() {
    let drift = Drift::default();
    let condition = |user: Option<&str>| {
        let reporting = Reporting { drift: Some(&drift), user, ..Reporting::of_watchers(&[], None) };
        let object = webhook(&Templates::embedded(), &reporting).unwrap();
        let conditions = &object.value()["webhooks"][0]["matchConditions"];
        assert_eq!(conditions[0]["name"], "not-by-tidegate");
        conditions[0]["expression"].as_str().unwrap().to_owned()
    };
    let ours = "has(request.options.fieldManager) && request.options.fieldManager == 'tidegate'";
    assert_eq!(condition(None), format!("!({ours})"));
    let user = "system:serviceaccount:kyma-system:admin";
    assert_eq!(condition(Some(user)), format!("!({ours} && request.userInfo.username == \"{user}\")"));
    // No name terminates the string that contains it.
    let strange = condition(Some("a\" || true || \"\\\n"));
    assert_eq!(strange, format!(r#"!({ours} && request.userInfo.username == "a\" || true || \"\\\n")"#));
}

#[test]
fn what_a_daemons_options_decide_is_taken_from_what_stands() {
    let drift = Drift::default();
    let reporting = Reporting { drift: Some(&drift), timeout_seconds: 5, ..Reporting::of_watchers(&[], None) };
    let mut live = webhook(&Templates::embedded(), &reporting).unwrap().value().clone();
    let own = json!({"name": "kcp-system.watcher.operator.kyma-project.io", "timeoutSeconds": 5});
    live["webhooks"].as_array_mut().unwrap().insert(0, own.clone());
    live["webhooks"].as_array_mut().unwrap().push(json!({"name": "other.example.org"}));
    let mut desired = webhook(&Templates::embedded(), &Reporting::of_watchers(&[], None)).unwrap();
    desired.map_mut().insert("webhooks".to_owned(), json!([{"name": own["name"], "timeoutSeconds": 15}]));
    as_installed(&mut desired, &live);
    let names: Vec<&Value> = desired.value()["webhooks"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, [&own["name"], &json!("drift.tidegate.dev")]);
    assert_eq!(desired.value()["webhooks"][0], own);
}

#[test]
fn webhooks_of_watchers_that_cannot_be_read_are_kept_and_trust_the_new_bundle() {
    let of = |name: &str, service: &str, path: &str, bundle: &str| {
        let service = json!({"name": service, "namespace": "kyma-system", "path": path});
        json!({"name": name, "clientConfig": {"service": service, "caBundle": bundle}})
    };
    let (agent, read) = (names::SKR_WEBHOOK, "kcp-system.read.operator.kyma-project.io");
    let unread = "kcp-system.unread.operator.kyma-project.io";
    let installed = json!({"webhooks": [
        of(read, agent, "/validate/old", "b2xk"),
        of(unread, agent, "/validate/unread", "b2xk"),
        of("policy.example.org", "policies", "/", "b2xk"),
        of(DRIFT, agent, "/validate/tidegate", "b2xk"),
        of(SCALE, agent, "/validate/tidegate", "b2xk"),
    ]});
    let new = of(read, agent, "/validate/new", "bmV3");
    let kept = of(unread, agent, "/validate/unread", "bmV3");
    for (case, installed, bundle, expected) in [
        ("nothing is installed", json!({}), Some("bmV3"), vec![new.clone()]),
        ("the agent of one is another's", json!({"webhooks": [installed["webhooks"][2]]}), None, vec![new.clone()]),
        ("one is not declared", installed.clone(), Some("bmV3"), vec![new.clone(), kept]),
        ("no bundle is known", installed.clone(), None, vec![new.clone(), installed["webhooks"][1].clone()]),
    ] {
        let mut desired = webhook(&Templates::embedded(), &Reporting::of_watchers(&[], None)).unwrap();
        desired.map_mut().insert("webhooks".to_owned(), json!([new]));
        keep(&mut desired, &of_watchers(&installed), bundle);
        assert_eq!(desired.value()["webhooks"], Value::from(expected), "{case}");
    }
}
