use super::*;

const CURRENT: &str = r#"{"watched":{"Namespace":"kyma-system","Name":"default"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"}}"#;

fn event(namespace: &str, name: &str, group: &str, version: &str, kind: &str) -> Event {
    Event {
        watched: Watched { namespace: namespace.to_owned(), name: name.to_owned() },
        gvk: Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() },
    }
}

fn kyma() -> Event {
    event("kyma-system", "default", "operator.kyma-project.io", "v1beta2", "Kyma")
}

#[track_caller]
fn reads(body: &str, expected: Event) {
    assert_eq!(Event::parse(body.as_bytes()), Ok(expected));
}

#[track_caller]
fn refuses(body: &str, expected: &str) {
    assert_eq!(Event::parse(body.as_bytes()).unwrap_err().to_string(), format!("the body is not an event: {expected}"));
}

#[test]
fn row_28_the_body_is_what_the_go_agent_sends() {
    assert_eq!(kyma().to_body(), CURRENT);
    assert_eq!(CURRENT.len(), 140);
}

#[test]
fn row_28_all_six_values_are_always_there() {
    assert_eq!(
        Event::default().to_body(),
        r#"{"watched":{"Namespace":"","Name":""},"watchedGvk":{"group":"","version":"","kind":""}}"#
    );
}

#[test]
fn strings_are_escaped_as_go_does() {
    let body = event("", "a<b>&\"\\\n\u{1}\u{2028}ä", "", "", "").to_body();
    assert!(body.contains(r#""Name":"a\u003cb\u003e\u0026\"\\\n\u0001\u2028ä""#), "{body}");
    reads(&body, event("", "a<b>&\"\\\n\u{1}\u{2028}ä", "", "", ""));
}

#[test]
fn row_24_group_and_version_of_an_api_version() {
    let cases = [
        ("operator.kyma-project.io/v1beta2", ("operator.kyma-project.io", "v1beta2")),
        ("v1", ("", "v1")),
        ("", ("", "")),
        ("/", ("", "")),
        ("a/", ("a", "")),
        ("/b", ("", "b")),
        ("a/b/c", ("", "")),
    ];
    for (api_version, (group, version)) in cases {
        assert_eq!(Gvk::new(api_version, "K"), event("", "", group, version, "K").gvk, "{api_version}");
    }
}

#[test]
fn the_path_of_an_event() {
    assert_eq!(path(CONTRACT, MANAGER), "/v2/lifecycle-manager/event");
}

#[test]
fn row_52_current_agent() {
    reads(CURRENT, kyma());
}

#[test]
fn row_52_all_lower_case_keys() {
    reads(&CURRENT.replace("Namespace", "namespace").replace("Name", "name"), kyma());
}

#[test]
fn row_52_all_upper_case_keys() {
    let body = r#"{"WATCHED":{"NAMESPACE":"kyma-system","NAME":"default"},"WATCHEDGVK":{"GROUP":"operator.kyma-project.io","VERSION":"v1beta2","KIND":"Kyma"}}"#;
    reads(body, kyma());
}

#[test]
fn row_52_legacy_body_with_owner() {
    reads(&CURRENT.replacen('{', r#"{"owner":{"Namespace":"kcp-system","Name":"kyma-sample"},"#, 1), kyma());
}

#[test]
fn row_52_unknown_fields_are_ignored() {
    let body = r#"{"watched":{"Namespace":"a","Name":"b","uid":1},"watchedGvk":{"group":"g","version":"v","kind":"k"},"extra":[1,2]}"#;
    reads(body, event("a", "b", "g", "v", "k"));
}

#[test]
fn row_52_of_duplicate_scalars_the_last_wins() {
    reads(r#"{"watched":{"Name":"a","Name":"b","Namespace":"n"},"watchedGvk":{}}"#, event("n", "b", "", "", ""));
    reads(r#"{"watched":{"Name":"a","NAME":null}}"#, event("", "a", "", "", ""));
}

#[test]
fn row_52_duplicate_objects_are_merged_field_by_field() {
    let body = r#"{"watched":{"Name":"a","Namespace":"n"},"watched":{"Name":"b"},"watchedGvk":{}}"#;
    reads(body, event("n", "b", "", "", ""));
    reads(r#"{"watched":{"Name":"a"},"Watched":null}"#, event("", "a", "", "", ""));
}

#[test]
fn row_52_an_empty_object_is_an_event() {
    reads("{}", Event::default());
}

#[test]
fn row_52_null_is_an_event() {
    reads("null", Event::default());
}

#[test]
fn row_52_null_members() {
    reads(r#"{"watched":null,"watchedGvk":null}"#, Event::default());
}

#[test]
fn row_52_missing_watched_gvk() {
    reads(r#"{"watched":{"Namespace":"n","Name":"x"}}"#, event("n", "x", "", "", ""));
}

#[test]
fn row_52_white_space_around() {
    reads(&format!(" \n{CURRENT} \n"), kyma());
}

#[test]
fn row_52_an_empty_body_is_refused() {
    refuses("", "unexpected end of input at line 1, column 0");
}

#[test]
fn row_52_an_array_is_refused() {
    refuses("[]", "a value of the wrong type at line 1, column 0");
}

#[test]
fn row_52_a_string_is_refused() {
    refuses("\"x\"", "a value of the wrong type at line 1, column 3");
}

#[test]
fn row_52_watched_as_a_string_is_refused() {
    refuses(r#"{"watched":"n/x"}"#, "a value of the wrong type at line 1, column 16");
}

#[test]
fn row_52_a_name_that_is_a_number_is_refused() {
    refuses(r#"{"watched":{"Name":1}}"#, "a value of the wrong type at line 1, column 20");
    refuses(r#"{"watched":{"Name":[97]}}"#, "a value of the wrong type at line 1, column 20");
}

#[test]
fn row_52_a_second_document_is_refused() {
    refuses(&format!("{CURRENT}{CURRENT}"), "invalid JSON at line 1, column 141");
}

#[test]
fn row_52_a_truncated_body_is_refused() {
    for end in 0..CURRENT.len() {
        assert!(Event::parse(&CURRENT.as_bytes()[..end]).is_err(), "the first {end} bytes");
    }
}

#[test]
fn row_52_a_byte_order_mark_is_refused() {
    refuses(&format!("\u{feff}{CURRENT}"), "invalid JSON at line 1, column 1");
}

#[test]
fn what_is_no_text_is_replaced() {
    let body = b"{\"watched\":{\"Name\":\"a\xff\xe2\x82b\"},\"\xff\":1}";
    assert_eq!(Event::parse(body), Ok(event("", "a\u{fffd}\u{fffd}\u{fffd}b", "", "", "")));
    reads(
        r#"{"watched":{"Name":"a\ud800b\udc00","Namespace":"\ud83d\ude00"}}"#,
        event("😀", "a\u{fffd}b\u{fffd}", "", "", ""),
    );
    assert!(Event::parse(b"\xff{}").is_err());
}

#[test]
fn names_of_members_are_folded_as_go_does() {
    reads(r#"{"watched":{"name\u017fpace":"n"},"watchedGv\u212a":{"\u212aind":"k"}}"#, event("n", "", "", "", "k"));
}

#[test]
fn depth_costs_no_stack() {
    let deep = format!(r#"{{"extra":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    reads(&deep, Event::default());
    assert!(Event::parse("[".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn what_is_refused_is_not_quoted() {
    let error = Event::parse(b"{\"watched\":{\"Name\":{\"token\":\"s3cret\"}}}").unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
}
