//! JSON arrays whose elements are frames, decoded while the array is still arriving.
//!
//! The scanner only finds the end of an element: it recognises strings and counts brackets. The format reader, which
//! parses the element anyway, checks whether it is valid JSON.

use std::ops::Range;

use memchr::memchr2;

use super::{
    Frame, FrameError, FrameProblem, Payload,
    buffer::{Buffer, Lossy, is_blank},
};

/// Decodes a JSON array, or a single object, which is one frame.
///
/// ```
/// use agentwire_core::framing::ArrayDecoder;
/// let mut decoder = ArrayDecoder::new(1024);
/// decoder.push(b"[\n  {\"a\": [1, 2]},\n  {\"b\"");
/// assert_eq!(decoder.next_frame().unwrap().unwrap().text(), "{\"a\": [1, 2]}");
/// assert!(decoder.next_frame().is_none());
/// ```
#[derive(Debug)]
pub struct ArrayDecoder {
    buffer: Buffer,
    lossy: Lossy,
    /// The number of frames so far.
    index: u64,
    /// The token that may follow, after `element` if there is one.
    place: Place,
    /// The incomplete element.
    element: Option<Element>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The array or a single object.
    Start,
    /// The first element or the end of the array.
    First,
    /// A comma or the end of the array.
    Behind,
    /// An element.
    Next,
    /// Nothing.
    End,
}

#[derive(Debug)]
struct Element {
    offset: u64,
    scan: Scan,
    /// The number of buffered bytes that have been scanned.
    scanned: usize,
    /// It is too large, was reported, and its bytes are dropped.
    oversized: bool,
}

/// The state of the scanner inside an element.
#[derive(Clone, Copy, Debug)]
enum Scan {
    /// A number or a word.
    Scalar,
    /// Outside strings, at this bracket depth.
    Nested { depth: usize },
    /// In a string at this bracket depth.
    Text { depth: usize, escaped: bool },
}

/// The next item, and its offset in the stream.
enum Step {
    Frame(u64, Range<usize>),
    Failed(u64, FrameProblem),
}

impl ArrayDecoder {
    /// A decoder whose elements are at most `max_frame` bytes long.
    #[must_use]
    pub fn new(max_frame: usize) -> Self {
        Self {
            buffer: Buffer::new(max_frame),
            lossy: Lossy::default(),
            index: 0,
            place: Place::Start,
            element: None,
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
        let Some(step) = self.step() else {
            self.buffer.mark_drained();
            return None;
        };
        let index = self.index;
        self.index += 1;
        Some(match step {
            Step::Frame(offset, range) => {
                let text = self.lossy.text(self.buffer.get(range));
                Ok(Frame { index, offset, event: None, id: None, data: Payload::Text(text) })
            }
            Step::Failed(offset, problem) => Err(FrameError { index, offset, problem }),
        })
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

    fn step(&mut self) -> Option<Step> {
        if !self.buffer.skip_byte_order_mark() {
            return None;
        }
        loop {
            if let Some(element) = self.element.take() {
                match self.step_element(element) {
                    Some(step) => return Some(step),
                    None if self.element.is_some() => return self.starve(),
                    None => {}
                }
            }
            let rest = self.buffer.rest();
            let Some(blank) = rest.iter().position(|&byte| !is_blank(byte)) else {
                self.buffer.drop_rest();
                return self.starve();
            };
            let byte = rest[blank];
            self.buffer.advance(blank);
            match (self.place, byte) {
                (Place::Start, b'[') => self.pass(Place::First),
                (Place::First | Place::Behind, b']') => self.pass(Place::End),
                (Place::Behind, b',') => self.pass(Place::Next),
                (Place::Start, b'{') => self.begin(Scan::Nested { depth: 0 }, Place::End),
                (Place::First | Place::Next, b'{' | b'[' | b'"') => {
                    self.begin(Scan::Nested { depth: 0 }, Place::Behind);
                }
                (Place::First | Place::Next, byte) if is_scalar(byte) => {
                    self.begin(Scan::Scalar, Place::Behind)
                }
                _ => return Some(self.fail(self.buffer.offset(), FrameProblem::Malformed)),
            }
        }
    }

    /// Skips a byte of the array itself.
    fn pass(&mut self, place: Place) {
        self.buffer.advance(1);
        self.place = place;
    }

    fn begin(&mut self, scan: Scan, behind: Place) {
        let offset = self.buffer.offset();
        self.element = Some(Element { offset, scan, scanned: 0, oversized: false });
        self.place = behind;
    }

    /// Finds the end of the element; keeps the element if it is incomplete.
    fn step_element(&mut self, mut element: Element) -> Option<Step> {
        let limit = self.buffer.max_frame();
        let rest = self.buffer.rest();
        let end = element.scan.end(&rest[element.scanned..]);
        let length = end.map_or(rest.len(), |end| element.scanned + end);
        let reported = element.oversized;
        element.oversized |= length > limit;
        let (offset, oversized) = (element.offset, element.oversized);
        if end.is_some() {
            let range = self.buffer.advance(length);
            if !oversized {
                return Some(Step::Frame(offset, range));
            }
        } else {
            if oversized {
                self.buffer.drop_rest();
            }
            element.scanned = self.buffer.rest().len();
            self.element = Some(element);
        }
        (oversized && !reported).then_some(Step::Failed(offset, FrameProblem::TooLarge { limit }))
    }

    /// Handles the end of the buffer, which is an error at the end of a stream inside the document.
    fn starve(&mut self) -> Option<Step> {
        if !self.buffer.is_finished() {
            return None;
        }
        let offset = match &self.element {
            Some(element) if !element.oversized => element.offset,
            None if matches!(self.place, Place::Start | Place::End) => return None,
            _ => self.buffer.offset(),
        };
        Some(self.fail(offset, FrameProblem::Truncated))
    }

    /// Ends the stream: frames cannot be delimited after an error.
    fn fail(&mut self, offset: u64, problem: FrameProblem) -> Step {
        self.buffer.close();
        self.element = None;
        self.place = Place::End;
        Step::Failed(offset, problem)
    }
}

impl Scan {
    /// Continues the scan; returns the number of bytes that belong to the element, if it ends in them.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match *self {
                Self::Scalar if is_scalar(byte) => {}
                Self::Scalar => return Some(at),
                Self::Text { depth, escaped: true } => *self = Self::Text { depth, escaped: false },
                Self::Text { depth, escaped: false } => {
                    at += memchr2(b'"', b'\\', &bytes[at..])?;
                    *self = match bytes[at] {
                        b'"' if depth == 0 => return Some(at + 1),
                        b'"' => Self::Nested { depth },
                        _ => Self::Text { depth, escaped: true },
                    };
                }
                Self::Nested { depth } => match byte {
                    b'"' => *self = Self::Text { depth, escaped: false },
                    b'{' | b'[' => *self = Self::Nested { depth: depth + 1 },
                    b'}' | b']' if depth <= 1 => return Some(at + 1),
                    b'}' | b']' => *self = Self::Nested { depth: depth - 1 },
                    _ => {}
                },
            }
            at += 1;
        }
        None
    }
}

/// Whether a number, `true`, `false` or `null` may contain this byte.
fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

#[cfg(test)]
mod tests;
