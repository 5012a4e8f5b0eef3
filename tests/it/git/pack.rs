//! Packs that git itself would never write, and the answers of a server that sends them.

use std::io::Write as _;

use git2::{ObjectType, Oid};

use super::server::{Action, Request};

const COMMIT: u8 = 1;
const TREE: u8 = 2;
const BLOB: u8 = 3;
const OFS_DELTA: u8 = 6;

/// A pack that grows.
#[derive(Default)]
pub(crate) struct Pack {
    bytes: Vec<u8>,
    count: u32,
    /// Whether its contents are compressed, as git does.
    is_compressed: bool,
}

/// A repository of one branch, as a server answers for it.
#[derive(Clone)]
pub(crate) struct Answers {
    tip: String,
    pack: Vec<u8>,
}

impl Pack {
    /// A pack whose contents are compressed.
    pub(crate) fn compressed() -> Pack {
        Pack { is_compressed: true, ..Pack::default() }
    }

    fn put(&mut self, content: &[u8]) {
        if !self.is_compressed {
            return self.bytes.extend(stored(content));
        }
        let mut encoder = flate2::write::ZlibEncoder::new(&mut self.bytes, flate2::Compression::best());
        encoder.write_all(content).expect("a vector takes all");
    }

    /// Adds a blob.
    pub(crate) fn blob(&mut self, content: &[u8]) -> usize {
        self.object(BLOB, content.len(), content)
    }

    fn object(&mut self, kind: u8, size: usize, content: &[u8]) -> usize {
        let offset = self.begin(kind, size);
        self.put(content);
        offset
    }

    /// Begins an object; its offset.
    fn begin(&mut self, kind: u8, size: usize) -> usize {
        self.count += 1;
        let offset = self.bytes.len();
        let mut byte = kind << 4 | u8::try_from(size & 15).unwrap();
        let mut rest = size >> 4;
        while rest != 0 {
            self.bytes.push(byte | 0x80);
            byte = u8::try_from(rest & 0x7f).unwrap();
            rest >>= 7;
        }
        self.bytes.push(byte);
        offset
    }

    /// Adds an object that is `times` the start of another one, of `piece` bytes. A few bytes describe gigabytes.
    pub(crate) fn copies(&mut self, base: usize, base_size: usize, piece: usize, times: usize) -> usize {
        let mut delta = varint(base_size);
        delta.extend(varint(piece * times));
        let size = u32::try_from(piece).unwrap().to_le_bytes();
        for _ in 0..times {
            delta.extend([0xf0, size[0], size[1], size[2]]);
        }
        let offset = self.begin(OFS_DELTA, delta.len());
        let mut distance = offset - base;
        let mut digits = vec![u8::try_from(distance & 0x7f).unwrap()];
        while distance >> 7 != 0 {
            distance = (distance >> 7) - 1;
            digits.insert(0, 0x80 | u8::try_from(distance & 0x7f).unwrap());
        }
        self.bytes.extend(digits);
        self.put(&delta);
        offset
    }

    /// Adds a commit with one file.
    pub(crate) fn commit(&mut self, path: &str, content: &[u8]) -> Oid {
        self.blob(content);
        let blob = Oid::hash_object(ObjectType::Blob, content).unwrap();
        let tree = [format!("100644 {path}\0").as_bytes(), blob.as_bytes()].concat();
        self.object(TREE, tree.len(), &tree);
        let tree = Oid::hash_object(ObjectType::Tree, &tree).unwrap();
        let who = "a <a@example.com> 1700000000 +0000";
        let commit = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\nchange\n");
        self.object(COMMIT, commit.len(), commit.as_bytes());
        Oid::hash_object(ObjectType::Commit, commit.as_bytes()).unwrap()
    }

    /// Adds a commit object that is as large as can be.
    pub(crate) fn large_commit(&mut self, piece: usize, times: usize) {
        let base = self.object(COMMIT, piece, &vec![0; piece]);
        let middle = self.copies(base, piece, piece, times);
        self.copies(middle, piece * times, piece * times, times);
    }

    /// The pack with header and checksum.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut pack = [&b"PACK\0\0\0\x02"[..], &self.count.to_be_bytes(), &self.bytes].concat();
        // Offsets within the pack are distances, so the header does not matter to them.
        let checksum = sha1(&pack);
        pack.extend(checksum);
        pack
    }
}

impl Answers {
    /// The commit at the tip of the branch.
    pub(crate) fn tip(&self) -> &str {
        &self.tip
    }

    /// A server whose `main` is at `tip`, and which sends this pack to every client.
    pub(crate) fn new(tip: impl ToString, pack: Vec<u8>) -> Answers {
        Answers { tip: tip.to_string(), pack }
    }

    /// The length of the pack.
    pub(crate) fn pack_bytes(&self) -> usize {
        self.pack.len()
    }

    pub(crate) fn to(&self, request: &Request) -> Action {
        let (kind, body) =
            if request.is_for_pack() { ("result", self.result()) } else { ("advertisement", self.advertisement()) };
        Action::Answer(200, vec![("content-type", format!("application/x-git-upload-pack-{kind}"))], body)
    }

    pub(crate) fn advertisement(&self) -> Vec<u8> {
        let tip = &self.tip;
        let lines = [
            packet(b"# service=git-upload-pack\n"),
            b"0000".to_vec(),
            packet(format!("{tip} HEAD\0side-band-64k ofs-delta symref=HEAD:refs/heads/main\n").as_bytes()),
            packet(format!("{tip} refs/heads/main\n").as_bytes()),
            b"0000".to_vec(),
        ];
        lines.concat()
    }

    pub(crate) fn result(&self) -> Vec<u8> {
        let mut bytes = packet(b"NAK\n");
        for piece in self.pack.chunks(60_000) {
            bytes.extend(packet(&[&[1], piece].concat()));
        }
        bytes.extend(b"0000");
        bytes
    }
}

/// A packet of git's protocol.
pub(crate) fn packet(line: &[u8]) -> Vec<u8> {
    [format!("{:04x}", line.len() + 4).as_bytes(), line].concat()
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while 0x7f < value {
        bytes.push(0x80 | u8::try_from(value & 0x7f).unwrap());
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

/// A zlib stream that compresses nothing.
fn stored(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x78, 0x01];
    let mut blocks = content.chunks(0xffff).peekable();
    if blocks.peek().is_none() {
        bytes.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap();
        bytes.push(u8::from(blocks.peek().is_none()));
        bytes.extend(length.to_le_bytes());
        bytes.extend((!length).to_le_bytes());
        bytes.extend(block);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in content {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    bytes.extend((b << 16 | a).to_be_bytes());
    bytes
}

/// SHA-1 (FIPS 180-4), for the checksum at the end of a pack.
fn sha1(content: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = content.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - content.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    let length = padded.len();
    padded[length - 8..].copy_from_slice(&(u64::try_from(content.len()).unwrap() * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes(bytes.try_into().unwrap());
        }
        for index in 16..80 {
            let mixed = words[index - 3] ^ words[index - 8] ^ words[index - 14] ^ words[index - 16];
            words[index] = mixed.rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (index, word) in words.iter().enumerate() {
            let (mixed, constant) = match index {
                0..20 => (b & c | !b & d, 0x5a82_7999_u32),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
        }
        for (sum, value) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(value);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}
