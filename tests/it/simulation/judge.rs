//! The invariants: those that always hold, those that hold in the end, and those of a quiet world.
//!
//! The daemon deletes only its own objects, and only unwanted ones. It deletes nothing that every commit so far has
//! wanted, and nothing that users made; this holds for all kinds, in runtimes and in the control plane. Every object of
//! the daemon is in an inventory, by kind, namespace and name. `truth` checks what statuses say. In a quiet world the
//! daemon writes nothing. Once all Kymas are deleted, the runtimes contain no object of the daemon, of any kind that
//! they serve.
//!
//! No read may return old data: the daemon asks for the newest lists and objects, and starts its watches where a list
//! ended. So the daemon sees stale data only through watches that lag behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::Method;
use kube_sim::Server;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    agents::{About, Promise},
    land::{
        self, Broken, DEFINITIONS, DEPLOYMENTS, Declared, IN_KCP, IN_RUNTIME, KINDS, Land, MAPS, NAMESPACE, Places,
        ROLES, THINGS,
    },
    repository::Condition,
    script::TROUBLES,
    wire::Arrival,
    world::{Credentials, KCP, RUNTIMES, SOURCE, World},
};

/// State of the checks.
pub(super) struct Judge {
    /// Objects that users made, by runtime and path.
    theirs: BTreeMap<(&'static str, String), Theirs>,
    /// Objects that every commit has wanted since the world began or last converged, with the modules that bring them.
    /// The daemon has no reason to delete them.
    steady: Places,
    /// Kymas whose channel a user edited.
    edited: BTreeSet<&'static str>,
    /// Objects from which a user removed the ownership label. The daemon may leave them behind.
    unmarked: BTreeSet<(&'static str, String)>,
    /// Runtimes that the daemon gave up. Objects that are in no inventory may be left there.
    given_up: BTreeSet<&'static str>,
    /// When the daemon last listed the `Thing`s of each runtime.
    listed: BTreeMap<&'static str, Instant>,
    /// Accepted events whose object the daemon has not read since.
    promises: Vec<Promise>,
    /// When the daemon last read each part of each runtime.
    looked: BTreeMap<(&'static str, About), Instant>,
    /// Since when there have been no faults.
    calm: Option<Instant>,
}

/// An object that a user made.
struct Theirs {
    /// The object as the server returned it on creation.
    object: Value,
    made: Instant,
    /// Its name may conflict with an object of a module. Its user removes it before the world must converge.
    in_the_way: bool,
}

/// Longest time to converge after the last fault, plus a few resyncs. It covers the longest backoffs.
const CONVERGED_MAX: Duration = Duration::from_secs(25 * 60);
pub(super) const LOOK: Duration = Duration::from_secs(10);
/// Shortest time without a write in a quiet world, plus a resync.
const QUIET: Duration = Duration::from_secs(5 * 60);
/// Longest time from an accepted event to the read that it promises, without faults. In that time a new process may
/// have to become leader, and the longest backoff may have just begun.
const PROMISED_MAX: Duration = Duration::from_secs(8 * 60);
/// Longest duration of a pass.
const PASSES_MAX: Duration = Duration::from_secs(400);
/// Longest time until the status reports an error, plus a few resyncs.
const SAID_MAX: Duration = Duration::from_secs(10 * 60);

const OURS: &str = "labelSelector=operator.kyma-project.io/managed-by%3Dkyma";
const MANAGER: &str = "tidegate";
/// Objects that stay in runtimes, because other objects may be in them.
const KEPT: [&str; 1] = ["/api/v1/namespaces/kyma-system"];
/// Group, kind and list path of what modules bring, across all namespaces.
const LISTS: [(&str, &str, &str); 5] = [
    ("", "ConfigMap", "/api/v1/configmaps"),
    ("rbac.authorization.k8s.io", "ClusterRole", ROLES),
    ("apps", "Deployment", "/apis/apps/v1/deployments"),
    ("apiextensions.k8s.io", "CustomResourceDefinition", DEFINITIONS),
    ("example.org", "Thing", "/apis/example.org/v1/things"),
];

// === impl Judge ===

impl Judge {
    pub(super) fn new(land: &Land) -> Judge {
        Judge {
            theirs: BTreeMap::new(),
            steady: land.places(&BTreeSet::new()),
            edited: BTreeSet::new(),
            unmarked: BTreeSet::new(),
            given_up: BTreeSet::new(),
            listed: BTreeMap::new(),
            promises: Vec::new(),
            looked: BTreeMap::new(),
            calm: None,
        }
    }

    /// Git has a new commit.
    pub(super) fn committed(&mut self, land: &Land) {
        let wanted = land.places(&self.edited);
        // If two modules brought an object and one of them stops, the daemon may delete the object.
        self.steady.retain(|place, modules| wanted.get(place).is_some_and(|now| modules.is_subset(now)));
    }

    /// A user made an object.
    pub(super) fn made(&mut self, kyma: &'static str, path: String, object: Value, in_the_way: bool) {
        self.theirs.insert((kyma, path), Theirs { object, made: Instant::now(), in_the_way });
    }

    /// A user removed the ownership label from an object.
    pub(super) fn unmarked(&mut self, kyma: &'static str, path: &str) {
        self.unmarked.insert((kyma, path.to_owned()));
    }

    /// A user edited the channel of a Kyma. The daemon may delete what only one of the two channels wants.
    pub(super) fn channel_edited(&mut self, kyma: &'static str, land: &Land) {
        self.edited.insert(kyma);
        self.committed(land);
    }

    /// A user deleted a Kyma. The daemon deletes its objects, except the namespace, and installs them again.
    pub(super) fn kyma_may_go(&mut self, kyma: &'static str) {
        let of_kyma = [format!("{IN_KCP}/kymas/{kyma}"), format!("{IN_KCP}/manifests/{kyma}-")];
        self.steady.retain(|(server, path), _| match *server {
            KCP => *path != of_kyma[0] && !path.starts_with(&of_kyma[1]),
            server => server != kyma || path == NAMESPACE,
        });
    }

    /// A user allowed the daemon to delete everything.
    pub(super) fn all_may_go(&mut self) {
        RUNTIMES.into_iter().for_each(|kyma| self.kyma_may_go(kyma));
    }

    /// A user deleted a Manifest. The daemon deletes the objects of its module and installs them again.
    pub(super) fn module_may_go(&mut self, kyma: &'static str, manifest: &str) {
        let path = format!("{IN_KCP}/manifests/{}", without_hash(manifest));
        let Some(modules) = self.steady.remove(&(KCP, path)) else { return };
        self.steady.retain(|(server, _), of| *server != kyma || of.is_disjoint(&modules));
    }

    /// Takes the requests since the last call, and drops the promises that they keep.
    fn hear(&mut self, world: &mut World) -> Vec<Arrival> {
        let arrivals = world.wires.take();
        self.promises.extend(world.agents.promises());
        let looked = &self.looked;
        self.promises.retain(|of| looked.get(&(of.kyma, of.about)).is_none_or(|at| *at < of.since));
        for arrival in &arrivals {
            let about = arrival.looks_at();
            if let Some(about) = about {
                self.looked.insert((arrival.server, about), arrival.at);
            }
            let is_kept = |of: &Promise| {
                let is_seen = Some(of.about) == about || arrival.ends_runtime();
                of.kyma == arrival.server && is_seen && of.since <= arrival.at
            };
            for kept in self.promises.extract_if(.., |of| is_kept(of)) {
                let late = self.calm.map(|calm| arrival.at.saturating_duration_since(calm.max(kept.since)));
                assert!(late.is_none_or(|late| late <= PROMISED_MAX), "{kept:?} was kept {late:?} late: {arrival}");
                world.count(if kept.life < arrival.life { "promise kept by another process" } else { "promise kept" });
            }
        }
        arrivals
    }

    /// Waits until the daemon has acted on every accepted event whose Kyma still exists.
    async fn keep_promises(&mut self, world: &mut World) {
        loop {
            self.look(world).await;
            let mut open: Vec<&Promise> = Vec::new();
            for promise in &self.promises {
                let kyma = world.read(&world.kcp, &format!("{IN_KCP}/kymas/{}", promise.kyma)).await;
                let stays = kyma.is_some_and(|kyma| kyma["metadata"]["deletionTimestamp"].is_null());
                open.extend(stays.then_some(promise));
            }
            // The daemon removes events from its journal with a later write. The world is quiet only after that write.
            let journal = world.read(&world.kcp, "/api/v1/namespaces/kcp-system/configmaps/tidegate-events").await;
            let is_empty = journal.is_none_or(|map| map["data"].as_object().is_none_or(serde_json::Map::is_empty));
            if open.is_empty() && world.agents.are_done() && is_empty {
                return;
            }
            let past = self.calm.is_some_and(|calm| PROMISED_MAX + world.resync * 2 < calm.elapsed());
            assert!(!past, "events were taken or wait, and no pass follows: {open:?}");
            world.pass(LOOK).await;
        }
    }

    /// Checks what always holds.
    pub(super) async fn look(&mut self, world: &mut World) {
        let lies = world.wires.truth().lies();
        assert!(lies.is_empty(), "a status said what was not so: {lies:#?}");
        for arrival in self.hear(world) {
            assert!(!arrival.late, "a daemon wrote after another one did: {arrival}");
            assert!(!arrival.allows_any_version(), "this may be answered from the past: {arrival}");
            if arrival.place() == "/apis/example.org/v1/things" && arrival.is_first_page() {
                self.listed.insert(arrival.server, arrival.at);
            }
            if arrival.method == Method::DELETE && arrival.code < 300 {
                self.deleted(world, &arrival);
            }
        }
        for ((kyma, path), of) in &self.theirs {
            let live = world.read(&world.runtimes[kyma], path).await;
            let is_theirs = live.as_ref().is_some_and(|live| is_as_made(live, &of.object));
            assert!(is_theirs, "{path} of a user of {kyma} is {live:?}");
        }
        let abandoned = world.wires.truth().abandoned();
        // A Manifest whose Kyma was freed of its finalizers is replaced by one that takes over its inventory. While
        // requests fail, there may be none in between.
        let is_between = |kyma: &&str| self.calm.is_none() && world.released.contains(kyma);
        let judged = RUNTIMES.into_iter().filter(|kyma| !abandoned.contains(kyma) && !is_between(kyma));
        for kyma in judged.collect::<Vec<_>>() {
            let forgotten = self.forgotten(world, kyma).await;
            assert!(forgotten.is_empty(), "{forgotten:?} of {kyma} is ours and is in no inventory");
        }
    }

    /// Checks a deletion by the daemon.
    fn deleted(&mut self, world: &mut World, arrival: &Arrival) {
        let path = arrival.place();
        world.count(if arrival.server == KCP { "deleted in KCP" } else { "deleted in a runtime" });
        let victim = arrival.victim.as_ref().filter(|victim| victim["metadata"]["name"].is_string());
        let Some(victim) = victim else { panic!("the daemon deleted a whole collection: {arrival}") };
        let place = match path.strip_prefix(&format!("{IN_KCP}/manifests/")) {
            Some(name) if arrival.server == KCP => format!("{IN_KCP}/manifests/{}", without_hash(name)),
            _ => path.to_owned(),
        };
        let is_steady = self.steady.contains_key(&(arrival.server, place));
        assert!(!is_steady, "the daemon deleted what was wanted all the time: {arrival}");
        assert!(path != NAMESPACE, "the daemon deleted what users have their objects in: {arrival}");
        assert!(is_managed(victim), "the daemon deleted what is not ours: {arrival} {victim}");
        let is_ours = match arrival.server {
            KCP => KCP_MAY_LOSE.iter().any(|may| path.starts_with(may)) && !path.ends_with("/kymas/three"),
            _ => is_marked(victim) || path == format!("{THINGS}/cache-default"),
        };
        assert!(is_ours, "the daemon deleted what does not bear our mark: {arrival} {victim}");
        if path == format!("{DEFINITIONS}/things.example.org") {
            self.kind_deleted(world, arrival);
        }
    }

    /// Deleting a CRD deletes all its objects. If a user's object existed when the daemon last listed them, the CRD
    /// must stay.
    fn kind_deleted(&mut self, world: &mut World, arrival: &Arrival) {
        let listed = self.listed.get(arrival.server).copied();
        let things = |(kyma, path): &(&str, String)| *kyma == arrival.server && path.starts_with(THINGS);
        let lost = self.theirs.extract_if(.., |place, _| things(place)).collect::<Vec<_>>();
        for ((_, path), of) in lost {
            let was_seen = listed.is_none_or(|listed| of.made < listed);
            assert!(!was_seen, "the daemon deleted the kind of a user's {path}: {arrival}");
            world.count("a user's Thing came too late");
        }
    }

    /// Objects of the daemon in a runtime that are in no inventory.
    async fn forgotten(&mut self, world: &World, kyma: &'static str) -> BTreeSet<Id> {
        let mut forgotten = forgotten(world, kyma, &world.runtimes[kyma]).await;
        forgotten.retain(|id, object| !self.is_left(kyma, id, object));
        forgotten.into_keys().collect()
    }

    /// Whether a user removed the ownership label of this object, so that the daemon left it behind.
    fn is_left(&mut self, kyma: &'static str, id: &Id, object: &Value) -> bool {
        let place = (kyma, id.path());
        if is_marked(object) {
            // The daemon has set the label again.
            self.unmarked.remove(&place);
        }
        self.unmarked.contains(&place)
    }

    /// After the last fault, the world must converge, and then stay so without a write.
    pub(super) async fn conclude(&mut self, world: &mut World) {
        self.mend(world).await;
        self.calm = Some(Instant::now());
        self.converge(world).await;
        self.keep_promises(world).await;
        match world.dice.below(5) {
            0 => self.say_what_is_stuck(world).await,
            1 => self.say_what_is_broken(world).await,
            2 => self.say_what_cannot_be_read(world).await,
            _ => {}
        }
        self.calm = None;
        self.rest(world, "a quiet world").await;
    }

    /// Undoes everything that keeps the world from converging.
    async fn mend(&mut self, world: &mut World) {
        // Only users can resolve these conflicts: two modules that bring the same object, and users' objects with a
        // name that a module needs.
        world.land.separate();
        let removed: Vec<_> = self.theirs.extract_if(.., |_, of| of.in_the_way).map(|(place, _)| place).collect();
        for (kyma, path) in removed {
            world.note(format!("{kyma}: the user removes {path}"));
            world.delete(&world.runtimes[kyma], &path).await;
        }
        let is_bad = |(_, of): &(&&'static str, &Credentials)| !matches!(of, Credentials::Good { .. });
        let secretless: Vec<_> = world.secrets.iter().filter(is_bad).map(|(kyma, _)| *kyma).collect();
        for kyma in secretless {
            world.give(kyma, Credentials::Good { other: false }).await;
        }
        for kyma in world.stuck.clone() {
            world.stick(kyma, false).await;
        }
        world.furnish().await;
        world.patch(&world.kcp, SOURCE, &json!({"spec": {"suspend": false}})).await;
        world.land.broken = None;
        world.note("git: all is mended");
        world.commit();
        self.committed(&world.land);
    }

    /// The status reports a Deployment that is not ready until it is ready again.
    async fn say_what_is_stuck(&mut self, world: &mut World) {
        let has = |kyma: &&str| world.land.kymas.get(kyma).is_some_and(|of| of.modules.contains("mailer"));
        let Some(kyma) = RUNTIMES.into_iter().find(has) else { return };
        world.stick(kyma, true).await;
        let path = format!("{IN_KCP}/kymas/{kyma}");
        let is_said = async |world: &World| {
            let live = world.read(&world.kcp, &path).await.unwrap_or_default();
            let modules = live["status"]["modules"].as_array().cloned().unwrap_or_default();
            let mailer = modules.iter().any(|module| module["name"] == "mailer" && module["state"] != "Ready");
            mailer && live["status"]["state"] != "Ready"
        };
        let begun = Instant::now();
        while !is_said(world).await {
            let waited = begun.elapsed();
            assert!(
                waited < SAID_MAX + world.resync * 2,
                "no status says after {waited:?} that mailer of {kyma} is not ready"
            );
            self.look(world).await;
            world.pass(LOOK).await;
        }
        for _ in 0..4 {
            world.pass(world.resync / 2).await;
            self.look(world).await;
            assert!(is_said(world).await, "it is not said any more that mailer of {kyma} is not ready");
        }
        world.count("stuck Deployment said");
        world.stick(kyma, false).await;
        self.converge(world).await;
    }

    /// The status reports an invalid file, and the last valid revision stays applied.
    async fn say_what_is_broken(&mut self, world: &mut World) {
        world.note("git: a file is broken");
        let broken = world.dice.one_of(&[Broken::Definition, Broken::Syntax]);
        world.land.broken = Some(broken);
        world.commit();
        let begun = Instant::now();
        let is_said = async |world: &World| {
            let source = world.read(&world.kcp, SOURCE).await.unwrap_or_default();
            let status = &source["status"];
            let is_withheld = status["withheld"].as_array().is_some_and(|of| {
                of.iter().any(|entry| entry["path"] == "kymas/broken.yaml" && entry["name"] == "broken")
            });
            let is_seen = status["attemptedRevision"].as_str().is_some_and(|text| text.ends_with(world.head()));
            is_seen && (is_withheld || broken == Broken::Syntax) && !is_ready(status)
        };
        while !is_said(world).await {
            let waited = begun.elapsed();
            assert!(waited < SAID_MAX, "no status says after {waited:?} that a file is broken");
            self.look(world).await;
            world.pass(LOOK).await;
        }
        world.pass(QUIET).await;
        assert!(is_said(world).await, "it is not said any more that a file is broken");
        world.count("broken file said");
        world.note("git: it is mended");
        world.land.broken = None;
        world.commit();
        self.converge(world).await;
    }

    /// The status reports an unreadable repository with a reason, and the last revision stays applied.
    async fn say_what_cannot_be_read(&mut self, world: &mut World) {
        let before = world.head().to_owned();
        let condition = world.dice.one_of(&TROUBLES);
        // `always: false` fails only some tasks, so it may never be reported.
        let lasting = Condition::Killing { always: true };
        let condition = if condition == (Condition::Killing { always: false }) { lasting } else { condition };
        world.serve(condition);
        let reasons = reasons(condition);
        let text = world.dice.below(1_000).to_string();
        world.land.maps.entry(("cache", "1.0.0")).or_default().insert("cache-a".to_owned(), text);
        world.commit();
        let begun = Instant::now();
        let said = async |world: &World| {
            let source = world.read(&world.kcp, SOURCE).await.unwrap_or_default();
            let status = &source["status"];
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let fetched = conditions.into_iter().find(|condition| condition["type"] == "Fetched").unwrap_or_default();
            let is_said = reasons.iter().any(|reason| fetched["reason"] == *reason) && fetched["status"] == "False";
            let stays = status["appliedRevision"].as_str().is_some_and(|text| text.ends_with(&before));
            (is_said && stays).then_some(()).ok_or_else(|| status.to_string())
        };
        while let Err(status) = said(world).await {
            let waited = begun.elapsed();
            assert!(waited < SAID_MAX, "no status says after {waited:?} that the repository cannot be read: {status}");
            self.look(world).await;
            world.pass(LOOK).await;
        }
        world.pass(QUIET).await;
        self.look(world).await;
        world.count("unreadable repository said");
        world.serve(Condition::Well);
        self.converge(world).await;
    }

    /// Waits until the clusters match git.
    pub(super) async fn converge(&mut self, world: &mut World) {
        let mut waited = Duration::ZERO;
        loop {
            world.confirm().await;
            // The longer the wait, the fewer checks: a check costs more than the simulation of the time between two.
            let pause = LOOK.max(waited / 4);
            world.pass(pause).await;
            waited += pause;
            self.clear(world).await;
            match is_well(world).await {
                Ok(()) => break,
                Err(problem) if CONVERGED_MAX + world.resync * 4 < waited => {
                    panic!("not well in {waited:?}: {problem}")
                }
                Err(_) => {}
            }
        }
        self.look(world).await;
        world.note(format!("all is well after {} s", waited.as_secs()));
        world.wires.truth().cleared();
        self.settled(world);
    }

    /// The world has converged: everything that is wanted now is wanted until the next change.
    fn settled(&mut self, world: &mut World) {
        self.edited.clear();
        self.steady = world.land.places(&self.edited);
        // A Kyma that is back will be cleaned up.
        let World { land, released, .. } = world;
        released.retain(|kyma| !land.kymas.contains_key(kyma));
    }

    /// The world may also converge during faults, if a step without changes is long enough.
    pub(super) async fn settle(&mut self, world: &mut World, idle: Duration) {
        if PASSES_MAX <= idle && world.wires.truth().abandoned().is_empty() && is_well(world).await.is_ok() {
            world.count("well among faults");
            self.settled(world);
        }
    }

    /// A runtime is back after the daemon gave it up. Its user removes what is left there.
    async fn clear(&mut self, world: &mut World) {
        for kyma in world.wires.truth().abandoned() {
            self.given_up.insert(kyma);
            let wanted = world.land.places(&BTreeSet::new());
            let mut left = self.forgotten(world, kyma).await;
            // The daemon adopts what is wanted again.
            left.retain(|id| !wanted.contains_key(&(kyma, id.path())));
            for id in left {
                world.note(format!("{kyma}: the user removes {}, which was left", id.path()));
                self.theirs.retain(|(of, path), _| !(*of == kyma && path.starts_with(THINGS) && id.is_kind()));
                world.delete(&world.runtimes[kyma], &id.path()).await;
            }
            if world.land.kymas.contains_key(kyma) {
                continue;
            }
            for kind in KINDS {
                world.delete(&world.runtimes[kyma], &format!("{DEFINITIONS}/{kind}.operator.kyma-project.io")).await;
            }
        }
    }

    /// Checks that all objects of the daemon are gone after all Kymas were deleted.
    pub(super) async fn nothing_is_left(&self, world: &World) {
        for (kyma, server) in &world.runtimes {
            let mut left = ours(world, server).await;
            left.retain(|path| !KEPT.contains(&&**path) && !self.unmarked.contains(&(*kyma, path.clone())));
            let may_be_left = self.given_up.contains(kyma) || world.released.contains(kyma);
            assert!(may_be_left || left.is_empty(), "left in the runtime of {kyma}: {left:?}");
        }
    }

    /// Checks that the daemon writes nothing while nothing changes.
    pub(super) async fn rest(&mut self, world: &mut World, what: &str) {
        // The last writes may cause one more pass.
        world.pass(Duration::from_secs(60)).await;
        self.look(world).await;
        world.pass(QUIET + world.resync).await;
        let arrivals = self.hear(world);
        let writes: Vec<String> = arrivals
            .iter()
            .filter(|arrival| arrival.is_write() && !arrival.is_of_lease())
            .map(ToString::to_string)
            .collect();
        assert!(writes.is_empty(), "{what} was written to: {writes:#?}");
        is_well(world).await.unwrap_or_else(|problem| panic!("{what} did not stay well: {problem}"));
    }
}

/// The reasons that a GitSource may give for a repository in this condition.
fn reasons(condition: Condition) -> &'static [&'static str] {
    match condition {
        Condition::Well => &[],
        Condition::Away => &["RepositoryNotFound"],
        Condition::Silent => &["Timeout"],
        Condition::Killing { .. } => &["LimitExceeded"],
        Condition::Reference | Condition::Objects => &["AnswerNotUnderstood", "RevisionNotFound", "MirrorDamaged"],
    }
}

/// Paths under which the daemon may delete objects in the control plane, except the Kyma of a user.
const KCP_MAY_LOSE: [&str; 2] = [
    "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/",
    "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests/",
];

/// An object's group, kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id([String; 4]);

// === impl Id ===

impl Id {
    fn from_object(group: &str, kind: &str, object: &Value) -> Id {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        Id([group.to_owned(), kind.to_owned(), text("namespace"), text("name")])
    }

    /// Its path on the API server.
    fn path(&self) -> String {
        let Id([_, kind, namespace, name]) = self;
        let (_, _, list) = LISTS.into_iter().find(|(_, known, _)| known == kind).expect("a kind that is listed");
        match list.rsplit_once('/') {
            Some((version, plural)) if !namespace.is_empty() => {
                format!("{version}/namespaces/{namespace}/{plural}/{name}")
            }
            _ => format!("{list}/{name}"),
        }
    }

    /// Whether it is the CRD of `Thing`.
    fn is_kind(&self) -> bool {
        self.0[3] == "things.example.org"
    }
}

/// Objects in a runtime that are in no inventory, but have the ownership label or fields of the daemon.
async fn forgotten(world: &World, kyma: &str, server: &Server) -> BTreeMap<Id, Value> {
    let mut found = BTreeMap::new();
    for (group, kind, path) in LISTS {
        let objects = world.list(server, path).await;
        let ours = objects.into_iter().filter(|object| is_marked(object) || is_managed(object));
        found.extend(ours.map(|object| (Id::from_object(group, kind, &object["metadata"]), object)));
    }
    // The objects that every runtime has are in no inventory.
    found.retain(|Id([_, _, _, name]), _| !name.ends_with(".operator.kyma-project.io"));
    for recorded in recorded(world, kyma).await {
        found.remove(&recorded);
    }
    found
}

/// The inventories of a Kyma's Manifests, and the default custom resources of the Manifests.
async fn recorded(world: &World, kyma: &str) -> BTreeSet<Id> {
    let path = format!("{IN_KCP}/manifests?labelSelector=operator.kyma-project.io/kyma-name%3D{kyma}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut recorded = BTreeSet::new();
    for manifest in world.list(&world.kcp, &path).await {
        let synced = manifest["status"]["synced"].as_array().cloned().unwrap_or_default();
        recorded
            .extend(synced.iter().map(|entry| Id::from_object(&text(&entry["group"]), &text(&entry["kind"]), entry)));
        let resource = &manifest["spec"]["resource"];
        recorded.insert(Id::from_object("example.org", &text(&resource["kind"]), &resource["metadata"]));
    }
    recorded
}

/// Whether an object has the ownership label.
fn is_marked(object: &Value) -> bool {
    object["metadata"]["labels"]["operator.kyma-project.io/managed-by"] == "kyma"
}

/// Whether the daemon manages fields of an object.
fn is_managed(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array();
    managers.into_iter().flatten().any(|entry| entry["manager"] == MANAGER)
}

/// The paths of all objects, of all kinds that a server serves, in which the daemon manages fields.
async fn ours(world: &World, server: &Server) -> Vec<String> {
    let groups = world.read(server, "/apis").await.expect("a server says what it serves");
    let versions = groups["groups"].as_array().into_iter().flatten();
    let versions = versions.flat_map(|group| group["versions"].as_array().cloned().unwrap_or_default());
    let mut roots = vec!["/api/v1".to_owned()];
    roots.extend(versions.filter_map(|version| Some(format!("/apis/{}", version["groupVersion"].as_str()?))));
    let mut paths = Vec::new();
    for root in roots {
        let served = world.read(server, &root).await.expect("it says which kinds a version has");
        for kind in served["resources"].as_array().into_iter().flatten() {
            let is_listed = kind["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
            let Some(plural) = kind["name"].as_str().filter(|_| is_listed) else { continue };
            for object in
                world.list(server, &format!("{root}/{plural}")).await.iter().filter(|object| is_managed(object))
            {
                let text = |field: &str| object["metadata"][field].as_str();
                let name = text("name").unwrap_or_default();
                paths.push(match text("namespace") {
                    Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
                    None => format!("{root}/{plural}/{name}"),
                });
            }
        }
    }
    paths
}

/// Whether an object is as its user made it, except for its status.
fn is_as_made(live: &Value, made: &Value) -> bool {
    let same = |field: &str| live[field] == made[field];
    let same_metadata = |field: &str| live["metadata"][field] == made["metadata"][field];
    ["data", "rules", "spec"].into_iter().all(same)
        && ["uid", "labels", "annotations", "deletionTimestamp"].into_iter().all(same_metadata)
        && !is_managed(live)
}

/// The name of a Manifest without the hash at its end.
fn without_hash(manifest: &str) -> &str {
    manifest.rsplit_once('-').map_or(manifest, |(name, _)| name)
}

/// Checks that the clusters match git, and that the statuses say so.
async fn is_well(world: &World) -> Result<(), String> {
    for kyma in RUNTIMES {
        let wanted: BTreeMap<String, String> =
            world.land.wanted(kyma).into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        let server = &world.runtimes[kyma];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let names = |objects: Vec<Value>| -> BTreeSet<String> {
            objects.iter().map(|object| text(&object["metadata"]["name"])).collect()
        };
        let found: BTreeMap<String, String> = world
            .list(server, &format!("{MAPS}?{OURS}"))
            .await
            .iter()
            .map(|map| (text(&map["metadata"]["name"]), text(&map["data"]["text"])))
            .collect();
        same(kyma, "ConfigMaps", &found, &wanted)?;
        let declared = world.land.kymas.get(kyma);
        let modules: BTreeSet<String> =
            declared.iter().flat_map(|of| &of.modules).map(|module| (*module).to_owned()).collect();
        let content = async |path: &str, field: &str| -> BTreeMap<String, Value> {
            let objects = world.list(server, &format!("{path}?{OURS}")).await;
            let content = |object: &Value| object.pointer(field).cloned().unwrap_or_default();
            objects.iter().map(|object| (text(&object["metadata"]["name"]), content(object))).collect()
        };
        let wanted = modules.iter().map(|module| (module.clone(), land::rules())).collect();
        same(kyma, "ClusterRoles", &content(ROLES, "/rules").await, &wanted)?;
        let mailer = declared.filter(|of| of.modules.contains("mailer"));
        let image = |of: &Declared| format!("mailer:{}", world.land.version("mailer", of.channel)).into();
        let wanted = mailer.map(|of| ("mailer".to_owned(), image(of))).into_iter().collect();
        let deployments = content(DEPLOYMENTS, "/spec/template/spec/containers/0/image").await;
        same(kyma, "Deployments", &deployments, &wanted)?;
        let things = names(world.list(server, THINGS).await);
        let default = modules.contains("cache").then(|| "cache-default".to_owned());
        same(kyma, "Things", &things, &default.into_iter().collect())?;
        let kinds =
            KINDS.into_iter().filter(|_| declared.is_some()).map(|kind| format!("{kind}.operator.kyma-project.io"));
        let kinds = kinds.chain(modules.contains("cache").then(|| "things.example.org".to_owned())).collect();
        let mut found = names(world.list(server, &format!("{DEFINITIONS}?{OURS}")).await);
        if declared.is_none() && world.released.contains(kyma) {
            found.retain(|name| !KINDS.iter().any(|kind| *name == format!("{kind}.operator.kyma-project.io")));
        }
        same(kyma, "definitions", &found, &kinds)?;
        if declared.is_some() {
            // Where git declares a Kyma, the daemon reverts its user's choice of modules.
            let theirs = world.read(server, &format!("{IN_RUNTIME}/kymas/default")).await.unwrap_or_default();
            let listed = theirs["spec"]["modules"].as_array().cloned().unwrap_or_default();
            same(
                kyma,
                "modules in the runtime",
                &listed.iter().map(|module| text(&module["name"])).collect(),
                &modules,
            )?;
        }
        says_so(world, kyma).await?;
    }
    let source = world.read(&world.kcp, SOURCE).await.unwrap_or_default();
    let is_applied = source["status"]["appliedRevision"].as_str().is_some_and(|text| text.ends_with(world.head()));
    let is_well = is_ready(&source["status"]) && is_applied;
    if is_well { Ok(()) } else { Err(format!("the GitSource says {}", source["status"])) }
}

/// Whether a status has the condition `Ready` with status `True`.
fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Checks that the status of a Kyma matches git.
async fn says_so(world: &World, kyma: &str) -> Result<(), String> {
    let live = world.read(&world.kcp, &format!("{IN_KCP}/kymas/{kyma}")).await;
    let manifests = format!("{IN_KCP}/manifests?labelSelector=operator.kyma-project.io/kyma-name%3D{kyma}");
    let manifests = world.list(&world.kcp, &manifests).await;
    let goes = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    if let Some(going) = manifests.iter().chain(&live).find(|object| goes(object)) {
        let (metadata, status) = (&going["metadata"], &going["status"]["lastOperation"]["operation"]);
        let held = format!("{} {}, held by {}: {status}", going["kind"], metadata["name"], metadata["finalizers"]);
        let kyma_is = if live.is_some() { "is there" } else { "is not there" };
        return Err(format!("{kyma} {kyma_is}, and this is being deleted: {held}"));
    }
    let manifests = manifests.len();
    let (live, declared) = match (live, world.land.kymas.get(kyma)) {
        (None, None) => return same(kyma, "Manifests", &manifests, &0),
        (Some(live), None) => return Err(format!("Kyma {kyma} is still there: {}", live["status"])),
        (None, Some(_)) => return Err(format!("there is no Kyma {kyma}")),
        (Some(live), Some(declared)) => (live, declared),
    };
    same(kyma, "Manifests", &manifests, &declared.modules.len())?;
    let wanted: BTreeMap<String, (String, String)> = declared
        .modules
        .iter()
        .map(|module| {
            let version = world.land.version(module, declared.channel);
            ((*module).to_owned(), (version.to_owned(), "Ready".to_owned()))
        })
        .collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let modules = live["status"]["modules"].as_array().cloned().unwrap_or_default();
    let found: BTreeMap<String, (String, String)> = modules
        .iter()
        .map(|module| (text(&module["name"]), (text(&module["version"]), text(&module["state"]))))
        .collect();
    same(kyma, "modules in the status", &found, &wanted)?;
    same(kyma, "state", &text(&live["status"]["state"]), &"Ready".to_owned())
}

fn same<T: PartialEq + std::fmt::Debug>(kyma: &str, what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{kyma}: {what} are {found:?}, wanted {wanted:?}")) }
}
