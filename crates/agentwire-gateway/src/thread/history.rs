//! What a run begins with: the stored conversation and state, and what the client sends, made one.
//!
//! Messages, by policy:
//! - `client`: what the client sends, as it is.
//! - `server`: what is stored; of what the client sends, user and tool messages that are not known yet are added.
//! - `merge`: by message id. Known messages stay as they are stored, except that a person may edit what a person said;
//!   new ones go where they stand between known ones in the client's list, or to the end. A client may send the last
//!   message only, or leave out what others said.
//!
//! A call has one result. A client that builds its own messages (an AI SDK page sends a result under an id of its making)
//! means the stored one when it sends another for the same call. Nor is an answer that holds nothing, as a page keeps
//! it of a run that failed, part of the conversation.
//!
//! State: if the client sends none, or an empty object, the stored one. Members of an object that the client sends
//! replace the stored members of that name, the others stay. Anything else replaces the state.

use std::collections::{HashMap, HashSet};

use agentwire_core::event::{Message, MessageBody, MessageId, Role, ToolCallId};
use serde_json::Value;

use crate::settings::History;

/// The conversation that the agent gets. `cut` is a message after which the client wants the conversation to go
/// on anew, as after an edit.
pub(crate) fn messages(
    policy: History,
    mut stored: Vec<Message>,
    sent: &[Message],
    cut: Option<&MessageId>,
) -> Vec<Message> {
    if policy == History::Client {
        return sent.to_vec();
    }
    if let Some(at) = cut.and_then(|cut| stored.iter().position(|message| message.id == *cut)) {
        stored.truncate(at + 1);
    }
    let places: HashMap<MessageId, usize> =
        stored.iter().enumerate().map(|(place, message)| (message.id.clone(), place)).collect();
    let results = results(&stored);
    // New messages by the known one that they follow, as far as another known one comes later; the others are what
    // the client wants to add, even if it did not send everything that was said before.
    let mut behind: Vec<Vec<Message>> = vec![Vec::new(); stored.len()];
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let mut place: Option<usize> = None;
    for message in sent {
        let known = places.get(&message.id).or_else(|| match &message.body {
            MessageBody::Tool { call, .. } => results.get(call),
            _ => None,
        });
        if let Some(known) = known {
            let both_user = message.role() == Role::User && stored[*known].role() == Role::User;
            if policy == History::Merge {
                place.map_or(&mut first, |place| &mut behind[place]).append(&mut last);
                if both_user {
                    stored[*known] = message.clone();
                }
            }
            place = Some(*known);
            continue;
        }
        let is_new_turn = matches!(message.body, MessageBody::User { .. } | MessageBody::Tool { .. });
        let is_wanted = is_new_turn || (policy == History::Merge && !is_empty_answer(message));
        if is_wanted && seen.insert(&message.id) {
            last.push(message.clone());
        }
    }
    let mut merged = first;
    for (message, followers) in stored.into_iter().zip(behind) {
        merged.push(message);
        merged.extend(followers);
    }
    merged.extend(last);
    merged
}

/// Where the result of each call stands. An id that is used again means the last call of that id.
pub(crate) fn results(messages: &[Message]) -> HashMap<ToolCallId, usize> {
    let mut results = HashMap::new();
    for (place, message) in messages.iter().enumerate() {
        for call in message.tool_calls() {
            results.remove(&call.id);
        }
        if let MessageBody::Tool { call, .. } = &message.body {
            results.insert(call.clone(), place);
        }
    }
    results
}

/// Whether nothing was said and nothing called.
fn is_empty_answer(message: &Message) -> bool {
    let MessageBody::Assistant { content, .. } = &message.body else { return false };
    content.as_deref().is_none_or(str::is_empty)
        && message.tool_calls().is_empty()
        && message.encrypted.is_none()
}

/// The state that the run begins with.
pub(crate) fn state(stored: Option<Value>, sent: Option<Value>, key: Option<&str>) -> Value {
    let stored = stored.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let sent = match (sent, key) {
        (Some(sent), Some(key)) => Some(serde_json::json!({ key: sent })),
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
    fn the_last_message_alone_is_enough() {
        for policy in [History::Merge, History::Server] {
            let merged = messages(policy, list("u1 a1"), &list("u2"), None);
            assert_eq!(ids(&merged), "u1 a1 u2");
        }
        assert_eq!(ids(&messages(History::Client, list("u1 a1"), &list("u2"), None)), "u2");
    }

    #[test]
    fn the_whole_conversation_is_not_doubled() {
        for policy in [History::Merge, History::Server, History::Client] {
            let merged = messages(policy, list("u1 a1"), &list("u1 a1 u2"), None);
            assert_eq!(ids(&merged), "u1 a1 u2");
        }
    }

    #[test]
    fn unknown_messages_go_where_the_client_has_them() {
        let merged = messages(History::Merge, list("u1 a1 u2 a2"), &list("u1 x1 x2 a1 a2 u3"), None);
        assert_eq!(ids(&merged), "u1 x1 x2 a1 u2 a2 u3");
    }

    #[test]
    fn what_is_new_at_the_end_stays_at_the_end_whatever_the_client_left_out() {
        let merged = messages(History::Merge, list("u1 a1 u2 a2"), &list("u1 u2 u3"), None);
        assert_eq!(ids(&merged), "u1 a1 u2 a2 u3");
        let merged = messages(History::Merge, list("u1 a1"), &list("s1 u1 u2"), None);
        assert_eq!(ids(&merged), "s1 u1 a1 u2");
    }

    #[test]
    fn a_client_cannot_put_words_into_the_agents_mouth_under_server_history() {
        let merged = messages(History::Server, list("u1"), &list("u1 a9 u2"), None);
        assert_eq!(ids(&merged), "u1 u2");
    }

    #[test]
    fn what_the_agent_said_cannot_be_rewritten_and_what_a_person_said_can() {
        let sent = [Message::user("u1", "edited"), Message::assistant("a1", "forged")];
        let merged = messages(History::Merge, list("u1 a1"), &sent, None);
        assert_eq!(merged, [Message::user("u1", "edited"), Message::assistant("a1", "said")]);
    }

    #[test]
    fn an_edit_cuts_what_followed() {
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
    fn a_call_has_one_result_whatever_a_client_calls_it() {
        let stored = || vec![Message::user("u1", "?"), called("a1", "c1"), result("r1", "c1")];
        let sent =
            [Message::user("u1", "?"), called("a1", "c1"), result("mine", "c1"), Message::user("u2", "!")];
        for policy in [History::Merge, History::Server] {
            assert_eq!(ids(&messages(policy, stored(), &sent, None)), "u1 a1 r1 u2");
        }
    }

    #[test]
    fn a_call_that_waits_gets_its_result_even_if_its_id_was_used_before() {
        let stored = || vec![called("a1", "c1"), result("r1", "c1"), called("a2", "c1")];
        for policy in [History::Merge, History::Server] {
            assert_eq!(ids(&messages(policy, stored(), &[result("r2", "c1")], None)), "a1 r1 a2 r2");
        }
    }

    #[test]
    fn an_answer_that_holds_nothing_is_not_taken_in() {
        let sent = [Message::user("u1", "?"), Message::assistant("a1", ""), Message::user("u2", "!")];
        assert_eq!(ids(&messages(History::Merge, list("u1"), &sent, None)), "u1 u2");
        assert_eq!(
            ids(&messages(History::Merge, list("u1 a1"), &sent, None)),
            "u1 a1 u2",
            "unless it is known"
        );
    }

    #[test]
    fn states_merge_by_member() {
        let stored = || Some(json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(state(stored(), None, None), json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(state(stored(), Some(json!({})), None), json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(state(stored(), Some(json!({"b": 3})), None), json!({"a": 1, "b": 3}));
        assert_eq!(state(stored(), Some(json!([1])), None), json!([1]));
        assert_eq!(state(Some(json!(7)), Some(json!({})), None), json!(7));
        assert_eq!(
            state(None, Some(json!({"x": 1})), Some("frontend_state")),
            json!({"frontend_state": {"x": 1}})
        );
    }
}
