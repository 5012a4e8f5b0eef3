//! Decides when a runtime is compared, and which of its modules cannot be. Pure.

use std::time::Duration;

use tidegate_core::{
    api::{Kyma, Manifest, names::label},
    landscape,
    object::Digest,
    plan::{ModuleOutcome, Refusal, RuntimePlan, reason},
};
use tokio::time::Instant;

/// Reads for each object and hour that comparing an unchanged runtime may cost. With the watches of the control plane,
/// which have no share of a runtime, the sum stays below a tenth.
pub(crate) const READS_PER_OBJECT_AND_HOUR: f64 = 0.07;
/// The shortest time between two comparisons of a runtime that changes: an upgrade changes its Manifests many times.
pub(crate) const CHANGE_GAP: Duration = Duration::from_secs(60);
/// The longest pause: a runtime with few objects is compared at least once a day.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The last comparison of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Digest of everything that decides what the runtime should have.
    pub(crate) wanted: Digest,
    /// When it began.
    pub(crate) at: Instant,
    /// Its requests.
    pub(crate) reads: u64,
    /// The objects that were compared.
    pub(crate) objects: usize,
}

/// Whether a comparison is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Now.
    Now,
    /// After this time, if nothing changes until then.
    In(Duration),
}

/// Decides whether a comparison is due. `wanted` is the digest of what the runtime should have now, and `gap` the
/// shortest time between two comparisons of a runtime that changes.
pub(crate) fn due(last: Option<&Compared>, wanted: Digest, (interval, gap): (Duration, Duration), now: Instant) -> Due {
    let Some(last) = last else { return Due::Now };
    let pause = if last.wanted == wanted { pause(interval, last.reads, last.objects) } else { gap };
    match pause.checked_sub(now.saturating_duration_since(last.at)) {
        Some(rest) if !rest.is_zero() => Due::In(rest),
        Some(_) | None => Due::Now,
    }
}

/// How long an unchanged runtime is left alone after a comparison with so many reads.
pub(crate) fn pause(interval: Duration, reads: u64, objects: usize) -> Duration {
    let objects = u32::try_from(objects.max(1)).unwrap_or(u32::MAX);
    let reads = u32::try_from(reads).unwrap_or(u32::MAX);
    let hours = f64::from(reads) / (f64::from(objects) * READS_PER_OBJECT_AND_HOUR);
    let affordable = Duration::try_from_secs_f64(hours * 3600.0).unwrap_or(PAUSE_MAX);
    interval.max(affordable.min(PAUSE_MAX))
}

/// What of a runtime cannot be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unknown {
    /// One line each.
    pub(crate) lines: Vec<String>,
    /// Whether a registry has not answered yet, so that this may change in a moment.
    pub(crate) is_waiting: bool,
}

// === impl Unknown ===

impl Unknown {
    pub(crate) fn add(&mut self, other: Unknown) {
        self.lines.extend(other.lines);
        self.is_waiting |= other.is_waiting;
    }
}

/// The modules that the daemon could not plan: it would report them, and leave what is installed as it is. One that is
/// not installed, and that Lifecycle Manager refuses in the same words, is none: there is nothing to compare.
pub(crate) fn not_planned(plan: &RuntimePlan, kyma: &Kyma, manifests: &[Manifest]) -> Unknown {
    let mut unknown = Unknown::default();
    for module in plan.deciding() {
        let refusal = match &module.outcome {
            // A module that the daemon would remove is a difference.
            ModuleOutcome::Refuse(refusal) if refusal.keep => refusal,
            ModuleOutcome::Refuse(_) | ModuleOutcome::Install(_) | ModuleOutcome::Wait(_) | ModuleOutcome::Unmanage => {
                continue;
            }
        };
        let is_of = |manifest: &&Manifest| {
            landscape::label(&manifest.metadata, label::MODULE_NAME) == Some(module.name.as_str())
        };
        if !manifests.iter().any(|manifest| is_of(&manifest)) && is_reported(kyma, &module.name, refusal) {
            continue;
        }
        let hint = refusal.hint.iter().map(|hint| format!("; {hint}")).collect::<String>();
        unknown.lines.push(format!("module {}: {}{hint}", module.name, refusal.message.trim()));
        unknown.is_waiting |= refusal.reason == reason::COMPONENT_PENDING;
    }
    unknown
}

/// Whether the status of a Kyma already says that its definitions are the reason.
fn is_reported(kyma: &Kyma, module: &str, refusal: &Refusal) -> bool {
    let is_of_definitions = matches!(
        refusal.reason,
        reason::NO_RELEASE | reason::NO_CHANNEL | reason::NO_TEMPLATE | reason::NOT_ALLOWED | reason::DOWNGRADE
    );
    let mut modules = kyma.status.iter().flat_map(|status| &status.modules);
    let says = |message: Option<&String>| message.is_some_and(|message| message.trim() == refusal.message.trim());
    is_of_definitions && modules.any(|one| one.name == module && says(one.message.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate_core::{
        name::Key,
        plan::{self, Answer, Components, InstalledModules, Settings, Windows},
    };

    use super::*;

    /// A runtime with module `keda` in a registry, whose component has this answer. `version` is what its Manifest
    /// says, and `told` the message in the status of the Kyma.
    fn planned(answer: Answer, has_template: bool, version: Option<&str>, told: &str) -> Unknown {
        let object = |kind: &str, name: &str, spec: Value| {
            let metadata = json!({"name": name, "namespace": "kcp-system"});
            json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec})
        };
        let mut landscape = landscape::Landscape::default();
        let release = json!({
            "moduleName": "keda", "ocmComponentName": "example.org/keda",
            "channels": [{"channel": "regular", "version": "1.1.0"}],
        });
        let release = serde_json::from_value(object("ModuleReleaseMeta", "keda", release)).unwrap();
        landscape.releases.insert(Key::new("kcp-system", "keda"), std::sync::Arc::new(release));
        if has_template {
            let template = json!({"moduleName": "keda", "version": "1.1.0", "descriptor": {}});
            let template = serde_json::from_value(object("ModuleTemplate", "keda-1.1.0", template)).unwrap();
            landscape.templates.insert(Key::new("kcp-system", "keda-1.1.0"), std::sync::Arc::new(template));
        }
        let mut kyma = object("Kyma", "one", json!({"channel": "regular", "modules": [{"name": "keda"}]}));
        kyma["status"] = json!({"state": "Error", "modules": [{"name": "keda", "state": "Error", "message": told}]});
        let kyma: Kyma = serde_json::from_value(kyma).unwrap();
        let manifests: Vec<Manifest> = version
            .map(|version| {
                let spec = json!({
                    "remote": true, "version": version, "install": {"name": "raw-manifest", "source": {"type": "x"}},
                });
                let mut manifest = object("Manifest", "one-keda", spec);
                manifest["metadata"]["labels"] = json!({label::MODULE_NAME: "keda"});
                serde_json::from_value(manifest).unwrap()
            })
            .into_iter()
            .collect();
        let components = Components::new(std::sync::Arc::default(), answer);
        let plan = plan::runtime(
            &landscape,
            &components,
            &kyma,
            &kyma.spec,
            &Settings::default(),
            &InstalledModules::from_manifests(&manifests),
            Windows::Unknown,
        );
        not_planned(&plan, &kyma, &manifests)
    }

    #[test]
    fn a_module_that_cannot_be_planned_is_not_compared() {
        let failed = || Answer::Failed("no OCI registry is configured for it".to_owned());
        let line = "module keda: error finding ComponentDescriptor: no OCI registry is configured for it";
        let lines = |unknown: Unknown| unknown.lines;
        assert_eq!(lines(planned(failed(), true, Some("1.0.0"), "")), [line]);
        // What only the daemon of Tidegate says is no reason to be silent.
        assert_eq!(lines(planned(failed(), true, None, &line["module keda: ".len()..])), [line]);
        let pending = planned(Answer::Pending, true, None, "");
        assert!(pending.is_waiting && pending.lines.len() == 1, "{pending:?}");
    }

    #[test]
    fn a_module_that_is_refused_before_and_after_has_nothing_to_compare() {
        let message = "failed to get module template: ModuleTemplate.operator.kyma-project.io \"keda-1.1.0\" not found";
        assert_eq!(planned(Answer::Pending, false, None, message), Unknown::default());
        assert_eq!(planned(Answer::Pending, false, None, "another").lines, [format!("module keda: {message}")]);
        assert_eq!(planned(Answer::Pending, false, Some("1.0.0"), message).lines.len(), 1, "its objects stay");
    }

    const INTERVAL: Duration = Duration::from_secs(1800);

    fn hours(hours: f64) -> Duration {
        Duration::from_secs_f64(hours * 3600.0)
    }

    #[test]
    fn an_unchanged_runtime_is_left_alone_for_as_long_as_its_reads_ask() {
        for (reads, objects, expected) in [
            (14, 200, hours(1.0)),
            (14, 100, hours(2.0)),
            // A large runtime costs less than the interval asks.
            (14, 4000, INTERVAL),
            (0, 0, INTERVAL),
            // Nothing waits longer than a day.
            (1000, 1, PAUSE_MAX),
        ] {
            assert_eq!(pause(INTERVAL, reads, objects), expected, "{reads} reads, {objects} objects");
        }
    }

    #[test]
    fn a_comparison_is_due_at_once_after_a_minute_or_when_its_reads_allow_it() {
        let (old, new) = (Digest::of_bytes(b"old"), Digest::of_bytes(b"new"));
        let start = Instant::now();
        let last = Compared { wanted: old, at: start, reads: 14, objects: 200 };
        let after = |seconds| start + Duration::from_secs(seconds);
        let due = |last, wanted, now| due(last, wanted, (INTERVAL, CHANGE_GAP), now);
        assert_eq!(due(None, old, start), Due::Now);
        assert_eq!(due(Some(&last), old, after(60)), Due::In(Duration::from_secs(3540)));
        assert_eq!(due(Some(&last), old, after(3600)), Due::Now);
        assert_eq!(due(Some(&last), new, after(10)), Due::In(Duration::from_secs(50)));
        assert_eq!(due(Some(&last), new, after(60)), Due::Now);
    }

    /// What a day of comparing costs, whatever a runtime has.
    #[test]
    fn a_day_of_comparing_stays_below_a_tenth_of_a_read_for_each_object_and_hour() {
        for (reads, objects) in [(12_u32, 8_u32), (20, 135), (25, 400), (16, 4000)] {
            let pause = pause(Duration::from_secs(600), u64::from(reads), objects as usize);
            if pause == PAUSE_MAX {
                continue;
            }
            let hourly = f64::from(reads) * 3600.0 / pause.as_secs_f64();
            assert!(hourly / f64::from(objects) < 0.1, "{reads} {objects}: {hourly}");
        }
    }
}
