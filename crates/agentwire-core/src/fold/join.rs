//! Preludes for readers that join a run late.
//!
//! A strict client refuses a delta for a message that was never opened, and a returning client holds an old copy of the
//! messages. [`Join`] follows the run from its start and makes, at any point, the events that such a client needs before
//! the live ones: the current messages and state, and a start for every open item.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::{
    Fold,
    reconcile::{AUTHORITY, CLIENT},
};
use crate::{
    event::{
        Body, Event, Message, MessageBody, MessageId, Outcome, Role, RunStarted, SubagentId, ToolCallId,
    },
    json::{Json, Object},
};

/// The id and activity type of placeholder messages within a prelude.
const PLACEHOLDER: &str = "agentwire.join";

/// Follows a run so that readers can join it.
///
/// It holds the messages and state of the thread, and the open items, owners and subagents of the run; so it grows with
/// the messages, not with the events.
///
/// ```
/// use agentwire_core::{
///     event::{Body, Event, RunStarted},
///     fold::{Fold, Join},
/// };
///
/// let mut join = Join::new(Fold::new());
/// join.apply(&Event::new(Body::RunStarted(Box::new(RunStarted::new("t1", "r1")))));
/// join.apply(&Event::new(Body::TextStart { message: "m1".into(), role: None, name: None }));
/// join.apply(&Event::new(Body::TextDelta { message: "m1".into(), delta: "Hel".into() }));
///
/// let kinds: Vec<_> = join.prelude().iter().map(Event::kind).collect();
/// assert_eq!(kinds, ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "TEXT_MESSAGE_START"]);
/// ```
#[derive(Clone, Debug)]
pub struct Join {
    fold: Fold,
    run: Option<Run>,
}

/// The current run, without its messages and state.
#[derive(Clone, Debug, Default)]
struct Run {
    /// Its start, without the echo of the request. Absent for a run that failed before its start.
    started: Option<Event>,
    /// Its end. A failure may still follow a success.
    ended: Vec<Event>,
    /// All subagent events: a subagent that has ended may still be the parent of another.
    subagents: Vec<Event>,
    steps: IndexMap<(Option<SubagentId>, Box<str>), Event>,
    spans: IndexMap<MessageId, Event>,
    reasonings: IndexMap<MessageId, Event>,
    texts: IndexMap<MessageId, Event>,
    calls: IndexMap<ToolCallId, Event>,
    owners: Owners,
}

/// The owners of items, as the order rules track them; `None` is the main agent.
#[derive(Clone, Debug, Default)]
struct Owners {
    messages: HashMap<MessageId, Option<SubagentId>>,
    reasonings: HashMap<MessageId, Option<SubagentId>>,
    activities: HashMap<MessageId, Option<SubagentId>>,
    calls: HashMap<ToolCallId, Option<SubagentId>>,
}

impl Join {
    /// Follows from here on; `fold` holds the current messages and state of the thread.
    #[must_use]
    pub fn new(fold: Fold) -> Self {
        Self { fold, run: None }
    }

    /// The messages and state.
    #[must_use]
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// The messages and state, for methods that need `&mut`.
    pub fn fold_mut(&mut self) -> &mut Fold {
        &mut self.fold
    }

    /// The messages.
    pub fn messages(&mut self) -> &[Message] {
        self.fold.messages()
    }

    /// The RUN_STARTED of the current run, as the prelude contains it.
    pub fn started_mut(&mut self) -> Option<&mut Event> {
        self.run.as_mut()?.started.as_mut()
    }

    /// The messages and state, for storage.
    #[must_use]
    pub fn into_fold(self) -> Fold {
        self.fold
    }

    /// Applies one event.
    pub fn apply(&mut self, event: &Event) {
        self.fold.apply(event);
        match &event.body {
            Body::RunStarted(started) => self.run = Some(Run::new(event, started)),
            Body::RunError(_) => {
                let run = self.run.get_or_insert_default();
                // The second failure of a run breaks the order rules.
                if !matches!(run.ended.last(), Some(Event { body: Body::RunError(_), .. })) {
                    run.ended.push(event.clone());
                }
            }
            _ => {
                if let Some(run) = &mut self.run {
                    run.apply(event);
                }
            }
        }
    }

    /// The prelude for a reader that continues with the next event. Empty before the first run.
    ///
    /// RUN_STARTED without the echo of the request, MESSAGES_SNAPSHOT, STATE_SNAPSHOT; then the subagents of the
    /// run, and a start for each step, reasoning span, reasoning message, text message and call that is open. If
    /// the run has ended: its end instead of the starts.
    ///
    /// The prelude and the following events keep the order rules, and fold to the same messages and state as the whole
    /// stream: for a new client, and for one with a copy from any time since
    /// this started to follow. For the latter, if the order of messages has changed since, another snapshot that drops
    /// part of the messages comes first.
    ///
    /// One exception: a message that the run continues under another owner than it was made with is attributed
    /// to the continuing owner, since strict clients would refuse the rest.
    pub fn prelude(&mut self) -> Vec<Event> {
        let Some(run) = &self.run else { return Vec::new() };
        let Some(started) = &run.started else {
            return run.ended.clone();
        };
        let mut prelude = vec![started.clone()];
        if run.ended.is_empty() {
            run.open_ghosts(&self.fold, &mut prelude);
        }
        let has_ghosts = prelude.len() > 1;
        snapshots(&mut self.fold, &run.owners, has_ghosts, &mut prelude);
        if run.ended.is_empty() {
            run.reopen(&self.fold, &mut prelude);
        } else {
            prelude.extend(run.ended.iter().map(|event| with_pending(event, &self.fold)));
        }
        prelude
    }
}

impl Run {
    fn new(event: &Event, started: &RunStarted) -> Self {
        let mut run = Self::default();
        for message in started.input.iter().flat_map(|input| &input.messages) {
            run.owners.of_message(message, false);
        }
        let RunStarted { thread, run: id, parent_run, protocol_version, input: _ } = started;
        let started = RunStarted {
            parent_run: parent_run.clone(),
            protocol_version: protocol_version.clone(),
            ..RunStarted::new(thread.clone(), id.clone())
        };
        run.started = Some(Event {
            body: Body::RunStarted(Box::new(started)),
            subagent: None,
            timestamp: event.timestamp,
            extra: event.extra.clone(),
        });
        run
    }

    fn apply(&mut self, event: &Event) {
        self.owners.apply(event);
        match &event.body {
            Body::RunFinished(_) if self.ended.is_empty() => self.ended.push(event.clone()),
            Body::SubagentStarted(_) | Body::SubagentFinished { .. } | Body::SubagentError { .. } => {
                self.subagents.push(event.clone());
            }
            Body::StepStarted { name } => {
                self.steps.insert((event.subagent.clone(), name.clone()), event.clone());
            }
            Body::StepFinished { name } => {
                self.steps.shift_remove(&(event.subagent.clone(), name.clone()));
            }
            Body::ReasoningStart { message, .. } => {
                self.spans.insert(message.clone(), event.clone());
            }
            Body::ReasoningEnd { message } => {
                self.spans.shift_remove(message);
            }
            Body::ReasoningMessageStart { message } => {
                self.reasonings.insert(message.clone(), bare(event));
            }
            Body::ReasoningMessageEnd { message } => {
                self.reasonings.shift_remove(message);
            }
            Body::TextStart { message, .. } => {
                self.texts.insert(message.clone(), bare(event));
            }
            Body::TextEnd { message } => {
                self.texts.shift_remove(message);
            }
            Body::ToolStart { call, .. } => {
                self.calls.insert(call.clone(), bare(event));
            }
            Body::ToolEnd { call } => {
                self.calls.shift_remove(call);
            }
            _ => {}
        }
    }

    /// Opens open items that a snapshot of the messages dropped. They must be open, since their end is still to come, and
    /// they must not exist: so they are opened before the snapshot, which drops them again.
    fn open_ghosts(&self, fold: &Fold, prelude: &mut Vec<Event>) {
        let owners = &self.owners;
        for (id, event) in &self.reasonings {
            if fold.list.find(id).is_none() {
                prelude.push(event.clone().by(owners.reasonings.get(id).cloned().flatten()));
            }
        }
        for (id, event) in &self.texts {
            if fold.list.find(id).is_none() {
                prelude.push(event.clone().by(owners.messages.get(id).cloned().flatten()));
            }
        }
        for (id, event) in &self.calls {
            if fold.list.find_call(id).is_none() {
                prelude.push(event.clone().by(owners.calls.get(id).cloned().flatten()));
            }
        }
    }

    /// Reopens the open items.
    fn reopen(&self, fold: &Fold, prelude: &mut Vec<Event>) {
        let owners = &self.owners;
        prelude.extend(self.subagents.iter().cloned());
        prelude.extend(self.steps.values().cloned());
        for (id, event) in &self.spans {
            prelude.push(event.clone().by(owners.reasonings.get(id).cloned().flatten()));
        }
        // A snapshot sets the owner of a message, except where the client holds the id as another kind of message.
        let owner =
            |id: &MessageId, roles: fn(Role) -> bool, owners: &HashMap<MessageId, Option<SubagentId>>| {
                let message = fold.list.get(fold.list.find(id)?);
                let known = owners.get(id).cloned().flatten();
                Some(if roles(message.role()) { message.subagent.clone().or(known) } else { known })
            };
        for (id, event) in &self.reasonings {
            if let Some(owner) = owner(id, |role| role == Role::Reasoning, &owners.reasonings) {
                prelude.push(event.clone().by(owner));
            }
        }
        for (id, event) in &self.texts {
            let is_other = |role| !matches!(role, Role::Reasoning | Role::Activity);
            if let Some(owner) = owner(id, is_other, &owners.messages) {
                prelude.push(event.clone().by(owner));
            }
        }
        for (id, event) in &self.calls {
            let Some((slot, index)) = fold.list.find_call(id) else {
                continue;
            };
            let holder = fold.list.get(slot);
            let Body::ToolStart { parent, .. } = &event.body else {
                continue;
            };
            prelude.push(Event {
                body: Body::ToolStart {
                    call: id.clone(),
                    name: holder.tool_calls()[index].name.clone(),
                    // The message that contains it, which need not be the requested parent.
                    parent: parent.as_ref().map(|_| holder.id.clone()),
                },
                ..event.clone().by(holder.subagent.clone())
            });
        }
    }
}

impl Owners {
    fn apply(&mut self, event: &Event) {
        let tag = &event.subagent;
        match &event.body {
            Body::TextStart { message, .. } => {
                self.messages.entry(message.clone()).or_insert_with(|| tag.clone());
            }
            Body::ReasoningStart { message, .. } | Body::ReasoningMessageStart { message } => {
                self.reasonings.entry(message.clone()).or_insert_with(|| tag.clone());
            }
            Body::ToolStart { call, parent, .. } => {
                let inherited =
                    parent.as_ref().and_then(|parent| self.messages.get(parent)).cloned().flatten();
                self.calls.entry(call.clone()).or_insert_with(|| tag.clone().or(inherited));
            }
            Body::ToolResult(result) => {
                self.messages.insert(result.message.clone(), tag.clone());
            }
            Body::ActivitySnapshot { message, replace: Some(false), .. } => {
                self.activities.entry(message.clone()).or_insert_with(|| tag.clone());
            }
            Body::ActivitySnapshot { message: id, .. } | Body::CollaborationStart { id, .. } => {
                self.activities.insert(id.clone(), tag.clone());
            }
            Body::Citation(source) => {
                self.activities.insert(source.id.clone(), tag.clone());
            }
            Body::File(file) => {
                self.activities.insert(file.id.clone(), tag.clone());
            }
            Body::Block(block) => {
                self.activities.insert(block.id.clone(), tag.clone());
            }
            Body::MessagesSnapshot { messages } => {
                for message in messages {
                    self.of_message(message, true);
                }
            }
            _ => {}
        }
    }

    /// Records the owner of a message and its calls; `anew` replaces a known owner.
    fn of_message(&mut self, message: &Message, anew: bool) {
        fn note<I: Eq + std::hash::Hash + Clone>(
            owners: &mut HashMap<I, Option<SubagentId>>,
            id: &I,
            owner: &Option<SubagentId>,
            anew: bool,
        ) {
            if anew || !owners.contains_key(id) {
                owners.insert(id.clone(), owner.clone());
            }
        }
        note(self.bucket_mut(message.role()), &message.id, &message.subagent, anew);
        for call in message.tool_calls() {
            note(&mut self.calls, &call.id, &message.subagent, anew);
        }
    }

    fn bucket_mut(&mut self, role: Role) -> &mut HashMap<MessageId, Option<SubagentId>> {
        match role {
            Role::Reasoning => &mut self.reasonings,
            Role::Activity => &mut self.activities,
            _ => &mut self.messages,
        }
    }

    /// The owner table for messages of that role.
    fn owner(&self, role: Role, id: &MessageId) -> Option<&SubagentId> {
        let bucket = match role {
            Role::Reasoning => &self.reasonings,
            Role::Activity => &self.activities,
            _ => &self.messages,
        };
        bucket.get(id)?.as_ref()
    }
}

/// Snapshots of the messages and the state.
///
/// A snapshot of the messages never reorders, so a client whose old copy has another order must first drop the reordered
/// part.
fn snapshots(fold: &mut Fold, owners: &Owners, forget_all: bool, prelude: &mut Vec<Event>) {
    let settled = if forget_all { 0 } else { fold.list.settled_order() };
    let mut messages = fold.messages().to_vec();
    for message in &mut messages {
        if message.subagent.is_none() {
            message.subagent = owners.owner(message.role(), &message.id).cloned();
        }
    }
    if settled < messages.len() || forget_all {
        let mut first = messages[..settled].to_vec();
        let is_reasoning = |message: &Message| message.role() == Role::Reasoning;
        if first.iter().any(is_reasoning) || !(fold.list.has_reasoned() || forget_all) {
            prelude.push(messages_snapshot(first));
        } else {
            // Only a snapshot with reasoning drops reasoning, so this one contains a placeholder. The next snapshot drops
            // that if it contains reasoning itself; otherwise the placeholder must not be reasoning.
            let id = unused_id(fold);
            first.push(Message::new(id.clone(), MessageBody::Reasoning { content: Box::default() }));
            prelude.push(messages_snapshot(first));
            if !messages.iter().any(is_reasoning) {
                let (kind, content) = (PLACEHOLDER.into(), Object::empty());
                prelude.push(Body::ActivitySnapshot { message: id, kind, content, replace: None }.into());
            }
        }
    }
    prelude.push(messages_snapshot(messages));
    prelude.push(Event::new(Body::StateSnapshot { snapshot: Json::from(fold.state()) }));
}

/// Snapshots that bring every client to `messages` in this order: one of the first `kept`, which drops the others, and
/// one of all. A client with other messages before them needs `kept` to be 0.
#[must_use]
pub fn restate(messages: Vec<Message>, kept: usize) -> [Event; 2] {
    let mut first = messages[..kept.min(messages.len())].to_vec();
    let is_reasoning = |message: &Message| message.role() == Role::Reasoning;
    if messages.iter().any(is_reasoning) && !first.iter().any(is_reasoning) {
        // Only a snapshot with reasoning drops reasoning. The second snapshot drops the placeholder.
        first.push(Message::new(PLACEHOLDER, MessageBody::Reasoning { content: Box::default() }));
    }
    [messages_snapshot(first), messages_snapshot(messages)]
}

/// A snapshot that is declared complete, activities included.
fn messages_snapshot(messages: Vec<Message>) -> Event {
    let authority = Object::from_entries([(AUTHORITY, Json::null())]);
    let metadata = Object::from_entries([(CLIENT, authority.into())]);
    Event::new(Body::MessagesSnapshot { messages }).with_metadata(Some(metadata))
}

fn unused_id(fold: &Fold) -> MessageId {
    let mut id = String::from(PLACEHOLDER);
    while fold.list.find(&id).is_some() {
        id.push('+');
    }
    id.into()
}

/// A start without metadata: that has been merged already, and would overwrite later values.
fn bare(event: &Event) -> Event {
    Event { extra: None, ..event.clone() }
}

/// The end of a run with its pending calls listed, because a late reader has not seen their starts.
fn with_pending(event: &Event, fold: &Fold) -> Event {
    let mut event = event.clone();
    if let Body::RunFinished(finished) = &mut event.body {
        let pending = match &mut finished.outcome {
            None => &mut Vec::new(),
            Some(Outcome::Success { pending }) => pending,
            Some(Outcome::Interrupt { .. } | Outcome::Cancelled) => return event,
        };
        if pending.is_empty() && !fold.pending_tool_calls().is_empty() {
            finished.outcome = Some(Outcome::Success { pending: fold.pending_tool_calls() });
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasoning(id: &str) -> Message {
        Message::new(id, MessageBody::Reasoning { content: "hm".into() })
    }

    fn activity(id: &str) -> Message {
        Message::new(id, MessageBody::Activity { kind: "plan".into(), content: Object::empty() })
    }

    #[test]
    fn restated_messages_have_their_order_at_every_client() {
        let wanted = vec![
            Message::user("u1", "?"),
            reasoning("r1"),
            Message::assistant("a1", "!"),
            activity("p1"),
            Message::user("u2", "?"),
        ];
        for held in [
            vec![],
            vec![Message::user("u2", "?")],
            vec![Message::user("u2", "?"), reasoning("r1"), activity("p1"), reasoning("other")],
            wanted.iter().rev().cloned().collect(),
            wanted.clone(),
        ] {
            let mut fold = Fold::from_history(held.clone(), None);
            restate(wanted.clone(), 0).iter().for_each(|event| fold.apply(event));
            assert_eq!(fold.messages(), wanted, "{held:?}");
        }
        let mut fold = Fold::from_history([&wanted[..2], &[Message::user("x", "")]].concat(), None);
        restate(wanted.clone(), 2).iter().for_each(|event| fold.apply(event));
        assert_eq!(fold.messages(), wanted);
    }
}
