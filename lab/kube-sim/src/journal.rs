//! Who asked for what, as a real server's audit log tells it: counted, with the times of the first and the last.
//!
//! Refuses to keep single requests: a fleet answers millions.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use http::StatusCode;
use jiff::Timestamp;

use super::{Server, request::Place};
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

/// The requests of one server.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<Requests>);

impl Server {
    /// What was asked since [`Server::count_anew`], or since the server began.
    pub fn journal(&self) -> Requests {
        self.0.journal.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what was asked so far.
    pub fn count_anew(&self) {
        self.0.journal.0.lock().unwrap_or_else(PoisonError::into_inner).0.clear();
    }

    /// Takes note of a request that was answered.
    pub(super) fn note(&self, user: &str, verb: &'static str, place: &Place, dry_run: bool, code: StatusCode) {
        let mut resource = place.plural.clone();
        for (mark, part) in [('.', &place.group), ('/', place.subresource.as_ref().unwrap_or(&String::new()))] {
            if !part.is_empty() {
                resource.push(mark);
                resource.push_str(part);
            }
        }
        let alike = Alike { user: user.to_owned(), verb, resource, dry_run, code: code.as_u16() };
        let now = self.0.clock.now();
        let mut journal = self.0.journal.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = journal.0.entry(alike).or_insert(Counted { count: 0, first: now, last: now });
        counted.count += 1;
        counted.last = now;
    }
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
