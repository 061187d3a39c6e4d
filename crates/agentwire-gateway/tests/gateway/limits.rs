//! Limits and malformed requests: each has its documented status and code.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{agent::Demo, codes, settings::Settings};
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::*;

/// Method, path, content type and body of a request; status and code of the response.
type Case<'c> = (Method, &'c str, Option<&'c str>, &'c [u8], u16, &'c str);

#[tokio::test]
async fn bad_requests_get_their_status_and_code() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .set(|settings| settings.limits.body = 10_000)
        .on_memory()
        .await;
    let long = format!(r#"{{"threadId":"t","runId":"r","messages":[],"state":"{}"}}"#, "x".repeat(20_000));
    let bad_id = format!(
        r#"{{"threadId":"t","runId":"{}","messages":[{{"id":"u","role":"user","content":"x"}}]}}"#,
        "x".repeat(600)
    );
    let json = Some("application/json");
    let cases: Vec<Case<'_>> = vec![
        (Method::POST, "/", json, b"", 400, codes::BAD_REQUEST),
        (Method::POST, "/", json, b"{", 400, codes::BAD_REQUEST),
        (Method::POST, "/", json, b"null", 400, codes::BAD_REQUEST),
        (Method::POST, "/", json, b"[]", 400, codes::BAD_REQUEST),
        (Method::POST, "/", json, b"{\"threadId\":7}", 400, codes::BAD_REQUEST),
        (Method::POST, "/", json, b"\xff\xfe", 400, codes::BAD_REQUEST),
        (
            Method::POST,
            "/",
            json,
            br#"{"threadId":"t","runId":"r","messages":"none"}"#,
            400,
            codes::BAD_REQUEST,
        ),
        (
            Method::POST,
            "/",
            json,
            br#"{"threadId":"t","runId":"a\nb","messages":[{"id":"u","role":"user","content":"x"}]}"#,
            400,
            codes::BAD_ID,
        ),
        (Method::POST, "/", json, bad_id.as_bytes(), 400, codes::BAD_ID),
        (Method::POST, "/", json, long.as_bytes(), 413, codes::BODY_TOO_LARGE),
        (Method::POST, "/", None, b"{}", 415, codes::UNSUPPORTED_MEDIA_TYPE),
        (Method::POST, "/", Some("text/plain"), b"{}", 415, codes::UNSUPPORTED_MEDIA_TYPE),
        (
            Method::POST,
            "/",
            Some("application/x-www-form-urlencoded"),
            b"{}",
            415,
            codes::UNSUPPORTED_MEDIA_TYPE,
        ),
        (Method::POST, "/awp", Some("multipart/form-data"), b"{}", 415, codes::UNSUPPORTED_MEDIA_TYPE),
        (
            Method::POST,
            "/",
            json,
            br#"{"threadId":"t","runId":"r","messages":[{"id":"u","role":"martian","content":"x"}]}"#,
            400,
            codes::BAD_REQUEST,
        ),
        (
            Method::POST,
            "/awp",
            json,
            br#"{"messages":[{"role":"martian","content":"x"}]}"#,
            400,
            codes::BAD_REQUEST,
        ),
        (Method::POST, "/awp", json, b"7", 400, codes::BAD_REQUEST),
        (Method::POST, "/chat", json, b"{\"messages\":{}}", 400, codes::BAD_REQUEST),
        (Method::POST, "/api/chat", json, b"[]", 400, codes::BAD_REQUEST),
        (Method::POST, "/api/chat", Some("text/plain"), b"{}", 415, codes::UNSUPPORTED_MEDIA_TYPE),
        (Method::PATCH, "/state/t", json, b"{}", 400, codes::BAD_REQUEST),
        (Method::PATCH, "/state/t", json, b"[{\"op\":\"jump\"}]", 400, codes::BAD_REQUEST),
        (Method::PATCH, "/state/t", json, b"[]", 404, codes::UNKNOWN_THREAD),
        (Method::PATCH, "/state/t", Some("text/plain"), b"[]", 415, codes::UNSUPPORTED_MEDIA_TYPE),
        (Method::GET, "/state_snapshot/t", None, b"", 404, codes::UNKNOWN_THREAD),
        (Method::GET, "/message_snapshot/%ff", None, b"", 400, codes::BAD_REQUEST),
        (Method::GET, "/message_snapshot/t", None, b"", 404, codes::UNKNOWN_THREAD),
        (Method::DELETE, "/thread/t", None, b"", 404, codes::UNKNOWN_THREAD),
        (Method::GET, "/threads/t/stream", None, b"", 404, codes::UNKNOWN_THREAD),
        (Method::GET, "/threads/t/pending", None, b"", 404, codes::UNKNOWN_THREAD),
        (Method::GET, "/runs/r", None, b"", 404, codes::UNKNOWN_RUN),
        (Method::GET, "/runs/r/stream", None, b"", 404, codes::UNKNOWN_RUN),
        (Method::POST, "/runs/r/stop", None, b"", 404, codes::UNKNOWN_RUN),
        (Method::GET, "/runs/r/stream?format=morse", None, b"", 400, codes::UNKNOWN_FORMAT),
        (Method::GET, "/runs/r/stream?format=adk", None, b"", 400, codes::UNKNOWN_FORMAT),
        (Method::GET, "/runs/r/stream?format=ai-sdk@99", None, b"", 400, codes::UNKNOWN_FORMAT),
        (Method::GET, "/thread/list?limit=many", None, b"", 400, codes::BAD_REQUEST),
        (Method::GET, "/thread/list?before=-1", None, b"", 400, codes::BAD_REQUEST),
        (Method::GET, "/agents/nobody", None, b"", 404, codes::UNKNOWN_AGENT),
        (Method::POST, "/agents/nobody/", json, b"{}", 404, codes::UNKNOWN_AGENT),
        (Method::POST, "/agents/nobody/awp", json, b"{}", 404, codes::UNKNOWN_AGENT),
        (Method::GET, "/nowhere", None, b"", 404, codes::UNKNOWN_ROUTE),
        (Method::GET, "/../../etc/passwd", None, b"", 404, codes::UNKNOWN_ROUTE),
        (Method::PUT, "/", json, b"{}", 405, codes::METHOD_NOT_ALLOWED),
        (Method::GET, "/awp", None, b"", 405, codes::METHOD_NOT_ALLOWED),
        (Method::POST, "/thread/list", json, b"{}", 405, codes::METHOD_NOT_ALLOWED),
        (Method::DELETE, "/agents/demo", None, b"", 405, codes::METHOD_NOT_ALLOWED),
    ];
    for (method, path, content_type, body, status, code) in cases {
        let mut request = server.ask(method.clone(), path).body(body.to_vec());
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let case = format!("{method} {path} {:.80}", String::from_utf8_lossy(body));
        let response = with_timeout(&case, request.send()).await.expect("a response");
        let headers = response.headers().clone();
        let found = response.status().as_u16();
        let text = response.text().await.expect("a body");
        assert_eq!(
            (found, headers["agentwire-error-code"].to_str().ok()),
            (status, Some(code)),
            "{case}: {text}"
        );
        if path.starts_with("/api/chat") {
            assert_eq!(headers["content-type"], "text/plain; charset=utf-8", "{case}");
            assert!(text.starts_with(char::is_uppercase) && text.ends_with('.'), "{case}: {text}");
        } else {
            let body: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            assert_eq!(body["error"]["code"].as_str(), Some(code), "{case}: {text}");
            assert!(!body["error"]["message"].as_str().unwrap_or_default().is_empty(), "{case}");
            assert_eq!(headers["content-type"], "application/json", "{case}");
        }
        assert_eq!(headers["cache-control"], "no-store", "{case}");
    }
    assert_valid(&server.run_to_end("t", "r", "hello").await);
}

#[tokio::test]
async fn deep_nesting_is_refused_or_kept_without_a_crash() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    for depth in [10, 120, 130, 5_000, 200_000] {
        let state = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let body = format!(
            r#"{{"threadId":"t{depth}","runId":"r{depth}","messages":[{{"id":"u","role":"user","content":"hello"}}],"state":{{"a":{state}}}}}"#
        );
        let request = server.ask(Method::POST, "/").header("content-type", "application/json").body(body);
        let mut stream = Stream::of(request).await;
        if stream.status() == 200 {
            assert!(depth < 128);
            assert_valid(&stream.rest().await);
        } else {
            assert_eq!(stream.status(), 400, "{depth}");
        }
    }
    assert_eq!(server.json("/livez").await.0, 200);
}

#[tokio::test]
async fn p6_large_or_slow_requests_are_refused() {
    let demo = || plan(Arc::new(Demo::without_pauses())).set(|settings| settings.limits.head = 8192);
    let patient = demo().on_memory().await;
    let strict = |settings: &mut Settings| settings.limits.request_timeout = Duration::from_millis(200);
    let hasty = demo().set(strict).on_memory().await;
    let send_raw = async |server: &Server, bytes: Vec<u8>| {
        let address = server.base.strip_prefix("http://").expect("it has one");
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let _ = stream.write_all(&bytes).await;
        let mut response = Vec::new();
        let _ = with_timeout("the end of the connection", stream.read_to_end(&mut response)).await;
        String::from_utf8_lossy(&response).into_owned()
    };
    let large = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nbig: {}\r\n\r\n", "x".repeat(20_000));
    assert!(send_raw(&patient, large.into_bytes()).await.starts_with("HTTP/1.1 431"));
    let slow_head = send_raw(&hasty, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n".to_vec()).await;
    assert!(slow_head.is_empty() || slow_head.starts_with("HTTP/1.1 408"), "{slow_head}");
    // No bytes, the start of HTTP/2, and HTTP/2 without a stream.
    assert_eq!(send_raw(&hasty, Vec::new()).await, "");
    assert_eq!(send_raw(&hasty, b"PRI * HT".to_vec()).await, "");
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    send_raw(&hasty, settings.to_vec()).await;
    let slow_body = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{";
    let slow_body = send_raw(&hasty, slow_body.as_bytes().to_vec()).await;
    assert!(
        slow_body.starts_with("HTTP/1.1 408") && slow_body.contains(codes::REQUEST_TIMEOUT),
        "{slow_body}"
    );
    let both = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}";
    assert!(send_raw(&patient, both.as_bytes().to_vec()).await.starts_with("HTTP/1.1 400"));
    assert_eq!(patient.json("/livez").await.0, 200);
}

#[tokio::test]
async fn a_client_that_sends_its_whole_body_first_gets_the_error() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .set(|settings| settings.limits.body = 10_000)
        .on_memory()
        .await;
    let address = server.base.strip_prefix("http://").expect("it has one");
    // More than the buffers of a connection.
    let body = vec![b' '; 20 << 20];
    for (path, content_type, status) in
        [("/", "application/json", 413), ("/", "text/plain", 415), ("/nowhere", "application/json", 404)]
    {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("the head is sent");
        with_timeout("the body", stream.write_all(&body)).await.expect("the body is sent");
        let mut response = String::new();
        with_timeout("the response", stream.read_to_string(&mut response)).await.expect("a response");
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {response}");
    }
}

/// The response does not wait for the rest of the body, and a client that goes on sending can still read it.
#[tokio::test]
async fn a_body_that_is_too_large_is_refused_while_it_is_sent() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .set(|settings| settings.limits.body = 10_000)
        .on_memory()
        .await;
    let address = server.base.strip_prefix("http://").expect("it has one");
    let (half, length) = (vec![b' '; 4 << 20], 8 << 20);
    let chunk = format!("{length:x}\r\n");
    for (header, start) in [
        (format!("content-length: {length}"), &b"{"[..]),
        ("transfer-encoding: chunked".to_owned(), chunk.as_bytes()),
    ] {
        for path in ["/", "/awp", "/api/chat"] {
            let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{header}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.expect("the head is sent");
            stream.write_all(start).await.expect("the start of the body is sent");
            if header.starts_with("transfer") {
                with_timeout("more than the limit", stream.write_all(&half)).await.expect("it is sent");
            }
            let mut response = vec![0; 12];
            with_timeout("the response", stream.read_exact(&mut response)).await.expect("a response");
            assert_eq!(String::from_utf8_lossy(&response), "HTTP/1.1 413", "{path} {header}");
            with_timeout("the rest of the body", stream.write_all(&half)).await.expect("it is discarded");
        }
    }
}

#[tokio::test]
async fn p6_runs_above_the_limit_are_refused() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone()).set(|settings| settings.limits.runs = 2).on_memory().await;
    let mut one = server.run("a", "one", "hello").await;
    let mut two = server.run("b", "two", "hello").await;
    one.take(1).await;
    two.take(1).await;
    let (status, body) = answer(server.post("/", &Server::input("c", "three", "hello"))).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (503, Some(codes::OVERLOADED)));
    assert_eq!(server.run("a", "one", "hello").await.status(), 200, "a repeated request returns its run");
    puppet.allow(100);
    one.rest().await;
    two.rest().await;
    wait_until("the first run has ended", async || server.json("/runs/one").await.1["status"] == "finished")
        .await;
    assert_valid(&server.run_to_end("c", "three", "hello").await);
}
