//! Fetching and reading: from a GitSource to a revision that is in force.
//!
//! Credentials are read when a fetch needs them, and again when a server refuses those of the last time. Nobody watches
//! the Secrets of sources: one that is missing, broken or refused is looked at every few seconds, its metadata only, and
//! the source is tried again once it is another.

use std::{collections::BTreeSet, sync::Arc};

use tokio::time::Instant;

use super::{
    Progress, SourcePass,
    decide::{self, FetchedRevision},
    state::{LastFetch, Reading, RefusedRevision},
};
use tidegate_cluster as cluster;
use tidegate_core::{
    api::{
        ModuleReleaseMeta,
        git_source::OnError,
        names::{KCP_NAMESPACE, annotation, label},
        shared::ObjectMeta,
    },
    definition::{self, Cache, Channels, Definition, Elsewhere, Options},
    diagnostic::Diagnostics,
    intake::{self, Declared, Follow, Id, Terms, status::Withheld},
    landscape::{self, SourceName},
    name::Key,
    object::{Digest, Gvk},
    revision::Revision,
    snapshot::{Filter, Limits, Snapshot},
    template::{self, Engine, Templates},
};
use tidegate_git::{self as git, Credentials, Mirror, Reference, Remote};
use tidegate_process::{
    ambient,
    retry::{self, Class},
};

use crate::{
    controller::{Failure, Subject},
    queue::Trigger,
    source::registry::Loaded,
    stores::Origin,
};

/// What the Secret of a source holds.
#[derive(Clone)]
pub(super) struct SourceAccess {
    secret: String,
    credentials: Option<Credentials>,
    ca: Option<Vec<u8>>,
}

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// The URL is none.
    #[error("spec.url: {0}")]
    Url(git::ParseUrlError),
    /// A path on this machine.
    #[error("spec.url names a path on this machine, which the daemon allows only with --allow-local-sources")]
    Local,
    /// No Secret.
    #[error("Secret {0} does not exist")]
    NoSecret(Key),
    /// A Secret without sense.
    #[error("Secret {secret} {what}")]
    Secret { secret: Key, what: &'static str },
    /// The Secret could not be asked for.
    #[error("Secret {secret} cannot be read: {error}")]
    SecretRead { secret: Key, error: Box<cluster::Error> },
    /// The branch does not fast-forward.
    #[error("{reference} was rewritten: {found} does not follow {before}; to accept it, set spec.allowRewrite")]
    Rewritten { reference: String, found: Revision, before: String },
    /// git.
    #[error(transparent)]
    Git(git::Error),
    /// A worker was lost.
    #[error("reading {0} was interrupted")]
    Interrupted(Revision),
    /// What must be known before the revision takes effect could not be written.
    #[error("that the branch was rewritten cannot be recorded: {}", .0.error)]
    Unrecorded(Failure),
}

// === impl SourcePass ===

impl SourcePass<'_> {
    /// Fetches if it is time to, and puts what was found in force.
    pub(super) async fn load(&self, progress: &mut Progress, terms: &Terms) {
        let (last, reading) = (progress.fetch, &progress.reading);
        let is_due = decide::is_due(self.source, terms, last, reading, self.triggers, self.now);
        if is_due || self.is_rotated(progress, terms).await {
            let result = self.look(progress, terms).await;
            let now = Instant::now();
            let next = now + retry::poll(terms.interval, ambient::fraction());
            progress.fetch = Some(LastFetch { fetching: terms.fetching(), next });
            self.note(progress, result);
        }
        let loaded = self.ctx.registry.loaded(self.key);
        let result = match &loaded {
            // A source that cannot be asked has what it had before the restart.
            None => self.recall(progress, terms).await,
            Some(loaded) if loaded.reading != terms.reading() || self.refers_to_news(loaded) => {
                self.read(progress, terms, loaded.revision.clone()).await
            }
            Some(_) => return,
        };
        if let Err(problem) = result {
            self.note(progress, Err(problem));
        }
    }

    /// Puts the last good revision of a suspended source in force, without asking anybody for a newer one.
    pub(super) async fn hold(&self, progress: &mut Progress, terms: &Terms) {
        let Ok(url) = terms.url.parse::<git::Url>() else { return };
        if let Err(error) = self.ctx.registry.mirror(self.key, self.slot, &url) {
            tracing::warn!(source = %self.key, %error, "the mirror of a suspended source cannot be opened");
            return;
        }
        if self.ctx.registry.loaded(self.key).is_none()
            && let Err(error) = self.recall(progress, terms).await
        {
            tracing::warn!(source = %self.key, %error, "the last good revision of a suspended source cannot be read");
        }
    }

    /// Whether something that the revision in force refers to, and another source or a user declares, came or went.
    fn refers_to_news(&self, loaded: &Loaded) -> bool {
        let outside = &loaded.definitions.outside;
        !outside.is_empty() && self.elsewhere().of_interest(outside) != loaded.elsewhere
    }

    /// The catalog in KCP that is not this source's own: what it no longer declares does not count as declared.
    fn elsewhere(&self) -> Elsewhere {
        let own = SourceName::new(self.key.clone()).label_value();
        let is_other = |metadata: &ObjectMeta| {
            metadata.deletion_timestamp.is_none() && landscape::label(metadata, label::SOURCE) != Some(&own)
        };
        let landscape = self.ctx.stores.landscape();
        let templates = landscape.templates.iter().filter(|(_, template)| is_other(&template.metadata));
        let releases = landscape.releases.iter().filter(|(_, release)| is_other(&release.metadata));
        let channels = |release: &ModuleReleaseMeta| match release.spec.mandatory {
            Some(_) => Channels::Mandatory,
            None => Channels::Known(release.spec.channels.iter().map(|channel| channel.channel.clone()).collect()),
        };
        Elsewhere {
            templates: templates.map(|(key, _)| key.clone()).collect(),
            releases: releases.map(|(key, release)| (key.clone(), channels(release))).collect(),
        }
    }

    /// Whether the Secret that a server refused, or that made no sense, is another by now.
    async fn is_rotated(&self, progress: &Progress, terms: &Terms) -> bool {
        let Some(secret) = terms.secret.as_ref().filter(|_| progress.reading.awaits_secret()) else { return false };
        let found = self.ctx.kcp.get_metadata(&secrets(), &Key::new(self.key.namespace(), secret)).await;
        found.is_ok_and(|found| found.map(|metadata| metadata.resource_version) != progress.seen_secret)
    }

    /// Takes note of how reading ended.
    fn note(&self, progress: &mut Progress, result: Result<(), Problem>) {
        progress.reading = match result {
            Ok(()) => Reading::Done,
            Err(problem) => {
                tracing::warn!(source = %self.key, reason = problem.reason(), error = %problem, "a source cannot be read");
                Reading::Failed {
                    reason: problem.reason(),
                    message: problem.to_string(),
                    remedy: decide::remedy(problem.class(), problem.is_of_access()),
                }
            }
        };
    }

    /// Fetches, and reads what is new.
    async fn look(&self, progress: &mut Progress, terms: &Terms) -> Result<(), Problem> {
        let url: git::Url = terms.url.parse().map_err(Problem::Url)?;
        let local_allowed = self.ctx.allow_local_sources || self.origin == Origin::CommandLine;
        if url.path().is_some() && !local_allowed {
            return Err(Problem::Local);
        }
        let mirror = self.ctx.registry.mirror(self.key, self.slot, &url).map_err(Problem::Git)?;
        let fetched = self.fetch(progress, terms, &mirror, url).await?;
        let loaded = self.ctx.registry.loaded(self.key);
        let in_force = loaded.as_ref().map(|loaded| (&loaded.revision, loaded.reading));
        let refused = progress.refused.as_ref();
        match decide::fetched(terms, &fetched.revision, fetched.fast_forward, in_force, refused) {
            FetchedRevision::InForce => {
                progress.refused = None;
                progress.attempted = Some(fetched.revision.clone());
                // The mirror of another URL does not know yet that this revision is in force.
                mirror.record_good(&fetched.revision).await.map_err(Problem::Git)
            }
            FetchedRevision::StillRefused => Ok(()),
            FetchedRevision::Rewritten(reference) => Err(Problem::Rewritten {
                reference,
                found: fetched.revision,
                before: mirror.last_good().map_or_else(|| "the last one".to_owned(), |good| good.to_string()),
            }),
            FetchedRevision::ReadRewritten => {
                // Before the revision is recorded as good: a process that begins after that sees no rewrite.
                self.rewritten(progress, terms).await.map_err(Problem::Unrecorded)?;
                self.read(progress, terms, fetched.revision).await
            }
            FetchedRevision::Read => self.read(progress, terms, fetched.revision).await,
        }
    }

    async fn fetch(
        &self,
        progress: &mut Progress,
        terms: &Terms,
        mirror: &Mirror,
        url: git::Url,
    ) -> Result<git::Fetched, Problem> {
        let cached = progress.access.take().filter(|access| Some(&access.secret) == terms.secret.as_ref());
        let asked = self.triggers.contains(Trigger::Requested) || self.triggers.contains(Trigger::Changed);
        let was_cached = cached.is_some() && !asked;
        let access = match cached.filter(|_| was_cached) {
            Some(access) => Some(access),
            None => self.access(progress, terms).await?,
        };
        let mut remote =
            Remote { url, reference: reference(&terms.follow), credentials: None, ca: None, timeout: terms.timeout };
        let result = mirror.fetch(&with_access(&mut remote, access.as_ref())).await;
        match result {
            Ok(fetched) => {
                progress.access = access;
                Ok(fetched)
            }
            // The Secret may have been rotated since we read it: a server that refuses gets a second, fresh try.
            Err(error) if was_cached && is_refusal(&error) => {
                let access = self.access(progress, terms).await?;
                let fetched = mirror.fetch(&with_access(&mut remote, access.as_ref())).await.map_err(Problem::Git)?;
                progress.access = access;
                Ok(fetched)
            }
            Err(error) => Err(Problem::Git(error)),
        }
    }

    /// Reads the Secret that the source names.
    async fn access(&self, progress: &mut Progress, terms: &Terms) -> Result<Option<SourceAccess>, Problem> {
        let Some(name) = &terms.secret else { return Ok(None) };
        let key = Key::new(self.key.namespace(), name);
        let read = self.ctx.kcp.get_as::<k8s_openapi::api::core::v1::Secret>(&secrets(), &key).await;
        let found = read.map_err(|error| Problem::SecretRead { secret: key.clone(), error: Box::new(error) })?;
        progress.seen_secret = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
        let secret = found.ok_or_else(|| Problem::NoSecret(key.clone()))?;
        let data = secret.data.unwrap_or_default();
        let problem = |what| Problem::Secret { secret: key.clone(), what };
        let text = |name: &str| match data.get(name) {
            None => Ok(None),
            Some(bytes) => match std::str::from_utf8(&bytes.0) {
                // Editors and `echo` leave a line break behind, which is part of no token.
                Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
                Err(_) => Err(problem("holds credentials that are not UTF-8")),
            },
        };
        let credentials = match (text("username")?, text("password")?, text("bearerToken")?) {
            (None, None, None) => None,
            (None, None, Some(token)) => Some(Credentials::Bearer(token)),
            (Some(username), Some(password), None) => Some(Credentials::Basic { username, password }),
            (None, Some(password), None) => Some(Credentials::Basic { username: "git".to_owned(), password }),
            (Some(_), None, _) => return Err(problem("has a username and no password")),
            (_, Some(_), Some(_)) => return Err(problem("has both a password and a bearerToken; leave one")),
        };
        let ca = data.get("ca.crt").map(|bytes| bytes.0.clone());
        if credentials.is_none() && ca.is_none() {
            return Err(problem("has none of the keys username, password, bearerToken and ca.crt"));
        }
        Ok(Some(SourceAccess { secret: name.clone(), credentials, ca }))
    }

    /// Puts the last good revision in force that an earlier process recorded.
    async fn recall(&self, progress: &mut Progress, terms: &Terms) -> Result<(), Problem> {
        let Some(mirror) = self.ctx.registry.opened(self.slot) else { return Ok(()) };
        let Some(revision) = mirror.last_good() else { return Ok(()) };
        let accepting = Terms { on_error: OnError::Withhold, ..terms.clone() };
        let (attempted, refused) = (progress.attempted.clone(), progress.refused.take());
        let result = self.read(progress, &accepting, revision).await;
        progress.attempted = attempted.or_else(|| progress.attempted.take());
        progress.refused = refused;
        result
    }

    /// Reads a revision and puts it in force, unless the source refuses broken ones.
    async fn read(&self, progress: &mut Progress, terms: &Terms, revision: Revision) -> Result<(), Problem> {
        let mirror = self.ctx.registry.opened(self.slot).ok_or_else(|| Problem::Interrupted(revision.clone()))?;
        let before = self.ctx.registry.loaded(self.key);
        let previous = before.as_ref().map(|loaded| Arc::clone(&loaded.snapshot));
        let filter = Filter::new(terms.templates.as_deref());
        let snapshot = mirror.snapshot(&revision, previous, &filter, Limits::default()).await.map_err(Problem::Git)?;
        let reading = terms.reading();
        let parse = Parse {
            name: SourceName::new(self.key.clone()),
            snapshot: Arc::new(snapshot),
            options: Options { elsewhere: Arc::new(self.elsewhere()), ..options(terms, self.ctx.namespaces) },
            reading,
            engine: self.ctx.renderer.engine().clone(),
            base: crate::controller::library(self.ctx.library).base().clone(),
            before: before.clone(),
        };
        let cache = std::mem::take(&mut progress.cache);
        // Parsing thousands of files and checking overrides takes long enough to hold up the other tasks of this thread.
        let work = ambient::blocking(move || parse.run(cache));
        let (loaded, cache) = work.await.ok_or_else(|| Problem::Interrupted(revision.clone()))?;
        progress.cache = cache;
        progress.attempted = Some(revision.clone());
        if terms.on_error == OnError::RefuseRevision && loaded.diagnostics.has_errors() {
            progress.refused = Some(RefusedRevision { revision, reading, diagnostics: loaded.diagnostics });
            return Ok(());
        }
        progress.refused = None;
        // What an earlier process had in force is not new.
        let known = before.as_ref().map(|before| before.revision.clone()).or_else(|| mirror.last_good());
        if known.as_ref() != Some(&revision) {
            progress.is_new = true;
            super::report::seen(self.ctx, &revision);
        }
        self.ctx.set_templates(SourceName::new(self.key.clone()), loaded.templates.clone());
        for other in self.ctx.registry.publish(self.key, self.slot, Arc::new(loaded)) {
            self.ctx.queue.push(Subject::Source(other), Trigger::Changed);
        }
        // What was read stays in force until another revision is, so it is recorded before anything is applied.
        mirror.record_good(&revision).await.map_err(Problem::Git)
    }
}

/// Everything between files and a revision in force; takes long, touches nothing.
struct Parse {
    name: SourceName,
    snapshot: Arc<Snapshot>,
    options: Options,
    reading: Digest,
    engine: Engine,
    base: Templates,
    before: Option<Arc<Loaded>>,
}

// === impl Parse ===

impl Parse {
    fn run(self, mut cache: Cache) -> (Loaded, Cache) {
        let mut diagnostics = Diagnostics::default();
        let definitions = definition::read(&mut diagnostics, &self.snapshot, &self.options, &mut cache);
        let templates = self
            .options
            .templates
            .as_deref()
            .map(|folder| overrides(&self.engine, &mut diagnostics, &self.snapshot, folder, &self.base));
        let declared = definitions.good.iter().map(|(id, definition)| (id.clone(), self.declared(id, definition)));
        let withheld = definitions.withheld.iter().map(|withheld| Withheld {
            id: (withheld.kind, withheld.key.clone()),
            path: withheld.place.path.to_string(),
            line: withheld.place.line,
            message: withheld.message.clone(),
        });
        let loaded = Loaded {
            revision: self.snapshot.revision.clone(),
            reading: self.reading,
            elsewhere: self.options.elsewhere.of_interest(&definitions.outside),
            declared: declared.collect(),
            withheld: withheld.collect(),
            declares: Arc::new(definitions.declared()),
            definitions,
            diagnostics,
            templates,
            snapshot: self.snapshot,
        };
        (loaded, cache)
    }

    fn declared(&self, id: &Id, definition: &Definition) -> Declared {
        let before = self.before.as_ref().and_then(|before| {
            let found = before.definitions.good.get(id)?;
            let same = found.digest == definition.digest
                && found.place.path == definition.place.path
                && found.module == definition.module;
            before.declared.get(id).filter(|_| same)
        });
        let digest = match before {
            Some(before) => Arc::clone(&before.digest),
            None => {
                let object = landscape::stamp(definition, &self.name);
                object.annotation(annotation::DIGEST).unwrap_or_default().into()
            }
        };
        Declared {
            digest,
            place: definition.place.clone(),
            adopt: definition.object.annotation(annotation::ADOPT) == Some("true"),
            needs: intake::needs(definition),
        }
    }
}

fn overrides(
    engine: &Engine,
    diagnostics: &mut Diagnostics,
    snapshot: &Snapshot,
    folder: &str,
    base: &Templates,
) -> Templates {
    let files = template::files(diagnostics, snapshot, folder);
    let templates = base.with_overrides(engine, diagnostics, files);
    templates.check(diagnostics);
    templates
}

fn options(terms: &Terms, namespaces: &BTreeSet<String>) -> Options {
    // The first one is that of definitions which name none.
    let mut namespaces: Vec<String> = namespaces.iter().cloned().collect();
    namespaces.sort_by_key(|namespace| namespace != KCP_NAMESPACE);
    Options {
        paths: terms.paths.clone(),
        ignore: terms.ignore.clone(),
        templates: terms.templates.clone(),
        strict: terms.strict,
        allow: definition::Allow {
            kinds: terms.allow.kinds.clone(),
            namespaces: terms.allow.namespaces.clone(),
            names: terms.allow.names.clone(),
        },
        namespaces,
        ..Options::default()
    }
}

fn reference(follow: &Follow) -> Reference {
    match follow {
        Follow::Branch(name) => Reference::Branch(name.clone()),
        Follow::Tag(name) => Reference::Tag(name.clone()),
        Follow::Commit(commit) => Reference::Commit(*commit),
    }
}

fn with_access(remote: &mut Remote, access: Option<&SourceAccess>) -> Remote {
    remote.credentials = access.and_then(|access| access.credentials.clone());
    remote.ca = access.and_then(|access| access.ca.clone());
    remote.clone()
}

fn secrets() -> cluster::Kind {
    cluster::Kind::built_in(&Gvk::new("", "v1", "Secret")).expect("Secret is a built-in kind")
}

/// Whether other credentials or authorities might help.
fn is_refusal(error: &git::Error) -> bool {
    matches!(
        error,
        git::Error::Authentication { .. }
            | git::Error::Forbidden { .. }
            | git::Error::NoRepository { .. }
            | git::Error::Certificate { .. }
    )
}

// === impl Problem ===

impl Problem {
    /// Whether another Secret might help.
    fn is_of_access(&self) -> bool {
        match self {
            Problem::NoSecret(_) | Problem::Secret { .. } => true,
            Problem::Git(error) => is_refusal(error),
            Problem::Url(_)
            | Problem::Local
            | Problem::SecretRead { .. }
            | Problem::Rewritten { .. }
            | Problem::Interrupted(_)
            | Problem::Unrecorded(_) => false,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Problem::Url(_) => "InvalidURL",
            Problem::Local => "LocalSourceRefused",
            Problem::NoSecret(_) => "SecretNotFound",
            Problem::Secret { .. } => "SecretInvalid",
            Problem::SecretRead { .. } => "SecretNotReadable",
            Problem::Rewritten { .. } => "Rewritten",
            Problem::Git(error) => error.reason(),
            Problem::Interrupted(_) => "Interrupted",
            Problem::Unrecorded(failure) => failure.reason,
        }
    }

    fn class(&self) -> Class {
        match self {
            Problem::Url(_) | Problem::Local => Class::Stalled,
            // Somebody may push, create or mend it at any time, and nothing would tell us.
            Problem::NoSecret(_) | Problem::Secret { .. } | Problem::Rewritten { .. } => Class::Stalled,
            Problem::SecretRead { .. } | Problem::Interrupted(_) => Class::Transient,
            Problem::Git(error) => error.class(),
            Problem::Unrecorded(failure) => failure.class,
        }
    }
}
