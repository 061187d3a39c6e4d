//! Threads, runs and states as LangGraph Server shows them.

use agentwire_core::{event::Message, format::langgraph};
use agentwire_store::{Run, RunStatus, Thread};
use serde_json::{Map, Value, json};

use super::records;

/// The name of the one node that stands for an agent.
pub(super) const NODE: &str = "agent";

/// The values of a graph: the members of the state, and the messages.
pub(super) fn values(messages: &[Message], state: &Value) -> Map<String, Value> {
    langgraph::server_values(messages, state)
}

/// The status of a run.
pub(super) fn run_status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Queued => "pending",
        RunStatus::Running | RunStatus::Paused => "running",
        // A run that ends with a question has done what it could; the thread is interrupted.
        RunStatus::Finished | RunStatus::Waiting => "success",
        RunStatus::Failed => "error",
        RunStatus::Stopped => "interrupted",
    }
}

/// The status of a thread after its last run. A graph that ends with a call of the front end's waits for nothing:
/// `has_questions` is true if a person has to answer.
pub(super) fn thread_status(last: Option<&Run>, has_questions: bool) -> &'static str {
    match last.map(|run| run.status) {
        Some(RunStatus::Waiting) if has_questions => "interrupted",
        Some(RunStatus::Stopped) => "interrupted",
        None | Some(RunStatus::Finished | RunStatus::Waiting) => "idle",
        Some(RunStatus::Queued | RunStatus::Running | RunStatus::Paused) => "busy",
        Some(RunStatus::Failed) => "error",
    }
}

/// The metadata of a thread: those that clients have stored, and the agent that it belongs to.
pub(super) fn thread_metadata(thread: &Thread, agent: Option<&str>) -> Map<String, Value> {
    let stored = thread.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let mut metadata: Map<String, Value> = stored.unwrap_or_default();
    records::take(&mut metadata);
    if let Some(agent) = agent {
        add_agent(&mut metadata, agent);
    }
    metadata
}

/// Names the agent of a thread in its metadata.
pub(super) fn add_agent(metadata: &mut Map<String, Value>, agent: &str) {
    metadata.insert("graph_id".into(), agent.into());
    metadata.insert("assistant_id".into(), agent.into());
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
