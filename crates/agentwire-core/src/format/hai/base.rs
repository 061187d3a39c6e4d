//! What every HAI event may carry besides its own members, read and written.
//!
//! HAI has no metadata and says nothing about members that it does not define. What AG-UI has for every event
//! (`subagentRunId`, `metadata`, `rawEvent`) is therefore sent as plain members, and members that nobody here
//! understands live in the canonical event's metadata under `hai`, from where they go back onto the wire.

use super::{
    delta::{compose, fits},
    wire::{self, AGUI, HAI},
};
use crate::{
    event::{Body, Event, Extra, SubagentId},
    format::{ReadError, ag_ui::shapes::MAX_INTEGER},
    json::{Fields, Json, Object, ObjectWriter, Path, kind_of},
    tally::Tally,
};

/// The common members of an event that was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Base {
    pub(super) timestamp: Option<i64>,
    pub(super) subagent: Option<SubagentId>,
    pub(super) metadata: Option<Object>,
    pub(super) raw: Option<Json>,
    pub(super) agui: Option<Object>,
    /// Members that nobody understands.
    pub(super) rest: Option<Object>,
}

impl Base {
    pub(super) fn take(f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<Self, ReadError> {
        Ok(Self {
            timestamp: timestamp(f, tally)?,
            subagent: id(f, "subagentRunId", tally)?.map(SubagentId::from),
            metadata: object(f, "metadata", tally)?,
            raw: super::delta::some_json(f, "rawEvent", tally)?,
            agui: object(f, AGUI, tally)?,
            rest: None,
        })
    }

    /// Keeps what is left of the event's members.
    pub(super) fn finish(
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
    pub(super) fn stands_for(&self) -> Option<String> {
        self.agui.as_ref()?.get_str("type")
    }

    /// A string of [`AGUI`].
    pub(super) fn agui_str(&self, key: &str) -> Option<String> {
        self.agui.as_ref()?.get_str(key)
    }

    /// The bytes of what came along.
    pub(super) fn weight(&self) -> usize {
        let objects = [&self.metadata, &self.agui, &self.rest].into_iter().flatten();
        let raw = self.raw.as_ref().map_or(0, |raw| raw.get().len());
        objects.map(|object| object.get().len()).sum::<usize>() + raw
    }

    /// An event with no more than its time and its owner.
    pub(super) fn bare(&self, body: Body) -> Event {
        Event::new(body).by(self.subagent.clone()).at(self.timestamp)
    }

    /// An event with everything that came along, and with `hai` in its metadata.
    pub(super) fn event(&self, body: Body, hai: &[(&str, Json)], tally: &mut Tally) -> Event {
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
            let kept = if apart || wire::is_foreign(key) { &mut own } else { &mut unknown };
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

/// A string; `null` is the same as nothing.
pub(super) fn id(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> Result<Option<String>, ReadError> {
    let path = f.path();
    let path = Path::Key(&path, key);
    f.take_unless_null(key).map(|raw| Ok(crate::json::text(raw, path, tally)?.into_owned())).transpose()
}

/// A string that must be there.
pub(super) fn need(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> Result<String, ReadError> {
    id(f, key, tally)?.ok_or_else(|| f.missing(key, "a string"))
}

/// An object; `null` is the same as nothing.
pub(super) fn object(
    f: &mut Fields<'_, '_>,
    key: &str,
    tally: &mut Tally,
) -> Result<Option<Object>, ReadError> {
    match f.peek(key) {
        Some(raw) if raw.get() == "null" => {
            f.take(key);
            Ok(None)
        }
        _ => f.object(key, tally),
    }
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

/// What an event carries that is not its body, on its way out.
#[derive(Debug, Default)]
pub(super) struct Companions {
    subagent: Option<SubagentId>,
    timestamp: Option<i64>,
    metadata: Option<Object>,
    raw: Option<Json>,
    unknown: Option<Object>,
    /// Members of metadata `hai` that nobody has taken yet.
    hai: Vec<(String, Json)>,
    /// Whether those are among the unknown members instead, because metadata `hai` says something else.
    apart: bool,
}

impl Companions {
    pub(super) fn of(event: &Event, timestamp: Option<i64>) -> Self {
        let mut companions = Self { subagent: event.subagent.clone(), timestamp, ..Self::default() };
        let Some(extra) = event.extra.as_deref() else {
            return companions;
        };
        companions.raw = extra.raw.clone();
        if matches!(event.body, Body::Block(_) | Body::CollaborationStart { .. }) {
            companions.metadata = extra.metadata.clone();
            companions.hai = extra.unknown.as_ref().map(Object::entries).unwrap_or_default();
            companions.apart = true;
            return companions;
        }
        companions.unknown = extra.unknown.clone();
        companions.metadata = extra.metadata.clone();
        let hai =
            extra.metadata.as_ref().and_then(|metadata| metadata.member(HAI)).and_then(Json::into_object);
        if let Some(hai) = hai.filter(|hai| !hai.is_empty()) {
            companions.hai = hai.entries();
            companions.metadata = extra
                .metadata
                .as_ref()
                .map(|metadata| metadata.without(HAI))
                .filter(|metadata| !metadata.is_empty());
        }
        companions
    }

    /// Nothing but a time.
    pub(super) fn at(timestamp: Option<i64>) -> Self {
        Self { timestamp, ..Self::default() }
    }

    pub(super) fn timestamp(&self) -> Option<i64> {
        self.timestamp
    }

    /// Takes a member of metadata `hai`, if it is there and fit.
    pub(super) fn take(&mut self, key: &str, fit: impl Fn(&Json) -> bool) -> Option<Json> {
        let at = self.hai.iter().rposition(|(name, value)| name == key && fit(value))?;
        Some(self.hai.remove(at).1)
    }

    /// Takes a string.
    pub(super) fn take_str(&mut self, key: &str) -> Option<String> {
        self.take(key, |value| value.get().starts_with('"')).and_then(|value| value.as_str())
    }

    /// Takes a string that a reader says by itself, if there is anything else beside which it says it.
    pub(super) fn take_redundant(&mut self, key: &str, known: &str) {
        if self.hai.len() > 1 {
            self.take(key, |value| value.as_str().as_deref() == Some(known));
        }
    }

    /// Takes anything but `null`.
    pub(super) fn take_some(&mut self, key: &str) -> Option<Json> {
        self.take(key, |value| !value.is_null())
    }

    /// Takes an object.
    pub(super) fn take_object(&mut self, key: &str) -> Option<Object> {
        self.take(key, |value| value.get().starts_with('{')).and_then(Json::into_object)
    }

    /// Whether nothing is left that a frame would have to say.
    pub(super) fn is_empty(&self) -> bool {
        self.metadata.is_none() && self.raw.is_none() && self.unknown.is_none() && self.hai.is_empty()
    }

    /// Whether this is what is left to say, and nothing else.
    pub(super) fn says(&self, metadata: Option<&Object>, hai: Option<&Object>) -> bool {
        let given = Object::from_entries(self.hai.iter().map(|(key, value)| (key.as_str(), value.clone())));
        self.raw.is_none()
            && self.unknown.is_none()
            && self.metadata.as_ref().map(Object::to_value) == metadata.map(Object::to_value)
            && given.to_value() == hai.map_or_else(|| Object::empty().to_value(), Object::to_value)
    }

    /// The same, with nothing but owner and time.
    pub(super) fn bare(&self) -> Self {
        Self { subagent: self.subagent.clone(), timestamp: self.timestamp, ..Self::default() }
    }

    /// Writes the common members of an event; `marker` says which AG-UI event it stands for.
    pub(super) fn write(self, w: &mut ObjectWriter<'_>, event_type: &str, marker: Option<Object>) {
        w.opt_int("timestamp", self.timestamp);
        self.write_rest(w, event_type, marker);
    }

    /// As [`Companions::write`], without the time.
    pub(super) fn write_rest(self, w: &mut ObjectWriter<'_>, event_type: &str, marker: Option<Object>) {
        w.opt_str("subagentRunId", self.subagent.as_deref());
        let (free, bound): (Vec<_>, Vec<_>) =
            self.hai.into_iter().partition(|(key, value)| wire::is_free(event_type, key) && !value.is_null());
        let bound = compose(bound.iter().map(|(key, value)| (key.as_str(), value.clone())));
        let (mut metadata, mut unknown) = (self.metadata, self.unknown);
        if !bound.is_empty() && self.apart {
            unknown = Some(bound);
        } else if !bound.is_empty() && fits(bound.get(), 1) {
            metadata = Some(metadata.unwrap_or_else(Object::empty).with(HAI, bound.into()));
        }
        w.opt_object("metadata", metadata.as_ref()).opt_json("rawEvent", self.raw.as_ref());
        for (key, value) in &free {
            w.entry(key, value);
        }
        let marker = match (marker, unknown) {
            (marker, None) => marker,
            (marker, Some(unknown)) => {
                let marker = marker.unwrap_or_else(Object::empty);
                Some(if fits(unknown.get(), 1) { marker.with("unknown", unknown.into()) } else { marker })
            }
        };
        w.opt_object(AGUI, marker.as_ref());
    }
}

/// A marker: the members of [`AGUI`].
pub(super) fn marker<'k>(entries: impl IntoIterator<Item = (&'k str, Json)>) -> Option<Object> {
    Some(compose(entries))
}
