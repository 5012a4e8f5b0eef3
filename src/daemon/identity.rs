//! The name of this process in the Lease and in Events.

use std::path::Path;

use tidegate_core::object::Digest;

use crate::config::Config;

/// The configured name; otherwise the pod's name, or the host name with a digest of the state folder.
///
/// Two processes with one name would both believe that they lead. A pod's name is unique. On one machine, the state
/// folder distinguishes processes, because only one can lock it. It stays the same, so a restarted process gets its own
/// Lease back at once.
pub(super) fn holder(config: &Config) -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let in_cluster = variable("KUBERNETES_SERVICE_HOST").is_some();
    config
        .identity
        .clone()
        .or_else(|| variable("POD_NAME"))
        .or_else(|| variable("HOSTNAME").filter(|_| in_cluster))
        .unwrap_or_else(|| on_machine(&config.state))
}

fn on_machine(state: &Path) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine = machine.trim();
    // The folder exists by now. If it cannot be resolved, its path as given is good enough.
    let folder = std::fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
    let mark = Digest::of_bytes(folder.as_os_str().as_encoded_bytes()).short();
    format!("{}-{}", if machine.is_empty() { "machine" } else { machine }, &mark[..8])
}
