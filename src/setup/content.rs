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

/// Adds the values of these keys to a copy of their Secret or ConfigMap.
pub(super) fn copy(object: &mut Object, values: &Values, keys: &[String]) {
    let is_secret = &*object.gvk().kind == "Secret";
    let (mut data, mut binary) = (Map::new(), Map::new());
    for (key, value) in values.iter().filter(|(key, _)| keys.contains(key)) {
        match str::from_utf8(value) {
            _ if is_secret => _ = data.insert(key.clone(), STANDARD.encode(value).into()),
            Ok(text) => _ = data.insert(key.clone(), text.into()),
            Err(_) => _ = binary.insert(key.clone(), STANDARD.encode(value).into()),
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

/// What to remember of values.
pub(super) fn known(resource_version: &str, values: &Values) -> KnownContent {
    let keys: Keys = values.iter().map(|(key, value)| (key.clone(), Digest::of_bytes(value))).collect();
    let certificates = readable(values, CERTIFICATE);
    let is_self_signed = certificates.first().map(pki::is_self_signed);
    let certificates = if values.contains_key(CERTIFICATE) { certificates } else { inline(values) };
    KnownContent {
        resource_version: resource_version.into(),
        keys,
        is_self_signed,
        certificates,
        above: readable(values, CA),
        note: None,
        former: None,
        since: Timestamp::MIN,
        private: values
            .iter()
            .filter(|(_, value)| has_private_key(value) || has_inline_key(value))
            .map(|(key, _)| key.clone())
            .collect(),
        authorities: authorities(values),
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

/// Whether a value is a kubeconfig with a private key, as [`Content::Credentials`] writes it.
fn has_inline_key(value: &[u8]) -> bool {
    let is_key = |line: &str| line.trim_start_matches([' ', '-']).starts_with("client-key-data:");
    str::from_utf8(value).is_ok_and(|text| text.lines().any(is_key))
}

/// The keys with the private key of a CA: its certificate is beside it, in the value itself or under a key with the
/// same stem. If no key has the same stem, any certificate of a CA in the Secret counts.
fn authorities(values: &Values) -> BTreeSet<String> {
    let stem = |key: &str| key.rsplit_once('.').map_or(key, |(stem, _)| stem).to_owned();
    let is_authority = |value: &[u8]| pki::read_first(value).is_ok_and(|first| pki::is_authority(&first));
    let is_of_authority = |key: &str| {
        let certificates: Vec<(&String, &Vec<u8>)> =
            values.iter().filter(|(_, value)| pki::read_first(value).is_ok()).collect();
        let is_beside = |(other, _): &&(&String, &Vec<u8>)| stem(other) == stem(key);
        let beside: Vec<_> = certificates.iter().filter(is_beside).collect();
        if beside.is_empty() {
            certificates.iter().any(|(_, value)| is_authority(value))
        } else {
            beside.iter().any(|(_, value)| is_authority(value))
        }
    };
    let keys = values.iter().filter(|(_, value)| has_private_key(value)).map(|(key, _)| key);
    keys.filter(|key| is_of_authority(key)).cloned().collect()
}

#[cfg(test)]
mod tests;
