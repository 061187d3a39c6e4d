//! Requests: converts a canonical [`RunInput`] to the body of LangGraph Server's `/threads/{id}/runs/stream`.
//!
//! A thread on the server has a conversation and adds messages by id, while a client sends all messages. The caller
//! passes the state of the thread ([`super::thread_state::read_state`]), and only new messages are sent. Without
//! it all messages are sent, which is correct for stateless runs and new threads.
//!
//! ```
//! use agentwire_core::{event::{Message, RunInput}, format::langgraph::input::{RequestSettings, run_request_body}};
//! let mut input = RunInput::new("t1", "r1");
//! input.messages.push(Message::user("m1", "hi"));
//! let body = run_request_body(&input, &RequestSettings::new("agent")).to_string();
//! assert!(body.starts_with(r#"{"assistant_id":"agent","input":{"messages":[{"role":"user","content":"hi","id":"m1"}]}"#));
//! ```

mod langchain_messages;
mod request;

use serde_json::{Map, Value, json};

use self::langchain_messages::call_ids;
pub(super) use self::langchain_messages::langchain_message;
pub use self::langchain_messages::langchain_messages;
pub use self::request::from_json;
use super::{
    reader::{BREAKPOINT_ID, is_generated_id},
    thread_state::ThreadState,
};
use crate::{
    event::{Message, MessageBody, ResumeEntry, ResumeStatus, RunInput},
    format::reused,
    json::Json,
};

/// The stream modes that together contain all canonical events, without repeated tokens.
///
/// Only `events` contains the custom events of callbacks (`adispatch_custom_event`), the name of the graph and the
/// output of tools before their results. It would lose interrupts and the output of the stream writer, which the other
/// modes add. `messages-tuple` beside it would repeat each token, `messages` repeats each message from its start in
/// every frame.
pub const STREAM_MODES: &[&str] = &["events", "updates", "values", "custom"];

/// Stream modes for servers with long conversations: `events` repeats the state about ten times per step. Without it the
/// custom events of callbacks are lost.
pub const LEAN_STREAM_MODES: &[&str] = &["messages-tuple", "updates", "values", "custom", "tasks"];

/// The stream modes that a run can be asked for and that the reader understands.
pub const KNOWN_STREAM_MODES: &[&str] =
    &["events", "messages-tuple", "messages", "updates", "values", "custom", "tasks", "checkpoints", "debug"];

/// Settings of a request, beside the canonical input.
#[derive(Clone, Debug)]
pub struct RequestSettings<'r> {
    /// The id of the graph or assistant.
    pub assistant: &'r str,
    /// The stream modes; [`STREAM_MODES`] by default.
    pub stream_modes: &'r [&'r str],
    /// The keys of the graph's state for the client's tools and context.
    pub keys: StateKeys,
    /// The state of the thread, if it was read.
    pub thread_state: Option<&'r ThreadState>,
    /// Whether the run has no thread. Then it cannot be joined, and all messages are sent.
    pub stateless: bool,
}

/// Keys of a graph's state for the client's tools and context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateKeys {
    /// `tools`: tools.
    pub tools: bool,
    /// `ag-ui`: tools and context.
    pub ag_ui: bool,
    /// `copilotkit`: tools as `actions`, and context.
    pub copilotkit: bool,
}

impl StateKeys {
    /// Parses a list such as `tools,ag-ui`.
    ///
    /// # Errors
    /// When a key is unknown; returns that key.
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

impl<'r> RequestSettings<'r> {
    /// A request for a run of `assistant` on a thread.
    #[must_use]
    pub fn new(assistant: &'r str) -> Self {
        Self {
            assistant,
            stream_modes: STREAM_MODES,
            keys: StateKeys::default(),
            thread_state: None,
            stateless: false,
        }
    }
}

/// The body of a run request.
///
/// Answers to interrupts become `command.resume`, by interrupt id; a cancelled interrupt is answered with
/// `{"cancelled": true}`. New user messages beside an answer become `command.update`. Answers to breakpoints have no
/// value: the run continues without input, unless the answer is negative ([`stops_at_breakpoint`]).
/// `config`, `context`, `metadata`, `command` and other members of the request that a client forwards are copied.
#[must_use]
pub fn run_request_body(input: &RunInput, request: &RequestSettings<'_>) -> Value {
    let mut body = Map::new();
    body.insert("assistant_id".into(), request.assistant.into());
    let forwarded = match input.forwarded.as_ref().map(Json::to_value) {
        Some(Value::Object(forwarded)) => forwarded,
        _ => Map::new(),
    };
    match resume_action(input, &forwarded) {
        ResumeAction::Command(mut command) => {
            let messages = messages_beside_answers(input, request);
            if let (false, Value::Object(command)) = (messages.is_empty(), &mut command) {
                command.entry("update").or_insert_with(|| json!({"messages": messages}));
            }
            body.insert("command".into(), command);
        }
        ResumeAction::Continue => {
            body.insert("input".into(), Value::Null);
        }
        ResumeAction::None => {
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

/// The new user messages beside answers to interrupts. None are sent while a tool call has no result: no message may
/// stand between a call and its result, and an interrupt is often raised by a call.
fn messages_beside_answers(input: &RunInput, request: &RequestSettings<'_>) -> Vec<Value> {
    let Some(state) = request.thread_state else { return Vec::new() };
    let has_result = |call: &str| {
        state
            .messages
            .iter()
            .any(|held| matches!(&held.body, MessageBody::Tool { call: of, .. } if of.as_str() == call))
    };
    let mut calls = state.messages.iter().flat_map(|held| held.tool_calls());
    if !calls.all(|call| has_result(&call.id)) {
        return Vec::new();
    }
    let ids = call_ids(&input.messages);
    new_messages(&input.messages, Some(state))
        .filter(|message| matches!(message.body, MessageBody::User { .. }))
        .filter_map(|message| langchain_message(message, &ids))
        .collect()
}

/// Whether a graph at a breakpoint must not continue: the breakpoint was cancelled, or the answer is negative. A graph
/// has no form for a negative answer, so that no run is started.
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
    let is_negative = |entry: &ResumeEntry| {
        let answer = entry.payload.as_ref().map_or(Value::Null, Json::to_value);
        entry.status == ResumeStatus::Cancelled
            || [&answer, &answer["approved"], &answer["confirmed"]].contains(&&Value::Bool(false))
    };
    entries.iter().all(|entry| is_breakpoint(&entry.interrupt)) && entries.iter().any(is_negative)
}

/// The effect of the answers in a request.
enum ResumeAction {
    Command(Value),
    /// Continues after a breakpoint.
    Continue,
    None,
}

fn resume_action(input: &RunInput, forwarded: &Map<String, Value>) -> ResumeAction {
    let entries = input.resume.as_deref().unwrap_or_default();
    if entries.is_empty() {
        // Clients that predate `resume` forward a command.
        return match forwarded.get("command").filter(|command| command.get("resume").is_some()) {
            Some(command) => ResumeAction::Command(command.clone()),
            None => ResumeAction::None,
        };
    }
    let values = entries.iter().filter(|entry| !is_breakpoint(&entry.interrupt)).map(|entry| {
        let value = match entry.status {
            ResumeStatus::Resolved => entry.payload.as_ref().map_or(Value::Null, Json::to_value),
            ResumeStatus::Cancelled => json!({"cancelled": true}),
        };
        (entry.interrupt.to_string(), value)
    });
    let values: Map<String, Value> = values.collect();
    if values.is_empty() {
        return ResumeAction::Continue;
    }
    // LangGraph recognises a map of answers by its keys. Interrupts of versions without ids can only be answered one
    // at a time.
    let by_id = values.keys().all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let resume = match (by_id, values.len()) {
        (false, 1) => values.into_iter().next().map(|(_, value)| value).unwrap_or_default(),
        _ => Value::Object(values),
    };
    ResumeAction::Command(json!({"resume": resume}))
}

fn is_breakpoint(id: &str) -> bool {
    id == BREAKPOINT_ID || id.strip_prefix(BREAKPOINT_ID).is_some_and(|rest| rest.starts_with(':'))
}

/// `input`: the state of the client, its new messages, tools and context.
fn graph_input(input: &RunInput, request: &RequestSettings<'_>) -> Value {
    let mut values = match input.state.as_ref().map(Json::to_value) {
        Some(Value::Object(state)) => state,
        _ => Map::new(),
    };
    values.remove("messages");
    if let Some(state) = request.thread_state {
        // Values pass through the graph's reducers, so that unchanged ones would be added twice.
        let state = state.state.to_value();
        values.retain(|key, value| state.get(key) != Some(value));
    }
    let ids = call_ids(&input.messages);
    let messages = new_messages(&input.messages, request.thread_state);
    let messages = messages.filter_map(|message| langchain_message(message, &ids));
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
                .map_or_else(|| json!({"type": "object", "properties": {}}), Json::to_value);
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

/// The messages that the thread does not have. Tool results are compared by call, because the graph assigns their ids
/// only after they were shown. Assistant messages are also compared by content if they were shown under a generated
/// id before the provider's arrived, or with a number because an earlier message had the same id.
fn new_messages<'m>(
    messages: &'m [Message],
    thread_state: Option<&'m ThreadState>,
) -> impl Iterator<Item = &'m Message> {
    let held = thread_state.map(|state| state.messages.as_slice()).unwrap_or_default();
    messages.iter().filter(move |message| {
        !held.iter().any(|held| match (&held.body, &message.body) {
            (MessageBody::Tool { call: held, .. }, MessageBody::Tool { call, .. }) => held == call,
            (MessageBody::Assistant { .. }, MessageBody::Assistant { .. }) => {
                let has_other_id =
                    is_generated_id(&message.id) || reused::number(&held.id, &message.id).is_some();
                held.id == message.id || has_other_id && held.body == message.body
            }
            _ => held.id == message.id,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Content, ContentPart, Context, MediaKind, PartSource, Tool, ToolCall},
        format::langgraph::thread_state,
        tally::Tally,
    };

    fn text(messages: &[Message]) -> String {
        let values = langchain_messages(messages);
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
        run_request_body(&input, &RequestSettings::new("agent"))
    }

    #[test]
    fn request_equals_the_recorded_one() {
        let mut input = RunInput::new("t", "r");
        input.messages.push(Message::user("h1", "weather"));
        let modes = ["messages-tuple", "updates", "values", "custom"];
        let request = RequestSettings { stream_modes: &modes, ..RequestSettings::new("tools") };
        let body = run_request_body(&input, &request);
        // As recorded beside `server-tools-multi.sse`.
        assert_eq!(body["assistant_id"], "tools");
        assert_eq!(body["input"], json!({"messages": [{"role": "user", "content": "weather", "id": "h1"}]}));
        assert_eq!(body["stream_mode"], json!(modes));
        assert_eq!(body["stream_resumable"], true);
        assert_eq!(body["on_disconnect"], "continue");
    }

    #[test]
    fn converts_every_role_and_content_part() {
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
    fn tools_and_context_are_set_under_the_state_keys() {
        let mut input = RunInput::new("t", "r");
        input.tools.push(Tool {
            name: "pick".into(),
            description: "picks".into(),
            parameters: None,
            metadata: None,
        });
        input.context.push(Context { description: "user".into(), value: "Ana".into() });
        let keys = StateKeys::parse("tools, ag-ui,copilotkit").unwrap();
        let body = run_request_body(&input, &RequestSettings { keys, ..RequestSettings::new("agent") });
        let tool = json!({"name": "pick", "description": "picks", "parameters": {"type": "object", "properties": {}}});
        let context = json!({"description": "user", "value": "Ana"});
        assert_eq!(body["input"]["tools"], json!([tool]));
        assert_eq!(body["input"]["ag-ui"], json!({"tools": [tool], "context": [context]}));
        assert_eq!(body["input"]["copilotkit"], json!({"actions": [tool], "context": [context]}));
        let none = run_request_body(&input, &RequestSettings::new("agent"));
        assert_eq!(none["input"], json!({"messages": []}));
        assert_eq!(StateKeys::parse("tool"), Err("tool"));
    }

    #[test]
    fn answers_are_keyed_by_interrupt_id() {
        let id = "c39f193ebabf28ac94abe5106ce262e4";
        let body = resume(&[(id, ResumeStatus::Resolved, Some(r#"{"approved":true}"#))]);
        assert_eq!(body["command"], json!({"resume": {id: {"approved": true}}}));
        assert!(body.get("input").is_none());
        let other = "0".repeat(32);
        let body =
            resume(&[(id, ResumeStatus::Resolved, Some("1")), (&other, ResumeStatus::Cancelled, None)]);
        assert_eq!(body["command"]["resume"], json!({id: 1, other: {"cancelled": true}}));
        // Versions without ids take the bare answer.
        let body = resume(&[("approve:1", ResumeStatus::Resolved, Some("\"yes\""))]);
        assert_eq!(body["command"], json!({"resume": "yes"}));
        let body = resume(&[("breakpoint:tools", ResumeStatus::Resolved, None)]);
        assert_eq!(body["input"], Value::Null);
        assert!(body.get("command").is_none());
    }

    #[test]
    fn messages_beside_an_answer_are_sent_unless_a_call_has_no_result() {
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
        for (held, is_sent) in
            [(json!([human]), true), (json!([human, calls]), false), (json!([human, calls, result]), true)]
        {
            let state = json!({"values": {"messages": held}, "next": [], "tasks": []}).to_string();
            let known = thread_state::read_state(&state, &mut Tally::default()).unwrap();
            let body = run_request_body(
                &input,
                &RequestSettings { thread_state: Some(&known), ..RequestSettings::new("agent") },
            );
            let sent = &body["command"]["update"]["messages"];
            assert_eq!(sent.as_array().map(Vec::len), is_sent.then_some(1), "{body}");
            assert!(!is_sent || sent[0]["content"] == "and hurry", "{body}");
        }
    }

    #[test]
    fn negative_answer_stops_at_a_breakpoint() {
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
            let payload = payload.map(|payload| Json::parse(payload).unwrap());
            input.resume = Some(vec![ResumeEntry { interrupt: id.into(), status, payload, metadata: None }]);
            assert_eq!(stops_at_breakpoint(&input), stops, "{id} {status:?}");
        }
        assert!(!stops_at_breakpoint(&RunInput::new("t", "r")));
    }

    #[test]
    fn forwarded_command_and_config_are_copied() {
        let mut input = RunInput::new("t", "r");
        let forwarded = r#"{"command":{"resume":"yes"},"config":{"configurable":{"k":1}},"other":1}"#;
        input.forwarded = Some(Json::parse(forwarded).unwrap());
        let body = run_request_body(&input, &RequestSettings::new("agent"));
        assert_eq!(body["command"], json!({"resume": "yes"}));
        assert_eq!(body["config"], json!({"configurable": {"k": 1}}));
        assert!(body.get("other").is_none());
    }

    #[test]
    fn only_new_messages_and_values_are_sent() {
        let known = include_str!("../fixtures/threads/state_extra_keys.state.json");
        let known = thread_state::read_state(known, &mut Tally::default()).unwrap();
        let mut input = RunInput::new("t", "r");
        input.messages = known.messages.clone();
        // The result was shown under a derived id.
        for message in &mut input.messages {
            if let MessageBody::Tool { call, .. } = &message.body {
                message.id = format!("{call}-result").into();
            }
        }
        // The last assistant message was shown under a generated id.
        let last = input.messages.last_mut().unwrap();
        assert!(matches!(last.body, MessageBody::Assistant { .. }));
        let numbered = Message::from(crate::event::MessageData {
            id: format!("{}#2", last.id).into(),
            ..last.clone().into_data()
        });
        last.id = "lc_run--1".into();
        input.messages.push(numbered);
        input.messages.push(Message::user("h2", "and now?"));
        input.state = Some(
            Json::parse(
                r#"{"facts":["seed","sky is blue","the end"],"stage":"again","counters":{"agent":2}}"#,
            )
            .unwrap(),
        );
        let body = run_request_body(
            &input,
            &RequestSettings { thread_state: Some(&known), ..RequestSettings::new("agent") },
        );
        assert_eq!(
            body["input"],
            json!({"messages": [{"role": "user", "content": "and now?", "id": "h2"}], "stage": "again"})
        );
    }

    #[test]
    fn tool_calls_are_sent_with_native_ids() {
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
        let sent = langchain_messages(&list);
        assert_eq!(sent[2]["tool_calls"][0]["id"], "c");
        assert_eq!(sent[3]["tool_call_id"], "c");
        assert_eq!(sent[4]["tool_calls"][0]["id"], "d#2", "an id that only looks numbered");
    }
}
