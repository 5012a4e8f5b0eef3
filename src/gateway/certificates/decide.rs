//! Decides the next act for the certificate of a runtime, over values; made again after each act.
//!
//! * An issuer with `Certificate` objects gets one ([`request`]). A certificate of a former CA is requested again, but
//!   not while it is being issued and not soon after a failure.
//! * Without such an issuer, Tidegate signs ([`sign`]). A certificate is signed again if its names or its CA differ, if
//!   it is of a former CA, or if it expires soon.
//! * A certificate is removed before its Secret ([`remove`]), because its issuer would create the Secret again. Only a
//!   Secret with Tidegate's or Lifecycle Manager's purpose label is removed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_cluster::Deleted;
use tidegate_core::{
    changes::covers,
    name::Key,
    object::{Digest, Gvk, Object},
    plan::certificate::{self, Authority, Backend, Certificate, CertificateState, Issued, Rules, Validity},
};

use crate::{
    gateway::pki::object::{self, Live, Renewal},
    stores::secret::LeafSecret,
};

/// The data at the start of a pass.
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    /// The desired certificate.
    pub(super) certificate: &'a Certificate,
    /// The configuration.
    pub(super) rules: &'a Rules,
    /// The issuer's object, as its watch shows it.
    pub(super) live: Option<Arc<Live>>,
    /// The Secret, as its watch shows it.
    pub(super) secret: Option<Arc<LeafSecret>>,
    /// When the newest CA was added to the bundle.
    pub(super) bundled_at: Option<Timestamp>,
    /// Why there is no CA, if there is none.
    pub(super) problem: Option<String>,
}

/// The last act for an issuer's object.
#[derive(Clone, Debug)]
pub(super) enum Requested {
    /// None yet.
    Nothing,
    /// The object was applied.
    Applied,
    /// The control plane rejected the object: one sentence.
    Rejected(String),
    /// The object was read again; `None` if it is gone.
    Read(Option<Current>),
    /// A new certificate was requested.
    Renewed,
}

/// The issuer's object, read during the pass.
#[derive(Clone, Debug)]
pub(super) struct Current {
    /// Its content.
    pub(super) live: Live,
    /// Its conditions.
    pub(super) conditions: Vec<Value>,
}

/// The next step for an issuer's object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestStep {
    /// Applies the object.
    Apply,
    /// Reads the object again: a renewal depends on its newest state.
    Read,
    /// Requests a new certificate.
    Renew(Renewal),
    /// Ends the pass.
    End(CertificateState),
}

/// The next step if Tidegate signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignStep {
    /// Signs a certificate with these inputs.
    Issue {
        /// Digest of the names and the CA.
        inputs: Digest,
        /// When the certificate is valid.
        validity: Validity,
        /// When it counts as issued: not before the newest CA was added to the bundle.
        issued_at: Timestamp,
    },
    /// Ends the pass.
    End(CertificateState),
}

/// A certificate that Tidegate signed, and its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) issued: Issued,
    pub(super) inputs: Digest,
}

/// What is known of the issuers in the control plane.
#[derive(Clone, Debug, Default)]
pub(super) struct IssuersSeen {
    /// Who made the CA that exists, by its annotation; the inner `None` if there is no CA or another client made it.
    pub(super) authority: Option<Option<String>>,
    /// Whether the control plane serves the kinds of an issuer.
    pub(super) served: BTreeMap<Backend, bool>,
}

/// The next step to determine the issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BackendStep {
    /// Reads the metadata of the CA's Secret.
    ReadAuthority,
    /// Asks whether the control plane serves the `Certificate` objects of an issuer.
    Discover(Backend, Gvk),
    /// Uses this issuer.
    Use(Backend),
}

/// The certificate of a deleted runtime, as the watches show it.
#[derive(Clone, Debug)]
pub(super) struct Remains<'a> {
    /// The Kyma.
    pub(super) kyma: &'a Key,
    /// Name of the certificate and of its Secret.
    pub(super) name: &'a str,
    /// Whether the issuer has `Certificate` objects.
    pub(super) has_object: bool,
    /// The issuer's object.
    pub(super) live: Option<Arc<Live>>,
    /// The Secret.
    pub(super) secret: Option<Arc<LeafSecret>>,
}

/// The last act of a removal.
#[derive(Clone, Debug)]
pub(super) enum Removed {
    /// None yet.
    Nothing,
    /// The delete of the certificate.
    Certificate(Deleted),
    /// The Secret was read again; `None` if it is gone.
    SecretRead(Option<FoundSecret>),
    /// The delete of the Secret.
    Secret(Deleted),
}

/// The Secret, read during the pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundSecret {
    /// Its UID.
    pub(super) uid: String,
    /// Whether its label says that it contains a runtime's certificate.
    pub(super) is_certificate: bool,
}

/// The next step of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RemovalStep {
    /// Deletes the certificate with this UID.
    DeleteCertificate(String),
    /// Reads the Secret, which may have changed since the last watch event.
    ReadSecret,
    /// Deletes the Secret with this UID.
    DeleteSecret(String),
    /// Ends the removal: whether both are gone.
    End(bool),
}

/// Pause after a failed issue. The answer to each request is a change, which would otherwise trigger the next request
/// at once.
const FAILED_PAUSE: Duration = Duration::from_secs(300);
/// After this time, the watch's state is used even if it does not show Tidegate's own write.
const LAG_MAX: Duration = Duration::from_secs(2);
/// Clocks of runtimes may be this much behind. Tidegate checks only when certificates expire, so this has no drawback.
const BACKDATED: Duration = Duration::from_secs(300);

/// Determines the issuer: the configured one; otherwise Tidegate itself if it made the CA that exists, because
/// cert-manager may have been installed for other purposes; otherwise the first that the control plane serves.
pub(super) fn backend(configured: Option<Backend>, seen: &IssuersSeen) -> BackendStep {
    if let Some(backend) = configured {
        return BackendStep::Use(backend);
    }
    let Some(authority) = &seen.authority else { return BackendStep::ReadAuthority };
    if authority.as_deref() == Some(Backend::Builtin.name()) {
        return BackendStep::Use(Backend::Builtin);
    }
    for backend in [Backend::CertManager, Backend::Gardener] {
        let Some((gvk, _)) = object::kind(backend) else { continue };
        match seen.served.get(&backend) {
            None => return BackendStep::Discover(backend, gvk),
            Some(true) => return BackendStep::Use(backend),
            Some(false) => {}
        }
    }
    BackendStep::Use(Backend::Builtin)
}

/// Decides the next step for an issuer with `Certificate` objects. `desired` is the spec of the object.
pub(super) fn request(
    known: &Known<'_>,
    backend: Backend,
    desired: Option<&Value>,
    last: &Requested,
    now: Timestamp,
) -> RequestStep {
    match last {
        Requested::Nothing if !is_current(known, desired) => RequestStep::Apply,
        Requested::Nothing | Requested::Applied => match &known.live {
            Some(live) if is_renewal_due(live, known.bundled_at, now) => RequestStep::Read,
            Some(_) | None => RequestStep::End(requested(known, backend)),
        },
        Requested::Read(Some(Current { live, conditions })) if is_renewal_due(live, known.bundled_at, now) => {
            RequestStep::Renew(object::renewal(backend, live, conditions, now))
        }
        Requested::Read(_) | Requested::Renewed => RequestStep::End(requested(known, backend)),
        Requested::Rejected(why) => RequestStep::End(CertificateState::Refused(why.clone())),
    }
}

/// Decides the next step if Tidegate signs. `written` is a certificate that Tidegate signed and its watch does not show
/// yet.
pub(super) fn sign(known: &Known<'_>, signer: &Authority, written: Option<&Written>, now: Timestamp) -> SignStep {
    let inputs = inputs(known.certificate, signer);
    if let Some(written) = written.filter(|written| written.inputs == inputs) {
        return SignStep::End(CertificateState::Issued(written.issued.clone()));
    }
    if let Some(secret) = known.secret.as_deref().filter(|secret| !is_due(known, secret, inputs, now)) {
        return SignStep::End(CertificateState::Issued(issued(known.certificate, secret)));
    }
    let validity = Validity {
        not_before: now.checked_sub(BACKDATED).unwrap_or(now),
        not_after: certificate::later(now, known.rules.duration),
    };
    // The newest CA signs it, and the time of that CA's addition may be up to a second ahead.
    let issued_at = known.bundled_at.map_or(now, |bundled_at| now.max(bundled_at));
    SignStep::Issue { inputs, validity, issued_at }
}

/// The state without a CA. An existing certificate remains usable: only its renewal has to wait.
pub(super) fn unsigned(known: &Known<'_>) -> CertificateState {
    match known.secret.as_deref().filter(|secret| !secret.is_deleting && secret.issued_at.is_some()) {
        Some(secret) => CertificateState::Issued(issued(known.certificate, secret)),
        None => {
            let because = known.problem.as_deref().unwrap_or("its Secret has not been read yet");
            CertificateState::Pending(format!("there is no CA: {because}"))
        }
    }
}

/// Decides the next step of a removal.
pub(super) fn remove(remains: &Remains<'_>, last: &Removed) -> RemovalStep {
    match last {
        Removed::Nothing if !is_of(remains) => RemovalStep::End(true),
        Removed::Nothing => match &remains.live {
            Some(live) if remains.has_object => RemovalStep::DeleteCertificate(live.uid.clone()),
            Some(_) | None => RemovalStep::ReadSecret,
        },
        Removed::Certificate(Deleted::Terminating) => RemovalStep::End(false),
        Removed::Certificate(Deleted::Gone | Deleted::Changed) => RemovalStep::ReadSecret,
        Removed::SecretRead(Some(secret)) if secret.is_certificate => RemovalStep::DeleteSecret(secret.uid.clone()),
        Removed::SecretRead(_) => RemovalStep::End(true),
        Removed::Secret(deleted) => RemovalStep::End(*deleted == Deleted::Gone),
    }
}

/// Whether the watch's state replaces a certificate that Tidegate signed `age` ago.
pub(super) fn is_superseded(written: &Written, shown: Option<&LeafSecret>, age: Duration) -> bool {
    shown.is_some_and(|secret| version(&secret.uid, &secret.resource_version) == written.issued.version)
        || LAG_MAX < age
}

/// The version of an issued certificate.
pub(super) fn version(uid: &str, resource_version: &str) -> String {
    format!("{uid}/{resource_version}")
}

/// When a certificate of Tidegate is valid, according to its Secret.
pub(crate) fn validity(secret: &LeafSecret) -> Option<Validity> {
    let moment = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
    Some(Validity { not_before: moment(&secret.issued_at)?, not_after: moment(&secret.not_after)? })
}

/// The object that is applied. Lifecycle Manager writes an empty DNS name and `isCA: false`. An issuer would issue the
/// certificate anew if they went, and each agent would restart. So they stay as long as nothing else differs.
pub(super) fn as_adopted(desired: &Object, live: Option<&Live>) -> Object {
    let live = live.and_then(|live| serde_json::from_str::<Value>(&live.spec).ok());
    let Some(live) = live else { return desired.clone() };
    let mut desired = desired.clone();
    let Some(spec) = desired.map_mut().get_mut("spec").and_then(Value::as_object_mut) else { return desired };
    let named = |names: &Value| -> Vec<String> {
        let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    if spec.get("dnsNames").is_some_and(|names| named(names) == named(&live["dnsNames"])) {
        spec.insert("dnsNames".to_owned(), live["dnsNames"].clone());
    }
    if live["isCA"] == false {
        spec.entry("isCA").or_insert(Value::Bool(false));
    }
    desired
}

/// Whether the issuer's object is as desired.
fn is_current(known: &Known<'_>, desired: Option<&Value>) -> bool {
    let Some(live) = known.live.as_deref() else { return false };
    let spec: Value = serde_json::from_str(&live.spec).unwrap_or_default();
    let is_marked = live.kyma.as_deref() == Some(known.certificate.kyma.to_string().as_str());
    is_marked && desired.is_some_and(|desired| covers(desired, &spec))
}

/// Whether to request a new certificate now: the current one is of a former CA, it is not being issued, and no issue
/// failed recently.
fn is_renewal_due(live: &Live, bundled_at: Option<Timestamp>, now: Timestamp) -> bool {
    let failed = live.failed_at.is_some_and(|failed| now < certificate::later(failed, FAILED_PAUSE));
    bundled_at.is_some_and(|bundled_at| certificate::must_renew(live.validity.as_ref(), bundled_at))
        && !live.is_issuing
        && !live.is_deleting
        && !failed
}

/// The state of a requested certificate.
fn requested(known: &Known<'_>, backend: Backend) -> CertificateState {
    match known.secret.as_deref().filter(|secret| !secret.is_deleting) {
        Some(secret) => CertificateState::Issued(Issued {
            secret: known.certificate.key.clone(),
            version: version(&secret.uid, &secret.resource_version),
            validity: known.live.as_ref().and_then(|live| live.validity),
        }),
        None => {
            // Without a CA, the issuer's problem is a consequence, so the CA's problem is reported.
            let because = known.problem.clone().or_else(|| known.live.as_ref()?.problem.clone());
            let because = because.map(|because| format!(": {because}")).unwrap_or_default();
            let key = &known.certificate.key;
            CertificateState::Pending(format!("{} has not issued certificate {key} yet{because}", backend.name()))
        }
    }
}

/// Whether to sign a certificate, because it is missing, differs or expires soon.
fn is_due(known: &Known<'_>, secret: &LeafSecret, inputs: Digest, now: Timestamp) -> bool {
    let Some(validity) = validity(secret) else { return true };
    secret.is_deleting
        || secret.issued_for.as_deref() != Some(inputs.short().as_str())
        || known.bundled_at.is_some_and(|bundled_at| certificate::must_renew(Some(&validity), bundled_at))
        || certificate::ends_soon(&validity, known.rules.renew_before, now)
}

fn issued(certificate: &Certificate, secret: &LeafSecret) -> Issued {
    Issued {
        secret: certificate.key.clone(),
        version: version(&secret.uid, &secret.resource_version),
        validity: validity(secret),
    }
}

/// Digest of a certificate's names and CA.
fn inputs(certificate: &Certificate, authority: &Authority) -> Digest {
    let Certificate { kyma, common_name, dns_names, .. } = certificate;
    let authority = Digest::of_bytes(&authority.der).to_string();
    Digest::from_value(&json!([kyma.to_string(), common_name, dns_names, authority]))
}

/// Whether something is left, and belongs to this Kyma. Otherwise it belongs to another namespace's owner, or to
/// another Kyma of that name.
fn is_of(remains: &Remains<'_>) -> bool {
    let (live, secret) = (remains.live.as_deref(), remains.secret.as_deref());
    let says = secret.and_then(|secret| secret.kyma.as_deref()).or(live.and_then(|live| live.kyma.as_deref()));
    (live.is_some() || secret.is_some()) && certificate::kyma_of(remains.name, says).as_ref() == Some(remains.kyma)
}

#[cfg(test)]
mod tests;
