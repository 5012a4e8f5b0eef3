use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let credentials = Credentials::Basic { username: "anna".to_owned(), password: "s3cr/et".to_owned() };
    let found = clean(text.as_bytes(), Some(&credentials)).map(|said| said.to_string());
    assert_eq!(found.unwrap_or_default(), expected, "{text:?}");
}

#[test]
fn a_quotation_is_one_printable_line() {
    check("Repository not found.\n", "Repository not found.");
    check("  ERR access\r\n\tdenied \0 here  ", "ERR access denied here");
    check("ERR upload-pack: not our ref", "upload-pack: not our ref");
    check("remote: fatal: disk full", "disk full");
    check("\u{1b}[31mred\u{1b}[0m and \u{1b}]0;title", "red and ]0;title");
    check("a\u{202e}b\u{200b}c\u{feff}d\u{e0041}", "abcd");
    check("", "");
    check(" \n\u{1b}[2J ", "");
    let invalid = clean(b"caf\xc3\xa9 \xff\xfe!", None).unwrap();
    assert_eq!(invalid.to_string(), "café !");
}

#[test]
fn a_quotation_contains_no_credential_and_no_user_info() {
    check("wrong password s3cr/et for anna", "wrong password *** for anna");
    check("got Basic YW5uYTpzM2NyL2V0", "got Basic ***");
    check("anna:s3cr/et is wrong", "*** is wrong");
    check("s3cr%2Fet and anna%3As3cr%2Fet", "*** and ***");
    // A credential between characters that are left out is found as well.
    check("s3c\0r/\u{200b}et", "***");
    check("see https://bob:hunter2@git.example.com/a?token=abc#x now", "see https://git.example.com/a now");
    check("<a href=\"https://x@y/z\">", "<a href=\"https://y/z\">");
    check("https://bob:p/w@host/a, http://u@h", "https://host/a, http://h");
    let token = Credentials::Bearer("ghp_123".to_owned());
    assert_eq!(clean(b"token ghp_123 expired", Some(&token)).unwrap().to_string(), "token *** expired");
}

#[test]
fn a_quotation_is_short_and_debug_shows_nothing_of_it() {
    let long = clean("é".repeat(5_000).as_bytes(), None).unwrap();
    assert_eq!(long.to_string().chars().count(), CHARS_MAX);
    assert!(long.to_string().ends_with("é…"));
    // A credential at the end is replaced before anything is cut.
    let text = format!("{}s3cr/et", "x".repeat(CHARS_MAX - 4));
    let credentials = Credentials::Basic { username: String::new(), password: "s3cr/et".to_owned() };
    assert!(!clean(text.as_bytes(), Some(&credentials)).unwrap().to_string().contains("s3c"));
    assert_eq!(format!("{long:?}"), "Said(…)");
}
