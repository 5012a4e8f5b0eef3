use super::*;
use crate::gateway::pki::{Leaf, Root};
use k8s_openapi::jiff::{Timestamp, ToSpan as _};
use serde_json::json;
use tidegate_core::plan::certificate::Validity;

fn authority(name: &str) -> Leaf {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    Root::generate(name, Validity { not_before: now, not_after: now + 24.hours() }).unwrap()
}

fn text(leaf: &Leaf) -> Vec<u8> {
    leaf.certificate.as_bytes().to_vec()
}

fn read(secrets: &[(&str, Vec<u8>)], trusts: Vec<Trust>) -> Result<String, String> {
    let all: Vec<(&str, Values)> =
        secrets.iter().map(|(name, value)| (*name, Values::from([("tls.crt".to_owned(), value.clone())]))).collect();
    let find = |name: &str| all.iter().find(|(of, _)| *of == name).map(|(_, values)| values);
    value(&Content::Bundle(trusts), &find).map(|value| String::from_utf8(value).unwrap())
}

/// d13: a bundle contains certificates and nothing else, in the order of the plan.
#[test]
fn a_bundle_has_the_certificates_of_its_secrets_in_order_and_no_key() {
    let (one, other) = (authority("one"), authority("other"));
    let both = [text(&one), text(&other)].concat();
    let trusts = || vec![Trust::whole("server"), Trust::whole("company")];
    let with_blanks = [text(&other), b"\n\n  \n".to_vec()].concat();
    let found = read(&[("server", text(&one)), ("company", with_blanks)], trusts()).unwrap();
    assert_eq!(found.as_bytes(), both);

    let first = vec![Trust { secret: "client".to_owned(), only_first: true }];
    assert_eq!(read(&[("client", both.clone())], first).unwrap().as_bytes(), text(&one), "row 79");

    let with_key = [text(&one), other.key.as_bytes().to_vec()].concat();
    let found = read(&[("server", text(&one)), ("company", with_key)], trusts()).unwrap_err();
    assert!(found.starts_with("Secret company, key `tls.crt`: block 2 "), "{found}");
    assert!(!found.contains("BEGIN"), "no value is quoted: {found}");
    let found = read(&[("server", text(&one)), ("company", b"junk".to_vec())], trusts()).unwrap_err();
    assert!(found.contains("block 1 is not PEM"), "{found}");
    let found = read(&[("server", text(&one)), ("company", Vec::new())], trusts()).unwrap_err();
    assert!(found.contains("it contains no certificate"), "{found}");
    assert_eq!(read(&[("server", text(&one))], trusts()).unwrap_err(), "Secret company has no key `tls.crt`");
}

/// Bad input: a bundle may have as many bytes as a Secret, and two of them may be too large together.
#[test]
fn a_bundle_that_no_secret_has_room_for_is_one_sentence() {
    let (server, company) = (text(&authority("server")), text(&authority("company")));
    let whole = company.repeat(SECRET_BYTES_MAX / company.len());
    let trusts = || vec![Trust::whole("server"), Trust::whole("company")];
    let found = read(&[("server", server.repeat(2)), ("company", whole.clone())], trusts()).unwrap_err();
    assert!(found.starts_with("the certificates of Secrets server, company are 10"), "{found}");
    assert!(found.ends_with(" bytes together, and a Secret has room for 1048576; remove those that are not needed"));
    let fits = read(&[("company", whole.clone())], vec![Trust::whole("company")]).unwrap();
    assert_eq!(fits.as_bytes(), whole);
}

#[test]
fn what_is_kept_of_a_secret_has_no_value_of_it() {
    let root = authority("root");
    let metadata = |name: &str| json!({"name": name, "namespace": "kcp-system"});
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("main-ca"),
        "data": {"tls.crt": STANDARD.encode(text(&root)), "tls.key": STANDARD.encode("hidden")}});
    let values = values(&Object::new(object).unwrap());
    let known = known("7", &values);
    assert_eq!(known.is_self_signed, Some(true));
    assert_eq!(known.keys.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
    assert!(!format!("{known:?}").contains("hidden"));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("audit"),
        "data": {"policy.yaml": "rules: []"}, "binaryData": {"other": "AAE="}});
    let values = super::values(&Object::new(config).unwrap());
    assert_eq!(values["policy.yaml"], b"rules: []");
    assert_eq!(values["other"], [0, 1]);
    assert_eq!(super::known("7", &values).is_self_signed, None);
}

/// Row 66: private keys are found in PEM, in DER and in key stores. A binary value that may be the key of a CA counts
/// as one.
#[test]
fn r66_private_keys_are_found_in_all_formats_and_so_is_whose_they_are() {
    let certificate = |is_ca| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
        params.is_ca = is_ca;
        (params.self_signed(&key).unwrap(), key)
    };
    let (ca, ca_key) = certificate(rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
    let (leaf, leaf_key) = certificate(rcgen::IsCa::NoCa);
    let (ca_pem, leaf_pem) = (ca.pem().into_bytes(), leaf.pem().into_bytes());
    let (ca_der, key_der) = (ca.der().to_vec(), ca_key.serialize_der());
    let (ca_key, leaf_key) = (ca_key.serialize_pem().into_bytes(), leaf_key.serialize_pem().into_bytes());
    let encrypted = pki::write_block("ENCRYPTED PRIVATE KEY", &[0x30, 0x01, 0x02]).into_bytes();
    let combined = [ca_key.clone(), ca_pem.clone()].concat();
    let chain = [leaf_pem.clone(), ca_pem.clone()].concat();
    let with = |key: &Vec<u8>| [chain.clone(), key.clone()].concat();
    let (of_ca, of_leaf, of_unknown) = (with(&ca_key), with(&leaf_key), with(&encrypted));
    let sealed = [&[0x30_u8, 0x0b, 0x30, 0x04, 0x06, 0x02, 1, 2, 0x04, 0x03][..], &[0xff; 3]].concat();
    let tokens = [&[0x30_u8, 0x80, 0xff, 0x01][..], &[0x30, 0x03, 0xff, 1, 2], &[0x30, 0x04, 0x30, 0x01, 0xff, 0x03]];
    let [one, two, three] = tokens.map(|token| STANDARD.encode(token).into_bytes());
    let p12 = [&[0x30_u8, 0x82, 0x01, 0x00, 0x02, 0x01, 0x03][..], &[0xff; 253]].concat();
    let jks: Vec<u8> = vec![0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2];
    let lines = STANDARD.encode(&p12).as_bytes().chunks(64).collect::<Vec<_>>().join(&b"\n"[..]);
    let (tls, root, text) = ("tls.crt", "ca.crt", b"0:text\n".to_vec());
    let kubeconfig = br#"{"users": [{"user": {"client-key-data": "YQ=="}}]}"#.to_vec();
    for (values, private, authorities, unclear) in [
        // The Secret of a CA, with all that cert-manager may write.
        (vec![(tls, &ca_pem), ("tls.key", &key_der)], "tls.key", "tls.key", "tls.key"),
        (vec![(tls, &ca_pem), ("keystore.p12", &p12)], "keystore.p12", "keystore.p12", "keystore.p12"),
        (vec![(tls, &ca_pem), ("keystore.jks", &jks)], "keystore.jks", "keystore.jks", "keystore.jks"),
        (vec![(tls, &ca_pem), ("key.der", &key_der)], "key.der", "key.der", "key.der"),
        (vec![(tls, &ca_pem), ("tls-combined.pem", &combined)], "tls-combined.pem", "tls-combined.pem", ""),
        // That of another certificate.
        (vec![(tls, &leaf_pem), (root, &ca_pem), ("keystore.p12", &p12)], "keystore.p12", "", ""),
        (vec![(tls, &leaf_pem), (root, &ca_pem), ("key.der", &key_der)], "key.der", "", ""),
        (vec![(tls, &leaf_pem), (root, &ca_pem), ("more.p12", &p12)], "more.p12", "more.p12", "more.p12"),
        // Those of users, in whichever format.
        (vec![("one.der", &ca_der), ("one.p12", &p12)], "one.p12", "one.p12", "one.p12"),
        (vec![("one.pem", &combined)], "one.pem", "one.pem", ""),
        (vec![("one.p12", &p12), ("note", &text)], "one.p12", "", "one.p12"),
        (vec![("one.txt", &lines), ("note", &text)], "one.txt", "", "one.txt"),
        (vec![(root, &ca_pem), ("one.bin", &vec![5, 2, 0])], "", "", "one.bin"),
        (vec![("one.bin", &vec![5, 2, 0]), ("ca.der", &ca_der[..8].to_vec())], "", "", ""),
        (vec![("kubeconfig", &kubeconfig)], "kubeconfig", "", ""),
        // A key in PEM is compared with all certificates. Without one, nothing says whose it is.
        (vec![("ca.key", &ca_key)], "ca.key", "", "ca.key"),
        (vec![(root, &ca_pem), ("ca.key", &ca_key)], "ca.key", "ca.key", ""),
        (vec![(root, &ca_pem), ("company.key", &ca_key)], "company.key", "company.key", ""),
        (vec![(tls, &leaf_pem), ("tls.key", &leaf_key), (root, &ca_pem)], "tls.key", "", ""),
        (vec![(tls, &chain), ("tls.key", &leaf_key)], "tls.key", "", ""),
        (vec![(tls, &leaf_pem), ("tls.key", &leaf_key), ("old.key", &ca_key)], "old.key tls.key", "", "old.key"),
        (vec![("bundle.pem", &of_ca)], "bundle.pem", "bundle.pem", ""),
        (vec![("bundle.pem", &of_leaf)], "bundle.pem", "", ""),
        // One that cannot be read.
        (vec![("ca.key", &encrypted)], "ca.key", "", "ca.key"),
        (vec![(root, &ca_pem), ("ca.key", &encrypted)], "ca.key", "ca.key", ""),
        (vec![(tls, &chain), ("tls.key", &encrypted)], "tls.key", "", ""),
        (vec![("bundle.pem", &of_unknown)], "bundle.pem", "", "bundle.pem"),
        (vec![("key.der", &sealed), ("note", &text)], "key.der", "", "key.der"),
        // What begins like DER by chance.
        (vec![("one", &one), ("three", &three), ("two", &two)], "", "", ""),
    ] {
        let shown: Vec<&str> = values.iter().map(|(key, _)| *key).collect();
        let values: Values = values.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let known = super::known("1", &values);
        let text = |keys: &BTreeSet<String>| keys.iter().cloned().collect::<Vec<_>>().join(" ");
        let found = [text(&known.private), text(&known.authorities), text(&known.unclear)];
        assert_eq!(found, [private, authorities, unclear], "{shown:?}");
    }
}
