use k8s_openapi::jiff::ToSpan as _;
use serde_json::json;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;

const NOW: i64 = 1_800_000_000;

/// An RSA key of 1024 bits in PKCS#8, made for this test.
const RSA_1024: &str = "MIICdwIBADANBgkqhkiG9w0BAQEFAASCAmEwggJdAgEAAoGBAMMx7syeCOnS3Qxm\
     hYsrOPWHebuBiyeJJxFapsc6t0apDYlG7pkpcY70ta3roNfu7YmBJxMOFS2FdpFK\
     RjAxGvq1sPw6h+TQRLSJ9JeMZvCFS5xXh610cj2mnOMsBEitKGeOptEA0F9rlLKu\
     NBkiZs22eUlhhU+glZZ2mQ1t7HZ/AgMBAAECgYBHuEEVzbtYrrGprMHEsMzs6ipA\
     SwjmLe684aIF8f0FaXgfyIBCpoejDybyEHG45YFB1MKWrcX6Q9+c4r2HV4OhlVex\
     KDRdQ9ySlmmX/BBZZzqPr7vUOE4AdS3wqaZY7OCaWqcb2uNyAHsjO9vm6siQRgDZ\
     cwNjDBooMzQ2+xG1gQJBAPt23RmMabTYk5sM0QIDO9Rqvmpj2P497IwKnOhUlKhi\
     KDzQCOX+EqtFaUThguSyFM+jRoMIv0IUPUll+b+pGH0CQQDGtz7wRm/LB98SqroQ\
     K1g/CiCqgjF2WdDQmFYAwzy+l5Aq3uCT8JxQ7MJyr/EsXH47iJ8mTWHEbLh13sTu\
     o3erAkEA8VekXmff8BzIldAYLPlTi8wjEtLfqStfgwyQiX7b6jvC6JK1Z5+Q5WZJ\
     4T0atkmgJaRMAWj8vvvT0kUYDPXKtQJAH1086d+0NW+AngmkZHjy7MBEd6Uk+XEj\
     rEjfCi/Gnq59asbS24bWpU85QbDTeBUBN5RQylLcY4xlcPVAUAotEQJBALjFHjkR\
     1KLN362OGGhG2QiODKbIxgpGaG2QtUqxqGuPPuLPaGtRdqztsLpd8ZceZTmV1l0V\
     Yr4JylXlKcxVAIc=";

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn certificate(name: &str, spec: Value) -> Object {
    let mut all = json!({
        "secretName": name, "duration": "8760h0m0s", "renewBefore": "168h0m0s",
        "privateKey": {"algorithm": "RSA", "size": 4096},
        "issuerRef": {"name": "main-client-ca", "kind": "Issuer", "group": "cert-manager.io"},
    });
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    Object::new(json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"namespace": "kcp-system", "name": name}, "spec": all,
    }))
    .unwrap()
}

fn ca_spec() -> Value {
    json!({"isCA": true, "commonName": "ca", "duration": "87600h0m0s", "renewBefore": "720h0m0s",
        "privateKey": {"rotationPolicy": "Never"}})
}

fn values(issued: Issued) -> Values {
    issued.values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A root CA and a sub CA of it.
fn authorities() -> (Values, Values) {
    let root = read(&certificate("main-ca", ca_spec()), None, true).unwrap().issue(None, None, now()).unwrap();
    let root = values(root);
    let mut spec = ca_spec();
    spec["commonName"] = "main-client-ca".into();
    let request = read(&certificate("main-client-ca", spec), Some("main-ca".to_owned()), false).unwrap();
    let sub = values(request.issue(Some(&root), None, now()).unwrap());
    (root, sub)
}

fn user() -> Value {
    json!({"commonName": "system:user", "subject": {"organizations": ["system:masters", "team:a", "ä"]},
        "usages": ["client auth"]})
}

fn request(spec: Value) -> Request {
    read(&certificate("user", spec), Some("main-client-ca".to_owned()), false).unwrap()
}

fn first(values: &Values) -> Authority {
    pki::read_first(&values[CERTIFICATE]).unwrap()
}

fn same(left: &Values, right: &Values, key: &str) -> bool {
    left[key] == right[key]
}

#[test]
fn a_certificate_has_what_it_asks_for_and_the_chain_to_its_ca() {
    let (root, sub) = authorities();
    let mut spec = user();
    spec["dnsNames"] = json!(["kcp.example.com"]);
    spec["ipAddresses"] = json!(["10.0.0.1", "::1"]);
    spec["usages"] = json!(["server auth", "client auth", "digital signature"]);
    let issued = values(request(spec).issue(Some(&sub), None, now()).unwrap());

    let leaf = first(&issued);
    let (_, parsed) = X509Certificate::from_der(&leaf.der).unwrap();
    // All values of a kind are one set, sorted by their encoding.
    assert_eq!(parsed.subject().to_string(), "O=ä + O=team:a + O=system:masters, CN=system:user");
    assert_eq!(parsed.issuer().to_string(), "CN=main-client-ca");
    assert!(!parsed.is_ca());
    let usage = parsed.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.digital_signature() && !usage.value.key_encipherment());
    let purposes = parsed.extended_key_usage().unwrap().unwrap();
    assert!(purposes.value.server_auth && purposes.value.client_auth && !purposes.value.any);
    let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert_eq!(names.len(), 3);
    assert!(pki::is_server_of(&leaf, &["kcp.example.com".to_owned(), "10.0.0.1".to_owned(), "::1".to_owned()]));

    let chain = pki::read_bundle(&issued[CERTIFICATE]).unwrap();
    assert_eq!(chain.authorities().len(), 2, "the leaf and the CA that signed it");
    assert!(pki::is_of(&leaf, &first(&sub)) && pki::is_of(&first(&sub), &first(&root)));
    assert!(pki::is_self_signed(&first(&root)) && !pki::is_self_signed(&first(&sub)));
    // The root is no part of a chain, and what its own Secret says is its CA.
    assert_eq!(pki::read_bundle(&sub[CERTIFICATE]).unwrap().authorities().len(), 1);
    assert_eq!(sub[CA], root[CERTIFICATE]);
    assert_eq!(issued[CA], root[CERTIFICATE]);
    // Programs that take keys of service accounts read elliptic keys in this form only.
    assert!(issued[KEY].starts_with(b"-----BEGIN EC PRIVATE KEY-----\n"));
}

#[test]
fn what_is_as_wanted_stays_and_anything_else_is_issued_anew() {
    let (_, sub) = authorities();
    let issued = values(request(user()).issue(Some(&sub), None, now()).unwrap());
    let again =
        |spec: Value, sub: &Values, at: Timestamp| values(request(spec).issue(Some(sub), Some(&issued), at).unwrap());
    assert_eq!(again(user(), &sub, now()), issued);
    let life = 8760.hours();
    assert_eq!(again(user(), &sub, now() + life - 169.hours()), issued, "before its renewal");
    assert_eq!(again(user(), &sub, now() - 1.hours()), issued, "by a clock that is behind");

    let with = |field: &str, value: Value| {
        let mut spec = user();
        spec[field] = value;
        spec
    };
    let (_, other) = authorities();
    for (what, spec, sub, at) in [
        ("due", user(), &sub, now() + life - 167.hours()),
        ("another name", with("commonName", json!("other")), &sub, now()),
        ("another group", with("subject", json!({"organizations": ["system:masters"]})), &sub, now()),
        ("another usage", with("usages", json!(["server auth"])), &sub, now()),
        ("a DNS name", with("dnsNames", json!(["a.example.com"])), &sub, now()),
        ("a CA", with("isCA", json!(true)), &sub, now()),
        ("a shorter life", with("duration", json!("1000h")), &sub, now()),
        ("another CA", user(), &other, now()),
    ] {
        let found = again(spec.clone(), sub, at);
        assert!(!same(&found, &issued, CERTIFICATE), "{what}");
        assert!(!same(&found, &issued, KEY), "{what}: a new key");
        let mut keeps = spec;
        keeps["privateKey"] = json!({"rotationPolicy": "Never"});
        let kept = again(keeps, sub, at);
        assert!(!same(&kept, &issued, CERTIFICATE) && same(&kept, &issued, KEY), "{what}: the same key");
    }
}

/// A CA that is renewed with its key: what it signed stays valid, and brings the new certificate of its CA.
#[test]
fn a_new_certificate_for_the_same_ca_changes_the_chain_only() {
    let (root, sub) = authorities();
    let issued = values(request(user()).issue(Some(&sub), None, now()).unwrap());
    let mut spec = ca_spec();
    spec["commonName"] = "main-client-ca".into();
    let request_of_ca = read(&certificate("main-client-ca", spec), Some("main-ca".to_owned()), false).unwrap();
    let later = now() + 90_000.hours();
    assert!(request_of_ca.issue(Some(&root), Some(&sub), later).is_err_and(|why| why.contains("expired on")));
    let shortly = now() + 86_900.hours();
    let renewed = values(request_of_ca.issue(Some(&root), Some(&sub), shortly).unwrap());
    assert!(same(&renewed, &sub, KEY) && !same(&renewed, &sub, CERTIFICATE));

    let found = values(request(user()).issue(Some(&renewed), Some(&issued), now()).unwrap());
    assert!(same(&found, &issued, KEY) && !same(&found, &issued, CERTIFICATE));
    assert_eq!(first(&found), first(&issued));
    assert_eq!(pki::read_bundle(&found[CERTIFICATE]).unwrap().authorities()[1], first(&renewed));
    assert_eq!(found[CA], root[CERTIFICATE]);
}

#[test]
fn the_end_of_a_ca_limits_what_it_signs() {
    let (root, _) = authorities();
    let request = read(&certificate("user", user()), Some("main-ca".to_owned()), false).unwrap();
    let late = now() + 87_000.hours();
    let issued = request.issue(Some(&root), None, late).unwrap();
    assert!(issued.renew_at < first(&root).validity.not_after);
    let issued = values(issued);
    assert_eq!(first(&issued).validity.not_after, first(&root).validity.not_after);
    assert_eq!(values(request.issue(Some(&root), Some(&issued), late).unwrap()), issued, "it is as long as can be");

    // A CA that ends when its certificates would be renewed: none is due at once, at whatever second it is issued.
    for seconds in [-120, -60, -1, 0, 1, 60] {
        let now = first(&root).validity.not_after - 168.hours() - seconds.seconds();
        let issued = request.issue(Some(&root), None, now).unwrap();
        assert!(now < issued.renew_at, "{seconds}");
        let issued = values(issued);
        assert_eq!(values(request.issue(Some(&root), Some(&issued), now).unwrap()), issued, "{seconds}");
    }
}

#[test]
fn what_cannot_be_issued_is_one_sentence_without_a_value() {
    let (_, sub) = authorities();
    let refused =
        |spec: Value| read(&certificate("user", spec), Some("main-client-ca".to_owned()), false).map(drop).unwrap_err();
    for (spec, expected) in [
        (json!({"uris": ["spiffe://a"]}), "the built-in CA cannot issue it: unknown field `uris`"),
        (json!({"usages": ["netscape sgc"]}), "does not know the usage `netscape sgc`"),
        (json!({"duration": "a year"}), "`duration` is not a duration"),
        (json!({"dnsNames": ["kü.example.com"]}), "names must be ASCII"),
        (json!({"ipAddresses": ["10.0.0"]}), "`10.0.0` is not an IP address"),
        (json!({"secretName": "other"}), "its Secret must have the same name"),
    ] {
        let sentence = refused(spec);
        assert!(sentence.starts_with("Certificate user: ") && sentence.contains(expected), "{sentence}");
    }
    let sentence = read(&certificate("user", user()), None, false).map(drop).unwrap_err();
    assert!(sentence.contains("Issuer main-client-ca is not the built-in CA"), "{sentence}");

    let without = |key: &str| {
        let mut left = sub.clone();
        left.remove(key);
        left
    };
    let leaf = values(request(user()).issue(Some(&sub), None, now()).unwrap());
    let with_key = |key: Vec<u8>| {
        let mut mixed = without(KEY);
        mixed.insert(KEY.to_owned(), key);
        mixed
    };
    let mixed = with_key(leaf[KEY].clone());
    let short = with_key(pki::write_block("PRIVATE KEY", &STANDARD.decode(RSA_1024).unwrap()).into_bytes());
    for (what, ca, expected) in [
        ("no key", without(KEY), "it has no key `tls.key`"),
        ("no certificate", without(CERTIFICATE), "it has no key `tls.crt`"),
        ("a leaf", leaf, "the certificate is not a CA certificate"),
        ("another key", mixed, "the key does not belong to the certificate"),
        ("a short key", short, "unsupported signing key: use ECDSA (P-256, P-384), Ed25519 or RSA (2048 to 4096 bits)"),
    ] {
        let sentence = request(user()).issue(Some(&ca), None, now()).map(drop).unwrap_err();
        assert!(
            sentence.contains("Secret main-client-ca cannot sign") && sentence.contains(expected),
            "{what}: {sentence}"
        );
    }
    let end = first(&sub).validity.not_after;
    let sentence = request(user()).issue(Some(&sub), None, end).map(drop).unwrap_err();
    let expected = format!("Secret main-client-ca cannot sign: its certificate expired on {end}");
    assert!(sentence.contains(&expected), "{sentence}");
    let company = |is_ca: rcgen::IsCa, usages: Vec<rcgen::KeyUsagePurpose>| {
        let key = KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        (params.is_ca, params.key_usages) = (is_ca, usages);
        let pem = params.self_signed(&key).unwrap().pem();
        Values::from([(CERTIFICATE.to_owned(), pem.into_bytes()), (KEY.to_owned(), key.serialize_pem().into_bytes())])
    };
    let last = company(rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0)), Vec::new());
    assert!(request(user()).issue(Some(&last), None, now()).is_ok());
    let sentence = request(ca_spec()).issue(Some(&last), None, now()).map(drop).unwrap_err();
    assert!(sentence.contains("cannot sign a CA: its certificate has a path length of 0"), "{sentence}");
    let usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    let mute = company(rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained), usages);
    let sentence = request(user()).issue(Some(&mute), None, now()).map(drop).unwrap_err();
    assert!(sentence.contains("its key usage does not include certificate signing"), "{sentence}");

    // The key of a CA is never replaced by mistake.
    let mut broken = sub.clone();
    broken.insert(KEY.to_owned(), b"secret".to_vec());
    let mut spec = ca_spec();
    spec["commonName"] = "main-client-ca".into();
    let sentence = request(spec).issue(Some(&sub), Some(&broken), now()).map(drop).unwrap_err();
    assert!(sentence.contains("is unusable") && !sentence.contains("secret;"), "{sentence}");
}
