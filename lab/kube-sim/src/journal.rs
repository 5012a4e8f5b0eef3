// SPDX-License-Identifier: Apache-2.0

//! Counts requests as a real server's audit log would show them, with the times of the first and the last.
//!
//! Single requests are stored only on demand, because a fleet sends millions.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderMap, Method, StatusCode, header, request::Parts};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    Server,
    identity::User,
    request::{Parameters, ResourcePath, Route, verb},
};
use crate::{Tally, is_write};

/// The properties by which requests are counted: user, verb, resource, dry run and status code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alike {
    /// The user.
    pub user: String,
    /// The verb, as in RBAC.
    pub verb: &'static str,
    /// `resource.group`, with `/subresource`.
    pub resource: String,
    /// Whether it was a dry run.
    pub dry_run: bool,
    /// The status code. For a watch, that of its start.
    pub code: u16,
}

/// The number of requests, and the times of the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The number of requests.
    pub count: usize,
    /// When the first was answered.
    pub first: Timestamp,
    /// When the last was answered.
    pub last: Timestamp,
}

/// The requests on resources since the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub BTreeMap<Alike, Counted>);

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The user.
    pub user: String,
    /// The client's `User-Agent`.
    pub agent: String,
    /// The verb, as in RBAC; for other paths, the method in lower case.
    pub verb: String,
    /// `resource.group`, with `/subresource`; or the path, if it is not a resource.
    pub resource: String,
    /// The object's namespace; empty if there is none.
    pub namespace: String,
    /// The object's name, also of a created one; empty if there is none.
    pub name: String,
    /// The status code. For a watch, that of its start.
    pub code: u16,
    /// Path and query.
    pub uri: String,
    /// Position of the request in the order of all requests and answers of all servers of this process. Times would not
    /// do, because much happens at one moment in a simulation.
    pub received: u64,
    /// Position of the answer in the same order.
    pub answered: u64,
}

/// The requests of one server.
#[derive(Debug, Default)]
pub(super) struct Journal {
    counted: Mutex<Requests>,
    /// Single requests, if they are stored.
    kept: Mutex<Option<Vec<Answered>>>,
}

/// The last position in the order of all requests.
static ORDER: AtomicU64 = AtomicU64::new(0);

impl Server {
    /// The requests since [`Server::count_anew`] or the start.
    pub fn journal(&self) -> Requests {
        self.0.journal.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores every single request from now on. For tests: those of a fleet would need too much memory.
    pub fn keep_requests(&self) {
        self.0.journal.kept.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }

    /// The requests since [`Server::keep_requests`], without the first `from`, in the order of their answers.
    pub fn kept_requests(&self, from: usize) -> Vec<Answered> {
        let kept = self.0.journal.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().flatten().skip(from).cloned().collect()
    }

    /// How many requests [`Server::kept_requests`] has.
    pub fn kept_request_count(&self) -> usize {
        let kept = self.0.journal.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().map_or(0, Vec::len)
    }

    /// Resets the counts.
    pub fn count_anew(&self) {
        self.0.journal.counted.lock().unwrap_or_else(PoisonError::into_inner).0.clear();
    }

    /// Counts an answered request.
    pub(super) fn note(&self, user: &str, verb: &'static str, place: &ResourcePath, dry_run: bool, code: StatusCode) {
        let alike = Alike { user: user.to_owned(), verb, resource: resource(place), dry_run, code: code.as_u16() };
        let now = self.0.clock.now();
        let mut journal = self.0.journal.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = journal.0.entry(alike).or_insert(Counted { count: 0, first: now, last: now });
        counted.count += 1;
        counted.last = now;
    }

    /// The record of an incoming request; `None` if requests are not stored.
    pub(super) fn asked(&self, parts: &Parts, certificate: Option<&User>) -> Option<Answered> {
        self.0.journal.kept.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?;
        let user = self.user(&parts.headers, certificate).and_then(|user| user.acting(&parts.headers));
        let place = Route::parse(parts.uri.path());
        let (verb, resource, namespace, name) = match place {
            Some(Route::Resource(place)) => {
                let parameters = Parameters::parse(parts.uri.query().unwrap_or_default());
                let verb = verb(&parts.method, &place, parameters.flag("watch")).to_owned();
                (verb, resource(&place), place.namespace, place.name)
            }
            Some(Route::Other) | None => {
                (parts.method.as_str().to_lowercase(), parts.uri.path().to_owned(), None, None)
            }
        };
        Some(Answered {
            user: user.map(|user| user.name).unwrap_or_default(),
            agent: text(&parts.headers, &header::USER_AGENT),
            verb,
            resource,
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
            code: 0,
            uri: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            received: ORDER.fetch_add(1, Ordering::Relaxed),
            answered: 0,
        })
    }

    /// Stores an answered request.
    pub(super) fn keep(&self, asked: Answered, code: StatusCode) {
        let mut kept = self.0.journal.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = ORDER.fetch_add(1, Ordering::Relaxed);
        kept.get_or_insert_default().push(Answered { code: code.as_u16(), answered, ..asked });
    }
}

// === impl Answered ===

impl Answered {
    /// Reads the name of a created object from the body.
    pub(super) fn sends(&mut self, method: &Method, body: &[u8]) {
        if *method == Method::POST && self.name.is_empty() {
            let object: Value = serde_json::from_slice(body).unwrap_or_default();
            self.name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        }
    }
}

/// `resource.group`, with `/subresource`.
fn resource(place: &ResourcePath) -> String {
    let mut resource = place.plural.clone();
    for (mark, part) in [('.', &place.group), ('/', place.subresource.as_ref().unwrap_or(&String::new()))] {
        if !part.is_empty() {
            resource.push(mark);
            resource.push_str(part);
        }
    }
    resource
}

fn text(headers: &HeaderMap, name: &header::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

// === impl Alike ===

impl Alike {
    /// Whether it changes something. A dry run does not.
    pub fn is_write(&self) -> bool {
        !self.dry_run && is_write(self.verb, &self.resource)
    }
}

// === impl Requests ===

impl Requests {
    /// The requests that `wanted` selects.
    pub fn only(mut self, wanted: impl Fn(&Alike) -> bool) -> Requests {
        self.0.retain(|alike, _| wanted(alike));
        self
    }

    /// Only the counts.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for (alike, counted) in &self.0 {
            tally.add(&alike.user, alike.verb, &alike.resource, alike.code, alike.dry_run, counted.count);
        }
        tally
    }

    /// When the first request was answered.
    pub fn first(&self) -> Option<Timestamp> {
        self.0.values().map(|counted| counted.first).min()
    }

    /// When the last write was answered.
    pub fn last_write(&self) -> Option<Timestamp> {
        self.0.iter().filter(|(alike, _)| alike.is_write()).map(|(_, counted)| counted.last).max()
    }
}
