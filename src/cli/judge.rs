//! The rules that a comparison is checked against, and the exit code that follows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use tidegate_core::diagnostic::Diagnostic;
use tidegate_diff::{
    clean::Draft,
    markdown::Approval,
    model::{Report, Verdict},
    policy::{self, Approvals, FailOn, Kinds, Labels, Policies},
};
use tidegate_git as git;
use tidegate_process::Exit;

use super::trailers;

/// Which changes violate a policy, and which exit code follows.
#[derive(clap::Args)]
// Flattened into commands whose arguments already form a group of this name.
#[group(skip)]
pub(super) struct Arguments {
    /// Fail if a change matches one of these rules, separated by commas: `delete`, `recreate`, `refused` (the API
    /// server does not make the change), `crd` (a CustomResourceDefinition is changed or deleted), `conflict`,
    /// `same-version` (a module's content changes without a new version), `mass-change=N%` (more than N % of the
    /// runtimes change), for example `delete,mass-change=20%` [default: none]
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Treat violations of these rules of `--fail-on` as warnings, separated by commas, for example `recreate`. A
    /// trailer `Tidegate-Approve: recreate` in a compared commit does the same [default: none]
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    approve: Vec<String>,
    /// Ignore trailers `Tidegate-Approve` of commits: only `--approve` approves [default: off]
    #[arg(long)]
    ignore_trailers: bool,
    /// Name this label, followed by the rule, as the way to approve a violated rule in comments, for example
    /// `tidegate-approve/`: for pipelines that pass `--approve` for labels. Needs `--ignore-trailers` [default: none]
    #[arg(long, value_name = "PREFIX", requires = "ignore_trailers")]
    approval_label: Option<String>,
    /// Check the changes against the CEL rules in this file; repeat the option for more files [default: none]
    #[arg(long = "policy", value_name = "FILE")]
    policies: Vec<PathBuf>,
    /// Exit with 0 regardless of the report, or with 2 if the command cannot run [default: off]
    #[arg(long)]
    exit_zero: bool,
}

/// The rules, read.
pub(super) struct Rules {
    fail_on: Vec<FailOn>,
    approvals: Approvals,
    ignore_trailers: bool,
    approval_label: Option<String>,
    /// Problems of trailers.
    problems: Vec<Diagnostic>,
    policies: Policies,
    exit_zero: bool,
}

/// The trailer of a commit message that approves rules, separated by commas or spaces.
const TRAILER: &str = "Tidegate-Approve";
/// Digits of a commit in a message.
const COMMIT_SHOWN: usize = 10;
/// What to do with a line that only looks like the trailer.
const NO_TRAILER_HINT: &str =
    "write it without indentation in the last paragraph of the message, and apart from the subject";
/// Code of the warning about a trailer that approves nothing.
const CODE_APPROVAL: &str = "approval";

// === impl Arguments ===

impl Arguments {
    /// Reads the rules before any work is done. Fails if a file is invalid or a rule has the name of another.
    pub(super) fn load(&self) -> anyhow::Result<Rules> {
        let mut policies = Policies::default();
        for path in &self.policies {
            if let Err(name) = policies.add(read(path)?) {
                bail!("{}: rule `{name}` is already defined in another file: rename one of them", path.display());
            }
        }
        let mut approvals = Approvals::default();
        for name in &self.approve {
            approvals.approve(name, "`--approve`").context("invalid value of `--approve`")?;
        }
        Ok(Rules {
            fail_on: self.fail_on.clone(),
            approvals,
            ignore_trailers: self.ignore_trailers,
            approval_label: self.approval_label.clone(),
            problems: Vec::new(),
            policies,
            exit_zero: self.exit_zero,
        })
    }
}

fn read(path: &Path) -> anyhow::Result<Policies> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    match policy::parse(&text) {
        Ok(policies) => Ok(policies),
        Err(error) => bail!("{shown}:{error}"),
    }
}

/// The rules that the trailers of a message name, and whether another line of it only looks like such a trailer.
fn approved(message: &str) -> (Vec<String>, bool) {
    let trailers = trailers::parse(message).into_iter().filter(|(name, _)| name.eq_ignore_ascii_case(TRAILER));
    let values: Vec<String> = trailers.map(|(_, value)| value).collect();
    let names = values.iter().flat_map(|value| value.split([',', ' ', '\t'])).filter(|name| !name.is_empty());
    let names = names.map(str::to_owned).collect();
    (names, values.len() < trailers::lines_named(message, TRAILER))
}

// === impl Rules ===

impl Rules {
    /// Takes approvals from the trailers of the commits that are in `to` and not in `from`. `None` stands for HEAD and
    /// for the default branch. Fails if the commits cannot be read.
    pub(super) fn take_trailers(&mut self, path: &Path, from: Option<&str>, to: Option<&str>) -> anyhow::Result<()> {
        if self.ignore_trailers || self.fail_on.is_empty() {
            return Ok(());
        }
        let commits = git::messages_between(path, from, to);
        let commits = commits.with_context(|| {
            format!("cannot read trailers `{TRAILER}` of commits (`--ignore-trailers` does without them)")
        })?;
        for (commit, message) in commits {
            let commit = format!("commit {}", &commit.to_string()[..COMMIT_SHOWN]);
            let (names, has_other) = approved(&message);
            for name in names {
                if let Err(error) = self.approvals.approve(&name, &commit) {
                    let message = format!("trailer `{TRAILER}` of {commit}: {error}");
                    self.problems.push(Diagnostic::warning(CODE_APPROVAL, message));
                }
            }
            if has_other {
                let message = format!("a line `{TRAILER}` of {commit} is not a trailer, so it approves nothing");
                self.problems.push(Diagnostic::warning(CODE_APPROVAL, message).hint(NO_TRAILER_HINT));
            }
        }
        Ok(())
    }

    /// What a comment says of rules that can be approved.
    pub(super) fn approval(&self) -> Approval {
        match &self.approval_label {
            Some(label) => Approval::Label(label.clone()),
            None if self.ignore_trailers => Approval::Option,
            None => Approval::Trailer,
        }
    }

    /// Checks a report against the rules.
    pub(super) fn judge(&self, draft: &mut Draft, labels: &Labels, kinds: Option<&Kinds>) {
        draft.warn(&self.problems);
        draft.judge((&self.fail_on, &self.approvals), &self.policies, labels, kinds);
    }

    /// The exit code for a report.
    pub(super) fn exit(&self, report: &Report) -> Exit {
        match report.verdict() {
            _ if self.exit_zero => Exit::Ok,
            Verdict::Same => Exit::Ok,
            Verdict::Changes => Exit::Changes,
            Verdict::Invalid => Exit::Invalid,
            Verdict::Incomplete => Exit::Incomplete,
            Verdict::Violated => Exit::Policy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::approved;

    #[test]
    fn only_trailers_approve_and_other_lines_are_reported() {
        let check = |message: &str, names: &[&str], has_other: bool| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(approved(message), (names, has_other), "{message}");
        };
        check(
            "subject\n\nbody\n\nTidegate-Approve: recreate, delete\nReviewed-by: x\n",
            &["recreate", "delete"],
            false,
        );
        check("subject\n\ntidegate-approve: crd\nTidegate-Approve: delete\n", &["crd", "delete"], false);
        check("subject\n\nTidegate-Approve: recreate,\n  delete\n", &["recreate", "delete"], false);
        check("subject\n\nTidegate-Approve:\n", &[], false);
        check("subject\n\nnothing to approve\n", &[], false);
        // The last paragraph decides, and the subject is none.
        check("subject\n\nTidegate-Approve: crd\n\nmore\n", &[], true);
        check("subject\n\nTidegate-Approve: crd\n\nTidegate-Approve: delete\n", &["delete"], true);
        check("subject\n\n  Tidegate-Approve: delete\n", &[], true);
        check("x\nTidegate-Approve: delete\n", &[], true);
        check("Tidegate-Approve: delete\n", &[], true);
    }
}
