//! The program of the runtime clusters is small: what its build brings along is looked at.

use std::{collections::BTreeSet, process::Command};

/// Crates that the agent has no business with, and what they would bring.
const UNWANTED: &[(&str, &str)] = &[
    ("git2", "git"),
    ("libgit2-sys", "git"),
    ("ignore", "git"),
    ("ureq", "git over HTTP"),
    ("minijinja", "templates"),
    ("kube", "a client for API servers: the agent talks to none"),
    ("kube-client", "a client for API servers: the agent talks to none"),
    ("k8s-openapi", "types of all Kubernetes objects"),
    ("schemars", "schemas"),
    ("cel", "CRD rules"),
    ("serde-saphyr", "YAML"),
    ("serde_yaml", "YAML"),
    ("similar", "comparisons"),
    ("rcgen", "making certificates"),
    ("axum", "a web framework"),
    ("tempfile", "temporary files"),
    ("oci-client", "OCI registries"),
    ("reqwest", "another HTTP client"),
    ("openssl-sys", "another TLS"),
    ("aws-lc-rs", "a second provider of cryptography"),
];
/// Crates in all, ours included: a number that is raised on purpose only.
const CRATES_MAX: usize = 85;

#[test]
fn the_agent_is_built_without_git_templates_oci_and_simulator() {
    let crates = tree(&["--no-default-features", "--features", "agent"]);
    assert!(crates.contains("tidegate") && crates.contains("rustls"), "{crates:?}");
    for (name, what) in UNWANTED {
        assert!(!crates.contains(*name), "{name} ({what}) has come into the agent's build");
    }
    assert!(crates.len() <= CRATES_MAX, "{} crates: {crates:?}", crates.len());
}

#[test]
fn the_daemon_has_the_agent_too() {
    let (all, agent) = (tree(&[]), tree(&["--no-default-features", "--features", "agent"]));
    assert_eq!(agent.difference(&all).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(all.contains("git2"));
}

#[test]
fn what_the_agent_needs_not_is_not_compiled_for_it() {
    const OF_THE_AGENT: [&str; 5] = ["period", "retry", "telemetry", "tls", "watch"];
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs")).unwrap();
    let mut before = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';')) {
            let expected = match name {
                "cli" => "#[cfg(feature = \"agent\")]",
                name if OF_THE_AGENT.contains(&name) => before,
                _ => "#[cfg(feature = \"daemon\")]",
            };
            assert_eq!(before, expected, "src/lib.rs: `{name}`");
        }
        before = line;
    }
}

/// Names of the crates that a build with these flags links, without what only runs while building.
fn tree(flags: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--frozen", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"])
        .args(flags)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}
