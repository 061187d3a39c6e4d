//! The session state, as far as the stream and the request contain it.
//!
//! ADK sends top-level keys with their new values. Keys are never removed; `null` is a value. The state of a run is the
//! state of its request plus the keys that were set since.

use indexmap::IndexMap;

use crate::{
    format::adk::wire::RawEntries,
    json::{Json, Object, Path, ReadResult, json},
    patch::{Patch, PatchOp},
    tally::Tally,
};

/// Prefix of the state keys that agentwire uses itself; clients do not see them.
pub(in crate::format::adk) const OWN_PREFIX: &str = "agentwire:";
const TEMP_PREFIX: &str = "temp:";

#[derive(Debug)]
pub(super) struct SessionState {
    keys: IndexMap<String, Json>,
    show_temp: bool,
    /// True if the request or the stream contained state, and all of it is held.
    is_known: bool,
    size: usize,
}

impl SessionState {
    /// Maximum size of the held state. ADK stores the state of a session in one database row, so real states are far
    /// smaller.
    const LIMIT: usize = 32 * 1024 * 1024;

    pub(super) fn new(initial: Option<&Object>, show_temp: bool) -> Self {
        let mut state = Self { keys: IndexMap::new(), show_temp, is_known: initial.is_some(), size: 0 };
        for (key, value) in initial.map(Object::entries).unwrap_or_default() {
            if state.is_visible(&key) {
                state.set(&key, value);
            }
        }
        state
    }

    fn is_visible(&self, key: &str) -> bool {
        !key.starts_with(OWN_PREFIX) && (self.show_temp || !key.starts_with(TEMP_PREFIX))
    }

    fn set(&mut self, key: &str, value: Json) {
        self.is_known = true;
        self.size = self.size.saturating_add(key.len() + value.get().len());
        if self.size > Self::LIMIT {
            // `size` counts overwritten values too, so measure the held state before dropping a value.
            self.size = self.keys.iter().map(|(key, value)| key.len() + value.get().len()).sum();
        }
        if self.size <= Self::LIMIT {
            self.keys.insert(key.to_owned(), value);
        } else {
            self.is_known = false;
        }
    }

    /// Sets the visible keys of a state delta and returns the equivalent patch.
    ///
    /// # Errors
    /// When a value is malformed.
    pub(super) fn apply(
        &mut self,
        delta: &RawEntries<'_>,
        path: Path<'_>,
        tally: &mut Tally,
    ) -> ReadResult<Option<Patch>> {
        let mut operations = Vec::new();
        for (key, raw) in &delta.0 {
            let key = key.as_str();
            let value = json(raw, Path::Key(&path, key), tally)?;
            if self.is_visible(key) {
                let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                operations.push(PatchOp::add(pointer, value.clone()));
                self.set(key, value);
            }
        }
        Ok((!operations.is_empty()).then_some(Patch(operations)))
    }

    /// The state, if the request or the stream contained any.
    pub(super) fn known(&self) -> Option<Json> {
        self.is_known.then(|| self.snapshot())
    }

    pub(super) fn snapshot(&self) -> Json {
        let entries = self.keys.iter().map(|(key, value)| (key.as_str(), value.clone()));
        Object::from_entries(entries).into()
    }
}
