//! Distinct ids for messages, tool calls and activities whose ids repeat from run to run.
//!
//! Many agents number their messages from the start in every run (`m1`, `call_0`). Clients and the fold identify them by id
//! alone, so the text of a second `m1` would be appended to the first. Within a thread an id belongs to one run: an id that
//! an earlier run has used gets a number in this run, `m1#2`, in every event before hooks, log, fold and clients see it.
//! Messages and calls share one table, because a call without a parent makes a message of its own id.
//!
//! | event | id of an earlier run |
//! |---|---|
//! | start, text or arguments of a message, reasoning or call; parent of a call; source, file, block, hand-over | new id |
//! | ACTIVITY_SNAPSHOT | new id; with `replace: false` the last activity of that id |
//! | ACTIVITY_DELTA, tasks and end of a hand-over | the last activity of that id |
//! | tool result, interrupt and pending call, if this run has not made the call | the last call of that id, one without a result first |
//! | tool result that the history has, with the same id and content | dropped |
//! | user message that the client sent | unchanged |
//! | MESSAGES_SNAPSHOT | see [`super::snapshots`] |
//!
//! A HAI message has outputs with ids of their own, which the reader derives: `m1:thinking:0`, `m1:0`, and `m1#2` if the
//! message is opened again. If the message gets a new id, they get the ones that follow from it (`m1#2:thinking:0`), so that
//! a HAI client gets one message.
//!
//! An id that ends in a number counts as its unnumbered id too: `m1` is used if `m1#2` is, since the first message may have
//! been dropped meanwhile. The table follows from the stored conversation and the events of the run alone, so a replay of the
//! run gives the same ids.
//!
//! The agent gets its own ids back for the items that a request answers: the result, the call it belongs to, and the resume
//! entry. The pending item remembers them ([`pending::remember_agent_ids`]). All other messages keep the new ids.

use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::Arc,
};

use agentwire_core::{
    event::{
        Body, EncryptedEntity, Event, Interrupt, InterruptId, Message, MessageBody, Outcome, Role, RunInput,
        SubagentOutcome, ToolCallId, ToolResult,
    },
    json::{Json, Object},
};
use agentwire_store::{NewPending, Pending, PendingFilter, PendingId, StoreError};

use super::recorder::RunRecorder;
use crate::human::{pending, validate::CheckedAnswer};

/// Members of the value of a CUSTOM event that name a message or a call.
const CUSTOM_IDS: &[&str] = &["messageId", "parentMessageId", "toolCallId"];

/// The ids of a run.
#[derive(Debug, Default)]
pub(super) struct RunIds {
    /// Ids that this run must not use for anything new, with the highest number in use: 3 for `m1` if `m1#3` exists.
    earlier: HashMap<Arc<str>, u32>,
    /// The ids that the agent uses in this run and that have another one.
    renamed: HashMap<Arc<str>, Arc<str>>,
    /// HAI messages of this run that have another id, and that id.
    hai_messages: Vec<(Arc<str>, Arc<str>)>,
    /// The ids of the items that this run answers, and the agent's own.
    answered: Vec<(Arc<str>, Arc<str>)>,
    /// The agent's id of each id that differs from it.
    of_agent: HashMap<Arc<str>, Arc<str>>,
    /// The last id and its new one: a delta repeats the id of the event before it.
    last: Option<(Arc<str>, Option<Arc<str>>)>,
}

/// An id type of core: a shared string.
trait SharedId: Clone + From<Arc<str>> + Into<Arc<str>> + Deref<Target = str> {}

impl<I: Clone + From<Arc<str>> + Into<Arc<str>> + Deref<Target = str>> SharedId for I {}

impl RunIds {
    /// Adds messages of earlier runs and of the request.
    pub(super) fn add_earlier(&mut self, messages: &[Message]) {
        self.earlier.reserve(messages.len());
        for message in messages {
            self.add_earlier_id(message.id.clone().into());
            for call in message.tool_calls() {
                self.add_earlier_id(call.id.clone().into());
            }
        }
        self.last = None;
    }

    fn add_earlier_id(&mut self, id: Arc<str>) {
        if let Some((unnumbered, number)) = split_number(&id) {
            match self.earlier.get_mut(unnumbered) {
                Some(highest) => *highest = number.max(*highest),
                None => _ = self.earlier.insert(unnumbered.into(), number),
            }
        }
        self.earlier.entry(id).or_insert(1);
    }

    /// The new id of something that the agent calls `id` in this run, if an earlier run has used that.
    pub(super) fn new_id(&mut self, id: &str) -> Option<Arc<str>> {
        if let Some(new) = self.renamed.get(id) {
            return Some(new.clone());
        }
        if let Some(new) = self.derived(id) {
            self.renamed.insert(id.into(), new.clone());
            self.of_agent.insert(new.clone(), id.into());
            return Some(new);
        }
        let is_taken = self.of_agent.contains_key(id);
        let Some(mut number) = self.earlier.get(id).copied().or(is_taken.then_some(1)) else {
            if split_number(id).is_some() {
                // The number must not be given to another id.
                self.keep(id);
            }
            return None;
        };
        let new: Arc<str> = loop {
            number = number.saturating_add(1);
            let candidate = format!("{id}#{number}");
            let is_free = !self.earlier.contains_key(&*candidate) && !self.of_agent.contains_key(&*candidate);
            if is_free || number == u32::MAX {
                break candidate.into();
            }
        };
        self.renamed.insert(id.into(), new.clone());
        self.of_agent.insert(new.clone(), id.into());
        Some(new)
    }

    /// The new id of an output of a HAI message that has a new id.
    fn derived(&self, id: &str) -> Option<Arc<str>> {
        self.hai_messages.iter().find_map(|(message, new)| {
            let rest = id.strip_prefix(&**message).filter(|rest| rest.starts_with([':', '#']))?;
            Some(format!("{new}{rest}").into())
        })
    }

    /// The new id of a HAI message.
    fn new_message_id(&mut self, id: &str) -> Option<Arc<str>> {
        let new = self.new_id(id)?;
        if self.hai_messages.iter().all(|(message, _)| **message != *id) {
            self.hai_messages.push((id.into(), new.clone()));
        }
        Some(new)
    }

    /// The new id, if the run has given one.
    pub(super) fn renamed(&self, id: &str) -> Option<&Arc<str>> {
        self.renamed.get(id).filter(|new| ***new != *id)
    }

    /// True if an earlier run, or the request, has used an id.
    pub(super) fn is_earlier(&self, id: &str) -> bool {
        self.earlier.contains_key(id)
    }

    /// Keeps an id as it is for the whole run.
    fn keep(&mut self, id: &str) {
        let id: Arc<str> = id.into();
        self.renamed.insert(id.clone(), id.clone());
        self.of_agent.insert(id.clone(), id);
    }

    /// Gives an id of this run its new one, if it has one.
    fn rename_id<I: SharedId>(&mut self, id: &mut I) {
        if let Some((last, new)) = &self.last
            && std::ptr::eq(&**last, &**id)
        {
            if let Some(new) = new {
                *id = I::from(new.clone());
            }
            return;
        }
        let new = self.new_id(id);
        let agents: Arc<str> = id.clone().into();
        if let Some(new) = &new {
            *id = I::from(new.clone());
        }
        self.last = Some((agents, new));
    }

    /// The id that a reference to something of this run or an earlier one stands for.
    fn resolve<I: SharedId>(&mut self, id: &mut I) {
        let found = self.known(id).or_else(|| self.last_numbered(id));
        self.set_reference(id, found);
    }

    /// The same for a call; an earlier one without a result comes first.
    pub(super) fn resolve_call(&mut self, call: &mut ToolCallId, history: &[Message]) {
        let found = self.known(call).or_else(|| {
            let last = self.last_numbered(call)?;
            Some(open_call(call, history).unwrap_or(last))
        });
        self.set_reference(call, found);
    }

    /// The id that this run has given, or that an answered item has.
    fn known(&self, id: &str) -> Option<Arc<str>> {
        let answered = || self.answered.iter().rfind(|(_, agents)| **agents == *id).map(|(shown, _)| shown);
        self.renamed.get(id).or_else(answered).cloned()
    }

    fn set_reference<I: SharedId>(&mut self, id: &mut I, found: Option<Arc<str>>) {
        if let Some(found) = found.filter(|found| **found != **id) {
            self.of_agent.insert(found.clone(), id.clone().into());
            *id = I::from(found);
        }
    }

    /// The last numbered use of an id in earlier runs.
    fn last_numbered(&self, id: &str) -> Option<Arc<str>> {
        let number = *self.earlier.get(id).filter(|number| **number > 1)?;
        Some(format!("{id}#{number}").into())
    }

    /// Replaces the ids of an event of the agent. `history` are the messages with which the run started.
    pub(super) fn rename(&mut self, event: &mut Event, history: &[Message]) {
        if matches!(
            event.body,
            Body::RunStarted(_)
                | Body::RunFinished(_)
                | Body::RunError(_)
                | Body::TextStart { .. }
                | Body::ReasoningStart { .. }
                | Body::ReasoningMessageStart { .. }
        ) {
            self.rename_hai_message(event);
        }
        match &mut event.body {
            Body::TextStart { message, role: Some(Role::User), .. }
                if find(history, message).is_some_and(|known| known.role() == Role::User) =>
            {
                // An echo of the client's message.
                self.keep(message);
            }
            Body::TextStart { message, .. }
            | Body::TextDelta { message, .. }
            | Body::TextEnd { message }
            | Body::ReasoningStart { message, .. }
            | Body::ReasoningMessageStart { message }
            | Body::ReasoningDelta { message, .. }
            | Body::ReasoningMessageEnd { message }
            | Body::ReasoningEnd { message }
            | Body::ReasoningEncrypted { entity: EncryptedEntity::Message(message), .. }
            | Body::FinishReason { message: Some(message), .. } => self.rename_id(message),
            Body::ToolStart { call, parent, .. } => {
                if let Some(parent) = parent.as_mut().filter(|parent| !parent.is_empty()) {
                    self.rename_id(parent);
                }
                self.rename_id(call);
            }
            Body::ToolArgs { call, .. }
            | Body::ToolEnd { call }
            | Body::ReasoningEncrypted { entity: EncryptedEntity::ToolCall(call), .. } => {
                self.rename_id(call)
            }
            Body::ToolResult(result) => self.rename_result(result, history),
            Body::ActivitySnapshot { message, replace: Some(false), .. }
            | Body::ActivityDelta { message, .. }
            | Body::CollaborationTask { id: message, .. }
            | Body::CollaborationEnd { id: message } => self.resolve(message),
            Body::ActivitySnapshot { message, .. } => self.rename_id(message),
            Body::Citation(source) => {
                self.rename_id(&mut source.id);
                source.message.iter_mut().for_each(|message| self.rename_id(message));
            }
            Body::File(file) => {
                self.rename_id(&mut file.id);
                file.message.iter_mut().for_each(|message| self.rename_id(message));
            }
            Body::Block(block) => {
                if let Some(new) = self.new_message_id(&block.message) {
                    block.message = new.into();
                }
                self.rename_id(&mut block.id);
            }
            Body::CollaborationStart { id, message, .. } => {
                if let Some(message) = message
                    && let Some(new) = self.new_message_id(message)
                {
                    *message = new.into();
                }
                self.rename_id(id);
            }
            Body::SubagentStarted(started) => {
                started.parent_call.iter_mut().for_each(|call| self.resolve_call(call, history));
                started.parent_message.iter_mut().for_each(|message| self.resolve(message));
            }
            Body::SubagentFinished { outcome: Some(SubagentOutcome::Suspended { interrupts }), .. } => {
                interrupts.iter_mut().for_each(|interrupt| self.rename_interrupt_id(interrupt));
            }
            Body::RunFinished(finished) => match &mut finished.outcome {
                Some(Outcome::Success { pending }) => {
                    pending.iter_mut().for_each(|call| self.resolve_call(call, history));
                }
                Some(Outcome::Interrupt { interrupts }) => {
                    interrupts.iter_mut().for_each(|interrupt| self.rename_interrupt(interrupt, history));
                }
                _ => {}
            },
            Body::Custom { value, .. } if !self.renamed.is_empty() => self.rename_members(value),
            _ => {}
        }
    }

    /// The HAI message in the metadata of an event: the run itself has one, which the messages of the run may share, and
    /// the items of a message name it.
    fn rename_hai_message(&mut self, event: &mut Event) {
        let Some(metadata) = event.extra.as_mut().and_then(|extra| extra.metadata.as_mut()) else { return };
        let Some(hai) = metadata.member("hai").and_then(Json::into_object) else { return };
        if let Some(new) = hai.get_str("messageId").and_then(|id| self.new_message_id(&id)) {
            *metadata = metadata.with("hai", hai.with("messageId", Json::string(&new)).into());
        }
    }

    fn rename_result(&mut self, result: &mut ToolResult, history: &[Message]) {
        self.resolve_call(&mut result.call, history);
        if !is_repeated_result(result, history) {
            self.rename_id(&mut result.message);
        }
    }

    /// An interrupt may have the id of the call that it is about.
    fn rename_interrupt(&mut self, interrupt: &mut Interrupt, history: &[Message]) {
        let is_call = interrupt.tool_call.as_deref() == Some(&*interrupt.id);
        if let Some(call) = &mut interrupt.tool_call {
            self.resolve_call(call, history);
        }
        match &interrupt.tool_call {
            Some(call) if is_call => interrupt.id = call.as_str().into(),
            _ => self.rename_interrupt_id(&mut interrupt.id),
        }
    }

    fn rename_interrupt_id(&self, id: &mut InterruptId) {
        if let Some(new) = self.renamed(id) {
            *id = new.clone().into();
        }
    }

    fn rename_members(&self, value: &mut Json) {
        let Some(mut members) = value.clone().into_object() else { return };
        let mut is_changed = false;
        for key in CUSTOM_IDS {
            if let Some(new) = members.get_str(key).and_then(|id| self.renamed(&id)) {
                members = members.with(key, Json::string(new));
                is_changed = true;
            }
        }
        if is_changed {
            *value = members.into();
        }
    }

    /// Adds the agent's own ids of answered items.
    fn add_answered<'i>(&mut self, items: impl Iterator<Item = &'i Pending>) {
        for (shown, agents) in items.flat_map(pending::agent_ids) {
            let (shown, agents): (Arc<str>, Arc<str>) = (shown.into(), agents.into());
            self.of_agent.insert(shown.clone(), agents.clone());
            self.answered.push((shown, agents));
        }
    }

    /// Restores the agent's own ids of the items that the input answers.
    pub(super) fn restore(&self, input: &mut RunInput) {
        if self.answered.is_empty() {
            return;
        }
        let own: HashMap<&str, &Arc<str>> =
            self.answered.iter().map(|(shown, agents)| (&**shown, agents)).collect();
        for entry in input.resume.iter_mut().flatten() {
            if let Some(agents) = own.get(&*entry.interrupt) {
                entry.interrupt = Arc::clone(agents).into();
            }
            let call = entry.metadata.as_ref().and_then(|metadata| metadata.get_str("toolCallId"));
            if let Some(agents) = call.and_then(|call| own.get(&*call)) {
                let metadata = entry.metadata.as_ref();
                entry.metadata =
                    metadata.map(|metadata: &Object| metadata.with("toolCallId", Json::string(agents)));
            }
        }
        for message in &mut input.messages {
            match &mut message.body {
                MessageBody::Assistant { tool_calls: Some(calls), .. } => {
                    for call in calls {
                        if let Some(agents) = own.get(&*call.id) {
                            call.id = Arc::clone(agents).into();
                        }
                    }
                }
                MessageBody::Tool { call, .. } => {
                    if let Some(agents) = own.get(&**call) {
                        *call = Arc::clone(agents).into();
                    }
                }
                _ => {}
            }
        }
    }

    /// Stores the agent's own ids in the items that the run leaves open.
    pub(super) fn remember(&self, open: &mut [NewPending]) {
        if !self.of_agent.is_empty() {
            for item in open {
                pending::remember_agent_ids(item, |id| self.of_agent.get(id).map(|agents| &**agents));
            }
        }
    }
}

impl RunRecorder {
    /// Loads the agent's own ids of the items that this run answers. Results of calls without a number need none.
    pub(super) async fn load_agent_ids(
        &mut self,
        input: &RunInput,
        answers: &[CheckedAnswer],
    ) -> Result<(), StoreError> {
        let entries: HashSet<_> = answers.iter().map(|answer| &*answer.entry().interrupt).collect();
        let results = input.messages.iter().filter_map(result_call);
        let numbered = results.filter(|id| split_number(id).is_some());
        let ids: HashSet<_> = entries.iter().copied().chain(numbered).map(PendingId::from).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let filter = PendingFilter::Unanswered(ids.clone());
        let items = self.gateway.store().pending(&self.owner, &self.run.thread, filter).await?;
        let last = input.messages.iter().rposition(|message| message.role() == Role::Assistant);
        let last_results: HashSet<_> =
            input.messages[last.unwrap_or(0)..].iter().filter_map(result_call).collect();
        let is_answered_here = |item: &&Pending| {
            let id = item.id.as_str();
            let by_this_run = item.answer.as_ref().is_some_and(|answer| answer.run == self.run.run);
            ids.contains(&item.id) && (by_this_run || entries.contains(id) || last_results.contains(id))
        };
        // The last item of an id counts.
        self.ids.add_answered(pending::current(&items).filter(is_answered_here));
        Ok(())
    }
}

fn result_call(message: &Message) -> Option<&str> {
    match &message.body {
        MessageBody::Tool { call, .. } => Some(call),
        _ => None,
    }
}

fn find<'m>(messages: &'m [Message], id: &str) -> Option<&'m Message> {
    messages.iter().find(|message| *message.id == *id)
}

/// True if a result is in the history: a result that the client sent and that the agent repeats, or one of an earlier run
/// for a call that this run has not made.
pub(super) fn is_repeated_result(result: &ToolResult, history: &[Message]) -> bool {
    let is_same = |known: &Message| {
        let body = MessageBody::Tool {
            call: result.call.clone(),
            content: result.content.clone(),
            error: result.error.clone(),
        };
        known.body == body
    };
    find(history, &result.message).is_some_and(is_same)
        && history.iter().flat_map(|message| message.tool_calls()).any(|call| call.id == result.call)
}

/// The last call without a result in the history that the agent calls `id`.
fn open_call(id: &str, history: &[Message]) -> Option<Arc<str>> {
    let answered: HashSet<_> = history.iter().filter_map(result_call).collect();
    let calls = history.iter().flat_map(|message| message.tool_calls());
    let mut open = calls.filter(|call| is_use_of(id, &call.id) && !answered.contains(&*call.id));
    open.next_back().map(|call| call.id.clone().into())
}

/// True if `shown` is `id` or a numbered use of it.
pub(super) fn is_use_of(id: &str, shown: &str) -> bool {
    id == shown || split_number(shown).is_some_and(|(unnumbered, _)| unnumbered == id)
}

/// The parts of an id with a number: `m1#2` is the second use of `m1`.
pub(super) fn split_number(id: &str) -> Option<(&str, u32)> {
    let (unnumbered, number) = id.rsplit_once('#')?;
    let is_canonical = number.starts_with(|digit: char| matches!(digit, '1'..='9'));
    let number = number.parse().ok().filter(|number| is_canonical && *number > 1)?;
    Some((unnumbered, number))
}

#[cfg(test)]
mod tests {
    use agentwire_core::event::{MessageId, ToolCall};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_outputs_of_a_hai_message_follow_its_new_id() {
        let mut ids = RunIds::default();
        ids.add_earlier(&[called("m", "c"), called("m:thinking:0", "d"), called("m#2", "e")]);
        let mut start =
            text("m#2").with_metadata(Object::from_value(&json!({ "hai": { "messageId": "m" } })));
        ids.rename(&mut start, &[]);
        assert_eq!(start.metadata().map(Object::get), Some(r#"{"hai":{"messageId":"m#3"}}"#));
        assert!(matches!(&start.body, Body::TextStart { message, .. } if **message == *"m#3#2"));
        for (id, wanted) in [("m", "m#3"), ("m:thinking:0", "m#3:thinking:0"), ("m:1", "m#3:1"), ("mm", "mm")]
        {
            let mut event = text(id);
            ids.rename(&mut event, &[]);
            assert!(
                matches!(&event.body, Body::TextStart { message, .. } if **message == *wanted),
                "{event:?}"
            );
        }
    }

    fn text(id: &str) -> Event {
        Event::new(Body::TextStart { message: id.into(), role: None, name: None })
    }

    fn call(id: &str, parent: Option<&str>) -> Event {
        Event::new(Body::ToolStart {
            call: id.into(),
            name: "look".into(),
            parent: parent.map(MessageId::from),
        })
    }

    fn result(message: &str, call: &str) -> Event {
        let (message, call, content) = (message.into(), call.into(), "ok".into());
        let result = ToolResult { message, call, content, error: None, explicit_role: false };
        Event::new(Body::ToolResult(Box::new(result)))
    }

    fn called(id: &str, call: &str) -> Message {
        let calls = vec![ToolCall::new(call, "look", "{}")];
        Message::new(id, MessageBody::Assistant { content: None, tool_calls: Some(calls) })
    }

    fn answer(id: &str, call: &str) -> Message {
        let (call, content) = (call.into(), "ok".into());
        Message::new(id, MessageBody::Tool { call, content, error: None })
    }

    fn ids_after(history: &[Message]) -> RunIds {
        let mut ids = RunIds::default();
        ids.add_earlier(history);
        ids
    }

    fn renamed(ids: &mut RunIds, event: &Event, history: &[Message]) -> Body {
        let mut event = event.clone();
        ids.rename(&mut event, history);
        event.body
    }

    #[test]
    fn an_id_of_an_earlier_run_gets_the_next_free_number() {
        for (earlier, id, expected) in [
            (&["u1"][..], "m1", "m1"),
            (&["u1", "m1"], "m1", "m1#2"),
            (&["m1", "m1#2"], "m1", "m1#3"),
            (&["m1#2"], "m1", "m1#3"),
            (&["m1", "m1#7"], "m1", "m1#8"),
            (&["m1#2"], "m1#2", "m1#2#2"),
            (&["m1", "m1#02", "m1#x"], "m1", "m1#2"),
        ] {
            let history: Vec<_> = earlier.iter().map(|id| Message::assistant(*id, "x")).collect();
            let mut ids = ids_after(&history);
            for _ in 0..2 {
                assert_eq!(renamed(&mut ids, &text(id), &history), text(expected).body, "{earlier:?}");
            }
        }
    }

    /// The agent's own `m1#2`, before and after `m1` has got a number.
    #[test]
    fn numbers_do_not_collide_with_ids_of_the_agent() {
        let history = [Message::assistant("m1", "x")];
        let mut ids = ids_after(&history);
        assert_eq!(renamed(&mut ids, &text("m1"), &history), text("m1#2").body);
        assert_eq!(renamed(&mut ids, &text("m1#2"), &history), text("m1#2#2").body);
        assert_eq!(renamed(&mut ids, &text("m1"), &history), text("m1#2").body);
        let mut ids = ids_after(&history);
        assert_eq!(renamed(&mut ids, &text("m1#2"), &history), text("m1#2").body);
        assert_eq!(renamed(&mut ids, &text("m1"), &history), text("m1#3").body);
    }

    #[test]
    fn all_events_of_a_run_use_the_new_ids() {
        let history = [called("m1", "c1"), answer("r1", "c1"), Message::user("u2", "?")];
        let mut ids = ids_after(&history);
        assert_eq!(renamed(&mut ids, &call("c1", Some("m1")), &history), call("c1#2", Some("m1#2")).body);
        assert_eq!(renamed(&mut ids, &text("m1"), &history), text("m1#2").body);
        assert_eq!(renamed(&mut ids, &result("r1", "c1"), &history), result("r1#2", "c1#2").body);
        let custom = |id: &str| {
            Event::new(Body::Custom {
                name: "note".into(),
                value: Json::from(json!({"messageId": id, "text": "m1"})),
            })
        };
        assert_eq!(renamed(&mut ids, &custom("m1"), &history), custom("m1#2").body);
    }

    #[test]
    fn a_result_of_an_earlier_call_keeps_its_id() {
        let history = [called("m1", "c1"), answer("r1", "c1"), called("m1#2", "c1#2")];
        let mut ids = ids_after(&history);
        assert_eq!(renamed(&mut ids, &result("r9", "c1"), &history), result("r9", "c1#2").body);
        let history = [called("m1", "c1")];
        let mut ids = ids_after(&history);
        assert_eq!(renamed(&mut ids, &result("r1", "c1"), &history), result("r1", "c1").body);
        // The client's own result, repeated by the agent.
        let history = [called("m1", "c1"), answer("r1", "c1")];
        let mut ids = ids_after(&history);
        assert_eq!(renamed(&mut ids, &result("r1", "c1"), &history), result("r1", "c1").body);
    }

    #[test]
    fn a_user_message_that_the_agent_repeats_keeps_its_id() {
        let history = [Message::user("u1", "hi")];
        let mut ids = ids_after(&history);
        let echo = Event::new(Body::TextStart { message: "u1".into(), role: Some(Role::User), name: None });
        assert_eq!(renamed(&mut ids, &echo, &history), echo.body);
        let delta = Event::new(Body::TextDelta { message: "u1".into(), delta: "hi".into() });
        assert_eq!(renamed(&mut ids, &delta, &history), delta.body);
        let mut ids = ids_after(&history);
        assert_eq!(renamed(&mut ids, &text("u1"), &history), text("u1#2").body, "an answer under that id");
    }

    #[test]
    fn an_activity_of_an_earlier_run_is_changed_by_deltas_and_not_by_snapshots() {
        let activity = |id: &str| {
            let body = MessageBody::Activity { kind: "plan".into(), content: Object::empty() };
            Message::new(id, body)
        };
        let snapshot = |id: &str, replace| {
            let (kind, content) = ("plan".into(), Object::empty());
            Event::new(Body::ActivitySnapshot { message: id.into(), kind, content, replace })
        };
        let delta = |id: &str| {
            let (kind, patch) = ("plan".into(), agentwire_core::patch::Patch(Vec::new()));
            Event::new(Body::ActivityDelta { message: id.into(), kind, patch })
        };
        let history = [activity("p"), activity("p#2")];
        let mut ids = ids_after(&history);
        assert_eq!(renamed(&mut ids, &delta("p"), &history), delta("p#2").body);
        assert_eq!(
            renamed(&mut ids, &snapshot("p", Some(false)), &history),
            snapshot("p#2", Some(false)).body
        );
        assert_eq!(renamed(&mut ids, &snapshot("p", None), &history), snapshot("p#3", None).body);
        assert_eq!(renamed(&mut ids, &delta("p"), &history), delta("p#3").body);
    }

    #[test]
    fn an_interrupt_follows_the_call_it_is_about() {
        let history = [called("m1", "c1"), answer("r1", "c1")];
        let mut ids = ids_after(&history);
        renamed(&mut ids, &call("c1", None), &history);
        let ask = |id: &str, call: &str| {
            let mut interrupt = Interrupt::new(id, "tool_call");
            interrupt.tool_call = Some(call.into());
            interrupt
        };
        let finished = |interrupts| {
            let mut finished = agentwire_core::event::RunFinished::new("t", "r");
            finished.outcome = Some(Outcome::Interrupt { interrupts });
            Event::new(Body::RunFinished(Box::new(finished)))
        };
        let asked = finished(vec![ask("c1", "c1"), ask("q1", "c1")]);
        let expected = finished(vec![ask("c1#2", "c1#2"), ask("q1", "c1#2")]);
        assert_eq!(renamed(&mut ids, &asked, &history), expected.body);
    }
}
