//! Length-prefixed binary frames.

use super::{Frame, FrameError, FrameProblem, Payload, buffer::Buffer};

/// The length, in big-endian order.
const HEAD: usize = 4;

/// Decodes frames of four bytes of big-endian length and that many bytes.
///
/// A length above the bound ends the stream: such bytes are most likely no length, and then the following bytes are no
/// frames. Memory is allocated for received bytes only, not for the length that a prefix claims.
///
/// ```
/// use agentwire_core::framing::{Payload, PrefixedDecoder};
/// let mut decoder = PrefixedDecoder::new(1024);
/// decoder.push(b"\0\0\0\x02hi");
/// assert_eq!(decoder.next_frame().unwrap().unwrap().data, Payload::Bytes(b"hi"));
/// ```
#[derive(Debug)]
pub struct PrefixedDecoder {
    buffer: Buffer,
    /// The number of frames so far.
    index: u64,
}

impl PrefixedDecoder {
    /// A decoder whose frames are at most `max_frame` bytes long.
    #[must_use]
    pub fn new(max_frame: usize) -> Self {
        Self { buffer: Buffer::new(max_frame), index: 0 }
    }

    /// Adds bytes. Take all frames with [`next_frame`](Self::next_frame) before adding more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Marks the end of the bytes.
    pub fn finish(&mut self) {
        self.buffer.finish();
    }

    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
        let (index, offset) = (self.index, self.buffer.offset());
        let limit = self.buffer.max_frame();
        let rest = self.buffer.rest();
        let length = rest.first_chunk::<HEAD>().map(|head| u32::from_be_bytes(*head));
        let problem = match length.map(|length| usize::try_from(length).unwrap_or(usize::MAX)) {
            Some(length) if length > limit => FrameProblem::TooLarge { limit },
            Some(length) if rest.len() - HEAD >= length => {
                self.index += 1;
                self.buffer.advance(HEAD);
                let range = self.buffer.advance(length);
                let data = Payload::Bytes(self.buffer.get(range));
                return Some(Ok(Frame { index, offset, event: None, id: None, data }));
            }
            _ if self.buffer.is_finished() && !rest.is_empty() => FrameProblem::Truncated,
            _ => {
                self.buffer.mark_drained();
                return None;
            }
        };
        self.buffer.close();
        Some(Err(FrameError { index, offset, problem }))
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Always 0: the payload is binary.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
