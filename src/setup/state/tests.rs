use k8s_openapi::jiff::ToSpan as _;
use serde_json::json;

use super::*;

/// Milliseconds after the first pass, whether the pass wrote an object, and for how long its status waits.
type Row = (i64, bool, Option<u64>);

#[test]
fn a_status_that_only_says_that_the_work_goes_on_waits_until_nothing_was_written_for_a_second() {
    let began = Timestamp::from_second(1_800_000_000).expect("a time");
    let key = Key::new("kcp-system", "main");
    let rest: [Row; 3] = [(0, true, Some(1_000)), (300, false, Some(700)), (1_000, false, None)];
    let busy: [Row; 4] =
        [(0, true, Some(1_000)), (900, true, Some(1_000)), (4_200, true, Some(800)), (5_000, true, None)];
    for rows in [&rest[..], &busy[..]] {
        let memory = SetupMemory::default();
        for &(after, moved, expected) in rows {
            let waits = memory.postpone(Kind::Shard, &key, moved, began + after.milliseconds());
            assert_eq!(waits, expected.map(Duration::from_millis), "{after} ms");
        }
        // The next one waits again, and what was said begins anew.
        let later = began + 10.seconds();
        let full = Some(Duration::from_secs(1));
        assert_eq!(memory.postpone(Kind::Shard, &key, false, later), full);
        memory.said(Kind::Shard, &key);
        assert_eq!(memory.postpone(Kind::Shard, &key, false, later + 900.milliseconds()), full);
    }
}

#[test]
fn a_status_counts_as_written_until_the_watch_shows_a_newer_version() {
    let (memory, key) = (SetupMemory::default(), Key::new("kcp-system", "eu"));
    let version = |text: &str| ObjectMeta { resource_version: Some(text.to_owned()), ..ObjectMeta::default() };
    let status = json!({"phase": "Running"});
    assert_eq!(memory.reported(Kind::Shard, &key, &version("7")), None);
    memory.set_reported(Kind::Shard, &key, &version("7"), &status);
    assert_eq!(memory.reported(Kind::Shard, &key, &version("7")), Some(status));
    assert_eq!(memory.reported(Kind::RootShard, &key, &version("7")), None);
    assert_eq!(memory.reported(Kind::Shard, &key, &version("9")), None);
    assert_eq!(memory.reported(Kind::Shard, &key, &version("7")), None, "it is forgotten");
}

#[test]
fn connections_close_with_what_used_them_and_when_they_are_not_used() {
    let began = Instant::now();
    let at = |seconds: u64| began + Duration::from_secs(seconds);
    let (one, two) = (Key::new("kcp-system", "one"), Key::new("kcp-system", "two"));
    let (one, two) = ((Kind::Kubeconfig, &one), (Kind::Kubeconfig, &two));
    let open = |all: &Connections<u8>| {
        let mut urls: Vec<String> = all.open.keys().cloned().collect();
        urls.sort();
        urls.join(" ")
    };
    let mut all = Connections::default();
    for (url, by) in [("a", one), ("b", one), ("c", two)] {
        assert_eq!(all.take(url, by, at(0)), None);
        all.keep(url, 1_u8, by, at(0));
    }
    assert_eq!(all.take("b", two, at(600)), Some(1));
    all.keep("b", 2, one, at(600));
    assert_eq!(open(&all), "a b c");
    all.leave(one);
    assert_eq!(open(&all), "b c", "another resource uses it");
    assert_eq!(all.take("b", two, at(1200)), Some(2));
    assert_eq!(open(&all), "b", "it was not used for long");
    all.leave(one);
    assert_eq!(open(&all), "b");

    // Not every use looks at all others, and one that was not used for long is never used again.
    all.keep("d", 1, one, at(1210));
    assert_eq!(all.take("b", two, at(2380)), Some(2));
    assert_eq!(all.take("b", two, at(2420)), Some(2));
    assert_eq!(open(&all), "b d");
    assert_eq!(all.take("d", one, at(2420)), None);
    assert_eq!(all.take("b", two, at(2440)), Some(2));
    assert_eq!(open(&all), "b");
    all.leave(two);
    assert_eq!(open(&all), "");
}

/// Two certificates of a new key.
fn certificates() -> [Authority; 2] {
    let key = rcgen::KeyPair::generate().expect("a key");
    [2100, 2101].map(|year| {
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&key).expect("a certificate");
        pki::read_first(certificate.pem().as_bytes()).expect("a certificate")
    })
}

#[test]
fn a_renewal_that_keeps_the_key_does_not_bring_a_former_key_back() {
    let (memory, [first, _], [second, renewed]) = (SetupMemory::default(), certificates(), certificates());
    let (namespace, secret) = ("kcp-system", "main-service-account");
    let (anchor, name) = (Key::new(namespace, secret), (ObjectKind::Secret, secret.to_owned()));
    let now = std::cell::Cell::new(0);
    let set = |own: Option<&Authority>| {
        let content = own.map(|own| KnownContent {
            resource_version: "1".into(),
            keys: Keys::new(),
            is_self_signed: None,
            certificates: vec![own.clone()],
            above: Vec::new(),
            note: None,
            former: None,
            since: Timestamp::MIN,
            private: std::collections::BTreeSet::new(),
            authorities: std::collections::BTreeSet::new(),
            unclear: std::collections::BTreeSet::new(),
        });
        memory.set_content(namespace, &name, content, Timestamp::from_second(now.replace(now.get() + 1)).unwrap());
    };
    let former = || memory.content(namespace, &name).expect("it is known").former.clone();
    let since = || memory.content(namespace, &name).expect("it is known").since.as_second();
    set(Some(&first));
    assert_eq!(former(), None);
    assert_eq!(since(), 0);
    // It is deleted, and made again with another key.
    set(None);
    set(Some(&second));
    assert_eq!(former(), Some(first.clone()));
    assert_eq!(since(), 2, "the new key is known since then");
    memory.settle_with(&anchor, &(Kind::RootShard, Key::new(namespace, "main")), &second);
    assert_eq!(former(), None);
    set(Some(&renewed));
    assert_eq!(former(), None);
    assert_eq!(since(), 2, "its key is the same");
    // The key of the last one is remembered all the same.
    set(None);
    set(Some(&first));
    assert_eq!(former(), Some(renewed.clone()));
    // Another shard of this name begins anew.
    memory.forget_key(&Key::new(namespace, "main"));
    set(Some(&second));
    assert_eq!(former(), None);
}

#[test]
fn what_was_decided_about_a_ca_is_forgotten_with_its_resource() {
    let (memory, [present, _]) = (SetupMemory::default(), certificates());
    let own = (Kind::RootShard, Key::new("kcp-system", "main"));
    let others = [(Kind::Shard, own.1.clone()), (Kind::RootShard, Key::new("kcp-system", "other"))];
    let secret = |owner: &(Kind, Key)| Key::new("kcp-system", &format!("{:?}-{}-ca", owner.0, owner.1.name()));
    for owner in others.iter().chain([&own]) {
        memory.settle_with(&secret(owner), owner, &present);
        assert!(memory.tells(&secret(owner), owner, Phase::Spreading));
        assert!(!memory.tells(&secret(owner), owner, Phase::Spreading));
    }
    memory.forget_resource(own.0, &own.1);
    assert!(!memory.is_settled_with(&secret(&own), &present));
    assert!(!memory.tells(&secret(&own), &own, Phase::Settled), "nothing of it was told");
    for owner in &others {
        assert!(memory.is_settled_with(&secret(owner), &present));
        assert!(memory.tells(&secret(owner), owner, Phase::Settled));
    }
}

#[test]
fn a_resource_waits_until_the_pass_over_the_one_with_the_ca_has_looked_at_it() {
    let (memory, [former, present]) = (SetupMemory::default(), certificates());
    let owner = (Kind::RootShard, Key::new("kcp-system", "main"));
    let (ca, shard, other) = (Key::new("kcp-system", "main-ca"), Key::new("kcp-system", "one"), Key::new("", "two"));
    let waits = |key: &Key| !memory.awaits_settled(&ca, &present, Kind::Shard, key);
    assert_eq!(memory.settle_with(&ca, &owner, &former), BTreeSet::new());
    assert!(waits(&shard) && waits(&other));
    memory.forget_resource(Kind::Shard, &other);
    assert_eq!(memory.settle_with(&ca, &owner, &present), BTreeSet::from([(Kind::Shard, shard.clone())]));
    assert!(!waits(&shard));
    assert_eq!(memory.settle_with(&ca, &owner, &present), BTreeSet::new(), "it is woken once");
}

/// A signature is checked once for each pair of certificates, and not all pairs are kept.
#[test]
fn a_signature_is_checked_once_for_each_pair_of_certificates() {
    let (memory, [one, other]) = (SetupMemory::default(), certificates());
    assert!(memory.is_signed(&one, &other, || true));
    assert!(memory.is_signed(&one, &other, || panic!("it is known")));
    assert!(!memory.is_signed(&other, &one, || false), "the order matters");
    assert!(!memory.is_signed(&other, &one, || panic!("it is known")));
    for index in 2..PAIRS_MAX {
        let foreign = Authority { der: index.to_be_bytes().as_slice().into(), ..one.clone() };
        memory.is_signed(&foreign, &one, || false);
    }
    assert!(memory.is_signed(&one, &other, || panic!("there is room")));
    assert!(memory.is_signed(&one, &one, || true));
    assert!(!memory.is_signed(&one, &other, || false), "all were forgotten");
}
