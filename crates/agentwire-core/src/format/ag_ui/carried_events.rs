//! Carries canonical events without an AG-UI type as activities, and restores them.
//!
//! An activity keeps its position among the messages and stays in a client's history; a CUSTOM event would
//! not. An activity is restored to a typed event only if writing that event gives the identical activity. Any
//! other activity of the same kind belongs to the application and stays an activity.

use crate::{
    event::{Body, MessageId},
    fold::carrier,
    json::Object,
    patch::{Op, Patch, PatchOp},
};

/// An activity snapshot that carries another event.
pub(crate) struct CarryingActivity {
    pub(crate) message: MessageId,
    pub(crate) kind: String,
    pub(crate) content: Object,
    /// Additional metadata of the event.
    pub(crate) metadata: Option<Object>,
}

/// The activity snapshot that carries `body`, if AG-UI has no type for it.
pub(crate) fn activity_for(body: &Body) -> Option<CarryingActivity> {
    Some(match body {
        Body::Citation(source) => CarryingActivity {
            message: source.id.clone(),
            kind: carrier::SOURCE.into(),
            content: carrier::source_content(source),
            metadata: None,
        },
        Body::File(file) => CarryingActivity {
            message: file.id.clone(),
            kind: carrier::FILE.into(),
            content: carrier::file_content(file),
            metadata: None,
        },
        Body::Block(block) => {
            let (kind, content, metadata) = carrier::block_content(block);
            CarryingActivity { message: block.id.clone(), kind, content, metadata: Some(metadata) }
        }
        Body::CollaborationStart { id, message, from, to } => {
            let (content, metadata) = carrier::collaboration_content(from, to, message.as_ref());
            CarryingActivity { message: id.clone(), kind: carrier::COLLABORATION.into(), content, metadata }
        }
        _ => return None,
    })
}

/// The activity patch that carries `body`, if AG-UI has no type for it.
pub(crate) fn patch_for(body: &Body) -> Option<(MessageId, &'static str, Patch)> {
    let (id, patch) = match body {
        Body::CollaborationTask { id, task } => (id, carrier::collaboration_task(task)),
        Body::CollaborationEnd { id } => (id, carrier::collaboration_end()),
        _ => return None,
    };
    Some((id.clone(), carrier::COLLABORATION, patch))
}

/// The event that an activity snapshot carries.
pub(crate) fn event_from_activity(
    message: &MessageId,
    kind: &str,
    content: &Object,
    metadata: Option<&Object>,
) -> Option<Body> {
    let body = match kind {
        carrier::SOURCE => Body::Citation(Box::new(carrier::source_from(message, content)?)),
        carrier::FILE => Body::File(Box::new(carrier::file_from(message, content)?)),
        carrier::COLLABORATION => Body::CollaborationStart {
            id: message.clone(),
            message: metadata.and_then(hai_message),
            from: content.get_str("from")?.into(),
            to: content.get_str("to")?.into(),
        },
        kind if kind.starts_with("hai.") => {
            Body::Block(Box::new(carrier::block_from(message, kind, content, metadata?)?))
        }
        _ => return None,
    };
    let activity = activity_for(&body)?;
    let hai = |metadata: Option<&Object>| metadata.and_then(|metadata| metadata.member("hai"));
    (activity.kind == kind
        && activity.content == *content
        && hai(activity.metadata.as_ref()) == hai(metadata))
    .then_some(body)
}

fn hai_message(metadata: &Object) -> Option<MessageId> {
    metadata.member("hai")?.into_object()?.get_str("messageId").map(MessageId::from)
}

/// The metadata without the values that the event body holds already.
pub(crate) fn metadata_beside(body: &Body, metadata: Option<Object>) -> Option<Object> {
    match body {
        Body::Block(_) | Body::CollaborationStart { .. } => {
            metadata.map(|metadata| metadata.without("hai")).filter(|metadata| !metadata.is_empty())
        }
        _ => metadata,
    }
}

/// The event that an activity patch carries.
pub(crate) fn event_from_patch(message: &MessageId, kind: &str, patch: &Patch) -> Option<Body> {
    if kind != carrier::COLLABORATION {
        return None;
    }
    let [PatchOp { op, path, value: Some(value), from: None, extra: None }] = &patch.0[..] else {
        return None;
    };
    let id = message.clone();
    match (op, &**path) {
        (Op::Add, "/tasks/-") => Some(Body::CollaborationTask { id, task: value.clone() }),
        (Op::Replace, "/status") if value.get() == "\"done\"" => Some(Body::CollaborationEnd { id }),
        _ => None,
    }
}
