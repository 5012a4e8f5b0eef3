use serde_json::json;

use super::*;

fn id(kind: Kind, name: &str) -> Id {
    (kind, Key::new("kcp-system", name))
}

fn of_flux(name: &str) -> (Id, Value) {
    let labels =
        json!({"kustomize.toolkit.fluxcd.io/name": "kcp", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
    (id(Kind::Kyma, name), json!({"metadata": {"labels": labels}}))
}

fn of_argo(name: &str) -> (Id, Value) {
    let tracking = format!("shop:operator.kyma-project.io/Kyma:kcp-system/{name}");
    (id(Kind::Kyma, name), json!({"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": tracking}}}))
}

fn find(program: Program, live: &[(Id, Value)], owner: Option<&Value>) -> Vec<HandOver> {
    hand_overs(program, live.iter().map(|(id, object)| (id, object)), |_| owner, &BTreeSet::new())
}

/// The progress of the steps of the only hand-over.
#[track_caller]
fn check(program: Program, live: &[(Id, Value)], owner: Option<&Value>, expected: &[Progress]) -> HandOver {
    let mut found = find(program, live, owner);
    assert_eq!(found.len(), 1, "{found:#?}");
    let progress: Vec<Progress> = found[0].steps.iter().map(|step| step.progress).collect();
    assert_eq!(progress, expected);
    found.remove(0)
}

use Progress::{Check, Done, Next, Then};
const SAID: Progress = Progress::Checked;

#[test]
fn a_kustomization_hands_over_in_four_steps_that_the_control_plane_shows() {
    let owner = |suspend: bool, entries: &[&str]| {
        let entries: Vec<Value> = entries.iter().map(|id| json!({"id": id, "v": "v1beta2"})).collect();
        json!({"spec": {"suspend": suspend}, "status": {"inventory": {"entries": entries}}})
    };
    let listed = ["kcp-system_b_operator.kyma-project.io_Kyma", "flux-system_other__ConfigMap"];
    let mut live = vec![of_flux("b"), of_flux("a")];
    let found = check(Program::Flux, &live, Some(&owner(false, &listed)), &[Next, Then, Then, Then]);
    assert_eq!(found.title(), "2 Kymas of the Flux Kustomization flux-system/kcp in kcp-system");
    assert_eq!(found.names, ["a", "b"]);
    let selector =
        "-n kcp-system -l kustomize.toolkit.fluxcd.io/name=kcp,kustomize.toolkit.fluxcd.io/namespace=flux-system";
    let commands: Vec<String> = found.steps.into_iter().flat_map(|step| step.commands).collect();
    assert_eq!(
        commands,
        [
            "flux suspend kustomization kcp -n flux-system".to_owned(),
            format!("kubectl annotate kyma {selector} kustomize.toolkit.fluxcd.io/prune=disabled --overwrite"),
            "flux resume kustomization kcp -n flux-system".to_owned(),
            format!(
                "kubectl label kyma {selector} kustomize.toolkit.fluxcd.io/name- kustomize.toolkit.fluxcd.io/namespace-"
            ),
            // The labels select no object any more, and until then each one is protected.
            "kubectl annotate kyma -n kcp-system a b kustomize.toolkit.fluxcd.io/prune-".to_owned(),
        ]
    );
    check(Program::Flux, &live, Some(&owner(true, &listed)), &[Done, Next, Then, Then]);
    live[0].1["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/prune": "disabled"});
    check(Program::Flux, &live, Some(&owner(true, &listed)), &[Done, Next, Then, Then]);
    live[1].1["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/prune": "disabled"});
    check(Program::Flux, &live, Some(&owner(true, &listed)), &[Done, Done, Next, Then]);
    check(Program::Flux, &live, Some(&owner(false, &listed)), &[Next, Done, Then, Then]);
    check(Program::Flux, &live, Some(&owner(false, &listed[1..])), &[Done, Done, Done, Next]);
    // Its marks alone are left.
    assert_eq!(find(Program::Flux, &[], None), []);
}

#[test]
fn an_owner_in_another_cluster_is_to_be_checked_there_and_no_later_step_is_next() {
    check(Program::Flux, &[of_flux("a")], None, &[Check, Then, Then, Then]);
    let (id, mut object) = of_flux("a");
    object["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/prune": "disabled"});
    check(Program::Flux, &[(id, object)], None, &[Check, Done, Then, Then]);
}

#[test]
fn an_application_hands_over_what_its_repository_no_longer_has() {
    let owner = |automated: Value, requires_pruning: bool| {
        let resource =
            json!({"kind": "Kyma", "namespace": "kcp-system", "name": "a", "requiresPruning": requires_pruning});
        json!({"spec": {"syncPolicy": {"automated": automated}}, "status": {"resources": [resource]}})
    };
    let mut live = vec![of_argo("a")];
    check(Program::ArgoCd, &live, Some(&owner(json!({"prune": true}), false)), &[Next, Then, Then, Then]);
    check(Program::ArgoCd, &live, Some(&owner(json!({"enabled": false}), false)), &[Done, Next, Then, Then]);
    live[0].1["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] = json!("Validate=false, Prune=false");
    check(Program::ArgoCd, &live, Some(&owner(Value::Null, false)), &[Done, Done, Next, Then]);
    let found = check(Program::ArgoCd, &live, Some(&owner(Value::Null, true)), &[Done, Done, Done, Next]);
    assert_eq!(
        found.steps[3].commands,
        [
            "kubectl annotate kyma -n kcp-system a argocd.argoproj.io/tracking-id- argocd.argoproj.io/instance-",
            "kubectl label kyma -n kcp-system a argocd.argoproj.io/instance-",
            "kubectl annotate kyma -n kcp-system a argocd.argoproj.io/sync-options-",
        ]
    );
    // Thousands of names do not fit into one command.
    let live: Vec<(Id, Value)> = (0..120).map(|number| of_argo(&format!("k{number:03}"))).collect();
    let found = check(Program::ArgoCd, &live, None, &[Check, Then, Then, Then]);
    assert_eq!(found.steps[1].commands.len(), 3);
}

#[test]
fn the_label_of_other_tools_goes_only_where_argo_cd_tracks_by_it_and_options_stay() {
    let with_label = |name: &str, options: Value, managers: &[&str]| {
        let (id, mut object) = of_argo(name);
        object["metadata"]["labels"] = json!({"app.kubernetes.io/instance": "shop"});
        object["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] = options;
        let managers = managers.iter().map(|manager| json!({"manager": manager}));
        object["metadata"]["managedFields"] = managers.collect();
        (id, object)
    };
    let live = [
        with_label("a", Value::Null, &["argocd-controller"]),
        with_label("b", json!("Validate=false, Prune=confirm"), &["helm"]),
        with_label("c", json!("Prune=false"), &["helm"]),
    ];
    let owner = json!({"spec": {}, "status": {"resources": []}});
    let found = check(Program::ArgoCd, &live, Some(&owner), &[Done, Next, Done, Then]);
    assert_eq!(
        found.steps[1].commands,
        [
            "kubectl annotate kyma -n kcp-system a argocd.argoproj.io/sync-options=Prune=false --overwrite",
            "kubectl annotate kyma -n kcp-system b argocd.argoproj.io/sync-options=Validate=false,Prune=false --overwrite",
        ]
    );
    assert_eq!(
        found.steps[3].commands,
        [
            "kubectl annotate kyma -n kcp-system a b c argocd.argoproj.io/tracking-id- argocd.argoproj.io/instance-",
            "kubectl label kyma -n kcp-system a b c argocd.argoproj.io/instance-",
            "kubectl label kyma -n kcp-system a app.kubernetes.io/instance-",
            "kubectl annotate kyma -n kcp-system a b c argocd.argoproj.io/sync-options-",
        ]
    );
}

#[test]
fn a_release_of_helm_keeps_what_its_chart_says() {
    let labels = json!({"helm.toolkit.fluxcd.io/name": "kcp", "helm.toolkit.fluxcd.io/namespace": "flux-system"});
    let object = |annotations: Value| json!({"metadata": {"labels": labels, "annotations": annotations}});
    let template = id(Kind::ModuleTemplate, "cache-1.0.0");
    check(Program::Flux, &[(template.clone(), object(json!({})))], None, &[Next, Then, Then]);
    let kept = object(json!({"helm.sh/resource-policy": "keep"}));
    check(Program::Flux, &[(template, kept)], None, &[Done, Check, Then]);
}

#[test]
fn kinds_come_in_the_order_in_which_they_are_applied_and_each_tool_has_its_own() {
    let labels = of_flux("a").1;
    let live = [(id(Kind::Kyma, "a"), labels.clone()), (id(Kind::ModuleTemplate, "a"), labels), of_argo("b")];
    let kinds = |program: Program| -> Vec<String> {
        find(program, &live, None)
            .into_iter()
            .map(|found| format!("{} {}", found.kind, found.names.join(" ")))
            .collect()
    };
    assert_eq!(kinds(Program::Flux), ["ModuleTemplate a", "Kyma a"]);
    assert_eq!(kinds(Program::ArgoCd), ["Kyma b"]);
    assert_eq!(find(Program::Flux, &[(id(Kind::Kyma, "a"), json!({"metadata": {}}))], None), []);
}

#[test]
fn a_name_from_an_annotation_is_one_word() {
    assert_eq!(word("shop"), "shop");
    assert_eq!(word("a b'; rm\n"), "'a b'\\''; rm'");
    assert_eq!(word(""), "''");
}

#[test]
fn what_a_user_has_checked_counts_only_where_the_control_plane_does_not_show_it() {
    let (id, mut object) = of_flux("a");
    object["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/prune": "disabled"});
    let progress = |owner: Option<&Value>, checked: &[&str]| -> Vec<Progress> {
        let checked = checked.iter().map(|text| text.parse().unwrap()).collect();
        let found = hand_overs(Program::Flux, [(&id, &object)], |_| owner, &checked);
        found[0].steps.iter().map(|step| step.progress).collect()
    };
    assert_eq!(progress(None, &[]), [Check, Done, Then, Then]);
    assert_eq!(progress(None, &["Kyma/stop"]), [SAID, Done, Check, Then]);
    assert_eq!(progress(None, &["kyma/stop", "Kyma/remove"]), [SAID, Done, SAID, Next]);
    assert_eq!(progress(None, &["Kyma/remove"]), [Check, Done, SAID, Then], "the order stays");
    assert_eq!(progress(None, &["Watcher/stop", "Watcher/remove"]), [Check, Done, Then, Then], "of another kind");
    let running = json!({"spec": {}, "status": {"inventory": {"entries": [
        {"id": "kcp-system_a_operator.kyma-project.io_Kyma"},
    ]}}});
    assert_eq!(progress(Some(&running), &["Kyma/stop", "Kyma/remove"]), [Next, Done, Then, Then], "it is not");
}

#[test]
fn a_checked_step_is_a_kind_and_what_the_step_is_for() {
    let of = |text: &str| text.parse::<Checked>().map(|checked| checked.to_string());
    assert_eq!(of("Kyma/remove").as_deref(), Ok("Kyma/remove"));
    assert_eq!(of("moduletemplate/stop").as_deref(), Ok("ModuleTemplate/stop"));
    for wrong in ["Kyma", "remove", "Kyma/marks", "Kyma/3", "Pod/remove"] {
        assert_eq!(of(wrong), Err(UnknownStep), "{wrong}");
    }
}

#[test]
fn an_application_in_any_namespace_is_named_as_its_command_line_takes_it() {
    for (name, expected) in [("kcp", "kcp"), ("team-a_kcp", "team-a/kcp"), ("_kcp", "_kcp"), ("a_", "a_")] {
        assert_eq!(of_command_line(name), expected);
    }
    let tracking = "team-a_kcp:operator.kyma-project.io/Kyma:kcp-system/a";
    let annotations = json!({"argocd.argoproj.io/tracking-id": tracking});
    let live = vec![(id(Kind::Kyma, "a"), json!({"metadata": {"annotations": annotations}}))];
    let found = find(Program::ArgoCd, &live, None);
    let commands: Vec<&String> = found[0].steps.iter().flat_map(|step| &step.commands).collect();
    assert_eq!(commands[0], "argocd app set team-a/kcp --sync-policy none");
    assert!(commands.iter().any(|command| *command == "argocd app get team-a/kcp --refresh"), "{commands:?}");
}

#[test]
fn what_is_left_without_marks_is_no_end_of_a_hand_over() {
    let kyma =
        |name: &str, annotations: Value| (id(Kind::Kyma, name), json!({"metadata": {"annotations": annotations}}));
    let of = |program: Program, live: &[(Id, Value)], owners: &[(&Key, &Value)]| {
        let left = left(program, live.iter().map(|(id, object)| (id, object)), owners);
        left.into_iter().map(|left| [vec![left.what], left.commands].concat().join("; ")).collect::<Vec<_>>()
    };
    // While an object has its marks, its steps say the same.
    assert_eq!(of(Program::Flux, &[of_flux("a"), kyma("b", json!({}))], &[]), [""; 0]);

    let protected = json!({"kustomize.toolkit.fluxcd.io/prune": "disabled"});
    let live = [kyma("a", protected.clone()), kyma("b", protected), kyma("c", json!({}))];
    let annotated = "the protection from the prune of Flux is left on 2 Kymas in kcp-system; kubectl annotate kyma -n \
                     kcp-system a b kustomize.toolkit.fluxcd.io/prune-";
    assert_eq!(of(Program::Flux, &live, &[]), [annotated]);
    // The inventory comes first: without the protection, what it lists is pruned.
    let owner = json!({"status": {"inventory": {"entries": [
        {"id": "kcp-system_a_operator.kyma-project.io_Kyma"}, {"id": "kcp-system_c_operator.kyma-project.io_Kyma"},
    ]}}});
    let key = Key::new("flux-system", "kcp");
    let listed = "the Flux Kustomization flux-system/kcp still lists 2 Kymas in kcp-system without its marks: a, c; remove \
                  them from its repository, or it applies the marks again";
    let rest = "the protection from the prune of Flux is left on 1 Kyma in kcp-system; kubectl annotate kyma -n \
                kcp-system b kustomize.toolkit.fluxcd.io/prune-";
    assert_eq!(of(Program::Flux, &live, &[(&key, &owner)]), [listed, rest]);

    let live = [kyma("a", json!({"argocd.argoproj.io/sync-options": "Prune=false,Validate=false"}))];
    let annotated = "the protection from the prune of Argo CD is left on 1 Kyma in kcp-system; kubectl annotate kyma -n \
                     kcp-system a argocd.argoproj.io/sync-options-";
    assert_eq!(of(Program::ArgoCd, &live, &[]), [annotated]);
    let application = json!({"status": {"resources": [{"kind": "Kyma", "namespace": "kcp-system", "name": "a"}]}});
    let listed = "the Argo CD Application flux-system/kcp still lists 1 Kyma in kcp-system without its marks: a; remove it \
                  from its repository, or it applies the marks again";
    assert_eq!(of(Program::ArgoCd, &live, &[(&key, &application)]), [listed]);
}
