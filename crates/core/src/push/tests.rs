use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::prelude::*;
use sha2::Sha256;

use super::*;
use crate::intake::Follow;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

fn headers(all: &[(&str, &str)]) -> Headers {
    Headers::new(all.iter().map(|(name, value)| (*name, value.as_bytes())))
}

fn secret(token: &str, previous: Option<&str>) -> HookSecret {
    let data = |key: &str| match key {
        "token" => Some(token.as_bytes()),
        "previousToken" => previous.map(str::as_bytes),
        _ => None,
    };
    HookSecret::from_data(data).unwrap()
}

fn hex(token: &str, body: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).unwrap().chain_update(body);
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a host sends with a body, and how it authenticates it.
fn sent(host: Host, token: &str, body: &[u8]) -> Headers {
    let signed = format!("sha256={}", hex(token, body));
    match host {
        Host::GitHub => headers(&[
            ("X-GitHub-Event", "push"),
            ("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
            ("X-Hub-Signature-256", &signed),
        ]),
        Host::Gitea => headers(&[
            ("X-GitHub-Event", "push"),
            ("X-Gitea-Event", "push"),
            ("X-Gitea-Delivery", "f6266f16-1bf3-46a5-9ea4-602e06ead473"),
            ("X-Gitea-Signature", &hex(token, body)),
            ("X-Hub-Signature-256", &signed),
        ]),
        Host::Forgejo => headers(&[
            ("X-GitHub-Event", "push"),
            ("X-Gitea-Event", "push"),
            ("X-Forgejo-Event", "push"),
            ("X-Forgejo-Delivery", "f6266f16-1bf3-46a5-9ea4-602e06ead473"),
            ("X-Forgejo-Signature", &hex(token, body)),
        ]),
        Host::GitLab => headers(&[
            ("X-Gitlab-Event", "Push Hook"),
            ("X-Gitlab-Event-UUID", "a8d6a0f5-3f43-4c0a-9f0c-5d9a6b7b6f10"),
            ("Idempotency-Key", "13792a34-cac6-4fda-95a8-c58e00a3954e"),
            ("X-Gitlab-Token", token),
        ]),
        Host::BitbucketCloud => headers(&[
            ("X-Event-Key", "repo:push"),
            ("X-Hook-UUID", "e36a9c2b-1f3b-4d2a-8c55-9f0a8c2f9a11"),
            ("X-Request-UUID", "b4d2c8a0-5b6e-4f0e-9d0c-2f4d8d1f7c33"),
            ("X-Hub-Signature", &signed),
        ]),
        Host::BitbucketServer => headers(&[
            ("X-Event-Key", "repo:refs_changed"),
            ("X-Request-Id", "3e4b9d6f-0c3a-4f7e-a5f6-7b0f3a1f2d44"),
            ("X-Hub-Signature", &signed),
        ]),
        Host::AzureDevOps => {
            headers(&[("Authorization", &format!("Basic {}", STANDARD.encode(format!("tidegate:{token}"))))])
        }
        Host::Generic => headers(&[("X-Signature", &signed), ("X-Delivery-Id", "build-17")]),
    }
}

const PAYLOADS: [(Host, &str, &[&str], &str); 8] = [
    (
        Host::GitHub,
        include_str!("payloads/github.json"),
        &["https://github.com/example-team/landscape", "git@github.com:Example-Team/landscape.git"],
        "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    ),
    (
        Host::Gitea,
        include_str!("payloads/gitea.json"),
        &["https://gitea.example.com:3000/team/landscape.git", "ssh://gitea.example.com:2222/team/landscape"],
        "f6266f16-1bf3-46a5-9ea4-602e06ead473",
    ),
    (
        Host::Forgejo,
        include_str!("payloads/gitea.json"),
        &["https://kim@gitea.example.com:3000/team/landscape/"],
        "f6266f16-1bf3-46a5-9ea4-602e06ead473",
    ),
    (
        Host::GitLab,
        include_str!("payloads/gitlab.json"),
        &["https://gitlab.example.com/team/platform/landscape.git", "git@gitlab.example.com:team/platform/landscape"],
        "13792a34-cac6-4fda-95a8-c58e00a3954e",
    ),
    (
        Host::BitbucketCloud,
        include_str!("payloads/bitbucket-cloud.json"),
        &["https://bitbucket.org/example-team/landscape.git", "git@bitbucket.org:example-team/landscape.git"],
        "b4d2c8a0-5b6e-4f0e-9d0c-2f4d8d1f7c33",
    ),
    (
        Host::BitbucketServer,
        include_str!("payloads/bitbucket-server.json"),
        &[
            "https://bitbucket.example.com/scm/PLAT/landscape.git",
            "ssh://git@bitbucket.example.com:7999/plat/landscape.git",
        ],
        "3e4b9d6f-0c3a-4f7e-a5f6-7b0f3a1f2d44",
    ),
    (
        Host::AzureDevOps,
        include_str!("payloads/azure-devops.json"),
        &[
            "https://dev.azure.com/example-team/Platform%20Team/_git/landscape",
            "git@ssh.dev.azure.com:v3/example-team/Platform%20Team/landscape",
            "https://example-team.visualstudio.com/Platform%20Team/_git/landscape",
            "https://example-team.visualstudio.com/DefaultCollection/Platform Team/_git/landscape",
        ],
        "03c164c2-8912-4d5e-8009-3707d5f83734",
    ),
    (
        Host::Generic,
        include_str!("payloads/generic.json"),
        &["https://GIT.example.com:443/team/landscape", "git@git.example.com:team/landscape.git"],
        "build-17",
    ),
];

fn push(host: Host, headers: &Headers, body: &str) -> Push {
    match parse(host, headers, body.as_bytes()) {
        Ok((Delivered::Push(push), _)) => push,
        other => panic!("{host:?}: {other:?}"),
    }
}

#[test]
fn each_host_is_recognized_authenticated_and_read() {
    assert_eq!(PAYLOADS.map(|(host, ..)| host).into_iter().collect::<BTreeSet<_>>(), Host::ALL.into());
    for (host, body, urls, id) in PAYLOADS {
        let headers = sent(host, TOKEN, body.as_bytes());
        assert_eq!(Host::of(&headers), Some(host));
        assert!(is_authentic(host, &headers, body.as_bytes(), &secret(TOKEN, None)), "{host:?}");
        let Ok((Delivered::Push(push), found)) = parse(host, &headers, body.as_bytes()) else { panic!("{host:?}") };
        assert_eq!(found.as_deref(), Some(id), "{host:?}");
        for url in urls {
            assert!(push.is_to(url), "{host:?}: {url} is not one of {:?}", push.repository);
        }
        assert!(!push.is_to("https://github.com/example-team/other"), "{host:?}");
        for follow in [Follow::Default, Follow::Branch("main".to_owned()), Follow::Name("refs/heads/main".to_owned())] {
            assert!(push.names(&follow), "{host:?} {follow:?}");
        }
        assert!(!push.names(&Follow::Branch("mai".to_owned())) && !push.names(&Follow::Tag("main".to_owned())));
    }
}

#[test]
fn a_wrong_token_or_body_is_not_authentic_and_two_tokens_are() {
    for (host, body, ..) in PAYLOADS {
        let body = body.as_bytes();
        let headers = sent(host, TOKEN, body);
        for (secret, expected) in [
            (secret(TOKEN, None), true),
            (secret(OTHER, Some(TOKEN)), true),
            (secret(TOKEN, Some(OTHER)), true),
            (secret(OTHER, None), false),
            (secret(&TOKEN[..31], None), false),
            (secret(&format!("{TOKEN}0"), None), false),
            (HookSecret::unknown([7; 32]), false),
        ] {
            assert_eq!(is_authentic(host, &headers, body, &secret), expected, "{host:?}");
        }
        let is_signed = !matches!(host, Host::GitLab | Host::AzureDevOps);
        let changed = [body, b" "].concat();
        assert_eq!(is_authentic(host, &headers, &changed, &secret(TOKEN, None)), !is_signed, "{host:?}");
    }
}

#[test]
fn a_proof_that_is_missing_doubled_or_malformed_is_none() {
    let body = include_str!("payloads/github.json").as_bytes();
    let signed = format!("sha256={}", hex(TOKEN, body));
    let sha1 = format!("sha1={}", &hex(TOKEN, body)[..40]);
    let short = signed[..70].to_owned();
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    for all in [
        &[("x-github-event", "push")][..],
        &[("x-github-event", "push"), ("x-hub-signature", sha1.as_str())],
        &[("x-github-event", "push"), ("x-hub-signature-256", sha1.as_str())],
        &[("x-github-event", "push"), ("x-hub-signature-256", short.as_str())],
        &[("x-github-event", "push"), ("x-hub-signature-256", hex(TOKEN, body).as_str())],
        &[("x-github-event", "push"), ("x-hub-signature-256", &signed), ("X-Hub-Signature-256", &signed)],
        &[("x-github-event", "push"), ("x-hub-signature-256", "sha256=")],
        // The proof of another host does not count.
        &[("x-github-event", "push"), ("x-gitlab-token", TOKEN)],
        &[("x-gitlab-event", "Push Hook"), ("x-gitlab-token", "")],
        &[("x-gitlab-event", "Push Hook")],
        &[("authorization", basic(TOKEN).as_str())],
        &[("authorization", format!("Bearer {TOKEN}").as_str())],
        &[("authorization", basic(&format!("{TOKEN}:")).as_str())],
        &[("authorization", "Basic %%%")],
    ] {
        let headers = headers(all);
        let host = Host::of(&headers).unwrap();
        assert!(!is_authentic(host, &headers, body, &secret(TOKEN, None)), "{all:?}");
    }
    assert_eq!(Host::of(&headers(&[("content-type", "application/json")])), None);
}

#[test]
fn the_keys_of_a_secret_are_token_and_previous_token() {
    type Data<'a> = &'a [(&'a str, &'a [u8])];
    let from = |data: Data<'static>| {
        HookSecret::from_data(|key| data.iter().find(|(found, _)| *found == key).map(|(_, value)| *value))
    };
    assert_eq!(from(&[("token", b"0123456789abcdef\n")]), from(&[("token", b"0123456789abcdef")]));
    let rows: [(Data<'_>, &str); 4] = [
        (&[], "has no key `token`"),
        (&[("previousToken", b"0123456789abcdef")], "has no key `token`"),
        (
            &[("token", b"0123456789abcde\n")],
            "has a `token` of fewer than 16 bytes; use a random one, for example of `openssl rand -hex 32`",
        ),
        (
            &[("token", b"0123456789abcdef"), ("previousToken", b"")],
            "has a `previousToken` of fewer than 16 bytes; use a random one, for example of `openssl rand -hex 32`",
        ),
    ];
    for (data, expected) in rows {
        assert_eq!(from(data).unwrap_err().to_string(), expected);
    }
    assert_eq!(format!("{:?}", secret(TOKEN, Some(OTHER))), "HookSecret(…)");
    assert_eq!(format!("{:?}", headers(&[("X-Gitlab-Token", TOKEN)])), "[\"x-gitlab-token\"]");
}

#[test]
fn events_that_are_no_push_name_nothing() {
    for (host, event) in [
        (Host::GitHub, ("x-github-event", "ping")),
        (Host::GitHub, ("x-github-event", "issues")),
        (Host::Gitea, ("x-gitea-event", "create")),
        (Host::Forgejo, ("x-forgejo-event", "pull_request")),
        (Host::GitLab, ("x-gitlab-event", "Merge Request Hook")),
        (Host::BitbucketCloud, ("x-event-key", "pullrequest:created")),
        (Host::BitbucketServer, ("x-event-key", "diagnostics:ping")),
    ] {
        assert_eq!(parse(host, &headers(&[event]), b"{}"), Ok((Delivered::Other, None)), "{event:?}");
    }
    let system = headers(&[("x-gitlab-event", "System Hook")]);
    let created = br#"{"event_name": "project_create", "path": "landscape"}"#;
    assert_eq!(parse(Host::GitLab, &system, created), Ok((Delivered::Other, None)));
    let azure = br#"{"id": "7", "eventType": "git.pullrequest.created", "resource": {}}"#;
    assert_eq!(parse(Host::AzureDevOps, &Headers::default(), azure), Ok((Delivered::Other, Some("7".to_owned()))));
}

#[test]
fn tags_deletions_and_several_refs_are_read() {
    let tag = headers(&[("x-gitlab-event", "Tag Push Hook")]);
    let tag = push(Host::GitLab, &tag, include_str!("payloads/gitlab-tag.json"));
    assert!(tag.names(&Follow::Tag("v1.0.0".to_owned())) && !tag.names(&Follow::Branch("v1.0.0".to_owned())));
    for (range, expected) in [("^1.0", true), ("^2.0", false)] {
        assert_eq!(tag.names(&Follow::Versions(range.parse().unwrap())), expected, "{range}");
    }
    let next = include_str!("payloads/github.json").replace("refs/heads/main", "refs/heads/next");
    let next = push(Host::GitHub, &sent(Host::GitHub, TOKEN, b""), &next);
    assert!(!next.names(&Follow::Default) && next.names(&Follow::Name("refs/heads/next".to_owned())));
    let cloud = headers(&[("x-event-key", "repo:push"), ("x-hook-uuid", "1")]);
    let cloud = push(Host::BitbucketCloud, &cloud, include_str!("payloads/bitbucket-cloud.json"));
    let refs: Vec<&str> = cloud.updates.iter().map(|update| update.reference.as_str()).collect();
    assert_eq!(refs, ["refs/heads/main", "refs/heads/feature/mail", "refs/tags/v1.0.0"]);
    assert_eq!(cloud.updates[1].target, None);
    let commit = "709d658dc5b6d6afcd46049c2f332ee3f515a67d".parse().unwrap();
    assert!(cloud.names(&Follow::Commit(commit)));
    assert!(!cloud.names(&Follow::Commit("1e65c05c1d5171631d92438a13901ca7dae9618c".parse().unwrap())));
}

#[test]
fn a_form_is_read_as_github_sends_it() {
    let body = include_str!("payloads/github.json");
    let encoded: String = body.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let form = headers(&[("x-github-event", "push"), ("content-type", "application/x-www-form-urlencoded")]);
    assert_eq!(
        push(Host::GitHub, &form, &format!("payload={}", encoded.replace("%20", "+"))),
        push(Host::GitHub, &sent(Host::GitHub, TOKEN, b""), body)
    );
    let curl = headers(&[("x-signature", "sha256=00"), ("content-type", "application/x-www-form-urlencoded")]);
    let plain = r#"{"url": "https://git.example.com/team/landscape", "ref": "refs/heads/main"}"#;
    assert!(push(Host::Generic, &curl, plain).is_to("https://git.example.com/team/landscape"));
    let invalid = Err(ParseDeliveryError::Invalid { host: Host::GitHub });
    assert_eq!(parse(Host::GitHub, &form, b"other=1"), invalid);
    assert_eq!(parse(Host::GitHub, &form, b"payload=%ff"), invalid);
}

#[test]
fn a_server_that_sends_no_clone_urls_is_named_by_its_page() {
    let body = include_str!("payloads/bitbucket-server.json");
    let (before, rest) = body.split_once("\"clone\": [").unwrap();
    let (_, after) = rest.split_once("],").unwrap();
    let older = push(Host::BitbucketServer, &sent(Host::BitbucketServer, TOKEN, b""), &format!("{before}{after}"));
    assert!(older.is_to("https://bitbucket.example.com/scm/plat/landscape.git"));
}

#[test]
fn truncated_payloads_are_refused_without_a_word_of_them() {
    for (host, body, ..) in PAYLOADS {
        let headers = sent(host, TOKEN, b"");
        for length in 0..body.trim_end().len() {
            let error = parse(host, &headers, &body.as_bytes()[..length]).unwrap_err();
            assert_eq!(error, ParseDeliveryError::Invalid { host });
        }
    }
    let nameless = r#"{"ref": "refs/heads/main", "repository": {"clone_url": "nothing"}}"#;
    let github = sent(Host::GitHub, TOKEN, b"");
    assert_eq!(parse(Host::GitHub, &github, nameless.as_bytes()), Err(ParseDeliveryError::Repository));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(parse(Host::Generic, &Headers::default(), deep.as_bytes()).is_err());
}

#[test]
fn all_spellings_of_a_url_are_one_address() {
    let same = [
        &[
            "https://git.example.com/team/landscape.git",
            "https://git.example.com/team/landscape",
            "https://git.example.com/team/landscape/",
            "https://git.example.com//team//landscape.git/",
            "HTTPS://Git.Example.COM:443/Team/Landscape",
            "https://git.example.com./team/landscape",
            "https://kim:secret@git.example.com/team/landscape",
            "https://git.example.com/team/%6candscape",
            "https://git.example.com/team/landscape?x=y#z",
            "http://git.example.com/team/landscape.git",
            "http://git.example.com:80/team/landscape",
            "ssh://git@git.example.com/team/landscape.git",
            "ssh://git.example.com:22/team/landscape",
            "ssh://git@git.example.com:/team/landscape",
            "git@git.example.com:team/landscape.git",
            "git.example.com:/team/landscape",
        ][..],
        &["https://git.example.com:8443/team/landscape", "https://kim@GIT.example.com:8443/team/landscape.git"],
        &[
            "ssh://git@[2001:db8::1]/team/landscape",
            "git@[2001:db8::1]:team/landscape",
            "https://[2001:DB8::1]/team/landscape",
        ],
        &["https://github.com/team/landscape.git", "ssh://git@ssh.github.com:443/team/landscape.git"],
        &["https://gitlab.com/team/landscape.git", "ssh://git@altssh.gitlab.com:443/team/landscape.git"],
        &["https://bitbucket.org/team/landscape.git", "ssh://git@altssh.bitbucket.org:443/team/landscape.git"],
        &["file:///srv/landscape.git", "/srv/landscape/"],
        &[
            "https://dev.azure.com/org/landscape/_git/landscape",
            "https://dev.azure.com/org/_git/landscape",
            "https://org.visualstudio.com/_git/landscape",
            "org@vs-ssh.visualstudio.com:v3/org/landscape/landscape",
        ],
    ];
    let all: Vec<RepositoryAddress> = same
        .iter()
        .map(|urls| {
            let found: BTreeSet<_> = urls.iter().map(|url| RepositoryAddress::parse(url).expect(url)).collect();
            assert_eq!(found.len(), 1, "{found:?}");
            found.into_iter().next().unwrap()
        })
        .collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    for none in [
        "",
        "https://",
        "https:///team/x",
        "https://git.example.com",
        "https://git.example.com/",
        "landscape",
        "ftp://git.example.com/x",
        "https://git.example.com:x/y",
        "git@git.example.com:",
        "/",
        "a/b:c",
        "https://git.example.com/\u{0}",
    ] {
        assert_eq!(RepositoryAddress::parse(none), None, "{none}");
    }
    assert_eq!(RepositoryAddress::parse(&format!("https://a/{}", "b".repeat(2_048))), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_address_is_its_own_address(url in "(https://|ssh://git@|git@|/)?[a-zA-Z0-9.:/%@\\[\\]~ _-]{0,60}") {
        let Some(address) = RepositoryAddress::parse(&url) else { return Ok(()) };
        let spelt = address.to_string();
        // A path on this machine has no host. Port 443 is no default of ssh.
        let is_plain = spelt.chars().all(|c| !c.is_control() && !['%', '@'].contains(&c));
        prop_assume!(is_plain && !spelt.starts_with('/') && !spelt.contains(":443/") && !spelt.ends_with(".git"));
        prop_assert_eq!(RepositoryAddress::parse(&format!("https://{spelt}.git/")), Some(address));
    }

    #[test]
    fn only_the_token_itself_is_authentic(token in "[ -~]{16,40}", guess in "[ -~]{0,40}") {
        let token = token.trim();
        prop_assume!(16 <= token.len());
        let gitlab = headers(&[("x-gitlab-event", "Push Hook"), ("x-gitlab-token", &guess)]);
        let found = is_authentic(Host::GitLab, &gitlab, b"{}", &secret(token, None));
        prop_assert_eq!(found, guess.trim() == token);
    }

    #[test]
    fn any_body_is_read_to_an_end(host in 0..Host::ALL.len(), body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let host = Host::ALL[host];
        let headers = sent(host, TOKEN, &body);
        if let Ok((Delivered::Push(push), _)) = parse(host, &headers, &body) {
            prop_assert!(!push.repository.is_empty());
        }
    }
}
