//! Converters between the messages and states of the protocols, as functions on JSON text.

use agentwire_core::{
    Tally, codes,
    event::RunInput,
    fold::Fold,
    format::{
        adk::input::{AdkApi, KnownSession, PendingCall},
        ag_ui,
        langgraph::{
            EventName,
            input::{RequestSettings, langchain_messages, run_request_body},
            thread_state,
        },
    },
    framing::Framing,
    json::Json,
    patch::{self, Limits, PatchOp},
    source::{GuardedSource, SourceOptions},
};
use pyo3::prelude::*;
use serde_json::{Map, Value, json};

use crate::{
    errors,
    walk::{self, Models},
};

/// Any value as one line of JSON, as `agentwire.record` writes it.
#[pyfunction]
pub(crate) fn to_line(py: Python<'_>, event: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::guarded(py, || written(event, Models::Dumped))
}

/// A value as JSON, without the members of models that are `None`.
#[pyfunction]
pub(crate) fn to_json(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::guarded(py, || written(value, Models::Lean))
}

fn written(value: &Bound<'_, PyAny>, models: Models) -> PyResult<String> {
    let mut out = Vec::with_capacity(1024);
    walk::write(&mut out, value, models)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn run_input(py: Python<'_>, text: &str) -> PyResult<RunInput> {
    ag_ui::input::from_json(text, &mut Tally::default())
        .map_err(|error| errors::config(py, "input", &format!("the input is not valid: {error}"), None))
}

/// The input in its normal form.
#[pyfunction]
pub(crate) fn normal_input(py: Python<'_>, input: &str) -> PyResult<String> {
    errors::guarded(py, || Ok(ag_ui::input::to_json(&run_input(py, input)?)))
}

/// The messages of an input as LangChain's, as dicts with roles.
#[pyfunction]
pub(crate) fn langchain(py: Python<'_>, input: &str) -> PyResult<String> {
    errors::guarded(py, || Ok(Value::from(langchain_messages(&run_input(py, input)?.messages)).to_string()))
}

/// The `input` or `command` of a run of a graph.
#[pyfunction]
#[pyo3(signature = (input, state=None))]
pub(crate) fn graph_input(py: Python<'_>, input: &str, state: Option<&str>) -> PyResult<String> {
    errors::guarded(py, || {
        let input = run_input(py, input)?;
        let known = state.map(|state| thread_state::read_state(state, &mut Tally::default())).transpose();
        let known = known.map_err(|error| {
            errors::config(py, "state", &format!("the state is not valid: {error}"), None)
        })?;
        let settings = RequestSettings { thread_state: known.as_ref(), ..RequestSettings::new("graph") };
        let mut body = run_request_body(&input, &settings);
        let kept: Map<String, Value> = ["input", "command", "config", "context"]
            .into_iter()
            .filter_map(|key| body.as_object_mut()?.remove(key).map(|value| (key.to_owned(), value)))
            .collect();
        Ok(Value::Object(kept).to_string())
    })
}

/// The new message of an ADK session, or `null`. The calls of the input's own messages are those that wait.
#[pyfunction]
pub(crate) fn adk_content(py: Python<'_>, input: &str) -> PyResult<String> {
    errors::guarded(py, || {
        let input = run_input(py, input)?;
        let calls = input.messages.iter().flat_map(|message| message.tool_calls());
        let pending: Vec<PendingCall> = calls
            .map(|call| PendingCall {
                id: call.id.clone(),
                native_id: None,
                name: call.name.clone(),
                arguments: Json::parse(&call.arguments).unwrap_or_else(|_| json!({}).into()),
            })
            .collect();
        let known = KnownSession { pending: &pending, ..KnownSession::default() };
        let request = AdkApi::new("app", "user")
            .run(&input, known)
            .map_err(|error| errors::coded(py, error.code(), &error.to_string()))?;
        let body = request.body.map_or(Value::Null, |body| body.to_value());
        Ok(body["newMessage"].to_string())
    })
}

/// The messages and the state that a client holds after `events` (JSON lines), and the ids of the calls that wait.
#[pyfunction]
pub(crate) fn fold(
    py: Python<'_>,
    events: &str,
    messages: &str,
    state: Option<&str>,
) -> PyResult<(String, String)> {
    errors::guarded(py, || {
        let bad = |what: &str, error: &dyn std::fmt::Display| {
            errors::config(py, what, &format!("the {what} are not valid: {error}"), None)
        };
        let messages = ag_ui::messages_from_json(messages, &mut Tally::default())
            .map_err(|error| bad("messages", &error))?;
        let state = state.map(serde_json::from_str::<Value>).transpose().map_err(|error| {
            errors::config(py, "state", &format!("the state is not valid: {error}"), None)
        })?;
        let mut fold = Fold::from_history(messages, state);
        let options = SourceOptions { lenient: true, ..SourceOptions::default() };
        let source = GuardedSource::new(&ag_ui::FORMAT, Framing::Lines, &options);
        let mut source = source.expect("AG-UI has a reader");
        source
            .push(events.as_bytes(), &mut |event| fold.apply(&event))
            .map_err(|error| bad("events", &error))?;
        let (messages, state) = fold.into_parts();
        Ok((ag_ui::messages_to_json(&messages), state.to_string()))
    })
}

/// Applies a JSON Patch, all or nothing.
#[pyfunction]
pub(crate) fn apply_patch(py: Python<'_>, document: &str, patch: &str) -> PyResult<String> {
    errors::guarded(py, || {
        let failed =
            |error: &dyn std::fmt::Display| errors::coded(py, codes::PATCH_FAILED, &error.to_string());
        let mut document: Value = serde_json::from_str(document).map_err(|error| failed(&error))?;
        let patch = ag_ui::patch_from_json(patch).map_err(|error| failed(&error))?;
        patch::apply(&mut document, &patch, &Limits::default()).map_err(|error| failed(&error))?;
        Ok(document.to_string())
    })
}

/// A JSON Patch from one document to another.
#[pyfunction]
pub(crate) fn diff(py: Python<'_>, old: &str, new: &str) -> PyResult<String> {
    errors::guarded(py, || {
        let parsed = |key: &str, text: &str| {
            let read = serde_json::from_str::<Value>(text);
            read.map_err(|error| errors::config(py, key, &error.to_string(), None))
        };
        let patch = patch::diff(&parsed("old", old)?, &parsed("new", new)?);
        Ok(Value::from(patch.0.iter().map(operation).collect::<Vec<_>>()).to_string())
    })
}

fn operation(operation: &PatchOp) -> Value {
    let mut members = json!({ "op": operation.op.as_str(), "path": operation.path });
    if let Some(from) = &operation.from {
        members["from"] = (**from).into();
    }
    if let Some(value) = &operation.value {
        members["value"] = value.to_value();
    }
    members
}

/// The names of LangGraph's events that the reader knows.
#[pyfunction]
pub(crate) fn langgraph_events() -> Vec<&'static str> {
    EventName::ALL.iter().map(|name| name.as_str()).collect()
}
