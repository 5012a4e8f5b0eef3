//! Reviews as an API server sends them: each needs a connection for itself.
//!
//! An API server speaks HTTP/1.1 with webhooks and resumes no TLS sessions. A review takes an idle connection. If there
//! is none, it opens one, and uses whichever comes first: this one, or one that another review has finished with. At
//! most [`IDLE_MAX`] idle connections are kept. So whenever answers are late, hundreds of handshakes begin.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use kube_sim::Authority;
use tidegate_process::lock::Mutex;
use tidegate_testbed::Caller;
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use super::SERVICE;

/// What became of the reviews.
#[derive(Default)]
pub(super) struct Sent {
    /// How long each answered review took, from the moment at which it was due.
    pub(super) times: Vec<Duration>,
    /// Reviews without an answer.
    pub(super) cut: usize,
    /// Connections that were opened.
    pub(super) connections: usize,
}

/// Idle connections, and the reviews that wait for one.
struct Pool {
    authority: Authority,
    address: SocketAddr,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    idle: Vec<Caller>,
    waiting: VecDeque<(usize, oneshot::Sender<anyhow::Result<Caller>>)>,
    number: usize,
    opened: usize,
}

/// Idle connections that client-go keeps for one host.
const IDLE_MAX: usize = 25;
/// The time-out of the webhook.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Sends reviews at a fixed rate, whatever becomes of earlier ones, from at most `callers` at once.
pub(super) async fn send(
    authority: &Authority,
    address: SocketAddr,
    callers: usize,
    rate: u32,
    seconds: u32,
    bodies: Arc<[Bytes]>,
) -> anyhow::Result<Sent> {
    let pool = Arc::new(Pool { authority: authority.clone(), address, inner: Mutex::default() });
    let permits = Arc::new(Semaphore::new(callers));
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for index in 0..rate * seconds {
        let due = began + Duration::from_secs(1) * index / rate;
        sleep_until(due).await;
        // The clock starts when the timer fires: a late timer is not the agent's fault.
        let from = Instant::now();
        let (pool, permits) = (Arc::clone(&pool), Arc::clone(&permits));
        let body = bodies[usize::try_from(index).unwrap_or_default() % bodies.len()].clone();
        tasks.spawn(async move {
            let answered = async {
                let _permit = permits.acquire().await?;
                pool.review(body).await
            };
            let answered = timeout_at(from + ANSWER_MAX, answered).await;
            matches!(answered, Ok(Ok(()))).then(|| from.elapsed())
        });
    }
    let mut sent = Sent::default();
    while let Some(done) = tasks.join_next().await {
        match done? {
            Some(time) => sent.times.push(time),
            None => sent.cut += 1,
        }
    }
    sent.connections = pool.inner.lock().opened;
    Ok(sent)
}

// === impl Pool ===

impl Pool {
    async fn review(self: &Arc<Pool>, body: Bytes) -> anyhow::Result<()> {
        let mut caller = self.take().await?;
        let status = caller.post("/validate/lifecycle-manager?timeout=15s", body).await?;
        self.give(caller);
        anyhow::ensure!(status.is_success(), "the agent answered {status}");
        Ok(())
    }

    /// An idle connection, or the first that is opened or given back.
    async fn take(self: &Arc<Pool>) -> anyhow::Result<Caller> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut inner = self.inner.lock();
            if let Some(caller) = inner.idle.pop() {
                return Ok(caller);
            }
            inner.number += 1;
            let number = inner.number;
            inner.waiting.push_back((number, sender));
            number
        };
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            match Caller::connect(&pool.authority, SERVICE, pool.address).await {
                Ok(caller) => {
                    pool.inner.lock().opened += 1;
                    pool.give(caller);
                }
                Err(error) => pool.fail(number, error.into()),
            }
        });
        receiver.await?
    }

    fn give(&self, mut caller: Caller) {
        let mut inner = self.inner.lock();
        while let Some((_, waiting)) = inner.waiting.pop_front() {
            match waiting.send(Ok(caller)) {
                Ok(()) => return,
                Err(Ok(back)) => caller = back,
                Err(Err(_)) => return,
            }
        }
        if inner.idle.len() < IDLE_MAX {
            inner.idle.push(caller);
        }
    }

    /// The review that opened the connection fails, unless it has got another one.
    fn fail(&self, number: usize, error: anyhow::Error) {
        let mut inner = self.inner.lock();
        if let Some(index) = inner.waiting.iter().position(|(waiting, _)| *waiting == number)
            && let Some((_, waiting)) = inner.waiting.remove(index)
        {
            let _ = waiting.send(Err(error));
        }
    }
}
