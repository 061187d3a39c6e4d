//! Snapshots of the messages (MESSAGES_SNAPSHOT) that an agent sends or a format reader derives.
//!
//! A snapshot has the agent's ids, so each entry is first assigned to a message: one from before the run (the history), or one
//! of this run, which may have a new id ([`super::ids`]). Of several uses of an id, each entry takes the next one; an entry
//! behind the run's question is the run's own. An agent that keeps its messages by id lists an id once although two messages
//! have it; both stay then.
//!
//! The setting `snapshots` decides on the effect. By default a snapshot that the agent sent replaces the conversation, and one
//! that a format reader derived is merged: a stateless graph is given one message and returns the messages of that turn, which
//! says nothing about the turns before. A merged snapshot changes and adds messages; the history stays, and the run's own
//! messages that it lacks are dropped. Such a graph gives new ids to messages it was given without one, so an entry with an
//! unknown id is the message of the history with the same call, or the same role and text up to the run's question. The only
//! user message of such a snapshot is the question, even if the graph was given it inside a prompt.
//!
//! Clients get the result of the merge as a whole, so that they hold the same messages as the store.

use std::{
    collections::{HashMap, HashSet},
    iter::Peekable,
    mem,
};

use agentwire_core::{
    event::{Body, Event, Message, MessageBody, MessageId, Role, ToolCallId},
    fold,
};

use super::{
    ids::{self, RunIds, is_use_of, split_number},
    input,
    recorder::RunRecorder,
    size,
};
use crate::{
    agent::{
        NativeHooks,
        snapshot_origin::{SnapshotOrigin, take_origin},
    },
    error::RunFailure,
    settings::Snapshots,
};

/// An event of the agent with the ids of the thread.
enum Entered {
    One(Event),
    /// The events that a snapshot became; none if it is ignored, and none for a result that the history has.
    Several(Vec<Event>),
}

impl RunRecorder {
    /// Gives an event of the agent the ids of the thread, before anything else sees it.
    fn enter(&mut self, mut event: Event) -> Entered {
        if size::has_too_many_values(&event) {
            // Ends the run; the fold would parse it.
            self.encoding.has_too_many_values = true;
            return Entered::Several(Vec::new());
        }
        if matches!(event.body, Body::MessagesSnapshot { .. }) {
            return Entered::Several(self.enter_snapshot(event));
        }
        self.ids.rename(&mut event, &self.input.messages);
        if let Body::ToolResult(result) = &event.body
            && ids::is_repeated_result(result, &self.input.messages)
        {
            // The fold would have two messages with one id.
            return Entered::Several(Vec::new());
        }
        Entered::One(event)
    }

    /// Records an event of the agent in a run without hooks.
    pub(super) fn record_entered(&mut self, event: Event) -> Result<(), RunFailure> {
        match self.enter(event) {
            Entered::One(event) => self.record_event(event),
            Entered::Several(events) => events.into_iter().try_for_each(|event| self.record_event(event)),
        }
    }

    /// Enters an event and those behind it, up to a batch of the hooks. A snapshot is entered after all events before it
    /// were recorded, because it is compared with them.
    pub(super) fn enter_batch(
        &mut self,
        first: Event,
        rest: &mut Peekable<impl Iterator<Item = Event>>,
    ) -> Vec<Event> {
        let size = self.hooks.as_ref().map_or(1, |hooks| hooks.hook_set.batch_size());
        let mut batch = Vec::new();
        let mut next = Some(first);
        while let Some(event) = next {
            match self.enter(event) {
                Entered::One(event) => batch.push(event),
                Entered::Several(events) => batch.extend(events),
            }
            let is_snapshot = |event: &Event| matches!(event.body, Body::MessagesSnapshot { .. });
            next = rest.next_if(|event| batch.len() < size && !is_snapshot(event));
        }
        batch
    }

    /// Adds recalled messages to those from before the run.
    pub(super) fn add_recalled(&mut self, event: &Event) {
        if let Body::MessagesSnapshot { messages } = &event.body {
            self.ids.add_earlier(messages);
            self.input.messages.clone_from(messages);
            self.thread.is_known_to_client = true;
        }
    }

    fn enter_snapshot(&mut self, mut event: Event) -> Vec<Event> {
        if input::is_recalled(&event) {
            self.add_recalled(&event);
            return vec![event];
        }
        let origin = take_origin(&mut event);
        let effect = self.agent.settings.snapshots.unwrap_or(match origin {
            SnapshotOrigin::Sent => Snapshots::Replace,
            SnapshotOrigin::Derived | SnapshotOrigin::DerivedPrefix => Snapshots::Merge,
        });
        let Body::MessagesSnapshot { messages } = &mut event.body else { return vec![event] };
        let is_merged = match effect {
            Snapshots::Ignore => return Vec::new(),
            // The merge finds the order itself.
            Snapshots::Merge if origin == SnapshotOrigin::DerivedPrefix => return Vec::new(),
            Snapshots::Merge => true,
            Snapshots::Replace => false,
        };
        let current = match &mut self.resume {
            // The log has later messages already.
            Some(reattachment) => reattachment.messages(),
            None => self.encoding.join.messages(),
        };
        let history = &self.input.messages;
        let mut assignment = Assignment::new(history, current, messages, &mut self.ids, is_merged);
        mem::take(messages).into_iter().for_each(|entry| assignment.add(entry));
        let assigned = assignment.finish();
        if !is_merged {
            *messages = assigned.into_iter().map(|entry| entry.message).collect();
            return vec![event];
        }
        let merged = merge(history, current, assigned);
        let is_in_order = is_reached_by_appending(current, &merged);
        if is_in_order && self.thread.is_known_to_client {
            *messages = merged;
            return vec![event];
        }
        let same = current.iter().zip(&merged).take_while(|(one, other)| one.id == other.id).count();
        let kept = if self.thread.is_known_to_client { same } else { 0 };
        self.thread.is_known_to_client = true;
        let with_origin = |restated: Event| restated.by(event.subagent.clone()).at(event.timestamp);
        fold::restate(merged, kept).map(with_origin).into()
    }
}

/// True if a client that sent these messages has all of the conversation in its order. Clients need not send activities and
/// reasoning.
pub(super) fn has_all(sent: &[Message], conversation: &[Message]) -> bool {
    let is_sent = |message: &&Message| !matches!(message.role(), Role::Activity | Role::Reasoning);
    let (conversation, sent) = (conversation.iter().filter(is_sent), sent.iter().filter(is_sent));
    conversation.map(|message| &message.id).eq(sent.map(|message| &message.id))
}

/// An entry of a snapshot with the ids of the thread.
struct AssignedEntry {
    message: Message,
    /// The index of the message in the history.
    known: Option<usize>,
}

/// Assigns the entries of a snapshot to messages.
struct Assignment<'r> {
    history: &'r [Message],
    current: &'r [Message],
    ids: &'r mut RunIds,
    /// True if entries with an unknown id are compared with the history.
    is_merged: bool,
    /// The indexes in the history of all uses of an id.
    uses: HashMap<&'r str, Vec<usize>>,
    is_used: Vec<bool>,
    /// The entries that are still to come, by id.
    ahead: HashMap<MessageId, usize>,
    /// The last call of each id of the agent in the snapshot.
    calls: HashMap<ToolCallId, ToolCallId>,
    /// The index of the run's question in the history.
    question: Option<usize>,
    /// The index of the question among the entries; none if another user message is the last one.
    asked_at: Option<usize>,
    /// The number of entries that were added.
    position: usize,
    assigned: Vec<AssignedEntry>,
    /// Messages of the run that the snapshot lists only by an id that it shares with an earlier message.
    also: Vec<Message>,
}

impl<'r> Assignment<'r> {
    fn new(
        history: &'r [Message],
        current: &'r [Message],
        entries: &[Message],
        ids: &'r mut RunIds,
        is_merged: bool,
    ) -> Self {
        let mut uses: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, message) in history.iter().enumerate() {
            uses.entry(&message.id).or_default().push(index);
            if let Some((unnumbered, _)) = split_number(&message.id) {
                uses.entry(unnumbered).or_default().push(index);
            }
        }
        let is_user = |message: &Message| message.role() == Role::User;
        let question = history.iter().rposition(is_user);
        let is_only = entries.iter().filter(|entry| is_user(entry)).count() == 1;
        let asked_at = entries.iter().rposition(is_user).filter(|at| {
            question.is_some_and(|question| {
                let (entry, question) = (&entries[*at], &history[question]);
                // A graph that was given one message, perhaps inside a prompt, returns one.
                let is_rewritten = is_merged && is_only && !uses.contains_key(&*entry.id);
                entry.id == question.id || has_same_text(entry, question) || is_rewritten
            })
        });
        let mut ahead = HashMap::new();
        for entry in entries {
            *ahead.entry(entry.id.clone()).or_default() += 1;
        }
        Self {
            is_used: vec![false; history.len()],
            calls: HashMap::new(),
            position: 0,
            assigned: Vec::new(),
            also: Vec::new(),
            history,
            current,
            ids,
            is_merged,
            uses,
            ahead,
            question,
            asked_at,
        }
    }

    /// Adds the next entry.
    fn add(&mut self, entry: Message) {
        let position = self.position;
        self.position += 1;
        if let Some(count) = self.ahead.get_mut(&entry.id) {
            *count -= 1;
        }
        let is_answer = self.asked_at.is_some_and(|asked| position > asked);
        if let Some(index) = self.known_use(&entry, is_answer) {
            return self.add_known(entry, index);
        }
        let same = self.is_merged.then(|| self.same_message(&entry, position, is_answer)).flatten();
        match same {
            // The words of the client stay, with the images that a graph may not have been given.
            Some(index) if entry.role() == Role::User => self.add_known(self.history[index].clone(), index),
            Some(index) => self.add_known(entry, index),
            None => self.add_own(entry, is_answer),
        }
    }

    /// The message of the history that the id of an entry stands for.
    fn known_use(&self, entry: &Message, is_answer: bool) -> Option<usize> {
        let is_input = matches!(entry.role(), Role::User | Role::System | Role::Developer);
        let uses = self.uses.get(&*entry.id).map(Vec::as_slice).unwrap_or_default();
        let is_free = |index: &&usize| {
            let is_before_question = self.question.is_some_and(|question| **index < question);
            !self.is_used[**index]
                && self.history[**index].role() == entry.role()
                && (is_input || !is_answer || !is_before_question)
        };
        match is_input {
            // Only the agent's own messages have numbers.
            true => uses.iter().filter(is_free).find(|index| self.history[**index].id == entry.id).copied(),
            false => uses.iter().find(is_free).copied(),
        }
    }

    /// The message of the history that an entry with an unknown id repeats.
    fn same_message(&self, entry: &Message, position: usize, is_answer: bool) -> Option<usize> {
        if self.current.iter().any(|message| message.id == entry.id) {
            return None;
        }
        let free = || (0..self.history.len()).filter(|index| !self.is_used[*index]);
        match &entry.body {
            MessageBody::Tool { call, .. } => {
                let call = self.call_before(call);
                return free().find(
                    |index| matches!(&self.history[*index].body, MessageBody::Tool { call: known, .. } if *known == call),
                );
            }
            MessageBody::Assistant { tool_calls: Some(calls), .. } if !calls.is_empty() => {
                let is_held = |index: &usize| {
                    let known = self.history[*index].tool_calls();
                    known.iter().any(|known| calls.iter().any(|call| call.id == known.id))
                };
                return free().filter(|_| !is_answer).find(is_held);
            }
            _ => {}
        }
        if self.asked_at == Some(position) {
            return self.question.filter(|question| !self.is_used[*question]);
        }
        // The question itself is another entry.
        let is_same =
            |index: &usize| Some(*index) != self.question && has_same_text(&self.history[*index], entry);
        free().filter(|_| !is_answer).find(is_same)
    }

    /// The call that a result in the snapshot belongs to: the last one of that id before it.
    fn call_before(&self, call: &ToolCallId) -> ToolCallId {
        self.calls.get(call).unwrap_or(call).clone()
    }

    fn add_known(&mut self, mut entry: Message, index: usize) {
        self.is_used[index] = true;
        let known = &self.history[index];
        match (&mut entry.body, &known.body) {
            (
                MessageBody::Assistant { tool_calls: Some(calls), .. },
                MessageBody::Assistant { tool_calls: Some(known), .. },
            ) => {
                for call in calls {
                    let agents = call.id.clone();
                    let same = known.iter().find(|known| known.id == agents);
                    let numbered = || known.iter().find(|known| is_use_of(&agents, &known.id));
                    if let Some(known) = same.or_else(numbered) {
                        call.id = known.id.clone();
                    }
                    self.calls.insert(agents, call.id.clone());
                }
            }
            (MessageBody::Tool { call, .. }, MessageBody::Tool { call: known, .. }) => *call = known.clone(),
            _ => {}
        }
        let agents = mem::replace(&mut entry.id, known.id.clone());
        let is_last = self.ahead.get(&agents).is_none_or(|ahead| *ahead == 0);
        let own = self.ids.renamed(&agents).filter(|own| is_last && !self.ahead.contains_key(&***own));
        let own = own.and_then(|own| self.current.iter().find(|message| *message.id == **own));
        if let Some(own) = own {
            // The agent means both messages of this id, or has replaced the first one by its own rule.
            if entry.body != known.body && has_same_text(&entry, own) {
                let mut message = mem::replace(&mut entry, known.clone());
                message.id = own.id.clone();
                self.also.push(message);
            } else {
                self.also.push(own.clone());
            }
        }
        if self.is_merged && entry.body == known.body {
            // With its metadata, which an agent's side seldom has.
            entry = known.clone();
        }
        self.assigned.push(AssignedEntry { message: entry, known: Some(index) });
    }

    /// Adds an entry of this run.
    fn add_own(&mut self, mut entry: Message, is_answer: bool) {
        let is_input = matches!(entry.role(), Role::User | Role::System | Role::Developer);
        if !is_input && let Some(new) = self.ids.new_id(&entry.id) {
            entry.id = new.into();
        }
        match &mut entry.body {
            MessageBody::Assistant { tool_calls: Some(calls), .. } => {
                for call in calls {
                    let agents = call.id.clone();
                    // A call of an earlier run that a message with another id repeats keeps its id.
                    let is_own = is_answer || self.calls.contains_key(&agents);
                    let new = match self.ids.renamed(&agents).cloned() {
                        None if is_own && self.ids.is_earlier(&agents) => self.ids.new_id(&agents),
                        new => new,
                    };
                    if let Some(new) = new {
                        call.id = new.into();
                    }
                    self.calls.insert(agents, call.id.clone());
                }
            }
            MessageBody::Tool { call, .. } => match self.calls.get(call) {
                Some(known) => *call = known.clone(),
                None => self.ids.resolve_call(call, self.history),
            },
            _ => {}
        }
        self.assigned.push(AssignedEntry { message: entry, known: None });
    }

    fn finish(self) -> Vec<AssignedEntry> {
        let also = self.also.into_iter().map(|message| AssignedEntry { message, known: None });
        self.assigned.into_iter().chain(also).collect()
    }
}

/// The conversation after a snapshot is merged into it. The messages up to the last one of the history keep their places; the
/// run's messages behind them get the order of the snapshot.
fn merge(history: &[Message], current: &[Message], entries: Vec<AssignedEntry>) -> Vec<Message> {
    let has = |role| entries.iter().any(|entry| entry.message.role() == role);
    let (has_activity, has_reasoning) = (has(Role::Activity), has(Role::Reasoning));
    // As in the fold: most agents do not keep reasoning and activities.
    let stays = |message: &Message| match message.role() {
        Role::Activity => !has_activity,
        Role::Reasoning => !has_reasoning,
        _ => false,
    };
    let order: Vec<MessageId> =
        entries.iter().filter(|entry| entry.known.is_none()).map(|entry| entry.message.id.clone()).collect();
    let mut newer: HashMap<MessageId, Message> =
        entries.into_iter().map(|entry| (entry.message.id.clone(), entry.message)).collect();
    let is_history: HashSet<&MessageId> = history.iter().map(|message| &message.id).collect();
    let last = current.iter().rposition(|message| is_history.contains(&message.id));
    let (before, own) = current.split_at(last.map_or(0, |last| last + 1));
    let mut merged = Vec::with_capacity(current.len());
    for message in before {
        let known = newer.remove(&message.id);
        merged.extend(known.or_else(|| {
            let is_kept = is_history.contains(&message.id) || stays(message);
            is_kept.then(|| message.clone())
        }));
    }
    // A message of the history that the fold has lost meanwhile is not restored by its entry alone.
    newer.retain(|id, _| !is_history.contains(id));
    let mut rest = own.iter().filter(|message| !newer.contains_key(&message.id)).peekable();
    let place_of = |id: &MessageId| own.iter().position(|message| message.id == *id);
    let mut taken = HashSet::new();
    for id in order {
        let Some(message) = newer.get(&id).filter(|_| taken.insert(id.clone())) else { continue };
        if let Some(place) = place_of(&id) {
            // Reasoning and activities stay before the message that they precede.
            while let Some(earlier) = rest.next_if(|rest| place_of(&rest.id).is_some_and(|at| at < place)) {
                merged.extend(stays(earlier).then(|| earlier.clone()));
            }
        }
        merged.push(message.clone());
    }
    merged.extend(rest.filter(|message| stays(message)).cloned());
    merged
}

/// True if a client that has `current` reaches `wanted` by one snapshot, which drops messages and appends new ones.
fn is_reached_by_appending(current: &[Message], wanted: &[Message]) -> bool {
    let ids: HashSet<&MessageId> = wanted.iter().map(|message| &message.id).collect();
    let kept = current.iter().filter(|message| ids.contains(&message.id));
    kept.zip(wanted).all(|(kept, wanted)| kept.id == wanted.id)
}

/// True if two messages have the same role and the same text, which is not empty. The parts of a user's message may be joined
/// in any way.
fn has_same_text(one: &Message, other: &Message) -> bool {
    fn text(message: &Message) -> String {
        match &message.body {
            MessageBody::User { content } => content.text().split_whitespace().collect(),
            MessageBody::Tool { content, .. } => content.text(),
            MessageBody::Assistant { content, .. } => content.as_deref().unwrap_or_default().to_owned(),
            MessageBody::System { content }
            | MessageBody::Developer { content }
            | MessageBody::Reasoning { content } => content.to_string(),
            _ => String::new(),
        }
    }
    one.role() == other.role() && {
        let text_of_one = text(one);
        !text_of_one.is_empty() && text_of_one == text(other)
    }
}
