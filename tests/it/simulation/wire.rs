//! The network between the daemon and a server. It records requests, it can be cut, and it is where the daemon is
//! killed. It also makes the pages of lists small, because no list here would have a second page. And it has servers
//! compact their history just before the daemon asks for a next page.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use axum::body::Body;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use kube_sim::{Server, Service, User};
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};
use tower::ServiceExt as _;

use super::{
    agents::About,
    truth::{Truth, Write},
    world::KCP,
};

/// What happened in the network of a world.
#[derive(Clone)]
pub(super) struct Wires(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    killed: Notify,
    truth: Truth,
    /// Most objects in a page of a list.
    page: u64,
}

#[derive(Default)]
struct State {
    /// Requests that arrived at servers, oldest first.
    journal: Vec<Arrival>,
    /// Number of requests until the daemon is killed, and how.
    doom: Option<(u64, Death)>,
    /// How the daemon is killed now.
    dying: Option<Death>,
    dark: Vec<&'static str>,
    /// Daemons up to this life have lost the control plane for good.
    cut_off: u32,
    /// The latest life that sent a write.
    writer: u32,
    /// Number of next pages before which the server compacts its history.
    forgetful: u64,
    /// How often a server did so.
    forgot: u64,
}

/// When a request kills the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// Before it arrives.
    Before,
    /// After it has arrived, before its answer.
    After,
    /// While the daemon processes the answer: after this many polls of its tasks.
    Polls(u64),
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) server: &'static str,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) code: u16,
    /// Whether it is a write that follows a write of a later daemon.
    pub(super) late: bool,
    /// The daemon that sent it, and the time.
    pub(super) life: u32,
    pub(super) at: Instant,
    /// The object of a deletion, as it was before.
    pub(super) victim: Option<Value>,
}

/// A daemon's connection to one server, with all faults.
#[derive(Clone)]
pub(super) struct Wire {
    wires: Wires,
    /// The number of the daemon, in the order of their starts.
    life: u32,
    name: &'static str,
    server: Server,
    service: Service,
}

// === impl Wires ===

impl Wires {
    pub(super) fn new(truth: Truth, page: u64) -> Wires {
        Wires(Arc::new(Inner { state: Mutex::default(), killed: Notify::new(), truth, page }))
    }

    /// The judge of statuses.
    pub(super) fn truth(&self) -> &Truth {
        &self.0.truth
    }

    pub(super) fn wire(&self, life: u32, name: &'static str, server: &Server) -> Wire {
        let groups = vec!["system:masters".to_owned()];
        let user = User { name: "tidegate".to_owned(), groups, ..User::default() };
        Wire { wires: self.clone(), life, name, server: server.clone(), service: server.service_as(user) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the daemon at the `count`th request from now.
    pub(super) fn doom(&self, count: u64, death: Death) {
        self.state().doom = Some((count, death));
    }

    /// Cancels the death of the daemon.
    pub(super) fn spare(&self) {
        self.state().doom = None;
    }

    /// Returns when the daemon must be killed, with the reason.
    pub(super) async fn killed(&self) -> &'static str {
        self.0.killed.notified().await;
        let death = self.state().dying.take();
        match death {
            Some(Death::Before) => "killed before a request",
            Some(Death::After) => "killed after a request",
            Some(Death::Polls(polls)) => {
                polled(polls).await;
                "killed between two polls"
            }
            None => std::future::pending().await,
        }
    }

    /// Cuts the network to a server, or restores it.
    pub(super) fn darken(&self, name: &'static str, dark: bool) {
        let mut state = self.state();
        state.dark.retain(|one| *one != name);
        if dark {
            state.dark.push(name);
        }
    }

    /// Cuts the control plane off from the daemons up to this life, for good. They still reach runtimes.
    pub(super) fn cut_off(&self, life: u32) {
        self.state().cut_off = life;
    }

    /// Records a request.
    fn note(&self, mut arrival: Arrival) {
        let mut state = self.state();
        if arrival.is_write() && !arrival.is_of_lease() {
            arrival.late = arrival.life < state.writer;
            state.writer = state.writer.max(arrival.life);
        }
        state.journal.push(arrival);
    }

    pub(super) fn is_dark(&self, name: &str) -> bool {
        self.state().dark.contains(&name)
    }

    /// Takes the requests since the last call.
    pub(super) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut self.state().journal)
    }

    /// Lets servers compact their history before some of the next pages.
    pub(super) fn forget(&self, pages: u64) {
        self.state().forgetful = pages;
    }

    /// How often a server did so.
    pub(super) fn forgot(&self) -> u64 {
        self.state().forgot
    }

    /// Whether the server compacts its history before this page.
    fn forgets(&self) -> bool {
        let mut state = self.state();
        let forgets = state.forgetful > 0;
        if forgets {
            state.forgetful -= 1;
            state.forgot += 1;
        }
        forgets
    }

    /// The same request, with the small page size.
    fn in_pages(&self, uri: &Uri) -> Uri {
        // The daemon asks for the largest pages that it can handle. A limit of one object stays.
        let small = format!("limit={}", self.0.page);
        uri.to_string().replace("limit=500", &small).parse().expect("a URI")
    }

    /// Counts a request. Returns whether, and how, it kills the daemon.
    fn count(&self) -> Option<Death> {
        let mut state = self.state();
        let (left, death) = state.doom?;
        if left > 0 {
            state.doom = Some((left - 1, death));
            return None;
        }
        state.doom = None;
        Some(death)
    }

    /// Kills the daemon now.
    pub(super) fn kill(&self, death: Death) {
        self.state().dying = Some(death);
        self.0.killed.notify_one();
    }
}

impl Arrival {
    /// Whether it is a write, successful or not. A dry run is a read.
    pub(super) fn is_write(&self) -> bool {
        self.method != Method::GET && !self.path.contains("dryRun=All")
    }

    /// Whether it renews the Lease, which is the only write of a quiet daemon.
    pub(super) fn is_of_lease(&self) -> bool {
        self.path.contains("/leases")
    }

    /// The part of a runtime that this request reads, if it reads all of that part.
    pub(super) fn looks_at(&self) -> Option<About> {
        const KYMA: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system/kymas/default";
        if self.method != Method::GET || self.server == KCP {
            return None;
        }
        match self.path.split_once('?') {
            // A check of all objects lists every kind by ownership label. Every runtime has namespaces.
            Some(("/api/v1/namespaces", query)) if query.contains("labelSelector") => Some(About::Objects),
            Some((KYMA, _)) => Some(About::Kyma),
            Some(_) => None,
            None => (self.path == KYMA).then_some(About::Kyma),
        }
    }

    /// The path without the query.
    pub(super) fn place(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// A parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Whether it is the first page of a list without a label selector.
    pub(super) fn is_first_page(&self) -> bool {
        let is_list = self.method == Method::GET && self.parameter("watch").is_none();
        is_list && self.code == 200 && ["continue", "labelSelector"].iter().all(|name| self.parameter(name).is_none())
    }

    /// Whether it is a read that may return old data: a list or an object of any version, or a watch from any version.
    pub(super) fn allows_any_version(&self) -> bool {
        let version = self.parameter("resourceVersion");
        let is_exact = match self.parameter("watch") {
            Some(_) => version.is_some_and(|version| !matches!(version, "" | "0")),
            None => version.is_none(),
        };
        self.method == Method::GET && !(is_exact && self.parameter("resourceVersionMatch").is_none())
    }

    /// Whether it deletes the CRD of the Kyma in a runtime, after which there is nothing left to check.
    pub(super) fn ends_runtime(&self) -> bool {
        self.method == Method::DELETE && self.path.contains("/customresourcedefinitions/kymas.")
    }
}

impl std::fmt::Display for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.server, self.method, self.path, self.code)
    }
}

// === impl Wire ===

impl Wire {
    /// Sends the request and records the answer. No other task runs in between.
    async fn ask(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let Wire { wires, life, name, server, service } = self;
        let truth = wires.truth();
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let mut arrival = Arrival {
            server: name,
            method: parts.method.clone(),
            path: parts.uri.to_string(),
            code: 0,
            late: false,
            life: *life,
            at: Instant::now(),
            victim: None,
        };
        parts.uri = wires.in_pages(&parts.uri);
        if arrival.parameter("continue").is_some() && wires.forgets() {
            server.compact();
        }
        if arrival.method == Method::DELETE {
            arrival.victim = truth.read(name, arrival.place()).await;
        }
        let Ok(response) = service.clone().oneshot(Request::from_parts(parts, Body::from(body.clone()))).await;
        arrival.code = response.status().as_u16();
        if arrival.is_write() && response.status().is_success() {
            truth.heard(&Write { server: name, path: arrival.place(), body: &body }).await;
        }
        wires.note(arrival);
        response
    }
}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let Wire { wires, life, name, .. } = &wire;
            let (life, name) = (*life, *name);
            if wires.is_dark(name) || (name == KCP && life <= wires.state().cut_off) {
                std::future::pending::<()>().await;
            }
            let dies = wires.count();
            if dies != Some(Death::Before) {
                let response = wire.ask(request).await;
                match dies {
                    None => return Ok(response),
                    Some(death @ Death::Polls(_)) => {
                        wires.kill(death);
                        return Ok(response);
                    }
                    Some(Death::Before | Death::After) => {}
                }
            }
            if let Some(death) = dies {
                wires.kill(death);
            }
            std::future::pending().await
        })
    }
}

/// Returns after this many polls of other tasks, without time passing. The tokio runtime polls one task between two of
/// ours.
pub(super) async fn polled(polls: u64) {
    for _ in 0..polls {
        tokio::task::yield_now().await;
    }
}
