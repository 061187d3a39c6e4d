//! P5: every accepted run reaches exactly one terminal event, whatever died, and its thread is free afterwards.

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

/// The ending of a stream: its type and its code.
fn ending(frames: &[Frame]) -> (String, String) {
    let last = frames.last().expect("a stream with an ending").json();
    (last["type"].as_str().unwrap_or_default().into(), last["code"].as_str().unwrap_or_default().into())
}

/// Runs the agent once, checks what all endings must have in common, and gives the ending.
async fn ends_with(plan: Plan, what: &str) -> (String, String) {
    let server = plan.on_memory().await;
    let frames = server.whole("t", "r", "hello").await;
    valid(&frames);
    let again = server.follow("/runs/r/stream").await.rest().await;
    assert!(again == frames, "{what}: the log has what was seen");
    thread_is_free(&server, "t", what).await;
    ending(&frames)
}

/// Another run gets the thread, whatever becomes of it.
async fn thread_is_free(server: &Server, thread: &str, what: &str) {
    let frames = server.whole(thread, "next", "hello").await;
    valid(&frames);
    assert_ne!(ending(&frames).1, codes::THREAD_IS_LOCKED, "{what}");
}

fn failed(code: &str) -> (String, String) {
    ("RUN_ERROR".into(), code.into())
}

async fn half(sink: &EventSink) -> Result<(), UpstreamError> {
    sink.send(Event::new(Body::StepStarted { name: "step".into() })).await?;
    sink.send(start("m")).await?;
    sink.send(delta("m", "half a")).await?;
    Ok(())
}

#[tokio::test]
async fn p5_ending_of_an_agent_that_says_nothing_or_stops_in_the_middle_is_success() {
    let done = ("RUN_FINISHED".to_owned(), String::new());
    assert_eq!(ends_with(plan(play(async |_, _| Ok(()))), "silent").await, done);
    let cut = play(async |_, sink: EventSink| half(&sink).await);
    assert_eq!(ends_with(plan(cut), "in the middle").await, done);
}

#[tokio::test]
async fn p5_ending_of_an_agent_that_fails_has_its_code() {
    let fails = play(async |_, sink: EventSink| {
        half(&sink).await?;
        Err(UpstreamError::new("TOO_BAD", "it went wrong").with_detail("nobody may see this"))
    });
    assert_eq!(ends_with(plan(fails), "fails").await, failed("TOO_BAD"));
    let says_so = play(async |_, sink: EventSink| {
        half(&sink).await?;
        sink.send(error("SAID_SO")).await?;
        sink.send(delta("m", "after the end")).await?;
        sink.send(error("TWICE")).await?;
        Ok(())
    });
    assert_eq!(ends_with(plan(says_so), "says so").await, failed("SAID_SO"));
}

/// Panics as soon as it is asked, before there is a future.
struct PanicsAtOnce;

impl Agent for PanicsAtOnce {
    fn run(&self, _: Request, _: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        panic!("at once");
    }
}

/// Panics when polled, and keeps what it holds.
struct PanicsWhenPolled;

struct Panics(#[expect(dead_code, reason = "it is held, and that is the point")] EventSink);

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

/// Is done, and keeps what it holds until it is dropped.
struct Holds;

struct Held(#[expect(dead_code, reason = "it is held, and that is the point")] EventSink);

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
async fn p5_ending_of_an_agent_that_panics_is_ours() {
    let panics = play(async |_, sink: EventSink| {
        half(&sink).await?;
        panic!("in the middle");
    });
    assert_eq!(ends_with(plan(panics), "in the middle").await, failed(codes::INTERNAL));
    assert_eq!(ends_with(plan(Arc::new(PanicsWhenPolled)), "when polled").await, failed(codes::INTERNAL));
    assert_eq!(ends_with(plan(Arc::new(PanicsAtOnce)), "at once").await, failed(codes::INTERNAL));
}

#[tokio::test]
async fn p5_ending_comes_when_the_agent_returns_whatever_it_still_holds() {
    assert_eq!(ends_with(plan(Arc::new(Holds)), "holds").await.0, "RUN_FINISHED");
    let leaks = play(async |_, sink: EventSink| {
        half(&sink).await?;
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(sink);
        });
        Ok(())
    });
    assert_eq!(ends_with(plan(leaks), "leaks").await.0, "RUN_FINISHED");
}

#[tokio::test]
async fn p5_ending_of_an_agent_that_hangs_is_a_time_out() {
    let hangs = play(async |_, sink: EventSink| {
        half(&sink).await?;
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
    assert_eq!(ends_with(first, "never begins").await, failed(codes::UPSTREAM_TIMEOUT));
    // An agent that speaks now and then is not silent, however long it takes.
    let steady = play(async |_, sink: EventSink| {
        half(&sink).await?;
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
async fn p5_ending_of_an_agent_that_never_ends_is_a_limit() {
    let floods = || {
        play(async |_, sink: EventSink| {
            half(&sink).await?;
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
async fn p5_ending_of_an_agent_with_one_huge_event_is_a_limit() {
    let huge = play(async |_, sink: EventSink| {
        sink.send(start("m")).await?;
        sink.send(delta("m", &"x".repeat(3 << 20))).await?;
        Ok(())
    });
    let plan = plan(huge).agent(|agent| agent.limits.max_bytes = 2 << 20);
    assert_eq!(ends_with(plan, "huge").await, failed(codes::LIMIT_EXCEEDED));
}

/// The last event of a run that nobody reads, and then a free thread.
async fn ends_unread(plan: Plan, what: &str) -> (String, String) {
    let patient = plan.set(|settings| settings.lease = Duration::from_secs(300));
    let server = patient.on_memory().await;
    drop(server.run("t", "r", "hello").await);
    until("the run has ended", async || server.json("/runs/r").await.1["status"] != "running").await;
    let events = server.json("/runs/r").await.1["events"].as_u64().expect("a number");
    let frames = server.follow(&format!("/runs/r/stream?after=r:{}", events - 2)).await.rest().await;
    thread_is_free(&server, "t", what).await;
    ending(&frames)
}

/// What a store cannot take for good must not be taken for a store that is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_ending_of_an_event_beyond_what_the_store_takes_is_a_limit() {
    let huge = play(async |request: Request, sink: EventSink| {
        if &*request.input.run == "next" {
            return Ok(());
        }
        sink.send(start("m")).await?;
        sink.send(delta("m", &"x".repeat(65 << 20))).await?;
        Ok(())
    });
    assert_eq!(ends_unread(plan(huge), "beyond the store").await, failed(codes::LIMIT_EXCEEDED));
}

#[tokio::test]
async fn p5_ending_of_an_agent_that_says_nonsense_is_valid() {
    let nonsense = play(async |request: Request, sink: EventSink| {
        sink.send(end("never begun")).await?;
        sink.send(delta("m", "no start")).await?;
        sink.send(Event::new(Body::ToolEnd { call: "c".into() })).await?;
        sink.send(Event::new(Body::StepFinished { name: "s".into() })).await?;
        sink.send(finished(&request.input)).await?;
        sink.send(start("late")).await?;
        sink.send(finished(&request.input)).await?;
        Ok(())
    });
    assert_eq!(ends_with(plan(nonsense), "nonsense").await.0, "RUN_FINISHED");
}

#[tokio::test]
async fn p5_ending_of_a_request_without_a_message_to_answer() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    let mut body = Server::input("t", "r", "");
    body["messages"] = json!([{"id": "s", "role": "system", "content": "be nice"}]);
    let frames = Stream::of(server.post("/", &body)).await.rest().await;
    valid(&frames);
    assert_eq!(ending(&frames), failed(codes::NO_INPUT_MESSAGE));
    thread_is_free(&server, "t", "no message").await;
}

#[tokio::test]
async fn p5_ending_by_a_stop_is_cancelled_and_stopping_twice_is_fine() {
    for place in Place::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&place.store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let mut seen = first.take(4).await;
        let (one, two) = tokio::join!(
            server.ask(reqwest::Method::POST, "/runs/r/stop").send(),
            server.ask(reqwest::Method::POST, "/runs/r/stop").send()
        );
        for answer in [one, two] {
            let answer = answer.expect("an answer");
            assert_eq!(answer.status(), 200);
            let body: serde_json::Value =
                serde_json::from_str(&answer.text().await.expect("text")).expect("JSON");
            assert_eq!(body["status"], "stopped");
        }
        seen.extend(first.rest().await);
        valid(&seen);
        assert_eq!(seen.last().expect("an end").json()["outcome"]["type"], "cancelled");
        assert_eq!((puppet.dropped(), puppet.stops()), (1, 1), "the agent is stopped");
        let late = server.ask(reqwest::Method::POST, "/runs/r/stop").send().await.expect("an answer");
        assert_eq!(late.status(), 200);
        puppet.allow(100);
        thread_is_free(&server, "t", "stopped").await;
    }
}

fn impatient(settings: &mut Settings) {
    settings.store_patience = Duration::from_millis(50);
    settings.lease = Duration::from_millis(300);
}

fn changed(operation: serde_json::Value) -> Event {
    let patch = agentwire_core::format::ag_ui::patch_from_json(&json!([operation]).to_string());
    Event::new(Body::StateDelta { patch: patch.expect("a patch") })
}

/// A few bytes that double what is there, and patches that do not apply and cost the whole state each.
#[tokio::test]
async fn p5_ending_of_patches_that_make_much_of_little_is_a_limit() {
    for hostile in
        [json!({"op": "copy", "from": "/a", "path": "/a/-"}), json!({"op": "remove", "path": "/no"})]
    {
        let agent = Puppet::eager(move |_| {
            let mut script = vec![changed(json!({"op": "add", "path": "/a", "value": ["x".repeat(10_000)]}))];
            script.extend((0..1000).map(|_| changed(hostile.clone())));
            script
        });
        let server = plan(agent).agent(|agent| agent.limits.max_bytes = 400_000).on_memory().await;
        let frames = server.whole("t", "r", "hello").await;
        valid(&frames);
        assert_eq!(ending(&frames), failed(codes::LIMIT_EXCEEDED));
        // Forty times the state is the limit; nothing that was heard behind it is made ready for the log.
        assert!(frames.len() < 100, "{}", frames.len());
    }
}

/// The store fails for good in the middle of a run: its readers are told, and it gets its ending when the store is back.
#[tokio::test]
async fn p5_ending_when_the_store_fails() {
    for place in Place::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let faulty = Faulty::new(place.store.clone());
        let store: Arc<dyn Store> = faulty.clone();
        let server = plan(puppet.clone()).set(impatient).on(&store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let mut seen = first.take(4).await;
        faulty.appends_fail.store(true, Ordering::SeqCst);
        puppet.allow(3);
        seen.extend(first.rest().await);
        valid(&seen);
        assert_eq!(ending(&seen), failed(codes::STORE_UNAVAILABLE));
        assert_eq!(seen.last().expect("an end").id, None, "what is not in the log has no number");
        assert_eq!(server.json("/readyz").await.0, 503, "it can be read, but no run can be taken");
        faulty.appends_fail.store(false, Ordering::SeqCst);
        until("it can be written", async || server.json("/readyz").await.0 == 200).await;
        until("the run is ended", async || server.status("r").await == "failed").await;
        let log = server.follow("/runs/r/stream").await.rest().await;
        valid(&log);
        assert_eq!(log[..4], seen[..4], "what was seen is in the log");
        assert_eq!(ending(&log), failed(codes::STORE_UNAVAILABLE), "no gateway has died");
        puppet.allow(100);
        thread_is_free(&server, "t", "the store failed").await;
    }
}

/// The store fails for a moment: nobody notices.
#[tokio::test]
async fn p5_ending_when_the_store_comes_back_in_time() {
    let place = Place::memory().await;
    let puppet = Puppet::new(|input| talk(input, 10));
    let faulty = Faulty::new(place.store.clone());
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
    valid(&seen);
    assert_eq!(ending(&seen).0, "RUN_FINISHED");
}

/// The claim has expired when the store is back, or when the process wakes up, and nobody has taken it: the run goes on.
#[tokio::test]
async fn p5_ending_when_the_claim_expires_and_nobody_takes_it() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    for place in [Place::memory_at(clock.clone()).await, Place::sqlite_at(clock.clone()).await] {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&place.store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let mut seen = first.take(4).await;
        clock.advance(Duration::from_secs(3600));
        puppet.allow(100);
        seen.extend(first.rest().await);
        valid(&seen);
        assert_eq!(ending(&seen).0, "RUN_FINISHED");
    }
}

#[tokio::test]
async fn p5_ending_when_the_store_is_away_from_the_start() {
    let place = Place::memory().await;
    let faulty = Faulty::new(place.store.clone());
    let store: Arc<dyn Store> = faulty.clone();
    let server = plan(Puppet::eager(|input| talk(input, 1))).set(impatient).on(&store).await;
    faulty.all_fails.store(true, Ordering::SeqCst);
    let refused = server.post("/", &Server::input("t", "r", "hello")).send().await.expect("an answer");
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let (status, _) = server.json("/readyz").await;
    assert_eq!(status, 503);
    let (status, _) = server.json("/livez").await;
    assert_eq!(status, 200);
    faulty.all_fails.store(false, Ordering::SeqCst);
    let (status, _) = server.json("/readyz").await;
    assert_eq!(status, 200);
    thread_is_free(&server, "t", "the store was away").await;
}

/// Deleted under the run: whoever reads it gets a valid end, and the thread begins anew.
#[tokio::test]
async fn p5_ending_when_the_thread_is_deleted() {
    for place in Place::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&place.store).await;
        let mut first = server.run("t", "r", "hello").await;
        let mut second = server.follow("/runs/r/stream?format=ai-sdk@5").await;
        puppet.allow(3);
        let mut seen = first.take(4).await;
        let deleted = server.ask(reqwest::Method::DELETE, "/thread/t").send().await.expect("an answer");
        assert_eq!(deleted.status(), 200);
        seen.extend(first.rest().await);
        valid(&seen);
        let last = &types(&seen)[seen.len() - 2..];
        assert_eq!(last, ["TEXT_MESSAGE_END", "RUN_ERROR"], "what is open is closed");
        assert_eq!(ending(&seen), failed(codes::THREAD_DELETED));
        assert_eq!(puppet.stops(), 1);
        let other = second.rest().await;
        assert_eq!(other.last().expect("an end").data, "[DONE]");
        assert_eq!(server.json("/runs/r").await.0, 404);
        until("the agent is stopped", async || puppet.dropped() == 1).await;
        puppet.allow(100);
        thread_is_free(&server, "t", "deleted").await;
        let (_, messages) = server.json("/message_snapshot/t").await;
        assert_eq!(
            messages["messages"].as_array().expect("a list").len(),
            2,
            "nothing of the old one is left"
        );
    }
}
