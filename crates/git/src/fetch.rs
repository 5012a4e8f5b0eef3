//! One fetch into a mirror.
//!
//! This process asks for the references. If the mirror has what is under the reference, that was all. Otherwise an
//! engine lists commits that the mirror has, this process stores the server's pack in a file, and an engine indexes the
//! file. No engine runs while the server is waited for.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use tokio::sync::OwnedMutexGuard;

use super::{
    advertisement::Advertisement,
    answer,
    engine::Failure,
    error::Error,
    flaw::Flaw,
    generation,
    limits::{DEADLINE_GRACE, EXHAUSTED_RETRY, PACKS_MAX},
    mirror::{Fetched, Shared},
    objects::to_git,
    remote::{Reference, Remote},
    thread,
    transport::Session,
    work::{Answer, Job, Resolved, Trouble},
};
use tidegate_core::revision::{Oid, Revision};

/// A fetch.
pub(super) struct Fetch {
    pub(super) mirror: Arc<Shared>,
    pub(super) remote: Remote,
    /// The end of everything that waits for the remote.
    pub(super) deadline: Instant,
    /// Excludes other fetches. Work that outlives this value has a copy.
    pub(super) hold: Arc<OwnedMutexGuard<()>>,
}

/// What the last fetch found.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// The object under the reference.
    id: Oid,
    commit: Oid,
    /// The good commit with which it was compared, and the result.
    good: Option<Oid>,
    fast_forward: bool,
}

/// An object whose pack exceeded a limit.
#[derive(Debug)]
pub(super) struct Refused {
    id: Oid,
    until: Instant,
    limit: super::error::Exhaustion,
}

/// The result of a fetch into one repository.
struct Tip {
    name: String,
    commit: Oid,
    object: Oid,
    fast_forward: bool,
    received_bytes: u64,
}

/// A repository that is fetched into.
#[derive(Clone)]
struct Target {
    path: PathBuf,
    /// Whether it replaces a generation, so that it must get everything.
    is_new: bool,
}

// === impl Fetch ===

impl Fetch {
    pub(super) async fn run(self) -> Result<Fetched, Error> {
        let mirror = Arc::clone(&self.mirror);
        let must_rebuild = thread::run(move || Ok(mirror.is_damaged() || mirror.repository().is_err())).await?;
        let tip = if must_rebuild {
            self.rebuild().await?
        } else {
            let target = Target { path: self.mirror.path(), is_new: false };
            self.fetch_into(&target).await?
        };
        let mirror = Arc::clone(&self.mirror);
        if thread::run(move || Ok(PACKS_MAX < generation::packs(&mirror.path()))).await? {
            self.repack().await?;
        }
        Ok(Fetched {
            revision: Revision::Commit { name: tip.name, commit: tip.commit },
            object: tip.object,
            fast_forward: tip.fast_forward,
            received_bytes: tip.received_bytes,
        })
    }

    async fn fetch_into(&self, target: &Target) -> Result<Tip, Error> {
        if let Reference::Commit(id) = self.remote.reference
            && self.has(target, id).await?
        {
            // A commit never changes, so no request is necessary.
            return self.settle(target, id.to_string(), id, 0).await;
        }
        match self.remote.url.path() {
            Some(path) => self.copy(target, path).await,
            None => self.download(target).await,
        }
    }

    // --- from this machine ---

    async fn copy(&self, target: &Target, from: &Path) -> Result<Tip, Error> {
        let job = Job::Copy {
            from: from.to_owned(),
            reference: self.remote.reference.clone(),
            timeout: self.deadline.saturating_duration_since(Instant::now()),
            good: self.mirror.last_good().and_then(|good| match good {
                Revision::Commit { name, commit } => Some(((!self.has_other_names()).then_some(name), commit)),
                Revision::WorkTree => None,
            }),
            is_whole: target.is_new,
        };
        let subject = self.remote.reference.to_string();
        let Resolved { name, commit, object, fast_forward } = self.resolved(target, subject, job).await?;
        Ok(Tip { name: name.unwrap_or_default(), commit, object, fast_forward, received_bytes: 0 })
    }

    // --- from a server ---

    async fn download(&self, target: &Target) -> Result<Tip, Error> {
        let deadline = self.deadline;
        let (session, found) = self
            .wait_for_server(move |remote| {
                let session = Session::new(remote, deadline)?;
                let found = session.advertisement(&remote.reference)?;
                Ok((session, found))
            })
            .await?;
        let (name, wanted) = self.choose(&found)?;
        if !self.has(target, wanted).await? {
            self.mirror.check_refused(wanted, &self.subject(wanted))?;
            let haves = self.haves(target).await?;
            self.receive(target, &session, wanted, &found, haves).await?;
        } else {
            let session = session.clone();
            let finish = move |_: &Remote| {
                session.finish();
                Ok(())
            };
            self.wait_for_server(finish).await?;
        }
        self.settle(target, name, wanted, session.received_bytes()).await
    }

    /// The name and the object of the reference.
    fn choose(&self, found: &Advertisement) -> Result<(String, Oid), Error> {
        let url = || Box::new(self.remote.url.clone());
        let name = match &self.remote.reference {
            Reference::Commit(id) => return Ok((id.to_string(), *id)),
            Reference::Default => found.head.clone().unwrap_or_else(|| "HEAD".to_owned()),
            Reference::Branch(name) | Reference::Tag(name) | Reference::Name(name) => name.clone(),
            Reference::Versions(_) => found.version.as_ref().map(|tag| tag.name.clone()).unwrap_or_default(),
        };
        match found.found {
            Some(id) => Ok((name, id)),
            None if found.is_empty => Err(Error::Empty { url: url() }),
            None => Err(self.no_reference()),
        }
    }

    fn no_reference(&self) -> Error {
        Error::NoReference { url: Box::new(self.remote.url.clone()), reference: self.remote.reference.clone() }
    }

    async fn haves(&self, target: &Target) -> Result<Vec<Oid>, Error> {
        if target.is_new {
            return Ok(Vec::new());
        }
        match self.run_job(target, self.subject_of_good(), Job::Haves).await? {
            Answer::Haves(haves) => Ok(haves),
            Answer::Done | Answer::Resolved(_) | Answer::Versions(_) | Answer::Evidence { .. } => Err(strange()),
        }
    }

    /// Downloads packs until the mirror has the object.
    async fn receive(
        &self,
        target: &Target,
        session: &Session,
        wanted: Oid,
        found: &Advertisement,
        haves: Vec<Oid>,
    ) -> Result<(), Error> {
        let commit = match self.remote.reference {
            Reference::Commit(id) => Some(id),
            Reference::Default
            | Reference::Branch(_)
            | Reference::Tag(_)
            | Reference::Versions(_)
            | Reference::Name(_) => None,
        };
        let attempts = answer::attempts(commit, found);
        let last = attempts.len().saturating_sub(1);
        for (index, wants) in attempts.into_iter().enumerate() {
            let request = answer::request(&wants, &haves, found.capabilities);
            let pack = PackFile(self.mirror.folder().join("pack.new"));
            let (session, path) = (session.clone(), pack.0.clone());
            let downloaded = self.wait_for_server(move |_| session.pack(request, &path)).await;
            match downloaded {
                Ok(()) => {
                    let job = Job::Receive { pack: pack.0.clone() };
                    let result = self.run_job(target, self.subject(wanted), job).await;
                    result.inspect_err(|error| self.mirror.remember_refused(wanted, error))?;
                }
                // The server does not serve this commit by its id.
                Err(Error::Refused { .. }) if commit.is_some() && found.found.is_none() && index < last => continue,
                Err(Error::Refused { .. }) if commit.is_some() && found.found.is_none() => {
                    return Err(self.no_reference());
                }
                Err(error) => return Err(error),
            }
            if self.has(target, wanted).await? {
                return Ok(());
            }
        }
        match commit {
            Some(_) if found.found.is_none() => Err(self.no_reference()),
            _ => Err(self.answer(Flaw::Incomplete)),
        }
    }

    /// Runs work that waits for the server, on a thread, until the deadline.
    async fn wait_for_server<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Remote) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (remote, hold) = (self.remote.clone(), Arc::clone(&self.hold));
        let work = thread::run(move || {
            let _hold = hold;
            work(&remote)
        });
        let timeout = self.deadline.saturating_duration_since(Instant::now()) + DEADLINE_GRACE;
        let deadline =
            |_| Error::Deadline { url: Box::new(self.remote.url.clone()), proxy: None, timeout: self.remote.timeout };
        tokio::time::timeout(timeout, work).await.map_err(deadline)?
    }

    // --- both ---

    /// Peels an object to its commit and compares it with the good one, unless the last fetch did so.
    async fn settle(&self, target: &Target, name: String, id: Oid, received_bytes: u64) -> Result<Tip, Error> {
        let good = match self.mirror.last_good() {
            Some(Revision::Commit { name: good_name, commit }) if good_name == name || self.has_other_names() => {
                Some(commit)
            }
            _ => None,
        };
        let known = self.mirror.settled().filter(|settled| settled.id == id && !target.is_new);
        let settled = match known.and_then(|settled| settled.with_good(good)) {
            Some(settled) => settled,
            None => {
                let job = Job::Resolve { id, good, is_whole: target.is_new };
                let Resolved { commit, fast_forward, .. } = self.resolved(target, self.subject(id), job).await?;
                Settled { id, commit, good, fast_forward }
            }
        };
        let (commit, fast_forward) = (settled.commit, settled.fast_forward);
        self.mirror.set_settled(settled);
        Ok(Tip { name, commit, object: id, fast_forward, received_bytes })
    }

    async fn resolved(&self, target: &Target, subject: String, job: Job) -> Result<Resolved, Error> {
        match self.run_job(target, subject, job).await? {
            Answer::Resolved(resolved) => Ok(resolved),
            Answer::Done | Answer::Haves(_) | Answer::Versions(_) | Answer::Evidence { .. } => Err(strange()),
        }
    }

    /// Whether an object exists. An object never arrives without everything that it refers to.
    async fn has(&self, target: &Target, id: Oid) -> Result<bool, Error> {
        let path = target.path.clone();
        // An index is read, and no object.
        thread::run(move || {
            let repository = git2::Repository::open_bare(&path);
            Ok(repository.is_ok_and(|repository| repository.odb().is_ok_and(|odb| odb.exists(to_git(id)))))
        })
        .await
    }

    /// Runs a job in an engine. `subject` names what it works on, for the error if it exceeds a limit.
    async fn run_job(&self, target: &Target, subject: String, job: Job) -> Result<Answer, Error> {
        let verb = job.verb();
        let writing = if job.writes() { Some(self.mirror.writing().await) } else { None };
        let hold = (Arc::clone(&self.hold), writing);
        let result = self.mirror.perform(target.path.clone(), job, hold).await?;
        result.map_err(|failure| match failure {
            Failure::Trouble(trouble) => self.trouble(trouble),
            other => self.mirror.failure(other, verb, &subject),
        })
    }

    fn trouble(&self, trouble: Trouble) -> Error {
        let url = || Box::new(self.remote.url.clone());
        match trouble {
            Trouble::NotARepository => {
                Error::NotARepository { path: self.remote.url.path().unwrap_or(Path::new("")).to_owned() }
            }
            Trouble::Sha256 => Error::Sha256 { url: url() },
            Trouble::NoReference => self.no_reference(),
            Trouble::NoCommit => Error::NoCommit { url: url(), reference: self.remote.reference.clone() },
            Trouble::Pack => self.answer(Flaw::Pack),
            Trouble::Incomplete => self.answer(Flaw::Incomplete),
            Trouble::TooManyObjects => {
                let limit = super::limits::PACK_OBJECTS_MAX as u64;
                Error::TooMuch { url: url(), what: "objects", limit }
            }
            Trouble::Deadline => Error::Deadline { url: url(), proxy: None, timeout: self.remote.timeout },
            other => self.mirror.trouble(other),
        }
    }

    fn answer(&self, flaw: Flaw) -> Error {
        Error::Answer { url: Box::new(self.remote.url.clone()), flaw }
    }

    /// Whether the name of what is followed may change although the GitSource does not.
    fn has_other_names(&self) -> bool {
        matches!(self.remote.reference, Reference::Default | Reference::Versions(_))
    }

    fn subject(&self, id: Oid) -> String {
        match &self.remote.reference {
            Reference::Commit(_) => format!("commit {id}"),
            reference => format!("{reference} ({id})"),
        }
    }

    /// What work on the objects of the mirror itself is about.
    fn subject_of_good(&self) -> String {
        match self.mirror.last_good().and_then(|good| good.commit()) {
            Some(good) => self.subject(good),
            None => self.remote.reference.to_string(),
        }
    }

    // --- generations ---

    /// Builds the next generation from the remote, and copies everything in use from this one.
    async fn rebuild(&self) -> Result<Tip, Error> {
        let build = Arc::new(self.begin().await?);
        let target = Target { path: build.path().to_owned(), is_new: true };
        let tip = self.fetch_into(&target).await?;
        self.replace(build).await?;
        self.mirror.forget_unreadable_good();
        // The comparison with the good commit needs what was copied.
        let target = Target { path: self.mirror.path(), is_new: false };
        let received_bytes = tip.received_bytes;
        self.mirror.forget_settled();
        self.settle(&target, tip.name, tip.object, received_bytes).await
    }

    /// Builds the next generation from this one, in a single pack and without unreferenced objects.
    async fn repack(&self) -> Result<(), Error> {
        let build = Arc::new(self.begin().await?);
        let good = self.mirror.last_good().and_then(|good| good.commit());
        let target = Target { path: self.mirror.path(), is_new: false };
        let job = Job::Pack { into: build.path().to_owned(), good };
        self.run_job(&target, self.subject_of_good(), job).await?;
        self.replace(build).await
    }

    async fn begin(&self) -> Result<generation::Build, Error> {
        let mirror = Arc::clone(&self.mirror);
        thread::run(move || generation::Build::begin(mirror.folder(), mirror.number() + 1)).await
    }

    /// Replaces this generation by the next one.
    async fn replace(&self, build: Arc<generation::Build>) -> Result<(), Error> {
        // Readers of the old generation finish first. Copy what was recorded or kept during the build.
        let gate = Arc::new(self.mirror.close_gate().await);
        let target = Target { path: self.mirror.path(), is_new: false };
        let mirror = Arc::clone(&self.mirror);
        if thread::run(move || Ok(mirror.repository().is_ok())).await? {
            let good = self.mirror.last_good().and_then(|good| good.commit());
            let job = Job::Save { into: build.path().to_owned(), good };
            if let Err(error) = self.run_job(&target, self.subject_of_good(), job).await {
                tracing::warn!(url = %self.mirror.url, %error, "cannot save objects in use from a mirror");
            }
        }
        let mirror = Arc::clone(&self.mirror);
        thread::run(move || {
            let _gate = gate;
            mirror.replace(&build)
        })
        .await
    }
}

/// An engine of this program answers what it was asked.
fn strange() -> Error {
    Error::Engine { why: "it answered another question".to_owned() }
}

/// The file of a pack; removed when dropped.
struct PackFile(PathBuf);

impl Drop for PackFile {
    fn drop(&mut self) {
        // The next fetch overwrites it.
        let _ = fs::remove_file(&self.0);
    }
}

// === impl Settled ===

impl Settled {
    /// The same object, compared with this good commit; `None` if that needs a walk.
    fn with_good(self, good: Option<Oid>) -> Option<Settled> {
        match good {
            None => Some(Settled { good, fast_forward: true, ..self }),
            Some(commit) if commit == self.commit => Some(Settled { good, fast_forward: true, ..self }),
            Some(_) if good == self.good => Some(self),
            Some(_) => None,
        }
    }
}

// === impl Refused ===

impl Refused {
    /// What is remembered of an error; `None` unless it is a limit.
    pub(super) fn of(id: Oid, error: &Error, now: Instant) -> Option<Refused> {
        match error {
            Error::Exhausted { limit, .. } => Some(Refused { id, until: now + EXHAUSTED_RETRY, limit: *limit }),
            _ => None,
        }
    }

    /// The limit that this object exceeded a short while ago.
    pub(super) fn limit(&self, id: Oid, now: Instant) -> Option<super::error::Exhaustion> {
        (self.id == id && now < self.until).then_some(self.limit)
    }
}
