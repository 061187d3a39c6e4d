//! Reads AGENT_COLLABORATIVE_MESSAGE_*: one agent hands tasks to another.

use serde_json::value::RawValue;

use super::{
    super::{
        fields::{filled_id, need_string},
        nesting::compose,
    },
    HaiReader,
    members::FrameMembers,
};
use crate::{
    event::{Body, Event, MessageId},
    format::ag_ui::shapes,
    json::{Fields, Json, Path, ReadResult, json, text},
    tally::Tally,
};

/// Limit of open collaborations; beyond it the oldest can no longer be continued. The reference server sometimes
/// leaves one open, and never continues two at a time.
const MAX_OPEN: usize = 256;

/// Limit of the text of a task that is split over frames: a task is an id and a name.
const MAX_TASK_TEXT: usize = 1 << 20;

/// An open collaboration.
#[derive(Debug)]
pub(crate) struct OpenCollaboration {
    /// Its message id on the wire.
    wire: Option<MessageId>,
    id: MessageId,
    /// The text of an incomplete task: the client joins deltas, so a server may split it.
    task_text: String,
}

impl HaiReader {
    pub(crate) fn collaboration_start(
        &mut self,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        const EVENT_TYPE: &str = "AGENT_COLLABORATIVE_MESSAGE_START";
        if base.represented_type().as_deref() == Some("SUBAGENT_STARTED") {
            let agui = base.agui.as_ref().expect("it represents an event");
            if let Some(event) = shapes::read_event(agui.get(), &mut self.context) {
                out.push(event);
                return Ok(());
            }
        }
        let tally = &mut self.context.tally;
        let from = need_string(&mut f, "from", tally)?;
        let to = need_string(&mut f, "to", tally)?;
        let wire = filled_id(&mut f, "messageId", tally)?.map(MessageId::from);
        let base = base.with_rest(&mut f, EVENT_TYPE, tally)?;
        if wire.is_none() {
            tally.note("missing id", EVENT_TYPE);
        }
        let explicit = base.agui_str("messageId").map(MessageId::from);
        let named =
            explicit.is_none() || base.agui.as_ref().is_none_or(|agui| agui.member("unnamed").is_none());
        let id = match explicit {
            Some(id) => id,
            None => self.derive_id(wire.as_ref()),
        };
        self.open_collaboration(OpenCollaboration {
            wire: wire.clone(),
            id: id.clone(),
            task_text: String::new(),
        });
        let body = Body::CollaborationStart {
            id,
            message: wire.filter(|_| named),
            from: from.into(),
            to: to.into(),
        };
        out.push(base.event(body, &[], &mut self.context.tally));
        Ok(())
    }

    fn derive_id(&mut self, wire: Option<&MessageId>) -> MessageId {
        let holder = wire.map_or_else(|| self.run.to_string(), ToString::to_string);
        let id = self.derived_ids.next_collaboration(&holder);
        self.derived_ids.count_collaboration(&holder);
        id
    }

    fn open_collaboration(&mut self, open: OpenCollaboration) {
        if self.collaborations.len() >= MAX_OPEN {
            self.collaborations.remove(0);
        }
        self.collaborations.push(open);
    }

    /// The open collaboration of a frame: by id, else the latest.
    fn find_collaboration(
        &mut self,
        f: &mut Fields<'_, '_>,
        base: &FrameMembers,
    ) -> ReadResult<(Option<MessageId>, Option<usize>)> {
        let wire = filled_id(f, "messageId", &mut self.context.tally)?.map(MessageId::from);
        let explicit = base.agui_str("messageId");
        let found = self.collaborations.iter().rposition(|open| match (&explicit, &wire) {
            (Some(id), _) => *open.id == **id,
            (None, Some(wire)) => open.wire.as_ref() == Some(wire),
            (None, None) => true,
        });
        // A frame with an unknown message id may belong to a collaboration without one, or, as in the standard's sample,
        // have the id in place of the timestamp.
        let found = found.or_else(|| {
            let misplaced = base.timestamp_text.as_deref();
            self.collaborations.iter().rposition(|open| {
                explicit.is_none() && (open.wire.is_none() || open.wire.as_deref() == misplaced)
            })
        });
        Ok((wire, found))
    }

    pub(crate) fn collaboration_content(
        &mut self,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        const EVENT_TYPE: &str = "AGENT_COLLABORATIVE_MESSAGE_CONTENT";
        let (wire, found) = self.find_collaboration(&mut f, &base)?;
        let tally = &mut self.context.tally;
        let path = Path::Key(&Path::Root, "delta");
        let raw = f.take_unless_null("delta").ok_or_else(|| f.missing("delta", "a task"))?;
        let base = base.with_rest(&mut f, EVENT_TYPE, tally)?;
        let at = match found {
            Some(at) => at,
            None => {
                tally.note("content without a start", EVENT_TYPE);
                let id = match base.agui_str("messageId") {
                    Some(id) => id.into(),
                    None => self.derive_id(wire.as_ref()),
                };
                let body = Body::CollaborationStart {
                    id: id.clone(),
                    message: wire.clone(),
                    from: "".into(),
                    to: "".into(),
                };
                out.push(base.bare_event(body));
                self.open_collaboration(OpenCollaboration { wire, id, task_text: String::new() });
                self.collaborations.len() - 1
            }
        };
        let open = &mut self.collaborations[at];
        let tally = &mut self.context.tally;
        let mut tasks = Vec::new();
        match raw.get().as_bytes().first() {
            Some(b'"') => {
                open.task_text.push_str(&text(raw, path, tally)?);
                if let Some(complete) = parse_tasks(&open.task_text, tally) {
                    tasks = complete;
                    open.task_text.clear();
                } else if open.task_text.len() > MAX_TASK_TEXT {
                    tally.note("task too long", "left out");
                    open.task_text.clear();
                }
            }
            _ => tasks.push(read_task(raw, path, tally)?),
        }
        for (task, more) in tasks {
            let body = Body::CollaborationTask { id: open.id.clone(), task };
            let hai: Vec<_> = more.map(|more| ("delta", more)).into_iter().collect();
            out.push(base.event(body, &hai, tally));
        }
        Ok(())
    }

    pub(crate) fn collaboration_end(
        &mut self,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        const EVENT_TYPE: &str = "AGENT_COLLABORATIVE_MESSAGE_END";
        let (_, found) = self.find_collaboration(&mut f, &base)?;
        let tally = &mut self.context.tally;
        let base = base.with_rest(&mut f, EVENT_TYPE, tally)?;
        let Some(at) = found else {
            tally.note("end without a start", EVENT_TYPE);
            return Ok(());
        };
        let open = self.collaborations.remove(at);
        if !open.task_text.is_empty() {
            // Not JSON: the text is the task.
            let task = Json::string(&open.task_text);
            out.push(base.bare_event(Body::CollaborationTask { id: open.id.clone(), task }));
        }
        out.push(base.event(Body::CollaborationEnd { id: open.id }, &[], tally));
        Ok(())
    }
}

type TaskDelta = (Json, Option<Json>);

/// The tasks in the joined text, if it is complete.
fn parse_tasks(task_text: &str, tally: &mut Tally) -> Option<Vec<TaskDelta>> {
    let mut tasks = Vec::new();
    for document in serde_json::Deserializer::from_str(task_text).into_iter::<&RawValue>() {
        tasks.push(read_task(document.ok()?, Path::Root, tally).ok()?);
    }
    (!tasks.is_empty()).then_some(tasks)
}

/// Reads the task in a delta, and the other members of the delta.
fn read_task(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<TaskDelta> {
    let whole = json(raw, path, tally)?;
    let Some(delta) = whole.clone().into_object() else {
        return Ok((whole, None));
    };
    let Some(task) = delta.member("task") else {
        tally.note("old shape", "task without its envelope");
        return Ok((whole, None));
    };
    let more = delta.without("task");
    let more = compose(more.entries().iter().map(|(key, value)| (key.as_str(), value.clone())));
    Ok((task, (!more.is_empty()).then(|| more.into())))
}
