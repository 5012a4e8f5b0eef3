//! `tidegate suspend` and `tidegate resume`: stop and go, for one GitSource or Kyma.

use serde_json::{Value, json};

use super::{
    Exit,
    control_plane::{Access, Kind, Target},
};
use tidegate_core::api::names::{self, label};
use tidegate_process::say;

/// Which object.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// `gitsource/NAME` or `kyma/NAME`, or `NAME` where only one object is called so
    #[arg(value_name = "KIND/NAME")]
    target: Target,
    /// Namespace of the object
    #[arg(short, long, default_value = names::KCP_NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    access: Access,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing happens any more.
    Suspend,
    /// Everything goes on.
    Resume,
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments, step: Step) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    let found = arguments.target.find(&client, &arguments.namespace).await?;
    let Some(patch) = patch(found.kind, step) else {
        anyhow::bail!("a {} cannot be suspended by itself; suspend its Kyma or GitSource", found.kind.name());
    };
    found.patch(&client, &patch).await?;
    match (step, found.kind) {
        (Step::Suspend, Kind::GitSource) => {
            say!("{found}: suspended; nothing of it is fetched, applied or pruned until `tidegate resume`");
        }
        (Step::Suspend, Kind::Kyma | Kind::Manifest | Kind::Watcher) => {
            say!("{found}: suspended; its runtime stays as it is until `tidegate resume`");
        }
        (Step::Resume, _) => say!("{found}: resumed"),
    }
    Ok(Exit::Ok)
}

/// What is merged into the object; `None` for a kind that has no such switch.
fn patch(kind: Kind, step: Step) -> Option<Value> {
    match kind {
        Kind::GitSource => Some(json!({"spec": {"suspend": step == Step::Suspend}})),
        Kind::Kyma => {
            let value = match step {
                Step::Suspend => Value::from("true"),
                Step::Resume => Value::Null,
            };
            Some(json!({"metadata": {"labels": {label::SKIP_RECONCILIATION: value}}}))
        }
        Kind::Manifest | Kind::Watcher => None,
    }
}
