//! Everything that a server can do wrong, for every kind of agent behind HTTP: a documented code, a valid stream, and
//! nothing of the server's own words.

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
        Adk, AdkOptions, AgUi, AgUiOptions, Events, EventsOptions, LangGraph, LangGraphOptions, OpenAi,
        OpenAiOptions,
    },
};
use serde_json::{Value, json};

use super::{
    front::Front,
    server::{Seen, Server, Step, answer, head},
};

const KINDS: &[&str] = &["langgraph", "adk", "ag-ui", "events", "openai"];

/// What the server says and no client may hear.
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
            Arc::new(OpenAi::new(OpenAiOptions { url, model: "m".into(), ..Default::default() }).unwrap())
        }
        other => panic!("{other}"),
    }
}

/// Whether a request is the one that starts the run; the others are about the thread.
fn is_run(seen: &Seen) -> bool {
    let path = seen.line().split(['?', ' ']).nth(1).unwrap_or_default();
    seen.line().starts_with("POST") && !matches!(path, "/threads") && !path.ends_with("/sessions")
}

/// What a server in good order says about a thread and a run that it knows.
fn in_order(seen: &Seen) -> Vec<Step> {
    let line = seen.line();
    let body = match line {
        line if line.ends_with("/state") => json!({"values": {"messages": []}, "next": [], "tasks": []}),
        line if line.contains("/sessions") => {
            json!({"id": "t", "appName": "a", "userId": "u", "state": {}, "events": [], "lastUpdateTime": 1.0})
        }
        line if line.contains("/runs?") => json!([]),
        _ => json!({"status": "success"}),
    };
    answer("200 OK", "application/json", body.to_string().as_bytes())
}

/// A gateway in front of a server that does what it is told for each run anew.
struct Rig {
    front: Front,
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
        let told = Arc::clone(&script);
        let server = Server::new(move |seen| {
            let (steps, from_the_first) = told.lock().unwrap().clone();
            if from_the_first || is_run(seen) { steps } else { in_order(seen) }
        })
        .await;
        let front = Front::sharing(agent(kind, &server.url), settings).await;
        Self { front, script, runs: AtomicUsize::new(0), _server: server }
    }

    /// The events of a run in a thread of its own, the server doing `steps` when it is asked to run, or from the first
    /// request on.
    async fn run(&self, steps: Vec<Step>, from_the_first: bool) -> Vec<Value> {
        *self.script.lock().unwrap() = (steps, from_the_first);
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        self.front.run("default-user", &format!("t{number}"), &format!("r{number}")).await
    }
}

/// The ending of a run that fails, after everything was checked that holds for all of them.
fn failure(told: &[Value], what: &str) -> Value {
    assert_eq!(told[0]["type"], "RUN_STARTED", "{what}");
    let endings =
        told.iter().filter(|event| matches!(event["type"].as_str(), Some("RUN_ERROR" | "RUN_FINISHED")));
    assert_eq!(endings.count(), 1, "{what}: {told:#?}");
    let last = told.last().unwrap().clone();
    assert_eq!(last["type"], "RUN_ERROR", "{what}: {told:#?}");
    let code = last["code"].as_str().unwrap_or_default();
    assert!(codes::find(code).is_some(), "{what}: `{code}` is documented");
    assert!(!told.iter().any(|event| event.to_string().contains(SECRET)), "{what}: {told:#?}");
    last
}

#[tokio::test]
async fn a_status_that_is_an_error() {
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
            for from_the_first in [true, false] {
                let what = format!("{kind} {status} {from_the_first}");
                let reply = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nlocation: http://127.0.0.1:9/{SECRET}\r\n\
                     connection: close\r\n\r\n{{\"detail\":\"{SECRET}\",\"error\":{{\"message\":\"{SECRET}\"}}}}"
                );
                let steps = vec![Step::Send(reply.into_bytes())];
                let last = failure(&rig.run(steps, from_the_first).await, &what);
                let number = &status[..3];
                let wanted = match (*kind, number, from_the_first) {
                    ("langgraph", "409", false) => codes::THREAD_IS_LOCKED,
                    _ => codes::UPSTREAM_STATUS,
                };
                assert_eq!(last["code"], wanted, "{what}");
                let says = last["message"].as_str().unwrap();
                assert!(says.contains(number) || wanted == codes::THREAD_IS_LOCKED, "{what}: {says}");
                assert!(last["metadata"]["retryAfter"].is_null(), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_time_to_try_again_is_passed_on_as_a_number() {
    let in_ten_minutes = "in ten minutes";
    let cases = [
        ("429 Too Many Requests", "7".to_owned(), Some(7..=7)),
        ("503 Service Unavailable", " 120 ".to_owned(), Some(120..=120)),
        ("429 Too Many Requests", "0".to_owned(), Some(0..=0)),
        ("429 Too Many Requests", in_ten_minutes.to_owned(), Some(500..=600)),
        ("429 Too Many Requests", "Wed, 21 Oct 2015 07:28:00 GMT".to_owned(), Some(0..=0)),
        // What is no time, or none that anybody would wait for, is not told.
        ("429 Too Many Requests", "31536000".to_owned(), None),
        ("429 Too Many Requests", "-1".to_owned(), None),
        ("429 Too Many Requests", "1.5".to_owned(), None),
        ("429 Too Many Requests", SECRET.to_owned(), None),
        ("500 Internal Server Error", "7".to_owned(), None),
    ];
    for kind in KINDS {
        let rig = Rig::of(kind).await;
        for (status, value, wanted) in &cases {
            for from_the_first in [true, false] {
                let what = format!("{kind} {status} {value}");
                // By the clock of now, however long the cases before this one took.
                let value = match value.as_str() {
                    it if it == in_ten_minutes => date_in(Duration::from_secs(600)),
                    other => other.to_owned(),
                };
                let reply = format!(
                    "HTTP/1.1 {status}\r\nretry-after: {value}\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n{SECRET}"
                );
                let steps = vec![Step::Send(reply.into_bytes())];
                let last = failure(&rig.run(steps, from_the_first).await, &what);
                assert_eq!(last["code"], codes::UPSTREAM_STATUS, "{what}");
                let told = last["metadata"]["retryAfter"].as_u64();
                match (wanted, told) {
                    (None, None) => {}
                    (Some(range), Some(told)) if range.contains(&told) => {
                        let says = last["message"].as_str().unwrap();
                        assert!(says.ends_with(&format!("try again in {told} s")), "{what}: {says}");
                    }
                    other => panic!("{what}: {other:?}"),
                }
            }
        }
    }
}

fn date_in(wait: Duration) -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now() + wait)
}

#[tokio::test]
async fn retry_after_is_a_header_where_there_is_no_stream() {
    let reply = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 9\r\nconnection: close\r\n\r\n".to_owned();
    let server = Server::always(vec![Step::Send(reply.into_bytes())]).await;
    let front = Front::sharing(agent("adk", &server.url), AgentSettings::default()).await;
    let response = front.get("/message_snapshot/t").await;
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["retry-after"], "9");
}

#[tokio::test]
async fn an_answer_that_is_no_stream() {
    let page = format!("<!DOCTYPE html><html><body>{SECRET}</body></html>");
    let half = format!("data: {{\"type\":\"{SECRET}");
    for kind in KINDS {
        let rig = Rig::of(kind).await;
        for (name, content_type, body, wanted) in [
            ("a page", "text/html", page.as_bytes(), codes::UPSTREAM_BAD_CONTENT),
            (
                "a page that says it is a stream",
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
            let what = format!("{kind}: {name}");
            let steps = answer("200 OK", content_type, body);
            let last = failure(&rig.run(steps.clone(), false).await, &what);
            assert_eq!(last["code"], wanted, "{what}: {last}");
            if matches!(*kind, "langgraph" | "adk") {
                // The same where a thread was asked for.
                let last = failure(&rig.run(steps, true).await, &what);
                assert_eq!(last["code"], codes::UPSTREAM_MALFORMED, "{what}: {last}");
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_never_answers() {
    let mut settings = AgentSettings::default();
    settings.timeouts.first_byte = Some(Duration::from_millis(50));
    for kind in KINDS {
        let rig = Rig::with(kind, settings.clone()).await;
        for from_the_first in [true, false] {
            let silent = vec![Step::Hang];
            let last = failure(&rig.run(silent, from_the_first).await, kind);
            assert_eq!(last["code"], codes::UPSTREAM_TIMEOUT, "{kind}");
            let heads = vec![Step::Send(head("200 OK", "text/event-stream")), Step::Hang];
            let last = failure(&rig.run(heads, from_the_first).await, kind);
            assert_eq!(last["code"], codes::UPSTREAM_TIMEOUT, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_server_that_hangs_up() {
    for kind in KINDS {
        let rig = Rig::of(kind).await;
        for from_the_first in [true, false] {
            let last = failure(&rig.run(vec![Step::Reset], from_the_first).await, kind);
            assert_eq!(last["code"], codes::UPSTREAM_TRUNCATED, "{kind}");
        }
        let front = Front::sharing(agent(kind, "http://127.0.0.1:9"), AgentSettings::default()).await;
        let last = failure(&front.run("default-user", "t", "r").await, kind);
        assert_eq!(last["code"], codes::UPSTREAM_UNREACHABLE, "{kind}");
    }
}
