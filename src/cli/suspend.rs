//! `tidegate suspend` and `tidegate resume`, for one GitSource or Kyma.

use serde_json::{Value, json};

use super::{
    Exit,
    control_plane::{Access, Kind, Target},
};
use tidegate_core::api::names::{self, label};
use tidegate_process::say;

/// The object.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Select the object: `gitsource/NAME` or `kyma/NAME`, or `NAME` alone if only one object has this name
    #[arg(value_name = "KIND/NAME")]
    target: Target,
    /// Look for the object in this namespace
    #[arg(short, long, default_value = names::KCP_NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    access: Access,
}

/// What the command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Stop reconciling the object.
    Suspend,
    /// Reconcile the object again.
    Resume,
}

/// Runs the command. Fails if the object does not exist or cannot be suspended, or if a request fails.
pub(super) async fn run(arguments: Arguments, step: Step) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    let found = arguments.target.find(&client, &arguments.namespace).await?;
    let Some(patch) = patch(found.kind, step) else {
        anyhow::bail!("a {} cannot be suspended: suspend its Kyma or GitSource instead", found.kind.name());
    };
    found.patch(&client, &patch).await?;
    match (step, found.kind) {
        (Step::Suspend, Kind::GitSource) => {
            say!("{found}: suspended; Tidegate fetches, applies and prunes nothing from it until `tidegate resume`");
        }
        (Step::Suspend, Kind::Kyma | Kind::Manifest | Kind::Watcher) => {
            say!("{found}: suspended; Tidegate does not change its runtime until `tidegate resume`");
        }
        (Step::Resume, _) => say!("{found}: resumed"),
    }
    Ok(Exit::Ok)
}

/// The merge patch for the object; `None` for a kind that cannot be suspended.
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
