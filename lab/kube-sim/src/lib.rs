//! A Kubernetes API in memory: one value is one API server, as a tower service or behind TLS.
//!
//! [`Server`] is what the daemon, the agent, `kubectl` and Lifecycle Manager's module path need of kube-apiserver 1.36
//! and of the controllers beside it: discovery; the built-in kinds of the groups core, apps, networking, policy, rbac,
//! events, admission, apiextensions, scheduling and coordination, and reviews of authentication and authorization; custom resources with pruning, defaults, checks, CEL
//! and status; lists in pages, selectors, watches with bookmarks and 410; generated names, generations, finalizers,
//! owners, preconditions, dry run; merge and JSON patch and server-side apply; metadata and tables instead of objects;
//! namespaces that terminate; tokens and client certificates; admission webhooks; Deployments that become ready.
//!
//! Its answers are compared with a real server by one suite, `tests/it/sim/`, which runs on both.
//!
//! [`builtin`] knows the built-in kinds; [`patch`] says what an object is after a write: JSON patch, merge patch and
//! server-side apply, with the managed fields that the real API server would keep. Both are pure: values in, values out.
//! [`fault`] stands before a server, this one or a real one, and lets it fail by a seed.
//!
//! # What it does not do
//!
//! It says so, with 415 or 501, or as the real server does of what it does not have:
//!
//! * strategic merge patch (415), so `kubectl edit`, and `kubectl apply` of what is there without `--server-side`, work on
//!   custom resources only: the refusal says what to use instead;
//! * answers in protobuf alone (406); bodies in protobuf are read of built-in kinds but CustomResourceDefinitions (415);
//! * the subresources `scale`, `finalize`, `token` and those of Pods (501);
//! * groups other than those above, and versions other than `v1` of built-in kinds;
//! * RBAC: whoever is known may do everything, and act for anybody by the headers of impersonation; whoever is not may ask
//!   for versions and health; reviews of who may do what say so, and there is no `SelfSubjectRulesReview`;
//! * descriptions: `/openapi/v3` tells of built-in kinds without them, and so does `kubectl explain`; `/openapi/v2` (404);
//! * tables of `meta.k8s.io/v1beta1` (406).
//!
//! # What differs from the real server
//!
//! * What controllers do happens before the answer to the write that caused it, in one order: definitions are
//!   established, dependents collected and namespaces emptied when the answer arrives. Nothing else runs: no Pods come
//!   of a Deployment, no ServiceAccount or root certificate appears in a new namespace, and one that waits for what is in it
//!   to go has no conditions. A new kind is served at once: no 429 says that its storage is being initialized.
//! * There are four namespaces and nothing else at the beginning: no Service `kubernetes`, and none of the roles, bindings,
//!   priority classes, leases and flow schemas that the real server brings.
//! * Pods are deleted at once, without a grace period.
//! * A list that goes on in pages shows what is there when each page is read; its version is the first page's, so a watch
//!   from there tells of everything that changed meanwhile. `resourceVersionMatch=Exact` reads what is there now.
//! * Of built-in kinds, metadata and the types of fields are checked, in the server's words, of ConfigMaps and Secrets
//!   their keys and size, of Secrets what their type wants, but not whether it is JSON, nor does it warn of a certificate
//!   and a key that do not fit; of webhooks their conditions, and of Events their namespace. Services get no address. What else
//!   it demands is not: a Service without ports, or a Deployment whose selector does not fit its template, is taken.
//!   These stay as they were: what is in ConfigMaps and Secrets that say so, the type of Secrets, roles of bindings,
//!   selectors of Deployments, DaemonSets and ReplicaSets, what stays of a StatefulSet's `spec`, controllers of IngressClasses,
//!   and value and policy of PriorityClasses. Others may change that the server keeps: addresses of Services, what is in Pods,
//!   claims, volumes and ControllerRevisions, and the target of an Event.
//! * Nulls stay among the labels and annotations of custom resources, and in the lists of any object's metadata.
//!   Texts that stand for something else are not read: base64 that is none, and times that are none, are taken. Owners may
//!   be Events, and of any version.
//! * A merge patch that takes `kind` and `apiVersion` away both gives them back.
//! * An apply with a null in a custom resource may be taken where the schema says that it is of another type.
//! * Of definitions, schemas, names, scope, versions that are stored and rules are checked: names of versions, columns,
//!   selectable fields, paths of `scale`, conversion, `preserveUnknownFields`, approval of `k8s.io` groups, and fields that
//!   stand in `allOf`, `anyOf`, `oneOf` or `not` alone, are not; unknown formats and fields are not warned of. What is
//!   refused may be told in fewer causes. A definition whose kind is taken has no accepted names at all. Of webhook
//!   configurations, ranges, policies, clients, rules and selectors are not checked.
//! * Errors of our JSON, YAML and JSON patch libraries are in their words: nesting deeper than 128 levels, numbers out of
//!   range, YAML that does not parse, a patch of a webhook that does not fit or makes another type. A tab in YAML is taken,
//!   a key that stands twice in YAML is refused.
//! * With `fieldValidation=Ignore` the server reads patches with other parsers: operations of a JSON patch that are none, and
//!   merge patches that are no mapping, are refused in other words here.
//! * Of a built-in object, unknown fields are told after those that stand twice, and in the order of their names; a text that
//!   stands twice in the value of a JSON patch is told once. Of a built-in object's mapping that stands twice, the server
//!   takes both together; here the last one counts.
//! * A request whose query has `>` or another sign that must be escaped is answered by our HTTP library, with an empty 400.
//!   Watches with `continue`, and tables with an unknown `includeObject`, are not refused.
//! * Field managers may have control characters. Media types are taken in the order of `Accept`, whatever their `q`.
//! * Patches of more than 10,000 operations are refused in other words. Namespaces named `..` are looked for like others.
//! * Selectors with NUL in them are read otherwise.
//! * CEL has no costs here: a rule that may take too long is taken. Its syntax and types are checked, and told, as the
//!   server's compiler does it, but for the arguments of functions other than `size`, `matches`, `startsWith` and `endsWith`,
//!   and for what optional values, types as values, two-variable macros and functions in a namespace such as `sets` give: of
//!   these nothing is said. Literals that are no duration, time or pattern are taken; more than three loops within each other
//!   are refused in our words. What is said of a rule that fails on an object is in our words, but for a key that is absent
//!   and a division by zero. Defaults in definitions are not held against their schemas.
//! * Rules with these functions of the server's libraries are taken and always hold, since they are not computed here, and so
//!   do such conditions of webhooks: `isURL`, `url` and what it gives; `isIP`, `ip`, `ip.isCanonical`, `isCIDR`, `cidr` and what
//!   they give; `isQuantity`, `quantity`, `isSemver`, `semver` and what they give; `timestamp`, and parts of times and
//!   durations such as `getFullYear`; `format.named`, other formats, and `validate`; `find`, `findAll`; `isSorted`, `sum`,
//!   `min`, `max`, `first`, `last`; `sets.contains`, `sets.equivalent`, `sets.intersects`; `optional.unwrap`, `unwrapOpt`;
//!   `all`, `exists` and `existsOne` of two variables, `transformList`, `transformMap`, `transformMapEntry`; types such as
//!   `google.protobuf.Timestamp`.
//! * All versions of a custom resource are stored as they were sent: no conversion webhooks.
//! * Where webhooks cannot be reached, why not is said in our words. Those with `matchPolicy: Equivalent` are asked about other
//!   versions of custom resources, not about Events of the other group. Audit annotations go nowhere, and answers of webhooks that are no
//!   JSON, which the server reads as YAML, are refused in other words.
//! * Mutating webhooks are asked once, whatever their `reinvocationPolicy`; `matchConditions` that name `authorizer` fail.
//! * Columns of tables of built-in kinds have no descriptions, and those of Pods, Nodes, volumes, quotas, Ingresses and
//!   the like are fewer.

mod admission;
mod body;
pub mod builtin;
mod certificates;
mod clock;
mod controllers;
mod convert;
mod crd;
mod delete;
mod discovery;
pub mod fault;
mod identity;
mod journal;
mod kubeconfig;
mod metadata;
mod openapi;
pub mod patch;
mod read;
mod refusal;
mod request;
mod resource;
mod reviews;
mod selector;
mod serve;
mod service;
mod store;
mod table;
mod tally;
mod text;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use axum::body::Body;
use http::{HeaderMap, Response};
use jiff::Timestamp;
use serde_json::json;

use self::{
    admission::{Clients, Routes, Webhooks},
    clock::Clock,
    controllers::Tasks,
    crd::Defined,
    identity::Tokens,
    journal::Journal,
    refusal::Refusal,
    resource::{NAMESPACES, Resource, Resources},
    store::{Draft, Store, key},
};
pub use self::{
    certificates::{Authority, CredentialsError, Identity},
    identity::User,
    journal::{Alike, Answered, Counted, Requests},
    kubeconfig::{Credentials, Kubeconfig},
    serve::{Error, Served},
    service::Service,
    tally::{Tally, is_write},
};

/// One API server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

/// How a server is.
#[derive(Clone, Debug)]
pub struct Options {
    /// When it began; the clock of tokio goes on from there.
    pub began: Timestamp,
    /// Where ids and generated names come from. Equal seeds give equal ones.
    pub seed: u64,
    /// How many changes of each resource are kept for watches that begin in the past.
    pub history_max: usize,
    /// When Deployments become ready, where nothing else was said of one.
    pub readiness: Readiness,
}

/// When a Deployment becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// This long after it was created or changed.
    After(Duration),
    /// Never.
    Never,
}

/// What a server is made of.
struct Inner {
    store: Store,
    clock: Clock,
    /// What definitions have added to what is served.
    custom: RwLock<Resources>,
    tokens: RwLock<Tokens>,
    admission: Mutex<Option<Arc<Webhooks>>>,
    clients: Clients,
    routes: Routes,
    tasks: Tasks,
    readiness: RwLock<(Readiness, BTreeMap<Arc<str>, Readiness>)>,
    requests: Mutex<BTreeMap<&'static str, u64>>,
    journal: Journal,
}

// === impl Options ===

impl Default for Options {
    /// From now on, with ids that nobody can guess, and Deployments that are ready at once.
    fn default() -> Options {
        Options {
            began: Timestamp::now(),
            seed: RandomState::new().hash_one(0_u8),
            // As many as a watch cache of the real server begins with.
            history_max: 100,
            readiness: Readiness::After(Duration::ZERO),
        }
    }
}

// === impl Server ===

impl Server {
    /// A server with the namespaces that every cluster has.
    pub fn new(options: &Options) -> Server {
        let server = Server::with(Store::new(options.history_max), options);
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            server.begin_namespace(name);
        }
        server
    }

    fn with(store: Store, options: &Options) -> Server {
        let routes = Routes::default();
        Server(Arc::new(Inner {
            store,
            clock: Clock::new(options.began, options.seed),
            custom: RwLock::default(),
            tokens: RwLock::default(),
            admission: Mutex::default(),
            clients: Clients::new(routes.clone()),
            routes,
            tasks: Tasks::default(),
            readiness: RwLock::new((options.readiness, BTreeMap::new())),
            requests: Mutex::default(),
            journal: Journal::default(),
        }))
    }

    /// A server that begins with what this one has now, as one that is restored from a backup: without history.
    #[must_use]
    pub fn restored(&self, options: &Options) -> Server {
        let restored = Server::with(self.0.store.restored(options.history_max), options);
        *restored.0.custom.write().unwrap_or_else(PoisonError::into_inner) = self.custom();
        restored
    }

    /// The server for whoever says who it is, by its `Authorization` header.
    pub fn service(&self) -> Service {
        Service::new(self.clone(), None)
    }

    /// The server for one user.
    pub fn service_as(&self, user: User) -> Service {
        Service::new(self.clone(), Some(user))
    }

    /// A client in this process, as the administrator.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service_as(User::admin()), "default")
    }

    /// From now on a bearer of this token is `user`.
    pub fn accept_token(&self, token: &str, user: User) {
        self.0.tokens.write().unwrap_or_else(PoisonError::into_inner).add(token.to_owned(), user);
    }

    /// From now on calls to webhooks of a Service go to this port on loopback; to none, they fail.
    pub fn lead_to(&self, service: &str, namespace: &str, port: Option<u16>) {
        self.0.routes.lead(service, namespace, port);
        self.0.clients.forget();
    }

    /// From now on Deployments become ready so; of one name only, or all others.
    pub fn set_readiness(&self, deployment: Option<(&str, &str)>, readiness: Readiness) {
        let mut known = self.0.readiness.write().unwrap_or_else(PoisonError::into_inner);
        match deployment {
            Some((namespace, name)) => {
                known.1.insert(key(namespace, name), readiness);
            }
            None => known.0 = readiness,
        }
    }

    /// Forgets all history: watches that begin in the past, and lists that go on, are answered with 410.
    pub fn compact(&self) {
        self.0.store.compact();
    }

    /// The version of the last write.
    pub fn version(&self) -> u64 {
        self.0.store.version()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.store.len()
    }

    /// Whether there are no objects, which never is so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests on resources so far, by verb.
    pub fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    // --- inside ---

    fn begin_namespace(&self, name: &str) {
        let Some(resource) = self.resource_of(NAMESPACES) else { return };
        let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        if metadata::begin(&resource, "", &mut object, &self.0.clock).is_ok() {
            self.begin(&resource, &mut object);
            self.hold(&resource, &mut object);
            let _ = self.0.store.put(&resource.collection, &key("", name), None, Draft::of(&object));
        }
    }

    fn count(&self, verb: &'static str) {
        *self.0.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(verb).or_default() += 1;
    }

    fn user(&self, headers: &HeaderMap, certificate: Option<&User>) -> Result<User, Refusal> {
        self.0.tokens.read().unwrap_or_else(PoisonError::into_inner).user(headers, certificate)
    }

    fn user_of_token(&self, token: &str) -> Option<User> {
        self.0.tokens.read().unwrap_or_else(PoisonError::into_inner).of(token)
    }

    fn readiness(&self, namespace: &str, name: &str) -> Readiness {
        let known = self.0.readiness.read().unwrap_or_else(PoisonError::into_inner);
        known.1.get(&key(namespace, name)).copied().unwrap_or(known.0)
    }

    /// What definitions define, now.
    fn custom(&self) -> Resources {
        self.0.custom.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let place = (group.into(), version.into(), plural.into());
        let custom = || self.0.custom.read().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        resource::built_in().get(&place).cloned().or_else(custom)
    }

    /// What is said of a path below a group where nothing is: in groups of built-in kinds, at any version, in a `Status`.
    fn nothing_at(&self, group: &str) -> Result<Response<Body>, Refusal> {
        let is_it = |resource: &Arc<Resource>| *resource.kind.group == *group;
        if resource::built_in().values().any(is_it) { Err(Refusal::not_served()) } else { Ok(discovery::no_page()) }
    }

    /// The resource that a collection's objects are stored as.
    fn resource_of(&self, collection: &str) -> Option<Arc<Resource>> {
        let is_it = |resource: &&Arc<Resource>| {
            *resource.collection == *collection && *resource.api_version == *resource.stored
        };
        let custom = || {
            let custom = self.0.custom.read().unwrap_or_else(PoisonError::into_inner);
            let any = |resource: &&Arc<Resource>| *resource.collection == *collection;
            custom.values().find(is_it).or_else(|| custom.values().find(any)).cloned()
        };
        resource::built_in().values().find(is_it).cloned().or_else(custom)
    }

    /// A custom resource at all its versions.
    fn versions_of(&self, collection: &str) -> Vec<Arc<Resource>> {
        let custom = self.0.custom.read().unwrap_or_else(PoisonError::into_inner);
        custom.values().filter(|resource| *resource.collection == *collection).cloned().collect()
    }

    fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let is_it = |resource: &&Arc<Resource>| *resource.api_version == *api_version && *resource.kind.kind == *kind;
        let custom = || self.0.custom.read().unwrap_or_else(PoisonError::into_inner).values().find(is_it).cloned();
        resource::built_in().values().find(is_it).cloned().or_else(custom)
    }

    /// From now on serves what a definition defines, and nothing else of its name.
    fn serve(&self, defined: &Defined, definition: &str) {
        let mut custom = self.0.custom.write().unwrap_or_else(PoisonError::into_inner);
        custom.retain(|_, resource| *resource.collection != *definition);
        custom.extend(defined.iter().map(|resource| (resource.place(), Arc::clone(resource))));
    }

    /// Serves nothing of a definition any more.
    fn forget_definition(&self, definition: &str) {
        self.0.custom.write().unwrap_or_else(PoisonError::into_inner).retain(|_, of| *of.collection != *definition);
        self.0.store.forget(definition);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("objects", &self.len()).finish_non_exhaustive()
    }
}
