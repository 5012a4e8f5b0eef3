//! Custom resources of users, which keep their CustomResourceDefinitions and modules in a runtime: an API server
//! deletes all custom resources together with their definition. Only reads; a comparison asks the same questions as a
//! pass.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{api::Manifest, changes::Prune, name::Key, object::ObjectId};

use super::{
    decide as manifest_decide, recorded,
    remove::{
        decide::{self, first_of_users, is_definition},
        id_of,
    },
};

/// The definitions among these that may be deleted and have custom resources of users: with the first of them.
/// Lists only those of definitions whose annotation allows the deletion: the others stay anyway. `siblings` are all
/// Manifests of the runtime.
///
/// # Errors
///
/// Errors of the runtime.
pub(crate) async fn definitions_in_use(
    cluster: &Cluster,
    manifest: &Manifest,
    siblings: &[Arc<Manifest>],
    unwanted: &[Prune],
) -> Result<BTreeMap<ObjectId, String>, Error> {
    let mut in_use = BTreeMap::new();
    let mut of_module = None;
    for unwanted in unwanted.iter().filter(|unwanted| is_definition(&unwanted.id)) {
        let Some(kind) = cluster.kind(&unwanted.gvk()).await? else { continue };
        let found = cluster.get_metadata(&kind, &Key::new("", &unwanted.id.name)).await?;
        if !found.as_ref().is_some_and(manifest_decide::may_delete_definition) {
            continue;
        }
        let kinds = match &of_module {
            Some(kinds) => kinds,
            None => &*of_module.insert(cluster.kinds_of_definitions(&decide::definitions(manifest)).await?),
        };
        for kind in cluster.kinds_of_definitions(std::slice::from_ref(&unwanted.id.name)).await? {
            let present = cluster.list_served(&kind).await?;
            let first = first_of_users(manifest, siblings, kinds, &present);
            in_use.extend(first.map(|first| (unwanted.id.clone(), first)));
        }
    }
    Ok(in_use)
}

/// What holds the removal of a module: the first custom resource of users, and how many more there are. `None` if
/// nothing does. `siblings` are all Manifests of the runtime.
///
/// # Errors
///
/// Errors of the runtime.
pub(crate) async fn module_in_use(
    cluster: &Cluster,
    manifest: &Manifest,
    siblings: &[Arc<Manifest>],
) -> Result<Option<String>, Error> {
    let resource = decide::resource(manifest).map(|resource| resource.gvk());
    let kinds = cluster.kinds_of_definitions(&decide::definitions(manifest)).await?;
    for kind in decide::other_kinds(&kinds, resource.as_ref()) {
        // Those that Tidegate made go with the module.
        let (_, present) = decide::former_defaults(siblings, cluster.list_served(kind).await?);
        let first = first_of_users(manifest, siblings, &kinds, &present);
        if first.is_some() {
            return Ok(first);
        }
    }
    let Some(resource) = resource else { return Ok(None) };
    let Some((kind, present)) = cluster.list_metadata_in_any_version(&resource).await? else { return Ok(None) };
    let present = decide::that_count(manifest, &kinds, &kind, present);
    let (_, present) = decide::former_defaults_of_kind(manifest, siblings, &kinds, &kind, present);
    let default = recorded::module_resource(manifest).map(|object| id_of(&kind, &object));
    Ok(decide::others_than(default.as_ref(), &present))
}

/// The custom resources that Tidegate created by default for former versions of a module, and deletes with the module.
/// `siblings` are all Manifests of the runtime.
///
/// # Errors
///
/// Errors of the runtime.
pub(crate) async fn former_defaults(
    cluster: &Cluster,
    manifest: &Manifest,
    siblings: &[Arc<Manifest>],
) -> Result<Vec<(Kind, Key)>, Error> {
    let resource = decide::resource(manifest).map(|resource| resource.gvk());
    let kinds = cluster.kinds_of_definitions(&decide::definitions(manifest)).await?;
    let mut found = Vec::new();
    for kind in decide::other_kinds(&kinds, resource.as_ref()) {
        let (former, _) = decide::former_defaults(siblings, cluster.list_served(kind).await?);
        found.extend(former.iter().map(|metadata| (kind.clone(), metadata.key())));
    }
    let Some(resource) = resource else { return Ok(found) };
    if let Some((kind, present)) = cluster.list_metadata_in_any_version(&resource).await? {
        let present = decide::that_count(manifest, &kinds, &kind, present);
        let (former, _) = decide::former_defaults_of_kind(manifest, siblings, &kinds, &kind, present);
        found.extend(former.iter().map(|metadata| (kind.clone(), metadata.key())));
    }
    Ok(found)
}
