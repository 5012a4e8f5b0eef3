use serde_json::{Value, json};

use super::*;

fn digest(byte: &str) -> String {
    format!("sha256:{}", byte.repeat(32))
}

#[test]
fn a_manifest_names_its_configuration_and_an_index_its_first_manifest() {
    let digest = |byte: &str| digest(byte).parse::<BlobDigest>().unwrap();
    let image = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.ocm.software.component.config.v1+json", "digest": digest("0a"), "size": 9},
        "layers": [{"digest": digest("0b")}],
    });
    let index = json!({"schemaVersion": 2, "manifests": [{"digest": digest("0c")}, {"digest": digest("0d")}]});
    for (value, expected) in [
        (image, Ok(Manifest::Image { config: digest("0a") })),
        (index, Ok(Manifest::Index { first: digest("0c") })),
        (json!({"manifests": []}), Err("its index is empty")),
        (json!({"manifests": [{}]}), Err("the first manifest in its index has no SHA-256 digest")),
        (json!({"config": {}}), Err("the configuration in its manifest has no SHA-256 digest")),
        (json!({"config": {"digest": "sha256:../x"}}), Err("the configuration in its manifest has no SHA-256 digest")),
        (json!({"schemaVersion": 1, "fsLayers": []}), Err("it is neither an OCI image manifest nor an index")),
        (json!([]), Err("its manifest is invalid")),
        (json!("x"), Err("its manifest is invalid")),
    ] {
        assert_eq!(read(value.to_string().as_bytes()), expected, "{value}");
    }
    assert_eq!(read(b"<html>"), Err("its manifest is invalid"));
}

#[test]
fn the_configuration_names_the_descriptor() {
    let config = |layer: Value| json!({"componentDescriptorLayer": layer}).to_string();
    for (media_type, is_tar) in [
        ("application/vnd.ocm.software.component-descriptor.v2+yaml+tar", true),
        ("application/vnd.oci.gardener.cloud.cnudie.component-descriptor.config.v2+yaml+tar", true),
        ("application/vnd.gardener.cloud.cnudie.component-descriptor.v2+yaml+tar", true),
        ("application/x-tar", true),
        ("", true),
        ("application/vnd.ocm.software.component-descriptor.v2+json", false),
        ("application/vnd.ocm.software.component-descriptor.v2+yaml", false),
        ("application/vnd.example.star+yaml", false),
    ] {
        let found = read_config(config(json!({"mediaType": media_type, "digest": digest("0a")})).as_bytes());
        assert_eq!(found, Ok(DescriptorBlob { digest: digest("0a").parse().unwrap(), is_tar }), "{media_type}");
    }
    for (layer, expected) in [
        (json!(null), "ComponentDescriptorLayer is nil in ComponentDescriptorConfig"),
        (json!({}), "ComponentDescriptorLayer.Digest is empty in ComponentDescriptorConfig"),
        (json!({"digest": "1.2.3"}), "the descriptor in its configuration has no SHA-256 digest"),
        (json!(7), "its configuration is invalid"),
    ] {
        assert_eq!(read_config(config(layer).as_bytes()), Err(expected));
    }
}
