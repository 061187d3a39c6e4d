//! Merges the stored conversation and state of a thread with those that a client sends.
//!
//! Messages, by policy:
//! - `client`: the client's messages as they are.
//! - `server`: the stored messages, in which a user message may be edited; of the client's, unknown user and tool messages
//!   are appended, the others dropped. Admission has removed the results of calls that the thread does not wait for.
//! - `merge`: by message id. Stored messages win, except that a user message may be edited; new messages are inserted where
//!   the client has them between known ones, or appended. A client may send only its last message, or leave out others.
//!
//! A client that gives its messages ids that the thread has used (`u1` in every request, or an id of the agent) does not edit
//! or repeat with them: a last message with other words than the answered one of that id, or with the id of another role, is
//! new and gets a number, `u1#2`.
//!
//! Some servers (LlamaIndex, CrewAI) rename a streamed message in a snapshot, and the snapshot is what is stored. A client that
//! does not apply snapshots (an AI SDK page) goes on sending the streamed id: an unknown assistant message with the text or
//! the calls of a stored one of the same turn, whose id the client does not send, is that message.
//!
//! A call has one result. A client that builds its own messages (an AI SDK page sends a result under an id of its own)
//! means the stored one if it sends another for the same call. An empty assistant message, which a page keeps of a run that
//! failed, is no part of the conversation.
//!
//! State: if the client sends none, or an empty object, the stored one. The members of an object replace the stored members of
//! the same name. Any other value replaces the state. With a key (`state_key`), the client's state is one member of the
//! stored state; see [`client_part`].

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use agentwire_core::{
    event::{Content, Message, MessageBody, MessageId, Role, ToolCallId},
    format::ai_sdk::input::is_system_of_request,
};
use serde_json::{Map, Value};

use crate::settings::History;

/// The conversation that the agent gets. `cut` is the message after which the conversation continues anew, as after an edit.
pub(crate) fn messages(
    policy: History,
    mut stored: Vec<Message>,
    sent: &[Message],
    cut: Option<&MessageId>,
) -> Vec<Message> {
    if policy == History::Client {
        return sent.to_vec();
    }
    stored.truncate(until(&stored, cut).len());
    // The system message of an earlier request does not count for this one.
    stored.retain(|message| !is_system_of_request(message));
    let indexes = Indexes::new(&stored, sent);
    let has_result = sent.iter().any(|message| message.role() == Role::Tool);
    let results = if has_result { results(&stored) } else { HashMap::new() };
    let mut renamed = None;
    let mut uses = NumberedUses::of(&stored);
    // New messages by the known one that they follow, if another known one comes later; the others are appended, even if the
    // client did not send the whole conversation.
    let mut followers: Vec<Vec<Message>> = vec![Vec::new(); stored.len()];
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let mut previous: Option<usize> = None;
    for (position, message) in sent.iter().enumerate() {
        let known = indexes.find(&stored, &message.id).or_else(|| match &message.body {
            MessageBody::Tool { call, .. } => results.get(call).copied(),
            MessageBody::Assistant { .. } => {
                let renamed = renamed.get_or_insert_with(|| RenamedMessages::new(&stored, sent));
                renamed.find(&stored, previous, message)
            }
            _ => None,
        });
        let repeated = uses.repeated(&stored, message);
        let is_last = position + 1 == sent.len();
        let is_reused = |known: &usize| is_reused(&stored, *known, message, is_last, repeated.is_some());
        let (known, id) = match known.filter(is_reused) {
            None => (known, message.id.clone()),
            Some(_) => match repeated {
                Some(used) => (Some(used), stored[used].id.clone()),
                None => {
                    let ids: HashSet<&MessageId> = stored.iter().map(|message| &message.id).collect();
                    (None, uses.free_id(&ids, &message.id))
                }
            },
        };
        if let Some(known) = known {
            let is_edit = message.role() == Role::User && stored[known].role() == Role::User;
            if policy == History::Merge {
                previous.map_or(&mut first, |index| &mut followers[index]).append(&mut last);
            }
            if is_edit {
                let edited = with_id(message, id);
                // An unchanged message stays the stored one, whose text is known.
                if stored[known] != edited {
                    stored[known] = edited;
                }
                uses.add(known, &stored[known]);
            }
            previous = Some(known);
            continue;
        }
        let is_new_turn = matches!(message.body, MessageBody::User { .. } | MessageBody::Tool { .. });
        let is_wanted =
            is_new_turn || policy == History::Merge && (is_system_of_request(message) || !is_empty(message));
        if is_wanted && seen.insert(id.clone()) {
            last.push(with_id(message, id));
        }
    }
    let mut merged = first;
    for (message, following) in stored.into_iter().zip(followers) {
        merged.push(message);
        merged.extend(following);
    }
    merged.extend(last);
    // It precedes the conversation, also if the client sends only its last message.
    if let Some(at) = merged.iter().position(is_system_of_request) {
        merged[..=at].rotate_right(1);
    }
    merged
}

/// The index of each stored message by its id; of several with one id, of the last. Edits keep the ids.
enum Indexes {
    /// For so few messages of a client that a search for each costs less than a table of all.
    Searched,
    Table(HashMap<MessageId, usize>),
}

impl Indexes {
    /// The most messages of a client that are searched for.
    const FEW: usize = 4;

    fn new(stored: &[Message], sent: &[Message]) -> Self {
        if sent.len() <= Self::FEW {
            return Self::Searched;
        }
        let entries = stored.iter().enumerate().map(|(index, message)| (message.id.clone(), index));
        Self::Table(entries.collect())
    }

    fn find(&self, stored: &[Message], id: &MessageId) -> Option<usize> {
        match self {
            Self::Searched => stored.iter().rposition(|message| message.id == *id),
            Self::Table(table) => table.get(id).copied(),
        }
    }
}

/// Finds the stored messages that the client has under the ids with which they were streamed. The tables keep the cost linear
/// in both conversations, also if a client sends thousands of unknown messages.
struct RenamedMessages {
    sent: HashSet<MessageId>,
    /// The number of user messages before each stored one: two with the same number are of one turn.
    turns: Vec<usize>,
    by_text: HashMap<u64, Vec<usize>>,
    by_call: HashMap<ToolCallId, Vec<usize>>,
}

impl RenamedMessages {
    /// The most messages with the same text or call that are compared with one of the client.
    const MAX_CANDIDATES: usize = 8;

    fn new(stored: &[Message], sent: &[Message]) -> Self {
        let mut found = Self {
            sent: sent.iter().map(|message| message.id.clone()).collect(),
            turns: Vec::with_capacity(stored.len()),
            by_text: HashMap::new(),
            by_call: HashMap::new(),
        };
        let mut turn = 0;
        for (index, message) in stored.iter().enumerate() {
            found.turns.push(turn);
            turn += usize::from(message.role() == Role::User);
            if found.sent.contains(&message.id) {
                continue;
            }
            if let Some(text) = text_of(message) {
                found.by_text.entry(digest(text)).or_default().push(index);
            }
            for call in message.tool_calls() {
                found.by_call.entry(call.id.clone()).or_default().push(index);
            }
        }
        found
    }

    /// `previous`: the stored message that the client has before `message`.
    fn find(&self, stored: &[Message], previous: Option<usize>, message: &Message) -> Option<usize> {
        let candidates = match message.tool_calls().first() {
            Some(call) => self.by_call.get(&call.id)?,
            None => self.by_text.get(&digest(text_of(message)?))?,
        };
        let begin = match previous {
            // The message before may be the same one: a page splits a message into its text and its calls.
            Some(index) if stored[index].role() == Role::Assistant => index,
            Some(index) => index + 1,
            None => 0,
        };
        let turn = self.turns.get(begin)?;
        let first = candidates.partition_point(|index| *index < begin);
        let in_turn = candidates[first..].iter().take_while(|index| self.turns[**index] == *turn);
        let mut compared = in_turn.take(Self::MAX_CANDIDATES);
        compared.find(|index| is_same_answer(&stored[**index], message)).copied()
    }
}

/// The text of an assistant message without the white space at its ends; `None` if nothing is left.
fn text_of(message: &Message) -> Option<&str> {
    let MessageBody::Assistant { content, .. } = &message.body else { return None };
    content.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// True if an assistant message has the calls of another one, or without calls its text, except for white space at the ends.
fn is_same_answer(known: &Message, message: &Message) -> bool {
    let calls = message.tool_calls();
    if calls.is_empty() {
        return text_of(message).is_some_and(|text| text_of(known) == Some(text));
    }
    let known_calls: HashSet<&ToolCallId> = known.tool_calls().iter().map(|call| &call.id).collect();
    calls.iter().all(|call| known_calls.contains(&call.id))
}

fn with_id(message: &Message, id: MessageId) -> Message {
    let mut message = message.clone();
    if message.id != id {
        message.id = id;
    }
    message
}

/// True if a user message has the id of another one: of a message of another role, or of an answered one with other words, if
/// it is the last that the client sends. Before other messages it is an edit.
fn is_reused(stored: &[Message], known: usize, message: &Message, is_last: bool, is_repeated: bool) -> bool {
    if message.role() != Role::User {
        return false;
    }
    let has_role = stored[known].role() == Role::User;
    let is_answered = || stored[known + 1..].iter().any(|later| later.role() == Role::Assistant);
    !has_role || stored[known].body != message.body && (is_last && is_answered() || is_repeated)
}

/// The numbered uses of ids, `u1#2`, by id and words.
#[derive(Default)]
struct NumberedUses {
    by_words: HashMap<(MessageId, u64), Vec<usize>>,
    /// The first free numbered id of an id.
    free: HashMap<MessageId, MessageId>,
}

impl NumberedUses {
    fn of(stored: &[Message]) -> Self {
        let mut uses = Self::default();
        stored.iter().enumerate().for_each(|(index, message)| uses.add(index, message));
        uses
    }

    fn add(&mut self, index: usize, message: &Message) {
        if let Some((id, number)) = message.id.rsplit_once('#')
            && number.parse::<u64>().is_ok()
        {
            self.by_words.entry((id.into(), words_hash(message))).or_default().push(index);
        }
    }

    /// The use of its id that a message repeats.
    fn repeated(&self, stored: &[Message], message: &Message) -> Option<usize> {
        if self.by_words.is_empty() {
            return None;
        }
        let uses = self.by_words.get(&(message.id.clone(), words_hash(message)))?;
        uses.iter().copied().find(|index| stored[*index].body == message.body)
    }

    fn free_id(&mut self, used: &HashSet<&MessageId>, id: &MessageId) -> MessageId {
        let first = || {
            let numbered = (2_u64..).map(|number| MessageId::from(format!("{id}#{number}")));
            numbered.into_iter().find(|id| !used.contains(id)).unwrap_or_else(|| id.clone())
        };
        self.free.entry(id.clone()).or_insert_with(first).clone()
    }
}

/// Equal for messages with equal words.
fn words_hash(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let MessageBody::User { content: Content::Text(text) } = &message.body {
        text.hash(&mut hasher);
    }
    hasher.finish()
}

/// The messages up to `cut`; all if it is absent or unknown, none if it is empty.
pub(crate) fn until<'m>(stored: &'m [Message], cut: Option<&MessageId>) -> &'m [Message] {
    if cut.is_some_and(|cut| cut.is_empty()) {
        return &[];
    }
    let at = cut.and_then(|cut| stored.iter().position(|message| message.id == *cut));
    at.map_or(stored, |at| &stored[..=at])
}

/// The index of the result of each call; of several calls with one id, of the last.
pub(crate) fn results(messages: &[Message]) -> HashMap<ToolCallId, usize> {
    let mut results = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        for call in message.tool_calls() {
            results.remove(&call.id);
        }
        if let MessageBody::Tool { call, .. } = &message.body {
            results.insert(call.clone(), index);
        }
    }
    results
}

/// The same without the results of calls that `messages` do not have.
pub(crate) fn own_results(messages: &[Message]) -> HashMap<ToolCallId, usize> {
    let mut results = results(messages);
    let calls: HashSet<&ToolCallId> =
        messages.iter().flat_map(|message| message.tool_calls()).map(|call| &call.id).collect();
    results.retain(|call, _| calls.contains(call));
    results
}

/// Whether an assistant message has neither content nor calls.
fn is_empty(message: &Message) -> bool {
    let MessageBody::Assistant { content, .. } = &message.body else { return false };
    content.as_deref().is_none_or(str::is_empty)
        && message.tool_calls().is_empty()
        && message.encrypted.is_none()
}

/// The state with which the run starts. `key`: the member for the client's state, if it does not replace the whole.
pub(crate) fn state(stored: Option<Value>, sent: Option<Value>, key: Option<&str>) -> Value {
    let stored = stored.unwrap_or_else(|| Value::Object(Map::new()));
    let sent = match (sent, key) {
        (Some(sent), Some(key)) => {
            client_part(&stored, sent, key).map(|part| serde_json::json!({ key: part }))
        }
        (sent, _) => sent,
    };
    match (stored, sent) {
        (stored, None | Some(Value::Null)) => stored,
        (Value::Object(mut stored), Some(Value::Object(sent))) => {
            stored.extend(sent);
            Value::Object(stored)
        }
        (stored, Some(Value::Object(sent))) if sent.is_empty() => stored,
        (_, Some(sent)) => sent,
    }
}

/// The state with which the run starts, as [`state`], and whether the client has it: it has sent the same, or none while it
/// is empty.
pub(crate) fn merge_state(stored: Option<Value>, sent: Option<Value>, key: Option<&str>) -> (Value, bool) {
    let is_known = match (&stored, &sent, key) {
        // The members that are sent replace the stored ones of the same name.
        (Some(Value::Object(stored)), Some(Value::Object(sent)), None) => {
            Some(stored.keys().all(|name| sent.contains_key(name)))
        }
        (None, Some(Value::Object(_)), None) => Some(true),
        _ => None,
    };
    if let Some(is_known) = is_known {
        return (state(stored, sent, key), is_known);
    }
    let before = sent.clone().unwrap_or_else(|| Value::Object(Map::new()));
    let merged = state(stored, sent, key);
    let is_known = merged == before;
    (merged, is_known)
}

/// The client's part of the state that it sends, which is stored under `key`; `None` if it changes nothing.
///
/// A client is shown the whole stored state and sends that back, usually with changes. So an object with the member `key`
/// is the whole state: the part is that member, and members that the stored state does not have, which the client has
/// added beside it. The other members are the agent's. An object without it is the part itself, unless `key` was never set:
/// then the members that are equal to stored ones are the agent's.
fn client_part(stored: &Value, sent: Value, key: &str) -> Option<Value> {
    let Value::Object(mut sent) = sent else { return (!sent.is_null()).then_some(sent) };
    match sent.remove(key) {
        Some(Value::Object(mut part)) => {
            part.extend(sent.into_iter().filter(|(name, _)| stored.get(name).is_none()));
            Some(Value::Object(part))
        }
        Some(part) => Some(part),
        None => {
            if stored.get(key).is_none() {
                sent.retain(|name, value| stored.get(name) != Some(value));
            }
            let has_own = sent.iter().any(|(name, value)| stored.get(name) != Some(value));
            has_own.then_some(Value::Object(sent))
        }
    }
}

#[cfg(test)]
mod tests {
    use agentwire_core::event::{Content, ToolCall};
    use serde_json::json;

    use super::*;

    fn list(ids: &str) -> Vec<Message> {
        ids.split_whitespace()
            .map(|id| match id.starts_with('a') {
                true => Message::assistant(id, "said"),
                false => Message::user(id, "asked"),
            })
            .collect()
    }

    fn ids(messages: &[Message]) -> String {
        messages.iter().map(|message| message.id.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_last_message_alone_is_appended() {
        for policy in [History::Merge, History::Server] {
            let merged = messages(policy, list("u1 a1"), &list("u2"), None);
            assert_eq!(ids(&merged), "u1 a1 u2");
        }
        assert_eq!(ids(&messages(History::Client, list("u1 a1"), &list("u2"), None)), "u2");
    }

    #[test]
    fn a_repeated_conversation_is_not_duplicated() {
        for policy in [History::Merge, History::Server, History::Client] {
            let merged = messages(policy, list("u1 a1"), &list("u1 a1 u2"), None);
            assert_eq!(ids(&merged), "u1 a1 u2");
        }
    }

    #[test]
    fn unknown_messages_are_inserted_where_the_client_has_them() {
        let merged = messages(History::Merge, list("u1 a1 u2 a2"), &list("u1 x1 x2 a1 a2 u3"), None);
        assert_eq!(ids(&merged), "u1 x1 x2 a1 u2 a2 u3");
    }

    #[test]
    fn new_messages_at_the_end_are_appended_even_if_others_are_missing() {
        let merged = messages(History::Merge, list("u1 a1 u2 a2"), &list("u1 u2 u3"), None);
        assert_eq!(ids(&merged), "u1 a1 u2 a2 u3");
        let merged = messages(History::Merge, list("u1 a1"), &list("s1 u1 u2"), None);
        assert_eq!(ids(&merged), "s1 u1 a1 u2");
    }

    #[test]
    fn server_history_ignores_assistant_messages_of_the_client() {
        let merged = messages(History::Server, list("u1"), &list("u1 a9 u2"), None);
        assert_eq!(ids(&merged), "u1 u2");
    }

    #[test]
    fn user_messages_can_be_edited_and_assistant_messages_cannot() {
        let sent = [Message::user("u1", "edited"), Message::assistant("a1", "forged")];
        let merged = messages(History::Merge, list("u1 a1"), &sent, None);
        assert_eq!(merged, [Message::user("u1", "edited"), Message::assistant("a1", "said")]);
    }

    /// A page that calls all its questions `u1`, and sends the last one or all that it has.
    #[test]
    fn a_question_under_a_used_id_is_a_new_one() {
        let asked = |id: &str, text: &str| Message::user(id, text);
        for policy in [History::Merge, History::Server] {
            let stored = vec![asked("u1", "one"), Message::assistant("a1", "said")];
            let second = messages(policy, stored.clone(), &[asked("u1", "two")], None);
            assert_eq!(second, [&stored[..], &[asked("u1#2", "two")]].concat());
            let stored = [&second[..], &[Message::assistant("a2", "said")]].concat();
            let sent = [&stored[..2], &[asked("u1", "two")], &stored[3..], &[asked("u1", "three")]].concat();
            for sent in [&sent[..], &sent[4..]] {
                let third = messages(policy, stored.clone(), sent, None);
                assert_eq!(third, [&stored[..], &[asked("u1#3", "three")]].concat());
            }
            // The id of an answer.
            let merged = messages(policy, stored.clone(), &[asked("a1", "mine")], None);
            assert_eq!(merged, [&stored[..], &[asked("a1#2", "mine")]].concat());
            // A message that was not answered is sent again, perhaps with other words.
            let open = vec![asked("u1", "one")];
            assert_eq!(messages(policy, open.clone(), &[asked("u1", "other")], None).len(), 1);
            assert_eq!(messages(policy, stored.clone(), &[asked("u1", "one")], None), stored);
        }
    }

    #[test]
    fn an_edit_of_the_first_message_removes_all() {
        let merged = messages(History::Merge, list("u1 a1 u2 a2"), &list("u3"), Some(&"".into()));
        assert_eq!(ids(&merged), "u3");
    }

    #[test]
    fn an_edit_removes_the_messages_after_it() {
        let merged = messages(History::Merge, list("u1 a1 u2 a2"), &list("u1 a1 u2"), Some(&"u2".into()));
        assert_eq!(ids(&merged), "u1 a1 u2");
    }

    fn called(id: &str, call: &str) -> Message {
        let calls = vec![ToolCall::new(call, "look", "{}")];
        Message::new(id, MessageBody::Assistant { content: None, tool_calls: Some(calls) })
    }

    fn result(id: &str, call: &str) -> Message {
        let content = Content::from(id);
        Message::new(id, MessageBody::Tool { call: call.into(), content, error: None })
    }

    #[test]
    fn a_call_has_one_result_under_whatever_message_id() {
        let stored = || vec![Message::user("u1", "?"), called("a1", "c1"), result("r1", "c1")];
        let sent =
            [Message::user("u1", "?"), called("a1", "c1"), result("mine", "c1"), Message::user("u2", "!")];
        for policy in [History::Merge, History::Server] {
            assert_eq!(ids(&messages(policy, stored(), &sent, None)), "u1 a1 r1 u2");
        }
    }

    #[test]
    fn a_reused_call_id_gets_a_new_result() {
        let stored = || vec![called("a1", "c1"), result("r1", "c1"), called("a2", "c1")];
        for policy in [History::Merge, History::Server] {
            assert_eq!(ids(&messages(policy, stored(), &[result("r2", "c1")], None)), "a1 r1 a2 r2");
        }
    }

    #[test]
    fn empty_assistant_messages_are_ignored() {
        let sent = [Message::user("u1", "?"), Message::assistant("a1", ""), Message::user("u2", "!")];
        assert_eq!(ids(&messages(History::Merge, list("u1"), &sent, None)), "u1 u2");
        assert_eq!(
            ids(&messages(History::Merge, list("u1 a1"), &sent, None)),
            "u1 a1 u2",
            "unless it is known"
        );
    }

    #[test]
    fn a_message_that_a_snapshot_renamed_is_the_stored_one() {
        let said = |id: &str, text: &str| Message::assistant(id, text);
        let asked = |id: &str| Message::user(id, "asked");
        let stored = || vec![asked("u1"), said("new1", "It rains."), asked("u2"), said("new2", "It rains.")];
        let sent =
            [asked("u1"), said("old1", "It rains. "), asked("u2"), said("old2", "It rains. "), asked("u3")];
        let merged = messages(History::Merge, stored(), &sent, None);
        assert_eq!(ids(&merged), "u1 new1 u2 new2 u3");
        let sent = [asked("u1"), said("new1", "It rains."), said("own", "It rains."), asked("u2")];
        let merged = messages(History::Merge, stored(), &sent, None);
        assert_eq!(ids(&merged), "u1 new1 own u2 new2", "the client has both");
        let sent = [asked("u1"), said("old1", "It snows."), asked("u2")];
        assert_eq!(
            ids(&messages(History::Merge, stored(), &sent, None)),
            "u1 old1 new1 u2 new2",
            "other words"
        );

        let both = |id: &str| {
            let mut message = called(id, "c1");
            let MessageBody::Assistant { content, .. } = &mut message.body else { unreachable!() };
            *content = Some("Let me look.".into());
            message
        };
        let stored = || vec![asked("u1"), both("new1"), result("r1", "c1")];
        let sent = [
            asked("u1"),
            said("old1", "Let me look."),
            called("old2", "c1"),
            result("r2", "c1"),
            asked("u2"),
        ];
        assert_eq!(ids(&messages(History::Merge, stored(), &sent, None)), "u1 new1 r1 u2");
        let sent = [asked("u1"), both("old1"), result("r2", "c1"), asked("u2")];
        assert_eq!(ids(&messages(History::Merge, stored(), &sent, None)), "u1 new1 r1 u2");
    }

    #[test]
    fn states_merge_by_member() {
        let stored = || Some(json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(state(stored(), None, None), json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(state(stored(), Some(json!({})), None), json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(state(stored(), Some(json!({"b": 3})), None), json!({"a": 1, "b": 3}));
        assert_eq!(state(stored(), Some(json!([1])), None), json!([1]));
        assert_eq!(state(Some(json!(7)), Some(json!({})), None), json!(7));
    }

    #[test]
    fn a_client_knows_the_state_that_it_has_sent() {
        let object = json!({"a": 1});
        let stored =
            [None, Some(json!({})), Some(object.clone()), Some(json!({"a": 2, "b": 3})), Some(json!([1]))];
        let sent = [
            None,
            Some(json!(null)),
            Some(json!({})),
            Some(object),
            Some(json!({"ui": 1})),
            Some(json!([1])),
        ];
        for (stored, sent) in stored.iter().flat_map(|stored| sent.iter().map(move |sent| (stored, sent))) {
            for key in [None, Some("ui")] {
                let (merged, is_known) = merge_state(stored.clone(), sent.clone(), key);
                assert_eq!(merged, state(stored.clone(), sent.clone(), key));
                let before = sent.clone().unwrap_or_else(|| json!({}));
                assert_eq!(is_known, merged == before, "{stored:?} {sent:?} {key:?}");
            }
        }
    }

    #[test]
    fn the_state_of_a_client_stays_one_level_below_its_key() {
        let keyed = |stored: &Value, sent: Value| state(Some(stored.clone()), Some(sent), Some("ui"));
        assert_eq!(state(None, Some(json!({"x": 1})), Some("ui")), json!({"ui": {"x": 1}}));
        let stored = json!({"ui": {"x": 1}, "plan": [1]});
        // The whole state, as the client was shown it; also as a first state.
        assert_eq!(keyed(&stored, stored.clone()), stored);
        assert_eq!(state(None, Some(json!({"ui": {"x": 1}})), Some("ui")), json!({"ui": {"x": 1}}));
        // With changes of the client, in its part and beside it.
        assert_eq!(
            keyed(&stored, json!({"ui": {"x": 2}, "plan": [1], "dark": true})),
            json!({"ui": {"x": 2, "dark": true}, "plan": [1]})
        );
        assert_eq!(keyed(&stored, json!({"ui": {}, "plan": [1]})), json!({"ui": {}, "plan": [1]}));
        // A member of the agent is not the client's to change; it may be an old copy.
        assert_eq!(keyed(&stored, json!({"ui": {"x": 1}, "plan": []})), stored);
        // A client that only knows its own part.
        assert_eq!(keyed(&stored, json!({"x": 3})), json!({"ui": {"x": 3}, "plan": [1]}));
        assert_eq!(keyed(&stored, json!([3])), json!({"ui": [3], "plan": [1]}));
        // Nothing of the client's.
        for nothing in [json!({}), json!(null), json!({"plan": [1]})] {
            assert_eq!(keyed(&stored, nothing.clone()), stored, "{nothing}");
        }
        assert_eq!(keyed(&json!({"plan": [1]}), json!({"plan": [1]})), json!({"plan": [1]}));
        assert_eq!(
            keyed(&json!({"plan": [1]}), json!({"plan": [1], "x": 1})),
            json!({"plan": [1], "ui": {"x": 1}})
        );
    }
}
