//! What is done next about the gateway's Secret: a decision over values, asked again after every round of acts.
//!
//! What the Secret shall hold is decided in [`tidegate_core::plan::certificate`]; here is what must be read, made and
//! signed for it, and in which order:
//!
//! * An authority is made only where we are to be it, and replaced only once the bundle has it, or after its end.
//! * Between two authorities we sign with neither: the former one signs no more, and the new one not before the bundle
//!   has it.

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
    state::{AuthoritySecret, Known, Lookup, Observed},
};
use crate::{
    controller::chain,
    stores::secret::{GatewaySecret, key},
};

/// What is done next, in this order.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// These; then the decision is made again.
    Do(Vec<Act>),
    /// These; then the pass is over.
    End(Vec<Act>, Switch),
}

/// One thing that is done.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Reads the Secret with the authority.
    ReadAuthority(Key),
    /// Makes an authority, in the place of the one at this resource version.
    MakeAuthority {
        /// Its Secret.
        key: Key,
        /// What it replaces.
        replaces: Option<String>,
        /// When it counts.
        validity: Validity,
    },
    /// Reads the gateway's Secret.
    ReadGateway,
    /// Counts the runtimes that are not known to trust a bundle.
    CountBehind(Option<Digest>),
    /// Signs runtimes' certificates with this authority from here on, or with none.
    Sign(Option<Arc<Root>>),
    /// Writes the gateway's Secret.
    Write(GatewayContent),
}

/// What is written into the gateway's Secret.
#[derive(Clone, Debug)]
pub(super) struct GatewayContent {
    /// The Secret as it was read; without it, it is created.
    pub(super) replaces: Option<String>,
    /// Who is trusted.
    pub(super) bundle: Bundle,
    /// When the newest of them was added.
    pub(super) bundled_at: Timestamp,
    /// What the gateway is to serve with, if that changes.
    pub(super) credentials: Option<Credentials>,
}

/// What the gateway serves with.
#[derive(Clone)]
pub(super) enum Credentials {
    /// The authority's own certificate and key, in PEM.
    Authority(Vec<u8>, Vec<u8>),
    /// A certificate of our own, issued for these names.
    Issued {
        /// Who signs it.
        root: Arc<Root>,
        /// DNS names and addresses.
        names: Vec<String>,
        /// When it counts.
        validity: Validity,
    },
}

/// Why nothing can be done before somebody changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// One word in PascalCase.
    pub(super) reason: &'static str,
    /// One sentence.
    pub(super) message: String,
}

/// How often the Secrets are read unasked.
const LOOK: Duration = Duration::from_secs(300);
/// An authority of ours lasts for so many lives of a runtime's certificate. It is replaced one before its end, so that it
/// outlives everything that it signed.
const LIVES: u32 = 6;
/// Clocks of runtimes may be behind by so much.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Decides what is done next.
///
/// # Errors
///
/// A [`Problem`] if a Secret cannot be used, or nobody has issued the authority.
pub(super) fn decide(known: &Known<'_>, observed: &Observed, now: Timestamp) -> Result<Next, Problem> {
    let key = authority_key(known);
    let secret = match &observed.authority {
        Lookup::Unread => return Ok(Next::Do(vec![Act::ReadAuthority(key)])),
        Lookup::Absent => return absent(known, observed, key, now),
        Lookup::Found(secret) => secret,
    };
    let authority = secret.authority.as_ref().map_err(|error| unreadable(&key, error))?;
    let gateway = match &observed.gateway {
        Lookup::Unread => return Ok(Next::Do(vec![Act::ReadGateway])),
        Lookup::Absent => None,
        Lookup::Found(gateway) => Some(gateway),
    };
    let held = gateway.map(|gateway| held(known, gateway, authority)).transpose()?;
    let is_bundled = held.as_ref().is_some_and(|held| held.bundle.contains(authority));
    if !observed.is_made && needs_successor(known, authority, is_bundled, now) {
        let replaces = Some(secret.resource_version.clone());
        return Ok(Next::Do(vec![make(known, key, replaces, now)]));
    }
    let Some(behind) = observed.behind else {
        let bundle = gateway.filter(|_| is_bundled).and_then(|gateway| gateway.bundle.as_deref());
        return Ok(Next::Do(vec![Act::CountBehind(bundle.map(Digest::of_bytes))]));
    };
    let root = signer(known, secret, &key)?;
    let behind = certificate::Observed { behind };
    let plan = certificate::gateway(held.as_ref(), authority, behind, known.rules, now)
        .map_err(|refusal| refused(known, key, refusal))?;
    let mut acts = Vec::new();
    // From here on the former authority signs no more, and the present one not before the bundle has it. A runtime that is
    // woken by the new bundle waits in between.
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

/// When to look again.
pub(super) fn next_look(switch: Switch, now: Timestamp) -> Duration {
    match switch {
        // A second more, since moments are written without fractions.
        Switch::At(at) => {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            LOOK.min(wait + Duration::from_secs(1))
        }
        Switch::Stays | Switch::Now | Switch::Behind(_) => LOOK,
    }
}

/// What is done where there is no authority.
fn absent(known: &Known<'_>, observed: &Observed, key: Key, now: Timestamp) -> Result<Next, Problem> {
    match known.backend {
        Backend::Builtin if observed.is_made => Err(Problem::new("NoAuthority", format!("Secret {key} is gone again"))),
        Backend::Builtin => Ok(Next::Do(vec![make(known, key, None, now)])),
        Backend::CertManager | Backend::Gardener => Err(Problem::new(
            "NoAuthority",
            format!(
                "there is no Secret {key} with the certificate authority: {} is to issue it, see overlays/\
                 istio-cert-manager, or run with --pki=builtin",
                known.backend.name()
            ),
        )),
    }
}

/// Whether an authority of ours nears its end, so that its successor is made.
fn needs_successor(known: &Known<'_>, authority: &Authority, is_bundled: bool, now: Timestamp) -> bool {
    let is_due = certificate::ends_soon(&authority.validity, life(known) + known.rules.switch_grace, now);
    let has_ended = authority.validity.not_after <= now;
    known.backend == Backend::Builtin && is_due && (is_bundled || has_ended)
}

fn make(known: &Known<'_>, key: Key, replaces: Option<String>, now: Timestamp) -> Act {
    let validity = validity(now, certificate::later(now, life(known) * LIVES));
    Act::MakeAuthority { key, replaces, validity }
}

/// What the lives of an authority are counted in: a runtime's certificate must fit in, and a change as well.
fn life(known: &Known<'_>) -> Duration {
    known.rules.duration.max(known.rules.switch_grace)
}

fn validity(now: Timestamp, not_after: Timestamp) -> Validity {
    let backdated = SignedDuration::try_from(BACKDATED).unwrap_or_default();
    Validity { not_before: now.checked_sub(backdated).unwrap_or(now), not_after }
}

/// The authority to sign with, where it is ours.
fn signer(known: &Known<'_>, secret: &AuthoritySecret, key: &Key) -> Result<Option<Arc<Root>>, Problem> {
    match known.backend {
        Backend::Builtin => {
            let root = Root::read(&secret.certificate, &secret.key);
            root.map(|root| Some(Arc::new(root))).map_err(|error| unreadable(key, &error))
        }
        Backend::CertManager | Backend::Gardener => Ok(None),
    }
}

/// The gateway's Secret, understood.
fn held(known: &Known<'_>, secret: &GatewaySecret, authority: &Authority) -> Result<Held, Problem> {
    let bundle = match secret.bundle.as_deref().map(pki::read_bundle) {
        None | Some(Err(pki::Error::Empty)) => Bundle::default(),
        Some(Ok(bundle)) => bundle,
        Some(Err(error)) => {
            let problem = format!("`{}` of Secret {} cannot be read: {}", key::BUNDLE, known.key, chain(&error));
            return Err(Problem::new("BadBundle", format!("{problem}; mend it, or delete the Secret")));
        }
    };
    let bundled_at = certificate::parse_bundled_at(secret.bundled_at.as_deref());
    Ok(Held { bundle, bundled_at, served: served(known, secret, authority) })
}

fn served(known: &Known<'_>, secret: &GatewaySecret, authority: &Authority) -> Served {
    match pki::read_first(&secret.certificate) {
        Ok(served) => {
            let (is_current, is_fit) = match known.backend {
                // An authority that was issued anew with its old key is another one all the same: whoever compares what is
                // served with the bundle would not find it there.
                Backend::CertManager | Backend::Gardener => (served.der == authority.der, true),
                Backend::Builtin => (pki::is_of(&served, authority), pki::is_server_of(&served, &known.hosts)),
            };
            Served { is_current, is_fit, validity: served.validity }
        }
        // Nobody can be served with it: it may be replaced as one that has ended.
        Err(_) => {
            let validity = Validity { not_before: Timestamp::UNIX_EPOCH, not_after: Timestamp::UNIX_EPOCH };
            Served { is_current: false, is_fit: false, validity }
        }
    }
}

/// What the gateway is to serve with.
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
            // It lasts as long as its authority, which is replaced long before that.
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

fn unreadable(key: &Key, error: &pki::Error) -> Problem {
    Problem::new("BadAuthority", format!("the certificate authority in Secret {key} cannot be used: {}", chain(error)))
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
