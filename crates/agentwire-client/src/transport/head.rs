//! The connection of a request while hyper reads the head of the response.
//!
//! Hyper parses the head, and the connection is taken from it then ([`super::chunked`]). It would read the beginning of
//! the body as well and keep it in a decoder that cannot be taken, so the bytes behind the head are kept back until it is
//! known who reads them. What follows an interim head (`100`, `103`) is the next head.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::{
    body::{Body, Frame, SizeHint},
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
};

/// Bytes that are read at once before the end of the head is found: a whole head, mostly.
const PIECE: usize = 2 << 10;

/// The state of an exchange that its connection and the sender of the request share.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// True if hyper has the whole body of the request.
    has_body: AtomicBool,
    /// True if the system has the whole request.
    is_sent: AtomicBool,
    /// True if hyper reads the body of the response.
    is_released: AtomicBool,
}

impl Exchange {
    /// True if the system has the whole request.
    pub(super) fn is_sent(&self) -> bool {
        self.is_sent.load(Relaxed)
    }

    /// Gives hyper the bytes behind the head.
    pub(super) fn release(&self) {
        self.is_released.store(true, Relaxed);
    }
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct RequestBody {
    bytes: Option<Bytes>,
    exchange: Arc<Exchange>,
}

impl RequestBody {
    pub(super) fn new(bytes: Bytes, exchange: Arc<Exchange>) -> Self {
        exchange.has_body.store(bytes.is_empty(), Relaxed);
        Self { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), exchange }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = self.bytes.take();
        self.exchange.has_body.store(true, Relaxed);
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// The part of a head that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the status line, where hyper skips empty lines.
    Before,
    Line,
    /// At the start of a line behind the status line.
    LineStart,
    /// Behind the last head.
    Behind,
}

/// Finds the end of the last head. Lines end with LF, with or without CR before it.
#[derive(Debug)]
struct HeadEnd {
    place: Place,
    /// The first bytes, `HTTP/1.1 103`.
    status: [u8; 12],
    length: usize,
}

impl HeadEnd {
    fn new() -> Self {
        Self { place: Place::Before, status: [0; 12], length: 0 }
    }

    fn is_found(&self) -> bool {
        self.place == Place::Behind
    }

    /// True for a status after which another head follows.
    fn is_interim(&self) -> bool {
        self.length == self.status.len() && self.status[9] == b'1' && self.status[9..] != *b"101"
    }

    /// The number of bytes that belong to heads.
    fn find(&mut self, bytes: &[u8]) -> usize {
        for (index, byte) in bytes.iter().enumerate() {
            self.place = match (self.place, byte) {
                (Place::Behind, _) => return index,
                (Place::Before, b'\r' | b'\n') => Place::Before,
                (Place::LineStart, b'\r') => Place::LineStart,
                (Place::LineStart, b'\n') if self.is_interim() => {
                    self.length = 0;
                    Place::Before
                }
                (Place::LineStart, b'\n') => Place::Behind,
                (Place::Line, b'\n') => Place::LineStart,
                (Place::Before, byte) => {
                    self.status[0] = *byte;
                    self.length = 1;
                    Place::Line
                }
                (Place::Line, byte) if self.length < self.status.len() => {
                    self.status[self.length] = *byte;
                    self.length += 1;
                    Place::Line
                }
                (Place::Line | Place::LineStart, _) => Place::Line,
            };
        }
        bytes.len()
    }
}

/// A connection whose reader gets heads, and the bytes behind them when they are released.
#[derive(Debug)]
pub(super) struct HeadIo {
    stream: TokioIo<TcpStream>,
    exchange: Arc<Exchange>,
    head: HeadEnd,
    /// Bytes behind the head.
    kept: Bytes,
    has_written: bool,
}

impl HeadIo {
    pub(super) fn new(stream: TokioIo<TcpStream>, exchange: Arc<Exchange>) -> Self {
        Self { stream, exchange, head: HeadEnd::new(), kept: Bytes::new(), has_written: false }
    }

    /// The connection, and the bytes that were read behind the head.
    pub(super) fn into_parts(self) -> (TcpStream, Bytes) {
        (self.stream.into_inner(), self.kept)
    }
}

impl Read for HeadIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let io = &mut *self;
        if io.head.is_found() {
            if !io.exchange.is_released.load(Relaxed) {
                // The task that releases the bytes polls the connection.
                return Poll::Pending;
            }
            if io.kept.is_empty() {
                return Read::poll_read(Pin::new(&mut io.stream), cx, cursor);
            }
            let length = io.kept.len().min(cursor.remaining());
            cursor.put_slice(&io.kept.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let mut piece = [0; PIECE];
        let length = PIECE.min(cursor.remaining());
        let mut buffer = ReadBuf::new(&mut piece[..length]);
        ready!(AsyncRead::poll_read(Pin::new(io.stream.inner_mut()), cx, &mut buffer))?;
        let bytes = buffer.filled();
        let (head, body) = bytes.split_at(io.head.find(bytes));
        cursor.put_slice(head);
        io.kept = Bytes::copy_from_slice(body);
        Poll::Ready(Ok(()))
    }
}

impl Write for HeadIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.has_written = true;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // Hyper flushes when it has written all that it has.
        if self.has_written && self.exchange.has_body.load(Relaxed) {
            self.exchange.is_sent.store(true, Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of heads in `text`, in pieces of any size.
    fn heads(text: &str) -> usize {
        let found = |size: usize| {
            let mut head = HeadEnd::new();
            let mut length = 0;
            for piece in text.as_bytes().chunks(size) {
                length += head.find(piece);
            }
            length
        };
        let whole = found(text.len());
        (1..text.len()).for_each(|size| assert_eq!(found(size), whole, "{size} bytes of {text:?}"));
        whole
    }

    #[test]
    fn the_body_begins_behind_the_last_head() {
        for (head, body) in [
            ("HTTP/1.1 200 OK\r\na: b\r\n\r\n", "5\r\nhello"),
            ("HTTP/1.1 200 OK\r\n\r\n", "\r\n\r\n"),
            ("HTTP/1.1 200 OK\na: b\n\n", "a\n\n"),
            ("\r\n\nHTTP/1.1 200 OK\r\n\r\n", "a"),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\na: b\r\n\r\nHTTP/1.1 200\r\n\r\n",
                "a\r\n\r\n",
            ),
            ("HTTP/1.1 101 Switching\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"),
            ("HTTP/1.1\r\nx: 1\r\n\r\n", "a"),
            ("HTTP/1.1 200 OK\r\na: b", ""),
        ] {
            assert_eq!(heads(&format!("{head}{body}")), head.len(), "{head:?}");
        }
    }
}
