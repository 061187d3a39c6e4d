//! Data stream (AI SDK 4): one `code:json` line per part.
//!
//! Text and reasoning have no ids, so [`SpeakerQueue`] writes one message at a time. Tool errors are encoded as results with
//! a member `error`, because part `3` would end the chat. Data without a native part goes into the data array (`2`), data
//! that must stay with the message becomes an annotation (`8`).

use bytes::BufMut;

use super::{
    encode,
    part_metadata::{self, PartMetadata},
    response::{PartEncoder, ResponseFinish, ResponseStart},
    speaker_queue::SpeakerQueue,
    tool_calls::WrittenToolCall,
};
use crate::{
    event::{Citation, File, Interrupt, MessageId, PartSource, RunError, ToolCallId, Usage},
    format::ai_sdk::wire::{self, data_part},
    framing::Frames,
    json::{ArrayWriter, Json, Object, ObjectWriter, write_str},
};

/// Encoder of the data stream.
#[derive(Debug, Default)]
pub(super) struct DataStreamEncoder {
    texts: SpeakerQueue,
    reasoning: SpeakerQueue,
    /// Open reasoning messages that have text on the wire.
    reasoning_with_text: Vec<MessageId>,
}

/// Writes a line with an object.
pub(super) fn write_object_line(
    out: &mut Frames,
    code: &'static str,
    fill: impl FnOnce(&mut ObjectWriter<'_>),
) {
    let buffer = begin_line(out, code);
    let mut w = ObjectWriter::new(buffer);
    fill(&mut w);
    w.end();
    out.commit();
}

/// Writes a line with a string.
pub(super) fn write_text_line(out: &mut Frames, code: &'static str, text: &str) {
    let buffer = begin_line(out, code);
    write_str(buffer, text);
    out.commit();
}

/// Writes name and arguments of a call.
fn write_name_and_args(w: &mut ObjectWriter<'_>, call: &WrittenToolCall, input: &Json) {
    w.str("toolName", &call.name);
    // The client accepts every value whose JavaScript type is `object`.
    if input.get().starts_with(['{', '[']) || input.is_null() {
        w.json("args", input);
    } else {
        w.nested("args", |w| {
            w.json("value", input);
        });
    }
}

/// Adds name and arguments to the result of a repeated call. The client assigns a result to the first call of its id, which
/// may be a generated one, and merges all members of the result into it.
fn write_repeated_call(w: &mut ObjectWriter<'_>, call: &WrittenToolCall) {
    if let Some(input) = &call.repeated_input {
        write_name_and_args(w, call, input);
    }
}

/// Writes a line with a list of one object.
fn write_item_line(out: &mut Frames, code: &'static str, fill: impl FnOnce(&mut ObjectWriter<'_>)) {
    let buffer = begin_line(out, code);
    let mut list = ArrayWriter::new(buffer);
    list.object(fill);
    list.end();
    out.commit();
}

/// Writes `code:` and returns the buffer for the value.
fn begin_line<'o>(out: &'o mut Frames, code: &'static str) -> &'o mut bytes::BytesMut {
    let buffer = out.begin(code);
    buffer.put_slice(code.as_bytes());
    buffer.put_u8(b':');
    buffer
}

/// Writes usage in the spelling of version 4: both counts or none.
pub(super) fn write_usage(w: &mut ObjectWriter<'_>, usage: &[Usage]) {
    let total = encode::total_usage(usage);
    let count = |tokens: Option<u64>| i64::try_from(tokens.unwrap_or(0)).unwrap_or(i64::MAX);
    if total.input.is_some() || total.output.is_some() {
        w.nested("usage", |w| {
            w.int("promptTokens", count(total.input)).int("completionTokens", count(total.output));
        });
    }
}

impl PartEncoder for DataStreamEncoder {
    const ONE_REASONING_PER_STEP: bool = true;

    fn start(&mut self, out: &mut Frames, start: &ResponseStart<'_>) {
        write_item_line(out, "2", |w| {
            let name = start.run_metadata.and_then(|it| it.get_str("name"));
            w.str("type", "chain_start").str("name", name.as_deref().unwrap_or("agent"));
            let entries = start.run_metadata.map(Object::entries).unwrap_or_default();
            for (key, value) in &entries {
                if !matches!(&**key, "type" | "name" | "threadId" | "runId" | "messageId") {
                    w.entry(key, value);
                }
            }
            w.str("threadId", start.thread).str("runId", start.run);
            // Steps contain the message id too, but a client needs it earlier.
            if *start.message != *start.run.as_str() {
                w.str("messageId", start.message);
            }
        });
        if let Some(metadata) = start.message_metadata {
            self.message_metadata(out, metadata.as_json());
        }
    }

    fn start_step(&mut self, out: &mut Frames, message: &str) {
        write_object_line(out, "f", |w| {
            w.str("messageId", message);
        });
    }

    fn finish_step(&mut self, out: &mut Frames, reason: &'static str) {
        write_object_line(out, "e", |w| {
            w.str("finishReason", reason).bool("isContinued", false);
        });
    }

    fn text_start(&mut self, _: &mut Frames, _: &MessageId, _: &PartMetadata) {}

    fn text_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str) {
        self.texts.push(message, delta, |text| write_text_line(out, "0", text));
    }

    fn text_end(&mut self, out: &mut Frames, message: &MessageId, _: Option<&PartMetadata>) {
        self.texts.end(message, |text| write_text_line(out, "0", text));
    }

    fn reasoning_start(&mut self, _: &mut Frames, _: &MessageId, _: &PartMetadata) {}

    fn reasoning_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str) {
        if !self.reasoning_with_text.contains(message) {
            self.reasoning_with_text.push(message.clone());
        }
        self.reasoning.push(message, delta, |text| write_text_line(out, "g", text));
    }

    fn reasoning_end(&mut self, out: &mut Frames, message: &MessageId, metadata: Option<&PartMetadata>) {
        self.reasoning.end(message, |text| write_text_line(out, "g", text));
        let index = self.reasoning_with_text.iter().position(|it| it == message);
        if let Some(index) = index {
            self.reasoning_with_text.swap_remove(index);
        }
        if let Some(encrypted) = metadata.and_then(|metadata| metadata.encrypted.as_deref()) {
            // Redacted reasoning has no text to sign.
            match index {
                Some(_) => write_object_line(out, "j", |w| {
                    w.str("signature", encrypted);
                }),
                None => write_object_line(out, "i", |w| {
                    w.str("data", encrypted);
                }),
            }
        }
    }

    fn tool_start(&mut self, out: &mut Frames, call: &WrittenToolCall) {
        write_object_line(out, "b", |w| {
            w.str("toolCallId", &call.id).str("toolName", &call.name);
        });
    }

    fn tool_delta(&mut self, out: &mut Frames, id: &ToolCallId, delta: &str) {
        write_object_line(out, "c", |w| {
            w.str("toolCallId", id).str("argsTextDelta", delta);
        });
    }

    fn tool_input(&mut self, out: &mut Frames, call: &WrittenToolCall, input: &Json) {
        write_object_line(out, "9", |w| {
            w.str("toolCallId", &call.id);
            write_name_and_args(w, call, input);
        });
    }

    fn tool_input_error(&mut self, out: &mut Frames, call: &WrittenToolCall, input: &Json, error: &str) {
        self.tool_input(out, call, input);
        self.tool_error(out, call, error);
    }

    fn tool_output(&mut self, out: &mut Frames, call: &WrittenToolCall, output: &Json, _: &PartMetadata) {
        write_object_line(out, "a", |w| {
            w.str("toolCallId", &call.id).json("result", output);
            write_repeated_call(w, call);
        });
    }

    fn tool_error(&mut self, out: &mut Frames, call: &WrittenToolCall, error: &str) {
        write_object_line(out, "a", |w| {
            w.str("toolCallId", &call.id).nested("result", |w| {
                w.str("error", error);
            });
            write_repeated_call(w, call);
        });
    }

    fn tool_denied(&mut self, out: &mut Frames, call: &WrittenToolCall, error: &str) {
        self.tool_error(out, call, error);
    }

    fn tool_progress(&mut self, _: &mut Frames, _: &WrittenToolCall, _: &Json) -> bool {
        false
    }

    fn has_approvals(&self) -> bool {
        false
    }

    fn approval_request(&mut self, _: &mut Frames, _: &Interrupt, _: &ToolCallId) {}

    fn data(&mut self, out: &mut Frames, name: &str, id: Option<&str>, data: &Json, _transient: bool) {
        // The client does not keep data with the message. Interrupts must be kept: a page may be reloaded before the answer.
        let code = if name == data_part::INTERRUPT { "8" } else { "2" };
        if name == wire::DATA_ITEM && id.is_none() {
            let buffer = begin_line(out, code);
            let mut list = ArrayWriter::new(buffer);
            list.json(data);
            list.end();
            return out.commit();
        }
        write_item_line(out, code, |w| {
            w.str("type", name).opt_str("id", id).json("data", data);
        });
    }

    fn message_metadata(&mut self, out: &mut Frames, metadata: &Json) {
        write_item_line(out, "8", |w| {
            w.str("type", wire::MESSAGE_METADATA).json("data", metadata);
        });
    }

    fn annotation(&mut self, out: &mut Frames, value: &Json) {
        let buffer = begin_line(out, "8");
        let mut list = ArrayWriter::new(buffer);
        list.json(value);
        list.end();
        out.commit();
    }

    fn has_provider_parts(&self) -> bool {
        false
    }

    fn provider_part(&mut self, _: &mut Frames, _: &str, _: Option<&Json>) {}

    fn source(
        &mut self,
        out: &mut Frames,
        source: &Citation,
        detail: Option<&Json>,
        providers: Option<Object>,
    ) {
        write_object_line(out, "h", |w| {
            match &source.url {
                Some(url) => {
                    w.str("sourceType", "url").str("id", &source.id).str("url", url);
                }
                None => {
                    w.str("sourceType", "document").str("id", &source.id);
                }
            }
            w.opt_str("title", source.title.as_deref())
                .opt_str("mediaType", source.media_type.as_deref())
                .opt_str("filename", source.filename.as_deref());
            let members = encode::build_object(|w| {
                w.opt_str("messageId", source.message.as_deref()).opt_json("detail", detail);
            });
            w.opt_object("providerMetadata", part_metadata::with_agentwire(providers, members).as_ref());
        });
    }

    fn file(&mut self, out: &mut Frames, file: &File, _: &PartMetadata) -> bool {
        let PartSource::Data { value, mime_type } = &file.source else {
            return false;
        };
        write_object_line(out, "k", |w| {
            w.str("data", value).str("mimeType", mime_type);
        });
        true
    }

    fn finish(&mut self, out: &mut Frames, finish: &ResponseFinish<'_>) {
        // Only in this version servers and clients both accept `unknown`.
        let is_unknown = finish.reason == "other" && finish.native_reason == Some("unknown");
        write_object_line(out, "d", |w| {
            w.str("finishReason", if is_unknown { "unknown" } else { finish.reason });
            write_usage(w, finish.usage);
        });
    }

    fn abort(&mut self, out: &mut Frames) {
        write_object_line(out, "d", |w| {
            w.str("finishReason", "other");
        });
    }

    fn error(&mut self, out: &mut Frames, error: &RunError) {
        write_text_line(out, "3", &error.message);
    }

    fn end(&mut self, _out: &mut Frames) {}
}
