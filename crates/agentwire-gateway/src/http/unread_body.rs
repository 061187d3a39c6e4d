//! Discards the unread rest of a request body while its response is sent.
//!
//! Most clients send their whole request before they read the response. If an error response closes the connection while
//! they still send, they see a broken pipe and never the response. So the rest of the body is read and discarded, within
//! limits, and the connection is closed after that. The response does not wait for it: a client that reads while it sends
//! can stop sending.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    Request,
    body::{Body, Frame, Incoming, SizeHint},
    header::EXPECT,
};
use tokio::time::{Duration, timeout};

/// The most bytes that are discarded: a few pictures above the usual limit. A client that sends more is disconnected.
const MAX_DISCARDED: usize = 64 << 20;

/// A body that hands over its rest when its reader stops before the end.
pub(super) struct WatchedBody {
    body: Option<Incoming>,
    unread: UnreadBody,
}

/// The unread rest of a body.
#[derive(Clone, Default)]
pub(super) struct UnreadBody(Arc<Mutex<BodyEnd>>);

/// The end of the body, as far as its reader has come.
#[derive(Default)]
enum BodyEnd {
    /// The reader has the body, or it is not watched.
    #[default]
    Unknown,
    /// All of it was read.
    Read,
    /// The reader stopped before the end.
    Unread(Incoming),
}

impl UnreadBody {
    fn end(&self) -> MutexGuard<'_, BodyEnd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the body was certainly read to its end, so that the next byte of the connection belongs to another request.
    pub(super) fn is_read(&self) -> bool {
        matches!(*self.end(), BodyEnd::Read)
    }

    /// Watches the body of a request. With `Expect: 100-continue` it is not watched: that client waits for the response.
    pub(super) fn watch(&self, request: Request<Incoming>) -> Request<axum::body::Body> {
        if request.headers().contains_key(EXPECT) {
            return request.map(axum::body::Body::new);
        }
        let unread = self.clone();
        request.map(|body| axum::body::Body::new(WatchedBody { body: Some(body), unread }))
    }

    /// Discards the rest in the background, for at most `limit`. Hyper keeps the connection open as long as the body is read.
    pub(super) fn discard(self, limit: Duration) {
        let BodyEnd::Unread(mut body) = std::mem::take(&mut *self.end()) else { return };
        tokio::spawn(timeout(limit, async move {
            let mut discarded = 0;
            while discarded <= MAX_DISCARDED
                && let Some(Ok(frame)) = body.frame().await
            {
                discarded += frame.data_ref().map_or(0, Bytes::len);
            }
        }));
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        *self.unread.end() = if body.is_end_stream() { BodyEnd::Read } else { BodyEnd::Unread(body) };
    }
}
