//! What a run leaves open for a person or a front end.

use std::{collections::HashMap, time::Duration};

use agentwire_core::{
    event::{Interrupt, Outcome, Role, RunId, RunInput, ToolCallId},
    fold::Fold,
    json::Object,
};
use agentwire_store::{NewPending, Pending, PendingId, Time};
use serde_json::{Value, json};

use crate::{
    agent::Recalled,
    human::approval::{self, Gated},
};

/// The kind of a question whether something may be done.
pub(crate) const APPROVAL: &str = "approval";
/// The kind of a call whose result somebody outside brings later.
pub(crate) const LONG_RUNNING_TOOL: &str = "long-running-tool";
/// The kind of any other interrupt.
const INTERRUPT: &str = "interrupt";
/// The kind of a call of a tool that the front end runs.
pub(crate) const FRONTEND_TOOL: &str = "frontend-tool";

/// The most that one run may leave open: some graphs ask a question in each of a few hundred branches, and nobody
/// answers a thousand at once.
const MAX_ITEMS: usize = 1000;

/// The most bytes of what one run leaves open: a quarter of what a store takes at once, beside the ending itself and
/// the conversation.
const MAX_BYTES: usize = 16 << 20;

/// What is too much about what a run would leave open, if anything is.
pub(crate) fn too_much(open: &[NewPending]) -> Option<String> {
    let bytes: usize = open.iter().map(|item| item.id.as_str().len() + item.body.len()).sum();
    if open.len() > MAX_ITEMS {
        Some(format!("the run leaves {} things open, at most {MAX_ITEMS} are allowed", open.len()))
    } else if bytes > MAX_BYTES {
        Some(format!("what the run leaves open has {bytes} bytes, at most {MAX_BYTES} are allowed"))
    } else {
        None
    }
}

/// What an ended run leaves open.
pub(crate) fn left_open(
    fold: &mut Fold,
    outcome: Option<&Outcome>,
    input: &RunInput,
    gated: &Gated,
    now: Time,
) -> Vec<NewPending> {
    let interrupts = match outcome {
        Some(Outcome::Cancelled) => return Vec::new(),
        Some(Outcome::Interrupt { interrupts }) => &interrupts[..],
        _ => &[],
    };
    let mut open: Vec<_> =
        interrupts.iter().map(|interrupt| of_interrupt(fold, interrupt, gated, now)).collect();
    // A call that a question guards is answered by the answer.
    let is_guarded =
        |call: &ToolCallId| interrupts.iter().any(|interrupt| interrupt.tool_call.as_ref() == Some(call));
    let mut calls = open_calls(fold, outcome, input);
    for call in &gated.allowed {
        if calls.iter().all(|(known, ..)| known != call)
            && let Some((name, arguments)) = call_of(fold, call)
        {
            calls.push((call.clone(), name, arguments));
        }
    }
    for (call, name, arguments) in calls.into_iter().filter(|(call, ..)| !is_guarded(call)) {
        let mut body = json!({"name": name, "arguments": arguments, "toolCallId": call.as_str()});
        gated.remember(&call, &mut body);
        open.push(NewPending {
            id: PendingId::from(call.as_str()),
            kind: FRONTEND_TOOL.into(),
            body: body.to_string().into(),
            ttl: None,
        });
    }
    open
}

/// What waits for an answer on the agent's side, in a thread that was begun there. No run of ours has left it, so the store
/// does not have it.
pub(crate) fn elsewhere(recalled: Recalled, now: Time) -> Vec<Pending> {
    let Recalled { messages, interrupts, .. } = recalled;
    let mut fold = Fold::from_history(messages, None);
    let of = |interrupt| of_interrupt(&mut fold, interrupt, &Gated::default(), now);
    let items = interrupts.iter().map(of).map(|NewPending { id, kind, body, ttl }| Pending {
        id,
        run: RunId::from(""),
        kind,
        body,
        created: now,
        expires: ttl
            .map(|ttl| Time(now.0.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)))),
        answer: None,
    });
    items.collect()
}

/// Whether an item is one of those.
pub(crate) fn is_elsewhere(item: &Pending) -> bool {
    item.run.is_empty()
}

/// The calls that wait for the front end: those that the end of the run names, those of tools that the front end
/// offered, and those that are the run's last word: an agent that does nothing more about a call of its own leaves it to
/// a person, as Agno does with tools that need a yes. One that ends with a question has said what it waits for.
pub(crate) fn open_calls(
    fold: &mut Fold,
    outcome: Option<&Outcome>,
    input: &RunInput,
) -> Vec<(ToolCallId, String, Value)> {
    let named = match outcome {
        Some(Outcome::Success { pending }) => &pending[..],
        _ => &[],
    };
    let calls = if named.is_empty() { fold.pending_tool_calls() } else { named.to_vec() };
    let asks = matches!(outcome, Some(Outcome::Interrupt { .. }));
    let is_last_word = |fold: &mut Fold, call: &ToolCallId| {
        let last = fold.messages().iter().rfind(|message| message.role() == Role::Assistant);
        last.is_some_and(|message| message.tool_calls().iter().any(|known| known.id == *call))
    };
    calls
        .into_iter()
        .filter_map(|call| {
            let (name, arguments) = call_of(fold, &call)?;
            let offered = input.tools.iter().any(|tool| *tool.name == *name);
            let is_open = !named.is_empty() || offered || (!asks && is_last_word(fold, &call));
            is_open.then_some((call, name, arguments))
        })
        .collect()
}

fn of_interrupt(fold: &mut Fold, interrupt: &Interrupt, gated: &Gated, now: Time) -> NewPending {
    let call = interrupt.tool_call.as_ref();
    let (name, arguments) = call
        .and_then(|call| call_of(fold, call))
        .map_or((None, None), |(name, args)| (Some(name), Some(args)));
    let mut body = body_of(interrupt, name, arguments);
    gated.remember(&interrupt.id, &mut body);
    let until = interrupt.expires_at.as_deref().and_then(parse_iso);
    NewPending {
        id: PendingId::from(interrupt.id.as_str()),
        kind: kind_of(interrupt).into(),
        body: body.to_string().into(),
        ttl: until.map(|until| Duration::from_millis(until.saturating_sub(now.0))),
    }
}

/// Everything about an interrupt but its id.
pub(crate) fn body_of(interrupt: &Interrupt, name: Option<String>, arguments: Option<Value>) -> Value {
    let value = |object: &Option<Object>| object.as_ref().map(Object::to_value);
    without_nulls(json!({
        "reason": &*interrupt.reason,
        "name": name,
        "arguments": arguments,
        "message": interrupt.message.as_deref(),
        "toolCallId": interrupt.tool_call.as_deref(),
        "responseSchema": value(&interrupt.response_schema),
        "expiresAt": interrupt.expires_at.as_deref(),
        "metadata": value(&interrupt.metadata),
    }))
}

/// The interrupt that an item was made of.
pub(crate) fn interrupt_of(id: &str, body: &Value) -> Interrupt {
    let text = |key: &str| body[key].as_str();
    let mut interrupt = Interrupt::new(id, text("reason").unwrap_or("input_required"));
    interrupt.message = text("message").map(Into::into);
    interrupt.tool_call = text("toolCallId").map(Into::into);
    interrupt.expires_at = text("expiresAt").map(Into::into);
    interrupt.response_schema = Object::from_value(&body["responseSchema"]);
    interrupt.metadata = Object::from_value(&body["metadata"]);
    interrupt
}

/// What kind of thing an interrupt asks for, in one word.
pub(crate) fn kind_of(interrupt: &Interrupt) -> &'static str {
    match &*interrupt.reason {
        "confirmation" => APPROVAL,
        "adk:credential" => "credential",
        "input_required" => "input",
        // What is asked about a call is whether it may run, unless the call itself is what takes long.
        "tool_call" if interrupt.tool_call.as_deref() == Some(&*interrupt.id) => LONG_RUNNING_TOOL,
        "tool_call" => APPROVAL,
        _ => INTERRUPT,
    }
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}

/// The name and the arguments of a call, the last one of its id; arguments that are not JSON stay text.
pub(crate) fn call_of(fold: &mut Fold, call: &ToolCallId) -> Option<(String, Value)> {
    let found =
        fold.messages().iter().flat_map(|message| message.tool_calls()).rfind(|known| known.id == *call)?;
    let arguments = serde_json::from_str(&found.arguments).unwrap_or_else(|_| (&*found.arguments).into());
    Some((found.name.to_string(), arguments))
}

/// Items without those that were asked again under the same id: some servers number the calls of every answer from the
/// start, and what names one means the last.
pub(crate) fn current(items: &[Pending]) -> impl Iterator<Item = &Pending> {
    let last: HashMap<&PendingId, usize> =
        items.iter().enumerate().map(|(place, item)| (&item.id, place)).collect();
    items
        .iter()
        .enumerate()
        .filter(move |(place, item)| last.get(&item.id) == Some(place))
        .map(|(_, item)| item)
}

/// An item as `GET /threads/{id}/pending` shows it.
pub(crate) fn to_json(item: &Pending) -> Value {
    let mut shown = json!({
        "id": item.id.as_str(),
        "kind": &*item.kind,
        "awaitingResult": item.answer.is_none(),
    });
    if !is_elsewhere(item) {
        shown["runId"] = item.run.as_str().into();
        shown["createdAt"] = iso(item.created.0).into();
    }
    if let Ok(Value::Object(body)) = serde_json::from_str(&item.body) {
        for (key, value) in body {
            if shown.get(&key).is_none() && !approval::is_memory(&key) {
                shown[key] = value;
            }
        }
    }
    shown
}

/// A moment as ISO 8601.
pub(crate) fn iso(millis: u64) -> String {
    // Days to a date, after Howard Hinnant's `civil_from_days`.
    let (seconds, rest) = (millis / 1000, millis % 1000);
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}Z")
}

/// A moment from ISO 8601 in milliseconds since the epoch; `None` if it is something else.
fn parse_iso(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut date = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let (time, zone) = time.split_at(time.find(['Z', 'z', '+', '-']).unwrap_or(time.len()));
    let offset = match zone.as_bytes().first() {
        // Without one it is that of the server, which says so nowhere; Python's `utcnow().isoformat()` is like this.
        None | Some(b'Z' | b'z') => 0,
        Some(sign) => {
            let (hours, minutes) = zone[1..].split_once(':').or_else(|| zone[1..].split_at_checked(2))?;
            let (hours, minutes) = (hours.parse::<u8>().ok()?, minutes.parse::<u8>().ok()?);
            let minutes = i64::from(hours) * 60 + i64::from(minutes);
            if *sign == b'-' { -minutes } else { minutes }
        }
    };
    let mut time = time.split(':');
    let (hour, minute) = (time.next()?.parse::<i64>().ok()?, time.next()?.parse::<i64>().ok()?);
    let second: f64 = time.next().map_or(Ok(0.0), str::parse).ok()?;
    let fits = (1..=12).contains(&month) && (1..=31).contains(&day) && (0..10_000).contains(&year);
    if !fits || !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0.0..61.0).contains(&second) {
        return None;
    }
    // A date to days, after Howard Hinnant's `days_from_civil`.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468;
    let minutes = (days * 24 + hour) * 60 + minute - offset;
    u64::try_from(minutes * 60_000 + (second * 1000.0) as i64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_as_people_write_them() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso(1_794_787_199_999), "2026-11-15T23:59:59.999Z");
    }

    #[test]
    fn moments_read_back() {
        for millis in [0, 951_782_400_000, 1_794_787_199_999, 4_102_444_800_000] {
            assert_eq!(parse_iso(&iso(millis)), Some(millis));
        }
        assert_eq!(parse_iso("2026-11-16T01:59:59.999+02:00"), Some(1_794_787_199_999));
        assert_eq!(parse_iso("2026-11-15 18:29:59.999-0530"), Some(1_794_787_199_999));
        assert_eq!(parse_iso("2026-11-15T23:59:59.999"), Some(1_794_787_199_999));
        for other in [
            "",
            "soon",
            "2026-11-15",
            "2026-13-01T00:00:00Z",
            "2026-11-15T25:00:00Z",
            "2026-11-15T10:00:00+999999999999999999:00",
            "2026-11-15T10:00:00+00:-9223372036854775808",
            "99999999999999999-11-15T10:00:00Z",
            "2026-11-15T10:00:00+é",
        ] {
            assert_eq!(parse_iso(other), None, "{other}");
        }
    }
}
