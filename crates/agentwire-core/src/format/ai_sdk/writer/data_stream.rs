//! The data stream (AI SDK 4): `code:json` per line.
//!
//! Text and reasoning have no ids here, so [`SpeakerQueue`] lets one message speak at a time. Tool errors are results
//! that say `error`: part `3` would end the chat. What the message has no part for goes into the data array
//! (`2`), and what must stay with the message is an annotation (`8`).

use bytes::BufMut;

use super::{
    encode,
    part_metadata::{self, About},
    response::{Finish, Start, Wire},
    speaker_queue::SpeakerQueue,
    tool_calls::Call,
};
use crate::{
    event::{File, Interrupt, MessageId, PartSource, RunError, Source, ToolCallId, Usage},
    format::ai_sdk::wire::{self, data_part},
    framing::Frames,
    json::{ArrayWriter, Json, Object, ObjectWriter, write_str},
};

/// Writes lines.
#[derive(Debug, Default)]
pub(super) struct DataWire {
    texts: SpeakerQueue,
    thoughts: SpeakerQueue,
    /// The thoughts that have text on the wire.
    spoken: Vec<MessageId>,
}

/// A line whose value is an object.
pub(super) fn object_line(out: &mut Frames, code: &'static str, fill: impl FnOnce(&mut ObjectWriter<'_>)) {
    let buffer = begin(out, code);
    let mut w = ObjectWriter::new(buffer);
    fill(&mut w);
    w.end();
    out.commit();
}

/// A line whose value is a string.
pub(super) fn text_line(out: &mut Frames, code: &'static str, text: &str) {
    let buffer = begin(out, code);
    write_str(buffer, text);
    out.commit();
}

/// What is called, and with what.
fn described(w: &mut ObjectWriter<'_>, call: &Call, input: &Json) {
    w.str("toolName", &call.name);
    // The client takes what JavaScript calls an object.
    if input.get().starts_with(['{', '[']) || input.is_null() {
        w.json("args", input);
    } else {
        w.nested("args", |w| {
            w.json("value", input);
        });
    }
}

/// A result goes to the first call of its id that the client holds. If that one was made up, the result says
/// what was called: the client lays all of a result over the call.
fn restate(w: &mut ObjectWriter<'_>, call: &Call) {
    if let Some(input) = &call.restated {
        described(w, call, input);
    }
}

fn array_line(out: &mut Frames, code: &'static str, fill: impl FnOnce(&mut ObjectWriter<'_>)) {
    let buffer = begin(out, code);
    let mut list = ArrayWriter::new(buffer);
    list.object(fill);
    list.end();
    out.commit();
}

/// The buffer behind `code:`.
fn begin<'o>(out: &'o mut Frames, code: &'static str) -> &'o mut bytes::BytesMut {
    let buffer = out.begin(code);
    buffer.put_slice(code.as_bytes());
    buffer.put_u8(b':');
    buffer
}

/// Usage as version 4 spells it: both counts or nothing.
pub(super) fn usage(w: &mut ObjectWriter<'_>, usage: &[Usage]) {
    let total = encode::total_usage(usage);
    let count = |tokens: Option<u64>| i64::try_from(tokens.unwrap_or(0)).unwrap_or(i64::MAX);
    if total.input.is_some() || total.output.is_some() {
        w.nested("usage", |w| {
            w.int("promptTokens", count(total.input)).int("completionTokens", count(total.output));
        });
    }
}

impl Wire for DataWire {
    const ONE_REASONING_PER_STEP: bool = true;

    fn start(&mut self, out: &mut Frames, start: &Start<'_>) {
        array_line(out, "2", |w| {
            let name = start.metadata.and_then(|it| it.get_str("name"));
            w.str("type", "chain_start").str("name", name.as_deref().unwrap_or("agent"));
            let entries = start.metadata.map(Object::entries).unwrap_or_default();
            for (key, value) in &entries {
                if !matches!(&**key, "type" | "name" | "threadId" | "runId" | "messageId") {
                    w.entry(key, value);
                }
            }
            w.str("threadId", start.thread).str("runId", start.run);
            // The steps name the message, but a client knows it only by then.
            if *start.message != *start.run.as_str() {
                w.str("messageId", start.message);
            }
        });
        if let Some(about) = start.about {
            self.metadata(out, about.as_json());
        }
    }

    fn start_step(&mut self, out: &mut Frames, message: &str) {
        object_line(out, "f", |w| {
            w.str("messageId", message);
        });
    }

    fn finish_step(&mut self, out: &mut Frames, reason: &'static str) {
        object_line(out, "e", |w| {
            w.str("finishReason", reason).bool("isContinued", false);
        });
    }

    fn text_start(&mut self, _out: &mut Frames, _message: &MessageId, _about: &About) {}

    fn text_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str) {
        self.texts.push(message, delta, |text| text_line(out, "0", text));
    }

    fn text_end(&mut self, out: &mut Frames, message: &MessageId, _about: Option<&About>) {
        self.texts.end(message, |text| text_line(out, "0", text));
    }

    fn reasoning_start(&mut self, _out: &mut Frames, _message: &MessageId, _about: &About) {}

    fn reasoning_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str) {
        if !self.spoken.contains(message) {
            self.spoken.push(message.clone());
        }
        self.thoughts.push(message, delta, |text| text_line(out, "g", text));
    }

    fn reasoning_end(&mut self, out: &mut Frames, message: &MessageId, about: Option<&About>) {
        self.thoughts.end(message, |text| text_line(out, "g", text));
        let spoken = self.spoken.iter().position(|it| it == message);
        if let Some(index) = spoken {
            self.spoken.swap_remove(index);
        }
        if let Some(encrypted) = about.and_then(|about| about.encrypted.as_deref()) {
            // Reasoning that nobody can read has no text to sign.
            match spoken {
                Some(_) => object_line(out, "j", |w| {
                    w.str("signature", encrypted);
                }),
                None => object_line(out, "i", |w| {
                    w.str("data", encrypted);
                }),
            }
        }
    }

    fn tool_start(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call) {
        object_line(out, "b", |w| {
            w.str("toolCallId", id).str("toolName", &call.name);
        });
    }

    fn tool_delta(&mut self, out: &mut Frames, id: &ToolCallId, delta: &str) {
        object_line(out, "c", |w| {
            w.str("toolCallId", id).str("argsTextDelta", delta);
        });
    }

    fn tool_call(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, input: &Json) {
        object_line(out, "9", |w| {
            w.str("toolCallId", id);
            described(w, call, input);
        });
    }

    fn tool_bad_input(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, input: &Json, error: &str) {
        self.tool_call(out, id, call, input);
        self.tool_error(out, id, call, error);
    }

    fn tool_output(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, output: &Json, _: &About) {
        object_line(out, "a", |w| {
            w.str("toolCallId", id).json("result", output);
            restate(w, call);
        });
    }

    fn tool_error(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, error: &str) {
        object_line(out, "a", |w| {
            w.str("toolCallId", id).nested("result", |w| {
                w.str("error", error);
            });
            restate(w, call);
        });
    }

    fn tool_denied(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, error: &str) {
        self.tool_error(out, id, call, error);
    }

    fn tool_progress(&mut self, _: &mut Frames, _: &ToolCallId, _: &Call, _: &Json) -> bool {
        false
    }

    fn knows_approvals(&self) -> bool {
        false
    }

    fn approval(&mut self, _: &mut Frames, _: &Interrupt, _: &ToolCallId) {}

    fn data(&mut self, out: &mut Frames, name: &str, id: Option<&str>, data: &Json, _transient: bool) {
        // Data is not kept with the message, and an interrupt must be: its answer may come after a reload.
        let code = if name == data_part::INTERRUPT { "8" } else { "2" };
        if name == wire::DATA_ITEM && id.is_none() {
            let buffer = begin(out, code);
            let mut list = ArrayWriter::new(buffer);
            list.json(data);
            list.end();
            return out.commit();
        }
        array_line(out, code, |w| {
            w.str("type", name).opt_str("id", id).json("data", data);
        });
    }

    fn metadata(&mut self, out: &mut Frames, metadata: &Json) {
        array_line(out, "8", |w| {
            w.str("type", wire::MESSAGE_METADATA).json("data", metadata);
        });
    }

    fn annotation(&mut self, out: &mut Frames, value: &Json) {
        let buffer = begin(out, "8");
        let mut list = ArrayWriter::new(buffer);
        list.json(value);
        list.end();
        out.commit();
    }

    fn knows_provider_parts(&self) -> bool {
        false
    }

    fn provider_part(&mut self, _: &mut Frames, _: &str, _: Option<&Json>) {}

    fn source(&mut self, out: &mut Frames, source: &Source, detail: Option<&Json>, others: Option<Object>) {
        object_line(out, "h", |w| {
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
            let facts = encode::build_object(|w| {
                w.opt_str("messageId", source.message.as_deref()).opt_json("detail", detail);
            });
            w.opt_object("providerMetadata", part_metadata::with_agentwire(others, facts).as_ref());
        });
    }

    fn file(&mut self, out: &mut Frames, file: &File, _: &About) -> bool {
        let PartSource::Data { value, mime_type } = &file.source else {
            return false;
        };
        object_line(out, "k", |w| {
            w.str("data", value).str("mimeType", mime_type);
        });
        true
    }

    fn finish(&mut self, out: &mut Frames, finish: &Finish<'_>) {
        // The only version whose servers and clients both know the word.
        let unknown = finish.reason == "other" && finish.native_reason == Some("unknown");
        object_line(out, "d", |w| {
            w.str("finishReason", if unknown { "unknown" } else { finish.reason });
            usage(w, finish.usage);
        });
    }

    fn abort(&mut self, out: &mut Frames) {
        object_line(out, "d", |w| {
            w.str("finishReason", "other");
        });
    }

    fn error(&mut self, out: &mut Frames, error: &RunError) {
        text_line(out, "3", &error.message);
    }

    fn end(&mut self, _out: &mut Frames) {}
}
