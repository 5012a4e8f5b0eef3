//! The base, rendered once for all runtimes that get the same objects.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::{
    api::{names::KCP_NAMESPACE, shared::ObjectMeta},
    landscape::{Landscape, SourceName},
    name::Key,
    object::Digest,
    plan::{self, Class, Settings},
    render::{self, DataSource, Mark, RuntimeCrds, SharedObjects},
    template::Library,
};

use super::state::{Base, Credentials};
use crate::{
    runtime::{RuntimePass, shared_values::SharedValues},
    stores::secret::PullSecret,
};

/// The bases of all runtimes, valid for one landscape.
#[derive(Default)]
pub(crate) struct Bases(SharedValues<Kin, Inputs, Base>);

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
    /// The image pull Secret, if one is configured and exists.
    pull_secret: Option<Arc<PullSecret>>,
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
        let inputs = Inputs {
            landscape: Arc::clone(landscape),
            library: context.templates.library(),
            crds: context.stores.runtime_crds(),
            pull_secret: context.stores.pull_secret(),
        };
        let overriding = inputs.library.overriding(&pass.kyma.metadata);
        let kin = Kin { class: class.clone(), overriding };
        let make = async {
            let (library, kin, settings) = (Arc::clone(&inputs.library), kin.clone(), context.settings.plan.clone());
            let inputs = inputs.clone();
            let render = move |library: &Library| render_base(&settings, &inputs, library, &kin);
            context.templates.renderer.with_library(&library, render).await
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
            && self.pull_secret == other.pull_secret
    }
}

fn render_base(settings: &Settings, inputs: &Inputs, library: &Library, kin: &Kin) -> Base {
    let Inputs { landscape, crds, pull_secret, library: _ } = inputs;
    let catalog = plan::catalog(landscape, &kin.class, settings);
    let (mut objects, errors) = render::catalog(library, landscape, &catalog);
    let mut problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match render::runtime_namespace(library.of_source(kin.overriding.as_ref())) {
        Ok(object) => objects.push(object),
        Err(error) => problems.push(error.to_string()),
    }
    let templates = library.of_source(kin.overriding.as_ref());
    let credentials = match (&settings.pull_secret, pull_secret) {
        (Some(name), Some(found)) => {
            match render::agent_pull_secret(templates, name, &found.type_, &found.labels, []) {
                Ok(object) => {
                    let credentials = (object.id(), Key::new(KCP_NAMESPACE, name), found.version.as_str());
                    objects.push(object);
                    Some(credentials)
                }
                Err(error) => {
                    problems.push(error.to_string());
                    None
                }
            }
        }
        (_, None) | (None, Some(_)) => None,
    };
    // The catalog's kinds are namespaced: their CRDs are among the objects.
    let objects = objects.iter().chain(crds.objects());
    let objects = SharedObjects::new(objects, Mark::Runtime, &|_| None);
    let objects = Arc::new(match credentials {
        Some((id, secret, version)) => objects.with_data(&id, &Arc::new(DataSource { secret, module: None }), version),
        None => objects,
    });
    let digest = Digest::all([&objects.digest, &generations(landscape, &catalog)]);
    let credentials = settings.pull_secret.as_ref().map(|name| match pull_secret {
        Some(_) => Credentials::Found,
        None => Credentials::Missing(Key::new(KCP_NAMESPACE, name)),
    });
    Base { objects, digest, problems, credentials }
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
