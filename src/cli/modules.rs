//! Modules in OCI registries, for commands: from the cache of a daemon on this machine. No registry is asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use tidegate_core::{
    component::{Component, RegistryAddress, Source},
    content::ContentId,
    definition::{self, Definitions, ModuleObjects},
    diagnostic::Diagnostics,
    landscape::{Landscape, SourceName, file::LandscapeFile},
    plan::{self, Answer, ComponentRecord, Components, Published},
    yaml,
};
use tidegate_oci as oci;

/// The options that name the cache.
#[derive(Clone, clap::Args)]
pub(super) struct Modules {
    /// Read modules in OCI registries from this folder, the `--module-cache` of a daemon; no registry is asked
    /// [default: none]
    #[arg(long, value_name = "DIR", requires = "oci_registry_host")]
    module_cache: Option<PathBuf>,
    /// Read those of this OCI registry, with the path that all modules are below, for example
    /// `europe-docker.pkg.dev/kyma-project/prod`; repeat the option for more, and the first that the folder knows a
    /// module of counts [default: none]
    #[arg(long, value_name = "HOST[/PATH]", requires = "module_cache")]
    oci_registry_host: Vec<RegistryAddress>,
}

/// Modules by their content.
type ModulesByContent = BTreeMap<ContentId, Arc<ModuleObjects>>;

// === impl Modules ===

impl Modules {
    /// What the cache knows of the components that channels offer. Adds the objects of their layers to the definitions.
    /// `known` are definitions of other sources.
    ///
    /// A component is only known with its layer: without the objects, all of them would seem to go.
    pub(super) fn read(
        &self,
        source: &SourceName,
        known: Option<&LandscapeFile>,
        sides: &mut [&mut Definitions],
    ) -> Components {
        let Some(folder) = &self.module_cache else { return Components::default() };
        let mut wanted = BTreeSet::new();
        for definitions in sides.iter() {
            let mut landscape = Landscape::from_definitions(&mut Diagnostics::default(), definitions, source);
            if let Some(known) = known {
                known.complete(&mut landscape, source);
            }
            wanted.extend(plan::components_named(&landscape).into_keys());
        }
        let (mut answered, mut found) = (BTreeMap::new(), ModulesByContent::new());
        for component in wanted {
            let mut answers =
                self.oci_registry_host.iter().map(|registry| read(folder, registry, &component, &mut found));
            let first = answers.next().unwrap_or_else(|| Err("no registry is given".to_owned()));
            let answer = first.or_else(|why| answers.find_map(Result::ok).ok_or(why));
            drop(answers);
            answered.insert(component, answer.unwrap_or_else(Answer::Unknown));
        }
        for definitions in sides {
            definitions.modules.extend(found.iter().map(|(content, objects)| (*content, Arc::clone(objects))));
        }
        Components::new(Arc::new(answered), Answer::Unknown("no channel of the definitions offers it".to_owned()))
    }
}

/// A component with the objects of its layer. Fails with why it is not known, in one sentence.
fn read(
    folder: &Path,
    registry: &RegistryAddress,
    component: &Component,
    modules: &mut ModulesByContent,
) -> Result<Answer, String> {
    let absent = |what: &str| format!("the cache has no {what} of it from {registry}; a daemon fills the cache");
    let found = oci::stored_descriptor(folder, registry, component).map_err(|error| error.to_string())?;
    let found = found.ok_or_else(|| absent("descriptor"))?;
    let (layer, images) = (found.module.layer, &found.module.localized_images);
    let repo = registry.to_string();
    let source = Source { repo: repo.clone(), name: component.name.clone(), digest: layer.digest, kind: layer.kind };
    let text = oci::stored_layer(folder, &source).map_err(|error| error.to_string())?;
    let text = text.ok_or_else(|| absent("layer"))?;
    let objects = definition::layer_objects(layer, images, &text, &yaml::Limits::default());
    let objects = objects.map_err(|problem| format!("failed to parse manifest objects: {problem}"))?;
    modules.insert(objects.content(), Arc::new(objects));
    let record = ComponentRecord { manifest: Some(found.manifest), read: Some(layer.digest) };
    Ok(Answer::Found(Arc::new(Published { repo, module: found.module, record })))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use tidegate_core::component::BlobDigest;

    use super::*;

    const YAML: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";

    /// Writes a descriptor into a cache as a daemon does.
    fn store(folder: &Path, component: &Component, layer: &[u8]) {
        let digest = BlobDigest::of(layer);
        let text = json!({
            "meta": {"schemaVersion": "v2"},
            "component": {
                "name": component.name.as_str(), "version": component.version.as_str(), "provider": "example.org",
                "repositoryContexts": [{"type": "OCIRegistry", "baseUrl": "r.example.com"}],
                "sources": [], "componentReferences": [],
                "resources": [{
                    "name": "raw-manifest", "version": "1.0.0", "relation": "local", "type": "yaml",
                    "access": {"type": "localBlob", "localReference": digest.to_string(), "mediaType": "application/x-yaml"},
                }],
            },
        });
        let record = json!({"manifest": BlobDigest::of(b"manifest"), "text": text.to_string()}).to_string();
        let name = format!("r.example.com/component-descriptors/{component}");
        let path = folder.join(format!("{}.descriptor", BlobDigest::of(name.as_bytes()).hex()));
        fs::write(path, format!("{}{record}", BlobDigest::of(record.as_bytes()).hex())).unwrap();
    }

    #[test]
    fn a_component_is_known_only_with_all_its_objects() {
        let folder = tempfile::tempdir().unwrap();
        let registry: RegistryAddress = "r.example.com".parse().unwrap();
        let component = Component::new("example.org/module/keda", "1.0.0").unwrap();
        let why = |what: &str| format!("the cache has no {what} of it from r.example.com; a daemon fills the cache");
        let mut modules = ModulesByContent::new();
        let mut read = || read(folder.path(), &registry, &component, &mut modules);
        assert_eq!(read(), Err(why("descriptor")));
        store(folder.path(), &component, YAML.as_bytes());
        assert_eq!(read(), Err(why("layer")));
        let path = folder.path().join(BlobDigest::of(YAML.as_bytes()).hex());
        fs::write(&path, "kind: torn").unwrap();
        assert_eq!(read(), Err(why("layer")), "a damaged layer is none");
        fs::write(&path, YAML).unwrap();
        let Ok(Answer::Found(found)) = read() else { panic!("it is there") };
        assert_eq!(found.repo, "r.example.com");
        let content = ContentId::layer(found.module.layer.digest, found.module.layer.kind, &[]);
        assert_eq!(modules[&content].objects().len(), 1);
    }
}
