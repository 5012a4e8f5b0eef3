//! The built-in CA of kcp landscapes (`--pki=builtin`): it issues what cert-manager would issue, into the same Secrets.
//!
//! A Certificate is planned and rendered as always, with its templates, and is then not sent: it is read as the
//! request that it is. Its Secret has the same name, labels, annotations, type and keys as from cert-manager, and the
//! annotation `tidegate.dev/pki: builtin`. Certificates have the same subject, names, usages, constraints and chain.
//!
//! * The root CA of a resource is self-signed, whatever issuer `issuerRef` names, or is the Secret of `caSecretRef`.
//!   Any other issuer than Tidegate's own needs cert-manager.
//! * New keys are ECDSA on P-256, or what a template asks for if that is ECDSA on P-384 or Ed25519. Nothing here makes
//!   RSA keys. A key that exists is kept where the Certificate says `rotationPolicy: Never`, and signs whatever it is.
//! * A certificate is renewed when cert-manager would renew it, and when it no longer says what is wanted or is not
//!   signed by its CA. If only its CA has a new certificate for the same key, it stays, and its chain is written anew.
//!
//! Pure but for new keys and serial numbers. No sentence quotes a value of a Secret.

mod x509;

use std::{collections::BTreeMap, net::IpAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{KeyPair, PublicKeyData as _, SignatureAlgorithm};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::{
    api::{
        names::annotation,
        setup::{IssuerRef, Marks, PrivateKey, Subject},
    },
    object::Object,
    plan::certificate::{Authority, Backend, Validity},
    schema::duration_nanoseconds,
};
use x509_cert::{
    der::{Decode as _, asn1::Ia5String, flagset::FlagSet},
    ext::pkix::{BasicConstraints, KeyUsage},
};

use self::x509::{Signer, Statement, Usages};
use super::state::Values;
use crate::gateway::pki;

/// The keys of a Secret with a certificate.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA: &str = "ca.crt";
/// How far the life of a certificate may be from the one that is wanted. It is written in whole seconds, and issuers
/// differ in when it begins.
const LIFE_SLACK: SignedDuration = SignedDuration::from_mins(10);
/// How long a certificate is valid already when it is issued: clocks differ.
const EARLIER: SignedDuration = SignedDuration::from_secs(60);

/// Which certificate a Secret shall contain.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    /// The Secret with the CA that signs; `None` if the certificate is self-signed.
    pub(super) ca: Option<String>,
    /// Labels and annotations of the Secret.
    marks: Marks,
    statement: Statement,
    life: SignedDuration,
    renew_before: Option<SignedDuration>,
    key: PrivateKey,
}

/// The values of a Secret with a certificate.
pub(super) struct Issued {
    /// By key.
    pub(super) values: BTreeMap<&'static str, Vec<u8>>,
    /// When it has to be renewed.
    pub(super) renew_at: Timestamp,
}

/// The spec of a rendered Certificate. A field that is not known here may matter, so it is an error.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    secret_name: String,
    #[serde(default)]
    secret_template: Marks,
    #[serde(default, rename = "isCA")]
    is_ca: bool,
    #[serde(default)]
    common_name: String,
    #[serde(default)]
    subject: Subject,
    #[serde(default)]
    dns_names: Vec<String>,
    #[serde(default)]
    ip_addresses: Vec<String>,
    #[serde(default)]
    usages: Vec<String>,
    duration: String,
    #[serde(default)]
    renew_before: String,
    #[serde(default)]
    private_key: PrivateKey,
    issuer_ref: IssuerRef,
}

/// The CA that signs, ready to do it.
struct Ca {
    certificate: Authority,
    /// Its certificate and those above it, without a self-signed one, and the topmost of all.
    chain: String,
    top: String,
    name: x509_cert::name::Name,
    key_id: Option<x509_cert::der::asn1::OctetString>,
    key: KeyPair,
    /// Whether it may sign no CA (`pathlen:0`).
    is_last: bool,
}

/// Reads what a rendered Certificate asks for. `ca` is the Secret of Tidegate's issuer that it names, if it names one;
/// `is_root` says whether it may be self-signed instead. Fails with one sentence.
pub(super) fn read(certificate: &Object, ca: Option<String>, is_root: bool) -> Result<Request, String> {
    let name = certificate.name();
    let failed = |why: String| format!("Certificate {name}: {why}");
    let spec = certificate.field("spec").cloned().unwrap_or_default();
    let spec: Spec = serde_json::from_value(spec)
        .map_err(|error| failed(format!("the built-in CA cannot issue it: {error}; change its template")))?;
    if spec.secret_name != name {
        return Err(failed("its Secret must have the same name".to_owned()));
    }
    if ca.is_none() && !is_root {
        let IssuerRef { kind, name, .. } = &spec.issuer_ref;
        return Err(failed(format!(
            "{kind} {name} is not the built-in CA: remove `issuerRef` from its template, or run with \
             --pki=cert-manager"
        )));
    }
    let period = |field: &str, text: &str| {
        let nanoseconds = duration_nanoseconds(text).filter(|&nanoseconds| 0 < nanoseconds);
        nanoseconds.map(SignedDuration::from_nanos).ok_or_else(|| failed(format!("`{field}` is not a duration")))
    };
    let life = period("duration", &spec.duration)?;
    let renew_before = Some(&spec.renew_before).filter(|text| !text.is_empty());
    Ok(Request {
        ca,
        marks: spec.secret_template,
        life,
        renew_before: renew_before.map(|text| period("renewBefore", text)).transpose()?.filter(|before| *before < life),
        key: spec.private_key,
        statement: Statement {
            subject: x509::subject(&spec.common_name, &spec.subject).map_err(|_| failed(UNENCODABLE.to_owned()))?,
            is_ca: spec.is_ca,
            usages: usages(&spec.usages, spec.is_ca).map_err(failed)?,
            dns_names: spec.dns_names.iter().map(|name| dns_name(name)).collect::<Result<_, _>>().map_err(failed)?,
            addresses: spec.ip_addresses.iter().map(|text| address(text)).collect::<Result<_, _>>().map_err(failed)?,
        },
    })
}

const UNENCODABLE: &str = "its subject cannot be encoded: shorten it";

fn usages(words: &[String], is_ca: bool) -> Result<Usages, String> {
    const DEFAULT: [&str; 2] = ["digital signature", "key encipherment"];
    let mut usages = Usages { key: FlagSet::default(), purposes: Vec::new() };
    if is_ca {
        usages.key |= x509_cert::ext::pkix::KeyUsages::KeyCertSign;
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for word in if words.is_empty() { &DEFAULT[..] } else { &words } {
        match x509::usage(word).ok_or_else(|| format!("the built-in CA does not know the usage `{word}`"))? {
            Ok(key) => usages.key |= key,
            Err(purpose) if usages.purposes.contains(&purpose) => {}
            Err(purpose) => usages.purposes.push(purpose),
        }
    }
    Ok(usages)
}

fn dns_name(name: &str) -> Result<Ia5String, String> {
    Ia5String::new(name).map_err(|_| pki::Error::Name(name.to_owned()).to_string())
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not an IP address"))
}

// === impl Request ===

impl Request {
    /// The Secret without its values.
    pub(super) fn secret(&self, certificate: &Object) -> Object {
        let mut annotations = self.marks.annotations.clone();
        annotations.insert(annotation::PKI.to_owned(), Backend::Builtin.name().to_owned());
        Object::new(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {
                "namespace": certificate.namespace(),
                "name": certificate.name(),
                "labels": self.marks.labels,
                "annotations": annotations,
            },
        }))
        .expect("it has a kind and a name")
    }

    /// The values of the Secret: those of `found` as far as they are as wanted, and new ones otherwise. `ca` has the
    /// values of the CA's Secret. Fails with one sentence.
    pub(super) fn issue(&self, ca: Option<&Values>, found: Option<&Values>, now: Timestamp) -> Result<Issued, String> {
        let ca = match (&self.ca, ca) {
            (Some(secret), Some(values)) => {
                let ca = Ca::read(secret, values, now)?;
                if ca.is_last && self.statement.is_ca {
                    return Err(format!(
                        "Secret {secret} cannot sign a CA: its certificate has a path length of 0; use a CA without \
                         that limit"
                    ));
                }
                Some(ca)
            }
            (Some(secret), None) => return Err(format!("Secret {secret} does not exist")),
            (None, _) => None,
        };
        let key = found.and_then(|found| found.get(KEY)).map(|text| pki::read_key(text));
        let key = match (key, self.keeps_key()) {
            (Some(Err(error)), true) => {
                return Err(format!(
                    "the key of an existing CA or service account is unusable: {error}; restore `{KEY}` of the Secret, \
                     or delete the Secret to replace the key"
                ));
            }
            (key, _) => key.and_then(Result::ok),
        };
        if let (Some(key), Some(found)) = (&key, found)
            && let Some(certificate) = self.current(found, key, ca.as_ref(), now)
        {
            let text = found.get(KEY).cloned().unwrap_or_default();
            return Ok(self.issued(&certificate, text, ca.as_ref()));
        }
        let is_kept = key.is_some() && self.keeps_key();
        let failed = |error: x509::Error| format!("cannot sign a certificate: {error}");
        let (key, text) = match (key.filter(|_| is_kept), found) {
            (Some(key), Some(found)) => (key, found.get(KEY).cloned().unwrap_or_default()),
            _ => {
                let key = KeyPair::generate_for(self.algorithm()).map_err(|error| error.to_string())?;
                let text = x509::write_key(&key, self.key.encoding == "PKCS8").map_err(failed)?;
                (key, text.into_bytes())
            }
        };
        let limit = ca.as_ref().map_or(Timestamp::MAX, |ca| ca.certificate.validity.not_after);
        let validity = Validity { not_before: now - EARLIER, not_after: (now + self.life).min(limit) };
        let signer = match &ca {
            Some(ca) => Signer { name: ca.name.clone(), key_id: ca.key_id.clone(), key: &ca.key },
            None => Signer { name: self.statement.subject.clone(), key_id: None, key: &key },
        };
        let der = x509::sign(&self.statement, &key, validity, &signer).map_err(failed)?;
        let certificate = Authority { der: der.into(), validity: whole_seconds(validity) };
        Ok(self.issued(&certificate, text, ca.as_ref()))
    }

    /// Whether a renewal keeps the key.
    fn keeps_key(&self) -> bool {
        self.key.rotation_policy == "Never"
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match (self.key.algorithm.as_str(), self.key.size) {
            ("Ed25519", _) => &rcgen::PKCS_ED25519,
            ("ECDSA", Some(384)) => &rcgen::PKCS_ECDSA_P384_SHA384,
            _ => &rcgen::PKCS_ECDSA_P256_SHA256,
        }
    }

    /// The certificate of a Secret, if it is as wanted, for this key, of this CA, and not to be renewed yet.
    fn current(&self, found: &Values, key: &KeyPair, ca: Option<&Ca>, now: Timestamp) -> Option<Authority> {
        let certificate = pki::read_first(found.get(CERTIFICATE)?).ok()?;
        let parsed = x509_cert::Certificate::from_der(&certificate.der).ok()?;
        let tbs = parsed.tbs_certificate();
        let Validity { not_before, not_after } = certificate.validity;
        let life = not_after.duration_since(not_before);
        // One that its CA cuts short is as long as it can be.
        let is_limited = ca.is_some_and(|ca| not_after == ca.certificate.validity.not_after) && life < self.life;
        let is_signed = match ca {
            Some(ca) => pki::is_of(&certificate, &ca.certificate) && certificate.der != ca.certificate.der,
            None => pki::is_self_signed(&certificate),
        };
        // The beginning is not checked: one that begins later was issued by a process whose clock is ahead.
        let is_current = self.statement.is_in(&parsed)
            && tbs.subject_public_key_info().subject_public_key.raw_bytes() == key.der_bytes()
            && (is_limited || (life - self.life).abs() <= LIFE_SLACK)
            && is_signed
            && now < self.renew_at(certificate.validity);
        is_current.then_some(certificate)
    }

    /// When a certificate is renewed: as long before its end as is wanted, or after two thirds of its life.
    fn renew_at(&self, validity: Validity) -> Timestamp {
        let Validity { not_before, not_after } = validity;
        match self.renew_before {
            // One that its CA cuts short to this would be due when it is issued.
            Some(before) if before + EARLIER * 2 < not_after.duration_since(not_before) => not_after - before,
            _ => not_before + not_after.duration_since(not_before) * 2 / 3,
        }
    }

    fn issued(&self, certificate: &Authority, key: Vec<u8>, ca: Option<&Ca>) -> Issued {
        let own = pki::write_certificates([certificate]);
        let (chain, top) = match ca {
            Some(ca) => (format!("{own}{}", ca.chain), ca.top.clone()),
            None => (own.clone(), own),
        };
        let values = [(CERTIFICATE, chain.into_bytes()), (KEY, key), (CA, top.into_bytes())];
        Issued { values: values.into(), renew_at: self.renew_at(certificate.validity) }
    }
}

// === impl Issued ===

impl Issued {
    /// Adds the values to their Secret, and when it is renewed.
    pub(super) fn write(self, secret: &mut Object) {
        let data = self.values.into_iter().map(|(key, value)| (key.to_owned(), STANDARD.encode(value).into()));
        secret.map_mut().insert("data".to_owned(), Value::Object(data.collect()));
        secret.set_annotation(annotation::RENEW_AT, &self.renew_at.to_string());
    }
}

/// As a certificate says it.
fn whole_seconds(validity: Validity) -> Validity {
    let whole = |moment: Timestamp| Timestamp::from_second(moment.as_second()).unwrap_or(moment);
    Validity { not_before: whole(validity.not_before), not_after: whole(validity.not_after) }
}

// === impl Ca ===

impl Ca {
    /// Fails with one sentence if the Secret is not one of a CA that can sign now.
    fn read(secret: &str, values: &Values, now: Timestamp) -> Result<Ca, String> {
        let failed = |why: &dyn std::fmt::Display| format!("Secret {secret} cannot sign: {why}");
        let value = |key: &str| values.get(key).ok_or_else(|| failed(&format_args!("it has no key `{key}`")));
        let bundle = pki::read_bundle(value(CERTIFICATE)?).map_err(|error| failed(&error))?;
        let root = pki::Root::read(value(CERTIFICATE)?, value(KEY)?).map_err(|error| failed(&error))?;
        let certificate = root.certificate().clone();
        if certificate.validity.not_after <= now {
            return Err(failed(&format_args!("its certificate expired on {}", certificate.validity.not_after)));
        }
        let parsed = x509_cert::Certificate::from_der(&certificate.der).map_err(|error| failed(&error))?;
        let usage = parsed.tbs_certificate().get_extension::<KeyUsage>().map_err(|error| failed(&error))?;
        if usage.is_some_and(|(_, usage)| !usage.key_cert_sign()) {
            return Err(failed(&"its key usage does not include certificate signing"));
        }
        let limit = parsed.tbs_certificate().get_extension::<BasicConstraints>().map_err(|error| failed(&error))?;
        let key_id = parsed.tbs_certificate().get_extension::<x509_cert::ext::pkix::SubjectKeyIdentifier>();
        // As cert-manager: what the Secret says is above its own certificates is the top of the chain.
        let above = values.get(CA).and_then(|text| pki::read_first(text).ok());
        let above = above.filter(|above| bundle.authorities().iter().all(|one| one.der != above.der));
        let all: Vec<&Authority> = bundle.authorities().iter().chain(&above).collect();
        let chain = pki::write_certificates(all.iter().copied().filter(|one| !pki::is_self_signed(one)));
        Ok(Ca {
            chain,
            top: pki::write_certificates(all.last().copied()),
            name: parsed.tbs_certificate().subject().clone(),
            key_id: key_id.ok().flatten().map(|(_, id)| id.0),
            key: pki::read_key(value(KEY)?).map_err(|error| failed(&error))?,
            is_last: limit.is_some_and(|(_, limit)| limit.path_len_constraint == Some(0)),
            certificate,
        })
    }
}

#[cfg(test)]
mod tests;
