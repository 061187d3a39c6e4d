//! What the SDK has no part for, as data parts: state, activities, subagents, an application's own events, files.

use serde_json::Value;

use super::{
    super::{encode, part_metadata::About},
    Turn, Wire, remember,
};
use crate::{
    event::{Event, File, MessageId},
    format::{
        Fidelity,
        ai_sdk::{
            reader::metadata,
            wire::{self, STATE_ID, data_part},
        },
    },
    framing::Frames,
    json::Json,
    patch::{self, Limits, Patch},
};

impl<W: Wire> Turn<W> {
    /// `json` without what the client's parser refuses.
    pub(super) fn safe(&mut self, json: &Json) -> Json {
        let (json, stripped) = encode::sanitize(json);
        self.stripped |= stripped;
        json.into_owned()
    }

    pub(super) fn data(
        &mut self,
        out: &mut Frames,
        name: &str,
        id: Option<&str>,
        data: &Json,
        transient: bool,
    ) {
        if !self.started {
            self.start(None, out);
        }
        let (data, stripped) = encode::sanitize(data);
        self.stripped |= stripped;
        self.wire.data(out, name, id, &data, transient);
    }

    pub(super) fn state_delta(&mut self, patch: &Patch, out: &mut Frames) -> Fidelity {
        let state = self.state.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
        if patch::apply(state, patch, &Limits::default()).is_err() {
            return Fidelity::Dropped("the patch does not apply to the state");
        }
        let state = Json::from(&*state);
        self.data(out, data_part::STATE, Some(STATE_ID), &state, false);
        Fidelity::Approximated("a change of state sends the whole state")
    }

    pub(super) fn activity(
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
        self.seen.activity(message);
        remember(&mut self.activities, message, (kind.into(), content));
        self.data(out, data_part::ACTIVITY, Some(message), &data.into(), false);
    }

    pub(super) fn activity_delta(
        &mut self,
        message: &MessageId,
        kind: &str,
        patch: &Patch,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let Some((_, content)) = self.activities.get(message) else {
            return Fidelity::Dropped("the activity is not known");
        };
        let mut changed = content.clone();
        // An activity stays an object, whatever a patch says.
        if patch::apply(&mut changed, patch, &Limits::default()).is_err() || !changed.is_object() {
            return Fidelity::Dropped("the patch does not apply to the activity");
        }
        self.activity(message, kind, changed, event, out);
        Fidelity::Approximated("a change of an activity sends the whole activity")
    }

    pub(super) fn collaboration(&mut self, id: &MessageId, content: Value, event: &Event, out: &mut Frames) {
        let data = Json::from(&content);
        remember(&mut self.activities, id, (data_part::COLLABORATION.into(), content));
        let data = match (&event.subagent, data.clone().into_object()) {
            (Some(subagent), Some(object)) => object.with("subagentId", Json::string(subagent)).into(),
            _ => data,
        };
        self.data(out, data_part::COLLABORATION, Some(id), &data, false);
    }

    pub(super) fn collaboration_step(
        &mut self,
        id: &MessageId,
        change: impl FnOnce(&mut Value),
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let Some((kind, content)) = self.activities.get_mut(id) else {
            return Fidelity::Dropped("the hand-over is not known");
        };
        if **kind != *data_part::COLLABORATION {
            return Fidelity::Dropped("the hand-over is not known");
        }
        let mut content = content.take();
        change(&mut content);
        self.collaboration(id, content, event, out);
        Fidelity::Exact
    }

    pub(super) fn subagent(
        &mut self,
        event: &Event,
        status: &str,
        fill: impl FnOnce(&mut crate::json::ObjectWriter<'_>),
        out: &mut Frames,
    ) -> Fidelity {
        let Some(id) = &event.subagent else {
            return Fidelity::Dropped("the subagent has no id");
        };
        let started = self.subagents.get(id);
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
        self.data(out, data_part::SUBAGENT, Some(id), &data.into(), false);
        Fidelity::Exact
    }

    pub(super) fn custom(&mut self, name: &str, value: &Json, event: &Event, out: &mut Frames) -> Fidelity {
        // A data part of an AI SDK server goes on as it came.
        let own = metadata::native(event.metadata());
        if let Some(transient) = own.as_ref().and_then(|own| own.member("transient")) {
            let id = own.and_then(|own| own.get_str("id"));
            self.data(out, name, id.as_deref(), value, transient.get() == "true");
            return Fidelity::Exact;
        }
        match name {
            wire::TOOL_PROGRESS => {
                if let Some(fidelity) = self.tool_progress(value, out) {
                    return fidelity;
                }
            }
            // The start has said it.
            wire::MESSAGE_METADATA if self.about.as_ref().is_some_and(|told| told.as_json() == value) => {
                self.about = None;
                return Fidelity::Exact;
            }
            wire::MESSAGE_METADATA if value.get().starts_with('{') => {
                let value = self.safe(value);
                if let Some(object) = value.clone().into_object() {
                    self.told.note(&object);
                }
                self.wire.metadata(out, &value);
                return Fidelity::Exact;
            }
            wire::ANNOTATION => {
                let value = self.safe(value);
                self.wire.annotation(out, &value);
                return Fidelity::Exact;
            }
            wire::PROVIDER_PART if self.wire.knows_provider_parts() => {
                let value = self.safe(value).into_object();
                if let Some(kind) = value.as_ref().and_then(|value| value.get_str("kind")) {
                    self.new_part(out);
                    let about = value.and_then(|value| value.member("providerMetadata"));
                    let about = about.filter(metadata::is_provider_metadata);
                    self.wire.provider_part(out, &kind, about.as_ref());
                    return Fidelity::Exact;
                }
            }
            _ => {}
        }
        let id = value.clone().into_object().and_then(|it| it.get_str("id"));
        let legal = encode::data_part_name(name);
        let data = encode::custom_event_data(name, &legal, value);
        // An application's event is news, not content, unless it names the thing that it is about.
        self.data(out, &legal, id.as_deref(), &data, id.is_none());
        Fidelity::Exact
    }

    pub(super) fn file(&mut self, file: &File, event: &Event, out: &mut Frames) -> Fidelity {
        self.new_part(out);
        if self.wire.file(out, file, &About::of(event)) {
            return Fidelity::Exact;
        }
        let data = encode::build_object(|w| {
            w.str("kind", file.kind.as_str())
                .str("mediaType", encode::media_type(file.kind, &file.source))
                .opt_str("url", encode::media_url(&file.source).as_deref())
                .opt_str("name", file.name.as_deref())
                .opt_str("messageId", file.message.as_deref());
            if let crate::event::PartSource::File { value, provider, .. } = &file.source {
                w.str("fileId", value).opt_str("provider", provider.as_deref());
            }
        });
        self.data(out, data_part::FILE, Some(&file.id), &data.into(), false);
        Fidelity::Approximated("a file that has no address here becomes a data part")
    }
}
