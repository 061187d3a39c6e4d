//! Where a reader puts its events: the same time on all that come of one frame.

use crate::{
    event::{Body, Event, SubagentId},
    json::{Json, Object},
};

pub(super) struct AdkEmitter<'o> {
    out: &'o mut Vec<Event>,
    timestamp: Option<i64>,
    /// Who is at work, where subagents are shown.
    pub(super) subagent: Option<SubagentId>,
}

impl<'o> AdkEmitter<'o> {
    pub(super) fn new(out: &'o mut Vec<Event>, timestamp: Option<i64>) -> Self {
        Self { out, timestamp, subagent: None }
    }

    pub(super) fn push(&mut self, body: Body) {
        self.out.push(Event::new(body).at(self.timestamp).by(self.subagent.clone()));
    }

    pub(super) fn push_with(&mut self, body: Body, metadata: Object) {
        let event = Event::new(body).at(self.timestamp).by(self.subagent.clone());
        self.out.push(event.with_metadata(Some(metadata)));
    }

    /// An event of ADK's that the canonical model has no kind for.
    pub(super) fn custom<'k>(&mut self, name: &str, members: impl IntoIterator<Item = (&'k str, Json)>) {
        self.push(Body::Custom { name: name.into(), value: Object::from_entries(members).into() });
    }
}
