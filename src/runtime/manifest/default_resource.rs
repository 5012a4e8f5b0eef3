//! How the default custom resource of a module comes to exist, step by step, each with one request. Pure.
//!
//! It is created once and never updated: users may have changed or deleted it since, and a user's own one is as good.

use std::{ops::ControlFlow, sync::Arc};

use tidegate_cluster::Metadata;
use tidegate_core::{
    api::Manifest,
    object::{Object, ObjectId},
};

use super::decide::{self, FoundResource, ModuleResource};

/// A default custom resource that a pass must create.
#[derive(Debug)]
pub(super) struct WantedResource {
    /// The custom resource.
    pub(super) object: Object,
    /// Whether an earlier pass may have created it.
    may_exist: bool,
}

/// What a pass has found out about it so far.
#[derive(Debug)]
pub(super) enum SeenResource {
    /// Nothing.
    Unknown {
        /// Whether an earlier pass may have created it.
        may_exist: bool,
    },
    /// It was looked for. Contains its metadata, if it exists.
    Looked(Option<Metadata>),
    /// It was created.
    Created,
    /// Another client created it before.
    Taken,
    /// That one was looked for. Contains its metadata, if it still exists.
    Met(Option<Metadata>),
    /// The API server did not create it. Contains the reason.
    Refused(String),
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResourceStep {
    /// It is looked for: [`SeenResource::Looked`].
    Look,
    /// It is created.
    Create,
    /// The one that another client created is looked for: [`SeenResource::Met`].
    Meet,
    /// This is the result.
    End(FoundResource),
}

// === impl WantedResource ===

impl WantedResource {
    /// The custom resource that a pass must create, or the result if it need not or cannot. `all` are the Manifests of
    /// the runtime.
    pub(super) fn new(
        resource: ModuleResource,
        manifest: &Manifest,
        all: &[Arc<Manifest>],
    ) -> ControlFlow<FoundResource, WantedResource> {
        let (object, may_exist) = match resource {
            ModuleResource::NotOurs => return ControlFlow::Break(FoundResource::NotOurs),
            ModuleResource::Created => return ControlFlow::Break(FoundResource::Exists),
            ModuleResource::Absent(object) => (object, false),
            ModuleResource::Unknown(object) => (object, true),
        };
        match decide::waits_for_removal(&object, manifest, all) {
            Some(waits) => ControlFlow::Break(waits),
            None => ControlFlow::Continue(WantedResource { object, may_exist }),
        }
    }

    /// What is known at the beginning.
    pub(super) fn unknown(&self) -> SeenResource {
        SeenResource::Unknown { may_exist: self.may_exist }
    }
}

// === impl SeenResource ===

impl SeenResource {
    /// The next step for the custom resource `id`.
    pub(super) fn next(self, id: &ObjectId) -> ResourceStep {
        match self {
            SeenResource::Unknown { may_exist: true } => ResourceStep::Look,
            SeenResource::Unknown { may_exist: false } => ResourceStep::Create,
            SeenResource::Looked(found) => {
                decide::existing_resource(found.as_ref()).map_or(ResourceStep::Create, ResourceStep::End)
            }
            SeenResource::Created => ResourceStep::End(FoundResource::Exists),
            SeenResource::Taken => ResourceStep::Meet,
            SeenResource::Met(found) => {
                let gone = || FoundResource::Missing(format!("{id} was deleted a moment ago"));
                ResourceStep::End(decide::existing_resource(found.as_ref()).unwrap_or_else(gone))
            }
            SeenResource::Refused(why) => ResourceStep::End(FoundResource::Missing(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::objects::fixtures;

    #[test]
    fn a_default_custom_resource_is_created_once_and_one_of_a_user_is_as_good() {
        let id = ObjectId::new("x.io", "Cache", "kyma-system", "default");
        let found = |deleting: bool| Metadata { deleting, ..fixtures::metadata(&id, "1") };
        let missing = |why: &str| ResourceStep::End(FoundResource::Missing(format!("{id} {why}")));
        let exists = || ResourceStep::End(FoundResource::Exists);
        for (seen, expected) in [
            (SeenResource::Unknown { may_exist: false }, ResourceStep::Create),
            (SeenResource::Unknown { may_exist: true }, ResourceStep::Look),
            (SeenResource::Looked(None), ResourceStep::Create),
            (SeenResource::Looked(Some(found(false))), exists()),
            (SeenResource::Looked(Some(found(true))), missing("is still being deleted")),
            (SeenResource::Created, exists()),
            (SeenResource::Taken, ResourceStep::Meet),
            (SeenResource::Met(Some(found(false))), exists()),
            (SeenResource::Met(Some(found(true))), missing("is still being deleted")),
            (SeenResource::Met(None), missing("was deleted a moment ago")),
            (SeenResource::Refused(format!("{id} is invalid")), missing("is invalid")),
        ] {
            let text = format!("{seen:?}");
            assert_eq!(seen.next(&id), expected, "{text}");
        }
    }

    #[test]
    fn what_exists_or_is_not_ours_is_not_created() {
        let object = || {
            let value = json!({"apiVersion": "x.io/v1", "kind": "Cache", "metadata": {"name": "default"}});
            Object::new(value).unwrap()
        };
        let manifest = Manifest::default();
        let wanted = |resource| match WantedResource::new(resource, &manifest, &[]) {
            ControlFlow::Break(found) => Err(found),
            ControlFlow::Continue(wanted) => Ok(wanted.may_exist),
        };
        assert_eq!(wanted(ModuleResource::NotOurs), Err(FoundResource::NotOurs));
        assert_eq!(wanted(ModuleResource::Created), Err(FoundResource::Exists));
        assert_eq!(wanted(ModuleResource::Absent(object())), Ok(false));
        assert_eq!(wanted(ModuleResource::Unknown(object())), Ok(true));
    }
}
