//! `tidegate reconcile`: asks the daemon to reconcile an object now, and waits for the result.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::json;

use super::{
    Exit,
    control_plane::{Access, Answer, Found, Kind, Target, Verdict},
};
use tidegate_core::api::names;
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
    /// Wait for the result: exit with 0 if the object is as desired, with 5 and the cause if not [default: off]
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
    let waiting = async {
        loop {
            let Some(answer) = found.read(&client).await? else { anyhow::bail!("{found} was deleted") };
            let of_kyma = match &kyma {
                Some(kyma) => kyma.read(&client).await?,
                None => None,
            };
            match outcome(&value, &answer, of_kyma.as_ref()) {
                Outcome::Open(message) => last = message,
                known => return Ok(known),
            }
            tokio::time::sleep(POLL).await;
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

/// The Kyma of a Manifest; none for other objects.
async fn kyma_of(client: &Client, found: &Found) -> anyhow::Result<Option<Found>> {
    match found.kind {
        Kind::Manifest => {
            let answer = found.read(client).await?;
            Ok(answer.and_then(|answer| answer.kyma).map(|key| Found { kind: Kind::Kyma, key }))
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

#[cfg(test)]
mod tests {
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
}
