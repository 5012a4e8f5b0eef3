//! The landscape: every definition that counts, typed and indexed by key.
//!
//! The command line builds it from the definitions of one revision, the daemon from what stands in KCP; both see the
//! same objects, because [`stamp`] makes the first into the second. The landscape decides nothing: `plan` does.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    api::{Kyma, ModuleReleaseMeta, ModuleTemplate, Watcher, names},
    name::Key,
    object::Digest,
};

/// Definitions by key. Iteration is in the order of keys, so two runs see the same order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Landscape {
    /// Runtimes.
    pub kymas: BTreeMap<Key, Arc<Kyma>>,
    /// Versions of modules, by `<namespace>/<module>-<version>`.
    pub templates: BTreeMap<Key, Arc<ModuleTemplate>>,
    /// Channels of modules, by `<namespace>/<module>`.
    pub releases: BTreeMap<Key, Arc<ModuleReleaseMeta>>,
    /// What is watched in runtimes.
    pub watchers: BTreeMap<Key, Arc<Watcher>>,
}

/// The GitSource that declares an object: `<namespace>/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName(Key);

/// Longest value of a label.
const LABEL_LEN_MAX: usize = 63;

/// Key of an object by its metadata. What has no namespace or name, which no API server stores, gets empty texts.
pub fn key(metadata: &ObjectMeta) -> Key {
    Key::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// One of an object's labels.
pub fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// One of an object's annotations.
pub fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

// === impl SourceName ===

impl SourceName {
    /// Of the GitSource with this key.
    pub fn new(key: Key) -> SourceName {
        SourceName(key)
    }

    /// The source that owns an object in KCP: it has our label, and the annotation spells out which one.
    ///
    /// The annotation alone proves nothing: it is copied along when a user copies an object's text.
    pub fn of(metadata: &ObjectMeta) -> Option<SourceName> {
        let label = label(metadata, names::label::SOURCE)?;
        let source = SourceName(annotation(metadata, names::annotation::SOURCE)?.parse().ok()?);
        (source.label_value() == label).then_some(source)
    }

    /// The GitSource.
    pub fn key(&self) -> &Key {
        &self.0
    }

    /// Value of label `tidegate.dev/source`: `<namespace>.<name>`, past 63 characters cut and hashed.
    pub fn label_value(&self) -> String {
        let full = format!("{}.{}", self.0.namespace(), self.0.name());
        if full.len() <= LABEL_LEN_MAX {
            return full;
        }
        let digest = Digest::of_bytes(full.as_bytes()).short();
        let kept = full[..LABEL_LEN_MAX - digest.len() - 1].trim_end_matches(['-', '.']);
        format!("{kept}-{digest}")
    }
}

impl std::fmt::Display for SourceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
