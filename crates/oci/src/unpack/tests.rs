use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tidegate_core::component::LayerKind::{Tar, Yaml};

use super::*;

/// An entry of an archive: path, type and content.
type Item<'a> = (&'a str, tar::EntryType, &'a [u8]);

const FILE: tar::EntryType = tar::EntryType::Regular;
const YAML: &[u8] = b"kind: ConfigMap\n";

fn archive(items: &[Item<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, kind, content) in items {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        // The library refuses to write such paths.
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// Zeros: a gzip member of 1 KB for each MiB.
fn bomb(mebibytes: usize) -> Vec<u8> {
    gzip(&vec![0; 1 << 20]).repeat(mebibytes)
}

fn layer(kind: LayerKind, blob: &[u8]) -> Result<Vec<u8>, Flaw> {
    unpack(Packed::Layer(kind), blob)
}

fn descriptor(is_tar: bool, blob: &[u8]) -> Result<Vec<u8>, Flaw> {
    unpack(Packed::Descriptor { is_tar }, blob)
}

#[track_caller]
fn check(kind: LayerKind, blob: &[u8], expected: Result<&[u8], Flaw>) {
    assert_eq!(layer(kind, blob), expected.map(<[u8]>::to_vec));
}

#[test]
fn a_layer_is_yaml_or_the_first_file_of_an_archive() {
    let tar = archive(&[
        ("._raw-manifest.yaml", FILE, b"macOS"),
        ("module/", tar::EntryType::Directory, b""),
        ("module/._x", FILE, b"macOS"),
        ("module/raw-manifest.yaml", FILE, YAML),
        ("second.yaml", FILE, b"ignored"),
        ("link", tar::EntryType::Symlink, b""),
    ]);
    check(Yaml, YAML, Ok(YAML));
    check(Tar, &tar, Ok(YAML));
    check(Tar, &archive(&[("./raw-manifest.yaml", FILE, YAML)]), Ok(YAML));
}

#[test]
fn compression_is_found_by_its_first_bytes() {
    let tar = archive(&[("raw-manifest.yaml", FILE, YAML)]);
    check(Yaml, &gzip(YAML), Ok(YAML));
    check(Yaml, &zstd(YAML), Ok(YAML));
    check(Tar, &gzip(&tar), Ok(YAML));
    check(Tar, &zstd(&tar), Ok(YAML));
    // Parts that were compressed one by one are one stream.
    check(Yaml, &[gzip(b"a"), gzip(b"b")].concat(), Ok(b"ab"));
    check(Yaml, &[zstd(b"a"), zstd(b"b")].concat(), Ok(b"ab"));
    // One layer of compression only.
    check(Yaml, &gzip(&gzip(YAML)), Ok(&gzip(YAML)));
}

#[test]
fn cut_or_broken_compression_is_an_error() {
    let large: Vec<u8> = (0..200_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for (format, blob) in [(Format::Gzip, gzip(&large)), (Format::Zstd, zstd(&large))] {
        for end in [5, blob.len() / 2, blob.len() - 1] {
            check(Yaml, &blob[..end], Err(Flaw::Compressed(format)));
        }
        let mut broken = blob.clone();
        let middle = broken.len() / 2;
        broken[middle..middle + 64].fill(0xff);
        assert_ne!(layer(Yaml, &broken).as_ref(), Ok(&large), "{format}");
    }
    check(Yaml, &[gzip(YAML), b"rest".to_vec()].concat(), Err(Flaw::Compressed(Format::Gzip)));
    check(Yaml, &[zstd(YAML), b"rest".to_vec()].concat(), Err(Flaw::Compressed(Format::Zstd)));
}

#[test]
fn a_bomb_ends_at_the_limit() {
    let too_large = Flaw::TooLarge(LAYER_INFLATED_BYTES_MAX);
    let blob = bomb(33);
    assert!(blob.len() < 1 << 17, "{} bytes", blob.len());
    check(Yaml, &blob, Err(too_large));
    check(Tar, &gzip(&archive(&[("._", FILE, &vec![0; 33 << 20])])), Err(too_large));
    assert_eq!(descriptor(false, &bomb(2)), Err(Flaw::TooLarge(DESCRIPTOR_BLOB_BYTES_MAX)));
    // zstd says in four bytes that one byte is repeated 131,072 times.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    frame.extend([0x02, 0x00, 0x10, b' '].repeat(264));
    frame.extend([0x01, 0x00, 0x00]);
    assert!(frame.len() < 1100, "{} bytes", frame.len());
    check(Yaml, &frame, Err(too_large));
    // A frame that claims a window of 2 TiB: memory is reserved for the window.
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x01, 0x00, 0x00];
    check(Yaml, &window, Err(Flaw::Compressed(Format::Zstd)));
}

#[test]
fn an_archive_with_a_link_or_a_path_outside_is_refused() {
    let file: Item<'_> = ("raw-manifest.yaml", FILE, YAML);
    for (path, kind, flaw) in [
        ("raw-manifest.yaml", tar::EntryType::Symlink, Flaw::Link),
        ("raw-manifest.yaml", tar::EntryType::Link, Flaw::Link),
        ("raw-manifest.yaml", tar::EntryType::Fifo, Flaw::Link),
        ("raw-manifest.yaml", tar::EntryType::Char, Flaw::Link),
        ("../raw-manifest.yaml", FILE, Flaw::Path),
        ("a/../../raw-manifest.yaml", FILE, Flaw::Path),
        ("a/..", tar::EntryType::Directory, Flaw::Path),
        ("/etc/raw-manifest.yaml", FILE, Flaw::Path),
    ] {
        check(Tar, &archive(&[(path, kind, b""), file]), Err(flaw));
    }
}

#[test]
fn an_archive_that_is_cut_broken_or_empty_is_an_error() {
    let tar = archive(&[("raw-manifest.yaml", FILE, YAML)]);
    check(Tar, &tar[..520], Err(Flaw::Tar));
    check(Tar, &tar[..200], Err(Flaw::Tar));
    check(Tar, YAML, Err(Flaw::Tar));
    check(Tar, &[b'x'; 1024], Err(Flaw::Tar));
    check(Tar, &archive(&[]), Err(Flaw::NoFile));
    check(Tar, &archive(&[("._only", FILE, b"macOS"), ("a/", tar::EntryType::Directory, b"")]), Err(Flaw::NoFile));
    check(Tar, b"", Err(Flaw::NoFile));
    check(Yaml, b"", Err(Flaw::Empty));
    check(Tar, &archive(&[("raw-manifest.yaml", FILE, b"")]), Err(Flaw::Empty));
    let folders = vec![("a/", tar::EntryType::Directory, b"".as_slice()); TAR_ENTRIES_MAX + 1];
    check(Tar, &archive(&folders), Err(Flaw::Entries(TAR_ENTRIES_MAX)));
}

#[test]
fn a_descriptor_is_a_named_file_or_the_text_itself() {
    let text = b"meta: {}\n";
    for path in ["component-descriptor.yaml", "/component-descriptor.yaml", "./component-descriptor.yaml"] {
        let tar = archive(&[("other.yaml", FILE, b"x"), (path, FILE, text)]);
        for blob in [gzip(&tar), zstd(&tar), tar] {
            assert_eq!(descriptor(true, &blob), Ok(text.to_vec()), "{path}");
        }
    }
    assert_eq!(descriptor(false, text), Ok(text.to_vec()));
    let large = vec![b'x'; DESCRIPTOR_BYTES_MAX + 1];
    let exact = &large[1..];
    for (items, expected) in [
        (vec![("a/component-descriptor.yaml", FILE, text.as_slice())], Err(Flaw::NoDescriptor)),
        (vec![], Err(Flaw::NoDescriptor)),
        (vec![("component-descriptor.yaml", tar::EntryType::Symlink, b"".as_slice())], Err(Flaw::Link)),
        (vec![("component-descriptor.yaml", FILE, b"".as_slice())], Err(Flaw::Empty)),
        (
            vec![("component-descriptor.yaml", FILE, large.as_slice())],
            Err(Flaw::DescriptorTooLarge(DESCRIPTOR_BYTES_MAX as u64)),
        ),
        (vec![("component-descriptor.yaml", FILE, exact)], Ok(exact.to_vec())),
    ] {
        assert_eq!(descriptor(true, &archive(&items)), expected);
    }
}

#[test]
fn no_bytes_break_the_reader() {
    let tar = archive(&[("._x", FILE, b"macOS"), ("raw-manifest.yaml", FILE, YAML)]);
    for mut blob in [gzip(&tar), zstd(&tar), tar[..2048].to_vec()] {
        for index in 0..blob.len() {
            let former = blob[index];
            for other in [0, 1, 0x2f, 0x7f, 0xff, former ^ 0x20] {
                blob[index] = other;
                for kind in [Yaml, Tar] {
                    let _ = layer(kind, &blob[..index]);
                    let length = layer(kind, &blob).map_or(0, |text| text.len() as u64);
                    assert!(length <= LAYER_INFLATED_BYTES_MAX);
                }
            }
            blob[index] = former;
        }
    }
}

#[test]
fn each_kind_of_blob_has_a_name_of_its_own() {
    for packed in Packed::ALL {
        assert_eq!(Packed::named(packed.name()), Some(packed));
    }
    assert_eq!(Packed::named("image"), None);
}
