//! The frame encoder: one output buffer, so that a flush is one write.

use bytes::{BufMut, Bytes, BytesMut};

use super::Framing;

/// Encoded frames.
///
/// A writer calls [`begin`](Self::begin), appends the payload to the buffer it gets, and calls
/// [`commit`](Self::commit). The caller of the writer calls [`finish_event`](Self::finish_event) after each
/// canonical event: an event may become several SSE frames, and only the last of them may carry the `id`, so that a
/// cursor never points into the middle of an event.
///
/// ```
/// use agentwire_core::framing::{Frames, Framing};
/// let mut frames = Frames::new(Framing::Sse);
/// frames.begin("PING").extend_from_slice(b"{}");
/// frames.commit();
/// frames.finish_event(Some("run1:0"));
/// assert_eq!(&frames.take()[..], b"data: {}\nid: run1:0\n\n");
/// ```
#[derive(Debug)]
pub struct Frames {
    out: BytesMut,
    framing: Framing,
    named: bool,
    /// SSE: the last frame lacks its blank line. Prefixed: the offset of the length.
    open: Option<usize>,
}

impl Frames {
    /// No frames yet.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self { out: BytesMut::new(), framing, named: false, open: None }
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
        match self.framing {
            Framing::Sse => {
                if self.open.take().is_some() {
                    self.out.put_u8(b'\n');
                }
                if self.named {
                    self.out.put_slice(b"event: ");
                    self.out.put_slice(event.as_bytes());
                    self.out.put_u8(b'\n');
                }
                self.out.put_slice(b"data: ");
            }
            Framing::Prefixed => {
                self.open = Some(self.out.len());
                self.out.put_u32(0);
            }
            Framing::Lines | Framing::Array | Framing::Coded | Framing::Text => {}
        }
        &mut self.out
    }

    /// Ends the frame.
    pub fn commit(&mut self) {
        match self.framing {
            Framing::Sse => {
                self.out.put_u8(b'\n');
                self.open = Some(self.out.len());
            }
            Framing::Prefixed => {
                if let Some(start) = self.open.take() {
                    let length = u32::try_from(self.out.len() - start - 4).unwrap_or(u32::MAX);
                    self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
                }
            }
            Framing::Lines | Framing::Array | Framing::Coded => self.out.put_u8(b'\n'),
            Framing::Text => {}
        }
    }

    /// Ends a canonical event; `id` goes onto its last SSE frame.
    pub fn finish_event(&mut self, id: Option<&str>) {
        if self.framing == Framing::Sse && self.open.take().is_some() {
            if let Some(id) = id {
                self.out.put_slice(b"id: ");
                self.out.put_slice(id.as_bytes());
                self.out.put_u8(b'\n');
            }
            self.out.put_u8(b'\n');
        }
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

    /// Takes all buffered bytes. Only between events.
    pub fn take(&mut self) -> Bytes {
        self.finish_event(None);
        self.out.split().freeze()
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
    fn only_the_last_frame_of_an_event_carries_the_id() {
        let mut frames = Frames::new(Framing::Sse).named(true);
        frame(&mut frames, b"1");
        frame(&mut frames, b"2");
        frames.finish_event(Some("r:0"));
        frames.comment("ping");
        assert_eq!(&frames.take()[..], b"event: E\ndata: 1\n\nevent: E\ndata: 2\nid: r:0\n\n: ping\n\n");
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
