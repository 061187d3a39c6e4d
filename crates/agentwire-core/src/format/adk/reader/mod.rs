//! The reader: ADK frames to canonical events.
//!
//! This module assigns each event to a turn and decides which of its parts are new; the other modules convert the parts.

mod actions;
mod agent_streams;
mod citations;
pub(super) mod decode;
mod emitter;
mod failure;
mod finish;
mod frame_templates;
pub(super) mod interrupts;
mod media;
mod message_ids;
mod metadata;
mod model_turn;
mod partial_args;
mod run;
mod session_history;
pub(super) mod session_state;
mod steps;
mod stored_session;
mod transcript;
mod user_message;

use self::{
    agent_streams::AgentStreams,
    decode::{Member, milliseconds, parse, parse_raw},
    emitter::AdkEmitter,
    failure::{AdkFailure, RaisedError},
    frame_templates::FrameTemplates,
    message_ids::MessageIds,
    model_turn::{ModelTurn, is_model_output},
    run::{AdkRun, PartContext},
    session_state::SessionState,
    steps::{EventOrigin, OpenSteps},
};
use crate::{
    event::{Body, Event, MessageId, RunStarted, StreamEnd, Usage},
    format::{
        Reader,
        adk::{
            options::AdkReaderOptions,
            wire::{AdkEvent, AdkText, EventActions, PartList},
        },
    },
    framing::{Frame, Payload},
    json::{Json, Path, ReadError, ReadResult, elements, json, kind_of},
    tally::Tally,
};

/// The author of the user's events.
const USER: &str = "user";

/// True if two texts that are often empty are equal. The address of an empty text is no memory, and the library function
/// that compares bytes with AVX-512 takes 0.1 µs for its masked load from there, even if it loads no byte.
fn is_equal(one: &str, other: &str) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

/// Reads the events of ADK 1.x and 2.x.
#[derive(Debug)]
pub(super) struct AdkReader {
    run: AdkRun,
    streams: AgentStreams,
    steps: OpenSteps,
    state: SessionState,
    usage: Vec<Usage>,
    /// The output of a workflow's root node.
    result: Option<Json>,
    /// The failure of the run; a later one replaces an earlier one.
    failure: Option<AdkFailure>,
    is_started: bool,
    /// True if the stream contained any ADK event.
    has_events: bool,
    /// True if the stream contained a frame that is no ADK event.
    has_unknown_frames: bool,
    /// True if the terminal event was emitted before the end of the stream, with `long_running=return`.
    has_returned: bool,
    /// The id of the last whole event, if it had content.
    last_whole: Option<MessageId>,
    /// The last custom metadata; ADK repeats the metadata of a request on every event.
    last_metadata: Option<Json>,
    ids: MessageIds,
    templates: FrameTemplates,
    /// The timestamp of the last event, for events that the reader generates.
    now: Option<i64>,
}

impl AdkReader {
    pub(super) fn new(options: AdkReaderOptions) -> Self {
        Self {
            state: SessionState::new(options.state.as_ref(), options.show_temp),
            steps: OpenSteps::new(&options),
            run: AdkRun::new(options),
            streams: AgentStreams::default(),
            usage: Vec::new(),
            result: None,
            failure: None,
            is_started: false,
            has_events: false,
            has_unknown_frames: false,
            has_returned: false,
            last_whole: None,
            last_metadata: None,
            ids: MessageIds::default(),
            templates: FrameTemplates::default(),
            now: None,
        }
    }

    /// Reads a frame: an event, an error, a session, or an array of events.
    fn read_frame(&mut self, text: &str, out: &mut Vec<Event>) -> ReadResult {
        let text = text.trim();
        match text.as_bytes().first() {
            Some(b'{') => self.read_object(text, out),
            // The array of `/run` through a proxy that adds framing.
            Some(b'[') if text != "[DONE]" => {
                for element in elements(parse_raw(text)?, Path::Root)? {
                    self.read_object(element.get(), out)?;
                }
                Ok(())
            }
            // Some servers encode the JSON twice.
            Some(b'"') => {
                let inner: String = serde_json::from_str(text).map_err(ReadError::invalid_json)?;
                self.read_object(inner.trim(), out)
            }
            Some(b'<') => Err(ReadError::new("", "expected an ADK event, found an HTML or XML page")),
            None => Ok(()),
            Some(_) if text == "[DONE]" => {
                self.run.tally.note("unknown frame", text);
                Ok(())
            }
            Some(_) => {
                let found = kind_of(parse_raw(text)?.get());
                Err(ReadError::new("", format!("expected an ADK event, found {found}")))
            }
        }
    }

    fn read_object(&mut self, text: &str, out: &mut Vec<Event>) -> ReadResult {
        // Taken out, because the event borrows from them.
        let templates = std::mem::take(&mut self.templates);
        let done = templates.read(text).map(|(index, event)| (index, self.read_native(&event, text, out)));
        self.templates = templates;
        match done {
            Some((index, done)) => {
                self.templates.note_match(index);
                done
            }
            None => self.parse_object(text, out),
        }
    }

    fn parse_object(&mut self, text: &str, out: &mut Vec<Event>) -> ReadResult {
        match serde_json::from_str::<AdkEvent<'_>>(text) {
            Ok(event) => {
                self.templates.store(text, &event);
                self.read_native(&event, text, out)
            }
            Err(_) => {
                // Repairs lone surrogates; any other problem becomes an error that names the member.
                let json = json(parse_raw(text)?, Path::Root, &mut self.run.tally)?;
                let raw = parse_raw(json.get())?;
                let event: AdkEvent<'_> =
                    serde_json::from_str(raw.get()).map_err(|_| AdkEvent::explain(raw, Path::Root))?;
                self.read_native(&event, json.get(), out)
            }
        }
    }

    fn read_native(&mut self, event: &AdkEvent<'_>, text: &str, out: &mut Vec<Event>) -> ReadResult {
        if self.has_returned {
            return Ok(());
        }
        if let Some(seconds) = event.timestamp {
            self.now = milliseconds(seconds.value);
        }
        let is_event = event.author.is_some() || event.content.is_some() || event.actions.is_some();
        if !is_event && event.events.is_some() {
            return self.read_session(text, out);
        }
        self.emit_run_started(None, out);
        let first = out.len();
        let done = if is_event {
            self.has_events = true;
            self.read_event(event, out)
        } else if let Some(mut failure) = AdkFailure::of_server(event) {
            self.has_events = true;
            // A failure with a code in an earlier event takes precedence over an error frame without one.
            let before = self.failure.take();
            self.failure = match before {
                Some(before) if !failure.has_code() => Some(before),
                before => {
                    failure.subagent = before.map_or_else(|| self.steps.subagent(), |before| before.subagent);
                    Some(failure)
                }
            };
            Ok(())
        } else if event.id.is_some() || event.invocation.is_some() || event.error_code.is_some() {
            self.has_events = true;
            self.read_event(event, out)
        } else {
            let name = event.unknown.first().map_or("{}", AdkText::as_str);
            self.run.tally.note("unknown frame", name);
            self.has_unknown_frames = true;
            Ok(())
        };
        if self.run.options.attach_raw {
            self.attach_raw(text, first, out);
        }
        if is_event && self.run.options.returns_at_pending_call && self.run.has_pending_call() {
            self.has_returned = true;
            self.finish(&StreamEnd::Closed, out);
        }
        done
    }

    fn emit_run_started(&mut self, thread: Option<&str>, out: &mut Vec<Event>) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        if let Some(thread) = thread {
            self.run.options.thread = thread.into();
        }
        let AdkReaderOptions { thread, run, .. } = &self.run.options;
        let started = RunStarted::new(thread.clone(), run.clone());
        AdkEmitter::new(out, self.now).push(Body::RunStarted(Box::new(started)));
    }

    /// Attaches the native event to the first event that it produced, or emits it as a raw event.
    fn attach_raw(&mut self, text: &str, first: usize, out: &mut Vec<Event>) {
        let Ok(raw) = Json::parse(text) else {
            return;
        };
        match out.get_mut(first) {
            Some(event) => event.extra.get_or_insert_default().raw = Some(raw),
            None => AdkEmitter::new(out, self.now).push(Body::Raw { event: raw, source: Some("adk".into()) }),
        }
    }

    fn read_event(&mut self, event: &AdkEvent<'_>, out: &mut Vec<Event>) -> ReadResult {
        for name in &event.unknown {
            self.run.tally.note("unknown property", name.as_str());
        }
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        for name in parts.iter().flat_map(|parts| parts.iter()).flat_map(|part| &part.unknown) {
            self.run.tally.note("unknown property", &format!("part.{}", name.as_str()));
        }
        let emitter = &mut AdkEmitter::new(out, self.now);
        let origin = EventOrigin {
            path: event.node.as_ref().and_then(|node| node.path.as_ref()).map_or("", AdkText::as_str),
            branch: event.branch.as_ref().map_or("", AdkText::as_str),
            author: event.author.as_ref().map_or("", AdkText::as_str),
        };
        if origin.author == USER {
            self.run.set_subagent(None, emitter);
            return self.read_user_event(event, emitter);
        }
        if !origin.is_unknown() {
            let streams = &self.streams;
            self.steps.enter(origin, |origin| streams.is_busy(origin), emitter, &mut self.run.tally);
            self.run.set_subagent(self.steps.subagent(), emitter);
        }
        let invocation = event.invocation.as_ref().map_or("", AdkText::as_str);
        let (index, evicted) = self.streams.find(invocation, origin);
        if let Some(mut turn) = evicted.and_then(|stream| stream.turn) {
            self.run.tally.note("stream closed early", "too many agents at once");
            self.run.close_turn(&mut turn, emitter);
            self.run.set_subagent(self.steps.subagent(), emitter);
        }
        if let Some(call) = &event.isolation_scope {
            self.run.mark_delegated(call.as_str());
        }
        self.recover_failure(event, origin, emitter);
        if event.partial == Some(true) {
            self.read_partial(event, index, emitter)
        } else {
            self.read_whole(event, index, origin, emitter)
        }
    }

    /// Turns a failure into a warning if the node that raised the error, or an ancestor, continues. The messages of the
    /// failed attempt are retracted, because ADK does not store them.
    fn recover_failure(
        &mut self,
        event: &AdkEvent<'_>,
        origin: EventOrigin<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) {
        let is_alive = event.error_code.is_none() && (event.content.is_some() || event.output.is_some());
        let recovered = |failure: &mut AdkFailure| is_alive && failure.is_recovered_by(origin.path);
        let Some(failure) = self.failure.take_if(recovered) else {
            return;
        };
        emitter.warning(&failure.code, &failure.message);
        if let Some(raised) = failure.raised
            && !raised.unfinished.is_empty()
        {
            self.run.unfinished_elsewhere = self.streams.unfinished(usize::MAX);
            self.run.retract_messages(&raised.unfinished, emitter);
        }
    }

    /// A partial event. Only its content is read; the closing event repeats all other members.
    fn read_partial(
        &mut self,
        event: &AdkEvent<'_>,
        index: usize,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        if let Some(parts) = parts.filter(|parts| parts.iter().any(is_model_output)) {
            let mut turn = self.take_turn(event, index);
            self.run.set_subagent(turn.subagent.clone(), emitter);
            let context = PartContext {
                message: &turn.id.clone(),
                event_id: event.id.as_ref().map_or("", AdkText::as_str),
                long_running: &[],
                actions: None,
                path: Path::Root,
            };
            let mut done = Ok(());
            for part in parts.iter() {
                done = done.and(self.run.read_part(&mut turn, part, None, context, emitter));
            }
            if event.interrupted == Some(true) {
                self.run.close_turn(&mut turn, emitter);
            } else if turn.is_overgrown() {
                self.run.tally.note("turn closed early", "too many blocks in one turn");
                self.run.close_turn(&mut turn, emitter);
            } else {
                self.streams.all[index].turn = Some(turn);
            }
            done?;
        }
        if let Some(mut failure) = AdkFailure::of_event(event) {
            failure.subagent = self.steps.subagent();
            self.streams.all[index].failure = Some(failure);
        }
        self.read_transcriptions(event, emitter)
    }

    /// Takes the open turn of a stream, or creates one.
    fn take_turn(&mut self, event: &AdkEvent<'_>, index: usize) -> Box<ModelTurn> {
        let mut turn = match self.streams.all[index].turn.take() {
            Some(turn) => turn,
            None => {
                let id = self.fresh_id(event);
                let stream = &mut self.streams.all[index];
                let mut turn = Box::new(ModelTurn::new(id, &stream.author));
                turn.subagent = self.steps.subagent();
                turn.pending_code = stream.pending_code.take();
                turn
            }
        };
        if turn.model.is_none()
            && let Some(model) = &event.model
        {
            turn.model = Some(model.as_str().into());
        }
        turn
    }

    /// A message id for the event that no other turn has.
    fn fresh_id(&mut self, event: &AdkEvent<'_>) -> MessageId {
        let native = event.id.as_ref().map_or("", AdkText::as_str);
        self.ids.fresh(native, &self.run.options.run)
    }

    /// A whole event: a closing event, a tool result, a state change, or several of them.
    fn read_whole(
        &mut self,
        event: &AdkEvent<'_>,
        index: usize,
        origin: EventOrigin<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let actions = match event.actions {
            Some(raw) => parse::<EventActions<'_>>(raw, Path::Key(&Path::Root, "actions"))?,
            None => EventActions::default(),
        };
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        let has_parts = parts.is_some_and(|parts| parts.iter().next().is_some());
        let id = event.id.as_ref().map_or("", AdkText::as_str);
        if !has_parts && !id.is_empty() && self.last_whole.as_deref() == Some(id) {
            // The API server splits an event with artifacts in two; the second half repeats everything else.
            self.last_whole = None;
            return self.read_artifacts(&actions, emitter);
        }
        let mut message = None;
        let mut model = event.model.as_ref().map(|model| Box::from(model.as_str()));
        if let Some(parts) = parts {
            let (content_id, turn) = self.read_content(event, parts, &actions, index, emitter)?;
            if let Some(turn) = turn {
                model = model.or(turn.model);
                self.streams.all[index].pending_code = turn.pending_code;
            }
            message = Some(content_id);
        }
        self.last_whole = has_parts.then(|| MessageId::from(id));
        let mut unfinished = Vec::new();
        let ends_turn = event.finish_reason.is_some()
            || event.error_code.is_some()
            || event.turn_complete == Some(true)
            || event.interrupted == Some(true);
        if ends_turn && let Some(mut turn) = self.streams.all[index].turn.take() {
            model = model.or_else(|| turn.model.take());
            self.run.close_turn(&mut turn, emitter);
            unfinished = turn.emitted.messages;
            message = Some(turn.id);
        }
        self.read_metadata(event, message.as_ref(), model.as_deref(), emitter)?;
        self.read_actions(&actions, event, origin, emitter)?;
        self.read_outcome(event, message, index, emitter)?;
        if let Some(failure) = &mut self.failure
            && event.error_code.is_some()
            && !has_parts
            && failure.is_exception()
        {
            failure.raised = Some(RaisedError { path: origin.path.into(), unfinished });
        }
        Ok(())
    }

    /// The content of a whole event. Returns the id for references to it, and the turn that it closed.
    fn read_content(
        &mut self,
        event: &AdkEvent<'_>,
        parts: &PartList<'_>,
        actions: &EventActions<'_>,
        index: usize,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult<(MessageId, Option<Box<ModelTurn>>)> {
        self.run.unfinished_elsewhere = self.streams.unfinished(index);
        let has_output = parts.iter().any(is_model_output);
        let mut turn = has_output.then(|| self.take_turn(event, index));
        let id = match &turn {
            Some(turn) => turn.id.clone(),
            None => self.fresh_id(event),
        };
        let content = Path::Key(&Path::Root, "content");
        let list = Path::Key(&content, "parts");
        let context = PartContext {
            message: &id,
            event_id: event.id.as_ref().map_or("", AdkText::as_str),
            long_running: event.long_running.as_deref().unwrap_or_default(),
            actions: Some(actions),
            path: list,
        };
        let mut done = Ok(());
        if let Some(turn) = &mut turn {
            self.run.set_subagent(turn.subagent.clone(), emitter);
            self.streams.all[index].failure = None;
            if turn.agrees(parts) && self.run.calls_agree(turn, parts) {
                let mut prefix = turn.streamed_prefix();
                for (number, part) in parts.iter().enumerate() {
                    let context = PartContext { path: Path::Index(&list, number), ..context };
                    done = done.and(self.run.read_part(turn, part, Some(&mut prefix), context, emitter));
                }
                self.run.close_turn(turn, emitter);
            } else {
                done = self.run.correct_turn(turn, parts, context, emitter);
            }
        }
        let responses =
            parts.iter().enumerate().filter_map(|(number, part)| Some((number, part.response.as_ref()?)));
        for (count, (number, response)) in (0..).zip(responses) {
            let context = PartContext { path: Path::Index(&list, number), ..context };
            done = done.and(self.run.read_function_response(response, count, false, context, emitter));
        }
        done?;
        Ok((id, turn))
    }

    /// The finish reason and the failure of an event.
    fn read_outcome(
        &mut self,
        event: &AdkEvent<'_>,
        message: Option<MessageId>,
        index: usize,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        if let Some(reason) = event.finish_reason.as_ref().map(AdkText::as_str)
            && !matches!(reason, "STOP" | "FINISH_REASON_UNSPECIFIED")
        {
            emitter.push(Body::FinishReason { message, reason: reason.into() });
        }
        if let Some(mut failure) = AdkFailure::of_event(event) {
            failure.subagent = self.steps.subagent();
            self.streams.all[index].failure = None;
            if &*failure.code == "MAX_TOKENS" && self.run.options.max_tokens_is_warning {
                emitter.warning(&failure.code, &failure.message);
            } else {
                self.failure = Some(failure);
            }
        }
        Ok(())
    }
}

impl Reader for AdkReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult {
        if self.has_returned {
            return Ok(());
        }
        self.run.tally.at_frame(frame.index + 1);
        match frame.data {
            Payload::Text(text) => self.read_frame(text, out),
            Payload::Bytes(_) => Err(ReadError::new("", "expected an ADK event, found binary data")),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if !self.has_returned {
            self.finish(end, out);
        }
    }

    fn tally(&self) -> &Tally {
        &self.run.tally
    }
}
