//! What is said twice, happens twice, or goes on from an earlier run.

use serde_json::{Value, json};

use super::{event, node, root, tell, tell_frames};

const STEPS: &[&str] = &["step", "step-end"];
const CALLS: &[&str] = &["call", "args", "call-end", "result"];
const TEXT: &[&str] = &["text", "+", "text-end"];

fn starts(id: &str, name: &str, trigger: &str, input: Value) -> Value {
    json!({"id": id, "name": name, "input": input, "triggers": [trigger]})
}

fn ends(id: &str, name: &str, result: Value) -> Value {
    json!({"id": id, "name": name, "error": null, "result": result, "interrupts": []})
}

fn tool_message(id: &str, call: &str, text: &str) -> Value {
    json!({"type": "tool", "id": id, "content": text, "tool_call_id": call, "status": "success"})
}

/// A chunk of a model at a place of nested graphs.
fn piece(id: &str, place: &str, more: Value) -> (&'static str, Value) {
    let mut chunk = json!({"type": "AIMessageChunk", "id": id, "content": "", "chunk_position": null});
    for (key, value) in more.as_object().unwrap() {
        chunk[key] = value.clone();
    }
    ("messages", json!([chunk, {"langgraph_checkpoint_ns": place, "langgraph_step": 1}]))
}

#[test]
fn a_task_that_two_modes_tell_of_is_one_step() {
    let (start, end) = (starts("1", "n", "branch:to:n", json!({})), ends("1", "n", json!({})));
    let debug = |kind: &str, payload: &Value| json!({"step": 1, "type": kind, "payload": payload});
    let told = tell_frames(
        &[
            ("tasks", start.clone()),
            ("debug", debug("task", &start)),
            ("tasks", end.clone()),
            ("debug", debug("task_result", &end)),
        ],
        &[],
    );
    assert_eq!(told.story(), ["start t r", "step n", "step-end n", "finish"]);
}

#[test]
fn results_that_a_task_wrote_one_by_one_are_all_found() {
    let writes = json!([[tool_message("r1", "a", "one")], tool_message("r2", "b", "two")]);
    let calls = json!([{"id": "a", "name": "f", "args": {}}, {"id": "b", "name": "f", "args": {}}]);
    let ai = json!({"type": "ai", "id": "m", "content": "", "tool_calls": calls});
    let told = tell_frames(
        &[
            ("tasks", starts("1", "agent", "branch:to:agent", json!({}))),
            ("tasks", ends("1", "agent", json!({"messages": [ai]}))),
            ("tasks", starts("2", "tools", "branch:to:tools", json!({}))),
            ("tasks", ends("2", "tools", json!({"messages": {"$writes": writes}}))),
        ],
        &[],
    );
    assert_eq!(told.lines(&["result", "finish"]), ["result a one", "result b two", "finish"]);
}

#[test]
fn a_task_that_had_ended_before_the_interrupt_is_not_waited_for() {
    // It is announced again when the run goes on, but does not run.
    let resumed = [
        ("tasks", starts("1", "ask", "branch:to:ask", json!({}))),
        ("tasks", starts("2", "done", "branch:to:done", json!({}))),
        ("tasks", ends("1", "ask", json!({}))),
    ];
    let mut on = resumed.to_vec();
    on.push(("tasks", starts("3", "next", "branch:to:next", json!({}))));
    on.push(("tasks", ends("3", "next", json!({}))));
    let told = tell_frames(&on, &[]);
    assert_eq!(
        told.lines(STEPS),
        ["step ask", "step done", "step-end ask", "step-end done", "step next", "step-end next"]
    );
    assert_eq!(told.last(), "finish");
    for (mode, value) in [("values", json!({})), ("checkpoints", json!({"values": {}, "next": []}))] {
        let mut whole = resumed.to_vec();
        whole.push((mode, value));
        assert_eq!(tell_frames(&whole, &[]).last(), "finish", "the step is complete");
    }
    // Without any of these it may as well be running.
    assert!(tell_frames(&resumed, &[]).last().starts_with("error STREAM_TRUNCATED"));
    // A task that another one starts is no further step.
    let inner = [
        ("tasks", starts("1", "flow", "__start__", json!({}))),
        ("tasks", starts("2", "one", "__pregel_push", json!({}))),
        ("tasks", ends("2", "one", json!({}))),
        ("tasks", starts("3", "two", "__pregel_push", json!({}))),
        ("tasks", ends("3", "two", json!({}))),
    ];
    assert!(tell_frames(&inner, &[]).last().starts_with("error STREAM_TRUNCATED"));
}

#[test]
fn an_id_that_an_earlier_run_has_used_is_another_call() {
    let old = json!({"type": "ai", "id": "a1", "content": "", "tool_calls": [{"id": "c", "name": "f", "args": {}}]});
    let history =
        json!([{"type": "human", "id": "u1", "content": "go"}, old, tool_message("r1", "c", "old")]);
    let chunk = json!({"id": "c", "name": "f", "args": "{}", "index": 0});
    let meta = json!({"langgraph_checkpoint_ns": "tools:1", "langgraph_step": 4});
    let told = tell_frames(
        &[
            ("values", json!({"messages": history})),
            piece("a2", "agent:1", json!({"tool_call_chunks": [chunk], "chunk_position": "last"})),
            ("messages", json!([tool_message("r2", "c", "new"), meta])),
        ],
        &[],
    );
    assert_eq!(told.lines(CALLS), ["call c#2 f in a2", "args c#2 {}", "call-end c#2", "result c#2 new"]);
    assert_eq!(told.last(), "finish");
}

#[test]
fn graphs_beside_one_another_may_use_the_same_ids() {
    // Two helpers that follow the same script.
    let call = |place: &str| {
        let chunk = json!({"id": "s", "name": "f", "args": "{}", "index": 0});
        piece("m", place, json!({"tool_call_chunks": [chunk]}))
    };
    let says = |place: &str, text: &str| piece("m2", place, json!({"content": text}));
    let result = |place: &str, id: &str, text: &str| {
        let meta = json!({"langgraph_checkpoint_ns": place, "langgraph_step": 2});
        ("messages", json!([tool_message(id, "s", text), meta]))
    };
    let last = |id: &str, place: &str| piece(id, place, json!({"chunk_position": "last"}));
    let told = tell_frames(
        &[
            call("help:1|model:1"),
            call("help:2|model:2"),
            last("m", "help:1|model:1"),
            last("m", "help:2|model:2"),
            result("help:2|tools:4", "r2", "for the second"),
            result("help:1|tools:3", "r1", "for the first"),
            says("help:1|model:5", "one"),
            says("help:2|model:6", "two"),
            says("help:1|model:5", " more"),
            last("m2", "help:1|model:5"),
            last("m2", "help:2|model:6"),
            // And one that comes after both.
            says("help:3|model:7", "three"),
            last("m2", "help:3|model:7"),
        ],
        &["steps=none"],
    );
    assert_eq!(
        told.lines(CALLS),
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
        told.lines(TEXT),
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
    assert_eq!(told.last(), "finish");
}

/// A node of a graph inside the node `outer`.
fn nested(kind: &str, name: &str, run: &str, ns: &str, data: Value) -> Value {
    let mut nested = node(kind, name, run, ns, data);
    nested["parent_ids"] = json!(["R", "O", "G"]);
    nested
}

#[test]
fn a_nested_run_that_goes_on_shows_the_call_that_its_tool_answers() {
    // The outer graph's conversation does not have the call; the nested one does.
    let asks = json!({"type": "ai", "id": "in1", "content": "I pay.", "usage_metadata": {"input_tokens": 9},
        "tool_calls": [{"id": "c", "name": "pay", "args": {"amount": 5}}]});
    let human = json!({"type": "human", "id": "u", "content": "go"});
    let answer = tool_message("r", "c", "paid");
    let lines = |input: Value| {
        let mut tool =
            event("on_tool_start", "pay", "T", &["R", "O", "G", "N"], json!({"input": {"amount": 5}}));
        tool["metadata"] = json!({"langgraph_checkpoint_ns": "outer:1|tools:2"});
        let mut end = event("on_tool_end", "pay", "T", &["R", "O", "G", "N"], json!({"output": answer}));
        end["metadata"] = tool["metadata"].clone();
        let all = json!({"messages": [human, asks, answer]});
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
    let told = tell(&lines(json!({"messages": [human, asks]})), &[]);
    assert_eq!(
        told.lines(CALLS),
        ["call c pay in in1", r#"args c {"amount":5}"#, "call-end c", "result c paid"]
    );
    assert_eq!(told.lines(&["+"]), ["+ in1 I pay."]);
    assert_eq!(told.last(), "finish");
    let crate::event::Body::RunFinished(finished) = &told.events.last().unwrap().body else { panic!() };
    assert!(finished.usage.is_empty(), "the earlier run has paid for it");
    // An agent gives its tools one call each.
    let given = json!([{"id": "c", "name": "pay", "args": {"amount": 5}, "type": "tool_call"}]);
    let told = tell(&lines(given), &[]);
    assert_eq!(
        told.lines(CALLS),
        ["call c pay in -", r#"args c {"amount":5}"#, "call-end c", "result c paid"]
    );
    assert_eq!(told.lines(&["messages", "finish"]).last().unwrap(), "finish");
}

#[test]
fn what_was_shown_behind_the_last_known_conversation_stays() {
    let calls = json!([{"id": "a", "name": "f", "args": {}}, {"id": "b", "name": "f", "args": {}}]);
    let ai = json!({"type": "ai", "id": "m", "content": "", "tool_calls": calls});
    let checkpoint = json!({"values": {"messages": [ai]}, "next": ["tools", "tools"]});
    let call = |id: &str| json!([{"id": id, "name": "f", "args": {}, "type": "tool_call"}]);
    let stopped = json!({"id": "2", "name": "tools", "error": null, "result": {},
        "interrupts": [{"id": "i", "value": "?"}]});
    let debug = |kind: &str, payload: Value| ("debug", json!({"step": 1, "type": kind, "payload": payload}));
    let told = tell_frames(
        &[
            debug("checkpoint", checkpoint),
            debug("task", starts("1", "tools", "__pregel_push", call("a"))),
            debug("task", starts("2", "tools", "__pregel_push", call("b"))),
            debug("task_result", ends("1", "tools", json!({"messages": [tool_message("r", "a", "done")]}))),
            debug("task_result", stopped),
        ],
        &[],
    );
    // The checkpoint is older than the result, and a list without the result would take it away.
    assert_eq!(
        told.lines(&["messages", "result", "finish"]),
        ["messages m", "result a done", "finish interrupt i(b)"]
    );
}

#[test]
fn messages_in_short_are_messages() {
    // A state without a reducer keeps what it was given.
    let ai = json!({"type": "ai", "id": "m", "content": "hi"});
    let told = tell_frames(&[("values", json!({"messages": [["user", "hello"], "and?", ai]}))], &[]);
    assert_eq!(told.lines(&["messages"]).last().unwrap(), "messages message-0 message-1 m");
    assert!(told.tally.is_empty(), "{:?}", told.tally);
}

#[test]
fn a_call_without_an_id_that_is_repeated_is_one_call() {
    let call = json!({"id": null, "name": "f", "args": {"x": 1}, "type": "tool_call"});
    let ai = json!({"type": "ai", "id": "m", "content": "", "tool_calls": [call]});
    let told = tell_frames(&[("messages/partial", json!([ai])), ("values", json!({"messages": [ai]}))], &[]);
    assert_eq!(told.lines(CALLS), ["call m-call-0 f in m", r#"args m-call-0 {"x":1}"#, "call-end m-call-0"]);
}

#[test]
fn the_end_of_a_step_is_the_end_of_its_answers() {
    // Accumulated messages do not say when they are complete, and their calls wait for it.
    let call = json!({"id": "c", "name": "f", "args": {}, "type": "tool_call"});
    let ai = json!({"type": "ai", "id": "in1", "content": "", "tool_calls": [call]});
    let meta = |place: &str, step: u32| json!({"langgraph_checkpoint_ns": place, "langgraph_step": step, "ls_model_name": "x"});
    let told = |between: &[(&'static str, Value)]| {
        let mut frames = vec![
            ("messages/metadata", json!({"in1": {"metadata": meta("sub:1|agent:2", 1)}})),
            ("messages/partial", json!([ai])),
        ];
        frames.extend_from_slice(between);
        frames.push(("messages/complete", json!([tool_message("r", "c", "done")])));
        tell_frames(&frames, &["steps=none"])
    };
    let shown = ["call c f in in1", "args c {}", "call-end c", "result c done"];
    assert_eq!(told(&[("values|sub:1", json!({"messages": [ai]}))]).lines(CALLS), shown);
    let reached = json!({"r": {"metadata": meta("sub:1|tools:3", 2)}});
    assert_eq!(told(&[("messages/metadata", reached)]).lines(CALLS), shown);
}

#[test]
fn a_call_that_is_stated_again_by_a_hand_over_is_one_call() {
    let chunk = json!({"id": "h", "name": "to_b", "args": "{}", "index": 0});
    let again = json!({"type": "ai", "id": "other", "content": "", "tool_calls": [{"id": "h", "name": "to_b", "args": {}}]});
    let told = tell_frames(
        &[
            piece("m", "a:1|agent:2", json!({"tool_call_chunks": [chunk], "chunk_position": "last"})),
            ("updates", json!({"a": {"messages": [again, tool_message("r", "h", "handed")]}})),
            ("values", json!({"messages": [again, tool_message("r", "h", "handed")]})),
        ],
        &["steps=none"],
    );
    assert_eq!(told.lines(CALLS), ["call h to_b in m", "args h {}", "call-end h", "result h handed"]);
    assert_eq!(told.last(), "finish");
    // The result stands behind its call, wherever the list has moved that to.
    assert_eq!(told.lines(&["messages"]).last().unwrap(), "messages other r");
}

/// An event of protocol v2 in the outermost graph.
fn protocol(method: &str, data: Value) -> Value {
    json!({"type": "event", "seq": 1, "method": method, "params": {"namespace": [], "timestamp": 1, "data": data}})
}

#[test]
fn messages_that_protocol_v2_mixes_come_whole() {
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
    let told = tell(&lines, &[]);
    assert_eq!(
        told.lines(TEXT),
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
    let crate::event::Body::RunFinished(finished) = &told.events.last().unwrap().body else { panic!() };
    assert_eq!(finished.usage[0].input, Some(3));
}
