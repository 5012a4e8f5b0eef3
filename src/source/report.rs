//! The status of a GitSource, its Events, and the metric of the time from commit to apply.

use std::borrow::Cow;

use serde_json::json;

use super::{
    Enacted, KnownSource, SourceContext, SourcePass, decide, said,
    state::{BranchHistory, KnownStatus},
};
use tidegate_cluster::{self as cluster, Cause, Metadata};
use tidegate_core::{
    api::{GitSource, git_source::GitSourceStatus, shared::Condition},
    intake::{
        Decision, Moved, Terms, Why,
        status::{self, Fetched},
        text,
    },
    revision::Revision,
};
use tidegate_process::{ambient, retry::Class};

use crate::{
    controller::{
        Failure,
        events::{Severity, reason},
    },
    source::registry::Loaded,
    stores::Origin,
};

/// Maximum number of Events about single objects in one pass. The status has the number of all objects.
const EVENTS_MAX: usize = 5;

/// An Event for users.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    severity: Severity,
    reason: &'static str,
    action: &'static str,
    text: String,
}

/// Where a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusWrite {
    /// Nowhere: it is up to date.
    Skip,
    /// To the stores of this process: the GitSource comes from the command line.
    Local,
    /// To KCP.
    Kcp,
}

/// Records in the metrics that Tidegate has read a commit.
pub(super) fn seen(ctx: SourceContext<'_>, revision: &Revision) {
    if let Some(commit) = revision.commit() {
        ctx.metrics.seen(&commit.to_string(), std::time::Instant::now());
    }
}

/// Records in the metrics that KCP has all objects of a commit.
pub(super) fn arrived(ctx: SourceContext<'_>, revision: &Revision) {
    if let Some(commit) = revision.commit() {
        ctx.metrics.arrived(&commit.to_string(), std::time::Instant::now());
    }
}

// === impl SourcePass ===

impl SourcePass<'_> {
    /// Computes the status, publishes Events about what changed, and writes the status if it differs. What is decided
    /// comes with whether something of it is set aside. Fails if KCP does not accept the status.
    pub(super) async fn report(
        &self,
        known: &mut KnownSource,
        decided: Option<(&Loaded, &Decision, bool)>,
        enacted: &Enacted,
        terms: &Terms,
    ) -> Result<(), Failure> {
        let status = self.status(known, &self.fetched(known, terms), decided, enacted, Some(terms));
        self.publish(&status, decided.map(|(_, decision, _)| decision));
        self.warn(known, decided);
        let is_settled = status::is_settled(&status);
        self.write(known, status).await?;
        known.history = known.history.after_status(is_settled);
        Ok(())
    }

    /// Records in the status that the branch was rewritten, before the new revision has any effect. Fails if KCP does
    /// not accept the status.
    pub(super) async fn record_rewrite(&self, known: &mut KnownSource, terms: &Terms) -> Result<(), Failure> {
        known.history = BranchHistory::Rewritten;
        if self.ctx.kcp.is_read_only() {
            return Ok(()); // A process that only observes applies nothing that the record must precede.
        }
        let status = status::unsettled(&known.writes.status.shown(self.source), &terms.scope(), ambient::now());
        self.write(known, status).await
    }

    /// The status after this pass. `terms` is `None` if the GitSource is invalid.
    pub(super) fn status(
        &self,
        known: &KnownSource,
        fetched: &Fetched,
        decided: Option<(&Loaded, &Decision, bool)>,
        enacted: &Enacted,
        terms: Option<&Terms>,
    ) -> GitSourceStatus {
        let found = decided.map_or_else(Cow::default, |(loaded, ..)| self.diagnostics(loaded));
        let mut remarks = known.remarks.diagnostics();
        remarks.extend(terms.and_then(|terms| self.receiver_warning(terms)));
        let refused = known.revision.refused();
        let scope = terms.map(Terms::scope).unwrap_or_default();
        let receiving = self.receiving(known, terms);
        let pass = status::Pass {
            fetched,
            trust: known.trust.shown(terms),
            attempted: known.revision.attempted(),
            in_force: decided.map(|(loaded, ..)| &loaded.revision),
            is_read: self.is_read(),
            refused: refused.is_some(),
            is_early: decided.is_some_and(|(.., is_early)| is_early),
            decision: decided.map(|(_, decision, _)| decision),
            withheld: decided.map_or(&[], |(loaded, ..)| &loaded.withheld),
            diagnostics: refused.map_or(&*found, |refused| &refused.diagnostics),
            remarks: &remarks,
            failures: &enacted.failures,
            retry_helps: enacted.class != Some(Class::Stalled),
            handled: known.handled.as_deref(),
            receiving: &receiving,
            scope: &scope,
            moved: terms.map_or(Moved::No, |terms| decide::moved(self.source, known.history, terms)),
            confirm_by: self.origin.confirm_by(),
        };
        status::after_pass(&known.writes.status.shown(self.source), &pass, ambient::now())
    }

    /// Whether this process has read a revision of the source.
    pub(super) fn is_read(&self) -> bool {
        self.ctx.registry.loaded(self.key).is_some()
    }

    /// Writes the status if it differs from the last one. Fails if KCP does not accept it.
    pub(super) async fn write(&self, known: &mut KnownSource, status: GitSourceStatus) -> Result<(), Failure> {
        let shown = known.writes.status.shown(self.source);
        let resource_version = match status_write(self.origin, shown.status.as_ref(), &status) {
            StatusWrite::Skip => return Ok(()),
            StatusWrite::Local => {
                self.ctx.stores.set_local_status(self.key, status.clone());
                None
            }
            StatusWrite::Kcp => match self.apply_status(&status).await {
                Ok(metadata) => metadata.resource_version.parse().ok(),
                // The GitSource was deleted a moment ago: its watch reports that.
                Err(cluster::Error::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(super::failure(error)),
            },
        };
        known.writes.status = KnownStatus::Written { resource_version, status: Box::new(status) };
        Ok(())
    }

    async fn apply_status(&self, status: &GitSourceStatus) -> Result<Metadata, cluster::Error> {
        let kind = cluster::Kind::namespaced::<GitSource>();
        let body = json!({
            "apiVersion": kind.gvk.api_version(),
            "kind": &*kind.gvk.kind,
            "metadata": { "name": self.key.name(), "namespace": self.key.namespace() },
            "status": status,
        });
        let cause = Cause::trigger(&self.triggers.to_string());
        self.ctx.kcp.apply_status(&cause, &kind, &kind.id(self.key), body.to_string().into()).await
    }

    /// Writes into the log what of the revision does not happen, as far as it has not said it before.
    pub(super) fn warn(&self, known: &mut KnownSource, decided: Option<(&Loaded, &Decision, bool)>) {
        let confirm_by = self.origin.confirm_by();
        let causes = match (decided, known.revision.refused()) {
            (Some((loaded, decision, is_early)), None) => {
                let mut causes = said::causes(&self.diagnostics(loaded), &loaded.withheld, decision, confirm_by);
                // Prunes may wait only for what is set aside.
                causes.retain(|cause| !is_early || !cause.is_for_errors());
                causes
            }
            (_, Some(refused)) => said::causes(&refused.diagnostics, &[], &Decision::default(), confirm_by),
            (None, None) => return,
        };
        let causes = if self.ctx.kcp.is_read_only() { said::of_observer(causes) } else { causes };
        let commit = decided.and_then(|(loaded, ..)| loaded.revision.commit());
        let confirm = confirm_by.command(self.key, &commit.map_or_else(|| "worktree".to_owned(), |id| id.to_string()));
        known.said.news(causes).iter().for_each(|cause| cause.warn(self.key, &confirm));
    }

    /// Publishes Events about what this pass changed. A GitSource from the command line has none.
    pub(super) fn publish(&self, status: &GitSourceStatus, decision: Option<&Decision>) {
        if self.origin == Origin::CommandLine {
            return;
        }
        for Note { severity, reason, action, text } in notes(self.source.status.as_ref(), status, decision) {
            self.ctx.events.publish(self.source, severity, reason, action, &text);
        }
    }
}

/// Where a status is written, if it differs from `shown`.
fn status_write(origin: Origin, shown: Option<&GitSourceStatus>, status: &GitSourceStatus) -> StatusWrite {
    match origin {
        _ if shown == Some(status) => StatusWrite::Skip,
        Origin::CommandLine => StatusWrite::Local,
        Origin::ControlPlane => StatusWrite::Kcp,
    }
}

/// One Event for each fact that the status did not have before.
fn notes(before: Option<&GitSourceStatus>, after: &GitSourceStatus, decision: Option<&Decision>) -> Vec<Note> {
    let empty = GitSourceStatus::default();
    let before = before.unwrap_or(&empty);
    let warning =
        |reason, action, text: &str| Note { severity: Severity::Warning, reason, action, text: text.to_owned() };
    let normal = |reason, text: String| Note { severity: Severity::Normal, reason, action: "Apply", text };
    let mut notes = Vec::new();
    if let Some(fetched) = newly_false(before, after, status::FETCHED) {
        notes.push(warning(reason::FETCH_FAILED, "Fetch", status::without_quotation(&fetched.message)));
    }
    if let Some(applied) = newly_false(before, after, status::APPLIED) {
        let word = match applied.reason.as_str() {
            "RemovalUnconfirmed" => reason::REMOVAL_WAITS,
            "PruneUnconfirmed" | "PruneLimit" | "PruneUnreadable" | "PruneWaits" => reason::PRUNE_WAITS,
            _ => reason::WITHHELD,
        };
        // An Event may be cut, and the command is what a user needs of it.
        let ready = condition(after, status::READY).map(|ready| ready.message.as_str()).unwrap_or_default();
        let command = ready.strip_prefix('`').and_then(|rest| rest.split_once('`')).map(|(command, _)| command);
        let text = match command {
            Some(command) => format!("to confirm, run `{command}`: {}", applied.message),
            None => applied.message.clone(),
        };
        notes.push(warning(word, "Apply", &text));
    }
    let is_suspended = |status: &GitSourceStatus| {
        condition(status, status::READY).is_some_and(|ready| ready.reason == status::SUSPENDED)
    };
    if let Some(ready) = newly_false(before, after, status::READY).filter(|_| is_suspended(after)) {
        notes.push(normal(reason::SUSPENDED, ready.message.clone()));
    } else if let Some(ready) =
        condition(before, status::READY).filter(|_| is_suspended(before) && !is_suspended(after))
    {
        // Each end names its suspension: the same sentence would not be published again.
        let was = status::without_what_stays(&ready.message);
        let was = was.strip_prefix("the source is ").unwrap_or(was);
        notes.push(normal(reason::RESUMED, format!("resumed: Tidegate fetches and applies it again; it was {was}")));
    }
    // Not before what waits has been done.
    let is_whole =
        |status: &GitSourceStatus| condition(status, status::APPLIED).is_some_and(|one| one.status == "True");
    let is_news = is_whole(after) && (after.applied_revision != before.applied_revision || !is_whole(before));
    let applied = after.applied_revision.as_ref().filter(|_| is_news);
    notes.extend(applied.map(|revision| normal(reason::APPLIED, format!("applied {revision}"))));
    let drifted = decision.into_iter().flat_map(|decision| &decision.apply).filter(|(_, why)| *why == Why::Drifted);
    notes.extend(drifted.take(EVENTS_MAX).map(|(id, _)| {
        let note = format!("another client changed {}; Tidegate applied it again as in git", text(id));
        normal(reason::DRIFT_REPAIRED, note)
    }));
    notes
}

/// A condition that is false and was not so before, or for another reason.
fn newly_false<'a>(before: &'a GitSourceStatus, after: &'a GitSourceStatus, type_: &str) -> Option<&'a Condition> {
    let after = condition(after, type_).filter(|condition| condition.status == "False")?;
    let same = condition(before, type_).is_some_and(|before| {
        let facts = |condition: &'a Condition| (&condition.status, &condition.reason);
        let text = |condition: &'a Condition| status::without_quotation(&condition.message);
        facts(before) == facts(after) && text(before) == text(after)
    });
    (!same).then_some(after)
}

fn condition<'a>(status: &'a GitSourceStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

#[cfg(test)]
mod tests;
