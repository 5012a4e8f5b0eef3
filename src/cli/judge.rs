//! The rules that a comparison is held against, and the exit code that follows.

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

/// What must not happen, and what the exit code says of it.
#[derive(clap::Args)]
// Flattened into commands whose arguments make a group of this name.
#[group(skip)]
pub(super) struct Arguments {
    /// Violated by what a change does: delete, recreate, crd (a CustomResourceDefinition changes or goes), conflict,
    /// mass-change=N% (more than N % of the runtimes are touched).
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// File of rules in CEL; several times for several files.
    #[arg(long = "policy", value_name = "FILE")]
    policies: Vec<PathBuf>,
    /// Ends with 0 whatever the report says; only a command that cannot be carried out ends with 2.
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
    /// Reads the rules: what is wrong with them is found out before any work is done.
    pub(super) fn load(&self) -> anyhow::Result<Rules> {
        let mut policies = Policies::default();
        for path in &self.policies {
            if let Err(name) = policies.add(read(path)?) {
                bail!("{}: another file has a rule that is named `{name}`", path.display());
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
    /// Holds a report against the rules.
    pub(super) fn judge(&self, draft: &mut Draft, labels: &Labels, kinds: Option<&Kinds>) {
        draft.judge(&self.fail_on, &self.policies, labels, kinds);
    }

    /// How the command ends.
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
