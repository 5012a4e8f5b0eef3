//! What a landscape puts into the objects of modules, as Lifecycle Manager does: the Secret with which images are
//! pulled, and data of Secrets in KCP.
//!
//! * `imagePullSecrets` of Deployments and StatefulSets name the Secret, once. An environment variable names it to the
//!   containers of the module's manager, or to all containers if the module names no manager.
//! * A Secret that asks for data gets those of its namesake in KCP. Only the version of that Secret is known here: the
//!   data are read when the object is sent, and kept nowhere.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{DataSource, SharedObject};
use crate::{
    api::{
        names::{DEPLOYER, KCP_NAMESPACE, PULL_SECRET_VARIABLE},
        shared,
    },
    name::Key,
    object::ObjectId,
};

/// What is put into the objects of a module. Equal injections put the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Injection {
    pull_secret: Option<PullSecret>,
    /// The versions of the Secrets in KCP, by name. Empty if Secrets stay as they are.
    data: BTreeMap<String, String>,
}

/// The Secret with which images are pulled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PullSecret {
    name: String,
    /// The workload whose containers get its name; `None` if all do.
    manager: Option<Manager>,
}

/// The workload that operates a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Manager {
    group: String,
    kind: String,
    name: String,
    /// `None` if it may be in any namespace.
    namespace: Option<String>,
}

/// Why something cannot be put into an object. The texts are Lifecycle Manager's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// A container already has the environment variable.
    #[error("{PULL_SECRET_VARIABLE} environment variable already exits in raw manifest")]
    VariableExists,
}

// === impl Injection ===

impl Injection {
    /// Names the Secret with which images are pulled.
    #[must_use]
    pub fn pull_secret(self, name: &str, manager: Option<&shared::Manager>) -> Injection {
        let manager = manager.map(Manager::from);
        Injection { pull_secret: Some(PullSecret { name: name.to_owned(), manager }), ..self }
    }

    /// Gives Secrets that ask for them the data of their namesakes in KCP, in these versions.
    #[must_use]
    pub fn data(self, versions: BTreeMap<String, String>) -> Injection {
        Injection { data: versions, ..self }
    }

    /// Whether it leaves all objects as they are.
    pub fn is_empty(&self) -> bool {
        *self == Injection::default()
    }

    /// The object with what is put into it.
    pub(super) fn put_into(&self, object: &SharedObject) -> Result<SharedObject, InjectError> {
        if let Some(version) = self.data.get(&*object.id.name).filter(|_| object.asks_for_data) {
            let secret = Key::new(KCP_NAMESPACE, &object.id.name);
            return Ok(object.clone().with_data(&Arc::new(DataSource { secret, module: Some(DEPLOYER) }), version));
        }
        match &self.pull_secret {
            Some(secret) if is_workload(object) => object.changed(|value| secret.put_into(object, value)),
            Some(_) | None => Ok(object.clone()),
        }
    }
}

// === impl PullSecret ===

impl PullSecret {
    fn put_into(&self, object: &SharedObject, value: &mut Value) -> Result<(), InjectError> {
        let Some(pod) = value.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) else { return Ok(()) };
        let secrets = pod.entry("imagePullSecrets").or_insert(Value::Null);
        if secrets.is_null() {
            *secrets = json!([]);
        }
        if let Some(secrets) = secrets.as_array_mut()
            && !secrets.iter().any(|secret| secret["name"] == *self.name)
        {
            secrets.push(json!({"name": self.name}));
        }
        if self.manager.as_ref().is_some_and(|manager| !manager.is(&object.id)) {
            return Ok(());
        }
        let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let variables = container.entry("env").or_insert(Value::Null);
            if variables.is_null() {
                *variables = json!([]);
            }
            let Some(variables) = variables.as_array_mut() else { continue };
            if variables.iter().any(|variable| variable["name"] == PULL_SECRET_VARIABLE) {
                return Err(InjectError::VariableExists);
            }
            variables.push(json!({"name": PULL_SECRET_VARIABLE, "value": self.name}));
        }
        Ok(())
    }
}

// === impl Manager ===

impl From<&shared::Manager> for Manager {
    fn from(manager: &shared::Manager) -> Manager {
        Manager {
            group: manager.group.clone(),
            kind: manager.kind.clone(),
            name: manager.name.clone(),
            namespace: manager.namespace.clone().filter(|namespace| !namespace.is_empty()),
        }
    }
}

impl Manager {
    fn is(&self, id: &ObjectId) -> bool {
        *self.group == *id.group
            && *self.kind == *id.kind
            && *self.name == *id.name
            && self.namespace.as_deref().is_none_or(|namespace| namespace == &*id.namespace)
    }
}

/// Whether `spec.manager` names an object of its module. Without a namespace it may be in any.
pub fn is_manager(manager: &shared::Manager, id: &ObjectId) -> bool {
    Manager::from(manager).is(id)
}

fn is_workload(object: &SharedObject) -> bool {
    &*object.id.group == "apps" && matches!(&*object.id.kind, "Deployment" | "StatefulSet")
}

#[cfg(test)]
mod tests;
