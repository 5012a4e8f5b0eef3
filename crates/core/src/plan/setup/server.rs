//! The objects of cache servers, shards and servers of virtual workspaces.

use super::{
    Content, Issuer, Kind, Labels, Plan, Planner, Problem, Root, Secret, Trust, certificate,
    kubeconfig::FileKubeconfig,
    name, named,
    option::OptIns,
    overlap,
    version::{self, Feature, KcpVersion},
    workload::{self, Container, Deployment, Frame, Pod, Probes, Replicas, VolumeSource},
};
use crate::{
    api::{
        names::annotation,
        setup::{CacheServer, CommonShardSpec, LocalRef, RootShard, Shard, VirtualWorkspace},
    },
    name::Key,
};

/// The arguments of every shard, in order, before those of its kind.
const SHARD_ARGS: [&str; 14] = [
    "--root-ca-file=/etc/kcp/tls/ca/root/tls.crt",
    "--client-ca-file=/etc/kcp/tls/ca/client/tls.crt",
    "--requestheader-client-ca-file=/etc/kcp/tls/ca/requestheader-client/tls.crt",
    "--requestheader-allowed-names=kcp-front-proxy,kcp-root-shard-proxy",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    "--tls-private-key-file=/etc/kcp/tls/server/tls.key",
    "--tls-cert-file=/etc/kcp/tls/server/tls.crt",
    "--service-account-key-file=/etc/kcp/tls/service-account/tls.crt",
    "--service-account-private-key-file=/etc/kcp/tls/service-account/tls.key",
    "--service-account-lookup=false",
    "--shard-client-key-file=/etc/kcp/tls/client/tls.key",
    "--shard-client-cert-file=/etc/kcp/tls/client/tls.crt",
];
/// The last arguments of every shard.
const LAST_SHARD_ARGS: [&str; 6] = [
    "--logical-cluster-admin-kubeconfig=/etc/kcp/logical-cluster-admin-kubeconfig/kubeconfig",
    "--external-logical-cluster-admin-kubeconfig=/etc/kcp/external-logical-cluster-admin-kubeconfig/kubeconfig",
    "--batteries-included=workspace-types",
    "--root-directory=",
    "--enable-leader-election=true",
    "--logging-format=json",
];
/// The arguments of a shard that forwards requests for mounts.
const MOUNTS_PROXY_ARGS: [&str; 2] = [
    "--mount-proxy-client-cert-file=/etc/kcp/tls/mounts-proxy/tls.crt",
    "--mount-proxy-client-key-file=/etc/kcp/tls/mounts-proxy/tls.key",
];
const CACHE_KUBECONFIG: &str = "/etc/cache-server/kubeconfig/kubeconfig";
const SERVER_CA: &str = "/etc/kcp/tls/ca/server/tls.crt";
const MERGED_SERVER_CA: &str = "/etc/kcp/tls/ca/ca-bundle/tls.crt";

/// A root shard or a shard.
struct AnyShard<'a> {
    key: &'a Key,
    root: Root<'a>,
    common: &'a CommonShardSpec,
    service: String,
    labels: Labels,
    identity: Labels,
    /// The labels of bundles.
    bundle_identity: Labels,
    /// The bundles of client CAs that it accepts.
    client_bundles: Vec<Option<&'a LocalRef>>,
    /// The CacheServer that it uses.
    cache: Option<&'a str>,
    virtual_workspace: Option<&'a VirtualWorkspace>,
}

impl Planner<'_> {
    /// The objects of a CacheServer.
    pub(super) fn cache_server(&self, key: &Key, cache: &CacheServer) -> Plan {
        let spec = &cache.spec;
        let (name, kind) = (key.name(), Kind::CacheServer);
        let labels = name::labels("cache-server", name);
        let service = name::cache_service(name);
        let host = name::host(&service, key.namespace(), &spec.cluster_domain);
        let identity = name::identity([("cache-server", name)]);
        let ca = format!("{name}-ca");
        let given = named(spec.certificates.ca_secret_ref.as_ref());
        let ca_secret = given.unwrap_or(&ca).to_owned();
        let of = certificate::Of {
            kind,
            key,
            prefix: name.to_owned(),
            labels: labels.clone(),
            secret_labels: identity.clone(),
            templates: &spec.certificate_templates,
            server_names: vec!["localhost".to_owned(), host.clone()],
            virtual_names: Vec::new(),
        };
        let mut plan = Plan::new(kind, key);
        plan.issuers.push(Issuer { name: ca.clone(), secret: ca_secret.clone(), labels: labels.clone() });
        plan.certificates
            .extend(spec.certificates.issuer_ref.as_ref().map(|issuer| of.ca("ca", "root-ca", Ok(issuer))));
        plan.certificates.push(of.of_cache("server", "server", &ca));
        plan.certificates.push(of.of_cache("client-certificate", "client", &ca));
        plan.secrets.extend(self.trust_secret(key, (&ca, &ca_secret), cache_ca_rotates(cache), &identity));
        plan.secrets.push(Secret {
            name: format!("{name}-kubeconfig"),
            labels: identity,
            content: Content::Files(FileKubeconfig {
                clusters: vec![("cache".to_owned(), format!("https://{host}:{}", name::PORT))],
                ca: "/etc/cache-server/tls/ca/root/tls.crt".to_owned(),
                context: "cache".to_owned(),
                user: "cache".to_owned(),
                credentials: "/etc/cache-server/tls/client-certificate".to_owned(),
                is_typed: true,
            }),
        });
        plan.deployments.push(cache_deployment(key, cache, self.cache_ca(key, cache), &service, &labels));
        let ports = vec![("https", name::PORT, name::PORT)];
        plan.services.push(workload::service(service, labels, spec.service_template.as_ref(), ports));
        plan.with_gates()
    }

    /// The objects of a RootShard, those of its PKI and of its internal proxy included.
    pub(super) fn root_shard(&self, key: &Key, shard: &RootShard) -> Result<Plan, Problem> {
        let (spec, name) = (&shard.spec, key.name());
        let common = &spec.common;
        let root = Root { key, shard };
        let identity = name::identity([("rootshard", name)]);
        let of_shard = AnyShard {
            key,
            root,
            common,
            service: name::root_service(name),
            labels: name::labels("rootshard", name),
            identity: identity.clone(),
            bundle_identity: identity.clone(),
            client_bundles: vec![common.client_ca_bundle_ref.as_ref()],
            cache: self.cache(Kind::RootShard, key, spec.cache.reference.as_ref())?,
            virtual_workspace: self.virtual_workspace_of(Kind::RootShard, key, common)?,
        };
        let host = name::host(&of_shard.service, key.namespace(), &common.cluster_domain);
        let mut names = vec![host, spec.external.hostname.clone()];
        names.extend(name::url_host(&common.shard_base_url));
        let of = certificate::Of {
            kind: Kind::RootShard,
            key,
            prefix: name.to_owned(),
            labels: of_shard.labels.clone(),
            secret_labels: identity,
            templates: &common.certificate_templates,
            server_names: sorted(names),
            virtual_names: vec![spec.external.hostname.clone()],
        };
        let mut plan = Plan::new(Kind::RootShard, key);
        authorities(&mut plan, root, &of);
        let opt_ins = self.opt_ins(Kind::RootShard, key);
        plan.certificates.extend(of.table(root, certificate::ROOT_SHARD));
        plan.without_unused(opt_ins);
        let has_mounts = opt_ins.is_enabled(annotation::MOUNTS_PROXY)
            && KcpVersion::of_image(common.image.as_ref()).has(Feature::MountProxy);
        if has_mounts {
            plan.certificates.extend(of.table(root, &[certificate::MOUNTS_PROXY]));
        }
        self.trust_secrets(&mut plan, root, &of_shard.identity);
        self.shard_bundles(&mut plan, &of_shard);
        plan.secrets.extend(root_kubeconfigs(&of_shard, shard));
        let mut pod = Pod::default();
        SHARD_ARGS.into_iter().for_each(|arg| pod.arg(arg));
        pod.arg(format!("--shard-base-url={}", name::root_url(key, shard)));
        pod.arg(format!("--shard-external-url={}", name::external_url(&spec.external)));
        LAST_SHARD_ARGS.into_iter().for_each(|arg| pod.arg(arg));
        let mut certificates =
            vec!["server", "service-account", "client", "logical-cluster-admin", "external-logical-cluster-admin"];
        if has_mounts {
            MOUNTS_PROXY_ARGS.into_iter().for_each(|arg| pod.arg(arg));
            certificates.push("mounts-proxy");
        }
        pod.logging(common.logging.as_ref(), &common.extra_args);
        if of_shard.cache.is_some() {
            pod.arg(format!("--cache-kubeconfig={CACHE_KUBECONFIG}"));
        }
        let kubeconfigs = ["logical-cluster-admin", "external-logical-cluster-admin"];
        plan.deployments.push(self.shard_deployment(&of_shard, pod, &kubeconfigs, &certificates));
        plan.services.push(of_shard.service());
        Ok(self.internal_proxy(plan, root)?.with_gates())
    }

    /// The objects of a Shard.
    pub(super) fn shard(&self, key: &Key, shard: &Shard) -> Result<Plan, Problem> {
        let root = self.root(Kind::Shard, key, shard.spec.root_shard.reference.as_ref())?;
        let (common, name) = (&shard.spec.common, key.name());
        let own_cache = shard.spec.cache.as_ref().and_then(|cache| cache.reference.as_ref());
        let cache = own_cache.filter(|own| !own.name.is_empty()).or(root.shard.spec.cache.reference.as_ref());
        let of_shard = AnyShard {
            key,
            root,
            common,
            service: name::shard_service(name),
            labels: name::labels("shard", name),
            identity: name::identity([("rootshard", root.key.name()), ("shard", name)]),
            bundle_identity: name::identity([("shard", name)]),
            client_bundles: vec![
                root.shard.spec.common.client_ca_bundle_ref.as_ref(),
                common.client_ca_bundle_ref.as_ref(),
            ],
            cache: self.cache(Kind::Shard, key, cache)?,
            virtual_workspace: self.virtual_workspace_of(Kind::Shard, key, common)?,
        };
        let host = name::host(&of_shard.service, key.namespace(), &common.cluster_domain);
        let mut names = vec!["localhost".to_owned(), host.clone()];
        names.extend(name::url_host(&common.shard_base_url));
        let of = certificate::Of {
            kind: Kind::Shard,
            key,
            prefix: name.to_owned(),
            labels: of_shard.labels.clone(),
            secret_labels: of_shard.identity.clone(),
            templates: &common.certificate_templates,
            server_names: sorted(names),
            virtual_names: vec![host],
        };
        let mut plan = Plan::new(Kind::Shard, key);
        plan.certificates.extend(of.table(root, certificate::SHARD));
        plan.without_unused(self.opt_ins(Kind::Shard, key));
        plan.secrets.extend(self.key_trust_secret(key, common, &of_shard.identity));
        self.shard_bundles(&mut plan, &of_shard);
        plan.secrets.extend(shard_kubeconfigs(&of_shard, shard));
        let external = &root.shard.spec.external;
        let mut pod = Pod::default();
        SHARD_ARGS.into_iter().for_each(|arg| pod.arg(arg));
        pod.arg(format!("--shard-name={name}"));
        pod.arg(format!("--shard-base-url={}", name::shard_url(key, shard)));
        pod.arg(format!("--shard-external-url={}", name::external_url(external)));
        pod.arg(format!("--external-hostname={}", external.hostname));
        let client = "/etc/kcp/client-kubeconfig/kubeconfig";
        pod.arg(format!("--cache-kubeconfig={}", of_shard.cache.map_or(client, |_| CACHE_KUBECONFIG)));
        pod.arg(format!("--root-shard-kubeconfig-file={client}"));
        LAST_SHARD_ARGS.into_iter().for_each(|arg| pod.arg(arg));
        let mut certificates =
            vec!["server", "service-account", "client", "logical-cluster-admin", "external-logical-cluster-admin"];
        if KcpVersion::of_image(common.image.as_ref()).has(Feature::MountProxy) {
            MOUNTS_PROXY_ARGS.into_iter().for_each(|arg| pod.arg(arg));
            certificates.push("mounts-proxy");
        }
        pod.logging(common.logging.as_ref(), &common.extra_args);
        let kubeconfigs = ["client", "logical-cluster-admin", "external-logical-cluster-admin"];
        plan.deployments.push(self.shard_deployment(&of_shard, pod, &kubeconfigs, &certificates));
        plan.services.push(of_shard.service());
        Ok(plan.with_gates())
    }

    /// The bundles of CAs of a shard.
    fn shard_bundles(&self, plan: &mut Plan, shard: &AnyShard<'_>) {
        let (name, labels) = (shard.key.name(), &shard.bundle_identity);
        if let Some(bundle) = named(shard.common.ca_bundle_secret_ref.as_ref()) {
            let trusts = vec![self.sub_ca_trust(shard.root, "server"), Trust::whole(bundle)];
            plan.secrets.push(Secret::bundle(format!("{name}-merged-ca-bundle"), labels.clone(), trusts));
        }
        if shard.has_client_bundle() {
            let trusts = self.client_cas(shard.root, shard.client_bundles.iter().copied());
            plan.secrets.push(Secret::bundle(format!("{name}-merged-client-ca"), labels.clone(), trusts));
        }
    }

    /// The CacheServer that a reference names.
    fn cache<'r>(&self, kind: Kind, key: &Key, reference: Option<&'r LocalRef>) -> Result<Option<&'r str>, Problem> {
        let Some(name) = named(reference) else { return Ok(None) };
        let wanted = Key::new(key.namespace(), name);
        if self.resources.cache_servers.contains_key(&wanted) {
            return Ok(Some(name));
        }
        Err(super::missing(kind, key, "spec.cache.ref.name", Kind::CacheServer, &wanted))
    }

    /// The Deployment of a shard. The pod has the arguments of its kind.
    fn shard_deployment(
        &self,
        shard: &AnyShard<'_>,
        mut pod: Pod,
        kubeconfigs: &[&str],
        certificates: &[&str],
    ) -> Deployment {
        let common = shard.common;
        if let Some(server) = shard.virtual_workspace {
            pod.arg("--run-virtual-workspaces=false");
            pod.arg(format!("--shard-virtual-workspace-url={}", name::external_url(&server.spec.external)));
            pod.arg(format!("--shard-virtual-workspace-ca-file={SERVER_CA}"));
        }
        self.shard_volumes(shard, &mut pod, kubeconfigs, certificates);
        let accounts = service_account(shard.key);
        if let Some(trust) = self.trust_of(shard.key.namespace(), &accounts, overlap::key_rotates(common)) {
            // Tokens of the former key are valid as well.
            pod.bundle("service-account-trust", &trust, "/etc/kcp/tls/service-account-trust");
            pod.arg("--service-account-key-file=/etc/kcp/tls/service-account-trust/tls.crt");
        }
        pod.etcd(&common.etcd);
        if let Some(audit) = &common.audit {
            pod.audit(audit);
        }
        if let Some(authorization) = &common.authorization {
            pod.authorization(authorization);
        }
        pod.extra_volumes(&common.extra_volumes, &common.extra_volume_mounts);
        if let Some(auth) = &common.auth {
            pod.auth(auth, &self.signers(shard.root));
        }
        let container = Container {
            name: "kcp".to_owned(),
            image: version::image(common.image.as_ref()),
            command: vec!["/kcp".to_owned(), "start".to_owned()],
            args: pod.args,
            resources: workload::resources(Some(workload::SHARD_RESOURCES), common.resources.as_ref()),
            mounts: pod.mounts,
            probes: Probes::Shard,
        };
        let frame = Frame {
            name: shard.service.clone(),
            labels: shard.labels.clone(),
            own_labels: shard.labels.clone(),
            template: common.deployment_template.as_ref(),
            image: common.image.as_ref(),
            replicas: workload::replicas(common.replicas),
        };
        frame.deployment(container, pod.volumes)
    }

    fn shard_volumes(&self, shard: &AnyShard<'_>, pod: &mut Pod, kubeconfigs: &[&str], certificates: &[&str]) {
        let (root, name) = (shard.root, shard.key.name());
        let ca_folder = "/etc/kcp/tls/ca";
        pod.mount("kcp-ca", self.root_ca(root), &format!("{ca_folder}/root"));
        for kubeconfig in kubeconfigs {
            let volume = format!("{kubeconfig}-kubeconfig");
            pod.kubeconfig(&volume, &format!("{name}-{volume}"), &format!("/etc/kcp/{volume}"));
        }
        for ca in ["server", "service-account"] {
            pod.mount(&format!("{ca}-ca"), self.sub_ca(root, ca).1, &format!("{ca_folder}/{ca}"));
        }
        self.client_ca_volumes(root, shard.has_client_bundle().then(|| format!("{name}-merged-client-ca")), pod);
        for certificate in certificates {
            pod.pair(
                &format!("{certificate}-cert"),
                &format!("{name}-{certificate}"),
                &format!("/etc/kcp/tls/{certificate}"),
            );
        }
        if has_bundle(shard.common) {
            pod.bundle("ca-bundle", &format!("{name}-merged-ca-bundle"), &format!("{ca_folder}/ca-bundle"));
        }
        self.cache_volumes(shard.key, shard.cache, pod);
    }

    /// The Secret with the certificate of a sub CA, and its volume.
    pub(super) fn sub_ca(&self, root: Root<'_>, ca: &str) -> (String, VolumeSource) {
        let secret = name::sub_ca(root.key.name(), ca);
        match self.trust_of(root.key.namespace(), &secret, self.is_copied(root, ca)) {
            Some(trust) => (trust.clone(), VolumeSource::Secret(trust, vec!["tls.crt"])),
            None => (secret.clone(), VolumeSource::Certificate(secret)),
        }
    }

    /// Whether pods mount a trust Secret of a sub CA also while nothing is being replaced.
    fn is_copied(&self, root: Root<'_>, ca: &str) -> bool {
        root.rotates(&format!("{ca}-ca")) || (Root::is_of_clients(ca) && self.is_chained(root))
    }

    /// The volume of the root CA of a RootShard.
    pub(super) fn root_ca(&self, root: Root<'_>) -> VolumeSource {
        let name = format!("{}-ca", root.key.name());
        match self.trust_of(root.key.namespace(), &name, root.root_ca_rotates()) {
            Some(trust) => VolumeSource::Secret(trust, vec!["tls.crt"]),
            None => VolumeSource::Certificate(name::root_ca(root.key, root.shard)),
        }
    }

    /// The volume of the CA of a CacheServer.
    fn cache_ca(&self, key: &Key, cache: &CacheServer) -> VolumeSource {
        let name = format!("{}-ca", key.name());
        match self.trust_of(key.namespace(), &name, cache_ca_rotates(cache)) {
            Some(trust) => VolumeSource::Secret(trust, vec!["tls.crt"]),
            None => {
                let given = named(cache.spec.certificates.ca_secret_ref.as_ref());
                VolumeSource::Certificate(given.map_or(name, str::to_owned))
            }
        }
    }

    /// The root shard and its shards, whose service accounts are accepted, each with the volume of its public key.
    pub(super) fn signers(&self, root: Root<'_>) -> Vec<(String, VolumeSource)> {
        let own = (root.key, &root.shard.spec.common);
        let shards = self.resources.shards_of(root.key).map(|(key, shard)| (key, &shard.spec.common));
        let all = [own].into_iter().chain(shards).map(|(key, common)| {
            let secret = service_account(key);
            let source = match self.trust_of(key.namespace(), &secret, overlap::key_rotates(common)) {
                Some(trust) => VolumeSource::Secret(trust, vec!["tls.crt"]),
                None => VolumeSource::Certificate(secret),
            };
            (key.name().to_owned(), source)
        });
        all.collect()
    }

    /// Adds the trust Secrets of the CAs of a RootShard, and of its key of service accounts.
    fn trust_secrets(&self, plan: &mut Plan, root: Root<'_>, labels: &Labels) {
        for ca in ["client", "requestheader-client", "server", "service-account"] {
            let own = name::sub_ca(root.key.name(), ca);
            plan.secrets.extend(self.trust_secret(root.key, (&own, &own), self.is_copied(root, ca), labels));
        }
        let (own, secret) = (format!("{}-ca", root.key.name()), name::root_ca(root.key, root.shard));
        plan.secrets.extend(self.trust_secret(root.key, (&own, &secret), root.root_ca_rotates(), labels));
        plan.secrets.extend(self.key_trust_secret(root.key, &root.shard.spec.common, labels));
    }

    /// The trust Secret of a shard's key of service accounts, if there is one.
    fn key_trust_secret(&self, key: &Key, common: &CommonShardSpec, labels: &Labels) -> Option<Secret> {
        let own = service_account(key);
        self.trust_secret(key, (&own, &own), overlap::key_rotates(common), labels)
    }

    /// The CAs of clients. `merged` is the Secret with more than the CA of the RootShard.
    fn client_ca_volumes(&self, root: Root<'_>, merged: Option<String>, pod: &mut Pod) {
        let (_, request_header) = self.sub_ca(root, "requestheader-client");
        pod.mount("requestheader-client-ca", request_header, "/etc/kcp/tls/ca/requestheader-client");
        let client = match merged {
            Some(merged) => VolumeSource::Secret(merged, vec!["tls.crt"]),
            None => self.sub_ca(root, "client").1,
        };
        pod.mount("client-ca", client, "/etc/kcp/tls/ca/client");
    }

    /// What a client of a CacheServer mounts.
    fn cache_volumes(&self, key: &Key, cache: Option<&str>, pod: &mut Pod) {
        let Some(cache) = cache else { return };
        let found = self.resources.cache_servers.get_key_value(&Key::new(key.namespace(), cache));
        let Some((cache_key, server)) = found else { return };
        pod.kubeconfig("cache-server-kubeconfig", &format!("{cache}-kubeconfig"), "/etc/cache-server/kubeconfig");
        pod.mount("cache-server-ca", self.cache_ca(cache_key, server), "/etc/cache-server/tls/ca/root");
        let client = format!("{cache}-client-certificate");
        pod.pair("cache-server-client-cert", &client, "/etc/cache-server/tls/client-certificate");
    }

    /// The objects of a VirtualWorkspace.
    pub(super) fn virtual_workspace(&self, key: &Key, server: &VirtualWorkspace) -> Result<Plan, Problem> {
        let (spec, name, kind) = (&server.spec, key.name(), Kind::VirtualWorkspace);
        let (root, target, own_cache) = self.target_of(key, server)?;
        let cache = own_cache.or(root.shard.spec.cache.reference.as_ref());
        let cache = self.cache(kind, key, cache)?;
        let service = format!("{name}-virtual-workspace");
        let labels = name::labels("virtual-workspace", name);
        let identity = name::identity([("rootshard", root.key.name()), ("virtual-workspace", name)]);
        let host = name::host(&service, key.namespace(), &spec.cluster_domain);
        let mut names = vec!["localhost".to_owned(), host];
        // Users reach it under this name, so it is in the certificate. Last: upstream's come first.
        if !spec.external.hostname.is_empty() && !names.contains(&spec.external.hostname) {
            names.push(spec.external.hostname.clone());
        }
        let of = certificate::Of {
            kind,
            key,
            prefix: name.to_owned(),
            labels: labels.clone(),
            secret_labels: identity.clone(),
            templates: &spec.certificate_templates,
            server_names: names,
            virtual_names: Vec::new(),
        };
        let mut plan = Plan::new(kind, key);
        plan.certificates.extend(of.table(root, certificate::VIRTUAL_WORKSPACE));
        if let Some(client) = plan.certificates.get_mut(1) {
            // As upstream: this certificate alone has the labels of its resource.
            client.labels = name::labels_of(&server.metadata);
        }
        let bundles = [root.shard.spec.common.client_ca_bundle_ref.as_ref(), spec.client_ca_bundle_ref.as_ref()];
        let merged = format!("{name}-merged-client-ca");
        let has_bundle = bundles.into_iter().any(|bundle| named(bundle).is_some());
        if has_bundle {
            plan.secrets.push(Secret::bundle(merged.clone(), identity, self.client_cas(root, bundles)));
        }
        let mut shared = Pod::default();
        shared.mount("kcp-ca", self.root_ca(root), "/etc/kcp/tls/ca/root");
        shared.mount("server-ca", self.sub_ca(root, "server").1, "/etc/kcp/tls/ca/server");
        self.client_ca_volumes(root, has_bundle.then_some(merged), &mut shared);
        shared.pair("server-cert", &format!("{name}-server"), "/etc/kcp/tls/server");
        self.cache_volumes(key, cache, &mut shared);
        let mut deployment = virtual_deployment(key, server, &target, cache.is_some(), &shared, (&service, &labels));
        if self.opt_ins(kind, key).is_enabled(annotation::PROBES) {
            deployment.container.probes = Probes::Simple;
        }
        plan.deployments.push(deployment);
        let ports = vec![("https", name::PORT, name::PORT)];
        plan.services.push(workload::service(service, labels, spec.service_template.as_ref(), ports));
        Ok(plan.with_gates())
    }

    /// The RootShard and the shard of a VirtualWorkspace, and the CacheServer of that shard.
    fn target_of(
        &self,
        key: &Key,
        server: &VirtualWorkspace,
    ) -> Result<(Root<'_>, String, Option<&LocalRef>), Problem> {
        let (kind, target) = (Kind::VirtualWorkspace, &server.spec.target);
        if let Some(name) = named(target.root_shard_ref.as_ref()) {
            let root = self.root_named(kind, key, name, "spec.target.rootShardRef.name")?;
            return Ok((root, name.to_owned(), None));
        }
        let field = "spec.target.shardRef.name";
        let wanted = Key::new(key.namespace(), named(target.shard_ref.as_ref()).unwrap_or_default());
        let shard = self.resources.shards.get(&wanted);
        let shard = shard.ok_or_else(|| super::missing(kind, key, field, Kind::Shard, &wanted))?;
        let root = self.root(Kind::Shard, &wanted, shard.spec.root_shard.reference.as_ref())?;
        let cache = shard.spec.cache.as_ref().and_then(|cache| cache.reference.as_ref());
        Ok((root, wanted.name().to_owned(), cache.filter(|cache| !cache.name.is_empty())))
    }
}

// === impl AnyShard ===

impl AnyShard<'_> {
    fn has_client_bundle(&self) -> bool {
        self.client_bundles.iter().any(|bundle| named(*bundle).is_some())
    }

    fn kubeconfig(&self, certificate: &str, file: FileKubeconfig) -> Secret {
        let name = format!("{}-{certificate}-kubeconfig", self.key.name());
        Secret { name, labels: self.identity.clone(), content: Content::Files(file) }
    }

    fn service(&self) -> workload::Service {
        let mut ports = vec![("https", name::PORT, name::PORT)];
        if named(self.common.kcp_virtual_workspace.as_ref()).is_none() {
            // Nothing listens there, but the port exists in every installation.
            ports.push(("https-virtual-workspaces", 6444, 6444));
        }
        workload::service(self.service.clone(), self.labels.clone(), self.common.service_template.as_ref(), ports)
    }
}

// === impl Plan ===

impl Plan {
    /// Without the certificate that nothing mounts, if an opt-in says so.
    fn without_unused(&mut self, opt_ins: OptIns<'_>) {
        if opt_ins.is_disabled(annotation::VIRTUAL_WORKSPACES_CERTIFICATE) {
            let unused = format!("{}-virtual-workspaces", self.key.name());
            self.certificates.retain(|certificate| certificate.name != unused);
        }
    }
}

/// The CAs of a RootShard and their issuers.
fn authorities(plan: &mut Plan, root: Root<'_>, of: &certificate::Of<'_>) {
    let name = root.key.name();
    let root_ca = format!("{name}-ca");
    let issuer = |name: String, secret: String| Issuer { name, secret, labels: of.labels.clone() };
    plan.issuers.push(issuer(root_ca.clone(), name::root_ca(root.key, root.shard)));
    let given = root.shard.spec.certificates.issuer_ref.as_ref();
    plan.certificates.extend(given.map(|issuer| of.ca("ca", "root-ca", Ok(issuer))));
    for ca in certificate::SUB_CAS {
        let own = name::sub_ca(name, ca);
        plan.issuers.push(issuer(own.clone(), own));
        plan.certificates.push(of.ca(&format!("{ca}-ca"), &format!("{ca}-ca"), Err(root_ca.clone())));
    }
}

/// The kubeconfigs of a RootShard.
fn root_kubeconfigs(of_shard: &AnyShard<'_>, root: &RootShard) -> [Secret; 2] {
    let file = |server: String, ca: &str, certificate: &str| FileKubeconfig {
        clusters: vec![("root-shard".to_owned(), server)],
        ca: ca.to_owned(),
        context: "shard-base".to_owned(),
        user: "shard".to_owned(),
        credentials: format!("/etc/kcp/tls/{certificate}"),
        is_typed: true,
    };
    let external_ca = if has_bundle(of_shard.common) { MERGED_SERVER_CA } else { SERVER_CA };
    let (own_url, external_url) = (name::root_url(of_shard.key, root), name::private_url(&root.spec.external));
    let (admin, external_admin) = ("logical-cluster-admin", "external-logical-cluster-admin");
    [
        of_shard.kubeconfig(admin, file(own_url, SERVER_CA, admin)),
        of_shard.kubeconfig(external_admin, file(external_url, external_ca, external_admin)),
    ]
}

/// The kubeconfigs of a Shard.
fn shard_kubeconfigs(of_shard: &AnyShard<'_>, shard: &Shard) -> [Secret; 3] {
    let root = of_shard.root;
    let external_ca = if has_bundle(of_shard.common) { MERGED_SERVER_CA } else { SERVER_CA };
    let file = |cluster: &str, server: String, ca: &str, context: &str, user: &str, certificate: &str| FileKubeconfig {
        clusters: vec![(cluster.to_owned(), server)],
        ca: ca.to_owned(),
        context: context.to_owned(),
        user: user.to_owned(),
        credentials: format!("/etc/kcp/tls/{certificate}"),
        is_typed: true,
    };
    let root_url = name::root_url(root.key, root.shard);
    let (own_url, external_url) = (name::shard_url(of_shard.key, shard), name::private_url(&root.shard.spec.external));
    let (admin, external_admin) = ("logical-cluster-admin", "external-logical-cluster-admin");
    [
        ("client", file("root-shard", root_url, SERVER_CA, "shard-base", "shard", "client")),
        (admin, file("logical-cluster:admin", own_url, SERVER_CA, "logical-cluster", admin, admin)),
        (
            external_admin,
            file(
                "external-logical-cluster:admin",
                external_url,
                external_ca,
                "external-logical-cluster",
                external_admin,
                external_admin,
            ),
        ),
    ]
    .map(|(certificate, file)| of_shard.kubeconfig(certificate, file))
}

/// The Secret with a shard's key of service accounts.
fn service_account(shard: &Key) -> String {
    format!("{}-service-account", shard.name())
}

/// Whether a template says that a renewal replaces the key of a CacheServer's CA. One of the user has no template.
fn cache_ca_rotates(cache: &CacheServer) -> bool {
    cache.spec.certificates.issuer_ref.is_some() && overlap::rotates(&cache.spec.certificate_templates, "root-ca")
}

fn cache_deployment(key: &Key, cache: &CacheServer, ca: VolumeSource, service: &str, labels: &Labels) -> Deployment {
    let (spec, name) = (&cache.spec, key.name());
    let mut pod = Pod::default();
    pod.arg("--tls-cert-file=/etc/cache-server/tls/server/tls.crt");
    pod.arg("--tls-private-key-file=/etc/cache-server/tls/server/tls.key");
    pod.arg("--root-directory=");
    let is_authenticated = KcpVersion::of_image(spec.image.as_ref()).has(Feature::AuthenticatedCache);
    if is_authenticated {
        pod.arg("--client-ca-file=/etc/cache-server/tls/ca/root/tls.crt");
    }
    let tls = spec.etcd.as_ref().and_then(|etcd| etcd.tls_config.as_ref());
    match &spec.etcd {
        None => {
            pod.arg("--embedded-etcd-directory=/var/etcd");
            pod.volume("etcd-scratch", VolumeSource::Empty);
            pod.mounts.push(workload::mount("etcd-scratch", "/var/etcd", false));
        }
        Some(etcd) => {
            pod.arg(format!("--etcd-servers={}", etcd.endpoints.join(",")));
            if !etcd.prefix.is_empty() {
                pod.arg(format!("--etcd-prefix={}", etcd.prefix));
            }
            if tls.is_some() {
                for (flag, file) in [("cafile", "ca.crt"), ("certfile", "tls.crt"), ("keyfile", "tls.key")] {
                    pod.arg(format!("--etcd-{flag}=/etc/cache-server/etcd/{file}"));
                }
            }
        }
    }
    pod.logging(spec.logging.as_ref(), &spec.extra_args);
    pod.extra_volumes(&spec.extra_volumes, &spec.extra_volume_mounts);
    pod.pair("serving-cert", &format!("{name}-server"), "/etc/cache-server/tls/server");
    if is_authenticated {
        pod.mount("client-ca", ca, "/etc/cache-server/tls/ca/root");
    }
    if let Some(tls) = tls {
        let source = VolumeSource::Secret(tls.secret_ref.name.clone(), vec!["tls.crt", "tls.key", "ca.crt"]);
        pod.mount("etcd-cert", source, "/etc/cache-server/etcd");
    }
    let container = Container {
        name: "cache-server".to_owned(),
        image: version::image(spec.image.as_ref()),
        command: vec!["/cache-server".to_owned()],
        args: pod.args,
        resources: workload::resources(Some(workload::CACHE_RESOURCES), None),
        mounts: pod.mounts,
        probes: Probes::Simple,
    };
    // A cache in the pod exists once. With an etcd of its own, upstream writes the number on every pass.
    let external = spec.etcd.as_ref().map(|_| Replicas::Fixed(spec.replicas.unwrap_or(2)));
    let frame = Frame {
        name: service.to_owned(),
        labels: labels.clone(),
        own_labels: labels.clone(),
        template: spec.deployment_template.as_ref(),
        image: spec.image.as_ref(),
        replicas: external.unwrap_or(Replicas::AtMost(1)),
    };
    frame.deployment(container, pod.volumes)
}

/// The Deployment of a VirtualWorkspace. `shared` is what every container mounts.
fn virtual_deployment(
    key: &Key,
    server: &VirtualWorkspace,
    target: &str,
    has_cache: bool,
    shared: &Pod,
    (service, labels): (&str, &Labels),
) -> Deployment {
    let (spec, name) = (&server.spec, key.name());
    let own = named(spec.kubeconfig_secret_ref.as_ref());
    let mut admin = Pod::default();
    let admin_folder = "/etc/kcp/logical-cluster-admin-kubeconfig";
    let admin_secret = format!("{target}-logical-cluster-admin-kubeconfig");
    admin.kubeconfig("logical-cluster-admin-kubeconfig", &admin_secret, admin_folder);
    // The certificate of this server, where that kubeconfig looks for one.
    admin.pair("client-cert", &format!("{name}-client"), "/etc/kcp/tls/logical-cluster-admin");
    let mut pod = Pod::default();
    pod.arg("--client-ca-file=/etc/kcp/tls/ca/client/tls.crt");
    pod.arg("--tls-private-key-file=/etc/kcp/tls/server/tls.key");
    pod.arg("--tls-cert-file=/etc/kcp/tls/server/tls.crt");
    pod.arg("--bind-address=0.0.0.0");
    pod.arg(format!("--secure-port={}", name::PORT));
    SHARD_ARGS[2..7].iter().for_each(|&arg| pod.arg(arg));
    let folder = own.map_or(admin_folder, |_| "/etc/kcp/server-kubeconfig");
    pod.arg(format!("--kubeconfig={folder}/kubeconfig"));
    let is_without_flags = OptIns::from_metadata(&server.metadata).is_disabled(annotation::SHARD_FLAGS);
    if spec.command.is_empty() || !is_without_flags {
        pod.arg("--shard-external-url=https://127.0.0.1:6443");
        if has_cache {
            pod.arg(format!("--cache-kubeconfig={CACHE_KUBECONFIG}"));
        }
    }
    pod.logging(spec.logging.as_ref(), &spec.extra_args);
    pod.extra_volumes(&spec.extra_volumes, &spec.extra_volume_mounts);
    pod.volumes.extend(shared.volumes.iter().cloned());
    pod.mounts.extend(shared.mounts.iter().cloned());
    pod.volumes.extend(admin.volumes.iter().cloned());
    match own {
        None => pod.mounts.extend(admin.mounts.iter().cloned()),
        Some(secret) => pod.kubeconfig("server-kubeconfig", secret, "/etc/kcp/server-kubeconfig"),
    }
    let image = version::image(spec.image.as_ref());
    let (mut before, mut pull_secrets) = (Vec::new(), Vec::new());
    for init in &spec.init_containers {
        let mut own = Pod { mounts: shared.mounts.clone(), ..Pod::default() };
        match named(init.kubeconfig_secret_ref.as_ref()) {
            None => own.mounts.extend(admin.mounts.iter().cloned()),
            Some(secret) => {
                own.kubeconfig(&format!("init-{}-kubeconfig", init.name), secret, "/etc/kcp/init-kubeconfig");
            }
        }
        own.extra_volumes(&init.volumes, &init.volume_mounts);
        pod.volumes.append(&mut own.volumes);
        workload::add_pull_secrets(
            &mut pull_secrets,
            init.image.as_ref().map_or(&[][..], |image| &image.image_pull_secrets),
        );
        before.push(Container {
            name: init.name.clone(),
            image: init.image.as_ref().map_or_else(|| image.clone(), |image| version::image(Some(image))),
            command: init.command.clone(),
            args: init.args.clone(),
            resources: workload::resources(Some(workload::SHARD_RESOURCES), init.resources.as_ref()),
            mounts: own.mounts,
            probes: Probes::None,
        });
    }
    let mut known = std::collections::BTreeSet::new();
    pod.volumes.retain(|volume| known.insert(volume.name.clone()));
    let container = Container {
        name: "kcp".to_owned(),
        image,
        command: if spec.command.is_empty() { vec!["/virtual-workspaces".to_owned()] } else { spec.command.clone() },
        args: pod.args,
        resources: workload::resources(Some(workload::SHARD_RESOURCES), spec.resources.as_ref()),
        mounts: pod.mounts,
        probes: Probes::None,
    };
    let frame = Frame {
        name: service.to_owned(),
        labels: labels.clone(),
        own_labels: labels.clone(),
        template: spec.deployment_template.as_ref(),
        image: spec.image.as_ref(),
        replicas: workload::replicas(spec.replicas),
    };
    let mut deployment = frame.deployment(container, pod.volumes);
    deployment.init_containers = before;
    pull_secrets.retain(|name| !deployment.pull_secrets.contains(name));
    deployment.pull_secrets.extend(pull_secrets);
    deployment
}

fn has_bundle(common: &CommonShardSpec) -> bool {
    named(common.ca_bundle_secret_ref.as_ref()).is_some()
}

/// Names in order, without duplicates and empty ones.
fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}
