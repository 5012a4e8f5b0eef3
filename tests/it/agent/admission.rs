//! Reviews in, answers and events out: the Runtime Watcher's table, and ours.

use serde_json::{Value, json};

use super::{
    http,
    stage::{QUIET, Stage, created, event},
};

const CASES: &str = include_str!("cases.json");

fn cases() -> Vec<Value> {
    serde_json::from_str(CASES).unwrap()
}

/// The review of a case: what upstream's own tests leave out is left out.
fn review(case: &Value) -> Value {
    if let Some(review) = case.get("review") {
        return review.clone();
    }
    let mut request = json!({
        "uid": "00000000-0000-0000-0000-000000000001",
        "kind": {"group": "testGroup", "version": "testResourceVersion", "kind": "testResourceKind"},
        "resource": {"group": "testGroup", "version": "testResourceVersion", "resource": "testresourcekinds"},
        "name": "kyma-1", "namespace": "default", "userInfo": {"username": "tester"},
    });
    for key in ["operation", "subResource", "object", "oldObject", "dryRun"] {
        if let Some(value) = case.get(key) {
            request[key] = value.clone();
        }
    }
    match case.get("apiVersion") {
        Some(version) => json!({"kind": "AdmissionReview", "apiVersion": version, "request": request}),
        None => json!({ "request": request }),
    }
}

/// Sends a case. Compares the answer and the requests to the control plane with what the case expects.
async fn check(name: &str) {
    let cases = cases();
    let case = cases.iter().find(|case| case["name"] == name).unwrap_or_else(|| panic!("no case {name}"));
    let stage = Stage::start(QUIET).await;
    let path = case.get("path").map_or("/validate/kyma", |path| path.as_str().unwrap());
    let answer = stage.review(path, &review(case)).await;

    assert_eq!(answer.header("Strict-Transport-Security"), Some("max-age=31536000; includeSubDomains"), "{name}");
    assert_eq!(answer.header("Content-Security-Policy"), Some("default-src 'self'"), "{name}");
    match case.get("status") {
        Some(status) => assert_eq!(u64::from(answer.status()), status.as_u64().unwrap(), "{name}"),
        None => {
            assert_eq!((answer.status(), answer.header("Content-Type")), (200, Some("application/json")), "{name}");
            let mut expected = json!({"response": {
                "uid": "00000000-0000-0000-0000-000000000001", "allowed": true,
                "status": {"metadata": {}, "status": "Success", "message": case["message"]},
            }});
            if let Some(version) = case.get("apiVersion") {
                expected["kind"] = "AdmissionReview".into();
                expected["apiVersion"] = version.clone();
            }
            assert_eq!(serde_json::from_slice::<Value>(&answer.body).unwrap(), expected, "{name}");
        }
    }
    // A change of another object, sent after those of the case. What has not arrived by then never will.
    stage.change("last").await;
    let expected = case["event"].as_array().map(|event| {
        let text = |index: usize| event[index].as_str().unwrap();
        format!(
            r#"{{"watched":{{"Namespace":"{}","Name":"{}"}},"watchedGvk":{{"group":"{}","version":"{}","kind":"{}"}}}}"#,
            text(0), text(1), text(2), text(3), text(4),
        )
    });
    let expected: Vec<String> = expected.into_iter().chain([event("last")]).collect();
    assert_eq!(stage.control_plane.wait_for(expected.len()).await, expected, "{name}");
    if case["event"].is_array() {
        let path = case.get("eventPath").map_or("/v2/kyma/event", |path| path.as_str().unwrap());
        assert_eq!(stage.control_plane.received()[0].message.first, format!("POST {path} HTTP/1.1"), "{name}");
    }
}

/// A test for each case.
macro_rules! cases {
    ($($test:ident => $name:literal,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                check($name).await;
            }
        )*

        #[test]
        fn every_case_has_a_test() {
            let named: Vec<&str> = vec![$($name),*];
            let cases = cases();
            assert_eq!(cases.iter().map(|case| case["name"].as_str().unwrap()).collect::<Vec<_>>(), named);
        }
    };
}

cases! {
    upstream_connect_with_no_change => "upstream: CONNECT with no change",
    upstream_connect_with_spec_change => "upstream: CONNECT with spec change",
    upstream_connect_with_status_change => "upstream: CONNECT with status change",
    upstream_connect_with_empty_spec => "upstream: CONNECT with empty spec",
    upstream_update_with_no_change => "upstream: UPDATE with no change",
    upstream_update_with_spec_change => "upstream: UPDATE with spec change",
    upstream_update_with_status_change => "upstream: UPDATE with status change",
    upstream_update_with_empty_spec => "upstream: UPDATE with empty spec",
    upstream_create_with_no_change => "upstream: CREATE with no change",
    upstream_create_with_spec_change => "upstream: CREATE with spec change",
    upstream_create_with_status_change => "upstream: CREATE with status change",
    upstream_create_with_empty_spec => "upstream: CREATE with empty spec",
    upstream_delete_with_no_change => "upstream: DELETE with no change",
    upstream_delete_with_spec_change => "upstream: DELETE with spec change",
    upstream_delete_with_status_change => "upstream: DELETE with status change",
    upstream_delete_with_empty_spec => "upstream: DELETE with empty spec",
    row_18_labels_only => "labels only",
    row_18_status_on_the_object_itself => "status changed on the object itself",
    row_19_spec_on_the_subresource_status => "spec changed on the subresource status",
    row_19_status_absent_then_empty => "status absent, then {}",
    row_19_status_absent_on_both_sides => "status absent on both sides",
    row_19_subresource_in_capitals => "subresource Status",
    row_20_update_of_another_subresource => "UPDATE of subresource scale",
    row_17_create_of_another_subresource => "CREATE of subresource scale",
    row_18_spec_removed => "spec removed",
    row_18_spec_added => "spec added",
    row_18_empty_specs => "empty specs on both sides",
    row_18_null_specs => "specs null on both sides",
    row_18_order_of_keys => "order of keys",
    row_18_order_of_a_list => "order of a list",
    row_18_one_and_one_point_zero => "1 and 1.0",
    row_18_integers_that_are_one_double => "integers that are one double",
    row_18_object_without_spec => "an object without spec",
    row_28_object_without_namespace => "an object without namespace",
    row_22_dry_run => "a dry run",
    row_24_kind_of_the_object => "kind of the object, not of the request",
    row_24_api_version_with_two_slashes => "apiVersion with two slashes",
    row_25_create_without_object => "CREATE without object",
    row_7_nested_manager => "nested manager",
    row_7_manager_up_to_white_space => "manager up to white space",
    row_12_no_manager => "no manager",
    row_11_no_request => "no request",
    row_10_review_of_v1beta1 => "review of v1beta1",
    row_21_unknown_operation => "unknown operation",
    row_23_labels_and_owners_are_not_read => "a Kyma of v1alpha1 with labels and owner",
    row_19_status_of_a_module => "a module's status from Ready to Deleting",
}

#[tokio::test(flavor = "multi_thread")]
async fn row_9_any_method_with_a_review_is_answered() {
    let stage = Stage::start(QUIET).await;
    let body = serde_json::to_vec(&created("default")).unwrap();
    for method in ["GET", "PUT", "POST"] {
        let mut stream = stage.connect().await;
        let head = format!("{method} /validate/kyma HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = http::ask(&mut stream, &[head.as_bytes(), &body].concat()).await.unwrap();
        assert_eq!(answer.status(), 200, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_44_reviews_are_counted_as_upstream_counts_them() {
    let stage = Stage::start(QUIET).await;
    stage.change("default").await;
    stage.review("/validate/kyma", &json!({})).await;
    let mut scale = created("default");
    scale["request"]["operation"] = "UPDATE".into();
    scale["request"]["subResource"] = "scale".into();
    stage.review("/validate/kyma", &scale).await;
    stage.control_plane.wait_for(1).await;
    stage.wait_for_metric("watcher_kcp_requests_total", 1.0).await;
    assert_eq!(stage.metric("watcher_admission_request_total").await, 3.0);
    assert_eq!(stage.metric("watcher_admission_request_error_total").await, 1.0);
    assert_eq!(stage.metric("watcher_failed_kcp_total{error_reason=\"invalid-subresource\"}").await, 1.0);
    assert_eq!(stage.metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}").await, 0.0);
    assert_eq!(stage.metric("watcher_fips_mode").await, 2.0);
    assert!(0.0 < stage.metric("watcher_request_duration").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_8_each_port_has_its_own_paths() {
    let stage = Stage::start(QUIET).await;
    for path in ["/metrics", "/healthz", "/readyz", "/"] {
        let mut stream = stage.connect().await;
        assert_eq!(http::ask(&mut stream, &http::get(path)).await.unwrap().status(), 404, "{path}");
    }
    let body = serde_json::to_vec(&created("default")).unwrap();
    let mut stream = tokio::net::TcpStream::connect(stage.agent.plain).await.unwrap();
    let answer = http::ask(&mut stream, &http::post("/validate/lifecycle-manager", &body)).await.unwrap();
    assert_eq!(answer.status(), 404);
    assert_eq!(stage.metric("watcher_admission_request_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_45_health_on_the_plain_port() {
    let stage = Stage::start(QUIET).await;
    let health = stage.plain("/healthz").await;
    assert_eq!((health.status(), health.text()), (200, "ok\n"));
    let ready = stage.plain("/readyz").await;
    assert_eq!(ready.status(), 200);
    assert_eq!(ready.text(), "ok\nconnection to the control plane: not used yet\nundelivered changes: 0\n");
    let mut stream = tokio::net::TcpStream::connect(stage.agent.plain).await.unwrap();
    let answer = http::ask(&mut stream, &http::post("/readyz", b"")).await.unwrap();
    assert_eq!((answer.status(), answer.header("Allow")), (405, Some("GET, HEAD")));
}
