use rcgen::{CertificateParams, KeyPair};
use tidegate_cluster::Unreachable;

use super::*;

fn pair() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["kcp".to_owned()]).expect("names").self_signed(&key);
    (certificate.expect("a certificate").pem(), key.serialize_pem())
}

fn route() -> Route {
    Route {
        root: Key::new("kcp-system", "main"),
        url: "https://kcp.example.com:6443".to_owned(),
        tls_name: Some("main-kcp.kcp-system.svc.cluster.local".to_owned()),
        credentials: "main-kcp-operator".to_owned(),
        bundle: Some("company-ca".to_owned()),
        deployment: "main-kcp".to_owned(),
        has_admin: true,
    }
}

/// Bad input: whatever kcp does, it is one sentence with the workspace. Only a refusal is final.
#[test]
fn r38_what_kcp_does_wrong_is_one_sentence() {
    let (cluster, server): (Arc<str>, Arc<str>) = ("kcp".into(), "kcp.example.com:6443".into());
    let target = || tidegate_cluster::Target::Path("/api");
    let unreachable =
        |cause| Error::Unreachable { cluster: Arc::clone(&cluster), server: Arc::clone(&server), cause, sent: true };
    let failing = |code: u16| Error::Server {
        cluster: Arc::clone(&cluster),
        target: target(),
        status: http::StatusCode::from_u16(code).expect("a status"),
        message: "no leader".to_owned(),
    };
    let forbidden = Error::Forbidden { target: target(), message: "access denied".to_owned() };
    for (error, text, expected) in [
        (unreachable(Unreachable::Connect), "(kcp.example.com:6443) cannot be reached", false),
        (unreachable(Unreachable::Timeout), "(kcp.example.com:6443) cannot be reached", false),
        (unreachable(Unreachable::Untrusted), "(kcp.example.com:6443) cannot be reached", false),
        (failing(500), "failed with HTTP status 500 Internal Server Error", false),
        (forbidden, "forbidden: access denied", true),
    ] {
        let Failed::Inside { sentence, is_final } = refused("root:company", error) else { panic!("it is kcp's") };
        assert!(sentence.starts_with("workspace root:company: ") && sentence.contains(text), "{sentence}");
        assert_eq!((is_final, sentence.lines().count()), (expected, 1), "{sentence}");
    }
}

/// Row 39: the certificate of kcp-operator, its root CA and the bundle of the server, and the name in its certificate.
#[test]
fn r39_a_workspace_is_reached_with_the_certificate_of_kcp_operator() {
    let ((certificate, key), (ca, _), (company, _)) = (pair(), pair(), pair());
    let values = |all: &[(&str, &str)]| -> Values {
        all.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    };
    let credentials = values(&[("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", &ca)]);
    let bundle = values(&[("tls.crt", &company)]);
    let found = config(&route(), "root:company", &credentials, &[&bundle]).expect("a configuration");
    assert_eq!(found.cluster_url.to_string(), "https://kcp.example.com:6443/clusters/root:company");
    assert_eq!(found.tls_server_name.as_deref(), Some("main-kcp.kcp-system.svc.cluster.local"));
    assert_eq!(found.root_cert.expect("CAs").len(), 2);
    assert_eq!(found.auth_info.client_certificate_data, Some(STANDARD.encode(&certificate)));
    let without = values(&[("tls.crt", &certificate), ("tls.key", &key)]);
    let expected = Err("Secret main-kcp-operator has no key `ca.crt`".to_owned());
    assert_eq!(config(&route(), "root", &without, &[]).map(drop), expected);
}
