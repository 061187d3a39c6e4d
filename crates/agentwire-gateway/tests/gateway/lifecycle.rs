//! Lifecycle of a gateway: P2, durability; P4, one owner; drain; retention.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{InstanceLock, agent::EventSink, codes};
use agentwire_store::{ManualClock, Time};
use reqwest::Method;

use crate::support::*;

fn code_of(frames: &[Frame]) -> String {
    frames.last().expect("a last frame").json()["code"].as_str().unwrap_or_default().to_owned()
}

/// Crashes after every event; the next process has all events that were sent, ends the run immediately and frees the thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_sent_events_survive_a_crash_after_every_event() {
    const WORDS: usize = 6;
    for seen_events in 1..WORDS + 3 {
        let backend = Backend::sqlite().await;
        let puppet = Puppet::new(|input| talk(input, WORDS));
        let server = plan(puppet.clone())
            .instance_lock(InstanceLock::at(&backend.address))
            .killable(&backend.store)
            .await;
        let mut stream = server.run("t", "r", "hello").await;
        puppet.allow(seen_events - 1);
        let seen = stream.take(seen_events).await;
        server.crash().await;

        let store = backend.reopened().await;
        let server = plan(puppet.clone()).instance_lock(InstanceLock::at(&backend.address)).on(&store).await;
        let mut back = server.follow("/runs/r/stream").await;
        assert_eq!(back.verdict(), "whole");
        let log = back.rest().await;
        assert_valid(&log);
        assert_eq!(log[..seen_events], seen, "after {seen_events}");
        assert_eq!(code_of(&log), codes::GATEWAY_LOST);
        let rest = server.follow(&format!("/runs/r/stream?after=r:{}", seen_events - 1)).await.rest().await;
        assert_eq!(rest, log[seen_events..]);
        assert_eq!(puppet.calls(), 1);
        puppet.allow(100);
        let next = server.run_to_end("t", "next", "and then").await;
        assert_valid(&next);
        assert_eq!(code_of(&next), "");
        let (_, messages) = server.json("/message_snapshot/t").await;
        let messages = &messages["messages"];
        assert_eq!(messages[0]["id"], "r-user", "the user message is kept: {messages}");
    }
}

#[tokio::test]
async fn p2_messages_and_state_survive_a_crash() {
    let backend = Backend::sqlite().await;
    let server =
        plan(Arc::new(agentwire_gateway::agent::Demo::without_pauses())).killable(&backend.store).await;
    server.run_to_end("t", "r", "state tools").await;
    let before = (
        server.json("/message_snapshot/t").await.1["messages"].clone(),
        server.json("/state_snapshot/t").await.1["snapshot"].clone(),
    );
    server.crash().await;
    let store = backend.reopened().await;
    let server = plan(Arc::new(agentwire_gateway::agent::Demo::without_pauses())).on(&store).await;
    let after = (
        server.json("/message_snapshot/t").await.1["messages"].clone(),
        server.json("/state_snapshot/t").await.1["snapshot"].clone(),
    );
    assert_eq!(before, after);
    assert_eq!(after.1["demo"]["progress"], 100);
}

/// A suspended gateway wakes up after another one took its run over: its writes are rejected, and its readers get an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_a_gateway_that_lost_a_run_cannot_write_to_it() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    let backend = Backend::memory_at(clock.clone()).await;
    let puppet = Puppet::new(|input| talk(input, 10));
    // A long lease means late renewals, as on a suspended machine.
    let slow = plan(puppet.clone())
        .set(|settings| settings.lease = Duration::from_secs(300))
        .on(&backend.store)
        .await;
    let other = plan(puppet.clone())
        .set(|settings| settings.lease = Duration::from_millis(300))
        .on(&backend.store)
        .await;
    let mut stream = slow.run("t", "r", "hello").await;
    puppet.allow(3);
    let mut seen = stream.take(4).await;
    let refused = other.run_to_end("t", "two", "hello").await;
    assert_eq!(code_of(&refused), codes::THREAD_IS_LOCKED);
    clock.advance(Duration::from_secs(400));
    wait_until("the run has ended", async || other.status("r").await == "failed").await;
    puppet.allow(100);
    seen.extend(stream.rest().await);
    assert_valid(&seen);
    assert_eq!(code_of(&seen), codes::GATEWAY_LOST);
    let log = other.follow("/runs/r/stream").await.rest().await;
    assert_valid(&log);
    assert_eq!(log[..4], seen[..4]);
    assert_eq!(code_of(&log), codes::GATEWAY_LOST);
    assert_eq!(types(&log).len(), 6, "no late event of the first gateway is stored");
}

/// A gateway that renews its claim too late, before another one takes the run over, continues.
#[tokio::test]
async fn p4_a_slow_gateway_keeps_its_run_until_a_takeover() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    for backend in [Backend::memory_at(clock.clone()).await, Backend::sqlite_at(clock.clone()).await] {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut stream = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let mut seen = stream.take(4).await;
        // Longer than a claim lasts.
        clock.advance(Duration::from_secs(400));
        puppet.allow(100);
        seen.extend(stream.rest().await);
        assert_valid(&seen);
        assert_eq!(types(&seen).last().map(String::as_str), Some("RUN_FINISHED"), "{}", code_of(&seen));
        assert_eq!(server.follow("/runs/r/stream").await.rest().await, seen);
    }
}

/// The claim is renewed while the agent emits events without a pause.
#[tokio::test]
async fn p4_a_gateway_with_a_flooding_agent_renews_its_claim() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    let backend = Backend::memory_at(clock.clone()).await;
    let floods = play(async |_, sink: EventSink| {
        sink.send(start("m")).await?;
        loop {
            sink.send(delta("m", "and so on ")).await?;
        }
    });
    let lease = Duration::from_secs(2);
    let server = plan(floods).set(|settings| settings.lease = lease).on(&backend.store).await;
    let mut stream = server.run("t", "r", "hello").await;
    stream.take(1).await;
    // Only the test moves this clock, so that the lease can only be live again after a renewal.
    clock.advance(lease);
    let owner = agentwire_store::Owner::new("default", "default-user", "demo");
    wait_until("the lease is renewed", async || {
        backend.store.lease(&owner, &"t".into()).await.expect("the thread").expect("a lease").live
    })
    .await;
    answer(server.ask(Method::POST, "/runs/r/stop")).await;
    stream.rest().await;
}

#[tokio::test]
async fn live_runs_of_another_gateway_can_be_followed() {
    let backend = Backend::sqlite().await;
    let store = backend.reopened().await;
    let puppet = Puppet::new(|input| talk(input, 10));
    let one = plan(puppet.clone()).on(&backend.store).await;
    let two = plan(puppet.clone()).on(&store).await;
    let mut first = one.run("t", "r", "hello").await;
    puppet.allow(3);
    let mut seen = first.take(4).await;
    let mut second = two.follow("/runs/r/stream").await;
    let mut seen_by_second = second.take(4).await;
    puppet.allow(100);
    seen.extend(first.rest().await);
    seen_by_second.extend(second.rest().await);
    assert_eq!(seen, seen_by_second);
    let (status, body) = answer(two.ask(Method::POST, "/runs/r/stop")).await;
    assert_eq!((status.as_u16(), body["status"].as_str()), (200, Some("finished")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_refuses_new_runs_and_waits_for_fifty_live_ones() {
    let backend = Backend::sqlite().await;
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on(&backend.store).await;
    let mut streams = Vec::new();
    for number in 0..50 {
        streams.push(server.run(&format!("t{number}"), &format!("r{number}"), "hello").await);
    }
    for stream in &mut streams {
        stream.take(1).await;
    }
    server.drain();
    wait_until("the drain has started", async || server.json("/readyz").await.0 == 503).await;
    let (status, body) = answer(server.post("/", &Server::input("new", "new", "hello"))).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (503, Some(codes::DRAINING)));
    // Live runs can still be followed, and a repeated request returns its run.
    assert_eq!(server.follow("/runs/r7/stream").await.status(), 200);
    assert_eq!(Stream::of(server.post("/", &Server::input("t7", "r7", "hello"))).await.status(), 200);
    for stream in &mut streams {
        stream.aside().await;
        let has_retry = stream.asides.iter().any(|aside| aside.contains("retry: "));
        assert!(has_retry, "every reader gets a reconnect delay: {:?}", stream.asides);
    }
    puppet.allow(1000);
    for mut stream in streams {
        let rest = stream.rest().await;
        assert_eq!(types(&rest).last().map(String::as_str), Some("RUN_FINISHED"));
        assert!(!stream.broken);
    }
    server.ended().await;
}

#[tokio::test]
async fn drain_ends_remaining_runs_after_the_grace_period() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 5));
        let server = plan(puppet.clone())
            .set(|settings| settings.drain_grace = Duration::from_millis(50))
            .agent(|agent| agent.busy = agentwire_gateway::settings::Busy::Enqueue { limit: 5 })
            .on(&backend.store)
            .await;
        let mut one = server.run("t", "one", "hello").await;
        let mut two = server.run("t", "two", "hello").await;
        let mut ai_sdk = server.follow("/runs/one/stream?format=ai-sdk@5").await;
        puppet.allow(2);
        let mut seen = one.take(3).await;
        server.drain();
        seen.extend(one.rest().await);
        assert_valid(&seen);
        assert_eq!(code_of(&seen), codes::GATEWAY_SHUTDOWN);
        let waited = two.rest().await;
        if backend.store.outlives_process() {
            // It was released, and goes on at the next process.
            assert!(waited.is_empty() && two.broken);
        } else {
            assert_valid(&waited);
            assert_eq!(code_of(&waited), codes::GATEWAY_SHUTDOWN);
        }
        assert_eq!(ai_sdk.rest().await.last().expect("a last frame").data, "[DONE]");
        server.ended().await;
        let server = plan(puppet.clone()).on(&backend.store).await;
        assert_eq!(server.follow("/runs/one/stream").await.rest().await, seen);
        puppet.allow(100);
        if backend.store.outlives_process() {
            wait_until("the released run has run", async || server.status("two").await == "finished").await;
        }
        assert_eq!(code_of(&server.run_to_end("t", "three", "hello").await), "");
    }
}

/// Without a renewal for two thirds of the lease the agent is not read; for the whole lease, readers are cut, because the run may
/// belong to another process. A renewal in between lets everything go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_a_gateway_that_cannot_renew_its_lease_stops_in_time() {
    let backend = Backend::memory().await;
    let faulty = FaultyStore::new(backend.store.clone());
    let store: Arc<dyn agentwire_store::Store> = faulty.clone();
    let puppet = Puppet::new(|input| talk(input, 100_000));
    let lease = |settings: &mut agentwire_gateway::settings::Settings| {
        settings.lease = Duration::from_secs(15);
        settings.store_patience = Duration::from_secs(7);
    };
    let server = plan(puppet.clone()).set(lease).on(&store).await;
    let mut stream = server.run("t", "r", "hello").await;
    puppet.allow(3);
    stream.take(4).await;
    let set_failing =
        |is_failing: bool| faulty.renewals_fail.store(is_failing, std::sync::atomic::Ordering::SeqCst);
    // One event at a time, until none arrives any more.
    set_failing(true);
    loop {
        puppet.allow(1);
        if tokio::time::timeout(Duration::from_secs(1), stream.take(1)).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    set_failing(false);
    stream.take(1).await;
    set_failing(true);
    let rest = stream.rest().await;
    assert!(stream.broken, "no regular end: {:?}", rest.last());
    set_failing(false);
    wait_until("the run has its ending", async || server.status("r").await == "failed").await;
    let log = server.follow("/runs/r/stream").await.rest().await;
    assert_valid(&log);
    assert_eq!(code_of(&log), codes::GATEWAY_LOST);
}

#[tokio::test]
async fn retention_deletes_threads_by_age() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    for backend in [Backend::memory_at(clock.clone()).await, Backend::sqlite_at(clock.clone()).await] {
        let server = plan(Puppet::eager(|input| talk(input, 3)))
            .set(|settings| {
                settings.retention.events = Some(Duration::from_secs(2));
                settings.retention.history = Some(Duration::from_secs(100));
            })
            .on(&backend.store)
            .await;
        server.run_to_end("old", "r", "hello").await;
        clock.advance(Duration::from_secs(60));
        server.run_to_end("young", "s", "hello").await;
        clock.advance(Duration::from_secs(60));
        wait_until("the old thread is deleted", async || server.json("/message_snapshot/old").await.0 == 404)
            .await;
        assert_eq!(server.json("/message_snapshot/young").await.0, 200);
        assert_eq!(server.json("/thread/list").await.1, serde_json::json!([{"threadId": "young"}]));
    }
}
