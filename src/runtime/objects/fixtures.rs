//! Objects and their metadata, for the tests of everything that applies shared objects.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;
use tidegate_cluster::Metadata;
use tidegate_core::{
    api::names::{MANAGED_BY_SKR, label},
    object::{Object, ObjectId},
    render::{Mark, SharedObjects},
};

use super::LiveObjects;

/// Objects by `apiVersion`, kind, namespace and name.
pub(crate) fn shared(objects: &[(&str, &str, &str, &str)]) -> Arc<SharedObjects> {
    let object = |(api, kind, namespace, name): &(&str, &str, &str, &str)| {
        let metadata = json!({"name": name, "namespace": namespace});
        Object::new(json!({"apiVersion": api, "kind": kind, "metadata": metadata})).unwrap()
    };
    let objects: Vec<Object> = objects.iter().map(object).collect();
    Arc::new(SharedObjects::new(&objects, Mark::Module, &|_| None))
}

/// A live object with our ownership label.
pub(crate) fn metadata(id: &ObjectId, resource_version: &str) -> Metadata {
    Metadata {
        id: id.clone(),
        version: "v1".into(),
        uid: "1".to_owned(),
        resource_version: resource_version.to_owned(),
        generation: 1,
        labels: BTreeMap::from([(label::MANAGED_BY.to_owned(), MANAGED_BY_SKR.to_owned())]),
        annotations: BTreeMap::new(),
        finalizers: Vec::new(),
        managers: Vec::new(),
        deleting: false,
        last_other: None,
        claims_texts: false,
        has_user_writes: false,
        owners: Vec::new(),
        unreadable: None,
    }
}

/// Live objects by id.
pub(crate) fn live(objects: impl IntoIterator<Item = Metadata>) -> LiveObjects {
    objects.into_iter().map(|metadata| (metadata.id.clone(), metadata)).collect()
}
