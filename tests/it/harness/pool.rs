//! Control planes that tests use one after the other: alone while they have one, and as if it had just started.
//!
//! One that no test takes for a while ends: even idle, it costs half a gigabyte and two percent of a core.

use std::{
    borrow::Borrow,
    sync::{
        Mutex, Once,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tidegate_testbed::{Baseline, ControlPlane, Extent, Options};

use super::{assets, etcd};

/// A control plane of the pool. It goes back when it is dropped; if the test failed, it ends instead.
pub(crate) struct Pooled(Option<Warm>);

/// A control plane that runs.
struct Warm {
    server: ControlPlane,
    extent: Extent,
    baseline: Baseline,
}

/// How long one waits for its next test. To start another costs about as much as two minutes of idling.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Those that no test has now, and since when.
static IDLE: Mutex<Vec<(Instant, Warm)>> = Mutex::new(Vec::new());

/// One of this name and extent.
pub(super) async fn take(name: String, extent: Extent) -> Pooled {
    while let Some(warm) = idle(&name, extent) {
        // One that a test has stopped ends here.
        if warm.server.reset(&warm.baseline).await.is_ok() {
            return Pooled(Some(warm));
        }
    }
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let prefix = Some(format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    let (assets, etcd) = (assets().await, Some(etcd().await));
    let options = Options { name: name.clone(), prefix, etcd, extent, audit: true, ..Options::default() };
    let started = async {
        let server = ControlPlane::start(assets, options).await?;
        let baseline = server.baseline().await?;
        Ok::<_, tidegate_testbed::Error>(Warm { server, extent, baseline })
    };
    Pooled(Some(started.await.unwrap_or_else(|error| panic!("{name} starts: {error}"))))
}

fn idle(name: &str, extent: Extent) -> Option<Warm> {
    let mut idle = IDLE.lock().expect("a lock");
    let index = idle.iter().rposition(|(_, warm)| warm.server.name() == name && warm.extent == extent)?;
    Some(idle.remove(index).1)
}

/// Ends those that wait for too long, from now on.
fn end_idle() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::park_timeout(IDLE_MAX / 10);
                let ended: Vec<_> = {
                    let mut idle = IDLE.lock().expect("a lock");
                    idle.extract_if(.., |(since, _)| since.elapsed() > IDLE_MAX).collect()
                };
                drop(ended);
            }
        });
    });
}

// === impl Pooled ===

impl Borrow<ControlPlane> for Pooled {
    fn borrow(&self) -> &ControlPlane {
        &self.0.as_ref().expect("here until it is dropped").server
    }
}

impl std::ops::Deref for Pooled {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.borrow()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            IDLE.lock().expect("a lock").extend(self.0.take().map(|warm| (Instant::now(), warm)));
            end_idle();
        }
    }
}
