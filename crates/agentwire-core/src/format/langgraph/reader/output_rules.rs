//! Rules for the output of a model, from the metadata of its run: `emit-messages`, `emit-tool-calls` and `predict_state`,
//! as `ag-ui-langgraph` reads them and as CopilotKit's Python SDK writes them.
//!
//! A rule concerns the stream alone. A message that the graph stores is in its conversation, and so in the messages
//! snapshot at the end of the run, as with `ag-ui-langgraph`. Reasoning is never hidden.

use serde_json::value::RawValue;

use super::super::{
    raw_json,
    wire::{EventMetadata, StatePrediction},
};
use crate::{json::Json, tally::Tally};

/// The rules for the output of one model run or node.
#[derive(Clone, Debug, Default)]
pub(super) struct OutputRules {
    pub(super) hides_text: bool,
    /// The only tools whose calls are shown; `None` for all.
    shown_tools: Option<Vec<Box<str>>>,
    /// The tools whose arguments predict the state, and the value of CUSTOM `PredictState`.
    predicted: Option<(Vec<Box<str>>, Json)>,
}

impl OutputRules {
    /// The rules in the metadata of a run, if it has any.
    pub(super) fn of(meta: &EventMetadata<'_>, tally: &mut Tally) -> Option<Box<Self>> {
        let rules = [
            meta.emit_messages,
            meta.copilotkit_messages,
            meta.emit_tool_calls,
            meta.copilotkit_tool_calls,
            meta.predict_state,
            meta.copilotkit_state,
        ];
        if rules.iter().all(Option::is_none) {
            return None;
        }
        let hides = |raw: Option<&RawValue>| raw.is_some_and(is_falsy);
        let shown_tools = if hides(meta.emit_tool_calls) {
            Some(Vec::new())
        } else {
            // CopilotKit also accepts the names of the tools to show.
            meta.copilotkit_tool_calls.and_then(|raw| match raw.get().as_bytes() {
                _ if is_falsy(raw) => Some(Vec::new()),
                [b'"', ..] => Some(raw_json::string(raw, tally).map(Into::into).into_iter().collect()),
                [b'[', ..] => Some(names(raw_json::strings(Some(raw), tally))),
                _ => None,
            })
        };
        let predicted = meta.copilotkit_state.or(meta.predict_state).and_then(|raw| {
            let entries = raw_json::elements(raw)?;
            let tools = entries.iter().filter_map(|entry| StatePrediction::of(entry)?.tool);
            let tools: Vec<Box<str>> =
                tools.filter_map(|tool| raw_json::string(tool, tally)).map(Into::into).collect();
            Some((tools, raw_json::json(raw, tally)))
        });
        let hides_text = hides(meta.emit_messages) || hides(meta.copilotkit_messages);
        Some(Box::new(Self { hides_text, shown_tools, predicted }))
    }

    pub(super) fn hides_some(&self) -> bool {
        self.hides_text || self.shown_tools.is_some()
    }

    pub(super) fn hides_call(&self, tool: &str) -> bool {
        self.shown_tools.as_ref().is_some_and(|shown| !shown.iter().any(|name| **name == *tool))
    }

    /// The value of `PredictState`, if the arguments of `tool` predict the state.
    pub(super) fn prediction(&self, tool: &str) -> Option<&Json> {
        let (tools, value) = self.predicted.as_ref()?;
        tools.iter().any(|name| **name == *tool).then_some(value)
    }
}

fn names<T: AsRef<str>>(list: Vec<T>) -> Vec<Box<str>> {
    list.iter().map(|name| name.as_ref().into()).collect()
}

/// True if Python reads a value as false.
fn is_falsy(raw: &RawValue) -> bool {
    matches!(raw.get(), "false" | "0" | "\"\"" | "[]" | "{}")
}
