//! The end of a run: one correct terminal event, and no event after it.

use serde_json::{Value, json};

use super::{chunk, event, in_node, model_end, node, read_frames, read_lines, read_text, root};

const ID: &str = "c39f193ebabf28ac94abe5106ce262e4";

fn interrupt(id: &str, value: Value) -> Value {
    json!({"value": value, "id": id, "response_schema": null})
}

fn interrupted(inner: &[Value], interrupts: Value) -> Vec<Value> {
    let mut lines = in_node(inner, json!({}));
    // An interrupted node has no end.
    lines.retain(|line| !(line["event"] == "on_chain_end" && line["run_id"] == "N"));
    let end = lines.pop().unwrap();
    lines.push(root("on_chain_stream", json!({"chunk": {"__interrupt__": interrupts}})));
    lines.push(end);
    lines
}

#[test]
fn interrupts_are_the_outcome_with_ids_and_payloads() {
    let output = read_lines(&interrupted(&[], json!([interrupt(ID, json!({"question": "Sure?"}))])), &[]);
    assert_eq!(output.last(), format!("finish interrupt {ID}"));
    let other = "0".repeat(32);
    let several =
        json!([interrupt(ID, json!("one")), interrupt(&other, json!("two")), interrupt(ID, json!("one"))]);
    let output = read_lines(&interrupted(&[], several), &[]);
    assert_eq!(output.last(), format!("finish interrupt {ID} {other}"));
    assert!(output.summaries_of(&["step-end"]).contains(&"step-end n".to_owned()));
}

#[test]
fn interrupt_in_a_tool_names_its_call() {
    let calls = json!([{"id": "a", "name": "f", "args": {}}, {"id": "b", "name": "g", "args": {}}]);
    let message = format!("(Interrupt(value='ok?', id='{ID}', response_schema=None),)");
    let inner = [
        model_end("M", json!({"id": "m", "tool_calls": calls})),
        event("on_tool_start", "g", "T", &["R", "N"], json!({"input": {}})),
        event(
            "on_tool_error",
            "g",
            "T",
            &["R", "N"],
            json!({"error": {"error": "GraphInterrupt", "message": message}, "tool_call_id": "b"}),
        ),
    ];
    let output = read_lines(&interrupted(&inner, json!([interrupt(ID, json!("ok?"))])), &[]);
    assert!(output.summaries_of(&["result"]).is_empty(), "an interrupt is not an error");
    assert_eq!(output.last(), format!("finish interrupt {ID}(b)"));
}

#[test]
fn interrupts_as_python_repr_keep_id_and_payload() {
    let repr = format!("Interrupt(value={{'message': 'Pay 2?', 'n': [1, None]}}, id='{ID}')");
    let envelope = json!([{"lc": 1, "type": "not_implemented", "id": ["langgraph", "types", "Interrupt"], "repr": repr}]);
    let output = read_lines(&interrupted(&[], envelope), &["interrupts=both"]);
    assert_eq!(
        output.summaries_of(&["custom"]),
        ["custom on_interrupt {\"message\":\"Pay 2?\",\"n\":[1,null]}"]
    );
    assert_eq!(output.last(), format!("finish interrupt {ID}"));
}

#[test]
fn old_interrupts_are_identified_by_namespace() {
    let old = json!([{"value": "ok?", "resumable": true, "ns": ["approve:1"], "when": "during"}]);
    let output = read_lines(&interrupted(&[], old), &[]);
    assert_eq!(output.last(), "finish interrupt approve:1");
}

#[test]
fn static_breakpoint_is_an_interrupt() {
    let output = read_lines(&interrupted(&[], json!([])), &[]);
    assert_eq!(output.last(), "finish interrupt breakpoint");
    let output = read_frames(
        &[
            ("metadata", json!({"run_id": "R"})),
            ("updates", json!({"agent": {"x": 1}})),
            ("updates", json!({"__interrupt__": []})),
            (
                "state",
                json!({"values": {"x": 1}, "next": ["tools"], "tasks": [{"id": "1", "name": "tools", "error": null, "interrupts": []}]}),
            ),
        ],
        &[],
    );
    assert_eq!(output.last(), "finish interrupt breakpoint:tools");
}

#[test]
fn thread_state_adds_the_interrupt_that_events_lack() {
    let stream = include_str!("../fixtures/server-hitl-1-interrupt-events.sse");
    let state = include_str!("../fixtures/threads/server-hitl-state-interrupted.json");
    assert_eq!(read_text(stream, &[]).last(), "finish", "the events do not report the interrupt");
    let output = read_text(&format!("{stream}event: state\r\ndata: {}\r\n\r\n", state.trim()), &[]);
    assert!(output.last().starts_with("finish interrupt "), "{}", output.last());
}

#[test]
fn cancelled_run_is_cancelled_and_cut_stream_is_truncated() {
    let stream = include_str!("../fixtures/server-slow-cancel-interrupt.sse");
    let state = include_str!("../fixtures/threads/server-slow-cancel-interrupt-state.json");
    let run = include_str!("../fixtures/threads/server-slow-cancel-interrupt-run.json");
    assert!(read_text(stream, &[]).last().starts_with("error STREAM_TRUNCATED "));
    let frame = |name: &str, data: &str| format!("event: {name}\r\ndata: {}\r\n\r\n", data.trim());
    for output in [
        read_text(&format!("{stream}{}", frame("state", state)), &[]),
        read_text(&format!("{stream}{}", frame("run", run)), &[]),
        read_text(&format!("{stream}{}{}", frame("run", run), frame("state", state)), &[]),
    ] {
        assert_eq!(output.last(), "finish Cancelled");
    }
}

#[test]
fn failed_run_has_its_error() {
    let state = json!({"values": {}, "next": ["bad"], "tasks": [{"id": "1", "name": "bad", "error": "ValueError('no')", "interrupts": []}]});
    let output = read_frames(&[("metadata", json!({"run_id": "R"})), ("state", state)], &[]);
    assert_eq!(output.last(), "error ValueError ValueError('no')");
    let output = read_frames(
        &[
            ("metadata", json!({"run_id": "R"})),
            ("error", json!({"error": "KeyError", "message": "x"})),
            ("values", json!({"a": 1})),
        ],
        &[],
    );
    assert_eq!(output.summaries(), ["start t R", "error KeyError x"]);
    assert_eq!(output.tally.count("event after the end", "values"), 1);
}

#[test]
fn error_of_the_root_ends_the_run() {
    let failed = root("on_chain_error", json!({"error": {"error": "ValueError", "message": "bad"}}));
    let output = read_lines(
        &[root("on_chain_start", json!({"input": {}})), failed, root("on_chain_end", json!({"output": {}}))],
        &[],
    );
    assert_eq!(output.summaries(), ["start t R", "error ValueError bad"]);
}

#[test]
fn node_error_is_the_run_error_if_the_stream_stops() {
    let mut lines = vec![
        root("on_chain_start", json!({"input": {}})),
        event("on_node_start", "plan", "N", &["R"], json!({})),
    ];
    lines.push(event("on_node_error", "plan", "N", &["R"], json!({"error": "KeyError('k')"})));
    let output = read_lines(&lines, &[]);
    assert_eq!(
        output.summaries(),
        ["start t R", "step plan", "step-end plan", "error KeyError KeyError('k')"]
    );
    // A run that survives the error succeeds.
    lines.push(root("on_chain_end", json!({"output": {}})));
    assert_eq!(read_lines(&lines, &[]).last(), "finish");
}

#[test]
fn unhandled_tool_error_is_a_result_before_the_run_error() {
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        node(
            "on_chain_start",
            "tools",
            "N",
            "tools:1",
            json!({"input": [{"name": "f", "args": {}, "id": "c", "type": "tool_call"}]}),
        ),
        event("on_tool_start", "f", "T", &["R", "N"], json!({"input": {}})),
        event(
            "on_tool_error",
            "f",
            "T",
            &["R", "N"],
            json!({"error": "ValueError('x')", "tool_call_id": "c"}),
        ),
        json!({"event": "error", "data": {"error": "ValueError", "message": "x"}}),
    ];
    let output = read_lines(&lines, &[]);
    assert_eq!(
        output.summaries_of(&["result", "error"]),
        ["result c ValueError('x') !", "error ValueError x"]
    );
}

#[test]
fn no_event_follows_the_end() {
    let mut lines = in_node(&[], json!({}));
    lines.push(chunk("M", json!({"id": "m", "content": "late"})));
    let output = read_lines(&lines, &[]);
    assert_eq!(output.last(), "finish");
    assert_eq!(output.tally.count("event after the end", "R"), 1);
}

#[test]
fn second_run_in_the_same_stream_is_separate() {
    let second: Vec<Value> = in_node(&[chunk("M", json!({"id": "m", "content": "again"}))], json!({}))
        .into_iter()
        .map(|line| serde_json::from_str(&line.to_string().replace("\"R\"", "\"R2\"")).unwrap())
        .collect();
    let output = read_lines(&[in_node(&[], json!({})), second].concat(), &[]);
    assert_eq!(output.summaries_of(&["start", "finish"]), ["start t R", "finish", "start t R2", "finish"]);
    assert_eq!(output.summaries_of(&["+"]), ["+ m again"]);
}

#[test]
fn end_frame_of_an_old_server_finishes_the_run() {
    let output = read_frames(
        &[("metadata", json!({"run_id": "R"})), ("updates", json!({"n": null})), ("end", Value::Null)],
        &[],
    );
    assert_eq!(output.summaries(), ["start t R", "step n", "step-end n", "finish"]);
}

#[test]
fn task_without_an_end_is_a_truncated_stream() {
    let start = json!({"id": "1", "name": "n", "input": {}, "triggers": []});
    let end = json!({"id": "1", "name": "n", "error": null, "result": {}, "interrupts": []});
    let output = read_frames(&[("metadata", json!({"run_id": "R"})), ("tasks", start.clone())], &[]);
    assert!(output.last().starts_with("error STREAM_TRUNCATED"));
    let output =
        read_frames(&[("metadata", json!({"run_id": "R"})), ("tasks", start.clone()), ("tasks", end)], &[]);
    assert_eq!(output.last(), "finish");
    let stopped = json!({"id": "1", "name": "n", "error": null, "result": {}, "interrupts": [interrupt(ID, json!("?"))]});
    let output =
        read_frames(&[("metadata", json!({"run_id": "R"})), ("tasks", start), ("tasks", stopped)], &[]);
    assert_eq!(output.last(), format!("finish interrupt {ID}"));
}

#[test]
fn empty_stream_is_truncated() {
    assert!(read_text("", &[]).last().starts_with("error STREAM_TRUNCATED"));
}

#[test]
fn last_checkpoint_shows_a_static_breakpoint() {
    let entry = |next: serde_json::Value| ("checkpoints", json!({"values": {"messages": []}, "next": next}));
    let output = read_frames(&[entry(json!(["agent"])), entry(json!(["tools"]))], &[]);
    assert_eq!(output.last(), "finish interrupt breakpoint:tools");
    assert_eq!(read_frames(&[entry(json!(["agent"])), entry(json!([]))], &[]).last(), "finish");
}

#[test]
fn functional_graph_may_return_any_value() {
    let output = read_frames(&[("metadata", json!({"run_id": "R"})), ("values", json!("all done"))], &[]);
    let crate::event::Body::RunFinished(finished) = &output.events.last().unwrap().body else { panic!() };
    assert_eq!(finished.result.as_ref().unwrap().get(), "\"all done\"");
    assert!(output.tally.is_empty(), "{:?}", output.tally);
}

#[test]
fn missing_node_end_of_a_mode_is_not_counted() {
    // The messages mode alone never reports the end of a node.
    let chunk = json!({"type": "AIMessageChunk", "id": "m", "content": "hi", "chunk_position": "last"});
    let meta = json!({"langgraph_checkpoint_ns": "n:1", "langgraph_step": 1});
    let output = read_frames(&[("messages", json!([chunk, meta]))], &[]);
    assert_eq!(output.summaries_of(&["step", "step-end", "finish"]), ["step n", "step-end n", "finish"]);
    assert!(output.tally.is_empty(), "{:?}", output.tally);
}
