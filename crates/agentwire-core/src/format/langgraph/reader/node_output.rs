//! Finds the messages in the output of a node.
//!
//! A node returns an update (an object, usually with the key `messages`), a `Command` that contains an update, a
//! list of either, or bare messages. LangGraph looks for messages in the same positions.

use serde_json::value::RawValue;

use super::super::{raw_json, wire::NativeCommand};

/// The only member of a channel to which a task wrote more than once; its value lists the writes.
const WRITES: &str = "$writes";

/// Bound on the nesting of lists and commands.
const MAX_DEPTH: usize = 4;

/// All values in `output` that may be messages.
pub(super) fn messages(output: &RawValue) -> Vec<&RawValue> {
    let mut found = Vec::new();
    collect(output, MAX_DEPTH, &mut found);
    found
}

/// Whether `output` is a `Command`.
pub(super) fn is_command(output: &RawValue) -> bool {
    let Some(members) = raw_json::members(output) else { return false };
    let has = |name: &str| members.iter().any(|(key, _)| key == name);
    has("update") && has("goto") && has("resume")
}

fn collect<'a>(raw: &'a RawValue, depth: usize, found: &mut Vec<&'a RawValue>) {
    if depth == 0 {
        return;
    }
    if let Some(list) = raw_json::elements(raw) {
        // Tasks write updates as `[["messages", …], …]`.
        if let [key, value] = &list[..]
            && key.get().starts_with('"')
        {
            return collect(value, depth - 1, found);
        }
        for element in list {
            collect(element, depth - 1, found);
        }
        return;
    }
    let Some(members) = raw_json::members(raw) else { return };
    if is_message(&members) {
        return found.push(raw);
    }
    if is_command(raw) {
        if let Some(update) = NativeCommand::of(raw).and_then(|command| command.update) {
            collect(update, depth - 1, found);
        }
        return;
    }
    // The values of an update are messages or lists of messages; deeper values are not.
    for (_, value) in members {
        collect_channel(value, found);
    }
}

/// The messages that an update writes to one channel.
fn collect_channel<'a>(value: &'a RawValue, found: &mut Vec<&'a RawValue>) {
    if let Some(list) = raw_json::elements(value) {
        found.extend(list.into_iter().filter(|raw| looks_like_message(raw)));
        return;
    }
    let Some(members) = raw_json::members(value) else { return };
    if is_message(&members) {
        found.push(value);
    } else if let [(key, writes)] = &members[..]
        && key == WRITES
    {
        for write in raw_json::elements(writes).unwrap_or_default() {
            match raw_json::elements(write) {
                Some(list) => found.extend(list.into_iter().filter(|raw| looks_like_message(raw))),
                None if looks_like_message(write) => found.push(write),
                None => {}
            }
        }
    }
}

fn looks_like_message(raw: &RawValue) -> bool {
    raw_json::members(raw).is_some_and(|members| is_message(&members))
}

fn is_message(members: &[(std::borrow::Cow<'_, str>, &RawValue)]) -> bool {
    let has = |name: &str| members.iter().any(|(key, _)| key == name);
    (has("content") && (has("type") || has("role"))) || (has("lc") && has("kwargs") && has("id"))
}
