use serde_json::json;

use super::*;

fn parse(value: Value) -> Result<DockerConfig, String> {
    DockerConfig::parse(Some(value.to_string().as_bytes())).map_err(|error| error.to_string())
}

fn basic(username: &str, password: &str) -> Credentials {
    Credentials::Basic { username: username.to_owned(), password: password.to_owned() }
}

#[test]
fn a_secret_names_one_registry_and_its_credentials() {
    // `robot:a:b`: the password has a colon.
    for (name, entry, address, credentials) in [
        ("r.example.com", json!({"auth": "cm9ib3Q6YTpi"}), "r.example.com", basic("robot", "a:b")),
        ("r.example.com:5000", json!({"auth": "cm9ib3Q6YWI="}), "r.example.com:5000", basic("robot", "ab")),
        ("r.example.com:5000", json!({"auth": "cm9ib3Q6YWI\n"}), "r.example.com:5000", basic("robot", "ab")),
        ("https://r.example.com/v1/", json!({"username": "u", "password": "p"}), "r.example.com", basic("u", "p")),
        ("http://localhost:5000", json!({"username": "u", "password": "p"}), "localhost:5000", basic("u", "p")),
        ("r.example.com/team", json!({"username": "u", "password": "p"}), "r.example.com/team", basic("u", "p")),
        ("r.example.com", json!({"registrytoken": "t"}), "r.example.com", Credentials::Bearer("t".to_owned())),
    ] {
        let found = parse(json!({"auths": {name: entry}})).unwrap();
        assert_eq!((found.registry.to_string().as_str(), found.credentials), (address, credentials), "{name}");
    }
}

#[test]
fn a_secret_that_is_not_usable_says_why() {
    for (value, expected) in [
        (json!({}), ".dockerconfigjson must contain exactly one registry"),
        (json!({"auths": null}), ".dockerconfigjson must contain exactly one registry"),
        (json!({"auths": {}}), ".dockerconfigjson must contain exactly one registry"),
        (json!({"auths": {"a": {}, "b": {}}}), ".dockerconfigjson must contain exactly one registry"),
        (json!({"auths": {"": {"auth": "dTpw"}}}), "registry in .dockerconfigjson is empty"),
        (
            json!({"auths": []}),
            ".dockerconfigjson is not valid: create it with `kubectl create secret docker-registry`",
        ),
        (
            json!({"auths": {"r": {}}}),
            "the registry in .dockerconfigjson has neither `auth` nor `username` and `password`",
        ),
        (json!({"auths": {"r": {"auth": "%%%"}}}), "`auth` in .dockerconfigjson is not base64 of `username:password`"),
        (json!({"auths": {"r": {"auth": "dXA="}}}), "`auth` in .dockerconfigjson is not base64 of `username:password`"),
        (
            json!({"auths": {"r": {"identitytoken": "t"}}}),
            "`identitytoken` in .dockerconfigjson is not supported: use `auth`",
        ),
        (
            json!({"auths": {"user@r": {"auth": "dTpw"}}}),
            "the registry in .dockerconfigjson is invalid: invalid registry address: it contains credentials; use a \
             Secret, for example europe-docker.pkg.dev or registry.example.com:5000/modules",
        ),
    ] {
        assert_eq!(parse(value.clone()), Err(expected.to_owned()), "{value}");
    }
    let missing = "secret missing .dockerconfigjson field";
    assert_eq!(DockerConfig::parse(None).unwrap_err().to_string(), missing);
    assert_eq!(DockerConfig::parse(Some(b"")).unwrap_err().to_string(), missing);
    assert_eq!(DockerConfig::parse(Some(b"{")).unwrap_err(), DockerConfigError::Syntax);
}

#[test]
fn credentials_are_sent_but_not_shown() {
    let header = |credentials: Credentials| {
        credentials.header().map(|header| (header.is_sensitive(), header.to_str().unwrap().to_owned()))
    };
    assert_eq!(header(basic("robot", "a:b")), Some((true, "Basic cm9ib3Q6YTpi".to_owned())));
    // The key file of a cloud is JSON over several lines.
    assert!(header(basic("_json_key", "{\n}")).is_some());
    assert_eq!(header(basic("a:b", "c")), None);
    assert_eq!(header(basic("robot\n", "c")), None);
    assert_eq!(header(Credentials::Bearer("t\n".to_owned())), None);
    let shown = format!("{:?} {:?}", basic("robot", "secret"), Credentials::Bearer("secret".to_owned()));
    assert!(!shown.contains("secret") && !shown.contains("robot"), "{shown}");
}
