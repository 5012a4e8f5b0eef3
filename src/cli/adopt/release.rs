//! `tidegate adopt release`: gives objects back to Lifecycle Manager, see [`tidegate_cluster::Return`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Error, Heirs, Kind, Limits, Return};
use tidegate_core::{
    adopt::{self, Finding, Level},
    api::{
        KYMA_GROUP, KYMA_VERSION, Kyma,
        manifest::SyncedObject,
        names::{GATEWAY_SECRET, MANAGED_BY_SKR, SKR_NAMESPACE, SKR_WEBHOOK, annotation, label},
    },
    name::Key,
    object::{Gvk, Object},
    plan::certificate::Backend,
    words::{agreeing, counted, few},
};

use super::{
    read,
    runtimes::{self, NoSecret},
};
use crate::gateway::pki::object;

/// What was given back.
#[derive(Default)]
pub struct Outcome {
    /// Objects that had something of Tidegate.
    pub changed: usize,
    /// Objects that had nothing of it.
    pub unchanged: usize,
    /// What only Tidegate understands, such as `label tidegate.dev/source`: the objects that had it, by kind.
    pub marks: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// Runtimes that are not given back, one sentence each.
    pub left: Vec<String>,
    /// The names of runtimes that were not asked.
    pub skipped: Vec<String>,
    /// The names of runtimes that have no access Secret, and that no controller has reached.
    pub unreached: Vec<String>,
    /// The names of runtimes with a webhook configuration, and no agent that it calls.
    pub uncalled: Vec<String>,
    /// What the user must know, one sentence each.
    pub remarks: Vec<String>,
}

/// Gives objects back, or counts them.
struct Pass<'a> {
    cause: &'a Cause,
    writes: bool,
    /// The limits of the requests to each runtime.
    limits: Limits,
}

/// Where a landscape has what is given back.
pub(super) struct ReleaseScope<'a> {
    /// The namespaces of its Kymas.
    pub(super) namespaces: &'a [String],
    /// The namespace of its certificates and of the Secret of its gateway.
    pub(super) istio: &'a str,
    /// Whether the runtimes are skipped.
    pub(super) no_runtimes: bool,
    /// The limits of the requests to each runtime.
    pub(super) limits: Limits,
}

/// The kinds of a landscape in the control plane.
const IN_KCP: [(&str, &str, &str); 6] = [
    (KYMA_GROUP, KYMA_VERSION, "Kyma"),
    (KYMA_GROUP, KYMA_VERSION, "ModuleTemplate"),
    (KYMA_GROUP, KYMA_VERSION, "ModuleReleaseMeta"),
    (KYMA_GROUP, KYMA_VERSION, "Watcher"),
    ("networking.istio.io", "v1beta1", "VirtualService"),
    (KYMA_GROUP, KYMA_VERSION, "Manifest"),
];
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
    let missing = read::missing(cluster).await?;
    findings.extend(adopt::kinds(&missing));
    if missing.is_empty() {
        let empty = read::empty(cluster, namespaces).await?;
        findings.extend(adopt::empty(&empty, empty.len() < namespaces.len()));
    }
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

/// Gives the landscape back. Fails if the control plane cannot be read. A runtime that cannot be reached is left.
pub(super) async fn run(
    kcp: &Cluster,
    cause: &Cause,
    &ReleaseScope { namespaces, istio, no_runtimes, limits }: &ReleaseScope<'_>,
    writes: bool,
) -> anyhow::Result<Outcome> {
    let pass = Pass { cause, writes, limits };
    let mut kinds: BTreeMap<Key, BTreeSet<Gvk>> = BTreeMap::new();
    let mut of_modules: BTreeSet<Gvk> = adopt::usual_kinds().collect();
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
        of_modules.extend(own.iter().cloned());
    }
    let kymas = read::list(kcp, "Kyma", namespaces).await?;
    let mut outcome = if no_runtimes {
        let skipped = kymas.iter().map(|kyma| read::key_of(kyma).to_string()).collect();
        Outcome { skipped, ..Outcome::default() }
    } else {
        of_runtimes(kcp, &pass, &kymas, kinds, &of_modules).await
    };
    let istio = [istio.to_owned()];
    let certificates = [Backend::CertManager, Backend::Gardener].into_iter().filter_map(object::kind);
    let of_issuers = certificates.map(|(gvk, _)| (gvk, &istio[..]));
    let of_landscape = IN_KCP.iter().map(|(group, version, kind)| (Gvk::new(group, version, kind), namespaces));
    for (gvk, namespaces) in of_issuers.chain(of_landscape) {
        for object in read::list_of(kcp, &gvk, namespaces).await? {
            outcome.note(&object, "", pass.give_back(kcp, &object, Heirs::in_kcp).await?);
        }
    }
    // Only this Secret: by what Tidegate notes on the others, it recognizes the CA and the certificates that it issued.
    let gateway = Key::new(&istio[0], GATEWAY_SECRET);
    if let Some(secret) = kcp.get(&Kind::namespaced::<Secret>(), &gateway).await? {
        outcome.note(&secret, "", pass.give_back(kcp, &secret, Heirs::in_kcp).await?);
    }
    outcome.uncalled.sort();
    outcome.remarks.extend(without_agent(&outcome.uncalled));
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

/// Gives the runtimes of these Kymas back. Their Manifests have objects of `kinds`, and modules of the landscape have
/// some of `of_modules`. A runtime that cannot be reached is left.
async fn of_runtimes(
    kcp: &Cluster,
    pass: &Pass<'_>,
    kymas: &[Object],
    mut kinds: BTreeMap<Key, BTreeSet<Gvk>>,
    of_modules: &BTreeSet<Gvk>,
) -> Outcome {
    let all = kymas.iter().map(|kyma| {
        let (key, kinds) = (read::key_of(kyma), kinds.remove(&read::key_of(kyma)));
        let is_unreached = kinds.is_none() && is_unreached(kyma);
        (key, kinds.unwrap_or_default(), is_unreached)
    });
    let progress = runtimes::progress(kymas.len());
    let passes = stream::iter(all.collect::<Vec<_>>())
        .map(async |(key, kinds, is_unreached)| {
            let result = runtime(kcp, pass, &key, kinds, of_modules).await;
            progress.advance();
            (result, key, is_unreached)
        })
        .buffer_unordered(runtimes::AT_ONCE);
    let found: Vec<_> = passes.collect().await;
    let mut outcome = Outcome::default();
    for (result, key, is_unreached) in found {
        match result {
            Ok(of_runtime) => outcome.add(of_runtime),
            // No controller could write to it, so it has nothing of Tidegate.
            Err(error) if is_unreached && error.is::<NoSecret>() => outcome.unreached.push(key.to_string()),
            Err(error) => outcome.left.push(format!("runtime {key} is not given back: {error:#}")),
        }
    }
    outcome.left.sort();
    outcome.unreached.sort();
    outcome
}

/// Whether no controller has reached the runtime of a Kyma. One that cannot be read does not say so.
fn is_unreached(kyma: &Object) -> bool {
    serde_json::from_value::<Kyma>(kyma.value().clone()).is_ok_and(|kyma| !adopt::was_reached(&kyma))
}

/// Gives a runtime back. Its Manifests have objects of `kinds`, and modules of the landscape have some of `of_modules`.
async fn runtime(
    kcp: &Cluster,
    pass: &Pass<'_>,
    kyma: &Key,
    kinds: BTreeSet<Gvk>,
    of_modules: &BTreeSet<Gvk>,
) -> anyhow::Result<Outcome> {
    let cluster = runtimes::connect(kcp, pass.limits, kyma).await?;
    let fixed = EVERYWHERE.iter().chain(&REPORTING).map(|(group, version, kind)| Gvk::new(group, version, kind));
    let kinds: BTreeSet<Gvk> = fixed.chain(kinds).collect();
    let place = format!(" in runtime {kyma}");
    let mut outcome = Outcome::default();
    let (mut has_webhooks, mut has_service) = (false, false);
    for gvk in kinds {
        let Some(kind) = cluster.kind_in_any_version(&gvk).await? else { continue };
        let selector = runtimes::selector();
        // The API server selects by labels, and Tidegate's own objects have them as well.
        for object in cluster.list(&kind, None, Some(&selector)).await? {
            let id = object.id();
            has_webhooks |= &*id.kind == "ValidatingWebhookConfiguration" && &*id.name == SKR_WEBHOOK;
            has_service |= &*id.kind == "Service" && &*id.namespace == SKR_NAMESPACE && &*id.name == SKR_WEBHOOK;
            let returned = pass.give_back(&cluster, &object, Heirs::in_runtime).await?;
            outcome.note(&object, &place, returned);
        }
    }
    let (found, unread) = unmanaged(&cluster, of_modules).await?;
    if !unread.is_empty() {
        let sentence = "its access Secret does not allow to list them, so those of modules that are unmanaged may keep \
                        Tidegate as their field manager";
        outcome.remarks.push(format!("runtime {kyma}: {}: {sentence}", few(&unread)));
    }
    for object in found {
        outcome.note(&object, &place, pass.give_back(&cluster, &object, Heirs::in_runtime).await?);
    }
    if has_webhooks && !has_service {
        outcome.uncalled.push(kyma.to_string());
    }
    Ok(outcome)
}

/// The objects that modules left in a runtime when they became unmanaged. They have lost the ownership label, and no
/// Manifest names them. They keep the label of all objects of modules, and the annotation with their Manifest. `kinds`
/// are those to list; those that a definition among the objects defines come in addition.
///
/// Returns also the kinds that must not be listed there.
async fn unmanaged(cluster: &Cluster, kinds: &BTreeSet<Gvk>) -> anyhow::Result<(Vec<Object>, Vec<String>)> {
    let (mut all, mut unread, mut listed) = (Vec::new(), Vec::new(), BTreeSet::new());
    for gvk in kinds {
        // An API server may serve several versions of one kind.
        if listed.insert((Arc::clone(&gvk.group), Arc::clone(&gvk.kind)))
            && let Some(kind) = cluster.kind_in_any_version(gvk).await?
        {
            match unmanaged_of(cluster, &kind).await? {
                Some(found) => all.extend(found),
                None => unread.push(kind.gvk.to_string()),
            }
        }
    }
    let definitions = all.iter().map(Object::id).filter(|id| &*id.kind == "CustomResourceDefinition");
    let names: Vec<Arc<str>> = definitions.map(|id| id.name).collect();
    for kind in cluster.kinds_of_definitions(&names).await? {
        if listed.insert((Arc::clone(&kind.gvk.group), Arc::clone(&kind.gvk.kind))) {
            match unmanaged_of(cluster, &kind).await? {
                Some(found) => all.extend(found),
                None => unread.push(kind.gvk.to_string()),
            }
        }
    }
    Ok((all, unread))
}

/// The same of one kind; `None` if it must not be listed.
async fn unmanaged_of(cluster: &Cluster, kind: &Kind) -> anyhow::Result<Option<Vec<Object>>> {
    let selector = format!("{}=Kyma,{}!={MANAGED_BY_SKR}", label::PART_OF, label::MANAGED_BY);
    match cluster.list(kind, None, Some(&selector)).await {
        Ok(found) => {
            Ok(Some(found.into_iter().filter(|object| object.annotation(annotation::OWNED_BY).is_some()).collect()))
        }
        Err(Error::Forbidden { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What stays of the webhook configuration where no agent answers. Lifecycle Manager may not have had one there.
fn without_agent(runtimes: &[String]) -> Option<String> {
    let (count, has) = (counted(runtimes.len(), "runtime"), agreeing(runtimes.len(), "has", "have"));
    (!runtimes.is_empty()).then(|| {
        format!(
            "{count} {has} the ValidatingWebhookConfiguration {SKR_WEBHOOK}, and no Service that it calls: it stays, and \
             Lifecycle Manager replaces it only if it installs its agent; else delete it: {}",
            few(runtimes)
        )
    })
}

// === impl Pass ===

impl Pass<'_> {
    /// Gives an object back. Returns what it had of Tidegate; `None` if it had nothing.
    async fn give_back(
        &self,
        cluster: &Cluster,
        object: &Object,
        heirs: impl Fn(&Value) -> Heirs,
    ) -> anyhow::Result<Option<Return>> {
        let id = object.id();
        let what = || format!("cannot give {id} back");
        let mut value = object.value().clone();
        for _ in 0..TRIES {
            let Some(return_) = Return::of(&value, heirs(&value)) else { return Ok(None) };
            if !self.writes {
                return Ok(Some(return_));
            }
            let kind = cluster.kind(&object.gvk()).await?.with_context(what)?;
            match cluster.give_back(self.cause, &kind, &id, &value, &return_).await {
                Ok(()) => return Ok(Some(return_)),
                Err(Error::NotFound { .. }) => return Ok(None),
                // A controller has just written it.
                Err(Error::Changed { .. }) => {}
                Err(error) => return Err(error).with_context(what),
            }
            match cluster.get(&kind, &read::key_of(object)).await? {
                Some(next) => value = next.into_value(),
                None => return Ok(None),
            }
        }
        anyhow::bail!("cannot give {id} back, because another client keeps changing it")
    }
}

// === impl Outcome ===

impl Outcome {
    /// Notes an object. `place` follows its name.
    fn note(&mut self, object: &Object, place: &str, returned: Option<Return>) {
        let Some(returned) = returned else {
            self.unchanged += 1;
            return;
        };
        self.changed += 1;
        let (id, name) = (object.id(), format!("{}{place}", read::key_of(object)));
        for mark in returned.marks() {
            let of_mark = self.marks.entry(mark.clone()).or_default();
            of_mark.entry(id.kind.to_string()).or_default().push(name.clone());
        }
    }

    fn add(&mut self, other: Outcome) {
        self.changed += other.changed;
        self.unchanged += other.unchanged;
        self.uncalled.extend(other.uncalled);
        self.remarks.extend(other.remarks);
        for (mark, kinds) in other.marks {
            let of_mark = self.marks.entry(mark).or_default();
            for (kind, names) in kinds {
                of_mark.entry(kind).or_default().extend(names);
            }
        }
    }

    /// What only Tidegate understands, one line for each mark: how many objects of each kind had it, and the first.
    pub(super) fn understood(&self) -> Vec<String> {
        let of_mark = |(mark, kinds): (&String, &BTreeMap<String, Vec<String>>)| {
            let kinds: Vec<String> = kinds.iter().map(|(kind, names)| of_kind(kind, names)).collect();
            format!("{mark}: {}", kinds.join("; "))
        };
        self.marks.iter().map(of_mark).collect()
    }
}

/// `3 of kind Kyma (a, b, c)`, in the order of their names.
fn of_kind(kind: &str, names: &[String]) -> String {
    let mut names = names.to_vec();
    names.sort();
    format!("{} of kind {kind} ({})", names.len(), few(&names))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `release` leaves finalizers, and Lifecycle Manager removes its own: none of Tidegate's may be among them.
    #[test]
    fn the_finalizers_of_kinds_that_lifecycle_manager_has_are_its_own() {
        use tidegate_core::api::names::finalizer;
        let own = [
            finalizer::KYMA,
            finalizer::WATCHER,
            finalizer::MANDATORY_MODULE,
            finalizer::MANIFEST,
            finalizer::MANIFEST_RESOURCE,
            finalizer::LABEL_REMOVAL,
        ];
        assert!(own.iter().all(|name| !name.contains("tidegate")), "{own:?}");
    }

    #[test]
    fn a_webhook_configuration_without_an_agent_is_named_because_it_stays() {
        assert_eq!(without_agent(&[]), None);
        let said = without_agent(&["kcp-system/a".to_owned(), "kcp-system/b".to_owned()]).unwrap();
        assert!(
            said.starts_with("2 runtimes have the ValidatingWebhookConfiguration skr-webhook, and no Service"),
            "{said}"
        );
        assert!(said.ends_with("else delete it: kcp-system/a, kcp-system/b"), "{said}");
    }

    #[test]
    fn what_only_tidegate_understands_is_listed_by_kind_with_the_first_names() {
        let kyma = |name: &str, metadata: Value, status: Value| {
            let mut object = json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": {"name": name, "namespace": "kcp-system"}, "status": status,
            });
            object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
            Object::new(object).unwrap()
        };
        let labels = json!({"labels": {"tidegate.dev/source": "a"}});
        let conditions = json!({"conditions": [{"type": "tidegate.dev/Watch"}, {"type": "Modules"}]});
        let objects = [
            kyma("d", labels.clone(), json!({})),
            kyma("a", labels.clone(), conditions),
            kyma("b", labels.clone(), json!({})),
            kyma("c", labels, json!({})),
            kyma("e", json!({}), json!({})),
        ];
        let mut outcome = Outcome::default();
        for object in &objects {
            outcome.note(object, "", Return::of(object.value(), Heirs::in_kcp(object.value())));
        }
        let mut of_runtime = Outcome::default();
        let copy = kyma("default", json!({}), json!({"conditions": [{"type": "tidegate.dev/Watch"}]}));
        of_runtime.note(&copy, " in runtime kcp-system/a", Return::of(copy.value(), Heirs::in_runtime(copy.value())));
        outcome.add(of_runtime);
        assert_eq!((outcome.changed, outcome.unchanged), (5, 1));
        assert_eq!(
            outcome.understood(),
            [
                "condition tidegate.dev/Watch: 2 of kind Kyma (kcp-system/a, kcp-system/default in runtime kcp-system/a)",
                "label tidegate.dev/source: 4 of kind Kyma (kcp-system/a, kcp-system/b, kcp-system/c and 1 more)",
            ]
        );
    }
}
