use super::*;
use crate::{
    object::Object,
    render::{Mark, SharedObjects},
};

fn workload(kind: &str, name: &str, pod: Value) -> Object {
    let metadata = json!({"name": name, "namespace": "kyma-system"});
    let api_version = if kind == "Pod" { "v1" } else { "apps/v1" };
    let spec = json!({"template": {"spec": pod}});
    Object::new(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})).unwrap()
}

fn shared(object: &Object) -> SharedObject {
    SharedObjects::new([object], Mark::Module, &|_| None).objects.remove(0)
}

fn manager(kind: &str, name: &str, namespace: Option<&str>) -> shared::Manager {
    shared::Manager {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    }
}

/// The pod after the injection.
fn pod(object: &Object, manager: Option<&shared::Manager>) -> Result<Value, InjectError> {
    let injected = Injection::default().pull_secret("registry", manager).put_into(&shared(object))?;
    Ok(injected.object(&Key::new("kcp-system", "one")).value()["spec"]["template"]["spec"].clone())
}

#[test]
fn the_pull_secret_is_named_once_in_deployments_and_stateful_sets() {
    let named = |names: &[&str]| Value::from(names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>());
    for (kind, before, after) in [
        ("Deployment", Value::Null, named(&["registry"])),
        ("StatefulSet", named(&[]), named(&["registry"])),
        ("Deployment", named(&["own"]), named(&["own", "registry"])),
        ("Deployment", named(&["registry", "own"]), named(&["registry", "own"])),
        ("DaemonSet", named(&["own"]), named(&["own"])),
        ("Pod", named(&["own"]), named(&["own"])),
    ] {
        let object = workload(kind, "keda", json!({"imagePullSecrets": before, "containers": []}));
        assert_eq!(pod(&object, None).unwrap()["imagePullSecrets"], after, "{kind} {before}");
    }
    let bare = workload("Deployment", "keda", Value::Null);
    assert_eq!(pod(&bare, None), Ok(Value::Null), "there is no pod to put it into");
}

#[test]
fn the_variable_is_for_the_manager_or_for_all_containers() {
    let of_manager = |kind, name, namespace| Some(manager(kind, name, namespace));
    for (manager, is_set) in [
        (None, true),
        (of_manager("Deployment", "keda", None), true),
        (of_manager("Deployment", "keda", Some("")), true),
        (of_manager("Deployment", "keda", Some("kyma-system")), true),
        (of_manager("Deployment", "keda", Some("other")), false),
        (of_manager("Deployment", "other", Some("kyma-system")), false),
        (of_manager("StatefulSet", "keda", Some("kyma-system")), false),
    ] {
        let env = json!([{"name": "A", "value": "b"}]);
        let containers = json!([{"name": "one"}, {"name": "two", "env": env}]);
        let object =
            workload("Deployment", "keda", json!({"containers": containers, "initContainers": [{"name": "init"}]}));
        let pod = pod(&object, manager.as_ref()).unwrap();
        let variable = json!({"name": "SKR_IMG_PULL_SECRET", "value": "registry"});
        let expected = if is_set {
            json!([{"name": "one", "env": [variable]}, {"name": "two", "env": [env[0], variable]}])
        } else {
            containers
        };
        assert_eq!(pod["containers"], expected, "{manager:?}");
        assert_eq!(pod["initContainers"], json!([{"name": "init"}]));
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]), "whatever the manager is");
    }
}

#[test]
fn a_variable_that_exists_is_an_error_where_it_would_be_set() {
    let containers = json!([{"name": "one", "env": [{"name": "SKR_IMG_PULL_SECRET", "value": "registry"}]}]);
    let object = workload("Deployment", "keda", json!({"containers": containers}));
    let error = pod(&object, None).unwrap_err();
    assert_eq!(error.to_string(), "SKR_IMG_PULL_SECRET environment variable already exits in raw manifest");
    assert!(pod(&object, Some(&manager("Deployment", "other", None))).is_ok());
}

#[test]
fn only_secrets_that_ask_get_data_and_only_when_they_are_sent() {
    let secret = |name: &str, kind: &str, annotation: &str| {
        let annotations = json!({"operator.kyma-project.io/inject-data-from-kcp": annotation});
        let metadata = json!({"name": name, "namespace": "kyma-system", "annotations": annotations});
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"a": "c2hpcHBlZA=="}});
        shared(&Object::new(object).unwrap())
    };
    let injection = |version: &str| Injection::default().data([("pull".to_owned(), version.to_owned())].into());
    for (object, gets_data) in [
        (secret("pull", "Secret", "true"), true),
        (secret("pull", "Secret", "false"), false),
        (secret("other", "Secret", "true"), false),
        (secret("pull", "ConfigMap", "true"), false),
    ] {
        let injected = injection("1").put_into(&object).unwrap();
        assert_eq!(injected.data_from.is_some(), gets_data, "{}", object.id);
        assert_eq!(injected.digest != object.digest, gets_data);
    }
    let one = injection("1").put_into(&secret("pull", "Secret", "true")).unwrap();
    let two = injection("2").put_into(&secret("pull", "Secret", "true")).unwrap();
    assert_ne!(one.digest, two.digest, "a new version is applied");
    let source = DataSource { secret: Key::new("kcp-system", "pull"), module: Some("deployer") };
    assert_eq!(one.data_from.as_deref(), Some(&source));
    let owner = Key::new("kcp-system", "one");
    let sent: Value = serde_json::from_slice(&one.body_with(&owner, &json!({"a": "bmV3"}))).unwrap();
    assert_eq!(sent["data"], json!({"a": "bmV3"}));
    assert_eq!(sent["metadata"], one.object(&owner).value()["metadata"]);
}

#[test]
fn what_nothing_is_put_into_stays_the_same() {
    let deployment = workload("Deployment", "keda", json!({"containers": [{"name": "((owner"}]}));
    let object = shared(&deployment);
    assert!(Injection::default().is_empty());
    assert_eq!(Injection::default().put_into(&object).unwrap().digest, object.digest);
    let injected = Injection::default().pull_secret("registry", None).put_into(&object).unwrap();
    let owner = Key::new("kcp-system", "one-keda");
    let (before, after) = (object.object(&owner), injected.object(&owner));
    assert_eq!(before.value()["metadata"], after.value()["metadata"], "the owner is filled in as before");
    assert_eq!(after.value()["spec"]["template"]["spec"]["containers"][0]["name"], "((owner");
}
