//! AG-UI frames to canonical events.
//!
//! Most events are canonical already. What is left to do: expand chunks, give the retired THINKING_* events
//! the ids they never had, and count what is tolerated.

pub(crate) mod chunks;
pub(crate) mod json;
pub(crate) mod messages;
mod v0;

use self::{
    chunks::Expander,
    json::{Context, Native, Thinking},
};
use super::{options::AgUiOptions, proto, wire::PROTOCOL_VERSION};
use crate::{
    event::{Body, Event, MessageId, RunId, StreamEnd},
    format::{Reader, Setup},
    framing::{Frame, Payload},
    json::ReadError,
    tally::Tally,
};

/// Reads AG-UI 1.0 and the shapes of 0.x, as JSON or protobuf.
#[derive(Debug)]
pub(crate) struct AgUiReader {
    context: Context,
    expander: Expander,
    run: RunId,
    /// How many spans and messages of THINKING_* there were, and which is open.
    thinking: u64,
    span: Option<MessageId>,
    message: Option<MessageId>,
}

impl AgUiReader {
    pub(crate) fn new(setup: &Setup<'_>) -> Self {
        let strict = AgUiOptions::from(setup.options).refuse_old_shapes;
        let tally = if strict { Tally::strict() } else { Tally::default() };
        Self {
            context: Context { tally, ..Context::default() },
            expander: Expander::default(),
            run: setup.run.clone(),
            thinking: 0,
            span: None,
            message: None,
        }
    }

    fn take(&mut self, native: Native, out: &mut Vec<Event>) -> Result<(), ReadError> {
        match native {
            Native::Event(event) => {
                if let Body::RunStarted(started) = &event.body {
                    self.run = started.run.clone();
                    (self.thinking, self.span, self.message) = (0, None, None);
                    if let Some(version) = &started.protocol_version {
                        note_version(version, &mut self.context.tally);
                    }
                }
                self.expander.event(event, out);
            }
            Native::Several(events) => {
                for event in events {
                    self.expander.event(event, out);
                }
            }
            Native::Thinking(kind, event) => {
                let event = self.named(kind, event);
                self.expander.event(event, out);
            }
            Native::Chunk(chunk) => self.expander.chunk(*chunk, out)?,
            Native::Unknown => {}
        }
        Ok(())
    }

    /// Gives a THINKING_* event its id: the run's, and a count.
    fn named(&mut self, kind: Thinking, mut event: Event) -> Event {
        let (run, count) = (&self.run, self.thinking);
        let make = |what: &str| MessageId::from(format!("{run}:{what}:{count}"));
        let id = match kind {
            Thinking::Start => {
                self.thinking += 1;
                self.span.insert(make("thinking")).clone()
            }
            Thinking::TextStart => {
                self.thinking += 1;
                self.message.insert(make("thought")).clone()
            }
            Thinking::TextContent => self.message.get_or_insert_with(|| make("thought")).clone(),
            Thinking::TextEnd => self.message.take().unwrap_or_else(|| make("thought")),
            Thinking::End => self.span.take().unwrap_or_else(|| make("thinking")),
        };
        match &mut event.body {
            Body::ReasoningStart { message, .. }
            | Body::ReasoningMessageStart { message }
            | Body::ReasoningDelta { message, .. }
            | Body::ReasoningMessageEnd { message }
            | Body::ReasoningEnd { message } => *message = id,
            _ => {}
        }
        event
    }
}

/// Counts a version that is not ours. A newer minor version is served; what it adds is tolerated.
fn note_version(version: &str, tally: &mut Tally) {
    let parse = |text: &str| -> Option<(u64, u64)> {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    match (parse(version), parse(PROTOCOL_VERSION)) {
        (Some(theirs), Some(ours)) if theirs <= ours => {}
        _ => tally.note("protocol version", version),
    }
}

impl Reader for AgUiReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
        self.context.tally.at_frame(frame.index + 1);
        let native = match frame.data {
            Payload::Text(text) => json::event(text, frame.event, &mut self.context)?,
            Payload::Bytes(bytes) => proto::decode(bytes, &mut self.context)?,
        };
        self.take(native, out)
    }

    fn end(&mut self, _end: &StreamEnd, _out: &mut Vec<Event>) {
        // A stream that ends before its run is truncated, and that is what the guard says of it.
    }

    fn tally(&self) -> &Tally {
        &self.context.tally
    }
}
