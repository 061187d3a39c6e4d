//! The frame encoder: one output buffer, so that a flush is one write.

use bytes::{BufMut, Bytes, BytesMut};

use super::Framing;

/// Bytes up to which [`Frames::take`] keeps the rest of its buffer: tens of small events.
const KEPT: usize = 4 << 10;

/// Encoded frames.
///
/// A writer calls [`begin`](Self::begin), appends the payload to the buffer it gets, and calls
/// [`commit`](Self::commit). The caller of the writer calls [`finish_event`](Self::finish_event) after each
/// canonical event: an event may become several SSE frames. The last of them gets the `id` of the event, the k-th before
/// it `id/k`, so that a cursor can point behind any frame; [`keep_last`](Self::keep_last) resumes there.
///
/// ```
/// use agentwire_core::framing::{Frames, Framing};
/// let mut frames = Frames::new(Framing::Sse);
/// for data in [b"1", b"2"] {
///     frames.begin("PING").extend_from_slice(data);
///     frames.commit();
/// }
/// frames.finish_event(Some("run1:0"));
/// assert_eq!(&frames.take()[..], b"data: 1\nid: run1:0/1\n\ndata: 2\nid: run1:0\n\n");
/// ```
#[derive(Debug)]
pub struct Frames {
    out: BytesMut,
    framing: Framing,
    named: bool,
    /// The start of each frame of the current event.
    starts: Vec<usize>,
    /// True if the format numbers its frames itself.
    has_own_ids: bool,
}

impl Frames {
    /// No frames yet.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self { out: BytesMut::new(), framing, named: false, starts: Vec::new(), has_own_ids: false }
    }

    /// Adds `event:` to SSE frames (`sse = "standard"`).
    #[must_use]
    pub fn named(mut self, named: bool) -> Self {
        self.named = named;
        self
    }

    /// The framing of the output.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Starts a frame; append the payload to the returned buffer. It must not contain a line break, unless the framing
    /// is length-prefixed or plain text.
    pub fn begin(&mut self, event: &str) -> &mut BytesMut {
        self.starts.push(self.out.len());
        match self.framing {
            Framing::Sse => {
                if self.named {
                    self.out.put_slice(b"event: ");
                    self.out.put_slice(event.as_bytes());
                    self.out.put_u8(b'\n');
                }
                self.out.put_slice(b"data: ");
            }
            Framing::Prefixed => self.out.put_u32(0),
            Framing::Lines | Framing::Array | Framing::Coded | Framing::Text => {}
        }
        &mut self.out
    }

    /// Starts a frame of a format whose SSE has `event:` in any case.
    pub fn begin_named(&mut self, event: &str) -> &mut BytesMut {
        let named = std::mem::replace(&mut self.named, true);
        self.begin(event);
        self.named = named;
        &mut self.out
    }

    /// Ends the frame. SSE: it lacks its id and its blank line until [`finish_event`](Self::finish_event).
    pub fn commit(&mut self) {
        match self.framing {
            Framing::Prefixed => {
                if let Some(&start) = self.starts.last() {
                    let length = u32::try_from(self.out.len() - start - 4).unwrap_or(u32::MAX);
                    self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
                }
            }
            Framing::Sse | Framing::Lines | Framing::Array | Framing::Coded => self.out.put_u8(b'\n'),
            Framing::Text => {}
        }
    }

    /// Ends the frame of a format that numbers its frames itself: the SSE `id` is the number, not that of the event.
    pub fn commit_with_id(&mut self, id: u64) {
        self.commit();
        if self.framing == Framing::Sse {
            self.has_own_ids = true;
            self.out.put_slice(b"id: ");
            self.out.put_slice(id.to_string().as_bytes());
            self.out.put_u8(b'\n');
        }
    }

    /// Drops all but the last `count` frames of the current event: those that a client has. `false`, and nothing is
    /// dropped, if the event has no frame before them.
    pub fn keep_last(&mut self, count: usize) -> bool {
        let Some(dropped) = self.starts.len().checked_sub(count).filter(|dropped| *dropped > 0) else {
            return false;
        };
        let start = self.starts[0];
        let kept = self.starts.get(dropped).map_or_else(BytesMut::new, |kept| self.out.split_off(*kept));
        let shift = self.starts.get(dropped).map_or(0, |kept| kept - start);
        self.out.truncate(start);
        self.out.put_slice(&kept);
        self.starts.drain(..dropped);
        self.starts.iter_mut().for_each(|start| *start -= shift);
        true
    }

    /// Ends a canonical event. SSE: `id` goes onto its last frame, and with `/k` onto the k-th before it.
    pub fn finish_event(&mut self, id: Option<&str>) {
        if self.framing == Framing::Sse {
            match self.starts[..] {
                [] => {}
                [_] => self.end_frame(id, 0),
                _ => self.end_frames(id, true),
            }
        }
        self.starts.clear();
    }

    /// Ends events that cannot be repeated: a cursor can only point behind the last frame, which gets the `id`.
    pub fn finish_prelude(&mut self, id: Option<&str>) {
        if self.framing == Framing::Sse && !self.starts.is_empty() {
            self.end_frames(id, false);
        }
        self.starts.clear();
    }

    /// Ends all frames of the current event. They lie side by side, so they are copied apart.
    fn end_frames(&mut self, id: Option<&str>, has_id_each: bool) {
        let mut frames = self.out.split_off(self.starts[0]);
        let mut behind = self.starts.len();
        for index in 0..self.starts.len() {
            behind -= 1;
            let frame = match self.starts.get(index + 1) {
                Some(next) => frames.split_to(next - self.starts[index]),
                None => frames.split(),
            };
            self.out.put_slice(&frame);
            self.end_frame(id.filter(|_| has_id_each || behind == 0), behind);
        }
    }

    /// Ends a frame that is followed by `behind` others of its event.
    fn end_frame(&mut self, id: Option<&str>, behind: usize) {
        if let Some(id) = id.filter(|_| !self.has_own_ids) {
            self.out.put_slice(b"id: ");
            self.out.put_slice(id.as_bytes());
            if behind > 0 {
                self.out.put_u8(b'/');
                self.out.put_slice(behind.to_string().as_bytes());
            }
            self.out.put_u8(b'\n');
        }
        self.out.put_u8(b'\n');
    }

    /// An SSE comment, which every client ignores: keeps a quiet connection alive.
    pub fn comment(&mut self, text: &str) {
        if self.framing == Framing::Sse {
            self.finish_event(None);
            self.out.put_slice(b": ");
            self.out.put_slice(text.as_bytes());
            self.out.put_slice(b"\n\n");
        }
    }

    /// SSE: sets the client's reconnect delay, with a comment on the reason.
    pub fn retry(&mut self, millis: u64, why: &str) {
        if self.framing == Framing::Sse {
            self.finish_event(None);
            self.out.put_slice(b"retry: ");
            self.out.put_slice(millis.to_string().as_bytes());
            self.out.put_u8(b'\n');
            self.comment(why);
        }
    }

    /// The number of buffered bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Takes all buffered bytes. Only between events. After many bytes it keeps no memory: a stream that was long once
    /// may be idle for hours.
    pub fn take(&mut self) -> Bytes {
        self.finish_event(None);
        match self.out.len() {
            0..KEPT => self.out.split().freeze(),
            _ => std::mem::take(&mut self.out).freeze(),
        }
    }

    /// Puts bytes of [`take`](Self::take) back, before the buffered ones.
    pub fn put_back(&mut self, taken: &[u8]) {
        self.finish_event(None);
        let later = self.out.split();
        self.out.put_slice(taken);
        self.out.put_slice(&later);
    }

    /// Passes all buffered bytes to `sink` and keeps the buffer's memory. Only between events.
    pub fn drain<T>(&mut self, sink: impl FnOnce(&[u8]) -> T) -> T {
        self.finish_event(None);
        let result = sink(&self.out);
        self.out.clear();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(frames: &mut Frames, data: &[u8]) {
        frames.begin("E").extend_from_slice(data);
        frames.commit();
    }

    #[test]
    fn every_frame_of_an_event_has_an_id() {
        let mut frames = Frames::new(Framing::Sse).named(true);
        frame(&mut frames, b"0");
        frames.finish_event(Some("r:0"));
        for data in [b"1", b"2", b"3"] {
            frame(&mut frames, data);
        }
        frames.finish_event(Some("r:1"));
        frames.comment("ping");
        let expected = "event: E\ndata: 0\nid: r:0\n\n\
            event: E\ndata: 1\nid: r:1/2\n\nevent: E\ndata: 2\nid: r:1/1\n\nevent: E\ndata: 3\nid: r:1\n\n: ping\n\n";
        assert_eq!(frames.take(), expected);
    }

    #[test]
    fn a_format_may_number_its_frames() {
        let mut frames = Frames::new(Framing::Sse);
        for (data, id) in [(b"1", 7), (b"2", 8)] {
            frames.begin("E").extend_from_slice(data);
            frames.commit_with_id(id);
        }
        frames.finish_event(Some("r:0"));
        assert_eq!(frames.take(), "data: 1\nid: 7\n\ndata: 2\nid: 8\n\n");
    }

    #[test]
    fn only_the_last_frame_of_a_prelude_has_an_id() {
        let mut frames = Frames::new(Framing::Sse);
        frame(&mut frames, b"1");
        frame(&mut frames, b"2");
        frames.finish_prelude(Some("r:1"));
        assert_eq!(frames.take(), "data: 1\n\ndata: 2\nid: r:1\n\n");
    }

    #[test]
    fn the_frames_that_a_client_has_can_be_dropped() {
        let rest = |framing, kept: usize| {
            let mut frames = Frames::new(framing);
            frame(&mut frames, b"0");
            frames.finish_event(Some("r:0"));
            for data in [b"11", b"22", b"33"] {
                frame(&mut frames, data);
            }
            let is_found = frames.keep_last(kept);
            frames.finish_event(Some("r:1"));
            (is_found, frames.take())
        };
        let zero = "data: 0\nid: r:0\n\n";
        let (two, three) = ("data: 22\nid: r:1/1\n\n", "data: 33\nid: r:1\n\n");
        assert_eq!(rest(Framing::Sse, 2), (true, format!("{zero}{two}{three}").into()));
        assert_eq!(rest(Framing::Sse, 1), (true, format!("{zero}{three}").into()));
        assert_eq!(rest(Framing::Sse, 0), (true, zero.into()));
        assert!(!rest(Framing::Sse, 3).0 && !rest(Framing::Sse, 4).0);
        assert_eq!(rest(Framing::Lines, 1), (true, "0\n33\n".into()));
    }

    #[test]
    fn lengths_are_filled_in() {
        let mut frames = Frames::new(Framing::Prefixed);
        frame(&mut frames, b"abc");
        frame(&mut frames, b"");
        frames.finish_event(Some("ignored"));
        assert_eq!(&frames.take()[..], b"\0\0\0\x03abc\0\0\0\0");
    }
}
