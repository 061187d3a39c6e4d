//! The items of a response: messages, reasoning and calls.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::tool_items::{ToolCallItem, ToolItem};
use crate::{
    event::{Body, Citation, EncryptedEntity, Event, File, MediaKind, MessageId, PartSource, Role},
    format::{
        derived_ids::part_id,
        model_api::{
            ModelRun, StreamedText,
            citations::read_citation,
            fields::{list, string},
        },
    },
    json::{Fields, Json, Object, Path, ReadResult, json},
    tally::Tally,
};

/// Maximum number of items per response; long agentic responses have a few hundred.
const MAX_ITEMS: usize = 4096;
/// Maximum number of parts per item.
const MAX_PARTS: usize = 1024;
/// Maximum bytes of an item that is sent back.
const MAX_SEALED: usize = 4 << 20;
/// Maximum number of citations per response.
const MAX_SOURCES: u32 = 4096;

/// The output of a response.
pub(super) struct ItemSink<'s> {
    pub(super) out: &'s mut Vec<Event>,
    pub(super) tally: &'s mut Tally,
    pub(super) run: &'s mut ModelRun,
}

impl ItemSink<'_> {
    pub(super) fn push(&mut self, body: Body) {
        self.out.push(Event::new(body));
    }

    /// Emits an item that the provider needs back unchanged.
    pub(super) fn seal(&mut self, entity: EncryptedEntity, item: &Json) {
        if item.get().len() > MAX_SEALED {
            self.tally.note("encrypted value left out", "it is too long to be sent back");
            return;
        }
        self.push(Body::ReasoningEncrypted { entity, value: item.get().into() });
    }
}

/// The kinds of streamed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Text,
    Refusal,
    Summary,
    Reasoning,
}

#[derive(Debug, Default)]
pub(super) struct Items {
    /// The id of the response.
    pub(super) response: Option<Box<str>>,
    pub(super) model: Option<Box<str>>,
    /// The last message with text or calls.
    pub(super) last_message: Option<MessageId>,
    /// The message that takes calls; none behind reasoning.
    parent: Option<MessageId>,
    items: BTreeMap<u32, Item>,
    source_count: u32,
    file_count: u32,
}

#[derive(Debug)]
struct Item {
    native_id: Box<str>,
    body: ItemBody,
    /// Parts whose text was emitted, with their kind, the last one open.
    parts: Vec<Part>,
    is_done: bool,
}

#[derive(Debug)]
struct Part {
    kind: TextKind,
    index: u32,
    message: MessageId,
    is_open: bool,
    text: StreamedText,
}

#[derive(Debug)]
enum ItemBody {
    Message {
        message: MessageId,
        metadata: Option<Object>,
    },
    Reasoning {
        message: MessageId,
    },
    Call(ToolCallItem),
    /// Complete with its item.
    Other,
}

impl Items {
    pub(super) fn index_of(&self, id: &str) -> Option<u32> {
        let mut found = self.items.iter().filter(|(_, item)| *item.native_id == *id);
        found.next_back().map(|(index, _)| *index)
    }

    pub(super) fn next_index(&self) -> u32 {
        self.items.last_key_value().map_or(0, |(index, _)| index.saturating_add(1))
    }

    /// An item at its start or its end.
    pub(super) fn read_item(
        &mut self,
        index: u32,
        raw: &RawValue,
        path: Path<'_>,
        is_done: bool,
        sink: &mut ItemSink<'_>,
    ) -> ReadResult {
        if self.items.get(&index).is_some_and(|item| item.is_done) {
            return Ok(());
        }
        let mut fields = Fields::of(raw, path)?;
        let kind = string(&mut fields, "type", sink.tally)?.unwrap_or_default();
        if !self.items.contains_key(&index) {
            if self.items.len() >= MAX_ITEMS {
                sink.tally.note("item left out", "a response has too many");
                return Ok(());
            }
            let native_id: Box<str> = string(&mut fields, "id", sink.tally)?.unwrap_or_default().into();
            let body = self.begin(&kind, &native_id, &mut fields, sink)?;
            self.items.insert(index, Item { native_id, body, parts: Vec::new(), is_done: false });
        }
        if is_done {
            self.finish_item(index, &kind, raw, &mut fields, sink)?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        kind: &str,
        native_id: &str,
        fields: &mut Fields<'_, '_>,
        sink: &mut ItemSink<'_>,
    ) -> ReadResult<ItemBody> {
        Ok(match kind {
            "message" => {
                let message = sink.run.message_id(Some(native_id));
                let phase = string(fields, "phase", sink.tally)?;
                let metadata =
                    phase.map(|phase| Object::from_entries([("openai.phase", Json::string(&phase))]));
                ItemBody::Message { message, metadata }
            }
            "reasoning" | "compaction" => {
                self.parent = None;
                ItemBody::Reasoning { message: sink.run.message_id(Some(native_id)) }
            }
            _ => match ToolItem::of(kind, fields, sink.tally)? {
                Some(tool) => {
                    let parent = self.call_parent(sink);
                    ItemBody::Call(ToolCallItem::start(tool, native_id, parent, sink))
                }
                None => ItemBody::Other,
            },
        })
    }

    /// The message that holds the next call.
    fn call_parent(&mut self, sink: &mut ItemSink<'_>) -> MessageId {
        let parent = match &self.parent {
            Some(parent) => parent.clone(),
            None => sink.run.message_id(None),
        };
        self.parent = Some(parent.clone());
        self.last_message = Some(parent.clone());
        parent
    }

    fn finish_item(
        &mut self,
        index: u32,
        kind: &str,
        raw: &RawValue,
        fields: &mut Fields<'_, '_>,
        sink: &mut ItemSink<'_>,
    ) -> ReadResult {
        let path = fields.path();
        match kind {
            "message" => {
                let mut number = 0;
                list(fields, "content", |raw, path| {
                    self.read_content(index, number, raw, path, sink)?;
                    number += 1;
                    Ok(())
                })?;
            }
            "reasoning" | "compaction" => {
                for (member, kind) in [("summary", TextKind::Summary), ("content", TextKind::Reasoning)] {
                    let mut number = 0;
                    list(fields, member, |raw, path| {
                        let mut part = Fields::of(raw, path)?;
                        let text = string(&mut part, "text", sink.tally)?.unwrap_or_default();
                        self.complete_text(index, number, kind, &text, sink);
                        number += 1;
                        Ok(())
                    })?;
                }
                if fields.take_unless_null("encrypted_content").is_some()
                    && let Some(message) = self.open_reasoning(index, sink)
                {
                    let item = json(raw, path, sink.tally)?;
                    sink.seal(EncryptedEntity::Message(message), &item);
                }
            }
            "mcp_list_tools" => {
                let value = json(raw, path, sink.tally)?;
                sink.push(Body::Custom { name: "openai.mcp_list_tools".into(), value });
            }
            _ => match self.items.get_mut(&index).map(|item| &mut item.body) {
                Some(ItemBody::Call(call)) => {
                    let image = call.finish(kind, raw, fields, sink)?;
                    if let Some(source) = image {
                        self.push_file(source, sink);
                    }
                }
                _ => ToolCallItem::read_output(kind, raw, fields, sink)?,
            },
        }
        self.close_item(index, sink);
        Ok(())
    }

    /// A part of a message that is complete.
    fn read_content(
        &mut self,
        index: u32,
        number: u32,
        raw: &RawValue,
        path: Path<'_>,
        sink: &mut ItemSink<'_>,
    ) -> ReadResult {
        let mut part = Fields::of(raw, path)?;
        let kind = string(&mut part, "type", sink.tally)?.unwrap_or_default();
        match &*kind {
            "output_text" => {
                let text = string(&mut part, "text", sink.tally)?.unwrap_or_default();
                let is_new = self.complete_text(index, number, TextKind::Text, &text, sink);
                // Annotations of streamed text were events of their own.
                list(&mut part, "annotations", |raw, path| {
                    if is_new { self.push_annotation(index, raw, path, sink) } else { Ok(()) }
                })?;
            }
            "refusal" => {
                let text = string(&mut part, "refusal", sink.tally)?.unwrap_or_default();
                self.complete_text(index, number, TextKind::Refusal, &text, sink);
            }
            other => sink.tally.note("unknown content part", other),
        }
        Ok(())
    }

    /// Appends to a part of an item.
    pub(super) fn push_text(
        &mut self,
        index: u32,
        number: u32,
        kind: TextKind,
        delta: &str,
        sink: &mut ItemSink<'_>,
    ) {
        if delta.is_empty() {
            return;
        }
        let is_known = self.items.contains_key(&index);
        if !is_known {
            // A server that does not announce its items.
            if self.items.len() >= MAX_ITEMS {
                sink.tally.note("item left out", "a response has too many");
                return;
            }
            let message = sink.run.message_id(None);
            let body = match kind {
                TextKind::Text | TextKind::Refusal => ItemBody::Message { message, metadata: None },
                TextKind::Summary | TextKind::Reasoning => ItemBody::Reasoning { message },
            };
            self.items.insert(index, Item { native_id: "".into(), body, parts: Vec::new(), is_done: false });
        }
        let Some(item) = self.items.get_mut(&index) else { return };
        let Some(message) = item.open_part(number, kind, sink) else {
            sink.tally.note("delta left out", "its item is complete or of another kind");
            return;
        };
        if let Some(part) = item.find_part(number, kind) {
            part.text.add(delta);
        }
        match kind {
            TextKind::Text | TextKind::Refusal => {
                if kind == TextKind::Text {
                    self.parent = Some(message.clone());
                }
                self.last_message = Some(message.clone());
                sink.push(Body::TextDelta { message, delta: delta.into() });
            }
            TextKind::Summary | TextKind::Reasoning => {
                sink.push(Body::ReasoningDelta { message, delta: delta.into() });
            }
        }
    }

    /// The whole text of a part: what was not streamed of it is emitted. Returns whether nothing was streamed.
    pub(super) fn complete_text(
        &mut self,
        index: u32,
        number: u32,
        kind: TextKind,
        text: &str,
        sink: &mut ItemSink<'_>,
    ) -> bool {
        let Some(part) = self.items.get_mut(&index).and_then(|item| item.find_part(number, kind)) else {
            self.push_text(index, number, kind, text, sink);
            return true;
        };
        match part.text.rest(text) {
            Some(rest) => {
                let rest = rest.to_owned();
                self.push_text(index, number, kind, &rest, sink);
            }
            // Some servers leave the text out here.
            None if text.is_empty() => {}
            None => sink.tally.note("whole text left out", "it differs from its deltas"),
        }
        false
    }

    pub(super) fn push_annotation(
        &mut self,
        index: u32,
        raw: &RawValue,
        path: Path<'_>,
        sink: &mut ItemSink<'_>,
    ) -> ReadResult {
        let Some(citation) = read_citation(raw, path, sink.tally)? else { return Ok(()) };
        let message = match self.items.get(&index).map(|item| &item.body) {
            Some(ItemBody::Message { message, .. }) => message.clone(),
            _ => {
                sink.tally.note("citation left out", "its item is not a message");
                return Ok(());
            }
        };
        if self.source_count >= MAX_SOURCES {
            sink.tally.note("citation left out", "a response has too many");
            return Ok(());
        }
        let base = self.response.as_deref().unwrap_or(&message);
        let id = part_id(base, "source", self.source_count);
        self.source_count += 1;
        sink.push(Body::Citation(Box::new(Citation { id, message: Some(message), ..citation })));
        Ok(())
    }

    /// Appends to the arguments of a call; `is_whole` if they are all of them.
    pub(super) fn push_arguments(
        &mut self,
        index: Option<u32>,
        text: &str,
        is_whole: bool,
        sink: &mut ItemSink<'_>,
    ) {
        let item = index.and_then(|index| self.items.get_mut(&index));
        match item.map(|item| &mut item.body) {
            Some(ItemBody::Call(call)) => call.push_arguments(text, is_whole, sink),
            _ => sink.tally.note("arguments left out", "their item is not a call"),
        }
    }

    fn push_file(&mut self, source: PartSource, sink: &mut ItemSink<'_>) {
        let message = self.call_parent(sink);
        let id = part_id(&message, "file", self.file_count);
        self.file_count += 1;
        let kind = MediaKind::Image;
        sink.push(Body::File(Box::new(File { id, message: Some(message), kind, source, name: None })));
    }

    /// The reasoning message that holds the encrypted content of an item: its first one.
    fn open_reasoning(&mut self, index: u32, sink: &mut ItemSink<'_>) -> Option<MessageId> {
        let item = self.items.get_mut(&index)?;
        if let Some(part) = item.parts.first() {
            return Some(part.message.clone());
        }
        item.open_part(0, TextKind::Summary, sink)
    }

    fn close_item(&mut self, index: u32, sink: &mut ItemSink<'_>) {
        if let Some(item) = self.items.get_mut(&index) {
            item.close_parts(sink);
            if let ItemBody::Call(call) = &mut item.body {
                call.end(sink);
            }
            item.is_done = true;
        }
    }

    /// Closes everything open.
    pub(super) fn close(&mut self, sink: &mut ItemSink<'_>) {
        let open: Vec<u32> =
            self.items.iter().filter(|(_, item)| !item.is_done).map(|(index, _)| *index).collect();
        for index in open {
            self.close_item(index, sink);
        }
    }
}

impl Item {
    fn find_part(&mut self, index: u32, kind: TextKind) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.index == index && part.kind == kind)
    }

    /// The message of a part, which becomes the open one; `None` if the item cannot have it.
    fn open_part(&mut self, index: u32, kind: TextKind, sink: &mut ItemSink<'_>) -> Option<MessageId> {
        if self.is_done {
            return None;
        }
        if let Some(part) = self.parts.iter().find(|part| part.index == index && part.kind == kind) {
            return part.is_open.then(|| part.message.clone());
        }
        if self.parts.len() >= MAX_PARTS {
            return None;
        }
        let number = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let (message, start) = match (&self.body, kind) {
            (ItemBody::Message { message, metadata }, TextKind::Text) => {
                let start =
                    Body::TextStart { message: message.clone(), role: Some(Role::Assistant), name: None };
                (message.clone(), Event::new(start).with_metadata(metadata.clone()))
            }
            (ItemBody::Message { message, .. }, TextKind::Refusal) => {
                let refusals = self.parts.iter().filter(|part| part.kind == TextKind::Refusal).count();
                let id: MessageId = part_id(message, "refusal", u32::try_from(refusals).unwrap_or(u32::MAX));
                let metadata = Object::from_entries([("openai.refusal", Json::from(&true.into()))]);
                let start = Body::TextStart { message: id.clone(), role: Some(Role::Assistant), name: None };
                (id, Event::new(start).with_metadata(Some(metadata)))
            }
            (ItemBody::Reasoning { message }, TextKind::Summary | TextKind::Reasoning) => {
                let id = match number {
                    0 => message.clone(),
                    number => part_id(message, "part", number),
                };
                let start = Body::ReasoningMessageStart { message: id.clone() };
                (id, Event::new(start))
            }
            _ => return None,
        };
        self.close_parts(sink);
        if matches!(kind, TextKind::Summary | TextKind::Reasoning) {
            sink.push(Body::ReasoningStart { message: message.clone(), title: None });
        }
        sink.out.push(start);
        let text = StreamedText::default();
        self.parts.push(Part { kind, index, message: message.clone(), is_open: true, text });
        Some(message)
    }

    fn close_parts(&mut self, sink: &mut ItemSink<'_>) {
        for part in &mut self.parts {
            if !std::mem::take(&mut part.is_open) {
                continue;
            }
            let message = part.message.clone();
            match part.kind {
                TextKind::Text | TextKind::Refusal => sink.push(Body::TextEnd { message }),
                TextKind::Summary | TextKind::Reasoning => {
                    sink.push(Body::ReasoningMessageEnd { message: message.clone() });
                    sink.push(Body::ReasoningEnd { message });
                }
            }
        }
    }
}
