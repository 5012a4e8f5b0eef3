//! Writes objects of any kind to our servers as an administrator: for preparing a control plane, not for the daemon.

use std::{fs, path::Path, time::Duration};

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
};
use serde_json::Value;
use tidegate_core::yaml::{self, Limits};

use crate::Error;

/// The field manager of these writes.
const FIELD_MANAGER: &str = "testbed";
/// Limit until a CRD is served.
const ESTABLISHED_MAX: Duration = Duration::from_secs(60);
/// Interval of checking.
const POLL: Duration = Duration::from_millis(50);

/// The API of an object's kind, in the object's namespace.
///
/// # Errors
///
/// Fails if discovery fails or the kind is not served.
pub async fn api_of(client: &Client, object: &Value) -> Result<Api<DynamicObject>, kube::Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::gvk(group, version, &kind)).await?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    Ok(match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
    })
}

/// Applies an object, forced and with strict validation, and returns the result.
///
/// # Errors
///
/// Fails if the server refuses the object.
pub async fn apply(client: &Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    let parameters = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    api_of(client, object).await?.patch(name, &parameters, &Patch::Apply(object)).await
}

/// Applies CRDs and waits until all are served.
///
/// # Errors
///
/// Fails if the server refuses one, or if one is not served in time.
pub async fn install_crds(client: &Client, crds: &[Value]) -> Result<(), Error> {
    let failed = |source| Error::Request { server: "a server".to_owned(), action: "install CRDs", source };
    for crd in crds {
        apply(client, crd).await.map_err(|error| failed(Box::new(error)))?;
    }
    for crd in crds {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let api = api_of(client, crd).await.map_err(|error| failed(Box::new(error)))?;
        let served = async {
            loop {
                let live = api.get(name).await?;
                if is_established(&live.data) && can_be_listed(client, crd).await {
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(ESTABLISHED_MAX, served).await {
            Ok(answer) => answer.map_err(|error| failed(Box::new(error)))?,
            Err(_) => {
                return Err(Error::NotReady {
                    server: format!("CRD {name}"),
                    waited: ESTABLISHED_MAX,
                    last: "not established".to_owned(),
                    log: String::new(),
                });
            }
        }
    }
    Ok(())
}

/// Whether objects of a CRD's kind can be listed, in each version. For a moment after `Established` they cannot: 404
/// until discovery follows, 429 while the storage is created.
async fn can_be_listed(client: &Client, crd: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"]));
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|version| version["served"] == true) {
        let path = format!("/apis/{group}/{}/{plural}?limit=1", text(&version["name"]));
        let Ok(request) = http::Request::get(path).body(Vec::new()) else { return false };
        if client.request::<Value>(request).await.is_err() {
            return false;
        }
    }
    true
}

fn is_established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    })
}

/// The CRDs of a YAML file, or only those with these names. Others are not parsed, because such files are large.
///
/// # Errors
///
/// Fails if the file cannot be read or is not valid YAML.
pub fn read_crds(path: &Path, names: &[&str]) -> Result<Vec<Value>, Error> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let is_wanted = |document: &&str| {
        names.is_empty()
            || document.lines().any(|line| line.strip_prefix("  name: ").is_some_and(|n| names.contains(&n)))
    };
    let mut crds = Vec::new();
    for document in text.split("\n---").filter(is_wanted) {
        let nodes = yaml::parse(document.trim_start_matches("---"), &Limits::default()).map_err(|error| {
            Error::File { action: "parse", path: path.to_owned(), source: std::io::Error::other(error.to_string()) }
        })?;
        let objects = nodes.iter().map(yaml::Node::to_json);
        crds.extend(objects.filter(|object| object["kind"] == "CustomResourceDefinition"));
    }
    Ok(crds)
}
