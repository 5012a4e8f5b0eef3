//! One API server, seen as a place where objects are read, applied and deleted.
//!
//! Requests are made by hand from bytes that are serialised already, answers are read into as little as is needed, and
//! nothing is retried here: a request either did what it says or is an [`Error`] that tells what can help. Every write
//! leaves one audit record and is refused while we do not lead. What it does not do: decide what to write.
//!
//! Assumes a tokio runtime. Dropping any of its futures cancels the request; a write may then have happened or not,
//! and all of them may be repeated.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode, header::CONTENT_TYPE};
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
mod discovery;
mod dry_run;
mod enact;
mod error;
mod fresh;
mod kind;
pub mod lease;
mod metadata;
mod pool;
mod prune;
mod take_over;
mod transport;
mod user;
pub mod watch;

pub use audit::Cause;
pub use dry_run::DryRun;
pub use enact::{Effect, Outcome, Task};
pub use error::{Error, FieldConflict, Target, Unreachable};
pub use kind::Kind;
pub use lease::Leadership;
pub use metadata::Metadata;
pub use pool::Pool;
pub use prune::Pruned;
pub use transport::{Limits, Network, Requests, Verb};

use metadata::{Wire, WireObject};
use transport::{Answer, Ask, Transport};

/// Which cluster. Displays as `kcp` or `skr/NAMESPACE/NAME`, as rendered targets do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterName {
    /// The control plane.
    Kcp,
    /// The runtime of a Kyma.
    Runtime(Key),
}

/// What to do about fields that another field manager owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Take them over: for objects that bear our mark.
    Force,
    /// Write nothing and report them: for objects that we meet for the first time.
    Report,
}

/// What becomes of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// What a delete came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone, or was not there.
    Gone,
    /// It is being deleted: finalizers, or a grace period, keep it for a while.
    Terminating,
    /// It is not the object, or not the state of it, that the precondition names: nothing was deleted.
    Changed,
}

/// One API server.
pub struct Cluster {
    name: ClusterName,
    transport: Transport,
    kinds: discovery::Known,
    fresh: fresh::Fresh,
    /// As whom we act, once it was asked.
    user: OnceCell<Option<Arc<str>>>,
    /// How it is reached, and what it leads to.
    network: Network,
}

// === impl ClusterName ===

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterName::Kcp => f.write_str("kcp"),
            ClusterName::Runtime(key) => write!(f, "skr/{key}"),
        }
    }
}

// === impl Cluster ===

/// Objects that a list asks for at once: a page of custom resources is then some hundred kilobytes.
const PAGE: usize = 500;

impl Cluster {
    /// A cluster as a configuration describes it. Makes no request.
    pub fn new(name: ClusterName, config: &kube::Config, limits: Limits) -> Result<Cluster, Error> {
        Cluster::on(&Network::real(), name, config, limits)
    }

    /// The same, on some network. So are the runtimes of a [`Pool`] that reads their access from it.
    pub fn on(network: &Network, name: ClusterName, config: &kube::Config, limits: Limits) -> Result<Cluster, Error> {
        let transport = Transport::new(name.to_string().into(), config, limits, network)?;
        let (kinds, fresh) = (discovery::Known::default(), fresh::Fresh::default());
        Ok(Cluster { name, transport, kinds, fresh, user: OnceCell::new(), network: network.clone() })
    }

    /// The same, but writes are refused while `leadership` does not hold.
    #[must_use]
    pub fn guarded(self, leadership: Leadership) -> Cluster {
        Cluster { transport: self.transport.led(leadership), ..self }
    }

    /// Which cluster it is.
    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    /// Requests made so far, by verb.
    pub fn requests(&self) -> Requests {
        self.transport.requests()
    }

    /// Whether the credentials or certificates were not accepted lately: the client should be made anew.
    pub fn is_worn(&self) -> bool {
        self.transport.is_worn()
    }

    /// The version of the API server, such as `v1.36.1`.
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

    /// An object; `None` if it is not there, or if its kind is not served.
    pub async fn get(&self, kind: &Kind, key: &Key) -> Result<Option<Object>, Error> {
        match self.get_as::<Value>(kind, key).await? {
            None => Ok(None),
            Some(value) => {
                Object::new(value).map(Some).map_err(|error| self.misunderstood(kind, key, &error.to_string()))
            }
        }
    }

    /// An object as a type; `None` if it is not there, or if its kind is not served.
    pub async fn get_as<K: DeserializeOwned>(&self, kind: &Kind, key: &Key) -> Result<Option<K>, Error> {
        let path = kind.path(Some(key.namespace()), Some(key.name()), None);
        let ask = Ask::get(path, Verb::Get, Target::Object(kind.id(key)));
        match absent(self.transport.ask(ask).await)? {
            None => Ok(None),
            Some(answer) => serde_json::from_slice(&answer.body)
                .map(Some)
                .map_err(|error| self.misunderstood(kind, key, &position(&error))),
        }
    }

    /// The metadata of an object; `None` if it is not there, or if its kind is not served.
    pub async fn get_metadata(&self, kind: &Kind, key: &Key) -> Result<Option<Metadata>, Error> {
        let path = kind.path(Some(key.namespace()), Some(key.name()), None);
        let ask = Ask::get(path, Verb::Get, Target::Object(kind.id(key))).metadata_only();
        match absent(self.transport.ask(ask).await)? {
            None => Ok(None),
            Some(answer) => self.metadata(kind, &kind.id(key), &answer.body).map(Some),
        }
    }

    /// All objects of a kind, in one namespace or in all, with the labels that `selector` asks for; none if the kind is
    /// not served.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Object>, Error> {
        let items: Vec<Value> = self.list_as(kind, namespace, selector).await?;
        let complete = |mut value: Value| {
            // The API server leaves `apiVersion` and `kind` out of the items of a list of built-in kinds.
            if let Some(map) = value.as_object_mut() {
                map.entry("apiVersion").or_insert_with(|| kind.gvk.api_version().into());
                map.entry("kind").or_insert_with(|| (&*kind.gvk.kind).into());
            }
            Object::new(value).map_err(|error| self.misunderstood_list(kind, &error.to_string()))
        };
        items.into_iter().map(complete).collect()
    }

    /// As [`Cluster::list`], as a type.
    pub async fn list_as<K: DeserializeOwned>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<K>, Error> {
        self.pages(kind, namespace, selector, false).await
    }

    /// The metadata of all objects of a kind, as [`Cluster::list`].
    pub async fn list_metadata(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Metadata>, Error> {
        #[derive(Deserialize)]
        struct Item {
            metadata: Wire,
        }
        let items: Vec<Item> = self.pages(kind, namespace, selector, true).await?;
        Ok(items.into_iter().map(|item| Metadata::of(&kind.gvk, item.metadata)).collect())
    }

    /// What exists of `objects`: one metadata list for each kind and namespace that occurs among them.
    ///
    /// Objects that share a kind and namespace with them are left out, kinds that are not served have none. What would be
    /// in a namespace that we have only just created is not asked for: it cannot be there.
    pub async fn survey<'a>(
        &self,
        objects: impl IntoIterator<Item = (&'a Gvk, &'a ObjectId)>,
    ) -> Result<BTreeMap<ObjectId, Metadata>, Error> {
        self.survey_places(objects.into_iter().map(|(gvk, id)| (gvk.clone(), id.clone())).collect()).await
    }

    // --- writes ---

    /// Applies an object: `body` is its JSON.
    ///
    /// Guarantees that the answer's resource version equals the former one if nothing changed. An object that Lifecycle
    /// Manager applied is taken over from it, so that fields which only it declared disappear: once, with two more writes.
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

    /// As [`Cluster::apply`], and says whether the object was created.
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

    /// Applies an object's status, taking its fields over: `body` is JSON with `apiVersion`, `kind`, `metadata.name` and `status`.
    pub async fn apply_status(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        body: Bytes,
    ) -> Result<Metadata, Error> {
        self.patch(cause, kind, id, Some("status"), Patch::Apply(OnConflict::Force), body).await
    }

    /// Merges JSON into an object, or into its subresource.
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
    /// Of a kind that we have only just defined, it is applied instead, without force and after a look that it is absent:
    /// an API server would hold its creation for two seconds.
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
            // Somebody was faster, by milliseconds.
            Ok(_) | Err(Error::Conflict { .. }) => Err(exists()),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object on condition that it is the one, and in the state, that `metadata` was read from.
    pub async fn delete(
        &self,
        cause: &Cause,
        kind: &Kind,
        metadata: &Metadata,
        propagation: Propagation,
    ) -> Result<Deleted, Error> {
        self.delete_if(cause, kind, &metadata.id, &metadata.uid, Some(&metadata.resource_version), propagation).await
    }

    /// Deletes an object on condition that it is the one that `uid` names, in whatever state it is now if there is no
    /// `resource_version`. That it is not there, or not the same, is an answer and no error.
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
                // What is gone at once is answered with a `Status`, what lingers with itself.
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

    /// Makes a request that writes: refused while we do not lead, and recorded once it is answered.
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
        let mut items = Vec::new();
        let mut from: Option<String> = None;
        let mut is_anew = false;
        loop {
            let page = match self.page(kind, namespace, selector, None, from.as_deref(), metadata_only).await {
                // Pages are kept for five minutes; whoever is slower begins again, and says so by the error if that fails too.
                Err(Error::Expired { .. }) if from.is_some() && !is_anew => {
                    is_anew = true;
                    items.clear();
                    self.page(kind, namespace, selector, None, None, metadata_only).await?
                }
                Err(Error::NotServed { .. }) => return Ok(Vec::new()),
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

    fn metadata(&self, kind: &Kind, id: &ObjectId, body: &[u8]) -> Result<Metadata, Error> {
        let wire: WireObject = serde_json::from_slice(body).map_err(|error| Error::Answer {
            cluster: self.transport.name(),
            target: Target::Object(id.clone()),
            message: position(&error),
        })?;
        Ok(Metadata::of(&kind.gvk, wire.metadata))
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

/// `None` for what is not there.
fn absent(result: Result<Answer, Error>) -> Result<Option<Answer>, Error> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::NotFound { .. } | Error::NotServed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where an answer cannot be read, without quoting it: serde's own words may hold a value of a Secret.
fn position(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Io => "it cannot be read",
        serde_json::error::Category::Syntax => "it is not JSON",
        serde_json::error::Category::Data => "a field has another type than expected",
        serde_json::error::Category::Eof => "it ends too early",
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

/// Longest wait for a CustomResourceDefinition to be established; the API server needs some ten milliseconds.
const ESTABLISHED_WAIT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
