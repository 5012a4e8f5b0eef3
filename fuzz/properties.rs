//! What holds for any bytes. The fuzz targets run these, and so does `cargo test` over the seeds.
#![allow(dead_code, reason = "each target runs one of them")]

use tidegate_agent::{decide, manager::Manager, review::Review};
use tidegate_events::event::Event;
use tidegate_git::{Url, fuzz as git};

/// Parsing any body ends. An event that was parsed is written so that parsing it gives the same event.
pub(crate) fn event(bytes: &[u8]) {
    if let Ok(event) = Event::parse(bytes) {
        assert_eq!(Event::parse(event.to_body().as_bytes()), Ok(event));
    }
}

/// Any review gets an answer: JSON that allows the request. An event is short and can be parsed.
pub(crate) fn admission_review(bytes: &[u8]) {
    let Ok(review) = Review::parse(bytes) else { return };
    let decision = decide::decide(&review.request);
    let answer: serde_json::Value = serde_json::from_slice(&review.answer(&decision.message)).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(answer["response"]["uid"], review.request.uid.as_str());
    assert!(decision.event.is_none() || decision.wrong.is_none());
    if let Some(event) = decision.event {
        assert!(!event.watched.name.is_empty());
        let body = event.to_body();
        assert!(body.len() < 16 << 10, "{} bytes", body.len());
        assert_eq!(Event::parse(body.as_bytes()), Ok(event));
    }
}

/// The manager of any path is a normalized path: a path with it gives the same manager.
pub(crate) fn manager(bytes: &[u8]) {
    let Ok(path) = std::str::from_utf8(bytes) else { return };
    let Some(manager) = Manager::of_path(path) else { return };
    let sent = manager.event_path("v2");
    assert!(sent.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'"' | b'<' | b'>')));
    assert!(!sent.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")), "{sent}");
    let name = sent.strip_prefix("/v2/").and_then(|rest| rest.strip_suffix("/event")).unwrap();
    assert_eq!(Manager::of_path(&format!("/validate/{name}")), Some(manager));
}

/// Whatever a git server advertises, reading it ends, and no more is kept than was sent.
pub(crate) fn git_advertisement(bytes: &[u8]) {
    let id = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
    let (is_valid, wants) = git::advertisement(bytes, id);
    assert!(is_valid || wants == 0);
    assert!(wants * 40 <= bytes.len());
}

/// Whatever a git server sends as a pack, unwrapping and indexing it ends.
pub(crate) fn git_pack(bytes: &[u8]) {
    let folder = std::env::temp_dir().join(format!("tidegate-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    if let Some(length) = git::pack(bytes, &folder) {
        assert!(length <= bytes.len());
        // The name is the checksum, so the next one of the same content replaces it.
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// Whatever a tree object contains, every path in it is below its root, and hidden names are left out.
pub(crate) fn git_tree(bytes: &[u8]) {
    let Some((paths, children)) = git::tree(bytes) else { return };
    assert!(children * 22 <= bytes.len());
    for path in paths {
        assert!(!path.starts_with('.') && !path.contains('/'), "{path:?}");
    }
}

/// Whatever `known_hosts` contains, reading it ends, and a host has no more keys than there are lines.
pub(crate) fn git_known_hosts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for (host, port) in [("git.example.com", 22), ("git.example.com", 2222), ("::1", 22)] {
        // Lines with and without the port may revoke keys.
        assert!(git::known_hosts(text, host, port).unwrap_or_default() <= text.lines().count());
    }
}

/// Any URL of a repository prints as a URL that is read as the same one, without the user info of https.
pub(crate) fn git_url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(url) = text.parse::<Url>() else { return };
    let shown = url.to_string();
    let is_local = url.path().is_some();
    assert!(
        is_local || !shown.starts_with("http") || !shown.split('/').nth(2).is_some_and(|host| host.contains('@')),
        "{shown}"
    );
    if !is_local {
        let again: Url = shown.parse().unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!((again.to_string(), again.server(), again.is_ssh()), (shown, url.server(), url.is_ssh()));
    }
}
