//! Joins patches into one where the result is the same on every document.
//!
//! A patch applies whole or not at all, so two patches may become one only if the second applies exactly when the first
//! does. The document is unknown, but the *requirements* of a patch and its effects are. For additions, replacements and
//! removals of object members, and for additions to the end of a list, the requirements are exact: the patch applies if
//! and only if the document meets them. All other operations (tests, moves, list positions) are not joined.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use crate::{
    json::MAX_DEPTH,
    patch::{self, Limits, Op, Patch, PatchOp, is_pointer},
};

/// The most operations in a joined patch: a tenth of what one patch may have.
const MAX_OPERATIONS: usize = 1000;

/// The most bytes of paths and values in a joined patch: far below the limits of a frame and of the growth by one patch,
/// even where a number is longer after formatting than on the wire.
const MAX_BYTES: usize = 256 * 1024;

/// Patches that have become one.
pub(super) struct Joined {
    patch: Patch,
    bytes: usize,
    /// Absent where the requirements of the patch are unknown.
    analysis: Option<Analysis>,
}

struct Analysis {
    /// The exact requirements of the patch on the document.
    need: Knowledge,
    /// The known state after it has applied.
    after: Knowledge,
}

/// The knowledge about a value.
enum Knowledge {
    /// Nothing, not even whether it exists.
    Nothing,
    /// It exists.
    Present,
    /// It is an object or an array.
    Container,
    /// It is an object; unlisted members are unknown.
    Object(BTreeMap<String, Self>),
    /// It has this value, which the patch wrote.
    Written(Value),
    /// It does not exist, because the patch removed it.
    Removed,
}

impl Joined {
    pub(super) fn new(patch: &Patch) -> Self {
        Self { patch: patch.clone(), bytes: bytes(patch), analysis: Analysis::of(patch) }
    }

    pub(super) fn into_patch(self) -> Patch {
        self.patch
    }

    /// Appends another patch, if the result is the same on every document.
    pub(super) fn join(&mut self, patch: &Patch) -> bool {
        if patch.0.is_empty() {
            return true;
        }
        if self.patch.0.is_empty() {
            *self = Self::new(patch);
            return true;
        }
        let bytes = self.bytes + bytes(patch);
        if self.patch.0.len() + patch.0.len() > MAX_OPERATIONS || bytes > MAX_BYTES {
            return false;
        }
        let (Some(first), Some(second)) = (&mut self.analysis, Analysis::of(patch)) else {
            return false;
        };
        if !first.after.meets(&second.need) || !second.need.meets(&first.need) {
            return false;
        }
        if patch.0.iter().any(|operation| first.after.apply(None, operation).is_none()) {
            debug_assert!(false, "what the patch needs is met, so it applies");
            self.analysis = None;
            return false;
        }
        self.patch.0.extend(patch.0.iter().cloned());
        self.bytes = bytes;
        true
    }
}

fn bytes(patch: &Patch) -> usize {
    let of = |operation: &PatchOp| {
        operation.path.len() + operation.value.as_ref().map_or(0, |value| value.get().len()) + 40
    };
    patch.0.iter().map(of).sum()
}

impl Analysis {
    fn of(patch: &Patch) -> Option<Self> {
        if patch.0.len() > MAX_OPERATIONS || bytes(patch) > MAX_BYTES {
            return None;
        }
        let mut analysis = Self { need: Knowledge::Nothing, after: Knowledge::Nothing };
        for operation in &patch.0 {
            analysis.after.apply(Some(&mut analysis.need), operation)?;
        }
        Some(analysis)
    }
}

impl Knowledge {
    /// Whether every value like this also meets `need`.
    fn meets(&self, need: &Self) -> bool {
        match (self, need) {
            (_, Self::Nothing) => true,
            (Self::Nothing | Self::Removed, _) => false,
            (_, Self::Present) => true,
            (Self::Written(value), need) => need.is_met_by(value),
            (Self::Container | Self::Object(_), Self::Container) => true,
            (Self::Object(known), Self::Object(needed)) => needed.iter().all(|(key, need)| {
                matches!(need, Self::Nothing) || known.get(key).is_some_and(|known| known.meets(need))
            }),
            _ => false,
        }
    }

    fn is_met_by(&self, value: &Value) -> bool {
        match self {
            Self::Nothing | Self::Present => true,
            Self::Container => value.is_object() || value.is_array(),
            Self::Object(needed) => value.as_object().is_some_and(|members| {
                needed.iter().all(|(key, need)| match members.get(key) {
                    Some(member) => need.is_met_by(member),
                    None => matches!(need, Self::Nothing),
                })
            }),
            Self::Written(_) | Self::Removed => false,
        }
    }

    /// Applies one operation. Its unmet requirements go into `need`, which describes the same value before the patch. `None`
    /// when the requirements are unknown.
    fn apply(&mut self, need: Option<&mut Self>, operation: &PatchOp) -> Option<()> {
        let path = &*operation.path;
        let levels = path.matches('/').count();
        if !is_pointer(path) || levels > MAX_DEPTH {
            return None;
        }
        let new = match operation.op {
            Op::Add | Op::Replace => {
                let value = operation.value.as_ref()?.to_value();
                // Deeper documents are refused, and the depth of this one is unknown.
                if levels + depth(&value) > MAX_DEPTH {
                    return None;
                }
                Some(value)
            }
            Op::Remove if !path.is_empty() => None,
            _ => return None,
        };
        let change = Change { op: operation.op, new };
        match path.strip_prefix('/') {
            None => {
                *self = change.result();
                Some(())
            }
            Some(tokens) => self.walk(need, tokens, change),
        }
    }

    fn walk(&mut self, mut need: Option<&mut Self>, tokens: &str, change: Change) -> Option<()> {
        let (first, rest) = match tokens.split_once('/') {
            Some((first, rest)) => (first, Some(rest)),
            None => (tokens, None),
        };
        let key = unescaped(first);
        // The same token can be a member of an object or an index of an array.
        let is_key = is_plain(&key);
        if let Self::Written(value) = self {
            // Known exactly, so the operation can be tried.
            let operation = PatchOp {
                op: change.op,
                path: format!("/{tokens}").into(),
                from: None,
                value: change.new.map(Into::into),
                extra: None,
            };
            return patch::apply(value, &Patch(vec![operation]), &Limits::default()).ok();
        }
        if let Self::Nothing | Self::Present | Self::Container = self {
            if is_key {
                *self = Self::Object(BTreeMap::new());
                if let Some(need) = &mut need {
                    **need = Self::Object(BTreeMap::new());
                }
            } else if key == "-" && rest.is_none() && change.op == Op::Add {
                // The end of an array, or a member of an object: either way something to add to.
                *self = Self::Container;
                if let Some(need) = need {
                    *need = Self::Container;
                }
                return Some(());
            }
        }
        let Self::Object(members) = self else { return None };
        let member = members.entry(key.clone().into_owned()).or_insert(Self::Nothing);
        let is_original = !matches!(member, Self::Written(_) | Self::Removed);
        let need = match need {
            Some(Self::Object(needed)) if is_original => {
                Some(needed.entry(key.into_owned()).or_insert(Self::Nothing))
            }
            _ => None,
        };
        if let Some(rest) = rest {
            return member.walk(need, rest, change);
        }
        match (change.op, &*member) {
            (Op::Add, _) => {}
            (_, Self::Removed) => return None,
            (_, Self::Nothing) => *need? = Self::Present,
            _ => {}
        }
        *member = change.result();
        Some(())
    }
}

/// The effect of an operation on its target.
struct Change {
    op: Op,
    new: Option<Value>,
}

impl Change {
    fn result(self) -> Knowledge {
        match self.new {
            Some(value) => Knowledge::Written(value),
            None => Knowledge::Removed,
        }
    }
}

/// Whether a token can only be the name of a member: no array index, and none of the names that the official client
/// refuses or finds on every JavaScript object.
fn is_plain(key: &str) -> bool {
    key.bytes().any(|byte| !byte.is_ascii_digit())
        && !matches!(key, "-" | "length" | "__proto__" | "constructor" | "prototype")
}

fn unescaped(token: &str) -> Cow<'_, str> {
    if token.contains('~') { token.replace("~1", "/").replace("~0", "~").into() } else { token.into() }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;

    use super::{super::arbitrary, *};

    /// Documents that differ in every value that the generated patches use.
    fn documents() -> Vec<Value> {
        let absent = || None;
        let mut documents = vec![json!(null), json!([]), json!([1]), json!("text")];
        for a in [absent(), Some(json!(0)), Some(json!(1))] {
            for b in [absent(), Some(json!(0))] {
                for list in [absent(), Some(json!([])), Some(json!([0])), Some(json!({})), Some(json!(0))] {
                    for o in [absent(), Some(json!({})), Some(json!({"k": 0})), Some(json!([]))] {
                        let members = [("a", &a), ("b", &b), ("list", &list), ("o", &o)];
                        let given =
                            members.into_iter().filter_map(|(key, value)| Some((key.into(), value.clone()?)));
                        documents.push(Value::Object(given.collect()));
                    }
                }
            }
        }
        documents
    }

    fn apply(document: &mut Value, patch: &Patch) {
        let _ = patch::apply(document, patch, &Limits::default());
    }

    proptest! {
        #[test]
        fn a_joined_patch_does_what_its_parts_did(kinds in vec(any::<(u8, u8)>(), 2..6)) {
            let patches: Vec<Patch> = kinds.into_iter().map(|(kind, value)| arbitrary::patch(kind, value)).collect();
            let mut joined: Vec<Joined> = Vec::new();
            for patch in &patches {
                match joined.last_mut() {
                    Some(last) => if !last.join(patch) { joined.push(Joined::new(patch)) },
                    None => joined.push(Joined::new(patch)),
                }
            }
            let joined: Vec<Patch> = joined.into_iter().map(Joined::into_patch).collect();
            for document in documents() {
                let (mut one_by_one, mut together) = (document.clone(), document.clone());
                patches.iter().for_each(|patch| apply(&mut one_by_one, patch));
                joined.iter().for_each(|patch| apply(&mut together, patch));
                prop_assert_eq!(one_by_one, together, "on {}: {:?}", document, joined);
            }
        }
    }

    fn joins(patches: &[&[PatchOp]]) -> bool {
        let mut joined = Joined::new(&Patch(patches[0].to_vec()));
        patches[1..].iter().all(|patch| joined.join(&Patch(patch.to_vec())))
    }

    #[test]
    fn special_javascript_names_are_not_joined() {
        let add = |path: &str| [PatchOp::add(path, json!(1).into())];
        assert!(joins(&[&add("/a"), &add("/b~1c")]));
        for name in ["/__proto__", "/constructor", "/prototype", "/0", "/12", "/"] {
            assert!(!joins(&[&add("/a"), &add(name)]), "{name}");
        }
    }

    #[test]
    fn patches_near_a_limit_are_not_joined() {
        let add = |value: Value| [PatchOp::add("/a", value.into())];
        assert!(!joins(&[&add(json!("x".repeat(MAX_BYTES / 2))), &add(json!("x".repeat(MAX_BYTES / 2)))]));
        let many = vec![PatchOp::add("/a", json!(1).into()); MAX_OPERATIONS];
        assert!(!joins(&[&many, &add(json!(1))]));
        let mut deep = json!(1);
        for _ in 0..MAX_DEPTH {
            deep = json!([deep]);
        }
        assert!(!joins(&[&add(deep.clone()), &add(json!(1))]));
        assert!(!joins(&[&add(json!(1)), &add(deep)]));
        let far = [PatchOp::remove("/a".repeat(100_000))];
        assert!(!joins(&[&far, &far]));
    }

    #[test]
    fn malformed_operations_are_not_joined() {
        let add = [PatchOp::add("/a", json!(1).into())];
        let mut missing = PatchOp::add("/b", json!(1).into());
        missing.value = None;
        assert!(!joins(&[&add, &[missing]]));
        assert!(!joins(&[&add, &[PatchOp::add("b", json!(1).into())]]));
        assert!(!joins(&[&add, &[PatchOp::remove("")]]));
    }
}
