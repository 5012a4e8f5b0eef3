//! The URL of a repository: parsed once, printed without secrets.

use std::{
    fmt,
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
    #[error("`{0}` URLs are not supported; use https://")]
    Scheme(String),
    /// `user@host:path`.
    #[error("ssh is not supported; use an https:// URL")]
    Ssh,
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
    Local { path: PathBuf },
}

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
            Kind::Http { .. } => None,
        }
    }

    /// Who answers requests for the repository: host and port, or the path on this machine.
    pub fn server(&self) -> &str {
        match &self.0 {
            Kind::Http { text, .. } => {
                let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
                rest.split('/').next().unwrap_or_default()
            }
            Kind::Local { path } => path.to_str().unwrap_or_default(),
        }
    }

    /// Whether the connection is encrypted or local.
    pub fn is_encrypted(&self) -> bool {
        match &self.0 {
            Kind::Http { encrypted, .. } => *encrypted,
            Kind::Local { .. } => true,
        }
    }

    /// User name and password of the URL.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        match &self.0 {
            Kind::Http { credentials, .. } => credentials.as_ref(),
            Kind::Local { .. } => None,
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
            return parse_path(text);
        };
        match scheme.to_ascii_lowercase().as_str() {
            "https" => parse_http(rest, true),
            "http" => parse_http(rest, false),
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
            Kind::Http { text, .. } => f.write_str(text),
            Kind::Local { path } => path.display().fmt(f),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn parse_path(text: &str) -> Result<Url, ParseUrlError> {
    // As in git, `host:path` means ssh unless a slash precedes the colon.
    let before_slash = text.split('/').next().unwrap_or_default();
    if before_slash.contains(':') {
        return Err(ParseUrlError::Ssh);
    }
    Ok(Url::local(Path::new(text)))
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
fn percent_decoded(text: &str) -> Option<String> {
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
