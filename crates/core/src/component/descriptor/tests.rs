use serde_json::json;

use super::*;

fn component() -> Component {
    Component::new("kyma-project.io/module/template-operator", "1.0.5").unwrap()
}

fn digest(byte: &str) -> String {
    format!("sha256:{}", byte.repeat(32))
}

/// A descriptor with the fields that OCM's tools write.
fn v2() -> Value {
    json!({
        "component": {
            "componentReferences": [],
            "creationTime": "2026-03-04T19:29:06Z",
            "labels": [{"name": "operator.kyma-project.io/beta", "value": "false", "version": "v1"}],
            "name": "kyma-project.io/module/template-operator",
            "provider": "kyma-project.io",
            "repositoryContexts": [
                {"baseUrl": "old.example.com", "componentNameMapping": "sha256-digest", "type": "OCIRegistry"},
                {"baseUrl": "new.example.com", "componentNameMapping": "urlPath", "subPath": "a", "type": "OCIRegistry"},
            ],
            "resources": resources(),
            "sources": [],
            "version": "1.0.5",
        },
        "meta": {"schemaVersion": "v2"},
    })
}

fn v3() -> Value {
    json!({
        "apiVersion": "ocm.software/v3alpha1",
        "kind": "ComponentVersion",
        "metadata": {
            "name": "kyma-project.io/module/template-operator",
            "provider": {"name": "kyma-project.io"},
            "version": "1.0.5",
        },
        "repositoryContexts": [{"baseUrl": "new.example.com", "componentNameMapping": "urlPath", "type": "OCIRegistry"}],
        "spec": {"resources": resources()},
    })
}

fn resources() -> Value {
    json!([
        {
            "access": {"imageReference": "r.example.com/a/keda-manager:1.7.0", "type": "ociArtifact"},
            "digest": {
                "hashAlgorithm": "SHA-256",
                "normalisationAlgorithm": "ociArtifactDigest/v1",
                "value": "0c".repeat(32),
            },
            "name": "keda-manager",
            "relation": "external",
            "type": "ociArtifact",
            "version": "1.7.0",
        },
        {
            "access": {"localReference": digest("0a"), "mediaType": "application/x-tar", "type": "localBlob"},
            "digest": {
                "hashAlgorithm": "SHA-256",
                "normalisationAlgorithm": "genericBlobDigest/v1",
                "value": "0a".repeat(32),
            },
            "name": "raw-manifest",
            "relation": "local",
            "type": "directory",
            "version": "1.0.5",
        },
        {
            "access": {"localReference": digest("0b"), "mediaType": "application/x-tar", "type": "localBlob"},
            "name": "default-cr",
            "relation": "local",
            "type": "directory",
            "version": "1.0.5",
        },
    ])
}

fn module() -> Module {
    Module {
        layer: Layer { digest: digest("0a").parse().unwrap(), kind: LayerKind::Tar },
        localized_images: vec!["r.example.com/a/keda-manager:1.7.0".to_owned()],
    }
}

#[track_caller]
fn check(value: &Value, expected: &str) {
    let error = read(value.to_string().as_bytes(), &component()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

/// A descriptor whose resource `raw-manifest` has this access.
fn with_access(access: Value) -> Value {
    let mut value = v2();
    value["component"]["resources"][1]["access"] = access;
    value
}

#[test]
fn both_schemas_say_the_same_in_json_and_yaml() {
    for value in [v2(), v3()] {
        let json = value.to_string();
        let with_tabs = serde_json::to_string_pretty(&value).unwrap().replace("  ", "\t");
        let yaml = serde_yaml::to_string(&value).unwrap();
        for text in [&json, &with_tabs, &yaml] {
            assert_eq!(read(text.as_bytes(), &component()).unwrap(), module(), "{text}");
        }
    }
}

#[test]
fn the_type_of_a_layer_is_decided_by_access_and_media_type() {
    let blob =
        |kind: &str, media_type: Value| json!({"type": kind, "localReference": digest("0a"), "mediaType": media_type});
    for (access, expected) in [
        (blob("localBlob", json!("application/x-tar")), LayerKind::Tar),
        (blob("localBlob/v1", json!("application/x-tar")), LayerKind::Tar),
        (blob("LocalBlob", json!("application/x-tar")), LayerKind::Tar),
        (blob("LocalBlob/v1", json!("application/x-tar")), LayerKind::Tar),
        (blob("localBlob", json!("application/x-tar+gzip")), LayerKind::Yaml),
        (blob("localBlob", json!("application/octet-stream")), LayerKind::Yaml),
        (blob("localBlob", json!("application/x-yaml")), LayerKind::Yaml),
        (blob("localBlob", json!("")), LayerKind::Yaml),
        (blob("localBlob", json!(null)), LayerKind::Yaml),
        (json!({"type": "localOciBlob", "digest": digest("0a")}), LayerKind::Yaml),
        (json!({"type": "localOciBlob/v1", "digest": digest("0a")}), LayerKind::Yaml),
    ] {
        let found = read(with_access(access.clone()).to_string().as_bytes(), &component()).unwrap();
        assert_eq!(found.layer, Layer { digest: digest("0a").parse().unwrap(), kind: expected }, "{access}");
    }
}

#[test]
fn only_images_of_the_plain_type_are_localized() {
    for (kind, images) in [
        ("ociArtifact", 1),
        ("ociArtifact/v1", 0),
        ("ociRegistry", 0),
        ("ociRegistry/v1", 0),
        ("ociImage", 0),
        ("ociImage/v1", 0),
        ("OCIImage", 0),
        ("OCIImage/v1", 0),
    ] {
        let mut value = v2();
        value["component"]["resources"][0]["access"]["type"] = kind.into();
        let found = read(value.to_string().as_bytes(), &component()).unwrap();
        assert_eq!(found.localized_images.len(), images, "{kind}");
    }
}

#[test]
fn an_unknown_access_type_of_any_resource_is_an_error_by_name() {
    let mut value = v2();
    value["component"]["resources"][2]["access"] = json!({"type": "gitHub", "repoUrl": "x"});
    check(&value, "access type not supported: resource `default-cr` has access type `gitHub`");
    // What a descriptor says may be printed on a terminal.
    value["component"]["resources"][2]["access"]["type"] = json!(format!("\u{1b}[2J`{}", "x".repeat(200)));
    let shown = format!("\u{fffd}[2J\u{fffd}{}…", "x".repeat(75));
    check(&value, &format!("access type not supported: resource `default-cr` has access type `{shown}`"));
}

#[test]
fn a_descriptor_of_another_component_is_refused() {
    let asked = "kyma-project.io/module/template-operator:1.0.5";
    let mut value = v2();
    value["component"]["version"] = "1.0.6".into();
    let found = "kyma-project.io/module/template-operator:1.0.6";
    check(&value, &format!("the component descriptor is for {found}, but {asked} was requested"));
    let mut value = v3();
    value["metadata"]["name"] = "kyma-project.io/module/keda".into();
    let found = "kyma-project.io/module/keda:1.0.5";
    check(&value, &format!("the component descriptor is for {found}, but {asked} was requested"));
}

#[test]
fn a_broken_descriptor_says_what_is_wrong() {
    let schema = "failed to decode component descriptor: its schema is neither `v2` (meta.schemaVersion) nor \
                  `ocm.software/v3alpha1` (apiVersion)";
    for (pointer, bad, expected) in [
        ("/meta", json!(null), schema),
        ("/meta/schemaVersion", json!("v1"), schema),
        (
            "/component/name",
            json!(null),
            "the component descriptor has no valid `component.name`: a string that is not empty is required there",
        ),
        (
            "/component/version",
            json!(1.5),
            "the component descriptor has no valid `component.version`: a string that is not empty is required there",
        ),
        (
            "/component/repositoryContexts",
            json!([]),
            "the component descriptor has no repository context: publish the module with OCM's tools",
        ),
        (
            "/component/repositoryContexts/1/type",
            json!("CommonTransportFormat"),
            "repository context type `CommonTransportFormat` is not supported: use `OCIRegistry`",
        ),
        (
            "/component/repositoryContexts/1/componentNameMapping",
            json!("sha256-digest"),
            "component name mapping `sha256-digest` is not supported: use `urlPath`",
        ),
        (
            "/component/resources",
            json!({}),
            "the component descriptor has no valid `component.resources`: a list is required there",
        ),
        (
            "/component/resources",
            json!([]),
            "the component descriptor has no resource `raw-manifest`, which contains the objects of the module",
        ),
        (
            "/component/resources/0/name",
            json!("raw-manifest"),
            "resource `raw-manifest` has access type `ociArtifact`: use `localBlob`",
        ),
        (
            "/component/resources/2/name",
            json!("raw-manifest"),
            "the component descriptor has more than one resource `raw-manifest`",
        ),
        (
            "/component/resources/0/access/imageReference",
            json!(""),
            "the component descriptor has no valid `component.resources[0].access.imageReference`: a string that is \
             not empty is required there",
        ),
        (
            "/component/resources/1/access/localReference",
            json!("1.0.5"),
            "`component.resources[1].access.localReference` of the component descriptor is not a digest: use `sha256:` \
             and 64 hexadecimal digits in lower case",
        ),
        (
            "/component/resources/1/digest/hashAlgorithm",
            json!("SHA-512"),
            "resource `raw-manifest` has a digest with the algorithm `SHA-512`, which is not supported: use `SHA-256`",
        ),
        (
            "/component/resources/1/digest/value",
            json!("abc"),
            "resource `raw-manifest` has the digest sha256:abc, but refers to the blob \
             sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
        ),
    ] {
        let mut value = v2();
        *value.pointer_mut(pointer).unwrap() = bad;
        check(&value, expected);
    }
}

#[test]
fn a_digest_of_another_normalisation_is_not_that_of_the_blob() {
    let mut value = v2();
    value["component"]["resources"][1]["digest"] =
        json!({"hashAlgorithm": "SHA-256", "normalisationAlgorithm": "ociArtifactDigest/v1", "value": "abc"});
    assert_eq!(read(value.to_string().as_bytes(), &component()).unwrap(), module());
}

#[test]
fn what_is_no_descriptor_at_all_is_refused() {
    for (text, expected) in [
        ("", "the component descriptor has 0 documents instead of one"),
        ("a: 1\n---\nb: 1\n", "the component descriptor has 2 documents instead of one"),
        ("[]", "failed to decode component descriptor: its schema"),
        ("a: [", "the component descriptor is neither valid YAML nor JSON: line "),
        ("\u{feff}just text", "failed to decode component descriptor: its schema"),
    ] {
        let error = read(text.as_bytes(), &component()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let error = read(&[0xff, 0xfe], &component()).unwrap_err().to_string();
    assert!(error.starts_with("the component descriptor is neither valid YAML nor JSON: line 1"), "{error}");
    let error = read(&vec![b' '; DESCRIPTOR_BYTES_MAX + 1], &component()).unwrap_err();
    assert_eq!(error.to_string(), "the component descriptor has more than 100 KiB");
}

#[test]
fn no_bytes_break_the_reader() {
    for text in [v2().to_string(), serde_yaml::to_string(&v3()).unwrap()] {
        let mut bytes = text.into_bytes();
        for index in 0..bytes.len() {
            let _ = read(&bytes[..index], &component());
            let former = bytes[index];
            for other in [0, b'"', b'{', b'-', b':', b'&', 0xff, former ^ 0x20] {
                bytes[index] = other;
                if let Ok(found) = read(&bytes, &component()) {
                    assert_eq!(found.layer.digest, module().layer.digest, "both digests agree");
                }
            }
            bytes[index] = former;
        }
    }
}
