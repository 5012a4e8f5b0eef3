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
        let folded = OPEN_MAX < items.len();
        self.titled(title, items, end, folded);
    }

    /// Appends a folded list, as far as there is room.
    pub(super) fn folded(&mut self, title: &str, items: impl ExactSizeIterator<Item = String>) {
        self.titled(title, items, 0, true);
    }

    fn titled(&mut self, title: &str, items: impl ExactSizeIterator<Item = String>, end: usize, folded: bool) {
        let count = items.len();
        let title = format!("{title} ({})", thousands(count));
        let title = if folded {
            format!("\n<details><summary><b>{title}</b></summary>\n\n")
        } else {
            format!("\n**{title}**\n\n")
        };
        if count == 0 || !self.try_push(&title, end + LIST_TAIL) {
            return;
        }
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

    /// Appends a block that hosts show with a severity, as far as `end` characters remain. Omitted items are counted.
    pub(super) fn alert(&mut self, severity: &str, title: &str, items: &[String], end: usize) {
        if items.is_empty() {
            return;
        }
        self.push(&format!("\n> [!{severity}]\n> **{title}**\n>\n"));
        let mut shown = 0;
        for item in items {
            let lines: Vec<&str> = item.lines().collect();
            if !self.try_push(&format!("> - {}\n", lines.join("\n> ")), end + LIST_TAIL) {
                break;
            }
            shown += 1;
        }
        if shown < items.len() {
            self.push(&format!("> - and {} more\n", thousands(items.len() - shown)));
        }
    }

    /// The text.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// The text, with a note about what is omitted.
    pub(super) fn finish(mut self, left: &Left) -> String {
        self.text.push_str(&left.say());
        self.text
    }
}
