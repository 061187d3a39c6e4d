//! Finds a short patch from one document to another.
//!
//! Objects are compared member by member, arrays as [`align`](super::align) matches them. On the way up every
//! subtree is weighed: where its operations are longer than its new value, the value is sent instead. At the root this
//! means that a patch is never longer than the document.
//!
//! Operations are kept as references until the choice is made; only those that are sent are copied.

use std::{fmt::Write as _, ops::ControlFlow};

use serde_json::{Map, Value};

use super::{
    Op, Patch, PatchOp,
    align::{Alignment, Origin, align},
    apply::{DEFAULT_MAX_OPERATIONS, ELEMENT_WORK, MEMBER_WORK},
    escape_token,
    size::{json_len, json_len_within},
};
use crate::json::Json;

/// The bytes of operations after which a subtree is weighed for the first time; after that, whenever they have doubled.
/// Weighing early keeps operations of long subtrees from accumulating, weighing often would cost more than it saves:
/// this is some 25 operations.
const FIRST_WEIGHING: usize = 1024;

/// The most work of shifting elements and members that a patch may cause: half of the gateway's default limit for one
/// patch. Above it the value is sent instead.
const MAX_SHIFT_WORK: usize = 32 << 20;

/// A patch that turns `from` into `to`, up to the order of members. Written out, it is never longer than a
/// `replace` of the whole document, and it has no more operations than [`DEFAULT_MAX_OPERATIONS`].
///
/// Values are compared as [`Value`]: `1` and `1.0` differ, so that the displayed text stays the same.
///
/// ```
/// use agentwire_core::patch::diff;
/// use serde_json::json;
///
/// let patch = diff(&json!({"todo": ["a", "b", "c"]}), &json!({"todo": ["b", "c"]}));
/// assert_eq!(patch.0.len(), 1);
/// assert_eq!(&*patch.0[0].path, "/todo/0");
/// ```
#[must_use]
pub fn diff(from: &Value, to: &Value) -> Patch {
    let mut search = Search { path: String::new(), edits: Vec::new(), bytes: 0, work: 0 };
    search.value(from, to);
    Patch(search.edits.into_iter().map(PatchOp::from).collect())
}

/// An operation that may be sent.
struct Edit<'v> {
    op: Op,
    path: Box<str>,
    from: Option<Box<str>>,
    value: Option<&'v Value>,
}

/// A patch being searched for.
struct Search<'v> {
    /// The pointer to the values being compared.
    path: String,
    edits: Vec<Edit<'v>>,
    /// The length of all edits, each with the comma behind it.
    bytes: usize,
    /// The work of shifting elements and members, at most.
    work: usize,
}

/// The start of the edits of a subtree.
struct Subtree<'v> {
    /// Its new value.
    to: &'v Value,
    edits: usize,
    bytes: usize,
    work: usize,
    weigh_at: usize,
}

impl<'v> Search<'v> {
    fn value(&mut self, from: &'v Value, to: &'v Value) {
        let (edits, bytes, work) = (self.edits.len(), self.bytes, self.work);
        let mut subtree = Subtree { to, edits, bytes, work, weigh_at: FIRST_WEIGHING };
        let searched = match (from, to) {
            (Value::Object(from), Value::Object(to)) => self.object(from, to, &mut subtree),
            (Value::Array(from), Value::Array(to)) => self.array(from, to, &mut subtree),
            _ if from == to => return,
            _ => return self.push(Op::Replace, Some(to)),
        };
        if searched.is_continue() {
            // No comparison is left.
            let _ = self.weigh(&subtree);
        }
    }

    fn object(
        &mut self,
        from: &'v Map<String, Value>,
        to: &'v Map<String, Value>,
        subtree: &mut Subtree<'v>,
    ) -> ControlFlow<()> {
        // Removals come first so that the document does not grow more than it must on the way.
        for key in from.keys().filter(|key| !to.contains_key(*key)) {
            self.at_key(key, |search| search.push(Op::Remove, None));
            self.work += from.len() * MEMBER_WORK;
            self.weigh_at_times(subtree)?;
        }
        for (key, value) in to {
            self.at_key(key, |search| match from.get(key) {
                Some(old) => search.value(old, value),
                None => search.push(Op::Add, Some(value)),
            });
            self.weigh_at_times(subtree)?;
        }
        ControlFlow::Continue(())
    }

    fn array(&mut self, from: &'v [Value], to: &'v [Value], subtree: &mut Subtree<'v>) -> ControlFlow<()> {
        let start = from.iter().zip(to).take_while(|(from, to)| from == to).count();
        let (from, to) = (&from[start..], &to[start..]);
        let end = from.iter().rev().zip(to.iter().rev()).take_while(|(from, to)| from == to).count();
        let (from, to) = (&from[..from.len() - end], &to[..to.len() - end]);

        let Alignment { origins, removed } = align(from, to);
        let shift = (from.len().max(to.len()) + end) * ELEMENT_WORK;
        let mut positions = Positions::new(from.len());
        // From the last to the first, so that no removal shifts those still to come.
        for index in removed.into_iter().rev() {
            positions.remove(index);
            self.at_index(start + index, |search| search.push(Op::Remove, None));
            self.work += shift;
            self.weigh_at_times(subtree)?;
        }
        // From the first to the last: what is before is in order, apart from elements that are still to move.
        let mut last_kept = None;
        for (value, origin) in to.iter().zip(&origins) {
            match *origin {
                Origin::Kept(index) => last_kept = Some(index),
                Origin::New => {
                    let target = positions.insert_behind(last_kept);
                    self.at_index(start + target, |search| search.push(Op::Add, Some(value)));
                    self.work += shift;
                }
                Origin::Moved(index) => {
                    let source = positions.remove(index);
                    let target = positions.insert_behind(last_kept);
                    self.push_move(start + source, start + target);
                    self.work += 2 * shift;
                }
            }
            self.weigh_at_times(subtree)?;
        }
        // Now every index is final.
        for (index, (value, origin)) in to.iter().zip(origins).enumerate() {
            if let Origin::Kept(old) | Origin::Moved(old) = origin {
                self.at_index(start + index, |search| search.value(&from[old], value));
                self.weigh_at_times(subtree)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Calls a function with the path extended by one token.
    fn at_key(&mut self, key: &str, act: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push('/');
        if key.contains(['~', '/']) {
            self.path.push_str(&escape_token(key));
        } else {
            self.path.push_str(key);
        }
        act(self);
        self.path.truncate(length);
    }

    fn at_index(&mut self, index: usize, act: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        write!(self.path, "/{index}").expect("writing to memory does not fail");
        act(self);
        self.path.truncate(length);
    }

    fn push(&mut self, op: Op, value: Option<&'v Value>) {
        self.add(Edit { op, path: self.path.as_str().into(), from: None, value });
    }

    fn push_move(&mut self, source: usize, target: usize) {
        let from = Some(format!("{}/{source}", self.path).into());
        self.add(Edit { op: Op::Move, path: format!("{}/{target}", self.path).into(), from, value: None });
    }

    fn add(&mut self, edit: Edit<'v>) {
        let value = edit.value.map_or(0, json_len);
        self.bytes += edit.overhead() + value + 1;
        self.edits.push(edit);
    }

    /// [`weigh`](Self::weigh)s the subtree if that was not done for a while.
    fn weigh_at_times(&mut self, subtree: &mut Subtree<'v>) -> ControlFlow<()> {
        let spent = self.bytes - subtree.bytes;
        if spent < subtree.weigh_at {
            return ControlFlow::Continue(());
        }
        subtree.weigh_at = spent * 2;
        self.weigh(subtree)
    }

    /// Compares the subtree's operations with sending its value, and settles for the latter if that is shorter.
    /// Looks at no more of the value than the operations take, so weighing again on every level stays cheap.
    /// Breaks if the subtree needs no further comparison.
    fn weigh(&mut self, subtree: &Subtree<'v>) -> ControlFlow<()> {
        if self.edits.len() == subtree.edits {
            return ControlFlow::Continue(());
        }
        let edit =
            Edit { op: Op::Replace, path: self.path.as_str().into(), from: None, value: Some(subtree.to) };
        let spent = self.bytes - subtree.bytes;
        let is_shorter = match spent.checked_sub(edit.overhead() + 2) {
            Some(cap) => json_len_within(subtree.to, cap).is_some(),
            None => false,
        };
        let is_costly = self.edits.len() - subtree.edits > DEFAULT_MAX_OPERATIONS
            || self.work - subtree.work > MAX_SHIFT_WORK;
        if !is_shorter && !is_costly {
            return ControlFlow::Continue(());
        }
        self.edits.truncate(subtree.edits);
        self.bytes = subtree.bytes;
        self.work = subtree.work;
        self.add(edit);
        ControlFlow::Break(())
    }
}

impl Edit<'_> {
    /// The length of the operation as JSON, apart from its value.
    fn overhead(&self) -> usize {
        let from = self.from.as_deref().map_or(0, |from| r#","from":"#.len() + json_len(from));
        let value = if self.value.is_some() { r#","value":"#.len() } else { 0 };
        r#"{"op":"","path":}"#.len() + self.op.as_str().len() + json_len(&*self.path) + from + value
    }
}

impl From<Edit<'_>> for PatchOp {
    fn from(edit: Edit<'_>) -> Self {
        let Edit { op, path, from, value } = edit;
        Self { op, path, from, value: value.map(Json::from), extra: None }
    }
}

/// The current positions of an array's elements while others come and go: a Fenwick tree with, for each old
/// element, how many there are now of it and of the new ones behind it.
struct Positions {
    tree: Vec<usize>,
    /// The number of new elements before the first old one.
    leading: usize,
}

impl Positions {
    fn new(count: usize) -> Self {
        let tree = (0..=count).map(|node| node & node.wrapping_neg()).collect();
        Self { tree, leading: 0 }
    }

    /// Removes the old element with that index; returns its position.
    fn remove(&mut self, index: usize) -> usize {
        let position = self.before(index);
        let mut node = index + 1;
        while node < self.tree.len() {
            self.tree[node] -= 1;
            node += node & node.wrapping_neg();
        }
        position
    }

    /// Adds a new element after an old one and the new ones that follow it; returns its position.
    fn insert_behind(&mut self, index: Option<usize>) -> usize {
        let Some(index) = index else {
            self.leading += 1;
            return self.leading - 1;
        };
        let position = self.before(index + 1);
        let mut node = index + 1;
        while node < self.tree.len() {
            self.tree[node] += 1;
            node += node & node.wrapping_neg();
        }
        position
    }

    /// The number of elements before the old one with that index.
    fn before(&self, index: usize) -> usize {
        let mut sum = self.leading;
        let mut node = index;
        while node > 0 {
            sum += self.tree[node];
            node &= node - 1;
        }
        sum
    }
}
