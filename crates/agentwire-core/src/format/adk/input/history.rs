//! The conversation of a thread as the events of a new session, for a server that has lost the session.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::{PendingCall, new_message::content_parts};
use crate::{
    event::{Message, MessageBody, RunInput, ToolCallId},
    format::adk::reader::interrupts::is_request,
    json::Json,
};

/// The part of a run input that precedes the new messages.
///
/// Reasoning, activities, and calls without a result are left out: a model accepts no call without a result. A call to
/// which the input contains the answer is included, as a pending call.
#[derive(Clone, Debug, Default)]
pub struct SessionHistory {
    messages: Vec<Message>,
    pending: Vec<PendingCall>,
}

impl SessionHistory {
    /// The history in an input; `None` if it contains no reply to a user. A greeting at the start is none.
    #[must_use]
    pub fn of(input: &RunInput) -> Option<Self> {
        let messages = &input.messages;
        let last =
            messages.iter().rposition(|message| matches!(message.body, MessageBody::Assistant { .. }))?;
        if !messages[..last].iter().any(|message| matches!(message.body, MessageBody::User { .. })) {
            return None;
        }
        // Results after the agent's last message are answers, unless the person has written another message since.
        let is_tool = |message: &Message| matches!(message.body, MessageBody::Tool { .. });
        let results = messages[last + 1..].iter().take_while(|message| is_tool(message)).count();
        let has_later = last + 1 + results < messages.len();
        let end = last + 1 + if has_later { results } else { 0 };
        let answered: HashSet<&str> = input
            .resume
            .iter()
            .flatten()
            .map(|entry| entry.interrupt.as_str())
            .chain(messages[end..].iter().filter_map(|message| match &message.body {
                MessageBody::Tool { call, .. } => Some(call.as_str()),
                _ => None,
            }))
            .collect();
        let with_result: HashSet<&ToolCallId> = messages[..end]
            .iter()
            .filter_map(|message| match &message.body {
                MessageBody::Tool { call, .. } => Some(call),
                _ => None,
            })
            .collect();
        let mut history = Self::default();
        for message in &messages[..end] {
            let mut message = message.clone();
            if let MessageBody::Assistant { tool_calls: Some(calls), .. } = &mut message.body {
                calls.retain(|call| {
                    let is_open = !with_result.contains(&call.id);
                    !is_request(&call.name) && (!is_open || answered.contains(call.id.as_str()))
                });
                let open = calls.iter().filter(|call| !with_result.contains(&call.id));
                history.pending.extend(open.map(|call| PendingCall {
                    id: call.id.clone(),
                    native_id: None,
                    name: call.name.clone(),
                    arguments: Json::parse(&call.arguments).unwrap_or_else(|_| Json::null()),
                }));
            }
            history.messages.push(message);
        }
        Some(history)
    }

    /// The calls that wait for a result in the input.
    #[must_use]
    pub fn pending(&self) -> &[PendingCall] {
        &self.pending
    }

    /// The events of the session. The author of a message without a name is that of another message, or else `app`:
    /// ADK continues with the agent that wrote last, and with the main agent if it does not know the author.
    pub(super) fn events(&self, app: &str) -> Value {
        let is_output = |message: &&Message| matches!(message.body, MessageBody::Assistant { .. });
        let named = self.messages.iter().filter(is_output).find_map(|message| message.name.as_deref());
        let mut author = named.unwrap_or(app);
        let names: HashMap<&ToolCallId, &str> = self
            .messages
            .iter()
            .flat_map(|message| message.tool_calls())
            .map(|call| (&call.id, &*call.name))
            .collect();
        let mut events: Vec<Value> = Vec::new();
        let mut is_result_list = false;
        for message in &self.messages {
            let was_result_list = std::mem::replace(&mut is_result_list, false);
            let (role, from, parts) = match &message.body {
                MessageBody::User { content } => ("user", "user", content_parts(content)),
                MessageBody::Assistant { content, tool_calls } => {
                    author = message.name.as_deref().unwrap_or(author);
                    let text =
                        content.iter().filter(|text| !text.is_empty()).map(|text| json!({"text": text}));
                    let calls = tool_calls.iter().flatten().map(|call| {
                        let arguments = serde_json::from_str(&call.arguments).ok().filter(Value::is_object);
                        let args = arguments.unwrap_or_else(|| json!({}));
                        json!({"functionCall": {"id": call.id.as_str(), "name": call.name, "args": args}})
                    });
                    ("model", author, text.chain(calls).collect())
                }
                MessageBody::Tool { call, content, error } => {
                    let Some(name) = names.get(call) else { continue };
                    let text = content.text();
                    let response = match (error, serde_json::from_str(&text)) {
                        (_, Ok(Value::Object(object))) => Value::Object(object),
                        (Some(error), _) => json!({"error": error}),
                        (None, Ok(value)) => json!({"result": value}),
                        (None, Err(_)) => json!({"result": text}),
                    };
                    let part = json!({"functionResponse": {"id": call.as_str(), "name": name, "response": response}});
                    is_result_list = true;
                    // ADK stores the results of parallel calls in one event.
                    if was_result_list
                        && let Some(parts) =
                            events.last_mut().and_then(|event| event["content"]["parts"].as_array_mut())
                    {
                        parts.push(part);
                        continue;
                    }
                    ("user", author, vec![part])
                }
                _ => continue,
            };
            if !parts.is_empty() {
                events.push(json!({"author": from, "content": {"role": role, "parts": parts}}));
            }
        }
        events.into()
    }
}
