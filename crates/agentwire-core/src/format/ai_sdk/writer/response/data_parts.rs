//! Events without a native part, written as data parts: state, activities, subagents, CUSTOM events, files.

use indexmap::IndexMap;
use serde_json::Value;

use super::{
    super::{encode, part_metadata::PartMetadata},
    PartEncoder, ResponseWriter,
};
use crate::{
    event::{Event, File, MessageId, PartSource, SubagentId, SubagentStarted},
    format::{
        Fidelity,
        ai_sdk::{
            reader::metadata,
            wire::{self, STATE_ID, data_part},
        },
    },
    framing::Frames,
    json::{Json, ObjectWriter},
    patch::{self, Limits, Patch},
};

/// Limit of remembered activities, collaborations and subagents: a screen shows a few dozen. A change to a forgotten one is
/// dropped and reported.
const MAX_REMEMBERED: usize = 4096;

/// Values of data parts that later events change: every change sends the whole value again.
#[derive(Debug, Default)]
pub(super) struct DataParts {
    pub(super) state: Option<Value>,
    /// Contents of activities.
    pub(super) activities: IndexMap<MessageId, Value>,
    /// Contents of collaborations, apart from the activities: one of each may have the same id.
    pub(super) collaborations: IndexMap<MessageId, Value>,
    pub(super) subagents: IndexMap<SubagentId, SubagentStarted>,
}

impl DataParts {
    /// True if an activity or a collaboration has the id.
    pub(super) fn has_activity(&self, id: &MessageId) -> bool {
        self.activities.contains_key(id) || self.collaborations.contains_key(id)
    }
}

/// Inserts an entry and keeps the latest [`MAX_REMEMBERED`].
pub(super) fn remember<K: std::hash::Hash + Eq + Clone, V>(table: &mut IndexMap<K, V>, key: &K, value: V) {
    if table.len() >= MAX_REMEMBERED && !table.contains_key(key) {
        table.shift_remove_index(0);
    }
    table.insert(key.clone(), value);
}

impl<E: PartEncoder> ResponseWriter<E> {
    /// `json` without the keys that the client's parser refuses.
    pub(super) fn sanitized(&mut self, json: &Json) -> Json {
        let (json, has_removed_keys) = encode::sanitize(json);
        self.has_removed_keys |= has_removed_keys;
        json.into_owned()
    }

    pub(super) fn write_data(
        &mut self,
        out: &mut Frames,
        name: &str,
        id: Option<&str>,
        data: &Json,
        transient: bool,
    ) {
        if !self.message.is_started {
            self.start(None, out);
        }
        let (data, has_removed_keys) = encode::sanitize(data);
        self.has_removed_keys |= has_removed_keys;
        self.encoder.data(out, name, id, &data, transient);
    }

    pub(super) fn state_delta(&mut self, patch: &Patch, out: &mut Frames) -> Fidelity {
        let state = self.data_parts.state.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
        if patch::apply(state, patch, &Limits::default()).is_err() {
            return Fidelity::Dropped("the patch does not apply to the state");
        }
        let state = Json::from(&*state);
        self.write_data(out, data_part::STATE, Some(STATE_ID), &state, false);
        Fidelity::Approximated("a change of state sends the whole state")
    }

    pub(super) fn write_activity(
        &mut self,
        message: &MessageId,
        kind: &str,
        content: Value,
        event: &Event,
        out: &mut Frames,
    ) {
        let data = encode::build_object(|w| {
            w.str("activityType", kind)
                .json("content", &Json::from(&content))
                .opt_str("subagentId", event.subagent.as_deref())
                .opt_object("metadata", event.metadata());
        });
        self.seen.add(message);
        remember(&mut self.data_parts.activities, message, content);
        self.write_data(out, data_part::ACTIVITY, Some(message), &data.into(), false);
    }

    pub(super) fn activity_delta(
        &mut self,
        message: &MessageId,
        kind: &str,
        patch: &Patch,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let DataParts { activities, collaborations, .. } = &self.data_parts;
        let Some(content) = activities.get(message).or_else(|| collaborations.get(message)) else {
            return Fidelity::Dropped("the activity is not known");
        };
        let mut changed = content.clone();
        // A patch must not turn the content into another type than an object.
        if patch::apply(&mut changed, patch, &Limits::default()).is_err() || !changed.is_object() {
            return Fidelity::Dropped("the patch does not apply to the activity");
        }
        self.write_activity(message, kind, changed, event, out);
        Fidelity::Approximated("a change of an activity sends the whole activity")
    }

    pub(super) fn write_collaboration(
        &mut self,
        id: &MessageId,
        content: Value,
        event: &Event,
        out: &mut Frames,
    ) {
        let data = Json::from(&content);
        remember(&mut self.data_parts.collaborations, id, content);
        let data = match (&event.subagent, data.clone().into_object()) {
            (Some(subagent), Some(object)) => object.with("subagentId", Json::string(subagent)).into(),
            _ => data,
        };
        self.write_data(out, data_part::COLLABORATION, Some(id), &data, false);
    }

    pub(super) fn change_collaboration(
        &mut self,
        id: &MessageId,
        change: impl FnOnce(&mut Value),
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let Some(content) = self.data_parts.collaborations.get_mut(id) else {
            return Fidelity::Dropped("the hand-over is not known");
        };
        let mut content = content.take();
        change(&mut content);
        self.write_collaboration(id, content, event, out);
        Fidelity::Exact
    }

    pub(super) fn write_subagent(
        &mut self,
        event: &Event,
        status: &str,
        fill: impl FnOnce(&mut ObjectWriter<'_>),
        out: &mut Frames,
    ) -> Fidelity {
        let Some(id) = &event.subagent else {
            return Fidelity::Dropped("the subagent has no id");
        };
        let started = self.data_parts.subagents.get(id);
        let data = encode::build_object(|w| {
            if let Some(started) = started {
                w.str("name", &started.name)
                    .opt_str("description", started.description.as_deref())
                    .opt_str("parentSubagentId", started.parent_subagent.as_deref())
                    .opt_str("parentToolCallId", started.parent_call.as_deref())
                    .opt_str("parentMessageId", started.parent_message.as_deref());
            }
            w.str("status", status);
            fill(w);
            w.opt_object("metadata", event.metadata());
        });
        self.write_data(out, data_part::SUBAGENT, Some(id), &data.into(), false);
        Fidelity::Exact
    }

    pub(super) fn custom(&mut self, name: &str, value: &Json, event: &Event, out: &mut Frames) -> Fidelity {
        // A data part of an AI SDK server is written as it was received.
        let native_members = metadata::native(event.metadata());
        if let Some(transient) = native_members.as_ref().and_then(|it| it.member("transient")) {
            let id = native_members.and_then(|it| it.get_str("id"));
            self.write_data(out, name, id.as_deref(), value, transient.get() == "true");
            return Fidelity::Exact;
        }
        let start_metadata = &mut self.message.start_metadata;
        match name {
            wire::TOOL_PROGRESS => {
                if let Some(fidelity) = self.tool_progress(value, out) {
                    return fidelity;
                }
            }
            // The start contained it.
            wire::MESSAGE_METADATA if start_metadata.as_ref().is_some_and(|it| it.as_json() == value) => {
                *start_metadata = None;
                return Fidelity::Exact;
            }
            wire::MESSAGE_METADATA if value.get().starts_with('{') => {
                let value = self.sanitized(value);
                if let Some(object) = value.clone().into_object() {
                    self.message.app.observe(&object);
                }
                self.encoder.message_metadata(out, &value);
                return Fidelity::Exact;
            }
            wire::ANNOTATION => {
                let value = self.sanitized(value);
                self.encoder.annotation(out, &value);
                return Fidelity::Exact;
            }
            wire::PROVIDER_PART if self.encoder.has_provider_parts() => {
                let value = self.sanitized(value).into_object();
                if let Some(kind) = value.as_ref().and_then(|value| value.get_str("kind")) {
                    self.prepare_part(out);
                    let metadata = value.and_then(|value| value.member("providerMetadata"));
                    let metadata = metadata.filter(metadata::is_provider_metadata);
                    self.encoder.provider_part(out, &kind, metadata.as_ref());
                    return Fidelity::Exact;
                }
            }
            _ => {}
        }
        let id = value.clone().into_object().and_then(|it| it.get_str("id"));
        let part_name = encode::data_part_name(name);
        let data = encode::custom_event_data(name, &part_name, value);
        // CUSTOM events are transient unless they have an id that later events can refer to.
        self.write_data(out, &part_name, id.as_deref(), &data, id.is_none());
        Fidelity::Exact
    }

    pub(super) fn file(&mut self, file: &File, event: &Event, out: &mut Frames) -> Fidelity {
        self.prepare_part(out);
        if self.encoder.file(out, file, &PartMetadata::of(event)) {
            return Fidelity::Exact;
        }
        let data = encode::build_object(|w| {
            w.str("kind", file.kind.as_str())
                .str("mediaType", encode::media_type(file.kind, &file.source))
                .opt_str("url", encode::media_url(&file.source).as_deref())
                .opt_str("name", file.name.as_deref())
                .opt_str("messageId", file.message.as_deref());
            if let PartSource::File { value, provider, .. } = &file.source {
                w.str("fileId", value).opt_str("provider", provider.as_deref());
            }
        });
        self.write_data(out, data_part::FILE, Some(&file.id), &data.into(), false);
        Fidelity::Approximated("a file that has no address here becomes a data part")
    }
}
