use super::*;

fn packets(lines: &[&str]) -> Vec<u8> {
    let packet = |line: &&str| match *line {
        "" => "0000".to_owned(),
        line => format!("{:04x}{line}", line.len() + 4),
    };
    lines.iter().map(packet).collect::<String>().into_bytes()
}

/// Returns only the verdict.
fn check(bytes: &[u8]) -> Result<(), Problem> {
    checked(bytes).map(drop)
}

const SERVICE: &str = "# service=git-upload-pack\n";
const HEAD: &str = "0123456789abcdef0123456789abcdef01234567 HEAD\0side-band-64k agent=git/2\n";

#[test]
fn an_advertisement_is_service_flush_references_flush() {
    assert_eq!(check(&packets(&[SERVICE, "", HEAD, ""])), Ok(()));
    assert_eq!(check(&packets(&[SERVICE, "", ""])), Ok(()));
}

#[test]
fn what_is_no_advertisement_is_told_apart() {
    assert_eq!(check(b""), Err(Problem::Broken));
    assert_eq!(check(b"<html>"), Err(Problem::Broken));
    assert_eq!(check(b"0001"), Err(Problem::Broken));
    assert_eq!(check(b"+00a123456"), Err(Problem::Broken));
    assert_eq!(check(&packets(&["# service=git-receive-pack\n", "", ""])), Err(Problem::Broken));
    assert_eq!(check(&packets(&[SERVICE, "", "ERR access denied\n", ""])), Err(Problem::Refused));
    let sha256 = format!("{} HEAD\0object-format=sha256\n", "0".repeat(64));
    assert_eq!(check(&packets(&[SERVICE, "", &sha256, ""])), Err(Problem::Sha256));
}

#[test]
fn an_advertisement_cut_anywhere_is_broken() {
    let whole = packets(&[SERVICE, "", HEAD, ""]);
    for length in 0..whole.len() {
        assert_eq!(check(&whole[..length]), Err(Problem::Broken), "{length}");
    }
}

#[test]
fn references_without_a_name_in_utf8_are_left_out() {
    let mut bytes = packets(&[SERVICE, "", HEAD]);
    let whole = bytes.len();
    let id = "0123456789abcdef0123456789abcdef01234567";
    bytes.extend_from_slice(format!("{:04x}{id} refs/heads/", 4 + id.len() + 12 + 2).as_bytes());
    bytes.extend_from_slice(b"\xff\n0000");
    let kept = checked(&bytes).unwrap();
    assert_eq!(kept, [&bytes[..whole], b"0000"].concat());
}
