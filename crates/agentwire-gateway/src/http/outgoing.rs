//! The way of a response to its client: in small pieces, and only as long as the client takes them.
//!
//! A client that reads nothing costs the memory of what is written for it. So a body is handed to hyper in pieces, the
//! next one when the system has taken the last, and a client that takes less than a piece within `limits.write_timeout`
//! is disconnected. An idle stream waits for nothing and is not affected.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hyper::body::{Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use tokio_util::sync::CancellationToken;

use crate::limits::HeldBytes;

/// The largest piece. Hyper keeps the memory of the largest one for the next response.
pub(super) const PIECE: usize = 8 << 10;

/// The data on its way to a client: of a connection, or of one HTTP/2 stream.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Bytes that hyper was given since the last flush; HTTP/1 only.
    unflushed: AtomicUsize,
    /// True if hyper has a piece and has not asked for the next one.
    is_unread: AtomicBool,
    /// The number of pieces so far.
    pieces: AtomicUsize,
    /// True if bytes were written since the last flush, or could not be; HTTP/1 only.
    is_writing: AtomicBool,
    /// Wakes the body after a flush.
    waker: AtomicWaker,
}

impl Outgoing {
    /// True if the system has everything that was written. Hyper flushes at the end of each poll.
    pub(super) fn is_flushed(&self) -> bool {
        !self.is_writing.load(Ordering::Relaxed)
    }

    fn note_flush(&self) {
        self.is_writing.store(false, Ordering::Relaxed);
        if self.unflushed.swap(0, Ordering::Relaxed) > 0 {
            self.waker.wake();
        }
    }
}

/// The body of a response, in pieces.
pub(super) struct PacedBody {
    body: Body,
    /// The rest of a frame that is longer than a piece.
    rest: Bytes,
    outgoing: Arc<Outgoing>,
    /// True if a flush reports that the pieces were taken; on HTTP/2 hyper asks only if there is room.
    is_http1: bool,
    /// The budget of a large response.
    _held: Option<HeldBytes>,
}

impl PacedBody {
    pub(super) fn new(body: Body, outgoing: Arc<Outgoing>, is_http1: bool, held: Option<HeldBytes>) -> Self {
        Self { body, rest: Bytes::new(), outgoing, is_http1, _held: held }
    }

    fn hand_over(&mut self, mut data: Bytes) -> Bytes {
        if data.len() > PIECE {
            self.rest = data.split_off(PIECE);
        }
        let outgoing = &self.outgoing;
        if self.is_http1 {
            outgoing.unflushed.fetch_add(data.len(), Ordering::Relaxed);
        } else {
            outgoing.pieces.fetch_add(1, Ordering::Relaxed);
            outgoing.is_unread.store(true, Ordering::Relaxed);
        }
        data
    }
}

impl hyper::body::Body for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_http1 && self.outgoing.unflushed.load(Ordering::Relaxed) >= PIECE {
            // Connection and body are polled by the same task, so that no flush happens in between.
            self.outgoing.waker.register(cx.waker());
            return Poll::Pending;
        }
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(Frame::data(self.hand_over(rest)))));
        }
        self.outgoing.is_unread.store(false, Ordering::Relaxed);
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            Ok(match frame.into_data() {
                Ok(data) => Frame::data(self.hand_over(data)),
                Err(other) => other,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// A connection whose writes have to make progress: the peer must take all data, or a piece of it, within a time.
pub(super) struct TimedIo<S> {
    stream: S,
    /// Bytes of the peer that are read before those of the stream.
    start: Bytes,
    outgoing: Arc<Outgoing>,
    timeout: Duration,
    /// Cancelled if the peer does not.
    cut: CancellationToken,
    /// Set while the peer takes nothing.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes that the peer took since the deadline was set.
    taken: usize,
}

impl<S> TimedIo<S> {
    pub(super) fn new(stream: S, outgoing: Arc<Outgoing>, timeout: Duration, cut: CancellationToken) -> Self {
        Self { stream, start: Bytes::new(), outgoing, timeout, cut, deadline: None, taken: 0 }
    }

    /// The same with bytes that were read already.
    pub(super) fn with_start(self, start: Bytes) -> Self {
        let start = if self.start.is_empty() { start } else { [start, self.start].concat().into() };
        Self { start, ..self }
    }

    fn check(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) if self.deadline.is_some() => {
                self.taken += bytes;
                if self.taken >= PIECE {
                    self.deadline = None;
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Pending => {
                let timeout = self.timeout;
                let deadline = self.deadline.get_or_insert_with(|| {
                    self.taken = 0;
                    Box::pin(tokio::time::sleep(timeout))
                });
                ready!(deadline.as_mut().poll(cx));
                self.cut.cancel();
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            other => other,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.start.is_empty() {
            let length = self.start.len().min(buffer.remaining());
            buffer.put_slice(&self.start.split_to(length));
            if self.start.is_empty() {
                self.start = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.outgoing.is_writing.store(true, Ordering::Relaxed);
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.outgoing.is_writing.store(true, Ordering::Relaxed);
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Hyper flushes after it has written everything.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.deadline = None;
            self.outgoing.note_flush();
        } else if let Poll::Ready(Err(error)) = self.check(Poll::Pending, cx) {
            // A TLS stream writes when it is flushed.
            return Poll::Ready(Err(error));
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Runs the task of an HTTP/2 stream. It ends, and the stream is reset, if the client does not take the next piece in
/// time: a stream can be full while its connection is not.
pub(super) async fn timed_stream(
    task: impl Future,
    outgoing: Arc<Outgoing>,
    timeout: Duration,
    cut: CancellationToken,
) {
    let mut task = std::pin::pin!(task);
    let mut deadline: Option<(usize, Pin<Box<Sleep>>)> = None;
    std::future::poll_fn(|cx| {
        if task.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !outgoing.is_unread.load(Ordering::Relaxed) {
            deadline = None;
            return Poll::Pending;
        }
        let pieces = outgoing.pieces.load(Ordering::Relaxed);
        let (seen, timer) = deadline.get_or_insert_with(|| (pieces, Box::pin(tokio::time::sleep(timeout))));
        if *seen != pieces {
            *seen = pieces;
            timer.as_mut().reset(tokio::time::Instant::now() + timeout);
        }
        ready!(timer.as_mut().poll(cx));
        cut.cancel();
        Poll::Ready(())
    })
    .await;
}
