//! A body in the chunked transfer coding, read from its connection without hyper.
//!
//! Hyper is polled four times for each event of a stream, and hands its body over by a channel that wakes the task that is
//! running. Here one poll reads the socket, and all chunks of one read are one piece.

use std::{
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::{io::AsyncReadExt, net::TcpStream};

/// The buffer of a body that waits: a few events.
const SMALL: usize = 2 << 10;

/// The largest buffer: a few hundred events of a fast stream, so that one append contains many.
const LARGE: usize = 64 << 10;

/// The most bytes of extensions, and of trailers, of one body: those of hyper.
const MAX_EXTRA: usize = 16 << 10;

/// A body that is read when it is polled. Its connection is closed when it is dropped.
#[derive(Debug)]
pub(super) struct ChunkedBody {
    stream: TcpStream,
    /// Bytes that were read with the head.
    ahead: Bytes,
    buffer: Vec<u8>,
    chunks: Chunks,
    /// The error after the bytes that were returned last.
    problem: Option<io::Error>,
}

impl ChunkedBody {
    pub(super) fn new(stream: TcpStream, ahead: Bytes) -> Self {
        Self { stream, ahead, buffer: Vec::new(), chunks: Chunks::new(), problem: None }
    }

    /// Reads bytes of the connection to the buffer, which is empty at its end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let last = self.buffer.len();
        self.buffer.clear();
        if last == self.buffer.capacity() {
            self.buffer.reserve_exact((2 * self.buffer.capacity()).clamp(SMALL, LARGE));
        }
        let read = pin!(self.stream.read_buf(&mut self.buffer)).poll(cx);
        // A fast stream keeps its large buffer.
        if read.is_pending() && last <= SMALL && self.buffer.capacity() > SMALL {
            self.buffer = Vec::with_capacity(SMALL);
        }
        read.map_ok(|_| ())
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        while !self.chunks.is_ended() {
            let ahead = std::mem::take(&mut self.ahead);
            let mut data = Data::Nothing;
            let decoded = if ahead.is_empty() {
                ready!(self.poll_read(cx))?;
                if self.buffer.is_empty() {
                    let kind = io::ErrorKind::UnexpectedEof;
                    return Poll::Ready(Err(io::Error::new(kind, "it was closed within the answer")));
                }
                self.chunks.decode(&self.buffer, &mut data)
            } else {
                self.chunks.decode(&ahead, &mut data)
            };
            let data = data.into_bytes();
            match decoded {
                Ok(()) if data.is_empty() => {}
                Err(problem) if data.is_empty() => return Poll::Ready(Err(problem)),
                decoded => {
                    self.problem = decoded.err();
                    return Poll::Ready(Ok(data));
                }
            }
        }
        Poll::Ready(Ok(Bytes::new()))
    }
}

impl Body for ChunkedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(problem) = self.problem.take() {
            self.chunks.state = State::End;
            return Poll::Ready(Some(Err(problem)));
        }
        let bytes = ready!(self.poll_bytes(cx));
        Poll::Ready(match bytes {
            Ok(bytes) if bytes.is_empty() => None,
            Ok(bytes) => Some(Ok(Frame::data(bytes))),
            Err(problem) => {
                self.chunks.state = State::End;
                Some(Err(problem))
            }
        })
    }
}

/// The content of the chunks of one read.
enum Data<'b> {
    Nothing,
    One(&'b [u8]),
    Several(Vec<u8>),
}

impl<'b> Data<'b> {
    /// Adds a part; all parts together have at most `most` bytes.
    fn add(&mut self, part: &'b [u8], most: usize) {
        match self {
            Self::Nothing => *self = Self::One(part),
            Self::One(first) => {
                let mut all = Vec::with_capacity(most);
                all.extend_from_slice(first);
                all.extend_from_slice(part);
                *self = Self::Several(all);
            }
            Self::Several(all) => all.extend_from_slice(part),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(part) => Bytes::copy_from_slice(part),
            Self::Several(all) => all.into(),
        }
    }
}

/// The decoder of the chunked transfer coding.
#[derive(Debug)]
struct Chunks {
    state: State,
    /// The bytes of the chunk that are still to come.
    left: u64,
    /// The bytes of extensions and trailers so far.
    extra: usize,
}

/// The part of the coding that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SizeStart,
    Size,
    /// White space behind the size.
    Padding,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer, or of the last line.
    LastLine,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

impl Chunks {
    fn new() -> Self {
        Self { state: State::SizeStart, left: 0, extra: 0 }
    }

    fn is_ended(&self) -> bool {
        self.state == State::End
    }

    /// Decodes bytes, and adds the data of chunks to `data`.
    fn decode<'b>(&mut self, bytes: &'b [u8], data: &mut Data<'b>) -> io::Result<()> {
        let mut rest = bytes;
        while self.state != State::End {
            if self.state == State::Data {
                let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                let (part, behind) = rest.split_at(length);
                if !part.is_empty() {
                    data.add(part, bytes.len());
                }
                self.left -= length as u64;
                rest = behind;
                if self.left > 0 {
                    return Ok(());
                }
                self.state = State::DataCr;
            }
            let Some((byte, behind)) = rest.split_first() else { return Ok(()) };
            rest = behind;
            self.state = self.step(*byte)?;
        }
        Ok(())
    }

    /// The state behind a byte that is no data.
    fn step(&mut self, byte: u8) -> io::Result<State> {
        Ok(match (self.state, byte) {
            (State::SizeStart | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                let size = self.left.checked_mul(16).and_then(|size| size.checked_add(u64::from(digit)));
                self.left = size.ok_or_else(|| malformed("invalid chunk size: overflow"))?;
                State::Size
            }
            (State::SizeStart, _) => return Err(malformed("Invalid chunk size line: missing size digit")),
            (State::Size | State::Padding, b'\t' | b' ') => State::Padding,
            (State::Size | State::Padding, b';') => State::Extension,
            (State::Size | State::Padding | State::Extension, b'\r') => State::SizeLf,
            (State::Size, _) => return Err(malformed("Invalid chunk size line: Invalid Size")),
            (State::Padding, _) => return Err(malformed("Invalid chunk size linear white space")),
            (State::Extension, b'\n') => return Err(malformed("invalid chunk extension contains newline")),
            (State::Extension, _) => self.count(State::Extension)?,
            (State::SizeLf, b'\n') if self.left > 0 => State::Data,
            (State::SizeLf, b'\n') => State::LastLine,
            (State::SizeLf, _) => return Err(malformed("Invalid chunk size LF")),
            (State::Data | State::DataCr, b'\r') => State::DataLf,
            (State::Data | State::DataCr, _) => return Err(malformed("Invalid chunk body CR")),
            (State::DataLf, b'\n') => State::SizeStart,
            (State::DataLf, _) => return Err(malformed("Invalid chunk body LF")),
            (State::LastLine, b'\r') => State::EndLf,
            (State::Trailer, b'\r') => State::TrailerLf,
            (State::LastLine | State::Trailer, _) => self.count(State::Trailer)?,
            (State::TrailerLf, b'\n') => State::LastLine,
            (State::TrailerLf, _) => return Err(malformed("Invalid trailer end LF")),
            (State::EndLf, b'\n') | (State::End, _) => State::End,
            (State::EndLf, _) => return Err(malformed("Invalid chunk end LF")),
        })
    }

    fn count(&mut self, state: State) -> io::Result<State> {
        self.extra += 1;
        if self.extra < MAX_EXTRA {
            Ok(state)
        } else {
            Err(malformed("chunk extensions or trailers over limit"))
        }
    }
}

fn malformed(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `text` in pieces of any size: the data and whether it has ended.
    fn decoded(text: &str) -> Result<(String, bool), String> {
        let decode = |size: usize| {
            let (mut chunks, mut all) = (Chunks::new(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                let mut data = Data::Nothing;
                let decoded = chunks.decode(piece, &mut data);
                all.extend_from_slice(&data.into_bytes());
                decoded.map_err(|error| error.to_string())?;
            }
            Ok((String::from_utf8(all).expect("text"), chunks.is_ended()))
        };
        let whole = decode(text.len().max(1));
        (1..text.len()).for_each(|size| assert_eq!(decode(size), whole, "{size} bytes of {text:?}"));
        whole
    }

    #[test]
    fn chunks_are_joined() {
        for (text, data, is_ended) in [
            ("", "", false),
            ("1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc", true),
            ("A\r\n0123456789\r\n0a\r\n0123456789\r\n", "01234567890123456789", false),
            ("3 \t;x=\"y\"\r\na\r\n\r\n00;z\r\n\r\nmore", "a\r\n", true),
            ("1\r\na\r\n0\r\nx: y\r\nz:\r\n\r\n", "a", true),
            ("3\r\nab", "ab", false),
            ("0\r\n", "", false),
        ] {
            assert_eq!(decoded(text), Ok((data.to_owned(), is_ended)), "{text:?}");
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        let long = format!("1;{}\r\na", "x".repeat(MAX_EXTRA));
        let trailer = format!("0\r\nx: {}\r\n\r\n", "x".repeat(MAX_EXTRA));
        for text in [
            "\r\n",
            "g\r\n",
            "-1\r\na",
            "1\n",
            "1 1\r\n",
            "1;x\ny\r\na",
            "1\ra",
            "1\r\nab\r\n",
            "1\r\na\ra",
            "1\r\na\n",
            "0\r\nx\ry",
            "0\r\n\ra",
            "10000000000000000\r\na",
        ] {
            assert!(decoded(text).is_err(), "{text:?}");
        }
        for text in [long, trailer] {
            let mut data = Data::Nothing;
            assert!(Chunks::new().decode(text.as_bytes(), &mut data).is_err());
        }
    }
}
