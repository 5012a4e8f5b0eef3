//! The content of a source's Secret. Pure: the Secret is passed in.
//!
//! The URL says which keys are read: those of Flux for https, or those for ssh. A key that nothing reads is a mistake
//! that no server reports, so it is named.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use tidegate_core::{diagnostic::Diagnostic, intake::code, name::Key};
use tidegate_git::{ClientCertificate, Credentials, Proxy, SshAccess, Url};

use super::problem::Problem;
use crate::source::state::SeenSecret;

/// The content of a source's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::source) struct SourceAccess {
    /// Namespace and name of the Secret.
    pub(super) secret: Key,
    /// The version that was read.
    pub(super) seen: SeenSecret,
    /// What it holds.
    pub(super) content: Content,
    /// Keys that nothing reads, sorted.
    pub(super) unread: Vec<String>,
}

/// What a Secret holds for a kind of URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// For https.
    Https {
        /// User name and password, or a token.
        credentials: Option<Credentials>,
        /// The CA certificates, in PEM.
        ca: Option<Vec<u8>>,
        /// A certificate of the client.
        client: Option<ClientCertificate>,
    },
    /// For ssh.
    Ssh(SshAccess),
}

/// The keys for https.
const HTTPS_KEYS: [&str; 6] = ["username", "password", "bearerToken", "ca.crt", "tls.crt", "tls.key"];
/// The keys for ssh. `flux create secret git` adds the public key, which does no harm.
const SSH_KEYS: [&str; 4] = ["identity", "identity.pub", "password", "known_hosts"];

type Data = std::collections::BTreeMap<String, ByteString>;

// === impl SourceAccess ===

impl SourceAccess {
    /// Reads the content of a Secret for a URL. Fails if the Secret does not exist, or if its keys make no valid
    /// credentials.
    pub(super) fn from_secret(url: &Url, key: &Key, found: Option<Secret>) -> Result<SourceAccess, Problem> {
        let secret = found.ok_or_else(|| Problem::NoSecret(key.clone()))?;
        let seen = SeenSecret(secret.metadata.resource_version);
        let data = secret.data.unwrap_or_default();
        let (content, known) = if url.is_ssh() {
            (ssh(&data).map(Content::Ssh), SSH_KEYS.as_slice())
        } else {
            (https(&data), HTTPS_KEYS.as_slice())
        };
        let content = content.map_err(|what| Problem::Secret { secret: key.clone(), what, seen: seen.clone() })?;
        let unread = data.into_keys().filter(|name| !known.contains(&name.as_str())).collect();
        Ok(SourceAccess { secret: key.clone(), seen, content, unread })
    }

    /// Whether it was read for a URL of this kind.
    pub(super) fn is_for(&self, url: &Url) -> bool {
        match self.content {
            Content::Https { .. } => !url.is_ssh(),
            Content::Ssh(_) => url.is_ssh(),
        }
    }

    /// A warning about keys that nothing reads.
    pub(super) fn warning(&self) -> Option<Diagnostic> {
        if self.unread.is_empty() {
            return None;
        }
        let names: Vec<String> = self.unread.iter().map(|name| format!("`{name}`")).collect();
        let (kind, known) = match self.content {
            Content::Https { .. } => ("https", HTTPS_KEYS.as_slice()),
            Content::Ssh(_) => ("ssh", SSH_KEYS.as_slice()),
        };
        let message = format!(
            "nothing reads {} of Secret {}: for an {kind} URL, the keys are {}",
            names.join(", "),
            self.secret,
            known.join(", ")
        );
        Some(Diagnostic::warning(code::SECRET_KEY_UNREAD, message))
    }
}

/// The proxy in a Secret. A Secret that changes is read again with the next fetch, so no version of it is kept.
pub(super) fn proxy(key: &Key, found: Option<Secret>) -> Result<Proxy, Problem> {
    let problem = |what: String| Problem::ProxySecret { secret: key.clone(), what };
    let data = found.ok_or_else(|| problem("does not exist".to_owned()))?.data.unwrap_or_default();
    let value = |name: &str| data.get(name).map(text).transpose().map_err(|what| problem(what.to_owned()));
    let address = value("address")?.ok_or_else(|| problem("has no key `address`".to_owned()))?;
    let credentials = match (value("username")?, value("password")?) {
        (None, None) => None,
        (Some(username), password) => Some((username, password.unwrap_or_default())),
        (None, Some(_)) => return Err(problem("has a password but no username".to_owned())),
    };
    let proxy = Proxy::new(&address, credentials).map_err(|error| problem(format!("has an `address` that {error}")))?;
    Ok(proxy.except(&value("noProxy")?.unwrap_or_default()))
}

fn https(data: &Data) -> Result<Content, &'static str> {
    let text = |name: &str| data.get(name).map(text).transpose();
    let bytes = |name: &str| data.get(name).map(|bytes| bytes.0.clone());
    let credentials = match (text("username")?, text("password")?, text("bearerToken")?) {
        (None, None, None) => None,
        (None, None, Some(token)) => Some(Credentials::Bearer(token)),
        (Some(username), Some(password), None) => Some(Credentials::Basic { username, password }),
        (None, Some(password), None) => Some(Credentials::Basic { username: "git".to_owned(), password }),
        (Some(_), None, _) => return Err("has a username but no password"),
        (_, Some(_), Some(_)) => return Err("has both a password and a bearerToken: remove one of them"),
    };
    let client = match (bytes("tls.crt"), bytes("tls.key")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
        (Some(_), None) => return Err("has a tls.crt but no tls.key"),
        (None, Some(_)) => return Err("has a tls.key but no tls.crt"),
    };
    let ca = bytes("ca.crt");
    if credentials.is_none() && ca.is_none() && client.is_none() {
        return Err("has none of the keys that an https URL needs: username and password, bearerToken, ca.crt, or \
                    tls.crt and tls.key");
    }
    Ok(Content::Https { credentials, ca, client })
}

fn ssh(data: &Data) -> Result<SshAccess, &'static str> {
    let text = |name: &str| data.get(name).map(text).transpose();
    if !data.contains_key("identity") && !data.contains_key("known_hosts") {
        return Err("has none of the keys that an ssh URL needs: identity and known_hosts");
    }
    Ok(SshAccess { identity: text("identity")?, passphrase: text("password")?, known_hosts: text("known_hosts")? })
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
    use super::*;

    type Given<'a> = &'a [(&'a str, &'a [u8])];

    #[test]
    fn a_secret_holds_credentials_or_a_ca_or_a_client_certificate_for_https() {
        let basic =
            |username: &str| Some(Credentials::Basic { username: username.to_owned(), password: "secret".to_owned() });
        let bearer = Some(Credentials::Bearer("token".to_owned()));
        let rows: [(Given<'_>, _, bool, bool); 7] = [
            (&[("username", b"anna"), ("password", b"secret")], basic("anna"), false, false),
            (&[("password", b"secret")], basic("git"), false, false),
            (&[("username", b"anna\n"), ("password", b"secret\r\n")], basic("anna"), false, false),
            (&[("bearerToken", b"token\n")], bearer.clone(), false, false),
            (&[("bearerToken", b"token"), ("ca.crt", b"pem")], bearer, true, false),
            (&[("ca.crt", b"pem")], None, true, false),
            (&[("tls.crt", b"pem"), ("tls.key", b"pem")], None, false, true),
        ];
        for (data, credentials, has_ca, has_client) in rows {
            let access = SourceAccess::from_secret(&https(), &key(), Some(secret(data))).unwrap();
            let pem = b"pem".to_vec();
            let client = has_client.then(|| ClientCertificate { certificate: pem.clone(), key: pem.clone() });
            let content = Content::Https { credentials, ca: has_ca.then_some(pem), client };
            let seen = SeenSecret(Some("7".to_owned()));
            assert_eq!(access, SourceAccess { secret: key(), seen, content, unread: Vec::new() });
            assert!(access.is_for(&https()) && !access.is_for(&ssh()));
        }
    }

    #[test]
    fn a_secret_holds_a_key_its_passphrase_and_known_hosts_for_ssh() {
        let data: Given<'_> = &[
            ("identity", b"pem\n"),
            ("identity.pub", b"x"),
            ("password", b"secret\n"),
            ("known_hosts", b"host x y\n"),
        ];
        let access = SourceAccess::from_secret(&ssh(), &key(), Some(secret(data))).unwrap();
        let content = SshAccess {
            identity: Some("pem".to_owned()),
            passphrase: Some("secret".to_owned()),
            known_hosts: Some("host x y".to_owned()),
        };
        assert_eq!((&access.content, &access.unread), (&Content::Ssh(content), &Vec::new()));
        assert!(access.is_for(&ssh()) && !access.is_for(&https()));
    }

    #[test]
    fn a_key_that_nothing_reads_is_a_warning() {
        let warning = |url: &Url, data: Given<'_>| {
            SourceAccess::from_secret(url, &key(), Some(secret(data))).unwrap().warning().map(|warning| warning.message)
        };
        assert_eq!(warning(&https(), &[("password", b"a")]), None);
        assert_eq!(
            warning(&https(), &[("password", b"a"), ("caFile", b"b"), ("identity", b"c")]).unwrap(),
            "nothing reads `caFile`, `identity` of Secret kcp-system/dev-git: for an https URL, the keys are username, \
             password, bearerToken, ca.crt, tls.crt, tls.key"
        );
        assert_eq!(
            warning(&ssh(), &[("identity", b"a"), ("username", b"b")]).unwrap(),
            "nothing reads `username` of Secret kcp-system/dev-git: for an ssh URL, the keys are identity, \
             identity.pub, password, known_hosts"
        );
    }

    #[test]
    fn a_secret_without_valid_keys_is_a_problem_that_another_version_may_solve() {
        let none = "has none of the keys that an https URL needs: username and password, bearerToken, ca.crt, or \
                    tls.crt and tls.key";
        let rows: [(Given<'_>, &str); 7] = [
            (&[], none),
            (&[("token", b"a")], none),
            (&[("username", b"anna")], "has a username but no password"),
            (&[("password", b"a"), ("bearerToken", b"b")], "has both a password and a bearerToken: remove one of them"),
            (&[("password", b"\xff")], "contains credentials that are not UTF-8"),
            (&[("tls.crt", b"a")], "has a tls.crt but no tls.key"),
            (&[("tls.key", b"a")], "has a tls.key but no tls.crt"),
        ];
        for (data, expected) in rows {
            let problem = SourceAccess::from_secret(&https(), &key(), Some(secret(data))).unwrap_err();
            assert_eq!(problem.to_string(), format!("Secret kcp-system/dev-git {expected}"));
            assert_eq!(problem.seen_secret(), Some(&SeenSecret(Some("7".to_owned()))));
        }
        let problem = SourceAccess::from_secret(&ssh(), &key(), Some(secret(&[("password", b"a")]))).unwrap_err();
        let none = "Secret kcp-system/dev-git has none of the keys that an ssh URL needs: identity and known_hosts";
        assert_eq!(problem.to_string(), none);
        let problem = SourceAccess::from_secret(&https(), &key(), None).unwrap_err();
        assert_eq!(problem.to_string(), "Secret kcp-system/dev-git does not exist");
        assert_eq!(problem.seen_secret(), Some(&SeenSecret(None)));
    }

    #[test]
    fn a_proxy_has_an_address_and_perhaps_credentials_and_exceptions() {
        let found = |data: Given<'_>| super::proxy(&key(), Some(secret(data)));
        let credentials = Some(("anna".to_owned(), "secret".to_owned()));
        let expected = Proxy::new("http://proxy:3128", credentials).unwrap().except("localhost");
        let all: Given<'_> = &[
            ("address", b"http://proxy:3128\n"),
            ("username", b"anna"),
            ("password", b"secret"),
            ("noProxy", b"localhost"),
        ];
        assert_eq!(found(all).unwrap(), expected);
        let rows: [(Given<'_>, &str); 3] = [
            (&[("password", b"a")], "has no key `address`"),
            (&[("address", b"http://proxy"), ("password", b"a")], "has a password but no username"),
            (
                &[("address", b"socks5://proxy")],
                "has an `address` that is not the address of a proxy: use http://host:port or https://host:port",
            ),
        ];
        for (data, expected) in rows {
            let problem = found(data).unwrap_err();
            assert_eq!(problem.to_string(), format!("Secret kcp-system/dev-git of spec.proxySecretRef {expected}"));
        }
        let absent = super::proxy(&key(), None).unwrap_err();
        assert_eq!(absent.to_string(), "Secret kcp-system/dev-git of spec.proxySecretRef does not exist");
    }

    fn https() -> Url {
        "https://git.example.com/a.git".parse().unwrap()
    }

    fn ssh() -> Url {
        "git@git.example.com:a.git".parse().unwrap()
    }

    fn key() -> Key {
        Key::new("kcp-system", "dev-git")
    }

    fn secret(data: &[(&str, &[u8])]) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.resource_version = Some("7".to_owned());
        let data: Data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect();
        secret.data = Some(data);
        secret
    }
}
