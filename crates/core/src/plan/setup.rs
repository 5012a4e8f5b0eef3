//! What a kcp landscape consists of: for each of its resources the issuers, certificates, Secrets, Deployments and
//! Services, and what each Deployment waits for.
//!
//! Everything has the names, labels, keys, paths and arguments of kcp-operator, so that its installations can be taken
//! over in place. `docs/kcp.md` lists the differences. What only a cluster knows is an argument ([`Known`]): this
//! module reads no cluster, and its plans contain no secret data.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use crate::{
    api::{
        names::annotation,
        setup::{CommonShardSpec, IssuerRef, Kind, LocalRef, RootShard, Shard, VirtualWorkspace},
    },
    diagnostic::Severity,
    landscape::setup::Resources,
    name::Key,
    yaml::short,
};

mod certificate;
mod inside;
mod kubeconfig;
mod name;
mod option;
mod overlap;
mod proxy;
mod rule;
mod server;
mod version;
mod workload;

pub use self::{
    certificate::{Certificate, Issuer},
    inside::{ADMIN, CORDON, Grants, Route, group},
    kubeconfig::{Credentials, FileKubeconfig},
    name::{host, setup_mark},
    option::{OPT_INS, OptIn, Takes},
    overlap::{Anchor, Composed, Dependents, Facts, Live, Overlap, Phase, Signed, TOKENS, Trusted, Verifier, overlap},
    rule::{is_reserved_user, problems},
    version::{Containers, DEFAULT_TAG, DefaultImage, Feature, KcpVersion, ParseImageError},
    workload::{Budget, Container, Deployment, Gate, Mounted, Probes, Replicas, Service, Volume, VolumeSource},
};

/// What only a cluster knows, as far as it changes which objects exist or what they name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// RootShards whose root CA is not self-signed. Their sub CA Secrets contain a chain, of which only the first
    /// certificate may be trusted.
    pub chained: BTreeSet<Key>,
    /// The trust Secrets of CAs, and of keys of service accounts, that are being replaced.
    pub trusts: BTreeMap<Key, Trusted>,
}

/// The objects of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The kind of the resource.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
    /// Issuers.
    pub issuers: Vec<Issuer>,
    /// Certificates, CAs first.
    pub certificates: Vec<Certificate>,
    /// Secrets other than those of certificates.
    pub secrets: Vec<Secret>,
    /// Path mappings of proxies.
    pub configs: Vec<Config>,
    /// Deployments.
    pub deployments: Vec<Deployment>,
    /// Services.
    pub services: Vec<Service>,
    /// Limits for evictions.
    pub budgets: Vec<Budget>,
}

/// A Secret that Tidegate writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Secret {
    /// Its name.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// Its content.
    pub content: Content,
}

/// The content of a Secret.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Key `kubeconfig`: a kubeconfig that names files, so it is no secret.
    Files(FileKubeconfig),
    /// Key `kubeconfig`: a kubeconfig with a client certificate.
    Credentials(Credentials),
    /// Key `tls.crt`: certificates of these Secrets, in this order.
    Bundle(Vec<Trust>),
    /// Key `tls.crt`: what pods trust while a CA is being replaced.
    Trusted(Trusted),
}

/// Certificates that a bundle contains: key `tls.crt` of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The Secret.
    pub secret: String,
    /// Whether only the first certificate counts.
    pub only_first: bool,
}

/// A ConfigMap with the path mappings of a proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// The mappings.
    pub mappings: Vec<crate::api::setup::PathMapping>,
}

/// Labels or annotations.
pub type Labels = BTreeMap<String, String>;

/// A rule that a resource violates, or why it has no plan. One sentence, the field, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the resource may be applied all the same.
    pub severity: Severity,
    /// The kind of the resource.
    pub kind: Kind,
    /// The resource.
    pub key: Key,
    /// The field.
    pub field: &'static str,
    /// One sentence.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// The resource that does not exist, if that is the problem.
    pub missing: Option<Box<(Kind, Key)>>,
}

// === impl Resources ===

impl Resources {
    /// The Shards of a RootShard, by name.
    pub fn shards_of<'a>(&'a self, root: &'a Key) -> impl Iterator<Item = (&'a Key, &'a Shard)> {
        let shards = self.shards.iter().map(|(key, shard)| (key, &**shard));
        shards.filter(|(key, shard)| {
            key.namespace() == root.namespace() && named(shard.spec.root_shard.reference.as_ref()) == Some(root.name())
        })
    }

    /// The plans of all resources, in the order of apply, and why some have none. A problem of one resource may leave
    /// those that depend on it without a plan; it is one problem.
    pub fn plans(&self, known: &Known) -> (Vec<Plan>, Vec<Problem>) {
        let (mut plans, mut problems) = (Vec::new(), Vec::new());
        for plan in self.ids().filter_map(|(kind, key)| self.plan(kind, key, known)) {
            match plan {
                Ok(plan) => plans.push(plan),
                Err(problem) if problems.contains(&problem) => {}
                Err(problem) => problems.push(problem),
            }
        }
        (plans, problems)
    }

    /// The plan of one resource, or why it has none; `None` if it does not exist.
    pub fn plan(&self, kind: Kind, key: &Key, known: &Known) -> Option<Result<Plan, Problem>> {
        let planner = Planner { resources: self, known };
        if let Some(problem) = self.metadata(kind, key).and_then(|metadata| option::problem(kind, key, metadata)) {
            return Some(Err(problem));
        }
        let plan = match kind {
            Kind::CacheServer => Ok(planner.cache_server(key, self.cache_servers.get(key)?)),
            Kind::RootShard => planner.root_shard(key, self.root_shards.get(key)?),
            Kind::FrontProxy => planner.front_proxy(key, self.front_proxies.get(key)?),
            Kind::Shard => planner.shard(key, self.shards.get(key)?),
            Kind::VirtualWorkspace => planner.virtual_workspace(key, self.virtual_workspaces.get(key)?),
            Kind::Kubeconfig => planner.kubeconfig(key, self.kubeconfigs.get(key)?),
        };
        Some(plan.map(|plan| planner.ordered(plan)))
    }

    /// The RootShard whose CAs sign the certificates of a resource, and the Secret with its root CA; `None` for a
    /// CacheServer, and if a reference leads nowhere.
    pub fn root_of(&self, kind: Kind, key: &Key) -> Option<(&Key, String)> {
        let at = |name: &str| Key::new(key.namespace(), name);
        let of_shard = |shard: &Shard| named(shard.spec.root_shard.reference.as_ref()).map(at);
        let wanted = match kind {
            Kind::CacheServer => None,
            Kind::RootShard => Some(key.clone()),
            Kind::Shard => of_shard(self.shards.get(key)?),
            Kind::FrontProxy => named(self.front_proxies.get(key)?.spec.root_shard.reference.as_ref()).map(at),
            Kind::VirtualWorkspace => {
                let target = &self.virtual_workspaces.get(key)?.spec.target;
                match named(target.root_shard_ref.as_ref()) {
                    Some(root) => Some(at(root)),
                    None => of_shard(self.shards.get(&at(named(target.shard_ref.as_ref())?))?),
                }
            }
            Kind::Kubeconfig => {
                let target = &self.kubeconfigs.get(key)?.spec.target;
                if let Some(root) = named(target.root_shard_ref.as_ref()) {
                    Some(at(root))
                } else if let Some(shard) = named(target.shard_ref.as_ref()) {
                    of_shard(self.shards.get(&at(shard))?)
                } else {
                    let proxy = self.front_proxies.get(&at(named(target.front_proxy_ref.as_ref())?))?;
                    named(proxy.spec.root_shard.reference.as_ref()).map(at)
                }
            }
        };
        let (key, root) = self.root_shards.get_key_value(&wanted?)?;
        Some((key, name::root_ca(key, root)))
    }

    /// The other cluster that has the pods of a resource; `None` if the control plane has them.
    pub fn cluster_of(&self, kind: Kind, key: &Key) -> Option<&str> {
        OptIns::from_metadata(self.metadata(kind, key)?).cluster()
    }

    /// The other cluster that has objects of a kind of a plan, which belong to pods.
    pub fn cluster_of_object(&self, plan: &Plan, kind: &str) -> Option<&str> {
        let is_placed = matches!(kind, "Deployment" | "Service" | "PodDisruptionBudget");
        self.cluster_of(plan.kind, &plan.key).filter(|_| is_placed)
    }

    /// The resources of a namespace whose pods are in a cluster.
    pub fn placed_in<'a>(&'a self, namespace: &'a str, cluster: &'a str) -> impl Iterator<Item = (Kind, &'a Key)> {
        let own = self.ids().filter(move |(_, key)| key.namespace() == namespace);
        own.filter(move |(kind, key)| self.cluster_of(*kind, key) == Some(cluster))
    }

    /// The resources that depend on a resource which is being deleted: while they exist, it stays. So resources go in
    /// the reverse order of their creation.
    pub fn dependents(&self, kind: Kind, key: &Key) -> Vec<(Kind, Key)> {
        let same = |other: &Key| other.namespace() == key.namespace();
        let names = |reference: Option<&LocalRef>| named(reference) == Some(key.name());
        match kind {
            Kind::CacheServer => {
                let uses = |cache: Option<&LocalRef>| names(cache);
                let roots = self
                    .root_shards
                    .iter()
                    .filter(|(other, root)| same(other) && uses(root.spec.cache.reference.as_ref()));
                let shards = self.shards.iter().filter(|(other, shard)| {
                    same(other) && uses(shard.spec.cache.as_ref().and_then(|cache| cache.reference.as_ref()))
                });
                let roots = roots.map(|(other, _)| (Kind::RootShard, other.clone()));
                roots.chain(shards.map(|(other, _)| (Kind::Shard, other.clone()))).collect()
            }
            Kind::RootShard => {
                let of_root = |(kind, other): &(Kind, &Key)| {
                    *kind != Kind::RootShard && self.root_of(*kind, other).is_some_and(|(root, _)| root == key)
                };
                self.ids().filter(of_root).map(|(kind, other)| (kind, other.clone())).collect()
            }
            Kind::Shard => {
                let servers = self.virtual_workspaces.iter();
                let servers =
                    servers.filter(|(other, found)| same(other) && names(found.spec.target.shard_ref.as_ref()));
                let servers = servers.map(|(other, _)| (Kind::VirtualWorkspace, other.clone()));
                let users = self.kubeconfigs.iter();
                let users = users.filter(|(other, found)| same(other) && names(found.spec.target.shard_ref.as_ref()));
                servers.chain(users.map(|(other, _)| (Kind::Kubeconfig, other.clone()))).collect()
            }
            Kind::FrontProxy => {
                let users = self.kubeconfigs.iter();
                let users =
                    users.filter(|(other, found)| same(other) && names(found.spec.target.front_proxy_ref.as_ref()));
                users.map(|(other, _)| (Kind::Kubeconfig, other.clone())).collect()
            }
            Kind::VirtualWorkspace | Kind::Kubeconfig => Vec::new(),
        }
    }

    /// The Secret of the CA behind an Issuer that Tidegate makes in a namespace; `None` for other Issuers.
    pub fn secret_of_issuer(&self, namespace: &str, issuer: &IssuerRef) -> Option<String> {
        if (issuer.kind.as_str(), issuer.group.as_str()) != ("Issuer", "cert-manager.io") {
            return None;
        }
        let roots = self.root_shards.iter().filter(|(key, _)| key.namespace() == namespace);
        let of_roots = roots.flat_map(|(key, root)| {
            let sub_cas = certificate::SUB_CAS.iter().map(|ca| name::sub_ca(key.name(), ca));
            let sub_cas = sub_cas.map(|ca| (ca.clone(), ca));
            sub_cas.chain([(format!("{}-ca", key.name()), name::root_ca(key, root))])
        });
        let caches = self.cache_servers.iter().filter(|(key, _)| key.namespace() == namespace);
        let of_caches = caches.map(|(key, cache)| {
            let ca = format!("{}-ca", key.name());
            let given = named(cache.spec.certificates.ca_secret_ref.as_ref()).map(str::to_owned);
            (ca.clone(), given.unwrap_or(ca))
        });
        of_roots.chain(of_caches).find(|(name, _)| *name == issuer.name).map(|(_, secret)| secret)
    }
}

use self::option::OptIns;

/// Plans the resources of one landscape.
struct Planner<'a> {
    resources: &'a Resources,
    known: &'a Known,
}

/// A RootShard and its key.
#[derive(Clone, Copy)]
struct Root<'a> {
    key: &'a Key,
    shard: &'a RootShard,
}

impl Root<'_> {
    /// Whether a template says that a renewal replaces the key of a CA.
    fn rotates(self, template: &str) -> bool {
        overlap::rotates(&self.shard.spec.common.certificate_templates, template)
    }

    /// As [`Root::rotates`], for the root CA. One of the user has no template.
    fn root_ca_rotates(self) -> bool {
        self.shard.spec.certificates.issuer_ref.is_some() && self.rotates("root-ca")
    }

    /// Whether a sub CA signs certificates of clients.
    fn is_of_clients(ca: &str) -> bool {
        matches!(ca, "client" | "requestheader-client")
    }
}

impl<'a> Planner<'a> {
    /// What annotations of a resource switch on or off.
    fn opt_ins(&self, kind: Kind, key: &Key) -> OptIns<'a> {
        self.resources.metadata(kind, key).map(OptIns::from_metadata).unwrap_or_default()
    }

    /// The RootShard that a resource refers to.
    fn root(&self, kind: Kind, key: &Key, reference: Option<&LocalRef>) -> Result<Root<'a>, Problem> {
        const FIELD: &str = "spec.rootShard.ref.name";
        let Some(name) = named(reference) else {
            let message = format!("{kind} {key} names no RootShard");
            let (key, hint) = (key.clone(), "name one".to_owned());
            let severity = Severity::Error;
            return Err(Problem { severity, kind, key, field: FIELD, message, hint, missing: None });
        };
        self.root_named(kind, key, name, FIELD)
    }

    fn root_named(&self, kind: Kind, key: &Key, name: &str, field: &'static str) -> Result<Root<'a>, Problem> {
        let wanted = Key::new(key.namespace(), name);
        match self.resources.root_shards.get_key_value(&wanted) {
            Some((key, shard)) => Ok(Root { key, shard }),
            None => Err(missing(kind, key, field, Kind::RootShard, &wanted)),
        }
    }

    /// The VirtualWorkspace that a shard names.
    fn virtual_workspace_of(
        &self,
        kind: Kind,
        key: &Key,
        common: &CommonShardSpec,
    ) -> Result<Option<&'a VirtualWorkspace>, Problem> {
        let Some(name) = named(common.kcp_virtual_workspace.as_ref()) else { return Ok(None) };
        let wanted = Key::new(key.namespace(), name);
        match self.resources.virtual_workspaces.get(&wanted) {
            Some(found) => Ok(Some(found)),
            None => Err(missing(kind, key, "spec.kcpVirtualWorkspace.name", Kind::VirtualWorkspace, &wanted)),
        }
    }

    /// The same plan, with what opt-ins say of all its Deployments, and what its objects wait for beyond its own
    /// certificates and keys: the CA that issues a certificate, and the Deployments of resources that come before.
    fn ordered(&self, mut plan: Plan) -> Plan {
        let opt_ins = self.opt_ins(plan.kind, &plan.key);
        let is_hardened = opt_ins.is_enabled(annotation::HARDENING);
        plan.deployments.iter_mut().for_each(|deployment| deployment.is_hardened = is_hardened);
        let limit = opt_ins.max_unavailable();
        plan.budgets.extend(limit.iter().flat_map(|limit| plan.deployments.iter().map(|one| one.budget(limit))));
        for certificate in &mut plan.certificates {
            let ca = self.resources.secret_of_issuer(plan.key.namespace(), &certificate.issuer);
            certificate.gates.extend(ca.map(|ca| Gate::keys(&ca, &workload::PAIR)));
        }
        // A CA that is being replaced may be missing. Pods do not mount it.
        let authorities: BTreeSet<String> =
            plan.certificates.iter().filter(|one| one.is_ca).map(|one| one.name.clone()).collect();
        let is_replaced = |gate: &Gate| match gate {
            Gate::Certificate(name) => {
                authorities.contains(name) && self.trust_of(plan.key.namespace(), name, false).is_some()
            }
            Gate::Key(_) | Gate::Deployment { .. } => false,
        };
        plan.deployments.iter_mut().for_each(|deployment| deployment.gates.retain(|gate| !is_replaced(gate)));
        let before = self.deployments_before(&plan);
        let internal_proxy = Gate::Deployment { name: name::root_service(plan.key.name()), is_up: true };
        for (position, deployment) in plan.deployments.iter_mut().enumerate() {
            match (plan.kind, position) {
                // A RootShard has its own Deployment, then that of its internal proxy.
                (Kind::RootShard, 1..) => deployment.gates.push(internal_proxy.clone()),
                _ => deployment.gates.extend(before.iter().cloned()),
            }
        }
        plan
    }

    /// The Deployments of other resources that must exist before those of a resource. A server of virtual workspaces
    /// and its shard need each other, so it does not wait until the shard is up.
    fn deployments_before(&self, plan: &Plan) -> Vec<Gate> {
        let Resources { root_shards, shards, front_proxies, virtual_workspaces, .. } = self.resources;
        let gate = |name: String, is_up: bool| Gate::Deployment { name, is_up };
        let root = |reference: Option<&LocalRef>| named(reference).map(|root| gate(name::root_service(root), true));
        let cache = |reference: Option<&LocalRef>| named(reference).map(|cache| gate(name::cache_service(cache), true));
        let found = match plan.kind {
            Kind::CacheServer | Kind::Kubeconfig => [None, None],
            Kind::RootShard => {
                [root_shards.get(&plan.key).and_then(|found| cache(found.spec.cache.reference.as_ref())), None]
            }
            Kind::FrontProxy => {
                [front_proxies.get(&plan.key).and_then(|found| root(found.spec.root_shard.reference.as_ref())), None]
            }
            Kind::Shard => {
                let spec = shards.get(&plan.key).map(|found| &found.spec);
                let own = spec.and_then(|spec| spec.cache.as_ref()).and_then(|own| cache(own.reference.as_ref()));
                [own, spec.and_then(|spec| root(spec.root_shard.reference.as_ref()))]
            }
            Kind::VirtualWorkspace => {
                let target = virtual_workspaces.get(&plan.key).map(|found| &found.spec.target);
                let of = |reference: Option<&LocalRef>, service: fn(&str) -> String| {
                    named(reference).map(|shard| gate(service(shard), false))
                };
                let root = target.and_then(|target| of(target.root_shard_ref.as_ref(), name::root_service));
                [root, target.and_then(|target| of(target.shard_ref.as_ref(), name::shard_service))]
            }
        };
        found.into_iter().flatten().collect()
    }

    /// Whether only the first certificate of a sub CA Secret may be trusted.
    fn is_chained(&self, root: Root<'_>) -> bool {
        self.known.chained.contains(root.key)
    }

    /// The Secret in which pods find what they trust of a CA or key, if it is not the Secret of that. `is_copied` says
    /// whether this is so while nothing is being replaced.
    fn trust_of(&self, namespace: &str, name: &str, is_copied: bool) -> Option<String> {
        let trust = format!("{name}-trust");
        let found = self.known.trusts.get(&Key::new(namespace, &trust));
        (is_copied || found.is_some_and(|found| found.is_mounted)).then_some(trust)
    }

    /// The trust Secret of a CA or key that a resource has, if there is one. `secret` is the Secret of the CA or key.
    fn trust_secret(
        &self,
        key: &Key,
        (name, secret): (&str, &str),
        is_copied: bool,
        labels: &Labels,
    ) -> Option<Secret> {
        let trust = format!("{name}-trust");
        let content = match self.known.trusts.get(&Key::new(key.namespace(), &trust)) {
            Some(found) if found.is_mounted || !is_copied => Content::Trusted(found.clone()),
            Some(_) | None if is_copied => Content::Bundle(vec![Trust { secret: secret.to_owned(), only_first: true }]),
            Some(_) | None => return None,
        };
        Some(Secret { name: trust, labels: labels.clone(), content })
    }

    /// A sub CA, as a part of a bundle.
    fn sub_ca_trust(&self, root: Root<'_>, ca: &str) -> Trust {
        let own = name::sub_ca(root.key.name(), ca);
        match self.trust_of(root.key.namespace(), &own, root.rotates(&format!("{ca}-ca"))) {
            Some(trust) => Trust::whole(&trust),
            None => Trust { secret: own, only_first: Root::is_of_clients(ca) && self.is_chained(root) },
        }
    }

    /// The bundle of client CAs: the one of the RootShard, then those that the references name.
    fn client_cas<'r>(&self, root: Root<'_>, more: impl IntoIterator<Item = Option<&'r LocalRef>>) -> Vec<Trust> {
        let named = more.into_iter().filter_map(named).map(Trust::whole);
        [self.sub_ca_trust(root, "client")].into_iter().chain(named).collect()
    }
}

// === impl Plan ===

impl Plan {
    /// The Secrets and ConfigMaps that its pods mount, each once, with exactly the mounted keys; no keys are all.
    pub fn mounted(&self) -> Vec<Mounted> {
        let gates = self.deployments.iter().flat_map(|deployment| &deployment.gates);
        united(gates.filter_map(|gate| match gate {
            Gate::Key(mounted) => Some(mounted.clone()),
            Gate::Certificate(_) | Gate::Deployment { .. } => None,
        }))
    }

    /// The same of what its pods use and nothing waits for: in optional and projected volumes, and credentials of
    /// registries.
    pub fn used(&self) -> Vec<Mounted> {
        united(self.deployments.iter().flat_map(Deployment::used))
    }

    /// The Secrets with credentials of registries.
    pub fn pull_secrets(&self) -> BTreeSet<&str> {
        self.deployments.iter().flat_map(|deployment| &deployment.pull_secrets).map(String::as_str).collect()
    }

    /// What an object of a kind and name waits for. Its creation does, and all changes but for other Deployments.
    pub fn gates(&self, kind: &str, name: &str) -> Vec<Gate> {
        let found = match kind {
            "Certificate" => {
                let mut all = self.certificates.iter();
                all.find(|certificate| certificate.name == name).map(|certificate| certificate.gates.clone())
            }
            "Secret" => self.secrets.iter().find(|secret| secret.name == name).map(Secret::gates),
            "Deployment" => {
                let mut all = self.deployments.iter();
                all.find(|deployment| deployment.name == name).map(|deployment| deployment.gates.clone())
            }
            _ => None,
        };
        found.unwrap_or_default()
    }
}

// === impl Trust ===

impl Trust {
    /// All certificates of a Secret.
    pub fn whole(secret: &str) -> Trust {
        Trust { secret: secret.to_owned(), only_first: false }
    }

    fn gate(&self) -> Gate {
        Gate::keys(&self.secret, &["tls.crt"])
    }
}

// === impl Gate ===

impl Gate {
    /// These keys of a Secret.
    fn keys(secret: &str, keys: &[&str]) -> Gate {
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        Gate::Key(Mounted { kind: "Secret", name: secret.to_owned(), keys })
    }
}

// === impl Secret ===

impl Secret {
    fn bundle(name: String, labels: Labels, trusts: Vec<Trust>) -> Secret {
        Secret { name, labels, content: Content::Bundle(trusts) }
    }

    /// What it waits for: the certificates that it contains.
    pub fn gates(&self) -> Vec<Gate> {
        match &self.content {
            Content::Files(_) | Content::Trusted(_) => Vec::new(),
            Content::Bundle(trusts) => trusts.iter().map(Trust::gate).collect(),
            Content::Credentials(credentials) => {
                let certificate = credentials.certificate.clone();
                let pair = Gate::keys(&certificate, &workload::PAIR);
                let trusts = credentials.trusts.iter().map(Trust::gate);
                [Gate::Certificate(certificate), pair].into_iter().chain(trusts).collect()
            }
        }
    }

    /// The key that it has.
    pub fn data_key(&self) -> &'static str {
        match self.content {
            Content::Files(_) | Content::Credentials(_) => "kubeconfig",
            Content::Bundle(_) | Content::Trusted(_) => "tls.crt",
        }
    }
}

/// Each object once, with all keys.
fn united(mounted: impl Iterator<Item = Mounted>) -> Vec<Mounted> {
    let mut all: BTreeMap<(&'static str, String), Vec<String>> = BTreeMap::new();
    for Mounted { kind, name, keys } in mounted {
        match all.entry((kind, name)) {
            Entry::Vacant(place) => _ = place.insert(keys),
            Entry::Occupied(mut known) if keys.is_empty() || known.get().is_empty() => known.get_mut().clear(),
            Entry::Occupied(mut known) => known.get_mut().extend(keys),
        }
    }
    let each = all.into_iter().map(|((kind, name), mut keys)| {
        keys.sort();
        keys.dedup();
        Mounted { kind, name, keys }
    });
    each.collect()
}

fn missing(kind: Kind, key: &Key, field: &'static str, what: Kind, wanted: &Key) -> Problem {
    let (namespace, name) = (wanted.namespace(), short(wanted.name()));
    Problem {
        severity: Severity::Error,
        kind,
        key: key.clone(),
        field,
        message: format!("{what} {namespace}/{name}, which {kind} {key} names, does not exist"),
        hint: format!("declare {what} `{name}` in namespace `{namespace}`, or correct the name"),
        missing: Some(Box::new((what, wanted.clone()))),
    }
}

/// The name of a reference; `None` if it is empty.
fn named(reference: Option<&LocalRef>) -> Option<&str> {
    reference.map(|reference| reference.name.as_str()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
