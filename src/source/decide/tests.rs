use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_core::{
    definition::Kind,
    diagnostic::Diagnostics,
    object::ObjectId,
    template::{Engine, Template, TemplateFile},
};

use super::*;
use crate::source::{
    fixtures::{failed, source},
    state::{LastFetch, ReadFailure, ReadOutcome, SeenSecret},
};

const MINUTE: Duration = Duration::from_secs(60);
const FLUX: [(&str, &str); 2] =
    [("kustomize.toolkit.fluxcd.io/name", "apps"), ("kustomize.toolkit.fluxcd.io/namespace", "flux-system")];

#[test]
fn a_pass_starts_with_what_can_be_read() {
    let live = ObjectMeta::default();
    let leaving: ObjectMeta = serde_json::from_value(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })).unwrap();
    for (readable, unreadable, is_held, expected) in [
        (Some(&live), None, false, Start::Reconcile),
        (Some(&live), None, true, Start::Reconcile),
        (Some(&live), Some(&live), false, Start::Reconcile),
        (Some(&leaving), None, false, Start::Leave),
        // What cannot be read may have gained a policy that keeps everything.
        (Some(&leaving), Some(&leaving), false, Start::Defer),
        (Some(&live), Some(&leaving), false, Start::Defer),
        (None, Some(&live), false, Start::Defer),
        (None, Some(&live), true, Start::Defer),
        (None, None, true, Start::AwaitReturn),
        (None, None, false, Start::Forget),
    ] {
        assert_eq!(start(readable, unreadable, is_held), expected, "{readable:?} {unreadable:?} {is_held}");
    }
}

#[test]
fn a_pass_ends_with_what_comes_first() {
    let (terms, now) = (Terms::from_source(&source(&json!({ "interval": "5m" }))).unwrap(), Instant::now());
    let check = |outcome: ReadOutcome, failure, again, expected: Finish| {
        let last = ended(&terms, outcome, now + MINUTE);
        assert_eq!(finish(&terms, &last, false, failure, again, now, 0.0), expected, "{last:?}");
    };
    let resync = |wait| Finish::After(wait, Trigger::Resync);
    check(ReadOutcome::Done, None, false, resync(MINUTE));
    check(ReadOutcome::Done, None, true, Finish::After(LOOK_AGAIN, Trigger::Retry));
    check(ReadOutcome::Done, Some(Class::Waiting), true, Finish::Failed(Class::Waiting));
    check(failed(Remedy::Retry), None, true, Finish::FailedFor(Class::Transient, Duration::from_secs(2)));
    check(failed(Remedy::Retry), Some(Class::Stalled), true, Finish::Failed(Class::Stalled));
    check(failed(Remedy::Secret(SeenSecret::default())), None, false, resync(SECRET_LOOK));
    check(failed(Remedy::Edit), None, false, resync(MINUTE));
    check(failed(Remedy::Later), None, false, resync(MINUTE));
    assert_eq!(finish(&terms, &Fetching::Pending, false, None, false, now, 0.0), resync(MINUTE * 5));
}

#[test]
fn a_source_that_cannot_be_fetched_is_retried_within_its_interval_or_when_its_server_asks() {
    let seconds = Duration::from_secs;
    let now = Instant::now();
    for (interval, failures, asked, expected) in [
        ("10s", 1, None, 500),
        ("10s", 100, None, 8000),
        ("60s", 100, None, 48_000),
        ("1h", 100, None, 120_000),
        ("10s", 1, Some(seconds(30)), 30_000),
        ("10s", 100, Some(seconds(3)), 8000),
        // No server stops a source for hours.
        ("10s", 1, Some(seconds(86_400)), 120_000),
    ] {
        let terms = Terms::from_source(&source(&json!({ "interval": interval }))).unwrap();
        let ReadOutcome::Failed(failure) = failed(Remedy::Retry) else { unreachable!() };
        let outcome = ReadOutcome::Failed(ReadFailure { retry_after: asked, ..failure });
        let last = LastFetch { settings: terms.fetching(), next: now + MINUTE, failures, outcome };
        let found = finish(&terms, &Fetching::Ended(Box::new(last)), false, None, false, now, 0.0);
        let expected = Finish::FailedFor(Class::Transient, Duration::from_millis(expected));
        assert_eq!(found, expected, "{interval} {failures} {asked:?}");
    }
}

#[test]
fn a_source_whose_fetch_is_in_progress_waits_for_its_end() {
    let (terms, now) = (Terms::from_source(&source(&json!({}))).unwrap(), Instant::now());
    for (last, failure, again, expected) in [
        (Fetching::Pending, None, false, Finish::Awaiting(FETCH_LOOK)),
        (Fetching::Pending, None, true, Finish::Awaiting(LOOK_AGAIN)),
        (ended(&terms, failed(Remedy::Retry), now), None, false, Finish::Awaiting(FETCH_LOOK)),
        (Fetching::Pending, Some(Class::Transient), false, Finish::Failed(Class::Transient)),
    ] {
        assert_eq!(finish(&terms, &last, true, failure, again, now, 0.0), expected, "{last:?} {failure:?} {again}");
    }
}

#[test]
fn objects_may_be_missing_after_a_rewrite_or_a_change_of_the_scope() {
    let mut source = source(&json!({}));
    let terms = Terms::from_source(&source).unwrap();
    let mut check = |condition: Option<(&str, &str)>, history, expected: Moved| {
        source.status = condition.map(|(scope, settled)| {
            let condition = json!({
                "type": status::SCOPE, "status": settled, "reason": format!("Test:{scope}"), "message": "a sentence",
                "lastTransitionTime": "2024-05-01T00:00:00Z",
            });
            serde_json::from_value(json!({ "conditions": [condition] })).unwrap()
        });
        assert_eq!(moved(&source, history, &terms), expected, "{condition:?} {history:?}");
    };
    let scope = terms.scope();
    check(None, BranchHistory::Linear, Moved::No);
    check(None, BranchHistory::Rewritten, Moved::Rewrite);
    check(Some((&scope, "True")), BranchHistory::Linear, Moved::No);
    check(Some((&scope, "True")), BranchHistory::Rewritten, Moved::Rewrite);
    check(Some((&scope, "False")), BranchHistory::Linear, Moved::Rewrite);
    check(Some(("another", "True")), BranchHistory::Linear, Moved::Spec);
    check(Some(("another", "False")), BranchHistory::Rewritten, Moved::Spec);
}

#[test]
fn a_pass_is_asked_for_until_the_status_says_that_it_was() {
    for (handled, before, expected) in [
        (None, None, false),
        (Some("one"), None, true),
        (Some("one"), Some("one"), false),
        (Some("two"), Some("one"), true),
        (None, Some("one"), false),
    ] {
        let mut source = source(&json!({}));
        source.status = before.map(|before| serde_json::from_value(json!({"lastHandledReconcileAt": before})).unwrap());
        assert_eq!(is_asked(&source, handled), expected, "{handled:?} {before:?}");
    }
}

#[test]
fn a_new_revision_is_the_cause_of_its_writes() {
    let triggers = Triggers::default().with(Trigger::Resync);
    assert_eq!(cause(Rollout::Pending, triggers), Trigger::Git.name());
    assert_eq!(cause(Rollout::Done, triggers), triggers.to_string());
}

#[test]
fn a_rollout_ends_with_a_pass_without_failures() {
    let failures = [((Kind::Kyma, Key::new("kcp-system", "a")), "rejected".to_owned())];
    assert!(is_rolled_out(Rollout::Pending, &[]));
    assert!(!is_rolled_out(Rollout::Pending, &failures));
    assert!(!is_rolled_out(Rollout::Done, &[]));
}

#[test]
fn the_mirror_keeps_the_trees_of_modules_and_of_manifests() {
    let tree = |digit: char| digit.to_string().repeat(40);
    let manifest = |source: Value| -> Arc<Manifest> {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": { "name": "a", "namespace": "kcp-system" },
            "spec": { "remote": true, "install": { "name": "raw-manifest", "source": source } },
        }))
        .map(Arc::new)
        .unwrap()
    };
    let git = |source: &str, tree: &str| manifest(json!({ "type": "git", "source": source, "tree": tree }));
    let manifests = [
        git("kcp-system/dev", &tree('b')),
        git("kcp-system/other", &tree('c')),
        git("kcp-system/dev", "not a tree"),
        manifest(json!({ "type": "oci-ref", "source": "kcp-system/dev", "tree": tree('d') })),
    ];
    let module: Oid = tree('a').parse().unwrap();
    let kept = trees(&Key::new("kcp-system", "dev"), [&module.into()].into_iter(), &manifests);
    assert_eq!(kept, [module, tree('b').parse().unwrap()].into());
}

#[test]
fn a_source_waits_in_silence_for_others_only_for_a_time() {
    let begin = Instant::now();
    let (soon, late) = (begin + EARLY_MAX / 2, begin + EARLY_MAX);
    assert!(!is_early(early_since(None, false, begin), begin), "nothing waits");
    let since = early_since(None, true, begin);
    assert!(is_early(since, begin));
    let still = early_since(since, true, soon);
    assert_eq!(still, since, "from its beginning");
    assert!(is_early(still, soon) && !is_early(still, late));
    assert_eq!(early_since(still, false, soon), None, "it is over");
}

#[test]
fn only_what_still_is_ours_and_not_kept_is_deleted() {
    let ours = live(&[(label::SOURCE, "kcp-system.dev")], &[]);
    assert!(may_prune(&ours, "kcp-system.dev", "u1"));
    assert!(!may_prune(&ours, "kcp-system.dev", "u2"), "a later object of the same name");
    assert!(!may_prune(&ours, "kcp-system.other", "u1"), "another source's");
    assert!(!may_prune(&Metadata { deleting: true, ..ours.clone() }, "kcp-system.dev", "u1"), "on its way");
    let kept = live(&[(label::SOURCE, "kcp-system.dev")], &[(annotation::PRUNE, "disabled")]);
    assert!(!may_prune(&kept, "kcp-system.dev", "u1"), "kept by its user");

    assert_eq!(parting(&ours, true), Parting::Delete);
    assert_eq!(parting(&ours, false), Parting::Release);
    assert_eq!(parting(&kept, true), Parting::Release);
    let flux = live(&FLUX, &[]);
    assert_eq!(parting(&flux, true), Parting::Release, "another tool's");
}

fn ended(terms: &Terms, outcome: ReadOutcome, next: Instant) -> Fetching {
    Fetching::Ended(Box::new(LastFetch { settings: terms.fetching(), next, failures: 3, outcome }))
}

fn live(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Metadata {
    let texts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Metadata {
        id: ObjectId::new("", "Kyma", "kcp-system", "a"),
        version: "v1".into(),
        uid: "u1".to_owned(),
        resource_version: "7".to_owned(),
        generation: 1,
        labels: texts(labels),
        annotations: texts(annotations),
        finalizers: Vec::new(),
        managers: Vec::new(),
        deleting: false,
        last_other: None,
        claims_texts: false,
        has_user_writes: false,
        owners: Vec::new(),
        unreadable: None,
    }
}

#[test]
fn the_templates_before_those_that_became_active_render_what_these_fail_for() {
    let file = |label: &str| TemplateFile {
        name: Template::Namespace.name().to_owned(),
        path: "templates/skr/namespace.yaml".into(),
        text: Some(format!("apiVersion: v1\nkind: Namespace\nmetadata: {{labels: {{a: {label}}}}}\n")),
    };
    let of =
        |label: &str| Templates::embedded().with_overrides(&Engine::Local, &mut Diagnostics::default(), [file(label)]);
    let (base, one, two) = (Templates::embedded(), of("one"), of("two"));
    let present = two.clone().with_fallback(vec![one.clone(), base.clone()], Box::new(|_, _, _| {}));
    for (present, have_failed, former, expected) in [
        (None, false, None, vec![&base]),
        (None, false, Some(one.clone()), vec![&one, &base]),
        (Some(&present), false, None, vec![&two, &base]),
        // What failed itself replaces nothing.
        (Some(&present), true, None, vec![&one, &base]),
    ] {
        let found = fallbacks(present, have_failed, former, &base);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_source_awaits_the_versions_that_runtimes_still_have() {
    let id = |kind, name: &str| (kind, Key::new("kcp-system", name));
    let waiting = [
        (id(Kind::ModuleTemplate, "mail-1.0.0"), Wait::InUse(Vec::new())),
        (id(Kind::ModuleTemplate, "mail-2.0.0"), Wait::Unconfirmed(Vec::new())),
        (id(Kind::Kyma, "a"), Wait::InUse(Vec::new())),
        (id(Kind::Kyma, "b"), Wait::Errors),
    ];
    let decision = Decision { waiting: waiting.into(), ..Decision::default() };
    assert_eq!(awaited(&decision), [Key::new("kcp-system", "mail-1.0.0")].into());
}

#[test]
fn only_dropped_versions_of_the_source_need_to_know_who_loses_their_module() {
    let id = |kind, name: &str| (kind, Key::new("kcp-system", name));
    let live = |source: &str| Live { source: Some(source.into()), ..Live::default() };
    let (ours, other) = (live("kcp-system.a"), live("kcp-system.b"));
    let declared = id(Kind::ModuleTemplate, "mail-2.0.0");
    let objects: BTreeMap<Id, Live> = [
        (id(Kind::ModuleTemplate, "mail-1.0.0"), ours.clone()),
        (declared.clone(), ours.clone()),
        (id(Kind::ModuleTemplate, "note-1.0.0"), other),
        (id(Kind::Kyma, "a"), ours),
    ]
    .into();
    let dropped: Vec<&str> =
        super::dropped(&objects, "kcp-system.a", &[declared].into()).into_iter().map(Key::name).collect();
    assert_eq!(dropped, ["mail-1.0.0"]);
}
