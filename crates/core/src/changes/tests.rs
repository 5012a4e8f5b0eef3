use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{definition, yaml::Limits};

/// Parses `Kind/name` or `Kind/namespace/name`. Built-in kinds get their group.
fn id(text: &str) -> ObjectId {
    let parts: Vec<&str> = text.split('/').collect();
    let group = match parts[0] {
        "Deployment" => "apps",
        "ClusterRole" => "rbac.authorization.k8s.io",
        "CustomResourceDefinition" => "apiextensions.k8s.io",
        "ValidatingWebhookConfiguration" => "admissionregistration.k8s.io",
        "Boat" => "example.org",
        _ => "",
    };
    match parts.as_slice() {
        [kind, name] => ObjectId::new(group, kind, "", name),
        [kind, namespace, name] => ObjectId::new(group, kind, namespace, name),
        _ => panic!("{text}"),
    }
}

fn inventory(ids: &[&str], version: &str) -> Inventory {
    ids.iter().map(|text| (id(text), Arc::from(version))).collect()
}

/// A module with these objects.
fn module(ids: &[&str]) -> CompleteModule {
    let document = |text: &&str| {
        let id = id(text);
        let version = if id.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", id.group) };
        let metadata = json!({"name": *id.name, "namespace": *id.namespace});
        json!({"apiVersion": version, "kind": *id.kind, "metadata": metadata}).to_string()
    };
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    let text = unique.iter().map(document).collect::<Vec<_>>().join("\n---\n");
    let (tree, path) = ("0".repeat(40).parse().unwrap(), Arc::from("objects.yaml"));
    let objects = definition::module_objects(tree, [(&path, text.as_bytes())].into_iter(), &Limits::default());
    CompleteModule::new(&objects.unwrap())
}

fn script(prunes: &[Prune]) -> Vec<String> {
    let line = |verb: &str, id: &ObjectId| format!("{verb} {} {}", id.kind, id.name);
    let prune = |prune: &Prune| match prune.guard {
        Guard::Mark => line("prune", &prune.id),
        Guard::Annotation => line("guarded", &prune.id),
    };
    prunes.iter().map(prune).collect()
}

#[track_caller]
fn check(desired: Desired<'_>, owned: &[&str], expected: &[&str]) {
    assert_eq!(script(&Prune::between(desired, &inventory(owned, "v1"))), expected);
}

const ALL: [&str; 7] = [
    "Boat/a/boat",
    "ConfigMap/a/config",
    "CustomResourceDefinition/boats.example.org",
    "Deployment/a/operator",
    "Namespace/a",
    "ClusterRole/role",
    "ValidatingWebhookConfiguration/hook",
];

/// See `a_module_with_an_error_yields_no_objects_to_prune_by` in `definition`: without all objects of
/// a module there is no [`CompleteModule`].
#[test]
fn only_what_has_left_the_module_is_pruned() {
    let rest = module(&["Namespace/a", "Deployment/a/operator"]);
    check(Desired::Module(&rest), &["Namespace/a", "Deployment/a/operator"], &[]);
    check(Desired::Module(&rest), &["Namespace/a", "ConfigMap/a/old"], &["prune ConfigMap old"]);
    check(Desired::Module(&module(&ALL)), &ALL, &[]);
}

#[test]
fn apply_goes_by_stage_and_removal_the_other_way() {
    let apply: Vec<String> =
        module(&ALL).objects().objects.iter().map(|object| format!("{} {}", object.id.kind, object.id.name)).collect();
    assert_eq!(
        apply,
        [
            "CustomResourceDefinition boats.example.org",
            "Namespace a",
            "ClusterRole role",
            "ConfigMap config",
            "Deployment operator",
            "ValidatingWebhookConfiguration hook",
            "Boat boat",
        ]
    );
    check(
        Desired::Nothing,
        &ALL,
        &[
            "prune Boat boat",
            "prune ValidatingWebhookConfiguration hook",
            "prune Deployment operator",
            "prune ConfigMap config",
            "prune ClusterRole role",
            "prune Namespace a",
            "prune CustomResourceDefinition boats.example.org",
        ],
    );
}

#[test]
fn what_holds_data_is_guarded_when_it_merely_vanishes_between_versions() {
    check(
        Desired::Module(&module(&[])),
        &["CustomResourceDefinition/boats.example.org", "Namespace/a", "PersistentVolumeClaim/a/data", "ConfigMap/a/c"],
        &[
            "guarded PersistentVolumeClaim data",
            "prune ConfigMap c",
            "guarded Namespace a",
            "guarded CustomResourceDefinition boats.example.org",
        ],
    );
}

#[test]
fn kyma_system_is_never_pruned() {
    check(Desired::Nothing, &["Namespace/kyma-system", "ConfigMap/kyma-system/c"], &["prune ConfigMap c"]);
    check(Desired::Module(&module(&[])), &["Namespace/kyma-system"], &[]);
}

#[test]
fn what_every_runtime_has_is_never_pruned() {
    let platform = [
        "CustomResourceDefinition/kymas.operator.kyma-project.io",
        "ValidatingWebhookConfiguration/skr-webhook",
        "Deployment/kyma-system/skr-webhook",
    ];
    check(Desired::Nothing, &platform, &[]);
    check(Desired::Module(&module(&[])), &platform, &[]);
}

#[test]
fn another_version_is_the_same_object() {
    check(Desired::Module(&module(&["Boat/a/boat"])), &["Boat/a/boat"], &[]);
    let beta = inventory(&["Boat/a/boat"], "v1beta1");
    assert_eq!(Prune::between(Desired::Module(&module(&["Boat/a/boat"])), &beta), []);
}

#[test]
fn a_forecast_is_what_the_prune_decides() {
    for text in ["ConfigMap/a/c", "Namespace/a", "PersistentVolumeClaim/a/data", "Namespace/kyma-system"] {
        for (desired, purpose) in
            [(Desired::Nothing, Purpose::Remove), (Desired::Module(&module(&[])), Purpose::Install)]
        {
            for prune in [None, Some("enabled"), Some("disabled")] {
                let live = Live { marked: true, deleting: false, prune };
                let prunes = Prune::between(desired, &inventory(&[text], "v1"));
                let decided = prunes.first().map(|prune| prune.verdict(Some(&live)));
                assert_eq!(forecast(&id(text), purpose, &live), decided, "{text} {purpose:?} {prune:?}");
            }
        }
    }
}

#[test]
fn a_second_look_decides() {
    let prune = |guard| Prune { id: id("Namespace/a"), version: "v1".into(), guard };
    let live = |marked, deleting, prune| Some(Live { marked, deleting, prune });
    for (guard, live, expected) in [
        (Guard::Mark, None, Verdict::Gone),
        (Guard::Mark, live(false, false, Some("enabled")), Verdict::Foreign),
        (Guard::Mark, live(false, true, None), Verdict::Foreign),
        (Guard::Mark, live(true, true, None), Verdict::Wait),
        (Guard::Mark, live(true, false, None), Verdict::Delete),
        (Guard::Mark, live(true, false, Some("disabled")), Verdict::Disabled),
        (Guard::Annotation, live(true, false, None), Verdict::Guarded),
        (Guard::Annotation, live(true, false, Some("yes")), Verdict::Guarded),
        (Guard::Annotation, live(true, false, Some("enabled")), Verdict::Delete),
        (Guard::Annotation, live(true, false, Some("disabled")), Verdict::Disabled),
    ] {
        assert_eq!(prune(guard).verdict(live.as_ref()), expected, "{guard:?} {live:?}");
    }
    assert!(Verdict::Gone.is_settled() && Verdict::Foreign.is_settled() && !Verdict::Guarded.is_settled());
}

#[test]
fn live_covers_what_it_says_already() {
    let live = json!({
        "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]},
        "spec": {
            "replicas": 1,
            "containers": [
                {"name": "side", "image": "s"},
                {"name": "main", "image": "m", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "B", "value": ""}]},
            ],
            "args": ["--a", "--b"],
            "subjects": [{"name": "one"}, {"name": "two"}],
        },
    });
    for desired in [
        json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["y"]}}),
        json!({"spec": {"replicas": 1.0, "args": ["--a", "--b"]}}),
        json!({"spec": {"containers": [{"name": "main", "image": "m", "ports": [{"containerPort": 80}]}]}}),
        json!({"spec": {"nothing": {}, "none": null, "empty": [], "deep": {"empty": {}}}}),
    ] {
        assert!(covers(&desired, &live), "{desired}");
    }
    for desired in [
        json!({"metadata": {"labels": {"c": "3"}}}),
        json!({"metadata": {"finalizers": ["z"]}}),
        json!({"spec": {"replicas": "1"}}),
        json!({"spec": {"args": ["--b", "--a"]}}),
        json!({"spec": {"args": ["--a"]}}),
        json!({"spec": {"containers": [{"name": "main", "image": "n"}]}}),
        json!({"spec": {"containers": [{"name": "other"}]}}),
        json!({"spec": {"subjects": [{"name": "one"}]}}),
    ] {
        assert!(!covers(&desired, &live), "{desired}");
    }
}

#[test]
fn quantities_are_compared_as_amounts() {
    let limits = |value: serde_json::Value| json!({"resources": {"limits": {"cpu": value}}});
    for (one, other) in [
        (json!("0.1"), json!("100m")),
        (json!("1000m"), json!("1")),
        (json!(1), json!("1")),
        (json!(0.5), json!("500m")),
        (json!("1Gi"), json!("1024Mi")),
        (json!("1.5k"), json!("1500")),
        (json!("100u"), json!("0.1m")),
    ] {
        assert!(covers(&limits(one.clone()), &limits(other.clone())), "{one} {other}");
    }
    for (one, other) in [
        (json!("0.1"), json!("200m")),
        (json!("1G"), json!("1Gi")),
        (json!("much"), json!("100m")),
        (json!(null), json!("1")),
        (json!("9999999999999999999999999999999999999999"), json!("1")),
    ] {
        assert!(!covers(&limits(one.clone()), &limits(other.clone())), "{one} {other}");
    }
    assert!(!covers(&json!({"data": {"cpu": "0.1"}}), &json!({"data": {"cpu": "100m"}})), "elsewhere it is a text");
}

fn ids() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&ALL[..]), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_pruned_that_is_desired_or_not_owned(desired in ids(), owned in ids()) {
        let (module, owned) = (module(&desired), inventory(&owned, "v1"));
        let desired = inventory(&desired, "v2");
        let prunes = Prune::between(Desired::Module(&module), &owned);
        prop_assert!(prunes.iter().all(|prune| owned.contains(&prune.id) && !desired.contains(&prune.id)));
        // Every owned object is desired, pruned, or kept on purpose.
        prop_assert!(owned.ids().all(|id| desired.contains(id) || prunes.iter().any(|prune| prune.id == *id)));
    }

    #[test]
    fn the_order_does_not_depend_on_the_order_of_input(desired in ids(), owned in ids()) {
        let reversed = |ids: &[&'static str]| ids.iter().rev().copied().collect::<Vec<_>>();
        let one = Prune::between(Desired::Module(&module(&desired)), &inventory(&owned, "v1"));
        let other = Prune::between(Desired::Module(&module(&reversed(&desired))), &inventory(&reversed(&owned), "v1"));
        prop_assert_eq!(&one, &other);
        prop_assert!(one.is_sorted_by(|a, b| a.id.apply_order() >= b.id.apply_order()));
    }

    #[test]
    fn everything_covers_itself(texts in prop::collection::btree_map("[a-c]", "[a-z]{0,3}", 0..4), number in any::<i64>()) {
        let value = json!({"spec": {"texts": texts, "number": number, "list": [number, "a"], "env": [{"name": "a", "value": "b"}]}});
        prop_assert!(covers(&value, &value));
    }
}

#[test]
fn what_an_apply_makes_of_an_object_keeps_its_defaults_and_the_items_of_others() {
    let live = json!({
        "spec": {
            "replicas": 3,
            "template": {"spec": {
                "containers": [
                    {"name": "a", "image": "a:1", "terminationMessagePath": "/dev/log", "resources": {"limits": {"cpu": "1"}}},
                    {"name": "sidecar", "image": "s:1"},
                ],
                "tolerations": [{"key": "x", "operator": "Exists"}],
            }},
        },
    });
    let desired = json!({
        "spec": {"template": {"spec": {
            "containers": [
                {"name": "a", "image": "a:2", "resources": {"limits": {"cpu": "1000m"}}}, {"name": "b", "image": "b:1"},
            ],
            "tolerations": [],
        }}},
    });
    let mut expected = live.clone();
    let spec = &mut expected["spec"]["template"]["spec"];
    spec["containers"][0]["image"] = json!("a:2");
    spec["containers"].as_array_mut().unwrap().push(json!({"name": "b", "image": "b:1"}));
    spec["tolerations"] = json!([]);
    let merged = merged(&desired, &live);
    assert_eq!(merged, expected);
    assert!(covers(&desired, &merged));
    assert_eq!(super::merged(&merged, &live), expected, "the same again");
}

#[test]
fn what_covers_an_apply_stays_as_it_is() {
    for (desired, live) in [
        (json!({"a": 1, "none": {}}), json!({"a": 1.0, "b": 2})),
        (json!({"metadata": {"finalizers": ["x"]}}), json!({"metadata": {"finalizers": ["y", "x"]}})),
        (json!({"list": [{"a": 1}]}), json!({"list": [{"a": 1, "default": true}]})),
    ] {
        assert_eq!(merged(&desired, &live), live, "{desired}");
    }
}
