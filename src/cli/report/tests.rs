use super::*;

#[track_caller]
fn check(line: &str, column: usize, shown: &str, marked: &str) {
    let excerpt = excerpt(line, column - 1, 0);
    let mark = format!("{}{}", " ".repeat(excerpt.mark_start), "^".repeat(excerpt.mark_len));
    assert_eq!((excerpt.line.as_str(), mark.as_str()), (shown, marked));
}

#[test]
fn the_mark_stands_below_the_word() {
    check("  chanel: fast", 3, "  chanel: fast", "  ^^^^^^");
    check("a: 'x y', b", 4, "a: 'x y', b", "   ^^^^^");
    check("a: some text # note", 4, "a: some text # note", "   ^^^^^^^^^");
    check("a: http://x:1/y", 4, "a: http://x:1/y", "   ^^^^^^^^^^^^");
    check("\tb: 1", 1, "    b: 1", "^^^^");
    check("a", 9, "a", " ^");
}

#[test]
fn what_steers_a_terminal_is_visible() {
    check("\u{1b}[2Ja: b", 5, "\\u{1b}[2Ja: b", "         ^");
}

#[test]
fn long_lines_are_cut_around_the_mark() {
    let line = format!("{}word {}", "x".repeat(200), "y".repeat(200));
    let excerpt = excerpt(&line, 200, 0);
    assert!(excerpt.line.chars().count() <= SHOWN_MAX + 2);
    assert_eq!(excerpt.line.chars().nth(excerpt.mark_start), Some('w'));
}

#[test]
fn files_with_secrets_show_no_lines() {
    assert!(definition::mentions_secret("kind: Secret\n"));
    assert!(definition::mentions_secret("{\"kind\":\"secret\"}"));
    assert!(!definition::mentions_secret("resources: [secrets]\nsecretName: x\n"));
}

#[test]
fn counts_read_well() {
    assert_eq!(Count { errors: 3, warnings: 1 }.summary(42), "3 errors, 1 warning in 42 files");
    assert_eq!(Count { errors: 1, warnings: 0 }.summary(1), "1 error, 0 warnings in 1 file");
}
