use super::*;

const TREE: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n";
const AUTHOR: &str = "author Anna <anna@example.com> 1700000000 +0100\n";
const COMMITTER: &str = "committer Anna <anna@example.com> 1700000001 +0100\n";
const SIGNATURE: &str = "gpgsig -----BEGIN SSH SIGNATURE-----\n QQ==\n -----END SSH SIGNATURE-----\n";

fn commit(headers: &[&str]) -> Result<SignedObject, Refusal> {
    SignedObject::parse(ObjectKind::Commit, format!("{}\nmessage\n", headers.concat()).as_bytes())
}

#[test]
fn a_commit_without_its_signature_is_what_was_signed() {
    let signed = commit(&[TREE, AUTHOR, COMMITTER, SIGNATURE]).unwrap();
    assert_eq!(signed.payload(), [TREE, AUTHOR, COMMITTER, "\nmessage\n"].concat().as_bytes());
    let armored = "-----BEGIN SSH SIGNATURE-----\nQQ==\n-----END SSH SIGNATURE-----";
    assert_eq!(signed.signature(), Ok(Signature::Ssh(armored)));
    assert_eq!(signed.signed_at(), Some(1_700_000_001));
    // Headers may follow.
    let signed = commit(&[TREE, AUTHOR, COMMITTER, "encoding latin1\n", SIGNATURE, "extra 1\n"]).unwrap();
    let payload = [TREE, AUTHOR, COMMITTER, "encoding latin1\n", "extra 1\n", "\nmessage\n"].concat();
    assert_eq!(signed.payload(), payload.as_bytes());
}

#[test]
fn a_commit_that_could_be_read_in_two_ways_is_refused() {
    for (headers, expected) in [
        (&[TREE, AUTHOR, COMMITTER, SIGNATURE, SIGNATURE][..], "it has several signatures"),
        (&[TREE, TREE, AUTHOR, COMMITTER, SIGNATURE], "its headers are in another order"),
        (&[TREE, AUTHOR, "parent 0\n", COMMITTER, SIGNATURE], "its headers are in another order"),
        (&[TREE, AUTHOR, COMMITTER, "parent 0\n", SIGNATURE], "its headers are in another order"),
        (&[AUTHOR, COMMITTER, SIGNATURE], "its headers are in another order"),
        (&[TREE, AUTHOR, COMMITTER, "gpgsig-sha256 a\n"], "it has a signature for SHA-256 ids"),
        (&[TREE, AUTHOR, COMMITTER, "lonely\n"], "a header has no value"),
    ] {
        assert_eq!(commit(headers), Err(Refusal::Strange(expected)), "{headers:?}");
    }
    let endless = SignedObject::parse(ObjectKind::Commit, b"tree 0");
    assert_eq!(endless, Err(Refusal::Strange("a header has no end")));
}

#[test]
fn a_signature_of_an_unknown_kind_is_refused_by_name() {
    let kind = |line: &str| {
        let signed = commit(&[TREE, AUTHOR, COMMITTER, &format!("gpgsig {line}\n")]).unwrap();
        signed.signature().unwrap_err()
    };
    let smime = Refusal::NotUnderstood("S/MIME is not supported; sign with OpenPGP or SSH");
    assert_eq!(kind("-----BEGIN SIGNED MESSAGE-----"), smime);
    assert_eq!(kind("AAAA"), Refusal::NotUnderstood("it is neither OpenPGP nor SSH"));
    assert_eq!(kind(&"A".repeat(20_000)), Refusal::NotUnderstood("it is larger than 16 KiB"));
    assert_eq!(commit(&[TREE, AUTHOR, COMMITTER]).unwrap().signature(), Err(Refusal::Unsigned));
}

#[test]
fn the_last_signature_in_the_message_of_a_tag_is_its_signature() {
    let head = "object 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ntype commit\ntag v1\n\
                tagger Anna <anna@example.com> 1700000000 +0000\n\nfirst\n";
    let signature = "-----BEGIN PGP SIGNATURE-----\n\nQQ==\n-----END PGP SIGNATURE-----\n";
    let text = format!("{head}{signature}more\n{signature}");
    let tag = SignedObject::parse(ObjectKind::Tag, text.as_bytes()).unwrap();
    assert_eq!(tag.payload(), format!("{head}{signature}more\n").as_bytes());
    assert_eq!(tag.signature(), Ok(Signature::OpenPgp(signature)));
    assert_eq!((tag.tag_name(), tag.target()), (Some("v1"), "4b825dc642cb6eb9a060e54bf8d69288fbee4904"));
    let unsigned = SignedObject::parse(ObjectKind::Tag, head.as_bytes()).unwrap();
    assert_eq!(unsigned.signature(), Err(Refusal::Unsigned));
}

#[test]
fn a_huge_object_is_not_parsed() {
    let bytes = vec![b'a'; OBJECT_BYTES_MAX + 1];
    assert_eq!(SignedObject::parse(ObjectKind::Commit, &bytes), Err(Refusal::TooLarge));
}
