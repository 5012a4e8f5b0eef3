//! A bearer token in a file: the workload identity of a process, which something outside of it renews.
//!
//! The file is read for each fetch, and its token kept nowhere. Only the command line can name one: a GitSource in KCP
//! could name any file of this machine, and send it to a server of its choice. No message repeats what a file contains.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use tidegate_core::intake::Terms;
use tidegate_git::{Credentials, Remote, Url};
use tidegate_process::ambient;

use crate::stores::Origin;

/// A file with a bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenFile(PathBuf);

/// Why a token cannot be read from a file. Each is the end of the sentence "spec.bearerTokenFile …".
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenFileProblem {
    /// The GitSource is in KCP.
    #[error(
        "names a file on the machine of Tidegate, which only a GitSource of --source-file may do: remove it, and put a \
         token into the Secret of spec.secretRef"
    )]
    InControlPlane,
    /// The URL is not https.
    #[error("is for https:// URLs only: remove it, or use an https:// URL")]
    NotHttps,
    /// The Secret has credentials as well.
    #[error("and the Secret of spec.secretRef both have credentials: remove one of them")]
    TwoCredentials,
    /// The file cannot be read.
    #[error("names {}, which cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content is not a token.
    #[error("names {}, which {what}", .path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Longest token. Headers of requests are limited to 8 KiB by most servers.
const TOKEN_BYTES_MAX: u64 = 8 << 10;

// === impl TokenFile ===

impl TokenFile {
    /// The file that a source names. Fails if the source may not name one.
    pub(super) fn of(terms: &Terms, origin: Origin, url: &Url) -> Result<Option<TokenFile>, TokenFileProblem> {
        let Some(path) = &terms.bearer_token_file else { return Ok(None) };
        match origin {
            Origin::ControlPlane => Err(TokenFileProblem::InControlPlane),
            Origin::CommandLine if url.is_ssh() || url.path().is_some() => Err(TokenFileProblem::NotHttps),
            Origin::CommandLine => Ok(Some(TokenFile(path.into()))),
        }
    }

    /// The remote with the token that the file has now. Fails if the remote has other credentials.
    pub(super) async fn login(&self, remote: Remote) -> Result<Remote, TokenFileProblem> {
        if remote.credentials.is_some() || remote.github_app.is_some() {
            return Err(TokenFileProblem::TwoCredentials);
        }
        let path = self.0.clone();
        let content = ambient::blocking(move || read(&path)).await.unwrap_or_else(|| Err(io::ErrorKind::Other.into()));
        let content = content.map_err(|source| TokenFileProblem::Unreadable { path: self.0.clone(), source })?;
        let token = token(&content).map_err(|what| TokenFileProblem::NoToken { path: self.0.clone(), what })?;
        Ok(Remote { credentials: Some(Credentials::Bearer(token.to_owned())), ..remote })
    }
}

/// The start of a file, more than a token has.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut content = Vec::new();
    file.take(TOKEN_BYTES_MAX + 2).read_to_end(&mut content)?;
    Ok(content)
}

/// The token in the content of a file. Fails with what is wrong with the file.
fn token(content: &[u8]) -> Result<&str, &'static str> {
    if TOKEN_BYTES_MAX < content.len() as u64 {
        return Err("has more than 8192 bytes: it must contain one token");
    }
    let text = std::str::from_utf8(content).map_err(|_| "is not text: it must contain one token")?;
    let text = text.trim_end_matches(['\r', '\n']);
    match text {
        "" => Err("is empty: it must contain one token"),
        text if text.contains(['\r', '\n']) => Err("has several lines: it must contain one token"),
        text if !text.bytes().all(|c| c.is_ascii_graphic()) => Err("has spaces or other characters that no token has"),
        text => Ok(text),
    }
}

// === impl TokenFileProblem ===

impl TokenFileProblem {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            TokenFileProblem::InControlPlane | TokenFileProblem::NotHttps | TokenFileProblem::TwoCredentials => {
                "InvalidSpec"
            }
            TokenFileProblem::Unreadable { .. } | TokenFileProblem::NoToken { .. } => "TokenFileInvalid",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::source::load::decide;

    fn terms(url: &str) -> Terms {
        let source = json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "a"},
            "spec": {"url": url, "bearerTokenFile": "/var/run/token"},
        });
        Terms::from_source(&serde_json::from_value(source).unwrap()).unwrap()
    }

    fn remote() -> Remote {
        let terms = terms("https://git.example.com/a");
        decide::remote(&terms, &terms.url.parse().unwrap(), &decide::FetchAccess::Anonymous)
    }

    #[test]
    fn only_the_command_line_names_a_file_with_a_token() {
        let check = |url: &str, origin| {
            TokenFile::of(&terms(url), origin, &url.parse().unwrap()).map_err(|problem| problem.to_string())
        };
        let https = "https://git.example.com/a";
        let expected = TokenFile("/var/run/token".into());
        assert_eq!(check(https, Origin::CommandLine), Ok(Some(expected)));
        assert_eq!(
            check(https, Origin::ControlPlane).unwrap_err(),
            "names a file on the machine of Tidegate, which only a GitSource of --source-file may do: remove it, and \
             put a token into the Secret of spec.secretRef"
        );
        for url in ["git@git.example.com:a", "/srv/git/a"] {
            let not_https = "is for https:// URLs only: remove it, or use an https:// URL";
            assert_eq!(check(url, Origin::CommandLine).unwrap_err(), not_https);
        }
        let none = Terms { bearer_token_file: None, ..terms(https) };
        assert_eq!(TokenFile::of(&none, Origin::ControlPlane, &https.parse().unwrap()).unwrap(), None);
    }

    #[tokio::test]
    async fn a_token_is_read_again_each_time_and_a_file_without_one_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = TokenFile(path.clone());
        let found = async || match file.login(remote()).await {
            Ok(remote) => Ok(remote.credentials.unwrap()),
            Err(problem) => Err((problem.reason(), problem.to_string().replace(path.to_str().unwrap(), "FILE"))),
        };
        let bearer = |token: &str| Ok(Credentials::Bearer(token.to_owned()));
        let refused = |sentence: &str| Err(("TokenFileInvalid", sentence.to_owned()));
        let absent = "names FILE, which cannot be read: No such file or directory (os error 2)";
        assert_eq!(found().await, refused(absent));
        let long = "t".repeat(8193);
        for (content, expected) in [
            ("t0ken-one", bearer("t0ken-one")),
            ("t0ken-two\r\n", bearer("t0ken-two")),
            ("", refused("names FILE, which is empty: it must contain one token")),
            ("\n\n", refused("names FILE, which is empty: it must contain one token")),
            ("t0ken\nt0ken\n", refused("names FILE, which has several lines: it must contain one token")),
            ("t0ken t0ken", refused("names FILE, which has spaces or other characters that no token has")),
            ("t0kén", refused("names FILE, which has spaces or other characters that no token has")),
            (&long, refused("names FILE, which has more than 8192 bytes: it must contain one token")),
            (&long[1..], bearer(&long[1..])),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(found().await, expected);
        }
        std::fs::write(&path, b"t0ken\xff").unwrap();
        assert_eq!(found().await, refused("names FILE, which is not text: it must contain one token"));
        std::fs::remove_file(&path).unwrap();
        // Kubernetes swaps a projected token by a link.
        std::fs::write(folder.path().join("..data"), "t0ken-three").unwrap();
        symlink("..data", &path).unwrap();
        assert_eq!(found().await, bearer("t0ken-three"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(found().await, refused("names FILE, which cannot be read: it is not a file"));
    }

    #[tokio::test]
    async fn a_token_beside_other_credentials_is_refused() {
        let file = TokenFile("/var/run/token".into());
        let remote = Remote { credentials: Some(Credentials::Bearer("a".to_owned())), ..remote() };
        let problem = file.login(remote).await.unwrap_err();
        assert_eq!(problem.reason(), "InvalidSpec");
        let expected = "and the Secret of spec.secretRef both have credentials: remove one of them";
        assert_eq!(problem.to_string(), expected);
    }
}
