use super::*;

fn namespace(name: &str) -> Guarded {
    Guarded::Namespace(name.to_owned())
}

fn observed(parts: impl IntoIterator<Item = (Guarded, Presence)>) -> Observed {
    parts.into_iter().collect()
}

fn present() -> Presence {
    Presence::Present { uid: "u".to_owned(), created: None }
}

fn terminating(is_confirmed: bool) -> Presence {
    Presence::Terminating { is_confirmed }
}

fn check(observed: &Observed, state: &State, expected: Option<Hold>) {
    assert_eq!(held(observed, state, "kcp-system", Instant::now()), expected, "{observed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_held_while_something_of_ours_is_missing_and_no_user_has_confirmed_that() {
    let state = State::default();
    for (presence, expected) in [
        (present(), None),
        (terminating(false), Some(Hold::Terminating(KYMAS))),
        (terminating(true), None),
        (Presence::Absent, Some(Hold::Absent(KYMAS))),
        (Presence::Unknown("no".to_owned()), Some(Hold::Unknown(KYMAS, "no".to_owned()))),
    ] {
        check(&observed([(KYMAS, presence)]), &state, expected);
    }
    check(&observed([]), &state, None);
    // One confirmation is not one for all.
    let manifests = Guarded::Definition("manifests", KYMA_GROUP);
    let both = observed([(KYMAS, terminating(true)), (manifests.clone(), terminating(false))]);
    check(&both, &state, Some(Hold::Terminating(manifests)));
    // Of namespaces, only the object's own counts.
    check(&observed([(namespace("team-a"), terminating(false))]), &state, None);
    check(
        &observed([(namespace("kcp-system"), terminating(false))]),
        &state,
        Some(Hold::Terminating(namespace("kcp-system"))),
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_holds_deletions_where_it_is_watched() {
    let state = |namespace: &str| State { not_served: [("kymas", namespace.to_owned())].into(), ..State::default() };
    check(&observed([]), &state("kcp-system"), Some(Hold::NotServed("kymas")));
    check(&observed([]), &state("team-a"), None);
    check(&observed([(KYMAS, terminating(true))]), &state("kcp-system"), None);
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_has_until_its_sources_have_applied_and_the_watches_show_it() {
    let (definitions, source) = (Definitions::default(), Key::new("kcp-system", "landscape"));
    let hold = || definitions.known_hold("kcp-system");
    definitions.set_served("kymas", "kcp-system", false, &[]);
    assert_eq!(hold(), Some(Hold::NotServed("kymas")));
    let early = Instant::now();
    tokio::time::advance(Duration::from_secs(1)).await;
    definitions.set_served("kymas", "kcp-system", true, std::slice::from_ref(&source));
    assert_eq!(hold(), Some(Hold::Returning(vec![source.clone()])));
    definitions.applied(&source, early);
    assert_eq!(hold(), Some(Hold::Returning(vec![source.clone()])), "the pass began before");
    definitions.applied(&source, Instant::now());
    assert_eq!(hold(), Some(Hold::Returning(Vec::new())));
    tokio::time::advance(LAG_MAX).await;
    assert_eq!(hold(), None);

    definitions.set_served("kymas", "kcp-system", false, &[]);
    definitions.set_served("kymas", "kcp-system", true, &[source]);
    tokio::time::advance(RETURN_MAX).await;
    assert_eq!(hold(), None, "a source that never answers is not waited for for ever");
}

/// The watch of its kind may show no more than that all objects are gone.
#[tokio::test(start_paused = true)]
async fn a_definition_that_went_and_came_between_two_reads_returns_as_any_other() {
    let (definitions, source) = (Definitions::default(), Key::new("kcp-system", "landscape"));
    let uid = |uid: &str| Presence::Present { uid: uid.to_owned(), created: None };
    let see = |presence: Presence| {
        definitions.take(Instant::now(), observed([(KYMAS, presence)]), std::slice::from_ref(&source));
        definitions.turn_away("kcp-system", |hold| matches!(hold, Hold::Returning(_)))
    };
    assert_eq!(see(uid("a")), None, "nothing is known of before");
    assert_eq!(see(uid("a")), None);
    assert_eq!(see(uid("b")), Some(Hold::Returning(vec![source.clone()])));
    let following = tokio::time::timeout(Duration::from_secs(1), definitions.changed.notified()).await;
    assert!(following.is_ok(), "the hold is followed until its end");
    assert_eq!(see(uid("b")), Some(Hold::Returning(vec![source.clone()])));
    definitions.applied(&source, Instant::now());
    tokio::time::advance(LAG_MAX).await;
    assert_eq!(see(uid("b")), None);
    assert!(definitions.has_new_answer());
    // A read that failed in between hides nothing.
    assert_eq!(see(Presence::Unknown("no".to_owned())), None);
    assert_eq!(see(uid("c")), Some(Hold::Returning(vec![source.clone()])));
}

#[test]
fn the_text_names_what_is_wrong_and_the_command() {
    for (hold, expected) in [
        (
            Hold::Terminating(KYMAS),
            "deletions are held: CustomResourceDefinition kymas.operator.kyma-project.io is being deleted in the control plane; to keep everything, save the kymas that git does not declare, remove the finalizers of all kymas, apply deploy/setup, and create the saved ones again; to remove everything from the runtimes instead, run `kubectl annotate crd kymas.operator.kyma-project.io tidegate.dev/confirm-deletion=true`",
        ),
        (
            Hold::Terminating(namespace("team-a")),
            "deletions are held: Namespace team-a is being deleted in the control plane; to keep everything, save the Kymas in it that git does not declare, remove the finalizers of its objects, apply deploy/setup or create team-a, and create the saved ones and the access Secrets again; to remove everything from the runtimes instead, run `kubectl annotate namespace team-a tidegate.dev/confirm-deletion=true`",
        ),
        (
            Hold::Absent(namespace("team-a")),
            "deletions are held: Namespace team-a is missing in the control plane: apply deploy/setup, or what `tidegate crds` prints; to remove everything from the runtimes, then run `kubectl annotate namespace team-a tidegate.dev/confirm-deletion=true` and delete it again",
        ),
        (
            Hold::NotServed("kymas"),
            "deletions are held: the control plane does not serve kymas: apply what `tidegate crds` prints; to remove everything from the runtimes, then run `kubectl annotate crd kymas.operator.kyma-project.io tidegate.dev/confirm-deletion=true` and delete it again",
        ),
    ] {
        assert_eq!(hold.to_string(), expected);
        let observed = hold.observed();
        assert!(!observed.contains("held") && !observed.contains("annotate"), "it deletes nothing: {observed}");
    }
    let observed = Hold::NotServed("kymas").observed();
    assert_eq!(observed, "the control plane does not serve kymas: apply what `tidegate crds` prints");
}

#[tokio::test(start_paused = true)]
async fn who_was_turned_away_is_woken_once_also_if_the_hold_was_never_said() {
    let definitions = Definitions::default();
    assert!(definitions.stop("kcp-system").is_none() && !definitions.has_new_answer());
    definitions.set_served("kymas", "kcp-system", false, &[]);
    assert!(definitions.stop("team-a").is_none());
    assert_eq!(definitions.stop("kcp-system"), Some(Hold::NotServed("kymas")));
    assert!(!definitions.has_new_answer(), "it would be turned away again");
    definitions.set_served("kymas", "kcp-system", true, &[]);
    tokio::time::advance(LAG_MAX).await;
    assert!(definitions.has_new_answer());
    assert!(!definitions.has_new_answer());
}

/// The reason is in the status of each Kyma, with a command that helps against this reason only.
#[tokio::test(start_paused = true)]
async fn who_was_turned_away_is_woken_once_for_each_other_reason() {
    let definitions = Definitions::default();
    let see = |presence: Presence| {
        definitions.take(Instant::now(), observed([(KYMAS, presence)]), &[]);
        let is_news = definitions.has_new_answer();
        let _ = definitions.stop("kcp-system");
        is_news
    };
    let unknown = |error: &str| Presence::Unknown(error.to_owned());
    for (step, (presence, expected)) in [
        (present(), false),
        (terminating(false), false),
        (terminating(false), false),
        (Presence::Absent, true),
        (Presence::Absent, false),
        (unknown("no"), false),
        (unknown("never"), false),
        (Presence::Absent, false),
        (terminating(false), true),
        (present(), true),
        (present(), false),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(see(presence.clone()), expected, "{step}: {presence:?}");
    }
    // Two passes that were turned away at different moments are both woken.
    let told = [Hold::Terminating(KYMAS), Hold::Absent(KYMAS)];
    assert!(is_news(Some(&Hold::Absent(KYMAS)), &told));
    // Sources that apply one after the other wake no runtime.
    let source = Key::new("kcp-system", "landscape");
    assert!(!is_news(Some(&Hold::Returning(Vec::new())), &[Hold::Returning(vec![source])]));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_begins_to_work_waits_for_its_sources_before_it_prunes_catalogs() {
    let (definitions, source) = (Definitions::default(), Key::new("kcp-system", "landscape"));
    assert!(!definitions.may_lack_some(), "nothing is pruned by a process that does not work");
    definitions.begin(std::slice::from_ref(&source));
    let following = tokio::time::timeout(Duration::from_secs(1), definitions.changed.notified()).await;
    assert!(following.is_ok(), "it reads the definitions, so that it notices later that one was made again");
    tokio::time::advance(LAG_MAX).await;
    assert!(definitions.may_lack_some());
    assert_eq!(definitions.known_hold("kcp-system"), None, "deletions are acted upon");
    definitions.applied(&source, Instant::now());
    assert!(definitions.may_lack_some(), "the watches are behind");
    tokio::time::advance(LAG_MAX).await;
    assert!(!definitions.may_lack_some());
    definitions.begin(&[source]);
    tokio::time::advance(RETURN_MAX).await;
    assert!(!definitions.may_lack_some(), "a source that never answers is not waited for for ever");
}

#[test]
fn what_a_confirmed_deletion_left_does_not_return() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let since = |steps: Vec<Presence>| {
        let definitions = Definitions::default();
        for presence in steps {
            definitions.take(Instant::now(), observed([(KYMAS, presence)]), &[]);
        }
        definitions.kymas_since()
    };
    let created = |second: i64| Presence::Present { uid: second.to_string(), created: Some(at(second)) };
    assert_eq!(since(vec![created(1)]), Some(at(1)));
    assert_eq!(since(vec![created(1), terminating(false), created(5)]), Some(at(5)));
    assert_eq!(since(vec![created(1), terminating(true), created(5)]), None);
    assert_eq!(since(vec![created(1), terminating(true), Presence::Absent, created(5), created(5)]), None);
    let later = vec![terminating(true), created(5), terminating(false), created(9)];
    assert_eq!(since(later), Some(at(9)), "a confirmation is for one deletion");
}
