//! Stored sessions: their events are read like a stream, but only the resulting messages, state and pending calls are
//! emitted.

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
    json::{Object, Path, ReadError, ReadResult, json},
    tally::Tally,
};

impl AdkReader {
    /// Emits the messages of a stored session; the state follows at the end of the run.
    pub(super) fn read_session(&mut self, text: &str, out: &mut Vec<Event>) -> ReadResult {
        let thread = self.load_session(text)?.0;
        self.emit_run_started(Some(&thread).filter(|thread| !thread.is_empty()).map(String::as_str), out);
        let messages = self.run.transcript.messages().to_vec();
        AdkEmitter::new(out, self.now).push(Body::MessagesSnapshot { messages });
        Ok(())
    }

    /// Reads a stored session without emitting events; returns its id and its state as stored.
    fn load_session(&mut self, text: &str) -> ReadResult<(String, Option<Object>)> {
        let session: SessionBody<'_> = parse(parse_raw(text)?, Path::Root)?;
        self.has_events = true;
        // The history contains many invocations, so no subagent runs are tracked.
        self.steps = OpenSteps::default();
        let mut discarded = Vec::new();
        for event in session_history::effective_events(&session)? {
            if let Some(seconds) = event.timestamp {
                self.now = milliseconds(seconds.value);
            }
            self.read_event(&event, &mut discarded)?;
            discarded.clear();
        }
        if let Some(seconds) = session.updated {
            self.now = milliseconds(seconds);
        }
        let emitter = &mut AdkEmitter::new(&mut discarded, self.now);
        for stream in &mut self.streams.all {
            if let Some(mut turn) = stream.turn.take() {
                self.run.close_turn(&mut turn, emitter);
            }
        }
        self.run.set_subagent(None, emitter);
        self.steps.close_all(&[], None, emitter);
        if !self.run.transcript.is_complete() {
            self.run.tally.note("history cut off", "the session is too long to be shown");
        }
        // Failures, usage and results belong to the past runs.
        self.run.settle_calls();
        self.failure = None;
        self.streams = AgentStreams::default();
        self.usage.clear();
        self.result = None;
        let mut stored = None;
        if let Some(raw) = session.state {
            stored = json(raw, Path::Key(&Path::Root, "state"), &mut self.run.tally)?.into_object();
        }
        if let Some(state) = &stored {
            self.state = SessionState::new(Some(state), self.run.options.show_temp);
        }
        Ok((session.id.map(|id| id.0.into_owned()).unwrap_or_default(), stored))
    }

    /// Reads the response body of a session request.
    pub(in crate::format::adk) fn into_stored_session(
        mut self,
        body: &str,
        tally: &mut Tally,
    ) -> ReadResult<StoredSession> {
        let (thread, stored) = self.load_session(body.trim())?;
        if thread.is_empty() {
            return Err(ReadError::new("", "`id` is missing, expected a string"));
        }
        tally.absorb(&self.run.tally);
        Ok(StoredSession {
            thread: thread.into(),
            messages: self.run.transcript.messages().to_vec(),
            state: self.state.snapshot().into_object().unwrap_or_else(Object::empty),
            raw_state: stored.unwrap_or_else(Object::empty),
            interrupts: self.run.pending_items().0,
            updated: self.now,
        })
    }
}
