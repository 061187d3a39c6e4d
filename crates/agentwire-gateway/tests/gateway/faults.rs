//! Faults that no other file of these tests is about; `docs/guarantees.md` lists the tests of all faults.

use std::{sync::Arc, time::Duration};

use agentwire_core::event::{Body, Event};
use agentwire_gateway::{agent::Demo, settings::IdentityField};
use agentwire_store::{ManualClock, Time};
use reqwest::Method;

use crate::support::*;

#[tokio::test]
async fn clocks_that_jump_neither_end_nor_double_a_run() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let clock = Arc::new(ManualClock::at(Time(1_794_787_200_000)));
    for backend in [Backend::memory_at(clock.clone()).await, Backend::sqlite_at(clock.clone()).await] {
        let puppet = Puppet::new(|input| talk(input, 6));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut stream = server.run("t", "r", "hello").await;
        let mut frames = Vec::new();
        for jump in [DAY, Duration::from_secs(3600)] {
            puppet.allow(1);
            frames.extend(stream.take(1).await);
            clock.advance(jump);
            puppet.allow(1);
            frames.extend(stream.take(1).await);
            clock.rewind(2 * jump);
        }
        puppet.allow(100);
        frames.extend(stream.rest().await);
        assert_valid(&frames);
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"));
        let ids = ids(&frames);
        let positions: Vec<u64> = ids
            .iter()
            .filter_map(|id| id.rsplit(':').next()?.split(['/', '.']).next()?.parse().ok())
            .collect();
        assert!(positions.is_sorted(), "{ids:?}");
        assert_eq!(puppet.calls(), 1);
        server.run_to_end("t", "next", "again").await;
    }
}

#[tokio::test]
async fn a_storm_of_reconnects_does_not_reach_the_agent() {
    // Below the backlog of a listener.
    const READERS: usize = 100;
    let puppet = Puppet::new(|input| talk(input, 4));
    let server = Arc::new(plan(puppet.clone()).on_memory().await);
    let mut first = server.run("t", "r", "hello").await;
    puppet.allow(3);
    let seen = first.take(3).await;
    let cursor = seen.last().and_then(|frame| frame.id.clone()).expect("a cursor");
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (server, path) = (server.clone(), format!("/runs/r/stream?after={cursor}"));
            tokio::spawn(async move {
                let mut stream = server.follow(&path).await;
                assert_eq!((stream.status(), stream.verdict().as_str()), (200, "whole"));
                ids(&stream.rest().await)
            })
        })
        .collect();
    puppet.allow(100);
    let rest = ids(&first.rest().await);
    for reader in readers {
        assert_eq!(with_timeout("a reader", reader).await.expect("no panic"), rest);
    }
    assert_eq!(puppet.calls(), 1);
}

#[tokio::test]
async fn ids_and_users_are_no_labels_of_metrics() {
    let puppet = Puppet::eager(|input| talk(input, 1));
    let server = plan(puppet)
        .set(|settings| settings.identity.user = IdentityField::header("x-user-id", None))
        .on_memory()
        .await;
    let lines = async || {
        let (_, text) = server.json("/metrics").await;
        text.as_str().expect("text").lines().count()
    };
    let run = async |number: usize| {
        let body = Server::input(&format!("thread-{number}"), &format!("run-{number}"), "hello");
        let request = server.post("/", &body).header("x-user-id", format!("user-{number}"));
        Stream::of(request).await.rest().await;
        let missing = server.ask(Method::GET, &format!("/runs/nothing-{number}")).header("x-user-id", "ada");
        assert_eq!(missing.send().await.expect("a response").status(), 404);
    };
    run(0).await;
    let before = lines().await;
    for number in 1..60 {
        run(number).await;
    }
    assert_eq!(lines().await, before);
    let (_, text) = server.json("/metrics").await;
    let text = text.as_str().expect("text");
    assert!(!["thread-", "run-", "user-", "nothing-"].iter().any(|id| text.contains(id)), "{text}");
}

#[tokio::test]
async fn paths_with_tricks_reach_no_other_route() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    let long = "x".repeat(9000);
    for path in [
        "/%2e%2e/runs/r",
        "/message_snapshot/..%2f..%2fruns%2fr",
        "/runs%2fr",
        "//runs/r",
        "/runs//r",
        "/runs/r/",
        "/runs/r%00",
        "/runs/r%0a",
        "/runs/%c0%af",
        "/runs/%ed%a0%80",
        &format!("/runs/{long}"),
    ] {
        // By hand: a client would tidy the path.
        let shown = &path[..path.len().min(40)];
        let head = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
        let response = server.exchange(head).await;
        assert!([400, 404].contains(&raw_status(&response)), "{shown}: {response}");
    }
}

#[tokio::test]
async fn text_with_line_breaks_stays_in_its_frame() {
    const BREAKS: &str = "a\nb\rc\r\nd\n\ndata: forged\n\nid: forged\u{2028}e\u{2029}\u{85}\0f";
    let puppet = Puppet::eager(|input| {
        vec![
            Event::new(Body::StepStarted { name: BREAKS.into() }),
            start(BREAKS),
            delta(BREAKS, BREAKS),
            end(BREAKS),
            Event::new(Body::StepFinished { name: BREAKS.into() }),
            finished(input),
        ]
    });
    let server = plan(puppet).on_memory().await;
    server.run_to_end("t", "r", BREAKS).await;
    for format in ["ag-ui", "ag-ui@0", "hai", "ai-sdk", "ai-sdk@5", "langgraph"] {
        let stream = server.follow(&format!("/runs/r/stream?format={format}")).await;
        assert_eq!(stream.status(), 200, "{format}");
        let bytes = stream.bytes().await;
        let text = String::from_utf8(bytes).expect("UTF-8");
        assert!(!text.contains('\r') && !text.contains('\0'), "{format}: {text:?}");
        for line in text.split('\n') {
            let fields = ["data: ", "event: ", "id: r:", "retry: ", ":"];
            let is_field = fields.iter().any(|field| line.starts_with(field));
            assert!(line.is_empty() || is_field, "{format}: {line:?}");
            assert!(!line.starts_with("data: forged"), "{format}: {line:?}");
        }
    }
}

#[tokio::test]
async fn keys_of_a_prototype_are_plain_keys() {
    let puppet = Puppet::eager(|input| talk(input, 1));
    let server = plan(puppet).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    let patch = serde_json::json!([
        {"op": "add", "path": "/__proto__", "value": {"isAdmin": true}},
        {"op": "add", "path": "/constructor", "value": {"prototype": 1}},
    ]);
    let request = server.ask(Method::PATCH, "/state/t").json(&patch);
    assert!(request.send().await.expect("a response").status().is_success());
    let (_, state) = server.json("/state_snapshot/t").await;
    let snapshot = &state["snapshot"];
    assert_eq!(snapshot["__proto__"]["isAdmin"], true, "{state}");
    assert!(snapshot["isAdmin"].is_null() && snapshot["constructor"]["prototype"] == 1, "{state}");
}

/// Every route that can be read, with ids that exist and with others. The console has no data of anybody.
#[tokio::test]
async fn responses_are_not_for_caches() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    let (_, document) = server.json("/openapi.json").await;
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        if !methods.as_object().expect("methods").contains_key("get") || path.starts_with("/console") {
            continue;
        }
        for [thread, run] in [["t", "r"], ["nothing", "none"]] {
            let path = path.replace("{id}", thread).replace("{run}", run).replace("{agent}", "demo");
            let path = path.replace("{name}", "x");
            let response = server.ask(Method::GET, &path).send().await.expect("a response");
            let kept = response.headers().get("cache-control").map(|value| value.to_str().expect("ASCII"));
            let status = response.status();
            assert!(kept.is_some_and(|value| value.contains("no-store")), "{path}: {status} {kept:?}");
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}
