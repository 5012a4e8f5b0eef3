//! Common wording for numbers, lists and differences in every output.

use super::model::{Action, Difference, Effect, Side};
use tidegate_core::name::Key;

/// The number of runtime names that are shown before the rest is counted.
pub(super) const NAMES_SHOWN: usize = 5;

/// `5,000`.
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
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

/// The first names of a list, and the number of the others.
pub(super) fn names(keys: &[Key], shown_max: usize) -> String {
    let shown: Vec<String> = keys.iter().take(shown_max).map(Key::to_string).collect();
    match keys.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), thousands(more)),
    }
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

/// What prevents a difference from taking effect; `None` if nothing does.
pub(super) fn waits(effect: Effect) -> Option<&'static str> {
    match effect {
        Effect::Applies => None,
        Effect::NeedsConfirmation => Some("needs confirmation"),
        Effect::Held => Some("does not take effect yet"),
    }
}

/// The object, and the number of others with the same difference.
pub(super) fn objects(difference: &Difference) -> String {
    // In runtimes, one object per runtime is expected.
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
    let objects = objects(difference);
    let is_one = difference.target == Side::Runtime || difference.objects <= 1;
    let happens = match (difference.action, is_one) {
        (Action::Conflict, true) => "is in conflict with other managers",
        (Action::Conflict, false) => "are in conflict with other managers",
        (Action::Delete, true) => "is deleted",
        (Action::Delete, false) => "are deleted",
        (Action::Refuse, true) => "is refused by the API server",
        (Action::Refuse, false) => "are refused by the API server",
        (Action::Recreate, true) => "is deleted and created again",
        (Action::Recreate, false) => "are deleted and created again",
        (Action::Change, true) => "changes",
        (Action::Change, false) => "change",
        (Action::Create, true) => "is created",
        (Action::Create, false) => "are created",
    };
    let why = difference.refusal.as_ref().map(|refusal| format!(": {refusal}")).unwrap_or_default();
    let overdue = difference.overdue.as_ref().map(|overdue| format!("; {}", overdue.sentence)).unwrap_or_default();
    format!("{objects} {happens} {}{why}{overdue}", whereabouts(difference))
}
