use serde_json::json;

use super::*;
use crate::{definition::ModuleSource, diagnostic::FilePosition, yaml};

fn metadata(label: &str, annotation: &str) -> ObjectMeta {
    ObjectMeta {
        labels: Some(BTreeMap::from([(names::label::SOURCE.to_owned(), label.to_owned())])),
        annotations: Some(BTreeMap::from([(names::annotation::SOURCE.to_owned(), annotation.to_owned())])),
        ..ObjectMeta::default()
    }
}

#[test]
fn a_short_source_name_is_its_own_label() {
    let source = SourceName::new(Key::new("kcp-system", "landscape"));
    assert_eq!(source.label_value(), "kcp-system.landscape");
}

#[test]
fn a_long_source_name_is_cut_and_hashed_and_stays_distinct() {
    let long = |end: &str| SourceName::new(Key::new("kcp-system", &format!("{}{end}", "landscape-".repeat(8))));
    let (a, b) = (long("a").label_value(), long("b").label_value());
    assert!(a.len() <= LABEL_LEN_MAX && b.len() <= LABEL_LEN_MAX);
    assert_ne!(a, b);
}

#[test]
fn a_source_counts_only_where_label_and_annotation_agree() {
    let source = SourceName::from_metadata(&metadata("kcp-system.landscape", "kcp-system/landscape"));
    assert_eq!(source, Some(SourceName::new(Key::new("kcp-system", "landscape"))));
    assert_eq!(SourceName::from_metadata(&metadata("kcp-system.other", "kcp-system/landscape")), None);
    assert_eq!(SourceName::from_metadata(&ObjectMeta::default()), None);
}

fn definition(kind: Kind, value: Value, module: Option<ModuleSource>) -> Definition {
    let object = Object::new(value).unwrap();
    Definition {
        kind,
        key: Key::new(object.namespace(), object.name()),
        place: FilePosition::at(&"landscapes/dev.yaml".into(), 7, 1),
        digest: object.digest(),
        object,
        module,
        fields: Arc::new(yaml::Positions::from_node(&yaml::parse("{}", &yaml::Limits::default()).unwrap()[0])),
    }
}

fn kyma() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "namespace": "kcp-system", "name": "one", "labels": {"team": "a"},
            "annotations": {"tidegate.dev/module-tree": "forged"}, "finalizers": ["x"],
        },
        "spec": {"channel": "regular"},
        "status": {"state": "Ready"},
    })
}

#[test]
fn a_kyma_that_git_gives_no_module_says_that_git_decides() {
    let source = SourceName::new(Key::new("kcp-system", "landscape"));
    let says = |modules: Value, said: Option<&str>| {
        let mut kyma = kyma();
        kyma["spec"]["modules"] = modules;
        if let Some(said) = said {
            kyma["metadata"]["annotations"][annotation::MODULES_FROM] = said.into();
        }
        stamp(&definition(Kind::Kyma, kyma, None), &source).annotation(annotation::MODULES_FROM).map(str::to_owned)
    };
    assert_eq!(says(json!([]), None).as_deref(), Some("git"));
    assert_eq!(says(json!([]), Some("runtime")).as_deref(), Some("runtime"), "what a user says counts");
    assert_eq!(says(json!([{"name": "cache"}]), None), None, "a list says so itself");
    assert_eq!(says(Value::Null, None), None, "who declares no list leaves it to the runtime");
}

#[test]
fn a_stamped_kyma_says_where_it_comes_from_and_nothing_of_the_commit() {
    let source = SourceName::new(Key::new("kcp-system", "landscape"));
    let mut object = stamp(&definition(Kind::Kyma, kyma(), None), &source);
    let digest = object.annotation(annotation::DIGEST).unwrap().to_owned();
    object.metadata_mut()["annotations"].as_object_mut().unwrap().shift_remove(annotation::DIGEST);
    // Wherever its file is.
    let mut bare = object.clone();
    bare.set_annotation(annotation::PATH, "");
    assert_eq!(digest, bare.digest().to_string());
    let expected = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "namespace": "kcp-system", "name": "one",
            "labels": {
                "team": "a", "tidegate.dev/source": "kcp-system.landscape",
                "operator.kyma-project.io/managed-by": "lifecycle-manager",
            },
            "annotations": {
                "tidegate.dev/source": "kcp-system/landscape", "tidegate.dev/path": "landscapes/dev.yaml",
            },
            "finalizers": ["x", "operator.kyma-project.io/Kyma"],
        },
        "spec": {"channel": "regular"},
    });
    assert_eq!(object.value(), &expected);
}

#[test]
fn a_module_that_lives_in_git_is_stamped_with_its_tree() {
    let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904".parse().unwrap();
    let value = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"namespace": "kcp-system", "name": "cache-1.2.0"}, "spec": {"descriptor": {}},
    });
    let module = ModuleSource { path: "modules/cache/1.2.0".to_owned(), tree };
    let source = SourceName::new(Key::new("kcp-system", "landscape"));
    let object = stamp(&definition(Kind::ModuleTemplate, value, Some(module)), &source);
    assert_eq!(object.annotation(annotation::MODULE_TREE), Some("4b825dc642cb6eb9a060e54bf8d69288fbee4904"));
    assert_eq!(
        SourceName::from_metadata(&serde_json::from_value(object.value()["metadata"].clone()).unwrap()),
        Some(source)
    );
}

#[test]
fn an_object_has_the_content_of_a_definition_whatever_its_source_and_file() {
    let source = SourceName::new(Key::new("kcp-system", "one"));
    let live: ObjectMeta =
        serde_json::from_value(stamp(&definition(Kind::Kyma, kyma(), None), &source).value()["metadata"].clone())
            .unwrap();
    let elsewhere = |value| Definition {
        place: FilePosition::at(&"elsewhere.yaml".into(), 1, 1),
        ..definition(Kind::Kyma, value, None)
    };
    assert!(has_content(&elsewhere(kyma()), &live));
    let mut other = kyma();
    other["spec"]["channel"] = json!("fast");
    assert!(!has_content(&elsewhere(other), &live));
    assert!(!has_content(&elsewhere(kyma()), &ObjectMeta::default()));
}

#[test]
fn a_landscape_holds_what_is_stamped() {
    let mut definitions = Definitions::default();
    let kyma = definition(Kind::Kyma, kyma(), None);
    definitions.good.insert((Kind::Kyma, kyma.key.clone()), Arc::new(kyma));
    let mut diagnostics = Diagnostics::default();
    let source = SourceName::new(Key::new("kcp-system", "landscape"));
    let landscape = Landscape::from_definitions(&mut diagnostics, &definitions, &source);
    assert!(diagnostics.is_empty());
    let kyma = &landscape.kymas[&Key::new("kcp-system", "one")];
    assert_eq!(SourceName::from_metadata(&kyma.metadata), Some(source));
    assert_eq!(kyma.spec.channel, "regular");
}

#[test]
fn a_list_of_modules_is_replaced_only_if_it_has_others() {
    let kyma = |modules: Value| json!({"spec": {"channel": "regular", "modules": modules}});
    let git = kyma(json!([{"name": "cache"}]));
    let live = kyma(json!([{"name": "old"}, {"name": "cache", "channel": "fast"}]));
    // What others have added to an entry stays.
    assert_eq!(without_other_modules(&git, &live), Some(json!([{"name": "cache", "channel": "fast"}])));
    assert_eq!(without_other_modules(&kyma(json!([])), &git), Some(json!([])));
    assert_eq!(without_other_modules(&git, &git), None);
    assert_eq!(without_other_modules(&git, &kyma(json!([]))), None, "an apply adds it");
    let without_list = json!({"spec": {"channel": "regular"}});
    assert_eq!(without_other_modules(&without_list, &git), None, "git leaves the list to others");
}

#[test]
fn leave_to_take_an_object_over_is_no_other_content() {
    let (one, other) = (SourceName::new(Key::new("kcp-system", "one")), SourceName::new(Key::new("kcp-system", "two")));
    let with_leave = |value: Option<&str>| {
        let mut object = kyma();
        if let Some(value) = value {
            object["metadata"]["annotations"]["tidegate.dev/adopt"] = json!(value);
        }
        definition(Kind::Kyma, object, None)
    };
    for (owners, heirs) in [(None, Some("true")), (Some("true"), None), (Some("true"), Some("false"))] {
        let live = stamp(&with_leave(owners), &one);
        let digest = live.annotation(annotation::DIGEST);
        assert!(says_the_same(&with_leave(heirs), &one, digest), "{owners:?} {heirs:?}");
        assert!(!says_the_same(&with_leave(heirs), &other, digest));
    }
    assert!(!says_the_same(&with_leave(None), &one, None));
}
