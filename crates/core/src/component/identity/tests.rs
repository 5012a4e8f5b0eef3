use super::*;

#[test]
fn a_component_is_a_name_and_a_version() {
    let name = "kyma-project.io/module/keda";
    let long = format!("kyma-project.io/{}", "a".repeat(250));
    let no_name = "invalid component name: value not provided";
    let bad_name = "invalid component name: use a domain and a path, for example kyma-project.io/module/keda";
    let bad_version = "invalid component version: use a semantic version, for example 1.2.0";
    for (name, version, expected) in [
        (name, "1.2.0", Ok("kyma-project.io/module/keda:1.2.0")),
        (name, "1.2.0-rc.1+build.5", Ok("kyma-project.io/module/keda:1.2.0-rc.1+build.5")),
        ("", "1.2.0", Err(no_name)),
        (name, "", Err("invalid component version: value not provided")),
        ("keda", "1.2.0", Err(bad_name)),
        ("kyma-project.io", "1.2.0", Err(bad_name)),
        ("kyma-project.io/../keda", "1.2.0", Err(bad_name)),
        ("kyma-project.io/module/keda?a=b", "1.2.0", Err(bad_name)),
        ("Kyma-project.io/module/keda", "1.2.0", Err(bad_name)),
        ("kyma-project.io/module/keda\n", "1.2.0", Err(bad_name)),
        (&long, "1.2.0", Err("invalid component name: it has more than 255 characters")),
        (name, "latest", Err(bad_version)),
        (name, "1.2", Err(bad_version)),
        (name, "1.2.0/../../x", Err(bad_version)),
    ] {
        let found = Component::new(name, version).map(|found| found.to_string()).map_err(|error| error.to_string());
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{name}:{version}");
    }
}

#[test]
fn a_version_is_a_tag_without_a_plus() {
    for (version, tag) in [
        ("1.2.0", "1.2.0"),
        ("1.2.0-rc.1", "1.2.0-rc.1"),
        ("1.2.0+build.5", "1.2.0.build-build.5"),
        ("1.2.0-rc.1+5", "1.2.0-rc.1.build-5"),
    ] {
        assert_eq!(version.parse::<ComponentVersion>().unwrap().tag(), tag);
    }
    // The tag is longer than the version.
    let version = format!("1.2.0+{}", "a".repeat(120));
    let error = version.parse::<ComponentVersion>().unwrap_err();
    assert_eq!(error.to_string(), "invalid component version: it has more than 128 characters");
}

#[test]
fn a_component_s_repository_is_its_name_below_a_folder() {
    let name: ComponentName = "kyma-project.io/module/keda".parse().unwrap();
    assert_eq!(repository_path(&name), "component-descriptors/kyma-project.io/module/keda");
}

#[test]
fn a_digest_has_one_spelling() {
    let text = format!("sha256:{}", "0a".repeat(32));
    assert_eq!(text.parse::<BlobDigest>().unwrap().to_string(), text);
    let of_nothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(BlobDigest::of(b"").to_string(), of_nothing);
    for bad in [
        String::new(),
        "1.2.3".to_owned(),
        "0a".repeat(32),
        format!("sha256:{}", "0A".repeat(32)),
        format!("sha256:{}", "0a".repeat(31)),
        format!("sha256:{}", "0a".repeat(33)),
        format!("sha512:{}", "0a".repeat(64)),
        format!("sha256:{}é", "0a".repeat(31)),
        format!("sha256:../{}", "a".repeat(61)),
    ] {
        assert_eq!(bad.parse::<BlobDigest>(), Err(ParseDigestError), "{bad}");
    }
}
