//! Reads BUSINESS_DATA_*: messages of text, thinking and blocks.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::{
        delta::{self, DeltaOutput, OutputDelta, Placement},
        derived_ids::BlockTarget,
        fields::{block_id, filled_id, opt_string, some_json},
        nesting::compose,
        wire::ASSISTANT,
    },
    HaiReader,
    members::FrameMembers,
    partial_documents::{BufferedFrame, MAX_BUFFERED, PartialDocument},
};
use crate::{
    event::{Block, Body, Event, MessageId, Role},
    format::ag_ui::shapes,
    json::{Fields, Json, Object, Path, ReadResult},
};

/// Limit of open messages, the same as in the guard. Beyond it the oldest is closed.
const MAX_OPEN: usize = 16_384;

/// A message that is open on the wire.
#[derive(Debug, Default)]
pub(crate) struct OpenMessage {
    role: Option<Role>,
    name: Option<Box<str>>,
    /// Members of the start, for the text that it opens.
    start: FrameMembers,
    /// The open text.
    text: Option<MessageId>,
    /// The open thinking span.
    thought: Option<OpenThought>,
    /// An incomplete document.
    partial: Option<Box<PartialDocument>>,
    /// Whether plain text was read. Shapes are not mixed, so later braces are text.
    has_plain_text: bool,
    /// Whether documents as strings were read. White space between them is ignored.
    has_documents: bool,
    /// Whether other outputs preceded the text.
    has_earlier_output: bool,
    /// Whether the start of the text names its message in metadata `hai`. Deltas with metadata `hai` then repeat
    /// it, because new metadata replaces the former.
    names_message: bool,
    /// A role that is invalid for text.
    odd_role: Option<Json>,
}

/// A span of consecutive thinking outputs.
#[derive(Debug)]
struct OpenThought {
    id: MessageId,
    /// The message that contains it.
    wire: MessageId,
    elapsed: Option<Json>,
    collapse: Option<Json>,
}

/// A content event on the fast path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ContentFrame<'a> {
    #[serde(rename = "type", borrow)]
    _type: Cow<'a, str>,
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow)]
    delta: &'a RawValue,
    #[serde(default)]
    timestamp: Option<i64>,
}

/// A string delta on the fast path.
#[derive(Deserialize)]
#[serde(transparent)]
struct StringDelta<'a>(#[serde(borrow)] Cow<'a, str>);

/// The prefix and suffix of a text output as a JSON document in a string.
const TEXT_DOCUMENT: (&str, &str) = (r#""{\"output\":{\"type\":\"text\",\"content\":\""#, r#"\"}}""#);

/// A structured delta on the fast path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextDocument<'a> {
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
    /// The fast path: text that appends to an open text, nine tenths of a stream. Returns whether it applied.
    pub(crate) fn read_fast(&mut self, text: &str, out: &mut Vec<Event>) -> bool {
        if !text.starts_with(r#"{"type":"BUSINESS_DATA_CONTENT","#) {
            return false;
        }
        let Ok(ContentFrame { message_id, delta, timestamp, .. }) = serde_json::from_str(text) else {
            return false;
        };
        let raw = delta.get();
        // Without a backslash there is nothing to unescape, neither in the document nor in the string.
        let content = raw.strip_prefix(TEXT_DOCUMENT.0).and_then(|rest| rest.strip_suffix(TEXT_DOCUMENT.1));
        if let Some(content) = content.filter(|content| memchr::memchr(b'\\', content.as_bytes()).is_none()) {
            return self.append_text(&message_id, content.into(), true, timestamp, out);
        }
        if raw.starts_with('{') {
            return self.read_fast_document(&message_id, raw, timestamp, out);
        }
        let Ok(StringDelta(delta)) = serde_json::from_str(raw) else {
            return false;
        };
        if delta.starts_with('{') {
            return self.read_fast_document(&message_id, &delta, timestamp, out);
        }
        !delta.trim_start().starts_with('{') && self.append_text(&message_id, delta, false, timestamp, out)
    }

    /// Reads a structured delta that contains only text.
    fn read_fast_document(
        &mut self,
        wire: &str,
        document: &str,
        timestamp: Option<i64>,
        out: &mut Vec<Event>,
    ) -> bool {
        match serde_json::from_str::<TextDocument<'_>>(document) {
            Ok(TextDocument { output }) if output.kind == "text" => {
                self.append_text(wire, output.content, true, timestamp, out)
            }
            _ => false,
        }
    }

    /// Appends to the open text of a message, unless a thinking span or partial document is open.
    fn append_text(
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
        let Some((id, OpenMessage { text: Some(message), thought: None, partial: None, has_documents, .. })) =
            self.messages.get_key_value(wire)
        else {
            return false;
        };
        if *has_documents && !is_document {
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

    /// The message id of a frame, or a default.
    fn wire_id(&mut self, f: &mut Fields<'_, '_>, event_type: &str) -> ReadResult<MessageId> {
        let tally = &mut self.context.tally;
        let given = filled_id(f, "messageId", tally)?;
        // Where all messages share the id of the run, this is the id of the message.
        let source = filled_id(f, "sourceMessageId", tally)?;
        if let Some(id) = source.or(given) {
            return Ok(self.context.interner.get(&id));
        }
        tally.note("missing id", event_type);
        Ok(match &self.last_message {
            Some(last) if event_type != "BUSINESS_DATA_START" => last.clone(),
            _ => self.context.interner.get(&self.run_message),
        })
    }

    /// The open message; opened if the stream has no start for it.
    fn message(&mut self, wire: &MessageId, out: &mut Vec<Event>) -> &mut OpenMessage {
        if !self.messages.contains_key(wire) {
            if self.messages.len() >= MAX_OPEN {
                self.close_oldest(out);
            }
            self.derived_ids.note_start(wire);
            self.messages.insert(wire.clone(), OpenMessage::default());
        }
        self.last_message = Some(wire.clone());
        self.messages.get_mut(wire).expect("inserted above")
    }

    fn close_oldest(&mut self, out: &mut Vec<Event>) {
        let Some(oldest) = self.messages.first().map(|(oldest, _)| oldest.clone()) else { return };
        self.flush(&oldest, out);
        if let Some(message) = self.messages.shift_remove(&oldest) {
            self.context.tally.note("too many open messages", "closed the oldest");
            close(message, &FrameMembers::default(), out);
        }
    }

    pub(crate) fn business_start(
        &mut self,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        const EVENT_TYPE: &str = "BUSINESS_DATA_START";
        let wire = self.wire_id(&mut f, EVENT_TYPE)?;
        let tally = &mut self.context.tally;
        let role = opt_string(&mut f, "role", tally)?;
        let name = opt_string(&mut f, "name", tally)?.map(Box::from);
        let base = base.with_rest(&mut f, EVENT_TYPE, tally)?;
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
        match base.represented_type().as_deref() {
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
                let names_message = explicit.is_some();
                let text = explicit.unwrap_or_else(|| wire.clone());
                hai.extend(odd_role.clone().map(|role| ("role", role)));
                let body = Body::TextStart { message: text.clone(), role: parsed, name };
                out.push(base.event(body, &hai, tally));
                let message = self.message(&wire, out);
                (message.text, message.role, message.odd_role) = (Some(text), parsed, odd_role);
                message.names_message = names_message;
                self.derived_ids.count_text(&wire);
            }
            _ => {
                if self.messages.contains_key(&wire) {
                    tally.note("repeated start", EVENT_TYPE);
                    return Ok(());
                }
                let message = self.message(&wire, out);
                *message =
                    OpenMessage { role: parsed, name, start: base, odd_role, ..OpenMessage::default() };
            }
        }
        Ok(())
    }

    pub(crate) fn business_content(
        &mut self,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        const EVENT_TYPE: &str = "BUSINESS_DATA_CONTENT";
        let wire = self.wire_id(&mut f, EVENT_TYPE)?;
        let tally = &mut self.context.tally;
        let raw = f.take_unless_null("delta").ok_or_else(|| f.missing("delta", "a string or an object"))?;
        let outer = Placement {
            layout: some_json(&mut f, "layout", tally)?,
            block_id: block_id(&mut f, tally)?,
            style: some_json(&mut f, "style", tally)?,
            more: None,
        };
        let base = base.with_rest(&mut f, EVENT_TYPE, tally)?;
        if base.agui.is_none() && raw.get().starts_with('"') {
            let content = crate::json::text(raw, Path::Key(&Path::Root, "delta"), tally)?;
            self.read_string(&wire, &content, outer, base, out);
            return Ok(());
        }
        self.flush(&wire, out);
        let tally = &mut self.context.tally;
        let literal = base.agui.as_ref().is_some_and(|agui| agui.member("literal").is_some());
        let deltas = if literal && raw.get().starts_with('"') {
            // Text that looks like a document.
            let content = crate::json::text(raw, Path::Key(&Path::Root, "delta"), tally)?;
            vec![OutputDelta {
                output: DeltaOutput::Text { content, more: None },
                placement: Placement::default(),
            }]
        } else {
            delta::read_delta(raw, Path::Key(&Path::Root, "delta"), tally)?
        };
        for delta in deltas {
            let delta = OutputDelta { placement: delta.placement.or(&outer), ..delta };
            match base.represented_type() {
                Some(kind) => {
                    let message = self.message(&wire, out);
                    let named = base.agui_str("messageId");
                    let thought = message.thought.as_ref().map(|thought| thought.id.as_str());
                    if kind == "REASONING_MESSAGE_END" && thought.is_some() && thought == named.as_deref() {
                        // This frame represents its end.
                        message.thought = None;
                    }
                    // An open thinking span ends at the next output.
                    close_thought(message, &base, out);
                    if self.restore_event(&kind, &delta, &base, out).is_none() {
                        self.output(&wire, delta, &base, out);
                    }
                }
                None => self.output(&wire, delta, &base, out),
            }
        }
        Ok(())
    }

    /// Reads a string delta: text, documents, or part of one.
    fn read_string(
        &mut self,
        wire: &MessageId,
        content: &str,
        placement: Placement,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) {
        let message = self.message(wire, out);
        let has_plain_text = message.has_plain_text;
        if message.has_documents && message.partial.is_none() && content.trim().is_empty() {
            return;
        }
        let buffered = message.partial.take().unwrap_or_default();
        self.buffered_bytes -= buffered.size();
        let tally = &mut self.context.tally;
        // Quotes inside the strings of a document are escaped, so complete documents are not part of another one.
        let whole = buffered.is_waiting().then(|| delta::parse_documents(content, tally)).flatten();
        let mut partial = buffered;
        let deltas = match whole {
            Some(deltas) => {
                self.emit_as_text(wire, std::mem::take(&mut partial).into_frames(), out);
                deltas
            }
            None => match partial.push(content, tally) {
                Some(deltas) if !(has_plain_text && partial.is_waiting()) => deltas,
                _ => {
                    let frames = partial.into_frames();
                    if !frames.is_empty() {
                        self.emit_as_text(wire, frames, out);
                        return self.read_string(wire, content, placement, base, out);
                    }
                    self.emit_as_text(
                        wire,
                        vec![BufferedFrame { content: content.to_owned(), placement, base }],
                        out,
                    );
                    return;
                }
            },
        };
        self.message(wire, out).has_documents |= !deltas.is_empty();
        for delta in deltas {
            let delta = OutputDelta { placement: delta.placement.or(&placement), ..delta };
            self.output(wire, delta, &base, out);
        }
        if !partial.is_waiting() {
            return;
        }
        partial.keep(content, placement, base);
        if self.buffered_bytes + partial.size() > MAX_BUFFERED {
            self.context.tally.note("delta in pieces", "too large to be joined");
            return self.emit_as_text(wire, partial.into_frames(), out);
        }
        self.buffered_bytes += partial.size();
        self.message(wire, out).partial = Some(partial);
    }

    /// Emits the partial document of a message as text.
    fn flush(&mut self, wire: &MessageId, out: &mut Vec<Event>) {
        let partial = self.messages.get_mut(wire).and_then(|message| message.partial.take());
        if let Some(partial) = partial {
            self.buffered_bytes -= partial.size();
            self.emit_as_text(wire, partial.into_frames(), out);
        }
    }

    /// Emits the partial documents of all messages as text.
    pub(crate) fn flush_all(&mut self, out: &mut Vec<Event>) {
        if self.buffered_bytes == 0 {
            return;
        }
        let waiting = self.messages.iter().filter(|(_, message)| message.partial.is_some());
        for wire in waiting.map(|(wire, _)| wire.clone()).collect::<Vec<_>>() {
            self.flush(&wire, out);
        }
    }

    /// Emits buffered frames as text.
    fn emit_as_text(&mut self, wire: &MessageId, frames: Vec<BufferedFrame>, out: &mut Vec<Event>) {
        for BufferedFrame { content, placement, base } in frames {
            let has_plain_text = !content.is_empty();
            let output = DeltaOutput::Text { content: content.into(), more: None };
            self.output(wire, OutputDelta { output, placement }, &base, out);
            self.message(wire, out).has_plain_text |= has_plain_text;
        }
    }

    /// Emits the events of an output.
    fn output(
        &mut self,
        wire: &MessageId,
        delta: OutputDelta<'_>,
        base: &FrameMembers,
        out: &mut Vec<Event>,
    ) {
        let _ = self.message(wire, out);
        let Self { messages, derived_ids, context, .. } = self;
        let message = messages.get_mut(wire).expect("opened above");
        let tally = &mut context.tally;
        let OutputDelta { output, placement } = delta;
        let mut hai = placement_entries(&placement);
        match output {
            DeltaOutput::Text { content, more } => {
                close_thought(message, base, out);
                let text = match &message.text {
                    Some(text) => text.clone(),
                    None => {
                        let text = derived_ids.next_text(wire);
                        derived_ids.count_text(wire);
                        message.names_message = message.has_earlier_output || text != *wire;
                        out.push(open_text(message, wire, &text, base, tally));
                        message.text.insert(text).clone()
                    }
                };
                hai.extend(more.map(|more| ("output", more.into())));
                if message.names_message && (!hai.is_empty() || base.rest.is_some()) {
                    hai.push(("messageId", Json::string(wire)));
                }
                let body = Body::TextDelta { message: text, delta: content.into() };
                out.push(base.event(body, &hai, tally));
            }
            DeltaOutput::Thinking { content, elapsed, thinking, collapse, data, more } => {
                if message.thought.is_none() {
                    let id = derived_ids.next_thought(wire);
                    derived_ids.count_thought(wire);
                    let mut entries = vec![("messageId", Json::string(wire))];
                    let bare = FrameMembers {
                        timestamp: base.timestamp,
                        subagent: base.subagent.clone(),
                        ..FrameMembers::default()
                    };
                    let body = Body::ReasoningMessageStart { message: id.clone() };
                    let start = bare.event(body, &entries, tally);
                    entries.extend(start_details(message).map(|details| ("start", details)));
                    let body = Body::ReasoningStart { message: id.clone(), title: None };
                    out.push(bare.event(body, &entries, tally));
                    out.push(start);
                    let wire = wire.clone();
                    message.thought = Some(OpenThought { id, wire, elapsed: None, collapse: None });
                }
                message.has_earlier_output |= message.text.is_none();
                let thought = message.thought.as_mut().expect("inserted above");
                thought.elapsed.clone_from(&elapsed);
                thought.collapse.clone_from(&collapse);
                let flag = thinking.map(|thinking| Json::from(serde_json::Value::from(thinking)));
                let entries = [
                    ("elapsed", elapsed),
                    ("thinking", flag),
                    ("collapse", collapse),
                    ("data", data.map(Json::from)),
                    ("output", more.map(Json::from)),
                ];
                hai.extend(entries.into_iter().filter_map(|(key, value)| Some((key, value?))));
                if !hai.is_empty() || base.rest.is_some() {
                    hai.push(("messageId", Json::string(wire)));
                }
                let body = Body::ReasoningDelta { message: thought.id.clone(), delta: content.into() };
                out.push(base.event(body, &hai, tally));
                if thinking == Some(false)
                    && let Some(OpenThought { id, .. }) = message.thought.take()
                {
                    out.push(base.bare_event(Body::ReasoningMessageEnd { message: id.clone() }));
                    out.push(base.bare_event(Body::ReasoningEnd { message: id }));
                }
            }
            DeltaOutput::Block(output) => {
                close_thought(message, base, out);
                let position = placement.by_ref();
                let target = derived_ids.next_block(wire, &output, position);
                derived_ids.count_block(wire, &output, position, &target);
                match target {
                    BlockTarget::New(id) => {
                        let mut hai: Vec<_> =
                            placement.more.map(|more| ("delta", more.into())).into_iter().collect();
                        if !message.has_earlier_output && message.text.is_none() {
                            hai.extend(start_details(message).map(|details| ("start", details)));
                        }
                        let block = Block {
                            id,
                            message: wire.clone(),
                            output,
                            layout: placement.layout,
                            block_id: placement.block_id,
                            style: placement.style,
                        };
                        out.push(base.event(Body::Block(Box::new(block)), &hai, tally));
                    }
                    BlockTarget::Update(activity, patch) => {
                        hai.push(("messageId", Json::string(wire)));
                        hai.push(("output", output.into()));
                        let body =
                            Body::ActivityDelta { message: activity, kind: "hai.toolCallShow".into(), patch };
                        out.push(base.event(body, &hai, tally));
                    }
                }
                message.has_earlier_output |= message.text.is_none();
            }
        }
    }

    pub(crate) fn business_end(
        &mut self,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        const EVENT_TYPE: &str = "BUSINESS_DATA_END";
        let wire = self.wire_id(&mut f, EVENT_TYPE)?;
        let tally = &mut self.context.tally;
        let role = opt_string(&mut f, "role", tally)?;
        let base = base.with_rest(&mut f, EVENT_TYPE, tally)?;
        self.flush(&wire, out);
        let tally = &mut self.context.tally;
        let Some(mut message) = self.messages.shift_remove(&wire) else {
            tally.note("end without a start", EVENT_TYPE);
            return Ok(());
        };
        if self.last_message.as_ref() == Some(&wire) {
            self.last_message = self.messages.last().map(|(id, _)| id.clone());
        }
        close_thought(&mut message, &base, out);
        if let Some(text) = message.text {
            let expected = message.role.map_or(ASSISTANT, Role::as_str);
            let odd_role = message.odd_role.as_ref().and_then(Json::as_str);
            let is_expected =
                |role: &String| role == expected || role == ASSISTANT || odd_role.as_ref() == Some(role);
            let unexpected = role.filter(|role| !is_expected(role));
            let hai: Vec<_> = unexpected.map(|role| ("role", Json::string(&role))).into_iter().collect();
            out.push(base.event(Body::TextEnd { message: text }, &hai, tally));
        }
        Ok(())
    }

    /// Records that a text has ended before its message.
    pub(crate) fn note_text_end(&mut self, text: &MessageId) {
        for message in self.messages.values_mut() {
            if message.text.as_ref() == Some(text) {
                message.text = None;
            }
        }
    }

    /// Closes all messages before the run ends.
    pub(crate) fn close_all(&mut self, base: &FrameMembers, out: &mut Vec<Event>) {
        self.flush_all(out);
        for (_, message) in std::mem::take(&mut self.messages) {
            close(message, base, out);
        }
        self.last_message = None;
    }

    /// Restores the AG-UI event that an output represents.
    fn restore_event(
        &mut self,
        kind: &str,
        delta: &OutputDelta<'_>,
        base: &FrameMembers,
        out: &mut Vec<Event>,
    ) -> Option<()> {
        let agui = base.agui.as_ref()?;
        let message = || agui.get_str("messageId").map(MessageId::from);
        let body = match (kind, &delta.output) {
            ("TEXT_MESSAGE_CONTENT", DeltaOutput::Text { content, more }) => {
                let mut hai = placement_entries(&delta.placement);
                hai.extend(more.clone().map(|more| ("output", more.into())));
                let body = Body::TextDelta { message: message()?, delta: content.as_ref().into() };
                out.push(base.event(body, &hai, &mut self.context.tally));
                return Some(());
            }
            ("REASONING_MESSAGE_CONTENT", DeltaOutput::Thinking { content, .. }) => {
                Body::ReasoningDelta { message: message()?, delta: content.as_ref().into() }
            }
            ("REASONING_MESSAGE_END", _) => Body::ReasoningMessageEnd { message: message()? },
            ("REASONING_START", DeltaOutput::Block(output)) => {
                let title = output.member("data")?.into_object()?.get_str("title")?.into();
                Body::ReasoningStart { message: message()?, title: Some(title) }
            }
            ("REASONING_END", _) => Body::ReasoningEnd { message: message()? },
            ("ACTIVITY_SNAPSHOT", output) => {
                let output = output.to_object();
                let Some(activity) = agui.get_str("activityType") else {
                    // A block whose id differs from the derived one.
                    let block = Block {
                        id: message()?,
                        message: agui.get_str("blockMessageId")?.into(),
                        output,
                        layout: delta.placement.layout.clone(),
                        block_id: delta.placement.block_id.clone(),
                        style: delta.placement.style.clone(),
                    };
                    let hai: Vec<_> =
                        delta.placement.more.clone().map(|more| ("delta", more.into())).into_iter().collect();
                    out.push(base.event(Body::Block(Box::new(block)), &hai, &mut self.context.tally));
                    return Some(());
                };
                if agui.member("content").is_some() {
                    // The complete event, because the output has another form.
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

/// The placement of an output as entries of metadata `hai`.
fn placement_entries(placement: &Placement) -> Vec<(&'static str, Json)> {
    let entries = [
        ("layout", placement.layout.clone()),
        ("blockId", placement.block_id.as_deref().map(Json::string)),
        ("style", placement.style.clone()),
        ("delta", placement.more.clone().map(Json::from)),
    ];
    entries.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// The details of a start besides its id, stored with the first item in the message for the writer.
fn start_details(message: &OpenMessage) -> Option<Json> {
    if message.has_earlier_output || message.text.is_some() {
        return None;
    }
    let role = message.role.filter(|role| *role != Role::Assistant).map(|role| Json::string(role.as_str()));
    let entries = [
        ("role", role.or_else(|| message.odd_role.clone())),
        ("name", message.name.as_deref().map(Json::string)),
        ("rest", message.start.rest.clone().map(Json::from)),
        ("metadata", message.start.metadata.clone().map(Json::from)),
    ];
    let entries = compose(entries.into_iter().filter_map(|(key, value)| Some((key, value?))));
    (!entries.is_empty()).then(|| entries.into())
}

/// The start event of the text in a message.
fn open_text(
    message: &OpenMessage,
    wire: &MessageId,
    text: &MessageId,
    base: &FrameMembers,
    tally: &mut crate::tally::Tally,
) -> Event {
    let mut hai = Vec::new();
    if message.names_message {
        hai.push(("messageId", Json::string(wire)));
    }
    hai.extend(message.odd_role.clone().map(|role| ("role", role)));
    let body = Body::TextStart { message: text.clone(), role: message.role, name: message.name.clone() };
    let mut event = message.start.event(body, &hai, tally);
    // A text that follows other outputs has the timestamp of its first output.
    if message.has_earlier_output || event.timestamp.is_none() {
        event.timestamp = base.timestamp;
    }
    if event.subagent.is_none() {
        event.subagent.clone_from(&base.subagent);
    }
    event
}

/// Closes a thinking span that the source left open.
fn close_thought(message: &mut OpenMessage, base: &FrameMembers, out: &mut Vec<Event>) {
    let Some(OpenThought { id, wire, elapsed, collapse }) = message.thought.take() else {
        return;
    };
    let entries = [
        ("elapsed", elapsed),
        ("thinking", Some(Json::from(serde_json::Value::from(true)))),
        ("collapse", collapse),
        ("messageId", Some(Json::string(&wire))),
    ];
    let hai = compose(entries.into_iter().filter_map(|(key, value)| Some((key, value?))));
    let metadata = Object::from_entries([(super::super::wire::HAI, hai.into())]);
    let end = base.bare_event(Body::ReasoningMessageEnd { message: id.clone() });
    out.push(end.with_metadata(Some(metadata)));
    out.push(base.bare_event(Body::ReasoningEnd { message: id }));
}

/// Closes the open thinking span and text of a message.
fn close(mut message: OpenMessage, base: &FrameMembers, out: &mut Vec<Event>) {
    close_thought(&mut message, base, out);
    if let Some(text) = message.text {
        out.push(base.bare_event(Body::TextEnd { message: text }));
    }
}
