//! Deletes a CRD of the control plane and restores it later. Its objects are deleted with it. They come back from git,
//! from a backup, or much later from their users.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use super::{
    judge::{Judge, LOOK},
    land::{DEFINITIONS, IN_KCP, KYMAS, USERS},
    repository::Condition,
    world::{KCP, SOURCE, SOURCES, World},
};

/// The CRDs that may be deleted, with the path segment of their objects.
const OURS: [(&str, &str); 5] = [
    ("kymas.operator.kyma-project.io", "kymas"),
    ("manifests.operator.kyma-project.io", "manifests"),
    ("modulereleasemetas.operator.kyma-project.io", "modulereleasemetas"),
    ("moduletemplates.operator.kyma-project.io", "moduletemplates"),
    ("gitsources.tidegate.dev", "gitsources"),
];
/// The daemon waits at least this long for missing objects: a minute less than documented.
const AWAITED: Duration = Duration::from_secs(9 * 60);

/// What happens to the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They are restored from a backup.
    Restored,
    /// Their owners must declare them again.
    Lost,
    /// A user confirms that everything is to be deleted.
    Confirmed,
}

/// Deletes a CRD and creates it again after a while.
pub(super) async fn go_and_come(world: &mut World, judge: &mut Judge) {
    let (name, plural) = world.dice.one_of(&OURS);
    let fate = world.dice.one_of(&[Fate::Restored, Fate::Restored, Fate::Lost, Fate::Lost, Fate::Confirmed]);
    let kcp = world.kcp.clone();
    let path = format!("{DEFINITIONS}/{name}");
    let definition = world.read(&kcp, &path).await.expect("all definitions are there between two steps");
    let objects = match plural {
        "gitsources" => SOURCES.to_owned(),
        _ => format!("{IN_KCP}/{plural}"),
    };
    let backup = world.list(&kcp, &objects).await;
    world.note(format!("an administrator deletes the definition {name}"));
    world.count(&format!("definition {plural}"));
    world.count(&format!("definition {fate:?}"));
    world.wires.truth().disturbed(true);
    world.delete(&kcp, &path).await;
    some_time(world, judge).await;
    if fate == Fate::Confirmed {
        world.note("an administrator confirms that");
        judge.all_may_go();
        if plural == "gitsources" {
            // Of a source that is still there, the daemon removes the ownership label before it lets the source go.
            // Until git takes its objects over again, the runtime of each Kyma decides about its modules.
            world.land.adopts = true;
        }
        let confirmed = json!({"metadata": {"annotations": {"tidegate.dev/confirm-deletion": "true"}}});
        world.patch(&kcp, &path, &confirmed).await;
        some_time(world, judge).await;
    }
    release(world, &objects).await;
    assert!(world.read(&kcp, &path).await.is_none(), "a definition without objects goes");
    some_time(world, judge).await;
    world.note(format!("the definition {name} is back, its objects are {fate:?}"));
    world.create(&kcp, DEFINITIONS, &bare(&definition)).await.expect("a definition");
    if fate == Fate::Restored {
        let time = Duration::from_millis(world.dice.below(20_000));
        world.pass(time).await;
        for object in &backup {
            restore(world, &objects, object).await;
        }
    }
    await_kymas(world, judge).await;
    world.wires.truth().disturbed(false);
}

async fn some_time(world: &mut World, judge: &mut Judge) {
    let longest = world.dice.one_of(&[1_000, 30_000, 300_000]);
    let time = Duration::from_millis(world.dice.below(longest));
    world.pass(time).await;
    judge.look(world).await;
}

/// Removes the finalizers of objects that are being deleted, as an administrator does to get rid of the CRD.
async fn release(world: &mut World, objects: &str) {
    for object in world.list(&world.kcp, objects).await {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        world.note(format!("an administrator removes the finalizers of {name}"));
        if objects.ends_with("manifests") {
            // The inventory is lost with the Manifest.
            world.wires.truth().abandon(name);
        }
        let path = format!("{objects}/{name}");
        if let Some(kyma) = KYMAS.into_iter().chain([USERS]).find(|kyma| *kyma == name && objects.ends_with("kymas")) {
            // A daemon may hear of that later.
            world.wires.truth().touched(KCP, &path);
            world.released.insert(kyma);
        }
        world.patch(&world.kcp, &path, &json!({"metadata": {"finalizers": null}})).await;
    }
}

/// Only the fields that a client may send on creation.
fn bare(object: &Value) -> Value {
    let mut bare = object.clone();
    let metadata = bare["metadata"].as_object_mut().expect("metadata");
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
        metadata.remove(field);
    }
    bare.as_object_mut().expect("an object").remove("status");
    bare
}

/// Creates an object from a backup, which lacks only what the API server sets. If the object exists, it stays.
async fn restore(world: &mut World, objects: &str, object: &Value) {
    let metadata = &object["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        return;
    }
    let Some(made) = world.create(&world.kcp, objects, &bare(object)).await else { return };
    let path = format!("{objects}/{}", metadata["name"].as_str().unwrap_or_default());
    if !object["status"].is_null() {
        world.wires.truth().restored(object, &made);
        world.patch(&world.kcp, &format!("{path}/status"), &json!({"status": object["status"]})).await;
    }
    // The status comes last, because each writer becomes a manager of its fields.
    let fields = json!({"metadata": {"managedFields": metadata["managedFields"]}});
    world.patch(&world.kcp, &path, &fields).await;
}

/// Objects in git come back soon, if the daemon can read git. After a while the daemon treats missing objects as
/// deleted.
async fn await_kymas(world: &mut World, judge: &mut Judge) {
    let mut waited = Duration::ZERO;
    loop {
        let mut missing = BTreeSet::new();
        for kyma in KYMAS.into_iter().chain([USERS]).filter(|kyma| world.land.kymas.contains_key(kyma)) {
            if world.read(&world.kcp, &format!("{IN_KCP}/kymas/{kyma}")).await.is_none() {
                missing.insert(kyma);
            }
        }
        let source = world.read(&world.kcp, SOURCE).await.unwrap_or_default();
        let is_read = world.condition() == Condition::Well && source["spec"]["suspend"] == false;
        if missing.iter().all(|kyma| *kyma == USERS) || !is_read || AWAITED <= waited {
            for kyma in missing {
                world.note(format!("Kyma {kyma} does not come back for now"));
                judge.kyma_may_go(kyma);
            }
            return;
        }
        world.pass(LOOK).await;
        waited += LOOK;
        judge.look(world).await;
    }
}
