//! Runs blocking work on its own threads.
//!
//! The runtime's blocking pool is not suitable: the runtime waits for it at shutdown, so a stalled server would delay
//! the end of the process.

use tokio::sync::oneshot;

use super::error::Error;
use tidegate_process::ambient;

/// Runs `work` on a new thread. If the future is dropped, the work continues and its result is lost. In a simulation it
/// runs at once, because the clock must not advance meanwhile.
pub(super) async fn run<T, F>(work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Error> + Send + 'static,
{
    if ambient::is_simulated() {
        return work();
    }
    let (answer, answered) = oneshot::channel();
    std::thread::Builder::new()
        .name("git".to_owned())
        .spawn(move || {
            // If the caller has timed out, the receiver no longer exists.
            let _ = answer.send(work());
        })
        .map_err(|_| Error::Thread)?;
    answered.await.map_err(|_| Error::Thread)?
}
