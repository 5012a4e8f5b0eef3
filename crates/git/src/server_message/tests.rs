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
fn a_quotation_contains_no_encoded_credential() {
    // The password alone.
    check("no token czNjci9ldA== here", "no token *** here");
    check("no token czNjci9ldA here, czNjci9ldA%3D%3D", "no token *** here, ***");
    check("no token 733363722f6574, 733363722F6574 here", "no token ***, *** here");
    check("pair 616e6e613a733363722f6574", "pair ***");
    let token = Credentials::Bearer("~~~???!".to_owned());
    for encoded in [
        "fn5+Pz8/IQ==",
        "fn5+Pz8/IQ",
        "fn5-Pz8_IQ==",
        "fn5-Pz8_IQ",
        "fn5%2BPz8%2FIQ%3D%3D",
        "7e7e7e3f3f3f21",
        "7E7E7E3F3F3F21",
        "~~~%3F%3F%3F%21",
    ] {
        let found = clean(format!("unknown {encoded}, sorry").as_bytes(), Some(&token)).unwrap();
        assert_eq!(found.to_string(), "unknown ***, sorry", "{encoded}");
    }
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
    assert_eq!(format!("{long:?}"), "ServerMessage(…)");
}

#[test]
fn a_credential_that_the_cut_divides_does_not_show_in_part() {
    let credentials = Credentials::Basic { username: "anna".to_owned(), password: "s3cr/et".to_owned() };
    for end in 1..="s3cr/et".len() {
        // What is left out makes the text shorter than the quotation.
        let mut text = vec![0; BYTES_MAX - end];
        text.extend_from_slice(b"s3cr/et is wrong");
        let found = clean(&text, Some(&credentials)).unwrap().to_string();
        assert_eq!(found, "***", "{end}");
        let read = clean(&text[..BYTES_MAX], Some(&credentials)).unwrap().to_string();
        assert_eq!(read, "***", "{end}: the rest was not even read");
    }
    // Without a cut, the beginning of a secret is a word as any other.
    check("no s", "no s");
}

#[test]
fn tokens_of_others_are_not_quoted() {
    check("token ghp_16C7e42F292c6912E7710c838347Ae178B4a expired", "token *** expired");
    check("used (glpat-abc-def_1), not \"github_pat_11A_b\"", "used (***), not \"***\"");
    check("Authorization: Bearer abc.def-ghi rejected", "Authorization: Bearer *** rejected");
    check("authorization: xyz rejected", "authorization: *** rejected");
    check("{\"Authorization\": \"Basic QWxhZGRpbjpvcGVu==\"}", "{\"Authorization\": \"Basic ***==\"}");
    check("got bearer AbC/d+e= of another", "got bearer ***= of another");
    check("PRIVATE-TOKEN: secret, x-gitlab-token=other", "PRIVATE-TOKEN: ***, x-gitlab-token=***");
    check("a jwt eyJhbGciOi.eyJzdWIi.c2ln, at path/ghp_abc", "a jwt ***, at path/***");
    // What only sounds like it.
    check(
        "Bearer token is missing; Basic authentication is off",
        "Bearer token is missing; Basic authentication is off",
    );
    check("authorization required for project ghp_", "authorization required for project ghp_");
    check("branch laughp_x", "branch laughp_x");
}
