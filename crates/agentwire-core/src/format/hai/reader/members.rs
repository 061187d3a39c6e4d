//! What every HAI event may carry besides its own members, read and written.
//!
//! HAI has no metadata and says nothing about members that it does not define. What AG-UI has for every event
//! (`subagentRunId`, `metadata`, `rawEvent`) is therefore sent as plain members, and members that nobody here
//! understands live in the canonical event's metadata under `hai`, from where they go back onto the wire.

use super::super::{
    fields::{id, object, some_json},
    metadata,
    nesting::fits,
    wire::{AGUI, HAI},
};
use crate::{
    event::{Body, Event, Extra, SubagentId},
    format::ag_ui::shapes::MAX_INTEGER,
    json::{Fields, Json, Object, Path, ReadError, kind_of},
    tally::Tally,
};

/// The common members of an event that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    pub(crate) timestamp: Option<i64>,
    pub(crate) subagent: Option<SubagentId>,
    pub(crate) metadata: Option<Object>,
    pub(crate) raw: Option<Json>,
    pub(crate) agui: Option<Object>,
    /// Members that nobody understands.
    pub(crate) rest: Option<Object>,
}

impl Base {
    pub(crate) fn take(f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<Self, ReadError> {
        Ok(Self {
            timestamp: timestamp(f, tally)?,
            subagent: id(f, "subagentRunId", tally)?.map(SubagentId::from),
            metadata: object(f, "metadata", tally)?,
            raw: some_json(f, "rawEvent", tally)?,
            agui: object(f, AGUI, tally)?,
            rest: None,
        })
    }

    /// Keeps what is left of the event's members.
    pub(crate) fn finish(
        mut self,
        f: &mut Fields<'_, '_>,
        what: &str,
        tally: &mut Tally,
    ) -> Result<Self, ReadError> {
        // A member that is null is one that its sender forgot to drop, and every event may say that it is the
        // assistant's.
        self.rest = f
            .rest(what, tally)?
            .map(|rest| {
                let entries = rest.entries();
                Object::from_entries(
                    entries
                        .iter()
                        .filter(|(key, value)| {
                            let said = key == "role" && value.get() == "\"assistant\"";
                            !said && !value.is_null()
                        })
                        .map(|(key, value)| (key.as_str(), value.clone())),
                )
            })
            .filter(|rest| !rest.is_empty());
        Ok(self)
    }

    /// The `type` of the AG-UI event that this frame stands for.
    pub(crate) fn stands_for(&self) -> Option<String> {
        self.agui.as_ref()?.get_str("type")
    }

    /// A string of [`AGUI`].
    pub(crate) fn agui_str(&self, key: &str) -> Option<String> {
        self.agui.as_ref()?.get_str(key)
    }

    /// The bytes of what came along.
    pub(crate) fn weight(&self) -> usize {
        let objects = [&self.metadata, &self.agui, &self.rest].into_iter().flatten();
        let raw = self.raw.as_ref().map_or(0, |raw| raw.get().len());
        objects.map(|object| object.get().len()).sum::<usize>() + raw
    }

    /// An event with no more than its time and its owner.
    pub(crate) fn bare(&self, body: Body) -> Event {
        Event::new(body).by(self.subagent.clone()).at(self.timestamp)
    }

    /// An event with everything that came along, and with `hai` in its metadata.
    pub(crate) fn event(&self, body: Body, hai: &[(&str, Json)], tally: &mut Tally) -> Event {
        // These two say their own ids in metadata `hai` when they travel as activities.
        let apart = matches!(body, Body::Block(_) | Body::CollaborationStart { .. });
        let mut event = self.bare(body);
        let mut extra = Extra {
            metadata: self.metadata.clone(),
            raw: self.raw.clone(),
            unknown: self.agui.as_ref().and_then(|agui| agui.member("unknown")).and_then(Json::into_object),
        };
        let rest = self.rest.as_ref().map(Object::entries).unwrap_or_default();
        let mut own = Vec::new();
        let mut unknown = Vec::new();
        for (key, value) in &rest {
            let kept = if apart || metadata::is_foreign(key) { &mut own } else { &mut unknown };
            kept.push((key.as_str(), value.clone()));
        }
        own.extend(hai.iter().cloned());
        own.retain(|(key, value)| fitting(key, value, tally));
        unknown.retain(|(key, value)| fitting(key, value, tally));
        if apart {
            unknown.append(&mut own);
        }
        if !own.is_empty() {
            let given = extra.metadata.take().unwrap_or_else(Object::empty);
            let before = given.member(HAI).and_then(Json::into_object).unwrap_or_else(Object::empty);
            let hai = before.merged(&Object::from_entries(own));
            extra.metadata = Some(given.with(HAI, hai.into()));
        }
        if !unknown.is_empty() {
            let before = extra.unknown.take().unwrap_or_else(Object::empty);
            extra.unknown = Some(before.merged(&Object::from_entries(unknown)));
        }
        if extra.metadata.is_some() || extra.raw.is_some() || extra.unknown.is_some() {
            event.extra = Some(Box::new(extra));
        }
        event
    }
}

/// Whether a member can be kept inside metadata `hai`, and inside AG-UI's metadata behind that.
fn fitting(key: &str, value: &Json, tally: &mut Tally) -> bool {
    let fitting = fits(value.get(), 4);
    if !fitting {
        tally.note("nested too deep to be kept", key);
    }
    fitting
}

/// Milliseconds since the epoch. Servers that forget to round are understood.
fn timestamp(f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<Option<i64>, ReadError> {
    let Some(raw) = f.take_unless_null("timestamp") else {
        return Ok(None);
    };
    let wrong = || {
        let path = f.path();
        let problem = format!("expected milliseconds since the epoch, found {}", kind_of(raw.get()));
        Path::Key(&path, "timestamp").error(problem)
    };
    if let Ok(time) = raw.get().parse::<i64>() {
        return if time.unsigned_abs() <= MAX_INTEGER.unsigned_abs() { Ok(Some(time)) } else { Err(wrong()) };
    }
    match serde_json::from_str::<f64>(raw.get()) {
        Ok(time) if time.abs() <= MAX_INTEGER as f64 => {
            if time.fract() != 0.0 {
                tally.note("old shape", "timestamp with a fraction");
            }
            Ok(Some(time as i64))
        }
        _ => Err(wrong()),
    }
}
