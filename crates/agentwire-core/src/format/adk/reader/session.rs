//! Stored sessions: runs of the past, read as if they happened now, of which only what they left is told.

use serde_json::value::RawValue;

use super::{
    super::{
        emit::Emit,
        history,
        input::StoredSession,
        state::State,
        steps::Steps,
        wire::{Session, milliseconds, parse},
    },
    AdkReader, bad_json,
    streams::Streams,
};
use crate::{
    event::{Body, Event},
    format::ReadError,
    json::{Object, Path, json},
    tally::Tally,
};

impl AdkReader {
    /// A stored session: its messages and its state, at once.
    pub(super) fn session(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let thread = self.take_in(text)?.0;
        self.start(Some(&thread).filter(|thread| !thread.is_empty()).map(String::as_str), out);
        let messages = self.run.transcript.messages().to_vec();
        Emit::new(out, self.now).push(Body::MessagesSnapshot { messages });
        Ok(())
    }

    /// Takes in a stored session without a word; returns its id and its state as stored.
    fn take_in(&mut self, text: &str) -> Result<(String, Option<Object>), ReadError> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| bad_json(&error))?;
        let session: Session<'_> = parse(raw, Path::Root)?;
        self.understood = true;
        // A history names its agents; whose invocation each of them was is over.
        self.steps = Steps::default();
        let mut aside = Vec::new();
        for event in history::live(&session)? {
            if let Some(seconds) = event.timestamp {
                self.now = milliseconds(seconds);
            }
            self.event(&event, &mut aside)?;
            aside.clear();
        }
        if let Some(seconds) = session.updated {
            self.now = milliseconds(seconds);
        }
        let emit = &mut Emit::new(&mut aside, self.now);
        for stream in &mut self.streams.all {
            if let Some(mut turn) = stream.turn.take() {
                self.run.close(&mut turn, emit);
            }
        }
        self.run.speak_as(None, emit);
        self.steps.leave(&[], None, emit);
        if !self.run.transcript.is_whole() {
            self.run.tally.note("history cut off", "the session is too long to be shown");
        }
        // What failed was a run of the past, and its cost was that run's.
        self.run.settle();
        self.failure = None;
        self.streams = Streams::default();
        self.usage.clear();
        self.result = None;
        let mut stored = None;
        if let Some(raw) = session.state {
            stored = json(raw, Path::Key(&Path::Root, "state"), &mut self.run.tally)?.into_object();
        }
        if let Some(state) = &stored {
            self.state = State::new(Some(state), self.run.settings.show_temp);
        }
        Ok((session.id.map(|id| id.0.into_owned()).unwrap_or_default(), stored))
    }

    /// What a stored session holds.
    pub(in super::super) fn stored(
        mut self,
        body: &str,
        tally: &mut Tally,
    ) -> Result<StoredSession, ReadError> {
        let (thread, stored) = self.take_in(body.trim())?;
        if thread.is_empty() {
            return Err(ReadError::new("", "`id` is missing, expected a string"));
        }
        tally.absorb(&self.run.tally);
        Ok(StoredSession {
            thread: thread.into(),
            messages: self.run.transcript.messages().to_vec(),
            state: self.state.snapshot().into_object().unwrap_or_else(Object::empty),
            raw_state: stored.unwrap_or_else(Object::empty),
            interrupts: self.run.pending().0,
            updated: self.now,
        })
    }
}
