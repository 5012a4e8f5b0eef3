//! What holds for any file of a repository. The fuzz targets run these, and so does `cargo test` over the seeds.
#![allow(dead_code, reason = "each target runs one of them")]

use tidegate_core::{
    definition::{self, Cache, Options},
    diagnostic::{Diagnostics, FilePosition, LISTED_IN_FILE_MAX},
    revision::{Oid, Revision},
    snapshot::{Content, File, Snapshot},
    template::{Engine, Template, TemplateFile, Templates},
};

/// Reading any file ends with definitions or diagnostics. They are the same from a cache, their lines exist in the
/// file, and their number is limited.
pub(crate) fn definitions(bytes: &[u8]) {
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    let file = File { id: Oid::new([1; 20]), content: Content::Text(bytes.into()) };
    snapshot.files.insert("a.yaml".into(), file);
    let (mut cache, options) = (Cache::default(), Options::default());
    let mut read = || {
        let mut found = Diagnostics::default();
        let definitions = definition::read(&mut found, &snapshot, &options, &mut cache);
        (definitions.declared(), found.has_errors(), found.sorted())
    };
    let (first, second) = (read(), read());
    assert_eq!(first, second);
    let (_, has_errors, sorted) = first;
    assert!(sorted.len() <= 2 * (LISTED_IN_FILE_MAX + 1), "{}", sorted.len());
    assert!(!has_errors || !sorted.is_empty());
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
    let is_within = |place: &FilePosition| usize::try_from(place.line).is_ok_and(|line| line <= lines);
    assert!(sorted.iter().filter_map(|one| one.place.as_ref()).all(is_within), "{sorted:?}");
}

/// Any override either renders the example of its context, or is one diagnostic.
pub(crate) fn template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let name = Template::Kyma.name();
    let file = TemplateFile { name: name.to_owned(), path: name.into(), text: Some(text.to_owned()) };
    let mut found = Diagnostics::default();
    let mut templates = Templates::embedded().with_overrides(&Engine::Local, &mut found, [file]);
    templates.check(&mut found);
    assert!(found.sorted().len() <= 1);
}
