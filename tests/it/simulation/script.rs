//! What happens in a world: steps that the seed draws, by everybody who has a hand in it.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use super::{
    agents::About,
    judge::Judge,
    land::{CHANNELS, Declared, KYMAS, MODULES, USERS},
    wire::Death,
    world::{KCP, RUNTIMES, World, access_secret},
};
use crate::harness;

/// A kind of step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A ConfigMap of a module gets another text, in git.
    Text,
    /// A module gets one more ConfigMap, or loses one.
    Map,
    /// A module brings what another one may bring as well.
    Shared,
    /// A channel leads to another version.
    Channel,
    /// A Kyma has other modules, or another channel.
    Kyma,
    /// A Kyma leaves git, or comes back.
    Leave,
    /// A file cannot be understood, or is mended.
    Break,
    /// Somebody edits or deletes what is ours in a runtime.
    Drift,
    /// A user makes something of their own, where ours is.
    Theirs,
    /// A user makes something that has a name which a module is about to use.
    Stranger,
    /// A user changes the modules in the runtime.
    Modules,
    /// Somebody changes or deletes a Kyma in the control plane that git declares.
    Hands,
    /// Somebody deletes a Manifest.
    Manifest,
    /// Credentials change.
    Secret,
    /// The agent of a runtime starts anew.
    Agent,
    /// A runtime cannot be reached for a while.
    Dark,
    /// The control plane cannot be reached for a while.
    Outage,
    /// The daemon loses the control plane, and another one takes over.
    Split,
    /// Somebody suspends the source, or lets it go on.
    Source,
    /// The daemon dies: at one of its next requests, or at some moment.
    Kill,
    /// Servers forget what happened.
    Compact,
    /// The clock of the daemon's machine is set.
    Clock,
    /// Nothing.
    Rest,
}

const STEPS: [Step; 29] = [
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
    Step::Stranger,
    Step::Modules,
    Step::Hands,
    Step::Manifest,
    Step::Secret,
    Step::Agent,
    Step::Dark,
    Step::Outage,
    Step::Kill,
    Step::Kill,
    Step::Kill,
    Step::Split,
    Step::Source,
    Step::Compact,
    Step::Clock,
];

const MAPS: &str = "/api/v1/namespaces/kyma-system/configmaps";
const KYMA: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas";
const MANIFESTS: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests";

/// One step, and some time.
pub(super) async fn step(world: &mut World, judge: &mut Judge) {
    let step = if world.dice.below(12) == 0 { Step::Rest } else { world.dice.one_of(&STEPS) };
    let kyma = world.dice.one_of(&KYMAS);
    world.count(&format!("step {step:?}"));
    match step {
        Step::Text | Step::Map | Step::Shared | Step::Channel | Step::Kyma | Step::Leave | Step::Break => {
            let what = in_git(world, step, kyma);
            world.note(format!("git: {what}"));
            world.commit();
            judge.committed(&world.land);
        }
        Step::Drift | Step::Theirs | Step::Stranger | Step::Modules => {
            let runtime = world.dice.one_of(&RUNTIMES);
            in_runtime(world, judge, step, runtime).await;
        }
        Step::Hands | Step::Manifest | Step::Secret | Step::Source => in_control_plane(world, judge, step, kyma).await,
        Step::Split => {
            world.note("the daemon loses the control plane, and another one starts");
            world.split().await;
        }
        Step::Agent | Step::Dark | Step::Outage | Step::Kill | Step::Compact | Step::Clock | Step::Rest => {
            from_below(world, step, kyma);
        }
    }
    // Mostly the daemon has time to see it, sometimes to finish with it.
    let longest = world.dice.one_of(&[1_000, 20_000, 120_000, 900_000]);
    let time = Duration::from_millis(world.dice.below(longest));
    world.pass(time).await;
    if world.dice.below(3) == 0 {
        world.confirm().await;
    }
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
            land.broken = !land.broken;
            format!("broken: {}", land.broken)
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
    let server = world.runtimes[kyma].clone();
    match step {
        Step::Drift => {
            let maps = world.list(&server, &format!("{MAPS}?labelSelector=operator.kyma-project.io/managed-by")).await;
            if maps.is_empty() {
                return;
            }
            let name = world.dice.one_of(&maps)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let path = format!("{MAPS}/{name}");
            told(world, kyma, About::Objects, &name).await;
            match world.dice.below(3) {
                0 => {
                    world.note(format!("{kyma}: somebody deletes {name}"));
                    world.delete(&server, &path).await;
                }
                1 => {
                    world.note(format!("{kyma}: somebody edits {name}"));
                    world.patch(&server, &path, &json!({"data": {"text": "edited"}})).await;
                }
                _ => {
                    world.note(format!("{kyma}: somebody takes our mark off {name}"));
                    let label = json!({"operator.kyma-project.io/managed-by": null});
                    world.patch(&server, &path, &json!({"metadata": {"labels": label}})).await;
                }
            }
        }
        Step::Theirs | Step::Stranger => {
            let name = match step {
                Step::Theirs => format!("theirs-{}", world.dice.below(3)),
                _ => format!("{}-{}", world.dice.one_of(&MODULES).0, world.dice.one_of(&["c", "d"])),
            };
            if world.read(&server, &format!("{MAPS}/{name}")).await.is_some()
                || world.read(&server, "/api/v1/namespaces/kyma-system").await.is_none()
            {
                return;
            }
            world.note(format!("{kyma}: a user makes {name}"));
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kyma-system"},
                "data": {"text": "theirs"},
            });
            if harness::try_apply(&server.client(), &map).await.is_ok() {
                judge.made(kyma, &name);
            }
        }
        _ => {
            let path = "/apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system/kymas/default";
            if world.read(&server, path).await.is_none() {
                return;
            }
            let module = world.dice.one_of(&MODULES).0;
            let mut wanted = std::collections::BTreeSet::from([module]);
            if kyma == USERS
                && let Some(users) = world.land.kymas.get_mut(USERS)
            {
                // Here it is the user who decides; elsewhere git takes it back.
                if !users.modules.remove(module) {
                    users.modules.insert(module);
                }
                wanted.clone_from(&users.modules);
            }
            world.note(format!("{kyma}: a user wants {wanted:?}"));
            let modules: Vec<_> = wanted.iter().map(|module| json!({"name": module, "managed": true})).collect();
            told(world, kyma, About::Kyma, "default").await;
            world.patch(&server, path, &json!({"spec": {"modules": modules}})).await;
            judge.committed(&world.land);
        }
    }
}

/// The agent of a runtime tells of a change that is about to happen. That of the Runtime Watcher may tell long before.
async fn told(world: &mut World, kyma: &'static str, about: About, name: &str) {
    let deadly = (world.dice.below(4) == 0).then(|| world.dice.below(100));
    world.agents.report(&mut world.dice, (kyma, about, name), deadly);
    if world.dice.below(8) == 0 {
        // What it has just been told of is lost, and what it still had to deliver.
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
            let path = format!("{KYMA}/{kyma}");
            if world.dice.below(2) == 0 {
                world.note(format!("somebody deletes Kyma {kyma}"));
                judge.anything_may_go(kyma);
                world.delete(&kcp, &path).await;
            } else {
                world.note(format!("somebody edits Kyma {kyma}"));
                judge.anything_may_go(kyma);
                // A field that git declares. What a user adds to a list beside git's entries is theirs.
                world.patch(&kcp, &path, &json!({"spec": {"channel": "fast"}})).await;
            }
        }
        Step::Source => {
            let suspend = world.dice.below(2) == 0;
            world.note(format!("the source is suspended: {suspend}"));
            let path = "/apis/tidegate.dev/v1alpha1/namespaces/kcp-system/gitsources/landscape";
            world.patch(&kcp, path, &json!({"spec": {"suspend": suspend}})).await;
        }
        Step::Manifest => {
            let selector = format!("{MANIFESTS}?labelSelector=operator.kyma-project.io/kyma-name={kyma}");
            let manifests = world.list(&kcp, &selector).await;
            if manifests.is_empty() {
                return;
            }
            let name = world.dice.one_of(&manifests)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            world.note(format!("somebody deletes Manifest {name}"));
            judge.anything_may_go(kyma);
            world.delete(&kcp, &format!("{MANIFESTS}/{name}")).await;
        }
        _ => {
            world.note(format!("the access Secret of {kyma} is another"));
            let mut secret = access_secret(kyma);
            secret["metadata"]["annotations"] = json!({"rotated": world.dice.below(1_000).to_string()});
            harness::apply(&kcp.client(), &secret).await;
        }
    }
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
            world.note("servers forget");
            world.kcp.compact();
        }
        Step::Clock => {
            let minutes = world.dice.one_of(&[-90, -10, -1, 1, 10, 90]);
            world.note(format!("the clock is set by {minutes} minutes"));
            world.step_clock(SignedDuration::from_mins(minutes));
        }
        _ => world.note("nothing"),
    }
}
