//! The daemon as a separate process, its resource usage, and the usage of all other processes.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::Value;
use tidegate_testbed::{Guarded, Pulse};

/// A running daemon.
pub(super) struct Daemon {
    guarded: Guarded,
    log: PathBuf,
}

/// The resources that a process has used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Processor time.
    pub(super) cpu: Duration,
    /// Resident memory, in bytes.
    pub(super) resident: u64,
    /// Peak of resident memory since the last reset, in bytes.
    pub(super) peak: u64,
}

/// The processor time of this machine until now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    at: Instant,
    processors: u32,
    /// Used by all programs, and by other machines on the same processors.
    busy: Duration,
    /// Used by this process and all its descendants.
    ours: Duration,
}

/// Ticks of processor time per second, which Linux fixes for /proc.
const TICKS_PER_SECOND: u64 = 100;

// === impl Daemon ===

impl Daemon {
    /// Starts a program as the daemon.
    pub(super) fn start(program: &Path, folder: &Path, kubeconfig: &Path, more: &[String]) -> anyhow::Result<Daemon> {
        let log = folder.join("daemon.log");
        let state = folder.join("state");
        let fixed: [&OsStr; 12] = [
            "run".as_ref(),
            "--kubeconfig".as_ref(),
            kubeconfig.as_os_str(),
            "--state".as_ref(),
            state.as_os_str(),
            "--allow-local-sources".as_ref(),
            "--metrics-address=127.0.0.1:0".as_ref(),
            "--health-address=127.0.0.1:0".as_ref(),
            "--events-address=127.0.0.1:0".as_ref(),
            "--events-tls-address=127.0.0.1:0".as_ref(),
            "--hooks-address=127.0.0.1:0".as_ref(),
            "--log-format=json".as_ref(),
        ];
        // A given option replaces the default of the benchmark.
        let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
        let is_said = |argument: &&OsStr| {
            let argument = argument.to_str().unwrap_or_default();
            argument.contains('=') && more.iter().any(|more| name(more) == name(argument))
        };
        let fixed = fixed.into_iter().filter(|argument| !is_said(argument));
        let arguments = fixed.chain(more.iter().map(AsRef::as_ref));
        // Each process has its own log, which contains its addresses.
        let _ = fs::remove_file(&log);
        let guarded = Guarded::start(program, arguments, folder, &log)?;
        Ok(Daemon { guarded, log })
    }

    /// Fails if its log does not say yet that it leads.
    pub(super) fn leads(&self) -> Result<(), String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        if text.contains("leading") { Ok(()) } else { Err("the daemon does not lead yet".to_owned()) }
    }

    /// Fails if no line of its log has all of these texts yet.
    pub(super) fn says(&self, texts: &[&str]) -> Result<(), String> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let is_meant = |line: &str| texts.iter().all(|text| line.contains(text));
        if log.lines().any(is_meant) {
            Ok(())
        } else {
            Err(format!("the daemon does not log `{}` yet", texts.join(" ")))
        }
    }

    /// A handle that says whether it still runs.
    pub(super) fn pulse(&self) -> Pulse {
        self.guarded.pulse()
    }

    /// Stops it and waits for its end.
    pub(super) fn end(&mut self) {
        self.guarded.end();
    }

    /// The address on which it listens for a purpose, such as `events` for those from a gateway.
    pub(super) fn address(&self, purpose: &str) -> anyhow::Result<SocketAddr> {
        let log = fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut listening =
            records.filter(|record| record["msg"] == "listening" && record["context"]["purpose"] == purpose);
        let address = listening.next().and_then(|record| record["context"]["address"].as_str()?.parse().ok());
        address.with_context(|| format!("the daemon does not log on which address it listens for {purpose}"))
    }

    /// What it has used so far.
    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        Usage::read("the daemon", &self.guarded)
    }

    /// Resets the peak of resident memory. If the system does not allow that, the peak covers the whole life of the
    /// process.
    pub(super) fn forget_peak(&self) {
        const PEAK: &str = "5";
        if let Some(pid) = self.guarded.program_pid() {
            let _ = fs::write(format!("/proc/{pid}/clear_refs"), PEAK);
        }
    }
}

// === impl Usage ===

impl Usage {
    /// The resources that a program has used.
    pub(super) fn read(name: &str, program: &Guarded) -> anyhow::Result<Usage> {
        let ended = || format!("{name} exited; the last lines of its log:\n{}", program.log_tail());
        let pid = program.program_pid().with_context(ended)?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(ended)?;
        // The second field is the name in parentheses, which may contain spaces; the 14th and 15th are ticks.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(ended)?;
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next())
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or_default()
        };
        Ok(Usage {
            cpu: Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / TICKS_PER_SECOND),
            resident: kilobytes("VmRSS:") * 1_024,
            peak: kilobytes("VmHWM:") * 1_024,
        })
    }
}

// === impl Machine ===

impl Machine {
    /// The time up to now. `None` if the system does not report it.
    pub(super) fn now() -> Option<Machine> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let (busy, processors) = busy(&text)?;
        let stats: Vec<String> = fs::read_dir("/proc")
            .ok()?
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
            .collect();
        let ours = used_by(std::process::id(), stats.iter().filter_map(|stat| Used::parse(stat)));
        Some(Machine { at: Instant::now(), processors, busy, ours })
    }

    /// The fraction of all processors that others used since an earlier moment.
    pub(super) fn others_since(&self, earlier: &Machine) -> f64 {
        let others = self.busy.saturating_sub(earlier.busy).saturating_sub(self.ours.saturating_sub(earlier.ours));
        let all = self.at.duration_since(earlier.at) * self.processors;
        if all.is_zero() { 0.0 } else { (others.as_secs_f64() / all.as_secs_f64()).min(1.0) }
    }
}

/// The usage of a process, from `/proc/PID/stat`.
struct Used {
    pid: u32,
    parent: u32,
    /// Includes its ended children.
    cpu: Duration,
}

// === impl Used ===

impl Used {
    fn parse(stat: &str) -> Option<Used> {
        let pid = stat.split_whitespace().next()?.parse().ok()?;
        // The second field is the name in parentheses, which may contain spaces; the third is a letter.
        let rest = stat.rsplit_once(')')?.1;
        let fields: Vec<u64> = rest.split_whitespace().skip(1).map(|field| field.parse().unwrap_or_default()).collect();
        // The fourth field, and those from the fourteenth on: user and system time of the process and of its children.
        let parent = u32::try_from(*fields.first()?).ok()?;
        Some(Used { pid, parent, cpu: ticks(fields.get(10..14)?.iter().sum()) })
    }
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 1_000 / TICKS_PER_SECOND)
}

/// The busy time of all processors in `/proc/stat`, and their number. Time for interrupts is not included, because it
/// belongs to no process and may be ours.
fn busy(stat: &str) -> Option<(Duration, u32)> {
    let numbers = |line: &str| line.split_whitespace().skip(1).map(|field| field.parse().unwrap_or_default()).collect();
    let all: Vec<u64> = stat.lines().find(|line| line.starts_with("cpu ")).map(numbers)?;
    // User, nice and system time, and time stolen by other machines.
    let busy = [0, 1, 2, 7].into_iter().filter_map(|index| all.get(index)).sum();
    let is_one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    Some((ticks(busy), u32::try_from(stat.lines().filter(is_one).count()).ok()?))
}

/// The processor time of a process and all its descendants.
fn used_by(root: u32, processes: impl Iterator<Item = Used>) -> Duration {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut used = BTreeMap::new();
    for Used { pid, parent, cpu } in processes {
        children.entry(parent).or_default().push(pid);
        used.insert(pid, cpu);
    }
    let (mut sum, mut open) = (Duration::ZERO, vec![root]);
    while let Some(pid) = open.pop() {
        sum += used.remove(&pid).unwrap_or_default();
        open.extend(children.remove(&pid).unwrap_or_default());
    }
    sum
}

#[cfg(test)]
mod tests;
