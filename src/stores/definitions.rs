//! Whether deletions in KCP are meant: while one of our CustomResourceDefinitions, or a namespace of ours, is being
//! deleted or is missing, no deletion of a Kyma or a Manifest is acted upon.
//!
//! The API server deletes all custom resources together with their definition or namespace. To Tidegate, each of them
//! looks like a wish to empty a runtime. So before a pass removes anything for a deletion, it reads the definitions and
//! the namespace anew: the API server marks them before it deletes what they contain, so an answer that is newer than
//! the deletion cannot miss the mark. Passes that ask at the same moment share one answer.
//!
//! What comes back needs a moment: first the API server serves the kinds, then the sources apply their definitions,
//! then the watches show them. Until then, what a runtime has looks superfluous, so nothing is removed either. A
//! definition may be gone and back before any read: then its UID is another one than at the last read, and the first
//! read is at the beginning of work. A process that begins to work cannot know whether something was lost before, so
//! the catalogs in runtimes wait in the same way.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;
use tidegate_cluster::{Cluster, Kind};
use tidegate_core::{
    api::{KYMA_GROUP, names::annotation},
    name::Key,
    object::Gvk,
};
use tidegate_process::lock::Mutex;
use tokio::{sync::Notify, time::Instant};

/// What this process knows of our definitions and namespaces in KCP.
#[derive(Default)]
pub struct Definitions {
    state: Mutex<State>,
    /// Held while the definitions are read. Who waits for it uses the answer if it is new enough.
    reading: tokio::sync::Mutex<()>,
    /// Notified when a hold begins or may have to.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// The last answer, and when it was asked for.
    read: Option<(Instant, Observed)>,
    /// The UIDs of all that exist, or did when they were last read.
    uids: BTreeMap<Guarded, String>,
    /// The kinds that the control plane has stopped to serve, with the namespace of their watch.
    not_served: BTreeSet<(&'static str, String)>,
    returning: Option<Returning>,
    /// The sources, since this process works.
    beginning: Option<Returning>,
    /// Whether the definition of Kymas was being deleted when it was last seen, and a user had confirmed that.
    is_end_confirmed: bool,
    /// When the present definition of Kymas was created, if a user had confirmed the deletion of the one before.
    confirmed: Option<Timestamp>,
    /// The namespaces in which a pass was turned away, and for which holds: their text is in the status. The pass is
    /// woken when it would get another answer.
    turned_away: BTreeMap<String, Vec<Hold>>,
    /// What was last said in the log.
    said: Option<String>,
}

/// What the control plane says of our definitions and namespaces.
pub(crate) type Observed = BTreeMap<Guarded, Presence>;

/// A definition or a namespace whose deletion deletes Kymas or Manifests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Guarded {
    /// A CustomResourceDefinition, by the plural of its kind and its group.
    Definition(&'static str, &'static str),
    /// A namespace.
    Namespace(String),
}

/// Whether it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It exists, since then.
    Present { uid: String, created: Option<Timestamp> },
    /// It is being deleted. The flag says whether a user has confirmed that.
    Terminating { is_confirmed: bool },
    /// It does not exist.
    Absent,
    /// It could not be read. Contains the error.
    Unknown(String),
}

/// Definitions that are back, while what they define may still be missing.
#[derive(Clone, Debug, PartialEq)]
struct Returning {
    since: Instant,
    /// Sources that have not applied their definitions since.
    sources: BTreeSet<Key>,
    /// When the last of them had.
    settled: Option<Instant>,
}

/// Why deletions are not acted upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Something is being deleted, and no user has confirmed that.
    Terminating(Guarded),
    /// Something does not exist.
    Absent(Guarded),
    /// Something could not be read.
    Unknown(Guarded, String),
    /// A kind is not served.
    NotServed(&'static str),
    /// The definitions are back. These sources have not applied theirs.
    Returning(Vec<Key>),
}

/// The definitions that must exist.
const DEFINITIONS: [(&str, &str); 6] = [
    ("kymas", KYMA_GROUP),
    ("manifests", KYMA_GROUP),
    ("modulereleasemetas", KYMA_GROUP),
    ("moduletemplates", KYMA_GROUP),
    ("watchers", KYMA_GROUP),
    ("gitsources", "tidegate.dev"),
];
/// The definition of Kymas.
const KYMAS: Guarded = Guarded::Definition("kymas", KYMA_GROUP);
/// How often a hold is checked. A user who confirms a deletion waits no longer than this.
const CHECK: Duration = Duration::from_secs(5);
/// How long a watch may be behind the writes of a source.
const LAG_MAX: Duration = Duration::from_secs(5);
/// How long to wait for sources after the definitions are back. A source whose repository is unreachable does not hold
/// up deletions for longer.
const RETURN_MAX: Duration = Duration::from_secs(600);

/// Begins the text of every hold.
const HELD: &str = "deletions are held: ";

/// The sentence for `/readyz` and `tidegate status` while the control plane does not serve a kind, and a daemon has
/// led.
pub(crate) fn not_served(kind: &str) -> String {
    let sentence = format!("{HELD}{}", lacks(kind));
    match DEFINITIONS.iter().find(|(plural, _)| *plural == kind) {
        Some((plural, group)) => format!("{sentence}{}", Guarded::Definition(plural, group).again()),
        None => sentence,
    }
}

/// The same without what it means for deletions.
pub(crate) fn lacks(kind: &str) -> String {
    format!("the control plane does not serve {kind}: apply what `tidegate crds` prints")
}

/// Why deletions in a namespace are not acted upon; `None` if they are.
fn held(observed: &Observed, state: &State, namespace: &str, now: Instant) -> Option<Hold> {
    let concerns = |guarded: &Guarded| match guarded {
        Guarded::Definition(..) => true,
        Guarded::Namespace(name) => name == namespace,
    };
    let of_presence =
        observed.iter().filter(|(guarded, _)| concerns(guarded)).find_map(|(guarded, presence)| match presence {
            Presence::Present { .. } | Presence::Terminating { is_confirmed: true } => None,
            Presence::Terminating { is_confirmed: false } => Some(Hold::Terminating(guarded.clone())),
            Presence::Absent => Some(Hold::Absent(guarded.clone())),
            Presence::Unknown(error) => Some(Hold::Unknown(guarded.clone(), error.clone())),
        });
    // Of a definition whose end is confirmed, nothing more is expected.
    let is_confirmed = |kind: &str| {
        observed.iter().any(|(guarded, presence)| {
            matches!(guarded, Guarded::Definition(plural, _) if *plural == kind)
                && matches!(presence, Presence::Terminating { is_confirmed: true })
        })
    };
    let not_served = state.not_served.iter().find(|(kind, of)| of == namespace && !is_confirmed(kind));
    let of_presence = of_presence.or_else(|| not_served.map(|(kind, _)| Hold::NotServed(kind)));
    of_presence.or_else(|| {
        let returning = state.returning.as_ref().filter(|returning| !returning.is_over(now))?;
        Some(Hold::Returning(returning.sources.iter().cloned().collect()))
    })
}

/// Whether passes that were turned away for one of these holds must know that this one is there now, if any.
fn is_news(now: Option<&Hold>, told: &[Hold]) -> bool {
    match now {
        None => true,
        // An answer that fails now and then would wake all runtimes each time, and tells them nothing.
        Some(Hold::Unknown(..)) => false,
        Some(now) => told.iter().any(|told| !told.is_like(now)),
    }
}

// === impl Definitions ===

impl Definitions {
    /// Why no deletion in a namespace is acted upon, as far as is known; `None` if none is known. Sends no request.
    pub(crate) fn known_hold(&self, namespace: &str) -> Option<Hold> {
        let state = self.state.lock();
        let nothing = Observed::new();
        let observed = state.read.as_ref().map_or(&nothing, |(_, observed)| observed);
        held(observed, &state, namespace, Instant::now())
    }

    /// Why no deletion in a namespace may be acted upon; `None` if they may. Reads the definitions, unless an answer is
    /// known that was asked for after this call began. `sources` are those that work: see [`Stores::hold`].
    ///
    /// [`Stores::hold`]: super::Stores::hold
    pub(super) async fn hold(
        &self,
        kcp: &Cluster,
        namespace: &str,
        sources: &(dyn Fn() -> Vec<Key> + Sync),
    ) -> Option<Hold> {
        self.read(kcp, namespace, sources).await;
        self.turn_away(namespace, |_| true)
    }

    /// Why a runtime in a namespace is left alone altogether; `None` if it is not. Sends no request.
    pub(crate) fn stop(&self, namespace: &str) -> Option<Hold> {
        self.turn_away(namespace, Hold::stops_all)
    }

    /// The known hold, if it `concerns` the pass that asks. The pass is woken when it changes or ends.
    fn turn_away(&self, namespace: &str, concerns: impl Fn(&Hold) -> bool) -> Option<Hold> {
        let mut state = self.state.lock();
        let nothing = Observed::new();
        let observed = state.read.as_ref().map_or(&nothing, |(_, observed)| observed);
        // In one step with the look: else the hold could end in between, and nothing would wake the pass.
        let hold = held(observed, &state, namespace, Instant::now()).filter(|hold| concerns(hold))?;
        let told = state.turned_away.entry(namespace.to_owned()).or_default();
        if !told.iter().any(|told| told.is_like(&hold)) {
            told.push(hold.clone());
        }
        Some(hold)
    }

    /// Whether passes were turned away that would not be now, or for another reason. Answers so once.
    pub(crate) fn has_new_answer(&self) -> bool {
        let mut state = self.state.lock();
        let nothing = Observed::new();
        let observed = state.read.as_ref().map_or(&nothing, |(_, observed)| observed);
        let answer = |namespace: &str| held(observed, &state, namespace, Instant::now());
        let anew = state.turned_away.iter().filter(|(namespace, told)| is_news(answer(namespace).as_ref(), told));
        let anew: Vec<String> = anew.map(|(namespace, _)| namespace.clone()).collect();
        for namespace in &anew {
            state.turned_away.remove(namespace);
        }
        !anew.is_empty()
    }

    /// When the definition of Kymas was created, if that is known. What is older may return, unless a user has
    /// confirmed the deletion of the definition before: then this is unknown.
    pub(crate) fn kymas_since(&self) -> Option<Timestamp> {
        let state = self.state.lock();
        let (_, observed) = state.read.as_ref()?;
        match observed.get(&KYMAS)? {
            Presence::Present { created, .. } => created.filter(|created| state.confirmed != Some(*created)),
            Presence::Terminating { .. } | Presence::Absent | Presence::Unknown(_) => None,
        }
    }

    /// Records that this process works from now on, with these sources.
    pub(crate) fn begin(&self, sources: &[Key]) {
        self.state.lock().beginning = Some(Returning::now(sources));
        // Later reads are compared with the first one.
        self.changed.notify_one();
    }

    /// Whether definitions that were lost before this process began to work may still be missing.
    pub(crate) fn may_lack_some(&self) -> bool {
        self.state.lock().beginning.as_ref().is_some_and(|beginning| !beginning.is_over(Instant::now()))
    }

    /// Records that the control plane has stopped to serve a kind, or serves it again.
    pub(crate) fn set_served(&self, kind: &'static str, namespace: &str, is_served: bool, sources: &[Key]) {
        let mut state = self.state.lock();
        let entry = (kind, namespace.to_owned());
        let is_new = if is_served { state.not_served.remove(&entry) } else { state.not_served.insert(entry) };
        if is_new {
            if is_served {
                state.returning = Some(Returning::now(sources));
            }
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Records that a source has applied its definitions in a pass that began at `began`.
    pub(crate) fn applied(&self, source: &Key, began: Instant) {
        let mut state = self.state.lock();
        let State { returning, beginning, .. } = &mut *state;
        for waiting in returning.iter_mut().chain(beginning) {
            if waiting.since <= began && waiting.sources.remove(source) && waiting.sources.is_empty() {
                waiting.settled = Some(Instant::now());
            }
        }
    }

    /// Follows holds: returns whenever one may have begun or ended in `namespaces`, with all that is to be said, one
    /// line each. While there is none, it waits and sends no request. `sources` are those that work.
    pub(super) async fn next(
        &self,
        kcp: &Cluster,
        namespaces: &BTreeSet<String>,
        sources: &(dyn Fn() -> Vec<Key> + Sync),
    ) -> Vec<String> {
        if !self.lines(namespaces).is_empty() {
            let _ = tokio::time::timeout(CHECK, self.changed.notified()).await;
        } else {
            self.changed.notified().await;
        }
        for namespace in namespaces {
            self.read(kcp, namespace, sources).await;
        }
        self.lines(namespaces)
    }

    /// Why deletions are held in each namespace, one line for each reason.
    pub(crate) fn lines(&self, namespaces: &BTreeSet<String>) -> Vec<String> {
        self.lines_of(namespaces, Hold::to_string)
    }

    /// The same for a process that only observes: see [`Hold::observed`].
    pub(crate) fn observed_lines(&self, namespaces: &BTreeSet<String>) -> Vec<String> {
        self.lines_of(namespaces, Hold::observed)
    }

    fn lines_of(&self, namespaces: &BTreeSet<String>, text: impl Fn(&Hold) -> String) -> Vec<String> {
        // A configured namespace that does not exist yet has nothing that could be deleted.
        let is_said = |hold: &Hold| !matches!(hold, Hold::Absent(Guarded::Namespace(_)));
        let holds = namespaces.iter().filter_map(|namespace| self.known_hold(namespace)).filter(is_said);
        holds.map(|hold| text(&hold)).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Reads all definitions and a namespace, unless that has happened since this call began.
    async fn read(&self, kcp: &Cluster, namespace: &str, sources: &(dyn Fn() -> Vec<Key> + Sync)) {
        let asked = Instant::now();
        let wanted = Guarded::Namespace(namespace.to_owned());
        let _reading = self.reading.lock().await;
        let is_new = |(began, observed): &(Instant, Observed)| asked < *began && observed.contains_key(&wanted);
        if self.state.lock().read.as_ref().is_some_and(is_new) {
            return;
        }
        let began = Instant::now();
        let mut observed: Observed = match &self.state.lock().read {
            // Of other namespaces, the last answer stays.
            Some((_, before)) => before.clone(),
            None => Observed::new(),
        };
        let definitions = DEFINITIONS.map(|(plural, group)| Guarded::Definition(plural, group));
        // At the same time: the first deletion of a pass waits for all of them.
        let presences = definitions.into_iter().chain([wanted]).map(async |guarded| {
            let found = presence(kcp, &guarded).await;
            (guarded, found)
        });
        observed.extend(join_all(presences).await);
        self.take(began, observed, &sources());
    }

    fn take(&self, began: Instant, observed: Observed, sources: &[Key]) {
        let mut state = self.state.lock();
        let was_missing = state.read.as_ref().is_some_and(|(_, before)| before.values().any(Presence::is_missing));
        let is_back = was_missing | state.note_uids(&observed);
        let is_returning = state.returning.as_ref().is_some_and(|returning| !returning.is_over(began));
        let returns = is_back && !observed.values().any(Presence::is_missing) && !is_returning;
        if returns {
            state.returning = Some(Returning::now(sources));
        }
        match observed.get(&KYMAS) {
            Some(Presence::Terminating { is_confirmed }) => state.is_end_confirmed = *is_confirmed,
            Some(Presence::Present { created, .. }) if state.is_end_confirmed => {
                (state.is_end_confirmed, state.confirmed) = (false, *created);
            }
            Some(Presence::Present { .. } | Presence::Absent | Presence::Unknown(_)) | None => {}
        }
        let is_held = observed.values().any(|presence| !matches!(presence, Presence::Present { .. }));
        if state.returning.as_ref().is_some_and(|returning| returning.is_over(began)) && !is_held {
            state.returning = None;
        }
        let is_news = returns || is_held && state.read.as_ref().is_none_or(|(_, before)| *before != observed);
        state.read = Some((began, observed));
        drop(state);
        if is_news {
            self.changed.notify_one();
        }
    }

    /// Logs the beginning and the end of a hold, once.
    pub(crate) fn say(&self, lines: &[String]) {
        let now = (!lines.is_empty()).then(|| lines.join("; "));
        let before = std::mem::replace(&mut self.state.lock().said, now.clone());
        match (before, now) {
            (before, Some(now)) if before.as_ref() != Some(&now) => {
                tracing::warn!(reason = now, "deletions of Kymas and Manifests are held");
            }
            (Some(_), None) => tracing::info!("deletions of Kymas and Manifests are acted upon again"),
            _ => {}
        }
    }
}

// === impl State ===

impl State {
    /// Notes the UIDs of all that exist. Returns whether one of them is another one than before: it was deleted and
    /// made again, and all that it contained went with it.
    fn note_uids(&mut self, observed: &Observed) -> bool {
        let mut is_another = false;
        for (guarded, presence) in observed {
            if let Presence::Present { uid, .. } = presence {
                let before = self.uids.insert(guarded.clone(), uid.clone());
                is_another |= before.is_some_and(|before| before != *uid);
            }
        }
        is_another
    }
}

/// Reads whether something exists.
async fn presence(kcp: &Cluster, guarded: &Guarded) -> Presence {
    let (gvk, name) = match guarded {
        Guarded::Definition(plural, group) => {
            (Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), format!("{plural}.{group}"))
        }
        Guarded::Namespace(name) => (Gvk::new("", "v1", "Namespace"), name.clone()),
    };
    let kind = Kind::built_in(&gvk).expect("both are built-in kinds");
    match kcp.get_object_meta(&kind, &Key::new("", &name)).await {
        Ok(None) => Presence::Absent,
        Ok(Some(metadata)) if metadata.deletion_timestamp.is_some() => {
            let confirmed = tidegate_core::landscape::annotation(&metadata, annotation::CONFIRM_DELETION);
            Presence::Terminating { is_confirmed: confirmed == Some("true") }
        }
        Ok(Some(metadata)) => Presence::Present {
            uid: metadata.uid.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|time| time.0),
        },
        Err(error) => Presence::Unknown(error.to_string()),
    }
}

// === impl Presence ===

impl Presence {
    fn is_missing(&self) -> bool {
        match self {
            Presence::Absent | Presence::Terminating { .. } => true,
            Presence::Present { .. } | Presence::Unknown(_) => false,
        }
    }
}

// === impl Returning ===

impl Returning {
    fn now(sources: &[Key]) -> Returning {
        let now = Instant::now();
        Returning { since: now, sources: sources.iter().cloned().collect(), settled: sources.is_empty().then_some(now) }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.settled.is_some_and(|settled| LAG_MAX <= now.saturating_duration_since(settled))
            || RETURN_MAX <= now.saturating_duration_since(self.since)
    }
}

// === impl Guarded ===

impl Guarded {
    /// The end of a sentence that says how to confirm the deletion of something that is gone already.
    fn again(&self) -> String {
        format!("; to remove everything from the runtimes, then run `{}` and delete it again", self.command())
    }

    /// How to get back what is being deleted, with nothing removed from the runtimes. A deletion has no way back, so it
    /// must end first.
    fn restore(&self) -> String {
        match self {
            Guarded::Definition(plural, _) => format!(
                "to keep everything, save the {plural} that git does not declare, remove the finalizers of all {plural}, \
                 apply deploy/setup, and create the saved ones again"
            ),
            Guarded::Namespace(name) => format!(
                "to keep everything, save the Kymas in it that git does not declare, remove the finalizers of its \
                 objects, apply deploy/setup or create {name}, and create the saved ones and the access Secrets again"
            ),
        }
    }

    /// The command that confirms its deletion.
    fn command(&self) -> String {
        match self {
            Guarded::Definition(plural, group) => {
                format!("kubectl annotate crd {plural}.{group} {}=true", annotation::CONFIRM_DELETION)
            }
            Guarded::Namespace(name) => {
                format!("kubectl annotate namespace {name} {}=true", annotation::CONFIRM_DELETION)
            }
        }
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guarded::Definition(plural, group) => write!(f, "CustomResourceDefinition {plural}.{group}"),
            Guarded::Namespace(name) => write!(f, "Namespace {name}"),
        }
    }
}

// === impl Hold ===

impl Hold {
    /// Whether it is the same reason, regardless of details that change from moment to moment.
    fn is_like(&self, other: &Hold) -> bool {
        match (self, other) {
            (Hold::Unknown(one, _), Hold::Unknown(another, _)) => one == another,
            (Hold::Returning(_), Hold::Returning(_)) => true,
            (one, another) => one == another,
        }
    }

    /// The sentence of a process that only observes: it deletes nothing, so nothing is held, and there is no deletion
    /// to confirm.
    fn observed(&self) -> String {
        match self {
            Hold::Terminating(guarded) => format!("{guarded} is being deleted in the control plane"),
            Hold::Absent(guarded) => {
                format!("{guarded} is missing in the control plane: apply deploy/setup, or what `tidegate crds` prints")
            }
            Hold::Unknown(guarded, error) => format!("{guarded} cannot be read: {error}"),
            Hold::NotServed(kind) => lacks(kind),
            Hold::Returning(_) => {
                "definitions are back in the control plane, and their objects are being read".to_owned()
            }
        }
    }

    /// Whether runtimes are left alone altogether, and not only what is being deleted: their plans depend on what is
    /// missing.
    fn stops_all(&self) -> bool {
        match self {
            Hold::Terminating(_) | Hold::Absent(_) | Hold::NotServed(_) | Hold::Returning(_) => true,
            Hold::Unknown(..) => false,
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hold::Terminating(guarded) => write!(
                f,
                "{HELD}{guarded} is being deleted in the control plane; {}; to remove everything from the runtimes \
                 instead, run `{}`",
                guarded.restore(),
                guarded.command()
            ),
            Hold::Absent(guarded) => {
                write!(
                    f,
                    "{HELD}{guarded} is missing in the control plane: apply deploy/setup, or what `tidegate crds` \
                     prints{}",
                    guarded.again()
                )
            }
            Hold::Unknown(guarded, error) => write!(f, "{HELD}{guarded} cannot be read: {error}"),
            Hold::NotServed(kind) => f.write_str(&not_served(kind)),
            Hold::Returning(sources) if sources.is_empty() => {
                write!(f, "{HELD}definitions are back in the control plane, and their objects are being read")
            }
            Hold::Returning(sources) => {
                let names: Vec<String> = sources.iter().map(Key::to_string).collect();
                write!(f, "{HELD}definitions are back in the control plane; waiting for GitSource {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
