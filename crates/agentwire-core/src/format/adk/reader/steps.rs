//! Steps or subagents, derived from the node paths, branches and authors of events.
//!
//! ADK has no events for the start and end of an agent; each event only carries its origin. So a step opens with the
//! first event of an origin and closes with the first event which shows that the run has moved on. A step stays open
//! while it is an ancestor of the new origin (a transfer descends, it does not leave), while it is on a parallel branch
//! (parallel agents), or while one of its model turns is still streaming.
//!
//! With `subagents=on`, the first agent is the main agent and remains a step; every other origin is an invocation of a
//! subagent, and its events carry the id of that invocation.

use super::{emitter::AdkEmitter, failure::AdkFailure, is_equal};
use crate::{
    event::{Body, Interrupt, RunId, SubagentId, SubagentOutcome, SubagentStarted, ToolCallId},
    format::adk::options::AdkReaderOptions,
    tally::Tally,
};

/// The origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventOrigin<'e> {
    /// `nodeInfo.path`, in 2.x below workflows and transfers: `router@1/billing@1`.
    pub(super) path: &'e str,
    /// Below a ParallelAgent: `parent.child`.
    pub(super) branch: &'e str,
    /// The agent.
    pub(super) author: &'e str,
}

/// The open steps, oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenSteps {
    open: Vec<OpenStep>,
    /// The index of the last event's step.
    current: usize,
    /// Present with `subagents=on`.
    subagents: Option<SubagentTracker>,
}

/// Data to tell subagents from the main agent, and one invocation from the next.
#[derive(Debug)]
struct SubagentTracker {
    run: RunId,
    /// The main agent: the outermost one in the first event.
    main: Option<Box<str>>,
    /// Number of invocations so far.
    count: u64,
    /// The last transfer: its target and the call that requested it.
    transfer: Option<(Box<str>, Option<ToolCallId>)>,
}

#[derive(Debug)]
struct OpenStep {
    path: Box<str>,
    branch: Box<str>,
    author: Box<str>,
    name: Box<str>,
    /// The invocation id, if the step is a subagent.
    subagent: Option<SubagentId>,
}

impl OpenStep {
    fn origin(&self) -> EventOrigin<'_> {
        EventOrigin { path: &self.path, branch: &self.branch, author: &self.author }
    }
}

impl<'e> EventOrigin<'e> {
    /// The most exact name of this origin, and the separator of its segments.
    fn full_name(self) -> (&'e str, char) {
        match self {
            EventOrigin { path: "", branch: "", author } => (author, '\0'),
            EventOrigin { path: "", branch, .. } => (branch, '.'),
            EventOrigin { path, .. } => (path, '/'),
        }
    }

    /// True if the event carries no origin at all.
    pub(super) fn is_unknown(self) -> bool {
        self.full_name().0.is_empty()
    }

    /// True if events from here and from `other` belong to one step.
    fn is_same_step(self, other: Self) -> bool {
        self.full_name() == other.full_name() && is_equal(self.branch, other.branch)
    }

    /// True if this origin is an ancestor of `other`.
    fn is_above(self, other: Self) -> bool {
        let ((own, _), (theirs, separator)) = (self.full_name(), other.full_name());
        theirs.strip_prefix(own).is_some_and(|rest| rest.starts_with(separator))
    }

    /// True if this origin and `other` run at the same time, on branches of which none contains the other.
    fn is_parallel_to(self, other: Self) -> bool {
        let is_within =
            |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        !self.branch.is_empty()
            && !other.branch.is_empty()
            && !is_within(self.branch, other.branch)
            && !is_within(other.branch, self.branch)
    }

    /// The outermost agent, without its run number.
    fn root(self) -> &'e str {
        let (name, separator) = self.full_name();
        without_run_number(name.split(separator).next().unwrap_or(name))
    }

    /// The innermost agent, without its run number.
    fn agent(self) -> &'e str {
        let (name, separator) = self.full_name();
        if self.author.is_empty() {
            without_run_number(name.rsplit(separator).next().unwrap_or(name))
        } else {
            self.author
        }
    }

    /// True if no agent is above this one.
    fn is_outermost(self) -> bool {
        let (name, separator) = self.full_name();
        !name.contains(separator)
    }

    /// The name of the step: the full name, with or without run numbers.
    fn step_name(self, is_numbered: bool) -> Box<str> {
        let (full_name, separator) = self.full_name();
        if is_numbered || separator == '\0' {
            return full_name.into();
        }
        let mut name = String::with_capacity(full_name.len());
        for (index, segment) in full_name.split(separator).enumerate() {
            if index > 0 {
                name.push(separator);
            }
            name.push_str(without_run_number(segment));
        }
        name.into()
    }
}

/// The name of a node without its run number: `billing` for `billing@1`.
fn without_run_number(segment: &str) -> &str {
    segment.split('@').next().unwrap_or(segment)
}

impl OpenSteps {
    /// Maximum number of open steps; a wider fan-out is not shown step by step.
    const LIMIT: usize = 256;

    pub(super) fn new(options: &AdkReaderOptions) -> Self {
        let subagents = options.subagents.then(|| SubagentTracker {
            run: options.run.clone(),
            main: None,
            count: 0,
            transfer: None,
        });
        Self { subagents, ..Self::default() }
    }

    /// The current subagent, with `subagents=on`.
    pub(super) fn subagent(&self) -> Option<SubagentId> {
        self.open.get(self.current)?.subagent.clone()
    }

    /// Notes a transfer to another agent and the call that requested it.
    pub(super) fn note_transfer(&mut self, agent: &str, call: Option<ToolCallId>) {
        if let Some(subagents) = &mut self.subagents {
            subagents.transfer = Some((agent.into(), call));
        }
    }

    /// Makes `origin` the current step: closes steps that are over, opens a new one if needed. `is_busy` tells whether
    /// a model turn is still streaming from an origin.
    pub(super) fn enter(
        &mut self,
        origin: EventOrigin<'_>,
        is_busy: impl Fn(EventOrigin<'_>) -> bool,
        emitter: &mut AdkEmitter<'_>,
        tally: &mut Tally,
    ) {
        if self.open.get(self.current).is_some_and(|step| step.origin().is_same_step(origin)) {
            return;
        }
        let mut index = self.open.len();
        while index > 0 {
            index -= 1;
            let step = self.open[index].origin();
            let stays_open = step.is_same_step(origin)
                || step.is_above(origin)
                || step.is_parallel_to(origin)
                || is_busy(step)
                || self.open[index + 1..].iter().any(|below| step.is_above(below.origin()));
            if !stays_open {
                close_step(self.open.remove(index), None, emitter);
            }
        }
        if let Some(known) = self.open.iter().position(|step| step.origin().is_same_step(origin)) {
            self.current = known;
            return;
        }
        self.current = self.open.len();
        let is_taken = |name: &str| self.open.iter().any(|step| *step.name == *name);
        let mut name = origin.step_name(false);
        if is_taken(&name) {
            // Two instances of one node run at the same time: the run numbers tell them apart.
            name = origin.step_name(true);
        }
        let is_taken = is_taken(&name);
        let is_full = self.open.len() >= Self::LIMIT;
        let subagent = if is_full { None } else { self.start_subagent(origin, emitter) };
        if is_full || subagent.is_none() && is_taken {
            tally.note("step not shown", &name);
            return;
        }
        if subagent.is_none() {
            emitter.push(Body::StepStarted { name: name.clone() });
        }
        self.open.push(OpenStep {
            subagent,
            path: origin.path.into(),
            branch: origin.branch.into(),
            author: origin.author.into(),
            name,
        });
    }

    /// Announces the subagent at `origin`; `None` for the main agent and without `subagents=on`.
    fn start_subagent(
        &mut self,
        origin: EventOrigin<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> Option<SubagentId> {
        let subagents = self.subagents.as_mut()?;
        let main = subagents.main.get_or_insert_with(|| origin.root().into());
        if origin.is_outermost() && **main == *origin.root() {
            return None;
        }
        let parent = self.open.iter().rev().find(|step| step.origin().is_above(origin));
        let name = origin.agent();
        let transfer = subagents.transfer.take_if(|(agent, _)| **agent == *name);
        let (full_name, _) = origin.full_name();
        // An agent may be invoked several times; the number makes the id of each invocation unique.
        let id = SubagentId::from(format!("{}:{full_name}:{}", subagents.run, subagents.count));
        subagents.count += 1;
        emitter.subagent = Some(id.clone());
        emitter.push(Body::SubagentStarted(Box::new(SubagentStarted {
            name: name.into(),
            description: None,
            parent_subagent: parent.and_then(|step| step.subagent.clone()),
            parent_call: transfer.and_then(|(_, call)| call),
            parent_message: None,
        })));
        emitter.subagent = None;
        Some(id)
    }

    /// Closes all steps at the end of the run, newest first. A subagent with an interrupt is suspended; the subagent
    /// of the `failure` fails.
    pub(super) fn close_all(
        &mut self,
        interrupts: &[Interrupt],
        failure: Option<&AdkFailure>,
        emitter: &mut AdkEmitter<'_>,
    ) {
        for step in self.open.drain(..).rev() {
            match failure {
                Some(failure) if step.subagent.is_some() && step.subagent == failure.subagent => {
                    emitter.subagent = step.subagent;
                    emitter.push(Body::SubagentError {
                        message: failure.message.clone(),
                        code: Some(failure.code.clone()),
                    });
                    emitter.subagent = None;
                }
                _ => {
                    let own = interrupts.iter().filter(|interrupt| interrupt.subagent == step.subagent);
                    let own: Vec<_> = own.map(|interrupt| interrupt.id.clone()).collect();
                    let outcome = (!own.is_empty()).then_some(SubagentOutcome::Suspended { interrupts: own });
                    close_step(step, outcome, emitter);
                }
            }
        }
    }
}

/// Emits the end of a step or subagent.
fn close_step(step: OpenStep, outcome: Option<SubagentOutcome>, emitter: &mut AdkEmitter<'_>) {
    if step.subagent.is_none() {
        emitter.push(Body::StepFinished { name: step.name });
        return;
    }
    emitter.subagent = step.subagent;
    emitter.push(Body::SubagentFinished { result: None, outcome });
    emitter.subagent = None;
}
