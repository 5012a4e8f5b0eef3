use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use super::*;
use tidegate_process::tls::{self, Algorithms};

struct Folder {
    folder: tempfile::TempDir,
    files: Files,
}

fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = Files { certificate: path("tls.crt"), key: path("tls.key"), authorities: path("ca.crt") };
        let (certificate, key) = pair();
        let this = Folder { folder, files };
        this.write("tls.crt", &certificate);
        this.write("tls.key", &key);
        this.write("ca.crt", &certificate);
        this
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn load(&self) -> Result<Generation, String> {
        let folder: PathBuf = self.folder.path().into();
        Generation::load(&self.files, &tls::provider(Algorithms::Approved), 1)
            .map_err(|error| chain(&error).replace(folder.to_str().unwrap(), "/ssl"))
    }
}

#[test]
fn unit_all_three_are_read_as_one() {
    let generation = Folder::new().load().unwrap();
    assert_eq!(generation.number, 1);
    assert!(generation.validity.not_before < generation.validity.not_after);
}

#[test]
fn what_is_wrong_is_said_with_its_file() {
    let (certificate, key) = pair();
    for (name, content, expected) in [
        ("tls.crt", "", "/ssl/tls.crt contains no certificate in PEM"),
        ("tls.key", "no key", "/ssl/tls.key contains no private key in PEM"),
        ("ca.crt", "", "/ssl/ca.crt contains no certificate in PEM"),
        ("ca.crt", key.as_str(), "/ssl/ca.crt contains no certificate in PEM"),
        (
            "tls.crt",
            certificate.as_str(),
            "the certificate in /ssl/tls.crt cannot be used with the key in /ssl/tls.key: keys may not be consistent: KeyMismatch",
        ),
    ] {
        let folder = Folder::new();
        folder.write(name, content);
        assert_eq!(folder.load().unwrap_err(), expected, "{name}");
    }
    let folder = Folder::new();
    fs::remove_file(&folder.files.key).unwrap();
    let error = folder.load().unwrap_err();
    assert!(error.starts_with("cannot read /ssl/tls.key: No such file"), "{error}");
}

#[test]
fn errors_do_not_quote_keys() {
    let folder = Folder::new();
    let (_, key) = pair();
    folder.write("tls.crt", &key);
    let error = folder.load().unwrap_err();
    let secret = key.lines().nth(1).unwrap();
    assert!(!error.contains(secret), "{error}");
}

/// An RSA key of 4096 bits as cert-manager writes it (PKCS#1), for tests only and without its PEM frame.
const RSA: &str = include_str!("../../../../lab/kube-sim/src/certificates/rsa-4096.txt");

fn framed(label: &str, body: &str) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", body.trim())
}

fn key_of(pem: &str) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?;
    let loaded = tls::provider(Algorithms::All).key_provider.load_private_key(key);
    loaded.map(drop).map_err(|error| error.to_string())
}

#[test]
fn row_33_pkcs_1_of_4096_bits() {
    assert_eq!(key_of(&framed("RSA PRIVATE KEY", RSA)), Ok(()));
}

#[test]
fn row_33_pkcs_8() {
    assert_eq!(key_of(&KeyPair::generate().unwrap().serialize_pem()), Ok(()));
}

#[test]
fn row_33_sec_1() {
    let pkcs8 = KeyPair::generate().unwrap().serialize_der();
    // The octets in PKCS#8 are SEC 1 with version 1: find the first such sequence.
    let start = pkcs8.windows(5).position(|window| window[0] == 0x30 && window[2..] == [2, 1, 1]).unwrap();
    let body = base64(&pkcs8[start..]);
    assert_eq!(key_of(&framed("EC PRIVATE KEY", &body)), Ok(()));
}

/// Base64 for this test, because the agent depends on no crate for it.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, index| bits << 8 | usize::from(chunk.get(index).copied().unwrap_or(0)));
        for index in 0..4 {
            let digit = char::from(ALPHABET[bits >> (18 - 6 * index) & 63]);
            text.push(if index <= chunk.len() { digit } else { '=' });
        }
    }
    text
}
