//! Coming back to a thread: the stored conversation and the live run to its end, nothing twice; and the open question of a
//! thread that waits.

use std::collections::HashSet;

use agentwire_core::{
    event::{Body, Content, Event, Message, Role, RunInput, ToolResult},
    fold::Fold,
    format::{Options, Setup, hai},
    framing,
    json::Json,
    patch::{Patch, PatchOp},
};
use agentwire_store::{RunStatus, Store};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::*;

/// Reasoning, text, a tool call with its result, and changes of the state that only fit the state before the run.
fn turn(input: &RunInput) -> Vec<Event> {
    let run = &input.run;
    let (think, text, call) = (format!("{run}-think"), format!("{run}-answer"), format!("{run}-call"));
    let of = |message: &str| message.into();
    let count = |value: i64| Body::StateDelta {
        patch: Patch(vec![PatchOp::replace("/count", Json::from(&json!(value)))]),
    };
    let before = input.state.as_ref().and_then(|state| state.to_value()["count"].as_i64()).unwrap_or(0);
    let mut bodies = match before {
        0 => vec![Body::StateSnapshot { snapshot: Json::from(&json!({"count": 1})) }],
        _ => vec![count(before + 1)],
    };
    bodies.extend([
        Body::ReasoningStart { message: of(&think), title: None },
        Body::ReasoningMessageStart { message: of(&think) },
        Body::ReasoningDelta { message: of(&think), delta: "hm ".into() },
        Body::ReasoningMessageEnd { message: of(&think) },
        Body::ReasoningEnd { message: of(&think) },
        Body::TextStart { message: of(&text), role: None, name: None },
        Body::TextDelta { message: of(&text), delta: "one ".into() },
        Body::TextDelta { message: of(&text), delta: "two".into() },
        Body::TextEnd { message: of(&text) },
        Body::ToolStart { call: call.as_str().into(), name: "look".into(), parent: Some(of(&text)) },
        Body::ToolArgs { call: call.as_str().into(), delta: r#"{"at":"#.into() },
        count(before + 2),
        Body::ToolArgs { call: call.as_str().into(), delta: "1}".into() },
        Body::ToolEnd { call: call.as_str().into() },
        Body::ToolResult(Box::new(ToolResult {
            message: format!("{run}-result").as_str().into(),
            call: call.as_str().into(),
            content: Content::from("found"),
            error: None,
            explicit_role: false,
        })),
    ]);
    bodies.into_iter().map(Event::new).collect()
}

/// A stream and its format.
struct Return {
    name: String,
    is_hai: bool,
    stream: Stream,
}

/// Every way to come back, with the live run `r`.
fn ways(server: &Server, number: usize) -> Vec<(String, bool, RequestBuilder)> {
    let sync = |run: &str| json!({"threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {}});
    let again = Server::input("t", "r", "go on");
    let fresh = format!("sync-{number}");
    let mut ways: Vec<_> = [
        ("sync", "/", sync(&fresh)),
        ("sync under the id of the run", "/", sync("r")),
        ("HAI sync", "/awp", sync(&fresh)),
        ("HAI sync under the id of the run", "/chat", sync("r")),
        ("HAI request again", "/awp", again),
    ]
    .into_iter()
    .map(|(name, path, body)| (name.to_owned(), path != "/", server.post(path, &body)))
    .collect();
    for format in ["ag-ui", "ag-ui@1", "hai"] {
        let path = format!("/threads/t/stream?format={format}");
        ways.push((path.clone(), format == "hai", server.ask(Method::GET, &path)));
    }
    ways
}

async fn come_back(server: &Server, number: usize, returns: &mut Vec<Return>) {
    for (name, is_hai, request) in ways(server, number) {
        let stream = Stream::of(request).await;
        assert_eq!(stream.status(), 200, "{name}");
        returns.push(Return { name: format!("{name} at {number}"), is_hai, stream });
    }
}

fn events_in(frames: &[Frame], is_hai: bool) -> Vec<Event> {
    if !is_hai {
        return events_of(frames);
    }
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut reader = hai::FORMAT.reader.expect("HAI has a reader")(&setup);
    let mut events = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let data = framing::Payload::Text(&frame.data);
        let frame = framing::Frame { index: index as u64, offset: 0, event: None, id: None, data };
        reader.read(&frame, &mut events).expect("frames of the gateway are readable");
    }
    events
}

/// Role, id and content of each message, as far as every format keeps them.
fn shape(messages: &[Message]) -> Vec<(Role, String, String)> {
    let of = |it: &Message| (it.role(), it.id.to_string(), format!("{:?}", it.body));
    messages.iter().map(of).collect()
}

/// Asserts that a stream contains the conversation of the thread, and every message once.
fn assert_is_conversation(name: &str, frames: &[Frame], is_hai: bool, stored: &[Message], state: &Value) {
    let kinds = types(frames);
    let snapshot = if is_hai { "MESSAGE_SNAPSHOT" } else { "MESSAGES_SNAPSHOT" };
    assert_eq!(kinds[..3], ["RUN_STARTED", snapshot, "STATE_SNAPSHOT"], "{name}");
    assert_eq!(kinds.iter().filter(|kind| *kind == "RUN_STARTED").count(), 1, "{name}");
    assert_eq!(kinds.iter().filter(|kind| *kind == "RUN_FINISHED").count(), 1, "{name}");
    assert_eq!(kinds.last().map(String::as_str), Some("RUN_FINISHED"), "{name}");
    if !is_hai {
        assert_valid(frames);
    }
    let events = events_in(frames, is_hai);
    let mut ids = HashSet::new();
    for event in &events {
        match &event.body {
            Body::MessagesSnapshot { messages } => {
                for message in messages {
                    assert!(ids.insert(message.id.to_string()), "{name}: {} twice", message.id);
                    for call in message.tool_calls() {
                        assert!(ids.insert(call.id.to_string()), "{name}: {} twice", call.id);
                    }
                }
            }
            Body::TextStart { message, .. } | Body::ReasoningMessageStart { message } => {
                assert!(ids.insert(message.to_string()), "{name}: {message} twice");
            }
            Body::ToolStart { call, .. } => {
                assert!(ids.insert(call.to_string()), "{name}: {call} twice");
            }
            _ => {}
        }
    }
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    assert_eq!(fold.skipped_patches(), 0, "{name}");
    assert_eq!(fold.state(), state, "{name}");
    assert_eq!(shape(fold.messages()), shape(stored), "{name}");
}

async fn stored(server: &Server, thread: &str) -> (Vec<Message>, Value) {
    let (_, snapshot) = server.json(&format!("/message_snapshot/{thread}")).await;
    let (_, state) = server.json(&format!("/state_snapshot/{thread}")).await;
    let mut tally = agentwire_core::Tally::default();
    let messages =
        agentwire_core::format::ag_ui::messages_from_json(&snapshot["messages"].to_string(), &mut tally);
    (messages.expect("stored messages"), state["snapshot"].clone())
}

/// At every event of a live run: the conversation before it, the whole run, nothing twice.
#[tokio::test]
async fn coming_back_at_every_event_brings_the_conversation_and_the_live_run() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(turn);
        let server = plan(puppet.clone()).on(&backend.store).await;
        puppet.allow(1000);
        server.run_to_end("t", "before", "hello").await;
        let remaining = turn(&RunInput::new("t", "r")).len();
        puppet.forbid();
        let mut first = server.run("t", "r", "go on").await;
        let mut returns = Vec::new();
        first.take(1).await;
        come_back(&server, 0, &mut returns).await;
        for index in 1..=remaining {
            puppet.allow(1);
            first.take(1).await;
            if index < remaining {
                come_back(&server, index, &mut returns).await;
            }
        }
        first.rest().await;
        let (messages, state) = stored(&server, "t").await;
        assert_eq!((messages.len(), state), (8, json!({"count": 4})), "{messages:?}");
        let (messages, state) = stored(&server, "t").await;
        assert_eq!(returns.len(), remaining * 8);
        for Return { name, is_hai, mut stream } in returns {
            assert_eq!(stream.verdict(), "whole", "{name}");
            assert_eq!(stream.header("x-run-id"), "r", "{name}");
            let frames = stream.rest().await;
            assert_is_conversation(&name, &frames, is_hai, &messages, &state);
        }
        // And after the end.
        for (name, is_hai, request) in ways(&server, remaining) {
            let frames = Stream::of(request).await.rest().await;
            assert_is_conversation(&name, &frames, is_hai, &messages, &state);
        }
        assert_eq!(puppet.calls(), 2, "nobody started a run by coming back");
    }
}

/// The run ends while the client comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coming_back_while_the_run_ends_leaves_no_gap() {
    for backend in Backend::each().await {
        let server = plan(Puppet::eager(turn)).on(&backend.store).await;
        for round in 0..20 {
            let (thread, run) = (format!("t{round}"), format!("r{round}"));
            let mut first = server.run(&thread, &run, "hello").await;
            let path = format!("/threads/{thread}/stream");
            let mut back = server.follow(&path).await;
            assert_eq!(back.status(), 200);
            let frames = back.rest().await;
            first.rest().await;
            let (messages, state) = stored(&server, &thread).await;
            assert_is_conversation(&format!("{run} {}", back.verdict()), &frames, false, &messages, &state);
        }
    }
}

/// A client that comes back before the run has its thread waits for the first event.
#[tokio::test]
async fn coming_back_to_a_queued_run_brings_the_run_before_it() {
    let puppet = Puppet::new(turn);
    let server = plan(puppet.clone())
        .agent(|agent| agent.busy = agentwire_gateway::settings::Busy::Enqueue { limit: 5 })
        .on_memory()
        .await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    let mut two = server.run("t", "r", "go on").await;
    wait_until("it waits", async || server.status("r").await == "queued").await;
    let sync = json!({"threadId": "t", "runId": "r", "messages": []});
    let mut back = Stream::of(server.post("/", &sync)).await;
    puppet.allow(1000);
    one.rest().await;
    two.rest().await;
    let frames = back.rest().await;
    let (messages, state) = stored(&server, "t").await;
    assert_eq!(messages.len(), 8);
    assert_is_conversation("queued", &frames, false, &messages, &state);
}

/// A run that another process drives.
#[tokio::test]
async fn coming_back_through_another_gateway_brings_the_conversation_and_the_live_run() {
    let backend = Backend::sqlite().await;
    let puppet = Puppet::new(turn);
    let server = plan(puppet.clone()).on(&backend.store).await;
    puppet.allow(1000);
    server.run_to_end("t", "before", "hello").await;
    puppet.forbid();
    let mut first = server.run("t", "r", "go on").await;
    puppet.allow(8);
    first.take(9).await;
    let store: std::sync::Arc<dyn Store> = backend.reopened().await;
    let other = plan(Puppet::eager(turn)).on(&store).await;
    let mut returns = Vec::new();
    come_back(&other, 9, &mut returns).await;
    puppet.allow(1000);
    first.rest().await;
    let (messages, state) = stored(&server, "t").await;
    for Return { name, is_hai, mut stream } in returns {
        assert_is_conversation(&name, &stream.rest().await, is_hai, &messages, &state);
    }
}

#[tokio::test]
async fn the_history_in_hai_is_a_message_snapshot() {
    let server = plan(Puppet::eager(turn)).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    for path in ["/message_snapshot/t?format=hai", "/message_snapshot/t?format=hai@text"] {
        let (status, snapshot) = server.json(path).await;
        assert_eq!(
            (status.as_u16(), snapshot["type"].as_str()),
            (200, Some("MESSAGE_SNAPSHOT")),
            "{snapshot}"
        );
        let messages = snapshot["messages"].as_array().expect("messages");
        assert_eq!(messages[0]["content"], "hello");
        assert!(snapshot["timestamp"].is_u64());
        assert!(messages.iter().any(|message| message.to_string().contains("one two")), "{snapshot}");
    }
    assert_eq!(server.json("/message_snapshot/unknown?format=hai").await.0, 404);
    let (status, body) = server.json("/message_snapshot/t?format=hai@none").await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (400, Some("UNKNOWN_FORMAT")));
}

fn request(run: &str, messages: Value) -> Value {
    json!({"threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": messages, "tools": [], "context": [], "state": {}, "forwardedProps": {}})
}

/// The last frame of every way to reload the page.
async fn reloaded(server: &Server) -> Vec<(String, Value)> {
    let sync = request("sync", json!([]));
    let mut ends = Vec::new();
    for (name, request) in [
        ("sync", server.post("/", &sync)),
        ("HAI sync", server.post("/awp", &sync)),
        ("stream", server.ask(Method::GET, "/threads/t/stream")),
        ("HAI stream", server.ask(Method::GET, "/threads/t/stream?format=hai")),
    ] {
        let frames = Stream::of(request).await.rest().await;
        let end = frames.last().expect("an end").json();
        if !name.starts_with("HAI") {
            assert_valid(&frames);
        } else if end["outcome"]["type"] == "interrupt" {
            assert!(types(&frames).contains(&"TOOL_CALL_START".to_owned()), "{name}: {frames:?}");
        }
        ends.push((name.to_owned(), frames.last().expect("an end").json()));
    }
    ends
}

#[tokio::test]
async fn an_open_question_survives_a_reload() {
    let server = plan(asker()).on_memory().await;
    let question = json!({"ask": [{"id": "day", "message": "Which day?"}, {"id": "seat"}]});
    let user = json!([{"id": "u1", "role": "user", "content": question.to_string()}]);
    Stream::of(server.post("/", &request("r", user))).await.rest().await;
    assert_eq!(server.status("r").await, RunStatus::Waiting.as_str());
    for (name, end) in reloaded(&server).await {
        assert_eq!(
            (&end["type"], &end["outcome"]["type"]),
            (&json!("RUN_FINISHED"), &json!("interrupt")),
            "{name}"
        );
        let interrupts = end["outcome"]["interrupts"].as_array().expect("interrupts");
        let ids: Vec<_> = interrupts.iter().map(|interrupt| interrupt["id"].clone()).collect();
        assert_eq!(ids, ["day", "seat"], "{name}");
        assert_eq!(interrupts[0]["message"], "Which day?", "{name}");
    }
    let mut answer = request("r2", json!([]));
    answer["resume"] = json!([
        {"interruptId": "day", "status": "resolved", "payload": "Monday"},
        {"interruptId": "seat", "status": "resolved", "payload": 7},
    ]);
    let frames = Stream::of(server.post("/", &answer)).await.rest().await;
    assert_valid(&frames);
    for (name, end) in reloaded(&server).await {
        assert_eq!((&end["type"], &end["outcome"]), (&json!("RUN_FINISHED"), &Value::Null), "{name}");
    }
}

#[tokio::test]
async fn open_front_end_calls_survive_a_reload() {
    let server = plan(asker()).on_memory().await;
    let script = json!({"calls": [{"id": "pick", "name": "pick", "args": {"of": 2}}]});
    let mut body = request("r", json!([{"id": "u1", "role": "user", "content": script.to_string()}]));
    body["tools"] = json!([{"name": "pick", "description": "", "parameters": {}}]);
    Stream::of(server.post("/", &body)).await.rest().await;
    for (name, end) in reloaded(&server).await {
        assert_eq!(end["outcome"], json!({"type": "success", "pendingToolCallIds": ["pick"]}), "{name}");
    }
}

/// A question of one run is not hidden by the failure of a later one.
#[tokio::test]
async fn an_open_question_survives_a_run_that_could_not_start() {
    let puppet = Puppet::new(asker_script);
    let server = plan(puppet.clone())
        .agent(|agent| agent.busy = agentwire_gateway::settings::Busy::Enqueue { limit: 5 })
        .on_memory()
        .await;
    let question = json!({"ask": [{"id": "day"}]});
    let user = |id: &str, text: &str| json!([{"id": id, "role": "user", "content": text}]);
    let mut one = Stream::of(server.post("/", &request("r", user("u1", &question.to_string())))).await;
    one.take(1).await;
    let mut two = Stream::of(server.post("/", &request("r2", user("u2", "hello")))).await;
    puppet.allow(1000);
    one.rest().await;
    assert_eq!(two.rest().await.last().expect("an end").json()["code"], "INTERRUPT_UNANSWERED");
    for (name, end) in reloaded(&server).await {
        assert_eq!(end["outcome"]["interrupts"][0]["id"], "day", "{name}: {end}");
    }
}

/// A front end adds a result for the call in question when the person writes something else instead of deciding.
#[tokio::test]
async fn a_result_that_says_cancelled_answers_the_question_about_its_call() {
    for (index, content) in [
        "cancelled by user",
        "Tool call cancelled by user",
        "User canceled tool call by sending a new message.",
        r#"{"error":"User cancelled tool call by sending a new message."}"#,
        r#"{"status":"cancelled"}"#,
    ]
    .into_iter()
    .enumerate()
    {
        for (path, has_message) in [("/", true), ("/", false), ("/awp", true), ("/awp", false)] {
            let server = plan(asker()).on_memory().await;
            let script = json!({
                "calls": [{"id": "c", "name": "pay", "args": {}}],
                "ask": [{"id": "pay?", "reason": "confirmation", "toolCallId": "c"}],
            });
            let user = json!({"id": "u1", "role": "user", "content": script.to_string()});
            Stream::of(server.post("/", &request("r", json!([user])))).await.rest().await;
            let (_, snapshot) = server.json("/message_snapshot/t").await;
            let mut messages = snapshot["messages"].as_array().expect("messages").clone();
            let refused =
                request("r2", json!([messages[0], {"id": "u2", "role": "user", "content": "hello"}]));
            let frames = Stream::of(server.post(path, &refused)).await.rest().await;
            assert_eq!(frames.last().expect("an end").json()["code"], "INTERRUPT_UNANSWERED");
            messages.push(json!({"id": "x", "role": "tool", "toolCallId": "c", "content": content}));
            if has_message {
                messages.push(json!({"id": "u2", "role": "user", "content": "something else"}));
            }
            let frames = Stream::of(server.post(path, &request(&format!("r{index}x"), json!(messages))))
                .await
                .rest()
                .await;
            let text: String = frames.iter().map(|frame| frame.raw.as_str()).collect();
            assert_eq!(frames.last().expect("an end").kind(), "RUN_FINISHED", "{path} {content}: {text}");
            assert!(text.contains("pay?") && text.contains("cancelled"), "{path} {content}: {text}");
            assert_eq!(server.json("/threads/t/pending").await.1, json!([]), "{path} {content}");
            let (_, snapshot) = server.json("/message_snapshot/t").await;
            let has_words = snapshot.to_string().contains("something else");
            assert_eq!(has_words, has_message, "{path} {content}: {snapshot}");
        }
    }
}

/// Only a cancellation: a result of a call that was never allowed to run is no answer.
#[tokio::test]
async fn a_forged_result_does_not_answer_the_question_about_its_call() {
    let server = plan(asker()).on_memory().await;
    let script = json!({
        "calls": [{"id": "c", "name": "pay", "args": {}}],
        "ask": [{"id": "pay?", "reason": "confirmation", "toolCallId": "c"}],
    });
    let user = json!({"id": "u1", "role": "user", "content": script.to_string()});
    Stream::of(server.post("/", &request("r", json!([user])))).await.rest().await;
    for content in ["paid", r#"{"ok":true}"#, "true", "42"] {
        let messages = json!([user, {"id": "x", "role": "tool", "toolCallId": "c", "content": content},
            {"id": "u2", "role": "user", "content": "go on"}]);
        let frames = Stream::of(server.post("/", &request("r2", messages))).await.rest().await;
        assert_eq!(frames.last().expect("an end").json()["code"], "INTERRUPT_UNANSWERED", "{content}");
    }
    assert_eq!(server.json("/threads/t/pending").await.1.as_array().map(Vec::len), Some(1));
}
