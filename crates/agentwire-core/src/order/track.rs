//! The state machine behind guard and checker.
//!
//! [`Track::judge`] returns the rule that an event would break, and [`Track::advance`] applies an event that breaks
//! none. Judging changes nothing, so a guard can judge a repaired event again.

use std::collections::HashMap;

use super::{
    registry::{Part, Registry, Weigh},
    rule::Rule,
};
use crate::event::{
    Body, DeltaKey, EncryptedEntity, Event, InterruptId, Message, MessageId, Outcome, Role, RunId,
    SubagentId, ThreadId, ToolCallId,
};

/// The phase of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// No event yet.
    #[default]
    Empty,
    /// A run is active.
    Active,
    /// The last run finished.
    Finished,
    /// The last run failed.
    Errored,
}

/// A step: its owner and its name.
pub(super) type StepKey = (Option<SubagentId>, Box<str>);

/// The state that the rules depend on.
#[derive(Debug, Default)]
pub(super) struct Track {
    pub(super) phase: Phase,
    /// The active run, or the last one.
    pub(super) run: Option<(ThreadId, RunId)>,
    /// The first thread of the stream.
    pub(super) thread: Option<ThreadId>,
    pub(super) messages: Registry<MessageId>,
    pub(super) calls: Registry<ToolCallId>,
    pub(super) activities: Registry<MessageId>,
    pub(super) reasoning: Registry<MessageId>,
    pub(super) steps: Registry<StepKey>,
    /// Label: the subagent's name.
    pub(super) subagents: Registry<SubagentId>,
    /// The latest event, if it is a delta: the state has not changed since, so another one like it breaks no rule.
    latest_delta: Option<DeltaKey>,
}

impl Track {
    /// The rule that `event` would break here.
    pub(super) fn judge(&self, event: &Event) -> Result<(), Rule> {
        if self.repeats_latest_delta(event) {
            return Ok(());
        }
        self.judge_phase(&event.body)?;
        let tag = event.subagent.as_ref();
        match &event.body {
            Body::TextDelta { message, .. } | Body::TextEnd { message } => {
                continues(&self.messages, message, Part::Main, tag, Rule::TextNotOpen)
            }
            Body::ToolArgs { call, .. } | Body::ToolEnd { call } => {
                continues(&self.calls, call, Part::Main, tag, Rule::ToolNotOpen)
            }
            Body::ReasoningDelta { message, .. } | Body::ReasoningMessageEnd { message } => {
                continues(&self.reasoning, message, Part::Main, tag, Rule::ReasoningNotOpen)
            }
            Body::ReasoningEnd { message } => {
                continues(&self.reasoning, message, Part::Span, tag, Rule::SpanNotOpen)
            }
            Body::TextStart { message, .. } => {
                opens(&self.messages, message, Part::Main, tag, Rule::TextOpen)
            }
            Body::ReasoningMessageStart { message } => {
                opens(&self.reasoning, message, Part::Main, tag, Rule::ReasoningOpen)
            }
            Body::ReasoningStart { message, .. } => {
                opens(&self.reasoning, message, Part::Span, tag, Rule::SpanOpen)
            }
            Body::ToolStart { call, parent, .. } => self.judge_tool_start(call, parent.as_ref(), tag),
            Body::ActivityDelta { message, .. }
            | Body::CollaborationTask { id: message, .. }
            | Body::CollaborationEnd { id: message } => agrees(&self.activities, message, tag),
            Body::ReasoningEncrypted { entity, .. } => match entity {
                EncryptedEntity::ToolCall(call) => agrees(&self.calls, call, tag),
                EncryptedEntity::Message(message) if self.messages.get(message.as_str()).is_some() => {
                    agrees(&self.messages, message, tag)
                }
                EncryptedEntity::Message(message) => agrees(&self.reasoning, message, tag),
            },
            Body::StepStarted { name } => {
                let key = (tag.cloned(), name.clone());
                if self.steps.is_open(&key, Part::Main) {
                    Err(Rule::StepOpen)
                } else if self.steps.is_full() {
                    Err(Rule::TooManyOpen)
                } else {
                    Ok(())
                }
            }
            Body::StepFinished { name } => {
                let key = (tag.cloned(), name.clone());
                if self.steps.is_open(&key, Part::Main) {
                    Ok(())
                } else if self.step_owners(name).is_empty() {
                    Err(Rule::StepNotOpen)
                } else {
                    Err(Rule::StepOwner)
                }
            }
            Body::SubagentStarted(started) => {
                let subagent = tag.ok_or(Rule::SubagentId)?;
                match self.subagents.get(subagent.as_str()) {
                    Some(entry) if entry.is_open(Part::Main) => return Err(Rule::SubagentOpen),
                    Some(_) => return Err(Rule::SubagentReused),
                    None => {}
                }
                if let Some(parent) = &started.parent_subagent
                    && self.subagents.get(parent.as_str()).is_none()
                {
                    return Err(Rule::SubagentParent);
                }
                if self.subagents.is_full() { Err(Rule::TooManyOpen) } else { Ok(()) }
            }
            Body::SubagentFinished { .. } | Body::SubagentError { .. } => {
                let subagent = tag.ok_or(Rule::SubagentId)?;
                if self.subagents.is_open(subagent.as_str(), Part::Main) {
                    Ok(())
                } else {
                    Err(Rule::SubagentNotOpen)
                }
            }
            Body::RunStarted(started) => match &self.thread {
                Some(thread) if *thread != started.thread => Err(Rule::OneThread),
                _ => Ok(()),
            },
            Body::RunFinished(finished) => {
                if self.has_open() {
                    return Err(Rule::Unclosed);
                }
                if let Some((thread, run)) = &self.run
                    && (*thread != finished.thread || *run != finished.run)
                {
                    return Err(Rule::RunIds);
                }
                match &finished.outcome {
                    Some(Outcome::Interrupt { interrupts }) if interrupts.is_empty() => {
                        Err(Rule::InterruptEmpty)
                    }
                    Some(Outcome::Interrupt { interrupts })
                        if repeated(interrupts.iter().map(|interrupt| &interrupt.id)) =>
                    {
                        Err(Rule::InterruptIds)
                    }
                    _ => Ok(()),
                }
            }
            // Allowed anywhere in an active run.
            Body::RunError(_)
            | Body::ToolResult(_)
            | Body::StateSnapshot { .. }
            | Body::StateDelta { .. }
            | Body::MessagesSnapshot { .. }
            | Body::ActivitySnapshot { .. }
            | Body::Raw { .. }
            | Body::Custom { .. }
            | Body::Citation(_)
            | Body::File(_)
            | Body::Block(_)
            | Body::CollaborationStart { .. }
            | Body::FinishReason { .. } => Ok(()),
        }
    }

    /// True if `event` continues the same item as the latest delta, which was accepted in the same state.
    pub(super) fn repeats_latest_delta(&self, event: &Event) -> bool {
        self.latest_delta.as_ref().is_some_and(|key| key.is_of(event))
    }

    #[cfg(test)]
    pub(super) fn forget_latest_delta(&mut self) {
        self.latest_delta = None;
    }

    fn judge_phase(&self, body: &Body) -> Result<(), Rule> {
        match (self.phase, body) {
            (Phase::Active, Body::RunStarted(_)) => Err(Rule::RunActive),
            (Phase::Active, _) | (_, Body::RunStarted(_)) | (Phase::Empty, Body::RunError(_)) => Ok(()),
            (Phase::Finished, Body::RunError(_)) => Err(Rule::OneTerminal),
            (Phase::Empty, _) => Err(Rule::RunFirst),
            (Phase::Finished | Phase::Errored, _) => Err(Rule::RunOver),
        }
    }

    fn judge_tool_start(
        &self,
        call: &ToolCallId,
        parent: Option<&MessageId>,
        tag: Option<&SubagentId>,
    ) -> Result<(), Rule> {
        if self.calls.is_open(call.as_str(), Part::Main) {
            return Err(Rule::ToolOpen);
        }
        let holder = parent.and_then(|parent| self.messages.get(parent.as_str()));
        if let Some(holder) = holder
            && tag.is_some()
            && tag != holder.owner.as_ref()
        {
            return Err(Rule::ParentOwner);
        }
        agrees(&self.calls, call, tag)?;
        // An untagged call inherits its message's owner, and that must be the owner it had before.
        if let Some(known) = self.calls.get(call.as_str())
            && let Some(holder) = holder
            && tag.is_none()
            && known.owner != holder.owner
        {
            return Err(Rule::ParentOwner);
        }
        if self.calls.is_full() { Err(Rule::TooManyOpen) } else { Ok(()) }
    }

    /// Applies an event that [`Track::judge`] accepted.
    pub(super) fn advance(&mut self, event: &Event) {
        if !self.repeats_latest_delta(event) {
            self.latest_delta = DeltaKey::of(event);
        }
        let tag = event.subagent.as_ref();
        match &event.body {
            Body::TextDelta { .. }
            | Body::ToolArgs { .. }
            | Body::ReasoningDelta { .. }
            | Body::ActivityDelta { .. }
            | Body::CollaborationTask { .. }
            | Body::CollaborationEnd { .. }
            | Body::ReasoningEncrypted { .. }
            | Body::StateSnapshot { .. }
            | Body::StateDelta { .. }
            | Body::Raw { .. }
            | Body::Custom { .. }
            | Body::FinishReason { .. } => {}
            Body::RunStarted(started) => {
                self.reset();
                self.phase = Phase::Active;
                self.thread.get_or_insert_with(|| started.thread.clone());
                self.run = Some((started.thread.clone(), started.run.clone()));
                if let Some(input) = &started.input {
                    self.seed(&input.messages, false);
                }
            }
            Body::RunFinished(_) => {
                self.reset();
                self.phase = Phase::Finished;
            }
            Body::RunError(_) => {
                self.reset();
                self.phase = Phase::Errored;
            }
            Body::TextStart { message, .. } => self.messages.open(message, Part::Main, tag, None),
            Body::TextEnd { message } => self.messages.close(message, Part::Main),
            Body::ToolStart { call, name, parent } => {
                let holder = parent.as_ref().and_then(|parent| self.messages.get(parent.as_str()));
                let owner = tag.cloned().or_else(|| holder.and_then(|holder| holder.owner.clone()));
                self.calls.open(call, Part::Main, owner.as_ref(), Some(name));
            }
            Body::ToolEnd { call } => self.calls.close(call, Part::Main),
            Body::ToolResult(result) => self.messages.own(&result.message, tag, true),
            Body::ReasoningMessageStart { message } => self.reasoning.open(message, Part::Main, tag, None),
            Body::ReasoningMessageEnd { message } => self.reasoning.close(message, Part::Main),
            Body::ReasoningStart { message, .. } => self.reasoning.open(message, Part::Span, tag, None),
            Body::ReasoningEnd { message } => self.reasoning.close(message, Part::Span),
            Body::ActivitySnapshot { message, replace, .. } => {
                self.activities.own(message, tag, *replace != Some(false));
            }
            Body::Citation(source) => self.activities.own(&source.id, tag, true),
            Body::File(file) => self.activities.own(&file.id, tag, true),
            Body::Block(block) => self.activities.own(&block.id, tag, true),
            Body::CollaborationStart { id, .. } => self.activities.own(id, tag, true),
            Body::StepStarted { name } => {
                self.steps.open(&(tag.cloned(), name.clone()), Part::Main, tag, None);
            }
            Body::StepFinished { name } => self.steps.close(&(tag.cloned(), name.clone()), Part::Main),
            Body::SubagentStarted(started) => {
                if let Some(subagent) = tag {
                    self.subagents.open(subagent, Part::Main, None, Some(&started.name));
                }
            }
            Body::SubagentFinished { .. } | Body::SubagentError { .. } => {
                if let Some(subagent) = tag {
                    self.subagents.close(subagent, Part::Main);
                }
            }
            Body::MessagesSnapshot { messages } => self.seed(messages, true),
        }
    }

    /// Records the owners of a history. A snapshot replaces known owners, the echo of a request only adds.
    fn seed(&mut self, messages: &[Message], authoritative: bool) {
        for message in messages {
            let owner = message.subagent.as_ref();
            let bucket = match message.role() {
                Role::Reasoning => &mut self.reasoning,
                Role::Activity => &mut self.activities,
                _ => &mut self.messages,
            };
            bucket.own(&message.id, owner, authoritative);
            for call in message.tool_calls() {
                self.calls.own(&call.id, owner, authoritative);
            }
        }
    }

    fn reset(&mut self) {
        self.messages.clear();
        self.calls.clear();
        self.activities.clear();
        self.reasoning.clear();
        self.steps.clear();
        self.subagents.clear();
    }

    /// Whether items must be closed before the run may finish.
    pub(super) fn has_open(&self) -> bool {
        self.messages.has_open()
            || self.calls.has_open()
            || self.reasoning.has_open()
            || self.steps.has_open()
            || self.subagents.has_open()
    }

    /// The owners of the open steps of that name.
    pub(super) fn step_owners(&self, name: &str) -> Vec<Option<SubagentId>> {
        let open = self.steps.open_entries(Part::Main).into_iter();
        open.filter(|((_, open_name), _)| **open_name == *name).map(|((owner, _), _)| owner).collect()
    }

    /// A list of the open items, for a person.
    pub(super) fn describe_open(&self) -> String {
        let mut open = Vec::new();
        let mut list = |kind: &str, names: Vec<String>| {
            open.extend(names.into_iter().rev().map(|name| format!("{kind} `{name}`")));
        };
        list("text message", names(&self.messages, Part::Main));
        list("tool call", names(&self.calls, Part::Main));
        list("reasoning message", names(&self.reasoning, Part::Main));
        list("reasoning span", names(&self.reasoning, Part::Span));
        let steps = self.steps.open_entries(Part::Main);
        list("step", steps.into_iter().map(|((_, name), _)| name.into()).collect());
        list("subagent", names(&self.subagents, Part::Main));
        const SHOWN: usize = 5;
        let more = open.len().saturating_sub(SHOWN);
        open.truncate(SHOWN);
        let mut text = open.join(", ");
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
        text
    }
}

fn names<K: Eq + std::hash::Hash + Clone + Weigh + ToString>(
    registry: &Registry<K>,
    part: Part,
) -> Vec<String> {
    registry.open_entries(part).into_iter().map(|(key, _)| key.to_string()).collect()
}

/// An absent subagent id agrees with every owner; a present one must be the owner's.
fn agrees<K, Q>(registry: &Registry<K>, key: &K, tag: Option<&SubagentId>) -> Result<(), Rule>
where
    K: std::borrow::Borrow<Q> + std::ops::Deref<Target = Q> + Eq + std::hash::Hash + Clone + Weigh,
    Q: Eq + std::hash::Hash + ?Sized,
{
    match registry.get::<Q>(key) {
        Some(entry) if tag.is_some() && entry.owner.as_ref() != tag => Err(Rule::Owner),
        _ => Ok(()),
    }
}

fn opens<K, Q>(
    registry: &Registry<K>,
    key: &K,
    part: Part,
    tag: Option<&SubagentId>,
    already: Rule,
) -> Result<(), Rule>
where
    K: std::borrow::Borrow<Q> + std::ops::Deref<Target = Q> + Eq + std::hash::Hash + Clone + Weigh,
    Q: Eq + std::hash::Hash + ?Sized,
{
    if registry.is_open::<Q>(key, part) {
        return Err(already);
    }
    agrees(registry, key, tag)?;
    if registry.is_full() { Err(Rule::TooManyOpen) } else { Ok(()) }
}

fn continues<K, Q>(
    registry: &Registry<K>,
    key: &K,
    part: Part,
    tag: Option<&SubagentId>,
    absent: Rule,
) -> Result<(), Rule>
where
    K: std::borrow::Borrow<Q> + std::ops::Deref<Target = Q> + Eq + std::hash::Hash + Clone + Weigh,
    Q: Eq + std::hash::Hash + ?Sized,
{
    match registry.get::<Q>(key) {
        Some(entry) if entry.is_open(part) => {
            if tag.is_some() && entry.owner.as_ref() != tag {
                Err(Rule::Owner)
            } else {
                Ok(())
            }
        }
        _ => Err(absent),
    }
}

/// Whether an id occurs twice.
fn repeated<'i>(ids: impl Iterator<Item = &'i InterruptId>) -> bool {
    let mut seen = HashMap::new();
    let mut ids = ids;
    ids.any(|id| seen.insert(id, ()).is_some())
}
