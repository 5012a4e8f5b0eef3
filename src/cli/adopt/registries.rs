//! Asks the registries that the daemon will read for components that no Manifest records, or that are installed from
//! another registry, and each for one module that is installed from it. Sends reads only.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use tidegate_cluster::{Cluster, Kind};
use tidegate_core::{
    adopt::{Answers, Lookup, NamedRegistries},
    api::names::KCP_NAMESPACE,
    component::{Component, RegistryAddress, Source},
    name::Key,
    plan::{ComponentRecord, Published},
};
use tidegate_oci::{DockerConfig, Error, Registry, RegistryDescriptor, Settings};

use crate::{components::docker_config, confine};

/// The registries that the daemon will read.
#[derive(clap::Args)]
pub(super) struct Registries {
    /// Expect a daemon that reads modules from this registry, for example `registry.example.com/prod`, by its
    /// `--oci-registry-host` or by `ociRegistries`; repeat the option for more [default: none]
    #[arg(long = "oci-registry-host", value_name = "HOST[/PATH]")]
    hosts: Vec<RegistryAddress>,
    /// Expect a daemon that reads modules from the registry that this Secret in kcp-system names, with its credentials;
    /// repeat the option for more [default: none]
    #[arg(long = "oci-registry-cred-secret", value_name = "NAME")]
    secrets: Vec<String>,
    /// Expect a daemon that looks for modules below this path of its registries, for example `modules` [default: none]
    #[arg(long = "modules-repository-subpath", value_name = "PATH", default_value = "", hide_default_value = true)]
    subpath: String,
    /// Use the CAs in this PEM file, instead of those of the system, for the registries [default: none]
    #[arg(long = "oci-registry-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Send the credentials of a registry to these hosts too if it requests tokens there, separated by commas
    /// [default: none]
    #[arg(long = "oci-registry-token-hosts", value_name = "HOSTS", value_delimiter = ',')]
    token_hosts: Vec<String>,
    /// Skip the registries that options name, for example because they cannot be reached from here: they are asked
    /// neither for a module that is installed from them, nor for versions that runtimes are to get. Both are notes
    /// then. What is installed from a registry that no option names blocks [default: off]
    #[arg(long)]
    no_registries: bool,
}

/// The registries that options name, before they are asked.
pub(super) struct Opened {
    /// Each with its option.
    pub(super) named: NamedRegistries,
    /// In the order in which they are asked; empty if they are skipped.
    registries: Vec<Registry>,
}

/// What registries were asked.
pub(super) struct Asked {
    /// What they say; empty if they were not asked.
    pub(super) found: BTreeMap<Component, Lookup>,
    /// Components that a registry has, while one before it did not answer: the reason, in one sentence.
    pub(super) silent: BTreeMap<Component, String>,
    /// What they say of what is installed from them; empty if they were not asked.
    pub(super) answers: Answers,
}

/// Components or registries at a time.
const AT_ONCE: usize = 8;

// === impl Registries ===

impl Registries {
    /// The registries of the options. Fails if an option cannot be used, or the Secret that it names.
    pub(super) async fn open(&self, kcp: &Cluster) -> anyhow::Result<Opened> {
        let ca = self.ca.as_ref().map(std::fs::read).transpose();
        let ca = ca.with_context(|| {
            let path = self.ca.as_deref().unwrap_or(Path::new("")).display();
            format!("cannot read the CA of registries `{path}`")
        })?;
        let (mut named, mut registries) = (NamedRegistries::new(), Vec::new());
        let mut add = |address: RegistryAddress, option: String, credentials| -> anyhow::Result<()> {
            let unusable = || format!("cannot use the registry of {option}");
            let address = address.below(&self.subpath).with_context(unusable)?;
            let unpacker = confine::unpacker().context("cannot unpack what registries send")?;
            let (ca, token_hosts) = (ca.clone(), self.token_hosts.clone());
            let settings = Settings { ca, credentials, token_hosts, unpacker, ..Settings::new(address) };
            let registry = Registry::new(settings).with_context(unusable)?;
            name(&mut named, registry.address().to_string(), option)?;
            registries.push(registry);
            Ok(())
        };
        for host in &self.hosts {
            // Without its path, which is the other option's.
            add(host.clone(), format!("--oci-registry-host={}", as_option(host)), None)?;
        }
        for name in &self.secrets {
            let DockerConfig { registry, credentials } = of_secret(kcp, name).await?;
            add(registry, format!("--oci-registry-cred-secret={name}"), Some(credentials))?;
        }
        if self.no_registries {
            registries.clear();
        }
        Ok(Opened { named, registries })
    }
}

// === impl Opened ===

impl Opened {
    /// Asks for these components, and each registry for the installed blob that `samples` has by its address.
    pub(super) async fn ask(&self, wanted: BTreeSet<Component>, samples: BTreeMap<String, Source>) -> Asked {
        let registries = &self.registries;
        let (mut found, mut silent) = (BTreeMap::new(), BTreeMap::new());
        if registries.is_empty() {
            return Asked { found, silent, answers: Answers::new() };
        }
        let check = async |(place, source): (String, Source)| {
            let registry = registries.iter().find(|registry| registry.address().to_string() == place)?;
            Some((place, registry.check(&source).await.map_err(chain)))
        };
        let lookup = async |component: Component| (component.clone(), look_up(registries, &component).await);
        let checks = stream::iter(samples).map(check).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        let lookups = stream::iter(wanted).map(lookup).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        let (checks, lookups) = tokio::join!(checks, lookups);
        for (component, (lookup, why)) in lookups {
            silent.extend(why.map(|why| (component.clone(), why)));
            found.insert(component, lookup);
        }
        Asked { found, silent, answers: checks.into_iter().flatten().collect() }
    }
}

/// An address as an option has it: with the scheme, if its host alone would mean another one.
fn as_option(address: &RegistryAddress) -> String {
    let scheme = if address.url().starts_with("http://") && !address.is_local() { "http://" } else { "" };
    format!("{scheme}{address}")
}

/// The registry and the credentials of a Secret. Fails if it cannot be read or used.
async fn of_secret(kcp: &Cluster, name: &str) -> anyhow::Result<DockerConfig> {
    let key = Key::new(KCP_NAMESPACE, name);
    let what = || format!("Secret {key} of --oci-registry-cred-secret");
    let secret: Option<Secret> =
        kcp.get_as(&Kind::namespaced::<Secret>(), &key).await.with_context(|| format!("cannot read {}", what()))?;
    docker_config(secret.with_context(|| format!("{} does not exist", what()))?).with_context(what)
}

/// Adds a registry with the option that names it. Fails if another option names it as well.
fn name(named: &mut NamedRegistries, address: String, option: String) -> anyhow::Result<()> {
    if let Some(other) = named.get(&address) {
        bail!("{other} and {option} name the same registry, {address}: leave one of them out");
    }
    named.insert(address, option);
    Ok(())
}

/// What the registries have of a component: the first that has it decides. And why registries before it did not answer.
async fn look_up(registries: &[Registry], component: &Component) -> (Lookup, Option<String>) {
    let (mut refused, mut unanswered) = (Vec::new(), Vec::new());
    for registry in registries {
        match registry.descriptor(component).await {
            Ok(RegistryDescriptor { manifest, module, .. }) => {
                let record = ComponentRecord { manifest: Some(manifest), read: None };
                let published = Published { repo: registry.address().to_string(), module, record };
                return concluded(Some(published), &refused, &unanswered);
            }
            Err(error) if is_answer(&error) => refused.push(chain(error)),
            Err(error) => unanswered.push(chain(error)),
        }
    }
    concluded(None, &refused, &unanswered)
}

/// What answers of registries mean.
fn concluded(found: Option<Published>, refused: &[String], unanswered: &[String]) -> (Lookup, Option<String>) {
    let silent = (!unanswered.is_empty()).then(|| unanswered.join("; "));
    match (found, silent) {
        (Some(found), silent) => (Lookup::Found(Arc::new(found)), silent),
        (None, Some(silent)) => (Lookup::Unanswered(silent), None),
        (None, None) => (Lookup::Refused(refused.join("; ")), None),
    }
}

/// Whether an error says that the registry has no such component that can be used.
fn is_answer(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::TooMuch { .. }
            | Error::NotADescriptor { .. }
            | Error::Descriptor { .. }
            | Error::Unpack { .. }
            | Error::Exhausted { .. }
    )
}

fn chain(error: Error) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

#[cfg(test)]
mod tests {
    use tidegate_core::component::{Layer, LayerKind, Module};

    use super::*;

    #[test]
    fn a_registry_is_named_once() {
        let mut named = NamedRegistries::new();
        let address = || "r.example.com/prod".to_owned();
        name(&mut named, address(), "--oci-registry-host=r.example.com".to_owned()).unwrap();
        let error = name(&mut named, address(), "--oci-registry-cred-secret=login".to_owned()).unwrap_err();
        let expected = "--oci-registry-host=r.example.com and --oci-registry-cred-secret=login name the same registry, \
                        r.example.com/prod: leave one of them out";
        assert_eq!(error.to_string(), expected);
        assert_eq!(named[&address()], "--oci-registry-host=r.example.com");
    }

    #[test]
    fn a_registry_that_does_not_answer_is_named_also_if_another_one_has_the_component() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let layer = Layer { digest: digest.parse().unwrap(), kind: LayerKind::Tar };
        let module = Module { layer, localized_images: Vec::new() };
        let published =
            || Published { repo: "b".to_owned(), module: module.clone(), record: ComponentRecord::default() };
        let (refused, silent) = (["a does not have it".to_owned()], ["a does not answer".to_owned()]);
        let (lookup, why) = concluded(Some(published()), &[], &silent);
        assert!(matches!(lookup, Lookup::Found(_)));
        assert_eq!(why.as_deref(), Some("a does not answer"));
        let (lookup, why) = concluded(Some(published()), &refused, &[]);
        assert!(matches!(lookup, Lookup::Found(_)));
        assert_eq!(why, None);
        let (lookup, why) = concluded(None, &refused, &silent);
        assert!(matches!(lookup, Lookup::Unanswered(text) if text == "a does not answer"));
        assert_eq!(why, None);
        let (lookup, why) = concluded(None, &refused, &[]);
        assert!(matches!(lookup, Lookup::Refused(text) if text == "a does not have it"));
        assert_eq!(why, None);
    }
}
