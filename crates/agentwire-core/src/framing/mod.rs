//! Framings: the delimiting of events in bytes.
//!
//! A decoder takes bytes and returns [`Frame`]s. It does no I/O, and any split of the bytes gives the same frames. Each
//! decoder buffers at most one frame, of bounded size. [`Frames`] is the encoder.

mod array;
mod buffer;
mod detect;
mod encode;
mod foreign;
mod lines;
mod prefixed;
mod sse;

pub use self::{
    array::ArrayDecoder,
    detect::detect,
    encode::Frames,
    foreign::{Foreign, recognize},
    lines::LineDecoder,
    prefixed::PrefixedDecoder,
    sse::SseDecoder,
};

/// A way to delimit events in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framing {
    /// Server-sent events (the HTML standard).
    Sse,
    /// One JSON value per line.
    Lines,
    /// One JSON array whose elements are the events.
    Array,
    /// Four bytes of big-endian length, then that many bytes.
    Prefixed,
    /// `code:json` per line (AI SDK 4).
    Coded,
    /// Text without any framing.
    Text,
}

impl Framing {
    /// Its name for a person.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sse => "SSE",
            Self::Lines => "JSON lines",
            Self::Array => "JSON array",
            Self::Prefixed => "length-prefixed binary",
            Self::Coded => "code:json lines",
            Self::Text => "plain text",
        }
    }
}

/// One unit of a framing, borrowed from its decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Counts the frames of the stream from 0.
    pub index: u64,
    /// The byte offset of the frame in the stream.
    pub offset: u64,
    /// SSE: the `event` field, unless it is empty. Coded lines: the code.
    pub event: Option<&'a str>,
    /// SSE: the last `id` field seen so far.
    pub id: Option<&'a str>,
    /// The payload.
    pub data: Payload<'a>,
}

/// The payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Valid text: bytes that were not UTF-8 have been replaced by U+FFFD and counted.
    Text(&'a str),
    /// Binary.
    Bytes(&'a [u8]),
}

/// A frame that could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame {index} at byte {offset} {problem}")]
pub struct FrameError {
    /// The index of the frame, from 0.
    pub index: u64,
    /// The byte offset of the frame in the stream.
    pub offset: u64,
    /// The kind of problem.
    pub problem: FrameProblem,
}

/// The kinds of problems of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameProblem {
    /// It is larger than the decoder's bound. Text decoders skip it and continue with the next frame; the
    /// length-prefixed one cannot trust the following bytes and stops.
    #[error("is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
    /// The stream ended inside it.
    #[error("is cut off at the end of the stream")]
    Truncated,
    /// The bytes between frames are malformed.
    #[error("does not begin where a frame must begin")]
    Malformed,
}

/// The default bound on a frame, which is that of the official AG-UI client.
pub const DEFAULT_MAX_FRAME: usize = 10 * 1024 * 1024;

/// A decoder of any framing.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names are those of `Framing`")]
pub enum Decoder {
    Sse(SseDecoder),
    Lines(LineDecoder),
    Array(ArrayDecoder),
    Prefixed(PrefixedDecoder),
}

impl Decoder {
    /// A decoder whose frames are at most `max_frame` bytes long.
    #[must_use]
    pub fn new(framing: Framing, max_frame: usize) -> Self {
        match framing {
            Framing::Sse => Self::Sse(SseDecoder::new(max_frame)),
            Framing::Lines => Self::Lines(LineDecoder::new(max_frame)),
            Framing::Coded => Self::Lines(LineDecoder::coded(max_frame)),
            Framing::Text => Self::Lines(LineDecoder::unframed(max_frame)),
            Framing::Array => Self::Array(ArrayDecoder::new(max_frame)),
            Framing::Prefixed => Self::Prefixed(PrefixedDecoder::new(max_frame)),
        }
    }

    /// Adds bytes. Take all frames with [`Decoder::next_frame`] before adding more.
    pub fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Sse(decoder) => decoder.push(bytes),
            Self::Lines(decoder) => decoder.push(bytes),
            Self::Array(decoder) => decoder.push(bytes),
            Self::Prefixed(decoder) => decoder.push(bytes),
        }
    }

    /// Marks the end of the bytes, so that a last frame without its delimiter is returned.
    pub fn finish(&mut self) {
        match self {
            Self::Sse(decoder) => decoder.finish(),
            Self::Lines(decoder) => decoder.finish(),
            Self::Array(decoder) => decoder.finish(),
            Self::Prefixed(decoder) => decoder.finish(),
        }
    }

    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
        match self {
            Self::Sse(decoder) => decoder.next_frame(),
            Self::Lines(decoder) => decoder.next_frame(),
            Self::Array(decoder) => decoder.next_frame(),
            Self::Prefixed(decoder) => decoder.next_frame(),
        }
    }

    /// The number of bytes that were not UTF-8 and have been replaced.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        match self {
            Self::Sse(decoder) => decoder.replaced(),
            Self::Lines(decoder) => decoder.replaced(),
            Self::Array(decoder) => decoder.replaced(),
            Self::Prefixed(_) => 0,
        }
    }
}

impl<'a> Frame<'a> {
    /// The payload as text; empty for a binary frame.
    #[must_use]
    pub fn text(&self) -> &'a str {
        match self.data {
            Payload::Text(text) => text,
            Payload::Bytes(_) => "",
        }
    }
}

#[cfg(test)]
mod tests;
