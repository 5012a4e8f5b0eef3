use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let found = match text.parse::<Url>() {
        Ok(url) => format!("{url}{}", if url.credentials().is_some() { " with credentials" } else { "" }),
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(found, expected);
}

#[test]
fn urls_print_without_secrets() {
    check("https://git.example.com/team/landscape.git", "https://git.example.com/team/landscape.git");
    check("https://user:s3cr%40t@git.example.com/a.git", "https://git.example.com/a.git with credentials");
    check("HTTPS://Git.Example.com:8443/A/", "https://git.example.com:8443/A");
    check("http://[::1]:80/a", "http://[::1]:80/a");
    check("file:///srv/with%20space", "/srv/with space");
    check("file://localhost/srv/a", "/srv/a");
    check("/srv/a", "/srv/a");
    check("./a:b", "./a:b");
    let url: Url = "https://user:s3cret@git.example.com/a.git".parse().unwrap();
    assert!(!format!("{url:?}").contains("s3cret"));
}

#[test]
fn the_server_of_a_url_is_its_host_and_port_or_its_path() {
    for (text, expected) in [
        ("https://user:s3cret@Git.example.com/team/a.git", "git.example.com"),
        ("https://git.example.com:8443", "git.example.com:8443"),
        ("http://[::1]:80/a", "[::1]:80"),
        ("/srv/a", "/srv/a"),
    ] {
        assert_eq!(text.parse::<Url>().unwrap().server(), expected);
    }
}

#[test]
fn what_is_no_url_of_a_repository_is_refused_in_words() {
    check("", "error: a URL must not be empty");
    check("ssh://git@host/a", "error: `ssh://` URLs are not supported; use https://");
    check("git@host:a.git", "error: ssh is not supported; use an https:// URL");
    check(
        "ext::sh -c evil://x",
        "error: invalid URL: it contains characters that must be percent-encoded, or an invalid port",
    );
    check("https://host/a?token=s3cret", "error: a repository URL must not contain `?` or `#`");
    check("https:///a", "error: the URL has no valid host");
    check("https://", "error: the URL has no valid host");
    check("https://:443/a", "error: the URL has no valid host");
    check("https://anna@/a", "error: the URL has no valid host");
    check(
        "https://host:99999/a",
        "error: invalid URL: it contains characters that must be percent-encoded, or an invalid port",
    );
    check(
        "https://host/a b",
        "error: invalid URL: it contains characters that must be percent-encoded, or an invalid port",
    );
    check("file://host/a", "error: a file:// URL must have an absolute path on this machine: file:///path");
}
