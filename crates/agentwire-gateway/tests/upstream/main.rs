//! What agents behind HTTP do to us, and what we make of it.

mod adk;
mod ag_ui;
mod artifacts;
mod events;
mod exec;
mod front;
mod hooks;
mod langgraph;
mod openai;
mod recall;
mod replay;
mod server;
mod trouble;

use std::time::Duration;

use agentwire_core::event::{Event, Message, RunInput};
use agentwire_gateway::{
    UpstreamError,
    agent::{Agent, EventSink, Request},
};

/// A question.
fn request() -> Request {
    let mut input = RunInput::new("t1", "r1");
    input.messages.push(Message::user("m1", "What is the weather?"));
    let mut request = Request::new(input);
    // Long enough never to be reached by a test that does not mean it.
    request.timeouts.first_byte = Some(Duration::from_secs(240));
    request.timeouts.idle = Some(Duration::from_secs(240));
    request
}

/// Everything that an agent says, and how it ends. Nothing of its own may follow a terminal event.
async fn play(agent: &impl Agent, request: Request) -> (Vec<Event>, Result<(), UpstreamError>) {
    let (sink, mut events) = EventSink::new(4);
    let taken = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(event) = events.recv().await {
            all.push(event);
        }
        all
    });
    let result = agent.run(request, sink).await;
    let events = taken.await.unwrap();
    let terminal = events.iter().position(Event::is_terminal);
    assert!(terminal.is_none_or(|at| at + 1 == events.len()), "{events:#?}");
    assert!(terminal.is_none() || result.is_ok(), "a failure behind a terminal event: {result:?}");
    (events, result)
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::kind).collect()
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}
