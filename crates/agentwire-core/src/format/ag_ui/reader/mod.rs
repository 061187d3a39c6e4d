//! AG-UI frames to canonical events.
//!
//! Most events are canonical as decoded. This reader expands chunks, assigns ids to the retired THINKING_*
//! events, which have none, and counts tolerated deviations.

pub(crate) mod chunks;
pub(crate) mod json;
mod langgraph_custom;
pub(crate) mod messages;
mod v0;

use self::{
    chunks::ChunkExpander,
    json::{Decoded, ReadContext, ThinkingEvent},
    langgraph_custom::LangGraphCustom,
};
use super::{options::AgUiOptions, proto, wire::PROTOCOL_VERSION};
use crate::{
    event::{Body, Event, MessageId, RunId, StreamEnd},
    format::{Reader, Setup},
    framing::{Frame, Payload},
    json::ReadResult,
    tally::Tally,
};

/// Reads AG-UI 1.0 and the shapes of 0.x, as JSON or protobuf.
#[derive(Debug)]
pub(crate) struct AgUiReader {
    context: ReadContext,
    expander: ChunkExpander,
    langgraph_custom: Option<LangGraphCustom>,
    run: RunId,
    /// The number of THINKING_* spans and messages of this run.
    thinking_count: u64,
    open_span: Option<MessageId>,
    open_thought: Option<MessageId>,
}

impl AgUiReader {
    pub(crate) fn new(setup: &Setup<'_>) -> Self {
        let options = AgUiOptions::from(setup.options);
        let strict = options.refuse_old_shapes;
        let tally = if strict { Tally::strict() } else { Tally::default() };
        Self {
            context: ReadContext { tally, ..ReadContext::default() },
            expander: ChunkExpander::default(),
            langgraph_custom: (!strict && !options.keep_langgraph_custom).then(LangGraphCustom::default),
            run: setup.run.clone(),
            thinking_count: 0,
            open_span: None,
            open_thought: None,
        }
    }

    fn emit(&mut self, decoded: Decoded, out: &mut Vec<Event>) -> ReadResult {
        match decoded {
            Decoded::Event(event) => {
                if let Body::RunStarted(started) = &event.body {
                    self.run = started.run.clone();
                    (self.thinking_count, self.open_span, self.open_thought) = (0, None, None);
                    if let Some(version) = &started.protocol_version {
                        note_version(version, &mut self.context.tally);
                    }
                }
                let event = match &mut self.langgraph_custom {
                    Some(custom) => custom.translate(event, &mut self.expander, out),
                    None => Some(event),
                };
                if let Some(event) = event {
                    self.expander.event(event, out);
                }
            }
            Decoded::Several(events) => {
                for event in events {
                    self.expander.event(event, out);
                }
            }
            Decoded::Thinking(kind, event) => {
                let event = self.with_thinking_id(kind, event);
                self.expander.event(event, out);
            }
            Decoded::Chunk(chunk) => self.expander.chunk(*chunk, out)?,
            Decoded::Unknown => {}
        }
        Ok(())
    }

    /// Sets the id of a THINKING_* event, derived from the run id and a count.
    fn with_thinking_id(&mut self, kind: ThinkingEvent, mut event: Event) -> Event {
        let (run, count) = (&self.run, self.thinking_count);
        let derive = |noun: &str| MessageId::from(format!("{run}:{noun}:{count}"));
        let id = match kind {
            ThinkingEvent::Start => {
                self.thinking_count += 1;
                self.open_span.insert(derive("thinking")).clone()
            }
            ThinkingEvent::TextStart => {
                self.thinking_count += 1;
                self.open_thought.insert(derive("thought")).clone()
            }
            ThinkingEvent::TextContent => self.open_thought.get_or_insert_with(|| derive("thought")).clone(),
            ThinkingEvent::TextEnd => self.open_thought.take().unwrap_or_else(|| derive("thought")),
            ThinkingEvent::End => self.open_span.take().unwrap_or_else(|| derive("thinking")),
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

/// Counts a declared version newer than [`PROTOCOL_VERSION`], or malformed. Such streams are read all the same.
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
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult {
        self.context.tally.at_frame(frame.index + 1);
        let decoded = match frame.data {
            Payload::Text(text) => json::decode_event(text, frame.event, &mut self.context)?,
            Payload::Bytes(bytes) => proto::decode_event(bytes, &mut self.context)?,
        };
        self.emit(decoded, out)
    }

    fn end(&mut self, _end: &StreamEnd, _out: &mut Vec<Event>) {
        // The guard reports a stream that ends before its run as truncated.
    }

    fn tally(&self) -> &Tally {
        &self.context.tally
    }
}
