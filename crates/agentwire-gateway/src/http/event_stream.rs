//! A stream of events on an HTTP/1.1 connection, written without hyper.
//!
//! Hyper keeps two buffers of 8 KiB for each connection and walks through its whole state machine for each event. A
//! stream needs neither: its request is read to the end, and from then on the connection is a series of chunks. So hyper
//! reads the request, the connection is taken from it when the response is known ([`Handover`]), and [`EventStream`]
//! writes the head and the chunks. Afterwards hyper serves the next request of the same connection. Responses that are
//! no streams, and requests with anything unusual, stay with hyper.

use std::{
    io,
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::SystemTime,
};

use axum::{body::Body, response::Response};
use bytes::{Bytes, BytesMut};
use hyper::{
    Method, Request, StatusCode, Version,
    body::Body as _,
    header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HeaderMap, TRANSFER_ENCODING, UPGRADE},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::outgoing::PIECE;

/// The first bytes of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that are read before the protocol is known: most heads as a whole, which hyper then parses at once.
const START: usize = 2 << 10;

/// Bytes that a client may send behind its request before the response ends; more wait in the system.
const AHEAD: usize = 512;

/// The size up to which the buffer of a stream is kept for the next event.
const KEPT: usize = 512;

/// The most pieces that are written before other tasks have their turn.
const TURN: usize = 16;

/// Marks a response whose body is a stream of events; an extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveEvents;

/// The first bytes of a connection.
pub(super) struct Start {
    pub(super) bytes: Bytes,
    pub(super) is_http2: bool,
}

impl Start {
    /// Reads until the protocol is known.
    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = BytesMut::with_capacity(START);
        loop {
            let count = stream.read_buf(&mut bytes).await?;
            let length = bytes.len().min(HTTP2_PREFACE.len());
            let may_be_http2 = bytes[..length] == HTTP2_PREFACE[..length];
            if count == 0 || !may_be_http2 || length == HTTP2_PREFACE.len() {
                let is_http2 = may_be_http2 && length == HTTP2_PREFACE.len();
                return Ok(Self { bytes: bytes.freeze(), is_http2 });
            }
        }
    }
}

/// The place where a request leaves the response that is written without hyper.
#[derive(Default)]
pub(super) struct Handover(Mutex<Option<StreamResponse>>);

impl Handover {
    fn response(&self) -> MutexGuard<'_, Option<StreamResponse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, response: StreamResponse) {
        *self.response() = Some(response);
    }

    pub(super) fn is_there(&self) -> bool {
        self.response().is_some()
    }

    pub(super) fn take(&self) -> Option<StreamResponse> {
        self.response().take()
    }
}

/// The part of a request that decides whether its response can be written without hyper.
#[derive(Clone, Copy)]
pub(super) struct Eligible {
    /// False if the client wants the connection closed.
    keeps_alive: bool,
}

impl Eligible {
    /// `None` for a request whose response hyper has to write.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        let headers = request.headers();
        let is_usual = request.version() == Version::HTTP_11
            && matches!(*request.method(), Method::GET | Method::POST)
            && ![EXPECT, TRANSFER_ENCODING, UPGRADE].iter().any(|name| headers.contains_key(name));
        is_usual.then_some(())?;
        let mut keeps_alive = true;
        for value in headers.get_all(CONNECTION) {
            for token in value.to_str().ok()?.split(',').map(str::trim) {
                if token.eq_ignore_ascii_case("close") {
                    keeps_alive = false;
                } else if !token.is_empty() && !token.eq_ignore_ascii_case("keep-alive") {
                    return None;
                }
            }
        }
        Some(Self { keeps_alive })
    }

    /// The response in the form in which it is written. It must be a stream of events.
    pub(super) fn stream(self, response: Response) -> StreamResponse {
        let head = head(response.headers(), self.keeps_alive);
        StreamResponse { head, body: response.into_body(), keeps_alive: self.keeps_alive }
    }
}

/// True if a response is a stream of events, and its head leaves the transfer to the server.
pub(super) fn is_event_stream(response: &Response) -> bool {
    let headers = response.headers();
    response.extensions().get::<LiveEvents>().is_some()
        && response.status() == StatusCode::OK
        && ![CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].iter().any(|name| headers.contains_key(name))
}

/// The head of a response with a chunked body.
fn head(headers: &HeaderMap, keeps_alive: bool) -> Vec<u8> {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    if !headers.contains_key(DATE) {
        let date = httpdate::fmt_http_date(SystemTime::now());
        head.extend_from_slice(format!("date: {date}\r\n").as_bytes());
    }
    if !keeps_alive {
        head.extend_from_slice(b"connection: close\r\n");
    }
    head.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    head
}

/// A response that is written without hyper.
pub(super) struct StreamResponse {
    head: Vec<u8>,
    body: Body,
    keeps_alive: bool,
}

/// A stream of events on its connection.
pub(super) struct EventStream<S> {
    stream: S,
    body: Body,
    /// Bytes of the body that are not in `unsent` yet.
    rest: Bytes,
    /// Bytes that the system has not taken as a whole.
    unsent: Vec<u8>,
    sent: usize,
    /// Bytes that the client sent behind its request.
    ahead: Bytes,
    keeps_alive: bool,
    /// True if the last chunk is in `unsent`.
    is_last: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> EventStream<S> {
    /// `ahead` are the bytes that were read behind the request.
    pub(super) fn new(stream: S, ahead: Bytes, response: StreamResponse) -> Self {
        let StreamResponse { head, body, keeps_alive } = response;
        // An empty part of hyper's buffer would keep all of it.
        let ahead = if ahead.is_empty() { Bytes::new() } else { ahead };
        Self { stream, body, rest: Bytes::new(), unsent: head, sent: 0, ahead, keeps_alive, is_last: false }
    }

    /// The connection, the bytes that the client has sent for its next request, and whether it may send one.
    pub(super) fn into_parts(self) -> (S, Bytes, bool) {
        (self.stream, self.ahead, self.keeps_alive)
    }

    /// Writes until the stream has ended.
    ///
    /// # Errors
    /// When the client has gone or the body failed. The connection must then be closed as it is, so that the client does
    /// not see a regular end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.read_ahead(cx)?;
        for _ in 0..TURN {
            while self.sent < self.unsent.len() {
                match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent[self.sent..]))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => self.sent += count,
                }
            }
            if self.sent > 0 {
                ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
                self.sent = 0;
                // Idle readers keep no memory.
                if self.unsent.capacity() > KEPT { self.unsent = Vec::new() } else { self.unsent.clear() }
            }
            if self.is_last {
                return Poll::Ready(Ok(()));
            }
            if self.rest.is_empty() {
                match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => self.rest = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                    None => {
                        self.unsent.extend_from_slice(b"0\r\n\r\n");
                        self.is_last = true;
                    }
                }
            }
            if !self.rest.is_empty() {
                let piece = self.rest.split_to(self.rest.len().min(PIECE));
                self.unsent.reserve(piece.len() + 10);
                push_size(&mut self.unsent, piece.len());
                self.unsent.extend_from_slice(&piece);
                self.unsent.extend_from_slice(b"\r\n");
                if self.rest.is_empty() {
                    self.rest = Bytes::new();
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Finds out whether the client has gone, unless it has sent something that waits for the end of the response.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.ahead.is_empty() {
            return Ok(());
        }
        let mut space = [0; AHEAD];
        let mut buffer = ReadBuf::new(&mut space);
        match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(())) => {
                self.ahead = Bytes::copy_from_slice(buffer.filled());
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(()),
        }
    }
}

/// Appends the line with the size of a chunk. Once per event, so without the formatter.
fn push_size(out: &mut Vec<u8>, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|place| b"0123456789abcdef"[(size >> (4 * place)) & 15]));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use axum::response::IntoResponse;
    use futures_util::{StreamExt, stream};
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// The stream of a body, and the client at the other end of its connection.
    fn events(body: Body, ahead: &'static [u8]) -> (EventStream<DuplexStream>, DuplexStream) {
        let (client, server) = duplex(64 << 10);
        let mut response = body.into_response();
        response.extensions_mut().insert(LiveEvents);
        let request = Request::builder().body(()).expect("a request");
        assert!(is_event_stream(&response));
        let response = Eligible::of(&request).expect("a usual request").stream(response);
        (EventStream::new(server, Bytes::from_static(ahead), response), client)
    }

    async fn received(mut client: DuplexStream) -> String {
        let mut text = String::new();
        client.read_to_string(&mut text).await.expect("text");
        text.split_once("\r\n\r\n").expect("a head").1.to_owned()
    }

    fn chunks(parts: Vec<io::Result<&'static [u8]>>) -> Body {
        Body::from_stream(stream::iter(parts))
    }

    #[tokio::test]
    async fn a_whole_stream_ends_with_an_empty_chunk() {
        let (mut events, client) = events(chunks(vec![Ok(b"data: 1\n\n"), Ok(b""), Ok(b"data: 2\n\n")]), b"");
        poll_fn(|cx| events.poll(cx)).await.expect("the end");
        let (stream, ahead, keeps_alive) = events.into_parts();
        assert!(ahead.is_empty() && keeps_alive);
        drop(stream);
        assert_eq!(received(client).await, "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
    }

    #[tokio::test]
    async fn a_failed_stream_has_no_regular_end() {
        let (mut events, client) =
            events(chunks(vec![Ok(b"data: 1\n\n"), Err(io::ErrorKind::Other.into())]), b"");
        poll_fn(|cx| events.poll(cx)).await.expect_err("the error of the body");
        drop(events);
        assert_eq!(received(client).await, "9\r\ndata: 1\n\n\r\n");
    }

    #[tokio::test]
    async fn long_frames_are_written_in_pieces() {
        let long: &[u8] = Box::leak(vec![b'x'; PIECE + 1].into_boxed_slice());
        let (mut events, client) = events(chunks(vec![Ok(long)]), b"");
        poll_fn(|cx| events.poll(cx)).await.expect("the end");
        drop(events);
        let text = received(client).await;
        assert!(
            text.starts_with("2000\r\nx") && text.ends_with("x\r\n1\r\nx\r\n0\r\n\r\n"),
            "{}",
            text.len()
        );
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_an_idle_stream() {
        let idle = stream::iter([Ok::<_, io::Error>(&b"data: 1\n\n"[..])]).chain(stream::pending());
        let (mut events, client) = events(Body::from_stream(idle), b"");
        assert!(futures_util::poll!(poll_fn(|cx| events.poll(cx))).is_pending());
        assert!(events.unsent.capacity() <= KEPT, "an idle stream keeps no buffer");
        drop(client);
        let gone = poll_fn(|cx| events.poll(cx)).await.expect_err("nobody is there");
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn bytes_behind_the_request_wait_for_the_end() {
        let (mut events, mut client) = events(chunks(vec![Ok(b"1")]), b"GET ");
        client.write_all(b"/next").await.expect("sent");
        poll_fn(|cx| events.poll(cx)).await.expect("the end");
        assert_eq!(events.into_parts().1, "GET ", "the rest is still in the connection");
    }

    #[test]
    fn sizes_are_hexadecimal() {
        for size in [0, 1, 9, 15, 16, 255, 256, 4095, PIECE, usize::MAX] {
            let mut line = Vec::new();
            push_size(&mut line, size);
            assert_eq!(line, format!("{size:x}\r\n").into_bytes());
        }
    }

    #[test]
    fn unusual_requests_stay_with_hyper() {
        let of = |request: hyper::http::request::Builder| Eligible::of(&request.body(()).expect("a request"));
        assert!(of(Request::builder()).is_some_and(|eligible| eligible.keeps_alive));
        let closes = Request::builder().header("connection", "keep-alive, Close");
        assert!(of(closes).is_some_and(|eligible| !eligible.keeps_alive));
        for request in [
            Request::builder().version(Version::HTTP_10),
            Request::builder().method("HEAD"),
            Request::builder().header("expect", "100-continue"),
            Request::builder().header("connection", "upgrade"),
            Request::builder().header("upgrade", "h2c"),
            Request::builder().header("transfer-encoding", "chunked"),
        ] {
            assert!(of(request).is_none());
        }
    }

    #[tokio::test]
    async fn the_first_bytes_tell_the_protocol() {
        for (sent, is_http2) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], false),
            (b"PRI * HTTP/1.1\r\n\r\n", false),
            (b"P", false),
            (b"", false),
            (HTTP2_PREFACE, true),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", true),
        ] {
            let (mut client, mut server) = duplex(1);
            // Byte by byte; the rest is sent to nobody.
            tokio::spawn(async move { client.write_all(sent).await });
            let start = Start::read(&mut server).await.expect("some bytes");
            assert_eq!(start.is_http2, is_http2, "{sent:?}");
            assert!(sent.starts_with(&start.bytes), "{sent:?}");
        }
    }
}
