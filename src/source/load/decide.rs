//! When a source is fetched, what the answers mean, and which revision becomes active. Pure: nothing is read or sent.
//!
//! The decisions, in the order in which they are asked for: [`running`] for a fetch in progress, [`start`], [`url`] and
//! [`cached`] for the next one, [`begin`], [`after_secret`] and [`after_fetch`] within a fetch, [`fetched`] and
//! [`must_repeat`] for its result, [`reload`] if nothing was fetched, and [`read`] for a revision that was read.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use tidegate_cluster as cluster;
use tidegate_core::{
    api::{GitSource, git_source::OnError},
    diagnostic::{Diagnostic, Diagnostics},
    intake::{
        Follow, Installed, Terms, code,
        status::{self, Fetched},
    },
    name::Key,
    object::Digest,
    revision::Revision,
    template::Templates,
};
use tidegate_git::{self as git, Reference, Remote};
use tidegate_process::retry::{self, Class};
use tokio::time::{Duration, Instant};

use super::{
    access::{self, Content, Login, ProxyAccess, SourceAccess},
    problem::Problem,
};
use crate::{
    queue::{Trigger, Triggers},
    source::registry::{Overrides, OverridesOrigin},
    source::state::{Fetching, KnownSource, LastFetch, ReadOutcome, RefusedRevision, Remedy, RunningFetch, SeenSecret},
};

/// Whether a pass fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It fetches.
    Fetch,
    /// It fetches if this Secret differs from the one that did not help.
    FetchIfChanged(Key, SeenSecret),
    /// It does not fetch.
    Skip,
}

/// What happens to a fetch in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Running {
    /// There is none.
    None,
    /// It is for other settings: another one replaces it, with its triggers.
    Outdated(Triggers),
    /// The pass takes its result, or waits for it.
    Current(RunningFetch),
}

/// The next step of a fetch.
#[derive(Debug)]
pub(super) enum FetchStep {
    /// Read this Secret.
    ReadSecret(Key),
    /// Ask the git server.
    Fetch(FetchAccess),
    /// The fetch ends.
    End(Result<FetchEnd, Problem>),
}

/// How a request to the git server authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchAccess {
    /// The GitSource names no Secret.
    Anonymous,
    /// With the Secret as of the last fetch, which may be out of date.
    Cached(SourceAccess),
    /// With the Secret as it was just read.
    Fresh(SourceAccess),
}

/// A successful fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchEnd {
    /// The answer of the git server.
    pub(super) fetched: git::Fetched,
    /// The Secret that the git server accepted.
    pub(super) access: Option<SourceAccess>,
    /// Warnings about keys of its Secrets that nothing reads.
    pub(super) unread: Vec<Diagnostic>,
}

/// What happens to a revision that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchedRevision {
    /// It is active already.
    Active,
    /// It is refused, as before.
    StillRefused,
    /// The GitSource does not allow that this branch was rewritten.
    Rewritten(String),
    /// It is read after the status records the rewrite: then prunes need a confirmation.
    ReadRewritten,
    /// It is read.
    Read,
}

/// Whether a revision is read without a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// The active revision is up to date.
    Nothing,
    /// No revision is active: the last good one is read.
    LastGood,
    /// This revision is read again: the active one, or the one that was refused.
    Again(Revision),
}

/// Whether the objects outside of its source, to which the active revision refers, exist as when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum References {
    /// They do.
    Same,
    /// Some were created or deleted since.
    Changed,
}

/// Why a revision is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The GitSource names it: errors may refuse it.
    Follow,
    /// An earlier process recorded it as good: it becomes active despite errors.
    Recall,
}

/// What is wrong with a revision that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaws {
    /// Nothing.
    None,
    /// It has errors.
    Errors,
    /// Its `.tidegate/source.yaml` differs from the GitSource, or is invalid.
    Disagreement,
}

/// What happens to a revision that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadRevision {
    /// It is refused.
    Refused,
    /// It becomes active, as in an earlier process.
    Recalled,
    /// It stays active.
    Same,
    /// It becomes active for the first time.
    New,
}

/// How far the fetch in progress is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchProgress {
    /// It waits for a place.
    Waits,
    /// It waits for the git server.
    Asks,
    /// It has ended. Its revision waits for a place to be checked.
    Ended,
}

/// What happens to a fetch in progress. `asked` are the triggers since the last pass.
pub(super) fn running(running: Option<RunningFetch>, terms: &Terms, asked: Triggers) -> Running {
    match running {
        None => Running::None,
        Some(running) if running.settings != terms.fetching() => Running::Outdated(running.triggers),
        Some(running) => Running::Current(RunningFetch {
            triggers: running.triggers.union(asked),
            again: running.again
                || [Trigger::Git, Trigger::Push, Trigger::Requested].iter().any(|one| asked.contains(*one)),
            ..running
        }),
    }
}

/// Whether another fetch follows one that ended: the repository may have changed after it began.
pub(super) fn must_repeat(running: &RunningFetch, source: &GitSource) -> bool {
    let requested = status::requested(source);
    running.again || (requested.is_some() && requested != running.requested)
}

/// The outcome of the last fetch, as the status reports it. Until the first fetch of
/// this process is checked, the status of an earlier process says nothing.
pub(super) fn fetched_so_far(known: &KnownSource, terms: &Terms, progress: FetchProgress) -> Fetched {
    if known.running.is_none() || known.fetch != Fetching::Pending {
        return known.fetch.fetched();
    }
    let server = terms.url.parse::<git::Url>().map(|url| url.server().to_owned()).unwrap_or_default();
    let message = match progress {
        FetchProgress::Waits => {
            format!("the fetch waits for its turn: servers that answered last time come first, which {server} did not")
        }
        FetchProgress::Asks => format!("{server} has not answered yet"),
        FetchProgress::Ended => {
            "the revision is fetched, and waits until checks of other sources end; it is then checked by itself"
                .to_owned()
        }
    };
    Fetched::Failed { reason: "Fetching", message, said: None, stalled: false }
}

/// Whether a fetch is due. `secret` is the Secret that the GitSource names.
pub(super) fn start(
    source: &GitSource,
    terms: &Terms,
    secret: Option<Key>,
    last: &Fetching,
    triggers: Triggers,
    now: Instant,
) -> Start {
    if is_due(source, terms, last, triggers, now) {
        return Start::Fetch;
    }
    match (secret, last.failure().map(|failure| &failure.remedy)) {
        (Some(secret), Some(Remedy::Secret(seen))) => Start::FetchIfChanged(secret, seen.clone()),
        (_, Some(Remedy::Keys(seen))) => terms.verify.as_ref().map_or(Start::Skip, |verify| {
            let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
            Start::FetchIfChanged(Key::new(namespace, &verify.secret), seen.clone())
        }),
        (_, Some(Remedy::Retry | Remedy::Later | Remedy::Edit) | None) | (None, Some(Remedy::Secret(_))) => Start::Skip,
    }
}

/// Whether a fetch is due.
fn is_due(source: &GitSource, terms: &Terms, last: &Fetching, triggers: Triggers, now: Instant) -> bool {
    let requested = status::requested(source);
    let handled = source.status.as_ref().and_then(|status| status.last_handled_reconcile_at.clone());
    let is_over = match last {
        Fetching::Pending => true,
        Fetching::Ended(last) => last.next <= now || last.settings != terms.fetching(),
    };
    let is_asked = (requested.is_some() && requested != handled) || triggers.contains(Trigger::Requested);
    // While the git server asks to wait, only a user may hurry.
    let must_wait = last.failure().is_some_and(|failure| failure.remedy == Remedy::Later);
    let is_news = triggers.contains(Trigger::Git) || triggers.contains(Trigger::Push);
    let is_triggered = is_news || (last.failure().is_some() && triggers.contains(Trigger::Retry));
    is_over || is_asked || (is_triggered && !must_wait)
}

/// The last fetch, once it has ended with `result`. `poll` is when the next one is due without a failure. `fraction` is
/// a random number from 0 to 1.
pub(super) fn ended(
    terms: &Terms,
    before: &Fetching,
    result: &Result<(), Problem>,
    now: Instant,
    poll: Duration,
    fraction: f64,
) -> Fetching {
    let (outcome, failures, wait) = match result {
        Ok(()) => (ReadOutcome::Done, 0, poll),
        Err(problem) => {
            let (failure, failures) = (problem.failure(), before.failures().saturating_add(1));
            let asked = failure.retry_after.unwrap_or_default();
            let wait = match failure.remedy {
                // A wait that the git server asks for, up to an hour, replaces the interval. It may be none at all, so
                // it is never shorter than the wait after a failure of which the server says nothing.
                Remedy::Later => asked.max(retry::within(terms.interval, failures, fraction)),
                Remedy::Retry | Remedy::Secret(_) | Remedy::Keys(_) | Remedy::Edit => retry::at_least(poll, asked),
            };
            (ReadOutcome::Failed(failure), failures, wait)
        }
    };
    Fetching::Ended(Box::new(LastFetch { settings: terms.fetching(), next: now + wait, failures, outcome }))
}

/// What can help after an error of this class. `secret` is the Secret, if another version of it may help.
pub(super) fn remedy(class: Class, secret: Option<&SeenSecret>) -> Remedy {
    match (class, secret) {
        (Class::Transient | Class::Waiting, _) => Remedy::Retry,
        (Class::Stalled, Some(seen)) => Remedy::Secret(seen.clone()),
        (Class::Stalled, None) => Remedy::Edit,
    }
}

/// The URL of a source. Fails if it is invalid, or a path on this machine that is not allowed.
pub(super) fn url(terms: &Terms, local_allowed: bool) -> Result<git::Url, Problem> {
    let url: git::Url = terms.url.parse().map_err(Problem::Url)?;
    match url.path() {
        Some(_) if !local_allowed => Err(Problem::Local),
        _ => Ok(url),
    }
}

/// The Secret of the last fetch, unless the GitSource names another one or a user may have changed it. Of a Secret that
/// was read for another kind of URL, other keys were read.
pub(super) fn cached(
    last: Option<SourceAccess>,
    secret: Option<&Key>,
    url: &git::Url,
    triggers: Triggers,
) -> Option<SourceAccess> {
    let is_asked = triggers.contains(Trigger::Requested) || triggers.contains(Trigger::Changed);
    last.filter(|access| Some(&access.secret) == secret && access.is_for(url) && !is_asked)
}

/// The first step of a fetch.
pub(super) fn begin(secret: Option<Key>, cached: Option<SourceAccess>) -> FetchStep {
    match (secret, cached) {
        (None, _) => FetchStep::Fetch(FetchAccess::Anonymous),
        (Some(_), Some(access)) => FetchStep::Fetch(FetchAccess::Cached(access)),
        (Some(secret), None) => FetchStep::ReadSecret(secret),
    }
}

/// The next step after the API server answered with the Secret.
pub(super) fn after_secret(url: &git::Url, key: &Key, answer: Result<Option<Secret>, cluster::Error>) -> FetchStep {
    let found = answer.map_err(|error| Problem::SecretRead { secret: key.clone(), error: Box::new(error) });
    match found.and_then(|found| SourceAccess::from_secret(url, key, found)) {
        Ok(access) => FetchStep::Fetch(FetchAccess::Fresh(access)),
        Err(problem) => FetchStep::End(Err(problem)),
    }
}

/// The proxy, after the API server answered with its Secret.
pub(super) fn proxy(key: &Key, answer: Result<Option<Secret>, cluster::Error>) -> Result<ProxyAccess, Problem> {
    let found = answer.map_err(|error| Problem::SecretRead { secret: key.clone(), error: Box::new(error) })?;
    access::proxy(key, found)
}

/// The next step after the git server answered. The Secret may have changed since the last fetch, so a server that
/// rejects its cached content gets a second request.
pub(super) fn after_fetch(
    access: FetchAccess,
    proxy: Option<&ProxyAccess>,
    answer: Result<git::Fetched, git::Error>,
) -> FetchStep {
    let of_proxy = proxy.and_then(ProxyAccess::warning);
    let (error, access) = match (answer, access) {
        (Ok(fetched), access) => {
            let access = access.into_secret();
            let unread = access.as_ref().and_then(SourceAccess::warning).into_iter().chain(of_proxy).collect();
            return FetchStep::End(Ok(FetchEnd { fetched, access, unread }));
        }
        (Err(error), FetchAccess::Cached(access)) if is_refusal(&error) => return FetchStep::ReadSecret(access.secret),
        (Err(error), access) => (error, access.into_secret()),
    };
    let mut notes = access.as_ref().map(|access| access.notes(&error)).unwrap_or_default();
    notes.extend(of_proxy.map(|warning| warning.message));
    let problem = if is_refusal(&error) {
        Problem::Access { error, seen: Box::new(access.map(|access| access.seen).unwrap_or_default()) }
    } else {
        Problem::Git(error)
    };
    FetchStep::End(Err(problem.with_notes(&notes)))
}

/// The request to the git server.
pub(super) fn remote(terms: &Terms, url: &git::Url, access: &FetchAccess) -> Remote {
    let mut remote = Remote {
        url: url.clone(),
        reference: match &terms.follow {
            Follow::Default => Reference::Default,
            Follow::Branch(name) => Reference::Branch(name.clone()),
            Follow::Tag(name) => Reference::Tag(name.clone()),
            Follow::Versions(range) => Reference::Versions(range.clone()),
            Follow::Name(name) => Reference::Name(name.clone()),
            Follow::Commit(commit) => Reference::Commit(*commit),
        },
        credentials: None,
        github_app: None,
        client: None,
        ca: None,
        proxy: None,
        ssh: None,
        timeout: terms.timeout,
    };
    match access.secret().map(|access| access.content.clone()) {
        None => {}
        Some(Content::Https { login, ca, client }) => {
            match login {
                None => {}
                Some(Login::Credentials(credentials)) => remote.credentials = Some(credentials),
                Some(Login::GitHubApp(app)) => remote.github_app = Some(app),
            }
            remote.ca = ca;
            remote.client = client;
        }
        Some(Content::Ssh(access)) => remote.ssh = Some(access),
    }
    remote
}

/// What happens to a revision that was fetched. `active` is the active revision with the digest of the settings with
/// which it was read. `follows` says whether the revision follows the last good one.
pub(super) fn fetched(
    terms: &Terms,
    found: &Revision,
    follows: bool,
    active: Option<(&Revision, Digest)>,
    refused: Option<&RefusedRevision>,
) -> FetchedRevision {
    let is_refused = |refused: &RefusedRevision| {
        refused.revision == *found && refused.reading == terms.reading() && terms.on_error == OnError::RefuseRevision
    };
    if active == Some((found, terms.reading())) {
        return FetchedRevision::Active;
    }
    if refused.is_some_and(is_refused) {
        return FetchedRevision::StillRefused;
    }
    match (&terms.follow, terms.allow_rewrite) {
        _ if follows => FetchedRevision::Read,
        (Follow::Branch(name), false) => FetchedRevision::Rewritten(name.clone()),
        (Follow::Default, false) => FetchedRevision::Rewritten("the default branch".to_owned()),
        (Follow::Name(name), false) if name.starts_with("refs/heads/") => FetchedRevision::Rewritten(name.clone()),
        (
            Follow::Default
            | Follow::Branch(_)
            | Follow::Tag(_)
            | Follow::Versions(_)
            | Follow::Name(_)
            | Follow::Commit(_),
            _,
        ) => FetchedRevision::ReadRewritten,
    }
}

/// A warning if the tag that a source follows was moved. `last` is the last good revision.
pub(super) fn moved_tag(terms: &Terms, last: Option<&Revision>, found: &Revision) -> Option<Diagnostic> {
    let (Follow::Tag(tag), Some(Revision::Commit { name, commit: before }), Some(now)) =
        (&terms.follow, last, found.commit())
    else {
        return None;
    };
    (name == tag && *before != now).then(|| {
        let message = format!(
            "the tag {tag} was moved from {before} to {now}: protect tags on the git server, or follow a branch or \
             spec.ref.semver"
        );
        Diagnostic::warning(code::TAG_MOVED, message)
    })
}

/// Whether a revision is read without a fetch: after a restart while the git server does not answer, or after a change
/// of the settings or of objects to which the active revision refers. A revision that was refused is read again with
/// other settings, which may accept it, and not again with the same.
pub(super) fn reload(
    terms: &Terms,
    active: Option<(&Revision, Digest)>,
    references: References,
    refused: Option<&RefusedRevision>,
) -> Reload {
    if let Some(refused) = refused.filter(|refused| refused.reading != terms.reading()) {
        return Reload::Again(refused.revision.clone());
    }
    match (active, references) {
        (None, _) => Reload::LastGood,
        (Some((revision, _)), References::Same) if refused.is_some_and(|refused| refused.revision == *revision) => {
            Reload::Nothing
        }
        (Some((_, reading)), References::Same) if reading == terms.reading() => Reload::Nothing,
        (Some((revision, _)), References::Same | References::Changed) => Reload::Again(revision.clone()),
    }
}

/// Whether the last good revision of an earlier process is worth a read: not if it was refused with these settings, and
/// nothing but other settings can change that.
pub(super) fn is_recalled(terms: &Terms, last_good: &Revision, refused: Option<&RefusedRevision>) -> bool {
    refused.is_none_or(|refused| {
        refused.revision != *last_good
            || refused.reading != terms.reading()
            || flaws(&refused.diagnostics) != Flaws::Disagreement
    })
}

/// The modules that runtimes have, by Kyma.
pub(super) fn modules_by_kyma(installed: Vec<Installed>) -> BTreeMap<Key, BTreeSet<String>> {
    let mut modules: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
    for Installed { runtime, module, .. } in installed {
        modules.entry(runtime).or_default().insert(module);
    }
    modules
}

/// Whether a revision has errors.
pub(super) fn flaws(diagnostics: &Diagnostics) -> Flaws {
    match diagnostics.has_errors() {
        true if diagnostics.has_code(|code| code == code::SOURCE_DIFFERS || code == code::SOURCE_FILE) => {
            Flaws::Disagreement
        }
        true => Flaws::Errors,
        false => Flaws::None,
    }
}

/// What happens to a revision that was read, with its flaws. `last` is the active revision, or the last good one of an
/// earlier process.
pub(super) fn read(
    purpose: Purpose,
    on_error: OnError,
    flaws: Flaws,
    found: &Revision,
    last: Option<&Revision>,
) -> ReadRevision {
    match (purpose, on_error, flaws) {
        // The review showed what the settings in the file make of it, not those of the GitSource.
        (_, _, Flaws::Disagreement) => ReadRevision::Refused,
        (Purpose::Recall, _, _) => ReadRevision::Recalled,
        (Purpose::Follow, OnError::RefuseRevision, Flaws::Errors) => ReadRevision::Refused,
        (Purpose::Follow, _, _) if last == Some(found) => ReadRevision::Same,
        (Purpose::Follow, _, _) => ReadRevision::New,
    }
}

/// The template overrides of the revision itself, if they are active.
pub(super) fn own(templates: &Overrides) -> Option<&Templates> {
    match templates.origin {
        OverridesOrigin::Own => templates.active.as_ref(),
        OverridesOrigin::Earlier | OverridesOrigin::Broken => None,
    }
}

/// Whether other credentials or another CA may help.
fn is_refusal(error: &git::Error) -> bool {
    let is_app = matches!(error, git::Error::GitHubApp { .. });
    let is_refused = matches!(
        error,
        git::Error::Authentication { .. }
            | git::Error::Forbidden { .. }
            | git::Error::NoRepository { .. }
            | git::Error::Certificate { .. }
            | git::Error::Authorities
            | git::Error::ClientCertificate { .. }
            | git::Error::Identity { .. }
            | git::Error::KnownHosts { .. }
            | git::Error::HostKey { .. }
            | git::Error::KeyRejected { .. }
            | git::Error::SecondFactor { .. }
            | git::Error::NoCommand { .. }
    );
    // An API that has a problem, or asks to wait, is not asked again at once.
    is_refused || (is_app && error.class() == Class::Stalled)
}

// === impl FetchAccess ===

impl FetchAccess {
    fn secret(&self) -> Option<&SourceAccess> {
        match self {
            FetchAccess::Anonymous => None,
            FetchAccess::Cached(access) | FetchAccess::Fresh(access) => Some(access),
        }
    }

    fn into_secret(self) -> Option<SourceAccess> {
        match self {
            FetchAccess::Anonymous => None,
            FetchAccess::Cached(access) | FetchAccess::Fresh(access) => Some(access),
        }
    }
}

#[cfg(test)]
mod tests;
