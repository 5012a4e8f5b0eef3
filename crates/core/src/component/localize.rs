//! Replaces images in a module's objects by references that are local to a landscape: transferred images.
//!
//! As Lifecycle Manager does it: an image is replaced by the reference with the same name and tag, whatever its
//! registry and path. Containers, init containers and values of their environment variables, in Deployments and
//! StatefulSets.

use std::collections::BTreeMap;

use serde_json::Value;

/// References of images, by name and tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images<'a>(BTreeMap<&'a str, &'a str>);

// === impl Images ===

impl<'a> Images<'a> {
    /// The references that replace others. One without a tag replaces nothing. Of two with the same name and tag, the
    /// last one counts.
    pub fn new(references: &'a [String]) -> Images<'a> {
        let named = references.iter().filter_map(|reference| Some((name_and_tag(reference)?, reference.as_str())));
        Images(named.collect())
    }

    /// Replaces the images in an object.
    pub fn replace(&self, object: &mut Value) {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let is_workload =
            text("apiVersion").starts_with("apps/") && matches!(text("kind"), "Deployment" | "StatefulSet");
        if !is_workload || self.0.is_empty() {
            return;
        }
        for list in ["initContainers", "containers"] {
            let containers = object.pointer_mut(&format!("/spec/template/spec/{list}")).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                self.replace_text(container, "image");
                let variables = container.get_mut("env").and_then(Value::as_array_mut);
                for variable in variables.into_iter().flatten() {
                    self.replace_text(variable, "value");
                }
            }
        }
    }

    fn replace_text(&self, object: &mut Value, field: &str) {
        let Some(Value::String(text)) = object.get_mut(field) else { return };
        if let Some(local) = name_and_tag(text).and_then(|key| self.0.get(key)) {
            *text = (*local).to_owned();
        }
    }
}

/// `name:tag` of a reference `registry/path/name:tag@digest`. `None` if it has no tag.
fn name_and_tag(reference: &str) -> Option<&str> {
    let tagged = reference.split_once('@').map_or(reference, |(tagged, _)| tagged);
    let last = tagged.rsplit('/').next()?;
    let (name, tag) = last.split_once(':')?;
    (!name.is_empty() && !tag.is_empty() && !last.contains(char::is_whitespace)).then_some(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LOCAL: &str = "private.example.com/mirror/keda:2.0.0@sha256:0000";

    fn replaced(object: &Value) -> Value {
        let references = [LOCAL.to_owned(), "private.example.com/mirror/untagged@sha256:0000".to_owned()];
        let mut object = object.clone();
        Images::new(&references).replace(&mut object);
        object
    }

    fn workload(api_version: &str, kind: &str, image: &str) -> Value {
        let container = json!({"image": image, "env": [{"name": "IMAGE", "value": image}, {"name": "NONE"}]});
        json!({
            "apiVersion": api_version, "kind": kind,
            "spec": {"template": {"spec": {"containers": [container], "initContainers": [container]}}},
        })
    }

    #[test]
    fn an_image_of_the_same_name_and_tag_is_replaced_in_workloads_only() {
        let image = "public.example.com:5000/team/keda:2.0.0";
        for (api_version, kind, is_replaced) in [
            ("apps/v1", "Deployment", true),
            ("apps/v1", "StatefulSet", true),
            ("apps/v1", "DaemonSet", false),
            ("example.com/v1", "Deployment", false),
            ("v1", "ConfigMap", false),
        ] {
            let expected = workload(api_version, kind, if is_replaced { LOCAL } else { image });
            assert_eq!(replaced(&workload(api_version, kind, image)), expected, "{api_version} {kind}");
        }
    }

    #[test]
    fn another_name_tag_or_text_stays() {
        for (image, is_replaced) in [
            ("keda:2.0.0", true),
            ("other.example.com/a/b/keda:2.0.0@sha256:1111", true),
            ("other.example.com/keda:2.0.1", false),
            ("other.example.com/not-keda:2.0.0", false),
            ("other.example.com:5000/keda", false),
            ("untagged@sha256:1111", false),
            ("see keda:2.0.0", false),
            ("", false),
        ] {
            let expected = workload("apps/v1", "Deployment", if is_replaced { LOCAL } else { image });
            assert_eq!(replaced(&workload("apps/v1", "Deployment", image)), expected, "{image}");
        }
    }
}
