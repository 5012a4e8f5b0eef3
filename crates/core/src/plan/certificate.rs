//! Which certificate a runtime has, when it is issued anew, and whom runtimes and the gateway trust meanwhile.
//!
//! A runtime has one certificate: its agent serves the API server with it and shows it to the control plane. It is signed
//! by the certificate authority of the control plane, which is replaced from time to time. So that no event is lost
//! then, the new authority is added to the bundle that both sides trust first; then the runtimes get certificates of it;
//! and the certificate that the gateway serves changes last, once every runtime has the bundle.
//!
//! All of it is values: nothing here reads a clock, a certificate or a cluster.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{
    api::{
        Kyma,
        names::{annotation, label},
    },
    landscape,
    name::Key,
};

mod gateway;

pub use gateway::{Bundle, GatewayPlan, Held, Observed, Refusal, Served, Switch, gateway};

/// Who issues certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// cert-manager, by `Certificate` objects.
    CertManager,
    /// Gardener's cert-management, likewise.
    Gardener,
    /// This daemon, with a key in a Secret of the control plane.
    Builtin,
}

/// What is configured about certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who issues; `None` finds out what the control plane serves.
    pub backend: Option<Backend>,
    /// Namespace of all certificates and of their Secrets.
    pub namespace: String,
    /// DNS names that every runtime's certificate has beside its own.
    pub additional_dns_names: Vec<String>,
    /// How long a runtime's certificate is good.
    pub duration: Duration,
    /// How long before its end it is issued anew.
    pub renew_before: Duration,
    /// How long after a change of the authority a certificate may be of the former one before that is told.
    pub renew_buffer: Duration,
    /// Bits of RSA keys, where somebody else makes them.
    pub key_size: u32,
    /// Name of the Issuer, where somebody else issues.
    pub issuer: String,
    /// Its namespace; cert-manager's are in [`Rules::namespace`].
    pub issuer_namespace: String,
    /// How long after a change of the authority the gateway keeps its certificate at least.
    pub switch_grace: Duration,
    /// How long before its end the certificate of the gateway is told of.
    pub expiry_window: Duration,
}

/// The certificate that a runtime shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Of which runtime.
    pub kyma: Key,
    /// Namespace and name, of the certificate and of its Secret.
    pub key: Key,
    /// The runtime's id: what the listener knows its events by.
    pub common_name: String,
    /// DNS names, the runtime's domain first.
    pub dns_names: Vec<String>,
}

/// Why a runtime can have no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Without an id its events would be nobody's.
    #[error("it has no label `{}`, by which its events are known: set it to the id of the runtime", label::RUNTIME_ID)]
    NoRuntimeId,
    /// Without a domain nothing pins its certificate to it.
    #[error("it has no annotation `{}`: set it to the domain of the runtime", annotation::SKR_DOMAIN)]
    NoDomain,
    /// Certificates are named by Kyma, and all are in one namespace.
    #[error("Kyma {0} has the same name, and thereby the same certificate: rename one of the two")]
    SameName(Key),
}

/// How the certificate of a runtime stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is there and may be used. It may be on the way to be replaced.
    Issued(Issued),
    /// It is not there yet: one sentence.
    Pending(String),
    /// It cannot be, before somebody changes something: one sentence.
    Refused(String),
}

/// A certificate that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The Secret that holds it.
    pub secret: Key,
    /// Changes whenever the Secret does, and is the same for every process.
    pub version: String,
    /// When it was issued and when it ends, as far as that is known.
    pub validity: Option<Validity>,
}

/// When something counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From.
    pub not_before: Timestamp,
    /// To.
    pub not_after: Timestamp,
}

/// An authority, or another certificate: its bytes and when it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The certificate in DER: what tells it from others.
    pub der: Arc<[u8]>,
    /// When it counts.
    pub validity: Validity,
}

/// Ends every name of a certificate, and of its Secret.
const SUFFIX: &str = "-webhook-tls";
/// The namespace in which Lifecycle Manager knows Kymas.
const NAMESPACE_UPSTREAM: &str = crate::api::names::KCP_NAMESPACE;

/// The certificate of a runtime.
pub fn certificate(kyma: &Kyma, rules: &Rules) -> Result<Certificate, Refused> {
    let key = landscape::key(&kyma.metadata);
    let text = |value: Option<&str>| value.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
    let common_name = text(landscape::label(&kyma.metadata, label::RUNTIME_ID)).ok_or(Refused::NoRuntimeId)?;
    let domain = text(landscape::annotation(&kyma.metadata, annotation::SKR_DOMAIN)).ok_or(Refused::NoDomain)?;
    let mut dns_names = vec![domain];
    let service = format!("{}.{}.svc", crate::api::names::SKR_WEBHOOK, crate::api::names::SKR_NAMESPACE);
    let own = [format!("{service}.cluster.local"), service];
    for name in rules.additional_dns_names.iter().map(|name| name.trim()).chain(own.iter().map(String::as_str)) {
        // An empty name would be one that matches nothing, and a certificate is refused for it.
        if !name.is_empty() && !dns_names.iter().any(|known| known == name) {
            dns_names.push(name.to_owned());
        }
    }
    Ok(Certificate { key: key_of(&key, rules), kyma: key, common_name, dns_names })
}

/// Namespace and name of the certificate of a runtime.
pub fn key_of(kyma: &Key, rules: &Rules) -> Key {
    Key::new(&rules.namespace, &format!("{}{SUFFIX}", kyma.name()))
}

/// The name of the Kyma whose certificate bears this name.
pub fn kyma_name(certificate: &str) -> Option<&str> {
    certificate.strip_suffix(SUFFIX).filter(|name| !name.is_empty())
}

/// Which Kyma a certificate is for. `says` is its own word; without one it is Lifecycle Manager's, which knows Kymas in
/// one namespace only.
pub fn kyma_of(certificate: &str, says: Option<&str>) -> Option<Key> {
    let name = kyma_name(certificate)?;
    match says {
        Some(says) => {
            says.split_once('/').filter(|(_, said)| *said == name).map(|(namespace, _)| Key::new(namespace, name))
        }
        None => Some(Key::new(NAMESPACE_UPSTREAM, name)),
    }
}

/// Whether a certificate must be issued anew since it may be of a former authority. What is not known yet need not.
pub fn must_renew(validity: Option<&Validity>, bundled_at: Timestamp) -> bool {
    validity.is_some_and(|validity| validity.not_before < bundled_at)
}

/// Whether a certificate should have been issued anew by now.
pub fn is_overdue(validity: Option<&Validity>, bundled_at: Timestamp, buffer: Duration, now: Timestamp) -> bool {
    must_renew(validity, bundled_at) && later(bundled_at, buffer) < now
}

/// Whether something is so near its end that it must be made anew.
pub fn ends_soon(validity: &Validity, before: Duration, now: Timestamp) -> bool {
    validity.not_after <= later(now, before)
}

/// A moment and a while; the last moment that there is, if that is past it.
pub fn later(moment: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    moment.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Reads the annotation that says when the newest authority was added to the bundle.
pub fn parse_bundled_at(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(|text| text.parse().ok())
}

// === impl Backend ===

impl Backend {
    /// Its name, as the option `pki` has it.
    pub fn name(self) -> &'static str {
        match self {
            Backend::CertManager => "cert-manager",
            Backend::Gardener => "gardener",
            Backend::Builtin => "builtin",
        }
    }
}

// === impl Rules ===

impl Default for Rules {
    /// Lifecycle Manager's.
    fn default() -> Rules {
        const HOUR: Duration = Duration::from_secs(3600);
        Rules {
            backend: None,
            namespace: "istio-system".to_owned(),
            additional_dns_names: Vec::new(),
            duration: HOUR * 24 * 60,
            renew_before: HOUR * 24 * 30,
            renew_buffer: HOUR * 24,
            key_size: 4096,
            issuer: crate::api::names::CERTIFICATE_ISSUER.to_owned(),
            issuer_namespace: "istio-system".to_owned(),
            switch_grace: HOUR * 24 * 4,
            expiry_window: HOUR * 24 * 14,
        }
    }
}

#[cfg(test)]
mod tests;
