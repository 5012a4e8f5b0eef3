//! Prints lines: `say!` to standard output, `tell!` to standard error. Neither panics.
//!
//! A closed pipe is not a failure: the reader wants no more. Any other failure of standard output, such as a full disk,
//! is recorded. The command line ends the process with the first one, and a long command can wait for it ([`lost`]). A
//! failure of standard error cannot be reported.

use std::{
    fmt,
    io::{self, Write as _},
    sync::OnceLock,
};

use anyhow::bail;
use tokio::sync::Notify;

/// The first failure of standard output.
static FAILURE: OnceLock<io::Error> = OnceLock::new();
/// Wakes the tasks that wait in [`lost`].
static FAILED: Notify = Notify::const_new();

/// A line on standard output, given as to `println!`.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::say::line(format_args!($($argument)*)) };
}

/// A line on standard error, given as to `eprintln!`.
#[macro_export]
macro_rules! tell {
    ($($argument:tt)*) => { $crate::say::error_line(format_args!($($argument)*)) };
}

/// The function behind `say!`.
pub fn line(text: fmt::Arguments<'_>) {
    match writeln!(anstream::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // The first failure is the cause.
            let _ = FAILURE.set(error);
            FAILED.notify_one();
        }
        Ok(()) | Err(_) => {}
    }
}

/// The function behind `tell!`.
pub fn error_line(text: fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// # Errors
///
/// Fails if a line could not be written to standard output.
pub fn check() -> anyhow::Result<()> {
    match FAILURE.get() {
        None => Ok(()),
        Some(error) => bail!("cannot write to standard output: {error}"),
    }
}

/// Waits until a line cannot be written to standard output, which may be never.
pub async fn lost() {
    FAILED.notified().await;
}

/// A path or an argument, quoted as one word of a shell.
pub fn word(text: impl fmt::Display) -> String {
    let text = text.to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "%+,-./:=@_".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_to_a_shell() {
        assert_eq!(word("/tmp/a-b_c.kubeconfig"), "/tmp/a-b_c.kubeconfig");
        for text in ["", "/my clusters/kcp.kubeconfig", "it's", "$HOME;*", "a\nb", "~"] {
            let script = format!("printf %s {}", word(text));
            let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
    }
}
