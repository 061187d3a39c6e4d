//! Requests: the canonical [`RunInput`] to what LangGraph Server takes at `/threads/{id}/runs/stream`.
//!
//! A thread on the server has its conversation already, and adds to it by id. What the user interface sends is
//! the whole conversation, so the caller hands in what the thread holds ([`super::thread_state::read_state`]) and only
//! the rest is sent. Without it everything is sent, which is right for stateless runs and new threads.
//!
//! ```
//! use agentwire_core::{event::{Message, RunInput}, format::langgraph::input::{RunRequest, run_request}};
//! let mut input = RunInput::new("t1", "r1");
//! input.messages.push(Message::user("m1", "hi"));
//! let body = run_request(&input, &RunRequest::new("agent")).to_string();
//! assert!(body.starts_with(r#"{"assistant_id":"agent","input":{"messages":[{"role":"user","content":"hi","id":"m1"}]}"#));
//! ```

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{
    reader::is_stand_in,
    thread_state::{BREAKPOINT_ID, ThreadState},
};
use crate::{
    event::{
        Content, ContentPart, MediaKind, Message, MessageBody, PartSource, ResumeEntry, ResumeStatus,
        RunInput, ToolCall,
    },
    format::reused,
};

/// The stream modes that carry everything that canonical events can say, without repeating the tokens.
///
/// `events` alone would lose interrupts and the output of the stream writer, `messages` repeats each message
/// from its start in every frame.
pub const STREAM_MODES: &[&str] = &["messages-tuple", "updates", "values", "custom", "tasks"];

/// What a request needs beside the canonical input.
#[derive(Clone, Debug)]
pub struct RunRequest<'r> {
    /// The graph or the assistant.
    pub assistant: &'r str,
    /// What to stream; [`STREAM_MODES`] unless told otherwise.
    pub stream_modes: &'r [&'r str],
    /// Under which keys of its state the graph expects the user interface's tools and context.
    pub keys: StateKeys,
    /// What the thread holds already, if it was read.
    pub known: Option<&'r ThreadState>,
    /// Whether the run has a thread. A stateless one cannot be joined, and always gets everything.
    pub stateless: bool,
}

/// Keys of a graph's state under which it expects what the user interface brings along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateKeys {
    /// `tools`: the tools.
    pub tools: bool,
    /// `ag-ui`: tools and context.
    pub ag_ui: bool,
    /// `copilotkit`: tools as `actions`, and context.
    pub copilotkit: bool,
}

impl StateKeys {
    /// The keys of a list such as `tools,ag-ui`.
    ///
    /// # Errors
    /// When a key is not known; gives that key.
    pub fn parse(list: &str) -> Result<Self, &str> {
        let mut keys = Self::default();
        for key in list.split(',').map(str::trim).filter(|key| !key.is_empty()) {
            match key {
                "tools" => keys.tools = true,
                "ag-ui" => keys.ag_ui = true,
                "copilotkit" => keys.copilotkit = true,
                other => return Err(other),
            }
        }
        Ok(keys)
    }
}

impl<'r> RunRequest<'r> {
    /// A request for a run of `assistant` on a thread.
    #[must_use]
    pub fn new(assistant: &'r str) -> Self {
        Self {
            assistant,
            stream_modes: STREAM_MODES,
            keys: StateKeys::default(),
            known: None,
            stateless: false,
        }
    }
}

/// The body of a run request.
///
/// Answers to interrupts become `command.resume`, by interrupt id; an interrupt that was given up is answered
/// with `{"cancelled": true}`. What the person says beside it goes along as `command.update`. Answers to breakpoints have
/// nothing to say: the run goes on with no input, unless the answer is no ([`stops_at_breakpoint`]).
/// `config`, `context`, `metadata`, `command` and other members of the request that a user interface forwards
/// are taken over.
#[must_use]
pub fn run_request(input: &RunInput, request: &RunRequest<'_>) -> Value {
    let mut body = Map::new();
    body.insert("assistant_id".into(), request.assistant.into());
    let forwarded = match input.forwarded.as_ref().map(crate::json::Json::to_value) {
        Some(Value::Object(forwarded)) => forwarded,
        _ => Map::new(),
    };
    match answer(input, &forwarded) {
        Answer::Resume(mut command) => {
            let said = said_beside(input, request);
            if let (false, Value::Object(command)) = (said.is_empty(), &mut command) {
                command.entry("update").or_insert_with(|| json!({"messages": said}));
            }
            body.insert("command".into(), command);
        }
        Answer::GoOn => {
            body.insert("input".into(), Value::Null);
        }
        Answer::Nothing => {
            body.insert("input".into(), graph_input(input, request));
        }
    }
    body.insert("stream_mode".into(), request.stream_modes.into());
    body.insert("stream_subgraphs".into(), true.into());
    if !request.stateless {
        body.insert("stream_resumable".into(), true.into());
        body.insert("if_not_exists".into(), "create".into());
    }
    body.insert("on_disconnect".into(), if request.stateless { "cancel" } else { "continue" }.into());
    for key in ["config", "context", "metadata", "interrupt_before", "interrupt_after", "multitask_strategy"]
    {
        if let Some(value) = forwarded.get(key).filter(|value| !value.is_null()) {
            body.insert(key.into(), value.clone());
        }
    }
    Value::Object(body)
}

/// What a person says beside their answer, where it can be said: nothing may stand between a call and its result, and
/// what waits for an answer is often a call.
fn said_beside(input: &RunInput, request: &RunRequest<'_>) -> Vec<Value> {
    let Some(known) = request.known else { return Vec::new() };
    let is_answered = |call: &str| {
        known
            .messages
            .iter()
            .any(|held| matches!(&held.body, MessageBody::Tool { call: of, .. } if of.as_str() == call))
    };
    let mut calls = known.messages.iter().flat_map(|held| held.tool_calls());
    if !calls.all(|call| is_answered(&call.id)) {
        return Vec::new();
    }
    let ids = call_ids(&input.messages);
    new_messages(&input.messages, Some(known))
        .filter(|said| matches!(said.body, MessageBody::User { .. }))
        .filter_map(|said| message(said, &ids))
        .collect()
}

/// Whether a graph that waits at a breakpoint shall not go on: a person gave it up or said no. The graph cannot be told
/// that; it can only be left alone.
///
/// ```
/// use agentwire_core::{event::{ResumeEntry, ResumeStatus, RunInput}, format::langgraph::input::stops_at_breakpoint};
/// let mut input = RunInput::new("t", "r");
/// let entry = ResumeEntry { interrupt: "breakpoint:pay".into(), status: ResumeStatus::Cancelled, payload: None, metadata: None };
/// input.resume = Some(vec![entry]);
/// assert!(stops_at_breakpoint(&input));
/// ```
#[must_use]
pub fn stops_at_breakpoint(input: &RunInput) -> bool {
    let entries = input.resume.as_deref().unwrap_or_default();
    let is_no = |entry: &ResumeEntry| {
        let answer = entry.payload.as_ref().map_or(Value::Null, crate::json::Json::to_value);
        entry.status == ResumeStatus::Cancelled
            || [&answer, &answer["approved"], &answer["confirmed"]].contains(&&Value::Bool(false))
    };
    entries.iter().all(|entry| is_breakpoint(&entry.interrupt)) && entries.iter().any(is_no)
}

enum Answer {
    Resume(Value),
    /// Past a breakpoint.
    GoOn,
    Nothing,
}

fn answer(input: &RunInput, forwarded: &Map<String, Value>) -> Answer {
    let entries = input.resume.as_deref().unwrap_or_default();
    if entries.is_empty() {
        // How user interfaces answered before there was a place for it.
        return match forwarded.get("command").filter(|command| command.get("resume").is_some()) {
            Some(command) => Answer::Resume(command.clone()),
            None => Answer::Nothing,
        };
    }
    let values = entries.iter().filter(|entry| !is_breakpoint(&entry.interrupt)).map(|entry| {
        let value = match entry.status {
            ResumeStatus::Resolved => entry.payload.as_ref().map_or(Value::Null, crate::json::Json::to_value),
            ResumeStatus::Cancelled => json!({"cancelled": true}),
        };
        (entry.interrupt.to_string(), value)
    });
    let values: Map<String, Value> = values.collect();
    if values.is_empty() {
        return Answer::GoOn;
    }
    // LangGraph tells a map of answers from an answer by its keys. Interrupts of versions that had no ids can
    // only be answered one at a time.
    let by_id = values.keys().all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let resume = match (by_id, values.len()) {
        (false, 1) => values.into_iter().next().map(|(_, value)| value).unwrap_or_default(),
        _ => Value::Object(values),
    };
    Answer::Resume(json!({"resume": resume}))
}

fn is_breakpoint(id: &str) -> bool {
    id == BREAKPOINT_ID || id.strip_prefix(BREAKPOINT_ID).is_some_and(|rest| rest.starts_with(':'))
}

/// `input`: the state of the user interface, its new messages, and what it brings along.
fn graph_input(input: &RunInput, request: &RunRequest<'_>) -> Value {
    let mut values = match input.state.as_ref().map(crate::json::Json::to_value) {
        Some(Value::Object(state)) => state,
        _ => Map::new(),
    };
    values.remove("messages");
    if let Some(known) = request.known {
        // Values go through the graph's reducers: what is there already would be added twice.
        let known = known.state.to_value();
        values.retain(|key, value| known.get(key) != Some(value));
    }
    let ids = call_ids(&input.messages);
    let messages = new_messages(&input.messages, request.known).filter_map(|it| message(it, &ids));
    let messages: Vec<Value> = messages.collect();
    let mut all = Map::new();
    all.insert("messages".into(), messages.into());
    all.extend(values);
    let tools: Vec<Value> = input
        .tools
        .iter()
        .map(|tool| {
            let parameters = tool
                .parameters
                .as_ref()
                .map_or_else(|| json!({"type": "object", "properties": {}}), crate::json::Json::to_value);
            json!({"name": &*tool.name, "description": &*tool.description, "parameters": parameters})
        })
        .collect();
    let context: Vec<Value> = input
        .context
        .iter()
        .map(|context| json!({"description": &*context.description, "value": &*context.value}))
        .collect();
    if request.keys.tools {
        all.insert("tools".into(), tools.clone().into());
    }
    if request.keys.ag_ui {
        all.insert("ag-ui".into(), json!({"tools": tools, "context": context}));
    }
    if request.keys.copilotkit {
        all.insert("copilotkit".into(), json!({"actions": tools, "context": context}));
    }
    Value::Object(all)
}

/// The messages that the thread does not hold. Results are known by their call: their ids differ, because the
/// graph names a result only after it was shown. So do the ids of answers that had been shown under a stand-in
/// before their name came, and with a number because an earlier answer had their name.
fn new_messages<'m>(
    messages: &'m [Message],
    known: Option<&'m ThreadState>,
) -> impl Iterator<Item = &'m Message> {
    let held = known.map(|known| known.messages.as_slice()).unwrap_or_default();
    messages.iter().filter(move |message| {
        !held.iter().any(|held| match (&held.body, &message.body) {
            (MessageBody::Tool { call: held, .. }, MessageBody::Tool { call, .. }) => held == call,
            (MessageBody::Assistant { .. }, MessageBody::Assistant { .. }) => {
                let other_name = is_stand_in(&message.id) || reused::number(&held.id, &message.id).is_some();
                held.id == message.id || other_name && held.body == message.body
            }
            _ => held.id == message.id,
        })
    })
}

/// Canonical messages as LangChain messages, for callers that have a graph at hand.
#[must_use]
pub fn messages(messages: &[Message]) -> Vec<Value> {
    let ids = call_ids(messages);
    messages.iter().filter_map(|it| message(it, &ids)).collect()
}

/// The ids of all calls; among them an id that was used again is known by its number.
fn call_ids(messages: &[Message]) -> HashSet<&str> {
    messages.iter().flat_map(|message| message.tool_calls()).map(|call| call.id.as_str()).collect()
}

/// A message as LangChain takes it; `None` for those that never go to an agent.
fn message(message: &Message, ids: &HashSet<&str>) -> Option<Value> {
    let native = |id| reused::native(id, |native| ids.contains(native));
    let mut value = Map::new();
    let mut set = |key: &str, it: Value| {
        value.insert(key.into(), it);
    };
    match &message.body {
        MessageBody::User { content } => {
            set("role", "user".into());
            set("content", body(content));
        }
        MessageBody::System { content } => {
            set("role", "system".into());
            set("content", (&**content).into());
        }
        MessageBody::Developer { content } => {
            set("role", "developer".into());
            set("content", (&**content).into());
        }
        MessageBody::Assistant { content, tool_calls } => {
            set("role", "assistant".into());
            set("content", content.as_deref().unwrap_or_default().into());
            let calls = tool_calls.as_deref().unwrap_or_default();
            let (valid, invalid): (Vec<_>, Vec<_>) =
                calls.iter().map(|it| call(it, native(&it.id))).partition(Result::is_ok);
            if !valid.is_empty() {
                set("tool_calls", valid.into_iter().filter_map(Result::ok).collect());
            }
            if !invalid.is_empty() {
                set("invalid_tool_calls", invalid.into_iter().filter_map(Result::err).collect());
            }
        }
        MessageBody::Tool { call, content, error } => {
            set("role", "tool".into());
            set("content", body(content));
            set("tool_call_id", native(call).into());
            if error.is_some() {
                set("status", "error".into());
            }
        }
        MessageBody::Activity { .. } | MessageBody::Reasoning { .. } => return None,
    }
    set("id", message.id.as_str().into());
    if let Some(name) = &message.name {
        set("name", (&**name).into());
    }
    Some(Value::Object(value))
}

/// A call with its arguments parsed, or as an invalid one if they are not an object.
fn call(call: &ToolCall, id: &str) -> Result<Value, Value> {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    match serde_json::from_str(arguments) {
        Ok(Value::Object(args)) => {
            Ok(json!({"name": &*call.name, "args": args, "id": id, "type": "tool_call"}))
        }
        _ => Err(json!({
            "name": &*call.name, "args": arguments, "id": id,
            "error": "the arguments are not a JSON object", "type": "invalid_tool_call",
        })),
    }
}

fn body(content: &Content) -> Value {
    match content {
        Content::Text(text) => (&**text).into(),
        Content::Parts(parts) => parts.iter().map(part).collect(),
    }
}

fn part(part: &ContentPart) -> Value {
    let (kind, source, metadata) = match part {
        ContentPart::Text { text, .. } => return json!({"type": "text", "text": &**text}),
        ContentPart::Media { kind, source, metadata, .. } => (*kind, source, metadata),
    };
    // Every version and every provider's adapter understands images of this form.
    if kind == MediaKind::Image {
        let url = match source {
            PartSource::Data { value, mime_type } => Some(format!("data:{mime_type};base64,{value}")),
            PartSource::Url { value, .. } => Some(value.to_string()),
            PartSource::File { .. } => None,
        };
        if let Some(url) = url {
            return json!({"type": "image_url", "image_url": {"url": url}});
        }
    }
    let kind = match kind {
        MediaKind::Image => "image",
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
        MediaKind::Document => "file",
    };
    let mut block = Map::new();
    block.insert("type".into(), kind.into());
    match source {
        PartSource::Data { value, .. } => block.insert("base64".into(), (&**value).into()),
        PartSource::Url { value, .. } => block.insert("url".into(), (&**value).into()),
        PartSource::File { value, .. } => block.insert("file_id".into(), (&**value).into()),
    };
    if let Some(mime_type) = source.mime_type() {
        block.insert("mime_type".into(), mime_type.into());
    }
    let name = metadata.as_ref().and_then(|metadata| metadata.clone().into_object()?.get_str("filename"));
    if let Some(name) = name {
        // Providers that take files want to know what to call them.
        block.insert("extras".into(), json!({"filename": name}));
    }
    Value::Object(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Context, Message, ResumeEntry, Tool},
        format::langgraph::thread_state,
        json::Json,
        tally::Tally,
    };

    fn text(messages: &[Message]) -> String {
        let values = super::messages(messages);
        Value::from(values).to_string()
    }

    fn resume(entries: &[(&str, ResumeStatus, Option<&str>)]) -> Value {
        let mut input = RunInput::new("t", "r");
        input.resume = Some(
            entries
                .iter()
                .map(|(id, status, payload)| ResumeEntry {
                    interrupt: (*id).into(),
                    status: *status,
                    payload: payload.map(|payload| Json::parse(payload).unwrap()),
                    metadata: None,
                })
                .collect(),
        );
        run_request(&input, &RunRequest::new("agent"))
    }

    #[test]
    fn a_request_equals_the_recorded_one() {
        let mut input = RunInput::new("t", "r");
        input.messages.push(Message::user("h1", "weather"));
        let modes = ["messages-tuple", "updates", "values", "custom"];
        let request = RunRequest { stream_modes: &modes, ..RunRequest::new("tools") };
        let body = run_request(&input, &request);
        // As recorded beside `server-tools-multi.sse`.
        assert_eq!(body["assistant_id"], "tools");
        assert_eq!(body["input"], json!({"messages": [{"role": "user", "content": "weather", "id": "h1"}]}));
        assert_eq!(body["stream_mode"], json!(modes));
        assert_eq!(body["stream_resumable"], true);
        assert_eq!(body["on_disconnect"], "continue");
    }

    #[test]
    fn every_role_and_part_has_a_form() {
        let call = ToolCall::new("c1", "search", r#"{"q":"x"}"#);
        let broken = ToolCall::new("c2", "search", r#"{"q":"#);
        let data = PartSource::Data { value: "AAAA".into(), mime_type: "image/png".into() };
        let parts = vec![
            ContentPart::text("look"),
            ContentPart::media(MediaKind::Image, data),
            ContentPart::media(
                MediaKind::Document,
                PartSource::Url {
                    value: "https://x/a.pdf".into(),
                    mime_type: Some("application/pdf".into()),
                },
            ),
            ContentPart::media(
                MediaKind::Audio,
                PartSource::File { value: "file-1".into(), provider: None, mime_type: None },
            ),
        ];
        let messages = [
            Message::new("s", MessageBody::System { content: "be brief".into() }),
            Message::new("d", MessageBody::Developer { content: "be kind".into() }),
            Message::user("u", Content::Parts(parts)),
            Message::new("r", MessageBody::Reasoning { content: "hm".into() }),
            Message::new("a", MessageBody::Assistant { content: None, tool_calls: Some(vec![call, broken]) }),
            Message::new(
                "t",
                MessageBody::Tool { call: "c1".into(), content: "none".into(), error: Some("none".into()) },
            ),
        ];
        let wanted = concat!(
            r#"[{"role":"system","content":"be brief","id":"s"},"#,
            r#"{"role":"developer","content":"be kind","id":"d"},"#,
            r#"{"role":"user","content":[{"type":"text","text":"look"},"#,
            r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},"#,
            r#"{"type":"file","url":"https://x/a.pdf","mime_type":"application/pdf"},"#,
            r#"{"type":"audio","file_id":"file-1"}],"id":"u"},"#,
            r#"{"role":"assistant","content":"","tool_calls":[{"name":"search","args":{"q":"x"},"id":"c1","type":"tool_call"}],"#,
            r#""invalid_tool_calls":[{"name":"search","args":"{\"q\":","id":"c2","error":"the arguments are not a JSON object","type":"invalid_tool_call"}],"id":"a"},"#,
            r#"{"role":"tool","content":"none","tool_call_id":"c1","status":"error","id":"t"}]"#,
        );
        assert_eq!(text(&messages), wanted);
    }

    #[test]
    fn tools_and_context_go_where_the_graph_expects_them() {
        let mut input = RunInput::new("t", "r");
        input.tools.push(Tool {
            name: "pick".into(),
            description: "picks".into(),
            parameters: None,
            metadata: None,
        });
        input.context.push(Context { description: "user".into(), value: "Ana".into() });
        let keys = StateKeys::parse("tools, ag-ui,copilotkit").unwrap();
        let body = run_request(&input, &RunRequest { keys, ..RunRequest::new("agent") });
        let tool = json!({"name": "pick", "description": "picks", "parameters": {"type": "object", "properties": {}}});
        let context = json!({"description": "user", "value": "Ana"});
        assert_eq!(body["input"]["tools"], json!([tool]));
        assert_eq!(body["input"]["ag-ui"], json!({"tools": [tool], "context": [context]}));
        assert_eq!(body["input"]["copilotkit"], json!({"actions": [tool], "context": [context]}));
        let none = run_request(&input, &RunRequest::new("agent"));
        assert_eq!(none["input"], json!({"messages": []}));
        assert_eq!(StateKeys::parse("tool"), Err("tool"));
    }

    #[test]
    fn answers_are_keyed_by_interrupt() {
        let id = "c39f193ebabf28ac94abe5106ce262e4";
        let body = resume(&[(id, ResumeStatus::Resolved, Some(r#"{"approved":true}"#))]);
        assert_eq!(body["command"], json!({"resume": {id: {"approved": true}}}));
        assert!(body.get("input").is_none());
        let other = "0".repeat(32);
        let body =
            resume(&[(id, ResumeStatus::Resolved, Some("1")), (&other, ResumeStatus::Cancelled, None)]);
        assert_eq!(body["command"]["resume"], json!({id: 1, other: {"cancelled": true}}));
        // Before ids, an answer stood for itself.
        let body = resume(&[("approve:1", ResumeStatus::Resolved, Some("\"yes\""))]);
        assert_eq!(body["command"], json!({"resume": "yes"}));
        let body = resume(&[("breakpoint:tools", ResumeStatus::Resolved, None)]);
        assert_eq!(body["input"], Value::Null);
        assert!(body.get("command").is_none());
    }

    #[test]
    fn words_go_along_with_an_answer_unless_a_call_waits_for_its_result() {
        let human = json!({"type": "human", "id": "u1", "content": "go"});
        let calls = json!({"type": "ai", "id": "a1", "content": "", "tool_calls": [{"id": "c1", "name": "pay", "args": {}}]});
        let result = json!({"type": "tool", "id": "x1", "tool_call_id": "c1", "content": "done"});
        let mut input = RunInput::new("t", "r");
        input.messages = vec![Message::user("u1", "go"), Message::user("u2", "and hurry")];
        input.resume = Some(vec![ResumeEntry {
            interrupt: "0".repeat(32).into(),
            status: ResumeStatus::Resolved,
            payload: None,
            metadata: None,
        }]);
        for (held, said) in
            [(json!([human]), true), (json!([human, calls]), false), (json!([human, calls, result]), true)]
        {
            let state = json!({"values": {"messages": held}, "next": [], "tasks": []}).to_string();
            let known =
                crate::format::langgraph::thread_state::read_state(&state, &mut crate::Tally::default())
                    .unwrap();
            let body = run_request(&input, &RunRequest { known: Some(&known), ..RunRequest::new("agent") });
            let told = &body["command"]["update"]["messages"];
            assert_eq!(told.as_array().map(Vec::len), said.then_some(1), "{body}");
            assert!(!said || told[0]["content"] == "and hurry", "{body}");
        }
    }

    #[test]
    fn a_no_at_a_breakpoint_is_no_way_on() {
        for (id, status, payload, stops) in [
            ("breakpoint:pay", ResumeStatus::Resolved, None, false),
            ("breakpoint:pay", ResumeStatus::Resolved, Some("true"), false),
            ("breakpoint:pay", ResumeStatus::Resolved, Some(r#"{"approved":true}"#), false),
            ("breakpoint:pay", ResumeStatus::Resolved, Some("false"), true),
            ("breakpoint", ResumeStatus::Resolved, Some(r#"{"approved":false}"#), true),
            ("breakpoint:pay", ResumeStatus::Resolved, Some(r#"{"confirmed":false}"#), true),
            ("breakpoint:pay", ResumeStatus::Cancelled, None, true),
            ("breakpoints", ResumeStatus::Cancelled, None, false),
            ("c39f193ebabf28ac94abe5106ce262e4", ResumeStatus::Resolved, Some("false"), false),
        ] {
            let mut input = RunInput::new("t", "r");
            let payload = payload.map(|payload| crate::json::Json::parse(payload).unwrap());
            input.resume = Some(vec![ResumeEntry { interrupt: id.into(), status, payload, metadata: None }]);
            assert_eq!(stops_at_breakpoint(&input), stops, "{id} {status:?}");
        }
        assert!(!stops_at_breakpoint(&RunInput::new("t", "r")));
    }

    #[test]
    fn a_forwarded_command_and_config_are_taken_over() {
        let mut input = RunInput::new("t", "r");
        let forwarded = r#"{"command":{"resume":"yes"},"config":{"configurable":{"k":1}},"other":1}"#;
        input.forwarded = Some(Json::parse(forwarded).unwrap());
        let body = run_request(&input, &RunRequest::new("agent"));
        assert_eq!(body["command"], json!({"resume": "yes"}));
        assert_eq!(body["config"], json!({"configurable": {"k": 1}}));
        assert!(body.get("other").is_none());
    }

    #[test]
    fn only_what_the_thread_does_not_hold_is_sent() {
        let known = include_str!("../fixtures/threads/state_extra_keys.state.json");
        let known = thread_state::read_state(known, &mut Tally::default()).unwrap();
        let mut input = RunInput::new("t", "r");
        input.messages = known.messages.clone();
        // The result was shown under a name of our own.
        for message in &mut input.messages {
            if let MessageBody::Tool { call, .. } = &message.body {
                message.id = format!("{call}-result").into();
            }
        }
        // And the last answer, before its name came.
        let last = input.messages.last_mut().unwrap();
        assert!(matches!(last.body, MessageBody::Assistant { .. }));
        let numbered = Message { id: format!("{}#2", last.id).into(), ..last.clone() };
        last.id = "lc_run--1".into();
        input.messages.push(numbered);
        input.messages.push(Message::user("h2", "and now?"));
        input.state = Some(
            Json::parse(
                r#"{"facts":["seed","sky is blue","the end"],"stage":"again","counters":{"agent":2}}"#,
            )
            .unwrap(),
        );
        let body = run_request(&input, &RunRequest { known: Some(&known), ..RunRequest::new("agent") });
        assert_eq!(
            body["input"],
            json!({"messages": [{"role": "user", "content": "and now?", "id": "h2"}], "stage": "again"})
        );
    }

    #[test]
    fn a_call_goes_back_under_the_id_that_the_model_gave() {
        let ask = |id: &str, call: &str| {
            let tool_calls = Some(vec![ToolCall::new(call, "f", "{}")]);
            Message::new(id, MessageBody::Assistant { content: None, tool_calls })
        };
        let answer = |id: &str, call: &str| {
            let body = MessageBody::Tool { call: call.into(), content: "x".into(), error: None };
            Message::new(id, body)
        };
        let list =
            [ask("a1", "c"), answer("r1", "c"), ask("a2", "c#2"), answer("r2", "c#2"), ask("a3", "d#2")];
        let sent = super::messages(&list);
        assert_eq!(sent[2]["tool_calls"][0]["id"], "c");
        assert_eq!(sent[3]["tool_call_id"], "c");
        assert_eq!(sent[4]["tool_calls"][0]["id"], "d#2", "an id of its own that only looks like it");
    }
}
