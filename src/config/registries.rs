//! The OCI registries that modules are read from.
//!
//! The registry of the flags has all components. The configuration file may name more registries, each for the
//! components below some names.

use std::{collections::BTreeSet, ops::RangeInclusive, path::PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_core::{
    api::names,
    component::{ComponentName, ParseAddressError, RegistryAddress},
    name::Key,
};

use super::{Error, Options, checked, invalid};

/// An entry of `ociRegistries`: one more registry, for some components. Only the configuration file has these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct RegistryOptions {
    /// The components in this registry: names, or beginnings of names up to a slash. The longest that matches counts.
    pub components: Vec<String>,
    /// As `--oci-registry-host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// As `--oci-registry-cred-secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cred_secret: Option<String>,
    /// As `--modules-repository-subpath`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
    /// As `--oci-registry-ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// As `--oci-registry-token-hosts`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub token_hosts: Vec<String>,
}

/// The OCI registries that modules are read from, and the cache of what they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registries {
    /// The registries; none if no module is in one. At most one has all components that no other names.
    pub all: Vec<Registry>,
    /// The folder of the cache; `None` for the one in the state folder.
    pub cache: Option<PathBuf>,
    /// Limit of the cache.
    pub quota_bytes: u64,
}

/// An OCI registry that modules are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// The components in it; `None` for those that no other registry names.
    pub components: Option<Vec<String>>,
    /// Where it is, and who reads.
    pub access: RegistryAccess,
    /// The path that all modules are below; part of the address if that is known.
    pub subpath: String,
    /// A file with its CAs.
    pub ca: Option<PathBuf>,
    /// Other hosts that may get the credentials.
    pub token_hosts: Vec<String>,
}

/// Where an OCI registry is, and who reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryAccess {
    /// A given registry, without credentials.
    Anonymous(RegistryAddress),
    /// The registry that a Secret names, with its credentials.
    Secret(Key),
}

/// Size of the module cache, in MiB. With less, a single layer may not fit.
const MODULE_CACHE_MIB: RangeInclusive<u64> = 64..=1_048_576;
/// The key of further registries in the configuration file.
const MORE: &str = "ociRegistries";

/// The registries of the options. The error about host and Secret is Lifecycle Manager's.
pub(super) fn registries(options: &Options) -> Result<Registries, Error> {
    let mut all = Vec::new();
    let main = RegistryOptions {
        components: Vec::new(),
        host: options.oci_registry_host.clone(),
        cred_secret: options.oci_registry_cred_secret.clone(),
        subpath: options.modules_repository_subpath.clone(),
        ca: options.oci_registry_ca.clone(),
        token_hosts: options.oci_registry_token_hosts.clone(),
    };
    all.extend(registry(&main, ["ociRegistryHost", "ociRegistryCredSecret", "modulesRepositorySubpath"], None)?);
    let mut seen = BTreeSet::new();
    for (index, entry) in options.oci_registries.iter().enumerate() {
        let number = index + 1;
        let components =
            components(&entry.components, &mut seen).map_err(|why| invalid(MORE, format!("entry {number}: {why}")))?;
        let found = registry(entry, [MORE; 3], Some(components))?;
        all.push(found.ok_or_else(|| invalid(MORE, format!("entry {number}: set `host` or `credSecret`")))?);
    }
    if !MODULE_CACHE_MIB.contains(&options.module_cache_quota) {
        let (found, min, max) = (options.module_cache_quota, MODULE_CACHE_MIB.start(), MODULE_CACHE_MIB.end());
        let message = format!("{found} is out of range: use a number of MiB from {min} to {max}");
        return Err(invalid("moduleCacheQuota", message));
    }
    Ok(Registries { all, cache: options.module_cache.clone(), quota_bytes: options.module_cache_quota << 20 })
}

/// The checked names of an entry.
fn components(names: &[String], seen: &mut BTreeSet<String>) -> Result<Vec<String>, String> {
    if names.is_empty() {
        return Err("name its `components`, for example kyma-project.io/module".to_owned());
    }
    let check = |name: &String| {
        let name = name.trim_end_matches('/');
        // A name without a path is the beginning of others.
        if name.parse::<ComponentName>().is_err() && format!("{name}/x").parse::<ComponentName>().is_err() {
            return Err(format!(
                "`{name}` does not begin the name of a component; use kyma-project.io/module, for example"
            ));
        }
        if !seen.insert(name.to_owned()) {
            return Err(format!("`{name}` occurs twice"));
        }
        Ok(name.to_owned())
    };
    names.iter().map(check).collect()
}

/// A registry, if one is given.
fn registry(
    given: &RegistryOptions,
    [host_option, secret_option, subpath_option]: [&'static str; 3],
    components: Option<Vec<String>>,
) -> Result<Option<Registry>, Error> {
    let filled = |option: &Option<String>| option.clone().filter(|text| !text.is_empty());
    let subpath = filled(&given.subpath).unwrap_or_default();
    let not_an_address = |option, error: ParseAddressError| invalid(option, error.to_string());
    let access = match (filled(&given.host), filled(&given.cred_secret)) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(invalid(host_option, "either registry or credSecretName should be provided, not both"));
        }
        (Some(host), None) => {
            let address: RegistryAddress = host.parse().map_err(|error| not_an_address(host_option, error))?;
            let below = address.below(&subpath).map_err(|error| not_an_address(subpath_option, error))?;
            RegistryAccess::Anonymous(below)
        }
        (None, Some(secret)) => {
            RegistryAccess::Secret(Key::new(names::KCP_NAMESPACE, &checked(secret_option, &secret)?))
        }
    };
    let (ca, token_hosts) = (given.ca.clone(), given.token_hosts.clone());
    Ok(Some(Registry { components, access, subpath, ca, token_hosts }))
}
