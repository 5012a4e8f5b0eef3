//! The examples below the help of each command. A test parses every line of them.

use clap::Command;

/// The examples of a command, by the words that select it: what one wants, and the command line.
type Examples = (&'static str, &'static [(&'static str, &'static str)]);

/// Those of the program itself are under the empty path.
const EXAMPLES: &[Examples] = &[
    (
        "",
        &[
            ("Check a repository, and show what it changes", "tidegate validate landscape && tidegate diff landscape"),
            ("Follow a repository", "tidegate run --source https://git.example.com/team/landscape.git#main"),
            ("What is wrong", "tidegate status"),
        ],
    ),
    (
        "adopt",
        &[
            ("Before: what stands in the way", "tidegate adopt plan landscape"),
            ("Take the landscape over, once Lifecycle Manager is stopped", "tidegate adopt take landscape --yes"),
            ("Later: replace the agents in the runtimes", "tidegate adopt take --finish --yes"),
            ("Give it back", "tidegate adopt release --yes"),
            ("Take kcp landscapes over, once kcp-operator is stopped", "tidegate adopt kcp --yes"),
        ],
    ),
    (
        "adopt from-argocd",
        &[
            ("How Argo CD hands its definitions over, and the next step", "tidegate adopt from-argocd"),
            ("The same for a program", "tidegate adopt from-argocd -n kcp-system -o json"),
        ],
    ),
    (
        "adopt from-flux",
        &[
            ("How Flux hands its definitions over, and the next step", "tidegate adopt from-flux"),
            ("The same for a program", "tidegate adopt from-flux -n kcp-system -o json"),
        ],
    ),
    (
        "adopt kcp",
        &[
            ("What differs where kcp-operator was, and what would be written", "tidegate adopt kcp"),
            ("Write it, once kcp-operator is stopped; no pod restarts", "tidegate adopt kcp --yes"),
            ("Later: restart the pods that still run as kcp-operator left them", "tidegate adopt kcp --now --yes"),
        ],
    ),
    (
        "adopt plan",
        &[
            ("What stands in the way of a take-over", "tidegate adopt plan --kubeconfig kcp.yaml"),
            ("The same for a program", "tidegate adopt plan landscape -o json"),
        ],
    ),
    (
        "adopt release",
        &[
            ("Say what would be given back", "tidegate adopt release"),
            ("Give the landscape back to Lifecycle Manager", "tidegate adopt release --yes"),
        ],
    ),
    (
        "adopt take",
        &[
            ("Say what would be written", "tidegate adopt take"),
            ("Write it, once Lifecycle Manager is stopped", "tidegate adopt take --yes"),
            ("Later: replace the agents of ten runtimes", "tidegate adopt take --finish --limit 10 --yes"),
        ],
    ),
    (
        "agent",
        &[
            ("Run as the Deployment in a runtime does, with its certificates in the environment", "tidegate agent"),
            ("Try it on this machine", "tidegate agent --development --webhook-address 127.0.0.1:8443"),
        ],
    ),
    (
        "completions",
        &[
            ("Complete in this bash", "source <(tidegate completions bash)"),
            ("Complete in every fish", "tidegate completions fish > ~/.config/fish/completions/tidegate.fish"),
        ],
    ),
    (
        "crds",
        &[
            ("Install them, or update them before an upgrade", "tidegate crds | kubectl apply --server-side -f -"),
            ("The same for kcp landscapes", "tidegate crds --kcp | kubectl apply --server-side -f -"),
        ],
    ),
    (
        "diff",
        &[
            ("What my changes do, before I commit them", "tidegate diff"),
            ("What a branch does, as the comment of a pull request", "tidegate diff --from main --to HEAD -o markdown"),
            ("What it does in real clusters", "tidegate diff --live --kubeconfig kcp.yaml --to HEAD"),
            ("Fail a pipeline that would delete something", "tidegate diff --from main --to HEAD --fail-on delete"),
        ],
    ),
    (
        "export",
        &[
            ("Know the runtimes without a cluster", "tidegate export --landscape landscape.yaml"),
            ("Begin a repository with what the control plane has", "tidegate export --as-git landscape"),
        ],
    ),
    ("man", &[("Read them", "tidegate man /tmp/man && man -l /tmp/man/tidegate-diff.1")]),
    (
        "reconcile",
        &[
            ("Fetch a repository now, and wait for the result", "tidegate reconcile gitsource/landscape --wait"),
            ("Try a runtime again now", "tidegate reconcile kyma/dev"),
        ],
    ),
    (
        "render",
        &[
            ("All objects of one runtime", "tidegate render --target dev"),
            ("What a revision would send to the control plane", "tidegate render --rev main --target kcp -o json"),
        ],
    ),
    ("resume", &[("Go on with a runtime", "tidegate resume kyma/dev")]),
    (
        "run",
        &[
            ("Follow a repository", "tidegate run --source https://git.example.com/team/landscape.git#main"),
            ("Show what a file and flags mean together", "tidegate run --config tidegate.yaml --print-config"),
            ("Bring everything into order once, in a script", "tidegate run --source ../landscape --once"),
            ("Show what it would change, without a write", "tidegate run --source ../landscape --observe --once"),
        ],
    ),
    (
        "status",
        &[
            ("What is wrong, in kcp-system", "tidegate status"),
            ("One runtime with all its modules", "tidegate status kyma/dev -o wide"),
            ("Which runtimes have which version", "tidegate status module/cache"),
            ("In a script, which looks at the exit code", "tidegate status --request-timeout 5s"),
        ],
    ),
    (
        "suspend",
        &[
            ("Leave a runtime alone during work on it", "tidegate suspend kyma/dev --reason 'upgrade of the network'"),
            ("Stop a rollout of a module where it is", "tidegate suspend rollout/cache"),
        ],
    ),
    (
        "template",
        &[
            ("Which templates there are", "tidegate template list"),
            ("Begin an override", "tidegate template show manifest.yaml > templates/manifest.yaml"),
        ],
    ),
    ("template list", &[("Which templates there are", "tidegate template list")]),
    ("template show", &[("Begin an override", "tidegate template show manifest.yaml > templates/manifest.yaml")]),
    ("template context", &[("Which values an override can use", "tidegate template context manifest.yaml")]),
    (
        "validate",
        &[
            ("The repository around the working directory", "tidegate validate"),
            ("One folder of it, for the annotations of a pull request", "tidegate validate landscapes/dev -o github"),
            ("What another program prints", "helm template kymas/ | tidegate validate -"),
        ],
    ),
    ("version", &[("For a program", "tidegate version -o json")]),
    (
        "demo",
        &[
            ("See it all, then try for yourself", "tidegate demo"),
            ("The tour alone, on real API servers", "tidegate demo --once --control-plane real"),
            (
                "The tour on clusters of kind or k3d, which are as before at its end",
                "tidegate demo --once --kubeconfig kcp.yaml --runtime-kubeconfig a.yaml --runtime-kubeconfig b.yaml",
            ),
        ],
    ),
    (
        "sim",
        &[
            ("A fleet for a daemon of your own", "tidegate sim serve --runtimes 20 --dir fleet"),
            ("What a rollout to 200 runtimes costs", "tidegate sim bench --runtimes 200"),
        ],
    ),
    ("sim agent", &[("Beside a control plane that fails", "tidegate sim agent --rate 500")]),
    (
        "sim bench",
        &[
            ("A small landscape, in a minute", "tidegate sim bench --idle 5"),
            ("On real API servers", "tidegate sim bench --control-plane real --runtime-servers real"),
        ],
    ),
    ("sim diff", &[("Eight runtimes", "tidegate sim diff --runtimes 8")]),
    ("sim diff-offline", &[("A small landscape", "tidegate sim diff-offline --runtimes 500 --templates 100")]),
    ("sim git", &[("In a minute", "tidegate sim git --pushes 40 --polls 2")]),
    (
        "sim listener",
        &[("Throughput", "tidegate sim listener"), ("Beside an attack", "tidegate sim listener --attack")],
    ),
    ("sim render", &[("With a faster override", "tidegate sim render --computing 50")]),
    ("sim render-offline", &[("A small fleet", "tidegate sim render-offline --runtimes 500")]),
    ("sim repository", &[("A small repository", "tidegate sim repository --modules 5")]),
    ("sim serve", &[("A fleet for a daemon of your own", "tidegate sim serve --runtimes 20 --dir fleet")]),
    ("sim setup", &[("A small kcp landscape", "tidegate sim setup --shards 2 --kubeconfigs 4 --secrets 50")]),
    ("sim upgrade", &[("From an older program to this one, and back", "tidegate sim upgrade --old ./tidegate-0.1.0")]),
    ("sim watch", &[("Two runtimes", "tidegate sim watch --runtimes 2 --changes 50")]),
];

/// Adds the examples to the help of a command and its subcommands.
pub(super) fn add(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (path, examples)| {
        let words: Vec<&str> = path.split_whitespace().collect();
        at(command, &words, &text(examples))
    })
}

/// Adds a text to the help of the subcommand that `path` leads to, if this build has it.
fn at(command: Command, path: &[&str], text: &str) -> Command {
    match path {
        [] => command.after_help(text.to_owned()),
        [name, rest @ ..] if command.find_subcommand(name).is_some() => {
            command.mut_subcommand(name, |subcommand| at(subcommand, rest, text))
        }
        _ => command,
    }
}

fn text(examples: &[(&str, &str)]) -> String {
    let lines: Vec<String> = examples.iter().map(|(what, line)| format!("  {what}:\n    {line}")).collect();
    format!("Examples:\n{}", lines.join("\n"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::command, *};

    /// The visible commands below one, also those that only group others.
    fn visible(command: &Command, path: &str, found: &mut Vec<String>) {
        for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let path = format!("{path} {}", subcommand.get_name()).trim_start().to_owned();
            visible(subcommand, &path, found);
            found.push(path);
        }
    }

    #[test]
    fn every_command_has_examples() {
        let mut found = vec![String::new()];
        visible(&command(), "", &mut found);
        found.sort_unstable();
        let mut expected: Vec<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        expected.sort_unstable();
        // Without the laboratory, its commands are missing.
        if cfg!(feature = "lab") {
            assert_eq!(found, expected);
        }
        assert!(found.iter().all(|path| expected.contains(&path.as_str())), "{found:?}");
    }

    #[test]
    fn every_example_is_one_that_the_command_understands() {
        for (path, examples) in EXAMPLES {
            for (_, line) in *examples {
                // The call of the program, without what a shell does around it.
                let from = line.find("tidegate").expect("a call of the program");
                let words = words_of_call(&line[from..]);
                assert!(words.join(" ").starts_with(format!("tidegate {path}").trim_end()), "{line}");
                let is_known = command().find_subcommand(words[1].as_str()).is_some();
                if let Err(error) = command().try_get_matches_from(&words)
                    && is_known
                {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    /// The words of a call of the program, up to what a shell does with its output.
    pub(in crate::cli) fn words_of_call(line: &str) -> Vec<String> {
        shell_words(line.split([')', '>', '|', '&']).next().unwrap_or_default())
    }

    /// The words of a command line. Single quotes hold a word together.
    fn shell_words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }
}
