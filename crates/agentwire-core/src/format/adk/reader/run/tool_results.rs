//! Tool results, which may be provisional, report an error, or arrive twice.

use super::{
    super::{emitter::AdkEmitter, interrupts, transcript::ResultPlacement},
    AdkRun, PartContext,
};
use crate::{
    event::{Body, Content, MessageId, ToolCallId, ToolResult},
    format::{
        adk::wire::{AdkText, FunctionResponse, RawEntries},
        derived_ids::part_id,
    },
    json::{Json, Object, Path, ReadResult, json},
};

impl AdkRun {
    /// The result of a tool call, from the tool or from a person (`by_user`). `index` counts the results of the event.
    pub(in super::super) fn read_function_response(
        &mut self,
        response: &FunctionResponse<'_>,
        index: u32,
        by_user: bool,
        context: PartContext<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let path = Path::Key(&context.path, "functionResponse");
        let name = response.name.as_ref().map_or("", AdkText::as_str);
        let content = match response.response {
            Some(raw) => json(raw, Path::Key(&path, "response"), &mut self.tally)?,
            None => Object::empty().into(),
        };
        let native = response.id.as_ref().map_or("", AdkText::as_str);
        let call: ToolCallId = match native {
            "" => {
                let open = self.calls.iter().find(|(_, call)| !call.has_result && *call.name == *name);
                open.map_or_else(|| part_id(context.message, "answer", index), |(id, _)| id.clone())
            }
            native => self.shown_id(native),
        };
        let is_guarded = context.actions.is_some_and(|actions| {
            let contains_call = |entries: &Option<RawEntries<'_>>| {
                entries
                    .iter()
                    .flat_map(|entries| &entries.0)
                    .any(|(id, _)| *id.0 == *native || *id.0 == *call)
            };
            contains_call(&actions.confirmations) || contains_call(&actions.auth)
        });
        if interrupts::is_request(self.calls.get(&call).map_or(name, |record| &*record.name)) {
            self.read_request_response(&call, by_user, content);
            return Ok(());
        }
        let record = self.calls.get_mut(&call);
        let is_pending =
            record.as_ref().is_some_and(|record| record.pending_arguments.is_some() && !record.has_result);
        let message: MessageId = part_id(context.message, "result", index);
        if !by_user && (is_guarded || is_pending || response.will_continue == Some(true)) {
            if record.is_some() {
                let retained = self.retain_value(content.clone());
                if let Some(record) = self.calls.get_mut(&call) {
                    record.provisional = Some(retained);
                }
            }
            self.emit_provisional_result(message, call, name, content, emitter);
            return Ok(());
        }
        let had_result = record.is_some_and(|record| std::mem::replace(&mut record.has_result, true));
        let error = error_in(&content);
        self.emit_result(message, call, content.get().into(), error, had_result, emitter);
        Ok(())
    }

    /// The response to one of ADK's own requests, whose call was not emitted: an answer settles it.
    fn read_request_response(&mut self, call: &ToolCallId, by_user: bool, content: Json) {
        let provisional = (!by_user).then(|| self.retain_value(content));
        if let Some(record) = self.calls.get_mut(call) {
            record.has_result |= by_user;
            record.provisional = provisional.or_else(|| record.provisional.take());
        }
    }

    /// Emits a provisional result; the final one arrives in a later run.
    fn emit_provisional_result(
        &mut self,
        message: MessageId,
        call: ToolCallId,
        name: &str,
        content: Json,
        emitter: &mut AdkEmitter<'_>,
    ) {
        if self.options.provisional_results {
            let flag = serde_json::json!({"adk": {"provisional": true}});
            let result = ToolResult {
                message,
                call,
                content: content.get().into(),
                error: error_in(&content),
                explicit_role: true,
            };
            let metadata = Object::from_value(&flag).expect("the value is an object");
            emitter.push_with(Body::ToolResult(Box::new(result)), metadata);
            return;
        }
        emitter.custom(
            "adk.provisional_result",
            [("toolCallId", Json::string(&call)), ("name", Json::string(name)), ("response", content)],
        );
    }

    pub(super) fn emit_result(
        &mut self,
        message: MessageId,
        call: ToolCallId,
        content: Content,
        error: Option<Box<str>>,
        had_result: bool,
        emitter: &mut AdkEmitter<'_>,
    ) {
        match self.transcript.add_result(&message, &call, &content, error.as_deref(), had_result) {
            ResultPlacement::New => emitter.push(Body::ToolResult(Box::new(ToolResult {
                message,
                call,
                content,
                error,
                explicit_role: true,
            }))),
            ResultPlacement::Duplicate => self.tally.note("repeated result", &call),
            ResultPlacement::Replaced => {
                self.tally.note("result replaced", &call);
                self.emit_snapshot(false, emitter);
                emitter.custom("adk.corrected", [("toolCallId", Json::string(&call))]);
            }
        }
    }
}

/// The error in a tool result, if it reports one: ADK's `{"error": …}`, the `status` that ADK's documentation
/// recommends, and the `isError` of MCP tools.
fn error_in(response: &Json) -> Option<Box<str>> {
    let object = response.clone().into_object()?;
    let members = object.entries();
    let find = |name: &str| {
        let found = members.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    };
    let plain = |value: &Json| value.as_str().unwrap_or_else(|| value.get().to_owned());
    let has_failed = find("isError").is_some_and(|flag| flag.get() == "true")
        || find("status").and_then(Json::as_str).as_deref() == Some("error");
    match find("error") {
        Some(error) if !matches!(error.get(), "false" | "\"\"") => Some(plain(error).into()),
        _ if has_failed => {
            let message = find("error_message").or_else(|| find("message")).or_else(|| find("content"));
            Some(message.map_or_else(|| "the tool failed".into(), |message| plain(message).into()))
        }
        _ => None,
    }
}
