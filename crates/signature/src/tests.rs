//! Objects that git, gpg and ssh-keygen have made: `fixtures/make.sh`.

use std::{fs, path::Path};

use super::*;

/// Five days after the fixtures were made.
const NOW: &str = "2026-11-25T12:00:00Z";
const ANNA: &str = "228426C23F64254E2DC235BA1CA5716F8D4D774C";

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)).unwrap()
}

fn keys(names: &[&str]) -> Keys {
    let files: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (*name, fixture(name))).collect();
    Keys::parse(files.iter().map(|(name, content)| (*name, &**content))).unwrap()
}

fn all() -> Keys {
    keys(&["allowed_signers", "anna.asc", "bert.asc", "carl.asc", "gone.asc", "old.asc", "small.asc", "weak.asc"])
}

fn object(name: &str) -> SignedObject {
    let kind = if name.ends_with(".tag") { ObjectKind::Tag } else { ObjectKind::Commit };
    SignedObject::parse(kind, &fixture(name)).unwrap()
}

fn at(now: &str, name: &str) -> Result<String, String> {
    match verify(&object(name), &all(), now.parse().unwrap()) {
        Ok(signer) => Ok(signer.names.join(" ")),
        Err(refusal) => Err(refusal.reason().to_owned()),
    }
}

#[test]
fn what_git_has_signed_is_verified_and_what_proves_nothing_is_refused_by_name() {
    for (name, expected) in [
        ("openpgp-anna.commit", Ok("anna@example.com Anna <anna@example.com>")),
        ("openpgp-anna.tag", Ok("anna@example.com Anna <anna@example.com>")),
        ("openpgp-bert.commit", Ok("bert@example.com Bert <bert@example.com>")),
        ("openpgp-sha1.commit", Err("WeakAlgorithm")),
        ("openpgp-small.commit", Err("WeakAlgorithm")),
        ("openpgp-dsa.commit", Err("WeakAlgorithm")),
        ("openpgp-old.commit", Err("KeyExpired")),
        ("openpgp-gone.commit", Err("KeyRevoked")),
        ("openpgp-carl.commit", Err("KeyRevoked")),
        ("openpgp-stranger.commit", Err("UnknownKey")),
        ("unsigned.commit", Err("Unsigned")),
        ("ssh-ed25519.commit", Ok("anna@example.com")),
        ("ssh-ed25519.tag", Ok("anna@example.com")),
        ("ssh-ecdsa.commit", Ok("bert@example.com Bert")),
        ("ssh-rsa.commit", Ok("carl@example.com")),
        ("ssh-certified.commit", Ok("dora@example.com")),
        ("ssh-file.commit", Err("OtherNamespace")),
    ] {
        assert_eq!(at(NOW, name), expected.map(str::to_owned).map_err(str::to_owned), "{name}");
    }
}

#[test]
fn keys_must_be_valid_when_they_sign_and_now() {
    for (now, name, expected) in [
        // The day before it expires.
        ("2026-11-21T12:00:00Z", "openpgp-old.commit", Ok("old@example.com Old <old@example.com>")),
        ("2027-01-02T00:00:00Z", "ssh-rsa.commit", Err("KeyExpired")),
        ("2027-01-02T00:00:00Z", "ssh-certified.commit", Err("KeyExpired")),
        ("2026-11-20T11:55:00Z", "ssh-rsa.commit", Ok("carl@example.com")),
        ("2026-11-20T11:30:00Z", "ssh-rsa.commit", Err("SignatureFromFuture")),
        ("2026-11-20T11:30:00Z", "openpgp-anna.commit", Err("SignatureFromFuture")),
        ("2025-06-01T00:00:00Z", "ssh-certified.commit", Err("SignatureFromFuture")),
    ] {
        assert_eq!(at(now, name), expected.map(str::to_owned).map_err(str::to_owned), "{name} at {now}");
    }
}

/// The old copies are as the keys were before the revocation: without its packet.
#[test]
fn a_revocation_holds_for_every_copy_of_a_key() {
    use pgp::{
        composed::{Deserializable as _, SignedPublicKey},
        packet::SignatureType,
    };
    for (name, commit) in [("gone.asc", "openpgp-gone.commit"), ("carl.asc", "openpgp-carl.commit")] {
        let (mut old, _) = SignedPublicKey::from_armor_single(&*fixture(name)).unwrap();
        old.details.revocation_signatures.clear();
        for subkey in &mut old.public_subkeys {
            subkey.signatures.retain(|signature| signature.typ() != Some(SignatureType::SubkeyRevocation));
        }
        let (old, new) = (old.to_armored_bytes(None.into()).unwrap(), fixture(name));
        let reason = |files: &[&[u8]]| {
            let names = ["a.asc", "b.asc"];
            let keys = Keys::parse(names.into_iter().zip(files.iter().copied())).unwrap();
            assert_eq!(keys.certificates().len(), 1, "{name}");
            verify(&object(commit), &keys, NOW.parse().unwrap()).map(drop).map_err(|refusal| refusal.reason())
        };
        assert_eq!(reason(&[&old]), Ok(()), "{name}: the copy alone is trusted");
        assert_eq!(reason(&[&old, &new]), Err("KeyRevoked"), "{name}");
        assert_eq!(reason(&[&new, &old]), Err("KeyRevoked"), "{name}");
    }
}

/// The headers of one commit with the signature of another.
#[test]
fn a_signature_over_another_object_is_refused() {
    for (content, signature) in [
        ("openpgp-bert.commit", "openpgp-anna.commit"),
        ("unsigned.commit", "openpgp-anna.commit"),
        ("unsigned.commit", "openpgp-bert.commit"),
        ("unsigned.commit", "ssh-ed25519.commit"),
        ("unsigned.commit", "ssh-ecdsa.commit"),
        ("unsigned.commit", "ssh-rsa.commit"),
        ("unsigned.commit", "ssh-certified.commit"),
    ] {
        let text = |name| String::from_utf8(fixture(name)).unwrap();
        let (signed, plain) = (text(signature), text(content));
        let begin = signed.find("gpgsig ").unwrap();
        let end = signed.find("\n\n").unwrap();
        let moved = &signed[begin..=end];
        let stripped = match plain.find("gpgsig ") {
            Some(at) => format!("{}{}", &plain[..at], &plain[plain.find("\n\n").unwrap() + 1..]),
            None => plain,
        };
        let at = stripped.find("\n\n").unwrap() + 1;
        let forged = format!("{}{moved}{}", &stripped[..at], &stripped[at..]);
        let object = SignedObject::parse(ObjectKind::Commit, forged.as_bytes()).unwrap();
        let refusal = verify(&object, &all(), NOW.parse().unwrap()).unwrap_err();
        assert_eq!(refusal.reason(), "BadSignature", "{content} with {signature}");
    }
}

#[test]
fn keys_that_cannot_be_used_are_refused_with_their_name() {
    let parse = |name: &str, content: &str| {
        Keys::parse([(name, content.as_bytes())]).map(drop).map_err(|error| error.to_string())
    };
    let anna = String::from_utf8(fixture("anna.asc")).unwrap();
    assert_eq!(parse("a.asc", &format!("{anna}\n{anna}")), Ok(()), "several blocks");
    let cut = anna.replace("mDME", "mDMF");
    for (name, content, expected) in [
        ("a.asc", "key", "a.asc: it is no armored OpenPGP public key; signers of SSH are read from allowed_signers"),
        (
            "a.asc",
            "-----BEGIN PGP PRIVATE KEY BLOCK-----",
            "a.asc: it contains a private key: replace that key, and keep only public keys here",
        ),
        ("a.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n", "a.asc: it has no valid OpenPGP public key"),
        ("a.asc", &cut, "a.asc: it has no valid OpenPGP public key"),
        (
            "allowed_signers",
            "# nobody\n",
            "verify.secretRef: there is no key: add armored OpenPGP public keys, or an allowed_signers file",
        ),
        (
            "allowed_signers",
            "\nanna",
            "allowed_signers:2: there is no key; a line is `principals [options] key-type key`",
        ),
        ("allowed_signers", "anna ssh-ed25519 AAAA", "allowed_signers:1: the key cannot be read"),
        (
            "allowed_signers",
            "!anna ssh-ed25519 AAAA",
            "allowed_signers:1: the line only excludes principals: add one that it allows, for example `*`",
        ),
        (
            "allowed_signers",
            "anna verify-required ssh-ed25519 AAAA",
            "allowed_signers:1: the option \"verify-required\" is unknown or has no value",
        ),
        (
            "allowed_signers",
            "anna valid-after=\"2026\" ssh-ed25519 AAAA",
            "allowed_signers:1: invalid time \"2026\": use YYYYMMDD or YYYYMMDDHHMMSS, for example 20270131",
        ),
    ] {
        assert_eq!(parse(name, content), Err(expected.to_owned()), "{content}");
    }
    let large = "#".repeat(limits::KEYS_BYTES_MAX + 1);
    assert_eq!(
        parse("allowed_signers", &large),
        Err("allowed_signers: all keys together are larger than 1 MiB".to_owned())
    );
}

#[test]
fn the_signer_is_shown_with_name_and_key() {
    let signer = verify(&object("openpgp-anna.commit"), &all(), NOW.parse().unwrap()).unwrap();
    assert_eq!(signer.to_string(), format!("anna@example.com with key {ANNA}"));
    let only = keys(&["anna.asc"]);
    let refusal = verify(&object("ssh-ed25519.commit"), &only, NOW.parse().unwrap()).unwrap_err();
    assert!(refusal.to_string().starts_with("it is signed with key SHA256:"), "{refusal}");
}

#[test]
fn a_rule_names_a_signer_by_name_or_by_key_in_any_spelling() {
    let openpgp = Signer { names: vec!["anna@example.com".to_owned()], key: "ABCD0123".to_owned() };
    let ssh = Signer { names: vec!["bert".to_owned()], key: "SHA256:aBc".to_owned() };
    for (signer, name, expected) in [
        (&openpgp, "anna@example.com", true),
        (&openpgp, "Anna@example.com", false),
        (&openpgp, "abcd 0123", true),
        (&openpgp, "0xABCD0123", true),
        (&openpgp, "ABCD", false),
        (&openpgp, "", false),
        (&ssh, "bert", true),
        (&ssh, "SHA256:aBc", true),
        (&ssh, "SHA256:abc", false),
    ] {
        assert_eq!(signer.is(name), expected, "{name}");
    }
}
