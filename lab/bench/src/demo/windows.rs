//! The policy of maintenance windows.

use std::{fs, path::Path};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// A window that has begun, with time left.
pub(super) const NOW: SignedDuration = SignedDuration::from_hours(-1);
/// A window in some days.
pub(super) const LATER: SignedDuration = SignedDuration::from_hours(3 * 24);

/// Length of a window.
const LENGTH: SignedDuration = SignedDuration::from_hours(4);

/// Writes a policy with one window for all runtimes, which begins after this time.
pub(super) fn write(path: &Path, begin: SignedDuration) -> anyhow::Result<()> {
    let begin = Timestamp::now() + begin;
    let window = json!({"begin": begin.to_string(), "end": (begin + LENGTH).to_string()});
    let policy = json!({"rules": [], "default": window});
    // The daemon never sees half a file.
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, policy.to_string()).with_context(|| format!("cannot write {}", unfinished.display()))?;
    fs::rename(&unfinished, path).with_context(|| format!("cannot write {}", path.display()))
}
