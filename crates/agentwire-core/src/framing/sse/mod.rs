//! Server-sent events, as the HTML standard parses them.
//!
//! Two behaviours differ from the standard. A last frame without its blank line is returned, not discarded: agents that
//! omit it are common, and the official clients accept it. And a frame is bounded: one that is too large is skipped, but
//! its `id` and `retry` apply, because a client that did not advance past it would request it again forever.
//!
//! Data lines are joined in place in the buffer, so a frame costs no allocation.

use std::ops::Range;

use memchr::memchr2;

use super::{
    Frame, FrameError, FrameProblem, Payload,
    buffer::{Buffer, Lossy},
};

/// Decodes an event stream.
///
/// A frame's size is that of its `data` (with the line feeds that join it) and `event` values. The values of
/// `id` and `retry` may each be as long as a frame. Comments and unknown fields have no bound and take no
/// memory.
///
/// ```
/// use agentwire_core::framing::SseDecoder;
/// let mut decoder = SseDecoder::new(1024);
/// decoder.push(b"event: ping\ndata: {}\n");
/// assert!(decoder.next_frame().is_none());
/// decoder.push(b"\n");
/// let frame = decoder.next_frame().unwrap().unwrap();
/// assert_eq!((frame.event, frame.text()), (Some("ping"), "{}"));
/// ```
#[derive(Debug)]
pub struct SseDecoder {
    buffer: Buffer,
    lossy: Lossy,
    /// The number of frames so far.
    index: u64,
    /// The length of the unfinished line that has been searched for a line end.
    scanned: usize,
    /// The last line ended in CR, so that an LF would belong to it.
    after_return: bool,
    /// The rest of the unfinished line is ignored.
    skipping: bool,
    /// The frame whose blank line is missing.
    open: Option<Open>,
    /// The last `event` value, of `open` or of the last returned frame.
    event: String,
    id: Option<String>,
    retry: Option<u64>,
}

/// The state of a frame before its blank line.
#[derive(Debug)]
struct Open {
    offset: u64,
    /// The range of the joined data lines.
    data: Option<Range<usize>>,
    /// `event` was given and not empty.
    named: bool,
    size: usize,
    oversized: bool,
}

#[derive(Clone, Copy)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
}

/// The kind of a line.
enum Line {
    /// A field whose value starts at this byte.
    Field(Field, usize),
    /// A comment or an unknown field.
    Ignored,
    /// The line is incomplete, and so is its name.
    Undecided,
}

impl SseDecoder {
    /// A decoder whose frames are at most `max_frame` bytes long.
    #[must_use]
    pub fn new(max_frame: usize) -> Self {
        Self {
            buffer: Buffer::new(max_frame),
            lossy: Lossy::default(),
            index: 0,
            scanned: 0,
            after_return: false,
            skipping: false,
            open: None,
            event: String::new(),
            id: None,
            retry: None,
        }
    }

    /// Adds bytes. Take all frames with [`next_frame`](Self::next_frame) before adding more.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.open.as_mut().and_then(|open| open.data.as_mut()) {
            Some(data) => *data = self.buffer.push_keeping(bytes, data.clone()),
            None => self.buffer.push(bytes),
        }
    }

    /// Marks the end of the bytes.
    pub fn finish(&mut self) {
        self.buffer.finish();
    }

    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
        let (open, data) = match self.step() {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Some(Err(error)),
            None => {
                self.buffer.mark_drained();
                return None;
            }
        };
        let index = self.index;
        self.index += 1;
        Some(Ok(Frame {
            index,
            offset: open.offset,
            event: open.named.then_some(self.event.as_str()),
            id: self.id.as_deref(),
            data: Payload::Text(self.lossy.text(self.buffer.get(data))),
        }))
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

    /// The last `retry` value: milliseconds to wait before a reconnect.
    #[must_use]
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Processes lines until one ends a frame.
    fn step(&mut self) -> Option<Result<(Open, Range<usize>), FrameError>> {
        if !self.buffer.skip_byte_order_mark() {
            return None;
        }
        loop {
            if self.after_return
                && let Some(&next) = self.buffer.rest().first()
            {
                self.buffer.advance(usize::from(next == b'\n'));
                self.after_return = false;
            }
            let rest = self.buffer.rest();
            let (length, end) = match line_end(rest, self.scanned) {
                Some(length) => (length, Some(rest[length])),
                None if !self.buffer.is_finished() => return self.hold().map(Err),
                None if rest.is_empty() => return self.close().map(Ok),
                None => (rest.len(), None),
            };
            let offset = self.buffer.offset();
            let line = self.buffer.advance(length);
            self.buffer.advance(usize::from(end.is_some()));
            self.scanned = 0;
            self.after_return = end == Some(b'\r');
            if self.skipping {
                self.skipping = false;
            } else if length == 0 {
                if let Some(frame) = self.close() {
                    return Some(Ok(frame));
                }
            } else if let Some(error) = self.take_line(line, offset, end.is_some()) {
                return Some(Err(error));
            }
        }
    }

    /// Ends the open frame; it is a frame only if it had data.
    fn close(&mut self) -> Option<(Open, Range<usize>)> {
        let mut open = self.open.take()?;
        let data = open.data.take()?;
        Some((open, data))
    }

    /// Processes a line that is not blank. The last one may lack its end, and then counts only with a colon: a stream
    /// that is truncated inside the word `data` has no more data.
    fn take_line(&mut self, line: Range<usize>, offset: u64, complete: bool) -> Option<FrameError> {
        let open = self.open.get_or_insert_with(|| Open::at(offset));
        let Line::Field(field, from) = Line::of(self.buffer.get(line.clone()), complete) else {
            return None;
        };
        let range = line.start + from..line.end;
        if !open.admits(field, range.len(), self.buffer.max_frame()) {
            return self.refuse();
        }
        let value = self.buffer.get(range.clone());
        match field {
            Field::Data => {
                open.size += range.len() + usize::from(open.data.is_some());
                // The name `data` is between two values, so there is room for the line feed.
                open.data = Some(match open.data.take() {
                    Some(data) => self.buffer.join(data, b'\n', range),
                    None => range,
                });
            }
            Field::Event => {
                open.size += value.len();
                open.named = !value.is_empty();
                self.lossy.store(value, &mut self.event);
            }
            Field::Id if value.contains(&0) => {}
            Field::Id => self.lossy.store(value, self.id.get_or_insert_default()),
            Field::Retry => self.retry = digits(value).or(self.retry),
        }
        None
    }

    /// Keeps the unfinished line, unless it is ignored or too large.
    fn hold(&mut self) -> Option<FrameError> {
        let rest = self.buffer.rest();
        if rest.is_empty() {
            return None;
        }
        let mut error = None;
        if !self.skipping {
            let offset = self.buffer.offset();
            let open = self.open.get_or_insert_with(|| Open::at(offset));
            let line = Line::of(rest, false);
            let keep = match line {
                Line::Field(field, from) => open.admits(field, rest.len() - from, self.buffer.max_frame()),
                Line::Ignored => false,
                Line::Undecided => true,
            };
            if keep {
                self.scanned = rest.len();
                return None;
            }
            if matches!(line, Line::Field(..)) {
                error = self.refuse();
            }
            self.skipping = true;
        }
        self.scanned = 0;
        self.buffer.drop_rest();
        error
    }

    /// Drops the open frame as too large; reports it the first time.
    fn refuse(&mut self) -> Option<FrameError> {
        let open = self.open.as_mut().filter(|open| !open.oversized)?;
        open.oversized = true;
        open.data = None;
        let index = self.index;
        self.index += 1;
        let problem = FrameProblem::TooLarge { limit: self.buffer.max_frame() };
        Some(FrameError { index, offset: open.offset, problem })
    }
}

impl Open {
    fn at(offset: u64) -> Self {
        Self { offset, data: None, named: false, size: 0, oversized: false }
    }

    /// Whether a value of at least `length` bytes fits. False for a length implies false for every longer one, so the
    /// moment of the call does not matter.
    fn admits(&self, field: Field, length: usize, max_frame: usize) -> bool {
        let held = match field {
            Field::Data | Field::Event if self.oversized => return false,
            Field::Data => self.size + usize::from(self.data.is_some()),
            Field::Event => self.size,
            Field::Id | Field::Retry => 0,
        };
        held.saturating_add(length) <= max_frame
    }
}

impl Line {
    /// Reads the name of a line that is not empty; `complete` means that the line has its end.
    fn of(line: &[u8], complete: bool) -> Self {
        const FIELDS: [(&[u8], Field); 4] =
            [(b"data", Field::Data), (b"event", Field::Event), (b"id", Field::Id), (b"retry", Field::Retry)];
        for (name, field) in FIELDS {
            match line.strip_prefix(name) {
                Some([b':', b' ', ..]) => return Self::Field(field, name.len() + 2),
                Some([b':', ..]) => return Self::Field(field, name.len() + 1),
                Some([]) if complete => return Self::Field(field, name.len()),
                Some([]) => return Self::Undecided,
                Some(_) => return Self::Ignored,
                None if !complete && name.starts_with(line) => return Self::Undecided,
                None => {}
            }
        }
        Self::Ignored
    }
}

/// The end of the line, if it is there; the first `scanned` bytes have been searched before.
fn line_end(rest: &[u8], scanned: usize) -> Option<usize> {
    match rest.first() {
        // Every frame ends in a blank line, which is not worth a vector search.
        Some(b'\n' | b'\r') => Some(0),
        _ => memchr2(b'\n', b'\r', &rest[scanned..]).map(|at| scanned + at),
    }
}

/// The value of a `retry` field, unless it is not a number or too large for one.
fn digits(value: &[u8]) -> Option<u64> {
    value.iter().try_fold(None, |number: Option<u64>, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit)?))
    })?
}

#[cfg(test)]
mod tests;
