//! What a user reads of a take-over of kcp landscapes from kcp-operator.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Holder, Level, Topic};
use crate::words::{agreeing, counted, few};

/// How many objects are listed that a take-over changes, and that wait.
const LISTED_MAX: usize = 200;

/// Whether kcp-operator runs. `holders` are those of its Lease, by namespace.
pub fn operator(holders: &BTreeMap<String, Holder>) -> Vec<Finding> {
    let finding = |(namespace, Holder { name, renewed }): (&String, &Holder)| {
        let message = format!("kcp-operator runs in namespace {namespace}: {name} renewed its Lease {renewed} s ago");
        let next = "scale its Deployment to 0, and wait until the Lease ends; until then, nothing is written";
        Finding::new(Level::Blocks, Topic::Leader, message).next(next)
    };
    holders.iter().map(finding).collect()
}

/// That no Lease says whether kcp-operator runs.
pub fn unleased() -> Finding {
    let message = "no namespace has the Lease of kcp-operator, so it is not known whether it runs";
    Finding::new(Level::Note, Topic::Leader, message).next("check that its Deployment is scaled to 0 or deleted")
}

/// That there is nothing to take over.
pub fn nothing(namespaces: &[String]) -> Finding {
    let names = namespaces.join(", ");
    let what = agreeing(namespaces.len(), "namespace", "namespaces");
    Finding::new(Level::Blocks, Topic::Objects, format!("no kcp landscape in {what} {names}"))
        .next("select the namespace of the landscape with -n, and check that the kinds of kcp-operator are installed")
}

/// Objects with owners that are resources of kcp-operator.
pub fn owned(names: &BTreeSet<String>) -> Option<Finding> {
    some(names, Topic::Owners, |count, objects| {
        let have = agreeing(count, "has an owner reference", "have owner references");
        format!("{objects} {have} to kcp-operator resources: deleting those resources would delete the objects")
    })
}

/// Objects without the label of their resource.
pub fn unmarked(names: &BTreeSet<String>) -> Option<Finding> {
    some(names, Topic::Objects, |count, objects| {
        format!("{objects} {} the ownership label tidegate.dev/setup", agreeing(count, "needs", "need"))
    })
}

/// Objects with fields of kcp-operator's field manager.
pub fn claimed(names: &BTreeSet<String>) -> Option<Finding> {
    some(names, Topic::Managers, |count, objects| {
        format!(
            "{objects} {} fields of the field manager `manager`, which become Tidegate's",
            agreeing(count, "has", "have")
        )
    })
}

/// Objects that no longer wait.
pub fn released(names: &BTreeSet<String>) -> Option<Finding> {
    some(names, Topic::Objects, |count, objects| {
        format!("{objects} no longer {} for a change of the resource", agreeing(count, "waits", "wait"))
    })
}

/// Objects that become as Tidegate renders them, with what differs.
pub fn changing(all: &BTreeMap<String, Vec<String>>) -> Vec<Finding> {
    let finding = |(name, what): (&String, &Vec<String>)| {
        Finding::new(Level::Todo, Topic::Objects, format!("{name} changes: {}", what.join(", ")))
    };
    listed(all.iter().map(finding), Level::Todo)
}

/// A Deployment or Certificate that differs from what Tidegate renders, and what differs.
pub fn differing<'a>(all: impl Iterator<Item = (&'a str, &'a str, &'a [String], bool)>) -> Vec<Finding> {
    let finding = |(object, resource, what, waits): (&str, &str, &[String], bool)| {
        let when = if waits { format!("once {resource} changes") } else { "at once".to_owned() };
        let what = what.join(", ");
        Finding::new(Level::Note, Topic::Objects, format!("{object} differs; the daemon applies it {when}: {what}"))
    };
    listed(all.map(finding), Level::Note)
}

/// Objects that are not handed over, and why.
pub fn refused(sentences: &[String]) -> Vec<Finding> {
    sentences.iter().map(|sentence| Finding::new(Level::Blocks, Topic::Objects, sentence.clone())).collect()
}

/// Resources whose objects are not taken over, or not all of them, and why.
pub fn skipped(sentences: &BTreeSet<String>) -> Vec<Finding> {
    sentences.iter().map(|sentence| Finding::new(Level::Blocks, Topic::Definitions, sentence.clone())).collect()
}

/// Objects that the API server rejected.
pub fn rejected<'a>(sentences: impl Iterator<Item = &'a String>) -> Vec<Finding> {
    sentences.map(|sentence| Finding::new(Level::Blocks, Topic::Objects, sentence.clone())).collect()
}

/// Objects that kcp-operator made for itself.
pub fn compiled(count: usize, namespaces: &[String]) -> Option<Finding> {
    let objects = counted(count, "object");
    let message = format!("{objects} of the group deploy.operator.kcp.io {} not needed", agreeing(count, "is", "are"));
    let delete = |namespace: &String| {
        format!(
            "kubectl delete compiledrootshards,compiledshards,compiledfrontproxies,compiledcacheservers,\
             compiledvirtualworkspaces --all --cascade=orphan -n {namespace}"
        )
    };
    let commands: Vec<String> = namespaces.iter().map(delete).collect();
    let next = format!("delete them after the take-over: {}", commands.join(" && "));
    (0 < count).then(|| Finding::new(Level::Note, Topic::Objects, message).next(next))
}

/// That nothing is left to do.
pub fn done() -> Finding {
    Finding::new(Level::Ready, Topic::Objects, "all objects belong to Tidegate")
        .next("start the daemon with --kcp-landscapes")
}

fn some(names: &BTreeSet<String>, topic: Topic, message: impl Fn(usize, &str) -> String) -> Option<Finding> {
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = || format!("{}: {}", message(all.len(), &counted(all.len(), "object")), few(&all));
    (!all.is_empty()).then(|| Finding::new(Level::Todo, topic, message()))
}

/// The first findings, and how many more there are.
fn listed(all: impl Iterator<Item = Finding>, level: Level) -> Vec<Finding> {
    let mut all: Vec<Finding> = all.collect();
    let more = all.len().saturating_sub(LISTED_MAX);
    all.truncate(LISTED_MAX);
    if 0 < more {
        all.push(Finding::new(level, Topic::Objects, format!("{} more like these", counted(more, "object"))));
    }
    all
}
