//! Servers that are asked by hooks: good ones, and everything that can be wrong with one.

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
    server::{self, Seen, Step, answer, head},
    text,
};
use crate::support::*;

/// Long enough for every answer that comes at all.
const PATIENT: Duration = PATIENCE;

fn endpoint(url: &str, on_failure: OnFailure, timeout: Duration) -> Endpoint {
    let headers = vec![("x-key".into(), "k".into())];
    Endpoint { url: format!("{url}/hook"), headers, timeout, on_failure }
}

async fn gateway(agent: Arc<dyn Agent>, options: HookOptions) -> Server {
    let hooks = ConfiguredHooks::new(options).expect("good options");
    plan(agent).wire(move |builder| builder.hooks(move |run| hooks.for_run(run))).on_memory().await
}

fn puppet() -> Arc<Puppet> {
    Puppet::eager(|input| {
        let mut events = vec![Event::new(Body::StateSnapshot { snapshot: json!({"n": 1}).into() })];
        events.extend(talk(input, 2));
        events
    })
}

fn ok(body: &Value) -> Vec<Step> {
    answer("200 OK", "application/json", body.to_string().as_bytes())
}

/// What is wrong with a server, and how long it gets.
fn faults() -> Vec<(&'static str, Vec<Step>, Duration)> {
    let endless = vec![Step::Send(head("200 OK", "application/json")), Step::Repeat(vec![b' '; 1 << 16])];
    vec![
        ("500", answer("500 Internal Server Error", "text/plain", b"oops"), PATIENT),
        ("a redirect", answer("307 Temporary Redirect", "text/plain", b""), PATIENT),
        ("garbage", answer("200 OK", "application/json", b"<html>"), PATIENT),
        ("no object", answer("200 OK", "application/json", b"[1]"), PATIENT),
        ("unknown keys", ok(&json!({"error": "x"})), PATIENT),
        (
            "half an answer",
            vec![Step::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_vec())],
            PATIENT,
        ),
        ("no HTTP", vec![Step::Send(b"hello\r\n\r\n".to_vec())], PATIENT),
        ("a hang-up", vec![Step::Reset], PATIENT),
        ("too much", endless, PATIENT),
        ("a hang", vec![Step::Hang], Duration::from_millis(100)),
        (
            "a hang within",
            vec![Step::Send(head("200 OK", "application/json")), Step::Hang],
            Duration::from_millis(100),
        ),
    ]
}

#[tokio::test]
async fn the_input_hook_changes_refuses_or_leaves_the_input() {
    for (answer, expected) in [
        (ok(&json!({})), Ok("hello")),
        (ok(&json!(null)), Ok("hello")),
        (answer("204 No Content", "text/plain", b""), Ok("hello")),
        (ok(&json!({"refuse": null, "input": null})), Err(codes::HOOK_FAILED)),
        (ok(&json!({"refuse": "not today"})), Err(codes::HOOK_REFUSED)),
        (ok(&json!({"refuse": {"why": 1}})), Err(codes::HOOK_FAILED)),
        (ok(&json!({"input": {"messages": 3}})), Err(codes::HOOK_FAILED)),
    ] {
        let server = server::Server::always(answer).await;
        let agent = puppet();
        let input = Some(endpoint(&server.url, OnFailure::Closed, PATIENT));
        let gateway = gateway(agent.clone(), HookOptions { input, ..HookOptions::default() }).await;
        let frames = gateway.whole("t", "r", "hello").await;
        valid(&frames);
        match expected {
            Ok(_) => assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED")),
            Err(code) => {
                assert_eq!(code_of(&frames), code);
                assert_eq!(agent.calls(), 0);
            }
        }
        let seen = server.seen();
        assert_eq!((seen.len(), seen[0].line(), seen[0].header("x-key")), (1, "POST /hook", Some("k")));
        let body = seen[0].json();
        assert_eq!(body["hook"], "input");
        assert_eq!(
            (&body["agent"], &body["user"], &body["threadId"], &body["runId"]),
            (&json!("demo"), &json!("default-user"), &json!("t"), &json!("r"))
        );
        assert_eq!(body["input"]["messages"][0]["content"], "hello");
    }
    let server = server::Server::new(|seen: &Seen| {
        let mut input = seen.json()["input"].clone();
        input["messages"][0]["content"] = json!("changed");
        ok(&json!({ "input": input }))
    })
    .await;
    let agent = puppet();
    let input = Some(endpoint(&server.url, OnFailure::Closed, PATIENT));
    let gateway = gateway(agent.clone(), HookOptions { input, ..HookOptions::default() }).await;
    valid(&gateway.whole("t", "r", "hello").await);
    let asked = format!("{:?}", agent.last_request().input.messages[0]);
    assert!(asked.contains("changed"), "{asked}");
}

#[tokio::test]
async fn the_words_of_a_refusal_reach_the_client() {
    let server = server::Server::always(ok(&json!({"refuse": "not today"}))).await;
    // Whether the server may fail has nothing to do with what it says.
    let input = Some(endpoint(&server.url, OnFailure::Open, PATIENT));
    let gateway = gateway(puppet(), HookOptions { input, ..HookOptions::default() }).await;
    let frames = gateway.whole("t", "r", "hello").await;
    assert_eq!(frames.last().expect("an ending").json()["message"], "not today");
}

#[tokio::test]
async fn an_input_or_state_hook_that_fails_ends_the_run_or_not() {
    for (name, steps, timeout) in faults() {
        for on_failure in [OnFailure::Open, OnFailure::Closed] {
            for hook in ["input", "state"] {
                let what = format!("{hook}: {name}, {on_failure:?}");
                let server = server::Server::always(steps.clone()).await;
                let endpoint = Some(endpoint(&server.url, on_failure, timeout));
                let options = match hook {
                    "input" => HookOptions { input: endpoint, ..HookOptions::default() },
                    _ => HookOptions { state: endpoint, ..HookOptions::default() },
                };
                let gateway = gateway(puppet(), options).await;
                let frames = gateway.whole("t", "r", "hello").await;
                valid(&frames);
                match on_failure {
                    OnFailure::Open => {
                        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{what}");
                        assert_eq!(text(&frames), "w0 w1 ", "{what}");
                    }
                    OnFailure::Closed => {
                        assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{what}");
                        let message = frames.last().expect("an ending").json()["message"].to_string();
                        assert!(
                            !message.contains(&server.url) && !message.contains("oops"),
                            "{what}: {message}"
                        );
                    }
                }
                // Whoever gives up early may have done so before the server had read the question.
                let least = usize::from(timeout == PATIENT);
                assert!((least..=1).contains(&server.seen().len()), "{what}: asked once");
            }
        }
    }
}

#[tokio::test]
async fn nobody_there_is_a_failure_too() {
    // Nobody listens at it, and nobody else gets it.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = socket.local_addr().expect("bound");
    let input = Some(endpoint(&format!("http://{address}"), OnFailure::Closed, PATIENT));
    let gateway = gateway(puppet(), HookOptions { input, ..HookOptions::default() }).await;
    assert_eq!(code_of(&gateway.whole("t", "r", "hello").await), codes::HOOK_FAILED);
}

/// As servers do that close what rests, at the worst moment: the second request on a connection is never answered.
#[tokio::test]
async fn a_connection_that_has_rested_is_not_used_again() {
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
    let input = Some(endpoint(&url, OnFailure::Closed, PATIENT));
    let gateway = gateway(puppet(), HookOptions { input, ..HookOptions::default() }).await;
    for run in ["r1", "r2"] {
        let frames = gateway.whole("t", run, "hello").await;
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{}", code_of(&frames));
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
    served.abort();
}

#[tokio::test]
async fn the_state_hook_changes_the_final_state_once() {
    let server = server::Server::new(|seen: &Seen| {
        let mut state = seen.json()["state"].clone();
        state["checked"] = json!(true);
        ok(&json!({ "state": state }))
    })
    .await;
    let state = Some(endpoint(&server.url, OnFailure::Closed, PATIENT));
    let gateway = gateway(puppet(), HookOptions { state, ..HookOptions::default() }).await;
    let frames = gateway.whole("t", "r", "hello").await;
    valid(&frames);
    let told = frames[frames.len() - 2].json();
    assert_eq!(
        (&told["type"], &told["snapshot"]),
        (&json!("STATE_SNAPSHOT"), &json!({"n": 1, "checked": true}))
    );
    assert_eq!(server.seen().len(), 1);
    assert_eq!(gateway.json("/state_snapshot/t").await.1["snapshot"]["checked"], true);
}

/// Everything that a server was told, in order.
fn recorded(server: &server::Server) -> Vec<Value> {
    let batches = server.seen().into_iter().map(|seen| seen.json());
    batches.flat_map(|batch| batch["events"].as_array().expect("events").clone()).collect()
}

#[tokio::test]
async fn the_record_is_the_log() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let server = server::Server::always(answer("200 OK", "text/plain", b"whatever it says")).await;
        let output = Some(endpoint(&server.url, on_failure, PATIENT));
        let agent = Puppet::eager(|input| talk(input, 2000));
        let gateway = gateway(agent, HookOptions { output, ..HookOptions::default() }).await;
        let frames = gateway.whole("t", "r", "hello").await;
        valid(&frames);
        let told: Vec<_> = frames.iter().map(Frame::json).collect();
        until("everything is recorded", async || recorded(&server).len() == told.len()).await;
        assert!(recorded(&server) == told, "{on_failure:?}");
        let batches = server.seen().len();
        assert!(batches < told.len() / 2, "{batches} requests for {} events", told.len());
        assert_eq!(server.seen()[0].json()["runId"], "r");
    }
}

#[tokio::test]
async fn a_record_that_is_not_taken_ends_the_run_or_is_left_out() {
    let taken = ["garbage", "no object", "unknown keys", "too much", "a hang within"];
    for (name, steps, timeout) in faults() {
        // Nobody reads what a recorder answers.
        if taken.contains(&name) || name == "half an answer" {
            continue;
        }
        for on_failure in [OnFailure::Open, OnFailure::Closed] {
            let what = format!("{name}, {on_failure:?}");
            let server = server::Server::always(steps.clone()).await;
            let output = Some(endpoint(&server.url, on_failure, timeout));
            let gateway = gateway(puppet(), HookOptions { output, ..HookOptions::default() }).await;
            let frames = gateway.whole("t", "r", "hello").await;
            valid(&frames);
            match on_failure {
                OnFailure::Open => {
                    assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{what}");
                    assert_eq!(text(&frames), "w0 w1 ", "{what}");
                }
                OnFailure::Closed => assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{what}"),
            }
            assert_eq!(gateway.follow("/runs/r/stream").await.rest().await, frames, "{what}");
        }
    }
}

#[tokio::test]
async fn a_run_that_finished_was_recorded_whole_if_that_is_wanted() {
    let server = server::Server::always(answer("200 OK", "text/plain", b"")).await;
    let output = Some(endpoint(&server.url, OnFailure::Closed, PATIENT));
    let gateway = gateway(puppet(), HookOptions { output, ..HookOptions::default() }).await;
    for run in ["r1", "r2", "r3"] {
        let before = recorded(&server).len();
        let frames = gateway.whole("t", run, "hello").await;
        // No waiting: whoever sees the ending knows that it is there.
        assert_eq!(recorded(&server).len() - before, frames.len());
    }
}

#[tokio::test]
async fn a_server_that_never_takes_anything_holds_nobody_up_and_no_memory() {
    let server = server::Server::always(vec![Step::Hang]).await;
    let output = Some(endpoint(&server.url, OnFailure::Open, PATIENT));
    // Far more than is queued.
    let agent = Puppet::eager(|input| {
        let word = "x".repeat(64 << 10);
        let mut events = vec![start(&input.run)];
        events.extend((0..100).map(|_| delta(&input.run, &word)));
        events
    });
    let gateway = gateway(agent, HookOptions { output, ..HookOptions::default() }).await;
    let frames = gateway.whole("t", "r", "hello").await;
    assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{}", code_of(&frames));
    assert_eq!(text(&frames).len(), 100 * (64 << 10));
}

#[tokio::test]
async fn what_was_not_taken_is_counted_in_the_next_batch() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let server =
        server::Server::new(move |_: &Seen| match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => answer("503 Service Unavailable", "text/plain", b""),
            _ => answer("200 OK", "text/plain", b""),
        })
        .await;
    let output = Some(endpoint(&server.url, OnFailure::Open, PATIENT));
    let agent = Puppet::new(|input| talk(input, 2));
    let gateway = gateway(agent.clone(), HookOptions { output, ..HookOptions::default() }).await;
    let mut stream = gateway.run("t", "r", "hello").await;
    until("the first batch", async || server.seen().len() == 1).await;
    let lost = server.seen()[0].json()["events"].as_array().expect("events").len();
    agent.allow(100);
    stream.rest().await;
    until("the next batch", async || server.seen().len() >= 2).await;
    assert_eq!(server.seen()[1].json()["lost"], lost);
}

#[tokio::test]
async fn a_server_is_told_what_rules_have_left() {
    let server = server::Server::always(answer("200 OK", "text/plain", b"")).await;
    let rule = RuleOptions {
        event: Some("TEXT_MESSAGE_CONTENT".into()),
        pointer: Some("/delta".into()),
        ..RuleOptions::new(Action::Redact { with: "-".into() })
    };
    let output = Some(endpoint(&server.url, OnFailure::Closed, PATIENT));
    let options = HookOptions { rules: vec![rule], output, ..HookOptions::default() };
    let gateway = gateway(puppet(), options).await;
    let frames = gateway.whole("t", "r", "hello").await;
    valid(&frames);
    assert_eq!(text(&frames), "--");
    let record = Value::from(recorded(&server)).to_string();
    assert!(record.contains(r#""delta":"-""#) && !record.contains("w0"), "{record}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for url in ["127.0.0.1:1", "ftp://x/", "http://"] {
        let input = Some(Endpoint {
            url: url.into(),
            headers: vec![],
            timeout: PATIENT,
            on_failure: OnFailure::Open,
        });
        let made = ConfiguredHooks::new(HookOptions { input, ..HookOptions::default() });
        assert!(made.is_err_and(|error| error.to_string().contains(url)), "{url}");
    }
    let rule = RuleOptions { event: Some("NOPE".into()), ..RuleOptions::new(Action::Drop) };
    let made = ConfiguredHooks::new(HookOptions { rules: vec![rule], ..HookOptions::default() });
    assert!(made.is_err_and(|error| error.to_string() == "rule 1: no type of event is called `NOPE`"));
}
