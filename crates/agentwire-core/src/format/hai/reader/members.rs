//! Members that every HAI event may have, read.
//!
//! HAI has no metadata and no rule for undefined members. The common members of AG-UI events (`subagentRunId`,
//! `metadata`, `rawEvent`) are therefore additional members, and unknown members are stored in the metadata of
//! the canonical event under `hai`, from which the writer restores them.

use super::super::{
    fields::{object, opt_string, some_json},
    metadata,
    nesting::fits,
    wire::{AGUI, HAI},
};
use crate::{
    event::{Body, Event, Extra, SubagentId},
    format::ag_ui::shapes::MAX_INTEGER,
    json::{Fields, Json, Object, Path, ReadResult, kind_of},
    tally::Tally,
};

/// The common members of a frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameMembers {
    pub(crate) timestamp: Option<i64>,
    pub(crate) subagent: Option<SubagentId>,
    pub(crate) metadata: Option<Object>,
    pub(crate) raw: Option<Json>,
    pub(crate) agui: Option<Object>,
    /// Text in place of the timestamp.
    pub(crate) timestamp_text: Option<String>,
    /// Unknown members.
    pub(crate) rest: Option<Object>,
}

impl FrameMembers {
    pub(crate) fn read(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Self> {
        let timestamp_text = timestamp_text(f, tally)?;
        Ok(Self {
            timestamp: match &timestamp_text {
                Some(text) => text.trim().parse().ok().filter(|time| is_time(*time)),
                None => timestamp(f, tally)?,
            },
            subagent: opt_string(f, "subagentRunId", tally)?.map(SubagentId::from),
            metadata: object(f, "metadata", tally)?,
            raw: some_json(f, "rawEvent", tally)?,
            agui: object(f, AGUI, tally)?,
            timestamp_text,
            rest: None,
        })
    }

    /// Adds the remaining members of the event.
    pub(crate) fn with_rest(
        mut self,
        f: &mut Fields<'_, '_>,
        event_type: &str,
        tally: &mut Tally,
    ) -> ReadResult<Self> {
        // A null member counts as absent, and every event may have the default role.
        self.rest = f
            .rest(event_type, tally)?
            .map(|rest| {
                let entries = rest.entries();
                Object::from_entries(
                    entries
                        .iter()
                        .filter(|(key, value)| {
                            let is_default_role = key == "role" && value.get() == "\"assistant\"";
                            !is_default_role && !value.is_null()
                        })
                        .map(|(key, value)| (key.as_str(), value.clone())),
                )
            })
            .filter(|rest| !rest.is_empty());
        Ok(self)
    }

    /// The `type` of the AG-UI event that this frame represents.
    pub(crate) fn represented_type(&self) -> Option<String> {
        self.agui.as_ref()?.get_str("type")
    }

    /// A string member of [`AGUI`].
    pub(crate) fn agui_str(&self, key: &str) -> Option<String> {
        self.agui.as_ref()?.get_str(key)
    }

    /// The size of all members in bytes.
    pub(crate) fn size(&self) -> usize {
        let objects = [&self.metadata, &self.agui, &self.rest].into_iter().flatten();
        let raw = self.raw.as_ref().map_or(0, |raw| raw.get().len());
        objects.map(|object| object.get().len()).sum::<usize>() + raw
    }

    /// An event with timestamp and subagent only.
    pub(crate) fn bare_event(&self, body: Body) -> Event {
        Event::new(body).by(self.subagent.clone()).at(self.timestamp)
    }

    /// An event with all common members, and with `hai` in its metadata.
    pub(crate) fn event(&self, body: Body, hai: &[(&str, Json)], tally: &mut Tally) -> Event {
        // Carried as activities, these two use metadata `hai` for their own ids.
        let uses_hai = matches!(body, Body::Block(_) | Body::CollaborationStart { .. });
        let mut event = self.bare_event(body);
        let mut extra = Extra {
            metadata: self.metadata.clone(),
            raw: self.raw.clone(),
            unknown: self.agui.as_ref().and_then(|agui| agui.member("unknown")).and_then(Json::into_object),
        };
        let rest = self.rest.as_ref().map(Object::entries).unwrap_or_default();
        let mut hai_entries = Vec::new();
        let mut unknown = Vec::new();
        for (key, value) in &rest {
            let kept = if uses_hai || metadata::is_foreign(key) { &mut hai_entries } else { &mut unknown };
            kept.push((key.as_str(), value.clone()));
        }
        hai_entries.extend(hai.iter().cloned());
        hai_entries.retain(|(key, value)| fits_metadata(key, value, tally));
        unknown.retain(|(key, value)| fits_metadata(key, value, tally));
        if uses_hai {
            unknown.append(&mut hai_entries);
        }
        if !hai_entries.is_empty() {
            let given = extra.metadata.take().unwrap_or_else(Object::empty);
            let before = given.member(HAI).and_then(Json::into_object).unwrap_or_else(Object::empty);
            let hai = before.merged(&Object::from_entries(hai_entries));
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

/// Whether a member can be stored in metadata `hai`, itself nested in AG-UI metadata.
fn fits_metadata(key: &str, value: &Json, tally: &mut Tally) -> bool {
    let is_fitting = fits(value.get(), 4);
    if !is_fitting {
        tally.note("nested too deep to be kept", key);
    }
    is_fitting
}

/// Text in place of the timestamp: the standard's sample passes a message id as the time of a task.
fn timestamp_text(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<String>> {
    if f.peek("timestamp").is_none_or(|raw| !raw.get().starts_with('"')) {
        return Ok(None);
    }
    tally.note("old shape", "timestamp as text");
    opt_string(f, "timestamp", tally)
}

fn is_time(time: i64) -> bool {
    time.unsigned_abs() <= MAX_INTEGER.unsigned_abs()
}

/// Milliseconds since the epoch. A fraction is truncated.
fn timestamp(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<i64>> {
    let Some(raw) = f.take_unless_null("timestamp") else {
        return Ok(None);
    };
    let wrong = || {
        let path = f.path();
        let problem = format!("expected milliseconds since the epoch, found {}", kind_of(raw.get()));
        Path::Key(&path, "timestamp").error(problem)
    };
    if let Ok(time) = raw.get().parse::<i64>() {
        return if is_time(time) { Ok(Some(time)) } else { Err(wrong()) };
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
