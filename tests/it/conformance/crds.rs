//! Our CRDs accept and refuse what the upstream ones do, and the offline check agrees with the server.
//!
//! The cases are data (`crds/*.yaml`). One [`check`], three judges: our CRDs in a real API server, our CRDs in
//! [`Schema`], and, where the upstream CRDs are at hand, those in a real API server and in [`Schema`].
//!
//! The upstream files are no part of this repository: the cases hold what they decide. They are looked for where
//! `TIDEGATE_UPSTREAM` says, and then they must be there; else beside the checkout, and then a test that finds none
//! says that it compared with nothing.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use futures::StreamExt as _;
use http::{Request, header};
use kube::Client;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tidegate_core::{
    api::{self, GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, setup},
    object::DisplayPath,
    schema::{Schema, ViolationKind},
};
use tidegate_testbed::Options;

use crate::harness::{self, SOON, eventually};

/// A file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    api_version: String,
    kind: String,
    /// An object that is accepted, without its type.
    base: Value,
    /// Values of one field.
    fields: Vec<Field>,
    /// Whole objects.
    objects: Vec<Change>,
}

/// Values of one field, good and bad.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    name: String,
    field: String,
    #[serde(default)]
    base: Value,
    accept: Vec<Value>,
    refuse: Vec<Value>,
}

/// A change to the base, and what becomes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    name: String,
    change: Value,
    /// The field that is to blame; without it the object is accepted.
    refuse: Option<String>,
    /// The `spec` that is stored.
    stored: Option<Value>,
}

/// One object and what becomes of it.
struct Case {
    name: String,
    object: Value,
    expected: Verdict,
}

/// What a judge says.
#[derive(Debug)]
enum Verdict {
    /// With what is stored as `spec`, where that is known.
    Accept(Option<Value>),
    /// With the fields to blame, and what was said.
    Refuse(Vec<String>, String),
}

/// Who says whether an object is accepted.
enum Judge {
    Server(Server),
    Offline(BTreeMap<String, Schema>),
}

/// A real API server with the CRDs under test.
struct Server {
    client: Client,
    namespace: String,
    /// Kind to its resource's name.
    plurals: BTreeMap<String, String>,
}

#[tokio::test]
async fn our_crds_decide_as_written_down() {
    let crds: Vec<Value> = api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    let client = harness::kcp().await.client().unwrap();
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, "crds").await;
    let cases = cases(&crds);
    assert!(cases.len() > 400, "only {} cases", cases.len());
    check(&cases, &Judge::Offline(schemas(&crds))).await;
    check(&cases, &Judge::Server(Server { client, namespace, plurals: plurals(&crds) })).await;
}

/// The CRDs of kcp landscapes.
fn setup_crds() -> Vec<Value> {
    setup::Kind::ALL.iter().map(|kind| serde_json::to_value(kind.crd()).unwrap()).collect()
}

#[tokio::test]
async fn the_crds_of_kcp_landscapes_decide_as_written_down() {
    let crds = setup_crds();
    let client = harness::kcp().await.client().unwrap();
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, "setup-crds").await;
    let cases = cases(&crds);
    assert!(cases.len() > 100, "only {} cases", cases.len());
    check(&cases, &Judge::Offline(schemas(&crds))).await;
    check(&cases, &Judge::Server(Server { client, namespace, plurals: plurals(&crds) })).await;
}

#[tokio::test]
async fn the_crds_of_kcp_operator_decide_likewise_where_they_are_at_hand() {
    let Some(folder) = upstream("../kcp/crds") else { return };
    let crds: Vec<Value> = yaml_files(&folder).iter().flat_map(|file| documents(file)).collect();
    assert_eq!(crds.len(), setup::Kind::ALL.len());
    let server = harness::dedicated(Options { name: "setup-crds".to_owned(), ..Options::default() }).await;
    let client = server.client().unwrap();
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, "crds").await;
    let (ours, cases): (Vec<Case>, Vec<Case>) =
        cases(&crds).into_iter().partition(|case| case.name.contains(": ours: "));
    assert!(cases.len() > 100, "only {} cases", cases.len());
    let judge = Judge::Server(Server { client, namespace, plurals: plurals(&crds) });
    check(&cases, &judge).await;
    let Judge::Server(server) = &judge else { return };
    for case in ours {
        let verdict = server.judge(&case.object).await;
        assert!(disagreement(&case, &verdict).is_some(), "{}: upstream decides alike: {verdict:?}", case.name);
    }
    eprintln!("{} cases compared with the upstream CRDs in {}", cases.len(), folder.display());
}

/// Of the upstream tests of a row, what a CRD decides: the cases that bear its name.
async fn check_row(row: &str) {
    let crds: Vec<Value> = api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    let client = harness::kcp().await.client().unwrap();
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, &row.to_lowercase()).await;
    let of_row: Vec<Case> = cases(&crds).into_iter().filter(|case| case.name.contains(&format!(": {row} "))).collect();
    let verdicts =
        |accepts: bool| of_row.iter().filter(|case| matches!(case.expected, Verdict::Accept(_)) == accepts).count();
    assert!(verdicts(true) > 0 && verdicts(false) > 0, "{row} has good and bad cases");
    check(&of_row, &Judge::Offline(schemas(&crds))).await;
    check(&of_row, &Judge::Server(Server { client, namespace, plurals: plurals(&crds) })).await;
}

#[tokio::test]
async fn i06_channels_have_a_syntax() {
    check_row("I06").await;
}

#[tokio::test]
async fn i08_versions_have_a_syntax() {
    check_row("I08").await;
}

#[tokio::test]
async fn i20_a_release_names_its_component_and_is_either_mandatory_or_has_channels() {
    check_row("I20").await;
}

#[tokio::test]
async fn i21_a_template_has_a_version_and_a_module_name() {
    check_row("I21").await;
}

#[tokio::test]
async fn the_upstream_crds_decide_likewise_where_they_are_at_hand() {
    let Some(folder) = upstream("config/crd/bases") else { return };
    let crds: Vec<Value> =
        yaml_files(&folder).iter().flat_map(|file| documents(file)).filter(|crd| kind_is_ours(&kind_of(crd))).collect();
    assert_eq!(crds.len(), 5);
    let server = harness::dedicated(Options { name: "upstream-crds".to_owned(), ..Options::default() }).await;
    let client = server.client().unwrap();
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, "crds").await;
    let cases = cases(&crds);
    assert!(cases.len() > 400, "only {} cases", cases.len());
    check(&cases, &Judge::Offline(schemas(&crds))).await;
    check(&cases, &Judge::Server(Server { client, namespace, plurals: plurals(&crds) })).await;
    eprintln!("{} cases compared with the upstream CRDs in {}", cases.len(), folder.display());
}

#[tokio::test]
async fn random_objects_are_judged_alike_offline_and_by_the_server() {
    const OBJECTS: u64 = 400;
    let crds: Vec<Value> = api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    let client = harness::kcp().await.client().unwrap();
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, "random").await;
    let cases = cases(&crds);
    let schemas = schemas(&crds);
    let server = Server { client, namespace, plurals: plurals(&crds) };
    let problems: Vec<String> = futures::stream::iter(0..OBJECTS)
        .map(|seed| {
            let (cases, schemas, server) = (&cases, &schemas, &server);
            async move {
                let mut random = Random(seed);
                let mut object = random.pick(cases).object.clone();
                // Statuses have their own endpoint, and a `ModuleReleaseMeta` has none: both are cases of their own.
                object.as_object_mut().unwrap().remove("status");
                for _ in 0..=random.below(2) {
                    random.change(&mut object);
                }
                let (offline, online) = (judge_offline(&schemas[kind(&object)], &object), server.judge(&object).await);
                agree(&offline, &online)
                    .err()
                    .map(|problem| format!("seed {seed}: {problem}: {offline:?} but {online:?}: {object}"))
            }
        })
        .buffer_unordered(8)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(problems.is_empty(), "{} of {OBJECTS}\n{}", problems.len(), problems.join("\n"));
}

/// Both accept and store the same, or both refuse and blame a field in common.
fn agree(offline: &Verdict, online: &Verdict) -> Result<(), &'static str> {
    match (offline, online) {
        (Verdict::Accept(offline), Verdict::Accept(online)) if same(offline, online) => Ok(()),
        (Verdict::Accept(_), Verdict::Accept(_)) => Err("other defaults"),
        (Verdict::Refuse(offline, _), Verdict::Refuse(online, said)) => {
            // What is refused while it is read names no field, or the fields of what should not be a mapping at all;
            // nor does a number that does not fit its format.
            let nameless = said.contains("cannot be handled as") || online.iter().any(|field| field == "<nil>");
            if nameless || offline.iter().any(|field| online.contains(field)) {
                Ok(())
            } else {
                Err("other fields to blame")
            }
        }
        // The server's own slip, see the documentation of `schema`.
        (Verdict::Refuse(_, said), Verdict::Accept(_)) if said.ends_with("link: must be a string, not a list") => {
            Ok(())
        }
        (Verdict::Accept(_), Verdict::Refuse(..)) | (Verdict::Refuse(..), Verdict::Accept(_)) => Err("other verdict"),
    }
}

/// Whether two values are equal, where `7.0` is 7: the server writes it so.
fn same(left: &Option<Value>, right: &Option<Value>) -> bool {
    fn plain(value: &Value) -> Value {
        match value {
            Value::Number(number) if number.as_f64() == Some(7.0) => json!(7),
            Value::Number(number) if number.as_f64() == Some(8080.0) => json!(8080),
            Value::Array(items) => items.iter().map(plain).collect(),
            Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
            other => other.clone(),
        }
    }
    left.as_ref().map(plain) == right.as_ref().map(plain)
}

/// Numbers that only look random: a failure is found again by its seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// One change at a random place below `spec` or `metadata`.
    fn change(&mut self, object: &mut Value) {
        let values = [
            json!(null),
            json!(true),
            json!(0),
            json!(-1),
            json!(3_000_000_000_u64),
            json!(9.5),
            json!(7.0),
            json!(""),
            json!("a"),
            json!("abc"),
            json!("1.0.0"),
            json!("A b"),
            json!("10s"),
            json!([]),
            json!([null]),
            json!(["a", "a"]),
            json!({}),
            json!({"name": "a"}),
            json!({"a": null}),
            json!({"apiVersion": "a/v1", "kind": "B"}),
        ];
        let mut pointers = Vec::new();
        for part in ["spec", "metadata"] {
            collect_pointers(&object[part], &format!("/{part}"), &mut pointers);
        }
        pointers.retain(|pointer| !pointer.starts_with("/metadata/name"));
        if pointers.is_empty() {
            return;
        }
        let pointer = self.pick(&pointers).clone();
        let action = self.below(4);
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match (action, object.pointer_mut(&pointer)) {
            (0, Some(Value::Array(items))) if !items.is_empty() => items.push(items[0].clone()),
            (1, Some(Value::Object(fields))) => {
                let key = *self.pick(&["name", "channel", "extra", "kind", "version"]);
                fields.insert(key.to_owned(), self.pick(&values).clone());
            }
            (2, _) => {
                if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
                    fields.remove(key);
                }
            }
            (_, Some(place)) => *place = self.pick(&values).clone(),
            (_, None) => {}
        }
    }
}

fn collect_pointers(value: &Value, at: &str, pointers: &mut Vec<String>) {
    pointers.push(at.to_owned());
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !key.contains(['/', '~']))
            .for_each(|(key, value)| collect_pointers(value, &format!("{at}/{key}"), pointers)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| collect_pointers(value, &format!("{at}/{index}"), pointers)),
        _ => {}
    }
}

#[tokio::test]
async fn the_upstream_samples_are_accepted_and_survive_the_types_where_they_are_at_hand() {
    let Some(folder) = upstream("") else { return };
    let schemas = schemas(&api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect::<Vec<_>>());
    let mut count = 0;
    let watchers = folder.join("../watcher/watchers");
    for file in yaml_files(&folder).into_iter().chain(yaml_files(&watchers)) {
        for object in documents(&file) {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            if object["apiVersion"] != "operator.kyma-project.io/v1beta2" || !kind_is_ours(&kind) {
                continue;
            }
            count += 1;
            let found: Vec<String> = schemas[&kind]
                .check(&object)
                .iter()
                .map(|v| format!("{}: {}", DisplayPath(&v.path), v.message))
                .collect();
            assert!(found.is_empty(), "{}: {found:?}", file.display());
            let back = read(&kind, &object).unwrap();
            assert!(covers(&back, &object), "{}: {object:#}\nbecame {back:#}", file.display());
        }
    }
    assert!(count >= 9, "only {count} samples");
    eprintln!("{count} samples of {}", folder.display());
}

#[tokio::test]
async fn a_status_is_written_through_its_subresource_only() {
    let crds: Vec<Value> = api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    let client = harness::kcp().await.client().unwrap();
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, "status").await;
    let server = Server { client, namespace, plurals: plurals(&crds) };
    let object = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "isolated"}, "spec": {"channel": "regular"}, "status": {"state": "Ready"}});
    let created = server.send("POST", &server.path(&object, ""), &object).await.unwrap();
    assert_eq!(created["status"], Value::Null);

    let patch =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"channel": "fast"}, "status": {"state": "Warning"}});
    let patched = server.send("PATCH", &server.path(&object, "/isolated/status"), &patch).await.unwrap();
    assert_eq!((&patched["spec"]["channel"], &patched["status"]["state"]), (&json!("regular"), &json!("Warning")));
    assert_eq!(patched["metadata"]["generation"], 1);

    let patched = server
        .send(
            "PATCH",
            &server.path(&object, "/isolated"),
            &json!({"spec": {"channel": "fast"}, "status": {"state": "Error"}}),
        )
        .await
        .unwrap();
    assert_eq!((&patched["spec"]["channel"], &patched["status"]["state"]), (&json!("fast"), &json!("Warning")));
    assert_eq!(patched["metadata"]["generation"], 2);
}

#[tokio::test]
async fn kubectl_sees_columns_and_short_names() {
    let crds: Vec<Value> = api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    let client = harness::kcp().await.client().unwrap();
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, "columns").await;
    for (path, names, columns) in [
        ("apis/operator.kyma-project.io/v1beta2", "kymas", "Name State Modules Watch Suspended Suspension Age"),
        ("apis/operator.kyma-project.io/v1beta2", "manifests", "Name State Module Version Channel Message Age"),
        ("apis/operator.kyma-project.io/v1beta2", "modulereleasemetas mrm", "Name Paused Suspension Age"),
        ("apis/operator.kyma-project.io/v1beta2", "moduletemplates mt", "Name Age"),
        ("apis/operator.kyma-project.io/v1beta2", "watchers", "Name State Reason Age"),
        ("apis/tidegate.dev/v1alpha1", "gitsources gs", "Name Ready Status Revision Age"),
    ] {
        let plural = names.split(' ').next().unwrap();
        let request = Request::get(format!("/{path}/namespaces/{namespace}/{plural}"))
            .header(header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())
            .unwrap();
        let table: Value = client.request(request).await.unwrap();
        let found: Vec<&str> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|column| column["name"].as_str())
            .collect();
        assert_eq!(found.join(" "), columns, "{plural}");

        let resources: Value =
            client.request(Request::get(format!("/{path}")).body(Vec::new()).unwrap()).await.unwrap();
        let resource =
            resources["resources"].as_array().unwrap().iter().find(|resource| resource["name"] == plural).unwrap();
        let short = resource["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let found: Vec<&str> = std::iter::once(plural).chain(short).collect();
        assert_eq!(found.join(" "), names);
        assert_eq!(resource["namespaced"], true);
    }
}

#[tokio::test]
async fn a_cluster_that_stored_v1beta1_takes_our_crds() {
    let crds: Vec<Value> = api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    let server = harness::dedicated(Options { name: "stored".to_owned(), ..Options::default() }).await;
    let client = server.client().unwrap();
    // An older cluster: the retired version is served and stored.
    let mut old = crds.iter().find(|crd| kind_of(crd) == "Kyma").unwrap().clone();
    for version in old["spec"]["versions"].as_array_mut().unwrap() {
        let retired = version["name"] == "v1beta1";
        version["served"] = json!(true);
        version["storage"] = json!(retired);
    }
    harness::install_crds(&client, &[old]).await;
    harness::install_crds(&client, &crds).await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kymas.operator.kyma-project.io";
    eventually("both versions are stored versions", SOON, async || {
        let crd: Value =
            client.request(Request::get(path).body(Vec::new()).unwrap()).await.map_err(|e| e.to_string())?;
        let stored = &crd["status"]["storedVersions"];
        if *stored == json!(["v1beta1", "v1beta2"]) { Ok(()) } else { Err(stored.to_string()) }
    })
    .await;
}

#[test]
fn what_the_crds_accept_the_types_can_read() {
    let mut crds: Vec<Value> = api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    crds.extend(setup_crds());
    let schemas = schemas(&crds);
    let mut problems = Vec::new();
    for case in cases(&crds) {
        let mut object = case.object.clone();
        let kind = kind(&case.object);
        // A kcp landscape's resource without `spec` is an error in git, and no type of ours reads it.
        let is_empty = object.get("spec").is_none() && setup::Kind::ALL.iter().any(|known| known.as_str() == kind);
        if is_empty || matches!(case.expected, Verdict::Refuse(..)) {
            continue;
        }
        schemas[kind].default(&mut object);
        if let Err(error) = read(kind, &object) {
            problems.push(format!("{}: {error}", case.name));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_files_to_deploy_are_what_the_program_prints() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/setup/crds");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("crds").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut expected = BTreeMap::new();
    for document in text.split("---\n").filter(|document| !document.is_empty()) {
        let crd: Value = serde_yaml::from_str(document).unwrap();
        let (group, plural) = (&crd["spec"]["group"], &crd["spec"]["names"]["plural"]);
        let name = format!("{}_{}.yaml", group.as_str().unwrap(), plural.as_str().unwrap());
        expected.insert(folder.join(name), document.to_owned());
    }
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        expected.iter().for_each(|(file, document)| fs::write(file, document).unwrap());
    }
    let found: BTreeMap<PathBuf, String> = yaml_files(&folder)
        .into_iter()
        .filter(|file| !file.ends_with("kustomization.yaml"))
        .map(|file| (file.clone(), fs::read_to_string(file).unwrap()))
        .collect();
    assert!(
        found == expected,
        "deploy/setup/crds is stale; run this test with UPDATE_EXPECTED=1 and review the change"
    );
}

#[test]
fn json_is_a_list_of_the_same_definitions() {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["crds", "-o", "json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().filter_map(|crd| crd["metadata"]["name"].as_str()).collect();
    assert!(names.is_sorted());
    assert_eq!(names.len(), api::crds().len());
}

/// The printed definitions of kcp landscapes, from YAML.
fn printed_setup_crds() -> Vec<Value> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["crds", "--kcp"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = text.split("---\n").filter(|document| !document.is_empty());
    documents.map(|document| serde_yaml::from_str(document).unwrap()).collect()
}

#[tokio::test]
async fn the_printed_definitions_of_kcp_landscapes_are_those_that_are_judged() {
    let printed = printed_setup_crds();
    let names: Vec<&str> = printed.iter().filter_map(|crd| crd["metadata"]["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "cacheservers.operator.kcp.io",
            "frontproxies.operator.kcp.io",
            "kubeconfigs.operator.kcp.io",
            "rootshards.operator.kcp.io",
            "shards.operator.kcp.io",
            "virtualworkspaces.operator.kcp.io",
        ]
    );
    // A real API server accepts them as printed, and they decide as those of the types do.
    let server = harness::dedicated(Options { name: "printed-crds".to_owned(), ..Options::default() }).await;
    let client = server.client().unwrap();
    harness::install_crds(&client, &printed).await;
    let namespace = harness::namespace(&client, "printed").await;
    let cases = cases(&setup_crds());
    check(&cases, &Judge::Offline(schemas(&printed))).await;
    check(&cases, &Judge::Server(Server { client, namespace, plurals: plurals(&printed) })).await;
}

// === the one check ===

/// Each case is judged; all that differ are shown at once.
async fn check(cases: &[Case], judge: &Judge) {
    /// Questions to the server at a time.
    const CONCURRENCY: usize = 8;
    let holders: BTreeMap<String, &Value> =
        cases.iter().map(|case| (kind(&case.object).to_owned(), &case.object)).collect();
    if let Judge::Server(server) = judge {
        for object in holders.values() {
            server.hold(object).await;
        }
    }
    let problems: Vec<String> = futures::stream::iter(cases)
        .map(|case| async move {
            let verdict = match judge {
                Judge::Server(server) => server.judge(&case.object).await,
                Judge::Offline(schemas) => judge_offline(&schemas[kind(&case.object)], &case.object),
            };
            disagreement(case, &verdict)
        })
        .buffer_unordered(CONCURRENCY)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(problems.is_empty(), "{} of {} cases\n{}", problems.len(), cases.len(), problems.join("\n"));
}

fn disagreement(case: &Case, verdict: &Verdict) -> Option<String> {
    let agree = match (&case.expected, verdict) {
        (Verdict::Accept(Some(expected)), Verdict::Accept(Some(stored))) => expected == stored,
        (Verdict::Accept(_), Verdict::Accept(_)) => true,
        (Verdict::Refuse(expected, _), Verdict::Refuse(found, _)) => found.contains(&expected[0]),
        (Verdict::Accept(_), Verdict::Refuse(..)) | (Verdict::Refuse(..), Verdict::Accept(_)) => false,
    };
    (!agree).then(|| format!("{}: expected {:?}, found {verdict:?}: {}", case.name, case.expected, case.object))
}

// === the judges ===

fn judge_offline(schema: &Schema, object: &Value) -> Verdict {
    let violations = schema.check(object);
    if violations.is_empty() {
        let mut object = object.clone();
        schema.default(&mut object);
        return Verdict::Accept(object.get("spec").cloned());
    }
    let fields = violations.iter().map(|violation| match violation.kind {
        // The server blames the whole map of labels for one of them.
        ViolationKind::Metadata => display(&violation.path[..metadata_depth(&violation.path)]),
        _ => display(&violation.path),
    });
    let said: Vec<String> = violations.iter().map(|v| format!("{}: {}", DisplayPath(&v.path), v.message)).collect();
    Verdict::Refuse(fields.collect(), said.join("; "))
}

/// The parts of a path up to the field of `metadata`.
fn metadata_depth(path: &[tidegate_core::object::PathPart]) -> usize {
    path.iter().position(|part| *part == "metadata".into()).map_or(path.len(), |at| at + 2).min(path.len())
}

/// As the server spells it: keys of maps are fields like others.
fn display(path: &[tidegate_core::object::PathPart]) -> String {
    DisplayPath(path).to_string()
}

impl Server {
    /// An accepted object of each kind, for statuses to be written to.
    async fn hold(&self, object: &Value) {
        let mut holder =
            json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {"name": "holder"}});
        holder["spec"] = base_of(kind(object))["spec"].clone();
        self.send("POST", &self.path(object, ""), &holder).await.unwrap();
    }

    async fn judge(&self, object: &Value) -> Verdict {
        // A status is reset when an object is created; what decides about it is its own endpoint.
        let has_status = object.get("status").is_some() && kind(object) != "ModuleReleaseMeta";
        let answer = if has_status {
            let patch = json!({"status": object["status"]});
            self.send(
                "PATCH",
                &format!("{}?dryRun=All&fieldValidation=Strict", self.path(object, "/holder/status")),
                &patch,
            )
            .await
        } else {
            self.send("POST", &format!("{}?dryRun=All&fieldValidation=Strict", self.path(object, "")), object).await
        };
        match answer {
            Ok(stored) => Verdict::Accept(stored.get("spec").cloned()),
            Err(kube::Error::Api(status)) => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                let mut fields: Vec<String> = causes.map(|cause| cause.field.clone()).collect();
                // Unknown fields come as one text.
                fields.extend(status.message.split('"').skip(1).step_by(2).map(str::to_owned));
                Verdict::Refuse(fields, status.message.clone())
            }
            Err(other) => panic!("the server answers: {other}"),
        }
    }

    fn path(&self, object: &Value, rest: &str) -> String {
        let version = object["apiVersion"].as_str().unwrap();
        format!("/apis/{version}/namespaces/{}/{}{rest}", self.namespace, self.plurals[kind(object)])
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(serde_json::to_vec(body).unwrap())
            .unwrap();
        self.client.request(request).await
    }
}

// === reading the cases ===

fn files() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/conformance/crds");
    yaml_files(&folder)
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).unwrap();
            serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        })
        .collect()
}

/// The cases of the kinds that `crds` define.
fn cases(crds: &[Value]) -> Vec<Case> {
    let kinds = plurals(crds);
    files().iter().filter(|file| kinds.contains_key(&file.kind)).flat_map(File::cases).collect()
}

fn base_of(kind: &str) -> Value {
    files().into_iter().find(|file| file.kind == kind).unwrap().base
}

impl File {
    fn cases(&self) -> Vec<Case> {
        let typed = json!({"apiVersion": self.api_version, "kind": self.kind});
        let base = merged(&typed, &self.base);
        let mut cases = Vec::new();
        for field in &self.fields {
            let base = merged(&base, &field.base);
            let mut push = |value: &Value, expected: Verdict| {
                let mut object = base.clone();
                put(&mut object, &field.field, value);
                cases.push(Case { name: format!("{}: {} {value}", self.kind, field.name), object, expected });
            };
            field.accept.iter().for_each(|value| push(value, Verdict::Accept(None)));
            let refuse = || Verdict::Refuse(vec![field.field.clone()], String::new());
            field.refuse.iter().for_each(|value| push(value, refuse()));
        }
        for change in &self.objects {
            let expected = match &change.refuse {
                Some(field) => Verdict::Refuse(vec![field.clone()], String::new()),
                None => Verdict::Accept(change.stored.clone()),
            };
            let object = merged(&base, &change.change);
            cases.push(Case { name: format!("{}: {}", self.kind, change.name), object, expected });
        }
        cases
    }
}

/// `change` laid over `base`: mappings are merged, null removes what is there and stays where nothing is.
fn merged(base: &Value, change: &Value) -> Value {
    let (Value::Object(base), Value::Object(change)) = (base, change) else {
        return if change.is_null() { base.clone() } else { change.clone() };
    };
    let mut result = base.clone();
    for (key, change) in change {
        match base.get(key) {
            Some(_) if change.is_null() => drop(result.shift_remove(key)),
            Some(before) => drop(result.insert(key.clone(), merged(before, change))),
            None => drop(result.insert(key.clone(), change.clone())),
        }
    }
    Value::Object(result)
}

/// Puts a value at a path such as `spec.modules[0].name`.
fn put(object: &mut Value, path: &str, value: &Value) {
    let mut place = object;
    for part in path.split('.') {
        let (key, index) = match part.split_once('[') {
            Some((key, index)) => (key, Some(index.trim_end_matches(']').parse::<usize>().unwrap())),
            None => (part, None),
        };
        place = &mut place[key];
        if let Some(index) = index {
            place = &mut place[index];
        }
    }
    *place = value.clone();
}

fn schemas(crds: &[Value]) -> BTreeMap<String, Schema> {
    let compile = |crd: &Value| Schema::from_crd(&serde_json::from_value(crd.clone()).unwrap()).unwrap();
    crds.iter().map(|crd| (kind_of(crd), compile(crd))).collect()
}

fn plurals(crds: &[Value]) -> BTreeMap<String, String> {
    crds.iter().map(|crd| (kind_of(crd), crd["spec"]["names"]["plural"].as_str().unwrap().to_owned())).collect()
}

/// The kind that a CRD defines.
fn kind_of(crd: &Value) -> String {
    crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned()
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

fn kind_is_ours(kind: &str) -> bool {
    api::crd(kind).is_some()
}

/// A folder of upstream files, which are not in this repository. `None` if it is missing and not required.
/// `TIDEGATE_UPSTREAM` requires it, and so does `CI` if there is a folder `shared` beside the checkout.
fn upstream(folder: &str) -> Option<PathBuf> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(1).take(2);
    let shared = beside.map(|parent| parent.join("shared")).find(|shared| shared.is_dir());
    let (root, required) = if is_set("TIDEGATE_UPSTREAM") {
        (std::env::var_os("TIDEGATE_UPSTREAM").map(PathBuf::from), true)
    } else {
        (shared.map(|shared| shared.join("upstream/kyma")), is_set("CI"))
    };
    let found = root.as_ref().map(|root| root.join(folder)).filter(|folder| folder.is_dir());
    match (&found, root) {
        (None, Some(root)) if required => panic!("{}: there is nothing to compare with", root.join(folder).display()),
        (None, _) => eprintln!("NOT COMPARED: no upstream files are at hand; TIDEGATE_UPSTREAM says where they are"),
        (Some(_), _) => {}
    }
    found
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn documents(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    serde_yaml::Deserializer::from_str(&text).filter_map(|document| Value::deserialize(document).ok()).collect()
}

/// Reads an object as its type and writes it again.
fn read(kind: &str, object: &Value) -> Result<Value, serde_json::Error> {
    fn through<T: Serialize + DeserializeOwned>(object: &Value) -> Result<Value, serde_json::Error> {
        serde_json::to_value(serde_json::from_value::<T>(object.clone())?)
    }
    match kind {
        "GitSource" => through::<GitSource>(object),
        "Kyma" => through::<Kyma>(object),
        "Manifest" => through::<Manifest>(object),
        "ModuleReleaseMeta" => through::<ModuleReleaseMeta>(object),
        "ModuleTemplate" => through::<ModuleTemplate>(object),
        "Watcher" => through::<Watcher>(object),
        "CacheServer" => through::<setup::CacheServer>(object),
        "RootShard" => through::<setup::RootShard>(object),
        "FrontProxy" => through::<setup::FrontProxy>(object),
        "Shard" => through::<setup::Shard>(object),
        "VirtualWorkspace" => through::<setup::VirtualWorkspace>(object),
        "Kubeconfig" => through::<setup::Kubeconfig>(object),
        other => panic!("{other} has no type"),
    }
}

/// Whether everything in `before` is in `after`: what is absent, empty or false may go, defaults may come.
fn covers(after: &Value, before: &Value) -> bool {
    match (after, before) {
        (Value::Object(after), Value::Object(before)) => {
            before.iter().all(|(key, value)| covers(after.get(key).unwrap_or(&Value::Null), value))
        }
        (Value::Array(after), Value::Array(before)) => {
            after.len() == before.len() && after.iter().zip(before).all(|(after, before)| covers(after, before))
        }
        (Value::Null, before) => {
            before.is_null()
                || *before == json!(false)
                || *before == json!([])
                || before.as_object().is_some_and(serde_json::Map::is_empty)
        }
        (after, before) => after == before,
    }
}
