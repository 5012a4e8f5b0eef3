//! The errors of requests to an API server, with what resolves them.
//!
//! No message contains data of a Secret: of an API server's message about a Secret, only the reason and the field names
//! are kept, and which permission a user lacks. An answer that is not a `Status`, for example from a proxy, is never
//! quoted.

use std::{fmt, sync::Arc, time::Duration};

use http::StatusCode;
use serde::Deserialize;
use tidegate_core::object::{Gvk, ObjectId};
use tidegate_process::retry::{BACKOFF_MAX, Class};

use super::{ClusterName, denial::Denial};

/// A field that another field manager owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldConflict {
    /// The field, as the API server writes it: `.spec.replicas`.
    pub field: String,
    /// The manager that owns it.
    pub manager: String,
}

/// Why an API server cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unreachable {
    /// The host name does not resolve.
    Dns,
    /// The connection was refused, reset or could not be opened.
    Connect,
    /// The server's certificate is not accepted here.
    Untrusted,
    /// The TLS handshake failed otherwise.
    Tls,
    /// No answer in time.
    Timeout,
    /// The connection was lost during a request.
    Broken,
    /// It answers only with errors of its own.
    Failing {
        /// The HTTP status of the last one.
        status: StatusCode,
    },
}

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another field manager owns fields that the request sets.
    #[error("{target} has fields of other managers: {}", list(.causes))]
    Conflict {
        /// The object.
        target: Target,
        /// Each field with its manager.
        causes: Vec<FieldConflict>,
    },
    /// The object changed in the meantime, or a precondition failed.
    #[error("{target} has changed in the meantime")]
    Changed {
        /// The object.
        target: Target,
    },
    /// The object exists already.
    #[error("{target} already exists")]
    Exists {
        /// The object.
        target: Target,
    },
    /// The API server, its schema or a webhook rejected the object.
    #[error("{target} was rejected: {message}")]
    Invalid {
        /// The object.
        target: Target,
        /// The API server's message; for a Secret only the reason and the fields.
        message: String,
    },
    /// The object has a field that its schema does not declare, or a value of the wrong type.
    #[error("{target} does not match its schema: {message}")]
    UndeclaredField {
        /// The object.
        target: Target,
        /// The API server's message; for a Secret only the reason and the fields.
        message: String,
    },
    /// The object or its namespace does not exist.
    #[error("{target} not found: {message}")]
    NotFound {
        /// The object.
        target: Target,
        /// The API server's message.
        message: String,
    },
    /// The API server does not serve this kind.
    #[error("the API server does not serve {}", kind_name(gvk))]
    NotServed {
        /// The kind.
        gvk: Gvk,
    },
    /// The namespace is being deleted.
    #[error("{target} cannot be created: its namespace is being deleted")]
    NamespaceTerminating {
        /// The object.
        target: Target,
    },
    /// The object is being deleted, and its replacement has to wait.
    #[error("{target} is being deleted")]
    Terminating {
        /// The object.
        target: Target,
    },
    /// The client lacks a permission.
    #[error("{target} is forbidden: {message}")]
    Forbidden {
        /// The object or kind.
        target: Target,
        /// The API server's message; for a Secret only the missing permission, or else the reason and the fields.
        message: String,
    },
    /// The cluster does not accept the client's credentials.
    #[error("cluster {cluster} ({server}) rejected the client's credentials")]
    Unauthorized {
        /// The cluster.
        cluster: Arc<str>,
        /// Host and port of its API server.
        server: Arc<str>,
    },
    /// The API server asks the client to slow down.
    #[error("cluster {cluster} is overloaded")]
    TooManyRequests {
        /// The cluster.
        cluster: Arc<str>,
        /// The `Retry-After` of the answer.
        retry_after: Option<Duration>,
    },
    /// The API server, or a proxy in front of it, failed.
    #[error("cluster {cluster} failed with HTTP status {status} on {target}: {message}")]
    Server {
        /// The cluster.
        cluster: Arc<str>,
        /// The object or kind.
        target: Target,
        /// The HTTP status.
        status: StatusCode,
        /// The API server's message; for a Secret only the reason and the fields; empty if the answer was not a
        /// `Status`.
        message: String,
    },
    /// The API server cannot be reached.
    #[error("cluster {cluster} ({server}) cannot be reached: {cause}")]
    Unreachable {
        /// The cluster.
        cluster: Arc<str>,
        /// Host and port of its API server.
        server: Arc<str>,
        /// The cause.
        cause: Unreachable,
        /// Whether the request was sent. After too many consecutive failures, none is sent until the next probe, and
        /// the cause is that of the last failure.
        sent: bool,
    },
    /// The answer is not a valid answer of an API server.
    #[error("cluster {cluster} sent an invalid answer about {target}: {message}")]
    Answer {
        /// The cluster.
        cluster: Arc<str>,
        /// The object or kind.
        target: Target,
        /// What is wrong with it; never the answer itself.
        message: String,
    },
    /// The list's continue token has expired.
    #[error("the list of {target} has expired")]
    Expired {
        /// The kind.
        target: Target,
    },
    /// A CustomResourceDefinition was applied but is not established.
    #[error("CustomResourceDefinition {name} is not established: {message}")]
    NotEstablished {
        /// Its name.
        name: String,
        /// The messages of its conditions.
        message: String,
    },
    /// This process is not the leader, or did not renew the Lease in time, so writes are refused. A write that was in
    /// flight at that moment may or may not have happened.
    #[error("this process does not lead, so it writes nothing")]
    NotLeading,
    /// The cluster is [read-only](super::Cluster::read_only), so nothing but a read is sent.
    #[error("{target}: not sent, because this process only observes")]
    ReadOnly {
        /// The object or kind.
        target: Target,
    },
    /// The Secret has no acceptable kubeconfig.
    #[error("Secret {secret}, key `{key}`: {refused}")]
    Access {
        /// Namespace and name of the Secret.
        secret: tidegate_core::name::Key,
        /// The data key.
        key: &'static str,
        /// What is wrong.
        refused: super::access::Refused,
    },
    /// The configuration of a client is invalid: its certificates or its URL.
    #[error("cannot create a client for cluster {cluster}: {message}")]
    Client {
        /// The cluster.
        cluster: Arc<str>,
        /// What is wrong with it.
        message: String,
    },
}

/// The subject of a request: an object, or a kind in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One object.
    Object(ObjectId),
    /// A list of a kind.
    List(Gvk),
    /// A path without an object, such as discovery.
    Path(&'static str),
}

// === impl Unreachable ===

impl Unreachable {
    /// Why a connection or a request failed below HTTP.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Unreachable {
        of_transport(error)
    }
}

// === impl Error ===

impl Error {
    /// What resolves the failure.
    pub fn class(&self) -> Class {
        match self {
            Error::Conflict { .. }
            | Error::Invalid { .. }
            | Error::UndeclaredField { .. }
            | Error::Forbidden { .. }
            | Error::Exists { .. }
            | Error::ReadOnly { .. }
            | Error::Access { .. }
            | Error::Client { .. } => Class::Stalled,
            Error::NotFound { .. }
            | Error::NotServed { .. }
            | Error::NamespaceTerminating { .. }
            | Error::Terminating { .. }
            | Error::NotEstablished { .. }
            | Error::NotLeading => Class::Waiting,
            Error::Changed { .. }
            | Error::Unauthorized { .. }
            | Error::TooManyRequests { .. }
            | Error::Server { .. }
            | Error::Unreachable { .. }
            | Error::Answer { .. }
            | Error::Expired { .. } => Class::Transient,
        }
    }

    /// One word for conditions, Events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Conflict { .. } => "Conflict",
            Error::Changed { .. } => "Changed",
            Error::Exists { .. } => "AlreadyExists",
            Error::Invalid { .. } => "Invalid",
            Error::UndeclaredField { .. } => "UndeclaredField",
            Error::NotFound { .. } => "NotFound",
            Error::NotServed { .. } => "KindNotServed",
            Error::NamespaceTerminating { .. } => "NamespaceTerminating",
            Error::Terminating { .. } => "Terminating",
            Error::Forbidden { .. } => "Forbidden",
            Error::Unauthorized { .. } => "Unauthorized",
            Error::TooManyRequests { .. } => "TooManyRequests",
            Error::Server { .. } => "ServerError",
            Error::Unreachable { cause, .. } => match cause {
                Unreachable::Dns => "UnknownHost",
                Unreachable::Connect | Unreachable::Broken => "Unreachable",
                Unreachable::Untrusted | Unreachable::Tls => "UntrustedConnection",
                Unreachable::Timeout => "Timeout",
                Unreachable::Failing { .. } => "ServerError",
            },
            Error::Answer { .. } => "BadAnswer",
            Error::Expired { .. } => "Expired",
            Error::NotEstablished { .. } => "NotEstablished",
            Error::NotLeading => "NotLeading",
            Error::ReadOnly { .. } => "ReadOnly",
            Error::Access { .. } => "AccessRefused",
            Error::Client { .. } => "BadClientConfiguration",
        }
    }

    /// Whether the cluster could not be reached, as opposed to an error that it answered.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable { .. })
    }

    /// Whether this may be one of many failures for the same reason: the cluster could not be reached, or the control
    /// plane failed by itself.
    pub fn may_be_outage(&self) -> bool {
        match self {
            Error::Server { cluster, .. } => **cluster == *ClusterName::Kcp.to_string(),
            other => other.is_unreachable(),
        }
    }

    /// The `Retry-After` of the answer.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::TooManyRequests { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unreachable::Failing { status } => {
                return write!(f, "it answers only with errors, the last with HTTP status {}", status.as_u16());
            }
            Unreachable::Dns => "the host name does not resolve",
            Unreachable::Connect => "the connection failed",
            Unreachable::Untrusted => {
                "the server's certificate is not trusted: check `certificate-authority-data` in the kubeconfig, and \
                 the names and dates of the certificate"
            }
            Unreachable::Tls => {
                "the TLS handshake failed: the server rejected the client's certificate, or does not speak TLS"
            }
            Unreachable::Timeout => "it does not answer in time",
            Unreachable::Broken => "the connection was lost",
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Object(id) => write!(f, "{id}"),
            Target::List(gvk) => write!(f, "the list of {gvk}"),
            Target::Path(path) => f.write_str(path),
        }
    }
}

impl fmt::Display for FieldConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.field, self.manager)
    }
}

/// `Kind.group`, with the version if it is known.
fn kind_name(gvk: &Gvk) -> String {
    if gvk.version.is_empty() {
        return if gvk.group.is_empty() { gvk.kind.to_string() } else { format!("{}.{}", gvk.kind, gvk.group) };
    }
    gvk.to_string()
}

fn list(causes: &[FieldConflict]) -> String {
    const SHOWN_MAX: usize = 8; // The rest is only counted, so that status messages stay readable.
    let mut text = causes.iter().take(SHOWN_MAX).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if causes.len() > SHOWN_MAX {
        text.push_str(&format!(" and {} more", causes.len() - SHOWN_MAX));
    }
    text
}

// === reading an answer ===

/// The part of `Status` that the client reads.
#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
    #[serde(default)]
    retry_after_seconds: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    field: String,
    #[serde(default)]
    message: String,
}

/// Limit of an API server's message, in characters. It becomes part of conditions, Events and `tidegate status`, and
/// schema errors of large objects have kilobytes.
const MESSAGE_LEN_MAX: usize = 400;
/// A value in braces that is longer is left out of an API server's message: it is Go's or JSON's form of a whole
/// object, and the reason comes after it.
const VALUE_LEN_MAX: usize = 60;

/// How long an answer's details ask to wait.
fn asked(seconds: f64) -> Option<Duration> {
    (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(BACKOFF_MAX).min(BACKOFF_MAX))
}

/// What an API server says in an answer; `None` if it is no `Status`. Never quote it: it may be about a Secret.
pub(super) fn said(body: &[u8]) -> Option<String> {
    let status: Status = serde_json::from_slice(body).ok()?;
    (status.kind == "Status").then_some(status.message)
}

/// What is said of an answer that is not a `Status`. Go's server answers in these words to HTTP on a port for HTTPS;
/// nothing else of such an answer is read.
fn unknown_answer(status: StatusCode, body: &[u8]) -> String {
    if body.starts_with(b"Client sent an HTTP request to an HTTPS server") {
        return "the URL of the API server must begin with https://".to_owned();
    }
    format!("HTTP status {}, and the answer is not that of an API server: check its URL", status.as_u16())
}

/// The error for an answer other than 2xx.
pub(super) fn of_answer(
    (cluster, server): (&Arc<str>, &Arc<str>),
    target: &Target,
    status: StatusCode,
    retry_after: Option<Duration>,
    body: &[u8],
) -> Error {
    let parsed: Option<Status> = serde_json::from_slice(body).ok().filter(|status: &Status| status.kind == "Status");
    let answered = parsed.is_some();
    let answer = parsed.unwrap_or_default();
    let details = answer.details.unwrap_or_default();
    let retry_after = retry_after.or_else(|| details.retry_after_seconds.and_then(asked));
    let target_ = || target.clone();
    let message = message(target, &answer.reason, &answer.message, &details.causes);
    let gvk = || match target {
        Target::Object(id) => Some(Gvk { group: id.group.clone(), version: "".into(), kind: id.kind.clone() }),
        Target::List(gvk) => Some(gvk.clone()),
        Target::Path(_) => None,
    };
    match status {
        StatusCode::CONFLICT => {
            let causes = conflicts(&details.causes);
            match answer.reason.as_str() {
                "AlreadyExists" => Error::Exists { target: target_() },
                _ if !causes.is_empty() => Error::Conflict { target: target_(), causes },
                _ if answer.message.contains("object is being deleted") => Error::Terminating { target: target_() },
                _ => Error::Changed { target: target_() },
            }
        }
        StatusCode::UNPROCESSABLE_ENTITY
        | StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::METHOD_NOT_ALLOWED => {
            let message = if answered { message } else { unknown_answer(status, body) };
            Error::Invalid { target: target_(), message }
        }
        // An unknown kind is answered in plain text, an unknown object with a `Status` that has details.
        StatusCode::NOT_FOUND => match gvk() {
            Some(gvk) if !answered || answer.message.contains("could not find the requested resource") => {
                Error::NotServed { gvk }
            }
            _ => Error::NotFound { target: target_(), message },
        },
        StatusCode::FORBIDDEN if details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating") => {
            Error::NamespaceTerminating { target: target_() }
        }
        StatusCode::FORBIDDEN => {
            let missing = Denial::of_message(&answer.message).filter(|_| is_about_secret(target));
            let missing = missing.map(|missing| missing.sentence());
            let missing = missing.or_else(|| not_created(target, &answer.message));
            Error::Forbidden { target: target_(), message: missing.unwrap_or(message) }
        }
        StatusCode::UNAUTHORIZED => Error::Unauthorized { cluster: cluster.clone(), server: server.clone() },
        StatusCode::TOO_MANY_REQUESTS => Error::TooManyRequests { cluster: cluster.clone(), retry_after },
        StatusCode::GONE => Error::Expired { target: target_() },
        StatusCode::INTERNAL_SERVER_ERROR if is_undeclared(&answer.message) => {
            Error::UndeclaredField { target: target_(), message: undeclared(target, &answer.message) }
        }
        _ => Error::Server { cluster: cluster.clone(), target: target_(), status, message },
    }
}

/// That the client may change an object, and not create it: then the API server answers an apply that would create it
/// without a reason, `secrets "a" is forbidden: `. Repeats nothing but the resource.
fn not_created(target: &Target, message: &str) -> Option<String> {
    let Target::Object(id) = target else { return None };
    let (resource, rest) = message.split_once(" \"")?;
    let (name, reason) = rest.split_once("\" is forbidden:")?;
    let is_resource = resource.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-/".contains(c));
    if !is_resource || name != &*id.name || !reason.trim().is_empty() {
        return None;
    }
    let place = match &*id.namespace {
        "" => "in the cluster".to_owned(),
        namespace => format!("in namespace {namespace}"),
    };
    let resource = match resource.split_once('.') {
        Some((plural, group)) => format!("{plural} in API group {group}"),
        None => resource.to_owned(),
    };
    Some(format!("it does not exist, and the client cannot create {resource} {place}"))
}

/// Server-side apply of an undeclared field fails with HTTP 500 without a reason, whatever `fieldValidation` says. Only
/// the text distinguishes it from a failure of the server.
fn is_undeclared(message: &str) -> bool {
    message.contains("field not declared in schema") || message.contains("failed to create typed patch object")
}

/// `.spec.foo: field not declared in schema`, without the text around it.
fn undeclared(target: &Target, message: &str) -> String {
    let tail = message.rsplit_once("): ").map_or(message, |(_, tail)| tail);
    match target {
        // The text after the field may be a value.
        Target::Object(id) if is_secret(id) => tail.split(':').next().unwrap_or_default().trim().to_owned(),
        // A list of errors has a line for each.
        _ => cut(&tail.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

fn conflicts(causes: &[Cause]) -> Vec<FieldConflict> {
    causes
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| FieldConflict {
            field: cause.field.clone(),
            // `conflict with "kubectl" using v1 at …`
            manager: cause.message.split('"').nth(1).unwrap_or("unknown").to_owned(),
        })
        .collect()
}

fn message(target: &Target, reason: &str, message: &str, causes: &[Cause]) -> String {
    if is_about_secret(target) {
        let fields: Vec<&str> =
            causes.iter().map(|cause| cause.field.as_str()).filter(|field| !field.is_empty()).collect();
        return match fields.as_slice() {
            [] => reason.to_owned(),
            fields => format!("{reason} at {}", fields.join(", ")),
        };
    }
    cut(&plain(target, message))
}

/// An API server's message as a part of a sentence about `target`: in one line, without the object, which the sentence
/// names, without the difference of Go structs that follows some messages, and without whole objects as values.
fn plain(target: &Target, message: &str) -> String {
    let mut lines = message.lines().map(str::trim_end);
    let first = lines.next().unwrap_or_default().trim();
    let is_difference = |line: &&str| line.starts_with("@@") || line.ends_with(['{', '(']);
    let rest = lines.take_while(|line| !is_difference(line)).map(str::trim).filter(|line| !line.is_empty());
    let line = [first].into_iter().chain(rest).collect::<Vec<_>>().join(" ");
    without_values(without_object(target, &line))
}

/// The message without `PersistentVolume "a" is invalid: ` at its beginning.
fn without_object<'a>(target: &Target, message: &'a str) -> &'a str {
    let Target::Object(id) = target else { return message };
    let names = format!(" \"{}\" is invalid: ", id.name);
    match message.split_once(names.as_str()) {
        Some((kind, rest)) if kind.starts_with(&*id.kind) && !kind.contains(' ') => rest,
        _ => message,
    }
}

/// The message with `{…}` in place of long values in braces.
fn without_values(message: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(message.len()), message);
    while let Some(begin) = rest.find('{') {
        let (before, value) = rest.split_at(begin);
        text.push_str(before);
        let mut depth = 0_usize;
        let end = value.char_indices().find_map(|(at, found)| {
            match found {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(at + 1)
        });
        let (value, after) = value.split_at(end.unwrap_or(value.len()));
        text.push_str(if VALUE_LEN_MAX < value.len() { "{…}" } else { value });
        rest = after;
    }
    text + rest
}

/// Whether an answer about this may contain data of a Secret.
fn is_about_secret(target: &Target) -> bool {
    match target {
        Target::Object(id) => is_secret(id),
        Target::List(gvk) => gvk.group.is_empty() && &*gvk.kind == "Secret",
        Target::Path(_) => false,
    }
}

/// Whether the object's content must not be shown.
pub(super) fn is_secret(id: &ObjectId) -> bool {
    id.group.is_empty() && &*id.kind == "Secret"
}

fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_LEN_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

/// Why a connection or a request failed below HTTP.
pub(super) fn of_transport(error: &(dyn std::error::Error + 'static)) -> Unreachable {
    use std::io::ErrorKind;
    match error.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidCertificate(_)) => return Unreachable::Untrusted,
        Some(_) => return Unreachable::Tls,
        None => {}
    }
    // The connector's error for a failed lookup is private; its text is the only sign.
    if error.to_string().starts_with("dns error") {
        return Unreachable::Dns;
    }
    let io = error.downcast_ref::<std::io::Error>();
    // An error inside an `io::Error` is not its `source()`, so look inside.
    let inner = match io.and_then(std::io::Error::get_ref) {
        Some(wrapped) => Some(of_transport(wrapped)),
        None => error.source().map(of_transport),
    };
    match (io.map(std::io::Error::kind), inner) {
        (_, Some(inner)) if inner != Unreachable::Broken => inner,
        (Some(ErrorKind::TimedOut), _) => Unreachable::Timeout,
        (
            Some(
                ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::AddrNotAvailable,
            ),
            _,
        ) => Unreachable::Connect,
        _ => Unreachable::Broken,
    }
}

#[cfg(test)]
mod tests;
