use serde_json::{Value, json};

use super::*;
use crate::api::setup::FrontProxy;

const NAMESPACE: &str = "kcp-system";

/// The resources of a landscape, from their specifications.
fn resources(documents: &[Value]) -> Resources {
    let mut resources = Resources::default();
    for value in documents {
        let key = Key::new(NAMESPACE, value["metadata"]["name"].as_str().expect("a name"));
        let kind = Kind::ALL.into_iter().find(|kind| value["kind"] == kind.as_str()).expect("a kind");
        resources.insert(kind, &key, value.clone()).expect("a valid resource");
    }
    resources
}

fn resource(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": kind,
        "metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec})
}

fn root(more: Value) -> Value {
    let mut spec = json!({
        "external": {"hostname": "kcp.example.com", "port": 443}, "cache": {},
        "certificates": {"issuerRef": {"name": "selfsigned", "kind": "ClusterIssuer"}},
        "etcd": {"endpoints": ["https://etcd:2379"]},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    resource("RootShard", "main", spec)
}

fn shard(name: &str, more: Value) -> Value {
    let mut spec = json!({"rootShard": {"ref": {"name": "main"}}, "etcd": {"endpoints": ["https://etcd:2379"]}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    resource("Shard", name, spec)
}

fn proxy(more: Value) -> Value {
    let mut spec = json!({"rootShard": {"ref": {"name": "main"}}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    resource("FrontProxy", "public", spec)
}

#[track_caller]
fn plan(documents: &[Value], kind: Kind, name: &str) -> Plan {
    let (plans, problems) = resources(documents).plans(&Known::default());
    assert_eq!(problems, []);
    plans.into_iter().find(|plan| plan.kind == kind && plan.key.name() == name).expect("a plan")
}

fn certificate<'a>(plan: &'a Plan, name: &str) -> &'a Certificate {
    plan.certificates.iter().find(|certificate| certificate.name == name).expect("a certificate")
}

fn args(plan: &Plan) -> &[String] {
    &plan.deployments[0].container.args
}

#[test]
fn versions_have_their_features() {
    use Feature::{AuthenticatedCache, MountProxy, ShardPeers};
    #[track_caller]
    fn check(tag: &str, expected: &[Feature]) {
        let found = [MountProxy, AuthenticatedCache, ShardPeers];
        let found: Vec<_> = found.into_iter().filter(|&feature| KcpVersion::of_tag(tag).has(feature)).collect();
        assert_eq!(found, expected, "{tag}");
    }
    check("v0.29.1", &[]);
    check("v0.29.2", &[AuthenticatedCache]);
    check("v0.30.1", &[]);
    check("0.30.2", &[AuthenticatedCache]);
    check("v0.31.5", &[AuthenticatedCache]);
    check("v0.31.6", &[MountProxy, AuthenticatedCache]);
    check("v0.32.2", &[AuthenticatedCache]);
    check("v0.32.3@sha256:abc", &[MountProxy, AuthenticatedCache]);
    check("v0.33", &[MountProxy, AuthenticatedCache]);
    check("v0.33.0-rc.1", &[]);
    check("v0.34.0-rc.1", &[ShardPeers]);
    check("v0.34.0", &[MountProxy, AuthenticatedCache, ShardPeers]);
    check("main", &[MountProxy, AuthenticatedCache, ShardPeers]);
}

#[test]
fn marks_of_long_names_are_cut_and_hashed() {
    assert_eq!(setup_mark(Kind::RootShard, "main"), "rootshard.main");
    let (one, other) = (setup_mark(Kind::Shard, &"a".repeat(70)), setup_mark(Kind::Shard, &"a".repeat(71)));
    assert!(one.len() <= 63 && other.len() <= 63 && one != other, "{one} {other}");
}

#[test]
fn a_root_shard_has_the_pki_of_upstream() {
    let plan = plan(&[root(json!({}))], Kind::RootShard, "main");
    let names: Vec<&str> = plan.certificates.iter().map(|certificate| certificate.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "main-ca",
            "main-server-ca",
            "main-requestheader-client-ca",
            "main-client-ca",
            "main-service-account-ca",
            "main-server",
            "main-service-account",
            "main-virtual-workspaces",
            "main-logical-cluster-admin",
            "main-external-logical-cluster-admin",
            "main-client",
            "main-kcp-operator",
            "main-proxy-server",
            "main-proxy-kubeconfig",
            "main-proxy-requestheader",
        ]
    );
    let server = certificate(&plan, "main-server");
    assert_eq!(server.dns_names, ["kcp.example.com", "main-kcp.kcp-system.svc.cluster.local"]);
    assert_eq!(server.usages, ["server auth", "key encipherment", "digital signature"]);
    assert_eq!((server.duration.as_str(), server.renew_before.as_str()), ("8760h0m0s", "168h0m0s"));
    let operator = certificate(&plan, "main-kcp-operator");
    assert_eq!(operator.common_name, "system:kcp-operator");
    assert_eq!(operator.subject.organizations, ["system:kcp:admin"]);
    assert_eq!(operator.issuer.name, "main-client-ca");
}

#[test]
fn d18_keys_of_cas_and_service_accounts_do_not_rotate_unless_a_template_says_so() {
    let template =
        json!({"certificateTemplates": {"service-account": {"spec": {"privateKey": {"rotationPolicy": "Always"}}}}});
    let policies = |root: Value| -> Vec<(String, String)> {
        let plan = plan(&[root], Kind::RootShard, "main");
        let set = plan.certificates.into_iter().filter(|found| !found.private_key.rotation_policy.is_empty());
        set.map(|found| (found.name, found.private_key.rotation_policy)).collect()
    };
    let by_default = policies(root(json!({})));
    assert_eq!(by_default.len(), 6, "{by_default:?}");
    assert!(
        by_default
            .iter()
            .all(|(name, policy)| policy == "Never" && (name.ends_with("-ca") || name == "main-service-account"))
    );
    assert!(policies(root(template)).contains(&("main-service-account".to_owned(), "Always".to_owned())));
}

#[test]
fn a_template_adds_names_in_order_and_replaces_them_with_an_issuer_of_its_own() {
    let names = |spec: Value| {
        let plan = plan(&[root(json!({"certificateTemplates": {"server": {"spec": spec}}}))], Kind::RootShard, "main");
        certificate(&plan, "main-server").dns_names.clone()
    };
    let own = ["kcp.example.com", "main-kcp.kcp-system.svc.cluster.local"];
    assert_eq!(names(json!({"dnsNames": ["a.example.com"]})), ["a.example.com", own[0], own[1]]);
    assert_eq!(names(json!({"dnsNames": ["b", "a"], "issuerRef": {"name": "public"}})), ["b", "a"]);
    assert_eq!(names(json!({"issuerRef": {"name": "public"}})), own);
}

#[test]
fn d19_the_certificate_of_a_proxy_has_the_domain_of_the_root_shard_each_name_once_and_no_port() {
    let documents = [root(json!({"clusterDomain": "a.b"})), proxy(json!({"externalHostname": "kcp.example.com:8443"}))];
    let plan = plan(&documents, Kind::FrontProxy, "public");
    let own = "public-front-proxy";
    let expected = [
        own.to_owned(),
        format!("{own}.kcp-system"),
        format!("{own}.kcp-system.svc.a.b"),
        "kcp.example.com".to_owned(),
    ];
    assert_eq!(certificate(&plan, "main-public-server").dns_names, expected);
    assert_eq!(plan.services[0].ports, [("https", 8443, 6443)]);
}

#[test]
fn d02_groups_are_one_list_without_quotes_and_an_empty_list_is_no_flag() {
    let flags = |auth: Value| -> Vec<String> {
        let plan = plan(&[root(json!({})), proxy(json!({"auth": auth}))], Kind::FrontProxy, "public");
        args(&plan).iter().filter(|arg| arg.starts_with("--authentication-")).cloned().collect()
    };
    assert_eq!(
        flags(json!({"dropGroups": ["a", "b"], "passOnGroups": ["c"]})),
        ["--authentication-drop-groups=a,b", "--authentication-pass-on-groups=c"]
    );
    assert_eq!(flags(json!({"dropGroups": [""]})), ["--authentication-drop-groups="]);
    assert_eq!(flags(json!({"dropGroups": []})), Vec::<String>::new());
}

#[test]
fn d01_and_d03_the_flag_of_truncated_events_and_the_key_of_an_oidc_ca_are_right() {
    let more = json!({
        "audit": {"webhook": {"truncateMaxEventSize": 5}},
        "auth": {"oidc": {"issuerURL": "https://a", "clientID": "b", "caFileRef": {"name": "c"}}},
    });
    let plan = plan(&[root(more)], Kind::RootShard, "main");
    assert!(args(&plan).contains(&"--audit-webhook-truncate-max-event-size=5".to_owned()));
    assert!(args(&plan).contains(&"--oidc-ca-file=/etc/kcp/tls/oidc/ca.crt".to_owned()));
}

#[test]
fn d04_and_d05_an_existing_root_ca_is_mounted_from_its_own_secret() {
    let certificates = json!({"caSecretRef": {"name": "company"}});
    let cache = resource("CacheServer", "cache", json!({"certificates": certificates}));
    let documents = [cache, root(json!({"certificates": certificates, "cache": {"ref": {"name": "cache"}}}))];
    let root = plan(&documents, Kind::RootShard, "main");
    assert_eq!(root.issuers[0].secret, "company");
    assert!(root.certificates.iter().all(|certificate| certificate.name != "main-ca"));
    let secret = |plan: &Plan, volume: &str| {
        let volumes = &plan.deployments[0].volumes;
        let found = volumes.iter().find(|found| found.name == volume).expect("a volume");
        found.source.clone()
    };
    assert_eq!(secret(&root, "kcp-ca"), VolumeSource::Certificate("company".to_owned()));
    assert_eq!(secret(&root, "cache-server-ca"), VolumeSource::Certificate("company".to_owned()));
    let cache = plan(&documents, Kind::CacheServer, "cache");
    assert_eq!(secret(&cache, "client-ca"), VolumeSource::Certificate("company".to_owned()));
}

#[test]
fn d06_a_resource_without_a_root_shard_is_a_problem_and_the_others_have_plans() {
    let empty = resource("Shard", "lost", json!({"rootShard": {}, "etcd": {"endpoints": []}}));
    let (plans, problems) = resources(&[root(json!({})), empty, shard("eu", json!({}))]).plans(&Known::default());
    assert_eq!(plans.len(), 2);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].message, "Shard kcp-system/lost names no RootShard");
    assert_eq!(problems[0].field, "spec.rootShard.ref.name");
}

#[test]
fn d07_resources_do_not_leak() {
    let documents = [root(json!({"resources": {"limits": {"cpu": "9"}}})), shard("eu", json!({}))];
    let cpu =
        |kind, name| plan(&documents, kind, name).deployments[0].container.resources.clone().unwrap()["limits"].clone();
    assert_eq!(cpu(Kind::RootShard, "main"), json!({"memory": "2Gi", "cpu": "9"}));
    assert_eq!(cpu(Kind::Shard, "eu"), json!({"memory": "2Gi", "cpu": "2"}));
}

#[test]
fn d10_pull_secrets_of_image_and_template_are_united() {
    let more = json!({
        "image": {"imagePullSecrets": [{"name": "a"}, {"name": "b"}]},
        "deploymentTemplate": {"spec": {"template": {"spec": {"imagePullSecrets": [{"name": "b"}, {"name": "c"}]}}}},
    });
    assert_eq!(plan(&[root(more)], Kind::RootShard, "main").deployments[0].pull_secrets, ["a", "b", "c"]);
}

#[test]
fn d17_no_pod_mounts_the_key_of_a_ca() {
    let server = resource(
        "VirtualWorkspace",
        "vw",
        json!({"target": {"shardRef": {"name": "eu"}},
        "external": {"hostname": "vw.example.com", "port": 443}}),
    );
    let accounts = json!({"auth": {"serviceAccount": {"enabled": true}}});
    let documents = [root(accounts.clone()), shard("eu", accounts.clone()), proxy(accounts), server];
    let (plans, problems) = resources(&documents).plans(&Known::default());
    assert_eq!(problems, []);
    let deployments = plans.iter().flat_map(|plan| &plan.deployments);
    let mut seen = 0;
    for (deployment, volume) in deployments.flat_map(|found| found.volumes.iter().map(move |volume| (found, volume))) {
        if let VolumeSource::Secret(secret, _) = &volume.source {
            let own =
                format!("{}-service-account", deployment.name.trim_end_matches("-shard-kcp").trim_end_matches("-kcp"));
            assert!(!secret.ends_with("-ca") || secret.contains("merged"), "{}: {secret}", deployment.name);
            assert!(!secret.ends_with("-service-account") || *secret == own, "{}: {secret}", deployment.name);
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} Secrets");
}

/// Row 60: a default of one's own is for what names none, also in part, and decides about the features.
#[test]
fn row_60_the_image_of_resources_that_name_none_can_be_set() {
    let image: DefaultImage = "registry.example.com:5000/kcp:v0.34.0".parse().unwrap();
    let mut root: RootShard = serde_json::from_value(root(json!({"image": {"tag": "v0.30.3"}}))).unwrap();
    image.complete(&mut root);
    let mut proxy: FrontProxy = serde_json::from_value(proxy(json!({}))).unwrap();
    image.complete(&mut proxy);
    let documents = [serde_json::to_value(root).unwrap(), serde_json::to_value(proxy).unwrap()];
    let of_root = plan(&documents, Kind::RootShard, "main");
    let images: Vec<&str> = of_root.deployments.iter().map(|found| found.container.image.as_str()).collect();
    assert_eq!(images, ["registry.example.com:5000/kcp:v0.30.3", "registry.example.com:5000/kcp:v0.34.0"]);
    let of_proxy = plan(&documents, Kind::FrontProxy, "public");
    assert!(args(&of_proxy).iter().any(|arg| arg.starts_with("--shard-peer-kubeconfig=")), "it is 0.34");
    // The default of the release changes nothing, and what is no image is refused.
    let mut own: FrontProxy = serde_json::from_value(self::proxy(json!({}))).unwrap();
    DefaultImage::default().complete(&mut own);
    assert_eq!(own.spec.image, None);
    assert_eq!(DefaultImage::default().to_string().parse(), Ok(DefaultImage::default()));
    let digest = "ghcr.io/kcp-dev/kcp:v0.33.0@sha256:abc";
    assert_eq!(digest.parse::<DefaultImage>().unwrap().to_string(), digest);
    for text in ["", "kcp", "kcp:", ":v1", "registry.example.com:5000/kcp", "https://ghcr.io/kcp:v1", "a b:v1"] {
        let error = text.parse::<DefaultImage>().expect_err(text).to_string();
        let expected = format!("invalid image `{text}`: use REPOSITORY:TAG, for example {}", DefaultImage::default());
        assert_eq!(error, expected);
    }
}

/// Whatever another cluster gets is what its pods mount, computed from them. Upstream selects it by a label of the
/// shard, which neither the CAs of its root shard nor the Secrets of users bear.
#[test]
fn d31_what_a_shard_mounts_is_known_also_of_its_root_shard_and_of_users() {
    let more = json!({
        "etcd": {"endpoints": ["https://etcd:2379"], "tlsConfig": {"secretRef": {"name": "etcd-client"}}},
        "extraVolumes": [{"name": "a", "secret": {"secretName": "company"}}],
    });
    let plan = plan(&[root(json!({})), shard("eu", more)], Kind::Shard, "eu");
    let deployment = &plan.deployments[0];
    let mounted: BTreeSet<&str> = deployment
        .volumes
        .iter()
        .filter_map(|volume| match &volume.source {
            VolumeSource::Secret(name, _) | VolumeSource::Certificate(name) => Some(name.as_str()),
            VolumeSource::ConfigMap(..) | VolumeSource::Empty | VolumeSource::User(_) => None,
        })
        .chain(["company"])
        .collect();
    let known: BTreeSet<&str> = deployment
        .gates
        .iter()
        .filter_map(|gate| match gate {
            Gate::Key(Mounted { kind: "Secret", name, .. }) => Some(name.as_str()),
            Gate::Key(_) | Gate::Certificate(_) | Gate::Deployment { .. } => None,
        })
        .collect();
    assert_eq!(known, mounted);
    let own: BTreeSet<&str> = plan
        .certificates
        .iter()
        .map(|one| one.name.as_str())
        .chain(plan.secrets.iter().map(|one| one.name.as_str()))
        .collect();
    let others: Vec<&str> = known.difference(&own).copied().collect();
    assert!(others.contains(&"company") && others.contains(&"etcd-client"), "{others:?}");
    assert!(others.iter().filter(|name| name.starts_with("main-") && name.ends_with("-ca")).count() > 1, "{others:?}");
}

/// Row 66: what pods need and nothing waits for.
#[test]
fn r66_optional_and_projected_volumes_and_credentials_of_registries_are_known() {
    let more = json!({
        "image": {"imagePullSecrets": [{"name": "registry"}]},
        "extraVolumes": [
            {"name": "a", "secret": {"secretName": "optional", "optional": true, "items": [{"key": "k", "path": "p"}]}},
            {"name": "b", "configMap": {"name": "settings", "optional": true}},
            {"name": "c", "projected": {"sources": [
                {"secret": {"name": "optional", "items": [{"key": "j", "path": "p"}]}},
                {"secret": {"name": "whole"}},
                {"configMap": {"name": "settings", "items": [{"key": "k", "path": "p"}]}},
                {"serviceAccountToken": {"path": "token"}},
            ]}},
            {"name": "d", "secret": {"secretName": "required"}},
            {"name": "e", "emptyDir": {}},
        ],
    });
    let plan = plan(&[root(more)], Kind::RootShard, "main");
    let used: Vec<String> =
        plan.used().iter().map(|one| format!("{} {}: {}", one.kind, one.name, one.keys.join(" "))).collect();
    let expected = [
        "ConfigMap settings: ",
        "Secret optional: j k",
        "Secret registry: .dockercfg .dockerconfigjson",
        "Secret whole: ",
    ];
    assert_eq!(used, expected);
    assert_eq!(plan.pull_secrets(), BTreeSet::from(["registry"]));
    assert!(plan.mounted().iter().any(|one| one.name == "required"));
    assert!(plan.mounted().iter().all(|one| !used.contains(&format!("{} {}: ", one.kind, one.name))));
}

#[test]
fn d20_the_external_name_of_virtual_workspaces_is_in_their_certificate() {
    let server = resource(
        "VirtualWorkspace",
        "vw",
        json!({"target": {"rootShardRef": {"name": "main"}},
        "external": {"hostname": "vw.example.com", "port": 443}}),
    );
    let plan = plan(&[root(json!({})), server], Kind::VirtualWorkspace, "vw");
    let expected = ["localhost", "vw-virtual-workspace.kcp-system.svc.cluster.local", "vw.example.com"];
    assert_eq!(certificate(&plan, "vw-server").dns_names, expected);
}

#[test]
fn d21_the_bundle_of_a_shard_begins_with_the_server_ca() {
    let plan =
        plan(&[root(json!({})), shard("eu", json!({"caBundleSecretRef": {"name": "company"}}))], Kind::Shard, "eu");
    let bundle = plan.secrets.iter().find(|secret| secret.name == "eu-merged-ca-bundle").expect("the bundle");
    assert_eq!(bundle.content, Content::Bundle(vec![Trust::whole("main-server-ca"), Trust::whole("company")]));
}

#[test]
fn d23_a_missing_reference_is_named() {
    let (_, problems) = resources(&[root(json!({"cache": {"ref": {"name": "gone"}}}))]).plans(&Known::default());
    let expected = "CacheServer kcp-system/gone, which RootShard kcp-system/main names, does not exist";
    assert_eq!(problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>(), [expected]);
}

#[test]
fn d30_the_kubeconfig_of_a_proxy_trusts_the_bundle_of_its_owner() {
    let text = |more: Value| {
        let plan = plan(&[root(json!({})), proxy(more)], Kind::FrontProxy, "public");
        let found =
            plan.secrets.iter().find(|secret| secret.name == "main-public-dynamic-kubeconfig").expect("a Secret");
        let Content::Files(file) = &found.content else { panic!("names files") };
        file.to_text()
    };
    assert!(
        text(json!({"caBundleSecretRef": {"name": "a"}}))
            .contains("certificate-authority: /etc/kcp/tls/ca/ca-bundle/tls.crt\n")
    );
    assert!(text(json!({})).contains("certificate-authority: /etc/kcp/tls/ca/tls.crt\n"));
    assert!(!text(json!({})).contains("apiVersion"));
}

#[test]
fn d32_where_the_root_ca_is_not_self_signed_only_sub_cas_are_trusted() {
    let documents = [root(json!({})), shard("eu", json!({})), proxy(json!({}))];
    let known = Known { chained: [Key::new(NAMESPACE, "main")].into(), ..Known::default() };
    let (plans, _) = resources(&documents).plans(&known);
    let volumes = |kind, volume: &str| {
        let plan = plans.iter().find(|plan| plan.kind == kind).expect("a plan");
        plan.deployments[0].volumes.iter().find(|found| found.name == volume).expect("a volume").source.clone()
    };
    let trust = |ca: &str| VolumeSource::Secret(format!("main-{ca}-ca-trust"), vec!["tls.crt"]);
    for kind in [Kind::RootShard, Kind::Shard] {
        assert_eq!(volumes(kind, "client-ca"), trust("client"));
        assert_eq!(volumes(kind, "requestheader-client-ca"), trust("requestheader-client"));
    }
    let proxy = plans.iter().find(|plan| plan.kind == Kind::FrontProxy).expect("a plan");
    assert_eq!(volumes(Kind::FrontProxy, "main-requestheader-client-ca-trust"), trust("requestheader-client"));
    let bundle = proxy.secrets.iter().find(|secret| secret.name == "public-merged-client-ca").expect("a bundle");
    let first = Trust { secret: "main-client-ca".to_owned(), only_first: true };
    assert_eq!(bundle.content, Content::Bundle(vec![first]));
}

#[test]
fn a_deployment_waits_for_every_certificate_and_then_for_every_mounted_key() {
    let volumes = json!([
        {"name": "a", "secret": {"secretName": "needed"}},
        {"name": "b", "secret": {"secretName": "spare", "optional": true}},
    ]);
    let plan = plan(&[root(json!({"extraVolumes": volumes}))], Kind::RootShard, "main");
    let gates = &plan.deployments[0].gates;
    assert_eq!(gates.iter().filter(|gate| matches!(gate, Gate::Certificate(_))).count(), plan.certificates.len());
    let secret = |name: &str, keys: &[&str]| {
        Gate::Key(Mounted {
            kind: "Secret",
            name: name.to_owned(),
            keys: keys.iter().map(|&key| key.to_owned()).collect(),
        })
    };
    assert!(gates.contains(&secret("main-server", &["tls.crt", "tls.key"])), "{gates:?}");
    assert!(gates.contains(&secret("main-client-ca", &["tls.crt"])), "{gates:?}");
    assert!(gates.contains(&secret("needed", &[])), "{gates:?}");
    assert!(!gates.contains(&secret("spare", &[])), "{gates:?}");
}

#[test]
fn proxies_know_their_peers_from_0_34_on() {
    let documents = |tag: &str| {
        let image = json!({"image": {"tag": tag}});
        [
            root(json!({})),
            shard("eu", json!({"kcpVirtualWorkspace": {"name": "vw"}})),
            shard("us", json!({})),
            proxy(image),
            resource(
                "VirtualWorkspace",
                "vw",
                json!({"target": {"shardRef": {"name": "eu"}},
                "external": {"hostname": "vw.example.com", "port": 443}}),
            ),
        ]
    };
    let peers = |tag: &str| {
        let plan = plan(&documents(tag), Kind::FrontProxy, "public");
        plan.secrets.into_iter().find(|secret| secret.name == "main-public-peers-kubeconfig")
    };
    assert_eq!(peers("v0.33.1"), None);
    let Some(Content::Files(file)) = peers("v0.34.0-rc.1").map(|secret| secret.content) else { panic!("peers") };
    let expected = [
        ("root", "https://main-kcp.kcp-system.svc.cluster.local:6443"),
        ("eu", "https://vw.example.com:443"),
        ("us", "https://us-shard-kcp.kcp-system.svc.cluster.local:6443"),
    ];
    assert_eq!(file.clusters, expected.map(|(name, url)| (name.to_owned(), url.to_owned())));
}

#[test]
fn the_kubeconfig_of_a_shard_is_the_text_that_upstream_writes() {
    let plan = plan(&[root(json!({})), shard("eu", json!({}))], Kind::Shard, "eu");
    let Content::Files(file) = &plan.secrets[1].content else { panic!("names files") };
    assert_eq!(plan.secrets[1].name, "eu-logical-cluster-admin-kubeconfig");
    let expected = "\
apiVersion: v1
clusters:
- cluster:
    certificate-authority: /etc/kcp/tls/ca/server/tls.crt
    server: https://eu-shard-kcp.kcp-system.svc.cluster.local:6443
  name: logical-cluster:admin
contexts:
- context:
    cluster: logical-cluster:admin
    user: logical-cluster-admin
  name: logical-cluster
current-context: logical-cluster
kind: Config
users:
- name: logical-cluster-admin
  user:
    client-certificate: /etc/kcp/tls/logical-cluster-admin/tls.crt
    client-key: /etc/kcp/tls/logical-cluster-admin/tls.key
";
    assert_eq!(file.to_text(), expected);
}

#[test]
fn a_number_of_pods_that_git_does_not_say_is_left_alone_after_creation() {
    let replicas = |more: Value| plan(&[root(more)], Kind::RootShard, "main").deployments[0].replicas;
    assert_eq!(replicas(json!({})), Replicas::OnCreation(2));
    assert_eq!(replicas(json!({"replicas": 0})), Replicas::Fixed(0));
}

/// The problems of this severity, each with its field.
fn found(documents: &[Value], severity: Severity) -> Vec<String> {
    let resources = resources(documents);
    let (plans, mut problems) = resources.plans(&Known::default());
    problems.extend(rule::problems(&resources, &plans));
    let problems = problems.into_iter().filter(|problem| problem.severity == severity);
    problems.map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
}

fn wrong(documents: &[Value]) -> Vec<String> {
    found(documents, Severity::Error)
}

#[test]
fn what_is_possible_but_hardly_meant_is_a_warning() {
    #[track_caller]
    fn check(documents: &[Value], expected: &[&str]) {
        assert_eq!(found(documents, Severity::Warning), expected);
        assert_eq!(wrong(documents), Vec::<String>::new());
    }
    let alone = "spec.external.hostname: no FrontProxy serves `kcp.example.com`, to which users of RootShard \
                 kcp-system/main are sent";
    check(&[root(json!({})), proxy(json!({}))], &[]);
    check(&[root(json!({}))], &[alone]);
    let other = |hostname: &str| proxy(json!({"external": {"hostname": hostname, "port": 443}}));
    check(&[root(json!({})), other("other.example.com")], &[alone]);
    check(&[root(json!({})), other("kcp.example.com")], &[]);
    check(&[root(json!({})), proxy(json!({"externalHostname": "kcp.example.com:8443"}))], &[]);

    let accounts = json!({"auth": {"serviceAccount": {"enabled": true}}});
    check(
        &[root(accounts.clone()), shard("eu", accounts.clone()), proxy(json!({}))],
        &["spec.auth: FrontProxy kcp-system/public refuses tokens of service accounts, and RootShard kcp-system/main \
           accepts them"],
    );
    check(&[root(accounts.clone()), shard("eu", accounts.clone()), proxy(accounts)], &[]);

    let template = json!({"certificateTemplates": {"server": {}, "sever": {}}});
    let unknown = |kind: &str| {
        format!("spec.certificateTemplates: a {kind} has no certificate `sever`, so this template has no effect")
    };
    check(&[root(template.clone()), proxy(template)], &[&unknown("RootShard"), &unknown("FrontProxy")]);

    let kubeconfig = json!({"target": {"rootShardRef": {"name": "main"}}, "username": "a", "validity": "2h",
        "secretRef": {"name": "out"}, "groups": ["mine", "system:kcp:admin"]});
    check(
        &[root(json!({})), proxy(json!({})), resource("Kubeconfig", "admin", kubeconfig)],
        &["spec.groups: the group `system:kcp:admin` has rights in every workspace"],
    );
}

/// Row 66: a name of a Service resolves in its own cluster only.
#[test]
fn r66_a_shard_that_others_reach_from_another_cluster_needs_a_base_url() {
    let placed = |mut document: Value, cluster: &str| {
        document["metadata"]["annotations"] = json!({"tidegate.dev/cluster": cluster});
        document
    };
    let url = |name: &str| json!({ "shardBaseURL": format!("https://{name}.example.com:6443") });
    let warning = |shard: &str, other: &str| {
        format!(
            "spec.shardBaseURL: the default URL of {shard} is the name of a Service in its own cluster, and {other} is \
             in another one"
        )
    };
    let (main, eu) = ("RootShard kcp-system/main", "Shard kcp-system/eu");
    let front = "FrontProxy kcp-system/public";
    for (documents, expected) in [
        (vec![root(json!({})), shard("eu", json!({})), proxy(json!({}))], Vec::new()),
        (
            vec![root(json!({})), placed(shard("eu", json!({})), "eu"), proxy(json!({}))],
            vec![warning(main, eu), warning(eu, main)],
        ),
        (vec![root(url("main")), placed(shard("eu", url("eu")), "eu"), proxy(json!({}))], Vec::new()),
        (vec![root(url("main")), shard("eu", json!({})), placed(proxy(json!({})), "eu")], vec![warning(eu, front)]),
        (
            vec![placed(root(json!({})), "eu"), placed(shard("eu", json!({})), "eu"), placed(proxy(json!({})), "eu")],
            Vec::new(),
        ),
    ] {
        assert_eq!(found(&documents, Severity::Warning), expected);
        assert_eq!(wrong(&documents), Vec::<String>::new());
    }
}

#[test]
fn files_of_path_mappings_must_be_in_the_container() {
    let mapping = |ca: &str, key: &str| {
        json!({"additionalPathMappings": [{"path": "/a/", "backend": "https://a", "backend_server_ca": ca,
            "proxy_client_cert": "/etc/kcp-front-proxy/requestheader-client/tls.crt", "proxy_client_key": key}]})
    };
    let key = "/etc/kcp-front-proxy/requestheader-client/tls.key";
    let documents = |ca: &str, key: &str| [root(json!({})), proxy(mapping(ca, key))];
    // Upstream's samples name another folder of the root CA.
    let good = documents("/etc/kcp/tls/ca/tls.crt", key);
    assert_eq!((wrong(&good), found(&good, Severity::Warning)), (Vec::new(), Vec::new()));
    let mounted = |file: &str| {
        format!("spec.additionalPathMappings: the path mapping `/a/` needs the file `{file}`, and no volume has it")
    };
    assert_eq!(wrong(&documents("/etc/kcp/tls/ca/tls.crt", "/absent/tls.key")), [mounted("/absent/tls.key")]);
    assert_eq!(found(&documents("/etc/ssl/certs/ca.pem", key), Severity::Warning), [mounted("/etc/ssl/certs/ca.pem")]);
}

#[test]
fn rules_that_the_schemas_cannot_say_are_checked() {
    #[track_caller]
    fn check(documents: &[Value], expected: &str) {
        assert_eq!(wrong(documents), [expected]);
    }
    assert_eq!(wrong(&[root(json!({})), shard("eu", json!({})), proxy(json!({}))]), Vec::<String>::new());
    check(&[root(json!({"certificates": {}}))], "spec.certificates: the root CA has no origin");
    let both = json!({"certificates": {"issuerRef": {"name": "a"}, "caSecretRef": {"name": "b"}}});
    check(&[root(both)], "spec.certificates: the root CA has two origins");
    check(&[root(json!({"replicas": -1}))], "spec.replicas: -1 is not a number of pods");
    check(&[root(json!({"etcd": {"endpoints": []}}))], "spec.etcd.endpoints: no endpoint of etcd is listed");
    for port in [-1, 0, 65_536] {
        let external = json!({"external": {"hostname": "a", "port": port}});
        check(&[root(external)], &format!("spec.external.port: {port} is not a port"));
    }
    let private = json!({"external": {"hostname": "a", "port": 65_535, "privatePort": 65_536}});
    check(&[root(private)], "spec.external.privatePort: 65536 is not a port");
    let served = shard("eu", json!({"kcpVirtualWorkspace": {"name": "vw"}}));
    let others = server(json!({"target": {"shardRef": {"name": "us"}}}));
    check(
        &[root(json!({})), served, shard("us", json!({})), others],
        "spec.kcpVirtualWorkspace.name: VirtualWorkspace `vw` does not serve Shard `eu`",
    );
    let service = json!({"serviceTemplate": {"spec": {"type": "ExternalName"}}});
    check(
        &[root(service)],
        "spec.serviceTemplate.spec.type: `ExternalName` is not a type of Service that selects pods",
    );
    let webhook = json!({"auth": {"webhook": {"configSecretName": "a", "cacheAuthenticationTTL": "soon"}}});
    check(&[root(webhook)], "spec.auth.webhook: invalid duration");
    check(
        &[root(json!({})), shard("root", json!({}))],
        "metadata.name: a Shard must not be named `root`: that is the root shard's name in kcp",
    );
    let mount = json!({"extraVolumeMounts": [{"name": "a", "mountPath": "/a"}]});
    check(&[root(mount)], "spec.extraVolumeMounts: container `kcp` mounts the volume `a`, which does not exist");
    let renewed = json!({"certificateTemplates": {"server": {"spec": {"duration": "1h", "renewBefore": "2h"}}}});
    check(
        &[root(renewed)],
        "spec.certificateTemplates: Certificate `main-server` would be renewed before it is issued",
    );
}

#[test]
fn rules_of_kubeconfigs_are_checked() {
    let kubeconfig = |more: Value| {
        let mut spec = json!({"target": {"rootShardRef": {"name": "main"}}, "username": "a", "validity": "2h",
            "secretRef": {"name": "out"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        wrong(&[root(json!({})), resource("Kubeconfig", "admin", spec)])
    };
    let two = json!({"target": {"rootShardRef": {"name": "main"}, "shardRef": {"name": "eu"}}});
    let roles = |roles: Value| json!({"authorization": {"clusterRoleBindings": {"clusterRoles": roles}}});
    assert_eq!(kubeconfig(json!({})), Vec::<String>::new());
    assert_eq!(kubeconfig(two), ["spec.target: a Kubeconfig has one target, and this one has 2"]);
    assert_eq!(kubeconfig(json!({"target": {}})), ["spec.target: Kubeconfig kcp-system/admin has no target"]);
    assert_eq!(kubeconfig(json!({"validity": "5m"})), ["spec.validity: a certificate must be valid for at least 1h"]);
    for user in ["kcp-front-proxy", "kcp-root-shard-proxy", "kcp-mounts-proxy", "system:kcp-operator"] {
        let expected = format!("spec.username: the user `{user}` is reserved for parts of kcp");
        assert_eq!(kubeconfig(json!({ "username": user })), [expected]);
    }
    let late = json!({"certificateTemplate": {"spec": {"renewBefore": "2h"}}});
    let expected =
        "spec.certificateTemplates: Certificate `kubeconfig-cert-admin` would be renewed before it is issued";
    assert_eq!(kubeconfig(late), [expected]);
    let impossible = json!({"secretRef": {"name": "Out"}});
    assert_eq!(kubeconfig(impossible), ["spec.secretRef.name: `Out` cannot be the name of a Secret"]);
    let field = "spec.authorization.clusterRoleBindings.clusterRoles";
    assert_eq!(kubeconfig(roles(json!(["a", "a"]))), [format!("{field}: a ClusterRole is listed twice")]);
    assert_eq!(kubeconfig(roles(json!([""]))), [format!("{field}: a ClusterRole has no name")]);
}

#[test]
fn d28_resources_that_would_write_one_object_are_named() {
    let same = shard("main", json!({}));
    let expected =
        "metadata.name: Shard kcp-system/main and RootShard kcp-system/main would both write Certificate `main-server`";
    assert_eq!(wrong(&[root(json!({})), same]), [expected]);
    let kubeconfig = resource(
        "Kubeconfig",
        "admin",
        json!({"target": {"rootShardRef": {"name": "main"}},
        "username": "a", "validity": "2h", "secretRef": {"name": "main-server"}}),
    );
    let expected = "spec.secretRef.name: Kubeconfig kcp-system/admin and RootShard kcp-system/main would both write \
                    Secret `main-server`";
    assert_eq!(wrong(&[root(json!({})), kubeconfig]), [expected]);
}

#[test]
fn d11_names_may_be_as_long_as_their_objects_allow() {
    let names = |name: &str| wrong(&[root(json!({})), shard(name, json!({}))]).len();
    assert_eq!(names(&"a".repeat(27)), 0);
    assert_eq!(names(&"a".repeat(28)), 1);
    assert_eq!(names("with.dot"), 1);
    assert_eq!(names("0digit"), 1);
}

/// Bad input: each kind has a longest name, and every longer one is an error that says what to do.
#[test]
fn d11_each_kind_has_a_longest_name_and_longer_ones_are_errors() {
    const LEN_MAX: usize = 253;
    let kubeconfig = json!({"target": {"rootShardRef": {"name": "main"}}, "username": "a", "validity": "2h",
        "secretRef": {"name": "out"}});
    let below = |document: Value| vec![root(json!({})), shard("eu", json!({})), document];
    let all = [
        vec![root(json!({}))],
        below(shard("us", json!({}))),
        below(proxy(json!({}))),
        vec![cache()],
        below(server(json!({}))),
        below(resource("Kubeconfig", "admin", kubeconfig)),
    ];
    for documents in all {
        let kind = documents.last().expect("a resource")["kind"].to_string();
        let problems = |len: usize| {
            let mut documents = documents.clone();
            documents.last_mut().expect("a resource")["metadata"]["name"] = "a".repeat(len).into();
            let resources = resources(&documents);
            let (plans, mut problems) = resources.plans(&Known::default());
            problems.extend(rule::problems(&resources, &plans));
            problems.retain(|problem| problem.severity == Severity::Error);
            problems
        };
        let all: Vec<usize> = (1..=LEN_MAX).collect();
        let longest = all.partition_point(|&len| problems(len).is_empty());
        assert!((10..LEN_MAX).contains(&longest), "{kind}: {longest}");
        for len in [longest + 1, LEN_MAX] {
            let found = problems(len);
            let says = |problem: &Problem| problem.hint.starts_with("use a shorter name");
            assert!(!found.is_empty() && found.iter().all(says), "{kind}: {len}: {found:?}");
        }
    }
}

#[test]
fn durations_are_written_as_upstream_writes_them() {
    let kubeconfig = resource(
        "Kubeconfig",
        "admin",
        json!({"target": {"rootShardRef": {"name": "main"}},
        "username": "a", "groups": ["z", "b"], "validity": "8766h", "secretRef": {"name": "out"}}),
    );
    let plan = plan(&[root(json!({})), kubeconfig], Kind::Kubeconfig, "admin");
    let found = certificate(&plan, "kubeconfig-cert-admin");
    assert_eq!((found.duration.as_str(), found.renew_before.as_str()), ("8766h0m0s", ""));
    assert_eq!(found.subject.organizations, ["b", "kubeconfig:admin", "z"]);
}

#[test]
fn a_kubeconfig_leads_to_its_workspace_and_trusts_the_bundle_of_its_target() {
    let kubeconfig = resource(
        "Kubeconfig",
        "admin",
        json!({"target": {"shardRef": {"name": "eu"}},
        "username": "a", "validity": "2h", "secretRef": {"name": "out"}, "targetWorkspace": "root:a"}),
    );
    let documents = [root(json!({})), shard("eu", json!({"caBundleSecretRef": {"name": "company"}})), kubeconfig];
    let plan = plan(&documents, Kind::Kubeconfig, "admin");
    let Content::Credentials(found) = &plan.secrets[0].content else { panic!("credentials") };
    let url = "https://eu-shard-kcp.kcp-system.svc.cluster.local:6443";
    let text = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    assert_eq!(found.clusters, text(&[("base", url), ("default", &format!("{url}/clusters/root:a"))]));
    assert_eq!(found.contexts, text(&[("default", "default"), ("base", "base"), ("shard-base", "base")]));
    assert_eq!(found.trusts, [Trust::whole("main-server-ca"), Trust::whole("company")]);
}

#[test]
fn a_cache_in_its_pod_exists_once_and_one_with_an_etcd_as_often_as_git_says() {
    let replicas = |more: Value| {
        let mut spec = json!({"certificates": {"issuerRef": {"name": "selfsigned"}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        plan(&[resource("CacheServer", "cache", spec)], Kind::CacheServer, "cache").deployments[0].replicas
    };
    let etcd = json!({"endpoints": ["https://etcd:2379"]});
    assert_eq!(replicas(json!({})), Replicas::AtMost(1));
    assert_eq!(replicas(json!({"etcd": etcd})), Replicas::Fixed(2));
    assert_eq!(replicas(json!({"etcd": etcd, "replicas": 3})), Replicas::Fixed(3));
}

#[test]
fn a_certificate_has_the_labels_of_its_kubeconfig_but_not_who_owns_that() {
    let spec = json!({"target": {"rootShardRef": {"name": "main"}}, "username": "a", "validity": "2h",
        "secretRef": {"name": "out"}});
    let mut kubeconfig = resource("Kubeconfig", "admin", spec);
    kubeconfig["metadata"]["labels"] = json!({"team": "a", "tidegate.dev/source": "kcp-system.landscape"});
    let plan = plan(&[root(json!({})), kubeconfig], Kind::Kubeconfig, "admin");
    let labels: Vec<&str> = certificate(&plan, "kubeconfig-cert-admin").labels.keys().map(String::as_str).collect();
    assert_eq!(labels, ["team"]);
}

fn of_target(kind: &str, name: &str, target: &str, reference: &str) -> Value {
    let mut spec = json!({"target": {target: {"name": reference}}});
    if kind == "VirtualWorkspace" {
        spec["external"] = json!({"hostname": "eu.example.com", "port": 443});
    } else {
        let more = json!({"username": "admin", "validity": "24h", "secretRef": {"name": format!("{name}-kubeconfig")}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    resource(kind, name, spec)
}

fn landscape() -> Resources {
    let cache = json!({"certificates": {"issuerRef": {"name": "selfsigned", "kind": "ClusterIssuer"}}});
    resources(&[
        resource("CacheServer", "cache", cache),
        root(json!({"cache": {"ref": {"name": "cache"}}})),
        shard("eu", json!({})),
        proxy(json!({})),
        of_target("VirtualWorkspace", "workspaces", "shardRef", "eu"),
        of_target("Kubeconfig", "of-proxy", "frontProxyRef", "public"),
        of_target("Kubeconfig", "of-shard", "shardRef", "eu"),
        of_target("Kubeconfig", "lost", "shardRef", "us"),
    ])
}

/// Row 15: nothing goes before what needs it.
#[test]
fn a_resource_stays_while_others_depend_on_it() {
    let resources = landscape();
    let check = |kind: Kind, name: &str, expected: &[&str]| {
        let found = resources.dependents(kind, &Key::new(NAMESPACE, name));
        let found: Vec<String> = found.iter().map(|(kind, key)| format!("{kind} {}", key.name())).collect();
        assert_eq!(found, expected, "{kind} {name}");
    };
    check(Kind::CacheServer, "cache", &["RootShard main"]);
    check(
        Kind::RootShard,
        "main",
        &["FrontProxy public", "Shard eu", "VirtualWorkspace workspaces", "Kubeconfig of-proxy", "Kubeconfig of-shard"],
    );
    check(Kind::FrontProxy, "public", &["Kubeconfig of-proxy"]);
    check(Kind::Shard, "eu", &["VirtualWorkspace workspaces", "Kubeconfig of-shard"]);
    check(Kind::VirtualWorkspace, "workspaces", &[]);
    check(Kind::Kubeconfig, "of-shard", &[]);
}

#[test]
fn the_root_of_a_resource_is_found_through_its_references() {
    let resources = landscape();
    let root = |kind: Kind, name: &str| {
        let found = resources.root_of(kind, &Key::new(NAMESPACE, name));
        found.map(|(key, secret)| format!("{} {secret}", key.name()))
    };
    for (kind, name) in [
        (Kind::RootShard, "main"),
        (Kind::Shard, "eu"),
        (Kind::FrontProxy, "public"),
        (Kind::VirtualWorkspace, "workspaces"),
        (Kind::Kubeconfig, "of-proxy"),
        (Kind::Kubeconfig, "of-shard"),
    ] {
        assert_eq!(root(kind, name).as_deref(), Some("main main-ca"), "{kind} {name}");
    }
    assert_eq!(root(Kind::CacheServer, "cache"), None);
    assert_eq!(root(Kind::Kubeconfig, "lost"), None, "its Shard does not exist");
}

#[test]
fn the_secret_behind_an_issuer_is_known_for_the_issuers_of_a_landscape() {
    let resources = resources(&[root(json!({"certificates": {"caSecretRef": {"name": "company-ca"}}}))]);
    let secret = |name: &str, kind: &str| {
        let issuer = IssuerRef { name: name.to_owned(), kind: kind.to_owned(), group: "cert-manager.io".to_owned() };
        resources.secret_of_issuer(NAMESPACE, &issuer)
    };
    assert_eq!(secret("main-ca", "Issuer").as_deref(), Some("company-ca"));
    assert_eq!(secret("main-client-ca", "Issuer").as_deref(), Some("main-client-ca"));
    assert_eq!(secret("main-ca", "ClusterIssuer"), None, "another object of that name");
    assert_eq!(secret("of-the-company", "Issuer"), None);
}

#[test]
fn the_kubeconfig_of_a_user_has_its_certificates_and_survives_any_name() {
    let credentials = |user: &str| Credentials {
        certificate: "kubeconfig-cert-admin".to_owned(),
        user: user.to_owned(),
        clusters: vec![("base".to_owned(), "https://kcp:443".to_owned())],
        contexts: vec![("default".to_owned(), "base".to_owned()), ("base".to_owned(), "base".to_owned())],
        trusts: Vec::new(),
    };
    let text = credentials("admin@example.com").to_text("CA", b"certificate", b"key");
    let expected = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: Q0E=\n    server: \
                    https://kcp:443\n  name: base\ncontexts:\n- context:\n    cluster: base\n    user: \
                    admin@example.com\n  name: base\n- context:\n    cluster: base\n    user: admin@example.com\n  \
                    name: default\ncurrent-context: default\nkind: Config\nusers:\n- name: admin@example.com\n  \
                    user:\n    client-certificate-data: Y2VydGlmaWNhdGU=\n    client-key-data: a2V5\n";
    assert_eq!(text, expected);
    for user in ["no", "system:a: b", "\"#", "1e3", "a\nb"] {
        let text = credentials(user).to_text("CA", b"certificate", b"key");
        let documents = crate::yaml::parse(&text, &crate::yaml::Limits::default()).expect("YAML");
        assert_eq!(documents[0].to_json()["users"][0]["name"], user);
    }
}

/// A resource with one of our annotations.
fn with(mut document: Value, annotation: &str, value: &str) -> Value {
    document["metadata"]["annotations"][annotation] = value.into();
    document
}

fn server(more: Value) -> Value {
    let mut spec =
        json!({"target": {"shardRef": {"name": "eu"}}, "external": {"hostname": "vw.example.com", "port": 443}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    resource("VirtualWorkspace", "vw", spec)
}

#[test]
fn row_21_the_certificate_that_nothing_mounts_can_be_left_out() {
    let unused = annotation::VIRTUAL_WORKSPACES_CERTIFICATE;
    for value in ["enabled", "disabled"] {
        let documents = [with(root(json!({})), unused, value), with(shard("eu", json!({})), unused, value)];
        for (kind, name) in [(Kind::RootShard, "main"), (Kind::Shard, "eu")] {
            let plan = plan(&documents, kind, name);
            let certificate = format!("{name}-virtual-workspaces");
            let is_made = plan.certificates.iter().any(|found| found.name == certificate);
            let is_awaited = plan.deployments[0].gates.contains(&Gate::Certificate(certificate));
            assert_eq!((is_made, is_awaited), (value == "enabled", value == "enabled"), "{kind}");
        }
    }
}

#[test]
fn row_32_a_front_proxy_can_do_without_the_path_of_services() {
    let paths = |document: Value| -> Vec<String> {
        let plan = plan(&[root(json!({})), document], Kind::FrontProxy, "public");
        plan.configs[0].mappings.iter().map(|mapping| mapping.path.clone()).collect()
    };
    assert_eq!(paths(proxy(json!({}))), ["/clusters/", "/services/"]);
    assert_eq!(paths(with(proxy(json!({})), annotation::SERVICES_PATH, "disabled")), ["/clusters/"]);
}

#[test]
fn row_33_a_root_shard_can_do_without_its_internal_proxy() {
    let whole = plan(&[root(json!({}))], Kind::RootShard, "main");
    let alone = plan(&[with(root(json!({})), annotation::INTERNAL_PROXY, "disabled")], Kind::RootShard, "main");
    assert_eq!((whole.deployments.len(), alone.deployments.len()), (2, 1));
    let names = |plan: &Plan| -> Vec<String> {
        let certificates = plan.certificates.iter().map(|found| &found.name);
        let names = certificates.chain(plan.secrets.iter().map(|found| &found.name));
        let names = names.chain(plan.configs.iter().map(|found| &found.name));
        names.chain(plan.services.iter().map(|found| &found.name)).cloned().collect()
    };
    assert!(names(&whole).iter().any(|name| name.starts_with("main-proxy")));
    assert!(!names(&alone).iter().any(|name| name.starts_with("main-proxy")));
}

#[test]
fn row_35_a_program_of_ones_own_can_do_without_the_flags_of_kcp() {
    let flags = |document: Value| {
        let documents = [root(json!({"cache": {"ref": {"name": "cache"}}})), shard("eu", json!({})), document, cache()];
        let plan = plan(&documents, Kind::VirtualWorkspace, "vw");
        let has = |flag: &str| args(&plan).iter().any(|arg| arg.starts_with(flag));
        (has("--shard-external-url="), has("--cache-kubeconfig="))
    };
    let own = || server(json!({"command": ["/mine"]}));
    assert_eq!(flags(own()), (true, true));
    assert_eq!(flags(with(own(), annotation::SHARD_FLAGS, "disabled")), (false, false));
    // The program of kcp needs them.
    assert_eq!(flags(with(server(json!({})), annotation::SHARD_FLAGS, "disabled")), (true, true));
}

fn cache() -> Value {
    resource("CacheServer", "cache", json!({"certificates": {"issuerRef": {"name": "selfsigned"}}}))
}

#[test]
fn row_51_the_service_of_a_front_proxy_can_have_another_port_than_users_see() {
    let port = |document: Value| plan(&[root(json!({})), document], Kind::FrontProxy, "public").services[0].ports[0].1;
    let own = || proxy(json!({"external": {"hostname": "kcp.example.com", "port": 443}}));
    assert_eq!(port(own()), 443);
    assert_eq!(port(with(own(), annotation::SERVICE_PORT, "8443")), 8443);
}

#[test]
fn row_62_pods_can_be_hardened() {
    let is_hardened = |document: Value| {
        let plan = plan(&[document], Kind::RootShard, "main");
        plan.deployments.iter().map(|deployment| deployment.is_hardened).collect::<Vec<_>>()
    };
    assert_eq!(is_hardened(root(json!({}))), [false, false]);
    assert_eq!(is_hardened(with(root(json!({})), annotation::HARDENING, "enabled")), [true, true]);
}

#[test]
fn row_63_servers_of_virtual_workspaces_can_have_probes() {
    let probes = |document: Value| {
        let documents = [root(json!({})), shard("eu", json!({})), document];
        plan(&documents, Kind::VirtualWorkspace, "vw").deployments[0].container.probes
    };
    assert_eq!(probes(server(json!({}))), Probes::None);
    assert_eq!(probes(with(server(json!({})), annotation::PROBES, "enabled")), Probes::Simple);
}

#[test]
fn row_64_evictions_can_have_a_limit() {
    let budgets = |document: Value| plan(&[document], Kind::RootShard, "main").budgets;
    assert_eq!(budgets(root(json!({}))), []);
    for (value, expected) in [("1", json!(1)), ("25%", json!("25%"))] {
        let found = budgets(with(root(json!({})), annotation::POD_DISRUPTION_BUDGET, value));
        let found: Vec<_> = found.into_iter().map(|budget| (budget.name, budget.max_unavailable)).collect();
        assert_eq!(found, ["main-kcp", "main-proxy"].map(|name| (name.to_owned(), expected.clone())));
    }
}

#[test]
fn row_77_a_root_shard_can_forward_requests_for_mounts() {
    let has_mounts = |document: Value| {
        let plan = plan(&[document], Kind::RootShard, "main");
        let has_flag = args(&plan).iter().any(|arg| arg.starts_with("--mount-proxy-client-cert-file="));
        let is_mounted = plan.deployments[0].volumes.iter().any(|volume| volume.name == "mounts-proxy-cert");
        (plan.certificates.iter().any(|found| found.name == "main-mounts-proxy"), has_flag, is_mounted)
    };
    let on = |tag: &str| with(root(json!({"image": {"tag": tag}})), annotation::MOUNTS_PROXY, "enabled");
    assert_eq!(has_mounts(root(json!({"image": {"tag": "v0.33.0"}}))), (false, false, false));
    assert_eq!(has_mounts(on("v0.33.0")), (true, true, true));
    // That version does not know the flags.
    assert_eq!(has_mounts(on("v0.31.0")), (false, false, false));
}

#[test]
fn a_resource_with_an_unknown_annotation_or_value_has_no_plan() {
    #[track_caller]
    fn check(document: Value, expected: &str) {
        let found = wrong(&[root(json!({})), document]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
    let (port, budget) = (annotation::SERVICE_PORT, annotation::POD_DISRUPTION_BUDGET);
    check(with(proxy(json!({})), port, "0"), "must be a port from 1 to 65535, not `0`");
    check(with(proxy(json!({})), port, "70000"), "must be a port from 1 to 65535, not `70000`");
    for value in ["0", "-1", "101%", "0%", "some"] {
        check(with(proxy(json!({})), budget, value), "must be a number of pods or a percentage");
    }
    check(with(proxy(json!({})), annotation::HARDENING, "yes"), "must be `enabled` or `disabled`, not `yes`");
    for value in ["-eu", "", "a/b"] {
        check(with(proxy(json!({})), annotation::CLUSTER, value), "must be the name of a cluster, for example `eu`");
    }
    check(with(proxy(json!({})), annotation::PROBES, "enabled"), "Tidegate has no annotation");
    check(
        with(proxy(json!({})), "tidegate.dev/hardenning", "enabled"),
        "no annotation `tidegate.dev/hardenning` for a",
    );
    // Others may write what they like, and so does Tidegate.
    assert_eq!(wrong(&[root(json!({})), with(proxy(json!({})), "example.org/hardening", "yes")]), [""; 0]);
    assert_eq!(wrong(&[root(json!({})), with(proxy(json!({})), annotation::DIGEST, "abc")]), [""; 0]);
    let documents = [root(json!({})), with(proxy(json!({})), port, "0")];
    let (plans, _) = resources(&documents).plans(&Known::default());
    let kinds: Vec<Kind> = plans.iter().map(|plan| plan.kind).collect();
    assert_eq!(kinds, [Kind::RootShard], "so what exists of it stays");
}

/// Row 39: each target has an address of its own, and annotations set another one.
#[test]
fn r39_the_address_of_each_target_can_be_set() {
    let route = |documents: &[Value], target: Value| {
        let spec = json!({"target": target, "username": "admin", "validity": "24h", "secretRef": {"name": "s"}});
        let mut all = documents.to_vec();
        all.push(resource("Kubeconfig", "admin", spec));
        resources(&all).route_of_kubeconfig(&Key::new("kcp-system", "admin"))
    };
    let with_address = |document: Value| {
        let document = with(document, annotation::KCP_ADDRESS, "kcp.example.com:8443");
        with(document, annotation::KCP_TLS_NAME, "inside.example.com")
    };
    let targets = [
        (root(json!({})), json!({"rootShardRef": {"name": "main"}}), "main-kcp", "main-kcp"),
        (shard("eu", json!({})), json!({"shardRef": {"name": "eu"}}), "eu-shard-kcp", "eu-shard-kcp"),
        (proxy(json!({})), json!({"frontProxyRef": {"name": "public"}}), "main-proxy", "public-front-proxy"),
    ];
    for (document, target, host, deployment) in targets {
        let of = |document: Value| {
            let is_root = document["kind"] == "RootShard";
            let mut all = if is_root { Vec::new() } else { vec![root(json!({}))] };
            all.push(document);
            route(&all, target.clone()).expect("a route")
        };
        let found = of(document.clone());
        assert_eq!(found.url, format!("https://{host}.kcp-system.svc.cluster.local:6443"));
        assert_eq!((found.tls_name, found.credentials.as_str()), (None, "main-kcp-operator"));
        let found = of(with_address(document));
        assert_eq!(found.workspace("root:a"), "https://kcp.example.com:8443/clusters/root:a");
        assert_eq!((found.tls_name.as_deref(), found.deployment.as_str()), (Some("inside.example.com"), deployment));
    }
    let without = with(root(json!({})), annotation::INTERNAL_PROXY, "disabled");
    let target = json!({"frontProxyRef": {"name": "public"}});
    let problem = route(&[without.clone(), proxy(json!({}))], target.clone()).expect_err("there is no proxy");
    assert!(problem.hint.contains("set `tidegate.dev/kcp-address` on FrontProxy public"), "{problem:?}");
    assert!(route(&[without, with_address(proxy(json!({})))], target).is_ok());

    for (value, is_valid) in [("kcp:6443", true), ("[::1]:6443", true), ("https://kcp:6443", false), ("kcp", false)] {
        assert_eq!(Takes::Address.accepts(value), is_valid, "{value}");
    }
}

#[test]
fn row_65_a_reference_leads_to_the_namespace_of_its_resource() {
    let mut all = Resources::default();
    all.insert(Kind::RootShard, &Key::new("elsewhere", "main"), root(json!({}))).expect("a valid resource");
    all.insert(Kind::FrontProxy, &Key::new(NAMESPACE, "public"), proxy(json!({}))).expect("a valid resource");
    let (_, problems) = all.plans(&Known::default());
    let expected = "RootShard kcp-system/main, which FrontProxy kcp-system/public names, does not exist";
    assert_eq!(problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>(), [expected]);
}

/// Row 22: while a CA is being replaced, pods find the former one in another Secret, at the same path.
#[test]
fn while_a_ca_is_replaced_pods_mount_its_trust_secret_and_nothing_else_differs() {
    let accounts = json!({"auth": {"serviceAccount": {"enabled": true}}, "caBundleSecretRef": {"name": "company"}});
    let documents = [root(accounts.clone()), shard("eu", accounts.clone()), proxy(accounts)];
    let known = |name: &str| {
        let trusted =
            Trusted { certificates: "pem".to_owned(), note: "digest everywhere".to_owned(), is_mounted: true };
        Known { trusts: [(Key::new(NAMESPACE, name), trusted)].into(), ..Known::default() }
    };
    let plans = |known: &Known| resources(&documents).plans(known).0;
    let before = plans(&Known::default());
    let secrets = |plans: &[Plan]| -> BTreeSet<String> {
        plans.iter().flat_map(|plan| &plan.secrets).map(|secret| secret.name.clone()).collect()
    };
    let mounts = |plans: &[Plan], secret: &str| -> Vec<String> {
        let deployments = plans.iter().flat_map(|plan| &plan.deployments);
        let mounting = deployments.filter(|found| {
            let text = found.volumes.iter().map(|volume| volume.to_value().to_string()).collect::<String>();
            text.contains(&format!("\"secretName\":\"{secret}\""))
        });
        mounting.map(|found| found.name.clone()).collect()
    };
    for (ca, direct) in [
        ("main-ca", &["main-kcp", "main-proxy", "public-front-proxy", "eu-shard-kcp"] as &[&str]),
        ("main-server-ca", &["main-kcp", "eu-shard-kcp"]),
        ("main-client-ca", &["main-kcp", "eu-shard-kcp"]),
        ("main-requestheader-client-ca", &["main-kcp", "main-proxy", "public-front-proxy", "eu-shard-kcp"]),
        ("main-service-account-ca", &["main-kcp", "eu-shard-kcp"]),
    ] {
        let trust = format!("{ca}-trust");
        let after = plans(&known(&trust));
        assert_eq!(mounts(&before, ca), direct, "{ca}");
        assert_eq!(mounts(&after, &trust), direct, "{ca}");
        assert_eq!(mounts(&after, ca), [""; 0], "{ca}");
        let more: Vec<String> = secrets(&after).difference(&secrets(&before)).cloned().collect();
        assert_eq!(more, [trust.as_str()], "{ca}");
        for (before, after) in before.iter().zip(&after) {
            assert_eq!((&before.certificates, &before.services), (&after.certificates, &after.services));
            let parts = |plan: &Plan| -> Vec<_> {
                let all = plan.deployments.iter();
                all.map(|found| (found.container.args.clone(), found.container.mounts.len())).collect()
            };
            assert_eq!(parts(before), parts(after), "{ca}");
        }
        // What is made of the CA contains both.
        let composed = |plans: &[Plan], secret: &str| {
            let all = plans.iter().flat_map(|plan| &plan.secrets);
            let naming = all.filter(|found| match &found.content {
                Content::Bundle(trusts) => trusts.iter().any(|trust| trust.secret == secret),
                Content::Files(_) | Content::Credentials(_) | Content::Trusted(_) => false,
            });
            naming.map(|found| found.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(composed(&after, &trust), composed(&before, ca), "{ca}");
        assert_eq!(composed(&after, ca), [""; 0], "{ca}");
        // It may be missing meanwhile.
        let gates = after.iter().flat_map(|plan| &plan.deployments).flat_map(|found| &found.gates);
        assert!(!gates.clone().any(|gate| *gate == Gate::Certificate(ca.to_owned())), "{ca}");
    }

    // A key of service accounts signs in its own pod, and others accept the former one as well.
    let after = plans(&known("eu-service-account-trust"));
    let all = ["main-kcp", "public-front-proxy", "eu-shard-kcp"];
    assert_eq!(mounts(&before, "eu-service-account"), all);
    assert_eq!(mounts(&after, "eu-service-account-trust"), all);
    assert_eq!(mounts(&after, "eu-service-account"), ["eu-shard-kcp"]);
    let shard = after.iter().find(|plan| plan.kind == Kind::Shard).expect("a plan");
    let flag = "--service-account-key-file=/etc/kcp/tls/service-account-trust/tls.crt";
    assert!(args(shard).iter().any(|arg| arg == flag), "{:?}", args(shard));
}

/// Row 22: where a template says that a renewal replaces the key, pods never mount the Secret of the CA.
#[test]
fn pods_always_mount_a_trust_secret_where_a_template_replaces_keys() {
    let template =
        json!({"certificateTemplates": {"client-ca": {"spec": {"privateKey": {"rotationPolicy": "Always"}}}}});
    let (plans, _) = resources(&[root(template), shard("eu", json!({}))]).plans(&Known::default());
    for plan in &plans {
        let volume = plan.deployments[0].volumes.iter().find(|volume| volume.name == "client-ca").expect("a volume");
        assert_eq!(volume.source, VolumeSource::Secret("main-client-ca-trust".to_owned(), vec!["tls.crt"]));
    }
    let trust = plans[0].secrets.iter().find(|secret| secret.name == "main-client-ca-trust").expect("a Secret");
    let first = Trust { secret: "main-client-ca".to_owned(), only_first: true };
    assert_eq!(trust.content, Content::Bundle(vec![first]));
    let anchors = resources(&[root(json!({}))]).anchors(NAMESPACE);
    assert!(anchors.iter().all(|anchor| !anchor.rotates && !anchor.is_copied(&Known::default())));
}

/// Row 22: what a CA signs and who trusts it follows from the plans.
#[test]
fn what_depends_on_a_ca_is_found_in_the_plans() {
    let user = json!({"target": {"frontProxyRef": {"name": "public"}}, "username": "admin", "validity": "8766h",
        "secretRef": {"name": "admin-kubeconfig"}});
    let documents = [root(json!({})), shard("eu", json!({})), proxy(json!({})), resource("Kubeconfig", "admin", user)];
    let resources = resources(&documents);
    let (plans, problems) = resources.plans(&Known::default());
    assert_eq!(problems, []);
    let anchors = resources.anchors(NAMESPACE);
    let of = |secret: &str| {
        let anchor = anchors.iter().find(|anchor| anchor.secret == secret).expect("an anchor");
        anchor.dependents(&resources, &plans)
    };
    let names: Vec<&str> = anchors.iter().map(|anchor| anchor.secret.as_str()).collect();
    let expected = [
        "main-ca",
        "main-server-ca",
        "main-requestheader-client-ca",
        "main-client-ca",
        "main-service-account-ca",
        "main-service-account",
        "eu-service-account",
    ];
    assert_eq!(names, expected);

    let everything = ["eu-shard-kcp", "main-kcp", "main-proxy", "public-front-proxy"];
    let client = of("main-client-ca");
    let depth = |found: &Dependents, name: &str| found.signed.get(name).copied();
    assert_eq!((depth(&client, "eu-client"), depth(&client, "eu-server")), (Some(1), None));
    let composed = |has_anchor, certificate: Option<&str>| {
        Some(Composed { has_anchor, certificate: certificate.map(str::to_owned) })
    };
    let secret = |found: &Dependents, name: &str| found.composed.get(name).cloned();
    assert_eq!(secret(&client, "public-merged-client-ca"), composed(true, None));
    assert_eq!(secret(&client, "admin-kubeconfig"), composed(false, Some("kubeconfig-cert-admin")));
    assert_eq!(client.deployments.keys().collect::<Vec<_>>(), everything);
    let server = of("main-server-ca");
    assert_eq!(secret(&server, "admin-kubeconfig"), composed(true, None));
    assert_eq!(depth(&server, "main-public-server"), Some(1));

    let root = of("main-ca");
    assert_eq!((depth(&root, "main-client-ca"), depth(&root, "eu-client")), (Some(1), Some(2)));
    assert_eq!(root.deployments.keys().collect::<Vec<_>>(), everything);
    assert_eq!(of("eu-service-account").deployments.keys().collect::<Vec<_>>(), ["eu-shard-kcp"]);
}
