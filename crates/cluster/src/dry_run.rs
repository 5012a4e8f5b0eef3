//! What an apply would come to, without doing it: the API server's own answer, defaults and admission included.
//!
//! A dry run is a read: it is counted as [`Verb::DryRun`], and neither audited nor refused while we do not lead. It asks
//! for the right to patch all the same, and for that to create where the object is not there; who lacks the second
//! should not ask about what is to be created. An admission webhook that has side effects and does not know dry runs
//! makes it an error.
//!
//! Secrets are never sent: their values would pass webhooks and audit logs for nothing.

use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE};

use super::{
    Cluster, Error, FieldConflict, Kind, OnConflict, Patch, Target, Verb, error::is_secret, position, transport::Ask,
};
use tidegate_core::{
    name::Key,
    object::{Object, ObjectId},
};

/// What an apply would come to.
#[derive(Clone, Debug)]
pub enum DryRun {
    /// The object as it would be.
    Applied(Box<Object>),
    /// Nothing would be written: others own these fields. Only with [`OnConflict::Report`].
    Conflict(Vec<FieldConflict>),
    /// It cannot be tried: its kind is not served yet, or its namespace is not there yet. It would be created.
    Absent,
    /// It is a Secret: nothing was sent.
    Withheld,
}

// === impl Cluster ===

impl Cluster {
    /// What [`Cluster::apply`] would come to. Nothing is written.
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
