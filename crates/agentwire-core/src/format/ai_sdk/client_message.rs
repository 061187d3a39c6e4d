//! The assistant message that a client of the AI SDK builds from the chunks of UI message streams.
//!
//! A history route shows a page the message that it would hold if it had received the streams itself, so this follows
//! `processUIMessageStream` of the SDK. Chunks come from the writer of this crate; one that does not fit is ignored.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{
    event::{Message, MessageBody, ResumeEntry, ResumeStatus, RunInput},
    format::ai_sdk::{
        input,
        reader::metadata,
        wire::native,
        writer::encode::{self, interrupt_call_id},
    },
    json::Json,
};

/// One assistant message.
#[derive(Clone, Debug)]
pub struct ClientMessage {
    version: u8,
    id: String,
    metadata: Option<Value>,
    parts: Vec<Value>,
    /// Indexes of the open text and reasoning parts.
    open_texts: HashMap<String, usize>,
    open_reasoning: HashMap<String, usize>,
    /// The arguments of calls so far.
    arguments: HashMap<String, String>,
}

impl ClientMessage {
    /// An empty message of a client of AI SDK `version` (5, 6 or 7).
    #[must_use]
    pub fn new(version: u8) -> Self {
        Self {
            version,
            id: String::new(),
            metadata: None,
            parts: Vec::new(),
            open_texts: HashMap::new(),
            open_reasoning: HashMap::new(),
            arguments: HashMap::new(),
        }
    }

    /// The id, empty before the first chunk.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// True if the message has content.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The message as `UIMessage`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut message = json!({"id": self.id, "role": "assistant"});
        if let Some(metadata) = &self.metadata {
            message["metadata"] = metadata.clone();
        }
        message["parts"] = self.parts.clone().into();
        message
    }

    /// Adds the answers with which a page continues the message: approvals, and outputs of tools.
    pub fn answer(&mut self, input: &RunInput) {
        for entry in input.resume.iter().flatten() {
            self.answer_question(entry);
        }
        for message in input::trailing_turn(&input.messages) {
            self.set_output(message);
        }
        self.open_texts.clear();
        self.open_reasoning.clear();
    }

    fn answer_question(&mut self, entry: &ResumeEntry) {
        let payload = entry.payload.as_ref().map(Json::to_value);
        let members = payload.as_ref().and_then(Value::as_object);
        let approved = members
            .filter(|members| members.keys().all(|key| matches!(&**key, "approved" | "reason")))
            .and_then(|members| members.get("approved")?.as_bool());
        let question = interrupt_call_id(&entry.interrupt);
        for part in self.parts.iter_mut().filter_map(Value::as_object_mut) {
            let is_asked = part.get("state").and_then(Value::as_str) == Some("approval-requested")
                && part.get("approval").and_then(|it| it["id"].as_str()) == Some(entry.interrupt.as_str());
            let is_question = part.get("toolCallId").and_then(Value::as_str) == Some(&question)
                && part.get("state").and_then(Value::as_str) == Some("input-available");
            match (is_asked, approved) {
                (true, Some(approved)) => {
                    part.insert("state".into(), "approval-responded".into());
                    let approval = &mut part["approval"];
                    approval["approved"] = approved.into();
                    if let Some(reason) = members.and_then(|members| members.get("reason")) {
                        approval["reason"] = reason.clone();
                    }
                }
                // Anything else is given as the output of the call.
                _ if is_asked || is_question => {
                    part.remove("approval");
                    if entry.status == ResumeStatus::Cancelled {
                        part.insert("state".into(), "output-error".into());
                        part.insert("errorText".into(), "cancelled".into());
                    } else {
                        part.insert("state".into(), "output-available".into());
                        part.insert("output".into(), payload.clone().unwrap_or_default());
                    }
                }
                _ => {}
            }
        }
    }

    /// The output that a page gave to a call of its own.
    fn set_output(&mut self, message: &Message) {
        let MessageBody::Tool { call, content, error } = &message.body else { return };
        let Some(index) = self.tool_part(call) else { return };
        let Some(part) = self.parts[index].as_object_mut() else { return };
        if part.get("state").and_then(Value::as_str) != Some("input-available") {
            return;
        }
        match error {
            Some(error) => {
                part.insert("state".into(), "output-error".into());
                part.insert("errorText".into(), (&**error).into());
            }
            None => {
                let native_members = metadata::native(message.metadata.as_ref());
                let output_type = native_members.and_then(|it| it.get_str(native::OUTPUT_TYPE));
                let output = encode::tool_output_as(content, output_type.as_deref());
                part.insert("state".into(), "output-available".into());
                part.insert("output".into(), encode::sanitized(&output).to_value());
            }
        }
    }

    /// Adds a chunk.
    pub fn push(&mut self, chunk: &Value) {
        let Some(kind) = chunk["type"].as_str() else { return };
        let text = |key: &str| chunk[key].as_str().unwrap_or_default();
        match kind {
            "start" => {
                if let Some(id) = chunk["messageId"].as_str() {
                    id.clone_into(&mut self.id);
                }
                self.merge_metadata(chunk);
            }
            "finish" | "message-metadata" => self.merge_metadata(chunk),
            "start-step" => self.parts.push(json!({"type": "step-start"})),
            "finish-step" if self.version < 7 => {
                self.open_texts.clear();
                self.open_reasoning.clear();
            }
            "text-start" => {
                self.open_texts.insert(text("id").into(), self.parts.len());
                let mut part = json!({"type": "text", "text": "", "state": "streaming"});
                copy(chunk, &mut part, &["providerMetadata"]);
                self.parts.push(part);
            }
            "reasoning-start" => {
                self.open_reasoning.insert(text("id").into(), self.parts.len());
                let mut part =
                    json!({"type": "reasoning", "id": text("id"), "text": "", "state": "streaming"});
                copy(chunk, &mut part, &["providerMetadata"]);
                self.parts.push(part);
            }
            "text-delta" | "text-end" | "reasoning-delta" | "reasoning-end" => {
                let open = if kind.starts_with("text") { &self.open_texts } else { &self.open_reasoning };
                let Some(part) = open.get(text("id")).and_then(|index| self.parts.get_mut(*index)) else {
                    return;
                };
                copy(chunk, part, &["providerMetadata"]);
                if let Value::String(whole) = &mut part["text"] {
                    whole.push_str(text("delta"));
                }
                match kind {
                    "text-end" => {
                        part["state"] = "done".into();
                        self.open_texts.remove(text("id"));
                    }
                    "reasoning-end" => {
                        part["state"] = "done".into();
                        self.open_reasoning.remove(text("id"));
                    }
                    _ => {}
                }
            }
            "file" if self.version == 5 => {
                self.parts.push(json!({"type": kind, "mediaType": chunk["mediaType"], "url": chunk["url"]}));
            }
            "file" | "reasoning-file" | "source-url" | "source-document" | "custom" => {
                self.parts.push(chunk.clone());
            }
            "tool-input-start" | "tool-input-delta" | "tool-input-available" | "tool-input-error" => {
                self.push_tool_input(kind, chunk);
            }
            "tool-output-available"
            | "tool-output-error"
            | "tool-output-denied"
            | "tool-approval-request" => {
                self.push_tool_state(kind, chunk);
            }
            _ if kind.starts_with("data-") && chunk["transient"] != true => {
                let known = chunk.get("id").and_then(|id| {
                    self.parts.iter_mut().find(|part| part["type"] == kind && part.get("id") == Some(id))
                });
                match known {
                    Some(part) => part["data"] = chunk["data"].clone(),
                    None => self.parts.push(chunk.clone()),
                }
            }
            _ => {}
        }
    }

    fn merge_metadata(&mut self, chunk: &Value) {
        match (&mut self.metadata, chunk.get("messageMetadata")) {
            (_, None | Some(Value::Null)) => {}
            (Some(known), Some(more)) => merge(known, more),
            (known, Some(more)) => *known = Some(more.clone()),
        }
    }

    /// The index of the part of a call, in the current step or else the last one before it.
    fn tool_part(&self, call: &str) -> Option<usize> {
        let is_call = |part: &Value| part["toolCallId"] == call;
        let step = self.current_step();
        let current = self.parts[step..].iter().position(is_call).map(|index| step + index);
        current.or_else(|| self.parts.iter().rposition(is_call))
    }

    /// The index of the first part of the current step.
    fn current_step(&self) -> usize {
        self.parts.iter().rposition(|part| part["type"] == "step-start").map_or(0, |index| index + 1)
    }

    fn push_tool_input(&mut self, kind: &str, chunk: &Value) {
        let Some(call) = chunk["toolCallId"].as_str() else { return };
        let step = self.current_step();
        let known = self.parts[step..].iter().position(|part| part["toolCallId"] == call);
        let index = match known {
            Some(index) => step + index,
            None if kind == "tool-input-delta" => return,
            None => {
                let name = chunk["toolName"].as_str().unwrap_or_default();
                self.parts.push(match chunk["dynamic"] == true {
                    true => json!({"type": "dynamic-tool", "toolName": name, "toolCallId": call}),
                    false => json!({"type": format!("tool-{name}"), "toolCallId": call}),
                });
                self.parts.len() - 1
            }
        };
        let part = &mut self.parts[index];
        if let Some(members) = part.as_object_mut() {
            for key in ["input", "output", "errorText", "rawInput", "preliminary"] {
                members.remove(key);
            }
        }
        copy(chunk, part, &["providerExecuted", "title", "toolMetadata"]);
        if let Some(providers) = chunk.get("providerMetadata") {
            let key = match kind {
                "tool-input-error" => "resultProviderMetadata",
                _ => "callProviderMetadata",
            };
            part[key] = providers.clone();
        }
        match kind {
            "tool-input-start" => {
                part["state"] = "input-streaming".into();
                self.arguments.insert(call.into(), String::new());
            }
            "tool-input-delta" => {
                part["state"] = "input-streaming".into();
                let arguments = self.arguments.entry(call.into()).or_default();
                arguments.push_str(chunk["inputTextDelta"].as_str().unwrap_or_default());
                // A call that is never completed shows what can be read of its arguments.
                if let Ok(input) = serde_json::from_str::<Value>(arguments) {
                    part["input"] = input;
                }
                part["rawInput"] = arguments.as_str().into();
            }
            "tool-input-error" => {
                part["state"] = "output-error".into();
                copy(chunk, part, &["input", "errorText"]);
            }
            _ => {
                part["state"] = "input-available".into();
                copy(chunk, part, &["input"]);
            }
        }
    }

    fn push_tool_state(&mut self, kind: &str, chunk: &Value) {
        let Some(index) = chunk["toolCallId"].as_str().and_then(|call| self.tool_part(call)) else { return };
        let part = &mut self.parts[index];
        match kind {
            "tool-output-denied" => part["state"] = "output-denied".into(),
            "tool-approval-request" => {
                part["state"] = "approval-requested".into();
                let mut approval = json!({"id": chunk["approvalId"]});
                copy(chunk, &mut approval, &["signature"]);
                part["approval"] = approval;
            }
            _ => {
                let is_error = kind == "tool-output-error";
                if let Some(members) = part.as_object_mut() {
                    let is_static = members.get("type").is_some_and(|it| it != "dynamic-tool");
                    for key in ["output", "errorText", "rawInput", "preliminary"] {
                        if !(key == "rawInput" && is_error && is_static) {
                            members.remove(key);
                        }
                    }
                }
                part["state"] = if is_error { "output-error" } else { "output-available" }.into();
                copy(
                    chunk,
                    part,
                    &["output", "errorText", "preliminary", "providerExecuted", "toolMetadata"],
                );
                if let Some(providers) = chunk.get("providerMetadata") {
                    part["resultProviderMetadata"] = providers.clone();
                }
            }
        }
    }
}

/// Copies the members that a chunk has.
fn copy(chunk: &Value, part: &mut Value, keys: &[&str]) {
    for key in keys {
        if let Some(value) = chunk.get(*key) {
            part[*key] = value.clone();
        }
    }
}

/// Merges objects recursively, as the SDK does with metadata; any other value replaces.
fn merge(known: &mut Value, more: &Value) {
    match (known, more) {
        (Value::Object(known), Value::Object(more)) => {
            for (key, value) in more {
                merge(known.entry(key.as_str()).or_insert_with(|| Value::Object(Map::new())), value);
            }
        }
        (known, more) => *known = more.clone(),
    }
}
