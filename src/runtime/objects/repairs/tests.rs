use tidegate_cluster::Metadata;

use super::*;
use crate::runtime::objects::{
    Version,
    fixtures::{live, metadata, shared},
};

const MAP: &str = "ConfigMap n/a is";
const PAUSE: Duration = Duration::from_secs(60);

/// One object, and what a check finds of it.
struct World {
    applied: Applied,
    repairs: Repairs,
    pause: Duration,
    now: Instant,
}

impl World {
    fn new() -> World {
        let objects = shared(&[("v1", "ConfigMap", "n", "a")]);
        let applied = Applied::before(&objects, None, None, &objects.digest);
        World { applied, repairs: Repairs::default(), pause: PAUSE, now: Instant::now() }
    }

    fn id(&self) -> ObjectId {
        self.applied.objects.objects[0].id.clone()
    }

    /// Another client deletes the object, or changes it as `manager`. Returns how long its repair waits.
    fn undo(&mut self, manager: Option<&str>) -> Duration {
        let found = metadata(&self.id(), "1");
        let before = [Seen::At(Version::from_metadata(&found))];
        let found = manager.map(|manager| Metadata { last_other: Some(manager.into()), ..found });
        let undone = self.repairs.note(&before, &self.applied, &live(found), self.pause, self.now);
        assert_eq!(undone.len(), 1);
        undone[0].rest
    }
}

#[test]
fn the_first_repairs_come_at_once_and_each_further_one_waits_longer_up_to_a_minute() {
    let mut world = World::new();
    let rests: Vec<u64> = (0..11)
        .map(|_| {
            let rest = world.undo(None);
            world.now += rest + Duration::from_secs(1);
            rest.as_secs()
        })
        .collect();
    assert_eq!(rests, [0, 0, 0, 5, 10, 20, 40, 60, 60, 60, 60]);
}

#[test]
fn without_a_pause_every_repair_comes_at_once_and_the_fight_is_named_all_the_same() {
    let mut world = World { pause: Duration::ZERO, ..World::new() };
    assert!((0..9).all(|_| world.undo(None) == Duration::ZERO));
    assert!(!world.repairs.is_resting(&world.id(), world.now));
    let sentence = world.repairs.sentence().expect("a fight");
    assert!(sentence.contains("again and again; Tidegate repairs it each time; stop"), "{sentence}");
}

#[test]
fn an_object_rests_until_its_time_and_the_sentence_names_who_undoes_it() {
    let mut world = World::new();
    for _ in 0..3 {
        world.undo(Some("kubectl-edit"));
        assert_eq!((world.repairs.sentence(), world.repairs.again(world.now)), (None, None), "an edit is no fight");
        assert!(!world.repairs.is_resting(&world.id(), world.now));
    }
    world.undo(Some("some-operator"));
    assert!(world.repairs.is_resting(&world.id(), world.now));
    assert_eq!(world.repairs.resting(world.now).count(), 1);
    let sentence = world.repairs.sentence().expect("a fight");
    assert!(sentence.starts_with(&format!("{MAP} changed by field manager some-operator in")), "{sentence}");
    assert_eq!(world.repairs.again(world.now), Some(REST_MIN));

    world.now += REST_MIN;
    assert!(!world.repairs.is_resting(&world.id(), world.now));
    assert_eq!(world.repairs.sentence(), Some(sentence.clone()), "the fight is not over with one repair");
    assert_eq!(world.repairs.again(world.now), Some(CALM));
    world.undo(Some("some-operator"));
    assert_eq!(world.repairs.sentence(), Some(sentence), "the same text for each repair");
    world.undo(None);
    let sentence = world.repairs.sentence().expect("a fight");
    assert!(sentence.starts_with(&format!("{MAP} deleted in the runtime again")), "{sentence}");
}

#[test]
fn after_calm_a_repair_comes_at_once_again() {
    let mut world = World::new();
    for _ in 0..6 {
        world.undo(None);
    }
    world.now += PAUSE + CALM;
    let applied = world.applied.clone();
    world.repairs.keep(&applied, world.now);
    assert_eq!((world.repairs.sentence(), world.repairs.again(world.now)), (None, None));
    assert_eq!(world.undo(None), Duration::ZERO);
}

#[test]
fn an_object_that_left_the_module_is_forgotten_and_one_that_was_never_applied_is_not_undone() {
    let mut world = World::new();
    for _ in 0..6 {
        world.undo(None);
    }
    let objects = shared(&[("v1", "ConfigMap", "n", "b")]);
    let other = Applied::before(&objects, None, None, &objects.digest);
    world.repairs.keep(&other, world.now);
    assert_eq!(world.repairs, Repairs::default());
    assert!(world.repairs.note(&[Seen::Missing], &other, &live([]), PAUSE, world.now).is_empty());
}
