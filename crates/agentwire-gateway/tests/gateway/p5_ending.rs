//! P5, ending: every accepted run has exactly one terminal event, after any failure, and its thread is free afterwards.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use agentwire_core::event::{Body, Event};
use agentwire_gateway::{
    UpstreamError,
    agent::{Agent, BoxFuture, EventSink, Request},
    codes,
    settings::{Settings, Timeouts},
};
use agentwire_store::{ManualClock, Store, Time};
use serde_json::json;

use crate::support::*;

/// Type and code of the last event.
fn ending(frames: &[Frame]) -> (String, String) {
    let last = frames.last().expect("a last frame").json();
    (last["type"].as_str().unwrap_or_default().into(), last["code"].as_str().unwrap_or_default().into())
}

/// Runs the agent once, checks the properties that all endings share, and returns the last event.
async fn ends_with(plan: Plan, case: &str) -> (String, String) {
    let server = plan.on_memory().await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    let log = server.follow("/runs/r/stream").await.rest().await;
    assert!(log == frames, "{case}: the log contains the events of the stream");
    thread_is_free(&server, "t", case).await;
    ending(&frames)
}

/// Asserts that another run gets the thread; its outcome does not matter.
async fn thread_is_free(server: &Server, thread: &str, case: &str) {
    let frames = server.run_to_end(thread, "next", "hello").await;
    assert_valid(&frames);
    assert_ne!(ending(&frames).1, codes::THREAD_IS_LOCKED, "{case}");
}

fn failed(code: &str) -> (String, String) {
    ("RUN_ERROR".into(), code.into())
}

async fn half_a_message(sink: &EventSink) -> Result<(), UpstreamError> {
    sink.send(Event::new(Body::StepStarted { name: "step".into() })).await?;
    sink.send(start("m")).await?;
    sink.send(delta("m", "half a")).await?;
    Ok(())
}

#[tokio::test]
async fn p5_an_agent_that_returns_early_ends_with_success() {
    let done = ("RUN_FINISHED".to_owned(), String::new());
    assert_eq!(ends_with(plan(play(async |_, _| Ok(()))), "silent").await, done);
    let cut = play(async |_, sink: EventSink| half_a_message(&sink).await);
    assert_eq!(ends_with(plan(cut), "in the middle").await, done);
}

#[tokio::test]
async fn p5_a_failing_agent_ends_with_its_error_code() {
    let fails = play(async |_, sink: EventSink| {
        half_a_message(&sink).await?;
        Err(UpstreamError::new("TOO_BAD", "a failure").with_detail("not for clients"))
    });
    assert_eq!(ends_with(plan(fails), "fails").await, failed("TOO_BAD"));
    let emits_error = play(async |_, sink: EventSink| {
        half_a_message(&sink).await?;
        sink.send(error("EMITTED")).await?;
        sink.send(delta("m", "after the end")).await?;
        sink.send(error("TWICE")).await?;
        Ok(())
    });
    assert_eq!(ends_with(plan(emits_error), "emits an error").await, failed("EMITTED"));
}

/// Panics in `run`, before it returns a future.
struct PanicsAtOnce;

impl Agent for PanicsAtOnce {
    fn run(&self, _: Request, _: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        panic!("at once");
    }
}

/// Panics when polled and keeps its sink.
struct PanicsWhenPolled;

struct Panics(#[expect(dead_code, reason = "only kept open")] EventSink);

impl Future for Panics {
    type Output = Result<(), UpstreamError>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        panic!("when polled");
    }
}

impl Agent for PanicsWhenPolled {
    fn run(&self, _: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        Box::pin(Panics(sink))
    }
}

/// Completes immediately and keeps its sink until it is dropped.
struct Holds;

struct Held(#[expect(dead_code, reason = "only kept open")] EventSink);

impl Future for Held {
    type Output = Result<(), UpstreamError>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(()))
    }
}

impl Agent for Holds {
    fn run(&self, _: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        Box::pin(Held(sink))
    }
}

#[tokio::test]
async fn p5_a_panicking_agent_ends_with_an_internal_error() {
    let panics = play(async |_, sink: EventSink| {
        half_a_message(&sink).await?;
        panic!("in the middle");
    });
    assert_eq!(ends_with(plan(panics), "in the middle").await, failed(codes::INTERNAL));
    assert_eq!(ends_with(plan(Arc::new(PanicsWhenPolled)), "when polled").await, failed(codes::INTERNAL));
    assert_eq!(ends_with(plan(Arc::new(PanicsAtOnce)), "at once").await, failed(codes::INTERNAL));
}

#[tokio::test]
async fn p5_a_run_ends_when_its_agent_returns_even_if_the_sink_is_still_open() {
    assert_eq!(ends_with(plan(Arc::new(Holds)), "holds").await.0, "RUN_FINISHED");
    let leaks = play(async |_, sink: EventSink| {
        half_a_message(&sink).await?;
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(sink);
        });
        Ok(())
    });
    assert_eq!(ends_with(plan(leaks), "leaks").await.0, "RUN_FINISHED");
}

#[tokio::test]
async fn p5_a_hanging_agent_ends_with_a_timeout() {
    let hangs = play(async |_, sink: EventSink| {
        half_a_message(&sink).await?;
        std::future::pending().await
    });
    let patient = |agent: Arc<dyn Agent>, change: fn(&mut Timeouts)| {
        plan(agent).agent(|agent| {
            agent.timeouts = Timeouts { connect: None, first_byte: None, idle: None, total: None };
            change(&mut agent.timeouts);
        })
    };
    let total = patient(hangs.clone(), |timeouts| timeouts.total = Some(Duration::from_millis(50)));
    assert_eq!(ends_with(total, "hangs").await, failed(codes::UPSTREAM_TIMEOUT));
    let idle = patient(hangs, |timeouts| timeouts.idle = Some(Duration::from_millis(50)));
    assert_eq!(ends_with(idle, "is silent").await, failed(codes::UPSTREAM_TIMEOUT));
    let mute = play(async |_, _| std::future::pending().await);
    let first = patient(mute, |timeouts| timeouts.first_byte = Some(Duration::from_millis(50)));
    assert_eq!(ends_with(first, "never starts").await, failed(codes::UPSTREAM_TIMEOUT));
    // Events reset the idle timeout, so a slow but steady agent can run for longer.
    let steady = play(async |_, sink: EventSink| {
        half_a_message(&sink).await?;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            sink.send(delta("m", "and so on ")).await?;
        }
        Ok(())
    });
    let steady = patient(steady, |timeouts| timeouts.idle = Some(Duration::from_secs(5)));
    assert_eq!(ends_with(steady, "steady").await.0, "RUN_FINISHED");
}

#[tokio::test]
async fn p5_an_endless_agent_ends_at_a_limit() {
    let floods = || {
        play(async |_, sink: EventSink| {
            half_a_message(&sink).await?;
            loop {
                sink.send(delta("m", "and so on ")).await?;
            }
        })
    };
    let events = plan(floods()).agent(|agent| agent.limits.max_events = 1000);
    assert_eq!(ends_with(events, "events").await, failed(codes::LIMIT_EXCEEDED));
    let bytes = plan(floods()).agent(|agent| agent.limits.max_bytes = 100_000);
    assert_eq!(ends_with(bytes, "bytes").await, failed(codes::LIMIT_EXCEEDED));
}

#[tokio::test]
async fn p5_one_huge_event_ends_the_run_at_a_limit() {
    let huge = play(async |_, sink: EventSink| {
        sink.send(start("m")).await?;
        sink.send(delta("m", &"x".repeat(3 << 20))).await?;
        Ok(())
    });
    let plan = plan(huge).agent(|agent| agent.limits.max_bytes = 2 << 20);
    assert_eq!(ends_with(plan, "huge").await, failed(codes::LIMIT_EXCEEDED));
}

/// Runs the agent without a reader, checks that the thread is free, and returns the last event.
async fn ends_unread(plan: Plan, case: &str) -> (String, String) {
    let patient = plan.set(|settings| settings.lease = Duration::from_secs(300));
    let server = patient.on_memory().await;
    drop(server.run("t", "r", "hello").await);
    wait_until("the run has ended", async || server.json("/runs/r").await.1["status"] != "running").await;
    let events = server.json("/runs/r").await.1["events"].as_u64().expect("a number");
    let frames = server.follow(&format!("/runs/r/stream?after=r:{}", events - 2)).await.rest().await;
    thread_is_free(&server, "t", case).await;
    ending(&frames)
}

/// An event that the store can never accept must not look like a store that is unavailable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_an_event_above_the_store_limit_ends_the_run_at_a_limit() {
    let huge = play(async |request: Request, sink: EventSink| {
        if &*request.input.run == "next" {
            return Ok(());
        }
        sink.send(start("m")).await?;
        sink.send(delta("m", &"x".repeat(65 << 20))).await?;
        Ok(())
    });
    assert_eq!(ends_unread(plan(huge), "above the store limit").await, failed(codes::LIMIT_EXCEEDED));
}

#[tokio::test]
async fn p5_an_invalid_event_sequence_is_repaired_and_ends_once() {
    let invalid = play(async |request: Request, sink: EventSink| {
        sink.send(end("never started")).await?;
        sink.send(delta("m", "no start")).await?;
        sink.send(Event::new(Body::ToolEnd { call: "c".into() })).await?;
        sink.send(Event::new(Body::StepFinished { name: "s".into() })).await?;
        sink.send(finished(&request.input)).await?;
        sink.send(start("late")).await?;
        sink.send(finished(&request.input)).await?;
        Ok(())
    });
    assert_eq!(ends_with(plan(invalid), "invalid").await.0, "RUN_FINISHED");
}

#[tokio::test]
async fn p5_a_request_without_an_input_message_ends_with_an_error() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    let mut body = Server::input("t", "r", "");
    body["messages"] = json!([{"id": "s", "role": "system", "content": "be nice"}]);
    let frames = Stream::of(server.post("/", &body)).await.rest().await;
    assert_valid(&frames);
    assert_eq!(ending(&frames), failed(codes::NO_INPUT_MESSAGE));
    thread_is_free(&server, "t", "no message").await;
}

#[tokio::test]
async fn p5_a_stopped_run_ends_as_cancelled_and_stop_is_idempotent() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let mut seen = first.take(4).await;
        let (one, two) = tokio::join!(
            server.ask(reqwest::Method::POST, "/runs/r/stop").send(),
            server.ask(reqwest::Method::POST, "/runs/r/stop").send()
        );
        for response in [one, two] {
            let response = response.expect("a response");
            assert_eq!(response.status(), 200);
            let body: serde_json::Value =
                serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
            assert_eq!(body["status"], "stopped");
        }
        seen.extend(first.rest().await);
        assert_valid(&seen);
        assert_eq!(seen.last().expect("a last frame").json()["outcome"]["type"], "cancelled");
        assert_eq!((puppet.dropped(), puppet.stops()), (1, 1), "the agent is stopped");
        let late = server.ask(reqwest::Method::POST, "/runs/r/stop").send().await.expect("a response");
        assert_eq!(late.status(), 200);
        puppet.allow(100);
        thread_is_free(&server, "t", "stopped").await;
    }
}

fn impatient(settings: &mut Settings) {
    settings.store_patience = Duration::from_millis(50);
    settings.lease = Duration::from_secs(3);
}

fn changed(operation: serde_json::Value) -> Event {
    let patch = agentwire_core::format::ag_ui::patch_from_json(&json!([operation]).to_string());
    Event::new(Body::StateDelta { patch: patch.expect("a patch") })
}

/// Patches of a few bytes that double the state, and patches that do not apply but each cost a copy of the whole state.
#[tokio::test]
async fn p5_amplifying_state_patches_end_the_run_at_a_limit() {
    let frames = patched_a_thousand_times(json!({"op": "copy", "from": "/a", "path": "/a/-"})).await;
    assert_eq!(ending(&frames), failed(codes::LIMIT_EXCEEDED));
    // The limit is forty times the state; no later event is prepared for the log.
    assert!(frames.len() < 100, "{}", frames.len());
}

#[tokio::test]
async fn p5_patches_that_do_not_apply_cost_one_snapshot() {
    let frames = patched_a_thousand_times(json!({"op": "remove", "path": "/no"})).await;
    assert_eq!(ending(&frames).0, "RUN_FINISHED");
    let snapshots = frames.iter().filter(|frame| frame.json()["type"] == "STATE_SNAPSHOT").count();
    assert_eq!(snapshots, 1);
}

/// The frames of a run whose agent sends a state of 10 kB and the same patch again and again.
async fn patched_a_thousand_times(patch: serde_json::Value) -> Vec<Frame> {
    let agent = Puppet::eager(move |_| {
        let mut script = vec![changed(json!({"op": "add", "path": "/a", "value": ["x".repeat(10_000)]}))];
        script.extend((0..1000).map(|_| changed(patch.clone())));
        script
    });
    let server = plan(agent).agent(|agent| agent.limits.max_bytes = 400_000).on_memory().await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    frames
}

/// The store fails during a run for longer than the gateway retries: readers get an error, and the log gets its terminal event
/// when the store is back.
#[tokio::test]
async fn p5_a_store_failure_ends_the_run_with_an_error() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let faulty = FaultyStore::new(backend.store.clone());
        let store: Arc<dyn Store> = faulty.clone();
        let server = plan(puppet.clone()).set(impatient).on(&store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let mut seen = first.take(4).await;
        faulty.appends_fail.store(true, Ordering::SeqCst);
        puppet.allow(3);
        seen.extend(first.rest().await);
        assert_valid(&seen);
        assert_eq!(ending(&seen), failed(codes::STORE_UNAVAILABLE));
        assert_eq!(seen.last().expect("a last frame").id, None, "an event that is not in the log has no id");
        assert_eq!(server.json("/readyz").await.0, 503, "the store is readable but accepts no runs");
        faulty.appends_fail.store(false, Ordering::SeqCst);
        wait_until("the store is writable", async || server.json("/readyz").await.0 == 200).await;
        wait_until("the run has ended", async || server.status("r").await == "failed").await;
        let log = server.follow("/runs/r/stream").await.rest().await;
        assert_valid(&log);
        assert_eq!(log[..4], seen[..4], "the log contains the events that were sent");
        assert_eq!(ending(&log), failed(codes::STORE_UNAVAILABLE), "not the code of a lost gateway");
        puppet.allow(100);
        thread_is_free(&server, "t", "the store failed").await;
    }
}

/// The store fails for a moment: the run is not affected.
#[tokio::test]
async fn p5_a_short_store_outage_does_not_end_the_run() {
    let backend = Backend::memory().await;
    let puppet = Puppet::new(|input| talk(input, 10));
    let faulty = FaultyStore::new(backend.store.clone());
    let store: Arc<dyn Store> = faulty.clone();
    let server = plan(puppet.clone()).on(&store).await;
    let mut first = server.run("t", "r", "hello").await;
    puppet.allow(3);
    let mut seen = first.take(4).await;
    faulty.all_fails.store(true, Ordering::SeqCst);
    puppet.allow(100);
    tokio::time::sleep(Duration::from_millis(30)).await;
    faulty.all_fails.store(false, Ordering::SeqCst);
    seen.extend(first.rest().await);
    assert_valid(&seen);
    assert_eq!(ending(&seen).0, "RUN_FINISHED");
}

/// After an outage or a suspended process the claim has expired, but no other gateway has taken the run over: it continues.
#[tokio::test]
async fn p5_a_run_continues_after_its_claim_expired_without_a_takeover() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    for backend in [Backend::memory_at(clock.clone()).await, Backend::sqlite_at(clock.clone()).await] {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let mut seen = first.take(4).await;
        clock.advance(Duration::from_secs(3600));
        puppet.allow(100);
        seen.extend(first.rest().await);
        assert_valid(&seen);
        assert_eq!(ending(&seen).0, "RUN_FINISHED");
    }
}

#[tokio::test]
async fn p5_a_run_is_refused_while_the_store_is_unavailable() {
    let backend = Backend::memory().await;
    let faulty = FaultyStore::new(backend.store.clone());
    let store: Arc<dyn Store> = faulty.clone();
    let server = plan(Puppet::eager(|input| talk(input, 1))).set(impatient).on(&store).await;
    faulty.all_fails.store(true, Ordering::SeqCst);
    let refused = server.post("/", &Server::input("t", "r", "hello")).send().await.expect("a response");
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let (status, _) = server.json("/readyz").await;
    assert_eq!(status, 503);
    let (status, _) = server.json("/livez").await;
    assert_eq!(status, 200);
    faulty.all_fails.store(false, Ordering::SeqCst);
    let (status, _) = server.json("/readyz").await;
    assert_eq!(status, 200);
    thread_is_free(&server, "t", "the store was unavailable").await;
}

/// The store hangs from the start on: probes are answered, and everything else is once it goes on.
#[tokio::test]
async fn a_gateway_serves_beside_a_store_that_hangs() {
    let backend = Backend::sqlite().await;
    let faulty = FaultyStore::new(backend.store.clone());
    let store: Arc<dyn Store> = faulty.clone();
    let hanging = faulty.calls.lock().await;
    let server = plan(Puppet::eager(|input| talk(input, 1))).on(&store).await;
    assert_eq!(server.json("/livez").await.0, 200);
    assert_eq!(server.json("/readyz").await.0, 503);
    drop(hanging);
    wait_until("the store goes on", async || server.json("/readyz").await.0 == 200).await;
    thread_is_free(&server, "t", "the store hung").await;
}

/// A thread is deleted during its run: readers get a valid end, and a new thread with the same id is empty.
#[tokio::test]
async fn p5_deleting_a_thread_ends_its_run() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut first = server.run("t", "r", "hello").await;
        let mut second = server.follow("/runs/r/stream?format=ai-sdk@5").await;
        puppet.allow(3);
        let mut seen = first.take(4).await;
        let deleted = server.ask(reqwest::Method::DELETE, "/thread/t").send().await.expect("a response");
        assert_eq!(deleted.status(), 200);
        seen.extend(first.rest().await);
        assert_valid(&seen);
        let last = &types(&seen)[seen.len() - 2..];
        assert_eq!(last, ["TEXT_MESSAGE_END", "RUN_ERROR"], "the open message is closed");
        assert_eq!(ending(&seen), failed(codes::THREAD_DELETED));
        assert_eq!(puppet.stops(), 1);
        let other = second.rest().await;
        assert_eq!(other.last().expect("a last frame").data, "[DONE]");
        assert_eq!(server.json("/runs/r").await.0, 404);
        wait_until("the agent is stopped", async || puppet.dropped() == 1).await;
        puppet.allow(100);
        thread_is_free(&server, "t", "deleted").await;
        let (_, messages) = server.json("/message_snapshot/t").await;
        assert_eq!(
            messages["messages"].as_array().expect("a list").len(),
            2,
            "no message of the deleted thread is left"
        );
    }
}
