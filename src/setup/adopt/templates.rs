//! The templates with which the daemon renders a resource: a decision over values.

use std::collections::BTreeSet;

use tidegate_core::{
    api::{
        names::{annotation, label},
        setup::{Kind, SETUP_GROUP},
        shared::ObjectMeta,
    },
    landscape::{SourceName, setup::Resources},
    name::Key,
    template::{Library, Templates},
};

/// The templates of the daemon, as far as they are known.
pub(crate) struct DaemonTemplates {
    /// Those of everything, and the overrides of the repository that was read.
    pub(crate) library: Library,
    /// The GitSource of that repository, and the resources that it declares.
    pub(crate) declared: Option<(SourceName, BTreeSet<(Kind, Key)>)>,
    /// Other GitSources, of which the control plane says that they have no templates.
    pub(crate) plain: BTreeSet<SourceName>,
}

// === impl DaemonTemplates ===

impl DaemonTemplates {
    /// The templates of a landscape that no repository declares.
    pub(crate) fn new(library: Library) -> DaemonTemplates {
        DaemonTemplates { library, declared: None, plain: BTreeSet::new() }
    }

    /// The GitSources of resources whose repository was not read.
    pub(crate) fn unread(&self, resources: &Resources) -> BTreeSet<SourceName> {
        let metadata = resources.ids().filter_map(|(kind, key)| resources.metadata(kind, key));
        let mut sources: BTreeSet<SourceName> = metadata.filter_map(SourceName::from_metadata).collect();
        sources.retain(|source| !self.is_read(source));
        sources
    }

    /// The templates of a resource. Fails with one sentence if they are not known: with others, its objects would
    /// differ from those that the daemon renders.
    pub(super) fn of(&self, kind: Kind, key: &Key, metadata: &ObjectMeta) -> Result<&Templates, String> {
        match SourceName::from_metadata(metadata) {
            Some(source) if self.is_read(&source) || self.plain.contains(&source) => {
                Ok(self.library.of_source(Some(&source)))
            }
            Some(source) => Err(format!(
                "{kind} {key} is declared by GitSource {source}, which may override templates: name the path of its \
                 repository, for example `tidegate adopt kcp .`"
            )),
            None => match self.declared.as_ref().filter(|(source, all)| {
                all.contains(&(kind, key.clone())) && self.library.of_source(Some(source)).has_overrides()
            }) {
                // Until the daemon applies its definition, it would render it with other templates.
                Some((source, _)) => Err(unowned(kind, key, source)),
                None => Ok(self.library.base()),
            },
        }
    }

    fn is_read(&self, source: &SourceName) -> bool {
        self.declared.as_ref().is_some_and(|(read, _)| read == source)
    }
}

/// That a resource needs the ownership label first.
fn unowned(kind: Kind, key: &Key, source: &SourceName) -> String {
    let resource = format!("{}.{SETUP_GROUP} -n {} {}", kind.plural(), key.namespace(), key.name());
    format!(
        "the repository declares {kind} {key} and overrides templates, but the resource has no ownership label, so the \
         daemon would begin with other templates: set it with `kubectl annotate {resource} {}={source} && kubectl \
         label {resource} {}={}`",
        annotation::SOURCE,
        label::SOURCE,
        source.label_value()
    )
}
