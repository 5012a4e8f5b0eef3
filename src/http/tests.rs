use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Method, Request, StatusCode},
};
use tower::ServiceExt as _;

use super::*;

async fn ask(router: Router, method: Method, path: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn health(missing: &'static [&'static str]) -> Router {
    health::router(Arc::new(|| missing.iter().map(|line| (*line).to_owned()).collect()))
}

#[tokio::test]
async fn a_process_that_answers_is_healthy_whatever_is_missing() {
    assert_eq!(ask(health(&["no lease"]), Method::GET, "/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
}

#[tokio::test]
async fn readyz_says_what_is_missing() {
    let (status, body) = ask(
        health(&["the Lease is held by klm-0", "Kymas in kcp-system have not been listed"]),
        Method::GET,
        "/readyz",
    )
    .await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body, "not ready\nthe Lease is held by klm-0\nKymas in kcp-system have not been listed\n");
    assert_eq!(ask(health(&[]), Method::GET, "/readyz").await, (StatusCode::OK, "ok\n".to_owned()));
}

#[tokio::test]
async fn metrics_are_rendered_at_every_scrape() {
    let router = metrics::router(Arc::new(|| "# EOF\n".to_owned()));
    assert_eq!(ask(router, Method::GET, "/metrics").await, (StatusCode::OK, "# EOF\n".to_owned()));
}

#[tokio::test]
async fn nothing_can_be_changed_over_http() {
    assert_eq!(ask(health(&[]), Method::POST, "/readyz").await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(ask(health(&[]), Method::GET, "/other").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_port_that_is_taken_fails_the_start() {
    let first = Bound::bind("127.0.0.1:0".parse().unwrap(), "metrics").await.unwrap();
    let address = first.listener.local_addr().unwrap();
    assert_ne!(address.port(), 0);
    let error = Bound::bind(address, "health").await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {address} for health"));
}
