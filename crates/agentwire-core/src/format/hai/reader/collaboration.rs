//! AGENT_COLLABORATIVE_MESSAGE_*: one agent hands work to another.

use serde_json::value::RawValue;

use super::{
    super::{
        fields::{id, need},
        nesting::compose,
    },
    HaiReader,
    members::Base,
};
use crate::{
    event::{Body, Event, MessageId},
    format::ag_ui::shapes,
    json::{Fields, Json, Path, ReadError, json, text},
    tally::Tally,
};

/// Hand-overs that may be open at once; beyond that the oldest can no longer be continued. The reference
/// server leaves one open now and then, and never has two that go on.
const MAX_OPEN: usize = 256;

/// The longest text of a task that comes in pieces: a task is an id and a name.
const MAX_PIECES: usize = 1 << 20;

/// A hand-over that is open on the wire.
#[derive(Debug)]
pub(crate) struct Open {
    /// The message id on the wire, if there is one.
    wire: Option<MessageId>,
    id: MessageId,
    /// The text of a task that is not complete yet: the client joins the pieces, so a server may cut it.
    pieces: String,
}

impl HaiReader {
    pub(crate) fn collaboration_start(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        const WHAT: &str = "AGENT_COLLABORATIVE_MESSAGE_START";
        if base.stands_for().as_deref() == Some("SUBAGENT_STARTED") {
            let agui = base.agui.as_ref().expect("it stands for something");
            if let Some(event) = shapes::read_event(agui.get(), &mut self.context) {
                out.push(event);
                return Ok(());
            }
        }
        let tally = &mut self.context.tally;
        let from = need(&mut f, "from", tally)?;
        let to = need(&mut f, "to", tally)?;
        let wire = id(&mut f, "messageId", tally)?.filter(|id| !id.is_empty()).map(MessageId::from);
        let base = base.finish(&mut f, WHAT, tally)?;
        if wire.is_none() {
            tally.note("missing id", WHAT);
        }
        let explicit = base.agui_str("messageId").map(MessageId::from);
        let named =
            explicit.is_none() || base.agui.as_ref().is_none_or(|agui| agui.member("unnamed").is_none());
        let id = match explicit {
            Some(id) => id,
            None => self.name_collaboration(wire.as_ref()),
        };
        self.open_collaboration(Open { wire: wire.clone(), id: id.clone(), pieces: String::new() });
        let body = Body::CollaborationStart {
            id,
            message: wire.filter(|_| named),
            from: from.into(),
            to: to.into(),
        };
        out.push(base.event(body, &[], &mut self.context.tally));
        Ok(())
    }

    fn name_collaboration(&mut self, wire: Option<&MessageId>) -> MessageId {
        let holder = wire.map_or_else(|| self.run.to_string(), ToString::to_string);
        let id = self.ledger.collaboration(&holder);
        self.ledger.took_collaboration(&holder);
        id
    }

    fn open_collaboration(&mut self, open: Open) {
        if self.collaborations.len() >= MAX_OPEN {
            self.collaborations.remove(0);
        }
        self.collaborations.push(open);
    }

    /// Which open hand-over a frame means: the one that it names, else the latest.
    fn find_collaboration(
        &mut self,
        f: &mut Fields<'_, '_>,
        base: &Base,
    ) -> Result<(Option<MessageId>, Option<usize>), ReadError> {
        let wire =
            id(f, "messageId", &mut self.context.tally)?.filter(|id| !id.is_empty()).map(MessageId::from);
        let explicit = base.agui_str("messageId");
        let found = self.collaborations.iter().rposition(|open| match (&explicit, &wire) {
            (Some(id), _) => *open.id == **id,
            (None, Some(wire)) => open.wire.as_ref() == Some(wire),
            (None, None) => true,
        });
        // A frame that names a message none of the hand-overs has may still mean one that has none.
        let found = found.or_else(|| {
            self.collaborations.iter().rposition(|open| explicit.is_none() && open.wire.is_none())
        });
        Ok((wire, found))
    }

    pub(crate) fn collaboration_content(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        const WHAT: &str = "AGENT_COLLABORATIVE_MESSAGE_CONTENT";
        let (wire, found) = self.find_collaboration(&mut f, &base)?;
        let tally = &mut self.context.tally;
        let path = Path::Key(&Path::Root, "delta");
        let raw = f.take_unless_null("delta").ok_or_else(|| f.missing("delta", "a task"))?;
        let base = base.finish(&mut f, WHAT, tally)?;
        let at = match found {
            Some(at) => at,
            None => {
                tally.note("content without a start", WHAT);
                let id = match base.agui_str("messageId") {
                    Some(id) => id.into(),
                    None => self.name_collaboration(wire.as_ref()),
                };
                let body = Body::CollaborationStart {
                    id: id.clone(),
                    message: wire.clone(),
                    from: "".into(),
                    to: "".into(),
                };
                out.push(base.bare(body));
                self.open_collaboration(Open { wire, id, pieces: String::new() });
                self.collaborations.len() - 1
            }
        };
        let open = &mut self.collaborations[at];
        let tally = &mut self.context.tally;
        let mut tasks = Vec::new();
        match raw.get().as_bytes().first() {
            Some(b'"') => {
                open.pieces.push_str(&text(raw, path, tally)?);
                if let Some(whole) = whole(&open.pieces, tally) {
                    tasks = whole;
                    open.pieces.clear();
                } else if open.pieces.len() > MAX_PIECES {
                    tally.note("task too long", "left out");
                    open.pieces.clear();
                }
            }
            _ => tasks.push(task(raw, path, tally)?),
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
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        const WHAT: &str = "AGENT_COLLABORATIVE_MESSAGE_END";
        let (_, found) = self.find_collaboration(&mut f, &base)?;
        let tally = &mut self.context.tally;
        let base = base.finish(&mut f, WHAT, tally)?;
        let Some(at) = found else {
            tally.note("end without a start", WHAT);
            return Ok(());
        };
        let open = self.collaborations.remove(at);
        if !open.pieces.is_empty() {
            // Not JSON after all: the text is the task.
            let task = Json::string(&open.pieces);
            out.push(base.bare(Body::CollaborationTask { id: open.id.clone(), task }));
        }
        out.push(base.event(Body::CollaborationEnd { id: open.id }, &[], tally));
        Ok(())
    }
}

type Task = (Json, Option<Json>);

/// The tasks that the pieces make up, once they are whole.
fn whole(pieces: &str, tally: &mut Tally) -> Option<Vec<Task>> {
    let mut tasks = Vec::new();
    for document in serde_json::Deserializer::from_str(pieces).into_iter::<&RawValue>() {
        tasks.push(task(document.ok()?, Path::Root, tally).ok()?);
    }
    (!tasks.is_empty()).then_some(tasks)
}

/// The task in a delta, and what else the delta holds.
fn task(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> Result<Task, ReadError> {
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
