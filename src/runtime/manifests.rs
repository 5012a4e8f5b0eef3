//! The Manifests of a Kyma in KCP: applied where they differ, deleted where their module is not wanted.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::json;

use super::{RuntimePass, outcome::Failed};
use tidegate_cluster::{Cluster, Error, Kind, Metadata, OnConflict, Propagation};
use tidegate_core::{
    api::{
        Manifest,
        names::{annotation, label},
        shared::{ObjectMeta, Time},
    },
    landscape,
    name::Key,
    object::Object,
    plan::{Installation, ModuleOutcome, RuntimePlan},
    render,
    status::{Failure, ModuleFact, Planned},
    template::Templates,
};

use crate::runtime::manifest::{is_released, is_unmanaged};

/// Label of Manifests that belong to a mandatory module: they follow another rule.
const MANDATORY: &str = "operator.kyma-project.io/mandatory-module";

/// The modules of a runtime after their Manifests were brought to what they should be.
pub(super) struct Modules {
    /// The Manifests that are there, those that are being deleted included.
    pub(super) present: Vec<Arc<Manifest>>,
    planned: Vec<(String, Planned)>,
    problems: Vec<String>,
}

// === impl Modules ===

impl Modules {
    /// What status says of each module; `passed` are the Manifests after the passes over them.
    pub(super) fn facts(&self, passed: &[Arc<Manifest>]) -> Vec<ModuleFact> {
        let by_module: BTreeMap<&str, &Arc<Manifest>> = passed
            .iter()
            .filter_map(|manifest| module_of(&manifest.metadata).map(|module| (module, manifest)))
            .collect();
        self.planned
            .iter()
            .map(|(name, planned)| ModuleFact {
                name: name.clone(),
                planned: planned.clone(),
                // One that a pass has just removed is no longer there, whatever the watch says.
                manifest: by_module
                    .get(name.as_str())
                    .filter(|manifest| !is_released(manifest))
                    .map(|manifest| Arc::clone(manifest)),
            })
            .collect()
    }

    /// What keeps Manifests from being written, beyond what their modules say.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.problems.first().map(|message| Failure { reason: "RenderFailed", message: message.clone(), access: false })
    }
}

/// Applies and deletes the Manifests of a Kyma.
pub(super) async fn bring(
    pass: &RuntimePass<'_>,
    plan: &RuntimePlan,
    manifests: &[Arc<Manifest>],
) -> Result<Modules, Failed> {
    let mut by_module: BTreeMap<&str, &Arc<Manifest>> = manifests
        .iter()
        .filter(|manifest| landscape::label(&manifest.metadata, MANDATORY).is_none())
        .filter_map(|manifest| module_of(&manifest.metadata).map(|module| (module, manifest)))
        .collect();
    let mut modules = Modules { present: Vec::new(), planned: Vec::new(), problems: Vec::new() };
    for module in &plan.modules {
        let live = by_module.remove(module.name.as_str());
        let (planned, present) = match &module.outcome {
            ModuleOutcome::Install(installation) => {
                let present = install(pass, installation, live, &mut modules.problems).await?;
                (planned(installation), present)
            }
            ModuleOutcome::Refuse(refusal) => {
                let message = match &refusal.hint {
                    Some(hint) => format!("{}; {hint}", refusal.message),
                    None => refusal.message.clone(),
                };
                let present = match live {
                    Some(live) if !refusal.keep => Some(delete(pass, live).await?),
                    live => live.cloned(),
                };
                (Planned::Refused { state: refusal.state, message }, present)
            }
            ModuleOutcome::Unmanage => {
                let present = match live {
                    Some(live) => Some(unmanage(pass, live).await?),
                    None => None,
                };
                (Planned::Unmanaged, present)
            }
        };
        modules.planned.push((module.name.clone(), planned));
        modules.present.extend(present);
    }
    for (name, live) in by_module {
        modules.present.push(delete(pass, live).await?);
        modules.planned.push((name.to_owned(), Planned::Removing));
    }
    Ok(modules)
}

fn planned(installation: &Installation) -> Planned {
    Planned::Install {
        template: installation.template.clone(),
        template_generation: installation.template_generation,
        channel: installation.channel.clone(),
        policy: installation.policy,
    }
}

/// Applies the Manifest of a module if it differs.
async fn install(
    pass: &RuntimePass<'_>,
    installation: &Installation,
    live: Option<&Arc<Manifest>>,
    problems: &mut Vec<String>,
) -> Result<Option<Arc<Manifest>>, Failed> {
    if let Some(live) = live.filter(|live| live.metadata.deletion_timestamp.is_some() || is_unmanaged(live)) {
        // It goes first, as it was; then the module is installed anew.
        return if live.metadata.deletion_timestamp.is_some() {
            Ok(Some(Arc::clone(live)))
        } else {
            Ok(Some(delete(pass, live).await?))
        };
    }
    let library = pass.context.library();
    let uid = pass.kyma.metadata.uid.clone().unwrap_or_default();
    let installation = installation.clone();
    let render = move |templates: &Templates| render::manifest(templates, &installation, &uid);
    let desired = match pass.context.renderer.with(library.for_object(&pass.kyma.metadata), render).await {
        Ok(desired) => desired,
        Err(error) => {
            // A broken template changes nothing: what is installed stays.
            problems.push(error.to_string());
            return Ok(live.cloned());
        }
    };
    if let Some(live) = live.filter(|live| matches(&desired, live)) {
        return Ok(Some(Arc::clone(live)));
    }
    let kind = Kind::namespaced::<Manifest>();
    let id = desired.id();
    let body = Bytes::from(desired.value().to_string());
    let kcp = &pass.context.kcp;
    let (metadata, created) = kcp.apply_telling(pass.cause, &kind, &id, body, OnConflict::Force).await?;
    if live.is_none() && !created {
        // It was there, and nobody had told us: what it says of its objects counts.
        return Ok(read(kcp, &Key::new(desired.namespace(), desired.name())).await?);
    }
    Ok(Some(Arc::new(written(desired, &metadata, live)?)))
}

/// A Manifest as it stands in KCP.
pub(super) async fn read(kcp: &Cluster, key: &Key) -> Result<Option<Arc<Manifest>>, Error> {
    let manifest: Option<Manifest> = kcp.get_as(&Kind::namespaced::<Manifest>(), key).await?;
    Ok(manifest.map(|mut manifest| {
        manifest.metadata.managed_fields = None;
        Arc::new(manifest)
    }))
}

/// The Manifest as it stands after an apply.
fn written(desired: Object, metadata: &Metadata, live: Option<&Arc<Manifest>>) -> Result<Manifest, Failed> {
    let mut manifest: Manifest = serde_json::from_value(desired.into_value()).map_err(Failed::unreadable)?;
    manifest.metadata.uid = Some(metadata.uid.clone());
    manifest.metadata.resource_version = Some(metadata.resource_version.clone());
    manifest.metadata.generation = Some(metadata.generation);
    manifest.metadata.labels = Some(metadata.labels.clone());
    manifest.metadata.annotations = Some(metadata.annotations.clone());
    manifest.metadata.finalizers = Some(metadata.finalizers.clone());
    manifest.status = live.and_then(|live| live.status.clone());
    Ok(manifest)
}

/// Whether a Manifest stands as rendered; labels, annotations and finalizers of others do not count.
fn matches(desired: &Object, live: &Manifest) -> bool {
    let Ok(wanted) = serde_json::from_value::<Manifest>(desired.value().clone()) else { return false };
    let holds = |wanted: &Option<BTreeMap<String, String>>, live: &Option<BTreeMap<String, String>>| {
        wanted.iter().flatten().all(|(key, value)| live.as_ref().and_then(|map| map.get(key)) == Some(value))
    };
    let finalizers = |metadata: &ObjectMeta| metadata.finalizers.clone().unwrap_or_default();
    let present = finalizers(&live.metadata);
    wanted.spec == live.spec
        && holds(&wanted.metadata.labels, &live.metadata.labels)
        && holds(&wanted.metadata.annotations, &live.metadata.annotations)
        && finalizers(&wanted.metadata).iter().all(|finalizer| present.contains(finalizer))
        && wanted
            .metadata
            .owner_references
            .iter()
            .flatten()
            .all(|owner| live.metadata.owner_references.iter().flatten().any(|present| present.uid == owner.uid))
}

/// Asks for a Manifest to be deleted; the pass over it does the work.
pub(super) async fn delete(pass: &RuntimePass<'_>, live: &Arc<Manifest>) -> Result<Arc<Manifest>, Failed> {
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(Arc::clone(live));
    }
    let kind = Kind::namespaced::<Manifest>();
    let id = kind.id(&landscape::key(&live.metadata));
    let uid = live.metadata.uid.clone().unwrap_or_default();
    pass.context.kcp.delete_if(pass.cause, &kind, &id, &uid, None, Propagation::Background).await?;
    // The deletion has made a new resource version that we do not know: what follows must not insist on the old one.
    let mut deleting = Manifest::clone(live);
    deleting.metadata.deletion_timestamp = Some(Time(pass.now));
    deleting.metadata.resource_version = None;
    Ok(Arc::new(deleting))
}

/// Marks a Manifest as unmanaged, then deletes it: its objects stay, without the mark.
async fn unmanage(pass: &RuntimePass<'_>, live: &Arc<Manifest>) -> Result<Arc<Manifest>, Failed> {
    let mut marked = Manifest::clone(live);
    if !is_unmanaged(live) {
        let kind = Kind::namespaced::<Manifest>();
        let key: Key = landscape::key(&live.metadata);
        let patch = json!({"metadata": {"annotations": {annotation::IS_UNMANAGED: "true"}}});
        pass.context.kcp.merge_patch(pass.cause, &kind, &kind.id(&key), None, Bytes::from(patch.to_string())).await?;
        marked
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(annotation::IS_UNMANAGED.to_owned(), "true".to_owned());
    }
    delete(pass, &Arc::new(marked)).await
}

/// The module whose Manifest it is.
pub(super) fn module_of(metadata: &ObjectMeta) -> Option<&str> {
    landscape::label(metadata, label::MODULE_NAME)
}

#[cfg(test)]
mod tests;
