//! The values of Secrets that are made of others: bundles of CAs, and kubeconfigs of users. Pure; no sentence quotes a
//! value.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use tidegate_core::{
    api::names::annotation,
    object::{Digest, Object},
    plan::{
        certificate::Authority,
        setup::{Content, Trust},
    },
};

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
        authorities: keys_where(&|key, value| (has_private_key(value) || is_sealed(value)) && owners.is_authority(key)),
        unclear: keys_where(&|key, value| match owners.is_empty() {
            true => is_sealed(value),
            false => is_unreadable(value) && owners.is_authority(key),
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

/// Whether a value is no text and no certificate.
fn is_unreadable(value: &[u8]) -> bool {
    let is_text = |text: &str| text.chars().all(|c| !c.is_control() || c.is_whitespace());
    !str::from_utf8(value).is_ok_and(is_text) && first_certificate(value).is_none()
}

/// Whether a value has a format in which private keys are stored that are not read here, also in base64: DER (PKCS#1,
/// PKCS#8, PKCS#12, SEC 1) or a key store of Java.
fn is_sealed(value: &[u8]) -> bool {
    const STORES: [&[u8]; 2] = [&[0xfe, 0xed, 0xfe, 0xed], &[0xce, 0xce, 0xce, 0xce]];
    let is_sealed = |value: &[u8]| {
        let is_store = STORES.into_iter().any(|magic| value.starts_with(magic));
        is_unreadable(value) && (is_store || is_sequence(value))
    };
    let decoded = || {
        let text: String = str::from_utf8(value).ok()?.split_ascii_whitespace().collect();
        STANDARD.decode(text).ok()
    };
    is_sealed(value) || decoded().is_some_and(|value| is_sealed(&value))
}

/// Whether a value is one sequence in DER, or begins with one of indefinite length.
fn is_sequence(value: &[u8]) -> bool {
    match value {
        [0x30, 0x80, ..] => true,
        [0x30, length @ 0x00..=0x7f, content @ ..] => content.len() == usize::from(*length),
        [0x30, octets @ 0x81..=0x84, rest @ ..] => {
            let Some((length, content)) = rest.split_at_checked(usize::from(octets & 0x7f)) else { return false };
            content.len() == length.iter().fold(0, |length, octet| (length << 8) | usize::from(*octet))
        }
        _ => false,
    }
}

/// The first certificate of a value, in PEM or DER. A private key may come before it.
fn first_certificate(value: &[u8]) -> Option<Authority> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    match value.windows(BEGIN.len()).position(|part| part == BEGIN) {
        Some(start) => pki::read_first(&value[start..]).ok(),
        None if is_sequence(value) => pki::read_first(pki::write_block("CERTIFICATE", value).as_bytes()).ok(),
        None => None,
    }
}

/// The certificates of a Secret or ConfigMap, which say whose its private keys are.
struct Owners<'a> {
    /// By key, whether the first certificate there is that of a CA.
    certificates: Vec<(&'a str, bool)>,
}

/// The keys that cert-manager writes for the certificate in `tls.crt`, beside `tls.key`.
const OF_CERT_MANAGER: [&str; 6] =
    ["key.der", "keystore.jks", "keystore.p12", "tls-combined.pem", "truststore.jks", "truststore.p12"];

// === impl Owners ===

impl<'a> Owners<'a> {
    fn new(values: &'a Values) -> Owners<'a> {
        let certificate = |(key, value): (&'a String, &'a Vec<u8>)| {
            Some((key.as_str(), pki::is_authority(&first_certificate(value)?)))
        };
        Owners { certificates: values.iter().filter_map(certificate).collect() }
    }

    fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Whether a private key under this key is that of a CA: its certificate is in the value itself or under a key with
    /// the same stem. If no key has the same stem, any certificate of a CA counts.
    fn is_authority(&self, key: &str) -> bool {
        let beside: Vec<bool> =
            self.certificates.iter().filter(|(other, _)| stem(other) == stem(key)).map(|(_, is_ca)| *is_ca).collect();
        if beside.is_empty() { self.certificates.iter().any(|(_, is_ca)| *is_ca) } else { beside.contains(&true) }
    }
}

/// A key without its extension, or that of the certificate which it belongs to.
fn stem(key: &str) -> &str {
    let key = if OF_CERT_MANAGER.contains(&key) { CERTIFICATE } else { key };
    key.rsplit_once('.').map_or(key, |(stem, _)| stem)
}

#[cfg(test)]
mod tests;
