//! `tidegate reconcile`: asks the daemon to reconcile an object now, and waits for the result.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::json;
use tokio::time::Instant;

use super::{
    Exit,
    control_plane::{self, Access, Answer, ControlPlaneObject, Kind, Lacks, Target, Verdict},
};
use tidegate_core::{
    api::{Kyma, names},
    conditions,
    landscape::{self, SourceName},
    overview::{Overview, RuntimeLine, SubjectState},
    words::{agreeing, counted, few},
};
use tidegate_process::period::Period;
use tidegate_process::{say, tell};

/// Asks the daemon to reconcile a GitSource, Kyma, Manifest or Watcher now, even if its server could not be reached.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Select the object: KIND/NAME, for example `kyma/dev`, or NAME alone if only one object has this name
    #[arg(value_name = "KIND/NAME")]
    target: Target,
    /// Look for the object in this namespace
    #[arg(short, long, default_value = names::KCP_NAMESPACE)]
    namespace: String,
    /// Wait for the result: exit with 0 if the object is as desired, with 5 and the cause if not. A GitSource is as
    /// desired if none of the Kymas that it declares has an error or is in progress [default: off]
    #[arg(long)]
    wait: bool,
    /// Wait at most this long with `--wait`; then the exit code is 5
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "wait")]
    timeout: Period,
    #[command(flatten)]
    access: Access,
}

/// The result of a request, as far as statuses show it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The object is as desired.
    Done(String),
    /// It is not. Contains the cause.
    Failed(String),
    /// The daemon has not finished. Contains what the status says.
    Open(String),
}

/// Pause between two reads of the status: short enough to seem immediate, and no load.
const POLL: Duration = Duration::from_millis(300);

/// Pause between two reads of all runtimes of a source.
const POLL_RUNTIMES: Duration = Duration::from_secs(2);
/// How long runtimes have the same errors before they are the result: in this time, a pass over a runtime begins.
const SETTLED: Duration = Duration::from_secs(10);

/// Runs the command. Fails if the object does not exist, or if a request fails.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    let found = arguments.target.find(&client, &arguments.namespace).await?;
    // A timestamp is unique enough, and shows when the request was made.
    let value = Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {names::annotation::RECONCILE_REQUESTED_AT: value}}});
    found.patch(&client, &patch).await?;
    if !arguments.wait {
        say!("{found}: reconcile requested");
        return Ok(Exit::Ok);
    }
    let kyma = kyma_of(&client, &found).await?;
    if let Some(kyma) = &kyma {
        // If the runtime cannot be reached, the status of the Kyma says so, and that of the Manifest stays.
        kyma.patch(&client, &patch).await?;
    }
    let mut last = String::new();
    let mut errors = Errors::default();
    let waiting = async {
        loop {
            let Some(answer) = found.read(&client).await? else { anyhow::bail!("{found} was deleted") };
            let of_kyma = match &kyma {
                Some(kyma) => kyma.read(&client).await?,
                None => None,
            };
            let mut result = outcome(&value, &answer, of_kyma.as_ref());
            let mut pause = POLL;
            if let (Outcome::Done(_), Kind::GitSource) = (&result, found.kind) {
                result = errors.judge(result, &kymas(&client, &found).await?, Instant::now());
                pause = POLL_RUNTIMES;
            }
            match result {
                Outcome::Open(message) => last = message,
                known => return Ok(known),
            }
            tokio::time::sleep(pause).await;
        }
    };
    match tokio::time::timeout(arguments.timeout.0, waiting).await {
        Ok(Ok(Outcome::Done(message))) => {
            say!("{found}: reconciled: {message}");
            Ok(Exit::Ok)
        }
        Ok(Ok(Outcome::Failed(cause) | Outcome::Open(cause))) => {
            tell!("{found}: not as desired: {cause}");
            Ok(Exit::Incomplete)
        }
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => {
            let timeout = arguments.timeout;
            let cause = if last.is_empty() {
                "check `/readyz` of the daemons, which names the leader".to_owned()
            } else {
                format!("the status says: {last}")
            };
            tell!("{found}: no result after {timeout}: {cause}");
            Ok(Exit::Incomplete)
        }
    }
}

/// The errors of the runtimes of a source, and since when they are the same.
#[derive(Debug, Default)]
struct Errors(Option<(String, Instant)>);

/// The Kymas that a source declares. Fails if they cannot be listed.
async fn kymas(client: &Client, source: &ControlPlaneObject) -> anyhow::Result<Vec<Kyma>> {
    let label = SourceName::new(source.key.clone()).label_value();
    let mut found: Vec<Kyma> = Vec::new();
    let take = |kyma: Kyma| {
        let is_of_source = landscape::label(&kyma.metadata, names::label::SOURCE) == Some(label.as_str());
        found.extend(is_of_source.then_some(kyma));
    };
    control_plane::each(client, source.key.namespace(), &mut Lacks::default(), take).await?;
    Ok(found)
}

/// How many of the runtimes have an error, which is the first, and its cause; `None` if none has.
fn in_error(kymas: &[Kyma]) -> Option<String> {
    those(kymas, SubjectState::Wrong, ("has an error", "have an error"))
}

/// The same for runtimes that do not have all yet, for example of a Kyma that was just created.
fn in_progress(kymas: &[Kyma]) -> Option<String> {
    // What leaves is no longer declared.
    let declared: Vec<Kyma> = kymas.iter().filter(|kyma| kyma.metadata.deletion_timestamp.is_none()).cloned().collect();
    those(&declared, SubjectState::Waiting, ("is in progress", "are in progress"))
}

fn those(kymas: &[Kyma], standing: SubjectState, (one, several): (&str, &str)) -> Option<String> {
    // A confirmation is not waited for, and may be another source's.
    let mut kymas = kymas.to_vec();
    for status in kymas.iter_mut().filter_map(|kyma| kyma.status.as_mut()) {
        conditions::remove(&mut status.conditions, conditions::REMOVAL);
    }
    let runtimes = Overview::from_objects([], &kymas, []).runtimes;
    let found: Vec<&RuntimeLine> = runtimes.iter().filter(|one| one.standing == standing).collect();
    let first = found.first()?;
    let (said, all) = (agreeing(found.len(), one, several), counted(kymas.len(), "runtime"));
    let names = few(&found.iter().map(|one| one.name.as_str()).collect::<Vec<&str>>());
    let telling = first.modules.iter().filter(|one| one.is_paused() || one.standing == SubjectState::Wrong);
    let modules = telling.filter_map(|one| Some((&one.name, one.message.as_deref()?)));
    // The message of the runtime often repeats that of its module.
    let modules = modules.filter(|(_, message)| !first.message.contains(message));
    let modules = modules.map(|(name, message)| format!("; module {name}: {message}"));
    let message = format!("{}{}", first.message, modules.collect::<String>());
    Some(format!("{} of its {all} {said}: {names}; {}: {message}", found.len(), first.name))
}

/// The Kyma of a Manifest; none for other objects.
async fn kyma_of(client: &Client, found: &ControlPlaneObject) -> anyhow::Result<Option<ControlPlaneObject>> {
    match found.kind {
        Kind::Manifest => {
            let answer = found.read(client).await?;
            Ok(answer.and_then(|answer| answer.kyma).map(|key| ControlPlaneObject { kind: Kind::Kyma, key }))
        }
        Kind::GitSource | Kind::Kyma | Kind::Watcher => Ok(None),
    }
}

/// The result of the request `value`. `kyma` is the answer about the Kyma of a Manifest.
fn outcome(value: &str, answer: &Answer, kyma: Option<&Answer>) -> Outcome {
    let is_handled = |answer: &Answer| answer.handled.as_deref() == Some(value);
    if answer.is_skipped || kyma.is_some_and(|kyma| kyma.is_skipped) {
        let label = names::label::SKIP_RECONCILIATION;
        return Outcome::Failed(format!("the label {label} keeps Tidegate from reconciling it: remove the label"));
    }
    if is_handled(answer) {
        return match answer.verdict {
            Verdict::Good => Outcome::Done(answer.message.clone()),
            Verdict::Bad => Outcome::Failed(answer.message.clone()),
            // Only users end what it waits for.
            Verdict::Open if answer.is_held => Outcome::Failed(answer.message.clone()),
            Verdict::Open => Outcome::Open(answer.message.clone()),
        };
    }
    match (kyma.filter(|kyma| is_handled(kyma) && kyma.verdict == Verdict::Bad && !kyma.is_complete), answer.verdict) {
        (Some(kyma), _) => Outcome::Failed(kyma.message.clone()),
        // It may be what the request waits for, for example other fetches.
        (None, Verdict::Bad | Verdict::Open) => Outcome::Open(answer.message.clone()),
        (None, Verdict::Good) => Outcome::Open(String::new()),
    }
}

// === impl Errors ===

impl Errors {
    /// The result of a source that is as desired, with its runtimes. Their errors are the result only once they stay
    /// the same for a while: the runtimes may not have what the source has just applied.
    fn judge(&mut self, done: Outcome, kymas: &[Kyma], now: Instant) -> Outcome {
        let Some(errors) = in_error(kymas) else {
            self.0 = None;
            return in_progress(kymas).map_or(done, Outcome::Open);
        };
        match &self.0 {
            Some((known, since)) if *known == errors && SETTLED <= now.duration_since(*since) => {
                Outcome::Failed(errors)
            }
            Some((known, _)) if *known == errors => Outcome::Open(errors),
            Some(_) | None => {
                self.0 = Some((errors.clone(), now));
                Outcome::Open(errors)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::api::shared::Time;

    use super::*;

    const VALUE: &str = "2026-05-01T12:00:00Z";

    fn answer(handled: &str, verdict: Verdict, message: &str) -> Answer {
        Answer { handled: Some(handled.to_owned()), verdict, message: message.to_owned(), ..Answer::default() }
    }

    #[test]
    fn a_request_ends_as_soon_as_the_status_says_what_became_of_it() {
        let done = |message: &str| Outcome::Done(message.to_owned());
        let failed = |message: &str| Outcome::Failed(message.to_owned());
        let open = |message: &str| Outcome::Open(message.to_owned());
        let unreachable = || answer(VALUE, Verdict::Bad, "Error: it cannot be reached");
        let skipped = || Answer { is_skipped: true, ..Answer::default() };
        let by_label = "the label operator.kyma-project.io/skip-reconciliation keeps Tidegate from reconciling it: \
                        remove the label";
        for (answer, kyma, expected) in [
            (answer(VALUE, Verdict::Good, "Ready: kyma is ready"), None, done("Ready: kyma is ready")),
            (answer(VALUE, Verdict::Bad, "Error: refused"), None, failed("Error: refused")),
            (answer(VALUE, Verdict::Open, "Processing: waiting"), None, open("Processing: waiting")),
            (Answer { is_held: true, ..answer(VALUE, Verdict::Open, "paused") }, None, failed("paused")),
            (answer("before", Verdict::Good, "Ready"), None, open("")),
            (Answer::default(), None, open("")),
            // It waits for a place: the request is not handled yet, and the status says why.
            (answer("before", Verdict::Bad, "the fetch waits"), None, open("the fetch waits")),
            (answer("before", Verdict::Open, "it is checked"), None, open("it is checked")),
            (skipped(), None, failed(by_label)),
            (answer("before", Verdict::Good, "Ready"), Some(skipped()), failed(by_label)),
            // A Manifest of a runtime that cannot be reached keeps its status.
            (answer("before", Verdict::Good, "Ready"), Some(unreachable()), failed("Error: it cannot be reached")),
            (answer(VALUE, Verdict::Good, "Ready"), Some(unreachable()), done("Ready")),
            // The pass reached the runtime, so the Manifest has its own result soon.
            (answer("before", Verdict::Good, "Ready"), Some(Answer { is_complete: true, ..unreachable() }), open("")),
        ] {
            assert_eq!(outcome(VALUE, &answer, kyma.as_ref()), expected, "{answer:?} {kyma:?}");
        }
    }
    fn kyma(name: &str, state: &str, operation: &str) -> Kyma {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": name, "namespace": "kcp-system"},
            "spec": {"channel": "regular"},
            "status": {"state": state, "lastOperation": {"operation": operation, "lastUpdateTime": VALUE}},
        }))
        .unwrap()
    }

    #[test]
    fn a_source_whose_runtimes_have_errors_is_not_as_desired() {
        let ready = || kyma("a", "Ready", "kyma is ready");
        assert_eq!(in_error(&[]), None);
        assert_eq!(in_error(&[ready(), kyma("b", "Processing", "waiting")]), None);
        let mut unconfirmed = ready();
        let removal = json!([{
            "type": conditions::REMOVAL, "status": "False", "reason": "Unconfirmed", "message": "module cache waits",
            "lastTransitionTime": VALUE,
        }]);
        unconfirmed.status.as_mut().unwrap().conditions = serde_json::from_value(removal).unwrap();
        assert_eq!(in_error(&[unconfirmed]), None, "a confirmation is not waited for");
        let one = in_error(&[ready(), kyma("b", "Error", "no image")]);
        assert_eq!(one.unwrap(), "1 of its 2 runtimes has an error: kcp-system/b; kcp-system/b: no image");
        let many: Vec<Kyma> = (0..5).map(|number| kyma(&format!("k{number}"), "Error", "no image")).collect();
        assert_eq!(
            in_error(&many).unwrap(),
            "5 of its 5 runtimes have an error: kcp-system/k0, kcp-system/k1, kcp-system/k2 and 2 more; kcp-system/k0: no \
             image"
        );
    }

    #[test]
    fn errors_of_runtimes_are_the_result_once_they_stay() {
        let mut errors = Errors::default();
        let (start, done) = (Instant::now(), || Outcome::Done("applied".to_owned()));
        let wrong = |count: usize| -> Vec<Kyma> {
            (0..3)
                .map(|one| kyma(&format!("k{one}"), if one < count { "Error" } else { "Ready" }, "no image"))
                .collect()
        };
        let mut judge =
            |count: usize, seconds: u64| errors.judge(done(), &wrong(count), start + Duration::from_secs(seconds));
        let (two, one) = (in_error(&wrong(2)).unwrap(), in_error(&wrong(1)).unwrap());
        assert_eq!(judge(2, 0), Outcome::Open(two.clone()));
        assert_eq!(judge(2, 9), Outcome::Open(two));
        assert_eq!(judge(1, 10), Outcome::Open(one.clone()), "one of them is well by now");
        assert_eq!(judge(1, 19), Outcome::Open(one.clone()));
        assert_eq!(judge(1, 20), Outcome::Failed(one));
        assert_eq!(judge(0, 21), done());
    }

    #[test]
    fn a_source_waits_for_a_runtime_that_was_just_created() {
        let done = || Outcome::Done("applied".to_owned());
        let judge = |kymas: &[Kyma]| Errors::default().judge(done(), kymas, Instant::now());
        let ready = kyma("a", "Ready", "kyma is ready");
        let new = Kyma { status: None, ..kyma("b", "Ready", "") };
        let waits = "1 of its 2 runtimes is in progress: kcp-system/b; kcp-system/b: not reconciled yet";
        assert_eq!(judge(&[ready.clone(), new.clone()]), Outcome::Open(waits.to_owned()));
        let installing = kyma("b", "Processing", "waiting for module cache");
        let waits = "1 of its 2 runtimes is in progress: kcp-system/b; kcp-system/b: waiting for module cache";
        assert_eq!(judge(&[ready.clone(), installing]), Outcome::Open(waits.to_owned()));
        let mut leaving = new;
        leaving.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(judge(&[ready, leaving]), done());
    }
}
