//! The custom resources as types.
//!
//! Objects as the API server stores them and users write them, with the fields of the upstream
//! CRDs. The types have no behavior except accessors. The CRDs that `tidegate crds` prints are
//! generated from them. Unknown fields are accepted here: definitions are validated by the CRD
//! schemas before they become these types.

pub mod crd;
pub mod git_source;
pub mod kyma;
pub mod manifest;
pub mod module_release_meta;
pub mod module_template;
pub mod names;
pub mod setup;
pub mod shared;
pub mod watcher;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;

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

/// The version of the Kyma kinds that is no longer served.
const KYMA_VERSION_RETIRED: &str = "v1beta1";

/// The CustomResourceDefinitions of all our kinds, by name. Generated once per process, because
/// generation is slow.
pub fn crds() -> &'static [CustomResourceDefinition] {
    static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(make_crds);
    &CRDS
}

fn make_crds() -> Vec<CustomResourceDefinition> {
    let upstream = |crd| crd::with_optional_spec(crd::finish(crd));
    let retired = |crd| crd::with_retired_version(upstream(crd), KYMA_VERSION_RETIRED);
    let mut crds = vec![
        crd::finish(GitSource::crd()),
        retired(Kyma::crd()),
        retired(Manifest::crd()),
        // This kind was introduced with the current version.
        upstream(ModuleReleaseMeta::crd()),
        retired(ModuleTemplate::crd()),
        retired(Watcher::crd()),
    ];
    crds.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    crds
}

/// The CustomResourceDefinition of one of our kinds; `None` for a kind that is not ours.
pub fn crd(kind: &str) -> Option<&'static CustomResourceDefinition> {
    crds().iter().find(|crd| crd.spec.names.kind == kind)
}

#[cfg(test)]
mod tests;
