//! The summary of a report: how much changes, where, and what takes effect.

use std::collections::BTreeSet;

use super::{
    model::{Action, Difference, Effect, Held, LIVE, Report, Side, Why},
    words::{counted, thousands},
};
use tidegate_core::diagnostic::Severity;

/// The summary of a report, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// One line with the overall result: `812 of 5,000 runtimes change`.
    pub(super) headline: String,
    /// The number of runtimes, and of distinct variants among them.
    pub(super) runtimes: String,
    /// What takes effect, what waits and what is rejected: a label and an amount.
    pub(super) effects: Vec<(&'static str, String)>,
}

impl Summary {
    /// The summary of a report.
    pub(super) fn from_report(report: &Report) -> Summary {
        Summary { headline: headline(report), runtimes: runtimes(report), effects: effects(report) }
    }
}

/// The label of a [`Held`].
pub(super) fn label(why: Why) -> &'static str {
    match why {
        Why::Downgrade => "blocked by the downgrade guard",
        Why::DecidedByRuntime => "decided by the runtime",
        Why::Refused => "rejected",
        Why::Window => "waiting for a maintenance window",
        Why::Rollout => "spreading step by step",
        Why::Withheld => "held back",
        Why::Kept => "no longer declared, and kept",
        Why::Conflict => "held by a conflict",
        Why::Suspended => "suspended",
    }
}

/// The title of the list of unknown values.
pub(super) fn not_known(report: &Report) -> &'static str {
    if report.subject.from == LIVE { "Not known" } else { "Not known offline" }
}

/// What is held, and for whom: `module cache in 3 runtimes`.
pub(super) fn held(held: &Held) -> String {
    let what = match (held.module.as_str(), held.why, held.runtimes.len()) {
        ("", Why::Suspended, 0) => "the GitSource".to_owned(),
        ("", Why::Conflict, 0) => "the control plane".to_owned(),
        ("", Why::Suspended | Why::Conflict, _) => "the Kyma".to_owned(),
        ("", _, _) => "the module list".to_owned(),
        (module, _, _) => format!("module {module}"),
    };
    match held.runtimes.len() {
        0 => what,
        count => format!("{what} in {}", counted(count, "runtime")),
    }
}

fn headline(report: &Report) -> String {
    let may_hide = report.unknown.iter().filter(|unknown| unknown.may_hide).count();
    let objects = report.count(Side::ControlPlane).total() + report.count(Side::Runtime).total();
    let troubles = troubles(report);
    match (objects, may_hide) {
        (0, _) if !troubles.is_empty() => format!("no known change{troubles}"),
        (0, 0) => "no change".to_owned(),
        (0, _) => format!("no known change; {} may hide one", counted(may_hide, "unknown value")),
        _ => {
            let deletes = |side| report.count(side).delete + report.count(side).recreate;
            let deletes = deletes(Side::ControlPlane) + deletes(Side::Runtime);
            let mut text =
                format!("{} {}", counted(objects, "object"), if objects == 1 { "differs" } else { "differ" });
            if deletes > 0 {
                text.push_str(&format!(", {} of them deleted", thousands(deletes)));
            }
            let refused = report.count(Side::ControlPlane).refuse + report.count(Side::Runtime).refuse;
            if refused > 0 {
                text.push_str(&format!(", {} of them refused by the API server", thousands(refused)));
            }
            if report.differences.iter().all(|one| one.effect == Effect::Held || one.action == Action::Refuse) {
                text.push_str(", but none of it takes effect");
            }
            text + &troubles
        }
    }
}

/// Limitations of the report. Each begins with a semicolon.
fn troubles(report: &Report) -> String {
    let errors = || report.diagnostics.iter().filter(|one| one.severity == Severity::Error);
    let refused = errors().filter(|one| one.code == super::clean::REFUSED).count();
    let wrong = errors().count() - refused;
    let runtimes = report.unreached.iter().filter(|one| one.target != "kcp").map(|one| &one.target);
    let runtimes = runtimes.collect::<BTreeSet<_>>().len();
    let kcp = report.unreached.iter().any(|one| one.target == "kcp");
    let mut text = String::new();
    if wrong > 0 {
        text.push_str(&format!("; {}", counted(wrong, "error")));
    }
    if refused > 0 {
        text.push_str(&format!("; {} rejected", counted(refused, "object")));
    }
    if kcp {
        text.push_str("; the control plane could not be read");
    }
    if runtimes > 0 {
        text.push_str(&format!("; {} not compared", counted(runtimes, "runtime")));
    }
    text
}

fn runtimes(report: &Report) -> String {
    let runtimes = report.runtimes;
    let variants = counted(runtimes.variants, "distinct variant");
    let mut text = format!("{} of {}; {variants}", thousands(runtimes.touched), counted(runtimes.total, "runtime"));
    if runtimes.compared < runtimes.total {
        text.push_str(&format!("; {} compared", thousands(runtimes.compared)));
    }
    text
}

fn effects(report: &Report) -> Vec<(&'static str, String)> {
    let objects = |effect: Effect| -> usize {
        let is_of = |one: &&Difference| one.effect == effect && one.action != Action::Refuse;
        report.differences.iter().filter(is_of).map(|one| one.objects).sum()
    };
    let mut effects = Vec::new();
    const EFFECTS: [(Effect, &str); 3] = [
        (Effect::Applies, "takes effect"),
        (Effect::NeedsConfirmation, "needs confirmation"),
        (Effect::Held, "does not take effect yet"),
    ];
    for (effect, label) in EFFECTS {
        match objects(effect) {
            0 => {}
            count => effects.push((label, counted(count, "object"))),
        }
    }
    match report.count(Side::ControlPlane).refuse + report.count(Side::Runtime).refuse {
        0 => {}
        count => effects.push(("refused by the API server", counted(count, "object"))),
    }
    for why in Why::ALL {
        let all: Vec<&Held> = report.held.iter().filter(|held| held.why == why).collect();
        if !all.is_empty() {
            let runtimes = all.iter().flat_map(|held| held.runtimes.iter());
            let runtimes = runtimes.collect::<std::collections::BTreeSet<_>>().len();
            let changes = counted(all.len(), "change");
            let concerned = if runtimes == 0 { String::new() } else { format!(", {}", counted(runtimes, "runtime")) };
            effects.push((label(why), format!("{changes}{concerned}")));
        }
    }
    effects
}
