//! Binary frames, each behind its length.

use super::{Frame, FrameError, FrameProblem, Payload, buffer::Buffer};

/// The length, in big-endian order.
const HEAD: usize = 4;

/// Decodes frames of four bytes of big-endian length and that many bytes.
///
/// A length above the bound ends the stream: such a length is most likely not one, and then neither is
/// anything that follows. What a head claims is never allocated before it has come in.
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
    /// How many frames there were.
    index: u64,
}

impl PrefixedDecoder {
    /// A decoder whose frames are at most `max_frame` bytes long.
    #[must_use]
    pub fn new(max_frame: usize) -> Self {
        Self { buffer: Buffer::new(max_frame), index: 0 }
    }

    /// Takes in bytes. Call [`next_frame`](Self::next_frame) until it is empty before pushing more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Says that no more bytes will come.
    pub fn finish(&mut self) {
        self.buffer.finish();
    }

    /// The next whole frame, if the bytes so far hold one.
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
