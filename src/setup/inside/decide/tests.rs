use super::*;

fn known(provisioned: Option<&str>, wanted: Option<(&str, &[&str])>) -> Known {
    Known {
        uid: "7f0c".to_owned(),
        group: "kubeconfig:admin".to_owned(),
        provisioned: provisioned.map(str::to_owned),
        wanted: wanted.map(|(workspace, roles)| Grants {
            workspace: workspace.to_owned(),
            roles: roles.iter().map(|&role| role.to_owned()).collect(),
        }),
    }
}

/// kcp and the status, as a pass leaves them.
#[derive(Default)]
struct World {
    bindings: BTreeMap<String, BTreeMap<String, Object>>,
    roles: BTreeMap<String, Object>,
    provisioned: Option<String>,
}

fn role(name: &str, rules: Value) -> Object {
    let value = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": rules});
    Object::new(value).expect("an object")
}

fn entering() -> Value {
    json!([{"verbs": ["access"], "nonResourceURLs": ["/"]}])
}

impl World {
    fn with_role(name: &str, rules: Value) -> World {
        World { roles: [(name.to_owned(), role(name, rules))].into_iter().collect(), ..World::default() }
    }

    /// Enacts at most so many acts. Returns them, and what is missing if the pass came to its end.
    fn pass(&mut self, wanted: Option<(&str, &[&str])>, acts_max: usize) -> (Vec<String>, Option<Vec<String>>) {
        let (known, mut observed) = (known(self.provisioned.as_deref(), wanted), Observed::default());
        let mut script = Vec::new();
        for _ in 0..acts_max {
            let act = match next(&known, &observed) {
                Next::End(missing) => return (script, Some(missing)),
                Next::Do(act) => act,
            };
            match act {
                Act::Record(workspace) => {
                    script.push(format!("record {}", workspace.as_deref().unwrap_or("none")));
                    self.provisioned.clone_from(&workspace);
                    observed.recorded = Some(workspace);
                }
                Act::List(workspace) => {
                    let found = self.bindings.get(&workspace).into_iter().flat_map(BTreeMap::values).cloned();
                    observed.bindings.insert(workspace, found.collect());
                }
                Act::Delete(workspace, object) => {
                    script.push(format!("delete {workspace} {}", object.name()));
                    self.bindings.get_mut(&workspace).expect("it is there").remove(object.name());
                    observed.deleted.insert((workspace, object.name().to_owned()));
                }
                Act::Apply(workspace, object, _) => {
                    script.push(format!("apply {workspace} {}", object.name()));
                    observed.applied.insert(object.name().to_owned());
                    self.bindings.entry(workspace).or_default().insert(object.name().to_owned(), *object);
                }
                Act::ReadRole(_, role) => drop(observed.roles.insert(role.clone(), self.roles.get(&role).cloned())),
            }
        }
        (script, None)
    }
}

#[test]
fn r38_bindings_come_follow_the_definition_and_go() {
    let mut world = World::with_role("reader", entering());
    let (script, missing) = world.pass(Some(("root:a", &["reader", "cluster-admin"])), usize::MAX);
    assert_eq!(script, ["record root:a", "apply root:a 7f0c:cluster-admin", "apply root:a 7f0c:reader"]);
    assert_eq!(missing, Some(Vec::new()));
    let expected = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "kubeconfig:admin"}]);
    let made = &world.bindings["root:a"]["7f0c:reader"];
    assert_eq!((&made.value()["subjects"], made.label(LABEL)), (&expected, Some("7f0c")));
    // Nothing is done twice.
    assert_eq!(world.pass(Some(("root:a", &["reader", "cluster-admin"])), usize::MAX).0, [""; 0]);
    let (script, _) = world.pass(Some(("root:a", &["reader"])), usize::MAX);
    assert_eq!(script, ["delete root:a 7f0c:cluster-admin"]);
    // Another workspace: those of the former go first, and it stays recorded until then.
    let (script, _) = world.pass(Some(("root:b", &["reader"])), usize::MAX);
    assert_eq!(script, ["delete root:a 7f0c:reader", "record root:b", "apply root:b 7f0c:reader"]);
    let (script, _) = world.pass(None, usize::MAX);
    assert_eq!(script, ["delete root:b 7f0c:reader", "record none"]);
    assert_eq!(world.pass(None, usize::MAX).0, [""; 0]);
}

/// Cut off after any act, the next pass comes to the same end, and nothing is where the status does not say it.
#[test]
fn r38_a_pass_may_be_cut_off_anywhere() {
    let steps: [Option<(&str, &[&str])>; 3] =
        [Some(("root:a", &["reader", "writer"])), Some(("root:b", &["reader"])), None];
    for acts in 0..12 {
        let mut world = World::with_role("reader", entering());
        for wanted in steps {
            world.pass(wanted, acts);
            for (workspace, bindings) in &world.bindings {
                assert!(bindings.is_empty() || world.provisioned.as_ref() == Some(workspace), "cut after {acts}");
            }
            world.pass(wanted, usize::MAX);
            let all: Vec<&String> = world.bindings.values().flat_map(BTreeMap::keys).collect();
            assert_eq!(all.len(), wanted.map_or(0, |(_, roles)| roles.len()), "cut after {acts}");
        }
    }
}

/// Row 72: what others change is repaired, also the role, which cannot be changed in place.
#[test]
fn r72_a_binding_that_others_changed_is_repaired() {
    let wanted: Option<(&str, &[&str])> = Some(("root:a", &["reader"]));
    let mut world = World::with_role("reader", entering());
    world.pass(wanted, usize::MAX);
    let change = |world: &mut World, change: &dyn Fn(&mut Value)| {
        let made = world.bindings.get_mut("root:a").expect("a workspace").get_mut("7f0c:reader").expect("a binding");
        let mut value = made.value().clone();
        change(&mut value);
        *made = Object::new(value).expect("an object");
    };
    change(&mut world, &|value| value["subjects"] = json!([]));
    assert_eq!(world.pass(wanted, usize::MAX).0, ["apply root:a 7f0c:reader"]);
    change(&mut world, &|value| value["roleRef"]["name"] = json!("cluster-admin"));
    assert_eq!(world.pass(wanted, usize::MAX).0, ["delete root:a 7f0c:reader", "apply root:a 7f0c:reader"]);
    // What a user adds to it stays.
    change(&mut world, &|value| value["metadata"]["labels"]["team"] = json!("one"));
    assert_eq!(world.pass(wanted, usize::MAX).0, [""; 0]);
}

#[test]
fn r38_a_missing_role_and_a_missing_right_to_enter_are_said() {
    let missing =
        |world: &mut World, roles: &[&str]| world.pass(Some(("root:a", roles)), usize::MAX).1.expect("an end");
    let mut world =
        World::with_role("reader", json!([{"verbs": ["get"], "resources": ["secrets"], "apiGroups": [""]}]));
    let expected = "ClusterRole writer does not exist in workspace root:a: create it there";
    assert_eq!(missing(&mut world, &["reader", "writer"]), [expected]);
    let found = missing(&mut world, &["reader"]);
    assert!(found[0].contains("allows the verb `access` on the path `/`"), "{found:?}");
    assert_eq!(found.len(), 1);
    for with in ["system:kcp:workspace:access", "cluster-admin"] {
        assert_eq!(missing(&mut world, &["reader", with]), [""; 0], "{with} is no object of a workspace");
    }
    let mut world = World::with_role("reader", json!([{"verbs": ["*"], "nonResourceURLs": ["/*"]}]));
    assert_eq!(missing(&mut world, &["reader"]), [""; 0]);
    assert_eq!(missing(&mut World::default(), &[]), [""; 0]);
}

#[test]
fn r38_a_workspace_is_looked_for_from_the_root_down() {
    assert_eq!(ancestry("root:company"), [("root", "company")]);
    let all = [("root", "company"), ("root:company", "team"), ("root:company:team", "a")];
    assert_eq!(ancestry("root:company:team:a"), all);
    for other in ["root", "root:", "", "2x4v8q", "system:shard"] {
        assert_eq!(ancestry(other), [], "{other}");
    }
}
