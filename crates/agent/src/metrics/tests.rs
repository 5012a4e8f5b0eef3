use super::*;

#[test]
fn row_44_the_lines_that_tools_look_for() {
    let metrics = Metrics::new(2);
    metrics.review();
    metrics.event();
    metrics.failed(Failure::FailedRequest);
    metrics.failed(Failure::FailedRequest);
    metrics.failed(Failure::InvalidSubresource);
    metrics.review_unreadable();
    metrics.answered(Duration::from_micros(120));
    let text = metrics.render(Depth::default());
    for line in [
        "watcher_failed_kcp_total{error_reason=\"failed-request\"} 2",
        "watcher_failed_kcp_total{error_reason=\"invalid-subresource\"} 1",
        "watcher_failed_kcp_total{error_reason=\"missing-address-or-contract\"} 0",
        "watcher_failed_kcp_total{error_reason=\"request-setup\"} 0",
        "watcher_kcp_requests_total 1",
        "watcher_admission_request_total 1",
        "watcher_admission_request_error_total 1",
        "watcher_request_duration 0.00012",
        "watcher_fips_mode 2",
        "# TYPE watcher_request_duration gauge",
        "# TYPE watcher_kcp_requests counter",
        "# TYPE watcher_failed_kcp counter",
        "# TYPE watcher_fips_mode gauge",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn what_waits_is_seen() {
    let depth = Depth { undelivered: 3, trailing: 2, oldest: Duration::from_millis(1500) };
    let text = Metrics::new(0).render(depth);
    for line in [
        "tidegate_agent_pending_objects 3",
        "tidegate_agent_trailing_objects 2",
        "tidegate_agent_pending_oldest_seconds 1.5",
        "tidegate_agent_path_up 0",
        "tidegate_agent_dropped_events_total{error_reason=\"overflow\"} 0",
        "tidegate_agent_credential_reloads_total{result=\"error\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
