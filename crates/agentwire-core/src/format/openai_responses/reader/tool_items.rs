//! Items of tools: calls of the client's functions, calls that the server runs itself, and requests to approve one.

use serde_json::{Value, json, value::RawValue};

use super::items::ItemSink;
use crate::{
    event::{Body, EncryptedEntity, Event, Interrupt, MessageId, PartSource, ToolCallId, ToolResult},
    format::{
        derived_ids::part_id,
        model_api::{StreamedText, fields::string},
        openai_responses::wire::APPROVAL_REQUEST,
    },
    json::{Fields, Json, Object, Path, ReadResult, json as read_json},
    tally::Tally,
};

/// The tool of a new item.
pub(super) struct ToolItem {
    name: Box<str>,
    call_id: Option<Box<str>>,
    /// True if the client runs it.
    is_clients: bool,
    /// True if the arguments are the text of a program.
    is_code: bool,
    server: Option<Box<str>>,
}

impl ToolItem {
    /// The tool of an item; `None` if it is not a call.
    pub(super) fn of(kind: &str, fields: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<Self>> {
        let named = matches!(kind, "function_call" | "custom_tool_call" | "mcp_call" | APPROVAL_REQUEST);
        let name = match kind {
            _ if named => fields.need_boxed("name", tally)?,
            _ => match kind.strip_suffix("_call") {
                Some(name) => name.into(),
                None => return Ok(None),
            },
        };
        let call_id = string(fields, "call_id", tally)?.map(Into::into);
        let server = string(fields, "server_label", tally)?.map(Into::into);
        Ok(Some(Self {
            name,
            is_clients: call_id.is_some(),
            call_id,
            is_code: kind == "code_interpreter_call",
            server,
        }))
    }
}

/// A call that was started.
#[derive(Debug)]
pub(super) struct ToolCallItem {
    call: ToolCallId,
    name: Box<str>,
    is_code: bool,
    /// The arguments so far, as the server sends them.
    arguments: StreamedText,
    is_ended: bool,
}

impl ToolCallItem {
    pub(super) fn start(tool: ToolItem, native: &str, parent: MessageId, sink: &mut ItemSink<'_>) -> Self {
        let ToolItem { name, call_id, is_clients, is_code, server } = tool;
        let native = call_id.as_deref().unwrap_or(native);
        // A tool of the server is not the front end's, even if the names are the same.
        let declared = if is_clients { &*name } else { "" };
        let derived = part_id(&parent, "call", sink.run.next_call());
        let call = sink.run.call_id(declared, Some(native), derived);
        let metadata =
            server.map(|server| Object::from_entries([("openai.server_label", Json::string(&server))]));
        let start = Body::ToolStart { call: call.clone(), name: name.clone(), parent: Some(parent) };
        sink.out.push(Event::new(start).with_metadata(metadata));
        Self { call, name, is_code, arguments: StreamedText::default(), is_ended: false }
    }

    pub(super) fn push_arguments(&mut self, text: &str, is_whole: bool, sink: &mut ItemSink<'_>) {
        let text = match is_whole {
            false => text,
            // Some servers leave them out here.
            true if text.is_empty() => "",
            true => self.arguments.rest(text).unwrap_or_else(|| {
                sink.tally.note("whole arguments left out", "they differ from their deltas");
                ""
            }),
        };
        if text.is_empty() {
            return;
        }
        if self.is_ended {
            return sink.tally.note("arguments left out", "their call is complete");
        }
        let is_first = self.arguments.is_empty();
        self.arguments.add(text);
        let delta = match self.is_code {
            false => text.to_owned(),
            // A program becomes the member of an object, piece by piece.
            true => {
                let quoted = Json::string(text);
                let inner = &quoted.get()[1..quoted.get().len() - 1];
                if is_first { format!("{{\"code\":\"{inner}") } else { inner.to_owned() }
            }
        };
        sink.push(Body::ToolArgs { call: self.call.clone(), delta: delta.into() });
    }

    /// Completes the arguments and ends them.
    fn complete(&mut self, sink: &mut ItemSink<'_>) {
        let rest = match (self.is_code, self.arguments.is_empty()) {
            (true, false) => Some("\"}"),
            (_, true) => Some("{}"),
            (false, false) => None,
        };
        if let Some(rest) = rest.filter(|_| !self.is_ended) {
            sink.push(Body::ToolArgs { call: self.call.clone(), delta: rest.into() });
        }
        self.end(sink);
    }

    /// Ends the arguments, complete or not; once.
    pub(super) fn end(&mut self, sink: &mut ItemSink<'_>) {
        if !std::mem::replace(&mut self.is_ended, true) {
            sink.push(Body::ToolEnd { call: self.call.clone() });
        }
    }

    /// The complete item: arguments that were not streamed, the result of a tool of the server, and the item itself for
    /// the next turn. Returns an image that was made.
    pub(super) fn finish(
        &mut self,
        kind: &str,
        raw: &RawValue,
        fields: &mut Fields<'_, '_>,
        sink: &mut ItemSink<'_>,
    ) -> ReadResult<Option<PartSource>> {
        let path = fields.path();
        for member in ["arguments", "input", "code"] {
            if let Some(raw) = fields.take_unless_null(member) {
                let text = match raw.get().starts_with('"') {
                    true => crate::json::text(raw, Path::Key(&path, member), sink.tally)?.into_owned(),
                    false => raw.get().to_owned(),
                };
                self.push_arguments(&text, true, sink);
            }
        }
        if kind == "function_call" {
            self.complete(sink);
            return Ok(None);
        }
        let item = read_json(raw, path, sink.tally)?;
        let value = item.to_value();
        let mut image = None;
        let result = match kind {
            "custom_tool_call" | APPROVAL_REQUEST => None,
            "mcp_call" => {
                let error = value.get("error").filter(|error| !error.is_null());
                let output = value["output"].as_str().unwrap_or_default();
                Some((output.to_owned(), error.map(error_text)))
            }
            "web_search_call" => {
                let mut action = value["action"].clone();
                let sources = action.as_object_mut().and_then(|action| action.remove("sources"));
                self.push_whole(&action, sink);
                Some((sources.map_or_else(String::new, |sources| sources.to_string()), None))
            }
            "file_search_call" => {
                self.push_whole(&json!({"queries": value["queries"]}), sink);
                let results = &value["results"];
                Some((if results.is_null() { String::new() } else { results.to_string() }, None))
            }
            "code_interpreter_call" => Some((outputs_text(&value["outputs"]), None)),
            "image_generation_call" => {
                image = value["result"].as_str().filter(|data| !data.is_empty()).map(|data| {
                    let format = match value["output_format"].as_str() {
                        Some("svg") => "svg+xml",
                        format => format.unwrap_or("png"),
                    };
                    PartSource::Data { value: data.into(), mime_type: format!("image/{format}").into() }
                });
                let prompt = value.get("revised_prompt").filter(|prompt| prompt.is_string());
                self.push_whole(&prompt.map_or_else(|| json!({}), |prompt| json!({"prompt": prompt})), sink);
                let error = value.get("error").filter(|error| !error.is_null());
                Some((String::new(), error.map(error_text)))
            }
            // A tool that the client runs: the rest of the item is its input.
            _ => {
                let mut input = value.clone();
                if let Some(members) = input.as_object_mut() {
                    members.retain(|name, _| !matches!(&**name, "type" | "id" | "call_id" | "status"));
                }
                self.push_whole(&input, sink);
                None
            }
        };
        self.complete(sink);
        if let Some((text, error)) = result {
            let status = value["status"].as_str().unwrap_or_default();
            let is_failed = matches!(status, "failed" | "incomplete");
            let error = error.or_else(|| is_failed.then(|| status.to_owned()));
            let text = if text.is_empty() && error.is_none() { "completed".to_owned() } else { text };
            sink.push(Body::ToolResult(Box::new(ToolResult {
                message: part_id(&self.call, "result", 0),
                call: self.call.clone(),
                content: text.into(),
                error: error.map(Into::into),
                explicit_role: false,
            })));
        }
        // An image would be in the history twice.
        if kind != "image_generation_call" {
            sink.seal(EncryptedEntity::ToolCall(self.call.clone()), &item);
        }
        if kind == APPROVAL_REQUEST {
            sink.run.ask(self.question(&value));
        }
        Ok(image)
    }

    fn push_whole(&mut self, arguments: &Value, sink: &mut ItemSink<'_>) {
        if !arguments.is_null() {
            self.push_arguments(&arguments.to_string(), true, sink);
        }
    }

    /// The question whether a call of an MCP server may run.
    fn question(&self, item: &Value) -> Interrupt {
        let server = item["server_label"].as_str().unwrap_or("its server");
        let schema = json!({
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
            "required": ["approved"],
        });
        Interrupt {
            message: Some(format!("May the tool `{}` of `{server}` run?", self.name).into()),
            tool_call: Some(self.call.clone()),
            response_schema: Object::from_value(&schema),
            ..Interrupt::new(&*self.call, "tool_call")
        }
    }

    /// An item that is not a call: the output of a tool that the server ran for an earlier item.
    pub(super) fn read_output(
        kind: &str,
        raw: &RawValue,
        fields: &mut Fields<'_, '_>,
        sink: &mut ItemSink<'_>,
    ) -> ReadResult {
        let call = string(fields, "call_id", sink.tally)?.filter(|_| kind.ends_with("_output"));
        let Some(call) = call else {
            sink.tally.note("unknown item", kind);
            return Ok(());
        };
        let call = ToolCallId::from(&*call);
        let value = read_json(raw, fields.path(), sink.tally)?.to_value();
        let output = ["output", "result"].iter().find_map(|member| value.get(*member));
        let text = match output {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        sink.push(Body::ToolResult(Box::new(ToolResult {
            message: part_id(&call, "result", 0),
            call,
            content: text.into(),
            error: None,
            explicit_role: false,
        })));
        Ok(())
    }
}

/// The text of an error: a string, or an object with a message or with text parts.
fn error_text(error: &Value) -> String {
    let text = error.as_str().or_else(|| error["message"].as_str()).map(str::to_owned);
    let parts = || -> Option<String> {
        error["content"].as_array()?.iter().map(|part| part["text"].as_str()).collect()
    };
    text.or_else(parts).unwrap_or_else(|| error.to_string())
}

/// The logs of a program; other output as JSON.
fn outputs_text(outputs: &Value) -> String {
    let Some(list) = outputs.as_array() else { return String::new() };
    let logs: Option<String> = list.iter().map(|output| output["logs"].as_str()).collect();
    logs.unwrap_or_else(|| outputs.to_string())
}
