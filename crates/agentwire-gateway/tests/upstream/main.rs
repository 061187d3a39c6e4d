//! Upstreams against scripted servers and commands: requests, decoded events, and errors.

mod adk;
mod ag_ui;
mod artifacts;
mod breaker;
mod events;
mod exec;
mod failures;
mod gateway;
mod hai;
mod hooks;
mod langgraph;
mod openai;
mod recall;
mod repeated_ids;
mod replay;
mod server;
mod tenancy;

use std::time::Duration;

use agentwire_core::event::{Event, Message, RunInput};
use agentwire_gateway::{
    UpstreamError,
    agent::{Agent, EventSink, Request},
};

/// A run request with one user message.
fn request() -> Request {
    let mut input = RunInput::new("t1", "r1");
    input.messages.push(Message::user("m1", "What is the weather?"));
    let mut request = Request::new(input);
    // Never reached, except in tests that set shorter ones.
    request.timeouts.first_byte = Some(Duration::from_secs(240));
    request.timeouts.idle = Some(Duration::from_secs(240));
    request
}

/// Runs an agent; returns its events and its result. Neither an event nor an error may follow a terminal event.
async fn play(agent: &impl Agent, request: Request) -> (Vec<Event>, Result<(), UpstreamError>) {
    let (sink, mut events) = EventSink::new(4);
    let collected = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(event) = events.recv().await {
            all.push(event);
        }
        all
    });
    let result = agent.run(request, sink).await;
    let events = collected.await.unwrap();
    let terminal = events.iter().position(Event::is_terminal);
    assert!(terminal.is_none_or(|at| at + 1 == events.len()), "{events:#?}");
    assert!(terminal.is_none() || result.is_ok(), "an error after a terminal event: {result:?}");
    (events, result)
}

/// The id of a user's thread on the agent's side, if its ids are scoped. Fixed forever.
fn scoped_id(tenant: &str, user: &str, thread: &str) -> String {
    let namespace = uuid::Uuid::from_u128(0x6f0f_3c1d_5a47_4f0e_9c65_0d2b_7e18_a3b4);
    let text = format!("{}:{tenant}{}:{user}{thread}", tenant.len(), user.len());
    uuid::Uuid::new_v5(&namespace, text.as_bytes()).to_string()
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::kind).collect()
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}
