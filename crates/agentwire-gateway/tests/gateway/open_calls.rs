//! Calls that a run leaves without a result: which of them wait for the front end, and the results beside theirs.

use std::sync::Arc;

use agentwire_core::event::{
    Body, Content, Event, Interrupt, Message, MessageBody, Outcome, RunFinished, RunInput, ToolCall,
    ToolResult,
};
use agentwire_gateway::codes;
use serde_json::{Value, json};

use crate::support::*;

fn call(id: &str, name: &str) -> Vec<Event> {
    let call = || id.into();
    vec![
        Body::ToolStart { call: call(), name: name.into(), parent: None }.into(),
        Body::ToolArgs { call: call(), delta: "{}".into() }.into(),
        Body::ToolEnd { call: call() }.into(),
    ]
}

fn result(id: &str) -> Event {
    let message = format!("result-{id}").into();
    let content = Content::from("done");
    let result = ToolResult { message, call: id.into(), content, error: None, explicit_role: false };
    Body::ToolResult(Box::new(result)).into()
}

/// An agent that emits `first` in response to a user message and a text otherwise.
fn agent(first: Vec<Event>) -> Arc<Puppet> {
    Puppet::eager(move |input: &RunInput| match input.messages.len() {
        1 => first.clone(),
        _ => talk(input, 1),
    })
}

async fn open(server: &Server) -> Vec<String> {
    let (_, items) = server.json("/threads/t/pending").await;
    let items = items.as_array().expect("a list");
    let waiting = items.iter().filter(|item| item["awaitingResult"] == json!(true));
    waiting.map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

/// The end of a run with these results at the end of the conversation.
async fn answered(server: &Server, run: &str, results: &[&str]) -> Value {
    let mut input = Server::input("t", run, "hello");
    let messages = input["messages"].as_array_mut().expect("a list");
    for call in results {
        messages.push(
            json!({"id": format!("mine-{call}"), "role": "tool", "toolCallId": call, "content": "yes"}),
        );
    }
    let frames = Stream::of(server.post("/", &input)).await.rest().await;
    assert_valid(&frames);
    frames.last().expect("an end").json()
}

#[tokio::test]
async fn a_call_in_the_last_message_waits_for_its_result() {
    let server = plan(agent(call("c1", "delete_all"))).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    assert_eq!((open(&server).await, server.status("r").await.as_str()), (vec!["c1".to_owned()], "waiting"));
    assert_eq!(answered(&server, "s", &["c1"]).await["type"], "RUN_FINISHED");
    assert_eq!(open(&server).await, [""; 0]);
}

#[tokio::test]
async fn a_call_with_its_result_in_a_snapshot_is_not_open() {
    let server = plan(Puppet::eager(|input: &RunInput| {
        let calls = vec![ToolCall::new("c1", "add", "{}"), ToolCall::new("c2", "pick_colour", "{}")];
        let body = MessageBody::Assistant { content: None, tool_calls: Some(calls) };
        let mut messages = input.messages.clone();
        messages.push(Message::new("m", body));
        messages.push(Message::new(
            "r1",
            MessageBody::Tool { call: "c1".into(), content: "4".into(), error: None },
        ));
        [call("c1", "add"), call("c2", "pick_colour"), vec![Body::MessagesSnapshot { messages }.into()]]
            .concat()
    }))
    .on_memory()
    .await;
    server.run_to_end("t", "r", "hello").await;
    assert_eq!(open(&server).await, ["c2"]);
}

#[tokio::test]
async fn a_call_before_later_messages_is_the_agents_own() {
    let mut events = call("c1", "log");
    events.extend([start("m"), delta("m", "Done."), end("m")]);
    let server = plan(agent(events)).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    assert_eq!((open(&server).await.len(), server.status("r").await.as_str()), (0, "finished"));
}

#[tokio::test]
async fn a_run_that_ends_with_an_interrupt_waits_for_nothing_else() {
    let server = plan(Puppet::eager(|input: &RunInput| {
        let mut finished = RunFinished::new(input.thread.clone(), input.run.clone());
        finished.outcome = Some(Outcome::Interrupt { interrupts: vec![Interrupt::new("q", "confirmation")] });
        let mut events = call("c1", "ask_for_confirmation");
        events.push(Body::RunFinished(Box::new(finished)).into());
        events
    }))
    .on_memory()
    .await;
    server.run_to_end("t", "r", "hello").await;
    assert_eq!(open(&server).await, ["q"]);
}

#[tokio::test]
async fn the_agents_own_results_are_allowed_beside_an_answer() {
    let mut events = call("own", "add");
    events.extend(call("c1", "pick"));
    events.push(result("own"));
    for backend in Backend::each().await {
        let server = plan(agent(events.clone())).on(&backend.store).await;
        server.run_to_end("t", "r", "hello").await;
        assert_eq!(open(&server).await, ["c1"]);
        let forged = answered(&server, "forged", &["own", "never"]).await;
        assert_eq!(forged["code"], codes::UNKNOWN_TOOL_CALL, "{forged}");
        assert_eq!(answered(&server, "s", &["own", "c1"]).await["type"], "RUN_FINISHED");
        assert_eq!(open(&server).await, [""; 0]);
        let (_, held) = server.json("/message_snapshot/t").await;
        let results: Vec<_> = held["messages"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| (message["id"].clone(), message["content"].clone()))
            .collect();
        assert_eq!(
            results,
            [(json!("result-own"), json!("done")), (json!("mine-c1"), json!("yes"))],
            "the agent's own result stays as it was"
        );
    }
}

#[tokio::test]
async fn several_calls_without_a_parent_wait_for_their_results() {
    let mut events = vec![start("m"), delta("m", "Both."), end("m")];
    events.extend(call("c1", "pick"));
    events.extend(call("c2", "pick"));
    let server = plan(agent(events)).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    assert_eq!(open(&server).await, ["c1", "c2"]);
    assert_eq!(answered(&server, "s", &["c1", "c2"]).await["type"], "RUN_FINISHED");
    assert_eq!(open(&server).await, [""; 0]);
}

#[tokio::test]
async fn a_conversation_that_only_the_client_has_brings_its_own_results() {
    let server = plan(Puppet::eager(|input: &RunInput| talk(input, 1))).on_memory().await;
    let call = |id: &str| {
        json!({"id": "a", "role": "assistant", "toolCalls": [{"id": id, "type": "function",
            "function": {"name": "pick", "arguments": "{}"}}]})
    };
    let result = json!({"id": "res", "role": "tool", "toolCallId": "c1", "content": "yes"});
    let send = async |thread: &str, messages: &[&Value]| {
        let mut input = Server::input(thread, &format!("r-{thread}"), "hello");
        let list = input["messages"].as_array_mut().expect("a list");
        list.extend(messages.iter().copied().cloned());
        Stream::of(server.post("/", &input)).await.rest().await.last().expect("an end").json()
    };
    assert_eq!(send("t", &[&call("c1"), &result]).await["type"], "RUN_FINISHED");
    let (_, held) = server.json("/message_snapshot/t").await;
    assert!(held["messages"].as_array().expect("a list").iter().any(|it| it["toolCallId"] == "c1"), "{held}");
    // A result of another call stays unknown, and a stored conversation is believed.
    assert_eq!(send("u", &[&call("c9"), &result]).await["code"], codes::UNKNOWN_TOOL_CALL);
    server.run_to_end("v", "first", "hello").await;
    assert_eq!(send("v", &[&call("c1"), &result]).await["code"], codes::UNKNOWN_TOOL_CALL);
}
