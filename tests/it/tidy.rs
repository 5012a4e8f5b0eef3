//! What the crates' borders cannot say: the core does not read its environment, and small programs stay small.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The modules of `std` that the core must not name, in code outside its tests. `crates/core/clippy.toml` forbids
/// clocks and locks.
const FORBIDDEN: &[&str] = &["env", "fs", "net", "process", "thread"];

/// A package, and the crates that its build must not bring along.
const UNWANTED: &[(&str, &[&str])] = &[
    ("tidegate-core", &["tokio", "hyper", "kube-client", "git2", "rustls", "tracing"]),
    ("tidegate-diff", &["tokio", "hyper", "kube-client", "git2", "rustls"]),
    (
        "tidegate-signature",
        &["tokio", "hyper", "kube-client", "git2", "rustls", "openssl-sys", "aws-lc-rs", "bzip2-sys"],
    ),
    ("tidegate-git", &["kube-client", "openssl-sys", "libssh2-sys", "aws-lc-rs"]),
    ("tidegate-cluster", &["git2", "openssl-sys"]),
    ("tidegate-oci", &["git2", "kube-client", "openssl-sys", "aws-lc-rs", "reqwest"]),
    ("tidegate-events", &["tidegate-core", "kube", "k8s-openapi", "git2", "minijinja"]),
    (
        "tidegate-agent",
        &[
            "tidegate-core",
            "git2",
            "ignore",
            "ureq",
            "minijinja",
            "kube",
            "k8s-openapi",
            "schemars",
            "cel",
            "serde-saphyr",
            "serde_yaml",
            "similar",
            "rcgen",
            "tempfile",
            "reqwest",
            "openssl-sys",
            "aws-lc-rs",
        ],
    ),
    ("kube-sim", &["tidegate", "tidegate-cluster", "tidegate-process", "git2"]),
    ("tidegate-bench", &["tidegate", "tidegate-agent"]),
];

/// Columns of a comment. `max_width` in `rustfmt.toml` is the same for code.
const COMMENT_MAX: usize = 120;
/// Columns of the prose in documents.
const DOCUMENT_MAX: usize = 100;

#[test]
fn the_core_reads_no_clock_environment_or_file() {
    let mut problems = Vec::new();
    for file in rust_files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/core/src"))) {
        if file.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code: Vec<&str> = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).collect();
        for module in forbidden(&code.join("\n")) {
            problems.push(format!("{}: the core must not use `std::{module}`", file.display()));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let cases = [
        ("let a = std::fs::read(b);", vec!["fs"]),
        ("use std::{\n    collections::BTreeMap,\n    env, fs,\n};", vec!["env", "fs"]),
        ("use std::{fmt, net::IpAddr};", vec!["net"]),
        ("use std::{collections::BTreeMap, fmt};\nlet threads = 1;", vec![]),
    ];
    for (code, expected) in cases {
        assert_eq!(forbidden(code), expected, "{code}");
    }
}

/// The modules of [`FORBIDDEN`] that code names, by a path or in a list of imports.
fn forbidden(code: &str) -> Vec<&'static str> {
    let imports = regex::Regex::new(r"(?s)use std::\{.*?;").unwrap();
    let lists: Vec<&str> = imports.find_iter(code).map(|import| import.as_str()).collect();
    let is_named = |module: &&&str| {
        let word = regex::Regex::new(&format!(r"\b{module}\b")).unwrap();
        code.contains(&format!("std::{module}")) || lists.iter().any(|list| word.is_match(list))
    };
    FORBIDDEN.iter().filter(is_named).copied().collect()
}

#[test]
fn no_build_brings_along_what_its_layer_must_not_have() {
    for (package, unwanted) in UNWANTED {
        let crates = tree(&["-p", package]);
        assert!(crates.contains(*package), "{package}: {crates:?}");
        let found: Vec<&&str> = unwanted.iter().filter(|name| crates.contains(**name)).collect();
        assert!(found.is_empty(), "{package} brings along {found:?}");
    }
}

/// Its tests do not either: `cargo tree -p tidegate-core` shows them as well.
#[test]
fn the_core_and_its_tests_wait_for_nothing() {
    let crates = tree_with("all", &["-p", "tidegate-core"]);
    assert!(crates.contains("proptest"), "{crates:?}");
    for name in ["tokio", "hyper", "kube-client"] {
        assert!(!crates.contains(name), "tidegate-core brings along {name}");
    }
}

#[test]
fn the_product_is_built_without_the_laboratory() {
    let product = tree(&["-p", "tidegate", "--no-default-features"]);
    for name in ["kube-sim", "tidegate-testbed", "tidegate-bench"] {
        assert!(!product.contains(name), "{name} is in the product");
        assert!(tree(&["-p", "tidegate"]).contains(name), "{name} is not in the default build");
    }
}

/// A lock of the standard library is poisoned by a panic, and a pass that panics is tried again: see
/// `tidegate_process::lock`. The simulator of API servers is no part of Tidegate, and knows nothing of its crates.
#[test]
fn no_lock_is_poisoned_by_a_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let imports = regex::Regex::new(r"(?s)use std::.*?;").unwrap();
    let poisoned = regex::Regex::new(r"\b(?:Mutex|RwLock|PoisonError)\b").unwrap();
    let in_place = regex::Regex::new(r"std::sync::(?:Mutex|RwLock|PoisonError)\b").unwrap();
    let is_free = |file: &Path| {
        let file = file.strip_prefix(root).unwrap();
        let is_test = file.components().any(|part| part.as_os_str() == "tests") || file.ends_with("tests.rs");
        is_test || file == Path::new("crates/process/src/lock.rs") || file.starts_with("lab/kube-sim")
    };
    let mut problems = Vec::new();
    for file in ["src", "crates", "lab"].iter().flat_map(|folder| rust_files(&root.join(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        let is_used =
            imports.find_iter(&text).any(|import| poisoned.is_match(import.as_str())) || in_place.is_match(&text);
        if is_used && !is_free(&file) {
            problems.push(format!("{}: use the locks of `tidegate_process::lock`", file.display()));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// rustfmt wraps no comments. Other lines are not checked: a string may hold data that cannot be wrapped.
#[test]
fn comments_fit_into_120_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "crates", "lab", "tests", "benches", "fuzz"];
    let files = folders.iter().flat_map(|folder| rust_files(&root.join(folder)));
    // Build output of the fuzz targets.
    let files = files.filter(|file| !file.starts_with(root.join("fuzz/target")));
    let long: Vec<String> = files.flat_map(|file| long_lines(&file, COMMENT_MAX, "//")).collect();
    assert!(long.is_empty(), "wrap these comments at {COMMENT_MAX} columns:\n{}", long.join("\n"));
}

#[test]
fn documents_fit_into_100_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let documents = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let beside = ["CHANGELOG.md", "README.md", "SECURITY.md", "CONTRIBUTING.md", "deploy/README.md"];
    let documents = documents.chain(beside.map(|name| root.join(name)));
    let long: Vec<String> = documents.flat_map(|file| long_lines(&file, DOCUMENT_MAX, "")).collect();
    assert!(long.is_empty(), "wrap these lines at {DOCUMENT_MAX} columns:\n{}", long.join("\n"));
}

/// Documents name files by their paths from the root; a file that moves takes its mentions along.
#[test]
fn files_that_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pattern =
        regex::Regex::new(r"`((?:src|crates|lab|tests|templates|deploy|examples|docs|benches)/[\w/.-]+)`").unwrap();
    let mut documents = vec![root.join("README.md"), root.join("CHANGELOG.md"), root.join("deploy/README.md")];
    documents.extend(fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let mut missing = Vec::new();
    for document in documents.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(document).unwrap();
        let named = pattern.captures_iter(&text).map(|found| found[1].to_owned());
        missing.extend(
            named.filter(|path| !root.join(path).exists()).map(|path| format!("{}: {path}", document.display())),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Files and folders of this repository in commands.
#[test]
fn files_that_commands_in_documents_use_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named =
        regex::Regex::new(r"(?:^|[\s=])(?:\./)?((?:deploy|examples|templates|fuzz)/[\w/.-]*|\.ci/[\w/.-]+)").unwrap();
    let (mut missing, mut count) = (Vec::new(), 0);
    for page in documents() {
        let text = fs::read_to_string(&page).unwrap();
        for code in text.split("\n```").skip(1).step_by(2).filter(|code| code.starts_with("sh")) {
            for found in named.captures_iter(code) {
                count += 1;
                let before = code[..found.get(1).expect("a path").start()].trim_end();
                // Written by the command; and a Deployment, as kubectl calls it.
                if before.ends_with('>') || before.ends_with("port-forward") {
                    continue;
                }
                if !root.join(&found[1]).exists() {
                    missing.push(format!("{}: {}", page.display(), &found[1]));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(10 < count, "{count} paths");
}

/// README and all pages.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let others = [
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "CODE_OF_CONDUCT.md",
        "deploy/README.md",
        "deploy/chart/README.md",
        "tests/it/conformance/README.md",
    ];
    pages.chain(others.map(|name| root.join(name))).collect()
}

#[test]
fn links_of_documents_lead_to_a_file_and_a_heading() {
    let link = regex::Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut broken = Vec::new();
    for page in documents() {
        let text = fs::read_to_string(&page).unwrap();
        for found in link.captures_iter(&without_code(&text)) {
            let target = found[1].to_owned();
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_there = match (heading, fs::read_to_string(&file)) {
                ("", _) => file.exists(),
                (heading, Ok(text)) => headings(&text).contains(heading),
                (_, Err(_)) => false,
            };
            if !is_there {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A text without its code.
fn without_code(text: &str) -> String {
    let prose: String = text.split("\n```").step_by(2).collect();
    prose.split('`').step_by(2).collect()
}

/// What links call the headings of a page: in lower case, without punctuation, with hyphens for spaces.
fn headings(text: &str) -> BTreeSet<String> {
    let prose: String = text.split("\n```").step_by(2).collect();
    let is_heading = |line: &&str| line.starts_with('#') && line.trim_start_matches('#').starts_with(' ');
    let lines = prose.lines().filter(is_heading).map(|line| line.trim_start_matches('#').trim_start());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    lines.map(|line| line.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

/// Names with six words and more in documents are those of tests.
#[test]
fn tests_that_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = regex::Regex::new(r"`(?:\w+::)*([a-z][a-z0-9]*(?:_[a-z0-9]+){5,})`").unwrap();
    let folders = ["src", "crates", "lab", "tests"].iter().flat_map(|folder| rust_files(&root.join(folder)));
    let code: String = folders.map(|file| fs::read_to_string(file).unwrap()).collect();
    let words: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut missing = Vec::new();
    for page in documents() {
        let text = fs::read_to_string(&page).unwrap();
        let names = name.captures_iter(&text).map(|found| found[1].to_owned());
        let unknown = names.filter(|name| !words.contains(name.as_str()));
        missing.extend(unknown.map(|name| format!("{}: {name}", page.display())));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The features of kcp-operator, and its defects.
#[test]
fn each_feature_of_kcp_operator_has_a_row_and_each_defect_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/kcp.md")).expect("a document");
    let code: String = ["crates", "src", "tests/it"]
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
        .map(|file| fs::read_to_string(file).expect("a file"))
        .collect();
    let tests = names_of_tests(&code);
    let rows: Vec<u32> = page
        .lines()
        .filter_map(|line| {
            let (number, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
            let number = number.parse().ok()?;
            // A refusal is shown by what a command prints.
            let is_output = |name: &str| name.ends_with(".txt") && root.join(name).exists();
            let mut names = rest.split('`').skip(1).step_by(2);
            assert!(names.any(|name| tests.contains(name) || is_output(name)), "no test: {line}");
            Some(number)
        })
        .collect();
    assert_eq!(rows, (1..=82).collect::<Vec<u32>>());
    let without: Vec<String> = (1..=32)
        .map(|number| format!("d{number:02}_"))
        .filter(|defect| {
            let beside = format!("_and_{defect}");
            !tests.iter().any(|test| test.starts_with(defect.as_str()) || test.contains(&beside))
        })
        .collect();
    assert_eq!(without, [""; 0]);
}

/// The functions with the attribute of a test, and those that a list of scenarios makes tests of.
fn names_of_tests(code: &str) -> BTreeSet<&str> {
    let attribute =
        regex::Regex::new(r"#\[(?:tokio::)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*|//[^\n]*\n\s*)*(?:async )?fn (\w+)\(");
    let list = regex::Regex::new(r"\bscenarios!\s*[({]([^)}]*)[)}]");
    let word = regex::Regex::new(r"\b\w+_\w+\b");
    let (attribute, list, word) = (attribute.unwrap(), list.unwrap(), word.unwrap());
    let capture = |found: regex::Captures<'_>| found.get(1).expect("a group").range();
    let alone = attribute.captures_iter(code).map(|found| &code[capture(found)]);
    let lists = list.captures_iter(code).map(|found| &code[capture(found)]);
    let listed = lists.flat_map(|names| word.find_iter(names).map(|found| found.as_str()));
    alone.chain(listed).collect()
}

#[test]
fn only_functions_that_run_as_tests_are_taken_for_tests() {
    let code = "#[test]\nfn one() {}\n#[tokio::test(flavor = \"multi_thread\")]\n/// Why.\n\
                #[allow(a, reason = \"b\")]\nasync fn two() {}\nfn a_helper() {}\n\
                scenarios! {\n    a_scenario,\n    ; on real servers: a_row\n}\n\
                async fn a_scenario() {}\nscenarios!(one_more);\n#[cfg(test)]\nfn not_one() {}\n";
    assert_eq!(names_of_tests(code), BTreeSet::from(["a_row", "a_scenario", "one", "one_more", "two"]));
}

/// `path:line` of each longer line that begins with `prefix`. Tables, code blocks and links cannot be wrapped.
fn long_lines(file: &Path, columns: usize, prefix: &str) -> Vec<String> {
    let mut in_code = false;
    let mut long = Vec::new();
    for (index, line) in fs::read_to_string(file).unwrap().lines().enumerate() {
        let Some(text) = line.trim_start().strip_prefix(prefix) else {
            in_code = false;
            continue;
        };
        let prose = text.trim_start_matches(['/', '!']).trim_start();
        in_code ^= prose.starts_with("```");
        let is_fixed = in_code || prose.starts_with('|') || prose.contains("](") || prose.contains("://");
        if columns < line.chars().count() && !is_fixed {
            long.push(format!("{}:{}", file.display(), index + 1));
        }
    }
    long
}

/// Names of the crates that a build with these flags links, without what only runs while building.
fn tree(flags: &[&str]) -> BTreeSet<String> {
    tree_with("normal,no-proc-macro", flags)
}

fn tree_with(edges: &str, flags: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--frozen", "--edges", edges, "--prefix", "none", "--format", "{p}"])
        .args(flags)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
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
