//! The output of the reader: all events of one frame carry the same timestamp.

use crate::{
    event::{Body, Event, SubagentId},
    json::{Json, Object},
};

pub(super) struct AdkEmitter<'o> {
    out: &'o mut Vec<Event>,
    timestamp: Option<i64>,
    /// The subagent of the next events, with `subagents=on`.
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

    /// Emits ADK data that the canonical model has no event for.
    pub(super) fn custom<'k>(&mut self, name: &str, members: impl IntoIterator<Item = (&'k str, Json)>) {
        self.push(Body::Custom { name: name.into(), value: Object::from_entries(members).into() });
    }

    pub(super) fn warning(&mut self, code: &str, message: &str) {
        self.custom("adk.warning", [("code", Json::string(code)), ("message", Json::string(message))]);
    }
}
