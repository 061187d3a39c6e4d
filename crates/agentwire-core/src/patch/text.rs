//! Applies a patch to a document that is kept as text, without parsing all of it.
//!
//! All operations of most patches concern a few members of one object. That object is found by a scan of the text, only these
//! members are parsed, the patch is applied to a document that has nothing else, and their new texts replace the old ones.
//!
//! The result is the text that [`apply`] to the whole document and a write of it give, byte for byte, if the text is one that
//! serde_json has written. Patches whose result or whose work depends on the other members are left to [`apply`]: those that
//! remove a member of the object itself, those that do not apply, and those that exceed a limit.

use std::{borrow::Cow, collections::HashSet};

use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::{Limits, Op, Patch, PatchOp, apply, apply::unescape};
use crate::json::raw_members;

/// The most operations of a patch that is applied in this way. A longer one changes much of the document.
const MAX_OPERATIONS: usize = 64;

/// The text of a document after `patch`; `None` if that takes the whole document, or if the patch does not apply. The caller
/// parses the document and uses [`apply`] then.
///
/// ```
/// use agentwire_core::patch::{Limits, Patch, PatchOp, apply_to_text};
/// use serde_json::json;
///
/// let patch = Patch(vec![PatchOp::replace("/n", json!(2).into())]);
/// let text = apply_to_text(r#"{"rows":["many"],"n":1}"#, &patch, &Limits::default());
/// assert_eq!(text.unwrap(), r#"{"rows":["many"],"n":2}"#);
/// assert_eq!(apply_to_text("[1]", &patch, &Limits::default()), None);
/// ```
#[must_use]
pub fn apply_to_text(text: &str, patch: &Patch, limits: &Limits) -> Option<String> {
    if patch.0.is_empty() || patch.0.len() > MAX_OPERATIONS {
        return None;
    }
    let pointers: Vec<Vec<&str>> = pointers(patch).map(tokens).collect::<Option<_>>()?;
    let object = Container::find(text, &pointers)?;
    let level = object.path.len();
    if patch.0.iter().any(|operation| removes_member(operation, level)) {
        return None;
    }
    let wanted: HashSet<Cow<'_, str>> = pointers.iter().map(|tokens| unescape(tokens[level])).collect();
    let mut found = Map::new();
    for (key, value) in object.members.iter().filter(|(key, _)| wanted.contains(key)) {
        let value = serde_json::from_str(value).ok()?;
        if found.insert(key.clone().into_owned(), value).is_some() {
            // Of two members with one name, a parser takes the last.
            return None;
        }
    }
    // The length of a document with a new member depends on whether there are others.
    let placeholder = (found.is_empty() && !object.members.is_empty()).then(|| unused_key(&wanted));
    if let Some(key) = &placeholder {
        found.insert(key.clone(), Value::Null);
    }
    let mut document = nested(&object.path, Value::Object(found));
    apply(&mut document, patch, limits).ok()?;
    let mut changed = document;
    for key in &object.path {
        changed = changed.get_mut(&**key)?.take();
    }
    let Value::Object(mut changed) = changed else { return None };
    if let Some(key) = &placeholder {
        changed.shift_remove(key);
    }
    object.with_members(text, changed)
}

/// All pointers of a patch.
fn pointers(patch: &Patch) -> impl Iterator<Item = &str> {
    patch.0.iter().flat_map(|operation| {
        let from = operation.from.as_deref().filter(|_| operation.op.needs_from());
        std::iter::once(&*operation.path).chain(from)
    })
}

/// The tokens of a pointer; `None` for the root and for a text that is none.
fn tokens(pointer: &str) -> Option<Vec<&str>> {
    let mut tokens = pointer.split('/');
    // The text before the first slash is empty and denotes the root.
    (tokens.next() == Some("")).then(|| tokens.collect()).filter(|tokens: &Vec<_>| !tokens.is_empty())
}

/// True if an operation removes a member of the object behind `level` tokens. That shifts the members behind it, which counts
/// as work.
fn removes_member(operation: &PatchOp, level: usize) -> bool {
    let removed = match operation.op {
        Op::Remove => &*operation.path,
        Op::Move => operation.from.as_deref().unwrap_or_default(),
        Op::Add | Op::Replace | Op::Copy | Op::Test => return false,
    };
    removed.matches('/').count() == level + 1
}

/// A key that is not among `wanted`.
fn unused_key(wanted: &HashSet<Cow<'_, str>>) -> String {
    let mut key = String::new();
    while wanted.contains(&*key) {
        key.push('_');
    }
    key
}

/// `value` inside of objects with one member each.
fn nested(path: &[Cow<'_, str>], value: Value) -> Value {
    path.iter()
        .rev()
        .fold(value, |value, key| Value::Object(Map::from_iter([(key.clone().into_owned(), value)])))
}

/// The innermost object of a text that all pointers lead through.
struct Container<'t, 'p> {
    /// The keys that lead to it.
    path: Vec<Cow<'p, str>>,
    /// Its text, a part of the document's.
    text: &'t str,
    members: Vec<(Cow<'t, str>, &'t str)>,
}

impl<'t, 'p> Container<'t, 'p> {
    fn find(text: &'t str, pointers: &[Vec<&'p str>]) -> Option<Self> {
        let (first, others) = pointers.split_first()?;
        if !(text.starts_with('{') && text.ends_with('}')) {
            return None;
        }
        let mut object = Self { path: Vec::new(), text, members: raw_members(text)? };
        for (level, token) in first[..first.len() - 1].iter().enumerate() {
            let is_common = |tokens: &Vec<&str>| tokens.len() > level + 1 && tokens[level] == *token;
            if !others.iter().all(is_common) {
                break;
            }
            let key = unescape(token);
            let mut named = object.members.iter().filter(|(name, _)| *name == key);
            let (Some((_, text)), None) = (named.next(), named.next()) else { break };
            // A list is parsed as a whole, because its elements have numbers.
            if !text.starts_with('{') {
                break;
            }
            let members = raw_members(text)?;
            object.path.push(key);
            (object.text, object.members) = (text, members);
        }
        Some(object)
    }

    /// The document with new values of members, and with new members.
    fn with_members(&self, document: &str, changed: Map<String, Value>) -> Option<String> {
        let mut changed: IndexMap<String, String> =
            changed.into_iter().map(|(key, value)| (key, value.to_string())).collect();
        let written: usize = changed.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
        let mut result = String::with_capacity(document.len() + written);
        let mut copied = 0;
        for (key, old) in &self.members {
            if let Some(value) = changed.shift_remove(&**key) {
                let at = offset(document, old)?;
                result.push_str(&document[copied..at]);
                result.push_str(&value);
                copied = at + old.len();
            }
        }
        let end = offset(document, self.text)? + self.text.len() - 1;
        result.push_str(&document[copied..end]);
        let mut is_first = self.members.is_empty();
        for (key, value) in changed {
            if !std::mem::take(&mut is_first) {
                result.push(',');
            }
            result.push_str(&Value::String(key).to_string());
            result.push(':');
            result.push_str(&value);
        }
        result.push_str(&document[end..]);
        Some(result)
    }
}

/// The position of a part of a text.
fn offset(text: &str, part: &str) -> Option<usize> {
    let offset = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    (offset + part.len() <= text.len()).then_some(offset)
}
