//! Selection of the effective events of a stored session.
//!
//! ADK never deletes events from a session. A rewind to an earlier point and the compaction of a range are events
//! themselves, which a reader of the history has to apply.

use std::collections::HashMap;

use super::decode::parse;
use crate::{
    format::adk::wire::{AdkEvent, AdkText, EventActions, EventCompaction, SessionBody},
    json::{Path, ReadResult},
};

/// The effective events, oldest first. A summary replaces its range.
///
/// # Errors
/// When an event is malformed.
pub(super) fn effective_events<'a>(session: &SessionBody<'a>) -> ReadResult<Vec<AdkEvent<'a>>> {
    let list = Path::Key(&Path::Root, "events");
    let mut events = Vec::new();
    for (index, raw) in session.events.iter().flatten().enumerate() {
        let path = Path::Index(&list, index);
        let mut event: AdkEvent<'a> = parse(raw, path)?;
        let actions = match event.actions {
            Some(raw) => parse::<EventActions<'a>>(raw, Path::Key(&path, "actions"))?,
            None => EventActions::default(),
        };
        let mut range = None;
        if let Some(raw) = actions.compaction {
            let path = Path::Key(&path, "actions");
            let compaction: EventCompaction<'a> = parse(raw, Path::Key(&path, "compaction"))?;
            if let (Some(start), Some(end)) = (compaction.start, compaction.end) {
                range = Some((start, end));
                event.content = event.content.or(compaction.content);
                if event.author.as_ref().is_some_and(|author| author.as_str() == "user") {
                    // The author is the user who requested the summary, but a model wrote it.
                    event.author = Some(AdkText("summary".into()));
                }
            }
        }
        events.push((event, actions.rewind, range));
    }
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (index, (event, ..)) in events.iter().enumerate() {
        let invocation = event.invocation.as_ref().map_or("", AdkText::as_str);
        if !invocation.is_empty() {
            first.entry(invocation).or_insert(index);
        }
    }
    let mut is_effective = vec![true; events.len()];
    let mut end = events.len();
    while let Some(index) = end.checked_sub(1) {
        end = index;
        if let Some(rewind) = &events[index].1 {
            is_effective[index] = false;
            if let Some(&start) = first.get(rewind.as_str())
                && start < index
            {
                is_effective[start..index].fill(false);
                end = start;
            }
        }
    }
    let ranges: Vec<(usize, (f64, f64))> = events
        .iter()
        .enumerate()
        .filter(|(index, _)| is_effective[*index])
        .filter_map(|(index, (.., range))| Some((index, (*range)?)))
        .collect();
    for (index, (event, _, own)) in events.iter().enumerate() {
        let is_compacted = ranges.iter().any(|(other, (start, end))| match own {
            Some((from, to)) => other > &index && start <= from && to <= end,
            None => event.timestamp.is_some_and(|time| *start <= time.value && time.value <= *end),
        });
        is_effective[index] &= !is_compacted;
    }
    let kept = events.into_iter().zip(is_effective).filter(|(_, is_effective)| *is_effective);
    Ok(kept.map(|((event, ..), _)| event).collect())
}
