//! Repeated reports, reused ids, concurrent graphs and resumed runs.

use serde_json::{Value, json};

use super::{chunk, event, in_node, model_end, node, read_frames, read_lines, root};
use crate::event::Body;

const STEPS: &[&str] = &["step", "step-end"];
const CALLS: &[&str] = &["call", "args", "call-end", "result"];
const TEXT: &[&str] = &["text", "+", "text-end"];

fn task_start(id: &str, name: &str, trigger: &str, input: Value) -> Value {
    json!({"id": id, "name": name, "input": input, "triggers": [trigger]})
}

fn task_end(id: &str, name: &str, result: Value) -> Value {
    json!({"id": id, "name": name, "error": null, "result": result, "interrupts": []})
}

fn tool_message(id: &str, call: &str, text: &str) -> Value {
    json!({"type": "tool", "id": id, "content": text, "tool_call_id": call, "status": "success"})
}

/// A chunk of a model in the namespace `ns`.
fn model_chunk(id: &str, ns: &str, more: Value) -> (&'static str, Value) {
    let mut chunk = json!({"type": "AIMessageChunk", "id": id, "content": "", "chunk_position": null});
    for (key, value) in more.as_object().unwrap() {
        chunk[key] = value.clone();
    }
    ("messages", json!([chunk, {"langgraph_checkpoint_ns": ns, "langgraph_step": 1}]))
}

#[test]
fn task_reported_by_two_modes_is_one_step() {
    let (start, end) = (task_start("1", "n", "branch:to:n", json!({})), task_end("1", "n", json!({})));
    let debug = |kind: &str, payload: &Value| json!({"step": 1, "type": kind, "payload": payload});
    let output = read_frames(
        &[
            ("tasks", start.clone()),
            ("debug", debug("task", &start)),
            ("tasks", end.clone()),
            ("debug", debug("task_result", &end)),
        ],
        &[],
    );
    assert_eq!(output.summaries(), ["start t r", "step n", "step-end n", "finish"]);
}

#[test]
fn finds_all_results_that_a_task_wrote_separately() {
    let writes = json!([[tool_message("r1", "a", "one")], tool_message("r2", "b", "two")]);
    let calls = json!([{"id": "a", "name": "f", "args": {}}, {"id": "b", "name": "f", "args": {}}]);
    let ai = json!({"type": "ai", "id": "m", "content": "", "tool_calls": calls});
    let output = read_frames(
        &[
            ("tasks", task_start("1", "agent", "branch:to:agent", json!({}))),
            ("tasks", task_end("1", "agent", json!({"messages": [ai]}))),
            ("tasks", task_start("2", "tools", "branch:to:tools", json!({}))),
            ("tasks", task_end("2", "tools", json!({"messages": {"$writes": writes}}))),
        ],
        &[],
    );
    assert_eq!(output.summaries_of(&["result", "finish"]), ["result a one", "result b two", "finish"]);
}

#[test]
fn task_that_ended_before_the_interrupt_is_closed() {
    // It is reported again when the run resumes, but does not run.
    let resumed = [
        ("tasks", task_start("1", "ask", "branch:to:ask", json!({}))),
        ("tasks", task_start("2", "done", "branch:to:done", json!({}))),
        ("tasks", task_end("1", "ask", json!({}))),
    ];
    let mut on = resumed.to_vec();
    on.push(("tasks", task_start("3", "next", "branch:to:next", json!({}))));
    on.push(("tasks", task_end("3", "next", json!({}))));
    let output = read_frames(&on, &[]);
    assert_eq!(
        output.summaries_of(STEPS),
        ["step ask", "step done", "step-end ask", "step-end done", "step next", "step-end next"]
    );
    assert_eq!(output.last(), "finish");
    for (mode, value) in [("values", json!({})), ("checkpoints", json!({"values": {}, "next": []}))] {
        let mut complete = resumed.to_vec();
        complete.push((mode, value));
        assert_eq!(read_frames(&complete, &[]).last(), "finish", "the step is complete");
    }
    // Without any of these it may still be running.
    assert!(read_frames(&resumed, &[]).last().starts_with("error STREAM_TRUNCATED"));
    // A task that another task pushed is not a new step.
    let inner = [
        ("tasks", task_start("1", "flow", "__start__", json!({}))),
        ("tasks", task_start("2", "one", "__pregel_push", json!({}))),
        ("tasks", task_end("2", "one", json!({}))),
        ("tasks", task_start("3", "two", "__pregel_push", json!({}))),
        ("tasks", task_end("3", "two", json!({}))),
    ];
    assert!(read_frames(&inner, &[]).last().starts_with("error STREAM_TRUNCATED"));
}

#[test]
fn call_id_of_an_earlier_run_is_numbered() {
    let old = json!({"type": "ai", "id": "a1", "content": "", "tool_calls": [{"id": "c", "name": "f", "args": {}}]});
    let history =
        json!([{"type": "human", "id": "u1", "content": "go"}, old, tool_message("r1", "c", "old")]);
    let chunk = json!({"id": "c", "name": "f", "args": "{}", "index": 0});
    let meta = json!({"langgraph_checkpoint_ns": "tools:1", "langgraph_step": 4});
    let output = read_frames(
        &[
            ("values", json!({"messages": history})),
            model_chunk("a2", "agent:1", json!({"tool_call_chunks": [chunk], "chunk_position": "last"})),
            ("messages", json!([tool_message("r2", "c", "new"), meta])),
        ],
        &[],
    );
    assert_eq!(
        output.summaries_of(CALLS),
        ["call c#2 f in a2", "args c#2 {}", "call-end c#2", "result c#2 new"]
    );
    assert_eq!(output.last(), "finish");
}

#[test]
fn concurrent_graphs_may_use_the_same_ids() {
    // Two identical helper agents.
    let call = |ns: &str| {
        let chunk = json!({"id": "s", "name": "f", "args": "{}", "index": 0});
        model_chunk("m", ns, json!({"tool_call_chunks": [chunk]}))
    };
    let text = |ns: &str, content: &str| model_chunk("m2", ns, json!({"content": content}));
    let result = |ns: &str, id: &str, content: &str| {
        let meta = json!({"langgraph_checkpoint_ns": ns, "langgraph_step": 2});
        ("messages", json!([tool_message(id, "s", content), meta]))
    };
    let last = |id: &str, ns: &str| model_chunk(id, ns, json!({"chunk_position": "last"}));
    let output = read_frames(
        &[
            call("help:1|model:1"),
            call("help:2|model:2"),
            last("m", "help:1|model:1"),
            last("m", "help:2|model:2"),
            result("help:2|tools:4", "r2", "for the second"),
            result("help:1|tools:3", "r1", "for the first"),
            text("help:1|model:5", "one"),
            text("help:2|model:6", "two"),
            text("help:1|model:5", " more"),
            last("m2", "help:1|model:5"),
            last("m2", "help:2|model:6"),
            // A later one.
            text("help:3|model:7", "three"),
            last("m2", "help:3|model:7"),
        ],
        &["steps=none"],
    );
    assert_eq!(
        output.summaries_of(CALLS),
        [
            "call s f in m",
            "args s {}",
            "call s#2 f in m#2",
            "args s#2 {}",
            "call-end s",
            "call-end s#2",
            "result s#2 for the second",
            "result s for the first",
        ]
    );
    assert_eq!(
        output.summaries_of(TEXT),
        [
            "text m2",
            "+ m2 one",
            "text m2#2",
            "+ m2#2 two",
            "+ m2  more",
            "text-end m2",
            "text-end m2#2",
            "text m2#3",
            "+ m2#3 three",
            "text-end m2#3",
        ]
    );
    assert_eq!(output.last(), "finish");
}

/// A node of a graph inside the node `outer`.
fn nested(kind: &str, name: &str, run: &str, ns: &str, data: Value) -> Value {
    let mut nested = node(kind, name, run, ns, data);
    nested["parent_ids"] = json!(["R", "O", "G"]);
    nested
}

#[test]
fn resumed_nested_run_shows_the_call_of_its_tool() {
    // Only the nested graph's conversation contains the call.
    let call_message = json!({"type": "ai", "id": "in1", "content": "I pay.", "usage_metadata": {"input_tokens": 9},
        "tool_calls": [{"id": "c", "name": "pay", "args": {"amount": 5}}]});
    let human = json!({"type": "human", "id": "u", "content": "go"});
    let answer = tool_message("r", "c", "paid");
    let lines = |input: Value| {
        let mut tool =
            event("on_tool_start", "pay", "T", &["R", "O", "G", "N"], json!({"input": {"amount": 5}}));
        tool["metadata"] = json!({"langgraph_checkpoint_ns": "outer:1|tools:2"});
        let mut end = event("on_tool_end", "pay", "T", &["R", "O", "G", "N"], json!({"output": answer}));
        end["metadata"] = tool["metadata"].clone();
        let all = json!({"messages": [human, call_message, answer]});
        [
            root("on_chain_start", json!({"input": null})),
            node("on_chain_start", "outer", "O", "outer:1", json!({"input": {"messages": [human]}})),
            nested("on_chain_start", "tools", "N", "outer:1|tools:2", json!({"input": input})),
            tool,
            end,
            nested(
                "on_chain_end",
                "tools",
                "N",
                "outer:1|tools:2",
                json!({"output": {"messages": [answer]}}),
            ),
            node("on_chain_end", "outer", "O", "outer:1", json!({"output": all})),
            root("on_chain_end", json!({"output": all})),
        ]
    };
    let output = read_lines(&lines(json!({"messages": [human, call_message]})), &[]);
    assert_eq!(
        output.summaries_of(CALLS),
        ["call c pay in in1", r#"args c {"amount":5}"#, "call-end c", "result c paid"]
    );
    assert_eq!(output.summaries_of(&["+"]), ["+ in1 I pay."]);
    assert_eq!(output.last(), "finish");
    let crate::event::Body::RunFinished(finished) = &output.events.last().unwrap().body else { panic!() };
    assert!(finished.usage.is_empty(), "the earlier run has counted its usage");
    // An agent passes one call to each tool node.
    let assigned = json!([{"id": "c", "name": "pay", "args": {"amount": 5}, "type": "tool_call"}]);
    let output = read_lines(&lines(assigned), &[]);
    assert_eq!(
        output.summaries_of(CALLS),
        ["call c pay in -", r#"args c {"amount":5}"#, "call-end c", "result c paid"]
    );
    assert_eq!(output.summaries_of(&["messages", "finish"]).last().unwrap(), "finish");
}

#[test]
fn snapshot_keeps_messages_shown_after_the_last_conversation() {
    let calls = json!([{"id": "a", "name": "f", "args": {}}, {"id": "b", "name": "f", "args": {}}]);
    let ai = json!({"type": "ai", "id": "m", "content": "", "tool_calls": calls});
    let checkpoint = json!({"values": {"messages": [ai]}, "next": ["tools", "tools"]});
    let call = |id: &str| json!([{"id": id, "name": "f", "args": {}, "type": "tool_call"}]);
    let stopped = json!({"id": "2", "name": "tools", "error": null, "result": {},
        "interrupts": [{"id": "i", "value": "?"}]});
    let debug = |kind: &str, payload: Value| ("debug", json!({"step": 1, "type": kind, "payload": payload}));
    let output = read_frames(
        &[
            debug("checkpoint", checkpoint),
            debug("task", task_start("1", "tools", "__pregel_push", call("a"))),
            debug("task", task_start("2", "tools", "__pregel_push", call("b"))),
            debug(
                "task_result",
                task_end("1", "tools", json!({"messages": [tool_message("r", "a", "done")]})),
            ),
            debug("task_result", stopped),
        ],
        &[],
    );
    // The checkpoint is older than the result; a snapshot of it would delete the result.
    assert_eq!(
        output.summaries_of(&["messages", "result", "finish"]),
        ["messages m", "result a done", "finish interrupt i(b)"]
    );
}

#[test]
fn reads_shorthand_messages() {
    // A state without a reducer keeps its input.
    let ai = json!({"type": "ai", "id": "m", "content": "hi"});
    let output = read_frames(&[("values", json!({"messages": [["user", "hello"], "and?", ai]}))], &[]);
    assert_eq!(output.summaries_of(&["messages"]).last().unwrap(), "messages message-0 message-1 m");
    assert!(output.tally.is_empty(), "{:?}", output.tally);
}

#[test]
fn repeated_call_without_an_id_is_one_call() {
    let call = json!({"id": null, "name": "f", "args": {"x": 1}, "type": "tool_call"});
    let ai = json!({"type": "ai", "id": "m", "content": "", "tool_calls": [call]});
    let output =
        read_frames(&[("messages/partial", json!([ai])), ("values", json!({"messages": [ai]}))], &[]);
    assert_eq!(
        output.summaries_of(CALLS),
        ["call m-call-0 f in m", r#"args m-call-0 {"x":1}"#, "call-end m-call-0"]
    );
}

#[test]
fn end_of_a_step_ends_its_messages() {
    // Accumulated messages have no end, and their calls wait for one.
    let call = json!({"id": "c", "name": "f", "args": {}, "type": "tool_call"});
    let ai = json!({"type": "ai", "id": "in1", "content": "", "tool_calls": [call]});
    let meta = |ns: &str, step: u32| json!({"langgraph_checkpoint_ns": ns, "langgraph_step": step, "ls_model_name": "x"});
    let output = |between: &[(&'static str, Value)]| {
        let mut frames = vec![
            ("messages/metadata", json!({"in1": {"metadata": meta("sub:1|agent:2", 1)}})),
            ("messages/partial", json!([ai])),
        ];
        frames.extend_from_slice(between);
        frames.push(("messages/complete", json!([tool_message("r", "c", "done")])));
        read_frames(&frames, &["steps=none"])
    };
    let shown = ["call c f in in1", "args c {}", "call-end c", "result c done"];
    assert_eq!(output(&[("values|sub:1", json!({"messages": [ai]}))]).summaries_of(CALLS), shown);
    let reached = json!({"r": {"metadata": meta("sub:1|tools:3", 2)}});
    assert_eq!(output(&[("messages/metadata", reached)]).summaries_of(CALLS), shown);
}

#[test]
fn call_repeated_by_a_hand_over_is_one_call() {
    let chunk = json!({"id": "h", "name": "to_b", "args": "{}", "index": 0});
    let repeated = json!({"type": "ai", "id": "other", "content": "", "tool_calls": [{"id": "h", "name": "to_b", "args": {}}]});
    let output = read_frames(
        &[
            model_chunk("m", "a:1|agent:2", json!({"tool_call_chunks": [chunk], "chunk_position": "last"})),
            ("updates", json!({"a": {"messages": [repeated, tool_message("r", "h", "handed")]}})),
            ("values", json!({"messages": [repeated, tool_message("r", "h", "handed")]})),
        ],
        &["steps=none"],
    );
    assert_eq!(
        output.summaries_of(CALLS),
        ["call h to_b in m", "args h {}", "call-end h", "result h handed"]
    );
    assert_eq!(output.last(), "finish");
    // The result follows its call, wherever the list has moved that.
    assert_eq!(output.summaries_of(&["messages"]).last().unwrap(), "messages other r");
}

/// An event of protocol v2 in the outermost graph.
fn protocol(method: &str, data: Value) -> Value {
    json!({"type": "event", "seq": 1, "method": method, "params": {"namespace": [], "timestamp": 1, "data": data}})
}

#[test]
fn mixed_messages_of_protocol_v2_are_emitted_complete() {
    let message = |data: Value| protocol("messages", data);
    let start = |id: &str| message(json!({"event": "message-start", "role": "ai", "id": id}));
    let delta = |text: &str| {
        message(
            json!({"event": "content-block-delta", "index": 0, "delta": {"type": "text-delta", "text": text}}),
        )
    };
    let done = |text: &str| {
        message(
            json!({"event": "content-block-finish", "index": 0, "content": {"type": "text", "text": text}}),
        )
    };
    let finish = || message(json!({"event": "message-finish", "usage": {"input_tokens": 1}}));
    let lines = [
        protocol("lifecycle", json!({"event": "running"})),
        start("a"),
        delta("A one"),
        start("b"),
        delta("B "),
        delta(" two"),
        delta("one"),
        done("B one"),
        finish(),
        done("A one two"),
        finish(),
        start("c"),
        delta("alone"),
        done("alone"),
        finish(),
        protocol("lifecycle", json!({"event": "completed"})),
    ];
    let output = read_lines(&lines, &[]);
    assert_eq!(
        output.summaries_of(TEXT),
        [
            "text a",
            "+ a A one",
            "text b",
            "+ b B one",
            "text-end b",
            "+ a  two",
            "text-end a",
            "text c",
            "+ c alone",
            "text-end c",
        ]
    );
    let crate::event::Body::RunFinished(finished) = &output.events.last().unwrap().body else { panic!() };
    assert_eq!(finished.usage[0].input, Some(3));
}

#[test]
fn equal_chunks_are_read_like_different_ones_after_another_model_has_ended() {
    let text = |run: &str, text: &str| chunk(run, json!({"id": format!("m-{run}"), "content": text}));
    let lines = in_node(
        &[
            text("A", "one "),
            text("B", "uno "),
            text("A", "two "),
            text("B", "dos "),
            model_end("A", json!({"id": "m-A", "content": "one two "})),
            text("B", "\"tres\" "),
            text("C", "eins "),
            text("C", "漢\u{1} "),
            text("B", "cuatro "),
        ],
        json!({}),
    );
    let mut different = lines.clone();
    for (index, line) in different.iter_mut().enumerate() {
        // An unknown member that no template matches.
        line["n"] = index.into();
    }
    let output = read_lines(&lines, &[]);
    assert_eq!(output.events, read_lines(&different, &[]).events);
    let deltas = output.events.iter().filter_map(|event| match &event.body {
        Body::TextDelta { delta, .. } => Some(&**delta),
        _ => None,
    });
    assert_eq!(deltas.collect::<String>(), "one uno two dos \"tres\" eins 漢\u{1} cuatro ");
}
