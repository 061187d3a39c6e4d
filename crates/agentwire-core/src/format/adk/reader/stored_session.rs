//! Stored sessions: runs of the past, read as if they happened now, of which only what they left is told.

use super::{
    AdkReader,
    agent_streams::AgentStreams,
    decode::{milliseconds, parse, parse_raw},
    emitter::AdkEmitter,
    session_history,
    session_state::SessionState,
    steps::OpenSteps,
};
use crate::{
    event::{Body, Event},
    format::adk::{input::StoredSession, wire::SessionBody},
    json::{Object, Path, ReadError, json},
    tally::Tally,
};

impl AdkReader {
    /// A stored session: its messages and its state, at once.
    pub(super) fn session(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let thread = self.take_in(text)?.0;
        self.start(Some(&thread).filter(|thread| !thread.is_empty()).map(String::as_str), out);
        let messages = self.run.transcript.messages().to_vec();
        AdkEmitter::new(out, self.now).push(Body::MessagesSnapshot { messages });
        Ok(())
    }

    /// Takes in a stored session without a word; returns its id and its state as stored.
    fn take_in(&mut self, text: &str) -> Result<(String, Option<Object>), ReadError> {
        let session: SessionBody<'_> = parse(parse_raw(text)?, Path::Root)?;
        self.understood = true;
        // A history names its agents; whose invocation each of them was is over.
        self.steps = OpenSteps::default();
        let mut aside = Vec::new();
        for event in session_history::live(&session)? {
            if let Some(seconds) = event.timestamp {
                self.now = milliseconds(seconds);
            }
            self.event(&event, &mut aside)?;
            aside.clear();
        }
        if let Some(seconds) = session.updated {
            self.now = milliseconds(seconds);
        }
        let emit = &mut AdkEmitter::new(&mut aside, self.now);
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
        self.streams = AgentStreams::default();
        self.usage.clear();
        self.result = None;
        let mut stored = None;
        if let Some(raw) = session.state {
            stored = json(raw, Path::Key(&Path::Root, "state"), &mut self.run.tally)?.into_object();
        }
        if let Some(state) = &stored {
            self.state = SessionState::new(Some(state), self.run.settings.show_temp);
        }
        Ok((session.id.map(|id| id.0.into_owned()).unwrap_or_default(), stored))
    }

    /// What a stored session holds.
    pub(in crate::format::adk) fn stored(
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
