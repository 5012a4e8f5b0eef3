//! Repeats a check until it succeeds.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

// In a simulation, this follows the paused clock.
use tokio::time::Instant;

/// Interval of checks.
const POLL: Duration = Duration::from_millis(50);
/// How many of the last different answers the message contains.
const ANSWERS: usize = 5;

/// The answers until the time-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedOut {
    deadline: Duration,
    answers: Vec<(Duration, String)>,
}

/// Repeats `ask` until it returns `Ok` or the deadline passes.
///
/// # Errors
///
/// Fails with the last answers if the deadline passes.
pub async fn until<T>(deadline: Duration, mut ask: impl AsyncFnMut() -> Result<T, String>) -> Result<T, TimedOut> {
    let start = Instant::now();
    let mut answers: Vec<(Duration, String)> = Vec::new();
    loop {
        let answer = match tokio::time::timeout(deadline, ask()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(answer)) => answer,
            Err(_) => "no answer".to_owned(),
        };
        if answers.last().is_none_or(|(_, last)| *last != answer) {
            if answers.len() == ANSWERS {
                answers.remove(0);
            }
            answers.push((start.elapsed(), answer));
        }
        if deadline <= start.elapsed() {
            return Err(TimedOut { deadline, answers });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Repeats `ask` for `duration`: for something that must stay as it is.
///
/// # Errors
///
/// Fails with the first `Err` of `ask`, and when it came.
pub async fn throughout(
    duration: Duration,
    mut ask: impl AsyncFnMut() -> Result<(), String>,
) -> Result<(), (Duration, String)> {
    let start = Instant::now();
    while start.elapsed() < duration {
        ask().await.map_err(|answer| (start.elapsed(), answer))?;
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

// === impl TimedOut ===

impl TimedOut {
    /// The last answer.
    pub fn last(&self) -> &str {
        self.answers.last().map_or("", |(_, answer)| answer)
    }
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not within {:?}", self.deadline)?;
        let mut text = String::new();
        for (at, answer) in &self.answers {
            let _ = write!(text, "\n  after {at:.1?}: {answer}");
        }
        f.write_str(&text)
    }
}

impl std::error::Error for TimedOut {}
