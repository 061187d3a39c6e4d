//! Streamed text and arguments: values are found in the whole, and replaced where they begin.

use std::collections::HashMap;

use agentwire_core::event::{Body, Event};

use super::shapes::Pseudonyms;

/// A stream of deltas.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Text(String),
    Reasoning(String),
    Arguments(String),
}

/// The stream that a delta belongs to, and the delta.
fn part(event: &Event) -> Option<(Key, &str)> {
    match &event.body {
        Body::TextDelta { message, delta } => Some((Key::Text(message.to_string()), delta)),
        Body::ReasoningDelta { message, delta } => Some((Key::Reasoning(message.to_string()), delta)),
        Body::ToolArgs { call, delta } => Some((Key::Arguments(call.to_string()), delta)),
        _ => None,
    }
}

/// Replaces the values in all streams. A delta that becomes empty is left out.
pub(super) fn joined(events: Vec<Event>, pseudonyms: &mut Pseudonyms) -> Vec<Event> {
    let mut order: Vec<Key> = Vec::new();
    let mut streams: HashMap<Key, String> = HashMap::new();
    for event in &events {
        if let Some((key, delta)) = part(event) {
            let whole = streams.entry(key.clone()).or_insert_with(|| {
                order.push(key);
                String::new()
            });
            whole.push_str(delta);
        }
    }
    let mut rewritten: HashMap<Key, Rewritten> = HashMap::new();
    for key in order {
        let whole = &streams[&key];
        let new = match key {
            Key::Arguments(_) => pseudonyms
                .replaced_json(whole)
                .map(|text| Rewritten { at: 0, edits: vec![(0..whole.len(), text)] }),
            _ => {
                let edits = pseudonyms.edits(whole);
                (!edits.is_empty()).then_some(Rewritten { at: 0, edits })
            }
        };
        if let Some(new) = new {
            rewritten.insert(key, new);
        }
    }
    events
        .into_iter()
        .filter_map(|mut event| {
            let Some((key, delta)) = part(&event) else { return Some(event) };
            let Some(stream) = rewritten.get_mut(&key) else { return Some(event) };
            let new = stream.next(delta);
            if new.is_empty() && !delta.is_empty() {
                return None;
            }
            match &mut event.body {
                Body::TextDelta { delta, .. }
                | Body::ReasoningDelta { delta, .. }
                | Body::ToolArgs { delta, .. } => {
                    *delta = new.into();
                }
                _ => {}
            }
            Some(event)
        })
        .collect()
}

/// The edits of a stream, applied delta by delta.
struct Rewritten {
    at: usize,
    /// Byte ranges of the whole, in order, with their replacements.
    edits: Vec<(std::ops::Range<usize>, String)>,
}

impl Rewritten {
    /// The new text of the next delta: a replacement stands where its range begins.
    fn next(&mut self, delta: &str) -> String {
        let (start, end) = (self.at, self.at + delta.len());
        self.at = end;
        let mut out = String::new();
        let mut from = start;
        for (range, text) in &self.edits {
            if range.end <= start || range.start >= end {
                continue;
            }
            if range.start > from {
                out.push_str(&delta[from - start..range.start - start]);
            }
            if range.start >= start {
                out.push_str(text);
            }
            from = range.end.min(end).max(from);
        }
        out.push_str(&delta[from - start..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_over_several_deltas_is_replaced_once() {
        let whole = "mail jane@example.org now";
        for first in 1..whole.len() {
            for second in first..whole.len() {
                let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
                let events = pieces
                    .iter()
                    .map(|piece| Event::new(Body::TextDelta { message: "m".into(), delta: (*piece).into() }));
                let out = joined(events.collect(), &mut Pseudonyms::new(&[], &[]));
                let text: String = out.iter().filter_map(|event| Some(part(event)?.1.to_owned())).collect();
                assert_eq!(text, "mail email-1@redacted.invalid now", "{pieces:?}");
            }
        }
    }

    #[test]
    fn arguments_stay_json() {
        let pieces = [r#"{"card": 41111111"#, r#"11111111, "to": "ja"#, r#"ne\u0040example.org"}"#];
        let events = pieces
            .iter()
            .map(|piece| Event::new(Body::ToolArgs { call: "c".into(), delta: (*piece).into() }));
        let out = joined(events.collect(), &mut Pseudonyms::new(&[], &[]));
        let text: String = out.iter().filter_map(|event| Some(part(event)?.1.to_owned())).collect();
        assert_eq!(text, r#"{"card":"card-1","to":"email-1@redacted.invalid"}"#);
    }
}
