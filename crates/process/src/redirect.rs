//! Decides whether to follow a redirect of a git server or a registry, and whether credentials may be sent there. Pure.
//!
//! Registries of clouds redirect the reading of a blob to their storage, which has another host. So another host is
//! allowed, but without credentials. A step back from https to plain http is refused.

use http::Uri;

/// The next request.
#[derive(Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its URL.
    pub uri: Uri,
    /// Whether credentials may be sent: only to the origin that they were given for.
    pub is_same_origin: bool,
}

/// Why a redirect is not followed, as the end of the sentence "… redirects".
pub type Why = &'static str;

/// Resolves `location` from the answer of `current`, for a request that began at `origin`.
///
/// # Errors
///
/// Fails if the redirect must not be followed.
pub fn follow(origin: &Uri, current: &Uri, location: &[u8]) -> Result<Hop, Why> {
    let location = std::str::from_utf8(location).map_err(|_| "to an invalid URL")?;
    if has_other_scheme(location) {
        return Err("to a URL that is neither https nor http");
    }
    let uri = resolve(current, location).ok_or("to an invalid URL")?;
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if current.scheme_str() == Some("http") => {}
        Some("http") => return Err("from https to plain http, which is refused"),
        _ => return Err("to a URL that is neither https nor http"),
    }
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err("to a URL with credentials, which is refused");
    }
    Ok(Hop { is_same_origin: parts(&uri) == parts(origin), uri })
}

/// Whether a URL has a scheme that is neither https nor http, for example `javascript:`. A path may contain a colon
/// after its first slash.
fn has_other_scheme(location: &str) -> bool {
    let Some((scheme, _)) = location.split(['/', '?', '#']).next().and_then(|start| start.split_once(':')) else {
        return false;
    };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme && !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http")
}

/// Scheme, host and port.
fn parts(uri: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let port_of_scheme = match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    };
    (uri.scheme_str(), uri.host().map(str::to_ascii_lowercase), uri.port_u16().or(port_of_scheme))
}

fn resolve(current: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (current.scheme_str()?, current.authority()?);
    // A query may contain a URL, so only the part before it tells whether there is a scheme.
    let path = location.split(['?', '#']).next()?;
    let text = if path.contains("://") {
        location.to_owned()
    } else if path.starts_with("//") {
        format!("{scheme}:{location}")
    } else if path.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let folder = current.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    let without_fragment = text.split('#').next()?;
    without_fragment.parse().ok()
}

#[cfg(test)]
mod tests;
