//! How runs end: one right terminal event, and nothing after it.

use serde_json::{Value, json};

use super::{chunk, event, in_node, model_end, node, root, tell, tell_frames, tell_text};

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
fn interrupts_are_the_outcome_with_their_ids_and_payloads() {
    let told = tell(&interrupted(&[], json!([interrupt(ID, json!({"question": "Sure?"}))])), &[]);
    assert_eq!(told.last(), format!("finish interrupt {ID}"));
    let other = "0".repeat(32);
    let several =
        json!([interrupt(ID, json!("one")), interrupt(&other, json!("two")), interrupt(ID, json!("one"))]);
    let told = tell(&interrupted(&[], several), &[]);
    assert_eq!(told.last(), format!("finish interrupt {ID} {other}"));
    assert!(told.lines(&["step-end"]).contains(&"step-end n".to_owned()));
}

#[test]
fn an_interrupt_in_a_tool_names_the_call_it_guards() {
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
    let told = tell(&interrupted(&inner, json!([interrupt(ID, json!("ok?"))])), &[]);
    assert!(told.lines(&["result"]).is_empty(), "an interrupt is no failure");
    assert_eq!(told.last(), format!("finish interrupt {ID}(b)"));
}

#[test]
fn interrupts_that_only_show_as_text_keep_id_and_payload() {
    let shown = format!("Interrupt(value={{'message': 'Pay 2?', 'n': [1, None]}}, id='{ID}')");
    let envelope = json!([{"lc": 1, "type": "not_implemented", "id": ["langgraph", "types", "Interrupt"], "repr": shown}]);
    let told = tell(&interrupted(&[], envelope), &["interrupts=both"]);
    assert_eq!(told.lines(&["custom"]), ["custom on_interrupt {\"message\":\"Pay 2?\",\"n\":[1,null]}"]);
    assert_eq!(told.last(), format!("finish interrupt {ID}"));
}

#[test]
fn old_interrupts_without_ids_are_known_by_their_place() {
    let old = json!([{"value": "ok?", "resumable": true, "ns": ["approve:1"], "when": "during"}]);
    let told = tell(&interrupted(&[], old), &[]);
    assert_eq!(told.last(), "finish interrupt approve:1");
}

#[test]
fn a_static_breakpoint_is_an_interrupt() {
    let told = tell(&interrupted(&[], json!([])), &[]);
    assert_eq!(told.last(), "finish interrupt breakpoint");
    let told = tell_frames(
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
    assert_eq!(told.last(), "finish interrupt breakpoint:tools");
}

#[test]
fn the_state_says_what_the_events_alone_do_not() {
    let stream = include_str!("../fixtures/server-hitl-1-interrupt-events.sse");
    let state = include_str!("../fixtures/threads/server-hitl-state-interrupted.json");
    assert_eq!(tell_text(stream, &[]).last(), "finish", "nothing in it says that the run was interrupted");
    let told = tell_text(&format!("{stream}event: state\r\ndata: {}\r\n\r\n", state.trim()), &[]);
    assert!(told.last().starts_with("finish interrupt "), "{}", told.last());
}

#[test]
fn a_cancelled_run_is_cancelled_and_a_cut_one_truncated() {
    let stream = include_str!("../fixtures/server-slow-cancel-interrupt.sse");
    let state = include_str!("../fixtures/threads/server-slow-cancel-interrupt-state.json");
    let run = include_str!("../fixtures/threads/server-slow-cancel-interrupt-run.json");
    assert!(tell_text(stream, &[]).last().starts_with("error STREAM_TRUNCATED "));
    let frame = |name: &str, data: &str| format!("event: {name}\r\ndata: {}\r\n\r\n", data.trim());
    for told in [
        tell_text(&format!("{stream}{}", frame("state", state)), &[]),
        tell_text(&format!("{stream}{}", frame("run", run)), &[]),
        tell_text(&format!("{stream}{}{}", frame("run", run), frame("state", state)), &[]),
    ] {
        assert_eq!(told.last(), "finish Cancelled");
    }
}

#[test]
fn a_failed_run_says_why() {
    let state = json!({"values": {}, "next": ["bad"], "tasks": [{"id": "1", "name": "bad", "error": "ValueError('no')", "interrupts": []}]});
    let told = tell_frames(&[("metadata", json!({"run_id": "R"})), ("state", state)], &[]);
    assert_eq!(told.last(), "error ValueError ValueError('no')");
    let told = tell_frames(
        &[
            ("metadata", json!({"run_id": "R"})),
            ("error", json!({"error": "KeyError", "message": "x"})),
            ("values", json!({"a": 1})),
        ],
        &[],
    );
    assert_eq!(told.story(), ["start t R", "error KeyError x"]);
    assert_eq!(told.tally.count("event after the end", "values"), 1);
}

#[test]
fn the_failure_of_the_root_ends_the_run() {
    let failed = root("on_chain_error", json!({"error": {"error": "ValueError", "message": "bad"}}));
    let told = tell(
        &[root("on_chain_start", json!({"input": {}})), failed, root("on_chain_end", json!({"output": {}}))],
        &[],
    );
    assert_eq!(told.story(), ["start t R", "error ValueError bad"]);
}

#[test]
fn the_failure_of_a_node_is_why_a_run_that_stops_has_failed() {
    let mut lines = vec![
        root("on_chain_start", json!({"input": {}})),
        event("on_node_start", "plan", "N", &["R"], json!({})),
    ];
    lines.push(event("on_node_error", "plan", "N", &["R"], json!({"error": "KeyError('k')"})));
    let told = tell(&lines, &[]);
    assert_eq!(told.story(), ["start t R", "step plan", "step-end plan", "error KeyError KeyError('k')"]);
    // A run that survives it has not.
    lines.push(root("on_chain_end", json!({"output": {}})));
    assert_eq!(tell(&lines, &[]).last(), "finish");
}

#[test]
fn a_tool_failure_nobody_handles_is_a_result_before_the_error() {
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
    let told = tell(&lines, &[]);
    assert_eq!(told.lines(&["result", "error"]), ["result c ValueError('x') !", "error ValueError x"]);
}

#[test]
fn nothing_follows_the_end() {
    let mut lines = in_node(&[], json!({}));
    lines.push(chunk("M", json!({"id": "m", "content": "late"})));
    let told = tell(&lines, &[]);
    assert_eq!(told.last(), "finish");
    assert_eq!(told.tally.count("event after the end", "R"), 1);
}

#[test]
fn a_second_run_in_the_same_stream_is_a_run_of_its_own() {
    let second: Vec<Value> = in_node(&[chunk("M", json!({"id": "m", "content": "again"}))], json!({}))
        .into_iter()
        .map(|line| serde_json::from_str(&line.to_string().replace("\"R\"", "\"R2\"")).unwrap())
        .collect();
    let told = tell(&[in_node(&[], json!({})), second].concat(), &[]);
    assert_eq!(told.lines(&["start", "finish"]), ["start t R", "finish", "start t R2", "finish"]);
    assert_eq!(told.lines(&["+"]), ["+ m again"]);
}

#[test]
fn an_old_server_ends_with_a_word() {
    let told = tell_frames(
        &[("metadata", json!({"run_id": "R"})), ("updates", json!({"n": null})), ("end", Value::Null)],
        &[],
    );
    assert_eq!(told.story(), ["start t R", "step n", "step-end n", "finish"]);
}

#[test]
fn a_task_that_does_not_end_was_cut() {
    let start = json!({"id": "1", "name": "n", "input": {}, "triggers": []});
    let end = json!({"id": "1", "name": "n", "error": null, "result": {}, "interrupts": []});
    let told = tell_frames(&[("metadata", json!({"run_id": "R"})), ("tasks", start.clone())], &[]);
    assert!(told.last().starts_with("error STREAM_TRUNCATED"));
    let told =
        tell_frames(&[("metadata", json!({"run_id": "R"})), ("tasks", start.clone()), ("tasks", end)], &[]);
    assert_eq!(told.last(), "finish");
    let stopped = json!({"id": "1", "name": "n", "error": null, "result": {}, "interrupts": [interrupt(ID, json!("?"))]});
    let told =
        tell_frames(&[("metadata", json!({"run_id": "R"})), ("tasks", start), ("tasks", stopped)], &[]);
    assert_eq!(told.last(), format!("finish interrupt {ID}"));
}

#[test]
fn an_empty_stream_is_a_cut_one() {
    assert!(tell_text("", &[]).last().starts_with("error STREAM_TRUNCATED"));
}

#[test]
fn the_last_checkpoint_shows_a_static_breakpoint() {
    let entry = |next: serde_json::Value| ("checkpoints", json!({"values": {"messages": []}, "next": next}));
    let told = tell_frames(&[entry(json!(["agent"])), entry(json!(["tools"]))], &[]);
    assert_eq!(told.last(), "finish interrupt breakpoint:tools");
    assert_eq!(tell_frames(&[entry(json!(["agent"])), entry(json!([]))], &[]).last(), "finish");
}

#[test]
fn a_function_that_is_a_graph_may_return_anything() {
    let told = tell_frames(&[("metadata", json!({"run_id": "R"})), ("values", json!("all done"))], &[]);
    let crate::event::Body::RunFinished(finished) = &told.events.last().unwrap().body else { panic!() };
    assert_eq!(finished.result.as_ref().unwrap().get(), "\"all done\"");
    assert!(told.tally.is_empty(), "{:?}", told.tally);
}

#[test]
fn what_modes_leave_unsaid_is_no_fault() {
    // Messages alone never say that their node has ended.
    let chunk = json!({"type": "AIMessageChunk", "id": "m", "content": "hi", "chunk_position": "last"});
    let meta = json!({"langgraph_checkpoint_ns": "n:1", "langgraph_step": 1});
    let told = tell_frames(&[("messages", json!([chunk, meta]))], &[]);
    assert_eq!(told.lines(&["step", "step-end", "finish"]), ["step n", "step-end n", "finish"]);
    assert!(told.tally.is_empty(), "{:?}", told.tally);
}
