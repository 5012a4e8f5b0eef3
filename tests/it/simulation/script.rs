//! The steps of a world. The seed draws them: changes by users and in git, and faults.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    agents::About,
    definitions,
    judge::Judge,
    land::{
        Broken, CHANNELS, DEPLOYMENTS, Declared, IN_KCP, IN_RUNTIME, KYMAS, MAPS, MODULES, NAMESPACE, ROLES, THINGS,
        USERS,
    },
    repository::Condition,
    wire::Death,
    world::{Credentials, KCP, RUNTIMES, SOURCE, World},
};

/// A kind of step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The text of a module's ConfigMap changes in git.
    Text,
    /// A module gets or loses a ConfigMap.
    Map,
    /// A module gets or loses an object that other modules may also have.
    Shared,
    /// A channel gets another version.
    Channel,
    /// A Kyma gets other modules, or another channel.
    Kyma,
    /// A Kyma is removed from git, or added again.
    Leave,
    /// A file becomes invalid, or valid again.
    Break,
    /// A user edits or deletes an object of the daemon in a runtime.
    Drift,
    /// A user makes an object next to the daemon's: of the same kinds, or of a kind that a module brings.
    Theirs,
    /// A user makes an object with a name that a module may need later.
    Stranger,
    /// A Deployment stops becoming ready, or becomes ready again.
    Stuck,
    /// A user changes the modules in the runtime.
    Modules,
    /// A user changes or deletes a Kyma in the control plane that git declares.
    Hands,
    /// A user deletes a Manifest.
    Manifest,
    /// An access Secret changes, becomes invalid for a while, or is deleted.
    Secret,
    /// The agent of a runtime restarts.
    Agent,
    /// A runtime is unreachable for a while.
    Dark,
    /// The control plane is unreachable for a while.
    Outage,
    /// The repository is missing, silent, corrupt or too large for its engine for a while.
    Repository,
    /// A CRD of the control plane is deleted and comes back.
    Definition,
    /// The daemon loses the control plane, and another one takes over.
    Split,
    /// A newer program writes a value that our types cannot parse, and reverts it after a while.
    Poison,
    /// A user suspends or resumes the source.
    Source,
    /// The daemon is killed, at one of its next requests or at some time.
    Kill,
    /// Servers compact their history, now and before the next pages of lists.
    Compact,
    /// The clock of the daemon's machine is set.
    Clock,
    /// Nothing.
    Rest,
}

const STEPS: [Step; 36] = [
    Step::Text,
    Step::Text,
    Step::Map,
    Step::Map,
    Step::Shared,
    Step::Channel,
    Step::Channel,
    Step::Kyma,
    Step::Kyma,
    Step::Leave,
    Step::Break,
    Step::Drift,
    Step::Drift,
    Step::Theirs,
    Step::Theirs,
    Step::Stranger,
    Step::Stuck,
    Step::Modules,
    Step::Hands,
    Step::Manifest,
    Step::Secret,
    Step::Secret,
    Step::Agent,
    Step::Dark,
    Step::Outage,
    Step::Repository,
    Step::Repository,
    Step::Definition,
    Step::Kill,
    Step::Kill,
    Step::Kill,
    Step::Split,
    Step::Source,
    Step::Poison,
    Step::Compact,
    Step::Clock,
];

/// What can be wrong with the repository.
pub(super) const TROUBLES: [Condition; 6] = [
    Condition::Away,
    Condition::Silent,
    Condition::Killing { always: false },
    Condition::Killing { always: true },
    Condition::Reference,
    Condition::Objects,
];

/// Fields that are booleans in our types, and may be anything in a newer CRD.
pub(super) const POISONS: [(&str, &str); 3] =
    [("kymas", "skipMaintenanceWindows"), ("moduletemplates", "mandatory"), ("manifests", "remote")];

/// One step, then some time. Returns the length of the final period without changes.
pub(super) async fn step(world: &mut World, judge: &mut Judge) -> Duration {
    let step = if world.dice.below(12) == 0 { Step::Rest } else { world.dice.one_of(&STEPS) };
    let kyma = world.dice.one_of(&KYMAS);
    world.count(&format!("step {step:?}"));
    world.rotate().await;
    match step {
        Step::Text | Step::Map | Step::Shared | Step::Channel | Step::Kyma | Step::Leave | Step::Break => {
            let what = in_git(world, step, kyma);
            world.note(format!("git: {what}"));
            world.commit();
            judge.committed(&world.land);
            world.meet_intruder().await;
        }
        Step::Drift | Step::Theirs | Step::Stranger | Step::Stuck | Step::Modules => {
            let runtime = world.dice.one_of(&RUNTIMES);
            in_runtime(world, judge, step, runtime).await;
        }
        Step::Hands | Step::Manifest | Step::Secret | Step::Source => in_control_plane(world, judge, step, kyma).await,
        Step::Poison => poison(world, kyma).await,
        Step::Definition => definitions::go_and_come(world, judge).await,
        Step::Split => {
            world.note("the daemon loses the control plane, and another one starts");
            world.split().await;
        }
        Step::Agent
        | Step::Dark
        | Step::Outage
        | Step::Repository
        | Step::Kill
        | Step::Compact
        | Step::Clock
        | Step::Rest => {
            from_below(world, step, kyma);
        }
    }
    // Mostly the daemon has time to notice the step, sometimes to complete its work.
    let longest = world.dice.one_of(&[1_000, 20_000, 120_000, 900_000]);
    let time = Duration::from_millis(world.dice.below(longest));
    world.pass(time).await;
    if world.dice.below(3) == 0 {
        world.confirm().await;
    }
    time
}

fn in_git(world: &mut World, step: Step, kyma: &'static str) -> String {
    let (module, versions) = world.dice.one_of(&MODULES);
    let version = world.dice.one_of(&versions);
    let number = world.dice.below(1_000);
    let land = &mut world.land;
    match step {
        Step::Text => {
            land.maps.entry((module, version)).or_default().insert(format!("{module}-a"), number.to_string());
            format!("{module} {version} says {number}")
        }
        Step::Map => {
            let maps = land.maps.entry((module, version)).or_default();
            let name = format!("{module}-{}", world.dice.one_of(&["b", "c", "d"]));
            if maps.remove(&name).is_none() {
                maps.insert(name.clone(), number.to_string());
            }
            format!("{module} {version} has or lacks {name}")
        }
        Step::Shared => {
            let maps = land.maps.entry((module, version)).or_default();
            if maps.remove("shared").is_none() {
                maps.insert("shared".to_owned(), module.to_owned());
            }
            format!("{module} {version} has or lacks what others may have")
        }
        Step::Channel => {
            let channel = world.dice.one_of(&CHANNELS);
            land.channels.insert((module, channel), version);
            format!("{channel} of {module} is {version}")
        }
        Step::Leave => match land.kymas.remove(kyma) {
            Some(_) => format!("Kyma {kyma} leaves"),
            None => {
                land.kymas.insert(kyma, Declared { channel: "regular", modules: ["cache"].into() });
                format!("Kyma {kyma} comes")
            }
        },
        Step::Break => {
            land.broken = match land.broken {
                None => Some(world.dice.one_of(&[Broken::Definition, Broken::Syntax])),
                Some(_) => None,
            };
            format!("broken: {:?}", land.broken)
        }
        _ => {
            let channel = world.dice.one_of(&CHANNELS);
            let Some(declared) = land.kymas.get_mut(kyma) else { return "nothing".to_owned() };
            if world.dice.below(3) == 0 {
                declared.channel = channel;
            } else if !declared.modules.remove(module) {
                declared.modules.insert(module);
            }
            format!("Kyma {kyma}: {declared:?}")
        }
    }
}

async fn in_runtime(world: &mut World, judge: &mut Judge, step: Step, kyma: &'static str) {
    match step {
        Step::Drift => drift(world, judge, kyma).await,
        Step::Theirs | Step::Stranger => make(world, judge, step, kyma).await,
        Step::Stuck => {
            let is_stuck = world.stuck.contains(kyma);
            world.stick(kyma, !is_stuck).await;
        }
        _ => want(world, judge, kyma).await,
    }
}

/// A user edits or deletes an object of the daemon, or removes its ownership label.
async fn drift(world: &mut World, judge: &mut Judge, kyma: &'static str) {
    let server = world.runtimes[kyma].clone();
    let mut found: Vec<(&str, String)> = Vec::new();
    for (kind, path) in [("ConfigMap", MAPS), ("ClusterRole", ROLES), ("Deployment", DEPLOYMENTS)] {
        let ours = world.list(&server, &format!("{path}?labelSelector=operator.kyma-project.io/managed-by")).await;
        let names = ours.iter().filter_map(|object| object["metadata"]["name"].as_str());
        found.extend(names.map(|name| (kind, format!("{path}/{name}"))));
    }
    if found.is_empty() {
        return;
    }
    let (kind, path) = world.dice.one_of(&found);
    world.count(&format!("drift {kind}"));
    told(world, kyma, About::Objects, path.rsplit('/').next().unwrap_or_default()).await;
    let edit = match kind {
        "ConfigMap" => json!({"data": {"text": "edited"}}),
        "ClusterRole" => json!({"rules": []}),
        _ => json!({"spec": {"template": {"spec": {"containers": [{"name": "mailer", "image": "edited"}]}}}}),
    };
    // Noted before and after the change, because the daemon may write the object in between.
    world.wires.truth().touched(kyma, &path);
    match world.dice.below(3) {
        0 => {
            world.note(format!("{kyma}: a user deletes {path}"));
            world.delete(&server, &path).await;
        }
        1 => {
            world.note(format!("{kyma}: a user edits {path}"));
            world.patch(&server, &path, &edit).await;
        }
        _ => {
            world.note(format!("{kyma}: a user removes the ownership label of {path}"));
            judge.unmarked(kyma, &path);
            let label = json!({"operator.kyma-project.io/managed-by": null});
            world.patch(&server, &path, &json!({"metadata": {"labels": label}})).await;
        }
    }
    world.wires.truth().touched(kyma, &path);
}

/// A user makes an object, with its own name or with one that a module may need.
async fn make(world: &mut World, judge: &mut Judge, step: Step, kyma: &'static str) {
    let server = world.runtimes[kyma].clone();
    let is_strange = matches!(step, Step::Stranger);
    let kinds = if is_strange { 3 } else { 4 };
    let module = world.dice.one_of(&MODULES).0;
    let mine = format!("theirs-{}", world.dice.below(3));
    let metadata = |name: String| json!({"name": name, "namespace": "kyma-system"});
    let (kind, path, object): (&str, &str, Value) = match world.dice.below(kinds) {
        0 => {
            let strange = format!("{module}-{}", world.dice.one_of(&["c", "d"]));
            let name = if is_strange { strange } else { mine };
            ("ConfigMap", MAPS, json!({"metadata": metadata(name), "data": {"text": "theirs"}}))
        }
        1 => {
            let name = if is_strange { module.to_owned() } else { mine };
            let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
            ("ClusterRole", ROLES, json!({"metadata": {"name": name}, "rules": rules}))
        }
        2 => {
            let name = if is_strange { "mailer".to_owned() } else { mine };
            let labels = json!({"app": "theirs"});
            let containers = json!([{"name": "theirs", "image": "theirs"}]);
            let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
            let spec = json!({"selector": {"matchLabels": labels}, "template": template});
            ("Deployment", DEPLOYMENTS, json!({"metadata": metadata(name), "spec": spec}))
        }
        _ => ("Thing", THINGS, json!({"metadata": metadata(mine), "spec": {"size": 2}})),
    };
    let version = match kind {
        "ConfigMap" => "v1",
        "ClusterRole" => "rbac.authorization.k8s.io/v1",
        "Deployment" => "apps/v1",
        _ => "example.org/v1",
    };
    let mut object = object;
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    if world.read(&server, NAMESPACE).await.is_none() {
        return;
    }
    let path_of = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
    // If it exists, it stays unchanged.
    let Some(made) = world.create(&server, path, &object).await else { return };
    world.note(format!("{kyma}: a user makes {path_of}"));
    world.count(&format!("theirs {kind}"));
    // A user's `Thing` keeps its module from being removed, so it is a conflict as well.
    judge.made(kyma, path_of, made, is_strange || kind == "Thing");
}

/// A user changes the modules in the runtime.
async fn want(world: &mut World, judge: &mut Judge, kyma: &'static str) {
    let server = world.runtimes[kyma].clone();
    let path = format!("{IN_RUNTIME}/kymas/default");
    if world.read(&server, &path).await.is_none() {
        return;
    }
    let module = world.dice.one_of(&MODULES).0;
    let mut wanted = std::collections::BTreeSet::from([module]);
    if kyma == USERS
        && let Some(users) = world.land.kymas.get_mut(USERS)
    {
        // The user decides about this Kyma; for the others the daemon reverts the change to what git declares.
        if !users.modules.remove(module) {
            users.modules.insert(module);
        }
        wanted.clone_from(&users.modules);
    }
    judge.committed(&world.land);
    world.note(format!("{kyma}: a user wants {wanted:?}"));
    let modules: Vec<_> = wanted.iter().map(|module| json!({"name": module, "managed": true})).collect();
    told(world, kyma, About::Kyma, "default").await;
    world.patch(&server, &path, &json!({"spec": {"modules": modules}})).await;
}

/// The agent of a runtime reports a change that is about to happen. The Runtime Watcher's agent may report it long
/// before.
async fn told(world: &mut World, kyma: &'static str, about: About, name: &str) {
    let deadly = (world.dice.below(4) == 0).then(|| world.dice.below(100));
    world.agents.report(&mut world.dice, (kyma, about, name), deadly);
    if world.dice.below(8) == 0 {
        // This event and all undelivered ones are lost.
        world.note(format!("{kyma}: the agent starts anew"));
        world.agents.restart(&mut world.dice, kyma);
    }
    if !world.agents.waits(kyma) {
        let time = Duration::from_millis(world.dice.below(2_000));
        world.pass(time).await;
    }
}

async fn in_control_plane(world: &mut World, judge: &mut Judge, step: Step, kyma: &'static str) {
    let kcp = world.kcp.clone();
    match step {
        Step::Hands => {
            if world.dice.below(2) == 0 {
                return delete_kyma(world, judge, kyma).await;
            }
            let path = format!("{IN_KCP}/kymas/{kyma}");
            world.note(format!("a user edits Kyma {kyma}"));
            judge.channel_edited(kyma, &world.land);
            world.wires.truth().touched(KCP, &path);
            // A field that git declares. The daemon keeps entries that a user adds to a list of git's entries.
            world.patch(&kcp, &path, &json!({"spec": {"channel": "fast"}})).await;
            world.wires.truth().touched(KCP, &path);
        }
        Step::Source => {
            let suspend = world.dice.below(2) == 0;
            world.note(format!("the source is suspended: {suspend}"));
            world.patch(&kcp, SOURCE, &json!({"spec": {"suspend": suspend}})).await;
        }
        Step::Manifest => {
            let manifests = format!("{IN_KCP}/manifests");
            let selector = format!("{manifests}?labelSelector=operator.kyma-project.io/kyma-name={kyma}");
            let found = world.list(&kcp, &selector).await;
            if found.is_empty() {
                return;
            }
            let name = world.dice.one_of(&found)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            world.note(format!("a user deletes Manifest {name}"));
            judge.module_may_go(kyma, &name);
            world.delete(&kcp, &format!("{manifests}/{name}")).await;
        }
        _ => secret(world, judge).await,
    }
}

/// An object becomes unreadable for a while. Other steps go on meanwhile, and the daemon may be killed.
async fn poison(world: &mut World, kyma: &str) {
    let kcp = world.kcp.clone();
    let kind = world.dice.below(POISONS.len() as u64);
    let (plural, field) = POISONS[usize::try_from(kind).expect("a few")];
    let mut found = world.list(&kcp, &format!("{IN_KCP}/{plural}")).await;
    if plural == "kymas" {
        found.retain(|object| object["metadata"]["name"] == kyma);
    }
    if found.is_empty() {
        return;
    }
    let object = world.dice.one_of(&found);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{IN_KCP}/{plural}/{name}");
    world.note(format!("{plural} {name} cannot be read"));
    world.count(&format!("poison {plural}"));
    world.wires.truth().touched(KCP, &path);
    world.patch(&kcp, &path, &json!({"spec": {field: "unheard of"}})).await;
    world.wires.truth().touched(KCP, &path);
    let time = Duration::from_millis(world.dice.below(120_000));
    world.pass(time).await;
    world.note(format!("{plural} {name} is as before"));
    world.wires.truth().touched(KCP, &path);
    world.patch(&kcp, &path, &json!({"spec": {field: object["spec"][field]}})).await;
    world.wires.truth().touched(KCP, &path);
}

/// Changes the access Secret of a runtime: to valid, invalid or missing. If it is deleted, its Kyma may be deleted too.
async fn secret(world: &mut World, judge: &mut Judge) {
    let kyma = world.dice.one_of(&RUNTIMES);
    let former = world.secrets.get(kyma).copied().unwrap_or(Credentials::Good { other: false });
    let (draw, other) = (world.dice.below(3), world.dice.below(2) == 0);
    let next = match (former, draw) {
        (Credentials::Good { .. }, 0) => Credentials::Broken,
        (Credentials::Good { .. }, 1) => Credentials::Absent,
        (Credentials::Good { other }, _) => Credentials::Good { other: !other },
        (Credentials::Broken | Credentials::Absent, _) => Credentials::Good { other },
    };
    world.count(match next {
        Credentials::Good { other: true } => "secret elsewhere",
        Credentials::Good { other: false } => "secret as ever",
        Credentials::Broken => "secret Broken",
        Credentials::Absent => "secret Absent",
    });
    world.give(kyma, next).await;
    if next == Credentials::Absent && kyma != USERS && world.dice.below(2) == 0 {
        // Mostly a Secret is deleted because its cluster is.
        delete_kyma(world, judge, kyma).await;
    }
}

async fn delete_kyma(world: &mut World, judge: &mut Judge, kyma: &'static str) {
    let path = format!("{IN_KCP}/kymas/{kyma}");
    world.note(format!("a user deletes Kyma {kyma}"));
    judge.kyma_may_go(kyma);
    // Noted before and after the deletion, because the daemon may write the Kyma in between.
    world.wires.truth().touched(KCP, &path);
    world.delete(&world.kcp, &path).await;
    world.wires.truth().touched(KCP, &path);
}

fn from_below(world: &mut World, step: Step, kyma: &'static str) {
    match step {
        Step::Dark => {
            let dark = !world.wires.is_dark(kyma);
            world.note(format!("{kyma} is {}", if dark { "out of reach" } else { "back" }));
            world.wires.darken(kyma, dark);
        }
        Step::Outage => {
            let dark = !world.wires.is_dark(KCP);
            world.note(format!("the control plane is {}", if dark { "out of reach" } else { "back" }));
            world.wires.darken(KCP, dark);
        }
        Step::Repository => {
            let condition = match world.condition() {
                Condition::Well => world.dice.one_of(&TROUBLES),
                _ => Condition::Well,
            };
            world.serve(condition);
        }
        Step::Kill => {
            let (count, polls) = (world.dice.below(60), world.dice.below(200));
            let death = match world.dice.below(4) {
                0 => Death::Before,
                1 => Death::After,
                2 => Death::Polls(polls),
                _ => {
                    let after = Duration::from_millis(world.dice.below(60_000));
                    world.note(format!("the daemon will die in {} ms, {polls} polls later", after.as_millis()));
                    return world.doom(after, polls);
                }
            };
            world.note(format!("the daemon will die of its request {count}: {death:?}"));
            world.wires.doom(count, death);
        }
        Step::Agent => {
            world.note(format!("the agent of {kyma} starts anew"));
            world.agents.restart(&mut world.dice, kyma);
        }
        Step::Compact => {
            let pages = world.dice.below(4);
            world.note(format!("servers forget, and before {pages} pages again"));
            world.kcp.compact();
            for runtime in world.runtimes.values() {
                runtime.compact();
            }
            world.wires.forget(pages);
        }
        Step::Clock => {
            let minutes = world.dice.one_of(&[-90, -10, -1, 1, 10, 90]);
            world.note(format!("the clock is set by {minutes} minutes"));
            world.step_clock(SignedDuration::from_mins(minutes));
        }
        _ => world.note("nothing"),
    }
}
