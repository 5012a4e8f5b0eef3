//! The algorithms of ssh that Tidegate offers. Pure.
//!
//! The ciphers are those that russh takes from ring; they authenticate each packet, so no MAC is used with them. ring
//! has no key exchange of ssh: russh takes it from the crates of RustCrypto and dalek. Nothing uses SHA-1, CBC or RC4.

use std::borrow::Cow;

use russh::{
    Preferred, cipher, compression, kex,
    keys::{Algorithm, EcdsaCurve, HashAlg},
    mac,
};

use super::known_hosts::{self, HostKeys};

/// Key exchanges, the preferred one first. The last two are no algorithms but announcements.
const KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::ECDH_SHA2_NISTP521,
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
];

/// Ciphers of ring.
const CIPHERS: &[cipher::Name] = &[cipher::AES_256_GCM, cipher::AES_128_GCM, cipher::CHACHA20_POLY1305];

/// The list must not be empty, although no cipher needs a MAC.
const MACS: &[mac::Name] = &[mac::HMAC_SHA512_ETM, mac::HMAC_SHA256_ETM];

/// Compression gives nothing: packs are compressed.
const COMPRESSION: &[compression::Name] = &[compression::NONE];

/// Algorithms of host keys.
const HOST_KEYS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// Names that servers offer and Tidegate does not. An error repeats no other name of a server.
const REFUSED: [&str; 29] = [
    "ssh-rsa",
    "ssh-dss",
    "diffie-hellman-group1-sha1",
    "diffie-hellman-group14-sha1",
    "diffie-hellman-group-exchange-sha1",
    "diffie-hellman-group-exchange-sha256",
    "diffie-hellman-group14-sha256",
    "diffie-hellman-group15-sha512",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group17-sha512",
    "diffie-hellman-group18-sha512",
    "sntrup761x25519-sha512",
    "sntrup761x25519-sha512@openssh.com",
    "3des-cbc",
    "blowfish-cbc",
    "cast128-cbc",
    "arcfour",
    "arcfour128",
    "arcfour256",
    "aes128-cbc",
    "aes192-cbc",
    "aes256-cbc",
    "rijndael-cbc@lysator.liu.se",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "none",
];

/// What is offered to a host with these keys. A server chooses one of its keys by what is offered, so the types of
/// known keys come first. The others follow, so that a host whose key changed shows the new one, of whatever type. The
/// key in a certificate may be known as well, so certificates of the types of known keys are accepted even without a
/// CA.
pub(super) fn offered(known: &HostKeys<'_>) -> Preferred {
    let names: Vec<&str> = known.keys.iter().filter_map(|key| known_hosts::algorithm(key)).collect();
    let is_known = |algorithm: &Algorithm| names.contains(&key_type(algorithm));
    let (of_known, others): (Vec<_>, Vec<_>) = HOST_KEYS.iter().cloned().partition(is_known);
    let certificates = if known.authorities.is_empty() { of_known.clone() } else { HOST_KEYS.to_vec() };
    Preferred {
        kex: Cow::Borrowed(KEX),
        key: Cow::Owned([of_known, others].concat()),
        host_key_certificates: Cow::Owned(certificates),
        cipher: Cow::Borrowed(CIPHERS),
        mac: Cow::Borrowed(MACS),
        compression: Cow::Borrowed(COMPRESSION),
    }
}

/// The type of a key with this algorithm: those of RSA differ in their hash only.
fn key_type(algorithm: &Algorithm) -> &str {
    match algorithm {
        Algorithm::Rsa { .. } => "ssh-rsa",
        other => other.as_str(),
    }
}

/// Those names of a server that are known and refused.
pub(super) fn refused(theirs: &[String]) -> Vec<&'static str> {
    REFUSED.into_iter().filter(|name| theirs.iter().any(|theirs| theirs == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_known_keys_come_first() {
        let blob = |name: &str| [&u32::try_from(name.len()).unwrap().to_be_bytes(), name.as_bytes()].concat();
        let (ecdsa, rsa, foreign) = (blob("ecdsa-sha2-nistp384"), blob("ssh-rsa"), blob("ssh-dss"));
        let names =
            |known: &HostKeys<'_>| offered(known).key.iter().map(Algorithm::to_string).collect::<Vec<_>>().join(" ");
        let of = |keys: Vec<&[u8]>| names(&HostKeys { keys: keys.clone(), ..HostKeys::default() });
        let all = "ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521 rsa-sha2-512 rsa-sha2-256";
        assert_eq!(of(vec![]), all);
        assert_eq!(of(vec![&foreign]), all);
        let first = "ecdsa-sha2-nistp384 rsa-sha2-512 rsa-sha2-256 ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp521";
        assert_eq!(of(vec![&rsa, &ecdsa]), first);
        let known = HostKeys { keys: vec![&ecdsa], ..HostKeys::default() };
        let certificates = [Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 }];
        assert_eq!(*offered(&known).host_key_certificates, certificates);
        let authority = HostKeys { authorities: vec![&rsa], ..HostKeys::default() };
        assert_eq!((names(&authority).as_str(), offered(&authority).host_key_certificates.len()), (all, 6));
        assert!(offered(&HostKeys::default()).host_key_certificates.is_empty());
    }

    #[test]
    fn only_known_names_of_a_server_are_repeated() {
        let theirs = ["ssh-dss", "s3cret", "ssh-rsa", "ssh-ed25519"].map(str::to_owned);
        assert_eq!(refused(&theirs), ["ssh-rsa", "ssh-dss"]);
    }
}
