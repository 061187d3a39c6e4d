//! The session's state as far as a stream tells it.
//!
//! ADK sends top-level keys with their new values; there is no removal, and `null` is a value. What a run knows
//! is the state that came with its request and the keys that were set since.

use indexmap::IndexMap;

use crate::{
    format::adk::wire::RawEntries,
    json::{Json, Object, Path, ReadError, json},
    patch::{Patch, PatchOp},
    tally::Tally,
};

/// Keys under which agentwire keeps its own things in a session; no user interface sees them.
pub(in crate::format::adk) const OWN_PREFIX: &str = "agentwire:";
const TEMP_PREFIX: &str = "temp:";

#[derive(Debug)]
pub(super) struct SessionState {
    keys: IndexMap<String, Json>,
    show_temp: bool,
    /// Whether anything was said about state.
    known: bool,
    size: usize,
}

impl SessionState {
    /// How much state is held; ADK keeps a session's state in one database row, so it is smaller by far.
    const LIMIT: usize = 32 * 1024 * 1024;

    pub(super) fn new(initial: Option<&Object>, show_temp: bool) -> Self {
        let mut state = Self { keys: IndexMap::new(), show_temp, known: initial.is_some(), size: 0 };
        for (key, value) in initial.map(Object::entries).unwrap_or_default() {
            if state.shows(&key) {
                state.set(&key, value);
            }
        }
        state
    }

    fn shows(&self, key: &str) -> bool {
        !key.starts_with(OWN_PREFIX) && (self.show_temp || !key.starts_with(TEMP_PREFIX))
    }

    fn set(&mut self, key: &str, value: Json) {
        self.known = true;
        self.size = self.size.saturating_add(key.len() + value.get().len());
        if self.size > Self::LIMIT {
            // Changes are counted, not only what is held, so measure before giving up.
            self.size = self.keys.iter().map(|(key, value)| key.len() + value.get().len()).sum();
        }
        if self.size <= Self::LIMIT {
            self.keys.insert(key.to_owned(), value);
        } else {
            self.known = false;
        }
    }

    /// Sets keys; the patch says the same.
    ///
    /// # Errors
    /// When a value cannot be carried.
    pub(super) fn apply(
        &mut self,
        delta: &RawEntries<'_>,
        path: Path<'_>,
        tally: &mut Tally,
    ) -> Result<Option<Patch>, ReadError> {
        let mut operations = Vec::new();
        for (key, raw) in &delta.0 {
            let key = key.as_str();
            let value = json(raw, Path::Key(&path, key), tally)?;
            if self.shows(key) {
                let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                operations.push(PatchOp::add(pointer, value.clone()));
                self.set(key, value);
            }
        }
        Ok((!operations.is_empty()).then_some(Patch(operations)))
    }

    /// The state, if anything was said about it.
    pub(super) fn known(&self) -> Option<Json> {
        self.known.then(|| self.snapshot())
    }

    pub(super) fn snapshot(&self) -> Json {
        let entries = self.keys.iter().map(|(key, value)| (key.as_str(), value.clone()));
        Object::from_entries(entries).into()
    }
}
