//! The summary of a report: how much changes, where, and what takes effect.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    model::{Action, Difference, Effect, Held, LIVE, Move, Report, Side, Why},
    words::{counted, thousands},
};
use tidegate_core::{api::names, diagnostic::Severity, name::Key};

/// Most releases that the headline names.
const INTENTS_MAX: usize = 3;
/// Most kinds and actions that the headline names.
const KINDS_MAX: usize = 6;

/// The summary of a report, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// One line with the intent: `cache 1.0.0 → 1.1.0 on regular: 812 of 5,000 runtimes; 1 ConfigMap changes`.
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
        Why::Unconfirmed => "waiting for a confirmation",
        Why::Withheld => "held back",
        Why::Kept => "no longer declared, and kept",
        Why::KeptBefore => "kept since an earlier revision",
        Why::Conflict => "held by a conflict",
        Why::Waiting => "waiting for another definition",
        Why::Suspended => "suspended",
        Why::Adopted => "as Lifecycle Manager left it",
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
        ("", Why::Conflict | Why::Waiting, 0) => "the control plane".to_owned(),
        ("", Why::DecidedByRuntime, _) => "the module list".to_owned(),
        ("", Why::Adopted, _) => "the agent".to_owned(),
        ("", _, _) => "the Kyma".to_owned(),
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
            let mut text = intent(report);
            text.push_str(&waits(report));
            if report.differences.iter().all(|one| one.effect == Effect::Held || one.action == Action::Refuse) {
                text.push_str(", but none of it takes effect");
            }
            text + &troubles
        }
    }
}

/// The number of objects that go only after a confirmation.
pub(super) fn unconfirmed(report: &Report) -> usize {
    let bookkeeping = report.bookkeeping();
    let all = report.differences.iter().enumerate().filter(|(index, _)| !bookkeeping.contains(index));
    all.filter(|(_, one)| one.effect == Effect::NeedsConfirmation).map(|(_, one)| one.objects).sum()
}

/// What waits for a user. Each begins with a semicolon.
fn waits(report: &Report) -> String {
    let mut text = String::new();
    match unconfirmed(report) {
        0 => {}
        count => {
            let wait = if count == 1 { "waits" } else { "wait" };
            text.push_str(&format!("; {} {wait} for a confirmation", counted(count, "object")));
        }
    }
    let guarded = report.held.iter().filter(|held| held.why == Why::Downgrade).flat_map(|held| held.runtimes.iter());
    match guarded.collect::<BTreeSet<_>>().len() {
        0 => {}
        count => text.push_str(&format!("; blocked by the downgrade guard in {}", counted(count, "runtime"))),
    }
    let mut paused: BTreeMap<&str, BTreeSet<&Key>> = BTreeMap::new();
    for held in report.held.iter().filter(|held| held.why == Why::Suspended && !held.module.is_empty()) {
        paused.entry(&held.module).or_default().extend(held.runtimes.iter());
    }
    for (module, runtimes) in paused.iter().take(INTENTS_MAX) {
        let count = counted(runtimes.len(), "runtime");
        text.push_str(&format!("; the rollout of {module} is suspended, so {count} wait"));
        text.push_str(if runtimes.len() == 1 { "s" } else { "" });
    }
    text
}

/// The modules that leave runtimes after a confirmation, each with its version and the number of runtimes.
pub(super) fn leaving(report: &Report) -> Vec<String> {
    let is_leaving = |one: &&Difference| {
        one.is_manifest() && one.action == Action::Delete && one.effect == Effect::NeedsConfirmation
    };
    let mut leaving: BTreeMap<String, usize> = BTreeMap::new();
    for one in report.differences.iter().filter(is_leaving) {
        let Some(manifest) = &one.old else { continue };
        let module = manifest["metadata"]["labels"][names::label::MODULE_NAME].as_str().unwrap_or_default();
        let version = manifest["spec"]["version"].as_str().unwrap_or_default();
        *leaving.entry(format!("{module} {version}")).or_default() += one.runtimes.len();
    }
    let said = |(module, runtimes): (String, usize)| format!("{module} leaves {}", counted(runtimes, "runtime"));
    leaving.into_iter().map(said).collect()
}

/// The Kymas that come and go: `Kyma prod goes`.
fn kymas(report: &Report) -> Vec<String> {
    let of = |action: Action| -> Vec<&Difference> {
        let is_kyma = |one: &&Difference| (one.target, &*one.id.kind) == (Side::ControlPlane, "Kyma");
        report.differences.iter().filter(is_kyma).filter(|one| one.action == action).collect()
    };
    let said = |action: Action, one: &str, many: &str| match of(action).as_slice() {
        [] => None,
        [only] if only.objects == 1 => Some(format!("Kyma {} {one}", only.id.name)),
        all => Some(format!("{} {many}", counted(all.iter().map(|one| one.objects).sum(), "Kyma"))),
    };
    [said(Action::Delete, "goes", "go"), said(Action::Create, "comes", "come")].into_iter().flatten().collect()
}

/// The modules that come to runtimes, leave them or are no longer managed there without a new release, each with the
/// number of runtimes: `mailer 2.4.0 goes from 12 of 5,000 runtimes`. Those of Kymas that come and go are not named
/// again.
fn modules(report: &Report) -> Vec<String> {
    let of_kymas: BTreeSet<&Key> = report
        .differences
        .iter()
        .filter(|one| (one.target, &*one.id.kind) == (Side::ControlPlane, "Kyma"))
        .filter(|one| matches!(one.action, Action::Create | Action::Delete))
        .flat_map(|one| one.runtimes.iter())
        .collect();
    let unmanaged = unmanaged(report);
    let is_released = |module: &str| report.moves.iter().any(|one| one.module.name() == module);
    let mut runtimes: BTreeMap<(&str, &str), [BTreeSet<&Key>; 2]> = BTreeMap::new();
    let mut left: BTreeMap<(&str, &str), BTreeSet<&Key>> = BTreeMap::new();
    let has_effect = has_effect(report);
    let mut kept: BTreeMap<(&str, &str), BTreeSet<&Key>> = BTreeMap::new();
    for one in report.differences.iter().filter(|one| one.is_manifest()) {
        let (comes, manifest) = match (one.action, &one.old, &one.new) {
            (Action::Create, _, Some(new)) => (true, new),
            (Action::Delete, Some(old), _) => (false, old),
            _ => continue,
        };
        let module = manifest["metadata"]["labels"][names::label::MODULE_NAME].as_str().unwrap_or_default();
        let version = manifest["spec"]["version"].as_str().unwrap_or_default();
        if !comes && one.effect == Effect::Held && has_effect {
            kept.entry((module, version)).or_default().extend(one.runtimes.iter());
        } else if !is_released(module) {
            let concerned = one.runtimes.iter().filter(|key| !of_kymas.contains(key));
            let (stays, concerned): (Vec<&Key>, Vec<&Key>) =
                concerned.partition(|key| !comes && unmanaged.contains(&(*key, module)));
            if !stays.is_empty() {
                left.entry((module, version)).or_default().extend(stays);
            }
            runtimes.entry((module, version)).or_default()[usize::from(comes)].extend(concerned);
        }
    }
    let all = counted(report.runtimes.total, "runtime");
    let mut said = Vec::new();
    let mut later = gone_later(report);
    for ((module, version), [from, to]) in &runtimes {
        // A Manifest with another name replaces the one before.
        let count = |one: &BTreeSet<&Key>, other: &BTreeSet<&Key>| one.difference(other).count();
        let (gone, come) = (count(from, to), count(to, from));
        let more = if gone > 0 { later.remove(module).unwrap_or_default() } else { String::new() };
        said.extend((gone > 0).then(|| format!("{module} {version} goes from {} of {all}{more}", thousands(gone))));
        said.extend((come > 0).then(|| format!("{module} {version} comes to {} of {all}", thousands(come))));
    }
    said.extend(left.into_iter().map(|((module, version), runtimes)| {
        let count = thousands(runtimes.len());
        format!("{module} {version} is no longer managed in {count} of {all}, its objects stay")
    }));
    said.extend(kept.into_iter().map(|((module, version), runtimes)| {
        format!("{module} {version} stays in {} of {all} for now", thousands(runtimes.len()))
    }));
    if INTENTS_MAX < said.len() {
        let rest = said.len() - INTENTS_MAX;
        said.truncate(INTENTS_MAX);
        said.push(format!("{} more", counted(rest, "module")));
    }
    said
}

/// The suspended runtimes that lose a module once they resume, by module: the removal limit counts them.
fn gone_later(report: &Report) -> BTreeMap<&str, String> {
    let of_kymas = report.held.iter().filter(|held| held.why == Why::Suspended && held.module.is_empty());
    let suspended: BTreeSet<&Key> = of_kymas.flat_map(|held| held.runtimes.iter()).collect();
    let losing = report.held.iter().filter(|held| held.why == Why::Unconfirmed);
    let later = |held: &'_ Held| held.runtimes.iter().filter(|runtime| suspended.contains(runtime)).count();
    let said = losing.map(|held| (held.module.as_str(), later(held))).filter(|(_, count)| *count > 0);
    said.map(|(module, count)| {
        let (runtimes, resume) =
            (counted(count, "suspended runtime"), if count == 1 { "it resumes" } else { "they resume" });
        (module, format!(", and from {runtimes} once {resume}"))
    })
    .collect()
}

/// The modules that get another version without a new release, because their Kymas change channels: `cache 1.0.0 →
/// 1.1.0 in 1 of 5,000 runtimes`.
fn versions(report: &Report) -> Vec<String> {
    let mut runtimes: BTreeMap<(&str, &str, &str), BTreeSet<&Key>> = BTreeMap::new();
    for one in report.differences.iter().filter(|one| one.is_manifest() && one.effect != Effect::Held) {
        let (Some(old), Some(new)) = (&one.old, &one.new) else { continue };
        let module = new["metadata"]["labels"][names::label::MODULE_NAME].as_str().unwrap_or_default();
        let (Some(from), Some(to)) = (old["spec"]["version"].as_str(), new["spec"]["version"].as_str()) else {
            continue;
        };
        let is_release = |release: &Move| {
            release.module.name() == module
                && (release.from.as_deref(), release.to.as_deref()) == (Some(from), Some(to))
        };
        if from != to && !report.moves.iter().any(is_release) {
            runtimes.entry((module, from, to)).or_default().extend(one.runtimes.iter());
        }
    }
    let all = counted(report.runtimes.total, "runtime");
    let more = runtimes.len().saturating_sub(INTENTS_MAX);
    let said = |((module, from, to), runtimes): ((&str, &str, &str), BTreeSet<&Key>)| {
        format!("{module} {from} → {to} in {} of {all}", thousands(runtimes.len()))
    };
    let mut said: Vec<String> = runtimes.into_iter().take(INTENTS_MAX).map(said).collect();
    said.extend((more > 0).then(|| format!("{} more", counted(more, "version"))));
    said
}

/// The modules whose components get other names: `module cache is under component name example.org/cache in 12 of
/// 5,000 runtimes, its objects stay`.
fn components(report: &Report) -> Vec<String> {
    let is_release = |one: &&Difference| (one.target, &*one.id.kind) == (Side::ControlPlane, "ModuleReleaseMeta");
    let component = |release: &Option<std::sync::Arc<serde_json::Value>>| {
        release.as_ref().and_then(|release| release["spec"]["ocmComponentName"].as_str().map(str::to_owned))
    };
    let mut said = Vec::new();
    for release in report.differences.iter().filter(is_release) {
        let (Some(before), Some(after)) = (component(&release.old), component(&release.new)) else { continue };
        if before == after {
            continue;
        }
        let of = |action: Action| -> BTreeSet<&Key> {
            let is_it = |one: &&Difference| {
                let manifest =
                    one.old.as_ref().or(one.new.as_ref()).filter(|_| one.is_manifest() && one.action == action);
                let module = manifest.map(|manifest| &manifest["metadata"]["labels"][names::label::MODULE_NAME]);
                module.is_some_and(|module| *module == *release.id.name)
            };
            report.differences.iter().filter(is_it).flat_map(|one| one.runtimes.iter()).collect()
        };
        let (gone, come) = (of(Action::Delete), of(Action::Create));
        let (count, all) = (gone.intersection(&come).count(), counted(report.runtimes.total, "runtime"));
        let (module, count) = (&release.id.name, thousands(count));
        said.push(format!("module {module} is under component name {after} in {count} of {all}, its objects stay"));
    }
    if INTENTS_MAX < said.len() {
        let rest = said.len() - INTENTS_MAX;
        said.truncate(INTENTS_MAX);
        said.push(format!("{} more", counted(rest, "component name")));
    }
    said
}

/// The modules that Kymas have with `managed: false` after the change.
fn unmanaged(report: &Report) -> BTreeSet<(&Key, &str)> {
    let kymas = report.differences.iter().filter(|one| (one.target, &*one.id.kind) == (Side::ControlPlane, "Kyma"));
    kymas.flat_map(left_of).collect()
}

fn left_of(kyma: &Difference) -> Vec<(&Key, &str)> {
    let modules = kyma.new.as_ref().and_then(|new| new["spec"]["modules"].as_array());
    let left = modules.into_iter().flatten().filter(|module| module["managed"] == false);
    left.filter_map(|module| module["name"].as_str())
        .flat_map(|name| kyma.runtimes.iter().map(move |runtime| (runtime, name)))
        .collect()
}

/// The modules whose content changes in runtimes under the same version: `the content of cache 1.0.0 changes in 12 of
/// 5,000 runtimes`.
fn contents(report: &Report) -> Vec<String> {
    let touched: BTreeSet<&Key> = report.in_runtimes().flat_map(|one| one.runtimes.iter()).collect();
    let mut runtimes: BTreeMap<(&str, &str), BTreeSet<&Key>> = BTreeMap::new();
    for one in &report.differences {
        let Some(module) = one.same_version() else { continue };
        let concerned = one.runtimes.iter().filter(|key| touched.contains(key));
        runtimes.entry(module).or_default().extend(concerned);
    }
    runtimes.retain(|_, runtimes| !runtimes.is_empty());
    let more = runtimes.len().saturating_sub(INTENTS_MAX);
    let all = counted(report.runtimes.total, "runtime");
    let said = |((module, version), runtimes): ((&str, &str), BTreeSet<&Key>)| {
        format!("the content of {module} {version} changes in {} of {all}", thousands(runtimes.len()))
    };
    let mut said: Vec<String> = runtimes.into_iter().take(INTENTS_MAX).map(said).collect();
    said.extend((more > 0).then(|| format!("that of {} as well", counted(more, "other module"))));
    said
}

/// Whether anything of the revision takes effect. Of one that takes none at all, the headline says what it intends.
fn has_effect(report: &Report) -> bool {
    report.differences.iter().any(|one| one.effect != Effect::Held)
}

/// Whether an object that git no longer has stays although other parts of the revision take effect.
fn stays(report: &Report) -> impl Fn(&Difference) -> bool {
    let has_effect = has_effect(report);
    move |one| has_effect && (one.action, one.effect) == (Action::Delete, Effect::Held)
}

/// The objects in runtimes that stay, apart from those of modules that stay as a whole: `2 objects stay for now`.
fn staying(report: &Report) -> Option<String> {
    let stays = stays(report);
    let all = || report.differences.iter().filter(|one| stays(one));
    let of_modules: BTreeSet<&Key> =
        all().filter(|one| one.is_manifest()).flat_map(|one| one.runtimes.iter()).collect();
    let is_unsaid = |one: &&Difference| {
        one.target == Side::Runtime && !one.runtimes.iter().all(|runtime| of_modules.contains(runtime))
    };
    match all().filter(is_unsaid).count() {
        0 => None,
        1 => Some("1 object stays for now".to_owned()),
        count => Some(format!("{} stay for now", counted(count, "object"))),
    }
}

/// What the change is about: `cache 1.0.0 → 1.1.0 on regular: 812 of 5,000 runtimes; 1 ConfigMap goes, 1 changes`.
fn intent(report: &Report) -> String {
    let mut parts: Vec<String> = report.moves.iter().take(INTENTS_MAX).map(|one| release(report, one)).collect();
    if INTENTS_MAX < report.moves.len() {
        parts.push(format!("{} more", counted(report.moves.len() - INTENTS_MAX, "release")));
    }
    parts.extend(kymas(report));
    parts.extend(modules(report));
    parts.extend(versions(report));
    parts.extend(components(report));
    parts.extend(contents(report));
    let bookkeeping = report.bookkeeping();
    parts.extend(staying(report));
    let stays = stays(report);
    let all = report.differences.iter().enumerate().filter(|(_, one)| !stays(one));
    let real: Vec<&Difference> = all.filter(|(index, _)| !bookkeeping.contains(index)).map(|(_, one)| one).collect();
    let in_runtimes: Vec<&Difference> = real.iter().copied().filter(|one| one.target == Side::Runtime).collect();
    // What changes in runtimes says more than the definitions behind it.
    let is_all_shown = in_runtimes.is_empty() && parts.is_empty();
    let shown = if is_all_shown { &real } else { &in_runtimes };
    if !shown.is_empty() {
        // The other parts say how many runtimes they concern.
        let scope = if parts.is_empty() { scope(report, &in_runtimes) } else { String::new() };
        parts.push(objects(shown) + &scope);
    }
    let is_unsaid =
        |one: &&&Difference| one.action == Action::Refuse && one.target == Side::ControlPlane && !is_all_shown;
    let refused: usize = real.iter().filter(is_unsaid).map(|one| one.objects).sum();
    if refused > 0 {
        parts.push(format!("{} refused by the API server", counted(refused, "object")));
    }
    parts.extend([Action::Recreate, Action::Refuse].into_iter().filter_map(|action| overdue(&real, action)));
    parts.extend(former(report));
    match parts.is_empty() {
        true => format!("only bookkeeping changes: {}", counted(report.differences.len(), "difference")),
        false => parts.join("; "),
    }
}

/// In how many runtimes these objects are: ` in 4,500 of 5,000 runtimes`; nothing without any.
fn scope(report: &Report, in_runtimes: &[&Difference]) -> String {
    let runtimes: BTreeSet<&Key> = in_runtimes.iter().flat_map(|one| one.runtimes.iter()).collect();
    match runtimes.len() {
        0 => String::new(),
        count => format!(" in {} of {}", thousands(count), counted(report.runtimes.total, "runtime")),
    }
}

/// The runtimes that differ whatever the revision says, unless it changes nothing: `1 runtime with errors differs
/// already`.
fn former(report: &Report) -> Option<String> {
    let is_former = |one: &&Difference| one.is_former;
    if report.differences.iter().all(|one| one.is_former) {
        return None;
    }
    let runtimes = report.differences.iter().filter(is_former).flat_map(|one| one.runtimes.iter());
    match runtimes.collect::<BTreeSet<&Key>>().len() {
        0 => None,
        1 => Some("1 runtime with errors differs already".to_owned()),
        count => Some(format!("{} with errors differ already", counted(count, "runtime"))),
    }
}

/// The new version of a module on a channel.
fn release(report: &Report, one: &Move) -> String {
    let runtimes = format!("{} of {}", thousands(one.runtimes), counted(report.runtimes.total, "runtime"));
    let (module, channel) = (one.module.name(), &one.channel);
    match (&one.from, &one.to) {
        (Some(from), Some(to)) => format!("{module} {from} → {to} on {channel}: {runtimes}"),
        (None, Some(to)) => format!("{module} {to} is new on {channel}: {runtimes}"),
        (Some(from), None) => format!("{module} {from} leaves {channel}: {runtimes}"),
        (None, None) => format!("{module} on {channel}: {runtimes}"),
    }
}

/// The objects for which something else may happen than a change: `1 Deployment is recreated where an earlier change
/// was refused`.
fn overdue(real: &[&Difference], action: Action) -> Option<String> {
    let is_it = |one: &&&Difference| one.overdue.as_ref().is_some_and(|overdue| overdue.action == action);
    let all: Vec<&Difference> = real.iter().filter(is_it).copied().collect();
    let kinds: BTreeSet<&str> = all.iter().map(|one| &*one.id.kind).collect();
    let kind = if kinds.len() == 1 { kinds.first().copied().unwrap_or("object") } else { "object" };
    let count = all.len();
    (count > 0).then(|| format!("{} {} where an earlier change was refused", counted(count, kind), verb(action, count)))
}

/// How many objects of which kinds differ and how: `1 ConfigMap goes, 2 change`. In runtimes, this is the number of
/// distinct differences; in the control plane, the number of objects.
fn objects(differences: &[&Difference]) -> String {
    let mut counts: BTreeMap<(&str, u8), (Action, usize)> = BTreeMap::new();
    for one in differences {
        // A Kyma stands for its runtime.
        let is_each = one.target == Side::ControlPlane || &*one.id.kind == "Kyma";
        let count = if is_each { one.objects } else { 1 };
        counts.entry((&*one.id.kind, one.action.weight())).or_insert((one.action, 0)).1 += count;
    }
    let mut parts: Vec<String> = Vec::new();
    let mut former = "";
    for ((kind, _), (action, count)) in counts.iter().take(KINDS_MAX) {
        let what = if former == *kind { thousands(*count) } else { counted(*count, kind) };
        parts.push(format!("{what} {}", verb(*action, *count)));
        former = kind;
    }
    if KINDS_MAX < counts.len() {
        let rest: Vec<(Action, usize)> = counts.into_values().skip(KINDS_MAX).collect();
        let count: usize = rest.iter().map(|(_, count)| count).sum();
        let same = rest.first().map(|(action, _)| *action).filter(|first| rest.iter().all(|(one, _)| one == first));
        let verb = same.map_or(if count == 1 { "differs" } else { "differ" }, |action| verb(action, count));
        parts.push(format!("{} {verb}", counted(count, "other object")));
    }
    parts.join(", ")
}

/// What happens to so many objects.
fn verb(action: Action, count: usize) -> &'static str {
    match (action, count == 1) {
        (Action::Conflict, true) => "is in conflict",
        (Action::Conflict, false) => "are in conflict",
        (Action::Refuse, true) => "is refused by the API server",
        (Action::Refuse, false) => "are refused by the API server",
        (Action::Delete, true) => "goes",
        (Action::Delete, false) => "go",
        (Action::Recreate, true) => "is recreated",
        (Action::Recreate, false) => "are recreated",
        (Action::Change, true) => "changes",
        (Action::Change, false) => "change",
        (Action::Create, true) => "comes",
        (Action::Create, false) => "come",
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
