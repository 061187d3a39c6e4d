//! Agents that use the same message and call ids in every run, with clients of AG-UI, HAI and the AI SDK.

use std::sync::Arc;

use agentwire_core::event::{Body, Event, Interrupt, Message, MessageBody, Outcome, RunFinished, RunInput};
use agentwire_gateway::{
    InstanceLock, UpstreamError,
    agent::{Agent, BoxFuture, EventSink, Request},
};
use serde_json::{Value, json};

use crate::support::*;

/// Calls its message `m1` and its call `c1` in every run. It says the ids that it gets in answers, calls the tool `pick` for
/// the message `tool`, and asks a question about the call for the message `ask`.
fn constant(input: &RunInput) -> Vec<Event> {
    let say = |text: String| vec![start("m1"), delta("m1", &text), end("m1")];
    let held = |id: &str| input.messages.iter().flat_map(Message::tool_calls).any(|call| *call.id == *id);
    if let Some(entries) = &input.resume {
        return say(format!(
            "answer to {}, {}",
            &*entries[0].interrupt,
            if held("c1") { "known" } else { "?" }
        ));
    }
    let text = match input.messages.last().map(|message| &message.body) {
        Some(MessageBody::Tool { call, .. }) => return say(format!("result of {call}")),
        Some(MessageBody::User { content }) => content.text(),
        _ => String::new(),
    };
    if text != "tool" && text != "ask" {
        return say(format!("you said {text}"));
    }
    let mut events = vec![
        start("m1"),
        delta("m1", "One moment."),
        Event::new(Body::ToolStart { call: "c1".into(), name: "pick".into(), parent: Some("m1".into()) }),
        Event::new(Body::ToolArgs { call: "c1".into(), delta: "{}".into() }),
        Event::new(Body::ToolEnd { call: "c1".into() }),
        end("m1"),
    ];
    let mut finished = RunFinished::new(input.thread.clone(), input.run.clone());
    if text == "ask" {
        let mut interrupt = Interrupt::new("q1", "tool_call");
        interrupt.tool_call = Some("c1".into());
        finished.outcome = Some(Outcome::Interrupt { interrupts: vec![interrupt] });
    }
    events.push(Event::new(Body::RunFinished(Box::new(finished))));
    events
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "content": text})
}

fn request(run: &str, messages: Value) -> Value {
    let tool = json!({"name": "pick", "description": "", "parameters": {}});
    json!({"threadId": "t", "runId": run, "messages": messages, "tools": [tool], "context": [], "state": {}, "forwardedProps": {}})
}

async fn send(server: &Server, path: &str, body: &Value) -> Vec<Frame> {
    let mut stream = Stream::of(server.post(path, body)).await;
    assert_eq!(stream.status(), 200, "{path} {body}");
    stream.rest().await
}

/// The stored messages.
async fn stored(server: &Server) -> Vec<Value> {
    let (_, snapshot) = server.json("/message_snapshot/t").await;
    snapshot["messages"].as_array().cloned().unwrap_or_default()
}

/// The stored messages as `id text`, with their calls.
async fn lines(server: &Server) -> Vec<String> {
    let line = |message: &Value| {
        let mut line =
            format!("{} {}", message["id"].as_str().unwrap_or(""), message["content"].as_str().unwrap_or(""));
        for call in message["toolCalls"].as_array().into_iter().flatten() {
            line.push_str(&format!(" +{}", call["id"].as_str().unwrap_or("")));
        }
        if let Some(call) = message["toolCallId"].as_str() {
            line.push_str(&format!(" of {call}"));
        }
        line
    };
    stored(server).await.iter().map(line).collect()
}

/// Asserts that every message and call id of the stored conversation occurs once.
async fn assert_distinct(server: &Server) {
    let mut seen = std::collections::HashSet::new();
    for message in stored(server).await {
        assert!(seen.insert(message["id"].to_string()), "{:?}", lines(server).await);
        for call in message["toolCalls"].as_array().into_iter().flatten() {
            assert!(seen.insert(format!("call {}", call["id"])), "{:?}", lines(server).await);
        }
    }
}

#[tokio::test]
async fn turns_stay_apart_for_clients_of_every_protocol_and_history() {
    use agentwire_gateway::settings::History;
    for (path, history) in [
        ("/", History::Merge),
        ("/", History::Server),
        ("/", History::Client),
        ("/awp", History::Merge),
        ("/api/chat", History::Merge),
    ] {
        for sends_all in [false, true] {
            let server =
                plan(Puppet::eager(constant)).agent(|agent| agent.history = Some(history)).on_memory().await;
            let mut texts = Vec::new();
            for turn in 1..4 {
                let id = format!("u{turn}");
                let body = match path {
                    "/api/chat" => {
                        let parts = json!([{"type": "text", "text": id}]);
                        let mut held = Vec::new();
                        if sends_all {
                            let (_, stored) = server.json("/message_snapshot/t?format=ai-sdk").await;
                            held = stored["messages"]
                                .as_array()
                                .or(stored.as_array())
                                .cloned()
                                .unwrap_or_default();
                        }
                        held.push(json!({"id": id, "role": "user", "parts": parts}));
                        json!({"id": "t", "messages": held, "trigger": "submit-message"})
                    }
                    _ => {
                        let mut held = if sends_all { stored(&server).await } else { Vec::new() };
                        held.push(user(&id, &id));
                        request(&format!("r{turn}"), json!(held))
                    }
                };
                send(&server, path, &body).await;
                texts.extend([id.clone(), format!("you said {id}")]);
            }
            let is_whole = history != History::Client || sends_all;
            let expected = if is_whole { &texts[..] } else { &texts[4..] };
            let found: Vec<_> = stored(&server)
                .await
                .iter()
                .map(|message| message["content"].as_str().unwrap_or("").to_owned())
                .collect();
            assert_eq!(found, expected, "{path} {history:?} all: {sends_all}");
            assert_distinct(&server).await;
            let last = stored(&server).await.last().expect("an answer")["id"].clone();
            assert_eq!(last, "m1#3", "{path} {history:?} all: {sends_all}");
        }
    }
}

#[tokio::test]
async fn a_result_of_a_front_end_tool_reaches_the_agent_under_its_own_id() {
    let agent = Puppet::eager(constant);
    for path in ["/", "/awp"] {
        for sends_all in [false, true] {
            let server = plan(agent.clone()).on_memory().await;
            for (turn, call) in [(1, "c1"), (2, "c1#2"), (3, "c1#3")] {
                let held = async || if sends_all { stored(&server).await } else { Vec::new() };
                let mut asked = held().await;
                asked.push(user(&format!("u{turn}"), "tool"));
                send(&server, path, &request(&format!("a{turn}"), json!(asked))).await;
                let open = server.open("t").await;
                assert_eq!(open.len(), 1, "{open:?}");
                assert_eq!((&open[0]["id"], open[0].get("agentIds")), (&json!(call), None));
                let mut answer = held().await;
                answer.push(
                    json!({"id": format!("x{turn}"), "role": "tool", "toolCallId": call, "content": "7"}),
                );
                send(&server, path, &request(&format!("b{turn}"), json!(answer))).await;
                assert_eq!(server.open("t").await, Vec::<Value>::new());
                let input = agent.last_request().input;
                let calls: Vec<_> = input
                    .messages
                    .iter()
                    .flat_map(Message::tool_calls)
                    .map(|call| call.id.to_string())
                    .collect();
                assert_eq!(calls.last().map(String::as_str), Some("c1"), "the call of the result: {calls:?}");
            }
            let expected = [
                "u1 tool",
                "m1 One moment. +c1",
                "x1 7 of c1",
                "m1#2 result of c1",
                "u2 tool",
                "m1#3 One moment. +c1#2",
                "x2 7 of c1#2",
                "m1#4 result of c1",
                "u3 tool",
                "m1#5 One moment. +c1#3",
                "x3 7 of c1#3",
                "m1#6 result of c1",
            ];
            assert_eq!(lines(&server).await, expected, "{path} all: {sends_all}");
        }
    }
}

#[tokio::test]
async fn an_answer_to_a_question_about_a_call_reaches_the_agent_with_its_own_ids() {
    for path in ["/", "/awp", "/api/chat"] {
        let agent = Puppet::eager(constant);
        let server = plan(agent.clone()).on_memory().await;
        for (turn, call) in [(1, "c1"), (2, "c1#2")] {
            send(&server, "/", &request(&format!("a{turn}"), json!([user(&format!("u{turn}"), "ask")])))
                .await;
            let open = server.open("t").await;
            assert_eq!((&open[0]["id"], &open[0]["toolCallId"]), (&json!("q1"), &json!(call)), "{path}");
            let yes = json!({"approved": true});
            let answer = match path {
                "/" => {
                    let mut body = request(&format!("b{turn}"), json!([]));
                    body["resume"] = json!([{"interruptId": "q1", "status": "resolved", "payload": yes}]);
                    body
                }
                "/awp" => {
                    let result = json!({"id": format!("x{turn}"), "role": "tool", "toolCallId": "q1", "content": yes.to_string()});
                    request(&format!("b{turn}"), json!([result]))
                }
                _ => {
                    let part = json!({"type": "dynamic-tool", "toolName": "pick", "toolCallId": call, "state": "approval-responded", "input": {}, "approval": {"id": "q1", "approved": true}});
                    let asked = json!({"id": format!("u{turn}"), "role": "user", "parts": [{"type": "text", "text": "ask"}]});
                    let page =
                        json!([asked, {"id": format!("a{turn}"), "role": "assistant", "parts": [part]}]);
                    json!({"id": "t", "messages": page, "trigger": "submit-message"})
                }
            };
            send(&server, path, &answer).await;
            assert_eq!(server.open("t").await, Vec::<Value>::new(), "{path}");
            let input = agent.last_request().input;
            let calls: Vec<_> =
                input.messages.iter().flat_map(Message::tool_calls).map(|call| call.id.to_string()).collect();
            assert!(calls.len() >= turn && calls.iter().all(|call| call == "c1"), "{path} {calls:?}");
            assert_eq!(input.resume.as_ref().expect("an answer")[0].interrupt.as_str(), "q1");
        }
        if path != "/api/chat" {
            // The page of this test has the assistant's messages under ids of its own.
            assert_distinct(&server).await;
        }
        let answers =
            lines(&server).await.iter().filter(|line| line.ends_with("answer to q1, known")).count();
        assert_eq!(answers, 2, "{path} {:?}", lines(&server).await);
    }
}

#[tokio::test]
async fn a_reconnecting_client_sees_the_ids_of_the_stream() {
    let server = plan(Puppet::eager(constant)).on_memory().await;
    server.run_to_end("t", "r1", "one").await;
    let whole = server.run_to_end("t", "r2", "two").await;
    assert_valid(&whole);
    assert!(whole.iter().any(|frame| frame.data.contains("m1#2")), "{whole:?}");
    for seen in 0..whole.len() - 1 {
        let rest = server.follow(&format!("/runs/r2/stream?after=r2:{seen}")).await.rest().await;
        assert_eq!(rest, whole[seen + 1..]);
    }
}

/// An agent that keeps running when the gateway crashes; reattaching delivers its events from the start.
struct RemoteAgent {
    first: Arc<Puppet>,
    reattached: Arc<Puppet>,
}

impl Agent for RemoteAgent {
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        self.first.run(request, sink)
    }

    fn attach(
        &self,
        request: Request,
        sink: EventSink,
    ) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        Some(self.reattached.run(request, sink))
    }
}

/// A text under a repeated id, then a snapshot that lists the id once, then more text.
fn with_snapshot(input: &RunInput) -> Vec<Event> {
    let mut messages = input.messages.clone();
    messages.push(Message::assistant("m1", "one two"));
    vec![
        start("m1"),
        delta("m1", "one "),
        delta("m1", "two"),
        end("m1"),
        Event::new(Body::MessagesSnapshot { messages }),
        start("m2"),
        delta("m2", "three"),
        end("m2"),
        finished(input),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_repeated_ids_is_reattached_after_a_crash() {
    // RUN_STARTED is the first event of the log.
    for seen_events in [2, 4, 6, 8] {
        let backend = Backend::sqlite().await;
        let agent = Arc::new(RemoteAgent {
            first: Puppet::new(with_snapshot),
            reattached: Puppet::eager(with_snapshot),
        });
        let lock = || InstanceLock::at(&backend.address);
        let server = plan(agent.clone()).instance_lock(lock()).killable(&backend.store).await;
        agent.first.allow(9);
        let first = server.run_to_end("t", "r1", "go").await;
        assert_valid(&first);
        let mut stream = server.run("t", "r2", "go on").await;
        agent.first.allow(seen_events - 1);
        let seen = stream.take(seen_events).await;
        server.crash().await;

        let store = backend.reopened().await;
        let server = plan(agent.clone()).instance_lock(lock()).on(&store).await;
        let rest = server.follow(&format!("/runs/r2/stream?after=r2:{}", seen_events - 1)).await.rest().await;
        let whole: Vec<Frame> = seen.into_iter().chain(rest).collect();
        assert_valid(&whole);
        assert_eq!(types(&whole).last().map(String::as_str), Some("RUN_FINISHED"), "after {seen_events}");
        assert_eq!(whole, server.follow("/runs/r2/stream").await.rest().await);
        let expected =
            ["r1-user go", "m1 one two", "m2 three", "r2-user go on", "m1#2 one two", "m2#2 three"];
        assert_eq!(lines(&server).await, expected, "after {seen_events}");
    }
}
