//! RunAgentInput as HAI's clients send it, to and from the canonical [`RunInput`].
//!
//! The standard's sample and its reference client leave out, empty or repeat what AG-UI requires: ids, state,
//! the messages themselves; `context` is a list of messages; an attachment hides in a message's `extra`. All of
//! it is understood. A person's answer comes back as the result of a front-end tool; [`answers`] turns the
//! ones that answer interrupts into what AG-UI calls `resume`.

use bytes::BytesMut;
use serde_json::{Value, value::RawValue};

use super::{
    FORMAT,
    fields::{id, need, object, some_json, text_or_json},
    options::OPTIONS,
    reader::messages::{self as message_reader, Reading},
    writer::messages::{self as message_writer, Writing},
};
use crate::{
    event::{Context, InterruptId, MessageBody, ResumeEntry, ResumeStatus, RunId, RunInput, ThreadId, Tool},
    format::ag_ui::shapes,
    json::{Fields, Json, ObjectWriter, Path, ReadError, elements},
    tally::Tally,
};

/// Reads a request body. The ids are used where it names none.
///
/// ```
/// use agentwire_core::{Tally, format::hai::input};
/// let body = r#"{"threadId":"","messages":[{"role":"user","content":"Hi"}],"context":null}"#;
/// let input = input::from_json(body, &"t1".into(), &"r1".into(), &mut Tally::default()).unwrap();
/// assert_eq!((&*input.thread, &*input.run, input.messages.len()), ("t1", "r1", 1));
/// ```
///
/// # Errors
/// When it is not JSON or a known member is malformed; names the JSON path.
pub fn from_json(
    body: &str,
    thread: &ThreadId,
    run: &RunId,
    tally: &mut Tally,
) -> Result<RunInput, ReadError> {
    let mut f = Fields::parse(body, Path::Root)?;
    let filled = |id: Option<String>| id.filter(|id| !id.is_empty());
    let thread = filled(id(&mut f, "threadId", tally)?).map_or_else(|| thread.clone(), ThreadId::from);
    let run = filled(id(&mut f, "runId", tally)?).map_or_else(|| run.clone(), RunId::from);
    let mut input = RunInput::new(thread, run);
    input.parent_run = id(&mut f, "parentRunId", tally)?.map(Into::into);
    input.protocol_version = id(&mut f, "protocolVersion", tally)?.map(Into::into);
    input.state = some_json(&mut f, "state", tally)?;
    input.messages = message_reader::list(&mut f, Reading::Request, &input.run, tally)?;
    if let Some(raw) = f.take_unless_null("tools") {
        let path = Path::Key(&Path::Root, "tools");
        for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
            input.tools.push(tool(raw, Path::Index(&path, index), tally)?);
        }
    }
    if let Some(raw) = f.take_unless_null("context") {
        let path = Path::Key(&Path::Root, "context");
        for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
            input.context.push(context(raw, Path::Index(&path, index), tally)?);
        }
    }
    input.forwarded = some_json(&mut f, "forwardedProps", tally)?;
    if let Some(raw) = f.take_unless_null("resume") {
        let path = Path::Key(&Path::Root, "resume");
        input.resume = Some(if raw.get().starts_with('{') {
            vec![shapes::read_resume_entry(raw, path, tally)?]
        } else {
            let mut entries = Vec::new();
            for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
                entries.push(shapes::read_resume_entry(raw, Path::Index(&path, index), tally)?);
            }
            entries
        });
    }
    input.unknown = f.rest("RunAgentInput", tally)?;
    Ok(input)
}

fn tool(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> Result<Tool, ReadError> {
    let mut f = Fields::of(raw, path)?;
    let tool = Tool {
        name: need(&mut f, "name", tally)?.into(),
        description: id(&mut f, "description", tally)?.unwrap_or_default().into(),
        parameters: some_json(&mut f, "parameters", tally)?,
        metadata: object(&mut f, "metadata", tally)?,
    };
    f.rest("tool", tally)?;
    Ok(tool)
}

/// What the agent should know: AG-UI's `{description, value}`, or a message as in the reference server.
fn context(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> Result<Context, ReadError> {
    let mut f = Fields::of(raw, path)?;
    let value = |f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally| {
        let raw = f.take_unless_null(key);
        raw.map(|raw| text_or_json(raw, Path::Key(&path, key), tally)).transpose()
    };
    let context = match id(&mut f, "role", tally)? {
        Some(role) => {
            Context { description: role.into(), value: value(&mut f, "content", tally)?.unwrap_or_default() }
        }
        None => Context {
            description: id(&mut f, "description", tally)?.unwrap_or_default().into(),
            value: value(&mut f, "value", tally)?.ok_or_else(|| f.missing("value", "a string"))?,
        },
    };
    f.rest("context", tally)?;
    Ok(context)
}

/// Writes a request body for a HAI server.
#[must_use]
pub fn to_json(input: &RunInput) -> String {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    w.str("threadId", &input.thread)
        .str("runId", &input.run)
        .opt_str("parentRunId", input.parent_run.as_deref())
        .opt_str("protocolVersion", input.protocol_version.as_deref());
    let writing = Writing { wrapped: false, developer: true, activity: false };
    w.array("messages", |list| {
        message_writer::write(list, &input.messages, writing);
    });
    w.array("context", |list| {
        for context in &input.context {
            list.object(|w| {
                w.str("description", &context.description).str("value", &context.value);
            });
        }
    });
    w.array("tools", |list| {
        for tool in &input.tools {
            list.object(|w| {
                w.str("name", &tool.name)
                    .str("description", &tool.description)
                    .opt_json("parameters", tool.parameters.as_ref())
                    .opt_object("metadata", tool.metadata.as_ref());
            });
        }
    });
    // The reference server wants an object here, and the client always sends one.
    match &input.forwarded {
        Some(forwarded) => w.json("forwardedProps", forwarded),
        None => w.nested("forwardedProps", |_| {}),
    };
    w.opt_json("state", input.state.as_ref());
    shapes::write_resume(&mut w, input.resume.as_deref());
    for (key, value) in input.unknown.iter().flat_map(crate::json::Object::entries) {
        w.entry(&key, &value);
    }
    w.end();
    String::from_utf8(out.into()).expect("JSON text is UTF-8")
}

/// What a person's answer means: `true` and `false` are what they say, JSON is parsed, anything else is text.
///
/// ```
/// use agentwire_core::format::hai::input::answer;
/// assert_eq!(answer("true").get(), "true");
/// assert_eq!(answer(r#" {"ok": 1}"#).get(), r#"{"ok":1}"#);
/// assert_eq!(answer("maybe").get(), r#""maybe""#);
/// ```
#[must_use]
pub fn answer(content: &str) -> Json {
    Json::parse(content).unwrap_or_else(|_| Json::string(content))
}

/// Takes the tool messages that answer `open` interrupts out of the request and into its `resume`.
///
/// An interrupt was shown as a call of a front-end tool whose id is the interrupt's, so its answer looks like
/// that tool's result. Of several the last one counts: an agent may ask again under the same id. An entry that the
/// request has for the same interrupt already wins.
pub fn answers(input: &mut RunInput, open: &[InterruptId]) {
    let mut found: Vec<ResumeEntry> = Vec::new();
    input.messages.retain(|message| {
        let MessageBody::Tool { call, content, error } = &message.body else { return true };
        let Some(interrupt) = open.iter().find(|interrupt| ***interrupt == **call) else { return true };
        let payload = match error {
            // A tool that failed to ask has no answer.
            Some(_) => None,
            None => Some(answer(&content.text())).filter(|answer| !answer.is_null()),
        };
        let status = if error.is_some() { ResumeStatus::Cancelled } else { ResumeStatus::Resolved };
        found.retain(|earlier| earlier.interrupt != *interrupt);
        found.push(ResumeEntry { interrupt: interrupt.clone(), status, payload, metadata: None });
        false
    });
    if found.is_empty() {
        return;
    }
    let resume = input.resume.get_or_insert_default();
    for entry in found {
        if resume.iter().all(|known| known.interrupt != entry.interrupt) {
            resume.push(entry);
        }
    }
}

/// What a request asks of the writer in `forwardedProps.hai`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The profile: `hai.delta`.
    pub profile: Option<&'static str>,
    /// Options as `key=value`.
    pub options: Vec<String>,
}

/// Reads `forwardedProps.hai`. What is unknown or not allowed is counted and has no effect.
#[must_use]
pub fn wishes(input: &RunInput, tally: &mut Tally) -> Wishes {
    let mut wishes = Wishes::default();
    let hai = input.forwarded.clone().and_then(Json::into_object).and_then(|props| props.member("hai"));
    for (key, value) in hai.and_then(Json::into_object).iter().flat_map(crate::json::Object::entries) {
        let word = match value.to_value() {
            Value::String(word) => word,
            other => other.to_string(),
        };
        if key == "delta" {
            wishes.profile = FORMAT.profiles.iter().map(|profile| profile.name).find(|name| *name == word);
            if wishes.profile.is_none() {
                tally.note("unknown wish", &format!("delta={word}"));
            }
            continue;
        }
        // A client may choose how things look, not what it may see or when they happened.
        let spec = OPTIONS
            .iter()
            .find(|spec| spec.name == key && !matches!(key.as_str(), "include_developer" | "stamp"));
        match spec {
            Some(spec) if spec.allows(&word) => {
                wishes.options.push(format!("{key}={word}"));
            }
            _ => tally.note("unknown wish", &format!("{key}={word}")),
        }
    }
    wishes
}
