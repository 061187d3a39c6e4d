//! A run as LangGraph Server shows it: its record, and the options of the request that started it.

use agentwire_core::{Tally, event::RunInput, format::ag_ui, json::Json};
use agentwire_store::{Run, Text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{shapes, start};
use crate::{run::input::stored_echo, timestamp::iso};

/// Bytes of an `input` that is stored as it was sent. A longer one is shown as it was read.
const MAX_INPUT: usize = 64 << 10;

/// The options of a request that its stored input does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Echo {
    multitask_strategy: Option<String>,
    input: Option<Value>,
    subgraphs: bool,
    resumable: bool,
    durability: Option<String>,
    pub(super) checkpoint: Option<String>,
}

impl Echo {
    pub(super) fn of_body(body: &Map<String, Value>, checkpoint: Option<&str>) -> Self {
        let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
        let flag = |key: &str| body.get(key).and_then(Value::as_bool).unwrap_or_default();
        let input = body.get("input").filter(|input| input.to_string().len() <= MAX_INPUT);
        Self {
            multitask_strategy: text("multitask_strategy"),
            input: input.cloned(),
            subgraphs: flag("stream_subgraphs"),
            resumable: flag("stream_resumable"),
            durability: text("durability"),
            checkpoint: checkpoint.map(str::to_owned),
        }
    }

    /// The form in which it is stored with the run.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts, flags and JSON")
    }

    /// That of a stored input; empty for a run of another protocol.
    pub(super) fn of_run(stored: &RunInput) -> Self {
        stored_echo(stored).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
}

/// A run. `stored` is the request that started it, if it is retained.
pub(super) fn run_json(run: &Run, stored: Option<&Text>) -> Value {
    let input = stored.and_then(|text| ag_ui::input::from_json(text, &mut Tally::default()).ok());
    let input = input.unwrap_or_else(|| RunInput::new(run.thread.clone(), run.run.clone()));
    let echo = Echo::of_run(&input);
    let agent = &*run.agent;
    let forwarded = input.forwarded.as_ref().map(Json::to_value).unwrap_or_default();
    let object = |key: &str| forwarded[key].as_object().cloned().unwrap_or_default();
    let mut metadata = object("metadata");
    metadata.extend([("graph_id".into(), agent.into()), ("assistant_id".into(), agent.into())]);
    json!({
        "run_id": run.run.as_str(),
        "thread_id": run.thread.as_str(),
        "assistant_id": agent,
        "created_at": iso(run.created.0),
        "updated_at": iso(run.updated.0),
        "status": shapes::run_status(run.status),
        "metadata": metadata,
        "kwargs": kwargs(run, &input, &echo, &forwarded, &metadata),
        "multitask_strategy": echo.multitask_strategy.as_deref().unwrap_or("enqueue"),
    })
}

/// The arguments of a run.
fn kwargs(
    run: &Run,
    input: &RunInput,
    echo: &Echo,
    forwarded: &Value,
    metadata: &Map<String, Value>,
) -> Value {
    let mut config = forwarded["config"].as_object().cloned().unwrap_or_default();
    let mut configurable = match config.remove("configurable") {
        Some(Value::Object(configurable)) => configurable,
        _ => Map::new(),
    };
    for (key, value) in [
        ("run_id", run.run.as_str()),
        ("thread_id", run.thread.as_str()),
        ("graph_id", &run.agent),
        ("assistant_id", &run.agent),
    ] {
        configurable.insert(key.into(), value.into());
    }
    configurable.extend(echo.checkpoint.as_deref().map(|id| ("checkpoint_id".to_owned(), id.into())));
    config.insert("configurable".into(), configurable.into());
    config.insert("metadata".into(), metadata.clone().into());
    let is_answer = !forwarded["command"].is_null();
    let values = match &echo.input {
        Some(sent) => sent.clone(),
        None if is_answer || input.messages.is_empty() && input.state.is_none() => Value::Null,
        None => {
            let state = input.state.as_ref().map(Json::to_value).unwrap_or_default();
            shapes::values(&input.messages, &state).into()
        }
    };
    let format = ag_ui::input::stored_output_format(input);
    let modes = format.as_deref().and_then(start::stored_modes).unwrap_or_default();
    let modes: Vec<&str> = modes.split(',').filter(|mode| !mode.is_empty()).collect();
    json!({
        "input": values,
        "command": forwarded["command"],
        "config": config,
        "context": forwarded["context"].as_object().cloned().unwrap_or_default(),
        "stream_mode": modes,
        "interrupt_before": null,
        "interrupt_after": null,
        "webhook": null,
        "feedback_keys": null,
        "temporary": false,
        "subgraphs": echo.subgraphs,
        "resumable": echo.resumable,
        "durability": echo.durability.as_deref().unwrap_or("async"),
    })
}
