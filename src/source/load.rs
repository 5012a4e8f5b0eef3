//! From a GitSource to its active revision: fetches, reads, and takes over what was read.
//!
//! A pass requests a fetch, and a later pass takes its result: see [`fetches`].
//!
//! A fetch reads the Secret when it needs it, and again when the git server rejects the cached content. No watch
//! reports changes of these Secrets. If one is missing, invalid or rejected, each pass compares its resource version,
//! and fetches again once it differs.

pub(super) mod access;
pub(super) mod checks;
mod decide;
pub(super) mod fetches;
mod parse;
mod problem;
mod share;
mod token_file;
mod trust;

#[cfg(test)]
pub(super) use parse::tests::{loaded, valid};

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use self::{
    access::SourceAccess,
    checks::{CheckPermit, CheckRoom, CheckTime, UncheckedRevision},
    decide::{FetchEnd, FetchProgress, FetchedRevision, Purpose, ReadRevision, References, Reload, Running, Start},
    fetches::{FetchResult, Job},
    parse::Parse,
    problem::Problem,
    token_file::TokenFile,
};
use super::{
    KnownSource, SourcePass,
    state::{Fetching, RefusedRevision, RunningFetch},
};
use tidegate_cluster as cluster;
use tidegate_core::{
    api::{names::label, shared::ObjectMeta},
    definition::{self, Cache, Channels, Elsewhere, Kind, Options},
    diagnostic::Diagnostics,
    intake::{
        Terms,
        status::{self, Fetched, Kept},
    },
    landscape::{self, SourceName},
    name::Key,
    object::Gvk,
    revision::Revision,
    snapshot::{Filter, Limits, Snapshot},
    template::Templates,
};
use tidegate_git::{self as git, Mirror};
use tidegate_process::{ambient, retry};

use crate::{
    controller::{self, Subject},
    queue::{Trigger, Triggers},
    source::registry::{Loaded, Overrides, OverridesOrigin, give_back_memory},
    stores::Origin,
};

/// What a pass has after [`SourcePass::load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loading {
    /// Everything that can be read now.
    Loaded,
    /// A fetch in progress. Its end wakes the source; if that takes longer than this, a pass continues without it.
    Waits(Duration),
}

/// A source whose fetch takes longer than this continues with its last good revision. Almost all fetches take less.
const SLOW_AFTER: Duration = Duration::from_secs(3);
/// Maximum number of earlier versions of template overrides that are read to find one without errors. Each may take as
/// long as the renderer allows.
const EARLIER_TEMPLATES_MAX: usize = 10;

// === impl SourcePass ===

impl SourcePass<'_> {
    /// Takes the result of a fetch, or requests a fetch if that is due. Then reads what the active revision lacks.
    ///
    /// Does not wait for git servers: a source whose fetch takes long continues with its last good revision.
    pub(super) async fn load(&self, known: &mut KnownSource, terms: &Terms) -> Loading {
        match decide::running(known.running.take(), terms, self.asked) {
            Running::None => {
                if self.must_fetch(known, terms).await && self.request_fetch(known, terms, Triggers::default()) {
                    return Loading::Waits(SLOW_AFTER);
                }
            }
            Running::Outdated(before) => {
                self.ctx.registry.fetches.abandon(self.key);
                if self.request_fetch(known, terms, before) {
                    return Loading::Waits(SLOW_AFTER);
                }
            }
            Running::Current(running) => match self.result() {
                Some((permit, result)) => {
                    self.take_result(known, terms, running, result).await;
                    drop(permit);
                }
                None => {
                    let waited = running.since.elapsed();
                    known.running = Some(running);
                    if waited < SLOW_AFTER && self.ctx.registry.loaded(self.key).is_none() {
                        return Loading::Waits(SLOW_AFTER.saturating_sub(waited));
                    }
                }
            },
        }
        self.reload(known, terms).await;
        Loading::Loaded
    }

    /// The result of a fetch that has ended, with a permit to check its revision; `None` without either.
    fn result(&self) -> Option<(CheckPermit<'_>, FetchResult)> {
        let permit = self.ctx.registry.fetches.has_ended(self.key).then(|| self.permit()).flatten()?;
        Some((permit, self.ctx.registry.fetches.take(self.key)?))
    }

    fn permit(&self) -> Option<CheckPermit<'_>> {
        self.ctx.registry.checks.permit(self.key, self.ctx.queue)
    }

    /// Gives up the fetch in progress. The next one is due at once.
    pub(super) fn give_up_fetch(&self, known: &mut KnownSource) {
        if known.running.take().is_some() {
            self.ctx.registry.fetches.abandon(self.key);
            known.fetch = Fetching::Pending;
        }
    }

    /// The outcome of the last fetch, as the status reports it. While the first fetch takes long, it is that.
    pub(super) fn fetched(&self, known: &KnownSource, terms: &Terms) -> Fetched {
        let fetches = &self.ctx.registry.fetches;
        let progress = match known.running {
            Some(_) if fetches.is_waiting(self.key) => FetchProgress::Waits,
            Some(_) if fetches.has_ended(self.key) => FetchProgress::Ended,
            Some(_) | None => FetchProgress::Asks,
        };
        decide::fetched_so_far(known, terms, progress)
    }

    /// Reads what the active revision lacks.
    async fn reload(&self, known: &mut KnownSource, terms: &Terms) {
        let loaded = self.ctx.registry.loaded(self.key);
        let active = loaded.as_ref().map(|loaded| (&loaded.revision, loaded.reading));
        let references = loaded.as_ref().map_or(References::Same, |loaded| self.references(loaded));
        let reload = decide::reload(terms, active, references, known.revision.refused());
        if reload == Reload::Nothing {
            return;
        }
        // Without a permit, the source is woken when there is one.
        let Some(permit) = self.permit() else { return };
        let result = match reload {
            Reload::Nothing => Ok(()),
            Reload::LastGood => self.recall(known, terms).await,
            Reload::Again(revision) => self.read(known, terms, revision, Purpose::Follow, Duration::ZERO).await,
        };
        drop(permit);
        if let Err(problem) = result {
            known.fetch = mem::take(&mut known.fetch).with_failure(problem.failure());
            self.log(&problem, known.fetch.failures());
        }
    }

    /// Makes the last good revision active of a source that is suspended or being deleted, without a fetch.
    pub(super) async fn hold(&self, known: &mut KnownSource, terms: &Terms) -> Kept {
        if self.is_read() {
            return Kept::Read;
        }
        let Ok(url) = terms.url.parse::<git::Url>() else { return Kept::Lost };
        let mirror = match self.ctx.registry.mirror(self.key, self.slot, &url) {
            Ok(mirror) => mirror,
            Err(error) => {
                tracing::warn!(source = %self.key, %error, "cannot open the mirror of a source that is not fetched");
                return Kept::Lost;
            }
        };
        if mirror.last_good().is_none() {
            return Kept::Lost;
        }
        // Without a permit, the source is woken when there is one.
        let Some(_permit) = self.permit() else { return Kept::Unread };
        match self.recall(known, terms).await {
            Ok(()) if self.is_read() => Kept::Read,
            Ok(()) => Kept::Lost,
            Err(error) => {
                tracing::warn!(source = %self.key, %error, "cannot read the last good revision of a source that is not fetched");
                Kept::Lost
            }
        }
    }

    fn log(&self, problem: &Problem, failures: u32) {
        let reason = problem.failure().reason;
        tracing::warn!(source = %self.key, reason, error = %problem, failures, "cannot read a source");
    }

    // --- fetch ---

    /// Whether a fetch is due.
    async fn must_fetch(&self, known: &KnownSource, terms: &Terms) -> bool {
        let secret = self.secret_key(terms);
        match decide::start(self.source, terms, secret, &known.fetch, self.asked, self.now) {
            Start::Fetch => true,
            Start::Skip => false,
            Start::FetchIfChanged(secret, seen) => {
                let found = self.ctx.kcp.get_metadata(&secrets(), &secret).await;
                let version = found.map(|found| found.map(|metadata| metadata.resource_version));
                version.is_ok_and(|version| seen.differs(version.as_deref()))
            }
        }
    }

    /// Requests a fetch. Returns whether it is in progress; if not, the source has a problem that it would not solve.
    /// `before` are the triggers of a fetch that this one replaces.
    fn request_fetch(&self, known: &mut KnownSource, terms: &Terms, before: Triggers) -> bool {
        let requested = status::requested(self.source);
        match self.job(terms, known.access.take()) {
            Ok(job) => {
                self.ctx.registry.fetches.begin(self.key, job);
                known.running = Some(RunningFetch {
                    settings: terms.fetching(),
                    requested,
                    since: Instant::now(),
                    triggers: before.union(self.triggers),
                    again: false,
                });
                true
            }
            Err(problem) => {
                let before = known.fetch.clone();
                self.fetch_ended(known, terms, &before, requested, Err(problem));
                false
            }
        }
    }

    fn job(&self, terms: &Terms, last: Option<SourceAccess>) -> Result<Job, Problem> {
        let url = decide::url(terms, self.ctx.allow_local_sources || self.origin == Origin::CommandLine)?;
        let token_file = TokenFile::of(terms, self.origin, &url).map_err(Problem::TokenFile)?;
        let secret = self.secret_key(terms);
        let cached = decide::cached(last, secret.as_ref(), &url, self.triggers);
        let proxy = terms.proxy_secret.as_ref().map(|name| Key::new(self.key.namespace(), name));
        let mirror = self.ctx.registry.mirror(self.key, self.slot, &url).map_err(Problem::Git)?;
        Ok(Job { mirror, url, terms: terms.clone(), secret, proxy, token_file, cached })
    }

    /// Takes the result of a fetch. If the repository may have changed meanwhile, requests the next one.
    async fn take_result(
        &self,
        known: &mut KnownSource,
        terms: &Terms,
        running: RunningFetch,
        (result, taken): FetchResult,
    ) {
        let must_repeat = decide::must_repeat(&running, self.source);
        // If this pass is dropped at the next `await`, the result is lost, and the next pass fetches again.
        let before = mem::take(&mut known.fetch);
        let result = match result {
            Ok(end) => {
                self.note_fetch(known, &end.fetched.revision, &running);
                self.take_over(known, terms, end, taken).await
            }
            Err(problem) => Err(problem),
        };
        self.fetch_ended(known, terms, &before, running.requested, result);
        if must_repeat {
            self.request_fetch(known, terms, Triggers::default());
        }
    }

    /// Records whether a delivery of the git host announced what a fetch found.
    fn note_fetch(&self, known: &mut KnownSource, found: &Revision, running: &RunningFetch) {
        let news = known.revision.attempted().is_some_and(|attempted| attempted != found).then_some(found);
        let last = self.ctx.registry.receivers.last(self.key).map(|(last, _)| last);
        let (triggers, since, now) = (running.triggers, running.since, Instant::now());
        known.announced = mem::take(&mut known.announced).after_fetch(news, triggers, since, last, now);
    }

    /// Records how a fetch ended. `before` is the one before it.
    fn fetch_ended(
        &self,
        known: &mut KnownSource,
        terms: &Terms,
        before: &Fetching,
        requested: Option<String>,
        result: Result<(), Problem>,
    ) {
        let fraction = ambient::fraction();
        let poll = retry::poll(terms.interval, fraction);
        known.fetch = decide::ended(terms, before, &result, Instant::now(), poll, fraction);
        known.handled = requested.or(known.handled.take());
        result.unwrap_or_else(|problem| self.log(&problem, known.fetch.failures()));
    }

    /// Takes the step that follows from a successful fetch, which took so long.
    async fn take_over(
        &self,
        known: &mut KnownSource,
        terms: &Terms,
        end: FetchEnd,
        taken: Duration,
    ) -> Result<(), Problem> {
        let FetchEnd { fetched, access, unread } = end;
        known.access = access;
        let mirror =
            self.ctx.registry.opened(self.slot).ok_or_else(|| Problem::Interrupted(fetched.revision.clone()))?;
        let moved = decide::moved_tag(terms, mirror.last_good().as_ref(), &fetched.revision);
        known.remarks.fetched(unread, moved, &fetched.revision);
        let loaded = self.ctx.registry.loaded(self.key);
        let active = loaded.as_ref().map(|loaded| (&loaded.revision, loaded.reading));
        let (revision, follows) = (fetched.revision.clone(), fetched.fast_forward);
        let step = decide::fetched(terms, &revision, follows, active, known.revision.refused());
        if trust::is_asked(&step) {
            self.verify(known, terms, &mirror, &fetched).await?;
        }
        match step {
            FetchedRevision::Active => {
                known.revision = mem::take(&mut known.revision).found_again(revision.clone());
                // The mirror of a new URL does not know yet that this revision is good.
                mirror.record_good(&revision).await.map_err(Problem::Git)
            }
            FetchedRevision::StillRefused => Ok(()),
            FetchedRevision::Rewritten(reference) => {
                let before = mirror.last_good().map_or_else(|| "the last one".to_owned(), |good| good.to_string());
                Err(Problem::Rewritten { reference, found: revision, before })
            }
            FetchedRevision::ReadRewritten => {
                // Recorded first: a process that starts after the revision is recorded as good sees no rewrite.
                self.record_rewrite(known, terms).await.map_err(Problem::Unrecorded)?;
                self.read(known, terms, revision, Purpose::Follow, taken).await
            }
            FetchedRevision::Read => self.read(known, terms, revision, Purpose::Follow, taken).await,
        }
    }

    /// The Secret that the GitSource names.
    fn secret_key(&self, terms: &Terms) -> Option<Key> {
        terms.secret.as_ref().map(|name| Key::new(self.key.namespace(), name))
    }

    // --- read ---

    /// Makes the last good revision active that an earlier process recorded.
    async fn recall(&self, known: &mut KnownSource, terms: &Terms) -> Result<(), Problem> {
        let last_good = self.ctx.registry.opened(self.slot).and_then(|mirror| mirror.last_good());
        let is_recalled = |last: &Revision| decide::is_recalled(terms, last, known.revision.refused());
        let Some(revision) = last_good.filter(is_recalled) else { return Ok(()) };
        self.read(known, terms, revision, Purpose::Recall, Duration::ZERO).await
    }

    /// Reads a revision, and makes it active unless the source refuses it. `taken` is what its fetch took of the time.
    /// A revision that takes longer than the rest is left alone for some time.
    async fn read(
        &self,
        known: &mut KnownSource,
        terms: &Terms,
        revision: Revision,
        purpose: Purpose,
        taken: Duration,
    ) -> Result<(), Problem> {
        let time = CheckTime::new(terms, taken);
        let before = known.unchecked.as_ref().filter(|unchecked| unchecked.is(&revision));
        if before.is_some_and(|unchecked| unchecked.is_hopeless(terms, &time, self.now)) {
            return Err(time.over(&revision));
        }
        let result = self.read_within(known, terms, revision.clone(), purpose, &time).await;
        let is_in_time = !matches!(result, Err(Problem::CheckTime { .. }));
        self.ctx.registry.checks.ended(self.key, is_in_time);
        give_back_memory();
        if !is_in_time {
            known.unchecked = Some(UncheckedRevision::new(revision, terms, &time, self.now));
        }
        result
    }

    async fn read_within(
        &self,
        known: &mut KnownSource,
        terms: &Terms,
        revision: Revision,
        purpose: Purpose,
        time: &CheckTime,
    ) -> Result<(), Problem> {
        let mirror = self.ctx.registry.opened(self.slot).ok_or_else(|| Problem::Interrupted(revision.clone()))?;
        let before = self.ctx.registry.loaded(self.key);
        let previous = before.as_ref().map(|loaded| Arc::clone(&loaded.snapshot));
        let active = before.as_ref().map(|before| before.bytes);
        let _reserved_values =
            self.ctx.registry.reserve(self.key, self.slot, 0, |_| Ok(())).map_err(Problem::TooLarge)?;
        let room = CheckRoom::new(self.ctx.registry, self.key, purpose, active);
        let snapshot = self.snapshot(&mut known.cache, terms, &mirror, &revision, previous, (time, &room)).await?;
        let last = before.as_ref().map(|before| before.revision.clone()).or_else(|| mirror.last_good());
        let own = snapshot.bytes();
        let fits = |others: &BTreeMap<Key, u64>| share::fits(purpose, own, active, others);
        let _reserved = self.ctx.registry.reserve(self.key, self.slot, own, fits).map_err(Problem::TooLarge)?;
        let is_first = before.is_none();
        let mut loaded = self.parse(&mut known.cache, terms, snapshot, before, (time, &room)).await?;
        if loaded.templates.origin == OverridesOrigin::Broken
            && let Some(active) =
                time.within(&revision, self.earlier_templates(&mirror, terms, &revision, time)).await?
        {
            let is_own = loaded.templates.active.as_ref() == Some(&active);
            let origin = if is_own { OverridesOrigin::Own } else { OverridesOrigin::Earlier };
            loaded.templates = Overrides { active: Some(active), origin, former: None };
        }
        if is_first && let Some(active) = decide::own(&loaded.templates) {
            let former = self.former_templates(&mirror, terms, &revision, active);
            loaded.templates.former = time.within(&revision, former).await?;
        }
        let flaws = decide::flaws(&loaded.diagnostics);
        loaded.diagnostics = loaded.diagnostics.at_most(self.ctx.registry.diagnostics_max(self.key));
        let listed = loaded.diagnostics.iter().count();
        let former = mem::take(&mut known.revision);
        known.revision = match decide::read(purpose, terms.on_error, flaws, &revision, last.as_ref()) {
            // What the source follows now says more than what it followed before.
            ReadRevision::Refused if purpose == Purpose::Recall && former.refused().is_some() => {
                known.revision = former;
                return Ok(());
            }
            ReadRevision::Refused => {
                let Loaded { reading, diagnostics, .. } = loaded;
                let of_active =
                    self.ctx.registry.loaded(self.key).map_or(0, |active| active.diagnostics.iter().count());
                self.ctx.registry.set_listed(self.slot, of_active + listed);
                known.revision = former.after_refusal(RefusedRevision { revision, reading, diagnostics });
                return Ok(());
            }
            ReadRevision::Recalled => former.recalled(revision.clone()),
            ReadRevision::Same => former.found_again(revision.clone()),
            ReadRevision::New => {
                super::report::seen(self.ctx, &revision);
                former.advanced(revision.clone())
            }
        };
        self.ctx.registry.set_listed(self.slot, listed);
        self.activate(loaded);
        // The revision stays active until another one is, so it is recorded before anything is applied.
        mirror.record_good(&revision).await.map_err(Problem::Git)
    }

    /// The files of a revision. Its definitions say where its modules are, which may be outside of `paths`, so it may
    /// be read twice.
    async fn snapshot(
        &self,
        cache: &mut Cache,
        terms: &Terms,
        mirror: &Mirror,
        revision: &Revision,
        previous: Option<Arc<Snapshot>>,
        (time, room): (&CheckTime, &CheckRoom),
    ) -> Result<Snapshot, Problem> {
        let limits = Limits::default();
        let filter = Filter::new(terms.templates.as_deref()).within(&terms.paths, &terms.ignore);
        let first = time.within(revision, mirror.snapshot(revision, previous, &filter, limits)).await?;
        let first = first.map_err(Problem::Git)?;
        let options = parse::options(terms, self.ctx.namespaces);
        let options = Options { budget: time.budget.clone(), room: room.room.clone(), ..options };
        let mut former = mem::take(cache);
        let find = move || {
            let modules = definition::lacking_modules(&mut former, &first, &options, &limits);
            (modules, first, former)
        };
        let interrupted = || Problem::Interrupted(revision.clone());
        let found = time.within(revision, ambient::blocking(find)).await?;
        let (modules, first, former) = found.ok_or_else(interrupted)?;
        *cache = former;
        time.complete(revision)?;
        // What a cache keeps counts only for an active revision.
        room.complete(revision).inspect_err(|_| *cache = Cache::default())?;
        if modules.is_empty() {
            return Ok(first);
        }
        let filter = filter.with_modules(modules);
        let second = mirror.snapshot(revision, Some(Arc::new(first)), &filter, limits);
        time.within(revision, second).await?.map_err(Problem::Git)
    }

    /// Parses and checks the files of a revision. For thousands of files that takes long enough to delay other tasks of
    /// this thread, so it runs on a thread of its own.
    async fn parse(
        &self,
        cache: &mut Cache,
        terms: &Terms,
        snapshot: Snapshot,
        before: Option<Arc<Loaded>>,
        (time, room): (&CheckTime, &CheckRoom),
    ) -> Result<Loaded, Problem> {
        let revision = snapshot.revision.clone();
        let parse = self.inputs(terms, snapshot, before, (time, room));
        let former = mem::take(cache);
        let parsed = time.within(&revision, ambient::blocking(move || parse.run(former))).await?;
        let (mut loaded, next) = parsed.ok_or_else(|| Problem::Interrupted(revision.clone()))?;
        *cache = next;
        time.complete(&revision)?;
        room.complete(&revision).inspect_err(|_| *cache = Cache::default())?;
        self.ctx.registry.share_modules(&mut loaded.definitions, cache);
        Ok(loaded)
    }

    /// What a revision is parsed with.
    fn inputs(
        &self,
        terms: &Terms,
        snapshot: Snapshot,
        before: Option<Arc<Loaded>>,
        (time, room): (&CheckTime, &CheckRoom),
    ) -> Parse {
        let options = parse::options(terms, self.ctx.namespaces);
        Parse {
            name: SourceName::new(self.key.clone()),
            snapshot: Arc::new(snapshot),
            options: Options {
                elsewhere: Arc::new(self.elsewhere()),
                budget: time.budget.clone(),
                room: room.room.clone(),
                ..options
            },
            reading: terms.reading(),
            spec: terms.spec.clone(),
            engine: self.ctx.renderer.engine().clone(),
            base: controller::library(self.ctx.library).base().clone(),
            before,
            landscape: self.ctx.stores.landscape(),
            installed: decide::modules_by_kyma(self.installed()),
            agent: self.ctx.agent.cloned(),
            kcp_landscapes: self.ctx.stores.kcp_landscapes(),
        }
    }

    /// The last template overrides on the branch of a revision that were valid when they were committed, together with
    /// the definitions of that time. A process that starts when the overrides of the branch have errors uses these, as
    /// the process before it did.
    async fn earlier_templates(
        &self,
        mirror: &Mirror,
        terms: &Terms,
        revision: &Revision,
        time: &CheckTime,
    ) -> Option<Templates> {
        let folder = terms.templates.as_deref()?;
        let result = async {
            for earlier in mirror.versions(revision, folder, EARLIER_TEMPLATES_MAX).await.map_err(Problem::Git)? {
                let room = CheckRoom::new(self.ctx.registry, self.key, Purpose::Recall, None);
                let snapshot =
                    self.snapshot(&mut Cache::default(), terms, mirror, &earlier, None, (time, &room)).await?;
                let others = self.ctx.registry.sizes_of_others(self.key);
                share::fits(Purpose::Recall, snapshot.bytes(), None, &others).map_err(Problem::TooLarge)?;
                let parse = self.inputs(terms, snapshot, None, (time, &room));
                let parsed = ambient::blocking(move || parse.run(Cache::default()).0.templates).await;
                if let Some(Overrides { active: Some(active), origin: OverridesOrigin::Own, .. }) = parsed {
                    tracing::info!(
                        source = %self.key,
                        %revision,
                        of = %earlier,
                        "earlier template overrides are active"
                    );
                    return Ok(Some(active));
                }
            }
            Ok::<_, Problem>(None)
        };
        result.await.unwrap_or_else(|error| {
            tracing::warn!(source = %self.key, %error, "cannot read earlier template overrides");
            None
        })
    }

    /// The last template overrides on the branch of a revision that are valid and differ from `active`: what the
    /// process before this one used before those. Their definitions are not read.
    async fn former_templates(
        &self,
        mirror: &Mirror,
        terms: &Terms,
        revision: &Revision,
        active: &Templates,
    ) -> Option<Templates> {
        let folder = terms.templates.as_deref()?;
        let filter = Filter::new(Some(folder)).within(&[folder.to_owned()], &[]);
        let result = async {
            for former in mirror.versions(revision, folder, EARLIER_TEMPLATES_MAX).await? {
                let snapshot = mirror.snapshot(&former, None, &filter, Limits::default()).await?;
                let (engine, folder) = (self.ctx.renderer.engine().clone(), folder.to_owned());
                let base = controller::library(self.ctx.library).base().clone();
                let read = move || {
                    let mut found = Diagnostics::default();
                    let read = parse::overrides(&engine, &mut found, &snapshot, &folder, &base);
                    (!found.has_errors()).then_some(read)
                };
                if let Some(Some(read)) = ambient::blocking(read).await
                    && read != *active
                {
                    return Ok(Some(read));
                }
            }
            Ok::<_, git::Error>(None)
        };
        result.await.unwrap_or_else(|error| {
            tracing::warn!(source = %self.key, %error, "cannot read former template overrides");
            None
        })
    }

    /// Makes a revision active, for this controller and for the others.
    fn activate(&self, loaded: Loaded) {
        let Overrides { active, former, .. } = &loaded.templates;
        self.ctx.set_templates(self.key, active.clone(), former.clone());
        for other in self.ctx.registry.publish(self.key, self.slot, Arc::new(loaded)) {
            self.ctx.queue.push(Subject::Source(other), Trigger::Changed);
        }
    }

    /// Whether objects of other sources or users, to which the active revision refers, were created or deleted, or the
    /// control plane serves other kinds now.
    fn references(&self, loaded: &Loaded) -> References {
        if loaded.kcp_landscapes != self.ctx.stores.kcp_landscapes() {
            return References::Changed;
        }
        let outside = &loaded.definitions.outside;
        if outside.is_empty() || self.elsewhere().of_interest(outside) == loaded.elsewhere {
            References::Same
        } else {
            References::Changed
        }
    }

    /// The catalog in KCP without the objects of this source, which may no longer declare them, apart from those that
    /// another source declares: it takes them over.
    fn elsewhere(&self) -> Elsewhere {
        let own = SourceName::new(self.key.clone()).label_value();
        let others = self.others();
        let is_declared = |kind: Kind, key: &Key| {
            let id = (kind, key.clone());
            others.values().any(|other| other.declares.as_ref().is_some_and(|declares| declares.contains(&id)))
        };
        let stays = |kind: Kind, key: &Key, metadata: &ObjectMeta| {
            let is_other = landscape::label(metadata, label::SOURCE) != Some(&own);
            metadata.deletion_timestamp.is_none() && (is_other || is_declared(kind, key))
        };
        let landscape = self.ctx.stores.landscape();
        let templates = landscape.templates.iter().filter(|(key, one)| stays(Kind::ModuleTemplate, key, &one.metadata));
        let releases =
            landscape.releases.iter().filter(|(key, one)| stays(Kind::ModuleReleaseMeta, key, &one.metadata));
        Elsewhere {
            templates: templates.map(|(key, _)| key.clone()).collect(),
            releases: releases.map(|(key, release)| (key.clone(), Channels::from(&**release))).collect(),
            // A kind that is not known is a warning at most here.
            groups: Default::default(),
        }
    }
}

pub(super) fn secrets() -> cluster::Kind {
    cluster::Kind::built_in(&Gvk::new("", "v1", "Secret")).expect("Secret is a built-in kind")
}
