//! Whether a revision is verified: by its own signature, and by those of everything that changed a guarded path.

use jiff::Timestamp;
use tidegate_core::{
    api::git_source::VerifyMode,
    evidence::{Evidence, StoredObject},
    intake::{SignerRule, Verify},
    revision::Oid,
};

use crate::{Keys, ObjectKind, SignedObject, Signer, refusal::Refusal, verify};

/// A verified revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Who signed the commit, if that is required.
    pub commit: Option<Signer>,
    /// Who signed the tag, if that is required.
    pub tag: Option<Signer>,
}

/// Decides on a commit. `reference` is the name of the branch or tag that names it.
///
/// # Errors
///
/// Fails with the first reason not to trust it.
pub fn judge(
    settings: &Verify,
    keys: &Keys,
    (reference, commit): (&str, Oid),
    evidence: &Evidence,
    now: Timestamp,
) -> Result<Verified, Refusal> {
    if let Some(gap) = evidence.gap {
        return Err(Refusal::History(gap.to_string()));
    }
    if evidence.head.id != commit {
        return Err(Refusal::Strange("another commit was read"));
    }
    let (needs_commit, needs_tag) = match settings.mode {
        VerifyMode::Head => (true, false),
        VerifyMode::Tag => (false, true),
        VerifyMode::TagAndHead => (true, true),
    };
    let tag = needs_tag.then(|| signer_of_tag(reference, evidence, keys, now)).transpose()?;
    let commit = needs_commit.then(|| signer_of(&evidence.head, keys, now)).transpose();
    let commit = commit.map_err(|refusal| refusal.of(&name(evidence.head.id)))?;
    if settings.rules.is_empty() {
        return Ok(Verified { commit, tag });
    }
    for touched in &evidence.touched {
        let signer = signer_of(&touched.commit, keys, now);
        for (rule, path) in &touched.paths {
            let change = (format!("changes {path}"), touched.commit.id);
            check(settings, *rule, change, &[&signer], (keys, now))?;
        }
    }
    if !evidence.vouched.is_empty() {
        let of_tag = tag.clone().ok_or(Refusal::Unsigned);
        let of_commit = signer_of(&evidence.head, keys, now);
        for (rule, path) in &evidence.vouched {
            let answers = format!("answers for {path}, which no verified revision before it has,");
            check(settings, *rule, (answers, evidence.head.id), &[&of_commit, &of_tag], (keys, now))?;
        }
    }
    Ok(Verified { commit, tag })
}

/// Fails unless one of the signers may do with a path what `does` says.
fn check(
    settings: &Verify,
    rule: usize,
    (does, commit): (String, Oid),
    signers: &[&Result<Signer, Refusal>],
    (keys, now): (&Keys, Timestamp),
) -> Result<(), Refusal> {
    let Some(SignerRule { path: pattern, signers: allowed }) = settings.rules.get(rule) else {
        return Err(Refusal::History("a rule is missing".to_owned()));
    };
    let mut contested = None;
    for signer in signers.iter().filter_map(|signer| signer.as_ref().ok()) {
        for name in allowed.iter().filter(|name| signer.is(name)) {
            // Whoever signs with a trusted key can give it the name of someone else.
            let Some(rival) = keys.rival(signer, name, now) else { return Ok(()) };
            contested = contested.or(Some((signer.to_string(), name.clone(), rival.to_owned())));
        }
    }
    if let Some((signer, name, rival)) = contested {
        let (object, rule) = (self::name(commit), pattern.clone());
        let [object, does, rule] = [object, does, rule].map(String::into_boxed_str);
        let [signer, name, rival] = [signer, name, rival].map(String::into_boxed_str);
        return Err(Refusal::NameContested { object, does, rule, signer, name, rival });
    }
    let signed_by = match signers.first() {
        Some(Ok(signer)) => format!("is signed by {signer}"),
        Some(Err(refusal)) => format!("is not verified ({refusal})"),
        None => "is not signed".to_owned(),
    };
    Err(Refusal::NotAllowed {
        object: name(commit),
        does,
        rule: pattern.clone(),
        signed_by,
        allowed: allowed.join(", "),
    })
}

fn name(commit: Oid) -> String {
    format!("commit {commit}")
}

fn signer_of(stored: &StoredObject, keys: &Keys, now: Timestamp) -> Result<Signer, Refusal> {
    let bytes = stored.bytes.as_deref().ok_or(Refusal::TooLarge)?;
    verify(&SignedObject::parse(ObjectKind::Commit, bytes)?, keys, now)
}

/// The outermost tag must be signed: its content names everything below it.
fn signer_of_tag(reference: &str, evidence: &Evidence, keys: &Keys, now: Timestamp) -> Result<Signer, Refusal> {
    let Some(stored) = evidence.tags.first() else {
        return Err(Refusal::NoTag { reference: reference.to_owned() });
    };
    let of_tag = |refusal: Refusal| refusal.of(&format!("tag {reference}"));
    let bytes = stored.bytes.as_deref().ok_or(Refusal::TooLarge).map_err(of_tag)?;
    let tag = SignedObject::parse(ObjectKind::Tag, bytes).map_err(of_tag)?;
    let signed = tag.tag_name().unwrap_or_default();
    if signed != reference {
        return Err(Refusal::OtherTag { reference: reference.to_owned(), signed: signed.chars().take(100).collect() });
    }
    let next = evidence.tags.get(1).map_or(evidence.head.id, |next| next.id);
    if tag.target() != next.to_string() {
        return Err(of_tag(Refusal::Strange("it names another object than the one that was read")));
    }
    verify(&tag, keys, now).map_err(of_tag)
}

// === impl Verified ===

impl std::fmt::Display for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.commit, &self.tag) {
            (Some(commit), Some(tag)) => write!(f, "the commit is signed by {commit}, the tag by {tag}"),
            (Some(commit), None) => write!(f, "the commit is signed by {commit}"),
            (None, Some(tag)) => write!(f, "the tag is signed by {tag}"),
            (None, None) => write!(f, "no signature is required"),
        }
    }
}

#[cfg(test)]
mod tests;
