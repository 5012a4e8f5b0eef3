//! A GitHub App in place of a user's token: its private key signs a JWT, for which GitHub's API gives a token of an
//! hour, and git gets that token as a password.
//!
//! The token may read the contents of repositories, and nothing else, whatever the app may do. It is kept in memory
//! until a minute before its end. No error repeats a key, a JWT or a token.

mod exchange;

use std::{fmt, str::FromStr as _, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use rustls::{
    SignatureScheme,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    sign::SigningKey,
};
use serde::Deserialize;
use serde_json::json;

pub use self::exchange::AppProblem;
use super::url::Url;
use tidegate_process::{lock::Mutex, tls};

/// What a Secret says of a GitHub App. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct AppSettings {
    /// The id of the app, or its client id.
    pub id: String,
    /// The id of the installation.
    pub installation: Option<String>,
    /// The user or organization for which the app is installed.
    pub owner: Option<String>,
    /// The private key of the app, in PEM.
    pub private_key: String,
    /// The URL of the API; `None` for that of github.com.
    pub base_url: Option<String>,
}

/// A GitHub App that is installed for the owner of a repository. Clones share its token. `Debug` shows no secret.
#[derive(Clone)]
pub struct GitHubApp(Arc<App>);

struct App {
    settings: AppSettings,
    installation: Installation,
    key: Arc<dyn SigningKey>,
    api: Url,
    token: Mutex<Option<Token>>,
}

/// Where an app is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Installation {
    Id(String),
    Owner(String),
}

/// A token, with the time until which it is used.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) until: Timestamp,
}

/// Why the settings of a GitHub App cannot be used. Each is the end of the sentence "Secret … ".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppSettingsProblem {
    /// The id is invalid.
    Id,
    /// There is no installation.
    NoInstallation,
    /// There are two installations.
    TwoInstallations,
    /// The id of the installation is invalid.
    InstallationId,
    /// The owner is invalid.
    Owner,
    /// The private key is invalid.
    Key,
    /// The private key is encrypted.
    EncryptedKey,
    /// The private key cannot sign as GitHub wants it.
    NotRsa,
    /// The URL of the API is invalid.
    BaseUrl,
    /// The repository is not on github.com, and there is no URL of the API.
    NoBaseUrl,
}

/// The API of github.com.
const GITHUB_API: &str = "https://api.github.com";
/// The hosts of repositories whose API is [`GITHUB_API`].
const GITHUB_HOSTS: [&str; 3] = ["github.com", "github.com:443", "www.github.com"];
/// Where a GitHub Enterprise Server has its API.
const ENTERPRISE_PATH: &str = "/api/v3";
/// The user name with which git sends a token.
pub(super) const USER: &str = "x-access-token";
/// GitHub recommends this, because clocks differ.
const ISSUED_BEFORE: SignedDuration = SignedDuration::from_secs(60);
/// GitHub accepts no JWT that lasts longer than ten minutes.
const JWT_LIFETIME: SignedDuration = SignedDuration::from_mins(9);
/// A token is not used in its last minute: a fetch may begin with it, and take a while.
const UNUSED_END: SignedDuration = SignedDuration::from_secs(60);
/// GitHub's tokens last an hour. No answer makes Tidegate keep one longer.
const TOKEN_LIFETIME_MAX: SignedDuration = SignedDuration::from_hours(1);
/// Longest token that is sent as a password. GitHub's have about 500 characters.
const TOKEN_LEN_MAX: usize = 4096;
/// Longest name of an app or owner.
const NAME_LEN_MAX: usize = 100;

// === impl GitHubApp ===

impl GitHubApp {
    /// Checks the settings of an app for a repository.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that is missing or invalid.
    pub fn new(settings: AppSettings, repository: &Url) -> Result<GitHubApp, AppSettingsProblem> {
        if !is_name(&settings.id, "._-") {
            return Err(AppSettingsProblem::Id);
        }
        let installation = match (&settings.installation, &settings.owner) {
            (None, None) => return Err(AppSettingsProblem::NoInstallation),
            (Some(_), Some(_)) => return Err(AppSettingsProblem::TwoInstallations),
            (Some(id), None) if is_number(id) => Installation::Id(id.clone()),
            (Some(_), None) => return Err(AppSettingsProblem::InstallationId),
            (None, Some(owner)) if is_name(owner, "-_") => Installation::Owner(owner.clone()),
            (None, Some(_)) => return Err(AppSettingsProblem::Owner),
        };
        let api = match &settings.base_url {
            Some(text) => api(text).ok_or(AppSettingsProblem::BaseUrl)?,
            // The token of one host is not sent to another one.
            None if !GITHUB_HOSTS.contains(&repository.server()) => return Err(AppSettingsProblem::NoBaseUrl),
            None => Url::from_str(GITHUB_API).map_err(|_| AppSettingsProblem::BaseUrl)?,
        };
        let key = signing_key(&settings.private_key)?;
        Ok(GitHubApp(Arc::new(App { settings, installation, key, api, token: Mutex::new(None) })))
    }

    /// The token of an earlier fetch, if it may still be used.
    fn kept(&self, now: Timestamp) -> Option<String> {
        self.0.token.lock().as_ref().filter(|token| now < token.until).map(|token| token.text.clone())
    }

    fn keep(&self, token: Token) {
        *self.0.token.lock() = Some(token);
    }

    /// A JWT that says that this is the app; `None` if the key cannot sign.
    fn jwt(&self, now: Timestamp) -> Option<String> {
        let claims = json!({
            "iat": now.checked_sub(ISSUED_BEFORE).ok()?.as_second(),
            "exp": now.checked_add(JWT_LIFETIME).ok()?.as_second(),
            "iss": self.0.settings.id,
        });
        let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "RS256", "typ": "JWT"})), part(&claims));
        let signer = self.0.key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])?;
        let signature = signer.sign(signed.as_bytes()).ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl PartialEq for GitHubApp {
    fn eq(&self, other: &GitHubApp) -> bool {
        self.0.settings == other.0.settings
    }
}

impl Eq for GitHubApp {}

impl fmt::Debug for GitHubApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHubApp({})", self.0.settings.id)
    }
}

/// Letters and digits of ASCII, and these others.
fn is_name(text: &str, others: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_digit()) && text.parse::<u64>().is_ok()
}

/// The URL of an API. A server of GitHub Enterprise has it under [`ENTERPRISE_PATH`], which may be left out.
fn api(text: &str) -> Option<Url> {
    let url: Url = text.trim().parse().ok()?;
    let text = url.to_string();
    let (host, path) = text.strip_prefix("https://").map(|rest| rest.split_at(rest.find('/').unwrap_or(rest.len())))?;
    if url.credentials().is_some() {
        return None;
    }
    // `api.github.com`, and `api.company.ghe.com`.
    if path.is_empty() && !host.starts_with("api.") {
        format!("{text}{ENTERPRISE_PATH}").parse().ok()
    } else {
        Some(url)
    }
}

fn signing_key(pem: &str) -> Result<Arc<dyn SigningKey>, AppSettingsProblem> {
    if pem.contains("BEGIN ENCRYPTED PRIVATE KEY") || pem.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(AppSettingsProblem::EncryptedKey);
    }
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| AppSettingsProblem::Key)?;
    let key = tls::provider(tls::Algorithms::All).key_provider.load_private_key(key);
    let key = key.map_err(|_| AppSettingsProblem::NotRsa)?;
    match key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]) {
        Some(_) => Ok(key),
        None => Err(AppSettingsProblem::NotRsa),
    }
}

// === impl AppSettings ===

impl fmt::Debug for AppSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppSettings({})", self.id)
    }
}

// === impl AppSettingsProblem ===

impl AppSettingsProblem {
    /// What is wrong, as the end of the sentence "Secret … ".
    pub const fn text(self) -> &'static str {
        match self {
            AppSettingsProblem::Id => {
                "has a githubAppID that is neither a number nor a client id: copy it from the settings of the app"
            }
            AppSettingsProblem::NoInstallation => {
                "has a githubAppID, and neither githubAppInstallationID nor githubAppInstallationOwner: add one of them"
            }
            AppSettingsProblem::TwoInstallations => {
                "has both githubAppInstallationID and githubAppInstallationOwner: remove one of them"
            }
            AppSettingsProblem::InstallationId => {
                "has a githubAppInstallationID that is not a number: copy it from the URL of the installation"
            }
            AppSettingsProblem::Owner => {
                "has a githubAppInstallationOwner that is not the name of a user or organization"
            }
            AppSettingsProblem::Key => {
                "has a githubAppPrivateKey that is not a private key in PEM: use the whole file that GitHub generates"
            }
            AppSettingsProblem::EncryptedKey => {
                "has a githubAppPrivateKey that is encrypted: use the file that GitHub generates"
            }
            AppSettingsProblem::NotRsa => {
                "has a githubAppPrivateKey that is not an RSA key of at least 2048 bits: use the file that GitHub \
                 generates"
            }
            AppSettingsProblem::BaseUrl => {
                "has a githubAppBaseURL that is not the https:// URL of an API, for example \
                 https://github.example.com/api/v3"
            }
            AppSettingsProblem::NoBaseUrl => {
                "has no githubAppBaseURL, which a repository outside of github.com needs: add the URL of its API, for \
                 example https://github.example.com/api/v3"
            }
        }
    }
}

// === impl Token ===

impl Token {
    /// The token in an answer of the API. `None` if there is none that can be sent.
    pub(super) fn parse(answer: &[u8], now: Timestamp) -> Option<Token> {
        #[derive(Deserialize)]
        struct Answer {
            token: String,
            expires_at: Timestamp,
        }
        let Answer { token, expires_at } = serde_json::from_slice(answer).ok()?;
        let is_sendable = (1..=TOKEN_LEN_MAX).contains(&token.len()) && token.bytes().all(|c| c.is_ascii_graphic());
        let latest = now.checked_add(TOKEN_LIFETIME_MAX).ok()?;
        let until = expires_at.min(latest).checked_sub(UNUSED_END).ok()?;
        is_sendable.then_some(Token { text: token, until })
    }
}

/// The id of an installation in an answer of the API.
pub(super) fn installation(answer: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Answer {
        id: u64,
    }
    serde_json::from_slice::<Answer>(answer).ok().map(|answer| answer.id)
}

#[cfg(test)]
mod tests;
