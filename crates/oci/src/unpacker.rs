//! Where blobs are unpacked: in a process with limits, or here.
//!
//! A kilobyte of zstd can describe 32 MiB, and a decoder may have a bug that its input reaches. So the daemon unpacks
//! nothing: for each blob it starts its own program, which limits its memory and time, answers and ends. A blob that
//! exceeds a limit becomes [`Error::Exhausted`], and this process notices nothing else. It receives what is unpacked
//! only if all of it is there and within its limit.
//!
//! The blob is the standard input of the process. The answer is a line of JSON, the length of the content or a
//! [`Flaw`]; the content follows.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use tidegate_process::ambient;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    sync::Semaphore,
    time::timeout,
};

use super::{
    error::{Error, Exhaustion, Flaw},
    limits::{UNPACKERS_MAX, UnpackLimits},
    unpack::{self, Packed},
};

/// Unpacks blobs. Clones share its places.
#[derive(Clone, Default)]
pub struct Unpacker(Runner);

#[derive(Clone, Default)]
enum Runner {
    /// In this process.
    #[default]
    Local,
    Confined(Arc<Confined>),
}

/// How to start a process.
#[derive(Debug)]
struct Confined {
    program: PathBuf,
    arguments: Vec<String>,
    limits: UnpackLimits,
    permits: Semaphore,
}

/// A blob whose digest is verified.
pub(super) enum Blob {
    /// In memory.
    Bytes(Vec<u8>),
    /// On disk, at its beginning.
    File(File),
}

/// Why a blob has no content.
enum Failure {
    Flaw(Flaw),
    Exhausted(Exhaustion),
    /// The process failed otherwise.
    Process(String),
}

/// Exit code of a process that exceeded its time.
pub const EXIT_ELAPSED: i32 = 70;
/// Exit code of a process that exceeded its CPU time.
pub const EXIT_COMPUTING: i32 = 71;
/// Exit code of a process that panicked.
const EXIT_PANIC: i32 = 101;
/// A process ends itself. One that a signal has stopped is ended this much later.
const TIME_GRACE: Duration = Duration::from_secs(10);
/// Longest first line of an answer: the longest name of a flaw with its number.
const ANSWER_BYTES_MAX: u64 = 256;

/// Unpacks the blob on `input` in this process, which must have limited itself, and writes the result to `output`.
/// `kind` is the argument that an [`Unpacker`] adds to its others.
///
/// # Errors
///
/// Fails if `kind` is unknown, or if the result cannot be written.
pub fn serve(kind: &str, input: impl Read, mut output: impl Write) -> io::Result<()> {
    let packed = Packed::named(kind).ok_or_else(|| io::Error::other("it was given no kind of blob"))?;
    let result = unpack::unpack(packed, input);
    let answer = result.as_ref().map(Vec::len);
    serde_json::to_writer(&mut output, &answer)?;
    output.write_all(b"\n")?;
    output.write_all(&result.unwrap_or_default())?;
    output.flush()
}

// === impl Unpacker ===

impl Unpacker {
    /// Unpacks in this process, without limits on memory and time beyond those of [`limits`](super::limits): for
    /// simulations, for commands, and for tests.
    pub fn local() -> Unpacker {
        Unpacker(Runner::Local)
    }

    /// Unpacks in processes of `program`, which must observe the limits and call [`serve`] with the argument that
    /// follows `arguments`.
    pub fn confined(program: PathBuf, arguments: Vec<String>, limits: UnpackLimits) -> Unpacker {
        let permits = Semaphore::new(UNPACKERS_MAX);
        Unpacker(Runner::Confined(Arc::new(Confined { program, arguments, limits, permits })))
    }

    /// The content of a blob. `from` names the blob by its digest, `said` is the name for its flaws. Dropping the
    /// future ends the process.
    pub(super) async fn unpack(&self, packed: Packed, blob: Blob, from: &str, said: &str) -> Result<Vec<u8>, Error> {
        let result = match &self.0 {
            Runner::Local => {
                let unpacked = ambient::blocking(move || match blob {
                    Blob::Bytes(bytes) => unpack::unpack(packed, bytes.as_slice()),
                    Blob::File(file) => unpack::unpack(packed, file),
                });
                unpacked.await.ok_or(Error::Thread)?.map_err(Failure::Flaw)
            }
            Runner::Confined(confined) => confined.unpack(packed, blob).await,
        };
        result.map_err(|failure| match failure {
            Failure::Flaw(flaw) => Error::Unpack { from: said.to_owned(), flaw },
            Failure::Exhausted(limit) => Error::Exhausted { from: from.to_owned(), limit },
            Failure::Process(why) => Error::Unpacker { from: from.to_owned(), why },
        })
    }
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Runner::Local => f.write_str("Unpacker::local"),
            Runner::Confined(confined) => confined.fmt(f),
        }
    }
}

// === impl Confined ===

impl Confined {
    async fn unpack(&self, packed: Packed, blob: Blob) -> Result<Vec<u8>, Failure> {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let (input, bytes) = match blob {
            Blob::File(file) => (Stdio::from(file), None),
            Blob::Bytes(bytes) => (Stdio::piped(), Some(bytes)),
        };
        let broken = |error: io::Error| Failure::Process(error.to_string());
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .arg(packed.name())
            .env_clear()
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(broken)?;
        match timeout(self.limits.time + TIME_GRACE, exchange(&mut child, bytes, packed.limit())).await {
            Err(_) => Err(Failure::Exhausted(Exhaustion::Elapsed(self.limits.time))),
            Ok(Ok(Some(result))) => result.map_err(Failure::Flaw),
            Ok(Ok(None)) => Err(self.end(&mut child).await),
            Ok(Err(error)) => Err(broken(error)),
        }
    }

    /// Why a process ended without an answer.
    async fn end(&self, child: &mut Child) -> Failure {
        // It has closed its output; if it has not ended, it never will.
        let _ = child.start_kill();
        match child.wait().await.map(|status| (status, status.code())) {
            Ok((_, Some(EXIT_COMPUTING))) => Failure::Exhausted(Exhaustion::Computing(self.limits.computing)),
            Ok((_, Some(EXIT_ELAPSED))) => Failure::Exhausted(Exhaustion::Elapsed(self.limits.time)),
            // Running out of memory ends in a signal, or in a panic of the decoder of zstd. A kill from outside looks
            // the same; the blob is tried again.
            Ok((_, None | Some(EXIT_PANIC))) => Failure::Exhausted(Exhaustion::Memory(self.limits.memory_mib)),
            Ok((status, Some(_))) => Failure::Process(format!("it ended with {status}")),
            Err(error) => Failure::Process(error.to_string()),
        }
    }
}

/// Sends the blob and reads the answer; `None` if the process ended before it was complete.
async fn exchange(child: &mut Child, bytes: Option<Vec<u8>>, limit: u64) -> io::Result<Option<Result<Vec<u8>, Flaw>>> {
    let input = child.stdin.take();
    let output = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
    let send = async move {
        if let (Some(mut input), Some(bytes)) = (input, bytes) {
            // A process may have read enough, or have ended. How it ended says more.
            let _ = input.write_all(&bytes).await;
        }
    };
    let (result, ()) = tokio::join!(answer(BufReader::new(output), limit), send);
    result
}

async fn answer(
    mut output: BufReader<impl tokio::io::AsyncRead + Unpin>,
    limit: u64,
) -> io::Result<Option<Result<Vec<u8>, Flaw>>> {
    let mut line = Vec::new();
    (&mut output).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line).await?;
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    let length: usize = match serde_json::from_slice(&line)? {
        Ok(length) => length,
        Err(flaw) => return Ok(Some(Err(flaw))),
    };
    if limit < length as u64 {
        return Err(io::Error::other("its answer is invalid"));
    }
    let mut content = vec![0; length];
    match output.read_exact(&mut content).await {
        Ok(_) => Ok(Some(Ok(content))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
