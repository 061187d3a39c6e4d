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
use super::{legacy_interrupt, options::AgUiOptions, proto, wire::PROTOCOL_VERSION};
use crate::{
    event::{Body, Event, MessageId, Outcome, RunId, StreamEnd},
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
    /// True if CUSTOM `on_interrupt` stays a CUSTOM event.
    keeps_legacy_interrupts: bool,
    /// CUSTOM `on_interrupt` events of this run. The end of the run decides whether they are interrupts.
    legacy_interrupts: Vec<Event>,
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
            keeps_legacy_interrupts: options.keep_legacy_interrupts || strict,
            legacy_interrupts: Vec::new(),
        }
    }

    fn emit(&mut self, decoded: Decoded, out: &mut Vec<Event>) -> ReadResult {
        match decoded {
            Decoded::Event(mut event) => {
                if !self.keeps_legacy_interrupts && legacy_interrupt::is_legacy_interrupt(&event) {
                    self.legacy_interrupts.push(event);
                    return Ok(());
                }
                if !self.legacy_interrupts.is_empty() {
                    self.settle_legacy_interrupts(&mut event, out);
                }
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

    /// Gives the held CUSTOM `on_interrupt` events to the run that ends without an outcome. A run with interrupts in
    /// its outcome has reported them twice; any other end leaves the events what they are.
    fn settle_legacy_interrupts(&mut self, event: &mut Event, out: &mut Vec<Event>) {
        match &mut event.body {
            Body::RunFinished(finished) => match &finished.outcome {
                None => {
                    let mut interrupts = Vec::new();
                    for held in self.legacy_interrupts.drain(..) {
                        self.context.tally.note("old shape", "CUSTOM `on_interrupt` for an outcome");
                        let (run, count) = (&finished.run, interrupts.len());
                        let tally = &mut self.context.tally;
                        interrupts.extend(legacy_interrupt::interrupts_of(&held, run, count, tally));
                    }
                    finished.outcome = Some(Outcome::Interrupt { interrupts });
                }
                Some(Outcome::Interrupt { .. }) => self.legacy_interrupts.clear(),
                Some(_) => self.release_legacy_interrupts(out),
            },
            Body::RunError(_) | Body::RunStarted(_) => self.release_legacy_interrupts(out),
            _ => {}
        }
    }

    fn release_legacy_interrupts(&mut self, out: &mut Vec<Event>) {
        for held in std::mem::take(&mut self.legacy_interrupts) {
            self.expander.event(held, out);
        }
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

    fn end(&mut self, _end: &StreamEnd, out: &mut Vec<Event>) {
        self.release_legacy_interrupts(out);
        // The guard reports a stream that ends before its run as truncated.
    }

    fn tally(&self) -> &Tally {
        &self.context.tally
    }
}
