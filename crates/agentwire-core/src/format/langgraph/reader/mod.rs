//! The state machine from LangGraph's streams to canonical events.
//!
//! Five inputs are told apart frame by frame ([`LangGraphReader::read`]): native events (`events.rs`), the
//! server's frames and a graph's mode tuples (`modes.rs`), and the server's protocol v2 (`protocol.rs`). All of
//! them tell the same story in other words, so all of them end up in the same few tables: answers of models
//! (`lane.rs`), calls of tools (`calls.rs`), nodes (`nodes.rs`), the conversation (`client.rs`), and the run
//! itself (`run.rs`).

mod call_ids;
mod content_blocks;
mod custom_events;
mod frame_templates;
mod made_run_ids;
mod messages;
mod model_stream;
mod native_events;
mod node_output;
mod node_runs;
mod protocol_v2;
mod python_repr;
mod run;
mod shown_messages;
mod stream_modes;
pub mod thread_state;
mod tool_calls;

use indexmap::IndexMap;
use serde_json::value::RawValue;

pub(super) use self::messages::is_stand_in;
use self::{
    call_ids::Reused,
    frame_templates::Templates,
    made_run_ids::Unnamed,
    messages::Kind,
    model_stream::{Hole, Lane},
    node_runs::Nodes,
    run::Run,
    shown_messages::Client,
    tool_calls::Calls,
};
use super::{
    namespace::outer,
    options::Settings,
    raw_json,
    wire::{self, EventName, Mode, Native},
};
use crate::{
    event::{Body, Event, Interner, RunId, StreamEnd, SubagentId, ThreadId},
    format::{Reader, Setup},
    framing::Frame,
    json::{Json, ReadError, kind_of},
    tally::Tally,
};

/// How many models may stream at once; beyond it the oldest answer is closed. Graphs rarely run ten.
const MAX_LANES: usize = 512;

/// What an object is called that nothing tells apart.
const UNNAMED: &str = "object without `event`, `mode` or `method`";

/// How many frames may come before the run begins; the server sends one.
const MAX_EARLY: usize = 64;

/// How many chains may be shown as thinking at once.
const MAX_CHAINS: usize = 1024;

/// Reads everything that LangChain and LangGraph stream.
#[derive(Debug)]
pub(super) struct LangGraphReader {
    settings: Settings,
    thread: ThreadId,
    given_run: RunId,
    tally: Tally,
    names: Interner,
    client: Client,
    /// The state as the user interface holds it, without the messages.
    state: Option<serde_json::Value>,
    calls: Calls,
    lanes: IndexMap<Box<str>, Lane>,
    nodes: Nodes,
    run: Run,
    unnamed: Unnamed,
    templates: Templates,
    /// Frames that came before the run began, to travel behind its start.
    early: Vec<Json>,
    /// Chains that are shown as thinking.
    chains: IndexMap<Box<str>, crate::event::MessageId>,
}

/// What the tables need of one another while a frame is read.
struct Cx<'c> {
    settings: &'c Settings,
    client: &'c mut Client,
    calls: &'c mut Calls,
    names: &'c mut Interner,
    tally: &'c mut Tally,
    out: &'c mut Vec<Event>,
}

impl Cx<'_> {
    fn emit(&mut self, event: Event) {
        self.client.apply(&event);
        self.out.push(event);
    }
}

/// Borrows what a table needs, leaving the other tables free.
macro_rules! cx {
    ($reader:expr, $out:expr) => {
        &mut $crate::format::langgraph::reader::Cx {
            settings: &$reader.settings,
            client: &mut $reader.client,
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
            settings: Settings::new(setup.options),
            thread: setup.thread.clone(),
            given_run: setup.run.clone(),
            tally: Tally::default(),
            names: Interner::default(),
            client: Client::default(),
            state: None,
            calls: Calls::default(),
            lanes: IndexMap::new(),
            nodes: Nodes::default(),
            run: Run::default(),
            unnamed: Unnamed::default(),
            templates: Templates::default(),
            early: Vec::new(),
            chains: IndexMap::new(),
        }
    }

    /// The answer that streams under `key`, new if need be.
    fn lane(&mut self, key: &str, make: impl FnOnce() -> Lane, out: &mut Vec<Event>) -> &mut Lane {
        if !self.lanes.contains_key(key) {
            if self.lanes.len() >= MAX_LANES {
                self.tally.note("too many models at once", key);
                let oldest = self.lanes.keys().next().cloned().unwrap_or_default();
                self.finish_lane(&oldest, out);
            }
            self.lanes.insert(key.into(), make());
        }
        let at = self.lanes.get_index_of(key).expect("the lane was there or was put there");
        &mut self.lanes[at]
    }

    /// An answer is complete.
    fn finish_lane(&mut self, key: &str, out: &mut Vec<Event>) {
        if let Some(mut lane) = self.lanes.shift_remove(key) {
            self.templates.forget(key);
            if let Some(latest) = lane.latest.take()
                && let Some((_, whole)) = wire::Message::read(&latest, &mut self.tally)
            {
                lane.complete(&whole, cx!(self, out));
            }
            if let Some(usage) = lane.finish(cx!(self, out)) {
                self.run.spend(usage, lane.native());
            }
        }
    }

    /// All answers at a place, or below it, are complete.
    fn finish_lanes_at(&mut self, ns: &str, out: &mut Vec<Event>) {
        if ns.is_empty() || self.lanes.is_empty() {
            return;
        }
        let inside = format!("{ns}|");
        let keys: Vec<Box<str>> = self
            .lanes
            .iter()
            .filter(|(_, lane)| *lane.ns == *ns || lane.ns.starts_with(&inside))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.finish_lane(&key, out);
        }
    }

    /// All answers inside the graph at a place are complete.
    fn finish_lanes_within(&mut self, ns: &str, out: &mut Vec<Event>) {
        let inside = format!("{ns}|");
        let within = |lane: &Lane| ns.is_empty() || lane.ns.starts_with(&inside);
        let keys: Vec<Box<str>> =
            self.lanes.iter().filter(|(_, lane)| within(lane)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.finish_lane(&key, out);
        }
    }

    /// All answers in a node are complete.
    fn finish_lanes_in(&mut self, node: &str, out: &mut Vec<Event>) {
        let inside = self.lanes.iter().filter(|(_, lane)| lane.node.as_deref() == Some(node));
        let keys: Vec<Box<str>> = inside.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.finish_lane(&key, out);
        }
    }

    /// Messages that a node returned which is left out: they are never shown.
    fn hide_returned(&mut self, output: &RawValue) {
        for raw in node_output::messages(output) {
            if let Some((_, message)) = wire::Message::read(raw, &mut self.tally)
                && let Some(id) = message.id(&mut self.tally)
            {
                self.client.hide(id.as_ref().into());
            }
        }
    }

    /// Feeds a chunk to its lane, and notes the frame's shape for the fast lane.
    fn chunk(&mut self, key: &str, chunk: &wire::Message<'_>, frame: &str, out: &mut Vec<Event>) {
        let Some(at) = self.lanes.get_index_of(key) else { return };
        let hole = self.lanes[at].chunk(chunk, cx!(self, out));
        if let Some(hole) = hole
            && let Some(event) = out.last()
        {
            let (raw, message) = match (&hole, &event.body) {
                (Hole::Text(raw), Body::TextDelta { message, .. }) => (raw, message),
                (Hole::Reasoning(raw), Body::ReasoningDelta { message, .. }) => (raw, message),
                _ => return,
            };
            let is_text = matches!(hole, Hole::Text(_));
            self.templates.learn(frame, raw, key, message, event.subagent.as_ref(), is_text);
        }
    }

    /// Messages that a node returned: what was not streamed is shown now.
    fn returned(&mut self, output: &RawValue, ns: &str, owner: Option<&SubagentId>, out: &mut Vec<Event>) {
        let mut reused = Reused::default();
        for raw in node_output::messages(output) {
            let Some((kind, message)) = wire::Message::read(raw, &mut self.tally) else { continue };
            match kind {
                Kind::Ai => {
                    self.returned_answer(&message, ns, owner, out);
                    self.note_calls(&message, &mut reused);
                }
                Kind::Tool => {
                    let native = raw_json::filled(message.tool_call_id, &mut self.tally);
                    let place = native.and_then(|native| reused.answer(&native));
                    tool_calls::answer_message(cx!(self, out), &message, None, place, outer(ns));
                }
                _ => {}
            }
        }
    }

    /// Notes which calls a message of a list holds.
    fn note_calls(&mut self, message: &wire::Message<'_>, reused: &mut Reused) {
        use messages::Naming;
        let Some(id) = message.id(&mut self.tally) else { return };
        let shown = self.client.message(&id);
        for call in messages::calls(message, &mut self.tally) {
            if let Some(native) = call.id {
                reused.call(&native, &shown, &self.client);
            }
        }
    }

    /// An answer that a node returned as a whole.
    fn returned_answer(
        &mut self,
        message: &wire::Message<'_>,
        ns: &str,
        owner: Option<&SubagentId>,
        out: &mut Vec<Event>,
    ) {
        // Without an id nothing can be said about it yet; the graph gives it one when it takes it in.
        let Some(id) = message.id(&mut self.tally) else { return };
        if let Some(key) = self.lane_of(&id) {
            let at = self.lanes.get_index_of(&*key).expect("the lane was found");
            self.lanes[at].complete(message, cx!(self, out));
            return self.finish_lane(&key, out);
        }
        use messages::Naming;
        let shown = self.client.message(&id);
        if self.client.has(&shown) || self.run.history.contains(&*id) {
            return;
        }
        let mut lane = Lane::new(&*id, ns);
        lane.owner = owner.cloned();
        lane.hidden = self.settings.hides_node(ns, "");
        lane.complete(message, cx!(self, out));
        lane.announce(cx!(self, out));
        if let Some(usage) = lane.finish(cx!(self, out)) {
            self.run.spend(usage, Some(&id));
        }
    }

    /// The lane in which a message streams.
    fn lane_of(&self, id: &str) -> Option<Box<str>> {
        let found = self.lanes.iter().find(|(_, lane)| lane.native() == Some(id));
        found.map(|(key, _)| key.clone())
    }

    /// Reads one frame's text.
    fn text(&mut self, frame: &Frame<'_>, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        if self.templates.fill(text, &mut self.lanes, &mut self.tally, out) {
            return Ok(());
        }
        match python_repr::restored(text) {
            Some(restored) => self.whole(frame, &restored, out),
            None => self.whole(frame, text, out),
        }
    }

    /// Reads one frame's text the long way.
    fn whole(&mut self, frame: &Frame<'_>, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        // The server names its frames, with the place of a nested graph behind a bar.
        if let Some(name) = frame.event {
            let (mode, ns) = name.split_once('|').unwrap_or((name, ""));
            if let Some(mode) = Mode::parse(mode) {
                let raw = parse(text)?;
                // Protocol v2 uses some of the same names.
                match Native::of(raw) {
                    Some(native) if native.method.is_some() && native.params.is_some() => {
                        self.protocol(&native, text, out);
                    }
                    _ => self.mode(mode, ns, raw, text, out),
                }
                return Ok(());
            }
        }
        let raw = parse(text)?;
        if raw_json::is_array(raw) {
            self.tuple(raw, text, out);
            return Ok(());
        }
        let Some(native) = Native::of(raw) else {
            return Err(ReadError::new(
                "",
                format!("expected an event, a mode tuple or a state, found {}", kind_of(text)),
            ));
        };
        self.object(&native, raw, frame.event.unwrap_or(UNNAMED), text, out);
        Ok(())
    }

    /// An object on a line: says which of the inputs it is.
    fn object(
        &mut self,
        native: &Native<'_>,
        raw: &RawValue,
        origin: &str,
        text: &str,
        out: &mut Vec<Event>,
    ) {
        if native.method.is_some() && native.params.is_some() {
            return self.protocol(native, text, out);
        }
        if let Some(event) = native.event.and_then(|event| raw_json::string(event, &mut self.tally)) {
            return match EventName::parse(&event) {
                Some(EventName::Error) => self.failed(native.data, out),
                Some(name) => self.event(name, native, text, false, out),
                None => {
                    self.begin_if_idle(out);
                    self.tally.note("unknown event", &event);
                }
            };
        }
        let mode = native.mode.or(native.kind).and_then(|mode| raw_json::string(mode, &mut self.tally));
        if let Some(mode) = mode
            && native.data.is_some()
        {
            let ns = raw_json::strings(native.ns, &mut self.tally).join("|");
            return match (Mode::parse(&mode), native.data) {
                (Some(mode), Some(data)) => self.mode(mode, &ns, data, text, out),
                _ => self.tally.note("unknown stream mode", &mode),
            };
        }
        if native.values.is_some() && native.next.is_some() {
            return self.mode(Mode::State, "", raw, text, out);
        }
        if native.status.is_some() && native.run_id.is_some() && native.assistant_id.is_some() {
            return self.mode(Mode::Run, "", raw, text, out);
        }
        if let Some(result) = native.result {
            // The answer to a command of protocol v2 names the run.
            return self.protocol_answer(result);
        }
        if wire::Message::read(raw, &mut self.tally).is_some() {
            // What a model streams without a graph, written line by line.
            return self.message("", raw, &wire::Meta::default(), text, out);
        }
        self.tally.note("unknown frame", origin);
    }
}

/// The value that `text` must be.
fn parse(text: &str) -> Result<&RawValue, ReadError> {
    serde_json::from_str(text).map_err(|error| ReadError::new("", format!("not valid JSON: {error}")))
}

impl Reader for LangGraphReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
        self.tally.at_frame(frame.index + 1);
        let text = frame.text();
        let before = out.len();
        let result = match self.text(frame, text, out) {
            Err(error) => match raw_json::repaired(text, &mut self.tally) {
                Some(repaired) => self.text(frame, &repaired, out),
                None => Err(error),
            },
            result => result,
        };
        if self.settings.raw && result.is_ok() {
            self.attach_raw(text, before, out);
        }
        result
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        self.tally.at_frame(0);
        self.closed(end, out);
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
