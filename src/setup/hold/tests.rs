use super::*;
use crate::setup::state::Origin;

fn desired(spec: Value) -> Desired {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "main-kcp"}, "spec": spec});
    let object = Object::new(object).expect("an object");
    let name = (ObjectKind::Deployment, "main-kcp".to_owned());
    Desired { name, digest: object.digest(), object, gates: Vec::new(), origin: Origin::Rendered, replicas: None }
}

fn template(mounts: &str) -> Value {
    json!({"template": {
        "metadata": {"annotations": {"tidegate.dev/mounts": mounts}},
        "spec": {
            "containers": [{"name": "kcp", "image": "kcp:1", "args": ["--one", "--two"]}],
            "volumes": [{"name": "ca", "secret": {"secretName": "ca", "items": [{"key": "tls.crt"}]}}],
        },
    }})
}

/// What kcp-operator left: whole Secrets, a revision label, no digest.
fn live() -> Value {
    json!({"replicas": 2, "template": {
        "metadata": {"labels": {"operator.kcp.io/secret-0-rev": "1"}},
        "spec": {
            "containers": [{"name": "kcp", "image": "kcp:1", "args": ["--one", "--two"]}],
            "volumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
        },
    }})
}

fn found(spec: &Value, annotations: &Value) -> Object {
    let metadata = json!({"name": "main-kcp", "annotations": annotations});
    Object::new(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}))
        .expect("one")
}

#[test]
fn an_object_stays_as_it_was_adopted_until_its_resource_or_what_it_mounts_changes() {
    let (definition, other) = (Digest::of_bytes(b"one"), Digest::of_bytes(b"other"));
    let noted = adopted_as(&definition, &desired(template("a")), &found(&live(), &json!({})).into_value()).to_string();
    let annotations = json!({"tidegate.dev/adopted-as": noted});
    let with = |change: &dyn Fn(&mut Value)| {
        let mut spec = live();
        change(&mut spec);
        found(&spec, &annotations)
    };
    let as_adopted = with(&|_| {});
    let is = |definition: Option<&Digest>, mounts: &str, found: &Object| {
        is_held(definition, &desired(template(mounts)), found)
    };
    assert!(is(Some(&definition), "a", &as_adopted));
    assert!(!is(Some(&other), "a", &as_adopted), "the resource changed");
    assert!(!is(Some(&definition), "b", &as_adopted), "a mounted key changed");
    assert!(is(None, "a", &as_adopted), "a template fails, so nothing is known");

    let container = |spec: &Value| spec["template"]["spec"]["containers"][0].clone();
    for (what, holds, found) in [
        (
            "an image that others set",
            false,
            with(&|spec| spec["template"]["spec"]["containers"][0]["image"] = json!("x")),
        ),
        (
            "an argument of others",
            false,
            with(&|spec| spec["template"]["spec"]["containers"][0]["args"] = json!(["x"])),
        ),
        (
            "one of two differences repaired by hand",
            false,
            with(&|spec| {
                spec["template"]["spec"]["volumes"][0]["secret"]["items"] = json!([{"key": "tls.crt"}]);
            }),
        ),
        ("a default of a newer API server", true, with(&|spec| spec["template"]["spec"]["hostUsers"] = json!(true))),
        (
            "a container that a webhook adds",
            true,
            with(&|spec| {
                let sidecar = json!({"name": "proxy", "image": "x"});
                spec["template"]["spec"]["containers"] = json!([container(spec), sidecar]);
            }),
        ),
        ("a number of pods that others decide", true, with(&|spec| spec["replicas"] = json!(7))),
    ] {
        assert_eq!(is(Some(&definition), "a", &found), holds, "{what}");
    }

    // Once it was applied, nothing brings the hold back.
    let applied = json!({"tidegate.dev/adopted-as": noted, "tidegate.dev/digest": "any"});
    assert!(!is(Some(&definition), "a", &found(&live(), &applied)));
    assert!(!is(Some(&definition), "a", &found(&live(), &json!({}))), "it was never adopted");
}

#[test]
fn differences_are_the_paths_of_fields() {
    let mut all = Vec::new();
    let one = json!({"a": 1, "list": [{"b": 1}, {"c": 1}], "other": [1], "label.io/x": "1", "same": {"d": 1}, "gone": {"e": 1}});
    let other = json!({"a": 2, "list": [{"b": 1}, {"c": 2}], "other": [1, 2], "new": {"f": 1}, "same": {"d": 1}});
    differences(&mut all, String::new(), &one, &other);
    let paths: Vec<&str> = all.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["a", "gone.e", "[\"label.io/x\"]", "list[1].c", "new.f", "other"]);
    assert_eq!((&all[1].1, &all[4].1), (&json!(1), &Value::Null), "the first value");
}
