//! Answers of tools, which may be for the time being, say that something went wrong, or come twice.

use super::{
    super::{emitter::AdkEmitter, model_turn::part_id, transcript::ResultPlacement},
    AdkRun, PartContext,
};
use crate::{
    event::{Body, Content, MessageId, ToolCallId, ToolResult},
    format::adk::wire::{AdkText, FunctionResponse, RawEntries},
    json::{Json, Object, Path, ReadError, json},
};

impl AdkRun {
    /// What a tool, or a person in its place, answered. `index` counts the answers of the event.
    pub(in super::super) fn answer(
        &mut self,
        response: &FunctionResponse<'_>,
        index: u32,
        by_user: bool,
        at: PartContext<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        let path = Path::Key(&at.path, "functionResponse");
        let name = response.name.as_ref().map_or("", AdkText::as_str);
        let content = match response.response {
            Some(raw) => json(raw, Path::Key(&path, "response"), &mut self.tally)?,
            None => Object::empty().into(),
        };
        let native = response.id.as_ref().map_or("", AdkText::as_str);
        let call: ToolCallId = match native {
            "" => {
                let open = self.calls.iter().find(|(_, call)| !call.answered && *call.name == *name);
                open.map_or_else(|| part_id(at.event, "answer", index), |(id, _)| id.clone())
            }
            native => self.shown(native),
        };
        let asked = at.actions.is_some_and(|actions| {
            let asks = |entries: &Option<RawEntries<'_>>| {
                entries
                    .iter()
                    .flat_map(|entries| &entries.0)
                    .any(|(id, _)| *id.0 == *native || *id.0 == *call)
            };
            asks(&actions.confirmations) || asks(&actions.auth)
        });
        let record = self.calls.get_mut(&call);
        let waits = record.as_ref().is_some_and(|record| record.waiting.is_some() && !record.answered);
        let message: MessageId = part_id(at.event, "result", index);
        if !by_user && (asked || waits || response.will_continue == Some(true)) {
            if record.is_some() {
                let held = self.hold(content.clone());
                if let Some(record) = self.calls.get_mut(&call) {
                    record.provisional = Some(held);
                }
            }
            self.provisional(message, call, name, content, emit);
            return Ok(());
        }
        let again = record.is_some_and(|record| std::mem::replace(&mut record.answered, true));
        let error = error_of(&content);
        self.result(message, call, content.get().into(), error, again, emit);
        Ok(())
    }

    /// An answer for the time being: not the result, which comes in a later run.
    fn provisional(
        &mut self,
        message: MessageId,
        call: ToolCallId,
        name: &str,
        content: Json,
        emit: &mut AdkEmitter<'_>,
    ) {
        if self.settings.provisional_results {
            let flag = serde_json::json!({"adk": {"provisional": true}});
            let result = ToolResult {
                message,
                call,
                content: content.get().into(),
                error: error_of(&content),
                explicit_role: true,
            };
            let metadata = Object::from_value(&flag).expect("an object is an object");
            emit.push_with(Body::ToolResult(Box::new(result)), metadata);
            return;
        }
        emit.custom(
            "adk.provisional_result",
            [("toolCallId", Json::string(&call)), ("name", Json::string(name)), ("response", content)],
        );
    }

    pub(super) fn result(
        &mut self,
        message: MessageId,
        call: ToolCallId,
        content: Content,
        error: Option<Box<str>>,
        again: bool,
        emit: &mut AdkEmitter<'_>,
    ) {
        match self.transcript.result(&message, &call, &content, error.as_deref(), again) {
            ResultPlacement::New => emit.push(Body::ToolResult(Box::new(ToolResult {
                message,
                call,
                content,
                error,
                explicit_role: true,
            }))),
            ResultPlacement::Same => self.tally.note("repeated result", &call),
            ResultPlacement::Instead => {
                self.tally.note("result replaced", &call);
                self.restate(false, emit);
                emit.custom("adk.corrected", [("toolCallId", Json::string(&call))]);
            }
        }
    }
}

/// What went wrong, if a tool's answer says that something did: ADK's `{"error": …}`, the `status` that its
/// documentation recommends, and what MCP tools return.
fn error_of(response: &Json) -> Option<Box<str>> {
    let object = response.clone().into_object()?;
    let members = object.entries();
    let find = |name: &str| {
        let found = members.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    };
    let plain = |value: &Json| value.as_str().unwrap_or_else(|| value.get().to_owned());
    let failed = find("isError").is_some_and(|flag| flag.get() == "true")
        || find("status").and_then(Json::as_str).as_deref() == Some("error");
    match find("error") {
        Some(error) if !matches!(error.get(), "false" | "\"\"") => Some(plain(error).into()),
        _ if failed => {
            let message = find("error_message").or_else(|| find("message")).or_else(|| find("content"));
            Some(message.map_or_else(|| "the tool failed".into(), |message| plain(message).into()))
        }
        _ => None,
    }
}
