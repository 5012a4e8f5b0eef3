use std::{net::IpAddr, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::{CertificateDer, UnixTime};

use super::*;

const RUNTIME: &str = "6d2b3f58-9c55-4a53-8a3b-2f0c1f1f6c10";
const DOMAIN: &str = "c-1a2b3c4.kyma.ondemand.com";
/// 2030-01-01.
const NOW: Duration = Duration::from_secs(1_893_456_000);
const DAY: i64 = 86_400;

/// The date so many days later. A macro, because the type cannot be named here.
macro_rules! days {
    (-$days:expr) => {
        rcgen::date_time_ymd(2030, 1, 1) - Duration::from_secs($days * 86_400)
    };
    ($days:expr) => {
        rcgen::date_time_ymd(2030, 1, 1) + Duration::from_secs($days * 86_400)
    };
}

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // As upstream: all CAs have the same name, also during a rotation.
        params.distinguished_name.push(DnType::CommonName, "klm-watcher-selfsigned-ca");
        (params.not_before, params.not_after) = (days!(-90), days!(90));
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, edit: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::new(vec![DOMAIN.to_owned()]).unwrap();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, RUNTIME);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        (params.not_before, params.not_after) = (days!(-30), days!(30));
        edit(&mut params);
        params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().pem()
    }
}

fn now() -> UnixTime {
    moment(NOW)
}

fn known(authority: &Authority) -> Known {
    let known = Known::default();
    known.set_authorities(Some(Authorities::parse(authority.pem.as_bytes(), now()).unwrap()));
    known
}

/// Encodes as Envoy does.
fn envoy(pem: &str) -> String {
    pem.replace('\n', "%0A").replace(' ', "%20").replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

/// Encodes as Go's query encoding does.
fn form(pem: &str) -> String {
    envoy(pem).replace("%20", "+")
}

fn element(pem: &str) -> String {
    format!(
        r#"Hash=ab12;Cert="{}";Subject="CN={RUNTIME},O=SAP SE";URI=;DNS={DOMAIN};DNS=skr-webhook.kyma-system.svc"#,
        envoy(pem)
    )
}

const GATEWAY: &str = "spiffe://cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account";

fn sidecar(uri: &str) -> String {
    format!(r#"By=spiffe://cluster.local/ns/kcp-system/sa/klm;Hash=cd34;Subject="";URI={uri}"#)
}

/// The common name of the certificate in the header, for a peer on this machine.
fn ask(known: &Known, gateway: Option<&str>, lines: &[&[u8]]) -> Result<String, Error> {
    let xfcc = Xfcc { peers: Peers::loopback(), gateway: gateway.map(str::to_owned) };
    let element = xfcc.element(IpAddr::from([127, 0, 0, 1]), lines.iter().copied())?;
    known.by_element(&element, now()).map(|identity| identity.common_name().to_owned())
}

/// The parsing rules. Unless noted, each expects upstream's outcome.
#[test]
fn xfcc_cases() {
    let authority = Authority::new();
    let known = known(&authority);
    let pem = authority.issue(|_| {});
    let other = authority.issue(|params| params.distinguished_name.push(DnType::OrganizationName, "other"));
    let (quoted, plain) = (envoy(&pem), form(&pem));
    let not_utf8 = [element(&pem).as_bytes(), b";DNS=\xfc\xff"].concat();
    let long = format!("{};DNS={}", element(&pem), "x".repeat(32_768));
    let nameless = authority.issue(|params| params.distinguished_name = rcgen::DistinguishedName::new());
    let twice = authority.issue(|params| {
        let mut name = rcgen::DistinguishedName::new();
        name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "first");
        name.push(DnType::CommonName, RUNTIME);
        params.distinguished_name = name;
    });
    let der = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", "AAECAwQFBgc=");
    let key = pem.replace("CERTIFICATE", "SOMETHING");
    let two = format!("{pem}{other}");
    type Case<'a> = (&'a str, Vec<Vec<u8>>, Result<&'a str, Error>);
    let cases: Vec<Case<'_>> = vec![
        ("as a gateway writes it", vec![element(&pem).into()], Ok(RUNTIME)),
        ("no header", vec![], Err(Error::NoHeader)),
        ("an empty header", vec![b"".to_vec()], Err(Error::Empty)),
        ("longer than 32768 bytes", vec![long.into()], Err(Error::HeaderTooLong)),
        ("no certificate in it", vec![b"Hash=ab;Subject=\"\";URI=".to_vec()], Err(Error::Empty)),
        ("an empty certificate", vec![b"Cert=;Other=foo".to_vec()], Err(Error::Empty)),
        ("an empty certificate at the end", vec![b"Hash=ab;Cert=".to_vec()], Err(Error::Empty)),
        ("empty quotes", vec![b"Cert=\"\";Hash=ab".to_vec()], Err(Error::Empty)),
        ("the certificate first", vec![format!("Cert={quoted};Hash=ab").into()], Ok(RUNTIME)),
        ("the certificate in the middle", vec![format!("Hash=ab;Cert={quoted};URI=").into()], Ok(RUNTIME)),
        ("the certificate last", vec![format!("Hash=ab;Cert={quoted}").into()], Ok(RUNTIME)),
        ("without quotes, a plus for a space", vec![format!("Cert={plain}").into()], Ok(RUNTIME)),
        ("in quotes, a plus for a space", vec![format!("Cert=\"{plain}\"").into()], Ok(RUNTIME)),
        ("a quote that is left open", vec![format!("Cert=\"{quoted};Hash=ab").into()], Ok(RUNTIME)),
        ("quotes that are encoded", vec![format!("Cert=%22{quoted}%22").into()], Ok(RUNTIME)),
        ("a bad escape", vec![b"Cert=%ZZ".to_vec()], Err(Error::Encoding)),
        ("an escape that is cut off", vec![b"Cert=abc%2".to_vec()], Err(Error::Encoding)),
        ("no PEM", vec![b"Cert=certificate".to_vec()], Err(Error::Pem)),
        (
            "no base64 in it",
            vec![envoy("Cert=-----BEGIN A-----\n!\n-----END A-----\n").replacen("%3D", "=", 1).into()],
            Err(Error::Pem),
        ),
        ("no X.509 in it", vec![format!("Cert={}", envoy(&der)).into()], Err(Error::X509)),
        ("a block of another name", vec![format!("Cert={}", envoy(&key)).into()], Ok(RUNTIME)),
        ("two blocks: the first counts", vec![format!("Cert={}", envoy(&two)).into()], Ok(RUNTIME)),
        (
            "several lines, the first with the certificate",
            vec![element(&pem).into(), b"By=me;Hash=12".to_vec()],
            Ok(RUNTIME),
        ),
        (
            "the first line without, a later one with it",
            vec![b"By=me".to_vec(), element(&pem).into()],
            Err(Error::Empty),
        ),
        ("bytes that are no UTF-8", vec![not_utf8], Ok(RUNTIME)),
        ("no common name", vec![element(&nameless).into()], Ok("")),
        ("two common names: the last counts", vec![element(&twice).into()], Ok(RUNTIME)),
    ];
    for (name, lines, expected) in cases {
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        assert_eq!(ask(&known, None, &lines), expected.map(str::to_owned), "{name}");
    }
}

#[test]
fn what_any_client_may_have_put_before_the_gateways_element_is_not_read() {
    let authority = Authority::new();
    let known = known(&authority);
    let own = element(&authority.issue(|_| {}));
    let forged = element(&authority.issue(|params| params.distinguished_name.push(DnType::CommonName, "victim")));
    let (last, foreign) = (sidecar(GATEWAY), sidecar("spiffe://cluster.local/ns/default/sa/mallory"));
    let ask = |gateway: Option<&str>, lines: &[String]| {
        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        super::tests::ask(&known, gateway, &lines)
    };
    let cases = [
        ("one element", None, vec![own.clone()], Ok(RUNTIME)),
        ("two elements", None, vec![format!("{own},{last}")], Err(Error::SeveralElements)),
        ("a forged one before", None, vec![format!("{forged},{own}")], Err(Error::SeveralCertificates)),
        ("a forged line before", None, vec![forged.clone(), own.clone()], Err(Error::SeveralCertificates)),
        ("a forged pair before", None, vec![format!("{};{own}", forged)], Err(Error::SeveralCertificates)),
        ("in other letters", None, vec![format!("cERT=abc;{own}")], Err(Error::SeveralCertificates)),
        ("behind a sidecar", Some(GATEWAY), vec![format!("{own},{last}")], Ok(RUNTIME)),
        ("with white space", Some(GATEWAY), vec![format!("{own} , {last}")], Ok(RUNTIME)),
        ("in two lines", Some(GATEWAY), vec![own.clone(), last.clone()], Ok(RUNTIME)),
        ("forged before both", Some(GATEWAY), vec![format!("{forged},{own},{last}")], Ok(RUNTIME)),
        ("a forged line before both", Some(GATEWAY), vec![forged.clone(), format!("{own},{last}")], Ok(RUNTIME)),
        ("not from the gateway", Some(GATEWAY), vec![format!("{own},{foreign}")], Err(Error::NotFromGateway)),
        ("not from the gateway at all", Some(GATEWAY), vec![own.clone()], Err(Error::NotFromGateway)),
        ("the gateway alone", Some(GATEWAY), vec![last.clone()], Err(Error::NotFromGateway)),
        ("the gateway twice", Some(GATEWAY), vec![format!("{own},{last},{last}")], Err(Error::Empty)),
        ("two URIs", Some(GATEWAY), vec![format!("{own},{last};URI=a")], Err(Error::NotFromGateway)),
        ("a quoted URI", Some(GATEWAY), vec![format!("{own},By=me;URI=\"{GATEWAY}\"")], Ok(RUNTIME)),
        (
            "the identity in quotes elsewhere",
            Some(GATEWAY),
            vec![format!("{own},By=\"a;URI={GATEWAY}\"")],
            Err(Error::NotFromGateway),
        ),
        ("an open quote before", Some(GATEWAY), vec![format!("By=\",{own},{last}")], Err(Error::NotFromGateway)),
        ("an escaped quote before", Some(GATEWAY), vec![format!("By=\"\\\",{own},{last}")], Err(Error::NotFromGateway)),
        (
            "two certificates in the gateway's",
            Some(GATEWAY),
            vec![format!("{own};Cert=abc,{last}")],
            Err(Error::SeveralCertificates),
        ),
    ];
    for (name, gateway, lines, expected) in cases {
        assert_eq!(ask(gateway, &lines), expected.map(str::to_owned), "{name}");
    }
}

#[test]
fn only_trusted_peers_may_forward() {
    let peers = Peers::parse(["127.0.0.0/8", "10.4.0.0/14", "192.0.2.7", "fd00::/8", "2001:db8::1"]).unwrap();
    let check = |peer: &str, expected: bool| assert_eq!(peers.contain(peer.parse().unwrap()), expected, "{peer}");
    for peer in ["127.0.0.6", "10.7.255.255", "192.0.2.7", "::ffff:10.4.0.1", "fd12::1", "2001:db8::1"] {
        check(peer, true);
    }
    for peer in ["128.0.0.1", "10.8.0.0", "192.0.2.8", "::1", "2001:db8::2", "fe80::1"] {
        check(peer, false);
    }
    assert!(Peers::loopback().contain("::1".parse().unwrap()));
    assert!(Peers::parse(["0.0.0.0/0"]).unwrap().contain("8.8.8.8".parse().unwrap()));
    assert!(Peers::parse(["::/0"]).unwrap().contain("fe80::1".parse().unwrap()));
    for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "host", "10.0.0.0/-1"] {
        assert!(Peers::parse([wrong]).is_err(), "{wrong}");
    }
    let xfcc = Xfcc::default();
    let element = xfcc.element("192.0.2.1".parse().unwrap(), [&b"Cert=abc"[..]].into_iter());
    assert_eq!(element.unwrap_err(), Error::PeerNotTrusted);
}

#[test]
fn a_certificate_counts_only_while_it_holds_and_an_authority_stands_behind_it() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let known = known(&authority);
    let ask = |pem: &str| ask(&known, None, &[element(pem).as_bytes()]).map(drop);
    assert_eq!(ask(&authority.issue(|_| {})), Ok(()));
    assert_eq!(ask(&stranger.issue(|_| {})), Err(Error::Foreign), "a CA of the same name");
    assert_eq!(ask(&authority.pem), Err(Error::Foreign), "a CA is not a runtime");
    let expired = authority.issue(|params| params.not_after = days!(-1));
    assert_eq!(ask(&expired), Err(Error::Expired));
    let early = authority.issue(|params| params.not_before = days!(1));
    assert_eq!(ask(&early), Err(Error::NotValidYet));
    let usage = |usage: ExtendedKeyUsagePurpose| authority.issue(|params| params.extended_key_usages = vec![usage]);
    assert_eq!(ask(&usage(ExtendedKeyUsagePurpose::ClientAuth)), Ok(()));
    assert_eq!(ask(&usage(ExtendedKeyUsagePurpose::ServerAuth)), Err(Error::Foreign), "for servers only");
}

#[test]
fn a_certificate_that_is_known_is_still_looked_at_by_the_clock() {
    let authority = Authority::new();
    let known = known(&authority);
    let pem = authority.issue(|_| {});
    let element = element(&pem);
    let at = |days: i64| {
        let seconds = i64::try_from(NOW.as_secs()).unwrap() + days * DAY;
        known.by_element(element.as_bytes(), moment(Duration::from_secs(seconds.try_into().unwrap()))).map(drop)
    };
    assert_eq!(at(0), Ok(()));
    assert_eq!(at(31), Err(Error::Expired));
    assert_eq!(at(-31), Err(Error::NotValidYet));
    assert_eq!(at(0), Ok(()));
}

#[test]
fn other_authorities_count_at_once() {
    let (old, new) = (Authority::new(), Authority::new());
    let known = known(&old);
    let (before, after) = (element(&old.issue(|_| {})), element(&new.issue(|_| {})));
    let ask = |element: &str| known.by_element(element.as_bytes(), now()).map(drop);
    assert_eq!((ask(&before), ask(&after)), (Ok(()), Err(Error::Foreign)));
    let both = format!("{}{}", new.pem, old.pem);
    let authorities = Authorities::parse(both.as_bytes(), now()).unwrap();
    assert_eq!(authorities.count(), 2);
    known.set_authorities(Some(authorities));
    assert_eq!((ask(&before), ask(&after)), (Ok(()), Ok(())));
    known.set_authorities(Some(Authorities::parse(new.pem.as_bytes(), now()).unwrap()));
    assert_eq!((ask(&before), ask(&after)), (Err(Error::Foreign), Ok(())));
    known.set_authorities(None);
    assert_eq!(ask(&after), Err(Error::NoAuthorities));
    assert!(!known.has_authorities());
}

#[test]
fn a_bundle_is_taken_without_its_broken_and_expired_parts() {
    let authority = Authority::new();
    let later = moment(NOW + Duration::from_secs(100 * 86_400));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let count = |bundle: &str, now| Authorities::parse(bundle.as_bytes(), now).map(|authorities| authorities.count());
    assert_eq!(count(&format!("{broken}{}", authority.pem), now()), Ok(1));
    assert_eq!(count(&authority.pem, later), Err(Error::NoAuthorities));
    assert_eq!(count(broken, now()), Err(Error::NoAuthorities));
    assert_eq!(count("", now()), Err(Error::NoAuthorities));
}

#[test]
fn historic_san_pinning_cases() {
    let authority = Authority::new();
    let named = |names: Vec<SanType>| {
        let pem = authority.issue(|params| params.subject_alt_names = names);
        Identity::parse(&der(&pem)).unwrap()
    };
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let uri = |uri: &str| SanType::URI(uri.try_into().unwrap());
    let ip = |ip: &str| SanType::IpAddress(ip.parse().unwrap());
    let some = named(vec![
        dns(DOMAIN),
        uri("https://a.example/Path"),
        ip("192.0.2.7"),
        ip("2001:db8::7"),
        dns("*.example.org"),
    ]);
    for name in
        [DOMAIN, "C-1A2B3C4.Kyma.OnDemand.com", "https://a.example/Path", "192.0.2.7", "2001:db8::7", "*.example.org"]
    {
        assert!(some.is_named(name), "{name}");
    }
    for name in [
        "",
        "other.kyma.ondemand.com",
        "kyma.ondemand.com",
        "https://a.example/path",
        "a.example.org",
        "192.0.2.70",
        "c-1a2b3c4.kyma.ondemand.com.",
    ] {
        assert!(!some.is_named(name), "{name}");
    }
    assert!(!named(Vec::new()).is_named(DOMAIN), "no names at all");
    let many = |count: usize| {
        let mut names: Vec<SanType> = (1..count).map(|index| dns(&format!("a{index}.example"))).collect();
        names.push(dns(DOMAIN));
        named(names)
    };
    assert!(many(100).is_named(DOMAIN));
    assert!(!many(101).is_named(DOMAIN), "more than a hundred names");
}

#[test]
fn what_follows_a_certificate_in_der_spoils_it() {
    let authority = Authority::new();
    let mut bytes = der(&authority.issue(|_| {})).to_vec();
    assert_eq!(Identity::parse(&bytes).unwrap().common_name(), RUNTIME);
    bytes.push(0);
    assert_eq!(Identity::parse(&bytes), Err(Error::X509));
    assert_eq!(Identity::parse(&[]), Err(Error::X509));
}

#[test]
fn what_is_remembered_is_bounded() {
    let known = Known::default();
    let authority = Authority::new();
    known.set_authorities(Some(Authorities::parse(authority.pem.as_bytes(), now()).unwrap()));
    let good = element(&authority.issue(|_| {}));
    for number in 0..100_000 {
        // A different invalid certificate each time.
        assert!(known.by_element(format!("Cert=x{number}").as_bytes(), now()).is_err());
        if number % 10_000 == 0 {
            assert!(known.by_element(good.as_bytes(), now()).is_ok());
        }
    }
    assert!(known.len() <= 2 * 16_384, "{}", known.len());
}

proptest::proptest! {
    #[test]
    fn no_header_makes_it_panic_and_none_is_believed(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        let known = Arc::new(Known::default());
        for gateway in [None, Some(GATEWAY)] {
            proptest::prop_assert!(ask(&known, gateway, &[&bytes]).is_err());
        }
        proptest::prop_assert!(Identity::parse(&bytes).is_err());
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}
