//! Hooks on the native events of every upstream.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use agentwire_core::event::{Body, Event};
use agentwire_gateway::{
    agent::*,
    codes,
    hooks::{HookSet, Hooked, Hooks, failed},
    upstream::*,
};
use serde_json::json;

use super::{
    fixture, kinds,
    langgraph::{self, json_response, route, state, stream, success},
    play, request,
    server::{Server, Step, events, head},
};

/// Records the names of native events, counts translations, and changes nothing.
#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<(Vec<Option<String>>, usize)>>);

impl Hooks for Watcher {
    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        self.0.lock().unwrap().0.push(native.event.as_deref().map(str::to_owned));
        out.push(native);
        Box::pin(async { Ok(()) })
    }

    fn translate<'h>(&'h self, _: &'h NativeEvent, _: &'h mut Vec<Event>) -> Hooked<'h, Translation> {
        self.0.lock().unwrap().1 += 1;
        Box::pin(async { Ok(Translation::Default) })
    }
}

fn with(hooks: impl Hooks) -> Request {
    Request { native_hooks: Some(Arc::new(HookSet::new(hooks))), ..request() }
}

/// Checks that hooks do not change the events; returns the names of the native events.
async fn watched_events(name: &str, agent: &impl Agent) -> Vec<Option<String>> {
    let plain = play(agent, request()).await;
    let watcher = Watcher::default();
    let watched = play(agent, with(watcher.clone())).await;
    assert_eq!(watched, plain, "{name}");
    let seen = watcher.0.lock().unwrap().clone();
    assert!(!seen.0.is_empty(), "{name}");
    assert_eq!(seen.0.len(), seen.1, "{name}");
    seen.0
}

#[tokio::test]
async fn hooks_see_the_native_events_of_every_upstream() {
    for name in ["weather_tool.sse", "chunks.sse", "thinking.sse"] {
        let server = Server::always(events(&fixture(name))).await;
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
        watched_events(name, &agent).await;
        // A byte at a time, and cut off at the end.
        let trickle = vec![Step::Send(head("200 OK", "text/event-stream")), Step::Trickle(fixture(name))];
        let server = Server::always(trickle).await;
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
        watched_events(name, &agent).await;
        let body = fixture(name);
        let server = Server::always(events(&body[..body.len() * 2 / 3])).await;
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
        watched_events(name, &agent).await;
    }
    let server = Server::new(|request| match request.line() {
        "POST /run_sse" => events(&fixture("adk_tool.sse")),
        line if line.starts_with("GET") => json_response("404 Not Found", "{}"),
        _ => json_response("200 OK", "{}"),
    })
    .await;
    let options = AdkOptions { url: server.url.clone(), app: "demo".into(), ..AdkOptions::default() };
    watched_events("adk", &Adk::new(options).unwrap()).await;

    let server = Server::always(events(&fixture("langgraph_tools.jsonl"))).await;
    let options =
        EventsOptions { url: server.url.clone(), format: Some("langgraph".into()), ..Default::default() };
    watched_events("events", &Events::new(options).unwrap()).await;

    let chunk = |delta: serde_json::Value, finish: Option<&str>| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        format!(
            "data: {}\n\n",
            json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices})
        )
    };
    let body = chunk(json!({"content": "hi"}), None) + &chunk(json!({}), Some("stop")) + "data: [DONE]\n\n";
    let server = Server::always(events(body.as_bytes())).await;
    let options = ModelOptions { url: server.url.clone(), model: "m".into(), ..Default::default() };
    watched_events("openai", &Model::new(options).unwrap()).await;

    let script = r#"echo '{"type":"RUN_STARTED","threadId":"t","runId":"r"}'; echo '{"type":"RUN_FINISHED","threadId":"t","runId":"r"}'"#;
    let command = ["sh", "-c", script].map(Into::into).to_vec();
    watched_events("exec", &Exec::new(ExecOptions { command, ..Default::default() }).unwrap()).await;

    let file = format!("{}/tests/fixtures/weather_tool.sse", env!("CARGO_MANIFEST_DIR")).into();
    watched_events("replay", &Replay::new(ReplayOptions { file, ..Default::default() }).unwrap()).await;
}

#[tokio::test]
async fn state_and_run_after_a_langgraph_stream_pass_the_hooks() {
    let server = Server::new(|request| match route(request) {
        "state" => json_response("200 OK", state(json!([]))),
        "start" => stream(&fixture("langgraph_slow.sse")),
        _ => json_response("200 OK", success()),
    })
    .await;
    let seen = watched_events("langgraph", &langgraph::agent(&server)).await;
    let last: Vec<_> = seen.iter().rev().take(2).rev().flatten().map(String::as_str).collect();
    assert_eq!(last, ["state", "run"]);
}

/// Replaces the rest of the stream when the agent is late.
struct Impatient;

impl Hooks for Impatient {
    fn native_timeout(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn native_fallback<'h>(&'h self, out: &'h mut Vec<Event>) -> Hooked<'h, Vec<NativeEvent>> {
        out.push(Event::new(Body::Custom { name: "late".into(), value: json!(true).into() }));
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[tokio::test]
async fn a_langgraph_run_replaced_by_a_fallback_is_cancelled() {
    let server = Server::new(|request| match route(request) {
        "state" => json_response("200 OK", state(json!([]))),
        "start" => {
            let mut steps = stream(&fixture("langgraph_slow.sse"));
            let Some(Step::Send(bytes)) = steps.first_mut() else { unreachable!() };
            bytes.truncate(5000);
            steps.push(Step::Hang);
            steps
        }
        "cancel" => json_response("202 Accepted", ""),
        other => panic!("{other}"),
    })
    .await;
    let (received, result) = play(&langgraph::agent(&server), with(Impatient)).await;
    result.unwrap();
    assert_eq!(kinds(&received).last(), Some(&"CUSTOM"));
    assert_eq!(server.requests().last().map(route), Some("cancel"));
}

#[tokio::test]
async fn heartbeats_do_not_reset_the_native_timeout() {
    // Bytes arrive, but no events.
    let start = b"data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n".to_vec();
    let steps = vec![
        Step::Send([head("200 OK", "text/event-stream"), start].concat()),
        Step::Repeat(b": still there\n\n".to_vec()),
    ];
    let server = Server::always(steps).await;
    let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
    let (received, result) = play(&agent, with(Impatient)).await;
    result.unwrap();
    assert_eq!(kinds(&received), ["RUN_STARTED", "CUSTOM"]);
}

/// Fails at the third event.
#[derive(Default)]
struct Failing(Mutex<usize>);

impl Hooks for Failing {
    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        let mut count = self.0.lock().unwrap();
        *count += 1;
        let is_third = *count == 3;
        out.push(native);
        Box::pin(async move { if is_third { Err(failed("on purpose")) } else { Ok(()) } })
    }
}

#[tokio::test]
async fn events_before_a_failed_hook_are_passed_on() {
    let server = Server::always(events(&fixture("weather_tool.sse"))).await;
    let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
    let (received, result) = play(&agent, with(Failing::default())).await;
    assert_eq!(result.unwrap_err().code(), codes::HOOK_FAILED);
    let (whole, _) = play(&agent, request()).await;
    assert_eq!(received[..], whole[..2]);
}
