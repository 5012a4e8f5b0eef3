//! Asking until something is so.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

// It goes with the clock of a simulation, where that is paused.
use tokio::time::Instant;

/// How long until we look again.
const POLL: Duration = Duration::from_millis(50);
/// How many of the last different answers are kept for the message.
const ANSWERS: usize = 5;

/// What was still answered when the time was up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedOut {
    deadline: Duration,
    answers: Vec<(Duration, String)>,
}

/// Asks again until `ask` answers `Ok`, at most until the deadline. Waiting costs one request in fifty milliseconds.
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

/// Asks again for `duration` and ends early with the first `Err`: for what must stay as it is.
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
