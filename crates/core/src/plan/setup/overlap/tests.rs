use super::*;
use crate::plan::certificate::Validity;

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + hours * 3600).expect("a time")
}

/// `name#key<issuer`: a certificate for a key, signed by the key of an issuer. One with `!` at its end has expired.
fn certificate(text: &str) -> Authority {
    let not_after = if text.ends_with('!') { at(0) } else { at(10_000) };
    Authority { der: text.as_bytes().into(), validity: Validity { not_before: at(0), not_after } }
}

fn certificates(texts: &[&str]) -> Vec<Authority> {
    texts.iter().map(|text| certificate(text)).collect()
}

fn text(one: &Authority) -> &str {
    std::str::from_utf8(&one.der).expect("text").trim_end_matches('!')
}

/// Its name and key, and its issuer.
fn parts(one: &Authority) -> (&str, &str) {
    text(one).split_once('<').expect("an issuer")
}

fn is_of(one: &Authority, above: &Authority) -> bool {
    parts(one).1 == parts(above).0
}

fn is_same(one: &Authority, other: &Authority) -> bool {
    parts(one).0 == parts(other).0
}

fn decided(facts: &Facts) -> Overlap {
    overlap(facts, Verifier { is_of: &is_of, is_same: &is_same })
}

/// A client CA below the root CA `root#1`. Tidegate does not make it, and nothing is known of it.
fn facts() -> Facts {
    Facts {
        present: None,
        trust: None,
        signed: Vec::new(),
        remembered: None,
        recorded: None,
        known_since: at(0),
        above: Some(certificates(&["root#1<root#1"])),
        is_rolled: false,
        is_made: false,
        is_key: false,
        is_copied: false,
        now: at(1),
    }
}

fn signed(secret: &str, chain: &[&str]) -> Signed {
    Signed { secret: secret.to_owned(), chain: certificates(chain), depth: 1 }
}

fn live(texts: &[&str], note: &str) -> Option<Live> {
    let (is_noted, is_everywhere) = (!note.is_empty(), note == "everywhere");
    Some(Live { certificates: certificates(texts), is_noted, is_everywhere, since: None })
}

#[track_caller]
fn check(what: &str, facts: &Facts, phase: Phase, trusted: &[&str], left: &[&str]) {
    let found = decided(facts);
    let shown: Vec<&str> = found.certificates.iter().map(text).collect();
    assert_eq!((found.phase, shown.as_slice()), (phase, trusted), "{what}");
    assert_eq!(found.left, left, "{what}");
}

/// Row 22: what pods trust follows from what lives, no matter who replaced the CA and when the process began.
#[test]
fn what_pods_trust_while_a_ca_is_replaced_follows_from_what_lives() {
    const OLD: &str = "ca#1<root#1";
    const NEW: &str = "ca#2<root#1";
    let present = |text: &str| Some(certificate(text));
    let old = || vec![signed("eu-client", &["eu#1<ca#1", OLD]), signed("us-client", &["us#1<ca#1", OLD])];
    let half = || vec![signed("eu-client", &["eu#2<ca#2", NEW]), signed("us-client", &["us#1<ca#1", OLD])];
    let new = || vec![signed("eu-client", &["eu#2<ca#2", NEW]), signed("us-client", &["us#2<ca#2", NEW])];

    let steady = Facts { present: present(OLD), signed: old(), is_rolled: true, ..facts() };
    check("nothing is replaced", &steady, Phase::Settled, &[], &[]);
    let renewed = Facts { present: present("ca#1<root#2"), ..steady.clone() };
    check("the same key with another certificate", &renewed, Phase::Settled, &[], &[]);
    check("at first", &Facts { is_made: true, ..facts() }, Phase::Settled, &[], &[]);

    // A CA that is gone: Tidegate makes it again once all pods mount a copy. Others make it when they like.
    let gone = Facts { present: None, ..steady.clone() };
    check("another program makes it again", &gone, Phase::Settled, &[], &[]);
    let gone = Facts { is_made: true, ..gone };
    check("it is gone", &gone, Phase::Spreading, &[OLD], &["eu-client", "us-client"]);
    let copied = Facts { trust: live(&[OLD], "spreading"), is_rolled: false, ..gone };
    check("pods get the copy", &copied, Phase::Spreading, &[OLD], &["eu-client", "us-client"]);
    let copied = Facts { is_rolled: true, ..copied };
    check("all have it", &copied, Phase::Reissuing, &[OLD], &["eu-client", "us-client"]);

    let replaced = Facts { present: present(NEW), trust: None, ..copied.clone() };
    check("it is replaced", &replaced, Phase::Spreading, &[NEW, OLD], &["eu-client", "us-client"]);
    let stale = Facts { present: present(NEW), trust: live(&[OLD], "everywhere"), ..copied };
    check("the copy lacks the new one", &stale, Phase::Spreading, &[NEW, OLD], &["eu-client", "us-client"]);
    let spreading = Facts { trust: live(&[NEW, OLD], "spreading"), is_rolled: false, ..stale };
    check("pods get both", &spreading, Phase::Spreading, &[NEW, OLD], &["eu-client", "us-client"]);
    let everywhere = Facts { is_rolled: true, ..spreading.clone() };
    check("all have both", &everywhere, Phase::Reissuing, &[NEW, OLD], &["eu-client", "us-client"]);
    let noted = Facts { trust: live(&[NEW, OLD], "everywhere"), signed: half(), is_rolled: false, ..everywhere };
    check("leaves are issued anew", &noted, Phase::Reissuing, &[NEW, OLD], &["us-client"]);
    let reissued = Facts { signed: new(), ..noted };
    check("pods get the leaves", &reissued, Phase::Reissuing, &[NEW, OLD], &[]);
    let rolled = Facts { is_rolled: true, ..reissued };
    check("all have them", &rolled, Phase::Ending, &[NEW], &[]);
    let ending = Facts { trust: live(&[NEW], "ending"), is_rolled: false, ..rolled.clone() };
    check("pods forget the former one", &ending, Phase::Ending, &[NEW], &[]);
    check("all have", &Facts { is_rolled: true, ..ending }, Phase::Settled, &[], &[]);

    // It is replaced again meanwhile.
    let again = Facts { present: present("ca#3<root#1"), signed: half(), ..rolled };
    let all = ["ca#3<root#1", NEW, OLD];
    check("it is replaced twice", &again, Phase::Spreading, &all, &["eu-client", "us-client"]);
}

/// What has ended, and what did not sign what lives or is not of the CA above, is not trusted.
#[test]
fn neither_an_expired_nor_a_foreign_certificate_is_trusted() {
    let new = || Some(certificate("ca#2<root#1"));
    let of = |chain: &[&str]| Facts { present: new(), signed: vec![signed("eu-client", chain)], ..facts() };
    for (what, chain) in [
        ("expired", ["eu#1<ca#1", "ca#1<root#1!"]),
        ("of another root", ["eu#1<ca#1", "ca#1<evil#1"]),
        ("self-signed", ["eu#1<ca#1", "ca#1<ca#1"]),
        ("it has not signed the leaf", ["eu#1<ca#9", "ca#1<root#1"]),
    ] {
        check(what, &of(&chain), Phase::Settled, &[], &[]);
    }
    check("without a chain", &of(&["eu#1<ca#1"]), Phase::Settled, &[], &[]);
    let above = Some(certificates(&["root#2<root#2", "root#1<root#1"]));
    let both = Facts { above, ..of(&["eu#1<ca#1", "ca#1<root#1"]) };
    check("the former root", &both, Phase::Spreading, &["ca#2<root#1", "ca#1<root#1"], &["eu-client"]);

    // A trust Secret that others changed says nothing, unless the CA above vouches for it.
    let edited = Facts { present: new(), trust: live(&["ca#2<root#1", "evil#1<evil#1"], ""), ..facts() };
    check("edited", &edited, Phase::Ending, &["ca#2<root#1"], &[]);
    let copied = Facts { trust: live(&["ca#1<root#1"], ""), is_copied: true, ..edited };
    check("a copy that always exists", &copied, Phase::Spreading, &["ca#2<root#1", "ca#1<root#1"], &[]);
    // It ends while it is trusted.
    let ended = Facts { trust: live(&["ca#2<root#1", "ca#1<root#1!"], "everywhere"), is_copied: false, ..copied };
    check("it ends", &ended, Phase::Ending, &["ca#2<root#1"], &[]);
}

/// A root CA is found above its sub CAs, and above what these signed.
#[test]
fn a_former_root_ca_is_found_in_longer_chains() {
    let leaf = |chain: &[&str]| Signed { depth: 2, ..signed("eu-client", chain) };
    let with =
        |signed: Vec<Signed>| Facts { present: Some(certificate("root#2<root#2")), above: None, signed, ..facts() };
    let below = signed("main-client-ca", &["ca#1<root#1", "root#1<root#1"]);
    let old = leaf(&["eu#1<ca#1", "ca#1<root#1", "root#1<root#1"]);
    let both = ["root#2<root#2", "root#1<root#1"];
    check("both", &with(vec![below, old.clone()]), Phase::Spreading, &both, &["main-client-ca", "eu-client"]);
    let below = signed("main-client-ca", &["ca#1<root#2", "root#2<root#2"]);
    check("the sub CA is signed again", &with(vec![below.clone(), old]), Phase::Spreading, &both, &["eu-client"]);
    let new = leaf(&["eu#1<ca#1", "ca#1<root#2", "root#2<root#2"]);
    check("its chain as well", &with(vec![below, new]), Phase::Settled, &[], &[]);
}

/// A key of service accounts whose certificate was issued at `at(0)`, and which another program put in place long after
/// that. The process has seen it at `at(50)`.
fn new_key() -> Facts {
    Facts {
        present: Some(certificate("sa#2<ca#1")),
        above: Some(certificates(&["ca#1<root#1"])),
        is_key: true,
        is_rolled: true,
        known_since: at(50),
        now: at(50),
        ..facts()
    }
}

/// Nothing shows which tokens are in use, so a former key is accepted for a day.
#[test]
fn a_former_key_of_service_accounts_is_accepted_for_a_day() {
    let both = ["sa#2<ca#1", "sa#1<ca#1"];
    let replaced = Facts { remembered: Some(certificate("sa#1<ca#1")), ..new_key() };
    check("it is replaced", &replaced, Phase::Spreading, &both, &[]);
    assert_eq!((decided(&replaced).since, decided(&replaced).until), (Some(at(50)), Some(at(74))));
    let spread = Facts { trust: live(&both, "everywhere"), now: at(73), ..new_key() };
    check("within a day", &spread, Phase::Reissuing, &both, &[]);
    assert_eq!(decided(&spread).until, Some(at(74)));
    check("after a day", &Facts { now: at(74), ..spread }, Phase::Ending, &["sa#2<ca#1"], &[]);
    // Nothing is to be waited for where a certificate says who signed it.
    let ca = Facts { is_key: false, ..replaced };
    assert_eq!((decided(&ca).since, decided(&ca).until), (None, None));
}

/// The day begins when the new key was first seen: the trust Secret says when, also to a new process.
#[test]
fn the_day_of_a_former_key_begins_when_the_new_key_was_seen() {
    let both = || ["sa#2<ca#1", "sa#1<ca#1"];
    // The process began at `at(60)`.
    let since = |certificates: &[&str], is_noted: bool, since: Option<Timestamp>| {
        let live = Live { is_noted, since, ..live(certificates, "everywhere").expect("a Secret") };
        let facts = Facts { trust: Some(live), known_since: at(60), now: at(60), ..new_key() };
        decided(&facts).since
    };
    assert_eq!(since(&both(), true, Some(at(50))), Some(at(50)), "another process has seen it");
    assert_eq!(since(&both(), true, None), Some(at(60)), "a former version has written the Secret");
    assert_eq!(since(&both(), true, Some(at(61))), Some(at(60)), "a moment to come");
    assert_eq!(since(&both(), false, Some(at(50))), Some(at(60)), "others have changed the Secret");
    assert_eq!(since(&["sa#1<ca#1", "sa#0<ca#1"], true, Some(at(50))), Some(at(60)), "it is replaced again");
    let renewed = Facts { present: Some(certificate("sa#2<ca#2")), known_since: at(60), now: at(60), ..new_key() };
    let noted = Live { since: Some(at(50)), ..live(&both(), "everywhere").expect("a Secret") };
    assert_eq!(decided(&Facts { trust: Some(noted), ..renewed }).since, Some(at(50)), "a renewal keeps the key");
}

/// A process that did not see the former key finds it in the status, if the CA above has signed it.
#[test]
fn a_former_key_that_was_recorded_is_accepted_only_if_its_ca_vouches_for_it() {
    let recorded = |text: &str| Facts { recorded: Some(certificate(text)), ..new_key() };
    check("recorded", &recorded("sa#1<ca#1"), Phase::Spreading, &["sa#2<ca#1", "sa#1<ca#1"], &[]);
    check("the same key", &recorded("sa#2<ca#1"), Phase::Settled, &[], &[]);
    check("self-signed", &recorded("evil#1<evil#1"), Phase::Settled, &[], &[]);
    check("of another CA", &recorded("sa#1<ca#9"), Phase::Settled, &[], &[]);
    check("expired", &recorded("sa#1<ca#1!"), Phase::Settled, &[], &[]);
    // It was replaced twice, and the process has seen the second time.
    let twice = Facts { remembered: Some(certificate("sa#1<ca#1")), ..recorded("sa#0<ca#1") };
    check("both", &twice, Phase::Spreading, &["sa#2<ca#1", "sa#1<ca#1", "sa#0<ca#1"], &[]);
    let renewed = Facts { remembered: Some(certificate("sa#1<ca#1")), ..recorded("sa#1<ca#2") };
    let above = Some(certificates(&["ca#2<root#1", "ca#1<root#1"]));
    check("each key once", &Facts { above, ..renewed }, Phase::Spreading, &["sa#2<ca#1", "sa#1<ca#1"], &[]);
}

// === A model of pods, which restart in any order ===

/// A pod, of a Deployment of its own. Files of a mounted Secret follow the Secret, and a process reads them when it
/// likes: so what it holds may be anything that they had since it began.
struct Pod {
    mounts_trust: bool,
    trusts: Vec<Vec<Authority>>,
    leaves: Vec<Authority>,
}

struct World {
    present: Option<Authority>,
    trust: Option<Live>,
    /// Those of the pods, one each.
    leaves: Vec<Authority>,
    pods: Vec<Pod>,
    /// How many CAs and leaves there were.
    count: usize,
    /// Whether pods always mount the trust Secret, because another program replaces the key.
    is_copied: bool,
    random: u64,
}

/// A trust Secret while nothing is being replaced.
fn copy_of(present: &Authority) -> Live {
    Live { certificates: vec![present.clone()], is_noted: false, is_everywhere: false, since: None }
}

// === impl World ===

impl World {
    fn new(pods: usize, is_copied: bool, seed: u64) -> World {
        let present = certificate("ca#0<root#1");
        let leaves: Vec<Authority> = (0..pods).map(|pod| certificate(&format!("leaf{pod}#0<ca#0"))).collect();
        let trust = is_copied.then(|| copy_of(&present));
        let pod = |leaf: &Authority| Pod {
            mounts_trust: is_copied,
            trusts: vec![vec![present.clone()]],
            leaves: vec![leaf.clone()],
        };
        let pods = leaves.iter().map(pod).collect();
        World { present: Some(present), trust, leaves, pods, count: 0, is_copied, random: seed }
    }

    /// A number below `limit`.
    fn pick(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).expect("31 bits") % limit
    }

    /// Whether pods are to mount the trust Secret, as each pass sees it.
    fn is_mounted(&self) -> bool {
        let is_other = |one: &Authority| self.present.as_ref().is_none_or(|present| !is_same(one, present));
        self.is_copied || self.trust.as_ref().is_some_and(|live| live.certificates.iter().any(is_other))
    }

    /// What a pod that begins now trusts; `None` if it cannot begin.
    fn content(&self) -> Option<Vec<Authority>> {
        match self.is_mounted() {
            true => self.trust.as_ref().map(|live| live.certificates.clone()),
            false => self.present.clone().map(|present| vec![present]),
        }
    }

    fn is_current(&self, pod: usize) -> bool {
        let found = &self.pods[pod];
        let content = self.content().into_iter().collect::<Vec<_>>();
        found.mounts_trust == self.is_mounted() && found.trusts == content && found.leaves == [self.leaves[pod].clone()]
    }

    fn facts(&self) -> Facts {
        let chain = |leaf: &Authority| {
            let issuer = certificate(&format!("{}<root#1", parts(leaf).1));
            Signed { secret: parts(leaf).0.to_owned(), chain: vec![leaf.clone(), issuer], depth: 1 }
        };
        Facts {
            present: self.present.clone(),
            trust: self.trust.clone(),
            signed: self.leaves.iter().map(chain).collect(),
            is_rolled: (0..self.pods.len()).all(|pod| self.is_current(pod)),
            is_made: !self.is_copied,
            is_copied: self.is_copied,
            ..facts()
        }
    }

    /// The pass over the resource that has the CA: it writes the trust Secret.
    fn pass(&mut self) {
        let overlap = decided(&self.facts());
        let copy = self.present.clone().filter(|_| self.is_copied);
        let after = match overlap.phase {
            Phase::Settled => copy.map(|present| copy_of(&present)),
            phase => Some(Live {
                certificates: overlap.certificates,
                is_noted: true,
                is_everywhere: phase == Phase::Reissuing,
                since: overlap.since,
            }),
        };
        match &after {
            Some(live) if self.trust.as_ref().is_none_or(|before| before.certificates != live.certificates) => {
                let content = live.certificates.clone();
                self.pods.iter_mut().filter(|pod| pod.mounts_trust).for_each(|pod| pod.trusts.push(content.clone()));
            }
            Some(_) => {}
            None => assert!(self.pods.iter().all(|pod| !pod.mounts_trust), "a pod could not start again"),
        }
        self.trust = after;
    }

    /// The CA is there again, or another program replaces it.
    fn replace(&mut self) {
        self.count += 1;
        let present = certificate(&format!("ca#{}<root#1", self.count));
        let direct = self.pods.iter_mut().filter(|pod| !pod.mounts_trust);
        direct.for_each(|pod| pod.trusts.push(vec![present.clone()]));
        self.present = Some(present);
    }

    /// Whether the CA may sign, as each pass sees it.
    fn may_sign(&self) -> bool {
        let Some(present) = &self.present else { return false };
        match &self.trust {
            Some(live) => {
                let is_over = live.certificates.iter().all(|one| is_same(one, present));
                is_over || (live.is_noted && live.is_everywhere && live.certificates.contains(present))
            }
            None => decided(&self.facts()).phase == Phase::Settled,
        }
    }

    /// One thing happens, if it can.
    fn step(&mut self) {
        let pod = self.pick(self.pods.len());
        match self.pick(4) {
            0 => self.pass(),
            1 if self.present.is_none() && decided(&self.facts()).phase != Phase::Spreading => self.replace(),
            2 if self.may_sign() => {
                let issuer = parts(self.present.as_ref().expect("it signs")).0.to_owned();
                if parts(&self.leaves[pod]).1 != issuer {
                    self.count += 1;
                    self.leaves[pod] = certificate(&format!("leaf{pod}#{}<{issuer}", self.count));
                    self.pods[pod].leaves.push(self.leaves[pod].clone());
                }
            }
            3 if !self.is_current(pod) => {
                if let Some(content) = self.content() {
                    let leaves = vec![self.leaves[pod].clone()];
                    self.pods[pod] = Pod { mounts_trust: self.is_mounted(), trusts: vec![content], leaves };
                }
            }
            _ => {}
        }
    }

    /// Whatever a pod may present, each pod accepts, whatever it may trust.
    fn check(&self, seed: u64) {
        for leaf in self.pods.iter().flat_map(|pod| &pod.leaves) {
            for trusted in self.pods.iter().flat_map(|pod| &pod.trusts) {
                if !trusted.iter().any(|ca| is_of(leaf, ca)) {
                    let trusted: Vec<&str> = trusted.iter().map(text).collect();
                    panic!("seed {seed}: {} is not trusted by {trusted:?}", text(leaf));
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        let issuer = self.present.as_ref().map(|present| parts(present).0);
        let is_new = |leaf: &Authority| Some(parts(leaf).1) == issuer;
        let trusted = self.trust.as_ref().map_or(0, |live| live.certificates.len());
        self.leaves.iter().all(is_new)
            && trusted == usize::from(self.is_copied)
            && (0..self.pods.len()).all(|pod| self.is_current(pod))
    }
}

/// Passes, signatures and restarts come in any order, and the CA may be replaced again at any moment.
#[test]
fn whatever_a_pod_presents_is_accepted_at_each_moment_while_a_ca_is_replaced() {
    const STEPS_MAX: usize = 20_000;
    for seed in 0..100_u64 {
        let mut world = World::new(4, seed % 2 == 1, seed);
        for _ in 0..3 {
            let at_once = world.pick(3);
            for again in 0..=at_once {
                // A user deletes the Secret, or another program replaces the key.
                match world.is_copied {
                    true => world.replace(),
                    false => world.present = None,
                }
                world.check(seed);
                let between = if again < at_once { world.pick(60) } else { 0 };
                for _ in 0..between {
                    world.step();
                    world.check(seed);
                }
            }
            let mut steps = 0;
            while !world.is_over() {
                world.step();
                world.check(seed);
                steps += 1;
                assert!(steps < STEPS_MAX, "seed {seed}: it does not end");
            }
        }
    }
}

/// A certificate may say anything about its beginning, and so may a clock.
#[test]
fn a_key_that_begins_at_the_last_possible_time_is_replaced_as_any_other() {
    let mut present = certificate("accounts#2<root#1");
    present.validity.not_before = Timestamp::MAX;
    let remembered = Some(certificate("accounts#1<root#1"));
    let replaced = Facts { present: Some(present), remembered, is_key: true, ..facts() };
    let found = decided(&replaced);
    assert_eq!((found.phase, found.until), (Phase::Spreading, Some(at(24))));
    let found = decided(&Facts { known_since: Timestamp::MAX, ..replaced });
    assert_eq!((found.phase, found.until), (Phase::Spreading, None));
}
