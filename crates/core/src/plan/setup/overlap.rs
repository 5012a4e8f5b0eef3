//! The replacement of a CA, or of a key of service accounts: for a while, the former one is trusted as well.
//!
//! Pods mount the certificate of a CA from the Secret of the CA, as upstream's do. While a CA is being replaced, they
//! mount a trust Secret instead, `<CA>-trust`, with the new certificate and the former ones. Otherwise nothing differs
//! from upstream. The replacement has four phases:
//!
//! | phase | trust Secret | pods trust | who signs |
//! | --- | --- | --- | --- |
//! | [`Phase::Settled`] | none | the CA | the CA |
//! | [`Phase::Spreading`] | new and former | some the former one only | none |
//! | [`Phase::Reissuing`] | new and former | both | the new one |
//! | [`Phase::Ending`] | new | some the former one as well | the new one |
//!
//! So at any moment, each certificate that a pod may still hold is signed by a CA that each other pod trusts:
//!
//! * A former CA is found where it left its certificate: in the chains of what it signed, and in the trust Secret. So
//!   it is known also after the Secret of the CA is gone. The public key of a key of service accounts is nowhere else.
//!   So the process remembers it, and a condition of its resource records it for the next process.
//! * If Tidegate makes the CA, it makes a new one only after all pods mount the trust Secret: the files of a mounted
//!   Secret change in running pods, and kcp reads them again.
//! * Where a template says that a renewal replaces the key, pods always mount a trust Secret: another program replaces
//!   the key without notice.
//! * A phase ends once all Deployments run with the Secrets as they are. Signing begins later than trust, and trust in
//!   the former CA ends later than the last certificate of it.
//!
//! The state is in the control plane: the trust Secret has the certificates, and its annotation `tidegate.dev/trusts`
//! says whether all pods have them, and since when a new key of service accounts is in place. A certificate is not kept
//! beyond its end. One that did not sign what lives, or that the CA above it did not sign, is foreign and is not
//! trusted.
//!
//! Everything here is a value: certificates are compared and verified by the functions in [`Verifier`].

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Content, Gate, Kind, Known, Plan, Resources, Root, certificate, name, named};
use crate::{
    api::setup::{CertificateTemplates, CommonShardSpec},
    name::Key,
    plan::certificate::Authority,
};

/// How long what a former key of service accounts signed is accepted after the new key was seen. Tokens last an hour
/// by default, and nothing in the control plane shows which of them are in use.
pub const TOKENS: SignedDuration = SignedDuration::from_hours(24);

/// A CA of a landscape, or a key of service accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The resource that has it.
    pub owner: (Kind, Key),
    /// Its Secret.
    pub secret: String,
    /// The Secret with what pods trust while it is being replaced.
    pub trust: String,
    /// The Secret of the CA above it.
    pub above: Option<String>,
    /// Whether it is a key of service accounts: then it signs tokens and no certificates.
    pub is_key: bool,
    /// Whether a template says that a renewal replaces its key.
    pub rotates: bool,
    /// Whether it signs certificates of clients that other CAs must not sign.
    is_of_clients: bool,
}

/// The content of a trust Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// The certificates, in PEM.
    pub certificates: String,
    /// The value of the annotation that says what the Secret contains and whether all pods trust it.
    pub note: String,
    /// Whether pods mount it.
    pub is_mounted: bool,
}

/// What lives of an anchor, and of everything that depends on it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its certificate, if it has one.
    pub present: Option<Authority>,
    /// Its trust Secret, if it exists.
    pub trust: Option<Live>,
    /// Everything with a certificate that it signs, or whose CA it signs.
    pub signed: Vec<Signed>,
    /// The former certificate of a key, as far as the process remembers it.
    pub remembered: Option<Authority>,
    /// The one that was recorded last, if it is another one of the same shard than the present one. Others may have
    /// written it.
    pub recorded: Option<Authority>,
    /// Since when the process knows the present one.
    pub known_since: Timestamp,
    /// The certificates of the CA above it; `None` if there is none.
    pub above: Option<Vec<Authority>>,
    /// Whether all pods, and all Secrets that contain others, have the Secrets as they are now.
    pub is_rolled: bool,
    /// Whether Tidegate makes its Secret.
    pub is_made: bool,
    /// Whether it is a key of service accounts.
    pub is_key: bool,
    /// Whether pods mount its trust Secret also while nothing is being replaced.
    pub is_copied: bool,
    /// The time.
    pub now: Timestamp,
}

/// A trust Secret as it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its certificates.
    pub certificates: Vec<Authority>,
    /// Whether its content is as Tidegate wrote it while the CA was being replaced.
    pub is_noted: bool,
    /// Whether it says that all pods have it.
    pub is_everywhere: bool,
    /// Since when its first certificate is known to be in place, if it says so.
    pub since: Option<Timestamp>,
}

/// A Secret with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Its name.
    pub secret: String,
    /// Its certificates, its own first, then those above.
    pub chain: Vec<Authority>,
    /// How far above its own certificate that of the anchor is: 1 if the anchor has signed it.
    pub depth: usize,
}

/// Compares and verifies certificates.
#[derive(Clone, Copy)]
pub struct Verifier<'a> {
    /// Whether a CA has signed a certificate.
    pub is_of: &'a dyn Fn(&Authority, &Authority) -> bool,
    /// Whether two certificates are for the same key and name: then each verifies what the other one does.
    pub is_same: &'a dyn Fn(&Authority, &Authority) -> bool,
}

/// How far a replacement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing is being replaced.
    Settled,
    /// Not all pods trust the former and the new one yet. Nothing is signed.
    Spreading,
    /// All pods trust both. The new one signs.
    Reissuing,
    /// Nothing of the former one is in use. Some pods may still trust it.
    Ending,
}

/// What is decided about an anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// How far its replacement is.
    pub phase: Phase,
    /// The certificates of its trust Secret, the present one first. Empty if nothing is being replaced.
    pub certificates: Vec<Authority>,
    /// The Secrets with certificates of a former one.
    pub left: Vec<String>,
    /// Since when a new key of service accounts is known to be in place, while former ones are accepted.
    pub since: Option<Timestamp>,
    /// Before this moment, the former one is trusted although nothing shows that it is in use.
    pub until: Option<Timestamp>,
}

/// What depends on an anchor: by name, within its namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dependents {
    /// Secrets with certificates that it signs, with their depth, see [`Signed::depth`].
    pub signed: BTreeMap<String, usize>,
    /// Secrets that contain its certificate, or one that it signs.
    pub composed: BTreeMap<String, Composed>,
    /// Deployments whose pods mount one of these, with what they wait for.
    pub deployments: BTreeMap<String, Vec<Gate>>,
}

/// What a Secret contains of an anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// Whether it contains its certificate.
    pub has_anchor: bool,
    /// The Secret with a certificate that it signs, which this one contains.
    pub certificate: Option<String>,
}

/// Decides what pods trust of an anchor.
pub fn overlap(facts: &Facts, verifier: Verifier<'_>) -> Overlap {
    let nothing =
        Overlap { phase: Phase::Settled, certificates: Vec::new(), left: Vec::new(), since: None, until: None };
    let left = facts.left(verifier);
    let former = facts.former(verifier);
    let Some(present) = &facts.present else {
        // Another program makes it again at once, or a user does. Only Tidegate waits until pods are ready for it.
        if former.is_empty() || (facts.trust.is_none() && !facts.is_made) {
            return nothing;
        }
        return Overlap { phase: facts.phase(&former), certificates: former, left, ..nothing };
    };
    let certificates: Vec<Authority> = [present.clone()].into_iter().chain(former.iter().cloned()).collect();
    let ending = Overlap { phase: Phase::Ending, certificates: vec![present.clone()], ..nothing.clone() };
    if former.is_empty() {
        // Pods that still mount the Secret could not start without it.
        let is_mounted = facts.trust.is_some() && !facts.is_rolled && !facts.is_copied;
        return if is_mounted { ending } else { nothing };
    }
    let since = facts.is_key.then(|| facts.since(present, verifier));
    let until = since.and_then(|since| since.checked_add(TOKENS).ok()).filter(|until| facts.now < *until);
    let is_everywhere = facts.is_rolled && facts.lives(&certificates);
    if left.is_empty() && until.is_none() && is_everywhere {
        return ending;
    }
    Overlap { phase: facts.phase(&certificates), certificates, left, since, until }
}

// === impl Facts ===

impl Facts {
    /// Whether the trust Secret has these certificates.
    fn lives(&self, certificates: &[Authority]) -> bool {
        self.trust.as_ref().is_some_and(|live| live.certificates == certificates)
    }

    /// Whether all pods trust these certificates. Once they did, they do: what restarts mounts the same Secret.
    fn phase(&self, certificates: &[Authority]) -> Phase {
        let was_everywhere = self.trust.as_ref().is_some_and(|live| live.is_noted && live.is_everywhere);
        let is_everywhere = self.lives(certificates) && (self.is_rolled || was_everywhere);
        if is_everywhere { Phase::Reissuing } else { Phase::Spreading }
    }

    /// Since when the present key is known to be in place. It may have been made long before.
    fn since(&self, present: &Authority, verifier: Verifier<'_>) -> Timestamp {
        let is_first = |live: &&Live| {
            let is_present = |first: &Authority| first == present || (verifier.is_same)(first, present);
            live.is_noted && live.certificates.first().is_some_and(is_present)
        };
        let noted = self.trust.as_ref().filter(is_first).and_then(|live| live.since);
        // Ignore a time in the future.
        noted.filter(|since| *since <= self.now).unwrap_or(self.known_since)
    }

    /// The Secrets whose certificate the present CA has not signed. One whose chain does not reach the anchor does not
    /// say who signed it.
    fn left(&self, verifier: Verifier<'_>) -> Vec<String> {
        let is_left = |signed: &&Signed| {
            let path = signed.path(verifier);
            let below = signed.depth.checked_sub(1).and_then(|below| path.get(below));
            below.is_some_and(|below| {
                let is_present = self.present.as_ref().is_some_and(|present| (verifier.is_of)(below, present));
                !is_present && path.get(signed.depth).is_some_and(|above| self.is_usable(above, verifier))
            })
        };
        self.signed.iter().filter(is_left).map(|signed| signed.secret.clone()).collect()
    }

    /// The former certificates, each once: those of the trust Secret, then those that have signed what lives.
    fn former(&self, verifier: Verifier<'_>) -> Vec<Authority> {
        let live = self.trust.iter().flat_map(|live| {
            let is_own = move |one: &&Authority| live.is_noted || self.is_vouched(one, verifier);
            live.certificates.iter().filter(is_own)
        });
        let signed = self.signed.iter().filter_map(|signed| signed.path(verifier).get(signed.depth).copied());
        let signed = signed.filter(|one| self.is_usable(one, verifier));
        let is_former = |one: &&Authority| {
            self.now < one.validity.not_after
                && self.present.as_ref().is_none_or(|present| one != &present && !(verifier.is_same)(one, present))
        };
        // The right to write a status must not be enough to forge tokens.
        let is_recorded = |one: &&Authority| {
            let is_remembered = self.remembered.as_ref().is_some_and(|known| (verifier.is_same)(known, one));
            !is_remembered && self.is_vouched(one, verifier)
        };
        let recorded = self.recorded.iter().filter(is_recorded);
        let mut all: Vec<Authority> = Vec::new();
        for one in live.chain(signed).chain(&self.remembered).chain(recorded).filter(is_former) {
            if !all.contains(one) {
                all.push(one.clone());
            }
        }
        all
    }

    /// Whether the CA above an anchor has signed this certificate of it.
    fn is_vouched(&self, one: &Authority, verifier: Verifier<'_>) -> bool {
        self.above.iter().flatten().any(|above| (verifier.is_of)(one, above))
    }

    /// Whether a certificate that has signed something that lives is one of the anchor and has not ended.
    fn is_usable(&self, one: &Authority, verifier: Verifier<'_>) -> bool {
        self.now < one.validity.not_after && (self.above.is_none() || self.is_vouched(one, verifier))
    }
}

// === impl Signed ===

impl Signed {
    /// Its certificate and those above it, each of which has signed the one before.
    fn path(&self, verifier: Verifier<'_>) -> Vec<&Authority> {
        let mut path: Vec<&Authority> = Vec::new();
        for one in &self.chain {
            match path.last() {
                Some(last) if *last == one || !(verifier.is_of)(last, one) => {}
                Some(_) | None => path.push(one),
            }
        }
        path
    }
}

// === impl Phase ===

impl Phase {
    /// Whether pods mount the trust Secret.
    pub fn is_mounted(self) -> bool {
        match self {
            Phase::Spreading | Phase::Reissuing => true,
            Phase::Settled | Phase::Ending => false,
        }
    }
}

// === impl Anchor ===

impl Anchor {
    fn ca(owner: (Kind, &Key), name: &str, secret: String, above: Option<String>, rotates: bool) -> Anchor {
        Anchor {
            owner: (owner.0, owner.1.clone()),
            secret,
            trust: format!("{name}-trust"),
            above,
            is_key: false,
            rotates,
            is_of_clients: false,
        }
    }

    fn key(kind: Kind, key: &Key, root: &str, common: &CommonShardSpec) -> Anchor {
        let secret = format!("{}-service-account", key.name());
        let above = Some(name::sub_ca(root, "service-account"));
        let own = Anchor::ca((kind, key), &secret, secret.clone(), above, key_rotates(common));
        Anchor { is_key: true, ..own }
    }

    /// Whether pods mount its trust Secret also while nothing is being replaced.
    pub fn is_copied(&self, known: &Known) -> bool {
        self.rotates || (self.is_of_clients && known.chained.contains(&self.owner.1))
    }

    /// What depends on it. `plans` are those of its namespace.
    pub fn dependents(&self, resources: &Resources, plans: &[Plan]) -> Dependents {
        let namespace = self.owner.1.namespace();
        let certificates = || plans.iter().flat_map(|plan| &plan.certificates);
        let issued_by = |ca: &str| -> Vec<String> {
            let of_ca = certificates().filter(|one| {
                resources.secret_of_issuer(namespace, &one.issuer).is_some_and(|secret| secret == ca && one.name != ca)
            });
            of_ca.map(|one| one.name.clone()).collect()
        };
        let mut all = Dependents::default();
        if !self.is_key {
            for direct in issued_by(&self.secret) {
                all.signed.extend(issued_by(&direct).into_iter().map(|below| (below, 2)));
                all.signed.insert(direct, 1);
            }
        }
        let is_own = |secret: &str| secret == self.secret || secret == self.trust;
        for secret in plans.iter().flat_map(|plan| &plan.secrets).filter(|secret| !is_own(&secret.name)) {
            let (trusts, certificate) = match &secret.content {
                Content::Bundle(trusts) => (trusts, None),
                Content::Credentials(credentials) => (&credentials.trusts, Some(credentials.certificate.clone())),
                Content::Files(_) | Content::Trusted(_) => continue,
            };
            let certificate = certificate.filter(|certificate| all.signed.contains_key(certificate));
            let has_anchor = trusts.iter().any(|trust| is_own(&trust.secret));
            if certificate.is_some() || has_anchor {
                all.composed.insert(secret.name.clone(), Composed { has_anchor, certificate });
            }
        }
        for deployment in plans.iter().flat_map(|plan| &plan.deployments) {
            let is_mounted = |gate: &Gate| match gate {
                Gate::Key(mounted) => {
                    let name = &mounted.name;
                    is_own(name) || all.signed.contains_key(name) || all.composed.contains_key(name)
                }
                Gate::Certificate(_) | Gate::Deployment { .. } => false,
            };
            if deployment.gates.iter().any(is_mounted) {
                all.deployments.insert(deployment.name.clone(), deployment.gates.clone());
            }
        }
        all
    }
}

// === impl Resources ===

impl Resources {
    /// The CAs of a namespace, and the keys of service accounts. A CA comes after the one above it.
    pub fn anchors(&self, namespace: &str) -> Vec<Anchor> {
        let mut all = Vec::new();
        for (key, cache) in self.cache_servers.iter().filter(|(key, _)| key.namespace() == namespace) {
            let (spec, own) = (&cache.spec, format!("{}-ca", key.name()));
            let secret = named(spec.certificates.ca_secret_ref.as_ref()).unwrap_or(&own).to_owned();
            let rotates = spec.certificates.issuer_ref.is_some() && rotates(&spec.certificate_templates, "root-ca");
            all.push(Anchor::ca((Kind::CacheServer, key), &own, secret, None, rotates));
        }
        for (key, root) in self.root_shards.iter().filter(|(key, _)| key.namespace() == namespace) {
            let (owner, secret) = ((Kind::RootShard, key), name::root_ca(key, root));
            let of = Root { key, shard: root };
            let own = format!("{}-ca", key.name());
            all.push(Anchor::ca(owner, &own, secret.clone(), None, of.root_ca_rotates()));
            for ca in certificate::SUB_CAS {
                let (own, rotates) = (name::sub_ca(key.name(), ca), of.rotates(&format!("{ca}-ca")));
                let anchor = Anchor::ca(owner, &own, own.clone(), Some(secret.clone()), rotates);
                all.push(Anchor { is_of_clients: Root::is_of_clients(ca), ..anchor });
            }
            all.push(Anchor::key(Kind::RootShard, key, key.name(), &root.spec.common));
        }
        for (key, shard) in self.shards.iter().filter(|(key, _)| key.namespace() == namespace) {
            if let Some(root) = named(shard.spec.root_shard.reference.as_ref()) {
                all.push(Anchor::key(Kind::Shard, key, root, &shard.spec.common));
            }
        }
        all
    }
}

/// Whether a template says that a renewal replaces the key of a certificate whose key is kept by default.
pub(super) fn rotates(templates: &CertificateTemplates, template: &str) -> bool {
    let key = templates.get(template).and_then(|found| found.spec.as_ref()?.private_key.as_ref());
    key.is_some_and(|key| !key.rotation_policy.is_empty() && key.rotation_policy != "Never")
}

/// As [`rotates`], for the key of service accounts of a shard.
pub(super) fn key_rotates(common: &CommonShardSpec) -> bool {
    rotates(&common.certificate_templates, "service-account")
}

#[cfg(test)]
mod tests;
