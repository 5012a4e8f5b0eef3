//! The `Certificate` of a runtime, for external issuers.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{
    api::names::{CERTIFICATE_PURPOSE, MANAGED_BY_KCP, annotation, label},
    object::Object,
    plan::certificate::{self, Backend, Certificate, Rules},
    template::{Error, Stamp, Template, Templates},
};

/// Labels by which the Secrets with runtimes' certificates are found.
pub fn certificate_labels() -> Map<String, Value> {
    let labels = [(label::MANAGED_BY, MANAGED_BY_KCP), (label::PURPOSE, CERTIFICATE_PURPOSE)];
    labels.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

/// The `Certificate` of a runtime; `None` if the issuer uses no such object. Fails if the template
/// fails.
pub fn certificate(
    templates: &Templates,
    backend: Backend,
    certificate: &Certificate,
    rules: &Rules,
) -> Option<Result<Object, Error>> {
    let (template, labels) = match backend {
        Backend::CertManager => (Template::Certificate, "/spec/secretTemplate/labels"),
        Backend::Gardener => (Template::GardenerCertificate, "/spec/secretLabels"),
        Backend::Builtin => return None,
    };
    let Certificate { kyma, key, common_name, dns_names } = certificate;
    // A Secret without the annotation belongs to a Kyma in Lifecycle Manager's namespace. It may outlive its
    // `Certificate`: cert-manager finishes pending writes even after the deletion.
    let says = certificate::kyma_of(key.name(), None).as_ref() != Some(kyma);
    let annotations = if says { json!({ annotation::KYMA: kyma.to_string() }) } else { json!({}) };
    let context = json!({
        "kyma": { "namespace": kyma.namespace(), "name": kyma.name() },
        "commonName": common_name,
        "dnsNames": dns_names,
        "duration": go_duration(rules.duration),
        "renewBefore": go_duration(rules.renew_before),
        "secret": { "name": key.name(), "labels": certificate_labels(), "annotations": annotations },
        "keySize": rules.key_size,
        "issuer": { "name": rules.issuer, "namespace": rules.issuer_namespace },
    });
    let stamp = Stamp::new(key.namespace(), key.name()).annotation(annotation::KYMA, &kyma.to_string());
    let subject = format!("the certificate of Kyma {kyma}");
    // The identity of a certificate and the name of its Secret must not vary.
    let is_as_wanted = |object: &Object| {
        let wanted = certificate_labels();
        let is = |pointer: &str, value: &str| object.value().pointer(pointer).and_then(Value::as_str) == Some(value);
        let labelled = object
            .value()
            .pointer(labels)
            .and_then(Value::as_object)
            .is_some_and(|found| wanted.iter().all(|(key, value)| found.get(key) == Some(value)));
        if is("/spec/commonName", common_name) && is("/spec/secretName", key.name()) && labelled {
            return Ok(());
        }
        Err("must write `commonName`, `secretName` and the labels of the Secret as in its context".to_owned())
    };
    Some(templates.render_if(template, &context, &stamp, &subject, is_as_wanted))
}

/// A duration in Go's format, so that objects from Lifecycle Manager do not change.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        (_, _) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests;
