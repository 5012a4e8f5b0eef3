//! Turns a plan into objects: the desired objects of the control plane and of runtimes.
//!
//! This module builds the contexts of templates and sets the labels and annotations by which
//! Tidegate finds its objects. Objects that many runtimes share are rendered and serialised once,
//! see [`SharedObjects`]. Values from a live cluster are passed in; offline they are placeholders,
//! see [`live`]. This module never reads a cluster.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::{
    api::{
        self, Kyma, Watcher,
        kyma::KymaSpec,
        names::{self, annotation, finalizer, label},
        shared::{CustomResourcePolicy, ObjectMeta},
    },
    landscape::{self, Landscape},
    name::Key,
    object::Object,
    plan::{
        Catalog, Installation, Offer,
        reporting::{Gateways, Watch},
    },
    template::{Error, Library, Stamp, Template, Templates},
};

mod certificate;
mod crds;
mod inject;
pub mod live;
pub mod offline;
mod platform;
mod reporting;
mod scope;
mod setup;
mod shared;
mod trial;

pub use certificate::{certificate, certificate_labels};
pub use crds::{RuntimeCrds, runtime_crd};
pub use inject::{InjectError, Injection, is_manager};
pub use platform::{is_in_every_runtime, is_runtime_namespace};
pub use reporting::{
    Reporting, agent, agent_deployment, agent_pull_secret, agent_secret, as_installed, has_webhooks, keep, of_watchers,
    webhook,
};
pub use scope::built_in_scope;
pub use setup::{setup, setup_gates};
pub use shared::{CompleteModule, DataSource, Mark, SharedObject, SharedObjects};
pub use trial::{Trial, sample_agents};

/// The kinds whose CRDs are installed in runtimes.
const RUNTIME_KINDS: [&str; 3] = ["Kyma", "ModuleReleaseMeta", "ModuleTemplate"];

/// Labels of the Kyma in KCP that its counterpart also has.
const KYMA_LABELS_SHOWN: [&str; 3] = [label::RUNTIME_ID, label::GLOBAL_ACCOUNT_ID, label::SUBACCOUNT_ID];

/// The Manifest of one module of one runtime. `owner_uid` is the Kyma's.
///
/// # Errors
///
/// Fails if the template fails.
pub fn manifest(templates: &Templates, installation: &Installation, owner_uid: &str) -> Result<Object, Error> {
    let kyma = &installation.kyma;
    let context = json!({
        "kyma": { "namespace": kyma.namespace(), "name": kyma.name() },
        "name": installation.manifest_name,
        "module": {
            "name": installation.module,
            "version": installation.version,
            "channel": installation.offer.channel(),
            "mandatory": installation.offer == Offer::Mandatory,
            "component": installation.component,
            "template": installation.template.name(),
        },
        "install": { "name": names::RAW_MANIFEST, "source": installation.source.to_value() },
        "policy": installation.policy,
        "resource": installation.default_resource,
        "manager": installation.manager,
        "localizedImages": installation.localized_images,
    });
    let mut stamp = Stamp::new(kyma.namespace(), &installation.manifest_name)
        .label(label::KYMA_NAME, kyma.name())
        .label(label::MODULE_NAME, &installation.module)
        .label(label::MANAGED_BY, names::MANAGED_BY_KCP)
        .annotation(annotation::OCM_COMPONENT_NAME, &installation.component)
        .annotation(annotation::FQDN, &installation.component);
    stamp = match &installation.offer {
        Offer::Channel(channel) => stamp.label(label::CHANNEL, channel),
        Offer::Mandatory => stamp.label(label::MANDATORY_MODULE, "true"),
    };
    let record = &installation.record;
    let digests = [(annotation::SYNC_OCI_REF, record.read), (annotation::COMPONENT_DIGEST, record.manifest)];
    for (name, digest) in digests.into_iter().filter_map(|(name, digest)| Some((name, digest?))) {
        stamp = stamp.annotation(name, &digest.to_string());
    }
    if let Some(controller) = &installation.controller {
        stamp = stamp.label(label::CONTROLLER_NAME, controller);
    }
    stamp.owners.push(owner("Kyma", kyma, owner_uid, true));
    stamp.finalizers.extend([finalizer::MANIFEST.to_owned(), finalizer::LABEL_REMOVAL.to_owned()]);
    if installation.default_resource.is_some() && installation.policy == CustomResourcePolicy::CreateAndDelete {
        stamp.finalizers.push(finalizer::MANIFEST_RESOURCE.to_owned());
    }
    let subject = format!("module {} of Kyma {kyma}", installation.module);
    templates.render(Template::Manifest, &context, &stamp, &subject)
}

/// The VirtualService of one Watcher. `owner_uid` is the Watcher's.
///
/// `port` is [`Watch::port`], which has validated it.
///
/// # Errors
///
/// Fails if the template fails.
pub fn virtual_service(
    templates: &Templates,
    watch: &Watch,
    port: u16,
    gateways: &Gateways,
    owner_uid: &str,
) -> Result<Object, Error> {
    let watcher = &watch.watcher;
    let service = &watch.service;
    let context = json!({
        "watcher": { "namespace": watcher.namespace(), "name": watcher.name() },
        "manager": watch.manager,
        "prefix": format!("/v2/{}/event", watch.manager),
        "service": {
            "namespace": service.namespace,
            "name": service.name,
            "port": port,
            "host": format!("{}.{}.svc.cluster.local", service.name, service.namespace),
        },
        "gateways": gateways.names,
        "hosts": gateways.hosts,
    });
    let mut stamp = Stamp::new(watcher.namespace(), watcher.name());
    stamp.owners.push(owner("Watcher", watcher, owner_uid, false));
    templates.render(Template::VirtualService, &context, &stamp, &format!("Watcher {watcher}"))
}

/// The system namespace of every runtime.
///
/// # Errors
///
/// Fails if the template fails.
pub fn runtime_namespace(templates: &Templates) -> Result<Object, Error> {
    let context = json!({ "name": names::SKR_NAMESPACE });
    let stamp = Stamp::new("", names::SKR_NAMESPACE).label(label::MANAGED_BY, names::MANAGED_BY_SKR);
    templates.render(Template::Namespace, &context, &stamp, "the namespace of runtimes")
}

/// The CRDs that Tidegate is built with. Commands without a cluster show them.
///
/// Generated once per process.
pub fn runtime_crds() -> &'static [Object] {
    static CRDS: LazyLock<Vec<Object>> = LazyLock::new(|| {
        let crds = RUNTIME_KINDS.into_iter().filter_map(api::crd);
        crds.map(|crd| runtime_crd(&serde_json::to_value(crd).expect("a CRD is JSON")).expect("a CRD is an object"))
            .collect()
    });
    &CRDS
}

/// The Kyma of one runtime, with its desired spec.
///
/// # Errors
///
/// Fails if the template fails.
pub fn runtime_kyma(templates: &Templates, kyma: &Kyma, spec: &KymaSpec) -> Result<Object, Error> {
    let key = landscape::key(&kyma.metadata);
    let context = json!({ "kyma": { "namespace": key.namespace(), "name": key.name() }, "spec": spec });
    let mut stamp = Stamp::new(names::SKR_NAMESPACE, names::SKR_KYMA)
        .label(label::WATCHED_BY, names::MANAGED_BY_SKR)
        .label(label::MANAGED_BY, names::MANAGED_BY_SKR)
        .annotation(annotation::OWNED_BY, &key.to_string());
    for shown in KYMA_LABELS_SHOWN {
        if let Some(value) = landscape::label(&kyma.metadata, shown) {
            stamp = stamp.label(shown, value);
        }
    }
    templates.render(Template::Kyma, &context, &stamp, &format!("Kyma {key}"))
}

/// One ModuleTemplate as runtimes see it.
pub fn catalog_template(library: &Library, landscape: &Landscape, key: &Key) -> Option<Result<Object, Error>> {
    let template = landscape.templates.get(key)?;
    let mut spec = json!(template.spec);
    if let Some(spec) = spec.as_object_mut() {
        // Lifecycle Manager writes these fields in any case. Its copy is taken over without a change.
        for (field, absent) in [
            ("channel", json!("")),
            ("version", json!("")),
            ("moduleName", json!("")),
            ("mandatory", json!(false)),
            ("requiresDowntime", json!(false)),
        ] {
            spec.entry(field).or_insert(absent);
        }
    }
    let context = json!({ "template": { "namespace": key.namespace(), "name": key.name() }, "spec": spec });
    let stamp = copied(&template.metadata);
    let templates = library.for_object(&template.metadata);
    Some(templates.render(Template::ModuleTemplate, &context, &stamp, &format!("ModuleTemplate {key}")))
}

/// One ModuleReleaseMeta as runtimes of a class see it.
pub fn catalog_release(
    library: &Library,
    landscape: &Landscape,
    shown: &crate::plan::Release,
) -> Option<Result<Object, Error>> {
    let key = &shown.key;
    let release = landscape.releases.get(key)?;
    let mut spec = release.spec.clone();
    spec.channels.clone_from(&shown.channels);
    let context = json!({ "release": { "namespace": key.namespace(), "name": key.name() }, "spec": spec });
    let stamp = copied(&release.metadata);
    let templates = library.for_object(&release.metadata);
    Some(templates.render(Template::ModuleReleaseMeta, &context, &stamp, &format!("ModuleReleaseMeta {key}")))
}

/// All objects of a catalog, and the errors of those that could not be rendered.
pub fn catalog(library: &Library, landscape: &Landscape, catalog: &Catalog) -> (Vec<Object>, Vec<Error>) {
    let templates = catalog.templates.iter().filter_map(|key| catalog_template(library, landscape, key));
    let releases = catalog.releases.iter().filter_map(|release| catalog_release(library, landscape, release));
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for result in templates.chain(releases) {
        match result {
            Ok(object) => objects.push(object),
            Err(error) => errors.push(error),
        }
    }
    (objects, errors)
}

/// The valid Watchers by key, and the errors of the others.
pub fn watches<'a>(
    watchers: impl IntoIterator<Item = &'a Watcher>,
) -> (Vec<Watch>, Vec<crate::plan::reporting::Error>) {
    let (mut watches, mut errors) = (Vec::new(), Vec::new());
    for watcher in watchers {
        match crate::plan::reporting::watch(watcher) {
            Ok(watch) => watches.push(watch),
            Err(error) => errors.push(error),
        }
    }
    watches.sort_by(|a, b| a.watcher.cmp(&b.watcher));
    (watches, errors)
}

fn owner(kind: &str, key: &Key, uid: &str, controller: bool) -> Value {
    let mut owner = json!({
        "apiVersion": format!("{}/{}", api::KYMA_GROUP, api::KYMA_VERSION),
        "kind": kind,
        "name": key.name(),
        "uid": uid,
    });
    if controller {
        owner["controller"] = Value::from(true);
        owner["blockOwnerDeletion"] = Value::from(true);
    }
    owner
}

/// The labels and annotations of a definition's copy in a runtime: its own, without those that only
/// matter in KCP. Path, source and digest change with every edit of the file, and such an edit must
/// not cause a write to runtimes.
fn copied(metadata: &ObjectMeta) -> Stamp {
    let concerns_runtimes = |key: &&String| {
        let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
        prefix != api::TIDEGATE_GROUP && *key != "kubectl.kubernetes.io/last-applied-configuration"
    };
    let mut stamp = Stamp::new(names::SKR_NAMESPACE, metadata.name.as_deref().unwrap_or_default());
    for (key, value) in metadata.labels.iter().flatten().filter(|(key, _)| concerns_runtimes(key)) {
        if key != label::MANAGED_BY {
            stamp = stamp.label(key, value);
        }
    }
    for (key, value) in metadata.annotations.iter().flatten().filter(|(key, _)| concerns_runtimes(key)) {
        stamp = stamp.annotation(key, value);
    }
    stamp.label(label::MANAGED_BY, names::MANAGED_BY_SKR)
}

#[cfg(test)]
mod tests;
