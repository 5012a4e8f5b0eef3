//! The objects of kcp landscapes in the control plane, as the stores keep them: without content.
//!
//! An object bears the label `tidegate.dev/setup` of its resource. Secrets and ConfigMaps are kept whether they bear it
//! or not, because a resource may name those of users.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::core::{DynamicObject, PartialObjectMeta};
use serde_json::Value;

use tidegate_cluster::{Kind, Metadata};
use tidegate_core::{
    api::names::{annotation, label},
    object::{Digest, Gvk, Object},
    plan::certificate::Backend,
};

use super::hold;

/// The kinds of objects of kcp landscapes, in the order of apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A cert-manager Issuer.
    Issuer,
    /// A cert-manager Certificate.
    Certificate,
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A Deployment.
    Deployment,
    /// A Service.
    Service,
    /// A limit for evictions.
    PodDisruptionBudget,
}

/// An object without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveObject {
    /// The label of its resource, if it has one.
    pub mark: Option<Arc<str>>,
    /// The control plane that made it, if it is in another cluster.
    pub control_plane: Option<Arc<str>>,
    /// The UID of its resource, if it is in another cluster.
    pub owner: Option<Arc<str>>,
    /// The Secrets and ConfigMaps that the pods of a Deployment use.
    pub mounts: BTreeSet<(ObjectKind, String)>,
    /// Its UID.
    pub uid: Arc<str>,
    /// Its resource version.
    pub resource_version: Arc<str>,
    /// Changes with what users and Tidegate write, not with the status.
    pub version: Arc<str>,
    /// The digest of its last apply, if Tidegate applied it.
    pub digest: Option<Arc<str>>,
    /// Whether it may stay as kcp-operator left it, see [`super::hold`].
    pub is_adopted: bool,
    /// Whether an annotation says that it may or may not be pruned.
    pub prune: Option<bool>,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// The digest of the keys that all pods of a Deployment mount; `None` while they may differ.
    pub mounted: Option<Arc<str>>,
    /// The name of the cluster to which its kubeconfig leads, if a label says so.
    pub cluster: Option<Arc<str>>,
    /// What its status says.
    pub state: ObjectState,
}

/// What the status of an object says, for the kinds that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// Nothing waits for its status.
    Plain,
    /// A Certificate. Contains why it is not ready, if it is not.
    Certificate(Result<(), Arc<str>>),
    /// An Issuer. Contains why it cannot sign, if cert-manager says so.
    Issuer(Option<Arc<str>>),
    /// A Deployment.
    Deployment(Pods),
    /// A Secret whose certificate Tidegate issued. Contains when it is renewed.
    Issued(Timestamp),
}

/// The pods of a Deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// The desired number.
    pub wanted: i32,
    /// Those of the current template.
    pub updated: i32,
    /// Those that are ready.
    pub ready: i32,
    /// Whether the status is of the current spec.
    pub is_current: bool,
}

/// Written by the controller of Deployments.
const REVISION: &str = "deployment.kubernetes.io/revision";

// === impl ObjectKind ===

impl ObjectKind {
    /// All of them, in the order of apply.
    pub const ALL: [ObjectKind; 7] = [
        ObjectKind::Issuer,
        ObjectKind::Certificate,
        ObjectKind::Secret,
        ObjectKind::ConfigMap,
        ObjectKind::Deployment,
        ObjectKind::Service,
        ObjectKind::PodDisruptionBudget,
    ];

    /// Those that can be in another cluster, where the pods are.
    pub const PLACED: [ObjectKind; 5] = [
        ObjectKind::Secret,
        ObjectKind::ConfigMap,
        ObjectKind::Deployment,
        ObjectKind::Service,
        ObjectKind::PodDisruptionBudget,
    ];

    /// Whether objects of this kind are where the pods are. Of Secrets and ConfigMaps, copies are.
    pub(super) fn is_placed(self) -> bool {
        match self {
            ObjectKind::Deployment | ObjectKind::Service | ObjectKind::PodDisruptionBudget => true,
            ObjectKind::Issuer | ObjectKind::Certificate | ObjectKind::Secret | ObjectKind::ConfigMap => false,
        }
    }

    /// The value of `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Issuer => "Issuer",
            ObjectKind::Certificate => "Certificate",
            ObjectKind::Secret => "Secret",
            ObjectKind::ConfigMap => "ConfigMap",
            ObjectKind::Deployment => "Deployment",
            ObjectKind::Service => "Service",
            ObjectKind::PodDisruptionBudget => "PodDisruptionBudget",
        }
    }

    /// The kind with this value of `kind`.
    pub fn named(kind: &str) -> Option<ObjectKind> {
        ObjectKind::ALL.into_iter().find(|found| found.as_str() == kind)
    }

    /// The kind at the API server.
    pub fn kind(self) -> Kind {
        let (group, version, plural) = match self {
            ObjectKind::Issuer => ("cert-manager.io", "v1", "issuers"),
            ObjectKind::Certificate => ("cert-manager.io", "v1", "certificates"),
            ObjectKind::Secret => ("", "v1", "secrets"),
            ObjectKind::ConfigMap => ("", "v1", "configmaps"),
            ObjectKind::Deployment => ("apps", "v1", "deployments"),
            ObjectKind::Service => ("", "v1", "services"),
            ObjectKind::PodDisruptionBudget => ("policy", "v1", "poddisruptionbudgets"),
        };
        Kind::new(Gvk::new(group, version, self.as_str()), plural, true)
    }

    /// Whether the API server counts changes of the spec of these objects.
    fn has_generation(self) -> bool {
        match self {
            ObjectKind::Issuer | ObjectKind::Certificate | ObjectKind::Deployment | ObjectKind::PodDisruptionBudget => {
                true
            }
            ObjectKind::Secret | ObjectKind::ConfigMap | ObjectKind::Service => false,
        }
    }

    /// Whether users may have objects of this kind that a resource names.
    pub fn is_input(self) -> bool {
        match self {
            ObjectKind::Secret | ObjectKind::ConfigMap => true,
            ObjectKind::Issuer
            | ObjectKind::Certificate
            | ObjectKind::Deployment
            | ObjectKind::Service
            | ObjectKind::PodDisruptionBudget => false,
        }
    }

    fn version(
        self,
        (uid, resource_version, generation): (&str, &str, i64),
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> Arc<str> {
        if !self.has_generation() {
            return resource_version.into();
        }
        let annotations: BTreeMap<_, _> = annotations.iter().filter(|(name, _)| *name != REVISION).collect();
        let marks = Digest::from_value(&serde_json::json!([labels, annotations])).short();
        format!("{uid}/{generation}/{marks}").into()
    }

    /// The version of an object after an apply, see [`LiveObject::version`].
    pub(super) fn version_of(self, metadata: &Metadata) -> Arc<str> {
        let numbers = (metadata.uid.as_str(), metadata.resource_version.as_str(), metadata.generation);
        self.version(numbers, &metadata.labels, &metadata.annotations)
    }

    /// The version of an object that was read.
    pub(super) fn version_of_object(self, object: &Object) -> Arc<str> {
        let metadata = &object.value()["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let map = |field: &str| serde_json::from_value(metadata[field].clone()).unwrap_or_default();
        let numbers = (text("uid"), text("resourceVersion"), metadata["generation"].as_i64().unwrap_or_default());
        self.version(numbers, &map("labels"), &map("annotations"))
    }
}

// === impl LiveObject ===

impl LiveObject {
    /// An object whose status does not matter.
    pub fn from_metadata(kind: ObjectKind, found: PartialObjectMeta<DynamicObject>) -> LiveObject {
        let annotation = |name: &str| found.metadata.annotations.as_ref()?.get(name);
        let is_issued = annotation(annotation::PKI).is_some_and(|pki| pki == Backend::Builtin.name());
        let state = match kind {
            ObjectKind::Secret if is_issued => {
                let renew_at = annotation(annotation::RENEW_AT).and_then(|text| text.parse().ok());
                ObjectState::Issued(renew_at.unwrap_or(Timestamp::MIN))
            }
            _ => ObjectState::Plain,
        };
        LiveObject::new(kind, found.metadata, state)
    }

    /// An object with its status.
    pub fn from_object(kind: ObjectKind, found: DynamicObject) -> LiveObject {
        let generation = found.metadata.generation.unwrap_or_default();
        let state = match kind {
            ObjectKind::Certificate => ObjectState::Certificate(readiness(&found.data)),
            ObjectKind::Deployment => ObjectState::Deployment(Pods::of(&found.data, generation)),
            ObjectKind::Issuer => {
                let refusal = ready(&found.data).filter(|ready| ready["status"] == "False" && !is_about_absence(ready));
                ObjectState::Issuer(refusal.map(|ready| ready["message"].as_str().unwrap_or("it is not ready").into()))
            }
            ObjectKind::Secret | ObjectKind::ConfigMap | ObjectKind::Service | ObjectKind::PodDisruptionBudget => {
                ObjectState::Plain
            }
        };
        let mounted = match state {
            ObjectState::Deployment(pods) if pods.are_up() => mounted(&found.data),
            ObjectState::Deployment(_)
            | ObjectState::Plain
            | ObjectState::Certificate(_)
            | ObjectState::Issuer(_)
            | ObjectState::Issued(_) => None,
        };
        let mounts = if kind == ObjectKind::Deployment { mounts(&found.data) } else { BTreeSet::new() };
        LiveObject { mounted, mounts, ..LiveObject::new(kind, found.metadata, state) }
    }

    /// As it is seen where it may be one of another control plane, which uses this cluster as a place for pods: then it
    /// belongs to no resource here.
    pub fn at_home(self) -> LiveObject {
        match self.control_plane {
            Some(_) => LiveObject { mark: None, ..self },
            None => self,
        }
    }

    /// The desired number of pods of a Deployment.
    pub(super) fn replicas(&self) -> Option<i32> {
        match self.state {
            ObjectState::Deployment(pods) => Some(pods.wanted),
            ObjectState::Plain | ObjectState::Certificate(_) | ObjectState::Issuer(_) | ObjectState::Issued(_) => None,
        }
    }

    /// When the certificate of a Secret has to be renewed, if Tidegate issued it.
    pub(super) fn renew_at(&self) -> Option<Timestamp> {
        match self.state {
            ObjectState::Issued(renew_at) => Some(renew_at),
            ObjectState::Plain | ObjectState::Certificate(_) | ObjectState::Issuer(_) | ObjectState::Deployment(_) => {
                None
            }
        }
    }

    fn new(kind: ObjectKind, metadata: ObjectMeta, state: ObjectState) -> LiveObject {
        let (labels, annotations) = (metadata.labels.unwrap_or_default(), metadata.annotations.unwrap_or_default());
        let uid = metadata.uid.unwrap_or_default();
        let resource_version = metadata.resource_version.unwrap_or_default();
        let numbers = (uid.as_str(), resource_version.as_str(), metadata.generation.unwrap_or_default());
        let prune = match annotations.get(annotation::PRUNE).map(String::as_str) {
            Some("enabled") => Some(true),
            Some("disabled") => Some(false),
            _ => None,
        };
        LiveObject {
            mark: labels.get(label::SETUP).map(|mark| mark.as_str().into()),
            control_plane: labels.get(label::CONTROL_PLANE).map(|uid| uid.as_str().into()),
            owner: labels.get(label::OWNER).map(|uid| uid.as_str().into()),
            mounts: BTreeSet::new(),
            version: kind.version(numbers, &labels, &annotations),
            digest: annotations.get(annotation::DIGEST).map(|digest| digest.as_str().into()),
            is_adopted: hold::is_adopted(|name| annotations.get(name).map(String::as_str)),
            prune,
            is_terminating: metadata.deletion_timestamp.is_some(),
            mounted: None,
            cluster: labels.get(label::CLUSTER_NAME).map(|name| name.as_str().into()),
            state,
            uid: uid.into(),
            resource_version: resource_version.into(),
        }
    }
}

// === impl Pods ===

impl Pods {
    fn of(deployment: &Value, generation: i64) -> Pods {
        let number = |pointer: &str| {
            let found = deployment.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
            i32::try_from(found).unwrap_or(i32::MAX)
        };
        let observed = deployment.pointer("/status/observedGeneration").and_then(Value::as_i64);
        Pods {
            // The API server writes it always.
            wanted: number("/spec/replicas"),
            updated: number("/status/updatedReplicas"),
            ready: number("/status/readyReplicas"),
            is_current: observed == Some(generation),
        }
    }

    /// Whether as many pods as wanted are ready, all of the current template.
    pub(super) fn are_up(self) -> bool {
        self.is_current && self.updated == self.wanted && self.ready == self.wanted
    }
}

/// The digest of the keys that the pods of a Deployment mount, unless there are pods of a former template.
fn mounted(deployment: &Value) -> Option<Arc<str>> {
    let number = |field: &str| deployment["status"][field].as_i64().unwrap_or_default();
    // A pod that ends still answers. Not every version of Kubernetes counts these.
    let is_alone = number("replicas") == number("updatedReplicas") && number("terminatingReplicas") == 0;
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    annotations[annotation::MOUNTS].as_str().filter(|_| is_alone).map(Arc::from)
}

/// The Secrets and ConfigMaps that the pods of a Deployment use.
fn mounts(deployment: &Value) -> BTreeSet<(ObjectKind, String)> {
    fn each<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
        value[field].as_array().into_iter().flatten()
    }
    let pod = &deployment["spec"]["template"]["spec"];
    let (mut secrets, mut configs) = (Vec::new(), Vec::new());
    for volume in each(pod, "volumes") {
        secrets.push(&volume["secret"]["secretName"]);
        configs.push(&volume["configMap"]["name"]);
        for source in each(&volume["projected"], "sources") {
            secrets.push(&source["secret"]["name"]);
            configs.push(&source["configMap"]["name"]);
        }
    }
    secrets.extend(each(pod, "imagePullSecrets").map(|secret| &secret["name"]));
    for container in each(pod, "initContainers").chain(each(pod, "containers")) {
        for variable in each(container, "env") {
            secrets.push(&variable["valueFrom"]["secretKeyRef"]["name"]);
            configs.push(&variable["valueFrom"]["configMapKeyRef"]["name"]);
        }
        for variables in each(container, "envFrom") {
            secrets.push(&variables["secretRef"]["name"]);
            configs.push(&variables["configMapRef"]["name"]);
        }
    }
    let of = |kind: ObjectKind| move |name: &Value| Some((kind, name.as_str()?.to_owned()));
    let secrets = secrets.into_iter().filter_map(of(ObjectKind::Secret));
    secrets.chain(configs.into_iter().filter_map(of(ObjectKind::ConfigMap))).collect()
}

/// Why a Certificate is not ready, if it is not.
fn readiness(certificate: &Value) -> Result<(), Arc<str>> {
    match ready(certificate) {
        Some(ready) if ready["status"] == "True" => Ok(()),
        Some(ready) => Err(ready["message"].as_str().unwrap_or("it is not ready").into()),
        None => Err("its issuer has not answered yet".into()),
    }
}

/// Whether cert-manager says of an Issuer that its Secret does not exist. In a rollout, it says so until it has seen
/// the Secret. The time of the condition does not tell: it stays while the condition stays `False`, whatever the
/// message.
fn is_about_absence(ready: &Value) -> bool {
    // Neither a Secret without a key nor one that is no CA has such a message:
    // https://github.com/cert-manager/cert-manager/blob/v1.21.2/pkg/issuer/ca/setup.go
    ready["reason"] == "ErrGetKeyPair"
        && ready["message"].as_str().is_some_and(|message| message.ends_with("not found"))
}

/// The condition of cert-manager that says whether an object is ready.
fn ready(object: &Value) -> Option<&Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready")
}
