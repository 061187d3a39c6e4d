//! Hook servers: changes, refusals, the output record, and every kind of failure.

use std::{sync::Arc, time::Duration};

use agentwire_core::event::{Body, Event};
use agentwire_gateway::{
    agent::Agent,
    codes,
    hooks::{Action, ConfiguredHooks, Endpoint, HookOptions, OnFailure, RuleOptions},
};
use serde_json::{Value, json};

use super::{
    code_of,
    server::{self, ReceivedRequest, Step, head, response},
    text,
};
use crate::support::*;

/// A timeout that no working server reaches.
pub(super) const LONG: Duration = WAIT_LIMIT;

pub(super) fn endpoint(url: &str, on_failure: OnFailure, timeout: Duration) -> Endpoint {
    let headers = vec![("x-key".into(), "k".into())];
    Endpoint { url: format!("{url}/hook"), headers, secret: None, timeout, on_failure }
}

pub(super) async fn gateway(agent: Arc<dyn Agent>, options: HookOptions) -> Server {
    let hooks = ConfiguredHooks::new(options).expect("good options");
    let wire = move |builder: agentwire_gateway::Builder| {
        let builder = match hooks.lock() {
            Some(lock) => builder.lock(lock),
            None => builder,
        };
        builder.hooks(move |run| hooks.for_run(run))
    };
    plan(agent).wire(wire).on_memory().await
}

pub(super) fn puppet() -> Arc<Puppet> {
    Puppet::eager(|input| {
        let mut events = vec![Event::new(Body::StateSnapshot { snapshot: json!({"n": 1}).into() })];
        events.extend(talk(input, 2));
        events
    })
}

pub(super) fn ok(body: &Value) -> Vec<Step> {
    response("200 OK", "application/json", body.to_string().as_bytes())
}

/// Faults of a server: name, script and the timeout of the hook.
pub(super) fn faults() -> Vec<(&'static str, Vec<Step>, Duration)> {
    let endless = vec![Step::Send(head("200 OK", "application/json")), Step::Repeat(vec![b' '; 1 << 16])];
    vec![
        ("500", response("500 Internal Server Error", "text/plain", b"oops"), LONG),
        ("a redirect", response("307 Temporary Redirect", "text/plain", b""), LONG),
        ("garbage", response("200 OK", "application/json", b"<html>"), LONG),
        ("no object", response("200 OK", "application/json", b"[1]"), LONG),
        ("unknown keys", ok(&json!({"error": "x"})), LONG),
        (
            "half a response",
            vec![Step::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_vec())],
            LONG,
        ),
        ("no HTTP", vec![Step::Send(b"hello\r\n\r\n".to_vec())], LONG),
        ("a hang-up", vec![Step::Reset], LONG),
        ("too much", endless, LONG),
        ("a hang", vec![Step::Hang], Duration::from_millis(100)),
        (
            "a hang within",
            vec![Step::Send(head("200 OK", "application/json")), Step::Hang],
            Duration::from_millis(100),
        ),
    ]
}

#[tokio::test]
async fn the_input_hook_changes_refuses_or_keeps_the_input() {
    for (steps, expected) in [
        (ok(&json!({})), Ok("hello")),
        (ok(&json!(null)), Ok("hello")),
        (response("204 No Content", "text/plain", b""), Ok("hello")),
        (ok(&json!({"refuse": null, "input": null})), Err(codes::HOOK_FAILED)),
        (ok(&json!({"refuse": "not today"})), Err(codes::HOOK_REFUSED)),
        (ok(&json!({"refuse": {"why": 1}})), Err(codes::HOOK_FAILED)),
        (ok(&json!({"input": {"messages": 3}})), Err(codes::HOOK_FAILED)),
    ] {
        let server = server::Server::always(steps).await;
        let agent = puppet();
        let input = Some(endpoint(&server.url, OnFailure::Closed, LONG));
        let gateway = gateway(agent.clone(), HookOptions { input, ..HookOptions::default() }).await;
        let frames = gateway.run_to_end("t", "r", "hello").await;
        assert_valid(&frames);
        match expected {
            Ok(_) => assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED")),
            Err(code) => {
                assert_eq!(code_of(&frames), code);
                assert_eq!(agent.calls(), 0);
            }
        }
        let requests = server.requests();
        assert_eq!(
            (requests.len(), requests[0].line(), requests[0].header("x-key")),
            (1, "POST /hook", Some("k"))
        );
        let body = requests[0].json();
        assert_eq!(body["hook"], "input");
        assert_eq!(
            (&body["agent"], &body["user"], &body["threadId"], &body["runId"]),
            (&json!("demo"), &json!("default-user"), &json!("t"), &json!("r"))
        );
        assert_eq!(body["input"]["messages"][0]["content"], "hello");
    }
    let server = server::Server::new(|request: &ReceivedRequest| {
        let mut input = request.json()["input"].clone();
        input["messages"][0]["content"] = json!("changed");
        ok(&json!({ "input": input }))
    })
    .await;
    let agent = puppet();
    let input = Some(endpoint(&server.url, OnFailure::Closed, LONG));
    let gateway = gateway(agent.clone(), HookOptions { input, ..HookOptions::default() }).await;
    assert_valid(&gateway.run_to_end("t", "r", "hello").await);
    let message = format!("{:?}", agent.last_request().input.messages[0]);
    assert!(message.contains("changed"), "{message}");
}

#[tokio::test]
async fn the_text_of_a_refusal_reaches_the_client() {
    let server = server::Server::always(ok(&json!({"refuse": "not today"}))).await;
    // `OnFailure::Open` concerns failures, not refusals.
    let input = Some(endpoint(&server.url, OnFailure::Open, LONG));
    let gateway = gateway(puppet(), HookOptions { input, ..HookOptions::default() }).await;
    let frames = gateway.run_to_end("t", "r", "hello").await;
    assert_eq!(frames.last().expect("an ending").json()["message"], "not today");
}

#[tokio::test]
async fn on_failure_decides_if_a_failed_input_or_state_hook_ends_the_run() {
    for (name, steps, timeout) in faults() {
        for on_failure in [OnFailure::Open, OnFailure::Closed] {
            for hook in ["input", "state"] {
                let case = format!("{hook}: {name}, {on_failure:?}");
                let server = server::Server::always(steps.clone()).await;
                let endpoint = Some(endpoint(&server.url, on_failure, timeout));
                let options = match hook {
                    "input" => HookOptions { input: endpoint, ..HookOptions::default() },
                    _ => HookOptions { state: endpoint, ..HookOptions::default() },
                };
                let gateway = gateway(puppet(), options).await;
                let frames = gateway.run_to_end("t", "r", "hello").await;
                assert_valid(&frames);
                match on_failure {
                    OnFailure::Open => {
                        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{case}");
                        assert_eq!(text(&frames), "w0 w1 ", "{case}");
                    }
                    OnFailure::Closed => {
                        assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{case}");
                        let message = frames.last().expect("an ending").json()["message"].to_string();
                        assert!(
                            !message.contains(&server.url) && !message.contains("oops"),
                            "{case}: {message}"
                        );
                    }
                }
                // A short timeout may expire before the server has read the request.
                let least = usize::from(timeout == LONG);
                assert!((least..=1).contains(&server.requests().len()), "{case}: one request");
            }
        }
    }
}

#[tokio::test]
async fn an_unreachable_server_is_a_failure() {
    // A bound port without a listener: no other process can get it.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = socket.local_addr().expect("bound");
    let input = Some(endpoint(&format!("http://{address}"), OnFailure::Closed, LONG));
    let gateway = gateway(puppet(), HookOptions { input, ..HookOptions::default() }).await;
    assert_eq!(code_of(&gateway.run_to_end("t", "r", "hello").await), codes::HOOK_FAILED);
}

/// Servers may close idle connections at any time: here the second request on a connection gets no response.
#[tokio::test]
async fn an_idle_connection_is_not_reused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let served = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            connections.spawn(async move {
                server::receive(&mut stream).await.expect("a request");
                let kept =
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                tokio::io::AsyncWriteExt::write_all(&mut stream, kept).await.expect("an answer");
                let _ = server::receive(&mut stream).await;
            });
        }
    });
    let input = Some(endpoint(&url, OnFailure::Closed, LONG));
    let gateway = gateway(puppet(), HookOptions { input, ..HookOptions::default() }).await;
    for run in ["r1", "r2"] {
        let frames = gateway.run_to_end("t", run, "hello").await;
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{}", code_of(&frames));
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
    served.abort();
}

#[tokio::test]
async fn the_state_hook_changes_the_final_state_once() {
    let server = server::Server::new(|request: &ReceivedRequest| {
        let mut state = request.json()["state"].clone();
        state["checked"] = json!(true);
        ok(&json!({ "state": state }))
    })
    .await;
    let state = Some(endpoint(&server.url, OnFailure::Closed, LONG));
    let gateway = gateway(puppet(), HookOptions { state, ..HookOptions::default() }).await;
    let frames = gateway.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    let event = frames[frames.len() - 2].json();
    assert_eq!(
        (&event["type"], &event["snapshot"]),
        (&json!("STATE_SNAPSHOT"), &json!({"n": 1, "checked": true}))
    );
    assert_eq!(server.requests().len(), 1);
    assert_eq!(gateway.json("/state_snapshot/t").await.1["snapshot"]["checked"], true);
}

/// All events that a server received, in order.
fn recorded(server: &server::Server) -> Vec<Value> {
    let batches = server.requests().into_iter().map(|request| request.json());
    batches.flat_map(|batch| batch["events"].as_array().expect("events").clone()).collect()
}

#[tokio::test]
async fn the_output_record_has_the_events_of_the_log() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let server = server::Server::always(response("200 OK", "text/plain", b"not read")).await;
        let output_record = Some(endpoint(&server.url, on_failure, LONG));
        let agent = Puppet::eager(|input| talk(input, 2000));
        let gateway = gateway(agent, HookOptions { output_record, ..HookOptions::default() }).await;
        let frames = gateway.run_to_end("t", "r", "hello").await;
        assert_valid(&frames);
        let events: Vec<_> = frames.iter().map(Frame::json).collect();
        wait_until("all events are recorded", async || recorded(&server).len() == events.len()).await;
        assert!(recorded(&server) == events, "{on_failure:?}");
        let batches = server.requests().len();
        assert!(batches < events.len() / 2, "{batches} requests for {} events", events.len());
        assert_eq!(server.requests()[0].json()["runId"], "r");
    }
}

#[tokio::test]
async fn on_failure_decides_if_a_failed_record_ends_the_run() {
    let ignored = ["garbage", "no object", "unknown keys", "too much", "a hang within"];
    for (name, steps, timeout) in faults() {
        // The body of a recorder's response is not read.
        if ignored.contains(&name) || name == "half a response" {
            continue;
        }
        for on_failure in [OnFailure::Open, OnFailure::Closed] {
            let case = format!("{name}, {on_failure:?}");
            let server = server::Server::always(steps.clone()).await;
            let output_record = Some(endpoint(&server.url, on_failure, timeout));
            let gateway = gateway(puppet(), HookOptions { output_record, ..HookOptions::default() }).await;
            let frames = gateway.run_to_end("t", "r", "hello").await;
            assert_valid(&frames);
            match on_failure {
                OnFailure::Open => {
                    assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{case}");
                    assert_eq!(text(&frames), "w0 w1 ", "{case}");
                }
                OnFailure::Closed => assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{case}"),
            }
            assert_eq!(gateway.follow("/runs/r/stream").await.rest().await, frames, "{case}");
        }
    }
}

#[tokio::test]
async fn with_on_failure_closed_a_finished_run_is_recorded_completely() {
    let server = server::Server::always(response("200 OK", "text/plain", b"")).await;
    let output_record = Some(endpoint(&server.url, OnFailure::Closed, LONG));
    let gateway = gateway(puppet(), HookOptions { output_record, ..HookOptions::default() }).await;
    for run in ["r1", "r2", "r3"] {
        let before = recorded(&server).len();
        let frames = gateway.run_to_end("t", run, "hello").await;
        // Without a wait: the record is complete before the client sees the end.
        assert_eq!(recorded(&server).len() - before, frames.len());
    }
}

#[tokio::test]
async fn a_hanging_recorder_neither_delays_the_run_nor_fills_memory() {
    let server = server::Server::always(vec![Step::Hang]).await;
    let output_record = Some(endpoint(&server.url, OnFailure::Open, LONG));
    // Far more than the queue holds.
    let agent = Puppet::eager(|input| {
        let word = "x".repeat(64 << 10);
        let mut events = vec![start(&input.run)];
        events.extend((0..100).map(|_| delta(&input.run, &word)));
        events
    });
    let gateway = gateway(agent, HookOptions { output_record, ..HookOptions::default() }).await;
    let frames = gateway.run_to_end("t", "r", "hello").await;
    assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{}", code_of(&frames));
    assert_eq!(text(&frames).len(), 100 * (64 << 10));
}

#[tokio::test]
async fn the_next_batch_counts_the_lost_events() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let server = server::Server::new(move |_: &ReceivedRequest| {
        match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => response("503 Service Unavailable", "text/plain", b""),
            _ => response("200 OK", "text/plain", b""),
        }
    })
    .await;
    let output_record = Some(endpoint(&server.url, OnFailure::Open, LONG));
    let agent = Puppet::new(|input| talk(input, 2));
    let gateway = gateway(agent.clone(), HookOptions { output_record, ..HookOptions::default() }).await;
    let mut stream = gateway.run("t", "r", "hello").await;
    wait_until("the first batch", async || server.requests().len() == 1).await;
    let lost = server.requests()[0].json()["events"].as_array().expect("events").len();
    agent.allow(100);
    stream.rest().await;
    wait_until("the next batch", async || server.requests().len() >= 2).await;
    assert_eq!(server.requests()[1].json()["lost"], lost);
}

#[tokio::test]
async fn rules_apply_before_the_output_record() {
    let server = server::Server::always(response("200 OK", "text/plain", b"")).await;
    let rule = RuleOptions {
        event: Some("TEXT_MESSAGE_CONTENT".into()),
        pointer: Some("/delta".into()),
        ..RuleOptions::new(Action::Redact { with: "-".into() })
    };
    let output_record = Some(endpoint(&server.url, OnFailure::Closed, LONG));
    let options = HookOptions { rules: vec![rule], output_record, ..HookOptions::default() };
    let gateway = gateway(puppet(), options).await;
    let frames = gateway.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(text(&frames), "--");
    let record = Value::from(recorded(&server)).to_string();
    assert!(record.contains(r#""delta":"-""#) && !record.contains("w0"), "{record}");
}

#[test]
fn invalid_options_are_rejected() {
    for url in ["127.0.0.1:1", "ftp://user:password@x/", "http://"] {
        let input = Some(Endpoint {
            url: url.into(),
            headers: vec![],
            secret: None,
            timeout: LONG,
            on_failure: OnFailure::Open,
        });
        let hooks = ConfiguredHooks::new(HookOptions { input, ..HookOptions::default() });
        let message = hooks.expect_err(url).to_string();
        assert!(message.contains("not a URL") && !message.contains("password"), "{message}");
    }
    let empty =
        Endpoint { secret: Some(String::new()), ..endpoint("http://127.0.0.1:1", OnFailure::Open, LONG) };
    let hooks = ConfiguredHooks::new(HookOptions { lock: Some(empty), ..HookOptions::default() });
    assert!(hooks.is_err_and(|error| error.to_string().contains("secret")));
    let rule = RuleOptions { event: Some("NOPE".into()), ..RuleOptions::new(Action::Drop) };
    let hooks = ConfiguredHooks::new(HookOptions { rules: vec![rule], ..HookOptions::default() });
    assert!(hooks.is_err_and(|error| error.to_string() == "rule 1: no type of event is called `NOPE`"));
}
