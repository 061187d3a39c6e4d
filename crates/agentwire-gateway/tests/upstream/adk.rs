//! An ADK API server that is told what to say. What it says was recorded from a real one.

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
    server::{Seen, Server, Step, answer, events},
};

fn agent(server: &Server) -> Adk {
    Adk::new(options(server)).unwrap()
}

fn options(server: &Server) -> AdkOptions {
    AdkOptions { url: server.url.clone(), app: "demo".into(), ..AdkOptions::default() }
}

fn json_answer(status: &str, body: &Value) -> Vec<Step> {
    answer(status, "application/json", body.to_string().as_bytes())
}

fn is_run(seen: &Seen) -> bool {
    seen.line() == "POST /run_sse"
}

fn with_state(state: &str) -> Request {
    let mut asked = request();
    let mut input: RunInput = (*asked.input).clone();
    input.state = Some(Json::parse(state).unwrap());
    asked.input = input.into();
    asked
}

#[tokio::test]
async fn a_session_is_made_on_first_sight_with_its_state() {
    let server = Server::new(|seen| match seen.line().split(' ').next() {
        Some("GET") => json_answer("404 Not Found", &json!({"detail": "Session not found"})),
        _ if is_run(seen) => events(&fixture("adk_tool.sse")),
        _ => json_answer("200 OK", &json!({"id": "t1"})),
    })
    .await;
    let (told, result) = play(&agent(&server), with_state(r#"{"theme":"dark","user:x":1}"#)).await;
    result.unwrap();
    assert_eq!(kinds(&told).last(), Some(&"RUN_FINISHED"));
    let seen = server.seen();
    assert_eq!(seen[0].line(), "GET /apps/demo/users/default-user/sessions/t1");
    assert_eq!(seen[1].line(), "POST /apps/demo/users/default-user/sessions");
    assert_eq!(seen[1].json(), json!({"sessionId": "t1", "state": {"theme": "dark"}}));
    assert!(is_run(&seen[2]));
    assert_eq!(seen[2].header("accept"), Some("text/event-stream"));
    let body = seen[2].json();
    assert_eq!(body["streaming"], true);
    assert_eq!(body["newMessage"]["parts"], json!([{"text": "What is the weather?"}]));
    assert!(body.get("stateDelta").is_none(), "it was set when the session was made");
}

#[tokio::test]
async fn later_runs_send_changed_keys_only() {
    let server = Server::new(|seen| match is_run(seen) {
        true => events(&fixture("adk_tool.sse")),
        false => json_answer(
            "200 OK",
            &json!({"id": "t1", "appName": "demo", "userId": "u", "state": {"theme": "dark", "n": 1}, "events": [],
                "lastUpdateTime": 1.0}),
        ),
    })
    .await;
    play(&agent(&server), with_state(r#"{"theme":"dark","n":2,"new":true}"#)).await.1.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].json()["stateDelta"], json!({"n": 2, "new": true}));
}

#[tokio::test]
async fn users_are_kept_apart() {
    let server = Server::new(|seen| match is_run(seen) {
        true => events(&fixture("adk_tool.sse")),
        false => json_answer("200 OK", &json!({"id": "x", "appName": "demo", "userId": "u", "state": {}, "events": [], "lastUpdateTime": 1.0})),
    })
    .await;
    let owner = Owner::new("acme", "ada@x");
    play(&agent(&server), Request { owner: owner.clone(), ..request() }).await.1.unwrap();
    assert_eq!(server.seen()[0].line(), "GET /apps/demo/users/acme%25%25ada%40x/sessions/t1");
    // Where all of them are one user, their threads have different names.
    let one = Adk::new(AdkOptions { user: Some("one".into()), ..options(&server) }).unwrap();
    play(&one, Request { owner, ..request() }).await.1.unwrap();
    play(&one, request()).await.1.unwrap();
    let seen = server.seen();
    assert!(seen[2].line().starts_with("GET /apps/demo/users/one/sessions/"));
    assert!(!seen[2].line().ends_with("/t1"));
    assert_eq!(seen[4].line(), "GET /apps/demo/users/one/sessions/t1");
}

#[tokio::test]
async fn refusals_have_clear_codes() {
    let nothing = json!({"detail": "secret"});
    let copy = nothing.clone();
    let server = Server::new(move |seen| match seen.line().split(' ').next() {
        Some("POST") if !is_run(seen) => json_answer("200 OK", &json!({})),
        _ => json_answer("404 Not Found", &copy),
    })
    .await;
    let failure = play(&agent(&server), request()).await.1.unwrap_err();
    assert_eq!(failure.code(), codes::UPSTREAM_STATUS);
    assert_eq!(failure.to_string(), "the agent's server knows no app `demo` (404)");
    assert!(failure.detail().unwrap().contains("secret"));
    for status in
        ["401 Unauthorized", "403 Forbidden", "422 Unprocessable Entity", "500 Internal Server Error"]
    {
        let server = Server::always(json_answer(status, &nothing)).await;
        let failure = play(&agent(&server), request()).await.1.unwrap_err();
        assert_eq!(failure.code(), codes::UPSTREAM_STATUS);
        assert!(
            failure.to_string().contains(&status[..3]) && !failure.to_string().contains("secret"),
            "{failure}"
        );
    }
    let server = Server::always(json_answer("200 OK", &json!([1]))).await;
    let failure = play(&agent(&server), request()).await.1.unwrap_err();
    assert_eq!(failure.code(), codes::UPSTREAM_MALFORMED);
    // An answer to nothing is refused before anything is run.
    let session = fixture("adk_session.json");
    let server = Server::new(move |_| answer("200 OK", "application/json", &session)).await;
    let mut asked = request();
    let mut input = (*asked.input).clone();
    input.resume = Some(vec![agentwire_core::event::ResumeEntry {
        interrupt: "nothing".into(),
        status: agentwire_core::event::ResumeStatus::Resolved,
        payload: None,
        metadata: None,
    }]);
    input.messages.clear();
    asked.input = input.into();
    let failure = play(&agent(&server), asked).await.1.unwrap_err();
    assert_eq!(failure.code(), "UNKNOWN_INTERRUPT");
    assert_eq!(server.seen().len(), 1);
    assert!(Adk::new(AdkOptions { url: "http://x".into(), ..AdkOptions::default() }).is_err());
}

#[tokio::test]
async fn a_stream_that_is_cut_in_a_turn_is_truncated() {
    let body = fixture("adk_tool.sse");
    for at in [0, 1, 100, 700, body.len() / 2] {
        let cut = body[..at].to_vec();
        let server = Server::new(move |seen| match is_run(seen) {
            true => events(&cut),
            false => json_answer("200 OK", &json!({"id": "t1", "appName": "demo", "userId": "u", "state": {}, "events": [], "lastUpdateTime": 1.0})),
        })
        .await;
        let failure = play(&agent(&server), request()).await.1.unwrap_err();
        assert_eq!(failure.code(), codes::UPSTREAM_TRUNCATED, "{at}: {failure:?}");
    }
}
