use super::*;

const FULL: &[(&str, &str)] = &[
    ("WEBHOOK_PORT", "9443"),
    ("METRICS_PORT", "2113"),
    ("CA_CERT", "/app/etc/ssl/ca.crt"),
    ("TLS_CERT", "/app/etc/ssl/tls.crt"),
    ("TLS_KEY", "/app/etc/ssl/tls.key"),
    ("KCP_ADDR", "listener.cp.kyma.cloud.sap:443"),
    ("KCP_CONTRACT", "v2"),
    ("POD_NAME", "skr-webhook-0"),
    ("TLS_CALLBACK", "true"),
];

fn read_with(changes: &[(&str, Option<&str>)]) -> Result<Settings, Error> {
    Settings::read(|name| {
        let changed = changes.iter().find(|(changed, _)| *changed == name).map(|(_, value)| *value);
        let given = || FULL.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
        changed.unwrap_or_else(given).map(str::to_owned)
    })
}

#[test]
fn row_1_full_configuration() {
    let settings = read_with(&[]).unwrap();
    assert_eq!((settings.webhook_port, settings.metrics_port), (9443, 2113));
    assert_eq!(settings.files.authorities, PathBuf::from("/app/etc/ssl/ca.crt"));
    assert_eq!(settings.files.certificate, PathBuf::from("/app/etc/ssl/tls.crt"));
    assert_eq!(settings.files.key, PathBuf::from("/app/etc/ssl/tls.key"));
    assert_eq!(settings.control_plane.authority, "listener.cp.kyma.cloud.sap:443");
    assert_eq!(
        (settings.control_plane.host.as_str(), settings.control_plane.port),
        ("listener.cp.kyma.cloud.sap", 443)
    );
    assert_eq!(settings.contract, "v2");
    assert_eq!(settings.remarks, Vec::<String>::new());
}

#[test]
fn row_2_default_ports() {
    let settings = read_with(&[("WEBHOOK_PORT", None), ("METRICS_PORT", None)]).unwrap();
    assert_eq!((settings.webhook_port, settings.metrics_port), (8443, 2112));
    assert_eq!(settings.remarks, Vec::<String>::new());
}

#[test]
fn row_3_a_port_that_is_none_keeps_the_default() {
    for (given, expected) in
        [("text", 8443), ("65536", 8443), ("0", 8443), ("-1", 8443), ("1234", 1234), ("1", 1), ("65535", 65535)]
    {
        let settings = read_with(&[("WEBHOOK_PORT", Some(given))]).unwrap();
        assert_eq!(settings.webhook_port, expected, "{given}");
        assert_eq!(settings.remarks.is_empty(), given == expected.to_string(), "{given}: {:?}", settings.remarks);
    }
}

#[test]
fn row_4_what_is_missing_is_named() {
    for name in ["CA_CERT", "TLS_CERT", "TLS_KEY", "KCP_ADDR", "KCP_CONTRACT"] {
        for absent in [None, Some("")] {
            let error = read_with(&[(name, absent)]).unwrap_err();
            assert!(matches!(error, Error::Missing { name: named, .. } if named == name), "{error}");
            assert!(error.to_string().starts_with(&format!("the environment variable {name} is not set; it is ")));
        }
    }
}

#[test]
fn the_address_of_the_control_plane() {
    for (given, host, port) in [
        ("kcp:443", "kcp", 443),
        ("kcp", "kcp", 443),
        ("10.0.0.1:8443", "10.0.0.1", 8443),
        ("[::1]:8443", "::1", 8443),
        ("[::1]", "::1", 443),
    ] {
        let address: ControlPlane = given.parse().unwrap();
        assert_eq!((address.host.as_str(), address.port, address.authority.as_str()), (host, port, given));
    }
    for given in
        ["https://kcp:443", "kcp:0", "kcp:x", "::1:443", "[kcp]:443", "[::1", "kcp:70000", "a b", "", ":443", "u@kcp"]
    {
        assert!(given.parse::<ControlPlane>().is_err(), "{given}");
    }
}

#[test]
fn a_contract_is_one_segment() {
    for given in ["v2/x", "..", "v2?", "v 2"] {
        assert!(read_with(&[("KCP_CONTRACT", Some(given))]).is_err(), "{given}");
    }
}

#[test]
fn row_35_fips_as_godebug_says() {
    let cases = [
        (Some("fips140=only"), Fips::Only),
        (Some("fips140=on"), Fips::On),
        (Some("fips140=debug"), Fips::On),
        (Some("fips140=off"), Fips::Off),
        (Some("fips140=other"), Fips::Off),
        (Some("fips140=off,fips140=only"), Fips::Only),
        (Some("fips140=only,tlsmlkem=0"), Fips::Only),
        (Some(" fips140 = on , x=1"), Fips::On),
        (Some("fips140=only,fips140=off"), Fips::Off),
        // Ours: the default is approved algorithms only.
        (Some("tlsmlkem=0"), Fips::Only),
        (None, Fips::Only),
    ];
    for (given, expected) in cases {
        assert_eq!(Fips::of_godebug(given), expected, "{given:?}");
    }
    assert_eq!([Fips::Off, Fips::On, Fips::Only].map(Fips::number), [0, 1, 2]);
}
