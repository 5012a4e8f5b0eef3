//! What the upstream systems do, as facts about us: each file one part of their behaviour.
//!
//! `conformance/README.md` names the tests of each row.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

mod blocking;
mod catalog;
mod crds;
mod inject;
mod kymas;
mod land;
mod maintenance;
mod mandatory;
mod metrics;
mod modules;
pub(crate) mod oci;
mod readiness;
mod removal;
mod take_over;
mod texts;

/// The rows of the tables: Lifecycle Manager's tests.
fn rows() -> BTreeSet<String> {
    let numbered = |letter: char, last: u8| (1..=last).map(move |number| format!("{letter}{number:02}"));
    numbered('E', 40).chain(numbered('I', 27)).collect()
}

#[test]
fn each_row_has_a_test_that_is_named_after_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let table = read_table(&fs::read_to_string(folder.join("conformance/README.md")).unwrap());
    assert_eq!(table.keys().cloned().collect::<BTreeSet<_>>(), rows(), "the rows of the table");
    let mut problems = Vec::new();
    for (row, tests) in &table {
        if !tests.iter().any(|(_, name)| rows_of(name).contains(row)) {
            problems.push(format!("{row}: no test has its name"));
        }
        for (file, name) in tests {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            if !is_test(&text, name) {
                problems.push(format!("{row}: {file} has no test {name}, or none on real servers"));
            }
        }
    }
    for (file, name) in named(&folder, &folder) {
        for row in rows_of(&name) {
            if !table.get(&row).is_some_and(|tests| tests.contains(&(file.clone(), name.clone()))) {
                problems.push(format!("{file}: {name} is not in the table at {row}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Files and names of the tests of each row.
fn read_table(text: &str) -> BTreeMap<String, Vec<(String, String)>> {
    let mut table = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| E") || line.starts_with("| I")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [row, _, tests] = cells[..] else { panic!("three cells: {line}") };
        let (mut file, mut found) = (String::new(), Vec::new());
        for quoted in tests.split('`').skip(1).step_by(2) {
            if quoted.ends_with(".rs") {
                quoted.clone_into(&mut file);
            } else {
                found.push((file.clone(), quoted.to_owned()));
            }
        }
        assert!(table.insert(row.to_owned(), found).is_none(), "{row} is there twice");
    }
    table
}

/// The rows in the name of a test: E17 and E24 of `e17_e24_a_new_version`.
fn rows_of(name: &str) -> Vec<String> {
    let is_row = |word: &&str| {
        let (letter, number) = word.split_at_checked(1).unwrap_or_default();
        ["e", "i"].contains(&letter) && number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.split('_').take_while(is_row).map(str::to_uppercase).collect()
}

/// Whether a function of this name is run: it has an attribute, or a list of scenarios has it among those on real
/// servers.
fn is_test(text: &str, name: &str) -> bool {
    let Some((before, _)) = text.split_once(&format!("fn {name}()")) else { return false };
    let attribute = before.trim_end_matches("async ").lines().next_back().unwrap_or_default();
    let has_attribute = attribute == "#[test]" || attribute.starts_with("#[tokio::test");
    let real = text.split_once("on real servers:").and_then(|(_, after)| after.split_once('}'));
    has_attribute || real.is_some_and(|(list, _)| list.split(',').any(|listed| listed.trim() == name))
}

/// The functions whose names begin with a row, with their files.
fn named(root: &Path, folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(named(root, &path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(root).unwrap().display().to_string();
            let text = fs::read_to_string(&path).unwrap();
            let names = text.lines().filter_map(|line| line.trim().split_once("fn ")?.1.split_once('('));
            let names = names.map(|(name, _)| name).filter(|name| !rows_of(name).is_empty());
            found.extend(names.map(|name| (file.clone(), name.to_owned())));
        }
    }
    found
}
