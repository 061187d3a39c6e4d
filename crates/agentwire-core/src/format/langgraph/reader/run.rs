//! The state of a run, its start, and the switch to the next run of the same stream.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::{LangGraphReader, ToolCalls, model_stream::add_usage, run_verdict::RunVerdict};
use crate::{
    event::{Body, Event, Interrupt, Message, RunId, RunStarted, SubagentId, ThreadId, ToolCallId, Usage},
    json::Json,
};

/// Bound on the interrupts of one run; a fan-out of approvals has a few dozen.
const MAX_INTERRUPTS: usize = 1024;

/// Bound on the messages whose usage is counted once.
const MAX_COUNTED: usize = 16_384;

/// The state of one run.
#[derive(Debug, Default)]
pub(super) struct LangGraphRun {
    pub(super) ids: Option<(ThreadId, RunId)>,
    /// The run id that the server sent before the run started.
    pub(super) native_id: Option<Box<str>>,
    root: Option<Box<str>>,
    pub(super) phase: RunPhase,
    pub(super) input: SeenInput,
    pub(super) ending: RunEnding,
    pub(super) usage: RunUsage,
    pub(super) conversation: RunConversation,
    pub(super) protocol: ProtocolState,
    /// Number of custom events that received a generated id.
    pub(super) manual_ids: u64,
}

/// The kinds of input that were seen, which decide the source of each fact.
#[derive(Debug, Default)]
pub(super) struct SeenInput {
    pub(super) is_graph: bool,
    pub(super) has_events: bool,
    pub(super) has_tasks: bool,
    /// Stream modes were seen, so that a closed stream may be a complete one.
    pub(super) has_modes: bool,
}

/// Facts about the end of the run.
#[derive(Debug, Default)]
pub(super) struct RunEnding {
    /// The root has ended; later frames may still report the outcome.
    pub(super) root_ended: bool,
    pub(super) result: Option<Json>,
    pub(super) interrupts: Vec<Interrupt>,
    /// The graph stopped at a breakpoint.
    pub(super) is_breakpoint: bool,
    /// The latest error of a runnable; the run may survive it.
    pub(super) last_error: Option<(Option<Box<str>>, Box<str>)>,
    pub(super) verdict: Option<RunVerdict>,
    /// The next nodes in the latest checkpoint of the outermost graph.
    pub(super) next_nodes: Vec<Box<str>>,
    /// Subagents that end with the run.
    pub(super) subagents: Vec<SubagentId>,
}

/// Token usage of the run, per provider and model.
#[derive(Debug, Default)]
pub(super) struct RunUsage {
    pub(super) totals: Vec<Usage>,
    counted_messages: HashSet<Box<str>>,
}

/// The conversation of the outermost graph.
#[derive(Debug, Default)]
pub(super) struct RunConversation {
    /// Ids of the messages of earlier runs.
    pub(super) history: HashSet<Box<str>>,
    /// The latest complete list of messages.
    pub(super) messages: Option<Vec<Message>>,
    /// The tool calls of the last assistant message in that list.
    pub(super) last_calls: Vec<ToolCallId>,
}

/// State that only protocol v2 needs.
#[derive(Debug, Default)]
pub(super) struct ProtocolState {
    /// A tool message that has started.
    pub(super) tool_message: Option<OpenToolMessage>,
    /// Complete blocks of mixed messages, with their namespace.
    pub(super) blocks: Vec<(Box<str>, Box<RawValue>)>,
}

/// A tool message of protocol v2 whose text follows.
#[derive(Debug)]
pub(super) struct OpenToolMessage {
    pub(super) ns: Box<str>,
    pub(super) call: ToolCallId,
    pub(super) id: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunPhase {
    #[default]
    Idle,
    Active,
    Over,
}

impl LangGraphRun {
    pub(super) fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    pub(super) fn set_root(&mut self, root: &str) {
        self.root = Some(root.into());
    }

    pub(super) fn is_root(&self, run: &str) -> bool {
        self.root.as_deref() == Some(run)
    }

    pub(super) fn is_active(&self) -> bool {
        self.phase == RunPhase::Active
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == RunPhase::Over
    }

    pub(super) fn has_interrupts(&self) -> bool {
        !self.ending.interrupts.is_empty()
    }

    pub(super) fn set_last_error(&mut self, class: Option<Box<str>>, message: Box<str>) {
        self.ending.last_error = Some((class, message));
    }

    /// Adds interrupts; an empty list means a breakpoint.
    pub(super) fn add_interrupts(&mut self, interrupts: Vec<Interrupt>) {
        let ending = &mut self.ending;
        ending.is_breakpoint |= interrupts.is_empty();
        for interrupt in interrupts {
            let has_room = ending.interrupts.len() < MAX_INTERRUPTS;
            match ending.interrupts.iter_mut().find(|known| known.id == interrupt.id) {
                Some(known) => known.tool_call = known.tool_call.take().or(interrupt.tool_call),
                None if has_room => ending.interrupts.push(interrupt),
                None => {}
            }
        }
    }
}

impl RunUsage {
    /// Adds the usage of a message, once per message id.
    pub(super) fn add(&mut self, usage: Usage, message: Option<&str>) {
        if let Some(message) = message
            && self.counted_messages.len() < MAX_COUNTED
            && !self.counted_messages.insert(message.into())
        {
            return;
        }
        let is_same = |sum: &&mut Usage| sum.provider == usage.provider && sum.model == usage.model;
        match self.totals.iter_mut().find(is_same) {
            Some(sum) => add_usage(sum, &usage),
            None => self.totals.push(usage),
        }
    }

    /// Excludes a message whose usage an earlier run has counted.
    pub(super) fn exclude(&mut self, message: &str) {
        if self.counted_messages.len() < MAX_COUNTED {
            self.counted_messages.insert(message.into());
        }
    }
}

impl LangGraphReader {
    /// Starts the run with the ids of the source, or else those of the caller.
    pub(super) fn start_run(&mut self, thread: Option<&str>, run: Option<&str>, out: &mut Vec<Event>) {
        let keep_given = self.options.given_ids;
        let thread = thread.filter(|_| !keep_given).map_or_else(|| self.thread.clone(), Into::into);
        let run = run
            .map(Into::into)
            .or_else(|| self.run.native_id.clone())
            .filter(|run| !keep_given && !run.is_empty());
        let run: RunId = run.map_or_else(|| self.given_run.clone(), |run| RunId::from(&*run));
        self.run.phase = RunPhase::Active;
        self.run.ids = Some((thread.clone(), run.clone()));
        out.push(Event::new(Body::RunStarted(Box::new(RunStarted::new(thread, run)))));
    }

    /// Starts the run unless it has started.
    pub(super) fn start_if_idle(&mut self, out: &mut Vec<Event>) {
        if self.run.phase == RunPhase::Idle {
            self.start_run(None, None, out);
        }
    }

    /// Prepares for another run of the same stream.
    pub(super) fn next_run(&mut self) {
        let history = std::mem::take(&mut self.run.conversation.history);
        self.run = LangGraphRun::default();
        self.run.conversation.history = history;
        self.calls = ToolCalls::default();
        self.generated_run_ids.clear();
        self.shown.next_run();
    }
}
