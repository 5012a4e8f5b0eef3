//! The agent that Lifecycle Manager left in a runtime, while the runtime is adopted: as long as it works with Tidegate,
//! it stays. Pure.
//!
//! It reports changes to Tidegate as it did to Lifecycle Manager, with its certificate. But it reads the certificate
//! only at its start, and it is configured only there. So once it would need another configuration or a restart, the
//! agent of Tidegate replaces it. A pass ends the adoption of the runtime before it writes anything for that: whatever
//! the pass still does then, the next one does not take the runtime for adopted.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use tidegate_core::{
    object::{Object, ObjectId},
    plan::reporting::Address,
};

use super::{
    decide::{CERTIFICATE, deployment_key, deployment_kind, secret_key, secret_kind},
    state::Prerequisites,
};
use crate::{
    gateway::certificates::Leaf,
    runtime::objects::{LiveObjects, is_touched},
};

/// The agent of Lifecycle Manager that a pass has found to work with Tidegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormerAgent {
    /// The certificate in the control plane.
    certificate: String,
    /// Where it sends events.
    address: Address,
    /// The generation of its Deployment.
    deployment: i64,
    /// The resource version of its Secret.
    secret: String,
}

/// What becomes of the agent of Lifecycle Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It stays.
    Keep(FormerAgent),
    /// Tidegate's replaces it. Contains the reason, as a clause.
    End(&'static str),
}

/// What a pass has read of an agent.
#[derive(Clone, Copy)]
pub(super) struct Observed<'a> {
    /// Its Deployment.
    pub(super) deployment: Option<&'a Object>,
    /// The Secret with its certificate.
    pub(super) secret: Option<&'a Object>,
    /// Its certificate in the control plane.
    pub(super) leaf: Option<&'a Leaf>,
}

/// A variable that Lifecycle Manager sets for its agent, and Tidegate does not.
const OF_FORMER: &str = "TLS_CALLBACK";
/// The variable with the address for events.
const ADDRESS: &str = "KCP_ADDR";

// === impl FormerAgent ===

impl FormerAgent {
    /// Whether nothing that decides about the agent has changed, as far as is known.
    pub(super) fn is_same(&self, prerequisites: &Prerequisites, live: Option<&LiveObjects>) -> bool {
        let is_as_read = |live: &LiveObjects| {
            let of = |id: &ObjectId| live.get(id).filter(|metadata| !metadata.deleting);
            let (deployment, secret) = ids();
            of(&deployment).is_some_and(|found| found.generation == self.deployment)
                && of(&secret).is_some_and(|found| found.resource_version == self.secret)
        };
        self.certificate == prerequisites.issued.version
            && self.address == prerequisites.address
            && live.is_none_or(is_as_read)
    }
}

// === impl Hold ===

impl Hold {
    /// What becomes of an agent. `managers` are the field managers of Lifecycle Manager and Tidegate.
    pub(super) fn of(observed: Observed<'_>, prerequisites: &Prerequisites, managers: &[&str]) -> Hold {
        let Some(deployment) = observed.deployment.map(Object::value) else {
            return Hold::End("the runtime has no agent");
        };
        if variable(deployment, OF_FORMER).is_none() {
            return Hold::End("its agent is not that of Lifecycle Manager");
        }
        if is_touched(deployment, managers) {
            return Hold::End("another client has changed its agent");
        }
        if variable(deployment, ADDRESS) != Some(prerequisites.address.to_string().as_str()) {
            return Hold::End("its agent must send events to another address");
        }
        let Some(secret) = observed.secret.map(Object::value) else {
            return Hold::End("the certificate of its agent is missing");
        };
        // Without the certificate in the control plane, nothing is applied either.
        let is_new = |leaf: &Leaf| secret["data"][CERTIFICATE] != STANDARD.encode(&leaf.certificate);
        if observed.leaf.is_some_and(is_new) {
            return Hold::End("its agent must restart for a renewed certificate");
        }
        Hold::Keep(FormerAgent {
            certificate: prerequisites.issued.version.clone(),
            address: prerequisites.address.clone(),
            deployment: deployment["metadata"]["generation"].as_i64().unwrap_or_default(),
            secret: secret["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

/// The note for users when the adoption of a runtime ends.
pub(super) fn end_note(why: &str) -> String {
    format!("the runtime does not stay as Lifecycle Manager left it: {why}")
}

/// The value of a variable of the agent; empty if it is taken from elsewhere.
fn variable<'a>(deployment: &'a Value, name: &str) -> Option<&'a str> {
    let containers =
        deployment.pointer("/spec/template/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let mut variables = containers.flat_map(|container| container["env"].as_array().into_iter().flatten());
    let found = variables.find(|variable| variable["name"] == name)?;
    Some(found["value"].as_str().unwrap_or_default())
}

/// The identities of the Deployment and of the Secret.
fn ids() -> (ObjectId, ObjectId) {
    (deployment_kind().id(&deployment_key()), secret_kind().id(&secret_key()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tidegate_core::{name::Key, plan::certificate::Issued};

    use super::*;
    use crate::runtime::objects::fixtures::{live, metadata};

    fn deployment() -> Value {
        let env =
            json!([{"name": "TLS_CALLBACK", "value": "true"}, {"name": "KCP_ADDR", "value": "kcp.example.org:443"}]);
        let container = json!({"name": "server", "image": "runtime-watcher", "env": env});
        let applied = json!({"manager": "lifecycle-manager", "operation": "Apply", "fieldsV1": {"f:spec": {}}});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "skr-webhook", "namespace": "kyma-system", "generation": 3, "managedFields": [applied],
            },
            "spec": {"template": {"spec": {"containers": [container]}}},
        })
    }

    fn secret() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "data": {"tls.crt": STANDARD.encode("old")},
            "metadata": {"name": "skr-webhook-tls", "namespace": "kyma-system", "resourceVersion": "7"},
        })
    }

    fn prerequisites(address: &str) -> Prerequisites {
        let issued = Issued { secret: Key::new("istio-system", "one"), version: "1/5".to_owned(), validity: None };
        Prerequisites { address: address.parse().unwrap(), bundle: Arc::from(*b"ca"), issued, pull_secret: None }
    }

    fn hold(deployment: Option<Value>, secret: Option<Value>, certificate: &str, address: &str) -> Hold {
        let object = |value: Option<Value>| value.map(|value| Object::new(value).unwrap());
        let (deployment, secret) = (object(deployment), object(secret));
        let leaf = Leaf { certificate: certificate.as_bytes().to_vec(), key: Vec::new() };
        let observed = Observed { deployment: deployment.as_ref(), secret: secret.as_ref(), leaf: Some(&leaf) };
        Hold::of(observed, &prerequisites(address), &["lifecycle-manager", "tidegate"])
    }

    const KCP: &str = "kcp.example.org:443";

    #[test]
    fn an_agent_stays_as_long_as_it_needs_no_restart() {
        let kept = hold(Some(deployment()), Some(secret()), "old", KCP);
        let Hold::Keep(agent) = kept else { panic!("{kept:?}") };
        let same = prerequisites(KCP);
        assert!(agent.is_same(&same, None));
        assert!(!agent.is_same(&prerequisites("new.example.org:443"), None));
        let mut renewed = prerequisites(KCP);
        renewed.issued.version = "1/6".to_owned();
        assert!(!agent.is_same(&renewed, None));
        let (of_deployment, of_secret) = ids();
        let found = |generation: i64, version: &str| {
            let deployment = tidegate_cluster::Metadata { generation, ..metadata(&of_deployment, "99") };
            live([deployment, metadata(&of_secret, version)])
        };
        assert!(agent.is_same(&same, Some(&found(3, "7"))));
        assert!(!agent.is_same(&same, Some(&found(4, "7"))));
        assert!(!agent.is_same(&same, Some(&found(3, "8"))));
        assert!(!agent.is_same(&same, Some(&live([]))));
    }

    #[test]
    fn what_would_break_the_way_of_events_ends_the_adoption() {
        let end = |deployment: Option<Value>, secret: Option<Value>, certificate: &str, address: &str| match hold(
            deployment,
            secret,
            certificate,
            address,
        ) {
            Hold::End(why) => why,
            Hold::Keep(agent) => panic!("{agent:?}"),
        };
        let (own, own_secret) = (|| Some(deployment()), || Some(secret()));
        assert_eq!(end(None, own_secret(), "old", KCP), "the runtime has no agent");
        let mut ours = deployment();
        ours["spec"]["template"]["spec"]["containers"][0]["env"][0]["name"] = "WEBHOOK_PORT".into();
        assert_eq!(end(Some(ours), own_secret(), "old", KCP), "its agent is not that of Lifecycle Manager");
        let mut edited = deployment();
        let edit = json!({"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {}}});
        edited["metadata"]["managedFields"].as_array_mut().unwrap().push(edit);
        assert_eq!(end(Some(edited), own_secret(), "old", KCP), "another client has changed its agent");
        let address = "its agent must send events to another address";
        assert_eq!(end(own(), own_secret(), "old", "new.example.org:443"), address);
        assert_eq!(end(own(), None, "old", KCP), "the certificate of its agent is missing");
        let renewed = "its agent must restart for a renewed certificate";
        assert_eq!(end(own(), own_secret(), "new", KCP), renewed);
    }
}
