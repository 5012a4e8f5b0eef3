use super::*;

fn phase(work: Work, limit: Option<Limit>) -> Phase {
    let mut skrs = Tally::default();
    skrs.add("daemon", "patch", "configmaps", 200, false, 11);
    skrs.add("daemon", "list", "configmaps", 200, false, 2);
    Phase {
        name: "a phase",
        wall: Duration::from_millis(2_500),
        work,
        latency: Latency::of(vec![Duration::from_secs(2), Duration::from_secs(1)]),
        kcp: Tally::default(),
        skrs,
        cpu: Duration::from_millis(700),
        resident: 50 << 20,
        peak: 60 << 20,
        limit,
    }
}

#[test]
fn quantiles_are_waits_that_somebody_had() {
    let waits = |count: u64| (1..=count).rev().map(Duration::from_secs).collect::<Vec<_>>();
    let seconds = |latency: Latency| (latency.p50.as_secs(), latency.p99.as_secs(), latency.runtimes);
    assert_eq!(Latency::of(Vec::new()), None);
    assert_eq!(Latency::of(waits(1)).map(seconds), Some((1, 1, 1)));
    assert_eq!(Latency::of(waits(2)).map(seconds), Some((1, 2, 2)));
    assert_eq!(Latency::of(waits(100)).map(seconds), Some((50, 99, 100)));
    assert_eq!(Latency::of(waits(1_000)).map(seconds), Some((500, 990, 1_000)));
}

#[test]
fn a_phase_stands_beside_its_limit() {
    let limit = Limit { wall: Duration::from_secs(2), writes: 10 };
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
