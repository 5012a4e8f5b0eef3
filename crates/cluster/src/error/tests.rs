use serde_json::{Value, json};

use super::*;

fn read(kind: &str, status: u16, body: &Value) -> Error {
    let target = Target::Object(ObjectId::new("", kind, "a", "b"));
    answer(&target, status, body.to_string().as_bytes())
}

fn answer(target: &Target, status: u16, body: &[u8]) -> Error {
    let cluster = (&"kcp".into(), &"127.0.0.1:6443".into());
    of_answer(cluster, target, StatusCode::from_u16(status).unwrap(), None, body)
}

fn status(message: &str, reason: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "details": details})
}

#[test]
fn answers_become_reasons_and_classes() {
    let conflict = json!({"causes": [{
        "reason": "FieldManagerConflict", "field": ".spec.replicas", "message": "conflict with \"kubectl\" using apps/v1",
    }]});
    let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
    let none = json!({});
    for (code, body, reason, class) in [
        (409, status("x", "Conflict", &conflict), "Conflict", Class::Stalled),
        (409, status("the object has been modified", "Conflict", &none), "Changed", Class::Transient),
        (409, status("object is being deleted: a", "Conflict", &none), "Terminating", Class::Waiting),
        (409, status("x", "AlreadyExists", &none), "AlreadyExists", Class::Stalled),
        (422, status("x", "Invalid", &none), "Invalid", Class::Stalled),
        (400, status("x", "BadRequest", &none), "Invalid", Class::Stalled),
        (404, status("x \"b\" not found", "NotFound", &none), "NotFound", Class::Waiting),
        (404, json!("404 page not found"), "KindNotServed", Class::Waiting),
        (403, status("x", "Forbidden", &none), "Forbidden", Class::Stalled),
        (403, status("x", "Forbidden", &terminating), "NamespaceTerminating", Class::Waiting),
        (401, status("Unauthorized", "Unauthorized", &none), "Unauthorized", Class::Transient),
        (429, status("x", "TooManyRequests", &none), "TooManyRequests", Class::Transient),
        (410, status("x", "Expired", &none), "Expired", Class::Transient),
        (
            500,
            status(
                "failed to create typed patch object (a/b; v1, Kind=X): .dada: field not declared in schema",
                "",
                &none,
            ),
            "UndeclaredField",
            Class::Stalled,
        ),
        (500, status("x", "InternalError", &none), "ServerError", Class::Transient),
        (503, json!("<html>"), "ServerError", Class::Transient),
    ] {
        let error = read("ConfigMap", code, &body);
        assert_eq!((error.reason(), error.class()), (reason, class), "{code} {body}");
    }
}

#[test]
fn an_answer_that_no_api_server_gives_says_what_to_check() {
    let namespace = Target::Object(ObjectId::new("", "Namespace", "", "kcp-system"));
    for (code, body, expected) in [
        (
            400,
            "Client sent an HTTP request to an HTTPS server.\n",
            "Namespace kcp-system was rejected: the URL of the API server must begin with https://",
        ),
        (
            405,
            "<html>",
            "Namespace kcp-system was rejected: HTTP status 405, and the answer is not that of an API server: check \
             its URL",
        ),
        (401, "", "cluster kcp (127.0.0.1:6443) rejected the client's credentials"),
    ] {
        assert_eq!(answer(&namespace, code, body.as_bytes()).to_string(), expected);
    }
}

#[test]
fn an_answer_that_is_no_status_is_never_quoted() {
    let error = read("ConfigMap", 502, &json!("<html>token=s3cret</html>"));
    assert!(!format!("{error} {error:?}").contains("s3cret"));
    let error = read("ConfigMap", 500, &json!({"kind": "Other", "message": "s3cret"}));
    assert!(!format!("{error} {error:?}").contains("s3cret"));
}

#[test]
fn of_a_secret_only_reason_and_fields_and_a_missing_permission_are_said() {
    let details =
        json!({"causes": [{"reason": "FieldValueInvalid", "field": "data.key", "message": "Invalid value: s3cret"}]});
    let error = read("Secret", 422, &status("Secret \"b\" is invalid: data.key: s3cret", "Invalid", &details));
    assert_eq!(error.to_string(), "Secret a/b was rejected: Invalid at data.key");
    let error = read("Secret", 400, &status("s3cret", "BadRequest", &json!({})));
    assert_eq!(error.to_string(), "Secret a/b was rejected: BadRequest");
    let text = "failed to create typed patch object (a/b; /v1, Kind=Secret): .data.key: expected string, got s3cret";
    let error = read("Secret", 500, &status(text, "", &json!({})));
    assert_eq!(error.to_string(), "Secret a/b does not match its schema: .data.key");
    let error =
        read("Secret", 403, &status("admission webhook \"a\" denied the request: s3cret", "Forbidden", &json!({})));
    assert_eq!(error.to_string(), "Secret a/b is forbidden: Forbidden");
    let text = "secrets \"b\" is forbidden: User \"planner\" cannot get resource \"secrets\" in API group \"\" in the \
                namespace \"a\"";
    let error = read("Secret", 403, &status(text, "Forbidden", &json!({})));
    assert_eq!(error.to_string(), "Secret a/b is forbidden: user planner cannot get secrets in namespace a");
    // So it answers an apply that would create the object.
    let error = read("Secret", 403, &status("secrets \"b\" is forbidden: ", "Forbidden", &json!({})));
    let expected = "Secret a/b is forbidden: it does not exist, and the client cannot create secrets in namespace a";
    assert_eq!(error.to_string(), expected);
    let text = "certificates.cert-manager.io \"b\" is forbidden: ";
    let error = read("Certificate", 403, &status(text, "Forbidden", &json!({})));
    let expected = "Certificate a/b is forbidden: it does not exist, and the client cannot create certificates in API \
                    group cert-manager.io in namespace a";
    assert_eq!(error.to_string(), expected);
    let error = read("Secret", 403, &status("secrets \"b\" is forbidden: s3cret", "Forbidden", &json!({})));
    assert_eq!(error.to_string(), "Secret a/b is forbidden: Forbidden");
}

/// What real API servers say about a PersistentVolume, a Pod, a Job and a webhook's object.
#[test]
fn an_answer_is_one_line_that_names_the_object_once() {
    let details = json!({});
    let difference = "spec.persistentvolumesource: Forbidden: it is immutable after creation\n@@ -2,7 +2,7 @@\n \
                      \"GCEPersistentDisk\": null,\n";
    let structs = "spec: Forbidden: pod updates may not change other fields\n  core.PodSpec{\n  \tVolumes: nil,\n";
    let value =
        format!("spec.template: Invalid value: core.PodTemplateSpec{{{}}}: field is immutable", "A: {}, ".repeat(99));
    for (message, expected) in [
        (
            format!("ConfigMap \"b\" is invalid: {difference}"),
            "spec.persistentvolumesource: Forbidden: it is immutable after creation",
        ),
        (format!("ConfigMap \"b\" is invalid: {structs}"), "spec: Forbidden: pod updates may not change other fields"),
        (
            format!("ConfigMap \"b\" is invalid: {value}"),
            "spec.template: Invalid value: core.PodTemplateSpec{…}: field is immutable",
        ),
        ("denied:\n  first reason\n\n  second {a: 1}".to_owned(), "denied: first reason second {a: 1}"),
        ("an open { brace".to_owned(), "an open { brace"),
        ("Other \"b\" is invalid: x".to_owned(), "Other \"b\" is invalid: x"),
    ] {
        let error = read("ConfigMap", 422, &status(&message, "Invalid", &details));
        assert_eq!(error.to_string(), format!("ConfigMap a/b was rejected: {expected}"));
    }
}

#[test]
fn long_texts_are_cut() {
    let error = read("ConfigMap", 422, &status(&"ä".repeat(5000), "Invalid", &json!({})));
    assert!(error.to_string().chars().count() < 450);
    let causes: Vec<Value> = (0..20)
        .map(|index| json!({"reason": "FieldManagerConflict", "field": format!(".f{index}"), "message": "conflict with \"m\""}))
        .collect();
    let error = read("ConfigMap", 409, &status("x", "Conflict", &json!({"causes": causes})));
    assert!(error.to_string().ends_with(".f7 (m) and 12 more"), "{error}");
}

#[test]
fn retry_after_comes_from_the_header_or_the_details() {
    let name: Arc<str> = "kcp".into();
    let read = |header, seconds: Value| {
        let body = status("x", "TooManyRequests", &json!({"retryAfterSeconds": seconds})).to_string();
        of_answer((&name, &name), &Target::Path("x"), StatusCode::TOO_MANY_REQUESTS, header, body.as_bytes())
            .retry_after()
    };
    assert_eq!(read(None, json!(7)), Some(Duration::from_secs(7)));
    assert_eq!(read(Some(Duration::from_secs(2)), json!(7)), Some(Duration::from_secs(2)));
    assert_eq!(read(None, json!(u64::MAX)), Some(BACKOFF_MAX));
    assert_eq!(read(None, json!(1e30)), Some(BACKOFF_MAX));
    assert_eq!(read(None, json!(-1)), None);
}

#[test]
fn failures_below_http_are_told_apart() {
    use std::io::{Error as Io, ErrorKind};
    let tls = || rustls::Error::General("x".to_owned());
    assert_eq!(of_transport(&Io::other(Io::new(ErrorKind::InvalidData, tls()))), Unreachable::Tls);
    let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    assert_eq!(of_transport(&Io::other(Io::new(ErrorKind::InvalidData, unknown()))), Unreachable::Untrusted);
    assert_eq!(of_transport(&tls()), Unreachable::Tls);
    assert_eq!(of_transport(&Io::from(ErrorKind::ConnectionRefused)), Unreachable::Connect);
    assert_eq!(of_transport(&Io::from(ErrorKind::TimedOut)), Unreachable::Timeout);
    assert_eq!(of_transport(&Io::from(ErrorKind::ConnectionReset)), Unreachable::Broken);
    assert_eq!(of_transport(&Io::other("dns error: no such host")), Unreachable::Dns);
    assert_eq!(of_transport(&Io::other(Io::from(ErrorKind::ConnectionRefused))), Unreachable::Connect);
}
