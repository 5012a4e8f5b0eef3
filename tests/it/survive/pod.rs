//! The memory limit of the daemon's Pod, for a daemon on this machine, and what it uses of it.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// The memory limit of `deploy/base`, for a process and its children.
pub(crate) enum Pod {
    /// One limit for all of them together, with the files that they read: a folder of cgroup v2.
    V2(PathBuf),
    /// The same of cgroup v1.
    V1(PathBuf),
    /// This machine lets a test make neither. Each process has the limit for itself.
    PerProcess,
}

/// The largest memory of a daemon, and of a process that it starts.
pub(crate) struct Watched {
    daemon_kib: Arc<AtomicU64>,
    engine_kib: Arc<AtomicU64>,
    commands: Arc<Mutex<BTreeSet<String>>>,
    is_over: Arc<AtomicBool>,
}

/// The memory limit of the daemon's Pod.
pub(crate) fn memory_bytes() -> u64 {
    let text = include_str!("../../../deploy/base/deployment.yaml");
    let limits = text.split_once("limits:").expect("the container has limits").1;
    let limit = limits.split_once("memory: ").and_then(|(_, rest)| rest.lines().next()).expect("a limit").trim();
    match (limit.strip_suffix("Gi"), limit.strip_suffix("Mi")) {
        (Some(gib), _) => gib.parse::<u64>().expect("a number") << 30,
        (None, Some(mib)) => mib.parse::<u64>().expect("a number") << 20,
        (None, None) => panic!("{limit} is neither in Mi nor in Gi"),
    }
}

/// Largest memory that a process has had, in KiB.
pub(crate) fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The processes that a process has started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

/// CPU time that a process has used, in ticks of the system: usually a hundred a second.
pub(crate) fn computed_ticks(pid: u32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain spaces.
    line.rsplit_once(") ")?.1.split(' ').nth(11)?.parse().ok()
}

fn command(pid: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).skip(1).map(String::from_utf8_lossy);
    Some(format!("{} {}", words.next()?, words.next()?))
}

// === impl Pod ===

impl Pod {
    /// Limits a process that runs.
    ///
    /// # Panics
    ///
    /// Panics if this machine offers no limit at all: a test without a limit would show nothing.
    pub(crate) fn of(pid: u32) -> Pod {
        let name = format!("tidegate-test-{pid}");
        let v2 = Path::new("/sys/fs/cgroup").join(&name);
        if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() && limited(&v2, "memory.max", pid).is_ok() {
            return Pod::V2(v2);
        }
        let v1 = Path::new("/sys/fs/cgroup/memory").join(&name);
        if limited(&v1, "memory.limit_in_bytes", pid).is_ok() {
            return Pod::V1(v1);
        }
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the id of a process");
        let memory = Some(memory_bytes());
        let limit = Rlimit { current: memory, maximum: memory };
        prlimit(Some(process), Resource::Data, limit).expect("a process of this test can be limited");
        Pod::PerProcess
    }

    /// The largest memory of all processes together, in bytes, with the files that they read.
    fn peak(&self) -> Option<u64> {
        let file = match self {
            Pod::V2(folder) => folder.join("memory.peak"),
            Pod::V1(folder) => folder.join("memory.max_usage_in_bytes"),
            Pod::PerProcess => return None,
        };
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }
}

/// Puts a process into a new group with the limit of the Pod in this file.
fn limited(folder: &Path, file: &str, pid: u32) -> io::Result<()> {
    fs::create_dir(folder)?;
    let made = || {
        if !folder.join(file).exists() {
            let parent = folder.parent().unwrap_or(folder);
            fs::write(parent.join("cgroup.subtree_control"), "+memory")?;
        }
        fs::write(folder.join(file), memory_bytes().to_string())?;
        fs::write(folder.join("cgroup.procs"), pid.to_string())
    };
    made().inspect_err(|_| drop(fs::remove_dir(folder)))
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Pod::V2(_) => "limited by cgroup v2",
            Pod::V1(_) => "limited by cgroup v1",
            Pod::PerProcess => "each process limited by RLIMIT_DATA",
        };
        let peak = self.peak().map_or_else(|| "unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        write!(f, "{name} to {} MiB, largest memory with files {peak}", memory_bytes() >> 20)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        match self {
            // Its processes have ended; if not, the machine removes it when it restarts.
            Pod::V2(folder) | Pod::V1(folder) => drop(fs::remove_dir(folder)),
            Pod::PerProcess => {}
        }
    }
}

// === impl Watched ===

impl Watched {
    /// Watches a process until the value is dropped.
    pub(crate) fn start(pid: u32) -> Watched {
        let watched = Watched {
            daemon_kib: Arc::default(),
            engine_kib: Arc::default(),
            commands: Arc::default(),
            is_over: Arc::default(),
        };
        let (daemon, engine) = (Arc::clone(&watched.daemon_kib), Arc::clone(&watched.engine_kib));
        let (commands, is_over) = (Arc::clone(&watched.commands), Arc::clone(&watched.is_over));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                daemon.fetch_max(peak(pid).unwrap_or(0), Ordering::Relaxed);
                for child in children(pid) {
                    engine.fetch_max(peak(child).unwrap_or(0), Ordering::Relaxed);
                    commands.lock().unwrap_or_else(PoisonError::into_inner).extend(command(child));
                }
                std::thread::yield_now();
            }
        });
        watched
    }

    pub(crate) fn daemon_mib(&self) -> u64 {
        self.daemon_kib.load(Ordering::Relaxed) >> 10
    }

    /// The commands of the processes that it has started: two words each, for example `git engine`.
    pub(crate) fn commands(&self) -> BTreeSet<String> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn engine_mib(&self) -> u64 {
        self.engine_kib.load(Ordering::Relaxed) >> 10
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_process_never_runs_without_a_limit() {
    let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pod = Pod::of(process.id());
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let (limit, group) = (memory_bytes(), read(format!("/proc/{}/cgroup", process.id()).into()));
    let is_member = |folder: &Path| group.contains(folder.file_name().unwrap().to_str().unwrap());
    match &pod {
        Pod::V2(folder) => {
            assert!(is_member(folder), "{group}");
            assert_eq!(read(folder.join("memory.max")).trim(), limit.to_string());
        }
        Pod::V1(folder) => {
            assert!(is_member(folder), "{group}");
            assert_eq!(read(folder.join("memory.limit_in_bytes")).trim(), limit.to_string());
        }
        Pod::PerProcess => {
            let limits = read(format!("/proc/{}/limits", process.id()).into());
            let line = limits.lines().find(|line| line.starts_with("Max data size")).unwrap();
            assert!(line.contains(&limit.to_string()), "{line}");
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
}
