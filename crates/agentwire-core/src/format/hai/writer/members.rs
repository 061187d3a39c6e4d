//! Members that every HAI event may have, written; the counterpart of `reader/members.rs`.

use super::super::{
    metadata,
    nesting::{compose, fits},
    wire::{AGUI, HAI},
};
use crate::{
    event::{Body, Event, SubagentId},
    json::{Json, Object, ObjectWriter},
};

/// The members of an event besides its body.
#[derive(Debug, Default)]
pub(crate) struct EventMembers {
    subagent: Option<SubagentId>,
    timestamp: Option<i64>,
    metadata: Option<Object>,
    raw: Option<Json>,
    unknown: Option<Object>,
    /// Entries of metadata `hai` that are not yet written as members.
    hai: Vec<(String, Json)>,
    /// Whether those are stored among the unknown members, because the body uses metadata `hai` itself.
    hai_in_unknown: bool,
}

impl EventMembers {
    pub(crate) fn of(event: &Event, timestamp: Option<i64>) -> Self {
        let mut members = Self { subagent: event.subagent.clone(), timestamp, ..Self::default() };
        let Some(extra) = event.extra.as_deref() else {
            return members;
        };
        members.raw = extra.raw.clone();
        if matches!(event.body, Body::Block(_) | Body::CollaborationStart { .. }) {
            members.metadata = extra.metadata.clone();
            members.hai = extra.unknown.as_ref().map(Object::entries).unwrap_or_default();
            members.hai_in_unknown = true;
            return members;
        }
        members.unknown = extra.unknown.clone();
        members.metadata = extra.metadata.clone();
        let hai =
            extra.metadata.as_ref().and_then(|metadata| metadata.member(HAI)).and_then(Json::into_object);
        if let Some(hai) = hai.filter(|hai| !hai.is_empty()) {
            members.hai = hai.entries();
            members.metadata = extra
                .metadata
                .as_ref()
                .map(|metadata| metadata.without(HAI))
                .filter(|metadata| !metadata.is_empty());
        }
        members
    }

    /// A timestamp only.
    pub(crate) fn at(timestamp: Option<i64>) -> Self {
        Self { timestamp, ..Self::default() }
    }

    pub(crate) fn timestamp(&self) -> Option<i64> {
        self.timestamp
    }

    /// Removes an entry of metadata `hai` that satisfies `fit`.
    pub(crate) fn remove_if(&mut self, key: &str, fit: impl Fn(&Json) -> bool) -> Option<Json> {
        let at = self.hai.iter().rposition(|(name, value)| name == key && fit(value))?;
        Some(self.hai.remove(at).1)
    }

    /// Removes a string.
    pub(crate) fn remove_str(&mut self, key: &str) -> Option<String> {
        self.remove_if(key, |value| value.get().starts_with('"')).and_then(|value| value.as_str())
    }

    /// Removes a string that the reader restores whenever there are other entries.
    pub(crate) fn remove_redundant(&mut self, key: &str, known: &str) {
        if self.hai.len() > 1 {
            self.remove_if(key, |value| value.as_str().as_deref() == Some(known));
        }
    }

    /// Removes any value but `null`.
    pub(crate) fn remove_non_null(&mut self, key: &str) -> Option<Json> {
        self.remove_if(key, |value| !value.is_null())
    }

    /// Removes an object.
    pub(crate) fn remove_object(&mut self, key: &str) -> Option<Object> {
        self.remove_if(key, |value| value.get().starts_with('{')).and_then(Json::into_object)
    }

    /// Whether no member but subagent and timestamp is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.metadata.is_none() && self.raw.is_none() && self.unknown.is_none() && self.hai.is_empty()
    }

    /// Whether the remaining members are exactly these.
    pub(crate) fn equal(&self, metadata: Option<&Object>, hai: Option<&Object>) -> bool {
        let given = Object::from_entries(self.hai.iter().map(|(key, value)| (key.as_str(), value.clone())));
        self.raw.is_none()
            && self.unknown.is_none()
            && self.metadata.as_ref().map(Object::to_value) == metadata.map(Object::to_value)
            && given.to_value() == hai.map_or_else(|| Object::empty().to_value(), Object::to_value)
    }

    /// A copy with subagent and timestamp only.
    pub(crate) fn bare(&self) -> Self {
        Self { subagent: self.subagent.clone(), timestamp: self.timestamp, ..Self::default() }
    }

    /// Writes the common members of an event; `marker` describes the AG-UI event that it represents.
    pub(crate) fn write(self, w: &mut ObjectWriter<'_>, event_type: &str, marker: Option<Object>) {
        w.opt_int("timestamp", self.timestamp);
        self.write_untimed(w, event_type, marker);
    }

    /// As [`EventMembers::write`], without the timestamp.
    pub(crate) fn write_untimed(self, w: &mut ObjectWriter<'_>, event_type: &str, marker: Option<Object>) {
        w.opt_str("subagentRunId", self.subagent.as_deref());
        let (free, bound): (Vec<_>, Vec<_>) = self
            .hai
            .into_iter()
            .partition(|(key, value)| metadata::is_free(event_type, key) && !value.is_null());
        let bound = compose(bound.iter().map(|(key, value)| (key.as_str(), value.clone())));
        let (mut metadata, mut unknown) = (self.metadata, self.unknown);
        if !bound.is_empty() && self.hai_in_unknown {
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

/// A marker: the value of [`AGUI`].
pub(crate) fn build_marker<'k>(entries: impl IntoIterator<Item = (&'k str, Json)>) -> Option<Object> {
    Some(compose(entries))
}
