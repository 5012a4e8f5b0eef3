use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::*;
use tidegate_core::plan::certificate::{Backend, later};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn validity(days: u32) -> Validity {
    Validity { not_before: now(), not_after: later(now(), DAY * days) }
}

fn made(days: u32) -> Leaf {
    Root::generate("klm-watcher-selfsigned-ca", validity(days)).unwrap()
}

fn read(leaf: &Leaf) -> Root {
    Root::read(leaf.certificate.as_bytes(), leaf.key.as_bytes()).unwrap()
}

fn issue<'a>(names: &'a [String], days: u32, is_server: bool) -> Issue<'a> {
    Issue { common_name: "id-1", names, validity: validity(days), is_server }
}

fn names() -> Vec<String> {
    ["one.example.org", "skr-webhook.kyma-system.svc", "10.0.0.1"].map(str::to_owned).to_vec()
}

#[test]
fn bundle_is_read_as_it_was_written() {
    let (a, b) = (made(90), made(10));
    let text = format!("{}{}", a.certificate, b.certificate);
    let bundle = read_bundle(text.as_bytes()).unwrap();
    let ends: Vec<Timestamp> = bundle.authorities().iter().map(|authority| authority.validity.not_after).collect();
    assert_eq!(ends, [later(now(), DAY * 90), later(now(), DAY * 10)]);
    assert_eq!(read_bundle(write_bundle(&bundle).as_bytes()).unwrap(), bundle);
    // Remarks above a certificate are skipped, as in Go.
    let remarked = format!("# the first\n{}\n# the second\n{}\n", a.certificate, b.certificate);
    assert_eq!(read_bundle(remarked.as_bytes()).unwrap(), bundle);
    assert_eq!(read_first(text.as_bytes()).unwrap(), bundle.authorities()[0]);
}

#[test]
fn what_is_no_certificate_is_an_error_and_never_quoted() {
    let good = made(90);
    let secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQ=";
    let block = |content: &str| format!("-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n");
    let table = [
        (String::new(), "it contains no certificate"),
        ("  \n".to_owned(), "it contains no certificate"),
        (secret.to_owned(), "block 1 is not PEM"),
        (block(secret), "block 1 is not an X.509 certificate"),
        (block("!!"), "block 1 is not PEM"),
        ("-----BEGIN CERTIFICATE-----\nYQ==\n".to_owned(), "block 1 is not PEM"),
        (format!("{}{secret}", good.certificate), "block 2 is not PEM"),
        (format!("{}{}", good.certificate, block(secret)), "block 2 is not an X.509 certificate"),
        (format!("{}{}", block("YQ=="), good.certificate), "block 1 is not an X.509 certificate"),
    ];
    for (text, expected) in table {
        let error = read_bundle(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
    assert!(read_bundle(&[0xff, 0xfe]).is_err());
    assert!(read_first(b"").is_err());
}

#[test]
fn certificate_without_end_is_an_error() {
    let zero = Validity { not_before: Timestamp::UNIX_EPOCH, not_after: Timestamp::UNIX_EPOCH };
    let made = Root::generate("x", zero).unwrap();
    assert!(matches!(read_first(made.certificate.as_bytes()), Err(Error::NoEnd { position: 1 })));
}

#[test]
fn leaf_bears_names_use_and_authority() {
    let root = read(&made(90));
    let leaf = root.issue(issue(&names(), 60, false)).unwrap();
    let read = read_first(leaf.certificate.as_bytes()).unwrap();
    assert_eq!(read.validity, validity(60));
    assert!(is_of(&read, root.certificate()));
    assert!(is_of(root.certificate(), root.certificate()));
    assert!(!is_of(&read, super::tests::read(&made(90)).certificate()), "same subject, another key");
    let (_, parsed) = X509Certificate::from_der(&read.der).unwrap();
    let common_name = parsed.subject().iter_common_name().next().unwrap().as_str().unwrap();
    assert_eq!(common_name, "id-1");
    assert!(!parsed.is_ca());
    assert!(parsed.extended_key_usage().unwrap().is_none(), "both sides of a runtime use it");
    let usage = parsed.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign());
    assert!(is_server_of(&read, &names()));
    assert!(!is_server_of(&read, &["other.example.org".to_owned()]));
    assert!(!is_server_of(root.certificate(), &[]), "a CA certificate is not a server certificate");
}

#[test]
fn server_without_known_names_is_one_all_the_same() {
    let root = read(&made(90));
    let leaf = root.issue(issue(&[], 60, true)).unwrap();
    let read = read_first(leaf.certificate.as_bytes()).unwrap();
    assert!(is_server_of(&read, &[]));
    assert!(!is_server_of(&read, &names()));
}

#[test]
fn nothing_outlives_its_authority() {
    let root = read(&made(10));
    let leaf = root.issue(issue(&names(), 60, false)).unwrap();
    assert_eq!(leaf.validity.not_after, later(now(), DAY * 10));
    assert_eq!(read_first(leaf.certificate.as_bytes()).unwrap().validity.not_after, later(now(), DAY * 10));
}

#[test]
fn name_that_cannot_stand_in_a_certificate_is_said() {
    let root = read(&made(10));
    let error = root.issue(issue(&["münchen.example.org".to_owned()], 60, false)).unwrap_err();
    assert_eq!(error.to_string(), "`münchen.example.org` is not a valid name in a certificate: names must be ASCII");
}

#[test]
fn rustls_accepts_what_is_issued_on_both_sides() {
    use rustls::{
        RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    };
    tidegate_process::tls::install();
    let root = read(&made(3650));
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from(root.certificate().der.to_vec())).unwrap();
    let trusted = Arc::new(trusted);
    // rustls reads the clock, so this certificate is valid from now on.
    let lasting = Validity { not_before: Timestamp::now(), not_after: later(Timestamp::now(), DAY) };
    let pair = |is_server| {
        let names = names();
        let issue = Issue { common_name: "id-1", names: &names, validity: lasting, is_server };
        let leaf = root.issue(issue).unwrap();
        let chain = vec![CertificateDer::from(pem::first(leaf.certificate.as_bytes()).unwrap())];
        let key = PrivatePkcs8KeyDer::from(pem::first(leaf.key.as_bytes()).unwrap());
        (chain, PrivateKeyDer::from(key))
    };
    for server in [true, false] {
        let verifier = rustls::server::WebPkiClientVerifier::builder(Arc::clone(&trusted)).build().unwrap();
        let (chain, key) = pair(server);
        let server = rustls::ServerConfig::builder().with_client_cert_verifier(verifier);
        let server = Arc::new(server.with_single_cert(chain, key).unwrap());
        let (chain, key) = pair(false);
        let client = rustls::ClientConfig::builder().with_root_certificates(Arc::clone(&trusted));
        let client = Arc::new(client.with_client_auth_cert(chain, key).unwrap());
        let mut client = rustls::ClientConnection::new(client, "one.example.org".try_into().unwrap()).unwrap();
        let mut server = rustls::ServerConnection::new(server).unwrap();
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            client.write_tls(&mut up).unwrap();
            server.read_tls(&mut up.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            up.clear();
            server.write_tls(&mut down).unwrap();
            client.read_tls(&mut down.as_slice()).unwrap();
            client.process_new_packets().unwrap();
            down.clear();
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
    }
}

#[test]
fn key_is_read_in_the_forms_that_others_write() {
    let made = made(90);
    // A PKCS#8 wrapper of a P-256 key has this length; the rest is the older format.
    const SEC1_LEN: usize = 109;
    let pkcs8 = pem::first(made.key.as_bytes()).unwrap();
    let sec1 = STANDARD.encode(&pkcs8[pkcs8.len() - SEC1_LEN..]);
    let sec1 = format!("-----BEGIN EC PRIVATE KEY-----\n{sec1}\n-----END EC PRIVATE KEY-----\n");
    for key in [&made.key, &sec1] {
        let root = Root::read(made.certificate.as_bytes(), key.as_bytes()).unwrap();
        let leaf = root.issue(issue(&names(), 60, false)).unwrap();
        assert!(is_of(&read_first(leaf.certificate.as_bytes()).unwrap(), root.certificate()));
    }
}

#[test]
fn pair_that_cannot_sign_is_refused_with_the_reason() {
    let (one, other) = (made(90), made(90));
    let leaf = read(&one).issue(issue(&names(), 60, false)).unwrap();
    let garbage = "-----BEGIN PRIVATE KEY-----\nYQ==\n-----END PRIVATE KEY-----\n".to_owned();
    let table = [
        (&one.certificate, &other.key, "the key does not belong to the certificate"),
        (&leaf.certificate, &leaf.key, "the certificate is not a CA certificate"),
        (&one.certificate, &garbage, "unsupported signing key"),
        (&one.certificate, &one.certificate, "unsupported signing key"),
        (&one.key, &one.key, "block 1 is not an X.509 certificate"),
    ];
    for (certificate, key, expected) in table {
        let error = Root::read(certificate.as_bytes(), key.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn debug_shows_no_key() {
    let made = made(90);
    let shown = format!("{made:?} {:?}", read(&made));
    assert!(!shown.contains("PRIVATE") && shown.len() < 300, "{shown}");
}

#[test]
fn status_of_cert_manager_is_understood() {
    let object = json!({
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {"tidegate.dev/kyma": "kcp-system/one"}},
        "spec": {"commonName": "id-1"},
        "status": {
            "notBefore": "2026-01-01T00:00:00Z", "notAfter": "2026-01-11T00:00:00Z",
            "lastFailureTime": "2026-01-02T00:00:00Z",
            "conditions": [
                {"type": "Ready", "status": "False", "message": "Issuer not found"},
                {"type": "Issuing", "status": "True", "message": "Issuing"},
            ],
        },
    });
    let live = object::read(Backend::CertManager, &object);
    assert_eq!(live.validity, Some(validity(10)));
    assert!(live.is_issuing && !live.is_deleting);
    assert_eq!(live.failed_at, Some(later(now(), DAY)));
    assert_eq!((live.problem.as_deref(), live.kyma.as_deref()), (Some("Issuer not found"), Some("kcp-system/one")));
    // An incomplete status is ignored, and so is an invalid time.
    for status in [json!({}), json!({"notBefore": "2026-01-01T00:00:00Z"}), json!({"notBefore": "x", "notAfter": "y"})]
    {
        let live = object::read(Backend::CertManager, &json!({"metadata": {}, "status": status}));
        assert_eq!((live.validity, live.is_issuing, live.problem), (None, false, None));
    }
}

#[test]
fn status_of_gardener_is_understood() {
    let object = json!({
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"renew": true},
        "status": {
            "issuanceDate": "2026-01-01T00:00:00Z", "expirationDate": "2026-01-11T00:00:00Z",
            "state": "Pending", "message": "certificate requested",
        },
    });
    let live = object::read(Backend::Gardener, &object);
    assert_eq!(live.validity, Some(validity(10)));
    assert!(live.is_issuing);
    assert_eq!(live.problem.as_deref(), Some("certificate requested"));
    let ready = json!({"metadata": {}, "spec": {}, "status": {"state": "Ready", "message": "certificate requested"}});
    assert_eq!(object::read(Backend::Gardener, &ready).problem, None);
}

#[test]
fn renewal_is_asked_for_as_lifecycle_manager_asks() {
    let live = object::read(Backend::CertManager, &json!({"metadata": {"resourceVersion": "7"}}));
    let ready = json!({"type": "Ready", "status": "True"});
    let old = json!({"type": "Issuing", "status": "False"});
    let renewal = object::renewal(Backend::CertManager, &live, &[ready.clone(), old], now());
    assert_eq!(renewal.subresource, Some("status"));
    assert_eq!(renewal.patch["metadata"], json!({"resourceVersion": "7"}));
    let conditions = renewal.patch["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions[0], ready);
    assert_eq!(
        (&conditions[1]["type"], &conditions[1]["status"], &conditions[1]["reason"], conditions.len()),
        (&json!("Issuing"), &json!("True"), &json!("ManuallyTriggered"), 2)
    );
    assert_eq!(conditions[1]["lastTransitionTime"], "2026-01-01T00:00:00Z");

    let renewal = object::renewal(Backend::Gardener, &live, &[], now());
    let expected = json!({"metadata": {"resourceVersion": "7"}, "spec": {"renew": true, "ensureRenewedAfter": null}});
    assert_eq!((renewal.patch, renewal.subresource), (expected, None));
}
