//! Whether the signatures of a revision are those that `spec.verify` asks for.
//!
//! A revision is verified once, before anything of it is read. What an earlier process has verified stays so: its
//! status says which revision that was. A revision that is not verified changes nothing; the active one stays.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use tidegate_cluster as cluster;
use tidegate_core::{
    api::GitSource,
    intake::{Terms, status},
    name::Key,
    revision::{Oid, Revision},
};
use tidegate_git::{Fetched, Mirror};
use tidegate_process::ambient;
use tidegate_signature::{self as signature, Keys};

use super::{decide::FetchedRevision, problem::Problem, secrets};
use crate::source::{
    KnownSource, SourcePass,
    state::{KnownTrust, SeenSecret},
};

// === impl SourcePass ===

impl SourcePass<'_> {
    /// Verifies a revision that was fetched, unless it was before. Fails if it is not verified.
    pub(super) async fn verify(
        &self,
        known: &mut KnownSource,
        terms: &Terms,
        mirror: &Mirror,
        fetched: &Fetched,
    ) -> Result<(), Problem> {
        let Some(settings) = &terms.verify else {
            known.trust = KnownTrust::NotAsked;
            return Ok(());
        };
        let revision = &fetched.revision;
        let status = known.writes.status.shown(self.source);
        if known.trust.covers(revision, settings) || was_verified(&status, revision) {
            return Ok(());
        }
        let base = base(mirror.last_good().as_ref(), &status);
        let secret = Key::new(self.key.namespace(), &settings.secret);
        let (keys, seen) = keys(&secret, self.ctx.kcp.get_as::<Secret>(&secrets(), &secret).await)?;
        let patterns: Vec<String> = settings.rules.iter().map(|rule| rule.path.clone()).collect();
        let evidence = mirror.evidence(fetched.object, base, &patterns).await.map_err(Problem::Git)?;
        let interrupted = || Problem::Interrupted(revision.clone());
        let (name, commit) = named(revision).ok_or_else(interrupted)?;
        let (settings, now) = (settings.clone(), ambient::now());
        let judged = ambient::blocking(move || {
            let judged = signature::judge(&settings, &keys, (&name, commit), &evidence, now);
            (judged.map(|verified| verified.to_string()), settings)
        });
        let (judged, settings) = judged.await.ok_or_else(interrupted)?;
        match judged {
            Ok(by) => {
                tracing::info!(source = %self.key, %revision, by, "the revision is verified");
                known.trust = KnownTrust::Verified { settings, revision: revision.clone(), by };
                Ok(())
            }
            Err(refusal) => {
                known.trust = KnownTrust::Unknown;
                Err(Problem::Unverified { revision: revision.clone(), refusal: Box::new(refusal), seen })
            }
        }
    }
}

/// Whether a revision must be verified.
pub(super) fn is_asked(step: &FetchedRevision) -> bool {
    match step {
        FetchedRevision::Active | FetchedRevision::ReadRewritten | FetchedRevision::Read => true,
        // Nothing of these is used.
        FetchedRevision::StillRefused | FetchedRevision::Rewritten(_) => false,
    }
}

/// The name of the branch or tag, and the commit.
fn named(revision: &Revision) -> Option<(String, Oid)> {
    match revision {
        Revision::Commit { name, commit } => {
            Some((name.strip_prefix("refs/tags/").unwrap_or(name).to_owned(), *commit))
        }
        Revision::WorkTree => None,
    }
}

/// Whether an earlier process has verified a revision with the present settings.
fn was_verified(source: &GitSource, revision: &Revision) -> bool {
    let Some(found) = &source.status else { return false };
    let is_current = found.observed_generation == source.metadata.generation;
    is_current && found.verified_revision.as_ref() == Some(&revision.to_string()) && status::is_verified(found)
}

/// The commit from which changes of guarded paths are checked: the active one, or the last that was verified.
fn base(active: Option<&Revision>, source: &GitSource) -> Option<Oid> {
    let verified = || {
        let (_, commit) = source.status.as_ref()?.verified_revision.as_deref()?.rsplit_once("@sha1:")?;
        commit.parse().ok()
    };
    active.and_then(Revision::commit).or_else(verified)
}

/// The keys in a Secret, as the API server answered.
fn keys(secret: &Key, answer: Result<Option<Secret>, cluster::Error>) -> Result<(Keys, SeenSecret), Problem> {
    let found = answer.map_err(|error| Problem::SecretRead { secret: secret.clone(), error: Box::new(error) })?;
    let unusable = |what: String, seen| Problem::Keys { secret: secret.clone(), what, seen };
    let found = found.ok_or_else(|| unusable("does not exist".to_owned(), SeenSecret(None)))?;
    let seen = SeenSecret(found.metadata.resource_version);
    let data: BTreeMap<String, _> = found.data.unwrap_or_default();
    match Keys::parse(data.iter().map(|(name, value)| (name.as_str(), &*value.0))) {
        Ok(keys) => Ok((keys, seen)),
        Err(error) => Err(unusable(format!("cannot be used: {error}"), seen)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(status: serde_json::Value) -> GitSource {
        let value = json!({
            "apiVersion": "tidegate.dev/v1alpha1",
            "kind": "GitSource",
            "metadata": {"name": "a", "namespace": "kcp-system", "generation": 2},
            "spec": {"url": "https://git.example.com/a"},
            "status": status,
        });
        serde_json::from_value(value).unwrap()
    }

    fn revision(digit: &str) -> Revision {
        Revision::Commit { name: "main".to_owned(), commit: digit.repeat(40).parse().unwrap() }
    }

    fn status(generation: i64, revision: &Revision, verified: &str) -> serde_json::Value {
        json!({
            "observedGeneration": generation,
            "verifiedRevision": revision.to_string(),
            "conditions": [{"type": "Verified", "status": verified, "reason": "Verified", "message": "",
                "lastTransitionTime": "2026-11-25T12:00:00Z"}],
        })
    }

    #[test]
    fn a_restart_verifies_again_only_what_is_new_or_was_verified_with_other_settings() {
        let (one, other) = (revision("1"), revision("2"));
        for (status, expected) in [
            (status(2, &one, "True"), true),
            (status(1, &one, "True"), false),
            (status(2, &other, "True"), false),
            (status(2, &one, "False"), false),
            (serde_json::Value::Null, false),
        ] {
            assert_eq!(was_verified(&source(status.clone()), &one), expected, "{status}");
        }
    }

    #[test]
    fn changes_are_checked_from_the_active_revision_or_from_the_last_verified_one() {
        let (one, other) = (revision("1"), revision("2"));
        let verified = source(status(1, &other, "False"));
        assert_eq!(base(Some(&one), &verified), one.commit());
        assert_eq!(base(None, &verified), other.commit());
        assert_eq!(base(None, &source(serde_json::Value::Null)), None);
    }

    #[test]
    fn a_secret_without_usable_keys_is_a_problem_that_another_version_may_solve() {
        let key = Key::new("kcp-system", "keys");
        let problem = keys(&key, Ok(None)).map(drop).unwrap_err();
        assert_eq!(problem.to_string(), "Secret kcp-system/keys with the trusted keys does not exist");
        let problem = keys(&key, Ok(Some(Secret::default()))).map(drop).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "Secret kcp-system/keys with the trusted keys cannot be used: verify.secretRef: there is no key: add \
             armored OpenPGP public keys, or an allowed_signers file"
        );
    }
}
