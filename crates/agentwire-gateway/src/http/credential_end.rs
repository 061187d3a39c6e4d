//! The end of a credential cuts the streams that it opened, and ends requests that wait for a run; the runs go on.
//!
//! The client gets `retry:` and then no regular end, so that it comes back, with a new credential.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use agentwire_core::framing::Framing;
use agentwire_store::Time;
use bytes::Bytes;
use futures_util::{Stream, stream, task::AtomicWaker};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    auth::{AuthMethod, Principal, credential_ended},
    error::ApiError,
};

/// Time for a client to read what is left before its connection is cut.
const LAST_READ: Duration = Duration::from_secs(2);

/// Time to write `retry:` before the cut.
const LAST_WRITE: Duration = Duration::from_millis(100);

/// Longest sleep at once: timers have a limit, and the clock of the store may be another one.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// The end of the credential of a stream.
pub(super) struct CredentialEnd {
    principal: Arc<Principal>,
    left: Option<Duration>,
}

impl CredentialEnd {
    /// `None` for a credential that never ends.
    pub(super) fn of(principal: &Arc<Principal>, now: Time) -> Option<Self> {
        let ends =
            principal.expires.is_some() || matches!(principal.method, AuthMethod::Key | AuthMethod::Ticket);
        let left = principal.expires.map(|expires| Duration::from_millis(expires.0.saturating_sub(now.0)));
        ends.then(|| Self { principal: principal.clone(), left })
    }

    async fn wait(self) {
        let expired = async {
            let Some(mut left) = self.left else { return std::future::pending().await };
            while !left.is_zero() {
                let step = left.min(LONGEST_SLEEP);
                tokio::time::sleep(step).await;
                left -= step;
            }
        };
        tokio::select! {
            () = expired => {}
            () = self.principal.revoked.cancelled() => {}
        }
    }

    /// Waits for `work`, but not beyond the end of the credential.
    ///
    /// # Errors
    /// `TOKEN_EXPIRED`, or `UNAUTHENTICATED` if the credential was revoked.
    pub(super) async fn before<T>(
        principal: &Arc<Principal>,
        now: Time,
        work: impl Future<Output = T>,
    ) -> Result<T, ApiError> {
        let Some(end) = Self::of(principal, now) else { return Ok(work.await) };
        tokio::select! {
            done = work => Ok(done),
            () = end.wait() => Err(credential_ended(principal.revoked.is_cancelled())),
        }
    }

    /// The stream up to the end of the credential. Until then an event costs the look at a flag.
    pub(super) fn cut(
        self,
        chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        framing: Framing,
        connection: CancellationToken,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let ended = Arc::new(Ended::default());
        let signal = ended.clone();
        // A task of its own: the body is not polled while the client does not read.
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            self.wait().await;
            signal.set();
            tokio::time::sleep(LAST_READ).await;
            connection.cancel();
        }));
        let last = match framing {
            Framing::Sse => Bytes::from_static(b"retry: 1000\n\n"),
            _ => Bytes::new(),
        };
        let mut chunks = Box::pin(chunks);
        let chunks = stream::poll_fn(move |cx| {
            if ended.is_set() {
                return Poll::Ready(None);
            }
            let polled = chunks.as_mut().poll_next(cx);
            match polled {
                Poll::Ready(Some(chunk)) => Poll::Ready(Some(Piece::Chunk(chunk))),
                // It has ended by itself.
                Poll::Ready(None) => Poll::Ready(Some(Piece::End)),
                Poll::Pending if ended.is_set_for(cx) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        let state = (chunks, task, Some(last));
        stream::unfold(state, move |(mut chunks, task, last)| async move {
            use futures_util::StreamExt;
            let Some(last) = last else {
                // The last bytes are written while the body is pending.
                tokio::time::sleep(LAST_WRITE).await;
                return Some((Err(io::Error::other("the credential has ended")), (chunks, task, None)));
            };
            match chunks.next().await {
                Some(Piece::Chunk(chunk)) => Some((chunk, (chunks, task, Some(last)))),
                Some(Piece::End) => None,
                None => Some((Ok(last), (chunks, task, None))),
            }
        })
    }
}

/// A part of the stream below, or its end.
enum Piece {
    Chunk(io::Result<Bytes>),
    End,
}

/// A flag that wakes the stream when it is set.
#[derive(Default)]
struct Ended {
    is_set: AtomicBool,
    waker: AtomicWaker,
}

impl Ended {
    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// True if it is set; else the task is woken when it is.
    fn is_set_for(&self, cx: &Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.is_set()
    }
}
