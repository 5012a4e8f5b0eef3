//! Finds the lines that cause a difference.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::leaves::{Leaf, leaves};
use tidegate_core::{
    definition::Definition,
    diagnostic::FilePosition,
    object::{Object, PathPart},
    plan::Offer,
    snapshot::Snapshot,
    yaml::{self, Node},
};

/// Maximum number of places per difference. More places would not help a reader.
pub(super) const PLACES_MAX: usize = 10;

/// Finds lines in the files of a snapshot, and parses each file at most once.
pub struct Lines<'a> {
    snapshot: &'a Snapshot,
    files: HashMap<Arc<str>, Vec<Node>>,
}

/// The first changed line of a definition.
pub(super) fn of_definition(old: &Definition, new: &Definition) -> FilePosition {
    let leaves = leaves(old.object.value(), new.object.value());
    let lines = first(&leaves, |path| new.fields.position(path));
    match lines {
        Some((line, column)) => FilePosition::at(&new.place.path, line, column),
        // The text is equal, but the objects of its module are not.
        None => new.module_place().unwrap_or_else(|| new.place.clone()),
    }
}

/// The first changed line. If fields are only removed, the line of their parent.
fn first(leaves: &[Leaf<'_>], position: impl Fn(&[PathPart]) -> (u32, u32)) -> Option<(u32, u32)> {
    let written = leaves.iter().filter(|leaf| leaf.new.is_some()).map(|leaf| position(&leaf.path)).min();
    written.or_else(|| leaves.iter().map(|leaf| position(&leaf.path)).min())
}

/// The position of a path in a definition.
pub(super) fn field(definition: &Definition, path: &[PathPart]) -> FilePosition {
    let (line, column) = definition.fields.position(path);
    FilePosition::at(&definition.place.path, line, column)
}

/// The line of an offered version in a ModuleReleaseMeta.
pub(super) fn offer(release: &Definition, offer: &Offer) -> Option<FilePosition> {
    let Some(channel) = offer.channel() else {
        release.object.value().pointer("/spec/mandatory/version")?;
        return Some(field(release, &["spec".into(), "mandatory".into(), "version".into()]));
    };
    let channels = release.object.value().pointer("/spec/channels")?.as_array()?;
    let index = channels.iter().position(|entry| entry.get("channel").is_some_and(|name| name == channel))?;
    Some(field(release, &["spec".into(), "channels".into(), index.into(), "version".into()]))
}

// === impl Lines ===

impl<'a> Lines<'a> {
    /// A finder for the files of a snapshot.
    pub fn new(snapshot: &'a Snapshot) -> Lines<'a> {
        Lines { snapshot, files: HashMap::new() }
    }

    /// The first changed line of an object; `place` is where the object begins.
    pub(super) fn of_object(&mut self, place: &FilePosition, old: &Object, new: &Object) -> FilePosition {
        let leaves = leaves(old.value(), new.value());
        let Some(node) = self.document(place) else { return place.clone() };
        at(place, first(&leaves, |path| node.position(path)))
    }

    /// The same if the old side is not a revision: only written fields matter. A place where no
    /// document begins stays.
    pub fn of_written(&mut self, place: &FilePosition, old: &Value, new: &Value) -> FilePosition {
        let leaves: Vec<Leaf<'_>> = leaves(old, new);
        let Some(node) = self.document(place) else { return place.clone() };
        let written = leaves.iter().filter(|leaf| node.at(&leaf.path).is_some()).map(|leaf| node.position(&leaf.path));
        at(place, written.min())
    }

    /// The document that begins at a place.
    fn document(&mut self, place: &FilePosition) -> Option<&Node> {
        let snapshot = self.snapshot;
        let documents = self.files.entry(Arc::clone(&place.path)).or_insert_with(|| {
            let text = snapshot.text(&place.path).and_then(|bytes| yaml::decode(bytes).ok());
            let parsed = text.map(|text| yaml::parse_each(text, &yaml::Limits::default())).unwrap_or_default();
            parsed.into_iter().flatten().collect()
        });
        documents.iter().find(|node| (node.line, node.column) == (place.line, place.column))
    }
}

fn at(place: &FilePosition, found: Option<(u32, u32)>) -> FilePosition {
    found.map_or_else(|| place.clone(), |(line, column)| FilePosition::at(&place.path, line, column))
}
