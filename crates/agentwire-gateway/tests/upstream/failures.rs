//! Failures of every upstream behind HTTP: each gives a documented code, a valid stream, and no text of the server.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agentwire_gateway::{
    agent::Agent,
    codes,
    settings::AgentSettings,
    upstream::{
        Adk, AdkOptions, AgUi, AgUiOptions, Events, EventsOptions, LangGraph, LangGraphOptions, Model,
        ModelOptions,
    },
};
use serde_json::{Value, json};

use super::{
    gateway::TestGateway,
    server::{ReceivedRequest, Server, Step, head, response},
};

const KINDS: &[&str] = &["langgraph", "adk", "ag-ui", "events", "openai"];

/// Text of the server that must not reach a client.
const SECRET: &str = "secret-of-the-server";

fn agent(kind: &str, url: &str) -> Arc<dyn Agent> {
    let url = url.to_owned();
    match kind {
        "langgraph" => Arc::new(
            LangGraph::new(LangGraphOptions { url, graph: "g".into(), ..Default::default() }).unwrap(),
        ),
        "adk" => Arc::new(Adk::new(AdkOptions { url, app: "a".into(), ..Default::default() }).unwrap()),
        "ag-ui" => Arc::new(AgUi::new(AgUiOptions { url, ..Default::default() }).unwrap()),
        "events" => {
            let format = Some("langgraph".into());
            Arc::new(Events::new(EventsOptions { url, format, ..Default::default() }).unwrap())
        }
        "openai" => {
            Arc::new(Model::new(ModelOptions { url, model: "m".into(), ..Default::default() }).unwrap())
        }
        other => panic!("{other}"),
    }
}

/// True for the request that starts the run; the others concern the thread.
fn is_run(request: &ReceivedRequest) -> bool {
    let path = request.line().split(['?', ' ']).nth(1).unwrap_or_default();
    request.line().starts_with("POST") && !matches!(path, "/threads") && !path.ends_with("/sessions")
}

/// The response of a working server to requests about a known thread or run.
fn working(request: &ReceivedRequest) -> Vec<Step> {
    let line = request.line();
    let body = match line {
        line if line.ends_with("/state") => json!({"values": {"messages": []}, "next": [], "tasks": []}),
        line if line.contains("/sessions") => {
            json!({"id": "t", "appName": "a", "userId": "u", "state": {}, "events": [], "lastUpdateTime": 1.0})
        }
        line if line.contains("/runs?") => json!([]),
        _ => json!({"status": "success"}),
    };
    response("200 OK", "application/json", body.to_string().as_bytes())
}

/// A gateway in front of a server with a new script for each run.
struct Rig {
    gateway: TestGateway,
    script: Arc<Mutex<(Vec<Step>, bool)>>,
    runs: AtomicUsize,
    _server: Server,
}

impl Rig {
    async fn of(kind: &str) -> Self {
        Self::with(kind, AgentSettings::default()).await
    }

    async fn with(kind: &str, settings: AgentSettings) -> Self {
        let script = Arc::new(Mutex::new((Vec::new(), false)));
        let shared_script = Arc::clone(&script);
        let server = Server::new(move |request| {
            let (steps, from_first_request) = shared_script.lock().unwrap().clone();
            if from_first_request || is_run(request) { steps } else { working(request) }
        })
        .await;
        let gateway = TestGateway::sharing(agent(kind, &server.url), settings).await;
        Self { gateway, script, runs: AtomicUsize::new(0), _server: server }
    }

    /// The events of a run in a new thread. The server follows `steps` at the request that starts the run, or from the
    /// first request on.
    async fn run(&self, steps: Vec<Step>, from_first_request: bool) -> Vec<Value> {
        *self.script.lock().unwrap() = (steps, from_first_request);
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        self.gateway.run("default-user", &format!("t{number}"), &format!("r{number}")).await
    }
}

/// The RUN_ERROR of a failed run, after the checks that apply to all failures.
fn run_error(received: &[Value], case: &str) -> Value {
    assert_eq!(received[0]["type"], "RUN_STARTED", "{case}");
    let endings =
        received.iter().filter(|event| matches!(event["type"].as_str(), Some("RUN_ERROR" | "RUN_FINISHED")));
    assert_eq!(endings.count(), 1, "{case}: {received:#?}");
    let last = received.last().unwrap().clone();
    assert_eq!(last["type"], "RUN_ERROR", "{case}: {received:#?}");
    let code = last["code"].as_str().unwrap_or_default();
    assert!(codes::find(code).is_some(), "{case}: `{code}` is documented");
    assert!(!received.iter().any(|event| event.to_string().contains(SECRET)), "{case}: {received:#?}");
    last
}

#[tokio::test]
async fn an_error_status_has_a_code_and_no_text_of_the_server() {
    for kind in KINDS {
        let rig = Rig::of(kind).await;
        for status in [
            "300 Multiple Choices",
            "301 Moved Permanently",
            "302 Found",
            "307 Temporary Redirect",
            "308 Permanent Redirect",
            "400 Bad Request",
            "401 Unauthorized",
            "403 Forbidden",
            "404 Not Found",
            "409 Conflict",
            "418 I'm a teapot",
            "422 Unprocessable Entity",
            "429 Too Many Requests",
            "500 Internal Server Error",
            "502 Bad Gateway",
            "503 Service Unavailable",
            "504 Gateway Timeout",
        ] {
            for from_first_request in [true, false] {
                let case = format!("{kind} {status} {from_first_request}");
                let response = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nlocation: http://127.0.0.1:9/{SECRET}\r\n\
                     connection: close\r\n\r\n{{\"detail\":\"{SECRET}\",\"error\":{{\"message\":\"{SECRET}\"}}}}"
                );
                let steps = vec![Step::Send(response.into_bytes())];
                let last = run_error(&rig.run(steps, from_first_request).await, &case);
                let number = &status[..3];
                let wanted = match (*kind, number, from_first_request) {
                    ("langgraph", "409", false) => codes::THREAD_IS_LOCKED,
                    _ => codes::UPSTREAM_STATUS,
                };
                assert_eq!(last["code"], wanted, "{case}");
                let message = last["message"].as_str().unwrap();
                assert!(message.contains(number) || wanted == codes::THREAD_IS_LOCKED, "{case}: {message}");
                assert!(last["metadata"]["retryAfter"].is_null(), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn retry_after_is_passed_on_as_seconds() {
    let in_ten_minutes = "in ten minutes";
    let cases = [
        ("429 Too Many Requests", "7".to_owned(), Some(7..=7)),
        ("503 Service Unavailable", " 120 ".to_owned(), Some(120..=120)),
        ("429 Too Many Requests", "0".to_owned(), Some(0..=0)),
        ("429 Too Many Requests", in_ten_minutes.to_owned(), Some(500..=600)),
        ("429 Too Many Requests", "Wed, 21 Oct 2015 07:28:00 GMT".to_owned(), Some(0..=0)),
        // Invalid values and unreasonably long ones are left out.
        ("429 Too Many Requests", "31536000".to_owned(), None),
        ("429 Too Many Requests", "-1".to_owned(), None),
        ("429 Too Many Requests", "1.5".to_owned(), None),
        ("429 Too Many Requests", SECRET.to_owned(), None),
        ("500 Internal Server Error", "7".to_owned(), None),
    ];
    for kind in KINDS {
        let rig = Rig::of(kind).await;
        for (status, value, wanted) in &cases {
            for from_first_request in [true, false] {
                let case = format!("{kind} {status} {value}");
                // Computed here, since earlier cases may have taken long.
                let value = match value.as_str() {
                    it if it == in_ten_minutes => date_in(Duration::from_secs(600)),
                    other => other.to_owned(),
                };
                let response = format!(
                    "HTTP/1.1 {status}\r\nretry-after: {value}\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n{SECRET}"
                );
                let steps = vec![Step::Send(response.into_bytes())];
                let last = run_error(&rig.run(steps, from_first_request).await, &case);
                assert_eq!(last["code"], codes::UPSTREAM_STATUS, "{case}");
                let seconds = last["metadata"]["retryAfter"].as_u64();
                match (wanted, seconds) {
                    (None, None) => {}
                    (Some(range), Some(seconds)) if range.contains(&seconds) => {
                        let message = last["message"].as_str().unwrap();
                        assert!(message.ends_with(&format!("try again in {seconds} s")), "{case}: {message}");
                    }
                    other => panic!("{case}: {other:?}"),
                }
            }
        }
    }
}

fn date_in(wait: Duration) -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now() + wait)
}

#[tokio::test]
async fn retry_after_is_a_header_outside_of_streams() {
    let response =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 9\r\nconnection: close\r\n\r\n".to_owned();
    let server = Server::always(vec![Step::Send(response.into_bytes())]).await;
    let gateway = TestGateway::sharing(agent("adk", &server.url), AgentSettings::default()).await;
    let response = gateway.get("/message_snapshot/t").await;
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["retry-after"], "9");
}

#[tokio::test]
async fn a_response_that_is_not_a_stream_has_a_code() {
    let page = format!("<!DOCTYPE html><html><body>{SECRET}</body></html>");
    let half = format!("data: {{\"type\":\"{SECRET}");
    for kind in KINDS {
        let rig = Rig::of(kind).await;
        for (name, content_type, body, wanted) in [
            ("a page", "text/html", page.as_bytes(), codes::UPSTREAM_BAD_CONTENT),
            (
                "a page with the content type of a stream",
                "text/event-stream",
                page.as_bytes(),
                codes::UPSTREAM_BAD_CONTENT,
            ),
            ("a picture", "image/png", b"\x89PNG\r\n\x1a\n", codes::UPSTREAM_BAD_CONTENT),
            ("plain text", "text/plain", SECRET.as_bytes(), codes::UPSTREAM_BAD_CONTENT),
            ("nothing", "text/event-stream", b"", codes::UPSTREAM_TRUNCATED),
            ("comments only", "text/event-stream", b": ping\n\n: ping\n\n", codes::UPSTREAM_TRUNCATED),
            ("half a frame", "text/event-stream", half.as_bytes(), codes::UPSTREAM_TRUNCATED),
        ] {
            let case = format!("{kind}: {name}");
            let steps = response("200 OK", content_type, body);
            let last = run_error(&rig.run(steps.clone(), false).await, &case);
            assert_eq!(last["code"], wanted, "{case}: {last}");
            if matches!(*kind, "langgraph" | "adk") {
                // The same response to a request about the thread.
                let last = run_error(&rig.run(steps, true).await, &case);
                assert_eq!(last["code"], codes::UPSTREAM_MALFORMED, "{case}: {last}");
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_never_responds_times_out() {
    let mut settings = AgentSettings::default();
    settings.timeouts.first_byte = Some(Duration::from_millis(50));
    for kind in KINDS {
        let rig = Rig::with(kind, settings.clone()).await;
        for from_first_request in [true, false] {
            let silent = vec![Step::Hang];
            let last = run_error(&rig.run(silent, from_first_request).await, kind);
            assert_eq!(last["code"], codes::UPSTREAM_TIMEOUT, "{kind}");
            let head_only = vec![Step::Send(head("200 OK", "text/event-stream")), Step::Hang];
            let last = run_error(&rig.run(head_only, from_first_request).await, kind);
            assert_eq!(last["code"], codes::UPSTREAM_TIMEOUT, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_closed_or_refused_connection_has_a_code() {
    for kind in KINDS {
        let rig = Rig::of(kind).await;
        for from_first_request in [true, false] {
            let last = run_error(&rig.run(vec![Step::Reset], from_first_request).await, kind);
            assert_eq!(last["code"], codes::UPSTREAM_TRUNCATED, "{kind}");
        }
        let gateway = TestGateway::sharing(agent(kind, "http://127.0.0.1:9"), AgentSettings::default()).await;
        let last = run_error(&gateway.run("default-user", "t", "r").await, kind);
        assert_eq!(last["code"], codes::UPSTREAM_UNREACHABLE, "{kind}");
    }
}
