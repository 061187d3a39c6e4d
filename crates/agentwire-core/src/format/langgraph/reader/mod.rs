//! The state machine from LangGraph's streams to canonical events.
//!
//! The five inputs are recognised frame by frame ([`LangGraphReader::read`]): native events (`native_events.rs`),
//! the server's frames and the tuples of a graph (`stream_modes.rs`), and the server's protocol v2
//! (`protocol_v2.rs`). All of them update the same tables: model output (`model_stream/`), tool calls
//! (`tool_calls.rs`), nodes (`node_runs.rs`), the client's messages (`shown_messages.rs`) and the run itself
//! (`run.rs`, `conversation.rs`, `ending.rs`).

mod call_ids;
mod content_blocks;
mod conversation;
mod custom_events;
mod ending;
mod event_ids;
mod frame_templates;
mod generated_run_ids;
mod interrupts;
mod messages;
mod model_stream;
mod native_events;
mod native_message;
mod node_output;
mod node_runs;
mod output_rules;
mod protocol_v2;
mod python_repr;
mod run;
mod run_verdict;
mod shown_messages;
mod stream_modes;
pub mod thread_state;
mod tool_calls;

use indexmap::IndexMap;
use serde_json::value::RawValue;

pub(in crate::format) use self::interrupts::new_interrupt;
pub(super) use self::{
    call_ids::ListedCalls,
    event_ids::is_earlier_id,
    interrupts::BREAKPOINT_ID,
    messages::{NativeIds, canonical_message, is_generated_id, one_or_many, reasoning_messages},
};
use self::{
    frame_templates::FrameTemplates,
    generated_run_ids::GeneratedRunIds,
    messages::ShownIds,
    model_stream::{DeltaSlot, ModelStream},
    native_message::MessageKind,
    node_runs::NodeRuns,
    output_rules::OutputRules,
    run::LangGraphRun,
    shown_messages::ShownMessages,
    tool_calls::ToolCalls,
};
use super::{
    namespace::outer,
    options::ReaderOptions,
    raw_json,
    wire::{EventMetadata, EventName, NativeFrame, NativeMessage, StreamMode},
};
use crate::{
    event::{Body, Event, Extra, Interner, MessageId, RunId, StreamEnd, SubagentId, ThreadId},
    format::{Reader, Setup},
    framing::Frame,
    json::{Json, ReadError, ReadResult, kind_of},
    tally::Tally,
};

/// Bound on concurrent model streams; beyond it the oldest one is closed. Graphs rarely run ten.
const MAX_STREAMS: usize = 512;

/// Name of an unknown object in the tally.
const UNNAMED: &str = "object without `event`, `mode` or `method`";

/// Bound on the frames before the run starts; the server sends one.
const MAX_EARLY: usize = 64;

/// Reader for all streams of LangChain and LangGraph.
#[derive(Debug)]
pub(super) struct LangGraphReader {
    options: ReaderOptions,
    thread: ThreadId,
    given_run: RunId,
    tally: Tally,
    names: Interner,
    shown: ShownMessages,
    /// The state that the client has, without the messages.
    state: Option<serde_json::Value>,
    calls: ToolCalls,
    streams: IndexMap<Box<str>, ModelStream>,
    nodes: NodeRuns,
    run: LangGraphRun,
    generated_run_ids: GeneratedRunIds,
    templates: FrameTemplates,
    /// Raw frames from before the start of the run; they are emitted after it.
    early: Vec<Json>,
    /// Chains that are shown as reasoning.
    chains: IndexMap<Box<str>, MessageId>,
}

/// The parts of the reader that its tables share while a frame is read.
struct ReaderContext<'c> {
    options: &'c ReaderOptions,
    shown: &'c mut ShownMessages,
    calls: &'c mut ToolCalls,
    names: &'c mut Interner,
    tally: &'c mut Tally,
    out: &'c mut Vec<Event>,
}

impl ReaderContext<'_> {
    fn emit(&mut self, event: Event) {
        self.shown.apply(&event);
        self.out.push(event);
    }
}

/// Borrows the shared parts of the reader, so that one table can be borrowed beside them.
macro_rules! cx {
    ($reader:expr, $out:expr) => {
        &mut $crate::format::langgraph::reader::ReaderContext {
            options: &$reader.options,
            shown: &mut $reader.shown,
            calls: &mut $reader.calls,
            names: &mut $reader.names,
            tally: &mut $reader.tally,
            out: $out,
        }
    };
}
use cx;

impl LangGraphReader {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            options: ReaderOptions::new(setup.options),
            thread: setup.thread.clone(),
            given_run: setup.run.clone(),
            tally: Tally::default(),
            names: Interner::default(),
            shown: ShownMessages::default(),
            state: None,
            calls: ToolCalls::default(),
            streams: IndexMap::new(),
            nodes: NodeRuns::default(),
            run: LangGraphRun::default(),
            generated_run_ids: GeneratedRunIds::default(),
            templates: FrameTemplates::default(),
            early: Vec::new(),
            chains: IndexMap::new(),
        }
    }

    /// Adds a stream, unless `key` is in use.
    fn add_stream(&mut self, key: &str, stream: ModelStream, out: &mut Vec<Event>) {
        if self.streams.contains_key(key) {
            return;
        }
        if self.streams.len() >= MAX_STREAMS {
            self.tally.note("too many models at once", key);
            let oldest = self.streams.keys().next().cloned().unwrap_or_default();
            self.finish_stream(&oldest, out);
        }
        self.streams.insert(key.into(), stream);
    }

    /// Ends the message of a stream.
    fn finish_stream(&mut self, key: &str, out: &mut Vec<Event>) {
        if let Some(mut stream) = self.streams.shift_remove(key) {
            self.templates.remove(key);
            if let Some(latest) = stream.received.latest.take()
                && let Some((_, message)) = NativeMessage::read(&latest, &mut self.tally)
            {
                stream.read_complete(&message, cx!(self, out));
            }
            if let Some(usage) = stream.finish(cx!(self, out)) {
                self.run.usage.add(usage, stream.native_id());
            }
            if let Some(id) = stream.native_id().filter(|_| stream.is_shown()) {
                self.shown.add_streamed(id);
            }
        }
    }

    /// Ends the messages of all streams that match.
    fn finish_streams(&mut self, matches: impl Fn(&ModelStream) -> bool, out: &mut Vec<Event>) {
        let matching = self.streams.iter().filter(|(_, stream)| matches(stream));
        let keys: Vec<Box<str>> = matching.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.finish_stream(&key, out);
        }
    }

    /// Ends the messages of all streams in the namespace `ns` and below it.
    fn finish_streams_at(&mut self, ns: &str, out: &mut Vec<Event>) {
        if ns.is_empty() || self.streams.is_empty() {
            return;
        }
        let nested = format!("{ns}|");
        let is_inside = |at: &str| *at == *ns || at.starts_with(&nested);
        self.finish_streams(|stream| is_inside(&stream.identity.ns), out);
    }

    /// Ends the messages of all streams inside the graph at `ns`.
    fn finish_streams_within(&mut self, ns: &str, out: &mut Vec<Event>) {
        let nested = format!("{ns}|");
        self.finish_streams(|stream| ns.is_empty() || stream.identity.ns.starts_with(&nested), out);
    }

    /// Ends the messages of all streams of a node's run.
    fn finish_streams_of_node(&mut self, node: &str, out: &mut Vec<Event>) {
        self.finish_streams(|stream| stream.identity.node.as_deref() == Some(node), out);
    }

    /// Hides the messages that a hidden node returned.
    fn hide_returned(&mut self, output: &RawValue) {
        for raw in node_output::messages(output) {
            if let Some((_, message)) = NativeMessage::read(raw, &mut self.tally)
                && let Some(id) = message.id(&mut self.tally)
            {
                self.shown.hide(id.as_ref().into());
            }
        }
    }

    /// Reads a chunk into its stream, and stores the frame as a template for the fast path.
    fn read_model_chunk(&mut self, key: &str, chunk: &NativeMessage<'_>, frame: &str, out: &mut Vec<Event>) {
        let Some(at) = self.streams.get_index_of(key) else { return };
        let slot = self.streams[at].read_chunk(chunk, cx!(self, out));
        if let Some(slot) = slot
            && let Some(event) = out.last()
        {
            let (raw, message) = match (&slot, &event.body) {
                (DeltaSlot::Text(raw), Body::TextDelta { message, .. }) => (raw, message),
                (DeltaSlot::Reasoning(raw), Body::ReasoningDelta { message, .. }) => (raw, message),
                _ => return,
            };
            let is_text = matches!(slot, DeltaSlot::Text(_));
            self.templates.store(frame, raw, (at, key), message, event.subagent.as_ref(), is_text);
        }
    }

    /// Reads the messages that a node returned, and shows those that were not streamed.
    fn read_returned_messages(
        &mut self,
        output: &RawValue,
        ns: &str,
        owner: Option<&SubagentId>,
        rules: Option<&OutputRules>,
        out: &mut Vec<Event>,
    ) {
        let mut listed = ListedCalls::default();
        for raw in node_output::messages(output) {
            let Some((kind, message)) = NativeMessage::read(raw, &mut self.tally) else { continue };
            match kind {
                MessageKind::Ai => {
                    self.read_returned_message(&message, ns, owner, rules, out);
                    self.list_calls(&message, &mut listed);
                }
                MessageKind::Tool => {
                    let native = raw_json::non_empty(message.tool_call_id, &mut self.tally);
                    let call = native.and_then(|native| listed.add_result(&native));
                    tool_calls::send_result_message(cx!(self, out), &message, None, call, outer(ns));
                }
                _ => {}
            }
        }
    }

    /// Adds the tool calls of a message to those of its list.
    fn list_calls(&mut self, message: &NativeMessage<'_>, listed: &mut ListedCalls) {
        let Some(id) = message.id(&mut self.tally) else { return };
        let shown = self.shown.message_id(&id);
        for call in messages::complete_calls(message, &mut self.tally) {
            if let Some(native) = call.id {
                listed.add(&native, &shown, &self.shown);
            }
        }
    }

    /// Reads a complete assistant message that a node returned.
    fn read_returned_message(
        &mut self,
        message: &NativeMessage<'_>,
        ns: &str,
        owner: Option<&SubagentId>,
        rules: Option<&OutputRules>,
        out: &mut Vec<Event>,
    ) {
        // A message without an id cannot be identified; the graph assigns one when it stores the message.
        let Some(id) = message.id(&mut self.tally) else { return };
        if let Some(key) = self.stream_of_message(&id) {
            let at = self.streams.get_index_of(&*key).expect("the stream was found");
            self.streams[at].read_complete(message, cx!(self, out));
            return self.finish_stream(&key, out);
        }
        let shown = self.shown.message_id(&id);
        if self.shown.contains(&shown)
            || self.shown.is_partly_hidden(&id)
            || self.run.conversation.history.contains(&*id)
            || self.shown.was_streamed(&id) && is_without_content(message)
        {
            return;
        }
        let mut stream = ModelStream::new(&*id, ns);
        stream.identity.owner = owner.cloned();
        stream.identity.is_hidden = self.options.hides_node(ns, "");
        stream.identity.rules = rules.cloned().map(Box::new);
        stream.read_complete(message, cx!(self, out));
        stream.ensure_shown(cx!(self, out));
        if let Some(usage) = stream.finish(cx!(self, out)) {
            self.run.usage.add(usage, Some(&id));
        }
    }

    /// The key of the stream of a message.
    fn stream_of_message(&self, id: &str) -> Option<Box<str>> {
        let found = self.streams.iter().find(|(_, stream)| stream.native_id() == Some(id));
        found.map(|(key, _)| key.clone())
    }

    /// Reads the text of a frame, by a template if one matches.
    fn read_text(&mut self, frame: &Frame<'_>, text: &str, out: &mut Vec<Event>) -> ReadResult {
        if self.templates.read_frame(text, &mut self.streams, &mut self.tally, out) {
            return Ok(());
        }
        match python_repr::restored(text) {
            Some(restored) => self.parse_text(frame, &restored, out),
            None => self.parse_text(frame, text, out),
        }
    }

    /// Parses the text of a frame and determines its input.
    fn parse_text(&mut self, frame: &Frame<'_>, text: &str, out: &mut Vec<Event>) -> ReadResult {
        // The server's event name is `MODE`, or `MODE|NAMESPACE` for a nested graph.
        if let Some(name) = frame.event {
            let (mode, ns) = name.split_once('|').unwrap_or((name, ""));
            if let Some(mode) = StreamMode::parse(mode) {
                let raw = parse(text)?;
                // Protocol v2 uses some of the same names.
                match NativeFrame::of(raw) {
                    Some(native) if native.method.is_some() && native.params.is_some() => {
                        self.read_protocol(&native, text, out);
                    }
                    _ => self.read_mode(mode, ns, raw, text, out),
                }
                return Ok(());
            }
        }
        let raw = parse(text)?;
        if raw_json::is_array(raw) {
            self.read_tuple(raw, text, out);
            return Ok(());
        }
        let Some(native) = NativeFrame::of(raw) else {
            return Err(ReadError::new(
                "",
                format!("expected an event, a mode tuple or a state, found {}", kind_of(text)),
            ));
        };
        self.read_object(&native, raw, frame.event.unwrap_or(UNNAMED), text, out);
        Ok(())
    }

    /// Reads an object whose input its members identify.
    fn read_object(
        &mut self,
        native: &NativeFrame<'_>,
        raw: &RawValue,
        origin: &str,
        text: &str,
        out: &mut Vec<Event>,
    ) {
        if native.method.is_some() && native.params.is_some() {
            return self.read_protocol(native, text, out);
        }
        if let Some(event) = native.event.and_then(|event| raw_json::string(event, &mut self.tally)) {
            return match EventName::parse(&event) {
                Some(EventName::Error) => self.run_failed(native.data, out),
                Some(name) => self.read_event(name, native, text, false, out),
                None => {
                    self.start_if_idle(out);
                    self.tally.note("unknown event", &event);
                }
            };
        }
        let mode = native.mode.or(native.kind).and_then(|mode| raw_json::string(mode, &mut self.tally));
        if let Some(mode) = mode
            && let Some(data) = native.data
        {
            let ns = raw_json::strings(native.ns, &mut self.tally).join("|");
            return match StreamMode::parse(&mode) {
                Some(mode) => self.read_mode(mode, &ns, data, text, out),
                None => self.tally.note("unknown stream mode", &mode),
            };
        }
        if native.values.is_some() && native.next.is_some() {
            return self.read_mode(StreamMode::State, "", raw, text, out);
        }
        if native.status.is_some() && native.run_id.is_some() && native.assistant_id.is_some() {
            return self.read_mode(StreamMode::Run, "", raw, text, out);
        }
        if let Some(result) = native.result {
            return self.read_protocol_response(result);
        }
        if NativeMessage::read(raw, &mut self.tally).is_some() {
            // The chunks of a model without a graph, one per line.
            return self.read_message("", raw, &EventMetadata::default(), text, out);
        }
        self.tally.note("unknown frame", origin);
    }

    /// Attaches the native frame to the first event that it became; without one, emits a raw event if the run is
    /// active.
    fn attach_raw(&mut self, text: &str, before: usize, out: &mut Vec<Event>) {
        let Ok(raw) = serde_json::from_str::<&RawValue>(text) else { return };
        let raw = raw_json::json(raw, &mut self.tally);
        let raw_event = |event| Event::new(Body::Raw { event, source: Some("langgraph".into()) });
        match out.get_mut(before) {
            Some(event) => {
                let extra: &mut Extra = event.extra.get_or_insert_default();
                extra.raw = Some(raw);
                if matches!(event.body, Body::RunStarted(_)) {
                    let early = std::mem::take(&mut self.early).into_iter().map(raw_event);
                    out.splice(before + 1..before + 1, early);
                }
            }
            None if self.run.is_active() => out.push(raw_event(raw)),
            None if self.run.is_over() => {}
            None if self.early.len() < MAX_EARLY => self.early.push(raw),
            None => {}
        }
    }
}

/// Parses `text`, which must be JSON.
fn parse(text: &str) -> ReadResult<&RawValue> {
    serde_json::from_str(text).map_err(ReadError::invalid_json)
}

impl Reader for LangGraphReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult {
        self.tally.at_frame(frame.index + 1);
        let text = frame.text();
        let before = out.len();
        let result = match self.read_text(frame, text, out) {
            Err(error) => match raw_json::repaired(text, &mut self.tally) {
                Some(repaired) => self.read_text(frame, &repaired, out),
                None => Err(error),
            },
            result => result,
        };
        if self.options.raw && result.is_ok() {
            self.attach_raw(text, before, out);
        }
        result
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        self.tally.at_frame(0);
        self.stream_closed(end, out);
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// True if a message has neither text nor calls: at most reasoning.
fn is_without_content(message: &NativeMessage<'_>) -> bool {
    let is_empty =
        |value: Option<&RawValue>| value.is_none_or(|value| matches!(value.get(), "\"\"" | "[]" | "null"));
    is_empty(message.content) && is_empty(message.tool_calls) && is_empty(message.invalid_tool_calls)
}
