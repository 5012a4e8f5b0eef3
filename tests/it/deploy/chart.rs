//! The Helm charts: they render the objects of the kustomizations, field by field, and every value takes effect and is
//! accepted by a real API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{deploy, harness};

pub(crate) const CHART: &str = "deploy/chart";
pub(crate) const CRDS: &str = "deploy/chart-crds";
/// What Helm must not delete. Kustomize has no such annotation.
const KEEP: &str = "helm.sh/resource-policy";
/// The first line of a generated template.
const GENERATED: &str = "# Generated from deploy/setup by a test: UPDATE_GOLDEN=1 cargo test --test it chart::\n";

/// One value of the chart: what must be set for it to matter, what it is set to, and a text that the objects then have.
type Case = (&'static str, &'static [&'static str], &'static str, &'static str);

/// Every value, by its path.
const CASES: &[Case] = &[
    ("image.repository", &[], r#""mirror.example.com/tidegate""#, r#""image":"mirror.example.com/tidegate:0.1.0""#),
    ("image.tag", &[], r#""0.9.0""#, r#""image":"ghcr.io/tidegate/tidegate:0.9.0""#),
    (
        "image.digest",
        &[r#"image.tag="0.9.0""#],
        r#""sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef""#,
        r#""image":"ghcr.io/tidegate/tidegate@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef""#,
    ),
    ("image.pullPolicy", &[], r#""Always""#, r#""imagePullPolicy":"Always""#),
    ("image.pullSecrets", &[], r#"[{"name":"pull"}]"#, r#""imagePullSecrets":[{"name":"pull"}]"#),
    (
        "agent.image.registry",
        &[r#"events.mode="direct""#],
        r#""mirror.example.com""#,
        "--skr-watcher-image-registry=mirror.example.com",
    ),
    ("agent.image.name", &[r#"events.mode="direct""#], r#""other""#, "--skr-watcher-image-name=other"),
    ("agent.image.tag", &[r#"events.mode="istio""#], r#""0.9.0""#, "--skr-watcher-image-tag=0.9.0"),
    ("namespaces", &[], r#"["team-b"]"#, r#""--namespace=kcp-system","--namespace=team-b""#),
    // Names may look like numbers.
    ("namespaces", &[], r#"["123"]"#, r#""namespace":"123""#),
    ("observe", &[], "true", r#""--observe""#),
    ("extraArgs", &[], r#"["--workers=8"]"#, r#""--workers=8""#),
    ("resources.requests.cpu", &[], r#""250m""#, r#""cpu":"250m""#),
    ("resources.requests.memory", &[], r#""200Mi""#, r#""memory":"200Mi""#),
    ("resources.limits.cpu", &[], "4", r#""cpu":4"#),
    ("resources.limits.memory", &[], r#""3Gi""#, r#""memory":"3Gi""#),
    ("podAnnotations", &[], r#"{"example.com/a":"b"}"#, r#""example.com/a":"b""#),
    ("podLabels", &[], r#"{"example.com/a":"b"}"#, r#""example.com/a":"b""#),
    ("nodeSelector", &[], r#"{"pool":"control"}"#, r#""nodeSelector":{"pool":"control"}"#),
    (
        "tolerations",
        &[],
        r#"[{"key":"control","operator":"Exists"}]"#,
        r#""tolerations":[{"key":"control","operator":"Exists"}]"#,
    ),
    (
        "affinity",
        &[],
        r#"{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone"}]}}"#,
        r#""topologyKey":"zone""#,
    ),
    ("serviceAccount.annotations", &[], r#"{"example.com/role":"git"}"#, r#""example.com/role":"git""#),
    ("maintenancePolicy.configMap", &[], r#""windows""#, r#""configMap":{"name":"windows""#),
    ("maintenancePolicy.configMap", &[], r#""123""#, r#""configMap":{"name":"123""#),
    ("state.sizeLimit", &[], r#""8Gi""#, r#""sizeLimit":"8Gi""#),
    ("persistence.enabled", &[], "true", r#""claimName":"tidegate""#),
    ("persistence.size", &["persistence.enabled=true"], r#""8Gi""#, r#""storage":"8Gi""#),
    ("persistence.storageClass", &["persistence.enabled=true"], r#""fast""#, r#""storageClassName":"fast""#),
    ("persistence.storageClass", &["persistence.enabled=true"], r#""123""#, r#""storageClassName":"123""#),
    ("events.mode", &[], r#""direct""#, r#""name":"tidegate-events""#),
    ("events.host", &[r#"events.mode="istio""#], r#""events.example.org""#, r#""hosts":["events.example.org"]"#),
    (
        "events.gatewayPrincipal",
        &[r#"events.mode="istio""#],
        r#""example.org/ns/gateways/sa/events""#,
        r#""principals":["example.org/ns/gateways/sa/events"]"#,
    ),
    (
        "events.serviceAnnotations",
        &[r#"events.mode="direct""#],
        r#"{"example.com/balancer":"public"}"#,
        r#""example.com/balancer":"public""#,
    ),
    ("hooks.enabled", &[], "true", r#""kind":"Ingress""#),
    ("hooks.host", &["hooks.enabled=true"], r#""git.example.org""#, r#""host":"git.example.org""#),
    ("hooks.host", &["hooks.enabled=true"], r#""*.example.org""#, r#""host":"*.example.org""#),
    ("hooks.className", &["hooks.enabled=true"], r#""nginx""#, r#""ingressClassName":"nginx""#),
    ("hooks.className", &["hooks.enabled=true"], r#""123""#, r#""ingressClassName":"123""#),
    ("hooks.tlsSecret", &["hooks.enabled=true"], r#""certificate""#, r#""secretName":"certificate""#),
    ("hooks.tlsSecret", &["hooks.enabled=true"], r#""456""#, r#""secretName":"456""#),
    (
        "hooks.trustedPeers",
        &["hooks.enabled=true"],
        r#"["10.1.0.0/16","10.2.0.0/16"]"#,
        r#""--hooks-trusted-peers=10.1.0.0/16","--hooks-trusted-peers=10.2.0.0/16""#,
    ),
    ("hooks.annotations", &["hooks.enabled=true"], r#"{"example.com/a":"b"}"#, r#""example.com/a":"b""#),
    ("kcpLandscapes.enabled", &[], "true", r#""--kcp-landscapes""#),
    ("networkPolicy.enabled", &[], "true", r#""kind":"NetworkPolicy""#),
    (
        "networkPolicy.metricsFrom",
        &["networkPolicy.enabled=true"],
        r#"[{"namespaceSelector":{"matchLabels":{"name":"monitoring"}}}]"#,
        r#"{"ports":[{"port":"metrics"}],"from":[{"namespaceSelector":{"matchLabels":{"name":"monitoring"}}}]}"#,
    ),
    (
        "networkPolicy.hooksFrom",
        &["networkPolicy.enabled=true"],
        r#"[{"ipBlock":{"cidr":"10.0.0.0/8"}}]"#,
        r#"{"ports":[{"port":"hooks"}],"from":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]}"#,
    ),
    ("priorityClass.create", &[], "true", r#""priorityClassName":"tidegate""#),
    ("priorityClass.name", &["priorityClass.create=true"], r#""high""#, r#""priorityClassName":"high""#),
    ("priorityClass.name", &["priorityClass.create=true"], r#""1234""#, r#""priorityClassName":"1234""#),
    ("priorityClass.value", &["priorityClass.create=true"], "500000", r#""value":500000"#),
    ("serviceMonitor.enabled", &[], "true", r#""kind":"ServiceMonitor""#),
    ("serviceMonitor.interval", &["serviceMonitor.enabled=true"], r#""15s""#, r#""interval":"15s""#),
    ("serviceMonitor.labels", &["serviceMonitor.enabled=true"], r#"{"release":"main"}"#, r#""release":"main""#),
    // Without an expected text, something goes.
    ("events.createCa", &[r#"events.mode="istio""#], "false", ""),
    ("events.createRoute", &[r#"events.mode="istio""#], "false", ""),
    ("podDisruptionBudget.enabled", &[], "false", ""),
];

fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

fn read(below: &str) -> String {
    fs::read_to_string(path(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
}

/// What `helm uninstall` deletes of a chart with its default values.
pub(crate) async fn uninstalled(chart: &str) -> Vec<Value> {
    let rendered = render(harness::helm().await, chart, "kcp-system", &[]).expect("it renders");
    rendered.into_iter().filter(|object| object["metadata"]["annotations"][KEEP] != "keep").collect()
}

/// The objects of a chart, or what Helm says against it.
fn render(helm: &Path, chart: &str, namespace: &str, args: &[String]) -> Result<Vec<Value>, String> {
    // Helm keeps files of its own below the user's folders.
    let home = tempfile::tempdir().expect("a folder");
    let output = Command::new(helm)
        .args(["template", "tidegate"])
        .arg(path(chart))
        .args(["--namespace", namespace])
        .args(args)
        .env("HELM_CACHE_HOME", home.path())
        .env("HELM_CONFIG_HOME", home.path())
        .env("HELM_DATA_HOME", home.path())
        .output()
        .expect("helm runs");
    if output.status.success() {
        Ok(deploy::documents(&String::from_utf8(output.stdout).expect("UTF-8")))
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn set(values: &[&str]) -> Vec<String> {
    values.iter().flat_map(|value| ["--set-json".to_owned(), (*value).to_owned()]).collect()
}

/// Objects by kind, namespace and name.
pub(crate) fn by_id(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let id = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}/{}", object["apiVersion"], object["kind"], metadata["namespace"], metadata["name"])
    };
    let count = objects.len();
    let by_id: BTreeMap<String, Value> = objects.into_iter().map(|object| (id(&object), object)).collect();
    assert_eq!(by_id.len(), count, "an object is there twice");
    by_id
}

/// Without the annotation that only Helm knows.
fn without_keep(mut object: Value) -> Value {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let is_empty = annotations.is_some_and(|annotations| annotations.remove(KEEP).is_some() && annotations.is_empty());
    if is_empty {
        object["metadata"].as_object_mut().expect("a mapping").remove("annotations");
    }
    object
}

/// The objects of a kustomization, with the image that it names.
pub(crate) fn kustomized(folder: &str) -> Vec<Value> {
    let image = &deploy::documents(&read("deploy/base/kustomization.yaml"))[0]["images"][0];
    let text = |field: &str| image[field].as_str().expect("a text").to_owned();
    let image = format!("{}:{}", text("newName"), text("newTag"));
    let mut objects = deploy::objects(folder);
    for container in objects.iter_mut().filter_map(|object| object.pointer_mut("/spec/template/spec/containers/0")) {
        container["image"] = json!(image);
    }
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_renders_the_objects_of_each_kustomization() {
    let helm = harness::helm().await;
    let folders = fs::read_dir(path("deploy/overlays")).expect("a folder");
    let overlays = folders.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    for overlay in overlays.map(Some).chain([None]) {
        let (folder, args) = match &overlay {
            Some(name) => {
                let values = path(&format!("{CHART}/ci/{name}-values.yaml"));
                (format!("overlays/{name}"), vec!["--values".to_owned(), values.display().to_string()])
            }
            None => ("base".to_owned(), Vec::new()),
        };
        let rendered = render(helm, CHART, "kcp-system", &args).unwrap_or_else(|error| panic!("{folder}: {error}"));
        let rendered = by_id(rendered.into_iter().map(without_keep).collect());
        let wanted = by_id(kustomized(&folder));
        assert_eq!(Vec::from_iter(rendered.keys()), Vec::from_iter(wanted.keys()), "{folder}");
        for (id, object) in &wanted {
            assert_eq!(rendered[id], *object, "{id} of {folder}");
        }
    }
    let rendered = render(helm, CHART, "kcp-system", &set(&["serviceMonitor.enabled=true"])).expect("it renders");
    let wanted = deploy::documents(&read("deploy/monitoring/service-monitor.yaml")).remove(0);
    assert!(rendered.contains(&wanted), "{wanted}");
}

/// The values of `docs/take-over.md` render the objects of the overlay of that page, with the arguments and the agent
/// of Lifecycle Manager.
#[tokio::test(flavor = "multi_thread")]
async fn the_take_over_page_with_helm_brings_the_objects_of_its_overlay() {
    let page = deploy::take_over_page();
    let values = page.split("```yaml\n").find(|part| part.trim_start().starts_with("events:")).expect("values");
    let values = values.split("```").next().expect("a block");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("values.yaml");
    fs::write(&file, values).expect("a file");
    assert!(page.contains("helm install tidegate deploy/chart -n kcp-system -f values.yaml\n"));
    let args = ["--values".to_owned(), file.display().to_string()];
    let rendered = render(harness::helm().await, CHART, "kcp-system", &args).expect("it renders");
    let mut rendered = by_id(rendered.into_iter().map(without_keep).collect());
    let image = &deploy::documents(&read("deploy/base/kustomization.yaml"))[0]["images"][0];
    let image = format!("{}:{}", image["newName"].as_str().expect("a name"), image["newTag"].as_str().expect("a tag"));
    let mut wanted = by_id(deploy::take_over_overlay());
    assert_eq!(Vec::from_iter(rendered.keys()), Vec::from_iter(wanted.keys()));
    let mut arguments = Vec::new();
    for objects in [&mut rendered, &mut wanted] {
        let deployment = objects.values_mut().find(|one| one["kind"] == "Deployment").expect("the daemon");
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["image"] = json!(image);
        let all: Vec<String> = serde_json::from_value(container["args"].take()).expect("texts");
        arguments.push(all.into_iter().collect::<BTreeSet<String>>());
    }
    assert_eq!(rendered, wanted);
    let of_helm: Vec<&String> = arguments[0].difference(&arguments[1]).collect();
    let registry = "europe-docker.pkg.dev/kyma-project/prod";
    assert_eq!(
        of_helm,
        [
            &format!("--oci-registry-host={registry}"),
            "--skr-watcher-image-name=runtime-watcher",
            &format!("--skr-watcher-image-registry={registry}"),
            "--skr-watcher-image-tag=2.1.12",
        ]
    );
    let of_overlay = arguments[1].difference(&arguments[0]);
    assert!(of_overlay.clone().all(|one| one.starts_with("--skr-watcher-image-")), "{arguments:?}");
}

/// The README of the chart repeats numbers of the page with the measurements, and the values follow from them.
#[test]
fn the_resources_of_the_chart_follow_from_the_measured_numbers() {
    let (page, readme) = (read("docs/performance.md"), read(&format!("{CHART}/README.md")));
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let number = |text: &str| text.split(' ').next().expect("a number").parse::<f64>().expect("a number");
    let mut peaks = Vec::new();
    for runtimes in ["200", "1,000"] {
        let (_, measured) = page.split_once(&format!("### {runtimes} runtimes\n")).expect("a section");
        let rows = measured.lines().skip_while(|line| !line.starts_with("| first rollout"));
        let rows: Vec<Vec<String>> = rows.take_while(|line| line.starts_with('|')).map(cells).collect();
        let titles = cells(measured.lines().find(|line| line.starts_with("| phase")).expect("titles"));
        let column = |name: &str| titles.iter().position(|title| title == name).expect("a column");
        let of = |phase: &str, name: &str| -> f64 {
            let row = rows.iter().find(|row| row[1] == phase).expect("a phase");
            number(&row[column(name)])
        };
        let peak = rows.iter().map(|row| number(&row[column("peak MiB")])).fold(0.0, f64::max);
        let row = readme.lines().find(|line| line.starts_with(&format!("| {runtimes} |"))).expect("a row");
        let row = cells(row);
        assert_eq!(number(&row[2]), peak, "{runtimes}");
        assert_eq!(number(&row[3]), of("daemon restart", "peak MiB"), "{runtimes}");
        assert!((number(&row[4]) - of("first rollout", "CPU s")).abs() < 0.5, "{runtimes}");
        peaks.push((number(&runtimes.replace(',', "")), peak));
    }
    // The estimate, and the limits that follow from it.
    let slope = (peaks[1].1 - peaks[0].1) / (peaks[1].0 - peaks[0].0);
    let needed = |runtimes: f64| (runtimes - peaks[1].0).mul_add(slope, peaks[1].1);
    assert!((slope * 1000.0 / 1024.0 - 0.4).abs() < 0.05, "1,000 more runtimes need 0.4 GiB more: {slope}");
    for sentence in [
        "1,000 more runtimes need 0.4 GiB more",
        "default limit of 1 GiB has room for 2,000 runtimes",
        "For 5,000, set `resources.limits.memory` to\n`2560Mi`",
    ] {
        assert!(readme.contains(sentence), "{sentence}");
    }
    assert!(needed(2000.0) < 1024.0 && needed(5000.0) < 2560.0);
    let values = documented();
    let value = |path: &str| values.iter().find(|value| value.path == path).expect("a value");
    assert_eq!(value("resources.limits.memory").default, "1Gi");
    assert!(value("resources.limits.memory").meaning.contains(&format!("1,000 runtimes need {} MiB", peaks[1].1)));
    // What an idle daemon needs after a restart, with room for what the first rollout of a small landscape takes.
    assert_eq!(value("resources.requests.memory").default, "128Mi");
    assert!(needed(0.0) < 128.0, "{}", needed(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_gets_no_right_to_write() {
    let helm = harness::helm().await;
    let rendered =
        with(helm, &[r#"namespaces=["team-a"]"#, "hooks.enabled=true"], "observe", "true").expect("it renders");
    let rules = deploy::rules(&rendered, "tidegate");
    assert!(!rules.is_empty() && rules.iter().all(deploy::Rule::only_reads), "{rules:#?}");
    for (others, said) in [
        (r#"events.mode="direct""#, "an observer receives no events"),
        ("kcpLandscapes.enabled=true", "an observer leaves kcp landscapes alone"),
    ] {
        let refused = with(helm, &[others], "observe", "true").expect_err("no role has rights for it");
        assert!(refused.contains(said), "{refused}");
    }
}

/// Row 69: the daemon has the rights on kcp landscapes in each of its namespaces.
#[tokio::test(flavor = "multi_thread")]
async fn kcp_landscapes_in_more_namespaces_have_the_same_rules() {
    let helm = harness::helm().await;
    let more = r#"namespaces=["team-a"]"#;
    let rules = |rendered: &[Value]| deploy::rules(rendered, "tidegate");
    let one = rules(&with(helm, &[], "kcpLandscapes.enabled", "true").expect("it renders"));
    let both = rules(&with(helm, &[more], "kcpLandscapes.enabled", "true").expect("it renders"));
    let without = rules(&with(helm, &[more], "kcpLandscapes.enabled", "false").expect("it renders"));
    let of_landscapes: Vec<&deploy::Rule> = both.difference(&without).collect();
    let there = of_landscapes.iter().filter(|rule| rule.is_in("team-a")).count();
    let here = of_landscapes.iter().filter(|rule| rule.is_in("kcp-system")).count();
    // Some of them the daemon has in `kcp-system` anyway.
    assert!(here <= there && 40 < here, "{there} and {here}");
    assert!(one.is_subset(&both));
}

/// A template of the chart of CRDs: the file of `deploy/setup`, and what keeps a CRD.
fn kept(text: &str) -> String {
    let mut kept = GENERATED.to_owned();
    let mut is_open = text.contains("\nkind: CustomResourceDefinition\n");
    for line in text.lines() {
        kept.push_str(line);
        kept.push('\n');
        if is_open && line.starts_with("  name: ") {
            is_open = false;
            kept.push_str(&format!(
                "  annotations:\n    # Deleting a CRD deletes all its objects.\n    {KEEP}: keep\n"
            ));
        }
    }
    kept
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_of_crds_is_the_setup_and_its_crds_are_kept() {
    let setup = deploy::documents(&read("deploy/setup/kustomization.yaml")).remove(0);
    let mut names = BTreeSet::new();
    for file in setup["resources"].as_array().expect("resources").iter().filter_map(Value::as_str) {
        if file != "namespace.yaml" {
            let name = file.trim_start_matches("crds/");
            harness::check_recorded(
                &path(&format!("{CRDS}/templates/{name}")),
                &kept(&read(&format!("deploy/setup/{file}"))),
            );
            names.insert(name.to_owned());
        }
    }
    let files = fs::read_dir(path(&format!("{CRDS}/templates"))).expect("a folder");
    let files: BTreeSet<String> =
        files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8")).collect();
    assert_eq!(files, names);
    let rendered = render(harness::helm().await, CRDS, "kcp-system", &[]).expect("it renders");
    for object in &rendered {
        let is_kept = object["metadata"]["annotations"][KEEP] == "keep";
        assert_eq!(is_kept, object["kind"] == "CustomResourceDefinition", "{}", object["metadata"]["name"]);
    }
    let wanted = deploy::objects("setup").into_iter().filter(|object| object["kind"] != "Namespace").collect();
    assert_eq!(by_id(rendered.into_iter().map(without_keep).collect()), by_id(wanted));
}

/// A value of `values.yaml`: its path, its default as it is written, and the comment above it.
struct Documented {
    path: String,
    default: String,
    meaning: String,
}

fn documented() -> Vec<Documented> {
    let (mut parents, mut meaning, mut all) = (Vec::<String>::new(), String::new(), Vec::new());
    // The first comment is about the file.
    for line in read(&format!("{CHART}/values.yaml")).lines().skip_while(|line| line.starts_with('#')) {
        let text = line.trim_start();
        if let Some(comment) = text.strip_prefix("# ") {
            meaning = format!("{meaning} {comment}").trim_start().to_owned();
            continue;
        }
        let (key, default) = text.split_once(':').expect("a key");
        parents.truncate((line.len() - text.len()) / 2);
        parents.push(key.to_owned());
        if !default.is_empty() {
            let (path, default) = (parents.join("."), default.trim().to_owned());
            assert!(!meaning.is_empty(), "{path} has no comment");
            all.push(Documented { path, default, meaning: std::mem::take(&mut meaning) });
        }
    }
    all
}

#[test]
fn every_value_is_in_the_readme_and_in_the_schema() {
    let values = documented();
    let readme = read(&format!("{CHART}/README.md"));
    let row = |value: &Documented| format!("| `{}` | `{}` | {} |", value.path, value.default, value.meaning);
    let wanted: Vec<String> = values.iter().map(row).collect();
    let (_, table) = readme.split_once("| value | default | meaning |\n| --- | --- | --- |\n").expect("a table");
    assert_eq!(Vec::from_iter(table.lines().take_while(|line| line.starts_with('|'))), wanted);

    let schema: Value = serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))).expect("JSON");
    let mut leaves = Vec::new();
    leaves_of(&schema, "", &mut leaves);
    let wanted: Vec<(String, String)> = values.into_iter().map(|value| (value.path, value.meaning)).collect();
    leaves.sort();
    assert_eq!(leaves, BTreeSet::from_iter(wanted).into_iter().collect::<Vec<_>>());
}

/// Paths and descriptions of all values that a schema allows.
fn leaves_of(schema: &Value, path: &str, leaves: &mut Vec<(String, String)>) {
    let Some(properties) = schema["properties"].as_object() else {
        leaves.push((path.to_owned(), schema["description"].as_str().unwrap_or_default().to_owned()));
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "unknown values below {path:?} are accepted");
    // `global` is a word of Helm: charts that contain this one set it for all.
    for (key, property) in properties.iter().filter(|(key, _)| !(path.is_empty() && *key == "global")) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        leaves_of(property, &path, leaves);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_value_of_the_chart_takes_effect() {
    let helm = harness::helm().await;
    let known: BTreeSet<String> = documented().into_iter().map(|value| value.path).collect();
    let covered: BTreeSet<String> = CASES.iter().map(|case| case.0.to_owned()).collect();
    assert_eq!(covered, known, "each value needs a case");
    for (name, others, value, expected) in CASES {
        let before = render(helm, CHART, "kcp-system", &set(others)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let after = with(helm, others, name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_ne!(before, after, "{name} changes nothing");
        let (before, after) = (Value::Array(before).to_string(), Value::Array(after).to_string());
        if expected.is_empty() {
            assert!(after.len() < before.len(), "{name} adds something");
        } else {
            assert!(!before.contains(expected) && after.contains(expected), "{name}: {expected} in {after}");
        }
    }
}

fn with(helm: &Path, others: &[&str], name: &str, value: &str) -> Result<Vec<Value>, String> {
    let own = format!("{name}={value}");
    let all: Vec<&str> = others.iter().copied().chain([own.as_str()]).collect();
    render(helm, CHART, "kcp-system", &set(&all))
}

/// A CustomResourceDefinition with the fields of a ServiceMonitor that the chart writes.
fn service_monitors() -> Value {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let endpoint =
        json!({"type": "object", "properties": {"port": {"type": "string"}, "interval": {"type": "string"}}});
    let spec = json!({"type": "object", "required": ["selector", "endpoints"], "properties": {
        "selector": {"type": "object", "properties": {"matchLabels": texts}},
        "endpoints": {"type": "array", "items": endpoint},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

/// By a dry run, which writes nothing. Unknown fields are refused.
#[tokio::test(flavor = "multi_thread")]
async fn every_value_of_the_chart_is_accepted_by_a_real_api_server() {
    let helm = harness::helm().await;
    // Where no other test deploys: a dry run merges with what is there.
    let client = harness::skr().await.client().unwrap();
    // What must be there already.
    let istio = ["gateways.networking.istio.io", "authorizationpolicies.security.istio.io"];
    harness::install_crds_from(&client, "istio-crds.yaml", &istio).await;
    harness::install_crds_from(&client, "cert-manager-crds.yaml", &[]).await;
    harness::install_own_crds(&client).await;
    harness::install_crds(&client, &[service_monitors()]).await;
    for name in ["kcp-system", "istio-system", "tidegate-certificates", "team-a", "team-b", "123"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        harness::apply(&client, &namespace).await;
    }
    let mut all = vec![("the CRDs".to_owned(), render(helm, CRDS, "kcp-system", &[]).expect("it renders"))];
    for (name, others, value, _) in CASES {
        all.push((
            (*name).to_owned(),
            with(helm, others, name, value).unwrap_or_else(|error| panic!("{name}: {error}")),
        ));
    }
    for file in fs::read_dir(path(&format!("{CHART}/ci"))).expect("a folder") {
        let file = file.expect("a file").path().display().to_string();
        let objects = render(helm, CHART, "kcp-system", &["--values".to_owned(), file.clone()]);
        all.push((file.clone(), objects.unwrap_or_else(|error| panic!("{file}: {error}"))));
    }
    // The same objects are asked about once.
    let mut asked = BTreeSet::new();
    for (name, objects) in all {
        for object in objects.into_iter().filter(|object| asked.insert(object.to_string())) {
            let answer = harness::try_dry_run(&client, &object).await;
            answer.unwrap_or_else(|error| panic!("{name}: {} {}: {error}", object["kind"], object["metadata"]["name"]));
        }
    }
    // A dry run does refuse what is invalid.
    let invalid = with(helm, &[], "nodeSelector", r#"{"a b":"c"}"#).expect("it renders");
    let invalid = invalid.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    harness::try_dry_run(&client, invalid).await.expect_err("a label has no space");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_values_and_other_namespaces_are_refused() {
    let helm = harness::helm().await;
    for (name, value) in [
        ("unknown", "1"),
        ("image.unknown", "1"),
        ("image.digest", r#""sha256:1""#),
        ("image.pullPolicy", r#""Sometimes""#),
        ("namespaces", r#"["kcp-system"]"#),
        ("namespaces", r#"["a","a"]"#),
        ("namespaces", r#"["Team"]"#),
        ("resources.limits.memory", r#""much""#),
        ("events.mode", r#""both""#),
        ("events.gatewayPrincipal", r#""spiffe://cluster.local/ns/a/sa/b""#),
        ("serviceMonitor.interval", r#""often""#),
        ("priorityClass.value", "2000000000"),
        ("hooks.enabled", r#""yes""#),
        ("hooks.host", r#""a b""#),
        ("hooks.className", r#""Nginx""#),
        ("hooks.tlsSecret", r#""""#),
        ("maintenancePolicy.configMap", r#""a b""#),
        ("persistence.storageClass", r#""-""#),
        ("priorityClass.name", r#""High""#),
        // The selector of the Deployment names it.
        ("podLabels", r#"{"app.kubernetes.io/name":"other"}"#),
        ("serviceMonitor.labels", r#"{"app.kubernetes.io/name":"other"}"#),
        ("podLabels", r#"{"a b":"c"}"#),
        ("podLabels", r#"{"a":"b c"}"#),
        ("podAnnotations", r#"{"a b":"c"}"#),
        ("serviceAccount.annotations", r#"{"a b":"c"}"#),
    ] {
        let refused = with(helm, &[], name, value).expect_err(name);
        assert!(refused.contains("schema"), "{name}: {refused}");
    }
    // The gateway needs the sidecar, and a key that is there twice is no YAML.
    let label = r#"{"sidecar.istio.io/inject":"false"}"#;
    let refused = with(helm, &[r#"events.mode="istio""#], "podLabels", label).expect_err("the chart sets it");
    assert!(refused.contains("podLabels: with events.mode istio, the chart sets sidecar.istio.io/inject"), "{refused}");
    assert!(with(helm, &[], "podLabels", label).is_ok(), "without a gateway, a user may decide");
    for (argument, expected) in [
        ("--metrics-address=0.0.0.0:9090", "extraArgs: the Service and the annotations name port 8080"),
        ("--observe", "extraArgs: an observer needs no rights to write: set observe to true"),
    ] {
        let refused = with(helm, &[], "extraArgs", &json!([argument]).to_string()).expect_err(argument);
        assert!(refused.contains(expected), "{argument}: {refused}");
    }
    let refused = render(helm, CHART, "default", &[]).expect_err("another namespace");
    assert!(refused.contains("install this chart in the namespace kcp-system"), "{refused}");
}

/// Annotations that the chart sets as well are there once, as the user has them.
#[tokio::test(flavor = "multi_thread")]
async fn annotations_of_users_override_those_of_the_chart() {
    let helm = harness::helm().await;
    let annotations = r#"{"prometheus.io/scrape":"false","example.com/a":"b"}"#;
    let rendered = with(helm, &[], "podAnnotations", annotations).expect("it renders");
    let deployment = rendered.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    let wanted = json!({"prometheus.io/scrape": "false", "prometheus.io/port": "8080", "example.com/a": "b"});
    assert_eq!(deployment["spec"]["template"]["metadata"]["annotations"], wanted);
    // A scraper that follows annotations would read what the ServiceMonitor has already.
    let rendered = with(helm, &[], "serviceMonitor.enabled", "true").expect("it renders");
    let deployment = rendered.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    assert_eq!(deployment["spec"]["template"]["metadata"]["annotations"], json!({}));
}

/// The versions of a release are one.
#[test]
fn charts_and_kustomizations_have_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for chart in [CHART, CRDS] {
        let chart = deploy::documents(&read(&format!("{chart}/Chart.yaml"))).remove(0);
        assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    }
    let base = deploy::documents(&read("deploy/base/kustomization.yaml")).remove(0);
    assert_eq!(base["images"][0]["newTag"], version);
}
