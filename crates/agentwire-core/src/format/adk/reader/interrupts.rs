//! Calls that wait for somebody outside, and what to ask them.
//!
//! ADK has four ways to stop for a person, and all of them are a call whose answer comes later: a long-running
//! tool, and three calls of ADK's own. The id of the call is the id of the interrupt, because ADK wants it back
//! with the answer; the name of the call, which it wants as well, travels in the metadata, and so does the id
//! that the model gave the call if it had used that one before.

use serde_json::{Value, json};

use crate::{
    event::{Interrupt, ToolCallId},
    json::{Json, Object},
};

/// The call by which ADK asks whether a tool may run.
pub(in crate::format::adk) const CONFIRMATION: &str = "adk_request_confirmation";
/// The call by which ADK asks for a credential.
pub(in crate::format::adk) const CREDENTIAL: &str = "adk_request_credential";
/// The call by which a workflow asks for input.
pub(in crate::format::adk) const INPUT: &str = "adk_request_input";

/// Whether a call of that name waits for a person, whatever the event says.
pub(super) fn always_waits(name: &str) -> bool {
    matches!(name, CONFIRMATION | CREDENTIAL | INPUT)
}

/// A call that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting<'c> {
    pub(super) id: &'c ToolCallId,
    /// The model's own id, where the call is shown under another.
    pub(super) native: Option<&'c str>,
    pub(super) name: &'c str,
    pub(super) arguments: &'c Json,
    /// What a long-running tool said for the time being.
    pub(super) provisional: Option<&'c Json>,
}

/// What to ask the person that a call waits for.
pub(super) fn interrupt(waiting: &Waiting<'_>) -> Interrupt {
    let Waiting { id, native, name, arguments, provisional } = waiting;
    let arguments = arguments.to_value();
    let reason = match *name {
        CONFIRMATION => "confirmation",
        CREDENTIAL => "adk:credential",
        INPUT => "input_required",
        _ => "tool_call",
    };
    let mut interrupt = Interrupt::new(id.as_str(), reason);
    interrupt.tool_call = Some((*id).clone());
    let mut metadata = json!({"name": name, "arguments": arguments});
    if let Some(native) = native {
        metadata["id"] = (*native).into();
    }
    match *name {
        CONFIRMATION => {
            let original = member(&arguments, "originalFunctionCall", "original_function_call");
            let asked = member(&arguments, "toolConfirmation", "tool_confirmation");
            if let Some(call) = original.and_then(|call| call.get("id")).and_then(Value::as_str) {
                interrupt.tool_call = Some(call.into());
            }
            interrupt.message = text(asked.and_then(|asked| asked.get("hint")));
            if let Some(original) = original {
                metadata["originalCall"] = original.clone();
            }
            let mut properties = json!({"confirmed": {"type": "boolean"}});
            if let Some(payload) =
                asked.and_then(|asked| asked.get("payload")).filter(|payload| !payload.is_null())
            {
                metadata["payload"] = payload.clone();
                properties["payload"] = json!({"default": payload});
            }
            interrupt.response_schema = object(&json!({
                "type": "object",
                "properties": properties,
                "required": ["confirmed"],
            }));
        }
        CREDENTIAL => {
            let guarded = member(&arguments, "functionCallId", "function_call_id").and_then(Value::as_str);
            if let Some(call) = guarded {
                interrupt.tool_call = Some(call.into());
            }
            interrupt.message = text(arguments.get("message"));
        }
        INPUT => {
            interrupt.message = text(arguments.get("message"));
            interrupt.response_schema =
                member(&arguments, "responseSchema", "response_schema").and_then(object);
            if let Some(payload) = arguments.get("payload").filter(|payload| !payload.is_null()) {
                metadata["payload"] = payload.clone();
            }
        }
        _ => {}
    }
    if let Some(provisional) = provisional {
        metadata["provisional"] = provisional.to_value();
    }
    interrupt.metadata = object(&metadata);
    interrupt
}

/// The name and arguments of the call behind an interrupt.
pub(in crate::format::adk) fn interrupt_call(interrupt: &Interrupt) -> Option<(String, Json)> {
    let metadata = interrupt.metadata.as_ref()?;
    Some((metadata.get_str("name")?, metadata.member("arguments")?))
}

fn member<'v>(value: &'v Value, camel: &str, snake: &str) -> Option<&'v Value> {
    value.get(camel).or_else(|| value.get(snake))
}

fn text(value: Option<&Value>) -> Option<Box<str>> {
    value?.as_str().filter(|text| !text.is_empty()).map(Into::into)
}

fn object(value: &Value) -> Option<Object> {
    Object::from_value(value)
}
