//! Output formats as their clients expect them: content types, headers, ids, profiles, resume, stop.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use agentwire_core::event::{Message, MessageBody, Role, RunInput};
use agentwire_gateway::{
    agent::{Demo, agent_fn},
    settings::Sse,
};
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
        (Some("text/event-stream, application/vnd.ag-ui.event+proto;q=0.5"), "text/event-stream"),
        (
            Some("text/event-stream;q=0.4, application/vnd.ag-ui.event+proto;q=0.5"),
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

/// The binary stream contains the same events as the text stream.
#[tokio::test]
async fn binary_frames_contain_the_same_events() {
    use agentwire_core::{
        format::{Options, Setup, ag_ui},
        framing::{Decoder, Framing},
    };
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let text = server.run_to_end("t", "r", "think tools state").await;
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
    let frames = server.run_to_end("t", "r", "tools").await;
    assert_valid(&frames);
    assert!(frames.iter().all(|frame| frame.name.as_deref() == Some(frame.kind().as_str())));
    let plain = plan(Arc::new(Demo::without_pauses())).on_memory().await.run_to_end("t", "r", "tools").await;
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
        let replayed = server.follow(&format!("/runs/{run}/stream?format=hai")).await.rest().await;
        assert_eq!(replayed, frames);
        assert_eq!(server.json(&format!("/message_snapshot/{thread}")).await.0, 200);
    }
    assert_eq!(server.json("/thread/list").await.1.as_array().expect("a list").len(), 4);
}

#[tokio::test]
async fn ai_sdk_streams_use_the_requested_profile() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    for (number, profile) in ["", "?profile=5", "?profile=6", "?profile=7"].into_iter().enumerate() {
        let mut body = chat("think tools");
        body["id"] = json!(format!("t{number}"));
        let mut stream = Stream::of(server.post(&format!("/api/chat{profile}"), &body)).await;
        assert_eq!(stream.header("content-type"), "text/event-stream");
        assert_eq!(stream.header("x-vercel-ai-ui-message-stream"), "v1", "{profile}");
        let frames = stream.rest().await;
        assert_eq!(frames[0].kind(), "start");
        assert_eq!(frames.last().expect("a last frame").data, "[DONE]");
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
    assert_eq!(resume().send().await.expect("a response").status(), 204, "no active run");
    let mut first = Stream::of(server.post("/api/chat", &chat("hello"))).await;
    puppet.allow(2);
    let mut seen = first.take(1).await;
    let mut second = Stream::of(resume()).await;
    assert_eq!(second.status(), 200);
    let from_start = second.take(1).await;
    assert_eq!(from_start, seen, "a resumed stream starts at the first event");
    let (status, body) = answer(server.ask(Method::POST, "/api/chat/t/stop")).await;
    assert_eq!((status.as_u16(), body), (200, json!({"status": "stopped"})));
    seen.extend(first.rest().await);
    let mut resumed = from_start;
    resumed.extend(second.rest().await);
    assert_eq!(resumed, seen);
    assert!(seen.iter().any(|frame| frame.data.contains(r#""type":"abort""#)), "{seen:?}");
    assert_eq!(seen.last().expect("a last frame").data, "[DONE]");
    let (status, body) = answer(server.ask(Method::POST, "/api/chat/t/stop")).await;
    assert_eq!((status.as_u16(), body), (200, json!({"status": "idle"})));
    assert_eq!(resume().send().await.expect("a response").status(), 204);
    assert_eq!(
        server.ask(Method::GET, "/api/chat/unknown/stream").send().await.expect("a response").status(),
        204
    );
}

#[tokio::test]
async fn ai_sdk_regenerates_the_last_turn() {
    let puppet = Puppet::eager(|input| talk(input, 2));
    let server = plan(puppet.clone()).on_memory().await;
    Stream::of(server.post("/api/chat", &chat("hello"))).await.rest().await;
    let (_, messages) = server.json("/message_snapshot/t?format=ai-sdk").await;
    let message_id = messages[1]["id"].clone();
    let mut body = chat("hello");
    (body["trigger"], body["messageId"]) = (json!("regenerate-message"), message_id.clone());
    Stream::of(server.post("/api/chat", &body)).await.rest().await;
    let sent: Vec<_> =
        puppet.last_request().input.messages.iter().map(|message| message.id.to_string()).collect();
    assert_eq!(sent, ["u"], "the replaced message is not sent to the agent");
    let (_, messages) = server.json("/message_snapshot/t?format=ai-sdk").await;
    assert_eq!(messages.as_array().expect("a list").len(), 2);
    assert_ne!(messages[1]["id"], message_id);
}

/// `useChat` of version 4 resumes at another address and treats 204 as an error.
#[tokio::test]
async fn ai_sdk_4_chats_resume() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let text = async |stream: Stream| String::from_utf8(stream.bytes().await).expect("UTF-8");
    let resume = async |query: &str| {
        let stream = Stream::of(server.ask(Method::GET, &format!("/api/chat?{query}"))).await;
        assert_eq!((stream.status(), stream.header("x-vercel-ai-data-stream")), (200, "v1"));
        stream
    };
    assert_eq!(text(resume("chatId=a%20chat").await).await, "", "no active run");
    let mut body = chat("hello");
    body["id"] = json!("a chat");
    let first = Stream::of(server.post("/api/chat?profile=4", &body)).await;
    let second = resume("chatId=a%20chat").await;
    // The address of the page has a query already.
    let third = resume("profile=4?chatId=a%20chat").await;
    puppet.allow(100);
    let whole = text(first).await;
    assert!(whole.contains("0:\"w0 \"\n"), "{whole}");
    assert_eq!(text(second).await, whole);
    assert_eq!(text(third).await, whole);
    let (status, body) = answer(server.ask(Method::GET, "/api/chat")).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (400, Some("BAD_REQUEST")));
}

/// A page that loads the history has a message under the id that the page which started the run has, also after the
/// message continued after a front-end tool.
#[tokio::test]
async fn ai_sdk_messages_keep_their_id_in_history() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let history = async || {
        let (_, messages) = server.json("/message_snapshot/t?format=ai-sdk&profile=6").await;
        messages.as_array().expect("a list").clone()
    };
    let mut body = chat("confirm");
    body["tools"] = json!([{"name": "confirmAction", "description": "", "parameters": {}}]);
    let frames = Stream::of(server.post("/api/chat?profile=6", &body)).await.rest().await;
    let id = frames[0].json()["messageId"].clone();
    let history_messages = history().await;
    assert_eq!((history_messages.len(), &history_messages[1]["id"]), (2, &id));
    let mut answered = history_messages[1].clone();
    let parts = answered["parts"].as_array_mut().expect("parts");
    let call = parts.iter_mut().find(|part| part["toolCallId"].is_string()).expect("a call");
    (call["state"], call["output"]) = (json!("output-available"), json!({"confirmed": true}));
    (body["messages"], body["messageId"]) = (json!([history_messages[0], answered]), id.clone());
    let frames = Stream::of(server.post("/api/chat?profile=6", &body)).await.rest().await;
    assert_eq!(frames[0].json()["messageId"], id, "the message continues");
    let history_messages = history().await;
    assert_eq!((history_messages.len(), &history_messages[1]["id"]), (2, &id));
    // Other formats do not show it.
    server.run_to_end("other", "r", "hello").await;
    let (_, other) = server.json("/message_snapshot/other").await;
    assert!(!other.to_string().contains("aiSdk"), "{other}");
}

/// As on other routes, the profile follows an `@` or is a parameter of its own.
#[tokio::test]
async fn ai_sdk_history_uses_the_requested_profile() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    Stream::of(server.post("/api/chat", &chat("approve"))).await.rest().await;
    let six = server.json("/message_snapshot/t?format=ai-sdk@6").await;
    let five = server.json("/message_snapshot/t?format=ai-sdk@5").await;
    assert_eq!(server.json("/message_snapshot/t?format=ai-sdk&profile=6").await, six);
    assert_eq!(server.json("/message_snapshot/t?profile=5&format=ai-sdk").await, five);
    assert_eq!(server.json("/message_snapshot/t?format=ai-sdk&profile=3").await.0, 400);
    assert_eq!(server.json("/message_snapshot/t?format=ai-sdk&profile=9").await.0, 400);
}

#[tokio::test]
async fn cors_allows_listed_origins_only() {
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
            server.ask(Method::GET, "/livez").header("origin", origin).send().await.expect("a response");
        let header = response.headers().get("access-control-allow-origin");
        assert_eq!(header.map(|value| value.to_str().expect("ASCII")), allowed.then_some(origin));
    }
    let closed = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let response = closed
        .ask(Method::GET, "/livez")
        .header("origin", "https://good.example")
        .send()
        .await
        .expect("a response");
    assert!(!response.headers().contains_key("access-control-allow-origin"));
}

/// `useChat` of version 4 sends no message ids, or only those of whole turns, and has no marker for a regenerated turn. The
/// agent must get every message once.
#[tokio::test]
async fn ai_sdk_4_histories_are_not_duplicated() {
    for named in [false, true] {
        let puppet = Puppet::eager(|input| talk(input, 1));
        let server = plan(puppet.clone()).on_memory().await;
        let mut messages: Vec<Value> = Vec::new();
        let send_turn = async |messages: &mut Vec<Value>| {
            let body = json!({"id": "t", "messages": messages});
            let stream = Stream::of(server.post("/api/chat?profile=4", &body)).await;
            let text = String::from_utf8(stream.bytes().await).expect("UTF-8");
            let step = text.lines().find_map(|line| line.strip_prefix("f:")).expect("a step");
            let id = serde_json::from_str::<Value>(step).expect("JSON")["messageId"].clone();
            let mut turn_message = json!({"role": "assistant", "content": "w0 ", "parts": [
                {"type": "step-start"}, {"type": "reasoning", "reasoning": "hm", "details": []},
                {"type": "text", "text": "w0 "}]});
            if named {
                turn_message["id"] = id;
            }
            messages.push(turn_message);
            puppet
                .last_request()
                .input
                .messages
                .iter()
                .map(|it| it.role().as_str().to_owned())
                .collect::<Vec<_>>()
        };
        for (turn, text) in ["one", "two", "three"].into_iter().enumerate() {
            let mut question = json!({"role": "user", "content": text});
            if named {
                question["id"] = json!(format!("u{turn}"));
            }
            messages.push(question);
            let roles = send_turn(&mut messages).await;
            let expected: Vec<_> = ["user", "assistant"].into_iter().cycle().take(2 * turn + 1).collect();
            assert_eq!(roles, expected, "{text}, named: {named}");
        }
        messages.pop();
        assert_eq!(send_turn(&mut messages).await.len(), 5, "the replaced message is not sent to the agent");
        let (_, stored) = server.json("/message_snapshot/t").await;
        assert_eq!(stored["messages"].as_array().expect("a list").len(), 6, "{stored}");
    }
}

/// A client that declares no version gets the profile for 0.0.5x, and keeps it when it reconnects.
#[tokio::test]
async fn the_ag_ui_profile_is_that_of_the_client() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let input = |run: &str, version: Option<&str>| {
        let mut input = Server::input(run, run, "subagent confirm");
        match version {
            Some(version) => input["protocolVersion"] = json!(version),
            None => drop(input.as_object_mut().and_then(|members| members.remove("protocolVersion"))),
        }
        input
    };
    // Path, declared version, and whether the events are those of 1.0.
    let cases = [
        ("old", "/", None, false),
        ("older", "/", Some("0.9"), false),
        ("new", "/", Some("1.0"), true),
        ("newer", "/", Some("2.3"), true),
        ("forced", "/?profile=1", None, true),
        ("named", "/?profile=0.0.5x", Some("1.0"), false),
        ("asked", "/?profile=auto", Some("1.0"), true),
    ];
    for (run, path, version, is_new) in cases {
        let frames = Stream::of(server.post(path, &input(run, version))).await.rest().await;
        let events: Vec<_> = frames.iter().map(Frame::json).collect();
        assert_eq!(events.iter().any(|event| event["type"] == "SUBAGENT_STARTED"), is_new, "{run}");
        let last = events.last().expect("a terminal event");
        assert_eq!(last["outcome"]["type"], "success", "{run}");
        assert_eq!(last["outcome"].get("pendingToolCallIds").is_some(), is_new, "{run}");
        let again = server.follow(&format!("/runs/{run}/stream")).await.rest().await;
        assert_eq!(again.iter().map(Frame::json).collect::<Vec<_>>(), events, "{run}");
        let after = frames[0].id.clone().expect("a cursor");
        let rest = server.follow(&format!("/threads/{run}/stream?after={after}")).await.rest().await;
        assert_eq!(rest.iter().map(Frame::json).collect::<Vec<_>>(), events[1..], "{run}");
        let explicit = server.follow(&format!("/runs/{run}/stream?profile=1")).await.rest().await;
        assert!(explicit.iter().any(|frame| frame.json()["type"] == "SUBAGENT_STARTED"), "{run}");
    }
    let (status, refused) = answer(server.post("/?profile=2", &input("none", None))).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (400, &json!("UNKNOWN_FORMAT")));
    assert!(refused["error"]["hint"].as_str().is_some_and(|hint| hint.contains("`auto`, `1`, `0.0.5x`")));
}

/// The bodies of assistant-ui: `threadId`, `system`, a map of tools, messages of the LanguageModel form.
#[tokio::test]
async fn requests_of_assistant_ui_reach_the_agent() {
    let seen: Arc<Mutex<Vec<RunInput>>> = Arc::default();
    let recorded = Arc::clone(&seen);
    let agent = agent_fn(move |request, emit| {
        recorded.lock().expect("no panic").push((*request.input).clone());
        async move {
            emit.text("Done.").await?;
            Ok(())
        }
    });
    let server = plan(agent).on_memory().await;
    let user =
        |id: &str, text: &str| json!({"id": id, "role": "user", "content": [{"type": "text", "text": text}]});
    let tools = json!({"pick": {"description": "Picks.", "parameters": {"type": "object"}}});
    for (system, messages) in [
        (Some("Be brief."), json!([user("u1", "hi")])),
        (Some("Be long."), json!([user("u2", "go on")])),
        (None, json!([user("u3", "and on")])),
    ] {
        let mut body = json!({"threadId": "au", "tools": tools, "messages": messages});
        if let Some(system) = system {
            body["system"] = system.into();
        }
        Stream::of(server.post("/api/chat", &body)).await.rest().await;
        let input = seen.lock().expect("no panic").last().expect("a run").clone();
        assert_eq!(input.thread.as_str(), "au");
        assert_eq!((&*input.tools[0].name, &*input.tools[0].description), ("pick", "Picks."));
        assert_eq!(input.forwarded.map(|it| it.to_value()).unwrap_or_default(), Value::Null);
        let systems: Vec<_> = input
            .messages
            .iter()
            .enumerate()
            .filter_map(|(index, message)| match &message.body {
                MessageBody::System { content } => Some((index, content.to_string())),
                _ => None,
            })
            .collect();
        assert_eq!(systems, system.map(|text| (0, text.to_owned())).into_iter().collect::<Vec<_>>());
    }
    let (_, history) = server.json("/message_snapshot/au?format=ai-sdk").await;
    let roles: Vec<_> = history.as_array().expect("a list").iter().map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user", "assistant"]);
    let conversation = json!({"threadId": "lm", "messages": [
        user("u1", "look"),
        {"role": "assistant", "content": [{"type": "text", "text": "I look."},
            {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"at": 1}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "look",
            "output": {"type": "text", "value": "a bird"}}]},
        {"role": "user", "content": [{"type": "text", "text": "and?"},
            {"type": "file", "mediaType": "text/plain", "data": "aGk=", "filename": "n.txt"}]},
    ]});
    Stream::of(server.post("/api/chat", &conversation)).await.rest().await;
    let input = seen.lock().expect("no panic").last().expect("a run").clone();
    let roles: Vec<_> = input.messages.iter().map(Message::role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::User]);
    assert_eq!(&*input.messages[1].tool_calls()[0].name, "look");
}

#[tokio::test]
async fn the_profile_of_a_page_is_remembered_for_its_thread() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone()).on_memory().await;
    let mut first = Stream::of(server.post("/api/chat?profile=5", &chat("hello"))).await;
    puppet.allow(2);
    first.take(1).await;
    let mut resumed = Stream::of(server.ask(Method::GET, "/api/chat/t/stream")).await;
    puppet.allow(100);
    first.rest().await;
    let frames = resumed.rest().await;
    let finish = frames.iter().find(|frame| frame.kind() == "finish").expect("an end");
    assert!(finish.json().get("finishReason").is_none(), "a field that version 5 refuses");
    let five = server.json("/message_snapshot/t?format=ai-sdk@5").await;
    assert_eq!(server.json("/message_snapshot/t?format=ai-sdk").await, five);
    assert_eq!(five.1[1]["parts"][0]["type"], "step-start");
}
