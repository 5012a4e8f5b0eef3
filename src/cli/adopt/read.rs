//! What the control plane says, as far as a take-over depends on it. Sends reads only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use k8s_openapi::{
    ByteString,
    api::{coordination::v1::Lease, core::v1::Secret},
    jiff::Timestamp,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_cluster::{Cluster, ClusterName, Error, Kind, Limits, access, is_claimed};
use tidegate_core::{
    adopt::{self, Access, Behind, Contact, Holder, Owners, Standing, StoredVersions, Undeclared, Webhook},
    api::{
        GitSource, KYMA_GROUP, KYMA_VERSION, Kyma, Manifest,
        names::{KCP_NAMESPACE, LEASE, label},
    },
    definition::{self, Definitions},
    diagnostic::Diagnostics,
    intake::Id,
    landscape::{self, Landscape, SourceName},
    name::Key,
    object::{Gvk, Object},
};
use tokio::time::Instant;

use super::{
    Declared,
    certificates::{self, Certificates},
    events,
};
use crate::{cli::control_plane::NO_API_SERVER, setup::operator};

/// What the control plane says.
pub(super) struct Facts {
    /// Who holds the Lease.
    pub(super) holder: Option<Holder>,
    /// Who held it, has ended and did not release it.
    pub(super) ended: Option<Ended>,
    /// The kinds of Lifecycle Manager that the control plane does not serve.
    pub(super) missing: Vec<&'static str>,
    /// Whether it serves GitSources.
    pub(super) serves_sources: bool,
    /// The namespaces without any object of Lifecycle Manager.
    pub(super) empty: Vec<String>,
    /// The objects of each kind that git does not declare.
    pub(super) undeclared: BTreeMap<(definition::Kind, Undeclared), Vec<Key>>,
    /// How each Kyma's runtime is reached.
    pub(super) access: BTreeMap<Key, Access>,
    /// How many objects of a kind each field manager wrote.
    pub(super) managers: BTreeMap<(String, String), usize>,
    /// The Manifests.
    pub(super) manifests: Vec<Manifest>,
    /// Those that Lifecycle Manager applied, with their places among them.
    claimed: Vec<(usize, Object)>,
    /// The webhooks for custom resources of Lifecycle Manager, each with the program that answers.
    pub(super) webhooks: Vec<(Webhook, Behind)>,
    /// The Services of Watchers: how many name each, and the program behind it.
    pub(super) services: BTreeMap<Key, (usize, Behind)>,
    /// The certificates of runtimes.
    pub(super) certificates: Certificates,
    /// The CustomResourceDefinitions of Lifecycle Manager.
    pub(super) crds: Vec<Crd>,
    /// The objects of the kinds that git may declare, by kind and key.
    live: BTreeMap<Id, Object>,
}

/// The Lease of a process that has ended and did not release it.
pub(super) struct Ended {
    /// The process.
    pub(super) holder: Holder,
    /// The version of the Lease that was read.
    pub(super) resource_version: String,
    /// When it was read.
    pub(super) read: Instant,
}

/// A CustomResourceDefinition with the objects of its kind.
pub(super) struct Crd {
    /// Its name and versions.
    pub(super) versions: StoredVersions,
    /// The version of the API server's object, for a conditional write.
    pub(super) resource_version: String,
    /// The kind that it defines.
    pub(super) kind: Kind,
    /// Its objects, in all namespaces.
    pub(super) objects: Vec<Key>,
    /// The webhook that converts them, if there is one.
    pub(super) converting: Option<Webhook>,
}

// === impl Facts ===

impl Facts {
    /// Asks the control plane. Fails if a request fails. `istio` is the namespace of certificates.
    pub(super) async fn read(
        cluster: &Cluster,
        namespaces: &[String],
        istio: &str,
        declared: &Declared,
    ) -> anyhow::Result<Facts> {
        let Declared { definitions, source, prune, suspended, .. } = declared;
        let missing = missing(cluster).await?;
        let lease = lease(cluster).await.context("cannot read the Lease")?;
        let holder = lease.as_ref().and_then(|lease| holds(lease, Timestamp::now()));
        let ended = lease.as_ref().and_then(|lease| ended(lease, Timestamp::now()));
        let (mut live, mut managers) = (BTreeMap::new(), BTreeMap::new());
        let mut undeclared: BTreeMap<(definition::Kind, Undeclared), Vec<Key>> = BTreeMap::new();
        let sources = sources(cluster, namespaces).await.context("cannot list the GitSources")?;
        let serves_sources = sources.is_some();
        let owners = Owners::new(source, sources.unwrap_or_default(), *prune, *suspended);
        let mut kymas = Vec::new();
        for kind in [
            definition::Kind::Kyma,
            definition::Kind::ModuleTemplate,
            definition::Kind::ModuleReleaseMeta,
            definition::Kind::Watcher,
        ] {
            for object in list(cluster, &kind.to_string(), namespaces).await? {
                count(&mut managers, &object);
                let key = key_of(&object);
                if kind == definition::Kind::Kyma {
                    kymas.push(key.clone());
                }
                let id = (kind, key);
                if !definitions.good.contains_key(&id) {
                    let fate = owners.decide(&id, &object);
                    undeclared.entry((kind, fate)).or_default().push(id.1.clone());
                }
                live.insert(id, object);
            }
        }
        let (mut manifests, mut claimed) = (Vec::new(), Vec::new());
        for object in list(cluster, "Manifest", namespaces).await? {
            count(&mut managers, &object);
            let what = || format!("cannot read {}", object.id());
            manifests.push(serde_json::from_value(object.value().clone()).with_context(what)?);
            if is_claimed(&object) {
                claimed.push((manifests.len() - 1, object));
            }
        }
        let found = live.keys().map(|(_, key)| key.namespace()).collect::<BTreeSet<&str>>();
        let of_manifests: Vec<Key> =
            manifests.iter().map(|manifest: &Manifest| landscape::key(&manifest.metadata)).collect();
        let has_some =
            |name: &String| found.contains(name.as_str()) || of_manifests.iter().any(|key| key.namespace() == name);
        let empty = namespaces.iter().filter(|name| !has_some(name)).cloned().collect();
        let known: BTreeSet<Key> = kymas.iter().cloned().collect();
        let access = access_of(cluster, namespaces, kymas).await?;
        let crds = crds(cluster).await.context("cannot read the CustomResourceDefinitions")?;
        let converting = crds.iter().filter_map(|crd| crd.converting.clone());
        let webhooks = events::webhooks(cluster, converting).await.context("cannot read the webhooks")?;
        let watchers = live.iter().filter(|((kind, _), _)| *kind == definition::Kind::Watcher);
        let services = events::services(cluster, watchers.map(|(_, watcher)| watcher)).await;
        let services = services.context("cannot read the Services of Watchers")?;
        let certificates = certificates::read(cluster, istio, &known).await.context("cannot read the certificates")?;
        Ok(Facts {
            holder,
            ended,
            missing,
            serves_sources,
            empty,
            undeclared,
            access,
            managers,
            manifests,
            claimed,
            webhooks,
            services,
            certificates,
            crds,
            live,
        })
    }

    /// The Kymas.
    pub(super) fn kymas(&self) -> BTreeSet<Key> {
        self.access.keys().cloned().collect()
    }

    /// The Kymas whose access Secret Tidegate accepts.
    pub(super) fn reachable(&self) -> BTreeSet<Key> {
        let accepted = self.access.iter().filter(|(_, access)| **access == Access::Accepted);
        accepted.map(|(key, _)| key.clone()).collect()
    }

    /// The Kymas whose runtimes stay as Lifecycle Manager left them.
    pub(super) fn held(&self) -> Vec<Key> {
        self.live_kymas()
            .filter(|kyma| adopt::is_adopted(&kyma.metadata))
            .map(|kyma| landscape::key(&kyma.metadata))
            .collect()
    }

    /// The Kymas whose runtimes are to stay as Lifecycle Manager left them.
    pub(super) fn to_hold(&self) -> Vec<Key> {
        let to_hold = |kyma: &Kyma| adopt::may_be_held(kyma) && !adopt::is_adopted(&kyma.metadata);
        self.live_kymas().filter(to_hold).map(|kyma| landscape::key(&kyma.metadata)).collect()
    }

    /// What the first contacts that are to come will find, of the runtimes that Tidegate can reach.
    pub(super) fn contacts(&self) -> BTreeMap<Key, Contact> {
        let reachable = self.reachable();
        let of_kyma = |kyma: Kyma| Some((landscape::key(&kyma.metadata), adopt::contact(&kyma)?));
        self.live_kymas().filter_map(of_kyma).filter(|(key, _)| reachable.contains(key)).collect()
    }

    /// The Kymas that are being deleted, of the runtimes that Tidegate can reach.
    pub(super) fn ending(&self) -> Vec<Key> {
        let reachable = self.reachable();
        let ending = self.live_kymas().filter(|kyma| kyma.metadata.deletion_timestamp.is_some());
        ending.map(|kyma| landscape::key(&kyma.metadata)).filter(|key| reachable.contains(key)).collect()
    }

    /// The Manifests that become Tidegate's.
    pub(super) fn to_claim(&self) -> Vec<&Object> {
        let kymas: BTreeMap<Key, Kyma> = self.live_kymas().map(|kyma| (landscape::key(&kyma.metadata), kyma)).collect();
        let kyma_of = |manifest: &Manifest| {
            let kyma = landscape::label(&manifest.metadata, label::KYMA_NAME)?;
            kymas.get(&Key::new(landscape::key(&manifest.metadata).namespace(), kyma))
        };
        let is_referenced =
            |manifest: &Manifest| kyma_of(manifest).is_some_and(|kyma| adopt::is_referenced(manifest, kyma));
        let referenced = self.claimed.iter().filter(|(index, _)| is_referenced(&self.manifests[*index]));
        referenced.map(|(_, object)| object).collect()
    }

    /// The Kymas in the control plane. One that cannot be read is reported elsewhere.
    pub(super) fn live_kymas(&self) -> impl Iterator<Item = Kyma> {
        let kymas = self.live.iter().filter(|((kind, _), _)| *kind == definition::Kind::Kyma);
        kymas.filter_map(|(_, kyma)| serde_json::from_value(kyma.value().clone()).ok())
    }

    /// The versions of all CustomResourceDefinitions.
    pub(super) fn stored(&self) -> Vec<StoredVersions> {
        self.crds.iter().map(|crd| crd.versions.clone()).collect()
    }

    /// How many objects must be stored again.
    pub(super) fn outdated(&self) -> usize {
        self.crds.iter().filter(|crd| crd.versions.is_outdated()).map(|crd| crd.objects.len()).sum()
    }

    /// How each definition in git stands.
    pub(super) fn standings(&self, declared: &Definitions, source: &SourceName) -> Vec<(Id, Standing)> {
        let (installed, nothing) = (adopt::trees_installed(&self.manifests), BTreeSet::new());
        let standing = |(id, definition): (&Id, &Arc<definition::Definition>)| {
            let live = self.live.get(id).map(Object::value);
            let standing = Standing::of(definition, live, source);
            let trees = installed.get(&id.1).filter(|_| id.0 == definition::Kind::ModuleTemplate).unwrap_or(&nothing);
            let standing = match live {
                Some(live) => standing.after_release(definition, live, trees),
                None => standing,
            };
            (id.clone(), standing)
        };
        declared.good.iter().map(standing).collect()
    }

    /// The definitions that get the ownership label.
    pub(super) fn equal(&self, declared: &Definitions, source: &SourceName) -> Vec<Id> {
        let standings = self.standings(declared, source).into_iter();
        standings.filter(|(_, standing)| standing.is_marked_by_take()).map(|(id, _)| id).collect()
    }

    /// The Kymas that git declares, as they are after the take-over, and the modules that their runtimes have.
    pub(super) fn kymas_after(
        &self,
        declared: &Definitions,
        source: &SourceName,
    ) -> impl Iterator<Item = (Key, Kyma, Vec<String>)> {
        let kymas = declared.good.iter().filter(|((kind, _), _)| *kind == definition::Kind::Kyma);
        let after = |(id, definition): (&Id, &std::sync::Arc<definition::Definition>)| {
            let kyma = serde_json::from_value::<Kyma>(landscape::stamp(definition, source).into_value()).ok()?;
            let live = self.live.get(id)?.value();
            let kyma = with_former_modules(kyma, &serde_json::from_value(live.clone()).ok()?);
            let modules = live.pointer("/status/modules").and_then(Value::as_array).into_iter().flatten();
            let modules = modules.filter_map(|module| module["name"].as_str().map(str::to_owned)).collect();
            Some((id.1.clone(), kyma, modules))
        };
        kymas.filter_map(after).collect::<Vec<_>>().into_iter()
    }

    /// The landscape after the take-over: what git declares, and what only the control plane has. Each Kyma has the
    /// status that it has now. Fails if an object is not as its definition says.
    pub(super) fn landscape_after(&self, declared: &Definitions, source: &SourceName) -> anyhow::Result<Landscape> {
        let mut diagnostics = Diagnostics::default();
        let mut landscape = Landscape::from_definitions(&mut diagnostics, declared, source);
        if diagnostics.has_errors() {
            bail!(super::errors_of(diagnostics));
        }
        for ((kind, key), object) in &self.live {
            let what = || format!("cannot read {kind} {key}");
            let value = || object.value().clone();
            match kind {
                definition::Kind::Kyma => {
                    let live: Kyma = serde_json::from_value(value()).with_context(what)?;
                    let after = match landscape.kymas.get(key) {
                        Some(declared) => {
                            let after = with_former_modules(Kyma::clone(declared), &live);
                            Kyma { status: live.status, ..after }
                        }
                        None => live,
                    };
                    landscape.kymas.insert(key.clone(), Arc::new(after));
                }
                definition::Kind::ModuleTemplate => add(&mut landscape.templates, key, value()).with_context(what)?,
                definition::Kind::ModuleReleaseMeta => add(&mut landscape.releases, key, value()).with_context(what)?,
                definition::Kind::Watcher => add(&mut landscape.watchers, key, value()).with_context(what)?,
                definition::Kind::Setup(_) => {}
            }
        }
        Ok(landscape)
    }
}

/// A Kyma of git as it is in the control plane: a list of modules that git does not declare stays there.
fn with_former_modules(mut declared: Kyma, live: &Kyma) -> Kyma {
    if declared.spec.modules.is_absent() {
        declared.spec.modules = live.spec.modules.clone();
    }
    declared
}

/// Adds an object, unless git declares it.
fn add<T: DeserializeOwned>(
    all: &mut BTreeMap<Key, Arc<T>>,
    key: &Key,
    object: Value,
) -> Result<(), serde_json::Error> {
    if !all.contains_key(key) {
        all.insert(key.clone(), Arc::new(serde_json::from_value(object)?));
    }
    Ok(())
}

/// Checks that the namespaces exist. Fails if one does not; a user who may not read it learns nothing.
pub(in crate::cli) async fn check_namespaces(cluster: &Cluster, namespaces: &[String]) -> anyhow::Result<()> {
    let kind = Kind::built_in(&Gvk::new("", "v1", "Namespace")).context("Namespace is a built-in kind")?;
    for namespace in namespaces {
        match cluster.get_metadata(&kind, &Key::new("", namespace)).await {
            Ok(Some(_)) | Err(Error::Forbidden { .. }) => {}
            Ok(None) => {
                // Every API server has this namespace.
                if let Ok(None) = cluster.get_metadata(&kind, &Key::new("", "default")).await {
                    bail!(NO_API_SERVER);
                }
                bail!("the control plane has no namespace {namespace}: select another with -n")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read namespace {namespace}")),
        }
    }
    Ok(())
}

/// The kinds that the daemon needs, and Lifecycle Manager as well.
const NEEDED: [&str; 5] = ["Kyma", "Manifest", "ModuleReleaseMeta", "ModuleTemplate", "Watcher"];

/// Those of them that the control plane does not serve.
pub(in crate::cli) async fn missing(cluster: &Cluster) -> anyhow::Result<Vec<&'static str>> {
    let mut missing = Vec::new();
    for name in NEEDED {
        let kind = cluster.kind(&Gvk::new(KYMA_GROUP, KYMA_VERSION, name)).await;
        if kind.with_context(|| format!("cannot ask for {name}s"))?.is_none() {
            missing.push(name);
        }
    }
    Ok(missing)
}

/// The namespaces without any object of Lifecycle Manager.
pub(super) async fn empty(cluster: &Cluster, namespaces: &[String]) -> anyhow::Result<Vec<String>> {
    let mut empty = Vec::new();
    for namespace in namespaces {
        let mut is_empty = true;
        for name in NEEDED {
            let kind = cluster.kind(&Gvk::new(KYMA_GROUP, KYMA_VERSION, name)).await?;
            let Some(kind) = kind.filter(|_| is_empty) else { continue };
            is_empty = cluster.list_metadata(&kind, Some(namespace), None).await?.is_empty();
        }
        if is_empty {
            empty.push(namespace.clone());
        }
    }
    Ok(empty)
}

/// All objects of a kind of Lifecycle Manager in these namespaces; none if the control plane does not serve it.
pub(super) async fn list(cluster: &Cluster, kind: &str, namespaces: &[String]) -> anyhow::Result<Vec<Object>> {
    list_of(cluster, &Gvk::new(KYMA_GROUP, KYMA_VERSION, kind), namespaces).await
}

/// All objects of a kind in these namespaces; none if the control plane does not serve it.
pub(super) async fn list_of(cluster: &Cluster, gvk: &Gvk, namespaces: &[String]) -> anyhow::Result<Vec<Object>> {
    let Some(kind) = cluster.kind(gvk).await? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for namespace in namespaces {
        all.extend(cluster.list(&kind, Some(namespace), None).await?);
    }
    Ok(all)
}

/// The GitSources; `None` if the control plane does not serve them. One that cannot be read is reported elsewhere.
async fn sources(cluster: &Cluster, namespaces: &[String]) -> anyhow::Result<Option<Vec<GitSource>>> {
    let gvk = Kind::namespaced::<GitSource>().gvk;
    if cluster.kind(&gvk).await?.is_none() {
        return Ok(None);
    }
    let found = list_of(cluster, &gvk, namespaces).await?.into_iter();
    Ok(Some(found.filter_map(|source| serde_json::from_value(source.into_value()).ok()).collect()))
}

/// Who holds the Lease; `None` if no client does, or not any more.
pub(super) async fn holder(cluster: &Cluster) -> anyhow::Result<Option<Holder>> {
    Ok(lease(cluster).await?.as_ref().and_then(|lease| holds(lease, Timestamp::now())))
}

async fn lease(cluster: &Cluster) -> anyhow::Result<Option<Lease>> {
    Ok(cluster.get_as(&Kind::namespaced::<Lease>(), &Key::new(KCP_NAMESPACE, LEASE)).await?)
}

/// Who held a Lease that has ended and was not released.
fn ended(lease: &Lease, now: Timestamp) -> Option<Ended> {
    let held = operator::held(lease).filter(|held| held.until() < now)?;
    let renewed = now.duration_since(held.renewed).as_secs();
    let resource_version = lease.metadata.resource_version.clone()?;
    Some(Ended { holder: Holder { name: held.holder, renewed }, resource_version, read: Instant::now() })
}

pub(super) fn holds(lease: &Lease, now: Timestamp) -> Option<Holder> {
    let held = operator::held(lease)?;
    let renewed = now.duration_since(held.renewed);
    (now <= held.until()).then(|| Holder { name: held.holder, renewed: renewed.as_secs() })
}

async fn crds(cluster: &Cluster) -> anyhow::Result<Vec<Crd>> {
    let definitions = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let Some(definitions) = Kind::built_in(&definitions) else { return Ok(Vec::new()) };
    let mut crds = Vec::new();
    for crd in cluster.list(&definitions, None, None).await? {
        let (name, crd) = (key_of(&crd).name().to_owned(), crd.value().clone());
        if crd["spec"]["group"] != KYMA_GROUP {
            continue;
        }
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        let storage =
            versions.filter(|version| version["storage"] == true).find_map(|version| version["name"].as_str());
        let (Some(storage), Some(kind)) = (storage, crd["spec"]["names"]["kind"].as_str()) else { continue };
        let gvk = Gvk::new(KYMA_GROUP, storage, kind);
        let Some(kind) = cluster.kind(&gvk).await? else { continue };
        let stored = crd["status"]["storedVersions"].as_array().into_iter().flatten();
        let stored: Vec<String> = stored.filter_map(|stored| stored.as_str().map(str::to_owned)).collect();
        let objects = match stored.iter().any(|stored| stored != storage) {
            true => {
                let listed = cluster.list_metadata(&kind, None, None).await;
                let rights = match &listed {
                    Err(Error::Forbidden { .. }) => "; deploy/adopt/outdated.yaml has the rights",
                    Ok(_) | Err(_) => "",
                };
                let what = "may be stored in an outdated version, also in other namespaces";
                listed.with_context(|| format!("objects of {name} {what}{rights}"))?
            }
            false => Vec::new(),
        };
        let objects: Vec<Key> = objects.iter().map(tidegate_cluster::Metadata::key).collect();
        let versions = StoredVersions { name, storage: storage.to_owned(), stored, objects: objects.len() };
        let resource_version = crd["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let converting = events::converting(&versions.name, &crd);
        crds.push(Crd { versions, resource_version, kind, objects, converting });
    }
    Ok(crds)
}

/// How the runtime of each Kyma is reached. Kubeconfigs are not kept.
async fn access_of(cluster: &Cluster, namespaces: &[String], kymas: Vec<Key>) -> anyhow::Result<BTreeMap<Key, Access>> {
    let mut secrets: BTreeMap<Key, Vec<(String, Access)>> = BTreeMap::new();
    for namespace in namespaces {
        let found: Vec<Secret> =
            cluster.list_as(&Kind::namespaced::<Secret>(), Some(namespace), Some(label::KYMA_NAME)).await?;
        for secret in found {
            let Some(kyma) = landscape::label(&secret.metadata, label::KYMA_NAME) else { continue };
            let name = secret.metadata.name.clone().unwrap_or_default();
            let kyma = Key::new(namespace, kyma);
            // Makes no request: the configuration of the client is checked, and its certificate.
            let client = |config: &kube::Config| {
                cluster.beside(ClusterName::Runtime(kyma.clone()), config, Limits::default()).map(drop)
            };
            let access = judge(&secret, client);
            secrets.entry(kyma).or_default().push((name, access));
        }
    }
    let of = |key: Key| {
        let mut own = secrets.remove(&key).unwrap_or_default();
        let access = match own.len() {
            0 => Access::Absent,
            1 => own.remove(0).1,
            _ => Access::Several(own.into_iter().map(|(name, _)| name).collect()),
        };
        (key, access)
    };
    Ok(kymas.into_iter().map(of).collect())
}

/// Whether Tidegate accepts an access Secret: it can make a client of it.
fn judge(secret: &Secret, client: impl Fn(&kube::Config) -> Result<(), Error>) -> Access {
    let Some(ByteString(kubeconfig)) = secret.data.as_ref().and_then(|data| data.get("config")) else {
        return Access::Refused("it has no key `config`".to_owned());
    };
    let config = match access::parse(kubeconfig).and_then(|access| access.config()) {
        Ok(config) => config,
        Err(refused) => return Access::Refused(refused.to_string()),
    };
    match client(&config) {
        Ok(()) => Access::Accepted,
        Err(Error::Client { message, .. }) => Access::Refused(message),
        Err(other) => Access::Refused(other.to_string()),
    }
}

fn count(managers: &mut BTreeMap<(String, String), usize>, object: &Object) {
    for manager in adopt::managers(object.value()) {
        *managers.entry((object.gvk().kind.to_string(), manager)).or_default() += 1;
    }
}

pub(super) fn key_of(object: &Object) -> Key {
    let id = object.id();
    Key::new(&id.namespace, &id.name)
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_held_until_it_ends() {
        let lease = |holder: &str| -> Lease {
            let spec = json!({
                "holderIdentity": holder, "leaseDurationSeconds": 180, "renewTime": "2026-01-01T12:00:00.000000Z",
            });
            serde_json::from_value(json!({"metadata": {"name": LEASE, "resourceVersion": "7"}, "spec": spec})).unwrap()
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let held = Some(Holder { name: "klm".to_owned(), renewed: 120 });
        assert_eq!(holds(&lease("klm"), at("2026-01-01T12:02:00Z")), held);
        assert_eq!(holds(&lease("klm"), at("2026-01-01T12:03:01Z")), None);
        assert_eq!(holds(&lease(""), at("2026-01-01T12:00:00Z")), None);
        let name = |holder: &str, now: &str| ended(&lease(holder), at(now)).map(|ended| ended.holder);
        assert_eq!(name("klm", "2026-01-01T12:03:00Z"), None);
        assert_eq!(
            name("klm", "2026-01-01T12:05:21Z"),
            Some(Holder { name: "klm".to_owned(), renewed: 321 }),
            "longer than it lasts"
        );
        assert_eq!(name("", "2026-01-01T12:05:21Z"), None, "it was released");
    }

    #[test]
    fn a_secret_is_refused_for_the_reason_that_the_daemon_gives() {
        let secret = |data: Value| -> Secret { serde_json::from_value(json!({"metadata": {}, "data": data})).unwrap() };
        let judge = |secret: &Secret| judge(secret, |_| panic!("there is no configuration"));
        assert_eq!(judge(&secret(json!({}))), Access::Refused("it has no key `config`".to_owned()));
        // `{}`
        assert!(matches!(judge(&secret(json!({"config": "e30="}))), Access::Refused(_)));
    }

    /// As `openssl x509 -req` issues a certificate without extensions: version 1. Its signature does not matter here.
    fn version_1(certificate: &[u8]) -> Vec<u8> {
        /// The field `version` of a certificate of version 3.
        const VERSION_3: [u8; 5] = [0xa0, 0x03, 0x02, 0x01, 0x02];
        let at = certificate.windows(5).position(|bytes| bytes == VERSION_3).unwrap();
        let mut certificate = [&certificate[..at], &certificate[at + 5..]].concat();
        // Both sequences around it are shorter by its length. Each has a length of two bytes.
        for place in [2, 6] {
            assert_eq!(certificate[place - 1], 0x82);
            let length = u16::from_be_bytes([certificate[place], certificate[place + 1]]) - 5;
            certificate[place..place + 2].copy_from_slice(&length.to_be_bytes());
        }
        certificate
    }

    #[tokio::test]
    async fn a_client_certificate_that_the_daemon_cannot_use_is_refused_and_the_sentence_says_why() {
        tidegate_process::tls::install();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["client.example.org".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "a client with a name of some length".repeat(4));
        let certificate = params.self_signed(&key).unwrap();
        let pem =
            |der: &[u8]| format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der));
        let judged = |client: &[u8]| {
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {
                    "server": "https://api.example.org:6443",
                    "certificate-authority-data": STANDARD.encode(pem(certificate.der())),
                }}],
                "users": [{"name": "x", "user": {
                    "client-certificate-data": STANDARD.encode(pem(client)),
                    "client-key-data": STANDARD.encode(key.serialize_pem()),
                }}],
            });
            let data = json!({"config": STANDARD.encode(kubeconfig.to_string())});
            let secret: Secret = serde_json::from_value(json!({"metadata": {}, "data": data})).unwrap();
            let client = |config: &kube::Config| {
                let name = ClusterName::Runtime(Key::new("kcp-system", "one"));
                Cluster::new(name, config, Limits::default()).map(drop)
            };
            judge(&secret, client)
        };
        assert_eq!(judged(certificate.der()), Access::Accepted);
        let Access::Refused(why) = judged(&version_1(certificate.der())) else { panic!("it cannot be used") };
        assert!(
            why.starts_with(
                "the client certificate for api.example.org:6443 is X.509 version 1, which the TLS library"
            ) && why.contains("issue one of version 3"),
            "{why}"
        );
    }
}
