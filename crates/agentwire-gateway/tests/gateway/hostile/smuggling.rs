//! Requests that a proxy in front could read otherwise than the gateway, over real sockets.

use agentwire_gateway::settings::{IdentityField, IdentitySource};

use crate::support::*;

/// Heads with two lengths, or with lines that are read differently, end the connection: nothing behind them is a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_requests_are_refused() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    for fields in [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5, 6",
        "content-length: -1",
        "content-length: +5",
        "content-length: 0x5",
        "content-length: 99999999999999999999999",
        "transfer-encoding: gzip",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: \u{b}chunked",
        "content-length : 5",
        "x: a\r\n content-length: 5",
        "x: a\0b",
        "x: a\rb",
        "content-length: 5\r\n\tx: y",
        ": empty",
        "content type: a",
    ] {
        let head = format!("POST /runs/r/stop HTTP/1.1\r\nhost: {}\r\n{fields}\r\n\r\n", server.address());
        let behind = "0\r\n\r\nGET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let response = server.exchange(format!("{head}{behind}")).await;
        assert_eq!(raw_status(&response), 400, "{fields:?}: {response}");
        assert!(!response.contains("\r\n\r\nok\n"), "{fields:?}: {response}");
    }
    // With both lengths the chunks count, and the connection ends with the response.
    for fields in
        ["content-length: 5\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 5"]
    {
        let head = format!("POST /runs/r/stop HTTP/1.1\r\nhost: {}\r\n{fields}\r\n\r\n", server.address());
        let behind = "0\r\n\r\nGET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let response = server.exchange(format!("{head}{behind}")).await;
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{fields:?}: {response}");
    }
}

/// A line that ends with a bare line feed is a line, as RFC 9112 allows; it cannot be a part of a value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bare_line_feed_ends_a_line() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    let get = |middle: &str| format!("GET /agents HTTP/1.1\n{middle}connection: close\n\n");
    let own = format!("host: {}\n", server.address());
    assert_eq!(raw_status(&server.exchange(get(&own)).await), 200);
    // It does not hide a second host, nor a second length.
    for middle in [format!("{own}x: y\nhost: evil.example\n"), format!("x: y\n{own}host: evil.example\n")] {
        let status = raw_status(&server.exchange(get(&middle)).await);
        assert!(matches!(status, 400 | 421), "{middle:?}: {status}");
    }
}

/// Of a repeated member the last one counts, for the protocol and for the identity alike: nobody can be one user for the
/// check and another one for the run.
#[tokio::test]
async fn the_last_of_repeated_members_counts_everywhere() {
    let puppet = Puppet::eager(|input| talk(input, 1));
    let user = IdentityField { source: IdentitySource::Body("/forwardedProps/user".into()), default: None };
    let server = plan(puppet.clone()).set(|settings| settings.identity.user = user).on_memory().await;
    let body = r#"{"threadId":"one","threadId":"two","runId":"r1","runId":"r2","messages":[],
        "messages":[{"id":"m","role":"user","content":"hi"}],"tools":[],"context":[],"state":{},
        "forwardedProps":{"user":"ada"},"forwardedProps":{"user":"bob","user":"eve"}}"#;
    let request =
        server.ask(reqwest::Method::POST, "/").header("content-type", "application/json").body(body);
    assert_valid(&Stream::of(request).await.rest().await);
    let seen = puppet.last_request();
    assert_eq!(seen.owner.user.as_str(), "eve");
    assert_eq!((seen.input.thread.as_str(), seen.input.run.as_str()), ("two", "r2"));
    assert_eq!(seen.input.messages.len(), 1);
}
