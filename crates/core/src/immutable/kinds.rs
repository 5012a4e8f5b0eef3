//! Kinds whose immutable fields depend on more than one value.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::Old;
use crate::changes::compare_quantities;

/// The field of a CustomResourceDefinition whose version leaves.
pub(super) const VERSIONS: &str = "spec.versions";

/// Fields of a Pod's spec that have a default, so that one side may name it and the other may not.
const POD_DEFAULTS: [(&str, &str); 6] = [
    ("dnsPolicy", "ClusterFirst"),
    ("preemptionPolicy", "PreemptLowerPriority"),
    ("restartPolicy", "Always"),
    ("schedulerName", "default-scheduler"),
    ("serviceAccount", "default"),
    ("serviceAccountName", "default"),
];
/// Fields of a Pod's spec that change in some direction.
const POD_MUTABLE: [&str; 3] = ["activeDeadlineSeconds", "schedulingGates", "tolerations"];
/// Fields of a template that say where pods run: two of its metadata, then those of its spec.
const SCHEDULED: [&str; 6] = ["labels", "annotations", "affinity", "nodeSelector", "schedulingGates", "tolerations"];
/// Tolerations that an API server adds to every Pod.
const ADDED_TOLERATIONS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Fields of a PersistentVolume's spec that are not where its data are.
const NO_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// The fields of a member of an object; none if it is no mapping.
fn fields(value: &Value, pointer: &str) -> Map<String, Value> {
    value.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The first field that differs, without those that may.
fn differing(old: &Map<String, Value>, new: &Map<String, Value>, of: Old) -> Option<String> {
    let only_old = old.keys().filter(|name| of == Old::Declared && !new.contains_key(*name));
    let mut all = new.keys().chain(only_old);
    all.find(|name| !of.is_same_member(name, old.get(*name), new.get(*name))).map(|name| format!("spec.{name}"))
}

/// The immutable field of a Pod that differs: all of its spec but images, a deadline that comes closer, further
/// tolerations, and scheduling gates that go.
pub(super) fn pod(old: &Value, new: &Value, of: Old) -> Option<String> {
    let gates = |pod: &Value| pod.pointer("/spec/schedulingGates").and_then(Value::as_array).map_or(0, Vec::len);
    let is_gated = gates(old) > 0;
    let fixed = |pod: &Value| {
        let mut spec = fields(pod, "/spec");
        spec.retain(|name, _| {
            // The node of a Pod that is not scheduled yet may be narrowed down.
            let may_narrow = is_gated && matches!(name.as_str(), "nodeSelector" | "affinity");
            !may_narrow && !POD_MUTABLE.contains(&name.as_str())
        });
        if of == Old::Declared {
            for (name, default) in POD_DEFAULTS {
                spec.entry(name).or_insert_with(|| json!(default));
            }
            spec.entry("terminationGracePeriodSeconds").or_insert_with(|| json!(30));
            spec.entry("enableServiceLinks").or_insert_with(|| json!(true));
        }
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.shift_remove("image");
                }
            }
        }
        spec
    };
    if let Some(field) = differing(&fixed(old), &fixed(new), of) {
        return Some(field);
    }
    let deadline = |pod: &Value| pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
    let is_later = match (deadline(old), deadline(new)) {
        (Some(old), Some(new)) => old < new,
        (Some(_), None) => of == Old::Declared,
        (None, _) => false,
    };
    if is_later {
        return Some("spec.activeDeadlineSeconds".to_owned());
    }
    if gates(old) < gates(new) {
        return Some("spec.schedulingGates".to_owned());
    }
    let tolerations = |pod: &Value| pod.pointer("/spec/tolerations").and_then(Value::as_array).cloned();
    let (was, is) = (tolerations(old).unwrap_or_default(), tolerations(new));
    let is_added =
        |one: &Value| of == Old::Live && one["key"].as_str().is_some_and(|key| ADDED_TOLERATIONS.contains(&key));
    let is = is.or_else(|| (of == Old::Declared).then(Vec::new))?;
    let loses = was.iter().any(|one| !is.contains(one) && !is_added(one));
    loses.then(|| "spec.tolerations".to_owned())
}

/// The immutable field of a PersistentVolume that differs: where its data are.
pub(super) fn volume(old: &Value, new: &Value, of: Old) -> Option<String> {
    let source = |volume: &Value| {
        let mut spec = fields(volume, "/spec");
        spec.retain(|name, _| !NO_SOURCE.contains(&name.as_str()));
        // The Secrets of a driver for later steps may be added.
        if let Some(driver) = spec.get_mut("csi").and_then(Value::as_object_mut) {
            driver.retain(|name, _| !matches!(name.as_str(), "controllerExpandSecretRef" | "nodeExpandSecretRef"));
        }
        spec
    };
    differing(&source(old), &source(new), of)
}

/// What is refused about the size of a PersistentVolumeClaim: it only grows, once it is bound, and if its StorageClass
/// allows it. `expands` is what is known of that.
pub(super) fn claim(old: &Value, new: &Value, of: Old, expands: Option<bool>) -> Option<(String, String)> {
    const FIELD: &str = "spec.resources.requests.storage";
    let size = |claim: &Value| claim.pointer("/spec/resources/requests/storage").cloned();
    let (was, is) = (size(old)?, size(new)?);
    let says = |what: String| Some((FIELD.to_owned(), format!("{FIELD} of a PersistentVolumeClaim {what}")));
    let order = compare_quantities(&is, &was)?;
    let is_unbound = of == Old::Live && old.pointer("/status/phase").is_some_and(|phase| phase != "Bound");
    match order {
        Ordering::Equal => None,
        Ordering::Less | Ordering::Greater if is_unbound => says("cannot be changed before it is bound".to_owned()),
        Ordering::Less => {
            let text = |size: &Value| size.as_str().map_or_else(|| size.to_string(), str::to_owned);
            says(format!("cannot shrink from {} to {}", text(&was), text(&is)))
        }
        Ordering::Greater if expands == Some(false) => {
            says("cannot grow, because its StorageClass does not set allowVolumeExpansion".to_owned())
        }
        Ordering::Greater => None,
    }
}

/// Whether a Service declares an address where the one before declared none: the API server has assigned one, unless
/// the Service has another type.
pub(super) fn gets_address(old: &Value, new: &Value) -> bool {
    let is_external = |service: &Value| service.pointer("/spec/type").is_some_and(|kind| kind == "ExternalName");
    let declares = |service: &Value| {
        let fields = ["/spec/clusterIP", "/spec/clusterIPs/0"];
        fields.iter().any(|field| service.pointer(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty()))
    };
    ![old, new].into_iter().any(is_external) && !declares(old) && declares(new)
}

/// Whether a PersistentVolumeClaim asks for more than before.
pub(super) fn grows(old: &Value, new: &Value) -> bool {
    let size = |claim: &'_ Value| claim.pointer("/spec/resources/requests/storage").cloned();
    let sizes = size(new).zip(size(old));
    sizes.and_then(|(new, old)| compare_quantities(&new, &old)) == Some(Ordering::Greater)
}

/// The immutable field of a Job that differs and is not in the table: its completions, or its template. While a Job is
/// suspended and has not started, its pods may be scheduled elsewhere.
pub(super) fn job(old: &Value, new: &Value, of: Old) -> Option<&'static str> {
    if completions(old, new, of) {
        return Some("spec.completions");
    }
    let is_waiting =
        old.pointer("/spec/suspend") == Some(&Value::Bool(true)) && old.pointer("/status/startTime").is_none();
    let fixed = |job: &Value| {
        let mut template = job.pointer("/spec/template")?.clone();
        if is_waiting {
            for (part, names) in [("metadata", &SCHEDULED[..2]), ("spec", &SCHEDULED[2..])] {
                if let Some(part) = template.get_mut(part).and_then(Value::as_object_mut) {
                    part.retain(|name, _| !names.contains(&name.as_str()));
                }
            }
        }
        Some(template)
    };
    let (was, is) = (fixed(old)?, fixed(new)?);
    (!of.is_same("/spec/template", &is, &was)).then_some("spec.template")
}

/// The immutable field of a Service that differs and is not in the table: an address where none was declared, the class
/// of its load balancer, and the first family of its address. One of another type may get or lose both.
pub(super) fn service(old: &Value, new: &Value, of: Old) -> Option<&'static str> {
    if of == Old::Declared && gets_address(old, new) {
        return Some("spec.clusterIP");
    }
    let text = |service: &Value, pointer: &str| service.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let is = |service: &Value, name: &str| text(service, "/spec/type").as_deref() == Some(name);
    if [old, new].iter().all(|service| is(service, "LoadBalancer")) {
        let class = |service: &Value| text(service, "/spec/loadBalancerClass");
        let is_kept = of == Old::Live && class(new).is_none();
        if class(old) != class(new) && !is_kept {
            return Some("spec.loadBalancerClass");
        }
    }
    let family = |service: &Value| text(service, "/spec/ipFamilies/0");
    let differs = family(old).zip(family(new)).is_some_and(|(old, new)| old != new);
    (differs && ![old, new].iter().any(|service| is(service, "ExternalName"))).then_some("spec.ipFamilies")
}

/// Whether the ranges of a ServiceCIDR differ: one range may only get a second one.
pub(super) fn cidrs(old: &Value, new: &Value) -> bool {
    let ranges = |object: &Value| object.pointer("/spec/cidrs").and_then(Value::as_array).cloned().unwrap_or_default();
    let (was, is) = (ranges(old), ranges(new));
    was != is && !(was.len() == 1 && is.len() == 2 && is.starts_with(&was))
}

/// Whether the number of completions of a Job differs, and may not: only an indexed Job changes it, together with its
/// parallelism.
fn completions(old: &Value, new: &Value, of: Old) -> bool {
    let number = |job: &Value, name: &str| job["spec"].get(name).and_then(Value::as_i64);
    // One, if both are omitted.
    let of_job = |job: &Value| number(job, "completions").or_else(|| number(job, "parallelism").is_none().then_some(1));
    // What nobody declares stays as it was set by default.
    let is_declared = of == Old::Declared && number(old, "completions").is_some();
    if number(new, "completions").is_none() && !is_declared {
        return false;
    }
    let (was, is) = (of_job(old), of_job(new));
    let parallelism = number(new, "parallelism").or_else(|| number(old, "parallelism").filter(|_| of == Old::Live));
    let is_indexed = [new, old].iter().find_map(|job| job.pointer("/spec/completionMode")?.as_str()) == Some("Indexed");
    was != is && !(is_indexed && is.is_some() && is == Some(parallelism.unwrap_or(1)))
}

/// What is refused about the versions of a CustomResourceDefinition: one in which objects are stored does not leave.
pub(super) fn stored_version(old: &Value, new: &Value, of: Old) -> Option<(String, String)> {
    let versions = |definition: &Value| definition.pointer("/spec/versions").and_then(Value::as_array).cloned();
    let (was, is) = (versions(old)?, versions(new)?);
    let stored: Vec<String> = match (of, old.pointer("/status/storedVersions").and_then(Value::as_array)) {
        (Old::Live, Some(stored)) => stored.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        (Old::Declared, _) | (Old::Live, None) => {
            let stores = was.iter().filter(|version| version["storage"] == true);
            stores.filter_map(|version| version["name"].as_str()).map(str::to_owned).collect()
        }
    };
    let gone = stored.into_iter().find(|name| !is.iter().any(|version| version["name"] == name.as_str()))?;
    let fact =
        format!("version {gone} of a CustomResourceDefinition cannot be removed, because objects are stored in it");
    Some((VERSIONS.to_owned(), fact))
}
