//! A LangGraph Server that is told what to say. What it says was recorded from a real one.

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
    server::{Seen, Server, Step, answer},
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

pub(crate) fn json_answer(status: &str, body: impl Into<String>) -> Vec<Step> {
    answer(status, "application/json", body.into().as_bytes())
}

/// A stream that says where its run is.
pub(crate) fn stream(body: &[u8]) -> Vec<Step> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-location: /threads/t/runs/{RUN}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    vec![Step::Send([head.as_bytes(), body].concat())]
}

/// The same, but the connection breaks before the end.
fn broken(body: &[u8], at: usize) -> Vec<Step> {
    let mut whole = stream(body);
    let Some(Step::Send(bytes)) = whole.first_mut() else { unreachable!() };
    bytes.truncate(bytes.len() - body.len() + at);
    whole
}

/// What comes behind an id, as the server finds it.
fn behind(body: &str, id: &str) -> String {
    match id {
        "-1" => body.to_owned(),
        id => body.split_once(&format!("id: {id}\r\n\r\n")).expect("the id was sent").1.to_owned(),
    }
}

/// Which route of the server a request is for.
pub(crate) fn route(seen: &Seen) -> &'static str {
    let line = seen.line();
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
async fn a_thread_is_made_and_only_what_is_new_is_sent() {
    let server = Server::new(|seen| match (route(seen), seen.line().contains("/runs/")) {
        ("state", _) => json_answer("404 Not Found", r#"{"detail":"Thread not found"}"#),
        ("create", _) => json_answer("200 OK", "{}"),
        ("start", _) => stream(&fixture("langgraph_slow.sse")),
        ("run", _) => json_answer("200 OK", success()),
        other => panic!("{other:?}"),
    })
    .await;
    let mut plain = options(&server.url);
    plain.context = Some(json!({"user": "{{thread}}"}));
    let agent = LangGraph::new(plain).unwrap();
    let (told, result) = play(&agent, request()).await;
    result.unwrap();
    assert_eq!(kinds(&told).last(), Some(&"RUN_FINISHED"));
    let seen = server.seen();
    let routes: Vec<_> = seen.iter().map(route).collect();
    assert_eq!(routes, ["state", "create", "start", "run", "state"]);
    let created = seen[1].json();
    let uuid = created["thread_id"].as_str().unwrap();
    assert!(seen[2].line().contains(uuid));
    assert_eq!(created["metadata"]["agentwire_thread"], "t1");
    let body = seen[2].json();
    assert_eq!(body["assistant_id"], "slow");
    assert_eq!(body["input"]["messages"][0]["content"], "What is the weather?");
    assert_eq!(body["stream_resumable"], true);
    assert_eq!(body["on_disconnect"], "continue");
    assert_eq!(body["metadata"]["agentwire_run"], "r1");
    assert_eq!(body["context"], json!({"user": "t1"}));

    // What the thread holds is not sent again.
    let held = json!([{"type": "human", "id": "m1", "content": "What is the weather?"}]);
    let server = Server::new(move |seen| match route(seen) {
        "state" => json_answer("200 OK", state(held.clone())),
        "start" => stream(&fixture("langgraph_slow.sse")),
        _ => json_answer("200 OK", success()),
    })
    .await;
    let (_, result) = play(&self::agent(&server), request()).await;
    result.unwrap();
    assert_eq!(server.seen()[1].json()["input"]["messages"], json!([]));
    // Another user's thread of the same name is another thread.
    let other = Request { owner: Owner::new("default", "somebody"), ..request() };
    play(&self::agent(&server), other).await.1.unwrap();
    let lines: Vec<_> = server.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_ne!(lines[0], lines[lines.len() - 4]);
}

/// Cut in many places, often in the middle of a frame: nothing is lost and nothing comes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_is_joined_where_it_broke() {
    let whole = Arc::new(text("langgraph_slow.sse"));
    let copy = Arc::clone(&whole);
    // Each connection gets so many bytes further.
    let server = Server::new(move |seen| match route(seen) {
        "state" => json_answer("200 OK", state(json!([]))),
        "start" => broken(copy.as_bytes(), 5000),
        "run" => json_answer("200 OK", success()),
        "join" => {
            let rest = behind(&copy, seen.header("last-event-id").unwrap());
            match rest.len() {
                0..20_000 => stream(rest.as_bytes()),
                _ => broken(rest.as_bytes(), 20_011),
            }
        }
        other => panic!("{other}"),
    })
    .await;
    let (told, result) = play(&agent(&server), request()).await;
    result.unwrap();
    let routes: Vec<_> = server.seen().iter().map(route).collect();
    assert!(routes.iter().filter(|route| **route == "join").count() >= 3, "{routes:?}");
    let unbroken = Server::new(|seen| match route(seen) {
        "state" => json_answer("200 OK", state(json!([]))),
        "start" => stream(&fixture("langgraph_slow.sse")),
        _ => json_answer("200 OK", success()),
    })
    .await;
    assert_eq!(told, play(&agent(&unbroken), request()).await.0);
}

#[tokio::test]
async fn a_stream_that_closes_while_its_run_goes_on_is_joined() {
    let asked = AtomicUsize::new(0);
    let whole = text("langgraph_slow.sse");
    let server = Server::new(move |seen| match route(seen) {
        "state" => json_answer("200 OK", state(json!([]))),
        "start" => {
            stream(behind(&whole, "-1").split_inclusive("\r\n\r\n").take(3).collect::<String>().as_bytes())
        }
        "run" => match asked.fetch_add(1, Ordering::Relaxed) {
            0 => json_answer("200 OK", r#"{"status":"running"}"#),
            _ => json_answer("200 OK", success()),
        },
        "join" => stream(behind(&whole, seen.header("last-event-id").unwrap()).as_bytes()),
        other => panic!("{other}"),
    })
    .await;
    let (told, result) = play(&agent(&server), request()).await;
    result.unwrap();
    assert_eq!(kinds(&told).last(), Some(&"RUN_FINISHED"));
    assert!(told.len() > 20, "{}", told.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_away_truncates_the_run_and_the_run_is_stopped() {
    let server = Server::new(|seen| match route(seen) {
        "state" => json_answer("200 OK", state(json!([]))),
        "start" => broken(&fixture("langgraph_slow.sse"), 5000),
        "run" | "join" => vec![Step::Reset],
        _ => json_answer("202 Accepted", ""),
    })
    .await;
    let (told, result) = play(&agent(&server), request()).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), codes::UPSTREAM_TRUNCATED);
    assert!(!told.is_empty());
    // In the background.
    let cancelled = async {
        while !server.seen().iter().any(|seen| route(seen) == "cancel") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(240), cancelled).await.expect("the run goes on at the server");
}

async fn ending(sse: &str, state: &str, run: &str) -> (Vec<Event>, Option<Outcome>) {
    let (sse, state, run) = (fixture(sse), state.to_owned(), run.to_owned());
    let first = AtomicUsize::new(0);
    let server = Server::new(move |seen| match route(seen) {
        "state" if first.fetch_add(1, Ordering::Relaxed) == 0 => {
            json_answer("200 OK", self::state(json!([])))
        }
        "state" => json_answer("200 OK", state.clone()),
        "start" => stream(&sse),
        "run" => json_answer("200 OK", run.clone()),
        other => panic!("{other}"),
    })
    .await;
    let (told, result) = play(&agent(&server), request()).await;
    result.unwrap();
    let outcome = match told.last().map(|event| &event.body) {
        Some(Body::RunFinished(finished)) => finished.outcome.clone(),
        _ => None,
    };
    (told, outcome)
}

#[tokio::test]
async fn endings_are_told_apart_by_state_and_status() {
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
    let (told, _) = ending("langgraph_slow.sse", &state(json!([])), &failed).await;
    assert_eq!(kinds(&told).last(), Some(&"RUN_ERROR"));
}

#[tokio::test]
async fn refusals_before_the_stream_have_clear_codes() {
    for (status, wanted, said) in [
        ("404 Not Found", codes::UPSTREAM_STATUS, "knows no graph or assistant `slow`"),
        ("409 Conflict", codes::THREAD_IS_LOCKED, "another run has the thread"),
        ("422 Unprocessable Entity", codes::UPSTREAM_STATUS, "refused the run"),
        ("401 Unauthorized", codes::UPSTREAM_STATUS, "401"),
        ("500 Internal Server Error", codes::UPSTREAM_STATUS, "500"),
    ] {
        let server = Server::new(move |seen| match route(seen) {
            "state" => json_answer("200 OK", state(json!([]))),
            _ => json_answer(status, r#"{"detail":"secret"}"#),
        })
        .await;
        let failure = play(&agent(&server), request()).await.1.unwrap_err();
        assert_eq!(failure.code(), wanted, "{status}");
        assert!(failure.to_string().contains(said) && !failure.to_string().contains("secret"), "{failure}");
        assert!(failure.detail().unwrap().contains("secret"));
        // The same answer to the first question.
        let server = Server::always(json_answer(status, r#"{"detail":"secret"}"#)).await;
        let failure = play(&agent(&server), request()).await.1.unwrap_err();
        assert_eq!(failure.code(), codes::UPSTREAM_STATUS, "{status}");
    }
    let server = Server::always(json_answer("200 OK", "[]")).await;
    let failure = play(&agent(&server), request()).await.1.unwrap_err();
    assert_eq!(failure.code(), codes::UPSTREAM_MALFORMED);
}

#[tokio::test]
async fn stopping_a_run_cancels_it_at_the_server() {
    let server = Server::new(|seen| match route(seen) {
        "state" => json_answer("200 OK", state(json!([]))),
        "start" => [broken(&fixture("langgraph_slow.sse"), 5000), vec![Step::Hang]].concat(),
        "runs" => json_answer(
            "200 OK",
            json!([{"run_id": "other", "metadata": {}}, {"run_id": "mine", "metadata": {"agentwire_run": "r1"}}])
                .to_string(),
        ),
        _ => json_answer("202 Accepted", ""),
    })
    .await;
    let agent = agent(&server);
    let (sink, mut told) = EventSink::new(1);
    let task = tokio::spawn(agent.run(request(), sink));
    told.recv().await.unwrap();
    task.abort();
    task.await.unwrap_err();
    agent.stop(request()).await;
    let cancelled = |run: &str| format!("/runs/{run}/cancel?wait=false&action=interrupt");
    assert!(server.seen().last().unwrap().line().ends_with(&cancelled(RUN)));
    // A gateway that does not know what the server calls it finds out.
    self::agent(&server).stop(request()).await;
    assert!(server.seen().last().unwrap().line().ends_with(&cancelled("mine")));
}

#[tokio::test]
async fn a_run_of_a_gateway_that_died_is_played_again_from_its_beginning() {
    let whole = text("langgraph_slow.sse");
    let server = Server::new(move |seen| match route(seen) {
        "state" => json_answer("200 OK", state(json!([]))),
        "start" => stream(whole.as_bytes()),
        "runs" => {
            json_answer("200 OK", json!([{"run_id": RUN, "metadata": {"agentwire_run": "r1"}}]).to_string())
        }
        "join" => stream(behind(&whole, seen.header("last-event-id").unwrap()).as_bytes()),
        _ => json_answer("200 OK", success()),
    })
    .await;
    let (first, result) = play(&agent(&server), request()).await;
    result.unwrap();
    let (sink, mut told) = EventSink::new(10_000);
    agent(&server).attach(request(), sink).unwrap().await.unwrap();
    let mut again = Vec::new();
    while let Some(event) = told.recv().await {
        again.push(event);
    }
    assert_eq!(again, first);
    assert_eq!(server.seen().iter().filter(|seen| route(seen) == "start").count(), 1);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: LangGraphOptions| LangGraph::new(options).unwrap_err().to_string();
    let good = options("http://x");
    assert!(refused(LangGraphOptions { graph: String::new(), ..good.clone() }).contains("`graph`"));
    let error = refused(LangGraphOptions { state_keys: vec!["tool".into()], ..good.clone() });
    assert!(error.starts_with("unknown state key `tool`"), "{error}");
    let error = refused(LangGraphOptions { options: vec!["steps=all".into()], ..good.clone() });
    assert!(error.contains("`all`"), "{error}");
    assert!(refused(LangGraphOptions { context: Some(json!("{{x}}")), ..good }).contains("unknown name `x`"));
}
