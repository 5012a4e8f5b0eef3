use serde_json::json;

use super::*;
use crate::{
    api::Manifest,
    definition::{Cache, Kind, Options, read},
    diagnostic::Diagnostics,
    object::Digest,
    revision::Revision,
    snapshot::{Content, File, Snapshot},
};

const KYMA: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: Kyma
metadata: {name: a, namespace: kcp-system}
spec: {channel: regular}
";

fn kyma() -> std::sync::Arc<Definition> {
    declared(KYMA)
}

fn declared(text: &str) -> std::sync::Arc<Definition> {
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    let id = Digest::of_bytes(text.as_bytes()).to_string()[..40].parse().unwrap();
    snapshot.files.insert("a.yaml".into(), File { id, content: Content::Text(text.as_bytes().into()) });
    let read = read(&mut Diagnostics::default(), &snapshot, &Options::default(), &mut Cache::default());
    read.good.get(&(Kind::Kyma, Key::new("kcp-system", "a"))).unwrap_or_else(|| panic!("{:?}", read.withheld)).clone()
}

fn source() -> SourceName {
    SourceName::new(Key::new("kcp-system", "landscape"))
}

fn standing(live: &Value) -> Standing {
    Standing::of(&kyma(), Some(live), &source())
}

/// The Kyma as it is in the control plane of Lifecycle Manager.
fn live() -> Value {
    let mut live = kyma().object.value().clone();
    live["metadata"]["finalizers"] = json!([names::finalizer::KYMA]);
    live["metadata"]["managedFields"] = json!([{"manager": "KEB"}, {"manager": "lifecycle-manager"}]);
    live["spec"]["modules"] = json!([]);
    live
}

#[test]
fn a_definition_stands_as_the_object_in_the_control_plane_says() {
    assert_eq!(Standing::of(&kyma(), None, &source()), Standing::Absent);
    assert_eq!(standing(&live()), Standing::Equal);
    let with = |pointer: &str, value: Value| {
        let mut live = live();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        live.pointer_mut(parent).unwrap()[field] = value;
        standing(&live)
    };
    assert_eq!(with("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into()), Standing::Terminating);
    assert_eq!(with("/spec/channel", "fast".into()), Standing::Differs("spec.channel".to_owned()));
    assert_eq!(with("/spec", Value::Null), Standing::Differs("spec".to_owned()));
    let label = names::label::SOURCE;
    assert_eq!(with("/metadata/labels", json!({label: "kcp-system.landscape"})), Standing::Owned);
    assert_eq!(with("/metadata/labels", json!({label: "kcp-system.b"})), Standing::OfSource("kcp-system.b".to_owned()));
    let flux = json!({"kustomize.toolkit.fluxcd.io/name": "a", "kustomize.toolkit.fluxcd.io/namespace": "flux"});
    assert_eq!(with("/metadata/labels", flux), Standing::OfTool(OtherTool::Kustomization(Key::new("flux", "a"))));
}

#[test]
fn that_the_runtime_decides_on_modules_is_no_difference() {
    let annotation = names::annotation::MODULES_FROM;
    let says = |who: &str| {
        declared(&KYMA.replace("kcp-system}", &format!("kcp-system, annotations: {{{annotation}: {who}}}}}")))
    };
    let standing = |definition: &Definition| Standing::of(definition, Some(&live()), &source());
    assert_eq!(standing(&says("runtime")), Standing::Equal);
    let path = "metadata.annotations.tidegate.dev/modules-from";
    assert_eq!(standing(&says("git")), Standing::Differs(path.to_owned()));
    let id = (Kind::Kyma, Key::new("kcp-system", "a"));
    assert_eq!(
        lines(&definitions(&[(id, standing(&says("git")))], &BTreeMap::new())),
        ["Blocks: Kyma kcp-system/a differs from git in `metadata.annotations.tidegate.dev/modules-from`; check \
             which is right, because `adopt release` removes this annotation as well; if git is right, annotate the \
             definition with `tidegate.dev/adopt: \"true\"`"]
    );
}

#[test]
fn what_a_release_removed_is_git_s_and_blocks_nothing() {
    let path = names::annotation::MODULE_PATH;
    let annotated = |annotation: &str| {
        let mut definition = Definition::clone(&kyma());
        definition.object.set_annotation(annotation, "modules/a");
        definition.module = Some(crate::definition::ModuleSource { path: "modules/a".to_owned(), tree: tree('a') });
        definition
    };
    let same = BTreeSet::from([Some(tree('a'))]);
    let differs = |field: &str| Standing::Differs(format!("metadata.annotations.{field}"));
    for (annotation, trees, expected) in [
        ("tidegate.dev/prune", BTreeSet::new(), Standing::Returned(vec!["tidegate.dev/prune".to_owned()])),
        (path, same.clone(), Standing::Returned(vec![path.to_owned()])),
        (path, BTreeSet::new(), Standing::Returned(vec![path.to_owned()])),
        // Runtimes would get other objects.
        (path, BTreeSet::from([None]), differs(path)),
        (path, BTreeSet::from([Some(tree('a')), Some(tree('b'))]), differs(path)),
        // No release removes it.
        ("example.org/a", same.clone(), differs("example.org/a")),
        ("tidegate.dev/modules-from", same, differs("tidegate.dev/modules-from")),
    ] {
        let definition = annotated(annotation);
        let found = Standing::of(&definition, Some(&live()), &source()).after_release(&definition, &live(), &trees);
        assert_eq!(found, expected, "{annotation} {trees:?}");
    }
    let definition = annotated(path);
    let mut other = live();
    other["spec"]["channel"] = "fast".into();
    let found = Standing::of(&definition, Some(&other), &source());
    assert_eq!(found.clone().after_release(&definition, &other, &BTreeSet::new()), found, "more than that differs");

    let id = |name: &str| (Kind::ModuleTemplate, Key::new("kcp-system", name));
    let lost = || Standing::Returned(vec![path.to_owned()]);
    assert!(lost().is_marked_by_take());
    let found = definitions(&[(id("a"), lost()), (id("b"), lost())], &BTreeMap::new());
    assert_eq!(
        lines(&found),
        ["Todo: 2 definitions in git say more than the control plane only in annotations that `adopt release` \
             removes (tidegate.dev/module-path); git is right, and the control plane gets them with the ownership \
             label: ModuleTemplate kcp-system/a, ModuleTemplate kcp-system/b"]
    );
    assert!(may_begin(&found));
}

fn tree(digit: char) -> Oid {
    digit.to_string().repeat(40).parse().unwrap()
}

#[test]
fn a_definition_that_says_that_git_is_right_blocks_nothing() {
    let adopting = |text: &str| {
        let annotated = format!("kcp-system, annotations: {{{}: \"true\"}}}}", names::annotation::ADOPT);
        declared(&text.replace("kcp-system}", &annotated))
    };
    let standing = |live: &Value| Standing::of(&adopting(KYMA), Some(live), &source());
    assert_eq!(standing(&live()), Standing::Equal);
    let mut other = live();
    other["spec"]["channel"] = "fast".into();
    assert_eq!(standing(&other), Standing::Replaced("spec.channel".to_owned()));
    let id = (Kind::Kyma, Key::new("kcp-system", "a"));
    assert_eq!(
        lines(&definitions(&[(id, standing(&other))], &BTreeMap::new())),
        ["Note: Kyma kcp-system/a differs from git in `spec.channel`, and becomes what git says"]
    );
}

pub(super) fn lines(findings: &[Finding]) -> Vec<String> {
    let line = |finding: &Finding| {
        let next = finding.next.as_deref().map(|next| format!("; {next}")).unwrap_or_default();
        format!("{:?}: {}{next}", finding.level, finding.message)
    };
    findings.iter().map(line).collect()
}

#[test]
fn only_what_a_user_must_decide_blocks() {
    let id = |name: &str| (Kind::Kyma, Key::new("kcp-system", name));
    let standings = [
        (id("a"), Standing::Equal),
        (id("b"), Standing::Equal),
        (id("c"), Standing::Absent),
        (id("d"), Standing::Differs("spec.channel".to_owned())),
    ];
    let keys = |count: usize| (1..=count).map(|index| Key::new("kcp-system", &format!("k{index:02}"))).collect();
    let undeclared = BTreeMap::from([
        ((Kind::Kyma, Undeclared::Other), keys(2)),
        ((Kind::Kyma, Undeclared::Goes), keys(1)),
        ((Kind::Kyma, Undeclared::Kept(Keeper::PruneOff)), keys(2)),
        ((Kind::Watcher, Undeclared::Other), keys(0)),
        ((Kind::ModuleTemplate, Undeclared::Other), keys(12)),
    ]);
    let found = definitions(&standings, &undeclared);
    assert_eq!(
        lines(&found),
        [
            "Todo: 2 definitions in git say what the control plane has, and get the ownership label: Kyma \
             kcp-system/a, Kyma kcp-system/b",
            "Note: 1 definition in git is not in the control plane, and is created: Kyma kcp-system/c",
            "Blocks: Kyma kcp-system/d differs from git in `spec.channel`; commit what the control plane has; if git is \
             right, annotate the definition with `tidegate.dev/adopt: \"true\"`",
            "Note: 12 objects of kind ModuleTemplate in the control plane are not in git, and stay: kcp-system/k01, \
             kcp-system/k02, kcp-system/k03, kcp-system/k04, kcp-system/k05, kcp-system/k06, kcp-system/k07, \
             kcp-system/k08, kcp-system/k09, kcp-system/k10 and 2 more",
            "Note: 1 object of kind Kyma in the control plane belongs to this GitSource, is not in git, and is to be \
             deleted: kcp-system/k01; `tidegate diff --live` says which deletions wait for a confirmation; what is to \
             stay must be in git",
            "Note: 2 objects of kind Kyma in the control plane belong to this GitSource, are not in git, and each stays, \
             because its GitSource says `prune: false`: kcp-system/k01, kcp-system/k02",
            "Note: 2 objects of kind Kyma in the control plane are not in git, and stay: kcp-system/k01, kcp-system/k02",
        ]
    );
    assert!(!may_begin(&found));
    assert!(may_begin(&definitions(&standings[..3], &BTreeMap::new())));
}

#[test]
fn a_leader_blocks_whoever_it_is() {
    assert_eq!(leader(None).level, Level::Ready);
    let of = |name: &str| leader(Some(&Holder { name: name.to_owned(), renewed: 3 }));
    assert!(of("klm-1_x").next.unwrap().starts_with("scale the Deployment of Lifecycle Manager to 0"));
    let killed = "one that was killed does not give the Lease up, which then ends after its duration";
    assert_eq!(of("tidegate_a").next.unwrap(), format!("stop the daemon of Tidegate first; {killed}"));
    let ended = ended(&Holder { name: "klm-1_x".to_owned(), renewed: 321 });
    let expected = "Todo: klm-1_x has not renewed the Lease for 321 s, which is longer than it lasts: the Lease is \
                    released, so that the daemon need not wait for its end; make sure that Lifecycle Manager does not run";
    assert_eq!(lines(&[ended]), [expected]);
}

#[test]
fn old_versions_are_written_again() {
    let crd = |stored: &[&str]| StoredVersions {
        name: "kymas.operator.kyma-project.io".to_owned(),
        storage: "v1beta2".to_owned(),
        stored: stored.iter().map(|one| (*one).to_owned()).collect(),
        objects: 1,
    };
    assert_eq!(lines(&storage(&[crd(&["v1beta2"])])), ["Ready: all objects are stored as v1beta2"]);
    assert_eq!(
        lines(&storage(&[crd(&["v1beta1", "v1beta2"])])),
        [
            "Todo: kymas.operator.kyma-project.io: the API server may store objects as v1beta1; 1 object must be written \
          again as v1beta2"
        ]
    );
    assert!(!may_begin(&storage(&[])));
}

#[test]
fn a_runtime_that_would_lose_a_module_blocks() {
    let kyma = |more: Value| -> Kyma {
        let mut kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "a", "namespace": "kcp-system", "labels": {names::label::SOURCE: "kcp-system.landscape"}},
            "spec": {"channel": "regular"},
        });
        kyma["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(kyma).unwrap()
    };
    let key = Key::new("kcp-system", "a");
    let of =
        |kyma: &Kyma| lines(&modules([(key.clone(), kyma.clone(), vec!["cache".to_owned(), "mailer".to_owned()])]));
    assert_eq!(of(&kyma(json!({}))), ["Ready: git takes no module from a runtime"], "the runtime decides");
    assert_eq!(
        of(&kyma(json!({"modules": [{"name": "cache"}]}))),
        ["Blocks: 1 runtime would lose modules that git does not name: kcp-system/a (mailer); add the modules to the \
          Kymas in git, or annotate these Kymas with `tidegate.dev/modules-from: runtime`"]
    );
}

#[test]
fn runtimes_are_reached_by_one_secret_that_is_accepted() {
    let key = |name: &str| Key::new("kcp-system", name);
    let found = access(&BTreeMap::from([
        (key("a"), Access::Accepted),
        (key("b"), Access::Absent),
        (key("c"), Access::Several(vec!["c1".to_owned(), "c2".to_owned()])),
        (key("d"), Access::Refused("`exec` is not accepted: no programs are run".to_owned())),
    ]));
    assert_eq!(
        lines(&found),
        [
            "Ready: Tidegate accepts the access Secret of 1 runtime",
            "Note: 1 Kyma has no access Secret: kcp-system/b",
            "Blocks: Kyma kcp-system/c has several access Secrets: c1, c2; delete all but one",
            "Blocks: Tidegate refuses the access Secret of Kyma kcp-system/d: `exec` is not accepted: no programs are \
             run; change the kubeconfig in it",
        ]
    );
}

#[test]
fn what_lifecycle_manager_reconciled_last_is_held_once() {
    let kyma = |conditions: Value, metadata: Value| -> Kyma {
        let mut kyma = json!({
            "metadata": {"name": "a", "namespace": "kcp-system"}, "spec": {"channel": "regular"},
            "status": {"state": "Ready", "conditions": conditions},
        });
        kyma["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        serde_json::from_value(kyma).unwrap()
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let former = json!([condition("Modules")]);
    assert!(may_be_held(&kyma(former.clone(), json!({}))));
    assert!(!may_be_held(&kyma(json!([]), json!({}))), "nothing is installed");
    let ours = json!([condition("Modules"), condition(conditions::APPLIED)]);
    assert!(!may_be_held(&kyma(ours.clone(), json!({}))), "Tidegate has reconciled it");
    let adopted = json!({"annotations": {names::annotation::ADOPTED: "true"}});
    assert_eq!(contact(&kyma(ours, adopted)), None, "it only waits to be finished");
    assert_eq!(contact(&kyma(json!([]), json!({}))), Some(Contact::New));
    let leaving = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert!(!may_be_held(&kyma(former.clone(), leaving)));
    let held = |value: &str| kyma(former.clone(), json!({"annotations": {names::annotation::ADOPTED: value}}));
    assert!(is_adopted(&held("true").metadata) && !is_adopted(&held("false").metadata));

    let key = |name: &str| Key::new("kcp-system", name);
    assert_eq!(
        lines(&super::held(&[key("a")], &[key("b"), key("c")])),
        [
            "Todo: 2 runtimes stay as Lifecycle Manager has them, until `tidegate adopt take --finish`: kcp-system/b, \
             kcp-system/c",
            "Note: 1 runtime waits for `tidegate adopt take --finish`: kcp-system/a",
        ]
    );
    assert_eq!(super::held(&[], &[]), []);
}

#[test]
fn a_manifest_that_stays_as_it_is_gets_no_note() {
    let kyma = |adopted: &str| -> ObjectMeta {
        serde_json::from_value(json!({"name": "a", "annotations": {names::annotation::ADOPTED: adopted}})).unwrap()
    };
    let manifest = |annotations: Value| {
        let metadata = json!({"name": "a-1", "namespace": "kcp-system", "annotations": annotations});
        Object::new(json!({"apiVersion": "v1", "kind": "Manifest", "metadata": metadata})).unwrap()
    };
    let noted = manifest(json!({"operator.kyma-project.io/fqdn": "f", names::annotation::COMPONENT_DIGEST: "d"}));
    let plain = manifest(json!({"operator.kyma-project.io/fqdn": "f"}));
    assert_eq!(without_note(&kyma("true"), &noted, None), Some(plain.clone()));
    assert_eq!(without_note(&kyma("false"), &noted, None), None, "the runtime is Tidegate's");
    assert_eq!(without_note(&kyma("true"), &noted, Some("d")), None, "the live one has a note");
    assert_eq!(without_note(&kyma("true"), &plain, None), None, "there is nothing to note");
}

#[test]
fn only_a_manifest_that_its_kyma_has_becomes_ours() {
    let kyma: Kyma = serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "kcp-system"}, "spec": {"channel": "regular"},
        "status": {"state": "Ready", "modules": [{"name": "cache", "state": "Ready"}]},
    }))
    .unwrap();
    let manifest = |labels: Value, more: Value| -> Manifest {
        let mut metadata = json!({"name": "a-1", "namespace": "kcp-system", "labels": labels});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let source = json!({"type": "oci-dir"});
        let spec = json!({"remote": true, "install": {"name": "raw-manifest", "source": source}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    let of = |module: &str| json!({names::label::MODULE_NAME: module});
    assert!(is_referenced(&manifest(of("cache"), json!({})), &kyma));
    assert!(!is_referenced(&manifest(of("gone"), json!({})), &kyma), "the daemon would delete it");
    assert!(!is_referenced(&manifest(json!({}), json!({})), &kyma), "it names no module");
    let mandatory = json!({names::label::MODULE_NAME: "warden", names::label::MANDATORY_MODULE: "true"});
    assert!(is_referenced(&manifest(mandatory, json!({})), &kyma));
    let leaving = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert!(!is_referenced(&manifest(of("cache"), leaving), &kyma));

    assert_eq!(claims(&[]), None);
    let found: Vec<Finding> = claims(&[Key::new("kcp-system", "a-1")]).into_iter().collect();
    assert_eq!(
        lines(&found),
        ["Todo: 1 Manifest gets Tidegate as field manager in place of Lifecycle Manager: kcp-system/a-1"]
    );
}

#[test]
fn what_changes_at_the_first_contact_depends_on_who_reconciled_the_runtime() {
    let key = |name: &str| Key::new("kcp-system", name);
    let runtimes = [(key("a"), Contact::Left), (key("b"), Contact::New), (key("c"), Contact::Left)];
    assert_eq!(
        lines(&first_contact(&runtimes.into())),
        [
            "Note: at the first contact with 2 runtimes, only the field managers of objects change, one write each, and \
             the status of the Kyma: kcp-system/a, kcp-system/c; `tidegate run --observe --once` names each object, and \
             `tidegate diff --live` what waits for `take --finish`",
            "Note: at the first contact with 1 runtime, Tidegate applies the CustomResourceDefinitions, the catalog, \
             the modules and the agent, because Lifecycle Manager has not reconciled the Kyma: kcp-system/b; `tidegate \
             run --observe --once` names each object and field",
        ]
    );
    assert_eq!(first_contact(&BTreeMap::new()), [], "a landscape of our own has had its first contacts");
}

#[test]
fn a_runtime_was_reached_once_a_controller_says_what_it_has() {
    let with = |conditions: Value| -> Kyma {
        let mut kyma: Kyma = serde_json::from_value(kyma().object.value().clone()).unwrap();
        kyma.status = serde_json::from_value(json!({"state": "Ready", "conditions": conditions})).unwrap();
        kyma
    };
    let condition = |type_: &str, status: &str| {
        json!({
            "type": type_, "status": status, "reason": "Ready", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    assert!(!was_reached(&with(json!([]))));
    assert!(!was_reached(&with(json!([condition("CRDsSync", "Unknown"), condition("Modules", "True")]))));
    assert!(was_reached(&with(json!([condition("tidegate.dev/Applied", "True")]))));
    // As it is after Tidegate's conditions were removed.
    for status in ["True", "False"] {
        assert!(was_reached(&with(json!([condition("CRDsSync", status)]))), "{status}");
    }
}

#[test]
fn runtimes_whose_kymas_are_being_deleted_lose_their_modules_at_the_first_contact() {
    assert_eq!(ending(&[]), None);
    let found: Vec<Finding> = ending(&[Key::new("kcp-system", "a")]).into_iter().collect();
    assert_eq!(
        lines(&found),
        ["Note: at the first contact with 1 runtime, the daemon deletes all modules there, because its Kyma is being \
             deleted: kcp-system/a; make sure that these modules may go: the deletion of a Kyma cannot be undone"]
    );
    let found = ending(&[Key::new("kcp-system", "a"), Key::new("kcp-system", "b")]).expect("a finding");
    assert!(found.message.contains("2 runtimes, ") && found.message.contains("their Kymas are"), "{}", found.message);
}

#[test]
fn a_control_plane_that_lacks_kinds_or_objects_is_not_ready() {
    assert_eq!(kinds(&[]), None);
    let found: Vec<Finding> = kinds(&["Kyma", "Watcher"]).into_iter().collect();
    assert_eq!(
        lines(&found),
        [
            "Blocks: the control plane does not serve Kyma, Watcher: without these kinds, nothing says what the landscape \
          has; check the kubeconfig; if it is the right one, apply what `tidegate crds` prints"
        ]
    );
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let of = |namespaces: &[&str], has_others| {
        lines(&empty(&names(namespaces), has_others).into_iter().collect::<Vec<Finding>>())
    };
    assert_eq!(of(&[], true), Vec::<String>::new());
    assert_eq!(
        of(&["kcp-system", "kcp"], false),
        ["Blocks: there is no object of Lifecycle Manager in kcp-system, kcp, so there is nothing to do; check the \
          kubeconfig, or select the namespaces of the landscape with -n"]
    );
    assert_eq!(
        of(&["kcp"], true),
        ["Note: there is no object of Lifecycle Manager in kcp; check the spelling, or omit this -n"]
    );
}

#[test]
fn only_a_daemon_of_tidegate_finishes_runtimes() {
    let holder = |name: &str| Holder { name: name.to_owned(), renewed: 1 };
    assert!(is_tidegate(&holder("tidegate_a_1")));
    assert!(!is_tidegate(&holder("klm-controller-manager-0_3f0e")));
}
