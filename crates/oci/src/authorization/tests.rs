use super::*;

fn basic(password: &str) -> Credentials {
    Credentials::Basic { username: "robot".to_owned(), password: password.to_owned() }
}

fn token(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap()
}

#[test]
fn credentials_are_sent_once_the_registry_asks_for_them() {
    let mut authorization = Authorization::default();
    authorization.replace(Some(basic("a")));
    assert_eq!(authorization.known("x"), None);
    authorization.learn_basic(&authorization.proof());
    assert_eq!(authorization.known("x"), basic("a").header());
    // A token of the registry itself needs no question.
    authorization.replace(Some(Credentials::Bearer("t".to_owned())));
    assert_eq!(authorization.known("x"), Some(token("Bearer t")));
    assert!(authorization.proof().is_token);
}

#[test]
fn a_token_is_for_one_repository() {
    let mut authorization = Authorization::default();
    authorization.learn_token(&authorization.proof(), "x", token("Bearer t"));
    assert_eq!(authorization.known("x"), Some(token("Bearer t")));
    assert_eq!(authorization.known("y"), None);
    for number in 0..TOKENS_MAX {
        authorization.learn_token(&authorization.proof(), &format!("r{number}"), token("Bearer t"));
    }
    assert!(authorization.tokens.len() <= TOKENS_MAX, "tokens have a limit");
}

#[test]
fn new_credentials_forget_what_the_old_ones_got() {
    let mut authorization = Authorization::default();
    authorization.replace(Some(basic("a")));
    let old = authorization.proof();
    authorization.learn_token(&old, "x", token("Bearer t"));
    authorization.replace(Some(basic("a")));
    assert_eq!(authorization.known("x"), Some(token("Bearer t")), "equal credentials change nothing");
    authorization.replace(Some(basic("b")));
    assert_eq!(authorization.known("x"), None);
    // An answer to the old credentials that arrives late.
    authorization.learn_token(&old, "x", token("Bearer t"));
    authorization.learn_basic(&old);
    assert_eq!(authorization.known("x"), None);
    authorization.replace(None);
    assert!(!authorization.has_credentials());
}

#[test]
fn credentials_travel_unencrypted_only_within_this_machine() {
    for (address, expected) in [
        ("r.example.com", None),
        ("localhost:5000", None),
        ("registry.localhost:5000", None),
        ("http://127.0.0.1:5000", None),
        (
            "http://r.example.com",
            Some("credentials are never sent over plain http: use https for the registry r.example.com"),
        ),
        (
            "http://10.0.0.1:5000",
            Some("credentials are never sent over plain http: use https for the registry 10.0.0.1:5000"),
        ),
    ] {
        let found = check(&basic("a"), &address.parse().unwrap()).err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), expected, "{address}");
    }
    let broken = Credentials::Bearer("a\nb".to_owned());
    let error = check(&broken, &"r.example.com".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the credentials for r.example.com contain characters that cannot be sent");
}
