//! ADK frames to canonical events.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::{
    Settings, Snapshot,
    emit::Emit,
    extras,
    failure::Failure,
    history,
    input::StoredSession,
    run::{At, Run},
    state::State,
    steps::{Place, Steps},
    turn::{Turn, speaks},
    wire::{Actions, Event as Native, Member, Parts, Session, Text, UsageMetadata, milliseconds, parse},
};
use crate::{
    event::{
        Body, Content, ContentPart, Event, File, Message, MessageId, Outcome, Role, RunError, RunFinished,
        RunStarted, ToolCallId, Usage,
    },
    fold::carrier,
    format::{ReadError, Reader, StreamEnd},
    framing::{Frame, Payload},
    json::{Json, Object, Path, elements, json, kind_of},
    tally::Tally,
};

/// The code of a stream that held nothing: an error page, or a proxy that swallowed the answer.
const NO_EVENTS: &str = "UPSTREAM_NO_EVENTS";
/// The code of a stream that ended in the middle, as the guard has it: ADK has no event for the end of a run,
/// but models do not stop in the middle of a turn and tools answer.
const STREAM_TRUNCATED: &str = "STREAM_TRUNCATED";
/// The author of what a person said.
const USER: &str = "user";

/// Reads ADK events, 1.x and 2.x alike.
#[derive(Debug)]
pub(super) struct AdkReader {
    run: Run,
    streams: Streams,
    steps: Steps,
    state: State,
    usage: Vec<Usage>,
    /// What the root of a workflow returned.
    result: Option<Json>,
    /// The last one counts: what ended the run.
    failure: Option<Failure>,
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

/// The agents that speak, each in its own stream.
#[derive(Debug, Default)]
struct Streams {
    all: Vec<Stream>,
    /// The last one, which is nearly always the next one too.
    last: usize,
}

#[derive(Debug)]
struct Stream {
    invocation: Box<str>,
    branch: Box<str>,
    author: Box<str>,
    /// Where its last event came from.
    path: Box<str>,
    turn: Option<Box<Turn>>,
    /// Code without a result yet; the result may come in an event of its own.
    code: Option<ToolCallId>,
    /// A failure that only a partial event named.
    failure: Option<Failure>,
}

impl Streams {
    /// How many agents may speak at the same time before the first ones are cut short.
    const LIMIT: usize = 128;

    /// The stream of an event, and a stream that had to make room.
    fn find(&mut self, invocation: &str, place: Place<'_>) -> (usize, Option<Stream>) {
        let fits = |stream: &Stream| {
            *stream.author == *place.author
                && *stream.branch == *place.branch
                && *stream.invocation == *invocation
        };
        let mut evicted = None;
        if !self.all.get(self.last).is_some_and(fits) {
            self.last = self.all.iter().position(fits).unwrap_or_else(|| {
                if self.all.len() >= Self::LIMIT {
                    let idle = self.all.iter().position(|stream| stream.turn.is_none());
                    evicted = Some(self.all.remove(idle.unwrap_or(0)));
                }
                self.all.push(Stream {
                    invocation: invocation.into(),
                    branch: place.branch.into(),
                    author: place.author.into(),
                    path: Box::default(),
                    turn: None,
                    code: None,
                    failure: None,
                });
                self.all.len() - 1
            });
        }
        let stream = &mut self.all[self.last];
        if *stream.path != *place.path {
            stream.path = place.path.into();
        }
        (self.last, evicted)
    }

    /// What all streams but one are in the middle of saying; `None` if not all of it is known.
    fn unfinished(&self, except: usize) -> Option<Vec<Message>> {
        let others = self.all.iter().enumerate().filter(|(index, _)| *index != except);
        let mut messages = Vec::new();
        for turn in others.filter_map(|(_, stream)| stream.turn.as_ref()) {
            messages.extend(turn.unfinished()?);
        }
        Some(messages)
    }

    /// Whether a turn is still streaming at a place.
    fn is_busy(&self, place: Place<'_>) -> bool {
        self.all.iter().any(|stream| {
            stream.turn.is_some()
                && *stream.author == *place.author
                && *stream.branch == *place.branch
                && *stream.path == *place.path
        })
    }
}

impl AdkReader {
    /// How many ids are remembered, to tell a new turn from an old one with the same id.
    const MAX_USED: usize = 64 * 1024;
    /// How many bytes of ids are remembered: [`Self::MAX_USED`] of ADK's 36 bytes take less.
    const MAX_USED_SIZE: usize = 4 * 1024 * 1024;

    pub(super) fn new(settings: Settings) -> Self {
        Self {
            state: State::new(settings.state.as_ref(), settings.show_temp),
            steps: Steps::new(&settings),
            run: Run::new(settings),
            streams: Streams::default(),
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
                let raw: &RawValue = serde_json::from_str(text).map_err(|error| bad_json(&error))?;
                for element in elements(raw, Path::Root)? {
                    self.object(element.get(), out)?;
                }
                Ok(())
            }
            Some(b'"') => {
                let inner: String = serde_json::from_str(text).map_err(|error| bad_json(&error))?;
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
                Err(error) => Err(bad_json(&error)),
            },
        }
    }

    fn object(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        match serde_json::from_str::<Native<'_>>(text) {
            Ok(event) => self.native(&event, text, out),
            Err(_) => {
                // Something unusual: half an emoji is repaired, anything else is named.
                let json = {
                    let raw: &RawValue = serde_json::from_str(text).map_err(|error| bad_json(&error))?;
                    json(raw, Path::Root, &mut self.run.tally)?
                };
                let raw: &RawValue = serde_json::from_str(json.get()).map_err(|error| bad_json(&error))?;
                let event: Native<'_> =
                    serde_json::from_str(raw.get()).map_err(|_| Native::explain(raw, Path::Root))?;
                self.native(&event, json.get(), out)
            }
        }
    }

    fn native(&mut self, event: &Native<'_>, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
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
        } else if let Some(mut failure) = Failure::of_server(event) {
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
            let name = event.unknown.first().map_or("{}", Text::as_str);
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
        let Settings { thread, run, .. } = &self.run.settings;
        let started = RunStarted::new(thread.clone(), run.clone());
        Emit::new(out, self.now).push(Body::RunStarted(Box::new(started)));
    }

    /// Keeps ADK's own event beside the first that came of it.
    fn attach(&mut self, text: &str, first: usize, out: &mut Vec<Event>) {
        let Ok(raw) = Json::parse(text) else {
            return;
        };
        match out.get_mut(first) {
            Some(event) => event.extra.get_or_insert_default().raw = Some(raw),
            None => Emit::new(out, self.now).push(Body::Raw { event: raw, source: Some("adk".into()) }),
        }
    }

    fn event(&mut self, event: &Native<'_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
        for name in &event.unknown {
            self.run.tally.note("unknown property", name.as_str());
        }
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        for name in parts.iter().flat_map(|parts| parts.iter()).flat_map(|part| &part.unknown) {
            self.run.tally.note("unknown property", &format!("part.{}", name.as_str()));
        }
        let emit = &mut Emit::new(out, self.now);
        let place = Place {
            path: event.node.as_ref().and_then(|node| node.path.as_ref()).map_or("", Text::as_str),
            branch: event.branch.as_ref().map_or("", Text::as_str),
            author: event.author.as_ref().map_or("", Text::as_str),
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
        let invocation = event.invocation.as_ref().map_or("", Text::as_str);
        let (index, evicted) = self.streams.find(invocation, place);
        if let Some(mut turn) = evicted.and_then(|stream| stream.turn) {
            self.run.tally.note("stream closed early", "too many agents at once");
            self.run.close(&mut turn, emit);
            self.run.speak_as(self.steps.subagent(), emit);
        }
        if event.partial == Some(true) {
            self.partial(event, index, emit)
        } else {
            self.whole(event, index, place, emit)
        }
    }

    /// A delta: everything but what it says is repeated by the closing event.
    fn partial(&mut self, event: &Native<'_>, index: usize, emit: &mut Emit<'_>) -> Result<(), ReadError> {
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        if let Some(parts) = parts.filter(|parts| parts.iter().any(speaks)) {
            let mut turn = self.turn(event, index);
            self.run.speak_as(turn.subagent.clone(), emit);
            let at = At {
                event: &turn.id.clone(),
                source: event.id.as_ref().map_or("", Text::as_str),
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
        if let Some(mut failure) = Failure::of_event(event) {
            failure.subagent = self.steps.subagent();
            self.streams.all[index].failure = Some(failure);
        }
        self.transcriptions(event, emit)
    }

    /// The open turn of a stream, or a new one.
    fn turn(&mut self, event: &Native<'_>, index: usize) -> Box<Turn> {
        let mut turn = match self.streams.all[index].turn.take() {
            Some(turn) => turn,
            None => {
                let id = self.fresh_id(event);
                let stream = &mut self.streams.all[index];
                let mut turn = Box::new(Turn::new(id, &stream.author));
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
    fn fresh_id(&mut self, event: &Native<'_>) -> MessageId {
        let id = event.id.as_ref().map_or("", Text::as_str);
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
        event: &Native<'_>,
        index: usize,
        place: Place<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        let actions = match event.actions {
            Some(raw) => parse::<Actions<'_>>(raw, Path::Key(&Path::Root, "actions"))?,
            None => Actions::default(),
        };
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        let has_parts = parts.is_some_and(|parts| parts.iter().next().is_some());
        let id = event.id.as_ref().map_or("", Text::as_str);
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
        let ends = event.finish_reason.is_some()
            || event.error_code.is_some()
            || event.turn_complete == Some(true)
            || event.interrupted == Some(true);
        if ends && let Some(mut turn) = self.streams.all[index].turn.take() {
            model = model.or_else(|| turn.model.take());
            self.run.close(&mut turn, emit);
            message = Some(turn.id);
        }
        self.extras(event, message.as_ref(), model.as_deref(), emit)?;
        self.actions(&actions, event, place, emit)?;
        self.outcome(event, message, index, emit)
    }

    /// What an event says. Returns the id that other things can refer to, and the turn that it closed.
    fn content(
        &mut self,
        event: &Native<'_>,
        parts: &Parts<'_>,
        actions: &Actions<'_>,
        index: usize,
        emit: &mut Emit<'_>,
    ) -> Result<(MessageId, Option<Box<Turn>>), ReadError> {
        self.run.elsewhere = self.streams.unfinished(index);
        let spoken = parts.iter().any(speaks);
        let mut turn = spoken.then(|| self.turn(event, index));
        let id = match &turn {
            Some(turn) => turn.id.clone(),
            None => self.fresh_id(event),
        };
        let content = Path::Key(&Path::Root, "content");
        let list = Path::Key(&content, "parts");
        let at = At {
            event: &id,
            source: event.id.as_ref().map_or("", Text::as_str),
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
                    done = done.and(self.run.part(turn, part, Some(&mut seen), At { path, ..at }, emit));
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
            done = done.and(self.run.answer(response, count, false, At { path, ..at }, emit));
        }
        done?;
        Ok((id, turn))
    }

    /// What comes with an answer.
    fn extras(
        &mut self,
        event: &Native<'_>,
        message: Option<&MessageId>,
        model: Option<&str>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        if let Some(raw) = event.usage {
            let counts: UsageMetadata<'_> = parse(raw, Path::Key(&Path::Root, "usageMetadata"))?;
            extras::add_usage(&mut self.usage, &counts, model);
        }
        if event.grounding.is_some() || event.citations.is_some() {
            let message = match message {
                Some(message) => message.clone(),
                None => self.fresh_id(event),
            };
            for source in extras::sources(&message, event.grounding, event.citations)? {
                self.run.transcript.activity(
                    &source.id,
                    "agentwire.source",
                    carrier::source_content(&source),
                );
                emit.push(Body::Source(Box::new(source)));
            }
        }
        for (name, key, raw) in [
            ("adk.grounding", "groundingMetadata", event.grounding),
            ("adk.citations", "citationMetadata", event.citations),
        ] {
            if let Some(raw) = raw {
                let value = json(raw, Path::Key(&Path::Root, key), &mut self.run.tally)?;
                let name = name.into();
                emit.push(Body::Custom { name, value });
            }
        }
        if let Some(raw) = event.metadata {
            let value = json(raw, Path::Key(&Path::Root, "customMetadata"), &mut self.run.tally)?;
            if value.get() != "{}" && self.last_metadata.as_ref() != Some(&value) {
                emit.push(Body::Custom { name: "adk.metadata".into(), value: value.clone() });
                self.last_metadata = Some(value);
            }
        }
        self.transcriptions(event, emit)
    }

    /// What was heard and spoken, in live mode.
    fn transcriptions(&mut self, event: &Native<'_>, emit: &mut Emit<'_>) -> Result<(), ReadError> {
        for (name, key, raw) in [
            ("adk.input_transcription", "inputTranscription", event.heard),
            ("adk.output_transcription", "outputTranscription", event.spoken),
        ] {
            if let Some(raw) = raw {
                let value = json(raw, Path::Key(&Path::Root, key), &mut self.run.tally)?;
                let name = name.into();
                emit.push(Body::Custom { name, value });
            }
        }
        Ok(())
    }

    /// What an event does beside what it says.
    fn actions(
        &mut self,
        actions: &Actions<'_>,
        event: &Native<'_>,
        place: Place<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        let path = Path::Key(&Path::Root, "actions");
        if let Some(delta) = &actions.state {
            let path = Path::Key(&path, "stateDelta");
            if let Some(patch) = self.state.apply(delta, path, &mut self.run.tally)? {
                emit.push(Body::StateDelta { patch });
            }
        }
        self.artifacts(actions, emit)?;
        let author = || Json::string(place.author);
        if let Some(agent) = &actions.transfer {
            let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
            let mut answers =
                parts.iter().flat_map(|parts| parts.iter()).filter_map(|part| part.response.as_ref());
            let call = answers.next().and_then(|answer| answer.id.as_ref()).map(Text::as_str);
            let call = call.map(|native| self.run.shown(native));
            self.steps.transfer(agent.as_str(), call);
            let mut members = vec![("from", author()), ("to", Json::string(agent.as_str()))];
            if let Some(reason) = &actions.transfer_reason {
                members.push(("reason", Json::string(reason.as_str())));
            }
            emit.custom("adk.transfer", members);
        }
        if actions.escalate == Some(true) {
            emit.custom("adk.escalate", [("author", author())]);
        }
        let others = [
            ("compaction", actions.compaction),
            ("endOfAgent", actions.end_of_agent),
            ("agentState", actions.agent_state),
            ("route", actions.route),
            ("renderUiWidgets", actions.widgets),
            ("setModelResponse", actions.model_response),
        ];
        let mut members = Vec::new();
        for (name, raw) in others {
            if let Some(raw) = raw {
                members.push((name, json(raw, Path::Key(&path, name), &mut self.run.tally)?));
            }
        }
        if let Some(invocation) = &actions.rewind {
            members.push(("rewindBeforeInvocationId", Json::string(invocation.as_str())));
        }
        if !members.is_empty() {
            members.insert(0, ("author", author()));
            emit.custom("adk.actions", members);
        }
        for name in &actions.unknown {
            self.run.tally.note("unknown property", &format!("actions.{}", name.as_str()));
        }
        if let Some(raw) = event.output {
            let output = json(raw, Path::Key(&Path::Root, "output"), &mut self.run.tally)?;
            let is_root = |path: &Text<'_>| !path.as_str().contains('/');
            let outputs = event.node.as_ref().and_then(|node| node.output_for.as_ref());
            if outputs.is_some_and(|paths| paths.iter().any(is_root)) && !output.is_null() {
                self.result = Some(output.clone());
            }
            emit.custom("adk.output", [("path", Json::string(place.path)), ("output", output)]);
        }
        Ok(())
    }

    fn artifacts(&mut self, actions: &Actions<'_>, emit: &mut Emit<'_>) -> Result<(), ReadError> {
        let path = Path::Key(&Path::Root, "actions");
        let path = Path::Key(&path, "artifactDelta");
        for (filename, raw) in actions.artifacts.iter().flat_map(|entries| &entries.0) {
            let filename = filename.as_str();
            let version = json(raw, Path::Key(&path, filename), &mut self.run.tally)?;
            emit.custom("adk.artifact", [("filename", Json::string(filename)), ("version", version)]);
        }
        Ok(())
    }

    /// How the event says that a turn, or the run, went.
    fn outcome(
        &mut self,
        event: &Native<'_>,
        message: Option<MessageId>,
        index: usize,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        if let Some(reason) = event.finish_reason.as_ref().map(Text::as_str)
            && !matches!(reason, "STOP" | "FINISH_REASON_UNSPECIFIED")
        {
            emit.push(Body::FinishReason { message, reason: reason.into() });
        }
        if let Some(mut failure) = Failure::of_event(event) {
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

    /// What a person said: in stored events, never in the answer to a run.
    fn user(&mut self, event: &Native<'_>, emit: &mut Emit<'_>) -> Result<(), ReadError> {
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        if let Some(parts) = parts {
            self.user_content(event, parts, emit)?;
        }
        if event.partial == Some(true) {
            return Ok(());
        }
        if let Some(raw) = event.actions {
            let path = Path::Key(&Path::Root, "actions");
            let actions: Actions<'_> = parse(raw, path)?;
            if let Some(delta) = &actions.state
                && let Some(patch) =
                    self.state.apply(delta, Path::Key(&path, "stateDelta"), &mut self.run.tally)?
            {
                emit.push(Body::StateDelta { patch });
            }
            self.artifacts(&actions, emit)?;
        }
        if let Some(failure) = Failure::of_event(event) {
            self.failure = Some(failure);
        }
        Ok(())
    }

    fn user_content(
        &mut self,
        event: &Native<'_>,
        parts: &Parts<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        let id = self.fresh_id(event);
        let content = Path::Key(&Path::Root, "content");
        let list = Path::Key(&content, "parts");
        let mut said = Vec::new();
        let mut size = 0;
        let mut answers = 0;
        for (number, part) in parts.iter().enumerate() {
            if let Some(response) = &part.response {
                let path = Path::Index(&list, number);
                let at = At { event: &id, source: "", long_running: &[], actions: None, path };
                self.run.answer(response, answers, true, at, emit)?;
                answers += 1;
            } else if let Some(text) = part.text.as_ref().filter(|text| !text.as_str().is_empty()) {
                size += text.as_str().len();
                said.push(ContentPart::text(text.as_str()));
            } else if let Some(blob) = &part.inline {
                let (kind, source) = extras::inline(blob);
                size += blob.data.as_ref().map_or(0, |data| data.as_str().len());
                said.push(ContentPart::media(kind, source));
            } else if let Some(file) = &part.file {
                let (kind, source) = extras::elsewhere(file);
                said.push(ContentPart::media(kind, source));
            }
        }
        if said.is_empty() {
            return Ok(());
        }
        emit.push(Body::TextStart { message: id.clone(), role: Some(Role::User), name: None });
        for part in &said {
            if let ContentPart::Text { text, .. } = part {
                emit.push(Body::TextDelta { message: id.clone(), delta: text.clone() });
            }
        }
        emit.push(Body::TextEnd { message: id.clone() });
        let media = said.iter().filter_map(|part| match part {
            ContentPart::Media { kind, source, .. } => Some((*kind, source.clone())),
            ContentPart::Text { .. } => None,
        });
        for (number, (kind, source)) in (0..).zip(media) {
            emit.push(Body::File(Box::new(File {
                id: super::turn::part_id(&id, "file", number),
                message: Some(id.clone()),
                kind,
                source,
                name: None,
            })));
        }
        let content = match <[ContentPart; 1]>::try_from(said) {
            Ok([ContentPart::Text { text, .. }]) => Content::Text(text),
            Ok(one) => Content::Parts(one.into()),
            Err(parts) => Content::Parts(parts),
        };
        self.run.transcript.user(&id, content, size);
        Ok(())
    }

    /// A stored session: its messages and its state, at once.
    fn session(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let thread = self.take_in(text)?.0;
        self.start(Some(&thread).filter(|thread| !thread.is_empty()).map(String::as_str), out);
        let messages = self.run.transcript.messages().to_vec();
        Emit::new(out, self.now).push(Body::MessagesSnapshot { messages });
        Ok(())
    }

    /// Takes in a stored session without a word; returns its id and its state as stored.
    fn take_in(&mut self, text: &str) -> Result<(String, Option<Object>), ReadError> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| bad_json(&error))?;
        let session: Session<'_> = parse(raw, Path::Root)?;
        self.understood = true;
        // A history names its agents; whose invocation each of them was is over.
        self.steps = Steps::default();
        let mut aside = Vec::new();
        for event in history::live(&session)? {
            if let Some(seconds) = event.timestamp {
                self.now = milliseconds(seconds);
            }
            self.event(&event, &mut aside)?;
            aside.clear();
        }
        if let Some(seconds) = session.updated {
            self.now = milliseconds(seconds);
        }
        let emit = &mut Emit::new(&mut aside, self.now);
        for stream in &mut self.streams.all {
            if let Some(mut turn) = stream.turn.take() {
                self.run.close(&mut turn, emit);
            }
        }
        self.run.speak_as(None, emit);
        self.steps.leave(&[], None, emit);
        if !self.run.transcript.is_whole() {
            self.run.tally.note("history cut off", "the session is too long to be shown");
        }
        // What failed was a run of the past, and its cost was that run's.
        self.run.settle();
        self.failure = None;
        self.streams = Streams::default();
        self.usage.clear();
        self.result = None;
        let mut stored = None;
        if let Some(raw) = session.state {
            stored = json(raw, Path::Key(&Path::Root, "state"), &mut self.run.tally)?.into_object();
        }
        if let Some(state) = &stored {
            self.state = State::new(Some(state), self.run.settings.show_temp);
        }
        Ok((session.id.map(|id| id.0.into_owned()).unwrap_or_default(), stored))
    }

    /// What a stored session holds.
    pub(super) fn stored(mut self, body: &str, tally: &mut Tally) -> Result<StoredSession, ReadError> {
        let (thread, stored) = self.take_in(body.trim())?;
        if thread.is_empty() {
            return Err(ReadError::new("", "`id` is missing, expected a string"));
        }
        tally.absorb(&self.run.tally);
        Ok(StoredSession {
            thread: thread.into(),
            messages: self.run.transcript.messages().to_vec(),
            state: self.state.snapshot().into_object().unwrap_or_else(Object::empty),
            raw_state: stored.unwrap_or_else(Object::empty),
            interrupts: self.run.pending().0,
            updated: self.now,
        })
    }

    /// Closes everything and ends the run.
    fn finish(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        self.start(None, out);
        let emit = &mut Emit::new(out, self.now);
        let mut truncated = None;
        for stream in &mut self.streams.all {
            if let Some(mut turn) = stream.turn.take() {
                self.run.close(&mut turn, emit);
                if turn.model.is_some() {
                    truncated = Some("the stream ended in the middle of a model's turn".into());
                }
            }
            // Nobody took back what the partial event said.
            if self.failure.is_none() {
                self.failure = stream.failure.take();
            }
        }
        self.run.speak_as(None, emit);
        let (interrupts, frontend) = self.run.pending();
        self.steps.leave(&interrupts, self.failure.as_ref(), emit);
        let usage = std::mem::take(&mut self.usage);
        let unanswered =
            self.run.unanswered().map(|tool| format!("the stream ended before `{tool}` answered"));
        let failure = match (self.failure.take(), end) {
            (Some(failure), _) => Some((failure.message, failure.code)),
            (None, StreamEnd::Failed { code, message }) => Some((message.clone(), code.clone())),
            (None, StreamEnd::Closed) if !self.understood => {
                Some(("the stream held no ADK event".into(), NO_EVENTS.into()))
            }
            (None, StreamEnd::Closed) => {
                truncated.or(unanswered).map(|message| (message.into(), STREAM_TRUNCATED.into()))
            }
        };
        if let Some((message, code)) = failure {
            emit.push(Body::RunError(Box::new(RunError { message, code: Some(code), usage })));
            return;
        }
        let snapshot = match self.run.settings.snapshot {
            Snapshot::Known => self.state.known(),
            Snapshot::Always => Some(self.state.snapshot()),
            Snapshot::Never => None,
        };
        if let Some(snapshot) = snapshot {
            emit.push(Body::StateSnapshot { snapshot });
        }
        let outcome = match (interrupts.is_empty(), frontend.is_empty()) {
            (false, _) => Some(Outcome::Interrupt { interrupts }),
            (true, false) => Some(Outcome::Success { pending: frontend }),
            (true, true) => None,
        };
        let Settings { thread, run, .. } = &self.run.settings;
        emit.push(Body::RunFinished(Box::new(RunFinished {
            result: self.result.take(),
            outcome,
            usage,
            ..RunFinished::new(thread.clone(), run.clone())
        })));
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

fn bad_json(error: &serde_json::Error) -> ReadError {
    ReadError::new("", format!("not valid JSON: {error}"))
}
