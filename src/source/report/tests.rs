use serde_json::{Value, json};
use tidegate_core::{definition::Kind, name::Key};

use super::*;

#[test]
fn a_status_is_written_only_if_it_differs() {
    let (old, new) = (status(&[], None), status(&[], Some("main@a")));
    for (origin, shown, expected) in [
        (Origin::ControlPlane, Some(&new), StatusWrite::Skip),
        (Origin::CommandLine, Some(&new), StatusWrite::Skip),
        (Origin::ControlPlane, Some(&old), StatusWrite::Kcp),
        (Origin::ControlPlane, None, StatusWrite::Kcp),
        (Origin::CommandLine, Some(&old), StatusWrite::Local),
    ] {
        assert_eq!(status_write(origin, shown, &new), expected, "{shown:?}");
    }
}

#[test]
fn an_event_says_only_what_the_status_did_not_say_before() {
    let failed = |message: &str| ("Fetched", "False", "Unreachable", message.to_owned());
    let applied = |reason: &'static str| ("Applied", "False", reason, "a message".to_owned());
    let done = || ("Fetched", "True", "Fetched", "read main@a".to_owned());
    // The words of a git server stay in the condition.
    let quoted = |said: &str| failed(&format!("no answer; the server says: {said:?}"));
    let suspended =
        || ("Ready", "False", "Suspended", "suspended by alice; the objects of main@a stay applied".to_owned());
    let by_spec = || ("Ready", "False", "Suspended", "the source is suspended".to_owned());
    let ready = || ("Ready", "True", "Applied", "applied".to_owned());
    let rows: [(Vec<_>, Vec<_>, &[&str]); 13] = [
        (
            vec![by_spec()],
            vec![ready()],
            &["Normal Resumed Apply: resumed: Tidegate fetches and applies it again; it was suspended"],
        ),
        (
            vec![ready()],
            vec![suspended()],
            &["Normal Suspended Apply: suspended by alice; the objects of main@a stay applied"],
        ),
        (vec![suspended()], vec![suspended()], &[]),
        (
            vec![suspended()],
            vec![ready()],
            &["Normal Resumed Apply: resumed: Tidegate fetches and applies it again; it was suspended by alice"],
        ),
        (vec![done()], vec![quoted("s3cret")], &["Warning FetchFailed Fetch: no answer"]),
        (vec![quoted("request 1")], vec![quoted("request 2")], &[]),
        (vec![], vec![done()], &[]),
        (vec![done()], vec![failed("no answer")], &["Warning FetchFailed Fetch: no answer"]),
        (vec![failed("no answer")], vec![failed("no answer")], &[]),
        (vec![failed("no answer")], vec![failed("no name")], &["Warning FetchFailed Fetch: no name"]),
        (vec![], vec![applied("PruneLimit")], &["Warning PruneWaits Apply: a message"]),
        (vec![applied("PruneLimit")], vec![applied("Withheld")], &["Warning Withheld Apply: a message"]),
        (vec![failed("no answer")], vec![done()], &[]),
    ];
    for (before, after, expected) in rows {
        let found = notes(Some(&status(&before, None)), &status(&after, None), None);
        assert_eq!(texts(&found), expected, "{before:?} {after:?}");
    }
}

#[test]
fn an_event_reports_each_new_applied_revision_once_nothing_of_it_waits() {
    let applied = [("Applied", "True", "Applied", "applied".to_owned())];
    let (a, b) = (status(&applied, Some("main@a")), status(&applied, Some("main@b")));
    let waits = status(&[("Applied", "False", "PruneUnconfirmed", "a message".to_owned())], Some("main@b"));
    assert_eq!(texts(&notes(Some(&a), &waits, None)), ["Warning PruneWaits Apply: a message"]);
    assert_eq!(texts(&notes(Some(&waits), &b, None)), ["Normal Applied Apply: applied main@b"]);
    assert_eq!(texts(&notes(None, &a, None)), ["Normal Applied Apply: applied main@a"]);
    assert_eq!(texts(&notes(Some(&a), &b, None)), ["Normal Applied Apply: applied main@b"]);
    assert_eq!(texts(&notes(Some(&a), &a, None)), [""; 0]);
}

/// An Event has at most 1,024 bytes.
#[test]
fn an_event_about_what_waits_begins_with_the_command() {
    let command = "kubectl annotate gitsource -n kcp-system landscape tidegate.dev/confirm-prune=abc --overwrite";
    let runtimes = "kcp-system/runtime-with-a-long-name, ".repeat(100);
    let after = status(
        &[
            ("Ready", "False", "RemovalUnconfirmed", format!("`{command}` confirms 2 removals in runtimes")),
            ("Applied", "False", "RemovalUnconfirmed", format!("2 removals in runtimes: {runtimes}")),
        ],
        None,
    );
    let found = texts(&notes(None, &after, None));
    let expected = format!("Warning RemovalWaits Apply: to confirm, run `{command}`: 2 removals in runtimes: ");
    assert!(found.iter().any(|note| note.starts_with(&expected)), "{found:?}");
}

#[test]
fn events_about_drift_are_limited() {
    let kyma = |number: usize| (Kind::Kyma, Key::new("kcp-system", &format!("k{number}")));
    let apply = (0..EVENTS_MAX + 2).map(|number| (kyma(number), Why::Drifted));
    let other = [(kyma(100), Why::Changed)];
    let decision = Decision { apply: other.into_iter().chain(apply).collect(), ..Decision::default() };
    let status = status(&[], None);
    let found = notes(Some(&status), &status, Some(&decision));
    assert_eq!(found.len(), EVENTS_MAX);
    let first = "another client changed Kyma kcp-system/k0; Tidegate applied it again as in git";
    assert_eq!(texts(&found)[0], format!("Normal DriftRepaired Apply: {first}"));
}

fn texts(notes: &[Note]) -> Vec<String> {
    notes.iter().map(|note| format!("{:?} {} {}: {}", note.severity, note.reason, note.action, note.text)).collect()
}

fn status(conditions: &[(&str, &str, &str, String)], applied: Option<&str>) -> GitSourceStatus {
    let condition = |(type_, status, reason, message): &(&str, &str, &str, String)| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2024-05-01T00:00:00Z",
        })
    };
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    serde_json::from_value(json!({ "conditions": conditions, "appliedRevision": applied })).unwrap()
}
