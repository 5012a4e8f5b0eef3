//! The objects of kcp landscapes.
//!
//! A context contains no secret data: the data of a Secret are added after rendering. What only a cluster knows is an
//! input by name, see [`live`]: the data of Secrets with certificates, and the digests of what pods mount.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::live;
use crate::{
    api::names::{annotation, label},
    name::Key,
    object::Object,
    plan::setup::{
        Budget, Certificate, Config, Container, Content, Deployment, Gate, Issuer, Labels, Plan, Probes, Replicas,
        Secret, Service, Volume, setup_mark,
    },
    template::{Error, Stamp, Template, Templates},
};

/// What the objects of one resource have in common.
struct Rendering<'a> {
    templates: &'a Templates,
    plan: &'a Plan,
    subject: String,
    /// The value of an input by name.
    value: &'a dyn Fn(&str) -> String,
}

/// The objects of one resource of a kcp landscape, in the order of apply: issuers, CAs, other certificates, Secrets
/// and ConfigMaps, Deployments, Services, PodDisruptionBudgets.
///
/// `value` knows the inputs by name: [`live::data`] in base64, [`live::mounts`]. An object whose template fails is an
/// error and affects no other.
pub fn setup(
    templates: &Templates,
    plan: &Plan,
    value: &dyn Fn(&str) -> String,
) -> Vec<(Template, Result<Object, Error>)> {
    let rendering = Rendering { templates, plan, subject: format!("{} {}", plan.kind, plan.key), value };
    let issuers = plan.issuers.iter().map(|issuer| (Template::SetupIssuer, rendering.issuer(issuer)));
    let certificates =
        plan.certificates.iter().map(|certificate| (Template::SetupCertificate, rendering.certificate(certificate)));
    let secrets = plan.secrets.iter().map(|secret| (Template::SetupSecret, rendering.secret(secret)));
    let configs = plan.configs.iter().map(|config| (Template::SetupPathMapping, rendering.config(config)));
    let deployments =
        plan.deployments.iter().map(|deployment| (Template::SetupDeployment, rendering.deployment(deployment)));
    let services = plan.services.iter().map(|service| (Template::SetupService, rendering.service(service)));
    let budgets = plan.budgets.iter().map(|budget| (Template::SetupPodDisruptionBudget, rendering.budget(budget)));
    let first = issuers.chain(certificates).chain(secrets).chain(configs);
    first.chain(deployments).chain(services).chain(budgets).collect()
}

/// What an object of a plan waits for, as `tidegate render -o json` prints it.
pub fn setup_gates(plan: &Plan, object: &Object) -> Vec<Value> {
    plan.gates(&object.gvk().kind, object.name()).iter().map(gate_value).collect()
}

fn gate_value(gate: &Gate) -> Value {
    match gate {
        Gate::Certificate(name) => json!({ "kind": "Certificate", "name": name, "condition": "Ready" }),
        Gate::Key(mounted) => json!({ "kind": mounted.kind, "name": mounted.name, "keys": mounted.keys }),
        Gate::Deployment { name, is_up: true } => {
            json!({ "kind": "Deployment", "name": name, "condition": "Available" })
        }
        Gate::Deployment { name, is_up: false } => json!({ "kind": "Deployment", "name": name }),
    }
}

impl Rendering<'_> {
    fn render(&self, template: Template, context: Value, stamp: &Stamp) -> Result<Object, Error> {
        self.render_if(template, context, stamp, |_| Ok(()))
    }

    fn render_if(
        &self,
        template: Template,
        mut context: Value,
        stamp: &Stamp,
        accept: impl Fn(&Object) -> Result<(), String>,
    ) -> Result<Object, Error> {
        let Plan { kind, key, .. } = self.plan;
        context["resource"] = json!({ "kind": kind.as_str(), "namespace": key.namespace(), "name": key.name() });
        self.templates.render_if(template, &context, stamp, &self.subject, accept)
    }

    /// Identity and labels of an object. The labels are those by which kcp-operator finds it, and ours.
    fn stamp(&self, name: &str, labels: &Labels, annotations: &Labels) -> Stamp {
        let mut stamp = Stamp::new(self.plan.key.namespace(), name);
        for (key, value) in labels {
            stamp = stamp.label(key, value);
        }
        for (key, value) in annotations {
            stamp = stamp.annotation(key, value);
        }
        stamp.label(label::SETUP, &setup_mark(self.plan.kind, self.plan.key.name()))
    }

    fn issuer(&self, issuer: &Issuer) -> Result<Object, Error> {
        let stamp = self.stamp(&issuer.name, &issuer.labels, &Labels::new());
        self.render(Template::SetupIssuer, json!({ "secret": issuer.secret }), &stamp)
    }

    fn certificate(&self, certificate: &Certificate) -> Result<Object, Error> {
        let Certificate { name, labels, annotations, is_ca, common_name, subject, .. } = certificate;
        let Certificate {
            dns_names, ip_addresses, usages, duration, renew_before, private_key, issuer, secret, ..
        } = certificate;
        let context = json!({
            "secret": { "name": name, "labels": secret.labels, "annotations": secret.annotations },
            "isCA": is_ca,
            "commonName": common_name,
            "subject": subject,
            "dnsNames": dns_names,
            "ipAddresses": ip_addresses,
            "usages": usages,
            "duration": duration,
            "renewBefore": renew_before,
            "privateKey": private_key,
            "issuer": issuer,
        });
        let stamp = self.stamp(name, labels, annotations);
        self.render_if(Template::SetupCertificate, context, &stamp, |object| {
            let found = object.value().pointer("/spec/secretTemplate/labels").and_then(Value::as_object);
            let has_labels = found.is_some_and(|found| {
                secret.labels.iter().all(|(key, value)| found.get(key).and_then(Value::as_str) == Some(value))
            });
            if object.value()["spec"]["secretName"] == *name && has_labels {
                return Ok(());
            }
            Err("must write `secretName` and the labels of the Secret as in its context".to_owned())
        })
    }

    fn secret(&self, secret: &Secret) -> Result<Object, Error> {
        let key = secret.data_key();
        let annotations = match &secret.content {
            Content::Trusted(trusted) => Labels::from([(annotation::TRUSTS.to_owned(), trusted.note.clone())]),
            Content::Files(_) | Content::Credentials(_) | Content::Bundle(_) => Labels::new(),
        };
        let stamp = self.stamp(&secret.name, &secret.labels, &annotations);
        let mut object = self.render_if(Template::SetupSecret, json!({ "key": key }), &stamp, |object| {
            let has_data = ["data", "stringData"].into_iter().any(|field| object.field(field).is_some());
            if has_data { Err("writes data, which only Tidegate adds".to_owned()) } else { Ok(()) }
        })?;
        let data = match &secret.content {
            Content::Files(file) => STANDARD.encode(file.to_text()),
            Content::Trusted(trusted) => STANDARD.encode(&trusted.certificates),
            Content::Credentials(_) | Content::Bundle(_) => {
                (self.value)(&live::data(&Key::new(self.plan.key.namespace(), &secret.name)))
            }
        };
        object.map_mut().insert("data".to_owned(), Value::Object(Map::from_iter([(key.to_owned(), data.into())])));
        Ok(object)
    }

    fn config(&self, config: &Config) -> Result<Object, Error> {
        let stamp = self.stamp(&config.name, &config.labels, &Labels::new());
        self.render(Template::SetupPathMapping, json!({ "mappings": config.mappings }), &stamp)
    }

    fn deployment(&self, deployment: &Deployment) -> Result<Object, Error> {
        let (Replicas::Fixed(replicas) | Replicas::OnCreation(replicas) | Replicas::AtMost(replicas)) =
            deployment.replicas;
        let digest = (self.value)(&live::mounts(&Key::new(self.plan.key.namespace(), &deployment.name)));
        let mut annotations = deployment.pod_annotations.clone();
        annotations.insert(annotation::MOUNTS.to_owned(), digest);
        let mut pod_labels = deployment.pod_labels.clone();
        pod_labels.insert(label::SETUP.to_owned(), setup_mark(self.plan.kind, self.plan.key.name()));
        let mut pod = json!(deployment.pod);
        if let Some(fields) = pod.as_object_mut() {
            fields.remove("imagePullSecrets");
        }
        let context = json!({
            "replicas": replicas,
            "selector": deployment.selector,
            "podLabels": pod_labels,
            "podAnnotations": annotations,
            "pod": pod,
            "hardened": deployment.is_hardened,
            "pullSecrets": deployment.pull_secrets.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
            "initContainers": deployment.init_containers.iter().map(container).collect::<Vec<_>>(),
            "container": container(&deployment.container),
            "volumes": deployment.volumes.iter().map(Volume::to_value).collect::<Vec<_>>(),
        });
        let stamp = self.stamp(&deployment.name, &deployment.labels, &deployment.annotations);
        self.render(Template::SetupDeployment, context, &stamp)
    }

    fn service(&self, service: &Service) -> Result<Object, Error> {
        let port = |(name, port, target): &(&str, i32, i32)| json!({ "name": name, "port": port, "target": target });
        let context = json!({
            "type": service.service_type,
            "clusterIP": service.cluster_ip,
            "selector": service.selector,
            "ports": service.ports.iter().map(port).collect::<Vec<_>>(),
        });
        let stamp = self.stamp(&service.name, &service.labels, &service.annotations);
        self.render(Template::SetupService, context, &stamp)
    }

    fn budget(&self, budget: &Budget) -> Result<Object, Error> {
        let context = json!({ "maxUnavailable": budget.max_unavailable, "selector": budget.selector });
        let stamp = self.stamp(&budget.name, &budget.labels, &Labels::new());
        self.render(Template::SetupPodDisruptionBudget, context, &stamp)
    }
}

fn container(container: &Container) -> Value {
    let probes = match container.probes {
        Probes::Shard => "shard",
        Probes::Simple => "simple",
        Probes::None => "none",
    };
    json!({
        "name": container.name,
        "image": container.image,
        "command": container.command,
        "args": container.args,
        "resources": container.resources,
        "mounts": container.mounts,
        "probes": probes,
    })
}

#[cfg(test)]
mod tests;
