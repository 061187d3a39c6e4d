//! Upstream `adk` against a scripted API server; its responses are recordings of a real one.

use agentwire_core::{event::RunInput, json::Json};
use agentwire_gateway::{
    agent::Request,
    codes,
    upstream::{Adk, AdkOptions},
};
use agentwire_store::Owner;
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
    play(&one, Request { owner, ..request() }).await.1.unwrap();
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
