use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use serde_json::json;

use super::*;

fn key() -> MaskKey {
    MaskKey::new([7; KEY_BYTES])
}

/// Checks that `value` contains no clear value, literally or as base64.
#[track_caller]
fn check(value: Value, secrets: &[&str]) -> Value {
    let masked = masked(&value, &key());
    let text = masked.to_string();
    for secret in secrets {
        assert!(value.to_string().contains(secret) || value.to_string().contains(&STANDARD.encode(secret)), "{secret}");
        assert!(!text.contains(secret), "{secret} in {text}");
        assert!(!text.contains(STANDARD_NO_PAD.encode(secret).as_str()), "{secret} as base64 in {text}");
    }
    masked
}

#[test]
fn the_digest_is_hmac_sha_256() {
    // RFC 4231, test case 2, whose key is `Jefe` and is padded with zeros.
    let mut bytes = [0; KEY_BYTES];
    bytes[..4].copy_from_slice(b"Jefe");
    let digest = MaskKey::new(bytes).hmac(b"what do ya want for nothing?");
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    assert_eq!(MaskKey::new(bytes).mask(b"what do ya want for nothing?"), "(masked: Secret 5bdcc146bf60)");
}

#[test]
fn equal_values_look_equal_and_others_do_not() {
    let masked = check(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "Opaque",
            "data": {"one": "aHVudGVyMg==", "two": "aHVudGVyMw==", "broken": "not base64!"},
            "stringData": {"three": "hunter2", "number": 5, "long": "hunter2".repeat(1000)}}),
        &["hunter2", "hunter3", "not base64!"],
    );
    let (data, string_data) = (&masked["data"], &masked["stringData"]);
    assert_eq!(data["one"], string_data["three"], "one value, encoded and not");
    assert_ne!(data["one"], data["two"]);
    assert_eq!(
        data["one"].as_str().map(str::len),
        string_data["long"].as_str().map(str::len),
        "the length is not told"
    );
    assert_eq!(masked["type"], "Opaque");
    let other = super::masked(&json!({"kind": "Secret", "data": {"one": "aHVudGVyMg=="}}), &MaskKey::new([8; 32]));
    assert_ne!(other["data"]["one"], data["one"], "another run has another key");
}

#[test]
fn keys_of_two_runs_compare_if_their_text_is_the_same() {
    let mask = |text: &str| MaskKey::of_text(text.as_bytes()).map(|key| key.mask(b"x"));
    assert_eq!(mask("0123456789abcdef"), mask("0123456789abcdef\n"));
    assert_ne!(mask("0123456789abcdef"), mask("0123456789abcdeg"));
    assert_eq!(mask("0123456789abcde\n"), None, "too short");
    assert_eq!(format!("{:?} {:?}", key(), Masker::new(key())), "MaskKey Masker");
}

#[test]
fn secrets_are_found_wherever_they_are() {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "hunter2"}});
    check(json!({"apiVersion": "v1", "kind": "List", "items": [secret]}), &["hunter2"]);
    check(json!({"kind": "SecretList", "items": [{"data": {"k": STANDARD.encode("hunter2")}}]}), &["hunter2"]);
    check(json!({"kind": "ModuleTemplate", "spec": {"data": secret}}), &["hunter2"]);
    check(json!({"kind": "Manifest", "spec": {"resource": {"spec": {"template": secret}}}}), &["hunter2"]);
    check(json!({"kind": "Secret", "data": "hunter2 by mistake"}), &["hunter2"]);
    check(
        json!({"kind": "Secret", "data": [["hunter2"]], "stringData": {"k": {"l": "hunter3"}}}),
        &["hunter2", "hunter3"],
    );
}

#[test]
fn secrets_in_texts_are_masked_and_the_rest_of_the_text_is_kept() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": STANDARD.encode("hunter2")}});
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let with = |text: String| json!({"kind": "Secret", "metadata": {"annotations": {annotation: text}}});
    let masked = check(with(secret.to_string()), &["hunter2"]);
    let text = masked["metadata"]["annotations"][annotation].as_str().unwrap();
    let inner: Value = serde_json::from_str(text).unwrap();
    assert_eq!(inner["data"]["k"], key().mask(b"hunter2"));
    assert_eq!(inner["metadata"]["name"], "a");
    // Truncated text cannot be parsed.
    let cut = secret.to_string();
    check(with(cut[..cut.len() - 3].to_owned()), &["hunter2"]);
    // A string in a string, and YAML.
    check(with(json!({"annotations": {"a": secret.to_string()}}).to_string()), &["hunter2"]);
    let yaml = "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n---\nkind: \"Secret\"\nstringData:\n  k: hunter2\n";
    let masked = check(json!({"kind": "ConfigMap", "data": {"objects.yaml": yaml}}), &["hunter2"]);
    assert!(masked["data"]["objects.yaml"].as_str().unwrap().contains("a: b"), "{masked}");
    check(json!({"data": {"x": "kind: Secret\n  stringData: {k: hunter2\n"}}), &["hunter2"]);
    check(json!({"data": {"x": "{apiVersion: v1, kind: Secret, stringData: {k: hunter2}}"}}), &["hunter2"]);
}

#[test]
fn what_holds_no_secret_stays_as_it_is() {
    for value in [
        json!({"description": "The kind of a Secret: it names\na Secret, kind and all."}),
        json!({"volumes": [{"secret": {"secretName": "a"}}], "ref": {"kind": "Secret", "name": "a"}}),
        json!({"metadata": {"annotations": {"a": "{\"kind\":\"ConfigMap\",\"note\":\"no Secret\"}"}}}),
        json!({"kind": "ConfigMap", "data": {"k": "aHVudGVyMg=="}}),
        json!({"kind": "Secret", "metadata": {"name": "a"}}),
        json!({"kind": "Secret", "data": null}),
    ] {
        assert_eq!(masked(&value, &key()), value);
        assert!(!Masker::new(key()).mask(&mut value.clone()));
    }
}

#[test]
fn texts_of_others_are_scrubbed_of_what_was_met() {
    let mut masker = Masker::new(key());
    let secret = json!({"kind": "Secret", "stringData": {
        "password": "correct horse", "other": "fifteen letters", "short": "test", "tiny": "abc", "quote": "a \"quoted\" word\n",
        "pem": "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END KEY-----\n"}});
    assert!(masker.mask(&mut secret.clone()));
    masker.remember(b"a token of mine");
    let mask = |text: &str| key().mask(text.as_bytes());
    let check = |text: &str, expected: &str| assert_eq!(masker.scrub(text), expected);
    check("invalid value \"correct horse\"", &format!("invalid value \"{}\"", mask("correct horse")));
    let in_base64 = mask("fifteen letters").replace(')', ", in base64)");
    check(&format!("at {}", STANDARD.encode("fifteen letters")), &format!("at {in_base64}"));
    check("user:test@host uses latest", &format!("user:{}@host uses latest", mask("test")));
    check("abc is in every text", "abc is in every text");
    check(r#"found {"a":"a \"quoted\" word"}"#, &format!(r#"found {{"a":"{}"}}"#, mask("a \"quoted\" word\n")));
    let pem = masker.scrub("cannot parse line MIIEvQIBADANBgkqhkiG9w0");
    assert!(!pem.contains("MIIE"), "{pem}");
    check("Bearer a token of mine", &format!("Bearer {}", mask("a token of mine")));
    check("nothing of it", "nothing of it");
}

#[test]
fn a_name_is_no_secret_whether_a_secret_repeats_it_before_or_later() {
    let token = json!({"kind": "Secret", "data": {"namespace": STANDARD.encode("kyma-system"), "token": STANDARD.encode("hunter-two")}});
    let text = "kyma-system/pod says hunter-two";
    let expected = format!("kyma-system/pod says {}", key().mask(b"hunter-two"));
    let mut before = Masker::new(key());
    before.is_name("kyma-system");
    assert!(before.mask(&mut token.clone()));
    assert_eq!(before.scrub(text), expected);
    let mut later = Masker::new(key());
    assert!(later.mask(&mut token.clone()));
    assert_ne!(later.scrub(text), expected);
    later.is_name("kyma-system");
    assert_eq!(later.scrub(text), expected);
}

#[test]
fn words_that_name_a_secret_outside_of_a_mapping_are_one_value() {
    // Too short to contain a value.
    assert_eq!(masked(&json!({"a": "see kind:Secret"}), &key())["a"], "see kind:Secret");
    for text in ["an object such as kind:Secret/name:foo", "export X='{\"kind\":\"Secret\"}'"] {
        let masked = masked(&json!({"data": {"a": text}}), &key());
        assert_eq!(masked["data"]["a"], key().mask(text.as_bytes()), "{text}");
    }
}

#[test]
fn what_is_masked_twice_looks_as_what_is_masked_once() {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "data": {"one": "aHVudGVyMg=="}, "stringData": {"two": "x"}});
    let once = masked(&secret, &key());
    assert_eq!(masked(&once, &key()), once);
}

/// Every notation in YAML, JSON and base64.
#[test]
fn no_spelling_hides_a_secret() {
    let json = r#"{"kind":"Secret","stringData":{"k":"hunter2-a-long-one"}}"#;
    let quoted = Value::from(json).to_string();
    let texts = [
        "kind:\n  Secret\nstringData:\n  k: hunter2-a-long-one\n".to_owned(),
        "kind: !!str Secret\nstringData:\n  k: hunter2-a-long-one\n".to_owned(),
        "kind: &k Secret\nstringData:\n  k: hunter2-a-long-one\n".to_owned(),
        "kind: >-\n  Secret\nstringData:\n  k: hunter2-a-long-one\n".to_owned(),
        "\"kind\": \"Sec\\x72et\"\nstringData:\n  k: hunter2-a-long-one\n".to_owned(),
        "\"k\\u0069nd\": \"\\u0053ecret\"\nstringData:\n  k: hunter2-a-long-one\n".to_owned(),
        "{\"k\\u0069nd\": \"\\u0053ecret\", \"stringData\": {\"k\": \"hunter2-a-long-one\"}}".to_owned(),
        "base: &b\n  stringData: {k: hunter2-a-long-one}\nmade:\n  kind: Secret\n  <<: *b\n".to_owned(),
        "values: &v {k: hunter2-a-long-one}\nkind: Secret\nstringData: *v\n".to_owned(),
        quoted.clone(),
        Value::from(quoted.as_str()).to_string(),
        // A key twice: the value of the first is in the text as well.
        format!(r#"{{"kind":"Secret","data":{{"k":"{}"}},"data":{{}}}}"#, STANDARD.encode("hunter2-a-long-one")),
        STANDARD.encode(json),
        STANDARD.encode(STANDARD.encode("kind: Secret\nstringData:\n  k: hunter2-a-long-one\n")),
        // Unparsable text.
        "kubectl apply -f - <<E\nkind:\n  Secret\nstringData: {k: hunter2-a-long-one\nE".to_owned(),
        "apply: \"\"\"\nkind: 'Sec\\x72et' \"hunter2-a-long-one".to_owned(),
        "a: b: c\nkind: !!str Secret\nk: hunter2-a-long-one".to_owned(),
    ];
    for text in texts {
        let value = json!({"kind": "ConfigMap", "data": {"a": text}});
        let printed = masked(&value, &key()).to_string();
        let all = [
            "hunter2".to_owned(),
            STANDARD_NO_PAD.encode("hunter2-a-long-one"),
            STANDARD_NO_PAD.encode(json),
            STANDARD_NO_PAD.encode("stringData"),
        ];
        for clear in all {
            assert!(!printed.contains(&clear), "{clear} in {printed}\nof {text}");
        }
        assert!(super::find::may_hold(&value), "{text}");
    }
    // Any nesting depth terminates.
    let deep = (0..20).fold(json.to_owned(), |text, _| Value::from(text).to_string());
    let short = (0..8).fold(json.to_owned(), |text, _| STANDARD.encode(text));
    for text in [&deep[..deep.len().min(100_000)], &short] {
        masked(&json!({"a": text}), &key());
    }
}

#[test]
fn copies_of_values_are_scrubbed_from_objects_and_names_are_not() {
    let mut masker = Masker::new(key());
    masker.meet(&json!({"kind": "Secret", "stringData": {
        "password": "correct horse", "namespace": "kyma-system", "short": "admin", "user": "Some-User"}}));
    masker.is_name("kyma-system");
    let copies = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "correct horse", "namespace": "kyma-system", "annotations": {"note": "a copy of correct horse"}},
        "data": {"copy": "correct horse", "encoded": STANDARD.encode("correct horse"),
            "login": STANDARD.encode("admin:correct horse"), "loud": "CORRECT HORSE", "correct horse": "as a key",
            "user": "some-user and SOME-USER", "role": "admin", "where": "in kyma-system"}});
    let mut scrubbed = copies.clone();
    masker.scrub_object(&mut scrubbed);
    let text = scrubbed["data"].to_string() + &scrubbed["metadata"]["annotations"].to_string();
    for clear in ["correct", "CORRECT", "some-user", "SOME-USER", "Y29ycmVjdCBob3Jz"] {
        assert!(!text.contains(clear), "{clear} in {text}");
    }
    assert!(!text.contains(&STANDARD.encode("admin:correct horse")[8..20]), "{text}");
    assert_eq!(scrubbed["data"]["copy"], key().mask(b"correct horse"));
    assert_eq!(scrubbed["data"]["role"], "admin", "too short to be told from any word");
    assert_eq!(scrubbed["data"]["where"], "in kyma-system");
    assert_eq!(scrubbed["metadata"]["name"], "correct horse", "what identifies an object stays");
    // Numbers replace digests in keys as well.
    let mut numbers = Numbers::default();
    numbers.put(&mut scrubbed);
    assert!(scrubbed["data"].get("(masked: Secret 1)").is_some(), "{scrubbed}");
}

/// Content of a Secret under a misspelt kind is secret as well; a reference to a Secret is not.
#[test]
fn misspelt_fields_of_a_secret_are_masked() {
    let metadata = json!({"name": "a", "namespace": "b", "labels": {"app": "c"}});
    for kind in ["Secret", "secret", "SECRET"] {
        for field in ["stringdata", "Data", "extra", "spec", "StringData"] {
            let secret = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "type": "Opaque",
                field: {"token": "hunter2"}});
            let masked = check(secret.clone(), &["hunter2"]);
            assert_eq!((&masked["metadata"], &masked["type"]), (&metadata, &json!("Opaque")));
            assert!(masked[field].get("token").is_some(), "keys stay: {masked}");
            assert!(super::find::may_hold(&secret));
        }
    }
    let odd = json!({"apiVersion": "v1", "kind": "Secret", "stringData": "hunter2", "immutable": "hunter3",
        "metadata": {"name": "a", "data": {"token": ["hunter4"]}, "annotations": {"note": "hunter5", "tidegate.dev/adopt": "true"}}});
    let masked = check(odd, &["hunter2", "hunter3", "hunter4", "hunter5"]);
    assert_eq!(masked["metadata"]["annotations"]["tidegate.dev/adopt"], "true");
    // Not a Secret, despite its name: rules may see its fields.
    let refers = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"kind": "Secret", "spec": {"image": "a"}}}});
    assert_eq!(super::masked(&refers, &key()), refers);
}

#[test]
fn copies_that_are_written_otherwise_do_not_look_equal_and_no_key_is_lost() {
    let mut masker = Masker::new(key());
    masker.meet(&json!({"kind": "Secret", "stringData": {"a": "9f8e7d6c5b4a", "b": "first-line\nsecond-line"}}));
    let forms = [
        "9f8e7d6c5b4a".to_owned(),
        "9F8E7D6C5B4A".to_owned(),
        STANDARD.encode("9f8e7d6c5b4a"),
        "first-line".to_owned(),
        "second-line".to_owned(),
    ];
    let shown: std::collections::BTreeSet<String> = forms.iter().map(|form| masker.scrub(form)).collect();
    assert_eq!(shown.len(), forms.len(), "{shown:?}");
    let map: serde_json::Map<_, _> = forms.iter().map(|form| (form.clone(), json!(1))).collect();
    let mut value = json!({"data": map});
    value["data"]["x-9f8e7d6c5b4a"] = json!(2);
    value["data"][format!("x-{}", key().mask(b"9f8e7d6c5b4a"))] = json!(3);
    let mut numbered = masker.scrubbed(&value);
    Numbers::default().put(&mut numbered);
    assert_eq!(numbered["data"].as_object().map(serde_json::Map::len), Some(7), "{numbered}");
    assert!(numbered.to_string().contains("(masked: Secret 1, in capitals)"), "{numbered}");
}

#[test]
fn a_placeholder_is_no_value_and_what_looks_like_one_is() {
    let secret = |text: &str| json!({"apiVersion": "v1", "kind": "Secret", "data": {"kubeconfig": text}});
    let placeholder = secret("((live: data of Secret kcp-system/admin))");
    assert_eq!(super::masked(&placeholder, &key()), placeholder);
    for text in ["((live: data of Secret hunter2))", "((live: data of Secret a/b)) hunter2", "((live: hunter2))"] {
        check(secret(text), &["hunter2"]);
    }
}

/// What cannot be read as a definition hides no part of a value.
#[test]
fn parts_of_values_are_found_whatever_is_wrong_with_the_text_around_them() {
    let deep = |text: &str| format!("{}{text}{}", "[".repeat(150), "]".repeat(150));
    let texts = [
        "users:\n- name: a\n  token: !vault hunter2-a-long-one\n".to_owned(),
        "users: !list\n- hunter2-a-long-one\n".to_owned(),
        "token: first-of-the-two\ntoken: hunter2-a-long-one\n".to_owned(),
        "token: hunter2-a-long-one\ntoken: second-of-the-two\n".to_owned(),
        r#"{"token":"hunter2-a-long-one","token":"second-of-the-two"}"#.to_owned(),
        r#"{"users":[{"token":"hunter2-a-long-one","token":""}]}"#.to_owned(),
        deep("\"hunter2-a-long-one\""),
        format!("{}: {{token: hunter2-a-long-one}}", "a: {b".repeat(150)),
        "token: hunter2-a-long-one\nother: *missing\n".to_owned(),
        "limit: .inf\ntoken: hunter2-a-long-one\n".to_owned(),
        "[a, b]: c\ntoken: hunter2-a-long-one\n".to_owned(),
        // Not YAML.
        "a: b: c\ntoken: hunter2-a-long-one # a note\n".to_owned(),
        "{\"a\": 1, \"token\": \"hunter2-a-long-one\"".to_owned(),
        "a: b: c\n- token: !x 'hunter2-a-long-one'\n".to_owned(),
        "a: b: c\ntokens: [x, hunter2-a-long-one]\n".to_owned(),
        "token: \"hunter2-a-long-one\nother: it's\n".to_owned(),
        // The password of a Docker configuration.
        format!("auth: !x {}\n", STANDARD.encode("user:hunter2-a-long-one")),
        format!("a: b: c\nauth: {}\n", STANDARD.encode("user:hunter2-a-long-one")),
        format!(r#"{{"auth":"{}","auth":""}}"#, STANDARD.encode("user:hunter2-a-long-one")),
    ];
    for text in texts {
        let mut masker = Masker::new(key());
        masker.meet(&json!({"kind": "Secret", "data": {"config": STANDARD.encode(&text)}}));
        let mut copy = json!({"kind": "ConfigMap", "data": {"copy": "see hunter2-a-long-one"}});
        masker.scrub_object(&mut copy);
        assert!(!copy.to_string().contains("hunter2"), "{copy}\nof {text}");
    }
    // Both values of a key.
    let mut masker = Masker::new(key());
    let token = "token: first-of-the-two\ntoken: second-of-the-two\nport: 5432\non: true\n";
    masker.meet(&json!({"kind": "Secret", "stringData": {"config": token}}));
    let shown = masker.scrub("first-of-the-two, second-of-the-two, 5432, true");
    assert!(!shown.contains("of-the-two") && shown.ends_with("5432, true"), "{shown}");
}

/// Each of these would need minutes, or a deep stack, if it were read otherwise than once. None of them hides the
/// value.
#[test]
fn hostile_values_of_secrets_take_no_time() {
    let begin = std::time::Instant::now();
    let ends = ["[", "{\"a\":", "- ", "a: ", "\"", "'", "&a !b ", "!", "*a ", "? ", "{a: [", "\\", "-\n", "---\n"];
    for part in ends {
        let text = format!("a: b: c\n{}", part.repeat(200_000 / part.len()));
        for text in [&text[..], &text[8..]] {
            let mut masker = Masker::new(key());
            masker.meet(&json!({"kind": "Secret", "stringData": {"config": text}}));
            let shown = masker.scrub(text);
            assert!(shown.starts_with(MASK_OPEN) && shown.len() < 100, "{part:?}: {} bytes are left", shown.len());
        }
    }
    // Far above the normal time, even in a debug build on a busy machine.
    assert!(begin.elapsed().as_secs() < 120, "{:?}", begin.elapsed());
}
