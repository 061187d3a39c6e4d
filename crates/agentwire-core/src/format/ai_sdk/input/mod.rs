//! Requests of the AI SDK to the canonical [`RunInput`], and back.
//!
//! `useChat` of every version sends its history: messages of parts since version 4.2, `content` with
//! `toolInvocations` before. Answers have no place of their own: the result of a tool that ran in the browser,
//! a decision about an approval and the answer to an interrupt all come back as the state of a tool part in
//! the last message. [`from_json`] takes them out again. Applications often replace the body, so that
//! `{id, message}`, a bare `prompt`, and model messages (`role: "tool"`) are understood too.
//!
//! What the canonical model has no place for stays with its message in `metadata.aiSdk`, for the upstream.

mod conversation;
mod message_parts;
mod ui_messages;

use std::collections::HashSet;

use self::conversation::Conversation;
pub(super) use self::ui_messages::turn_id;
pub use self::ui_messages::ui_messages;
use super::{reader::metadata, wire::native, writer::encode};
use crate::{
    event::{
        Message, MessageBody, MessageId, ResumeEntry, RunId, RunInput, ThreadId, Tool, ToolCall, ToolCallId,
    },
    framing::DEFAULT_MAX_FRAME,
    json::{Fields, Json, ObjectWriter, Path, ReadError},
    tally::Tally,
};

/// The longest body that is read: what one frame of any source may hold.
pub const MAX_BODY: usize = DEFAULT_MAX_FRAME;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The run.
    pub input: RunInput,
    /// Why the client sends.
    pub trigger: Trigger,
    /// `messageId`: the user message that was edited, the message to regenerate, or the assistant message that
    /// goes on.
    pub message: Option<MessageId>,
    /// The assistant message that the answer continues, if it continues one.
    pub continues: Option<MessageId>,
    /// Calls in the last message that have a result. Those among them that were pending are answered.
    pub answers: Vec<ToolCallId>,
    /// What the person answered before they said something else. Those among it that are still asked are answered; the
    /// others came along with the conversation.
    pub earlier: Vec<ResumeEntry>,
}

/// Why a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// A new or edited message, or an answer to what was pending.
    Submit,
    /// The last answer is wanted anew.
    Regenerate,
    /// Version 4 does not say. If its last message is one that was answered, the answer is wanted anew.
    Untold,
}

/// Reads a request body. The SDK names the thread (`id`) but never the run; `thread` is used if it names none.
///
/// # Errors
/// When the body is not JSON, too long, holds no message, or a known member is malformed; names the JSON path
/// and what was expected.
pub fn from_json(
    body: &str,
    thread: impl Into<ThreadId>,
    run: impl Into<RunId>,
    tally: &mut Tally,
) -> Result<Request, ReadError> {
    if body.len() > MAX_BODY {
        let problem = format!("the body has {} bytes, expected at most {MAX_BODY}", body.len());
        return Err(ReadError::new("", problem));
    }
    let mut f = Fields::parse(body, Path::Root)?;
    let thread = match f.str("id", tally)? {
        Some(id) if !id.is_empty() => id.as_ref().into(),
        _ => thread.into(),
    };
    let run = run.into();
    let trigger = trigger(&mut f, tally)?;
    let message = match f.take_unless_null("messageId") {
        Some(raw) => {
            Some(crate::json::text(raw, Path::Key(&Path::Root, "messageId"), tally)?.as_ref().into())
        }
        None => None,
    };

    let mut conversation = Conversation::new(thread.as_str());
    read_messages(&mut f, &run, &mut conversation, tally)?;
    let Conversation { messages, state, last, earlier, .. } = conversation;

    let mut input = RunInput::new(thread, run);
    input.messages = messages;
    input.state = state;
    input.tools = tools(&mut f);
    input.resume = (!last.resume.is_empty()).then_some(last.resume);
    // What an application adds is for the agent; nothing of it is unknown to it.
    input.forwarded = f.rest("", &mut Tally::default())?.map(Json::from);
    Ok(Request { input, trigger, message, continues: last.assistant, answers: last.answers, earlier })
}

fn trigger(f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<Trigger, ReadError> {
    let Some(raw) = f.take_unless_null("trigger") else {
        return Ok(Trigger::Untold);
    };
    let word = crate::json::text(raw, Path::Key(&Path::Root, "trigger"), tally)?;
    Ok(match &*word {
        "submit-message" | "submit-user-message" | "submit-tool-result" => Trigger::Submit,
        "regenerate-message" | "regenerate-assistant-message" => Trigger::Regenerate,
        other => {
            tally.note("unknown trigger", other);
            Trigger::Submit
        }
    })
}

/// `messages`, or `message`, or the `prompt` of useCompletion.
fn read_messages(
    f: &mut Fields<'_, '_>,
    run: &RunId,
    conversation: &mut Conversation,
    tally: &mut Tally,
) -> Result<(), ReadError> {
    let mut count = 0;
    let there = f.array("messages", |raw, path| {
        count += 1;
        conversation.push(raw, path, tally)
    })?;
    if there {
        // Some applications send the last message twice.
        f.take("message");
        if count == 0 {
            return Err(Path::Key(&Path::Root, "messages").error("expected at least one message, found none"));
        }
        return Ok(());
    }
    let root = Path::Root;
    if let Some(raw) = f.take_unless_null("message") {
        let path = Path::Key(&root, "message");
        if raw.get().starts_with('"') {
            let text = crate::json::text(raw, path, tally)?;
            conversation.say(&format!("{run}:message"), &text);
            return Ok(());
        }
        // Its place in the conversation says nothing about it.
        conversation.base = format!("{run}:message");
        return conversation.push(raw, path, tally);
    }
    if let Some(raw) = f.take_unless_null("prompt") {
        let text = crate::json::text(raw, Path::Key(&root, "prompt"), tally)?;
        conversation.say(&format!("{run}:prompt"), &text);
        return Ok(());
    }
    Err(f.missing("messages", "a list of messages"))
}

/// Tools that the application declares in the body, if `tools` looks like that; otherwise it is the
/// application's own and stays where it is.
fn tools(f: &mut Fields<'_, '_>) -> Vec<Tool> {
    let repaired = f.peek("tools").and_then(|raw| Json::from_raw(raw).ok());
    let Some(serde_json::Value::Array(list)) = repaired.map(|(tools, _)| tools.to_value()) else {
        return Vec::new();
    };
    let declared = list.iter().map(|tool| {
        Some(Tool {
            name: tool.get("name")?.as_str()?.into(),
            description: tool
                .get("description")
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
                .into(),
            parameters: tool.get("parameters").or_else(|| tool.get("inputSchema")).map(Json::from),
            metadata: None,
        })
    });
    let declared: Option<Vec<Tool>> = declared.collect();
    if declared.is_some() {
        f.take("tools");
    }
    declared.unwrap_or_default()
}

/// Writes a request body for a backend of the AI SDK 5 or newer. The SDK has no place for tools of the user interface;
/// they stand in `tools`, where [`from_json`] looks for them.
#[must_use]
pub fn to_json(input: &RunInput, version: u8) -> String {
    let mut out = bytes::BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    if let Some(forwarded) = input.forwarded.clone().and_then(Json::into_object) {
        for (key, value) in forwarded.entries() {
            let taken = matches!(&*key, "id" | "messages" | "trigger" | "messageId");
            if !taken && (key != "tools" || input.tools.is_empty()) {
                w.entry(&key, &value);
            }
        }
    }
    if !input.tools.is_empty() {
        w.array("tools", |list| {
            for tool in &input.tools {
                list.object(|w| {
                    w.str("name", &tool.name)
                        .str("description", &tool.description)
                        .opt_json("parameters", tool.parameters.as_ref());
                });
            }
        });
    }
    let messages = Json::trusted(ui_messages::with_answers(input, version));
    w.str("id", &input.thread).json("messages", &messages).str("trigger", "submit-message");
    let continued = turn_id(trailing_turn(&input.messages));
    w.opt_str("messageId", continued.as_deref());
    w.end();
    String::from_utf8(out.into()).expect("JSON text is UTF-8")
}

/// The messages behind the last one of a person or an application: what one assistant message of the SDK holds.
pub(super) fn trailing_turn(messages: &[Message]) -> &[Message] {
    let asked = messages.iter().rposition(|message| !is_turn(message));
    &messages[asked.map_or(0, |index| index + 1)..]
}

/// The messages before the answer that would be continued: what a client holds that is told that answer from its
/// beginning.
#[must_use]
pub fn before_last_turn(messages: &[Message]) -> &[Message] {
    &messages[..messages.len() - trailing_turn(messages).len()]
}

/// Whether the client repeats something that it may not have the name of: version 4 keeps no ids of what an answer
/// consists of, and sends none of its own unless it is told to.
#[must_use]
pub fn repeats_unnamed(input: &RunInput) -> bool {
    input.messages.iter().any(is_unnamed)
}

/// Leaves out what the client repeats of answers that are in `stored`, where it does not have the names of their
/// messages: the agent would hear them twice. Results of calls stay, since they may be news.
pub fn forget_repeated(input: &mut RunInput, stored: &[Message]) {
    let named: HashSet<_> = stored.iter().filter_map(ui_message_id).collect();
    let known: HashSet<_> = stored.iter().map(|message| &message.id).collect();
    let answered: HashSet<_> =
        stored.windows(2).filter(|pair| is_turn(&pair[1])).map(|pair| &pair[0].id).collect();
    let made = format!("{}:", input.thread);
    let is_made = |id: &str| {
        id.strip_prefix(&made)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_digit()))
    };
    let mut asked = None;
    input.messages.retain_mut(|message| {
        if !is_turn(message) {
            asked = Some(message.id.clone());
            return true;
        }
        let Some(turn) = ui_message_id(message) else { return true };
        // A turn that nobody named is the one behind the same question.
        let is_same = is_made(&turn) && asked.as_ref().is_some_and(|asked| answered.contains(asked));
        if !is_same && !named.contains(&turn) {
            return true;
        }
        if is_unnamed(message) && !known.contains(&message.id) {
            return false;
        }
        if is_same {
            let metadata = message.metadata.take();
            message.metadata = metadata.and_then(|it| metadata::without_native(&it, &[native::MESSAGE_ID]));
        }
        true
    });
}

/// Whether the name of a message was made from that of its turn.
fn is_unnamed(message: &Message) -> bool {
    let is_result = matches!(message.body, MessageBody::Tool { .. });
    !is_result
        && ui_message_id(message).is_some_and(|turn| {
            let rest = message.id.strip_prefix(&*turn);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
}

/// Names the answer to `input`, in `messages` that hold it, as the client that asked holds it: by the id of the run. Pages
/// that load the conversation later then have it under the same id. An answer that goes on in `input` has its name.
pub fn name_answer(messages: &mut [Message], input: &RunInput) {
    let answer = messages.len() - trailing_turn(messages).len();
    if trailing_turn(&input.messages).is_empty()
        && let Some(first) = messages.get_mut(answer)
        && ui_message_id(first).is_none()
    {
        first.metadata =
            Some(metadata::with_native(first.metadata.take(), native::MESSAGE_ID, Json::string(&input.run)));
    }
}

/// Whether a message is part of an assistant's turn.
fn is_turn(message: &Message) -> bool {
    !matches!(
        message.body,
        MessageBody::User { .. } | MessageBody::System { .. } | MessageBody::Developer { .. }
    )
}

/// The id of the SDK's message that a canonical message came from, if it came from one.
pub(super) fn ui_message_id(message: &Message) -> Option<Box<str>> {
    metadata::native(message.metadata.as_ref())?.get_str(native::MESSAGE_ID).map(Into::into)
}

/// Whether the client holds the call as a part of a tool that it knows.
pub(super) fn is_static(call: &ToolCall) -> bool {
    metadata::native(call.metadata.as_ref()).and_then(|it| it.get_str("part")).as_deref() == Some("static")
}

/// What the last message of a request answers.
#[derive(Debug, Default)]
struct Last {
    assistant: Option<MessageId>,
    answers: Vec<ToolCallId>,
    resume: Vec<ResumeEntry>,
}

/// The answer to an approval, as agents get it.
fn approval_answer(approved: bool, reason: Option<&str>) -> Json {
    encode::build_object(|w| {
        w.bool("approved", approved).opt_str("reason", reason);
    })
    .into()
}
