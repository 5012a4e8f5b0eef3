//! What is known of the policy's file. Pure.

use std::{path::Path, sync::Arc};

use tidegate_core::maintenance::{Policy, Problem};

/// What was last read.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last good policy, and its text.
    active: Option<(Arc<Policy>, String)>,
    last: Last,
    leads: bool,
}

/// How the last read ended.
#[derive(Debug, Default)]
enum Last {
    /// There was none.
    #[default]
    NotRead,
    /// The policy is active.
    Good,
    /// There is no file, and there was none before.
    Missing,
    /// In vain. Contains one sentence.
    Failed(String),
}

/// The result of a read.
#[derive(Clone, Debug)]
pub(super) enum Read {
    /// The text.
    Text(String),
    /// There is no file.
    Missing,
    /// The error of the operating system.
    Failed(String),
}

/// What is new after a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing.
    Nothing,
    /// The policy is active. Contains what is suspicious in it.
    Loaded { remarks: Vec<Problem> },
    /// There is no file.
    Missing,
    /// The file cannot be used, in one sentence.
    Failed(String),
}

// === impl State ===

impl State {
    /// The active policy.
    pub(super) fn policy(&self) -> Option<Arc<Policy>> {
        self.active.as_ref().map(|(policy, _)| Arc::clone(policy))
    }

    /// Whether the last read succeeded.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.last, Last::Good)
    }

    /// Notes that this process leads. Returns why the file cannot be used.
    pub(super) fn lead(&mut self) -> Option<&str> {
        self.leads = true;
        self.problem()
    }

    /// Whether this process leads.
    pub(super) fn is_leading(&self) -> bool {
        self.leads
    }

    /// Why the file cannot be used.
    fn problem(&self) -> Option<&str> {
        match &self.last {
            Last::Failed(problem) => Some(problem),
            Last::NotRead | Last::Good | Last::Missing => None,
        }
    }

    /// Notes the result of a read of the file at `path`.
    pub(super) fn after(&mut self, path: &Path, read: Read) -> Outcome {
        let path = path.display();
        match read {
            Read::Text(text) if self.is_active(&text) => {
                let was_good = std::mem::replace(&mut self.last, Last::Good);
                if matches!(was_good, Last::Good) { Outcome::Nothing } else { Outcome::Loaded { remarks: Vec::new() } }
            }
            Read::Text(text) => match Policy::parse(&text) {
                Ok(policy) => {
                    let remarks = policy.remarks().to_vec();
                    self.active = Some((Arc::new(policy), text));
                    self.last = Last::Good;
                    Outcome::Loaded { remarks }
                }
                Err(Problem { line, message }) => self.failed(&format!("{path}:{line}: {message}")),
            },
            Read::Missing if self.active.is_none() => {
                let last = std::mem::replace(&mut self.last, Last::Missing);
                if matches!(last, Last::Missing) { Outcome::Nothing } else { Outcome::Missing }
            }
            Read::Missing => self.failed(&format!("{path} does not exist any more")),
            Read::Failed(error) => self.failed(&format!("cannot read {path}: {error}")),
        }
    }

    fn is_active(&self, text: &str) -> bool {
        self.active.as_ref().is_some_and(|(_, active)| active == text)
    }

    fn failed(&mut self, problem: &str) -> Outcome {
        let fate = match &self.active {
            Some(_) => "the last good policy stays active",
            None => "upgrades that require downtime are not installed",
        };
        let problem = format!("{problem}; {fate}");
        if self.problem() == Some(problem.as_str()) {
            return Outcome::Nothing;
        }
        self.last = Last::Failed(problem.clone());
        Outcome::Failed(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SATURDAY: &str = r#"{"default": {"days": ["Sat"], "begin": "20:00:00Z", "end": "22:00:00Z"}}"#;
    const SUNDAY: &str = r#"{"default": {"days": ["Sun"], "begin": "20:00:00Z", "end": "22:00:00Z"}}"#;
    const BROKEN: &str = r#"{"default": {"days": ["Sat"]}}"#;

    fn text(text: &str) -> Read {
        Read::Text(text.to_owned())
    }

    fn failed(message: &str) -> Outcome {
        Outcome::Failed(message.to_owned())
    }

    const LOADED: Outcome = Outcome::Loaded { remarks: Vec::new() };

    /// One step: the result of the read, the report, the days of the active policy, whether the last read succeeded.
    type Step = (Read, Outcome, Option<&'static str>, bool);

    fn check(steps: Vec<Step>) {
        let mut state = State::default();
        for (index, (read, said, active, is_read)) in steps.into_iter().enumerate() {
            assert_eq!(state.after(Path::new("/policy.json"), read), said, "step {index}");
            let found = state.active.as_ref().map(|(_, text)| text.as_str());
            assert_eq!((found, state.is_read()), (active, is_read), "step {index}");
            assert_eq!(state.policy().is_some(), active.is_some());
        }
    }

    #[test]
    fn the_last_good_policy_stays_and_each_problem_is_said_once() {
        let broken = "/policy.json:1: the window has no `begin`; the last good policy stays active";
        let gone = "/policy.json does not exist any more; the last good policy stays active";
        check(vec![
            (text(SATURDAY), LOADED, Some(SATURDAY), true),
            (text(SATURDAY), Outcome::Nothing, Some(SATURDAY), true),
            (text(BROKEN), failed(broken), Some(SATURDAY), false),
            (text(BROKEN), Outcome::Nothing, Some(SATURDAY), false),
            (Read::Missing, failed(gone), Some(SATURDAY), false),
            (text(SATURDAY), LOADED, Some(SATURDAY), true),
            (text(SUNDAY), LOADED, Some(SUNDAY), true),
        ]);
    }

    #[test]
    fn without_a_policy_a_missing_file_is_no_problem_and_a_broken_one_is() {
        let broken = "/policy.json:1: the window has no `begin`; upgrades that require downtime are not installed";
        let denied = "cannot read /policy.json: denied; upgrades that require downtime are not installed";
        check(vec![
            (Read::Missing, Outcome::Missing, None, false),
            (Read::Missing, Outcome::Nothing, None, false),
            (text(BROKEN), failed(broken), None, false),
            (Read::Failed("denied".to_owned()), failed(denied), None, false),
            (Read::Missing, Outcome::Missing, None, false),
            (text(SUNDAY), LOADED, Some(SUNDAY), true),
        ]);
    }

    #[test]
    fn what_is_suspicious_is_said_with_the_policy() {
        let said = State::default().after(Path::new("/policy.json"), text(r#"{"comment": ""}"#));
        let Outcome::Loaded { remarks } = said else { panic!("{said:?}") };
        assert_eq!(remarks.len(), 1);
    }
}
