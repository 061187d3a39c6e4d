//! Reads shapes of the draft and of old documents that AG-UI 1.0 replaced.

use serde_json::value::RawValue;

use super::json::{Decoded, parent_message};
use crate::{
    event::{Body, Event, Interrupt, MessageId, ToolCallId, ToolResult},
    json::{Fields, Object, Path, ReadResult},
    tally::Tally,
};

/// The interrupts of the draft: one object `interrupt` beside `outcome`, or the list `interrupts` that our writer adds
/// for several.
pub(crate) fn draft_interrupts(
    f: &mut Fields<'_, '_>,
    run: &str,
    tally: &mut Tally,
) -> ReadResult<Vec<Interrupt>> {
    let first = f.take_unless_null("interrupt");
    let mut interrupts = Vec::new();
    f.array("interrupts", |raw, path| {
        interrupts.push(draft_interrupt(Some(raw), path, run, tally)?);
        Ok(())
    })?;
    if interrupts.is_empty() {
        let path = Path::Key(&Path::Root, "interrupt");
        interrupts.push(draft_interrupt(first, path, run, tally)?);
    }
    Ok(interrupts)
}

/// An interrupt of the draft, all of its members optional.
fn draft_interrupt(
    raw: Option<&RawValue>,
    path: Path<'_>,
    run: &str,
    tally: &mut Tally,
) -> ReadResult<Interrupt> {
    let mut interrupt = Interrupt::new(format!("{run}:interrupt"), "interrupt");
    if let Some(raw) = raw {
        let mut draft = Fields::of(raw, path)?;
        if let Some(id) = draft.id("id", tally)? {
            interrupt.id = id;
        }
        if let Some(reason) = draft.boxed("reason", tally)? {
            interrupt.reason = reason;
        }
        if let Some(payload) = draft.json("payload", tally)? {
            interrupt.metadata = Some(Object::from_entries([("payload", payload)]));
        }
        let _ = draft.rest("interrupt", tally)?;
    }
    Ok(interrupt)
}

/// The short TOOL_CALL of old documents: a complete call in one event.
pub(crate) fn tool_call(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Decoded> {
    tally.note("old shape", "TOOL_CALL for TOOL_CALL_START, _ARGS and _END");
    let call: ToolCallId = match f.id("toolCallId", tally)? {
        Some(id) => id,
        None => f.need_id("id", tally).map_err(|_| f.missing("toolCallId", "a string"))?,
    };
    let name = match f.boxed("toolCallName", tally)? {
        Some(name) => name,
        None => match f.boxed("toolName", tally)? {
            Some(name) => name,
            None => f.boxed("name", tally)?.ok_or_else(|| f.missing("toolCallName", "a string"))?,
        },
    };
    let parent = parent_message(f, tally)?.map(MessageId::from);
    let mut events = vec![Event::new(Body::ToolStart { call: call.clone(), name, parent })];
    let arguments = ["args", "arguments", "input", "delta"].iter().find_map(|key| f.take(key));
    if let Some(raw) = arguments {
        let delta = text_or_json(raw, tally)?;
        events.push(Event::new(Body::ToolArgs { call: call.clone(), delta }));
    }
    events.push(Event::new(Body::ToolEnd { call }));
    Ok(Decoded::Several(events))
}

/// The short TOOL_RESULT of old documents.
pub(crate) fn tool_result(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Body> {
    tally.note("old shape", "TOOL_RESULT for TOOL_CALL_RESULT");
    let call: ToolCallId = match f.id("toolCallId", tally)? {
        Some(id) => id,
        None => f.need_id("id", tally).map_err(|_| f.missing("toolCallId", "a string"))?,
    };
    let message = match f.id("messageId", tally)? {
        Some(id) => id,
        None => format!("{call}:result").into(),
    };
    let raw = ["content", "result", "output"].iter().find_map(|key| f.take(key));
    let content = raw.ok_or_else(|| f.missing("content", "the result of the tool"))?;
    let content = text_or_json(content, tally)?;
    Ok(Body::ToolResult(Box::new(ToolResult {
        message,
        call,
        content: crate::event::Content::Text(content),
        error: f.boxed("error", tally)?,
        explicit_role: false,
    })))
}

/// The content of a string, or the JSON text of any other value.
fn text_or_json(raw: &RawValue, tally: &mut Tally) -> ReadResult<Box<str>> {
    if raw.get().starts_with('"') {
        Ok(crate::json::text(raw, Path::Root, tally)?.into())
    } else {
        Ok(crate::json::json(raw, Path::Root, tally)?.get().into())
    }
}
