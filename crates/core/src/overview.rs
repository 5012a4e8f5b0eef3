//! An overview of the whole landscape: what is ready, what is in progress, what is wrong and why.
//!
//! It is computed only from the custom resources in KCP. So `tidegate status` only needs read
//! access to them, and `run --once` can report what is not done. Pure: the same resources give the
//! same overview, in the order of their names.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    adopt,
    api::{
        GitSource, Kyma, Manifest, ModuleReleaseMeta, Watcher,
        git_source::{Counts, DiagnosticEntry, GitSourceStatus},
        kyma::{KymaStatus, ModuleStatus},
        names::{finalizer, label},
        setup,
        shared::{Condition, ObjectMeta, State, is_default},
    },
    conditions,
    definition::KCP_OPERATOR_RUNS,
    intake::status::{RECEIVED, WAIT_FOR_TEMPLATES},
    landscape::{self, Switch},
    name::Key,
    plan::{self, is_mandatory},
    status,
};

/// The state of a source, runtime, module or Watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubjectState {
    /// A user must act.
    Wrong,
    /// Work is in progress.
    Waiting,
    /// A user stopped it intentionally.
    Stopped,
    /// It is as desired.
    Well,
}

/// The whole landscape; each kind is sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overview {
    /// The git sources.
    pub sources: Vec<SourceLine>,
    /// The runtimes.
    pub runtimes: Vec<RuntimeLine>,
    /// The Watchers.
    pub watchers: Vec<WatcherLine>,
    /// Why no daemon reconciles the sources; `None` if one does, or if that is not known.
    #[serde(rename = "noLeader", skip_serializing_if = "Option::is_none")]
    pub no_leader: Option<String>,
    /// Whether the sources are reconciled and no Lease shows whether a daemon still runs: one without leader election
    /// has none.
    #[serde(rename = "noLease", skip_serializing_if = "is_default")]
    pub no_lease: bool,
    /// The modules whose rollout is suspended.
    #[serde(rename = "suspendedRollouts", skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<RolloutLine>,
    /// The resources of kcp landscapes that Tidegate reconciles.
    #[serde(rename = "kcpLandscapes", skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<SetupLine>,
    /// That kcp-operator runs beside the daemon, which writes nothing of kcp landscapes meanwhile. Contains who it is.
    #[serde(rename = "kcpOperator", skip_serializing_if = "Option::is_none")]
    pub kcp_operator: Option<String>,
    /// The objects that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableLine>,
    /// The kinds that the control plane does not serve, by their plural.
    #[serde(rename = "notServed", skip_serializing_if = "BTreeSet::is_empty")]
    pub not_served: BTreeSet<String>,
    /// Whether no daemon of Tidegate has led this landscape, so that none holds deletions.
    #[serde(skip)]
    pub is_foreign: bool,
}

/// A git source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceLine {
    /// `<namespace>/<name>`.
    pub name: String,
    /// Its state.
    pub standing: SubjectState,
    /// One sentence.
    pub message: String,
    /// The last commit without held back definitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_revision: Option<String>,
    /// The last read commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempted_revision: Option<String>,
    /// The number of definitions in each state.
    pub counts: Counts,
    /// The problems of its definitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticEntry>,
    /// What is wrong with the deliveries of its git host, which is no problem of the source: polling finds each push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<String>,
}

/// A module whose rollout is suspended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RolloutLine {
    /// `<namespace>/<name>` of the module.
    pub name: String,
    /// Who suspended it, since when and why, as far as that is known.
    pub message: String,
}

/// A runtime.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuntimeLine {
    /// `<namespace>/<name>` of the Kyma.
    pub name: String,
    /// Its state.
    pub standing: SubjectState,
    /// The state of the Kyma; empty if no pass has processed it.
    pub state: State,
    /// One sentence.
    pub message: String,
    /// When its next maintenance window begins, and what waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<String>,
    /// The new versions that it does not get yet, because they spread step by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// What a commit would remove from it, which waits for a confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
    /// Whether it is as Lifecycle Manager left it, until `tidegate adopt take --finish`.
    #[serde(skip_serializing_if = "is_default")]
    pub adopted: bool,
    /// What a user can do about modules that are not installed as requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The modules that it selects, by name.
    pub modules: Vec<ModuleLine>,
    /// Its mandatory modules, by name.
    #[serde(rename = "mandatoryModules", skip_serializing_if = "Vec::is_empty")]
    pub mandatory: Vec<ModuleLine>,
}

/// A module in a runtime.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModuleLine {
    /// Its name.
    pub name: String,
    /// Its state.
    pub standing: SubjectState,
    /// The state of the module in its status.
    pub state: State,
    /// Installed version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Installed channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The problem, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether an upgrade waits for a maintenance window.
    #[serde(skip_serializing_if = "is_default")]
    pub maintenance: bool,
}

/// A Watcher.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WatcherLine {
    /// `<namespace>/<name>`.
    pub name: String,
    /// Its state.
    pub standing: SubjectState,
    /// One sentence.
    pub message: String,
}

/// A resource of a kcp landscape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetupLine {
    /// Its kind.
    pub kind: &'static str,
    /// `<namespace>/<name>`.
    pub name: String,
    /// Its state.
    pub standing: SubjectState,
    /// One sentence.
    pub message: String,
}

/// An object that does not match its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadableLine {
    /// Its kind.
    pub kind: String,
    /// `<namespace>/<name>`.
    pub name: String,
    /// The field and what is wrong with it.
    pub problem: String,
    /// Whether it is a GitSource with overrides of templates, which other objects may wait for.
    #[serde(rename = "hasTemplates", skip_serializing_if = "is_default")]
    pub has_templates: bool,
}

/// What the Leases say about the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// A daemon leads, or the user may not read its Lease.
    Present,
    /// None does. Contains the reason.
    Absent(String),
    /// There is no Lease, and the sources are reconciled: by a daemon without leader election, which has none.
    NotKnown,
}

// === impl SetupLine ===

impl SetupLine {
    /// A resource with its status; `None` for one that Tidegate does not reconcile. The status of a CacheServer is in
    /// its annotation.
    pub fn new(kind: setup::Kind, metadata: &ObjectMeta, status: &Value) -> Option<SetupLine> {
        use conditions::setup::{
            CERTIFICATES, CLUSTER, DELETION, KCP, MISSING_IN_KCP, MOUNTS, OBJECTS, UNUSABLE, VALID,
        };

        if !metadata.finalizers.iter().flatten().any(|name| name == finalizer::SETUP) {
            return None;
        }
        let noted = (kind == setup::Kind::CacheServer).then(|| landscape::setup::noted_status(metadata));
        let status = noted.as_ref().unwrap_or(status);
        let all: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).unwrap_or_default();
        let unusable = conditions::find(&all, MOUNTS).filter(|one| one.status == "False" && one.reason == UNUSABLE);
        let missing_in_kcp =
            conditions::find(&all, KCP).filter(|one| one.status == "False" && one.reason == MISSING_IN_KCP);
        let first = |types: &[&str]| {
            let fails = |type_: &&str| conditions::find(&all, type_).filter(|one| one.status == "False");
            types.iter().find_map(fails).map(|one| one.message.clone())
        };
        // Those of upstream say that a reference leads nowhere, or that pods are not ready.
        let (standing, message) = if metadata.deletion_timestamp.is_some() {
            (SubjectState::Waiting, first(&[DELETION]).unwrap_or_else(|| "it is being deleted".to_owned()))
        } else if let Some(problem) = first(&[VALID, OBJECTS, CLUSTER, "RootShard", "ReferenceValid"]) {
            (SubjectState::Wrong, problem)
        } else if let Some(unusable) = unusable {
            (SubjectState::Wrong, unusable.message.clone())
        } else if let Some(missing) = missing_in_kcp {
            (SubjectState::Wrong, missing.message.clone())
        } else if let Some(missing) = first(&[CERTIFICATES, MOUNTS, "Available", KCP]) {
            (SubjectState::Waiting, missing)
        } else if all.is_empty() {
            (SubjectState::Waiting, "not reconciled yet".to_owned())
        } else {
            (SubjectState::Well, "as desired".to_owned())
        };
        Some(SetupLine { kind: kind.as_str(), name: landscape::key(metadata).to_string(), standing, message })
    }
}

// === impl ModuleLine ===

impl ModuleLine {
    /// Whether a user has paused its Manifest.
    pub fn is_paused(&self) -> bool {
        self.message.as_deref().is_some_and(|message| message.contains(status::PAUSED))
    }
}

// === impl UnreadableLine ===

impl UnreadableLine {
    /// Which object, which field, and what is wrong with it.
    pub fn sentence(&self) -> String {
        format!("{} {} cannot be read: {}", self.kind, self.name, self.problem)
    }
}

// === impl Overview ===

impl Overview {
    /// The overview of these resources.
    pub fn from_objects<'a>(
        sources: impl IntoIterator<Item = &'a GitSource>,
        kymas: impl IntoIterator<Item = &'a Kyma>,
        watchers: impl IntoIterator<Item = &'a Watcher>,
    ) -> Overview {
        let mut overview = Overview {
            sources: sources.into_iter().map(source).collect(),
            runtimes: kymas.into_iter().map(runtime).collect(),
            watchers: watchers.into_iter().map(watcher).collect(),
            no_leader: None,
            no_lease: false,
            rollouts: Vec::new(),
            setup: Vec::new(),
            kcp_operator: None,
            unreadable: Vec::new(),
            not_served: BTreeSet::new(),
            is_foreign: false,
        };
        overview.sources.sort_by(|left, right| left.name.cmp(&right.name));
        overview.runtimes.sort_by(|left, right| left.name.cmp(&right.name));
        overview.watchers.sort_by(|left, right| left.name.cmp(&right.name));
        overview
    }

    /// The same, with the mandatory modules of runtimes, which only their Manifests show. Other Manifests say nothing.
    #[must_use]
    pub fn with_mandatory<'a>(mut self, manifests: impl IntoIterator<Item = &'a Manifest>) -> Overview {
        for manifest in manifests.into_iter().filter(|manifest| is_mandatory(&manifest.metadata)) {
            let Some(kyma) = landscape::label(&manifest.metadata, label::KYMA_NAME) else { continue };
            let kyma = Key::new(manifest.metadata.namespace.as_deref().unwrap_or_default(), kyma).to_string();
            if let Some(runtime) = self.runtimes.iter_mut().find(|runtime| runtime.name == kyma) {
                runtime.mandatory.extend(mandatory(manifest));
                runtime.mandatory.sort_by(|left, right| left.name.cmp(&right.name));
            }
        }
        self
    }

    /// The same, with the suspended rollouts among those of these modules.
    #[must_use]
    pub fn with_rollouts<'a>(mut self, releases: impl IntoIterator<Item = &'a ModuleReleaseMeta>) -> Overview {
        self.rollouts.extend(releases.into_iter().filter_map(rollout));
        self.rollouts.sort();
        self
    }

    /// The same, with resources of kcp landscapes.
    #[must_use]
    pub fn with_setup(mut self, resources: impl IntoIterator<Item = SetupLine>) -> Overview {
        self.setup.extend(resources);
        self.setup.sort_by(|left, right| (left.kind, &left.name).cmp(&(right.kind, &right.name)));
        self
    }

    /// The same, with who holds the Lease of kcp-operator, if it runs.
    #[must_use]
    pub fn with_kcp_operator(mut self, holder: Option<String>) -> Overview {
        self.kcp_operator = holder;
        self
    }

    /// That Tidegate writes nothing of kcp landscapes, and what to do: one sentence. `None` if kcp-operator does not
    /// run.
    pub fn beside_kcp_operator(&self) -> Option<String> {
        let holder = self.kcp_operator.as_ref()?;
        Some(format!("Tidegate writes nothing of kcp landscapes, because {KCP_OPERATOR_RUNS} ({holder} holds it)"))
    }

    /// The same, with the sources of the command line of the daemon. One of them hides a GitSource with the same name.
    #[must_use]
    pub fn with_local_sources(mut self, local: Vec<SourceLine>) -> Overview {
        self.sources.retain(|source| local.iter().all(|one| one.name != source.name));
        self.sources.extend(local);
        self.sources.sort_by(|left, right| left.name.cmp(&right.name));
        self
    }

    /// The same, with what is known of the daemon that reconciles the sources.
    #[must_use]
    pub fn with_leader(mut self, leader: Leader) -> Overview {
        (self.no_leader, self.no_lease) = match leader {
            Leader::Present => (None, false),
            Leader::Absent(why) => (Some(why), false),
            Leader::NotKnown => (None, true),
        };
        self
    }

    /// The same, with the objects that cannot be read.
    #[must_use]
    pub fn with_unreadable(mut self, unreadable: impl IntoIterator<Item = UnreadableLine>) -> Overview {
        self.unreadable.extend(unreadable);
        self.unreadable.sort_by(|left, right| (&left.kind, &left.name).cmp(&(&right.kind, &right.name)));
        self
    }

    /// The same, with the kinds that the control plane does not serve.
    #[must_use]
    pub fn with_not_served(mut self, not_served: BTreeSet<String>) -> Overview {
        self.not_served = not_served;
        self
    }

    /// Whether a source has invalid definitions.
    pub fn has_invalid_definitions(&self) -> bool {
        let errors = |source: &SourceLine| source.diagnostics.iter().any(|diagnostic| diagnostic.severity == "error");
        self.sources.iter().any(|source| source.standing != SubjectState::Stopped && errors(source))
    }

    /// Whether a user must act: something is wrong, or cannot be read.
    pub fn is_wrong(&self) -> bool {
        let wrong = |standing: SubjectState| standing == SubjectState::Wrong;
        let is_bad = |runtime: &RuntimeLine| {
            wrong(runtime.standing) || runtime.modules.iter().chain(&runtime.mandatory).any(|one| wrong(one.standing))
        };
        self.no_leader.is_some()
            || !self.unreadable.is_empty()
            || !self.not_served.is_empty()
            || self.sources.iter().any(|source| wrong(source.standing))
            || self.runtimes.iter().filter(|runtime| runtime.standing != SubjectState::Stopped).any(is_bad)
            || self.watchers.iter().any(|watcher| wrong(watcher.standing))
            || self.setup.iter().any(|resource| wrong(resource.standing))
            || (self.kcp_operator.is_some() && !self.setup.is_empty())
    }

    /// Whether work is in progress.
    pub fn is_under_way(&self) -> bool {
        let waiting = |standing: SubjectState| standing == SubjectState::Waiting;
        // Some wait for a person, and others of the same runtime go on.
        let goes_on = |runtime: &RuntimeLine| {
            let is_held =
                runtime.removal.is_some() || runtime.modules.iter().any(|one| one.standing == SubjectState::Wrong);
            let mut modules = runtime.modules.iter().chain(&runtime.mandatory);
            runtime.standing == SubjectState::Wrong
                && is_under_way(runtime.state)
                && is_held
                && modules.any(|one| waiting(one.standing))
        };
        self.sources.iter().any(|source| waiting(source.standing))
            || self.runtimes.iter().any(|runtime| waiting(runtime.standing) || goes_on(runtime))
            || self.watchers.iter().any(|watcher| waiting(watcher.standing))
            || self.setup.iter().any(|resource| waiting(resource.standing))
    }

    /// The problems, one line each. Does not include what a user stopped intentionally.
    pub fn not_done(&self) -> Vec<String> {
        let open = |standing: SubjectState| matches!(standing, SubjectState::Wrong | SubjectState::Waiting);
        let mut lines = Vec::new();
        for source in self.sources.iter().filter(|source| open(source.standing)) {
            lines.push(format!("source {}: {}", source.name, source.message));
        }
        for runtime in self.runtimes.iter().filter(|runtime| open(runtime.standing)) {
            lines.push(format!("runtime {}: {}", runtime.name, runtime.message));
            let modules = runtime.modules.iter().chain(&runtime.mandatory);
            for module in modules.filter(|module| open(module.standing)) {
                let message = module.message.as_deref().unwrap_or("not ready yet");
                // The message of the runtime often repeats that of its module.
                if runtime.message.contains(message) {
                    continue;
                }
                lines.push(format!("runtime {}: module {}: {message}", runtime.name, module.name));
            }
        }
        for watcher in self.watchers.iter().filter(|watcher| open(watcher.standing)) {
            lines.push(format!("watcher {}: {}", watcher.name, watcher.message));
        }
        for resource in self.setup.iter().filter(|resource| open(resource.standing)) {
            lines.push(format!("{} {}: {}", resource.kind, resource.name, resource.message));
        }
        lines.extend(self.beside_kcp_operator());
        lines.extend(self.unreadable.iter().map(UnreadableLine::sentence));
        lines
    }
}

/// The sources of the command line, as other processes read them; `None` if there are none.
pub fn local_sources_text<'a>(sources: impl IntoIterator<Item = &'a GitSource>) -> Option<String> {
    let mut lines: Vec<SourceLine> = sources.into_iter().map(source).collect();
    lines.sort_by(|left, right| left.name.cmp(&right.name));
    let text = |lines: &[SourceLine]| serde_json::to_string(lines).unwrap_or_default();
    let whole = text(&lines);
    if LOCAL_SOURCES_BYTES_MAX < whole.len() {
        lines.iter_mut().for_each(|line| line.diagnostics.clear());
        return Some(text(&lines));
    }
    (!lines.is_empty()).then_some(whole)
}

/// The sources in such a text; none if it is not one.
pub fn local_sources(text: &str) -> Vec<SourceLine> {
    serde_json::from_str(text).unwrap_or_default()
}

/// Longest text about the sources of the command line with their diagnostics. All annotations of an object together
/// have at most 256 KiB.
const LOCAL_SOURCES_BYTES_MAX: usize = 64 << 10;

fn source(source: &GitSource) -> SourceLine {
    let nothing = GitSourceStatus::default();
    let status = source.status.as_ref().unwrap_or(&nothing);
    let current = status.observed_generation == source.metadata.generation;
    let ready = condition(&status.conditions, "Ready");
    let is_waited_for = |ready: &&Condition| ready.message.ends_with(WAIT_FOR_TEMPLATES);
    let (standing, message) = match ready {
        Some(ready) if source.spec.suspend && is_waited_for(&ready) => (SubjectState::Wrong, ready.message.clone()),
        _ if source.spec.suspend => {
            let suspension = landscape::suspension(&source.metadata, Switch::Spec);
            let suspension = suspension.unwrap_or_else(|| "suspended".to_owned());
            (SubjectState::Stopped, format!("{suspension}: no fetch, apply or prune"))
        }
        Some(ready) if current && ready.status == "True" => (SubjectState::Well, ready.message.clone()),
        Some(ready) if current && ready.status == "False" => (SubjectState::Wrong, ready.message.clone()),
        Some(ready) if current => (SubjectState::Waiting, ready.message.clone()),
        Some(_) => (SubjectState::Waiting, "its latest change has not been reconciled yet".to_owned()),
        None => (SubjectState::Waiting, "not reconciled yet".to_owned()),
    };
    SourceLine {
        name: landscape::key(&source.metadata).to_string(),
        standing,
        message,
        applied_revision: status.applied_revision.clone(),
        attempted_revision: status.attempted_revision.clone(),
        counts: status.counts.unwrap_or_default(),
        diagnostics: status.diagnostics.clone(),
        deliveries: condition(&status.conditions, RECEIVED)
            .filter(|received| received.status == "False")
            .map(|received| received.message.clone()),
    }
}

fn rollout(release: &ModuleReleaseMeta) -> Option<RolloutLine> {
    let policy = plan::rollout::policy(&release.metadata).ok().flatten().filter(|policy| policy.is_paused)?;
    let suspended = || landscape::suspension(&release.metadata, Switch::Pause);
    let message = policy.suspension.or_else(suspended).unwrap_or_else(|| "suspended".to_owned());
    Some(RolloutLine { name: landscape::key(&release.metadata).to_string(), message })
}

fn runtime(kyma: &Kyma) -> RuntimeLine {
    let nothing = KymaStatus::default();
    let status = kyma.status.as_ref().unwrap_or(&nothing);
    let skipped = landscape::is_skipped(&kyma.metadata);
    let operation = status.last_operation.as_ref().map(|last| last.operation.clone());
    let behind = status
        .conditions
        .iter()
        .any(|condition| condition.observed_generation.is_some_and(|seen| Some(seen) < kyma.metadata.generation));
    let (standing, message) = if skipped {
        let by_label = || format!("stopped by label {}", label::SKIP_RECONCILIATION);
        (SubjectState::Stopped, landscape::suspension(&kyma.metadata, Switch::Label).unwrap_or_else(by_label))
    } else {
        match status.state {
            State::Unknown => (SubjectState::Waiting, "not reconciled yet".to_owned()),
            State::Ready if behind => {
                (SubjectState::Waiting, "its latest change has not been reconciled yet".to_owned())
            }
            state => (of_state(state), operation.unwrap_or_else(|| state.to_string())),
        }
    };
    // The state of the Kyma says nothing about its mandatory modules, about whether its agent still reports changes,
    // nor about a removal that waits for a confirmation.
    let watch = watch_problem(&status.conditions).map(|problem| (SubjectState::Wrong, problem));
    let installing = is_under_way(status.state).then(|| not_watched(&status.conditions)).flatten();
    let watch = watch.or_else(|| installing.map(|why| (SubjectState::Waiting, why)));
    let removal = conditions::find(&status.conditions, conditions::REMOVAL).map(|condition| condition.message.clone());
    let unconfirmed = removal.clone().map(|removal| (SubjectState::Wrong, removal));
    let besides = mandatory_problem(&status.conditions).into_iter().chain(watch).chain(unconfirmed);
    let (standing, message) = besides.fold((standing, message), with_problem);
    let mut modules: Vec<ModuleLine> = status.modules.iter().map(module).collect();
    modules.sort_by(|left, right| left.name.cmp(&right.name));
    let name = landscape::key(&kyma.metadata).to_string();
    let waits = conditions::find(&status.conditions, conditions::MAINTENANCE_WINDOW);
    let maintenance = waits.map(|condition| condition.message.clone());
    let rollout = conditions::find(&status.conditions, conditions::ROLLOUT);
    let rollout = rollout.map(|condition| condition.message.clone());
    let hints = conditions::message(&status.conditions, conditions::HINTS).unwrap_or_default();
    let hint = tell_waits(hints, &mut modules);
    // Only its users can end such a wait.
    let held = status::held_by_users(&status.conditions);
    let is_held = |module: &ModuleLine| held.iter().any(|(name, _)| *name == module.name);
    for module in &mut modules {
        if module.standing == SubjectState::Waiting && is_held(module) {
            module.standing = SubjectState::Wrong;
        }
    }
    let standing = match standing {
        SubjectState::Waiting if !held.is_empty() => SubjectState::Wrong,
        standing => standing,
    };
    let (state, mandatory) = (status.state, Vec::new());
    let adopted = adopt::is_adopted(&kyma.metadata);
    RuntimeLine { name, standing, state, message, maintenance, rollout, removal, adopted, hint, modules, mandatory }
}

/// Gives each module in progress the hint that says what it waits for, and each paused one the hint that says so.
/// Returns the other hints, which say what a user can do; none if there is none. The line of a mandatory module comes
/// from its Manifest, which says that it is paused.
fn tell_waits(hints: &str, modules: &mut [ModuleLine]) -> Option<String> {
    let mut left: Vec<String> = Vec::new();
    for (name, what) in status::split_hints(hints) {
        let takes = |module: &&mut ModuleLine| {
            let is_in_progress = module.standing == SubjectState::Waiting && module.message.is_none();
            let is_its = what.starts_with(status::PAUSED) || (what.starts_with(status::WAITS) && is_in_progress);
            module.name == name && is_its
        };
        match modules.iter_mut().find(takes) {
            Some(module) => {
                let before = module.message.take().map(|message| format!("{message}; ")).unwrap_or_default();
                module.message = Some(format!("{before}{what}"));
            }
            None if what.starts_with(status::PAUSED) => {}
            None => left.push(format!("module {name}: {what}")),
        }
    }
    (!left.is_empty()).then(|| left.join("; "))
}

/// A line with one more problem. A user who stopped the runtime knows that nothing happens there.
fn with_problem(
    (standing, message): (SubjectState, String),
    (worse, problem): (SubjectState, String),
) -> (SubjectState, String) {
    match (standing, worse) {
        (SubjectState::Stopped, _) => (standing, message),
        (SubjectState::Well, _) => (worse, problem),
        (SubjectState::Wrong, _) | (_, SubjectState::Wrong) => (SubjectState::Wrong, format!("{message}; {problem}")),
        (SubjectState::Waiting, _) => (standing, format!("{message}; {problem}")),
    }
}

/// What is wrong with the mandatory modules of a Kyma, or what they wait for; none if they are ready.
fn mandatory_problem(conditions: &[Condition]) -> Option<(SubjectState, String)> {
    let found = condition(conditions, conditions::MANDATORY_MODULES).filter(|found| found.status != "True")?;
    let must_act = found.reason == conditions::MANDATORY_FAILED || found.message.contains(status::BY_USERS);
    let standing = if must_act { SubjectState::Wrong } else { SubjectState::Waiting };
    Some((standing, found.message.clone()))
}

/// Why changes in a runtime are not reported although an agent runs; none if they are.
fn watch_problem(conditions: &[Condition]) -> Option<String> {
    let found = condition(conditions, conditions::WATCH)?;
    conditions::watch::BROKEN.contains(&found.reason.as_str()).then(|| format!("{}: {}", found.reason, found.message))
}

/// Why the agent of a runtime is not installed, which is then what its Kyma waits for.
fn not_watched(conditions: &[Condition]) -> Option<String> {
    let found = conditions::find(conditions, conditions::WATCH).filter(|condition| condition.status == "False")?;
    Some(format!("{}: {}", found.reason, found.message))
}

fn is_under_way(state: State) -> bool {
    of_state(state) == SubjectState::Waiting && state != State::Unknown
}

/// A mandatory module, as its Manifest shows it.
fn mandatory(manifest: &Manifest) -> Option<ModuleLine> {
    let status = manifest.status.as_ref();
    let state = status.map(|status| status.state).unwrap_or_default();
    let operation = status.and_then(|status| status.last_operation.as_ref()).map(|last| last.operation.clone());
    Some(ModuleLine {
        name: landscape::label(&manifest.metadata, label::MODULE_NAME)?.to_owned(),
        standing: of_state(state),
        state,
        version: manifest.spec.version.clone(),
        channel: None,
        message: status::waits_for(manifest)
            .or(operation)
            .filter(|_| of_state(state) != SubjectState::Well || status::is_paused(manifest)),
        maintenance: false,
    })
}

fn module(module: &ModuleStatus) -> ModuleLine {
    ModuleLine {
        name: module.name.clone(),
        standing: of_state(module.state),
        state: module.state,
        version: module.version.clone(),
        channel: module.channel.clone(),
        message: module.message.clone(),
        maintenance: module.maintenance,
    }
}

fn watcher(watcher: &Watcher) -> WatcherLine {
    let (standing, message) = match &watcher.status {
        None => (SubjectState::Waiting, "not reconciled yet".to_owned()),
        Some(status) => {
            // The condition of Lifecycle Manager has a constant text, and this one the cause.
            let cause = conditions::find(&status.conditions, conditions::ROUTE);
            let problem = || status.conditions.iter().find(|condition| condition.status != "True");
            let message = cause.or_else(problem).map(|condition| condition.message.clone());
            let message = message.unwrap_or_else(|| status.state.to_string());
            (of_state(status.state), message)
        }
    };
    WatcherLine { name: landscape::key(&watcher.metadata).to_string(), standing, message }
}

fn of_state(state: State) -> SubjectState {
    match state {
        State::Ready => SubjectState::Well,
        State::Unmanaged => SubjectState::Stopped,
        State::Processing | State::Deleting | State::Unknown => SubjectState::Waiting,
        State::Error | State::Warning => SubjectState::Wrong,
    }
}

fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

#[cfg(test)]
mod tests;
