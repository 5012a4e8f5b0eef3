//! The rules that a comparison is checked against, and the exit code that follows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use tidegate_diff::{
    clean::Draft,
    model::{Report, Verdict},
    policy::{self, FailOn, Kinds, Labels, Policies},
};
use tidegate_process::Exit;

/// Which changes violate a policy, and which exit code follows.
#[derive(clap::Args)]
// Flattened into commands whose arguments already form a group of this name.
#[group(skip)]
pub(super) struct Arguments {
    /// Fail if a change matches one of these rules, separated by commas: `delete`, `recreate`, `refused` (the API
    /// server does not make the change), `crd` (a CustomResourceDefinition is changed or deleted), `conflict`,
    /// `mass-change=N%` (more than N % of the runtimes change), for example `delete,mass-change=20%` [default: none]
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
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
    policies: Policies,
    exit_zero: bool,
}

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
        Ok(Rules { fail_on: self.fail_on.clone(), policies, exit_zero: self.exit_zero })
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

// === impl Rules ===

impl Rules {
    /// Checks a report against the rules.
    pub(super) fn judge(&self, draft: &mut Draft, labels: &Labels, kinds: Option<&Kinds>) {
        draft.judge(&self.fail_on, &self.policies, labels, kinds);
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
