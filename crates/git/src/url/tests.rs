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
    check("git://host/a", "error: `git://` URLs are not supported; use https:// or ssh://");
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

#[test]
fn ssh_urls_have_two_spellings_and_print_the_user_but_no_secret() {
    check("ssh://git@Git.example.com/team/a.git/", "ssh://git@git.example.com/team/a.git");
    check("ssh://git.example.com:22/a", "ssh://git@git.example.com/a");
    check("ssh://anna@[2001:DB8::1]:2222/a", "ssh://anna@[2001:db8::1]:2222/a");
    check("git+ssh://git@host/a%20b", "ssh://git@host/a%20b");
    check("git@Git.example.com:team/a.git", "git@git.example.com:team/a.git");
    check("host:/srv/a", "git@host:/srv/a");
    check("anna@[::1]:a", "anna@[::1]:a");
}

#[test]
fn an_ssh_url_leads_to_a_user_a_host_a_port_and_the_path_that_the_server_gets() {
    for (text, server, user, host, port, path) in [
        ("ssh://git.example.com/a%20b", "git.example.com", "git", "git.example.com", 22, "/a b"),
        ("ssh://anna@host:2222/~bob/a", "host:2222", "anna", "host", 2222, "~bob/a"),
        ("git@ssh.example.com:v3/team/a%20b", "ssh.example.com", "git", "ssh.example.com", 22, "v3/team/a%20b"),
        ("host:~/a", "host", "git", "host", 22, "~/a"),
        ("git@[::1]:a", "[::1]", "git", "::1", 22, "a"),
        ("ssh://[::1]:23/a", "[::1]:23", "git", "::1", 23, "/a"),
    ] {
        let url: Url = text.parse().unwrap();
        let target = url.ssh().unwrap();
        assert_eq!((url.server(), target.user.as_str(), target.host.as_str()), (server, user, host), "{text}");
        assert_eq!((target.port, target.path.as_str()), (port, path), "{text}");
        assert!(url.is_encrypted() && url.path().is_none() && url.credentials().is_none(), "{text}");
    }
}

#[test]
fn an_ssh_url_that_leads_nowhere_is_refused_in_words() {
    let colon = "error: an ssh:// URL has a slash after the host, and a colon only before a port: use \
                 ssh://git@host/path, or git@host:path without a scheme";
    let password = "error: an ssh URL must not contain a password: add the private key to a Secret as `identity`";
    let path = "error: the ssh URL names no repository: use ssh://git@host/path or git@host:path";
    let invalid =
        "error: invalid URL: it contains characters that must be percent-encoded, or an invalid port".to_owned();
    check("ssh://git@host:team/a.git", colon);
    check("ssh://git:s3cret@host/a.git", password);
    check("git:s3cret@host:a.git", password);
    check("ssh://git@host", path);
    check("ssh://git@host/", path);
    check("git@host:", path);
    check("git@host:-oProxyCommand=x", path);
    check("ssh://-oProxyCommand=x/a", "error: the URL has no valid host");
    check("ssh:///a", "error: the URL has no valid host");
    check("git@[host]:a", "error: the URL has no valid host");
    check("ssh://git@host/a?b", "error: a repository URL must not contain `?` or `#`");
    check("ssh://git@host:0/a", &invalid);
    check("ssh://git@host:99999/a", &invalid);
    check("ssh://-l@host/a", &invalid);
    check("ssh://git@host/a%0ab", &invalid);
    check("git@host:a\nb", &invalid);
}
