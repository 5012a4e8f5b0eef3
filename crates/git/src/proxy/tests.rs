use super::*;

#[test]
fn a_proxy_has_an_address_and_credentials_that_are_never_shown() {
    let found = |address: &str| {
        let proxy = Proxy::new(address, None)?;
        Ok::<_, ProxyProblem>((proxy.to_string(), proxy.is_encrypted, proxy.credentials))
    };
    let pair = Some(("anna".to_owned(), "s3:cr@t".to_owned()));
    for (address, shown, is_encrypted, credentials) in [
        ("http://proxy.example.com:3128", "proxy.example.com:3128", false, None),
        ("proxy.example.com:3128/", "proxy.example.com:3128", false, None),
        ("https://proxy.example.com", "proxy.example.com:443", true, None),
        ("http://[::1]:3128\n", "[::1]:3128", false, None),
        ("http://anna:s3%3acr%40t@proxy:3128", "proxy:3128", false, pair.clone()),
    ] {
        assert_eq!(found(address), Ok((shown.to_owned(), is_encrypted, credentials)), "{address}");
    }
    for address in ["", "socks5://proxy:1080", "http://", "http://proxy:99999", "http://proxy/path", "http://a b"] {
        assert_eq!(found(address), Err(ProxyProblem::Address), "{address}");
    }
    let beside = |user: &str| Proxy::new("http://proxy:3128", Some((user.to_owned(), "s3cret".to_owned())));
    assert!(!format!("{:?}", beside("anna").unwrap()).contains("s3cret"));
    assert_eq!(beside("an:na"), Err(ProxyProblem::Characters));
    assert_eq!(Proxy::new("http://anna@proxy", pair), Err(ProxyProblem::Credentials));
}

#[test]
fn hosts_are_excepted_by_name_domain_address_and_network() {
    let check = |hosts: &str, host: &str, is_for: bool| {
        let proxy = Proxy::new("http://proxy:3128", None).unwrap().except(hosts);
        assert_eq!(proxy.is_for(host), is_for, "{hosts}: {host}");
    };
    check("", "git.example.com", true);
    check("*", "git.example.com", false);
    check("example.com", "git.Example.com", false);
    check("example.com", "example.com", false);
    check("example.com", "badexample.com", true);
    check(".example.com, other", "example.com", true);
    check(".example.com, other", "git.example.com", false);
    check("*.svc other", "git.dev.svc", false);
    check("git.example.com:8443", "git.example.com", false);
    check("10.0.0.0/8", "10.1.2.3", false);
    check("10.0.0.0/8", "11.1.2.3", true);
    check("10.0.0.0/8", "10.example.com", true);
    check("0.0.0.0/0", "11.1.2.3", false);
    check("0.0.0.0/0", "::1", true);
    check("127.0.0.1", "127.0.0.1", false);
    check("127.0.0.1:8443", "127.0.0.1", false);
    check("fd00::/8,::1", "[fd00::7]", false);
    check("fd00::/8,::1", "::1", false);
    check("10.0.0.0/33,x/8,.", "10.0.0.1", true);
}
