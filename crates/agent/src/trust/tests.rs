use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::UnixTime;

use super::*;
use tidegate_process::tls::{Algorithms, provider};

const HOST: &str = "listener.cp.kyma.cloud.sap";

/// 2026-07-01. All certificates here are valid then.
const NOW: u64 = 1_782_864_000;

struct Ca {
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A CA whose own certificate is served, as in landscapes: it also names a host.
fn ca(host: &str, years: (i32, i32)) -> Ca {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, "klm-watcher-selfsigned-ca");
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(years.0, 1, 1), rcgen::date_time_ymd(years.1, 1, 1));
    let der = params.self_signed(&key).unwrap().der().clone();
    Ca { der, issuer: Issuer::new(params, key) }
}

fn leaf(ca: &Ca, host: &str, years: (i32, i32)) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(years.0, 1, 1), rcgen::date_time_ymd(years.1, 1, 1));
    params.signed_by(&KeyPair::generate().unwrap(), &ca.issuer).unwrap().der().clone()
}

#[track_caller]
fn verdict(bundle: &[&Ca], presented: &CertificateDer<'static>, host: &str) -> Result<(), String> {
    let certificates = bundle.iter().map(|ca| ca.der.clone()).collect();
    let bundle = Bundle::new(certificates, provider(Algorithms::Approved)).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
    let name = ServerName::try_from(host.to_owned()).unwrap();
    bundle.verify_server_cert(presented, &[], &name, &[], now).map(drop).map_err(|error| error.to_string())
}

const NOW_VALID: (i32, i32) = (2026, 2027);

#[test]
fn row_34_the_authority_itself_is_accepted_as_server() {
    let ca = ca(HOST, NOW_VALID);
    assert_eq!(verdict(&[&ca], &ca.der, HOST), Ok(()));
}

#[test]
fn row_34_but_not_for_another_host() {
    let ca = ca(HOST, NOW_VALID);
    let refusal = verdict(&[&ca], &ca.der, "elsewhere").unwrap_err();
    assert!(refusal.contains("not valid for name"), "{refusal}");
}

#[test]
fn row_34_nor_outside_of_its_validity() {
    for years in [(2024, 2025), (2028, 2029)] {
        let ca = ca(HOST, years);
        assert!(verdict(&[&ca], &ca.der, HOST).is_err(), "{years:?}");
    }
}

#[test]
fn row_34_an_authority_that_is_not_in_the_bundle_is_refused() {
    let (known, unknown) = (ca(HOST, NOW_VALID), ca(HOST, NOW_VALID));
    let refusal = verdict(&[&known], &unknown.der, HOST).unwrap_err();
    assert!(refusal.contains("invalid peer certificate"), "{refusal}");
}

#[test]
fn row_34_of_several_authorities_with_one_subject_all_are_tried() {
    let (new, old, oldest) = (ca(HOST, NOW_VALID), ca(HOST, NOW_VALID), ca(HOST, NOW_VALID));
    for signer in [&new, &old, &oldest] {
        assert_eq!(verdict(&[&new, &old, &oldest], &leaf(signer, HOST, NOW_VALID), HOST), Ok(()));
        assert_eq!(verdict(&[&new, &old, &oldest], &signer.der, HOST), Ok(()));
    }
    assert!(verdict(&[&new, &old], &leaf(&oldest, HOST, NOW_VALID), HOST).is_err());
}

#[test]
fn row_34_a_leaf_is_for_its_host_and_time_only() {
    let ca = ca("ca", NOW_VALID);
    assert_eq!(verdict(&[&ca], &leaf(&ca, HOST, NOW_VALID), HOST), Ok(()));
    assert!(verdict(&[&ca], &leaf(&ca, "elsewhere", NOW_VALID), HOST).is_err());
    assert!(verdict(&[&ca], &leaf(&ca, HOST, (2024, 2025)), HOST).is_err());
}

#[test]
fn an_expired_ca_is_not_trusted() {
    let (old, new) = (ca("ca", (2024, 2025)), ca("ca", NOW_VALID));
    assert!(verdict(&[&old], &leaf(&old, HOST, NOW_VALID), HOST).is_err());
    assert!(verdict(&[&new, &old], &leaf(&old, HOST, NOW_VALID), HOST).is_err());
    assert_eq!(verdict(&[&old, &new], &leaf(&new, HOST, NOW_VALID), HOST), Ok(()));
}

#[test]
fn unit_the_pool_has_exactly_the_certificates_of_the_file() {
    let (one, other) = (ca("a", NOW_VALID), ca("b", NOW_VALID));
    for bundle in [vec![&one], vec![&one, &other]] {
        let expected: Vec<_> = bundle.iter().map(|ca| ca.der.clone()).collect();
        let pool = Bundle::new(expected.clone(), provider(Algorithms::All)).unwrap();
        assert_eq!(pool.certificates().cloned().collect::<Vec<_>>(), expected);
    }
    assert!(Bundle::new(Vec::new(), provider(Algorithms::All)).is_none());
    assert!(
        Bundle::new(vec![one.der.clone(), CertificateDer::from(vec![1, 2, 3])], provider(Algorithms::All)).is_none()
    );
}
