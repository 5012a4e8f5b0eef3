use super::*;

const A: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPFtGHsahcGfheVtMMaDigbN2s5GBmAU/fUA2pskZ0RS";
const B: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIENC0t4V6NSBEeoALIhpLXeJzAMUuMk2hagz2/jK+q3R";

fn blob(line: &str) -> Vec<u8> {
    STANDARD.decode(line.split(' ').nth(1).unwrap()).unwrap()
}

/// The keys of a host: `a` and `b`, in parentheses those of CAs, with an exclamation mark the revoked ones.
#[track_caller]
fn check(text: &str, host: &str, port: u16, expected: &str) {
    let text = text.replace(" A", &format!(" {A}")).replace(" B", &format!(" {B}"));
    let known = KnownHosts::parse(&text).unwrap();
    let found = known.of(host, port);
    let name = |key: &&[u8]| if *key == blob(A) { "a" } else { "b" };
    let mut names: Vec<String> = found.keys.iter().map(|key| name(key).to_owned()).collect();
    names.extend(found.authorities.iter().map(|key| format!("({})", name(key))));
    names.extend(found.revoked.iter().map(|key| format!("!{}", name(key))));
    assert_eq!(names.join(" "), expected, "{host}:{port}");
}

#[test]
fn a_host_has_the_keys_of_all_lines_that_name_it() {
    let text = "# GitHub\n\nhost,other A a comment\n  Host B\n";
    check(text, "host", 22, "a b");
    check(text, "HOST", 22, "a b");
    check(text, "other", 22, "a");
    check(text, "ost", 22, "");
}

#[test]
fn a_line_with_a_port_is_for_that_port_and_one_without_for_all() {
    let text = "host A\n[host]:2222 B\n[::1]:23 B\n::1 A";
    check(text, "host", 22, "a");
    check(text, "host", 2222, "b");
    check(text, "host", 2223, "a");
    check(text, "::1", 22, "a");
    check(text, "::1", 23, "b");
}

#[test]
fn a_hashed_name_is_found_with_and_without_a_port() {
    // As `ssh-keygen -H` writes them for git.example.com, and for its port 2222.
    let text = "|1|qKBBwfPNRFP07uXMvnj6jy6T4V8=|7rq9sAGGZpb/NKCnrIQQJTwnuJQ= A\n\
                |1|17oFF6uaJgpLGb0uqNQ47ooQ0bU=|lIW3Xw42oOUMi6Pxr3svUbkJnTM= B";
    check(text, "git.example.com", 22, "a");
    check(text, "git.example.com", 2222, "b");
    check(text, "git.example.org", 22, "");
}

#[test]
fn patterns_have_stars_question_marks_and_exceptions() {
    let text = "*.example.com,!bad.example.com A\ngit?.org B";
    check(text, "git.example.com", 22, "a");
    check(text, "bad.example.com", 22, "");
    check(text, "example.com", 22, "");
    check(text, "git1.org", 22, "b");
    check(text, "git.org", 22, "");
    for (glob, text, expected) in [
        ("", "", true),
        ("*", "", true),
        ("**a*", "bab", true),
        ("a*b*c", "axxbyybzc", true),
        ("a*b*c", "axxbyybz", false),
        ("a?", "a", false),
        ("?", "ab", false),
    ] {
        assert_eq!(glob_matches(glob, text), expected, "{glob} {text}");
    }
    let (glob, text) = ("*a".repeat(2_000), "a".repeat(1_999));
    assert!(!glob_matches(&glob, &text), "it ends");
}

#[test]
fn authorities_and_revoked_keys_are_told_apart() {
    let text = "@cert-authority *.example.com A\n@revoked * B\ngit.example.com B";
    check(text, "git.example.com", 22, "b (a) !b");
    check(text, "git.example.com", 2222, "b (a) !b");
    check("@cert-authority * A\nhost B", "host", 23, "b (a)");
    check("@cert-authority * A\n@cert-authority host B\nhost A\n[host]:23 B", "host", 23, "b (a) (b)");
    check("@revoked [host]:23 A\n@revoked host B\nhost A", "host", 23, "a !a !b");
}

#[test]
fn a_line_that_cannot_be_read_is_skipped_and_named() {
    for (line, what) in [
        ("host", "line 2 lacks a host name, a type of key or a key"),
        ("host ssh-ed25519", "line 2 lacks a host name, a type of key or a key"),
        ("host ssh-ed25519 =", "line 2 has a key that is not base64"),
        (&format!("host {}", A.replace("ssh-ed25519", "ssh-rsa")), "line 2 has a key of another type than it says"),
        ("@trusted host A", "line 2 has an unknown marker"),
        ("|1|x A", "line 2 has a hashed host name that is not |1|salt|hash"),
        ("|2|eA==|eA== A", "line 2 has a hashed host name that is not |1|salt|hash"),
        ("|1|eA==|eA== A", "line 2 has a hashed host name that is not |1|salt|hash"),
    ] {
        let line = line.strip_suffix(" A").map_or(line.to_owned(), |line| format!("{line} {A}"));
        let known = KnownHosts::parse(&format!("other {A}\n{line}")).unwrap();
        assert_eq!(known.flaw().unwrap().to_string(), what);
        assert_eq!(known.of("other", 22).keys.len(), 1);
        let error = KnownHosts::parse(&format!("\n{line}")).unwrap_err().to_string();
        assert_eq!(error, format!("known_hosts contains no valid line: {what}"));
    }
}

#[test]
fn content_without_a_key_and_an_unreadable_revocation_are_refused() {
    let error = |text: &str| KnownHosts::parse(text).unwrap_err().to_string();
    assert!(error("").starts_with("known_hosts contains no key: run `ssh-keyscan`"));
    assert!(error("# nothing\n\n").starts_with("known_hosts contains no key: "));
    assert_eq!(
        error(&format!("host {A}\n@revoked host x")),
        "known_hosts contains a @revoked line that cannot be read: line 2 lacks a host name, a type of key or a key"
    );
}

#[test]
fn a_fingerprint_is_that_of_ssh_keygen() {
    assert_eq!(fingerprint(&blob(A)), "SHA256:5ZbYL5r012tjRK2I6NezcJpRZzCFY3vnRAPtivPWtTU");
    assert_eq!(algorithm(&blob(A)), Some("ssh-ed25519"));
    assert_eq!((algorithm(b""), algorithm(b"\xff\xff\xff\xffssh"), algorithm(b"\0\0\0\x01\xff")), (None, None, None));
}
