//! Bodies that take memory.

use std::time::Duration;

use agentwire_gateway::codes;
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::support::*;

/// Bodies that are never finished take their share of the budget, and give it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_unfinished_bodies_share_one_budget() {
    let puppet = Puppet::new(|input| talk(input, 1));
    puppet.allow(1000);
    let server = plan(puppet)
        .set(|settings| {
            settings.limits.body = 1 << 20;
            settings.limits.inflight_bytes = 4 << 20;
        })
        .on_memory()
        .await;
    let part = vec![b' '; 200 << 10];
    let mut held = Vec::new();
    for _ in 0..12 {
        let head = format!(
            "POST / HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n",
            server.address()
        );
        let mut stream = server.raw(head).await;
        // The later ones are refused while they send.
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.write_all(&part)).await;
        held.push(stream);
    }
    // A peer has a quarter, which is one megabyte.
    let input = json!({"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "x".repeat(300 << 10)}]});
    let ask = || answer(server.post("/", &input));
    wait_until("there is no room", async || {
        let (status, body) = ask().await;
        status == 503 && body["error"]["code"] == codes::OVERLOADED
    })
    .await;
    assert_eq!(server.ask(Method::GET, "/livez").send().await.expect("a response").status(), 200);
    drop(held);
    wait_until("there is room again", async || ask().await.0 == 200).await;
}

/// A request that has no valid credential, or no permission, is refused before its body arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_nobody_sends_a_body_before_authentication() {
    let server = plan(Puppet::new(|input| talk(input, 1)))
        .set(|settings| settings.auth.mode = agentwire_gateway::settings::AuthMode::Required)
        .on_memory()
        .await;
    for path in ["/", "/awp", "/api/chat", "/feedback"] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 1000000\r\n\r\n",
            server.address()
        );
        let response = server.exchange(request).await;
        assert_eq!(raw_status(&response), 401, "{path}: {response}");
        assert!(!response.contains("100 Continue"), "{path}");
    }
}

/// A large body is parsed off the workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_large_bodies_do_not_hold_the_workers() {
    let puppet = Puppet::new(|input| talk(input, 1));
    puppet.allow(1000);
    let server = plan(puppet).on_memory().await;
    let parts: Vec<_> = (0..60_000).map(|n| json!({"type": "text", "text": format!("{n}")})).collect();
    let input =
        json!({"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": parts}]});
    let text = input.to_string();
    let post = server.ask(Method::POST, "/").header("content-type", "application/json").body(text);
    let (run, live) = tokio::join!(answer(post), server.ask(Method::GET, "/livez").send());
    assert_eq!((run.0.as_u16(), live.expect("a response").status().as_u16()), (200, 200));
}
