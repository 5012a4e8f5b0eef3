use super::*;

struct Bench {
    fairness: Fairness,
    now: Instant,
}

impl Bench {
    fn new() -> Bench {
        Bench { fairness: Fairness::default(), now: Instant::now() }
    }

    /// Spreads each sender's events evenly over a second, and returns the longest pause of each sender.
    fn second(&mut self, senders: &[(&str, u32)]) -> Vec<Duration> {
        let mut longest = vec![Duration::ZERO; senders.len()];
        for millisecond in 0..1000 {
            self.now += Duration::from_millis(1);
            for (index, (runtime, events)) in senders.iter().enumerate() {
                let due = |millisecond: u32| events * millisecond / 1000;
                for _ in due(millisecond)..due(millisecond + 1) {
                    longest[index] = longest[index].max(self.fairness.pause(runtime, self.now));
                }
            }
        }
        longest
    }
}

const NONE: Duration = Duration::ZERO;

#[test]
fn a_runtime_that_is_alone_is_never_slowed() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        assert_eq!(bench.second(&[("flood", 20_000)]), [NONE]);
    }
}

#[test]
fn runtimes_that_send_alike_are_not_slowed() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        assert_eq!(bench.second(&[("one", 5000), ("two", 5000), ("three", 3000)]), [NONE, NONE, NONE]);
    }
}

#[test]
fn who_sends_many_times_what_others_send_waits_and_the_others_do_not() {
    let mut bench = Bench::new();
    bench.second(&[("flood", 10_000), ("calm", 20)]);
    for _ in 0..3 {
        let pauses = bench.second(&[("flood", 10_000), ("calm", 20)]);
        assert_eq!(pauses[1], NONE);
        assert_eq!(pauses[0], Duration::from_secs(2), "no pause is longer");
    }
    // Once the others have been silent for two seconds, nothing is delayed.
    bench.second(&[("flood", 100)]);
    bench.second(&[("flood", 100)]);
    assert_eq!(bench.second(&[("flood", 10_000)]), [NONE]);
}

#[test]
fn a_few_events_are_not_reported() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        assert_eq!(bench.second(&[("brisk", 40), ("calm", 1)]), [NONE, NONE]);
    }
}

#[test]
fn places_are_given_back_also_by_those_that_got_none() {
    let taken = AtomicUsize::new(0);
    let first = RequestPermit::take(&taken, 1);
    assert!(first.is_some());
    assert!(RequestPermit::take(&taken, 1).is_none());
    drop(first);
    assert!(RequestPermit::take(&taken, 1).is_some());
    assert_eq!(taken.load(Ordering::Relaxed), 0);
}
