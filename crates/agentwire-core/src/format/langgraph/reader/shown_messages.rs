//! What the user interface holds, as far as ids go.
//!
//! A messages snapshot replaces known messages in place and appends the others; it never reorders. So that a
//! run ends with the graph's own conversation, in its order, the reader has to know which messages its events
//! have created and where. The ids under which they were shown count too: a result has none when the tool
//! ends and gets a random one later, and the id of a message may come after its first text.

use std::collections::{HashMap, HashSet};

use super::{
    super::namespace::outer,
    call_ids,
    messages::{Naming, result_id},
};
use crate::event::{Body, Event, Message, MessageBody, MessageId, SubagentId, ToolCallId};

/// How many messages are kept in mind. A state of this many messages is some 10 MB of JSON per step, which no
/// graph survives; beyond it the oldest are forgotten, and only the order of snapshots suffers.
const MAX_SHOWN: usize = 16_384;

/// How many calls of one id are kept apart. Providers that count calls per answer use an id once per turn.
const MAX_USES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Client {
    shown: Vec<Shown>,
    present: HashSet<MessageId>,
    /// Which message holds a call.
    holders: HashMap<ToolCallId, MessageId>,
    /// The calls that messages of earlier runs hold.
    earlier: HashSet<ToolCallId>,
    /// Ids of the source that were shown under another one.
    messages: HashMap<Box<str>, MessageId>,
    /// Under which ids a call's id of the source was shown, and where, the latest last. Graphs that run beside
    /// one another may use the same id at the same time.
    calls: HashMap<Box<str>, Vec<(Box<str>, ToolCallId)>>,
    results: HashMap<ToolCallId, MessageId>,
    owners: HashMap<MessageId, SubagentId>,
    /// Messages of nodes that are left out.
    hidden: HashSet<MessageId>,
    /// What was shown since the conversation was last known exactly.
    unsettled: Vec<MessageId>,
    /// Whether native events are read: there, results are shown before the graph has named them.
    pub(super) early_results: bool,
}

#[derive(Debug)]
struct Shown {
    id: MessageId,
    is_result: bool,
}

impl Client {
    /// Notes what `event` does to the list.
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
                self.results.insert(result.call.clone(), result.message.clone());
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
                self.shown.insert(at, Shown { id: result.message.clone(), is_result: true });
                self.unsettled.push(result.message.clone());
                self.bound();
            }
            Body::MessagesSnapshot { messages } => {
                let kept: HashSet<&MessageId> = messages.iter().map(|message| &message.id).collect();
                self.shown.retain(|shown| kept.contains(&shown.id));
                self.present.retain(|id| kept.contains(id));
                for message in messages {
                    if self.present.insert(message.id.clone()) {
                        let is_result = message.role() == crate::event::Role::Tool;
                        self.shown.push(Shown { id: message.id.clone(), is_result });
                    }
                    for call in message.tool_calls() {
                        self.holders.insert(call.id.clone(), message.id.clone());
                    }
                    if let MessageBody::Tool { call, .. } = &message.body {
                        self.results.insert(call.clone(), message.id.clone());
                    }
                }
                self.bound();
            }
            _ => {}
        }
    }

    fn push(&mut self, id: &MessageId, owner: Option<&SubagentId>) {
        if self.present.insert(id.clone()) {
            if let Some(owner) = owner {
                self.owners.insert(id.clone(), owner.clone());
            }
            self.shown.push(Shown { id: id.clone(), is_result: false });
            self.unsettled.push(id.clone());
            self.bound();
        }
    }

    /// The conversation is known exactly.
    pub(super) fn settled(&mut self) {
        self.unsettled.clear();
    }

    /// Whether something that was shown since the conversation was `list` is not in it.
    pub(super) fn has_more_than(&self, list: &[Message]) -> bool {
        self.unsettled.iter().any(|id| !list.iter().any(|message| message.id == *id))
    }

    fn bound(&mut self) {
        while self.shown.len() > MAX_SHOWN {
            let oldest = self.shown.remove(0);
            self.present.remove(&oldest.id);
            self.owners.remove(&oldest.id);
        }
        if self.unsettled.len() > MAX_SHOWN {
            self.unsettled.clear();
        }
        if self.messages.len() > MAX_SHOWN {
            self.messages.clear();
        }
        if self.holders.len() > 4 * MAX_SHOWN {
            self.holders.clear();
        }
        if self.results.len() > 4 * MAX_SHOWN {
            self.results.clear();
        }
    }

    pub(super) fn has(&self, id: &str) -> bool {
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

    /// Whether a snapshot of `list` would add a message.
    pub(super) fn lacks_some_of(&self, list: &[Message]) -> bool {
        list.iter().any(|message| !self.present.contains(&message.id))
    }

    /// How many messages of `list` to restate first so that a snapshot of all of it comes out in its order;
    /// `None` if it does anyway.
    pub(super) fn misplaced_after(&self, list: &[Message]) -> Option<usize> {
        let wanted: HashSet<&MessageId> = list.iter().map(|message| &message.id).collect();
        let mut kept = self.shown.iter().filter(|shown| wanted.contains(&shown.id));
        for (place, message) in list.iter().enumerate() {
            match kept.next() {
                Some(shown) if shown.id == message.id => {}
                Some(_) => return Some(place),
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

    pub(super) fn is_hidden(&self, id: &str) -> bool {
        self.hidden.contains(id)
    }

    pub(super) fn owner(&self, id: &str) -> Option<&SubagentId> {
        self.owners.get(id)
    }

    /// Remembers that the source calls a message `native`.
    pub(super) fn alias_message(&mut self, native: &str, shown: &MessageId) {
        if native != shown.as_str() {
            self.messages.insert(native.into(), shown.clone());
        }
    }

    /// Remembers that the source calls a call of the graph at `scope` `native`.
    pub(super) fn alias_call(&mut self, native: &str, shown: &ToolCallId, scope: &str) {
        if let Some(uses) = self.calls.get_mut(native) {
            if !uses.iter().any(|(known, id)| **known == *scope && id == shown) {
                if uses.len() >= MAX_USES {
                    uses.remove(0);
                }
                uses.push((scope.into(), shown.clone()));
            }
        } else if self.calls.len() < 4 * MAX_SHOWN {
            self.calls.insert(native.into(), vec![(scope.into(), shown.clone())]);
        }
    }

    /// The id under which the call of the graph at `scope`, or of the next one around it, is shown.
    pub(super) fn call_at(&self, native: &str, scope: &str) -> ToolCallId {
        let uses = self.calls.get(native).map(Vec::as_slice).unwrap_or_default();
        let mut scope = scope;
        let here = loop {
            let here = uses.iter().rev().find(|(known, _)| **known == *scope);
            if here.is_some() || scope.is_empty() || uses.len() < 2 {
                break here;
            }
            scope = outer(scope);
        };
        here.or(uses.last()).map_or_else(|| native.into(), |(_, id)| id.clone())
    }

    /// The id under which to show a call that `message` announces in the graph at `scope`: that of a call of
    /// another message would stand for both. `name` is what the source calls the message.
    ///
    /// A `whole` message may state a call again that still waits for its answer, in the same graph or in one around
    /// it: agents that hand over to one another do.
    pub(super) fn announced(
        &self,
        native: &str,
        message: &MessageId,
        name: Option<&str>,
        scope: &str,
        whole: bool,
    ) -> ToolCallId {
        let uses = self.calls.get(native).map(Vec::as_slice).unwrap_or_default();
        if let Some((_, id)) = uses.iter().find(|(_, id)| self.holders.get(id) == Some(message)) {
            return id.clone();
        }
        let last = self.call_at(native, scope);
        // A message of an earlier run whose name is used again is replaced by this one.
        let is_same = |holder: &MessageId| {
            holder == message || Some(holder.as_str()) == name && self.earlier.contains(&last)
        };
        let is_other = self.holders.get(&last).is_some_and(|holder| !is_same(holder)) && !self.is_bare(&last);
        let is_inside = |place: &str| scope.is_empty() || place.strip_prefix(scope).is_some_and(is_below);
        let states_again = whole
            && !self.results.contains_key(&last)
            && uses.iter().any(|(place, id)| *id == last && is_inside(place));
        match is_other && !states_again {
            true => call_ids::next(native, &last, |id| !self.holders.contains_key(id)),
            false => last,
        }
    }

    /// Whether a call was shown without the message that made it.
    fn is_bare(&self, call: &str) -> bool {
        self.holders.get(call).is_some_and(|holder| holder.as_str() == call)
    }

    /// Whether a call of `message` is shown already, in another message or in none.
    pub(super) fn holds_elsewhere(&self, call: &ToolCallId, message: &MessageId) -> bool {
        self.holders.get(call).is_some_and(|holder| holder != message)
    }

    /// Remembers that `message`, which is of an earlier run, holds a call.
    pub(super) fn held(&mut self, call: &ToolCallId, message: &MessageId) {
        self.holders.entry(call.clone()).or_insert_with(|| message.clone());
        if self.earlier.len() < 4 * MAX_SHOWN {
            self.earlier.insert(call.clone());
        }
    }

    /// A new run of the same thread: what was named in the last one stays shown under its names.
    pub(super) fn next_run(&mut self) {
        self.early_results = false;
        self.unsettled.clear();
    }
}

impl Naming for Client {
    fn message(&self, native: &str) -> MessageId {
        self.messages.get(native).cloned().unwrap_or_else(|| native.into())
    }

    fn result(&self, native: Option<&str>, call: &str) -> MessageId {
        if let Some(known) = self.results.get(call) {
            return known.clone();
        }
        match native {
            // The graph named it after the fact, with a random id. The next run must use the name that this
            // one had to use, so it is derived.
            Some(id) if self.early_results && is_random(id) => result_id(call),
            Some(id) => id.into(),
            None => result_id(call),
        }
    }

    fn call(&self, native: &str) -> ToolCallId {
        self.call_at(native, "")
    }

    fn call_of(&self, native: &str, message: &MessageId) -> ToolCallId {
        let uses = self.calls.get(native).map(Vec::as_slice).unwrap_or_default();
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

/// Whether what follows a place makes it one inside, or the same.
fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('|')
}

/// Whether `id` is a random UUID (version 4), as LangGraph gives to messages that have no id.
fn is_random(id: &str) -> bool {
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
    fn order_is_judged_as_a_snapshot_would_leave_it() {
        let mut client = Client::default();
        assert_eq!(client.misplaced_after(&list(&["a", "b"])), None);
        client.apply(&text("b"));
        assert_eq!(client.misplaced_after(&list(&["a", "b"])), Some(0));
        assert_eq!(client.misplaced_after(&list(&["b", "a"])), None);
        client.apply(&text("x"));
        assert_eq!(client.misplaced_after(&list(&["b", "a"])), None, "what is not in the list goes");
        client.apply(&Event::new(Body::MessagesSnapshot { messages: list(&["b", "a"]) }));
        assert_eq!(client.misplaced_after(&list(&["b", "c", "a"])), Some(1));
    }

    #[test]
    fn results_stand_behind_the_message_that_holds_the_call() {
        let mut client = Client::default();
        client.apply(&Event::new(Body::ToolStart {
            call: "c1".into(),
            name: "n".into(),
            parent: Some("m".into()),
        }));
        client.apply(&text("later"));
        let result = ToolResult {
            message: "r".into(),
            call: "c1".into(),
            content: "".into(),
            error: None,
            explicit_role: true,
        };
        client.apply(&Event::new(Body::ToolResult(Box::new(result))));
        assert_eq!(client.misplaced_after(&list(&["m", "r", "later"])), None);
    }

    #[test]
    fn random_ids_are_told_from_chosen_ones() {
        assert!(is_random("29857793-e265-4af3-9fb1-3171d1baf059"));
        assert!(!is_random("01a1e0b4-cc09-7316-ae0a-7a67889760fe"));
        assert!(!is_random("my-result"));
    }
}
