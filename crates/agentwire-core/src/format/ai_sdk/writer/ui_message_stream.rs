//! The UI message stream (AI SDK 5, 6 and 7): one JSON object per SSE frame.
//!
//! Builds in the field check every chunk against a closed list of fields, and one field too many ends the
//! response. So each profile writes what the *first* build of its version knows: `@5` what 5.0.0 knows, `@6`
//! what 6.0.0 knows, `@7` what 7.0.0 knows. (`interrupted`, the reason of an approval request and `reset-step`
//! came later than 7.0.0, and are never written.) Absent fields are left out: `null` is refused everywhere.

use bytes::BufMut;

use super::{
    encode,
    part_metadata::{self, About},
    response::{Finish, Start, Told, Wire},
    tool_calls::Call,
};
use crate::{
    event::{File, Interrupt, MessageId, RunError, Source, ToolCallId, Usage},
    format::ai_sdk::{
        options::WriterOptions,
        reader::metadata,
        wire::{self, AGENTWIRE, data_part, native},
    },
    framing::{Frames, Framing},
    json::{Json, Object, ObjectWriter, write_str},
};

/// Writes chunks.
#[derive(Debug)]
pub(super) struct UiWire {
    version: Version,
    /// Whether `finish` has a `finishReason`, which 5.0.0 refuses.
    reason_as_field: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Five,
    Six,
    Seven,
}

impl UiWire {
    pub(super) fn new(version: &str, options: &WriterOptions) -> Self {
        let version = match version {
            "6" => Version::Six,
            "7" => Version::Seven,
            _ => Version::Five,
        };
        let reason_as_field = options.has_reason_field.unwrap_or(version > Version::Five);
        Self { version, reason_as_field }
    }
}

/// One chunk.
fn chunk(out: &mut Frames, kind: &str, fill: impl FnOnce(&mut ObjectWriter<'_>)) {
    let mut w = ObjectWriter::new(out.begin(kind));
    w.str("type", kind);
    fill(&mut w);
    w.end();
    out.commit();
}

/// A chunk that is an id and a piece of text: constant pieces, two strings.
fn delta_chunk(out: &mut Frames, kind: &str, head: &[u8], id: &str, key: &[u8], delta: &str) {
    let buffer = out.begin(kind);
    buffer.put_slice(head);
    write_str(buffer, id);
    buffer.put_slice(key);
    write_str(buffer, delta);
    buffer.put_u8(b'}');
    out.commit();
}

/// The members that every chunk about a tool part repeats.
fn tool(w: &mut ObjectWriter<'_>, call: &Call) {
    // Version 5 looks the part up among the dynamic ones only if the chunk says so.
    if !call.known_tool {
        w.bool("dynamic", true);
    }
    // Otherwise a page would run the tool as well.
    if call.remote {
        w.bool("providerExecuted", true);
    }
}

impl UiWire {
    /// The members that every chunk about a call repeats.
    fn call(&self, w: &mut ObjectWriter<'_>, call: &Call) {
        tool(w, call);
        let own = call.own();
        if self.version > Version::Five {
            w.opt_str("title", own.as_ref().and_then(|own| own.get_str(native::TITLE)).as_deref());
        }
        if self.version > Version::Six {
            let about = own.and_then(|own| own.member(native::TOOL_METADATA)).and_then(Json::into_object);
            w.opt_object("toolMetadata", about.as_ref());
        }
    }

    /// A call with its whole input.
    fn input(&self, w: &mut ObjectWriter<'_>, id: &ToolCallId, call: &Call, input: &Json) {
        let metadata = call.about.provider_metadata("parentMessageId", call.parent.as_deref());
        w.str("toolCallId", id)
            .str("toolName", &call.name)
            .json("input", input)
            .opt_json("providerMetadata", metadata.as_ref());
        self.call(w, call);
    }
}

/// Usage as the metadata of a message.
pub(super) fn usage_metadata(usage: &[Usage], told: Told) -> Object {
    encode::build_object(|w| write_usage_metadata(w, usage, told, |_| {}))
}

/// The totals for everybody, the details for us.
fn write_usage_metadata(
    w: &mut ObjectWriter<'_>,
    usage: &[Usage],
    told: Told,
    more: impl FnOnce(&mut ObjectWriter<'_>),
) {
    if !usage.is_empty() && !told.usage {
        w.nested("usage", |w| encode::write_usage(w, &encode::total_usage(usage)));
    }
    let own = encode::build_object(|w| {
        if !usage.is_empty() {
            w.array("usage", |list| {
                for entry in usage {
                    list.object(|w| encode::write_usage(w, entry));
                }
            });
        }
        more(w);
    });
    if !own.is_empty() {
        w.json(AGENTWIRE, own.as_json());
    }
}

impl Wire for UiWire {
    const ONE_REASONING_PER_STEP: bool = false;

    fn start(&mut self, out: &mut Frames, start: &Start<'_>) {
        chunk(out, "start", |w| {
            w.str("messageId", start.message).nested("messageMetadata", |w| {
                for (key, value) in start.about.map(Object::entries).unwrap_or_default() {
                    if key != AGENTWIRE {
                        w.entry(&key, &value);
                    }
                }
                w.nested(AGENTWIRE, |w| {
                    w.str("threadId", start.thread).str("runId", start.run);
                });
            });
        });
        if let Some(metadata) = start.metadata {
            self.data(out, data_part::CHAIN_START, None, metadata.as_json(), true);
        }
    }

    fn start_step(&mut self, out: &mut Frames, _message: &str) {
        chunk(out, "start-step", |_| {});
    }

    fn finish_step(&mut self, out: &mut Frames, _reason: &'static str) {
        chunk(out, "finish-step", |_| {});
    }

    fn text_start(&mut self, out: &mut Frames, message: &MessageId, about: &About) {
        let metadata = about.provider_metadata("messageId", Some(message));
        chunk(out, "text-start", |w| {
            w.str("id", message).opt_json("providerMetadata", metadata.as_ref());
        });
    }

    fn text_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str) {
        delta_chunk(out, "text-delta", br#"{"type":"text-delta","id":"#, message, br#","delta":"#, delta);
    }

    fn text_end(&mut self, out: &mut Frames, message: &MessageId, about: Option<&About>) {
        let metadata = about.and_then(|about| about.provider_metadata("messageId", Some(message)));
        chunk(out, "text-end", |w| {
            w.str("id", message).opt_json("providerMetadata", metadata.as_ref());
        });
    }

    fn reasoning_start(&mut self, out: &mut Frames, message: &MessageId, about: &About) {
        let metadata = about.provider_metadata("messageId", Some(message));
        chunk(out, "reasoning-start", |w| {
            w.str("id", message).opt_json("providerMetadata", metadata.as_ref());
        });
    }

    fn reasoning_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str) {
        delta_chunk(
            out,
            "reasoning-delta",
            br#"{"type":"reasoning-delta","id":"#,
            message,
            br#","delta":"#,
            delta,
        );
    }

    fn reasoning_end(&mut self, out: &mut Frames, message: &MessageId, about: Option<&About>) {
        let metadata = about.and_then(|about| about.provider_metadata("messageId", Some(message)));
        chunk(out, "reasoning-end", |w| {
            w.str("id", message).opt_json("providerMetadata", metadata.as_ref());
        });
    }

    fn tool_start(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call) {
        chunk(out, "tool-input-start", |w| {
            w.str("toolCallId", id).str("toolName", &call.name);
            self.call(w, call);
        });
    }

    fn tool_delta(&mut self, out: &mut Frames, id: &ToolCallId, delta: &str) {
        delta_chunk(
            out,
            "tool-input-delta",
            br#"{"type":"tool-input-delta","toolCallId":"#,
            id,
            br#","inputTextDelta":"#,
            delta,
        );
    }

    fn tool_call(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, input: &Json) {
        chunk(out, "tool-input-available", |w| self.input(w, id, call, input));
    }

    fn tool_bad_input(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, input: &Json, error: &str) {
        if self.version == Version::Five {
            self.tool_call(out, id, call, input);
            return self.tool_error(out, id, call, error);
        }
        chunk(out, "tool-input-error", |w| {
            self.input(w, id, call, input);
            w.str("errorText", error);
        });
    }

    fn tool_output(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, output: &Json, about: &About) {
        let others = part_metadata::provider_metadata(about.metadata.as_ref())
            .filter(|_| self.version == Version::Seven);
        chunk(out, "tool-output-available", |w| {
            w.str("toolCallId", id).json("output", output);
            tool(w, call);
            w.opt_object("providerMetadata", others.as_ref());
        });
    }

    fn tool_error(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, error: &str) {
        chunk(out, "tool-output-error", |w| {
            w.str("toolCallId", id).str("errorText", error);
            tool(w, call);
        });
    }

    fn tool_denied(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, error: &str) {
        if self.version == Version::Five {
            return self.tool_error(out, id, call, error);
        }
        chunk(out, "tool-output-denied", |w| {
            w.str("toolCallId", id);
        });
    }

    fn tool_progress(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, output: &Json) -> bool {
        if self.version == Version::Five {
            return false;
        }
        chunk(out, "tool-output-available", |w| {
            w.str("toolCallId", id).json("output", output);
            tool(w, call);
            w.bool("preliminary", true);
        });
        true
    }

    fn knows_approvals(&self) -> bool {
        self.version > Version::Five
    }

    fn approval(&mut self, out: &mut Frames, interrupt: &Interrupt, call: &ToolCallId) {
        chunk(out, "tool-approval-request", |w| {
            w.str("approvalId", &interrupt.id).str("toolCallId", call);
            if self.version == Version::Seven {
                // Whoever signed it wants to see it again.
                let own = metadata::native(interrupt.metadata.as_ref());
                w.opt_str("signature", own.and_then(|own| own.get_str("signature")).as_deref());
            }
        });
    }

    fn data(&mut self, out: &mut Frames, name: &str, id: Option<&str>, data: &Json, transient: bool) {
        chunk(out, &format!("data-{name}"), |w| {
            w.opt_str("id", id).json("data", data);
            if transient {
                w.bool("transient", true);
            }
        });
    }

    fn metadata(&mut self, out: &mut Frames, metadata: &Json) {
        chunk(out, "message-metadata", |w| {
            w.json("messageMetadata", metadata);
        });
    }

    fn annotation(&mut self, out: &mut Frames, value: &Json) {
        self.data(out, wire::ANNOTATION, None, value, false);
    }

    fn knows_provider_parts(&self) -> bool {
        self.version == Version::Seven
    }

    fn provider_part(&mut self, out: &mut Frames, kind: &str, about: Option<&Json>) {
        chunk(out, "custom", |w| {
            w.str("kind", kind).opt_json("providerMetadata", about);
        });
    }

    fn source(&mut self, out: &mut Frames, source: &Source, detail: Option<&Json>, others: Option<Object>) {
        let is_url = source.url.is_some();
        let facts = encode::build_object(|w| {
            w.opt_str("messageId", source.message.as_deref());
            if is_url {
                w.opt_str("mediaType", source.media_type.as_deref())
                    .opt_str("filename", source.filename.as_deref());
            }
            w.opt_json("detail", detail);
        });
        let metadata = part_metadata::with_agentwire(others, facts);
        if let Some(url) = &source.url {
            return chunk(out, "source-url", |w| {
                w.str("sourceId", &source.id)
                    .str("url", url)
                    .opt_str("title", source.title.as_deref())
                    .opt_object("providerMetadata", metadata.as_ref());
            });
        }
        let title = source.title.as_deref().or(source.filename.as_deref());
        chunk(out, "source-document", |w| {
            w.str("sourceId", &source.id)
                .str("mediaType", source.media_type.as_deref().unwrap_or("application/octet-stream"))
                .str("title", title.unwrap_or(&source.id))
                .opt_str("filename", source.filename.as_deref())
                .opt_object("providerMetadata", metadata.as_ref());
        });
    }

    fn file(&mut self, out: &mut Frames, file: &File, about: &About) -> bool {
        let Some(url) = encode::media_url(&file.source) else {
            return false;
        };
        let facts = encode::build_object(|w| {
            w.str("id", &file.id)
                .opt_str("messageId", file.message.as_deref())
                .opt_str("filename", file.name.as_deref());
        });
        let metadata =
            part_metadata::with_agentwire(part_metadata::provider_metadata(about.metadata.as_ref()), facts);
        let reasoning = metadata::has_native_flag(about.metadata.as_ref(), native::REASONING);
        let kind = if reasoning && self.version == Version::Seven { "reasoning-file" } else { "file" };
        chunk(out, kind, |w| {
            w.str("url", &url)
                .str("mediaType", encode::media_type(file.kind, &file.source))
                .opt_object("providerMetadata", metadata.as_ref());
        });
        true
    }

    fn finish(&mut self, out: &mut Frames, finish: &Finish<'_>) {
        // Clients keep an empty last step only if something is written after it, so there is always metadata.
        let metadata = encode::build_object(|w| {
            if !finish.told.reason {
                w.str("finishReason", finish.reason);
            }
            write_usage_metadata(w, finish.usage, finish.told, |w| {
                w.opt_str("finishReason", finish.native_reason).opt_json("result", finish.result);
                if !finish.pending.is_empty() {
                    w.array("pendingToolCallIds", |list| {
                        for call in finish.pending {
                            list.str(call);
                        }
                    });
                }
            });
        });
        chunk(out, "finish", |w| {
            if self.reason_as_field {
                w.str("finishReason", finish.reason);
            }
            w.json("messageMetadata", metadata.as_json());
        });
    }

    fn abort(&mut self, out: &mut Frames) {
        chunk(out, "abort", |_| {});
    }

    fn error(&mut self, out: &mut Frames, error: &RunError) {
        if let Some(code) = &error.code {
            let metadata = encode::build_object(|w| {
                w.nested(AGENTWIRE, |w| {
                    w.str("errorCode", code);
                });
            });
            self.metadata(out, metadata.as_json());
        }
        chunk(out, "error", |w| {
            w.str("errorText", &error.message);
        });
        // Clients stop at the error; servers that store the stream look for its end.
        chunk(out, "finish", |w| {
            if self.reason_as_field {
                w.str("finishReason", "error");
            }
        });
    }

    fn end(&mut self, out: &mut Frames) {
        if out.framing() == Framing::Sse {
            out.begin("[DONE]").put_slice(b"[DONE]");
            out.commit();
        }
    }
}
