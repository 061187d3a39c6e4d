//! What is stored of a thread when a run begins in it.

use agentwire_core::{
    Tally,
    event::{Message, MessageId, RunInput},
    format::ag_ui,
    json::Json,
};
use agentwire_store::{Owner, StoreError};

use crate::{conversation, gateway::Gateway, settings::AgentSettings};

/// What a run begins with.
pub(crate) struct Opening {
    pub(crate) messages: Vec<Message>,
    pub(crate) state: serde_json::Value,
    pub(crate) state_seq: u64,
    pub(crate) state_was: Option<String>,
}

impl Opening {
    /// Reads it; the thread must not change meanwhile, so the run must have it.
    pub(crate) async fn read(
        gateway: &Gateway,
        settings: &AgentSettings,
        owner: &Owner,
        input: &RunInput,
        cut: Option<&MessageId>,
    ) -> Result<Self, StoreError> {
        let stored = gateway.store.messages(owner, &input.thread).await?;
        let state = gateway.store.state(owner, &input.thread).await?;
        let stored = stored.map_or_else(Vec::new, |text| messages_of(&text));
        let state_value = state.body.as_ref().and_then(|body| serde_json::from_str(body).ok());
        let sent = input.state.as_ref().map(Json::to_value);
        Ok(Self {
            messages: conversation::messages(settings.history, stored, &input.messages, cut),
            state: conversation::state(state_value, sent, settings.state_key.as_deref()),
            state_seq: state.seq,
            state_was: state.body.map(|body| body.to_string()),
        })
    }
}

/// Stored messages; what cannot be read any more is left out and told.
pub(crate) fn messages_of(text: &str) -> Vec<Message> {
    let mut tally = Tally::default();
    ag_ui::messages_from_json(text, &mut tally).unwrap_or_else(|error| {
        tracing::error!(%error, "stored messages could not be read");
        Vec::new()
    })
}
