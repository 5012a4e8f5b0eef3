//! The help of all commands, by the rules that a reader can rely on.

mod documents;

use clap::CommandFactory as _;

use super::*;

/// The verbs with which the help of an option begins.
const VERBS: &str = "Accept Add Allow Answer Apply Cache Cancel Change Check Choose Compare Confirm Create Declare Deliver \
                     Exit Expect Export Fail Generate Give Hold Ignore Install Issue Keep Let Limit List \
                     Listen Look Make Mask Measure Name Poll Print Probe Pull Push Put Read Reconcile Render \
                     Renew Report Request Restrict Run Select Send Serve Set Show Skip Spread Start Stop \
                     Store Treat Use Verify Wait Warn Write";

/// Calls `check` with every option and argument that the help shows, of a command and of its subcommands.
fn each_option(path: &str, command: &clap::Command, check: &mut dyn FnMut(&str, &clap::Arg)) {
    let is_shown =
        |option: &&clap::Arg| !option.is_hide_set() && !["help", "version"].contains(&option.get_id().as_str());
    let own = command.get_arguments().filter(is_shown);
    own.for_each(|option| check(&format!("{path}: {}", option.get_id()), option));
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        each_option(&format!("{path} {}", subcommand.get_name()), subcommand, check);
    }
}

#[test]
fn help_of_an_option_begins_with_a_verb_and_names_the_default() {
    let mut problems = Vec::new();
    each_option("tidegate", &Arguments::command(), &mut |name, option| {
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        let first = help.split(' ').next().unwrap_or_default();
        if VERBS.split(' ').all(|verb| verb != first) {
            problems.push(format!("{name} begins with `{first}`"));
        }
        let shown = !option.get_default_values().is_empty() && !option.is_hide_default_value_set();
        let described = help.contains("[default: ");
        if shown == described && !option.is_required_set() {
            problems.push(format!("{name} must name its default once"));
        }
    });
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn every_command_says_what_it_does() {
    fn each(path: &str, command: &clap::Command, problems: &mut Vec<String>) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        // Commands describe themselves in the third person: "Checks definitions".
        let verb = about.split([' ', ':']).next().unwrap_or_default();
        if !verb.ends_with('s') || verb.chars().next().is_none_or(char::is_lowercase) {
            problems.push(format!("{path}: {about}"));
        }
        for subcommand in command.get_subcommands() {
            each(&format!("{path} {}", subcommand.get_name()), subcommand, problems);
        }
    }
    let mut problems = Vec::new();
    each("tidegate", &Arguments::command(), &mut problems);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn the_help_of_kcp_image_names_the_image_of_this_release() {
    let image = tidegate_core::plan::setup::DefaultImage::default();
    let mut seen = 0;
    each_option("tidegate", &Arguments::command(), &mut |name, option| {
        if option.get_id() == "kcp_image" {
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("[default: {image}, ")), "{name}: {help}");
            seen += 1;
        }
    });
    assert!(2 <= seen, "of run and of adopt kcp");
}
