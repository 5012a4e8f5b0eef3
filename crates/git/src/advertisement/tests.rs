use super::*;

fn packets(lines: &[&str]) -> Vec<u8> {
    let packet = |line: &&str| match *line {
        "" => "0000".to_owned(),
        line => packet::packet(line),
    };
    lines.iter().map(packet).collect::<String>().into_bytes()
}

fn main() -> Reference {
    Reference::Branch("main".to_owned())
}

#[track_caller]
fn check(bytes: &[u8], expected: &str) {
    let found = match read(bytes, &main()) {
        Ok(_) => "valid".to_owned(),
        Err(Problem::Refused(text)) => format!("refused: {}", text.escape_ascii()),
        Err(Problem::NoRepository(text)) => format!("no repository: {}", text.escape_ascii()),
        Err(problem) => format!("{problem:?}"),
    };
    assert_eq!(found, expected);
}

const SERVICE: &str = "# service=git-upload-pack\n";
const ID: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "1123456789abcdef0123456789abcdef01234567";

fn head() -> String {
    format!("{ID} HEAD\0side-band-64k symref=HEAD:refs/heads/dev agent=git/2\n")
}

#[test]
fn an_advertisement_is_service_flush_references_flush() {
    check(&packets(&[SERVICE, "", &head(), ""]), "valid");
    check(&packets(&[SERVICE, "", ""]), "valid");
    check(b"", "Cut");
    check(b"<html>", "Invalid");
    check(b"0001", "Invalid");
    check(b"+00a123456", "Invalid");
    check(&packets(&["", ""]), "Invalid");
    check(&packets(&["# service=git-receive-pack\n", "", ""]), "Invalid");
    check(&packets(&[SERVICE, "", "nothing\n", ""]), "Invalid");
    check(&packets(&[SERVICE, "", "ERR access denied\n", ""]), "no repository: access denied\\n");
    check(&packets(&["ERR access denied\n"]), "no repository: access denied\\n");
    let sha256 = format!("{} HEAD\0object-format=sha256\n", "0".repeat(64));
    check(&packets(&[SERVICE, "", &sha256, ""]), "Sha256");
}

#[test]
fn only_what_says_so_means_that_there_is_no_repository() {
    for text in [
        "access denied or repository not exported: /landscape.git",
        "no such repository: /landscape.git",
        "Repository not found.",
        "The project you were looking for could not be found or you don't have permission to view it.",
        "TF401019: The Git repository with name or identifier landscape does not exist",
    ] {
        check(&packets(&[SERVICE, "", &format!("ERR {text}")]), &format!("no repository: {}", text.escape_debug()));
    }
    for text in ["repository is locked", "upload-pack: too many connections", "disk quota exceeded", ""] {
        check(&packets(&[SERVICE, "", &format!("ERR {text}")]), &format!("refused: {text}"));
        check(&packets(&[&format!("ERR {text}")]), &format!("refused: {text}"));
    }
}

#[test]
fn an_advertisement_cut_anywhere_is_cut() {
    let whole = packets(&[SERVICE, "", &head(), ""]);
    for length in 0..whole.len() {
        check(&whole[..length], "Cut");
    }
}

#[test]
fn only_what_is_followed_is_kept() {
    let lines = [
        SERVICE.to_owned(),
        String::new(),
        head(),
        format!("{ID} refs/heads/dev\n"),
        format!("{OTHER} refs/heads/main\n"),
        format!("{OTHER} refs/pull/1/head\n"),
        format!("{ID} refs/tags/main\n"),
        format!("{OTHER} refs/tags/main^{{}}\n"),
        format!("shallow {OTHER}\n"),
        String::new(),
    ];
    let bytes = packets(&lines.each_ref().map(String::as_str));
    let (id, other): (Oid, Oid) = (ID.parse().unwrap(), OTHER.parse().unwrap());
    let read = |follow| read(&bytes[..], &follow).unwrap();
    assert_eq!(read(main()).found, Some(other));
    assert_eq!(read(Reference::Tag("main".to_owned())).found, Some(id));
    assert_eq!(read(Reference::Branch("none".to_owned())).found, None);
    let default = read(Reference::Default);
    assert_eq!((default.found, default.head.as_deref(), default.all.len()), (Some(id), Some("dev"), 0));
    assert!(default.capabilities.side_band_64k && default.capabilities.agent && !default.capabilities.ofs_delta);
    let commit = read(Reference::Commit(other));
    assert_eq!((commit.found, commit.all, commit.is_empty), (Some(other), vec![id, other, id], false));
}

#[test]
fn a_repository_without_commits_is_empty() {
    let line = format!("{} capabilities^{{}}\0side-band-64k\n", "0".repeat(40));
    assert!(read(&packets(&[SERVICE, "", &line, ""])[..], &main()).unwrap().is_empty);
}

#[test]
fn references_without_a_name_in_utf8_are_left_out() {
    let mut bytes = packets(&[SERVICE, "", &head()]);
    bytes.extend_from_slice(format!("{:04x}{ID} refs/heads/", 4 + ID.len() + 12 + 2).as_bytes());
    bytes.extend_from_slice(b"\xff\n0000");
    assert_eq!(read(&bytes[..], &main()).unwrap().found, None);
}
