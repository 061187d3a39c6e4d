//! P8, idempotence: a repeated run id starts one run. P9, no re-execution: the gateway never runs an agent twice for one
//! request.

use std::sync::Arc;

use agentwire_gateway::{codes, settings::Busy};
use serde_json::json;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p8_a_hundred_posts_of_one_run_id_start_one_run() {
    for backend in Backend::each().await {
        for busy in [Busy::Reject, Busy::Enqueue { limit: 3 }, Busy::Interrupt] {
            let puppet = Puppet::new(|input| talk(input, 20));
            let server = plan(puppet.clone()).agent(|agent| agent.busy = busy).on(&backend.store).await;
            let server = Arc::new(server);
            let (thread, run) = (format!("t-{busy:?}"), format!("r-{busy:?}"));
            let mut posts = tokio::task::JoinSet::new();
            for _ in 0..100 {
                let (server, thread, run) = (server.clone(), thread.clone(), run.clone());
                posts.spawn(async move { server.run_to_end(&thread, &run, "hello").await });
            }
            puppet.allow(100);
            let seen = with_timeout("all responses", posts.join_all()).await;
            assert_valid(&seen[0]);
            assert!(seen.iter().all(|other| *other == seen[0]), "{busy:?}");
            assert_eq!(puppet.calls(), 1, "{busy:?}");
            assert_eq!(types(&seen[0]).len(), 24);
        }
    }
}

/// Two gateways on one file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p8_two_gateways_start_one_run_for_one_run_id() {
    let backend = Backend::sqlite().await;
    let other_store = backend.reopened().await;
    let puppet = Puppet::new(|input| talk(input, 20));
    let one = Arc::new(plan(puppet.clone()).on(&backend.store).await);
    let two = Arc::new(plan(puppet.clone()).on(&other_store).await);
    let mut posts = tokio::task::JoinSet::new();
    for number in 0..20 {
        let server = if number % 2 == 0 { one.clone() } else { two.clone() };
        posts.spawn(async move { server.run_to_end("t", "r", "hello").await });
    }
    puppet.allow(100);
    let seen = with_timeout("all responses", posts.join_all()).await;
    assert_valid(&seen[0]);
    assert!(seen.iter().all(|other| *other == seen[0]));
    assert_eq!(puppet.calls(), 1);
}

#[tokio::test]
async fn p8_a_run_id_belongs_to_one_thread() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    let (status, body) = answer(server.post("/", &Server::input("other", "r", "hello"))).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (409, Some(codes::RUN_ID_TAKEN)));
    assert_eq!(server.json("/message_snapshot/other").await.0, 404, "the refused request leaves no thread");
}

#[tokio::test]
async fn p8_an_idempotency_key_starts_one_ai_sdk_run() {
    let puppet = Puppet::eager(|input| talk(input, 3));
    let server = plan(puppet.clone()).on_memory().await;
    let body = json!({"id": "t", "trigger": "submit-message",
        "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]});
    let ask = async |key: &str| {
        Stream::of(server.post("/api/chat", &body).header("idempotency-key", key)).await.rest().await
    };
    let first = ask("k").await;
    assert_eq!(ask("k").await, first);
    assert_eq!(puppet.calls(), 1);
    ask("other").await;
    assert_eq!(puppet.calls(), 2);
}

/// Neither new readers, nor a failed run, nor a restart call the agent again.
#[tokio::test]
async fn p9_a_failed_run_is_not_executed_again_after_a_restart() {
    let backend = Backend::sqlite().await;
    let puppet = Puppet::eager(|_| vec![start("m"), error("BROKEN")]);
    let first = {
        let server = plan(puppet.clone()).killable(&backend.store).await;
        let first = server.run_to_end("t", "r", "hello").await;
        assert_eq!(server.run_to_end("t", "r", "hello").await, first);
        server.crash().await;
        first
    };
    let store = backend.reopened().await;
    let server = plan(puppet.clone()).on(&store).await;
    assert_eq!(server.run_to_end("t", "r", "hello").await, first);
    assert_eq!(server.follow("/runs/r/stream").await.rest().await, first);
    let conversation = types(&server.follow("/threads/t/stream").await.rest().await);
    assert_eq!(conversation, ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_ERROR"]);
    assert_eq!(puppet.calls(), 1);
}

#[tokio::test]
async fn p9_a_run_of_a_crashed_gateway_is_not_executed_again() {
    let backend = Backend::sqlite().await;
    let puppet = Puppet::new(|input| talk(input, 10));
    let server = plan(puppet.clone())
        .instance_lock(agentwire_gateway::InstanceLock::at(&backend.address))
        .killable(&backend.store)
        .await;
    let mut stream = server.run("t", "r", "hello").await;
    puppet.allow(4);
    let seen = stream.take(5).await;
    server.crash().await;
    let store = backend.reopened().await;
    let server = plan(puppet.clone()).on(&store).await;
    puppet.allow(100);
    // The claim has not expired and the second gateway cannot know of the crash, so the repeated request follows the run.
    let attached = server.run("t", "r", "hello").await;
    assert_eq!(attached.verdict(), "whole");
    assert_eq!(puppet.calls(), 1);
    assert_eq!(seen.len(), 5);
}
