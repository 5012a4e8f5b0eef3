use super::*;

fn phase(work: Work, limit: Option<Limit>) -> Phase {
    let mut skrs = Tally::default();
    skrs.add("daemon", "patch", "configmaps", 200, false, 11);
    skrs.add("daemon", "list", "configmaps", 200, false, 2);
    Phase {
        name: "a phase",
        wall: Duration::from_millis(2_500),
        work,
        latency: Latency::from_waits(vec![Duration::from_secs(2), Duration::from_secs(1)]),
        kcp: Tally::default(),
        skrs,
        cpu: Duration::from_millis(700),
        resident: 50 << 20,
        peak: 60 << 20,
        registry: None,
        limit,
        others: None,
    }
}

#[test]
fn quantiles_are_waits_of_runtimes() {
    let waits = |count: u64| (1..=count).rev().map(Duration::from_secs).collect::<Vec<_>>();
    let seconds = |latency: Latency| (latency.p50.as_secs(), latency.p99.as_secs(), latency.runtimes);
    assert_eq!(Latency::from_waits(Vec::new()), None);
    assert_eq!(Latency::from_waits(waits(1)).map(seconds), Some((1, 1, 1)));
    assert_eq!(Latency::from_waits(waits(2)).map(seconds), Some((1, 2, 2)));
    assert_eq!(Latency::from_waits(waits(100)).map(seconds), Some((50, 99, 100)));
    assert_eq!(Latency::from_waits(waits(1_000)).map(seconds), Some((500, 990, 1_000)));
}

#[test]
fn a_phase_stands_beside_its_limit() {
    let limit = Limit { wall: Duration::from_secs(2), writes: 10, ..Limit::default() };
    let json = phase(Work::Objects(10), Some(limit)).json();
    assert_eq!(json["work"], json!({"unit": "objects", "count": 10, "perSecond": 4.0}));
    assert_eq!(json["timesTheLimit"], json!({"time": 1.25, "writes": 1.1}));
    assert_eq!(json["runtimes"]["byVerb"], json!({"list": 2, "patch": 11}));
    assert_eq!(json["latency"], json!({"p50Seconds": 1.0, "p99Seconds": 2.0, "runtimes": 2}));
}

#[test]
fn what_has_no_limit_says_so() {
    let report = Report {
        size: Size { runtimes: 2, modules: 1, objects: 5 },
        servers: "all simulated",
        origin: Origin::Git,
        phases: vec![phase(Work::Nothing, None)],
    };
    let table = report.table();
    let line = table.lines().find(|line| line.starts_with("a phase")).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let expected =
        ["a", "phase", "2.50", "0", "-", "1.00", "2.00", "0", "0", "11", "2", "0.70", "50", "60", "-", "-", "-"];
    assert_eq!(words, expected);
    assert!(table.ends_with("a phase\n  KCP       nothing\n  runtimes  list 2, patch 11"), "{table}");
}

#[test]
fn budgets_are_judged_by_the_phases_that_show_them() {
    let seconds = Duration::from_secs;
    let named = |name, wall, latency: Option<Latency>| Phase { name, wall, latency, ..phase(Work::Nothing, None) };
    let latency = |p99, runtimes| Some(Latency { p50: seconds(1), p99, runtimes });
    let report = Report {
        size: Size { runtimes: 10, modules: 1, objects: 10 },
        servers: "all simulated",
        origin: Origin::Git,
        phases: vec![
            Phase {
                name: "first rollout",
                ..phase(
                    Work::Objects(10),
                    Some(Limit { wall: seconds(2), between: (seconds(2), seconds(3)), writes: 10, others: Some(0.05) }),
                )
            },
            named("idle", seconds(3_600), None),
            named("channel bump", seconds(10), latency(seconds(10), 10)),
            named("20 % black-holed", seconds(10), latency(seconds(10), 8)),
            named("daemon restart", seconds(31), None),
        ],
    };
    let judged: Vec<(String, bool)> =
        report.budgets().iter().map(|budget| (format!("{:.2}", budget.measured), budget.is_met())).collect();
    let expected = [
        // 2.5 s compared with 2 s, and eleven writes for ten objects.
        ("1.25", true),
        ("1.10", false),
        // Thirteen requests, eleven of them writes, for a hundred objects in an hour; 0.7 s of processor time.
        ("11.00", false),
        ("0.13", false),
        ("0.00", true),
        // Eight runtimes took as long as ten.
        ("1.25", false),
        ("31.00", false),
        ("11.00", false),
    ];
    assert_eq!(judged, expected.map(|(measured, met)| (measured.to_owned(), met)));
    let table = report.table();
    assert!(table.contains("first rollout: the limit took between 2.00 and 3.00 s"), "{table}");
    assert!(!table.contains("others"), "{table}");
}

#[test]
fn what_others_took_is_said_of_both_sides_of_a_ratio() {
    let limit = Limit { wall: Duration::from_secs(2), writes: 10, others: Some(0.3), ..Limit::default() };
    let doubtful = Phase { others: Some(0.104), ..phase(Work::Objects(10), Some(limit)) };
    let doubts = doubtful.doubts().join("\n");
    assert!(doubts.contains("a phase: other processes used 10 % of the processors meanwhile"), "{doubts}");
    assert!(doubts.contains("a phase: other processes used 30 % of the processors during its limit"), "{doubts}");
    assert_eq!((&doubtful.json()["othersPart"], &doubtful.json()["limit"]["othersPart"]), (&json!(0.104), &json!(0.3)));
    assert_eq!(phase(Work::Nothing, None).doubts(), Vec::<String>::new());
}

#[test]
fn reads_of_a_registry_are_those_of_the_phase_and_the_most_of_all() {
    let asked = |manifest: u64, blob: u64| {
        BTreeMap::from([("/v2/a/manifests/1".to_owned(), manifest), ("/v2/a/blobs/x".to_owned(), blob)])
    };
    let reads = Reads::between(&asked(1, 1), &asked(3, 2));
    assert_eq!(reads, Reads { manifests: 2, blobs: 1, most: 2 });
    let report = Report {
        size: Size { runtimes: 2, modules: 1, objects: 5 },
        servers: "all simulated",
        origin: Origin::Oci,
        phases: vec![Phase { registry: Some(reads), ..phase(Work::Nothing, None) }],
    };
    let table = report.table();
    assert!(table.starts_with("2 runtimes × 1 modules × 5 objects, all simulated, modules in an OCI registry\n"));
    assert!(table.ends_with("\n  registry  manifests 2, blobs 1; the most of one blob until then: 2"), "{table}");
    let budget = table.lines().find(|line| line.starts_with("registry, reads of one blob")).unwrap_or_default();
    assert!(budget.ends_with("not met"), "{budget}");
    assert_eq!(json(&[report])["modulesFrom"], "oci");
}
