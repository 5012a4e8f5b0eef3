use tidegate_core::{
    name::Key,
    plan::{Offer, rollout},
};

use super::*;

#[test]
fn the_text_is_what_dashboards_of_lifecycle_manager_read() {
    let metrics = Metrics::default();
    let start = Instant::now();
    metrics.pass("runtime", Ended::Well, Duration::from_millis(3));
    metrics.waited("runtime", Duration::from_millis(3));
    metrics.requeue(Requeue::Intended(requeue::Reason::ManifestFinished));
    metrics.requeue(Requeue::Unexpected(requeue::Reason::CrdsSync));
    metrics.repeat("source", "FetchFailed", Ended::Failed);
    metrics.delivery("accepted");
    metrics.drift(Repair::Now);
    metrics.drift(Repair::Later);
    metrics.listener().serves("/v2/lifecycle-manager/event");
    metrics.seen("c0ffee", start);
    metrics.seen("c0ffee", start + Duration::from_secs(60));
    metrics.arrived("c0ffee", start + Duration::from_millis(200));
    metrics.arrived("c0ffee", start + Duration::from_secs(100));
    metrics.arrived("of an earlier process", start);
    metrics.runtime_concerned("one");
    metrics.runtime_arrived("one", start + Duration::from_secs(2));
    metrics.runtime_arrived("one", start + Duration::from_secs(100));
    let observed = Observed {
        kymas: vec![KymaSeries {
            name: "one".to_owned(),
            shoot: "c-123".to_owned(),
            instance_id: "i-1".to_owned(),
            state: State::Ready,
            modules: vec![("keda".to_owned(), State::Unmanaged)],
        }],
        mandatory_modules: 1,
        mandatory_states: vec![MandatorySeries {
            module: "warden".to_owned(),
            kyma: "one".to_owned(),
            state: State::Ready,
        }],
        maintenance_policy_read: true,
        rollouts: vec![LineCounts {
            line: rollout::Line {
                release: Key::new("kcp-system", "keda"),
                offer: Offer::Channel("regular".to_owned()),
            },
            version: "1.1.0".to_owned(),
            counts: rollout::WaveCounts { pending: 5, upgrading: 2, failed: 1, done: 3, aside: 1 },
            is_halted: true,
        }],
        sources: vec![SourceSeries {
            name: "kcp-system/landscape".to_owned(),
            ready: true,
            suspended: false,
            applied: 12,
            withheld: 1,
            to_prune: 2,
            bytes: 40_960,
            listed: 3,
        }],
        queue: QueueSeries { ready: 1, running: 2, delayed: 3, failing: 1, oldest: Duration::from_millis(1500) },
        requests: vec![RequestSeries { cluster: "kcp", verb: "apply", count: 7 }],
        registries: vec![RegistrySeries {
            registry: "r.example.com/modules".to_owned(),
            answering: true,
            failing: 1,
            requests: 9,
            received_bytes: 4096,
        }],
        unreachable_runtimes: 1,
        watches: vec![("Heard", 1), ("Silent", 0)],
        unreadable: [("Kyma".to_owned(), 1)].into(),
        leading: true,
        paused: false,
        events_dropped: 0,
        certificates_overdue: vec!["one".to_owned()],
        server_close_to_expiry: Some(false),
        comparison: Some(ComparisonSeries {
            differences: [(("ConfigMap".to_owned(), "Changed"), 2)].into(),
            improvements: [(("Deployment".to_owned(), "R2"), 3)].into(),
            not_compared: [("ControlPlane", 0), ("Source", 1)].into(),
            runtimes: [("Compared", 4), ("Pending", 0)].into(),
        }),
        setup: Some(SetupSeries {
            states: [(("Shard", "well"), 20), (("Shard", "wrong"), 1)].into(),
            clusters: [("reached", 2), ("refused", 0), ("unreached", 1)].into(),
            upstream: Some(setup::Kind::ALL.map(resource).into()),
        }),
    };
    insta::assert_snapshot!(sorted(&metrics.render(&observed)));
}

fn resource(kind: setup::Kind) -> SetupResourceSeries {
    SetupResourceSeries {
        kind,
        namespace: "kcp-system".to_owned(),
        name: "main".to_owned(),
        phase: if kind == setup::Kind::Shard { String::new() } else { "Running".to_owned() },
        conditions: if kind == setup::Kind::Shard { vec![("Available".to_owned(), 0)] } else { Vec::new() },
    }
}

/// Row 68: without the option, no series has the name of a resource.
#[test]
fn the_gauges_of_kcp_operator_are_there_only_if_they_are_asked_for() {
    let metrics = Metrics::default();
    let states = BTreeMap::from([(("RootShard", "well"), 1)]);
    let text = |upstream| {
        let setup = Some(SetupSeries { states: states.clone(), clusters: BTreeMap::from([("reached", 2)]), upstream });
        metrics.render(&Observed { setup, ..Observed::default() })
    };
    let own = "tidegate_kcp_resources{kind=\"RootShard\",state=\"well\"} 1\n";
    assert!(text(None).contains("tidegate_kcp_clusters{state=\"reached\"} 2\n"), "{}", text(None));
    assert!(text(None).contains(own) && !text(None).contains("kcp_operator_"));
    let all = text(Some(vec![resource(setup::Kind::Shard)]));
    for line in [
        own,
        "kcp_operator_shard_count{phase=\"Unknown\",namespace=\"kcp-system\"} 1\n",
        "kcp_operator_condition_status{resource_type=\"shard\",resource_name=\"main\",namespace=\"kcp-system\",\
         condition_type=\"Available\"} 0\n",
    ] {
        assert!(all.contains(line), "{line} in {all}");
    }
    assert!(!metrics.render(&Observed::default()).contains("tidegate_kcp_resources"), "only with kcp landscapes");
}

#[test]
fn a_deleted_kyma_leaves_no_series() {
    let metrics = Metrics::default();
    let kyma = KymaSeries { name: "one".to_owned(), ..KymaSeries::default() };
    assert!(metrics.render(&Observed { kymas: vec![kyma], ..Observed::default() }).contains("kyma_name=\"one\""));
    assert!(!metrics.render(&Observed::default()).contains("kyma_name"));
}

#[test]
fn what_is_remembered_of_git_is_bounded() {
    let metrics = Metrics::default();
    let now = Instant::now();
    for content in 0..=SEEN_MAX {
        metrics.seen(&content.to_string(), now);
    }
    let seen = metrics.lock();
    assert_eq!((seen.moments.len(), seen.order.len()), (SEEN_MAX, SEEN_MAX));
    assert!(!seen.moments.contains_key("0"));
}

/// Sorts the series of a family, which come in any order, except for buckets of histograms.
fn sorted(text: &str) -> String {
    // The rows of one histogram keep their order; its last label identifies it.
    let series =
        |line: &str| line.rsplit([',', '{']).next().and_then(|label| label.split('}').next()).map(str::to_owned);
    let mut lines: Vec<&str> = text.lines().collect();
    for family in lines.chunk_by_mut(|left, right| left.starts_with('#') == right.starts_with('#')) {
        if family[0].starts_with('#') {
            continue;
        }
        if family.iter().any(|line| line.contains("_bucket{")) {
            family.sort_by_key(|line| series(line));
        } else {
            family.sort_unstable();
        }
    }
    lines.join("\n")
}
