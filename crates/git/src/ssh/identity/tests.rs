use std::{fs, path::Path};

use russh::keys::ssh_key::LineEnding;

use super::*;

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/ssh").join(name)).unwrap()
}

fn open(identity: &str, passphrase: Option<&str>) -> Result<String, IdentityProblem> {
    let access =
        SshAccess { identity: Some(identity.to_owned()), passphrase: passphrase.map(str::to_owned), known_hosts: None };
    access.key().map(|key| key.public_key().to_openssh().unwrap().trim_end().to_owned())
}

#[test]
fn a_key_of_each_kind_and_format_is_read() {
    for (file, public) in [
        ("ed25519", "ed25519"),
        ("ecdsa", "ecdsa"),
        ("ecdsa521", "ecdsa521"),
        ("ecdsa_sec1", "ecdsa"),
        ("ecdsa_pkcs8", "ecdsa"),
        ("rsa", "rsa"),
        ("rsa_pkcs1", "rsa"),
        ("rsa_pkcs8", "rsa"),
    ] {
        let expected = text(&format!("{public}.pub")).trim_end().to_owned();
        assert_eq!(open(&text(file), None), Ok(expected.clone()), "{file}");
        // As an editor on Windows leaves it, and with space around it.
        let edited = format!("\r\n{}\r\n", text(file).replace('\n', "\r\n"));
        assert_eq!(open(&edited, None), Ok(expected), "{file}");
    }
}

#[test]
fn an_encrypted_key_needs_its_passphrase() {
    let key = text("ed25519_encrypted");
    assert_eq!(open(&key, Some("passphrase")), Ok(text("ed25519.pub").trim_end().to_owned()));
    assert_eq!(open(&key, Some("wrong")), Err(IdentityProblem::Passphrase));
    assert_eq!(open(&key, None), Err(IdentityProblem::Encrypted));
    // A passphrase that is not needed does no harm.
    assert_eq!(open(&text("ed25519"), Some("unused")), Ok(text("ed25519.pub").trim_end().to_owned()));
}

#[test]
fn what_is_not_a_good_key_is_named() {
    for (file, expected) in [
        ("dsa", IdentityProblem::Dsa),
        ("rsa_1024", IdentityProblem::Short),
        ("rsa.pub", IdentityProblem::Public),
        ("ecdsa.pub", IdentityProblem::Public),
        ("rsa_pkcs1_encrypted", IdentityProblem::Format),
        ("rsa_pkcs8_encrypted", IdentityProblem::Format),
        ("host_certified-cert.pub", IdentityProblem::Public),
    ] {
        assert_eq!(open(&text(file), Some("passphrase")), Err(expected), "{file}");
    }
    for (text, expected) in [
        ("", IdentityProblem::Invalid),
        ("s3cret", IdentityProblem::Invalid),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", IdentityProblem::Invalid),
        ("-----BEGIN DSA PRIVATE KEY-----\n", IdentityProblem::Dsa),
        ("PuTTY-User-Key-File-3: ssh-ed25519\n", IdentityProblem::Putty),
        ("-----BEGIN PUBLIC KEY-----\n", IdentityProblem::Public),
    ] {
        assert_eq!(open(text, None), Err(expected), "{text}");
    }
    assert_eq!(SshAccess::default().key().unwrap_err(), IdentityProblem::Missing);
    assert_eq!(
        format!("{:?}", SshAccess { identity: Some("s3cret".to_owned()), ..SshAccess::default() }),
        "SshAccess(…)"
    );
}

#[test]
fn a_key_that_takes_too_long_to_decrypt_is_refused_before_that() {
    let key = PrivateKey::from_openssh(text("ed25519_encrypted")).unwrap();
    let mut bytes = key.to_bytes().unwrap().to_vec();
    // The rounds follow the salt of 16 bytes.
    let at = bytes.windows(4).position(|window| window == [0, 0, 0, 16]).unwrap() + 4 + 16;
    bytes[at..at + 4].copy_from_slice(&(ROUNDS_MAX + 1).to_be_bytes());
    let key = PrivateKey::from_bytes(&bytes).unwrap().to_openssh(LineEnding::LF).unwrap();
    assert_eq!(open(&key, Some("passphrase")), Err(IdentityProblem::Rounds));
}
