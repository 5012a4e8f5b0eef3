//! The values of Secrets that are made of others: bundles of CAs, and kubeconfigs of users. Pure; no sentence quotes a
//! value.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Map, Value};
use tidegate_core::{
    api::names::annotation,
    object::{Digest, Object},
    plan::{
        certificate::Authority,
        setup::{Content, Trust},
    },
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::state::{Keys, KnownContent, Values};
use crate::gateway::pki;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA: &str = "ca.crt";
const KUBECONFIG: &str = "kubeconfig";
/// The types of Secrets with credentials of registries, and of those that may have any keys.
pub(super) const DOCKER_CONFIG_JSON: &str = "kubernetes.io/dockerconfigjson";
pub(super) const DOCKER_CONFIG: &str = "kubernetes.io/dockercfg";
pub(super) const OPAQUE: &str = "Opaque";
/// How many bytes the values of a Secret have at most: an API server refuses a larger one.
const SECRET_BYTES_MAX: usize = 1 << 20;

/// The Secrets that a content is made of.
pub(super) fn sources(content: &Content) -> Vec<&str> {
    match content {
        Content::Files(_) | Content::Trusted(_) => Vec::new(),
        Content::Bundle(trusts) => trusts.iter().map(|trust| trust.secret.as_str()).collect(),
        Content::Credentials(credentials) => {
            let trusts = credentials.trusts.iter().map(|trust| trust.secret.as_str());
            [credentials.certificate.as_str()].into_iter().chain(trusts).collect()
        }
    }
}

/// What is known of a content without the Secrets that it is made of.
pub(super) fn outline(content: &Content) -> String {
    let trusts = |trusts: &[Trust]| -> String {
        trusts.iter().map(|trust| format!("{} {}\n", trust.secret, trust.only_first)).collect()
    };
    match content {
        Content::Files(file) => file.to_text(),
        Content::Trusted(trusted) => trusted.certificates.clone(),
        Content::Bundle(all) => trusts(all),
        Content::Credentials(credentials) => {
            format!("{}{}{}\n", credentials.to_text("", &[], &[]), trusts(&credentials.trusts), credentials.certificate)
        }
    }
}

/// The value of a Secret that is made of others. Fails with one sentence if one of them is unusable, or if they are too
/// large together.
pub(super) fn value<'a>(content: &Content, read: &dyn Fn(&str) -> Option<&'a Values>) -> Result<Vec<u8>, String> {
    let part = |secret: &str, key: &str| {
        let value = read(secret).and_then(|values| values.get(key));
        value.ok_or_else(|| format!("Secret {secret} has no key `{key}`"))
    };
    let bundle = |trusts: &[Trust]| -> Result<String, String> {
        let parts = trusts.iter().map(|trust| certificates(trust, part(&trust.secret, CERTIFICATE)?));
        Ok(parts.collect::<Result<Vec<String>, String>>()?.concat())
    };
    let value = match content {
        Content::Files(file) => file.to_text(),
        Content::Trusted(trusted) => trusted.certificates.clone(),
        Content::Bundle(trusts) => bundle(trusts)?,
        Content::Credentials(credentials) => {
            let secret = &credentials.certificate;
            let (certificate, key) = (part(secret, CERTIFICATE)?, part(secret, KEY)?);
            credentials.to_text(&bundle(&credentials.trusts)?, certificate, key)
        }
    };
    if SECRET_BYTES_MAX < value.len() {
        return Err(format!(
            "the certificates of Secrets {} are {} bytes together, and a Secret has room for {SECRET_BYTES_MAX}; \
             remove those that are not needed",
            sources(content).join(", "),
            value.len()
        ));
    }
    Ok(value.into_bytes())
}

/// The certificates of a Secret as PEM, and nothing else of it.
fn certificates(trust: &Trust, text: &[u8]) -> Result<String, String> {
    let read = if trust.only_first {
        pki::read_first(text).map(|first| pki::write_certificates([&first]))
    } else {
        pki::read_bundle(text).map(|bundle| pki::write_bundle(&bundle))
    };
    read.map_err(|error| {
        format!("Secret {}, key `{CERTIFICATE}`: {error}; it must contain certificates in PEM only", trust.secret)
    })
}

/// Adds the value to its Secret, which has one key.
pub(super) fn set(object: &mut Object, value: Vec<u8>) {
    let Some(data) = object.map_mut().get_mut("data").and_then(Value::as_object_mut) else { return };
    let value = Value::from(STANDARD.encode(value));
    data.values_mut().for_each(|entry| *entry = value.clone());
}

/// Adds the values of these keys to a copy of their Secret or ConfigMap, and values that it has already.
pub(super) fn copy(
    object: &mut Object,
    values: &Values,
    keys: &[String],
    kept: impl Iterator<Item = (String, Vec<u8>)>,
) {
    let is_secret = &*object.gvk().kind == "Secret";
    let (mut data, mut binary) = (Map::new(), Map::new());
    let copied = values.iter().filter(|(key, _)| keys.contains(key)).map(|(key, value)| (key.clone(), value.clone()));
    for (key, value) in kept.chain(copied) {
        match str::from_utf8(&value) {
            _ if is_secret => _ = data.insert(key, STANDARD.encode(&value).into()),
            Ok(text) => _ = data.insert(key, text.into()),
            Err(_) => _ = binary.insert(key, STANDARD.encode(&value).into()),
        }
    }
    for (field, values) in [("data", data), ("binaryData", binary)].into_iter().filter(|(_, all)| !all.is_empty()) {
        object.map_mut().insert(field.to_owned(), values.into());
    }
}

/// The values of a Secret or ConfigMap.
pub(super) fn values(object: &Object) -> Values {
    let nothing = Map::new();
    let map = |field: &str| object.field(field).and_then(Value::as_object).unwrap_or(&nothing).clone();
    let is_secret = &*object.gvk().kind == "Secret";
    let decode = |text: &str| STANDARD.decode(text).unwrap_or_default();
    let plain = |text: &str| if is_secret { decode(text) } else { text.as_bytes().to_vec() };
    let text = |value: Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let data = map("data").into_iter().map(|(key, value)| (key, plain(&text(value))));
    let binary = map("binaryData").into_iter().map(|(key, value)| (key, decode(&text(value))));
    data.chain(binary).collect()
}

/// Whether a copy can keep the type that it has: it cannot change, and running pods need the copy. The kubelet takes
/// credentials of registries from Secrets of their type only, and the API server demands the keys of a type. While some
/// users are unknown, they may need the type.
pub(super) fn may_keep_type(copy: &Object, type_: &Value, is_user_unknown: bool) -> bool {
    let keys = values(copy);
    let has = |key: &str| keys.contains_key(key);
    let wanted = copy.field("type").unwrap_or(&Value::Null);
    let is_valid = match type_.as_str().unwrap_or_default() {
        DOCKER_CONFIG_JSON => has(".dockerconfigjson"),
        DOCKER_CONFIG => has(".dockercfg"),
        "kubernetes.io/tls" => has(CERTIFICATE) && has(KEY),
        _ => true,
    };
    wanted == type_ || (is_valid && (wanted == OPAQUE || is_user_unknown))
}

/// What to remember of values.
pub(super) fn known(resource_version: &str, values: &Values) -> KnownContent {
    let keys: Keys = values.iter().map(|(key, value)| (key.clone(), Digest::of_bytes(value))).collect();
    let certificates = readable(values, CERTIFICATE);
    let is_self_signed = certificates.first().map(pki::is_self_signed);
    let certificates = if values.contains_key(CERTIFICATE) { certificates } else { inline(values) };
    let owners = Owners::new(values);
    let in_pem = values.iter().filter(|(_, value)| has_private_key(value));
    let in_pem: BTreeMap<&str, Owner> = in_pem.map(|(key, value)| (key.as_str(), owners.of(key, value))).collect();
    let is_of = |key: &str, owner: Owner| in_pem.get(key) == Some(&owner);
    let keys_where = |holds: &dyn Fn(&str, &[u8]) -> bool| -> BTreeSet<String> {
        values.iter().filter(|(key, value)| holds(key, value)).map(|(key, _)| key.clone()).collect()
    };
    KnownContent {
        resource_version: resource_version.into(),
        keys,
        is_self_signed,
        certificates,
        above: readable(values, CA),
        note: None,
        former: None,
        since: Timestamp::MIN,
        private: keys_where(&|_, value| has_private_key(value) || has_inline_key(value) || is_sealed(value)),
        authorities: keys_where(&|key, value| {
            is_of(key, Owner::Authority) || (is_sealed(value) && owners.is_authority(key))
        }),
        unclear: keys_where(&|key, value| {
            let is_closed = match owners.is_empty() {
                true => is_sealed(value),
                false => is_unreadable(value) && owners.is_authority(key),
            };
            is_of(key, Owner::Unclear) || is_closed
        }),
    }
}

/// As [`known`], of an object.
pub(super) fn known_of(object: &Object, resource_version: &str) -> KnownContent {
    let note = object.annotation(annotation::TRUSTS).map(str::to_owned);
    KnownContent { note, ..known(resource_version, &values(object)) }
}

/// The certificates of a key, or the first one if something else follows it.
fn readable(values: &Values, key: &str) -> Vec<Authority> {
    let Some(text) = values.get(key) else { return Vec::new() };
    match pki::read_bundle(text) {
        Ok(bundle) => bundle.authorities().to_vec(),
        Err(_) => pki::read_first(text).into_iter().collect(),
    }
}

/// The certificates in a kubeconfig of a user, as [`Content::Credentials`] writes it.
fn inline(values: &Values) -> Vec<Authority> {
    let text = values.get(KUBECONFIG).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    let inline = text.lines().filter_map(|line| {
        let (field, value) = line.trim_start_matches([' ', '-']).split_once(": ")?;
        let is_inline = matches!(field, "certificate-authority-data" | "client-certificate-data");
        STANDARD.decode(value).ok().filter(|_| is_inline)
    });
    let mut all: Vec<Authority> = Vec::new();
    for one in inline.filter_map(|text| pki::read_bundle(&text).ok()).flat_map(|found| found.authorities().to_vec()) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

fn has_private_key(value: &[u8]) -> bool {
    const END: &[u8] = b"PRIVATE KEY-----";
    value.windows(END.len()).any(|part| part == END)
}

/// Whether a value is a kubeconfig with a private key, in YAML or JSON.
fn has_inline_key(value: &[u8]) -> bool {
    str::from_utf8(value).is_ok_and(|text| text.contains("client-key-data"))
}

/// Whether a value is neither text nor a certificate.
fn is_unreadable(value: &[u8]) -> bool {
    let is_text = |text: &str| text.chars().all(|c| !c.is_control() || c.is_whitespace());
    !str::from_utf8(value).is_ok_and(is_text) && certificates_in(value).is_empty()
}

/// Whether a value has a format in which private keys are stored that are not read here, also in base64: DER (PKCS#1,
/// PKCS#8, PKCS#12, SEC 1) or a key store of Java.
fn is_sealed(value: &[u8]) -> bool {
    const STORES: [&[u8]; 2] = [&[0xfe, 0xed, 0xfe, 0xed], &[0xce, 0xce, 0xce, 0xce]];
    let is_sealed = |value: &[u8]| {
        let is_store = STORES.into_iter().any(|magic| value.starts_with(magic));
        is_unreadable(value) && (is_store || is_key_in_der(value))
    };
    let decoded = || {
        let text: String = str::from_utf8(value).ok()?.split_ascii_whitespace().collect();
        STANDARD.decode(text).ok()
    };
    is_sealed(value) || decoded().is_some_and(|value| is_sealed(&value))
}

/// Whether a value begins as private keys in DER do: with their version, or with the algorithm that encrypts them. So a
/// random token does not count. PKCS#12 may have an indefinite length.
fn is_key_in_der(value: &[u8]) -> bool {
    const OCTETS: u8 = 0x04;
    match sequence(value) {
        Some([0x02, 0x01, 0x00..=0x03, ..]) => true,
        Some([0x30, length @ 0x00..=0x7f, rest @ ..]) => rest.get(usize::from(*length)) == Some(&OCTETS),
        Some(_) => false,
        None => matches!(value, [0x30, 0x80, 0x02, 0x01, 0x03, .., 0x00, 0x00]),
    }
}

/// The content of a value that is one sequence in DER.
fn sequence(value: &[u8]) -> Option<&[u8]> {
    let (length, content) = match value {
        [0x30, length @ 0x00..=0x7f, content @ ..] => (usize::from(*length), content),
        [0x30, octets @ 0x81..=0x84, rest @ ..] => {
            let (length, content) = rest.split_at_checked(usize::from(octets & 0x7f))?;
            (length.iter().fold(0, |length, octet| (length << 8) | usize::from(*octet)), content)
        }
        _ => return None,
    };
    (content.len() == length).then_some(content)
}

/// The blocks of PEM in a value, with their labels. Each ends where the next one begins.
fn blocks(value: &[u8]) -> Vec<(&[u8], &[u8])> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    const DASHES: &[u8] = b"-----";
    let starts = value.windows(BEGIN.len()).enumerate().filter(|(_, part)| *part == BEGIN).map(|(start, _)| start);
    let starts: Vec<usize> = starts.collect();
    let ends = starts.iter().skip(1).copied().chain([value.len()]);
    let each = starts.iter().zip(ends).map(|(start, end)| &value[*start..end]);
    let labelled = each.filter_map(|block| {
        let rest = &block[BEGIN.len()..];
        let length = rest.windows(DASHES.len()).position(|part| part == DASHES)?;
        Some((&rest[..length], block))
    });
    labelled.collect()
}

/// The certificates of a value in order, in PEM or DER. Private keys may be between them.
fn certificates_in(value: &[u8]) -> Vec<Authority> {
    const LABEL: &[u8] = b"CERTIFICATE";
    let blocks = blocks(value);
    if blocks.is_empty() && sequence(value).is_some() {
        return pki::read_first(pki::write_block("CERTIFICATE", value).as_bytes()).into_iter().collect();
    }
    let own = blocks.into_iter().filter(|(label, _)| *label == LABEL);
    own.filter_map(|(_, block)| pki::read_first(block).ok()).collect()
}

/// Whether a private key is that of a certificate.
fn is_key_of(key: &KeyPair, certificate: &Authority) -> bool {
    let parsed = X509Certificate::from_der(&certificate.der);
    parsed.is_ok_and(|(_, parsed)| *parsed.public_key().subject_public_key.data == *key.der_bytes())
}

/// Whose a private key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// It is not that of a CA.
    Other,
    /// Nothing says whose it is.
    Unclear,
    /// It is that of a CA.
    Authority,
}

/// The certificates of a Secret or ConfigMap, which say whose its private keys are.
struct Owners<'a> {
    /// By key, the certificates there, in order.
    certificates: Vec<(&'a str, Vec<Authority>)>,
}

/// The keys that cert-manager writes for the certificate in `tls.crt`, beside `tls.key`.
const OF_CERT_MANAGER: [&str; 6] =
    ["key.der", "keystore.jks", "keystore.p12", "tls-combined.pem", "truststore.jks", "truststore.p12"];

// === impl Owners ===

impl<'a> Owners<'a> {
    fn new(values: &'a Values) -> Owners<'a> {
        let certificates = values.iter().map(|(key, value)| (key.as_str(), certificates_in(value)));
        Owners { certificates: certificates.filter(|(_, all)| !all.is_empty()).collect() }
    }

    fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Whose the private keys in PEM are that a value under this key has. That of a CA counts most.
    fn of(&self, key: &str, value: &[u8]) -> Owner {
        const LABEL: &[u8] = b"PRIVATE KEY";
        let private = blocks(value).into_iter().filter(|(label, _)| label.ends_with(LABEL));
        let owners = private.map(|(_, block)| match pki::read_key(block) {
            Ok(pair) => self.of_pair(key, &pair),
            Err(_) => self.guess(key),
        });
        owners.max().unwrap_or_else(|| self.guess(key))
    }

    /// Whose a private key is that can be read: the certificates for it say that.
    fn of_pair(&self, key: &str, pair: &KeyPair) -> Owner {
        let own = self.certificates.iter().flat_map(|(_, all)| all).filter(|one| is_key_of(pair, one));
        let own: Vec<bool> = own.map(pki::is_authority).collect();
        match own.contains(&true) || (own.is_empty() && self.beside(key).contains(&true)) {
            true => Owner::Authority,
            false if own.is_empty() => Owner::Unclear,
            false => Owner::Other,
        }
    }

    /// Whose a private key is that cannot be read, for example because it is encrypted.
    fn guess(&self, key: &str) -> Owner {
        let has_authority = |(other, all): &(&str, Vec<Authority>)| *other == key && all.iter().any(pki::is_authority);
        if self.is_authority(key) {
            Owner::Authority
        } else if self.is_empty() || self.certificates.iter().any(has_authority) {
            Owner::Unclear
        } else {
            Owner::Other
        }
    }

    /// Whether a private key under this key is that of a CA: its certificate is in the value itself or under a key with
    /// the same stem. If no key has the same stem, any certificate of a CA counts.
    fn is_authority(&self, key: &str) -> bool {
        let beside = self.beside(key);
        let mut all = self.certificates.iter().flat_map(|(_, all)| all);
        if beside.is_empty() { all.any(pki::is_authority) } else { beside.contains(&true) }
    }

    /// Of each key with the same stem, whether its first certificate is that of a CA. Those above follow it.
    fn beside(&self, key: &str) -> Vec<bool> {
        let beside = self.certificates.iter().filter(|(other, _)| stem(other) == stem(key));
        beside.map(|(_, all)| all.first().is_some_and(pki::is_authority)).collect()
    }
}

/// A key without its extension, or that of the certificate which it belongs to.
fn stem(key: &str) -> &str {
    let key = if OF_CERT_MANAGER.contains(&key) { CERTIFICATE } else { key };
    key.rsplit_once('.').map_or(key, |(stem, _)| stem)
}

#[cfg(test)]
mod tests;
