//! An agent whose user message selects its interrupts and tool calls, and that echoes the answers to them.

use std::sync::Arc;

use agentwire_core::{
    event::{
        Body, Content, Event, Interrupt, MessageBody, Outcome, ResumeStatus, RunFinished, RunInput,
        ToolResult,
    },
    json::{Json, Object},
};
use serde_json::{Value, json};

use super::puppet::{Puppet, delta, end, start};

/// Reads the last user message as JSON: `ask` lists interrupts, `calls` lists tool calls that stay open, `own` lists tool
/// calls with a result. Answers and tool results are echoed as text; any other message gets a fixed text.
pub(crate) fn asker() -> Arc<Puppet> {
    Puppet::eager(asker_script)
}

/// The script of [`asker`].
pub(crate) fn asker_script(input: &RunInput) -> Vec<Event> {
    let message = format!("{}-answer", input.run);
    let text = |text: &str| vec![start(&message), delta(&message, text), end(&message)];
    if let Some(entries) = &input.resume {
        let echo: Vec<_> = entries
            .iter()
            .map(|entry| {
                let status = if entry.status == ResumeStatus::Resolved { "resolved" } else { "cancelled" };
                json!([entry.interrupt.as_str(), status, entry.payload.as_ref().map(Json::to_value)])
            })
            .collect();
        return text(&Value::from(echo).to_string());
    }
    match input.messages.last().map(|message| &message.body) {
        Some(MessageBody::Tool { call, content, error }) => {
            return text(&json!([call.as_str(), content.text(), error]).to_string());
        }
        Some(MessageBody::User { content }) => {
            if let Ok(Value::Object(command)) = serde_json::from_str(&content.text()) {
                return question_events(input, &Value::Object(command));
            }
        }
        _ => {}
    }
    text("nothing to say")
}

fn question_events(input: &RunInput, command: &Value) -> Vec<Event> {
    let list = |key: &str| command[key].as_array().cloned().unwrap_or_default();
    let mut events = Vec::new();
    let parent = format!("{}-calls", input.run);
    for call in list("own").iter().chain(&list("calls")) {
        let (id, name) = (call["id"].as_str().expect("an id"), call["name"].as_str().expect("a name"));
        events.push(Event::new(Body::ToolStart {
            call: id.into(),
            name: name.into(),
            parent: Some(parent.as_str().into()),
        }));
        events.push(Event::new(Body::ToolArgs {
            call: id.into(),
            delta: call["args"].to_string().as_str().into(),
        }));
        events.push(Event::new(Body::ToolEnd { call: id.into() }));
    }
    for call in list("own") {
        let id = call["id"].as_str().expect("an id");
        events.push(Event::new(Body::ToolResult(Box::new(ToolResult {
            message: format!("{id}-result").as_str().into(),
            call: id.into(),
            content: Content::from("mine"),
            error: None,
            explicit_role: false,
        }))));
    }
    let interrupts: Vec<_> = list("ask").iter().map(interrupt).collect();
    let mut finished = RunFinished::new(input.thread.clone(), input.run.clone());
    finished.outcome = (!interrupts.is_empty()).then_some(Outcome::Interrupt { interrupts });
    events.push(Event::new(Body::RunFinished(Box::new(finished))));
    events
}

fn interrupt(question: &Value) -> Interrupt {
    let text = |key: &str| question[key].as_str();
    let mut interrupt =
        Interrupt::new(text("id").expect("an id"), text("reason").unwrap_or("input_required"));
    interrupt.tool_call = text("toolCallId").map(Into::into);
    interrupt.message = text("message").map(Into::into);
    if let Some(length) = question["length"].as_u64() {
        interrupt.message = Some("x".repeat(usize::try_from(length).expect("it fits")).into());
    }
    interrupt.expires_at = text("expiresAt").map(Into::into);
    interrupt.response_schema = Object::from_value(&question["responseSchema"]);
    interrupt
}
