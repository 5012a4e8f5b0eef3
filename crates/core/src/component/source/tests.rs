use super::*;

fn value() -> Value {
    json!({
        "repo": "registry.example.com/modules",
        "name": "kyma-project.io/module/keda",
        "ref": format!("sha256:{}", "0a".repeat(32)),
        "type": "oci-dir",
    })
}

#[test]
fn a_source_is_written_as_it_is_read() {
    for kind in ["oci-ref", "oci-dir"] {
        let mut value = value();
        value["type"] = kind.into();
        let source = Source::try_from(&value).unwrap();
        assert_eq!(source.to_value(), value);
        let path = source.registry().unwrap().repository(&source.repository_path());
        assert_eq!(path, "modules/component-descriptors/kyma-project.io/module/keda");
    }
}

#[test]
fn a_malformed_source_names_its_field() {
    for (field, bad, expected) in [
        ("type", json!("git"), "the type of the source is neither `oci-ref` nor `oci-dir`"),
        ("type", json!(null), "the type of the source is neither `oci-ref` nor `oci-dir`"),
        ("repo", json!(""), "`repo` of the OCI source is missing or malformed"),
        ("repo", json!(7), "`repo` of the OCI source is missing or malformed"),
        ("name", json!("../x"), "`name` of the OCI source is missing or malformed"),
        ("ref", json!("1.2.3"), "`ref` of the OCI source is missing or malformed"),
    ] {
        let mut value = value();
        value[field] = bad;
        assert_eq!(Source::try_from(&value).unwrap_err().to_string(), expected, "{field}");
    }
}
