//! `tidegate sim bench`: fleets of simulated runtimes.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness;

/// A bench of three runtimes takes a few seconds; on a machine that builds at the same time it takes longer.
const BENCH_MAX: Duration = Duration::from_secs(15 * 60);

fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The phases of a bench of three runtimes, by name.
async fn bench(more: &[&str]) -> Vec<Value> {
    let place = harness::folder();
    let file = place.path().join("numbers.json");
    let output = tidegate()
        .args(["sim", "bench", "--runtimes=3", "--modules=2", "--objects=3", "--idle=2", "--events=3", "--json"])
        .arg(&file)
        .args(more)
        .output();
    let output = tokio::time::timeout(BENCH_MAX, output).await.expect("the bench ends").unwrap();
    let (said, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{problems}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&report["runtimes"], &report["modules"], &report["objects"]), (&json!(3), &json!(2), &json!(3)));
    let phases = report["phases"].as_array().unwrap().clone();
    for phase in &phases {
        let name = phase["name"].as_str().unwrap();
        assert!(said.contains(name), "the table has a line for {name}: {said}");
        assert!(phase["residentBytes"].as_u64() > Some(1 << 20), "{phase}");
        assert!(phase["peakBytes"].as_u64() > Some(1 << 20), "{phase}");
        assert!(phase["cpuSeconds"].is_number() && phase["wallSeconds"].is_number(), "{phase}");
    }
    phases
}

fn phase<'a>(phases: &'a [Value], name: &str) -> &'a Value {
    phases.iter().find(|phase| phase["name"] == name).unwrap_or_else(|| panic!("there is a phase {name}"))
}

#[track_caller]
fn check_phases(phases: &[Value]) {
    let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    let expected = [
        "first rollout",
        "idle",
        "channel bump",
        "1 % of modules changed",
        "one object deleted",
        "event storm",
        "20 % black-holed",
        "20 % back",
        "daemon restart",
    ];
    assert_eq!(names, expected);
    // Each of these has objects that are other than before, runtimes that got them, and a limit beside it.
    let runtimes = [
        ("first rollout", 3),
        ("channel bump", 3),
        ("1 % of modules changed", 1),
        ("20 % black-holed", 2),
        ("20 % back", 1),
    ];
    for (name, runtimes) in runtimes {
        let phase = phase(phases, name);
        assert_eq!(phase["work"]["unit"], "objects");
        assert!(phase["work"]["count"].as_u64() >= Some(3 * runtimes), "{name}: {}", phase["work"]);
        assert_eq!(phase["latency"]["runtimes"], runtimes, "{name}");
        let (writes, limit) = (phase["runtimes"]["writes"].as_u64(), phase["limit"]["writes"].as_u64());
        assert!(writes >= Some(3 * runtimes), "{name}: {phase:#}");
        assert!(limit >= phase["work"]["count"].as_u64(), "{name}: {phase:#}");
        assert!(phase["timesTheLimit"]["time"].is_number() && phase["timesTheLimit"]["writes"].is_number(), "{name}");
    }
    // A rollout brings: 3 × 2 × 3 objects of modules, a namespace, three definitions and a Kyma each, and the catalog.
    assert!(phase(phases, "first rollout")["work"]["count"].as_u64() >= Some(18 + 15), "{phases:#?}");
    let storm = phase(phases, "event storm");
    assert_eq!(storm["work"], json!({"unit": "events", "count": 9, "perSecond": storm["work"]["perSecond"]}));
    assert!(storm["runtimes"]["byVerb"]["get"].as_u64() >= Some(3), "{storm:#}");
    assert_eq!(phase(phases, "daemon restart")["latency"]["runtimes"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_fleet_is_measured_phase_by_phase() {
    check_phases(&bench(&[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_control_plane_may_lead_simulated_runtimes() {
    let _permit = harness::all_permits().await;
    harness::assets().await;
    check_phases(&bench(&["--control-plane=real"]).await);
}
