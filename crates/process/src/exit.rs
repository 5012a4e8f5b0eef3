//! The exit codes that all commands share.

use std::process::ExitCode;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success: 0.
    Ok,
    /// There are differences, or a step of the demo failed: 1.
    Changes,
    /// The command cannot run with these arguments: 2.
    Usage,
    /// Definitions or templates are invalid: 3.
    Invalid,
    /// A policy is violated: 4.
    Policy,
    /// Work is left, or a cluster, also the control plane, could not be reached or rejected the credentials: 5.
    Incomplete,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Changes => 1,
            Exit::Usage => 2,
            Exit::Invalid => 3,
            Exit::Policy => 4,
            Exit::Incomplete => 5,
        })
    }
}
