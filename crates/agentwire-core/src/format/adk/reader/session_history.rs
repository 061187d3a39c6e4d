//! Which events of a stored session still count.
//!
//! ADK never deletes from a session: going back to an earlier point and summing up a range are events
//! themselves, and whoever rebuilds the conversation has to obey them.

use std::collections::HashMap;

use super::decode::{milliseconds, parse, parse_raw};
use crate::{
    format::adk::{
        input::SessionEntry,
        wire::{AdkEvent, AdkText, EventActions, EventCompaction, SessionBody},
    },
    json::{Path, ReadError, elements},
};

/// The events that count, oldest first. A summary takes the place of the range it stands for.
///
/// # Errors
/// When an event is malformed.
pub(super) fn live<'a>(session: &SessionBody<'a>) -> Result<Vec<AdkEvent<'a>>, ReadError> {
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
            let at = Path::Key(&path, "actions");
            let compaction: EventCompaction<'a> = parse(raw, Path::Key(&at, "compaction"))?;
            if let (Some(start), Some(end)) = (compaction.start, compaction.end) {
                range = Some((start, end));
                event.content = event.content.or(compaction.content);
                if event.author.as_ref().is_some_and(|author| author.as_str() == "user") {
                    // Whoever asked for the summary, the model wrote it.
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
    let mut counts = vec![true; events.len()];
    let mut at = events.len();
    while let Some(index) = at.checked_sub(1) {
        at = index;
        if let Some(rewind) = &events[index].1 {
            counts[index] = false;
            if let Some(&start) = first.get(rewind.as_str())
                && start < index
            {
                counts[start..index].fill(false);
                at = start;
            }
        }
    }
    let ranges: Vec<(usize, (f64, f64))> = events
        .iter()
        .enumerate()
        .filter(|(index, _)| counts[*index])
        .filter_map(|(index, (.., range))| Some((index, (*range)?)))
        .collect();
    for (index, (event, _, own)) in events.iter().enumerate() {
        let covered = ranges.iter().any(|(other, (start, end))| match own {
            Some((from, to)) => other > &index && start <= from && to <= end,
            None => event.timestamp.is_some_and(|time| *start <= time && time <= *end),
        });
        counts[index] &= !covered;
    }
    let kept = events.into_iter().zip(counts).filter(|(_, counts)| *counts);
    Ok(kept.map(|((event, ..), _)| event).collect())
}

/// The sessions of a list.
///
/// # Errors
/// When it is no list of sessions; says where.
pub(in crate::format::adk) fn list(body: &str) -> Result<Vec<SessionEntry>, ReadError> {
    let raw = parse_raw(body)?;
    let mut entries = Vec::new();
    for (index, raw) in elements(raw, Path::Root)?.into_iter().enumerate() {
        let path = Path::Index(&Path::Root, index);
        let session: SessionBody<'_> = parse(raw, path)?;
        let Some(id) = &session.id else {
            return Err(path.error("`id` is missing, expected a string"));
        };
        entries.push(SessionEntry {
            thread: id.as_str().into(),
            updated: session.updated.and_then(milliseconds),
        });
    }
    Ok(entries)
}
