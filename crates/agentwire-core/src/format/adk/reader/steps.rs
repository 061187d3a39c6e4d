//! Which agents are at work: steps, or subagents, from node paths, branches and authors.
//!
//! ADK never says that an agent begins or ends; it only marks each event with where it comes from. So a step
//! opens with the first event from a place and closes with the first event that shows that the run has moved
//! on. What keeps a step open: being an ancestor of the new place (a transfer goes down, not away), standing
//! on a branch beside it (parallel agents), or having a model turn that is still streaming.
//!
//! With `subagents=on`, the agent that begins is the main one and stays a step; every other place is an
//! invocation of a subagent, and what is said there carries its id.

use super::{emitter::AdkEmitter, failure::AdkFailure};
use crate::{
    event::{Body, Interrupt, RunId, SubagentId, SubagentOutcome, SubagentStarted, ToolCallId},
    format::adk::options::AdkReaderOptions,
    tally::Tally,
};

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventOrigin<'e> {
    /// `nodeInfo.path`: 2.x below workflows and transfers, `router@1/billing@1`.
    pub(super) path: &'e str,
    /// Below a ParallelAgent: `parent.child`.
    pub(super) branch: &'e str,
    /// The agent.
    pub(super) author: &'e str,
}

/// The steps that are open, oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenSteps {
    open: Vec<OpenStep>,
    /// The one that the last event came from.
    current: usize,
    /// Where subagents are shown: who they are.
    subagents: Option<SubagentTracker>,
}

/// What it takes to tell subagents from the main agent, and one invocation from the next.
#[derive(Debug)]
struct SubagentTracker {
    run: RunId,
    /// The main agent: the one that the first event names first.
    main: Option<Box<str>>,
    /// How many there were.
    made: u64,
    /// The last transfer: to whom, and by which call.
    transfer: Option<(Box<str>, Option<ToolCallId>)>,
}

#[derive(Debug)]
struct OpenStep {
    path: Box<str>,
    branch: Box<str>,
    author: Box<str>,
    name: Box<str>,
    /// Which invocation it is, if it is a subagent's.
    subagent: Option<SubagentId>,
}

impl OpenStep {
    fn place(&self) -> EventOrigin<'_> {
        EventOrigin { path: &self.path, branch: &self.branch, author: &self.author }
    }
}

impl<'e> EventOrigin<'e> {
    /// The words that name this place, and what separates them.
    fn words(self) -> (&'e str, char) {
        match self {
            EventOrigin { path: "", branch: "", author } => (author, '\0'),
            EventOrigin { path: "", branch, .. } => (branch, '.'),
            EventOrigin { path, .. } => (path, '/'),
        }
    }

    /// Whether nothing is known about it.
    pub(super) fn is_nowhere(self) -> bool {
        self.words().0.is_empty()
    }

    /// Whether events from here and from `other` belong to one step.
    fn is(self, other: Self) -> bool {
        self.words() == other.words() && self.branch == other.branch
    }

    /// Whether `other` lies below this place.
    fn is_above(self, other: Self) -> bool {
        let ((mine, _), (theirs, separator)) = (self.words(), other.words());
        theirs.strip_prefix(mine).is_some_and(|rest| rest.starts_with(separator))
    }

    /// Whether this place and `other` are at work at the same time: on branches that have parted.
    fn is_beside(self, other: Self) -> bool {
        let below =
            |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        !self.branch.is_empty()
            && !other.branch.is_empty()
            && !below(self.branch, other.branch)
            && !below(other.branch, self.branch)
    }

    /// The outermost agent, without the number of its run.
    fn root(self) -> &'e str {
        let (words, separator) = self.words();
        plain(words.split(separator).next().unwrap_or(words))
    }

    /// The agent itself, without the number of its run.
    fn agent(self) -> &'e str {
        let (words, separator) = self.words();
        if self.author.is_empty() {
            plain(words.rsplit(separator).next().unwrap_or(words))
        } else {
            self.author
        }
    }

    /// Whether it is an agent that no other one is above.
    fn is_outermost(self) -> bool {
        let (words, separator) = self.words();
        !words.contains(separator)
    }

    /// What to call the step: the words without the numbers of runs.
    fn name(self, numbered: bool) -> Box<str> {
        let (words, separator) = self.words();
        if numbered || separator == '\0' {
            return words.into();
        }
        let mut name = String::with_capacity(words.len());
        for (index, word) in words.split(separator).enumerate() {
            if index > 0 {
                name.push(separator);
            }
            name.push_str(plain(word));
        }
        name.into()
    }
}

/// A node's name without the number of its run.
fn plain(word: &str) -> &str {
    word.split('@').next().unwrap_or(word)
}

impl OpenSteps {
    pub(super) fn new(settings: &AdkReaderOptions) -> Self {
        let subagents = settings.subagents.then(|| SubagentTracker {
            run: settings.run.clone(),
            main: None,
            made: 0,
            transfer: None,
        });
        Self { subagents, ..Self::default() }
    }

    /// The subagent that is at work, if one is and subagents are shown.
    pub(super) fn subagent(&self) -> Option<SubagentId> {
        self.open.get(self.current)?.subagent.clone()
    }

    /// An agent hands over to another one by a call.
    pub(super) fn transfer(&mut self, agent: &str, call: Option<ToolCallId>) {
        if let Some(subagents) = &mut self.subagents {
            subagents.transfer = Some((agent.into(), call));
        }
    }

    /// How many steps may be open at once; a fan-out wider than this is not shown step by step.
    const LIMIT: usize = 256;

    /// The next event comes from `place`. `busy` says whether a model turn is still streaming at a place.
    pub(super) fn enter(
        &mut self,
        place: EventOrigin<'_>,
        busy: impl Fn(EventOrigin<'_>) -> bool,
        emit: &mut AdkEmitter<'_>,
        tally: &mut Tally,
    ) {
        if self.open.get(self.current).is_some_and(|step| step.place().is(place)) {
            return;
        }
        let mut at = self.open.len();
        while at > 0 {
            at -= 1;
            let step = self.open[at].place();
            let stays = step.is(place)
                || step.is_above(place)
                || step.is_beside(place)
                || busy(step)
                || self.open[at + 1..].iter().any(|below| step.is_above(below.place()));
            if !stays {
                finish(self.open.remove(at), None, emit);
            }
        }
        if let Some(known) = self.open.iter().position(|step| step.place().is(place)) {
            self.current = known;
            return;
        }
        self.current = self.open.len();
        let taken = |name: &str| self.open.iter().any(|step| *step.name == *name);
        let mut name = place.name(false);
        if taken(&name) {
            // Two instances of one node at the same time: the numbers tell them apart.
            name = place.name(true);
        }
        let taken = taken(&name);
        let full = self.open.len() >= Self::LIMIT;
        let subagent = if full { None } else { self.begin(place, emit) };
        if full || subagent.is_none() && taken {
            tally.note("step not shown", &name);
            return;
        }
        if subagent.is_none() {
            emit.push(Body::StepStarted { name: name.clone() });
        }
        self.open.push(OpenStep {
            subagent,
            path: place.path.into(),
            branch: place.branch.into(),
            author: place.author.into(),
            name,
        });
    }

    /// Announces the subagent at `place`, if subagents are shown and it is one.
    fn begin(&mut self, place: EventOrigin<'_>, emit: &mut AdkEmitter<'_>) -> Option<SubagentId> {
        let subagents = self.subagents.as_mut()?;
        let main = subagents.main.get_or_insert_with(|| place.root().into());
        if place.is_outermost() && **main == *place.root() {
            return None;
        }
        let above = self.open.iter().rev().find(|step| step.place().is_above(place));
        let name = place.agent();
        let called = subagents.transfer.take_if(|(agent, _)| **agent == *name);
        let (words, _) = place.words();
        // The same agent may be called again, and an id names one invocation.
        let id = SubagentId::from(format!("{}:{words}:{}", subagents.run, subagents.made));
        subagents.made += 1;
        emit.subagent = Some(id.clone());
        emit.push(Body::SubagentStarted(Box::new(SubagentStarted {
            name: name.into(),
            description: None,
            parent_subagent: above.and_then(|step| step.subagent.clone()),
            parent_call: called.and_then(|(_, call)| call),
            parent_message: None,
        })));
        emit.subagent = None;
        Some(id)
    }

    /// The run ends: closes all steps, the newest first. A subagent with an interrupt of its own is suspended;
    /// if the run `failed`, the one that it failed in has failed with it.
    pub(super) fn leave(
        &mut self,
        interrupts: &[Interrupt],
        failed: Option<&AdkFailure>,
        emit: &mut AdkEmitter<'_>,
    ) {
        for step in self.open.drain(..).rev() {
            match failed {
                Some(failure) if step.subagent.is_some() && step.subagent == failure.subagent => {
                    emit.subagent = step.subagent;
                    emit.push(Body::SubagentError {
                        message: failure.message.clone(),
                        code: Some(failure.code.clone()),
                    });
                    emit.subagent = None;
                }
                _ => {
                    let own = interrupts.iter().filter(|interrupt| interrupt.subagent == step.subagent);
                    let own: Vec<_> = own.map(|interrupt| interrupt.id.clone()).collect();
                    let outcome = (!own.is_empty()).then_some(SubagentOutcome::Suspended { interrupts: own });
                    finish(step, outcome, emit);
                }
            }
        }
    }
}

/// Closes a step, or the subagent in its place.
fn finish(step: OpenStep, outcome: Option<SubagentOutcome>, emit: &mut AdkEmitter<'_>) {
    if step.subagent.is_none() {
        emit.push(Body::StepFinished { name: step.name });
        return;
    }
    emit.subagent = step.subagent;
    emit.push(Body::SubagentFinished { result: None, outcome });
    emit.subagent = None;
}
