//! Who asked for what, as a real server's audit log tells it: counted, with the times of the first and the last.
//!
//! Single requests are kept only by a server that was told to: a fleet answers millions.

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
    request::{Parameters, Place, Route, verb},
};
use crate::{Tally, is_write};

/// Requests that are alike: by user, verb, resource, whether they were only tried out, and the answer's code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alike {
    /// Who asked.
    pub user: String,
    /// As RBAC spells it.
    pub verb: &'static str,
    /// `resource.group`, with `/subresource`.
    pub resource: String,
    /// Whether it was a dry run.
    pub dry_run: bool,
    /// The answer's code. A watch has the code of its start.
    pub code: u16,
}

/// How often, and when first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How many requests.
    pub count: usize,
    /// When the first was answered.
    pub first: Timestamp,
    /// When the last was answered.
    pub last: Timestamp,
}

/// The requests on resources since somebody last began to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub BTreeMap<Alike, Counted>);

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Who asked.
    pub user: String,
    /// The program that asked, as it calls itself.
    pub agent: String,
    /// As RBAC spells it; the method in lower case where the path is no resource's.
    pub verb: String,
    /// `resource.group`, with `/subresource`; the path where it is no resource.
    pub resource: String,
    /// Of the object; empty where there is none.
    pub namespace: String,
    /// Of the object, also of one that is created; empty where there is none.
    pub name: String,
    /// The answer's code. A watch has the code of its start.
    pub code: u16,
    /// The path and the query.
    pub uri: String,
    /// Where it came in and where it was answered, in the order of everything that comes in and is answered at all
    /// servers of this process. Times would not do: in a simulation much happens at one moment.
    pub received: u64,
    /// Likewise.
    pub answered: u64,
}

/// The requests of one server.
#[derive(Debug, Default)]
pub(super) struct Journal {
    counted: Mutex<Requests>,
    /// Single ones, if they are kept.
    kept: Mutex<Option<Vec<Answered>>>,
}

/// Where the order of all requests stands.
static ORDER: AtomicU64 = AtomicU64::new(0);

impl Server {
    /// What was asked since [`Server::count_anew`], or since the server began.
    pub fn journal(&self) -> Requests {
        self.0.journal.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on every single request is kept until the server ends. For tests: a fleet's would not fit.
    pub fn keep_requests(&self) {
        self.0.journal.kept.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }

    /// The requests that were answered since [`Server::keep_requests`], but for the first `from`, in the order of their
    /// answers.
    pub fn kept_requests(&self, from: usize) -> Vec<Answered> {
        let kept = self.0.journal.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().flatten().skip(from).cloned().collect()
    }

    /// Forgets what was asked so far.
    pub fn count_anew(&self) {
        self.0.journal.counted.lock().unwrap_or_else(PoisonError::into_inner).0.clear();
    }

    /// Takes note of a request that was answered.
    pub(super) fn note(&self, user: &str, verb: &'static str, place: &Place, dry_run: bool, code: StatusCode) {
        let alike = Alike { user: user.to_owned(), verb, resource: resource(place), dry_run, code: code.as_u16() };
        let now = self.0.clock.now();
        let mut journal = self.0.journal.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = journal.0.entry(alike).or_insert(Counted { count: 0, first: now, last: now });
        counted.count += 1;
        counted.last = now;
    }

    /// What is kept of a request that comes in; nothing if none are kept.
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

    /// Keeps a request that is answered.
    pub(super) fn keep(&self, asked: Answered, code: StatusCode) {
        let mut kept = self.0.journal.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = ORDER.fetch_add(1, Ordering::Relaxed);
        kept.get_or_insert_default().push(Answered { code: code.as_u16(), answered, ..asked });
    }
}

// === impl Answered ===

impl Answered {
    /// An object that is created is named by what is sent.
    pub(super) fn sends(&mut self, method: &Method, body: &[u8]) {
        if *method == Method::POST && self.name.is_empty() {
            let object: Value = serde_json::from_slice(body).unwrap_or_default();
            self.name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        }
    }
}

/// `resource.group`, with `/subresource`.
fn resource(place: &Place) -> String {
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
    /// Those that are wanted.
    pub fn only(mut self, wanted: impl Fn(&Alike) -> bool) -> Requests {
        self.0.retain(|alike, _| wanted(alike));
        self
    }

    /// The counts alone.
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
