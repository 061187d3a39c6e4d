//! Session locks: a lock may refuse, and it is released after every outcome of a run.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use agentwire_core::event::ThreadId;
use agentwire_gateway::{
    UpstreamError,
    agent::{BoxFuture, EventSink},
    codes,
    hooks::{Hooked, RunContext, SessionLock},
};
use reqwest::Method;

use super::code_of;
use crate::support::*;

/// A lock per thread that records its releases.
#[derive(Default)]
struct ThreadLocks {
    locked: Mutex<HashSet<ThreadId>>,
    unlocks: Mutex<Vec<String>>,
}

impl SessionLock for ThreadLocks {
    fn lock<'l>(&'l self, run: &'l RunContext) -> Hooked<'l> {
        Box::pin(async move {
            match &*run.run {
                "hangs" => std::future::pending().await,
                "panics" => panic!("on purpose"),
                _ => {}
            }
            if !self.locked.lock().expect("no panic").insert(run.thread.clone()) {
                return Err(UpstreamError::new(codes::THREAD_IS_LOCKED, "the thread is locked"));
            }
            Ok(())
        })
    }

    fn unlock<'l>(&'l self, run: &'l RunContext) -> BoxFuture<'l, ()> {
        Box::pin(async move {
            self.locked.lock().expect("no panic").remove(&run.thread);
            self.unlocks.lock().expect("no panic").push(run.run.to_string());
            assert!(&*run.run != "unlock panics", "on purpose");
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(100)
    }
}

#[tokio::test]
async fn a_refused_lock_ends_the_run_and_is_not_released() {
    let lock = Arc::new(ThreadLocks::default());
    lock.locked.lock().expect("no panic").insert("t".into());
    let (shared, puppet) = (lock.clone(), Puppet::eager(|input| talk(input, 1)));
    let server = plan(puppet.clone()).wire(move |builder| builder.lock(shared)).on_memory().await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(types(&frames), ["RUN_STARTED", "RUN_ERROR"]);
    assert_eq!(code_of(&frames), codes::THREAD_IS_LOCKED);
    assert_eq!(puppet.calls(), 0);
    assert!(lock.locked.lock().expect("no panic").contains("t"), "another holder's lock is not released");
    lock.locked.lock().expect("no panic").clear();
    let frames = server.run_to_end("t", "r2", "hello").await;
    assert_eq!(frames.last().expect("an ending").kind(), "RUN_FINISHED");
}

#[tokio::test]
async fn a_lock_is_released_after_every_outcome() {
    let lock = Arc::new(ThreadLocks::default());
    let shared = lock.clone();
    let agent = play(async |request, sink: EventSink| match &*request.input.run {
        "fails" => Err(UpstreamError::new("TOO_BAD", "it went wrong")),
        "agent panics" => panic!("on purpose"),
        "stopped" => std::future::pending().await,
        _ => {
            sink.send_all(&mut talk(&request.input, 1)).await?;
            Ok(())
        }
    });
    let server = plan(agent).wire(move |builder| builder.lock(shared)).on_memory().await;
    for run in ["fine", "fails", "agent panics", "unlock panics", "fine again"] {
        assert_valid(&server.run_to_end("t", run, "hello").await);
    }
    let mut stream = server.run("t", "stopped", "hello").await;
    stream.take(1).await;
    server.ask(Method::POST, "/runs/stopped/stop").send().await.expect("an answer");
    ends_cancelled(&mut stream).await;
    for run in ["hangs", "panics"] {
        let frames = server.run_to_end("t", run, "hello").await;
        assert_valid(&frames);
        assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{run}");
    }
    let unlocked = lock.unlocks.lock().expect("no panic").clone();
    assert_eq!(unlocked, ["fine", "fails", "agent panics", "unlock panics", "fine again", "stopped"]);
}

async fn ends_cancelled(stream: &mut Stream) {
    let rest = stream.rest().await;
    assert_eq!(rest.last().expect("an ending").json()["outcome"]["type"], "cancelled");
}

#[tokio::test]
async fn the_lock_is_released_before_the_client_sees_the_end() {
    let lock = Arc::new(ThreadLocks::default());
    let server =
        plan(Puppet::eager(|input| talk(input, 1))).wire(move |builder| builder.lock(lock)).on_memory().await;
    for number in 0..20 {
        let frames = server.run_to_end("t", &format!("r{number}"), "hello").await;
        assert_eq!(frames.last().expect("an ending").kind(), "RUN_FINISHED", "{number}");
    }
}
