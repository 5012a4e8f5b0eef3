//! Runs the properties of the fuzz targets over their seeds and over inputs that the fuzzers found.

use std::{fs, path::Path};

#[path = "../../fuzz/properties.rs"]
mod properties;

#[path = "../../fuzz/forwarded.rs"]
mod forwarded;

#[path = "../../fuzz/files.rs"]
mod files;

#[path = "../../fuzz/hooks.rs"]
mod hooks;

#[path = "../../fuzz/signatures.rs"]
mod signatures;

/// Mutations of each seed. They take about a second in all. Unlike a fuzzer, they get no guidance by coverage.
const MUTATIONS: u64 = 3_000;
/// Longest mutated input.
const LENGTH_MAX: usize = 8_192;
/// Fragments with a meaning to one of the parsers.
const WORDS: [&[u8]; 12] =
    [b"\\u0000", b"\\ud800", b"null", b"1e999", b"-0", b"{\"", b"\"}", b"[[[[", b"%2", b";Cert=\"", b",", b"/../"];

/// Random numbers, the same ones in every run: SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(sides.max(1)).unwrap()).unwrap()
    }
}

/// Changes an input in one place, as fuzzers do. Pieces of `other` are inserted.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let at = dice.roll(bytes.len() + 1);
    let until = (at + 1 + dice.roll(16)).min(bytes.len());
    match dice.roll(7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
        1 if at < bytes.len() => bytes[at] = u8::try_from(dice.roll(256)).unwrap(),
        2 => drop(bytes.drain(at.min(until)..until)),
        3 => {
            let piece = bytes[at.min(until)..until].to_vec();
            bytes.splice(at..at, piece.repeat(1 + dice.roll(4)));
        }
        4 => drop(bytes.splice(at..at, WORDS[dice.roll(WORDS.len())].iter().copied())),
        5 => {
            let from = dice.roll(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => bytes.insert(at, u8::try_from(dice.roll(256)).unwrap()),
    }
    bytes.truncate(LENGTH_MAX);
}

/// Runs a property over its seeds, over each of them truncated and with one byte changed, and over random mutations. A
/// failure prints the input.
fn replay(target: &str, property: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "no seeds in {}", folder.display());
    let all: Vec<Vec<u8>> = seeds.iter().map(|seed| fs::read(seed).unwrap()).collect();
    for (index, seed) in all.iter().enumerate() {
        let mut bytes = seed.clone();
        property(&bytes);
        for index in 0..bytes.len().min(2_000) {
            property(&bytes[..index]);
            let former = bytes[index];
            for other in [0, b'"', b'{', b'0', 0xFF, former ^ 0x20] {
                bytes[index] = other;
                property(&bytes);
            }
            bytes[index] = former;
        }
        let mut dice = Dice(u64::try_from(index).unwrap());
        let mut mutated = seed.clone();
        for _ in 0..MUTATIONS {
            // Mutations accumulate for a while. Then the next ones start from the seed again.
            if dice.roll(12) == 0 {
                mutated.clone_from(seed);
            }
            mutate(&mut mutated, &all[dice.roll(all.len())], &mut dice);
            let held = std::panic::catch_unwind(|| property(&mutated));
            assert!(held.is_ok(), "{target} does not hold for {:?}", mutated.escape_ascii().to_string());
        }
    }
}

#[test]
fn reviews() {
    replay("admission_review", properties::admission_review);
}

#[test]
fn events() {
    replay("event", properties::event);
}

#[test]
fn managers() {
    replay("manager", properties::manager);
}

#[test]
fn files_of_definitions() {
    replay("definitions", files::definitions);
}

#[test]
fn overrides_of_templates() {
    replay("template", files::template);
}

#[test]
fn headers_of_gateways() {
    replay("xfcc", forwarded::xfcc);
}

#[test]
fn webhooks_of_git_hosts() {
    replay("hook", hooks::hook);
}

#[test]
fn references_of_git_servers() {
    replay("git_advertisement", properties::git_advertisement);
}

#[test]
fn packs_of_git_servers() {
    replay("git_pack", properties::git_pack);
}

#[test]
fn trees_in_packs() {
    replay("git_tree", properties::git_tree);
}

#[test]
fn known_hosts_of_secrets() {
    replay("git_known_hosts", properties::git_known_hosts);
}

#[test]
fn urls_of_repositories() {
    replay("git_url", properties::git_url);
}

#[test]
fn signed_commits_and_tags() {
    replay("signature", signatures::signature);
}

#[test]
fn keys_of_signers() {
    replay("signing_keys", signatures::signing_keys);
}
