use k8s_openapi::ByteString;
use serde_json::json;
use tidegate_core::{
    object::Gvk,
    push::{Delivered, Headers, Host, parse},
};

use super::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn source(name: &str, spec: serde_json::Value) -> GitSource {
    serde_json::from_value(json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": name, "namespace": "kcp-system"}, "spec": spec,
    }))
    .unwrap()
}

fn push(url: &str, reference: &str) -> Push {
    let body = json!({"url": url, "ref": reference}).to_string();
    match parse(Host::Generic, &Headers::default(), body.as_bytes()).unwrap().0 {
        Delivered::Push(push) => push,
        Delivered::Other => unreachable!("a generic delivery is a push"),
    }
}

#[test]
fn a_push_wakes_only_sources_whose_secret_url_and_ref_it_names() {
    let receiver = json!({"secretRef": {"name": "hook"}});
    let main = json!({"branch": "main"});
    let url = "https://git.example.com/team/landscape.git";
    let sources = [
        source("main", json!({"url": url, "ref": main, "receiver": receiver})),
        source("by-ssh", json!({"url": "git@GIT.example.com:team/landscape", "ref": main, "receiver": receiver})),
        source("tag", json!({"url": url, "ref": {"tag": "v1"}, "receiver": receiver})),
        source("suspended", json!({"url": url, "ref": main, "suspend": true, "receiver": receiver})),
        source("other-branch", json!({"url": url, "ref": {"branch": "next"}, "receiver": receiver})),
        source("other-url", json!({"url": "https://git.example.com/team/other", "receiver": receiver})),
        source("other-secret", json!({"url": url, "receiver": {"secretRef": {"name": "hook-2"}}})),
        source("without", json!({"url": url})),
        source("invalid", json!({"url": url, "interval": "1s", "receiver": receiver})),
    ];
    let mut elsewhere = sources[0].clone();
    elsewhere.metadata.namespace = Some("other".to_owned());
    let secret = Key::new("kcp-system", "hook");
    let named = |push: &Push, secret: &Key| named(push, secret, sources.iter().chain([&elsewhere]));
    let keys = |names: &[&str]| names.iter().map(|name| Key::new("kcp-system", name)).collect();
    let accepted = |names: &[&str]| Outcome::Accepted { woken: keys(names), suspended: Vec::new() };
    let main = Outcome::Accepted { woken: keys(&["main", "by-ssh"]), suspended: keys(&["suspended"]) };
    let same = "ssh://git@git.example.com:22/team/landscape.git";
    for (url, reference, expected) in [
        (same, "refs/heads/main", main),
        (same, "refs/heads/next", accepted(&["other-branch"])),
        (same, "refs/tags/v1", accepted(&["tag"])),
        (same, "refs/heads/v1", Outcome::OtherRef),
        (same, "main", Outcome::OtherRef),
        ("https://git.example.com/team/other.git", "refs/heads/main", accepted(&["other-url"])),
        ("https://git.example.com/team/landscapes", "refs/heads/main", Outcome::OtherRepository),
        ("https://git.example.com:8443/team/landscape", "refs/heads/main", Outcome::OtherRepository),
    ] {
        assert_eq!(named(&push(url, reference), &secret), expected, "{url} {reference}");
    }
    let unknown = Key::new("kcp-system", "none");
    assert_eq!(named(&push(same, "refs/heads/main"), &unknown), Outcome::OtherRepository);
}

#[test]
fn a_secret_has_tokens_or_says_what_is_wrong() {
    let key = Key::new("kcp-system", "hook");
    let secret = |data: &[(&str, &str)]| Secret {
        data: Some(
            data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect(),
        ),
        ..Secret::default()
    };
    let failed = || Err(cluster::Error::NotServed { gvk: Gvk::new("", "v1", "Secret") });
    let good = after_read(&key, Ok(Some(secret(&[("token", TOKEN)]))), None);
    assert!(good.is_ok());
    let text = |read: Result<HookSecret, String>| read.unwrap_err();
    assert_eq!(text(after_read(&key, Ok(None), Some(good.clone()))), "Secret kcp-system/hook does not exist");
    let missing = "Secret kcp-system/hook has no key `token`";
    assert_eq!(text(after_read(&key, Ok(Some(secret(&[]))), Some(good.clone()))), missing);
    // While the control plane does not answer, what was read stays valid.
    assert_eq!(after_read(&key, failed(), Some(good.clone())), good);
    assert!(text(after_read(&key, failed(), None)).starts_with("cannot read Secret kcp-system/hook: "));
}

#[test]
fn a_push_that_polling_finds_is_missed_unless_something_announced_it() {
    let began = Instant::now();
    let at = |seconds: u64| began + Duration::from_secs(seconds);
    let time = |seconds: i64| Timestamp::from_second(seconds).unwrap();
    let revision = Revision::WorkTree;
    let only = |trigger: Trigger| Triggers::from(trigger);
    let first = Announced::default().after_fetch(Some(&revision), only(Trigger::Resync), at(0), None, at(1));
    assert_eq!(first.receiving(None, at(100)), Receiving::Waiting, "the first fetch of a process misses nothing");
    let fetch = |triggers: Triggers, last: Option<Instant>| {
        first.clone().after_fetch(Some(&revision), triggers, at(60), last, at(61))
    };
    let missed = fetch(only(Trigger::Resync), None);
    let said = Receiving::Missed { revision: "worktree".to_owned() };
    assert_eq!(missed.receiving(None, at(62)), Receiving::Waiting, "a delivery may be late");
    assert!(missed.is_undecided(at(64)) && !missed.is_undecided(at(65)) && !first.is_undecided(at(1)));
    assert_eq!(missed.receiving(None, at(65)), said);
    assert_eq!(missed.receiving(Some((at(30), time(30))), at(66)), said, "one that came before is of another push");
    assert_eq!(missed.receiving(Some((at(63), time(63))), at(66)), Receiving::Delivered(time(63)));
    // A delivery since the last fetch, or a fetch that something else asked for.
    for announced in [
        fetch(only(Trigger::Resync), Some(at(0))),
        fetch(only(Trigger::Push), None),
        fetch(only(Trigger::Requested), None),
        fetch(Triggers::from(Trigger::Resync).with(Trigger::Git), None),
    ] {
        assert_eq!(announced.receiving(None, at(100)), Receiving::Waiting);
    }
    // A poll that finds nothing changes nothing; a push that is announced settles it.
    let later = missed.clone().after_fetch(None, only(Trigger::Resync), at(120), None, at(121));
    assert_eq!(later.receiving(None, at(122)), said);
    let settled = later.after_fetch(Some(&revision), only(Trigger::Push), at(180), Some(at(179)), at(181));
    assert_eq!(settled.receiving(Some((at(179), time(179))), at(200)), Receiving::Delivered(time(179)));
}
