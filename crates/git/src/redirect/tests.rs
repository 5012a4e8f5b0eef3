use super::*;

#[track_caller]
fn check(current: &str, location: &str, expected: &str) {
    let origin = "https://git.example.com/a/info/refs?service=git-upload-pack".parse().unwrap();
    let found = match follow(&origin, &current.parse().unwrap(), location.as_bytes()) {
        Ok(hop) => format!("{}{}", hop.uri, if hop.is_same_origin { " with credentials" } else { "" }),
        Err(why) => why.to_owned(),
    };
    assert_eq!(found, expected);
}

#[test]
fn credentials_stay_with_their_origin() {
    let first = "https://git.example.com/a/info/refs?service=git-upload-pack";
    check(first, "/b/info/refs", "https://git.example.com/b/info/refs with credentials");
    check(first, "https://GIT.example.com:443/b", "https://GIT.example.com:443/b with credentials");
    check(first, "../x", "https://git.example.com/a/info/../x with credentials");
    check(first, "https://git.example.com:8443/b", "https://git.example.com:8443/b");
    check(first, "//evil.example.com/b", "https://evil.example.com/b");
    check(first, "https://git.example.com.evil/b", "https://git.example.com.evil/b");
    // Back at the origin, credentials are allowed again.
    check("https://other.example.com/x", "https://git.example.com/b", "https://git.example.com/b with credentials");
}

#[test]
fn a_redirect_never_leads_to_plain_http_nor_elsewhere() {
    let first = "https://git.example.com/a";
    check(first, "http://git.example.com/b", "from https to plain http, which is refused");
    check("http://git.example.com/a", "http://git.example.com/b", "http://git.example.com/b");
    check(first, "file:///etc/passwd", "to an invalid URL");
    check(first, "ftp://git.example.com/b", "to a scheme other than http");
    check(first, "https://user:password@git.example.com/b", "to a URL with credentials, which is refused");
    check(first, "https://", "to an invalid URL");
}
