//! `docs/troubleshooting.md` quotes messages as the code has them, and `docs/states.md` has every condition.

use std::{fs, path::Path};

/// What the code says, with strings that continue on the next line joined.
fn code(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            code(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let file = fs::read_to_string(&path).expect("a text");
            let mut parts = file.split("\\\n");
            text.push_str(parts.next().unwrap_or_default());
            parts.for_each(|part| text.push_str(part.trim_start()));
        }
    }
}

/// The parts of the messages in the first cells of the tables: `…` parts them.
fn quoted(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")).filter_map(|line| line.split(" | ").next());
    let spans = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let messages =
        spans.filter(|span| span.contains(' ') && !["tidegate ", "kubectl "].iter().any(|call| span.starts_with(call)));
    messages.flat_map(|message| message.split('…')).filter(|part| part.contains(|c: char| c.is_alphabetic())).collect()
}

#[test]
fn messages_in_troubleshooting_are_those_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/troubleshooting.md")).expect("a page");
    let mut text = String::new();
    ["src", "crates"].iter().for_each(|folder| code(&root.join(folder), &mut text));
    let quoted = quoted(&page);
    assert!(40 < quoted.len(), "{}", quoted.len());
    let unknown: Vec<&&str> = quoted.iter().filter(|part| !text.contains(part.trim())).collect();
    assert!(unknown.is_empty(), "no message in the code has {unknown:#?}");
    assert_eq!(self::quoted("| `a … b c` in `/x` | `d e` |\n| `tidegate status` | x |\n"), ["a ", " b c"]);
}

/// `docs/states.md` has a row for each condition of a Kyma, Manifest or Watcher, sorted.
#[test]
fn each_condition_of_a_kyma_a_manifest_or_a_watcher_has_a_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = fs::read_to_string(root.join("crates/core/src/conditions.rs")).expect("the conditions");
    let of_us = code.split('"').skip(1).step_by(2).filter(|text| text.starts_with("tidegate.dev/"));
    let mut known: Vec<&str> = of_us.collect();
    // Lifecycle Manager's: `Type::Modules => "Modules",` in `as_str` of each kind.
    for part in code.split("pub fn as_str(self) -> &'static str {").skip(1) {
        let (names, _) = part.split_once("pub fn").unwrap_or((part, ""));
        let names = names.lines().filter(|line| line.contains("Type::"));
        known.extend(names.filter_map(|line| line.split_once(" => \"")?.1.strip_suffix("\",")));
    }
    known.sort_unstable();
    let page = fs::read_to_string(root.join("docs/states.md")).expect("a page");
    let (table, _) = page.split_once("## States").expect("two tables");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: Vec<&str> = rows.collect();
    assert!(20 < known.len(), "{known:?}");
    assert_eq!(documented, known);
}
