use std::collections::BTreeMap;

use super::*;
use tidegate_landscape::Size;

use crate::{
    definition::{Definitions, read},
    diagnostic::Diagnostics,
    revision::Revision,
    snapshot::{Content, File, Snapshot},
};

fn snapshot(files: &[(String, String)]) -> Snapshot {
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    let mut trees = BTreeMap::new();
    for (path, text) in files {
        let id = |text: &str| Oid::new(Digest::of_bytes(text.as_bytes()).as_bytes()[..20].try_into().unwrap());
        let content = Content::Text(text.as_bytes().into());
        snapshot.files.insert(path.as_str().into(), File { id: id(text), content });
        for (end, _) in path.match_indices('/') {
            trees.insert(Arc::from(&path[..end]), id(&path[..end]));
        }
    }
    snapshot.trees = trees;
    snapshot
}

/// A landscape in which a module defines a custom resource, and its default resource violates the
/// schema.
fn size() -> Vec<(String, String)> {
    let mut files = Size { runtimes: 5, modules: 2, templates: 50, objects: 3 }.files();
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: settings.alpha.example.org}\n\
        spec:\n  group: alpha.example.org\n  scope: Namespaced\n  names: {plural: settings, kind: Settings}\n  versions:\n    \
        - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: \
        {spec: {type: object, properties: {replicas: {type: string}}}}}}}\n";
    files.push(("modules/alpha/1.0.0/objects/crd.yaml".to_owned(), crd.to_owned()));
    files
}

fn check_read(snapshot: &Snapshot, cache: &mut Cache) -> (Definitions, Vec<crate::diagnostic::Diagnostic>) {
    let mut diagnostics = Diagnostics::default();
    let definitions = read(&mut diagnostics, snapshot, &Options::default(), cache);
    (definitions, diagnostics.sorted())
}

#[track_caller]
fn check_same(
    one: &(Definitions, Vec<crate::diagnostic::Diagnostic>),
    other: &(Definitions, Vec<crate::diagnostic::Diagnostic>),
) {
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
}

#[test]
fn what_was_stored_is_read_without_parsing() {
    let snapshot = snapshot(&size());
    let mut fresh = Cache::default();
    let expected = check_read(&snapshot, &mut fresh);
    assert_eq!(expected.1.len(), 1, "the default custom resource does not fit: {:?}", expected.1);
    let mut stored = Cache::from_bytes(&fresh.to_bytes(), &Options::default()).unwrap();
    check_same(&check_read(&snapshot, &mut stored), &expected);
    assert_eq!(stored.parsed(), 0);
    assert_eq!(stored.to_bytes(), fresh.to_bytes(), "the same bytes again");
}

#[test]
fn work_that_is_done_ahead_gives_the_same() {
    let snapshot = snapshot(&size());
    let options = Options::default();
    let mut cache = Cache::default();
    let mut rounds = 0;
    loop {
        let pieces = super::super::ahead(&mut cache, &snapshot, &options);
        if pieces.is_empty() {
            break;
        }
        rounds += 1;
        pieces
            .iter()
            .rev()
            .map(super::super::Piece::run)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|done| cache.take(done));
    }
    assert_eq!(rounds, 2, "what names modules, then the rest");
    let parsed = cache.parsed();
    let expected = check_read(&snapshot, &mut Cache::default());
    check_same(&check_read(&snapshot, &mut cache), &expected);
    assert_eq!(cache.parsed(), parsed, "nothing was left to parse");
}

#[test]
fn damaged_bytes_and_other_options_are_no_cache() {
    let mut cache = Cache::default();
    check_read(&snapshot(&size()), &mut cache);
    let bytes = cache.to_bytes();
    let options = Options::default();
    assert!(Cache::from_bytes(&bytes, &Options { strict: true, ..options.clone() }).is_none());
    assert!(Cache::from_bytes(&bytes[..bytes.len() - 1], &options).is_none());
    assert!(Cache::from_bytes(b"", &options).is_none());
    for at in (0..bytes.len()).step_by(bytes.len() / 50) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(Cache::from_bytes(&damaged, &options).is_none(), "byte {at}");
    }
}

#[test]
fn neither_secrets_nor_what_is_wrong_is_stored() {
    let mut files = size();
    let secret = "apiVersion: v1\nkind: \"\\x53ecret\"\nmetadata: {name: a}\nstringData: {token: planted-value}\n";
    let path = files.iter().find(|(path, _)| path.ends_with("objects.yaml")).unwrap().0.clone();
    files.push((path.replace("objects.yaml", "secret.yaml"), secret.to_owned()));
    let annotation = |text: &str| {
        text.replace("skr-domain:", "last-applied: '{\"kind\":\"Secret\",\"data\":\"planted-value\"}'\n    skr-domain:")
    };
    let kyma = files.iter_mut().find(|(path, _)| path.starts_with("kymas/")).unwrap();
    kyma.1 = annotation(&kyma.1);
    files.push(("broken.yaml".to_owned(), "planted-value: [".to_owned()));
    let snapshot = snapshot(&files);
    let mut cache = Cache::default();
    let expected = check_read(&snapshot, &mut cache);
    let bytes = cache.to_bytes();
    assert!(!String::from_utf8_lossy(&bytes).contains("planted-value"));
    let mut stored = Cache::from_bytes(&bytes, &Options::default()).unwrap();
    check_same(&check_read(&snapshot, &mut stored), &expected);
    assert_eq!(stored.parsed(), 2, "the Kyma and the broken file");
}
