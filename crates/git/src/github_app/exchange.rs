//! The requests to GitHub's API: at most three, within the time of the fetch, through its proxy and with its CAs.
//!
//! No redirect is followed: the JWT would go to another place.

use std::{io::Read as _, time::Instant};

use jiff::{Timestamp, fmt::rfc2822};
use ureq::{
    Body,
    http::{HeaderMap, Request, Response, header},
};

use super::{GitHubApp, Installation, Token, USER, installation};
use crate::{
    error::Error,
    http::Session,
    limits::{GITHUB_ANSWER_BYTES_MAX, RETRY_AFTER_MAX},
    remote::{Credentials, Remote},
    url::Url,
};
use tidegate_process::{ambient, retry};

/// Why GitHub's API gives no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppProblem {
    /// The private key cannot sign.
    #[error("githubAppPrivateKey cannot sign: generate another key in the settings of the app")]
    Key,
    /// The signature is wrong.
    #[error(
        "it rejects the signature of the app (401): check that githubAppPrivateKey is a current key of the app \
         githubAppID"
    )]
    Signature,
    /// The times in the JWT are wrong.
    #[error("it rejects the app (401), because its clock and that of Tidegate differ by {seconds} s: synchronize them")]
    Clock {
        /// By how much.
        seconds: u64,
    },
    /// The owner has no installation of the app.
    #[error(
        "the app is not installed for {owner}: install it there, or correct githubAppInstallationOwner or githubAppID"
    )]
    NotInstalled {
        /// The user or organization.
        owner: String,
    },
    /// The installation does not exist.
    #[error(
        "the app has no installation {id}: correct githubAppInstallationID or githubAppID, or install the app again"
    )]
    NoInstallation {
        /// The installation.
        id: String,
    },
    /// The installation gives no token.
    #[error(
        "it denies the app a token (403): check in the settings of the owner whether the installation is suspended"
    )]
    Denied,
    /// The app has not the permission to read repositories.
    #[error(
        "it denies the app a token (422): give the app the permission to read the contents of repositories, and let \
         the owner accept it"
    )]
    Permission,
    /// There were too many requests.
    #[error("it limits the rate of requests of the app ({status})")]
    Rate {
        /// The status.
        status: u16,
    },
    /// The API has a problem.
    #[error("it answers with HTTP status {status}; Tidegate tries again")]
    Server {
        /// The status.
        status: u16,
    },
    /// Another status.
    #[error("it answers with HTTP status {status}: check githubAppBaseURL, and what is between Tidegate and GitHub")]
    Status {
        /// The status.
        status: u16,
    },
    /// A redirect.
    #[error("it redirects, which is not followed: correct githubAppBaseURL")]
    Redirect,
    /// Something else than the answer of the API.
    #[error("its answer is not one of GitHub's API: check githubAppBaseURL")]
    Answer,
    /// The answer exceeds a limit.
    #[error("its answer has more than {} bytes: check githubAppBaseURL", GITHUB_ANSWER_BYTES_MAX)]
    TooMuch,
}

/// What a request asks for.
#[derive(Clone, Copy)]
enum Question<'a> {
    /// The installation for an owner.
    Owner(&'a str),
    /// A token of an installation.
    Token(&'a str),
}

/// Clocks that differ by less cannot be why a JWT is rejected: it was issued a minute before.
const CLOCKS_DIFFER_MAX: u64 = 55;
/// The version of the API.
const API_VERSION: &str = "2022-11-28";
/// Whatever else the app may do, the token can only read files.
const PERMISSIONS: &str = r#"{"permissions":{"contents":"read"}}"#;

// === impl AppProblem ===

impl AppProblem {
    /// One word for conditions and metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            AppProblem::Key
            | AppProblem::Signature
            | AppProblem::Clock { .. }
            | AppProblem::NotInstalled { .. }
            | AppProblem::NoInstallation { .. } => "AuthenticationFailed",
            AppProblem::Denied | AppProblem::Permission => "AccessDenied",
            AppProblem::Rate { .. } => "RateLimited",
            AppProblem::Server { .. } => "ServerError",
            AppProblem::Redirect => "RedirectRefused",
            AppProblem::Status { .. } | AppProblem::Answer => "AnswerNotUnderstood",
            AppProblem::TooMuch => "LimitExceeded",
        }
    }
}

// === impl GitHubApp ===

impl GitHubApp {
    /// The user name and the token for git: the one that is kept, or a new one.
    ///
    /// # Errors
    ///
    /// Fails if GitHub does not issue a token.
    pub(crate) fn credentials(&self, remote: &Remote, deadline: Instant) -> Result<Credentials, Error> {
        let now = ambient::now();
        let password = match self.kept(now) {
            Some(kept) => kept,
            None => {
                let token = self.request(remote, deadline, now)?;
                self.keep(token.clone());
                token.text
            }
        };
        Ok(Credentials::Basic { username: USER.to_owned(), password })
    }

    fn request(&self, remote: &Remote, deadline: Instant, now: Timestamp) -> Result<Token, Error> {
        let url = || Box::new(self.0.api.clone());
        let jwt = self.jwt(now).ok_or_else(|| failure(url(), AppProblem::Key))?;
        let api = Session::with(remote, self.0.api.clone(), Some(Credentials::Bearer(jwt)), deadline)?;
        let id = match &self.0.installation {
            Installation::Id(id) => id.clone(),
            Installation::Owner(owner) => {
                let answer = find(&api, &self.0.api, owner)?;
                installation(&answer).ok_or_else(|| failure(url(), AppProblem::Answer))?.to_string()
            }
        };
        let path = format!("{}/app/installations/{id}/access_tokens", self.0.api);
        let answer = ask(&api, Request::post(path), PERMISSIONS, Question::Token(&id))?;
        Token::parse(&answer, ambient::now()).ok_or_else(|| failure(url(), AppProblem::Answer))
    }
}

/// The installation for an owner, who is an organization or a user.
fn find(api: &Session, url: &Url, owner: &str) -> Result<Vec<u8>, Error> {
    let question = Question::Owner(owner);
    match ask(api, Request::get(format!("{url}/orgs/{owner}/installation")), "", question) {
        Err(Error::GitHubApp { why: AppProblem::NotInstalled { .. }, .. }) => {
            ask(api, Request::get(format!("{url}/users/{owner}/installation")), "", question)
        }
        other => other,
    }
}

/// Sends a request, and returns its answer.
fn ask(
    api: &Session,
    request: ureq::http::request::Builder,
    body: &str,
    question: Question<'_>,
) -> Result<Vec<u8>, Error> {
    let request = request
        .header(header::ACCEPT, "application/vnd.github+json")
        .header("x-github-api-version", API_VERSION)
        .header(header::CONTENT_TYPE, "application/json");
    let request = api.request(request, body.as_bytes().to_vec())?;
    let response = api.send(request, true)?;
    let (status, now) = (response.status().as_u16(), ambient::now());
    if matches!(status, 200 | 201) {
        return read(api, response);
    }
    let (why, retry_after) = (problem(status, response.headers(), question, now), wait(response.headers(), now));
    let retry_after = retry_after.filter(|_| matches!(why, AppProblem::Rate { .. } | AppProblem::Server { .. }));
    Err(Error::GitHubApp { url: api.url(), why, said: api.said(response), retry_after })
}

fn read(api: &Session, response: Response<Body>) -> Result<Vec<u8>, Error> {
    let mut answer = Vec::new();
    // Larger by one, so that an answer of exactly this size is no problem.
    let limit = GITHUB_ANSWER_BYTES_MAX + 1;
    let body = response.into_body().into_with_config().limit(limit + 1).reader();
    body.take(limit).read_to_end(&mut answer).map_err(|error| api.read_error(&error))?;
    if GITHUB_ANSWER_BYTES_MAX < answer.len() as u64 {
        return Err(failure(api.url(), AppProblem::TooMuch));
    }
    Ok(answer)
}

fn failure(url: Box<Url>, why: AppProblem) -> Error {
    Error::GitHubApp { url, why, said: None, retry_after: None }
}

/// What a status means.
fn problem(status: u16, headers: &HeaderMap, question: Question<'_>, now: Timestamp) -> AppProblem {
    let is_exhausted = headers.contains_key(header::RETRY_AFTER) || text(headers, "x-ratelimit-remaining") == Some("0");
    match (status, question) {
        (300..=399, _) => AppProblem::Redirect,
        (401, _) => match clocks_differ(headers, now) {
            Some(seconds) if CLOCKS_DIFFER_MAX <= seconds => AppProblem::Clock { seconds },
            _ => AppProblem::Signature,
        },
        (429, _) => AppProblem::Rate { status },
        (403, _) if is_exhausted => AppProblem::Rate { status },
        (403, _) => AppProblem::Denied,
        (404, Question::Owner(owner)) => AppProblem::NotInstalled { owner: owner.to_owned() },
        (404, Question::Token(id)) => AppProblem::NoInstallation { id: id.to_owned() },
        (422, Question::Token(_)) => AppProblem::Permission,
        (408 | 500..=599, _) => AppProblem::Server { status },
        _ => AppProblem::Status { status },
    }
}

/// By how many seconds the clock of the server differs.
fn clocks_differ(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text(headers, "date")?).ok()?;
    Some(now.as_second().abs_diff(date.as_second()))
}

/// How long the API asks to wait.
fn wait(headers: &HeaderMap, now: Timestamp) -> Option<std::time::Duration> {
    let asked = text(headers, "retry-after").and_then(|value| retry::asked(value, now.into(), RETRY_AFTER_MAX));
    asked.or_else(|| {
        let reset: i64 = text(headers, "x-ratelimit-reset")?.parse().ok()?;
        let seconds = u64::try_from(reset.saturating_sub(now.as_second())).ok()?;
        (text(headers, "x-ratelimit-remaining") == Some("0"))
            .then(|| std::time::Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests;
