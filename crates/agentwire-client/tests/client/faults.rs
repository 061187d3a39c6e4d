//! Servers that misbehave: typed errors, bounded memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use agentwire_client::{
    ErrorKind, Event, HttpAgent, Protocol, Run, RunView, Subscriber, TimeoutPhase, Timeouts,
};

use crate::support::{FINISHED, STARTED, agent, drain, fixed_server, frames, gateway, response, sse};

async fn error_of(response: Vec<u8>) -> agentwire_client::ClientError {
    let (address, _) = fixed_server(vec![response], false).await;
    agent(&address).run(Run::user("hi")).finish().await.expect_err("a failure")
}

#[tokio::test]
async fn error_statuses_have_their_code_and_message() {
    let body = br#"{"error":{"code":"UNKNOWN_AGENT","message":"no such agent"}}"#;
    let error = error_of(response("404 Not Found", "application/json", body)).await;
    assert_eq!((error.code(), error.status(), error.request_id()), ("HTTP_STATUS", Some(404), Some("req-7")));
    let ErrorKind::Status { code, message, .. } = error.kind() else { panic!("{error:?}") };
    assert_eq!((code.as_deref(), &**message), (Some("UNKNOWN_AGENT"), "no such agent"));
    for status in ["401 Unauthorized", "500 Internal Server Error", "302 Found"] {
        let error = error_of(response(status, "text/html", b"<h1>\x1b[31mno</h1>")).await;
        assert_eq!(error.code(), "HTTP_STATUS", "{status}");
        assert!(!error.to_string().contains('\x1b'), "{error}");
    }
}

#[tokio::test]
async fn other_content_types_are_refused() {
    for content_type in ["text/html", "application/json", "text/plain", "image/png"] {
        let error = error_of(response("200 OK", content_type, b"<html>hello")).await;
        assert_eq!(error.code(), "BAD_CONTENT_TYPE", "{content_type}");
        assert!(error.to_string().contains("hello"), "{error}");
    }
}

#[tokio::test]
async fn malformed_and_oversized_frames_name_their_byte() {
    let good = frames(&[STARTED]);
    let error = error_of(sse(&format!("{good}data: {{\"type\": nonsense}}\n\n"))).await;
    assert_eq!((error.code(), error.position()), ("BAD_FRAME", Some(good.len() as u64)));

    let (address, _) = fixed_server(vec![sse(&format!("{good}data: {}\n\n", "x".repeat(5000)))], false).await;
    let url = format!("http://{address}/");
    let agent = HttpAgent::builder(url).limits(1000, 1 << 20).build().expect("an agent");
    let error = agent.run(Run::user("hi")).finish().await.expect_err("a failure");
    assert_eq!(error.code(), "BAD_FRAME", "{error}");

    // A frame of four gigabytes is announced.
    let binary = b"\xff\xff\xff\xff{}";
    let error = error_of(response("200 OK", "application/vnd.ag-ui.event+proto", binary)).await;
    assert_eq!(error.code(), "BAD_FRAME", "{error}");
}

#[tokio::test]
async fn an_endless_text_ends_at_the_limit_of_memory() {
    let delta =
        format!(r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"{}"}}"#, "y".repeat(1000));
    let mut events = vec![STARTED, r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#];
    events.extend(std::iter::repeat_n(delta.as_str(), 1000));
    let (address, _) = fixed_server(vec![sse(&frames(&events))], true).await;
    let agent =
        HttpAgent::builder(format!("http://{address}/")).limits(1 << 20, 100_000).build().expect("an agent");
    let error = agent.run(Run::user("hi")).finish().await.expect_err("a failure");
    assert_eq!(error.code(), "TOO_LARGE", "{error}");

    // The same bytes as a state that is replaced again and again fit.
    let state = format!(r#"{{"type":"STATE_SNAPSHOT","snapshot":{{"a":"{}"}}}}"#, "y".repeat(1000));
    let mut events = vec![STARTED];
    events.extend(std::iter::repeat_n(state.as_str(), 4000));
    events.push(FINISHED);
    let (address, _) = fixed_server(vec![sse(&frames(&events))], false).await;
    let agent = HttpAgent::builder(format!("http://{address}/"))
        .limits(1 << 20, 2_000_000)
        .build()
        .expect("an agent");
    agent.run(Run::user("hi")).finish().await.expect("a finished run");
}

#[tokio::test]
async fn run_error_fails_the_run_with_its_code() {
    let error = r#"{"type":"RUN_ERROR","message":"out of cheese","code":"CHEESE"}"#;
    let (address, _) = fixed_server(vec![sse(&frames(&[STARTED, error]))], false).await;
    let agent = agent(&address);
    let error = agent.run(Run::user("hi")).finish().await.expect_err("a failure");
    let ErrorKind::Run(run_error) = error.kind() else { panic!("{error:?}") };
    assert_eq!((error.code(), run_error.code.as_deref()), ("RUN_ERROR", Some("CHEESE")));
    // The agent is free for the next run.
    assert_eq!(agent.run(Run::user("hi")).finish().await.expect_err("a failure").code(), "RUN_ERROR");
}

#[tokio::test]
async fn a_server_that_never_closes_has_ended_with_its_terminal_event() {
    let (address, _) = fixed_server(vec![sse(&frames(&[STARTED, FINISHED]))], true).await;
    agent(&address).run(Run::user("hi")).finish().await.expect("a finished run");
}

#[tokio::test]
async fn silence_is_a_timeout() {
    let (address, _) = fixed_server(vec![sse(&frames(&[STARTED]))], true).await;
    let idle = Timeouts { idle: Duration::from_millis(50), ..Timeouts::default() };
    let agent = HttpAgent::builder(format!("http://{address}/"))
        .timeouts(idle)
        .reconnect(None)
        .build()
        .expect("an agent");
    let error = agent.run(Run::user("hi")).finish().await.expect_err("a failure");
    assert_eq!((error.code(), error.kind()), ("TIMEOUT", &ErrorKind::Timeout(TimeoutPhase::Idle)));

    let (address, _) = fixed_server(vec![Vec::new()], true).await;
    let head = Timeouts { response: Duration::from_millis(50), ..Timeouts::default() };
    let agent = HttpAgent::builder(format!("http://{address}/")).timeouts(head).build().expect("an agent");
    let error = agent.run(Run::user("hi")).finish().await.expect_err("a failure");
    assert_eq!(error.kind(), &ErrorKind::Timeout(TimeoutPhase::Response));
}

#[tokio::test]
async fn an_unreachable_server_is_told_at_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let error = agent(&address).run(Run::user("hi")).finish().await.expect_err("a failure");
    assert_eq!(error.code(), "NETWORK", "{error}");
    for url in ["", "ftp://h/", "not a url", "http://"] {
        assert_eq!(HttpAgent::builder(url).build().expect_err("no URL").code(), "USAGE", "{url}");
    }
    let bad = HttpAgent::builder("http://h/").header("x y", "z").build();
    assert_eq!(bad.expect_err("no header").code(), "USAGE");
}

#[tokio::test]
async fn line_ends_comments_and_unknown_events_are_read() {
    let lines = frames(&[
        STARTED,
        r#"{"type":"SOMETHING_NEW","x":1}"#,
        r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"你好"}"#,
        FINISHED,
    ]);
    for body in [format!("\u{feff}: hi\n\n{lines}"), lines.replace('\n', "\r\n"), lines.replace('\n', "\r")] {
        let (address, _) = fixed_server(vec![sse(&body)], false).await;
        let agent = agent(&address);
        let outcome = agent.run(Run::user("hi")).finish().await.expect("a finished run");
        assert_eq!(outcome.new_messages, [agentwire_client::Message::assistant("m", "你好")]);
        assert!(
            outcome.report.repairs.iter().any(|(rule, _)| rule.name() == "unclosed"),
            "{:?}",
            outcome.report
        );
    }
}

/// Panics in every event.
struct Thrower(Arc<AtomicU32>);

impl Subscriber for Thrower {
    fn on_event(&self, _: &RunView<'_>, _: &Event) {
        panic!("a subscriber fails");
    }

    fn on_subscriber_error(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps the buffers of text events.
#[derive(Clone, Default)]
struct Buffers(Arc<std::sync::Mutex<Vec<String>>>);

impl Subscriber for Buffers {
    fn on_text_message_content(&self, run: &RunView<'_>, _: &Event, buffer: &str) {
        let messages = run.messages();
        let last = format!("{:?}", messages.last().map(|message| &message.body));
        assert!(last.contains(&format!("{buffer:?}")), "{last} {buffer}");
        self.0.lock().expect("no panic").push(buffer.to_owned());
    }

    fn on_text_message_end(&self, _: &RunView<'_>, _: &Event, buffer: &str) {
        self.0.lock().expect("no panic").push(format!("{buffer}."));
    }
}

#[tokio::test]
async fn a_failing_subscriber_never_ends_a_run() {
    std::panic::set_hook(Box::new(|_| {}));
    let address = gateway().await;
    let agent = agent(&address);
    let failures = Arc::new(AtomicU32::new(0));
    let buffers = Buffers::default();
    let thrower = agent.subscribe(Thrower(Arc::clone(&failures)));
    let _ = agent.subscribe(buffers.clone());
    let outcome = agent.run(Run::user("long 3")).finish().await.expect("a finished run");
    assert_eq!(u64::from(failures.swap(0, Ordering::Relaxed)), outcome.report.events);
    let kept = buffers.0.lock().expect("no panic").clone();
    assert_eq!(kept.first().map(String::as_str), Some(""), "the buffer lacks the delta of its event");
    let whole = kept.last().expect("an end").trim_end_matches('.').to_owned();
    assert!(whole.starts_with(&kept[1]) && whole.len() > kept[kept.len() - 2].len(), "{kept:?}");
    thrower.unsubscribe();
    agent.run(Run::user("long 3")).finish().await.expect("a finished run");
    assert_eq!(failures.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_run_can_be_left_and_another_refused() {
    let (address, _) = fixed_server(vec![sse(&frames(&[STARTED]))], true).await;
    let agent = HttpAgent::builder(format!("http://{address}/awp")).build().expect("an agent");
    assert_eq!(agent.protocol(), Protocol::Hai);
    let mut first = agent.run(Run::user("hi"));
    let event = futures_util::StreamExt::next(&mut first).await.expect("an event").expect("no error");
    assert_eq!(event.kind(), "RUN_STARTED");
    let (_, error) = drain(&mut agent.run(Run::user("hi"))).await;
    assert_eq!(error.expect("an error").code(), "BUSY");
    first.abort();
    assert!(first.finish().await.expect("no failure").is_aborted);
    let mut second = agent.run(Run::user("hi"));
    assert!(futures_util::StreamExt::next(&mut second).await.expect("an event").is_ok(), "the agent is free");
}
