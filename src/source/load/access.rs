//! The content of a source's Secret. Pure: the Secret is passed in.
//!
//! The URL says which keys are read: those of Flux for https, or those for ssh. A key that nothing reads is a mistake
//! that no server reports, so it is named.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use tidegate_core::{definition::near, diagnostic::Diagnostic, intake::code, name::Key};
use tidegate_git::{
    self as git, AppSettings, AppSettingsProblem, ClientCertificate, Credentials, GitHubApp, Proxy, SshAccess, Url,
};

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
        /// Who asks.
        login: Option<Login>,
        /// The CA certificates, in PEM.
        ca: Option<Vec<u8>>,
        /// A certificate of the client.
        client: Option<ClientCertificate>,
    },
    /// For ssh.
    Ssh(SshAccess),
}

/// Who asks a git server over https.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// User name and password, or a token.
    Credentials(Credentials),
    /// A GitHub App, with the token of the last fetch.
    GitHubApp(GitHubApp),
}

/// The content of the Secret of a source's proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProxyAccess {
    secret: Key,
    /// The proxy.
    pub(super) proxy: Proxy,
    /// Keys that nothing reads, sorted.
    unread: Vec<String>,
}

/// The keys for https.
const HTTPS_KEYS: [&str; 11] = [
    "username",
    "password",
    "bearerToken",
    "ca.crt",
    "tls.crt",
    "tls.key",
    "githubAppID",
    "githubAppInstallationID",
    "githubAppInstallationOwner",
    "githubAppPrivateKey",
    "githubAppBaseURL",
];
/// The keys of a GitHub App.
const APP_KEYS: &[&str] = HTTPS_KEYS.split_at(6).1;
/// The keys for ssh. `flux create secret git` adds the public key, which does no harm.
const SSH_KEYS: [&str; 4] = ["identity", "identity.pub", "password", "known_hosts"];

/// The keys of a proxy.
const PROXY_KEYS: [&str; 4] = ["address", "username", "password", "noProxy"];
/// Former names of keys of Flux.
const FORMER_KEYS: [(&str, &str); 3] = [("caFile", "ca.crt"), ("certFile", "tls.crt"), ("keyFile", "tls.key")];

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
            (https(url, &data), HTTPS_KEYS.as_slice())
        };
        let unread: Vec<String> = data.into_keys().filter(|name| !known.contains(&name.as_str())).collect();
        let content = content.map_err(|what| {
            let names = named(&unread, known).map(|names| format!("nothing reads {names}"));
            let problem = Problem::Secret { secret: key.clone(), what, seen: seen.clone() };
            problem.with_notes(&Vec::from_iter(names))
        })?;
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
        let (kind, known) = match self.content {
            Content::Https { .. } => ("an https URL", HTTPS_KEYS.as_slice()),
            Content::Ssh(_) => ("an ssh URL", SSH_KEYS.as_slice()),
        };
        unread(&self.secret, &self.unread, kind, known)
    }

    /// What to know of it after the git server gave this error: a key that nothing reads may be the one that is
    /// missing, and an error of a value does not know where the value comes from.
    pub(super) fn notes(&self, error: &git::Error) -> Vec<String> {
        let is_value = matches!(
            error,
            git::Error::Authorities
                | git::Error::Credentials { .. }
                | git::Error::ClientCertificate { .. }
                | git::Error::Identity { .. }
                | git::Error::KnownHosts { .. }
        );
        let correct = is_value.then(|| format!("correct Secret {}", self.secret));
        correct.into_iter().chain(self.warning().map(|warning| warning.message)).collect()
    }
}

// === impl ProxyAccess ===

impl ProxyAccess {
    /// A warning about keys that nothing reads.
    pub(super) fn warning(&self) -> Option<Diagnostic> {
        unread(&self.secret, &self.unread, "a proxy", &PROXY_KEYS)
    }
}

/// A warning about keys of a Secret that nothing reads.
pub(in crate::source) fn unread(secret: &Key, names: &[String], kind: &str, known: &[&str]) -> Option<Diagnostic> {
    let (names, known) = (named(names, known)?, known.join(", "));
    let message = format!("nothing reads {names} of Secret {secret}: for {kind}, the keys are {known}");
    Some(Diagnostic::warning(code::SECRET_KEY_UNREAD, message))
}

/// Names of keys that nothing reads, each with the one that was probably meant.
fn named(unread: &[String], known: &[&str]) -> Option<String> {
    let name = |name: &String| {
        let former = FORMER_KEYS.iter().find(|(former, _)| former == name).map(|(_, key)| *key);
        let meant = former.filter(|key| known.contains(key)).or_else(|| near::nearest(name, known.iter().copied()));
        meant.map_or_else(|| format!("`{name}`"), |meant| format!("`{name}` (rename it to `{meant}`)"))
    };
    (!unread.is_empty()).then(|| unread.iter().map(name).collect::<Vec<_>>().join(", "))
}

/// The proxy in a Secret. A Secret that changes is read again with the next fetch, so no version of it is kept.
pub(super) fn proxy(key: &Key, found: Option<Secret>) -> Result<ProxyAccess, Problem> {
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
    let proxy = proxy.except(&value("noProxy")?.unwrap_or_default());
    let unread = data.into_keys().filter(|name| !PROXY_KEYS.contains(&name.as_str())).collect();
    Ok(ProxyAccess { secret: key.clone(), proxy, unread })
}

fn https(url: &Url, data: &Data) -> Result<Content, &'static str> {
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
    let login = match (credentials, github_app(url, data)?) {
        (Some(_), Some(_)) => return Err("has both a GitHub App and other credentials: remove one of them"),
        (credentials, app) => credentials.map(Login::Credentials).or(app.map(Login::GitHubApp)),
    };
    let ca = bytes("ca.crt");
    if login.is_none() && ca.is_none() && client.is_none() {
        return Err("has none of the keys that an https URL needs: username and password, bearerToken, githubAppID, \
                    ca.crt, or tls.crt and tls.key");
    }
    Ok(Content::Https { login, ca, client })
}

fn github_app(url: &Url, data: &Data) -> Result<Option<GitHubApp>, &'static str> {
    let value = |name: &str| data.get(name).map(text).transpose();
    let (id, private_key) = match (value("githubAppID")?, value("githubAppPrivateKey")?) {
        (Some(id), Some(private_key)) => (id, private_key),
        (Some(_), None) => return Err("has a githubAppID but no githubAppPrivateKey"),
        (None, _) if APP_KEYS.iter().any(|name| data.contains_key(*name)) => {
            return Err("has keys of a GitHub App but no githubAppID");
        }
        (None, _) => return Ok(None),
    };
    let settings = AppSettings {
        id,
        installation: value("githubAppInstallationID")?,
        owner: value("githubAppInstallationOwner")?,
        private_key,
        base_url: value("githubAppBaseURL")?,
    };
    GitHubApp::new(settings, url).map(Some).map_err(AppSettingsProblem::text)
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
            let login = credentials.map(Login::Credentials);
            let content = Content::Https { login, ca: has_ca.then_some(pem), client };
            let seen = SeenSecret(Some("7".to_owned()));
            assert_eq!(access, SourceAccess { secret: key(), seen, content, unread: Vec::new() });
            assert!(access.is_for(&https()) && !access.is_for(&ssh()));
        }
    }

    #[test]
    fn a_secret_holds_a_github_app_and_no_other_credentials_beside_it() {
        let key = include_bytes!("../../../crates/git/testdata/ssh/rsa_pkcs1");
        let app = [
            ("githubAppID", &b"12\n"[..]),
            ("githubAppInstallationOwner", b"team\n"),
            ("githubAppPrivateKey", key),
            ("ca.crt", b"pem"),
        ];
        let github: Url = "https://github.com/team/a.git".parse().unwrap();
        let access = SourceAccess::from_secret(&github, &self::key(), Some(secret(&app))).unwrap();
        let settings = AppSettings {
            id: "12".to_owned(),
            installation: None,
            owner: Some("team".to_owned()),
            private_key: std::str::from_utf8(key).unwrap().trim_end().to_owned(),
            base_url: None,
        };
        let login = Some(Login::GitHubApp(GitHubApp::new(settings, &github).unwrap()));
        assert_eq!(access.content, Content::Https { login, ca: Some(b"pem".to_vec()), client: None });
        assert_eq!(access.warning(), None);
        let shown = format!("{access:?}");
        assert!(!shown.contains("PRIVATE KEY") && !shown.contains("MII"), "{shown}");
        let both = [&app[..], &[("password", b"a")]].concat();
        let problem = SourceAccess::from_secret(&github, &self::key(), Some(secret(&both))).unwrap_err();
        let expected = "Secret kcp-system/dev-git has both a GitHub App and other credentials: remove one of them";
        assert_eq!(problem.to_string(), expected);
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
    fn each_key_of_a_secret_has_a_row_in_the_documentation() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gitsource.md");
        let page = std::fs::read_to_string(path).unwrap();
        let ssh = SSH_KEYS.iter().filter(|key| **key != "identity.pub").map(|key| (key, "ssh"));
        for (key, kind) in HTTPS_KEYS.iter().map(|key| (key, "https")).chain(ssh) {
            assert!(
                page.contains(&format!("\n| `{key}` | {kind} | ")),
                "docs/gitsource.md has no row for {key} of {kind}"
            );
        }
        for key in PROXY_KEYS {
            assert!(page.contains(&format!("\n| `{key}` | ")), "docs/gitsource.md has no row for {key} of a proxy");
        }
    }

    #[test]
    fn a_key_that_nothing_reads_is_a_warning() {
        let warning = |url: &Url, data: Given<'_>| {
            SourceAccess::from_secret(url, &key(), Some(secret(data))).unwrap().warning().map(|warning| warning.message)
        };
        assert_eq!(warning(&https(), &[("password", b"a")]), None);
        assert_eq!(
            warning(&https(), &[("password", b"a"), ("caFile", b"b"), ("identity", b"c")]).unwrap(),
            "nothing reads `caFile` (rename it to `ca.crt`), `identity` of Secret kcp-system/dev-git: for an https URL, the keys are username, \
             password, bearerToken, ca.crt, tls.crt, tls.key, githubAppID, githubAppInstallationID, \
             githubAppInstallationOwner, githubAppPrivateKey, githubAppBaseURL"
        );
        let misspelt = warning(&https(), &[("password", b"a"), ("ca.cert", b"b")]).unwrap();
        assert!(misspelt.starts_with("nothing reads `ca.cert` (rename it to `ca.crt`) of Secret "), "{misspelt}");
        assert_eq!(
            warning(&ssh(), &[("identity", b"a"), ("username", b"b")]).unwrap(),
            "nothing reads `username` of Secret kcp-system/dev-git: for an ssh URL, the keys are identity, \
             identity.pub, password, known_hosts"
        );
    }

    #[test]
    fn a_secret_without_valid_keys_is_a_problem_that_another_version_may_solve() {
        let none = "has none of the keys that an https URL needs: username and password, bearerToken, githubAppID, \
                    ca.crt, or tls.crt and tls.key";
        let rows: [(Given<'_>, &str); 10] = [
            (&[], none),
            (&[("ca.cert", b"a")], &format!("{none}; nothing reads `ca.cert` (rename it to `ca.crt`)")),
            (&[("username", b"anna")], "has a username but no password"),
            (&[("password", b"a"), ("bearerToken", b"b")], "has both a password and a bearerToken: remove one of them"),
            (&[("password", b"\xff")], "contains credentials that are not UTF-8"),
            (&[("tls.crt", b"a")], "has a tls.crt but no tls.key"),
            (&[("tls.key", b"a")], "has a tls.key but no tls.crt"),
            (&[("githubAppID", b"1")], "has a githubAppID but no githubAppPrivateKey"),
            (&[("githubAppPrivateKey", b"1")], "has keys of a GitHub App but no githubAppID"),
            (
                &[("githubAppID", b"1"), ("githubAppPrivateKey", b"a"), ("githubAppInstallationID", b"2")],
                "has no githubAppBaseURL, which a repository outside of github.com needs: add the URL of its API, for \
                 example https://github.example.com/api/v3",
            ),
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
        let access = found(all).unwrap();
        assert_eq!((&access.proxy, access.warning()), (&expected, None));
        let misspelt = found(&[("address", b"http://proxy:3128"), ("no_proxy", b"localhost")]).unwrap();
        assert_eq!(
            misspelt.warning().unwrap().message,
            "nothing reads `no_proxy` (rename it to `noProxy`) of Secret kcp-system/dev-git: for a proxy, the keys are \
             address, username, password, noProxy"
        );
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
