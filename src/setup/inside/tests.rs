use rcgen::{CertificateParams, KeyPair};

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
