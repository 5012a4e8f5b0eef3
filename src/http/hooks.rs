//! `/hooks/<namespace>/<name>`: deliveries of git hosts.
//!
//! The checks, in order:
//!
//! | check | answer |
//! | --- | --- |
//! | another path | 404 |
//! | another method than POST | 405 |
//! | this process does not lead, or has not listed the control plane | 503 |
//! | an address with many refused deliveries | 429 |
//! | a `Content-Encoding` | 415 |
//! | a body beyond 1 MiB, also in chunks | 413 |
//! | a body that takes longer than 10 s | 408 |
//! | no receiver of this name, or a wrong signature or token | 401 |
//! | an authentic body that is not what its host sends | 400 |
//! | otherwise, also if it wakes no source | 202 |
//!
//! A body is never decompressed, so a small one cannot become a large one. The answers before the 401 depend on the
//! request and its address only, and the 401 always takes the same time: neither says whether there is such a receiver.
//! The source is fetched after the answer.

pub(crate) mod serve;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::{ConnectInfo, Path, Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONNECTION, CONTENT_ENCODING, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, future::BoxFuture};
use tidegate_core::{name::Key, push::Headers};
use tidegate_events::Peers;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    metrics::Metrics,
    source::receiver::{Delivery, Outcome},
};

/// What the routes use.
pub(crate) struct Hooks {
    /// Whether a delivery of this address may come in.
    pub(crate) admits: Box<dyn Fn(IpAddr) -> Admission + Send + Sync>,
    /// Handles a delivery.
    pub(crate) receive: Box<dyn Fn(Delivery) -> BoxFuture<'static, Outcome> + Send + Sync>,
    /// Peers whose `X-Forwarded-For` names the sender.
    pub(crate) proxies: Peers,
    /// The metrics.
    pub(crate) metrics: Metrics,
    /// Permits for large bodies.
    pub(crate) large: Semaphore,
    /// Records that a body of this address did not arrive in time.
    pub(crate) stalled: Box<dyn Fn(IpAddr) + Send + Sync>,
}

/// Whether a delivery may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may.
    Open,
    /// Its address has sent too many deliveries that were refused.
    Limited,
    /// Another process, or this one a moment later, accepts deliveries.
    Standby,
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    Encoded,
    TooLarge,
    TooSlow,
    Broken,
}

/// Limit of a body, in bytes. GitHub sends at most 25 MiB, but a push within hours of the last one has a few KiB.
const BODY_BYTES_MAX: usize = 1 << 20;
/// How much of each body needs no permit, in bytes.
const BODY_BYTES_FREE: usize = 64 << 10;
/// Maximum number of larger bodies at once.
pub(crate) const LARGE_BODIES_MAX: usize = 16;
/// Limit of the time for a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the rest of a body that nobody needs is read: a sender that is cut off while it writes reads no answer.
const DISCARD: Duration = Duration::from_secs(1);

/// The routes.
pub(crate) fn router(hooks: Arc<Hooks>) -> Router {
    Router::new().route("/hooks/{namespace}/{name}", post(deliver)).with_state(hooks)
}

async fn deliver(
    State(hooks): State<Arc<Hooks>>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
    let (head, body) = request.into_parts();
    let address = sender(peer.unwrap_or(IpAddr::from([0, 0, 0, 0])), &head.headers, &hooks.proxies);
    match (hooks.admits)(address) {
        Admission::Open => {}
        Admission::Limited => {
            hooks.metrics.delivery("limited");
            return hooks.reject(body, StatusCode::TOO_MANY_REQUESTS, "too many deliveries were refused").await;
        }
        Admission::Standby => {
            hooks.metrics.delivery("standby");
            return hooks.reject(body, StatusCode::SERVICE_UNAVAILABLE, "another replica accepts deliveries").await;
        }
    }
    let mut body = body;
    let (body, _permit) = match hooks.read(&head.headers, &mut body).await {
        Ok(read) => read,
        Err(unread) => {
            if unread == Unread::TooSlow {
                (hooks.stalled)(address);
            }
            hooks.metrics.delivery(unread.outcome());
            let (status, message) = unread.answer();
            return hooks.reject(body, status, message).await;
        }
    };
    let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let delivery = Delivery { source: Key::new(&namespace, &name), address, headers: Headers::new(headers), body };
    let outcome = (hooks.receive)(delivery).await;
    hooks.metrics.delivery(outcome.name());
    answer(&outcome)
}

/// The address of the sender: that of the peer, or the last one that a trusted peer has added to `X-Forwarded-For`.
fn sender(peer: IpAddr, headers: &HeaderMap, proxies: &Peers) -> IpAddr {
    if !proxies.contain(peer) {
        return peer;
    }
    let last = headers.get_all("x-forwarded-for").iter().next_back().and_then(|value| value.to_str().ok());
    let last = last.and_then(|list| list.rsplit(',').next()).map(str::trim);
    let address = last.and_then(|text| text.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip())));
    address.unwrap_or(peer)
}

fn answer(outcome: &Outcome) -> Response {
    let (status, message) = match outcome {
        Outcome::Accepted { woken, suspended } => (StatusCode::ACCEPTED, accepted(woken, suspended)),
        Outcome::Duplicate => (StatusCode::ACCEPTED, "ignored: this delivery came before".to_owned()),
        Outcome::NoPush => (StatusCode::ACCEPTED, "ignored: this is not a push".to_owned()),
        Outcome::OtherRepository => {
            let message = "ignored: no GitSource with this Secret has the repository of this push as its spec.url";
            (StatusCode::ACCEPTED, message.to_owned())
        }
        Outcome::OtherRef => {
            let message = "ignored: no GitSource with this Secret follows a ref of this push";
            (StatusCode::ACCEPTED, message.to_owned())
        }
        Outcome::Malformed(message) => (StatusCode::BAD_REQUEST, message.clone()),
        Outcome::Refused => {
            let message = "refused: there is no such receiver, or the signature or token is wrong";
            (StatusCode::UNAUTHORIZED, message.to_owned())
        }
    };
    (status, format!("{message}\n")).into_response()
}

/// What follows from a push, for the pages on which git hosts list deliveries.
fn accepted(woken: &[Key], suspended: &[Key]) -> String {
    let list = |keys: &[Key]| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let is = |keys: &[Key]| if keys.len() == 1 { "is" } else { "are" };
    let fetched = (!woken.is_empty()).then(|| format!("{} {} fetched", list(woken), is(woken)));
    let waiting = (!suspended.is_empty())
        .then(|| format!("{} {} suspended and fetched when resumed", list(suspended), is(suspended)));
    let parts: Vec<String> = fetched.into_iter().chain(waiting).collect();
    format!("accepted: {}", parts.join("; "))
}

// === impl Hooks ===

impl Hooks {
    /// Answers a request without its body, and ends its connection.
    async fn reject(&self, body: Body, status: StatusCode, message: &str) -> Response {
        let mut rest = body.into_data_stream();
        let _ = timeout(DISCARD, async { while rest.next().await.is_some_and(|chunk| chunk.is_ok()) {} }).await;
        let mut response = (status, format!("{message}\n")).into_response();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }

    /// Reads a body. A large one waits for a permit, so that all together need little memory.
    async fn read(&self, headers: &HeaderMap, body: &mut Body) -> Result<(Bytes, Option<SemaphorePermit<'_>>), Unread> {
        if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(Unread::Encoded);
        }
        if usize::try_from(body.size_hint().lower()).is_ok_and(|length| BODY_BYTES_MAX < length) {
            return Err(Unread::TooLarge);
        }
        let deadline = Instant::now() + BODY_TIME_MAX;
        let (mut bytes, mut permit) = (BytesMut::new(), None);
        let mut chunks = std::mem::take(body).into_data_stream();
        let end = loop {
            let chunk = match timeout_at(deadline, chunks.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(_))) => break Err(Unread::Broken),
                Ok(None) => break Ok(()),
                Err(_elapsed) => break Err(Unread::TooSlow),
            };
            if BODY_BYTES_MAX < bytes.len() + chunk.len() {
                break Err(Unread::TooLarge);
            }
            if BODY_BYTES_FREE < bytes.len() + chunk.len() && permit.is_none() {
                match timeout_at(deadline, self.large.acquire()).await {
                    Ok(Ok(given)) => permit = Some(given),
                    Ok(Err(_)) | Err(_) => break Err(Unread::TooSlow),
                }
            }
            bytes.extend_from_slice(&chunk);
        };
        *body = Body::from_stream(chunks);
        end.map(|()| (bytes.freeze(), permit))
    }
}

// === impl Unread ===

impl Unread {
    /// The word in the metrics.
    fn outcome(self) -> &'static str {
        match self {
            Unread::Encoded => "encoded",
            Unread::TooLarge => "too-large",
            Unread::TooSlow => "too-slow",
            Unread::Broken => "incomplete",
        }
    }

    fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Unread::Encoded => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the body without a Content-Encoding"),
            Unread::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 1 MiB"),
            Unread::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            Unread::Broken => (StatusCode::BAD_REQUEST, "the body is incomplete"),
        }
    }
}

#[cfg(test)]
mod tests;
