//! Upstream `adk` against a scripted API server; its responses are recordings of a real one.

use agentwire_core::{
    event::{Body, Message, MessageBody, RunInput, ToolCall},
    json::Json,
};
use agentwire_gateway::{
    agent::Request,
    codes,
    upstream::{Adk, AdkOptions},
};
use agentwire_store::{Owner, ThreadIds};
use serde_json::{Value, json};

use super::{
    fixture, kinds, play, request,
    server::{ReceivedRequest, Server, Step, events, response},
};

fn agent(server: &Server) -> Adk {
    Adk::new(options(server)).unwrap()
}

fn options(server: &Server) -> AdkOptions {
    AdkOptions { url: server.url.clone(), app: "demo".into(), ..AdkOptions::default() }
}

fn json_response(status: &str, body: &Value) -> Vec<Step> {
    response(status, "application/json", body.to_string().as_bytes())
}

fn is_run(request: &ReceivedRequest) -> bool {
    request.line() == "POST /run_sse"
}

fn with_state(state: &str) -> Request {
    let mut run_request = request();
    let mut input: RunInput = (*run_request.input).clone();
    input.state = Some(Json::parse(state).unwrap());
    run_request.input = input.into();
    run_request
}

#[tokio::test]
async fn the_first_run_creates_the_session_with_its_state() {
    let server = Server::new(|request| match request.line().split(' ').next() {
        Some("GET") => json_response("404 Not Found", &json!({"detail": "Session not found"})),
        _ if is_run(request) => events(&fixture("adk_tool.sse")),
        _ => json_response("200 OK", &json!({"id": "t1"})),
    })
    .await;
    let (received, result) = play(&agent(&server), with_state(r#"{"theme":"dark","user:x":1}"#)).await;
    result.unwrap();
    assert_eq!(kinds(&received).last(), Some(&"RUN_FINISHED"));
    let requests = server.requests();
    assert_eq!(requests[0].line(), "GET /apps/demo/users/default-user/sessions/t1");
    assert_eq!(requests[1].line(), "POST /apps/demo/users/default-user/sessions");
    assert_eq!(requests[1].json(), json!({"sessionId": "t1", "state": {"theme": "dark"}}));
    assert!(is_run(&requests[2]));
    assert_eq!(requests[2].header("accept"), Some("text/event-stream"));
    let body = requests[2].json();
    assert_eq!(body["streaming"], true);
    assert_eq!(body["newMessage"]["parts"], json!([{"text": "What is the weather?"}]));
    assert!(body.get("stateDelta").is_none(), "the state was set when the session was created");
}

#[tokio::test]
async fn later_runs_send_changed_keys_only() {
    let server = Server::new(|request| match is_run(request) {
        true => events(&fixture("adk_tool.sse")),
        false => json_response(
            "200 OK",
            &json!({"id": "t1", "appName": "demo", "userId": "u", "state": {"theme": "dark", "n": 1}, "events": [],
                "lastUpdateTime": 1.0}),
        ),
    })
    .await;
    play(&agent(&server), with_state(r#"{"theme":"dark","n":2,"new":true}"#)).await.1.unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].json()["stateDelta"], json!({"n": 2, "new": true}));
}

#[tokio::test]
async fn users_have_separate_sessions() {
    let server = Server::new(|request| match is_run(request) {
        true => events(&fixture("adk_tool.sse")),
        false => json_response("200 OK", &json!({"id": "x", "appName": "demo", "userId": "u", "state": {}, "events": [], "lastUpdateTime": 1.0})),
    })
    .await;
    let owner = Owner::new("acme", "ada@x", "a");
    play(&agent(&server), Request { owner: owner.clone(), ..request() }).await.1.unwrap();
    assert_eq!(server.requests()[0].line(), "GET /apps/demo/users/acme%25%25ada%40x/sessions/t1");
    // With one fixed user at the server, the session ids differ.
    let one = Adk::new(AdkOptions { user: Some("one".into()), ..options(&server) }).unwrap();
    let thread_ids = Some(ThreadIds::Scoped);
    play(&one, Request { owner, thread_ids, ..request() }).await.1.unwrap();
    play(&one, request()).await.1.unwrap();
    let requests = server.requests();
    assert!(requests[2].line().starts_with("GET /apps/demo/users/one/sessions/"));
    assert!(!requests[2].line().ends_with("/t1"));
    assert_eq!(requests[4].line(), "GET /apps/demo/users/one/sessions/t1");
}

#[tokio::test]
async fn http_errors_have_stable_codes() {
    let detail = json!({"detail": "secret"});
    let copy = detail.clone();
    let server = Server::new(move |request| match request.line().split(' ').next() {
        Some("POST") if !is_run(request) => json_response("200 OK", &json!({})),
        _ => json_response("404 Not Found", &copy),
    })
    .await;
    let error = play(&agent(&server), request()).await.1.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_STATUS);
    assert_eq!(error.to_string(), "the agent's server knows no app `demo` (404)");
    assert!(error.detail().unwrap().contains("secret"));
    for status in
        ["401 Unauthorized", "403 Forbidden", "422 Unprocessable Entity", "500 Internal Server Error"]
    {
        let server = Server::always(json_response(status, &detail)).await;
        let error = play(&agent(&server), request()).await.1.unwrap_err();
        assert_eq!(error.code(), codes::UPSTREAM_STATUS);
        assert!(error.to_string().contains(&status[..3]) && !error.to_string().contains("secret"), "{error}");
    }
    let server = Server::always(json_response("200 OK", &json!([1]))).await;
    let error = play(&agent(&server), request()).await.1.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_MALFORMED);
    // An answer to an unknown interrupt is rejected before a run starts.
    let session = fixture("adk_session.json");
    let server = Server::new(move |_| response("200 OK", "application/json", &session)).await;
    let mut run_request = request();
    let mut input = (*run_request.input).clone();
    input.resume = Some(vec![agentwire_core::event::ResumeEntry {
        interrupt: "nothing".into(),
        status: agentwire_core::event::ResumeStatus::Resolved,
        payload: None,
        metadata: None,
    }]);
    input.messages.clear();
    run_request.input = input.into();
    let error = play(&agent(&server), run_request).await.1.unwrap_err();
    assert_eq!(error.code(), "UNKNOWN_INTERRUPT");
    assert_eq!(server.requests().len(), 1);
    assert!(Adk::new(AdkOptions { url: "http://x".into(), ..AdkOptions::default() }).is_err());
}

#[tokio::test]
async fn a_stream_cut_within_a_turn_is_truncated() {
    let body = fixture("adk_tool.sse");
    for at in [0, 1, 100, 700, body.len() / 2] {
        let cut = body[..at].to_vec();
        let server = Server::new(move |request| match is_run(request) {
            true => events(&cut),
            false => json_response("200 OK", &json!({"id": "t1", "appName": "demo", "userId": "u", "state": {}, "events": [], "lastUpdateTime": 1.0})),
        })
        .await;
        let error = play(&agent(&server), request()).await.1.unwrap_err();
        assert_eq!(error.code(), codes::UPSTREAM_TRUNCATED, "{at}: {error:?}");
    }
}

/// A response with the given head and body, which ends with the connection.
fn raw(head: &str, body: &[u8]) -> Vec<Step> {
    vec![Step::Send([head.as_bytes(), body].concat())]
}

fn session(events: Value, state: Value) -> Value {
    json!({"id": "t1", "appName": "demo", "userId": "u", "state": state, "events": events, "lastUpdateTime": 1.0})
}

#[tokio::test]
async fn a_complete_stream_without_events_is_an_empty_run() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    for (head, body, is_complete) in [
        (format!("{HEAD}transfer-encoding: chunked\r\n\r\n"), "0\r\n\r\n", true),
        (format!("{HEAD}content-length: 0\r\n\r\n"), "", true),
        (format!("{HEAD}transfer-encoding: chunked\r\n\r\n"), "8\r\n: ping\n\n\r\n0\r\n\r\n", true),
        (HEAD.replace("1.1", "1.0") + "\r\n", "", true),
        (format!("{HEAD}transfer-encoding: chunked\r\n\r\n"), "", false),
        (format!("{HEAD}transfer-encoding: chunked\r\n\r\n"), "8\r\n: ping\n\n\r\n", false),
        (format!("{HEAD}transfer-encoding: chunked\r\n\r\n"), "3\r\ndat\r\n0\r\n\r\n", false),
        (format!("{HEAD}content-length: 9\r\n\r\n"), "", false),
        (format!("{HEAD}\r\n"), "", false),
    ] {
        let sent = head.clone();
        let server = Server::new(move |request| match is_run(request) {
            true => raw(&sent, body.as_bytes()),
            false => json_response("200 OK", &session(json!([]), json!({}))),
        })
        .await;
        let (received, result) = play(&agent(&server), request()).await;
        match is_complete {
            true => {
                result.unwrap_or_else(|error| panic!("{head}{body}: {error:?}"));
                assert_eq!(kinds(&received).last(), Some(&"RUN_FINISHED"), "{head}{body}");
            }
            false => {
                let error = result.expect_err(&format!("{head}{body}"));
                assert_eq!(error.code(), codes::UPSTREAM_TRUNCATED, "{head}{body}");
            }
        }
    }
}

#[tokio::test]
async fn a_lost_session_gets_the_conversation_and_is_reported() {
    for is_accepted in [true, false] {
        let server = Server::new(move |request| match request.line().split(' ').next() {
            Some("GET") => json_response("404 Not Found", &json!({"detail": "Session not found"})),
            _ if is_run(request) => events(&fixture("adk_tool.sse")),
            _ if !is_accepted && request.json().get("events").is_some() => {
                json_response("422 Unprocessable Entity", &json!({"detail": "no events"}))
            }
            _ => json_response("200 OK", &json!({"id": "t1"})),
        })
        .await;
        let mut run_request = request();
        let mut input: RunInput = (*run_request.input).clone();
        let calls = vec![ToolCall::new("c1", "look", r#"{"at":1}"#), ToolCall::new("c2", "never", "{}")];
        let tool_calls = Some(calls);
        let content = Some("I look.".into());
        let mut reply = Message::new("a1", MessageBody::Assistant { content, tool_calls });
        reply.name = Some("seer".into());
        let result = MessageBody::Tool { call: "c1".into(), content: "a bird".into(), error: None };
        input.messages = vec![
            Message::user("u1", "look"),
            reply,
            Message::new("t1", result),
            Message::assistant("a2", "A bird."),
            Message::user("u2", "again"),
        ];
        run_request.input = input.into();
        let (received, result) = play(&agent(&server), run_request).await;
        result.unwrap();
        let Body::Custom { name, value } = &received[0].body else { panic!("{received:?}") };
        assert_eq!((&**name, value.to_value()["code"].as_str()), ("adk.warning", Some("SESSION_LOST")));
        let requests = server.requests();
        let created = requests[1].json();
        assert_eq!(
            created["events"],
            json!([
                {"author": "user", "content": {"role": "user", "parts": [{"text": "look"}]}},
                {"author": "seer", "content": {"role": "model", "parts": [{"text": "I look."},
                    {"functionCall": {"id": "c1", "name": "look", "args": {"at": 1}}}]}},
                {"author": "seer", "content": {"role": "user", "parts": [
                    {"functionResponse": {"id": "c1", "name": "look", "response": {"result": "a bird"}}}]}},
                {"author": "seer", "content": {"role": "model", "parts": [{"text": "A bird."}]}},
            ])
        );
        let run = requests.last().unwrap().json();
        assert_eq!(run["newMessage"]["parts"], json!([{"text": "again"}]));
        assert_eq!(requests.len(), if is_accepted { 3 } else { 4 });
    }
}

#[tokio::test]
async fn a_result_of_a_lost_session_is_still_an_answer() {
    let server = Server::new(|request| match request.line().split(' ').next() {
        Some("GET") => json_response("404 Not Found", &json!({})),
        _ if is_run(request) => events(&fixture("adk_tool.sse")),
        _ => json_response("200 OK", &json!({"id": "t1"})),
    })
    .await;
    let mut run_request = request();
    let mut input: RunInput = (*run_request.input).clone();
    let tool_calls = Some(vec![ToolCall::new("c1", "pick", "{}")]);
    let result = MessageBody::Tool { call: "c1".into(), content: "blue".into(), error: None };
    input.messages = vec![
        Message::user("u1", "pick"),
        Message::new("a1", MessageBody::Assistant { content: None, tool_calls }),
        Message::new("t1", result),
    ];
    run_request.input = input.into();
    play(&agent(&server), run_request).await.1.unwrap();
    let requests = server.requests();
    assert_eq!(requests[1].json()["events"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        requests[2].json()["newMessage"]["parts"],
        json!([{"functionResponse": {"id": "c1", "name": "pick", "response": {"result": "blue"}}}])
    );
}

#[tokio::test]
async fn server_options_are_sent_with_every_run() {
    let server = Server::new(|request| match is_run(request) {
        true => events(&fixture("adk_tool.sse")),
        false => json_response("200 OK", &session(json!([]), json!({}))),
    })
    .await;
    let options = AdkOptions {
        no_streaming: true,
        custom_metadata: Some(json!({"run": "{{run}}", "n": 1})),
        service_tier: Some("flex".into()),
        ..options(&server)
    };
    play(&Adk::new(options).unwrap(), request()).await.1.unwrap();
    let body = server.requests().last().unwrap().json();
    assert_eq!(
        (&body["streaming"], &body["customMetadata"], &body["serviceTier"]),
        (&json!(false), &json!({"run": "r1", "n": 1}), &json!("flex"))
    );
    let invalid = AdkOptions {
        custom_metadata: Some(json!({"x": "{{nothing}}"})),
        ..AdkOptions { url: server.url.clone(), app: "demo".into(), ..AdkOptions::default() }
    };
    assert!(Adk::new(invalid).is_err());
}

#[tokio::test]
async fn a_message_that_the_session_has_is_not_sent_again() {
    let asked = json!([{"author": "user", "id": "e1", "content": {"role": "user", "parts": [{"text": "What is the weather?"}]}}]);
    let server = Server::new(move |request| match is_run(request) {
        true => events(&fixture("adk_tool.sse")),
        false => json_response("200 OK", &session(asked.clone(), json!({}))),
    })
    .await;
    let mut run_request = request();
    play(&agent(&server), run_request.clone()).await.1.unwrap();
    let mut input: RunInput = (*run_request.input).clone();
    input.messages.push(Message::user("m2", "And now?"));
    run_request.input = input.into();
    play(&agent(&server), run_request).await.1.unwrap();
    let sent: Vec<_> = server
        .requests()
        .iter()
        .filter(|request| is_run(request))
        .map(|request| request.json()["newMessage"]["parts"].clone())
        .collect();
    assert_eq!(sent, [json!([{"text": "What is the weather?"}]), json!([{"text": "And now?"}])]);
}
