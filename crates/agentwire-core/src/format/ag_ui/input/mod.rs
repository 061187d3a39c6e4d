//! `RunAgentInput`, the request body of AG-UI, to and from the canonical [`RunInput`].
//!
//! Malformed input is rejected with the JSON path; unknown members are preserved in `unknown`. The shapes of
//! 0.x user interfaces are accepted: `null` for an absent member, `binary` parts, and the single `resume`
//! object of the draft. A tool result without content is read as an empty one.

use std::collections::HashSet;

use bytes::BytesMut;
use serde_json::value::RawValue;

use super::{
    reader,
    wire::{CARRIER, PROTOCOL_VERSION},
    writer,
};
use crate::{
    event::{Context, GivenResult, Message, MessageBody, ResumeEntry, ResumeStatus, RunInput, Tool},
    json::{Fields, Json, ObjectWriter, Path, ReadResult, json},
    tally::Tally,
};

/// The member of [`CARRIER`] in a stored request that names the output format of its client.
const OUTPUT_FORMAT: &str = "outputFormat";

/// Reads a request body.
///
/// # Errors
/// When it is not JSON or a known member is malformed; names the JSON path.
pub fn from_json(body: &str, tally: &mut Tally) -> ReadResult<RunInput> {
    from_fields(Fields::parse(body, Path::Root)?, tally, reader::messages::read_request_list)
}

/// Reads a request that is nested in another document.
pub(crate) fn read_input(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<RunInput> {
    from_fields(Fields::of(raw, path)?, tally, reader::messages::read_list)
}

fn from_fields(
    mut f: Fields<'_, '_>,
    tally: &mut Tally,
    read_messages: fn(&mut Fields<'_, '_>, &mut Tally) -> ReadResult<Vec<Message>>,
) -> ReadResult<RunInput> {
    let path = f.path();
    let mut input =
        RunInput::new(f.need_str("threadId", tally)?.as_ref(), f.need_str("runId", tally)?.as_ref());
    input.protocol_version = f.boxed("protocolVersion", tally)?;
    input.parent_run = f.id("parentRunId", tally)?;
    if let Some(raw) = f.take_unless_null("state") {
        input.state = Some(json(raw, Path::Key(&path, "state"), tally)?);
    }
    input.messages = read_messages(&mut f, tally)?;
    f.array("tools", |raw, path| {
        let mut f = Fields::of(raw, path)?;
        let parameters = match f.take_unless_null("parameters") {
            Some(raw) => Some(json(raw, Path::Key(&path, "parameters"), tally)?),
            None => None,
        };
        input.tools.push(Tool {
            name: f.need_boxed("name", tally)?,
            description: f.need_boxed("description", tally)?,
            parameters,
            metadata: f.object("metadata", tally)?,
        });
        f.rest("tool", tally)?;
        Ok(())
    })?;
    f.array("context", |raw, path| {
        let mut f = Fields::of(raw, path)?;
        input.context.push(Context {
            description: f.need_boxed("description", tally)?,
            value: f.need_boxed("value", tally)?,
        });
        f.rest("context", tally)?;
        Ok(())
    })?;
    if let Some(raw) = f.take_unless_null("forwardedProps") {
        input.forwarded = Some(json(raw, Path::Key(&path, "forwardedProps"), tally)?);
    }
    input.resume = match f.peek("resume") {
        // The draft had one object, without a status.
        Some(raw) if raw.get().starts_with('{') => {
            f.take("resume");
            tally.note("old shape", "resume as one object");
            Some(vec![read_resume_entry(raw, Path::Key(&path, "resume"), tally)?])
        }
        _ => {
            let mut entries = Vec::new();
            let is_present = f.array("resume", |raw, path| {
                entries.push(read_resume_entry(raw, path, tally)?);
                Ok(())
            })?;
            is_present.then_some(entries)
        }
    };
    input.unknown = f.rest("RunAgentInput", tally)?;
    Ok(input)
}

/// Reads a resume entry. Only the single object of the draft may lack a status.
pub(crate) fn read_resume_entry(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult<ResumeEntry> {
    let mut f = Fields::of(raw, path)?;
    let interrupt = f.need_id("interruptId", tally)?;
    let status = match f.str("status", tally)?.as_deref() {
        Some("resolved") => ResumeStatus::Resolved,
        Some("cancelled") => ResumeStatus::Cancelled,
        Some(other) => {
            let problem = format!("expected `resolved` or `cancelled`, found `{other}`");
            return Err(Path::Key(&path, "status").error(problem));
        }
        None if matches!(path, Path::Key(_, "resume")) => ResumeStatus::Resolved,
        None => return Err(f.missing("status", "`resolved` or `cancelled`")),
    };
    let payload = match f.take_unless_null("payload") {
        Some(raw) => Some(json(raw, Path::Key(&path, "payload"), tally)?),
        None => None,
    };
    let metadata = f.object("metadata", tally)?;
    f.rest("resume", tally)?;
    Ok(ResumeEntry { interrupt, status, payload, metadata })
}

/// The tool results at the end of a conversation, the last one first; one per call. Activities and reasoning may stand
/// between them. A client sends older results along with the conversation, so only these can be new.
#[must_use]
pub fn trailing_results(messages: &[Message]) -> Vec<GivenResult> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for message in messages.iter().rev() {
        match &message.body {
            MessageBody::Tool { call, .. } => {
                if seen.insert(call) {
                    found.extend(GivenResult::of(message));
                }
            }
            MessageBody::Activity { .. } | MessageBody::Reasoning { .. } => {}
            _ => break,
        }
    }
    found
}

/// The result that a conversation contains for a call: the last one after the call itself, whose id may have been used
/// before.
#[must_use]
pub fn result_of_call(messages: &[Message], call: &str) -> Option<GivenResult> {
    let is_call = |message: &Message| message.tool_calls().iter().any(|made| made.id.as_str() == call);
    let from = messages.iter().rposition(is_call).map_or(0, |index| index + 1);
    messages[from..].iter().rev().filter_map(GivenResult::of).find(|result| result.call.as_str() == call)
}

/// `forwardedProps.command.resume`: the answer of front ends that predate `resume`. It names no interrupt, or is an
/// object with one answer per interrupt id.
#[must_use]
pub fn command_answer(input: &RunInput) -> Option<Json> {
    let command = input.forwarded.clone()?.into_object()?.member("command")?;
    command.into_object()?.member("resume")
}

/// Writes a request body that declares `PROTOCOL_VERSION`.
#[must_use]
pub fn to_json(input: &RunInput) -> String {
    let mut out = BytesMut::with_capacity(expected_length(input));
    let mut w = ObjectWriter::new(&mut out);
    write_members(&mut w, input, Some(PROTOCOL_VERSION));
    w.end();
    String::from_utf8(out.into()).expect("JSON text is UTF-8")
}

/// Writes a request body for storage, with the output format in which its client follows the run, such as
/// `ag-ui@0.0.5x`, and further texts by name; see [`stored_output_format`] and [`stored_text`].
#[must_use]
pub fn to_stored_json(
    input: &RunInput,
    output_format: Option<&str>,
    texts: &[(&'static str, &str)],
) -> String {
    let mut out = BytesMut::with_capacity(expected_length(input));
    let mut w = ObjectWriter::new(&mut out);
    write_members(&mut w, input, Some(PROTOCOL_VERSION));
    if output_format.is_some() || !texts.is_empty() {
        w.nested(CARRIER, |w| {
            w.opt_str(OUTPUT_FORMAT, output_format);
            for (name, text) in texts {
                w.str(name, text);
            }
        });
    }
    w.end();
    String::from_utf8(out.into()).expect("JSON text is UTF-8")
}

/// The output format of a request that [`to_stored_json`] wrote.
#[must_use]
pub fn stored_output_format(stored: &RunInput) -> Option<String> {
    stored_text(stored, OUTPUT_FORMAT)
}

/// A text that [`to_stored_json`] wrote.
#[must_use]
pub fn stored_text(stored: &RunInput, name: &str) -> Option<String> {
    stored.unknown.as_ref()?.member(CARRIER)?.into_object()?.get_str(name)
}

/// About the bytes of a request body.
fn expected_length(input: &RunInput) -> usize {
    let state = input.state.as_ref().map_or(0, |state| state.get().len());
    512 + state + writer::messages::expected_length(&input.messages)
}

/// Writes the members of a request, with its own protocol version.
pub(crate) fn write_input(w: &mut ObjectWriter<'_>, input: &RunInput) {
    write_members(w, input, input.protocol_version.as_deref());
}

fn write_members(w: &mut ObjectWriter<'_>, input: &RunInput, protocol_version: Option<&str>) {
    w.str("threadId", &input.thread)
        .str("runId", &input.run)
        .opt_str("protocolVersion", protocol_version)
        .opt_str("parentRunId", input.parent_run.as_deref())
        .opt_json("state", input.state.as_ref());
    w.array("messages", |list| {
        for message in &input.messages {
            list.object(|w| writer::messages::write_message(w, message));
        }
    });
    write_tools(w, &input.tools);
    write_context(w, &input.context);
    w.opt_json("forwardedProps", input.forwarded.as_ref());
    writer::json::write_resume(w, input.resume.as_deref());
}

/// Writes the list `tools`.
pub(crate) fn write_tools(w: &mut ObjectWriter<'_>, tools: &[Tool]) {
    w.array("tools", |list| {
        for tool in tools {
            list.object(|w| {
                w.str("name", &tool.name)
                    .str("description", &tool.description)
                    .opt_json("parameters", tool.parameters.as_ref())
                    .opt_object("metadata", tool.metadata.as_ref());
            });
        }
    });
}

/// Writes the list `context`.
pub(crate) fn write_context(w: &mut ObjectWriter<'_>, entries: &[Context]) {
    w.array("context", |list| {
        for entry in entries {
            list.object(|w| {
                w.str("description", &entry.description).str("value", &entry.value);
            });
        }
    });
}
