//! BUSINESS_DATA_*: messages that hold text, thinking and blocks.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::{
        delta::{self, Delta, Output, Place},
        derived_ids::{Drawn, Placed},
        fields::{block_id, id, some_json},
        nesting::compose,
        wire::ASSISTANT,
    },
    HaiReader,
    members::Base,
    partial_documents::{MAX_HELD, Piece, Pieces},
};
use crate::{
    event::{Block, Body, Event, MessageId, Role},
    format::ag_ui::shapes,
    json::{Fields, Json, Object, Path, ReadError},
};

/// Messages that may be open at once, as many as the guard allows. Beyond that the oldest is closed.
const MAX_OPEN: usize = 16_384;

/// A message that is open on the wire.
#[derive(Debug, Default)]
pub(crate) struct Message {
    role: Option<Role>,
    name: Option<Box<str>>,
    /// What came with the start, for the text that it will open.
    start: Base,
    /// The text, once it has begun.
    text: Option<MessageId>,
    /// The thinking box that is being written.
    thought: Option<Thought>,
    /// The beginning of a document that has no end yet.
    pieces: Option<Box<Pieces>>,
    /// Whether there was plain text. No shapes are mixed, so its braces are its own.
    plain: bool,
    /// Whether there were documents as strings. White space between those says nothing.
    documents: bool,
    /// Whether other outputs came before any text.
    delayed: bool,
    /// Whether the text's start says in which message it stands. Its words then say it too wherever they say
    /// anything, because metadata `hai` replaces what was there before.
    hosted: bool,
    /// A role that text cannot have, and so could not be kept as one.
    odd_role: Option<Json>,
}

/// Consecutive thinking outputs.
#[derive(Debug)]
struct Thought {
    id: MessageId,
    /// The message that it stands in.
    wire: MessageId,
    elapsed: Option<Json>,
    collapse: Option<Json>,
}

/// A content event of the fast lane.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Content<'a> {
    #[serde(rename = "type", borrow)]
    _type: Cow<'a, str>,
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow)]
    delta: &'a RawValue,
    #[serde(default)]
    timestamp: Option<i64>,
}

/// A delta of the fast lane that is a string.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// What stands around the words of a text output that is a JSON document in a string.
const AROUND: (&str, &str) = (r#""{\"output\":{\"type\":\"text\",\"content\":\""#, r#"\"}}""#);

/// A structured delta of the fast lane.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextDelta<'a> {
    #[serde(borrow)]
    output: TextOutput<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextOutput<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    content: Cow<'a, str>,
}

impl HaiReader {
    /// Text that appends to an open text: nine tenths of a stream. Says whether this frame was one.
    pub(crate) fn fast(&mut self, text: &str, out: &mut Vec<Event>) -> bool {
        if !text.starts_with(r#"{"type":"BUSINESS_DATA_CONTENT","#) {
            return false;
        }
        let Ok(Content { message_id, delta, timestamp, .. }) = serde_json::from_str(text) else {
            return false;
        };
        let raw = delta.get();
        // Without a backslash there is nothing to unescape, neither in the document nor in the string around it.
        let words = raw.strip_prefix(AROUND.0).and_then(|rest| rest.strip_suffix(AROUND.1));
        if let Some(words) = words.filter(|words| memchr::memchr(b'\\', words.as_bytes()).is_none()) {
            return self.fast_text(&message_id, words.into(), true, timestamp, out);
        }
        if raw.starts_with('{') {
            return self.fast_document(&message_id, raw, timestamp, out);
        }
        let Ok(Text(delta)) = serde_json::from_str(raw) else {
            return false;
        };
        if delta.starts_with('{') {
            return self.fast_document(&message_id, &delta, timestamp, out);
        }
        !delta.trim_start().starts_with('{') && self.fast_text(&message_id, delta, false, timestamp, out)
    }

    /// A structured delta that is text and nothing else.
    fn fast_document(
        &mut self,
        wire: &str,
        document: &str,
        timestamp: Option<i64>,
        out: &mut Vec<Event>,
    ) -> bool {
        match serde_json::from_str::<TextDelta<'_>>(document) {
            Ok(TextDelta { output }) if output.kind == "text" => {
                self.fast_text(wire, output.content, true, timestamp, out)
            }
            _ => false,
        }
    }

    /// Appends to an open text, if there is one that nothing stands in the way of.
    fn fast_text(
        &mut self,
        wire: &str,
        delta: Cow<'_, str>,
        is_document: bool,
        timestamp: Option<i64>,
        out: &mut Vec<Event>,
    ) -> bool {
        let limit = shapes::MAX_INTEGER.unsigned_abs();
        if timestamp.is_some_and(|time| time.unsigned_abs() > limit) {
            return false;
        }
        let Some((id, Message { text: Some(message), thought: None, pieces: None, documents, .. })) =
            self.messages.get_key_value(wire)
        else {
            return false;
        };
        if *documents && !is_document {
            return false;
        }
        let message = message.clone();
        if self.last_message.as_ref() != Some(id) {
            self.last_message = Some(id.clone());
        }
        let body = Body::TextDelta { message, delta: delta.into() };
        out.push(Event::new(body).at(timestamp));
        true
    }

    /// The message that a frame names, or the one that it must mean.
    fn wire_id(&mut self, f: &mut Fields<'_, '_>, event_type: &str) -> Result<MessageId, ReadError> {
        let tally = &mut self.context.tally;
        let given = id(f, "messageId", tally)?.filter(|id| !id.is_empty());
        // With one id for the whole run, the message's own is beside it.
        let source = id(f, "sourceMessageId", tally)?.filter(|id| !id.is_empty());
        if let Some(id) = source.or(given) {
            return Ok(self.context.interner.get(&id));
        }
        tally.note("missing id", event_type);
        Ok(match &self.last_message {
            Some(last) if event_type != "BUSINESS_DATA_START" => last.clone(),
            _ => self.context.interner.get(&self.run_message),
        })
    }

    /// The message, opened if it is not. A stream that forgets a start is understood.
    fn message(&mut self, wire: &MessageId, out: &mut Vec<Event>) -> &mut Message {
        if !self.messages.contains_key(wire) {
            if self.messages.len() >= MAX_OPEN {
                self.close_oldest(out);
            }
            self.ledger.start(wire);
            self.messages.insert(wire.clone(), Message::default());
        }
        self.last_message = Some(wire.clone());
        self.messages.get_mut(wire).expect("it was made if it was not there")
    }

    fn close_oldest(&mut self, out: &mut Vec<Event>) {
        let Some(oldest) = self.messages.first().map(|(oldest, _)| oldest.clone()) else { return };
        self.flush(&oldest, out);
        if let Some(message) = self.messages.shift_remove(&oldest) {
            self.context.tally.note("too many open messages", "closed the oldest");
            close(oldest, message, &Base::default(), out);
        }
    }

    pub(crate) fn business_start(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        const WHAT: &str = "BUSINESS_DATA_START";
        let wire = self.wire_id(&mut f, WHAT)?;
        let tally = &mut self.context.tally;
        let role = id(&mut f, "role", tally)?;
        let name = id(&mut f, "name", tally)?.map(Box::from);
        let base = base.finish(&mut f, WHAT, tally)?;
        let parsed = role.as_deref().and_then(Role::parse).filter(|role| role.is_textual());
        let odd_role = role.filter(|_| parsed.is_none()).map(|role| {
            tally.note("role of a message", &role);
            Json::string(&role)
        });
        if base.agui.is_some() {
            self.flush(&wire, out);
        }
        let tally = &mut self.context.tally;
        if base.agui.is_some()
            && let Some(message) = self.messages.get_mut(&wire)
        {
            close_thought(message, &base, out);
        }
        match base.stands_for().as_deref() {
            Some("REASONING_MESSAGE_START") => {
                if let Some(message) = base.agui_str("messageId") {
                    let body = Body::ReasoningMessageStart { message: message.into() };
                    let event = base.event(body, &[], tally);
                    out.push(event);
                }
                let _ = self.message(&wire, out);
            }
            Some("TEXT_MESSAGE_START") => {
                let explicit = base.agui_str("messageId").map(MessageId::from);
                let mut hai = Vec::new();
                if explicit.is_some() {
                    hai.push(("messageId", Json::string(&wire)));
                }
                let hosted = explicit.is_some();
                let text = explicit.unwrap_or_else(|| wire.clone());
                hai.extend(odd_role.clone().map(|role| ("role", role)));
                let body = Body::TextStart { message: text.clone(), role: parsed, name };
                out.push(base.event(body, &hai, tally));
                let message = self.message(&wire, out);
                (message.text, message.role, message.odd_role) = (Some(text), parsed, odd_role);
                message.hosted = hosted;
                self.ledger.took_text(&wire);
            }
            _ => {
                if self.messages.contains_key(&wire) {
                    tally.note("repeated start", WHAT);
                    return Ok(());
                }
                let message = self.message(&wire, out);
                *message = Message { role: parsed, name, start: base, odd_role, ..Message::default() };
            }
        }
        Ok(())
    }

    pub(crate) fn business_content(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        const WHAT: &str = "BUSINESS_DATA_CONTENT";
        let wire = self.wire_id(&mut f, WHAT)?;
        let tally = &mut self.context.tally;
        let raw = f.take_unless_null("delta").ok_or_else(|| f.missing("delta", "a string or an object"))?;
        let outer = Place {
            layout: some_json(&mut f, "layout", tally)?,
            block_id: block_id(&mut f, tally)?,
            style: some_json(&mut f, "style", tally)?,
            more: None,
        };
        let base = base.finish(&mut f, WHAT, tally)?;
        if base.agui.is_none() && raw.get().starts_with('"') {
            let content = crate::json::text(raw, Path::Key(&Path::Root, "delta"), tally)?;
            self.joined(&wire, &content, outer, base, out);
            return Ok(());
        }
        self.flush(&wire, out);
        let tally = &mut self.context.tally;
        let literal = base.agui.as_ref().is_some_and(|agui| agui.member("literal").is_some());
        let deltas = if literal && raw.get().starts_with('"') {
            // Text that looks like a document, and is not.
            let content = crate::json::text(raw, Path::Key(&Path::Root, "delta"), tally)?;
            vec![Delta { output: Output::Text { content, more: None }, place: Place::default() }]
        } else {
            delta::read(raw, Path::Key(&Path::Root, "delta"), tally)?
        };
        for delta in deltas {
            let delta = Delta { place: delta.place.or(&outer), ..delta };
            match base.stands_for() {
                Some(kind) => {
                    let message = self.message(&wire, out);
                    let named = base.agui_str("messageId");
                    let thought = message.thought.as_ref().map(|thought| thought.id.as_str());
                    if kind == "REASONING_MESSAGE_END" && thought.is_some() && thought == named.as_deref() {
                        // The frame says itself that this one ends.
                        message.thought = None;
                    }
                    // A thinking box that the source left open ends with whatever comes next.
                    close_thought(message, &base, out);
                    if self.restore(&kind, &delta, &base, out).is_none() {
                        self.output(&wire, delta, &base, out);
                    }
                }
                None => self.output(&wire, delta, &base, out),
            }
        }
        Ok(())
    }

    /// A string: text, documents, or a piece of one.
    fn joined(&mut self, wire: &MessageId, content: &str, place: Place, base: Base, out: &mut Vec<Event>) {
        let message = self.message(wire, out);
        let plain = message.plain;
        if message.documents && message.pieces.is_none() && content.trim().is_empty() {
            return;
        }
        let held = message.pieces.take().unwrap_or_default();
        self.held -= held.weight();
        let tally = &mut self.context.tally;
        // Quotes inside a document's string are escaped, so whole documents are no part of another.
        let whole = held.is_waiting().then(|| delta::deltas(content, tally)).flatten();
        let mut pieces = held;
        let deltas = match whole {
            Some(deltas) => {
                self.unfold(wire, std::mem::take(&mut pieces).into_frames(), out);
                deltas
            }
            None => match pieces.push(content, tally) {
                Some(deltas) if !(plain && pieces.is_waiting()) => deltas,
                _ => {
                    let frames = pieces.into_frames();
                    if !frames.is_empty() {
                        self.unfold(wire, frames, out);
                        return self.joined(wire, content, place, base, out);
                    }
                    self.unfold(wire, vec![Piece { content: content.to_owned(), place, base }], out);
                    return;
                }
            },
        };
        self.message(wire, out).documents |= !deltas.is_empty();
        for delta in deltas {
            let delta = Delta { place: delta.place.or(&place), ..delta };
            self.output(wire, delta, &base, out);
        }
        if !pieces.is_waiting() {
            return;
        }
        pieces.keep(content, place, base);
        if self.held + pieces.weight() > MAX_HELD {
            self.context.tally.note("delta in pieces", "too large to be joined");
            return self.unfold(wire, pieces.into_frames(), out);
        }
        self.held += pieces.weight();
        self.message(wire, out).pieces = Some(pieces);
    }

    /// What waits for its rest in a message is text after all.
    fn flush(&mut self, wire: &MessageId, out: &mut Vec<Event>) {
        let pieces = self.messages.get_mut(wire).and_then(|message| message.pieces.take());
        if let Some(pieces) = pieces {
            self.held -= pieces.weight();
            self.unfold(wire, pieces.into_frames(), out);
        }
    }

    /// The same for all messages.
    pub(crate) fn flush_all(&mut self, out: &mut Vec<Event>) {
        if self.held == 0 {
            return;
        }
        let waiting = self.messages.iter().filter(|(_, message)| message.pieces.is_some());
        for wire in waiting.map(|(wire, _)| wire.clone()).collect::<Vec<_>>() {
            self.flush(&wire, out);
        }
    }

    /// Frames that are text.
    fn unfold(&mut self, wire: &MessageId, frames: Vec<Piece>, out: &mut Vec<Event>) {
        for Piece { content, place, base } in frames {
            let plain = !content.is_empty();
            let output = Output::Text { content: content.into(), more: None };
            self.output(wire, Delta { output, place }, &base, out);
            self.message(wire, out).plain |= plain;
        }
    }

    /// An output that means what it says.
    fn output(&mut self, wire: &MessageId, delta: Delta<'_>, base: &Base, out: &mut Vec<Event>) {
        let _ = self.message(wire, out);
        let Self { messages, ledger, context, .. } = self;
        let message = messages.get_mut(wire).expect("it was opened above");
        let tally = &mut context.tally;
        let Delta { output, place } = delta;
        let mut hai = placed(&place);
        match output {
            Output::Text { content, more } => {
                close_thought(message, base, out);
                let text = match &message.text {
                    Some(text) => text.clone(),
                    None => {
                        let text = ledger.text(wire);
                        ledger.took_text(wire);
                        message.hosted = message.delayed || text != *wire;
                        out.push(open_text(message, wire, &text, base, tally));
                        message.text.insert(text).clone()
                    }
                };
                hai.extend(more.map(|more| ("output", more.into())));
                if message.hosted && (!hai.is_empty() || base.rest.is_some()) {
                    hai.push(("messageId", Json::string(wire)));
                }
                let body = Body::TextDelta { message: text, delta: content.into() };
                out.push(base.event(body, &hai, tally));
            }
            Output::Thinking { content, elapsed, thinking, collapse, data, more } => {
                if message.thought.is_none() {
                    let id = ledger.thought(wire);
                    ledger.took_thought(wire);
                    let mut host = vec![("messageId", Json::string(wire))];
                    let bare = Base {
                        timestamp: base.timestamp,
                        subagent: base.subagent.clone(),
                        ..Base::default()
                    };
                    let body = Body::ReasoningMessageStart { message: id.clone() };
                    let start = bare.event(body, &host, tally);
                    host.extend(start_said(message).map(|said| ("start", said)));
                    let body = Body::ReasoningStart { message: id.clone(), title: None };
                    out.push(bare.event(body, &host, tally));
                    out.push(start);
                    let wire = wire.clone();
                    message.thought = Some(Thought { id, wire, elapsed: None, collapse: None });
                }
                message.delayed |= message.text.is_none();
                let thought = message.thought.as_mut().expect("it was made if it was not there");
                thought.elapsed.clone_from(&elapsed);
                thought.collapse.clone_from(&collapse);
                let flag = thinking.map(|thinking| Json::from(serde_json::Value::from(thinking)));
                let said = [
                    ("elapsed", elapsed),
                    ("thinking", flag),
                    ("collapse", collapse),
                    ("data", data.map(Json::from)),
                    ("output", more.map(Json::from)),
                ];
                hai.extend(said.into_iter().filter_map(|(key, value)| Some((key, value?))));
                if !hai.is_empty() || base.rest.is_some() {
                    hai.push(("messageId", Json::string(wire)));
                }
                let body = Body::ReasoningDelta { message: thought.id.clone(), delta: content.into() };
                out.push(base.event(body, &hai, tally));
                if thinking == Some(false)
                    && let Some(Thought { id, .. }) = message.thought.take()
                {
                    out.push(base.bare(Body::ReasoningMessageEnd { message: id.clone() }));
                    out.push(base.bare(Body::ReasoningEnd { message: id }));
                }
            }
            Output::Block(output) => {
                close_thought(message, base, out);
                let names = Placed {
                    layout: place.layout.as_ref(),
                    block_id: place.block_id.as_deref(),
                    style: place.style.as_ref(),
                };
                let drawn = ledger.drawn(wire, &output, names);
                ledger.took_drawn(wire, &output, names, &drawn);
                match drawn {
                    Drawn::Block(id) => {
                        let mut hai: Vec<_> =
                            place.more.map(|more| ("delta", more.into())).into_iter().collect();
                        if !message.delayed && message.text.is_none() {
                            hai.extend(start_said(message).map(|said| ("start", said)));
                        }
                        let block = Block {
                            id,
                            message: wire.clone(),
                            output,
                            layout: place.layout,
                            block_id: place.block_id,
                            style: place.style,
                        };
                        out.push(base.event(Body::Block(Box::new(block)), &hai, tally));
                    }
                    Drawn::More(activity, patch) => {
                        hai.push(("messageId", Json::string(wire)));
                        hai.push(("output", output.into()));
                        let body =
                            Body::ActivityDelta { message: activity, kind: "hai.toolCallShow".into(), patch };
                        out.push(base.event(body, &hai, tally));
                    }
                }
                message.delayed |= message.text.is_none();
            }
        }
    }

    pub(crate) fn business_end(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        const WHAT: &str = "BUSINESS_DATA_END";
        let wire = self.wire_id(&mut f, WHAT)?;
        let tally = &mut self.context.tally;
        let role = id(&mut f, "role", tally)?;
        let base = base.finish(&mut f, WHAT, tally)?;
        self.flush(&wire, out);
        let tally = &mut self.context.tally;
        let Some(mut message) = self.messages.shift_remove(&wire) else {
            tally.note("end without a start", WHAT);
            return Ok(());
        };
        if self.last_message.as_ref() == Some(&wire) {
            self.last_message = self.messages.last().map(|(id, _)| id.clone());
        }
        close_thought(&mut message, &base, out);
        if let Some(text) = message.text {
            let expected = message.role.map_or(ASSISTANT, Role::as_str);
            let odd_role = message.odd_role.as_ref().and_then(Json::as_str);
            let known =
                |role: &String| role == expected || role == ASSISTANT || odd_role.as_ref() == Some(role);
            let odd = role.filter(|role| !known(role));
            let hai: Vec<_> = odd.map(|role| ("role", Json::string(&role))).into_iter().collect();
            out.push(base.event(Body::TextEnd { message: text }, &hai, tally));
        }
        Ok(())
    }

    /// A text has ended otherwise than with its message.
    pub(crate) fn ended(&mut self, text: &MessageId) {
        for message in self.messages.values_mut() {
            if message.text.as_ref() == Some(text) {
                message.text = None;
            }
        }
    }

    /// Closes what is open before a run ends.
    pub(crate) fn close_all(&mut self, base: &Base, out: &mut Vec<Event>) {
        self.flush_all(out);
        for (wire, message) in std::mem::take(&mut self.messages) {
            close(wire, message, base, out);
        }
        self.last_message = None;
    }

    /// The AG-UI event that an output stands for.
    fn restore(&mut self, kind: &str, delta: &Delta<'_>, base: &Base, out: &mut Vec<Event>) -> Option<()> {
        let agui = base.agui.as_ref()?;
        let message = || agui.get_str("messageId").map(MessageId::from);
        let body = match (kind, &delta.output) {
            ("TEXT_MESSAGE_CONTENT", Output::Text { content, more }) => {
                let mut hai = placed(&delta.place);
                hai.extend(more.clone().map(|more| ("output", more.into())));
                let body = Body::TextDelta { message: message()?, delta: content.as_ref().into() };
                out.push(base.event(body, &hai, &mut self.context.tally));
                return Some(());
            }
            ("REASONING_MESSAGE_CONTENT", Output::Thinking { content, .. }) => {
                Body::ReasoningDelta { message: message()?, delta: content.as_ref().into() }
            }
            ("REASONING_MESSAGE_END", _) => Body::ReasoningMessageEnd { message: message()? },
            ("REASONING_START", Output::Block(output)) => {
                let title = output.member("data")?.into_object()?.get_str("title")?.into();
                Body::ReasoningStart { message: message()?, title: Some(title) }
            }
            ("REASONING_END", _) => Body::ReasoningEnd { message: message()? },
            ("ACTIVITY_SNAPSHOT", output) => {
                let output = output.to_object();
                let Some(activity) = agui.get_str("activityType") else {
                    // A block whose id is not the one that would be derived.
                    let block = Block {
                        id: message()?,
                        message: agui.get_str("blockMessageId")?.into(),
                        output,
                        layout: delta.place.layout.clone(),
                        block_id: delta.place.block_id.clone(),
                        style: delta.place.style.clone(),
                    };
                    let hai: Vec<_> =
                        delta.place.more.clone().map(|more| ("delta", more.into())).into_iter().collect();
                    out.push(base.event(Body::Block(Box::new(block)), &hai, &mut self.context.tally));
                    return Some(());
                };
                if agui.member("content").is_some() {
                    // The whole event, because the output shows it in another form.
                    out.push(shapes::read_event(agui.get(), &mut self.context)?);
                    return Some(());
                }
                Body::ActivitySnapshot {
                    message: message()?,
                    kind: activity.into(),
                    content: output.member("data")?.into_object()?,
                    replace: agui.member("replace").map(|replace| replace.get() == "true"),
                }
            }
            ("ACTIVITY_DELTA", _) => shapes::read_event(agui.get(), &mut self.context)?.body,
            (kind, _) if kind.starts_with("TOOL_CALL_") => {
                let events = agui.member("events")?.elements()?;
                let mut restored = Vec::new();
                for event in events {
                    restored.push(shapes::read_event(event.get(), &mut self.context)?);
                }
                out.append(&mut restored);
                return Some(());
            }
            _ => return None,
        };
        out.push(base.event(body, &[], &mut self.context.tally));
        Some(())
    }
}

/// Where an output is placed, for the metadata.
fn placed(place: &Place) -> Vec<(&'static str, Json)> {
    let said = [
        ("layout", place.layout.clone()),
        ("blockId", place.block_id.as_deref().map(Json::string)),
        ("style", place.style.clone()),
        ("delta", place.more.clone().map(Json::from)),
    ];
    said.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// What a start said beyond its id: kept by the first thing in the message, for the way back.
fn start_said(message: &Message) -> Option<Json> {
    if message.delayed || message.text.is_some() {
        return None;
    }
    let role = message.role.filter(|role| *role != Role::Assistant).map(|role| Json::string(role.as_str()));
    let said = [
        ("role", role.or_else(|| message.odd_role.clone())),
        ("name", message.name.as_deref().map(Json::string)),
        ("rest", message.start.rest.clone().map(Json::from)),
        ("metadata", message.start.metadata.clone().map(Json::from)),
    ];
    let said = compose(said.into_iter().filter_map(|(key, value)| Some((key, value?))));
    (!said.is_empty()).then(|| said.into())
}

/// The start of a message's text.
fn open_text(
    message: &Message,
    wire: &MessageId,
    text: &MessageId,
    base: &Base,
    tally: &mut crate::tally::Tally,
) -> Event {
    let mut hai = Vec::new();
    if message.hosted {
        hai.push(("messageId", Json::string(wire)));
    }
    hai.extend(message.odd_role.clone().map(|role| ("role", role)));
    let body = Body::TextStart { message: text.clone(), role: message.role, name: message.name.clone() };
    let mut event = message.start.event(body, &hai, tally);
    // A text that opens late opens with the output that it opens for.
    if message.delayed || event.timestamp.is_none() {
        event.timestamp = base.timestamp;
    }
    if event.subagent.is_none() {
        event.subagent.clone_from(&base.subagent);
    }
    event
}

/// Closes a thinking box that the source never said was finished.
fn close_thought(message: &mut Message, base: &Base, out: &mut Vec<Event>) {
    let Some(Thought { id, wire, elapsed, collapse }) = message.thought.take() else {
        return;
    };
    let said = [
        ("elapsed", elapsed),
        ("thinking", Some(Json::from(serde_json::Value::from(true)))),
        ("collapse", collapse),
        ("messageId", Some(Json::string(&wire))),
    ];
    let hai = compose(said.into_iter().filter_map(|(key, value)| Some((key, value?))));
    let metadata = Object::from_entries([(super::super::wire::HAI, hai.into())]);
    let end = base.bare(Body::ReasoningMessageEnd { message: id.clone() });
    out.push(end.with_metadata(Some(metadata)));
    out.push(base.bare(Body::ReasoningEnd { message: id }));
}

fn close(_wire: MessageId, mut message: Message, base: &Base, out: &mut Vec<Event>) {
    close_thought(&mut message, base, out);
    if let Some(text) = message.text {
        out.push(base.bare(Body::TextEnd { message: text }));
    }
}
