//! The body of a response, read from its socket.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use hyper::body::Frame;
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
};

/// The number of bytes read at once: a few hundred events of a fast stream, so that one append contains many. The buffer
/// is on the stack, so that an idle stream holds no memory.
const READ_SIZE: usize = 64 << 10;

/// The longest line of a chunk size, and the largest trailer: the limits of hyper.
const MAX_LINE: usize = 16 << 10;

/// The body of a response.
pub(super) struct DirectBody {
    stream: TcpStream,
    decoder: BodyDecoder,
    /// Decoded bytes.
    plain: BytesMut,
    problem: Option<io::Error>,
}

impl DirectBody {
    /// A body that starts with `start` and continues in `stream`.
    pub(super) fn new(stream: TcpStream, mut decoder: BodyDecoder, start: &[u8]) -> Self {
        let mut plain = BytesMut::new();
        let problem = decoder.push(start, &mut plain).err();
        Self { stream, decoder, plain, problem }
    }
}

impl hyper::body::Body for DirectBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let body = &mut *self;
        loop {
            if !body.plain.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(body.plain.split().freeze()))));
            }
            if let Some(problem) = body.problem.take() {
                body.decoder = BodyDecoder::default();
                return Poll::Ready(Some(Err(problem)));
            }
            if body.decoder.is_done() {
                return Poll::Ready(None);
            }
            let mut room = [MaybeUninit::uninit(); READ_SIZE];
            let mut read = ReadBuf::uninit(&mut room);
            let result = ready!(Pin::new(&mut body.stream).poll_read(cx, &mut read));
            body.problem = match result {
                Err(error) => Some(error),
                Ok(()) if read.filled().is_empty() => body.decoder.close().err(),
                Ok(()) => body.decoder.push(read.filled(), &mut body.plain).err(),
            };
        }
    }
}

/// Decodes the transfer coding of a body. Does no I/O; any split of the bytes gives the same body.
#[derive(Debug, Default)]
pub(super) struct BodyDecoder(Next);

/// The next part of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Nothing,
    /// Bytes until the connection is closed.
    Anything,
    /// The given number of bytes.
    Length(u64),
    /// The size of a chunk, and the number of its digits so far.
    Size {
        size: u64,
        digits: u8,
    },
    /// The extension after the size, and its length so far.
    Extension {
        size: u64,
        length: usize,
    },
    SizeEnd {
        size: u64,
    },
    Chunk(u64),
    ChunkEnd,
    ChunkLineEnd,
    /// The trailer: its length so far, and that of its current line.
    Trailer {
        length: usize,
        line: usize,
    },
    TrailerEnd {
        length: usize,
        line: usize,
    },
}

impl BodyDecoder {
    pub(super) fn chunked() -> Self {
        Self(Next::Size { size: 0, digits: 0 })
    }

    pub(super) fn of_length(length: u64) -> Self {
        Self(if length == 0 { Next::Nothing } else { Next::Length(length) })
    }

    pub(super) fn until_closed() -> Self {
        Self(Next::Anything)
    }

    pub(super) fn is_done(&self) -> bool {
        self.0 == Next::Nothing
    }

    /// Handles the close of the connection.
    fn close(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.0) {
            Next::Nothing | Next::Anything => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed within the answer")),
        }
    }

    /// Decodes bytes into `plain`, also those before an error.
    fn push(&mut self, mut bytes: &[u8], plain: &mut BytesMut) -> io::Result<()> {
        while let Some((&byte, rest)) = bytes.split_first() {
            self.0 = match self.0 {
                // Bytes after the end are ignored.
                Next::Nothing => return Ok(()),
                Next::Anything => {
                    plain.extend_from_slice(bytes);
                    return Ok(());
                }
                Next::Length(left) | Next::Chunk(left) => {
                    let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    plain.extend_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    match (self.0, left - count as u64) {
                        (Next::Chunk(_), 0) => self.0 = Next::ChunkEnd,
                        (Next::Chunk(_), left) => self.0 = Next::Chunk(left),
                        (_, 0) => self.0 = Next::Nothing,
                        (_, left) => self.0 = Next::Length(left),
                    }
                    continue;
                }
                Next::Size { size, digits } => match (char::from(byte).to_digit(16), byte) {
                    (Some(_), _) if digits == 16 => {
                        return Err(wrong("the size of a chunk has over 16 digits"));
                    }
                    (Some(digit), _) => Next::Size { size: size << 4 | u64::from(digit), digits: digits + 1 },
                    (None, _) if digits == 0 => return Err(wrong("a chunk has no size")),
                    (None, b'\r') => Next::SizeEnd { size },
                    (None, b';' | b' ' | b'\t') => Next::Extension { size, length: 1 },
                    (None, _) => return Err(wrong("the size of a chunk is not a number")),
                },
                Next::Extension { size, .. } if byte == b'\r' => Next::SizeEnd { size },
                Next::Extension { length, .. } if length == MAX_LINE || byte == b'\n' => {
                    return Err(wrong("the line with the size of a chunk does not end"));
                }
                Next::Extension { size, length } => Next::Extension { size, length: length + 1 },
                Next::SizeEnd { .. } | Next::ChunkLineEnd | Next::TrailerEnd { .. } if byte != b'\n' => {
                    return Err(wrong("a line of a chunk does not end with CR LF"));
                }
                Next::SizeEnd { size: 0 } => Next::Trailer { length: 0, line: 0 },
                Next::SizeEnd { size } => Next::Chunk(size),
                Next::ChunkEnd if byte != b'\r' => return Err(wrong("a chunk is longer than it says")),
                Next::ChunkEnd => Next::ChunkLineEnd,
                Next::ChunkLineEnd => Next::Size { size: 0, digits: 0 },
                Next::Trailer { length: MAX_LINE, .. } => {
                    return Err(wrong("the fields at the end are too long"));
                }
                Next::Trailer { length, line } if byte == b'\r' => {
                    Next::TrailerEnd { length: length + 1, line }
                }
                Next::Trailer { length, line } => Next::Trailer { length: length + 1, line: line + 1 },
                Next::TrailerEnd { line: 0, .. } => Next::Nothing,
                Next::TrailerEnd { length, .. } => Next::Trailer { length, line: 0 },
            };
            bytes = rest;
        }
        Ok(())
    }
}

fn wrong(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body, and whether it is complete or an error; the same for any split of the bytes.
    fn decode(make: fn() -> BodyDecoder, bytes: &[u8]) -> (String, Result<bool, String>) {
        let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let (mut decoder, mut plain) = (make(), BytesMut::new());
            let mut result = Ok(());
            for piece in pieces {
                result = result.and_then(|()| decoder.push(piece, &mut plain));
            }
            let result = result.map(|()| decoder.is_done()).map_err(|error| error.to_string());
            (String::from_utf8_lossy(&plain).into_owned(), result)
        };
        let whole = read(&mut [bytes].into_iter());
        assert_eq!(read(&mut bytes.chunks(1)), whole, "byte by byte");
        for cut in 0..bytes.len() {
            let (start, rest) = bytes.split_at(cut);
            assert_eq!(read(&mut [start, rest].into_iter()), whole, "cut at {cut}");
        }
        whole
    }

    #[test]
    fn chunks_are_joined() {
        let done = |text: &str| (text.to_owned(), Ok(true));
        for (bytes, text) in [
            ("0\r\n\r\n", ""),
            ("3\r\nabc\r\n0\r\n\r\n", "abc"),
            ("3\r\nabc\r\n00A;x=\"y\" \r\n0123456789\r\n000\r\n\r\n", "abc0123456789"),
            ("1 \r\na\r\n0 ;a\r\nx-a: b\r\ny: z\r\n\r\n", "a"),
            ("2\r\n\r\n\r\n0\r\n\r\nbehind the end", "\r\n"),
        ] {
            assert_eq!(decode(BodyDecoder::chunked, bytes.as_bytes()), done(text), "{bytes:?}");
        }
    }

    #[test]
    fn malformed_chunks_are_errors_after_the_valid_ones() {
        for (bytes, text) in [
            ("x", ""),
            ("\r\n", ""),
            ("-1\r\n", ""),
            ("3\nabc\r\n", ""),
            ("3\r\nabcd\r\n", "abc"),
            ("3\r\nabc\rx", "abc"),
            ("3\r\nabc\r\n11111111111111111\r\n", "abc"),
            ("3\r\nabc\r\n0;a\n\r\n", "abc"),
        ] {
            let (body, result) = decode(BodyDecoder::chunked, bytes.as_bytes());
            assert!(body == text && result.is_err(), "{bytes:?}: {body:?} {result:?}");
        }
        for endless in [[b"1;".as_slice(), &[b'a'; 2 * MAX_LINE]], [b"0\r\n", &[b'a'; 2 * MAX_LINE]]] {
            let result = BodyDecoder::chunked().push(&endless.concat(), &mut BytesMut::new());
            assert!(result.is_err(), "{result:?}");
        }
    }

    #[test]
    fn a_body_ends_by_its_length_or_with_the_connection() {
        assert_eq!(decode(|| BodyDecoder::of_length(3), b"abcd"), ("abc".to_owned(), Ok(true)));
        assert_eq!(decode(|| BodyDecoder::of_length(5), b"abcd"), ("abcd".to_owned(), Ok(false)));
        assert_eq!(decode(|| BodyDecoder::of_length(0), b"abcd"), (String::new(), Ok(true)));
        assert_eq!(decode(BodyDecoder::until_closed, b"abcd"), ("abcd".to_owned(), Ok(false)));
        assert!(BodyDecoder::until_closed().close().is_ok());
        assert!(BodyDecoder::of_length(0).close().is_ok());
        assert!(BodyDecoder::of_length(1).close().is_err());
        assert!(BodyDecoder::chunked().close().is_err());
    }
}
