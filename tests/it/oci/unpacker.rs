//! Blobs are unpacked in a process with limits: each limit is one sentence about the blob, and the next blob is read.

use std::{path::PathBuf, time::Duration};

use tidegate_core::component::{BlobDigest, LayerKind};
use tidegate_oci::{Error, Exhaustion, Registry, Settings, Unpacker, limits::UnpackLimits};
use tidegate_process::retry::Class;

use super::{
    artifact::{YAML, gzip, tar},
    hostile::{answer, host, plain, source},
    settings,
};
use crate::git::server::Server;

const MIB: usize = 1 << 20;

fn within(limits: UnpackLimits) -> Unpacker {
    let numbers = [u128::from(limits.memory_mib), limits.computing.as_millis(), limits.time.as_millis()];
    let arguments = ["oci".to_owned(), "engine".to_owned()].into_iter().chain(numbers.map(|number| number.to_string()));
    Unpacker::confined(PathBuf::from(env!("CARGO_BIN_EXE_tidegate")), arguments.collect(), limits)
}

async fn read(server: &Server, unpacker: &Unpacker, kind: LayerKind, blob: &[u8]) -> Result<bytes::Bytes, Error> {
    let content = blob.to_vec();
    server.behave(move |_| answer(&content));
    let registry = Registry::new(Settings { unpacker: unpacker.clone(), ..settings(&host(server)) }).unwrap();
    registry.layer(&source(BlobDigest::of(blob), kind)).await
}

/// One frame of zstd whose window is as large as its content: 30 MiB of spaces.
fn large_window() -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend(u32::try_from(30 * MIB).unwrap().to_le_bytes());
    // Four bytes say that one byte is repeated 131,072 times.
    frame.extend([0x02, 0x00, 0x10, b' '].repeat(239));
    frame.extend([0x03, 0x00, 0x10, b' ']);
    frame
}

/// Empty members of gzip: a few MiB that are nothing, and take seconds.
fn empty_members() -> Vec<u8> {
    gzip(b"").repeat(1_000_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_is_unpacked_elsewhere_as_here() {
    let (server, unpacker) = (plain(), within(UnpackLimits::default()));
    let large = b"a: b\n".repeat(4 * MIB);
    for (kind, blob, expected) in [
        (LayerKind::Yaml, YAML.to_vec(), YAML.to_vec()),
        (LayerKind::Yaml, gzip(YAML), YAML.to_vec()),
        // What follows the first file is not read.
        (LayerKind::Tar, tar(&[("a.yaml", YAML), ("b.yaml", &vec![b'x'; 20 * MIB])]), YAML.to_vec()),
        (LayerKind::Tar, gzip(&tar(&[("a.yaml", &large)])), large.clone()),
        (LayerKind::Yaml, large_window(), vec![b' '; 30 * MIB]),
    ] {
        let found = read(&server, &unpacker, kind, &blob).await.unwrap();
        assert!(found == expected, "{} bytes, not {}", found.len(), expected.len());
    }
    let error = read(&server, &unpacker, LayerKind::Tar, b"no archive").await.unwrap_err();
    assert!(error.to_string().ends_with("is a truncated or broken tar archive"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_exceeds_a_limit_is_one_sentence_and_the_next_one_is_read() {
    let server = plain();
    let limits = UnpackLimits::default();
    let short = Duration::from_millis(50);
    for (limits, blob, limit, tail) in [
        (
            UnpackLimits { memory_mib: 48, ..limits },
            large_window(),
            Exhaustion::Memory(48),
            "48 MiB of memory: publish the module with gzip, or smaller",
        ),
        (
            UnpackLimits { computing: short, ..limits },
            empty_members(),
            Exhaustion::Computing(short),
            "50 ms of CPU time: publish the module smaller",
        ),
        (
            UnpackLimits { time: short, ..limits },
            empty_members(),
            Exhaustion::Elapsed(short),
            "50 ms: give Tidegate more CPU",
        ),
    ] {
        let unpacker = within(limits);
        let error = read(&server, &unpacker, LayerKind::Yaml, &blob).await.unwrap_err();
        assert!(matches!(error, Error::Exhausted { limit: found, .. } if found == limit), "{error}");
        assert_eq!((error.reason(), error.class()), ("LimitExceeded", Class::Stalled));
        let expected = format!("@{} takes more than {tail}", BlobDigest::of(&blob));
        assert!(error.to_string().starts_with("unpacking ") && error.to_string().ends_with(&expected), "{error}");
        assert_eq!(read(&server, &within(UnpackLimits::default()), LayerKind::Yaml, YAML).await.unwrap(), YAML);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_no_engine_is_an_error_that_is_tried_again() {
    let server = plain();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_tidegate"));
    let wrong = Unpacker::confined(program, vec!["version".to_owned()], UnpackLimits::default());
    let missing = Unpacker::confined(PathBuf::from("/nowhere"), Vec::new(), UnpackLimits::default());
    for unpacker in [wrong, missing] {
        let error = read(&server, &unpacker, LayerKind::Yaml, YAML).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), ("EngineFailed", Class::Transient), "{error}");
    }
}
