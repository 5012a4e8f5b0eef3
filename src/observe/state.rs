//! What a process that observes knows of each subject.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tidegate_core::{api::kyma::KymaSpec, intake::Id, name::Key, object::Digest};
use tokio::time::Instant;

use super::{decide::Compared, difference::Difference};

/// What is known of everything.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) sources: BTreeMap<Key, SeenSource>,
    /// The differences of the route of each Watcher.
    pub(crate) routes: BTreeMap<Key, Vec<Difference>>,
    pub(crate) runtimes: BTreeMap<Key, SeenRuntime>,
    pub(crate) gateway: SeenGateway,
    /// Grows with every change of what sources would apply.
    pub(crate) version: u64,
}

/// What is known of the Secrets of the gateway and of the CA.
#[derive(Default)]
pub(crate) struct SeenGateway {
    pub(crate) differences: Vec<Difference>,
    /// Why they could not be compared, in one sentence.
    pub(crate) unknown: Option<String>,
}

/// What is known of a source.
#[derive(Default)]
pub(crate) struct SeenSource {
    /// The revision that was compared.
    pub(crate) revision: Option<String>,
    /// Why nothing would be written, in one sentence.
    pub(crate) idle: Option<String>,
    /// Why the revision that was fetched last is not the one that was compared, in one sentence.
    pub(crate) unused: Option<String>,
    /// Digest of the decision that was compared, and of the objects that it concerns.
    pub(crate) decided: Option<Digest>,
    pub(crate) differences: Vec<Difference>,
    /// The objects of the control plane that would change, as they would be.
    pub(crate) after: Vec<(Id, Value)>,
    /// The objects of the control plane that would be deleted.
    pub(crate) gone: BTreeSet<Id>,
}

/// What is known of a runtime.
#[derive(Default)]
pub(crate) struct SeenRuntime {
    pub(crate) standing: Standing,
    pub(crate) last: Option<Compared>,
    /// The Kyma in the runtime, which the next plan needs.
    pub(crate) in_runtime: Option<KymaSpec>,
    /// The modules that it has or should have.
    pub(crate) modules: BTreeSet<String>,
    pub(crate) differences: Vec<Difference>,
    /// What could not be compared, one line each.
    pub(crate) unknown: Vec<String>,
    /// Whether that is only because a registry has not answered yet.
    pub(crate) is_waiting: bool,
}

/// Whether a runtime was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not yet.
    #[default]
    Pending,
    /// At this time.
    Compared(Instant),
    /// Not compared, with the reason in one sentence. An earlier comparison is kept.
    Unreachable(String),
    /// It would not be reconciled, with the reason.
    Skipped(&'static str),
}

/// What could not be compared, or not completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Uncompared {
    /// The control plane: it does not answer, or a part of it was not read yet.
    ControlPlane,
    /// A source: nothing of it, or not its last revision.
    Source,
    /// A runtime, with all that it has.
    Runtime,
    /// A part of a runtime, such as a module.
    Part,
}

// === impl Uncompared ===

impl Uncompared {
    /// The word in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Uncompared::ControlPlane => "ControlPlane",
            Uncompared::Source => "Source",
            Uncompared::Runtime => "Runtime",
            Uncompared::Part => "Part",
        }
    }
}

// === impl Standing ===

impl Standing {
    /// All words of [`Standing::as_str`].
    pub(crate) const WORDS: [&'static str; 4] = [Standing::PENDING, "Compared", Standing::UNREACHABLE, "Skipped"];
    /// The word of a runtime that was not compared yet.
    pub(crate) const PENDING: &'static str = "Pending";
    /// The word of a runtime that cannot be compared.
    pub(crate) const UNREACHABLE: &'static str = "Unreachable";

    /// The word in metrics and reports.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Standing::Pending => Standing::PENDING,
            Standing::Compared(_) => "Compared",
            Standing::Unreachable(_) => Standing::UNREACHABLE,
            Standing::Skipped(_) => "Skipped",
        }
    }
}

// === impl Seen ===

impl Seen {
    /// All differences: those of the control plane, and those of runtimes.
    pub(crate) fn differences(&self) -> impl Iterator<Item = &Difference> {
        let of_sources = self.sources.values().flat_map(|source| &source.differences);
        let of_runtimes = self.runtimes.values().flat_map(|runtime| &runtime.differences);
        of_sources.chain(self.routes.values().flatten()).chain(&self.gateway.differences).chain(of_runtimes)
    }

    /// Records what a source would apply. Returns whether that has changed.
    pub(crate) fn set_source(&mut self, key: &Key, source: SeenSource) -> bool {
        let former = self.sources.insert(key.clone(), source).unwrap_or_default();
        let now = &self.sources[key];
        let has_changed = former.after != now.after || former.gone != now.gone;
        self.version += u64::from(has_changed);
        has_changed
    }

    /// Records why the revision of a source that was fetched last is not the one that was compared.
    pub(crate) fn set_unused(&mut self, key: &Key, why: Option<&str>) {
        if let Some(source) = self.sources.get_mut(key) {
            source.unused = why.map(str::to_owned);
        }
    }

    /// What could not be compared, by [`Uncompared`]. `missing` is how much of the control plane this process lacks.
    pub(crate) fn not_compared(&self, missing: usize) -> [(Uncompared, usize); 4] {
        let sources = self.sources.values().filter(|source| source.idle.is_some() || source.unused.is_some());
        let runtimes = self.runtimes.values().filter(|runtime| match runtime.standing {
            Standing::Pending | Standing::Unreachable(_) => true,
            Standing::Compared(_) | Standing::Skipped(_) => false,
        });
        let modules = self.runtimes.values().map(|runtime| runtime.unknown.len());
        [
            (Uncompared::ControlPlane, missing + usize::from(self.gateway.unknown.is_some())),
            (Uncompared::Source, sources.count()),
            (Uncompared::Runtime, runtimes.count()),
            (Uncompared::Part, modules.sum()),
        ]
    }

    /// Forgets a source. Returns whether it would have applied anything.
    pub(crate) fn forget_source(&mut self, key: &Key) -> bool {
        let former = self.sources.remove(key).unwrap_or_default();
        let has_changed = !former.after.is_empty() || !former.gone.is_empty();
        self.version += u64::from(has_changed);
        has_changed
    }
}
