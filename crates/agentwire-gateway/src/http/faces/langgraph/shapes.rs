//! Threads, runs and states as LangGraph Server shows them.

use agentwire_core::{event::Message, format::langgraph};
use agentwire_store::{Run, RunStatus, Thread};
use serde_json::{Map, Value, json};

use crate::timestamp::iso;

/// The name of the one node that stands for an agent.
pub(super) const NODE: &str = "agent";

/// The values of a graph: the members of the state, and the messages.
pub(super) fn values(messages: &[Message], state: &Value) -> Map<String, Value> {
    let mut values = state.as_object().cloned().unwrap_or_default();
    values.insert("messages".into(), langgraph::server_messages(messages).into());
    values
}

/// The status of a run.
pub(super) fn run_status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Queued => "pending",
        RunStatus::Running | RunStatus::Paused => "running",
        RunStatus::Finished => "success",
        RunStatus::Failed => "error",
        RunStatus::Waiting | RunStatus::Stopped => "interrupted",
    }
}

/// The status of a thread after its last run.
pub(super) fn thread_status(last: Option<&Run>) -> &'static str {
    match last.map(|run| run.status) {
        None | Some(RunStatus::Finished | RunStatus::Stopped) => "idle",
        Some(RunStatus::Queued | RunStatus::Running | RunStatus::Paused) => "busy",
        Some(RunStatus::Waiting) => "interrupted",
        Some(RunStatus::Failed) => "error",
    }
}

/// A run.
pub(super) fn run_json(run: &Run) -> Value {
    let agent = &*run.agent;
    json!({
        "run_id": run.run.as_str(),
        "thread_id": run.thread.as_str(),
        "assistant_id": agent,
        "created_at": iso(run.created.0),
        "updated_at": iso(run.updated.0),
        "status": run_status(run.status),
        "metadata": {"graph_id": agent, "assistant_id": agent},
        "kwargs": {},
        "multitask_strategy": "enqueue",
    })
}

/// The metadata of a thread: those that clients have stored, and the agent that it belongs to.
pub(super) fn thread_metadata(thread: &Thread, agent: Option<&str>) -> Map<String, Value> {
    let stored = thread.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let mut metadata: Map<String, Value> = stored.unwrap_or_default();
    if let Some(agent) = agent {
        metadata.insert("graph_id".into(), agent.into());
        metadata.insert("assistant_id".into(), agent.into());
    }
    metadata
}

/// True if `found` has all members of `wanted`, with equal values.
pub(super) fn contains(found: &Map<String, Value>, wanted: &Map<String, Value>) -> bool {
    wanted.iter().all(|(key, value)| match (found.get(key), value) {
        (Some(Value::Object(found)), Value::Object(wanted)) => contains(found, wanted),
        (found, value) => found == Some(value),
    })
}

/// The task of the one node.
pub(super) fn task(id: &str, error: Option<String>, interrupts: &[Value]) -> Value {
    json!({"id": id, "name": NODE, "path": ["__pregel_pull", NODE], "error": error, "interrupts": interrupts,
        "checkpoint": null, "state": null, "result": null})
}
