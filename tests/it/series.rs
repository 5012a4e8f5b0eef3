//! `docs/metrics.md` has every metric of the daemon, written from what a test of its metrics records. `docs/agent.md`
//! has those of the agent.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it series::` writes it anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use crate::harness::check_recorded;

/// What the daemon exports, as a test of its metrics records it.
const EXPORTED: &str =
    "src/metrics/snapshots/tidegate__metrics__tests__the_text_is_what_dashboards_of_lifecycle_manager_read.snap";
/// Where metrics are registered. Every name there is on the page.
const REGISTERED: [&str; 2] = ["src/metrics.rs", "crates/events/src/metrics.rs"];
/// Metrics without a series in the recorded text, because nothing was counted: name, type, label, meaning.
const NOT_COUNTED: [(&str, &str, &str, &str); 4] = [
    ("tidegate_listener_accepted_total", "counter", "port", "Accepted connections"),
    ("tidegate_listener_connections", "gauge", "port", "Open connections"),
    (
        "tidegate_listener_lost_connections_total",
        "counter",
        "reason",
        "Connections that ended before a request, by reason",
    ),
    ("tidegate_listener_refused_total", "counter", "reason", "Refused requests by reason"),
];

/// A metric as it is exported.
#[derive(Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// The metrics of a text in the format of OpenMetrics, by name. The name of a counter ends with `_total`.
fn metrics(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut name = String::new();
    let mut help = String::new();
    for line in text.lines() {
        if let Some((_, rest)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            rest.clone_into(&mut help);
        } else if let Some((metric, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            name = if kind == "counter" { format!("{metric}_total") } else { metric.to_owned() };
            let known = Metric { kind: kind.to_owned(), help: help.clone(), labels: BTreeSet::new() };
            metrics.insert(name.clone(), known);
        } else if !line.starts_with('#') && line.starts_with(name.as_str()) && !name.is_empty() {
            let (_, labels) = line.split_once('{').unwrap_or_default();
            let (labels, _) = labels.rsplit_once('}').unwrap_or_default();
            let labels =
                labels.split("\",").filter_map(|label| label.split_once("=\"")).map(|(label, _)| label.to_owned());
            let known = metrics.get_mut(&name).expect("it was just inserted");
            known.labels.extend(labels.filter(|label| label != "le"));
        }
    }
    metrics
}

fn page(metrics: &BTreeMap<String, Metric>) -> String {
    let mut text = String::from(
        "<!-- written by tests/it/series.rs: UPDATE_GOLDEN=1 cargo test --test it series:: -->\n\
         # Metrics\n\n\
         What `/metrics` of the daemon serves, on `--metrics-address`. Those that begin with `lifecycle_mgr_`\n\
         and `watcher_` are Lifecycle Manager's and the Runtime Watcher's; those that begin with\n\
         `kcp_operator_` are kcp-operator's, and need `--kcp-operator-metrics`. A histogram has the series\n\
         `_bucket`, `_sum` and `_count`. [monitoring.md](monitoring.md) has alerts and dashboards.\n\
         [configuration.md](configuration.md#metrics) says more about some of the metrics, and\n\
         [agent.md](agent.md#metrics) has those of the agent.\n\n\
         | metric | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for (name, metric) in metrics {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {} | {} | {} |", metric.kind, labels.join(", "), metric.help);
    }
    text
}

#[test]
fn every_metric_of_the_daemon_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut metrics = metrics(&read(EXPORTED));
    let registered: String = REGISTERED.iter().map(|path| read(path)).collect();
    for (name, kind, label, help) in NOT_COUNTED {
        assert!(registered.contains(&format!("\"{help}\"")), "the meaning of {name} is now another one");
        let metric = Metric { kind: kind.to_owned(), help: format!("{help}."), labels: [label.to_owned()].into() };
        assert!(metrics.insert(name.to_owned(), metric).is_none(), "{name} is in {EXPORTED}");
    }
    // In the code, a name has neither the unit nor `_total`.
    let quoted = registered.split('"').skip(1).step_by(2);
    let is_name = |text: &&str| {
        ["tidegate_", "lifecycle_mgr_", "watcher_", "kcp_operator_"].iter().any(|start| text.starts_with(start))
    };
    let names: BTreeSet<&str> = quoted.filter(is_name).collect();
    let is_there = |name: &&&str| {
        ["", "_total", "_seconds", "_bytes_total"].iter().any(|end| metrics.contains_key(&format!("{name}{end}")))
    };
    let missing: Vec<&&str> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty() && names.len() == metrics.len(), "{missing:?}, {} of {}", names.len(), metrics.len());
    check_recorded(&root.join("docs/metrics.md"), &page(&metrics));
}

/// `docs/agent.md` names the metrics of the agent without their prefix.
#[test]
fn every_metric_of_the_agent_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = fs::read_to_string(root.join("crates/agent/src/metrics.rs")).expect("the metrics");
    let page = fs::read_to_string(root.join("docs/agent.md")).expect("a page");
    let (_, section) = page.split_once("## Metrics").expect("a section");
    let documented: BTreeSet<&str> = section.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let registered = code.split(".register").skip(1).filter_map(|call| call.split('"').nth(1));
    let names: BTreeSet<&str> = registered.filter(|name| !name.contains(' ')).collect();
    assert!(20 < names.len(), "{names:?}");
    let is_there =
        |name: &&&str| ["", "_total", "_seconds"].iter().any(|end| documented.contains(&*format!("{name}{end}")));
    let missing: Vec<&&str> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "docs/agent.md does not have {missing:?}");
}
