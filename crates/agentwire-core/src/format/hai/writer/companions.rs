//! What every HAI event may carry besides its own members, written.

use super::super::{
    metadata,
    nesting::{compose, fits},
    wire::{AGUI, HAI},
};
use crate::{
    event::{Body, Event, SubagentId},
    json::{Json, Object, ObjectWriter},
};

/// What an event carries that is not its body, on its way out.
#[derive(Debug, Default)]
pub(crate) struct Companions {
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
    pub(crate) fn of(event: &Event, timestamp: Option<i64>) -> Self {
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
    pub(crate) fn at(timestamp: Option<i64>) -> Self {
        Self { timestamp, ..Self::default() }
    }

    pub(crate) fn timestamp(&self) -> Option<i64> {
        self.timestamp
    }

    /// Takes a member of metadata `hai`, if it is there and fit.
    pub(crate) fn take(&mut self, key: &str, fit: impl Fn(&Json) -> bool) -> Option<Json> {
        let at = self.hai.iter().rposition(|(name, value)| name == key && fit(value))?;
        Some(self.hai.remove(at).1)
    }

    /// Takes a string.
    pub(crate) fn take_str(&mut self, key: &str) -> Option<String> {
        self.take(key, |value| value.get().starts_with('"')).and_then(|value| value.as_str())
    }

    /// Takes a string that a reader says by itself, if there is anything else beside which it says it.
    pub(crate) fn take_redundant(&mut self, key: &str, known: &str) {
        if self.hai.len() > 1 {
            self.take(key, |value| value.as_str().as_deref() == Some(known));
        }
    }

    /// Takes anything but `null`.
    pub(crate) fn take_some(&mut self, key: &str) -> Option<Json> {
        self.take(key, |value| !value.is_null())
    }

    /// Takes an object.
    pub(crate) fn take_object(&mut self, key: &str) -> Option<Object> {
        self.take(key, |value| value.get().starts_with('{')).and_then(Json::into_object)
    }

    /// Whether nothing is left that a frame would have to say.
    pub(crate) fn is_empty(&self) -> bool {
        self.metadata.is_none() && self.raw.is_none() && self.unknown.is_none() && self.hai.is_empty()
    }

    /// Whether this is what is left to say, and nothing else.
    pub(crate) fn says(&self, metadata: Option<&Object>, hai: Option<&Object>) -> bool {
        let given = Object::from_entries(self.hai.iter().map(|(key, value)| (key.as_str(), value.clone())));
        self.raw.is_none()
            && self.unknown.is_none()
            && self.metadata.as_ref().map(Object::to_value) == metadata.map(Object::to_value)
            && given.to_value() == hai.map_or_else(|| Object::empty().to_value(), Object::to_value)
    }

    /// The same, with nothing but owner and time.
    pub(crate) fn bare(&self) -> Self {
        Self { subagent: self.subagent.clone(), timestamp: self.timestamp, ..Self::default() }
    }

    /// Writes the common members of an event; `marker` says which AG-UI event it stands for.
    pub(crate) fn write(self, w: &mut ObjectWriter<'_>, event_type: &str, marker: Option<Object>) {
        w.opt_int("timestamp", self.timestamp);
        self.write_rest(w, event_type, marker);
    }

    /// As [`Companions::write`], without the time.
    pub(crate) fn write_rest(self, w: &mut ObjectWriter<'_>, event_type: &str, marker: Option<Object>) {
        w.opt_str("subagentRunId", self.subagent.as_deref());
        let (free, bound): (Vec<_>, Vec<_>) = self
            .hai
            .into_iter()
            .partition(|(key, value)| metadata::is_free(event_type, key) && !value.is_null());
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
pub(crate) fn marker<'k>(entries: impl IntoIterator<Item = (&'k str, Json)>) -> Option<Object> {
    Some(compose(entries))
}
