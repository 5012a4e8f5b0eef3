//! The result of an apply without doing it: the API server's own answer, including defaults and admission.
//!
//! A dry run is a read: it counts as [`Verb::DryRun`], writes no audit record, and is allowed without leadership.
//! Still, it needs the permission to patch, and to create if the object does not exist. Without the latter, do not
//! dry-run new objects. An admission webhook with side effects and without support for dry runs makes it fail.
//!
//! Secrets are never sent, because their values would appear in webhooks and audit logs.

use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE};

use super::{
    Cluster, Error, FieldConflict, Kind, OnConflict, Patch, Target, Verb, error::is_secret, position, transport::Ask,
};
use tidegate_core::{
    name::Key,
    object::{Object, ObjectId},
};

/// The result of a dry run.
#[derive(Clone, Debug)]
pub enum DryRun {
    /// The object after the apply.
    Applied(Box<Object>),
    /// Nothing would be written, because other managers own these fields. Only with [`OnConflict::Report`].
    Conflict(Vec<FieldConflict>),
    /// The dry run is impossible, because the kind or the namespace does not exist yet. The object would be created.
    Absent,
    /// The object is a Secret, so nothing was sent.
    Withheld,
}

/// The field manager of [`Cluster::dry_run_merge`]. It differs from ours, because the webhooks of a runtime do not
/// report our own writes.
const PROBE_MANAGER: &str = "tidegate-probe";

// === impl Cluster ===

impl Cluster {
    /// Merges JSON into an object as a dry run, so that the API server calls its admission webhooks as for a write by
    /// another client. Writes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the patch or cannot be reached.
    pub async fn dry_run_merge(&self, kind: &Kind, id: &ObjectId, body: Bytes) -> Result<(), Error> {
        let mut path = kind.path(Some(&id.namespace), Some(&id.name), None);
        path.push_str("?fieldManager=");
        path.push_str(PROBE_MANAGER);
        path.push_str("&dryRun=All");
        let ask = Ask::write(Method::PATCH, path, Verb::DryRun, Target::Object(id.clone()), body)
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .metadata_only();
        self.transport.ask(ask).await.map(drop)
    }

    /// Predicts the result of [`Cluster::apply`]. Writes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the object or cannot be reached.
    pub async fn dry_run(
        &self,
        kind: &Kind,
        id: &ObjectId,
        body: Bytes,
        on_conflict: OnConflict,
    ) -> Result<DryRun, Error> {
        if is_secret(id) {
            return Ok(DryRun::Withheld);
        }
        let mut path = kind.path(Some(&id.namespace), Some(&id.name), None);
        path.push_str(&Patch::Apply(on_conflict).query());
        path.push_str("&dryRun=All");
        let ask = Ask::write(Method::PATCH, path, Verb::DryRun, Target::Object(id.clone()), body)
            .header(CONTENT_TYPE, "application/apply-patch+yaml");
        let answer = match self.transport.ask(ask).await {
            Ok(answer) => answer,
            Err(Error::Conflict { causes, .. }) => return Ok(DryRun::Conflict(causes)),
            Err(Error::NotFound { .. } | Error::NotServed { .. }) => return Ok(DryRun::Absent),
            Err(error) => return Err(error),
        };
        let key = Key::new(&id.namespace, &id.name);
        let value =
            serde_json::from_slice(&answer.body).map_err(|error| self.misunderstood(kind, &key, &position(&error)))?;
        let object = Object::new(value).map_err(|error| self.misunderstood(kind, &key, &error.to_string()))?;
        Ok(DryRun::Applied(Box::new(object)))
    }
}
