//! `tidegate suspend` and `tidegate resume`, for one GitSource, Kyma or rollout.

use std::str::FromStr;

use anyhow::Context as _;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Exit,
    control_plane::{self, Access, Kind, Target},
};
use tidegate_core::{
    api::{
        Manifest, ModuleReleaseMeta,
        names::{
            self,
            annotation::{ROLLOUT_PAUSED, ROLLOUT_RESUMED},
            label,
        },
    },
    plan::rollout,
};
use tidegate_process::say;

/// The object.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Select the object: `gitsource/NAME`, `kyma/NAME` or `rollout/MODULE`, or `NAME` alone if only one GitSource or
    /// Kyma has this name
    #[arg(value_name = "KIND/NAME")]
    target: Chosen,
    /// Look for the object in this namespace
    #[arg(short, long, default_value = names::KCP_NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    access: Access,
}

/// What is suspended or resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Chosen {
    /// An object.
    Object(Target),
    /// The rollout of this module.
    Rollout(String),
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
    let target = match &arguments.target {
        Chosen::Object(target) => target,
        Chosen::Rollout(module) => return rollout(&client, &arguments.namespace, module, step).await,
    };
    let found = target.find(&client, &arguments.namespace).await?;
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

/// Pauses the rollout of a module, or continues it and accepts the present failures. Fails if the module has no
/// ModuleReleaseMeta, or if a request fails.
async fn rollout(client: &Client, namespace: &str, module: &str, step: Step) -> anyhow::Result<Exit> {
    let releases: Api<ModuleReleaseMeta> = Api::namespaced(client.clone(), namespace);
    let release = releases.get_opt(module).await.map_err(control_plane::sentence);
    let release = release.with_context(|| format!("cannot read ModuleReleaseMeta {namespace}/{module}"))?;
    let Some(release) = release else {
        anyhow::bail!("no ModuleReleaseMeta `{module}` in namespace {namespace}: select another namespace with -n");
    };
    let manifests: Api<Manifest> = Api::namespaced(client.clone(), namespace);
    let selector = ListParams::default().labels(&format!("{}={module}", label::MODULE_NAME));
    let manifests = manifests.list(&selector).await.map_err(control_plane::sentence);
    let manifests = manifests.with_context(|| format!("cannot list Manifests in namespace {namespace}"))?;
    let (patch, said) = rollout_patch(&release, &manifests.items, step);
    let params = PatchParams { field_manager: Some(control_plane::MANAGER.to_owned()), ..PatchParams::default() };
    let patched = releases.patch(module, &params, &Patch::Merge(&patch)).await.map_err(control_plane::sentence);
    patched.with_context(|| format!("cannot change ModuleReleaseMeta {namespace}/{module}"))?;
    say!("ModuleReleaseMeta {namespace}/{module}: {said}");
    Ok(Exit::Ok)
}

/// The merge patch for a ModuleReleaseMeta, and what it does.
fn rollout_patch(release: &ModuleReleaseMeta, manifests: &[Manifest], step: Step) -> (Value, String) {
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    match step {
        Step::Suspend => {
            let said = "rollout paused; no more runtimes get a new version until `tidegate resume`";
            (annotations(json!({ROLLOUT_PAUSED: "true"})), said.to_owned())
        }
        Step::Resume => {
            let failures = rollout::failures(release, manifests);
            let accepted = rollout::resumed_text(failures);
            let (value, said) = match accepted.as_str() {
                "" => (Value::Null, "rollout resumed".to_owned()),
                accepted => (Value::from(accepted), format!("rollout resumed; failures that are accepted: {accepted}")),
            };
            (annotations(json!({ROLLOUT_PAUSED: null, ROLLOUT_RESUMED: value})), said)
        }
    }
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

// === impl Chosen ===

impl FromStr for Chosen {
    type Err = String;

    fn from_str(text: &str) -> Result<Chosen, String> {
        match text.strip_prefix("rollout/") {
            Some(module) => Ok(Chosen::Rollout(module.to_owned())),
            None => text.parse().map(Chosen::Object),
        }
    }
}
