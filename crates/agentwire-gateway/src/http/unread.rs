//! The rest of a body that nobody wanted.
//!
//! Most clients send their whole request before they look at the answer. If a refusal closes the connection while they
//! still send, they see a broken pipe and never the refusal. So what is left of the body is read and thrown away first.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    Request, StatusCode,
    body::{Body, Frame, Incoming, SizeHint},
    header::EXPECT,
};
use tokio::time::{Duration, timeout};

/// The most that is thrown away: a few pictures above the usual limit. Who sends more than that is cut off.
const MAX_DISCARDED: usize = 64 << 20;

/// A body that is handed over when whoever reads it stops before its end.
pub(super) struct Watched {
    body: Option<Incoming>,
    unread: Unread,
}

/// What was left of a body.
#[derive(Clone, Default)]
pub(super) struct Unread(Arc<Mutex<Option<Incoming>>>);

impl Unread {
    /// Watches the body of a request. A client that asks first whether it may send its body is not watched: it waits
    /// for the answer.
    pub(super) fn watch(&self, request: Request<Incoming>) -> Request<axum::body::Body> {
        if request.headers().contains_key(EXPECT) {
            return request.map(axum::body::Body::new);
        }
        let unread = self.clone();
        request.map(|body| axum::body::Body::new(Watched { body: Some(body), unread }))
    }

    /// Reads what was left if the request was refused, for so long at most.
    pub(super) async fn discard(self, status: StatusCode, patience: Duration) {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Whoever was too slow has been waited for already.
        let is_refused = !status.is_success() && status != StatusCode::REQUEST_TIMEOUT;
        let Some(mut body) = left.filter(|_| is_refused) else { return };
        let mut discarded = 0;
        let reading = async {
            while discarded <= MAX_DISCARDED
                && let Some(Ok(frame)) = body.frame().await
            {
                discarded += frame.data_ref().map_or(0, Bytes::len);
            }
        };
        let _ = timeout(patience, reading).await;
    }
}

impl Body for Watched {
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

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.unread.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}
