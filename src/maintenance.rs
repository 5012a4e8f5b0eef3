//! The policy of maintenance windows, from a file that is read again when it changes.
//!
//! An unusable file never replaces a policy: the last good one stays active. A log line, an Event and a metric report
//! the problem, once. Without any policy, an upgrade that requires downtime is an error of its module.
//!
//! The file is polled, because file system notifications depend on the kind of mount, and a mounted ConfigMap is
//! replaced by switching a symlink above it. A poll is one system call.
//!
//! `state` is what is known of the file, and what follows from a read. This file reads it.

use std::{
    fs, io,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use tidegate_core::{api::names, maintenance::Policy};
use tidegate_process::lock::Mutex;

mod state;

use state::{Outcome, Read, State};

use crate::{
    config,
    controller::events::{Event, Recorder, Severity, reason},
    stores::Stores,
};

/// The policy, and how long a window must last. The default has no policy.
#[derive(Default)]
pub struct Maintenance {
    file: Option<PathBuf>,
    size_min: Duration,
    state: Mutex<State>,
}

/// What identifies the content of a file, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

/// Longest file: as much as a ConfigMap holds.
const POLICY_BYTES_MAX: u64 = 1 << 20;
/// How often the file is checked.
const POLL: Duration = Duration::from_secs(1);

// === impl Maintenance ===

impl Maintenance {
    /// Reads the policy. A file that cannot be used is logged.
    pub fn open(config: &config::Maintenance) -> Maintenance {
        let config::Maintenance { policy: file, size_min } = config.clone();
        let maintenance = Maintenance { file, size_min, state: Mutex::default() };
        if let Some(path) = &maintenance.file {
            maintenance.take(path, read(path));
        }
        maintenance
    }

    /// The active policy.
    pub fn policy(&self) -> Option<Arc<Policy>> {
        self.state.lock().policy()
    }

    /// How long a window must last from now to be used.
    pub fn size_min(&self) -> Duration {
        self.size_min
    }

    /// Whether the last read of the file succeeded.
    pub fn is_read(&self) -> bool {
        self.state.lock().is_read()
    }

    /// Reports why the file cannot be used. This process leads from now on; the Event of another one is not written.
    pub(crate) fn lead(&self, events: &Recorder) {
        if let Some(problem) = self.state.lock().lead() {
            publish(events, problem);
        }
    }

    /// Follows the file, and wakes the runtimes when the policy changes. Runs until it is dropped.
    pub(crate) async fn follow(&self, events: &Recorder, stores: &Stores) {
        let Some(path) = &self.file else { return std::future::pending().await };
        let mut known = None;
        loop {
            let shared = path.clone();
            let polled = tokio::task::spawn_blocking(move || {
                let found = version(&shared);
                // What cannot be identified may have changed.
                let is_news = found.is_none() || found != known;
                (found, is_news.then(|| read(&shared)))
            });
            // It only ends without a result if the process ends.
            let Ok((found, news)) = polled.await else { return std::future::pending().await };
            known = found;
            match news.map(|news| self.take(path, news)) {
                Some(Outcome::Loaded { .. }) => stores.wake_runtimes(),
                Some(Outcome::Failed(problem)) if self.state.lock().is_leading() => publish(events, &problem),
                Some(Outcome::Failed(_) | Outcome::Missing | Outcome::Nothing) | None => {}
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Notes the result of a read, and logs what is new.
    fn take(&self, path: &Path, read: Read) -> Outcome {
        let said = self.state.lock().after(path, read);
        let path = path.display();
        match &said {
            Outcome::Nothing => {}
            Outcome::Loaded { remarks } => {
                tracing::info!(%path, "policy of maintenance windows loaded");
                for remark in remarks {
                    tracing::warn!(%path, line = remark.line, problem = remark.message, "suspicious maintenance policy");
                }
            }
            Outcome::Missing => tracing::info!(%path, "no policy of maintenance windows"),
            Outcome::Failed(error) => tracing::warn!(error, "policy of maintenance windows not usable"),
        }
        said
    }
}

/// Reports a problem on the ConfigMap that the file is usually mounted from.
fn publish(events: &Recorder, problem: &str) {
    let regarding = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        namespace: Some(names::KCP_NAMESPACE.to_owned()),
        name: Some(names::MAINTENANCE_CONFIG.to_owned()),
        ..ObjectReference::default()
    };
    let (severity, reason, action) = (Severity::Warning, reason::MAINTENANCE_POLICY, "Load");
    events.publish_event(Event { regarding, severity, reason, action, note: problem.to_owned() });
}

fn read(path: &Path) -> Read {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Read::Missing,
        Err(error) => return Read::Failed(error.to_string()),
    };
    let mut text = String::new();
    match file.take(POLICY_BYTES_MAX + 1).read_to_string(&mut text) {
        Ok(length) if POLICY_BYTES_MAX < length as u64 => {
            Read::Failed(format!("it is longer than {POLICY_BYTES_MAX} bytes"))
        }
        Ok(_) => Read::Text(text),
        Err(error) => Read::Failed(error.to_string()),
    }
}

fn version(path: &Path) -> Option<Version> {
    let found = fs::metadata(path).ok()?;
    Some(Version {
        device: found.dev(),
        inode: found.ino(),
        length: found.len(),
        modified: (found.mtime(), found.mtime_nsec()),
    })
}
