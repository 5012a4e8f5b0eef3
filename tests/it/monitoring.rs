//! Alerts and dashboards ask for metrics and labels that the daemon has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;
use serde_json::Value;
use tidegate_core::yaml::{self, Limits};

/// What the daemon exports, as a test of its metrics records it.
const EXPORTED: &str =
    "src/metrics/snapshots/tidegate__metrics__tests__the_text_is_what_dashboards_of_lifecycle_manager_read.snap";
/// Names that are no metric and no function.
const WORDS: [&str; 4] = ["by", "and", "or", "unless"];

/// The labels of each series.
type Series = BTreeMap<String, BTreeSet<String>>;

fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

fn read(below: &str) -> String {
    fs::read_to_string(path(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
}

/// The documents of a YAML file, as JSON.
fn documents(below: &str) -> Vec<Value> {
    let documents = yaml::parse(&read(below), &Limits::default()).unwrap_or_else(|error| panic!("{below}: {error:?}"));
    documents.iter().map(yaml::Node::to_json).filter(|document| !document.is_null()).collect()
}

fn dashboards() -> Vec<(String, Value)> {
    let files = fs::read_dir(path("deploy/monitoring/dashboards")).expect("a folder");
    let mut names: Vec<String> =
        files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    let board = |name: &String| {
        serde_json::from_str(&read(&format!("deploy/monitoring/dashboards/{name}"))).expect("a dashboard is JSON")
    };
    names.iter().map(|name| (name.clone(), board(name))).collect()
}

/// The queries of a dashboard: those of its panels and of its variables.
fn queries(board: &Value) -> Vec<String> {
    let texts = |list: &Value, pointer: &str| -> Vec<String> {
        let all = list.as_array().into_iter().flatten();
        all.filter_map(|one| one.pointer(pointer)?.as_str().map(str::to_owned)).collect()
    };
    let panels = board["panels"].as_array().expect("panels");
    let of_panels = panels.iter().flat_map(|panel| texts(&panel["targets"], "/expr"));
    of_panels.chain(texts(&board["templating"]["list"], "/query/query")).collect()
}

fn exported() -> Series {
    let mut series = Series::new();
    let line = Regex::new(r"^([a-z_]+)(?:\{(.*)\})? ").unwrap();
    let label = Regex::new(r#"([a-z_]+)=""#).unwrap();
    for text in read(EXPORTED).lines().filter(|text| !text.starts_with('#')) {
        let Some(found) = line.captures(text) else { continue };
        let labels = found.get(2).map_or("", |labels| labels.as_str());
        let labels = label.captures_iter(labels).map(|label| label[1].to_owned());
        series.entry(found[1].to_owned()).or_default().extend(labels);
    }
    series
}

/// What a query asks for, and its labels. Text in quotes and durations are left out.
fn asked(query: &str) -> (Vec<String>, BTreeSet<String>) {
    let quoted = Regex::new(r#""[^"]*""#).unwrap();
    let duration = Regex::new(r"\[[^\]]*\]").unwrap();
    let query = duration.replace_all(&quoted.replace_all(query, "''"), "").into_owned();
    let (mut labels, mut rest) = (BTreeSet::new(), query.clone());
    let name = Regex::new(r"[a-zA-Z_]+").unwrap();
    for list in [r"\{([^}]*)\}", r"\bby \(([^)]*)\)"] {
        let list = Regex::new(list).unwrap();
        for found in list.captures_iter(&query) {
            labels.extend(name.find_iter(&found[1]).map(|label| label.as_str().to_owned()));
        }
        rest = list.replace_all(&rest, "").into_owned();
    }
    // `label_values(metric, label)` of Grafana.
    if let Some(found) = Regex::new(r"^label_values\(([a-z_]+), ([a-z_]+)\)$").unwrap().captures(&query) {
        return (vec![found[1].to_owned()], [found[2].to_owned()].into());
    }
    let metrics = Regex::new(r"[a-zA-Z_]+\b *\(?").unwrap();
    let metrics = metrics.find_iter(&rest).map(|found| found.as_str().trim());
    let metrics = metrics.filter(|found| !found.ends_with('(') && !WORDS.contains(found));
    (metrics.map(str::to_owned).collect(), labels)
}

/// What is wrong with a query.
fn problem(query: &str, exported: &Series) -> Option<String> {
    let (metrics, labels) = asked(query);
    if metrics.is_empty() {
        return Some("it asks for no metric".to_owned());
    }
    let unknown = metrics.iter().find(|metric| !exported.contains_key(*metric));
    if let Some(metric) = unknown {
        return Some(format!("there is no metric {metric}"));
    }
    let has = |label: &String| metrics.iter().all(|metric| exported[metric].contains(label));
    labels.iter().find(|label| !has(label)).map(|label| format!("{metrics:?} have no label {label}"))
}

#[test]
fn alerts_and_dashboards_ask_for_what_is_exported() {
    let exported = exported();
    let rules = documents("deploy/monitoring/alerts.yaml").remove(0);
    let alerts = rules.pointer("/spec/groups/0/rules").and_then(Value::as_array).expect("rules");
    let of_alerts = alerts.iter().map(|rule| (rule["alert"].to_string(), rule["expr"].as_str().unwrap().to_owned()));
    let of_boards = dashboards().into_iter().flat_map(|(name, board)| {
        queries(&board).into_iter().map(move |query| (name.clone(), query)).collect::<Vec<_>>()
    });
    let all: Vec<(String, String)> = of_alerts.chain(of_boards).collect();
    let wrong: Vec<String> = all
        .iter()
        .filter_map(|(from, query)| Some(format!("{from}: {query}: {}", problem(query, &exported)?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The check itself finds mistakes.
    for (query, expected) in [
        ("max(tidegate_leader) == 0", "there is no metric tidegate_leader"),
        ("sum by (cluster, state) (rate(tidegate_api_requests_total[5m]))", "no label state"),
        (r#"tidegate_rollout_halted{state="failed"} > 0"#, "no label state"),
        ("label_values(lifecycle_mgr_module_state, module)", "no label module"),
        ("vector(0)", "no metric"),
    ] {
        let found = problem(query, &exported).unwrap_or_default();
        assert!(found.contains(expected), "{query}: {found}");
    }
}

/// #89: those of Lifecycle Manager, with its half hour, and those of rollouts and unreachable runtimes.
#[test]
fn every_alert_is_explained() {
    let rules = documents("deploy/monitoring/alerts.yaml").remove(0);
    let rules = rules.pointer("/spec/groups/0/rules").and_then(Value::as_array).expect("rules").clone();
    let document = read("docs/monitoring.md");
    let named = Regex::new(r"(?m)^\| `(Tidegate[A-Za-z]+)` \|").unwrap();
    let named: Vec<&str> = named.captures_iter(&document).map(|row| row.get(1).unwrap().as_str()).collect();
    let names: Vec<&str> = rules.iter().map(|rule| rule["alert"].as_str().expect("a name")).collect();
    assert_eq!(names, named, "docs/monitoring.md has a row for each alert, in this order");
    let label = Regex::new(r"\$labels\.([a-z_]+)").unwrap();
    for rule in &rules {
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning")), "{rule}");
        assert!(rule["for"].is_string(), "{rule}");
        // The texts name only labels that the query keeps.
        let (_, labels) = asked(rule["expr"].as_str().unwrap());
        let texts = format!("{} {}", rule["annotations"]["summary"], rule["annotations"]["description"]);
        assert!(!texts.contains("null"), "{rule}");
        for label in label.captures_iter(&texts) {
            assert!(labels.contains(&label[1]), "{rule}");
        }
    }
    for metric in
        ["lifecycle_mgr_self_signed_cert_not_renew", "lifecycle_mgr_gateway_secret_server_cert_close_to_expiry"]
    {
        let rule = rules.iter().find(|rule| rule["expr"].as_str().unwrap().contains(metric)).expect("an alert");
        assert_eq!(rule["for"], "30m");
    }
}

#[test]
fn what_is_monitored_is_the_service_of_the_base() {
    let service = documents("deploy/base/service.yaml").remove(0);
    let monitor = documents("deploy/monitoring/service-monitor.yaml").remove(0);
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]);
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
    assert_eq!(monitor["metadata"]["namespace"], service["metadata"]["namespace"]);

    let kustomization = documents("deploy/monitoring/kustomization.yaml").remove(0);
    let boards = dashboards();
    let mut generated: Vec<&str> = kustomization["configMapGenerator"][0]["files"]
        .as_array()
        .expect("files")
        .iter()
        .filter_map(|file| file.as_str()?.strip_prefix("dashboards/"))
        .collect();
    generated.sort_unstable();
    let names: Vec<&str> = boards.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(generated, names, "every dashboard is deployed");
    for (name, board) in &boards {
        assert_eq!(*name, format!("{}.json", board["uid"].as_str().expect("an id")));
        let ids: BTreeSet<u64> =
            board["panels"].as_array().unwrap().iter().filter_map(|one| one["id"].as_u64()).collect();
        assert_eq!(ids.len(), board["panels"].as_array().unwrap().len(), "{name}: each panel has its own id");
        assert!(read("docs/monitoring.md").contains(&format!("| `{name}` |")), "{name}");
    }
}
