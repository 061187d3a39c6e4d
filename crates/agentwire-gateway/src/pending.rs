//! What a run leaves open for a person or a front end, and the answers that a request brings.

use std::time::Duration;

use agentwire_core::{
    event::{Interrupt, InterruptId, MessageBody, Outcome, ResumeEntry, ResumeStatus, RunInput, ToolCallId},
    fold::Fold,
    format::hai,
    json::Json,
};
use agentwire_store::{Answer, Answering, NewPending, Pending, PendingId, Time};
use serde_json::{Value, json};

use crate::{code, refusal::Refusal};

/// The kind of a question whether something may be done.
const APPROVAL: &str = "approval";
/// The kind of any other interrupt.
const INTERRUPT: &str = "interrupt";
/// The kind of a call of a tool that the front end runs.
pub(crate) const FRONTEND_TOOL: &str = "frontend-tool";

/// What an ended run leaves open.
pub(crate) fn left_open(
    fold: &mut Fold,
    outcome: Option<&Outcome>,
    input: &RunInput,
    now: Time,
) -> Vec<NewPending> {
    let interrupts = match outcome {
        Some(Outcome::Cancelled) => return Vec::new(),
        Some(Outcome::Interrupt { interrupts }) => &interrupts[..],
        _ => &[],
    };
    let mut open: Vec<_> = interrupts.iter().map(|interrupt| of_interrupt(fold, interrupt, now)).collect();
    // A call that a question guards is answered by the answer.
    let is_guarded =
        |call: &ToolCallId| interrupts.iter().any(|interrupt| interrupt.tool_call.as_ref() == Some(call));
    for (call, name, arguments) in
        open_calls(fold, outcome, input).into_iter().filter(|(call, ..)| !is_guarded(call))
    {
        open.push(NewPending {
            id: PendingId::from(call.as_str()),
            kind: FRONTEND_TOOL.into(),
            body: json!({"name": name, "arguments": arguments, "toolCallId": call.as_str()})
                .to_string()
                .into(),
            ttl: None,
        });
    }
    open
}

/// The calls that wait for the front end: those that the end of the run names, and those of tools that the front end
/// offered.
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
    calls
        .into_iter()
        .filter_map(|call| {
            let (name, arguments) = call_of(fold, &call)?;
            let offered = input.tools.iter().any(|tool| *tool.name == *name);
            (!named.is_empty() || offered).then_some((call, name, arguments))
        })
        .collect()
}

fn of_interrupt(fold: &mut Fold, interrupt: &Interrupt, now: Time) -> NewPending {
    let call = interrupt.tool_call.as_ref();
    let (name, arguments) = call
        .and_then(|call| call_of(fold, call))
        .map_or((None, None), |(name, args)| (Some(name), Some(args)));
    let value =
        |object: &Option<agentwire_core::json::Object>| object.as_ref().map(|object| object.to_value());
    let body = json!({
        "reason": &*interrupt.reason,
        "name": name,
        "arguments": arguments,
        "message": interrupt.message.as_deref(),
        "toolCallId": call.map(|call| call.as_str()),
        "responseSchema": value(&interrupt.response_schema),
        "expiresAt": interrupt.expires_at.as_deref(),
        "metadata": value(&interrupt.metadata),
    });
    let until = interrupt.expires_at.as_deref().and_then(parse_iso);
    NewPending {
        id: PendingId::from(interrupt.id.as_str()),
        kind: kind_of(interrupt).into(),
        body: without_nulls(body).to_string().into(),
        ttl: until.map(|until| Duration::from_millis(until.saturating_sub(now.0))),
    }
}

/// What kind of thing an interrupt asks for, in one word.
fn kind_of(interrupt: &Interrupt) -> &'static str {
    match &*interrupt.reason {
        "confirmation" => APPROVAL,
        "adk:credential" => "credential",
        "input_required" => "input",
        // What is asked about a call is whether it may run, unless the call itself is what takes long.
        "tool_call" if interrupt.tool_call.as_deref() == Some(&*interrupt.id) => "long-running-tool",
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

/// The name and the arguments of a call; arguments that are not JSON stay text.
fn call_of(fold: &mut Fold, call: &ToolCallId) -> Option<(String, Value)> {
    let found =
        fold.messages().iter().flat_map(|message| message.tool_calls()).find(|known| known.id == *call)?;
    let arguments = serde_json::from_str(&found.arguments).unwrap_or_else(|_| (&*found.arguments).into());
    Some((found.name.to_string(), arguments))
}

/// The answers that a request brings to what the thread waits for or waited for.
///
/// Every open interrupt must be answered at once. A client sends old tool results along with the conversation, so only
/// those at its end count. Where some answers are new, those given before are left out; if none is, it is the same
/// request again, and the store says what became of it.
///
/// # Errors
/// When an answer is for nothing known, too late, or not what was asked for, or when one is missing.
pub(crate) fn answers(
    input: &RunInput,
    items: &[Pending],
    now: Time,
    by: &str,
) -> Result<Option<Answering>, Refusal> {
    // An id that was used again means the last one.
    let find = |id: &str| items.iter().rev().find(|item| item.id.as_str() == id);
    let is_late = |item: &Pending| item.expires.is_some_and(|expires| expires <= now);
    let is_open = |item: &Pending| item.answer.is_none() && !is_late(item);
    let mut given: Vec<Answer> = Vec::new();
    let mut put = |id: &str, body: Value| {
        if given.iter().all(|other| other.id.as_str() != id) {
            given.push(Answer { id: id.into(), body: body.to_string().into() });
        }
    };

    let entries = input.resume.as_deref().unwrap_or_default();
    let mut known = 0;
    for entry in entries {
        let Some(item) = find(&entry.interrupt).filter(|item| *item.kind != *FRONTEND_TOOL) else {
            tracing::warn!(interrupt = %entry.interrupt, thread = %input.thread, "an answer to an unknown interrupt was ignored");
            continue;
        };
        known += 1;
        let payload = entry.payload.as_ref().map(Json::to_value);
        let resolved = entry.status == ResumeStatus::Resolved;
        if item.answer.is_none() && is_late(item) {
            if resolved {
                return Err(Refusal::new(code::INTERRUPT_EXPIRED, format!("`{}` has expired", item.id)));
            }
            // What was never answered and is given up is over either way.
            continue;
        }
        if resolved && item.answer.is_none() {
            follows_schema(item, payload.as_ref())?;
        }
        put(
            &entry.interrupt,
            json!({"status": if resolved { "resolved" } else { "cancelled" }, "payload": payload}),
        );
    }
    if !entries.is_empty() && known == 0 {
        return Err(Refusal::new(
            code::UNKNOWN_INTERRUPT,
            format!("no such interrupt: `{}`", entries[0].interrupt),
        ));
    }

    let mut results = 0;
    for message in input.messages.iter().rev() {
        match &message.body {
            MessageBody::Tool { call, content, error } => {
                results += 1;
                match find(call) {
                    Some(_) => put(call, json!({"content": content.text(), "error": error.as_deref()})),
                    None if known == 0 => {
                        return Err(Refusal::new(
                            code::UNKNOWN_TOOL_CALL,
                            format!("nothing waits for the result of `{call}`"),
                        ));
                    }
                    None => {}
                }
            }
            MessageBody::Activity { .. } | MessageBody::Reasoning { .. } => {}
            _ => break,
        }
    }

    let is_given = |item: &Pending| given.iter().any(|answer| answer.id == item.id);
    let open: Vec<_> = items.iter().filter(|item| is_open(item)).collect();
    if let Some(missing) = open.iter().find(|item| *item.kind != *FRONTEND_TOOL && !is_given(item)) {
        let message = format!("the thread waits for an answer to `{}`", missing.id);
        return Err(Refusal::new(code::INTERRUPT_UNANSWERED, message)
            .hint("answer all of `GET /threads/{id}/pending` in one request"));
    }
    if input.resume.is_some() && entries.is_empty() && results == 0 && !open.is_empty() {
        return Err(Refusal::new(code::NO_TOOL_RESULTS, "the thread waits for the results of tools"));
    }
    let is_new = |answer: &Answer| find(answer.id.as_str()).is_some_and(is_open);
    if given.iter().any(is_new) {
        given.retain(is_new);
    }
    Ok((!given.is_empty()).then(|| Answering { answers: given, by: by.into() }))
}

/// Takes the results of tools that answer a question as such an answer: in HAI every question looks like a call of a
/// tool, and an AI SDK page may give a tool that waits its output. The whole conversation comes along with every
/// request, so what was answered before counts only at its end, where it is the same answer once more.
pub(crate) fn take_results(input: &mut RunInput, items: &[Pending]) {
    let mut last: Vec<ToolCallId> = Vec::new();
    for message in input.messages.iter().rev() {
        match &message.body {
            MessageBody::Tool { call, .. } => last.push(call.clone()),
            MessageBody::Activity { .. } | MessageBody::Reasoning { .. } => {}
            _ => break,
        }
    }
    let is_meant = |item: &&Pending| {
        let is_last = last.iter().any(|call| call.as_str() == item.id.as_str());
        *item.kind != *FRONTEND_TOOL && (item.answer.is_none() || is_last)
    };
    let meant: Vec<_> =
        items.iter().filter(is_meant).map(|item| InterruptId::from(item.id.as_str())).collect();
    hai::input::answers(input, &meant);
}

/// Leaves out the results that answered a question long ago.
pub(crate) fn forget_results(input: &mut RunInput, items: &[Pending]) {
    let is_question = |call: &ToolCallId| {
        items.iter().any(|item| *item.kind != *FRONTEND_TOOL && item.id.as_str() == call.as_str())
    };
    input
        .messages
        .retain(|message| !matches!(&message.body, MessageBody::Tool { call, .. } if is_question(call)));
}

/// Old user interfaces answer the one open question by `forwardedProps.command.resume`.
pub(crate) fn take_old_answer(input: &mut RunInput, items: &[Pending]) {
    let mut open = items.iter().filter(|item| item.answer.is_none() && *item.kind != *FRONTEND_TOOL);
    if let (None, Some(item), None) = (&input.resume, open.next(), open.next())
        && let Some(answer) = input.forwarded.as_ref().and_then(|props| {
            let command = props.clone().into_object()?.member("command")?;
            command.into_object()?.member("resume")
        })
    {
        input.resume = Some(vec![ResumeEntry {
            interrupt: item.id.as_str().into(),
            status: ResumeStatus::Resolved,
            payload: Some(answer).filter(|answer| !answer.is_null()),
            metadata: None,
        }]);
    }
}

/// Whether an answer is what was asked for. A plain yes or no, bare or as `approved`, always is: that is how people
/// decide in protocols that know no schemas.
fn follows_schema(item: &Pending, payload: Option<&Value>) -> Result<(), Refusal> {
    let body: Value = serde_json::from_str(&item.body).unwrap_or_default();
    let Some(schema) = body.get("responseSchema").filter(|schema| schema.is_object()) else { return Ok(()) };
    let null = Value::Null;
    let payload = payload.unwrap_or(&null);
    if payload.is_boolean() || payload.get("approved").is_some_and(Value::is_boolean) {
        return Ok(());
    }
    let Ok(validator) = jsonschema::validator_for(schema) else {
        // A schema that is none asks for nothing.
        return Ok(());
    };
    validator.validate(payload).map_err(|error| {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { String::new() } else { format!(" at `{place}`") };
        Refusal::new(
            code::SCHEMA_MISMATCH,
            format!("the answer to `{}` is not what was asked for{place}: {error}", item.id),
        )
    })
}

/// An item as `GET /threads/{id}/pending` shows it.
pub(crate) fn to_json(item: &Pending) -> Value {
    let mut shown = json!({
        "id": item.id.as_str(),
        "kind": &*item.kind,
        "runId": item.run.as_str(),
        "createdAt": iso(item.created.0),
        "awaitingResult": item.answer.is_none(),
    });
    if let Some(expires) = item.expires {
        shown["expiresAt"] = iso(expires.0).into();
    }
    if let Ok(Value::Object(body)) = serde_json::from_str(&item.body) {
        for (key, value) in body {
            if shown.get(&key).is_none() {
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

/// A moment from ISO 8601 with a zone, in milliseconds since the epoch; `None` if it is something else.
fn parse_iso(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut date = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone_at);
    let offset = match zone.as_bytes()[0] {
        b'Z' | b'z' => 0,
        sign => {
            let (hours, minutes) = zone[1..].split_once(':').or_else(|| zone[1..].split_at_checked(2))?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if sign == b'-' { -minutes } else { minutes }
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
        for other in
            ["", "soon", "2026-11-15", "2026-11-15T10:00", "2026-13-01T00:00:00Z", "2026-11-15T25:00:00Z"]
        {
            assert_eq!(parse_iso(other), None, "{other}");
        }
    }
}
