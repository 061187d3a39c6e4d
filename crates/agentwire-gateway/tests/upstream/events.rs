//! Upstream `events`: templates, methods and formats of any HTTP route.

use agentwire_gateway::{
    codes,
    upstream::{Events, EventsOptions},
};
use serde_json::json;

use super::{
    fixture, kinds, play, request,
    server::{Server, events, response},
};

#[tokio::test]
async fn url_and_body_are_filled_from_the_run() {
    let server = Server::always(response("200 OK", "text/plain", &fixture("langgraph_tools.jsonl"))).await;
    let agent = Events::new(EventsOptions {
        url: format!("{}/{{{{thread}}}}/stream_events", server.url),
        method: Some("put".into()),
        headers: vec![("x-key".into(), "k".into())],
        body: Some(json!({"input": {"question": "{{message}}", "all": "{{messages}}"}, "version": "v2"})),
        format: Some("langgraph".into()),
        options: vec!["steps=none".into()],
    })
    .unwrap();
    let (received, result) = play(&agent, request()).await;
    result.unwrap();
    assert!(kinds(&received).contains(&"TOOL_CALL_START"));
    assert!(!kinds(&received).contains(&"STEP_STARTED"), "`steps=none` applies");
    let requests = server.requests();
    assert_eq!(requests[0].line(), "PUT /t1/stream_events");
    assert_eq!(requests[0].header("x-key"), Some("k"));
    let body = requests[0].json();
    assert_eq!(body["input"]["question"], "What is the weather?");
    assert_eq!(body["input"]["all"][0]["role"], "user");
    assert_eq!(body["version"], "v2");
}

#[tokio::test]
async fn without_a_template_the_run_input_is_posted_and_the_format_detected() {
    let server = Server::always(events(&fixture("adk_tool.sse"))).await;
    let agent = Events::new(EventsOptions { url: server.url.clone(), ..EventsOptions::default() }).unwrap();
    let (received, result) = play(&agent, request()).await;
    result.unwrap();
    assert_eq!(kinds(&received).last(), Some(&"RUN_FINISHED"));
    assert_eq!(server.requests()[0].json()["threadId"], "t1");
}

#[tokio::test]
async fn a_get_request_has_no_body() {
    let server = Server::always(events(&fixture("weather_tool.sse"))).await;
    let url = format!("{}/ask?q={{{{message}}}}", server.url);
    let agent =
        Events::new(EventsOptions { url, method: Some("GET".into()), ..EventsOptions::default() }).unwrap();
    let (_, result) = play(&agent, request()).await;
    result.unwrap();
    assert_eq!(server.requests()[0].line(), "GET /ask?q=What%20is%20the%20weather%3F");
    assert_eq!(server.requests()[0].body, "");
}

#[tokio::test]
async fn a_response_in_another_format_fails() {
    let server = Server::always(response("200 OK", "application/json", b"{\"answer\": 42}\n")).await;
    for format in [Some("ag-ui".to_owned()), None, Some("ag-ui-proto".to_owned())] {
        let options =
            EventsOptions { url: server.url.clone(), format: format.clone(), ..EventsOptions::default() };
        let (_, result) = play(&Events::new(options).unwrap(), request()).await;
        let error = result.unwrap_err();
        let codes = [
            codes::UPSTREAM_MALFORMED,
            codes::UPSTREAM_BAD_CONTENT,
            codes::UPSTREAM_TRUNCATED,
            codes::LIMIT_EXCEEDED,
        ];
        assert!(codes.contains(&error.code()), "{format:?}: {error:?}");
        assert!(!error.to_string().contains("42"));
    }
}

#[tokio::test]
async fn a_frame_that_would_take_much_memory_is_not_parsed() {
    let list = "{\"\":0},".repeat(1_000_000);
    let frame = format!("data: {{\"type\":\"STATE_SNAPSHOT\",\"snapshot\":[{list}0]}}\n\n");
    let server = Server::always(events(frame.as_bytes())).await;
    for format in [Some("ag-ui".to_owned()), Some("langgraph".to_owned())] {
        let options = EventsOptions { url: server.url.clone(), format, ..EventsOptions::default() };
        let (_, result) = play(&Events::new(options).unwrap(), request()).await;
        let error = result.unwrap_err();
        assert_eq!(error.code(), codes::LIMIT_EXCEEDED, "{error}");
        assert!(error.to_string().contains("frame 1 at byte 0"), "{error}");
    }
}

#[test]
fn invalid_options_are_rejected() {
    let good = EventsOptions { url: "http://x/".into(), ..EventsOptions::default() };
    let refused = |options: EventsOptions| Events::new(options).unwrap_err().to_string();
    let error = refused(EventsOptions { method: Some("DELETE".into()), ..good.clone() });
    assert!(error.starts_with("method `DELETE` cannot start a run"), "{error}");
    let error = refused(EventsOptions { method: Some("get".into()), body: Some(json!(1)), ..good.clone() });
    assert!(error.starts_with("a GET request has no body"), "{error}");
    let error = refused(EventsOptions { body: Some(json!({"a": "{{nothing}}"})), ..good.clone() });
    assert!(error.starts_with("unknown name `nothing`"), "{error}");
    let error = refused(EventsOptions { format: Some("x".into()), ..good.clone() });
    assert!(error.starts_with("unknown format `x`"), "{error}");
    let error = refused(EventsOptions { options: vec!["steps=none".into()], ..good });
    assert!(error.starts_with("option `steps=none` belongs to no format"), "{error}");
}

#[test]
fn a_client_cannot_choose_the_server_of_a_template() {
    let make = |url: &str| Events::new(EventsOptions { url: url.into(), ..EventsOptions::default() });
    for url in [
        "http://{{thread}}/run",
        "http://{{thread}}.example.com/",
        "http://user:{{thread}}@example.com/",
        "http://example.com:{{thread}}/",
        "http://{{thread}}?x=1",
    ] {
        let error = make(url).expect_err(url).to_string();
        assert!(error.contains("placeholder"), "{url}: {error}");
    }
    for url in ["http://example.com/{{thread}}", "http://example.com?q={{message}}"] {
        make(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[tokio::test]
async fn a_client_cannot_choose_the_path_of_a_template() {
    let server = Server::always(events(&fixture("weather_tool.sse"))).await;
    let url = format!("{}/public/{{{{thread}}}}/run", server.url);
    let agent = Events::new(EventsOptions { url, ..EventsOptions::default() }).unwrap();
    for thread in ["..", "."] {
        let mut run_request = request();
        std::sync::Arc::make_mut(&mut run_request.input).thread = thread.into();
        let (received, result) = play(&agent, run_request).await;
        assert_eq!(result.unwrap_err().code(), codes::INTERNAL, "{thread}");
        assert!(received.is_empty(), "{thread}");
    }
    assert!(server.requests().is_empty(), "no request was sent");
    for thread in ["a/../../admin", "a\\..\\b", "%2e%2e", "...", "x?y#z"] {
        let mut run_request = request();
        std::sync::Arc::make_mut(&mut run_request.input).thread = thread.into();
        play(&agent, run_request).await.1.unwrap();
        let line = server.requests().last().unwrap().line().to_owned();
        assert!(line.starts_with("POST /public/") && line.ends_with("/run"), "{thread}: {line}");
        assert_eq!(line.matches('/').count(), 3, "{thread}: {line}");
    }
}
