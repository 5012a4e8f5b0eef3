//! What a process takes from its environment: the time of day, randomness, and threads for blocking work.
//!
//! A serving process takes all three from the machine. A simulation runs on one thread with tokio's clock paused. There
//! the time of day follows tokio's clock, randomness comes from a seed, and blocking work runs on the same thread, so
//! that nothing happens elsewhere while the clock jumps. Only the thread that calls [`simulate`] is in a simulation.
//!
//! Code that only measures durations needs none of this: [`tokio::time::Instant`] follows tokio's clock.

use std::{
    cell::RefCell,
    hash::{BuildHasher, RandomState},
    marker::PhantomData,
};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// The environment of a simulation.
struct World {
    /// When the simulation began, and by how much the clock was set since.
    began: Timestamp,
    at: Instant,
    set_by: SignedDuration,
    dice: u64,
}

/// A simulation on this thread; dropping it ends the simulation.
#[derive(Debug)]
pub struct Simulated(PhantomData<*const ()>);

/// The time of day.
pub fn now() -> Timestamp {
    WORLD.with_borrow(|world| world.as_ref().map_or_else(Timestamp::now, World::now))
}

/// A random number for a unique name. Not for secrets.
pub fn number() -> u64 {
    WORLD.with_borrow_mut(|world| match world {
        Some(world) => world.roll(),
        None => RandomState::new().hash_one(0_u8),
    })
}

/// A random fraction from 0 to 1 for jitter. Not for secrets.
pub fn fraction() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    let fraction = (number() >> 11) as f64 / (1_u64 << 53) as f64;
    fraction
}

/// Runs blocking work on a blocking thread. `None` if it panics.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if is_simulated() {
        return Some(work());
    }
    tokio::task::spawn_blocking(work).await.ok()
}

/// Whether this thread is in a simulation.
pub fn is_simulated() -> bool {
    WORLD.with_borrow(Option::is_some)
}

/// Starts a simulation on this thread. Call it within a tokio runtime whose clock is paused.
pub fn simulate(began: Timestamp, seed: u64) -> Simulated {
    WORLD.set(Some(World { began, at: Instant::now(), set_by: SignedDuration::ZERO, dice: seed }));
    Simulated(PhantomData)
}

// === impl World ===

impl World {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.at.elapsed()).unwrap_or(SignedDuration::MAX);
        let moment = self.began.saturating_add(elapsed).and_then(|moment| moment.saturating_add(self.set_by));
        moment.unwrap_or(Timestamp::MAX)
    }

    /// The next number of SplitMix64.
    fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.dice;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

// === impl Simulated ===

impl Simulated {
    /// Sets the time of day, as an administrator sets a clock.
    pub fn step(&self, by: SignedDuration) {
        WORLD.with_borrow_mut(|world| {
            if let Some(world) = world {
                world.set_by = world.set_by.saturating_add(by);
            }
        });
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        WORLD.take();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulation_has_its_own_time_and_chance() {
        let began: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let fractions = |seed| {
            let _simulated = simulate(began, seed);
            [fraction(), fraction()]
        };
        assert_eq!(fractions(7), fractions(7));
        assert_ne!(fractions(7), fractions(8));
        let simulated = simulate(began, 7);
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(now(), began + Duration::from_secs(90));
        simulated.step(SignedDuration::from_mins(-5));
        assert_eq!(now(), began + Duration::from_secs(90) - Duration::from_secs(300));
        assert!(is_simulated());
        drop(simulated);
        assert!(!is_simulated() && began < now());
        assert!((0.0..1.0).contains(&fraction()));
    }
}
