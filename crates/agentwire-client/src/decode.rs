//! Bytes of the responses of one run to valid events, over all its connections.

use agentwire_core::{
    event::{Event, RunId, StreamEnd, ThreadId},
    framing::{Framing, Payload},
    order::{Guard, Rule},
    source::{Source, SourceOptions, Verdict},
};

use crate::{
    error::{ClientError, ErrorKind},
    protocol::ResponseFormat,
};

/// The number of event kinds at the start of a run that are remembered, to recognize the prelude of a repeated response.
const HEAD: usize = 4;

/// The decoder of one run.
pub(crate) struct RunDecoder {
    thread: ThreadId,
    run: RunId,
    max_frame: usize,
    source: Option<(Source, ResponseFormat)>,
    guard: Guard,
    /// The `id:` of the last frame.
    pub(crate) cursor: Option<Box<str>>,
    /// The `id:` in effect, which the frames of a repetition have too.
    seen_id: Option<Box<str>>,
    /// The number of events that the reader has made.
    delivered: u64,
    /// The kinds of the first events.
    head: Vec<&'static str>,
    /// Set while a response repeats the run from its start.
    replay: Option<Replay>,
    /// The bytes since the last whole frame, to recognize a last frame without its delimiter.
    tail: Vec<u8>,
    is_ended: bool,
    replaced: u64,
    /// Buffers, kept for their memory.
    read: Vec<Event>,
    valid: Vec<Event>,
}

/// The state of a repeated response.
#[derive(Default)]
struct Replay {
    /// The events of the repetition so far, without those of its prelude.
    seen: u64,
    /// The conversation and state that a server sends to a returning client before the run's own events.
    prelude: Vec<Event>,
}

/// Gets every frame that is not a repetition, encoded again.
pub(crate) type FrameSink<'s> = Option<&'s mut dyn FnMut(&[u8])>;

impl RunDecoder {
    pub(crate) fn new(thread: ThreadId, run: RunId, max_frame: usize) -> Self {
        Self {
            guard: Guard::new(thread.clone(), run.clone()),
            thread,
            run,
            max_frame,
            source: None,
            cursor: None,
            seen_id: None,
            delivered: 0,
            head: Vec::new(),
            replay: None,
            tail: Vec::new(),
            is_ended: false,
            replaced: 0,
            read: Vec::new(),
            valid: Vec::new(),
        }
    }

    fn new_source(&self, format: ResponseFormat) -> Source {
        let options = SourceOptions {
            thread: self.thread.clone(),
            run: self.run.clone(),
            max_frame: self.max_frame,
            ..SourceOptions::default()
        };
        Source::new(format.format, format.framing, &options).expect("formats of protocols have readers")
    }

    /// Starts the response that continues after the last whole frame.
    pub(crate) fn continue_with(&mut self, format: ResponseFormat) {
        self.tail.clear();
        match &mut self.source {
            Some((source, known)) if std::ptr::eq(known.format, format.format) => {
                source.restart(format.framing);
            }
            _ => self.source = Some((self.new_source(format), format)),
        }
    }

    /// Starts a response that replaces the conversation, and may then continue the run.
    pub(crate) fn continue_with_snapshot(&mut self, format: ResponseFormat) {
        self.forget_source();
        self.source = Some((self.new_source(format), format));
        self.replay = None;
    }

    /// Starts a response that repeats the run from its start: events that were delivered are dropped.
    pub(crate) fn replay_with(&mut self, format: ResponseFormat) {
        self.forget_source();
        self.source = Some((self.new_source(format), format));
        self.replay = (self.delivered > 0).then(Replay::default);
    }

    fn forget_source(&mut self) {
        self.tail.clear();
        if let Some((source, _)) = self.source.take() {
            self.replaced += source.replaced_bytes();
        }
    }

    /// True if the run has its terminal event.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The number of events of the reader so far.
    pub(crate) fn progress(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn repairs(&self) -> impl Iterator<Item = (Rule, u64)> {
        self.guard.repairs()
    }

    pub(crate) fn replaced_bytes(&self) -> u64 {
        self.replaced + self.source.as_ref().map_or(0, |(source, _)| source.replaced_bytes())
    }

    /// Adds bytes. Valid events go to `out`; `on_frame` gets every frame that is not a repetition.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        on_frame: FrameSink<'_>,
        out: &mut dyn FnMut(Event),
    ) -> Result<(), ClientError> {
        let Some((source, _)) = &mut self.source else { return Ok(()) };
        source.push(bytes);
        if self.read_frames(on_frame, out)? {
            self.tail.clear();
        }
        self.tail.extend_from_slice(bytes);
        Ok(())
    }

    /// Reads all whole frames; true if there was one.
    fn read_frames(
        &mut self,
        mut on_frame: FrameSink<'_>,
        out: &mut dyn FnMut(Event),
    ) -> Result<bool, ClientError> {
        let mut has_frame = false;
        while !self.is_ended {
            let Some((source, format)) = &mut self.source else { break };
            let (frames, reader) = source.parts();
            let frame = match frames.next_frame() {
                None => break,
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Err(frame_error(error)),
            };
            has_frame = true;
            let mut raw = Vec::new();
            if on_frame.is_some() {
                encode(format.framing, &frame, &mut raw);
            }
            if frame.id != self.seen_id.as_deref() {
                self.seen_id = frame.id.map(Box::from);
            }
            reader.read_frame(&frame, &mut self.read).map_err(frame_error)?;
            let (before, was_replay) = (self.delivered, self.replay.is_some());
            self.accept_read(out);
            if was_replay && self.delivered == before {
                continue;
            }
            if let Some(on_frame) = &mut on_frame {
                on_frame(&raw);
            }
            if self.seen_id.is_some() {
                self.cursor.clone_from(&self.seen_id);
            }
        }
        Ok(has_frame)
    }

    /// Passes the events of the reader through the repetition filter and the guard.
    fn accept_read(&mut self, out: &mut dyn FnMut(Event)) {
        let mut read = std::mem::take(&mut self.read);
        for event in read.drain(..) {
            self.accept(event);
            for valid in self.valid.drain(..) {
                self.is_ended |= valid.is_terminal();
                out(valid);
            }
        }
        self.read = read;
    }

    fn accept(&mut self, event: Event) {
        if let Some(replay) = &mut self.replay {
            let kind = event.kind();
            let was_sent = |at: u64| usize::try_from(at).ok().and_then(|at| self.head.get(at)).copied();
            let is_prelude = matches!(kind, "MESSAGES_SNAPSHOT" | "STATE_SNAPSHOT")
                && replay.seen <= HEAD as u64
                && was_sent(replay.seen) != Some(kind);
            if event.is_terminal() && replay.seen + 1 < self.delivered {
                // The server has only the result of the run: it replaces the events.
                let prelude = std::mem::take(&mut replay.prelude);
                self.replay = None;
                prelude.into_iter().for_each(|event| self.guard.push(event, &mut self.valid));
            } else if is_prelude {
                replay.prelude.push(event);
                return;
            } else if replay.seen < self.delivered {
                replay.seen += 1;
                if replay.seen == self.delivered {
                    self.replay = None;
                }
                return;
            }
        }
        if self.head.len() < HEAD {
            self.head.push(event.kind());
        }
        self.delivered += 1;
        self.guard.push(event, &mut self.valid);
    }

    /// Ends a response that the server closed in an orderly way. Returns true if the run is complete.
    ///
    /// The last frame may lack its delimiter. Unless it ends the run, it is left to the next connection: the cursor of a
    /// frame stands behind its data, and a frame without a cursor would be repeated.
    pub(crate) fn close(
        &mut self,
        may_continue: bool,
        on_frame: FrameSink<'_>,
        out: &mut dyn FnMut(Event),
    ) -> Result<bool, ClientError> {
        if self.is_ended {
            return Ok(true);
        }
        if may_continue && !self.tail_ends_the_run() {
            return Ok(false);
        }
        let Some((source, _)) = &mut self.source else { return Ok(false) };
        source.finish();
        self.read_frames(on_frame, out)?;
        if self.is_ended {
            return Ok(true);
        }
        let Some((source, _)) = &mut self.source else { return Ok(false) };
        let verdict = source.end(&StreamEnd::Closed, &mut self.read);
        if verdict != Verdict::Complete {
            // The error of a truncated stream is made by the caller.
            self.read.retain(|event| !event.is_terminal());
        }
        self.accept_read(out);
        Ok(self.is_ended)
    }

    /// True if the bytes behind the last whole frame, or the end of the stream itself, end the run.
    fn tail_ends_the_run(&self) -> bool {
        let Some((_, format)) = &self.source else { return false };
        // A response of the AI SDK may end without a terminal event; its reader knows.
        if format.format.name == "ai-sdk" {
            return true;
        }
        if format.framing == Framing::Prefixed {
            return false;
        }
        let text = String::from_utf8_lossy(&self.tail);
        let start =
            ["\n\n", "\r\n\r\n", "\r\r"].iter().filter_map(|end| Some(text.rfind(end)? + end.len())).max();
        let last = &text[start.unwrap_or(0)..];
        let mut probe = self.new_source(*format);
        probe.push(last.as_bytes());
        probe.finish();
        let mut events = Vec::new();
        while let Some(Ok(())) = probe.step(&mut events) {}
        events.iter().any(Event::is_terminal)
    }

    /// Ends the run with RUN_ERROR, so that everything open is closed.
    pub(crate) fn fail(&mut self, error: &ClientError, out: &mut dyn FnMut(Event)) {
        if self.is_ended || !self.guard.is_active() {
            return;
        }
        self.is_ended = true;
        let end = StreamEnd::Failed { code: error.code().into(), message: error.to_string().into() };
        self.guard.end(&end, &mut self.valid);
        self.valid.drain(..).for_each(out);
    }
}

fn frame_error(error: agentwire_core::source::InputError) -> ClientError {
    let offset = error.offset;
    ClientError::new(ErrorKind::Frame(error)).at(offset)
}

/// Writes a frame in its own framing.
fn encode(framing: Framing, frame: &agentwire_core::framing::Frame<'_>, out: &mut Vec<u8>) {
    match frame.data {
        Payload::Bytes(bytes) => {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(bytes);
        }
        Payload::Text(text) if framing == Framing::Sse => {
            if let Some(event) = frame.event {
                out.extend_from_slice(format!("event: {event}\n").as_bytes());
            }
            for line in text.split('\n') {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(line.as_bytes());
                out.push(b'\n');
            }
            if let Some(id) = frame.id {
                out.extend_from_slice(format!("id: {id}\n").as_bytes());
            }
            out.push(b'\n');
        }
        Payload::Text(text) => {
            if let (Framing::Coded, Some(code)) = (framing, frame.event) {
                out.extend_from_slice(code.as_bytes());
                out.push(b':');
            }
            out.extend_from_slice(text.as_bytes());
            out.push(b'\n');
        }
    }
}
