//! ADK frames to canonical events.
//!
//! Which turn an event belongs to, which parts of it are new, is decided here; everything else has a module.

mod actions;
mod agent_streams;
mod citations;
pub(super) mod decode;
mod emitter;
mod failure;
mod finish;
pub(super) mod interrupts;
mod model_turn;
mod partial_args;
mod run;
pub(super) mod session_history;
pub(super) mod session_state;
mod steps;
mod stored_session;
mod transcript;
mod user_message;

use std::collections::HashSet;

use serde_json::value::RawValue;

use self::{
    agent_streams::AgentStreams,
    decode::{Member, invalid_json, milliseconds, parse, parse_raw},
    emitter::AdkEmitter,
    failure::{AdkFailure, RaisedError},
    model_turn::{ModelTurn, speaks},
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
    json::{Json, Path, ReadError, elements, json, kind_of},
    tally::Tally,
};

/// The author of what a person said.
const USER: &str = "user";

/// Reads ADK events, 1.x and 2.x alike.
#[derive(Debug)]
pub(super) struct AdkReader {
    run: AdkRun,
    streams: AgentStreams,
    steps: OpenSteps,
    state: SessionState,
    usage: Vec<Usage>,
    /// What the root of a workflow returned.
    result: Option<Json>,
    /// The last one counts: what ended the run.
    failure: Option<AdkFailure>,
    started: bool,
    /// Whether anything was understood.
    understood: bool,
    /// The id of the last whole event, if it had content.
    last_whole: Option<MessageId>,
    /// The last custom metadata; a request's own is repeated on every event.
    last_metadata: Option<Json>,
    /// Ids that turns have had.
    used: HashSet<MessageId>,
    /// Bytes of them.
    used_size: usize,
    /// How many ids had to be made.
    made: u64,
    /// The time of the last event, for those that a reader makes itself.
    now: Option<i64>,
}

impl AdkReader {
    /// How many ids are remembered, to tell a new turn from an old one with the same id.
    const MAX_USED: usize = 64 * 1024;
    /// How many bytes of ids are remembered: [`Self::MAX_USED`] of ADK's 36 bytes take less.
    const MAX_USED_SIZE: usize = 4 * 1024 * 1024;

    pub(super) fn new(settings: AdkReaderOptions) -> Self {
        Self {
            state: SessionState::new(settings.state.as_ref(), settings.show_temp),
            steps: OpenSteps::new(&settings),
            run: AdkRun::new(settings),
            streams: AgentStreams::default(),
            usage: Vec::new(),
            result: None,
            failure: None,
            started: false,
            understood: false,
            last_whole: None,
            last_metadata: None,
            used: HashSet::new(),
            used_size: 0,
            made: 0,
            now: None,
        }
    }

    /// One frame: an event, or one of the other things that a server sends.
    fn frame(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let text = text.trim();
        match text.as_bytes().first() {
            Some(b'{') => self.object(text, out),
            // `/run` through a proxy that frames it, and servers that encode twice.
            Some(b'[') if text != "[DONE]" => {
                let raw = parse_raw(text)?;
                for element in elements(raw, Path::Root)? {
                    self.object(element.get(), out)?;
                }
                Ok(())
            }
            Some(b'"') => {
                let inner: String = serde_json::from_str(text).map_err(|error| invalid_json(&error))?;
                self.object(inner.trim(), out)
            }
            Some(b'<') => Err(ReadError::new("", "expected an ADK event, found an HTML or XML page")),
            None => Ok(()),
            Some(_) if text == "[DONE]" => {
                self.run.tally.note("unknown frame", text);
                Ok(())
            }
            Some(_) => match serde_json::from_str::<&RawValue>(text) {
                Ok(raw) => {
                    Err(ReadError::new("", format!("expected an ADK event, found {}", kind_of(raw.get()))))
                }
                Err(error) => Err(invalid_json(&error)),
            },
        }
    }

    fn object(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        match serde_json::from_str::<AdkEvent<'_>>(text) {
            Ok(event) => self.native(&event, text, out),
            Err(_) => {
                // Something unusual: half an emoji is repaired, anything else is named.
                let json = {
                    let raw = parse_raw(text)?;
                    json(raw, Path::Root, &mut self.run.tally)?
                };
                let raw = parse_raw(json.get())?;
                let event: AdkEvent<'_> =
                    serde_json::from_str(raw.get()).map_err(|_| AdkEvent::explain(raw, Path::Root))?;
                self.native(&event, json.get(), out)
            }
        }
    }

    fn native(&mut self, event: &AdkEvent<'_>, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        if let Some(seconds) = event.timestamp {
            self.now = milliseconds(seconds);
        }
        let is_event = event.author.is_some() || event.content.is_some() || event.actions.is_some();
        if !is_event && event.events.is_some() {
            return self.session(text, out);
        }
        self.start(None, out);
        let first = out.len();
        let done = if is_event {
            self.understood = true;
            self.event(event, out)
        } else if let Some(mut failure) = AdkFailure::of_server(event) {
            self.understood = true;
            // The event before it may have named a code where the frame names none.
            let before = self.failure.take();
            self.failure = match before {
                Some(before) if !failure.is_named() => Some(before),
                before => {
                    failure.subagent = before.map_or_else(|| self.steps.subagent(), |before| before.subagent);
                    Some(failure)
                }
            };
            Ok(())
        } else if event.id.is_some() || event.invocation.is_some() || event.error_code.is_some() {
            self.understood = true;
            self.event(event, out)
        } else {
            let name = event.unknown.first().map_or("{}", AdkText::as_str);
            self.run.tally.note("unknown frame", name);
            Ok(())
        };
        if self.run.settings.attach_raw {
            self.attach(text, first, out);
        }
        done
    }

    fn start(&mut self, thread: Option<&str>, out: &mut Vec<Event>) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        if let Some(thread) = thread {
            self.run.settings.thread = thread.into();
        }
        let AdkReaderOptions { thread, run, .. } = &self.run.settings;
        let started = RunStarted::new(thread.clone(), run.clone());
        AdkEmitter::new(out, self.now).push(Body::RunStarted(Box::new(started)));
    }

    /// Keeps ADK's own event beside the first that came of it.
    fn attach(&mut self, text: &str, first: usize, out: &mut Vec<Event>) {
        let Ok(raw) = Json::parse(text) else {
            return;
        };
        match out.get_mut(first) {
            Some(event) => event.extra.get_or_insert_default().raw = Some(raw),
            None => AdkEmitter::new(out, self.now).push(Body::Raw { event: raw, source: Some("adk".into()) }),
        }
    }

    fn event(&mut self, event: &AdkEvent<'_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
        for name in &event.unknown {
            self.run.tally.note("unknown property", name.as_str());
        }
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        for name in parts.iter().flat_map(|parts| parts.iter()).flat_map(|part| &part.unknown) {
            self.run.tally.note("unknown property", &format!("part.{}", name.as_str()));
        }
        let emit = &mut AdkEmitter::new(out, self.now);
        let place = EventOrigin {
            path: event.node.as_ref().and_then(|node| node.path.as_ref()).map_or("", AdkText::as_str),
            branch: event.branch.as_ref().map_or("", AdkText::as_str),
            author: event.author.as_ref().map_or("", AdkText::as_str),
        };
        if place.author == USER {
            self.run.speak_as(None, emit);
            return self.user(event, emit);
        }
        if !place.is_nowhere() {
            let streams = &self.streams;
            self.steps.enter(place, |place| streams.is_busy(place), emit, &mut self.run.tally);
            self.run.speak_as(self.steps.subagent(), emit);
        }
        let invocation = event.invocation.as_ref().map_or("", AdkText::as_str);
        let (index, evicted) = self.streams.find(invocation, place);
        if let Some(mut turn) = evicted.and_then(|stream| stream.turn) {
            self.run.tally.note("stream closed early", "too many agents at once");
            self.run.close(&mut turn, emit);
            self.run.speak_as(self.steps.subagent(), emit);
        }
        if let Some(call) = &event.isolation_scope {
            self.run.delegated(call.as_str());
        }
        self.recover(event, place, emit);
        if event.partial == Some(true) {
            self.partial(event, index, emit)
        } else {
            self.whole(event, index, place, emit)
        }
    }

    /// A node that has raised an error and then goes on, or that the node above it gets over, has not failed
    /// the run: what it had begun to say is taken back, as ADK does not store it.
    fn recover(&mut self, event: &AdkEvent<'_>, place: EventOrigin<'_>, emit: &mut AdkEmitter<'_>) {
        let is_alive = event.error_code.is_none() && (event.content.is_some() || event.output.is_some());
        let Some(failure) = self.failure.take_if(|failure| is_alive && failure.is_behind(place.path)) else {
            return;
        };
        emit.custom(
            "adk.warning",
            [("code", Json::string(&failure.code)), ("message", Json::string(&failure.message))],
        );
        if let Some(raised) = failure.raised
            && !raised.said.is_empty()
        {
            self.run.elsewhere = self.streams.unfinished(usize::MAX);
            self.run.take_back(&raised.said, emit);
        }
    }

    /// A delta: everything but what it says is repeated by the closing event.
    fn partial(
        &mut self,
        event: &AdkEvent<'_>,
        index: usize,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        if let Some(parts) = parts.filter(|parts| parts.iter().any(speaks)) {
            let mut turn = self.turn(event, index);
            self.run.speak_as(turn.subagent.clone(), emit);
            let at = PartContext {
                event: &turn.id.clone(),
                source: event.id.as_ref().map_or("", AdkText::as_str),
                long_running: &[],
                actions: None,
                path: Path::Root,
            };
            let mut done = Ok(());
            for part in parts.iter() {
                done = done.and(self.run.part(&mut turn, part, None, at, emit));
            }
            if event.interrupted == Some(true) {
                self.run.close(&mut turn, emit);
            } else if turn.is_overgrown() {
                self.run.tally.note("turn closed early", "too many blocks in one turn");
                self.run.close(&mut turn, emit);
            } else {
                self.streams.all[index].turn = Some(turn);
            }
            done?;
        }
        if let Some(mut failure) = AdkFailure::of_event(event) {
            failure.subagent = self.steps.subagent();
            self.streams.all[index].failure = Some(failure);
        }
        self.transcriptions(event, emit)
    }

    /// The open turn of a stream, or a new one.
    fn turn(&mut self, event: &AdkEvent<'_>, index: usize) -> Box<ModelTurn> {
        let mut turn = match self.streams.all[index].turn.take() {
            Some(turn) => turn,
            None => {
                let id = self.fresh_id(event);
                let stream = &mut self.streams.all[index];
                let mut turn = Box::new(ModelTurn::new(id, &stream.author));
                turn.subagent = self.steps.subagent();
                turn.code = stream.code.take();
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

    /// The event's id, if no other turn has had it.
    fn fresh_id(&mut self, event: &AdkEvent<'_>) -> MessageId {
        let id = event.id.as_ref().map_or("", AdkText::as_str);
        if self.used.len() >= Self::MAX_USED || self.used_size > Self::MAX_USED_SIZE {
            self.used.clear();
            self.used_size = 0;
        }
        let mut fresh = MessageId::from(id);
        while id.is_empty() && fresh.is_empty() || self.used.contains(&fresh) {
            fresh = match id {
                "" => format!("{}:{}", self.run.settings.run, self.made).into(),
                id => format!("{id}#{}", self.made).into(),
            };
            self.made += 1;
        }
        self.used_size += fresh.len();
        self.used.insert(fresh.clone());
        fresh
    }

    /// A whole event: the end of a turn, a tool's answer, a change of state, or all of them.
    fn whole(
        &mut self,
        event: &AdkEvent<'_>,
        index: usize,
        place: EventOrigin<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        let actions = match event.actions {
            Some(raw) => parse::<EventActions<'_>>(raw, Path::Key(&Path::Root, "actions"))?,
            None => EventActions::default(),
        };
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        let has_parts = parts.is_some_and(|parts| parts.iter().next().is_some());
        let id = event.id.as_ref().map_or("", AdkText::as_str);
        if !has_parts && !id.is_empty() && self.last_whole.as_deref() == Some(id) {
            // The API server splits an event with artifacts in two; the second half repeats all else.
            self.last_whole = None;
            return self.artifacts(&actions, emit);
        }
        let mut message = None;
        let mut model = event.model.as_ref().map(|model| Box::from(model.as_str()));
        if let Some(parts) = parts {
            let (said, turn) = self.content(event, parts, &actions, index, emit)?;
            if let Some(turn) = turn {
                model = model.or(turn.model);
                self.streams.all[index].code = turn.code;
            }
            message = Some(said);
        }
        self.last_whole = has_parts.then(|| MessageId::from(id));
        let mut said = Vec::new();
        let ends = event.finish_reason.is_some()
            || event.error_code.is_some()
            || event.turn_complete == Some(true)
            || event.interrupted == Some(true);
        if ends && let Some(mut turn) = self.streams.all[index].turn.take() {
            model = model.or_else(|| turn.model.take());
            self.run.close(&mut turn, emit);
            said = turn.messages;
            message = Some(turn.id);
        }
        self.extras(event, message.as_ref(), model.as_deref(), emit)?;
        self.actions(&actions, event, place, emit)?;
        self.outcome(event, message, index, emit)?;
        if let Some(failure) = &mut self.failure
            && event.error_code.is_some()
            && !has_parts
            && failure.is_class()
        {
            failure.raised = Some(RaisedError { path: place.path.into(), said });
        }
        Ok(())
    }

    /// What an event says. Returns the id that other things can refer to, and the turn that it closed.
    fn content(
        &mut self,
        event: &AdkEvent<'_>,
        parts: &PartList<'_>,
        actions: &EventActions<'_>,
        index: usize,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(MessageId, Option<Box<ModelTurn>>), ReadError> {
        self.run.elsewhere = self.streams.unfinished(index);
        let spoken = parts.iter().any(speaks);
        let mut turn = spoken.then(|| self.turn(event, index));
        let id = match &turn {
            Some(turn) => turn.id.clone(),
            None => self.fresh_id(event),
        };
        let content = Path::Key(&Path::Root, "content");
        let list = Path::Key(&content, "parts");
        let at = PartContext {
            event: &id,
            source: event.id.as_ref().map_or("", AdkText::as_str),
            long_running: event.long_running.as_deref().unwrap_or_default(),
            actions: Some(actions),
            path: list,
        };
        let mut done = Ok(());
        if let Some(turn) = &mut turn {
            self.run.speak_as(turn.subagent.clone(), emit);
            self.streams.all[index].failure = None;
            if turn.agrees(parts) && self.run.calls_agree(turn, parts) {
                let mut seen = turn.seen();
                for (number, part) in parts.iter().enumerate() {
                    let path = Path::Index(&list, number);
                    done = done.and(self.run.part(
                        turn,
                        part,
                        Some(&mut seen),
                        PartContext { path, ..at },
                        emit,
                    ));
                }
                self.run.close(turn, emit);
            } else {
                done = self.run.correct(turn, parts, at, emit);
            }
        }
        let answers =
            parts.iter().enumerate().filter_map(|(number, part)| Some((number, part.response.as_ref()?)));
        for (count, (number, response)) in (0..).zip(answers) {
            let path = Path::Index(&list, number);
            done = done.and(self.run.answer(response, count, false, PartContext { path, ..at }, emit));
        }
        done?;
        Ok((id, turn))
    }

    /// How the event says that a turn, or the run, went.
    fn outcome(
        &mut self,
        event: &AdkEvent<'_>,
        message: Option<MessageId>,
        index: usize,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        if let Some(reason) = event.finish_reason.as_ref().map(AdkText::as_str)
            && !matches!(reason, "STOP" | "FINISH_REASON_UNSPECIFIED")
        {
            emit.push(Body::FinishReason { message, reason: reason.into() });
        }
        if let Some(mut failure) = AdkFailure::of_event(event) {
            failure.subagent = self.steps.subagent();
            self.streams.all[index].failure = None;
            if &*failure.code == "MAX_TOKENS" && self.run.settings.max_tokens_is_warning {
                emit.custom(
                    "adk.warning",
                    [("code", Json::string(&failure.code)), ("message", Json::string(&failure.message))],
                );
            } else {
                self.failure = Some(failure);
            }
        }
        Ok(())
    }
}

impl Reader for AdkReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
        self.run.tally.at_frame(frame.index + 1);
        match frame.data {
            Payload::Text(text) => self.frame(text, out),
            Payload::Bytes(_) => Err(ReadError::new("", "expected an ADK event, found binary data")),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        self.finish(end, out);
    }

    fn tally(&self) -> &Tally {
        &self.run.tally
    }
}
