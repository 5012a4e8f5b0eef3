//! Decides who owns an object in KCP.

use std::collections::BTreeMap;

use super::{Declared, Id, Live, Other, Situation, Why, code, text};
use crate::{
    api::{
        names::{CLI_FIELD_MANAGER, FIELD_MANAGER, KCP_NAMESPACE, annotation},
        setup,
    },
    definition::Kind,
    diagnostic::Diagnostic,
    name::Key,
};

/// Another GitOps tool that manages an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherTool {
    /// Flux, by a Kustomization.
    Kustomization(Key),
    /// Flux, by a HelmRelease.
    HelmRelease(Key),
    /// Argo CD, by an Application.
    Application(String),
}

/// The decision about one definition.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The object in KCP matches git.
    Equal,
    /// Apply it.
    Apply(Why),
    /// The managers of the live object must be read first.
    LookUp,
    /// The live object is being deleted.
    Terminating,
    /// Do not apply it.
    Refused(Refusal),
}

/// What happens to an object of another source once that no longer declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// This source takes it over: both say the same.
    Moves,
    /// This source takes it over with other content, because its definition allows it.
    Adopts,
    /// It waits, because the definition has other content.
    Waits,
    /// One or the other: it does not exist yet.
    Unknown,
}

/// Why a valid definition is not applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another source owns the object.
    OwnedBy { owner: Key, read: bool, then: Then },
    /// The object exists without Tidegate's ownership label.
    Foreign { managers: Vec<String> },
    /// Its source no longer declares the object, but has applied other content. `None` if that source is gone.
    OtherContent { owner: Option<Key> },
    /// Another tool manages the object.
    Tool(OtherTool),
}

pub(crate) const FLUX_KUSTOMIZATION: (&str, &str) =
    ("kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace");
pub(crate) const FLUX_HELM_RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace");
pub(crate) const ARGO_INSTANCE: &str = "argocd.argoproj.io/instance";
pub(crate) const ARGO_TRACKING: &str = "argocd.argoproj.io/tracking-id";
/// Other tools also use Argo CD's default label. It only matters if a field manager of Argo CD
/// wrote to the object.
pub(crate) const INSTANCE: &str = "app.kubernetes.io/instance";

/// Whether a field manager of Argo CD wrote to an object.
pub(crate) fn is_by_argo(managers: &[String]) -> bool {
    managers.iter().any(|manager| manager.starts_with("argocd"))
}

/// Decides about one definition.
pub(super) fn claim(situation: &Situation<'_>, id: &Id, declared: &Declared) -> Claim {
    let Some(live) = situation.live.get(id) else {
        return match earlier_claimant(situation, id) {
            Some(owner) => Claim::Refused(Refusal::OwnedBy { owner, read: true, then: Then::Unknown }),
            None => Claim::Apply(Why::Absent),
        };
    };
    if live.deleting {
        return Claim::Terminating;
    }
    if let Some(tool) = &live.tool {
        return Claim::Refused(Refusal::Tool(tool.clone()));
    }
    match &live.source {
        Some(label) if &**label == situation.label => ours(live, declared),
        Some(label) => match situation.others.get(&**label) {
            // The ownership label of a deleted GitSource no longer protects an object.
            None => moved(live, declared, None),
            Some(Other { key, declares: None, .. }) => {
                Claim::Refused(Refusal::OwnedBy { owner: key.clone(), read: false, then: then(live, declared) })
            }
            Some(Other { key, declares: Some(ids), .. }) if ids.contains(id) => {
                Claim::Refused(Refusal::OwnedBy { owner: key.clone(), read: true, then: then(live, declared) })
            }
            Some(Other { key, .. }) => moved(live, declared, Some(key)),
        },
        None => unmarked(live, declared),
    }
}

fn ours(live: &Live, declared: &Declared) -> Claim {
    let equal = live.digest.as_ref() == Some(&declared.digest);
    match (equal, live.drifted) {
        (true, false) if live.displaced => Claim::Apply(Why::Displaced),
        (true, false) => Claim::Equal,
        (true, true) => Claim::Apply(Why::Drifted),
        (false, _) => Claim::Apply(Why::Changed),
    }
}

/// An object that its source no longer declares. With other content, the change of its owner would change runtimes
/// although neither commit shows that.
fn moved(live: &Live, declared: &Declared, owner: Option<&Key>) -> Claim {
    match then(live, declared) {
        Then::Moves => Claim::Apply(Why::Moved),
        Then::Adopts => Claim::Apply(Why::Replaced),
        Then::Waits | Then::Unknown => Claim::Refused(Refusal::OtherContent { owner: owner.cloned() }),
    }
}

fn then(live: &Live, declared: &Declared) -> Then {
    match (live.same_content, declared.adopt) {
        (true, _) => Then::Moves,
        (false, true) => Then::Adopts,
        (false, false) => Then::Waits,
    }
}

fn unmarked(live: &Live, declared: &Declared) -> Claim {
    match (&live.managers, declared.adopt) {
        // Only the managers show whether Argo CD manages the object, so they are read even before an adoption.
        (None, _) => Claim::LookUp,
        (Some(_), true) => Claim::Apply(Why::Adopted),
        // The source left it when it was deleted, and no other client has written it since.
        (Some(managers), false) if live.left && is_only_ours(managers) => {
            if live.same_content {
                Claim::Apply(Why::Moved)
            } else {
                Claim::Refused(Refusal::OtherContent { owner: None })
            }
        }
        (Some(managers), false) => Claim::Refused(Refusal::Foreign { managers: managers.to_vec() }),
    }
}

/// Whether Tidegate is the only client that has written an object: the daemon, or a command that suspends or resumes
/// something.
fn is_only_ours(managers: &[String]) -> bool {
    managers.iter().all(|manager| [FIELD_MANAGER, CLI_FIELD_MANAGER].contains(&manager.as_str()))
}

/// The other source that creates a missing object: a loaded one that comes first by name. So two
/// sources that declare the same object do not both create it.
fn earlier_claimant(situation: &Situation<'_>, id: &Id) -> Option<Key> {
    let declares = |other: &&Other| {
        !other.idle && other.key < *situation.source && other.declares.as_ref().is_some_and(|ids| ids.contains(id))
    };
    situation.others.values().filter(declares).map(|other| other.key.clone()).min()
}

// === impl OtherTool ===

impl OtherTool {
    /// Detects labels and annotations of Flux and Argo CD on an object. `managers` are its field
    /// managers, as far as they are known.
    pub fn recognize(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        managers: &[String],
    ) -> Option<OtherTool> {
        let flux = |(name, namespace): (&str, &str)| {
            let name = labels.get(name)?;
            Some(Key::new(labels.get(namespace).map_or("", String::as_str), name))
        };
        if let Some(key) = flux(FLUX_KUSTOMIZATION) {
            return Some(OtherTool::Kustomization(key));
        }
        if let Some(key) = flux(FLUX_HELM_RELEASE) {
            return Some(OtherTool::HelmRelease(key));
        }
        if let Some(tracking) = annotations.get(ARGO_TRACKING) {
            // `<application>:<group>/<kind>:<namespace>/<name>`
            let application = tracking.split(':').next().unwrap_or_default();
            return Some(OtherTool::Application(application.to_owned()));
        }
        labels
            .get(ARGO_INSTANCE)
            .or_else(|| annotations.get(ARGO_INSTANCE))
            .or_else(|| labels.get(INSTANCE).filter(|_| is_by_argo(managers)))
            .map(|application| OtherTool::Application(application.clone()))
    }

    /// The labels and annotations by which Flux and Argo CD recognize an object with these field managers.
    pub fn marks(managers: &[String]) -> Vec<&'static str> {
        let ((kustomization, of_kustomization), (release, of_release)) = (FLUX_KUSTOMIZATION, FLUX_HELM_RELEASE);
        let mut marks = vec![kustomization, of_kustomization, release, of_release, ARGO_INSTANCE, ARGO_TRACKING];
        marks.extend(is_by_argo(managers).then_some(INSTANCE));
        marks
    }

    /// The owner, for a message.
    pub fn text(&self) -> String {
        match self {
            OtherTool::Kustomization(key) => format!("the Flux Kustomization {key}"),
            OtherTool::HelmRelease(key) => format!("the Flux HelmRelease {key}"),
            OtherTool::Application(name) => format!("the Argo CD Application {name}"),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            OtherTool::Kustomization(_) | OtherTool::HelmRelease(_) => code::MANAGED_BY_FLUX,
            OtherTool::Application(_) => code::MANAGED_BY_ARGO_CD,
        }
    }

    /// How the tool hands the object over without deleting it. The steps are in [`crate::adopt::hand_over`] alone.
    pub fn steps(&self, id: &Id) -> String {
        let command = match self {
            OtherTool::Kustomization(_) | OtherTool::HelmRelease(_) => "from-flux",
            OtherTool::Application(_) => "from-argocd",
        };
        let namespace = id.1.namespace();
        let option = if namespace == KCP_NAMESPACE { String::new() } else { format!(" -n {namespace}") };
        format!("run `tidegate adopt {command}{option}` for the steps that hand it over")
    }

    /// The same, and how the daemon then takes the object over.
    fn hand_over(&self, id: &Id) -> String {
        format!("{}, then annotate the definition with `{}: \"true\"`", self.steps(id), annotation::ADOPT)
    }
}

/// The name of a kind for kubectl.
pub(crate) fn resource(kind: Kind) -> &'static str {
    match kind {
        Kind::ModuleTemplate => "moduletemplate",
        Kind::ModuleReleaseMeta => "modulereleasemeta",
        Kind::Watcher => "watcher",
        Kind::Kyma => "kyma",
        Kind::Setup(setup::Kind::CacheServer) => "cacheserver",
        Kind::Setup(setup::Kind::RootShard) => "rootshard",
        Kind::Setup(setup::Kind::FrontProxy) => "frontproxy",
        Kind::Setup(setup::Kind::Shard) => "shards.operator.kcp.io",
        Kind::Setup(setup::Kind::VirtualWorkspace) => "virtualworkspace",
        Kind::Setup(setup::Kind::Kubeconfig) => "kubeconfigs.operator.kcp.io",
    }
}

// === impl Then ===

impl Then {
    /// A clause for a user.
    fn text(self) -> String {
        let adopt = annotation::ADOPT;
        match self {
            Then::Moves => "this source takes it over without deleting it".to_owned(),
            Then::Adopts => {
                format!("this source takes it over with this content, which is other content, because of `{adopt}`")
            }
            Then::Waits => format!(
                "it stays as it is, because this definition has other content; to take it over with this content, \
                 annotate the definition with `{adopt}: \"true\"`"
            ),
            Then::Unknown => format!(
                "this source takes it over without deleting it; if this definition has other content, annotate it with \
                 `{adopt}: \"true\"`"
            ),
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// Whether the object changes once its owner no longer declares it.
    pub(super) fn adopts(&self) -> bool {
        match self {
            Refusal::OwnedBy { then: Then::Adopts, .. } => true,
            Refusal::OwnedBy { then: Then::Moves | Then::Waits | Then::Unknown, .. }
            | Refusal::Foreign { .. }
            | Refusal::OtherContent { .. }
            | Refusal::Tool(_) => false,
        }
    }

    /// The owner of the object, if it has not been read.
    pub(super) fn unread(&self) -> Option<&Key> {
        match self {
            Refusal::OwnedBy { owner, read: false, .. } => Some(owner),
            Refusal::OwnedBy { read: true, .. }
            | Refusal::Foreign { .. }
            | Refusal::OtherContent { .. }
            | Refusal::Tool(_) => None,
        }
    }

    pub(super) fn diagnostic(&self, id: &Id) -> Diagnostic {
        let object = text(id);
        match self {
            Refusal::OwnedBy { owner, read: true, then } => Diagnostic::error(
                code::OWNED_BY_SOURCE,
                format!("{object} is also declared by GitSource {owner}, which owns it"),
            )
            .hint(format!("declare it in only one of the two; if the owner no longer declares it, {}", then.text())),
            Refusal::OwnedBy { owner, read: false, then } => Diagnostic::error(
                code::OWNED_BY_SOURCE,
                format!("{object} is owned by GitSource {owner}, which has not been read yet"),
            )
            .hint(format!("if that source is read and no longer declares the object, {}", then.text())),
            Refusal::Foreign { managers } => {
                let managers = match managers.as_slice() {
                    [] => "unknown managers".to_owned(),
                    names => names.join(", "),
                };
                Diagnostic::error(
                    code::FOREIGN_OBJECT,
                    format!(
                        "{object} exists in KCP without the ownership label of a GitSource; its field managers are \
                         {managers}"
                    ),
                )
                .hint(format!("to take it over, annotate the definition with `{}: \"true\"`", annotation::ADOPT))
            }
            Refusal::OtherContent { owner } => {
                let owner = match owner {
                    Some(owner) => format!("GitSource {owner}, which no longer declares it"),
                    None => "a GitSource that no longer exists".to_owned(),
                };
                Diagnostic::error(
                    code::OTHER_CONTENT,
                    format!("{object} is owned by {owner}, and differs from this definition"),
                )
                .hint(format!(
                    "to take it over with this content, annotate the definition with `{}: \"true\"`",
                    annotation::ADOPT
                ))
            }
            Refusal::Tool(tool) => Diagnostic::error(
                tool.code(),
                format!("{object} is managed by {}; two tools must not apply the same object", tool.text()),
            )
            .hint(tool.hand_over(id)),
        }
    }
}
