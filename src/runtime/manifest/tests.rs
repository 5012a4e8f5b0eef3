use jiff::SignedDuration;

use super::*;
use tidegate_process::ambient;

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_whatever_the_clock_is_set_to() {
    let simulated = ambient::simulate("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let (wanted, other) = (Digest::of_bytes(b"wanted"), Digest::of_bytes(b"other"));
    let mut memory = KnownManifest::default();
    let delay = memory.postpone(Class::Transient, wanted);
    for minutes in [-90, 180] {
        simulated.step(SignedDuration::from_mins(minutes));
        assert_eq!(memory.rest(&wanted), Some(delay), "set by {minutes} minutes");
    }
    assert_eq!(memory.rest(&other), None, "what is wanted now is another thing");
    tokio::time::sleep(delay).await;
    assert_eq!(memory.rest(&wanted), None);
}
