//! Telling: the status of a GitSource, Events, and the metric from commit to applied.

use std::{borrow::Cow, sync::Arc};

use serde_json::json;

use super::{Enacted, Progress, SourceContext, SourcePass, decide};
use tidegate_cluster::{self as cluster, Cause};
use tidegate_core::{
    api::{GitSource, git_source::GitSourceStatus, shared::Condition},
    diagnostic::Diagnostics,
    intake::{
        Decision, Terms, Why,
        status::{self, Fetched},
        text,
    },
    revision::Revision,
};
use tidegate_process::ambient;

use crate::{
    controller::{
        Failure,
        events::{Severity, reason},
    },
    source::registry::Loaded,
    stores::Origin,
};

/// A status that we wrote, and the watch may not show yet.
pub(super) struct Written {
    resource_version: Option<u64>,
    status: GitSourceStatus,
}

/// Objects that one Event each is worth; a mass is told of by its number.
const EVENTS_MAX: usize = 5;

/// The GitSource with the status that we wrote last, if the watch is behind.
pub(super) fn current(object: &Arc<GitSource>, progress: &Progress) -> GitSource {
    as_written(object, progress).into_owned()
}

/// The same, where an earlier step of a pass may have written the status.
fn as_written<'a>(source: &'a GitSource, progress: &Progress) -> Cow<'a, GitSource> {
    let shown = source.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    let is_ahead = |written: &&Written| match (shown, written.resource_version) {
        (Some(shown), Some(written)) => shown < written,
        // One of the command line: nobody else writes its status.
        (None, None) => true,
        (None, Some(_)) | (Some(_), None) => false,
    };
    match progress.written.as_ref().filter(is_ahead) {
        Some(written) => Cow::Owned(GitSource { status: Some(written.status.clone()), ..source.clone() }),
        None => Cow::Borrowed(source),
    }
}

/// Takes note that a commit was seen.
pub(super) fn seen(ctx: SourceContext<'_>, revision: &Revision) {
    if let Some(commit) = revision.commit() {
        ctx.metrics.seen(&commit.to_string(), std::time::Instant::now());
    }
}

/// Takes note that all of a commit is in KCP.
pub(super) fn arrived(ctx: SourceContext<'_>, revision: &Revision) {
    if let Some(commit) = revision.commit() {
        ctx.metrics.arrived(&commit.to_string(), std::time::Instant::now());
    }
}

// === impl SourcePass ===

impl SourcePass<'_> {
    /// Computes the status, says what changed, and writes it if it differs.
    pub(super) async fn report(
        &self,
        progress: &mut Progress,
        decided: Option<(&Loaded, &Decision)>,
        enacted: &Enacted,
        terms: &Terms,
    ) -> Result<(), Failure> {
        let status = self.status(progress, &progress.reading.fetched(), decided, enacted, Some(terms));
        self.tell(&status, decided.map(|(_, decision)| decision));
        let settled = status::is_settled(&status);
        self.write(progress, status).await?;
        // Written down as settled, a rewrite is over: what is gone from now on is gone for itself.
        progress.rewritten &= !settled;
        Ok(())
    }

    /// Takes note that the branch was rewritten, before that has any effect.
    pub(super) async fn rewritten(&self, progress: &mut Progress, terms: &Terms) -> Result<(), Failure> {
        progress.rewritten = true;
        let status = status::unsettled(&as_written(self.source, progress), &terms.scope(), ambient::now());
        self.write(progress, status).await
    }

    /// The status after this pass. Without `terms` the GitSource itself makes no sense.
    pub(super) fn status(
        &self,
        progress: &Progress,
        fetched: &Fetched,
        decided: Option<(&Loaded, &Decision)>,
        enacted: &Enacted,
        terms: Option<&Terms>,
    ) -> GitSourceStatus {
        let none = Diagnostics::default();
        let refused = progress.refused.as_ref();
        let scope = terms.map(Terms::scope).unwrap_or_default();
        let pass = status::Pass {
            fetched,
            attempted: progress.attempted.as_ref(),
            in_force: decided.map(|(loaded, _)| &loaded.revision),
            refused: refused.is_some(),
            decision: decided.map(|(_, decision)| decision),
            withheld: decided.map_or(&[], |(loaded, _)| &loaded.withheld),
            diagnostics: match (refused, decided) {
                (Some(refused), _) => &refused.diagnostics,
                (None, Some((loaded, _))) => &loaded.diagnostics,
                (None, None) => &none,
            },
            failures: &enacted.failures,
            scope: &scope,
            moved: terms.is_some_and(|terms| decide::has_moved(self.source, progress.rewritten, terms)),
        };
        status::after_pass(&as_written(self.source, progress), &pass, ambient::now())
    }

    /// Writes the status if it differs from what stands there.
    pub(super) async fn write(&self, progress: &mut Progress, status: GitSourceStatus) -> Result<(), Failure> {
        if as_written(self.source, progress).status.as_ref() == Some(&status) {
            return Ok(());
        }
        if self.origin == Origin::CommandLine {
            self.ctx.stores.set_local_status(self.key, status.clone());
            progress.written = Some(Written { resource_version: None, status });
            return Ok(());
        }
        let kind = cluster::Kind::namespaced::<GitSource>();
        let id = kind.id(self.key);
        let body = json!({
            "apiVersion": kind.gvk.api_version(),
            "kind": &*kind.gvk.kind,
            "metadata": { "name": self.key.name(), "namespace": self.key.namespace() },
            "status": &status,
        });
        let cause = Cause::trigger(&self.triggers.to_string());
        let written = self.ctx.kcp.apply_status(&cause, &kind, &id, body.to_string().into()).await;
        match written {
            Ok(metadata) => {
                progress.written = Some(Written { resource_version: metadata.resource_version.parse().ok(), status });
                Ok(())
            }
            // Deleted a moment ago: the watch will say so.
            Err(cluster::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(super::failure(error)),
        }
    }

    /// One Event for each thing that was not so before this pass.
    fn tell(&self, status: &GitSourceStatus, decision: Option<&Decision>) {
        if self.origin == Origin::CommandLine {
            return;
        }
        let publish = |severity, reason, action, note: &str| {
            self.ctx.events.publish(self.source, severity, reason, action, note);
        };
        let empty = GitSourceStatus::default();
        let before = self.source.status.as_ref().unwrap_or(&empty);
        let changed = |type_: &str| {
            let after = condition(status, type_)?;
            let same = condition(before, type_).is_some_and(|before| {
                (&before.status, &before.reason, &before.message) == (&after.status, &after.reason, &after.message)
            });
            (!same && after.status == "False").then_some(after)
        };
        if let Some(fetched) = changed(status::FETCHED) {
            publish(Severity::Warning, reason::FETCH_FAILED, "Fetch", &fetched.message);
        }
        if let Some(applied) = changed(status::APPLIED) {
            let word = match applied.reason.as_str() {
                "PruneUnconfirmed" | "PruneLimit" | "PruneWaits" => reason::PRUNE_WAITS,
                _ => reason::WITHHELD,
            };
            publish(Severity::Warning, word, "Apply", &applied.message);
        }
        if status.applied_revision != before.applied_revision
            && let Some(revision) = &status.applied_revision
        {
            publish(Severity::Normal, reason::APPLIED, "Apply", &format!("applied {revision}"));
        }
        let drifted = decision.into_iter().flat_map(|decision| &decision.apply).filter(|(_, why)| *why == Why::Drifted);
        for (id, _) in drifted.take(EVENTS_MAX) {
            let note = format!("{} was changed by others and is as git has it again", text(id));
            publish(Severity::Normal, reason::DRIFT_REPAIRED, "Apply", &note);
        }
    }
}

fn condition<'a>(status: &'a GitSourceStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}
