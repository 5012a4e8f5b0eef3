//! What commands say line by line: `say!` to standard output, `tell!` to standard error. Neither panics.
//!
//! A reader that has gone has read enough. Where standard output cannot be written otherwise, as on a full disk, the
//! first failure is kept: the process ends with it, as the command line sees to, and what would go on for long can wait
//! for it ([`lost`]). A failure of standard error can be told to nobody.

use std::{
    fmt,
    io::{self, Write as _},
    sync::OnceLock,
};

use anyhow::bail;
use tokio::sync::Notify;

/// Why standard output cannot be written.
static FAILURE: OnceLock<io::Error> = OnceLock::new();
/// That it cannot.
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

/// What `say!` does.
pub fn line(text: fmt::Arguments<'_>) {
    match writeln!(anstream::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // What came first is the cause.
            let _ = FAILURE.set(error);
            FAILED.notify_one();
        }
        Ok(()) | Err(_) => {}
    }
}

/// What `tell!` does.
pub fn error_line(text: fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// An error if something that was said could not be written.
pub fn check() -> anyhow::Result<()> {
    match FAILURE.get() {
        None => Ok(()),
        Some(error) => bail!("cannot write to standard output: {error}"),
    }
}

/// Waits until something that is said cannot be written, which may be never. For one who waits.
pub async fn lost() {
    FAILED.notified().await;
}

/// A path or an argument as one word of a shell.
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
