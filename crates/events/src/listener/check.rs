//! Checks a request and writes the answer. Statuses and texts are upstream's where upstream has them.

use std::{pin::Pin, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS},
    request::Parts,
};
use http_body_util::{BodyExt as _, Full};

use super::Refusal;
use crate::{event::ParseEventError, identity};

/// Limit of the body's length. An event takes a few hundred bytes.
pub(super) const BODY_MAX: usize = 16_384;
/// The header in which a gateway names the sender.
pub(super) const XFCC: &str = "x-forwarded-client-cert";

/// Reasons with a metric of their own.
pub(super) const WRONG_PATH: &str = "wrong-path";
pub(super) const WRONG_METHOD: &str = "wrong-method";
pub(super) const TOO_LARGE: &str = "too-large";

/// How many bytes of a refused body are read and dropped, so that the sender reads the answer.
const DISCARD_MAX: usize = 1 << 18;
/// When a sender should retry. By then an overload is over, and so is a change of leaders after a released Lease.
const RETRY_SECONDS: &str = "2";

pub(super) struct Reply {
    status: StatusCode,
    /// Why the request failed.
    reason: Option<&'static str>,
    text: String,
    /// Whether the connection closes after the answer.
    ends: bool,
}

/// Why the body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    TooLarge,
    Broken,
}

/// Checks everything that needs neither certificate nor body.
pub(super) fn head(head: &Parts, path: &str) -> Result<(), Reply> {
    if head.uri.path() != path {
        return Err(Reply::new(StatusCode::NOT_FOUND, WRONG_PATH, "404 page not found"));
    }
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_MAX as u64) {
        return Err(Reply::too_large());
    }
    if head.method != Method::POST {
        let text = format!("{} method is not allowed on this path", method(&head.method));
        return Err(Reply::new(StatusCode::METHOD_NOT_ALLOWED, WRONG_METHOD, text));
    }
    Ok(())
}

/// The name of a well-known method. An answer never repeats text that a sender made up.
fn method(method: &Method) -> &str {
    let known = [Method::GET, Method::HEAD, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::TRACE];
    if known.contains(method) || *method == Method::CONNECT { method.as_str() } else { "this" }
}

/// Reads the whole body.
pub(super) async fn body<B>(mut body: Pin<&mut B>) -> Result<Bytes, BodyError>
where
    B: hyper::body::Body<Data = Bytes>,
{
    let mut whole: Option<Bytes> = None;
    let mut grown = BytesMut::new();
    let mut length = 0;
    let mut too_large = false;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        length += data.len();
        too_large = too_large || BODY_MAX < length;
        match (too_large, &whole) {
            (true, _) if DISCARD_MAX < length => return Err(BodyError::TooLarge),
            (true, _) => {}
            // Nearly every body arrives in one piece, which need not be copied.
            (false, None) if grown.is_empty() => whole = Some(data),
            (false, first) => {
                grown.extend_from_slice(first.as_deref().unwrap_or_default());
                whole = None;
                grown.extend_from_slice(&data);
            }
        }
    }
    if too_large { Err(BodyError::TooLarge) } else { Ok(whole.unwrap_or_else(|| grown.freeze())) }
}

/// Reads and drops the rest of a body, within limits.
pub(super) async fn discard<B>(mut body: Pin<Box<B>>, time: Duration)
where
    B: hyper::body::Body<Data = Bytes>,
{
    if body.is_end_stream() {
        return;
    }
    let all = async {
        let mut length = 0;
        while let Some(Ok(frame)) = body.frame().await {
            length += frame.data_ref().map_or(0, Bytes::len);
            if DISCARD_MAX < length {
                return;
            }
        }
    };
    // A slower sender is cut off.
    let _ = tokio::time::timeout(time, all).await;
}

// === impl Reply ===

impl Reply {
    fn new(status: StatusCode, reason: &'static str, text: impl Into<String>) -> Reply {
        Reply { status, reason: Some(reason), text: text.into(), ends: false }
    }

    pub(super) fn taken() -> Reply {
        Reply { status: StatusCode::OK, reason: None, text: String::new(), ends: false }
    }

    pub(super) fn too_large() -> Reply {
        let text = format!("Body size greater than {BODY_MAX} bytes is not allowed");
        Reply::new(StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE, text)
    }

    pub(super) fn unreadable() -> Reply {
        Reply::new(StatusCode::BAD_REQUEST, "body-unreadable", "could not read request body")
    }

    pub(super) fn no_event(error: &ParseEventError) -> Reply {
        Reply::new(StatusCode::BAD_REQUEST, "no-event", format!("could not unmarshal watcher event: {error}"))
    }

    pub(super) fn unknown(error: identity::Error) -> Reply {
        match error {
            identity::Error::NoAuthorities => Reply::unavailable(error.reason(), "certificates cannot be checked yet"),
            error => {
                let text = format!("could not get client certificate from request: {error}");
                Reply::new(StatusCode::UNAUTHORIZED, error.reason(), text)
            }
        }
    }

    pub(super) fn nameless() -> Reply {
        Reply::new(StatusCode::BAD_REQUEST, "no-common-name", "client certificate common name is empty")
    }

    pub(super) fn refused(refusal: &Refusal) -> Reply {
        Reply::new(StatusCode::FORBIDDEN, refusal.reason, refusal.message)
    }

    pub(super) fn unavailable(reason: &'static str, text: &'static str) -> Reply {
        Reply::new(StatusCode::SERVICE_UNAVAILABLE, reason, text)
    }

    /// The same answer, but the connection closes after it.
    pub(super) fn ending(self) -> Reply {
        Reply { ends: true, ..self }
    }

    pub(super) fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    pub(super) fn is_wrong_method(&self) -> bool {
        self.status == StatusCode::METHOD_NOT_ALLOWED
    }

    pub(super) fn is_refusal(&self) -> bool {
        self.status == StatusCode::FORBIDDEN
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut text = self.text;
        if text.is_empty() {
            return Response::new(Full::default());
        }
        text.push('\n');
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        if self.ends {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
