use std::{cell::Cell, collections::BTreeMap};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(130);

/// One runtime whose agent runs since the start, as one process sees it.
struct Bench {
    contacts: Contacts,
    kyma: Key,
    start: Instant,
    marks: Cell<u64>,
    /// What the status says.
    said: Cell<Option<WatchState>>,
}

impl Bench {
    fn new(said: Option<WatchState>) -> Bench {
        Bench {
            contacts: Contacts::new(INTERVAL),
            kyma: Key::new("kcp-system", "one"),
            start: Instant::now(),
            marks: Cell::new(0),
            said: Cell::new(said),
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + SECOND * u32::try_from(seconds).unwrap()
    }

    /// A pass at this second: what it reports, and what users are told.
    fn pass(&self, seconds: u64) -> (WatchState, Option<News>) {
        let result = self.contacts.report(&self.kyma, self.start, self.said.get(), self.at(seconds));
        // As a condition, which has one reason for both.
        self.said.set(WatchState::of_reason(result.0.reason()));
        result
    }

    /// The marks that are sent at this second, and whether a pass is asked for.
    fn due(&self, seconds: u64) -> (Vec<u64>, bool) {
        let number = || {
            self.marks.set(self.marks.get() + 1);
            self.marks.get()
        };
        let due = self.contacts.due(self.at(seconds), Some(10), number);
        (due.probes.iter().map(|probe| probe.mark).collect(), !due.news.is_empty())
    }

    fn connects(&self, seconds: u64) {
        self.contacts.probe(&self.kyma, self.at(seconds));
    }

    fn echoes(&self, mark: u64, seconds: u64) -> bool {
        self.contacts.echo(&self.kyma, mark, self.at(seconds))
    }

    fn is_proven(&self, seconds: u64) -> bool {
        self.contacts.is_proven(&self.kyma, self.at(seconds))
    }

    /// An agent that is heard: its first mark came back after two seconds.
    fn heard() -> Bench {
        let bench = Bench::new(None);
        bench.pass(0);
        bench.connects(1);
        assert_eq!(bench.due(1), (vec![1], true));
        bench.echoes(1, 2);
        assert_eq!(bench.pass(2), (WatchState::Heard, None));
        bench
    }
}

#[test]
fn an_agent_is_heard_once_a_mark_has_come_back() {
    let bench = Bench::new(None);
    assert_eq!(bench.pass(0), (WatchState::Awaited, None));
    assert_eq!(bench.due(1), (vec![], false), "an agent that has not connected is not probed");
    bench.connects(2);
    assert_eq!(bench.due(2), (vec![1], true));
    assert_eq!(bench.due(3), (vec![], false), "a pass is asked for once");
    assert_eq!(bench.pass(3), (WatchState::Unproven, None), "that it connects says nothing of the API server");
    assert!(!bench.is_proven(3));
    assert!(!bench.echoes(7, 3), "a mark that nobody sent");
    assert!(!bench.is_proven(3));
    assert!(!bench.echoes(1, 3), "it came back at once, so nothing was lost");
    assert!(bench.is_proven(3));
    assert_eq!(bench.due(4), (vec![], true));
    assert_eq!(bench.pass(4), (WatchState::Heard, None));
    assert_eq!(bench.due(3 + 129), (vec![], false));
    bench.connects(130);
    assert_eq!(bench.due(3 + 130), (vec![2], false), "the next probe");
}

#[test]
fn an_agent_that_the_api_server_does_not_reach_is_deaf_within_three_minutes() {
    let bench = Bench::heard();
    // The path breaks just after the mark came back. The agent still connects.
    let mut sent = Vec::new();
    for second in 3..=180 {
        if second % 60 == 0 {
            bench.connects(second);
        }
        let (marks, is_news) = bench.due(second);
        sent.extend(marks.iter().map(|mark| (*mark, second)));
        if is_news {
            assert_eq!(second, 132 + 25, "the third mark is lost");
            break;
        }
        assert_eq!(bench.pass(second), (WatchState::Heard, None), "{second}");
    }
    assert_eq!(sent, [(2, 132), (2, 141), (2, 150)]);
    assert_eq!(bench.pass(157), (WatchState::Deaf, Some(News::Broken)));
    assert!(!bench.is_proven(157), "so each resync checks the runtime");
    assert_eq!(bench.pass(158), (WatchState::Deaf, None), "users are told once");
    // Further probes are rare.
    assert_eq!(bench.due(179), (vec![], false));
    assert_eq!(bench.due(180), (vec![2], false));
    bench.connects(200);
    assert!(bench.echoes(2, 201), "changes may have been lost, so all objects are checked");
    assert!(bench.is_proven(201));
    assert_eq!(bench.due(202), (vec![], true));
    assert_eq!(bench.pass(202), (WatchState::Heard, Some(News::Restored)));
    assert_eq!(bench.pass(203), (WatchState::Heard, None));
}

#[test]
fn one_lost_probe_is_no_alarm_but_a_reason_to_check() {
    let bench = Bench::heard();
    bench.connects(130);
    assert_eq!(bench.due(132), (vec![2], false));
    assert_eq!(bench.due(141), (vec![2], false));
    assert!(bench.echoes(2, 142));
    assert_eq!(bench.due(143), (vec![], false));
    assert_eq!(bench.pass(143), (WatchState::Heard, None));
}

#[test]
fn an_agent_that_does_not_connect_is_silent_within_three_minutes() {
    let bench = Bench::heard();
    assert_eq!(bench.due(2 + 162), (vec![2], false));
    assert_eq!(bench.due(2 + 163), (vec![], true));
    assert_eq!(bench.pass(165), (WatchState::Silent, Some(News::Broken)));
    assert!(!bench.is_proven(165));
    assert_eq!(bench.due(170), (vec![], false), "it is not probed");
    bench.connects(180);
    assert!(!bench.is_proven(180), "a former mark proves nothing");
    let (marks, is_news) = bench.due(180);
    assert!(is_news);
    assert_eq!(bench.pass(180), (WatchState::Unproven, None));
    bench.echoes(marks[0], 181);
    assert_eq!(bench.pass(181), (WatchState::Heard, Some(News::Restored)));
}

#[test]
fn an_agent_that_is_gone_is_silent_and_not_deaf_before() {
    let bench = Bench::heard();
    let mut news = Vec::new();
    for second in 3..=200 {
        let (_, is_news) = bench.due(second);
        if is_news {
            news.push((second, bench.pass(second)));
        }
        // Its marks are lost from second 157 on.
        assert_eq!(bench.is_proven(second), second < 157, "{second}");
    }
    assert_eq!(news, [(165, (WatchState::Silent, Some(News::Broken)))]);
}

#[test]
fn a_deaf_agent_that_stops_connecting_stays_deaf_until_it_is_silent() {
    let bench = Bench::heard();
    bench.connects(120);
    let mut news = Vec::new();
    for second in 121..=300 {
        if bench.due(second).1 {
            news.push((second, bench.pass(second)));
        }
    }
    let broken = |state| (state, Some(News::Broken));
    assert_eq!(news, [(157, broken(WatchState::Deaf)), (283, broken(WatchState::Silent))]);
}

#[test]
fn an_agent_that_never_connects_is_silent() {
    let bench = Bench::new(None);
    assert_eq!(bench.pass(0), (WatchState::Awaited, None));
    assert_eq!(bench.due(162), (vec![], false));
    assert_eq!(bench.due(163), (vec![], true));
    assert_eq!(bench.pass(163), (WatchState::Silent, Some(News::Broken)));
}

#[test]
fn an_agent_whose_certificate_is_refused_is_not_silent() {
    let bench = Bench::heard();
    let refused = |seconds| bench.contacts.refused(&bench.kyma, bench.at(seconds));
    refused(50);
    assert!(!bench.is_proven(50));
    assert_eq!(bench.due(51), (vec![], true));
    assert_eq!(bench.pass(51), (WatchState::Refused, Some(News::Broken)));
    refused(180);
    assert_eq!(bench.due(181), (vec![], false), "it is not probed");
    assert_eq!(bench.pass(181), (WatchState::Refused, None));
    bench.connects(182);
    assert_ne!(bench.pass(182).0, WatchState::Refused);
    refused(190);
    assert_eq!(bench.pass(190 + 163).0, WatchState::Silent, "it does not connect any more");
}

#[test]
fn a_new_process_believes_what_was_said_until_it_knows_better() {
    for said in [WatchState::Heard, WatchState::Silent, WatchState::Deaf, WatchState::Refused] {
        let bench = Bench::new(Some(said));
        assert_eq!(bench.pass(0), (said, None), "and tells it to nobody again");
        assert!(!bench.is_proven(0));
        assert_eq!(bench.due(1), (vec![], false));
        bench.connects(2);
        let (marks, _) = bench.due(3);
        assert_eq!(marks.len(), 1, "{said:?}");
        bench.echoes(marks[0], 4);
        let restored = (said != WatchState::Heard).then_some(News::Restored);
        assert_eq!(bench.pass(4), (WatchState::Heard, restored), "{said:?}");
    }
}

#[test]
fn a_probe_that_could_not_be_sent_says_nothing() {
    let bench = Bench::heard();
    for second in [132, 262, 392] {
        bench.connects(second - 10);
        let (marks, _) = bench.due(second);
        let [mark] = marks[..] else { panic!("{second}: {marks:?}") };
        bench.contacts.unsent(&Probe { kyma: bench.kyma.clone(), mark }, bench.at(second));
        assert_eq!(bench.pass(second + 60).0, WatchState::Heard);
    }
}

#[test]
fn a_runtime_without_such_an_agent_is_not_probed() {
    let bench = Bench::heard();
    bench.contacts.rest(&bench.kyma);
    assert_eq!(bench.due(200), (vec![], false));
    let bench = Bench::new(None);
    bench.pass(0);
    bench.contacts.event(&bench.kyma, bench.at(1));
    assert_eq!(bench.due(2), (vec![], false), "an agent of another program");
}

#[test]
fn probes_of_all_runtimes_have_a_rate_and_those_that_waited_longest_come_first() {
    let contacts = Contacts::new(INTERVAL);
    let start = Instant::now();
    let kymas: Vec<Key> = (0..25).map(|number| Key::new("kcp-system", &format!("k{number:02}"))).collect();
    for kyma in &kymas {
        contacts.report(kyma, start, None, start);
        contacts.probe(kyma, start);
    }
    let mut probed = Vec::new();
    for (second, expected) in [(1, 10), (2, 10), (3, 5), (4, 0)] {
        let due = contacts.due(start + SECOND * second, Some(10), || 1);
        assert_eq!(due.probes.len(), expected, "{second}");
        probed.extend(due.probes.into_iter().map(|probe| probe.kyma));
    }
    assert_eq!(probed, kymas);
}

/// A fleet whose paths break at one moment.
struct Fleet {
    runtimes: usize,
    interval: Duration,
    /// As a user sets it.
    probes_max: Option<usize>,
    /// How many paths break, from the first runtime on.
    broken: usize,
    /// Since how many seconds the fleet works when they break.
    healthy_for: u32,
    /// How long it is watched then.
    watched_for: u32,
}

/// What is seen of a [`Fleet`].
#[derive(Debug, Default)]
struct Watched {
    /// When the last broken path is reported as deaf, in seconds after they break.
    all_deaf_after: u32,
    /// The greatest number of probes in a second.
    most: usize,
    /// The longest time between two probes of a runtime whose path works, in seconds.
    longest: u32,
}

impl Fleet {
    const DEFAULT: Fleet =
        Fleet { runtimes: 1, interval: INTERVAL, probes_max: None, broken: 1, healthy_for: 300, watched_for: 300 };

    /// A second passes at a time. Marks come back after one second, and each agent connects once a minute, or twice an
    /// interval if that is shorter.
    fn watch(&self) -> Watched {
        let contacts = Contacts::new(self.interval);
        let start = Instant::now();
        let kymas: Vec<Key> =
            (0..self.runtimes).map(|number| Key::new("kcp-system", &format!("k{number:05}"))).collect();
        let position: BTreeMap<&Key, usize> = kymas.iter().enumerate().map(|(index, kyma)| (kyma, index)).collect();
        for kyma in &kymas {
            contacts.report(kyma, start, Some(WatchState::Heard), start);
        }
        let (marks, mut echoes, mut last) = (Cell::new(0), Vec::new(), vec![None; self.runtimes]);
        let (mut watched, mut deaf) = (Watched::default(), BTreeMap::new());
        let period = usize::try_from(self.interval.as_secs() / 2).unwrap().min(60);
        for second in 0..self.healthy_for + self.watched_for {
            let now = start + SECOND * second;
            let is_broken = |index: usize| self.healthy_for <= second && index < self.broken;
            for kyma in kymas.iter().skip(usize::try_from(second).unwrap() % period).step_by(period) {
                contacts.probe(kyma, now);
            }
            for Probe { kyma, mark } in std::mem::take(&mut echoes) {
                contacts.echo(&kyma, mark, now);
            }
            let due = contacts.due(now, self.probes_max, || marks.replace(marks.get() + 1));
            watched.most = watched.most.max(due.probes.len());
            for kyma in due.news {
                let (state, _) = contacts.report(&kyma, start, Some(WatchState::Heard), now);
                let index = position[&kyma];
                assert!(state != WatchState::Deaf || is_broken(index), "{kyma} after {second} s");
                if state == WatchState::Deaf {
                    deaf.entry(index).or_insert(second - self.healthy_for);
                }
            }
            for probe in due.probes {
                let index = position[&probe.kyma];
                let before: Option<u32> = last[index].replace(second);
                if is_broken(index) {
                    continue;
                }
                watched.longest = watched.longest.max(second - before.unwrap_or_default());
                echoes.push(probe);
            }
        }
        let never: Vec<usize> = (0..self.broken).filter(|index| !deaf.contains_key(index)).take(3).collect();
        assert!(never.is_empty(), "never found to be deaf: {never:?}");
        watched.all_deaf_after = deaf.into_values().max().unwrap_or_default();
        watched
    }
}

/// However large the fleet is, however many paths break at once, and whenever.
#[test]
fn deaf_agents_are_found_within_three_minutes_in_a_fleet_of_any_size() {
    for (runtimes, broken, most) in [
        (1, 1, 12),
        (130, 1, 12),
        (650, 150, 21),
        (1_300, 1_300, 39),
        (5_000, 1, 147),
        (5_000, 500, 147),
        (5_000, 5_000, 147),
        (12_000, 12_000, 300),
    ] {
        for healthy_for in [260, 325] {
            let fleet = Fleet { runtimes, broken, healthy_for, watched_for: 185, ..Fleet::DEFAULT };
            let watched = fleet.watch();
            let what = format!("{broken} of {runtimes} after {healthy_for} s: {watched:?}");
            assert!(watched.all_deaf_after <= 165, "{what}");
            assert!(watched.most <= most, "{what}");
            assert!(watched.longest <= 135, "those whose path works are not late: {what}");
        }
    }
}

/// A short interval is a wish: the bound of all probes holds.
#[test]
fn a_short_interval_has_an_end_of_probes() {
    let fleet = Fleet { runtimes: 5_000, interval: SECOND * 10, broken: 500, ..Fleet::DEFAULT };
    let watched = Fleet { healthy_for: 120, watched_for: 120, ..fleet }.watch();
    assert!(watched.most <= 300, "{watched:?}");
    assert!(watched.longest <= 55, "100 usual probes in a second: {watched:?}");
}

/// Those that are deaf are probed every half minute, as far as the others leave room, until their paths work again.
#[test]
fn deaf_agents_are_probed_while_all_others_are_as_well() {
    let fleet = Fleet { runtimes: 5_000, broken: 2_500, watched_for: 900, ..Fleet::DEFAULT };
    let watched = fleet.watch();
    assert!(watched.longest <= 135 && watched.most <= 147, "{watched:?}");
}

/// What a user sets is the bound, and what is lost is sent again before all others.
#[test]
fn deaf_agents_are_found_as_soon_as_a_smaller_bound_allows() {
    let fleet = |runtimes, broken| Fleet {
        runtimes,
        broken,
        probes_max: Some(1),
        healthy_for: 1_200,
        watched_for: 1_600,
        ..Fleet::DEFAULT
    };
    let watched = fleet(130, 1).watch();
    assert!(watched.all_deaf_after <= 3 * 60 && watched.most == 1, "{watched:?}");
    let watched = fleet(500, 1).watch();
    assert!(watched.all_deaf_after <= 9 * 60 && watched.most == 1, "{watched:?}");
    // Three probes for each.
    let watched = fleet(500, 500).watch();
    assert!((1_400..=1_550).contains(&watched.all_deaf_after) && watched.most == 1, "{watched:?}");
}

#[test]
fn a_runtime_that_is_gone_is_forgotten() {
    let bench = Bench::heard();
    bench.contacts.forget(&bench.kyma);
    assert!(bench.contacts.known.lock().is_empty());
}
