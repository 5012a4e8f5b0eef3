//! The custom resources as types.
//!
//! What the API server stores and what users write, field by field, as the upstream CRDs have it; no behaviour beyond
//! small readings of one's own fields. The CRDs that `tidegate crds` prints come from these types.
//! Unknown fields are not refused here: definitions are checked against the CRD schemas before they become these types.

pub mod git_source;
pub mod kyma;
pub mod manifest;
pub mod module_release_meta;
pub mod module_template;
pub mod names;
pub mod shared;
pub mod watcher;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use git_source::GitSource;
pub use kyma::Kyma;
pub use manifest::Manifest;
pub use module_release_meta::ModuleReleaseMeta;
pub use module_template::ModuleTemplate;
pub use watcher::Watcher;

/// The API group of the Kyma kinds.
pub const KYMA_GROUP: &str = "operator.kyma-project.io";
/// The served and stored version of the Kyma kinds.
pub const KYMA_VERSION: &str = "v1beta2";
/// The API group of our own kinds.
pub const TIDEGATE_GROUP: &str = "tidegate.dev";

/// The CustomResourceDefinitions of all our kinds, by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    use kube::core::CustomResourceExt as _;
    let mut crds = vec![
        GitSource::crd(),
        Kyma::crd(),
        Manifest::crd(),
        ModuleReleaseMeta::crd(),
        ModuleTemplate::crd(),
        Watcher::crd(),
    ];
    crds.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    crds
}

/// The CustomResourceDefinition of one of our kinds; `None` for a kind that is not ours.
pub fn crd(kind: &str) -> Option<CustomResourceDefinition> {
    crds().into_iter().find(|crd| crd.spec.names.kind == kind)
}
