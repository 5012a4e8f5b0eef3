//! What the landscape puts into the objects of a Manifest. Pure.
//!
//! The image pull Secret is for all modules. Only Secrets of the module `deployer` get data of Secrets in KCP, and only
//! if it is a restricted module: otherwise any Kyma could have them. The texts are Lifecycle Manager's.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        Manifest,
        names::{DEPLOYER, label},
    },
    landscape,
    plan::Settings,
    render::{CompleteModule, Injection},
};

use crate::stores::secret::SourceSecret;

/// The names of the Secrets in KCP whose data objects of a Manifest get.
pub(super) fn sources<'a>(settings: &Settings, manifest: &Manifest, module: &'a CompleteModule) -> BTreeSet<&'a str> {
    let is_deployer = landscape::label(&manifest.metadata, label::MODULE_NAME) == Some(DEPLOYER);
    if !is_deployer || !settings.restricted_modules.contains(DEPLOYER) {
        return BTreeSet::new();
    }
    let asking = module.objects().objects.iter().filter(|object| object.asks_for_data);
    asking.map(|object| &*object.id.name).collect()
}

/// A Secret in KCP, from its metadata.
pub(super) fn source_of(metadata: &Metadata) -> SourceSecret {
    SourceSecret {
        module: metadata.label(label::MODULE_NAME).map(str::to_owned),
        version: format!("{}/{}", metadata.uid, metadata.resource_version),
    }
}

/// The version of the Secret `name` in KCP, if its data may be used. `found` is the Secret, or the error of the
/// request.
///
/// # Errors
///
/// One sentence: the Secret does not exist, could not be read, or is not meant for the module.
pub(super) fn version(name: &str, found: Result<Option<SourceSecret>, String>) -> Result<String, String> {
    let label = format!("{} label", label::MODULE_NAME);
    let why = match found {
        Err(error) => format!("failed to fetch kcp secret \"{name}\": {error}"),
        Ok(None) => format!("failed to fetch kcp secret \"{name}\": secrets \"{name}\" not found"),
        Ok(Some(SourceSecret { module: None, .. })) => {
            format!("kcp source secret is missing the required {label}: secret={name}")
        }
        Ok(Some(SourceSecret { module: Some(module), version })) => {
            if module == DEPLOYER {
                return Ok(version);
            }
            format!(
                "kcp source secret {label} does not match the manifest module: secret={name} expected={DEPLOYER} \
                 actual={module}"
            )
        }
    };
    Err(format!("inject-data-from-kcp transform failed: {why}"))
}

/// What is put into the objects of a Manifest. `versions` are those of the Secrets that [`sources`] names.
pub(super) fn injection(settings: &Settings, manifest: &Manifest, versions: BTreeMap<String, String>) -> Injection {
    let injection = Injection::default().data(versions);
    match &settings.pull_secret {
        Some(name) => injection.pull_secret(name, manifest.spec.manager.as_ref()),
        None => injection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_must_exist_and_be_meant_for_the_deployer() {
        let secret = |module: Option<&str>| {
            Ok(Some(SourceSecret { module: module.map(str::to_owned), version: "u/1".to_owned() }))
        };
        let label = "operator.kyma-project.io/module-name label";
        for (found, expected) in [
            (secret(Some("deployer")), Ok("u/1".to_owned())),
            (
                secret(Some("keda")),
                Err(format!(
                    "kcp source secret {label} does not match the manifest module: secret=pull expected=deployer \
                     actual=keda"
                )),
            ),
            (secret(None), Err(format!("kcp source secret is missing the required {label}: secret=pull"))),
            (Ok(None), Err("failed to fetch kcp secret \"pull\": secrets \"pull\" not found".to_owned())),
            (Err("no rights".to_owned()), Err("failed to fetch kcp secret \"pull\": no rights".to_owned())),
        ] {
            let expected = expected.map_err(|why| format!("inject-data-from-kcp transform failed: {why}"));
            assert_eq!(version("pull", found), expected);
        }
    }
}
