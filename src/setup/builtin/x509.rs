//! Certificates in the form in which cert-manager's CA issuer writes them: what a subject and extensions look like, and
//! the signature.

use std::{net::IpAddr, time::Duration};

use k8s_openapi::jiff::Timestamp;
use pkcs8::PrivateKeyInfoRef;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use sec1::{EcParameters, EcPrivateKey};
use tidegate_core::{api::setup::Subject, plan::certificate::Validity};
use x509_cert::{
    TbsCertificate,
    attr::AttributeTypeAndValue,
    builder::{self, Builder as _, CertificateBuilder, profile::BuilderProfile},
    der::{
        Any, Decode as _, Document, Encode as _, Tag,
        asn1::{BitString, GeneralizedTime, Ia5String, OctetString},
        flagset::FlagSet,
        oid::{AssociatedOid, ObjectIdentifier},
    },
    ext::{
        Extension,
        pkix::{
            AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
            SubjectKeyIdentifier, name::GeneralName,
        },
    },
    name::{Name, RdnSequence, RelativeDistinguishedName},
    serial_number::SerialNumber,
    spki::{
        self, AlgorithmIdentifierOwned, DynSignatureAlgorithmIdentifier, EncodePublicKey, SubjectPublicKeyInfoOwned,
        SubjectPublicKeyInfoRef,
    },
    time::{Time, Validity as X509Validity},
};

use crate::gateway::pki;

/// Anything that cannot be encoded: a name that is too long, for example.
pub(super) type Error = builder::Error;

/// How keys sign.
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");

/// The parts of a subject, in the order in which Go encodes them.
const COUNTRY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.6");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const UNIT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.11");
const LOCALITY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.7");
const PROVINCE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.8");
const STREET: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.9");
const POSTAL_CODE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.17");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const SERIAL_NUMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.5");

/// Length of the identifier of a key, in bytes.
const KEY_ID: usize = 20;
/// Length of a serial number, in bytes.
const SERIAL: usize = 16;

/// What a certificate may be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usages {
    /// Uses of its key. None is no limit.
    pub(super) key: FlagSet<KeyUsages>,
    /// The purposes, by identifier.
    pub(super) purposes: Vec<ObjectIdentifier>,
}

/// What a certificate says, apart from its key, its issuer and its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) subject: Name,
    pub(super) is_ca: bool,
    pub(super) usages: Usages,
    pub(super) dns_names: Vec<Ia5String>,
    pub(super) addresses: Vec<IpAddr>,
}

/// Who signs.
pub(super) struct Signer<'a> {
    /// The subject of its certificate.
    pub(super) name: Name,
    /// The identifier of its key; `None` if the certificate that is signed is its own.
    pub(super) key_id: Option<OctetString>,
    pub(super) key: &'a KeyPair,
}

/// The use of a key or the purpose that a word of cert-manager means; `None` for an unknown word.
pub(super) fn usage(word: &str) -> Option<Result<KeyUsages, ObjectIdentifier>> {
    let purpose = |text: &str| Some(Err(ObjectIdentifier::new_unwrap(text)));
    match word {
        "signing" | "digital signature" => Some(Ok(KeyUsages::DigitalSignature)),
        "content commitment" => Some(Ok(KeyUsages::NonRepudiation)),
        "key encipherment" => Some(Ok(KeyUsages::KeyEncipherment)),
        "key agreement" => Some(Ok(KeyUsages::KeyAgreement)),
        "data encipherment" => Some(Ok(KeyUsages::DataEncipherment)),
        "cert sign" => Some(Ok(KeyUsages::KeyCertSign)),
        "crl sign" => Some(Ok(KeyUsages::CRLSign)),
        "any" => purpose("2.5.29.37.0"),
        "server auth" => purpose("1.3.6.1.5.5.7.3.1"),
        "client auth" => purpose("1.3.6.1.5.5.7.3.2"),
        "code signing" => purpose("1.3.6.1.5.5.7.3.3"),
        "email protection" => purpose("1.3.6.1.5.5.7.3.4"),
        "timestamping" => purpose("1.3.6.1.5.5.7.3.8"),
        "ocsp signing" => purpose("1.3.6.1.5.5.7.3.9"),
        _ => None,
    }
}

/// A subject. Fails if a value cannot be encoded.
pub(super) fn subject(common_name: &str, subject: &Subject) -> Result<Name, Error> {
    let one = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty()).into_iter().collect::<Vec<_>>();
    let parts = [
        (COUNTRY, subject.countries.clone()),
        (ORGANIZATION, subject.organizations.clone()),
        (UNIT, subject.organizational_units.clone()),
        (LOCALITY, subject.localities.clone()),
        (PROVINCE, subject.provinces.clone()),
        (STREET, subject.street_addresses.clone()),
        (POSTAL_CODE, subject.postal_codes.clone()),
        (COMMON_NAME, one(common_name)),
        (SERIAL_NUMBER, one(&subject.serial_number)),
    ];
    let mut all = RdnSequence::default();
    for (oid, values) in parts.into_iter().filter(|(_, values)| !values.is_empty()) {
        // All values of a kind are one set, as in Go.
        let set: Result<Vec<AttributeTypeAndValue>, Error> = values.iter().map(|value| attribute(oid, value)).collect();
        all.push(RelativeDistinguishedName::try_from(set?)?);
    }
    Ok(Name::from_der(&all.to_der()?)?)
}

fn attribute(oid: ObjectIdentifier, value: &str) -> Result<AttributeTypeAndValue, Error> {
    let is_printable = |c: char| c.is_ascii_alphanumeric() || " '()+,-./:=?".contains(c);
    let tag = if value.chars().all(is_printable) { Tag::PrintableString } else { Tag::Utf8String };
    Ok(AttributeTypeAndValue { oid, value: Any::new(tag, value.as_bytes())? })
}

/// Signs a certificate for a key, and returns it in DER. Fails if something cannot be encoded.
pub(super) fn sign(
    statement: &Statement,
    key: &KeyPair,
    validity: Validity,
    signer: &Signer<'_>,
) -> Result<Vec<u8>, Error> {
    let spki = SubjectPublicKeyInfoOwned::from_der(&key.subject_public_key_info())?;
    let mut extensions = statement.extensions()?;
    if statement.is_ca {
        extensions.push(extension(&SubjectKeyIdentifier(key_id(key)?), false)?);
    }
    if let Some(id) = &signer.key_id {
        let id = AuthorityKeyIdentifier { key_identifier: Some(id.clone()), ..AuthorityKeyIdentifier::default() };
        extensions.push(extension(&id, false)?);
    }
    let profile = Profile { issuer: signer.name.clone(), subject: statement.subject.clone(), extensions };
    let validity = X509Validity::new(time(validity.not_before)?, time(validity.not_after)?);
    let mut builder = CertificateBuilder::new(profile, serial()?, validity, spki)?;
    let by = SigningKey(signer.key);
    let text = builder.finalize(&by)?;
    let signature = signer.key.sign(&text).map_err(|_| builder::Error::Signature(signature::Error::new()))?;
    Ok(builder.assemble(BitString::from_bytes(&signature)?, &by)?.to_der()?)
}

/// The identifier of a key: the beginning of a digest of it.
pub(super) fn key_id(key: &KeyPair) -> Result<OctetString, Error> {
    Ok(OctetString::new(&digest(&SHA256, key.der_bytes()).as_ref()[..KEY_ID])?)
}

/// A key as PEM: `EC PRIVATE KEY` where cert-manager writes it so, because not every program reads such a key in
/// PKCS#8.
pub(super) fn write_key(key: &KeyPair, is_pkcs8: bool) -> Result<String, Error> {
    let der = key.serialized_der();
    if !is_pkcs8 && let Some(sec1) = sec1_of(der)? {
        return Ok(pki::write_block("EC PRIVATE KEY", &sec1));
    }
    Ok(pki::write_block("PRIVATE KEY", der))
}

/// An elliptic key with the name of its curve, which PKCS#8 says elsewhere; `None` for other keys.
fn sec1_of(der: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    const ELLIPTIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
    let outer = PrivateKeyInfoRef::from_der(der)?;
    if outer.algorithm.oid != ELLIPTIC {
        return Ok(None);
    }
    let curve = outer.algorithm.parameters_oid()?;
    let inner = EcPrivateKey::from_der(outer.private_key.as_bytes())?;
    let whole = EcPrivateKey { parameters: Some(EcParameters::NamedCurve(curve)), ..inner };
    Ok(Some(whole.to_der()?))
}

fn serial() -> Result<SerialNumber, Error> {
    let mut bytes = [0; SERIAL];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| builder::Error::Signature(signature::Error::new()))?;
    // Neither negative nor shorter than the others.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::new(&bytes)?)
}

fn time(moment: Timestamp) -> Result<Time, Error> {
    let since_epoch = Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or_default());
    Ok(Time::GeneralTime(GeneralizedTime::from_unix_duration(since_epoch)?))
}

fn extension<T: AssociatedOid + x509_cert::der::Encode>(value: &T, critical: bool) -> Result<Extension, Error> {
    Ok(Extension { extn_id: T::OID, critical, extn_value: OctetString::new(value.to_der()?)? })
}

// === impl Statement ===

impl Statement {
    /// The extensions that depend neither on the key nor on the signer.
    pub(super) fn extensions(&self) -> Result<Vec<Extension>, Error> {
        let mut all = Vec::new();
        if !self.usages.key.is_empty() {
            all.push(extension(&KeyUsage(self.usages.key), true)?);
        }
        if !self.usages.purposes.is_empty() {
            all.push(extension(&ExtendedKeyUsage(self.usages.purposes.clone()), false)?);
        }
        all.push(extension(&BasicConstraints { ca: self.is_ca, path_len_constraint: None }, true)?);
        let names = self.dns_names.iter().cloned().map(GeneralName::DnsName);
        let names: Vec<GeneralName> = names.chain(self.addresses.iter().map(|address| (*address).into())).collect();
        if !names.is_empty() {
            // Without a subject, the names are all that it says.
            all.push(extension(&SubjectAltName(names), self.subject.is_empty())?);
        }
        Ok(all)
    }

    /// Whether a certificate says the same.
    pub(super) fn is_in(&self, certificate: &x509_cert::Certificate) -> bool {
        let found = certificate.tbs_certificate();
        let Ok(wanted) = self.extensions() else { return false };
        let own = [SubjectKeyIdentifier::OID, AuthorityKeyIdentifier::OID];
        let found_extensions = found.extensions().map_or(&[][..], Vec::as_slice);
        let stated: Vec<&Extension> = found_extensions.iter().filter(|one| !own.contains(&one.extn_id)).collect();
        *found.subject() == self.subject
            && stated.len() == wanted.len()
            && wanted.iter().all(|one| stated.contains(&one))
    }
}

/// A certificate with these parts and no others.
struct Profile {
    issuer: Name,
    subject: Name,
    extensions: Vec<Extension>,
}

impl BuilderProfile for Profile {
    fn get_issuer(&self, _subject: &Name) -> Name {
        self.issuer.clone()
    }

    fn get_subject(&self) -> Name {
        self.subject.clone()
    }

    fn build_extensions(
        &self,
        _: SubjectPublicKeyInfoRef<'_>,
        _: SubjectPublicKeyInfoRef<'_>,
        _: &TbsCertificate,
    ) -> builder::Result<Vec<Extension>> {
        Ok(self.extensions.clone())
    }
}

/// A key that signs.
struct SigningKey<'a>(&'a KeyPair);

#[derive(Clone)]
struct PublicKey(Vec<u8>);

impl signature::Keypair for SigningKey<'_> {
    type VerifyingKey = PublicKey;

    fn verifying_key(&self) -> PublicKey {
        PublicKey(self.0.subject_public_key_info())
    }
}

impl EncodePublicKey for PublicKey {
    fn to_public_key_der(&self) -> spki::Result<Document> {
        Ok(Document::from_der(&self.0)?)
    }
}

impl DynSignatureAlgorithmIdentifier for SigningKey<'_> {
    fn signature_algorithm_identifier(&self) -> spki::Result<AlgorithmIdentifierOwned> {
        let algorithm = self.0.algorithm();
        let (oid, parameters) = if *algorithm == rcgen::PKCS_ECDSA_P256_SHA256 {
            (ECDSA_SHA256, None)
        } else if *algorithm == rcgen::PKCS_ECDSA_P384_SHA384 {
            (ECDSA_SHA384, None)
        } else if *algorithm == rcgen::PKCS_ED25519 {
            (ED25519, None)
        } else if *algorithm == rcgen::PKCS_RSA_SHA256 {
            (RSA_SHA256, Some(Any::null()))
        } else {
            return Err(spki::Error::KeyMalformed);
        };
        Ok(AlgorithmIdentifierOwned { oid, parameters })
    }
}
