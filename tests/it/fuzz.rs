//! The seeds of the fuzz targets, and inputs that were found by them, hold what any bytes must.

use std::{fs, path::Path};

#[path = "../../fuzz/properties.rs"]
mod properties;

#[path = "../../fuzz/forwarded.rs"]
mod forwarded;

/// Runs a property over its seeds; then over each of them cut off, and with a byte changed.
fn replay(target: &str, property: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "no seeds in {}", folder.display());
    for seed in seeds {
        let mut bytes = fs::read(&seed).unwrap();
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
fn headers_of_gateways() {
    replay("xfcc", forwarded::xfcc);
}
