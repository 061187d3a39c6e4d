//! Conventions of `ag-ui-langgraph` and CopilotKit: events by hand, hidden output, predicted state; and the output of tools
//! and nodes before and without a result.

use serde_json::{Value, json};

use super::{chunk, event, in_node, model_end, node, read_frames, read_lines, root};

/// A model run `M` with text and a call, whose events have `metadata`.
fn model(metadata: &Value) -> Vec<Value> {
    let call =
        |id: Value, name: Value, args: &str| json!([{"id": id, "name": name, "args": args, "index": 0}]);
    let mut events = [
        chunk("M", json!({"id": "m", "additional_kwargs": {"reasoning_content": "hm"}})),
        chunk("M", json!({"id": "m", "content": "secret"})),
        chunk("M", json!({"id": "m", "content": " text"})),
        chunk("M", json!({"id": "m", "tool_call_chunks": call(json!("c"), json!("plan"), "")})),
        chunk("M", json!({"id": "m", "tool_call_chunks": call(json!(null), json!(null), "{\"a\":1}")})),
        model_end("M", message()),
    ];
    for event in &mut events {
        event["metadata"] = metadata.clone();
    }
    events.to_vec()
}

fn message() -> Value {
    let call = json!([{"id": "c", "name": "plan", "args": {"a": 1}}]);
    json!({"type": "ai", "id": "m", "content": "secret text", "tool_calls": call, "response_metadata": {"finish_reason": "stop"}})
}

/// The model in a node that returns its message, as native events and in the stream modes of the server.
fn both_inputs(metadata: &Value) -> [Vec<String>; 2] {
    let mut lines = in_node(&model(metadata), json!({"messages": [message()]}));
    let end = lines.len() - 2;
    lines[end]["data"]["output"] = json!({"messages": [message()]});
    lines.insert(end + 1, root("on_chain_stream", json!({"chunk": {"n": {"messages": [message()]}}})));
    let chunks = model(metadata).into_iter().filter(|event| event["event"] == "on_chat_model_stream");
    let mut frames: Vec<(&str, Value)> = chunks
        .map(|event| {
            let mut meta = event["metadata"].clone();
            meta["langgraph_checkpoint_ns"] = json!("n:1");
            ("messages", json!([event["data"]["chunk"], meta]))
        })
        .collect();
    frames.push(("updates", json!({"n": {"messages": [message()]}})));
    frames.push(("values", json!({"messages": [message()]})));
    let kinds = ["+", "~", "call", "args", "call-end", "custom", "messages"];
    [read_lines(&lines, &[]).summaries_of(&kinds), read_frames(&frames, &[]).summaries_of(&kinds)]
}

fn without_reasoning(lines: Vec<String>) -> Vec<String> {
    let thoughts = lines.iter().filter(|line| line.starts_with('~')).count();
    assert_eq!(thoughts, 1, "reasoning is never hidden, and shown once: {lines:?}");
    lines.into_iter().filter(|line| !line.starts_with('~')).collect()
}

#[test]
fn hidden_text_is_in_the_last_snapshot_only() {
    for key in ["emit-messages", "copilotkit:emit-messages"] {
        for lines in both_inputs(&json!({key: false})) {
            let lines = without_reasoning(lines);
            assert_eq!(lines, ["call c plan in m", "args c {\"a\":1}", "call-end c", "messages m"], "{key}");
        }
    }
}

#[test]
fn hidden_calls_are_not_pending() {
    for key in ["emit-tool-calls", "copilotkit:emit-tool-calls"] {
        for lines in both_inputs(&json!({key: false})) {
            assert_eq!(without_reasoning(lines), ["+ m secret", "+ m  text", "messages m"], "{key}");
        }
        let lines = in_node(&model(&json!({key: false})), json!({}));
        assert_eq!(read_lines(&lines, &[]).last(), "finish", "{key}");
    }
}

#[test]
fn tools_can_be_shown_by_name() {
    for (shown, calls) in
        [(json!("plan"), 1), (json!(["other", "plan"]), 1), (json!(["other"]), 0), (json!(true), 1)]
    {
        for lines in both_inputs(&json!({"copilotkit:emit-tool-calls": shown})) {
            assert_eq!(lines.iter().filter(|line| line.starts_with("call ")).count(), calls, "{shown}");
        }
    }
}

#[test]
fn a_predicting_tool_is_announced_before_its_call() {
    let predict = json!([{"state_key": "plan", "tool": "plan", "tool_argument": "a"}]);
    let custom = format!("custom PredictState {predict}");
    for key in ["predict_state", "copilotkit:emit-intermediate-state"] {
        for lines in both_inputs(&json!({key: predict})) {
            let at = lines.iter().position(|line| line.starts_with("custom")).unwrap();
            assert_eq!(lines[at..at + 2], [custom.clone(), "call c plan in m".to_owned()], "{key}");
            assert_eq!(lines.iter().filter(|line| line.starts_with("custom")).count(), 1, "{key}");
        }
        for lines in both_inputs(&json!({key: predict, "emit-tool-calls": false})) {
            assert!(lines.contains(&custom), "also for a hidden call, as by ag-ui-langgraph");
        }
    }
    let other = json!([{"state_key": "plan", "tool": "other", "tool_argument": "a"}]);
    for lines in both_inputs(&json!({"predict_state": other})) {
        assert!(!lines.iter().any(|line| line.starts_with("custom")));
    }
}

#[test]
fn names_of_copilotkit_have_the_same_meaning() {
    let custom = |name: &str, data: Value| event("on_custom_event", name, "N", &["R"], data);
    let events = [
        custom(
            "copilotkit_manually_emit_message",
            json!({"message_id": "x", "message": "hi", "role": "assistant"}),
        ),
        custom("copilotkit_manually_emit_tool_call", json!({"id": "c", "name": "f", "args": {"a": 1}})),
        custom("copilotkit_manually_emit_intermediate_state", json!({"a": 1, "messages": []})),
        custom("copilotkit_exit", json!({})),
    ];
    let output = read_lines(&in_node(&events, json!({})), &[]);
    assert_eq!(
        output.summaries_of(&["+", "call", "args", "state", "custom"]),
        ["+ x hi", "call c f in -", "args c {\"a\":1}", "state {\"a\":1}", "custom Exit true"]
    );
}

#[test]
fn a_model_that_is_not_streamed_is_shown_when_its_node_returns() {
    let mut events = model(&json!({}));
    for event in &mut events {
        event["tags"] = json!(["seq:step:1", "nostream"]);
    }
    let shown = ["+", "call"];
    assert!(read_lines(&in_node(&events, json!({})), &[]).summaries_of(&shown).is_empty());
    let mut lines = in_node(&events, json!({"messages": [message()]}));
    let end = lines.len() - 2;
    lines[end]["data"]["output"] = json!({"messages": [message()]});
    assert_eq!(read_lines(&lines, &[]).summaries_of(&shown), ["+ m secret text", "call c plan in m"]);
}

#[test]
fn chunks_of_a_tool_are_its_output_so_far() {
    let tool = |kind: &str, data: Value| event(kind, "f", "F", &["R", "N"], data);
    let events = [
        tool("on_tool_start", json!({"input": {}})),
        tool("on_tool_stream", json!({"chunk": "one "})),
        tool("on_tool_stream", json!({"chunk": {"type": "tool", "content": "two", "tool_call_id": "F"}})),
        tool("on_tool_stream", json!({})),
        tool("on_tool_end", json!({"output": "one two"})),
    ];
    let output = read_lines(&in_node(&events, json!({})), &[]);
    assert_eq!(
        output.summaries_of(&["custom", "result"]),
        [
            "custom agentwire.tool_progress {\"toolCallId\":\"F\",\"output\":\"one \",\"delta\":\"one \"}",
            "custom agentwire.tool_progress {\"toolCallId\":\"F\",\"output\":\"one two\",\"delta\":\"two\"}",
            "result F one two",
        ]
    );
    assert_eq!(output.tally.count("wrong type", "on_tool_stream data.chunk"), 1);
}

#[test]
fn blocks_of_an_unknown_kind_are_carried_and_counted() {
    let blocks = json!([
        {"type": "non_standard", "value": {"odd": 1}},
        {"type": "non_standard", "value": {"type": "vendor", "a": 1}},
        {"type": "hologram", "b": 2},
    ]);
    let events = [model_end("M", json!({"id": "m", "content": &blocks}))];
    let output = read_lines(&in_node(&events, json!({})), &[]);
    assert_eq!(
        output.summaries_of(&["custom"]),
        [
            "custom content_block {\"type\":\"non_standard\",\"value\":{\"odd\":1},\"messageId\":\"m\"}",
            "custom content_block {\"type\":\"vendor\",\"a\":1,\"messageId\":\"m\"}",
            "custom content_block {\"type\":\"hologram\",\"b\":2,\"messageId\":\"m\"}",
        ]
    );
    for kind in ["non_standard", "vendor", "hologram"] {
        assert_eq!(output.tally.count("unknown content block", kind), 1, "{kind}");
    }
    // The message has no other content, and its node returns it.
    let returned = json!({"messages": [{"type": "ai", "id": "m", "content": blocks}]});
    let again = read_lines(&in_node(&events, returned), &[]);
    assert_eq!(again.summaries_of(&["custom"]), output.summaries_of(&["custom"]));
}

#[test]
fn a_failed_node_is_marked() {
    let status = |output: &super::ReadOutput| -> Vec<Option<String>> {
        let ends = output.events.iter().filter(|event| super::summary(event).starts_with("step-end"));
        ends.map(|event| event.metadata().and_then(|metadata| metadata.get_str("status"))).collect()
    };
    let failed = Some("error".to_owned());
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        node("on_chain_start", "a", "A", "a:1", json!({"input": {}})),
        node("on_chain_end", "a", "A", "a:1", json!({"output": {}})),
        node("on_chain_start", "b", "B", "b:1", json!({"input": {}})),
        json!({"event": "error", "data": {"error": "ValueError", "message": "no"}}),
    ];
    assert_eq!(status(&read_lines(&lines, &[])), [None, failed.clone()]);
    let task = |name: &str, error: Value| {
        let start = json!({"id": name, "name": name, "input": {}, "triggers": []});
        [
            ("tasks", start),
            ("tasks", json!({"id": name, "name": name, "error": error, "result": {}, "interrupts": []})),
        ]
    };
    let frames = [task("a", json!("ValueError('no')")), task("b", json!(null))].concat();
    assert_eq!(status(&read_frames(&frames, &[])), [failed, None]);
}

#[test]
fn the_run_has_the_name_and_metadata_of_the_graph() {
    let lines = in_node(&[], json!({}));
    let metadata = |pairs: &[&str]| {
        let output = read_lines(&lines, pairs);
        let of = |at: usize| output.events[at].metadata().map(|metadata| metadata.as_json().get().to_owned());
        [of(0), of(1)]
    };
    let run = Some("{\"name\":\"LangGraph\",\"ls_integration\":\"langgraph\"}".to_owned());
    assert_eq!(metadata(&[]), [run.clone(), None]);
    assert_eq!(metadata(&["metadata=off"]), [None, None]);
    let [with_run, with_step] = metadata(&["metadata=on"]);
    assert_eq!(with_run, run);
    assert!(with_step.unwrap().contains("\"node_id\":\"N\""));
}
