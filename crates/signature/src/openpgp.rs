//! OpenPGP signatures.
//!
//! `pgp` parses packets and does the arithmetic; which key may sign what, and when, is decided here:
//!
//! * A key counts with a self-signature that uses no weak hash. Its latest one says when the key expires.
//! * A revocation in the keys revokes, whatever its reason, date and signature: the keys come from the operator.
//! * Copies of one key count as one key: what any of them says, such as a revocation, holds.
//! * A subkey signs if its latest binding says so and it has confirmed the primary key.
//! * A key must be valid when it signed and now.

use jiff::Timestamp;
use pgp::{
    composed::{Deserializable as _, DetachedSignature, SignedPublicKey, SignedPublicSubKey},
    crypto::{hash::HashAlgorithm, public_key::PublicKeyAlgorithm},
    packet::{KeyFlags, Signature, SignatureType, SubpacketData},
    types::{KeyDetails, PublicParams, Tag, VerifyingKey},
};

use crate::{Signer, limits, refusal::Refusal};

/// An OpenPGP public key with its subkeys and names.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    key: SignedPublicKey,
    /// The fingerprint of the primary key.
    fingerprint: String,
    names: Vec<String>,
}

/// What the latest valid self-signature, or binding of a subkey, says.
struct Validity {
    /// Seconds after the creation of the key; none if it never expires.
    expires_after: Option<u32>,
    /// None if it does not say what the key is for.
    flags: Option<KeyFlags>,
}

/// Who signed these bytes. Fails if the signature is invalid, or if no certificate may have made it.
pub(crate) fn verify(
    armored: &str,
    payload: &[u8],
    certificates: &[Certificate],
    now: Timestamp,
) -> Result<Signer, Refusal> {
    let unread = |_| Refusal::NotUnderstood("it is not an OpenPGP signature");
    let (signature, _) = DetachedSignature::from_armor_single(armored.as_bytes()).map_err(unread)?;
    let signature = signature.signature;
    if signature.typ() != Some(SignatureType::Binary) {
        return Err(Refusal::NotUnderstood("it is not a signature of a document"));
    }
    check_hash(&signature)?;
    check_critical(&signature)?;
    let Some((certificate, subkey)) = certificates.iter().find_map(|one| one.issuer(&signature)) else {
        return Err(Refusal::UnknownKey { key: issuer(&signature) });
    };
    let key = || certificate.fingerprint.clone();
    let created = signature.created().ok_or(Refusal::NotUnderstood("it has no date"))?.as_secs();
    let now = now.as_second();
    if now.saturating_add(limits::CLOCK_SKEW_MAX) < i64::from(created) {
        return Err(Refusal::SignatureFromFuture { key: key() });
    }
    let expires_after = signature.signature_expiration_time().map(pgp::types::Duration::as_secs);
    if ends(created, expires_after).is_some_and(|end| end <= now) {
        return Err(Refusal::SignatureExpired { key: key() });
    }
    let times = (i64::from(created), now);
    let primary = certificate.primary()?;
    certificate.check_times(&certificate.key.primary_key, &primary, times)?;
    let result = match subkey {
        None => {
            if primary.flags.is_some_and(|flags| !flags.sign()) {
                return Err(Refusal::KeyNotForSigning { key: key(), why: "is not for signing" });
            }
            certificate.check_algorithm(&certificate.key.primary_key)?;
            verify_with(&signature, &certificate.key.primary_key, payload)
        }
        Some(subkey) => {
            let validity = certificate.binding(subkey)?;
            certificate.check_times(&subkey.key, &validity, times)?;
            certificate.check_algorithm(&subkey.key)?;
            verify_with(&signature, &subkey.key, payload)
        }
    };
    result.map_err(|()| Refusal::BadSignature { key: key() })?;
    Ok(Signer { names: certificate.names.clone(), key: key() })
}

fn verify_with(signature: &Signature, key: &impl VerifyingKey, payload: &[u8]) -> Result<(), ()> {
    signature.verify(key, payload).map_err(drop)
}

/// When something ends that was created then; never without a duration.
fn ends(created: u32, after: Option<u32>) -> Option<i64> {
    after.filter(|after| *after != 0).map(|after| i64::from(created) + i64::from(after))
}

/// The key that a signature names.
fn issuer(signature: &Signature) -> String {
    let fingerprint = signature.issuer_fingerprint().first().map(|fingerprint| format!("{fingerprint:X}"));
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02X}")).collect();
    let id = || signature.issuer_key_id().first().map(|id| hex(id.as_ref()));
    fingerprint.or_else(id).unwrap_or_else(|| "without a name".to_owned())
}

/// Refuses weak hashes by name.
fn check_hash(signature: &Signature) -> Result<(), Refusal> {
    let weak = |algorithm: &str| Err(Refusal::WeakAlgorithm { algorithm: algorithm.to_owned() });
    match signature.hash_alg() {
        Some(
            HashAlgorithm::Sha256
            | HashAlgorithm::Sha384
            | HashAlgorithm::Sha512
            | HashAlgorithm::Sha3_256
            | HashAlgorithm::Sha3_512,
        ) => Ok(()),
        Some(HashAlgorithm::Sha1) => weak("SHA-1"),
        Some(HashAlgorithm::Md5) => weak("MD5"),
        Some(HashAlgorithm::Ripemd160) => weak("RIPEMD-160"),
        Some(HashAlgorithm::Sha224) => weak("SHA-224"),
        _ => Err(Refusal::NotUnderstood("its hash algorithm is unknown")),
    }
}

/// Refuses what a signature says must be understood, and is not.
fn check_critical(signature: &Signature) -> Result<(), Refusal> {
    let mut all = signature.config().into_iter().flat_map(pgp::packet::SignatureConfig::hashed_subpackets);
    let is_unknown = |data: &SubpacketData| {
        matches!(data, SubpacketData::Other(..) | SubpacketData::Experimental(..) | SubpacketData::Notation(_))
    };
    if all.any(|subpacket| subpacket.is_critical && is_unknown(&subpacket.data)) {
        return Err(Refusal::NotUnderstood("it has a critical part that is unknown"));
    }
    Ok(())
}

fn flags(signature: &Signature) -> Option<KeyFlags> {
    let mut all = signature.config()?.hashed_subpackets();
    all.find_map(|subpacket| match &subpacket.data {
        SubpacketData::KeyFlags(flags) => Some(flags.clone()),
        _ => None,
    })
}

fn validity(signature: &Signature) -> Validity {
    Validity {
        expires_after: signature.key_expiration_time().map(pgp::types::Duration::as_secs),
        flags: flags(signature),
    }
}

/// When a signature was made; none if it does not say, and then it does not count.
fn made(signature: &Signature) -> Option<u32> {
    signature.created().map(pgp::types::Timestamp::as_secs)
}

// === impl Certificate ===

impl Certificate {
    /// Reads the keys of an armored block. Fails with a sentence about what is wrong.
    pub(crate) fn parse(armored: &str) -> Result<Vec<Certificate>, String> {
        let unread = |_| "it has no valid OpenPGP public key".to_owned();
        let (keys, _) = SignedPublicKey::from_armor_many(armored.as_bytes()).map_err(unread)?;
        let mut certificates = Vec::new();
        for key in keys {
            if limits::OPENPGP_KEYS_MAX <= certificates.len() {
                return Err(format!("there are more than {} keys", limits::OPENPGP_KEYS_MAX));
            }
            certificates.push(Certificate::new(key.map_err(unread)?)?);
        }
        if certificates.is_empty() { Err("it has no valid OpenPGP public key".to_owned()) } else { Ok(certificates) }
    }

    fn new(key: SignedPublicKey) -> Result<Certificate, String> {
        let of_users: usize = key.details.users.iter().map(|user| user.signatures.len()).sum();
        let of_subkeys: usize = key.public_subkeys.iter().map(|subkey| 1 + subkey.signatures.len()).sum();
        let parts = of_users + of_subkeys + key.details.direct_signatures.len();
        let fingerprint = format!("{:X}", key.fingerprint());
        if limits::OPENPGP_PARTS_MAX < parts {
            return Err(format!(
                "key {fingerprint} has more than {} signatures and subkeys; export it with --export-options \
                 export-minimal",
                limits::OPENPGP_PARTS_MAX
            ));
        }
        let mut certificate = Certificate { key, fingerprint, names: Vec::new() };
        certificate.names = certificate.valid_names();
        Ok(certificate)
    }

    /// The fingerprint of the primary key.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether the key has this name, and is neither revoked nor expired.
    pub(crate) fn claims(&self, name: &str, now: Timestamp) -> bool {
        let times = (now.as_second(), now.as_second());
        let is_valid = || self.primary().is_ok_and(|it| self.check_times(&self.key.primary_key, &it, times).is_ok());
        self.names.iter().any(|own| own == name) && is_valid()
    }

    /// Adds a key to others. If they have a copy of it, the copy gets what is new in it: an older copy does not know of
    /// a revocation. Fails with a sentence about what is wrong.
    pub(crate) fn add_to(self, all: &mut Vec<Certificate>) -> Result<(), String> {
        let Some(copy) = all.iter_mut().find(|one| one.fingerprint == self.fingerprint) else {
            if limits::OPENPGP_KEYS_MAX <= all.len() {
                return Err(format!("there are more than {} keys", limits::OPENPGP_KEYS_MAX));
            }
            all.push(self);
            return Ok(());
        };
        let (mut key, other) = (copy.key.clone(), self.key);
        add_new(&mut key.details.revocation_signatures, other.details.revocation_signatures);
        add_new(&mut key.details.direct_signatures, other.details.direct_signatures);
        for user in other.details.users {
            match key.details.users.iter_mut().find(|one| one.id == user.id) {
                Some(one) => add_new(&mut one.signatures, user.signatures),
                None => key.details.users.push(user),
            }
        }
        for subkey in other.public_subkeys {
            match key.public_subkeys.iter_mut().find(|one| one.key.fingerprint() == subkey.key.fingerprint()) {
                Some(one) => add_new(&mut one.signatures, subkey.signatures),
                None => key.public_subkeys.push(subkey),
            }
        }
        *copy = Certificate::new(key)?;
        Ok(())
    }

    /// The mail addresses and user ids that the key has signed and not revoked, the addresses first.
    fn valid_names(&self) -> Vec<String> {
        let users = self.key.details.users.iter();
        let valid = users.filter(|user| {
            let is_own = |signature: &&Signature| {
                signature.verify_certification(&self.key.primary_key, Tag::UserId, &user.id).is_ok()
            };
            let latest = user.signatures.iter().filter(is_own).max_by_key(|signature| made(signature));
            latest.is_some_and(|latest| latest.typ() != Some(SignatureType::CertRevocation))
        });
        let ids: Vec<String> = valid.filter_map(|user| user.id.as_str().map(str::to_owned)).collect();
        let address = |id: &String| {
            let (_, rest) = id.rsplit_once('<')?;
            Some(rest.strip_suffix('>')?.to_owned())
        };
        let mut names: Vec<String> = ids.iter().filter_map(address).collect();
        names.extend(ids.into_iter().filter(|id| id.contains(|character: char| !character.is_control())));
        names
    }

    /// The key that a signature names, if it is in this certificate: the primary key or a subkey.
    fn issuer(&self, signature: &Signature) -> Option<(&Certificate, Option<&SignedPublicSubKey>)> {
        let names = |key: &dyn KeyDetails| {
            let fingerprints = signature.issuer_fingerprint();
            let ids = signature.issuer_key_id();
            match fingerprints.is_empty() {
                true => ids.iter().any(|id| **id == key.legacy_key_id()),
                false => fingerprints.iter().any(|fingerprint| **fingerprint == key.fingerprint()),
            }
        };
        if names(&self.key.primary_key) {
            return Some((self, None));
        }
        let subkey = self.key.public_subkeys.iter().find(|subkey| names(&subkey.key))?;
        Some((self, Some(subkey)))
    }

    /// What the primary key says of itself.
    fn primary(&self) -> Result<Validity, Refusal> {
        let details = &self.key.details;
        if !details.revocation_signatures.is_empty() {
            return Err(Refusal::KeyRevoked { key: self.fingerprint.clone() });
        }
        let primary = &self.key.primary_key;
        let direct = details.direct_signatures.iter().filter(|signature| signature.verify_key(primary).is_ok());
        let of_users = details.users.iter().flat_map(|user| {
            let is_own = |signature: &&Signature| {
                signature.typ() != Some(SignatureType::CertRevocation)
                    && signature.verify_certification(primary, Tag::UserId, &user.id).is_ok()
            };
            user.signatures.iter().filter(is_own)
        });
        self.latest(direct.chain(of_users).collect())
    }

    /// What the primary key says of a subkey.
    fn binding(&self, subkey: &SignedPublicSubKey) -> Result<Validity, Refusal> {
        let key = || self.fingerprint.clone();
        if subkey.signatures.iter().any(|signature| signature.typ() == Some(SignatureType::SubkeyRevocation)) {
            return Err(Refusal::KeyRevoked { key: key() });
        }
        let primary = &self.key.primary_key;
        let is_own = |signature: &&Signature| signature.verify_subkey_binding(primary, &subkey.key).is_ok();
        let bindings: Vec<&Signature> = subkey.signatures.iter().filter(is_own).collect();
        let latest = bindings.iter().max_by_key(|signature| made(signature)).copied();
        let validity = self.latest(bindings)?;
        let is_for_signing = validity.flags.as_ref().is_some_and(KeyFlags::sign);
        let confirms = |back: &Signature| back.verify_primary_key_binding(&subkey.key, primary).is_ok();
        let back = latest.and_then(Signature::embedded_signature);
        if !is_for_signing {
            return Err(Refusal::KeyNotForSigning { key: key(), why: "signs with a subkey that is not for signing" });
        }
        if let Some(back) = back {
            check_hash(back)?;
        }
        if !back.is_some_and(confirms) {
            let why = "signs with a subkey that does not confirm its primary key";
            return Err(Refusal::KeyNotForSigning { key: key(), why });
        }
        Ok(validity)
    }

    /// What the latest of these signatures says. They are valid, but for their hash.
    fn latest(&self, mut all: Vec<&Signature>) -> Result<Validity, Refusal> {
        all.sort_by_key(|signature| made(signature));
        let Some(latest) = all.last() else {
            let why = "has no valid self-signature";
            return Err(Refusal::KeyNotForSigning { key: self.fingerprint.clone(), why });
        };
        check_hash(latest)?;
        check_critical(latest)?;
        Ok(validity(latest))
    }

    /// Whether a key exists and is not expired, at the time of the signature and now.
    fn check_times(&self, key: &impl KeyDetails, validity: &Validity, times: (i64, i64)) -> Result<(), Refusal> {
        let created = key.created_at().as_secs();
        if times.0.min(times.1) < i64::from(created) {
            return Err(Refusal::KeyNotYetValid { key: self.fingerprint.clone() });
        }
        if ends(created, validity.expires_after).is_some_and(|end| end <= times.0.max(times.1)) {
            return Err(Refusal::KeyExpired { key: self.fingerprint.clone() });
        }
        Ok(())
    }

    /// Refuses weak keys by name.
    fn check_algorithm(&self, key: &impl KeyDetails) -> Result<(), Refusal> {
        let weak = |algorithm: String| Err(Refusal::WeakAlgorithm { algorithm });
        match (key.algorithm(), key.public_params()) {
            (PublicKeyAlgorithm::DSA, _) => weak("DSA".to_owned()),
            (_, PublicParams::RSA(params)) => match rsa_bits(params) {
                bits if bits < limits::RSA_BITS_MIN => weak(format!("an RSA key of {bits} bits")),
                bits if limits::RSA_BITS_MAX < bits => Err(Refusal::NotUnderstood("its RSA key is too large")),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

fn add_new(signatures: &mut Vec<Signature>, others: Vec<Signature>) {
    for other in others {
        if !signatures.contains(&other) {
            signatures.push(other);
        }
    }
}

fn rsa_bits(params: &pgp::types::RsaPublicParams) -> usize {
    use pgp::ser::Serialize as _;
    // The modulus and the exponent, each after its length in bits; the first length is that of the modulus.
    let bytes = params.to_bytes().unwrap_or_default();
    match bytes.first_chunk::<2>() {
        Some(length) => usize::from(u16::from_be_bytes(*length)),
        None => 0,
    }
}
