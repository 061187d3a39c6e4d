//! The parsed conversations of recently used threads.
//!
//! The store has the messages of a thread as text. A run needs them as messages, and writes them again at its end with a few
//! more. A [`Conversation`] has both forms: its messages are shared by all who read them, and the text of those that a run has
//! not changed is copied instead of being written anew. [`Conversations`] keeps those of the last minutes, within limits, so
//! that the next run on the thread need not parse them. The store stays the authority: a kept conversation is used only if
//! its text is the stored one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agentwire_core::{
    event::{Message, ThreadId},
    format::ag_ui,
};
use agentwire_store::{Owner, Text};
use tokio::time::Instant;

use super::log_codec;

/// Shorter texts are parsed in less time than a look at the kept ones is worth.
const MIN_TEXT: usize = 8 << 10;

/// The largest conversation that is kept, in bytes of memory.
const MAX_CONVERSATION: usize = 8 << 20;

/// The most bytes of all kept conversations.
const MAX_BYTES: usize = 32 << 20;

/// Conversations that nobody has used for so long are dropped.
const UNUSED: Duration = Duration::from_secs(300);

/// About the bytes of a message besides its texts.
const MESSAGE_BYTES: usize = 256;

/// The messages of a thread, as text and parsed.
#[derive(Debug)]
pub(crate) struct Conversation {
    text: Text,
    messages: Vec<Message>,
    /// The end of each message in the text. Empty if there is something else between them.
    ends: Vec<usize>,
}

impl Default for Conversation {
    /// Without messages.
    fn default() -> Self {
        Self { text: "[]".into(), messages: Vec::new(), ends: Vec::new() }
    }
}

impl Conversation {
    /// Parses stored messages. If they cannot be read, the error is logged and there are none.
    pub(crate) fn parse(text: Text) -> Self {
        let found = log_codec::parse_messages_with_ranges(&text);
        let mut start = 1;
        let mut is_next = |range: &std::ops::Range<usize>| {
            let is_next = range.start == start && matches!(text.as_bytes().get(range.end), Some(b',' | b']'));
            start = range.end + 1;
            is_next
        };
        let is_compact = found.iter().all(|(_, range)| is_next(range)) && start == text.len();
        let ends = if is_compact { found.iter().map(|(_, range)| range.end).collect() } else { Vec::new() };
        Self { messages: found.into_iter().map(|(message, _)| message).collect(), ends, text }
    }

    /// The stored form.
    pub(crate) fn text(&self) -> &Text {
        &self.text
    }

    /// The messages; a copy of the list shares them.
    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The number of the first messages of a list that are this conversation's, so that their text is known.
    fn shared(&self, messages: &[Message]) -> usize {
        let pairs = messages.iter().zip(&self.messages).take(self.ends.len());
        pairs.take_while(|(one, other)| one.is_same(other)).count()
    }

    /// The length of a list of messages as stored text.
    pub(crate) fn stored_length(&self, messages: &[Message]) -> usize {
        let shared = self.shared(messages);
        match (shared.checked_sub(1), &messages[shared..]) {
            (None, []) => 0,
            (None, rest) => ag_ui::messages_to_json(rest).len(),
            (Some(last), []) => self.ends[last] + 1,
            // With a comma instead of the bracket.
            (Some(last), rest) => self.ends[last] + ag_ui::messages_to_json(rest).len(),
        }
    }

    /// The stored text of a list of messages, as [`ag_ui::messages_to_json`] writes it; and the conversation with them, if it is
    /// worth keeping. Its new messages are read from their text, so that it is the one that [`Self::parse`] finds.
    pub(crate) fn continued(&self, messages: &[Message]) -> (Text, Option<Self>) {
        let (shared, new) = messages.split_at(self.shared(messages));
        let new_text = ag_ui::messages_to_json(new);
        let Some(before) = shared.len().checked_sub(1).map(|last| self.ends[last]) else {
            return (new_text.into(), None);
        };
        let mut text = String::with_capacity(before + new_text.len());
        text.push_str(&self.text[..before]);
        if !new.is_empty() {
            text.push(',');
        }
        text.push_str(&new_text[1..]);
        let text = Text::from(text);
        if new.len() > shared.len() || text.len() < MIN_TEXT {
            return (text, None);
        }
        let parsed = Self::parse(new_text.into());
        if parsed.ends.len() != new.len() {
            return (text, None);
        }
        let ends =
            self.ends[..shared.len()].iter().copied().chain(parsed.ends.iter().map(|end| before + end));
        let messages = shared.iter().cloned().chain(parsed.messages).collect();
        (text.clone(), Some(Self { ends: ends.collect(), messages, text }))
    }

    /// About its bytes in memory.
    fn bytes(&self) -> usize {
        2 * self.text.len() + self.messages.len() * MESSAGE_BYTES
    }
}

type Key = (Owner, ThreadId);

#[derive(Debug)]
struct Kept {
    conversation: Arc<Conversation>,
    used: Instant,
}

#[derive(Debug, Default)]
struct Inner {
    kept: HashMap<Key, Kept>,
    bytes: usize,
}

/// The parsed conversations of recently used threads.
#[derive(Debug, Default)]
pub(crate) struct Conversations(Mutex<Inner>);

impl Conversations {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kept conversation of a thread with that stored text.
    pub(crate) fn find(&self, owner: &Owner, thread: &ThreadId, text: &Text) -> Option<Arc<Conversation>> {
        if text.len() < MIN_TEXT {
            return None;
        }
        let found = {
            let mut inner = self.lock();
            let kept = inner.kept.get_mut(&(owner.clone(), thread.clone()))?;
            kept.used = Instant::now();
            kept.conversation.clone()
        };
        // Not under the lock: the texts are compared byte by byte, unless they are the same in memory.
        (Arc::ptr_eq(&found.text, text) || found.text == *text).then_some(found)
    }

    /// Keeps a conversation in place of the one that its thread had.
    pub(crate) fn keep(&self, owner: &Owner, thread: &ThreadId, conversation: Arc<Conversation>) {
        let bytes = conversation.bytes();
        let is_kept = conversation.text.len() >= MIN_TEXT && bytes <= MAX_CONVERSATION;
        let key = (owner.clone(), thread.clone());
        // Dropped outside of the lock.
        let mut dropped = Vec::new();
        let mut inner = self.lock();
        dropped.extend(inner.remove(&key));
        if is_kept {
            while inner.bytes + bytes > MAX_BYTES
                && let Some(oldest) =
                    inner.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone())
            {
                dropped.extend(inner.remove(&oldest));
            }
            inner.bytes += bytes;
            inner.kept.insert(key, Kept { conversation, used: Instant::now() });
        }
        drop(inner);
    }

    /// Drops the conversation of a thread.
    pub(crate) fn forget(&self, owner: &Owner, thread: &ThreadId) {
        let dropped = self.lock().remove(&(owner.clone(), thread.clone()));
        drop(dropped);
    }

    /// Drops those that nobody has used for a while; all of them if memory is short.
    pub(crate) fn drop_unused(&self, is_memory_short: bool) {
        let mut inner = self.lock();
        let is_unused = |kept: &Kept| is_memory_short || kept.used.elapsed() > UNUSED;
        let keys: Vec<Key> =
            inner.kept.iter().filter(|(_, kept)| is_unused(kept)).map(|(key, _)| key.clone()).collect();
        let dropped: Vec<_> = keys.iter().filter_map(|key| inner.remove(key)).collect();
        drop(inner);
        drop(dropped);
    }
}

impl Inner {
    fn remove(&mut self, key: &Key) -> Option<Kept> {
        let removed = self.kept.remove(key)?;
        self.bytes -= removed.conversation.bytes();
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &str) -> Vec<Message> {
        let text = "said \"this\"\n".repeat(1 + MIN_TEXT / 24);
        ids.split_whitespace()
            .map(|id| match id.starts_with('a') {
                true => Message::assistant(id, &*text),
                false => Message::user(id, &*text),
            })
            .collect()
    }

    fn parsed(messages: &[Message]) -> Conversation {
        Conversation::parse(ag_ui::messages_to_json(messages).into())
    }

    /// Checks the lengths and texts of a list beside those of the plain writer, and that the continued conversation is the
    /// one that a parser finds.
    #[track_caller]
    fn is_written(before: &Conversation, messages: &[Message], shared: usize) {
        let text = ag_ui::messages_to_json(messages);
        assert_eq!(before.shared(messages), shared);
        assert_eq!(before.stored_length(messages), if messages.is_empty() { 0 } else { text.len() });
        let (written, continued) = before.continued(messages);
        assert_eq!(*written, *text);
        let is_kept = shared > 0 && messages.len() - shared <= shared;
        assert_eq!(continued.is_some(), is_kept, "{shared} of {}", messages.len());
        let Some(continued) = continued else { return };
        let fresh = Conversation::parse(text.as_str().into());
        assert_eq!((&*continued.text, &continued.ends), (&*fresh.text, &fresh.ends));
        assert_eq!(continued.messages, fresh.messages);
        let kept = continued.messages[..shared].iter().zip(before.messages());
        assert!(kept.into_iter().all(|(one, other)| one.is_same(other)), "unchanged messages are shared");
    }

    #[test]
    fn texts_are_those_of_the_writer() {
        let before = parsed(&list("u1 a1 u2 a2"));
        let old = before.messages().to_vec();
        is_written(&before, &old, 4);
        is_written(&before, &[old.clone(), list("u3 a3")].concat(), 4);
        is_written(&before, &[old[..2].to_vec(), list("u9")].concat(), 2);
        is_written(&before, &[list("s"), old.clone()].concat(), 0);
        is_written(&before, &[], 0);
        is_written(&parsed(&[]), &list("u1"), 0);
        let mut changed = old;
        changed[1].name = Some("Ada".into());
        is_written(&before, &changed, 1);
    }

    #[test]
    fn text_of_another_form_is_not_copied() {
        let known = r#"{"id":"u","role":"user","content":"hi"}"#;
        let unknown = r#"{"id":"x","role":"robot","content":"hi"}"#;
        for text in [format!("[{known},{unknown}]"), format!("[ {known}]"), format!("[{known}]\n")] {
            let conversation = Conversation::parse(text.as_str().into());
            assert_eq!((conversation.messages.len(), conversation.ends.len()), (1, 0), "{text}");
            assert_eq!(*conversation.continued(conversation.messages()).0, *format!("[{known}]"), "{text}");
        }
        assert_eq!(Conversation::parse("no list".into()).messages, []);
    }

    #[tokio::test(start_paused = true)]
    async fn kept_conversations_are_bounded_and_checked() {
        let (owner, all) = (Owner::new("t", "u", "a"), Conversations::default());
        let thread = |number: usize| ThreadId::from(format!("t{number}"));
        let long = Arc::new(parsed(&list("u1 a1")));
        all.keep(&owner, &thread(0), long.clone());
        let same: Text = (&**long.text()).into();
        assert!(all.find(&owner, &thread(0), &same).is_some());
        assert!(
            all.find(&owner, &thread(0), &parsed(&list("u2 a1")).text).is_none(),
            "the store has another text"
        );
        assert!(all.find(&Owner::new("t", "other", "a"), &thread(0), &same).is_none());
        all.forget(&owner, &thread(0));
        assert!(all.find(&owner, &thread(0), &same).is_none());
        let count = 2 * MAX_BYTES / long.bytes();
        for number in 0..count {
            tokio::time::advance(Duration::from_millis(1)).await;
            all.keep(&owner, &thread(number), long.clone());
        }
        let held = || {
            let inner = all.lock();
            (inner.kept.len(), inner.bytes)
        };
        assert!(held().1 <= MAX_BYTES);
        assert_eq!(held().1, held().0 * long.bytes());
        assert!(
            all.find(&owner, &thread(0), &same).is_none()
                && all.find(&owner, &thread(count - 1), &same).is_some()
        );
        tokio::time::advance(UNUSED).await;
        all.find(&owner, &thread(count - 1), &same);
        tokio::time::advance(Duration::from_secs(1)).await;
        all.drop_unused(false);
        assert_eq!(held().0, 1);
        all.drop_unused(true);
        assert_eq!(held(), (0, 0));
    }
}
