//! Upstream `openai` against a scripted chat completions server.

use agentwire_core::event::{Body, Context, Event, Message, Outcome, Tool};
use agentwire_gateway::{
    UpstreamError, codes,
    upstream::{Model, ModelOptions},
};
use serde_json::{Value, json};

use super::{
    kinds, play, request,
    server::{Server, Step, events, head, response},
};

fn options(url: &str) -> ModelOptions {
    ModelOptions { url: format!("{url}/v1"), model: "m1".into(), ..ModelOptions::default() }
}

fn agent(url: &str) -> Model {
    Model::new(options(url)).unwrap()
}

fn chunk(choices: Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m1", "choices": choices})
}

fn delta(delta: Value, finish: Option<&str>) -> Value {
    chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}]))
}

fn sse(frames: &[Value]) -> Vec<u8> {
    frames.iter().flat_map(|frame| format!("data: {frame}\n\n").into_bytes()).collect()
}

/// A stream with every quirk that the public wire format allows.
fn quirky() -> Vec<u8> {
    let mut usage = chunk(json!([]));
    usage["usage"] = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7});
    let frames = [
        json!({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}),
        delta(json!({"role": "assistant", "content": ""}), None),
        delta(json!({"content": null}), None),
        delta(json!({"content": "Sunny"}), None),
        delta(json!({"content": " today"}), None),
        delta(json!({}), Some("stop")),
        usage,
    ];
    [b": keep-alive\n\n".to_vec(), sse(&frames), b"data: [DONE]\n\n".to_vec()].concat()
}

fn text(events: &[Event]) -> String {
    let text = |event: &Event| match &event.body {
        Body::TextDelta { delta, .. } => Some(delta.to_string()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

fn last(events: &[Event]) -> &Body {
    &events.last().expect("an event").body
}

/// The error of a run against a server with this script.
async fn run_error(steps: Vec<Step>) -> UpstreamError {
    let server = Server::always(steps).await;
    play(&agent(&server.url), request()).await.1.unwrap_err()
}

#[tokio::test]
async fn sends_the_conversation_and_streams_the_completion() {
    let server = Server::always(events(&quirky())).await;
    let agent = Model::new(ModelOptions {
        system: Some("Be brief.".into()),
        api_key: Some("sk-1\n".into()),
        headers: vec![("x-team".into(), "a".into())],
        ..options(&server.url)
    })
    .unwrap();
    let mut run_request = request();
    let mut input = (*run_request.input).clone();
    input.context.push(Context { description: "Place".into(), value: "Oslo".into() });
    run_request.input = input.into();
    let (received, result) = play(&agent, run_request).await;
    result.unwrap();
    assert_eq!(text(&received), "Sunny today");
    assert!(kinds(&received).contains(&"FINISH_REASON"));
    let Body::RunFinished(finished) = last(&received) else { panic!("{received:#?}") };
    assert_eq!((&*finished.run, finished.usage[0].total), ("r1", Some(7)));
    let requests = server.requests();
    assert_eq!(requests[0].line(), "POST /v1/chat/completions");
    assert_eq!(requests[0].header("authorization"), Some("Bearer sk-1"));
    assert_eq!(requests[0].header("x-team"), Some("a"));
    let body = requests[0].json();
    assert_eq!((&body["model"], &body["stream"]), (&json!("m1"), &json!(true)));
    assert_eq!(body["stream_options"]["include_usage"], true);
    let roles: Vec<_> = body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "system", "user"]);
    assert_eq!(body["messages"][0]["content"], "Be brief.");
}

#[tokio::test]
async fn front_end_tool_calls_are_pending_and_their_results_are_sent() {
    let piece = |call: Value| delta(json!({"tool_calls": [call]}), None);
    let frames = [
        piece(
            json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "ask", "arguments": ""}}),
        ),
        piece(json!({"index": 0, "function": {"arguments": "{\"q\":"}})),
        piece(json!({"index": 0, "function": {"arguments": "1}"}})),
        delta(json!({}), Some("tool_calls")),
    ];
    let body = [sse(&frames), b"data: [DONE]\n\n".to_vec()].concat();
    let server = Server::new(move |request| {
        let answered = request.body.contains("\"tool_call_id\"");
        if answered { events(&quirky()) } else { events(&body) }
    })
    .await;
    let tool = Tool { name: "ask".into(), description: "Asks.".into(), parameters: None, metadata: None };
    let mut run_request = request();
    let mut input = (*run_request.input).clone();
    input.tools.push(tool);
    run_request.input = input.clone().into();
    let (received, result) = play(&agent(&server.url), run_request).await;
    result.unwrap();
    let Body::RunFinished(finished) = last(&received) else { panic!("{received:#?}") };
    assert_eq!(finished.outcome, Some(Outcome::Success { pending: vec!["call_1".into()] }));
    assert_eq!(server.requests()[0].json()["tools"][0]["function"]["name"], "ask");

    let mut fold = agentwire_core::fold::Fold::from_history(input.messages.clone(), None);
    received.iter().for_each(|event| fold.apply(event));
    input.messages = fold.messages().to_vec();
    let result =
        agentwire_core::event::MessageBody::Tool { call: "call_1".into(), content: "42".into(), error: None };
    input.messages.push(Message::new("m3", result));
    let mut run_request = request();
    run_request.input = input.into();
    let (received, result) = play(&agent(&server.url), run_request).await;
    result.unwrap();
    assert_eq!(text(&received), "Sunny today");
    let messages = server.requests()[1].json()["messages"].clone();
    assert_eq!(messages[1]["tool_calls"][0]["function"], json!({"name": "ask", "arguments": "{\"q\":1}"}));
    assert_eq!(messages[2], json!({"role": "tool", "tool_call_id": "call_1", "content": "42"}));
}

#[tokio::test]
async fn a_response_without_streaming_is_read() {
    let body = json!({"id": "c", "object": "chat.completion", "model": "m1", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Whole."}, "finish_reason": "stop"}]});
    for body in [body.to_string(), serde_json::to_string_pretty(&body).unwrap()] {
        let server = Server::always(response("200 OK", "application/json", body.as_bytes())).await;
        let (received, result) = play(&agent(&server.url), request()).await;
        result.unwrap();
        assert_eq!(text(&received), "Whole.");
        assert!(matches!(last(&received), Body::RunFinished(_)));
    }
}

#[tokio::test]
async fn chunk_boundaries_do_not_change_the_events() {
    let server = Server::always(events(&quirky())).await;
    let whole = play(&agent(&server.url), request()).await;
    let trickle = vec![Step::Send(head("200 OK", "text/event-stream")), Step::Trickle(quirky())];
    let server = Server::always(trickle).await;
    assert_eq!(play(&agent(&server.url), request()).await, whole);
}

#[tokio::test]
async fn error_messages_contain_the_status_but_not_the_body() {
    let error =
        json!({"error": {"message": "Incorrect API key: sk-secret", "type": "x", "code": "invalid_api_key"}});
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "404 Not Found",
        "429 Too Many Requests",
        "500 Internal Server Error",
    ] {
        let error = run_error(response(status, "application/json", error.to_string().as_bytes())).await;
        assert_eq!(error.code(), codes::UPSTREAM_STATUS, "{status}");
        assert!(error.to_string().contains(&status[..3]), "{error:?}");
        assert!(!error.to_string().contains("sk-secret"), "{error:?}");
        assert!(error.detail().is_some_and(|detail| detail.contains("invalid_api_key")));
    }
}

/// Some servers respond with status 200 before they know of an error.
#[tokio::test]
async fn an_error_object_with_status_200_fails_the_run() {
    let error =
        json!({"error": {"message": "no quota: sk-secret", "code": "insufficient_quota"}}).to_string();
    let role = delta(json!({"role": "assistant", "content": ""}), None);
    for steps in [
        response("200 OK", "application/json", error.as_bytes()),
        response("200 OK", "application/json", format!("[{error}]").as_bytes()),
        response("200 OK", "application/json", br#"{"detail": "no quota: sk-secret"}"#),
        response("200 OK", "application/json", br#"{"error": "no quota: sk-secret"}"#),
        events(format!(": waiting\n\ndata: {error}\n\ndata: [DONE]\n\n").as_bytes()),
        events(format!("data: {role}\n\ndata: {error}\n\n").as_bytes()),
        events(b"event: error\ndata: no quota: sk-secret\n\n"),
    ] {
        let error = run_error(steps).await;
        assert_eq!(error.code(), codes::UPSTREAM_FAILED, "{error:?}");
        assert!(!error.to_string().contains("sk-secret"), "{error:?}");
        assert!(error.detail().is_some_and(|detail| detail.contains("sk-secret")));
    }
}

#[tokio::test]
async fn a_response_that_is_not_a_completion_fails() {
    let page = response("200 OK", "text/html", b"<html>Sign in</html>");
    assert_eq!(run_error(page).await.code(), codes::UPSTREAM_BAD_CONTENT);
    let page = response("200 OK", "text/event-stream", b"<!doctype html>\n<title>Sign in</title>\n");
    assert_eq!(run_error(page).await.code(), codes::UPSTREAM_BAD_CONTENT);
    let other = response("200 OK", "application/json", b"{\"answer\": 42}\n");
    assert_eq!(run_error(other).await.code(), codes::UPSTREAM_BAD_CONTENT);
    assert_eq!(run_error(events(b"")).await.code(), codes::UPSTREAM_TRUNCATED);
    assert_eq!(run_error(events(b"data: {\"choices\": 1}\n\n")).await.code(), codes::UPSTREAM_MALFORMED);
    let half = quirky();
    let half = &half[..half.len() - 200];
    assert_eq!(run_error(events(half)).await.code(), codes::UPSTREAM_TRUNCATED);
    let cut = sse(&[delta(json!({"content": "Half"}), None)]);
    assert_eq!(run_error(events(&cut)).await.code(), codes::UPSTREAM_TRUNCATED);
}

#[tokio::test]
async fn an_error_within_the_stream_ends_the_run() {
    let frames = [
        delta(json!({"content": "I"}), None),
        json!({"error": {"message": "overloaded", "type": "server_error", "code": null}}),
        delta(json!({"content": "never"}), None),
    ];
    let server = Server::always(events(&sse(&frames))).await;
    let (received, result) = play(&agent(&server.url), request()).await;
    result.unwrap();
    assert_eq!(text(&received), "I");
    let Body::RunError(error) = last(&received) else { panic!("{received:#?}") };
    assert_eq!((error.code.as_deref(), &*error.message), (Some("server_error"), "overloaded"));
}

#[tokio::test]
async fn configured_members_are_sent_with_every_request() {
    let server = Server::always(events(&quirky())).await;
    let body = json!({"temperature": 0.2, "stop": ["\n\n"], "stream_options": {"include_usage": false},
        "tools": [{"type": "web_search"}], "extra": {"a": null}});
    let body = body.as_object().unwrap().clone();
    let agent = Model::new(ModelOptions { body: body.clone(), ..options(&server.url) }).unwrap();
    let tool = Tool { name: "ask".into(), description: "Asks.".into(), parameters: None, metadata: None };
    let mut run_request = request();
    let mut input = (*run_request.input).clone();
    input.tools.push(tool);
    run_request.input = input.into();
    play(&agent, run_request).await.1.unwrap();
    let sent = server.requests()[0].json();
    for name in ["temperature", "stop", "stream_options", "extra"] {
        assert_eq!(sent[name], body[name], "{name}");
    }
    assert_eq!((&sent["model"], &sent["stream"]), (&json!("m1"), &json!(true)));
    let kinds: Vec<_> = sent["tools"].as_array().unwrap().iter().map(|tool| &tool["type"]).collect();
    assert_eq!(kinds, ["web_search", "function"]);
    for name in ["model", "messages", "stream"] {
        let body = serde_json::Map::from_iter([(name.to_owned(), json!("x"))]);
        let refused = Model::new(ModelOptions { body, ..options(&server.url) }).unwrap_err().to_string();
        assert_eq!(refused, format!("the member `{name}` of a request cannot be chosen"));
    }
}

#[tokio::test]
async fn interleaved_calls_are_separated_by_index() {
    let piece = |index: u8, rest: Value| {
        let mut call = json!({"index": index});
        call.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        delta(json!({"tool_calls": [call]}), None)
    };
    let begin = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}});
    let more = |text: &str| json!({"function": {"arguments": text}});
    let frames = [
        delta(json!({"role": "assistant", "content": null}), None),
        piece(0, begin("a", "first")),
        piece(1, begin("b", "second")),
        piece(0, more("{\"x\":")),
        piece(1, more("{\"y\":")),
        piece(1, more("2}")),
        piece(0, more("1}")),
        delta(json!({}), Some("tool_calls")),
    ];
    // With and without `[DONE]`.
    for done in ["data: [DONE]\n\n", ""] {
        let body = [sse(&frames), done.as_bytes().to_vec()].concat();
        let server = Server::always(events(&body)).await;
        let (received, result) = play(&agent(&server.url), request()).await;
        result.unwrap();
        let mut fold = agentwire_core::fold::Fold::from_history(Vec::new(), None);
        received.iter().for_each(|event| fold.apply(event));
        let calls: Vec<_> = fold
            .messages()
            .iter()
            .filter_map(|message| match &message.body {
                agentwire_core::event::MessageBody::Assistant { tool_calls, .. } => tool_calls.clone(),
                _ => None,
            })
            .flatten()
            .map(|call| (call.id.to_string(), call.name.to_string(), call.arguments.to_string()))
            .collect();
        let wanted = [("a", "first", "{\"x\":1}"), ("b", "second", "{\"y\":2}")]
            .map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.to_owned()));
        assert_eq!(calls, wanted);
    }
}

#[test]
fn invalid_options_are_rejected() {
    let good = options("http://h");
    let refused = |options: ModelOptions| Model::new(options).unwrap_err().to_string();
    assert_eq!(refused(ModelOptions { model: String::new(), ..good.clone() }), "the model's name is empty");
    let error = refused(ModelOptions { api_key: Some("a\nb".into()), ..good.clone() });
    assert!(error.starts_with("header `authorization` has"), "{error}");
    assert!(!error.contains("a\nb"));
    let error = refused(ModelOptions { options: vec!["x=1".into()], ..good });
    assert!(error.starts_with("unknown option `x`"), "{error}");
}
