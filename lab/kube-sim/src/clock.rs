// SPDX-License-Identifier: Apache-2.0

//! The time and the randomness of one server.
//!
//! The time is the start time plus tokio's clock, so a paused clock also pauses the server. Ids and generated names
//! come from a seed: two servers with the same start and the same requests give the same answers.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The source of a server's times, ids and generated names.
#[derive(Debug)]
pub(super) struct Clock {
    began: Timestamp,
    at: Instant,
    dice: AtomicU64,
}

/// The letters of generated names, without vowels, so that no words appear.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Number of letters that are added to `generateName`.
const SUFFIX_LEN: usize = 5;

// === impl Clock ===

impl Clock {
    pub(super) fn new(began: Timestamp, seed: u64) -> Clock {
        Clock { began, at: Instant::now(), dice: AtomicU64::new(seed) }
    }

    pub(super) fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.at.elapsed()).unwrap_or(SignedDuration::MAX);
        self.began.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The current time, in the format of metadata.
    pub(super) fn now_text(&self) -> String {
        time_text(self.now())
    }

    /// A new UID.
    pub(super) fn uid(&self) -> String {
        let (high, low) = (self.roll(), self.roll());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    /// `prefix` with five letters; a long prefix is truncated so that the name is valid.
    pub(super) fn generated_name(&self, prefix: &str) -> String {
        const PREFIX_LEN_MAX: usize = 63 - SUFFIX_LEN;
        let mut name: String = prefix.chars().take(PREFIX_LEN_MAX).collect();
        let mut dice = self.roll();
        for _ in 0..SUFFIX_LEN {
            let index = usize::try_from(dice % LETTERS.len() as u64).expect("less than 27");
            name.push(char::from(LETTERS[index]));
            dice /= LETTERS.len() as u64;
        }
        name
    }

    /// The next number of SplitMix64, which is good enough for ids.
    fn roll(&self) -> u64 {
        let state = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// A time in whole seconds, in the format of metadata.
pub(super) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
