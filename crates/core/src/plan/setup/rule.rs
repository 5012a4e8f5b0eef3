//! What the schemas of kcp landscapes cannot say: rules of one resource, and of all of them together.
//!
//! Names are checked in the objects of the plans, so a limit or a collision is found wherever it comes from.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Kind, Plan, Problem, Resources, Volume, VolumeSource,
    certificate::{self, template_names},
    named,
    workload::Container,
};
use crate::{
    api::setup::{
        Auth, CertificateTemplates, Certificates, CommonShardSpec, Etcd, External, FrontProxySpec, KubeconfigSpec,
        PathMapping, RootShardSpec, ServiceTemplate,
    },
    definition::near,
    diagnostic::Severity,
    name::{self, Key},
    schema::duration_nanoseconds,
    yaml::short,
};

/// Identities with which parts of kcp speak to each other. A kubeconfig with one of them could assert any user.
const RESERVED_USERS: [&str; 4] =
    ["kcp-front-proxy", "kcp-root-shard-proxy", "kcp-mounts-proxy", "system:kcp-operator"];
/// The name of the root shard in kcp.
const ROOT: &str = "root";
/// The types of Services that select pods.
const SERVICE_TYPES: [&str; 3] = ["ClusterIP", "NodePort", "LoadBalancer"];
/// Maximum length of a Service's, a volume's and a label value's name.
const NAME_LEN_MAX: usize = 63;
/// Maximum length of a common name, in bytes.
const COMMON_NAME_LEN_MAX: usize = 64;
/// The shortest certificate that cert-manager issues, in nanoseconds: one hour.
const VALIDITY_MIN: i64 = 3_600_000_000_000;

/// Whether a user's name is one with which parts of kcp speak to each other.
pub fn is_reserved_user(name: &str) -> bool {
    RESERVED_USERS.contains(&name)
}

/// The problems of one resource while they are collected.
struct Of<'a> {
    kind: Kind,
    key: &'a Key,
    out: &'a mut Vec<Problem>,
}

/// Every rule that the resources violate. `plans` are theirs.
pub fn problems(resources: &Resources, plans: &[Plan]) -> Vec<Problem> {
    let mut out = Vec::new();
    for (key, cache) in &resources.cache_servers {
        let mut of = Of { kind: Kind::CacheServer, key, out: &mut out };
        of.root_ca(&cache.spec.certificates);
        cache.spec.etcd.iter().for_each(|etcd| of.etcd(etcd));
        of.replicas("spec.replicas", cache.spec.replicas);
        of.service("spec.serviceTemplate.spec.type", cache.spec.service_template.as_ref());
        of.templates(
            "spec.certificateTemplates",
            &cache.spec.certificate_templates,
            &template_names(&[], &["root-ca", "server", "client"]),
        );
    }
    for (key, root) in &resources.root_shards {
        Of { kind: Kind::RootShard, key, out: &mut out }.root_shard(&root.spec);
    }
    for (key, shard) in &resources.shards {
        let mut of = Of { kind: Kind::Shard, key, out: &mut out };
        if key.name() == ROOT {
            let message = "a Shard must not be named `root`: that is the root shard's name in kcp".to_owned();
            of.problem("metadata.name", message, "rename it");
        }
        of.shard(&shard.spec.common);
        of.templates(
            "spec.certificateTemplates",
            &shard.spec.common.certificate_templates,
            &template_names(certificate::SHARD, &[]),
        );
    }
    for (key, proxy) in &resources.front_proxies {
        let mut of = Of { kind: Kind::FrontProxy, key, out: &mut out };
        of.front_proxy(&proxy.spec);
        let plan = plans.iter().find(|plan| plan.kind == Kind::FrontProxy && plan.key == *key);
        plan.into_iter().for_each(|plan| of.path_mappings(&proxy.spec.additional_path_mappings, plan));
    }
    for (key, server) in &resources.virtual_workspaces {
        let mut of = Of { kind: Kind::VirtualWorkspace, key, out: &mut out };
        of.external(&server.spec.external);
        of.replicas("spec.replicas", server.spec.replicas);
        of.service("spec.serviceTemplate.spec.type", server.spec.service_template.as_ref());
        of.templates(
            "spec.certificateTemplates",
            &server.spec.certificate_templates,
            &template_names(certificate::VIRTUAL_WORKSPACE, &[]),
        );
    }
    for (key, kubeconfig) in &resources.kubeconfigs {
        Of { kind: Kind::Kubeconfig, key, out: &mut out }.kubeconfig(&kubeconfig.spec);
    }
    virtual_workspaces(resources, &mut out);
    service_accounts(resources, &mut out);
    entrances(resources, &mut out);
    base_urls(resources, &mut out);
    plans.iter().for_each(|plan| Of { kind: plan.kind, key: &plan.key, out: &mut out }.plan(plan));
    collisions(plans, &mut out);
    out
}

impl Of<'_> {
    fn problem(&mut self, field: &'static str, message: String, hint: &str) {
        self.push(Severity::Error, field, message, hint.to_owned());
    }

    fn warning(&mut self, field: &'static str, message: String, hint: impl Into<String>) {
        self.push(Severity::Warning, field, message, hint.into());
    }

    fn push(&mut self, severity: Severity, field: &'static str, message: String, hint: String) {
        let (kind, key) = (self.kind, self.key.clone());
        self.out.push(Problem { severity, kind, key, field, message, hint, missing: None });
    }

    fn root_shard(&mut self, spec: &RootShardSpec) {
        self.external(&spec.external);
        self.root_ca(&spec.certificates);
        self.shard(&spec.common);
        self.templates(
            "spec.certificateTemplates",
            &spec.common.certificate_templates,
            &template_names(certificate::ROOT_SHARD, &certificate::CA_TEMPLATES),
        );
        if let Some(proxy) = &spec.proxy {
            self.replicas("spec.proxy.replicas", proxy.replicas);
            self.service("spec.proxy.serviceTemplate.spec.type", proxy.service_template.as_ref());
            let templates = &proxy.certificate_templates;
            self.templates(
                "spec.proxy.certificateTemplates",
                templates,
                &template_names(certificate::FRONT_PROXY, &[]),
            );
        }
    }

    fn shard(&mut self, common: &CommonShardSpec) {
        self.etcd(&common.etcd);
        self.replicas("spec.replicas", common.replicas);
        self.service("spec.serviceTemplate.spec.type", common.service_template.as_ref());
        let audit = common.audit.as_ref().and_then(|audit| audit.webhook.as_ref());
        let audit = audit.map(|webhook| [&webhook.batch_max_wait, &webhook.initial_backoff]);
        self.durations("spec.audit.webhook", audit.into_iter().flatten());
        let webhook = common.authorization.as_ref().and_then(|authorization| authorization.webhook.as_ref());
        let webhook = webhook.map(|webhook| [&webhook.cache_authorized_ttl, &webhook.cache_unauthorized_ttl]);
        self.durations("spec.authorization.webhook", webhook.into_iter().flatten());
        let webhook = common.auth.as_ref().and_then(|auth| auth.webhook.as_ref());
        self.durations("spec.auth.webhook", webhook.map(|webhook| &webhook.cache_authentication_ttl));
    }

    fn front_proxy(&mut self, spec: &FrontProxySpec) {
        if let Some(external) = spec.external.as_ref().filter(|external| !external.hostname.is_empty()) {
            self.external(external);
        }
        self.replicas("spec.replicas", spec.replicas);
        self.service("spec.serviceTemplate.spec.type", spec.service_template.as_ref());
        self.templates(
            "spec.certificateTemplates",
            &spec.certificate_templates,
            &template_names(certificate::FRONT_PROXY, &[]),
        );
        let webhook = spec.auth.as_ref().and_then(|auth| auth.webhook.as_ref());
        self.durations("spec.auth.webhook", webhook.map(|webhook| &webhook.cache_authentication_ttl));
    }

    fn kubeconfig(&mut self, spec: &KubeconfigSpec) {
        let target = &spec.target;
        let targets = [&target.root_shard_ref, &target.shard_ref, &target.front_proxy_ref];
        let targets = targets.into_iter().filter(|target| named(target.as_ref()).is_some()).count();
        if 1 < targets {
            let message = format!("a Kubeconfig has one target, and this one has {targets}");
            self.problem("spec.target", message, "keep one of `rootShardRef`, `shardRef` and `frontProxyRef`");
        }
        if is_reserved_user(&spec.username) {
            let message = format!("the user `{}` is reserved for parts of kcp", spec.username);
            self.problem("spec.username", message, "choose another name");
        }
        if let Some(group) = spec.groups.iter().find(|group| is_powerful(group)) {
            let message = format!("the group `{}` has rights in every workspace", short(group));
            let hint = "use a group of your own, and grant it what it needs with `spec.authorization`";
            self.warning("spec.groups", message, hint);
        }
        match duration_nanoseconds(&spec.validity) {
            None => self.duration("spec.validity"),
            Some(validity) if validity < VALIDITY_MIN => {
                self.problem(
                    "spec.validity",
                    "a certificate must be valid for at least 1h".to_owned(),
                    "write `1h` or more",
                );
            }
            Some(_) => {}
        }
        if spec.secret_ref.name.is_empty() {
            self.problem("spec.secretRef.name", "the Secret for the kubeconfig has no name".to_owned(), "name it");
        }
        self.template("spec.certificateTemplate", spec.certificate_template.iter());
        let roles = spec.authorization.iter().flat_map(|found| &found.cluster_role_bindings.cluster_roles);
        let roles: Vec<&String> = roles.collect();
        let field = "spec.authorization.clusterRoleBindings.clusterRoles";
        if roles.iter().any(|role| role.is_empty()) {
            self.problem(field, "a ClusterRole has no name".to_owned(), "name it, or remove the entry");
        }
        if roles.iter().collect::<BTreeSet<_>>().len() < roles.len() {
            self.problem(field, "a ClusterRole is listed twice".to_owned(), "remove one of the two entries");
        }
    }

    /// The files of path mappings must be in the container.
    fn path_mappings(&mut self, mappings: &[PathMapping], plan: &Plan) {
        const FIELD: &str = "spec.additionalPathMappings";
        const HINT: &str = "mount it with `extraVolumes` and `extraVolumeMounts`, or correct the path";
        let mounts = plan.deployments.iter().flat_map(|deployment| &deployment.container.mounts);
        let folders: Vec<&str> = mounts.filter_map(|mount| mount["mountPath"].as_str()).collect();
        let is_absent = |file: &str| {
            let is_below = |folder: &&str| {
                let rest = file.strip_prefix(folder.trim_end_matches('/'));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            !file.is_empty() && !folders.iter().any(is_below)
        };
        let message = |path: &str, file: &str| {
            format!("the path mapping `{}` needs the file `{}`, and no volume has it", short(path), short(file))
        };
        for PathMapping { path, backend_server_ca, proxy_client_cert, proxy_client_key, .. } in mappings {
            for file in [proxy_client_cert, proxy_client_key].into_iter().filter(|file| is_absent(file)) {
                self.problem(FIELD, message(path, file), HINT);
            }
            if is_absent(backend_server_ca) {
                // The image may have it, as the CAs of the system.
                self.warning(FIELD, message(path, backend_server_ca), HINT);
            }
        }
    }

    fn external(&mut self, external: &External) {
        if external.hostname.is_empty() {
            self.problem(
                "spec.external.hostname",
                "the host name is empty".to_owned(),
                "write the name that users use",
            );
        }
        let ports = [("spec.external.port", Some(external.port)), ("spec.external.privatePort", external.private_port)];
        for (field, port) in ports {
            if let Some(port) = port.filter(|port| !(1..=65_535).contains(port)) {
                self.problem(field, format!("{port} is not a port"), "use a port from 1 to 65535");
            }
        }
    }

    fn root_ca(&mut self, certificates: &Certificates) {
        let (field, hint) = ("spec.certificates", "set exactly one of `issuerRef` and `caSecretRef`");
        match (&certificates.issuer_ref, named(certificates.ca_secret_ref.as_ref())) {
            (None, None) => self.problem(field, "the root CA has no origin".to_owned(), hint),
            (Some(_), Some(_)) => self.problem(field, "the root CA has two origins".to_owned(), hint),
            _ => {}
        }
    }

    fn etcd(&mut self, etcd: &Etcd) {
        if etcd.endpoints.is_empty() {
            self.problem("spec.etcd.endpoints", "no endpoint of etcd is listed".to_owned(), "list at least one URL");
        }
    }

    fn replicas(&mut self, field: &'static str, replicas: Option<i32>) {
        if let Some(replicas) = replicas.filter(|&replicas| replicas < 0) {
            self.problem(field, format!("{replicas} is not a number of pods"), "use 0 or more");
        }
    }

    fn service(&mut self, field: &'static str, template: Option<&ServiceTemplate>) {
        let spec = template.and_then(|template| template.spec.as_ref());
        let found = spec.map(|spec| spec.service_type.as_str()).filter(|found| !found.is_empty());
        if let Some(found) = found.filter(|found| !SERVICE_TYPES.contains(found)) {
            let message = format!("`{}` is not a type of Service that selects pods", short(found));
            self.problem(field, message, "use ClusterIP, NodePort or LoadBalancer");
        }
    }

    fn duration(&mut self, field: &'static str) {
        self.problem(field, "invalid duration".to_owned(), "use a number and a unit, for example `30s`");
    }

    fn durations<'d>(&mut self, field: &'static str, durations: impl IntoIterator<Item = &'d Option<String>>) {
        if durations.into_iter().flatten().any(|text| duration_nanoseconds(text).is_none()) {
            self.duration(field);
        }
    }

    /// Checks templates of certificates. `known` are the certificates that the resource has.
    fn templates(&mut self, field: &'static str, templates: &CertificateTemplates, known: &[&'static str]) {
        self.template(field, templates.values());
        for name in templates.keys().filter(|name| !known.contains(&name.as_str())) {
            let message =
                format!("a {} has no certificate `{}`, so this template has no effect", self.kind, short(name));
            let hint = near::did_you_mean(name, known.iter().copied());
            self.warning(field, message, hint.unwrap_or_else(|| format!("its certificates are {}", known.join(", "))));
        }
    }

    fn template<'t>(
        &mut self,
        field: &'static str,
        templates: impl Iterator<Item = &'t crate::api::setup::CertificateTemplate>,
    ) {
        for spec in templates.filter_map(|template| template.spec.as_ref()) {
            self.durations(field, [&spec.duration, &spec.renew_before]);
        }
    }

    /// Checks the objects of a plan as the API server and cert-manager will.
    fn plan(&mut self, plan: &Plan) {
        // An empty name is that of a field, which has a rule of its own. Services have other names.
        let is_impossible =
            |what: &str, name: &str| what != "Service" && !name.is_empty() && name::check_subdomain(name).is_err();
        if let Some((what, name)) = objects(plan).find(|(what, name)| is_impossible(what, name)) {
            let message = format!("`{}` cannot be the name of a {what}", short(name));
            let is_output = self.kind == Kind::Kubeconfig && plan.secrets.iter().any(|secret| secret.name == *name);
            let field = if is_output { "spec.secretRef.name" } else { "metadata.name" };
            self.problem(field, message, "use a shorter name of lower-case letters, digits, `-` and `.`");
        }
        for certificate in &plan.certificates {
            let name = &certificate.common_name;
            if COMMON_NAME_LEN_MAX < name.len() {
                let message = format!(
                    "the common name `{}` of a certificate has {} bytes, and at most {COMMON_NAME_LEN_MAX} are possible",
                    short(name),
                    name.len()
                );
                self.problem("metadata.name", message, "use a shorter name");
            }
            let lives = [&certificate.duration, &certificate.renew_before].map(|text| duration_nanoseconds(text));
            if let [Some(duration), Some(renew_before)] = lives
                && duration <= renew_before
            {
                let message = format!("Certificate `{}` would be renewed before it is issued", certificate.name);
                self.problem("spec.certificateTemplates", message, "make `renewBefore` shorter than `duration`");
            }
        }
        for service in &plan.services {
            let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let starts_well = service.name.starts_with(|c: char| c.is_ascii_lowercase());
            if !starts_well || !service.name.chars().all(is_allowed) || NAME_LEN_MAX < service.name.len() {
                let message = format!("`{}` cannot be the name of a Service", short(&service.name));
                let hint = "use a shorter name of lower-case letters, digits and `-` that begins with a letter";
                self.problem("metadata.name", message, hint);
            }
        }
        for deployment in &plan.deployments {
            if let Some(volume) = deployment.volumes.iter().find(|volume| NAME_LEN_MAX < volume.name.len()) {
                let message = format!("the volume name `{}` is longer than {NAME_LEN_MAX}", volume.name);
                self.problem("metadata.name", message, "use a shorter name");
            }
            let containers = deployment.init_containers.iter().chain([&deployment.container]);
            containers.for_each(|container| self.mounts(container, &deployment.volumes));
        }
    }

    fn mounts(&mut self, container: &Container, volumes: &[Volume]) {
        let mut paths = BTreeSet::new();
        for mount in &container.mounts {
            let (name, path) =
                (mount["name"].as_str().unwrap_or_default(), mount["mountPath"].as_str().unwrap_or_default());
            if !volumes.iter().any(|volume| volume.name == name) {
                let message =
                    format!("container `{}` mounts the volume `{name}`, which does not exist", container.name);
                self.problem("spec.extraVolumeMounts", message, "add it to `extraVolumes`, or correct the name");
            }
            if !paths.insert(path.trim_end_matches('/')) {
                let message = format!("container `{}` mounts two volumes at `{path}`", container.name);
                self.problem("spec.extraVolumeMounts", message, "choose another path");
            }
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = volumes.iter().find(|volume| !names.insert(volume.name.as_str())) {
            let is_users = volumes
                .iter()
                .any(|volume| volume.name == twice.name && matches!(volume.source, VolumeSource::User(_)));
            if is_users {
                let message = format!("the pod has two volumes named `{}`", twice.name);
                self.problem("spec.extraVolumes", message, "choose another name");
            }
        }
    }
}

/// Groups that kcp gives rights everywhere.
fn is_powerful(group: &str) -> bool {
    group == "system:masters" || group.starts_with("system:kcp:")
}

/// The proxies of a RootShard.
fn proxies_of<'a>(resources: &'a Resources, root: &'a Key) -> impl Iterator<Item = (&'a Key, &'a FrontProxySpec)> {
    let proxies = resources.front_proxies.iter().map(|(key, proxy)| (key, &proxy.spec));
    proxies.filter(|(key, spec)| {
        key.namespace() == root.namespace() && named(spec.root_shard.reference.as_ref()) == Some(root.name())
    })
}

/// A token of a service account is valid everywhere only if every shard and proxy accepts it.
fn service_accounts(resources: &Resources, out: &mut Vec<Problem>) {
    let accepts = |auth: Option<&Auth>| {
        auth.and_then(|auth| auth.service_account.as_ref()).is_some_and(|accounts| accounts.enabled)
    };
    for (root_key, root) in &resources.root_shards {
        let shards = resources.shards_of(root_key);
        let shards = shards.map(|(key, shard)| (Kind::Shard, key, accepts(shard.spec.common.auth.as_ref())));
        let proxies = proxies_of(resources, root_key);
        let proxies = proxies.map(|(key, spec)| (Kind::FrontProxy, key, accepts(spec.auth.as_ref())));
        let own = (Kind::RootShard, root_key, accepts(root.spec.common.auth.as_ref()));
        let all: Vec<_> = [own].into_iter().chain(shards).chain(proxies).collect();
        let Some((with, other, _)) = all.iter().find(|(_, _, accepts)| *accepts) else { continue };
        for (kind, key, _) in all.iter().filter(|(_, _, accepts)| !*accepts) {
            let message = format!("{kind} {key} refuses tokens of service accounts, and {with} {other} accepts them");
            let hint = "set `auth.serviceAccount.enabled: true` on all shards and proxies of a root shard, or on none";
            Of { kind: *kind, key, out: &mut *out }.warning("spec.auth", message, hint);
        }
    }
}

/// The default URL of a shard is the name of a Service, which only its own cluster resolves.
fn base_urls(resources: &Resources, out: &mut Vec<Problem>) {
    if resources.ids().all(|(kind, key)| resources.cluster_of(kind, key).is_none()) {
        return;
    }
    let roots = resources.root_shards.iter().map(|(key, root)| (Kind::RootShard, key, &root.spec.common));
    let shards = resources.shards.iter().map(|(key, shard)| (Kind::Shard, key, &shard.spec.common));
    for (kind, key, _) in roots.chain(shards).filter(|(_, _, common)| common.shard_base_url.is_empty()) {
        let Some((root, _)) = resources.root_of(kind, key) else { continue };
        let own = resources.cluster_of(kind, key);
        let is_elsewhere = |(other, name): &(Kind, &Key)| match other {
            Kind::RootShard | Kind::FrontProxy | Kind::Shard | Kind::VirtualWorkspace => {
                resources.root_of(*other, name).is_some_and(|(of, _)| of == root)
                    && resources.cluster_of(*other, name) != own
            }
            Kind::CacheServer | Kind::Kubeconfig => false,
        };
        let Some((other, name)) = resources.ids().find(is_elsewhere) else { continue };
        let message = format!(
            "the default URL of {kind} {key} is the name of a Service in its own cluster, and {other} {name} is in \
             another one"
        );
        let hint = "set it to an address that both clusters reach";
        Of { kind, key, out: &mut *out }.warning("spec.shardBaseURL", message, hint);
    }
}

/// The external name of a RootShard must lead to one of its proxies.
fn entrances(resources: &Resources, out: &mut Vec<Problem>) {
    for (key, root) in &resources.root_shards {
        let hostname = root.spec.external.hostname.as_str();
        let serves = |spec: &FrontProxySpec| match &spec.external {
            Some(external) if !external.hostname.is_empty() => external.hostname == hostname,
            // It may have a port.
            _ => spec.external_hostname.is_empty() || spec.external_hostname.split(':').next() == Some(hostname),
        };
        if hostname.is_empty() || proxies_of(resources, key).any(|(_, spec)| serves(spec)) {
            continue;
        }
        let message = format!("no FrontProxy serves `{}`, to which users of RootShard {key} are sent", short(hostname));
        let hint = "declare one with this `external.hostname`, unless something else serves the name";
        Of { kind: Kind::RootShard, key, out: &mut *out }.warning("spec.external.hostname", message, hint);
    }
}

/// A shard and the VirtualWorkspace that serves it must name each other.
fn virtual_workspaces(resources: &Resources, out: &mut Vec<Problem>) {
    let roots = resources.root_shards.iter().map(|(key, root)| (Kind::RootShard, key, &root.spec.common));
    let shards = resources.shards.iter().map(|(key, shard)| (Kind::Shard, key, &shard.spec.common));
    for (kind, key, common) in roots.chain(shards) {
        let Some(name) = named(common.kcp_virtual_workspace.as_ref()) else { continue };
        let Some(server) = resources.virtual_workspaces.get(&Key::new(key.namespace(), name)) else { continue };
        let target = &server.spec.target;
        let target = if kind == Kind::RootShard { &target.root_shard_ref } else { &target.shard_ref };
        if named(target.as_ref()) != Some(key.name()) {
            let message = format!("VirtualWorkspace `{name}` does not serve {kind} `{}`", key.name());
            let hint = format!("set its `spec.target` to {kind} `{}`, or name another VirtualWorkspace", key.name());
            let field = "spec.kcpVirtualWorkspace.name";
            out.push(Problem {
                severity: Severity::Error,
                kind,
                key: key.clone(),
                field,
                message,
                hint,
                missing: None,
            });
        }
    }
}

/// The objects of a plan: kind and name.
fn objects(plan: &Plan) -> impl Iterator<Item = (&'static str, &String)> {
    let names = plan.certificates.iter().flat_map(|found| [("Certificate", &found.name), ("Secret", &found.name)]);
    let names = names.chain(plan.issuers.iter().map(|found| ("Issuer", &found.name)));
    let names = names.chain(plan.secrets.iter().map(|found| ("Secret", &found.name)));
    let names = names.chain(plan.configs.iter().map(|found| ("ConfigMap", &found.name)));
    let names = names.chain(plan.deployments.iter().map(|found| ("Deployment", &found.name)));
    let names = names.chain(plan.services.iter().map(|found| ("Service", &found.name)));
    names.chain(plan.budgets.iter().map(|found| ("PodDisruptionBudget", &found.name)))
}

/// Two resources must not have an object in common: each would undo what the other does.
fn collisions(plans: &[Plan], out: &mut Vec<Problem>) {
    let mut owners: BTreeMap<(&str, &str, String), (Kind, &Key)> = BTreeMap::new();
    for plan in plans {
        let mut told = BTreeSet::new();
        for (what, name) in objects(plan) {
            let owner = owners.entry((plan.key.namespace(), what, name.clone())).or_insert((plan.kind, &plan.key));
            if *owner != (plan.kind, &plan.key) && told.insert(*owner) {
                let (kind, key) = owner;
                let message = format!("{} {} and {kind} {key} would both write {what} `{name}`", plan.kind, plan.key);
                let field = if plan.kind == Kind::Kubeconfig { "spec.secretRef.name" } else { "metadata.name" };
                let hint = "rename one of the two".to_owned();
                Of { kind: plan.kind, key: &plan.key, out: &mut *out }.push(Severity::Error, field, message, hint);
            }
        }
    }
}
