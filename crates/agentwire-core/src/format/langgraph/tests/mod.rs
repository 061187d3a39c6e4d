//! Golden tests over `fixtures/`, and regressions by topic.

mod adapter_defects;
mod bad_input;
mod conventions;
mod correlation;
mod fold_captures;
mod native_shapes;
mod options;
mod protocol_writer;
mod repetition;
mod run_endings;
mod writer;

use serde_json::{Value, json};

use super::FORMAT;
use crate::{
    event::{Body, Event, Outcome, StreamEnd},
    format::{Options, golden},
    framing::{Framing, detect},
    order::{Checker, Rule},
    source::{GuardedSource, SourceOptions},
    tally::Tally,
};

#[test]
fn fixtures_give_the_expected_events() {
    golden::run(&FORMAT, "src/format/langgraph/fixtures");
}

/// The events and diagnostics of a stream.
struct ReadOutput {
    events: Vec<Event>,
    tally: Tally,
    /// The rules that the guard repaired.
    repairs: Vec<Rule>,
    failure: Option<String>,
}

impl ReadOutput {
    /// One line per event.
    fn summaries(&self) -> Vec<String> {
        self.events.iter().map(summary).collect()
    }

    /// The summaries that start with one of `kinds`.
    fn summaries_of(&self, kinds: &[&str]) -> Vec<String> {
        let summaries = self.summaries().into_iter();
        summaries.filter(|line| kinds.iter().any(|kind| line.split(' ').next() == Some(kind))).collect()
    }

    fn last(&self) -> String {
        self.summaries().pop().unwrap_or_default()
    }
}

fn summary(event: &Event) -> String {
    let owner = event.subagent.as_ref().map(|owner| format!(" @{owner}")).unwrap_or_default();
    let text = match &event.body {
        Body::RunStarted(started) => format!("start {} {}", started.thread, started.run),
        Body::RunFinished(finished) => match &finished.outcome {
            None => "finish".to_owned(),
            Some(Outcome::Success { pending }) => format!("finish pending {pending:?}"),
            Some(Outcome::Interrupt { interrupts }) => {
                let each: Vec<String> = interrupts
                    .iter()
                    .map(|interrupt| match &interrupt.tool_call {
                        Some(call) => format!("{}({call})", interrupt.id),
                        None => interrupt.id.to_string(),
                    })
                    .collect();
                format!("finish interrupt {}", each.join(" "))
            }
            Some(other) => format!("finish {other:?}"),
        },
        Body::RunError(error) => {
            format!("error {} {}", error.code.as_deref().unwrap_or("-"), error.message)
        }
        Body::StepStarted { name } => format!("step {name}"),
        Body::StepFinished { name } => format!("step-end {name}"),
        Body::TextStart { message, .. } => format!("text {message}"),
        Body::TextDelta { message, delta } => format!("+ {message} {delta}"),
        Body::TextEnd { message } => format!("text-end {message}"),
        Body::ToolStart { call, name, parent } => {
            format!("call {call} {name} in {}", parent.as_deref().unwrap_or("-"))
        }
        Body::ToolArgs { call, delta } => format!("args {call} {delta}"),
        Body::ToolEnd { call } => format!("call-end {call}"),
        Body::ToolResult(result) => format!(
            "result {} {}{}",
            result.call,
            result.content.text(),
            if result.error.is_some() { " !" } else { "" }
        ),
        Body::StateSnapshot { snapshot } => format!("state {}", snapshot.get()),
        Body::StateDelta { patch } => {
            let each: Vec<String> =
                patch.0.iter().map(|op| format!("{}{}", op.op.as_str(), op.path)).collect();
            format!("patch {}", each.join(" "))
        }
        Body::MessagesSnapshot { messages } => {
            let ids: Vec<&str> = messages.iter().map(|message| message.id.as_str()).collect();
            format!("messages {}", ids.join(" "))
        }
        Body::ReasoningStart { message, title } => {
            format!("think {message} {}", title.as_deref().unwrap_or("")).trim_end().to_owned()
        }
        Body::ReasoningMessageStart { message } => format!("thought {message}"),
        Body::ReasoningDelta { message, delta } => format!("~ {message} {delta}"),
        Body::ReasoningMessageEnd { message } => format!("thought-end {message}"),
        Body::ReasoningEnd { message } => format!("think-end {message}"),
        Body::ReasoningEncrypted { value, entity } => format!("sealed {entity:?} {value}"),
        Body::SubagentStarted(started) => format!("subagent {}", started.name),
        Body::SubagentFinished { .. } => "subagent-end".to_owned(),
        Body::Raw { .. } => "raw".to_owned(),
        Body::Custom { name, value } => format!("custom {name} {}", value.get()),
        Body::Citation(source) => format!("source {} {}", source.id, source.url.as_deref().unwrap_or("-")),
        Body::File(file) => format!("file {} {}", file.id, file.kind.as_str()),
        Body::FinishReason { reason, .. } => format!("reason {reason}"),
        other => other.kind().to_owned(),
    };
    format!("{text}{owner}")
}

/// Reads a stream, and checks that its events are valid and independent of the chunking.
fn read_text(text: &str, pairs: &[&str]) -> ReadOutput {
    let framing = detect(text.as_bytes(), FORMAT.reads).unwrap_or(Framing::Lines);
    let read = |cut: usize| {
        let options = Options::parse(pairs.iter().copied(), FORMAT.options).unwrap();
        let options =
            SourceOptions { thread: "t".into(), run: "r".into(), options, ..SourceOptions::default() };
        let mut source = GuardedSource::new(&FORMAT, framing, &options).unwrap();
        let mut events = Vec::new();
        let mut sink = |event| events.push(event);
        let mut failure = None;
        for chunk in text.as_bytes().chunks(cut) {
            failure = failure.or(source.push(chunk, &mut sink).err());
        }
        failure = failure.or(source.end(&StreamEnd::Closed, &mut sink).err());
        let (tally, repairs) = (source.tally().clone(), source.repairs().map(|(rule, _)| rule).collect());
        ReadOutput { events, tally, repairs, failure: failure.map(|error| error.to_string()) }
    };
    let output = read(usize::MAX);
    assert_eq!(read(7).events, output.events, "cutting the bytes changes the events");
    let mut checker = Checker::new();
    for event in &output.events {
        assert_eq!(checker.check(event), None, "{:#?}", output.summaries());
    }
    assert_eq!(checker.end(), None);
    output
}

/// Reads JSON lines.
fn read_lines(lines: &[Value], pairs: &[&str]) -> ReadOutput {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    read_text(&text, pairs)
}

/// Reads frames of the server, given as name and data.
fn read_frames(frames: &[(&str, Value)], pairs: &[&str]) -> ReadOutput {
    let text: String =
        frames.iter().map(|(name, data)| format!("event: {name}\r\ndata: {data}\r\n\r\n")).collect();
    read_text(&text, pairs)
}

/// A native event below the root `R`.
fn event(kind: &str, name: &str, run: &str, parents: &[&str], data: Value) -> Value {
    json!({"event": kind, "name": name, "run_id": run, "parent_ids": parents, "tags": [], "metadata": {}, "data": data})
}

fn root(kind: &str, data: Value) -> Value {
    let mut root = event(kind, "LangGraph", "R", &[], data);
    root["metadata"] = json!({"ls_integration": "langgraph"});
    root
}

/// A native event of the node at `ns`.
fn node(kind: &str, name: &str, run: &str, ns: &str, data: Value) -> Value {
    let mut node = event(kind, name, run, &["R"], data);
    node["tags"] = json!(["graph:step:1"]);
    node["metadata"] = json!({
        "langgraph_node": name, "langgraph_step": 1, "langgraph_checkpoint_ns": ns,
        "langgraph_path": ["__pregel_pull", name],
    });
    node
}

/// A chunk of a model that runs in node `N`.
fn chunk(run: &str, mut chunk: Value) -> Value {
    chunk["type"] = json!("AIMessageChunk");
    if chunk.get("content").is_none() {
        chunk["content"] = json!("");
    }
    event("on_chat_model_stream", "model", run, &["R", "N"], json!({"chunk": chunk}))
}

fn model_end(run: &str, mut output: Value) -> Value {
    output["type"] = json!("ai");
    if output.get("content").is_none() {
        output["content"] = json!("");
    }
    event("on_chat_model_end", "model", run, &["R", "N"], json!({"output": output}))
}

/// A run with one node `n` around `inner`, and `output` as the final state of the graph.
fn in_node(inner: &[Value], output: Value) -> Vec<Value> {
    let mut all = vec![
        root("on_chain_start", json!({"input": {}})),
        node("on_chain_start", "n", "N", "n:1", json!({"input": {}})),
    ];
    all.extend(inner.iter().cloned());
    all.push(node("on_chain_end", "n", "N", "n:1", json!({"output": {}})));
    all.push(root("on_chain_end", json!({"output": output})));
    all
}
