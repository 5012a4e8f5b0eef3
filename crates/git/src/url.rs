//! The URL of a repository: parsed once, printed without secrets.

use std::{
    fmt,
    net::Ipv6Addr,
    path::{Path, PathBuf},
    str::FromStr,
};

use ureq::http::Uri;

use super::remote::Credentials;

/// Why a text is not the URL of a repository. No message repeats the text, because it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUrlError {
    /// The text is empty.
    #[error("a URL must not be empty")]
    Empty,
    /// The scheme is not supported.
    #[error("`{0}` URLs are not supported; use https:// or ssh://")]
    Scheme(String),
    /// `ssh://host:path`.
    #[error(
        "an ssh:// URL has a slash after the host, and a colon only before a port: use ssh://git@host/path, or \
         git@host:path without a scheme"
    )]
    SshColon,
    /// `ssh://user:password@host/path`.
    #[error("an ssh URL must not contain a password: add the private key to a Secret as `identity`")]
    SshPassword,
    /// An ssh URL without a path.
    #[error("the ssh URL names no repository: use ssh://git@host/path or git@host:path")]
    SshPath,
    /// The URL contains `?` or `#`.
    #[error("a repository URL must not contain `?` or `#`")]
    Query,
    /// The host is missing or invalid.
    #[error("the URL has no valid host")]
    Host,
    /// Another part is invalid.
    #[error("invalid URL: it contains characters that must be percent-encoded, or an invalid port")]
    Invalid,
    /// `file://host/…`.
    #[error("a file:// URL must have an absolute path on this machine: file:///path")]
    FileHost,
}

/// The URL of a repository.
///
/// `Display` and `Debug` show neither user name nor password.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Url(Kind);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Http { text: String, encrypted: bool, credentials: Option<Credentials> },
    Ssh { text: String, server: String, target: SshTarget },
    Local { path: PathBuf },
}

/// Where an ssh URL leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SshTarget {
    /// The user name, which is not secret: `git` for almost all servers.
    pub(super) user: String,
    /// A name or an address, in lower case and without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path as the server gets it: of `user@host:path`, it is relative to the user's folder.
    pub(super) path: String,
}

/// The user name of an ssh URL that names none.
const SSH_USER: &str = "git";
/// The port of an ssh URL that names none.
pub(super) const SSH_PORT: u16 = 22;
/// Longest name of a host, as DNS defines it.
const HOST_LEN_MAX: usize = 253;

// === impl Url ===

impl Url {
    /// A repository on this machine.
    pub fn local(path: &Path) -> Url {
        Url(Kind::Local { path: path.to_owned() })
    }

    /// The path, if the repository is on this machine. Refuse it in URLs from custom resources.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Kind::Local { path } => Some(path),
            Kind::Http { .. } | Kind::Ssh { .. } => None,
        }
    }

    /// Whether a fetch uses ssh.
    pub fn is_ssh(&self) -> bool {
        self.ssh().is_some()
    }

    /// Where the URL leads to, if a fetch uses ssh.
    pub(super) fn ssh(&self) -> Option<&SshTarget> {
        match &self.0 {
            Kind::Ssh { target, .. } => Some(target),
            Kind::Http { .. } | Kind::Local { .. } => None,
        }
    }

    /// Who answers requests for the repository: host and port, or the path on this machine.
    pub fn server(&self) -> &str {
        match &self.0 {
            Kind::Http { text, .. } => {
                let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
                rest.split('/').next().unwrap_or_default()
            }
            Kind::Ssh { server, .. } => server,
            Kind::Local { path } => path.to_str().unwrap_or_default(),
        }
    }

    /// The host that is connected to, without brackets and port.
    pub(super) fn host(&self) -> Option<&str> {
        match &self.0 {
            Kind::Http { .. } => {
                let server = self.server();
                let host = match server.rsplit_once(':') {
                    Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
                    Some(_) | None => server,
                };
                Some(host.trim_start_matches('[').trim_end_matches(']'))
            }
            Kind::Ssh { target, .. } => Some(&target.host),
            Kind::Local { .. } => None,
        }
    }

    /// Whether the connection is encrypted or local.
    pub fn is_encrypted(&self) -> bool {
        match &self.0 {
            Kind::Http { encrypted, .. } => *encrypted,
            Kind::Ssh { .. } | Kind::Local { .. } => true,
        }
    }

    /// User name and password of the URL.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        match &self.0 {
            Kind::Http { credentials, .. } => credentials.as_ref(),
            Kind::Ssh { .. } | Kind::Local { .. } => None,
        }
    }
}

impl FromStr for Url {
    type Err = ParseUrlError;

    fn from_str(text: &str) -> Result<Url, ParseUrlError> {
        if text.is_empty() {
            return Err(ParseUrlError::Empty);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return parse_without_scheme(text);
        };
        match scheme.to_ascii_lowercase().as_str() {
            "https" => parse_http(rest, true),
            "http" => parse_http(rest, false),
            "ssh" | "git+ssh" | "ssh+git" => parse_ssh(rest),
            "file" => parse_file(rest),
            // A scheme is short and not secret; any other text is not repeated.
            other if other.len() <= 16 && other.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'+') => {
                Err(ParseUrlError::Scheme(format!("{other}://")))
            }
            _ => Err(ParseUrlError::Invalid),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Http { text, .. } | Kind::Ssh { text, .. } => f.write_str(text),
            Kind::Local { path } => path.display().fmt(f),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn parse_without_scheme(text: &str) -> Result<Url, ParseUrlError> {
    // As in git, `host:path` means ssh unless a slash precedes the colon. An IPv6 address has brackets.
    let before_slash = text.split('/').next().unwrap_or_default();
    let after_address = before_slash.find(']').unwrap_or_default();
    match before_slash[after_address..].find(':') {
        Some(colon) => parse_scp_like(text, after_address + colon),
        None => Ok(Url::local(Path::new(text))),
    }
}

/// `user@host:path`, as `scp` has it.
fn parse_scp_like(text: &str, colon: usize) -> Result<Url, ParseUrlError> {
    let (place, path) = (&text[..colon], text[colon + 1..].trim_end_matches('/'));
    if !place.contains('@') && path.split(['/', ':']).next().is_some_and(|start| start.contains('@')) {
        return Err(ParseUrlError::SshPassword);
    }
    let (user, host) = place.rsplit_once('@').unwrap_or((SSH_USER, place));
    let target = ssh_target(user, host, SSH_PORT, path)?;
    Ok(ssh_url(format!("{}@{}:{path}", target.user, host.to_ascii_lowercase()), target))
}

/// What follows `ssh://`.
fn parse_ssh(rest: &str) -> Result<Url, ParseUrlError> {
    if rest.contains(['?', '#']) {
        return Err(ParseUrlError::Query);
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, place) = authority.rsplit_once('@').unwrap_or((SSH_USER, authority));
    let after_address = place.find(']').unwrap_or_default();
    let (host, port) = match place[after_address..].find(':') {
        None => (place, SSH_PORT),
        Some(colon) => {
            let (host, port) = (&place[..after_address + colon], &place[after_address + colon + 1..]);
            if !port.bytes().all(|c| c.is_ascii_digit()) {
                return Err(ParseUrlError::SshColon);
            }
            let port = port.parse().ok().filter(|&port| port != 0).ok_or(ParseUrlError::Invalid)?;
            (host, port)
        }
    };
    let user = percent_decoded(user).ok_or(ParseUrlError::Invalid)?;
    let encoded = path.trim_end_matches('/');
    let path = percent_decoded(encoded).ok_or(ParseUrlError::Invalid)?;
    // As in git, `/~user/path` is below the folder of a user.
    let path = path.strip_prefix('/').filter(|path| path.starts_with('~')).unwrap_or(&path);
    let target = ssh_target(&user, host, port, path)?;
    let host = host.to_ascii_lowercase();
    let port = if port == SSH_PORT { String::new() } else { format!(":{port}") };
    Ok(ssh_url(format!("ssh://{}@{host}{port}{encoded}", target.user), target))
}

fn ssh_url(text: String, target: SshTarget) -> Url {
    let host = if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
    let server = if target.port == SSH_PORT { host } else { format!("{host}:{}", target.port) };
    Url(Kind::Ssh { text, server, target })
}

fn ssh_target(user: &str, host: &str, port: u16, path: &str) -> Result<SshTarget, ParseUrlError> {
    if user.contains(':') {
        return Err(ParseUrlError::SshPassword);
    }
    let is_user = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    if user.is_empty() || user.starts_with('-') || !user.chars().all(is_user) {
        return Err(ParseUrlError::Invalid);
    }
    let host = match host.strip_prefix('[') {
        Some(rest) => {
            let address = rest.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
            address.ok_or(ParseUrlError::Host)?.to_string()
        }
        None => host.to_ascii_lowercase(),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if host.is_empty() || host.starts_with('-') || HOST_LEN_MAX < host.len() || !host.chars().all(is_host) {
        return Err(ParseUrlError::Host);
    }
    // A program would take such a path for an option.
    if path.trim_matches('/').is_empty() || path.starts_with('-') {
        return Err(ParseUrlError::SshPath);
    }
    if path.chars().any(char::is_control) {
        return Err(ParseUrlError::Invalid);
    }
    Ok(SshTarget { user: user.to_owned(), host, port, path: path.to_owned() })
}

fn parse_file(rest: &str) -> Result<Url, ParseUrlError> {
    let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(ParseUrlError::FileHost);
    }
    let path = percent_decoded(path).ok_or(ParseUrlError::Invalid)?;
    Ok(Url::local(Path::new(&path)))
}

fn parse_http(rest: &str, encrypted: bool) -> Result<Url, ParseUrlError> {
    if rest.contains(['?', '#']) {
        return Err(ParseUrlError::Query);
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user_info, host) = match authority.rsplit_once('@') {
        Some((user_info, host)) => (Some(user_info), host),
        None => (None, authority),
    };
    if host.is_empty() || host.starts_with(':') {
        return Err(ParseUrlError::Host);
    }
    let scheme = if encrypted { "https" } else { "http" };
    let text = format!("{scheme}://{}{}", host.to_ascii_lowercase(), path.trim_end_matches('/'));
    let uri: Uri = text.parse().map_err(|_| ParseUrlError::Invalid)?;
    if uri.host().is_none_or(str::is_empty) {
        return Err(ParseUrlError::Host);
    }
    let port_is_number = uri.authority().is_some_and(|authority| {
        let after_host = authority.as_str().rsplit_once(']').map_or(authority.as_str(), |(_, port)| port);
        after_host.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port != 0))
    });
    if !port_is_number {
        return Err(ParseUrlError::Invalid);
    }
    let credentials = match user_info {
        Some(user_info) if !user_info.is_empty() => {
            let (username, password) = user_info.split_once(':').unwrap_or((user_info, ""));
            let decoded = |text| percent_decoded(text).ok_or(ParseUrlError::Invalid);
            Some(Credentials::Basic { username: decoded(username)?, password: decoded(password)? })
        }
        Some(_) | None => None,
    };
    Ok(Url(Kind::Http { text, encrypted, credentials }))
}

/// `%41` becomes `A`; `None` if the result is not UTF-8 or contains a zero byte.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digit = |position: usize| after.get(position).and_then(|&c| char::from(c).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).ok()?);
                rest = after.get(2..)?;
            }
            (b'%', _, _) => return None,
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests;
