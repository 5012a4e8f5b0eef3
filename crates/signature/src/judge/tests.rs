use std::{collections::BTreeMap, fs, path::Path};

use tidegate_core::evidence::{Gap, Touched};

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef01234567";
fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)).unwrap()
}

fn stored(name: &str) -> StoredObject {
    StoredObject { id: ID.parse().unwrap(), bytes: Some(fixture(name)) }
}

/// A revision with this commit, and nothing else.
fn revision(commit: &str) -> Evidence {
    let (tags, touched) = (Vec::new(), Vec::new());
    Evidence { tags, head: stored(commit), touched, vouched: BTreeMap::new(), gap: None }
}

/// The tag v1 of the fixtures, and the commit that it names.
fn tagged(commit: &str) -> Evidence {
    let tag = fixture("openpgp-anna.tag");
    let text = String::from_utf8_lossy(&tag).into_owned();
    let target = text.strip_prefix("object ").unwrap()[..40].parse().unwrap();
    let head = StoredObject { id: target, ..stored(commit) };
    Evidence { tags: vec![StoredObject { id: ID.parse().unwrap(), bytes: Some(tag) }], head, ..revision(commit) }
}

fn check(mode: VerifyMode, reference: &str, evidence: &Evidence) -> Result<String, String> {
    check_with(&["allowed_signers", "anna.asc", "bert.asc"], "anna@example.com", mode, reference, evidence)
}

/// With these keys, and rules that name Anna like this.
fn check_with(
    names: &[&str],
    anna: &str,
    mode: VerifyMode,
    reference: &str,
    evidence: &Evidence,
) -> Result<String, String> {
    let files: Vec<_> = names.iter().map(|name| (*name, fixture(name))).collect();
    let keys = Keys::parse(files.iter().map(|(name, content)| (*name, &**content))).unwrap();
    let rules = vec![
        SignerRule { path: "landscapes/prod/**".to_owned(), signers: vec![anna.to_owned()] },
        SignerRule { path: "*.yaml".to_owned(), signers: vec![anna.to_owned(), "Bert".to_owned()] },
    ];
    let settings = Verify { mode, secret: "keys".to_owned(), rules };
    let now = "2026-11-25T12:00:00Z".parse().unwrap();
    judge(&settings, &keys, (reference, evidence.head.id), evidence, now)
        .map(|verified| verified.to_string())
        .map_err(|refusal| refusal.to_string())
}

fn touch(evidence: Evidence, commit: &str, paths: &[(usize, &str)]) -> Evidence {
    let paths = paths.iter().map(|(rule, path)| (*rule, (*path).to_owned())).collect();
    Evidence { touched: vec![Touched { commit: stored(commit), paths }], ..evidence }
}

#[test]
fn the_mode_says_whether_commit_or_tag_must_be_signed() {
    let anna = "anna@example.com with key 228426C23F64254E2DC235BA1CA5716F8D4D774C";
    let signed = |what: &str| Ok(format!("the {what} is signed by {anna}"));
    use VerifyMode::{Head, Tag, TagAndHead};
    assert_eq!(check(Head, "main", &revision("openpgp-anna.commit")), signed("commit"));
    assert_eq!(check(Tag, "v1", &tagged("unsigned.commit")), signed("tag"));
    let both = format!("the commit is signed by {anna}, the tag by {anna}");
    assert_eq!(check(TagAndHead, "v1", &tagged("openpgp-anna.commit")), Ok(both));
    for (mode, reference, evidence, expected) in [
        (Head, "main", revision("unsigned.commit"), format!("commit {ID} is not verified: it is not signed")),
        (
            Tag,
            "main",
            revision("openpgp-anna.commit"),
            "spec.verify.mode requires a signed tag, and main is none; follow an annotated tag with spec.ref"
                .to_owned(),
        ),
        (Tag, "v2", tagged("openpgp-anna.commit"), "the tag v2 was signed as \"v1\"".to_owned()),
    ] {
        assert_eq!(check(mode, reference, &evidence), Err(expected), "{mode:?} {reference}");
    }
    let unsigned = check(TagAndHead, "v1", &tagged("unsigned.commit")).unwrap_err();
    assert!(unsigned.ends_with("is not verified: it is not signed"), "{unsigned}");
    let other = Evidence { head: stored("unsigned.commit"), ..tagged("unsigned.commit") };
    let other = check(Tag, "v1", &other).unwrap_err();
    assert!(other.contains("it names another object than the one that was read"), "{other}");
}

#[test]
fn every_commit_that_touches_a_path_is_signed_by_one_who_may() {
    let head = || revision("openpgp-anna.commit");
    let check = |evidence: &Evidence| check(VerifyMode::Head, "main", evidence);
    let prod = (0, "landscapes/prod/kyma.yaml");
    assert!(check(&touch(head(), "openpgp-anna.commit", &[prod, (1, prod.1)])).is_ok());
    assert!(check(&touch(head(), "ssh-ed25519.commit", &[prod])).is_ok(), "the other key of the same name");
    assert!(check(&touch(head(), "ssh-ecdsa.commit", &[(1, "a.yaml")])).is_ok());
    let bert = "bert@example.com with key BB87CBE1CCE920546857250EFC49851C4D89D2A2";
    let refused = |signed_by: &str, path: &str, rule: &str, allowed: &str| {
        Err(format!(
            "commit {ID} changes {path} and {signed_by}, but only {allowed} may sign changes of {rule} \
             (spec.verify.paths): remove that commit from the branch, and let one of them commit the change"
        ))
    };
    let found = check(&touch(head(), "openpgp-bert.commit", &[prod]));
    assert_eq!(found, refused(&format!("is signed by {bert}"), prod.1, "landscapes/prod/**", "anna@example.com"));
    let found = check(&touch(head(), "unsigned.commit", &[(1, "a.yaml")]));
    let unsigned = "is not verified (it is not signed)";
    assert_eq!(found, refused(unsigned, "a.yaml", "*.yaml", "anna@example.com, Bert"));
}

#[test]
fn the_head_or_the_tag_answers_for_what_no_single_commit_changes() {
    let vouched = BTreeMap::from([(0, "landscapes/prod/kyma.yaml".to_owned())]);
    let with = |evidence: Evidence| Evidence { vouched: vouched.clone(), ..evidence };
    assert!(check(VerifyMode::Head, "main", &with(revision("openpgp-anna.commit"))).is_ok());
    let bert = check(VerifyMode::Head, "main", &with(revision("openpgp-bert.commit"))).unwrap_err();
    let begin = "answers for landscapes/prod/kyma.yaml, which no verified revision before it has, and is signed by ";
    assert!(bert.contains(begin), "{bert}");
    assert!(bert.contains("only anna@example.com may sign changes of landscapes/prod/**"), "{bert}");
    assert!(check(VerifyMode::Tag, "v1", &with(tagged("unsigned.commit"))).is_ok(), "the tag's signer may");
    assert!(check(VerifyMode::Tag, "v1", &with(tagged("openpgp-bert.commit"))).is_ok());
}

#[test]
fn a_history_that_is_not_known_completely_is_refused() {
    let evidence = Evidence { gap: Some(Gap::Commits(10)), ..revision("openpgp-anna.commit") };
    let found = check(VerifyMode::Head, "main", &evidence);
    let expected = "the changes since the active revision cannot be judged: there are more than 10 commits";
    assert_eq!(found, Err(expected.to_owned()));
}

/// `claim.asc` is a key of someone else, who has given it the address of Anna.
#[test]
fn a_name_that_two_openpgp_keys_claim_names_no_signer() {
    let prod = (0, "landscapes/prod/kyma.yaml");
    let check = |keys: &[&str], anna: &str, commit: &str| {
        let evidence = touch(revision("openpgp-anna.commit"), commit, &[prod]);
        check_with(keys, anna, VerifyMode::Head, "main", &evidence).map(drop)
    };
    let (anna, fingerprint) = ("anna@example.com", "228426C23F64254E2DC235BA1CA5716F8D4D774C");
    let both = ["allowed_signers", "anna.asc", "claim.asc"];
    assert_eq!(check(&both[..2], anna, "openpgp-anna.commit"), Ok(()));
    for keys in [both, ["claim.asc", "anna.asc", "allowed_signers"]] {
        for commit in ["openpgp-anna.commit", "openpgp-claim.commit"] {
            let refused = check(&keys, anna, commit).unwrap_err();
            assert!(refused.contains(" claims the name anna@example.com as well: name the right one by"), "{refused}");
        }
        assert_eq!(check(&keys, fingerprint, "openpgp-anna.commit"), Ok(()));
        assert!(check(&keys, fingerprint, "openpgp-claim.commit").is_err());
        // The operator has written whose key this is.
        assert_eq!(check(&keys, anna, "ssh-ed25519.commit"), Ok(()));
    }
}
