use super::*;

#[test]
fn an_address_is_a_scheme_a_host_and_a_path() {
    for (text, url, shown) in [
        ("europe-docker.pkg.dev", "https://europe-docker.pkg.dev/v2", "europe-docker.pkg.dev"),
        ("Registry.Example.com:5000/a/b", "https://registry.example.com:5000/v2", "registry.example.com:5000/a/b"),
        ("https://registry.example.com/", "https://registry.example.com/v2", "registry.example.com"),
        ("http://registry.example.com/a", "http://registry.example.com/v2", "registry.example.com/a"),
        ("localhost:5000", "http://localhost:5000/v2", "localhost:5000"),
        ("registry.localhost:5000", "http://registry.localhost:5000/v2", "registry.localhost:5000"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000/v2", "127.0.0.1:5000"),
        ("[::1]:5000", "http://[::1]:5000/v2", "[::1]:5000"),
        ("https://localhost:5000", "https://localhost:5000/v2", "localhost:5000"),
        ("192.168.1.1:5000", "https://192.168.1.1:5000/v2", "192.168.1.1:5000"),
        ("localhost.example.com", "https://localhost.example.com/v2", "localhost.example.com"),
    ] {
        let address: RegistryAddress = text.parse().unwrap();
        assert_eq!((address.url().as_str(), address.to_string().as_str()), (url, shown), "{text}");
    }
}

#[test]
fn an_invalid_address_says_what_to_write() {
    for (text, why) in [
        ("", "it has no host; begin with the host"),
        ("/modules", "it has no host; begin with the host"),
        ("http:///modules", "it has no host; begin with the host"),
        ("ftp://registry.example.com", "its scheme is neither http nor https"),
        ("user:word@registry.example.com", "it contains credentials; use a Secret"),
        ("registry.example.com:99999", "its port is not a number up to 65535"),
        ("registry.example.com:", "its port is not a number up to 65535"),
        ("registry example.com", "its host is invalid; use a name or an IP address"),
        ("registry.example.com?x=y", "its host is invalid; use a name or an IP address"),
        ("[::zz]", "its host is invalid; use a name or an IP address"),
    ] {
        let error = text.parse::<RegistryAddress>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("invalid registry address: {why}, for example ")), "{text}: {error}");
    }
    for text in ["registry.example.com/../x", "registry.example.com/a//b", "r.example.com/A", "r.example.com/a?b"] {
        let error = text.parse::<RegistryAddress>().unwrap_err().to_string();
        assert!(error.contains("its path is invalid; use lower-case letters"), "{text}: {error}");
    }
}

#[test]
fn a_subpath_is_between_the_host_and_the_component() {
    let address = |text: &str| text.parse::<RegistryAddress>().unwrap();
    for (text, path, repository) in [
        ("r.example.com", "", "component-descriptors/x"),
        ("r.example.com", "prod/modules", "prod/modules/component-descriptors/x"),
        ("r.example.com", "/prod/", "prod/component-descriptors/x"),
        ("r.example.com/a", "b", "a/b/component-descriptors/x"),
    ] {
        assert_eq!(address(text).below(path).unwrap().repository("component-descriptors/x"), repository);
    }
    assert!(address("r.example.com").below("../x").is_err());
}

#[test]
fn only_this_machine_is_local() {
    for (text, expected) in [
        ("localhost", true),
        ("x.localhost:80", true),
        ("127.3.2.1", true),
        ("[::1]:5000", true),
        ("r.example.com", false),
        ("10.0.0.1", false),
        ("127.0.0.1.example.com", false),
    ] {
        assert_eq!(text.parse::<RegistryAddress>().unwrap().is_local(), expected, "{text}");
    }
}
