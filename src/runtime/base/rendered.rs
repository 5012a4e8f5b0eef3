//! The base, rendered once for all runtimes that get the same objects.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::{
    api::shared::ObjectMeta,
    landscape::{Landscape, SourceName},
    object::Digest,
    plan::{self, Class, Settings},
    render::{self, Mark, RuntimeCrds, SharedObjects},
    template::Library,
};

use super::state::Base;
use crate::runtime::{RuntimePass, shelf::Shelf};

/// The bases of all runtimes, valid for one landscape.
#[derive(Default)]
pub(crate) struct Bases(Shelf<Kin, Inputs, Base>);

/// Runtimes that get the same objects: those of one class whose Kymas have the same template overrides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kin {
    class: Class,
    /// The source of the Kymas, if it overrides templates.
    overriding: Option<SourceName>,
}

/// What the objects are rendered from, beside the kin.
#[derive(Clone)]
struct Inputs {
    landscape: Arc<Landscape>,
    library: Arc<Library>,
    crds: Arc<RuntimeCrds>,
}

// === impl Bases ===

impl Bases {
    /// The base of a runtime of a class.
    pub(super) async fn of_class(
        &self,
        pass: &RuntimePass<'_>,
        landscape: &Arc<Landscape>,
        class: &Class,
    ) -> Arc<Base> {
        let context = pass.context;
        let crds = context.stores.runtime_crds();
        let inputs = Inputs { landscape: Arc::clone(landscape), library: context.templates.library(), crds };
        let overriding = inputs.library.overriding(&pass.kyma.metadata);
        let kin = Kin { class: class.clone(), overriding };
        let make = async {
            let (landscape, kin, settings) = (Arc::clone(landscape), kin.clone(), context.settings.plan.clone());
            let crds = Arc::clone(&inputs.crds);
            let render = move |library: &Library| render_base(&settings, &landscape, &crds, library, &kin);
            context.templates.renderer.with_library(&inputs.library, render).await
        };
        self.0.get(kin.clone(), inputs.clone(), make).await
    }
}

// === impl Inputs ===

impl PartialEq for Inputs {
    fn eq(&self, other: &Inputs) -> bool {
        Arc::ptr_eq(&self.landscape, &other.landscape)
            && Arc::ptr_eq(&self.library, &other.library)
            && Arc::ptr_eq(&self.crds, &other.crds)
    }
}

fn render_base(settings: &Settings, landscape: &Landscape, crds: &RuntimeCrds, library: &Library, kin: &Kin) -> Base {
    let catalog = plan::catalog(landscape, &kin.class, settings);
    let (mut objects, errors) = render::catalog(library, landscape, &catalog);
    let mut problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match render::runtime_namespace(library.of_source(kin.overriding.as_ref())) {
        Ok(object) => objects.push(object),
        Err(error) => problems.push(error.to_string()),
    }
    // The catalog's kinds are namespaced: their CRDs are among the objects.
    let objects = objects.iter().chain(crds.objects());
    let objects = Arc::new(SharedObjects::new(objects, Mark::Runtime, &|_| None));
    let digest = Digest::all([&objects.digest, &generations(landscape, &catalog)]);
    Base { objects, digest, problems }
}

/// Digest of the generations of the definitions behind a catalog.
fn generations(landscape: &Landscape, catalog: &plan::Catalog) -> Digest {
    let templates = catalog.templates.iter().filter_map(|key| landscape.templates.get(key));
    let releases = catalog.releases.iter().filter_map(|release| landscape.releases.get(&release.key));
    let generation = |metadata: &ObjectMeta| json!([metadata.uid, metadata.name, metadata.generation]);
    let generations: Vec<Value> = templates
        .map(|template| generation(&template.metadata))
        .chain(releases.map(|release| generation(&release.metadata)))
        .collect();
    Digest::from_value(&Value::from(generations))
}
