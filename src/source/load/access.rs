//! The content of a source's Secret. Pure: the Secret is passed in.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use tidegate_core::name::Key;
use tidegate_git::Credentials;

use super::problem::Problem;
use crate::source::state::SeenSecret;

/// The content of a source's Secret: credentials, a CA, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::source) struct SourceAccess {
    /// Namespace and name of the Secret.
    pub(super) secret: Key,
    /// The version that was read.
    pub(super) seen: SeenSecret,
    /// The credentials.
    pub(super) credentials: Option<Credentials>,
    /// The CA certificates, in PEM.
    pub(super) ca: Option<Vec<u8>>,
}

// === impl SourceAccess ===

impl SourceAccess {
    /// Reads the content of a Secret. Fails if the Secret does not exist, or if its keys make no valid credentials.
    pub(super) fn from_secret(key: &Key, found: Option<Secret>) -> Result<SourceAccess, Problem> {
        let secret = found.ok_or_else(|| Problem::NoSecret(key.clone()))?;
        let seen = SeenSecret(secret.metadata.resource_version);
        let data = secret.data.unwrap_or_default();
        let text = |name: &str| data.get(name).map(text).transpose();
        let credentials = || match (text("username")?, text("password")?, text("bearerToken")?) {
            (None, None, None) => Ok(None),
            (None, None, Some(token)) => Ok(Some(Credentials::Bearer(token))),
            (Some(username), Some(password), None) => Ok(Some(Credentials::Basic { username, password })),
            (None, Some(password), None) => Ok(Some(Credentials::Basic { username: "git".to_owned(), password })),
            (Some(_), None, _) => Err("has a username but no password"),
            (_, Some(_), Some(_)) => Err("has both a password and a bearerToken: remove one of them"),
        };
        let ca = data.get("ca.crt").map(|bytes| bytes.0.clone());
        let problem = |what| Problem::Secret { secret: key.clone(), what, seen: seen.clone() };
        let credentials = credentials().map_err(problem)?;
        if credentials.is_none() && ca.is_none() {
            return Err(problem("has none of the keys username, password, bearerToken and ca.crt"));
        }
        Ok(SourceAccess { secret: key.clone(), seen, credentials, ca })
    }
}

/// The text of a value, without the line break that editors and `echo` add: it is part of no token.
fn text(bytes: &ByteString) -> Result<String, &'static str> {
    match std::str::from_utf8(&bytes.0) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(_) => Err("contains credentials that are not UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Data<'a> = &'a [(&'a str, &'a [u8])];

    #[test]
    fn a_secret_holds_credentials_or_a_ca_or_both() {
        let basic =
            |username: &str| Some(Credentials::Basic { username: username.to_owned(), password: "secret".to_owned() });
        let bearer = Some(Credentials::Bearer("token".to_owned()));
        let rows: [(Data<'_>, _, bool); 6] = [
            (&[("username", b"anna"), ("password", b"secret")], basic("anna"), false),
            (&[("password", b"secret")], basic("git"), false),
            (&[("username", b"anna\n"), ("password", b"secret\r\n")], basic("anna"), false),
            (&[("bearerToken", b"token\n")], bearer.clone(), false),
            (&[("bearerToken", b"token"), ("ca.crt", b"pem")], bearer, true),
            (&[("ca.crt", b"pem")], None, true),
        ];
        for (data, credentials, has_ca) in rows {
            let access = SourceAccess::from_secret(&key(), Some(secret(data))).unwrap();
            let ca = has_ca.then(|| b"pem".to_vec());
            assert_eq!(access, SourceAccess { secret: key(), seen: SeenSecret(Some("7".to_owned())), credentials, ca });
        }
    }

    #[test]
    fn a_secret_without_valid_keys_is_a_problem_that_another_version_may_solve() {
        let rows: [(Data<'_>, &str); 5] = [
            (&[], "has none of the keys username, password, bearerToken and ca.crt"),
            (&[("token", b"a")], "has none of the keys username, password, bearerToken and ca.crt"),
            (&[("username", b"anna")], "has a username but no password"),
            (&[("password", b"a"), ("bearerToken", b"b")], "has both a password and a bearerToken: remove one of them"),
            (&[("password", b"\xff")], "contains credentials that are not UTF-8"),
        ];
        for (data, expected) in rows {
            let problem = SourceAccess::from_secret(&key(), Some(secret(data))).unwrap_err();
            assert_eq!(problem.to_string(), format!("Secret kcp-system/dev-git {expected}"));
            assert_eq!(problem.seen_secret(), Some(&SeenSecret(Some("7".to_owned()))));
        }
        let problem = SourceAccess::from_secret(&key(), None).unwrap_err();
        assert_eq!(problem.to_string(), "Secret kcp-system/dev-git does not exist");
        assert_eq!(problem.seen_secret(), Some(&SeenSecret(None)));
    }

    fn key() -> Key {
        Key::new("kcp-system", "dev-git")
    }

    fn secret(data: &[(&str, &[u8])]) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.resource_version = Some("7".to_owned());
        let data: BTreeMap<String, ByteString> =
            data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect();
        secret.data = Some(data);
        secret
    }
}
