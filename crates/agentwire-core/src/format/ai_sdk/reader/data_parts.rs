//! Converts data parts back to the canonical events that agentwire wrote them from.
//!
//! Every shape is checked: `data-state` is a part of the application unless it looks exactly like agentwire's. All other
//! parts become CUSTOM events.

use serde_json::Value;

use super::{builder::EventBuilder, decode};
use crate::{
    event::{
        Block, Body, EncryptedEntity, Event, File, MediaKind, PartSource, Role, SubagentId, SubagentOutcome,
        SubagentStarted,
    },
    format::ai_sdk::{
        wire::{self, AI_SDK, STATE_ID, data_part},
        writer::encode,
    },
    json::{Json, Object},
};

impl EventBuilder {
    /// Reads a data part; `name` is without the prefix `data-`.
    pub(super) fn data_part(
        &mut self,
        name: &str,
        id: Option<&str>,
        data: Json,
        transient: bool,
        out: &mut Vec<Event>,
    ) {
        if self.agentwire_part(name, id, &data, out).is_some() {
            return;
        }
        let (original, value) = decode::custom_event(name, data);
        // The writer converts a CUSTOM event of that name to the same part, which is transient unless the value has an id.
        let value_id = value.clone().into_object().and_then(|it| it.get_str("id"));
        let is_default = (*original != *name || encode::is_plain_data_part_name(name))
            && value_id.as_deref() == id
            && transient == id.is_none();
        let metadata = (!is_default).then(|| {
            let native_members = encode::build_object(|w| {
                w.opt_str("id", id).bool("transient", transient);
            });
            Object::from_entries([(AI_SDK, native_members.into())])
        });
        self.custom(&original, value, metadata, out);
    }

    /// Converts a part of agentwire; `None` for all other parts.
    fn agentwire_part(
        &mut self,
        name: &str,
        id: Option<&str>,
        data: &Json,
        out: &mut Vec<Event>,
    ) -> Option<()> {
        if name == data_part::STATE && id == Some(STATE_ID) {
            out.push(Event::new(Body::StateSnapshot { snapshot: data.clone() }));
            return Some(());
        }
        let object = data.clone().into_object()?;
        let subagent: Option<SubagentId> = object.get_str("subagentId").map(Into::into);
        let mut metadata = object.member("metadata").and_then(Json::into_object);
        let text = |key: &str| object.get_str(key).map(Box::<str>::from);
        let body = match (name, id) {
            (data_part::ACTIVITY, Some(id)) => Body::ActivitySnapshot {
                message: id.into(),
                kind: text("activityType")?,
                content: object.member("content")?.into_object()?,
                replace: None,
            },
            // In other streams the native steps are used, and a part of that name belongs to the application.
            (data_part::STEP, Some(_)) if self.is_from_agentwire() => match &*text("status")? {
                "running" => Body::StepStarted { name: text("name")? },
                "done" => Body::StepFinished { name: text("name")? },
                "failed" => {
                    let failed = Object::from_entries([("status", Json::string("error"))]);
                    metadata = Some(metadata.map_or(failed.clone(), |metadata| metadata.merged(&failed)));
                    Body::StepFinished { name: text("name")? }
                }
                _ => return None,
            },
            (data_part::INTERRUPT, Some(id)) => {
                let interrupt = decode::read_interrupt(data)?;
                if *interrupt.id != *id {
                    return None;
                }
                self.interrupt(interrupt);
                return Some(());
            }
            (data_part::SUBAGENT, Some(id)) => {
                let body = subagent_event(&object)?;
                out.push(Event::new(body).by(Some(id.into())).with_metadata(metadata));
                return Some(());
            }
            (data_part::BLOCK, Some(id)) => Body::Block(Box::new(Block {
                id: id.into(),
                message: object.get_str("messageId")?.into(),
                output: object.member("output")?.into_object()?,
                layout: object.member("layout"),
                block_id: text("blockId"),
                style: object.member("style"),
            })),
            (data_part::COLLABORATION, Some(id)) => {
                return self.collaboration_part(id, &object, subagent, out);
            }
            (data_part::MESSAGE, Some(id)) => {
                let role = Role::parse(&text("role")?).filter(|role| role.is_textual())?;
                let mut push = |body| out.push(Event::new(body).by(subagent.clone()));
                let start = Body::TextStart { message: id.into(), role: Some(role), name: text("name") };
                let delta = text("text")?;
                push(start);
                if !delta.is_empty() {
                    push(Body::TextDelta { message: id.into(), delta });
                }
                let end = Event::new(Body::TextEnd { message: id.into() });
                out.push(end.by(subagent).with_metadata(metadata));
                return Some(());
            }
            (data_part::RAW, None) if self.is_from_agentwire() => {
                Body::Raw { event: object.member("event")?, source: text("source") }
            }
            (data_part::ENCRYPTED, Some(_)) => {
                let entity = match &*text("entity")? {
                    "message" => EncryptedEntity::Message(object.get_str("id")?.into()),
                    "tool-call" => EncryptedEntity::ToolCall(object.get_str("id")?.into()),
                    _ => return None,
                };
                Body::ReasoningEncrypted { entity, value: text("value")? }
            }
            (data_part::FILE, Some(id)) => {
                let kind = MediaKind::parse(&text("kind")?)?;
                let mime_type = text("mediaType");
                let source = match (text("fileId"), object.get_str("url")) {
                    (Some(value), _) => PartSource::File { value, provider: text("provider"), mime_type },
                    (None, Some(url)) => decode::media_source(&url, mime_type.as_deref()),
                    (None, None) => return None,
                };
                let message = object.get_str("messageId").map(Into::into);
                let name = text("name");
                Body::File(Box::new(File { id: id.into(), message, kind, source, name }))
            }
            (data_part::TOOL_PROGRESS, Some(_)) => {
                object.get_str("toolCallId")?;
                Body::Custom { name: wire::TOOL_PROGRESS.into(), value: data.clone() }
            }
            // It repeats the metadata of RUN_STARTED.
            (data_part::CHAIN_START, None) if self.is_from_agentwire() => return Some(()),
            _ => return None,
        };
        out.push(Event::new(body).by(subagent).with_metadata(metadata));
        Some(())
    }

    /// Converts a collaboration between agents: each part repeats its whole content, only the changes are emitted.
    fn collaboration_part(
        &mut self,
        id: &str,
        object: &Object,
        subagent: Option<SubagentId>,
        out: &mut Vec<Event>,
    ) -> Option<()> {
        let value = object.to_value();
        let tasks = value.get("tasks")?.as_array()?;
        let (from, to) = (value.get("from")?.as_str()?, value.get("to")?.as_str()?);
        let status = value.get("status")?.as_str()?;
        let mut push = |body| out.push(Event::new(body).by(subagent.clone()));
        let (known_tasks, was_ended) = match self.collaboration(id) {
            Some(known) => known,
            None => {
                push(Body::CollaborationStart {
                    id: id.into(),
                    message: value.get("messageId").and_then(Value::as_str).map(Into::into),
                    from: from.into(),
                    to: to.into(),
                });
                (0, false)
            }
        };
        for task in tasks.iter().skip(known_tasks) {
            push(Body::CollaborationTask { id: id.into(), task: Json::from(task) });
        }
        let is_ended = status == "done";
        // A late task repeats the status without a new end; a part without a new task is a new end.
        if is_ended && !(was_ended && tasks.len() > known_tasks) {
            push(Body::CollaborationEnd { id: id.into() });
        }
        self.set_collaboration(id, tasks.len(), is_ended);
        Some(())
    }
}

fn subagent_event(object: &Object) -> Option<Body> {
    let text = |key: &str| object.get_str(key);
    Some(match &*text("status")? {
        "running" => Body::SubagentStarted(Box::new(SubagentStarted {
            name: text("name")?.into(),
            description: text("description").map(Into::into),
            parent_subagent: text("parentSubagentId").map(Into::into),
            parent_call: text("parentToolCallId").map(Into::into),
            parent_message: text("parentMessageId").map(Into::into),
        })),
        "done" => Body::SubagentFinished { result: object.member("result"), outcome: None },
        "suspended" => {
            let ids = object.member("interruptIds")?.to_value();
            let ids = ids.as_array()?.iter().filter_map(Value::as_str).map(Into::into).collect();
            let outcome = Some(SubagentOutcome::Suspended { interrupts: ids });
            Body::SubagentFinished { result: object.member("result"), outcome }
        }
        "error" => Body::SubagentError { message: text("error")?.into(), code: text("code").map(Into::into) },
        _ => return None,
    })
}
