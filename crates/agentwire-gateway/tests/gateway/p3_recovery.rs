//! P3, whole or told: a reconnect continues without loss (`whole`), starts from a snapshot (`snapshot`), or reports a
//! gap (`gap`). Events are never missing without notice.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{agent::Demo, settings::IdentityField};
use agentwire_store::{ManualClock, Time};
use reqwest::Method;

use crate::support::{Backend, Puppet, Stream, assert_valid, ids, plan, talk, types, wait_until};

const ALL: &str = "think steps tools state subagent plan media";

#[tokio::test]
async fn p3_binary_streams_resume_at_every_event() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let count = server.run_to_end("t", "r", ALL).await.len();
    for format in ["ag-ui-proto", "hai-proto"] {
        let path = format!("/runs/r/stream?format={format}");
        let whole = server.follow(&path).await.bytes().await;
        let mut last = usize::MAX;
        for seq in 0..count - 1 {
            let rest = server.follow(&format!("{path}&after=r:{seq}")).await.bytes().await;
            assert!(whole.ends_with(&rest), "{format} after {seq}");
            assert!(rest.len() <= last, "{format} after {seq}");
            last = rest.len();
        }
    }
}

#[tokio::test]
async fn p3_header_and_query_cursors_are_equivalent() {
    let server = plan(Puppet::eager(|input| talk(input, 5))).on_memory().await;
    let whole = server.run_to_end("t", "r/ü x", "hello").await;
    let get = |path: &str| server.ask(Method::GET, path);
    let path = "/runs/r%2F%C3%BC%20x/stream";
    let by_query = Stream::of(get(&format!("{path}?after=r%2F%C3%BC+x:3"))).await.rest().await;
    assert_eq!(by_query, whole[4..]);
    let raw = reqwest::header::HeaderValue::from_bytes("r/ü x:3".as_bytes()).expect("bytes");
    let by_header = Stream::of(get(path).header("last-event-id", raw)).await.rest().await;
    assert_eq!(by_header, whole[4..]);
    let encoded = Stream::of(get(path).header("last-event-id", "r%2F%C3%BC%20x%3A3")).await.rest().await;
    assert_eq!(encoded, whole[4..]);
    let empty = Stream::of(get(path).header("last-event-id", "")).await.rest().await;
    assert_eq!(empty, whole);
    let by_thread = Stream::of(get("/threads/t/stream?after=r%2F%C3%BC+x:3")).await.rest().await;
    assert_eq!(by_thread, whole[4..]);
}

#[tokio::test]
async fn p3_a_repeated_post_with_a_cursor_continues_the_run() {
    let puppet = Puppet::new(|input| talk(input, 10));
    let server = plan(puppet.clone()).on_memory().await;
    let body = crate::support::Server::input("t", "r", "hello");
    let mut first = Stream::of(server.post("/", &body)).await;
    puppet.allow(4);
    let mut seen = first.take(5).await;
    drop(first);
    let mut second = Stream::of(server.post("/", &body).header("last-event-id", "r:2")).await;
    assert_eq!(second.verdict(), "whole");
    puppet.allow(100);
    let rest = second.rest().await;
    assert_eq!(rest[..2], seen[3..]);
    seen.truncate(3);
    seen.extend(rest);
    assert_valid(&seen);
    assert_eq!(puppet.calls(), 1);
    let other = server.post("/", &body).header("last-event-id", "q:2").send().await.expect("a response");
    assert_eq!(other.status(), 400);
}

/// A cursor beyond the log gets the verdict `gap` and a prelude that strict clients accept.
#[tokio::test]
async fn p3_a_cursor_beyond_the_log_is_a_gap() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(4);
        first.take(5).await;
        for format in ["ag-ui", "hai", "ai-sdk@5"] {
            let path = format!("/runs/r/stream?format={format}&after=r:99");
            let stream = server.follow(&path).await;
            assert_eq!((stream.status(), stream.verdict().as_str()), (200, "gap"), "{format}");
        }
        let mut live = server.follow("/runs/r/stream?after=r:99").await;
        let prelude = live.take(4).await;
        assert_eq!(
            types(&prelude),
            ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "TEXT_MESSAGE_START"]
        );
        assert_eq!(
            ids(&prelude),
            ["r:4"],
            "the last frame of the prelude has the cursor of the current position"
        );
        puppet.allow(100);
        let mut seen = prelude;
        seen.extend(live.rest().await);
        assert_valid(&seen);
        assert_eq!(seen[4].id.as_deref(), Some("r:5"));
        let whole = first.rest().await;
        assert_eq!(seen[4..], whole);

        let mut ended = server.follow("/runs/r/stream?after=r:18446744073709551615").await;
        assert_eq!(ended.verdict(), "gap");
        let frames = ended.rest().await;
        assert_valid(&frames);
        assert_eq!(types(&frames), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]);
    }
}

/// A queued run has no events yet, so every cursor in it is beyond its log.
#[tokio::test]
async fn p3_a_cursor_in_a_queued_run_is_a_gap() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .agent(|agent| agent.busy = agentwire_gateway::settings::Busy::Enqueue { limit: 5 })
        .on_memory()
        .await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    let mut two = server.run("t", "two", "hello").await;
    let mut beyond = server.follow("/runs/two/stream?after=two:7").await;
    assert_eq!(beyond.verdict(), "gap");
    puppet.allow(100);
    one.rest().await;
    assert_valid(&two.rest().await);
    assert_valid(&beyond.rest().await);
}

#[tokio::test]
async fn p3_a_compacted_run_is_a_snapshot() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    for backend in [Backend::memory_at(clock.clone()).await, Backend::sqlite_at(clock.clone()).await] {
        let server = plan(Arc::new(Demo::without_pauses()))
            .set(|settings| settings.retention.events = Some(Duration::from_secs(2)))
            .on(&backend.store)
            .await;
        let whole = server.run_to_end("t", "r", ALL).await;
        let (_, before) = server.json("/message_snapshot/t").await;
        clock.advance(Duration::from_secs(60));
        wait_until("the run is compacted", || async {
            server.follow("/runs/r/stream?after=r:3").await.verdict() != "whole"
        })
        .await;
        for format in ["ag-ui", "ag-ui@0", "hai", "ai-sdk@5", "ai-sdk@7"] {
            for cursor in ["", "&after=r:0", "&after=r:3"] {
                let mut stream = server.follow(&format!("/runs/r/stream?format={format}{cursor}")).await;
                assert_eq!(
                    (stream.status(), stream.verdict().as_str()),
                    (200, "snapshot"),
                    "{format} {cursor}"
                );
                let frames = stream.rest().await;
                assert!(!frames.is_empty());
                if format == "ag-ui" {
                    assert_valid(&frames);
                    assert!(frames.len() < whole.len());
                    let last = ids(&frames).pop();
                    assert_eq!(last, Some(format!("r:{}", whole.len() - 1)));
                }
            }
        }
        let last = format!("/runs/r/stream?after=r:{}", whole.len() - 1);
        let stream = server.follow(&last).await;
        assert_eq!((stream.status(), stream.verdict().as_str()), (204, "whole"));
        assert_eq!(server.follow("/runs/r/stream?after=r:9999").await.verdict(), "gap");
        let (_, after) = server.json("/message_snapshot/t").await;
        assert_eq!(before["messages"], after["messages"], "compaction keeps the messages");
    }
}

#[tokio::test]
async fn p3_malformed_cursors_are_refused_and_runs_of_other_users_are_unknown() {
    let server = plan(Puppet::eager(|input| talk(input, 3)))
        .set(|settings| settings.identity.user = IdentityField::header("x-user", Some("somebody")))
        .on_memory()
        .await;
    server.run_to_end("t", "r", "hello").await;
    let long = "x".repeat(900);
    for bad in ["", "r", "r:", ":3", "r:-1", "r:x", "r:99999999999999999999", "q:1", "earliest", "now", &long]
    {
        let path = format!("/runs/r/stream?after={bad}");
        let response = server.ask(Method::GET, &path).send().await.expect("a response");
        assert_eq!(response.status(), 400, "{bad}");
        let body: serde_json::Value =
            serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
        assert_eq!(body["error"]["code"], "BAD_CURSOR", "{bad}");
    }
    let fetch = async |path: &str, user: &str| {
        let response = server.ask(Method::GET, path).header("x-user", user).send().await.expect("a response");
        let headers: Vec<_> = response
            .headers()
            .iter()
            .filter(|(name, _)| *name != "date")
            .map(|(name, value)| format!("{name}: {value:?}"))
            .collect();
        (response.status(), headers, response.text().await.expect("a body"))
    };
    for path in [
        "/runs/r/stream",
        "/runs/r/stream?after=r:1",
        "/runs/r",
        "/threads/t/stream",
        "/threads/t/stream?after=r:1",
    ] {
        let foreign = fetch(path, "somebody-else").await;
        let unknown = fetch(
            &path.replace("/r", "/zz").replace("r:", "zz:").replace("/zzuns", "/runs").replace("/t/", "/yy/"),
            "somebody-else",
        )
        .await;
        assert_eq!(foreign.0, 404, "{path}");
        assert_eq!(foreign, unknown, "{path}");
    }
}
