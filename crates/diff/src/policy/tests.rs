use super::{judge::judge_with, *};
use crate::{
    fixture,
    mask::{MaskKey, Masker},
    model::{Action, Difference, Effect, OverdueAction, Report, Side},
};

/// The findings of rules over one change of a Deployment in three runtimes.
#[track_caller]
fn check(difference: Difference, rules: &str, expected: &[&str]) {
    let mut report = Report { differences: vec![difference], ..Report::default() };
    let labels =
        Labels::from([(Key::new("kcp-system", "skr-0002"), BTreeMap::from([("region".to_owned(), "eu".to_owned())]))]);
    judge(&mut report, (&[], &Approvals::default()), &parse(rules).unwrap(), &labels, &masker());
    let found: Vec<String> = report
        .findings
        .iter()
        .map(|finding| format!("{:?} {}: {}", finding.severity, finding.rule, finding.message))
        .collect();
    assert_eq!(found, expected);
}

/// The findings of predefined rules.
#[track_caller]
fn by_name(report: Report, rules: &str, expected: &[&str]) {
    let mut report = report;
    report.findings.clear();
    let rules: Vec<FailOn> = rules.split(',').map(|rule| rule.parse().unwrap()).collect();
    judge(&mut report, (&rules, &Approvals::default()), &Policies::default(), &Labels::new(), &masker());
    let found: Vec<String> =
        report.findings.iter().map(|finding| format!("{}: {}", finding.rule, finding.message)).collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(parse(text).unwrap_err().to_string(), expected);
}

fn masker() -> Masker {
    Masker::new(MaskKey::new([7; 32]))
}

const SENTENCE: &str = "Deployment.apps kyma-system/cache-manager changes in 3 runtimes";

#[test]
fn a_rule_that_holds_is_silent() {
    check(fixture::difference(), "- {name: a, rule: 'new.spec.replicas > old.spec.replicas'}", &[]);
    check(fixture::difference(), "- {name: a, rule: 'object.metadata.namespace == \"kyma-system\"'}", &[]);
    check(fixture::difference(), "- {name: a, rule: 'object.metadata.labels[\"app\"] == \"cache\"'}", &[]);
    check(fixture::difference(), "- {name: a, rule: 'action == \"change\" && runtime.count == 3'}", &[]);
}

/// A misspelt kind would silently disable its rule.
#[test]
fn a_kind_that_nothing_has_is_a_warning() {
    let crd = tidegate_core::object::Object::new(serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.org"},
        "spec": {"group": "example.org", "names": {"kind": "Thing"}},
    }));
    let mut kinds = Kinds::from_definitions(&[]);
    kinds.add_object(&crd.unwrap());
    let warnings = |wanted: &str| -> Vec<(String, Option<String>)> {
        let rules = format!("- {{name: a, rule: 'true', match: {{kinds: [{wanted}]}}}}\n");
        let mut report = Report { differences: vec![fixture::difference()], ..Report::default() };
        parse(&rules).unwrap().warn(&mut report, &kinds);
        report.diagnostics.into_iter().map(|one| (one.message, one.hint)).collect()
    };
    for known in [
        "ConfigMap",
        "Deployment.apps",
        "Thing",
        "Thing.example.org",
        "Manifest.operator.kyma-project.io",
        "VirtualService",
    ] {
        assert_eq!(warnings(known), [], "{known}");
    }
    for (unknown, hint) in [
        ("Configmap", "did you mean `ConfigMap`?"),
        ("Thimg", "did you mean `Thing`?"),
        ("Deployment.app", "correct `match.kinds`; write `Kind` or `Kind.group`"),
        ("Thing.example.com", "correct `match.kinds`; write `Kind` or `Kind.group`"),
    ] {
        let found = warnings(unknown);
        assert!(found[0].0.contains(&format!("the rule `a` matches the unknown kind `{unknown}`")), "{found:?}");
        assert_eq!(found[0].1.as_deref(), Some(hint), "{unknown}");
    }
}

#[test]
fn a_rule_that_does_not_hold_says_so() {
    check(
        fixture::difference(),
        "- {name: one, severity: warning, message: too many replicas, rule: 'new.spec.replicas < 2'}",
        &[&format!("Warning one: too many replicas: {SENTENCE}")],
    );
    check(
        fixture::difference(),
        "- {name: one, rule: 'new.spec.replicas < 2'}",
        &[&format!("Error one: the rule `new.spec.replicas < 2` is violated: {SENTENCE}")],
    );
}

#[test]
fn a_message_is_computed() {
    let rule = "- name: one\n  rule: 'false'\n  messageExpression: '\"replicas: \" + string(new.spec.replicas)'\n";
    check(fixture::difference(), rule, &[&format!("Error one: replicas: 2: {SENTENCE}")]);
    let broken = rule.replace("string(new.spec.replicas)", "new.absent") + "  message: plain\n";
    check(fixture::difference(), &broken, &[&format!("Error one: plain: {SENTENCE}")]);
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_violated() {
    check(
        fixture::difference(),
        "- {name: one, rule: 'new.spec.absent == 1'}",
        &[&format!(
            "Error one: the rule `new.spec.absent == 1` cannot be evaluated: `absent` does not exist; check it with \
             `has(…)` or `in` first: {SENTENCE}"
        )],
    );
    check(
        fixture::difference(),
        "- {name: one, rule: 'new.spec.replicas'}",
        &[&format!("Error one: the result of the rule `new.spec.replicas` is not a boolean: {SENTENCE}")],
    );
}

#[test]
fn what_is_not_there_is_null() {
    let deleted = Difference { action: Action::Delete, new: None, ..fixture::difference() };
    check(deleted.clone(), "- {name: a, rule: 'new == null && object.spec.replicas == 1'}", &[]);
    let created = Difference { action: Action::Create, old: None, ..fixture::difference() };
    check(created, "- {name: a, rule: 'old == null && object == new'}", &[]);
}

#[test]
fn a_rule_may_ask_for_each_runtime() {
    let rule = "- {name: eu, rule: '!(\"region\" in runtime.labels) || runtime.labels.region != \"eu\"', message: m}";
    check(fixture::difference(), rule, &[&format!("Error eu: m: {SENTENCE} (in kcp-system/skr-0002)")]);
    check(
        fixture::difference(),
        "- {name: some, rule: 'runtime.name.endsWith(\"2\")', message: m}",
        &[&format!("Error some: m: {SENTENCE} (in kcp-system/skr-0001, kcp-system/skr-0003)")],
    );
    let alone = Difference { target: Side::ControlPlane, runtimes: [].into(), objects: 1, ..fixture::difference() };
    check(alone, "- {name: a, rule: 'runtime.name == \"\" && runtime.count == 0 && runtime.target == \"kcp\"'}", &[]);
}

#[test]
fn a_rule_is_about_what_it_matches() {
    let rule = |matches: &str| format!("- {{name: a, rule: 'false', message: m, match: {matches}}}");
    let found = format!("Error a: m: {SENTENCE}");
    for matches in
        ["{kinds: [Deployment]}", "{kinds: [Deployment.apps], targets: [runtime]}", "{actions: [create, change]}"]
    {
        check(fixture::difference(), &rule(matches), &[&found]);
    }
    for matches in ["{kinds: [Deployment.batch, Secret]}", "{targets: [kcp]}", "{actions: [delete]}"] {
        check(fixture::difference(), &rule(matches), &[]);
    }
}

#[test]
fn what_is_wrong_with_a_file_is_one_sentence_with_its_line() {
    refused(
        "- name: a\n  rule: 'new.'\n",
        "2:9: `rule`: <input>:1:5: Syntax error: no viable alternative at input '.'",
    );
    refused(
        "- name: a\n  rule: nwe.spec == 1\n",
        "2:9: `rule` uses `nwe`, which does not exist in rules; use old, new, object, runtime, action, catalog, bookkeeping",
    );
    refused(
        "- name: a\n  rule: '[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))'\n",
        "2:9: `rule`: more than 3 looping macros are nested within each other",
    );
    refused("- name: a\n  rule: 'exec(\"x\")'\n", "2:9: `rule`: the function `exec` is not supported");
    refused(
        "- name: a\n  rule: 'true'\n  sevrity: error\n",
        "3:3: a rule has no `sevrity`; use name, severity, message, messageExpression, match, rule",
    );
    refused("- name: a\n  rule: 'true'\n  severity: fatal\n", "3:13: `severity` cannot be `fatal`; use error, warning");
    refused(
        "- name: a\n  rule: 'true'\n  match: {actions: [drop]}\n",
        "3:21: `actions` cannot be `drop`; use create, change, delete, recreate, refuse, conflict",
    );
    refused("- name: a\n  rule: 'true'\n  match: {kinds: []}\n", "3:18: `kinds` must be a non-empty list");
    refused("- rule: 'true'\n", "1:3: a rule must have a `name`");
    refused("- name: a\n", "1:3: the rule `a` has no `rule`");
    refused("- {name: a, rule: 'true'}\n- {name: a, rule: 'true'}\n", "2:3: two rules are named `a`");
    refused("- name: a\n  rule: true\n", "2:9: `rule` must be a non-empty string");
    refused("policies: []\n", "1:1: the file must be a list of rules");
    refused("- a\n", "1:3: a rule must be a mapping");
    refused("[]\n---\n[]\n", "3:1: the file must contain one document: a list of rules");
    assert!(parse("- name: [\n").unwrap_err().line > 0);
    for empty in ["", "# none yet\n", "[]\n", "null\n"] {
        assert!(parse(empty).unwrap_err().message.contains("the file has no rules"), "{empty:?}");
    }
}

#[test]
fn variables_of_a_macro_are_its_own() {
    check(
        fixture::difference(),
        "- {name: a, rule: '[1, 2].all(x, x > 0) && new.spec.map(k, k) == [\"replicas\"]'}",
        &[],
    );
}

#[test]
fn rules_by_name() {
    let crd = "CustomResourceDefinition.apiextensions.k8s.io caches.cache.example.org is deleted in 2 runtimes";
    by_name(fixture::report(), "delete", &[&format!("fail-on: delete: {crd}")]);
    by_name(fixture::report(), "crd", &[&format!("fail-on: crd: {crd}")]);
    by_name(fixture::report(), "recreate", &[]);
    by_name(
        fixture::report(),
        "conflict",
        &[
            "fail-on: conflict: Deployment.apps kyma-system/cache-manager is in conflict with other managers in 1 runtime",
        ],
    );
    by_name(
        fixture::report(),
        "mass-change=16%",
        &["fail-on: mass-change=16%: 812 of 5,000 runtimes are affected, more than 16 %"],
    );
    by_name(fixture::report(), "mass-change=17%", &[]);
    by_name(Report::default(), "mass-change=0%", &[]);
}

#[test]
fn rules_by_name_are_read() {
    let problem = |text: &str| text.parse::<FailOn>().unwrap_err().to_string();
    assert_eq!(
        problem("deletes"),
        "unknown rule `deletes`: use delete, recreate, refused, crd, conflict, same-version or mass-change=N%"
    );
    for text in ["mass-change", "mass-change=101%", "mass-change=10", "mass-change=%", "mass-change=-1%"] {
        assert!(problem(text).ends_with("use mass-change=N% with a whole number up to 100"), "{text}");
    }
    assert_eq!("mass-change=7%".parse::<FailOn>().unwrap().to_string(), "mass-change=7%");
}

#[test]
fn what_was_checked_is_named_whether_it_holds_or_not() {
    let mut report = Report::default();
    let policies = parse("- {name: b, rule: 'true'}\n- {name: a, rule: 'true'}\n").unwrap();
    judge(&mut report, (&[FailOn::Delete], &Approvals::default()), &policies, &Labels::new(), &masker());
    assert_eq!(report.checked, ["a", "b", "fail-on: delete"]);
}

#[test]
fn the_example_is_read_and_does_what_it_says() {
    let policies = || parse(include_str!("../../../../examples/ci/policies.yaml")).unwrap();
    let crd = |served: bool| {
        let version = serde_json::json!({"name": "v1", "served": served});
        std::sync::Arc::new(serde_json::json!({"metadata": {"name": "a.b"}, "spec": {"versions": [version]}}))
    };
    let mut changed = fixture::difference();
    changed.id = tidegate_core::object::ObjectId::new("apiextensions.k8s.io", "CustomResourceDefinition", "", "a.b");
    (changed.old, changed.new) = (Some(crd(true)), Some(crd(false)));
    let mut gone = Difference { action: Action::Delete, runtimes: fixture::keys(501), ..fixture::difference() };
    gone.id = tidegate_core::object::ObjectId::new("", "Namespace", "", "a");
    let mut report = Report { differences: vec![changed, gone], ..Report::default() };
    judge(&mut report, (&[], &Approvals::default()), &policies(), &Labels::new(), &masker());
    let found: Vec<(&str, Severity)> = report.findings.iter().map(|one| (&*one.rule, one.severity)).collect();
    let expected = [
        ("namespaces-stay", Severity::Error),
        ("versions-of-crds-stay", Severity::Error),
        ("data-loss", Severity::Warning),
        ("production-in-waves", Severity::Warning),
    ];
    assert_eq!(found, expected);
    assert!(report.findings[1].message.starts_with("CustomResourceDefinition a.b stops serving a version: "));

    // The same copy of a definition in 900 runtimes, which repeats the definition.
    let mut bumped = content("1.1.0", "b");
    let mut copy = content("1.0.0", "b").differences.swap_remove(0);
    copy.id.kind = "ModuleTemplate".into();
    bumped.differences.push(Difference { runtimes: fixture::keys(900), ..copy });
    bumped.runtimes.compared = 1_000;
    assert!(bumped.bookkeeping().contains(&(bumped.differences.len() - 1)));
    judge(&mut bumped, (&[], &Approvals::default()), &policies(), &Labels::new(), &masker());
    assert!(bumped.findings.iter().all(|one| one.rule != "production-in-waves"), "{:?}", bumped.findings);
}

#[test]
fn evaluations_are_bounded_and_their_end_is_no_silence() {
    let mut report = Report { differences: vec![fixture::difference(); 3], ..Report::default() };
    let policies = parse("- {name: a, rule: 'runtime.name != \"\"'}\n").unwrap();
    judge_with(&mut report, &policies, &Labels::new(), &masker(), 8);
    assert_eq!(report.findings.len(), 1);
    assert!(report.findings[0].message.contains("some were skipped"), "{:?}", report.findings);
    let mut report = Report { differences: vec![fixture::difference(); 3], ..Report::default() };
    judge_with(&mut report, &policies, &Labels::new(), &masker(), 9);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// The author of a Secret must not influence what rules see.
#[test]
fn copies_of_secrets_values_are_seen_by_rules_and_not_by_messages() {
    let mut masker = masker();
    masker.meet(&serde_json::json!({"kind": "Secret", "stringData": {"a": "replicas", "b": "kyma-system"}}));
    let mut report = Report { differences: vec![fixture::difference()], ..Report::default() };
    let rules = "- {name: one, rule: 'has(new.spec.replicas) && new.spec.replicas < 2', messageExpression: 'new.spec.map(k, k).join(\" \")'}\n\
                 - {name: two, rule: 'new.metadata.namespace != old.metadata.namespace', message: stays}\n\
                 - {name: zoo, rule: 'new.spec[new.spec.map(k, k)[0] + \"x\"] == 1'}\n";
    judge(&mut report, (&[], &Approvals::default()), &parse(rules).unwrap(), &Labels::new(), &masker);
    let messages: Vec<&str> = report.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[0].starts_with("(masked: Secret "), "{messages:?}");
    assert!(messages[1].starts_with("stays: "), "{messages:?}");
    assert!(!messages[2].contains("`replicasx`"), "{messages:?}");
}

/// A Manifest whose module gets the content `tree`, and the object that changes with it.
fn content(version: &str, tree: &str) -> Report {
    let manifest = |version: &str, tree: &str| {
        std::sync::Arc::new(serde_json::json!({
            "metadata": {"labels": {"operator.kyma-project.io/module-name": "cache"}},
            "spec": {"version": version, "install": {"source": {"type": "git", "tree": tree}}},
        }))
    };
    let mut one = fixture::difference();
    one.target = Side::ControlPlane;
    one.id =
        tidegate_core::object::ObjectId::new("operator.kyma-project.io", "Manifest", "kcp-system", "skr-0001-cache");
    (one.old, one.new) = (Some(manifest("1.0.0", "a")), Some(manifest(version, tree)));
    Report { differences: vec![one, fixture::difference()], ..Report::default() }
}

#[test]
fn content_that_changes_without_a_new_version_is_a_finding_with_and_without_a_rule() {
    let found = |mut report: Report, fail_on: &[FailOn]| -> Vec<(Severity, String)> {
        judge(&mut report, (fail_on, &Approvals::default()), &Policies::default(), &Labels::new(), &masker());
        report.findings.into_iter().map(|finding| (finding.severity, finding.message)).collect()
    };
    let message = "the content of cache 1.0.0 changes in 3 runtimes without a new version".to_owned();
    assert_eq!(found(content("1.0.0", "b"), &[]), [(Severity::Warning, message.clone())]);
    assert_eq!(found(content("1.0.0", "b"), &[FailOn::SameVersion]), [(Severity::Error, message)]);
    assert_eq!(found(content("1.1.0", "b"), &[FailOn::SameVersion]), []);
    let mut comment = content("1.0.0", "b");
    comment.differences.truncate(1);
    assert_eq!(found(comment, &[FailOn::SameVersion]), [], "no object differs");
}

#[test]
fn what_the_api_server_refuses_is_a_finding_with_and_without_a_rule() {
    let found = |fail_on: &[FailOn]| -> Vec<(Severity, String)> {
        let mut one = fixture::difference();
        (one.action, one.refusal) = (Action::Refuse, Some("the field cannot be changed".to_owned()));
        let mut report = Report { differences: vec![one], ..Report::default() };
        judge(&mut report, (fail_on, &Approvals::default()), &Policies::default(), &Labels::new(), &masker());
        report.findings.into_iter().map(|finding| (finding.severity, finding.rule)).collect()
    };
    assert_eq!(found(&[]), [(Severity::Warning, "refused".to_owned())]);
    assert_eq!(found(&[FailOn::Refused]), [(Severity::Error, "fail-on: refused".to_owned())]);
}

#[test]
fn what_may_happen_because_an_earlier_change_was_refused_violates_the_same_rules() {
    let found = |action: Action, rule: FailOn| -> Vec<String> {
        let overdue = OverdueAction { action, sentence: "it may".to_owned() };
        let one = Difference { overdue: Some(overdue), ..fixture::difference() };
        let mut report = Report { differences: vec![one], ..Report::default() };
        judge(&mut report, (&[rule], &Approvals::default()), &Policies::default(), &Labels::new(), &masker());
        let errors = report.findings.into_iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|finding| finding.message).collect()
    };
    let recreate = found(Action::Recreate, FailOn::Recreate);
    assert!(recreate.len() == 1 && recreate[0].ends_with("; it may"), "{recreate:?}");
    assert_eq!(found(Action::Refuse, FailOn::Refused).len(), 1);
    assert_eq!(found(Action::Recreate, FailOn::Refused), [""; 0]);
    assert_eq!(found(Action::Refuse, FailOn::Recreate), [""; 0]);
}

#[test]
fn what_users_lose_with_a_namespace_or_a_volume_is_a_warning() {
    let found = |kind: &str, effect: Effect| -> Vec<String> {
        let mut one = fixture::difference();
        (one.action, one.effect, one.target) = (Action::Delete, effect, Side::Runtime);
        one.id = tidegate_core::object::ObjectId::new("", kind, "", "shop");
        let mut report = Report { differences: vec![one], ..Report::default() };
        judge(&mut report, (&[], &Approvals::default()), &Policies::default(), &Labels::new(), &masker());
        report.findings.into_iter().map(|finding| format!("{}: {}", finding.rule, finding.message)).collect()
    };
    let end = "to keep it, annotate it with `tidegate.dev/prune: disabled` before it leaves its module";
    assert_eq!(
        found("Namespace", Effect::NeedsConfirmation),
        [format!(
            "data-loss: Namespace shop is deleted in 3 runtimes, with everything in it, also what users created; {end}"
        )]
    );
    assert_eq!(
        found("PersistentVolumeClaim", Effect::Applies),
        [format!("data-loss: PersistentVolumeClaim shop is deleted in 3 runtimes, with its data; {end}")]
    );
    assert_eq!(found("Namespace", Effect::Held), [""; 0]);
    assert_eq!(found("ConfigMap", Effect::Applies), [""; 0]);
}

#[test]
fn what_is_approved_is_a_warning_that_says_by_whom() {
    let mut approvals = Approvals::default();
    approvals.approve("delete", "commit 1234567").unwrap();
    approvals.approve("delete", "a label").unwrap();
    let unknown = approvals.approve("everything", "a label").unwrap_err();
    let names = "delete, recreate, refused, crd, conflict, same-version, mass-change";
    assert_eq!(unknown.to_string(), format!("`everything` is not a rule that can be approved: use {names}"));
    let gone = Difference { action: Action::Delete, ..fixture::difference() };
    let again = Difference { action: Action::Recreate, ..fixture::difference() };
    let mut report = Report { differences: vec![gone, again], ..Report::default() };
    let rules = (&[FailOn::Delete, FailOn::Recreate][..], &approvals);
    judge(&mut report, rules, &Policies::default(), &Labels::new(), &masker());
    let found: Vec<(Severity, bool)> = report
        .findings
        .iter()
        .map(|one| (one.severity, one.message.ends_with("(approved by commit 1234567)")))
        .collect();
    assert_eq!(found, [(Severity::Error, false), (Severity::Warning, true)]);
}

/// What repeats other differences neither violates rules nor counts as affected.
#[test]
fn bookkeeping_is_not_counted() {
    let mut report = content("1.1.0", "b");
    report.differences[0].action = Action::Delete;
    let mut digests = content("1.0.0", "b").differences.swap_remove(0);
    digests.id.kind = "ModuleTemplate".into();
    report.differences.push(Difference { runtimes: fixture::keys(900), ..digests });
    report.runtimes.compared = 1_000;
    report.count_runtimes();
    assert_eq!((report.runtimes.touched, report.bookkeeping()), (3, [0, 2].into()));
    by_name(report, "delete,mass-change=10%", &[]);
}

/// Runtimes that have the module keep their default resource, so none of them counts as affected.
#[test]
fn a_default_resource_that_changes_is_a_finding_and_affects_no_runtime() {
    let manifest = |resource: serde_json::Value, policy: &str| {
        std::sync::Arc::new(serde_json::json!({
            "metadata": {"labels": {"operator.kyma-project.io/module-name": "cache"}},
            "spec": {"version": "1.0.0", "customResourcePolicy": policy, "resource": resource},
        }))
    };
    let report = |new: serde_json::Value, policy: &str| {
        let old = serde_json::json!({"kind": "Cache", "spec": {"memory": "1Gi"}});
        let mut report = content("1.0.0", "b");
        report.differences.truncate(1);
        let one = &mut report.differences[0];
        (one.old, one.new) = (Some(manifest(old, "CreateAndDelete")), Some(manifest(new, policy)));
        report.runtimes.compared = 3;
        report.count_runtimes();
        report
    };
    let changed = serde_json::json!({"kind": "Cache", "spec": {"memory": "2Gi"}});
    let found = report(changed.clone(), "CreateAndDelete");
    assert_eq!((found.runtimes.touched, found.bookkeeping()), (0, [0].into()));
    let message = "fail-on: same-version: the default resource of cache 1.0.0 changes without a new version: only \
                   runtimes that get the module from now on get the change, not the 3 runtimes with this version";
    by_name(found, "same-version,mass-change=10%", &[message]);
    // Another kind may be another object, and a policy says whether there is one at all.
    let other = serde_json::json!({"kind": "Store", "spec": {"memory": "1Gi"}});
    assert_eq!(report(other, "CreateAndDelete").bookkeeping(), [].into());
    let ignored = report(changed.clone(), "Ignore");
    assert_eq!((ignored.runtimes.touched, ignored.bookkeeping()), (3, [].into()));
    assert!(ignored.differences[0].same_version_default().is_none());
    let mut never = report(changed, "CreateAndDelete");
    let one = &mut never.differences[0];
    for side in [&mut one.old, &mut one.new] {
        let manifest = std::sync::Arc::make_mut(side.as_mut().unwrap());
        manifest["spec"]["customResourcePolicy"] = "Ignore".into();
    }
    assert!(never.differences[0].same_version_default().is_none(), "no runtime gets it");
}
