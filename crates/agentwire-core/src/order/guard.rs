//! Repairs violations of the order rules.

use crate::codes;
use std::collections::BTreeMap;

use super::{
    registry::Part,
    rule::Rule,
    track::{Phase, Track},
};
use crate::event::{
    Body, Event, Interrupt, Outcome, RunError, RunFinished, RunId, RunStarted, StreamEnd, SubagentOutcome,
    ThreadId,
};

/// Any events in, a valid stream out.
///
/// A valid stream with one terminal event per run passes unchanged. A violation is repaired where possible (content
/// without a start gets one, open items are closed before the run ends, a subagent id that contradicts the owner is
/// removed); otherwise the event is dropped. Every repair is counted by rule.
///
/// ```
/// use agentwire_core::{event::{Body, Event, StreamEnd}, order::Guard};
/// let mut guard = Guard::new("t1", "r1");
/// let mut out = Vec::new();
/// guard.push(Event::new(Body::TextDelta { message: "m1".into(), delta: "Hi".into() }), &mut out);
/// guard.end(&StreamEnd::Closed, &mut out);
/// let kinds: Vec<_> = out.iter().map(Event::kind).collect();
/// assert_eq!(kinds, ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_ERROR"]);
/// ```
#[derive(Debug)]
pub struct Guard {
    pub(super) track: Track,
    thread: ThreadId,
    run: RunId,
    /// Whether this guard inserted the start of the active run.
    is_start_inserted: bool,
    repairs: BTreeMap<Rule, u64>,
}

impl Guard {
    /// A guard for a stream; the ids are used if the stream does not start with RUN_STARTED.
    #[must_use]
    pub fn new(thread: impl Into<ThreadId>, run: impl Into<RunId>) -> Self {
        Self {
            track: Track::default(),
            thread: thread.into(),
            run: run.into(),
            is_start_inserted: false,
            repairs: BTreeMap::new(),
        }
    }

    /// Counts of repairs by rule.
    pub fn repairs(&self) -> impl Iterator<Item = (Rule, u64)> {
        self.repairs.iter().map(|(rule, times)| (*rule, *times))
    }

    /// Whether a run is active, so that a terminal event must follow.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.track.phase == Phase::Active
    }

    /// True if `event` is a delta that continues the item of the event before it, which was accepted: then it is valid,
    /// and there is nothing to note.
    pub(crate) fn accepts_unchecked(&self, event: &Event) -> bool {
        self.track.repeats_latest_delta(event)
    }

    /// Adds an event; valid events go to `out`.
    pub fn push(&mut self, event: Event, out: &mut Vec<Event>) {
        if matches!(event.body, Body::RunError(_)) && self.is_active() && self.track.has_open() {
            self.count(Rule::OpenAtError);
            self.close_all(&event, out);
        }
        let mut event = event;
        // Each repair resolves one violation; an event has a handful of them at most.
        for _ in 0..8 {
            match self.track.judge(&event) {
                Ok(()) => {
                    if matches!(event.body, Body::RunStarted(_)) {
                        self.is_start_inserted = false;
                    }
                    self.track.advance(&event);
                    out.push(event);
                    return;
                }
                Err(rule) => {
                    self.count(rule);
                    match self.repair(event, rule, out) {
                        Some(repaired) => event = repaired,
                        None => return,
                    }
                }
            }
        }
    }

    /// Ends the stream, and its run if that has no terminal event.
    pub fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if matches!(self.track.phase, Phase::Finished | Phase::Errored) {
            return;
        }
        if self.track.phase == Phase::Empty {
            self.start_run(None, out);
        }
        self.count(Rule::NoTerminal);
        let error = match end {
            StreamEnd::Closed => {
                RunError::new("the stream ended before the run did", Some(codes::STREAM_TRUNCATED))
            }
            StreamEnd::Failed { code, message } => RunError::new(message.clone(), Some(code)),
        };
        let event = Event::new(Body::RunError(Box::new(error)));
        self.close_all(&event, out);
        self.emit(event, out);
    }

    fn count(&mut self, rule: Rule) {
        *self.repairs.entry(rule).or_default() += 1;
    }

    /// Emits an event that this guard made.
    fn emit(&mut self, event: Event, out: &mut Vec<Event>) {
        if self.track.judge(&event).is_ok() {
            self.track.advance(&event);
            out.push(event);
        }
    }

    fn start_run(&mut self, timestamp: Option<i64>, out: &mut Vec<Event>) {
        let started = RunStarted::new(self.thread.clone(), self.run.clone());
        self.emit(Event::new(Body::RunStarted(Box::new(started))).at(timestamp), out);
        self.is_start_inserted = true;
    }

    /// Repairs the violation of `rule` by `event`; `None` drops the event.
    fn repair(&mut self, mut event: Event, rule: Rule, out: &mut Vec<Event>) -> Option<Event> {
        match rule {
            Rule::RunFirst => {
                // The ids of a RUN_FINISHED are better than the default ones.
                if let Body::RunFinished(finished) = &event.body {
                    let RunFinished { thread, run, .. } = &**finished;
                    (self.thread, self.run) = (thread.clone(), run.clone());
                }
                self.start_run(event.timestamp, out);
            }
            Rule::RunActive => {
                let Body::RunStarted(started) = &event.body else {
                    return None;
                };
                // A late start belongs to the run that this guard started.
                if std::mem::take(&mut self.is_start_inserted) {
                    return None;
                }
                if self.track.run.as_ref().is_some_and(|(_, run)| *run == started.run) {
                    return None;
                }
                let message = format!("run `{}` began before this one ended", started.run);
                let error = RunError::new(message, Some(codes::STREAM_TRUNCATED));
                let error = Event::new(Body::RunError(Box::new(error))).at(event.timestamp);
                self.close_all(&error, out);
                self.emit(error, out);
            }
            Rule::OneThread => {
                let thread = self.track.thread.clone()?;
                if let Body::RunStarted(started) = &mut event.body {
                    started.thread = thread;
                }
            }
            Rule::RunIds => {
                let (thread, run) = self.track.run.clone()?;
                if let Body::RunFinished(finished) = &mut event.body {
                    (finished.thread, finished.run) = (thread, run);
                }
            }
            Rule::Unclosed => self.close_all(&event, out),
            Rule::InterruptEmpty => {
                if let Body::RunFinished(finished) = &mut event.body {
                    finished.outcome = None;
                }
            }
            Rule::InterruptIds => {
                if let Body::RunFinished(finished) = &mut event.body
                    && let Some(Outcome::Interrupt { interrupts }) = &mut finished.outcome
                {
                    let mut seen = std::collections::HashSet::new();
                    interrupts.retain(|Interrupt { id, .. }| seen.insert(id.clone()));
                }
            }
            Rule::TextNotOpen => {
                let Body::TextDelta { message, .. } = &event.body else {
                    return None;
                };
                let start = Body::TextStart { message: message.clone(), role: None, name: None };
                self.reopen(start, &event, out)?;
            }
            Rule::ReasoningNotOpen => {
                let Body::ReasoningDelta { message, .. } = &event.body else {
                    return None;
                };
                self.reopen(Body::ReasoningMessageStart { message: message.clone() }, &event, out)?;
            }
            Rule::ToolNotOpen => {
                let Body::ToolArgs { call, .. } = &event.body else {
                    return None;
                };
                // A call cannot be opened without a name.
                let name = self.track.calls.get(call.as_str())?.label.clone()?;
                self.reopen(Body::ToolStart { call: call.clone(), name, parent: None }, &event, out)?;
            }
            Rule::StepOwner => {
                let Body::StepFinished { name } = &event.body else {
                    return None;
                };
                let mut owners = self.track.step_owners(name);
                if owners.len() != 1 {
                    return None;
                }
                event.subagent = owners.pop()?;
            }
            Rule::SubagentParent => {
                if let Body::SubagentStarted(started) = &mut event.body {
                    started.parent_subagent = None;
                }
            }
            Rule::Owner => event.subagent = None,
            Rule::ParentOwner => match &mut event.body {
                Body::ToolStart { parent, .. } if event.subagent.is_none() => *parent = None,
                _ => event.subagent = None,
            },
            Rule::RunOver
            | Rule::TextOpen
            | Rule::ToolOpen
            | Rule::ReasoningOpen
            | Rule::SpanOpen
            | Rule::SpanNotOpen
            | Rule::StepOpen
            | Rule::StepNotOpen
            | Rule::SubagentId
            | Rule::SubagentOpen
            | Rule::SubagentReused
            | Rule::SubagentNotOpen
            | Rule::TooManyOpen
            | Rule::NoTerminal
            | Rule::OneTerminal
            | Rule::OpenAtError => return None,
        }
        Some(event)
    }

    /// Emits the start that `event` lacks, without a subagent if that contradicts a known owner.
    fn reopen(&mut self, start: Body, event: &Event, out: &mut Vec<Event>) -> Option<()> {
        let mut start = Event::new(start).by(event.subagent.clone()).at(event.timestamp);
        if self.track.judge(&start) == Err(Rule::Owner) {
            start.subagent = None;
        }
        self.track.judge(&start).ok()?;
        self.track.advance(&start);
        out.push(start);
        Some(())
    }

    /// Closes everything that is open, inner things first, before `ending`.
    fn close_all(&mut self, ending: &Event, out: &mut Vec<Event>) {
        let mut closing = Vec::new();
        let track = &self.track;
        for (call, owner) in track.calls.open_entries(Part::Main) {
            closing.push((Body::ToolEnd { call }, owner));
        }
        for (message, owner) in track.messages.open_entries(Part::Main) {
            closing.push((Body::TextEnd { message }, owner));
        }
        for (message, owner) in track.reasoning.open_entries(Part::Main) {
            closing.push((Body::ReasoningMessageEnd { message }, owner));
        }
        for (message, owner) in track.reasoning.open_entries(Part::Span) {
            closing.push((Body::ReasoningEnd { message }, owner));
        }
        for ((owner, name), _) in track.steps.open_entries(Part::Main) {
            closing.push((Body::StepFinished { name }, owner));
        }
        for (subagent, _) in track.subagents.open_entries(Part::Main) {
            let body = match &ending.body {
                Body::RunError(error) => {
                    Body::SubagentError { message: error.message.clone(), code: error.code.clone() }
                }
                Body::RunFinished(finished) => {
                    let outcome = match &finished.outcome {
                        Some(Outcome::Interrupt { interrupts }) => {
                            let own = interrupts.iter().filter(|it| it.subagent.as_ref() == Some(&subagent));
                            let interrupts = own.map(|interrupt| interrupt.id.clone()).collect();
                            Some(SubagentOutcome::Suspended { interrupts })
                        }
                        _ => None,
                    };
                    Body::SubagentFinished { result: None, outcome }
                }
                _ => Body::SubagentFinished { result: None, outcome: None },
            };
            closing.push((body, Some(subagent)));
        }
        for (body, owner) in closing {
            self.emit(Event::new(body).by(owner).at(ending.timestamp), out);
        }
    }
}
