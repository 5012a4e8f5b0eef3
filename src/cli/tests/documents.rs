//! What the documents say of the command line and of custom resources: `docs/cli.md` is written from the commands,
//! `docs/kinds.md` from the schemas, and every call of the program in a document is one that it understands.
//!
//! `UPDATE_GOLDEN=1 cargo test -p tidegate --lib cli::` writes the two pages anew.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, Args as _, Command};
use serde_json::Value;

use crate::{
    cli::{command, crds::crds, examples::tests::words_of_call},
    config::Flags,
};

/// Columns of the prose in documents.
const COLUMNS: usize = 100;

/// A file below the root of the repository.
fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

/// The documents with calls: name and text.
fn documents() -> Vec<(String, String)> {
    let pages = fs::read_dir(path("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let others = ["README.md", "deploy/README.md", "examples/landscape/README.md"];
    let all = pages.chain(others.map(path));
    all.map(|page| (page.display().to_string(), fs::read_to_string(page).unwrap())).collect()
}

/// The prose and the code blocks of a text. The first line of a block is its language. Blocks of lists are indented.
fn parts(text: &str) -> (String, Vec<String>) {
    let (mut prose, mut blocks, mut is_code) = (String::new(), Vec::<String>::new(), false);
    for line in text.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, is_code) {
            (Some(language), false) => blocks.push(language.to_owned() + "\n"),
            (Some(_), true) => {}
            (None, true) => {
                let block = blocks.last_mut().expect("a block has begun");
                block.push_str(line.trim_start());
                block.push('\n');
            }
            (None, false) => prose.push_str(&(line.to_owned() + "\n")),
        }
        is_code ^= fence.is_some();
    }
    (prose, blocks)
}

/// The calls of the program in a code block, without what the shell does around them.
fn calls(block: &str) -> Vec<Vec<String>> {
    let (language, code) = block.split_once('\n').unwrap_or_default();
    if !["sh", "console", "bash"].contains(&language) {
        return Vec::new();
    }
    let code = code.replace("\\\n", " ");
    // In a console, the output of commands follows them.
    let is_marked = code.lines().any(|line| line.starts_with("$ "));
    let typed = code.lines().filter(|line| !is_marked || line.starts_with("$ "));
    let commands = typed.flat_map(|line| {
        let line = line.split(" #").next().unwrap_or_default();
        let line = line.trim_start_matches("$ ").trim_start();
        if line.starts_with('#') { Vec::new() } else { line.split(['|', ';', '(', '&']).collect() }
    });
    commands.filter_map(call).collect()
}

/// The words of a command, if it calls the program: by its name or path, by cargo, or within a container.
fn call(command: &str) -> Option<Vec<String>> {
    let command = command.trim();
    let is_cargo = command.starts_with("cargo run ");
    let called = match command.split_once(" -- ") {
        Some((_, rest)) if is_cargo => format!("tidegate {rest}"),
        Some((_, rest)) => rest.to_owned(),
        None if is_cargo => return None,
        None => command.to_owned(),
    };
    let words = words_of_call(&called);
    let program = words.iter().position(|word| !word.contains('='))?;
    let is_ours = words[program] == "tidegate" || words[program].ends_with("/tidegate");
    is_ours.then(|| [vec!["tidegate".to_owned()], words[program + 1..].to_vec()].concat())
}

/// What is wrong with a call.
fn problem(words: &[String]) -> Option<String> {
    let error = command().try_get_matches_from(words).err()?;
    let is_help = matches!(error.kind(), clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion);
    (!is_help).then(|| format!("{}: {}", words.join(" "), error.to_string().lines().next().unwrap_or_default()))
}

/// What is wrong with a call in a sentence: its command or one of its options does not exist. Such a call may lack
/// arguments, or have an ellipsis for them.
fn problem_of_mention(mention: &str) -> Option<String> {
    // In a table, `|` is escaped.
    let call = mention.split(['|', '\\']).next().unwrap_or_default();
    let mut words = call.split_whitespace().skip(1);
    let mut at = command();
    at.build();
    for word in words.by_ref() {
        let next = at.find_subcommand(word).cloned();
        match next {
            Some(next) => at = next,
            None if word.starts_with('-') => return unknown_option(&at, word, mention),
            None if at.has_subcommands() => {
                return Some(format!("`{mention}`: there is no command `{word}`"));
            }
            None => break,
        }
    }
    words.filter(|word| word.starts_with("--")).find_map(|word| unknown_option(&at, word, mention))
}

fn unknown_option(command: &Command, word: &str, mention: &str) -> Option<String> {
    let name = word.trim_end_matches(['.', ',', '…']).split('=').next().unwrap_or_default().trim_start_matches('-');
    let is_it = |arg: &Arg| {
        arg.get_long() == Some(name)
            || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
            || name.len() == 1 && arg.get_short().is_some_and(|short| name.starts_with(short))
    };
    let is_known = command.get_arguments().any(is_it);
    (!is_known).then(|| format!("`{mention}`: there is no option `{word}`"))
}

#[test]
fn every_call_in_a_document_is_one_that_the_program_understands() {
    // A build without the laboratory has not all commands.
    if !cfg!(feature = "lab") {
        return;
    }
    let (mut problems, mut found) = (Vec::new(), 0);
    for (name, text) in documents() {
        let (prose, blocks) = parts(&text);
        let calls: Vec<Vec<String>> = blocks.iter().flat_map(|block| calls(block)).collect();
        found += calls.len();
        problems.extend(calls.iter().filter_map(|call| problem(call)).map(|problem| format!("{name}: {problem}")));
        let spans =
            prose.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
        let mentions = spans.filter(|span| span.starts_with("tidegate "));
        problems.extend(
            mentions.filter_map(|mention| problem_of_mention(&mention)).map(|problem| format!("{name}: {problem}")),
        );
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // More than what the help of the commands has.
    assert!(60 < found, "{found}");
}

#[test]
fn calls_are_found_in_code_and_in_sentences() {
    let found = |block: &str| calls(block).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        found(
            "sh\n# tidegate no call\nA=b tidegate crds | kubectl apply -f -  # tidegate no\ncd x && ./tidegate diff \\\n  --live\n"
        ),
        ["tidegate crds", "tidegate diff --live"]
    );
    assert_eq!(found("console\n$ cargo run --release -- demo --once\ntidegate 1.0\n"), ["tidegate demo --once"]);
    assert_eq!(found("sh\nkubectl exec deploy/tidegate -- tidegate status > x\n"), ["tidegate status"]);
    assert_eq!(found("yaml\ntidegate: x\n"), [""; 0]);
    assert_eq!(problem_of_mention("tidegate crds \\| kubectl apply --server-side -f -"), None);
    // The checks find mistakes.
    assert!(problem(&words_of_call("tidegate diff --form main")).is_some());
    assert!(problem(&words_of_call("tidegate diff --from main")).is_none());
    for wrong in ["tidegate why", "tidegate diff --form", "tidegate template lists", "tidegate reconcile NAME --wayt"] {
        assert!(problem_of_mention(wrong).is_some(), "{wrong}");
    }
    for right in
        ["tidegate diff --live", "tidegate reconcile NAME --wait", "tidegate template list", "tidegate status -o"]
    {
        assert_eq!(problem_of_mention(right), None);
    }
}

/// The commands that the help shows, with the words that select them.
fn shown<'a>(command: &'a Command, path: &str, found: &mut Vec<(String, &'a Command)>) {
    let is_shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    for subcommand in command.get_subcommands().filter(is_shown) {
        let path = format!("{path} {}", subcommand.get_name());
        if subcommand.has_subcommands() {
            shown(subcommand, &path, found);
        } else {
            found.push((path, subcommand));
        }
    }
}

/// Text within a table or a paragraph: `<` outside of code would be HTML, and a `|` would end the cell.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(index, part)| if index % 2 == 0 { part.replace('<', "\\<") } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`").replace('|', "\\|").replace('\n', " ")
}

/// A paragraph of at most [`COLUMNS`].
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        match last.chars().count() + 1 + word.chars().count() {
            _ if last.is_empty() => last.push_str(word),
            columns if columns <= COLUMNS => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// Cells of an option: how it is written, its default, what it does.
fn row(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let values = values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let values = if arg.get_action().takes_values() { values } else { String::new() };
    let written = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `{}`", format!("--{long} {values}").trim_end()),
        (None, Some(long)) => format!("`{}`", format!("--{long} {values}").trim_end()),
        (Some(short), None) => format!("`{}`", format!("-{short} {values}").trim_end()),
        (None, None) => format!("`{values}`"),
    };
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let (help, described) = match help.split_once("[default: ") {
        Some((help, rest)) => {
            let (described, rest) = rest.split_once(']').expect("a closing bracket");
            (format!("{}{rest}", help.trim_end()), Some(described.to_owned()))
        }
        None => (help, None),
    };
    let defaults = arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy()));
    let default = match (described, arg.is_required_set()) {
        (Some(described), _) => described,
        (None, true) => "required".to_owned(),
        (None, false) => defaults.collect::<Vec<_>>().join(", "),
    };
    let possible = arg.get_possible_values();
    let possible = possible.iter().filter(|value| !value.is_hide_set()).map(|value| {
        let help = value.get_help().map(|help| format!(" ({help})")).unwrap_or_default();
        format!("`{}`{help}", value.get_name())
    });
    let possible = possible.collect::<Vec<_>>().join(", ");
    let possible =
        if possible.is_empty() || !arg.get_action().takes_values() { String::new() } else { format!(": {possible}") };
    format!("| {} | {} | {}{} |\n", escaped(&written), escaped(&default), escaped(&help), escaped(&possible))
}

/// The section of a command.
fn section(path: &str, command: &Command, elsewhere: &BTreeSet<String>) -> String {
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("## `tidegate{path}`\n\n");
    for paragraph in about.split("\n\n") {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}\n", wrapped(&escaped(paragraph)));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(text, "```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
    let is_shown = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        let is_elsewhere = path == " run" && elsewhere.contains(id);
        !arg.is_hide_set() && !["help", "version"].contains(&id) && !is_elsewhere
    };
    let (positional, named): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(is_shown).partition(|arg| arg.is_positional());
    let rows: String = positional.into_iter().chain(named).map(row).collect();
    if !rows.is_empty() {
        let _ = writeln!(text, "| option | default | effect |\n| --- | --- | --- |\n{rows}");
    }
    if path == " run" {
        text.push_str(
            "[configuration.md](configuration.md) has all other options: they are also keys of the file.\n\n",
        );
    }
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines: Vec<&str> = examples.lines().skip(1).map(str::trim).collect();
    let lines = lines.chunks(2).map(|lines| format!("# {}\n{}", lines[0].trim_end_matches(':'), lines[1]));
    let _ = writeln!(text, "```sh\n{}\n```\n", lines.collect::<Vec<_>>().join("\n"));
    text
}

/// `docs/cli.md`.
fn page() -> String {
    let mut command = command();
    command.build();
    let flags = Flags::augment_args(Command::new("run"));
    let elsewhere = flags.get_arguments().map(|arg| arg.get_id().as_str().to_owned()).collect();
    let mut commands = Vec::new();
    shown(&command, "", &mut commands);
    let mut text = String::from(
        "<!-- written by src/cli/tests/documents.rs: UPDATE_GOLDEN=1 cargo test -p tidegate --lib cli:: -->\n\
         # Command line\n\n\
         Each command prints its section with `--help`. `tidegate completions` prints completions for a\n\
         shell, and `tidegate man` writes pages for `man`. `demo` and `sim` are not in the image.\n\n\
         Exit codes are the same for all commands; a command names those that it has besides 0, 2 and 5.\n\n\
         | code | meaning |\n| --- | --- |\n\
         | 0 | success |\n\
         | 1 | there are differences, or a user must do something first |\n\
         | 2 | the command cannot run as given |\n\
         | 3 | definitions or templates are invalid |\n\
         | 4 | a policy is violated |\n\
         | 5 | work is left, or a cluster cannot be reached or rejects the credentials |\n\n\
         A missing right is named as the API server names it. The code is 5 for commands whose result would\n\
         lack a part: `export`, `diff --live` in every format, and `run --once`. `adopt`, `reconcile`,\n\
         `resume`, `status` and `suspend` end with 2 if they may not read, because they cannot do their work.\n\n\
         Every command that asks the control plane ends with 5 and one sentence if it cannot be reached\n\
         within `--request-timeout`: `error: the control plane at kcp.example.com:6443 cannot be reached: it\n\
         does not answer in time`. The same holds if it rejects the credentials. With a format for programs,\n\
         `diff --live` has the sentence in its report.\n\n\
         | command | does |\n| --- | --- |\n",
    );
    for (path, command) in &commands {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let anchor = format!("tidegate{}", path.replace(' ', "-"));
        let _ = writeln!(text, "| [`tidegate{path}`](#{anchor}) | {} |", escaped(&about));
    }
    for (path, command) in &commands {
        text.push('\n');
        text.push_str(section(path, command, &elsewhere).trim_end());
        text.push('\n');
    }
    text
}

#[test]
fn the_page_of_the_command_line_has_what_the_help_says() {
    // A build without the laboratory has not all commands.
    if !cfg!(feature = "lab") {
        return;
    }
    check_written("docs/cli.md", &page());
}

/// Compares a page with its text; with `UPDATE_GOLDEN`, writes it.
fn check_written(name: &str, text: &str) {
    let file = path(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, text).expect("a file");
    }
    let recorded = fs::read_to_string(&file).unwrap_or_default();
    let differs = recorded.lines().zip(text.lines()).find(|(recorded, found)| recorded != found);
    assert!(recorded == text, "{name} differs, write it anew with UPDATE_GOLDEN=1: {differs:#?}");
}

/// A row for each field below a schema.
fn fields(path: &str, schema: &Value, rows: &mut String) {
    let required: BTreeSet<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let name_of = format!("{path}{name}");
        let kind = match (field["type"].as_str(), field["items"]["type"].as_str()) {
            (Some("array"), Some(items)) => format!("list of {items}"),
            (Some(kind), _) => kind.to_owned(),
            (None, _) if field["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
            (None, _) => "any".to_owned(),
        };
        let default = match (&field["default"], required.contains(name.as_str())) {
            (Value::Null, true) => "required".to_owned(),
            (Value::Null, false) => String::new(),
            (default, _) => format!("`{default}`"),
        };
        let values: Vec<String> =
            field["enum"].as_array().into_iter().flatten().map(|value| format!("`{value}`")).collect();
        let values = if values.is_empty() { String::new() } else { format!(" One of {}.", values.join(", ")) };
        let help = field["description"].as_str().unwrap_or_default();
        // Links of the code lead nowhere here.
        let help = help.replace("[`", "`").replace("`]", "`").split_whitespace().collect::<Vec<_>>().join(" ");
        // Writing to a String cannot fail.
        let _ = writeln!(rows, "| `{name_of}` | {kind} | {default} | {}{values} |", escaped(&help));
        fields(&format!("{name_of}."), field, rows);
        fields(&format!("{name_of}[]."), &field["items"], rows);
    }
}

/// `docs/kinds.md`.
fn kinds() -> String {
    let mut text = String::from(
        "<!-- written by src/cli/tests/documents.rs: UPDATE_GOLDEN=1 cargo test -p tidegate --lib cli:: -->\n\
         # Custom resources\n\n\
         The fields of `spec` and `status`, as `tidegate crds` prints their schemas.\n\
         [gitsource.md](gitsource.md) has the GitSource, with examples. The kinds of `operator.kyma-project.io` are Lifecycle Manager's.\n\
         [compatibility.md](compatibility.md) names the fields that nothing reads (row C3a).\n",
    );
    for crd in crds(false).expect("the definitions") {
        let kind = crd["spec"]["names"]["kind"].as_str().expect("a kind");
        if kind == "GitSource" {
            continue;
        }
        let versions = crd["spec"]["versions"].as_array().expect("versions");
        let version = versions.iter().find(|version| version["storage"] == true).expect("a stored version");
        let properties = &version["schema"]["openAPIV3Schema"]["properties"];
        let _ = write!(
            text,
            "\n## {kind}\n\n`{}/{}`\n",
            crd["spec"]["group"].as_str().expect("a group"),
            version["name"].as_str().expect("a version"),
        );
        let mut rows = String::new();
        fields("", &properties["spec"], &mut rows);
        let _ = write!(text, "\n| field | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}");
        let mut rows = String::new();
        fields("", &properties["status"], &mut rows);
        if !rows.is_empty() {
            let _ =
                write!(text, "\n| field of `status` | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}");
        }
    }
    text
}

#[test]
fn the_page_of_custom_resources_has_every_field_of_their_schemas() {
    let text = kinds();
    assert!(80 < text.matches("\n| `").count(), "{text}");
    check_written("docs/kinds.md", &text);
}
