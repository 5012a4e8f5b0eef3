//! Compares what the daemon reports with what it did: an audit record for each write, Events for users, no secrets.

use std::{
    collections::BTreeMap,
    fmt, fs,
    process::{Command, Output},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    harness::{self, SOON, eventually, holds},
    stage::{self, Stage, USER, scenarios},
};

scenarios! {
    every_write_has_one_record_that_says_what_is_behind_it,
    users_see_as_events_what_concerns_them_and_see_it_once,
    what_stands_in_secrets_is_told_nowhere,
}

/// A write, as both the daemon's log and the API servers' audit logs record it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Write {
    cluster: String,
    verb: String,
    /// `plural.group namespace/name`
    object: String,
    outcome: &'static str,
}

/// An audit record in the daemon's log.
#[derive(Clone, Debug)]
struct Told {
    write: Write,
    revision: String,
    place: String,
    trigger: String,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.cluster, self.verb, self.object, self.outcome)
    }
}

/// The lines of the daemon's log, including those of earlier processes.
fn log_of(stage: &Stage) -> Vec<Value> {
    let log = fs::read_to_string(stage.log()).expect("a log");
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The writes in the daemon's log, in order, without its Lease.
fn told(stage: &Stage) -> Vec<Told> {
    let records = log_of(stage).into_iter().filter(|record| record["caller"] == "tidegate::audit");
    records
        .map(|record| {
            let field = |name: &str| record["context"][name].as_str().unwrap_or_default().to_owned();
            let (kind, key) = field("object").split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
            let (kind, group) = kind.split_once('.').unwrap_or((&kind, ""));
            let dot = if group.is_empty() { "" } else { "." };
            let verb = match field("verb").as_str() {
                "apply" | "patch" => "patch".to_owned(),
                other => other.to_owned(),
            };
            let outcome = match field("result").as_str() {
                "Created" => "created",
                "Ok" => "ok",
                _ => "refused",
            };
            let object = format!("{}s{dot}{group} {key}", kind.to_lowercase());
            Told {
                write: Write { cluster: field("cluster"), verb, object, outcome },
                revision: field("revision"),
                place: field("place"),
                trigger: field("trigger"),
            }
        })
        .filter(|told| !told.write.object.starts_with("leases."))
        .collect()
}

/// The daemon's writes in the API servers' audit logs, without its Lease.
fn written(stage: &Stage) -> Vec<Write> {
    let runtimes = stage.landscape.skrs.iter().zip(stage::KYMAS);
    let runtimes = runtimes.map(|(skr, kyma)| (format!("skr/kcp-system/{kyma}"), skr));
    let clusters = std::iter::once(("kcp".to_owned(), &stage.landscape.kcp)).chain(runtimes);
    let mut found = Vec::new();
    for (cluster, server) in clusters {
        let records = server.records();
        let ours = records.into_iter().filter(|record| record.user == USER && record.is_write());
        found.extend(ours.filter(|record| !record.resource.starts_with("leases.")).map(|record| {
            let resource = record.resource.split('/').next().unwrap_or_default();
            let key = match (resource, record.namespace.as_str()) {
                ("namespaces", _) | (_, "") => record.name.clone(),
                (_, namespace) => format!("{namespace}/{}", record.name),
            };
            let outcome = match record.code {
                201 => "created",
                200..300 => "ok",
                _ => "refused",
            };
            Write { cluster: cluster.clone(), verb: record.verb, object: format!("{resource} {key}"), outcome }
        }));
    }
    found
}

/// Writes that one log has more often than the other.
fn difference(told: &[Told], written: &[Write]) -> Vec<String> {
    let mut balance: BTreeMap<&Write, i32> = BTreeMap::new();
    for told in told {
        *balance.entry(&told.write).or_default() += 1;
    }
    for write in written {
        *balance.entry(write).or_default() -= 1;
    }
    let uneven = balance.into_iter().filter(|(_, count)| *count != 0);
    uneven.map(|(write, count)| format!("{write}: {count:+}")).collect()
}

async fn stage_with(skrs: usize, more: &[(&str, &str)]) -> Stage {
    let files = stage::files(skrs);
    let mut files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    files.extend(more.iter().map(|(path, text)| (*path, (*text).to_owned())));
    Stage::new(skrs, &files).await
}

async fn annotate_source(stage: &Stage, annotation: &str, value: &str) {
    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &source).await.expect("served");
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    api.patch("landscape", &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

/// Waits until the daemon has attempted the last commit, and returns the GitSource.
async fn looked_at(stage: &Stage) -> Value {
    let head = stage.repository.head().expect("a commit");
    stage
        .until("the commit is looked at", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(&head))
        })
        .await
}

async fn every_write_has_one_record_that_says_what_is_behind_it() {
    let stage = stage_with(1, &[]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let first = stage.repository.head().expect("a commit");
    let release = stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]);
    let second = stage.commit("modules/cache/release.yaml", &release);
    let is_bumped = |map: &Value| map["data"]["text"] == "two";
    stage.until("the bump arrives", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    stage.kyma_in("one", "Ready").await;

    // While a definition exists, each record of a write that it causes names its file and line.
    let of_definitions =
        ["kymas.", "moduletemplates.", "modulereleasemetas.", "manifests."].map(|plural| format!("{plural}operator."));
    for told in told(&stage) {
        assert!(["ok", "created"].contains(&told.write.outcome), "{told:?}");
        assert!(!told.trigger.is_empty(), "{told:?}");
        let in_runtime = told.write.cluster != "kcp";
        if in_runtime || of_definitions.iter().any(|prefix| told.write.object.starts_with(prefix)) {
            let revisions = [&first, &second];
            assert!(revisions.iter().any(|commit| told.revision == format!("main@sha1:{commit}")), "{told:?}");
            let (file, line) = told.place.split_once(':').unwrap_or_else(|| panic!("no line: {told:?}"));
            assert!(stage.repository.path().join(file).is_file() && line.starts_with(char::is_numeric), "{told:?}");
        }
    }
    let all = told(&stage);
    let last =
        |object: &str| all.iter().rfind(|told| told.write.object == object).unwrap_or_else(|| panic!("{object}"));
    let of_bump = last("configmaps kyma-system/cache-a");
    assert_eq!(of_bump.write.cluster, "skr/kcp-system/one");
    assert!(of_bump.revision.ends_with(&second), "{of_bump:?}");
    assert!(of_bump.place.starts_with("modules/cache/1.1.0/module-template.yaml:1"), "{of_bump:?}");
    let of_release = last("modulereleasemetas.operator.kyma-project.io kcp-system/cache");
    assert!(of_release.place.starts_with("modules/cache/release.yaml:1"), "{of_release:?}");
    assert!(of_release.revision.ends_with(&second) && of_release.trigger.contains("git"), "{of_release:?}");

    // The removal of everything is recorded too.
    for folder in ["modules", "kymas"] {
        stage.repository.remove(folder).expect("there");
    }
    let commit = stage.repository.commit("all of it goes").expect("a commit");
    annotate_source(&stage, "tidegate.dev/confirm-prune", &commit).await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    stage.until_gone(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await;
    looked_at(&stage).await;
    eventually("the daemon's records are the API servers'", SOON, async || {
        let uneven = difference(&told(&stage), &written(&stage));
        if uneven.is_empty() { Ok(()) } else { Err(format!("{uneven:#?}")) }
    })
    .await;
    assert!(told(&stage).len() > 50, "{}", told(&stage).len());
    assert!(told(&stage).iter().all(|told| !told.trigger.is_empty()));
}

/// An Event as `kubectl describe` shows it.
async fn events(stage: &Stage) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let ours = |event: &Event| event.reporting_controller.as_deref() == Some("tidegate.dev/tidegate");
    api.list(&ListParams::default()).await.expect("a list").items.into_iter().filter(ours).collect()
}

/// `Warning Kyma/one Reason: note`
fn line(event: &Event) -> String {
    let about = event.regarding.clone().unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (severity, reason, note) = (text(&event.type_), text(&event.reason), text(&event.note));
    format!("{severity} {}/{} {reason}: {note}", text(&about.kind), text(&about.name))
}

async fn said(stage: &Stage, start: &str, part: &str) {
    eventually(&format!("an Event says `{start}… {part}`"), SOON * 2, async || {
        let lines: Vec<String> = events(stage).await.iter().map(line).collect();
        let found = lines.iter().any(|line| line.starts_with(start) && line.contains(part));
        if found { Ok(()) } else { Err(format!("{lines:#?}")) }
    })
    .await;
}

async fn users_see_as_events_what_concerns_them_and_see_it_once() {
    let stage = stage_with(2, &[]).await;
    // Another client has created an object with the name of one that the module will bring.
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "default"}, "data": {"of": "others"}});
    harness::apply(&stage.skrs[0], &theirs).await;
    stage.start();
    for name in stage::KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    let first = stage.repository.head().expect("a commit");
    said(&stage, "Normal GitSource/landscape Applied: ", &first).await;
    said(&stage, "Normal Kyma/one RemoteInstallation: ", "created the Kyma in the runtime").await;

    stage.landscape.skrs[1].stop().await;
    stage.commit(
        "modules/mailer/2.0.0/objects/more.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs, namespace: default}\n",
    );
    said(&stage, "Warning Manifest/", "ConfigMap default/theirs exists and is not ours: managed by testbed").await;
    said(&stage, "Warning Kyma/two Unreachable: ", "cannot be reached").await;

    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer"]).replace("channel: regular", "channel: 5"));
    said(&stage, "Warning GitSource/landscape Withheld: ", "").await;
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer"]));
    stage.repository.remove("kymas/two.yaml").expect("there");
    let commit = stage.repository.commit("without the other").expect("a commit");
    said(&stage, "Warning GitSource/landscape PruneWaits: ", &commit).await;

    // Retries without a new result cause no new Events.
    let before = events(&stage).await.len();
    holds("Events do not pile up", Duration::from_secs(20), async || {
        let lines: Vec<String> = events(&stage).await.iter().map(line).collect();
        if lines.len() <= before + 2 { Ok(()) } else { Err(format!("{before} Events were {lines:#?}")) }
    })
    .await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for event in events(&stage).await {
        *counts.entry(line(&event)).or_default() += 1;
    }
    let repeated: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "{repeated:#?}");
    assert!(counts.len() < 40, "{counts:#?}");
}

/// Values in files with Secrets, each broken in another way. No output may contain them. Each value is unique, so that
/// a failure names the file.
const BROKEN: [(&str, &str); 13] = [
    (
        "broken/escape.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  token: \"pl4nt-escape\\q\"\n",
    ),
    ("broken/open.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  token: \"pl4nt-open\n"),
    (
        "broken/nested.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  token: pl4nt-nested: more\n",
    ),
    ("broken/tab.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n\ttoken: pl4nt-tab\n"),
    (
        "broken/twice.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  token: pl4nt-once\n  token: pl4nt-twice\n",
    ),
    ("broken/alias.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  token: *pl4nt-alias\n"),
    ("broken/tag.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  token: !!int pl4nt-tag\n"),
    (
        "broken/json.json",
        "{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"stringData\": {\"token\": \"pl4nt-json\" \"more\"}}\n",
    ),
    (
        "broken/beside.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {token: pl4nt-beside}\n---\napiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {name: beside, namespace: kcp-system}\nspec: {channel: regular, modules: pl4nt-type}\n",
    ),
    (
        "broken/annotation.yaml",
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata:\n  name: noted\n  namespace: kcp-system\n  annotations: {before: '{\"kind\":\"Secret\",\"stringData\":{\"token\":\"pl4nt-annotation\"}}', after: [pl4nt-list]}\nspec: {channel: regular}\n",
    ),
    (
        "broken/annotation-text.yaml",
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata:\n  name: noted-too\n  namespace: kcp-system\n  annotations: {secret: pl4nt-inline: more}\nspec: {channel: regular}\n",
    ),
    (
        "modules/leak/1.0.0/objects/secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: leak, namespace: kyma-system}\nstringData:\n  token: pl4nt-module: more\n",
    ),
    (
        "modules/leak/1.0.0/objects/shapes.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: shapes, namespace: kyma-system}\ndata: {token: 'pl4nt not base64!'}\nstringData: {token: [pl4nt-items]}\n",
    ),
];

/// Valid definitions of Secrets that the API server of a runtime rejects.
const REFUSED: &str = "apiVersion: v1
kind: Secret
metadata: {name: vault-tls, namespace: kyma-system}
type: kubernetes.io/tls
stringData: {token: pl4nt-text}
---
apiVersion: v1
kind: Secret
metadata: {name: vault-type, namespace: kyma-system}
type: kubernetes.io/dockerconfigjson
stringData: {token: pl4nt-docker}
";

/// The values that no output may contain, plain and in base64.
fn planted() -> Vec<String> {
    let texts = BROKEN.iter().map(|(_, text)| *text).chain([REFUSED]);
    let mut words = Vec::new();
    for text in texts {
        let starts = text.match_indices("pl4nt").map(|(at, _)| at);
        let word =
            |at: usize| text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect::<String>();
        words.extend(starts.map(word).filter(|word| word != "pl4nt"));
    }
    words.push("pl4nt not".to_owned());
    let encoded: Vec<String> =
        words.iter().map(|word| STANDARD.encode(word).trim_end_matches('=').to_owned()).collect();
    // The last base64 characters depend on the bytes that follow.
    words.extend(encoded.iter().map(|word| word[..word.len() - 2].to_owned()));
    words
}

#[track_caller]
fn tells_nothing(place: &str, text: &str) {
    let found: Vec<String> = planted().into_iter().filter(|word| text.contains(word)).collect();
    let lines: Vec<&str> = text.lines().filter(|line| found.iter().any(|word| line.contains(word))).collect();
    assert!(found.is_empty(), "{place} tells {found:?}: {lines:#?}");
}

fn validate(stage: &Stage, format: &str) -> Output {
    let path = stage.repository.path().to_owned();
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("validate")
        .arg(path)
        .args(["-o", format])
        .output()
        .expect("it runs")
}

async fn what_stands_in_secrets_is_told_nowhere() {
    let vault = stage::module("vault", "1.0.0", "open");
    let release = stage::release("vault", &[("regular", "1.0.0")]);
    let mut more: Vec<(&str, &str)> = vault.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    more.push(("modules/vault/release.yaml", &release));
    more.push(("modules/vault/1.0.0/objects/secrets.yaml", REFUSED));
    let kyma = stage::kyma("one", &["cache", "vault"]);
    more.push(("kymas/one.yaml", &kyma));
    let stage = stage_with(1, &more).await;
    stage.start();
    // All valid objects of the module are installed, so the daemon has sent the other ones too.
    let skr = &stage.skrs[0];
    stage.until("the rest is installed", skr, "ConfigMap", "kyma-system", "vault-a", |_| true).await;
    let refused = stage.kyma_in("one", "Error").await;
    assert!(refused["status"].to_string().contains("Secret kyma-system/vault-"), "{}", refused["status"]);

    let leak = stage::module("leak", "1.0.0", "open");
    for (path, text) in leak.iter().map(|(path, text)| (path.as_str(), text.as_str())).chain(BROKEN) {
        stage.repository.write(path, text).expect("a file");
    }
    stage
        .repository
        .write("modules/leak/release.yaml", &stage::release("leak", &[("regular", "1.0.0")]))
        .expect("a file");
    stage.repository.commit("broken in many ways").expect("a commit");
    let source = looked_at(&stage).await;
    let diagnostics = source["status"]["diagnostics"].to_string();
    for (path, _) in BROKEN {
        assert!(diagnostics.contains(path), "{path} is told of: {diagnostics}");
    }
    said(&stage, "Warning GitSource/landscape Withheld: ", "").await;

    for kind in ["GitSource", "Kyma", "Manifest"] {
        let version = if kind == "GitSource" { "tidegate.dev/v1alpha1" } else { "operator.kyma-project.io/v1beta2" };
        let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "kcp-system"}});
        let api = harness::api_of(&stage.kcp, &sample).await.expect("served");
        let all = api.list(&ListParams::default()).await.expect("a list").items;
        assert!(!all.is_empty(), "{kind}");
        for object in all {
            tells_nothing(&format!("the status of a {kind}"), &object.data["status"].to_string());
        }
    }
    let shown = stage::read(skr, "Kyma", "kyma-system", "default").await.expect("the runtime's Kyma");
    tells_nothing("the status in the runtime", &shown["status"].to_string());
    let lines: Vec<String> = events(&stage).await.iter().map(line).collect();
    tells_nothing("an Event", &lines.join("\n"));
    tells_nothing("the log", &fs::read_to_string(stage.log()).expect("a log"));
    for format in ["text", "json"] {
        let output = validate(&stage, format);
        assert_eq!(output.status.code(), Some(3));
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        for (path, _) in BROKEN {
            assert!(text.contains(path), "{path} is told of: {text}");
        }
        tells_nothing("validate", &text);
    }
}
