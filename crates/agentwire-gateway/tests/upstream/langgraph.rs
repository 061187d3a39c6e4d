//! Upstream `langgraph` against a scripted server; its responses are recordings of a real one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agentwire_core::event::{Body, Event, Outcome};
use agentwire_gateway::{
    agent::{Agent, EventSink, Request},
    codes,
    upstream::{LangGraph, LangGraphOptions},
};
use agentwire_store::Owner;
use serde_json::{Value, json};

use super::{
    fixture, kinds, play, request,
    server::{ReceivedRequest, Server, Step, response},
};

const RUN: &str = "01a1e0b9-9b24-754c-ae5a-fd79d60dfd94";

fn options(url: &str) -> LangGraphOptions {
    LangGraphOptions { url: url.into(), graph: "slow".into(), ..LangGraphOptions::default() }
}

pub(crate) fn agent(server: &Server) -> LangGraph {
    LangGraph::new(options(&server.url)).unwrap()
}

fn text(name: &str) -> String {
    String::from_utf8(fixture(name)).unwrap()
}

pub(crate) fn json_response(status: &str, body: impl Into<String>) -> Vec<Step> {
    response(status, "application/json", body.into().as_bytes())
}

/// A stream whose `content-location` names the run.
pub(crate) fn stream(body: &[u8]) -> Vec<Step> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-location: /threads/t/runs/{RUN}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    vec![Step::Send([head.as_bytes(), body].concat())]
}

/// The same stream, cut off at an offset of the body.
fn broken(body: &[u8], at: usize) -> Vec<Step> {
    let mut whole = stream(body);
    let Some(Step::Send(bytes)) = whole.first_mut() else { unreachable!() };
    bytes.truncate(bytes.len() - body.len() + at);
    whole
}

/// The frames after an event id, as the server resumes a stream.
fn after(body: &str, id: &str) -> String {
    match id {
        "-1" => body.to_owned(),
        id => body.split_once(&format!("id: {id}\r\n\r\n")).expect("the id was sent").1.to_owned(),
    }
}

/// The route of the server that a request uses.
pub(crate) fn route(request: &ReceivedRequest) -> &'static str {
    let line = request.line();
    let (_, target) = line.split_once(' ').unwrap();
    let path = target.split('?').next().unwrap();
    match path.split('/').skip(1).collect::<Vec<_>>()[..] {
        ["threads"] => "create",
        ["threads", _, "state"] => "state",
        ["threads", _, "runs"] => "runs",
        ["threads", _, "runs", "stream"] => "start",
        ["threads", _, "runs", _] => "run",
        ["threads", _, "runs", _, "stream"] => "join",
        ["threads", _, "runs", _, "cancel"] => "cancel",
        _ => panic!("{line}"),
    }
}

pub(crate) fn success() -> String {
    json!({"run_id": RUN, "status": "success"}).to_string()
}

pub(crate) fn state(messages: Value) -> String {
    json!({"values": {"messages": messages}, "next": [], "tasks": []}).to_string()
}

#[tokio::test]
async fn creates_the_thread_and_sends_only_new_messages() {
    let server = Server::new(|request| match (route(request), request.line().contains("/runs/")) {
        ("state", _) => json_response("404 Not Found", r#"{"detail":"Thread not found"}"#),
        ("create", _) => json_response("200 OK", "{}"),
        ("start", _) => stream(&fixture("langgraph_slow.sse")),
        ("run", _) => json_response("200 OK", success()),
        other => panic!("{other:?}"),
    })
    .await;
    let mut plain = options(&server.url);
    plain.context = Some(json!({"user": "{{thread}}"}));
    let agent = LangGraph::new(plain).unwrap();
    let (received, result) = play(&agent, request()).await;
    result.unwrap();
    assert_eq!(kinds(&received).last(), Some(&"RUN_FINISHED"));
    let requests = server.requests();
    let routes: Vec<_> = requests.iter().map(route).collect();
    assert_eq!(routes, ["state", "create", "start", "run", "state"]);
    let created = requests[1].json();
    let uuid = created["thread_id"].as_str().unwrap();
    assert!(requests[2].line().contains(uuid));
    assert_eq!(created["metadata"]["agentwire_thread"], "t1");
    let body = requests[2].json();
    assert_eq!(body["assistant_id"], "slow");
    assert_eq!(body["input"]["messages"][0]["content"], "What is the weather?");
    assert_eq!(body["stream_resumable"], true);
    assert_eq!(body["on_disconnect"], "continue");
    assert_eq!(body["metadata"]["agentwire_run"], "r1");
    assert_eq!(body["context"], json!({"user": "t1"}));

    // Messages that the thread has are not sent again.
    let held = json!([{"type": "human", "id": "m1", "content": "What is the weather?"}]);
    let server = Server::new(move |request| match route(request) {
        "state" => json_response("200 OK", state(held.clone())),
        "start" => stream(&fixture("langgraph_slow.sse")),
        _ => json_response("200 OK", success()),
    })
    .await;
    let (_, result) = play(&self::agent(&server), request()).await;
    result.unwrap();
    assert_eq!(server.requests()[1].json()["input"]["messages"], json!([]));
    // Another user's thread of the same name is another thread.
    let other = Request { owner: Owner::new("default", "ada", "a"), ..request() };
    play(&self::agent(&server), other).await.1.unwrap();
    let lines: Vec<_> = server.requests().iter().map(|request| request.line().to_owned()).collect();
    assert_ne!(lines[0], lines[lines.len() - 4]);
}

/// Cut in many places, often within a frame: no event is lost or repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_stream_is_rejoined_at_its_position() {
    let whole = Arc::new(text("langgraph_slow.sse"));
    let copy = Arc::clone(&whole);
    // Each connection sends 20,011 bytes more.
    let server = Server::new(move |request| match route(request) {
        "state" => json_response("200 OK", state(json!([]))),
        "start" => broken(copy.as_bytes(), 5000),
        "run" => json_response("200 OK", success()),
        "join" => {
            let rest = after(&copy, request.header("last-event-id").unwrap());
            match rest.len() {
                0..20_000 => stream(rest.as_bytes()),
                _ => broken(rest.as_bytes(), 20_011),
            }
        }
        other => panic!("{other}"),
    })
    .await;
    let (received, result) = play(&agent(&server), request()).await;
    result.unwrap();
    let routes: Vec<_> = server.requests().iter().map(route).collect();
    assert!(routes.iter().filter(|route| **route == "join").count() >= 3, "{routes:?}");
    let unbroken = Server::new(|request| match route(request) {
        "state" => json_response("200 OK", state(json!([]))),
        "start" => stream(&fixture("langgraph_slow.sse")),
        _ => json_response("200 OK", success()),
    })
    .await;
    assert_eq!(received, play(&agent(&unbroken), request()).await.0);
}

#[tokio::test]
async fn a_stream_that_closes_before_its_run_ends_is_rejoined() {
    let status_requests = AtomicUsize::new(0);
    let whole = text("langgraph_slow.sse");
    let server = Server::new(move |request| match route(request) {
        "state" => json_response("200 OK", state(json!([]))),
        "start" => {
            stream(after(&whole, "-1").split_inclusive("\r\n\r\n").take(3).collect::<String>().as_bytes())
        }
        "run" => match status_requests.fetch_add(1, Ordering::Relaxed) {
            0 => json_response("200 OK", r#"{"status":"running"}"#),
            _ => json_response("200 OK", success()),
        },
        "join" => stream(after(&whole, request.header("last-event-id").unwrap()).as_bytes()),
        other => panic!("{other}"),
    })
    .await;
    let (received, result) = play(&agent(&server), request()).await;
    result.unwrap();
    assert_eq!(kinds(&received).last(), Some(&"RUN_FINISHED"));
    assert!(received.len() > 20, "{}", received.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_truncates_the_run_and_cancels_it() {
    let server = Server::new(|request| match route(request) {
        "state" => json_response("200 OK", state(json!([]))),
        "start" => broken(&fixture("langgraph_slow.sse"), 5000),
        "run" | "join" => vec![Step::Reset],
        _ => json_response("202 Accepted", ""),
    })
    .await;
    let (received, result) = play(&agent(&server), request()).await;
    let error = result.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_TRUNCATED);
    assert!(!received.is_empty());
    // The run is cancelled in the background.
    let cancelled = async {
        while !server.requests().iter().any(|request| route(request) == "cancel") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(240), cancelled)
        .await
        .expect("the run is cancelled at the server");
}

async fn ending(sse: &str, state: &str, run: &str) -> (Vec<Event>, Option<Outcome>) {
    let (sse, state, run) = (fixture(sse), state.to_owned(), run.to_owned());
    let first = AtomicUsize::new(0);
    let server = Server::new(move |request| match route(request) {
        "state" if first.fetch_add(1, Ordering::Relaxed) == 0 => {
            json_response("200 OK", self::state(json!([])))
        }
        "state" => json_response("200 OK", state.clone()),
        "start" => stream(&sse),
        "run" => json_response("200 OK", run.clone()),
        other => panic!("{other}"),
    })
    .await;
    let (received, result) = play(&agent(&server), request()).await;
    result.unwrap();
    let outcome = match received.last().map(|event| &event.body) {
        Some(Body::RunFinished(finished)) => finished.outcome.clone(),
        _ => None,
    };
    (received, outcome)
}

#[tokio::test]
async fn outcomes_follow_from_state_and_status() {
    let interrupted = json!({"status": "interrupted"}).to_string();
    let (_, outcome) = ending("langgraph_hitl.sse", &text("langgraph_hitl_state.json"), &interrupted).await;
    assert!(matches!(outcome, Some(Outcome::Interrupt { interrupts }) if interrupts.len() == 1));
    let (_, outcome) = ending(
        "langgraph_cancel.sse",
        &text("langgraph_cancel_state.json"),
        &text("langgraph_cancel_run.json"),
    )
    .await;
    assert!(matches!(outcome, Some(Outcome::Cancelled)), "{outcome:?}");
    let (_, outcome) = ending("langgraph_slow.sse", &text("langgraph_plain_state.json"), &success()).await;
    assert!(matches!(outcome, None | Some(Outcome::Success { .. })), "{outcome:?}");
    let failed = json!({"status": "error"}).to_string();
    let (received, _) = ending("langgraph_slow.sse", &state(json!([])), &failed).await;
    assert_eq!(kinds(&received).last(), Some(&"RUN_ERROR"));
}

#[tokio::test]
async fn errors_before_the_stream_have_stable_codes() {
    for (status, wanted, text) in [
        ("404 Not Found", codes::UPSTREAM_STATUS, "knows no graph or assistant `slow`"),
        ("409 Conflict", codes::THREAD_IS_LOCKED, "another run has the thread"),
        ("422 Unprocessable Entity", codes::UPSTREAM_STATUS, "refused the run"),
        ("401 Unauthorized", codes::UPSTREAM_STATUS, "401"),
        ("500 Internal Server Error", codes::UPSTREAM_STATUS, "500"),
    ] {
        let server = Server::new(move |request| match route(request) {
            "state" => json_response("200 OK", state(json!([]))),
            _ => json_response(status, r#"{"detail":"secret"}"#),
        })
        .await;
        let error = play(&agent(&server), request()).await.1.unwrap_err();
        assert_eq!(error.code(), wanted, "{status}");
        assert!(error.to_string().contains(text) && !error.to_string().contains("secret"), "{error}");
        assert!(error.detail().unwrap().contains("secret"));
        // The same response to the first request.
        let server = Server::always(json_response(status, r#"{"detail":"secret"}"#)).await;
        let error = play(&agent(&server), request()).await.1.unwrap_err();
        assert_eq!(error.code(), codes::UPSTREAM_STATUS, "{status}");
    }
    let server = Server::always(json_response("200 OK", "[]")).await;
    let error = play(&agent(&server), request()).await.1.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_MALFORMED);
}

#[tokio::test]
async fn stopping_a_run_cancels_it_at_the_server() {
    let server = Server::new(|request| match route(request) {
        "state" => json_response("200 OK", state(json!([]))),
        "start" => [broken(&fixture("langgraph_slow.sse"), 5000), vec![Step::Hang]].concat(),
        "runs" => json_response(
            "200 OK",
            json!([{"run_id": "other", "metadata": {}}, {"run_id": "mine", "metadata": {"agentwire_run": "r1"}}])
                .to_string(),
        ),
        _ => json_response("202 Accepted", ""),
    })
    .await;
    let agent = agent(&server);
    let (sink, mut received) = EventSink::new(1);
    let task = tokio::spawn(agent.run(request(), sink));
    received.recv().await.unwrap();
    task.abort();
    task.await.unwrap_err();
    agent.stop(request()).await;
    let cancelled = |run: &str| format!("/runs/{run}/cancel?wait=false&action=interrupt");
    assert!(server.requests().last().unwrap().line().ends_with(&cancelled(RUN)));
    // A gateway that does not know the server's run id looks it up.
    self::agent(&server).stop(request()).await;
    assert!(server.requests().last().unwrap().line().ends_with(&cancelled("mine")));
}

#[tokio::test]
async fn attach_replays_a_run_from_its_start() {
    let whole = text("langgraph_slow.sse");
    let server = Server::new(move |request| match route(request) {
        "state" => json_response("200 OK", state(json!([]))),
        "start" => stream(whole.as_bytes()),
        "runs" => {
            json_response("200 OK", json!([{"run_id": RUN, "metadata": {"agentwire_run": "r1"}}]).to_string())
        }
        "join" => stream(after(&whole, request.header("last-event-id").unwrap()).as_bytes()),
        _ => json_response("200 OK", success()),
    })
    .await;
    let (first, result) = play(&agent(&server), request()).await;
    result.unwrap();
    let (sink, mut received) = EventSink::new(10_000);
    agent(&server).attach(request(), sink).unwrap().await.unwrap();
    let mut replayed = Vec::new();
    while let Some(event) = received.recv().await {
        replayed.push(event);
    }
    assert_eq!(replayed, first);
    assert_eq!(server.requests().iter().filter(|request| route(request) == "start").count(), 1);
}

#[test]
fn invalid_options_are_rejected() {
    let refused = |options: LangGraphOptions| LangGraph::new(options).unwrap_err().to_string();
    let good = options("http://x");
    assert!(refused(LangGraphOptions { graph: String::new(), ..good.clone() }).contains("`graph`"));
    let error = refused(LangGraphOptions { state_keys: vec!["tool".into()], ..good.clone() });
    assert!(error.starts_with("unknown state key `tool`"), "{error}");
    let error = refused(LangGraphOptions { options: vec!["steps=all".into()], ..good.clone() });
    assert!(error.contains("`all`"), "{error}");
    assert!(refused(LangGraphOptions { context: Some(json!("{{x}}")), ..good }).contains("unknown name `x`"));
}
