//! What holds for any signature and any key. The fuzz targets run these, and so does `cargo test` over the seeds.
#![allow(dead_code, reason = "each target runs one of them")]

use std::sync::LazyLock;

use tidegate_signature::{Keys, ObjectKind, SignedObject, verify};

/// The keys of the seeds.
static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let files: [(&str, &[u8]); 2] = [
        ("allowed_signers", include_bytes!("../crates/signature/fixtures/allowed_signers")),
        ("anna.asc", include_bytes!("../crates/signature/fixtures/anna.asc")),
    ];
    Keys::parse(files).unwrap()
});

/// The objects that are signed: a changed one with a signature of its own is a forgery.
static SIGNED: [&[u8]; 4] = [
    include_bytes!("../crates/signature/fixtures/openpgp-anna.commit"),
    include_bytes!("../crates/signature/fixtures/openpgp-anna.tag"),
    include_bytes!("../crates/signature/fixtures/ssh-ed25519.commit"),
    include_bytes!("../crates/signature/fixtures/ssh-certified.commit"),
];

/// Whatever a commit or tag contains, verifying it ends, and only what was signed is verified.
pub(crate) fn signature(bytes: &[u8]) {
    let Some((kind, content)) = bytes.split_first() else { return };
    let kind = if *kind == b'T' { ObjectKind::Tag } else { ObjectKind::Commit };
    let Ok(object) = SignedObject::parse(kind, content) else { return };
    if verify(&object, &KEYS, "2026-11-25T12:00:00Z".parse().unwrap()).is_ok() {
        let is_same = |signed: &&[u8]| without_signature(signed) == without_signature(content);
        assert!(SIGNED.iter().any(is_same), "{}", String::from_utf8_lossy(content));
    }
}

/// Whatever keys contain, reading them ends.
pub(crate) fn signing_keys(bytes: &[u8]) {
    for name in ["allowed_signers", "key.asc"] {
        let _ = Keys::parse([(name, bytes)]).map_err(|error| error.to_string());
    }
}

/// The lines of an object that are no signature. The armor around one may differ.
fn without_signature(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let is_tag = text.starts_with("object ");
    let mut lines = Vec::new();
    let (mut in_header, mut in_signature) = (true, false);
    for line in text.split_inclusive('\n') {
        in_signature = match (is_tag, in_header) {
            (true, _) => in_signature || line.starts_with("-----BEGIN "),
            (false, true) => line.starts_with("gpgsig ") || (in_signature && line.starts_with(' ')),
            (false, false) => false,
        };
        in_header &= line != "\n";
        if !in_signature {
            lines.extend_from_slice(line.as_bytes());
        }
    }
    lines
}
