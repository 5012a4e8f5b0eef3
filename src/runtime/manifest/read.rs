//! The objects of a Manifest: where they come from, and what the landscape puts into them.
//!
//! Waits for no registry and no git server. Refuses objects that Tidegate keeps in every runtime.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_core::{
    api::Manifest,
    content::ContentId,
    plan::InstallSource,
    render::{CompleteModule, SharedObjects},
};

use super::{ApplyTarget, decide::NotRead, enact, inject, ownership};
use crate::stores::secret::SourceSecret;

/// Reads the objects of a Manifest, and puts into them what the landscape adds. Fails if that cannot be done now.
pub(super) async fn objects(target: &ApplyTarget<'_>, manifest: &Manifest) -> Result<CompleteModule, NotRead> {
    let source = InstallSource::try_from(&manifest.spec.install.source).map_err(|error| NotRead::failed(&error))?;
    let content = source.content(&manifest.spec.localized_images);
    let module = match source {
        InstallSource::Oci(source) => enact::ask_registry(target, manifest, &source)?,
        InstallSource::Git { source, path, tree } => match target.context.shared.modules.get(tree.into()) {
            Some(known) => known,
            None => enact::read_mirror(target, &source, tree, &path).await?,
        },
    };
    match ownership::refusal(&module, target.pull_secret()) {
        Some(message) => Err(NotRead::Refused(message)),
        None => inject(target, manifest, content, &module).await,
    }
}

/// Puts into the objects of a Manifest what the landscape adds.
async fn inject(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    content: ContentId,
    module: &CompleteModule,
) -> Result<CompleteModule, NotRead> {
    let context = target.context;
    let settings = context.settings.plan;
    let mut versions = BTreeMap::new();
    for name in inject::sources(settings, manifest, module) {
        let found = match context.stores.source_secret(name) {
            Some(known) => Ok(Some(SourceSecret::clone(&known))),
            // The watch does not show it: it is gone, or has lost its label.
            None => enact::read_source_secret(context.kcp, name).await,
        };
        versions.insert(name.to_owned(), inject::version(name, found).map_err(NotRead::Refused)?);
    }
    let injection = inject::injection(settings, manifest, versions);
    let injected = context.shared.modules.injected(content, injection, module);
    injected.map_err(|error| NotRead::Refused(error.to_string()))
}

/// Whether this process will read the source of a Manifest but has not yet.
pub(super) fn is_expected(target: &ApplyTarget<'_>, manifest: &Manifest) -> bool {
    let source = InstallSource::try_from(&manifest.spec.install.source).ok();
    match source {
        Some(InstallSource::Git { source, .. }) => {
            target.context.stores.source(&source).is_some() && !target.context.sources.is_visited(&source)
        }
        Some(InstallSource::Oci(_)) | None => false,
    }
}

/// The objects of a Manifest of the same runtime, if this process has read them.
pub(super) fn known_objects(target: &ApplyTarget<'_>, manifest: &Manifest) -> Option<Arc<SharedObjects>> {
    let source = InstallSource::try_from(&manifest.spec.install.source).ok()?;
    let content = source.content(&manifest.spec.localized_images);
    target.context.shared.modules.get(content).map(|module| Arc::clone(module.objects()))
}
