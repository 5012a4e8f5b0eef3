//! `docs/conditions.md` has every reason that a condition of a GitSource can have.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

/// Where the reasons of GitSources are.
const PLACES: &[&str] = &[
    "crates/git/src/error.rs",
    "crates/core/src/intake/status.rs",
    "crates/signature/src/refusal.rs",
    "src/source.rs",
    "src/source",
    "src/controller/dispatch.rs",
];

#[test]
fn each_reason_of_a_gitsource_has_a_row_and_each_row_a_reason() {
    let (documented, known) = (documented(), reasons());
    assert!(known.len() > 40, "the patterns of this test find too little: {known:?}");
    let missing: Vec<&String> = known.difference(&documented).collect();
    let outdated: Vec<&String> = documented.difference(&known).collect();
    assert!(missing.is_empty(), "docs/conditions.md has no row for {missing:?}");
    assert!(outdated.is_empty(), "no condition has these reasons of docs/conditions.md: {outdated:?}");
}

#[test]
fn each_reason_of_an_event_has_a_row_in_the_documentation() {
    let source = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let events = source("src/controller/events.rs");
    let (_, constants) = events.split_once("pub mod reason {").unwrap();
    let constants = constants.split("\n}\n").next().unwrap();
    let steps = source("src/runtime/remove/decide.rs");
    let (_, steps) = steps.split_once("fn reason(self) -> &'static str {").unwrap();
    let steps = steps.split("\n    }\n").next().unwrap();
    let word = Regex::new(r#""([A-Z][A-Za-z]+)""#).unwrap();
    let known: BTreeSet<&str> = [constants, steps]
        .into_iter()
        .flat_map(|text| word.captures_iter(text))
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    let docs = source("docs/events.md");
    let (docs, _) = docs.split_once("## Reasons of Lifecycle Manager that do not occur").unwrap();
    let row = Regex::new(r"(?m)^\| `([A-Za-z]+)` \|").unwrap();
    let documented: Vec<&str> = row.captures_iter(docs).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(documented.is_sorted(), "the rows are sorted");
    assert!(known.len() > 30, "{known:?}");
    assert_eq!(documented.into_iter().collect::<BTreeSet<_>>(), known);
}

/// The first cells of the table.
fn documented() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/conditions.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let mut names = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{row}: a row has four cells");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{row}: no cell is empty");
        names.push(cells[0].trim_matches('`').to_owned());
    }
    assert!(names.is_sorted(), "the rows are sorted by reason");
    let unique: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(unique.len(), names.len(), "a reason has one row");
    unique
}

/// What the code writes as a reason: what `reason` functions return, and what verdicts and conditions are made with.
fn reasons() -> BTreeSet<String> {
    let function = Regex::new(r"(?s)fn reason\(&self\) -> &'static str \{(.*?)\n    \}\n").unwrap();
    let word = Regex::new(r#""([A-Z][A-Za-z0-9]+)""#).unwrap();
    let made = [
        r#"Verdict::(?:no|yes)\(\s*"(\w+)""#,
        r#"\breason: "(\w+)""#,
        r#"Status::(?:True|False),\s*"(\w+)""#,
        r#"const (?:PANICKED|PRUNE_UNCONFIRMED|APPLY_FAILED|TERMINATING|SUSPENDED|HOOK_SECRET|SETTLED|CHANGED): &str = "(\w+)""#,
    ];
    let made = made.map(|pattern| Regex::new(pattern).unwrap());
    let mut found = BTreeSet::new();
    for file in PLACES.iter().flat_map(|place| files(&root().join(place))) {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for body in function.captures_iter(code) {
            found.extend(word.captures_iter(&body[1]).map(|captures| captures[1].to_owned()));
        }
        for pattern in &made {
            found.extend(pattern.captures_iter(code).map(|captures| captures[1].to_owned()));
        }
    }
    found
}

/// A file, or the files of a folder; none of them only for tests.
fn files(place: &Path) -> Vec<PathBuf> {
    let mut files = if place.is_dir() { super::tidy::rust_files(place) } else { vec![place.to_owned()] };
    files.retain(|file| !file.ends_with("tests.rs") && !file.ends_with("fixtures.rs"));
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
