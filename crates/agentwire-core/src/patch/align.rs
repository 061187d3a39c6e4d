//! Array alignment for the diff: maps the elements of a new array to those of the old one.
//!
//! Elements match by `id` if they are objects with one, otherwise by their whole value. Of the matched elements, the
//! longest increasing subsequence is kept in place and the others are moved. Unmatched elements between two kept ones
//! are paired, because changing an element takes fewer bytes than removing it and adding another. Hash maps and binary
//! search keep the cost at n log n in the number of elements.

use std::collections::{HashMap, hash_map::Entry};

use serde_json::Value;

/// The origin of an element of the new array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The old element with this index, in unchanged order relative to the other kept ones.
    Kept(usize),
    /// The old element with this index, moved.
    Moved(usize),
    /// No old element.
    New,
}

/// The mapping from an old array to a new one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The origin of each new element.
    pub(super) origins: Vec<Origin>,
    /// The indices of the old elements without a counterpart, ascending.
    pub(super) removed: Vec<usize>,
}

/// The value by which elements are matched.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'v> {
    Id(&'v Value),
    Whole(&'v Value),
}

impl<'v> Identity<'v> {
    fn of(element: &'v Value) -> Self {
        match element.get("id") {
            Some(id @ (Value::String(_) | Value::Number(_))) => Self::Id(id),
            _ => Self::Whole(element),
        }
    }
}

/// Aligns `to` with `from`.
pub(super) fn align(from: &[Value], to: &[Value]) -> Alignment {
    let matches = matches(from, to);
    let in_order = longest_increasing(&matches);
    let found = matches.iter().flatten().count();
    let stays = in_order.iter().filter(|kept| **kept).count();
    // Table rows and board cells change in place and are often equal; the index is the better identity for them,
    // unless elements moved.
    if from.len() == to.len() && found == stays {
        let same = from.iter().zip(to).filter(|(from, to)| Identity::of(from) == Identity::of(to)).count();
        if same >= stays {
            return Alignment { origins: (0..to.len()).map(Origin::Kept).collect(), removed: Vec::new() };
        }
    }

    let mut is_matched = vec![false; from.len()];
    for index in matches.iter().flatten() {
        is_matched[*index] = true;
    }
    let mut alignment = Alignment { origins: Vec::with_capacity(to.len()), removed: Vec::new() };
    let mut next = 0;
    let mut left_over = Vec::new();
    for (index, source) in matches.iter().enumerate() {
        match *source {
            Some(source) if in_order[index] => {
                alignment.close_gap(&mut left_over, (next..source).filter(|old| !is_matched[*old]));
                alignment.origins.push(Origin::Kept(source));
                next = source + 1;
            }
            Some(source) => alignment.origins.push(Origin::Moved(source)),
            None => {
                left_over.push(index);
                alignment.origins.push(Origin::New);
            }
        }
    }
    alignment.close_gap(&mut left_over, (next..from.len()).filter(|old| !is_matched[*old]));
    alignment
}

impl Alignment {
    /// Pairs the unmatched `new` and `old` elements between two kept ones.
    fn close_gap(&mut self, new: &mut Vec<usize>, mut old: impl Iterator<Item = usize>) {
        for new in new.drain(..) {
            match old.next() {
                Some(old) => self.origins[new] = Origin::Kept(old),
                None => break,
            }
        }
        self.removed.extend(old);
    }
}

/// The matching old element of each new one. Equal elements are matched in order.
fn matches(from: &[Value], to: &[Value]) -> Vec<Option<usize>> {
    let mut first: HashMap<Identity<'_>, usize> = HashMap::with_capacity(from.len());
    // For each old element, the next one with the same identity.
    let mut following = vec![None; from.len()];
    for (index, element) in from.iter().enumerate().rev() {
        following[index] = first.insert(Identity::of(element), index);
    }
    let next_match = |element| match first.entry(Identity::of(element)) {
        Entry::Occupied(mut entry) => Some(match following[*entry.get()] {
            Some(next) => entry.insert(next),
            None => entry.remove(),
        }),
        Entry::Vacant(_) => None,
    };
    to.iter().map(next_match).collect()
}

/// Marks a longest increasing subsequence of `numbers`.
fn longest_increasing(numbers: &[Option<usize>]) -> Vec<bool> {
    // `ends[n]` is the index of the smallest last number of an increasing subsequence of length n + 1.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; numbers.len()];
    for (at, number) in numbers.iter().enumerate() {
        if number.is_some() {
            let length = ends.partition_point(|end| numbers[*end] < *number);
            before[at] = length.checked_sub(1).map(|shorter| ends[shorter]);
            match ends.get_mut(length) {
                Some(end) => *end = at,
                None => ends.push(at),
            }
        }
    }
    let mut marks = vec![false; numbers.len()];
    let mut at = ends.last().copied();
    while let Some(end) = at {
        marks[end] = true;
        at = before[end];
    }
    marks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Origin::*, *};

    fn aligned(from: Value, to: Value) -> (Vec<Origin>, Vec<usize>) {
        let Alignment { origins, removed } = align(from.as_array().unwrap(), to.as_array().unwrap());
        (origins, removed)
    }

    #[test]
    fn objects_are_recognised_by_id() {
        let from = json!([{"id": 1, "x": 1}, {"id": "1", "x": 2}, {"id": 3}]);
        let to = json!([{"id": "1", "x": 9}, {"id": 4}, {"id": 3}]);
        assert_eq!(aligned(from, to), (vec![Kept(1), New, Kept(2)], vec![0]));
    }

    #[test]
    fn id_that_is_no_scalar_is_ignored() {
        for id in [json!(null), json!([1]), json!({}), json!(true)] {
            let (from, to) = (json!([{"id": id, "x": 1}, 7, 8]), json!([7, {"id": id, "x": 2}]));
            assert_eq!(aligned(from, to), (vec![Kept(1), Kept(2)], vec![0]));
        }
    }

    #[test]
    fn longest_increasing_subsequence_is_kept() {
        let to = json!([5, 1, 2, 4, 3]);
        assert_eq!(
            aligned(json!([1, 2, 3, 4, 5]), to),
            (vec![Moved(4), Kept(0), Kept(1), Moved(3), Kept(2)], vec![])
        );
    }

    #[test]
    fn equal_elements_are_matched_in_order() {
        assert_eq!(
            aligned(json!([7, 7, 8]), json!([7, 8, 7, 7])),
            (vec![Kept(0), Moved(2), Kept(1), New], vec![])
        );
    }

    #[test]
    fn equal_cells_change_in_place() {
        let (from, to) = (json!([0, 0, 0, 0, 0]), json!([1, 0, 0, 0, 2]));
        assert_eq!(aligned(from, to), ((0..5).map(Kept).collect(), vec![]));
    }

    #[test]
    fn elements_between_two_kept_ones_are_paired() {
        let (from, to) = (json!(["a", 1, 2, "b", 3]), json!(["a", 4, "b", 5, 6]));
        assert_eq!(aligned(from, to), (vec![Kept(0), Kept(1), Kept(3), Kept(4), New], vec![2]));
    }
}
