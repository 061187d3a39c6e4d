//! Interrupts from pending calls.
//!
//! ADK pauses for a person in four ways, all of them a call whose result arrives later: a long-running tool, and three
//! built-in calls. The id of the call is the id of the interrupt, because ADK expects it with the answer. The metadata
//! carries the name of the call, which ADK expects as well, and the id from the model if the call is shown under
//! another one.
//!
//! The built-in calls are no tools: nothing executes them. They appear as interrupts only, because a client would wait
//! for the result of a call.

use serde_json::{Value, json};

use crate::{
    event::{Interrupt, ToolCallId},
    json::{Json, Object},
};

/// ADK's request for confirmation of a tool call.
pub(in crate::format::adk) const CONFIRMATION: &str = "adk_request_confirmation";
/// ADK's request for a credential.
pub(in crate::format::adk) const CREDENTIAL: &str = "adk_request_credential";
/// A workflow's request for input.
pub(in crate::format::adk) const INPUT: &str = "adk_request_input";

/// The prefix of the function call id in a credential request that concerns a toolset instead of a call.
const TOOLSET_AUTH_PREFIX: &str = "_adk_toolset_auth_";

/// True if calls of this name are ADK's own requests to a person: pending even if the event does not list them as
/// long-running, and never emitted as tool calls.
pub(in crate::format::adk) fn is_request(name: &str) -> bool {
    matches!(name, CONFIRMATION | CREDENTIAL | INPUT)
}

/// A pending call, as an interrupt needs it.
#[derive(Clone, Debug)]
pub(super) struct InterruptingCall<'c> {
    pub(super) id: &'c ToolCallId,
    /// The id from the model, if the call is shown under another one.
    pub(super) native_id: Option<&'c str>,
    pub(super) name: &'c str,
    pub(super) arguments: &'c Json,
    /// The provisional result of a long-running tool.
    pub(super) provisional: Option<&'c Json>,
}

/// The interrupt for a pending call.
pub(super) fn interrupt(call: &InterruptingCall<'_>) -> Interrupt {
    let InterruptingCall { id, native_id, name, arguments, provisional } = call;
    let arguments = arguments.to_value();
    let reason = match *name {
        CONFIRMATION => "confirmation",
        CREDENTIAL => "adk:credential",
        INPUT => "input_required",
        _ => "tool_call",
    };
    let mut interrupt = Interrupt::new(id.as_str(), reason);
    interrupt.tool_call = (!is_request(name)).then(|| (*id).clone());
    let mut metadata = json!({"name": name, "arguments": arguments});
    if let Some(native_id) = native_id {
        metadata["id"] = (*native_id).into();
    }
    match *name {
        CONFIRMATION => {
            let original = member(&arguments, "originalFunctionCall", "original_function_call");
            let request = member(&arguments, "toolConfirmation", "tool_confirmation");
            if let Some(call) = original.and_then(|call| call.get("id")).and_then(Value::as_str) {
                interrupt.tool_call = Some(call.into());
            }
            interrupt.message = text(request.and_then(|request| request.get("hint")));
            if let Some(original) = original {
                metadata["originalCall"] = original.clone();
            }
            let mut properties = json!({"confirmed": {"type": "boolean"}});
            if let Some(payload) =
                request.and_then(|request| request.get("payload")).filter(|payload| !payload.is_null())
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
            let guarded_call =
                member(&arguments, "functionCallId", "function_call_id").and_then(Value::as_str);
            // A toolset asks before any of its tools is called.
            if let Some(call) = guarded_call.filter(|call| !call.starts_with(TOOLSET_AUTH_PREFIX)) {
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

/// The name and arguments of an interrupt's call.
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
