//! Whole landscapes from a seed: commits, changes of modules, edits in runtimes and their events, deletions, faults of
//! the network and of the daemon. The daemon may be killed between any two polls of its tasks. It is the real daemon,
//! in this thread, with a simulated control plane and simulated runtimes. The clock is paused: hours pass in a second.
//!
//! `judge` checks the invariants, `truth` checks statuses. A failing seed is printed. `TIDEGATE_SEED=…` plays it again
//! and shows the daemon's log. `TIDEGATE_SEEDS=10000 cargo test --release --test it simulation` plays more seeds,
//! starting at `TIDEGATE_SEED` if it is set. The test counts all events and prints the numbers at the end.
//!
//! Lists have pages of a few objects, so that they need several requests and can expire. No read of the daemon may
//! return old data; `judge` checks that. Only delayed watches give the daemon stale data.
//!
//! A seed decides everything but one thing: the order in which `tokio::select!` polls branches that are ready at the
//! same moment. That order is tokio's own, and no stable tokio lets us choose it.

mod agents;
mod definitions;
mod dice;
mod hosts;
mod judge;
mod land;
mod repository;
mod script;
mod signers;
mod truth;
mod wire;
mod world;

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::FutureExt as _;
use kube_sim::Server;

use self::{judge::Judge, world::World};

/// Seeds that are played if nothing else is said: about a second of a core each.
const SEEDS: u64 = 200;
/// From so many seeds on each of these must have happened, or they prove less than they say.
const HAPPENS_IN: u64 = 200;
const HAPPENS: [&str; 94] = [
    "broken file said",
    "deleted in KCP",
    "deleted in a runtime",
    "definition Confirmed",
    "definition Lost",
    "definition Restored",
    "definition gitsources",
    "definition kymas",
    "definition manifests",
    "definition modulereleasemetas",
    "definition moduletemplates",
    "delivery accepted",
    "delivery doubled",
    "delivery lost",
    "delivery refused",
    "drift ClusterRole",
    "drift ConfigMap",
    "event lost",
    "event put off",
    "event taken",
    "event without answer",
    "fault dropped",
    "fault failed",
    "fault gone",
    "fault gone page",
    "fault held back",
    "fault late",
    "fault latency",
    "fault lost",
    "fault reset",
    "fault throttled",
    "fault unjudged",
    "forgotten before a page",
    "hook token rotated",
    "judged ready GitSource",
    "judged ready Kyma",
    "judged ready Manifest",
    "killed after a request",
    "killed at a moment",
    "killed before a request",
    "killed between two polls",
    "poison kymas",
    "poison manifests",
    "poison moduletemplates",
    "promise kept",
    "promise kept by another process",
    "repository always killing",
    "repository away",
    "repository killing",
    "repository silent",
    "repository well",
    "repository with a broken object",
    "repository with a broken reference",
    "runtime abandoned",
    "secret Absent",
    "secret Broken",
    "secret elsewhere",
    "signers changed",
    "signers rotated",
    "step Agent",
    "step Break",
    "step Channel",
    "step Clock",
    "step Compact",
    "step Dark",
    "step Definition",
    "step Drift",
    "step Hands",
    "step Kyma",
    "step Leave",
    "step Manifest",
    "step Map",
    "step Modules",
    "step Outage",
    "step Repository",
    "step Secret",
    "step Shared",
    "step Source",
    "step Split",
    "step Stranger",
    "step Stuck",
    "step Theirs",
    "stuck Deployment said",
    "theirs ClusterRole",
    "theirs ConfigMap",
    "theirs Deployment",
    "theirs Thing",
    "trial killed after",
    "trial killed before",
    "trial silent",
    "unreadable repository said",
    "unsigned push",
    "unsigned push refused",
    "well among faults",
];
/// How often what happened.
type Counts = Mutex<BTreeMap<String, u64>>;
/// Failures after which a thread plays no more.
const FAILURES_MAX: usize = 3;
/// Seeds at a time: a seed is one thread.
const THREADS: usize = 2;
/// Stack of such a thread, in bytes. The simulator runs on the stack of the pass that asks it, and unoptimised frames
/// of both together need up to 2 MiB, the usual stack of a thread.
const STACK: usize = 16 << 20;

/// A number in the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

#[test]
fn landscapes_converge_whatever_happens() {
    let (first, count) = match (number("TIDEGATE_SEED"), number("TIDEGATE_SEEDS")) {
        (Some(seed), None) => {
            let filter = std::env::var("TIDEGATE_LOG");
            let _ = tidegate_process::telemetry::init(
                filter.as_deref().unwrap_or("warn,tidegate=info,script=info"),
                tidegate_process::telemetry::Format::Text,
            );
            (seed, 1)
        }
        (first, count) => (first.unwrap_or(1), count.unwrap_or(SEEDS)),
    };
    tidegate_process::tls::install();
    let furnished = &world::furnished();
    let next = AtomicU64::new(first);
    let counts = Counts::default();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                let thread = std::thread::Builder::new().stack_size(STACK);
                let spawned = thread.spawn_scoped(scope, || {
                    let mut failures = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if first + count <= seed || FAILURES_MAX <= failures.len() {
                            return failures;
                        }
                        if let Err(failure) = play(seed, furnished, &counts) {
                            // In a run of ten thousand seeds, a failure is printed at once.
                            eprintln!("{failure}\n");
                            failures.push(format!("seed {seed}"));
                        }
                    }
                });
                spawned.expect("a thread starts")
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a thread ends")).collect()
    });
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<String> = counts.iter().map(|(what, count)| format!("{count:>9} {what}")).collect();
    eprintln!("what happened:\n{}", lines.join("\n"));
    assert!(failures.is_empty(), "these fail, as said above: {}", failures.join(", "));
    if HAPPENS_IN <= count {
        let happened = |what: &str| counts.get(what).is_some_and(|count| *count > 0);
        let never: Vec<&str> = HAPPENS.into_iter().filter(|what| !happened(what)).collect();
        assert!(never.is_empty(), "this never happened in {count} seeds, so nothing is proven of it: {never:?}");
    }
}

/// One seed. An error says what went wrong, and what was done until then.
fn play(seed: u64, furnished: &Server, counts: &Counts) -> Result<(), String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // The task that kills the daemon gets a turn after every poll of another task.
    runtime.enable_all().start_paused(true).event_interval(1);
    runtime.build().expect("a runtime").block_on(async {
        let mut world = World::new(seed, furnished).await;
        let played = AssertUnwindSafe(whole(&mut world)).catch_unwind().await;
        world.kill().await;
        for (what, count) in world.counts() {
            *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += count;
        }
        let Err(panic) = played else { return Ok(()) };
        let why = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Err(format!(
            "seed {seed} fails; play it again with TIDEGATE_SEED={seed}\n{why}\n{}\nlast faults:\n{}",
            world.script.join("\n"),
            world.journal().join("\n")
        ))
    })
}

async fn whole(world: &mut World) {
    let mut judge = Judge::new(&world.land);
    world.start().await;
    for _ in 0..4 + world.dice.below(9) {
        let idle = script::step(world, &mut judge).await;
        judge.look(world).await;
        judge.settle(world, idle).await;
    }
    world.calm();
    judge.conclude(world).await;
    // A new process, on a disk of its own, has nothing to say either.
    world.kill().await;
    if world.dice.below(2) == 0 {
        std::fs::remove_dir_all(world.state()).expect("it had a state");
    }
    world.note("a new process starts");
    world.start().await;
    judge.rest(world, "a world that is taken over").await;
    // In the end all goes, and nothing of ours is left behind.
    world.note("git: all Kymas leave, and users delete theirs");
    world.land.kymas.clear();
    judge.committed(&world.land);
    let users = format!("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/{}", land::USERS);
    world.delete(&world.kcp, &users).await;
    world.commit();
    world.deliver().await;
    judge.converge(world).await;
    judge.nothing_is_left(world).await;
}
