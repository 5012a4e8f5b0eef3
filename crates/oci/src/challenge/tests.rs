use super::*;

fn headers(values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(WWW_AUTHENTICATE, value.parse().unwrap());
    }
    headers
}

fn bearer(realm: &str, service: Option<&str>) -> Option<Challenge> {
    Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
}

#[test]
fn a_challenge_is_a_scheme_and_its_parameters() {
    let realm = "https://auth.example.com/token";
    for (values, expected) in [
        (&["Basic realm=\"x\""][..], Some(Challenge::Basic)),
        (&["basic"][..], Some(Challenge::Basic)),
        (
            &["Bearer realm=\"https://auth.example.com/token\",service=\"r\",scope=\"a,b\""][..],
            bearer(realm, Some("r")),
        ),
        (&["bearer  Service=r , Realm = https://auth.example.com/token"][..], bearer(realm, Some("r"))),
        (&["Bearer realm=\"a\\\"b\""][..], bearer("a\"b", None)),
        // Both are offered, in one header or two.
        (&["Basic realm=\"x\", Bearer realm=\"https://auth.example.com/token\""][..], bearer(realm, None)),
        (&["Basic realm=\"x\"", "Bearer realm=\"https://auth.example.com/token\""][..], bearer(realm, None)),
        (&["Negotiate", "Basic realm=\"x\""][..], Some(Challenge::Basic)),
        // A token without a server cannot be requested.
        (&["Bearer service=\"r\""][..], None),
        (&["Bearer realm=\"unterminated"][..], None),
        (&["Negotiate"][..], None),
        (&["=,=,"][..], None),
        (&[""][..], None),
        (&[][..], None),
    ] {
        assert_eq!(read(&headers(values)), expected, "{values:?}");
    }
}

#[test]
fn credentials_go_only_to_the_registry_s_own_host_or_to_one_that_is_allowed() {
    let (with, without) = (true, false);
    let allowed = ["auth.example.org".to_owned()];
    let other = |host: &str| Err(Realm::OtherHost(host.to_owned()));
    for (registry, realm, has_credentials, expected) in [
        ("r.example.com", "https://r.example.com/token", with, Ok(true)),
        ("r.example.com:5000", "https://R.example.com/token", with, Ok(true)),
        ("r.example.com", "https://auth.example.org/token", with, Ok(true)),
        ("r.example.com", "https://evil.example.net/token", with, other("evil.example.net")),
        (
            "r.example.com",
            "https://r.example.com.evil.example.net/token",
            with,
            other("r.example.com.evil.example.net"),
        ),
        ("r.example.com", "https://evil.example.net/token", without, Ok(false)),
        ("r.example.com", "http://r.example.com/token", with, Err(Realm::Downgrade)),
        ("r.example.com", "http://r.example.com/token", without, Err(Realm::Downgrade)),
        ("http://r.example.com", "http://r.example.com/token", without, Ok(false)),
        ("localhost:5000", "http://localhost:5000/token", with, Err(Realm::Plain)),
        ("localhost:5000", "https://localhost/token", with, Ok(true)),
        ("r.example.com", "https://u:p@r.example.com/token", with, Err(Realm::Invalid)),
        ("r.example.com", "ftp://r.example.com/token", with, Err(Realm::Invalid)),
        ("r.example.com", "/token", with, Err(Realm::Invalid)),
        ("r.example.com", "not a url", with, Err(Realm::Invalid)),
    ] {
        let found = token_server(&registry.parse().unwrap(), realm, &[], has_credentials, &allowed);
        assert_eq!(found.map(|server| server.with_credentials), expected, "{registry} {realm}");
    }
}

#[test]
fn a_token_is_requested_for_one_repository() {
    let registry: RegistryAddress = "r.example.com".parse().unwrap();
    let query = [("scope", "repository:a/b_c:pull"), ("service", "a b&c")];
    let uri = |realm: &str| token_server(&registry, realm, &query, false, &[]).unwrap().uri.to_string();
    let expected = "scope=repository:a/b_c:pull&service=a%20b%26c";
    assert_eq!(uri("https://r.example.com/token"), format!("https://r.example.com/token?{expected}"));
    assert_eq!(uri("https://r.example.com/token?x=y"), format!("https://r.example.com/token?x=y&{expected}"));
}
