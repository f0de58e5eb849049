//! Requests and their answers: the configuration, a byte, an endless stream of bytes, a hole.
//!
//! The configuration has each URL under two names. Those of draft-ietf-ippm-responsiveness-09, and those of earlier drafts, which
//! goresponsiveness 3439542 and networkquality-rs 10469a1 read. Their host is the one in the request: a client refuses another.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::admission::{Load, Place, RETRY};

/// Where clients look first: RFC 8615, and the draft.
pub const CONFIGURATION: &str = "/.well-known/nq";
const SMALL: &str = "/nq/small";
const LARGE: &str = "/nq/large";
const UPLOAD: &str = "/nq/upload";
/// The draft asks for 8 GB: no client comes to its end.
const LARGE_BYTES: u64 = 8_000_000_000;

/// The body of an answer.
pub enum Content {
    /// All of it.
    Whole(Bytes),
    /// Pieces of a block, for ever.
    Large {
        /// Where bytes are counted.
        load: Load,
        /// What is sent again and again.
        block: Bytes,
        /// The next piece.
        at: usize,
        /// What is left of the length.
        left: u64,
    },
}

/// Ends a body.
#[derive(Debug, thiserror::Error)]
#[error("the limit of time or bytes is reached")]
pub struct LimitReached;

impl Body for Content {
    type Data = Bytes;
    type Error = LimitReached;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, LimitReached>>> {
        let piece = match &mut *self {
            Content::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Content::Whole(bytes) => std::mem::take(bytes),
            Content::Large { left: 0, .. } => return Poll::Ready(None),
            Content::Large { load, block, at, left } => {
                let until_end =
                    (block.len() - *at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                let length = load.unsent_bytes().clamp(1, until_end);
                if !load.down(length as u64) {
                    return Poll::Ready(Some(Err(LimitReached)));
                }
                let piece = block.slice(*at..*at + length);
                *at = (*at + length) % block.len();
                *left -= length as u64;
                piece
            }
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Large { left, .. } => *left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::Large { left, .. } => *left,
        })
    }
}

/// Answers a request.
pub async fn answer(
    request: Request<Incoming>,
    place: &Arc<Place>,
    block: Bytes,
) -> Response<Content> {
    place.asked();
    if !place.is_admitted() || place.is_over(Instant::now()) {
        let later = HeaderValue::from(RETRY.as_secs());
        return with(StatusCode::SERVICE_UNAVAILABLE, &[(RETRY_AFTER, later)], nothing());
    }
    let of = |kind| (CONTENT_TYPE, HeaderValue::from_static(kind));
    let binary = of("application/octet-stream");
    match (request.uri().path(), request.method()) {
        (CONFIGURATION, &Method::GET) => match authority(&request) {
            Some(host) => {
                let urls = Bytes::from(configuration(&host));
                with(StatusCode::OK, &[of("application/json")], Content::Whole(urls))
            }
            None => with(StatusCode::BAD_REQUEST, &[], nothing()),
        },
        (SMALL, &Method::GET) => with(StatusCode::OK, &[binary], Content::Whole(block.slice(..1))),
        (LARGE, &Method::GET) => {
            let content =
                Content::Large { load: Load::new(place), block, at: 0, left: LARGE_BYTES };
            with(StatusCode::OK, &[binary], content)
        }
        (UPLOAD, &Method::POST) => {
            let status = match discard(request.into_body(), &Load::new(place)).await {
                true => StatusCode::OK,
                false => StatusCode::SERVICE_UNAVAILABLE,
            };
            with(status, &[], nothing())
        }
        (CONFIGURATION | SMALL | LARGE, _) => not_allowed("GET"),
        (UPLOAD, _) => not_allowed("POST"),
        _ => with(StatusCode::NOT_FOUND, &[], nothing()),
    }
}

/// Takes a body and throws it away; whether it came to its end within the limits.
async fn discard(mut body: Incoming, load: &Load) -> bool {
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(frame) = frame else { return false };
        let length = frame.data_ref().map_or(0, |data| data.len());
        if !load.up(length as u64) {
            return false;
        }
    }
    true
}

/// The host and port to which a request was sent: in its URL with HTTP/2, in a field with HTTP/1.1.
fn authority(request: &Request<Incoming>) -> Option<Authority> {
    let named = match request.uri().authority() {
        Some(authority) => authority.clone(),
        None => request.headers().get(HOST)?.to_str().ok()?.parse().ok()?,
    };
    // A user's name has no place in a URL that others follow.
    (!named.as_str().contains('@')).then_some(named)
}

fn configuration(host: &Authority) -> String {
    let url = |path| format!("https://{host}{path}");
    json!({
        "version": 1,
        "urls": {
            "small_download_url": url(SMALL),
            "large_download_url": url(LARGE),
            "upload_url": url(UPLOAD),
            "small_https_download_url": url(SMALL),
            "large_https_download_url": url(LARGE),
            "https_upload_url": url(UPLOAD),
        },
    })
    .to_string()
}

fn nothing() -> Content {
    Content::Whole(Bytes::new())
}

fn not_allowed(method: &'static str) -> Response<Content> {
    let allow = (ALLOW, HeaderValue::from_static(method));
    with(StatusCode::METHOD_NOT_ALLOWED, &[allow], nothing())
}

fn with(
    status: StatusCode,
    fields: &[(HeaderName, HeaderValue)],
    content: Content,
) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.extend(fields.iter().cloned());
    // What a cache between has would be another path.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
