//! `tidegate adopt release`: gives objects back to Lifecycle Manager, see [`tidegate_cluster::Return`].

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Error, Heirs, Return};
use tidegate_core::{
    adopt::{self, Finding, Level},
    api::{KYMA_GROUP, KYMA_VERSION, manifest::SyncedObject, names::label},
    name::Key,
    object::{Gvk, Object},
    words::{agreeing, counted, few},
};

use super::{read, runtimes};

/// What was given back.
#[derive(Default)]
pub struct Outcome {
    /// Objects that had something of Tidegate.
    pub changed: usize,
    /// Objects that had nothing of it.
    pub unchanged: usize,
    /// What the user must know, one sentence each.
    pub remarks: Vec<String>,
    /// Whether everything could be read and written.
    pub is_complete: bool,
}

/// Gives objects back, or counts them.
struct Pass<'a> {
    cause: &'a Cause,
    writes: bool,
}

/// How often an object is read again that changed meanwhile.
const TRIES: usize = 3;
/// Kinds of which every runtime has objects, whatever its modules are.
const EVERYWHERE: [(&str, &str, &str); 5] = [
    ("", "v1", "Namespace"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    (KYMA_GROUP, KYMA_VERSION, "Kyma"),
    (KYMA_GROUP, KYMA_VERSION, "ModuleTemplate"),
    (KYMA_GROUP, KYMA_VERSION, "ModuleReleaseMeta"),
];
/// Kinds of the objects that report changes in a runtime.
const REPORTING: [(&str, &str, &str); 9] = [
    ("", "v1", "ServiceAccount"),
    ("", "v1", "Service"),
    ("", "v1", "Secret"),
    ("apps", "v1", "Deployment"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
];

/// What must be done before the landscape can be given back. Fails if the control plane cannot be read.
pub(super) async fn blocking(cluster: &Cluster, namespaces: &[String]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = vec![adopt::leader(read::holder(cluster).await.context("cannot read the Lease")?.as_ref())];
    let sources = Gvk::new("tidegate.dev", "v1alpha1", "GitSource");
    if let Some(kind) = cluster.kind(&sources).await? {
        let mut names = Vec::new();
        for namespace in namespaces {
            names.extend(
                cluster.list_metadata(&kind, Some(namespace), None).await?.iter().map(|one| one.key().to_string()),
            );
        }
        findings.push(adopt::sources(&names));
    }
    findings.retain(|finding| finding.level == Level::Blocks);
    Ok(findings)
}

/// Gives the landscape back. Fails if the control plane cannot be read; a runtime that cannot be reached is a remark.
pub(super) async fn run(
    kcp: &Cluster,
    cause: &Cause,
    namespaces: &[String],
    no_runtimes: bool,
    writes: bool,
) -> anyhow::Result<Outcome> {
    let pass = Pass { cause, writes };
    let mut outcome = Outcome { is_complete: true, ..Outcome::default() };
    let mut kinds: BTreeMap<Key, BTreeSet<Gvk>> = BTreeMap::new();
    let mut from_git = Vec::new();
    // Runtimes first: the inventories in the Manifests say what they have, and they stay until all is given back.
    for manifest in read::list(kcp, "Manifest", namespaces).await? {
        let key = read::key_of(&manifest);
        if manifest.value().pointer("/spec/install/source/type") == Some(&Value::from("git")) {
            from_git.push(key.to_string());
        }
        let Some(kyma) = manifest.label(label::KYMA_NAME) else { continue };
        let own = kinds.entry(Key::new(key.namespace(), kyma)).or_default();
        let synced = manifest.value().pointer("/status/synced").cloned().unwrap_or_default();
        let synced = serde_json::from_value::<Vec<SyncedObject>>(synced).unwrap_or_default();
        own.extend(synced.iter().map(|object| Gvk::new(&object.group, &object.version, &object.kind)));
    }
    if !no_runtimes {
        let kymas = read::list(kcp, "Kyma", namespaces).await?;
        let all = kymas.iter().map(|kyma| {
            let key = read::key_of(kyma);
            let kinds = kinds.remove(&key).unwrap_or_default();
            (key, kinds)
        });
        let passes = stream::iter(all.collect::<Vec<_>>())
            .map(async |(key, kinds)| (runtime(kcp, &pass, &key, kinds).await, key))
            .buffer_unordered(runtimes::AT_ONCE);
        let found: Vec<_> = passes.collect().await;
        for (result, key) in found {
            match result {
                Ok(of_runtime) => outcome.add(&of_runtime),
                Err(error) => {
                    outcome.is_complete = false;
                    outcome.remarks.push(format!("runtime {key} is not given back: {error:#}; run the command again"));
                }
            }
        }
    }
    for kind in ["Kyma", "ModuleTemplate", "ModuleReleaseMeta", "Watcher", "Manifest"] {
        for object in read::list(kcp, kind, namespaces).await? {
            let heirs = |object: &Value| Heirs::in_kcp(object["kind"].as_str().unwrap_or_default());
            outcome.note(pass.give_back(kcp, &object, heirs).await?);
        }
    }
    if !from_git.is_empty() {
        outcome.remarks.push(format!(
            "{} {} objects from git, and Lifecycle Manager cannot read them until the modules are pushed to a registry: \
             {}",
            counted(from_git.len(), "Manifest"),
            agreeing(from_git.len(), "has", "have"),
            few(&from_git)
        ));
    }
    Ok(outcome)
}

/// Gives a runtime back.
async fn runtime(kcp: &Cluster, pass: &Pass<'_>, kyma: &Key, kinds: BTreeSet<Gvk>) -> anyhow::Result<Outcome> {
    let cluster = runtimes::connect(kcp, kyma).await?;
    let fixed = EVERYWHERE.iter().chain(&REPORTING).map(|(group, version, kind)| Gvk::new(group, version, kind));
    let kinds: BTreeSet<Gvk> = fixed.chain(kinds).collect();
    let mut outcome = Outcome::default();
    for gvk in kinds {
        let Some(kind) = cluster.kind_in_any_version(&gvk).await? else { continue };
        let selector = runtimes::selector();
        // The API server selects by labels, and Tidegate's own objects have them as well.
        for object in cluster.list(&kind, None, Some(&selector)).await? {
            outcome.note(pass.give_back(&cluster, &object, Heirs::in_runtime).await?);
        }
    }
    Ok(outcome)
}

// === impl Pass ===

impl Pass<'_> {
    /// Gives an object back. Returns whether it had something of Tidegate.
    async fn give_back(
        &self,
        cluster: &Cluster,
        object: &Object,
        heirs: impl Fn(&Value) -> Heirs,
    ) -> anyhow::Result<bool> {
        let id = object.id();
        let what = || format!("cannot give {id} back");
        let mut value = object.value().clone();
        for _ in 0..TRIES {
            let Some(return_) = Return::of(&value, heirs(&value)) else { return Ok(false) };
            if !self.writes {
                return Ok(true);
            }
            let kind = cluster.kind(&object.gvk()).await?.with_context(what)?;
            match cluster.give_back(self.cause, &kind, &id, &value, &return_).await {
                Ok(()) => return Ok(true),
                Err(Error::NotFound { .. }) => return Ok(false),
                // A controller has just written it.
                Err(Error::Changed { .. }) => {}
                Err(error) => return Err(error).with_context(what),
            }
            match cluster.get(&kind, &read::key_of(object)).await? {
                Some(next) => value = next.into_value(),
                None => return Ok(false),
            }
        }
        anyhow::bail!("cannot give {id} back, because another client keeps changing it")
    }
}

// === impl Outcome ===

impl Outcome {
    fn note(&mut self, is_changed: bool) {
        if is_changed { self.changed += 1 } else { self.unchanged += 1 }
    }

    fn add(&mut self, other: &Outcome) {
        self.changed += other.changed;
        self.unchanged += other.unchanged;
    }
}
