//! Upstream `ag-ui` against a scripted server: requests, chunking, truncation, limits and timeouts.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use agentwire_core::event::{Body, Message, MessageBody};
use agentwire_gateway::{
    UpstreamError, codes,
    upstream::{AgUi, AgUiOptions},
};
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};

use super::{
    fixture, kinds, play, request,
    server::{Server, Step, events, head, response},
};

const RECORDINGS: &[&str] = &["weather_tool.sse", "chunks.sse", "thinking.sse"];
const TOO_SHORT: Duration = Duration::from_millis(50);

fn agent(url: &str) -> AgUi {
    AgUi::new(AgUiOptions { url: url.into(), headers: Vec::new() }).unwrap()
}

/// The error of a run against a server with this script.
async fn run_error(steps: Vec<Step>) -> UpstreamError {
    let server = Server::always(steps).await;
    let (_, result) = play(&agent(&server.url), request()).await;
    result.unwrap_err()
}

/// A response with chunked transfer encoding; `end` adds the last chunk.
fn chunked(body: &[u8], size: usize, end: bool) -> Vec<Step> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(size) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    if end {
        bytes.extend(b"0\r\n\r\n");
    }
    vec![Step::Send(bytes)]
}

/// The offset after the last `}` of the terminal event; the run is complete from there on.
fn complete_at(body: &[u8]) -> usize {
    let text = std::str::from_utf8(body).unwrap();
    let terminal = text.find("RUN_FINISHED").expect("the recording ends well");
    terminal + text[terminal..].find("}\n").expect("the event ends a line") + 1
}

#[tokio::test]
async fn sends_the_run_input_with_allowed_headers() {
    let server = Server::always(events(&fixture("weather_tool.sse"))).await;
    let headers = vec![("Authorization".into(), "Bearer k".into())];
    let agent = AgUi::new(AgUiOptions { url: format!("{}/agent?x=1", server.url), headers }).unwrap();
    let mut run_request = request();
    run_request.headers = Arc::new([
        ("traceparent".into(), "00-1-2-01".into()),
        ("host".into(), "evil.example".into()),
        ("origin".into(), "https://evil.example".into()),
        ("accept-encoding".into(), "gzip".into()),
        ("expect".into(), "100-continue".into()),
        ("authorization".into(), "Bearer of the client".into()),
        ("content-length".into(), "3".into()),
        ("x-team".into(), "a".into()),
        ("bad header".into(), "x".into()),
        ("x-bad".into(), "a\r\nb".into()),
    ]);
    let (received, result) = play(&agent, run_request).await;
    result.unwrap();
    assert_eq!(received.first().map(|event| event.kind()), Some("RUN_STARTED"));
    assert_eq!(received.last().map(|event| event.kind()), Some("RUN_FINISHED"));
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].line(), "POST /agent?x=1");
    assert_eq!(requests[0].header("accept"), Some("text/event-stream"));
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    assert_eq!(requests[0].header("authorization"), Some("Bearer k"));
    assert_eq!(requests[0].header("traceparent"), Some("00-1-2-01"));
    assert_eq!(requests[0].header("x-team"), Some("a"));
    assert_eq!(requests[0].header("host"), Some(server.url.trim_start_matches("http://")));
    assert_eq!(requests[0].header("accept-encoding"), Some("identity"));
    for name in ["origin", "expect"] {
        assert_eq!(requests[0].header(name), None, "{name}");
    }
    assert_eq!(requests[0].header("x-bad"), None);
    let body = requests[0].json();
    assert_eq!(body["threadId"], "t1");
    assert_eq!(body["messages"][0]["content"], "What is the weather?");
}

#[tokio::test]
async fn a_repeated_call_is_removed_when_its_result_was_sent() {
    let lines = [
        json!({"type": "RUN_STARTED", "threadId": "t1", "runId": "r1"}),
        json!({"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "delete"}),
        json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{}"}),
        json!({"type": "TOOL_CALL_END", "toolCallId": "c1"}),
        json!({"type": "TOOL_CALL_RESULT", "messageId": "x", "toolCallId": "c1", "content": "done"}),
        json!({"type": "TOOL_CALL_START", "toolCallId": "c2", "toolCallName": "delete"}),
        json!({"type": "TOOL_CALL_END", "toolCallId": "c2"}),
        json!({"type": "RUN_FINISHED", "threadId": "t1", "runId": "r1"}),
    ];
    let body: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
    let server = Server::always(events(body.as_bytes())).await;
    let (whole, result) = play(&agent(&server.url), request()).await;
    result.unwrap();
    assert_eq!(whole.len(), lines.len(), "no result was sent");

    let mut with_result = request();
    let input = Arc::make_mut(&mut with_result.input);
    let tool_result = MessageBody::Tool { call: "c1".into(), content: "yes".into(), error: None };
    input.messages.push(Message::new("m2", tool_result));
    let (received, result) = play(&agent(&server.url), with_result).await;
    result.unwrap();
    let wanted = ["RUN_STARTED", "TOOL_CALL_RESULT", "TOOL_CALL_START", "TOOL_CALL_END", "RUN_FINISHED"];
    assert_eq!(kinds(&received), wanted);
}

#[tokio::test]
async fn chunk_boundaries_do_not_change_the_events() {
    for name in RECORDINGS {
        let body = fixture(name);
        let server = Server::always(events(&body)).await;
        let (whole, result) = play(&agent(&server.url), request()).await;
        result.unwrap();
        let trickle =
            vec![Step::Send(head("200 OK", "text/event-stream; charset=utf-8")), Step::Trickle(body.clone())];
        let mut scripts = vec![trickle, chunked(&body, 1, true), chunked(&body, 7, true)];
        // Servers send wrong content types.
        scripts.push(response("200 OK", "text/plain", &body));
        scripts.push(response("200 OK", "application/octet-stream", &body));
        scripts.push(response("201 Created", "application/json", &body));
        for steps in scripts {
            let server = Server::always(steps.clone()).await;
            let (received, result) = play(&agent(&server.url), request()).await;
            assert_eq!(result, Ok(()), "{name}");
            assert_eq!(received, whole, "{name}");
        }
    }
}

#[tokio::test]
async fn json_lines_and_arrays_are_read() {
    let sse = fixture("weather_tool.sse");
    let text = std::str::from_utf8(&sse).unwrap();
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let server = Server::always(events(&sse)).await;
    let (whole, _) = play(&agent(&server.url), request()).await;
    for (content_type, body) in [
        ("application/x-ndjson", lines.join("\n")),
        ("text/event-stream", lines.join("\n") + "\n"),
        ("application/json", format!("[{}]", lines.join(","))),
    ] {
        let server = Server::always(response("200 OK", content_type, body.as_bytes())).await;
        let (received, result) = play(&agent(&server.url), request()).await;
        assert_eq!(result, Ok(()), "{content_type}");
        assert_eq!(received, whole, "{content_type}");
    }
}

/// Cut at every byte by FIN, RST, a content length that is too large and a missing last chunk: events before the cut
/// are passed on, and the error has the documented code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_cut_at_any_byte_is_truncated() {
    for name in RECORDINGS {
        let body = fixture(name);
        let complete = complete_at(&body);
        let server = Server::always(events(&body)).await;
        let (whole, _) = play(&agent(&server.url), request()).await;
        let body = Arc::new(body);
        let copy = Arc::clone(&body);
        // A header of the request selects the offset and the way of the cut.
        let server = Server::new(move |request| {
            let (how, at) = request.header("x-cut").unwrap().split_once(' ').unwrap();
            let at: usize = at.parse().unwrap();
            let cut = &copy[..at];
            match how {
                "fin" => events(cut),
                "rst" => [events(cut), vec![Step::Reset]].concat(),
                "length" => {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
                        copy.len() + 1
                    );
                    vec![Step::Send([head.as_bytes(), cut].concat())]
                }
                _ => chunked(cut, 64, false),
            }
        })
        .await;
        let agent = agent(&server.url);
        for at in 0..=body.len() {
            // Every way once. FIN is the hard one, since it looks like a regular end, and is tried with all recordings.
            let ways = if *name == RECORDINGS[0] { &["fin", "rst", "length", "chunk"][..] } else { &["fin"] };
            for &how in ways {
                let mut run_request = request();
                run_request.headers = Arc::new([("x-cut".into(), format!("{how} {at}"))]);
                let (received, result) = play(&agent, run_request).await;
                // RST may discard bytes that were sent before it.
                let exact = how != "rst";
                match result {
                    Ok(()) => assert!(at >= complete, "{name} {how} {at}: {:?}", kinds(&received)),
                    Err(error) => {
                        assert!(at < complete || !exact, "{name} {how} {at}: {error}");
                        assert_eq!(error.code(), codes::UPSTREAM_TRUNCATED, "{name} {how} {at}");
                    }
                }
                // The events are a prefix of those of the whole stream: the upstream itself closes nothing.
                let shared =
                    received.iter().zip(&whole).take_while(|(received, whole)| received == whole).count();
                assert_eq!(shared, received.len(), "{name} {how} {at}: {:?}", kinds(&received));
            }
        }
    }
}

#[tokio::test]
async fn a_response_head_cut_at_any_byte_is_truncated() {
    let head = head("200 OK", "text/event-stream");
    for at in 0..head.len() {
        let error = run_error(vec![Step::Send(head[..at].to_vec())]).await;
        assert_eq!(error.code(), codes::UPSTREAM_TRUNCATED, "{at}: {error:?}");
    }
}

#[tokio::test]
async fn reading_stops_at_the_terminal_event() {
    let body = [fixture("weather_tool.sse"), b"data: garbage\n\n".to_vec(), fixture("chunks.sse")].concat();
    let server = Server::always(events(&body)).await;
    let (received, result) = play(&agent(&server.url), request()).await;
    result.unwrap();
    assert_eq!(kinds(&received).iter().filter(|kind| **kind == "RUN_STARTED").count(), 1);
    // It does not wait for the server to close the connection.
    let steps = [events(&fixture("weather_tool.sse")), vec![Step::Hang]].concat();
    let server = Server::always(steps).await;
    let (_, result) = play(&agent(&server.url), request()).await;
    result.unwrap();
}

#[tokio::test]
async fn a_run_error_of_the_agent_is_passed_on() {
    let body = "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n\
                data: {\"type\":\"RUN_ERROR\",\"message\":\"no luck\",\"code\":\"LUCK\"}\n\n";
    let server = Server::always(events(body.as_bytes())).await;
    let (received, result) = play(&agent(&server.url), request()).await;
    result.unwrap();
    let Some(Body::RunError(error)) = received.last().map(|event| &event.body) else {
        panic!("{received:?}")
    };
    assert_eq!(error.code.as_deref(), Some("LUCK"));
}

#[tokio::test]
async fn an_empty_response_is_truncated() {
    for body in ["", "\n\n", ": hello\n\n"] {
        let error = run_error(events(body.as_bytes())).await;
        assert_eq!(error.code(), codes::UPSTREAM_TRUNCATED, "{body:?}");
    }
    assert_eq!(
        run_error(response("204 No Content", "text/plain", b"")).await.code(),
        codes::UPSTREAM_TRUNCATED
    );
}

#[tokio::test]
async fn error_messages_contain_the_status_but_not_the_body() {
    let body = br#"{"detail":"secret of the agent"}"#;
    for status in [
        "301 Moved Permanently",
        "304 Not Modified",
        "307 Temporary Redirect",
        "401 Unauthorized",
        "404 Not Found",
        "409 Conflict",
        "422 Unprocessable Entity",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "503 Service Unavailable",
    ] {
        let error = run_error(response(status, "application/json", body)).await;
        assert_eq!(error.code(), codes::UPSTREAM_STATUS, "{status}");
        assert!(error.to_string().contains(&status[..3]), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        if !status.starts_with("304") {
            assert!(error.detail().unwrap().contains("secret"), "{status}");
        }
    }
    // Only the start of an endless body is read.
    let endless = vec![Step::Send(head("500 Oops", "text/plain")), Step::Repeat(vec![b'x'; 4096])];
    let error = run_error(endless).await;
    assert_eq!(error.code(), codes::UPSTREAM_STATUS);
    assert!(error.detail().unwrap().len() <= 4096);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::always(events(&fixture("weather_tool.sse"))).await;
    let moved =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", other.url);
    let error = run_error(vec![Step::Send(moved.into_bytes())]).await;
    assert_eq!(error.code(), codes::UPSTREAM_STATUS);
    assert!(error.to_string().contains("307"));
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_response_that_is_not_an_event_stream_is_bad_content() {
    let page = b"<!doctype html>\n<html><body>Sign in</body></html>\n";
    for (content_type, body) in [
        ("text/html; charset=utf-8", &page[..]),
        ("text/html", &fixture("weather_tool.sse")[..]),
        ("text/event-stream", page),
        ("text/plain", page),
        ("text/plain", b"Hello, I am an agent.\nHow are you?\n"),
        ("image/png", b"\x89PNG\r\n\x1a\n"),
    ] {
        let error = run_error(response("200 OK", content_type, body)).await;
        assert_eq!(error.code(), codes::UPSTREAM_BAD_CONTENT, "{content_type}");
        assert!(!error.to_string().contains("Sign in") && !error.to_string().contains("Hello"), "{error}");
    }
    let packed =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b";
    assert_eq!(run_error(vec![Step::Send(packed.to_vec())]).await.code(), codes::UPSTREAM_BAD_CONTENT);
    for garbage in
        [&b"SSH-2.0-OpenSSH_9.6\r\n"[..], b"\x15\x03\x01\x00\x02\x02F", b"\0\0\0\0\0\0\0\0\r\n\r\n"]
    {
        let error = run_error(vec![Step::Send(garbage.to_vec())]).await;
        assert_eq!(error.code(), codes::UPSTREAM_BAD_CONTENT, "{garbage:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_malformed_frame_is_reported_with_its_position() {
    let good = "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n";
    for bad in [
        "data: {\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":7}\n\n",
        "data: secret garbage\n\n",
        "data: {\"type\":\n\n",
        "data: [1,2\n\n",
    ] {
        let server = Server::always(events(format!("{good}{bad}").as_bytes())).await;
        let (received, result) = play(&agent(&server.url), request()).await;
        assert_eq!(kinds(&received), ["RUN_STARTED"], "{bad}");
        let error = result.unwrap_err();
        assert_eq!(error.code(), codes::UPSTREAM_MALFORMED, "{bad}");
        let position = format!("frame 2 at byte {}", good.len());
        assert!(error.to_string().contains(&position), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.detail().is_some());
    }
    // An error object with status 200.
    let error = run_error(response("200 OK", "application/json", b"{\"error\":\"quota\"}")).await;
    assert_eq!(error.code(), codes::UPSTREAM_MALFORMED);
}

#[tokio::test]
async fn a_frame_that_never_ends_exceeds_the_limit() {
    let head = head("200 OK", "text/event-stream");
    for (start, more) in [("data: {\"x\":\"", "y"), ("data: a\n", "data: b\n"), ("{\"x\":\"", "y")] {
        let steps = vec![
            Step::Send([&head, start.as_bytes()].concat()),
            Step::Repeat(more.repeat(1024).into_bytes()),
        ];
        let server = Server::always(steps).await;
        let mut run_request = request();
        run_request.limits.max_frame = 256 << 10;
        let (received, result) = play(&agent(&server.url), run_request).await;
        assert!(received.is_empty());
        let error = result.unwrap_err();
        assert_eq!(error.code(), codes::LIMIT_EXCEEDED, "{start}");
        assert!(error.to_string().contains("262144"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    // A bound port without a listener: no other process can get it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    for url in [format!("http://{address}"), "http://agent.invalid/".into()] {
        let mut run_request = request();
        // Without a network, name resolution may take longer than the timeout.
        run_request.timeouts.connect = None;
        let (received, result) = play(&agent(&url), run_request).await;
        assert!(received.is_empty());
        let error = result.unwrap_err();
        assert_eq!(error.code(), codes::UPSTREAM_UNREACHABLE, "{url}");
        assert!(!error.to_string().contains(&url), "{error}");
        assert!(error.detail().is_some());
    }
}

#[tokio::test]
async fn a_server_that_does_not_accept_times_out() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    // Fills the backlog; the kernel then accepts no more connections.
    let mut connections = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        connections.push(stream);
    }
    let mut run_request = request();
    run_request.timeouts.connect = Some(TOO_SHORT);
    let (_, result) = play(&agent(&format!("http://{address}")), run_request).await;
    let error = result.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_TIMEOUT);
    assert!(error.to_string().contains("connection"), "{error}");
}

#[tokio::test]
async fn a_server_that_never_responds_times_out() {
    for steps in [
        vec![Step::Hang],
        vec![Step::Send(b"HTTP/1.1 200".to_vec()), Step::Hang],
        vec![Step::Send(head("200 OK", "text/event-stream")), Step::Hang],
    ] {
        let server = Server::always(steps).await;
        let mut run_request = request();
        run_request.timeouts.first_byte = Some(TOO_SHORT);
        let (_, result) = play(&agent(&server.url), run_request).await;
        let error = result.unwrap_err();
        assert_eq!(error.code(), codes::UPSTREAM_TIMEOUT);
        assert!(error.to_string().contains("begin to answer within 50ms"), "{error}");
    }
    // A status is reported even if the body never arrives.
    let server = Server::always(vec![Step::Send(head("503 Down", "text/plain")), Step::Hang]).await;
    let mut run_request = request();
    // Long enough for the head to arrive on a busy machine.
    run_request.timeouts.first_byte = Some(Duration::from_secs(10));
    let (_, result) = play(&agent(&server.url), run_request).await;
    assert_eq!(result.unwrap_err().code(), codes::UPSTREAM_STATUS);
}

#[tokio::test]
async fn a_silent_stream_times_out_after_its_events() {
    let body = fixture("weather_tool.sse");
    let text = std::str::from_utf8(&body).unwrap();
    let frames: Vec<_> = text.split_inclusive("\n\n").collect();
    for count in 1..frames.len() - 1 {
        let steps = vec![Step::Send(
            [&head("200 OK", "text/event-stream"), frames[..count].concat().as_bytes()].concat(),
        )];
        let server = Server::always([steps, vec![Step::Hang]].concat()).await;
        let mut run_request = request();
        run_request.timeouts.idle = Some(TOO_SHORT);
        let (received, result) = play(&agent(&server.url), run_request).await;
        assert!(!received.is_empty());
        let error = result.unwrap_err();
        assert_eq!(error.code(), codes::UPSTREAM_TIMEOUT);
        assert!(error.to_string().contains("silent for 50ms"), "{error}");
    }
}

#[tokio::test]
async fn a_stopped_run_closes_the_connection() {
    let steps = [events(b"data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n"), {
        vec![Step::Repeat(b": still here\n\n".repeat(512))]
    }]
    .concat();
    let server = Server::always(steps).await;
    let (sink, mut received) = agentwire_gateway::agent::EventSink::new(1);
    let agent = agent(&server.url);
    let running = agentwire_gateway::agent::Agent::run(&agent, request(), sink);
    let task = tokio::spawn(running);
    assert_eq!(received.recv().await.unwrap().kind(), "RUN_STARTED");
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(received.recv().await.is_none());
}

#[test]
fn invalid_urls_and_headers_are_rejected() {
    let refused = |url: &str, name: &str, value: &str| {
        let headers = vec![(name.to_owned(), value.to_owned())];
        AgUi::new(AgUiOptions { url: url.into(), headers }).unwrap_err().to_string()
    };
    assert!(refused("localhost:8000", "a", "b").contains("http://"));
    let nonsense = refused("nonsense", "a", "b");
    assert!(
        nonsense.starts_with("the agent's address is not a URL"),
        "an address may hold a secret: {nonsense}"
    );
    assert!(refused("file:///etc/passwd", "a", "b").contains("http://"));
    assert!(refused("http://x", "a b", "c").contains("`a b`"));
    let secret = refused("http://x", "a", "secret\n");
    assert!(secret.contains("`a`") && !secret.contains("secret"), "{secret}");
}
