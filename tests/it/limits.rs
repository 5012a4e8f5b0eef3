//! `docs/limits.md` names each limit in the code, with its value: each constant whose name ends in `_MAX`, and each
//! default whose name ends in `_max`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use regex::Regex;

/// Beginnings of comments that say of a constant that it is a limit.
const LIMIT_WORDS: [&str; 6] = ["Limit of", "Limit for", "Maximum ", "Longest ", "Largest ", "Most "];

/// A row of a table.
struct Row {
    /// A constant or an option.
    name: String,
    /// The file of a constant.
    file: Option<PathBuf>,
    default: String,
    line: String,
}

#[test]
fn each_limit_has_a_row_with_its_value() {
    let rows = rows();
    let constants = constants();
    let mut problems = Vec::new();
    let named: BTreeSet<(&Path, &str)> =
        rows.iter().filter_map(|row| Some((row.file.as_deref()?, row.name.as_str()))).collect();
    let is_named = |name: &str| !name.starts_with("Limits::");
    for (file, name) in constants.keys().filter(|(_, name)| is_named(name)) {
        if !named.contains(&(file.as_path(), name.as_str())) {
            problems.push(format!("no row for `{name}` (`{}`)", file.display()));
        }
    }
    for row in &rows {
        let Some(file) = &row.file else { continue };
        match constants.get(&(file.clone(), row.name.clone())) {
            Some(value) if row.default == *value => {}
            Some(value) => problems.push(format!("{}: the code says {value}", row.line)),
            None => problems.push(format!("{}: there is no such constant in {}", row.line, file.display())),
        }
    }
    assert!(problems.is_empty(), "docs/limits.md:\n{}", problems.join("\n"));
}

/// A limit under another name would need no row.
#[test]
fn a_constant_that_is_a_limit_ends_in_max() {
    let comment_and_name =
        Regex::new(r"(?m)^ *///? (.*)\n(?: *(?:///?|#\[).*\n)* *(?:pub(?:\([a-z: ]+\))? )?const ([A-Z0-9_]+): ")
            .unwrap();
    let mut wrong = Vec::new();
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        // From the first line of each comment: a match begins at a line after one that is no comment.
        for block in text.split("\n\n").flat_map(|block| block.split_inclusive(";\n")) {
            let Some(found) = comment_and_name.captures(block) else { continue };
            let is_limit = LIMIT_WORDS.iter().any(|word| found[1].starts_with(word));
            if is_limit && !found[2].ends_with("_MAX") {
                wrong.push(format!("{}: {}: {}", file.display(), &found[2], &found[1]));
            }
        }
    }
    assert!(wrong.is_empty(), "rename these to …_MAX:\n{}", wrong.join("\n"));
}

#[test]
fn each_option_in_the_table_exists_with_this_default() {
    let help = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for row in rows().iter().filter(|row| row.file.is_none()) {
        let mut lines = help.lines().skip_while(|line| !line.trim_start().starts_with(&format!("{} ", row.name)));
        assert!(lines.next().is_some(), "{}: `tidegate run` has no such option", row.line);
        let paragraph: Vec<&str> = lines.map(str::trim).take_while(|line| !line.starts_with("--")).collect();
        let expected = format!("[default: {}]", row.default);
        assert!(paragraph.join(" ").contains(&expected), "{}: the help says {paragraph:?}", row.line);
    }
}

#[test]
fn defaults_are_written_as_people_read_them() {
    for (name, expression, expected) in [
        ("BODY_BYTES_MAX", "8 << 20", Some("8 MiB")),
        ("BODY_BYTES_MAX", "16_384", Some("16 KiB")),
        ("OUTPUT_BYTES_MAX", "2 * 1024 * 1024", Some("2 MiB")),
        ("HEADER_MAX", "1_000", Some("1,000")),
        ("MEMORY_MIB_MAX", "64", Some("64 MiB")),
        ("OBJECTS_MAX", "10_000_000", Some("10,000,000")),
        ("WAIT_MAX", "Duration::from_secs(30)", Some("30 s")),
        ("WAIT_MAX", "Duration::from_mins(5)", Some("5 min")),
        ("WAIT_MAX", "Duration::from_secs(10 * 60)", Some("10 min")),
        ("WAIT_MAX", "Duration::from_millis(1500)", Some("1500 ms")),
        ("WAIT_MAX", "OTHER.saturating_mul(2)", None),
    ] {
        assert_eq!(display(name, expression).as_deref(), expected, "{name} = {expression}");
    }
}

/// The rows of the tables: `` `NAME` (`file`) ``, `` `Limits::field` (`file`) `` or `` `--option` `` in the first cell,
/// the default in the second.
fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("docs/limits.md")).unwrap();
    let is_after = |heading: &str, line: &str| text.find(heading).is_some_and(|at| at < text.find(line).unwrap_or(0));
    let constant = Regex::new(r"^`((?:Limits::)?\w+)` \(`([\w/.-]+)`\)").unwrap();
    let option = Regex::new(r"^`(--[\w-]+)`").unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let is_own = is_after("## Other bounds", line);
        assert_eq!(cells.len(), if is_own { 3 } else { 5 }, "{line}: a row has five cells, one of other bounds three");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{line}: no cell is empty");
        let (name, file) = match (constant.captures(cells[0]), option.captures(cells[0])) {
            (Some(found), _) => (found[1].to_owned(), Some(PathBuf::from(&found[2]))),
            (None, Some(found)) => (found[1].to_owned(), None),
            (None, None) => panic!("{line}: names neither a constant with its file nor an option"),
        };
        Row { name, file, default: cells[1].to_owned(), line: line.chars().take(80).collect() }
    });
    let rows: Vec<Row> = rows.collect();
    assert!(!rows.is_empty(), "docs/limits.md has no rows");
    rows
}

/// All `*_MAX` constants, and the fields of defaults, by file and name, with their values as people read them. Fields
/// whose names do not say that they are limits begin with `Limits::`.
fn constants() -> BTreeMap<(PathBuf, String), String> {
    const CONSTANT: &str = r"(?:pub(?:\([a-z: ]+\))? )?const ([A-Z0-9_]+_MAX): [\w:]+ =\s*([^;]+);";
    const FIELD: &str = r"([a-z_]+): ([\d_]+(?: (?:<<|\*) [\d_]+)?),";
    let constant = Regex::new(&format!("(?m)^ *{CONSTANT}")).unwrap();
    let field = Regex::new(&format!("(?m)^ +{FIELD}$")).unwrap();
    let mut found = BTreeMap::new();
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        let relative = file.strip_prefix(root()).unwrap().to_owned();
        for captures in constant.captures_iter(&text).chain(field.captures_iter(&text)) {
            let value = display(&captures[1], captures[2].trim());
            let value = value.unwrap_or_else(|| captures[2].trim().to_owned());
            let name = &captures[1];
            let is_limit = name.ends_with("_MAX") || name.ends_with("_max");
            let name = if is_limit { name.to_owned() } else { format!("Limits::{name}") };
            found.insert((relative.clone(), name), value);
        }
    }
    found
}

/// The files of the program and its libraries, without their tests and examples.
fn sources() -> Vec<PathBuf> {
    let files = ["src", "crates"].into_iter().flat_map(|folder| super::tidy::rust_files(&root().join(folder)));
    let is_part = |file: &Path, names: &[&str]| {
        file.strip_prefix(root()).unwrap().iter().any(|part| names.iter().any(|name| part == *name))
    };
    files.filter(|file| !is_part(file, &["tests", "tests.rs", "examples", "fixture.rs", "fixtures.rs"])).collect()
}

/// A constant's value as people read it; `None` if it is computed from others.
fn display(name: &str, expression: &str) -> Option<String> {
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    let product = |text: &str| text.split('*').map(number).product::<Option<u64>>();
    if let Some(argument) = expression.strip_prefix("Duration::from_") {
        let (unit, count) = argument.trim_end_matches(')').split_once('(')?;
        let count = product(count)?;
        return Some(match unit {
            "millis" => format!("{count} ms"),
            "secs" if 120 <= count && count % 60 == 0 => format!("{} min", count / 60),
            "secs" => format!("{count} s"),
            "mins" => format!("{count} min"),
            _ => return None,
        });
    }
    let value = match expression.split_once("<<") {
        Some((left, right)) => number(left)? << number(right)?,
        None => product(expression)?,
    };
    Some(match value {
        _ if name.contains("_MIB_") => format!("{value} MiB"),
        _ if !name.to_uppercase().contains("BYTES") && !expression.contains("<<") => grouped(value),
        _ if value % (1 << 30) == 0 => format!("{} GiB", value >> 30),
        _ if value % (1 << 20) == 0 => format!("{} MiB", value >> 20),
        _ if value % (1 << 10) == 0 => format!("{} KiB", value >> 10),
        _ => format!("{} bytes", grouped(value)),
    })
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
