use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// A packet of each line; an empty one is a flush.
fn packets(lines: &[&[u8]]) -> Vec<u8> {
    let packet = |line: &&[u8]| match line.len() {
        0 => b"0000".to_vec(),
        length => [format!("{:04x}", length + 4).as_bytes(), line].concat(),
    };
    lines.iter().flat_map(packet).collect()
}

fn pack(count: u32) -> Vec<u8> {
    [&b"PACK\0\0\0\x02"[..], &count.to_be_bytes(), b"objects"].concat()
}

fn band(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number], bytes].concat()
}

#[track_caller]
fn check(bytes: &[u8], expected: &str) {
    let mut found = Vec::new();
    let result = match unwrap(bytes, &mut found) {
        Ok(()) => format!("{} bytes", found.len()),
        Err(Problem::Refused(text)) => format!("refused: {}", text.escape_ascii()),
        Err(problem) => format!("{problem:?}"),
    };
    assert_eq!(result, expected);
}

#[test]
fn a_pack_comes_in_bands_or_as_it_is() {
    let pack = pack(1);
    let (first, second) = pack.split_at(5);
    let progress = band(2, b"Counting objects: 100%");
    check(&packets(&[b"NAK\n", &progress, &band(1, first), &band(1, second), b""]), "19 bytes");
    let ack = format!("ACK {ID} common\n");
    check(&packets(&[ack.as_bytes(), b"ACK x\n", &band(1, &pack), b""]), "19 bytes");
    check(&[&packets(&[b"NAK\n"]), &pack[..]].concat(), "19 bytes");
}

#[test]
fn an_answer_without_a_complete_pack_says_why() {
    check(b"", "Cut");
    check(&packets(&[b"NAK\n"]), "Cut");
    check(&packets(&[b"NAK\n", &band(1, &pack(1))]), "Cut");
    check(&packets(&[b"NAK\n", b""]), "NoPack");
    check(&packets(&[b"NAK\n", &band(2, b"Counting\r\nDisk is full\n"), b""]), "refused: \\nDisk is full\\n");
    check(&packets(&[b"ERR upload-pack: not our ref\n"]), "refused: upload-pack: not our ref\\n");
    check(&packets(&[b"NAK\n", &band(3, b"aborting\n")]), "refused: aborting\\n");
    check(&packets(&[b"hello\n"]), "Invalid");
    check(&packets(&[b"NAK\n", &band(1, b"not a pack")]), "Invalid");
    check(&packets(&[b"NAK\n", &band(1, &pack(1)), b"NAK\n"]), "Invalid");
    check(&packets(&[b"NAK\n", &band(1, &pack(u32::MAX)), b""]), "TooManyObjects");
    check(b"<html>", "Invalid");
}

#[test]
fn a_request_is_complete() {
    let id: Oid = ID.parse().unwrap();
    let capabilities = Capabilities { side_band_64k: true, ofs_delta: true, agent: false };
    let text = String::from_utf8(request(&[id, id], &[id], capabilities)).unwrap();
    let first = format!("want {ID} side-band-64k ofs-delta\n");
    let expected = format!("{:04x}{first}0032want {ID}\n00000032have {ID}\n0009done\n", first.len() + 4);
    assert_eq!(text, expected);
}
