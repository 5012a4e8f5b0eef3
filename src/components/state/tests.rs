use tidegate_core::{
    component::{Layer, LayerKind, Module},
    plan::ComponentRecord,
};
use tidegate_process::retry::Class;

use super::*;
use crate::config::{Registry, RegistryAccess};

fn component(name: &str) -> Component {
    Component::new(&format!("example.org/module/{name}"), "1.0.0").unwrap()
}

fn kyma(name: &str) -> Key {
    Key::new("kcp-system", name)
}

fn digest(of: u8) -> BlobDigest {
    BlobDigest::of(&[of])
}

/// What a tag names that leads to the manifest with this number.
fn published(number: u8) -> Arc<Published> {
    let layer = Layer { digest: digest(100 + number), kind: LayerKind::Yaml };
    Arc::new(Published {
        repo: "r.example.com".to_owned(),
        module: Module { layer, localized_images: Vec::new() },
        record: ComponentRecord { manifest: Some(digest(number)), read: None },
    })
}

fn layer() -> LayerOf {
    LayerOf::of(&component("a"), &published(1))
}

fn failed(class: Class, is_of_host: bool) -> Outcome {
    Outcome::Failed(Failure { message: format!("{class:?}"), class, retry_after: None, is_of_host })
}

fn registry(component: Option<&str>) -> Registry {
    Registry {
        components: component.map(|name| vec![name.to_owned()]),
        access: RegistryAccess::Anonymous("r.example.com".parse().unwrap()),
        subpath: String::new(),
        ca: None,
        token_hosts: Vec::new(),
    }
}

/// A state with the components of some channels, and its clock.
struct World {
    state: State,
    now: Instant,
}

impl World {
    fn new(names: &[&str]) -> World {
        let now = Instant::now();
        let mut state = State::new(Routes::to(&[registry(Some("other.org")), registry(None)]));
        let named = names.iter().map(|name| (component(name), [kyma(&format!("{name}-1.0.0"))].into()));
        state.follow(named.collect(), now);
        World { state, now }
    }

    fn next(&mut self) -> Next {
        self.state.next(self.now)
    }

    #[track_caller]
    fn starts(&mut self, expected: &Job) {
        assert_eq!(self.next(), Next::Start(expected.clone()));
    }

    fn end(&mut self, job: &Job, outcome: Outcome) -> Effects {
        self.state.end(job, outcome, self.now, 0.0)
    }

    /// Lets time pass until something is due, and returns how long that took.
    #[track_caller]
    fn waits(&mut self) -> Duration {
        let Next::Wait(until) = self.next() else { panic!("{:?}", self.next()) };
        let passed = until - self.now;
        self.now = until;
        passed
    }

    fn answer(&self, name: &str) -> Option<Answer> {
        self.state.answers().get(&component(name)).cloned()
    }
}

#[test]
fn each_component_is_looked_up_once_for_all_who_wait() {
    let mut world = World::new(&["a", "b"]);
    let job = Job::Find(component("a"));
    world.starts(&job);
    world.starts(&Job::Find(component("b")));
    assert_eq!(world.next(), Next::Idle);
    assert!(!world.state.is_awaited(), "no runtime has asked yet");
    for name in ["one", "two"] {
        assert!(!world.state.want(&kyma(name), &component("a"), &Answer::Pending, world.now), "{name} waits");
    }
    assert!(!world.state.want(&kyma("three"), &component("b"), &Answer::Pending, world.now));
    let effects = world.end(&job, Outcome::Found(published(1)));
    assert!(world.state.is_awaited(), "one of two is left");
    world.end(&Job::Find(component("b")), Outcome::Found(published(1)));
    assert!(!world.state.is_awaited());
    assert_eq!(effects.wake.into_keys().collect::<Vec<_>>(), [kyma("one"), kyma("two")]);
    assert_eq!(world.answer("a"), Some(Answer::Found(published(1))));
    // A pass that began before the answer does not wait for what is there.
    assert!(world.state.want(&kyma("one"), &component("a"), &Answer::Pending, world.now));
}

#[test]
fn a_failure_is_told_once_and_tried_again_later() {
    let mut world = World::new(&["a"]);
    let job = Job::Find(component("a"));
    assert!(!world.state.want(&kyma("one"), &component("a"), &Answer::Pending, world.now));
    let mut delays = Vec::new();
    for attempt in 1..=3 {
        world.starts(&job);
        let effects = world.end(&job, failed(Class::Transient, false));
        assert_eq!((effects.wake.len(), effects.failed.is_some()), if attempt == 1 { (1, true) } else { (0, false) });
        assert_eq!(world.answer("a"), Some(Answer::Failed("Transient".to_owned())));
        delays.push(world.waits());
    }
    assert!(delays.is_sorted() && delays[0] < delays[2], "{delays:?}");
    world.starts(&job);
    let effects = world.end(&job, failed(Class::Stalled, false));
    assert_eq!(effects.wake.len(), 1, "another reason is news");
    assert_eq!(world.waits(), Duration::from_secs(300));
    // New credentials may help at once.
    world.now -= Duration::from_secs(200);
    world.state.access_changed(RegistryIndex(0), world.now);
    assert!(matches!(world.next(), Next::Wait(_)), "those of another registry do not");
    world.state.access_changed(RegistryIndex(1), world.now);
    world.starts(&job);
}

#[test]
fn a_read_that_fails_for_access_of_before_is_tried_again_at_once() {
    let mut world = World::new(&["a"]);
    let job = Job::Find(component("a"));
    world.starts(&job);
    world.state.access_changed(RegistryIndex(1), world.now);
    assert_eq!(world.end(&job, failed(Class::Stalled, true)), Effects::default(), "it says nothing");
    world.starts(&job);
    world.end(&job, failed(Class::Stalled, true));
    assert!(matches!(world.next(), Next::Wait(_)), "now it does");
}

#[test]
fn a_registry_that_is_away_is_asked_by_one_read_at_a_time() {
    let names = ["a", "b", "c"];
    let mut world = World::new(&names);
    for name in names {
        let job = Job::Find(component(name));
        world.starts(&job);
        world.end(&job, failed(Class::Transient, true));
    }
    world.waits();
    let Next::Start(probe) = world.next() else { panic!("the registry is asked again") };
    world.now += Duration::from_secs(60);
    assert_eq!(world.next(), Next::Idle, "the others wait for its answer");
    // What was never tried says why it waits.
    assert!(!world.state.want(&kyma("one"), &component("new"), &Answer::Pending, world.now));
    world.starts(&Job::Find(component("new")));
    world.end(&probe, Outcome::Found(published(1)));
    let mut started = Vec::new();
    while let Next::Start(job) = world.next() {
        started.push(job);
    }
    assert_eq!(started.len(), 2, "all others at once: {started:?}");
}

#[test]
fn a_registry_that_is_away_holds_up_no_other() {
    let mut world = World::new(&["a"]);
    let there = |number: usize| Component::new(&format!("other.org/module/m{number}"), "1.0.0").unwrap();
    for number in 0..9 {
        world.state.want(&kyma("one"), &there(number), &Answer::Pending, world.now);
    }
    let mut started = Vec::new();
    while let Next::Start(job) = world.next() {
        started.push(job);
    }
    assert_eq!(started.len(), 1 + READS_MAX, "few at a time of one, and what the other has: {started:?}");
    assert!(started.contains(&Job::Find(component("a"))));
    world.end(&Job::Find(component("a")), Outcome::Found(published(1)));
    for job in started.iter().filter(|job| job.name().as_str().starts_with("other.org")) {
        world.end(job, failed(Class::Transient, true));
    }
    while let Next::Start(job) = world.next() {
        world.end(&job, failed(Class::Transient, true));
    }
    world.now += CHECK_INTERVAL;
    let mut started = Vec::new();
    while let Next::Start(job) = world.next() {
        started.push(job);
    }
    assert_eq!(started.len(), 2, "one asks again: {started:?}");
    assert!(started.contains(&Job::Check(component("a"))), "{started:?}");
}

#[test]
fn a_component_that_no_registry_has_is_not_read() {
    let mut state = State::new(Routes::to(&[registry(Some("other.org"))]));
    let now = Instant::now();
    state.follow([(component("a"), BTreeSet::new())].into(), now);
    let failed = Answer::Failed(NO_REGISTRY.to_owned());
    assert_eq!(state.answers().get(&component("a")), Some(&failed));
    assert!(state.want(&kyma("one"), &component("b"), &Answer::Pending, now), "there is an answer at once");
    assert!(!state.want(&kyma("one"), &component("b"), &failed, now));
    assert!(state.renew(&kyma("one"), &component("b"), now, now), "nothing is asked");
    let told = state.layer(&kyma("one"), Trigger::Changed, &layer(), now);
    assert_eq!(told, Unavailable::Failed { message: NO_REGISTRY.to_owned(), is_away: false });
    assert_eq!(state.next(now), Next::Idle);
}

#[test]
fn a_moved_tag_is_reported_once_and_taken_only_on_request() {
    let mut world = World::new(&["a"]);
    let find = Job::Find(component("a"));
    world.starts(&find);
    world.end(&find, Outcome::Found(published(1)));
    assert_eq!(world.waits(), CHECK_INTERVAL);
    let check = Job::Check(component("a"));
    world.starts(&check);
    assert_eq!(world.end(&check, Outcome::Resolved(digest(1))), Effects::default());
    world.waits();
    world.starts(&check);
    let moved = world.end(&check, Outcome::Resolved(digest(2))).moved.expect("it was moved");
    assert_eq!((moved.installed, moved.found), (digest(1), digest(2)));
    assert_eq!(moved.templates, [kyma("a-1.0.0")].into());
    world.waits();
    world.starts(&check);
    assert_eq!(world.end(&check, Outcome::Resolved(digest(2))), Effects::default());
    assert_eq!(world.answer("a"), Some(Answer::Found(published(1))));

    let since = world.now;
    assert!(!world.state.renew(&kyma("one"), &component("a"), since, world.now));
    let renew = Job::Renew(component("a"));
    world.starts(&renew);
    let effects = world.end(&renew, Outcome::Found(published(2)));
    assert_eq!((effects.wake.len(), effects.moved), (1, None));
    assert_eq!(world.answer("a"), Some(Answer::Found(published(2))));
    assert!(world.state.renew(&kyma("one"), &component("a"), since, world.now), "it is handled");
    assert!(!world.state.renew(&kyma("one"), &component("a"), since + Duration::from_secs(1), world.now));
}

#[test]
fn a_request_is_handled_even_if_the_registry_is_away() {
    let mut world = World::new(&["a"]);
    let find = Job::Find(component("a"));
    world.starts(&find);
    world.end(&find, Outcome::Found(published(1)));
    let since = world.now;
    assert!(!world.state.renew(&kyma("one"), &component("a"), since, world.now));
    let renew = Job::Renew(component("a"));
    world.starts(&renew);
    assert_eq!(world.end(&renew, failed(Class::Transient, true)).wake.len(), 1);
    assert!(world.state.renew(&kyma("one"), &component("a"), since, world.now));
    assert_eq!(world.answer("a"), Some(Answer::Found(published(1))), "what is known stays");
}

#[test]
fn a_manifest_with_another_digest_shows_a_moved_tag() {
    for early in [true, false] {
        let mut world = World::new(&["a"]);
        if early {
            assert_eq!(world.state.compare(&component("a"), digest(1)), None, "nothing is known yet");
        }
        let find = Job::Find(component("a"));
        world.starts(&find);
        assert_eq!(world.end(&find, Outcome::Found(published(2))).moved.is_some(), early);
        assert_eq!(world.state.compare(&component("a"), digest(2)), None);
        assert_eq!(world.state.compare(&component("a"), digest(1)).is_some(), !early, "once");
        assert_eq!(world.state.compare(&component("a"), digest(1)), None, "once");
    }
}

#[test]
fn a_layer_is_read_while_a_runtime_waits_for_it() {
    let mut world = World::new(&[]);
    let told = world.state.layer(&kyma("one"), Trigger::Drift, &layer(), world.now);
    assert_eq!(told, Unavailable::Pending);
    let job = Job::Read(layer());
    world.starts(&job);
    assert!(world.state.is_awaited());
    assert_eq!(world.state.layer(&kyma("two"), Trigger::Changed, &layer(), world.now), Unavailable::Pending);
    assert_eq!(world.next(), Next::Idle, "it is read once");
    let effects = world.end(&job, failed(Class::Transient, false));
    assert_eq!(effects.wake, [(kyma("one"), Trigger::Drift), (kyma("two"), Trigger::Changed)].into());
    assert!(!world.state.is_awaited(), "the failure is an answer");
    let told = world.state.layer(&kyma("one"), Trigger::Changed, &layer(), world.now);
    assert_eq!(told, Unavailable::Failed { message: "Transient".to_owned(), is_away: false });
    assert!(matches!(world.next(), Next::Wait(_)), "a pass does not shorten the delay");
    world.waits();
    world.starts(&job);
    assert_eq!(world.end(&job, Outcome::Read).wake.len(), 2);

    // A runtime that no longer waits is not woken, and a layer for which no runtime waits is not read.
    world.state.layer(&kyma("one"), Trigger::Changed, &layer(), world.now);
    world.starts(&job);
    world.end(&job, failed(Class::Transient, false));
    world.state.release(&kyma("one"));
    world.state.follow(BTreeMap::new(), world.now);
    assert_eq!(world.next(), Next::Idle);
}

/// A Manifest names the layer that a look-up of its component reads as well.
#[test]
fn a_runtime_that_waits_for_a_layer_is_woken_when_the_look_up_of_its_component_has_read_it() {
    for is_read_twice in [false, true] {
        let mut world = World::new(&["a"]);
        let find = Job::Find(component("a"));
        world.starts(&find);
        assert_eq!(world.state.layer(&kyma("one"), Trigger::Changed, &layer(), world.now), Unavailable::Pending);
        if is_read_twice {
            world.starts(&Job::Read(layer()));
        }
        let of_layer = world.state.layer_ended(layer(), None, world.now, 0.0);
        let effects = world.end(&find, Outcome::Found(published(1))).with_layer(of_layer);
        assert_eq!(effects.wake, [(kyma("one"), Trigger::Changed)].into());
        assert_eq!(world.end(&Job::Read(layer()), Outcome::Read), Effects::default(), "once");
    }
}

#[test]
fn a_runtime_that_waits_for_a_layer_hears_that_the_look_up_of_its_component_could_not_read_it() {
    let mut world = World::new(&["a"]);
    let find = Job::Find(component("a"));
    world.starts(&find);
    assert_eq!(world.state.layer(&kyma("one"), Trigger::Changed, &layer(), world.now), Unavailable::Pending);
    let Outcome::Failed(failure) = failed(Class::Transient, false) else { unreachable!() };
    let of_layer = world.state.layer_ended(layer(), Some(failure), world.now, 0.0);
    let effects = world.end(&find, Outcome::Found(published(1))).with_layer(of_layer);
    assert_eq!(effects.wake, [(kyma("one"), Trigger::Changed)].into());
    assert_eq!(effects.failed, Some("Transient".to_owned()));
}
