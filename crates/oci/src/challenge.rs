//! Reads what a registry asks for with 401, and decides who gets the credentials. Pure.

use http::{HeaderMap, Uri, header::WWW_AUTHENTICATE};
use tidegate_core::component::RegistryAddress;

use super::error::Realm;

/// What a registry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User name and password.
    Basic,
    /// A token of a token server.
    Bearer {
        /// URL of the token server.
        realm: String,
        /// The name of the registry there.
        service: Option<String>,
    },
}

/// A token server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenServer {
    pub(super) uri: Uri,
    /// Whether it is asked with the credentials.
    pub(super) with_credentials: bool,
}

/// The challenge to answer: a token if there is a choice, because it is for one repository only. `None` if no challenge
/// is known.
pub(super) fn read(headers: &HeaderMap) -> Option<Challenge> {
    let mut best = None;
    for value in headers.get_all(WWW_AUTHENTICATE) {
        let Ok(text) = value.to_str() else { continue };
        for (scheme, parameters) in challenges(text) {
            let parameter = |name: &str| {
                parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
            };
            if scheme.eq_ignore_ascii_case("bearer")
                && let Some(realm) = parameter("realm")
            {
                return Some(Challenge::Bearer { realm, service: parameter("service") });
            }
            if scheme.eq_ignore_ascii_case("basic") {
                best = Some(Challenge::Basic);
            }
        }
    }
    best
}

/// The URL to request a token from.
///
/// Anyone who can answer for the registry can name a token server. So credentials only go to the registry's own host
/// and to hosts that the user allowed, and only encrypted.
pub(super) fn token_server(
    registry: &RegistryAddress,
    realm: &str,
    query: &[(&str, &str)],
    has_credentials: bool,
    allowed: &[String],
) -> Result<TokenServer, Realm> {
    let uri: Uri = realm.parse().map_err(|_| Realm::Invalid)?;
    let authority = uri.authority().ok_or(Realm::Invalid)?;
    if authority.as_str().contains('@') {
        return Err(Realm::Invalid);
    }
    let host = authority.host();
    let is_allowed =
        host.eq_ignore_ascii_case(registry.host()) || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(host));
    match uri.scheme_str() {
        Some("https") if has_credentials && !is_allowed => return Err(Realm::OtherHost(shown(host))),
        Some("https") => {}
        Some("http") if registry.is_encrypted() => return Err(Realm::Downgrade),
        Some("http") if has_credentials => return Err(Realm::Plain),
        Some("http") => {}
        _ => return Err(Realm::Invalid),
    }
    let separator = if realm.contains('?') { '&' } else { '?' };
    let query: Vec<String> = query.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
    let uri = format!("{realm}{separator}{}", query.join("&")).parse().map_err(|_| Realm::Invalid)?;
    Ok(TokenServer { uri, with_credentials: has_credentials })
}

/// The schemes with their parameters. What cannot be read ends the list.
fn challenges(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c == ',' || c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let after = after.trim_start_matches([' ', '\t']);
        match (after.strip_prefix('='), found.last_mut()) {
            (Some(value), Some((_, parameters))) if !word.is_empty() => {
                let Some((value, after)) = parameter_value(value.trim_start_matches([' ', '\t'])) else { break };
                parameters.push((word.to_owned(), value));
                rest = after;
            }
            (None, _) if !word.is_empty() => {
                found.push((word.to_owned(), Vec::new()));
                rest = after;
            }
            _ => break,
        }
        rest = rest.trim_start_matches([' ', '\t', ',']);
    }
    found
}

/// A token or a quoted string, and the text after it.
fn parameter_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[index + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// Percent-encodes everything but letters, digits and what scopes consist of.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'/' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// A host for an error. A parsed URL has no control characters; a long one is cut.
fn shown(host: &str) -> String {
    const HOST_LEN_MAX: usize = 100;
    host.chars().take(HOST_LEN_MAX).collect()
}

#[cfg(test)]
mod tests;
