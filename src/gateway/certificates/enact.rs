//! Enacts the acts that were decided about the certificate of a runtime: one act, one request. Decides nothing.

use bytes::Bytes;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Deleted, Error, Kind, OnConflict, Propagation};
use tidegate_core::{
    api::names::{self, annotation, label},
    name::Key,
    object::{Digest, Object},
    plan::certificate::{Backend, Certificate, Issued, Validity},
};

use super::decide::{Current, FoundSecret, Requested, Written, version};
use crate::{
    gateway::pki::{
        self, Issue,
        object::{self, Renewal},
    },
    stores::secret::key,
};

/// A certificate to sign.
pub(super) struct Signing<'a> {
    pub(super) certificate: &'a Certificate,
    pub(super) root: &'a pki::Root,
    pub(super) inputs: Digest,
    pub(super) validity: Validity,
    pub(super) issued_at: Timestamp,
}

/// Applies an issuer's object. A rejected object is a result. Fails if the control plane does not answer.
pub(super) async fn apply(kcp: &Cluster, cause: &Cause, kind: &Kind, desired: &Object) -> Result<Requested, Error> {
    let body = Bytes::from(desired.value().to_string());
    match kcp.apply(cause, kind, &desired.id(), body, OnConflict::Force).await {
        Ok(_) => Ok(Requested::Applied),
        Err(error @ (Error::Invalid { .. } | Error::UndeclaredField { .. } | Error::Forbidden { .. })) => {
            let id = desired.id();
            Ok(Requested::Rejected(format!("cannot request certificate {}/{}: {error}", id.namespace, id.name)))
        }
        Err(error) => Err(error),
    }
}

/// Reads an issuer's object. Fails if the control plane does not return it.
pub(super) async fn read(kcp: &Cluster, backend: Backend, kind: &Kind, key: &Key) -> Result<Requested, Error> {
    let found = kcp.get(kind, key).await?;
    Ok(Requested::Read(found.map(|found| {
        let conditions = found.value().pointer("/status/conditions").and_then(Value::as_array);
        Current { live: object::read(backend, found.value()), conditions: conditions.cloned().unwrap_or_default() }
    })))
}

/// Requests a new certificate for an issuer's object. Fails if the control plane refuses the request.
pub(super) async fn renew(
    kcp: &Cluster,
    cause: &Cause,
    kind: &Kind,
    key: &Key,
    renewal: &Renewal,
) -> Result<Requested, Error> {
    let body = Bytes::from(renewal.patch.to_string());
    match kcp.merge_patch(cause, kind, &kind.id(key), renewal.subresource, body).await {
        // The object changed meanwhile, and that change triggers a pass over the runtime.
        Ok(_) | Err(Error::Changed { .. } | Error::NotFound { .. }) => Ok(Requested::Renewed),
        Err(error) => Err(error),
    }
}

/// Signs a certificate. Fails if the CA cannot sign it.
pub(super) fn sign(signing: &Signing<'_>) -> Result<pki::Leaf, pki::Error> {
    let certificate = signing.certificate;
    signing.root.issue(Issue {
        common_name: &certificate.common_name,
        names: &certificate.dns_names,
        validity: signing.validity,
        is_server: false,
    })
}

/// Writes a signed certificate to its Secret. Annotations record when it was issued, when it expires, and the digest of
/// its inputs, so that a later pass need not read the certificate. Fails if the control plane refuses the write.
pub(super) async fn write(
    kcp: &Cluster,
    cause: &Cause,
    signing: &Signing<'_>,
    leaf: pki::Leaf,
) -> Result<Written, Error> {
    let certificate = signing.certificate;
    let validity = Validity { not_before: signing.issued_at, not_after: leaf.validity.not_after };
    let labels = [(label::MANAGED_BY, names::MANAGED_BY_KCP), (label::PURPOSE, names::CERTIFICATE_PURPOSE)];
    let annotations = [
        (annotation::KYMA, certificate.kyma.to_string()),
        (annotation::ISSUED_AT, signing.issued_at.to_string()),
        (annotation::NOT_AFTER, validity.not_after.to_string()),
        (annotation::ISSUED_FOR, signing.inputs.short()),
    ];
    let bundle = crate::gateway::pem_of(signing.root.certificate());
    let data = [
        (key::CERTIFICATE, leaf.certificate.into_bytes()),
        (key::KEY, leaf.key.into_bytes()),
        (key::BUNDLE, bundle.into_bytes()),
    ];
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(certificate.key.name().to_owned()),
            namespace: Some(certificate.key.namespace().to_owned()),
            labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
            annotations: Some(annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ..ObjectMeta::default()
        },
        // As in cert-manager, so that Tidegate and cert-manager can take over from each other.
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value))).collect()),
        ..Secret::default()
    };
    let kind = Kind::namespaced::<Secret>();
    let body = Bytes::from(serde_json::to_vec(&secret).expect("a Secret is JSON"));
    let metadata = kcp.apply(cause, &kind, &kind.id(&certificate.key), body, OnConflict::Force).await?;
    let version = version(&metadata.uid, &metadata.resource_version);
    let issued = Issued { secret: certificate.key.clone(), version, validity: Some(validity) };
    Ok(Written { issued, inputs: signing.inputs })
}

/// Reads the Secret of a certificate. Fails if the control plane does not return it.
pub(super) async fn read_secret(kcp: &Cluster, key: &Key) -> Result<Option<FoundSecret>, Error> {
    let metadata = kcp.get_metadata(&Kind::namespaced::<Secret>(), key).await?;
    Ok(metadata.map(|metadata| FoundSecret {
        is_certificate: metadata.label(label::PURPOSE) == Some(names::CERTIFICATE_PURPOSE),
        uid: metadata.uid,
    }))
}

/// Deletes the object with this UID. Fails if the control plane refuses the request.
pub(super) async fn delete(kcp: &Cluster, cause: &Cause, kind: &Kind, key: &Key, uid: &str) -> Result<Deleted, Error> {
    kcp.delete_if(cause, kind, &kind.id(key), uid, None, Propagation::Background).await
}
