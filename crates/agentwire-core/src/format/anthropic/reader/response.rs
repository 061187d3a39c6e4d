//! One response: its blocks as messages, reasoning and calls.

use std::collections::HashMap;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{citations::read_citation, results::read_result};
use crate::{
    event::{
        Body, Citation, EncryptedEntity, Event, File, MediaKind, MessageId, PartSource, Role, ToolCallId,
        ToolResult,
    },
    format::{
        anthropic::wire::RESULT_SUFFIX,
        derived_ids::part_id,
        model_api::{
            ModelRun,
            fields::{list, string},
        },
    },
    json::{Fields, Json, Object, Path, ReadResult, json},
    tally::Tally,
};

/// Maximum number of blocks per response; long agentic turns have a few hundred.
const MAX_BLOCKS: usize = 4096;
/// Maximum bytes of thinking, or of a call with its result, that are sent back.
const MAX_SEALED: usize = 4 << 20;
/// Maximum number of citations per response.
const MAX_SOURCES: u32 = 4096;

/// The output of a response.
pub(super) struct ResponseSink<'s> {
    pub(super) out: &'s mut Vec<Event>,
    pub(super) tally: &'s mut Tally,
    pub(super) run: &'s mut ModelRun,
}

impl ResponseSink<'_> {
    fn push(&mut self, body: Body) {
        self.out.push(Event::new(body));
    }
}

#[derive(Debug)]
pub(super) struct ResponseState {
    native_id: Option<Box<str>>,
    pub(super) model: Option<Box<str>>,
    /// The id of the first message, from which the others derive.
    first: Option<MessageId>,
    /// The message that takes text and calls.
    message: Option<MessageId>,
    message_count: u32,
    has_calls: bool,
    is_text_open: bool,
    reasoning_count: u32,
    source_count: u32,
    file_count: u32,
    blocks: HashMap<u32, Block>,
    block_count: usize,
    /// Calls of server tools without a result, by the provider's id.
    server_calls: IndexMap<Box<str>, ServerCall>,
    /// True if the reason why the model stopped is known.
    pub(super) is_stopped: bool,
}

#[derive(Debug)]
enum Block {
    Text,
    Thinking(Thinking),
    Call(Call),
    /// A complete block, or one of an unknown kind.
    Done,
}

#[derive(Debug)]
struct Thinking {
    message: MessageId,
    text: String,
    signature: String,
    /// The data of redacted thinking.
    redacted: Option<Box<str>>,
}

#[derive(Debug)]
struct Call {
    id: ToolCallId,
    /// The input in the start of the block: whole in a whole message, `{}` in a stream.
    input: Json,
    has_arguments: bool,
    /// The id and the block of a server tool, without its input, and its arguments.
    server: Option<(Box<str>, Object, String)>,
}

/// The call of a server tool until its result.
#[derive(Debug)]
struct ServerCall {
    id: ToolCallId,
    block: Object,
}

impl ResponseState {
    pub(super) fn new(native_id: Option<Box<str>>, model: Option<Box<str>>) -> Self {
        Self {
            native_id,
            model,
            first: None,
            message: None,
            message_count: 0,
            has_calls: false,
            is_text_open: false,
            reasoning_count: 0,
            source_count: 0,
            file_count: 0,
            blocks: HashMap::new(),
            block_count: 0,
            server_calls: IndexMap::new(),
            is_stopped: false,
        }
    }

    /// The id of the first message.
    fn first(&mut self, sink: &mut ResponseSink<'_>) -> MessageId {
        let native = self.native_id.as_deref();
        self.first.get_or_insert_with(|| sink.run.message_id(native)).clone()
    }

    /// The message for text and calls.
    fn message(&mut self, sink: &mut ResponseSink<'_>) -> MessageId {
        if let Some(message) = &self.message {
            return message.clone();
        }
        let first = self.first(sink);
        let message = match self.message_count {
            0 => first,
            number => part_id(&first, "part", number),
        };
        self.message_count += 1;
        self.message = Some(message.clone());
        message
    }

    fn end_message(&mut self, sink: &mut ResponseSink<'_>) {
        self.close_text(sink);
        self.message = None;
        self.has_calls = false;
    }

    fn close_text(&mut self, sink: &mut ResponseSink<'_>) {
        if std::mem::take(&mut self.is_text_open)
            && let Some(message) = self.message.clone()
        {
            sink.push(Body::TextEnd { message });
        }
    }

    pub(super) fn start_block(
        &mut self,
        index: u32,
        raw: &RawValue,
        path: Path<'_>,
        sink: &mut ResponseSink<'_>,
    ) -> ReadResult {
        self.stop_block(index, sink);
        if self.block_count >= MAX_BLOCKS {
            sink.tally.note("content block left out", "a response has too many");
            return Ok(());
        }
        self.block_count += 1;
        let mut fields = Fields::of(raw, path)?;
        let kind = string(&mut fields, "type", sink.tally)?.unwrap_or_default();
        let block = match &*kind {
            "text" => {
                self.blocks.insert(index, Block::Text);
                if let Some(text) = string(&mut fields, "text", sink.tally)? {
                    self.push_text(index, &text, sink);
                }
                list(&mut fields, "citations", |raw, path| self.push_citation(raw, path, sink))?;
                Block::Text
            }
            "thinking" | "redacted_thinking" => {
                self.end_message(sink);
                let first = self.first(sink);
                let message: MessageId = part_id(&first, "reasoning", self.reasoning_count);
                self.reasoning_count += 1;
                sink.push(Body::ReasoningStart { message: message.clone(), title: None });
                sink.push(Body::ReasoningMessageStart { message: message.clone() });
                let text = string(&mut fields, "thinking", sink.tally)?.unwrap_or_default().into_owned();
                if !text.is_empty() {
                    let delta = text.as_str().into();
                    sink.push(Body::ReasoningDelta { message: message.clone(), delta });
                }
                let signature = string(&mut fields, "signature", sink.tally)?.unwrap_or_default();
                let redacted = string(&mut fields, "data", sink.tally)?.map(Into::into);
                Block::Thinking(Thinking { message, text, signature: signature.into_owned(), redacted })
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                Block::Call(self.start_call(&kind, &mut fields, sink)?)
            }
            "container_upload" => {
                let id = fields.need_boxed("file_id", sink.tally)?;
                let message = self.message(sink);
                let source =
                    PartSource::File { value: id, provider: Some("anthropic".into()), mime_type: None };
                let id = part_id(&message, "file", self.file_count);
                self.file_count += 1;
                let kind = MediaKind::Document;
                sink.push(Body::File(Box::new(File {
                    id,
                    message: Some(message),
                    kind,
                    source,
                    name: None,
                })));
                Block::Done
            }
            kind if kind.ends_with(RESULT_SUFFIX) => {
                self.push_result(raw, &mut fields, sink)?;
                Block::Done
            }
            other => {
                sink.tally.note("unknown content block", other);
                Block::Done
            }
        };
        if !matches!(block, Block::Done) {
            fields.take("caller");
            fields.take("toolset_name");
            fields.rest("content_block", sink.tally)?;
        }
        self.blocks.insert(index, block);
        Ok(())
    }

    fn start_call(
        &mut self,
        kind: &str,
        fields: &mut Fields<'_, '_>,
        sink: &mut ResponseSink<'_>,
    ) -> ReadResult<Call> {
        let native = string(fields, "id", sink.tally)?.unwrap_or_default();
        let name = fields.need_boxed("name", sink.tally)?;
        let path = fields.path();
        let input = match fields.take_unless_null("input") {
            Some(raw) => json(raw, Path::Key(&path, "input"), sink.tally)?,
            None => Object::empty().into(),
        };
        let server_name = string(fields, "server_name", sink.tally)?;
        self.close_text(sink);
        let parent = self.message(sink);
        self.has_calls = true;
        let derived = part_id(&parent, "call", sink.run.next_call());
        // A tool of the server is not the front end's, even if the names are the same.
        let declared = if kind == "tool_use" { &*name } else { "" };
        let id = sink.run.call_id(declared, Some(&native), derived);
        let entry = |name: &'static str, value: &str| (name, Json::string(value));
        let metadata =
            server_name.as_deref().map(|name| Object::from_entries([entry("anthropic.server_name", name)]));
        let start = Body::ToolStart { call: id.clone(), name: name.clone(), parent: Some(parent) };
        sink.out.push(Event::new(start).with_metadata(metadata));
        let server = (kind != "tool_use").then(|| {
            let entries = [entry("type", kind), entry("id", &native), entry("name", &name)];
            let server_name = server_name.as_deref().map(|name| entry("server_name", name));
            let block = Object::from_entries(entries.into_iter().chain(server_name));
            (native.as_ref().into(), block, String::new())
        });
        Ok(Call { id, input, has_arguments: false, server })
    }

    /// Appends to the text of a block.
    pub(super) fn push_text(&mut self, index: u32, delta: &str, sink: &mut ResponseSink<'_>) {
        if !matches!(self.blocks.get(&index), Some(Block::Text)) {
            sink.tally.note("delta left out", "its block is not open or of another kind");
            return;
        }
        if delta.is_empty() {
            return;
        }
        if self.has_calls {
            self.end_message(sink);
        }
        let message = self.message(sink);
        if !std::mem::replace(&mut self.is_text_open, true) {
            let role = Some(Role::Assistant);
            sink.push(Body::TextStart { message: message.clone(), role, name: None });
        }
        sink.push(Body::TextDelta { message, delta: delta.into() });
    }

    pub(super) fn push_delta(
        &mut self,
        index: u32,
        raw: &RawValue,
        path: Path<'_>,
        sink: &mut ResponseSink<'_>,
    ) -> ReadResult {
        let mut fields = Fields::of(raw, path)?;
        let kind = string(&mut fields, "type", sink.tally)?.unwrap_or_default();
        match (&*kind, self.blocks.get_mut(&index)) {
            ("text_delta", Some(Block::Text)) => {
                let text = string(&mut fields, "text", sink.tally)?.unwrap_or_default();
                self.push_text(index, &text, sink);
            }
            ("citations_delta", Some(Block::Text)) => {
                if let Some(raw) = fields.take_unless_null("citation") {
                    self.push_citation(raw, Path::Key(&path, "citation"), sink)?;
                }
            }
            ("thinking_delta", Some(Block::Thinking(thinking))) => {
                let text = string(&mut fields, "thinking", sink.tally)?.unwrap_or_default();
                if !text.is_empty() {
                    if thinking.text.len() <= MAX_SEALED {
                        thinking.text.push_str(&text);
                    }
                    let message = thinking.message.clone();
                    sink.push(Body::ReasoningDelta { message, delta: text.into() });
                }
                // An estimate for progress bars.
                fields.take("estimated_tokens");
            }
            ("signature_delta", Some(Block::Thinking(thinking))) => {
                thinking.signature =
                    string(&mut fields, "signature", sink.tally)?.unwrap_or_default().into_owned();
            }
            ("input_json_delta", Some(Block::Call(call))) => {
                let piece = string(&mut fields, "partial_json", sink.tally)?.unwrap_or_default();
                if !piece.is_empty() {
                    call.has_arguments = true;
                    if let Some((_, _, arguments)) = &mut call.server
                        && arguments.len() <= MAX_SEALED
                    {
                        arguments.push_str(&piece);
                    }
                    let call = call.id.clone();
                    sink.push(Body::ToolArgs { call, delta: piece.into() });
                }
            }
            (
                "text_delta" | "citations_delta" | "thinking_delta" | "signature_delta" | "input_json_delta",
                _,
            ) => {
                sink.tally.note("delta left out", "its block is not open or of another kind");
                return Ok(());
            }
            (other, _) => {
                sink.tally.note("unknown delta", other);
                return Ok(());
            }
        }
        fields.rest("delta", sink.tally)?;
        Ok(())
    }

    pub(super) fn stop_block(&mut self, index: u32, sink: &mut ResponseSink<'_>) {
        match self.blocks.remove(&index) {
            None | Some(Block::Text | Block::Done) => {}
            Some(Block::Thinking(thinking)) => end_thinking(thinking, sink),
            Some(Block::Call(call)) => self.end_call(call, sink),
        }
    }

    fn end_call(&mut self, call: Call, sink: &mut ResponseSink<'_>) {
        let Call { id, input, has_arguments, server } = call;
        if !has_arguments {
            sink.push(Body::ToolArgs { call: id.clone(), delta: input.get().into() });
        }
        sink.push(Body::ToolEnd { call: id.clone() });
        if let Some((native, block, arguments)) = server {
            let input = if has_arguments { Json::parse(&arguments).ok() } else { Some(input) };
            let block = block.with("input", input.unwrap_or_else(|| Object::empty().into()));
            if self.server_calls.len() < MAX_BLOCKS {
                self.server_calls.insert(native, ServerCall { id, block });
            }
        }
    }

    /// The result of a server tool.
    fn push_result(
        &mut self,
        raw: &RawValue,
        fields: &mut Fields<'_, '_>,
        sink: &mut ResponseSink<'_>,
    ) -> ReadResult {
        let path = fields.path();
        let native = fields.need_boxed("tool_use_id", sink.tally)?;
        let is_error = fields.bool("is_error")?.unwrap_or(false);
        let content = fields.take_unless_null("content");
        let result = read_result(content, is_error, Path::Key(&path, "content"), sink.tally)?;
        let known = self.server_calls.shift_remove(&native);
        let call = known.as_ref().map_or_else(|| ToolCallId::from(&*native), |known| known.id.clone());
        self.close_text(sink);
        sink.push(Body::ToolResult(Box::new(ToolResult {
            message: part_id(&call, "result", 0),
            call: call.clone(),
            content: result.text.into(),
            error: result.error,
            explicit_role: false,
        })));
        if let Some(ServerCall { block, .. }) = known {
            let whole = json(raw, path, sink.tally)?;
            let value = format!("[{},{}]", block.get(), whole.get());
            seal(EncryptedEntity::ToolCall(call), value, sink);
        }
        Ok(())
    }

    fn push_citation(&mut self, raw: &RawValue, path: Path<'_>, sink: &mut ResponseSink<'_>) -> ReadResult {
        let citation = read_citation(raw, path, sink.tally)?;
        if self.source_count >= MAX_SOURCES {
            sink.tally.note("citation left out", "a response has too many");
            return Ok(());
        }
        let message = self.message(sink);
        let first = self.first(sink);
        let id = part_id(&first, "source", self.source_count);
        self.source_count += 1;
        sink.push(Body::Citation(Box::new(Citation { id, message: Some(message), ..citation })));
        Ok(())
    }

    /// The model stopped.
    pub(super) fn stop(&mut self, reason: &str, metadata: Option<Object>, sink: &mut ResponseSink<'_>) {
        self.close(sink);
        self.is_stopped = true;
        // Calls of a turn that pauses; their results are in the response that continues it.
        for (_, ServerCall { id, block }) in std::mem::take(&mut self.server_calls) {
            seal(EncryptedEntity::ToolCall(id), format!("[{}]", block.get()), sink);
        }
        let body = Body::FinishReason { message: self.message.clone(), reason: reason.into() };
        sink.out.push(Event::new(body).with_metadata(metadata));
    }

    /// Closes everything open, in the order of the blocks.
    pub(super) fn close(&mut self, sink: &mut ResponseSink<'_>) {
        self.close_text(sink);
        let mut open: Vec<u32> = self.blocks.keys().copied().collect();
        open.sort_unstable();
        for index in open {
            match self.blocks.remove(&index) {
                // Thinking without its signature cannot be sent back.
                Some(Block::Thinking(thinking)) => end_thinking(thinking, sink),
                Some(Block::Call(call)) => sink.push(Body::ToolEnd { call: call.id }),
                _ => {}
            }
        }
    }
}

fn end_thinking(thinking: Thinking, sink: &mut ResponseSink<'_>) {
    let Thinking { message, text, signature, redacted } = thinking;
    let entry = |name: &'static str, value: &str| (name, Json::string(value));
    let block = match redacted {
        Some(data) => Some([entry("type", "redacted_thinking"), entry("data", &data)].to_vec()),
        None if signature.is_empty() => None,
        None => Some(
            [entry("type", "thinking"), entry("thinking", &text), entry("signature", &signature)].to_vec(),
        ),
    };
    if let Some(block) = block {
        let value = Object::from_entries(block).get().to_owned();
        seal(EncryptedEntity::Message(message.clone()), format!("[{value}]"), sink);
    }
    sink.push(Body::ReasoningMessageEnd { message: message.clone() });
    sink.push(Body::ReasoningEnd { message });
}

/// Emits blocks that the provider needs back unchanged.
fn seal(entity: EncryptedEntity, value: String, sink: &mut ResponseSink<'_>) {
    if value.len() > MAX_SEALED {
        sink.tally.note("encrypted value left out", "it is too long to be sent back");
        return;
    }
    sink.push(Body::ReasoningEncrypted { entity, value: value.into() });
}
