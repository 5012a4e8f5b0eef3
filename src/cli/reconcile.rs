//! `tidegate reconcile`: asks the daemon to look at an object now, and waits until it has.

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

/// Asks the daemon to look at a GitSource, Kyma, Manifest or Watcher now.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// `KIND/NAME`, or `NAME` where only one object is called so
    #[arg(value_name = "KIND/NAME")]
    target: Target,
    /// Namespace of the object
    #[arg(short, long, default_value = names::KCP_NAMESPACE)]
    namespace: String,
    /// Wait until the status shows that the daemon has looked
    #[arg(long)]
    wait: bool,
    /// How long to wait at most; then the exit code is 5
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "wait")]
    timeout: Period,
    #[command(flatten)]
    access: Access,
}

/// How often the status is looked at while waiting: often enough to seem immediate, and no load.
const POLL: Duration = Duration::from_millis(300);

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    let found = arguments.target.find(&client, &arguments.namespace).await?;
    // A time is unique enough, and says when it was asked for.
    let value = Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {names::annotation::RECONCILE_REQUESTED_AT: value}}});
    found.patch(&client, &patch).await?;
    if !arguments.wait {
        say!("{found}: asked for");
        return Ok(Exit::Ok);
    }
    let waiting = async {
        loop {
            match found.read(&client).await? {
                None => anyhow::bail!("{found} is gone"),
                Some(answer) if answer.handled.as_deref() == Some(value.as_str()) => return Ok(answer.message),
                Some(_) => tokio::time::sleep(POLL).await,
            }
        }
    };
    match tokio::time::timeout(arguments.timeout.0, waiting).await {
        Ok(message) => {
            say!("{found}: done: {}", message?);
            Ok(Exit::Ok)
        }
        Err(_elapsed) => {
            tell!("{found}: not done after {}; is a daemon leading? `/readyz` of each says so", arguments.timeout);
            Ok(Exit::Incomplete)
        }
    }
}
