//! Control planes that tests use one after the other: alone while they have one, and as if it had just started.

use std::{
    borrow::Borrow,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
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

/// Those that no test has now.
static IDLE: Mutex<Vec<Warm>> = Mutex::new(Vec::new());

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
    let index = idle.iter().rposition(|warm| warm.server.name() == name && warm.extent == extent)?;
    Some(idle.swap_remove(index))
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
            IDLE.lock().expect("a lock").extend(self.0.take());
        }
    }
}
