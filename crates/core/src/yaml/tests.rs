use serde_json::json;

use super::*;

fn json(text: &str) -> Vec<Value> {
    parse(text, &Limits::default()).unwrap().iter().map(Node::to_json).collect()
}

#[track_caller]
fn check(text: &str, expected: Value) {
    assert_eq!(json(text), [expected], "{text}");
}

#[track_caller]
fn check_error(text: &str, position: (u32, u32), kind: ParseErrorKind, message: &str) {
    let error = parse(text, &Limits::default()).unwrap_err();
    assert_eq!(((error.line, error.column), error.kind, error.message.as_str()), (position, kind, message), "{text}");
}

#[test]
fn scalars_are_read_as_kubectl_reads_them() {
    check("a: 0644", json!({"a": 420}));
    check(
        "a: [yes, No, on, off, true, ~, null, 1.0, 1e3, 1.5]",
        json!({"a": [true, false, true, false, true, null, null, 1, 1000, 1.5]}),
    );
    check("a: 'yes'", json!({"a": "yes"}));
    check("a: 18446744073709551615", json!({"a": 18_446_744_073_709_551_615_u64}));
    check("a: -5\nb: 2001-01-01", json!({"a": -5, "b": "2001-01-01"}));
    check("on: a\n1: b", json!({"true": "a", "1": "b"}));
    check("{\"a\": {\"b\": [1, \"x\"]}}", json!({"a": {"b": [1, "x"]}}));
    check("{\n\t\"a\": 1\n}\n", json!({"a": 1}));
    check("x: &x {a: 1}\nz:\n  <<: *x\n  b: 2", json!({"x": {"a": 1}, "z": {"a": 1, "b": 2}}));
    check("a: 1\r\nb:\r\n- c\r\n", json!({"a": 1, "b": ["c"]}));
}

#[test]
fn numbers_and_words_are_what_go_makes_of_them() {
    let equal = |text: &str, expected: Value| check(&format!("- {text}"), json!([expected]));
    for (text, number) in [
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("-0x10", -16),
        ("+12", 12),
        ("1_000", 1000),
        ("08", 8),
        ("-0", 0),
        ("1.", 1),
        ("2e2", 200),
        ("00", 0),
    ] {
        equal(text, json!(number));
    }
    equal(".5", json!(0.5));
    equal("-1.25e-2", json!(-0.0125));
    equal("99999999999999999999", json!(1e20));
    for text in [
        "1e400",
        "0x",
        "1:20",
        "2001-01-01",
        "1.2.3",
        "yEs",
        "nUll",
        "0x1p3",
        "--1",
        "+-1",
        "_1",
        ".",
        "1e",
        "e3",
        "v1",
    ] {
        equal(text, json!(text));
    }
    equal("!!str 1", json!("1"));
    equal("! 1", json!("1"));
    equal("!!int \"3\"", json!(3));
    equal("\"\\ud83d\\ude00\"", json!("😀"));
}

#[test]
fn a_tag_of_another_program_is_refused_wherever_it_stands() {
    for text in ["a: !vault 3", "!Ref {a: b}", "a: !Sub [b]"] {
        let found = parse(text, &Limits::default()).unwrap_err();
        assert_eq!((found.kind, found.line), (ParseErrorKind::Tag, 1), "{found}");
        assert!(found.message.contains("has no meaning in a definition"), "{found}");
    }
    check("a: !!map {b: !!str 1}", json!({"a": {"b": "1"}}));
}

#[test]
fn aliases_and_merges_are_written_out() {
    check("a: &a [1, &b {x: 1}]\nc: *a\nd: *b", json!({"a": [1, {"x": 1}], "c": [1, {"x": 1}], "d": {"x": 1}}));
    check(
        "a: &a {x: 1, z: 1}\nb: &b {x: 2, w: 2}\nc: {<<: [*a, *b], z: 3}",
        json!({"a": {"x": 1, "z": 1}, "b": {"x": 2, "w": 2}, "c": {"z": 3, "x": 1, "w": 2}}),
    );
    check("'<<': 1", json!({"<<": 1}));
    check_error("a: &a [*a]", (1, 8), ParseErrorKind::Syntax, "this alias is within its own anchor");
    check_error("<<: 1", (1, 5), ParseErrorKind::Syntax, "`<<` must be followed by a mapping or an alias of one");
}

#[test]
fn documents_without_content_are_left_out() {
    assert_eq!(json(""), Vec::<Value>::new());
    assert_eq!(json("# only this\n---\n---\n# and this\n...\n"), Vec::<Value>::new());
    assert_eq!(json("---\na: 1\n---\n\n--- # note\nb: 2\n"), [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(json("%YAML 1.2\n---\na: 1\n--- {b: 2}\n"), [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(json("a: |\n  x\n  ---\n  y\n"), [json!({"a": "x\n---\ny\n"})]);
}

#[test]
fn a_broken_document_hides_no_other() {
    let read = parse_each("a: 1\n---\nb: [\n---\nc: 3\n", &Limits::default());
    assert_eq!(read.len(), 3);
    assert_eq!(read[1].as_ref().unwrap_err().line, 3);
    let third = read[2].as_ref().unwrap();
    assert_eq!((third.line, third.entry("c").unwrap().key_line), (5, 5));
}

#[test]
fn every_node_and_key_has_its_position() {
    let node = &parse("---\na:\n  b:\n  - c\n  - d: 1\n", &Limits::default()).unwrap()[0];
    let path = |parts: &[&str]| {
        parts
            .iter()
            .map(|part| part.parse::<usize>().map_or_else(|_| PathPart::from(*part), PathPart::from))
            .collect::<Vec<_>>()
    };
    assert_eq!(node.position(&path(&["a", "b", "0"])), (4, 5));
    assert_eq!(node.position(&path(&["a", "b", "1", "d"])), (5, 8));
    assert_eq!(node.key_position(&path(&["a", "b", "1", "d"])), (5, 5));
    assert_eq!(node.position(&path(&["a", "missing"])), (2, 1));
    let positions = Positions::from_node(node);
    for parts in [&["a", "b", "0"][..], &["a", "b", "1", "d"], &["a", "missing"], &["a"], &[], &["x", "y"]] {
        assert_eq!(positions.position(&path(parts)), node.position(&path(parts)), "{parts:?}");
    }
}

#[test]
fn errors_say_what_and_where() {
    use ParseErrorKind::{DuplicateKey, Limit, Syntax};
    check_error("a: 1\nb: 2\na: 3\n", (3, 1), DuplicateKey, "the key `a` occurs twice in this mapping");
    check_error("on: 1\ntrue: 2\n", (2, 1), DuplicateKey, "the key `true` occurs twice in this mapping");
    check_error("a:\n\tb: 1\n", (2, 1), Syntax, "YAML must not be indented with tabs");
    check_error("a: *nothing\n", (1, 4), Syntax, "this alias names an anchor that does not exist");
    check_error("a: b: c\n", (1, 5), Syntax, "unexpected second `:`");
    check_error("a: .inf\n", (1, 4), Syntax, "JSON cannot represent infinity or NaN");
    check_error("a: 1\n---\n{{ x }}: 1\n", (3, 2), Syntax, "a key must be a string, not a list or a mapping");
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    check_error(&deep, (1, 102), Limit, "lists and mappings are nested deeper than the limit of 100 levels");
    let deep: String = (0..101).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    check_error(&deep, (101, 101), Limit, "lists and mappings are nested deeper than the limit of 100 levels");
    let bomb: String = (0..9)
        .map(|level| {
            let items = if level == 0 { "x".to_owned() } else { format!("*l{}", level - 1) };
            format!("l{level}: &l{level} [{}]\n", vec![items; 9].join(", "))
        })
        .collect();
    let error = parse(&bomb, &Limits::default()).unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (Limit, "aliases make this document larger than the limit of 50000 added values")
    );
}

#[test]
fn depth_within_the_limit_is_read() {
    let text = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(parse(&text, &Limits::default()).is_ok());
    let text: String = (0..99).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    assert!(parse(&text, &Limits::default()).is_ok());
}

#[test]
fn bytes_that_are_not_utf8_are_named() {
    let error = decode(b"a: 1\nb: \xff\n").unwrap_err();
    assert_eq!((error.line, error.column, error.message.as_str()), (2, 4, "the byte 0xff is not UTF-8"));
    assert_eq!(decode("\u{feff}a: 1".as_bytes()).unwrap(), "a: 1");
}

#[test]
fn what_is_written_is_read_back() {
    let nasty = [
        "yes",
        "no",
        "on",
        "off",
        "y",
        "N",
        "true",
        "null",
        "~",
        "",
        " ",
        "0644",
        "010",
        "1e3",
        "1.0",
        "0x1f",
        "2001-01-01",
        "1:20",
        "- a",
        "a: b",
        "# c",
        "*x",
        "&x",
        "!x",
        "%x",
        "@x",
        "`x",
        "'",
        "\"",
        "\\",
        "a\nb",
        "a\n",
        "\n",
        " a",
        "a ",
        "\t",
        "a\tb",
        "---",
        "...",
        "a\r\nb",
        "\u{feff}a",
        "é",
        "😀",
        "{",
        "[",
        "]",
        "}",
        ",",
        "?",
        ":",
        "-",
        "<<",
        "=",
        ".inf",
        ".nan",
        "1_000",
        "+1",
        "0b1",
        "0o7",
        "\u{1b}[31m",
        "\u{85}",
        "a #b",
        "\n a\nb\n\n",
        "  a\n b",
    ];
    for text in nasty {
        let value = json!({ "value": text, text: [text, {"x": text}] });
        assert_eq!(json(&to_string(&value)), [value], "{text:?}");
    }
    let value =
        json!({"a": {}, "b": [], "c": null, "d": [[1, 2.5], [-3]], "e": {"f": "x".repeat(300) + " y"}, "g": 1e300});
    assert_eq!(json(&to_string(&value)), [value]);
}

#[test]
fn our_own_files_are_read_with_lines() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by the derive")]
    struct Own {
        #[serde(default)]
        name: String,
    }
    let error = read_own::<Own>("name: a\nnane: b\n").unwrap_err();
    assert_eq!((error.line, error.column), (2, 1));
    assert!(error.message.contains("nane"), "{}", error.message);
    assert!(read_own::<Own>("").is_ok());
}

#[test]
fn messages_show_no_control_characters() {
    assert_eq!(short("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb");
    assert_eq!(short(&"x".repeat(70)).chars().count(), 61);
}

#[test]
fn scalars_of_a_text_that_is_no_definition_are_found_with_their_keys() {
    let check = |text: &str, expected: &[(&str, &str)]| {
        let found = scalars(text, 100);
        let found: Vec<(&str, &str)> = found.iter().map(|scalar| (&*scalar.key, scalar.text.as_str())).collect();
        for pair in expected {
            assert!(found.contains(pair), "{pair:?} in {found:?} of {text}");
        }
        found.len()
    };
    let tagged = "a: !x one\na: [two, {b: three}, four]\n";
    assert_eq!(check(tagged, &[("a", "one"), ("a", "two"), ("b", "three"), ("a", "four")]), 4);
    assert_eq!(check("a: &x one\nb: *x\n? [c]\n: three\n", &[("a", "one"), ("", "c"), ("", "three")]), 3);
    assert_eq!(check("a: {b: null, c: 12, d: yes, e: 'yes'}\n", &[("c", "12"), ("e", "yes")]), 2);
    check("a: one\n---\nb: two: three\n---\nc: four\n", &[("a", "one"), ("b", "two: three"), ("c", "four")]);
    check("x: y: {\"a\": \"o\\u006ee\", b: 'it''s', c: 7}", &[("a", "one"), ("b", "it's"), ("c", "7")]);
    assert_eq!(scalars("[1, 2, 3]", 2).len(), 2);
    assert!(scalars("[1]", 2)[0].is_number);
}

#[test]
fn messages_about_a_wrong_file_quote_no_value() {
    for (message, expected) in [
        (
            r#"invalid type: string "import a \"hush\"", expected struct A"#,
            r#"invalid type: string "…", expected struct A"#,
        ),
        ("invalid type: integer `80821`, expected a string", "invalid type: integer `…`, expected a string"),
        (
            "a[0]: invalid value: character `'`, expected a boolean",
            "a[0]: invalid value: character `…`, expected a boolean",
        ),
        ("unknown field `manged`, expected `a` or `b`", "unknown field `manged`, expected `a` or `b`"),
        ("unknown field `a` hush `b`, expected `a`", "unknown field `…`, expected `a`"),
        ("unknown field `export A=\"hush`, there are no fields", "unknown field `…`, there are no fields"),
        ("unknown variant `hush`, expected one of `a`, `b`", "unknown variant `…`, expected one of `a`, `b`"),
        ("missing field `kind`", "missing field `kind`"),
        ("expected `,` or `}`", "expected `,` or `}`"),
        ("invalid type: string \"hush", "invalid type: string \"…"),
    ] {
        assert_eq!(without_values(message), expected);
    }
}
