//! The starting data of a run: the stored thread merged with the request, and the history that the agent's side has of a
//! thread that is new here.

use std::{collections::HashSet, sync::Arc};

use agentwire_core::{
    Tally,
    event::{Body, Event, Message, MessageId, Role, RunId, RunInput},
    format::ag_ui,
    json::{Json, Object},
};
use agentwire_store::{Owner, Run, StoreError, Time};
use serde_json::Value;

use super::admission::ANEW;
use crate::{
    agent::{EventSink, Recalled, Request},
    cpu_work,
    error::RunFailure,
    gateway::{AgentEntry, Gateway},
    human::{given, pending, validate},
    settings::{AgentSettings, History, OnDisconnect},
    stream::conversations::Conversation,
    thread::history,
};

/// The settings under which a run began, in its stored input: [`History`] and `state_key`.
pub(super) const HISTORY: &str = "history";
pub(super) const STATE_KEY: &str = "stateKey";

/// The policies that the client of a run asked for, in its stored input; see [`super::admission::AskedPolicies`].
pub(super) const ON_DISCONNECT: &str = "onDisconnect";
pub(super) const START_IN_LOG: &str = "startInLog";

/// The options that the protocol of a run shows with it, in its stored input.
pub(super) const ECHO: &str = "echo";

/// The message after which a run continued the conversation anew, in its stored input; empty if it kept none.
pub(super) const ANEW_AFTER: &str = "anewAfter";

/// The message after which a run continued the conversation anew.
pub(crate) fn stored_cut(stored: &RunInput) -> Option<MessageId> {
    ag_ui::input::stored_text(stored, ANEW_AFTER).map(MessageId::from)
}

/// The options that the protocol of a run shows with it.
pub(crate) fn stored_echo(stored: &RunInput) -> Option<String> {
    ag_ui::input::stored_text(stored, ECHO)
}

/// The policy for a client that leaves, as it is stored with a run.
pub(super) fn asked_on_disconnect(stored: &RunInput) -> Option<OnDisconnect> {
    OnDisconnect::from_name(&ag_ui::input::stored_text(stored, ON_DISCONNECT)?)
}

/// True if the log of a run begins with the messages and the state before it.
pub(crate) fn has_start_in_log(stored: &RunInput) -> bool {
    ag_ui::input::stored_text(stored, START_IN_LOG).is_some()
}

/// The headers for the agent in the stored input, encrypted.
pub(super) const HEADERS: &str = "headers";

/// The messages and state that a run starts with.
pub(crate) struct StartingData {
    pub(crate) messages: Vec<Message>,
    /// Stored messages that the run does not start with, because the client's replace them.
    pub(crate) dropped: Vec<Message>,
    pub(crate) state: serde_json::Value,
    /// The client has sent this very state, or none while it is empty.
    pub(crate) is_state_known: bool,
    pub(crate) state_seq: u64,
    pub(crate) stored_state: Option<String>,
    /// Bytes of the stored messages and state, and of the state that the client has sent.
    pub(crate) bytes: usize,
    /// The stored messages.
    pub(crate) conversation: Option<Arc<Conversation>>,
    /// No message is stored: the thread may have been started without this gateway.
    pub(crate) is_new: bool,
}

impl StartingData {
    /// Reads and merges them, by the agent's `history` and `state_key`. The run must have the lease of the thread, so that nothing changes meanwhile.
    pub(crate) async fn read(
        gateway: &Gateway,
        merging: (History, Option<&str>),
        owner: &Owner,
        input: &RunInput,
        cut: Option<&MessageId>,
    ) -> Result<Self, StoreError> {
        let (history_source, state_key) = merging;
        let conversation = gateway.conversation(owner, &input.thread).await?;
        let state = gateway.store().state(owner, &input.thread).await?;
        let sent_bytes = input.state.as_ref().map_or(0, |state| state.get().len());
        let message_bytes = conversation.as_ref().map_or(0, |stored| stored.text().len());
        let stored_bytes = message_bytes + state.body.as_deref().map_or(0, str::len);
        let merge = move || {
            let stored = conversation.as_ref().map_or_else(Vec::new, |stored| stored.messages().to_vec());
            let stored_state = state.body.as_ref().and_then(|body| serde_json::from_str(body).ok());
            let sent = input.state.as_ref().map(Json::to_value);
            let is_new = stored.is_empty();
            let dropped = match history_source {
                History::Client => history::until(&stored, cut).to_vec(),
                History::Server | History::Merge => Vec::new(),
            };
            let messages = history::messages(history_source, stored, &input.messages, cut);
            let (merged, is_state_known) = history::merge_state(stored_state, sent, state_key);
            Self {
                dropped,
                messages,
                state: merged,
                is_state_known,
                state_seq: state.seq,
                stored_state: state.body.map(|body| body.to_string()),
                bytes: stored_bytes + sent_bytes,
                is_new,
                conversation,
            }
        };
        Ok(cpu_work::in_place_by_length(owner, stored_bytes + sent_bytes, merge).await)
    }
}

impl Gateway {
    /// True if the client of a run that another process drives asked for its end when nobody reads it.
    pub(crate) async fn asks_for_readers(&self, owner: &Owner, run: &RunId) -> bool {
        let Ok(Some(text)) = self.store().input(owner, run).await else { return false };
        let find = || {
            let input = ag_ui::input::from_json(&text, &mut Tally::default()).ok();
            input.as_ref().and_then(asked_on_disconnect)
        };
        cpu_work::in_place_by_length(owner, text.len(), find).await == Some(OnDisconnect::Cancel)
    }

    /// The stored input of a run, and the message after which it continued the conversation anew.
    pub(crate) async fn stored_input(
        &self,
        owner: &Owner,
        run: &Run,
    ) -> Result<(RunInput, Option<MessageId>), StoreError> {
        let text = self.store().input(owner, &run.run).await?;
        let parse = |text: &str| ag_ui::input::from_json(text, &mut Tally::default()).ok();
        let input = match text {
            Some(text) => cpu_work::in_place_by_length(owner, text.len(), || parse(&text)).await,
            None => None,
        };
        let input = input.unwrap_or_else(|| RunInput::new(run.thread.clone(), run.run.clone()));
        let cut = run.cause.as_deref().and_then(|cause| cause.strip_prefix(ANEW)).map(MessageId::from);
        Ok((input, cut))
    }

    /// The messages and state that a run started with. The run must not have ended: its end changes the stored thread.
    pub(crate) async fn starting_data(&self, owner: &Owner, run: &Run) -> Result<StartingData, StoreError> {
        let (input, cut) = self.stored_input(owner, run).await?;
        let stored = ag_ui::input::stored_text(&input, HISTORY).and_then(|name| History::from_name(&name));
        if let Some(history) = stored {
            let state_key = ag_ui::input::stored_text(&input, STATE_KEY);
            return StartingData::read(self, (history, state_key.as_deref()), owner, &input, cut.as_ref())
                .await;
        }
        // A run of an earlier version.
        let fallback = AgentSettings::default();
        let registry = self.registry();
        let settings = registry.agents.get(&*run.agent).map_or(&fallback, |agent| &agent.settings);
        let merging = (self.settings().history(settings), settings.state_key.as_deref());
        StartingData::read(self, merging, owner, &input, cut.as_ref()).await
    }
}

/// The metadata key that marks recalled events, so that a gateway that reattaches to the run recognises them.
const RECALLED: &str = "agentwire.recalled";

/// Recalls the history of a thread that is new here from the agent's side and emits it before anything else. Returns the
/// request with that history.
pub(crate) async fn recall(
    agent: &AgentEntry,
    policy: History,
    mut request: Request,
    sink: &EventSink,
) -> Result<Request, RunFailure> {
    let Some(recalled) = agent.agent.recall(request.clone()) else { return Ok(request) };
    let Some(Recalled { messages: old, state, interrupts }) = recalled.await? else { return Ok(request) };
    if !interrupts.is_empty() && !given::has_answer(&request.input) {
        // The agent enforces the deadlines of its own interrupts, so none of them is expired here.
        let items = pending::elsewhere(&old, &interrupts, Time(0));
        if let Some(open) = pending::first_unanswered(&items, &[], Time(0)) {
            return Err(Box::new(validate::unanswered(open.id.as_str())).into());
        }
    }
    let input = Arc::make_mut(&mut request.input);
    let mut events = Vec::new();
    if policy != History::Client && is_unknown(&old, &input.messages) {
        input.messages = history::messages(policy, old.clone(), &input.messages, None);
        // A client keeps the place of messages that it has and appends the others. So it first gets a snapshot of the old
        // messages alone, which removes its own, and then one of all.
        let snapshot = |messages| marked(Body::MessagesSnapshot { messages });
        events.extend([snapshot(old), snapshot(input.messages.clone())]);
    }
    let sent = input.state.as_ref().map(Json::to_value);
    let whole = history::state(Some(state.to_value()), sent.clone(), None);
    if Some(&whole) != sent.as_ref() {
        let snapshot = Json::from(&whole);
        input.state = Some(snapshot.clone());
        events.push(marked(Body::StateSnapshot { snapshot }));
    }
    sink.send_all(&mut events).await?;
    Ok(request)
}

/// Whether there are old messages and the client has none of them. A client with a history of its own, under whatever ids,
/// has the conversation already.
fn is_unknown(old: &[Message], sent: &[Message]) -> bool {
    let is_history = |message: &Message| matches!(message.role(), Role::Assistant | Role::Tool);
    let ids: HashSet<&MessageId> = old.iter().map(|message| &message.id).collect();
    !old.is_empty() && !sent.iter().any(is_history) && !sent.iter().any(|message| ids.contains(&message.id))
}

fn marked(body: Body) -> Event {
    Event::new(body).with_metadata(Some(Object::from_entries([(RECALLED, Json::from(&Value::Bool(true)))])))
}

/// Whether an event contains recalled history.
pub(crate) fn is_recalled(event: &Event) -> bool {
    event.metadata().is_some_and(|metadata| metadata.to_value().get(RECALLED).is_some())
}

/// Applies recalled history from the log to the input.
pub(crate) fn apply_recalled(input: &mut RunInput, logged: &[Event]) {
    for event in logged {
        match &event.body {
            // The last snapshot has all messages.
            Body::MessagesSnapshot { messages } => input.messages.clone_from(messages),
            Body::StateSnapshot { snapshot } => input.state = Some(snapshot.clone()),
            _ => {}
        }
    }
}
