//! Which line causes a difference.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::leaves::{Leaf, leaves};
use tidegate_core::{
    definition::Definition,
    diagnostic::Place,
    object::{Object, PathPart},
    snapshot::Snapshot,
    yaml::{self, Node},
};

/// More places of one difference are not named: a change of thousands of files is no better understood by all of them.
pub(super) const PLACES_MAX: usize = 10;

/// Finds lines in the files of a snapshot, each of which is parsed once.
pub struct Lines<'a> {
    snapshot: &'a Snapshot,
    files: HashMap<Arc<str>, Vec<Node>>,
}

/// The first line of a definition that says something else than before.
pub(super) fn of_definition(old: &Definition, new: &Definition) -> Place {
    let leaves = leaves(old.object.value(), new.object.value());
    let lines = first(&leaves, |path| new.fields.position(path));
    match lines {
        Some((line, column)) => Place::at(&new.place.path, line, column),
        // The text is the same: the objects of its module are not.
        None => new.module_place().unwrap_or_else(|| new.place.clone()),
    }
}

/// The first line that says something else; where fields are only gone, the one that held them.
fn first(leaves: &[Leaf<'_>], position: impl Fn(&[PathPart]) -> (u32, u32)) -> Option<(u32, u32)> {
    let written = leaves.iter().filter(|leaf| leaf.new.is_some()).map(|leaf| position(&leaf.path)).min();
    written.or_else(|| leaves.iter().map(|leaf| position(&leaf.path)).min())
}

/// Where a definition says something.
pub(super) fn field(definition: &Definition, path: &[PathPart]) -> Place {
    let (line, column) = definition.fields.position(path);
    Place::at(&definition.place.path, line, column)
}

/// Where a ModuleReleaseMeta gives a channel its version.
pub(super) fn channel(release: &Definition, channel: &str) -> Option<Place> {
    let channels = release.object.value().pointer("/spec/channels")?.as_array()?;
    let index = channels.iter().position(|entry| entry.get("channel").is_some_and(|name| name == channel))?;
    Some(field(release, &["spec".into(), "channels".into(), index.into(), "version".into()]))
}

// === impl Lines ===

impl<'a> Lines<'a> {
    /// Of the files of a snapshot.
    pub fn new(snapshot: &'a Snapshot) -> Lines<'a> {
        Lines { snapshot, files: HashMap::new() }
    }

    /// The first line of an object that says something else than before; `place` is where the object begins.
    pub(super) fn of_object(&mut self, place: &Place, old: &Object, new: &Object) -> Place {
        let leaves = leaves(old.value(), new.value());
        let Some(node) = self.document(place) else { return place.clone() };
        at(place, first(&leaves, |path| node.position(path)))
    }

    /// The same where the old side is no revision: only what is written counts. A place where no document begins stays.
    pub fn of_written(&mut self, place: &Place, old: &Value, new: &Value) -> Place {
        let leaves: Vec<Leaf<'_>> = leaves(old, new);
        let Some(node) = self.document(place) else { return place.clone() };
        let written = leaves.iter().filter(|leaf| node.at(&leaf.path).is_some()).map(|leaf| node.position(&leaf.path));
        at(place, written.min())
    }

    /// The document that begins at a place.
    fn document(&mut self, place: &Place) -> Option<&Node> {
        let snapshot = self.snapshot;
        let documents = self.files.entry(Arc::clone(&place.path)).or_insert_with(|| {
            let text = snapshot.text(&place.path).and_then(|bytes| yaml::decode(bytes).ok());
            let parsed = text.map(|text| yaml::parse_each(text, &yaml::Limits::default())).unwrap_or_default();
            parsed.into_iter().flatten().collect()
        });
        documents.iter().find(|node| (node.line, node.column) == (place.line, place.column))
    }
}

fn at(place: &Place, found: Option<(u32, u32)>) -> Place {
    found.map_or_else(|| place.clone(), |(line, column)| Place::at(&place.path, line, column))
}
