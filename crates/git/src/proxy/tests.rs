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

#[test]
fn an_answer_to_connect_is_read_to_the_end_of_its_head_and_no_further() {
    assert_eq!(answer(b"HTTP/1.1 200 OK\r\n\r\n"), Some(Ok(())));
    assert_eq!(answer(b"HTTP/1.0 204 \r\nA: b\r\n\r\n"), Some(Ok(())));
    for partial in [&b""[..], b"HT", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nA: b\r\n"] {
        assert_eq!(answer(partial), None);
    }
    assert_eq!(answer(b"HTTP/1.1 407 x\r\n\r\n"), Some(Err(refusal(Some(407)))));
    for bad in [&b"SSH-2.0-a\r\n"[..], b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n", b"\0\n"] {
        assert_eq!(answer(bad), Some(Err(NO_PROXY)), "{}", bad.escape_ascii());
    }
    // Neither a long header nor many short ones are waited for.
    let start = b"HTTP/1.1 200 OK\r\na: ".to_vec();
    let long = |length: usize| [&start[..], &vec![b'x'; length]].concat();
    assert_eq!(answer(&long(1_000)), None);
    assert_eq!(answer(&long(ANSWER_BYTES_MAX)), Some(Err(NO_PROXY)));
    let many = format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(HEADERS_MAX + 1));
    assert_eq!(answer(many.as_bytes()), Some(Err(NO_PROXY)));
}

#[test]
fn a_request_names_the_host_and_has_the_credentials_of_the_proxy() {
    let proxy = |credentials: Option<(&str, &str)>| {
        let credentials = credentials.map(|(user, password)| (user.to_owned(), password.to_owned()));
        Proxy::new("http://proxy:3128", credentials).unwrap()
    };
    let plain = "CONNECT git.example.com:22 HTTP/1.1\r\nHost: git.example.com:22\r\n\r\n";
    assert_eq!(proxy(None).request("git.example.com", 22), plain);
    let with = "CONNECT [::1]:22 HTTP/1.1\r\nHost: [::1]:22\r\nProxy-Authorization: Basic YTpi\r\n\r\n";
    assert_eq!(proxy(Some(("a", "b"))).request("::1", 22), with);
}
