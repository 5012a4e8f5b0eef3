//! The exit codes that all commands share.

use std::process::ExitCode;

/// How a command ends, as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well: 0.
    Ok,
    /// There are changes, or what was shown did not hold: 1.
    Changes,
    /// The command cannot be carried out as given: 2.
    Usage,
    /// Definitions or templates are invalid: 3.
    Invalid,
    /// A policy is violated: 4.
    Policy,
    /// Something is not done or could not be reached: 5.
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
