//! Kubeconfigs of the user: reading them, with errors that name a path once.

use std::path::Path;

use kube::config::{Kubeconfig, KubeconfigError};

/// Reads a kubeconfig. The files that it names are relative to its folder.
///
/// # Errors
///
/// Fails with one clause if the file cannot be read or is no kubeconfig. The clause does not name the file.
pub fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, String> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        other => kubeconfig_problem(&other),
    })
}

/// The problem of a kubeconfig, as one clause. The error already contains its cause, and quotes paths twice.
pub fn kubeconfig_problem(error: &KubeconfigError) -> String {
    error.to_string().replace("'\"", "`").replace("\"'", "`")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_path_is_named_once_and_quoted_once() {
        let problem = read_kubeconfig(Path::new("/nowhere/config")).unwrap_err();
        assert_eq!(problem, "No such file or directory (os error 2)");
        let missing = KubeconfigError::ReadConfig(io::Error::from_raw_os_error(2), "/a/ca.crt".into());
        let problem = kubeconfig_problem(&missing);
        assert_eq!(problem, "failed to read kubeconfig from `/a/ca.crt`: No such file or directory (os error 2)");
    }
}
