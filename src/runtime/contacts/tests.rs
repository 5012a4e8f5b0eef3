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
    said: Cell<Option<Way>>,
}

impl Bench {
    fn new(said: Option<Way>) -> Bench {
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
    fn pass(&self, seconds: u64) -> (Way, Option<News>) {
        let result = self.contacts.report(&self.kyma, self.start, self.said.get(), self.at(seconds));
        // As a condition, which has one reason for both.
        self.said.set(Way::of_reason(result.0.reason()));
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
        assert_eq!(bench.pass(2), (Way::Heard, None));
        bench
    }
}

#[test]
fn an_agent_is_heard_once_a_mark_has_come_back() {
    let bench = Bench::new(None);
    assert_eq!(bench.pass(0), (Way::Awaited, None));
    assert_eq!(bench.due(1), (vec![], false), "an agent that has not connected is not probed");
    bench.connects(2);
    assert_eq!(bench.due(2), (vec![1], true));
    assert_eq!(bench.due(3), (vec![], false), "a pass is asked for once");
    assert_eq!(bench.pass(3), (Way::Unproven, None), "that it connects says nothing of the API server");
    assert!(!bench.is_proven(3));
    assert!(!bench.echoes(7, 3), "a mark that nobody sent");
    assert!(!bench.is_proven(3));
    assert!(!bench.echoes(1, 3), "it came back at once, so nothing was lost");
    assert!(bench.is_proven(3));
    assert_eq!(bench.due(4), (vec![], true));
    assert_eq!(bench.pass(4), (Way::Heard, None));
    assert_eq!(bench.due(3 + 129), (vec![], false));
    bench.connects(130);
    assert_eq!(bench.due(3 + 130), (vec![2], false), "the next probe");
}

#[test]
fn an_agent_that_the_api_server_does_not_reach_is_deaf_within_three_minutes() {
    let bench = Bench::heard();
    // The way breaks just after the mark came back. The agent still connects.
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
        assert_eq!(bench.pass(second), (Way::Heard, None), "{second}");
    }
    assert_eq!(sent, [(2, 132), (2, 141), (2, 150)]);
    assert_eq!(bench.pass(157), (Way::Deaf, Some(News::Broken)));
    assert!(!bench.is_proven(157), "so each resync checks the runtime");
    assert_eq!(bench.pass(158), (Way::Deaf, None), "users are told once");
    // Further probes are rare.
    assert_eq!(bench.due(179), (vec![], false));
    assert_eq!(bench.due(180), (vec![2], false));
    bench.connects(200);
    assert!(bench.echoes(2, 201), "changes may have been lost, so all objects are checked");
    assert!(bench.is_proven(201));
    assert_eq!(bench.due(202), (vec![], true));
    assert_eq!(bench.pass(202), (Way::Heard, Some(News::Restored)));
    assert_eq!(bench.pass(203), (Way::Heard, None));
}

#[test]
fn one_lost_probe_is_no_alarm_but_a_reason_to_check() {
    let bench = Bench::heard();
    bench.connects(130);
    assert_eq!(bench.due(132), (vec![2], false));
    assert_eq!(bench.due(141), (vec![2], false));
    assert!(bench.echoes(2, 142));
    assert_eq!(bench.due(143), (vec![], false));
    assert_eq!(bench.pass(143), (Way::Heard, None));
}

#[test]
fn an_agent_that_does_not_connect_is_silent_within_three_minutes() {
    let bench = Bench::heard();
    assert_eq!(bench.due(2 + 162), (vec![2], false));
    assert_eq!(bench.due(2 + 163), (vec![], true));
    assert_eq!(bench.pass(165), (Way::Silent, Some(News::Broken)));
    assert!(!bench.is_proven(165));
    assert_eq!(bench.due(170), (vec![], false), "it is not probed");
    bench.connects(180);
    assert!(!bench.is_proven(180), "a former mark proves nothing");
    let (marks, is_news) = bench.due(180);
    assert!(is_news);
    assert_eq!(bench.pass(180), (Way::Unproven, None));
    bench.echoes(marks[0], 181);
    assert_eq!(bench.pass(181), (Way::Heard, Some(News::Restored)));
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
    assert_eq!(news, [(165, (Way::Silent, Some(News::Broken)))]);
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
    let broken = |way| (way, Some(News::Broken));
    assert_eq!(news, [(157, broken(Way::Deaf)), (283, broken(Way::Silent))]);
}

#[test]
fn an_agent_that_never_connects_is_silent() {
    let bench = Bench::new(None);
    assert_eq!(bench.pass(0), (Way::Awaited, None));
    assert_eq!(bench.due(162), (vec![], false));
    assert_eq!(bench.due(163), (vec![], true));
    assert_eq!(bench.pass(163), (Way::Silent, Some(News::Broken)));
}

#[test]
fn an_agent_whose_certificate_is_refused_is_not_silent() {
    let bench = Bench::heard();
    let refused = |seconds| bench.contacts.refused(&bench.kyma, bench.at(seconds));
    refused(50);
    assert!(!bench.is_proven(50));
    assert_eq!(bench.due(51), (vec![], true));
    assert_eq!(bench.pass(51), (Way::Refused, Some(News::Broken)));
    refused(180);
    assert_eq!(bench.due(181), (vec![], false), "it is not probed");
    assert_eq!(bench.pass(181), (Way::Refused, None));
    bench.connects(182);
    assert_ne!(bench.pass(182).0, Way::Refused);
    refused(190);
    assert_eq!(bench.pass(190 + 163).0, Way::Silent, "it does not connect any more");
}

#[test]
fn a_new_process_believes_what_was_said_until_it_knows_better() {
    for said in [Way::Heard, Way::Silent, Way::Deaf, Way::Refused] {
        let bench = Bench::new(Some(said));
        assert_eq!(bench.pass(0), (said, None), "and tells it to nobody again");
        assert!(!bench.is_proven(0));
        assert_eq!(bench.due(1), (vec![], false));
        bench.connects(2);
        let (marks, _) = bench.due(3);
        assert_eq!(marks.len(), 1, "{said:?}");
        bench.echoes(marks[0], 4);
        let restored = (said != Way::Heard).then_some(News::Restored);
        assert_eq!(bench.pass(4), (Way::Heard, restored), "{said:?}");
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
        assert_eq!(bench.pass(second + 60).0, Way::Heard);
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

/// How many seconds it takes until a pass is asked for that reports one agent of a fleet as deaf, if its way breaks
/// just after its mark has come back.
fn deaf_after(runtimes: u64, probes_max: Option<usize>) -> u64 {
    let contacts = Contacts::new(INTERVAL);
    let start = Instant::now();
    let kymas: Vec<Key> = (0..runtimes).map(|number| Key::new("kcp-system", &format!("k{number:04}"))).collect();
    let (deaf, marks) = (kymas[0].clone(), Cell::new(0));
    let number = || {
        marks.set(marks.get() + 1);
        marks.get()
    };
    for kyma in &kymas {
        contacts.report(kyma, start, None, start);
    }
    // The whole fleet is probed once before the way breaks, so that the rate is that of a usual hour.
    let (mut probed, mut broken_at) = (0, None);
    for second in 0..3600 {
        let now = start + SECOND * second;
        if second % 60 == 0 {
            kymas.iter().for_each(|kyma| contacts.probe(kyma, now));
        }
        let due = contacts.due(now, probes_max, number);
        assert!(due.probes.len() <= probes_max.unwrap_or(77), "{} of {runtimes}", due.probes.len());
        if let Some(broken_at) = broken_at.filter(|_| due.news.contains(&deaf)) {
            return u64::from(second - broken_at);
        }
        for Probe { kyma, mark } in due.probes {
            if kyma == deaf {
                if broken_at.is_some() {
                    continue;
                }
                probed += 1;
                broken_at = Some(second).filter(|_| probed == 2);
            }
            contacts.echo(&kyma, mark, now);
            contacts.report(&kyma, start, Some(Way::Heard), now);
        }
    }
    panic!("it was never found");
}

/// The number of runtimes decides how many probes are sent in a second.
#[test]
fn a_deaf_agent_is_found_within_three_minutes_in_a_fleet_of_any_size() {
    for runtimes in [1, 130, 1_300, 5_000] {
        let found = deaf_after(runtimes, None);
        assert!((130..=160).contains(&found), "{found} s with {runtimes} runtimes");
    }
}

/// A tenth of a fleet, with a tenth of its rate.
#[test]
fn a_deaf_agent_of_a_large_fleet_is_found_as_soon_as_a_smaller_rate_of_probes_allows() {
    assert!(deaf_after(130, Some(1)) <= 3 * 60);
    let found = deaf_after(500, Some(1));
    assert!((8 * 60..=9 * 60).contains(&found), "{found} s: a lost mark is sent again before all others");
}

/// Those that are deaf are probed more often, and take no turn of the others.
#[test]
fn a_deaf_agent_is_found_in_time_while_others_of_the_fleet_are_deaf() {
    let contacts = Contacts::new(INTERVAL);
    let start = Instant::now();
    let kymas: Vec<Key> = (0..650).map(|number| Key::new("kcp-system", &format!("k{number:04}"))).collect();
    for kyma in &kymas {
        contacts.report(kyma, start, None, start);
    }
    let (deaf, marks) = (&kymas[..150], Cell::new(0));
    let mut last: BTreeMap<Key, u32> = BTreeMap::new();
    for second in 0..1800 {
        let now = start + SECOND * second;
        if second % 60 == 0 {
            kymas.iter().for_each(|kyma| contacts.probe(kyma, now));
        }
        let due = contacts.due(now, None, || marks.replace(marks.get() + 1));
        assert!(due.probes.len() <= 10);
        for Probe { kyma, mark } in due.probes {
            if deaf.contains(&kyma) {
                continue;
            }
            let before = last.insert(kyma.clone(), second).unwrap_or_default();
            // It is deaf 24 s later: within three minutes.
            assert!(second - before <= 155, "{kyma} was not probed for {} s", second - before);
            contacts.echo(&kyma, mark, now);
        }
    }
    assert_eq!(last.len(), kymas.len() - deaf.len());
}

#[test]
fn a_runtime_that_is_gone_is_forgotten() {
    let bench = Bench::heard();
    bench.contacts.forget(&bench.kyma);
    assert!(bench.contacts.known.lock().is_empty());
}
