//! The run around one response: its start, its ids, its pending calls and its end.

use std::collections::HashSet;

use super::{ModelFailure, UsedIds};
use crate::{
    codes,
    event::{
        Body, Event, Interrupt, MessageId, Outcome, RunError, RunFinished, RunId, RunStarted, StreamEnd,
        ThreadId, ToolCallId, Usage,
    },
    format::{Setup, derived_ids::part_id},
};

/// Maximum number of pending calls; providers allow 128 tools.
const MAX_PENDING: usize = 1024;

/// The run of a reader.
#[derive(Debug)]
pub(in crate::format) struct ModelRun {
    thread: ThreadId,
    run: RunId,
    /// Names of the tools that the request declared.
    tools: HashSet<Box<str>>,
    ids: UsedIds,
    message_count: u32,
    call_count: u32,
    /// Calls of declared tools.
    pending: Vec<ToolCallId>,
    interrupts: Vec<Interrupt>,
    pub(in crate::format) usage: Option<Usage>,
    /// The reason why the response is incomplete, if that fails the run.
    pub(in crate::format) cut_off: Option<Box<str>>,
    cut_off_fails: bool,
    is_started: bool,
    is_over: bool,
}

impl ModelRun {
    pub(in crate::format) fn of(setup: &Setup<'_>) -> Self {
        let Setup { thread, run, options } = setup;
        let input = options.request();
        let messages = || input.iter().flat_map(|input| &input.messages);
        let calls = messages().flat_map(|message| message.tool_calls()).map(|call| call.id.as_str().into());
        let used = messages().map(|message| message.id.as_str().into()).chain(calls).collect();
        Self {
            thread: thread.clone(),
            run: run.clone(),
            tools: input.iter().flat_map(|input| &input.tools).map(|tool| tool.name.clone()).collect(),
            ids: UsedIds::new(used),
            message_count: 0,
            call_count: 0,
            pending: Vec::new(),
            interrupts: Vec::new(),
            usage: None,
            cut_off: None,
            cut_off_fails: options.is("cut_off", "error"),
            is_started: false,
            is_over: false,
        }
    }

    /// True if the terminal event was emitted.
    pub(in crate::format) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Starts the run; once.
    pub(in crate::format) fn start(&mut self, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.is_started, true) {
            let started = RunStarted::new(self.thread.clone(), self.run.clone());
            out.push(Event::new(Body::RunStarted(Box::new(started))));
        }
    }

    /// The id of the next message: that of the server, or one of the run.
    pub(in crate::format) fn message_id(&mut self, native: Option<&str>) -> MessageId {
        let generated: MessageId = part_id(&self.run, "message", self.message_count);
        self.message_count = self.message_count.saturating_add(1);
        self.ids.choose(native, generated)
    }

    /// The number of the next call.
    pub(in crate::format) fn next_call(&mut self) -> u32 {
        let number = self.call_count;
        self.call_count = number.saturating_add(1);
        number
    }

    /// The id of the next call. A call of a declared tool is pending when the run ends.
    pub(in crate::format) fn call_id(
        &mut self,
        name: &str,
        native: Option<&str>,
        derived: ToolCallId,
    ) -> ToolCallId {
        let id = self.ids.choose(native, derived);
        if self.tools.contains(name) && self.pending.len() < MAX_PENDING {
            self.pending.push(id.clone());
        }
        id
    }

    /// The run ends with a question.
    pub(in crate::format) fn ask(&mut self, interrupt: Interrupt) {
        if self.interrupts.len() < MAX_PENDING {
            self.interrupts.push(interrupt);
        }
    }

    /// Ends the run with a failure.
    pub(in crate::format) fn fail(&mut self, failure: ModelFailure, out: &mut Vec<Event>) {
        self.start(out);
        self.is_over = true;
        let ModelFailure { code, message } = failure;
        let usage = self.usage.take().into_iter().collect();
        out.push(Event::new(Body::RunError(Box::new(RunError { message, code: Some(code), usage }))));
    }

    /// Ends the run, as cancelled if the server says so.
    pub(in crate::format) fn finish(&mut self, is_cancelled: bool, out: &mut Vec<Event>) {
        if let Some(reason) = self.cut_off.take().filter(|_| self.cut_off_fails) {
            let message = format!("the model's answer was cut off: {reason}");
            return self.fail(ModelFailure::new(&reason, &message), out);
        }
        self.start(out);
        self.is_over = true;
        let pending = std::mem::take(&mut self.pending);
        let interrupts = std::mem::take(&mut self.interrupts);
        let outcome = match () {
            () if is_cancelled => Some(Outcome::Cancelled),
            () if !interrupts.is_empty() => Some(Outcome::Interrupt { interrupts }),
            () if !pending.is_empty() => Some(Outcome::Success { pending }),
            () => None,
        };
        let usage = self.usage.take().into_iter().collect();
        let finished =
            RunFinished { outcome, usage, ..RunFinished::new(self.thread.clone(), self.run.clone()) };
        out.push(Event::new(Body::RunFinished(Box::new(finished))));
    }

    /// Ends the run with its stream, which had no end of its own.
    pub(in crate::format) fn close(&mut self, end: &StreamEnd, is_complete: bool, out: &mut Vec<Event>) {
        match end {
            _ if self.is_over => {}
            StreamEnd::Failed { code, message } => self.fail(ModelFailure::new(code, message), out),
            StreamEnd::Closed if is_complete => self.finish(false, out),
            StreamEnd::Closed if self.is_started => {
                let message = "the stream ended before the model was done";
                self.fail(ModelFailure::new(codes::STREAM_TRUNCATED, message), out);
            }
            StreamEnd::Closed => {
                let message = "the stream held no response of a model";
                self.fail(ModelFailure::new(codes::UPSTREAM_NO_EVENTS, message), out);
            }
        }
    }
}
