//! Each protocol as its clients expect it: content types, headers, ids, profiles, resume, stop.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{agent::Demo, settings::Sse};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

fn chat(text: &str) -> Value {
    json!({"id": "t", "trigger": "submit-message",
        "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}]})
}

#[tokio::test]
async fn streams_have_exact_headers() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let body = Server::input("t", "r", "tools");
    let cases = [
        (None, "text/event-stream"),
        (Some("*/*"), "text/event-stream"),
        (Some("text/event-stream"), "text/event-stream"),
        (Some("application/vnd.ag-ui.event+proto"), "application/vnd.ag-ui.event+proto"),
        (Some("application/vnd.ag-ui.event+proto;q=0, */*"), "text/event-stream"),
        (
            Some("text/event-stream, application/vnd.ag-ui.event+proto;q=0.5"),
            "application/vnd.ag-ui.event+proto",
        ),
    ];
    for (accept, content_type) in cases {
        let mut request = server.post("/", &body);
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let stream = Stream::of(request).await;
        assert_eq!(stream.status(), 200);
        assert_eq!(stream.header("content-type"), content_type, "{accept:?}");
        assert_eq!(stream.header("cache-control"), "no-store, no-transform");
        assert_eq!(stream.header("x-accel-buffering"), "no");
        assert_eq!((stream.header("x-thread-id"), stream.header("x-run-id")), ("t", "r"));
    }
    for (accept, content_type) in
        [("*/*", "text/event-stream"), ("application/vnd.hai.event+proto", "application/vnd.hai.event+proto")]
    {
        let hai = json!({"messages": [{"role": "user", "content": "tools"}]});
        let stream = Stream::of(server.post("/awp", &hai).header("accept", accept)).await;
        assert_eq!((stream.status(), stream.header("content-type")), (200, content_type));
        assert!(!stream.bytes().await.is_empty());
    }
}

/// The binary stream says what the text does.
#[tokio::test]
async fn binary_frames_hold_the_same_events() {
    use agentwire_core::{
        format::{Options, Setup, ag_ui},
        framing::{Decoder, Framing},
    };
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let text = server.whole("t", "r", "think tools state").await;
    let binary = server
        .post("/", &Server::input("t", "r", "think tools state"))
        .header("accept", "application/vnd.ag-ui.event+proto");
    let bytes = Stream::of(binary).await.bytes().await;
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut reader = ag_ui::proto::FORMAT.reader.expect("a reader")(&setup);
    let mut decoder = Decoder::new(Framing::Prefixed, 1 << 20);
    decoder.push(&bytes);
    decoder.finish();
    let mut events = Vec::new();
    while let Some(frame) = decoder.next_frame() {
        reader.read(&frame.expect("a frame"), &mut events).expect("an event");
    }
    let kinds: Vec<_> = events.iter().map(agentwire_core::event::Event::kind).collect();
    let expected: Vec<_> = events_of(&text).iter().map(agentwire_core::event::Event::kind).collect();
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn standard_sse_names_its_events() {
    let server =
        plan(Arc::new(Demo::without_pauses())).set(|settings| settings.sse = Sse::Standard).on_memory().await;
    let frames = server.whole("t", "r", "tools").await;
    valid(&frames);
    assert!(frames.iter().all(|frame| frame.name.as_deref() == Some(frame.kind().as_str())));
    let plain = plan(Arc::new(Demo::without_pauses())).on_memory().await.whole("t", "r", "tools").await;
    assert!(plain.iter().all(|frame| frame.name.is_none()));
}

#[tokio::test]
async fn hai_requests_need_no_ids() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .agent(|agent| agent.hai_close_delay = Duration::from_millis(20))
        .on_memory()
        .await;
    for path in ["/awp", "/chat", "/agents/demo/awp", "/agents/demo/chat"] {
        let body = json!({"messages": [{"role": "user", "content": "think tools"}], "context": null});
        let mut stream = Stream::of(server.post(path, &body)).await;
        assert_eq!(stream.status(), 200, "{path}");
        let (thread, run) = (stream.header("x-thread-id").to_owned(), stream.header("x-run-id").to_owned());
        assert!(!thread.is_empty() && !run.is_empty());
        let frames = stream.rest().await;
        assert_eq!(types(&frames).first().map(String::as_str), Some("RUN_STARTED"));
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"));
        assert_eq!(frames[0].json()["threadId"], thread.as_str());
        let again = server.follow(&format!("/runs/{run}/stream?format=hai")).await.rest().await;
        assert_eq!(again, frames);
        assert_eq!(server.json(&format!("/message_snapshot/{thread}")).await.0, 200);
    }
    assert_eq!(server.json("/thread/list").await.1.as_array().expect("a list").len(), 4);
}

#[tokio::test]
async fn ai_sdk_streams_come_in_the_profile_that_was_asked_for() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    for (number, profile) in ["", "?profile=5", "?profile=6", "?profile=7"].into_iter().enumerate() {
        let mut body = chat("think tools");
        body["id"] = json!(format!("t{number}"));
        let mut stream = Stream::of(server.post(&format!("/api/chat{profile}"), &body)).await;
        assert_eq!(stream.header("content-type"), "text/event-stream");
        assert_eq!(stream.header("x-vercel-ai-ui-message-stream"), "v1", "{profile}");
        let frames = stream.rest().await;
        assert_eq!(frames[0].kind(), "start");
        assert_eq!(frames.last().expect("an end").data, "[DONE]");
    }
    let mut body = json!({"id": "t4", "messages": [{"id": "u", "role": "user", "content": "think tools"}]});
    let stream = Stream::of(server.post("/api/chat?profile=4", &body)).await;
    assert_eq!(stream.header("x-vercel-ai-data-stream"), "v1");
    let text = String::from_utf8(stream.bytes().await).expect("UTF-8");
    assert!(text.lines().all(|line| line.chars().nth(1) == Some(':')), "{text}");
    assert!(text.contains("\nd:"), "{text}");
    body["id"] = json!("t5");
    assert_eq!(answer(server.post("/api/chat?profile=3", &body)).await.0, 400);
}

#[tokio::test]
async fn ai_sdk_chats_resume_and_stop() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let resume = || server.ask(Method::GET, "/api/chat/t/stream");
    assert_eq!(resume().send().await.expect("an answer").status(), 204, "nothing runs");
    let mut first = Stream::of(server.post("/api/chat", &chat("hello"))).await;
    puppet.allow(2);
    let mut seen = first.take(1).await;
    let mut second = Stream::of(resume()).await;
    assert_eq!(second.status(), 200);
    let from_start = second.take(1).await;
    assert_eq!(from_start, seen, "it begins at the start");
    let (status, body) = answer(server.ask(Method::POST, "/api/chat/t/stop")).await;
    assert_eq!((status.as_u16(), body), (200, json!({"status": "stopped"})));
    seen.extend(first.rest().await);
    let mut again = from_start;
    again.extend(second.rest().await);
    assert_eq!(again, seen);
    assert!(seen.iter().any(|frame| frame.data.contains(r#""type":"abort""#)), "{seen:?}");
    assert_eq!(seen.last().expect("an end").data, "[DONE]");
    let (status, body) = answer(server.ask(Method::POST, "/api/chat/t/stop")).await;
    assert_eq!((status.as_u16(), body), (200, json!({"status": "idle"})));
    assert_eq!(resume().send().await.expect("an answer").status(), 204);
    assert_eq!(
        server.ask(Method::GET, "/api/chat/unknown/stream").send().await.expect("an answer").status(),
        204
    );
}

#[tokio::test]
async fn ai_sdk_regenerates_the_last_answer() {
    let puppet = Puppet::eager(|input| talk(input, 2));
    let server = plan(puppet.clone()).on_memory().await;
    Stream::of(server.post("/api/chat", &chat("hello"))).await.rest().await;
    let (_, messages) = server.json("/message_snapshot/t?format=ai-sdk").await;
    let answer_id = messages[1]["id"].clone();
    let mut body = chat("hello");
    (body["trigger"], body["messageId"]) = (json!("regenerate-message"), answer_id.clone());
    Stream::of(server.post("/api/chat", &body)).await.rest().await;
    let asked: Vec<_> =
        puppet.last_request().input.messages.iter().map(|message| message.id.to_string()).collect();
    assert_eq!(asked, ["u"], "the old answer is not part of the question");
    let (_, messages) = server.json("/message_snapshot/t?format=ai-sdk").await;
    assert_eq!(messages.as_array().expect("a list").len(), 2);
    assert_ne!(messages[1]["id"], answer_id);
}

#[tokio::test]
async fn pages_of_listed_origins_may_read_and_others_may_not() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .set(|settings| settings.cors = vec!["https://good.example".into()])
        .on_memory()
        .await;
    for (origin, allowed) in [
        ("https://good.example", true),
        ("https://evil-good.example", false),
        ("https://good.example.evil", false),
        ("null", false),
    ] {
        let response =
            server.ask(Method::GET, "/livez").header("origin", origin).send().await.expect("an answer");
        let header = response.headers().get("access-control-allow-origin");
        assert_eq!(header.map(|value| value.to_str().expect("ASCII")), allowed.then_some(origin));
    }
    let closed = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let response = closed
        .ask(Method::GET, "/livez")
        .header("origin", "https://good.example")
        .send()
        .await
        .expect("an answer");
    assert!(!response.headers().contains_key("access-control-allow-origin"));
}
