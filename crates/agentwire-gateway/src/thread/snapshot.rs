//! Snapshots of a thread: its messages and its state as a client would hold them now.

use std::sync::Arc;

use agentwire_core::{
    event::{Interrupt, Message, ThreadId},
    format::ag_ui,
};
use agentwire_store::{Owner, StoreError, Text};

use crate::{
    agent::{self, Recalled},
    cpu_work,
    error::ApiError,
    gateway::{AgentEntry, Gateway},
    stream::{conversations::Conversation, log_codec},
};

/// The messages and the state of a thread, as JSON.
pub(crate) struct ThreadSnapshot {
    pub(crate) messages: String,
    /// The messages with which the active run started, if there is one.
    pub(crate) at_run_start: Option<String>,
    pub(crate) state: String,
    /// The open interrupts of a thread that is on the agent's side only. Those of other threads are pending items.
    pub(crate) interrupts: Vec<Interrupt>,
}

impl Default for ThreadSnapshot {
    fn default() -> Self {
        Self { messages: "[]".into(), at_run_start: None, state: "{}".into(), interrupts: Vec::new() }
    }
}

impl ThreadSnapshot {
    /// The snapshot of a thread that never ran here, from the agent's side.
    pub(crate) async fn recall(agent: &AgentEntry, about: agent::Request) -> Result<Option<Self>, ApiError> {
        let Some(recalled) = agent.agent.recall(about) else { return Ok(None) };
        Ok(recalled.await?.map(|Recalled { messages, state, interrupts }| Self {
            messages: ag_ui::messages_to_json(&messages),
            at_run_start: None,
            state: state.get().to_owned(),
            interrupts,
        }))
    }
}

impl Gateway {
    /// The snapshot of a thread as it is stored; `None` if the thread is unknown.
    pub(crate) async fn stored_snapshot(
        &self,
        owner: &Owner,
        thread: &ThreadId,
    ) -> Result<Option<ThreadSnapshot>, ApiError> {
        let messages = match self.store().messages(owner, thread).await {
            Ok(messages) => messages,
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let state = self.store().state(owner, thread).await?;
        let empty = ThreadSnapshot::default();
        Ok(Some(ThreadSnapshot {
            messages: messages.map_or(empty.messages, |text| text.to_string()),
            at_run_start: None,
            state: state.body.map_or(empty.state, |text| text.to_string()),
            interrupts: Vec::new(),
        }))
    }

    /// The stored messages of a thread; none if the thread is unknown.
    pub(crate) async fn stored_messages(
        &self,
        owner: &Owner,
        thread: &ThreadId,
    ) -> Result<Vec<Message>, StoreError> {
        match self.store().messages(owner, thread).await {
            Ok(Some(text)) => Ok(self.parsed_messages(owner, thread, &text)),
            Ok(None) | Err(StoreError::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The messages of that stored text.
    pub(crate) fn parsed_messages(&self, owner: &Owner, thread: &ThreadId, text: &Text) -> Vec<Message> {
        match self.conversations().find(owner, thread, text) {
            Some(kept) => kept.messages().to_vec(),
            None => log_codec::parse_messages(text),
        }
    }

    /// The stored conversation of a thread; `None` until it has messages. Parsed off the workers if it is long, and kept for
    /// the next run.
    pub(crate) async fn conversation(
        &self,
        owner: &Owner,
        thread: &ThreadId,
    ) -> Result<Option<Arc<Conversation>>, StoreError> {
        let Some(text) = self.store().messages(owner, thread).await? else { return Ok(None) };
        if let Some(kept) = self.conversations().find(owner, thread, &text) {
            return Ok(Some(kept));
        }
        let length = text.len();
        let parse = || Arc::new(Conversation::parse(text));
        let parsed = cpu_work::in_place_by_length(owner, length, parse).await;
        self.conversations().keep(owner, thread, parsed.clone());
        Ok(Some(parsed))
    }
}
