//! Code that the model's provider executes, shown as a tool call.

use super::{
    super::{emitter::AdkEmitter, model_turn::ModelTurn},
    AdkRun, next_index,
};
use crate::{
    event::{Body, MessageId, ToolCall, ToolCallId},
    format::adk::wire::{AdkText, CodeExecutionResult, ExecutableCode},
    json::{Json, Object},
};

/// The tool name of executed code.
const CODE_EXECUTION: &str = "code_execution";

impl AdkRun {
    /// Emits executed code as a tool call.
    pub(super) fn read_code(
        &mut self,
        turn: &mut ModelTurn,
        code: &ExecutableCode<'_>,
        event_id: &str,
        emitter: &mut AdkEmitter<'_>,
    ) {
        self.close_block(turn, emitter);
        let index = next_index(&mut turn.counts.codes);
        let id: ToolCallId = match code.id.as_ref().map_or("", AdkText::as_str) {
            "" => turn.part_id("code", index),
            native => self.announced_id(native, turn, event_id),
        };
        let text = |text: &Option<AdkText<'_>>| Json::string(text.as_ref().map_or("", AdkText::as_str));
        let arguments =
            Object::from_entries([("code", text(&code.code)), ("language", text(&code.language))]);
        emitter.push(Body::ToolStart {
            call: id.clone(),
            name: CODE_EXECUTION.into(),
            parent: Some(turn.id.clone()),
        });
        emitter.push(Body::ToolArgs { call: id.clone(), delta: arguments.get().into() });
        emitter.push(Body::ToolEnd { call: id.clone() });
        self.transcript.add_call(&turn.id, ToolCall::new(id.clone(), CODE_EXECUTION, arguments.get()));
        turn.note_own_message();
        self.record_call(&id, CODE_EXECUTION, None, false, [turn.id.clone(), event_id.into()]);
        turn.emitted.code_calls.push(id.clone());
        turn.pending_code = Some(id);
    }

    /// Emits the result of executed code as a tool result.
    pub(super) fn read_code_result(
        &mut self,
        turn: &mut ModelTurn,
        result: &CodeExecutionResult<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) {
        self.close_block(turn, emitter);
        let index = next_index(&mut turn.counts.code_results);
        let message: MessageId = turn.part_id("result", index);
        let call = match result.id.as_ref().map_or("", AdkText::as_str) {
            "" => turn.pending_code.take().unwrap_or_else(|| turn.part_id("code", index)),
            native => self.shown_id(native),
        };
        let outcome = result.outcome.as_ref().map_or("", AdkText::as_str);
        let output = result.output.as_ref().map_or("", AdkText::as_str);
        let content =
            Object::from_entries([("outcome", Json::string(outcome)), ("output", Json::string(output))]);
        let has_failed = !matches!(outcome, "" | "OUTCOME_OK" | "OUTCOME_UNSPECIFIED");
        let error = has_failed.then(|| if output.is_empty() { outcome } else { output }.into());
        let had_result =
            self.calls.get_mut(&call).is_some_and(|record| std::mem::replace(&mut record.has_result, true));
        turn.emitted.messages.push(message.clone());
        self.emit_result(message, call, content.get().into(), error, had_result, emitter);
    }
}
