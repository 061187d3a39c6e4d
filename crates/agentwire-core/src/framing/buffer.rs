//! The byte buffer of all decoders.

use std::ops::Range;

/// The memory that a decoder keeps after a large frame. Two of the largest common reads of HTTP clients (32 KiB) fit,
/// so that ordinary traffic never allocates.
const RETAINED: usize = 64 * 1024;

/// The bytes beyond `max_frame` that a decoder may buffer before a frame is known to be too large: the longest prefix
/// (`event: `, a length, a byte order mark), rounded up.
const SLACK: usize = 16;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The pushed bytes that have not been consumed.
///
/// If all frames are taken before each push, this holds at most `max_frame`, [`SLACK`] and one push; the decoders
/// ensure this by dropping bytes that cannot become a frame.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Bytes before this are consumed.
    start: usize,
    /// The stream offset of `start`.
    offset: u64,
    max_frame: usize,
    /// The byte order mark has been handled.
    begun: bool,
    /// All whole frames have been taken, so that at most one incomplete frame is left.
    drained: bool,
    finished: bool,
}

impl Buffer {
    pub(super) fn new(max_frame: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            offset: 0,
            max_frame,
            begun: false,
            drained: true,
            finished: false,
        }
    }

    pub(super) fn max_frame(&self) -> usize {
        self.max_frame
    }

    /// Appends bytes; after the end they are ignored.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.push_keeping(bytes, 0..0);
    }

    /// Appends bytes and preserves those in `kept`, which are in the consumed part. Returns their new range.
    pub(super) fn push_keeping(&mut self, bytes: &[u8], kept: Range<usize>) -> Range<usize> {
        if self.finished || bytes.is_empty() {
            return kept;
        }
        let kept = self.reclaim(kept);
        self.make_room(bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.drained = false;
        kept
    }

    /// Removes consumed bytes. In a drained buffer the moved bytes are at most as many as the last push; in one with a
    /// backlog the gaps are at least as long as the moved part. So each byte moves about once.
    fn reclaim(&mut self, kept: Range<usize>) -> Range<usize> {
        let used = self.start - kept.len();
        if used == 0 || !(self.drained || used >= self.bytes.len() - used) {
            return kept;
        }
        let length = kept.len();
        if kept.start > 0 {
            self.bytes.copy_within(kept, 0);
        }
        let rest = self.bytes.len() - self.start;
        self.bytes.copy_within(self.start.., length);
        self.bytes.truncate(length + rest);
        self.start = length;
        0..length
    }

    fn make_room(&mut self, more: usize) {
        let needed = self.bytes.len().saturating_add(more);
        let capacity = self.bytes.capacity();
        if needed > capacity {
            // Doubling would exceed the documented bound.
            let bound = self.max_frame.saturating_add(SLACK).saturating_add(more);
            let doubled = capacity.saturating_mul(2);
            let target = if needed <= bound { doubled.clamp(needed, bound) } else { doubled.max(needed) };
            self.bytes.reserve_exact(target - self.bytes.len());
        } else if capacity > RETAINED && needed < capacity / 4 {
            self.bytes.shrink_to(needed.max(RETAINED));
        }
    }

    /// Marks the end of the bytes.
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Drops all bytes, present and future.
    pub(super) fn close(&mut self) {
        self.bytes = Vec::new();
        self.start = 0;
        self.finished = true;
    }

    /// Marks the rest as not containing a whole frame.
    pub(super) fn mark_drained(&mut self) {
        self.drained = true;
    }

    /// The unconsumed bytes.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The stream offset of the rest.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Consumes the first `count` bytes of the rest; returns their range, which is valid until the next push.
    pub(super) fn advance(&mut self, count: usize) -> Range<usize> {
        let start = self.start;
        self.start += count;
        self.offset += count as u64;
        start..self.start
    }

    /// Consumes all of the rest.
    pub(super) fn drop_rest(&mut self) {
        self.advance(self.rest().len());
    }

    /// Bytes that [`advance`](Self::advance) has consumed since the last push.
    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Moves `next` after `first` with one `separator` between them. There must be room for it: at least one byte between
    /// the two, or an empty `next` and at least one consumed byte after `first`.
    pub(super) fn join(&mut self, first: Range<usize>, separator: u8, next: Range<usize>) -> Range<usize> {
        let end = first.end + 1 + next.len();
        self.bytes[first.end] = separator;
        self.bytes.copy_within(next, first.end + 1);
        first.start..end
    }

    /// Skips a byte order mark at the start of the stream. `false` while the bytes may be the start of one.
    pub(super) fn skip_byte_order_mark(&mut self) -> bool {
        if self.begun {
            return true;
        }
        let rest = self.rest();
        if rest.starts_with(BYTE_ORDER_MARK) {
            self.advance(BYTE_ORDER_MARK.len());
        } else if !self.finished && BYTE_ORDER_MARK.starts_with(rest) {
            return false;
        }
        self.begun = true;
        true
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

/// `start` without a byte order mark.
pub(super) fn without_byte_order_mark(start: &[u8]) -> &[u8] {
    start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start)
}

/// JSON's white space.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Converts bytes to text, and counts the bytes that are not UTF-8.
#[derive(Debug, Default)]
pub(super) struct Lossy {
    scratch: String,
    replaced: u64,
}

impl Lossy {
    /// Borrows valid text; anything else is rewritten with U+FFFD as `String::from_utf8_lossy` does.
    pub(super) fn text<'a>(&'a mut self, bytes: &'a [u8]) -> &'a str {
        match valid(bytes) {
            Some(text) => text,
            None => {
                self.replaced += rewrite(bytes, &mut self.scratch);
                &self.scratch
            }
        }
    }

    /// Like [`text`](Self::text), into a string that outlives the bytes.
    pub(super) fn store(&mut self, bytes: &[u8], text: &mut String) {
        match std::str::from_utf8(bytes) {
            Ok(valid) => {
                empty(text);
                text.push_str(valid);
            }
            Err(_) => self.replaced += rewrite(bytes, text),
        }
    }

    /// The number of bytes that were not UTF-8.
    pub(super) fn replaced(&self) -> u64 {
        self.replaced
    }
}

/// The bytes as text. From this length on the vectorised check is faster, and several times as fast on text that is not
/// ASCII.
fn valid(bytes: &[u8]) -> Option<&str> {
    const VECTORISED: usize = 128;
    if bytes.len() < VECTORISED {
        std::str::from_utf8(bytes).ok()
    } else {
        simdutf8::basic::from_utf8(bytes).ok()
    }
}

/// Empties a string and releases the memory of an unusually long one.
fn empty(text: &mut String) {
    text.clear();
    text.shrink_to(RETAINED);
}

#[cold]
fn rewrite(bytes: &[u8], text: &mut String) -> u64 {
    empty(text);
    let mut replaced = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            replaced += chunk.invalid().len() as u64;
        }
    }
    replaced
}
