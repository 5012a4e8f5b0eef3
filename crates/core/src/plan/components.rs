//! What is known of the OCM components that modules in registries are made from: an input of the plan.
//!
//! A plan never waits for a registry. While a component is not known, its module waits or is refused, and what is
//! installed stays.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api::{Manifest, names::annotation},
    component::{BlobDigest, Component, Layer, Module, Source},
    content::ContentId,
    landscape,
    plan::InstallSource,
};

/// What is known of components, as one runtime sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Components {
    known: Arc<BTreeMap<Component, Answer>>,
    /// What the Manifests of the runtime record. It goes before `known`.
    recorded: BTreeMap<Component, Answer>,
    /// The sources of its Manifests whose objects are in git.
    in_git: BTreeMap<Component, InstallSource>,
    otherwise: Answer,
}

/// Why a component cannot be found, and its layer not be read, that no registry has.
pub const NO_REGISTRY: &str = "no OCI registry is configured for it: set --oci-registry-host or \
                               --oci-registry-cred-secret, or add it to `ociRegistries` in the configuration file";

/// What is known of one component.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is being looked up.
    Pending,
    /// It is in a registry.
    Found(Arc<Published>),
    /// It was looked up in vain. Contains the reason, in one sentence.
    Failed(String),
    /// It is not known without a registry. Contains how to change that, in one sentence.
    Unknown(String),
}

/// A component in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Host and subpath of the registry, as Manifests have it.
    pub repo: String,
    /// What its descriptor says.
    pub module: Module,
    /// How a Manifest records it.
    pub record: ComponentRecord,
}

/// What a Manifest records of its component, beside the source of its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComponentRecord {
    /// The digest of what the tag of the version named when it was looked up.
    pub manifest: Option<BlobDigest>,
    /// The digest of the layer whose objects were read.
    pub read: Option<BlobDigest>,
}

// === impl Components ===

impl Components {
    /// What is known of some components, and the answer for all others.
    pub fn new(known: Arc<BTreeMap<Component, Answer>>, otherwise: Answer) -> Components {
        Components { known, recorded: BTreeMap::new(), in_git: BTreeMap::new(), otherwise }
    }

    /// The same, as a runtime with these Manifests sees it.
    ///
    /// An installed version keeps the content that its Manifest records. So a registry that is away changes nothing,
    /// and neither does a tag that was moved, except for what `is_renewed` names: there a user has requested the
    /// content that the tag names now.
    #[must_use]
    pub fn seen_by<'a>(
        &self,
        manifests: impl IntoIterator<Item = &'a Manifest>,
        is_renewed: &dyn Fn(&Component) -> bool,
    ) -> Components {
        let installed = manifests.into_iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_none());
        let mut seen = Components { recorded: BTreeMap::new(), in_git: BTreeMap::new(), ..self.clone() };
        for manifest in installed {
            if let Some((component, recorded)) = recorded(manifest) {
                let answer = self.seen_with(&component, recorded, is_renewed(&component));
                seen.recorded.insert(component, answer);
            } else if let Some((component, source)) = recorded_in_git(manifest) {
                seen.in_git.insert(component, source);
            }
        }
        seen
    }

    /// Where in git the runtime has the objects of a component from, if it has them from there.
    pub(super) fn installed_from_git(&self, component: &Component) -> Option<&InstallSource> {
        self.in_git.get(component)
    }

    fn seen_with(&self, component: &Component, recorded: Published, is_renewed: bool) -> Answer {
        let Answer::Found(found) = self.get(component) else { return Answer::Found(Arc::new(recorded)) };
        let is_same = match recorded.record.manifest {
            Some(manifest) => found.record.manifest == Some(manifest),
            // Lifecycle Manager records only the layer.
            None => found.module == recorded.module,
        };
        // What was read once stays recorded while it is read again.
        let read = found.record.read.or(recorded.record.read);
        if is_same || is_renewed {
            let record = ComponentRecord { read, ..found.record };
            return Answer::Found(Arc::new(Published { record, ..Published::clone(found) }));
        }
        // The registry may have moved with all its content.
        Answer::Found(Arc::new(Published { repo: found.repo.clone(), ..recorded }))
    }

    /// Whether a component is being looked up, whatever Manifests record of it.
    pub fn is_pending(&self, component: &Component) -> bool {
        self.known.get(component) == Some(&Answer::Pending)
    }

    /// What is known of a component.
    pub fn get(&self, component: &Component) -> &Answer {
        self.recorded.get(component).or_else(|| self.known.get(component)).unwrap_or(&self.otherwise)
    }
}

impl Default for Components {
    /// Nothing is known, and nothing is looked up.
    fn default() -> Components {
        let why = "its component is in an OCI registry, which this command does not read".to_owned();
        Components::new(Arc::default(), Answer::Unknown(why))
    }
}

// === impl Published ===

impl Published {
    /// What identifies its objects.
    pub fn content(&self) -> ContentId {
        let Module { layer, localized_images } = &self.module;
        ContentId::layer(layer.digest, layer.kind, localized_images)
    }
}

/// The component of a Manifest whose objects are in a registry, and what the Manifest records of it.
pub fn recorded(manifest: &Manifest) -> Option<(Component, Published)> {
    // Most Manifests of a landscape may have their objects in git.
    let source = Source::try_from(&manifest.spec.install.source).ok()?;
    let text = |name: &str| landscape::annotation(&manifest.metadata, name);
    let component = component(manifest)?;
    if source.name != component.name {
        return None;
    }
    let digest = |name: &str| text(name).and_then(|text| text.parse().ok());
    let published = Published {
        repo: source.repo,
        module: Module {
            layer: Layer { digest: source.digest, kind: source.kind },
            localized_images: manifest.spec.localized_images.clone(),
        },
        record: ComponentRecord {
            manifest: digest(annotation::COMPONENT_DIGEST),
            read: digest(annotation::SYNC_OCI_REF),
        },
    };
    Some((component, published))
}

/// The component of a Manifest whose objects are in git, and where they are.
fn recorded_in_git(manifest: &Manifest) -> Option<(Component, InstallSource)> {
    match InstallSource::try_from(&manifest.spec.install.source).ok()? {
        source @ InstallSource::Git { .. } => Some((component(manifest)?, source)),
        InstallSource::Oci(_) => None,
    }
}

/// The component that a Manifest names.
fn component(manifest: &Manifest) -> Option<Component> {
    let name = landscape::annotation(&manifest.metadata, annotation::OCM_COMPONENT_NAME)?;
    Component::new(name, manifest.spec.version.as_deref().unwrap_or_default()).ok()
}

#[cfg(test)]
pub(super) mod tests;
