//! Every code of a diagnostic is documented, and nothing is documented that does not exist.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn every_code_is_documented_and_exists() {
    let documented: BTreeSet<String> = fs::read_to_string(Path::new(ROOT).join("docs/diagnostics.md"))
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(code, _)| code.to_owned())
        .collect();
    let sources: String = ["src", "crates"].map(|folder| sources(&Path::new(ROOT).join(folder))).concat();
    let given = [r#"Diagnostic::(?:error|warning)\(\s*"([a-z0-9-]+)""#, r#"const CODE[A-Z_]*: &str = "([a-z0-9-]+)""#];
    let lists = ["crates/core/src/definition/code.rs", "crates/core/src/intake/code.rs"];
    let listed: String = lists.map(|list| fs::read_to_string(Path::new(ROOT).join(list)).unwrap()).concat();
    let mut found = codes(r#"pub const [A-Z0-9_]+: &str = "([a-z0-9-]+)""#, &listed);
    found.extend(given.iter().flat_map(|pattern| codes(pattern, &sources)));
    let missing: Vec<&String> = found.difference(&documented).collect();
    assert!(missing.is_empty(), "not in docs/diagnostics.md: {missing:?}");
    let unknown: Vec<&String> = documented.iter().filter(|code| !sources.contains(&format!("\"{code}\""))).collect();
    assert!(unknown.is_empty(), "documented, but no code: {unknown:?}");
}

fn codes(pattern: &str, text: &str) -> BTreeSet<String> {
    regex::Regex::new(pattern).unwrap().captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// All sources without tests.
fn sources(folder: &Path) -> String {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| match () {
        () if path.is_dir() => sources(&path),
        () if path.ends_with("tests.rs") => String::new(),
        () => fs::read_to_string(path).unwrap(),
    };
    paths.into_iter().map(read).collect()
}
