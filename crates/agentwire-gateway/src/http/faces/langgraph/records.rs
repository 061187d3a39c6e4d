//! The history of a thread as far as no log has it: changes of its state from outside a run, and runs that were rolled back.
//!
//! It is a member of the thread's metadata that clients do not see. A change is stored as the difference to the checkpoint
//! before it.

use std::collections::BTreeSet;

use agentwire_store::{Run, Thread};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

/// The member of a thread's metadata.
const KEY: &str = "agentwire.langgraph";

/// Bytes of all changes, and number of runs. Of more changes the oldest become one; the oldest runs are dropped.
const MAX_BYTES: usize = 64 << 10;
const MAX_RUNS: usize = 64;

/// The records of a thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Records {
    pub(super) changes: Vec<Change>,
    /// The ids of runs that were rolled back.
    rolled_back: Vec<String>,
}

/// A checkpoint that a change from outside a run has made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) id: String,
    /// The checkpoint before it.
    pub(super) parent: Option<String>,
    pub(super) created: u64,
    /// The number of messages that are those of the checkpoint before, and the messages behind them.
    pub(super) kept: usize,
    pub(super) messages: String,
    /// The members of the state that differ, and those that are gone.
    pub(super) set: Map<String, Value>,
    pub(super) removed: BTreeSet<String>,
}

impl Change {
    fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(0, |text| text.len())
    }

    /// The difference that this change makes after another one, to the checkpoint before that.
    fn after(mut self, first: Self) -> Self {
        let list = |text: &str| serde_json::from_str::<Vec<Box<RawValue>>>(text).unwrap_or_default();
        if self.kept > first.kept {
            let mut messages = list(&first.messages);
            messages.truncate(self.kept - first.kept);
            messages.extend(list(&self.messages));
            self.messages = serde_json::to_string(&messages).unwrap_or_else(|_| "[]".to_owned());
            self.kept = first.kept;
        }
        let mut set = first.set;
        set.retain(|key, _| !self.removed.contains(key));
        set.extend(self.set);
        self.removed.extend(first.removed);
        self.removed.retain(|key| !set.contains_key(key));
        Self { set, parent: first.parent, ..self }
    }
}

impl Records {
    pub(super) fn of(thread: &Thread) -> Self {
        of_metadata(thread).and_then(|own| serde_json::from_value(own).ok()).unwrap_or_default()
    }

    /// False for a run that left nothing in the thread: it was rolled back, or it ended in the queue.
    pub(super) fn stands(&self, run: &Run) -> bool {
        let has_begun = run.started.is_some() || run.status.is_live();
        has_begun && self.rolled_back.iter().all(|known| known != run.run.as_str())
    }

    pub(super) fn add_change(&mut self, change: Change) {
        self.changes.push(change);
        while self.changes.iter().map(Change::bytes).sum::<usize>() > MAX_BYTES {
            let first = self.changes.remove(0);
            if self.changes.first().is_some_and(|next| next.parent.as_deref() == Some(&*first.id)) {
                let next = self.changes.remove(0);
                self.changes.insert(0, next.after(first));
            }
        }
    }

    pub(super) fn add_rolled_back(&mut self, run: &str) {
        self.rolled_back.push(run.to_owned());
        let surplus = self.rolled_back.len().saturating_sub(MAX_RUNS);
        self.rolled_back.drain(..surplus);
    }

    /// The metadata of a thread with these records in place of the stored ones.
    pub(super) fn metadata(&self, thread: &Thread) -> String {
        let metadata = thread.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let mut metadata: Map<String, Value> = metadata.unwrap_or_default();
        put(&mut metadata, serde_json::to_value(self).ok());
        Value::Object(metadata).to_string()
    }
}

/// The records in the metadata of a thread.
pub(super) fn of_metadata(thread: &Thread) -> Option<Value> {
    let mut metadata = serde_json::from_str(thread.metadata.as_deref()?).ok()?;
    take(&mut metadata)
}

/// Removes the records from the metadata of a thread.
pub(super) fn take(metadata: &mut Map<String, Value>) -> Option<Value> {
    metadata.remove(KEY)
}

/// Puts them back.
pub(super) fn put(metadata: &mut Map<String, Value>, records: Option<Value>) {
    metadata.extend(records.map(|records| (KEY.to_owned(), records)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(
        id: &str,
        parent: &str,
        (kept, messages): (usize, &str),
        set: Value,
        removed: &[&str],
    ) -> Change {
        let set = set.as_object().cloned().unwrap_or_default();
        let removed = removed.iter().map(ToString::to_string).collect();
        Change {
            id: id.into(),
            parent: Some(parent.into()),
            created: 1,
            kept,
            messages: messages.into(),
            set,
            removed,
        }
    }

    #[test]
    fn the_oldest_changes_become_one() {
        let long = "x".repeat(MAX_BYTES / 2);
        let mut records = Records::default();
        records.add_change(change("1", "0", (2, r#"["a","b"]"#), json!({"p": long, "q": 1, "r": 1}), &["s"]));
        records.add_change(change("2", "1", (3, r#"["c"]"#), json!({"p": 2, "s": 3}), &["q"]));
        records.add_change(change("3", "2", (4, "[]"), json!({"p": long}), &[]));
        let [first, second] = &records.changes[..] else { panic!("{records:?}") };
        assert_eq!((&*first.id, first.parent.as_deref(), first.kept), ("2", Some("0"), 2));
        assert_eq!(first.messages, r#"["a","c"]"#);
        assert_eq!(Value::Object(first.set.clone()), json!({"p": 2, "r": 1, "s": 3}));
        assert_eq!(first.removed, BTreeSet::from(["q".to_owned()]));
        assert_eq!((&*second.id, second.parent.as_deref()), ("3", Some("2")));
        // One that follows a run has no place without the checkpoints of that run, and needs none of an older change.
        records.add_change(change("9", "8", (0, "[]"), json!({ "p": long }), &[]));
        assert_eq!(records.changes.iter().map(|change| &*change.id).collect::<Vec<_>>(), ["9"]);
    }
}
