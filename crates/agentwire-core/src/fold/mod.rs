//! Folds events into messages and state, as a client holds them.
//!
//! [`Fold`] builds exactly the messages and state that the official AG-UI client 1.0.0 builds from the same events, edge
//! cases included, because both ends must agree. [`compact()`] shortens a stored run without changing its result, and
//! [`Join`] makes the prelude for a reader that joins a run late.
//!
//! Intended differences from the official client:
//!
//! * of two messages with one id, one changes at a time (the official client can hold one object at two positions);
//! * a patch that turns the content of an activity into another type than an object does not apply;
//! * events that AG-UI lacks (sources, files, blocks, hand-overs) fold to the activities that carry them there;
//! * patches keep to the limits of [`crate::patch`].

#[cfg(test)]
pub(crate) mod arbitrary;
pub(crate) mod carrier;
mod compact;
mod join;
mod list;
mod patches;
mod reconcile;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use indexmap::IndexSet;
use serde_json::{Map, Value};

use self::{
    carrier::{COLLABORATION, FILE, SOURCE},
    list::{List, Slot},
};
pub use self::{
    compact::compact,
    join::{Join, restate},
};
use crate::{
    event::{
        Body, Content, EncryptedEntity, Event, Interrupt, Message, MessageBody, MessageData, MessageId,
        Outcome, Role, RunFinished, RunStarted, ToolCall, ToolCallId, ToolResult,
    },
    json::Object,
    patch::{self, Growth, Limits, Patch, PatchError, Reason},
};

/// The messages and the state that a client holds.
///
/// ```
/// use agentwire_core::{
///     event::{Body, Event, Message},
///     fold::Fold,
/// };
///
/// let mut fold = Fold::new();
/// fold.apply(&Event::new(Body::TextStart { message: "m1".into(), role: None, name: None }));
/// for delta in ["Hel", "lo"] {
///     fold.apply(&Event::new(Body::TextDelta { message: "m1".into(), delta: delta.into() }));
/// }
/// assert_eq!(fold.messages(), [Message::assistant("m1", "Hello")]);
/// ```
#[derive(Clone, Debug)]
pub struct Fold {
    list: List,
    state: Value,
    interrupts: Vec<Interrupt>,
    /// The calls that the current run started, in order.
    started: IndexSet<ToolCallId>,
    /// The calls of the current run that have a result.
    answered: HashSet<ToolCallId>,
    /// The pending calls that the run's end lists.
    listed_pending: Vec<ToolCallId>,
    skipped_patches: u64,
    patch_limits: Limits,
    costly_patches: u64,
    oversized_patches: u64,
    /// True if the last oversized patch would have had too many values.
    is_too_dense: bool,
    last_growth: Growth,
}

impl Default for Fold {
    fn default() -> Self {
        Self::new()
    }
}

impl Fold {
    /// No messages, and the state `{}`.
    #[must_use]
    pub fn new() -> Self {
        Self::from_history(Vec::new(), None)
    }

    /// The messages and state at the start of a run; absent state means `{}`.
    #[must_use]
    pub fn from_history(messages: Vec<Message>, state: Option<Value>) -> Self {
        Self {
            list: List::new(messages),
            state: state.unwrap_or_else(|| Value::Object(Map::new())),
            interrupts: Vec::new(),
            started: IndexSet::new(),
            answered: HashSet::new(),
            listed_pending: Vec::new(),
            skipped_patches: 0,
            patch_limits: Limits::default(),
            costly_patches: 0,
            oversized_patches: 0,
            is_too_dense: false,
            last_growth: Growth::default(),
        }
    }

    /// The messages in order.
    ///
    /// Takes `&mut self` because text that is still streaming moves from its buffer into its message, which costs the
    /// length of that text.
    pub fn messages(&mut self) -> &[Message] {
        self.list.settle()
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &Value {
        &self.state
    }

    /// The messages and the state, for keeping.
    #[must_use]
    pub fn into_parts(mut self) -> (Vec<Message>, Value) {
        (std::mem::take(self.list.settle()), self.state)
    }

    /// The open interrupts of the last run that did not fail.
    #[must_use]
    pub fn interrupts(&self) -> &[Interrupt] {
        &self.interrupts
    }

    /// The calls that wait for a result from outside the current run, in call order: those that its end lists, otherwise
    /// those that it started without a result.
    #[must_use]
    pub fn pending_tool_calls(&self) -> Vec<ToolCallId> {
        if !self.listed_pending.is_empty() {
            return self.listed_pending.clone();
        }
        self.started.iter().filter(|call| !self.answered.contains(*call)).cloned().collect()
    }

    /// The number of patches, of state or activity, that did not apply and were skipped.
    #[must_use]
    pub fn skipped_patches(&self) -> u64 {
        self.skipped_patches
    }

    /// Skips later patches that take more work than this; see [`Limits::max_work`].
    pub fn limit_patch_work(&mut self, max_work: usize) {
        self.patch_limits.max_work = max_work;
    }

    /// The number of skipped patches that would have taken more work than allowed.
    #[must_use]
    pub fn costly_patches(&self) -> u64 {
        self.costly_patches
    }

    /// Skips later patches that make a document grow by more than this; see [`Limits::max_size_growth`] and
    /// [`Limits::max_footprint_growth`].
    pub fn limit_patch_growth(&mut self, max_size_growth: usize, max_footprint_growth: usize) {
        self.patch_limits.max_size_growth = max_size_growth;
        self.patch_limits.max_footprint_growth = max_footprint_growth;
    }

    /// The number of skipped patches that would have made a document grow by more than allowed.
    #[must_use]
    pub fn oversized_patches(&self) -> u64 {
        self.oversized_patches
    }

    /// True if the values of the last oversized patch would have taken too much memory; otherwise its text is too long.
    #[must_use]
    pub fn is_too_dense(&self) -> bool {
        self.is_too_dense
    }

    /// Takes back the count of an oversized patch, which is about to be applied again with more growth allowed.
    pub fn forget_oversized_patch(&mut self) {
        self.skipped_patches = self.skipped_patches.saturating_sub(1);
        self.oversized_patches = self.oversized_patches.saturating_sub(1);
    }

    /// The growth of the state or the activity by the last patch; none if that was skipped.
    #[must_use]
    pub fn last_growth(&self) -> Growth {
        self.last_growth
    }

    /// Keeps the result of a patch; false if it was skipped.
    fn count_patch(&mut self, applied: Result<Option<Growth>, PatchError>) -> bool {
        let growth = applied.as_ref().ok().copied().flatten();
        self.last_growth = growth.unwrap_or_default();
        self.skipped_patches += u64::from(growth.is_none());
        if let Err(error) = applied {
            self.costly_patches += u64::from(error.is_too_costly());
            self.oversized_patches += u64::from(error.is_too_large());
            self.is_too_dense = matches!(error.reason(), Reason::TooManyValues(_));
        }
        growth.is_some()
    }

    /// Takes back the count of a costly patch, which is about to be applied again with more work allowed.
    pub fn forget_costly_patch(&mut self) {
        self.skipped_patches = self.skipped_patches.saturating_sub(1);
        self.costly_patches = self.costly_patches.saturating_sub(1);
    }

    /// Applies one event.
    pub fn apply(&mut self, event: &Event) {
        match &event.body {
            Body::RunStarted(started) => self.run_started(started),
            Body::RunFinished(finished) => self.run_finished(finished),

            Body::TextStart { message, role, name } => {
                let body = text_body(role.unwrap_or(Role::Assistant));
                self.open(event, message, body, name.as_deref());
            }
            Body::ReasoningMessageStart { message } => {
                self.open(event, message, MessageBody::Reasoning { content: Box::default() }, None);
            }
            Body::TextDelta { message, delta } | Body::ReasoningDelta { message, delta } => {
                if let Some(slot) = self.text_target(message) {
                    self.list.append_text(slot, delta);
                    merge_metadata(&mut self.list.get_mut(slot).metadata, event.metadata());
                }
            }
            Body::TextEnd { message } | Body::ReasoningMessageEnd { message } => {
                if let Some(slot) = self.text_target(message) {
                    self.list.settle_text(slot);
                    merge_metadata(&mut self.list.get_mut(slot).metadata, event.metadata());
                }
            }
            Body::ReasoningEncrypted { entity, value } => self.encrypted(entity, value),

            Body::ToolStart { call, name, parent } => self.tool_start(event, call, name, parent.as_ref()),
            Body::ToolArgs { call, delta } => {
                if let Some(place) = self.list.find_call(call) {
                    self.list.append_arguments(place, delta);
                    merge_metadata(&mut self.list.call_mut(place).metadata, event.metadata());
                }
            }
            Body::ToolEnd { call } => {
                if let Some(place) = self.list.find_call(call) {
                    self.list.settle_arguments(place);
                    merge_metadata(&mut self.list.call_mut(place).metadata, event.metadata());
                }
            }
            Body::ToolResult(result) => self.tool_result(event, result),

            Body::StateSnapshot { snapshot } => self.state = snapshot.to_value(),
            Body::StateDelta { patch } => {
                let applied = patch::apply_measured(&mut self.state, patch, &self.patch_limits);
                self.count_patch(applied.map(Some));
            }
            Body::MessagesSnapshot { messages } => {
                reconcile::reconcile(&mut self.list, messages, event.metadata());
            }

            Body::ActivitySnapshot { message, kind, content, replace } => {
                let replace = replace.unwrap_or(true);
                self.activity(event, message, kind, content.clone(), replace, event.metadata());
            }
            Body::ActivityDelta { message, kind, patch } => self.activity_delta(event, message, kind, patch),
            Body::Citation(source) => {
                let content = carrier::source_content(source);
                self.activity(event, &source.id, SOURCE, content, true, event.metadata());
            }
            Body::File(file) => {
                let content = carrier::file_content(file);
                self.activity(event, &file.id, FILE, content, true, event.metadata());
            }
            Body::Block(block) => {
                let (kind, content, ids) = carrier::block_content(block);
                let metadata = with_ids(event, Some(ids));
                self.activity(event, &block.id, &kind, content, true, metadata.as_ref());
            }
            Body::CollaborationStart { id, message, from, to } => {
                let (content, ids) = carrier::collaboration_content(from, to, message.as_ref());
                let metadata = with_ids(event, ids);
                self.activity(event, id, COLLABORATION, content, true, metadata.as_ref());
            }
            Body::CollaborationTask { id, task } => {
                self.activity_delta(event, id, COLLABORATION, &carrier::collaboration_task(task));
            }
            Body::CollaborationEnd { id } => {
                self.activity_delta(event, id, COLLABORATION, &carrier::collaboration_end());
            }

            body => debug_assert!(body.builds_nothing(), "{}", body.kind()),
        }
    }

    fn run_started(&mut self, started: &RunStarted) {
        self.started.clear();
        self.answered.clear();
        self.listed_pending.clear();
        for message in started.input.iter().flat_map(|input| &input.messages) {
            if self.list.find(&message.id).is_none() {
                self.list.push(message.clone());
            }
        }
    }

    fn run_finished(&mut self, finished: &RunFinished) {
        self.interrupts.clear();
        match &finished.outcome {
            Some(Outcome::Interrupt { interrupts }) => self.interrupts.clone_from(interrupts),
            Some(Outcome::Success { pending }) => self.listed_pending.clone_from(pending),
            Some(Outcome::Cancelled) | None => {}
        }
    }

    /// The message for text of that id. Ids are unique across the conversation, so an activity with this id means that
    /// its producer used it twice; the text is dropped rather than the activity.
    fn text_target(&self, id: &MessageId) -> Option<Slot> {
        self.list.find(id).filter(|slot| self.list.get(*slot).role() != Role::Activity)
    }

    fn open(&mut self, event: &Event, id: &MessageId, body: MessageBody, name: Option<&str>) {
        let slot = match self.list.find(id) {
            Some(slot) if self.list.get(slot).role() == Role::Activity => return,
            Some(slot) => slot,
            None => self.list.push(Message::from(MessageData {
                name: name.map(Into::into),
                subagent: event.subagent.clone(),
                ..MessageData::new(id.clone(), body)
            })),
        };
        merge_metadata(&mut self.list.get_mut(slot).metadata, event.metadata());
    }

    fn encrypted(&mut self, entity: &EncryptedEntity, value: &str) {
        match entity {
            EncryptedEntity::Message(id) => {
                if let Some(slot) = self.text_target(id) {
                    self.list.get_mut(slot).encrypted = Some(value.into());
                }
            }
            EncryptedEntity::ToolCall(id) => {
                if let Some(place) = self.list.find_call(id) {
                    self.list.call_mut(place).encrypted = Some(value.into());
                }
            }
        }
    }

    fn tool_start(&mut self, event: &Event, id: &ToolCallId, name: &str, parent: Option<&MessageId>) {
        self.started.insert(id.clone());
        let place = match self.list.find_call(id) {
            Some(place) => place,
            None => {
                let slot = self.holder(event, id, parent);
                let call = ToolCall::new(id.clone(), name, "");
                self.list.add_call(slot, call).expect("the holder is an assistant message")
            }
        };
        let call = self.list.call_mut(place);
        if *call.name != *name {
            call.name = name.into();
        }
        merge_metadata(&mut call.metadata, event.metadata());
    }

    /// The assistant message for a new call: its parent, or else a new one.
    fn holder(&mut self, event: &Event, call: &ToolCallId, parent: Option<&MessageId>) -> Slot {
        // The official client treats an empty parent as absent.
        let parent = parent.filter(|parent| !parent.is_empty());
        let existing = parent.and_then(|parent| self.list.find(parent));
        if let Some(slot) = existing
            && self.list.get(slot).role() == Role::Assistant
        {
            return slot;
        }
        let id = match parent {
            Some(parent) if existing.is_none() => parent.clone(),
            _ => MessageId::from(call.as_str()),
        };
        // The official client does not attribute a message that shares its id with an older one.
        let is_new = self.list.find(&id).is_none();
        let body = MessageBody::Assistant { content: None, tool_calls: Some(Vec::new()) };
        let subagent = event.subagent.clone().filter(|_| is_new);
        self.list.push(Message::from(MessageData { subagent, ..MessageData::new(id, body) }))
    }

    fn tool_result(&mut self, event: &Event, result: &ToolResult) {
        let ToolResult { message, call, content, error, explicit_role: _ } = result;
        self.answered.insert(call.clone());
        let body = MessageBody::Tool { call: call.clone(), content: content.clone(), error: error.clone() };
        let answer = Message::from(MessageData {
            subagent: event.subagent.clone(),
            metadata: event.metadata().cloned(),
            ..MessageData::new(message.clone(), body)
        });
        match self.list.find_call(call) {
            Some((holder, _)) => self.list.insert_tool_result(holder, answer),
            None => {
                self.list.push(answer);
            }
        }
    }

    fn activity(
        &mut self,
        event: &Event,
        id: &MessageId,
        kind: &str,
        content: Object,
        replace: bool,
        metadata: Option<&Object>,
    ) {
        let new = |content| {
            Message::from(MessageData {
                subagent: event.subagent.clone(),
                ..MessageData::new(id.clone(), MessageBody::Activity { kind: kind.into(), content })
            })
        };
        let Some(slot) = self.list.find(id) else {
            self.list
                .push(Message::from(MessageData { metadata: metadata.cloned(), ..new(content).into_data() }));
            return;
        };
        let old = self.list.get_mut(slot);
        if old.role() == Role::Activity {
            // Metadata is merged over the snapshots of an activity; the rest is replaced.
            merge_metadata(&mut old.metadata, metadata);
            if replace {
                let metadata = old.metadata.take();
                self.list.replace(slot, Message::from(MessageData { metadata, ..new(content).into_data() }));
            }
        } else if replace {
            self.list.replace(
                slot,
                Message::from(MessageData { metadata: metadata.cloned(), ..new(content).into_data() }),
            );
        }
    }

    fn activity_delta(&mut self, event: &Event, id: &MessageId, new_kind: &str, patch: &Patch) {
        let Some(slot) = self.list.find(id) else { return };
        if self.list.get(slot).role() != Role::Activity {
            return;
        }
        // A stale path should not cost the message its metadata, so that merges whatever the patch does.
        merge_metadata(&mut self.list.get_mut(slot).metadata, event.metadata());
        let applied = self.list.patch_content(slot, patch, &self.patch_limits);
        if self.count_patch(applied)
            && let MessageBody::Activity { kind, .. } = &mut self.list.get_mut(slot).body
            && **kind != *new_kind
        {
            *kind = new_kind.into();
        }
    }
}

/// An empty message of that role. Roles without text count as the assistant.
fn text_body(role: Role) -> MessageBody {
    let content = Box::default();
    match role {
        Role::Developer => MessageBody::Developer { content },
        Role::System => MessageBody::System { content },
        Role::User => MessageBody::User { content: Content::Text(content) },
        Role::Assistant | Role::Tool | Role::Activity | Role::Reasoning => {
            MessageBody::Assistant { content: Some(content), tool_calls: None }
        }
    }
}

/// The event's metadata with the ids of a carrier.
fn with_ids(event: &Event, ids: Option<Object>) -> Option<Object> {
    match (event.metadata(), ids) {
        (Some(metadata), Some(ids)) => Some(metadata.merged(&ids)),
        (metadata, ids) => ids.or_else(|| metadata.cloned()),
    }
}

/// Merges `incoming` into `target`, key by key; the last write wins.
fn merge_metadata(target: &mut Option<Object>, incoming: Option<&Object>) {
    if let Some(incoming) = incoming {
        *target = Some(match target {
            Some(metadata) => metadata.merged(incoming),
            None => incoming.clone(),
        });
    }
}
