#![expect(clippy::needless_pass_by_value, reason = "fixtures take `json!` on the spot")]

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::queue::{Finish, Limits, Queue as KeyedQueue};

fn queue() -> Queue {
    let limits = Limits { running_max: 100, subjects_max: 1000, interval: Duration::from_secs(300) };
    KeyedQueue::new(Subject::lane, limits)
}

/// A landscape of two runtimes: `one` with Manifest `one-keda` and an access Secret, `two` with neither; also a
/// Watcher, a ModuleTemplate, a ModuleReleaseMeta and a GitSource. Work has started and no subject waits.
fn started() -> Stores {
    let started = Stores::new(queue());
    let stores = &started;
    upsert(stores, kyma("one", json!({})));
    upsert(stores, kyma("two", json!({})));
    upsert(stores, manifest(json!({})));
    upsert(stores, object::<ModuleTemplate>("ModuleTemplate", "keda-1.0.0", template_spec(), json!({})));
    upsert(stores, object::<ModuleReleaseMeta>("ModuleReleaseMeta", "keda", json!({"moduleName": "keda"}), json!({})));
    upsert(stores, object::<Watcher>("Watcher", "watcher", watcher_spec(), json!({})));
    upsert(stores, source(json!({})));
    stores.set_access(&key("access-one"), Some(access("one", "1")));
    stores.tables().started = true;
    started
}

fn key(name: &str) -> Key {
    Key::new("kcp-system", name)
}

fn access(kyma: &str, version: &str) -> Arc<AccessSecret> {
    Arc::new(AccessSecret { kyma: key(kyma), resource_version: version.to_owned() })
}

fn upsert<K: Stored>(stores: &Stores, mut object: K) {
    let key = feed::slim(object.meta_mut());
    stores.set(&key, Some(Arc::new(object)));
}

fn remove<K: Stored>(stores: &Stores, key: &Key) {
    stores.set::<K>(key, None);
}

/// A control plane of Lifecycle Manager does not serve GitSources, and is observed before anything is installed there.
#[test]
fn an_observer_needs_no_gitsources_and_the_daemon_does() {
    let lacks = |observes: bool, table: Table| {
        let stores = started();
        if observes {
            stores.observe();
        }
        stores.set_served(table, "kcp-system", false);
        stores.definitions().known_hold("kcp-system").is_some()
    };
    assert!(!lacks(true, Table::Sources));
    assert!(lacks(false, Table::Sources));
    assert!(lacks(true, Table::Kymas));
}

#[test]
fn what_an_unreadable_object_is_replaced_with_is_said_as_it_is() {
    let stores = started();
    for (table, name, expected) in [
        (Table::Kymas, "one", "its last readable state stays in use"),
        (Table::Kymas, "unknown", "Tidegate has no readable state of it"),
        (Table::RuntimeCrds, "kymas", unreadable::MAY_STAY),
    ] {
        let metadata = ObjectMeta {
            namespace: Some("kcp-system".to_owned()),
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let object = Unreadable { metadata, problem: String::new(), names_templates: false };
        assert_eq!(
            stores.effect(&unreadable::UnreadableObject { table, object: Arc::new(object) }),
            expected,
            "{table:?} {name}"
        );
    }
}

/// An object whose JSON is overlaid with `overlay`.
fn object<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: Value, overlay: Value) -> K {
    let mut value = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": kind,
        "metadata": {"namespace": "kcp-system", "name": name, "uid": "u", "generation": 1},
        "spec": spec,
    });
    merge(&mut value, overlay);
    serde_json::from_value(value).unwrap()
}

fn merge(value: &mut Value, overlay: Value) {
    match (value, overlay) {
        (Value::Object(map), Value::Object(overlay)) => {
            for (key, overlay) in overlay {
                merge(map.entry(key).or_insert(Value::Null), overlay);
            }
        }
        (value, overlay) => *value = overlay,
    }
}

fn kyma(name: &str, overlay: Value) -> Kyma {
    object("Kyma", name, json!({"channel": "regular"}), overlay)
}

fn manifest(overlay: Value) -> Manifest {
    let mut base = json!({"metadata": {"labels": {"operator.kyma-project.io/kyma-name": "one"}}});
    merge(&mut base, overlay);
    object("Manifest", "one-keda", json!({"remote": true, "install": {"name": "raw-manifest", "source": {}}}), base)
}

fn source(overlay: Value) -> GitSource {
    let mut base = json!({"apiVersion": "tidegate.dev/v1alpha1"});
    merge(&mut base, overlay);
    object("GitSource", "landscape", json!({"url": "https://git.example.com/landscape.git"}), base)
}

fn template_spec() -> Value {
    json!({"moduleName": "keda", "version": "1.0.0", "descriptor": {}})
}

fn watcher_spec() -> Value {
    json!({
        "manager": "lifecycle-manager",
        "serviceInfo": {"name": "events", "namespace": "kcp-system", "port": 8082},
        "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
        "field": "spec",
        "gateway": {"selector": {}},
    })
}

/// A source may refer to objects that are not its own.
const SOURCE: &str = "source kcp-system/landscape changed";

fn digest(digest: &str) -> Value {
    json!({"metadata": {
        "labels": {"tidegate.dev/source": "kcp-system.landscape"},
        "annotations": {"tidegate.dev/digest": digest, "tidegate.dev/source": "kcp-system/landscape"},
    }})
}

/// Applies `edit` to a started landscape, and expects these wakes, most urgent first.
#[track_caller]
fn check(edit: impl FnOnce(&Stores), expected: &[&str]) {
    check_after(|_| {}, edit, expected);
}

#[track_caller]
fn check_after(before: impl FnOnce(&Stores), edit: impl FnOnce(&Stores), expected: &[&str]) {
    let started = started();
    let stores = &started;
    stores.tables().started = false;
    before(stores);
    stores.tables().started = true;
    edit(stores);
    stores.spread();
    let mut woken = woken(stores);
    woken.sort();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(woken, expected);
}

fn woken(stores: &Stores) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let queue = stores.0.queue.clone();
    runtime.block_on(async {
        let mut woken = Vec::new();
        while queue.depths().ready != 0 {
            let work = queue.next().await.unwrap();
            woken.push(format!("{} {}", work.subject(), work.triggers()));
            queue.finish(work, Finish::Done);
        }
        woken
    })
}

const RUNTIME: &str = "runtime kcp-system/one changed";
const RUNTIME_TWO: &str = "runtime kcp-system/two changed";

#[test]
fn a_new_kyma_wakes_its_runtime() {
    check(|stores| upsert(stores, kyma("three", json!({}))), &["runtime kcp-system/three changed"]);
}

#[test]
fn a_changed_spec_wakes_the_runtime() {
    check(|stores| upsert(stores, kyma("one", json!({"metadata": {"generation": 2}}))), &[RUNTIME]);
}

#[test]
fn tidegates_own_status_wakes_no_subject() {
    check(|stores| upsert(stores, kyma("one", json!({"status": {"state": "Ready"}}))), &[]);
    check(|stores| upsert(stores, source(json!({"status": {"appliedRevision": "main@sha1:1"}}))), &[]);
    let status = json!({"status": {"state": "Ready"}});
    check(|stores| upsert(stores, object::<Watcher>("Watcher", "watcher", watcher_spec(), status)), &[]);
}

#[test]
fn the_same_object_again_wakes_nothing() {
    check(|stores| upsert(stores, kyma("one", json!({"metadata": {"resourceVersion": "7"}}))), &[]);
}

#[test]
fn labels_annotations_and_deletion_wake_the_runtime() {
    check(|stores| upsert(stores, kyma("one", json!({"metadata": {"labels": {"a": "b"}}}))), &[RUNTIME]);
    check(|stores| upsert(stores, kyma("one", json!({"metadata": {"annotations": {"a": "b"}}}))), &[RUNTIME]);
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check(|stores| upsert(stores, kyma("one", deleting)), &[RUNTIME]);
    check(|stores| remove::<Kyma>(stores, &key("one")), &[RUNTIME]);
}

#[test]
fn a_request_by_annotation_says_so() {
    let request = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "now"}}});
    check(|stores| upsert(stores, kyma("one", request.clone())), &["runtime kcp-system/one requested"]);
    check(|stores| upsert(stores, source(request.clone())), &["source kcp-system/landscape requested"]);
    check(|stores| upsert(stores, manifest(request)), &["runtime kcp-system/one requested"]);
}

#[test]
fn what_git_changed_says_so_and_does_not_wake_its_source() {
    check(|stores| upsert(stores, kyma("one", digest("d1"))), &["runtime kcp-system/one git"]);
}

#[test]
fn what_others_change_in_a_declared_object_wakes_its_source() {
    let mut edited = digest("d1");
    merge(&mut edited, json!({"metadata": {"generation": 2}}));
    check_after(
        |stores| upsert(stores, kyma("one", digest("d1"))),
        |stores| upsert(stores, kyma("one", edited)),
        &[RUNTIME, "source kcp-system/landscape drift"],
    );
    check_after(
        |stores| upsert(stores, kyma("one", digest("d1"))),
        |stores| remove::<Kyma>(stores, &key("one")),
        &["runtime kcp-system/one git", "source kcp-system/landscape drift"],
    );
}

#[test]
fn the_state_of_a_manifest_wakes_its_runtime_and_its_inventory_does_not() {
    check(|stores| upsert(stores, manifest(json!({"status": {"state": "Ready"}}))), &[RUNTIME]);
    let inventory = json!({"status": {"state": "Ready", "synced": [
        {"group": "", "version": "v1", "kind": "ConfigMap", "name": "a", "namespace": "b"}
    ]}});
    check_after(
        |stores| upsert(stores, manifest(json!({"status": {"state": "Ready"}}))),
        |stores| upsert(stores, manifest(inventory)),
        &[],
    );
}

#[test]
fn a_manifests_spec_wakes_its_runtime() {
    check(|stores| upsert(stores, manifest(json!({"metadata": {"generation": 2}}))), &[RUNTIME]);
    check(|stores| remove::<Manifest>(stores, &key("one-keda")), &[RUNTIME]);
}

#[test]
fn a_catalog_wakes_every_runtime_of_its_namespace_once() {
    let template = |version: &str| {
        object::<ModuleTemplate>("ModuleTemplate", &format!("keda-{version}"), template_spec(), json!({}))
    };
    check(
        |stores| {
            upsert(stores, kyma("three", json!({"metadata": {"namespace": "elsewhere"}})));
            upsert(stores, template("1.1.0"));
            upsert(stores, template("1.2.0"));
        },
        &["runtime elsewhere/three changed", RUNTIME, RUNTIME_TWO, SOURCE],
    );
    check(|stores| remove::<ModuleReleaseMeta>(stores, &key("keda")), &[RUNTIME, RUNTIME_TWO, SOURCE]);
}

/// #70: its finalizer comes with the first look, and goes with the last Manifest.
#[test]
fn a_mandatory_release_is_woken_by_its_own_changes_and_by_the_end_of_its_manifests() {
    const RELEASE: &str = "release kcp-system/keda changed";
    let mandatory = |overlay: Value| {
        let spec = json!({"moduleName": "keda", "mandatory": {"version": "1.0.0"}});
        object::<ModuleReleaseMeta>("ModuleReleaseMeta", "keda", spec, overlay)
    };
    let labels = |value: &str| {
        json!({"metadata": {"labels": {
            "operator.kyma-project.io/module-name": "keda", "operator.kyma-project.io/mandatory-module": value,
        }}})
    };
    let all = [RUNTIME, RUNTIME_TWO, SOURCE, RELEASE];
    let changed = || mandatory(json!({"metadata": {"generation": 2}}));
    check(|stores| upsert(stores, changed()), &all);
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check_after(|stores| upsert(stores, changed()), |stores| upsert(stores, mandatory(going)), &all);

    let present = |stores: &Stores| {
        upsert(stores, mandatory(json!({})));
        upsert(stores, manifest(labels("true")));
    };
    check_after(present, |stores| remove::<Manifest>(stores, &key("one-keda")), &[RUNTIME, RELEASE]);
    check_after(present, |stores| upsert(stores, manifest(json!({}))), &[RUNTIME, RELEASE]);
    let selected = |stores: &Stores| {
        upsert(stores, mandatory(json!({})));
        upsert(stores, manifest(labels("false")));
    };
    check_after(selected, |stores| remove::<Manifest>(stores, &key("one-keda")), &[RUNTIME]);
}

#[test]
fn a_source_that_awaits_the_end_of_a_version_is_woken_by_the_last_runtime_that_has_it() {
    let of = |name: &str, version: &str| {
        let manifest = manifest(json!({
            "metadata": {
                "name": name, "generation": if version == "1.0.0" { 1 } else { 2 },
                "labels": {"operator.kyma-project.io/module-name": "keda"},
            },
            "spec": {"version": version},
        }));
        assert_eq!(template_of(&manifest), Some(key(&format!("keda-{version}"))));
        manifest
    };
    let set = |stores: &Stores, names: &[&str]| {
        names.iter().for_each(|name| upsert(stores, of(name, "1.0.0")));
    };
    let await_it = |stores: &Stores| stores.set_awaited(&key("landscape"), [key("keda-1.0.0")].into());
    let both = |stores: &Stores| {
        set(stores, &["one-keda", "two-keda"]);
        assert!(!await_it(stores));
    };
    let last = |stores: &Stores| {
        set(stores, &["one-keda"]);
        assert!(!await_it(stores));
    };
    check_after(both, |stores| remove::<Manifest>(stores, &key("one-keda")), &[RUNTIME]);
    check_after(last, |stores| remove::<Manifest>(stores, &key("one-keda")), &[RUNTIME, SOURCE]);
    check_after(last, |stores| upsert(stores, of("one-keda", "1.1.0")), &[RUNTIME, SOURCE]);
    let no_longer = |stores: &Stores| {
        last(stores);
        assert!(!stores.set_awaited(&key("landscape"), BTreeSet::new()));
    };
    check_after(no_longer, |stores| remove::<Manifest>(stores, &key("one-keda")), &[RUNTIME]);
    assert!(await_it(&started()), "the last one has gone before the source began to wait");
}

#[test]
fn a_catalog_wakes_the_sources_that_may_refer_to_it_but_not_its_own() {
    check(
        |stores| {
            let mut template: ModuleTemplate = object("ModuleTemplate", "keda-1.1.0", template_spec(), digest("a"));
            upsert(stores, template.clone());
            template.metadata.annotations.get_or_insert_default().insert("tidegate.dev/digest".into(), "b".into());
            upsert(stores, template);
        },
        &["runtime kcp-system/one git", "runtime kcp-system/two git"],
    );
}

#[test]
fn a_watcher_wakes_itself_and_every_runtime() {
    check(
        |stores| remove::<Watcher>(stores, &key("watcher")),
        &["watcher kcp-system/watcher changed", RUNTIME, RUNTIME_TWO],
    );
}

#[test]
fn an_access_secret_wakes_the_runtime() {
    check(|stores| stores.set_access(&key("access-one"), Some(access("one", "1"))), &[]);
    check(|stores| stores.set_access(&key("access-one"), Some(access("one", "2"))), &[RUNTIME]);
    check(|stores| stores.set_access(&key("access-one"), None), &[RUNTIME]);
    check(|stores| stores.set_access(&key("access-one"), Some(access("two", "2"))), &[RUNTIME, RUNTIME_TWO]);
}

#[test]
fn a_gateway_wakes_watchers_and_runtimes_and_the_ca_the_runtimes() {
    let gateway = Gateway::new(key("klm-watcher"), &json!({"servers": [{"hosts": ["listener.example.com"]}]}));
    let entry = GatewayEntry { gateway, labels: BTreeMap::new() };
    check(
        |stores| stores.set_gateway(&key("klm-watcher"), Some(Arc::new(entry))),
        &[RUNTIME, RUNTIME_TWO, "watcher kcp-system/watcher changed"],
    );
    check(|stores| stores.set_gateway_secret(Some(gateway_secret())), &[RUNTIME, RUNTIME_TWO]);
}

#[test]
fn the_gateway_is_woken_by_all_that_concerns_it() {
    const GATEWAY: &str = "gateway istio-system/klm-istio-gateway changed";
    let looked_after = || {
        let stores = started();
        stores.look_after(Key::new("istio-system", "klm-istio-gateway"));
        stores
    };
    let stores = looked_after();
    stores.set_authority(Some("1".to_owned()));
    assert_eq!(woken(&stores), [GATEWAY]);
    stores.set_authority(Some("1".to_owned()));
    assert!(woken(&stores).is_empty());
    stores.set_authority(None);
    assert_eq!(woken(&stores), [GATEWAY]);

    let stores = looked_after();
    stores.set_gateway_secret(Some(gateway_secret()));
    assert_eq!(woken(&stores), [GATEWAY, RUNTIME, RUNTIME_TWO]);
    // A new served certificate affects no runtime; a new time does, because it makes certificates due for renewal.
    let secret = secret::GatewaySecret { certificate: Arc::from(*b"new"), ..GatewaySecret::clone(&gateway_secret()) };
    stores.set_gateway_secret(Some(Arc::new(secret.clone())));
    assert_eq!(woken(&stores), [GATEWAY]);
    stores.set_gateway_secret(Some(Arc::new(secret::GatewaySecret { bundled_at: Some("now".to_owned()), ..secret })));
    assert_eq!(woken(&stores), [GATEWAY, RUNTIME, RUNTIME_TWO]);
}

#[test]
fn a_certificate_wakes_its_runtime_alone() {
    let secret = |kyma: Option<&str>, version: &str| {
        Some(Arc::new(LeafSecret {
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
            created: None,
            is_deleting: false,
            kyma: kyma.map(str::to_owned),
            issued_at: None,
            not_after: None,
            issued_for: None,
        }))
    };
    let stores = started();
    stores.set_certificate_secret("one-webhook-tls", secret(Some("kcp-system/one"), "1"));
    assert_eq!(woken(&stores), [RUNTIME]);
    stores.set_certificate_secret("one-webhook-tls", secret(Some("kcp-system/one"), "1"));
    assert!(woken(&stores).is_empty());
    // A Secret without the annotation was created by Lifecycle Manager.
    stores.set_certificate_secret("two-webhook-tls", secret(None, "1"));
    assert_eq!(woken(&stores), [RUNTIME_TWO]);
    stores.set_certificate_secret("one-webhook-tls", None);
    assert_eq!(woken(&stores), [RUNTIME]);
    stores.set_certificate_secret("other", secret(None, "1"));
    assert!(woken(&stores).is_empty());
}

#[test]
fn a_virtual_service_wakes_the_watcher_of_its_name() {
    check(|stores| stores.virtual_service_changed(&key("watcher")), &["watcher kcp-system/watcher drift"]);
    check(|stores| stores.virtual_service_changed(&key("shop")), &[]);
}

#[test]
fn what_concerns_all_runtimes_wakes_so_many_at_a_time_in_the_order_of_their_names() {
    let stores = started();
    for index in 0..2 * SPREAD_AT_ONCE {
        upsert(&stores, kyma(&format!("runtime-{index:03}"), json!({})));
    }
    woken(&stores);
    upsert(&stores, object::<Watcher>("Watcher", "watcher", watcher_spec(), json!({"metadata": {"generation": 2}})));
    let depths = stores.0.queue.depths();
    assert_eq!(depths.delayed, 2 + SPREAD_AT_ONCE, "those that do not come at once come later");
    let at_once = woken(&stores);
    assert_eq!(at_once.len(), SPREAD_AT_ONCE + 1, "and the Watcher itself");
    assert_eq!(at_once[1], RUNTIME);
    assert_eq!(at_once[SPREAD_AT_ONCE], format!("runtime kcp-system/runtime-{:03} changed", SPREAD_AT_ONCE - 2));
}

#[test]
fn nothing_is_woken_before_the_start_and_everything_at_the_start() {
    let started = started();
    let stores = &started;
    stores.tables().started = false;
    upsert(stores, kyma("one", json!({"metadata": {"generation": 2}})));
    assert_eq!(woken(stores), Vec::<String>::new());
    stores.start();
    let depths = stores.0.queue.depths();
    assert_eq!(depths.ready + depths.delayed, 4, "source, watcher and two runtimes");
}

#[test]
fn what_has_not_been_listed_is_named() {
    let stores = &started();
    stores.expect(Table::Kymas, "kcp-system");
    stores.expect(Table::Access, "kcp-system");
    stores.listed(Table::Kymas, "kcp-system");
    assert_eq!(stores.missing(), ["access Secrets in kcp-system"]);
    stores.listed(Table::Access, "kcp-system");
    assert_eq!(stores.missing(), Vec::<String>::new());
}

#[test]
fn what_may_not_be_listed_is_named_with_the_missing_right() {
    let stores = &started();
    stores.expect(Table::Kymas, "kcp-system");
    stores.expect(Table::Authority, "istio-system");
    stores.set_denied(Table::Authority, "istio-system", "user a cannot list secrets");
    assert!(!stores.is_denied(), "a table is left that may be listed");
    let denied = "the CA's Secret in istio-system: user a cannot list secrets";
    assert_eq!(stores.not_listed(), ["Kymas in kcp-system: not listed yet", denied]);
    stores.listed(Table::Kymas, "kcp-system");
    assert!(stores.is_denied());
    assert_eq!(stores.not_listed(), [denied]);
    stores.listed(Table::Authority, "istio-system");
    assert!(!stores.is_denied(), "the right was given meanwhile");
    assert_eq!(stores.not_listed(), Vec::<String>::new());

    // Objects of the whole cluster.
    stores.expect(Table::RuntimeCrds, "");
    assert_eq!(stores.missing(), ["the CustomResourceDefinitions of runtimes"]);
    stores.set_denied(Table::RuntimeCrds, "", "user a may not");
    assert_eq!(stores.not_listed(), ["the CustomResourceDefinitions of runtimes: user a may not"]);
}

#[test]
fn access_is_one_secret_or_an_explanation() {
    let stores = &started();
    let one = Access::One { secret: key("access-one"), resource_version: "1".to_owned() };
    assert_eq!(stores.access(&key("one")), one);
    assert_eq!(stores.access(&key("two")), Access::Missing);
    stores.set_access(&key("another"), Some(access("one", "9")));
    assert_eq!(stores.access(&key("one")), Access::Ambiguous(vec!["access-one".to_owned(), "another".to_owned()]));
    stores.set_access(&key("access-one"), None);
    assert_eq!(stores.access(&key("one")), Access::One { secret: key("another"), resource_version: "9".to_owned() });
}

#[test]
fn a_manifest_moves_with_its_label() {
    let stores = &started();
    assert_eq!(stores.manifests_of(&key("one")).len(), 1);
    let moved = json!({"metadata": {"labels": {"operator.kyma-project.io/kyma-name": "two"}}});
    upsert(stores, manifest(moved));
    assert_eq!((stores.manifests_of(&key("one")).len(), stores.manifests_of(&key("two")).len()), (0, 1));
}

#[test]
fn bookkeeping_is_not_kept() {
    let stores = &started();
    upsert(
        stores,
        kyma(
            "one",
            json!({"metadata": {
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"},
            }}),
        ),
    );
    let kept = stores.kyma(&key("one")).unwrap();
    assert_eq!(kept.metadata.managed_fields, None);
    assert_eq!(kept.metadata.annotations.as_ref().unwrap().keys().collect::<Vec<_>>(), ["kept"]);
}

#[test]
fn a_source_of_the_command_line_keeps_its_status_here() {
    let stores = &started();
    let local = key("local");
    stores.add_local_source(source(json!({"metadata": {"name": "local"}})));
    let status = GitSourceStatus { applied_revision: Some("worktree".to_owned()), ..GitSourceStatus::default() };
    stores.set_local_status(&local, status);
    let found = stores.source(&local).unwrap();
    assert_eq!(found.origin, Origin::CommandLine);
    assert_eq!(found.object.status.as_ref().unwrap().applied_revision.as_deref(), Some("worktree"));
    let origins: Vec<Origin> = stores.sources().iter().map(|source| source.origin).collect();
    assert_eq!(origins, [Origin::ControlPlane, Origin::CommandLine]);
}

fn gateway_secret() -> Arc<secret::GatewaySecret> {
    Arc::new(secret::GatewaySecret {
        resource_version: "1".to_owned(),
        bundled_at: None,
        bundle: Some(Arc::from(*b"pem")),
        certificate: Arc::from([]),
        key: Arc::from([]),
    })
}

#[test]
fn kcp_landscapes_are_applied_only_if_all_of_their_kinds_are_served_and_a_change_wakes_the_sources() {
    let stores = started();
    assert_eq!(stores.kcp_landscapes(), KcpLandscapes::Off);
    assert!(stores.applied_kinds(false).into_iter().all(|kind| Kind::OF_KYMA.contains(&kind)));
    stores.watch_setup();
    assert_eq!(stores.kcp_landscapes(), KcpLandscapes::Applied);
    assert_eq!(stores.applied_kinds(false), Kind::ALL);
    assert!(stores.applied_kinds(true).into_iter().all(|kind| Kind::OF_KYMA.contains(&kind)));
    let wakes = change::wakes(&Change::SetupServed, &stores.tables());
    assert_eq!(wakes, [Wake::Subject(Subject::Source(key("landscape")), Trigger::Changed)]);
    stores.set_served(Table::Setup(setup::Kind::Shard), "kcp-system", false);
    assert_eq!(stores.kcp_landscapes(), KcpLandscapes::NotServed(setup::Kind::Shard));
    assert!(!stores.applied_kinds(false).contains(&Kind::Setup(setup::Kind::Shard)));
    stores.set_served(Table::Setup(setup::Kind::Shard), "kcp-system", true);
    assert_eq!(stores.kcp_landscapes(), KcpLandscapes::Applied);
}

#[test]
fn the_version_of_kcp_landscapes_grows_with_definitions_and_not_with_statuses() {
    let stores = started();
    let set = |change: fn(&mut Value)| {
        let mut cache = json!({
            "apiVersion": "operator.kcp.io/v1alpha1", "kind": "CacheServer",
            "spec": {"certificates": {"issuerRef": {"name": "any"}}},
            "metadata": {"namespace": "kcp-system", "name": "cache", "resourceVersion": "1"},
        });
        change(&mut cache);
        upsert::<setup::CacheServer>(&stores, serde_json::from_value(cache).unwrap());
        stores.setup_with_version().1
    };
    let first = set(|_| ());
    assert!(0 < first);
    let noted = |cache: &mut Value| cache["metadata"]["annotations"] = json!({"tidegate.dev/status": "{}"});
    assert_eq!(set(|cache| cache["metadata"]["resourceVersion"] = "2".into()), first);
    assert_eq!(set(noted), first, "its status is an annotation");
    let changed = set(|cache| cache["spec"]["image"] = json!({"tag": "v1"}));
    assert!(first < changed);
    let asked = set(|cache| cache["metadata"]["annotations"] = json!({"tidegate.dev/adopt": "true"}));
    assert!(changed < asked);
    remove::<setup::CacheServer>(&stores, &key("cache"));
    assert!(asked < stores.setup_with_version().1);
}

#[test]
fn a_source_is_woken_when_others_change_its_kcp_landscape_and_not_by_its_own_apply() {
    let stores = started();
    let metadata = |digest: &str, generation: i64| {
        let metadata = json!({
            "namespace": "kcp-system", "name": "main", "generation": generation,
            "labels": {"tidegate.dev/source": "kcp-system.landscape"},
            "annotations": {"tidegate.dev/source": "kcp-system/landscape", "tidegate.dev/digest": digest},
        });
        Arc::new(serde_json::from_value::<ObjectMeta>(metadata).unwrap())
    };
    let wakes = |before, after| {
        let edit = Edit { key: key("main"), before: Some(before), after };
        let wakes = change::wakes(&Change::Setup(edit), &stores.tables());
        wakes.contains(&Wake::Subject(Subject::Source(key("landscape")), Trigger::Drift))
    };
    assert!(wakes(metadata("a", 1), Some(metadata("a", 2))), "a user changed it");
    assert!(wakes(metadata("a", 1), None), "a user deleted it");
    assert!(!wakes(metadata("a", 1), Some(metadata("b", 2))), "the source changed it");
    assert!(!wakes(metadata("a", 1), Some(metadata("a", 1))), "only its status changed");
    let with = |change: &dyn Fn(&mut ObjectMeta)| {
        let mut metadata = ObjectMeta::clone(&metadata("b", 2));
        change(&mut metadata);
        Some(Arc::new(metadata))
    };
    let bare = with(&|metadata| (metadata.labels, metadata.annotations) = (None, None));
    assert!(wakes(metadata("a", 1), bare), "a user replaced it by another");
    assert!(wakes(metadata("a", 1), with(&|metadata| metadata.uid = Some("other".to_owned()))), "it was made again");
}

#[test]
fn a_resource_that_leaves_a_cluster_wakes_the_others_there_and_not_itself() {
    let cache = |stores: &Stores, name: &str, cluster: &str| {
        let cache = json!({
            "apiVersion": "operator.kcp.io/v1alpha1", "kind": "CacheServer",
            "spec": {"certificates": {"issuerRef": {"name": "any"}}},
            "metadata": {"namespace": "kcp-system", "name": name, "annotations": {"tidegate.dev/cluster": cluster}},
        });
        upsert::<setup::CacheServer>(stores, serde_json::from_value(cache).unwrap());
    };
    check_after(
        |stores| {
            cache(stores, "one", "eu");
            cache(stores, "two", "eu");
            cache(stores, "three", "us");
        },
        |stores| stores.wake_placed(&key("eu"), &(setup::Kind::CacheServer, key("one"))),
        &["CacheServer kcp-system/two changed"],
    );
}
