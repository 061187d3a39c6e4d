//! The memory governor: near its limit the gateway refuses new work and keeps what it has.

#![cfg(target_os = "linux")]

use agentwire_gateway::{codes, settings::MemoryLimit};
use reqwest::Method;

use crate::support::*;

#[tokio::test]
async fn p6_a_gateway_short_of_memory_refuses_runs_and_readers() {
    let puppet = Puppet::new(|input| talk(input, 3));
    // Any process has more than a byte: memory is always short.
    let server =
        plan(puppet.clone()).set(|settings| settings.limits.memory = MemoryLimit::Bytes(1)).on_memory().await;
    // Without a live run there is nothing to wait for.
    let mut first = server.run("t1", "r1", "hello").await;
    assert_eq!(first.status(), 200);
    puppet.allow(1);
    first.take(1).await;
    let requests = [
        ("a run", server.post("/", &Server::input("t2", "r2", "hello"))),
        ("a reader", server.ask(Method::GET, "/runs/r1/stream")),
        ("a load balancer", server.ask(Method::GET, "/readyz")),
    ];
    for (name, request) in requests {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 503, "{name}");
        assert!(response.headers().contains_key("retry-after"), "{name}");
        assert!(response.text().await.unwrap().contains(codes::OVERLOADED), "{name}");
    }
    assert_eq!(server.metric("agentwire_memory_limit_bytes").await, 1);
    assert!(server.metric("agentwire_memory_bytes").await > 1 << 20);
    puppet.allow(100);
    assert_eq!(types(&first.rest().await).last().map(String::as_str), Some("RUN_FINISHED"), "it goes on");
    wait_until("the run is over", || async { server.metric("agentwire_runs_live").await == 0 }).await;
    assert_eq!(server.run("t2", "r2", "hello").await.status(), 200, "nobody is locked out for ever");
}

#[tokio::test]
async fn without_a_limit_nothing_is_refused() {
    let puppet = Puppet::eager(|input| talk(input, 1));
    let server =
        plan(puppet).set(|settings| settings.limits.memory = MemoryLimit::Unlimited).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    assert_eq!(server.ask(Method::GET, "/readyz").send().await.unwrap().status(), 200);
}

/// From 85 % of the limit on, new runs are refused; readers only from 95 % on.
#[tokio::test]
async fn p6_a_gateway_that_is_nearly_short_of_memory_refuses_runs_only() {
    let puppet = Puppet::new(|input| talk(input, 3));
    // So much that what the servers take does not count.
    let ballast = vec![7_u8; 128 << 20];
    let bytes = plan(puppet.clone()).on_memory().await.metric("agentwire_memory_bytes").await;
    assert!(bytes >= ballast.len() as u64, "{bytes}");
    let limit = MemoryLimit::Bytes(bytes * 100 / 90);
    let server = plan(puppet.clone()).set(|settings| settings.limits.memory = limit).on_memory().await;
    let mut first = server.run("t1", "r1", "hello").await;
    puppet.allow(1);
    first.take(1).await;
    let (status, body) = answer(server.post("/", &Server::input("t2", "r2", "hello"))).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (503, Some(codes::OVERLOADED)), "{body}");
    assert_eq!(server.follow("/runs/r1/stream").await.status(), 200, "a reader");
    puppet.allow(100);
    assert_eq!(types(&first.rest().await).last().map(String::as_str), Some("RUN_FINISHED"), "it goes on");
    drop(ballast);
}
