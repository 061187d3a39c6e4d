//! Correlation of chunks, results and events with their message, tool call and run, where ids are missing or change.

use serde_json::{Value, json};

use super::{event, in_node, model_end, node, read_frames, read_lines, root};

const TEXT: &[&str] = &["text", "+", "text-end"];
const CALLS: &[&str] = &["call", "args", "call-end", "result"];
const RUN: &str = "lc_run--01a1e1c2-a202-7639-9087-7bbb2ffec1c6";

/// A frame of a model in node `n`, as LangGraph sends it.
fn model_chunk(id: &str, content: Value, more: Value) -> (&'static str, Value) {
    let mut chunk = json!({"type": "AIMessageChunk", "id": id, "content": content, "chunk_position": null,
        "tool_call_chunks": [], "additional_kwargs": {}});
    for (key, value) in more.as_object().unwrap() {
        chunk[key] = value.clone();
    }
    let meta = json!({"langgraph_checkpoint_ns": "n:1", "langgraph_step": 1, "ls_provider": "p", "ls_model_name": "m"});
    ("messages", json!([chunk, meta]))
}

fn last() -> Value {
    json!({"chunk_position": "last"})
}

fn returned(id: &str, content: &str) -> (&'static str, Value) {
    ("updates", json!({"n": {"messages": [{"type": "ai", "id": id, "content": content}]}}))
}

#[test]
fn id_on_the_first_chunk_only_is_one_message() {
    let frames = [
        model_chunk("resp_1", json!([]), json!({})),
        model_chunk(RUN, json!([{"type": "text", "text": "Hel", "index": 0}]), json!({})),
        model_chunk(RUN, json!([{"type": "text", "text": "lo", "index": 0}]), json!({})),
        model_chunk(RUN, json!([]), last()),
        returned("resp_1", "Hello"),
    ];
    let output = read_frames(&frames, &[]);
    assert_eq!(output.summaries_of(TEXT), ["text resp_1", "+ resp_1 Hel", "+ resp_1 lo", "text-end resp_1"]);
    assert_eq!(read_frames(&frames[..4], &[]).last(), "finish", "the last chunk was received");
    assert!(read_frames(&frames[..3], &[]).last().starts_with("error STREAM_TRUNCATED"));
}

#[test]
fn id_on_the_first_chunk_only_emits_calls_once() {
    let call = |id: Value, name: Value, args: &str| {
        let chunk = json!({"id": id, "name": name, "args": args, "index": 0});
        model_chunk(RUN, json!([]), json!({"tool_call_chunks": [chunk]}))
    };
    let complete = json!({"type": "ai", "id": "resp_1", "content": [], "tool_calls": [{"id": "c", "name": "f", "args": {}}]});
    let frames = [
        model_chunk("resp_1", json!([]), json!({})),
        call(json!("c"), json!("f"), ""),
        call(Value::Null, Value::Null, "{}"),
        model_chunk(RUN, json!([]), last()),
        ("updates", json!({"n": {"messages": [complete]}})),
    ];
    assert_eq!(
        read_frames(&frames, &[]).summaries_of(CALLS),
        ["call c f in resp_1", "args c {}", "call-end c"]
    );
}

#[test]
fn empty_last_chunk_with_another_id_ends_the_message() {
    let frames = [
        model_chunk("chatcmpl-1", json!("Hel"), json!({})),
        model_chunk("chatcmpl-1", json!("lo"), json!({})),
        model_chunk(RUN, json!(""), last()),
    ];
    let output = read_frames(&frames, &[]);
    assert_eq!(
        output.summaries_of(TEXT),
        ["text chatcmpl-1", "+ chatcmpl-1 Hel", "+ chatcmpl-1 lo", "text-end chatcmpl-1"]
    );
    assert_eq!(output.last(), "finish");
}

#[test]
fn late_id_belongs_to_the_open_message() {
    let frames = [
        model_chunk(RUN, json!("Hel"), json!({})),
        model_chunk("gen-1", json!("lo"), json!({})),
        model_chunk(RUN, json!(""), last()),
        returned("gen-1", "Hello"),
    ];
    let output = read_frames(&frames, &[]);
    assert_eq!(output.summaries_of(&["text"]).len(), 1);
    assert_eq!(output.summaries_of(&["+"]), [format!("+ {RUN} Hel"), format!("+ {RUN} lo")]);
}

#[test]
fn successive_models_in_one_node_stay_apart() {
    let other = RUN.replace("01a1", "02b2");
    let frames = [
        model_chunk("a", json!("1"), json!({})),
        model_chunk("a", json!("2"), json!({})),
        model_chunk(RUN, json!(""), last()),
        // A model without ids from its provider follows.
        model_chunk(&other, json!("3"), json!({})),
        model_chunk(&other, json!("4"), last()),
    ];
    assert_eq!(
        read_frames(&frames, &[]).summaries_of(&["+"]),
        ["+ a 1".to_owned(), "+ a 2".into(), format!("+ {other} 3"), format!("+ {other} 4")]
    );
}

#[test]
fn accumulated_message_with_a_changed_id_is_one_message() {
    let partial =
        |id: &str, text: &str| ("messages/partial", json!([{"type": "ai", "id": id, "content": text}]));
    let meta = |id: &str| {
        let meta = json!({"langgraph_checkpoint_ns": "n:1", "ls_model_name": "m"});
        ("messages/metadata", json!({id: {"metadata": meta}}))
    };
    let frames = [
        meta("resp_1"),
        partial("resp_1", ""),
        meta(RUN),
        partial(RUN, "Hel"),
        partial(RUN, "Hello"),
        returned("resp_1", "Hello"),
    ];
    assert_eq!(
        read_frames(&frames, &[]).summaries_of(TEXT),
        ["text resp_1", "+ resp_1 Hel", "+ resp_1 lo", "text-end resp_1"]
    );
}

#[test]
fn reads_chunks_of_a_model_without_a_graph() {
    let chunk = |text: &str, at: Value| json!({"type": "AIMessageChunk", "id": "m", "content": text, "chunk_position": at});
    let lines = [chunk("a", Value::Null), chunk("b", Value::Null), chunk("", json!("last"))];
    assert_eq!(
        read_lines(&lines, &[]).summaries(),
        ["start t r", "text m", "+ m a", "+ m b", "text-end m", "finish"]
    );
}

fn tool(kind: &str, run: &str, data: Value) -> Value {
    event(kind, "f", run, &["R", "N"], data)
}

fn tool_output(call: &str, text: &str) -> Value {
    json!({"output": {"type": "tool", "content": text, "tool_call_id": call}})
}

#[test]
fn retried_tool_executes_the_same_call() {
    let failed =
        json!({"error": {"error": "ValueError", "message": "flaky"}, "input": {}, "tool_call_id": null});
    let inner = [
        model_end("M", json!({"id": "m", "tool_calls": [{"id": "c", "name": "f", "args": {}}]})),
        tool("on_tool_start", "T1", json!({"input": {}})),
        tool("on_tool_error", "T1", failed.clone()),
        tool("on_tool_start", "T2", json!({"input": {}})),
        tool("on_tool_error", "T2", failed),
        tool("on_tool_start", "T3", json!({"input": {}})),
        tool("on_tool_end", "T3", tool_output("c", "finally")),
    ];
    let output = read_lines(&in_node(&inner, json!({})), &[]);
    assert_eq!(output.summaries_of(CALLS), ["call c f in m", "args c {}", "call-end c", "result c finally"]);
    assert_eq!(output.last(), "finish");
}

#[test]
fn equal_calls_have_one_result_each_in_any_order() {
    let call = |id: &str| json!({"id": id, "name": "f", "args": {"x": 1}});
    let inner = [
        model_end("M", json!({"id": "m", "tool_calls": [call("a"), call("b"), call("c")]})),
        tool("on_tool_start", "T1", json!({"input": {"x": 1}})),
        // Only the end identifies the second call.
        tool("on_tool_end", "T1", tool_output("b", "two")),
        tool("on_tool_start", "T2", json!({"input": {"x": 1}})),
        tool("on_tool_error", "T2", json!({"error": "ValueError('x')", "tool_call_id": "c"})),
        tool("on_tool_start", "T3", json!({"input": {"x": 1}})),
        tool("on_tool_end", "T3", tool_output("a", "one")),
    ];
    let output = read_lines(&in_node(&inner, json!({})), &[]);
    assert_eq!(output.summaries_of(&["call"]).len(), 3);
    assert_eq!(
        output.summaries_of(&["result"]),
        ["result b two", "result a one", "result c ValueError('x') !"]
    );
    assert_eq!(output.last(), "finish");
}

#[test]
fn retried_node_is_a_separate_step() {
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        node("on_chain_start", "n", "N1", "n:1", json!({"input": {}})),
        // The first attempt failed; LangChain does not report it.
        node("on_chain_start", "n", "N2", "n:1", json!({"input": {}})),
        node("on_chain_end", "n", "N2", "n:1", json!({"output": {}})),
        root("on_chain_end", json!({"output": {}})),
    ];
    assert_eq!(
        read_lines(&lines, &[]).summaries_of(&["step", "step-end"]),
        ["step n", "step-end n", "step n", "step-end n"]
    );
}

#[test]
fn node_that_hands_over_ends_before_the_next_one() {
    let mut bob = node("on_chain_start", "bob", "B", "bob:2", json!({"input": {}}));
    bob["metadata"]["langgraph_step"] = json!(2);
    let mut inner = node("on_chain_start", "leave", "I", "alice:1|leave:1", json!({"input": {}}));
    inner["parent_ids"] = json!(["R", "A", "G"]);
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        node("on_chain_start", "alice", "A", "alice:1", json!({"input": {}})),
        inner,
        bob,
        root("on_chain_end", json!({"output": {}})),
    ];
    assert_eq!(
        read_lines(&lines, &[]).summaries_of(&["step", "step-end"]),
        [
            "step alice",
            "step alice/leave",
            "step-end alice/leave",
            "step-end alice",
            "step bob",
            "step-end bob"
        ]
    );
}

/// An event of a bridge without run ids and parents.
fn bare(kind: &str, data: Value) -> Value {
    json!({"event": kind, "data": data})
}

#[test]
fn events_without_run_ids_are_matched_by_name() {
    let lines = [
        bare("on_chain_start", json!({"name": "Graph"})),
        bare("on_node_start", json!({"name": "plan"})),
        bare("on_tool_start", json!({"name": "search", "input": {"q": 1}})),
        bare("on_tool_start", json!({"name": "search", "input": {"q": 2}})),
        bare("on_tool_end", json!({"name": "search", "output": "one"})),
        bare("on_tool_end", json!({"name": "search", "output": {"n": 2}})),
        bare("on_node_end", json!({"name": "plan"})),
        bare("on_chat_model_stream", json!({"chunk": {"content": "Hel"}})),
        bare("on_chat_model_stream", json!({"chunk": {"content": "lo"}})),
        bare("on_chain_end", json!({"name": "Graph", "output": {}})),
    ];
    let summaries = read_lines(&lines, &[]).summaries();
    assert_eq!(
        summaries,
        [
            "start t r",
            "step plan",
            "call search-3 search in -",
            "args search-3 {\"q\":1}",
            "call-end search-3",
            "call search-4 search in -",
            "args search-4 {\"q\":2}",
            "call-end search-4",
            "result search-3 one",
            "result search-4 {\"n\":2}",
            "step-end plan",
            "text lc_run--chat_model-5",
            "+ lc_run--chat_model-5 Hel",
            "+ lc_run--chat_model-5 lo",
            "text-end lc_run--chat_model-5",
            "finish",
        ]
    );
    // Without a chain around them they are a run, too, which ends with the stream.
    let inner = read_lines(&lines[1..9], &[]);
    assert_eq!(inner.summaries_of(&["step", "step-end", "finish"]), ["step plan", "step-end plan", "finish"]);
    assert!(
        read_lines(&lines[1..4], &[]).last().starts_with("error STREAM_TRUNCATED"),
        "a node is still open"
    );
}

#[test]
fn action_without_a_run_id_gets_the_result_of_its_tool() {
    let lines = [
        bare("on_chain_start", json!({"name": "Agent"})),
        bare("on_agent_action", json!({"action": {"tool": "f", "tool_input": {"x": 1}}})),
        bare("on_tool_end", json!({"name": "f", "output": "ok"})),
        bare("on_chain_end", json!({"name": "Agent", "output": {}})),
    ];
    let output = read_lines(&lines, &[]);
    assert_eq!(output.summaries_of(&["call"]).len(), 1);
    assert_eq!(output.summaries_of(&["result"]), ["result agent-2 ok"]);
    assert_eq!(output.last(), "finish");
}

#[test]
fn tool_end_without_name_and_output_is_not_a_call() {
    let lines =
        in_node(&[json!({"event": "on_tool_end", "run_id": 7, "parent_ids": ["R"], "data": "x"})], json!({}));
    let output = read_lines(&lines, &[]);
    assert!(output.summaries_of(CALLS).is_empty());
    assert_eq!(output.tally.count("wrong type", "on_tool_end data"), 1);
}

#[test]
fn call_id_reused_after_its_result_is_another_call() {
    // Servers that number the calls of each message start with `call_0` every time.
    let call = |message: &str, args: &str| {
        let chunk = json!({"id": "call_0", "name": "f", "args": args, "index": 0});
        model_chunk(message, json!(""), json!({"tool_call_chunks": [chunk], "chunk_position": "last"}))
    };
    let ai = |id: &str, args: Value| {
        let calls = json!([{"id": "call_0", "name": "f", "args": args}]);
        json!({"type": "ai", "id": id, "content": "", "tool_calls": calls})
    };
    let result =
        |id: &str, text: &str| json!({"type": "tool", "id": id, "content": text, "tool_call_id": "call_0"});
    let meta = json!({"langgraph_checkpoint_ns": "t:1", "langgraph_step": 2});
    let (a1, a2) = (ai("a1", json!({"x": 1})), ai("a2", json!({"x": 2})));
    let (r1, r2) = (result("r1", "one"), result("r2", "two"));
    let frames = [
        ("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}]})),
        call("a1", r#"{"x":1}"#),
        ("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}, a1]})),
        ("messages", json!([r1, meta])),
        ("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}, a1, r1]})),
        call("a2", r#"{"x":2}"#),
        // The list contains the old result; the new call has none yet.
        ("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}, a1, r1, a2]})),
        ("messages", json!([r2, meta])),
        ("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}, a1, r1, a2, r2]})),
    ];
    let output = read_frames(&frames, &[]);
    assert_eq!(
        output.summaries_of(CALLS),
        [
            "call call_0 f in a1",
            r#"args call_0 {"x":1}"#,
            "call-end call_0",
            "result call_0 one",
            "call call_0#2 f in a2",
            r#"args call_0#2 {"x":2}"#,
            "call-end call_0#2",
            "result call_0#2 two",
        ]
    );
    assert_eq!(output.last(), "finish");
    // The later call is pending, although there is a result for its id.
    assert_eq!(read_frames(&frames[..7], &[]).last(), r#"finish pending ["call_0#2"]"#);
    // The last snapshot uses the same ids as the stream, even if the thread has dropped the first call.
    let ids = |output: &super::ReadOutput| -> Vec<String> {
        let list = output.events.iter().rev().find_map(|event| match &event.body {
            crate::event::Body::MessagesSnapshot { messages } => Some(messages.clone()),
            _ => None,
        });
        let calls = list.unwrap().into_iter().flat_map(|message| message.tool_calls().to_vec());
        calls.map(|call| call.id.as_str().to_owned()).collect()
    };
    assert_eq!(ids(&output), ["call_0", "call_0#2"]);
    let mut short = frames.to_vec();
    short.push(("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}, a2, r2]})));
    assert_eq!(ids(&read_frames(&short, &[])), ["call_0#2"]);
}
