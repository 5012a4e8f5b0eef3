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
