use jiff::SignedDuration;
use tidegate_process::ambient;

use super::*;

fn digest(text: &str) -> Digest {
    Digest::of_bytes(text.as_bytes())
}

/// The delays after passes in a row that each could be helped by `class`.
fn delays<const N: usize>(class: Class) -> [Duration; N] {
    let (now, mut retry) = (Instant::now(), Retry::default());
    std::array::from_fn(|_| {
        let (next, delay) = std::mem::take(&mut retry).after(Some(class), digest("wanted"), now);
        retry = next;
        delay.unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_whatever_the_clock_is_set_to() {
    let simulated = ambient::simulate("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let (wanted, other) = (digest("wanted"), digest("other"));
    let (retry, delay) = Retry::default().after(Some(Class::Transient), wanted, Instant::now());
    for minutes in [-90, 180] {
        simulated.step(SignedDuration::from_mins(minutes));
        assert_eq!(retry.rest(&wanted, Instant::now()), delay, "set by {minutes} minutes");
    }
    assert_eq!(retry.rest(&other, Instant::now()), None, "what is wanted now is another thing");
    tokio::time::sleep(delay.unwrap()).await;
    assert_eq!(retry.rest(&wanted, Instant::now()), None);
}

#[test]
fn each_class_of_failure_has_its_own_pace() {
    let millis = Duration::from_millis;
    assert_eq!(delays(Class::Waiting), [250, 500, 1000, 2000].map(millis));
    assert_eq!(delays(Class::Transient), [500, 1000, 2000].map(millis));
    assert_eq!(delays(Class::Stalled), [RETRY_STALLED; 3]);
    assert_eq!(delays::<9>(Class::Waiting)[8], retry::DEPENDENCY_POLL_MAX);
}

#[test]
fn a_pass_that_ends_well_starts_the_count_anew() {
    let now = Instant::now();
    let (failing, _) = Retry::default().after(Some(Class::Waiting), digest("wanted"), now);
    let (settled, again) = failing.after(None, digest("wanted"), now);
    assert_eq!((settled, again), (Retry::Settled, None));
}

#[test]
fn a_source_that_cannot_be_read_counts_and_what_was_tried_before_still_rests() {
    let (now, wanted) = (Instant::now(), digest("wanted"));
    let (failing, rest) = Retry::default().after(Some(Class::Stalled), wanted, now);
    let (failing, delay) = failing.after_unavailable();
    assert_eq!(delay, Duration::from_secs(1), "it is the second failure");
    assert_eq!(failing.rest(&wanted, now), rest);
    let (first, delay) = Retry::default().after_unavailable();
    assert_eq!((first.rest(&wanted, now), delay), (None, Duration::from_millis(500)));
}

#[test]
fn looks_for_the_end_of_objects_slow_down() {
    let (first, delay) = Retry::default().after_removal();
    assert_eq!(delay, REMOVAL_LOOK_MIN);
    assert_eq!(first.after_removal().1, 2 * REMOVAL_LOOK_MIN);
}

#[test]
fn a_manifest_that_is_made_anew_has_nothing_of_the_former() {
    let manifest = |uid: &str| {
        let mut manifest = Manifest::default();
        manifest.metadata.uid = Some(uid.to_owned());
        manifest
    };
    let mut known = KnownManifest::default().shown(&manifest("one"));
    known.retry = Retry::default().after_removal().0;
    let known = known.shown(&manifest("one"));
    assert_ne!(known.retry, Retry::Settled);
    assert_eq!(known.shown(&manifest("two")).retry, Retry::Settled);
}

#[test]
fn only_a_write_that_was_begun_leaves_doubt() {
    let of = |status| KnownManifest { status, ..KnownManifest::default() }.leaves_doubt();
    assert_eq!([StatusWrite::NotBegun, StatusWrite::Begun].map(of), [false, true]);
}
