//! How numbers, lists and differences are said: the same words in every output.

use super::model::{Action, Difference, Side};
use crate::{name::Key, yaml};

/// How many names of runtimes are shown before the rest is counted.
pub(super) const NAMES_SHOWN: usize = 5;

/// `5,000`.
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 object`, `5,000 objects`.
pub(super) fn counted(number: usize, word: &str) -> String {
    format!("{} {word}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// The first names of a list, and how many more there are.
pub(super) fn names(keys: &[Key], shown_max: usize) -> String {
    let shown: Vec<String> = keys.iter().take(shown_max).map(Key::to_string).collect();
    match keys.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), thousands(more)),
    }
}

/// A text on one line, as a terminal and the log of a pipeline may see it.
///
/// Besides what moves a cursor or hides text, it escapes what runners of pipelines take for commands: `::error::` at the
/// beginning of a line, `##[error]` and its like anywhere in it.
pub(super) fn line(text: &str) -> String {
    let mut shown = yaml::printable(text);
    if shown.trim_start().starts_with("::") {
        shown = shown.replacen(':', "\\u{3a}", 1);
    }
    let mut safe = String::with_capacity(shown.len());
    let mut rest = shown.as_str();
    while let Some(start) = rest.find("##") {
        let (before, behind) = rest.split_at(start + 2);
        let word = behind.len() - behind.trim_start_matches(|c: char| c == '#' || c.is_ascii_alphanumeric()).len();
        let (word, behind) = behind.split_at(word);
        safe.extend([before, word]);
        rest = behind.strip_prefix('[').map_or(behind, |behind| {
            safe.push_str("\\u{5b}");
            behind
        });
    }
    safe.push_str(rest);
    safe
}

/// `in the control plane, for 812 runtimes`, `in 3 runtimes`.
pub(super) fn whereabouts(difference: &Difference) -> String {
    let runtimes = counted(difference.runtimes.len(), "runtime");
    match (difference.target, difference.runtimes.len()) {
        (Side::ControlPlane, 0) => "in the control plane".to_owned(),
        (Side::ControlPlane, _) => format!("in the control plane, for {runtimes}"),
        (Side::Runtime, _) => format!("in {runtimes}"),
    }
}

/// The object, and how many others differ alike.
pub(super) fn objects(difference: &Difference) -> String {
    // In runtimes, one object a runtime is what one expects.
    let expected = match difference.target {
        Side::ControlPlane => 1,
        Side::Runtime => difference.runtimes.len().max(1),
    };
    match difference.objects {
        count if count <= expected => difference.id.to_string(),
        count if expected == 1 => format!("{} and {} alike", difference.id, counted(count - 1, "object")),
        count => format!("{} ({})", difference.id, counted(count, "object")),
    }
}

/// The difference as one sentence.
pub(super) fn sentence(difference: &Difference) -> String {
    let happens = match difference.action {
        Action::Conflict => "is in conflict with other managers",
        Action::Delete => "is deleted",
        Action::Recreate => "is deleted and created again",
        Action::Change => "changes",
        Action::Create => "is created",
    };
    format!("{} {happens} {}", objects(difference), whereabouts(difference))
}
