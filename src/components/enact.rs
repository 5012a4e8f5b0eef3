//! Reads from the disk and from the registry. `decide` says what the answers mean.

use std::sync::Arc;

use tidegate_core::{
    component::{Component, Layer},
    definition,
    plan::{ComponentRecord, Published},
    render::CompleteModule,
    yaml,
};
use tidegate_oci::{Layers, Registry, RegistryDescriptor};
use tidegate_process::ambient;

use super::{
    decide::{self, Failure, NoAccess},
    state::{Job, LayerOf, Outcome},
};
use crate::runtime::manifest::ModuleCache;

/// What reads use.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// The cache on disk.
    pub(super) layers: &'a Layers,
    /// The registry.
    pub(super) access: &'a Result<Registry, NoAccess>,
    /// The objects in memory.
    pub(super) modules: &'a ModuleCache,
}

/// The result of a read, and that of the layer of a component that was found.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) layer: Option<(LayerOf, Option<Failure>)>,
}

// === impl Reader ===

impl Reader<'_> {
    /// Does one read.
    pub(super) async fn run(self, job: &Job) -> Ended {
        match job {
            Job::Read(layer) => {
                let outcome = self.read(layer).await.map_or_else(Outcome::Failed, |()| Outcome::Read);
                Ended { outcome, layer: None }
            }
            Job::Check(component) => {
                let outcome = self.check(component).await.unwrap_or_else(Outcome::Failed);
                Ended { outcome, layer: None }
            }
            Job::Find(component) | Job::Renew(component) => {
                match self.find(component, matches!(job, Job::Renew(_))).await {
                    Ok((repo, found)) => self.with_layer(component, repo, found).await,
                    Err(failure) => Ended { outcome: Outcome::Failed(failure), layer: None },
                }
            }
        }
    }

    async fn check(self, component: &Component) -> Result<Outcome, Failure> {
        let registry = self.registry(component)?;
        let resolved = registry.resolve(component).await;
        resolved.map(Outcome::Resolved).map_err(|error| decide::not_found(component, &error))
    }

    async fn find(self, component: &Component, renew: bool) -> Result<(String, RegistryDescriptor), Failure> {
        let registry = self.registry(component)?;
        let found = if renew {
            self.layers.fetch_descriptor(registry, component).await
        } else {
            self.layers.descriptor(registry, component).await
        };
        let found = found.map_err(|error| decide::not_found(component, &error))?;
        Ok((registry.address().to_string(), found))
    }

    /// Reads the layer of a component before anyone hears of it, so that the Manifest can record that it was read.
    async fn with_layer(self, component: &Component, repo: String, found: RegistryDescriptor) -> Ended {
        let record = ComponentRecord { manifest: Some(found.manifest), read: None };
        let published = Published { repo, module: found.module, record };
        let layer = LayerOf::of(component, &published);
        let failure = self.read(&layer).await.err();
        let read = failure.is_none().then_some(layer.source.digest);
        let record = ComponentRecord { read, ..record };
        let outcome = Outcome::Found(Arc::new(Published { record, ..published }));
        Ended { outcome, layer: Some((layer, failure)) }
    }

    /// Reads the objects of a layer into memory.
    async fn read(self, layer: &LayerOf) -> Result<(), Failure> {
        let content = layer.content();
        if self.modules.get(content).is_some() {
            return Ok(());
        }
        let text = match self.layers.read_layer(&layer.source).await {
            Ok(Some(text)) => text,
            Ok(None) => match self.access {
                Ok(registry) => self.layers.layer(registry, &layer.source).await.map_err(|e| decide::not_pulled(&e))?,
                Err(why) => return Err(decide::not_pulled_without_access(why)),
            },
            Err(error) => return Err(decide::not_pulled(&error)),
        };
        let (source, images) = (layer.source.clone(), layer.images.clone());
        let parsed = ambient::blocking(move || {
            let layer = Layer { digest: source.digest, kind: source.kind };
            definition::layer_objects(layer, &images, &text, &yaml::Limits::default())
                .map(|objects| CompleteModule::new(&objects))
        });
        let module = parsed.await.ok_or_else(decide::not_done)?.map_err(|problem| decide::not_parsed(&problem))?;
        self.modules.put(content, module);
        Ok(())
    }

    fn registry(&self, component: &Component) -> Result<&Registry, Failure> {
        self.access.as_ref().map_err(|why| decide::not_found_without_access(component, why))
    }
}
