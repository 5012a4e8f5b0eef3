//! What every runtime has, whatever its modules: the system namespace, the CRDs and the catalog.
//!
//! Rendered and serialised once for all runtimes of a class. Their names are reserved by the platform, so they are applied
//! without a look at who else may have made them, as Lifecycle Manager does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{RuntimePass, delay, shelf::Shelf};
use tidegate_cluster::{Cluster, Error, Metadata, Propagation};
use tidegate_core::{
    api::{
        names::{FIELD_MANAGER, MANAGED_BY_SKR, SKR_NAMESPACE, label},
        shared::ObjectMeta,
    },
    conditions,
    landscape::{self, Landscape, SourceName},
    object::{Digest, Gvk, ObjectId},
    plan::{self, Class, RuntimePlan, Settings},
    render::{self, Mark, SharedObjects},
    status::Part,
    template::Library,
};

use crate::runtime::objects::{self, Applied, Failed};

/// What a process remembers of it in one runtime.
#[derive(Debug, Default)]
pub(super) struct KnownBase {
    applied: Option<Applied>,
    attempt: u32,
}

/// The objects, for all runtimes of a kin.
#[derive(Debug)]
struct Base {
    objects: Arc<SharedObjects>,
    /// Of the objects, and of the states of the definitions that they were made of: an earlier text that comes back is
    /// another state. What is recorded of the former one says nothing, since what came between may have been begun.
    digest: Digest,
    /// What could not be rendered.
    problems: Vec<String>,
}

/// Runtimes that get the same objects: of one class, and with Kymas of one source, if that overrides templates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kin {
    class: Class,
    overriding: Option<SourceName>,
}

/// The objects of all kins, valid for one landscape.
#[derive(Default)]
pub struct Bases(Shelf<Kin, Inputs, Base>);

/// What the objects of a kin are made of.
#[derive(Clone)]
struct Inputs {
    landscape: Arc<Landscape>,
    library: Arc<Library>,
}

/// How the parts fare after a pass.
pub(super) struct BaseReport {
    pub(super) crds: Part,
    pub(super) catalog: Part,
    /// Digest of all of it, once all of it is applied.
    pub(super) applied: Option<Digest>,
    pub(super) again: Option<Duration>,
}

/// Field manager of Lifecycle Manager for catalog objects: what bears it is a copy from KCP, not a user's.
const CATALOG_MANAGER_UPSTREAM: &str = "catalog-sync";

/// The kinds of which every runtime has objects.
pub(super) fn kinds() -> Vec<Gvk> {
    vec![
        Gvk::new("", "v1", "Namespace"),
        Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        template_kind(),
        release_kind(),
    ]
}

fn template_kind() -> Gvk {
    Gvk::new(tidegate_core::api::KYMA_GROUP, tidegate_core::api::KYMA_VERSION, "ModuleTemplate")
}

fn release_kind() -> Gvk {
    Gvk::new(tidegate_core::api::KYMA_GROUP, tidegate_core::api::KYMA_VERSION, "ModuleReleaseMeta")
}

/// Brings what every runtime has to what it should be.
pub(super) async fn bring(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    landscape: &Arc<Landscape>,
    plan: &RuntimePlan,
    live: Option<&BTreeMap<ObjectId, Metadata>>,
    memory: &mut KnownBase,
) -> Result<BaseReport, Error> {
    let base = pass.context.bases.for_class(pass, landscape, &plan.class).await;
    let digest = base.digest;
    let recorded =
        pass.kyma.status.as_ref().and_then(|status| conditions::message(&status.conditions, conditions::APPLIED));
    let mut applied = Applied::before(&base.objects, memory.applied.take(), recorded, &digest);
    let owner = landscape::key(&pass.kyma.metadata);
    if let Some(live) = live {
        let suspects = applied.look(live);
        objects::compare(cluster, &owner, live, &mut applied, suspects).await?;
    }
    let missing = applied.missing();
    let changed = !missing.is_empty() || recorded != Some(digest.to_string().as_str());
    let failed = objects::send(cluster, pass.cause, &owner, &mut applied, &missing).await?;
    // A catalog that could not be rendered whole says nothing about what is no longer in it.
    if (changed || live.is_some()) && failed.is_empty() && base.problems.is_empty() {
        prune_catalog(pass, cluster, &base.objects).await?;
    }
    let complete = applied.is_complete() && base.problems.is_empty();
    memory.applied = Some(applied);
    memory.attempt = if failed.is_empty() { 0 } else { memory.attempt.saturating_add(1) };
    let again = failed
        .iter()
        .filter_map(|failed| failed.error.as_ref())
        .map(|error| delay(error.class(), memory.attempt))
        .min();
    Ok(BaseReport {
        crds: part(&failed, &[], |id| matches!(&*id.kind, "Namespace" | "CustomResourceDefinition")),
        catalog: part(&failed, &base.problems, |id| matches!(&*id.kind, "ModuleTemplate" | "ModuleReleaseMeta")),
        applied: complete.then_some(digest),
        again,
    })
}

fn part(failed: &[Failed], problems: &[String], belongs: impl Fn(&ObjectId) -> bool) -> Part {
    let message = failed.iter().find(|failed| belongs(&failed.id)).map(|failed| &failed.message).or(problems.first());
    message.map_or(Part::Done, |message| Part::Failed(message.clone()))
}

/// Deletes the copies of definitions that this runtime no longer sees; what users made themselves stays.
async fn prune_catalog(pass: &RuntimePass<'_>, cluster: &Cluster, desired: &SharedObjects) -> Result<(), Error> {
    let selector = format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY);
    for gvk in [template_kind(), release_kind()] {
        let Some(kind) = cluster.kind(&gvk).await? else { continue };
        for metadata in cluster.list_metadata(&kind, Some(SKR_NAMESPACE), Some(&selector)).await? {
            let kept = desired.objects.iter().any(|object| object.id == metadata.id);
            let ours = metadata.has_manager(FIELD_MANAGER) || metadata.has_manager(CATALOG_MANAGER_UPSTREAM);
            if !kept && ours && !metadata.deleting {
                cluster.delete(pass.cause, &kind, &metadata, Propagation::Background).await?;
            }
        }
    }
    Ok(())
}

// === impl Bases ===

impl Bases {
    /// The objects for a runtime of a class.
    async fn for_class(&self, pass: &RuntimePass<'_>, landscape: &Arc<Landscape>, class: &Class) -> Arc<Base> {
        let context = pass.context;
        let inputs = Inputs { landscape: Arc::clone(landscape), library: context.library() };
        let overriding = inputs.library.overriding(&pass.kyma.metadata);
        let kin = Kin { class: class.clone(), overriding };
        let make = async {
            let (landscape, kin, settings) = (Arc::clone(landscape), kin.clone(), context.settings.clone());
            let render = move |library: &Library| render_base(&settings, &landscape, library, &kin);
            context.renderer.with_library(&inputs.library, render).await
        };
        self.0.get(kin.clone(), inputs.clone(), make).await
    }
}

// === impl Inputs ===

impl PartialEq for Inputs {
    fn eq(&self, other: &Inputs) -> bool {
        Arc::ptr_eq(&self.landscape, &other.landscape) && Arc::ptr_eq(&self.library, &other.library)
    }
}

fn render_base(settings: &Settings, landscape: &Landscape, library: &Library, kin: &Kin) -> Base {
    let catalog = plan::catalog(landscape, &kin.class, settings);
    let (mut objects, errors) = render::catalog(library, landscape, &catalog);
    let mut problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match render::runtime_namespace(library.of_source(kin.overriding.as_ref())) {
        Ok(object) => objects.push(object),
        Err(error) => problems.push(error.to_string()),
    }
    // The catalog's kinds are namespaced: their CRDs are among the objects.
    let objects = objects.iter().chain(render::runtime_crds());
    let objects = Arc::new(SharedObjects::new(objects, Mark::Runtime, &|_| None));
    let digest = Digest::all([&objects.digest, &states(landscape, &catalog)]);
    Base { objects, digest, problems }
}

/// Digest of which states the definitions behind a catalog are in.
fn states(landscape: &Landscape, catalog: &plan::Catalog) -> Digest {
    let templates = catalog.templates.iter().filter_map(|key| landscape.templates.get(key));
    let releases = catalog.releases.iter().filter_map(|release| landscape.releases.get(&release.key));
    let state = |metadata: &ObjectMeta| json!([metadata.uid, metadata.name, metadata.generation]);
    let states: Vec<Value> = templates
        .map(|template| state(&template.metadata))
        .chain(releases.map(|release| state(&release.metadata)))
        .collect();
    Digest::from_value(&Value::from(states))
}
