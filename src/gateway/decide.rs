//! Decides the next acts for the gateway's Secret: a decision over values, made again after each group of acts.
//!
//! [`tidegate_core::plan::certificate`] decides the content of the Secret. This module decides what to read, create and
//! sign for it, and in which order:
//!
//! * Tidegate creates a CA only if it is the issuer. It replaces a CA only after the bundle contains that CA, or after
//!   its end.
//! * Between two CAs, Tidegate signs with neither. The former CA signs no more, and the new CA does not sign before the
//!   bundle contains it.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tidegate_core::{
    api::names,
    name::Key,
    object::Digest,
    plan::certificate::{self, Authority, Backend, Bundle, Held, Served, Switch, Validity},
};

use super::{
    pki::{self, Root},
    state::{AuthoritySecret, AuthorityWriter, Known, Observed, Reads},
};
use crate::{
    controller::chain,
    stores::secret::{GatewaySecret, key},
};

/// The next step: acts, in this order.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// Enact these acts, then decide again.
    Do(Vec<Act>),
    /// Enact these acts, then end the pass.
    End(Vec<Act>, Switch),
}

/// One act.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Reads the Secret with the CA.
    ReadAuthority(Key),
    /// Creates a CA, and replaces the CA at this resource version.
    MakeAuthority {
        /// Its Secret.
        key: Key,
        /// What it replaces.
        replaces: Option<String>,
        /// When it is valid.
        validity: Validity,
    },
    /// Reads the gateway's Secret.
    ReadGateway,
    /// Counts the runtimes that are not known to trust a bundle.
    CountBehind(Option<Digest>),
    /// Signs runtimes' certificates with this CA from now on, or with none.
    Sign(Option<Arc<Root>>),
    /// Writes the gateway's Secret.
    Write(GatewayContent),
}

/// The new content of the gateway's Secret.
#[derive(Clone, Debug)]
pub(super) struct GatewayContent {
    /// Resource version of the Secret that was read; `None` creates the Secret.
    pub(super) replaces: Option<String>,
    /// The trusted CAs.
    pub(super) bundle: Bundle,
    /// When the newest of them was added.
    pub(super) bundled_at: Timestamp,
    /// The new serving certificate, if it changes.
    pub(super) credentials: Option<Credentials>,
}

/// The serving certificate and its key.
#[derive(Clone)]
pub(super) enum Credentials {
    /// The CA's own certificate and key, in PEM.
    Authority(Vec<u8>, Vec<u8>),
    /// A separate certificate, issued for these names.
    Issued {
        /// The CA that signs it.
        root: Arc<Root>,
        /// DNS names and addresses.
        names: Vec<String>,
        /// When it is valid.
        validity: Validity,
    },
}

/// A problem that only a change by a user or an issuer resolves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// One word in PascalCase.
    pub(super) reason: &'static str,
    /// One sentence.
    pub(super) message: String,
}

/// How often the Secrets are read without a trigger.
const LOOK: Duration = Duration::from_secs(300);
/// Lifetime of Tidegate's CA, in lifetimes of a runtime's certificate. Tidegate replaces the CA one such lifetime
/// before its end, so that it outlives everything that it signed.
const LIVES: u32 = 6;
/// Clocks of runtimes may be this much behind.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Decides the next step.
///
/// # Errors
///
/// Fails with a [`Problem`] if a Secret cannot be used, or if the CA has not been issued.
pub(super) fn decide(known: &Known<'_>, observed: &Observed, now: Timestamp) -> Result<Next, Problem> {
    let key = authority_key(known);
    let (secret, gateway, behind) = match &observed.reads {
        Reads::Nothing => return Ok(Next::Do(vec![Act::ReadAuthority(key)])),
        Reads::NoAuthority => return absent(known, observed.authority_writer, key, now),
        Reads::Authority(secret) => {
            return readable(secret, &key).map(|_| Next::Do(vec![Act::ReadGateway]));
        }
        Reads::Secrets(secret, gateway) => (secret, gateway.as_ref(), None),
        Reads::Everything(secret, gateway, behind) => (secret, gateway.as_ref(), Some(*behind)),
    };
    let authority = readable(secret, &key)?;
    let held = gateway.map(|gateway| held(known, gateway, authority)).transpose()?;
    let is_bundled = held.as_ref().is_some_and(|held| held.bundle.contains(authority));
    let may_replace = observed.authority_writer == AuthorityWriter::Other;
    if may_replace && needs_successor(known, authority, is_bundled, now) {
        let replaces = Some(secret.resource_version.clone());
        return Ok(Next::Do(vec![make(known, key, replaces, now)]));
    }
    let Some(behind) = behind else {
        let bundle = gateway.filter(|_| is_bundled).and_then(|gateway| gateway.bundle.as_deref());
        return Ok(Next::Do(vec![Act::CountBehind(bundle.map(Digest::of_bytes))]));
    };
    let root = signer(known, secret, &key)?;
    let plan = certificate::gateway(held.as_ref(), authority, behind, known.rules, now)
        .map_err(|refusal| refused(known, key, refusal))?;
    let mut acts = Vec::new();
    // From here on the former CA signs no more, and the present CA does not sign before the bundle contains it. A
    // runtime that the new bundle wakes waits in between.
    if known.signs_with.as_ref() != Some(&authority.der) {
        acts.push(Act::Sign(None));
    }
    if plan.is_new || plan.switch == Switch::Now {
        acts.push(Act::Write(GatewayContent {
            replaces: gateway.map(|gateway| gateway.resource_version.clone()),
            bundle: plan.bundle,
            bundled_at: plan.bundled_at,
            credentials: (plan.switch == Switch::Now)
                .then(|| credentials(known, secret, authority, root.as_ref(), now)),
        }));
    }
    acts.push(Act::Sign(root));
    Ok(Next::End(acts, plan.switch))
}

/// When to check the Secrets again.
pub(super) fn next_look(switch: Switch, now: Timestamp) -> Duration {
    match switch {
        // One more second, because times are written without fractions.
        Switch::At(at) => {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            LOOK.min(wait + Duration::from_secs(1))
        }
        Switch::Stays | Switch::Now | Switch::Behind(_) => LOOK,
    }
}

/// The next step if there is no CA.
fn absent(known: &Known<'_>, writer: AuthorityWriter, key: Key, now: Timestamp) -> Result<Next, Problem> {
    match known.backend {
        Backend::Builtin if writer == AuthorityWriter::ThisPass => {
            Err(Problem::new("NoAuthority", format!("Secret {key} was deleted while Tidegate created it")))
        }
        Backend::Builtin => Ok(Next::Do(vec![make(known, key, None, now)])),
        Backend::CertManager | Backend::Gardener => Err(Problem::new(
            "NoAuthority",
            format!(
                "Secret {key} with the CA does not exist: {} must issue it, see overlays/\
                 istio-cert-manager, or run with --pki=builtin",
                known.backend.name()
            ),
        )),
    }
}

/// Whether Tidegate's CA expires so soon that its successor must be created.
fn needs_successor(known: &Known<'_>, authority: &Authority, is_bundled: bool, now: Timestamp) -> bool {
    let is_due = certificate::ends_soon(&authority.validity, life(known) + known.rules.switch_grace, now);
    let has_ended = authority.validity.not_after <= now;
    known.backend == Backend::Builtin && is_due && (is_bundled || has_ended)
}

fn make(known: &Known<'_>, key: Key, replaces: Option<String>, now: Timestamp) -> Act {
    let validity = validity(now, certificate::later(now, life(known) * LIVES));
    Act::MakeAuthority { key, replaces, validity }
}

/// The unit of a CA's lifetime: it must cover the lifetime of a runtime's certificate, and a change of the CA.
fn life(known: &Known<'_>) -> Duration {
    known.rules.duration.max(known.rules.switch_grace)
}

fn validity(now: Timestamp, not_after: Timestamp) -> Validity {
    let backdated = SignedDuration::try_from(BACKDATED).unwrap_or_default();
    Validity { not_before: now.checked_sub(backdated).unwrap_or(now), not_after }
}

/// The CA to sign with, if Tidegate signs.
fn signer(known: &Known<'_>, secret: &AuthoritySecret, key: &Key) -> Result<Option<Arc<Root>>, Problem> {
    match known.backend {
        Backend::Builtin => {
            let root = Root::read(&secret.certificate, &secret.key);
            root.map(|root| Some(Arc::new(root))).map_err(|error| unreadable(key, &error))
        }
        Backend::CertManager | Backend::Gardener => Ok(None),
    }
}

/// The parsed content of the gateway's Secret.
fn held(known: &Known<'_>, secret: &GatewaySecret, authority: &Authority) -> Result<Held, Problem> {
    let bundle = match secret.bundle.as_deref().map(pki::read_bundle) {
        None | Some(Err(pki::Error::Empty)) => Bundle::default(),
        Some(Ok(bundle)) => bundle,
        Some(Err(error)) => {
            let problem = format!("`{}` of Secret {} cannot be read: {}", key::BUNDLE, known.key, chain(&error));
            return Err(Problem::new("BadBundle", format!("{problem}; correct it, or delete the Secret")));
        }
    };
    let bundled_at = certificate::parse_bundled_at(secret.bundled_at.as_deref());
    Ok(Held { bundle, bundled_at, served: served(known, secret, authority) })
}

fn served(known: &Known<'_>, secret: &GatewaySecret, authority: &Authority) -> Served {
    match pki::read_first(&secret.certificate) {
        Ok(served) => {
            let (is_current, is_fit) = match known.backend {
                // A CA that was reissued with its old key is a different certificate. A client that compares the served
                // certificate with the bundle would not find it there.
                Backend::CertManager | Backend::Gardener => (served.der == authority.der, true),
                Backend::Builtin => (pki::is_of(&served, authority), pki::is_server_of(&served, &known.hosts)),
            };
            Served { is_current, is_fit, validity: served.validity }
        }
        // No client accepts an unreadable certificate, so Tidegate may replace it like an expired one.
        Err(_) => {
            let validity = Validity { not_before: Timestamp::UNIX_EPOCH, not_after: Timestamp::UNIX_EPOCH };
            Served { is_current: false, is_fit: false, validity }
        }
    }
}

/// The certificate and key that the gateway serves with.
fn credentials(
    known: &Known<'_>,
    secret: &AuthoritySecret,
    authority: &Authority,
    root: Option<&Arc<Root>>,
    now: Timestamp,
) -> Credentials {
    match root {
        None => Credentials::Authority(secret.certificate.clone(), secret.key.clone()),
        Some(root) => Credentials::Issued {
            root: Arc::clone(root),
            names: known.hosts.clone(),
            // It lasts as long as its CA, which Tidegate replaces long before that.
            validity: validity(now, authority.validity.not_after),
        },
    }
}

fn refused(known: &Known<'_>, authority: Key, refusal: certificate::Refusal) -> Problem {
    let secret = match refusal {
        certificate::Refusal::Expired => authority,
        certificate::Refusal::NoMoment => known.key.clone(),
    };
    Problem::new("BadGatewaySecret", format!("Secret {secret}: {refusal}"))
}

/// The parsed certificate of the CA.
fn readable<'a>(secret: &'a AuthoritySecret, key: &Key) -> Result<&'a Authority, Problem> {
    secret.authority.as_ref().map_err(|error| unreadable(key, error))
}

fn unreadable(key: &Key, error: &pki::Error) -> Problem {
    Problem::new("BadAuthority", format!("cannot use the CA in Secret {key}: {}", chain(error)))
}

fn authority_key(known: &Known<'_>) -> Key {
    Key::new(&known.rules.namespace, names::AUTHORITY_SECRET)
}

// === impl Problem ===

impl Problem {
    pub(super) fn new(reason: &'static str, message: String) -> Problem {
        Problem { reason, message }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Credentials::Authority(..) => f.write_str("Authority"),
            Credentials::Issued { names, validity, .. } => {
                f.debug_struct("Issued").field("names", names).field("validity", validity).finish_non_exhaustive()
            }
        }
    }
}

#[cfg(test)]
mod tests;
