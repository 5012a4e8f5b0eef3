//! The certificate of a runtime, its renewal, and the CAs that runtimes and the gateway trust.
//!
//! A runtime has one certificate. The agent uses it as a server for the API server, and as a client
//! of the control plane. The CA of the control plane signs it, and this CA is replaced from time to
//! time. Three steps avoid a loss of events. First, the new CA is added to the bundle that both
//! sides trust. Then the runtimes get certificates of the new CA. The gateway's certificate changes
//! last, when every runtime has the bundle.
//!
//! Everything here is a value: this module reads no clock, no certificate and no cluster.

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

/// The issuer of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// cert-manager, by `Certificate` objects.
    CertManager,
    /// Gardener's cert-management, also by `Certificate` objects.
    Gardener,
    /// Tidegate itself, with a CA key in a Secret of the control plane.
    Builtin,
}

/// The configuration of certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The issuer. `None` detects it from the kinds that the control plane serves.
    pub backend: Option<Backend>,
    /// Namespace of all certificates and their Secrets.
    pub namespace: String,
    /// Additional DNS names of every runtime's certificate.
    pub additional_dns_names: Vec<String>,
    /// Validity of a runtime's certificate.
    pub duration: Duration,
    /// How long before its expiry it is renewed.
    pub renew_before: Duration,
    /// How long after a change of the CA a certificate of the former CA is tolerated before it is
    /// reported.
    pub renew_buffer: Duration,
    /// Size of RSA keys in bits, for external issuers.
    pub key_size: u32,
    /// Name of the Issuer, for external issuers.
    pub issuer: String,
    /// Its namespace. An Issuer of cert-manager is in [`Rules::namespace`].
    pub issuer_namespace: String,
    /// How long the gateway at least keeps its certificate after a change of the CA.
    pub switch_grace: Duration,
    /// How long before its expiry the gateway's certificate is reported.
    pub expiry_window: Duration,
}

/// The desired certificate of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The Kyma of the runtime.
    pub kyma: Key,
    /// Namespace and name of the certificate and of its Secret.
    pub key: Key,
    /// The runtime id, by which the listener identifies its events.
    pub common_name: String,
    /// DNS names; the runtime's domain is the first.
    pub dns_names: Vec<String>,
}

/// Why a runtime cannot have a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Without an id, its events cannot be assigned to it.
    #[error(
        "the label `{}`, which identifies its events, is missing: set it to the id of the runtime",
        label::RUNTIME_ID
    )]
    NoRuntimeId,
    /// Without a domain, nothing ties its certificate to it.
    #[error("the annotation `{}` is missing: set it to the domain of the runtime", annotation::SKR_DOMAIN)]
    NoDomain,
    /// Certificates are named after the Kyma, and all are in one namespace.
    #[error("Kyma {0} has the same name, and so the same certificate: rename one of the two")]
    SameName(Key),
}

/// The state of a runtime's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateState {
    /// It exists and is usable. A renewal may be in progress.
    Issued(Issued),
    /// It does not exist yet. One sentence says why.
    Pending(String),
    /// It cannot be issued until a user acts. One sentence says why.
    Refused(String),
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The Secret that contains it.
    pub secret: Key,
    /// Changes whenever the Secret changes. Every process computes the same value.
    pub version: String,
    /// Its validity, as far as it is known.
    pub validity: Option<Validity>,
}

/// A validity period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start.
    pub not_before: Timestamp,
    /// End.
    pub not_after: Timestamp,
}

/// A CA certificate, or another one: its bytes and its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The certificate in DER, which identifies it.
    pub der: Arc<[u8]>,
    /// Its validity.
    pub validity: Validity,
}

/// Suffix of the names of certificates and their Secrets.
const SUFFIX: &str = "-webhook-tls";
/// The namespace in which Lifecycle Manager expects Kymas.
const NAMESPACE_UPSTREAM: &str = crate::api::names::KCP_NAMESPACE;

/// The desired certificate of a runtime.
///
/// # Errors
///
/// Fails if the Kyma lacks its runtime id or its domain.
pub fn certificate(kyma: &Kyma, rules: &Rules) -> Result<Certificate, Refused> {
    let key = landscape::key(&kyma.metadata);
    let text = |value: Option<&str>| value.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
    let common_name = text(landscape::label(&kyma.metadata, label::RUNTIME_ID)).ok_or(Refused::NoRuntimeId)?;
    let domain = text(landscape::annotation(&kyma.metadata, annotation::SKR_DOMAIN)).ok_or(Refused::NoDomain)?;
    let mut dns_names = vec![domain];
    let service = format!("{}.{}.svc", crate::api::names::SKR_WEBHOOK, crate::api::names::SKR_NAMESPACE);
    let own = [format!("{service}.cluster.local"), service];
    for name in rules.additional_dns_names.iter().map(|name| name.trim()).chain(own.iter().map(String::as_str)) {
        // An empty name matches nothing, and issuers reject it.
        if !name.is_empty() && !dns_names.iter().any(|known| known == name) {
            dns_names.push(name.to_owned());
        }
    }
    Ok(Certificate { key: key_of(&key, rules), kyma: key, common_name, dns_names })
}

/// Namespace and name of a runtime's certificate.
pub fn key_of(kyma: &Key, rules: &Rules) -> Key {
    Key::new(&rules.namespace, &format!("{}{SUFFIX}", kyma.name()))
}

/// The name of the Kyma whose certificate has this name.
pub fn kyma_name(certificate: &str) -> Option<&str> {
    certificate.strip_suffix(SUFFIX).filter(|name| !name.is_empty())
}

/// The Kyma of a certificate. `says` is the reference that the certificate contains. Without one,
/// it is from Lifecycle Manager, which expects Kymas in one namespace only.
pub fn kyma_of(certificate: &str, says: Option<&str>) -> Option<Key> {
    let name = kyma_name(certificate)?;
    match says {
        Some(says) => {
            says.split_once('/').filter(|(_, said)| *said == name).map(|(namespace, _)| Key::new(namespace, name))
        }
        None => Some(Key::new(NAMESPACE_UPSTREAM, name)),
    }
}

/// Whether a certificate may be of a former CA, and so must be renewed. False as long as the facts
/// are unknown.
pub fn must_renew(validity: Option<&Validity>, bundled_at: Timestamp) -> bool {
    validity.is_some_and(|validity| validity.not_before < bundled_at)
}

/// Whether the renewal of a certificate is overdue.
pub fn is_overdue(validity: Option<&Validity>, bundled_at: Timestamp, buffer: Duration, now: Timestamp) -> bool {
    must_renew(validity, bundled_at) && later(bundled_at, buffer) < now
}

/// Whether something expires so soon that it must be renewed.
pub fn ends_soon(validity: &Validity, before: Duration, now: Timestamp) -> bool {
    validity.not_after <= later(now, before)
}

/// A time plus a duration; the latest possible time if it overflows.
pub fn later(moment: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    moment.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Parses the annotation with the time at which the newest CA was added to the bundle.
pub fn parse_bundled_at(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(|text| text.parse().ok())
}

// === impl Backend ===

impl Backend {
    /// Its name as a value of the option `pki`.
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
    /// The defaults of Lifecycle Manager.
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
