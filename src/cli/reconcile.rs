//! `tidegate reconcile`: asks the daemon to reconcile an object now, and waits for the result.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::{
    Exit,
    control_plane::{Access, Target},
};
use tidegate_core::api::names;
use tidegate_process::period::Period;
use tidegate_process::{say, tell};

/// Asks the daemon to reconcile a GitSource, Kyma, Manifest or Watcher now.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Select the object: KIND/NAME, for example `kyma/dev`, or NAME alone if only one object has this name
    #[arg(value_name = "KIND/NAME")]
    target: Target,
    /// Look for the object in this namespace
    #[arg(short, long, default_value = names::KCP_NAMESPACE)]
    namespace: String,
    /// Wait until the status shows that the daemon has reconciled the object [default: off]
    #[arg(long)]
    wait: bool,
    /// Wait at most this long with `--wait`; then the exit code is 5
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "wait")]
    timeout: Period,
    #[command(flatten)]
    access: Access,
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
    let waiting = async {
        loop {
            match found.read(&client).await? {
                None => anyhow::bail!("{found} was deleted"),
                Some(answer) if answer.handled.as_deref() == Some(value.as_str()) => return Ok(answer.message),
                Some(_) => tokio::time::sleep(POLL).await,
            }
        }
    };
    match tokio::time::timeout(arguments.timeout.0, waiting).await {
        Ok(message) => {
            say!("{found}: reconciled: {}", message?);
            Ok(Exit::Ok)
        }
        Err(_elapsed) => {
            let timeout = arguments.timeout;
            tell!("{found}: not reconciled after {timeout}: check `/readyz` of the daemons, which names the leader");
            Ok(Exit::Incomplete)
        }
    }
}
