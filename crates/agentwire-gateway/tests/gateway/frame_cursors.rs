//! Cursors behind every frame: an event that became several frames can be cut inside, and the rest of the stream is byte for
//! byte the same (P3).

use std::{sync::Arc, time::Duration};

use agentwire_core::{format::FORMATS, framing::Framing};
use agentwire_gateway::agent::Demo;
use agentwire_store::{ManualClock, Time};
use reqwest::Method;

use crate::support::*;

/// Keywords of the demo agent for every kind of event.
const ALL: &str = "think steps tools tool error state subagent plan media";

/// Every format that is sent as SSE, with each of its profiles.
fn sse_formats() -> Vec<String> {
    let formats = FORMATS.iter().filter(|format| format.writer.is_some());
    let profiles = formats.flat_map(|format| format.profiles.iter().map(move |profile| (format, profile)));
    profiles
        .filter(|(_, profile)| profile.framing == Framing::Sse)
        .map(|(format, profile)| match profile.name {
            "" => format.name.to_owned(),
            name => format!("{}@{name}", format.name),
        })
        .collect()
}

/// Follows `path` anew after every frame of its stream, and compares with the rest.
async fn assert_resumes_everywhere(server: &Server, path: &str, verdict: &str) -> Vec<Frame> {
    let mut stream = server.follow(path).await;
    assert_eq!((stream.status(), stream.verdict().as_str()), (200, verdict), "{path}");
    let whole = stream.rest().await;
    let text: String = whole.iter().map(|frame| frame.raw.as_str()).collect();
    let ids = ids(&whole);
    assert_eq!(ids.len(), whole.len(), "every frame of {path} has an id");
    let separator = if path.contains('?') { '&' } else { '?' };
    for (index, id) in ids.iter().enumerate() {
        assert!(!ids[..index].contains(id), "{id} occurs twice in {path}");
        let mut stream = server.follow(&format!("{path}{separator}after={id}")).await;
        let is_in_log = stream.verdict() == "whole" && id.contains('/');
        if index + 1 == whole.len() {
            assert_eq!((stream.status(), stream.header("content-type")), (204, ""), "{path} after {id}");
            continue;
        }
        // The last frames of a substitute are those of the terminal event in the log.
        assert!(stream.verdict() == verdict || is_in_log, "{path} after {id}: {}", stream.verdict());
        let rest = stream.rest().await;
        assert_eq!(rest, whole[index + 1..], "{path} after {id}");
        let rest: String = rest.iter().map(|frame| frame.raw.as_str()).collect();
        assert!(text.ends_with(&rest), "{path} after {id}");
    }
    whole
}

#[tokio::test]
async fn p3_every_frame_of_every_format_resumes_with_identical_bytes() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let first = server.run_to_end("t", "r", ALL).await;
    assert_valid(&first);
    server.run_to_end("waiting", "w", "approve").await;
    server.run_to_end("failed", "f", "tools fail").await;
    let mut partial = 0;
    for format in sse_formats() {
        for run in ["r", "w", "f"] {
            let path = format!("/runs/{run}/stream?format={format}");
            let whole = assert_resumes_everywhere(&server, &path, "whole").await;
            assert!(whole.len() > 3, "{path}");
            partial += ids(&whole).iter().filter(|id| id.contains('/')).count();
        }
    }
    assert!(partial > 20, "some events become several frames");
}

#[tokio::test]
async fn p3_frames_resume_from_a_file() {
    let backend = Backend::sqlite().await;
    let server = plan(Arc::new(Demo::without_pauses())).on(&backend.store).await;
    server.run_to_end("t", "r", ALL).await;
    for format in ["ag-ui", "ag-ui@0", "hai", "ai-sdk@7"] {
        assert_resumes_everywhere(&server, &format!("/runs/r/stream?format={format}"), "whole").await;
    }
}

/// The conversation of an ended run consists of snapshots, on every route that brings it. Streams of the AI SDK and of
/// LangGraph are those of one run.
#[tokio::test]
async fn p3_frames_of_a_conversation_resume() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    server.run_to_end("t", "before", "tools").await;
    server.run_to_end("t", "r", ALL).await;
    server.run_to_end("waiting", "w", "approve").await;
    let of_one_run = ["ai-sdk", "langgraph"];
    for format in sse_formats().iter().filter(|format| !of_one_run.iter().any(|it| format.starts_with(it))) {
        for thread in ["t", "waiting"] {
            let path = format!("/threads/{thread}/stream?format={format}");
            assert_resumes_everywhere(&server, &path, "snapshot").await;
        }
    }
}

#[tokio::test]
async fn p3_frames_of_a_compacted_run_resume_and_lost_positions_are_told() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    for backend in [Backend::memory_at(clock.clone()).await, Backend::sqlite_at(clock.clone()).await] {
        let server = plan(Arc::new(Demo::without_pauses()))
            .set(|settings| settings.retention.events = Some(Duration::from_secs(2)))
            .on(&backend.store)
            .await;
        let formats = ["ag-ui", "hai", "ai-sdk@7"];
        server.run_to_end("t", "r", ALL).await;
        let mut before = Vec::new();
        for format in formats {
            before.push(server.follow(&format!("/runs/r/stream?format={format}")).await.rest().await);
        }
        clock.advance(Duration::from_secs(60));
        wait_until("the run is compacted", || async {
            server.follow("/runs/r/stream?after=r:3").await.verdict() != "whole"
        })
        .await;
        for (format, before) in formats.iter().zip(before) {
            let path = format!("/runs/r/stream?format={format}");
            assert_resumes_everywhere(&server, &path, "snapshot").await;
            let last = ids(&before).pop().expect("an id");
            for id in ids(&before).iter().step_by(5).filter(|id| id.split('/').next() != Some(&last)) {
                let stream = server.follow(&format!("{path}&after={id}")).await;
                assert_eq!((stream.status(), stream.verdict().as_str()), (200, "snapshot"), "{format} {id}");
            }
        }
    }
}

/// Cursors into frames that never existed are a gap, told and valid.
#[tokio::test]
async fn p3_a_cursor_behind_a_frame_that_does_not_exist_is_a_gap() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let mut first = server.run("t", "r", "hello").await;
    puppet.allow(3);
    first.take(4).await;
    let mut live = server.follow("/runs/r/stream?after=r:2/9").await;
    assert_eq!((live.status(), live.verdict().as_str()), (200, "gap"));
    puppet.allow(100);
    assert_valid(&live.rest().await);
    first.rest().await;
    for id in ["r:2/1", "r:2/18446744073709551615", "r:18446744073709551615/1", "r:7/9"] {
        let mut ended = server.follow(&format!("/runs/r/stream?after={id}")).await;
        assert_eq!((ended.status(), ended.verdict().as_str()), (200, "gap"), "{id}");
        assert_valid(&ended.rest().await);
    }
}

/// A connection that breaks after every frame, while the run goes on.
#[tokio::test]
async fn p3_a_client_that_is_cut_after_every_frame_has_the_uncut_stream() {
    let demo = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let script: Vec<_> = events_of(&demo.run_to_end("t", "r", "think tools state").await).split_off(1);
    for (path, format) in [
        ("/runs/r/stream", "ag-ui"),
        ("/runs/r/stream", "hai"),
        ("/runs/r/stream", "ai-sdk@7"),
        ("/api/chat/t/stream", "ai-sdk@6"),
        ("/threads/t/stream", "ag-ui"),
        ("/threads/t/stream", "ag-ui@0"),
        ("/threads/t/stream", "hai"),
        ("/threads/t/stream", "ai-sdk@6"),
    ] {
        let played = script.clone();
        let puppet = Puppet::new(move |_| played.clone());
        let server = plan(puppet.clone()).on_memory().await;
        let mut first = server.run("t", "r", ALL).await;
        first.take(1).await;
        let path = format!("{path}?format={format}&profile={}", format.split('@').nth(1).unwrap_or(""));
        let mut uncut = server.follow(&path).await;
        let mut seen: Vec<Frame> = Vec::new();
        loop {
            let mut request = server.ask(Method::GET, &path);
            if let Some(last) = seen.last() {
                request = request.header("last-event-id", last.id.as_deref().expect("every frame has an id"));
            }
            let mut stream = Stream::of(request).await;
            if stream.status() == 204 {
                break;
            }
            assert_eq!((stream.status(), stream.verdict().as_str()), (200, "whole"), "{path}");
            // An event may become no frame.
            let frame = loop {
                puppet.allow(1);
                match tokio::time::timeout(Duration::from_millis(20), stream.next()).await {
                    Ok(frame) => break frame,
                    Err(_) => continue,
                }
            };
            seen.extend(frame);
        }
        assert_eq!(seen, uncut.rest().await, "{path}");
        first.rest().await;
    }
}

/// An `EventSource` reconnects until it gets 204.
#[tokio::test]
async fn event_source_stops_behind_the_last_event_of_an_ended_run() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 5));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let body = Server::input("t", "r", "hello");
        let mut first = Stream::of(server.post("/", &body)).await;
        puppet.allow(2);
        first.take(2).await;
        // Behind the last event so far, the stream goes on.
        let mut live =
            Stream::of(server.ask(Method::GET, "/threads/t/stream").header("last-event-id", "r:1")).await;
        assert_eq!(live.status(), 200);
        puppet.allow(100);
        assert_eq!(live.rest().await, first.rest().await);
        let last = "r:8";
        let with_cursor =
            |request: reqwest::RequestBuilder| Stream::of(request.header("last-event-id", last));
        let mut formats = sse_formats();
        formats.extend(["ag-ui-proto", "hai-proto", "ai-sdk@4"].map(str::to_owned));
        for format in formats {
            for route in ["/runs/r/stream", "/threads/t/stream"] {
                let path = format!("{route}?format={format}");
                let stream = with_cursor(server.ask(Method::GET, &path)).await;
                assert_eq!((stream.status(), stream.header("content-type")), (204, ""), "{path}");
                assert_eq!(stream.bytes().await, b"");
                let stream = server.follow(&format!("{path}&after={last}")).await;
                assert_eq!(stream.status(), 204, "{path}");
            }
        }
        let sync = serde_json::json!({"threadId": "t", "runId": "again", "messages": []});
        for (path, body) in [("/", &body), ("/awp", &body), ("/", &sync), ("/awp", &sync)] {
            assert_eq!(with_cursor(server.post(path, body)).await.status(), 204, "{path} {body}");
        }
        assert_eq!(with_cursor(server.ask(Method::GET, "/api/chat/t/stream")).await.status(), 204);
    }
}
