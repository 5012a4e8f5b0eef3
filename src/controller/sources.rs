//! Temporary.
use crate::{definition::ModuleObjects, name::Key, revision::Oid};
use std::sync::Arc;
/// T
pub struct SourceRegistry;
impl SourceRegistry {
    /// T
    pub async fn module_objects(&self, _s: &Key, _t: Oid, _p: &str) -> Result<Arc<ModuleObjects>, std::io::Error> {
        unreachable!()
    }
}
