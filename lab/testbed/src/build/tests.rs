use super::*;

#[test]
fn versions_compare_by_number() {
    for (version, wanted, enough) in [
        ("1.26.8", "1.26.0", true),
        ("1.26.0", "1.26.0", true),
        ("1.27rc1", "1.26.0", true),
        ("1.9.7", "1.26.0", false),
        ("1.25.12", "1.26.0", false),
        ("2.0", "1.26.0", true),
    ] {
        assert_eq!(is_enough(version, wanted), enough, "{version} against {wanted}");
    }
}

#[tokio::test]
async fn a_step_that_says_nothing_for_long_fails_and_one_that_goes_on_does_not() {
    let run = async |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).kill_on_drop(true);
        run_within(Duration::from_secs(2), command, "building it", &|_| {}).await
    };
    run("for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.5; done").await.unwrap();
    let error = run("echo one >&2; sleep 60").await.unwrap_err();
    assert!(error.to_string().starts_with("building it printed nothing for 0 min: check that the Go module proxy"));
}

#[test]
fn patterns_have_one_star() {
    assert!(matches("pod-*.yaml", "pod-ready.yaml"));
    assert!(!matches("pod-*.yaml", "node-ready.yaml"));
    assert!(!matches("pod-*.yaml", "pod.yaml"));
    assert!(matches("a.yaml", "a.yaml"));
}

/// The table contains every file of the module's folder: add new files to it.
#[test]
fn every_file_of_the_module_is_embedded() {
    fn files(folder: &Path, base: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, base, found);
            } else {
                found.push(path.strip_prefix(base).unwrap().display().to_string());
            }
        }
    }
    let base = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/controlplane"));
    let mut found = Vec::new();
    files(base, base, &mut found);
    found.sort();
    let mut embedded: Vec<&str> = MODULE_FILES.iter().map(|(name, _)| *name).collect();
    embedded.sort_unstable();
    assert_eq!(found, embedded);
}

#[test]
fn the_module_says_its_go_version() {
    assert!(is_enough(&wanted_version(), "1.26"));
}
