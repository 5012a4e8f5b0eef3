//! Certificates that Tidegate signs itself.
//!
//! Annotations of a Secret record when its certificate was issued, when it expires, and a digest of its names and its
//! CA. So Tidegate can check the certificate without reading it.

use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde_json::json;
use tokio::time::Instant;

use super::{CertificatesContext, LAG_MAX, Written, bundled_at, version};
use tidegate_cluster::{Cause, Error, Kind, OnConflict};
use tidegate_core::{
    api::names::{self, annotation, label},
    object::Digest,
    plan::certificate::{self, Authority, Certificate, Issued, Standing, Validity},
};

use crate::{
    gateway::pki::{self, Issue},
    stores::secret::{LeafSecret, key},
};

/// Clocks of runtimes may be this much behind. Tidegate checks only when certificates expire, so this has no drawback.
const BACKDATED: Duration = Duration::from_secs(300);

/// The same as [`super::ensure`], if Tidegate is the issuer. Fails if a request to the control plane fails.
pub(super) async fn ensure(
    context: CertificatesContext<'_>,
    cause: &Cause,
    certificate: &Certificate,
    now: Timestamp,
) -> Result<Standing, Error> {
    let Some(root) = signer(context, certificate) else {
        let because = context.certificates.problem().unwrap_or_else(|| "its Secret has not been read yet".to_owned());
        // An existing certificate remains usable: only its renewal has to wait.
        let existing = context.stores.certificate_secret(certificate.key.name());
        return Ok(match existing.filter(|secret| !secret.is_deleting && secret.issued_at.is_some()) {
            Some(secret) => Standing::Issued(issued(certificate, &secret)),
            None => Standing::Pending(format!("there is no CA: {because}")),
        });
    };
    let inputs = inputs(certificate, root.certificate());
    if let Some(written) = written(context, certificate, inputs) {
        return Ok(Standing::Issued(written));
    }
    if let Some(secret) = context.stores.certificate_secret(certificate.key.name())
        && !is_due(context, &secret, inputs, now)
    {
        return Ok(Standing::Issued(issued(certificate, &secret)));
    }
    issue(context, cause, certificate, &root, inputs, now).await
}

/// The CA, if the bundle already contains it. Without a CA, the runtime waits for it.
fn signer(context: CertificatesContext<'_>, certificate: &Certificate) -> Option<std::sync::Arc<pki::Root>> {
    let mut state = context.certificates.state();
    if state.root.is_none() {
        state.waiting.insert(certificate.kyma.clone());
    }
    state.root.clone()
}

/// A certificate that Tidegate has just issued and the watch does not show yet.
fn written(context: CertificatesContext<'_>, certificate: &Certificate, inputs: Digest) -> Option<Issued> {
    let shown = context.stores.certificate_secret(certificate.key.name());
    let shown = shown.map(|secret| version(&secret.uid, &secret.resource_version));
    let mut state = context.certificates.state();
    let written = state.issued.get(&certificate.kyma)?.clone();
    if shown.as_ref() == Some(&written.issued.version) || LAG_MAX < written.at.elapsed() {
        state.issued.remove(&certificate.kyma);
        return None;
    }
    (written.inputs == inputs).then_some(written.issued)
}

/// Whether to issue a certificate, because it is missing, differs or expires soon.
fn is_due(context: CertificatesContext<'_>, secret: &LeafSecret, inputs: Digest, now: Timestamp) -> bool {
    let Some(validity) = validity(secret) else { return true };
    secret.is_deleting
        || secret.issued_for.as_deref() != Some(inputs.short().as_str())
        || bundled_at(context).is_some_and(|bundled_at| certificate::must_renew(Some(&validity), bundled_at))
        || certificate::ends_soon(&validity, context.certificates.rules.renew_before, now)
}

/// When a certificate of Tidegate is valid, according to its Secret.
pub(crate) fn validity(secret: &LeafSecret) -> Option<Validity> {
    let moment = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
    Some(Validity { not_before: moment(&secret.issued_at)?, not_after: moment(&secret.not_after)? })
}

fn issued(certificate: &Certificate, secret: &LeafSecret) -> Issued {
    Issued {
        secret: certificate.key.clone(),
        version: version(&secret.uid, &secret.resource_version),
        validity: validity(secret),
    }
}

/// Digest of a certificate's inputs.
fn inputs(certificate: &Certificate, authority: &Authority) -> Digest {
    let Certificate { kyma, common_name, dns_names, .. } = certificate;
    let authority = Digest::of_bytes(&authority.der).to_string();
    Digest::from_value(&json!([kyma.to_string(), common_name, dns_names, authority]))
}

async fn issue(
    context: CertificatesContext<'_>,
    cause: &Cause,
    certificate: &Certificate,
    root: &pki::Root,
    inputs: Digest,
    now: Timestamp,
) -> Result<Standing, Error> {
    let rules = &context.certificates.rules;
    let until = certificate::later(now, rules.duration);
    let from = now.checked_sub(k8s_openapi::jiff::SignedDuration::try_from(BACKDATED).unwrap_or_default());
    let validity = Validity { not_before: from.unwrap_or(now), not_after: until };
    let names = &certificate.dns_names;
    let leaf = match root.issue(Issue { common_name: &certificate.common_name, names, validity, is_server: false }) {
        Ok(leaf) => leaf,
        Err(error) => return Ok(Standing::Refused(crate::controller::chain(&error))),
    };
    // The newest CA signs it, and the time of that CA's addition may be up to a second ahead.
    let issued_at = bundled_at(context).map_or(now, |bundled_at| now.max(bundled_at));
    let validity = Validity { not_before: issued_at, not_after: leaf.validity.not_after };
    let labels = [(label::MANAGED_BY, names::MANAGED_BY_KCP), (label::PURPOSE, names::CERTIFICATE_PURPOSE)];
    let annotations = [
        (annotation::KYMA, certificate.kyma.to_string()),
        (annotation::ISSUED_AT, issued_at.to_string()),
        (annotation::NOT_AFTER, validity.not_after.to_string()),
        (annotation::ISSUED_FOR, inputs.short()),
    ];
    let bundle = crate::gateway::pem_of(root.certificate());
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
    let metadata = context.kcp.apply(cause, &kind, &kind.id(&certificate.key), body, OnConflict::Force).await?;
    let version = version(&metadata.uid, &metadata.resource_version);
    let issued = Issued { secret: certificate.key.clone(), version, validity: Some(validity) };
    let written = Written { issued: issued.clone(), inputs, at: Instant::now() };
    context.certificates.state().issued.insert(certificate.kyma.clone(), written);
    Ok(Standing::Issued(issued))
}
