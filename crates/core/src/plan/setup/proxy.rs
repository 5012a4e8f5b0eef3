//! The objects of a FrontProxy, and those of the internal proxy of a RootShard.

use k8s_openapi::api::core::v1::{ResourceRequirements, Volume as UserVolume, VolumeMount};

use super::{
    Config, Content, Kind, Labels, Plan, Planner, Problem, Root, Secret, Trust, certificate,
    kubeconfig::FileKubeconfig,
    name, named,
    version::{self, Feature, KcpVersion},
    workload::{self, Container, Frame, Pod, Probes, VolumeSource},
};
use crate::{
    api::{
        names::annotation,
        setup::{
            Auth, CertificateTemplates, DeploymentTemplate, FrontProxy, FrontProxySpec, Image, Logging, PathMapping,
            ProxySpec, ServiceTemplate,
        },
    },
    name::Key,
};

const REQUEST_HEADERS: [&str; 3] = [
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
];
/// Where the proxies' own files are.
const FOLDER: &str = "/etc/kcp-front-proxy";
/// Where their CAs are.
const CA_FOLDER: &str = "/etc/kcp/tls/ca";

/// A front proxy, or the internal proxy of a RootShard.
struct Proxy<'a> {
    kind: Kind,
    /// The resource that it belongs to.
    key: &'a Key,
    root: Root<'a>,
    /// Name of its Deployment and Service.
    service: String,
    /// Prefix of its certificates and its kubeconfigs.
    prefix: String,
    /// Prefix of its other objects.
    short: String,
    component: &'static str,
    common_name: &'static str,
    rows: &'static [certificate::Row],
    /// Labels of the Secrets with its certificates, and of its bundles.
    identity: Labels,
    bundle_identity: Labels,
    server_names: Vec<String>,
    ca_bundle: Option<&'a str>,
    client_cas: Vec<Trust>,
    /// The volume of the root CA, and the CA of servers.
    root_ca: VolumeSource,
    server_ca: Trust,
    /// The Secret with the CA of the identities that other proxies forward, and its volume.
    request_header_ca: (String, VolumeSource),
    port: i32,
    /// Whether it forwards `/services/`.
    has_services: bool,
    auth: Option<&'a Auth>,
    mappings: &'a [PathMapping],
    image: Option<&'a Image>,
    replicas: Option<i32>,
    resources: Option<&'a ResourceRequirements>,
    service_template: Option<&'a ServiceTemplate>,
    deployment_template: Option<&'a DeploymentTemplate>,
    certificate_templates: &'a CertificateTemplates,
    extra_args: &'a [String],
    extra_volumes: &'a [UserVolume],
    extra_volume_mounts: &'a [VolumeMount],
    logging: Option<&'a Logging>,
    /// Name and URL of each shard, for versions that need them.
    peers: Vec<(String, String)>,
}

impl Planner<'_> {
    /// The objects of a FrontProxy.
    pub(super) fn front_proxy(&self, key: &Key, proxy: &FrontProxy) -> Result<Plan, Problem> {
        let (spec, opt_ins) = (&proxy.spec, self.opt_ins(Kind::FrontProxy, key));
        let root = self.root(Kind::FrontProxy, key, spec.root_shard.reference.as_ref())?;
        let (name, root_name) = (key.name(), root.key.name());
        let bundles = [root.shard.spec.common.client_ca_bundle_ref.as_ref(), spec.client_ca_bundle_ref.as_ref()];
        let service = format!("{name}-front-proxy");
        let built = Proxy {
            kind: Kind::FrontProxy,
            key,
            root,
            server_names: proxy_names(&service, root, spec),
            service,
            prefix: format!("{root_name}-{name}"),
            short: name.to_owned(),
            component: "front-proxy",
            common_name: "kcp-front-proxy",
            rows: certificate::FRONT_PROXY,
            identity: name::identity([("rootshard", root_name), ("front-proxy", name)]),
            bundle_identity: name::identity([("front-proxy", name)]),
            ca_bundle: named(spec.ca_bundle_secret_ref.as_ref()),
            client_cas: self.client_cas(root, bundles),
            root_ca: self.root_ca(root),
            server_ca: self.sub_ca_trust(root, "server"),
            request_header_ca: self.sub_ca(root, "requestheader-client"),
            port: opt_ins.service_port().unwrap_or_else(|| port(spec, root)),
            has_services: !opt_ins.is_disabled(annotation::SERVICES_PATH),
            auth: spec.auth.as_ref(),
            mappings: &spec.additional_path_mappings,
            image: spec.image.as_ref(),
            replicas: spec.replicas,
            resources: spec.resources.as_ref(),
            service_template: spec.service_template.as_ref(),
            deployment_template: spec.deployment_template.as_ref(),
            certificate_templates: &spec.certificate_templates,
            extra_args: &spec.extra_args,
            extra_volumes: &spec.extra_volumes,
            extra_volume_mounts: &spec.extra_volume_mounts,
            logging: spec.logging.as_ref(),
            peers: self.peers(Kind::FrontProxy, key, root, spec.image.as_ref())?,
        };
        let plan = Plan::new(Kind::FrontProxy, key);
        Ok(self.proxy(plan, built).with_gates())
    }

    /// Adds the internal proxy of a RootShard to its plan.
    pub(super) fn internal_proxy(&self, plan: Plan, root: Root<'_>) -> Result<Plan, Problem> {
        if self.opt_ins(Kind::RootShard, root.key).is_disabled(annotation::INTERNAL_PROXY) {
            return Ok(plan);
        }
        let default = ProxySpec::default();
        let spec = root.shard.spec.proxy.as_ref().unwrap_or(&default);
        let common = &root.shard.spec.common;
        let service = format!("{}-proxy", root.key.name());
        let identity = name::identity([("rootshard", root.key.name())]);
        let built = Proxy {
            kind: Kind::RootShard,
            key: root.key,
            root,
            server_names: service_names(&service, root),
            prefix: service.clone(),
            short: service.clone(),
            service,
            component: "rootshard-proxy",
            common_name: "kcp-root-shard-proxy",
            rows: certificate::INTERNAL_PROXY,
            identity: identity.clone(),
            bundle_identity: identity,
            ca_bundle: named(common.ca_bundle_secret_ref.as_ref()),
            client_cas: self.client_cas(root, [common.client_ca_bundle_ref.as_ref()]),
            root_ca: self.root_ca(root),
            server_ca: self.sub_ca_trust(root, "server"),
            request_header_ca: self.sub_ca(root, "requestheader-client"),
            port: name::PORT,
            has_services: true,
            auth: None,
            mappings: &[],
            image: spec.image.as_ref(),
            replicas: spec.replicas,
            resources: spec.resources.as_ref(),
            service_template: spec.service_template.as_ref(),
            deployment_template: spec.deployment_template.as_ref(),
            certificate_templates: &spec.certificate_templates,
            extra_args: &spec.extra_args,
            extra_volumes: &spec.extra_volumes,
            extra_volume_mounts: &spec.extra_volume_mounts,
            logging: spec.logging.as_ref(),
            peers: self.peers(Kind::RootShard, root.key, root, spec.image.as_ref())?,
        };
        Ok(self.proxy(plan, built))
    }

    /// The addresses of all shards, for proxies that read their workspaces.
    fn peers(
        &self,
        kind: Kind,
        key: &Key,
        root: Root<'_>,
        image: Option<&Image>,
    ) -> Result<Vec<(String, String)>, Problem> {
        if !KcpVersion::of_image(image).has(Feature::ShardPeers) {
            return Ok(Vec::new());
        }
        let common = &root.shard.spec.common;
        let url = |server: Option<&crate::api::setup::VirtualWorkspace>, own: String| {
            server.map_or(own, |server| name::external_url(&server.spec.external))
        };
        let own = name::root_url(root.key, root.shard);
        let mut peers = vec![("root".to_owned(), url(self.virtual_workspace_of(kind, key, common)?, own))];
        for (shard_key, shard) in self.resources.shards_of(root.key) {
            let server = self.virtual_workspace_of(Kind::Shard, shard_key, &shard.spec.common)?;
            peers.push((shard_key.name().to_owned(), url(server, name::shard_url(shard_key, shard))));
        }
        Ok(peers)
    }

    fn proxy(&self, mut plan: Plan, proxy: Proxy<'_>) -> Plan {
        let root = proxy.root;
        let labels = name::labels(proxy.component, proxy.key.name());
        let of = certificate::Of {
            kind: proxy.kind,
            key: proxy.key,
            prefix: proxy.prefix.clone(),
            labels: labels.clone(),
            secret_labels: proxy.identity.clone(),
            templates: proxy.certificate_templates,
            server_names: proxy.server_names.clone(),
            virtual_names: Vec::new(),
        };
        plan.certificates.extend(of.table(root, proxy.rows));
        plan.secrets.extend(proxy_secrets(&proxy, &labels));
        plan.configs.push(Config {
            name: format!("{}-config", proxy.short),
            labels: labels.clone(),
            mappings: path_mappings(&proxy),
        });
        let pod = proxy_pod(&proxy, &self.signers(root));
        let container = Container {
            name: "kcp-front-proxy".to_owned(),
            image: version::image(proxy.image),
            command: vec!["/kcp-front-proxy".to_owned()],
            args: pod.args,
            resources: workload::resources(None, proxy.resources),
            mounts: pod.mounts,
            probes: Probes::Simple,
        };
        let frame = Frame {
            name: proxy.service.clone(),
            labels: labels.clone(),
            own_labels: Labels::new(),
            template: proxy.deployment_template,
            image: proxy.image,
            replicas: workload::replicas(proxy.replicas),
        };
        plan.deployments.push(frame.deployment(container, pod.volumes));
        let ports = vec![("https", proxy.port, name::PORT)];
        plan.services.push(workload::service(proxy.service, labels, proxy.service_template, ports));
        plan
    }
}

/// The bundles of CAs and the kubeconfigs of a proxy.
fn proxy_secrets(proxy: &Proxy<'_>, labels: &Labels) -> Vec<Secret> {
    let root = proxy.root;
    let mut secrets = Vec::new();
    if let Some(bundle) = proxy.ca_bundle {
        let trusts = vec![proxy.server_ca.clone(), Trust::whole(bundle)];
        let name = format!("{}-merged-ca-bundle", proxy.short);
        secrets.push(Secret::bundle(name, proxy.bundle_identity.clone(), trusts));
    }
    let name = format!("{}-merged-client-ca", proxy.short);
    secrets.push(Secret::bundle(name, proxy.bundle_identity.clone(), proxy.client_cas.clone()));
    let kubeconfig = |name: &str, clusters, context: &str, ca: String| Secret {
        name: format!("{}-{name}-kubeconfig", proxy.prefix),
        labels: labels.clone(),
        content: Content::Files(FileKubeconfig {
            clusters,
            ca,
            context: context.to_owned(),
            user: "admin".to_owned(),
            credentials: format!("{FOLDER}/kubeconfig-client-cert"),
            is_typed: false,
        }),
    };
    let (server, ca) = (name::root_url(root.key, root.shard), backend_ca(proxy.ca_bundle.is_some()));
    secrets.push(kubeconfig("dynamic", vec![("system:admin".to_owned(), server)], "system:admin", ca));
    if !proxy.peers.is_empty() {
        secrets.push(kubeconfig("peers", proxy.peers.clone(), "peers", format!("{CA_FOLDER}/tls.crt")));
    }
    secrets
}

/// Arguments, volumes and mounts of a proxy.
fn proxy_pod(proxy: &Proxy<'_>, signers: &[(String, VolumeSource)]) -> Pod {
    let (root, prefix, short) = (proxy.root, &proxy.prefix, &proxy.short);
    let has_mounts = KcpVersion::of_image(proxy.image).has(Feature::MountProxy);
    let mut pod = Pod::default();
    let kubeconfig = format!("{FOLDER}/kubeconfig/kubeconfig");
    pod.arg(format!("--secure-port={}", name::PORT));
    pod.arg(format!("--root-kubeconfig={kubeconfig}"));
    pod.arg(format!("--shards-kubeconfig={kubeconfig}"));
    pod.arg(format!("--tls-private-key-file={FOLDER}/tls/tls.key"));
    pod.arg(format!("--tls-cert-file={FOLDER}/tls/tls.crt"));
    pod.arg(format!("--mapping-file={FOLDER}/config/path-mapping.yaml"));
    pod.arg(format!("--client-ca-file={FOLDER}/client-ca/tls.crt"));
    if has_mounts {
        pod.arg(format!("--requestheader-client-ca-file={CA_FOLDER}/requestheader-client/tls.crt"));
        pod.arg(format!("--requestheader-allowed-names={},kcp-mounts-proxy", proxy.common_name));
        REQUEST_HEADERS.into_iter().for_each(|arg| pod.arg(arg));
    }
    if !proxy.peers.is_empty() {
        pod.arg(format!("--shard-peer-kubeconfig={FOLDER}/peers-kubeconfig/kubeconfig"));
    }
    // Upstream writes the lists in quotes, and kcp reads them as one group. An empty list is no flag.
    if let Some(auth) = proxy.auth {
        for (flag, groups) in [("drop", &auth.drop_groups), ("pass-on", &auth.pass_on_groups)] {
            if !groups.is_empty() {
                pod.arg(format!("--authentication-{flag}-groups={}", groups.join(",")));
            }
        }
    }
    pod.logging(proxy.logging, proxy.extra_args);
    pod.extra_volumes(proxy.extra_volumes, proxy.extra_volume_mounts);
    let root_ca = name::root_ca(root.key, root.shard);
    let dynamic = format!("{prefix}-dynamic-kubeconfig");
    pod.volume(&dynamic, VolumeSource::Secret(dynamic.clone(), vec!["kubeconfig"]));
    pod.mounts.push(workload::mount(&dynamic, &format!("{FOLDER}/kubeconfig"), false));
    for (suffix, folder) in
        [("kubeconfig", "kubeconfig-client-cert"), ("server", "tls"), ("requestheader", "requestheader-client")]
    {
        let secret = format!("{prefix}-{suffix}");
        pod.pair(&secret, &secret, &format!("{FOLDER}/{folder}"));
    }
    pod.mount(&root_ca, proxy.root_ca.clone(), CA_FOLDER);
    if has_mounts {
        let (secret, source) = proxy.request_header_ca.clone();
        pod.mount(&secret, source, &format!("{CA_FOLDER}/requestheader-client"));
    }
    if proxy.ca_bundle.is_some() {
        let secret = format!("{short}-merged-ca-bundle");
        pod.bundle(&secret, &secret, &format!("{CA_FOLDER}/ca-bundle"));
    }
    let client_ca = format!("{short}-merged-client-ca");
    pod.bundle(&client_ca, &client_ca, &format!("{FOLDER}/client-ca"));
    let config = format!("{short}-config");
    let source = VolumeSource::ConfigMap(config.clone(), "path-mapping.yaml".to_owned());
    pod.mount(&config, source, &format!("{FOLDER}/config"));
    if !proxy.peers.is_empty() {
        let secret = format!("{prefix}-peers-kubeconfig");
        pod.kubeconfig(&secret, &secret, &format!("{FOLDER}/peers-kubeconfig"));
    }
    if let Some(auth) = proxy.auth {
        pod.auth(auth, signers);
    }
    pod
}

/// The paths of a proxy and where requests for them go.
fn path_mappings(proxy: &Proxy<'_>) -> Vec<PathMapping> {
    let own = if proxy.has_services { &["/clusters/", "/services/"][..] } else { &["/clusters/"] };
    let own = own.iter().map(|&path| PathMapping {
        backend: name::root_url(proxy.root.key, proxy.root.shard),
        backend_server_ca: backend_ca(proxy.ca_bundle.is_some()),
        path: path.to_owned(),
        proxy_client_cert: format!("{FOLDER}/requestheader-client/tls.crt"),
        proxy_client_key: format!("{FOLDER}/requestheader-client/tls.key"),
    });
    own.chain(proxy.mappings.iter().cloned()).collect()
}

/// The file with the CA of the root shard.
fn backend_ca(has_bundle: bool) -> String {
    format!("{CA_FOLDER}/{}", if has_bundle { "ca-bundle/tls.crt" } else { "tls.crt" })
}

/// The names of a Service in the domain of the RootShard.
fn service_names(service: &str, root: Root<'_>) -> Vec<String> {
    let namespace = root.key.namespace();
    let host = name::host(service, namespace, &root.shard.spec.common.cluster_domain);
    vec![service.to_owned(), format!("{service}.{namespace}"), host]
}

/// The DNS names of a FrontProxy, in this order and without duplicates.
fn proxy_names(service: &str, root: Root<'_>, spec: &FrontProxySpec) -> Vec<String> {
    let external = &root.shard.spec.external;
    let own = match &spec.external {
        _ if !spec.external_hostname.is_empty() => {
            spec.external_hostname.split_once(':').map_or(spec.external_hostname.as_str(), |(host, _)| host)
        }
        Some(external) => &external.hostname,
        None => "",
    };
    let mut names = service_names(service, root);
    for more in [external.hostname.as_str(), &external.private_hostname, own] {
        if !more.is_empty() && !names.iter().any(|name| name == more) {
            names.push(more.to_owned());
        }
    }
    names
}

/// The port of the Service of a FrontProxy.
fn port(spec: &FrontProxySpec, root: Root<'_>) -> i32 {
    if let Some(port) = spec.external.as_ref().map(|external| external.port).filter(|&port| 0 < port) {
        return port;
    }
    if !spec.external_hostname.is_empty() {
        let port = spec.external_hostname.split_once(':').and_then(|(_, port)| port.parse().ok());
        return port.unwrap_or(name::PORT);
    }
    Some(root.shard.spec.external.port).filter(|&port| 0 < port).unwrap_or(name::PORT)
}
