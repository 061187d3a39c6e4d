//! The order in which the hooks of a run are called.

use agentwire_core::event::{Event, RunInput};
use agentwire_gateway::{
    agent::{BoxFuture, NativeEvent, Translation},
    hooks::{Hooked, Hooks, RunContext, SessionLock},
};
use serde_json::{Value, json};
use std::sync::Arc;

use super::{Journal, recorded};
use crate::support::*;

/// Notes every call and changes nothing, except the state, so that a snapshot follows.
struct Notes(Journal);

impl Hooks for Notes {
    fn input_record<'h>(&'h self, input: &'h RunInput) -> Hooked<'h> {
        self.0.note(format!("input_record {}", input.messages.len()));
        Box::pin(async { Ok(()) })
    }

    fn input(&self, input: RunInput) -> Hooked<'_, RunInput> {
        self.0.note("input");
        Box::pin(async { Ok(input) })
    }

    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        let kind = native.to_json().expect("JSON")["type"].as_str().expect("a type").to_owned();
        self.0.note(format!("native {kind}"));
        out.push(native);
        Box::pin(async { Ok(()) })
    }

    fn translate<'h>(&'h self, native: &'h NativeEvent, _: &'h mut Vec<Event>) -> Hooked<'h, Translation> {
        let kind = native.to_json().expect("JSON")["type"].as_str().expect("a type").to_owned();
        self.0.note(format!("translate {kind}"));
        Box::pin(async { Ok(Translation::Default) })
    }

    fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
        self.0.note(format!("event {}", event.kind()));
        out.push(event);
        Box::pin(async { Ok(()) })
    }

    fn state(&self, mut state: Value) -> Hooked<'_, Value> {
        self.0.note(format!("state {state}"));
        state["changed"] = json!(true);
        Box::pin(async { Ok(state) })
    }

    fn output_record<'h>(&'h self, event: &'h Event) -> Hooked<'h> {
        assert!(event.timestamp.is_some(), "recorded events have a timestamp");
        self.0.note(format!("output_record {}", event.kind()));
        Box::pin(async { Ok(()) })
    }

    fn output(&self, event: Event) -> Hooked<'_, Event> {
        self.0.note(format!("output {}", event.kind()));
        Box::pin(async { Ok(event) })
    }
}

impl SessionLock for Journal {
    fn lock<'l>(&'l self, run: &'l RunContext) -> Hooked<'l> {
        self.note(format!("lock {} {} {} {}", run.agent, run.owner.user, run.thread, run.run));
        Box::pin(async { Ok(()) })
    }

    fn unlock<'l>(&'l self, run: &'l RunContext) -> BoxFuture<'l, ()> {
        self.note(format!("unlock {}", run.run));
        Box::pin(async {})
    }
}

#[tokio::test]
async fn hooks_are_called_in_order() {
    let journal = Journal::default();
    let agent = recorded(&[
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
        json!({"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}),
        json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Hi"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}),
    ]);
    let (notes, lock) = (journal.clone(), journal.clone());
    let wired = plan(agent).wire(move |builder| {
        builder
            .hooks(move |run| {
                notes.note(format!("made for {}", run.run));
                Notes(notes.clone())
            })
            .lock(Arc::new(lock))
    });
    let server = wired.on_memory().await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    let both = |kind: &str| [format!("output_record {kind}"), format!("output {kind}")];
    let native = |kind: &str| [format!("native {kind}"), format!("translate {kind}")];
    let through =
        |kind: &str| [format!("event {kind}"), format!("output_record {kind}"), format!("output {kind}")];
    let log = journal.read();
    let (before, during) = log.split_at(6);
    assert_eq!(before[..4], ["made for r", "lock demo default-user t r", "input_record 1", "input"]);
    assert_eq!(before[4..], both("RUN_STARTED"));
    // The agent may be ahead of the log, so native events and decoded events are compared separately.
    let is_native = |line: &&String| line.starts_with("native") || line.starts_with("translate");
    let (natives, rest): (Vec<_>, Vec<_>) = during.iter().partition(|line| is_native(line));
    let mut expected: Vec<String> = Vec::new();
    for kind in ["RUN_STARTED", "STATE_SNAPSHOT", "TEXT_MESSAGE_CHUNK", "RUN_FINISHED"] {
        expected.extend(native(kind));
    }
    assert_eq!(natives, expected.iter().collect::<Vec<_>>());
    let mut expected: Vec<String> = vec!["event RUN_STARTED".into()];
    expected.extend(through("STATE_SNAPSHOT"));
    for kind in ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"] {
        expected.extend(through(kind));
    }
    expected.push("event RUN_FINISHED".into());
    expected.push(r#"state {"a":1}"#.into());
    expected.extend(both("STATE_SNAPSHOT"));
    expected.extend(both("RUN_FINISHED"));
    expected.push("unlock r".into());
    assert_eq!(rest, expected.iter().collect::<Vec<_>>());
    // The recorded events are those of the log.
    let recorded: Vec<_> = log.iter().filter_map(|line| line.strip_prefix("output_record ")).collect();
    assert_eq!(recorded, types(&frames));
    let (_, state) = server.json("/state_snapshot/t").await;
    assert_eq!(state["snapshot"], json!({"a": 1, "changed": true}));
}

#[tokio::test]
async fn hooks_are_created_for_each_run() {
    let journal = Journal::default();
    let notes = journal.clone();
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .wire(move |builder| {
            builder.hooks(move |run| {
                notes.note(format!("made for {}", run.run));
                Notes(Journal::default())
            })
        })
        .on_memory()
        .await;
    for run in ["r1", "r2", "r3"] {
        assert_valid(&server.run_to_end("t", run, "hello").await);
    }
    assert_eq!(journal.read(), ["made for r1", "made for r2", "made for r3"]);
}

#[tokio::test]
async fn an_agent_in_rust_has_no_native_events() {
    let journal = Journal::default();
    let notes = journal.clone();
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .wire(move |builder| builder.hooks(move |_| Notes(notes.clone())))
        .on_memory()
        .await;
    assert_valid(&server.run_to_end("t", "r", "hello").await);
    let log = journal.read();
    assert!(log.iter().any(|line| line == "event TEXT_MESSAGE_CONTENT"), "{log:?}");
    assert!(!log.iter().any(|line| line.starts_with("native") || line.starts_with("translate")), "{log:?}");
}
