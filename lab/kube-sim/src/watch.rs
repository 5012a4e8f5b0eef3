// SPDX-License-Identifier: Apache-2.0

//! WATCH: lines of JSON, from the history and then as changes happen, with bookmarks, until the watch times out.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Server,
    read::{Filter, metadata_only, whole},
    refusal::Refusal,
    request::{Accept, Form, Parameters},
    resource::Resource,
    store::{Compacted, Event, Happening, Object},
    table,
};

/// A running watch.
struct Watch {
    server: Server,
    resource: Arc<Resource>,
    prefix: String,
    filter: Filter,
    accept: Accept,
    /// Everything up to this version was sent.
    version: u64,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    changed: watch::Receiver<u64>,
    /// Whether a table's columns were sent, which happens once.
    columns_sent: bool,
    /// Sent first.
    initial: Option<Vec<Bytes>>,
    over: bool,
}

/// Interval of bookmarks for an idle watch.
const BOOKMARK: Duration = Duration::from_secs(60);
/// Default duration of a watch; the real server chooses between 30 and 60 minutes at random.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

impl Server {
    /// Lines of JSON.
    pub(super) fn watch(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        parameters: &Parameters,
        accept: Accept,
    ) -> Result<impl Stream<Item = Bytes> + Send + use<>, Refusal> {
        let filter = Filter::parse(resource, parameters)?;
        let from = parameters.get("resourceVersion");
        let from = from.map(|text| text.parse::<u64>().map_err(|_| watch_version_problem(text))).transpose()?;
        let timeout = parameters.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        let timeout = timeout.filter(|seconds| *seconds > 0).map_or(TIMEOUT, Duration::from_secs);
        let bookmarks = parameters.flag("allowWatchBookmarks");
        let changed = self.0.store.follow(&resource.collection);
        let now = Instant::now();
        let mut watch = Watch {
            server: self.clone(),
            resource: Arc::clone(resource),
            prefix: namespace.map_or_else(String::new, |namespace| format!("{namespace}/")),
            filter,
            accept,
            version: from.unwrap_or_default(),
            bookmarks,
            next_bookmark: now + BOOKMARK,
            end: now + timeout,
            changed,
            columns_sent: false,
            initial: None,
            over: false,
        };
        // Without a version, or from "any", a watch begins with the current objects; also if it requests them.
        if watch.version == 0 || parameters.flag("sendInitialEvents") && parameters.get("sendInitialEvents").is_some() {
            let current = self.0.store.version();
            if current < watch.version {
                let refusal = Refusal::too_large_version(watch.version, current);
                watch.initial = Some(vec![watch.error(&refusal)]);
                watch.over = true;
            } else {
                watch.begin();
            }
        }
        Ok(stream::unfold(watch, |mut watch| async move { watch.next().await.map(|lines| (lines, watch)) }))
    }
}

fn watch_version_problem(text: &str) -> Refusal {
    let detail = format!("strconv.ParseUint: parsing {}: invalid syntax", Value::from(text));
    Refusal::internal(super::refusal::Cause::invalid_text("resourceVersion", text, &detail).to_string())
}

// === impl Watch ===

impl Watch {
    /// Sends all objects as if they had just been created, and the bookmark that ends them.
    fn begin(&mut self) {
        let filter = &self.filter;
        let page =
            self.server.0.store.list(&self.resource.collection, &self.prefix, None, usize::MAX, |key, object| {
                filter.wants(key, object)
            });
        self.version = page.version;
        let mut lines = Vec::with_capacity(page.items.len() + 1);
        for (_, object) in &page.items {
            lines.push(self.line("ADDED", object));
        }
        if self.bookmarks {
            lines.push(self.bookmark(true));
        }
        self.initial = Some(lines);
    }

    /// The next lines; `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(lines) = self.initial.take().filter(|lines| !lines.is_empty()) {
            return Some(lines.concat().into());
        }
        while !self.over {
            self.changed.borrow_and_update();
            match self.server.0.store.news(&self.resource.collection, self.version) {
                Err(Compacted(oldest)) => {
                    self.over = true;
                    let message = format!("too old resource version: {} ({oldest})", self.version);
                    return Some(self.error(&Refusal::expired(message)));
                }
                Ok(news) => {
                    // Other collections advance the store's version, so continuing from there is safe.
                    self.version = self.version.max(news.version);
                    let lines: Vec<Bytes> = news.events.iter().filter_map(|event| self.event(event)).collect();
                    if !lines.is_empty() {
                        return Some(lines.concat().into());
                    }
                }
            }
            let bookmark = if self.bookmarks { self.next_bookmark } else { self.end };
            tokio::select! {
                biased;
                changed = self.changed.changed() => {
                    // The kind is gone, and so the watch ends.
                    self.over = changed.is_err();
                }
                () = sleep_until(self.end) => self.over = true,
                () = sleep_until(bookmark) => {
                    self.next_bookmark = Instant::now() + BOOKMARK;
                    return Some(self.bookmark(false));
                }
            }
        }
        None
    }

    /// Translates an event for this watcher: an object that no longer matches is deleted, one that matches now is new.
    fn event(&mut self, event: &Event) -> Option<Bytes> {
        if !event.key.starts_with(&self.prefix) {
            return None;
        }
        let wanted = |object: &Object| self.filter.wants(&event.key, object);
        let was = event.before.as_deref().is_some_and(wanted);
        let is = event.happening != Happening::Deleted && wanted(&event.object);
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(self.line("ADDED", &event.object)),
            (true, true) => Some(self.line("MODIFIED", &event.object)),
            (true, false) if event.happening == Happening::Deleted => Some(self.line("DELETED", &event.object)),
            (true, false) => {
                // It is sent in its last matching state, with the version of the change.
                let before = event.before.as_ref()?;
                let object = Arc::new(before.at_version(event.object.version));
                Some(self.line("DELETED", &object))
            }
        }
    }

    fn line(&mut self, kind: &str, object: &Arc<Object>) -> Bytes {
        let body = match self.accept.form {
            Form::Whole => whole(&self.resource, object),
            Form::Metadata | Form::MetadataList => metadata_only(object),
            Form::Table => {
                let metadata = json!({"resourceVersion": object.version.to_string()});
                let with_columns = !std::mem::replace(&mut self.columns_sent, true);
                let now = self.server.0.clock.now();
                table::render(&self.resource, &metadata, std::slice::from_ref(object), now, with_columns)
            }
        };
        line(kind, &body)
    }

    fn bookmark(&self, initial_end: bool) -> Bytes {
        let (kind, api_version) = match self.accept.form {
            Form::Whole => (&*self.resource.kind.kind, &*self.resource.api_version),
            Form::Metadata | Form::MetadataList => ("PartialObjectMetadata", "meta.k8s.io/v1"),
            Form::Table => ("Table", "meta.k8s.io/v1"),
        };
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        line("BOOKMARK", object.to_string().as_bytes())
    }

    fn error(&self, refusal: &Refusal) -> Bytes {
        line("ERROR", &refusal.body())
    }
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}
