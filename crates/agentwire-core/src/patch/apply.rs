//! Applies JSON patches (RFC 6902, RFC 6901), all or nothing, within limits.
//!
//! The document is changed in place. Every step pushes an undo record that owns the value it displaced, so that
//! neither success nor failure copies the document.
//!
//! [`Limits::max_work`] bounds the time. Each step charges the bytes that it is about to parse, measure, copy or shift
//! before it does so, and fails when they are used up. Undoing a step shifts as much as the step did, so the undo of a
//! failed patch is within the same bound.
//!
//! The crate `json-patch` is only the oracle of the tests. Its `remove` swaps in the last member, so key order is lost
//! and a failed patch is not undone byte for byte; its `test` treats `1` and `1.0` as different; it rejects `remove ""`,
//! needs every value parsed before the first operation, and cannot stop a `copy` that doubles the document.
//!
//! `fast-json-patch` 3.1, which the AG-UI client uses (with validation), agrees except where it deviates from the RFCs:
//!
//! * it rejects the keys `__proto__` and `constructor/prototype`, which are ordinary keys here;
//! * its `add` accepts `01` and the empty token as array indices and wraps indices beyond 2³¹; it leaves `~2` and a
//!   trailing `~` unchanged, and finds inherited JavaScript members (`/toString`, or the `length` of an array as the
//!   source of a `copy`); all of these are rejected here;
//! * it resolves the target of a `move` before it removes the source and accepts an index past the end; here the target
//!   is resolved afterwards, as the RFC requires, and an index past the end is rejected;
//! * it compares numbers as doubles; here `1` equals `1.0`, but different integers beyond 2⁵³ are different;
//! * it makes a document `undefined` when a missing value is copied to the root, and moves the root into itself, which
//!   creates a cycle; both are rejected here.

use std::{
    borrow::Cow,
    mem,
    ops::{Add, Sub},
};

use serde_json::{Map, Number, Value};

use super::{
    Op, Patch, PatchOp,
    error::{PatchError, Reason, shortened},
    is_pointer,
    size::{containers, depth_within, json_len, json_len_within},
};
use crate::json::{Footprint, MAX_DEPTH};

/// The most operations in one patch. At about 40 bytes each this is 400 kB, at which size a well-behaved sender sends
/// a snapshot instead. [`diff`](super::diff) observes the same limit.
pub const DEFAULT_MAX_OPERATIONS: usize = 10_000;

/// The most bytes by which one patch may make a document longer: as many as fit in one frame
/// ([`DEFAULT_MAX_FRAME`](crate::framing::DEFAULT_MAX_FRAME)). The values of a patch are in that frame, so only
/// `copy` can exceed it.
pub const DEFAULT_MAX_SIZE_GROWTH: usize = 10 * 1024 * 1024;

/// The most work of one patch, in bytes. The gateway accepts less by default, and every
/// accepted patch must also apply wherever its log is read again.
pub const DEFAULT_MAX_WORK: usize = 256 * 1024 * 1024;

/// The work of one operation besides its values: parsing of its path and an undo record.
const STEP_WORK: usize = 64;
/// The work of shifting one array element.
pub(super) const ELEMENT_WORK: usize = 16;
/// The work of shifting one member of an object: a comparison of its key and an update of the hash table.
pub(super) const MEMBER_WORK: usize = 64;
/// The work of looking at one value for its depth.
const VALUE_WORK: usize = 4;
/// The work of a copy per byte of its JSON text: every value in it is an allocation.
const COPY_WORK: usize = 8;

/// The work of allocating one list or object of a copy.
const ALLOCATION_WORK: usize = 256;

/// Bounds on one patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most operations in one patch.
    pub max_operations: usize,
    /// The most bytes by which the document, written as compact JSON, may have grown after any operation. The
    /// sum of all copies has the same limit, even if the same patch removes them again,
    /// because removed values stay in memory until the patch is complete.
    pub max_size_growth: usize,
    /// The most memory by which the document may have grown after any operation, as [`Footprint`] estimates it; the sum
    /// of all copies has the same limit.
    pub max_footprint_growth: usize,
    /// The deepest nesting after an operation.
    pub max_depth: usize,
    /// The most work of the patch: bytes of JSON text that are parsed, measured, compared or copied, and 16 bytes for
    /// each array element and 64 for each member of an object that is shifted.
    pub max_work: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_operations: DEFAULT_MAX_OPERATIONS,
            max_size_growth: DEFAULT_MAX_SIZE_GROWTH,
            max_footprint_growth: Footprint::MAX,
            max_depth: MAX_DEPTH,
            max_work: DEFAULT_MAX_WORK,
        }
    }
}

/// The growth of a document by a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Bytes of the document as compact JSON; negative if it is shorter.
    pub bytes: i64,
    /// Memory, as [`Footprint`] estimates it.
    pub footprint: i64,
    /// Bytes of all values that were copied.
    pub copied: usize,
}

/// Applies `patch` to `document`, all or nothing: after an error the document is unchanged, byte for byte.
///
/// ```
/// use agentwire_core::patch::{Limits, Patch, PatchOp, apply};
/// use serde_json::json;
///
/// let mut state = json!({"todo": ["a"]});
/// let more = PatchOp::add("/todo/-", json!("b").into());
/// apply(&mut state, &Patch(vec![more.clone()]), &Limits::default())?;
/// assert_eq!(state, json!({"todo": ["a", "b"]}));
///
/// let error = apply(&mut state, &Patch(vec![more, PatchOp::remove("/done")]), &Limits::default());
/// assert_eq!(error.unwrap_err().to_string(), "operation 1 (`remove /done`): path does not exist");
/// assert_eq!(state, json!({"todo": ["a", "b"]}));
/// # Ok::<(), agentwire_core::patch::PatchError>(())
/// ```
///
/// # Errors
/// When an operation does not apply or exceeds `limits`.
pub fn apply(document: &mut Value, patch: &Patch, limits: &Limits) -> Result<(), PatchError> {
    apply_measured(document, patch, limits).map(|_| ())
}

/// [`apply`] that also returns how much the document has grown.
///
/// # Errors
/// As [`apply`].
pub fn apply_measured(document: &mut Value, patch: &Patch, limits: &Limits) -> Result<Growth, PatchError> {
    apply_unless_refused(document, patch, limits, &mut 0, |_| true).map(Option::unwrap_or_default)
}

/// [`apply_measured`], unless the result is not accepted; `None` if it was undone.
pub(crate) fn apply_if(
    document: &mut Value,
    patch: &Patch,
    limits: &Limits,
    is_accepted: impl FnOnce(&Value) -> bool,
) -> Result<Option<Growth>, PatchError> {
    apply_unless_refused(document, patch, limits, &mut 0, is_accepted)
}

/// [`apply`] for one of several patches that share [`Limits::max_work`]; `spent` is the work so far.
pub(super) fn apply_counted(
    document: &mut Value,
    patch: &Patch,
    limits: &Limits,
    spent: &mut usize,
) -> Result<(), PatchError> {
    apply_unless_refused(document, patch, limits, spent, |_| true).map(|_| ())
}

fn apply_unless_refused(
    document: &mut Value,
    patch: &Patch,
    limits: &Limits,
    spent: &mut usize,
    is_accepted: impl FnOnce(&Value) -> bool,
) -> Result<Option<Growth>, PatchError> {
    if let Some(operation) = patch.0.get(limits.max_operations) {
        let reason = Reason::TooManyOperations(limits.max_operations);
        return Err(PatchError::new(limits.max_operations, operation, reason));
    }
    let budget = Budget { limits, growth: Growth::default(), copied_footprint: 0, work: *spent };
    let mut application = Application { document, budget, undo: Vec::new(), hand: Value::Null };
    for (index, operation) in patch.0.iter().enumerate() {
        if let Err(reason) = application.step(operation) {
            application.undo_all();
            *spent = application.budget.work;
            return Err(PatchError::new(index, operation, reason));
        }
    }
    *spent = application.budget.work;
    if !is_accepted(application.document) {
        application.undo_all();
        return Ok(None);
    }
    Ok(Some(application.budget.growth))
}

/// A patch being applied.
struct Application<'d, 'p> {
    document: &'d mut Value,
    budget: Budget<'p>,
    undo: Vec<Undo<'p>>,
    /// The value of a move that is being undone, between its two positions.
    hand: Value,
}

/// The undo of one step. The paths are valid because steps are undone in reverse order.
enum Undo<'p> {
    /// A new value is at `path`; in an array it has the index `position`. Undoing moves it into `hand`.
    Added { path: &'p str, position: usize },
    /// `old` was at `path`. Undoing moves the present value into `hand`.
    Replaced { path: &'p str, old: Value },
    /// `old`, or else the value in `hand`, was at `path`, in `position` among its siblings.
    Removed { path: &'p str, position: usize, old: Option<Value> },
}

impl<'p> Application<'_, 'p> {
    fn step(&mut self, operation: &'p PatchOp) -> Result<(), Reason> {
        let path = &*operation.path;
        let from = operation.from.as_deref().unwrap_or_default();
        self.budget.charge(STEP_WORK + path.len() + from.len())?;
        if !is_pointer(path) {
            return Err(Reason::NotAPointer);
        }
        match operation.op {
            Op::Add => {
                let value = self.parse(operation)?;
                self.add(path, value)
            }
            Op::Replace => {
                let value = self.parse(operation)?;
                self.replace(path, value)
            }
            Op::Remove if path.is_empty() => self.replace(path, Value::Null),
            Op::Remove => self.remove(path),
            Op::Test => {
                let wanted = self.parse(operation)?;
                // A comparison ends at the first difference, so it looks at no more than the value of the test.
                self.budget.charge(operation.value.as_ref().map_or(0, |value| value.get().len()))?;
                let found = find(self.document, path).ok_or(Reason::NotFound)?;
                if is_equal(found, &wanted) { Ok(()) } else { Err(Reason::TestFailed) }
            }
            Op::Copy => {
                let from = source(operation)?;
                let found = find(self.document, from).ok_or_else(|| Reason::FromNotFound(shortened(from)))?;
                self.budget.copy(found)?;
                let copy = found.clone();
                self.add(path, copy)
            }
            Op::Move => self.relocate(source(operation)?, path),
        }
    }

    /// The value of an operation that needs one.
    fn parse(&mut self, operation: &PatchOp) -> Result<Value, Reason> {
        let value = operation.value.as_ref().ok_or(Reason::MissingValue)?;
        self.budget.charge(value.get().len())?;
        Ok(value.to_value())
    }

    fn add(&mut self, path: &'p str, value: Value) -> Result<(), Reason> {
        let target = Target::to_add(self.document, path)?;
        self.budget.admit(path, &target, &value)?;
        self.undo.push(target.fill(path, value));
        Ok(())
    }

    fn replace(&mut self, path: &'p str, value: Value) -> Result<(), Reason> {
        let target = Target::Taken(find(self.document, path).ok_or(Reason::NotFound)?);
        self.budget.admit(path, &target, &value)?;
        self.undo.push(target.fill(path, value));
        Ok(())
    }

    fn remove(&mut self, path: &'p str) -> Result<(), Reason> {
        let found = Sibling::find(self.document, path).ok_or(Reason::NotFound)?;
        self.budget.charge(found.work())?;
        let size = self.budget.measure(found.value())?;
        let (old, position, overhead) = found.remove();
        self.undo.push(Undo::Removed { path, position, old: Some(old) });
        self.budget.grow(Size::default() - overhead - size)
    }

    /// Moves the value at `from` to `path`.
    fn relocate(&mut self, from: &'p str, path: &'p str) -> Result<(), Reason> {
        if path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(Reason::IntoItself);
        }
        if from.is_empty() {
            // The only target left is the root itself.
            return Ok(());
        }
        let found =
            Sibling::find(self.document, from).ok_or_else(|| Reason::FromNotFound(shortened(from)))?;
        self.budget.charge(found.work())?;
        let (value, position, overhead) = found.remove();
        self.undo.push(Undo::Removed { path: from, position, old: None });
        let target = Target::to_add(self.document, path).and_then(|target| {
            self.budget.admit_moved(from, overhead, path, &target, &value)?;
            Ok(target)
        });
        match target {
            Ok(target) => {
                self.undo.push(target.fill(path, value));
                Ok(())
            }
            Err(reason) => {
                self.hand = value;
                Err(reason)
            }
        }
    }

    /// Undoes every step, the last one first.
    fn undo_all(&mut self) {
        const KNOWN: &str = "the path led here when the operation was applied";
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Added { path, position } => {
                    self.hand = match parent(self.document, path).expect(KNOWN) {
                        (Value::Array(elements), _) => elements.remove(position),
                        // New members are the last ones, so nothing has to shift.
                        (Value::Object(members), key) => members.shift_remove(&*key).expect(KNOWN),
                        _ => unreachable!("only containers are added to"),
                    };
                }
                Undo::Replaced { path, old } => {
                    self.hand = mem::replace(find(self.document, path).expect(KNOWN), old);
                }
                Undo::Removed { path, position, old } => {
                    let old = old.unwrap_or_else(|| self.hand.take());
                    match parent(self.document, path).expect(KNOWN) {
                        (Value::Array(elements), _) => elements.insert(position, old),
                        (Value::Object(members), key) => {
                            members.shift_insert(position, key.into_owned(), old);
                        }
                        _ => unreachable!("only containers are removed from"),
                    }
                }
            }
        }
    }
}

/// The consumption of the limits by a patch.
struct Budget<'p> {
    limits: &'p Limits,
    /// The growth of the document. The bytes of all copies count, even of removed ones.
    growth: Growth,
    /// The memory of all copies.
    copied_footprint: usize,
    /// The work so far.
    work: usize,
}

impl Budget<'_> {
    /// Accounts for work that is about to be done.
    fn charge(&mut self, work: usize) -> Result<(), Reason> {
        self.work = self.work.saturating_add(work);
        if self.work > self.limits.max_work { Err(self.exhausted()) } else { Ok(()) }
    }

    fn exhausted(&self) -> Reason {
        Reason::TooCostly(self.limits.max_work)
    }

    /// The size of `value`; charges its length as JSON.
    fn measure(&mut self, value: &Value) -> Result<Size, Reason> {
        let left = self.limits.max_work.saturating_sub(self.work);
        let length = json_len_within(value, left).ok_or_else(|| self.exhausted())?;
        self.work += length;
        Ok(Size { bytes: length as i64, footprint: Footprint::of(value) as i64 })
    }

    /// The depth of `value`; charges all values in it.
    fn depth(&mut self, value: &Value) -> Result<usize, Reason> {
        let cap = self.limits.max_work.saturating_sub(self.work) / VALUE_WORK;
        let mut left = cap;
        let depth = depth_within(value, &mut left).ok_or_else(|| self.exhausted())?;
        self.work += (cap - left) * VALUE_WORK;
        Ok(depth)
    }

    /// Accounts for a copy of `value` that is about to be made.
    fn copy(&mut self, value: &Value) -> Result<(), Reason> {
        let limit = self.limits.max_size_growth;
        let (left, affordable) = (limit - self.growth.copied, (self.limits.max_work - self.work) / COPY_WORK);
        // A value is measured no further than it can be copied.
        let length =
            json_len_within(value, left.min(affordable)).ok_or_else(|| match left <= affordable {
                true => Reason::TooLarge(limit),
                false => self.exhausted(),
            })?;
        self.growth.copied += length;
        self.copied_footprint = self.copied_footprint.saturating_add(Footprint::of(value));
        if self.copied_footprint > self.limits.max_footprint_growth {
            return Err(Reason::TooManyValues(self.limits.max_footprint_growth));
        }
        self.charge(length * COPY_WORK + containers(value) * ALLOCATION_WORK)
    }

    /// Accounts for a new `value` at the target of `path`.
    fn admit(&mut self, path: &str, target: &Target<'_>, value: &Value) -> Result<(), Reason> {
        self.charge(target.work())?;
        self.check_depth(path, target, value)?;
        let freed = match target {
            Target::Taken(old) => self.measure(old)?,
            _ => Size::default(),
        };
        let size = self.measure(value)?;
        self.grow(target.overhead() + size - freed)
    }

    /// Accounts for a `value` that was taken from `from`, which freed its own size and `freed`. Its size
    /// counts on neither side, so a move does not walk through the moved value.
    fn admit_moved(
        &mut self,
        from: &str,
        freed: Size,
        path: &str,
        target: &Target<'_>,
        value: &Value,
    ) -> Result<(), Reason> {
        self.charge(target.work())?;
        if nesting(path) > nesting(from) {
            self.check_depth(path, target, value)?;
        }
        let replaced = match target {
            Target::Taken(old) => self.measure(old)?,
            _ => Size::default(),
        };
        self.grow(target.overhead() - freed - replaced)
    }

    fn check_depth(&mut self, path: &str, target: &Target<'_>, value: &Value) -> Result<(), Reason> {
        let limit = self.limits.max_depth;
        let levels = self.depth(value)?;
        if nesting(path) + levels <= limit {
            return Ok(());
        }
        // A document that came in deeper can still be changed, as long as it gets no deeper.
        let before = match target {
            Target::Taken(old) => self.depth(old)?,
            _ => 0,
        };
        if levels <= before { Ok(()) } else { Err(Reason::TooDeep(limit)) }
    }

    fn grow(&mut self, by: Size) -> Result<(), Reason> {
        let (growth, limits) = (&mut self.growth, self.limits);
        growth.bytes += by.bytes;
        growth.footprint += by.footprint;
        // A document that gets no larger can be changed, whatever it has.
        let is_beyond = |growth: i64, limit: usize| growth > i64::try_from(limit).unwrap_or(i64::MAX);
        if is_beyond(growth.bytes, limits.max_size_growth) {
            Err(Reason::TooLarge(limits.max_size_growth))
        } else if is_beyond(growth.footprint, limits.max_footprint_growth) {
            Err(Reason::TooManyValues(limits.max_footprint_growth))
        } else {
            Ok(())
        }
    }
}

/// The size of a part of a document: bytes as JSON, and memory.
#[derive(Clone, Copy, Default)]
struct Size {
    bytes: i64,
    footprint: i64,
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, footprint: self.footprint + other.footprint }
    }
}

impl Sub for Size {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { bytes: self.bytes - other.bytes, footprint: self.footprint - other.footprint }
    }
}

/// The target of a new value.
enum Target<'v> {
    /// Replaces this value.
    Taken(&'v mut Value),
    /// A new member, after the others.
    Member(&'v mut Map<String, Value>, String),
    /// Before the element that has this index now, or at the end.
    Element(&'v mut Vec<Value>, usize),
}

impl<'v> Target<'v> {
    /// The position that an add to `path` fills.
    fn to_add(document: &'v mut Value, path: &str) -> Result<Self, Reason> {
        if path.is_empty() {
            return Ok(Self::Taken(document));
        }
        match parent(document, path) {
            Some((Value::Object(members), key)) => {
                // Looked up twice, as the borrow checker cannot see that the first borrow has ended.
                if members.contains_key(&*key) {
                    return Ok(Self::Taken(&mut members[&*key]));
                }
                Ok(Self::Member(members, key.into_owned()))
            }
            Some((Value::Array(elements), token)) => {
                let length = elements.len();
                if token == "-" {
                    return Ok(Self::Element(elements, length));
                }
                if !is_index(&token) {
                    return Err(Reason::NotAnIndex(shortened(&token)));
                }
                match token.parse() {
                    Ok(index) if index <= length => Ok(Self::Element(elements, index)),
                    _ => Err(Reason::BeyondEnd { index: shortened(&token), length }),
                }
            }
            _ => Err(Reason::NoParent),
        }
    }

    /// The work of storing a value there.
    fn work(&self) -> usize {
        match self {
            Self::Taken(_) | Self::Member(..) => 0,
            Self::Element(elements, position) => (elements.len() - position) * ELEMENT_WORK,
        }
    }

    /// The growth of the document, without the new value and the one that it replaces.
    fn overhead(&self) -> Size {
        match self {
            Self::Taken(_) => Size::default(),
            Self::Member(members, key) => member_overhead(members.len() + 1, key),
            Self::Element(elements, _) => element_overhead(elements.len() + 1),
        }
    }

    /// Stores `value` there and returns the undo record.
    fn fill(self, path: &str, value: Value) -> Undo<'_> {
        match self {
            Self::Taken(old) => Undo::Replaced { path, old: mem::replace(old, value) },
            Self::Member(members, key) => {
                members.insert(key, value);
                Undo::Added { path, position: members.len() - 1 }
            }
            Self::Element(elements, position) => {
                elements.insert(position, value);
                Undo::Added { path, position }
            }
        }
    }
}

/// A value that is about to be removed from the container around it.
enum Sibling<'v, 'p> {
    Member(&'v mut Map<String, Value>, Cow<'p, str>, usize),
    Element(&'v mut Vec<Value>, usize),
}

impl<'v, 'p> Sibling<'v, 'p> {
    /// The value at `path`; `None` if there is none, and for the root.
    fn find(document: &'v mut Value, path: &'p str) -> Option<Self> {
        match parent(document, path)? {
            (Value::Object(members), key) => {
                // From the end: a removal shifts the later members, so the search takes no longer than that.
                let position = members.keys().rposition(|other| **other == *key)?;
                Some(Self::Member(members, key, position))
            }
            (Value::Array(elements), token) => {
                let position = index(&token).filter(|index| *index < elements.len())?;
                Some(Self::Element(elements, position))
            }
            _ => None,
        }
    }

    fn value(&self) -> &Value {
        match self {
            Self::Member(members, key, _) => &members[&**key],
            Self::Element(elements, position) => &elements[*position],
        }
    }

    /// The work of the removal: the shift of all later siblings, and the search for the position of a member.
    fn work(&self) -> usize {
        match self {
            Self::Member(members, _, position) => (members.len() - position) * MEMBER_WORK,
            Self::Element(elements, position) => (elements.len() - position) * ELEMENT_WORK,
        }
    }

    /// Removes the value; also returns its position among its siblings and the further size removed.
    fn remove(self) -> (Value, usize, Size) {
        match self {
            Self::Member(members, key, position) => {
                let overhead = member_overhead(members.len(), &key);
                (members.shift_remove(&*key).expect("the member was found"), position, overhead)
            }
            Self::Element(elements, position) => {
                let overhead = element_overhead(elements.len());
                (elements.remove(position), position, overhead)
            }
        }
    }
}

/// The size of one of `count` members besides its value: the key, a colon and, unless it is alone, a comma.
fn member_overhead(count: usize, key: &str) -> Size {
    let key = Size { bytes: (json_len(key) + 1) as i64, footprint: 0 };
    key + element_overhead(count)
}

/// The size of one of `count` elements besides its value: a comma, unless it is alone.
fn element_overhead(count: usize) -> Size {
    match count > 1 {
        true => Size { bytes: 1, footprint: Footprint::SIBLING as i64 },
        false => Size::default(),
    }
}

/// The number of containers around the value at `path`.
fn nesting(path: &str) -> usize {
    path.matches('/').count()
}

/// The `from` of a move or copy.
fn source(operation: &PatchOp) -> Result<&str, Reason> {
    let from = operation.from.as_deref().ok_or(Reason::MissingFrom)?;
    if is_pointer(from) { Ok(from) } else { Err(Reason::FromNotAPointer) }
}

/// The value that `path` leads to.
fn find<'v>(document: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    // The text before the first slash is empty and denotes the root.
    path.split('/').skip(1).try_fold(document, |value, token| match value {
        Value::Object(members) => members.get_mut(&*unescape(token)),
        Value::Array(elements) => elements.get_mut(index(token)?),
        _ => None,
    })
}

/// The parent of the value at `path`, and the last token; `None` for the root.
fn parent<'v, 'p>(document: &'v mut Value, path: &'p str) -> Option<(&'v mut Value, Cow<'p, str>)> {
    let (parent, token) = path.rsplit_once('/')?;
    Some((find(document, parent)?, unescape(token)))
}

pub(super) fn unescape(token: &str) -> Cow<'_, str> {
    if token.contains('~') { token.replace("~1", "/").replace("~0", "~").into() } else { token.into() }
}

/// The array index that a token stands for.
pub(super) fn index(token: &str) -> Option<usize> {
    is_index(token).then(|| token.parse().ok())?
}

/// Whether a token has the form of an array index: digits, without leading zeros.
fn is_index(token: &str) -> bool {
    !token.is_empty()
        && token.bytes().all(|byte| byte.is_ascii_digit())
        && (token == "0" || !token.starts_with('0'))
}

/// Equality as RFC 6902 defines it for `test`: numbers by value, members in any order.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => is_same_number(left, right),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, left)| right.get(key).is_some_and(|right| is_equal(left, right)))
        }
        _ => left == right,
    }
}

fn is_same_number(left: &Number, right: &Number) -> bool {
    match (left.as_i128(), right.as_i128()) {
        (Some(left), Some(right)) => left == right,
        (None, None) => left == right,
        (Some(integer), None) => is_same_as_double(integer, right),
        (None, Some(integer)) => is_same_as_double(integer, left),
    }
}

/// Exact where a conversion of the integer would round: 2⁵³ + 1 is not 2⁵³.
fn is_same_as_double(integer: i128, double: &Number) -> bool {
    // The cast saturates far beyond the 64 bits that an integer can have here.
    double.as_f64().is_some_and(|double| double.fract() == 0.0 && double as i128 == integer)
}
