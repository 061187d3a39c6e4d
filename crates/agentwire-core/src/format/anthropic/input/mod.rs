//! Requests: a run input as the body of `POST …/messages`.
//!
//! The API takes turns of two roles. The messages of one turn (thinking, text, calls) are joined into one, in their order;
//! results go into the user's turn directly behind the calls, and missing ones are filled in, because the API rejects a
//! call without a result. System messages become the member `system`, wherever they stand.

mod blocks;

use serde_json::{Map, Value, json};

use self::blocks::{content_blocks, sealed_blocks, tool_id, tool_input};
use crate::{
    event::{Message, MessageBody, RunInput, Tool, ToolCall},
    format::model_api::input::{MISSING_RESULT, add_tools, instructions, parameters, results},
};

pub use crate::format::model_api::input::ModelConfig;

/// The longest response, unless an option has another `max_tokens`, which the API requires.
const MAX_TOKENS: u32 = 8192;

/// The first turn of a conversation that the agent began: the API wants the user to be first.
const OPENING: &str = "(The conversation begins.)";

/// Members of a request that options cannot override: the model, the conversation, and streaming, on which the reader
/// depends.
pub const RESERVED_MEMBERS: &[&str] = &["model", "messages", "stream"];

/// The body of a request for a streamed response, with further members such as `max_tokens` or `thinking`.
/// [`RESERVED_MEMBERS`] in `options` are ignored; `tools` in `options` precede the front-end tools.
///
/// ```
/// use agentwire_core::{event::{Message, RunInput}, format::anthropic::input::{ModelConfig, to_json_with}};
/// let mut input = RunInput::new("t", "r");
/// input.messages.push(Message::user("m", "Hello"));
/// let options = serde_json::json!({"max_tokens": 100});
/// let body = to_json_with(&input, ModelConfig { name: "claude", system: None }, options.as_object().unwrap());
/// let body: serde_json::Value = serde_json::from_str(&body).unwrap();
/// assert_eq!(body["messages"][0]["content"][0]["text"], "Hello");
/// assert_eq!(body["max_tokens"], 100);
/// ```
#[must_use]
pub fn to_json_with(input: &RunInput, model: ModelConfig<'_>, options: &Map<String, Value>) -> String {
    let mut body = json!({"model": model.name, "max_tokens": MAX_TOKENS});
    for (name, value) in options {
        if !RESERVED_MEMBERS.contains(&&**name) {
            body[name] = value.clone();
        }
    }
    if let Some(system) = system(input, model) {
        body["system"] = match body["system"].take() {
            // A configured list may mark what is cached; it stays first.
            Value::Array(mut parts) => {
                parts.push(json!({"type": "text", "text": system}));
                parts.into()
            }
            Value::String(first) => format!("{first}\n\n{system}").into(),
            _ => system.into(),
        };
    }
    body["messages"] = turns(input).into();
    body["stream"] = true.into();
    add_tools(&mut body, input.tools.iter().map(tool));
    body.to_string()
}

fn system(input: &RunInput, model: ModelConfig<'_>) -> Option<String> {
    let given = input.messages.iter().filter_map(|message| match &message.body {
        MessageBody::System { content } | MessageBody::Developer { content } if !content.is_empty() => {
            Some(content.to_string())
        }
        _ => None,
    });
    let all: Vec<String> = instructions(input, model).into_iter().chain(given).collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

/// The turns of a conversation; turns of one role are joined.
#[derive(Default)]
struct Turns(Vec<(&'static str, Vec<Value>)>);

impl Turns {
    fn push(&mut self, role: &'static str, blocks: impl IntoIterator<Item = Value>) {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_none() {
            return;
        }
        match self.0.last_mut() {
            Some((last, content)) if *last == role => content.extend(blocks),
            _ => self.0.push((role, blocks.collect())),
        }
    }
}

fn turns(input: &RunInput) -> Vec<Value> {
    let results = results(&input.messages);
    let mut turns = Turns::default();
    // Calls of the turn being built, whose results follow it.
    let mut open: Vec<&ToolCall> = Vec::new();
    for message in &input.messages {
        match &message.body {
            MessageBody::User { content } => {
                push_results(&mut open, &results, &mut turns);
                turns.push("user", content_blocks(content));
            }
            MessageBody::Assistant { content, tool_calls } => {
                let text = content.as_deref().filter(|text| !text.trim().is_empty());
                let calls = tool_calls.as_deref().unwrap_or_default();
                // Text behind a call of the client is a turn of its own: the results are in between.
                if text.is_some() {
                    push_results(&mut open, &results, &mut turns);
                }
                turns.push("assistant", text.map(|text| json!({"type": "text", "text": text})));
                for call in calls {
                    match sealed_blocks(call.encrypted.as_deref(), "_use") {
                        Some(blocks) => turns.push("assistant", blocks),
                        None => {
                            turns.push("assistant", [tool_use(call)]);
                            open.push(call);
                        }
                    }
                }
            }
            MessageBody::Reasoning { .. } => {
                if let Some(blocks) = sealed_blocks(message.encrypted.as_deref(), "thinking") {
                    push_results(&mut open, &results, &mut turns);
                    turns.push("assistant", blocks);
                }
            }
            // Results follow their calls; system messages have their own member; activities are for the client.
            MessageBody::Tool { .. }
            | MessageBody::System { .. }
            | MessageBody::Developer { .. }
            | MessageBody::Activity { .. } => {}
        }
    }
    push_results(&mut open, &results, &mut turns);
    // A response that broke off may end with thinking, which the API rejects.
    for (_, content) in &mut turns.0 {
        while content
            .last()
            .is_some_and(|block| block["type"].as_str().is_some_and(|kind| kind.ends_with("thinking")))
        {
            content.pop();
        }
    }
    turns.0.retain(|(_, content)| !content.is_empty());
    if turns.0.first().is_some_and(|(role, _)| *role == "assistant") {
        turns.0.insert(0, ("user", vec![json!({"type": "text", "text": OPENING})]));
    }
    turns.0.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

/// Adds the results of the open calls.
fn push_results(
    open: &mut Vec<&ToolCall>,
    results: &std::collections::HashMap<&str, &Message>,
    turns: &mut Turns,
) {
    for call in open.drain(..) {
        let mut block = json!({"type": "tool_result", "tool_use_id": tool_id(&call.id)});
        match results.get(call.id.as_str()).map(|message| &message.body) {
            Some(MessageBody::Tool { content, error, .. }) => {
                let mut blocks = content_blocks(content);
                if let (true, Some(error)) = (blocks.is_empty(), error) {
                    blocks.push(json!({"type": "text", "text": error}));
                }
                if !blocks.is_empty() {
                    block["content"] = blocks.into();
                }
                if error.is_some() {
                    block["is_error"] = true.into();
                }
            }
            _ => {
                block["content"] = MISSING_RESULT.into();
                block["is_error"] = true.into();
            }
        }
        turns.push("user", [block]);
    }
}

fn tool_use(call: &ToolCall) -> Value {
    json!({"type": "tool_use", "id": tool_id(&call.id), "name": call.name, "input": tool_input(&call.arguments)})
}

fn tool(tool: &Tool) -> Value {
    let mut value = json!({"name": tool.name, "input_schema": parameters(tool)});
    if value["input_schema"].get("type").is_none() {
        value["input_schema"]["type"] = "object".into();
    }
    if !tool.description.is_empty() {
        value["description"] = (&*tool.description).into();
    }
    value
}
