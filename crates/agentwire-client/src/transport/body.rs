//! The body of a response, together with the connection that it is read from.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};

use super::{direct::DirectConnection, native::sources};

/// The most bytes that are joined: a few hundred events of a fast stream, so that one append contains many.
const MAX_JOINED: usize = 64 << 10;

/// The body of a response. It is read when it is polled, and its connection is closed when it is dropped.
pub(super) struct DirectBody {
    /// `None` when the connection is closed.
    pub(super) connection: Option<DirectConnection>,
    pub(super) incoming: Incoming,
    /// The error after the bytes that were returned last.
    pub(super) problem: Option<io::Error>,
}

impl Body for DirectBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let body = &mut *self;
        if let Some(problem) = body.problem.take() {
            return Poll::Ready(Some(Err(problem)));
        }
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        let end = loop {
            // The connection hands over one chunk of the transfer coding at a time, and reports its errors in the body.
            body.connection.take_if(|connection| Pin::new(connection).poll(cx).is_ready());
            match Pin::new(&mut body.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(chunk) = frame.into_data() else { continue };
                    if first.is_empty() {
                        first = chunk;
                        continue;
                    }
                    if joined.is_empty() {
                        joined.extend_from_slice(&first);
                    }
                    joined.extend_from_slice(&chunk);
                    if joined.len() >= MAX_JOINED {
                        break Poll::Pending;
                    }
                }
                Poll::Ready(Some(Err(problem))) => break Poll::Ready(Some(Err(broken(problem)))),
                Poll::Ready(None) => break Poll::Ready(None),
                Poll::Pending => break Poll::Pending,
            }
        };
        let bytes = if joined.is_empty() { first } else { joined.freeze() };
        if bytes.is_empty() {
            return end;
        }
        if let Poll::Ready(Some(Err(problem))) = end {
            body.problem = Some(problem);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

/// The error of a connection within a body.
fn broken(problem: hyper::Error) -> io::Error {
    let is_closed = |kind| kind == io::ErrorKind::UnexpectedEof;
    let cause = sources(&problem).find_map(|source| source.downcast_ref::<io::Error>());
    if problem.is_incomplete_message() || cause.is_some_and(|cause| is_closed(cause.kind())) {
        return io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed within the answer");
    }
    io::Error::other(problem)
}
