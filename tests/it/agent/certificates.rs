//! Certificates as in a landscape: a CA whose own certificate the gateway serves, and certificates for runtimes.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// The host of the control plane.
pub(crate) const HOST: &str = "localhost";
/// The host under which the API server calls the agent.
pub(crate) const SERVICE: &str = "skr-webhook.kyma-system.svc";
/// The name of the runtime.
pub(crate) const RUNTIME: &str = "6d2b3f58-9c55-4a53-8a3b-2f0c1f1f6c10";

/// A CA. All have the same subject, as after rotations.
pub(crate) struct Authority {
    pub(crate) pem: String,
    pub(crate) key: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        Authority::from_key(KeyPair::generate().unwrap())
    }

    /// A CA with an RSA key of 4096 bits, as cert-manager makes them.
    pub(crate) fn rsa() -> Authority {
        let (pem, pkcs8) = rsa_key();
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.into(), &rcgen::PKCS_RSA_SHA256).unwrap();
        Authority { key: pem, ..Authority::from_key(key) }
    }

    fn from_key(key: KeyPair) -> Authority {
        let mut params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "klm-watcher-selfsigned-ca");
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, key: key.serialize_pem(), issuer: Issuer::new(params, key) }
    }

    /// The CA's own certificate, as the gateway serves it.
    pub(crate) fn itself(&self) -> Identity {
        Identity { certificate: self.pem.clone(), key: self.key.clone() }
    }

    /// A server's certificate from this CA.
    pub(crate) fn server(&self, host: &str) -> Identity {
        self.issue(host, &[host], &KeyPair::generate().unwrap())
    }

    /// The certificate of a runtime: client of the control plane, server in the runtime.
    pub(crate) fn runtime(&self) -> Identity {
        self.issue(RUNTIME, &["c-1a2b3c4.kyma.example", SERVICE], &KeyPair::generate().unwrap())
    }

    /// The same with an RSA key of 4096 bits in PKCS#1, as cert-manager makes them.
    pub(crate) fn runtime_rsa(&self) -> Identity {
        let (pem, pkcs8) = rsa_key();
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.into(), &rcgen::PKCS_RSA_SHA256).unwrap();
        Identity { key: pem, ..self.issue(RUNTIME, &["c-1a2b3c4.kyma.example", SERVICE], &key) }
    }

    fn issue(&self, name: &str, hosts: &[&str], key: &KeyPair) -> Identity {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let certificate = params.signed_by(key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

/// A key of 4096 bits, for tests only: PKCS#1 in PEM, and PKCS#8 in DER.
pub(crate) fn rsa_key() -> (String, Vec<u8>) {
    let body = include_str!("../../../lab/kube-sim/src/certificates/rsa-4096.txt").trim();
    let pkcs1 = STANDARD.decode(body.replace('\n', "")).unwrap();
    // Version 0, the algorithm rsaEncryption, and the key as octets: lengths take two bytes each.
    let length = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let algorithm = [2, 1, 0, 0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1, 5, 0];
    let mut pkcs8 = vec![0x30, 0x82];
    pkcs8.extend(length(algorithm.len() + 4 + pkcs1.len()));
    pkcs8.extend(algorithm);
    pkcs8.extend([4, 0x82]);
    pkcs8.extend(length(pkcs1.len()));
    pkcs8.extend(pkcs1);
    (format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\n"), pkcs8)
}

/// A mounted Secret, as the kubelet makes it: files are links through `..data`, which is swapped as a whole.
pub(crate) struct Mount(tempfile::TempDir);

impl Mount {
    pub(crate) fn new(identity: &Identity, bundle: &str) -> Mount {
        let mount = Mount(tempfile::tempdir().unwrap());
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            std::os::unix::fs::symlink(format!("..data/{name}"), mount.path().join(name)).unwrap();
        }
        mount.replace(identity, bundle);
        mount
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Swaps everything at once.
    pub(crate) fn replace(&self, identity: &Identity, bundle: &str) {
        let version = tempfile::Builder::new().prefix("..").tempdir_in(self.path()).unwrap().keep();
        fs::write(version.join("tls.crt"), &identity.certificate).unwrap();
        fs::write(version.join("tls.key"), &identity.key).unwrap();
        fs::write(version.join("ca.crt"), bundle).unwrap();
        let link = self.path().join("..data_tmp");
        std::os::unix::fs::symlink(version.file_name().unwrap(), &link).unwrap();
        fs::rename(link, self.path().join("..data")).unwrap();
    }
}
