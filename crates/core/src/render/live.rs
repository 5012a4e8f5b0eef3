//! Values that only a live cluster knows: their placeholders, and where these occur.

use serde::Serialize;
use serde_json::Value;

/// A value that an offline rendering cannot know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unknown {
    /// Its name in the placeholder; a key of `--assume`.
    pub value: String,
    /// The target with the object.
    pub target: String,
    /// The object that contains it.
    pub object: String,
    /// Its path in the object, such as `spec.hosts[0]`.
    pub path: String,
}

/// The hosts of the Gateways that a Watcher selects.
pub const GATEWAY_HOSTS: &str = "gateway hosts";
/// The Gateways that a Watcher selects, as `<namespace>/<name>`.
pub const GATEWAYS: &str = "gateways";
/// The CA bundle with which a runtime's API server verifies the webhook: PEM in base64.
pub const CA_BUNDLE: &str = "CA bundle";

/// Prefix of the names of uids; see [`uid`].
pub const UID_OF: &str = "uid of ";

/// Prefix of the names of data; see [`data`].
pub const DATA_OF: &str = "data of ";
/// Prefix of the names of digests of mounted keys; see [`mounts`].
pub const MOUNTS_OF: &str = "mounts of ";

const OPEN: &str = "((live: ";
const CLOSE: &str = "))";

/// The placeholder of a value: `((live: gateway hosts))`.
pub fn placeholder(value: &str) -> String {
    format!("{OPEN}{value}{CLOSE}")
}

/// The name of the uid of an object.
pub fn uid(kind: &str, key: &crate::name::Key) -> String {
    format!("{UID_OF}{kind} {key}")
}

/// The name of the data that Tidegate adds to a Secret: one value in base64.
pub fn data(key: &crate::name::Key) -> String {
    format!("{DATA_OF}Secret {key}")
}

/// The name of the digest of the keys that the pods of a Deployment mount.
pub fn mounts(key: &crate::name::Key) -> String {
    format!("{MOUNTS_OF}Deployment {key}")
}

/// Every placeholder in a value, with its path.
pub fn placeholders(value: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(value, &mut String::new(), &mut found);
    found
}

fn collect(value: &Value, path: &mut String, found: &mut Vec<(String, String)>) {
    let length = path.len();
    match value {
        Value::String(text) => {
            let mut rest = text.as_str();
            while let Some((_, behind)) = rest.split_once(OPEN) {
                let Some((name, behind)) = behind.split_once(CLOSE) else { break };
                found.push((path.clone(), name.to_owned()));
                rest = behind;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                collect(item, path, found);
                path.truncate(length);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                collect(value, path, found);
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
