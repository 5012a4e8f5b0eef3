//! A text with a length limit.

use super::Left;
use crate::words::thousands;

/// A text with a length limit, in characters.
pub(super) struct Page {
    text: String,
    used: usize,
    budget: usize,
}

/// Reserve for the end of a list: `and 5,000 more`, and its closing element.
const LIST_TAIL: usize = 60;
/// Longer lists are folded.
const OPEN_MAX: usize = 5;

impl Page {
    pub(super) fn new(budget: usize) -> Page {
        Page { text: String::new(), used: 0, budget }
    }

    /// The remaining characters.
    pub(super) fn left(&self) -> usize {
        self.budget.saturating_sub(self.used)
    }

    /// Appends a text of bounded length.
    pub(super) fn push(&mut self, text: &str) {
        self.used += text.chars().count();
        self.text.push_str(text);
    }

    /// Appends a text if at least `reserve` characters remain.
    pub(super) fn try_push(&mut self, text: &str, reserve: usize) -> bool {
        let fits = text.chars().count() + reserve <= self.left();
        if fits {
            self.push(text);
        }
        fits
    }

    /// Appends a list with a title, as far as `end` characters remain. Omitted items are counted.
    pub(super) fn list(&mut self, title: &str, items: impl ExactSizeIterator<Item = String>, end: usize) {
        let count = items.len();
        if count == 0 {
            return;
        }
        let folded = count > OPEN_MAX;
        let title = format!("{title} ({})", thousands(count));
        self.push(&if folded {
            format!("\n<details><summary><b>{title}</b></summary>\n\n")
        } else {
            format!("\n**{title}**\n\n")
        });
        let mut shown = 0;
        for item in items {
            if !self.try_push(&format!("- {item}\n"), end + LIST_TAIL) {
                break;
            }
            shown += 1;
        }
        if shown < count {
            self.push(&format!("- and {} more\n", thousands(count - shown)));
        }
        if folded {
            self.push("\n</details>\n");
        }
    }

    /// The text, with a note about what is omitted.
    pub(super) fn finish(mut self, left: &Left) -> String {
        self.text.push_str(&left.say());
        self.text
    }
}
