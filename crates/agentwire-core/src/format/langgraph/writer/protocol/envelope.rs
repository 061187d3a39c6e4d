//! The envelope of an event: its id and number, its method and its namespace.
//!
//! Events are numbered whether the client wants them or not, so that the numbers and ids of a run are the same on every
//! stream.

use std::io::Write as _;

use bytes::{BufMut, BytesMut};

use super::{super::super::wire::ProtocolMethod, filter::Filter};
use crate::{
    event::RunId,
    format::Options,
    framing::Frames,
    json::{ObjectWriter, write_str},
};

/// A place in the tree of agents.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) path: Vec<Box<str>>,
    /// The path as JSON.
    text: BytesMut,
    is_wanted: bool,
}

impl Namespace {
    pub(super) fn new(path: Vec<Box<str>>, filter: &Filter) -> Self {
        let mut text = BytesMut::new();
        serde_json::to_writer((&mut text).writer(), &path).expect("writing to memory does not fail");
        Self { is_wanted: filter.reaches(&path), path, text }
    }
}

/// The id of an event.
pub(super) enum EventId<'a> {
    /// By its number in the run.
    Numbered,
    /// By its meaning: the same in the compacted log of a run.
    Named(&'a str, &'a str),
}

/// Writes envelopes.
pub(super) struct Envelope {
    pub(super) filter: Filter,
    /// The start of every event, up to its number.
    start: BytesMut,
    run: RunId,
    /// The number of the last event.
    number: u64,
    /// The number that the event before the run has in its thread.
    first_seq: u64,
    /// True if the numbers are the SSE ids: only those of a thread are cursors.
    has_own_ids: bool,
    /// Events up to this number are not wanted.
    since: u64,
    pub(super) timestamp: i64,
}

impl Envelope {
    /// With the options `first_seq`, `since` and `id_mark`.
    pub(super) fn new(run: &RunId, options: &Options) -> Self {
        let number = |name: &str| options.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut envelope = Self {
            filter: Filter::of(options),
            start: BytesMut::new(),
            run: run.clone(),
            number: 0,
            first_seq: number("first_seq"),
            has_own_ids: options.get("first_seq").is_some(),
            since: number("since"),
            timestamp: 0,
        };
        envelope.set_run(run, options.get("id_mark").unwrap_or_default());
        envelope
    }

    fn set_run(&mut self, run: &RunId, mark: &str) {
        let mut start = BytesMut::from(&br#"{"type":"event","event_id":"#[..]);
        write_str(&mut start, &format!("{run}:{mark}"));
        // The number follows.
        start.truncate(start.len() - 1);
        (self.start, self.run) = (start, run.clone());
    }

    /// Takes the id of the run from the run itself, before the first event.
    pub(super) fn rename(&mut self, run: &RunId) {
        if self.number == 0 && self.run != *run {
            self.set_run(run, "");
        }
    }

    /// Counts an event that this stream cannot have, and another one may.
    pub(super) fn skip(&mut self) {
        self.number += 1;
    }

    /// True if the next event of this method and namespace is written; counts it.
    fn takes(&mut self, is_wanted: bool, namespace: &Namespace) -> bool {
        self.number += 1;
        is_wanted && namespace.is_wanted && self.first_seq + self.number > self.since
    }

    /// Writes an event.
    pub(super) fn write(
        &mut self,
        out: &mut Frames,
        method: ProtocolMethod,
        namespace: &Namespace,
        id: &EventId<'_>,
        node: Option<&str>,
        data: impl FnOnce(&mut ObjectWriter<'_>),
    ) {
        let is_wanted = self.filter.has(method);
        self.write_any(out, method, is_wanted, namespace, id, node, |buffer| {
            let mut object = ObjectWriter::new(buffer);
            data(&mut object);
            object.end();
        });
    }

    /// Writes an event of a method that the caller has chosen, with any data.
    #[expect(clippy::too_many_arguments, reason = "the members of an event")]
    pub(super) fn write_any(
        &mut self,
        out: &mut Frames,
        method: ProtocolMethod,
        is_wanted: bool,
        namespace: &Namespace,
        id: &EventId<'_>,
        node: Option<&str>,
        data: impl FnOnce(&mut BytesMut),
    ) {
        if !self.takes(is_wanted, namespace) {
            return;
        }
        let seq = self.first_seq + self.number;
        let buffer = out.begin_named(method.as_str());
        match id {
            EventId::Numbered => {
                buffer.put_slice(&self.start);
                put_number(buffer, self.number);
                buffer.put_u8(b'"');
            }
            EventId::Named(kind, name) => {
                buffer.put_slice(br#"{"type":"event","event_id":"#);
                let path = namespace.path.join("|");
                write_str(buffer, &format!("synth:{}:{kind}|{path}|{name}", self.run));
            }
        }
        buffer.put_slice(br#","seq":"#);
        put_number(buffer, seq);
        buffer.put_slice(br#","method":""#);
        buffer.put_slice(method.as_str().as_bytes());
        buffer.put_slice(br#"","params":{"namespace":"#);
        buffer.put_slice(&namespace.text);
        buffer.put_slice(br#","timestamp":"#);
        put_number(buffer, u64::try_from(self.timestamp).unwrap_or(0));
        buffer.put_slice(br#","data":"#);
        data(buffer);
        if let Some(node) = node {
            buffer.put_slice(br#","node":"#);
            write_str(buffer, node);
        }
        buffer.put_slice(b"}}");
        match self.has_own_ids {
            true => out.commit_with_id(seq),
            false => out.commit(),
        }
    }
}

fn put_number(out: &mut BytesMut, number: u64) {
    write!(out.writer(), "{number}").expect("writing to memory does not fail");
}
