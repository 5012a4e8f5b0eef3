//! Verifies the signatures of a revision on the command line, as the daemon does with the Secret of `spec.verify`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use tidegate_core::{
    api::git_source::{GitSourceSpec, VerifyMode},
    diagnostic::{Diagnostic, Diagnostics},
    intake::{self, Verify},
    revision::Oid,
};
use tidegate_git as git;
use tidegate_process::ambient;
use tidegate_signature::{self as signature, Keys};

use super::repository::{Committed, Counting};

/// Which keys are trusted.
#[derive(clap::Args)]
// Flattened into commands whose arguments already form a group of this name.
#[group(skip)]
pub(super) struct Arguments {
    /// Verify the signatures of the revision with the keys in this file, or in the files of this folder: armored
    /// OpenPGP public keys, and a file `allowed_signers` of SSH; repeat the option for more. `verify` of the GitSource
    /// in `--source-file` says what must be signed, or that of the old side of `tidegate diff`; without both, the
    /// commit [default: no verification]
    #[arg(long, value_name = "PATH")]
    trusted_keys: Vec<PathBuf>,
}

/// Code of a revision whose signatures are not those that are asked for.
const CODE_UNVERIFIED: &str = "unverified";
/// Maximum number of files in a folder of keys.
const KEY_FILES_MAX: usize = 1_000;

// === impl Arguments ===

impl Arguments {
    /// Reports a revision that is not verified. `base` is the revision from which changes of guarded paths are checked.
    /// Does nothing without keys. Fails if the keys or the revision cannot be read, or if only the revision itself says
    /// what must be signed.
    pub(super) fn verify(
        &self,
        diagnostics: &mut Diagnostics,
        counting: &Counting,
        path: &Path,
        (rev, base): (Option<&str>, Option<Oid>),
    ) -> anyhow::Result<()> {
        if self.trusted_keys.is_empty() {
            return Ok(());
        }
        let Some(rev) = rev else {
            bail!("a work tree is not signed: set a revision with `--rev`, or `--to` of `tidegate diff`");
        };
        let keys = self.keys()?;
        let settings = settings(counting, path, rev, base)?;
        let patterns: Vec<String> = settings.rules.iter().map(|rule| rule.path.clone()).collect();
        let (evidence, commit) = git::evidence(path, rev, base, &patterns)
            .with_context(|| format!("cannot read the signatures of {rev} in {}", path.display()))?;
        let name = rev.trim_start_matches("refs/tags/").trim_start_matches("refs/heads/");
        if let Err(refusal) = signature::judge(&settings, &keys, (name, commit), &evidence, ambient::now()) {
            let hint = "sign it with a trusted key, or add the key of its signer to `--trusted-keys`";
            diagnostics.push(Diagnostic::error(CODE_UNVERIFIED, format!("{rev}: {refusal}")).hint(hint));
        }
        Ok(())
    }

    fn keys(&self) -> anyhow::Result<Keys> {
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        for path in &self.trusted_keys {
            let shown = path.display();
            let mut paths = vec![path.clone()];
            if path.is_dir() {
                let entries = fs::read_dir(path).with_context(|| format!("cannot read {shown}"))?;
                paths = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
                paths.sort();
            }
            for path in paths {
                if KEY_FILES_MAX <= files.len() {
                    bail!("--trusted-keys: there are more than {KEY_FILES_MAX} files");
                }
                let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                files.push((path.display().to_string(), content));
            }
        }
        let keys = Keys::parse(files.iter().map(|(name, content)| (name.as_str(), &**content)));
        keys.context("cannot use --trusted-keys")
    }
}

/// What must be signed: as the GitSource of `--source-file` asks for, or that of the revision before the commits that
/// are judged. A commit must not weaken the rules by which it is judged itself. Fails if only it has rules, or if it is
/// not known which rules hold.
fn settings(counting: &Counting, path: &Path, rev: &str, base: Option<Oid>) -> anyhow::Result<Verify> {
    if let Some(given) = counting.gitsource()? {
        return parse(Some(&given));
    }
    let has_verify = |own: &Option<GitSourceSpec>| own.as_ref().is_some_and(|own| own.verify.is_some());
    let head = Counting::committed(path, rev)?;
    let Some(base) = base.filter(|base| head.commit != Some(*base)) else {
        // What is wrong with a GitSource that cannot be read is an error of its own.
        if head.own.as_ref().is_ok_and(has_verify) {
            bail!(
                "`verify` of the GitSource in `.tidegate` of {rev} is not used, because a commit could weaken the rules \
                 by which it is judged: set `--source-file`, or use `tidegate diff --from REV`, which takes the rules of \
                 REV"
            );
        }
        check_unambiguous(&head, rev)?;
        return parse(None);
    };
    let before = Counting::committed(path, &base.to_string())?;
    match &before.own {
        Ok(own) => {
            if !has_verify(own) {
                check_unambiguous(&before, &base.to_string())?;
            }
            parse(own.as_ref())
        }
        Err(problem) => bail!("cannot use the GitSource in `.tidegate` of {base}: {}", problem.message),
    }
}

/// Fails if rules are in the folder of a revision that does not say which GitSource counts.
fn check_unambiguous(committed: &Committed, rev: &str) -> anyhow::Result<()> {
    let files: Vec<&str> = committed.with_verify.iter().map(|path| &**path).collect();
    if !files.is_empty() {
        bail!(
            "`verify` in {} of {rev} is not used, because `.tidegate` has more than one GitSource: set `--source-file` \
             to the one whose rules apply",
            files.join(" and ")
        );
    }
    Ok(())
}

/// What a GitSource asks for. Without `verify`, the commit must be signed.
fn parse(source: Option<&GitSourceSpec>) -> anyhow::Result<Verify> {
    let asked = source.map(intake::verify).transpose().context("cannot use the GitSource")?;
    let head = Verify { mode: VerifyMode::Head, secret: String::new(), rules: Vec::new() };
    Ok(asked.flatten().unwrap_or(head))
}
