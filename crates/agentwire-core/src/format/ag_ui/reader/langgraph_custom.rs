//! CUSTOM events that `ag-ui-langgraph` and CopilotKit's agent make of LangGraph's callback events.
//!
//! An `EventEmitter` wraps its events in `agent_custom_event`. A message, a call or a state that a graph emits by hand is a
//! CUSTOM event `manually_emit_*`; `ag-ui-langgraph` sends the corresponding AG-UI events before it, CopilotKit's agent
//! sends the CUSTOM event alone. Either way the client gets the AG-UI events once.

use super::chunks::ChunkExpander;
use crate::{
    event::{Body, Event, MessageId, ToolCallId},
    format::manual_reasoning,
    json::{Json, Object},
};

/// The name of an event that wraps another one: `{"name", "payload"}`.
const MARKER: &str = "agent_custom_event";

/// The latest items of a stream, which a CUSTOM event may repeat.
#[derive(Debug, Default)]
pub(super) struct LangGraphCustom {
    last_message: Option<MessageId>,
    last_call: Option<ToolCallId>,
    /// The latest event is a state snapshot.
    is_after_state: bool,
    /// Number of generated ids.
    generated: u64,
}

impl LangGraphCustom {
    /// Returns the event to pass on, or emits what it stands for.
    pub(super) fn translate(
        &mut self,
        event: Event,
        expander: &mut ChunkExpander,
        out: &mut Vec<Event>,
    ) -> Option<Event> {
        let is_after_state = self.is_after_state;
        match &event.body {
            // The usual events of a stream, without work.
            Body::TextDelta { .. } | Body::ToolArgs { .. } => return Some(event),
            Body::Raw { .. } => return Some(event),
            Body::TextEnd { message } => self.last_message = Some(message.clone()),
            Body::ToolEnd { call } => self.last_call = Some(call.clone()),
            _ => {}
        }
        self.is_after_state = matches!(event.body, Body::StateSnapshot { .. });
        let Body::Custom { name, value } = &event.body else { return Some(event) };
        let bodies = match name.strip_prefix("copilotkit_").unwrap_or(name) {
            MARKER => return Some(unwrapped(event)),
            "manually_emit_message" => self.message(value),
            "manually_emit_tool_call" => self.call(value),
            "manually_emit_reasoning" => self.reasoning(value),
            "manually_emit_state" | "manually_emit_intermediate_state" if is_after_state => Some(Vec::new()),
            "manually_emit_state" | "manually_emit_intermediate_state" => {
                Some(vec![Body::StateSnapshot { snapshot: value.clone() }])
            }
            // The event that CopilotKit's agent sends for it.
            "exit" if **name == *"copilotkit_exit" => {
                Some(vec![Body::Custom { name: "Exit".into(), value: Json::from(&true.into()) }])
            }
            _ => return Some(event),
        };
        // A value of another shape belongs to the application.
        let Some(bodies) = bodies else { return Some(event) };
        for body in bodies {
            let is_start = matches!(body, Body::ReasoningStart { .. } | Body::ReasoningMessageStart { .. });
            let made = Event { body, ..event.clone() };
            let made = if is_start { made.with_metadata(Some(manual_reasoning::metadata())) } else { made };
            expander.event(made, out);
        }
        None
    }

    fn message(&mut self, value: &Json) -> Option<Vec<Body>> {
        let value = value.clone().into_object()?;
        let text = value.get_str("message")?;
        let id = value.get_str("message_id").unwrap_or_else(|| self.generated_id("message"));
        if self.last_message.as_ref().is_some_and(|last| last.as_str() == id) {
            return Some(Vec::new());
        }
        let message = MessageId::from(id);
        let mut bodies = vec![Body::TextStart { message: message.clone(), role: None, name: None }];
        if !text.is_empty() {
            bodies.push(Body::TextDelta { message: message.clone(), delta: text.into() });
        }
        bodies.push(Body::TextEnd { message });
        Some(bodies)
    }

    fn call(&mut self, value: &Json) -> Option<Vec<Body>> {
        let value: Object = value.clone().into_object()?;
        let name = value.get_str("name")?;
        let id = value.get_str("id").unwrap_or_else(|| self.generated_id("call"));
        if self.last_call.as_ref().is_some_and(|last| last.as_str() == id) {
            return Some(Vec::new());
        }
        let args = value.member("args").map(|args| match args.as_str() {
            Some(text) => text,
            None => args.get().to_owned(),
        });
        let call = ToolCallId::from(id);
        let mut bodies = vec![Body::ToolStart { call: call.clone(), name: name.into(), parent: None }];
        if let Some(delta) = args.filter(|args| !args.is_empty()) {
            bodies.push(Body::ToolArgs { call: call.clone(), delta: delta.into() });
        }
        bodies.push(Body::ToolEnd { call });
        Some(bodies)
    }

    fn reasoning(&mut self, value: &Json) -> Option<Vec<Body>> {
        let text = match value.as_str() {
            Some(text) => text,
            None => value.clone().into_object()?.get_str("message")?,
        };
        let message = MessageId::from(self.generated_id("reasoning"));
        Some(vec![
            Body::ReasoningStart { message: message.clone(), title: None },
            Body::ReasoningMessageStart { message: message.clone() },
            Body::ReasoningDelta { message: message.clone(), delta: text.into() },
            Body::ReasoningMessageEnd { message: message.clone() },
            Body::ReasoningEnd { message },
        ])
    }

    fn generated_id(&mut self, kind: &str) -> String {
        self.generated += 1;
        format!("{kind}-{}", self.generated)
    }
}

/// The event inside `agent_custom_event`; the event itself if it has no name.
fn unwrapped(mut event: Event) -> Event {
    if let Body::Custom { value, .. } = &event.body
        && let Some(marker) = value.clone().into_object()
        && let Some(name) = marker.get_str("name").filter(|name| !name.is_empty())
    {
        let value = marker.member("payload").unwrap_or_else(Json::null);
        event.body = Body::Custom { name: name.into(), value };
    }
    event
}
