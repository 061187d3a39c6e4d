//! Branches: requests that repeat the start of the conversation and continue it anew.
//!
//! Protocols other than the AI SDK have no word for "answer again" and for an edited question: a client sends the messages
//! that shall remain. Two lists have this meaning:
//! - the conversation up to a question that has an answer, and nothing new: that answer is made again;
//! - the conversation up to the end of an earlier turn, then a new question: it replaces the later turns.
//!
//! A list that starts in the middle of the conversation, or has no message of the agent, is of a client that does not keep
//! the conversation; its new messages are appended. Reasoning, activities and messages of the application may be absent.

use agentwire_core::event::{Message, MessageBody, MessageId, Role, RunInput};
use agentwire_store::{Owner, StoreError};

use crate::gateway::Gateway;

impl Gateway {
    /// The message after which a request without answers continues the conversation anew.
    pub(crate) async fn branch_point(
        &self,
        owner: &Owner,
        input: &RunInput,
    ) -> Result<Option<MessageId>, StoreError> {
        let Some(last) = input.messages.last().filter(|last| last.role() == Role::User) else {
            return Ok(None);
        };
        // The run parses them as well, so that it finds them kept.
        let stored = match self.conversation(owner, &input.thread).await {
            Ok(Some(stored)) => stored,
            Ok(None) | Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stored = stored.messages();
        // Most requests have one new question.
        let is_known = || stored.iter().any(|message| message.id == last.id);
        let has_agent = input.messages.iter().any(|message| message.role() == Role::Assistant);
        if !has_agent && !is_known() {
            return Ok(None);
        }
        Ok(branch_point(stored, &input.messages))
    }
}

/// True for the messages that a client which keeps the conversation has in any case.
fn is_kept(message: &Message) -> bool {
    matches!(
        message.body,
        MessageBody::User { .. } | MessageBody::Assistant { .. } | MessageBody::Tool { .. }
    )
}

fn is_same(stored: &Message, sent: &Message) -> bool {
    match (&stored.body, &sent.body) {
        (MessageBody::Tool { call, .. }, MessageBody::Tool { call: other, .. }) => call == other,
        (MessageBody::User { .. }, MessageBody::User { .. }) => {
            stored.id == sent.id && stored.body == sent.body
        }
        _ => stored.id == sent.id && stored.role() == sent.role(),
    }
}

fn branch_point(stored: &[Message], sent: &[Message]) -> Option<MessageId> {
    let kept = stored.iter().enumerate().filter(|(_, message)| is_kept(message));
    let mut kept = kept.peekable();
    let mut sent = sent.iter().filter(|message| is_kept(message)).peekable();
    let mut last = None;
    while let (Some((_, known)), Some(next)) = (kept.peek(), sent.peek())
        && is_same(known, next)
    {
        last = Some(*known);
        kept.next();
        sent.next();
    }
    let (last, (following, next)) = (last?, kept.next()?);
    match (last.role(), sent.next()) {
        (Role::User, None) => Some(last.id.clone()),
        (Role::Assistant | Role::Tool, Some(new))
            if new.role() == Role::User
                && next.role() == Role::User
                && stored.iter().all(|known| known.id != new.id)
                && sent.next().is_none() =>
        {
            // The reasoning and activities of the turn before remain.
            Some(stored[following - 1].id.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &str) -> Vec<Message> {
        let message = |id: &str| match &id[..1] {
            "a" => Message::assistant(id, "said"),
            "s" => Message::new(id, MessageBody::System { content: "be brief".into() }),
            "r" => Message::new(id, MessageBody::Reasoning { content: "hm".into() }),
            _ => Message::user(id, "asked"),
        };
        ids.split_whitespace().map(message).collect()
    }

    #[test]
    fn branches_are_told_from_short_lists() {
        for (stored, sent, point) in [
            // An answer is made again.
            ("u1 a1", "u1", Some("u1")),
            ("u1 a1 u2 r2 a2", "s u1 a1 u2", Some("u2")),
            // A question is edited.
            ("u1 a1 u2 a2", "u1 a1 u3", Some("a1")),
            ("s1 u1 a1 r1 u2 a2", "u1 a1 u3", Some("r1")),
            ("u1 a1 u2 a2 u3 a3", "s9 u1 a1 u4", Some("a1")),
            // The conversation goes on.
            ("u1 a1", "u1 a1 u2", None),
            ("u1", "u1", None),
            ("", "u1", None),
            // A client that does not keep the conversation.
            ("u1 a1 u2 a2", "u3", None),
            ("u1 a1 u2 a2", "u1 u2 u3", None),
            ("u1 a1 u2 a2", "u1 u3", None),
            ("u1 a1 u2 a2", "u2 a2 u3", None),
            ("u1 a1 u2 a2", "u2", None),
            ("u1 a1 u2 a2", "u1 a1", None),
            // Messages of others in between.
            ("u1 a1 u2 a2", "u1 a1 x2 u3", None),
            ("u1 a1 a2 u2", "u1 a1 u3", None),
        ] {
            let found = branch_point(&list(stored), &list(sent));
            assert_eq!(found.as_ref().map(MessageId::as_str), point, "{stored} / {sent}");
        }
        let mut other_words = list("u1");
        other_words[0] = Message::user("u1", "asked otherwise");
        assert_eq!(branch_point(&list("u1 a1"), &other_words), None, "a reused id is a new question");
    }
}
