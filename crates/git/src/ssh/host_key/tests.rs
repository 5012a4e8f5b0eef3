use std::{fs, path::Path};

use super::*;
use crate::ssh::known_hosts::KnownHosts;

const NOW: u64 = 1_700_000_000;

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/ssh").join(name)).unwrap()
}

/// Replaces `{name}` by the key in a file.
fn known_hosts(lines: &str) -> KnownHosts {
    let names = ["host_ed25519", "host_rsa", "rsa_1024", "ca", "dsa", "ed25519"];
    let lines = names.iter().fold(lines.to_owned(), |lines, name| {
        let place = format!("{{{name}}}");
        if lines.contains(&place) { lines.replace(&place, &public(name).to_openssh().unwrap()) } else { lines }
    });
    KnownHosts::parse(&lines).unwrap()
}

fn public(name: &str) -> PublicKey {
    russh::keys::PrivateKey::from_openssh(text(name)).unwrap().public_key().clone()
}

fn plain(name: &str) -> PublicKeyOrCertificate {
    public(name).into()
}

fn certificate(name: &str) -> PublicKeyOrCertificate {
    Certificate::from_openssh(&text(&format!("{name}-cert.pub"))).unwrap().into()
}

fn verdict(found: &PublicKeyOrCertificate, lines: &str) -> String {
    let known = known_hosts(lines);
    match check(found, "localhost", Some(&known.of("localhost", 22)), NOW) {
        Ok(()) => "trusted".to_owned(),
        Err(problem) => problem.to_string(),
    }
}

#[test]
fn only_a_known_key_is_trusted() {
    let key = plain("host_ed25519");
    assert_eq!(verdict(&key, "localhost {host_ed25519}"), "trusted");
    assert_eq!(verdict(&key, "localhost {host_rsa}\nlocalhost {host_ed25519}"), "trusted");
    assert_eq!(
        verdict(&key, "other {host_ed25519}"),
        "has the host key ssh-ed25519 SHA256:IFRMLnL729eQqi/fJdkMb9/bTvdp8tInc+QeI+xXwk8, which known_hosts does not \
         contain: compare the fingerprint with the docs of the git server, and add the key of `ssh-keyscan` to \
         known_hosts in the Secret"
    );
    assert_eq!(
        verdict(&key, "localhost {host_rsa}"),
        "has the host key ssh-ed25519 SHA256:IFRMLnL729eQqi/fJdkMb9/bTvdp8tInc+QeI+xXwk8, but known_hosts has \
         SHA256:cnvTjlRVqC8utHrVFayS5dKViHH4My6gwCn1x/XTUZ0: someone may intercept the connection; if the git server \
         has a new key, compare the fingerprint with its docs, and correct known_hosts in the Secret"
    );
    let unknown = check(&key, "localhost", None, NOW).unwrap_err().to_string();
    assert!(unknown.contains("SHA256:IFRMLnL729eQqi/fJdkMb9/bTvdp8tInc+QeI+xXwk8, and the Secret has no known_hosts"));
}

#[test]
fn a_revoked_key_is_refused_even_if_it_is_known() {
    let lines = "localhost {host_ed25519}\n@revoked * {host_ed25519}";
    assert!(verdict(&plain("host_ed25519"), lines).contains("which known_hosts revokes"));
    let lines = "@cert-authority * {ca}\n@revoked localhost {ca}";
    assert!(verdict(&certificate("host_certified"), lines).contains("which known_hosts revokes"));
    let lines = "@cert-authority * {ca}\n@revoked localhost {host_ed25519}";
    assert!(verdict(&certificate("host_certified"), lines).contains("which known_hosts revokes"));
}

#[test]
fn a_weak_key_is_refused_even_if_it_is_known() {
    assert!(verdict(&plain("rsa_1024"), "localhost {rsa_1024}").contains("which is weak"));
    assert!(verdict(&plain("dsa"), "localhost {dsa}").contains("has the host key or CA ssh-dss SHA256:"));
}

#[test]
fn a_certificate_is_trusted_if_a_known_ca_signed_it_for_this_host_and_time() {
    let lines = "@cert-authority *host {ca}";
    assert_eq!(verdict(&certificate("host_certified"), lines), "trusted");
    for (name, expected) in [
        ("host_expired", "has a host certificate that has expired: renew it, and check the clock of this machine"),
        ("host_other", "has a host certificate that is for other hosts: add the host of the URL to its principals"),
        ("host_user", "has a host certificate that is for users, not for hosts"),
    ] {
        assert_eq!(verdict(&certificate(name), lines), expected);
    }
    let early =
        check(&certificate("host_expired"), "localhost", Some(&known_hosts(lines).of("localhost", 22)), 1_000_000_000);
    assert!(early.unwrap_err().to_string().contains("not valid yet"));
    let unknown = verdict(&certificate("host_certified"), "localhost {host_rsa}\n@cert-authority * {ed25519}");
    assert!(
        unknown.starts_with(
            "has a host certificate of the CA ssh-ed25519 SHA256:inSMPMpZcXxKDhAvMfcegiEB6ptlsfHT5nfajZ4YKCA, which"
        ),
        "{unknown}"
    );
}

#[test]
fn a_certificate_of_an_unknown_ca_is_judged_by_its_key() {
    let found = certificate("host_certified");
    assert_eq!(verdict(&found, "localhost {host_ed25519}\n@cert-authority * {ed25519}"), "trusted");
    assert_eq!(verdict(&found, "localhost {host_ed25519}"), "trusted");
    let changed =
        "has the host key ssh-ed25519 SHA256:IFRMLnL729eQqi/fJdkMb9/bTvdp8tInc+QeI+xXwk8, but known_hosts has";
    assert!(verdict(&found, "localhost {host_rsa}").starts_with(changed));
    // A certificate of a known CA stands for itself.
    let expired = verdict(&certificate("host_expired"), "localhost {host_ed25519}\n@cert-authority * {ca}");
    assert!(expired.contains("has expired"), "{expired}");
}

#[test]
fn a_certificate_whose_signature_is_wrong_is_refused() {
    let PublicKeyOrCertificate::Certificate(good) = certificate("host_certified") else { unreachable!() };
    let mut bytes = good.to_bytes().unwrap();
    let last = bytes.len() - 1;
    bytes[last - 40] ^= 1;
    let found = Certificate::from_bytes(&bytes).unwrap().into();
    assert_eq!(verdict(&found, "@cert-authority * {ca}"), "has a host certificate that has an invalid signature");
}
