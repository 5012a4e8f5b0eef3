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
use tidegate_signature::{self as signature, Keys, Refusal};

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
            let diagnostic = Diagnostic::error(CODE_UNVERIFIED, format!("{rev}: {refusal}"));
            diagnostics.push(Diagnostic { hint: hint(&refusal).map(str::to_owned), ..diagnostic });
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

/// What helps against a refusal; none if it says so itself.
fn hint(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::Unsigned => "sign it with a trusted key, for example with `git commit --amend --gpg-sign`",
        Refusal::UnknownKey { .. } => {
            "sign it with a trusted key, or add the key of its signer to `--trusted-keys` if you trust it"
        }
        Refusal::BadSignature { .. } => "it was changed after it was signed: find out by whom before you sign it again",
        Refusal::KeyExpired { .. } => "extend the key and export it to `--trusted-keys`, or sign with another one",
        Refusal::KeyNotYetValid { .. } | Refusal::SignatureFromFuture { .. } => "check the clock of the signer",
        Refusal::KeyRevoked { .. } => "sign it again with a key that is not revoked",
        Refusal::KeyNotForSigning { .. } => "sign it again with a key that is for signing objects of git",
        Refusal::SignatureExpired { .. } => "sign it again",
        Refusal::OtherNamespace { .. } | Refusal::NotUnderstood(_) => "sign it again with git itself",
        Refusal::Strange(_) | Refusal::TooLarge => "make it again with git itself, and sign it",
        Refusal::NoTag { .. } | Refusal::OtherTag { .. } => "name an annotated tag that was signed under this name",
        Refusal::History(_) => "judge it in smaller steps, from a later revision on",
        Refusal::WeakAlgorithm { .. } | Refusal::NotAllowed { .. } | Refusal::NameContested { .. } => return None,
        Refusal::Of { refusal, .. } => return hint(refusal),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A new key among the trusted ones helps only against a key that is unknown.
    #[test]
    fn a_hint_fits_its_refusal() {
        let key = || "SHA256:a".to_owned();
        let of = |refusal| Refusal::Of { object: "commit 1".to_owned(), refusal: Box::new(refusal) };
        let not_allowed = Refusal::NotAllowed {
            object: "commit 1".to_owned(),
            does: "changes a".to_owned(),
            rule: "a".to_owned(),
            signed_by: "is signed by anna".to_owned(),
            allowed: "bert".to_owned(),
        };
        for (refusal, part) in [
            (of(Refusal::UnknownKey { key: key() }), Some("add the key of its signer")),
            (of(Refusal::Unsigned), Some("sign it with a trusted key")),
            (of(Refusal::BadSignature { key: key() }), Some("it was changed after it was signed")),
            (of(Refusal::KeyRevoked { key: key() }), Some("with a key that is not revoked")),
            (of(Refusal::OtherNamespace { namespace: "file".to_owned() }), Some("sign it again with git itself")),
            (not_allowed, None),
        ] {
            let found = hint(&refusal);
            assert_eq!(found.is_some(), part.is_some(), "{refusal}");
            assert!(found.unwrap_or_default().contains(part.unwrap_or_default()), "{refusal}: {found:?}");
            let adds_a_key = found.is_some_and(|hint| hint.contains("--trusted-keys"));
            assert_eq!(adds_a_key, refusal.reason() == "UnknownKey", "{refusal}");
        }
    }
}
