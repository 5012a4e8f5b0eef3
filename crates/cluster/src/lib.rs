//! A client for one API server: reads, applies and deletes objects.
//!
//! Requests are built from serialised bytes, answers are parsed into as little as possible, and nothing is retried: a
//! request either succeeds or is an [`Error`] that says what resolves it. Every write emits one audit record, and fails
//! while this process does not lead. This crate does not decide what to write.
//!
//! It needs a tokio runtime. Dropping a future cancels its request. A cancelled write may or may not have happened;
//! every write may be repeated.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode, header::CONTENT_TYPE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tidegate_core::{
    api::names::FIELD_MANAGER,
    name::Key,
    object::{Gvk, Object, ObjectId},
};
use tokio::{sync::OnceCell, time::Instant};

pub mod access;
mod audit;
mod breaker;
mod crowd;
mod denial;
mod discovery;
mod dry_run;
mod enact;
mod error;
mod failing;
pub mod follower;
mod fresh;
mod hand_back;
mod kind;
mod kubeconfig;
pub mod lease;
mod metadata;
mod pool;
mod prune;
mod take_over;
mod transport;
pub mod unreadable;
mod user;

pub use audit::Cause;
pub use breaker::Outage;
pub use denial::Denial;
pub use dry_run::DryRun;
pub use enact::{Claims, Effect, Outcome, Task};
pub use error::{Error, FieldConflict, Target, Unreachable};
pub use hand_back::{Heir, Heirs, Return};
pub use kind::Kind;
pub use kubeconfig::{kubeconfig_problem, read_kubeconfig};
pub use lease::Leadership;
pub use metadata::{Metadata, Owner};
pub use pool::Pool;
pub use prune::Pruned;
pub use take_over::{claimed_from_kcp_operator, is_as_applied, is_claimed, is_of_kcp_operator, managers_before};
pub use transport::{Limits, Network, Requests, Verb, client_problem};
pub use unreadable::Unreadable;

use metadata::{Lenient, WireObject};
use transport::{Answer, Ask, Transport};

/// The name of a cluster. Displays as `kcp` or `skr/NAMESPACE/NAME`, as rendered targets do, as
/// `cluster/NAMESPACE/NAME` or as `workspace/NAMESPACE/NAME/PATH`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterName {
    /// The control plane.
    Kcp,
    /// The runtime of a Kyma.
    Runtime(Key),
    /// Another cluster of a kcp landscape: its namespace, and its name in annotations.
    Placed(Key),
    /// A workspace of a kcp landscape.
    Workspace {
        /// The RootShard of the landscape.
        root: Key,
        /// The path of the workspace.
        path: String,
    },
}

/// How to treat fields that another field manager owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Takes them over; for objects that have Tidegate's ownership label.
    Force,
    /// Writes nothing and reports them; for objects that Tidegate sees for the first time.
    Report,
}

/// What happens to the objects that the deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// The result of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The object is gone, or did not exist.
    Gone,
    /// The object is being deleted: finalizers or a grace period keep it for a while.
    Terminating,
    /// The object is not the one, or not in the state, that the precondition names. Nothing was deleted.
    Changed,
}

/// One API server.
pub struct Cluster {
    name: ClusterName,
    transport: Transport,
    kinds: discovery::Known,
    fresh: fresh::Fresh,
    /// The client's user name, once it is known.
    user: OnceCell<Option<Arc<str>>>,
    /// How to connect to this cluster, and to the clusters that its Secrets describe.
    network: Network,
}

// === impl ClusterName ===

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterName::Kcp => f.write_str("kcp"),
            ClusterName::Runtime(key) => write!(f, "skr/{key}"),
            ClusterName::Placed(key) => write!(f, "cluster/{key}"),
            ClusterName::Workspace { root, path } => write!(f, "workspace/{root}/{path}"),
        }
    }
}

// === impl Cluster ===

/// Page size of lists: a page of custom resources has some hundred kilobytes.
const PAGE: usize = 500;

impl Cluster {
    /// A cluster from a configuration. Sends no request.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid.
    pub fn new(name: ClusterName, config: &kube::Config, limits: Limits) -> Result<Cluster, Error> {
        Cluster::on(&Network::real(), name, config, limits)
    }

    /// The same, on a given network. A [`Pool`] that reads its Secrets from this cluster uses the same network.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid.
    pub fn on(network: &Network, name: ClusterName, config: &kube::Config, limits: Limits) -> Result<Cluster, Error> {
        let transport = Transport::new(name.to_string().into(), config, limits, network)?;
        let (kinds, fresh) = (discovery::Known::default(), fresh::Fresh::default());
        Ok(Cluster { name, transport, kinds, fresh, user: OnceCell::new(), network: network.clone() })
    }

    /// Another cluster on the same network.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid.
    pub fn beside(&self, name: ClusterName, config: &kube::Config, limits: Limits) -> Result<Cluster, Error> {
        Cluster::on(&self.network, name, config, limits)
    }

    /// Another cluster on the same network, which refuses writes whenever this one does.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid.
    pub fn alike(&self, name: ClusterName, config: &kube::Config, limits: Limits) -> Result<Cluster, Error> {
        let cluster = self.beside(name, config, limits)?;
        let cluster = if self.is_read_only() { cluster.read_only() } else { cluster };
        Ok(match self.transport.leadership() {
            Some(leadership) => cluster.guarded(leadership.clone()),
            None => cluster,
        })
    }

    /// The same cluster, but writes are refused without `leadership`.
    #[must_use]
    pub fn guarded(self, leadership: Leadership) -> Cluster {
        Cluster { transport: self.transport.led(leadership), ..self }
    }

    /// The same cluster, but nothing except `GET` requests leaves this process: not even a dry run. A [`Pool`] that
    /// reads its Secrets from this cluster has only read-only clients.
    #[must_use]
    pub fn read_only(self) -> Cluster {
        Cluster { transport: self.transport.read_only(), ..self }
    }

    /// Whether the cluster is [read-only](Cluster::read_only).
    pub fn is_read_only(&self) -> bool {
        self.transport.is_read_only
    }

    /// The name of the cluster.
    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    /// Host and port of its API server.
    pub fn server(&self) -> &str {
        self.transport.server()
    }

    /// Requests so far, by verb.
    pub fn requests(&self) -> Requests {
        self.transport.requests()
    }

    /// Whether the cluster rejected the client's credentials lately. Then create a new client.
    pub fn is_worn(&self) -> bool {
        self.transport.is_worn()
    }

    /// Whether the cluster rejected the client's credentials in its last answer, for example because they have expired.
    pub fn rejects_credentials(&self) -> bool {
        self.transport.rejects_credentials()
    }

    /// The outage of the cluster, while it cannot be reached: no requests are sent but one after each pause. Also that
    /// of a [guarded](Cluster::guarded) cluster that answers all reads with errors of its own.
    pub fn outage(&self) -> Option<Outage> {
        self.transport.outage()
    }

    /// Completes when the cluster answers after an [outage](Cluster::outage), or when a
    /// [missing permission](Cluster::denial) is granted.
    pub async fn recovered(&self) {
        self.transport.recovered().await;
    }

    /// Begins an [outage](Cluster::outage) of a cluster that is known to have been silent since then, before its
    /// requests time out. Any answer ends it.
    pub fn silent_since(&self, since: Instant) {
        self.transport.trip(since);
    }

    /// Lets the next request pass during an outage.
    pub fn probe_now(&self) {
        self.transport.probe_now();
    }

    /// The version of the API server, such as `v1.36.1`.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn version(&self) -> Result<String, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let target = Target::Path("version");
        let answer = self.transport.ask(Ask::get("/version".to_owned(), Verb::Get, target.clone())).await?;
        let version: Version = serde_json::from_slice(&answer.body).map_err(|error| Error::Answer {
            cluster: self.transport.name(),
            target,
            message: position(&error),
        })?;
        Ok(version.git_version)
    }

    // --- reads ---

    /// An object; `None` if it does not exist or its kind is not served.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn get(&self, kind: &Kind, key: &Key) -> Result<Option<Object>, Error> {
        match self.get_as::<Value>(kind, key).await? {
            None => Ok(None),
            Some(value) => {
                Object::new(value).map(Some).map_err(|error| self.misunderstood(kind, key, &error.to_string()))
            }
        }
    }

    /// The CustomResourceDefinition of a kind; `None` if the kind is built in, or if the client may not read it.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn definition_of(&self, kind: &Kind) -> Result<Option<Object>, Error> {
        let definitions = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let Some(definitions) = Kind::built_in(&definitions).filter(|_| Kind::built_in(&kind.gvk).is_none()) else {
            return Ok(None);
        };
        match self.get(&definitions, &Key::new("", &format!("{}.{}", kind.plural, kind.gvk.group))).await {
            Err(Error::Forbidden { .. }) => Ok(None),
            found => found,
        }
    }

    /// An object as a type; `None` if it does not exist or its kind is not served.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer does not match the type.
    pub async fn get_as<K: DeserializeOwned>(&self, kind: &Kind, key: &Key) -> Result<Option<K>, Error> {
        let path = kind.path(Some(key.namespace()), Some(key.name()), None);
        let ask = Ask::get(path, Verb::Get, Target::Object(kind.id(key)));
        match absent(self.transport.ask(ask).await)? {
            None => Ok(None),
            Some(answer) => serde_json::from_slice(&answer.body).map(Some).map_err(|error| {
                let named = std::str::from_utf8(&answer.body).map(unreadable::problem::<K>);
                self.misunderstood(kind, key, &named.unwrap_or_else(|_| position(&error)))
            }),
        }
    }

    /// The metadata of an object; `None` if it does not exist or its kind is not served.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn get_metadata(&self, kind: &Kind, key: &Key) -> Result<Option<Metadata>, Error> {
        match self.find_metadata(kind, key).await? {
            Some(Metadata { unreadable: Some(problem), .. }) => Err(self.misunderstood(kind, key, &problem)),
            found => Ok(found),
        }
    }

    /// The metadata of an object with its times, but without its identity; `None` if it does not exist or its kind is
    /// not served.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn get_object_meta(&self, kind: &Kind, key: &Key) -> Result<Option<ObjectMeta>, Error> {
        #[derive(Deserialize)]
        struct Partial {
            metadata: ObjectMeta,
        }
        let path = kind.path(Some(key.namespace()), Some(key.name()), None);
        let ask = Ask::get(path, Verb::Get, Target::Object(kind.id(key))).metadata_only();
        let Some(answer) = absent(self.transport.ask(ask).await)? else { return Ok(None) };
        let partial: Partial =
            serde_json::from_slice(&answer.body).map_err(|error| self.misunderstood(kind, key, &position(&error)))?;
        Ok(Some(partial.metadata))
    }

    /// All objects of a kind, in one namespace or in all, with the labels of `selector`; empty if the kind is not
    /// served.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Object>, Error> {
        let items: Vec<Value> = self.list_as(kind, namespace, selector).await?;
        let complete = |mut value: Value| {
            // For built-in kinds, the API server omits `apiVersion` and `kind` of items.
            if let Some(map) = value.as_object_mut() {
                map.entry("apiVersion").or_insert_with(|| kind.gvk.api_version().into());
                map.entry("kind").or_insert_with(|| (&*kind.gvk.kind).into());
            }
            Object::new(value).map_err(|error| self.misunderstood_list(kind, &error.to_string()))
        };
        items.into_iter().map(complete).collect()
    }

    /// As [`Cluster::list`], as a type.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer does not match the type.
    pub async fn list_as<K: DeserializeOwned>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<K>, Error> {
        self.pages(kind, namespace, selector, false).await
    }

    /// As [`Cluster::list`], but only the metadata. An object whose metadata do not match their type is listed all the
    /// same, with [`Metadata::unreadable`].
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn list_metadata(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Metadata>, Error> {
        let items: Vec<Lenient> = self.pages(kind, namespace, selector, true).await?;
        Ok(items.into_iter().map(|item| Metadata::for_kind(&kind.gvk, item)).collect())
    }

    /// The metadata of all objects of a group and kind, in all namespaces and through whichever version is served, with
    /// the kind in that version; `None` if the API server serves no version.
    ///
    /// For what must not be lost: a version that was known earlier proves nothing, so the API server is asked again
    /// before `None` is returned.
    ///
    /// # Errors
    ///
    /// Fails if a request fails or an answer is invalid.
    pub async fn list_metadata_in_any_version(&self, gvk: &Gvk) -> Result<Option<(Kind, Vec<Metadata>)>, Error> {
        if let Some(kind) = self.kind_in_any_version(gvk).await? {
            match self.list_served(&kind).await {
                Ok(present) => return Ok(Some((kind, present))),
                Err(Error::NotServed { .. }) => self.kinds.forget(&kind.gvk),
                Err(error) => return Err(error),
            }
        }
        let found = self.served_now(|kind| kind.gvk.group == gvk.group && kind.gvk.kind == gvk.kind).await?;
        let Some(kind) = found.into_iter().next() else { return Ok(None) };
        let present = self.list_served(&kind).await?;
        Ok(Some((kind, present)))
    }

    /// The kinds that CustomResourceDefinitions of these names define and that the API server serves now, each in one
    /// version. One request for all of them; none without names.
    ///
    /// # Errors
    ///
    /// Fails if discovery fails.
    pub async fn kinds_of_definitions(&self, names: &[Arc<str>]) -> Result<Vec<Kind>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let is_defined = |kind: &Kind| {
            let is_name = |name: &str| name.split_once('.') == Some((&*kind.plural, &*kind.gvk.group));
            names.iter().any(|name| is_name(name))
        };
        let mut kinds = self.served_now(is_defined).await?;
        kinds.dedup_by(|one, other| one.gvk.group == other.gvk.group && one.plural == other.plural);
        Ok(kinds)
    }

    /// As [`Cluster::list_metadata`] in all namespaces, but a kind that is not served is an error.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn list_served(&self, kind: &Kind) -> Result<Vec<Metadata>, Error> {
        let items: Vec<Lenient> = self.served_pages(kind, None, None, true).await?;
        Ok(items.into_iter().map(|item| Metadata::for_kind(&kind.gvk, item)).collect())
    }

    /// The metadata of those of `objects` that exist: one metadata list for each kind and namespace among them.
    ///
    /// An object whose metadata do not match their type is among them, with [`Metadata::unreadable`]. Kinds that are
    /// not served have no objects. Objects in a namespace that this client has just created are not looked up, because
    /// they cannot exist.
    ///
    /// # Errors
    ///
    /// Fails if a request fails or an answer is invalid.
    pub async fn survey<'a>(
        &self,
        objects: impl IntoIterator<Item = (&'a Gvk, &'a ObjectId)>,
    ) -> Result<BTreeMap<ObjectId, Metadata>, Error> {
        self.survey_places(objects.into_iter().map(|(gvk, id)| (gvk.clone(), id.clone())).collect()).await
    }

    // --- writes ---

    /// Applies an object: `body` is its JSON.
    ///
    /// If nothing changes, the resource version stays the same. If Lifecycle Manager applied the object, this function
    /// takes over its claims once, with two more writes. Fields that only Lifecycle Manager declared then disappear.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the object, if fields conflict with [`OnConflict::Report`], or if this process
    /// does not lead.
    pub async fn apply(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        body: Bytes,
        on_conflict: OnConflict,
    ) -> Result<Metadata, Error> {
        self.apply_telling(cause, kind, id, body, on_conflict).await.map(|(metadata, _)| metadata)
    }

    /// As [`Cluster::apply`], and also returns whether the object was created.
    ///
    /// # Errors
    ///
    /// Fails like [`Cluster::apply`].
    pub async fn apply_telling(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        body: Bytes,
        on_conflict: OnConflict,
    ) -> Result<(Metadata, bool), Error> {
        let again = body.clone();
        let answer = self.patch_raw(cause, kind, id, None, Patch::Apply(on_conflict), body).await?;
        let metadata = self.metadata(kind, id, &answer.body)?;
        let metadata = match on_conflict {
            OnConflict::Force if take_over::is_due(&self.name, &metadata) => {
                self.take_over(cause, kind, id, &answer.body, again).await?
            }
            OnConflict::Force | OnConflict::Report => metadata,
        };
        Ok((metadata, answer.status == StatusCode::CREATED))
    }

    /// Applies an object's status and takes over its fields: `body` is JSON with `apiVersion`, `kind`, `metadata.name`
    /// and `status`.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the status, or if this process does not lead.
    pub async fn apply_status(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        body: Bytes,
    ) -> Result<Metadata, Error> {
        self.patch(cause, kind, id, Some("status"), Patch::Apply(OnConflict::Force), body).await
    }

    /// Merges JSON into an object or its subresource.
    ///
    /// # Errors
    ///
    /// Fails if the object does not exist, if the API server refuses the patch, or if this process does not lead.
    pub async fn merge_patch(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        subresource: Option<&str>,
        body: Bytes,
    ) -> Result<Metadata, Error> {
        self.patch(cause, kind, id, subresource, Patch::Merge, body).await
    }

    /// Creates an object, which must not exist.
    ///
    /// If this client has just defined its kind, the object is looked up and then applied without force, because the
    /// API server would delay its creation for two seconds.
    ///
    /// # Errors
    ///
    /// Fails if the object exists, if the API server refuses it, or if this process does not lead.
    pub async fn create(&self, cause: &Cause, kind: &Kind, id: &ObjectId, body: Bytes) -> Result<Metadata, Error> {
        if self.fresh.defines(kind, Instant::now()) {
            return self.create_first(cause, kind, id, body).await;
        }
        let mut path = kind.path(Some(&id.namespace), None, None);
        path.push_str("?fieldManager=");
        path.push_str(FIELD_MANAGER);
        let ask = Ask::write(Method::POST, path, Verb::Create, Target::Object(id.clone()), body)
            .header(CONTENT_TYPE, "application/json")
            .metadata_only();
        let answer = self.write(cause, id, ask).await?;
        self.fresh.note(kind, id, true, Instant::now());
        self.metadata(kind, id, &answer.body)
    }

    async fn create_first(&self, cause: &Cause, kind: &Kind, id: &ObjectId, body: Bytes) -> Result<Metadata, Error> {
        let exists = || Error::Exists { target: Target::Object(id.clone()) };
        if self.get_metadata(kind, &Key::new(&id.namespace, &id.name)).await?.is_some() {
            return Err(exists());
        }
        match self.patch_raw(cause, kind, id, None, Patch::Apply(OnConflict::Report), body).await {
            Ok(answer) if answer.status == StatusCode::CREATED => self.metadata(kind, id, &answer.body),
            // Another client created it milliseconds before.
            Ok(_) | Err(Error::Conflict { .. }) => Err(exists()),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object if it is still the one, and in the state, that `metadata` describes.
    ///
    /// # Errors
    ///
    /// Fails if the metadata could not be read completely, if the API server refuses the request, or if this process
    /// does not lead.
    pub async fn delete(
        &self,
        cause: &Cause,
        kind: &Kind,
        metadata: &Metadata,
        propagation: Propagation,
    ) -> Result<Deleted, Error> {
        if let Some(problem) = &metadata.unreadable {
            return Err(self.misunderstood(kind, &metadata.key(), problem));
        }
        self.delete_if(cause, kind, &metadata.id, &metadata.uid, Some(&metadata.resource_version), propagation).await
    }

    /// Deletes an object if its UID is `uid` and, if given, its resource version is `resource_version`. A missing or
    /// different object is a result, not an error.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the request, or if this process does not lead.
    pub async fn delete_if(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        uid: &str,
        resource_version: Option<&str>,
        propagation: Propagation,
    ) -> Result<Deleted, Error> {
        let mut preconditions = serde_json::json!({ "uid": uid });
        if let Some(resource_version) = resource_version {
            preconditions["resourceVersion"] = resource_version.into();
        }
        let body = serde_json::json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": propagation.as_str(),
        });
        let path = kind.path(Some(&id.namespace), Some(&id.name), None);
        let ask = Ask::write(Method::DELETE, path, Verb::Delete, Target::Object(id.clone()), body.to_string().into())
            .header(CONTENT_TYPE, "application/json")
            .metadata_only();
        match self.write(cause, id, ask).await {
            Ok(answer) => {
                let kind = serde_json::from_slice::<WireObject>(&answer.body).map(|object| object.kind);
                // The answer is a `Status` if the object is gone, and the object if it remains.
                Ok(if kind.is_ok_and(|kind| kind == "Status") { Deleted::Gone } else { Deleted::Terminating })
            }
            Err(Error::NotFound { .. } | Error::NotServed { .. }) => Ok(Deleted::Gone),
            Err(Error::Changed { .. }) => Ok(Deleted::Changed),
            Err(error) => Err(error),
        }
    }

    // --- inside ---

    async fn patch(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        subresource: Option<&str>,
        patch: Patch,
        body: Bytes,
    ) -> Result<Metadata, Error> {
        let answer = self.patch_raw(cause, kind, id, subresource, patch, body).await?;
        self.metadata(kind, id, &answer.body)
    }

    async fn patch_raw(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        subresource: Option<&str>,
        patch: Patch,
        body: Bytes,
    ) -> Result<Answer, Error> {
        let mut path = kind.path(Some(&id.namespace), Some(&id.name), subresource);
        path.push_str(&patch.query());
        let ask = Ask::write(Method::PATCH, path, patch.verb(), Target::Object(id.clone()), body)
            .header(CONTENT_TYPE, patch.content_type())
            .metadata_only();
        let answer = self.write(cause, id, ask).await?;
        self.fresh.note(kind, id, answer.status == StatusCode::CREATED, Instant::now());
        Ok(answer)
    }

    /// Sends a write, and records it once it is answered. Fails while this process does not lead.
    async fn write(&self, cause: &Cause, id: &ObjectId, ask: Ask) -> Result<Answer, Error> {
        let verb = ask.verb;
        let result = self.transport.ask(ask).await;
        audit::record(&self.name, verb, id, cause, result.as_ref().map(|answer| answer.status));
        result
    }

    async fn pages<T: DeserializeOwned>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
        metadata_only: bool,
    ) -> Result<Vec<T>, Error> {
        match self.served_pages(kind, namespace, selector, metadata_only).await {
            Err(Error::NotServed { .. }) => Ok(Vec::new()),
            items => items,
        }
    }

    /// As [`Cluster::pages`], but a kind that is not served is an error.
    async fn served_pages<T: DeserializeOwned>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
        metadata_only: bool,
    ) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        let mut from: Option<String> = None;
        let mut is_second = false;
        loop {
            let page = match self.page(kind, namespace, selector, None, from.as_deref(), metadata_only).await {
                // Pages are kept for five minutes. A slower reader starts again once, and fails if that expires too.
                Err(Error::Expired { .. }) if from.is_some() && !is_second => {
                    is_second = true;
                    items.clear();
                    self.page(kind, namespace, selector, None, None, metadata_only).await?
                }
                page => page?,
            };
            items.extend(page.items);
            match page.metadata.next {
                Some(next) if !next.is_empty() => from = Some(next),
                _ => return Ok(items),
            }
        }
    }

    /// One page of a list.
    async fn page<T: DeserializeOwned>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: Option<&str>,
        fields: Option<&str>,
        from: Option<&str>,
        metadata_only: bool,
    ) -> Result<Page<T>, Error> {
        let mut path = kind.path(namespace.filter(|namespace| !namespace.is_empty()), None, None);
        path.push_str("?limit=");
        path.push_str(&PAGE.to_string());
        for (name, value) in [("labelSelector", labels), ("fieldSelector", fields), ("continue", from)] {
            if let Some(value) = value {
                path.push('&');
                path.push_str(name);
                path.push('=');
                kind::push_encoded(&mut path, value);
            }
        }
        let mut ask = Ask::get(path, Verb::List, Target::List(kind.gvk.clone()));
        if metadata_only {
            ask = ask.metadata_list();
        }
        let answer = self.transport.ask(ask).await?;
        serde_json::from_slice(&answer.body).map_err(|error| self.misunderstood_list(kind, &position(&error)))
    }

    /// As [`Cluster::get_metadata`], also if a field of the metadata does not match its type.
    async fn find_metadata(&self, kind: &Kind, key: &Key) -> Result<Option<Metadata>, Error> {
        let path = kind.path(Some(key.namespace()), Some(key.name()), None);
        let ask = Ask::get(path, Verb::Get, Target::Object(kind.id(key))).metadata_only();
        match absent(self.transport.ask(ask).await)? {
            None => Ok(None),
            Some(answer) => self.metadata(kind, &kind.id(key), &answer.body).map(Some),
        }
    }

    fn metadata(&self, kind: &Kind, id: &ObjectId, body: &[u8]) -> Result<Metadata, Error> {
        let found: Lenient = serde_json::from_slice(body).map_err(|error| Error::Answer {
            cluster: self.transport.name(),
            target: Target::Object(id.clone()),
            message: position(&error),
        })?;
        Ok(Metadata::for_kind(&kind.gvk, found))
    }

    fn misunderstood(&self, kind: &Kind, key: &Key, message: &str) -> Error {
        let target = Target::Object(kind.id(key));
        Error::Answer { cluster: self.transport.name(), target, message: message.to_owned() }
    }

    fn misunderstood_list(&self, kind: &Kind, message: &str) -> Error {
        let target = Target::List(kind.gvk.clone());
        Error::Answer { cluster: self.transport.name(), target, message: message.to_owned() }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.name.to_string()).finish()
    }
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Page<T> {
    metadata: PageMetadata,
    #[serde(default = "Vec::new", deserialize_with = "nullable_items")]
    items: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

fn nullable_items<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// `None` if the object does not exist.
fn absent(result: Result<Answer, Error>) -> Result<Option<Answer>, Error> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::NotFound { .. } | Error::NotServed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where an answer is invalid, without quoting it: serde's message may contain a value of a Secret.
fn position(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Io => "it cannot be read",
        serde_json::error::Category::Syntax => "it is not JSON",
        serde_json::error::Category::Data => "a field has the wrong type",
        serde_json::error::Category::Eof => "it is incomplete",
    };
    format!("{kind} (line {}, column {})", error.line(), error.column())
}

/// How an object is changed.
#[derive(Clone, Copy)]
enum Patch {
    Apply(OnConflict),
    Merge,
    Json,
}

// === impl Patch ===

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Patch::Apply(_) => "application/apply-patch+yaml",
            Patch::Merge => "application/merge-patch+json",
            Patch::Json => "application/json-patch+json",
        }
    }

    fn verb(self) -> Verb {
        match self {
            Patch::Apply(_) => Verb::Apply,
            Patch::Merge | Patch::Json => Verb::Patch,
        }
    }

    fn query(self) -> String {
        match self {
            Patch::Apply(OnConflict::Force) => format!("?fieldManager={FIELD_MANAGER}&force=true"),
            Patch::Apply(OnConflict::Report) => format!("?fieldManager={FIELD_MANAGER}&force=false"),
            Patch::Merge | Patch::Json => format!("?fieldManager={FIELD_MANAGER}"),
        }
    }
}

// === impl Propagation ===

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }
    }
}

/// Limit of waiting for a CustomResourceDefinition to be established; the API server needs some ten milliseconds.
const ESTABLISHED_WAIT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
