//! Hooks: the order of calls, their effects, failures of hooks and of hook servers, and session locks.

mod effects;
mod faults;
mod lock;
mod order;
mod points;
#[path = "../../upstream/server.rs"]
#[expect(dead_code, reason = "the tests of upstreams use more of it")]
mod server;
mod servers;

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use agentwire_gateway::{
    agent::Agent,
    upstream::{Replay, ReplayOptions},
};

use crate::support::Frame;

/// Notes of the hooks and locks of a test, in order.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().expect("no panic").push(line.into());
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}

/// An agent with native events: a recorded AG-UI stream of `events`.
fn recorded(events: &[serde_json::Value]) -> Arc<dyn Agent> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for event in events {
        write!(file, "data: {event}\n\n").expect("a writable file");
    }
    let options = ReplayOptions {
        file: file.path().to_owned(),
        format: Some("ag-ui".into()),
        ..ReplayOptions::default()
    };
    Arc::new(Replay::new(options).expect("a recording"))
}

/// The text of all messages.
fn text(frames: &[Frame]) -> String {
    let deltas = frames.iter().filter(|frame| frame.kind() == "TEXT_MESSAGE_CONTENT");
    deltas.map(|frame| frame.json()["delta"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The error code of the last event.
fn code_of(frames: &[Frame]) -> String {
    frames.last().expect("an ending").json()["code"].as_str().unwrap_or_default().to_owned()
}
