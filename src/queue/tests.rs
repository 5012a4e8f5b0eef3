use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use tidegate_process::retry::{BACKOFF_MIN, DEPENDENCY_POLL};

/// Subjects are texts; the part before a `/` is the lane.
type Text = &'static str;

fn lane(subject: &Text) -> Option<Key> {
    subject.split_once('/').map(|(lane, _)| Key::new("lanes", lane))
}

const LIMITS: Limits = Limits { running_max: 4, subjects_max: 10, interval: Duration::from_secs(300) };

struct Bench {
    state: State<Text>,
    now: Instant,
    running: Vec<Text>,
}

impl Bench {
    fn new() -> Bench {
        Bench { state: State::new(lane, LIMITS), now: Instant::now(), running: Vec::new() }
    }

    fn push(&mut self, subject: Text, trigger: Trigger) -> Pushed {
        self.state.push(&subject, trigger, self.now)
    }

    fn take(&mut self) -> Option<(Text, String, u32)> {
        let taken = self.state.take(self.now)?;
        self.running.push(taken.subject);
        Some((taken.subject, taken.triggers.to_string(), taken.attempt))
    }

    fn finish(&mut self, subject: Text, finish: Finish) {
        self.running.retain(|running| *running != subject);
        self.state.finish(&subject, finish, self.now, 0.0);
    }

    fn pass(&mut self, duration: Duration) {
        self.now += duration;
    }

    /// Takes everything that can be taken, in order, and keeps it in progress.
    #[track_caller]
    fn expect(&mut self, expected: &[(Text, &str, u32)]) {
        let mut found = Vec::new();
        while let Some((subject, triggers, attempt)) = self.take() {
            found.push((subject, triggers, attempt));
        }
        let expected: Vec<(Text, String, u32)> =
            expected.iter().map(|(subject, triggers, attempt)| (*subject, (*triggers).to_owned(), *attempt)).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn triggers_of_a_waiting_subject_merge() {
    let mut bench = Bench::new();
    assert_eq!(bench.push("a", Trigger::Resync), Pushed::New);
    assert_eq!(bench.push("a", Trigger::Git), Pushed::Merged);
    bench.expect(&[("a", "git+resync", 1)]);
}

#[test]
fn the_more_urgent_goes_first() {
    let mut bench = Bench::new();
    for (subject, trigger) in [
        ("resync", Trigger::Resync),
        ("drift", Trigger::Drift),
        ("git", Trigger::Git),
        ("changed", Trigger::Changed),
        ("reported", Trigger::Reported),
    ] {
        bench.push(subject, trigger);
        bench.pass(Duration::from_millis(100));
    }
    bench.expect(&[("reported", "reported", 1), ("changed", "changed", 1), ("git", "git", 1), ("drift", "drift", 1)]);
    // No permit was left for a fifth.
    bench.finish("reported", Finish::Done);
    bench.expect(&[("resync", "resync", 1)]);
}

#[test]
fn a_waiting_subject_becomes_more_urgent_with_its_triggers() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Resync);
    bench.push("b", Trigger::Git);
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed+resync", 1), ("b", "git", 1)]);
}

#[test]
fn a_resync_that_has_waited_its_minute_goes_before_an_event_of_now() {
    let mut bench = Bench::new();
    bench.push("old", Trigger::Resync);
    bench.pass(Duration::from_secs(61));
    bench.push("new", Trigger::Changed);
    bench.expect(&[("old", "resync", 1), ("new", "changed", 1)]);
}

#[test]
fn one_task_works_on_a_lane() {
    let mut bench = Bench::new();
    bench.push("r/kyma", Trigger::Changed);
    bench.push("r/manifest", Trigger::Changed);
    bench.push("s/kyma", Trigger::Changed);
    bench.expect(&[("r/kyma", "changed", 1), ("s/kyma", "changed", 1)]);
    bench.finish("r/kyma", Finish::Done);
    bench.expect(&[("r/manifest", "changed", 1)]);
}

#[test]
fn a_subject_pushed_while_worked_on_runs_again_afterwards() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.push("a", Trigger::Git);
    bench.push("a", Trigger::Drift);
    bench.expect(&[]);
    bench.finish("a", Finish::Done);
    bench.expect(&[("a", "git+drift", 1)]);
}

#[test]
fn awaited_work_runs_when_its_end_is_reported_or_after_its_limit() {
    let limit = Duration::from_secs(30);
    let mut bench = Bench::new();
    bench.push("a", Trigger::Git);
    bench.expect(&[("a", "git", 1)]);
    bench.finish("a", Finish::Awaiting(limit));
    bench.expect(&[]);
    assert_eq!(bench.state.busy(), ["a"], "it is not done");
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.finish("a", Finish::Done);
    bench.pass(limit);
    bench.expect(&[]);
    bench.push("a", Trigger::Git);
    bench.expect(&[("a", "git", 1)]);
    bench.finish("a", Finish::Awaiting(limit));
    bench.pass(limit);
    bench.expect(&[("a", "retry", 1)]);
}

#[test]
fn a_failure_may_say_when_it_is_retried() {
    let delay = Duration::from_secs(8);
    let mut bench = Bench::new();
    bench.push("a", Trigger::Git);
    for attempt in 1..10 {
        let triggers = if attempt == 1 { "git" } else { "git+retry" };
        bench.expect(&[("a", triggers, attempt)]);
        bench.finish("a", Finish::FailedFor(Class::Transient, delay));
        bench.pass(delay - Duration::from_millis(1));
        bench.expect(&[]);
        bench.pass(Duration::from_millis(1));
    }
}

#[test]
fn what_deferred_work_was_asked_for_comes_with_whatever_asks_next() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Drift);
    bench.expect(&[("a", "drift", 1)]);
    bench.finish("a", Finish::Failed(Class::Transient));
    bench.pass(BACKOFF_MIN);
    bench.expect(&[("a", "drift+retry", 2)]);
    bench.finish("a", Finish::Deferred);
    bench.pass(Duration::from_secs(3_600));
    bench.expect(&[]);
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed+drift", 1)]);
    bench.finish("a", Finish::Deferred);
    bench.push("a", Trigger::Git);
    bench.expect(&[("a", "changed+git+drift", 1)]);
    bench.finish("a", Finish::Done);
    bench.push("a", Trigger::Git);
    bench.expect(&[("a", "git", 1)]);
    bench.finish("a", Finish::Done);
    assert_eq!(bench.state.depths(bench.now), Depths::default());
}

#[test]
fn places_are_bounded() {
    let mut bench = Bench::new();
    for subject in ["a", "b", "c", "d", "e"] {
        bench.push(subject, Trigger::Changed);
    }
    bench.expect(&[("a", "changed", 1), ("b", "changed", 1), ("c", "changed", 1), ("d", "changed", 1)]);
    bench.finish("c", Finish::Done);
    bench.expect(&[("e", "changed", 1)]);
}

#[test]
fn subjects_are_bounded() {
    let mut bench = Bench::new();
    for subject in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        assert_eq!(bench.push(subject, Trigger::Changed), Pushed::New);
    }
    assert_eq!(bench.push("k", Trigger::Changed), Pushed::Refused);
    assert_eq!(bench.push("a", Trigger::Git), Pushed::Merged);
}

#[test]
fn failures_wait_longer_each_time_and_a_success_forgets_them() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.finish("a", Finish::Failed(Class::Transient));
    bench.expect(&[]);
    bench.pass(BACKOFF_MIN);
    bench.expect(&[("a", "changed+retry", 2)]);
    bench.finish("a", Finish::Failed(Class::Transient));
    bench.pass(BACKOFF_MIN);
    bench.expect(&[]);
    bench.pass(BACKOFF_MIN);
    bench.expect(&[("a", "changed+retry", 3)]);
    bench.finish("a", Finish::Done);
    bench.pass(Duration::from_secs(600));
    bench.expect(&[]);
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
}

#[test]
fn a_new_try_has_the_triggers_of_the_one_that_failed() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Drift);
    bench.expect(&[("a", "drift", 1)]);
    bench.finish("a", Finish::Failed(Class::Transient));
    bench.pass(BACKOFF_MIN);
    bench.expect(&[("a", "drift+retry", 2)]);
    bench.finish("a", Finish::Done);
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
}

#[test]
fn news_ends_a_back_off_and_a_resync_does_not() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.finish("a", Finish::Failed(Class::Stalled));
    bench.pass(Duration::from_secs(10));
    bench.push("a", Trigger::Resync);
    bench.expect(&[]);
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 2)]);
}

#[test]
fn news_that_comes_during_a_failing_pass_does_not_make_a_hot_loop() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.push("a", Trigger::Changed);
    bench.finish("a", Finish::Failed(Class::Stalled));
    bench.push("a", Trigger::Changed);
    bench.expect(&[]);
    bench.pass(BACKOFF_MIN);
    bench.expect(&[("a", "changed", 2)]);
}

#[test]
fn what_waits_is_looked_at_briskly() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.finish("a", Finish::Failed(Class::Waiting));
    bench.pass(DEPENDENCY_POLL);
    bench.expect(&[("a", "changed+retry", 2)]);
}

#[test]
fn those_that_fail_hold_at_most_half_of_the_places() {
    let mut bench = Bench::new();
    for subject in ["a", "b", "c"] {
        bench.push(subject, Trigger::Changed);
    }
    bench.expect(&[("a", "changed", 1), ("b", "changed", 1), ("c", "changed", 1)]);
    for subject in ["a", "b", "c"] {
        bench.finish(subject, Finish::Failed(Class::Transient));
    }
    bench.pass(BACKOFF_MIN);
    bench.push("healthy", Trigger::Drift);
    bench.expect(&[("healthy", "drift", 1), ("a", "changed+retry", 2), ("b", "changed+retry", 2)]);
    bench.finish("a", Finish::Done);
    bench.expect(&[("c", "changed+retry", 2)]);
}

#[test]
fn an_event_does_not_push_a_resync_out() {
    let mut bench = Bench::new();
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.finish("a", Finish::After(Duration::from_secs(300), Trigger::Resync));
    bench.pass(Duration::from_secs(200));
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.finish("a", Finish::After(Duration::from_secs(300), Trigger::Resync));
    bench.pass(Duration::from_secs(100));
    bench.expect(&[("a", "resync", 1)]);
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut bench = Bench::new();
    bench.state.push_at(&"a", Trigger::Resync, bench.now + Duration::from_secs(300));
    bench.push("a", Trigger::Changed);
    bench.expect(&[("a", "changed", 1)]);
    bench.finish("a", Finish::Gone);
    assert_eq!(bench.state.next_due(), None);
    assert_eq!(bench.state.depths(bench.now), Depths::default());
}

#[test]
fn what_waits_for_the_end_of_an_outage_is_retried_at_its_end() {
    let mut bench = Bench::new();
    for subject in ["a", "b", "c", "d"] {
        bench.push(subject, Trigger::Git);
    }
    bench.expect(&[("a", "git", 1), ("b", "git", 1), ("c", "git", 1), ("d", "git", 1)]);
    bench.finish("a", Finish::FailedFor(Class::Transient, Duration::from_secs(120)));
    bench.finish("b", Finish::Failed(Class::Stalled));
    bench.finish("c", Finish::Failed(Class::Waiting));
    bench.finish("d", Finish::After(Duration::from_secs(300), Trigger::Resync));
    bench.state.hurry(&[Class::Transient], bench.now);
    bench.expect(&[("a", "git+retry", 2)]);
    bench.state.hurry(&[Class::Stalled, Class::Transient], bench.now);
    bench.expect(&[("b", "git+retry", 2)]);
}

#[test]
fn resyncs_and_what_only_a_change_can_help_are_settled() {
    let mut bench = Bench::new();
    for subject in ["a", "b", "c"] {
        bench.push(subject, Trigger::Changed);
    }
    assert_eq!(bench.state.busy(), ["a", "b", "c"]);
    bench.expect(&[("a", "changed", 1), ("b", "changed", 1), ("c", "changed", 1)]);
    bench.finish("a", Finish::After(Duration::from_secs(300), Trigger::Resync));
    bench.finish("b", Finish::Failed(Class::Stalled));
    bench.finish("c", Finish::Failed(Class::Waiting));
    assert_eq!(bench.state.busy(), ["c"]);
    bench.pass(DEPENDENCY_POLL);
    bench.expect(&[("c", "changed+retry", 2)]);
    bench.finish("c", Finish::Failed(Class::Waiting));
    bench.push("a", Trigger::Changed);
    assert_eq!(bench.state.busy_failures(), BTreeMap::from([("a", 0), ("c", 2)]));
    bench.expect(&[("a", "changed", 1)]);
    bench.finish("a", Finish::Done);
    bench.pass(DEPENDENCY_POLL);
    bench.expect(&[("c", "changed+retry", 3)]);
    bench.finish("c", Finish::Done);
    assert!(bench.state.is_settled());
}

#[test]
fn depths_say_who_waits_how_long() {
    let mut bench = Bench::new();
    for subject in ["a", "b", "c", "d", "e"] {
        bench.push(subject, Trigger::Changed);
    }
    while bench.take().is_some() {}
    bench.finish("a", Finish::Failed(Class::Stalled));
    bench.pass(Duration::from_secs(7));
    let expected = Depths { ready: 1, running: 3, delayed: 1, failing: 1, oldest: Duration::from_secs(7) };
    assert_eq!(bench.state.depths(bench.now), expected);
}

// === The shell: the lock, the clock and the waiting ===

fn queue() -> Queue<Text> {
    Queue::new(lane, LIMITS)
}

#[tokio::test]
async fn a_taker_wakes_for_a_push_and_for_a_moment() {
    let queue = queue();
    let delay = Duration::from_millis(30);
    queue.push_after("late", Trigger::Resync, delay);
    let started = Instant::now();
    let taker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let first = queue.next().await.unwrap();
            let second = queue.next().await.unwrap();
            (*first.subject(), *second.subject(), started.elapsed())
        }
    });
    tokio::task::yield_now().await;
    queue.push("now", Trigger::Changed);
    let (first, second, elapsed) = taker.await.unwrap();
    assert_eq!((first, second), ("now", "late"));
    assert!(delay <= elapsed, "{elapsed:?}");
}

#[tokio::test]
async fn dropped_work_counts_as_failed() {
    let queue = queue();
    queue.push("r/a", Trigger::Changed);
    drop(queue.next().await.unwrap());
    assert_eq!(queue.depths(), Depths { delayed: 1, failing: 1, ..Depths::default() });
    assert_eq!(queue.busy(), ["r/a"]);
}

#[tokio::test]
async fn a_closed_queue_gives_out_nothing() {
    let queue = queue();
    let taker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.is_none() }
    });
    tokio::task::yield_now().await;
    queue.close();
    assert!(taker.await.unwrap());
    assert_eq!(queue.push("a", Trigger::Changed), Pushed::Refused);
}

#[tokio::test]
async fn settled_returns_once_the_last_work_is_done() {
    let queue = queue();
    queue.push("a", Trigger::Changed);
    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.settled().await }
    });
    let work = queue.next().await.unwrap();
    tokio::task::yield_now().await;
    assert!(!waiter.is_finished());
    queue.finish(work, Finish::Done);
    waiter.await.unwrap();
}

// === Properties ===

const SUBJECTS: [Text; 7] = ["r/kyma", "r/m1", "r/m2", "s/kyma", "s/m1", "source", "watcher"];

#[derive(Clone, Debug)]
enum Step {
    Push(usize, usize),
    PushAfter(usize, usize, u64),
    Take,
    Finish(usize, usize, u64),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..SUBJECTS.len(), 0..Trigger::ALL.len()).prop_map(|(s, t)| Step::Push(s, t)),
        1 => (0..SUBJECTS.len(), 0..Trigger::ALL.len(), 0..400_u64).prop_map(|(s, t, d)| Step::PushAfter(s, t, d)),
        6 => Just(Step::Take),
        4 => (0..4_usize, 0..6_usize, 0..400_u64).prop_map(|(r, f, d)| Step::Finish(r, f, d)),
        2 => (0..90_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants: never two subjects of a lane at once, never more than the permits, and every request leads to later
    /// work.
    #[test]
    fn nothing_is_lost_and_no_lane_is_worked_on_twice(steps in proptest::collection::vec(step(), 1..200)) {
        let mut bench = Bench::new();
        let mut owed: BTreeMap<Text, BTreeSet<Trigger>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Push(subject, trigger) => {
                    bench.push(SUBJECTS[subject], Trigger::ALL[trigger]);
                    owed.entry(SUBJECTS[subject]).or_default().insert(Trigger::ALL[trigger]);
                }
                Step::PushAfter(subject, trigger, seconds) => {
                    let moment = bench.now + Duration::from_secs(seconds);
                    bench.state.push_at(&SUBJECTS[subject], Trigger::ALL[trigger], moment);
                    owed.entry(SUBJECTS[subject]).or_default().insert(Trigger::ALL[trigger]);
                }
                Step::Take => take(&mut bench, &mut owed)?,
                Step::Finish(which, how, seconds) => {
                    if let Some(subject) = bench.running.get(which).copied() {
                        // A retry is internal: a success removes it. `Gone` is left out, because it drops requests on
                        // purpose.
                        let finish = [
                            Finish::Done,
                            Finish::After(Duration::from_secs(seconds), Trigger::Resync),
                            Finish::Failed(Class::Transient),
                            Finish::Failed(Class::Waiting),
                            Finish::Failed(Class::Stalled),
                            Finish::Done,
                        ][how];
                        if !matches!(finish, Finish::Failed(_)) && let Some(owed) = owed.get_mut(subject) {
                            owed.remove(&Trigger::Retry);
                        }
                        bench.finish(subject, finish);
                    }
                }
                Step::Pass(seconds) => bench.pass(Duration::from_secs(seconds)),
            }
        }
        // Let everything finish.
        for _ in 0..200 {
            for subject in bench.running.clone() {
                bench.finish(subject, Finish::Done);
                if let Some(owed) = owed.get_mut(subject) {
                    owed.remove(&Trigger::Retry);
                }
            }
            take(&mut bench, &mut owed)?;
            bench.pass(Duration::from_secs(10));
        }
        prop_assert!(owed.values().all(BTreeSet::is_empty), "never given out: {:?}", owed);
        prop_assert_eq!(bench.state.depths(bench.now), Depths::default());
    }

    /// However many events come, a resync runs as soon as its minute is over.
    #[test]
    fn events_do_not_starve_a_resync(gaps in proptest::collection::vec(1..2000_u64, 100..200)) {
        let mut bench = Bench::new();
        bench.push("watcher", Trigger::Resync);
        let started = bench.now;
        let events = ["e1", "e2", "e3", "e4", "e5"];
        for (position, gap) in gaps.iter().cycle().take(2000).enumerate() {
            bench.push(events[position % events.len()], Trigger::Changed);
            bench.push(events[(position + 1) % events.len()], Trigger::Changed);
            while let Some((subject, ..)) = bench.take() {
                if subject == "watcher" {
                    prop_assert!(bench.now - started <= Duration::from_secs(64));
                    return Ok(());
                }
            }
            // One permit becomes free at a time: events come faster than they are handled.
            bench.pass(Duration::from_millis(*gap));
            let done = bench.running[0];
            bench.finish(done, Finish::Done);
        }
        prop_assert!(bench.now - started <= Duration::from_secs(60), "never taken");
    }
}

fn take(bench: &mut Bench, owed: &mut BTreeMap<Text, BTreeSet<Trigger>>) -> Result<(), TestCaseError> {
    if let Some(taken) = bench.state.take(bench.now) {
        if let Some(lane_of_taken) = lane(&taken.subject) {
            prop_assert!(bench.running.iter().all(|running| lane(running).as_ref() != Some(&lane_of_taken)));
        }
        prop_assert!(!bench.running.contains(&taken.subject));
        prop_assert!(!taken.triggers.is_empty());
        if let Some(owed) = owed.get_mut(taken.subject) {
            owed.retain(|trigger| !taken.triggers.contains(*trigger));
        }
        bench.running.push(taken.subject);
        prop_assert!(bench.running.len() <= LIMITS.running_max);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reasons_that_come_together_are_one_piece_of_work() {
    let queue: Queue<Text> = Queue::new(lane, LIMITS);
    let taker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let mut taken = Vec::new();
            while let Some(work) = queue.next().await {
                taken.push(work.triggers().to_string());
                queue.finish(work, Finish::Gone);
            }
            taken
        }
    });
    for _ in 0..500 {
        queue.push_all("a", Triggers::from(Trigger::Reported).with(Trigger::Drift));
        queue.settled().await;
    }
    queue.close();
    let taken = taker.await.unwrap();
    assert!(taken.iter().all(|triggers| triggers == "reported+drift"), "{taken:?}");
}
