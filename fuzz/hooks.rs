//! What holds for any delivery of a git host. The fuzz target runs it, and so does `cargo test` over the seeds.
//!
//! The first line has the headers, separated by tabs; the rest is the body.

use tidegate_core::push::{Delivered, Headers, HookSecret, Host, RepositoryAddress, UPDATES_MAX, is_authentic, parse};

/// Reading any delivery ends. Without the token none is authentic. A push names a repository, and each of its addresses
/// is compared with itself as equal, however it is spelt.
pub(crate) fn hook(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (head, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let headers = head.split(|byte| *byte == b'\t').filter_map(|header| {
        let colon = header.iter().position(|byte| *byte == b':')?;
        Some((std::str::from_utf8(&header[..colon]).ok()?, &header[colon + 1..]))
    });
    let headers = Headers::new(headers);
    let Some(host) = Host::of(&headers) else { return };
    assert!(!is_authentic(host, &headers, body, &HookSecret::unknown([0xA5; 32])));
    let Ok((Delivered::Push(push), _)) = parse(host, &headers, body) else { return };
    assert!(!push.repository.is_empty() && push.updates.len() <= UPDATES_MAX);
    for address in push.repository {
        let spelt = address.to_string();
        // A path on this machine has no host, and a path may contain what a URL encodes. Port 443 is no default of ssh.
        let is_plain = spelt.chars().all(|c| !c.is_control() && !['%', '?', '#', '@'].contains(&c));
        if !is_plain
            || spelt.starts_with('/')
            || spelt.contains(":443/")
            || spelt.ends_with(".git")
            || 2_000 < spelt.len()
        {
            continue;
        }
        assert_eq!(RepositoryAddress::parse(&format!("https://{spelt}.git/")), Some(address), "{spelt}");
    }
}
