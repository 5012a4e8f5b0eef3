//! Compares URLs of repositories: all spellings of one repository are equal.

use std::fmt;

/// Where a repository is, whatever the spelling of its URL.
///
/// Equal are: https, http, ssh and `user@host:path`; with and without user, `.git`, slashes at the end, and the default
/// port of the scheme; percent-encoded or not; upper and lower case. Also equal are the URLs of one repository of Azure
/// DevOps for https and ssh, on its present and its former host, and those of the hosts that GitHub, GitLab and
/// Bitbucket have for ssh on port 443.
///
/// It serves to compare. Two repositories whose paths differ only in case are equal: a push to one of them then makes a
/// source fetch the other one in vain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryAddress {
    /// Lower case; empty for a path on this machine.
    host: String,
    /// `None` for the default port.
    port: Option<u16>,
    /// Lower case, without slashes at both ends.
    path: String,
}

/// Longest URL that is compared; the same as in the CRD.
const URL_BYTES_MAX: usize = 2_048;

// === impl RepositoryAddress ===

impl RepositoryAddress {
    /// Reads a URL; `None` if it names no repository.
    pub fn parse(url: &str) -> Option<RepositoryAddress> {
        if URL_BYTES_MAX < url.len() || url.chars().any(char::is_control) {
            return None;
        }
        let (authority, default_port, path) = match url.split_once("://") {
            Some((scheme, rest)) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let default_port = match scheme.to_ascii_lowercase().as_str() {
                    "https" => 443,
                    "http" => 80,
                    "ssh" | "git+ssh" | "ssh+git" => 22,
                    "file" => return RepositoryAddress::local(path),
                    _ => return None,
                };
                (authority, default_port, path)
            }
            None if url.starts_with('/') => return RepositoryAddress::local(url),
            // As in git, `host:path` means ssh unless a slash precedes the colon.
            None => {
                let (authority, path) = split_scp(url)?;
                (authority, 22, path)
            }
        };
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = split_port(host_and_port)?;
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let path = normal_path(path)?;
        if host.is_empty() || path.is_empty() {
            return None;
        }
        let port = port.filter(|port| *port != default_port);
        let (host, port) = match (host.as_str(), port) {
            ("ssh.github.com", Some(443)) => ("github.com".to_owned(), None),
            ("altssh.gitlab.com", Some(443)) => ("gitlab.com".to_owned(), None),
            ("altssh.bitbucket.org", Some(443)) => ("bitbucket.org".to_owned(), None),
            _ => (host, port),
        };
        Some(RepositoryAddress { host, port, path }.on_azure())
    }

    fn local(path: &str) -> Option<RepositoryAddress> {
        let path = normal_path(path)?;
        (!path.is_empty()).then_some(RepositoryAddress { host: String::new(), port: None, path })
    }

    /// The form `dev.azure.com/<organization>/<project>/_git/<repository>` of all URLs of Azure DevOps.
    fn on_azure(self) -> RepositoryAddress {
        let parts: Vec<&str> = self.path.split('/').collect();
        let organization = self.host.strip_suffix(".visualstudio.com");
        let found = match (self.host.as_str(), organization, parts.as_slice()) {
            ("ssh.dev.azure.com" | "vs-ssh.visualstudio.com", _, ["v3", organization, project, repository]) => {
                Some((*organization, *project, *repository))
            }
            ("dev.azure.com", _, [organization, project, "_git", repository]) => {
                Some((*organization, *project, *repository))
            }
            // The repository that has the name of its project.
            ("dev.azure.com", _, [organization, "_git", repository]) => Some((*organization, *repository, *repository)),
            (_, Some(organization), ["defaultcollection", "_git", repository] | ["_git", repository]) => {
                Some((organization, *repository, *repository))
            }
            (
                _,
                Some(organization),
                ["defaultcollection", project, "_git", repository] | [project, "_git", repository],
            ) => Some((organization, *project, *repository)),
            _ => None,
        };
        match found {
            Some((organization, project, repository)) => {
                let path = format!("{organization}/{project}/_git/{repository}");
                RepositoryAddress { host: "dev.azure.com".to_owned(), port: None, path }
            }
            None => self,
        }
    }
}

impl fmt::Display for RepositoryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}/{}", self.host, self.path),
            None => write!(f, "{}/{}", self.host, self.path),
        }
    }
}

impl fmt::Debug for RepositoryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Host and path of `user@host:path`. The host may be an IPv6 address in brackets.
fn split_scp(url: &str) -> Option<(&str, &str)> {
    let after_brackets = url.find(']').filter(|_| url.contains('['));
    let colon = after_brackets.unwrap_or(0) + url[after_brackets.unwrap_or(0)..].find(':')?;
    let (authority, path) = (&url[..colon], &url[colon + 1..]);
    (!authority.contains('/')).then_some((authority, path))
}

/// Host and port; `None` if the port is not one.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let port_at = match authority.rfind(']') {
        Some(bracket) => authority[bracket..].find(':').map(|at| bracket + at),
        None => authority.find(':'),
    };
    match port_at {
        // git writes no port as an empty one.
        Some(at) if authority[at + 1..].is_empty() => Some((&authority[..at], None)),
        Some(at) => Some((&authority[..at], Some(authority[at + 1..].parse().ok()?))),
        None => Some((authority, None)),
    }
}

/// A path without empty parts and `.git`, in lower case; `None` if it is not UTF-8.
fn normal_path(path: &str) -> Option<String> {
    let decoded = decode(path, false)?.to_lowercase();
    let parts: Vec<&str> = decoded.split('/').filter(|part| !part.is_empty()).collect();
    let joined = parts.join("/");
    Some(joined.strip_suffix(".git").unwrap_or(&joined).trim_end_matches('/').to_owned())
}

/// `%41` becomes `A`, and in a form `+` becomes a space; `None` if the result is not UTF-8.
pub(super) fn decode(text: &str, is_form: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|&c| char::from(c).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).ok()?);
                rest = &after[2..];
                continue;
            }
            (b'+', ..) if is_form => bytes.push(b' '),
            _ => bytes.push(first),
        }
        rest = after;
    }
    String::from_utf8(bytes).ok()
}
