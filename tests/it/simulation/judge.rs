//! What must hold: at any moment, in the end, and when nothing happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::Method;
use serde_json::Value;
use tidegate::sim::Server;
use tokio::time::Instant;

use super::{
    agents::{About, Promise},
    land::Land,
    wire::Arrival,
    world::{RUNTIMES, World},
};

/// What the checks remember.
pub(super) struct Judge {
    /// Users' own ConfigMaps, by runtime.
    theirs: BTreeSet<(&'static str, String)>,
    /// ConfigMaps of ours that every revision wanted since all was well last: nobody has a reason to delete one.
    steady: BTreeMap<&'static str, BTreeSet<String>>,
    /// Looks that are owed since an event was taken.
    promises: Vec<Promise>,
    /// When each runtime was looked at last.
    looked: BTreeMap<(&'static str, About), Instant>,
    /// Since when there have been no faults.
    calm: Option<Instant>,
}

/// Longest time until all is well once faults have stopped, beside some resyncs: the longest pauses after failures.
const CONVERGED_MAX: Duration = Duration::from_secs(25 * 60);
const LOOK: Duration = Duration::from_secs(10);
/// How long nothing may happen, at least, beside a resync.
const QUIET: Duration = Duration::from_secs(5 * 60);
/// When a promised look must have been made once there are no faults: a new process may have to lead first, and the
/// longest pause after failures may have just begun.
const PROMISED_MAX: Duration = Duration::from_secs(8 * 60);

const OURS: &str = "labelSelector=operator.kyma-project.io/managed-by%3Dkyma";
const KYMA_API: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces";
const MAPS: &str = "/api/v1/namespaces/kyma-system/configmaps";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/kyma-system/deployments";

// === impl Judge ===

impl Judge {
    pub(super) fn new() -> Judge {
        Judge {
            theirs: BTreeSet::new(),
            steady: BTreeMap::new(),
            promises: Vec::new(),
            looked: BTreeMap::new(),
            calm: None,
        }
    }

    /// Git says something else.
    pub(super) fn committed(&mut self, land: &Land) {
        for (kyma, steady) in &mut self.steady {
            let wanted = land.wanted(kyma);
            steady.retain(|name| wanted.contains_key(name.as_str()));
        }
    }

    /// A user made a ConfigMap.
    pub(super) fn made(&mut self, kyma: &'static str, name: &str) {
        self.theirs.insert((kyma, name.to_owned()));
    }

    /// Somebody gave a reason to delete what a runtime has.
    pub(super) fn anything_may_go(&mut self, kyma: &'static str) {
        self.steady.remove(kyma);
    }

    /// Takes what arrived since the last time, and takes note of which promises it keeps.
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

    /// Waits until every event that was taken has led to a look, wherever there still is something to look at.
    async fn keep_promises(&mut self, world: &mut World) {
        loop {
            self.look(world).await;
            let mut open: Vec<&Promise> = Vec::new();
            for promise in &self.promises {
                let kyma = world.read(&world.kcp, &format!("{KYMA_API}/kcp-system/kymas/{}", promise.kyma)).await;
                let stays = kyma.is_some_and(|kyma| kyma["metadata"]["deletionTimestamp"].is_null());
                open.extend(stays.then_some(promise));
            }
            // What is written down of events leaves with some later write; the world is quiet only after it.
            let journal = world.read(&world.kcp, "/api/v1/namespaces/kcp-system/configmaps/tidegate-events").await;
            let is_empty = journal.is_none_or(|map| map["data"].as_object().is_none_or(serde_json::Map::is_empty));
            if open.is_empty() && world.agents.are_done() && is_empty {
                return;
            }
            let past = self.calm.is_some_and(|calm| PROMISED_MAX + world.resync * 2 < calm.elapsed());
            assert!(!past, "events were taken or wait, and nobody looks: {open:?}");
            world.pass(LOOK).await;
        }
    }

    /// What must hold at any moment.
    pub(super) async fn look(&mut self, world: &mut World) {
        for arrival in self.hear(world) {
            assert!(!arrival.late, "a daemon wrote after another one did: {arrival}");
            let deleted = arrival.path.split('?').next().and_then(|path| path.strip_prefix(MAPS)?.strip_prefix('/'));
            if let (&Method::DELETE, 200, Some(name)) = (&arrival.method, arrival.code, deleted) {
                let steady = self.steady.get(arrival.server).is_some_and(|steady| steady.contains(name));
                assert!(!steady, "the daemon deleted {name}, which was wanted all the time: {arrival}");
            }
        }
        for (kyma, name) in &self.theirs {
            let map = world.read(&world.runtimes[kyma], &format!("{MAPS}/{name}")).await;
            let text = map.as_ref().map(|map| &map["data"]["text"]);
            assert!(text.is_some_and(|text| text == "theirs"), "{name} of a user of {kyma} is {map:?}");
        }
        for (kyma, server) in &world.runtimes {
            let mut forgotten = forgotten(world, kyma, server).await;
            // The daemon goes on between two reads: only what both say counts.
            if !forgotten.is_empty() {
                let again = self::forgotten(world, kyma, server).await;
                forgotten.retain(|object| again.contains(object));
            }
            assert!(forgotten.is_empty(), "{forgotten:?} of {kyma} is ours and stands in no inventory");
        }
    }

    /// Faults have stopped: all must become well, and stay so without a write.
    pub(super) async fn conclude(&mut self, world: &mut World) {
        // Of two modules that bring one object one has to let go, and what is in the way of us goes: only its user may
        // decide that.
        world.land.separate();
        for (kyma, name) in std::mem::take(&mut self.theirs) {
            if name.starts_with("theirs") {
                self.theirs.insert((kyma, name));
            } else {
                world.note(format!("{kyma}: the user removes {name}"));
                world.delete(&world.runtimes[kyma], &format!("{MAPS}/{name}")).await;
            }
        }
        self.calm = Some(Instant::now());
        let source = "/apis/tidegate.dev/v1alpha1/namespaces/kcp-system/gitsources/landscape";
        world.patch(&world.kcp, source, &serde_json::json!({"spec": {"suspend": false}})).await;
        world.land.broken = false;
        world.note("git: all is mended");
        world.commit();
        self.committed(&world.land);
        self.converge(world).await;
        self.keep_promises(world).await;
        self.calm = None;
        self.rest(world, "a quiet world").await;
    }

    /// Waits until all is as git says.
    pub(super) async fn converge(&mut self, world: &mut World) {
        let mut waited = Duration::ZERO;
        loop {
            world.confirm().await;
            // Looking costs more than what is looked at.
            let pause = LOOK.max(waited / 4);
            world.pass(pause).await;
            waited += pause;
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
        self.steady = RUNTIMES
            .into_iter()
            .map(|kyma| (kyma, world.land.wanted(kyma).into_keys().map(str::to_owned).collect()))
            .collect();
    }

    /// Nothing happens, and nothing is written.
    pub(super) async fn rest(&mut self, world: &mut World, what: &str) {
        // What was just written may have an echo.
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

/// What bears our mark in a runtime, and stands in no inventory.
async fn forgotten(world: &World, kyma: &str, server: &Server) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in [MAPS, ROLES, DEPLOYMENTS] {
        let objects = world.list(server, &format!("{path}?{OURS}")).await;
        found.extend(objects.iter().filter_map(|object| Some((path, object["metadata"]["name"].as_str()?.to_owned()))));
    }
    // Read after the objects: an inventory is written before what it names.
    let recorded = recorded(world, kyma).await;
    let is_forgotten = |name: &str| !recorded.iter().any(|synced| synced["name"] == name);
    found.into_iter().filter(|(_, name)| is_forgotten(name)).map(|(path, name)| format!("{path}/{name}")).collect()
}

/// What the Manifests of a Kyma say that there is in its runtime.
async fn recorded(world: &World, kyma: &str) -> Vec<Value> {
    let path = format!("{KYMA_API}/kcp-system/manifests?labelSelector=operator.kyma-project.io/kyma-name%3D{kyma}");
    let manifests = world.list(&world.kcp, &path).await;
    manifests.iter().flat_map(|manifest| manifest["status"]["synced"].as_array().cloned().unwrap_or_default()).collect()
}

/// Whether everything is as git says, and the status says so.
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
        let roles = names(world.list(server, &format!("{ROLES}?{OURS}")).await);
        same(kyma, "ClusterRoles", &roles, &modules)?;
        let deployments = names(world.list(server, &format!("{DEPLOYMENTS}?{OURS}")).await);
        same(kyma, "Deployments", &deployments, &modules.iter().filter(|of| *of == "mailer").cloned().collect())?;
        let things = names(world.list(server, "/apis/example.org/v1/namespaces/kyma-system/things").await);
        let default = modules.contains("cache").then(|| "cache-default".to_owned());
        same(kyma, "Things", &things, &default.into_iter().collect())?;
        if declared.is_some() {
            // What a user asks for in the runtime of a Kyma that git decides on is taken back.
            let theirs = world.read(server, &format!("{KYMA_API}/kyma-system/kymas/default")).await.unwrap_or_default();
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
    let source = world
        .read(&world.kcp, "/apis/tidegate.dev/v1alpha1/namespaces/kcp-system/gitsources/landscape")
        .await
        .unwrap_or_default();
    let conditions = source["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is_ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let is_applied = source["status"]["appliedRevision"].as_str().is_some_and(|text| text.ends_with(world.head()));
    if is_ready && is_applied { Ok(()) } else { Err(format!("the GitSource says {}", source["status"])) }
}

/// Whether the status of a Kyma is the truth.
async fn says_so(world: &World, kyma: &str) -> Result<(), String> {
    let live = world.read(&world.kcp, &format!("{KYMA_API}/kcp-system/kymas/{kyma}")).await;
    let manifests =
        format!("{KYMA_API}/kcp-system/manifests?labelSelector=operator.kyma-project.io/kyma-name%3D{kyma}");
    let manifests = world.list(&world.kcp, &manifests).await;
    let goes = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    if manifests.iter().chain(&live).any(goes) {
        return Err(format!("{kyma}: something is being deleted"));
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
