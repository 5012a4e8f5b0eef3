use super::*;

/// What happens, in order. A fetch is named after its host and a number: `good/1`.
enum Step {
    /// These are requested.
    Asks(&'static [&'static str]),
    /// So many sources of a host are requested.
    Many(&'static str, usize),
    /// These start now, in this order, and nothing else does.
    Starts(&'static [&'static str]),
    /// So many start now.
    Count(usize),
    /// The server answers these.
    Answers(&'static [&'static str]),
    /// The server does not answer these before their time-out.
    TimesOut(&'static [&'static str]),
    /// All running fetches from a host time out.
    AllTimeOut(&'static str),
    /// All running fetches from a host are answered.
    AllAnswer(&'static str),
    /// The user changes or deletes these.
    Abandons(&'static [&'static str]),
    /// So much time passes.
    Passes(Duration),
    /// A fetch may start in this time although no other fetch ends.
    NextStart(Option<Duration>),
}

use Step::{Abandons, AllAnswer, AllTimeOut, Answers, Asks, Count, Many, NextStart, Passes, Starts, TimesOut};

#[test]
fn a_host_that_has_not_answered_yet_gets_two_places() {
    check(&[
        Many("bad", 80),
        Starts(&["bad/0", "bad/1"]),
        Asks(&["good/0", "good/1", "good/2"]),
        Starts(&["good/0", "good/1"]),
        Answers(&["good/0"]),
        Starts(&["good/2"]),
    ]);
}

#[test]
fn a_host_that_answers_gets_more_places_but_not_all() {
    check(&[
        Asks(&["good/0"]),
        Starts(&["good/0"]),
        Answers(&["good/0"]),
        Many("good", 40),
        Count(HOST_PLACES_MAX),
        Asks(&["other/0"]),
        Starts(&["other/0"]),
        AllAnswer("good"),
        Count(HOST_PLACES_MAX),
    ]);
}

#[test]
fn a_host_that_stops_answering_loses_its_places_until_it_answers_again() {
    check(&[
        Asks(&["git/0"]),
        Starts(&["git/0"]),
        Answers(&["git/0"]),
        Many("git", 20),
        Count(HOST_PLACES_MAX),
        AllTimeOut("git"),
        // Sources that have not been tried since then come first.
        Starts(&["git/8", "git/9"]),
        Answers(&["git/8"]),
        Count(HOST_PLACES_MAX - 1),
    ]);
}

#[test]
fn one_silent_repository_leaves_the_places_of_its_host_to_the_others() {
    check(&[
        Asks(&["git/0", "git/1"]),
        Starts(&["git/0", "git/1"]),
        TimesOut(&["git/0"]),
        Answers(&["git/1"]),
        Asks(&["git/0", "git/1", "git/2", "git/3"]),
        Starts(&["git/1", "git/2", "git/3", "git/0"]),
    ]);
}

#[test]
fn a_good_repository_on_a_silent_host_does_not_queue_behind_the_bad_ones() {
    check(&[
        Asks(&["git/0", "git/1", "git/2"]),
        Starts(&["git/0", "git/1"]),
        TimesOut(&["git/0", "git/1"]),
        Starts(&["git/2"]),
        Answers(&["git/2"]),
        Asks(&["git/0", "git/1"]),
        Starts(&["git/0", "git/1"]),
        TimesOut(&["git/0", "git/1"]),
        Asks(&["git/3", "git/4", "git/0", "git/1", "git/2"]),
        Starts(&["git/3", "git/4"]),
        TimesOut(&["git/3", "git/4"]),
        Starts(&["git/2", "git/0"]),
    ]);
}

#[test]
fn what_did_not_answer_comes_after_what_has_not_been_tried() {
    check(&[
        Asks(&["bad/0"]),
        Starts(&["bad/0"]),
        TimesOut(&["bad/0"]),
        Asks(&["bad/0", "new/0"]),
        Starts(&["new/0", "bad/0"]),
    ]);
}

#[test]
fn many_hosts_that_never_answer_leave_places_for_others() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    for host in 0..40 {
        lanes.request(key(&format!("bad{host}/0")), host_of(&format!("bad{host}/0")));
    }
    let started: Vec<Key> = std::iter::from_fn(|| lanes.start(now)).collect();
    assert_eq!(started.len(), NEW_PLACES_MAX);
    started.iter().for_each(|source| lanes.end(source, Ended::Silent));
    // The others of the forty take their turn, and those that failed take few places beside them.
    for source in &started {
        lanes.request(source.clone(), host_of(source.name()));
    }
    let started: Vec<Key> = std::iter::from_fn(|| lanes.start(now)).collect();
    assert_eq!(started.len(), NEW_PLACES_MAX + SILENT_PLACES_MAX);
    lanes.request(key("good/0"), host_of("good/0"));
    assert_eq!(lanes.start(now), None, "the first contact waits for its turn");
    lanes.hosts.insert(host_of("good/0"), Ended::Answered);
    assert_eq!(lanes.start(now), Some(key("good/0")), "a host that answers does not");
}

#[test]
fn a_new_host_that_does_not_answer_gives_up_its_place_after_five_seconds() {
    check(&[
        // Eight hosts have all places of new hosts.
        Many("a", 2),
        Many("b", 2),
        Many("c", 2),
        Many("d", 2),
        Many("e", 2),
        Many("f", 2),
        Many("g", 2),
        Many("h", 2),
        Count(NEW_PLACES_MAX),
        NextStart(None),
        Asks(&["good/0", "a/2"]),
        Starts(&[]),
        NextStart(Some(SILENT_AFTER)),
        Passes(SILENT_AFTER - Duration::from_millis(1)),
        Starts(&[]),
        NextStart(Some(Duration::from_millis(1))),
        Passes(Duration::from_millis(1)),
        // A host with two fetches that continue without a place gets no third one.
        Starts(&["good/0"]),
        NextStart(Some(SILENT_AFTER)),
        Answers(&["good/0", "a/1"]),
        Starts(&["a/2"]),
        NextStart(None),
    ]);
}

#[test]
fn what_fetches_without_a_place_cost_has_a_limit() {
    let (mut lanes, mut now) = (Lanes::default(), Instant::now());
    for host in 0..LATE_MAX * 2 {
        let name = format!("silent{host}/0");
        lanes.request(key(&name), host_of(&name));
    }
    let mut started = 0;
    for _ in 0..LATE_MAX {
        started += std::iter::from_fn(|| lanes.start(now)).count();
        now += SILENT_AFTER;
    }
    assert_eq!(started, LATE_MAX + NEW_PLACES_MAX);
    assert_eq!(lanes.next_start(now), None, "a start needs an end");
    // They leave the places of other ranks alone.
    lanes.hosts.insert(host_of("good/0"), Ended::Answered);
    lanes.request(key("good/0"), host_of("good/0"));
    assert_eq!(lanes.start(now), Some(key("good/0")));
}

#[test]
fn a_path_on_this_machine_waits_for_no_server() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    for host in 0..60 {
        let name = format!("silent{host}/0");
        lanes.request(key(&name), host_of(&name));
    }
    assert_eq!(std::iter::from_fn(|| lanes.start(now)).count(), NEW_PLACES_MAX);
    lanes.request(key("local/0"), Host("/srv/repository".to_owned()));
    assert_eq!(lanes.start(now), Some(key("local/0")));
}

#[test]
fn all_places_together_have_a_limit() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    for host in 0..10 {
        lanes.hosts.insert(Host(format!("good{host}")), Ended::Answered);
        for number in 0..HOST_PLACES_MAX {
            let name = format!("good{host}/{number}");
            lanes.request(key(&name), host_of(&name));
        }
    }
    assert_eq!(std::iter::from_fn(|| lanes.start(now)).count(), PLACES_MAX);
}

#[test]
fn an_abandoned_fetch_frees_its_place_and_its_turn() {
    check(&[
        Asks(&["git/0", "git/1", "git/2", "git/3"]),
        Starts(&["git/0", "git/1"]),
        Abandons(&["git/0", "git/2"]),
        Starts(&["git/3"]),
        Asks(&["git/0"]),
        Answers(&["git/1"]),
        Starts(&["git/0"]),
    ]);
}

#[test]
fn hosts_without_fetches_are_forgotten_beyond_a_limit() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    for host in 0..=HOSTS_MAX {
        let name = format!("host{host}/0");
        lanes.request(key(&name), host_of(&name));
        let started = lanes.start(now).unwrap();
        lanes.end(&started, Ended::Answered);
    }
    assert!(lanes.hosts.len() <= HOSTS_MAX, "{}", lanes.hosts.len());
}

#[track_caller]
fn check(steps: &[Step]) {
    let (mut lanes, mut now) = (Lanes::default(), Instant::now());
    let starts = |lanes: &mut Lanes, now: Instant| -> Vec<String> {
        std::iter::from_fn(|| lanes.start(now)).map(|key| key.name().to_owned()).collect()
    };
    let of_host = |lanes: &Lanes, host: &str| -> Vec<Key> {
        lanes.running.iter().filter(|(_, running)| running.host.0 == host).map(|(key, _)| key.clone()).collect()
    };
    for (position, step) in steps.iter().enumerate() {
        match step {
            Asks(names) => names.iter().for_each(|name| lanes.request(key(name), host_of(name))),
            Many(host, count) => {
                let names = (0..*count).map(|number| format!("{host}/{number}"));
                names.for_each(|name| lanes.request(key(&name), host_of(&name)));
            }
            Starts(expected) => assert_eq!(starts(&mut lanes, now), *expected, "step {position}"),
            Count(expected) => assert_eq!(starts(&mut lanes, now).len(), *expected, "step {position}"),
            Answers(names) => names.iter().for_each(|name| lanes.end(&key(name), Ended::Answered)),
            TimesOut(names) => names.iter().for_each(|name| lanes.end(&key(name), Ended::Silent)),
            AllTimeOut(host) => of_host(&lanes, host).iter().for_each(|key| lanes.end(key, Ended::Silent)),
            AllAnswer(host) => of_host(&lanes, host).iter().for_each(|key| lanes.end(key, Ended::Answered)),
            Abandons(names) => names.iter().for_each(|name| lanes.abandon(&key(name))),
            Passes(time) => now += *time,
            NextStart(expected) => {
                let found = lanes.next_start(now).map(|at| at.duration_since(now));
                assert_eq!(found, *expected, "step {position}");
            }
        }
    }
}

fn key(name: &str) -> Key {
    Key::new("kcp-system", name)
}

fn host_of(name: &str) -> Host {
    Host(name.split('/').next().unwrap().to_owned())
}
