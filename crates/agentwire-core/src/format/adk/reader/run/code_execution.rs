//! Code that a model runs on its own side, which appears as a tool.

use super::{
    super::{emitter::AdkEmitter, model_turn::ModelTurn},
    AdkRun, next_index,
};
use crate::{
    event::{Body, MessageId, ToolCall, ToolCallId},
    format::adk::wire::{AdkText, CodeExecutionResult, ExecutableCode},
    json::{Json, Object},
};

/// The name under which code that the model runs on its own side appears as a tool.
const CODE_EXECUTION: &str = "code_execution";

impl AdkRun {
    /// Code that runs on the model's side is a call like any other.
    pub(super) fn code(
        &mut self,
        turn: &mut ModelTurn,
        code: &ExecutableCode<'_>,
        source: &str,
        emit: &mut AdkEmitter<'_>,
    ) {
        self.close_block(turn, emit);
        let index = next_index(&mut turn.codes);
        let id: ToolCallId = match code.id.as_ref().map_or("", AdkText::as_str) {
            "" => turn.part_id("code", index),
            native => self.announced(native, turn, source),
        };
        let text = |text: &Option<AdkText<'_>>| Json::string(text.as_ref().map_or("", AdkText::as_str));
        let arguments =
            Object::from_entries([("code", text(&code.code)), ("language", text(&code.language))]);
        emit.push(Body::ToolStart {
            call: id.clone(),
            name: CODE_EXECUTION.into(),
            parent: Some(turn.id.clone()),
        });
        emit.push(Body::ToolArgs { call: id.clone(), delta: arguments.get().into() });
        emit.push(Body::ToolEnd { call: id.clone() });
        self.transcript.call(&turn.id, ToolCall::new(id.clone(), CODE_EXECUTION, arguments.get()));
        turn.own();
        self.record(&id, CODE_EXECUTION, None, false, [turn.id.clone(), source.into()]);
        turn.codes_made.push(id.clone());
        turn.code = Some(id);
    }

    pub(super) fn code_result(
        &mut self,
        turn: &mut ModelTurn,
        result: &CodeExecutionResult<'_>,
        emit: &mut AdkEmitter<'_>,
    ) {
        self.close_block(turn, emit);
        let index = next_index(&mut turn.code_results);
        let message: MessageId = turn.part_id("result", index);
        let call = match result.id.as_ref().map_or("", AdkText::as_str) {
            "" => turn.code.take().unwrap_or_else(|| turn.part_id("code", index)),
            native => self.shown(native),
        };
        let outcome = result.outcome.as_ref().map_or("", AdkText::as_str);
        let output = result.output.as_ref().map_or("", AdkText::as_str);
        let content =
            Object::from_entries([("outcome", Json::string(outcome)), ("output", Json::string(output))]);
        let failed = !matches!(outcome, "" | "OUTCOME_OK" | "OUTCOME_UNSPECIFIED");
        let error = failed.then(|| if output.is_empty() { outcome } else { output }.into());
        let again =
            self.calls.get_mut(&call).is_some_and(|record| std::mem::replace(&mut record.answered, true));
        turn.messages.push(message.clone());
        self.result(message, call, content.get().into(), error, again, emit);
    }
}
