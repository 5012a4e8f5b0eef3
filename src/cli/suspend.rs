//! `tidegate suspend` and `tidegate resume`, for one GitSource, Kyma or rollout.

use std::str::FromStr;

use anyhow::Context as _;
use k8s_openapi::{api::authentication::v1::SelfSubjectReview, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    Exit,
    control_plane::{self, Access, ControlPlaneFailure, Kind, Target},
};
use tidegate_core::{
    api::{
        Manifest, ModuleReleaseMeta,
        names::{
            self,
            annotation::{ROLLOUT_PAUSED, ROLLOUT_RESUMED, SUSPENDED},
            label,
        },
    },
    landscape::{self, Switch},
    plan::rollout,
    status,
};
use tidegate_process::{ambient, say};

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

/// What is suspended, and why.
#[derive(clap::Args)]
pub(super) struct SuspendArguments {
    #[command(flatten)]
    shared: Arguments,
    /// Give the reason, for example `upgrade of the network`; the status, `kubectl get` and an Event show it [default:
    /// none]
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
}

/// Longest reason of a suspension, in characters: it is one line of a table.
const REASON_CHARS_MAX: usize = 120;

/// What is suspended or resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Chosen {
    /// An object.
    Object(Target),
    /// The rollout of this module.
    Rollout(String),
}

/// What the command does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Stop reconciling the object.
    Suspend {
        /// Who does it, when and why.
        note: String,
        /// Whether a reason was given.
        has_reason: bool,
    },
    /// Reconcile the object again.
    Resume,
}

/// Suspends an object. Fails if it does not exist or cannot be suspended, or if a request fails.
pub(super) async fn suspend(arguments: SuspendArguments) -> anyhow::Result<Exit> {
    let client = arguments.shared.access.client().await?;
    let note = note(&user(&client).await?, ambient::now(), arguments.reason.as_deref());
    let step = Step::Suspend { note, has_reason: arguments.reason.is_some() };
    run(&client, &arguments.shared, &step).await
}

/// Resumes an object. Fails if it does not exist or cannot be suspended, or if a request fails.
pub(super) async fn resume(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    run(&client, &arguments, &Step::Resume).await
}

/// A reason that fits into one line of a table.
fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err("the reason is empty: say why in a few words, or omit --reason".to_owned()),
        _ if text.chars().any(char::is_control) => Err("the reason has line breaks: use one line".to_owned()),
        count if REASON_CHARS_MAX < count => {
            Err(format!("the reason has {count} characters: use at most {REASON_CHARS_MAX}"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// The user that the control plane knows the caller by. Fails only if there is no answer.
async fn user(client: &Client) -> anyhow::Result<String> {
    let review = Api::<SelfSubjectReview>::all(client.clone())
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let user = match review {
        Ok(review) => review.status.and_then(|status| status.user_info?.username),
        Err(error) => match ControlPlaneFailure::taken_from(error) {
            Ok(failure) => return Err(failure.into()),
            Err(_refused) => None,
        },
    };
    Ok(user.unwrap_or_else(|| "a user that the control plane does not name".to_owned()))
}

/// The value of the annotation: who suspends, since when and why.
fn note(user: &str, now: Timestamp, reason: Option<&str>) -> String {
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("by {user} since {}{reason}", status::seconds(now))
}

async fn run(client: &Client, arguments: &Arguments, step: &Step) -> anyhow::Result<Exit> {
    let target = match &arguments.target {
        Chosen::Object(target) => target,
        Chosen::Rollout(module) => return rollout(client, &arguments.namespace, module, step).await,
    };
    let found = target.find(client, &arguments.namespace).await?;
    let Some(patch) = patch(found.kind, step) else {
        anyhow::bail!("a {} cannot be suspended: suspend its Kyma or GitSource instead", found.kind.name());
    };
    let by_git = found.suspended_by_git(client).await?;
    match step {
        Step::Resume => by_git.iter().try_for_each(|file| refuse_resume(&found.to_string(), file, Switch::Label))?,
        Step::Suspend { .. } => {
            if let Some(file) = by_git {
                say!("{found}: already suspended in git, in {file}; nothing changed");
                return Ok(Exit::Ok);
            }
        }
    }
    if let Some(said) = unchanged(step, found.suspension(client).await?.as_deref()) {
        say!("{found}: {said}");
        return Ok(Exit::Ok);
    }
    found.patch(client, &patch).await?;
    match (step, found.kind) {
        (Step::Suspend { .. }, Kind::GitSource) => {
            say!("{found}: suspended; Tidegate fetches, applies and prunes nothing from it until `tidegate resume`");
        }
        (Step::Suspend { .. }, Kind::Kyma | Kind::Manifest | Kind::Watcher) => {
            say!("{found}: suspended; Tidegate does not change its runtime until `tidegate resume`");
        }
        (Step::Resume, _) => say!("{found}: resumed"),
    }
    Ok(Exit::Ok)
}

/// Why nothing needs to change; `None` if something does. `suspension` says who suspended the object, if it is.
fn unchanged(step: &Step, suspension: Option<&str>) -> Option<String> {
    match (step, suspension) {
        // Who suspended it first, and since when, must not get lost.
        (Step::Suspend { has_reason: false, .. }, Some(suspension)) => {
            Some(format!("{suspension}; nothing changed, write --reason to say why it stays suspended"))
        }
        (Step::Resume, None) => Some(NOT_SUSPENDED.to_owned()),
        (Step::Suspend { .. }, _) | (Step::Resume, Some(_)) => None,
    }
}

/// The answer of `tidegate resume` about an object that is not suspended.
const NOT_SUSPENDED: &str = "not suspended; nothing changed";

/// Pauses the rollout of a module, or continues it and accepts the present failures. Fails if the module has no
/// ModuleReleaseMeta, or if a request fails.
async fn rollout(client: &Client, namespace: &str, module: &str, step: &Step) -> anyhow::Result<Exit> {
    let releases: Api<ModuleReleaseMeta> = Api::namespaced(client.clone(), namespace);
    let release = match releases.get_opt(module).await {
        // A kind that the API server does not serve has no objects.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        release => release
            .map_err(control_plane::sentence)
            .with_context(|| format!("cannot read ModuleReleaseMeta {namespace}/{module}"))?,
    };
    let Some(release) = release else {
        if !control_plane::is_served::<ModuleReleaseMeta>(client, namespace).await {
            anyhow::bail!(control_plane::not_served(&["ModuleReleaseMeta"]));
        }
        anyhow::bail!("no ModuleReleaseMeta `{module}` in namespace {namespace}: select another namespace with -n");
    };
    if let (Step::Resume, Some(file)) = (step, landscape::suspended_by_git(&release.metadata, Switch::Pause)) {
        refuse_resume(&format!("the rollout of module {module}"), &file, Switch::Pause)?;
    }
    let manifests: Api<Manifest> = Api::namespaced(client.clone(), namespace);
    let selector = ListParams::default().labels(&format!("{}={module}", label::MODULE_NAME));
    let manifests = manifests.list(&selector).await.map_err(control_plane::sentence);
    let manifests = manifests.with_context(|| format!("cannot list Manifests in namespace {namespace}"))?;
    let Some((patch, said)) = rollout_patch(&release, &manifests.items, step) else {
        say!("ModuleReleaseMeta {namespace}/{module}: the rollout is {NOT_SUSPENDED}");
        return Ok(Exit::Ok);
    };
    let params = PatchParams { field_manager: Some(control_plane::MANAGER.to_owned()), ..PatchParams::default() };
    let patched = releases.patch(module, &params, &Patch::Merge(&patch)).await.map_err(control_plane::sentence);
    patched.with_context(|| format!("cannot change ModuleReleaseMeta {namespace}/{module}"))?;
    say!("ModuleReleaseMeta {namespace}/{module}: {said}");
    Ok(Exit::Ok)
}

/// Fails: what git declares, the daemon would apply again.
fn refuse_resume(what: &str, file: &str, switch: Switch) -> anyhow::Result<()> {
    let field = switch.field();
    anyhow::bail!(
        "{what} is suspended in git: remove the {field} from {file}, and commit; a resume here would not last"
    )
}

/// The merge patch for a ModuleReleaseMeta, and what it does; `None` if a rollout is to be resumed that nothing stops.
fn rollout_patch(release: &ModuleReleaseMeta, manifests: &[Manifest], step: &Step) -> Option<(Value, String)> {
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    match step {
        Step::Suspend { note, .. } => {
            let said = "rollout paused; no more runtimes get a new version until `tidegate resume`";
            Some((annotations(json!({ROLLOUT_PAUSED: "true", SUSPENDED: note})), said.to_owned()))
        }
        Step::Resume => {
            let failures = rollout::failures(release, manifests);
            let accepted = rollout::resumed_text(failures);
            let has = |name: &str| landscape::annotation(&release.metadata, name);
            let is_stopped = has(ROLLOUT_PAUSED).is_some() || has(SUSPENDED).is_some();
            if !is_stopped && has(ROLLOUT_RESUMED).unwrap_or_default() == accepted {
                return None;
            }
            let (value, said) = match accepted.as_str() {
                "" => (Value::Null, "rollout resumed".to_owned()),
                accepted => (Value::from(accepted), format!("rollout resumed; failures that are accepted: {accepted}")),
            };
            Some((annotations(json!({ROLLOUT_PAUSED: null, ROLLOUT_RESUMED: value, SUSPENDED: null})), said))
        }
    }
}

/// The merge patch for the object; `None` for a kind that cannot be suspended.
fn patch(kind: Kind, step: &Step) -> Option<Value> {
    let (is_suspended, note) = match step {
        Step::Suspend { note, .. } => (true, Value::from(note.as_str())),
        Step::Resume => (false, Value::Null),
    };
    let metadata = json!({"annotations": {SUSPENDED: note}});
    match kind {
        Kind::GitSource => Some(json!({"metadata": metadata, "spec": {"suspend": is_suspended}})),
        Kind::Kyma => {
            let value = if is_suspended { Value::from("true") } else { Value::Null };
            let mut metadata = metadata;
            metadata["labels"] = json!({label::SKIP_RECONCILIATION: value});
            Some(json!({ "metadata": metadata }))
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
            None => text.parse().map(Chosen::Object).map_err(|_| {
                let kind = text.split('/').next().unwrap_or_default();
                format!("unknown kind `{kind}`: use gitsource, kyma or rollout, for example rollout/cache")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspension_says_who_since_when_and_why() {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(note("alice", at, None), "by alice since 2023-11-14T22:13:20Z");
        let why = note("alice", at, Some("upgrade of the network"));
        assert_eq!(why, "by alice since 2023-11-14T22:13:20Z: upgrade of the network");
        let step = Step::Suspend { note: why.clone(), has_reason: true };
        let kyma = json!({"metadata": {
            "annotations": {SUSPENDED: why}, "labels": {label::SKIP_RECONCILIATION: "true"},
        }});
        assert_eq!(patch(Kind::Kyma, &step), Some(kyma));
        let resumed = json!({"metadata": {"annotations": {SUSPENDED: null}}, "spec": {"suspend": false}});
        assert_eq!(patch(Kind::GitSource, &Step::Resume), Some(resumed));
        assert_eq!(patch(Kind::Manifest, &step), None);
    }

    #[test]
    fn what_is_not_suspended_is_not_resumed() {
        let suspend = |has_reason| Step::Suspend { note: "by alice".to_owned(), has_reason };
        let by_bob = Some("suspended by bob");
        let stays = "suspended by bob; nothing changed, write --reason to say why it stays suspended";
        for (step, suspension, expected) in [
            (suspend(false), None, None),
            (suspend(false), by_bob, Some(stays)),
            (suspend(true), by_bob, None),
            (Step::Resume, by_bob, None),
            (Step::Resume, None, Some("not suspended; nothing changed")),
        ] {
            assert_eq!(unchanged(&step, suspension).as_deref(), expected, "{step:?} {suspension:?}");
        }
    }

    #[test]
    fn a_rollout_is_resumed_only_if_something_stops_it() {
        let release = |annotations: Value| -> ModuleReleaseMeta {
            serde_json::from_value(json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
                "metadata": {"name": "cache", "namespace": "kcp-system", "annotations": annotations},
                "spec": {"moduleName": "cache", "channels": [{"channel": "regular", "version": "1.1.0"}]},
            }))
            .unwrap()
        };
        let said = |annotations: Value| rollout_patch(&release(annotations), &[], &Step::Resume).map(|(_, said)| said);
        let resumed = Some("rollout resumed".to_owned());
        assert_eq!(said(json!({})), None);
        assert_eq!(said(json!({ROLLOUT_PAUSED: "true", SUSPENDED: "by alice"})), resumed);
        // A failure that is gone is no longer accepted.
        assert_eq!(said(json!({ROLLOUT_RESUMED: "1.1.0 in one"})), resumed);
    }

    #[test]
    fn an_unknown_kind_is_told_what_can_be_suspended() {
        let expected = "unknown kind `module`: use gitsource, kyma or rollout, for example rollout/cache";
        assert_eq!("module/cache".parse::<Chosen>().unwrap_err(), expected);
    }

    #[test]
    fn what_git_suspends_is_resumed_in_git() {
        let error = refuse_resume("Kyma kcp-system/dev", "kymas/dev.yaml of GitSource kcp-system/a", Switch::Label);
        assert_eq!(
            error.unwrap_err().to_string(),
            "Kyma kcp-system/dev is suspended in git: remove the label operator.kyma-project.io/skip-reconciliation from \
             kymas/dev.yaml of GitSource kcp-system/a, and commit; a resume here would not last"
        );
    }

    #[test]
    fn a_reason_is_one_short_line() {
        assert_eq!(reason("  upgrade "), Ok("upgrade".to_owned()));
        for (text, problem) in [
            (" ".to_owned(), "is empty"),
            ("a\nb".to_owned(), "line breaks"),
            ("a".repeat(REASON_CHARS_MAX + 1), "at most 120"),
        ] {
            assert!(reason(&text).unwrap_err().contains(problem), "{text}");
        }
    }
}
