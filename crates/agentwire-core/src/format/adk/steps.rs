//! Which agents are at work: steps from node paths, branches and authors.
//!
//! ADK never says that an agent begins or ends; it only marks each event with where it comes from. So a step
//! opens with the first event from a place and closes with the first event that shows that the run has moved
//! on. What keeps a step open: being an ancestor of the new place (a transfer goes down, not away), standing
//! on a branch beside it (parallel agents), or having a model turn that is still streaming.

use super::emit::Emit;
use crate::{event::Body, tally::Tally};

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'e> {
    /// `nodeInfo.path`: 2.x below workflows and transfers, `router@1/billing@1`.
    pub(super) path: &'e str,
    /// Below a ParallelAgent: `parent.child`.
    pub(super) branch: &'e str,
    /// The agent.
    pub(super) author: &'e str,
}

/// The steps that are open, oldest first.
#[derive(Debug, Default)]
pub(super) struct Steps {
    open: Vec<Step>,
    /// The one that the last event came from.
    current: usize,
}

#[derive(Debug)]
struct Step {
    path: Box<str>,
    branch: Box<str>,
    author: Box<str>,
    name: Box<str>,
}

impl Step {
    fn place(&self) -> Place<'_> {
        Place { path: &self.path, branch: &self.branch, author: &self.author }
    }
}

impl<'e> Place<'e> {
    /// The words that name this place, and what separates them.
    fn words(self) -> (&'e str, char) {
        match self {
            Place { path: "", branch: "", author } => (author, '\0'),
            Place { path: "", branch, .. } => (branch, '.'),
            Place { path, .. } => (path, '/'),
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
            name.push_str(word.split('@').next().unwrap_or(word));
        }
        name.into()
    }
}

impl Steps {
    /// How many steps may be open at once; a fan-out wider than this is not shown step by step.
    const LIMIT: usize = 256;

    /// The next event comes from `place`. `busy` says whether a model turn is still streaming at a place.
    pub(super) fn enter(
        &mut self,
        place: Place<'_>,
        busy: impl Fn(Place<'_>) -> bool,
        emit: &mut Emit<'_>,
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
                let step = self.open.remove(at);
                emit.push(Body::StepFinished { name: step.name });
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
        if self.open.len() >= Self::LIMIT || taken(&name) {
            tally.note("step not shown", &name);
            return;
        }
        emit.push(Body::StepStarted { name: name.clone() });
        self.open.push(Step {
            path: place.path.into(),
            branch: place.branch.into(),
            author: place.author.into(),
            name,
        });
    }

    /// The run ends: closes all steps, the newest first.
    pub(super) fn leave(&mut self, emit: &mut Emit<'_>) {
        for step in self.open.drain(..).rev() {
            emit.push(Body::StepFinished { name: step.name });
        }
    }
}
