//! Request bodies of the AI SDK: to the canonical [`RunInput`] and back.
//!
//! `useChat` of every version sends its history: messages of parts since version 4.2, `content` with `toolInvocations`
//! before. Answers have no member of their own: the result of a tool that ran in the browser, the answer to an approval
//! request and the answer to an interrupt are all sent as the state of a tool part in the last message. [`from_json`]
//! extracts them. Applications often replace the body, so `{id, message}`, a bare `prompt` and model messages
//! (`role: "tool"`) are accepted too.
//!
//! Values without a canonical equivalent stay with their message in `metadata.aiSdk`, for the upstream.

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
        GivenResult, Message, MessageBody, MessageId, ResumeEntry, RunId, RunInput, ThreadId, Tool, ToolCall,
        ToolCallId,
    },
    framing::DEFAULT_MAX_FRAME,
    json::{Fields, Json, ObjectWriter, Path, ReadError, ReadResult},
    tally::Tally,
};

/// Size limit of a request body in bytes, the same as for one frame of a source.
pub const MAX_BODY: usize = DEFAULT_MAX_FRAME;

/// A parsed request of a client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChatRequest {
    /// Canonical input of the run.
    pub input: RunInput,
    /// Reason for the request.
    pub trigger: Trigger,
    /// `messageId`: the edited user message, the message to regenerate, or the assistant message to continue.
    pub message: Option<MessageId>,
    /// The assistant message that the response continues, if any.
    pub continues: Option<MessageId>,
    /// Tool calls with a result in the last message. The pending ones among them are answered by this request.
    pub answered_calls: Vec<ToolCallId>,
    /// Answers before the user's last message. They count only for interrupts that are still open; the others are history.
    pub earlier_answers: Vec<ResumeEntry>,
}

/// Reason for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// A new or edited message, or an answer to a pending item.
    Submit,
    /// The last response is to be regenerated.
    Regenerate,
    /// Not specified (version 4). If the last message already has a response, that is to be regenerated.
    Unspecified,
}

/// Reads a request body. `thread` is used if the body has no thread id (`id`, or else the `threadId` of assistant-ui);
/// it never has a run id.
///
/// # Errors
/// If the body is not JSON, too long, without messages, or a known member is malformed. The error contains the JSON path
/// and the expected value.
pub fn from_json(
    body: &str,
    thread: impl Into<ThreadId>,
    run: impl Into<RunId>,
    tally: &mut Tally,
) -> ReadResult<ChatRequest> {
    if body.len() > MAX_BODY {
        let problem = format!("the body has {} bytes, expected at most {MAX_BODY}", body.len());
        return Err(ReadError::new("", problem));
    }
    let mut f = Fields::parse(body, Path::Root)?;
    let thread = match id_of(&mut f, "id", tally)? {
        Some(id) => id,
        None => id_of(&mut f, "threadId", tally)?.unwrap_or_else(|| thread.into()),
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
    let Conversation { messages, state, last, earlier_answers, .. } = conversation;

    let mut input = RunInput::new(thread, run);
    input.messages = messages;
    if let Some(system) = system(&mut f, &input.thread) {
        input.messages.insert(0, system);
    }
    input.state = state;
    input.tools = tools(&mut f);
    input.resume = (!last.resume.is_empty()).then_some(last.resume);
    // Members that an application adds are forwarded to the agent and are not counted as unknown.
    input.forwarded = f.rest("", &mut Tally::default())?.map(Json::from);
    Ok(ChatRequest {
        input,
        trigger,
        message,
        continues: last.assistant,
        answered_calls: last.answered_calls,
        earlier_answers,
    })
}

/// An id of the thread; `null` and an empty one are none.
fn id_of(f: &mut Fields<'_, '_>, name: &'static str, tally: &mut Tally) -> ReadResult<Option<ThreadId>> {
    let Some(raw) = f.take_unless_null(name) else { return Ok(None) };
    let id = crate::json::text(raw, Path::Key(&Path::Root, name), tally)?;
    Ok((!id.is_empty()).then(|| id.as_ref().into()))
}

fn trigger(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Trigger> {
    let Some(raw) = f.take_unless_null("trigger") else {
        return Ok(Trigger::Unspecified);
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

/// Reads `messages`, `message` or the `prompt` of useCompletion.
fn read_messages(
    f: &mut Fields<'_, '_>,
    run: &RunId,
    conversation: &mut Conversation,
    tally: &mut Tally,
) -> ReadResult {
    let mut count = 0;
    let has_messages = f.array("messages", |raw, path| {
        count += 1;
        conversation.push_message(raw, path, tally)
    })?;
    if has_messages {
        // Some applications send the last message again in `message`.
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
            conversation.push_user_text(&format!("{run}:message"), &text);
            return Ok(());
        }
        // The index of a single message must not become part of its id.
        conversation.id_prefix = format!("{run}:message");
        return conversation.push_message(raw, path, tally);
    }
    if let Some(raw) = f.take_unless_null("prompt") {
        let text = crate::json::text(raw, Path::Key(&root, "prompt"), tally)?;
        conversation.push_user_text(&format!("{run}:prompt"), &text);
        return Ok(());
    }
    Err(f.missing("messages", "a list of messages"))
}

/// The system message that the application gives to one run, in the member `system`. A member of another shape belongs to
/// the application and is forwarded.
fn system(f: &mut Fields<'_, '_>, thread: &ThreadId) -> Option<Message> {
    let (text, _) = f.peek("system").and_then(|raw| Json::from_raw(raw).ok())?;
    let text = text.as_str()?;
    f.take("system");
    if text.trim().is_empty() {
        return None;
    }
    let body = MessageBody::System { content: text.into() };
    let mut message = Message::new(format!("{thread}:system"), body);
    message.metadata =
        Some(metadata::with_native(None, native::SYSTEM, Json::from(&serde_json::json!(true))));
    Some(message)
}

/// True if a message is the `system` of a request: it is valid for one run and no part of the conversation.
#[must_use]
pub fn is_system_of_request(message: &Message) -> bool {
    metadata::has_native_flag(message.metadata.as_ref(), native::SYSTEM)
}

/// Tools that the application declares in the body: a list, or a map by name as assistant-ui sends it. A member `tools` of
/// another shape belongs to the application and is forwarded.
fn tools(f: &mut Fields<'_, '_>) -> Vec<Tool> {
    use serde_json::Value;
    let repaired = f.peek("tools").and_then(|raw| Json::from_raw(raw).ok());
    let list: Vec<(Option<String>, Value)> = match repaired.map(|(tools, _)| tools.to_value()) {
        Some(Value::Array(list)) => list.into_iter().map(|tool| (None, tool)).collect(),
        Some(Value::Object(map)) if map.values().all(Value::is_object) => {
            map.into_iter().map(|(name, tool)| (Some(name), tool)).collect()
        }
        _ => return Vec::new(),
    };
    let declared = list.iter().map(|(name, tool)| {
        let name = name.as_deref().or_else(|| tool.get("name")?.as_str())?;
        Some(Tool {
            name: name.into(),
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

/// Writes a request body for a backend of the AI SDK 5 or newer. The SDK has no member for tools of the user interface; they
/// are written to `tools`, where [`from_json`] reads them.
#[must_use]
pub fn to_json(input: &RunInput, version: u8) -> String {
    let mut out = bytes::BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    if let Some(forwarded) = input.forwarded.clone().and_then(Json::into_object) {
        for (key, value) in forwarded.entries() {
            let is_reserved = matches!(&*key, "id" | "messages" | "trigger" | "messageId");
            if !is_reserved && (key != "tools" || input.tools.is_empty()) {
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

/// Messages after the last one of a user or the application: the content of one assistant message of the SDK.
pub(super) fn trailing_turn(messages: &[Message]) -> &[Message] {
    let last_input = messages.iter().rposition(|message| !is_turn(message));
    &messages[last_input.map_or(0, |index| index + 1)..]
}

/// The id of the UI message that the response to an input continues.
#[must_use]
pub fn continued_turn(input: &RunInput) -> Option<Box<str>> {
    turn_id(trailing_turn(&input.messages))
}

/// The id of the last message of the user.
#[must_use]
pub fn last_user_message(input: &RunInput) -> Option<Box<str>> {
    let last = input.messages.iter().rfind(|message| matches!(message.body, MessageBody::User { .. }));
    last.map(|message| message.id.as_str().into())
}

/// Messages before the trailing turn: the history of a client that receives the trailing turn from its start.
#[must_use]
pub fn before_last_turn(messages: &[Message]) -> &[Message] {
    &messages[..messages.len() - trailing_turn(messages).len()]
}

/// The tool outputs of the last assistant turn, the last one first. The person may have written something after it, and
/// the agent may have said something after the call.
#[must_use]
pub fn outputs_of_last_turn(messages: &[Message]) -> Vec<GivenResult> {
    let is_user = |message: &&Message| matches!(message.body, MessageBody::User { .. });
    let turn = messages.iter().rev().skip_while(is_user).take_while(|message| !is_user(message));
    turn.filter_map(GivenResult::of).collect()
}

/// Returns true if the client repeats messages under generated ids. Version 4 does not keep the ids of the messages within a
/// response, and sends no ids of its own unless it is configured to.
#[must_use]
pub fn has_unnamed_messages(input: &RunInput) -> bool {
    input.messages.iter().any(is_unnamed)
}

/// Removes messages of responses in `stored` that the client repeats under generated ids: the agent would receive them twice.
/// Tool results are kept, because they may be new.
pub fn remove_stored_messages(input: &mut RunInput, stored: &[Message]) {
    let stored_turns: HashSet<_> = stored.iter().filter_map(ui_message_id).collect();
    let stored_ids: HashSet<_> = stored.iter().map(|message| &message.id).collect();
    let answered: HashSet<_> =
        stored.windows(2).filter(|pair| is_turn(&pair[1])).map(|pair| &pair[0].id).collect();
    let generated_prefix = format!("{}:", input.thread);
    let is_generated = |id: &str| {
        id.strip_prefix(&generated_prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_digit()))
    };
    let mut last_input = None;
    input.messages.retain_mut(|message| {
        if !is_turn(message) {
            last_input = Some(message.id.clone());
            return true;
        }
        let Some(turn) = ui_message_id(message) else { return true };
        // A turn with a generated id is the stored one after the same input message.
        let is_same =
            is_generated(&turn) && last_input.as_ref().is_some_and(|input| answered.contains(input));
        if !is_same && !stored_turns.contains(&turn) {
            return true;
        }
        if is_unnamed(message) && !stored_ids.contains(&message.id) {
            return false;
        }
        if is_same {
            let metadata = message.metadata.take();
            message.metadata = metadata.and_then(|it| metadata::without_native(&it, &[native::MESSAGE_ID]));
        }
        true
    });
}

/// Returns true if the id of a message was derived from that of its turn.
fn is_unnamed(message: &Message) -> bool {
    let is_result = matches!(message.body, MessageBody::Tool { .. });
    !is_result
        && ui_message_id(message).is_some_and(|turn| {
            let rest = message.id.strip_prefix(&*turn);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
}

/// Sets the UI message id of the trailing turn in `messages`, the response to `input`, to the run id, which is the id that the
/// requesting client uses. Pages that load the conversation later then use the same id. A response that continues a turn of
/// `input` already has its id.
pub fn set_response_id(messages: &mut [Message], input: &RunInput) {
    let start = messages.len() - trailing_turn(messages).len();
    if trailing_turn(&input.messages).is_empty()
        && let Some(first) = messages.get_mut(start)
        && ui_message_id(first).is_none()
    {
        first.metadata =
            Some(metadata::with_native(first.metadata.take(), native::MESSAGE_ID, Json::string(&input.run)));
    }
}

/// Returns true if a message is part of an assistant's turn.
fn is_turn(message: &Message) -> bool {
    !matches!(
        message.body,
        MessageBody::User { .. } | MessageBody::System { .. } | MessageBody::Developer { .. }
    )
}

/// Id of the UI message that a canonical message was read from, if any.
pub(super) fn ui_message_id(message: &Message) -> Option<Box<str>> {
    metadata::native(message.metadata.as_ref())?.get_str(native::MESSAGE_ID).map(Into::into)
}

/// Returns true if the client holds the call as a static part.
pub(super) fn is_static(call: &ToolCall) -> bool {
    metadata::native(call.metadata.as_ref()).and_then(|it| it.get_str(native::PART)).as_deref()
        == Some(native::STATIC)
}

/// Answers in the last message of a request.
#[derive(Debug, Default)]
struct LastMessage {
    assistant: Option<MessageId>,
    answered_calls: Vec<ToolCallId>,
    resume: Vec<ResumeEntry>,
}

/// Payload of an approval answer, as agents receive it.
fn approval_answer(approved: bool, reason: Option<&str>) -> Json {
    encode::build_object(|w| {
        w.bool("approved", approved).opt_str("reason", reason);
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_the_first_id_that_there_is() {
        for (ids, expected) in [
            (r#""id":"a","threadId":"b","#, "a"),
            (r#""threadId":"b","#, "b"),
            (r#""id":"","threadId":"b","#, "b"),
            (r#""id":null,"threadId":"b","#, "b"),
            (r#""id":null,"threadId":null,"#, "new"),
            ("", "new"),
        ] {
            let body = format!(r#"{{{ids}"messages":[{{"role":"user","content":"hi"}}]}}"#);
            let request = from_json(&body, "new", "r", &mut Tally::default()).expect(&body);
            assert_eq!(request.input.thread.as_str(), expected, "{body}");
        }
        for ids in [r#""id":1,"#, r#""threadId":[],"#] {
            let body = format!(r#"{{{ids}"messages":[]}}"#);
            assert!(from_json(&body, "new", "r", &mut Tally::default()).is_err(), "{body}");
        }
    }

    #[test]
    fn an_answered_approval_keeps_members_that_are_not_known() {
        let part = r#"{"type":"tool-a","toolCallId":"c","state":"approval-responded","input":{},"approval":{"id":"i","approved":false,"signature":"s"}}"#;
        let body = format!(r#"{{"id":"t","messages":[{{"id":"a","role":"assistant","parts":[{part}]}}]}}"#);
        let request = from_json(&body, "t", "r", &mut Tally::default()).expect(&body);
        assert!(request.input.resume.is_some());
        for version in [6, 7] {
            let text = to_json(&request.input, version);
            assert!(text.contains(r#""approval":{"id":"i","approved":false,"signature":"s"}"#), "{text}");
            let back = from_json(&text, "t", "r", &mut Tally::default()).expect(&text);
            assert_eq!(to_json(&back.input, version), text);
        }
    }
}
