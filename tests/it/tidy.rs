//! The layers: a module uses only what stands above it, and only the crates named for it.
//!
//! To add an edge, change the table in the same commit and say why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Module, its layer, and the outside crates that it may name (`std` and `thiserror` may be named anywhere).
/// A module may use modules of layers with a smaller number, and modules of its own layer unless the layer is
/// [`ADAPTERS`]; core modules of one layer stand in this table's order and use only those before them.
const MODULES: &[(&str, u8, &[&str])] = &[
    // vocabulary: types, checked strings, ids
    ("api", 0, &["k8s_openapi", "kube", "schemars", "serde", "serde_json"]),
    ("name", 0, &["serde"]),
    ("revision", 0, &["serde"]),
    ("diagnostic", 0, &["serde"]),
    ("period", 0, &["jiff", "serde"]),
    ("object", 0, &["serde", "serde_json", "sha2"]),
    ("yaml", 0, &["granit_parser", "serde", "serde_json", "serde_saphyr", "serde_yaml"]),
    // core: pure functions of values
    // `cel`, `regex` and `semver`: CRD rules are checked before anything is applied.
    ("schema", 1, &["cel", "k8s_openapi", "regex", "serde", "serde_json"]),
    // `ignore`: the matcher of gitignore's syntax, used on paths as values.
    ("snapshot", 1, &["ignore", "serde"]),
    // `ignore`: `spec.ignore` of a GitSource, asked of paths as values.
    ("definition", 1, &["ignore", "k8s_openapi", "regex", "semver", "serde", "serde_json"]),
    ("landscape", 1, &["k8s_openapi", "serde", "serde_json"]),
    // `kube`: its label selectors, which are values.
    ("plan", 1, &["k8s_openapi", "kube", "semver", "serde", "serde_json"]),
    ("counterpart", 1, &["serde_json"]),
    ("template", 1, &["minijinja", "serde", "serde_json"]),
    // `base64`: a Secret's data is filled in after rendering.
    ("render", 1, &["base64", "k8s_openapi", "minijinja", "serde", "serde_json"]),
    ("inventory", 1, &["serde", "serde_json"]),
    ("changes", 1, &["serde", "serde_json"]),
    ("health", 1, &["k8s_openapi", "serde", "serde_json"]),
    ("conditions", 1, &["jiff", "k8s_openapi", "serde", "serde_json"]),
    ("retry", 1, &[]),
    ("status", 1, &["k8s_openapi", "serde_json"]),
    // `definition` says what git declares, `status` how conditions are kept.
    ("intake", 1, &["k8s_openapi", "serde_json"]),
    ("overview", 1, &["serde"]),
    // `base64`: values of Secrets are masked by their bytes, and scrubbed from texts in that form, too.
    ("diff", 1, &["base64", "cel", "regex", "schemars", "serde", "serde_json", "sha2", "similar"]),
    // ground
    // `clap`: an option is declared once, for flag and file alike.
    ("config", 2, &["clap", "serde", "serde_json"]),
    // `rustix`: the process that renders foreign templates bounds its own memory and computing.
    ("confine", 2, &["rustix", "serde_json"]),
    // `tokio`: in a simulation the time of day goes with its clock, and what blocks has threads of its pool.
    ("ambient", 2, &["jiff", "tokio"]),
    ("tls", 2, &["rustls"]),
    ("metrics", 2, &["prometheus_client"]),
    // `jiff` and `serde_json`: a record is JSON with its date.
    ("telemetry", 2, &["jiff", "serde_json", "tracing", "tracing_subscriber"]),
    // adapters: one outside thing each
    (
        "git",
        3,
        &[
            "base64",
            "git2",
            "ignore",
            "notify",
            // `openat`: a work tree is read without following a link in any component of a path.
            "rustix",
            "rustls",
            "serde",
            "serde_json",
            "tempfile",
            "tokio",
            "tracing",
            "ureq",
        ],
    ),
    (
        "cluster",
        3,
        &[
            "base64",
            "bytes",
            "futures",
            "http",
            "http_body_util",
            "hyper_util",
            "jiff",
            "k8s_openapi",
            "kube",
            "rustls",
            "serde",
            "serde_json",
            "tokio",
            "tower",
            "tracing",
        ],
    ),
    // a Kubernetes API in memory: between the adapters, which know nothing of it, and what starts it
    // `jiff`: times are values. `axum`: bodies alone. `hyper_util`, `rustls`, `tokio_rustls`, `x509_parser`: it serves
    // TLS, knows users by certificate, and calls webhooks over TLS with `hyper_rustls`. `regex`: patterns of definitions.
    // `base64`: texts of Secrets become their data. `tower`: faults are a layer around a service, and take time.
    (
        "sim",
        4,
        &[
            "axum",
            "base64",
            "bytes",
            "futures",
            "http",
            "http_body_util",
            "hyper_rustls",
            "hyper_util",
            "jiff",
            "k8s_openapi",
            "kube",
            "regex",
            "rustls",
            "serde_json",
            "tokio",
            "tokio_rustls",
            "tower",
            "x509_parser",
        ],
    ),
    // `base64`: PEM. `rustls`: its types of certificates and keys, which rcgen takes.
    ("pki", 3, &["base64", "k8s_openapi", "rcgen", "rustls", "serde_json", "x509_parser"]),
    // real servers for the demo, the benchmark and the tests
    // `git2`: it makes the repositories that the adapter `git` then fetches, and shares no code with it.
    (
        "testbed",
        4,
        &[
            "base64",
            "bytes",
            "futures",
            "git2",
            "http",
            "http_body_util",
            "hyper",
            "hyper_util",
            "k8s_openapi",
            "kube",
            "rcgen",
            "rustls",
            "serde",
            "serde_json",
            "tempfile",
            "tokio",
            "tokio_rustls",
            "tracing",
        ],
    ),
    // loop
    ("queue", 5, &["tokio"]),
    // `rustix`: how many connections there can be is how many files this process may open.
    // `jiff`: the moments in a certificate. `httpdate`: `Retry-After`.
    (
        "watch",
        5,
        &[
            "axum",
            "base64",
            "bytes",
            "futures",
            "http_body_util",
            "httpdate",
            "hyper",
            "hyper_util",
            "jiff",
            "prometheus_client",
            "rustix",
            "rustls",
            "serde",
            "serde_json",
            "sha2",
            "tokio",
            "tokio_rustls",
            "tokio_util",
            "tracing",
            "x509_parser",
        ],
    ),
    (
        "controller",
        6,
        &["base64", "bytes", "futures", "jiff", "k8s_openapi", "kube", "serde", "serde_json", "tokio", "tracing"],
    ),
    ("http", 6, &["axum", "serde", "serde_json", "tokio", "tower", "tracing"]),
    (
        "runtime",
        7,
        &["anyhow", "futures", "k8s_openapi", "kube", "serde", "serde_json", "tokio", "tokio_util", "tracing"],
    ),
    (
        "cli",
        8,
        &[
            "anstream",
            "anyhow",
            "base64",
            "bytes",
            "clap",
            "futures",
            "indicatif",
            "jiff",
            "k8s_openapi",
            "kube",
            "owo_colors",
            // `rustix`: a fleet of simulated runtimes needs more open files than a process may have at first.
            "rustix",
            // `rustls`, `tokio_rustls`: the senders of `sim listener` end TLS themselves.
            "rustls",
            "serde",
            "serde_json",
            "tempfile",
            "tokio",
            "tokio_rustls",
            "tracing",
        ],
    ),
];

/// Adapters never use each other.
const ADAPTERS: u8 = 3;
/// The core, whose order within the layer counts too.
const CORE: u8 = 1;

#[test]
fn modules_use_only_layers_above_them() {
    let modules: BTreeMap<&str, (usize, u8, &[&str])> =
        MODULES.iter().enumerate().map(|(order, (name, layer, crates))| (*name, (order, *layer, *crates))).collect();
    let mut problems = Vec::new();
    for file in rust_files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        let relative = file.strip_prefix(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
        let module =
            relative.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if module == "lib"
            || module == "main"
            || relative.ends_with("tests.rs")
            || relative.components().any(|part| part.as_os_str() == "tests")
        {
            continue;
        }
        let Some(&(order, layer, crates)) = modules.get(module.as_str()) else {
            problems.push(format!("src/{}: `{module}` has no row in the table", relative.display()));
            continue;
        };
        let text = fs::read_to_string(&file).unwrap();
        let (ours, outside) = names(&text);
        for used in ours.iter().filter(|used| **used != module) {
            let Some(&(used_order, used_layer, _)) = modules.get(used.as_str()) else { continue };
            let allowed = used_layer < layer
                || (used_layer == layer && layer != ADAPTERS && (layer != CORE || used_order < order));
            if !allowed {
                problems.push(format!("src/{}: `{module}` must not use `{used}`", relative.display()));
            }
        }
        for used in outside.iter().filter(|used| !crates.contains(&used.as_str())) {
            problems.push(format!("src/{}: `{module}` must not name the crate `{used}`", relative.display()));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_core_reads_no_clock_environment_or_file() {
    const FORBIDDEN: &[&str] = &[
        "std::fs",
        "std::env",
        "std::net",
        "std::time::Instant",
        "std::time::SystemTime",
        "SystemTime::now",
        "Instant::now",
        "Timestamp::now",
        "Zoned::now",
        "std::thread",
        "std::process",
    ];
    let mut problems = Vec::new();
    for (name, layer, _) in MODULES {
        if *layer > CORE {
            continue;
        }
        for file in rust_files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
            let relative = file.strip_prefix(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
            let of_module = relative.starts_with(name) || relative == Path::new(&format!("{name}.rs"));
            if !of_module || relative.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            for forbidden in FORBIDDEN.iter().filter(|forbidden| code(&text).any(|line| line.contains(**forbidden))) {
                problems.push(format!("src/{}: the core must not use `{forbidden}`", relative.display()));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Lines of code, without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"))
}

/// Our modules and outside crates that a file names in paths.
fn names(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut ours, mut outside) = (BTreeSet::new(), BTreeSet::new());
    let known: BTreeSet<String> = dependencies();
    let text: String = code(text).collect::<Vec<_>>().join("\n");
    // `crate::a::…` and `crate::{a::…, b}`
    for (position, _) in text.match_indices("crate::") {
        let rest = &text[position + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut word = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        ours.insert(first(&word));
                        word.clear();
                        continue;
                    }
                    _ => {}
                }
                word.push(c);
            }
            ours.insert(first(&word));
        } else {
            ours.insert(first(rest));
        }
    }
    for crate_name in known {
        let used = text.match_indices(&format!("{crate_name}::")).any(|(position, _)| {
            let before = text[..position].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
        });
        let imported = text.contains(&format!("use {crate_name};"));
        if used || imported {
            outside.insert(crate_name);
        }
    }
    (ours, outside)
}

fn first(path: &str) -> String {
    path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The crates of `[dependencies]`, as code names them.
fn dependencies() -> BTreeSet<String> {
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let start = manifest.find("[dependencies]").expect("Cargo.toml has dependencies");
    manifest[start..]
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .filter(|name| name != "thiserror" && name != "http")
        .collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
