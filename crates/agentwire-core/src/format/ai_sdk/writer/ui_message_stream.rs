//! UI message stream (AI SDK 5, 6 and 7): one JSON object per SSE frame.
//!
//! Deployed clients check every chunk against a closed list of fields, and one unknown field ends the response. Each profile
//! therefore writes only the fields that the *first* build of its version accepts: `@5` those of 5.0.0, `@6` those of 6.0.0,
//! `@7` those of 7.0.0. (`interrupted`, the reason of an approval request and `reset-step` were added after 7.0.0 and are
//! never written.) Absent fields are omitted: every version refuses `null`.

use bytes::BufMut;

use super::{
    encode,
    part_metadata::{self, PartMetadata},
    response::{AppMetadata, PartEncoder, ResponseFinish, ResponseStart},
    tool_calls::WrittenToolCall,
};
use crate::{
    event::{Citation, File, Interrupt, MessageId, RunError, ToolCallId, Usage},
    format::ai_sdk::{
        options::WriterOptions,
        reader::metadata,
        wire::{self, AGENTWIRE, data_part, native},
    },
    framing::{Frames, Framing},
    json::{Json, Object, ObjectWriter, write_str},
};

/// Encoder of the UI message stream.
#[derive(Debug)]
pub(super) struct UiMessageStreamEncoder {
    version: SdkVersion,
    /// `finish` has a field `finishReason`, which 5.0.0 refuses.
    has_reason_field: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SdkVersion {
    Five,
    Six,
    Seven,
}

impl UiMessageStreamEncoder {
    pub(super) fn new(version: &str, options: &WriterOptions) -> Self {
        let version = match version {
            "6" => SdkVersion::Six,
            "7" => SdkVersion::Seven,
            _ => SdkVersion::Five,
        };
        let has_reason_field = options.has_reason_field.unwrap_or(version > SdkVersion::Five);
        Self { version, has_reason_field }
    }
}

/// Writes one chunk.
fn write_chunk(out: &mut Frames, kind: &str, fill: impl FnOnce(&mut ObjectWriter<'_>)) {
    let mut w = ObjectWriter::new(out.begin(kind));
    w.str("type", kind);
    fill(&mut w);
    w.end();
    out.commit();
}

/// Writes a chunk of an id and a delta from constant bytes and two strings, without an object writer.
fn write_delta_chunk(out: &mut Frames, kind: &str, head: &[u8], id: &str, key: &[u8], delta: &str) {
    let buffer = out.begin(kind);
    buffer.put_slice(head);
    write_str(buffer, id);
    buffer.put_slice(key);
    write_str(buffer, delta);
    buffer.put_u8(b'}');
    out.commit();
}

/// Writes the start or the end of a text or reasoning part.
fn write_message_chunk(out: &mut Frames, kind: &str, message: &MessageId, metadata: Option<&PartMetadata>) {
    let metadata = metadata.and_then(|it| it.to_provider_metadata("messageId", Some(message)));
    write_chunk(out, kind, |w| {
        w.str("id", message).opt_json("providerMetadata", metadata.as_ref());
    });
}

/// Members of every chunk about a tool part.
fn write_tool_members(w: &mut ObjectWriter<'_>, call: &WrittenToolCall) {
    // Version 5 searches the dynamic parts only if the chunk contains this flag.
    if !call.is_static {
        w.bool("dynamic", true);
    }
    // Without this flag a page would run the tool too.
    if call.is_provider_executed {
        w.bool("providerExecuted", true);
    }
}

impl UiMessageStreamEncoder {
    /// Members of every chunk about a call.
    fn write_call_members(&self, w: &mut ObjectWriter<'_>, call: &WrittenToolCall) {
        write_tool_members(w, call);
        let native_members = call.native_metadata();
        if self.version > SdkVersion::Five {
            w.opt_str("title", native_members.as_ref().and_then(|it| it.get_str(native::TITLE)).as_deref());
        }
        if self.version > SdkVersion::Six {
            let tool =
                native_members.and_then(|it| it.member(native::TOOL_METADATA)).and_then(Json::into_object);
            w.opt_object("toolMetadata", tool.as_ref());
        }
    }

    /// Members of a call with its whole input.
    fn write_input_members(&self, w: &mut ObjectWriter<'_>, call: &WrittenToolCall, input: &Json) {
        let metadata = call.metadata.to_provider_metadata("parentMessageId", call.parent.as_deref());
        w.str("toolCallId", &call.id)
            .str("toolName", &call.name)
            .json("input", input)
            .opt_json("providerMetadata", metadata.as_ref());
        self.write_call_members(w, call);
    }
}

/// Usage as message metadata.
pub(super) fn usage_metadata(usage: &[Usage], app: AppMetadata) -> Object {
    encode::build_object(|w| write_usage_metadata(w, usage, app, |_| {}))
}

/// Writes the totals as `usage`, and the single entries with `more` under `agentwire`.
fn write_usage_metadata(
    w: &mut ObjectWriter<'_>,
    usage: &[Usage],
    app: AppMetadata,
    more: impl FnOnce(&mut ObjectWriter<'_>),
) {
    if !usage.is_empty() && !app.has_usage {
        w.nested("usage", |w| encode::write_usage(w, &encode::total_usage(usage)));
    }
    let members = encode::build_object(|w| {
        if !usage.is_empty() {
            w.array("usage", |list| {
                for entry in usage {
                    list.object(|w| encode::write_usage(w, entry));
                }
            });
        }
        more(w);
    });
    if !members.is_empty() {
        w.json(AGENTWIRE, members.as_json());
    }
}

impl PartEncoder for UiMessageStreamEncoder {
    const ONE_REASONING_PER_STEP: bool = false;

    fn start(&mut self, out: &mut Frames, start: &ResponseStart<'_>) {
        write_chunk(out, "start", |w| {
            w.str("messageId", start.message).nested("messageMetadata", |w| {
                for (key, value) in start.message_metadata.map(Object::entries).unwrap_or_default() {
                    if key != AGENTWIRE {
                        w.entry(&key, &value);
                    }
                }
                w.nested(AGENTWIRE, |w| {
                    w.str("threadId", start.thread).str("runId", start.run);
                });
            });
        });
        if let Some(metadata) = start.run_metadata {
            self.data(out, data_part::CHAIN_START, None, metadata.as_json(), true);
        }
    }

    fn start_step(&mut self, out: &mut Frames, _message: &str) {
        write_chunk(out, "start-step", |_| {});
    }

    fn finish_step(&mut self, out: &mut Frames, _reason: &'static str) {
        write_chunk(out, "finish-step", |_| {});
    }

    fn text_start(&mut self, out: &mut Frames, message: &MessageId, metadata: &PartMetadata) {
        write_message_chunk(out, "text-start", message, Some(metadata));
    }

    fn text_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str) {
        write_delta_chunk(
            out,
            "text-delta",
            br#"{"type":"text-delta","id":"#,
            message,
            br#","delta":"#,
            delta,
        );
    }

    fn text_end(&mut self, out: &mut Frames, message: &MessageId, metadata: Option<&PartMetadata>) {
        write_message_chunk(out, "text-end", message, metadata);
    }

    fn reasoning_start(&mut self, out: &mut Frames, message: &MessageId, metadata: &PartMetadata) {
        write_message_chunk(out, "reasoning-start", message, Some(metadata));
    }

    fn reasoning_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str) {
        write_delta_chunk(
            out,
            "reasoning-delta",
            br#"{"type":"reasoning-delta","id":"#,
            message,
            br#","delta":"#,
            delta,
        );
    }

    fn reasoning_end(&mut self, out: &mut Frames, message: &MessageId, metadata: Option<&PartMetadata>) {
        write_message_chunk(out, "reasoning-end", message, metadata);
    }

    fn tool_start(&mut self, out: &mut Frames, call: &WrittenToolCall) {
        write_chunk(out, "tool-input-start", |w| {
            w.str("toolCallId", &call.id).str("toolName", &call.name);
            self.write_call_members(w, call);
        });
    }

    fn tool_delta(&mut self, out: &mut Frames, id: &ToolCallId, delta: &str) {
        write_delta_chunk(
            out,
            "tool-input-delta",
            br#"{"type":"tool-input-delta","toolCallId":"#,
            id,
            br#","inputTextDelta":"#,
            delta,
        );
    }

    fn tool_input(&mut self, out: &mut Frames, call: &WrittenToolCall, input: &Json) {
        write_chunk(out, "tool-input-available", |w| self.write_input_members(w, call, input));
    }

    fn tool_input_error(&mut self, out: &mut Frames, call: &WrittenToolCall, input: &Json, error: &str) {
        if self.version == SdkVersion::Five {
            self.tool_input(out, call, input);
            return self.tool_error(out, call, error);
        }
        write_chunk(out, "tool-input-error", |w| {
            self.write_input_members(w, call, input);
            w.str("errorText", error);
        });
    }

    fn tool_output(
        &mut self,
        out: &mut Frames,
        call: &WrittenToolCall,
        output: &Json,
        metadata: &PartMetadata,
    ) {
        let providers = part_metadata::provider_metadata(metadata.metadata.as_ref())
            .filter(|_| self.version == SdkVersion::Seven);
        write_chunk(out, "tool-output-available", |w| {
            w.str("toolCallId", &call.id).json("output", output);
            write_tool_members(w, call);
            w.opt_object("providerMetadata", providers.as_ref());
        });
    }

    fn tool_error(&mut self, out: &mut Frames, call: &WrittenToolCall, error: &str) {
        write_chunk(out, "tool-output-error", |w| {
            w.str("toolCallId", &call.id).str("errorText", error);
            write_tool_members(w, call);
        });
    }

    fn tool_denied(&mut self, out: &mut Frames, call: &WrittenToolCall, error: &str) {
        if self.version == SdkVersion::Five {
            return self.tool_error(out, call, error);
        }
        write_chunk(out, "tool-output-denied", |w| {
            w.str("toolCallId", &call.id);
        });
    }

    fn tool_progress(&mut self, out: &mut Frames, call: &WrittenToolCall, output: &Json) -> bool {
        if self.version == SdkVersion::Five {
            return false;
        }
        write_chunk(out, "tool-output-available", |w| {
            w.str("toolCallId", &call.id).json("output", output);
            write_tool_members(w, call);
            w.bool("preliminary", true);
        });
        true
    }

    fn has_approvals(&self) -> bool {
        self.version > SdkVersion::Five
    }

    fn approval_request(&mut self, out: &mut Frames, interrupt: &Interrupt, call: &ToolCallId) {
        write_chunk(out, "tool-approval-request", |w| {
            w.str("approvalId", &interrupt.id).str("toolCallId", call);
            if self.version == SdkVersion::Seven {
                // The server that signed the request verifies the signature in the answer.
                let native_members = metadata::native(interrupt.metadata.as_ref());
                w.opt_str("signature", native_members.and_then(|it| it.get_str("signature")).as_deref());
            }
        });
    }

    fn data(&mut self, out: &mut Frames, name: &str, id: Option<&str>, data: &Json, transient: bool) {
        write_chunk(out, &format!("data-{name}"), |w| {
            w.opt_str("id", id).json("data", data);
            if transient {
                w.bool("transient", true);
            }
        });
    }

    fn message_metadata(&mut self, out: &mut Frames, metadata: &Json) {
        write_chunk(out, "message-metadata", |w| {
            w.json("messageMetadata", metadata);
        });
    }

    fn annotation(&mut self, out: &mut Frames, value: &Json) {
        self.data(out, wire::ANNOTATION, None, value, false);
    }

    fn has_provider_parts(&self) -> bool {
        self.version == SdkVersion::Seven
    }

    fn provider_part(&mut self, out: &mut Frames, kind: &str, metadata: Option<&Json>) {
        write_chunk(out, "custom", |w| {
            w.str("kind", kind).opt_json("providerMetadata", metadata);
        });
    }

    fn source(
        &mut self,
        out: &mut Frames,
        source: &Citation,
        detail: Option<&Json>,
        providers: Option<Object>,
    ) {
        let is_url = source.url.is_some();
        let members = encode::build_object(|w| {
            w.opt_str("messageId", source.message.as_deref());
            if is_url {
                w.opt_str("mediaType", source.media_type.as_deref())
                    .opt_str("filename", source.filename.as_deref());
            }
            w.opt_json("detail", detail);
        });
        let metadata = part_metadata::with_agentwire(providers, members);
        if let Some(url) = &source.url {
            return write_chunk(out, "source-url", |w| {
                w.str("sourceId", &source.id)
                    .str("url", url)
                    .opt_str("title", source.title.as_deref())
                    .opt_object("providerMetadata", metadata.as_ref());
            });
        }
        let title = source.title.as_deref().or(source.filename.as_deref());
        write_chunk(out, "source-document", |w| {
            w.str("sourceId", &source.id)
                .str("mediaType", source.media_type.as_deref().unwrap_or("application/octet-stream"))
                .str("title", title.unwrap_or(&source.id))
                .opt_str("filename", source.filename.as_deref())
                .opt_object("providerMetadata", metadata.as_ref());
        });
    }

    fn file(&mut self, out: &mut Frames, file: &File, metadata: &PartMetadata) -> bool {
        let Some(url) = encode::media_url(&file.source) else {
            return false;
        };
        let members = encode::build_object(|w| {
            w.str("id", &file.id)
                .opt_str("messageId", file.message.as_deref())
                .opt_str("filename", file.name.as_deref());
        });
        let providers = part_metadata::provider_metadata(metadata.metadata.as_ref());
        let provider_metadata = part_metadata::with_agentwire(providers, members);
        let is_reasoning = metadata::has_native_flag(metadata.metadata.as_ref(), native::REASONING);
        let kind = if is_reasoning && self.version == SdkVersion::Seven { "reasoning-file" } else { "file" };
        write_chunk(out, kind, |w| {
            w.str("url", &url)
                .str("mediaType", encode::media_type(file.kind, &file.source))
                .opt_object("providerMetadata", provider_metadata.as_ref());
        });
        true
    }

    fn finish(&mut self, out: &mut Frames, finish: &ResponseFinish<'_>) {
        // Clients keep an empty last step only if metadata follows it, so metadata is always written.
        let metadata = encode::build_object(|w| {
            if !finish.app.has_finish_reason {
                w.str("finishReason", finish.reason);
            }
            write_usage_metadata(w, finish.usage, finish.app, |w| {
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
        write_chunk(out, "finish", |w| {
            if self.has_reason_field {
                w.str("finishReason", finish.reason);
            }
            w.json("messageMetadata", metadata.as_json());
        });
    }

    fn abort(&mut self, out: &mut Frames) {
        write_chunk(out, "abort", |_| {});
    }

    fn error(&mut self, out: &mut Frames, error: &RunError) {
        if let Some(code) = &error.code {
            let metadata = encode::build_object(|w| {
                w.nested(AGENTWIRE, |w| {
                    w.str("errorCode", code);
                });
            });
            self.message_metadata(out, metadata.as_json());
        }
        write_chunk(out, "error", |w| {
            w.str("errorText", &error.message);
        });
        // Clients stop at the error; servers that store the stream expect a `finish`.
        write_chunk(out, "finish", |w| {
            if self.has_reason_field {
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
