//! Image localisation: images of workloads are replaced by copies in another registry.

use serde_json::Value;

use crate::object::Object;

/// Replaces, in a Deployment or StatefulSet, every image of a container and every value of an environment variable whose
/// `name:tag` equals that of an entry of `images` by that entry.
pub fn localize_images(object: &mut Object, images: &[String]) {
    let gvk = object.gvk();
    let is_workload = &*gvk.group == "apps" && matches!(&*gvk.kind, "Deployment" | "StatefulSet");
    if images.is_empty() || !is_workload {
        return;
    }
    let Some(pod) = object.map_mut().get_mut("spec").and_then(|spec| spec.pointer_mut("/template/spec")) else {
        return;
    };
    for field in ["containers", "initContainers"] {
        for container in pod.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(image) = container.get_mut("image") {
                localize(image, images);
            }
            for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(value) = variable.get_mut("value") {
                    localize(value, images);
                }
            }
        }
    }
}

fn localize(value: &mut Value, images: &[String]) {
    let Some(found) = value.as_str().and_then(name_and_tag) else { return };
    if let Some(replacement) = images.iter().find(|image| name_and_tag(image) == Some(found)) {
        *value = Value::from(replacement.as_str());
    }
}

/// `name:tag` of an image reference: its last path segment without digest. What has no tag is no image to us, so that
/// ordinary values of environment variables stay as they are.
fn name_and_tag(image: &str) -> Option<&str> {
    let without_digest = image.split_once('@').map_or(image, |(name, _)| name);
    let last = without_digest.rsplit('/').next()?;
    let (name, tag) = last.split_once(':')?;
    (!name.is_empty() && !tag.is_empty()).then_some(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_and_variables_with_the_same_name_and_tag_are_replaced() {
        let mut object = Object::new(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"template": {"spec": {
                "initContainers": [{"name": "i", "image": "example.com/init:2"}],
                "containers": [{"name": "c", "image": "example.com/a/cache:1.2@sha256:0", "env": [
                    {"name": "PEER", "value": "example.com/b/cache:1.2"},
                    {"name": "MODE", "value": "cache"},
                    {"name": "REF", "valueFrom": {}},
                ]}],
            }}},
        }))
        .unwrap();
        localize_images(&mut object, &["mirror.example.com/x/cache:1.2@sha256:1".to_owned()]);
        let pod = object.value().pointer("/spec/template/spec").unwrap();
        let copy = "mirror.example.com/x/cache:1.2@sha256:1";
        assert_eq!(pod["containers"][0]["image"], copy);
        assert_eq!(pod["containers"][0]["env"][0]["value"], copy);
        assert_eq!(pod["containers"][0]["env"][1]["value"], "cache");
        assert_eq!(pod["initContainers"][0]["image"], "example.com/init:2");
    }
}
