//! Line framings: JSON lines, `code:json` lines, and text without frames.
//!
//! Lines end in LF or CRLF. A lone CR is white space to JSON, so it must not end a line.

use std::ops::Range;

use memchr::memchr;

use super::{
    Frame, FrameError, FrameProblem, Payload,
    buffer::{Buffer, Lossy, is_blank},
};

/// Decodes lines, or text that has no frames.
///
/// A frame is a line that is not blank, without its line end.
///
/// ```
/// use agentwire_core::framing::LineDecoder;
/// let mut decoder = LineDecoder::coded(1024);
/// decoder.push(b"0:\"Hel\"\n0:\"lo");
/// let frame = decoder.next_frame().unwrap().unwrap();
/// assert_eq!((frame.event, frame.text()), (Some("0"), "\"Hel\""));
/// assert!(decoder.next_frame().is_none());
/// ```
#[derive(Debug)]
pub struct LineDecoder {
    buffer: Buffer,
    lossy: Lossy,
    mode: Mode,
    /// The number of frames so far.
    index: u64,
    /// The length of the unfinished line that has been searched for a line end.
    scanned: usize,
    /// The unfinished line is too large and was reported.
    skipping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Json,
    Coded,
    Text,
}

impl LineDecoder {
    /// JSON lines of at most `max_frame` bytes.
    #[must_use]
    pub fn new(max_frame: usize) -> Self {
        Self::in_mode(Mode::Json, max_frame)
    }

    /// `code:json` lines of at most `max_frame` bytes. The frame's event is the text before the first
    /// colon; a line without a colon has none.
    #[must_use]
    pub fn coded(max_frame: usize) -> Self {
        Self::in_mode(Mode::Coded, max_frame)
    }

    /// Text without framing: added bytes are returned at once, except for an incomplete character. Nothing is too large;
    /// more than `max_frame` bytes are returned in pieces.
    #[must_use]
    pub fn unframed(max_frame: usize) -> Self {
        Self::in_mode(Mode::Text, max_frame)
    }

    fn in_mode(mode: Mode, max_frame: usize) -> Self {
        Self {
            buffer: Buffer::new(max_frame),
            lossy: Lossy::default(),
            mode,
            index: 0,
            scanned: 0,
            skipping: false,
        }
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
        let step = match self.mode {
            _ if !self.buffer.skip_byte_order_mark() => None,
            Mode::Text => self.step_text().map(Ok),
            Mode::Json | Mode::Coded => self.step_line(),
        };
        let Some(step) = step else {
            self.buffer.mark_drained();
            return None;
        };
        let index = self.index;
        self.index += 1;
        let (offset, range) = match step {
            Ok(found) => found,
            Err(offset) => {
                let problem = FrameProblem::TooLarge { limit: self.buffer.max_frame() };
                return Some(Err(FrameError { index, offset, problem }));
            }
        };
        let text = self.lossy.text(self.buffer.get(range));
        let coded = if self.mode == Mode::Coded { text.split_once(':') } else { None };
        let (event, text) = coded.map_or((None, text), |(code, rest)| (Some(code), rest));
        Some(Ok(Frame { index, offset, event, id: None, data: Payload::Text(text) }))
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// The number of bytes that were not UTF-8 and have been replaced.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.lossy.replaced()
    }

    /// The next line that is not blank: its offset in the stream and, unless it is too large, its range in the buffer.
    fn step_line(&mut self) -> Option<Result<(u64, Range<usize>), u64>> {
        loop {
            let rest = self.buffer.rest();
            let (length, ended) = match memchr(b'\n', &rest[self.scanned..]) {
                Some(at) => (self.scanned + at, true),
                None if self.buffer.is_finished() && !rest.is_empty() => (rest.len(), false),
                None => return self.hold().map(Err),
            };
            let line = without_return(&rest[..length]);
            let length_of_text = line.len();
            let blank = line.iter().copied().all(is_blank);
            let offset = self.buffer.offset();
            let range = self.buffer.advance(length);
            self.buffer.advance(usize::from(ended));
            self.scanned = 0;
            if self.skipping {
                self.skipping = false;
            } else if length_of_text > self.buffer.max_frame() {
                return Some(Err(offset));
            } else if !blank {
                return Some(Ok((offset, range.start..range.start + length_of_text)));
            }
        }
    }

    /// Keeps the unfinished line, or drops it and returns its offset if it is too large.
    fn hold(&mut self) -> Option<u64> {
        let rest = self.buffer.rest();
        let oversized = without_return(rest).len() > self.buffer.max_frame();
        if !self.skipping && !oversized {
            self.scanned = rest.len();
            return None;
        }
        let offset = self.buffer.offset();
        let first = !self.skipping;
        self.skipping = true;
        self.scanned = 0;
        self.buffer.drop_rest();
        first.then_some(offset)
    }

    fn step_text(&mut self) -> Option<(u64, Range<usize>)> {
        let rest = self.buffer.rest();
        // A character of four bytes must fit.
        let piece = &rest[..rest.len().min(self.buffer.max_frame().max(4))];
        let whole = if self.buffer.is_finished() && piece.len() == rest.len() {
            piece.len()
        } else {
            whole_characters(piece)
        };
        if whole == 0 {
            return None;
        }
        let offset = self.buffer.offset();
        Some((offset, self.buffer.advance(whole)))
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The number of bytes before an incomplete last character.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    // A byte that is no continuation byte always starts a character.
    let Some(lead) = bytes[tail..].iter().rposition(|byte| byte & 0b1100_0000 != 0b1000_0000) else {
        return bytes.len();
    };
    match std::str::from_utf8(&bytes[tail + lead..]) {
        Err(error) if error.error_len().is_none() => tail + lead + error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests;
