//! The mode `events`: native events of `astream_events`.

use bytes::BufMut;
use serde_json::{Map, Value, json};

use super::{
    super::wire::{EventName, StreamMode},
    messages, write_json,
};
use crate::{
    event::{MessageId, RunId},
    framing::Frames,
    json::{ObjectWriter, write_str},
};

/// A piece of a message.
pub(super) fn write_chunk(
    out: &mut Frames,
    message: &MessageId,
    metadata: &[u8],
    fill: &impl Fn(&mut ObjectWriter<'_>),
) {
    let buffer = out.begin_named(StreamMode::Events.as_str());
    buffer.put_slice(br#"{"event":""#);
    buffer.put_slice(EventName::ChatModelStream.as_str().as_bytes());
    buffer.put_slice(br#"","name":"model","run_id":"#);
    write_str(buffer, message);
    buffer.put_slice(br#","parent_ids":[],"tags":[],"metadata":"#);
    buffer.put_slice(metadata);
    buffer.put_slice(br#","data":{"chunk":"#);
    messages::write_chunk(buffer, message, fill);
    buffer.put_slice(b"}}");
    out.commit();
}

/// The start or end of the graph.
pub(super) fn write_root(out: &mut Frames, event: &str, run: &RunId, data: &Value) {
    let value = json!({"event": event, "name": "LangGraph", "run_id": run.as_str(), "parent_ids": [], "tags": [],
        "metadata": {}, "data": data});
    write_json(out, StreamMode::Events.as_str(), &value);
}

/// The start or end of a node.
pub(super) fn write_node(out: &mut Frames, event: &str, name: &str, number: u64, run: &RunId, data: &Value) {
    let value = json!({"event": event, "name": name, "run_id": format!("{run}-{number}"), "parent_ids": [run.as_str()],
        "tags": [format!("graph:step:{number}")], "metadata": {"langgraph_node": name, "langgraph_step": number},
        "data": data});
    write_json(out, StreamMode::Events.as_str(), &value);
}

/// The end of a tool.
pub(super) fn write_tool_end(out: &mut Frames, message: &Map<String, Value>, metadata: &[u8]) {
    let metadata: Value = serde_json::from_slice(metadata).unwrap_or_default();
    let value = json!({"event": EventName::ToolEnd.as_str(), "name": message["name"], "run_id": message["id"],
        "parent_ids": [], "tags": [], "metadata": metadata, "data": {"input": {}, "output": message}});
    write_json(out, StreamMode::Events.as_str(), &value);
}
