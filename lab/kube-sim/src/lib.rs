// SPDX-License-Identifier: Apache-2.0

//! A Kubernetes API server in memory, for the tests of operators: as a tower service, or behind TLS.
//!
//! [`Server`] behaves like kube-apiserver 1.36 and its controllers, as far as Tidegate's daemon, its agent, `kubectl`
//! and Lifecycle Manager's module path need them:
//!
//! * discovery; the built-in kinds of the groups core, apps, networking, policy, rbac, events, admission,
//!   apiextensions, scheduling and coordination; reviews of authentication and authorization
//! * custom resources with pruning, defaults, validation, CEL and status
//! * paged lists, selectors, watches with bookmarks and 410
//! * generated names, generations, finalizers, owner references, preconditions, dry run
//! * merge patch, JSON patch and server-side apply with managed fields
//! * metadata or tables instead of objects
//! * namespaces that terminate; tokens and client certificates; admission webhooks; Deployments that become ready
//!
//! The suite `tests/it/sim/` runs against this server and a real one and compares the answers.
//!
//! [`builtin`] contains the built-in kinds. [`patch`] computes an object after a write: JSON patch, merge patch and
//! server-side apply, with the managed fields that the real API server would keep. Both are pure. [`fault`] is a layer
//! in front of this server or a real one, which injects faults from a seed.
//!
//! # What it does not do
//!
//! It answers these requests with 415 or 501, or as the real server answers for missing features:
//!
//! * Strategic merge patch (415). So `kubectl edit`, and `kubectl apply` of existing objects without `--server-side`,
//!   work only for custom resources. The error says what to use instead.
//! * Answers only in protobuf (406). It reads protobuf bodies of built-in kinds except CustomResourceDefinitions (415).
//! * The subresources `scale`, `finalize`, `token` and those of Pods (501).
//! * Other groups than those above, and other versions than `v1` of built-in kinds.
//! * RBAC. An authenticated user may do everything, and impersonate every user. An anonymous user may read versions and
//!   health. Access reviews answer accordingly; there is no `SelfSubjectRulesReview`.
//! * Descriptions: `/openapi/v3` has none for built-in kinds, and so neither has `kubectl explain`. `/openapi/v2` is
//!   404.
//! * Tables of `meta.k8s.io/v1beta1` (406).
//!
//! # What differs from the real server
//!
//! * Controllers act before the answer to the write that triggers them, in one order. When the answer arrives,
//!   definitions are established, dependents are collected and namespaces are emptied. No other controller runs: a
//!   Deployment creates no Pods, a new namespace gets no ServiceAccount and no root certificate, and a terminating
//!   namespace has no conditions. A new kind is served at once, without a 429 while its storage is initialized.
//! * At the start there are four namespaces and nothing else: no Service `kubernetes`, and none of the roles, bindings,
//!   priority classes, leases and flow schemas of the real server.
//! * Pods are deleted at once, without a grace period.
//! * Each page of a list shows the objects at the time when it is read. The list's resource version is that of the
//!   first page, so a watch from there reports everything that changed meanwhile. `resourceVersionMatch=Exact` reads
//!   the current objects.
//! * Of built-in kinds, it validates metadata and types of fields, in the server's words. It also validates keys and
//!   size of ConfigMaps and Secrets, the keys that a Secret's type requires (but not whether they contain JSON),
//!   conditions of webhooks and namespaces of Events. It does not warn about a certificate and a key that do not match.
//!   Services get no address. It does not validate anything else: it accepts a Service without ports, or a Deployment
//!   whose selector does not match its template.
//! * These fields are immutable: data of immutable ConfigMaps and Secrets, the type of Secrets, roles of bindings,
//!   selectors of Deployments, DaemonSets and ReplicaSets, the immutable part of a StatefulSet's `spec`, controllers of
//!   IngressClasses, and value and policy of PriorityClasses. Other fields that the real server protects may change:
//!   addresses of Services, contents of Pods, claims, volumes and ControllerRevisions, and the target of an Event.
//! * Nulls stay in labels and annotations of custom resources, and in the lists of any object's metadata. Encoded texts
//!   are not checked: invalid base64 and invalid times are accepted. Owners may be Events, and have any version.
//! * A merge patch that removes both `kind` and `apiVersion` restores them.
//! * An apply with a null in a custom resource may be accepted although the schema requires another type.
//! * Of definitions, it validates schemas, names, scope, stored versions and rules. It does not validate names of
//!   versions, columns, selectable fields, paths of `scale`, conversion, `preserveUnknownFields`, approval of `k8s.io`
//!   groups, and fields that occur only in `allOf`, `anyOf`, `oneOf` or `not`. It does not warn about unknown formats
//!   and fields. A refusal may list fewer causes. A definition whose kind is taken has no accepted names at all. Of
//!   webhook configurations, it does not validate ranges, policies, clients, rules and selectors.
//! * Errors of our JSON, YAML and JSON patch libraries have their own words: nesting deeper than 128 levels, numbers
//!   out of range, invalid YAML, and a webhook's patch that does not apply or results in another type. A tab in YAML is
//!   accepted; a duplicate key in YAML is refused.
//! * With `fieldValidation=Ignore`, the real server reads patches with other parsers. Here, invalid operations of a
//!   JSON patch, and merge patches that are not mappings, are refused in other words.
//! * Of a built-in object, unknown fields are reported after duplicate ones, in the order of their names. A duplicate
//!   text in the value of a JSON patch is reported once. The real server merges a duplicate mapping of a built-in
//!   object; here the last one wins.
//! * A request whose query has `>` or another character that must be escaped gets an empty 400 from our HTTP library.
//!   Watches with `continue`, and tables with an unknown `includeObject`, are accepted.
//! * Field managers may contain control characters. Media types are tried in the order of `Accept`, whatever their `q`.
//! * Patches of more than 10,000 operations are refused in other words. Namespaces named `..` are looked up like
//!   others.
//! * Selectors with NUL in them are parsed differently.
//! * CEL has no cost limits: a rule that may take too long is accepted. Syntax and types are checked and reported as
//!   the server's compiler does. Unchecked are the arguments of functions other than `size`, `matches`, `startsWith`
//!   and `endsWith`, and the results of optional values, types as values, two-variable macros and functions in a
//!   namespace such as `sets`. Literals that are not durations, times or patterns are accepted; more than three nested
//!   loops are refused in our words. A rule that fails on an object is reported in our words, except for a missing key
//!   and a division by zero. Defaults in definitions are not validated against their schemas.
//! * Rules and webhook conditions with these functions of the server's libraries are accepted and always hold, because
//!   they are not evaluated: `isURL`, `url` and its results; `isIP`, `ip`, `ip.isCanonical`, `isCIDR`, `cidr` and their
//!   results; `isQuantity`, `quantity`, `isSemver`, `semver` and their results; `timestamp`, and parts of times and
//!   durations such as `getFullYear`; `format.named`, other formats, and `validate`; `find`, `findAll`; `isSorted`,
//!   `sum`, `min`, `max`, `first`, `last`; `sets.contains`, `sets.equivalent`, `sets.intersects`; `optional.unwrap`,
//!   `unwrapOpt`; `all`, `exists` and `existsOne` of two variables, `transformList`, `transformMap`,
//!   `transformMapEntry`; types such as `google.protobuf.Timestamp`.
//! * All versions of a custom resource are stored as they were sent: no conversion webhooks.
//! * If a webhook cannot be reached, the cause is in our words. Webhooks with `matchPolicy: Equivalent` are called for
//!   other versions of custom resources, but not for Events of the other group. Audit annotations are dropped. Answers
//!   of webhooks that are not JSON, which the real server reads as YAML, are refused in other words.
//! * Mutating webhooks are called once, whatever their `reinvocationPolicy`; `matchConditions` that use `authorizer`
//!   fail.
//! * Columns of tables of built-in kinds have no descriptions. Pods, Nodes, volumes, quotas, Ingresses and the like
//!   have fewer columns.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
    serve::{Error, Served, WriteLimit},
    service::Service,
    tally::{Tally, is_write},
};

/// An API server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's time at the start; it advances with tokio's clock.
    pub began: Timestamp,
    /// The seed of ids and generated names. Equal seeds give equal ones.
    pub seed: u64,
    /// How many changes of each resource are kept for watches that start in the past.
    pub history_max: usize,
    /// When Deployments become ready by default.
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

/// The state of a server.
struct Inner {
    store: Store,
    clock: Clock,
    /// The resources that definitions add.
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
    /// Starts at the current time, with random ids and Deployments that are ready at once.
    fn default() -> Options {
        Options {
            began: Timestamp::now(),
            seed: RandomState::new().hash_one(0_u8),
            // The initial size of the real server's watch cache.
            history_max: 100,
            readiness: Readiness::After(Duration::ZERO),
        }
    }
}

// === impl Server ===

impl Server {
    /// Creates a server with the namespaces that every cluster has.
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

    /// Creates a server with the current objects of this one but without history, like a restored backup.
    #[must_use]
    pub fn restored(&self, options: &Options) -> Server {
        let restored = Server::with(self.0.store.restored(options.history_max), options);
        *restored.0.custom.write().unwrap_or_else(PoisonError::into_inner) = self.custom();
        restored
    }

    /// A service that authenticates requests by their `Authorization` header.
    pub fn service(&self) -> Service {
        Service::new(self.clone(), None)
    }

    /// A service that handles all requests as this user.
    pub fn service_as(&self, user: User) -> Service {
        Service::new(self.clone(), Some(user))
    }

    /// A client without a socket, as the administrator.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service_as(User::admin()), "default")
    }

    /// Accepts this bearer token for `user`.
    pub fn accept_token(&self, token: &str, user: User) {
        self.0.tokens.write().unwrap_or_else(PoisonError::into_inner).add(token.to_owned(), user);
    }

    /// Sends calls to webhooks of a Service to this loopback port; with `None`, they fail.
    pub fn lead_to(&self, service: &str, namespace: &str, port: Option<u16>) {
        self.0.routes.lead(service, namespace, port);
        self.0.clients.forget();
    }

    /// Sets when one Deployment becomes ready, or with `None` all others.
    pub fn set_readiness(&self, deployment: Option<(&str, &str)>, readiness: Readiness) {
        let mut known = self.0.readiness.write().unwrap_or_else(PoisonError::into_inner);
        match deployment {
            Some((namespace, name)) => {
                known.1.insert(key(namespace, name), readiness);
            }
            None => known.0 = readiness,
        }
    }

    /// Drops all history: watches that start in the past, and later pages of lists, get 410.
    pub fn compact(&self) {
        self.0.store.compact();
    }

    /// The resource version of the last write.
    pub fn version(&self) -> u64 {
        self.0.store.version()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.0.store.len()
    }

    /// Always false, because a server has namespaces.
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
            let _ = self.0.store.put(&resource.collection, &key("", name), None, Draft::from_object(&object));
        }
    }

    fn count(&self, verb: &'static str) {
        *self.0.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(verb).or_default() += 1;
    }

    fn user(&self, headers: &HeaderMap, certificate: Option<&User>) -> Result<User, Refusal> {
        self.0.tokens.read().unwrap_or_else(PoisonError::into_inner).user(headers, certificate)
    }

    fn user_of_token(&self, token: &str) -> Option<User> {
        self.0.tokens.read().unwrap_or_else(PoisonError::into_inner).user_of(token)
    }

    fn readiness(&self, namespace: &str, name: &str) -> Readiness {
        let known = self.0.readiness.read().unwrap_or_else(PoisonError::into_inner);
        known.1.get(&key(namespace, name)).copied().unwrap_or(known.0)
    }

    /// The current custom resources.
    fn custom(&self) -> Resources {
        self.0.custom.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let place = (group.into(), version.into(), plural.into());
        let custom = || self.0.custom.read().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        resource::built_in().get(&place).cloned().or_else(custom)
    }

    /// The answer for an unknown path below a group. For groups of built-in kinds, in any version, it is a `Status`.
    fn nothing_at(&self, group: &str) -> Result<Response<Body>, Refusal> {
        let is_it = |resource: &Arc<Resource>| *resource.kind.group == *group;
        if resource::built_in().values().any(is_it) { Err(Refusal::not_served()) } else { Ok(discovery::no_page()) }
    }

    /// The resource with the version in which a collection is stored.
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

    /// All versions of a custom resource.
    fn versions_of(&self, collection: &str) -> Vec<Arc<Resource>> {
        let custom = self.0.custom.read().unwrap_or_else(PoisonError::into_inner);
        custom.values().filter(|resource| *resource.collection == *collection).cloned().collect()
    }

    fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let is_it = |resource: &&Arc<Resource>| *resource.api_version == *api_version && *resource.kind.kind == *kind;
        let custom = || self.0.custom.read().unwrap_or_else(PoisonError::into_inner).values().find(is_it).cloned();
        resource::built_in().values().find(is_it).cloned().or_else(custom)
    }

    /// Serves the resources of a definition, instead of its previous ones.
    fn serve(&self, defined: &Defined, definition: &str) {
        let mut custom = self.0.custom.write().unwrap_or_else(PoisonError::into_inner);
        custom.retain(|_, resource| *resource.collection != *definition);
        custom.extend(defined.iter().map(|resource| (resource.place(), Arc::clone(resource))));
    }

    /// Stops serving the resources of a definition.
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
