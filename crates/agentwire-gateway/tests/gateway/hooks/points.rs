//! Hook servers at every point of a run: their effects, their batches, their failures, the session lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agentwire_gateway::{
    agent::Agent,
    codes,
    hooks::{Endpoint, HookOptions, OnFailure},
    upstream::{AgUi, AgUiOptions},
};
use serde_json::{Value, json};

use super::{
    code_of, recorded,
    server::{self, ReceivedRequest, Step, head, response},
    servers::{LONG, endpoint, faults, gateway, ok, puppet},
    text,
};
use crate::support::*;

/// The points on events, which servers get in batches.
const ON_EVENTS: &[&str] = &["native", "translate", "event", "output"];

/// An agent with native events: two words and a state.
fn agent() -> Arc<dyn Agent> {
    recorded(&[
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
        json!({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "one "}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "two "}),
        json!({"type": "TEXT_MESSAGE_END", "messageId": "m"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}),
    ])
}

/// The options with one server at `hook`.
fn at(hook: &str, endpoint: Endpoint) -> HookOptions {
    let mut options = HookOptions::default();
    let slot = match hook {
        "lock" => &mut options.lock,
        "input_record" => &mut options.input_record,
        "input" => &mut options.input,
        "native" => &mut options.native,
        "translate" => &mut options.translate,
        "event" => &mut options.event,
        "state" => &mut options.state,
        "output_record" => &mut options.output_record,
        "output" => &mut options.output,
        other => panic!("no hook {other}"),
    };
    *slot = Some(endpoint);
    options
}

/// The events of all requests for a hook, in order.
fn seen(server: &server::Server, hook: &str) -> Vec<Value> {
    let requests = server.requests().into_iter().map(|request| request.json());
    let of_hook = requests.filter(|body| body["hook"] == hook);
    of_hook.flat_map(|body| body["events"].as_array().cloned().unwrap_or_default()).collect()
}

/// A server that answers the requests for events with the events that `change` makes of each.
async fn changing(change: impl Fn(Value) -> Vec<Value> + Send + Sync + 'static) -> server::Server {
    server::Server::new(move |request: &ReceivedRequest| {
        let events = request.json()["events"].as_array().expect("events").clone();
        ok(&json!({ "events": events.into_iter().flat_map(&change).collect::<Vec<_>>() }))
    })
    .await
}

async fn run(hook: &str, server: &server::Server) -> Vec<Frame> {
    let gateway = gateway(agent(), at(hook, endpoint(&server.url, OnFailure::Closed, LONG))).await;
    let frames = gateway.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    frames
}

#[tokio::test]
async fn servers_at_all_points_are_called_in_order_and_change_nothing_by_default() {
    let plain = gateway(agent(), HookOptions::default()).await.run_to_end("t", "r", "hello").await;
    let server = server::Server::always(ok(&json!({}))).await;
    let one = || {
        let secret = Some("s3cret".to_owned());
        Some(Endpoint { secret, ..endpoint(&server.url, OnFailure::Closed, LONG) })
    };
    let options = HookOptions {
        rules: Vec::new(),
        lock: one(),
        input_record: one(),
        input: one(),
        native: one(),
        native_fallback: one().map(|endpoint| (LONG, endpoint)),
        translate: one(),
        event: one(),
        state: one(),
        output_record: one(),
        output: one(),
    };
    let frames = gateway(agent(), options).await.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    let bare = |frames: &[Frame]| -> Vec<Value> {
        let strip = |frame: &Frame| {
            let mut event = frame.json();
            event.as_object_mut().expect("an object").remove("timestamp");
            event
        };
        frames.iter().map(strip).collect()
    };
    assert_eq!(bare(&frames), bare(&plain));
    let requests = server.requests();
    let hooks: Vec<_> = requests.iter().map(|request| request.json()["hook"].clone()).collect();
    let first = |hook: &str| {
        hooks.iter().position(|name| name == hook).unwrap_or_else(|| panic!("{hook}: {hooks:?}"))
    };
    let order = ["lock", "input_record", "input", "native", "translate", "event", "state", "unlock"];
    assert!(order.map(first).is_sorted(), "{hooks:?}");
    assert_eq!(first("unlock"), hooks.len() - 1);
    assert!(!hooks.contains(&json!("native_fallback")), "{hooks:?}");
    assert_eq!(seen(&server, "output"), frames.iter().map(Frame::json).collect::<Vec<_>>());
    assert_eq!(seen(&server, "output_record"), seen(&server, "output"));
    assert_eq!(seen(&server, "native").len(), 7);
    assert_eq!(seen(&server, "native"), seen(&server, "translate"));
    assert_eq!(seen(&server, "native")[1]["data"], json!({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}}));
    for request in requests {
        let signature = request.header("agentwire-signature").expect("a signature");
        let (time, hash) = signature.split_once(",v1=").expect("two parts");
        assert!(time.strip_prefix("t=").is_some_and(|time| time.parse::<u64>().is_ok()), "{signature}");
        assert_eq!(hash.len(), 64);
        assert_eq!(request.json()["threadId"], "t");
    }
}

#[tokio::test]
async fn a_server_changes_drops_and_multiplies_native_events() {
    let server = changing(|mut native| match native["data"]["delta"].as_str() {
        Some("one ") => Vec::new(),
        Some(_) => {
            native["data"]["delta"] = json!("2 ");
            vec![native.clone(), native]
        }
        None => vec![native],
    })
    .await;
    assert_eq!(text(&run("native", &server).await), "2 2 ");
}

#[tokio::test]
async fn a_server_decides_on_the_decoding_of_native_events() {
    let server = server::Server::new(|request: &ReceivedRequest| {
        let decide = |native: &Value| match native["data"]["delta"].as_str() {
            Some("one ") => json!({
                "translation": "skip",
                "before": [{"type": "CUSTOM", "name": "seen", "value": 1}],
            }),
            Some(_) => {
                let mut other = native.clone();
                other["data"]["delta"] = json!("TWO ");
                json!({"translation": "replace", "event": other})
            }
            None => json!("default"),
        };
        let events = request.json()["events"].as_array().expect("events").clone();
        ok(&json!({ "translations": events.iter().map(decide).collect::<Vec<_>>() }))
    })
    .await;
    let frames = run("translate", &server).await;
    assert_eq!(text(&frames), "TWO ");
    let custom: Vec<_> = frames.iter().filter(|frame| frame.kind() == "CUSTOM").collect();
    assert_eq!((custom.len(), &custom[0].json()["name"]), (1, &json!("seen")));
}

#[tokio::test]
async fn a_server_changes_drops_and_multiplies_events() {
    let server = changing(|mut event| match event["delta"].as_str() {
        Some("one ") => Vec::new(),
        Some(_) => {
            event["delta"] = json!("2 ");
            vec![event.clone(), json!({"type": "CUSTOM", "name": "again", "value": null}), event]
        }
        None => vec![event],
    })
    .await;
    let frames = run("event", &server).await;
    assert_eq!(text(&frames), "2 2 ");
    assert!(types(&frames).contains(&"CUSTOM".to_owned()));
}

#[tokio::test]
async fn a_server_changes_the_output_but_cannot_keep_a_run_open() {
    let server = changing(|mut event| {
        if event["type"] == "RUN_FINISHED" {
            return vec![json!({"type": "CUSTOM", "name": "no end", "value": 1})];
        }
        if let Some(delta) = event["delta"].as_str() {
            event["delta"] = json!(delta.to_uppercase());
        }
        vec![event]
    })
    .await;
    let frames = run("output", &server).await;
    assert_eq!(text(&frames), "ONE TWO ");
    assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"));
    assert!(!types(&frames).contains(&"CUSTOM".to_owned()));
}

#[tokio::test]
async fn the_stream_stays_valid_if_a_server_breaks_its_order() {
    for hook in ["event", "output"] {
        // Every start and every end becomes something else; the guard repairs the rest.
        let server = changing(|event| match event["type"].as_str() {
            Some("TEXT_MESSAGE_START" | "TEXT_MESSAGE_END") => {
                vec![json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{"})]
            }
            Some("RUN_STARTED") => vec![json!({"type": "STEP_FINISHED", "stepName": "s"})],
            _ => vec![event],
        })
        .await;
        let frames = run(hook, &server).await;
        assert_eq!(text(&frames), "one two ", "{hook}");
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{hook}");
    }
}

#[tokio::test]
async fn every_point_on_events_can_refuse_the_run() {
    for hook in ON_EVENTS.iter().chain(&["input", "state"]) {
        let server = server::Server::always(ok(&json!({"refuse": "not here"}))).await;
        let frames = run(hook, &server).await;
        let last = frames.last().expect("an ending").json();
        assert_eq!(
            (&last["code"], &last["message"]),
            (&json!(codes::HOOK_REFUSED), &json!("not here")),
            "{hook}"
        );
    }
}

#[tokio::test]
async fn on_failure_decides_at_every_point_on_events() {
    let wrong = vec![
        ("a list that is none", ok(&json!({"events": 3, "translations": 3})), LONG),
        (
            "events that are none",
            ok(&json!({"events": [{"type": "NO_SUCH_TYPE"}], "translations": ["?"]})),
            LONG,
        ),
    ];
    for (name, steps, timeout) in faults().into_iter().chain(wrong) {
        for on_failure in [OnFailure::Open, OnFailure::Closed] {
            for hook in ON_EVENTS {
                let case = format!("{hook}: {name}, {on_failure:?}");
                let server = server::Server::always(steps.clone()).await;
                let gateway = gateway(agent(), at(hook, endpoint(&server.url, on_failure, timeout))).await;
                let frames = gateway.run_to_end("t", "r", "hello").await;
                assert_valid(&frames);
                match on_failure {
                    OnFailure::Open => {
                        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{case}");
                        assert_eq!(text(&frames), "one two ", "{case}");
                    }
                    OnFailure::Closed => assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{case}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn too_few_and_too_many_events_of_output_are_a_failure() {
    for count in [0, 2] {
        let server = changing(move |event| vec![event; count]).await;
        let frames = run("output", &server).await;
        assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{count}");
    }
}

#[tokio::test]
async fn events_that_gathered_during_a_request_are_one_batch_in_order() {
    for hook in ["event", "output"] {
        let server = changing(|event| vec![event]).await;
        let agent = Puppet::eager(|input| talk(input, 2000));
        let gateway = gateway(agent, at(hook, endpoint(&server.url, OnFailure::Closed, LONG))).await;
        let frames = gateway.run_to_end("t", "r", "hello").await;
        assert_valid(&frames);
        let expected: String = (0..2000).map(|word| format!("w{word} ")).collect();
        assert!(text(&frames) == expected, "{hook}");
        let sizes: Vec<_> = server
            .requests()
            .iter()
            .map(|request| request.json()["events"].as_array().expect("events").len())
            .collect();
        assert!(sizes.iter().all(|size| *size <= 256), "{hook}: {sizes:?}");
        assert!(sizes.len() < 1000, "{hook}: {} requests", sizes.len());
    }
}

#[tokio::test]
async fn events_before_a_refusal_reach_the_client() {
    let server = server::Server::new(|request: &ReceivedRequest| match request.body.contains("stop here") {
        true => ok(&json!({"refuse": "enough"})),
        false => ok(&json!({})),
    })
    .await;
    let agent = Puppet::new(|input| {
        let mut events = talk(input, 3);
        events.insert(3, delta(&format!("{}-answer", input.run), "stop here"));
        events
    });
    let gateway = gateway(agent.clone(), at("event", endpoint(&server.url, OnFailure::Closed, LONG))).await;
    let mut stream = gateway.run("t", "r", "hello").await;
    // The first two words are a batch of their own.
    agent.allow(3);
    wait_until("two words", async || seen(&server, "event").len() >= 3).await;
    agent.allow(100);
    let frames = stream.rest().await;
    assert_valid(&frames);
    assert_eq!((text(&frames).as_str(), code_of(&frames).as_str()), ("w0 w1 ", codes::HOOK_REFUSED));
}

/// An agent that starts a message and stays silent.
async fn silent() -> (server::Server, Arc<dyn Agent>) {
    let begun = [
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}),
    ];
    let begun: String = begun.iter().map(|event| format!("data: {event}\n\n")).collect();
    let steps =
        vec![Step::Send([head("200 OK", "text/event-stream"), begun.into_bytes()].concat()), Step::Hang];
    let server = server::Server::always(steps).await;
    let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).expect("a URL");
    (server, Arc::new(agent))
}

#[tokio::test]
async fn a_server_replaces_the_rest_of_a_silent_agent() {
    let sorry = json!({
        "before": [{"type": "CUSTOM", "name": "late", "value": true}],
        "events": [{"data": {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "sorry"}}],
    });
    for (steps, on_failure, expected) in [
        (ok(&sorry), OnFailure::Closed, Ok("sorry")),
        (ok(&json!({})), OnFailure::Closed, Err(codes::UPSTREAM_TIMEOUT)),
        (ok(&json!({"events": 3})), OnFailure::Closed, Err(codes::HOOK_FAILED)),
        (ok(&json!({"events": 3})), OnFailure::Open, Err(codes::UPSTREAM_TIMEOUT)),
        (response("500 Oops", "text/plain", b""), OnFailure::Open, Err(codes::UPSTREAM_TIMEOUT)),
        (ok(&json!({"refuse": "no"})), OnFailure::Open, Err(codes::HOOK_REFUSED)),
    ] {
        let server = server::Server::always(steps).await;
        let (_silent, agent) = silent().await;
        let native_fallback = Some((Duration::from_millis(100), endpoint(&server.url, on_failure, LONG)));
        let gateway = gateway(agent, HookOptions { native_fallback, ..HookOptions::default() }).await;
        let frames = gateway.run_to_end("t", "r", "hello").await;
        assert_valid(&frames);
        assert_eq!(server.requests()[0].json()["hook"], "native_fallback");
        match expected {
            Ok(said) => {
                assert_eq!(text(&frames), said);
                assert!(types(&frames).contains(&"CUSTOM".to_owned()));
                assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"));
            }
            Err(code) => assert_eq!(code_of(&frames), code),
        }
    }
}

#[tokio::test]
async fn the_input_record_is_the_input_before_its_change() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let server = server::Server::always(response("200 OK", "text/plain", b"not read")).await;
        let input_record = Some(endpoint(&server.url, on_failure, LONG));
        let gateway = gateway(puppet(), HookOptions { input_record, ..HookOptions::default() }).await;
        assert_valid(&gateway.run_to_end("t", "r", "hello").await);
        wait_until("the record", async || !server.requests().is_empty()).await;
        let body = server.requests()[0].json();
        assert_eq!(
            (&body["hook"], &body["input"]["messages"][0]["content"]),
            (&json!("input_record"), &json!("hello"))
        );
    }
    let server = server::Server::always(response("500 Oops", "text/plain", b"")).await;
    for (on_failure, code) in [(OnFailure::Open, ""), (OnFailure::Closed, codes::HOOK_FAILED)] {
        let input_record = Some(endpoint(&server.url, on_failure, LONG));
        let gateway = gateway(puppet(), HookOptions { input_record, ..HookOptions::default() }).await;
        assert_eq!(code_of(&gateway.run_to_end("t", "r", "hello").await), code);
    }
}

#[tokio::test]
async fn a_server_holds_the_session_lock() {
    let is_locked = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&is_locked);
    let server =
        server::Server::new(move |request: &ReceivedRequest| match request.json()["hook"].as_str() {
            Some("lock") => ok(&json!({ "locked": !state.swap(true, Ordering::SeqCst) })),
            Some("unlock") => {
                state.store(false, Ordering::SeqCst);
                ok(&json!(null))
            }
            other => panic!("{other:?}"),
        })
        .await;
    let lock = Some(endpoint(&server.url, OnFailure::Closed, LONG));
    let gateway = gateway(puppet(), HookOptions { lock, ..HookOptions::default() }).await;
    for run in ["r1", "r2"] {
        let frames = gateway.run_to_end("t", run, "hello").await;
        assert_valid(&frames);
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{}", code_of(&frames));
        // Without a wait: the lock is free before the client sees the end.
        assert!(!is_locked.load(Ordering::SeqCst));
    }
    is_locked.store(true, Ordering::SeqCst);
    let frames = gateway.run_to_end("t", "r3", "hello").await;
    assert_valid(&frames);
    assert_eq!(code_of(&frames), codes::THREAD_IS_LOCKED);
    assert_eq!(
        server.requests().last().expect("requests").json()["hook"],
        "lock",
        "no unlock without the lock"
    );
}

#[tokio::test]
async fn a_lock_server_refuses_with_its_own_words() {
    let server = server::Server::always(ok(&json!({"refuse": "Ada edits this"}))).await;
    let lock = Some(endpoint(&server.url, OnFailure::Open, LONG));
    let gateway = gateway(puppet(), HookOptions { lock, ..HookOptions::default() }).await;
    let frames = gateway.run_to_end("t", "r", "hello").await;
    let last = frames.last().expect("an ending").json();
    assert_eq!(
        (&last["code"], &last["message"]),
        (&json!(codes::THREAD_IS_LOCKED), &json!("Ada edits this"))
    );
}

#[tokio::test]
async fn a_lock_whose_answer_is_unknown_is_released() {
    for (name, steps, timeout) in faults() {
        for on_failure in [OnFailure::Open, OnFailure::Closed] {
            let case = format!("{name}, {on_failure:?}");
            let steps = steps.clone();
            let server = server::Server::new(move |request: &ReceivedRequest| {
                match request.body.contains(r#""hook":"lock""#) {
                    true => steps.clone(),
                    false => ok(&json!({})),
                }
            })
            .await;
            let lock = Some(endpoint(&server.url, on_failure, timeout));
            let gateway = gateway(puppet(), HookOptions { lock, ..HookOptions::default() }).await;
            let frames = gateway.run_to_end("t", "r", "hello").await;
            assert_valid(&frames);
            match on_failure {
                OnFailure::Open => assert_eq!(code_of(&frames), "", "{case}"),
                OnFailure::Closed => assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{case}"),
            }
            let is_unlock = |request: &ReceivedRequest| request.body.contains(r#""hook":"unlock""#);
            wait_until("the release", async || server.requests().iter().any(is_unlock)).await;
        }
    }
}

#[tokio::test]
async fn a_run_that_is_stopped_while_it_waits_for_its_lock_releases_it() {
    let server =
        server::Server::new(|request: &ReceivedRequest| match request.body.contains(r#""hook":"lock""#) {
            true => vec![Step::Hang],
            false => ok(&json!({})),
        })
        .await;
    let lock = Some(endpoint(&server.url, OnFailure::Closed, LONG));
    let gateway = gateway(puppet(), HookOptions { lock, ..HookOptions::default() }).await;
    let mut stream = gateway.run("t", "r", "hello").await;
    wait_until("the request for the lock", async || !server.requests().is_empty()).await;
    gateway.ask(reqwest::Method::POST, "/runs/r/stop").send().await.expect("an answer");
    stream.rest().await;
    let is_unlock = |request: &ReceivedRequest| request.body.contains(r#""hook":"unlock""#);
    wait_until("the release", async || server.requests().iter().any(is_unlock)).await;
}
