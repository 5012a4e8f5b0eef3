//! Fetching over ssh from a server of another implementation, and from hostile ones.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use tidegate_git::{Error, Reference, Remote, SshAccess};

use self::server::{OpenSsh, Relay, Sshd, key, listen, url};
use super::{Fixture, noise, repository::Repository, text};
use crate::harness::{SOON, eventually};

pub(crate) mod server;

/// An hour and more: no test waits for it.
const LONG: Duration = Duration::from_secs(4_000);

/// Access with this key, to a host with these keys.
pub(super) fn access(identity: &str, host_keys: &[&str]) -> SshAccess {
    let lines = host_keys.iter().map(|name| format!("localhost {}", key(&format!("{name}.pub"))));
    SshAccess { identity: Some(key(identity)), passphrase: None, known_hosts: Some(lines.collect()) }
}

pub(super) fn remote(url: &str, access: SshAccess) -> Remote {
    Remote {
        url: url.parse().unwrap(),
        reference: Reference::Branch("main".into()),
        credentials: None,
        github_app: None,
        client: None,
        proxy: None,
        ca: None,
        ssh: Some(access),
        timeout: Duration::from_secs(20),
    }
}

/// The reason and the sentence with which a fetch fails.
async fn failure(remote: Remote) -> (&'static str, String) {
    let error = error(remote).await;
    (error.reason(), error.to_string())
}

async fn error(remote: Remote) -> Error {
    Fixture::new(remote).fetch().await.expect_err("the fetch fails")
}

#[tokio::test]
async fn a_fetch_over_ssh_brings_the_files_and_the_next_one_only_what_is_new() {
    let repository = Repository::with(&[("a.yaml", "a: 1\n"), ("big.yaml", &noise(1, 200_000))]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    let fixture = Fixture::new(remote(&server.url("repo"), access("ed25519", &["host_ed25519"])));

    let first = fixture.update().await;
    assert_eq!(text(&fixture.read(&first.revision).await.unwrap(), "a.yaml"), "a: 1\n");
    assert_eq!(first.revision.to_string(), format!("main@sha1:{}", repository.git(&["rev-parse", "HEAD"])));
    assert!(100_000 < first.received_bytes);

    repository.commit(&[("a.yaml", "a: 2\n")]);
    let second = fixture.update().await;
    assert!(second.fast_forward);
    assert!(second.received_bytes < 10_000, "{} bytes", second.received_bytes);
    assert_eq!(text(&fixture.read(&second.revision).await.unwrap(), "a.yaml"), "a: 2\n");

    // Nothing new costs one connection, which reads the references.
    assert_eq!(fixture.update().await.revision, second.revision);
    let user = format!("user git with SSH-2.0-Tidegate_{}", env!("CARGO_PKG_VERSION"));
    eventually("the server logs three connections", SOON, async || {
        let log = server.log();
        let count = |wanted: &str| log.iter().filter(|line| *line == wanted).count();
        let counts = (count(&user), count("exec git-upload-pack '/repo'"));
        (counts == (3, 3)).then_some(()).ok_or_else(|| format!("{log:?}"))
    })
    .await;
}

/// Where OpenSSH's server is installed. All other tests of ssh use the one that is built with the tests.
#[tokio::test]
async fn openssh_serves_every_kind_of_key_and_refuses_an_unknown_one() {
    let repository = Repository::with(&[("a.yaml", "a: 1\n"), ("big.yaml", &noise(1, 200_000))]);
    let host_keys = ["host_ed25519", "host_ecdsa", "host_rsa"];
    let Some(server) = OpenSsh::start(&host_keys) else {
        eprintln!("OpenSSH's server is not installed, so nothing was fetched from it");
        return;
    };
    let url = server.url(&repository.path());
    let fixture = Fixture::new(remote(&url, access("ed25519", &["host_ed25519"])));
    let first = fixture.fetch().await.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    assert!(100_000 < first.received_bytes);
    repository.commit(&[("a.yaml", "a: 2\n")]);
    let second = fixture.update().await;
    assert!(second.fast_forward && second.received_bytes < 10_000, "{} bytes", second.received_bytes);
    assert_eq!(text(&fixture.read(&second.revision).await.unwrap(), "a.yaml"), "a: 2\n");
    for identity in ["ecdsa", "ecdsa521", "rsa"] {
        for host_key in host_keys {
            Fixture::new(remote(&url, access(identity, &[host_key]))).update().await;
        }
    }
    assert_eq!(failure(remote(&url, access("ca", &["host_ed25519"]))).await.0, "AuthenticationFailed");
    assert_eq!(failure(remote(&url, access("ed25519", &["ed25519"]))).await.0, "HostKeyNotTrusted");
    let absent = server.url(&repository.root().join("absent"));
    assert_eq!(failure(remote(&absent, access("ed25519", &["host_ed25519"]))).await.0, "RepositoryNotFound");
}

#[tokio::test]
async fn a_key_of_each_kind_opens_the_repository() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    for name in ["ed25519", "ecdsa", "ecdsa521", "ecdsa_sec1", "rsa", "rsa_pkcs1", "rsa_pkcs8"] {
        Fixture::new(remote(&server.url("repo"), access(name, &["host_ed25519"]))).update().await;
    }
    let encrypted =
        SshAccess { passphrase: Some("passphrase".into()), ..access("ed25519_encrypted", &["host_ed25519"]) };
    Fixture::new(remote(&server.url("repo"), encrypted)).update().await;
    // RSA keys sign with SHA-2, also where a server accepts nothing but SHA-256 or SHA-512.
    for hash in ["rsa-sha2-256", "rsa-sha2-512"] {
        let server = Sshd::start(&repository.root(), &["host_ed25519"], &["--signature", hash]).await;
        Fixture::new(remote(&server.url("repo"), access("rsa", &["host_ed25519"]))).update().await;
    }
}

#[tokio::test]
async fn branches_tags_commits_and_paths_with_quotes_can_be_followed_over_ssh() {
    let repository = Repository::new();
    let first = repository.commit(&[("a.yaml", "1")]);
    repository.git(&["tag", "-a", "heavy", "-m", "x"]);
    let second = repository.commit(&[("a.yaml", "2")]);
    let third = repository.commit(&[("a.yaml", "3")]);
    std::os::unix::fs::symlink(repository.path(), repository.root().join("it's !here")).unwrap();
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    for (reference, expected) in [
        (Reference::Default, format!("main@sha1:{third}")),
        (Reference::Tag("heavy".into()), format!("heavy@sha1:{first}")),
        // No reference points to it, and git serves such a commit only with all branches and tags.
        (Reference::Commit(second.parse().unwrap()), format!("{second}@sha1:{second}")),
    ] {
        let remote = remote(&server.url("it's%20!here"), access("ed25519", &["host_ed25519"]));
        let fixture = Fixture::new(Remote { reference, ..remote });
        assert_eq!(fixture.update().await.revision.to_string(), expected);
    }
    let absent = remote(&server.url("repo"), access("ed25519", &["host_ed25519"]));
    let absent = Remote { reference: Reference::Branch("absent".into()), ..absent };
    assert_eq!(failure(absent).await.0, "RevisionNotFound");
}

#[tokio::test]
async fn nothing_is_sent_to_a_host_that_is_not_known() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    let url = server.url("repo");
    let port = server.port();
    let line = |host: &str, name: &str| format!("{host} {}", key(&format!("{name}.pub")));
    let with = |known_hosts: Option<String>| {
        remote(&url, SshAccess { identity: Some(key("ed25519")), passphrase: None, known_hosts })
    };
    let fingerprint = "ssh-ed25519 SHA256:IFRMLnL729eQqi/fJdkMb9/bTvdp8tInc+QeI+xXwk8";
    for (known_hosts, expected) in [
        (None, "and the Secret has no known_hosts"),
        (Some(line("other", "host_ed25519")), "which known_hosts does not contain"),
        (Some(line("localhost", "ed25519")), "but known_hosts has SHA256:ZTiPl0mWVqRNXFwNpSpvs3NLWmHuv509mv58kyc/H3I"),
        // Of another type than the key that it has.
        (Some(line("localhost", "host_rsa")), "but known_hosts has SHA256:cnvTjlRVqC8utHrVFayS5dKViHH4My6gwCn1x/XTUZ0"),
        (
            Some(line(&format!("[localhost]:{port}"), "ed25519") + &line("localhost", "host_ed25519")),
            "but known_hosts has SHA256:ZTiPl0mWVqRNXFwNpSpvs3NLWmHuv509mv58kyc/H3I",
        ),
        (Some(line("localhost", "host_ed25519") + &line("@revoked *", "host_ed25519")), "which known_hosts revokes"),
    ] {
        let (reason, sentence) = failure(with(known_hosts)).await;
        assert_eq!(reason, "HostKeyNotTrusted");
        assert!(sentence.starts_with(&format!("{url} has the host key")), "{sentence}");
        assert!(sentence.contains(fingerprint) && sentence.contains(expected), "{sentence}");
    }
    assert!(server.log().iter().all(|line| line == "refused"), "{:?}", server.log());
    let (reason, sentence) = failure(with(Some("# nothing\n".into()))).await;
    assert_eq!(reason, "HostKeyNotTrusted");
    assert!(sentence.starts_with("known_hosts contains no key: "), "{sentence}");
    let (_, sentence) = failure(with(Some("broken line\n".to_owned() + &line("other", "host_ed25519")))).await;
    let flaw = "; line 1 lacks a host name, a type of key or a key of known_hosts, which is skipped";
    assert!(sentence.ends_with(flaw), "{sentence}");
}

#[tokio::test]
async fn a_host_is_asked_for_a_key_that_is_known() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let all = ["host_ed25519", "host_ecdsa", "host_rsa"];
    let server = Sshd::start(&repository.root(), &all, &[]).await;
    for name in all {
        Fixture::new(remote(&server.url("repo"), access("ed25519", &[name]))).update().await;
    }
}

#[tokio::test]
async fn a_host_certificate_of_a_known_ca_is_trusted() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let authority = SshAccess {
        known_hosts: Some(format!("@cert-authority localhost {}", key("ca.pub"))),
        ..access("ed25519", &[])
    };
    let server = Sshd::start(&repository.root(), &["host_certified"], &[]).await;
    Fixture::new(remote(&server.url("repo"), authority.clone())).update().await;
    // The key in the certificate may be known instead of the CA.
    Fixture::new(remote(&server.url("repo"), access("ed25519", &["host_ed25519"]))).update().await;
    for (host_key, expected) in [
        ("host_expired", "has a host certificate that has expired"),
        ("host_other", "has a host certificate that is for other hosts"),
        ("host_ed25519", "has the host key ssh-ed25519 SHA256:IFRMLnL729eQqi/fJdkMb9/bTvdp8tInc+QeI+xXwk8, which"),
    ] {
        let server = Sshd::start(&repository.root(), &[host_key], &[]).await;
        let (reason, sentence) = failure(remote(&server.url("repo"), authority.clone())).await;
        assert_eq!(reason, "HostKeyNotTrusted");
        assert!(sentence.contains(expected), "{sentence}");
        assert!(server.log().iter().all(|line| line == "refused"), "{:?}", server.log());
    }
}

#[tokio::test]
async fn each_offered_key_exchange_and_cipher_works_alone() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let kex = [
        "mlkem768x25519-sha256",
        "curve25519-sha256",
        "curve25519-sha256@libssh.org",
        "ecdh-sha2-nistp256",
        "ecdh-sha2-nistp384",
        "ecdh-sha2-nistp521",
    ];
    let ciphers = ["aes256-gcm@openssh.com", "aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com"];
    let options = kex.map(|name| ["--kex", name]).into_iter().chain(ciphers.map(|name| ["--cipher", name]));
    for options in options {
        let server = Sshd::start(&repository.root(), &["host_ed25519"], &options).await;
        let fixture = Fixture::new(remote(&server.url("repo"), access("ed25519", &["host_ed25519"])));
        fixture.fetch().await.unwrap_or_else(|error| panic!("{options:?}: {error}"));
    }
}

#[tokio::test]
async fn a_weak_algorithm_is_refused_by_name() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let weak = |kind: &str, names: &str| {
        format!("offers no {kind} that is strong enough, only {names}: update the git server, or use an https:// URL")
    };
    for (identity, options, expected) in [
        ("ed25519", ["--kex", "diffie-hellman-group14-sha1"], weak("key exchange", "diffie-hellman-group14-sha1")),
        ("ed25519", ["--cipher", "aes128-cbc"], weak("cipher", "aes128-cbc")),
        ("ed25519", ["--cipher", "aes256-ctr"], weak("cipher", "aes256-ctr")),
        ("rsa", ["--signature", "ssh-rsa"], weak("signature of an RSA key", "ssh-rsa")),
    ] {
        let server = Sshd::start(&repository.root(), &["host_ed25519"], &options).await;
        let url = server.url("repo");
        let found = failure(remote(&url, access(identity, &["host_ed25519"]))).await;
        assert_eq!(found, ("AlgorithmRefused", format!("{url} {expected}")));
        assert!(server.log().iter().all(|line| line == "refused"), "{:?}", server.log());
    }
    for (identity, expected) in [("rsa_1024", "an RSA key with less than 2048 bits"), ("dsa", "an ssh-dss key")] {
        let (reason, sentence) = failure(remote("ssh://localhost:1/a", access(identity, &["host_ed25519"]))).await;
        assert_eq!(reason, "AuthenticationFailed");
        assert!(sentence.contains(expected) && sentence.contains("which is weak"), "{sentence}");
    }
}

/// The lists of algorithms in the first packet of a client.
fn offered(access: SshAccess) -> Vec<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let port = listen(move |mut stream| {
        stream.write_all(b"SSH-2.0-Test\r\n").unwrap();
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut packet = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut packet).unwrap();
        sender.send(packet).unwrap();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { error(remote(&url(port, "repo"), access)).await });
    let packet = receiver.recv().unwrap();
    // The length of the padding, the type of the packet and the cookie come first.
    let mut rest = &packet[1 + 1 + 16..];
    (0..8)
        .map(|_| {
            let (length, after) = rest.split_first_chunk::<4>().unwrap();
            let (names, after) = after.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap());
            rest = after;
            String::from_utf8(names.to_vec()).unwrap()
        })
        .collect()
}

#[test]
fn exactly_these_algorithms_are_offered() {
    let macs = "hmac-sha2-512-etm@openssh.com,hmac-sha2-256-etm@openssh.com";
    let ciphers = "aes256-gcm@openssh.com,aes128-gcm@openssh.com,chacha20-poly1305@openssh.com";
    let of_rsa = offered(access("ed25519", &["host_rsa"]));
    assert_eq!(
        of_rsa,
        [
            "mlkem768x25519-sha256,curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,\
             ecdh-sha2-nistp384,ecdh-sha2-nistp521,ext-info-c,kex-strict-c-v00@openssh.com",
            "rsa-sha2-512-cert-v01@openssh.com,rsa-sha2-256-cert-v01@openssh.com,rsa-sha2-512,rsa-sha2-256,ssh-ed25519,\
             ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521",
            ciphers,
            ciphers,
            macs,
            macs,
            "none",
            "none",
        ]
    );
    let unknown = SshAccess { known_hosts: None, ..access("ed25519", &[]) };
    assert_eq!(
        offered(unknown)[1],
        "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,rsa-sha2-512,rsa-sha2-256"
    );
}

#[tokio::test]
async fn what_an_ssh_server_answers_becomes_a_sentence_of_ours() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let good = access("ed25519", &["host_ed25519"]);
    for (options, reason, expected) in [
        ([].as_slice(), "RepositoryNotFound", "no repository at URL, or these credentials have no access to it"),
        (
            &["--exec", "refuse"],
            "AccessDenied",
            "URL does not allow git-upload-pack: give the key permission to read the repository",
        ),
        (
            &["--exec", "missing"],
            "RepositoryNotFound",
            "no repository at URL, or these credentials have no access to it",
        ),
        (
            &["--exec", "silent"],
            "AnswerNotUnderstood",
            "the answer of URL ended too early: the git server or a proxy closed the connection; Tidegate tries again",
        ),
        (
            &["--auth", "endless"],
            "AuthenticationFailed",
            "URL accepted the key and wants another factor, which Tidegate does not have: use a deploy key",
        ),
        (&["--exec", "flood"], "LimitExceeded", "URL sends more than 67108864 bytes of references"),
    ] {
        let server = Sshd::start(&repository.root(), &["host_ed25519"], options).await;
        let url = server.url("absent");
        let found = error(Remote { timeout: Duration::from_secs(120), ..remote(&url, good.clone()) }).await;
        assert_eq!((found.reason(), found.to_string()), (reason, expected.replace("URL", &url)), "{options:?}");
        if options == ["--exec", "missing"] {
            assert_eq!(found.said().unwrap().to_string(), "ERROR: Repository not found. The secret is s3cret");
        }
    }
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    let url = server.url("repo");
    let rejected = format!(
        "{url} rejected the key SHA256:inSMPMpZcXxKDhAvMfcegiEB6ptlsfHT5nfajZ4YKCA of the user git: add its public key \
         to the git server"
    );
    assert_eq!(failure(remote(&url, access("ca", &["host_ed25519"]))).await, ("AuthenticationFailed", rejected));
    for (access, expected) in [
        (Some(SshAccess::default()), "the Secret has no `identity`: an ssh URL needs a private key"),
        (None, "an ssh URL needs a private key: add a Secret with `identity` and `known_hosts`, and name it in spec."),
    ] {
        let (reason, sentence) = failure(Remote { ssh: access, ..remote(&url, good.clone()) }).await;
        assert_eq!(reason, "AuthenticationFailed");
        assert!(sentence.starts_with(expected), "{sentence}");
    }
}

#[tokio::test]
async fn an_ssh_server_that_hangs_is_left_when_the_time_is_up() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    for options in [["--auth", "hang"], ["--exec", "hang"]] {
        let server = Sshd::start(&repository.root(), &["host_ed25519"], &options).await;
        let remote = remote(&server.url("repo"), access("ed25519", &["host_ed25519"]));
        let start = Instant::now();
        let (reason, sentence) = failure(Remote { timeout: Duration::from_secs(1), ..remote }).await;
        assert_eq!((reason, sentence), ("Timeout", format!("{} took longer than 1 s", server.url("repo"))));
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    // Nothing but packets to be ignored, before any key is exchanged.
    let ignored = flood(b"SSH-2.0-Test\r\n", b"\x00\x00\x00\x0c\x06\x02\x00\x00\x00\x00xxxxxx");
    let flooded = remote(&url(ignored, "repo"), access("ed25519", &["host_ed25519"]));
    let (reason, _) = failure(Remote { timeout: Duration::from_secs(1), ..flooded }).await;
    assert!(["Timeout", "AnswerNotUnderstood"].contains(&reason), "{reason}");
    let silent = listen(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let remote = remote(&url(silent, "repo"), access("ed25519", &["host_ed25519"]));
    assert_eq!(failure(Remote { timeout: Duration::from_millis(300), ..remote }).await.0, "Timeout");
}

/// Sends `start`, then `repeated` again and again until the client closes the connection.
fn flood(start: &'static [u8], repeated: &'static [u8]) -> u16 {
    listen(move |mut stream: TcpStream| {
        let mut is_open = stream.write_all(start).is_ok();
        while is_open && !repeated.is_empty() {
            is_open = stream.write_all(repeated).is_ok();
        }
    })
}

#[tokio::test]
async fn a_server_that_is_none_is_left_at_once() {
    let not_ssh = "AnswerNotUnderstood";
    for (start, repeated) in [
        (b"".as_slice(), b"welcome\r\n".as_slice()),
        (b"", b"x"),
        (b"SSH-2.0-", b"x"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\r\n"),
        // A packet of 4 GiB, one of 1 MiB, and one that is shorter than its padding.
        (b"SSH-2.0-Test\r\n\xff\xff\xff\xff", b"x"),
        (b"SSH-2.0-Test\r\n\x00\x10\x00\x00", b"x"),
        (b"SSH-2.0-Test\r\n\x00\x00\x00\x0c\xff", b"x"),
    ] {
        let url = url(flood(start, repeated), "repo");
        let remote = Remote { timeout: LONG, ..remote(&url, access("ed25519", &["host_ed25519"])) };
        let (reason, sentence) = failure(remote).await;
        assert_eq!(reason, not_ssh, "{}: {sentence}", start.escape_ascii());
    }
    let closed = url(flood(b"", b""), "repo");
    let (_, sentence) = failure(remote(&closed, access("ed25519", &["host_ed25519"]))).await;
    assert!(sentence.contains("ended too early"), "{sentence}");
}

#[tokio::test]
async fn a_connection_that_is_cut_at_any_step_leaves_the_mirror_as_it_was() {
    let repository = Repository::with(&[("a.yaml", "a: 1\n"), ("big.yaml", &noise(1, 20_000))]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    let whole = Relay::start(server.port(), usize::MAX);
    let good = access("ed25519", &["host_ed25519"]);
    Fixture::new(remote(&url(whole.port, "repo"), good.clone())).update().await;
    let total = whole.passed();
    // The last bytes close the channel, and the pack is complete before them.
    let cuts = [0, 1, 10, 30].into_iter().chain((1..20).map(|step| total * step / 21));
    for cut in cuts {
        let relay = Relay::start(server.port(), cut);
        let remote = Remote { timeout: LONG, ..remote(&url(relay.port, "repo"), good.clone()) };
        let fixture = Fixture::new(remote);
        let error = fixture.fetch().await.expect_err("it is cut");
        assert!(["AnswerNotUnderstood"].contains(&error.reason()), "after {cut} of {total} bytes: {error}");
        assert!(fixture.mirror().last_good().is_none());
    }
}

#[tokio::test]
async fn link_local_addresses_are_refused_before_connecting_over_ssh() {
    for host in ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "100.100.100.200"] {
        let url = format!("ssh://git@{host}/repo");
        let (reason, sentence) = failure(remote(&url, access("ed25519", &["host_ed25519"]))).await;
        assert_eq!(reason, "AddressRefused", "{sentence}");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = url(port, "repo");
    let (reason, sentence) = failure(remote(&url, access("ed25519", &["host_ed25519"]))).await;
    assert_eq!((reason, sentence), ("Unreachable", format!("cannot reach {url}: connection refused")));
}
