use super::*;
use crate::{name::Key, yaml};

fn sample() -> Certificate {
    Certificate {
        kyma: Key::new("kcp-system", "one"),
        key: Key::new("istio-system", "one-webhook-tls"),
        common_name: "id-1".to_owned(),
        dns_names: vec!["one.example.org".to_owned(), "skr-webhook.kyma-system.svc".to_owned()],
    }
}

#[track_caller]
fn check(backend: Backend, expected: &str) {
    let object = certificate(&Templates::embedded(), backend, &sample(), &Rules::default()).unwrap().unwrap();
    let expected = yaml::parse(expected, &yaml::Limits::default()).unwrap()[0].to_json();
    assert_eq!(*object.value(), expected);
}

#[test]
fn cert_manager_is_asked_as_lifecycle_manager_asks_it() {
    check(
        Backend::CertManager,
        r#"
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: one-webhook-tls
  namespace: istio-system
  annotations: {tidegate.dev/kyma: kcp-system/one}
spec:
  commonName: id-1
  dnsNames: [one.example.org, skr-webhook.kyma-system.svc]
  duration: 1440h0m0s
  renewBefore: 720h0m0s
  subject:
    organizationalUnits: [BTP Kyma Runtime]
    organizations: [SAP SE]
    localities: [Walldorf]
    provinces: [Baden-Württemberg]
    countries: [DE]
  secretName: one-webhook-tls
  secretTemplate:
    labels:
      operator.kyma-project.io/managed-by: lifecycle-manager
      operator.kyma-project.io/purpose: klm-watcher-cert-manager
  privateKey: {algorithm: RSA, encoding: PKCS1, rotationPolicy: Always, size: 4096}
  usages: [digital signature, key encipherment]
  issuerRef: {kind: Issuer, name: klm-watcher-selfsigned}
"#,
    );
}

#[test]
fn secret_says_whose_it_is_where_its_name_does_not() {
    let other = Certificate { kyma: Key::new("other", "one"), ..sample() };
    let object = certificate(&Templates::embedded(), Backend::CertManager, &other, &Rules::default()).unwrap().unwrap();
    assert_eq!(object.value()["spec"]["secretTemplate"]["annotations"], json!({"tidegate.dev/kyma": "other/one"}));
}

#[test]
fn gardener_is_asked_as_lifecycle_manager_asks_it() {
    check(
        Backend::Gardener,
        r#"
apiVersion: cert.gardener.cloud/v1alpha1
kind: Certificate
metadata:
  name: one-webhook-tls
  namespace: istio-system
  annotations: {tidegate.dev/kyma: kcp-system/one}
spec:
  commonName: id-1
  dnsNames: [one.example.org, skr-webhook.kyma-system.svc]
  duration: 1440h0m0s
  secretName: one-webhook-tls
  secretLabels:
    operator.kyma-project.io/managed-by: lifecycle-manager
    operator.kyma-project.io/purpose: klm-watcher-cert-manager
  privateKey: {algorithm: RSA, size: 4096}
  issuerRef: {name: klm-watcher-selfsigned, namespace: istio-system}
"#,
    );
}

#[test]
fn built_in_authority_needs_no_object() {
    assert!(certificate(&Templates::embedded(), Backend::Builtin, &sample(), &Rules::default()).is_none());
}

#[test]
fn durations_are_written_as_go_writes_them() {
    for (seconds, expected) in [(0, "0s"), (59, "59s"), (60, "1m0s"), (3600, "1h0m0s"), (5_184_000, "1440h0m0s")] {
        assert_eq!(go_duration(Duration::from_secs(seconds)), expected);
    }
}
