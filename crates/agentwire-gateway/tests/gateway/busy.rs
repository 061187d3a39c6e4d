//! Double texting: the `busy` setting for a run in a thread that another run holds.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use agentwire_gateway::{codes, settings::Busy};
use agentwire_store::Store;
use reqwest::Method;
use serde_json::json;

use crate::support::*;

fn code_of(frames: &[Frame]) -> String {
    frames.last().expect("a last frame").json()["code"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn reject_refuses_in_the_protocol_of_the_route_and_stores_nothing() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 5));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut one = server.run("t", "one", "hello").await;
        let mut seen = one.take(1).await;
        for _ in 0..3 {
            let refused = server.run_to_end("t", "two", "hello").await;
            assert_valid(&refused);
            assert_eq!((types(&refused).len(), code_of(&refused).as_str()), (2, codes::THREAD_IS_LOCKED));
            assert_eq!(ids(&refused), [] as [String; 0], "a refused run cannot be followed");
        }
        let hai = json!({"threadId": "t", "runId": "h", "messages": [{"id": "u", "role": "user", "content": "hello"}]});
        let refused = Stream::of(server.post("/awp", &hai)).await;
        assert_eq!(refused.status(), 200);
        assert!(String::from_utf8_lossy(&refused.bytes().await).contains(codes::THREAD_IS_LOCKED));
        let chat = json!({"id": "t", "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]});
        let (status, body) = answer(server.post("/api/chat", &chat)).await;
        assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (409, Some(codes::THREAD_IS_LOCKED)));
        assert_eq!(server.json("/runs/two").await.0, 404, "the id stays free");

        // None of the refused runs has released the lease.
        assert_eq!(code_of(&server.run_to_end("t", "three", "hello").await), codes::THREAD_IS_LOCKED);
        puppet.allow(100);
        seen.extend(one.rest().await);
        assert_valid(&seen);
        let frames = server.run_to_end("t", "two", "hello").await;
        assert_valid(&frames);
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"));
        assert_eq!(puppet.runs(), ["one", "two"]);
    }
}

#[tokio::test]
async fn wait_retries_up_to_its_limit() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let wait = Busy::Wait { retries: 3, interval: Duration::from_millis(10) };
    let server = plan(puppet.clone()).agent(|agent| agent.busy = wait).on_memory().await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    assert_eq!(code_of(&server.run_to_end("t", "two", "hello").await), codes::THREAD_IS_LOCKED);

    let wait = Busy::Wait { retries: 10_000, interval: Duration::from_millis(5) };
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone()).agent(|agent| agent.busy = wait).on_memory().await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    let (two, ()) = tokio::join!(server.run_to_end("t", "two", "hello"), async {
        wait_until("the request waits", async || server.metric("agentwire_lock_waits_total").await > 0).await;
        puppet.allow(100);
    });
    assert_valid(&two);
    assert_eq!(code_of(&two), "");
}

#[tokio::test]
async fn p6_enqueue_keeps_the_order_and_its_limit() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 3));
        let server = plan(puppet.clone())
            .agent(|agent| agent.busy = Busy::Enqueue { limit: 4 })
            .on(&backend.store)
            .await;
        let mut streams = Vec::new();
        let names = ["one", "two", "three", "four", "five"];
        for name in names {
            streams.push(server.run("t", name, "hello").await);
        }
        let full = server.run_to_end("t", "six", "hello").await;
        assert_valid(&full);
        assert_eq!(code_of(&full), codes::QUEUE_FULL);
        assert_eq!(server.json("/runs/six").await.0, 404);
        assert_eq!(server.status("three").await, "queued");
        // A queued run can be stopped; the others keep their order.
        let (status, body) = answer(server.ask(Method::POST, "/runs/three/stop")).await;
        assert_eq!((status.as_u16(), body["status"].as_str()), (200, Some("stopped")));
        puppet.allow(100);
        for (name, mut stream) in names.into_iter().zip(streams) {
            let frames = stream.rest().await;
            assert_valid(&frames);
            let cancelled = frames.last().expect("a last frame").json()["outcome"]["type"] == "cancelled";
            assert_eq!(cancelled, name == "three");
        }
        assert_eq!(puppet.runs(), ["one", "two", "four", "five"]);
        let (_, messages) = server.json("/message_snapshot/t").await;
        let ids: Vec<_> = messages["messages"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|message| message["id"].clone())
            .collect();
        assert_eq!(ids.len(), 8, "each run got the messages before it: {ids:?}");
    }
}

#[tokio::test]
async fn interrupt_stops_the_active_run() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 5));
        let server =
            plan(puppet.clone()).agent(|agent| agent.busy = Busy::Interrupt).on(&backend.store).await;
        let mut one = server.run("t", "one", "hello").await;
        puppet.allow(2);
        let mut seen = one.take(3).await;
        let mut two = server.run("t", "two", "hello").await;
        seen.extend(one.rest().await);
        assert_valid(&seen);
        assert_eq!(seen.last().expect("a last frame").json()["outcome"]["type"], "cancelled");
        puppet.allow(100);
        let two = two.rest().await;
        assert_valid(&two);
        assert_eq!(types(&two).last().map(String::as_str), Some("RUN_FINISHED"));
        assert_eq!(puppet.runs(), ["one", "two"]);
    }
}

/// The thread becomes free between the check of its pending items and the start of the run: a question asked in between counts.
#[tokio::test]
async fn a_question_asked_just_before_the_start_is_not_skipped() {
    let puppet = Puppet::new(asker_script);
    let faulty = FaultyStore::new(Backend::memory().await.store);
    let store: Arc<dyn Store> = faulty.clone();
    let server = Arc::new(plan(puppet.clone()).on(&store).await);
    let mut one = server.run("t", "one", r#"{"ask": [{"id": "q"}]}"#).await;
    one.take(1).await;
    let held = faulty.starts.lock().await;
    let two = tokio::spawn({
        let server = server.clone();
        async move { server.run_to_end("t", "two", "hello").await }
    });
    wait_until("the second run is about to start", async || faulty.starting.load(Ordering::SeqCst) == 2)
        .await;
    puppet.allow(100);
    one.rest().await;
    drop(held);
    let frames = with_timeout("the second run", two).await.expect("no panic");
    assert_valid(&frames);
    assert_eq!(code_of(&frames), codes::INTERRUPT_UNANSWERED);
    assert_eq!(puppet.runs(), ["one"]);
    assert_eq!(server.json("/threads/t/pending").await.1[0]["id"], "q");
}

/// The runs in the queue of a thread that is deleted end with it: none of them gets the thread and calls its agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_deleting_a_thread_ends_its_queue() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 3));
        let server = plan(puppet.clone())
            .agent(|agent| agent.busy = Busy::Enqueue { limit: 8 })
            .on(&backend.store)
            .await;
        for round in 0..10 {
            let thread = format!("t{round}");
            let mut streams = Vec::new();
            for run in ["a", "b", "c"] {
                streams.push(server.run(&thread, &format!("{run}{round}"), "hello").await);
            }
            let deleted = server.ask(Method::DELETE, &format!("/thread/{thread}")).send().await;
            assert_eq!(deleted.expect("a response").status(), 200);
            for mut stream in streams {
                let frames = stream.rest().await;
                assert_valid(&frames);
                assert_eq!(code_of(&frames), codes::THREAD_DELETED);
            }
            let expected: Vec<_> = (0..=round).map(|round| format!("a{round}")).collect();
            assert_eq!(puppet.runs(), expected);
        }
    }
}
