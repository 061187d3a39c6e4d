//! Messages and interrupts as LangGraph Server shows them.
//!
//! Reasoning is a part of the assistant message after it: both have one id. That of reasoning without such a message is its
//! own, without the suffix by which the reader names reasoning.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::input::langchain_message;
use crate::event::{Interrupt, Message, MessageBody, MessageId, ToolCallId};

/// All messages of a conversation; activities are none.
#[must_use]
pub fn server_messages(messages: &[Message]) -> Vec<Value> {
    without_open(messages, |_| false)
}

/// The member of values that has the questions of a run.
pub(super) const INTERRUPT: &str = "__interrupt__";

/// The values of a graph: the members of the state, and the messages.
#[must_use]
pub fn server_values(messages: &[Message], state: &Value) -> Map<String, Value> {
    let mut values = own_state(state);
    values.insert("messages".into(), server_messages(messages).into());
    values
}

/// The members of an agent's state. Clients would take one with the name of the questions for them.
pub(super) fn own_state(state: &Value) -> Map<String, Value> {
    let mut values = state.as_object().cloned().unwrap_or_default();
    values.remove(INTERRUPT);
    values
}

/// The messages of a conversation without those of which a part is being streamed.
pub(super) fn without_open(messages: &[Message], is_open: impl Fn(&MessageId) -> bool) -> Vec<Value> {
    let mut list = List::default();
    for message in messages {
        match &message.body {
            MessageBody::Activity { .. } => {}
            MessageBody::Reasoning { content } => list.add_reasoning(message, content, is_open(&message.id)),
            body => {
                for call in message.tool_calls() {
                    list.names.insert(call.id.clone(), call.name.clone());
                }
                let is_assistant = matches!(body, MessageBody::Assistant { .. });
                list.add(message, is_assistant, is_open(&message.id));
            }
        }
    }
    list.end_reasoning();
    list.shown
}

/// One message, which is no reasoning; `name` is the name of its tool.
pub(super) fn server_message(message: &Message, name: Option<&str>) -> Option<Map<String, Value>> {
    let Value::Object(mut native) = langchain_message(message, &HashSet::new())? else { return None };
    let role = native.remove("role");
    let role = role.as_ref().and_then(Value::as_str);
    let mut default = |key: &str, value: Value| {
        native.entry(key).or_insert(value);
    };
    let kwargs = match role {
        Some("developer") => json!({"__openai_role__": "developer"}),
        _ => json!({}),
    };
    default("additional_kwargs", kwargs);
    default("response_metadata", json!({}));
    let kind = match role {
        Some("user") => "human",
        Some("assistant") => {
            default("tool_calls", json!([]));
            default("invalid_tool_calls", json!([]));
            default("usage_metadata", Value::Null);
            "ai"
        }
        Some("tool") => {
            default("name", name.into());
            default("status", "success".into());
            default("artifact", Value::Null);
            "tool"
        }
        _ => "system",
    };
    default("name", Value::Null);
    default("type", kind.into());
    Some(native)
}

/// The id under which reasoning is shown.
pub(super) fn reasoning_id(reasoning: &MessageId) -> MessageId {
    match reasoning.rsplit_once("-r") {
        Some((message, number))
            if !message.is_empty()
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            message.into()
        }
        _ => reasoning.clone(),
    }
}

/// The id under which the message at `at` is shown: that of the reasoning before it, if there is some.
pub(super) fn shown_id(messages: &[Message], at: usize) -> MessageId {
    let message = &messages[at];
    let mut first = None;
    if matches!(message.body, MessageBody::Assistant { .. } | MessageBody::Reasoning { .. }) {
        for earlier in messages[..at].iter().rev() {
            match earlier.body {
                MessageBody::Reasoning { .. } => first = Some(&earlier.id),
                MessageBody::Activity { .. } => {}
                _ => break,
            }
        }
    }
    match (first, &message.body) {
        (Some(reasoning), _) => reasoning_id(reasoning),
        (None, MessageBody::Reasoning { .. }) => reasoning_id(&message.id),
        (None, _) => message.id.clone(),
    }
}

/// An interrupt with the value that the agent gave it, or with its members as the value.
#[must_use]
pub fn server_interrupt(interrupt: &Interrupt) -> Value {
    let value = crate::format::ag_ui::native_value(interrupt).map(|value| value.to_value());
    let value = value.unwrap_or_else(|| {
        let mut value = Map::new();
        value.insert("reason".into(), (&*interrupt.reason).into());
        if let Some(message) = &interrupt.message {
            value.insert("message".into(), (&**message).into());
        }
        if let Some(call) = &interrupt.tool_call {
            value.insert("toolCallId".into(), call.as_str().into());
        }
        if let Some(schema) = &interrupt.response_schema {
            value.insert("responseSchema".into(), schema.as_json().to_value());
        }
        if let Some(expires) = &interrupt.expires_at {
            value.insert("expiresAt".into(), (&**expires).into());
        }
        Value::Object(value)
    });
    json!({"value": value, "id": interrupt.id.as_str()})
}

/// The messages so far.
#[derive(Default)]
struct List {
    shown: Vec<Value>,
    /// Reasoning for the next assistant message.
    reasoning: Option<Reasoning>,
    /// The names of the called tools.
    names: HashMap<ToolCallId, Box<str>>,
}

struct Reasoning {
    id: MessageId,
    text: String,
    is_open: bool,
}

impl List {
    fn add_reasoning(&mut self, message: &Message, text: &str, is_open: bool) {
        let new = || Reasoning { id: reasoning_id(&message.id), text: String::new(), is_open: false };
        let reasoning = self.reasoning.get_or_insert_with(new);
        reasoning.text.push_str(text);
        reasoning.is_open |= is_open;
    }

    fn add(&mut self, message: &Message, is_assistant: bool, is_open: bool) {
        if !is_assistant {
            self.end_reasoning();
        }
        let reasoning = self.reasoning.take();
        if is_open || reasoning.as_ref().is_some_and(|reasoning| reasoning.is_open) {
            return;
        }
        let name = match &message.body {
            MessageBody::Tool { call, .. } => self.names.get(call),
            _ => None,
        };
        let Some(mut native) = server_message(message, name.map(|name| &**name)) else { return };
        if let Some(reasoning) = reasoning {
            native.insert("id".into(), reasoning.id.as_str().into());
            native.insert("additional_kwargs".into(), json!({"reasoning_content": reasoning.text}));
        }
        self.shown.push(native.into());
    }

    /// Shows reasoning that no assistant message follows, as a part of the message with its id if that is there already.
    fn end_reasoning(&mut self) {
        let Some(Reasoning { id, text, is_open: false }) = self.reasoning.take() else { return };
        let known = self.shown.iter_mut().rev().find(|shown| shown["id"] == id.as_str());
        if let Some(Value::Object(known)) = known {
            let kwargs = known.entry("additional_kwargs").or_insert_with(|| json!({}));
            let before = kwargs["reasoning_content"].as_str().unwrap_or_default();
            kwargs["reasoning_content"] = format!("{before}{text}").into();
            return;
        }
        let message = Message::assistant(id, "");
        if let Some(mut native) = server_message(&message, None) {
            native.insert("additional_kwargs".into(), json!({ "reasoning_content": text }));
            self.shown.push(native.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ToolCall;

    fn reasoning(id: &str, text: &str) -> Message {
        Message::new(id, MessageBody::Reasoning { content: text.into() })
    }

    fn ids(messages: &[Value]) -> Vec<&str> {
        messages.iter().map(|message| message["id"].as_str().unwrap()).collect()
    }

    #[test]
    fn reasoning_is_a_part_of_the_message_after_it() {
        let messages = [
            Message::user("u", "?"),
            reasoning("a-r0", "one "),
            reasoning("a-r1", "two"),
            Message::assistant("a", "answer"),
            reasoning("other", "three"),
            Message::assistant("b", "more"),
            reasoning("last-r7", "four"),
        ];
        let shown = server_messages(&messages);
        assert_eq!(ids(&shown), ["u", "a", "other", "last"]);
        assert_eq!(shown[1]["additional_kwargs"], json!({"reasoning_content": "one two"}));
        assert_eq!(shown[2]["content"], "more");
        assert_eq!(shown[3]["content"], "");
        for (at, id) in ["u", "a", "a", "a", "other", "other", "last"].iter().enumerate() {
            assert_eq!(shown_id(&messages, at).as_str(), *id, "{at}");
        }
        let open = without_open(&messages, |id| id.as_str() == "a");
        assert_eq!(ids(&open), ["u", "other", "last"], "a message is whole or not there");
        let open = without_open(&messages, |id| id.as_str() == "a-r0");
        assert_eq!(ids(&open), ["u", "other", "last"]);
    }

    #[test]
    fn values_have_no_questions_of_the_state() {
        let state = json!({"n": 1, "__interrupt__": [{"value": "?", "id": "x"}]});
        assert_eq!(Value::Object(server_values(&[], &state)), json!({"n": 1, "messages": []}));
        assert_eq!(Value::Object(server_values(&[], &json!([1]))), json!({"messages": []}));
    }

    #[test]
    fn messages_have_the_members_of_the_server() {
        let calls = Some(vec![ToolCall::new("c", "look", r#"{"q":1}"#)]);
        let messages = [
            Message::new("a", MessageBody::Assistant { content: None, tool_calls: calls }),
            Message::new("r", MessageBody::Tool { call: "c".into(), content: "x".into(), error: None }),
        ];
        let shown = server_messages(&messages);
        let call = json!({"name": "look", "args": {"q": 1}, "id": "c", "type": "tool_call"});
        assert_eq!(shown[0]["tool_calls"], json!([call]));
        assert_eq!((&shown[0]["type"], &shown[0]["invalid_tool_calls"]), (&json!("ai"), &json!([])));
        assert_eq!((&shown[1]["name"], &shown[1]["status"]), (&json!("look"), &json!("success")));
    }
}
