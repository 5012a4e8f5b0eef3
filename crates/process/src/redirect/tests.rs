use super::*;

#[track_caller]
fn check(current: &str, location: &str, expected: Result<(&str, bool), Why>) {
    let origin: Uri = "https://r.example.com/v2/a/blobs/x".parse().unwrap();
    let found = follow(&origin, &current.parse().unwrap(), location.as_bytes());
    let found = found.map(|hop| (hop.uri.to_string(), hop.is_same_origin));
    assert_eq!(found, expected.map(|(uri, same)| (uri.to_owned(), same)), "{location}");
}

#[test]
fn credentials_stay_with_their_origin() {
    let origin = "https://r.example.com/v2/a/blobs/x";
    check(origin, "/v2/b", Ok(("https://r.example.com/v2/b", true)));
    check(origin, "y?z=1", Ok(("https://r.example.com/v2/a/blobs/y?z=1", true)));
    check(
        origin,
        "y?u=https://evil.example.com",
        Ok(("https://r.example.com/v2/a/blobs/y?u=https://evil.example.com", true)),
    );
    check(origin, "https://R.example.com:443/y#f", Ok(("https://R.example.com:443/y", true)));
    check(origin, "https://r.example.com:8443/y", Ok(("https://r.example.com:8443/y", false)));
    check(origin, "https://storage.example.com/y?sig=1", Ok(("https://storage.example.com/y?sig=1", false)));
    check(origin, "//storage.example.com/y", Ok(("https://storage.example.com/y", false)));
    check(origin, "https://r.example.com.evil/y", Ok(("https://r.example.com.evil/y", false)));
    check(origin, "../y", Ok(("https://r.example.com/v2/a/blobs/../y", true)));
    // Back from elsewhere, they may be sent again.
    check("https://storage.example.com/y", "https://r.example.com/z", Ok(("https://r.example.com/z", true)));
}

#[test]
fn a_redirect_that_is_not_followed_says_why() {
    let origin = "https://r.example.com/v2/a/blobs/x";
    check(origin, "http://r.example.com/y", Err("from https to plain http, which is refused"));
    check("http://r.example.com/a", "http://r.example.com/b", Ok(("http://r.example.com/b", false)));
    for other in
        ["javascript:alert(1)", "data:text/html,a", "MAILTO:anna", "file:///etc/passwd", "ftp://r.example.com/y"]
    {
        check(origin, other, Err("to a URL that is neither https nor http"));
    }
    check(origin, "y/a:b", Ok(("https://r.example.com/v2/a/blobs/y/a:b", true)));
    check(origin, "?u=a:b", Ok(("https://r.example.com/v2/a/blobs/?u=a:b", true)));
    check(origin, "https://u:p@r.example.com/y", Err("to a URL with credentials, which is refused"));
    check(origin, "https://", Err("to an invalid URL"));
    check(origin, "/a b", Err("to an invalid URL"));
}
