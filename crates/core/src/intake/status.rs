//! The status of a GitSource: computed once per pass from its findings.
//!
//! The conditions are `Ready`, `Fetched` and `Applied`, and `Received` if the source has a receiver.
//! `Stalled` is added if only a new revision or a user can help, so that tools with kstatus rules
//! distinguish waiting from failure. The status never contains text from a remote.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{ConfirmBy, Decision, HeldFor, Id, Moved, Wait, code, prune::UnconfirmedEnd, text};
use crate::{
    api::{
        GitSource,
        git_source::{Counts, DiagnosticEntry, GitSourceStatus, NamesEntry, ObjectEntry, WithheldEntry},
        names::annotation,
        shared::{Condition, Time},
    },
    conditions::{self, Status},
    definition::{self, Definition, Kind, ModuleNames, ModuleObjects},
    diagnostic::{Diagnostic, Diagnostics, Severity},
    landscape::{self, SourceName, Switch},
    name::Key,
    object::Object,
    revision::Revision,
    status::seconds,
};

/// Whether all declared objects of the source are in KCP and there is no other problem.
pub const READY: &str = "Ready";
/// Whether the source could be read.
pub const FETCHED: &str = "Fetched";
/// Whether all declared objects of the revision are in KCP.
pub const APPLIED: &str = "Applied";
/// Whether the signatures of the last read revision are those that the GitSource asks for.
pub const VERIFIED: &str = "Verified";
/// Nothing changes without a new revision or an action of a user.
pub const STALLED: &str = "Stalled";
/// Whether deliveries of the git host arrive. It takes no part in `Ready`: without them, polling finds each push.
pub const RECEIVED: &str = "Received";
/// Reason of [`READY`] and [`APPLIED`] while a user must confirm a prune.
pub const PRUNE_UNCONFIRMED: &str = "PruneUnconfirmed";
/// Reason of [`READY`] and [`APPLIED`] if the API server rejected objects. Without [`STALLED`], Tidegate tries again
/// soon, and that can help.
pub const APPLY_FAILED: &str = "ApplyFailed";
/// Reason of [`READY`] and [`APPLIED`] while objects of the source are being deleted by another client.
pub const TERMINATING: &str = "Terminating";
/// Reason of [`READY`] of a suspended source.
pub const SUSPENDED: &str = "Suspended";
/// The scope of the source: a digest of URL, ref, paths and ignore, in the reason after a colon. It only
/// follows a change when nothing is left to prune, so that a restart does not forget that a change
/// needs a confirmation.
pub const SCOPE: &str = "tidegate.dev/Scope";
/// Reason of [`SCOPE`], before the digest, if nothing is left to prune.
const SETTLED: &str = "Settled";
/// Reason of [`SCOPE`], before the digest, while objects to prune remain.
const CHANGED: &str = "Changed";

/// False if the source declares kcp landscapes and Tidegate does not apply them. It takes no part in `Ready`.
pub const KCP_LANDSCAPES: &str = "tidegate.dev/KcpLandscapes";

/// Maximum length of lists in the status. Counters have no limit.
pub const ENTRIES_MAX: usize = 20;
/// Maximum bytes of an object in the status that its source is about to take over: 20 of them are a small part of what
/// an object may have. Kymas and ModuleReleaseMetas are shorter.
pub const TAKEOVER_LEN_MAX: usize = 4096;

/// Maximum objects of a module in the status that its source is about to take over.
pub const TAKEOVER_OBJECTS_MAX: usize = 200;
/// Maximum names of definitions in the status beyond those with all fields: what moves to another source is known
/// there. Names of the usual length take about 300 KiB.
pub const NAMES_MAX: usize = 10_000;
/// Maximum bytes of what the status has of definitions that are held back and of undeclared objects, in JSON. With all
/// else it stays far below the 1.5 MiB that etcd stores of an object.
pub const LISTS_BYTES_MAX: usize = 512 * 1024;

/// Longest message of [`READY`], in characters: `kubectl get gitsources` shows it in one line. [`FETCHED`] and
/// [`APPLIED`] have the whole message.
pub const READY_CHARS_MAX: usize = 200;

/// The result of the last attempt to read the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The current revision is the newest.
    Done,
    /// The source could not be read. The last good revision stays active.
    Failed {
        /// Static, PascalCase.
        reason: &'static str,
        /// One sentence, without any text from a remote.
        message: String,
        /// What the git server says of it, cleaned. Only the condition quotes it.
        said: Option<String>,
        /// A retry cannot help.
        stalled: bool,
    },
    /// The revision was read, and is not used: its signatures are not those that the GitSource asks for. The last good
    /// revision stays active.
    Unverified {
        /// The revision.
        revision: Revision,
        /// Static, PascalCase.
        reason: &'static str,
        /// One sentence.
        message: String,
    },
}

/// What is known of the signatures of the active revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust<'a> {
    /// The GitSource asks for none.
    #[default]
    NotAsked,
    /// This process has not verified a revision. What an earlier one has found stays in the status.
    Unknown,
    /// A revision is verified.
    Verified {
        /// The revision.
        revision: &'a Revision,
        /// Who signed it.
        by: &'a str,
    },
}

/// What a process knows of the deliveries of a source's git host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Receiving {
    /// The source has no receiver.
    #[default]
    Off,
    /// No delivery has named the source since this process began.
    Waiting,
    /// When the last delivery came that named the source.
    Delivered(Timestamp),
    /// No delivery announced this revision: polling found it.
    Missed {
        /// The revision.
        revision: String,
    },
    /// The Secret of the receiver cannot be used, so every delivery is refused: one sentence.
    Unusable(String),
}

/// Reason of [`RECEIVED`] if the Secret of the receiver cannot be used.
const HOOK_SECRET: &str = "HookSecret";
/// How long a time in [`RECEIVED`] stays if nothing else in the status changes: a storm of deliveries then costs one
/// write a minute at most.
const RECEIVED_WRITTEN: SignedDuration = SignedDuration::from_secs(60);

/// What a source with overrides of templates holds up until this process has read it.
pub const WAIT_FOR_TEMPLATES: &str = "Kymas and Watchers that may use its templates (spec.templates) wait for it";

/// What precedes the words of a git server at the end of a message.
const QUOTATION: &str = "; the server says: ";
/// Precedes the revision whose objects stay while the source is suspended.
const STAYING: &str = "; the objects of ";
/// Precedes what a source without its revision does not do.
const LOST: &str = "; the state folder has no revision";
/// What a sentence about a suspended source leaves at least for who suspended it, in characters.
const SUSPENSION_CHARS: usize = 24;

/// The message of a condition without the words of a git server: for logs and Events.
pub fn without_quotation(message: &str) -> &str {
    message.split_once(QUOTATION).map_or(message, |(message, _)| message)
}

/// Who suspended a source, since when and why: the message of its `Ready` without what stays applied.
pub fn without_what_stays(message: &str) -> &str {
    let ends = [STAYING, LOST].into_iter().filter_map(|end| message.find(end));
    ends.min().map_or(message, |end| &message[..end])
}

/// A definition that is not applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Withheld {
    /// Its id.
    pub id: Id,
    /// File.
    pub path: String,
    /// Line of the problem, from 1.
    pub line: u32,
    /// The reason, in one sentence.
    pub message: String,
}

/// The findings and results of a pass over a source.
#[derive(Debug)]
pub struct Pass<'a> {
    /// The result of the read.
    pub fetched: &'a Fetched,
    /// What is known of the signatures.
    pub trust: Trust<'a>,
    /// The last read revision.
    pub attempted: Option<&'a Revision>,
    /// The active revision: the last read one, unless it is refused or could not be read.
    pub in_force: Option<&'a Revision>,
    /// Whether this process has read a revision of the source.
    pub is_read: bool,
    /// `onError: RefuseRevision`, and there are errors: nothing of the revision is applied.
    pub refused: bool,
    /// Whether definitions are set aside, because other sources are about to be read: see [`Decision::set_aside`]. What
    /// the status has of the last pass then stays, unless this one has found something else.
    pub is_early: bool,
    /// The decision; `None` if no revision was ever read.
    pub decision: Option<&'a Decision>,
    /// Definitions that are invalid or refer to invalid ones.
    pub withheld: &'a [Withheld],
    /// The diagnostics of the revision, without those of the decision.
    pub diagnostics: &'a Diagnostics,
    /// Warnings about the source itself.
    pub remarks: &'a Diagnostics,
    /// Objects that the API server rejected, and why.
    pub failures: &'a [(Id, String)],
    /// Whether another try may help some of these, without a new revision or a user.
    pub retry_helps: bool,
    /// The value of the annotation with which a user requested the last fetch that ended.
    pub handled: Option<&'a str>,
    /// The deliveries of the git host.
    pub receiving: &'a Receiving,
    /// Digest of URL, ref, paths and ignore.
    pub scope: &'a str,
    /// Whether prunes need a confirmation, because the scope changed or the branch was rewritten.
    pub moved: Moved,
    /// How a user confirms them.
    pub confirm_by: ConfirmBy,
}

/// The status after a pass.
pub fn after_pass(source: &GitSource, pass: &Pass<'_>, now: Timestamp) -> GitSourceStatus {
    let mut status = without_deliveries(source, pass, now);
    let is_written = source.status.as_ref() != Some(&status);
    set_received(&mut status.conditions, source, pass.receiving, is_written, now);
    status
}

/// The status after a pass, with the former condition about deliveries.
fn without_deliveries(source: &GitSource, pass: &Pass<'_>, now: Timestamp) -> GitSourceStatus {
    let now = seconds(now);
    let mut found = pass.diagnostics.clone();
    found.extend(undelivered(source, pass.receiving));
    let before = source.status.clone().unwrap_or_default();
    let generation = source.metadata.generation;
    let mut status = GitSourceStatus {
        observed_generation: generation,
        last_handled_reconcile_at: pass.handled.map(str::to_owned).or(before.last_handled_reconcile_at),
        attempted_revision: pass.attempted.map(ToString::to_string).or(before.attempted_revision),
        ..GitSourceStatus::default()
    };
    if let Fetched::Unverified { revision, .. } = pass.fetched {
        status.attempted_revision = Some(revision.to_string());
    }
    status.verified_revision = match pass.trust {
        Trust::NotAsked => None,
        Trust::Unknown => before.verified_revision,
        Trust::Verified { revision, .. } => Some(revision.to_string()),
    };
    let fetched = fetched(source, pass);
    let verified = verified(pass);
    let applied = applied(source, pass);
    // Not all that is declared is applied, and what is set aside is no problem yet.
    let stays = pass.is_early && applied.as_ref().is_some_and(|applied| applied.holds);
    let applied = applied.filter(|_| !stays);
    let mut all = before.conditions;
    if pass.trust == Trust::NotAsked {
        conditions::remove(&mut all, VERIFIED);
    }
    let mut set = |type_: &str, verdict: &Verdict| {
        let status = Status::from(verdict.holds);
        conditions::set(&mut all, type_, status, verdict.reason, &verdict.message, generation, &Time(now));
    };
    set(FETCHED, &fetched);
    if let Some(verified) = &verified {
        set(VERIFIED, verified);
    }
    if let Some(applied) = &applied {
        set(APPLIED, applied);
    }
    let verified = verified.as_ref().filter(|verified| !verified.holds);
    let ready = match (fetched.holds, verified) {
        (false, _) => Some(&fetched),
        (true, Some(verified)) => Some(verified),
        (true, None) if stays => None,
        (true, None) => Some(applied.as_ref().unwrap_or(&fetched)),
    };
    if let Some(ready) = ready {
        let ready = Verdict { message: ready.brief(pass.confirm_by), ..ready.clone() };
        set(READY, &ready);
        if ready.stalled {
            set(STALLED, &Verdict { holds: true, ..ready });
        } else {
            conditions::remove(&mut all, STALLED);
        }
    }
    set_scope(&mut all, source, pass, now);
    set_kcp_landscapes(&mut all, pass, generation, now);
    status.conditions = all;

    let Some(decision) = pass.decision else {
        status.applied_revision = before.applied_revision;
        status.counts = before.counts;
        found.append(pass.remarks.clone());
        status.diagnostics = entries(found);
        return status;
    };
    let is_held = pass.is_early || !pass.withheld.is_empty() || !decision.held.is_empty();
    let complete = !pass.refused && !is_held && pass.failures.is_empty();
    status.applied_revision = pass.in_force.filter(|_| complete).map(ToString::to_string).or(before.applied_revision);
    status.counts = Some(counts(pass, decision));
    (status.withheld, status.more_withheld) = withheld(pass, decision);
    status.undeclared = decision.undeclared().take(ENTRIES_MAX).map(object_entry).collect();
    status.more_undeclared = names_entries(decision.undeclared().skip(ENTRIES_MAX).map(|id| (id, false)));
    found.append(decision.diagnostics.clone());
    found.append(pass.remarks.clone());
    found.extend(pass.failures.iter().map(|(id, message)| failure(id, message)));
    status.diagnostics = entries(found);
    if pass.is_early {
        status.counts = before.counts.or(status.counts);
        if status.withheld.iter().all(|entry| before.withheld.contains(entry)) {
            (status.withheld, status.more_withheld) = (before.withheld, before.more_withheld);
        }
        if status.diagnostics.iter().all(|entry| before.diagnostics.contains(entry)) {
            status.diagnostics = before.diagnostics;
        }
    }
    limit_lists(&mut status, LISTS_BYTES_MAX);
    status
}

/// Limits what the status has of definitions to these bytes of JSON. The first definitions stay, and their messages.
/// The rest takes what it needs in this order, and what no longer fits is left out: the contents of objects that the
/// source is about to take over, the names of definitions that are held back, the names of undeclared objects, and the
/// objects of modules that it is about to take over.
fn limit_lists(status: &mut GitSourceStatus, max: usize) {
    let mut budget = ListBudget(max);
    for entry in &status.withheld {
        let outline = WithheldEntry { object: None, objects: Vec::new(), ..entry.clone() };
        budget.takes(&outline);
    }
    for entry in &status.undeclared {
        budget.takes(entry);
    }
    for entry in &mut status.withheld {
        if entry.object.as_ref().is_some_and(|object| !budget.takes(object)) {
            entry.object = None;
        }
    }
    budget.limit_names(&mut status.more_withheld);
    budget.limit_names(&mut status.more_undeclared);
    for entry in status.withheld.iter_mut().filter(|entry| !entry.objects.is_empty()) {
        // Some of the objects only would look like all of them.
        if !budget.takes(&entry.objects) {
            entry.objects.clear();
        }
    }
}

/// The bytes of JSON that are left for lists of the status.
struct ListBudget(usize);

impl ListBudget {
    /// Takes the bytes of a value and of its separator, if they are left. Otherwise nothing is left for later values
    /// either, so that what stays does not depend on their lengths.
    fn takes(&mut self, value: &impl Serialize) -> bool {
        let bytes = serde_json::to_string(value).map_or(usize::MAX, |text| text.len().saturating_add(1));
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// Leaves out the names that do not fit.
    fn limit_names(&mut self, entries: &mut Vec<NamesEntry>) {
        for entry in &mut *entries {
            let names = std::mem::take(&mut entry.names);
            if self.takes(&*entry) {
                entry.names = names.into_iter().take_while(|name| self.takes(name)).collect();
            }
        }
        entries.retain(|entry| !entry.names.is_empty());
    }
}

/// What a process has of a source that is not fetched, because it is suspended or being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A revision is read.
    Read,
    /// It is about to be read.
    Unread,
    /// None is in the state folder, or it cannot be read.
    Lost,
}

/// The status of a suspended source: it keeps what is known, and `Ready` says that the source is suspended. Without a
/// revision, runtimes are not repaired.
pub fn suspended(source: &GitSource, kept: Kept, now: Timestamp) -> GitSourceStatus {
    let mut status = source.status.clone().unwrap_or_default();
    let generation = source.metadata.generation;
    status.observed_generation = generation;
    status.last_handled_reconcile_at = requested(source).or(status.last_handled_reconcile_at);
    let templates = waiting_for_templates(source, kept == Kept::Read);
    let objects = match (&status.applied_revision, kept) {
        (Some(_), Kept::Lost) => {
            let room = READY_CHARS_MAX.saturating_sub(SUSPENSION_CHARS + templates.chars().count());
            lost(&landscape::key(&source.metadata), room)
        }
        (Some(revision), Kept::Read | Kept::Unread) => format!("{STAYING}{revision} stay applied"),
        (None, _) => String::new(),
    };
    let rest = format!("{objects}{templates}");
    let suspension = landscape::suspension(&source.metadata, Switch::Spec);
    let suspension = suspension.unwrap_or_else(|| "the source is suspended".to_owned());
    let message = format!("{}{rest}", cut_to(&suspension, READY_CHARS_MAX.saturating_sub(rest.chars().count())));
    let now = Time(seconds(now));
    conditions::set(&mut status.conditions, READY, Status::False, SUSPENDED, &message, generation, &now);
    conditions::remove(&mut status.conditions, STALLED);
    status
}

/// What a suspended source without its revision does not do, and how to get the revision: in at most `room` characters,
/// with the whole command if that fits.
fn lost(source: &Key, room: usize) -> String {
    let command = format!("`tidegate resume gitsource/{} -n {}`", source.name(), source.namespace());
    let long = format!("{LOST} of it, so its modules are not repaired; {command} ends the suspension and fetches it");
    let short = format!("{LOST}; {command} ends the suspension and fetches it");
    let fits = |text: &String| text.chars().count() <= room;
    let without = || format!("{LOST} of it; resume it to end the suspension and fetch it");
    [long, short].into_iter().find(fits).unwrap_or_else(without)
}

/// The status of a source after a pass that came to no result of its own: it keeps what is known, and
/// `Ready` says why the source is not ready.
pub fn not_ready(source: &GitSource, reason: &str, message: &str, now: Timestamp) -> GitSourceStatus {
    let mut status = source.status.clone().unwrap_or_default();
    let generation = source.metadata.generation;
    status.observed_generation = generation;
    let now = Time(seconds(now));
    conditions::set(&mut status.conditions, READY, Status::False, reason, message, generation, &now);
    conditions::remove(&mut status.conditions, STALLED);
    status
}

/// As [`not_ready`], for the end of a source that a user must confirm: `Ready` begins with the command, and `Applied`
/// has the whole sentence.
pub fn end_unconfirmed(source: &GitSource, end: &UnconfirmedEnd, kept: Kept, now: Timestamp) -> GitSourceStatus {
    let mut status = not_ready(source, PRUNE_UNCONFIRMED, &brief_end(end), now);
    let (generation, now) = (source.metadata.generation, Time(seconds(now)));
    let (reason, sentence) = (PRUNE_UNCONFIRMED, format!("{}{}", end.sentence, not_in_use(kept)));
    conditions::set(&mut status.conditions, APPLIED, Status::False, reason, &sentence, generation, &now);
    status
}

/// What does not happen while the end of a source waits, because this process has no revision of it: a clause, or
/// nothing.
pub fn not_in_use(kept: Kept) -> String {
    match kept {
        Kept::Lost => format!("{LOST} of it, so its modules are not repaired meanwhile"),
        Kept::Read | Kept::Unread => String::new(),
    }
}

/// The message of `Ready` while a user must confirm the end of a source, at most [`READY_CHARS_MAX`] characters.
pub fn brief_end(end: &UnconfirmedEnd) -> String {
    let does = format!("deletes {}", number(end.objects, "object"));
    Verdict::no(PRUNE_UNCONFIRMED, String::new()).resolved_by(&end.command, does).brief(ConfirmBy::Annotation)
}

/// The status of a source whose branch was rewritten, before the new commit is active. Removed
/// objects then need a confirmation, even if this process ends before it writes anything else.
pub fn unsettled(source: &GitSource, scope: &str, now: Timestamp) -> GitSourceStatus {
    let mut status = source.status.clone().unwrap_or_default();
    let (scope, settled) = settled_scope(source).unwrap_or((scope, true));
    if settled {
        record_scope(&mut status.conditions, scope, false, source.metadata.generation, now);
    }
    status
}

/// Whether the signatures of the last read revision are those that the GitSource asks for.
pub fn is_verified(status: &GitSourceStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == VERIFIED && condition.status == "True")
}

/// Whether something of the last read revision waits for a confirmation.
pub fn is_unconfirmed(status: &GitSourceStatus) -> bool {
    let applied = conditions::find(&status.conditions, APPLIED);
    applied.is_some_and(|applied| matches!(&*applied.reason, "RemovalUnconfirmed" | PRUNE_UNCONFIRMED | "PruneLimit"))
}

/// Whether nothing is left to prune after a change of URL, ref, paths or ignore, or after a rewrite of the
/// branch.
pub fn is_settled(status: &GitSourceStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == SCOPE && condition.status == "True")
}

/// The scope of the source when nothing was left to prune; `None` before the first pass.
pub fn settled_scope(source: &GitSource) -> Option<(&str, bool)> {
    let conditions = &source.status.as_ref()?.conditions;
    let scope = conditions.iter().find(|condition| condition.type_ == SCOPE)?;
    // Earlier versions wrote the digest into the message.
    let digest = scope.reason.split_once(':').map_or(scope.message.as_str(), |(_, digest)| digest);
    Some((digest, scope.status == "True"))
}

/// The value of the annotation that requests a reconcile.
pub fn requested(source: &GitSource) -> Option<String> {
    let annotations = source.metadata.annotations.as_ref()?;
    annotations.get(crate::api::names::annotation::RECONCILE_REQUESTED_AT).cloned()
}

/// The content of a condition.
#[derive(Clone, Debug)]
struct Verdict {
    holds: bool,
    stalled: bool,
    reason: &'static str,
    message: String,
    /// What a user runs, and what that does, if a command resolves it.
    command: Option<(String, String)>,
    /// What a user can do, if one sentence says it.
    action: Option<String>,
}

impl Verdict {
    fn yes(reason: &'static str, message: String) -> Verdict {
        Verdict { holds: true, stalled: false, reason, message, command: None, action: None }
    }

    fn no(reason: &'static str, message: String) -> Verdict {
        Verdict { holds: false, ..Verdict::yes(reason, message) }
    }

    fn stalled(self) -> Verdict {
        Verdict { stalled: true, ..self }
    }

    /// The same, and what else waits for a user.
    fn besides(self, other: Option<Verdict>) -> Verdict {
        let Some(other) = other else { return self };
        Verdict { message: format!("{}; besides, {}", self.message, other.message), ..self }
    }

    /// A problem that a command resolves. `does` continues a sentence that begins with it: `deletes 3 objects`.
    fn resolved_by(self, command: &str, does: String) -> Verdict {
        Verdict { command: Some((command.to_owned(), does)), ..self }
    }

    /// The message in at most [`READY_CHARS_MAX`] characters. A command comes first and is whole: a user copies it. It
    /// says where the rest is: a source of the command line has no conditions that users can read.
    fn brief(&self, confirm_by: ConfirmBy) -> String {
        let (elsewhere, them) = match confirm_by {
            ConfirmBy::Annotation => (format!("condition {APPLIED}"), "them"),
            ConfirmBy::Option => ("the log of the daemon".to_owned(), "the first of them"),
        };
        let Some((command, does)) = &self.command else {
            // A long message must not hide what to do.
            return match &self.action {
                Some(action) if READY_CHARS_MAX < self.message.chars().count() => {
                    let whole = format!("{action}; {elsewhere} says why");
                    match whole.chars().count() <= READY_CHARS_MAX {
                        true => whole,
                        false => cut(&format!("{}; {elsewhere} says why", instruction(action))),
                    }
                }
                Some(_) | None => cut(&self.message),
            };
        };
        let command = format!("`{command}`");
        if READY_CHARS_MAX < command.chars().count() {
            return cut(&format!("the command in {elsewhere} {does}"));
        }
        cut(&format!("{command} {does}; {elsewhere} names {them}"))
    }
}

/// The clause of a sentence that names what to write or to run.
fn instruction(action: &str) -> &str {
    action.split("; ").find(|clause| clause.contains('`')).unwrap_or(action)
}

/// At most [`READY_CHARS_MAX`] characters of a text.
fn cut(text: &str) -> String {
    cut_to(text, READY_CHARS_MAX)
}

/// At most `max` characters of a text.
fn cut_to(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max.saturating_sub(1)).chain(['…']).collect(),
    }
}

fn fetched(source: &GitSource, pass: &Pass<'_>) -> Verdict {
    match (pass.fetched, pass.attempted) {
        (Fetched::Done, Some(revision)) => Verdict::yes("Fetched", format!("read {revision}")),
        (Fetched::Done, None) => Verdict::no("Pending", "nothing has been read yet".to_owned()),
        (Fetched::Unverified { revision, .. }, _) => Verdict::yes("Fetched", format!("read {revision}")),
        (Fetched::Failed { reason, message, said, stalled }, _) => {
            let in_force = match pass.in_force {
                Some(revision) => format!("; {revision} stays active"),
                None => waiting_for_templates(source, pass.is_read),
            };
            let said = said.as_ref().map(|said| format!("{QUOTATION}{said:?}")).unwrap_or_default();
            Verdict { stalled: *stalled, ..Verdict::no(reason, format!("{message}{in_force}{said}")) }
        }
    }
}

/// What is known of the signatures; `None` if nothing new is.
fn verified(pass: &Pass<'_>) -> Option<Verdict> {
    match (pass.fetched, pass.trust) {
        (_, Trust::NotAsked) => None,
        (Fetched::Unverified { reason, message, .. }, _) => {
            let in_force = pass.in_force.map(|revision| format!("; {revision} stays active")).unwrap_or_default();
            Some(Verdict::no(reason, format!("{message}{in_force}")).stalled())
        }
        (Fetched::Done, Trust::Verified { revision, by }) => {
            Some(Verdict::yes("Verified", format!("{revision}: {by}")))
        }
        (Fetched::Done, Trust::Unknown) | (Fetched::Failed { .. }, Trust::Unknown | Trust::Verified { .. }) => None,
    }
}

/// The end of a sentence about a source that this process has not read: what waits for it.
fn waiting_for_templates(source: &GitSource, is_read: bool) -> String {
    let has_templates = source.spec.templates.as_ref().is_some_and(|folder| !folder.is_empty());
    if has_templates && !is_read { format!("; {WAIT_FOR_TEMPLATES}") } else { String::new() }
}

/// The most severe problem of the revision; `None` before the first read.
fn applied(source: &GitSource, pass: &Pass<'_>) -> Option<Verdict> {
    if pass.refused {
        return refused(pass);
    }
    let decision = pass.decision?;
    let revision = pass.in_force.or(pass.attempted)?;
    if let Some((id, cause)) = pass.failures.first() {
        let count = number(pass.failures.len(), "object");
        let verdict = Verdict::no(APPLY_FAILED, format!("the API server rejected {count}; {}: {cause}", text(id)));
        return Some(if pass.retry_helps { verdict } else { verdict.stalled() });
    }
    let waits = waiting(source, revision, decision, pass.confirm_by);
    if let Some(verdict) = broken(pass, decision) {
        return Some(verdict.besides(waits));
    }
    if pass.diagnostics.has_errors() {
        let first = located(&entries(pass.diagnostics.clone()).into_iter().next().unwrap_or_default());
        let message = format!("{revision} has errors, so nothing is pruned; {first}");
        return Some(Verdict::no("Invalid", message).stalled().besides(waits));
    }
    waits.or_else(|| {
        let count = number(decision.equal + decision.apply.len(), "definition");
        let note = format!("{}{}", unread_note(decision), in_use_note(decision));
        Some(Verdict::yes("Applied", format!("applied {revision}: {count}{note}")))
    })
}

/// Why nothing of a revision is used; also for a source that has no active revision.
fn refused(pass: &Pass<'_>) -> Option<Verdict> {
    let revision = pass.attempted.or(pass.in_force)?;
    let first = |code: &str| by_severity(pass.diagnostics.clone()).into_iter().find(|found| found.code == code);
    if let Some(first) = first(code::SOURCE_DIFFERS) {
        let field = first.field.as_ref().map_or_else(|| "spec".to_owned(), |field| field.0.clone());
        let entry = diagnostic_entry(first);
        let place = place_of(&entry).unwrap_or_default();
        let action = format!("correct one of the two: {place} and the GitSource differ in `{field}`");
        let first = located(&entry);
        let message = format!("{revision} is not applied, because its source.yaml and the GitSource differ; {first}");
        return Some(Verdict { action: Some(action), ..Verdict::no("SourceDiffers", message).stalled() });
    }
    if let Some(first) = first(code::SOURCE_FILE).map(|found| located(&diagnostic_entry(found))) {
        let message = format!("{revision} is not applied, because its source.yaml is invalid; {first}");
        return Some(Verdict::no("SourceFileInvalid", message).stalled());
    }
    let errors = pass.diagnostics.errors();
    let message = format!("{revision} has {}, and onError is RefuseRevision", number(errors, "error"));
    Some(Verdict::no("RevisionRefused", message).stalled())
}

/// The definitions that are held back, except those that only wait for a confirmation.
fn broken(pass: &Pass<'_>, decision: &Decision) -> Option<Verdict> {
    let is_broken = |why: HeldFor| match why {
        HeldFor::Problem | HeldFor::Dependency | HeldFor::Terminating => true,
        HeldFor::Removal => false,
    };
    let held = decision.held.values().filter(|held| is_broken(held.why));
    let count = pass.withheld.len() + held.clone().count();
    let all = all_withheld(pass, decision, is_broken);
    let first = all.first()?;
    let place = if first.line == 0 { first.path.clone() } else { format!("{}:{}", first.path, first.line) };
    let advice = decision.diagnostics.iter().find(|one| one.message == first.message).and_then(|one| one.hint.clone());
    let end = advice.iter().map(|advice| format!("; {advice}")).collect::<String>();
    let held_back = format!("held back: {}; {place}", number(count, "definition"));
    let message = format!("{held_back}: {}{end}", first.message);
    let waiting_only = pass.withheld.is_empty() && held.clone().all(|held| held.why == HeldFor::Terminating);
    let action = advice.map(|advice| format!("{held_back}: {advice}"));
    let verdict =
        if waiting_only { Verdict::no(TERMINATING, message) } else { Verdict::no("Withheld", message).stalled() };
    Some(Verdict { action, ..verdict })
}

/// Which objects are not pruned before other sources have been read. Everything that git declares is applied, so this
/// is no problem of the source.
fn unread_note(decision: &Decision) -> String {
    let mut count = 0;
    let mut sources: BTreeSet<&Key> = BTreeSet::new();
    for wait in decision.waiting.values() {
        match wait {
            Wait::Unread(unread) => {
                count += 1;
                sources.extend(unread.iter());
            }
            Wait::Errors
            | Wait::Off
            | Wait::Kept
            | Wait::Unreadable
            | Wait::Tool(_)
            | Wait::Unconfirmed(_)
            | Wait::InUse(_)
            | Wait::Limit { .. }
            | Wait::Terminating => {}
        }
    }
    if count == 0 {
        return String::new();
    }
    let names: Vec<String> = sources.iter().take(ENTRIES_MAX).map(ToString::to_string).collect();
    let count = number(count, "object");
    format!("; {count} removed from git and not pruned before these sources have been read: {}", names.join(", "))
}

/// Which versions are removed from git and still in runtimes, which another one replaces or which lose the module. No
/// user needs to act.
fn in_use_note(decision: &Decision) -> String {
    let in_use = decision.waiting.iter().filter_map(|(id, wait)| match wait {
        Wait::InUse(losses) => Some((id, losses)),
        Wait::Errors
        | Wait::Unread(_)
        | Wait::Off
        | Wait::Kept
        | Wait::Unreadable
        | Wait::Tool(_)
        | Wait::Unconfirmed(_)
        | Wait::Limit { .. }
        | Wait::Terminating => None,
    });
    let named: Vec<String> = in_use
        .clone()
        .take(ENTRIES_MAX)
        .map(|(id, losses)| {
            let runtimes: BTreeSet<&Key> = losses.iter().map(|loss| &loss.runtime).collect();
            let first = runtimes.first().map(|runtime| format!(", first {runtime}")).unwrap_or_default();
            format!("{} ({}{first})", id.1, number(runtimes.len(), "runtime"))
        })
        .collect();
    match in_use.count() {
        0 => String::new(),
        count => format!("; {} to prune once no runtime has it: {}", number(count, "version"), named.join(", ")),
    }
}

/// What is removed from git and still in KCP or in runtimes, if users should know.
fn waiting(source: &GitSource, revision: &Revision, decision: &Decision, confirm_by: ConfirmBy) -> Option<Verdict> {
    let count = |matches: fn(&Wait) -> bool| decision.waiting.values().filter(|wait| matches(wait)).count();
    let key = Key::new(
        source.metadata.namespace.as_deref().unwrap_or_default(),
        source.metadata.name.as_deref().unwrap_or_default(),
    );
    let commit = revision.commit().map_or_else(|| "worktree".to_owned(), |commit| commit.to_string());
    let (command, instruction) = (confirm_by.command(&key, &commit), confirm_by.instruction(&key, &commit));
    // Whatever waits is not confirmed, so a confirmation is that of something else.
    let is_given = landscape::annotation(&source.metadata, annotation::CONFIRM_PRUNE).is_some();
    let (given, brief) = match is_given {
        true => (format!("; the {} names another commit", confirm_by.place()), "; another commit was confirmed"),
        false => (String::new(), ""),
    };
    let unconfirmed = count(|wait| matches!(wait, Wait::Unconfirmed(_)));
    let limited = count(|wait| matches!(wait, Wait::Limit { .. }));
    let limit = decision
        .waiting
        .values()
        .find_map(|wait| if let Wait::Limit { limit, .. } = wait { Some(*limit) } else { None });
    let unreadable = decision.waiting.iter().filter(|(_, wait)| matches!(wait, Wait::Unreadable)).map(|(id, _)| id);
    let unreadable: Vec<String> = unreadable.map(text).collect();
    if !decision.removals.is_empty() {
        let because = match decision.moved {
            Moved::No => "",
            Moved::Spec => ", because url, ref, paths or ignore of the GitSource changed",
            Moved::Rewrite => ", because the branch was rewritten",
        };
        let removals = number(decision.removals.len(), "removal");
        let mut message = format!("{removals} in runtimes{because}; a user must confirm:");
        for removal in decision.removals.iter().take(ENTRIES_MAX) {
            let _ = write!(message, " {removal};");
        }
        let besides = unconfirmed + limited;
        if 0 < besides {
            let waits = |wait: &Wait| matches!(wait, Wait::Unconfirmed(_) | Wait::Limit { .. });
            let ids = decision.waiting.iter().filter(|(_, wait)| waits(wait)).map(|(id, _)| text(id));
            let named: Vec<String> = ids.take(ENTRIES_MAX).collect();
            let more = match besides.saturating_sub(named.len()) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let (objects, gone) = (number(besides, "object"), decision.moved.gone());
            let _ = write!(message, " {objects} {gone}: {}{more};", named.join(", "));
        }
        let _ = write!(message, " to remove all of it, {instruction}{given}");
        let prunes = match besides {
            0 => String::new(),
            besides => format!(" and prunes {}", number(besides, "object")),
        };
        let removals = number(decision.removals.len(), "removal");
        let does = format!("confirms {removals} in runtimes{prunes}{brief}");
        return Some(Verdict::no("RemovalUnconfirmed", message).stalled().resolved_by(&command, does));
    }
    if 0 < unconfirmed {
        let mut message =
            format!("{} {}; the prune needs a confirmation:", number(unconfirmed, "object"), decision.moved.gone());
        let first = decision.diagnostics.iter().filter(|found| found.code == code::PRUNE_UNCONFIRMED).take(ENTRIES_MAX);
        for diagnostic in first {
            // Writing to a String cannot fail.
            let _ = write!(message, " {};", diagnostic.message);
        }
        let _ = write!(message, " to prune them, {instruction}{given}");
        let gone = match decision.moved {
            Moved::No => "removed from git",
            Moved::Spec => "that the changed GitSource no longer selects",
            Moved::Rewrite => "that the rewritten branch no longer has",
        };
        let does = format!("prunes {} {gone}{brief}", number(unconfirmed, "object"));
        return Some(Verdict::no("PruneUnconfirmed", message).stalled().resolved_by(&command, does));
    }
    if let Some(limit) = limit {
        let message = format!(
            "{} removed from git, more than the prune limit of {limit}; to prune them, {instruction}{given}",
            number(limited, "object")
        );
        let does = format!("prunes {} removed from git{brief}", number(limited, "object"));
        return Some(Verdict::no("PruneLimit", message).stalled().resolved_by(&command, does));
    }
    if !unreadable.is_empty() {
        let count = number(unreadable.len(), "object");
        let names = unreadable[..unreadable.len().min(ENTRIES_MAX)].join(", ");
        let message = format!(
            "{count} removed from git and not pruned, because they do not match their types: {names}; correct them, \
             see `tidegate status`"
        );
        return Some(Verdict::no("PruneUnreadable", message));
    }
    None
}

/// Keeps the old scope while its change still needs a confirmation.
fn set_scope(conditions: &mut Vec<Condition>, source: &GitSource, pass: &Pass<'_>, now: Timestamp) {
    let generation = source.metadata.generation;
    let Some(decision) = pass.decision else { return };
    // Settings that are invalid have no scope.
    if pass.fetched != &Fetched::Done || pass.refused || pass.scope.is_empty() || pass.is_early {
        return;
    }
    let open = decision.waiting.values().any(|wait| !matches!(wait, Wait::Kept | Wait::Tool(_)));
    match (pass.moved != Moved::No, open) {
        (true, true) => {
            let old = settled_scope(source).map_or(pass.scope, |(scope, _)| scope);
            record_scope(conditions, old, false, generation, now);
        }
        (true, false) | (false, _) => record_scope(conditions, pass.scope, true, generation, now),
    }
}

/// Says that the source declares kcp landscapes, which are not applied. `now` is in seconds.
fn set_kcp_landscapes(conditions: &mut Vec<Condition>, pass: &Pass<'_>, generation: Option<i64>, now: Timestamp) {
    let ignored = pass.diagnostics.iter().find(|found| found.code == definition::code::NOT_RECONCILED);
    match ignored {
        Some(found) => {
            let hint = found.hint.as_deref().unwrap_or_default();
            let place = found.place.as_ref().map_or_else(String::new, |place| format!("{place}: "));
            let message = format!("{place}{}; {hint}", found.message);
            let now = Time(now);
            conditions::set(conditions, KCP_LANDSCAPES, Status::False, "NotReconciled", &message, generation, &now);
        }
        None => {
            conditions::remove(conditions, KCP_LANDSCAPES);
        }
    }
}

/// Records the scope for which everything is pruned, or for which objects to prune remain. `now` is in seconds.
fn record_scope(
    conditions: &mut Vec<Condition>,
    scope: &str,
    is_settled: bool,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (reason, message) = if is_settled {
        (SETTLED, "no change of URL, ref, paths or ignore has left objects to prune")
    } else {
        (
            CHANGED,
            "URL, ref, paths or ignore changed, or the branch was rewritten, and objects to prune remain; Applied says how to \
             confirm their prune",
        )
    };
    let reason = format!("{reason}:{scope}");
    conditions::set(conditions, SCOPE, is_settled.into(), &reason, message, generation, &Time(seconds(now)));
}

/// Records what is known of deliveries. `is_written` says whether the status is written anyway.
fn set_received(
    conditions: &mut Vec<Condition>,
    source: &GitSource,
    receiving: &Receiving,
    is_written: bool,
    now: Timestamp,
) {
    let before = conditions::find(conditions, RECEIVED);
    let verdict = match receiving {
        Receiving::Off => {
            conditions::remove(conditions, RECEIVED);
            return;
        }
        // An earlier process has said more. The Secret is usable by now.
        Receiving::Waiting if before.is_some_and(|before| before.reason != HOOK_SECRET) => return,
        Receiving::Waiting => {
            Verdict::no("AwaitingDelivery", format!("no delivery has arrived yet; {}", webhook(source)))
        }
        Receiving::Delivered(at) => {
            let message = format!("the last delivery arrived at {}", seconds(*at));
            if !is_written && before.is_some_and(|before| is_recent(before, *at)) {
                return;
            }
            Verdict::yes("Delivered", message)
        }
        Receiving::Missed { revision } => {
            let message = format!("polling found {revision}: no delivery announced it; {}", webhook(source));
            Verdict::no("NotDelivered", message)
        }
        Receiving::Unusable(why) => {
            let message = format!("all deliveries are refused: {why}");
            Verdict::no(HOOK_SECRET, message)
        }
    };
    let is_known = *receiving != Receiving::Waiting;
    let status = if is_known { Status::from(verdict.holds) } else { Status::Unknown };
    let generation = source.metadata.generation;
    let now = Time(seconds(now));
    conditions::set(conditions, RECEIVED, status, verdict.reason, &verdict.message, generation, &now);
}

/// Whether a condition about deliveries has a time that needs no update for a delivery at `at`.
fn is_recent(before: &Condition, at: Timestamp) -> bool {
    let recorded = before.message.rsplit(' ').next().and_then(|time| time.parse::<Timestamp>().ok());
    before.status == "True" && recorded.is_some_and(|recorded| at.duration_since(recorded) < RECEIVED_WRITTEN)
}

/// A warning about a push that no delivery announced. It stays when a new process begins.
fn undelivered(source: &GitSource, receiving: &Receiving) -> Option<Diagnostic> {
    match receiving {
        Receiving::Missed { revision } => {
            let message = format!("polling found {revision}, which no delivery of the git host announced");
            Some(Diagnostic::warning(code::PUSH_NOT_DELIVERED, message).hint(webhook(source)))
        }
        Receiving::Waiting => {
            let before = &source.status.as_ref()?.diagnostics;
            let before = before.iter().find(|diagnostic| diagnostic.code == code::PUSH_NOT_DELIVERED)?;
            Some(Diagnostic::warning(code::PUSH_NOT_DELIVERED, before.message.clone()))
        }
        Receiving::Off | Receiving::Delivered(_) | Receiving::Unusable(_) => None,
    }
}

/// What to check at the git host.
fn webhook(source: &GitSource) -> String {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    format!(
        "check the webhook of the repository: it sends pushes to the receiver's address with the path /hooks/{}/{}",
        name(&source.metadata.namespace),
        name(&source.metadata.name)
    )
}

fn counts(pass: &Pass<'_>, decision: &Decision) -> Counts {
    let applied = (decision.equal + decision.apply.len()).saturating_sub(pass.failures.len());
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    Counts {
        applied: count(applied),
        withheld: count(pass.withheld.len() + decision.held.len()),
        to_prune: count(decision.waiting.len()),
    }
}

/// All definitions that are held back, of those of a decision the ones for these reasons.
fn all_withheld(pass: &Pass<'_>, decision: &Decision, matches: impl Fn(HeldFor) -> bool) -> Vec<Withheld> {
    let held = decision.held.iter().filter(|(_, held)| matches(held.why)).map(|(id, held)| Withheld {
        id: id.clone(),
        path: held.place.path.to_string(),
        line: held.place.line,
        message: held.message.clone(),
    });
    let mut all: Vec<Withheld> = pass.withheld.iter().cloned().chain(held).collect();
    all.sort();
    all
}

/// The definitions that a source declares and holds back, as its status says.
pub fn held_back(source: &GitSource) -> Vec<Id> {
    let Some(status) = &source.status else { return Vec::new() };
    let id = |entry: &WithheldEntry| Some((entry.kind.parse().ok()?, Key::new(&entry.namespace, &entry.name)));
    let more = status.more_withheld.iter().flat_map(names);
    status.withheld.iter().filter_map(id).chain(more).collect()
}

/// How many more definitions a source holds back than its status names.
pub fn unnamed(source: &GitSource) -> usize {
    let Some(status) = &source.status else { return 0 };
    let all = status.counts.as_ref().and_then(|counts| usize::try_from(counts.withheld).ok()).unwrap_or_default();
    let more: usize = status.more_withheld.iter().map(|entry| entry.names.len()).sum();
    all.saturating_sub(status.withheld.len() + more)
}

/// What an object becomes when a source takes it over.
#[derive(Clone, Debug, PartialEq)]
pub struct Takeover<O = Arc<str>> {
    /// The object; `None` if it is too long for a status.
    pub object: Option<O>,
    /// The objects of the module that a ModuleTemplate then names; `None` if they are not known.
    pub module: Option<ModuleNames>,
}

impl<O> Default for Takeover<O> {
    fn default() -> Takeover<O> {
        Takeover { object: None, module: None }
    }
}

/// The objects that another source owns and that this one takes over with other content once the owner no longer
/// declares them, and what they then are, as far as its status says.
pub fn takeovers(source: &GitSource) -> BTreeMap<Id, Takeover<Object>> {
    let Some(status) = &source.status else { return BTreeMap::new() };
    let takeover = |entry: &WithheldEntry| {
        let id = (entry.kind.parse().ok()?, Key::new(&entry.namespace, &entry.name));
        let object = entry.object.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let module = (!entry.objects.is_empty()).then(|| ModuleNames::from_texts(&entry.objects));
        Some((id, Takeover { object: object.and_then(|value| Object::new(value).ok()), module }))
    };
    let first = status.withheld.iter().filter(|entry| entry.adopts).filter_map(takeover);
    let more = status.more_withheld.iter().filter(|entry| entry.adopts).flat_map(names);
    more.map(|id| (id, Takeover::default())).chain(first).collect()
}

/// The objects with the ownership label of a source that it no longer declares, as its status says.
pub fn undeclared(source: &GitSource) -> BTreeSet<Id> {
    let Some(status) = &source.status else { return BTreeSet::new() };
    let id = |entry: &ObjectEntry| Some((entry.kind.parse().ok()?, Key::new(&entry.namespace, &entry.name)));
    let more = status.more_undeclared.iter().flat_map(names);
    status.undeclared.iter().filter_map(id).chain(more).collect()
}

/// What an object becomes when a source takes it over, for its status. `module` are the objects that a ModuleTemplate
/// names.
pub fn takeover(definition: &Definition, module: Option<&ModuleObjects>, source: &SourceName) -> Takeover {
    let text = landscape::stamp(definition, source).value().to_string();
    let object = (text.len() <= TAKEOVER_LEN_MAX).then(|| text.into());
    let module = module.filter(|module| module.objects().len() <= TAKEOVER_OBJECTS_MAX);
    Takeover { object, module: module.map(ModuleNames::from) }
}

/// All that an entry names.
fn names(entry: &NamesEntry) -> impl Iterator<Item = Id> {
    let kind: Option<Kind> = entry.kind.parse().ok();
    entry.names.iter().filter_map(move |name| Some((kind?, Key::new(&entry.namespace, name))))
}

/// Entries for names of definitions, each with whether the source adopts it.
fn names_entries<'i>(ids: impl Iterator<Item = (&'i Id, bool)>) -> Vec<NamesEntry> {
    let mut entries: BTreeMap<(Kind, &str, bool), Vec<String>> = BTreeMap::new();
    for ((kind, key), adopts) in ids.take(NAMES_MAX) {
        entries.entry((*kind, key.namespace(), adopts)).or_default().push(key.name().to_owned());
    }
    let entry = |((kind, namespace, adopts), names): ((Kind, &str, bool), Vec<String>)| NamesEntry {
        kind: kind.to_string(),
        namespace: namespace.to_owned(),
        adopts,
        names,
    };
    entries.into_iter().map(entry).collect()
}

fn object_entry((kind, key): &Id) -> ObjectEntry {
    let (namespace, name) = (key.namespace().to_owned(), key.name().to_owned());
    ObjectEntry { kind: kind.to_string(), namespace, name }
}

/// The first definitions that are held back, and the names of the others.
fn withheld(pass: &Pass<'_>, decision: &Decision) -> (Vec<WithheldEntry>, Vec<NamesEntry>) {
    let entry = |withheld: &Withheld| {
        let takeover = decision.takeovers.get(&withheld.id);
        let module = takeover.and_then(|takeover| takeover.module.as_ref());
        WithheldEntry {
            adopts: takeover.is_some(),
            object: takeover.and_then(|takeover| takeover.object.as_ref()).map(ToString::to_string),
            objects: module.map(ModuleNames::to_texts).unwrap_or_default(),
            kind: withheld.id.0.to_string(),
            namespace: withheld.id.1.namespace().to_owned(),
            name: withheld.id.1.name().to_owned(),
            path: withheld.path.clone(),
            line: i64::from(withheld.line),
            message: withheld.message.clone(),
        }
    };
    let all = all_withheld(pass, decision, |_| true);
    let (first, more) = all.split_at(all.len().min(ENTRIES_MAX));
    let more = more.iter().map(|withheld| (&withheld.id, decision.takeovers.contains_key(&withheld.id)));
    (first.iter().map(entry).collect(), names_entries(more))
}

/// The first diagnostics, errors before warnings: a truncated list must not hide the error behind
/// warnings.
fn entries(diagnostics: Diagnostics) -> Vec<DiagnosticEntry> {
    by_severity(diagnostics).into_iter().take(ENTRIES_MAX).map(diagnostic_entry).collect()
}

/// All diagnostics, errors before warnings.
fn by_severity(diagnostics: Diagnostics) -> Vec<Diagnostic> {
    let mut sorted = diagnostics.sorted();
    sorted.sort_by_key(|diagnostic| diagnostic.severity);
    sorted
}

fn diagnostic_entry(diagnostic: Diagnostic) -> DiagnosticEntry {
    let position = |number: u32| Some(i64::from(number)).filter(|number| 0 < *number);
    DiagnosticEntry {
        severity: match diagnostic.severity {
            Severity::Error => "error".to_owned(),
            Severity::Warning => "warning".to_owned(),
        },
        code: diagnostic.code.to_owned(),
        path: diagnostic.place.as_ref().map(|place| place.path.to_string()),
        line: diagnostic.place.as_ref().and_then(|place| position(place.line)),
        column: diagnostic.place.as_ref().and_then(|place| position(place.column)),
        message: match diagnostic.hint {
            Some(hint) => format!("{}; {hint}", diagnostic.message),
            None => diagnostic.message,
        },
    }
}

/// A diagnostic in a sentence, after its place.
fn located(entry: &DiagnosticEntry) -> String {
    let place = place_of(entry).map(|place| format!("{place}: ")).unwrap_or_default();
    format!("{place}{}", entry.message)
}

/// The file of an entry, with the line if it is known.
fn place_of(entry: &DiagnosticEntry) -> Option<String> {
    let line = entry.line.map(|line| format!(":{line}")).unwrap_or_default();
    Some(format!("{}{line}", entry.path.as_ref()?))
}

fn failure(id: &Id, message: &str) -> Diagnostic {
    Diagnostic::error(code::APPLY_FAILED, format!("{}: {message}", text(id)))
}

fn number(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
