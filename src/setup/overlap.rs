//! What pods trust while a CA, or a key of service accounts, is being replaced: reads what lives, asks
//! [`tidegate_core::plan::setup::overlap`], and says which certificates must wait.
//!
//! The pass over the resource that has a CA decides, and writes the trust Secret. The passes over all others follow it.
//! While nothing is being replaced, this reads each CA, and what it has signed, once after the start of the process.
//!
//! The watch of Secrets wakes the resources that a new key of service accounts concerns. The former one is what the
//! process has read before, or what the condition `tidegate.dev/Key` of its resource has: if it is named for the same
//! shard, and no pods of the shard run with the present key alone yet. That condition follows only once nothing of the
//! former key is accepted any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use tidegate_cluster::Error;
use tidegate_core::{
    api::setup::{Auth, Kind},
    name::Key,
    object::Digest,
    plan::{
        certificate::Authority,
        setup::{
            self as plan, Anchor, Composed, Dependents, Facts, Known as KnownOfCluster, Live, Overlap, Phase, Plan,
            Signed, Trusted, Verifier, setup_mark,
        },
    },
    status::seconds,
};
use tidegate_process::ambient;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{
    SetupPass, decide,
    object::{LiveObject, ObjectKind},
    state::{Desired, Issuance, Keys, KnownContent, LiveObjects, ObjectName, Observed, Origin, SetupMemory},
    status,
};
use crate::{
    controller::events::{self, reason},
    gateway::pki,
};

/// How many Secrets a sentence names.
const NAMED: usize = 5;
/// The key of a Secret with certificates.
const CERTIFICATE: &str = "tls.crt";
/// What the annotation of a trust Secret says once all pods have it.
const EVERYWHERE: &str = "everywhere";

/// The CAs and keys that a resource depends on, as far as they are being replaced.
pub(super) struct Overlaps {
    /// As plans need it.
    pub(super) cluster: KnownOfCluster,
    /// Those of the resource that are being replaced: one sentence each.
    pub(super) sentences: Vec<String>,
    /// The objects that the decisions depend on.
    pub(super) needs: BTreeSet<ObjectName>,
    /// When time alone changes a decision.
    pub(super) until: Option<Timestamp>,
    /// The certificate of the resource's key of service accounts, unless a former one is accepted as well.
    pub(super) last_key: Option<Authority>,
    anchors: Vec<Anchor>,
    /// The decisions about those of the resource, by Secret.
    own: BTreeMap<String, Decided>,
}

/// A decision about an anchor.
struct Decided {
    overlap: Overlap,
    behind: Behind,
    /// Whether the anchor has no certificate: its Secret is missing, or has none.
    is_missing: bool,
    /// Whether one of them cannot have them, because a certificate is missing that the anchor signs.
    is_blocked: bool,
}

/// The objects that do not have the Secrets as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Behind {
    all: Vec<String>,
    /// Those of them that stay as kcp-operator left them.
    held: Vec<String>,
}

/// The parts of a decision that all anchors of a pass share. They are made when the first one needs them.
struct Whole {
    /// As the passes over other resources see it.
    seen: KnownOfCluster,
    /// All plans of the namespace.
    plans: Vec<Plan>,
    /// The Secrets of all CAs of the namespace.
    authorities: BTreeSet<String>,
}

fn secret(name: &str) -> ObjectName {
    (ObjectKind::Secret, name.to_owned())
}

fn is_of(memory: &SetupMemory, certificate: &Authority, authority: &Authority) -> bool {
    let is_signed = || pki::is_ca(authority) && pki::is_of(certificate, authority);
    certificate != authority && memory.is_signed(certificate, authority, is_signed)
}

fn decision(memory: &SetupMemory, facts: &Facts) -> Overlap {
    let is_of = |certificate: &Authority, authority: &Authority| is_of(memory, certificate, authority);
    plan::overlap(facts, Verifier { is_of: &is_of, is_same: &pki::is_same_key })
}

/// Whether two certificates have the same subject, whatever types its texts have. The CA of service accounts also signs
/// the keys of other shards, and others may have recorded one of these.
fn has_same_name(one: &Authority, other: &Authority) -> bool {
    match (X509Certificate::from_der(&one.der), X509Certificate::from_der(&other.der)) {
        (Ok((_, one)), Ok((_, other))) => one.subject().to_string() == other.subject().to_string(),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// A trust Secret as it lives.
fn live_of(content: &KnownContent) -> Live {
    let mut words = content.note.as_deref().unwrap_or_default().split(' ');
    let (digest, state, since) = (words.next().unwrap_or_default(), words.next(), words.next());
    let is_noted = content.keys.get(CERTIFICATE).is_some_and(|found| found.to_string() == digest);
    Live {
        certificates: content.certificates.clone(),
        is_noted,
        is_everywhere: state == Some(EVERYWHERE),
        since: since.and_then(|text| text.parse().ok()),
    }
}

/// The content of a trust Secret. `is_taken` says whether an object of others has its name.
fn trusted_of(overlap: &Overlap, is_taken: bool) -> Trusted {
    let certificates = pki::write_certificates(&overlap.certificates);
    let state = match overlap.phase {
        Phase::Spreading => "spreading",
        Phase::Reissuing => EVERYWHERE,
        Phase::Settled | Phase::Ending => "ending",
    };
    let since = overlap.since.map(|since| format!(" {}", seconds(since))).unwrap_or_default();
    let note = format!("{} {state}{since}", Digest::of_bytes(certificates.as_bytes()));
    Trusted { certificates, note, is_mounted: overlap.phase.is_mounted() && !is_taken }
}

/// Some names, and how many more there are.
fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", names[..names.len().min(NAMED)].join(", "))
}

/// What is said of an anchor that is being replaced.
fn sentence(anchor: &Anchor, decided: &Decided, issuance: Issuance) -> Option<String> {
    let Decided { overlap, behind, is_missing, .. } = decided;
    let what = if anchor.is_key { "the key of service accounts" } else { "the CA" };
    let what = format!("{what} in Secret {} is being replaced", anchor.secret);
    let trust = &anchor.trust;
    let mut waits = if behind.all.is_empty() { String::new() } else { format!("; not yet: {}", some(&behind.all)) };
    if !behind.held.is_empty() {
        // Nothing else may ever end that.
        let held = some(&behind.held);
        waits.push_str(&format!("; to restart what kcp-operator left, run `tidegate adopt kcp --now --yes`: {held}"));
    }
    match (overlap.phase, overlap.until) {
        (Phase::Settled, _) => None,
        (Phase::Spreading, _) => {
            Some(format!("{what}: pods get Secret {trust}, so that they trust the former one as well{waits}"))
        }
        (Phase::Ending, _) => Some(format!("{what}: pods stop trusting the former one{waits}")),
        (Phase::Reissuing, _) if *is_missing => Some(format!(
            "{what}: all pods trust the former one, from Secret {trust}; Secret {} has no certificate yet",
            anchor.secret
        )),
        (Phase::Reissuing, Some(until)) => {
            Some(format!("{what}: tokens of the former one are valid until {}", seconds(until)))
        }
        (Phase::Reissuing, None) if overlap.left.is_empty() => {
            Some(format!("{what}: all pods trust both, and get the new certificates{waits}"))
        }
        (Phase::Reissuing, None) => Some(match issuance {
            Issuance::Builtin => {
                format!("{what}: all pods trust both, and these Secrets are issued anew: {}", some(&overlap.left))
            }
            Issuance::CertManager => format!(
                "{what}: all pods trust both until these Certificates are renewed: {}; renew them with `cmctl renew`, \
                 or wait",
                some(&overlap.left)
            ),
        }),
    }
}

impl SetupPass<'_> {
    /// Decides what pods trust of the CAs and keys that the resource has, and finds out what was decided about others.
    pub(super) async fn overlaps(&self, chained: KnownOfCluster, observed: &mut Observed) -> Result<Overlaps, Error> {
        let SetupPass { context, resources, kind, key, .. } = *self;
        let all = resources.anchors(key.namespace());
        let is_own = |anchor: &Anchor| anchor.owner.0 == kind && anchor.owner.1 == *key;
        let mounts_keys = self.mounts_keys();
        let of_pass = |anchor: &&Anchor| !anchor.is_key || mounts_keys || is_own(anchor);
        let anchors: Vec<Anchor> = all.iter().filter(of_pass).cloned().collect();
        let mut needs: BTreeSet<ObjectName> = anchors.iter().map(|anchor| secret(&anchor.trust)).collect();
        needs.iter().for_each(|need| context.stores.add_setup_need((kind, key), need));
        let live = self.live_anchors(&anchors);
        let mut cluster = self.seen(&anchors, chained.clone(), &live, observed).await?;
        let (mut sentences, mut own, mut until, mut last_key) = (Vec::new(), BTreeMap::new(), None, None);
        let now = ambient::now();
        let mut whole = None;
        for anchor in anchors.iter().filter(|anchor| is_own(anchor)) {
            if self.is_settled(anchor, &chained, &live, observed).await? {
                context.memory.tells(&self.id(anchor), &anchor.owner, Phase::Settled);
                last_key = last_key.or_else(|| self.present(anchor, &live).filter(|_| anchor.is_key));
                continue;
            }
            if whole.is_none() {
                let live = self.live_anchors(&all);
                let seen = self.seen(&all, chained.clone(), &live, observed).await?;
                let (mut plans, _) = resources.plans(&seen);
                plans.retain(|plan| plan.key.namespace() == key.namespace());
                let authorities = all.iter().filter(|anchor| !anchor.is_key).map(|anchor| anchor.secret.clone());
                whole = Some(Whole { seen, plans, authorities: authorities.collect() });
            }
            let whole = whole.as_ref().expect("it is made above");
            let dependents = anchor.dependents(resources, &whole.plans);
            needs.extend(names(anchor, &dependents));
            context.stores.set_setup_needs((kind, key), needs.clone());
            let above = match &anchor.above {
                Some(above) => Some(self.certificates_above(above, &all, &own, observed).await?),
                None => None,
            };
            let decided = self.decided(anchor, &dependents, above, whole, observed).await?;
            let overlap = &decided.overlap;
            let trust = Key::new(key.namespace(), &anchor.trust);
            match overlap.phase {
                Phase::Settled => cluster.trusts.remove(&trust),
                Phase::Spreading | Phase::Reissuing | Phase::Ending => {
                    cluster.trusts.insert(trust, trusted_of(overlap, self.is_taken(anchor)))
                }
            };
            if anchor.is_key && !overlap.phase.is_mounted() {
                last_key = self.present(anchor, &live);
            }
            let said = sentence(anchor, &decided, context.issuance);
            if context.memory.tells(&self.id(anchor), &anchor.owner, overlap.phase) {
                let note =
                    said.clone().unwrap_or_else(|| format!("the CA or key in Secret {} was replaced", anchor.secret));
                tracing::info!(note, "a CA or key is being replaced");
                self.tell(events::Severity::Normal, reason::REPLACING, note);
            }
            sentences.extend(said);
            if overlap.phase.is_mounted() {
                let ends = overlap.certificates.iter().map(|one| one.validity.not_after).chain(overlap.until);
                // The present one may have ended: then nothing changes until it is renewed.
                until = until.into_iter().chain(ends.filter(|end| now < *end)).min();
            }
            own.insert(anchor.secret.clone(), decided);
        }
        Ok(Overlaps { cluster, sentences, needs, until, last_key, anchors, own })
    }

    /// Whether pods of the resource mount the keys of service accounts of others.
    fn mounts_keys(&self) -> bool {
        let is_on = |auth: Option<&Auth>| {
            auth.and_then(|auth| auth.service_account.as_ref()).is_some_and(|accounts| accounts.enabled)
        };
        let (resources, key) = (self.resources, self.key);
        match self.kind {
            Kind::RootShard => resources.root_shards.get(key).is_some_and(|one| is_on(one.spec.common.auth.as_ref())),
            Kind::Shard => resources.shards.get(key).is_some_and(|one| is_on(one.spec.common.auth.as_ref())),
            Kind::FrontProxy => resources.front_proxies.get(key).is_some_and(|one| is_on(one.spec.auth.as_ref())),
            Kind::CacheServer | Kind::VirtualWorkspace | Kind::Kubeconfig => false,
        }
    }

    fn id(&self, anchor: &Anchor) -> Key {
        Key::new(self.key.namespace(), &anchor.secret)
    }

    /// The Secrets of anchors and their trust Secrets, as far as they exist. One without the label of the anchor's
    /// resource is no trust Secret.
    fn live_anchors(&self, anchors: &[Anchor]) -> LiveObjects {
        let names = anchors.iter().flat_map(|anchor| [secret(&anchor.trust), secret(&anchor.secret)]);
        let mut live = self.context.stores.setup_objects(self.key.namespace(), "", &names.collect());
        for anchor in anchors {
            let (kind, owner) = &anchor.owner;
            let mark = setup_mark(*kind, owner.name());
            let trust = secret(&anchor.trust);
            if live.get(&trust).is_some_and(|found| found.mark.as_deref() != Some(mark.as_str())) {
                live.remove(&trust);
            }
        }
        live
    }

    /// Whether an object of others has the name of a trust Secret.
    fn is_taken(&self, anchor: &Anchor) -> bool {
        let trust = secret(&anchor.trust);
        let found = self.context.stores.setup_objects(self.key.namespace(), "", &BTreeSet::from([trust.clone()]));
        found.contains_key(&trust) && !self.live_anchors(std::slice::from_ref(anchor)).contains_key(&trust)
    }

    /// What is known of a Secret that exists.
    fn content(&self, name: &str, live: &LiveObjects) -> Option<Arc<KnownContent>> {
        let name = secret(name);
        self.context.memory.content(self.key.namespace(), &name).filter(|_| live.contains_key(&name))
    }

    /// The certificate of an anchor.
    fn present(&self, anchor: &Anchor, live: &LiveObjects) -> Option<Authority> {
        self.content(&anchor.secret, live)?.certificates.first().cloned()
    }

    /// Which trust Secrets pods mount, by what the control plane has: those with a certificate for another key than the
    /// present one.
    async fn seen(
        &self,
        anchors: &[Anchor],
        mut cluster: KnownOfCluster,
        live: &LiveObjects,
        observed: &mut Observed,
    ) -> Result<KnownOfCluster, Error> {
        for anchor in anchors.iter().filter(|anchor| live.contains_key(&secret(&anchor.trust))) {
            let names = [secret(&anchor.trust), secret(&anchor.secret)];
            self.learn_all(names.iter(), live, observed).await?;
            let trusted = self.content(&anchor.trust, live).map(|found| found.certificates.clone()).unwrap_or_default();
            let present = self.present(anchor, live);
            let is_mounted = match &present {
                Some(present) => trusted.iter().any(|one| !pki::is_same_key(one, present)),
                None => true,
            };
            if is_mounted {
                let trust = Key::new(self.key.namespace(), &anchor.trust);
                let trusted = Trusted { certificates: String::new(), note: String::new(), is_mounted };
                cluster.trusts.insert(trust, trusted);
            }
        }
        for anchor in anchors.iter().filter(|anchor| !live.contains_key(&secret(&anchor.trust))) {
            if self.waits_for_former_key(anchor, live, observed).await? {
                let trust = Key::new(self.key.namespace(), &anchor.trust);
                let trusted = Trusted { certificates: String::new(), note: String::new(), is_mounted: true };
                cluster.trusts.insert(trust, trusted);
            }
        }
        Ok(cluster)
    }

    /// Whether the pass over another resource is about to write the trust Secret of its key. Pods that restarted before
    /// would refuse the tokens of the former one.
    async fn waits_for_former_key(
        &self,
        anchor: &Anchor,
        live: &LiveObjects,
        observed: &mut Observed,
    ) -> Result<bool, Error> {
        let (kind, owner) = &anchor.owner;
        if !anchor.is_key || (*kind == self.kind && owner == self.key) {
            return Ok(false);
        }
        self.learn_all(std::iter::once(&secret(&anchor.secret)), live, observed).await?;
        let [seen, _] = self.former_keys(anchor, live);
        let Some(present) = self.present(anchor, live).filter(|_| seen.is_some()) else { return Ok(false) };
        let is_leaving = self.resources.metadata(*kind, owner).is_none_or(|found| found.deletion_timestamp.is_some());
        let is_planned =
            self.resources.plan(*kind, owner, &KnownOfCluster::default()).is_some_and(|planned| planned.is_ok());
        if is_leaving || !is_planned || self.is_taken(anchor) {
            return Ok(false);
        }
        Ok(!self.context.memory.awaits_settled(&self.id(anchor), &present, self.kind, self.key))
    }

    /// Adds what was decided about the CAs and keys of the namespace, as the passes that decided it have written it.
    pub(super) async fn with_trusts(
        &self,
        cluster: KnownOfCluster,
        observed: &mut Observed,
    ) -> Result<KnownOfCluster, Error> {
        let all = self.resources.anchors(self.key.namespace());
        let live = self.live_anchors(&all);
        self.seen(&all, cluster, &live, observed).await
    }

    /// Whether it is known that no former certificate of an anchor is in use.
    async fn is_settled(
        &self,
        anchor: &Anchor,
        chained: &KnownOfCluster,
        live: &LiveObjects,
        observed: &mut Observed,
    ) -> Result<bool, Error> {
        self.learn_all([secret(&anchor.trust), secret(&anchor.secret)].iter(), live, observed).await?;
        let present = self.present(anchor, live);
        if let Some(trusted) = self.content(&anchor.trust, live) {
            // Where pods always mount it, it stays when nothing is being replaced.
            return Ok(anchor.is_copied(chained)
                && present.is_some_and(|present| {
                    trusted.certificates.iter().all(|one| pki::is_same_key(one, &present))
                        && self.context.memory.is_settled_with(&self.id(anchor), &present)
                }));
        }
        Ok(match present {
            Some(present) if anchor.is_key && self.former_keys(anchor, live) == [None, None] => {
                self.settle(anchor, &present);
                true
            }
            Some(present) => self.context.memory.is_settled_with(&self.id(anchor), &present),
            None => !self.is_made(anchor),
        })
    }

    /// Remembers that no former certificate of an anchor is in use, and wakes the resources that wait for that.
    fn settle(&self, anchor: &Anchor, present: &Authority) {
        let awaiting = self.context.memory.settle_with(&self.id(anchor), &anchor.owner, present);
        self.context.stores.wake_setup(awaiting);
    }

    /// Whether Tidegate makes a CA. The Secret of `caSecretRef` is the user's.
    fn is_made(&self, anchor: &Anchor) -> bool {
        let is_named_after_it = anchor.trust.strip_suffix("-trust") == Some(anchor.secret.as_str());
        self.context.issuance == Issuance::Builtin && is_named_after_it && !anchor.is_key
    }

    /// The former public keys of service accounts that may still be in use: the one that this process has seen, and the
    /// one that is recorded.
    fn former_keys(&self, anchor: &Anchor, live: &LiveObjects) -> [Option<Authority>; 2] {
        // Once there is a trust Secret, that says it.
        let is_new = |present: &Authority| {
            anchor.is_key
                && !live.contains_key(&secret(&anchor.trust))
                && !self.context.memory.is_settled_with(&self.id(anchor), present)
        };
        let Some(present) = self.present(anchor, live).filter(is_new) else { return [None, None] };
        let seen = self.content(&anchor.secret, live).and_then(|found| found.former.clone());
        let (kind, owner) = &anchor.owner;
        let recorded = status::recorded_key(&self.resources.status(*kind, owner));
        [seen, recorded.filter(|recorded| !pki::is_same_key(recorded, &present) && has_same_name(recorded, &present))]
    }

    /// The certificates of the CA above an anchor, present and former ones.
    async fn certificates_above(
        &self,
        above: &str,
        all: &[Anchor],
        own: &BTreeMap<String, Decided>,
        observed: &mut Observed,
    ) -> Result<Vec<Authority>, Error> {
        let decided = own.get(above).map(|found| found.overlap.certificates.clone()).unwrap_or_default();
        let anchor = all.iter().find(|anchor| anchor.secret == above && !anchor.is_key);
        let Some(anchor) = anchor else { return Ok(decided) };
        let live = self.live_anchors(std::slice::from_ref(anchor));
        self.learn_all([secret(&anchor.trust), secret(&anchor.secret)].iter(), &live, observed).await?;
        let trusted = self.content(&anchor.trust, &live).map(|found| found.certificates.clone()).unwrap_or_default();
        Ok(decided.into_iter().chain(self.present(anchor, &live)).chain(trusted).collect())
    }

    /// Decides what pods trust of an anchor.
    async fn decided(
        &self,
        anchor: &Anchor,
        dependents: &Dependents,
        above: Option<Vec<Authority>>,
        whole: &Whole,
        observed: &mut Observed,
    ) -> Result<Decided, Error> {
        let namespace = self.key.namespace();
        let names = names(anchor, dependents);
        let mut live = self.context.stores.setup_objects(namespace, "", &names);
        let own_live = self.live_anchors(std::slice::from_ref(anchor));
        let trust = secret(&anchor.trust);
        if !own_live.contains_key(&trust) {
            live.remove(&trust);
        }
        let first: Vec<ObjectName> = [&anchor.trust, &anchor.secret]
            .into_iter()
            .chain(dependents.signed.keys())
            .map(|name| secret(name))
            .collect();
        self.learn_all(first.iter(), &live, observed).await?;
        let present = self.present(anchor, &live);
        let [remembered, mut recorded] = self.former_keys(anchor, &live);
        if recorded.is_some() {
            let inputs: BTreeSet<ObjectName> = names.iter().filter(|name| name.0.is_input()).cloned().collect();
            self.learn_all(inputs.iter(), &live, observed).await?;
            let own = whole.plans.iter().filter(|plan| plan.kind == self.kind && plan.key == *self.key);
            let own = own.flat_map(|plan| &plan.deployments).map(|deployment| deployment.name.as_str());
            let is_over = runs_without_trust(own, dependents, &self.around(&live), &observed.keys);
            recorded = recorded.filter(|_| !is_over);
        }
        let signed = dependents.signed.iter().filter_map(|(name, depth)| {
            // One without the label is not Tidegate's.
            live.get(&secret(name)).filter(|found| found.mark.is_some())?;
            let found = self.content(name, &live)?;
            let chain = found.certificates.iter().chain(&found.above).cloned().collect();
            Some(Signed { secret: name.clone(), chain, depth: *depth })
        });
        let known_since = self.content(&anchor.secret, &live).map(|found| found.since);
        let now = ambient::now();
        let facts = Facts {
            present: present.clone(),
            trust: self.content(&anchor.trust, &live).map(|found| live_of(&found)),
            signed: signed.collect(),
            remembered,
            recorded,
            known_since: known_since.unwrap_or(now),
            above,
            is_rolled: false,
            is_made: self.is_made(anchor),
            is_key: anchor.is_key,
            is_copied: anchor.is_copied(&whole.seen),
            now,
        };
        let (mut overlap, mut behind) = (decision(self.context.memory, &facts), Behind::default());
        if facts.trust.is_some() {
            let inputs: BTreeSet<ObjectName> = names.iter().filter(|name| name.0.is_input()).cloned().collect();
            self.learn_all(inputs.iter(), &live, observed).await?;
            behind = self.behind(anchor, dependents, whole, &overlap.left, &live, observed);
            overlap = decision(self.context.memory, &Facts { is_rolled: behind.all.is_empty(), ..facts });
        }
        let has_no_ca = present.is_none();
        if let Some(present) = present.filter(|_| overlap.phase == Phase::Settled) {
            self.settle(anchor, &present);
        }
        // Deployments, and Secrets that contain others, wait for what they need.
        // A sub CA that exists needs no root CA to sign.
        let lives = |name: &str| live.contains_key(&secret(name));
        let lacks_sub_ca = dependents.signed.iter().any(|(name, depth)| *depth == 1 && !lives(name));
        let is_missing = |name: &str| {
            let needs_it = dependents.signed.get(name).is_some_and(|depth| *depth == 1 || lacks_sub_ca);
            needs_it && !lives(name) && !whole.authorities.contains(name)
        };
        let around = self.around(&live);
        let mut gates = dependents
            .deployments
            .iter()
            .filter(|(name, _)| around.contains_key(&(ObjectKind::Deployment, (*name).clone())));
        let mut composed = dependents.composed.iter().filter(|(name, _)| live.contains_key(&secret(name)));
        let is_blocked = gates.any(|(_, gates)| gates.iter().filter_map(needed).any(is_missing))
            || composed.any(|(_, own)| own.certificate.as_deref().is_some_and(is_missing));
        Ok(Decided { overlap, behind, is_missing: has_no_ca, is_blocked })
    }

    /// The Secrets that contain something of an anchor, and the Deployments whose pods mount something of it, that do
    /// not have it as it is now. `left` are the Secrets with certificates of a former one.
    fn behind(
        &self,
        anchor: &Anchor,
        dependents: &Dependents,
        whole: &Whole,
        left: &[String],
        live: &LiveObjects,
        observed: &Observed,
    ) -> Behind {
        let is_mounted = whole.seen.trusts.contains_key(&Key::new(self.key.namespace(), &anchor.trust));
        let trusted: Vec<Authority> = if is_mounted {
            self.content(&anchor.trust, live).map(|found| found.certificates.clone()).unwrap_or_default()
        } else {
            self.present(anchor, live).into_iter().collect()
        };
        let lacks = |(name, composed): &(&String, &Composed)| {
            let Some(found) = self.content(name, live) else { return false };
            let own = composed.certificate.as_deref().and_then(|name| self.content(name, live));
            let own = own.as_ref().and_then(|own| own.certificates.first());
            let trusted = trusted.iter().filter(|_| composed.has_anchor);
            trusted.chain(own).any(|one| !found.certificates.contains(one))
        };
        // Also those in clusters that resources have left: they run until the new ones are ready.
        let elsewhere = self.context.stores.other_clusters(self.key.namespace());
        let uids = self.uids();
        let is_of_resource = |found: &&Arc<LiveObject>| found.owner.as_deref().is_some_and(|uid| uids.contains(uid));
        let unlisted = self.unlisted_deployments(&whole.plans);
        let secrets = dependents.composed.iter().filter(lacks).map(|(name, _)| format!("Secret {name}"));
        let mut behind = Behind { all: secrets.collect(), held: Vec::new() };
        for (name, gates) in &dependents.deployments {
            let wanted = decide::digest_of_keys(gates, &observed.keys).map(|digest| digest.to_string());
            let is_first = mounts_only(anchor, dependents, gates, left);
            let lags = |found: &&Arc<LiveObject>| {
                let has_all = wanted.is_some() && found.mounted.as_deref() == wanted.as_deref();
                // It does not say what it mounts. A certificate that is issued anew ends that, and must not wait.
                !(has_all || found.is_adopted && is_first)
            };
            let id = (ObjectKind::Deployment, name.clone());
            // While a resource moves, its pods are in both clusters.
            let others = elsewhere.iter().filter_map(|(_, other)| other.objects.get(&id)).filter(is_of_resource);
            let lagging: Vec<&Arc<LiveObject>> = live.get(&id).into_iter().chain(others).filter(lags).collect();
            if lagging.is_empty() && !unlisted.contains(name.as_str()) {
                continue;
            }
            let said = format!("Deployment {name}");
            if lagging.iter().any(|found| found.is_adopted) {
                behind.held.push(said.clone());
            }
            behind.all.push(said);
        }
        behind
    }

    /// The Deployments in other clusters whose objects are not known: there may be pods.
    fn unlisted_deployments<'p>(&self, plans: &'p [Plan]) -> BTreeSet<&'p str> {
        let all = self.context.stores.other_clusters(self.key.namespace());
        let is_unlisted = |plan: &&Plan| {
            let found = |name: &str| all.iter().find(|(other, _)| other == name);
            let name = self.resources.cluster_of(plan.kind, &plan.key);
            name.is_some_and(|name| found(name).is_none_or(|(_, other)| !other.unlisted.is_empty()))
                || self.is_anywhere_unlisted(plan.kind, &plan.key, &all)
        };
        let unlisted = plans.iter().filter(is_unlisted).flat_map(|plan| &plan.deployments);
        unlisted.map(|deployment| deployment.name.as_str()).collect()
    }

    /// The UIDs of the resources of the namespace.
    fn uids(&self) -> BTreeSet<&str> {
        let own = self.resources.ids().filter(|(_, key)| key.namespace() == self.key.namespace());
        own.filter_map(|(kind, key)| self.resources.metadata(kind, key)?.uid.as_deref()).collect()
    }

    /// The certificates of the built-in CA that are not issued for now: one sentence each.
    pub(super) async fn held(
        &self,
        overlaps: &Overlaps,
        desired: &[Desired],
        live: &LiveObjects,
        observed: &mut Observed,
    ) -> Result<BTreeMap<ObjectName, String>, Error> {
        let mut held = BTreeMap::new();
        let anchors = self.live_anchors(&overlaps.anchors);
        for Desired { name, origin, .. } in desired {
            let Origin::Issued(request) = origin else { continue };
            let is_own = |anchor: &Anchor| !anchor.is_key && anchor.secret == name.1;
            let own = overlaps.own.get(&name.1).filter(|_| overlaps.anchors.iter().any(is_own));
            // Pods need the key of service accounts to start, so that does not wait.
            let is_spreading = own.is_some_and(|own| own.overlap.phase == Phase::Spreading && !own.is_blocked);
            if !live.contains_key(name) && is_spreading {
                let why = "is made again once all pods trust a copy of the former CA";
                held.insert(name.clone(), format!("Secret {} {why}", name.1));
            }
            let is_ca = |anchor: &&Anchor| !anchor.is_key && request.ca.as_deref() == Some(anchor.secret.as_str());
            let Some(anchor) = overlaps.anchors.iter().find(is_ca) else { continue };
            // What exists and needs it could not get the new CA either. Shards mount a certificate of their cache.
            let needs_it = |other: &Desired| {
                !matches!(other.origin, Origin::Issued(_))
                    && live.contains_key(&other.name)
                    && other.gates.iter().filter_map(needed).any(|needed| needed == name.1)
            };
            let is_needed = self.kind == Kind::CacheServer || desired.iter().any(needs_it);
            if !live.contains_key(name) && is_needed {
                continue;
            }
            if self.waits_for_trust(anchor, name, &anchors, live, observed).await? {
                let why = format!("waits until all pods trust the new CA in Secret {}", anchor.secret);
                held.insert(name.clone(), format!("the certificate in Secret {} {why}", name.1));
            }
        }
        Ok(held)
    }

    /// Whether a CA must not sign a certificate yet.
    async fn waits_for_trust(
        &self,
        anchor: &Anchor,
        name: &ObjectName,
        anchors: &LiveObjects,
        live: &LiveObjects,
        observed: &mut Observed,
    ) -> Result<bool, Error> {
        let Some(present) = self.present(anchor, anchors) else { return Ok(false) };
        let trust = self.content(&anchor.trust, anchors).map(|found| live_of(&found));
        let is_spread = match &trust {
            Some(trust) => {
                let is_over = trust.certificates.iter().all(|one| pki::is_same_key(one, &present));
                let is_everywhere = trust.is_noted && trust.is_everywhere && trust.certificates.contains(&present);
                is_over || is_everywhere
            }
            // The pass over the resource that has the CA has not looked at it yet, or writes the trust Secret.
            None => !live.contains_key(name) || self.context.memory.is_settled_with(&self.id(anchor), &present),
        };
        if is_spread || !live.contains_key(name) {
            return Ok(!is_spread);
        }
        // What it has signed already stays, and may get another chain.
        self.learn_all(std::iter::once(name), live, observed).await?;
        let content = self.content(&name.1, live);
        let own = content.as_ref().and_then(|found| found.certificates.first());
        if own.is_none_or(|own| is_of(self.context.memory, own, &present)) {
            return Ok(false);
        }
        // A change of the trust Secret wakes the resource. What the other pass finds without one does as well.
        let memory = self.context.memory;
        Ok(trust.is_some() || !memory.awaits_settled(&self.id(anchor), &present, self.kind, self.key))
    }
}

/// Whether pods of the resource that has a key, in these Deployments, run with all that they mount now, and with no
/// trust Secret. Then a former process has seen the key in place, and found that no former one is to be accepted: what
/// is recorded came later, or its end could not be recorded any more. Passes over other resources do not decide that.
fn runs_without_trust<'d>(
    mut own: impl Iterator<Item = &'d str>,
    dependents: &Dependents,
    around: &LiveObjects,
    keys: &BTreeMap<ObjectName, Keys>,
) -> bool {
    own.any(|name| {
        let wanted = dependents.deployments.get(name).and_then(|gates| decide::digest_of_keys(gates, keys));
        let found = around.get(&(ObjectKind::Deployment, name.to_owned())).and_then(|found| found.mounted.as_deref());
        wanted.is_some_and(|wanted| found == Some(wanted.to_string().as_str()))
    })
}

/// Whether pods mount nothing of an anchor but what these Secrets have.
fn mounts_only(anchor: &Anchor, dependents: &Dependents, gates: &[plan::Gate], secrets: &[String]) -> bool {
    let mounted = gates.iter().filter_map(|gate| match gate {
        plan::Gate::Key(mounted) => Some(&mounted.name),
        plan::Gate::Certificate(_) | plan::Gate::Deployment { .. } => None,
    });
    let is_of_anchor = |name: &&String| {
        **name == anchor.secret
            || **name == anchor.trust
            || dependents.signed.contains_key(*name)
            || dependents.composed.contains_key(*name)
    };
    mounted.filter(is_of_anchor).all(|name| secrets.contains(name))
}

/// The Secret that something waits for.
fn needed(gate: &plan::Gate) -> Option<&str> {
    match gate {
        plan::Gate::Key(mounted) => Some(&mounted.name),
        plan::Gate::Certificate(name) => Some(name),
        plan::Gate::Deployment { .. } => None,
    }
}

/// The objects that a decision about an anchor depends on.
fn names(anchor: &Anchor, dependents: &Dependents) -> BTreeSet<ObjectName> {
    let secrets = [&anchor.trust, &anchor.secret].into_iter().chain(&anchor.above);
    let secrets = secrets.chain(dependents.signed.keys()).chain(dependents.composed.keys()).map(|name| secret(name));
    let deployments = dependents.deployments.keys().map(|name| (ObjectKind::Deployment, name.clone()));
    let inputs = dependents.deployments.values().flat_map(|gates| decide::inputs(gates));
    secrets.chain(deployments).chain(inputs).collect()
}

#[cfg(test)]
mod tests;
