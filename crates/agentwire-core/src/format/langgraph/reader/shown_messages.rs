//! The messages that the client has: their ids, their order, and the aliases of native ids.
//!
//! A messages snapshot replaces known messages in place and appends the others; it never reorders. For a run to end
//! with the conversation of the graph in its order, the reader tracks the messages that its events created, and
//! their positions. It also tracks the ids under which they were shown: a tool result has none when the tool ends
//! and gets a random one later, and the id of a message may follow its first text.

use std::collections::{HashMap, HashSet};

use super::{
    super::namespace::outer,
    call_ids,
    messages::{ShownIds, default_result_id},
};
use crate::event::{Body, Event, Message, MessageBody, MessageId, SubagentId, ToolCallId};

/// Bound on the tracked messages. A state of this many messages is some 10 MB of JSON per step, which no graph
/// survives; beyond it the oldest are removed, which affects only the order of snapshots.
const MAX_SHOWN: usize = 16_384;

/// Bound on the calls that share a native id. Providers that count calls per message use an id once per turn.
const MAX_USES: usize = 256;

/// The messages that the client has.
#[derive(Debug, Default)]
pub(super) struct ShownMessages {
    shown: Vec<ShownMessage>,
    present: HashSet<MessageId>,
    /// The message that contains a call.
    holders: HashMap<ToolCallId, MessageId>,
    /// The calls in messages of earlier runs.
    earlier_calls: HashSet<ToolCallId>,
    /// Native message ids that were shown under another id.
    message_aliases: HashMap<Box<str>, MessageId>,
    /// The scopes and shown ids of a native call id, the latest last. Concurrent graphs may use the same id at the
    /// same time.
    call_aliases: HashMap<Box<str>, Vec<(Box<str>, ToolCallId)>>,
    result_ids: HashMap<ToolCallId, MessageId>,
    owners: HashMap<MessageId, SubagentId>,
    /// Messages of hidden nodes.
    hidden: HashSet<MessageId>,
    /// Native ids of messages of which a part is hidden. They are read once: later frames that repeat them lack the
    /// rules.
    partly_hidden: HashSet<Box<str>>,
    /// Messages of which unknown content blocks were carried; they may have no other content.
    with_carried_blocks: HashSet<MessageId>,
    /// Native ids of messages that were read piece by piece. Those of reasoning only are not among `present`.
    streamed: HashSet<Box<str>>,
    /// Messages that were shown after the latest complete conversation.
    unconfirmed: Vec<MessageId>,
    /// Whether native events are read, which report results before the graph assigns ids to them.
    pub(super) has_early_results: bool,
}

#[derive(Debug)]
struct ShownMessage {
    id: MessageId,
    is_result: bool,
}

impl ShownMessages {
    /// Applies the effect of `event` on the list.
    pub(super) fn apply(&mut self, event: &Event) {
        match &event.body {
            Body::TextStart { message, .. } => self.push(message, event.subagent.as_ref()),
            Body::ToolStart { call, parent, .. } => {
                if self.holders.contains_key(call) {
                    return;
                }
                let holder = parent.clone().unwrap_or_else(|| call.as_str().into());
                self.push(&holder, event.subagent.as_ref());
                self.holders.insert(call.clone(), holder);
            }
            Body::ToolResult(result) => {
                self.result_ids.insert(result.call.clone(), result.message.clone());
                if !self.present.insert(result.message.clone()) {
                    return;
                }
                if let Some(owner) = &event.subagent {
                    self.owners.insert(result.message.clone(), owner.clone());
                }
                let holder = self.holders.get(&result.call);
                let holder = holder.and_then(|id| self.shown.iter().rposition(|shown| shown.id == *id));
                let at = match holder {
                    Some(holder) => {
                        let behind = &self.shown[holder + 1..];
                        holder + 1 + behind.iter().take_while(|shown| shown.is_result).count()
                    }
                    None => self.shown.len(),
                };
                self.shown.insert(at, ShownMessage { id: result.message.clone(), is_result: true });
                self.unconfirmed.push(result.message.clone());
                self.enforce_bounds();
            }
            Body::MessagesSnapshot { messages } => {
                let kept: HashSet<&MessageId> = messages.iter().map(|message| &message.id).collect();
                self.shown.retain(|shown| kept.contains(&shown.id));
                self.present.retain(|id| kept.contains(id));
                for message in messages {
                    if self.present.insert(message.id.clone()) {
                        let is_result = message.role() == crate::event::Role::Tool;
                        self.shown.push(ShownMessage { id: message.id.clone(), is_result });
                    }
                    for call in message.tool_calls() {
                        self.holders.insert(call.id.clone(), message.id.clone());
                    }
                    if let MessageBody::Tool { call, .. } = &message.body {
                        self.result_ids.insert(call.clone(), message.id.clone());
                    }
                }
                self.enforce_bounds();
            }
            _ => {}
        }
    }

    fn push(&mut self, id: &MessageId, owner: Option<&SubagentId>) {
        if self.present.insert(id.clone()) {
            if let Some(owner) = owner {
                self.owners.insert(id.clone(), owner.clone());
            }
            self.shown.push(ShownMessage { id: id.clone(), is_result: false });
            self.unconfirmed.push(id.clone());
            self.enforce_bounds();
        }
    }

    /// Notes that the unknown content blocks of a message are carried; false if they were before.
    pub(super) fn add_carried_blocks(&mut self, id: &MessageId) -> bool {
        if self.with_carried_blocks.len() >= MAX_SHOWN {
            self.with_carried_blocks.clear();
        }
        self.with_carried_blocks.insert(id.clone())
    }

    /// Marks all messages as part of a complete conversation.
    pub(super) fn confirm(&mut self) {
        self.unconfirmed.clear();
    }

    /// Whether a message that was shown after the conversation `list` is not in it.
    pub(super) fn has_unconfirmed_outside(&self, list: &[Message]) -> bool {
        self.unconfirmed.iter().any(|id| !list.iter().any(|message| message.id == *id))
    }

    fn enforce_bounds(&mut self) {
        while self.shown.len() > MAX_SHOWN {
            let oldest = self.shown.remove(0);
            self.present.remove(&oldest.id);
            self.owners.remove(&oldest.id);
        }
        if self.unconfirmed.len() > MAX_SHOWN {
            self.unconfirmed.clear();
        }
        if self.message_aliases.len() > MAX_SHOWN {
            self.message_aliases.clear();
        }
        if self.holders.len() > 4 * MAX_SHOWN {
            self.holders.clear();
        }
        if self.result_ids.len() > 4 * MAX_SHOWN {
            self.result_ids.clear();
        }
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.present.contains(id) || self.hidden.contains(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Whether every message that is shown is in `list`.
    pub(super) fn is_part_of(&self, list: &[Message]) -> bool {
        let list: HashSet<&MessageId> = list.iter().map(|message| &message.id).collect();
        self.shown.iter().all(|shown| list.contains(&shown.id))
    }

    /// True if a snapshot of `list` would add a message that may be shown before the end of the run.
    pub(super) fn lacks_some_of(&self, list: &[Message]) -> bool {
        list.iter().any(|message| {
            !self.present.contains(&message.id) && !self.partly_hidden.contains(message.id.as_str())
        })
    }

    /// The position in `list` of the first message that a snapshot of all of it would leave out of order. A snapshot
    /// of the messages before it has to be sent first.
    pub(super) fn first_misplaced(&self, list: &[Message]) -> Option<usize> {
        let wanted: HashSet<&MessageId> = list.iter().map(|message| &message.id).collect();
        let mut kept = self.shown.iter().filter(|shown| wanted.contains(&shown.id));
        for (position, message) in list.iter().enumerate() {
            match kept.next() {
                Some(shown) if shown.id == message.id => {}
                Some(_) => return Some(position),
                None => return None,
            }
        }
        None
    }

    pub(super) fn hide(&mut self, id: MessageId) {
        if self.hidden.len() < MAX_SHOWN {
            self.hidden.insert(id);
        }
    }

    pub(super) fn hide_partly(&mut self, native: &str) {
        if self.partly_hidden.len() < MAX_SHOWN {
            self.partly_hidden.insert(native.into());
        }
    }

    /// Records that a message was read piece by piece.
    pub(super) fn add_streamed(&mut self, native: &str) {
        if self.streamed.len() < MAX_SHOWN {
            self.streamed.insert(native.into());
        }
    }

    pub(super) fn was_streamed(&self, native: &str) -> bool {
        self.streamed.contains(native)
    }

    pub(super) fn is_partly_hidden(&self, native: &str) -> bool {
        self.partly_hidden.contains(native)
    }

    pub(super) fn is_hidden(&self, id: &str) -> bool {
        self.hidden.contains(id)
    }

    pub(super) fn owner(&self, id: &str) -> Option<&SubagentId> {
        self.owners.get(id)
    }

    /// Records the native id of a shown message.
    pub(super) fn alias_message(&mut self, native: &str, shown: &MessageId) {
        if native != shown.as_str() {
            self.message_aliases.insert(native.into(), shown.clone());
        }
    }

    /// Records the native id of a shown call of the graph at `scope`.
    pub(super) fn alias_call(&mut self, native: &str, shown: &ToolCallId, scope: &str) {
        if let Some(uses) = self.call_aliases.get_mut(native) {
            if !uses.iter().any(|(ns, id)| **ns == *scope && id == shown) {
                if uses.len() >= MAX_USES {
                    uses.remove(0);
                }
                uses.push((scope.into(), shown.clone()));
            }
        } else if self.call_aliases.len() < 4 * MAX_SHOWN {
            self.call_aliases.insert(native.into(), vec![(scope.into(), shown.clone())]);
        }
    }

    /// The shown id of a call of the graph at `scope`, or of the nearest graph around it.
    pub(super) fn call_in_scope(&self, native: &str, scope: &str) -> ToolCallId {
        let uses = self.call_aliases.get(native).map(Vec::as_slice).unwrap_or_default();
        let mut scope = scope;
        let here = loop {
            let here = uses.iter().rev().find(|(ns, _)| **ns == *scope);
            if here.is_some() || scope.is_empty() || uses.len() < 2 {
                break here;
            }
            scope = outer(scope);
        };
        here.or(uses.last()).map_or_else(|| native.into(), |(_, id)| id.clone())
    }

    /// The id under which to show a new call of `message` in the graph at `scope`. The id of a call in another
    /// message would merge both. `native_message` is the native id of the message.
    ///
    /// A complete message may repeat a call without a result, in the same graph or in one around it: agents that
    /// hand over to one another do.
    pub(super) fn id_for_new_call(
        &self,
        native: &str,
        message: &MessageId,
        native_message: Option<&str>,
        scope: &str,
        is_complete: bool,
    ) -> ToolCallId {
        let uses = self.call_aliases.get(native).map(Vec::as_slice).unwrap_or_default();
        if let Some((_, id)) = uses.iter().find(|(_, id)| self.holders.get(id) == Some(message)) {
            return id.clone();
        }
        let last = self.call_in_scope(native, scope);
        // This message replaces one of an earlier run with the same id.
        let is_same = |holder: &MessageId| {
            holder == message || Some(holder.as_str()) == native_message && self.earlier_calls.contains(&last)
        };
        let is_other =
            self.holders.get(&last).is_some_and(|holder| !is_same(holder)) && !self.is_without_message(&last);
        let is_inside = |ns: &str| scope.is_empty() || ns.strip_prefix(scope).is_some_and(is_same_or_nested);
        let is_repeated = is_complete
            && !self.result_ids.contains_key(&last)
            && uses.iter().any(|(ns, id)| *id == last && is_inside(ns));
        match is_other && !is_repeated {
            true => call_ids::next(native, &last, |id| !self.holders.contains_key(id)),
            false => last,
        }
    }

    /// Whether a call was shown without a message.
    fn is_without_message(&self, call: &str) -> bool {
        self.holders.get(call).is_some_and(|holder| holder.as_str() == call)
    }

    /// Whether a call of `message` was shown in another message, or without one.
    pub(super) fn is_held_by_another(&self, call: &ToolCallId, message: &MessageId) -> bool {
        self.holders.get(call).is_some_and(|holder| holder != message)
    }

    /// Records a call in `message` of an earlier run.
    pub(super) fn add_earlier_call(&mut self, call: &ToolCallId, message: &MessageId) {
        self.holders.entry(call.clone()).or_insert_with(|| message.clone());
        if self.earlier_calls.len() < 4 * MAX_SHOWN {
            self.earlier_calls.insert(call.clone());
        }
    }

    /// Prepares for another run of the thread; shown ids stay valid.
    pub(super) fn next_run(&mut self) {
        self.has_early_results = false;
        self.unconfirmed.clear();
    }
}

impl ShownIds for ShownMessages {
    fn message_id(&self, native: &str) -> MessageId {
        self.message_aliases.get(native).cloned().unwrap_or_else(|| native.into())
    }

    fn result_message_id(&self, native: Option<&str>, call: &str) -> MessageId {
        if let Some(id) = self.result_ids.get(call) {
            return id.clone();
        }
        match native {
            // The graph assigned a random id after the result was shown. The next run must use the shown id, so
            // that is derived from the call.
            Some(id) if self.has_early_results && is_random_uuid(id) => default_result_id(call),
            Some(id) => id.into(),
            None => default_result_id(call),
        }
    }

    fn call_id(&self, native: &str) -> ToolCallId {
        self.call_in_scope(native, "")
    }

    fn call_id_in(&self, native: &str, message: &MessageId) -> ToolCallId {
        let uses = self.call_aliases.get(native).map(Vec::as_slice).unwrap_or_default();
        match uses {
            [] => native.into(),
            // Most ids are used once.
            [(_, only)] => only.clone(),
            uses => {
                let held = uses.iter().rev().find(|(_, id)| self.holders.get(id) == Some(message));
                held.map_or_else(|| native.into(), |(_, id)| id.clone())
            }
        }
    }

    fn holder(&self, call: &str) -> Option<&MessageId> {
        self.holders.get(call)
    }
}

/// Whether `rest`, which follows a namespace, is empty or starts a nested one.
fn is_same_or_nested(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('|')
}

/// Whether `id` is a random UUID (version 4), which LangGraph assigns to messages without an id.
fn is_random_uuid(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.len() == 36
        && bytes[14] == b'4'
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ToolResult;

    fn list(ids: &[&str]) -> Vec<Message> {
        ids.iter().map(|id| Message::user(*id, "")).collect()
    }

    fn text(id: &str) -> Event {
        Event::new(Body::TextStart { message: id.into(), role: None, name: None })
    }

    #[test]
    fn detects_messages_that_a_snapshot_would_misplace() {
        let mut messages = ShownMessages::default();
        assert_eq!(messages.first_misplaced(&list(&["a", "b"])), None);
        messages.apply(&text("b"));
        assert_eq!(messages.first_misplaced(&list(&["a", "b"])), Some(0));
        assert_eq!(messages.first_misplaced(&list(&["b", "a"])), None);
        messages.apply(&text("x"));
        assert_eq!(
            messages.first_misplaced(&list(&["b", "a"])),
            None,
            "messages outside the list are deleted"
        );
        messages.apply(&Event::new(Body::MessagesSnapshot { messages: list(&["b", "a"]) }));
        assert_eq!(messages.first_misplaced(&list(&["b", "c", "a"])), Some(1));
    }

    #[test]
    fn results_follow_the_message_that_contains_the_call() {
        let mut messages = ShownMessages::default();
        messages.apply(&Event::new(Body::ToolStart {
            call: "c1".into(),
            name: "n".into(),
            parent: Some("m".into()),
        }));
        messages.apply(&text("later"));
        let result = ToolResult {
            message: "r".into(),
            call: "c1".into(),
            content: "".into(),
            error: None,
            explicit_role: true,
        };
        messages.apply(&Event::new(Body::ToolResult(Box::new(result))));
        assert_eq!(messages.first_misplaced(&list(&["m", "r", "later"])), None);
    }

    #[test]
    fn recognises_random_uuids() {
        assert!(is_random_uuid("29857793-e265-4af3-9fb1-3171d1baf059"));
        assert!(!is_random_uuid("01a1e0b4-cc09-7316-ae0a-7a67889760fe"));
        assert!(!is_random_uuid("my-result"));
    }
}
