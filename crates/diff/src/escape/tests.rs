use super::*;
use crate::fixture::NASTY;

#[test]
fn a_line_is_no_command_of_a_runner() {
    assert_eq!(line("::error::x"), "\\u{3a}:error::x");
    assert_eq!(line("  ::error::x"), "  \\u{3a}:error::x");
    assert_eq!(line("a ::error::x"), "a ::error::x");
    assert_eq!(line("x ##[error]y"), "x ##\\u{5b}error]y");
    assert_eq!(line("###[error]"), "###\\u{5b}error]");
    assert_eq!(line("##vso[task] ##[x]"), "##vso\\u{5b}task] ##\\u{5b}x]");
    assert_eq!(line("## a list [1]"), "## a list [1]");
    assert_eq!(line("a\nb\u{1b}[31m\u{202e}"), "a\\nb\\u{1b}[31m\\u{202e}");
}

#[test]
fn code_spans_and_fences_are_longer_than_what_stands_in_them() {
    assert_eq!(code("a"), "`a`");
    assert_eq!(code("a`b"), "``a`b``");
    assert_eq!(code("`a"), "`` `a ``");
    assert_eq!(code("a```"), "```` a``` ````");
    assert_eq!(code(""), "");
    assert_eq!(fence(["a", "b"].into_iter()), "```");
    assert_eq!(fence(["a", "x ````` y"].into_iter()), "``````");
}

#[test]
fn xml_has_only_what_xml_may_have() {
    for text in NASTY {
        let escaped = xml(text);
        assert!(!escaped.contains(['<', '>', '"', '\'', '\u{fffe}', '\u{0}', '\u{b}']), "{escaped}");
    }
    assert_eq!(xml("a]]>&\u{0}\u{fffe}"), "a]]&gt;&amp;\\u{0}\\u{fffe}");
}

#[test]
fn json_reads_back_unchanged() {
    for text in NASTY {
        let value = Value::from(*text);
        let written = json(&value);
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
        let steers = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{2028}'..='\u{202e}'));
        assert!(!written.contains(steers) && !written.contains("##[") && !written.contains("##vso["), "{written}");
    }
    assert_eq!(json(&Value::from("a\u{fffe}\u{fdd0}\u{1ffff}")), "\"a\\ufffe\\ufdd0\\ud83f\\udfff\"\n");
    let nested = serde_json::json!({"##": [1, ["##x", {"a": []}]], "\u{1f600}": "\u{9b}"});
    assert_eq!(serde_json::from_str::<Value>(&json(&nested)).unwrap(), nested);
}

#[test]
fn workflow_commands_keep_their_shape() {
    assert_eq!(message("50%\r\na:b,c"), "50%25%0D%0Aa:b,c");
    assert_eq!(property("50%\r\na:b,c"), "50%25%0D%0Aa%3Ab%2Cc");
}

#[test]
fn paths_are_references() {
    assert_eq!(uri("a b/ä#?.yaml"), "a%20b/%C3%A4%23%3F.yaml");
    assert_eq!(uri("a:b/c"), "a%3Ab/c");
}

#[test]
fn texts_are_cut_between_characters() {
    assert_eq!((cut("äöü", 2), cut("äö", 2)), ("äö…".to_owned(), "äö".to_owned()));
}

#[test]
fn a_sentence_is_plain_unless_it_could_be_more() {
    for plain in ["cache 1.0.0 → 1.1.0 on regular: 1 of 2 runtimes; 1 ConfigMap goes", "no change"] {
        assert_eq!(sentence(plain), plain);
    }
    for (text, expected) in [
        ("<img> goes", "`<img> goes`"),
        ("@someone comes", "`@someone comes`"),
        ("#1 changes", "`#1 changes`"),
        ("www.example.org changes", "`www.example.org changes`"),
        ("a `b`", "`` a `b` ``"),
    ] {
        assert_eq!(sentence(text), expected);
    }
}

#[test]
fn ids_are_short() {
    let id = "2b1e9d3c4f5a6978695a4b3c2d1e0f9e8d7c6b5a";
    assert_eq!(short_ids(&format!("main@sha1:{id}")), "main@2b1e9d3c4f");
    assert_eq!(short_ids(&format!("tree: {id}")), "tree: 2b1e9d3c4f");
    let image = format!("a@sha256:{id}{}", &id[..24]);
    assert_eq!(short_ids(&image), "a@sha256:2b1e9d3c4f");
    for text in ["", "cafe", "no id: 1.0.0", "2b1e9d3c4f5a6978695a4b3c2d1e0f9e8d7c6b5"] {
        assert_eq!(short_ids(text), text);
    }
}
