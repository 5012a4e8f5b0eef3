//! Blocking work on threads of its own.
//!
//! Not on the runtime's pool of blocking threads: the runtime waits for those when it shuts down, and a server that
//! stalls would hold up the end of the process.

use tokio::sync::oneshot;

use super::error::Error;
use tidegate_process::ambient;

/// Runs `work` on a new thread. If the future is dropped, the work goes on and its result is lost. In a simulation it is
/// done at once: its clock must not go on meanwhile.
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
            // Nobody listens any more if the caller's time was up.
            let _ = answer.send(work());
        })
        .map_err(|_| Error::Thread)?;
    answered.await.map_err(|_| Error::Thread)?
}
