use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

#[test]
fn an_object_id_reads_what_it_prints() {
    assert_eq!(COMMIT.parse::<Oid>().unwrap().to_string(), COMMIT);
    for bad in ["", "0123", &COMMIT.replace('f', "g"), &format!("{COMMIT}0")] {
        assert_eq!(bad.parse::<Oid>(), Err(ParseOidError(bad.to_owned())));
    }
}

#[test]
fn a_revision_prints_as_in_status() {
    let revision = Revision::Commit { name: "main".into(), commit: COMMIT.parse().unwrap() };
    assert_eq!(revision.to_string(), format!("main@sha1:{COMMIT}"));
    assert_eq!(Revision::WorkTree.to_string(), "worktree");
}
