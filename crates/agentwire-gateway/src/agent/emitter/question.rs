//! Questions to a person.

use agentwire_core::{
    event::{Interrupt, InterruptId, SubagentId, ToolCallId},
    json::Object,
};
use serde_json::Value;

use super::checked_json;

/// A question to a person, emitted by [`Emitter::interrupt`](super::Emitter::interrupt).
///
/// ```
/// # use agentwire_gateway::agent::{agent_fn, Question};
/// # use serde_json::json;
/// agent_fn(|request, emit| async move {
///     let Some(answer) = request.input.resume.iter().flatten().next() else {
///         let call = emit.call("pay", json!({"amount": 40})).await?.leave_open();
///         let schema = json!({"type": "object", "properties": {"approved": {"type": "boolean"}}});
///         emit.interrupt(Question::new("Pay 40 EUR?").about(&call).schema(schema));
///         return Ok(());
///     };
///     emit.text(format!("Your answer: {:?}.", answer.payload)).await?;
///     Ok(())
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Question {
    message: Box<str>,
    reason: Option<Box<str>>,
    call: Option<ToolCallId>,
    schema: Option<Object>,
    expires_at: Option<Box<str>>,
    metadata: Option<Object>,
}

impl Question {
    /// A question with this message.
    #[must_use]
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self {
            message: message.into(),
            reason: None,
            call: None,
            schema: None,
            expires_at: None,
            metadata: None,
        }
    }

    /// The reason: `tool_call`, `input_required`, `confirmation` or an own one. By default `tool_call` if the question is
    /// about a call, else `input_required`.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<Box<str>>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// The tool call that waits for the answer.
    #[must_use]
    pub fn about(mut self, call: &ToolCallId) -> Self {
        self.call = Some(call.clone());
        self
    }

    /// The JSON Schema of the answer; the gateway refuses answers that do not match. A value that is not an object accepts
    /// any answer.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<Value>) -> Self {
        self.schema = object(&schema.into());
        self
    }

    /// The time of expiry in ISO 8601.
    #[must_use]
    pub fn expires_at(mut self, time: impl Into<Box<str>>) -> Self {
        self.expires_at = Some(time.into());
        self
    }

    /// Metadata for the client: an object; other values are ignored.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<Value>) -> Self {
        self.metadata = object(&metadata.into());
        self
    }

    pub(super) fn into_interrupt(self, id: InterruptId, subagent: Option<SubagentId>) -> Interrupt {
        let usual = if self.call.is_some() { "tool_call" } else { "input_required" };
        let mut interrupt = Interrupt::new(id, self.reason.unwrap_or_else(|| usual.into()));
        interrupt.message = Some(self.message);
        interrupt.tool_call = self.call;
        interrupt.response_schema = self.schema;
        interrupt.expires_at = self.expires_at;
        interrupt.metadata = self.metadata;
        interrupt.subagent = subagent;
        interrupt
    }
}

fn object(value: &Value) -> Option<Object> {
    checked_json(value).ok()?.into_object()
}
