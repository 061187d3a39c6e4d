//! Streams on HTTP/1 connections that carry more than one request, over real sockets.

use crate::support::*;

fn post(server: &Server, run: &str, fields: &str) -> String {
    let body = format!(
        r#"{{"threadId":"thread-{run}","runId":"{run}","messages":[{{"id":"m-{run}","role":"user","content":"hi"}}],"tools":[],"context":[],"state":{{}},"forwardedProps":{{}}}}"#
    );
    let (host, length) = (server.address(), body.len());
    format!(
        "POST / HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{fields}content-length: {length}\r\n\r\n{body}"
    )
}

fn probe(server: &Server) -> String {
    format!("GET /livez HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address())
}

/// The data of a chunked body, and the text behind it.
fn decode(mut text: &str) -> (String, &str) {
    let mut data = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(size, 16).expect("a number");
        let (chunk, rest) = rest.split_at(size);
        data.push_str(chunk);
        text = rest.strip_prefix("\r\n").expect("the end of a chunk");
        if size == 0 {
            return (data, text);
        }
    }
}

/// Requests behind a stream, in the same packet, are answered after it: two streams and a probe on one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_serves_more_requests_after_a_stream() {
    let server = plan(Puppet::eager(|input| talk(input, 3))).on_memory().await;
    let requests = [post(&server, "one", ""), post(&server, "two", ""), probe(&server)].concat();
    let response = server.exchange(requests).await;
    let mut rest = &*response;
    for run in ["one", "two"] {
        let (head, body) = rest.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        for field in ["transfer-encoding: chunked", "content-type: text/event-stream", "date: "] {
            assert_eq!(head.matches(field).count(), 1, "{field}: {head}");
        }
        assert!(head.contains(&format!("x-run-id: {run}")) && !head.contains("connection:"), "{head}");
        let (data, behind) = decode(body);
        assert!(data.contains("RUN_STARTED") && data.contains("RUN_FINISHED"), "{data}");
        rest = behind;
    }
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("ok\n"), "{rest}");
}

/// `connection: close` ends the connection with the stream: nothing behind it is a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_can_be_the_last_response() {
    let server = plan(Puppet::eager(|input| talk(input, 3))).on_memory().await;
    let requests = [post(&server, "one", "connection: close\r\n"), probe(&server)].concat();
    let response = server.exchange(requests).await;
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert_eq!(head.matches("connection: close").count(), 1, "{head}");
    let (data, behind) = decode(body);
    assert!(data.contains("RUN_FINISHED") && behind.is_empty(), "{response}");
}

/// The body of a request that nobody reads is no request, also if it looks like one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_body_before_a_stream_is_no_request() {
    let server = plan(Puppet::eager(|input| talk(input, 3))).on_memory().await;
    server.exchange(post(&server, "one", "connection: close\r\n")).await;
    let body = probe(&server);
    let follow = |fields: &str| {
        format!("GET /runs/one/stream HTTP/1.1\r\nhost: {}\r\n{fields}\r\n\r\n", server.address())
    };
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for request in [
        format!("{}{body}", follow(&format!("content-length: {}", body.len()))),
        format!("{}{chunked}", follow("transfer-encoding: chunked")),
    ] {
        let response = server.exchange(format!("{request}{}", probe(&server))).await;
        let (_, body) = response.split_once("\r\n\r\n").expect("a head");
        let (data, behind) = decode(body);
        assert!(data.contains("RUN_FINISHED"), "{response}");
        assert!(behind.matches("HTTP/1.1 ").count() <= 1, "{response}");
    }
}

/// HTTP/1.0 knows no chunks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_client_gets_a_stream_without_chunks() {
    let server = plan(Puppet::eager(|input| talk(input, 3))).on_memory().await;
    let response = server.exchange(post(&server, "one", "").replace("HTTP/1.1", "HTTP/1.0")).await;
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.0 200 OK") && !head.contains("chunked"), "{head}");
    assert!(body.starts_with("data: {") && body.contains("RUN_FINISHED"), "{body}");
}

/// A request in single bytes, and one whose head exceeds the first read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_pieces_are_streams_too() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = plan(Puppet::eager(|input| talk(input, 3))).on_memory().await;
    let long = format!("connection: close\r\nx-long: {}\r\n", "x".repeat(6000));
    for (run, fields, size) in [("one", "connection: close\r\n", 1), ("two", &*long, 1000)] {
        let request = post(&server, run, fields);
        let mut stream = server.raw("").await;
        stream.set_nodelay(true).expect("no delay");
        for piece in request.as_bytes().chunks(size) {
            stream.write_all(piece).await.expect("sent");
        }
        let mut response = String::new();
        with_timeout("a stream", stream.read_to_string(&mut response)).await.expect("text");
        let (_, body) = response.split_once("\r\n\r\n").expect("a head");
        assert!(decode(body).0.contains("RUN_FINISHED"), "{response}");
    }
}
