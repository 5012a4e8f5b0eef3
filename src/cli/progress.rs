//! The progress of a long command, for a user at a terminal.
//!
//! It is written to standard error, and only if that is a terminal: a file or the log of a pipeline gets nothing.

use std::{borrow::Cow, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line with the current step. Dropping it removes the line.
pub(super) struct Progress(ProgressBar);

/// How often the line moves: often enough to look alive.
const TICK: Duration = Duration::from_millis(100);

impl Progress {
    /// Starts with a step of unknown length.
    pub(super) fn start(step: impl Into<Cow<'static, str>>) -> Progress {
        // indicatif draws nothing if standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("the template is ours"));
        bar.set_message(step);
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Progress(bar)
    }

    /// Continues with a step of unknown length.
    pub(super) fn step(&self, step: impl Into<Cow<'static, str>>) {
        self.0.set_message(step);
    }

    /// Continues with a step of `parts` parts.
    pub(super) fn start_step(&self, step: impl Into<Cow<'static, str>>, parts: usize) {
        let template = "{spinner} {msg} {wide_bar} {human_pos}/{human_len} {elapsed}";
        self.0.set_style(ProgressStyle::with_template(template).expect("the template is ours"));
        self.0.set_length(parts as u64);
        self.0.set_position(0);
        self.0.set_message(step);
    }

    /// One part is done.
    pub(super) fn advance(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
