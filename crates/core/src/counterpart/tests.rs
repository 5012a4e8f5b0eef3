use super::*;

fn spec(channel: &str, modules: &[&str]) -> KymaSpec {
    serde_json::from_value(json!({
        "channel": channel,
        "modules": modules.iter().map(|name| json!({"name": name, "managed": true})).collect::<Vec<_>>(),
    }))
    .unwrap()
}

fn kcp(spec: &KymaSpec, from: &str) -> Kyma {
    let mut kyma = Kyma { spec: spec.clone(), ..Kyma::default() };
    kyma.metadata.annotations = Some([("tidegate.dev/modules-from".to_owned(), from.to_owned())].into());
    kyma
}

fn desired(spec: &KymaSpec) -> Object {
    Object::new(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "default", "namespace": "kyma-system", "labels": {"a": "1"}},
        "spec": spec,
    }))
    .unwrap()
}

fn live(spec: KymaSpec, label: Option<&str>) -> Kyma {
    let mut kyma = Kyma { spec, ..Kyma::default() };
    kyma.metadata.labels =
        label.map(|value| [("a".to_owned(), value.to_owned()), ("user".to_owned(), "x".to_owned())].into());
    kyma
}

#[track_caller]
fn check(from: &str, ours: &[&str], runtime: &[&str], patched: Option<&[&str]>) {
    let ours = spec("regular", ours);
    let write = write(&desired(&ours), &kcp(&ours, from), Some(&live(spec("regular", runtime), Some("1"))));
    let names = match &write {
        Write::Nothing => None,
        Write::Merge { patch, .. } => Some(
            patch["spec"]["modules"]
                .as_array()
                .unwrap()
                .iter()
                .map(|module| module["name"].as_str().unwrap())
                .collect::<Vec<_>>(),
        ),
        Write::Create(_) => panic!("it is there"),
    };
    assert_eq!(names.as_deref(), patched);
}

#[test]
fn the_runtime_decides_after_creation() {
    check("runtime", &["cache"], &["mailer"], None);
    check("runtime", &["cache"], &[], None);
}

#[test]
fn git_reverts_edits_in_the_runtime() {
    check("git", &["cache"], &["cache", "mailer"], Some(&["cache"]));
    check("git", &["cache"], &[], Some(&["cache"]));
    check("git", &["cache", "mailer"], &["mailer", "cache"], None);
}

#[test]
fn merge_keeps_both() {
    check("merge", &["cache"], &["cache", "mailer"], None);
    check("merge", &["cache"], &["mailer"], Some(&["cache", "mailer"]));
}

#[test]
fn what_is_not_there_is_created_whole() {
    let ours = spec("regular", &["cache"]);
    let Write::Create(object) = write(&desired(&ours), &kcp(&ours, "runtime"), None) else { panic!() };
    assert_eq!(object.value()["spec"]["modules"][0]["name"], "cache");
}

#[test]
fn only_differing_labels_are_patched_and_users_labels_stay() {
    let ours = spec("regular", &[]);
    let change = write(&desired(&ours), &kcp(&ours, "runtime"), Some(&live(ours.clone(), Some("2"))));
    assert_eq!(change, Write::Merge { patch: json!({"metadata": {"labels": {"a": "1"}}}), reverted: vec![] });
    assert_eq!(write(&desired(&ours), &kcp(&ours, "git"), Some(&live(ours.clone(), Some("1")))), Write::Nothing);
}

#[test]
fn what_is_reverted_is_said() {
    let ours = spec("regular", &["cache", "mailer"]);
    let mut edited = spec("fast", &["cache", "tracing"]);
    edited.modules[0].managed = false;
    let Write::Merge { reverted, .. } = write(&desired(&ours), &kcp(&ours, "git"), Some(&live(edited, Some("1"))))
    else {
        panic!()
    };
    assert_eq!(
        reverted,
        [
            "channel fast instead of regular",
            "module cache was changed",
            "module mailer was missing",
            "module tracing was added"
        ]
    );
}
