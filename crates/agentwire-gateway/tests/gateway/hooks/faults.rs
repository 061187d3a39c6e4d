//! Hooks that fail, hang or panic, at every point of a run.

use std::{sync::Arc, time::Duration};

use agentwire_core::event::{Event, RunInput};
use agentwire_gateway::{
    agent::{Agent, NativeEvent, Translation},
    codes,
    hooks::{Hooked, Hooks, RunContext, failed},
};
use serde_json::{Value, json};

use super::{Journal, code_of, recorded};
use crate::support::*;

const POINTS: &[&str] = &[
    "input_record",
    "input",
    "native",
    "translate",
    "event",
    "state",
    "output_record",
    "output",
    "last output",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Fails,
    Hangs,
    Panics,
    PanicsEarly,
}

const FAULTS: &[Fault] = &[Fault::Fails, Fault::Hangs, Fault::Panics, Fault::PanicsEarly];

/// Hooks with a fault at one point.
struct FaultyStore {
    at: &'static str,
    fault: Fault,
}

impl FaultyStore {
    fn act<'h, T: Send + 'h>(&self, at: &str, good: T) -> Hooked<'h, T> {
        if self.at != at {
            return Box::pin(std::future::ready(Ok(good)));
        }
        let fault = self.fault;
        assert!(fault != Fault::PanicsEarly, "on purpose");
        Box::pin(async move {
            match fault {
                Fault::Fails => Err(failed("on purpose")),
                Fault::Hangs => std::future::pending().await,
                _ => panic!("on purpose"),
            }
        })
    }
}

impl Hooks for FaultyStore {
    fn timeout(&self) -> Duration {
        Duration::from_millis(if self.fault == Fault::Hangs { 50 } else { 240_000 })
    }
    fn input_record<'h>(&'h self, _: &'h RunInput) -> Hooked<'h> {
        self.act("input_record", ())
    }
    fn input(&self, input: RunInput) -> Hooked<'_, RunInput> {
        self.act("input", input)
    }
    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        out.push(native);
        self.act("native", ())
    }
    fn translate<'h>(&'h self, _: &'h NativeEvent, _: &'h mut Vec<Event>) -> Hooked<'h, Translation> {
        self.act("translate", Translation::Default)
    }
    fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
        let at = if event.kind() == "TEXT_MESSAGE_CONTENT" { "event" } else { "" };
        out.push(event);
        self.act(at, ())
    }
    fn state(&self, state: Value) -> Hooked<'_, Value> {
        self.act("state", state)
    }
    fn output_record<'h>(&'h self, event: &'h Event) -> Hooked<'h> {
        let at = if event.kind() == "TEXT_MESSAGE_CONTENT" { "output_record" } else { "" };
        self.act(at, ())
    }
    fn output(&self, event: Event) -> Hooked<'_, Event> {
        let at = match event.kind() {
            "TEXT_MESSAGE_CONTENT" => "output",
            "RUN_FINISHED" | "RUN_ERROR" => "last output",
            _ => "",
        };
        self.act(at, event)
    }
}

/// The first and the last word of a note: the action and the run.
fn action_and_run(line: &str) -> String {
    let mut words = line.split(' ');
    format!("{} {}", words.next().unwrap_or_default(), words.next_back().unwrap_or_default())
}

fn agent() -> Arc<dyn Agent> {
    recorded(&[
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hi"}),
        json!({"type": "TEXT_MESSAGE_END", "messageId": "m"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}),
    ])
}

#[tokio::test]
async fn a_faulty_hook_ends_only_its_own_run() {
    for at in POINTS {
        for fault in FAULTS {
            let case = format!("{at} {fault:?}");
            let journal = Journal::default();
            let lock = Arc::new(journal.clone());
            // Only the first run has the fault.
            let server = plan(agent())
                .wire(move |builder| {
                    let hooks = move |run: &RunContext| FaultyStore {
                        at: if &*run.run == "r" { at } else { "nowhere" },
                        fault: *fault,
                    };
                    builder.hooks(hooks).lock(lock)
                })
                .on_memory()
                .await;
            let frames = server.run_to_end("t", "r", "hello").await;
            assert_valid(&frames);
            assert_eq!(code_of(&frames), codes::HOOK_FAILED, "{case}: {:?}", types(&frames));
            let message = frames.last().expect("an ending").json()["message"].to_string();
            assert!(!message.contains("on purpose"), "{case}: the detail is not for the client: {message}");
            let log = server.follow("/runs/r/stream").await.rest().await;
            assert_eq!(log, frames, "{case}: the log has the same events");
            assert_eq!(server.status("r").await, "failed", "{case}");
            let frames = server.run_to_end("t", "r2", "hello").await;
            assert_valid(&frames);
            assert_eq!(frames.last().expect("an ending").kind(), "RUN_FINISHED", "{case}");
            let locks: Vec<_> = journal.read().iter().map(|line| action_and_run(line)).collect();
            assert_eq!(locks, ["lock r", "unlock r", "lock r2", "unlock r2"].map(String::from), "{case}");
        }
    }
}

#[tokio::test]
async fn a_panic_while_hooks_are_created_ends_the_run() {
    let server = plan(agent())
        .wire(|builder| {
            builder.hooks(|run| {
                assert!(&*run.run != "r", "on purpose");
                FaultyStore { at: "nowhere", fault: Fault::Fails }
            })
        })
        .on_memory()
        .await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(code_of(&frames), codes::HOOK_FAILED);
    assert_valid(&server.run_to_end("t", "r2", "hello").await);
}

#[tokio::test]
async fn an_agent_is_stopped_when_a_hook_ends_its_run() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .wire(|builder| builder.hooks(|_| FaultyStore { at: "event", fault: Fault::Fails }))
        .on_memory()
        .await;
    puppet.allow(2);
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(code_of(&frames), codes::HOOK_FAILED);
    wait_until("the agent is stopped", async || puppet.stops() == 1 && puppet.dropped() == 1).await;
}
