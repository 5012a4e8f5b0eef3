//! An API server's audit log, as records and counts.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Deserialize;

use kube_sim::{Tally, is_write};

use crate::Error;

/// The audit log of a server.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
    /// Where the records begin that still count.
    from: Arc<AtomicU64>,
}

/// One request, as the server answered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The user.
    pub user: String,
    /// The client's `User-Agent`.
    pub agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// `resource.group`, with `/subresource`; or the path, if it is not a resource.
    pub resource: String,
    /// The object's namespace; empty if there is none.
    pub namespace: String,
    /// The object's name; empty if there is none.
    pub name: String,
    /// The status code. For a watch, that of its start.
    pub code: u16,
    /// Path and query.
    pub uri: String,
    /// When the server received the request, in RFC 3339 with microseconds, so that texts sort by time.
    pub received: String,
    /// When the server answered, in the same format.
    pub answered: String,
}

// === impl Audit ===

impl Audit {
    pub(super) fn new(path: PathBuf) -> Audit {
        Audit { path, from: Arc::default() }
    }

    /// Leaves out the requests so far from all that is read later.
    pub(super) fn forget(&self) {
        self.from.store(self.mark(), Ordering::Relaxed);
    }

    /// The current position of the log. Pass it to [`Audit::since`] to read only later records.
    pub fn mark(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// All requests so far.
    ///
    /// # Errors
    ///
    /// Fails if the log cannot be read.
    pub fn all(&self) -> Result<Vec<Record>, Error> {
        self.since(0)
    }

    /// The requests after a mark, each once, in the order of their answers.
    ///
    /// # Errors
    ///
    /// Fails if the log cannot be read.
    pub fn since(&self, mark: u64) -> Result<Vec<Record>, Error> {
        let bytes = fs::read(&self.path).map_err(Error::file("read", &self.path))?;
        let from = usize::try_from(mark.max(self.from.load(Ordering::Relaxed))).unwrap_or(usize::MAX).min(bytes.len());
        // The last line may be incomplete; a later read sees it whole.
        let complete = bytes[from..].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = bytes[from..from + complete].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.filter_map(|line| serde_json::from_slice::<Event>(line).ok()).filter_map(Event::record).collect())
    }
}

/// Counts requests.
pub fn tally<'a>(records: impl IntoIterator<Item = &'a Record>) -> Tally {
    let mut tally = Tally::default();
    for record in records {
        let tried = is_write(&record.verb, &record.resource) && !record.is_write();
        tally.add(&record.user, &record.verb, &record.resource, record.code, tried, 1);
    }
    tally
}

// === impl Record ===

impl Record {
    /// Whether the request changes something. A dry run does not.
    pub fn is_write(&self) -> bool {
        is_write(&self.verb, &self.resource) && !self.uri.contains("dryRun=")
    }
}

/// The part of an audit event that we read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    #[serde(default)]
    request_received_timestamp: String,
    #[serde(default)]
    stage_timestamp: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl Event {
    /// Watches count at their start, because most outlive the test. All other requests count when they are answered.
    fn record(self) -> Option<Record> {
        let counted = if self.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        if self.stage != counted {
            return None;
        }
        let resource = match &self.object_ref {
            Some(object) if !object.resource.is_empty() => {
                let mut text = object.resource.clone();
                for (mark, part) in [('.', &object.api_group), ('/', &object.subresource)] {
                    if !part.is_empty() {
                        text.push(mark);
                        text.push_str(part);
                    }
                }
                text
            }
            Some(_) | None => self.request_uri.split('?').next().unwrap_or_default().to_owned(),
        };
        let object = self.object_ref.unwrap_or_default();
        Some(Record {
            user: self.user.username,
            agent: self.user_agent,
            verb: self.verb,
            resource,
            namespace: object.namespace,
            name: object.name,
            code: self.response_status.map_or(0, |status| status.code),
            uri: self.request_uri,
            received: self.request_received_timestamp,
            answered: self.stage_timestamp,
        })
    }
}

#[cfg(test)]
mod tests;
