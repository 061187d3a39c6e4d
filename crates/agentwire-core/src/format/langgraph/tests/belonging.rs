//! Which message, which call and which run something belongs to, where the stream says it badly.

use serde_json::{Value, json};

use super::{event, in_node, model_end, node, root, tell, tell_frames};

const TEXT: &[&str] = &["text", "+", "text-end"];
const CALLS: &[&str] = &["call", "args", "call-end", "result"];
const RUN: &str = "lc_run--01a1e1c2-a202-7639-9087-7bbb2ffec1c6";

/// A frame of a model in node `n`, as LangGraph sends it.
fn piece(id: &str, content: Value, more: Value) -> (&'static str, Value) {
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
fn a_message_that_is_named_on_its_first_chunk_only_is_one_message() {
    let frames = [
        piece("resp_1", json!([]), json!({})),
        piece(RUN, json!([{"type": "text", "text": "Hel", "index": 0}]), json!({})),
        piece(RUN, json!([{"type": "text", "text": "lo", "index": 0}]), json!({})),
        piece(RUN, json!([]), last()),
        returned("resp_1", "Hello"),
    ];
    let told = tell_frames(&frames, &[]);
    assert_eq!(told.lines(TEXT), ["text resp_1", "+ resp_1 Hel", "+ resp_1 lo", "text-end resp_1"]);
    assert_eq!(tell_frames(&frames[..4], &[]).last(), "finish", "the last chunk was there");
    assert!(tell_frames(&frames[..3], &[]).last().starts_with("error STREAM_TRUNCATED"));
}

#[test]
fn calls_of_a_message_that_is_named_once_are_made_once() {
    let call = |id: Value, name: Value, args: &str| {
        let chunk = json!({"id": id, "name": name, "args": args, "index": 0});
        piece(RUN, json!([]), json!({"tool_call_chunks": [chunk]}))
    };
    let whole = json!({"type": "ai", "id": "resp_1", "content": [], "tool_calls": [{"id": "c", "name": "f", "args": {}}]});
    let frames = [
        piece("resp_1", json!([]), json!({})),
        call(json!("c"), json!("f"), ""),
        call(Value::Null, Value::Null, "{}"),
        piece(RUN, json!([]), last()),
        ("updates", json!({"n": {"messages": [whole]}})),
    ];
    assert_eq!(tell_frames(&frames, &[]).lines(CALLS), ["call c f in resp_1", "args c {}", "call-end c"]);
}

#[test]
fn an_empty_last_chunk_under_another_id_ends_the_message() {
    let frames = [
        piece("chatcmpl-1", json!("Hel"), json!({})),
        piece("chatcmpl-1", json!("lo"), json!({})),
        piece(RUN, json!(""), last()),
    ];
    let told = tell_frames(&frames, &[]);
    assert_eq!(
        told.lines(TEXT),
        ["text chatcmpl-1", "+ chatcmpl-1 Hel", "+ chatcmpl-1 lo", "text-end chatcmpl-1"]
    );
    assert_eq!(told.last(), "finish");
}

#[test]
fn a_name_that_comes_late_is_of_the_message_that_streams() {
    let frames = [
        piece(RUN, json!("Hel"), json!({})),
        piece("gen-1", json!("lo"), json!({})),
        piece(RUN, json!(""), last()),
        returned("gen-1", "Hello"),
    ];
    let told = tell_frames(&frames, &[]);
    assert_eq!(told.lines(&["text"]).len(), 1);
    assert_eq!(told.lines(&["+"]), [format!("+ {RUN} Hel"), format!("+ {RUN} lo")]);
}

#[test]
fn models_that_take_turns_in_one_node_stay_apart() {
    let other = RUN.replace("01a1", "02b2");
    let frames = [
        piece("a", json!("1"), json!({})),
        piece("a", json!("2"), json!({})),
        piece(RUN, json!(""), last()),
        // A model that is never named follows.
        piece(&other, json!("3"), json!({})),
        piece(&other, json!("4"), last()),
    ];
    assert_eq!(
        tell_frames(&frames, &[]).lines(&["+"]),
        ["+ a 1".to_owned(), "+ a 2".into(), format!("+ {other} 3"), format!("+ {other} 4")]
    );
}

#[test]
fn repeated_messages_that_are_named_once_are_one_message() {
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
        tell_frames(&frames, &[]).lines(TEXT),
        ["text resp_1", "+ resp_1 Hel", "+ resp_1 lo", "text-end resp_1"]
    );
}

#[test]
fn what_a_model_streams_without_a_graph_is_read() {
    let chunk = |text: &str, at: Value| json!({"type": "AIMessageChunk", "id": "m", "content": text, "chunk_position": at});
    let lines = [chunk("a", Value::Null), chunk("b", Value::Null), chunk("", json!("last"))];
    assert_eq!(tell(&lines, &[]).story(), ["start t r", "text m", "+ m a", "+ m b", "text-end m", "finish"]);
}

fn tool(kind: &str, run: &str, data: Value) -> Value {
    event(kind, "f", run, &["R", "N"], data)
}

fn answer(call: &str, text: &str) -> Value {
    json!({"output": {"type": "tool", "content": text, "tool_call_id": call}})
}

#[test]
fn a_tool_that_is_tried_again_works_on_the_same_call() {
    let failed =
        json!({"error": {"error": "ValueError", "message": "flaky"}, "input": {}, "tool_call_id": null});
    let inner = [
        model_end("M", json!({"id": "m", "tool_calls": [{"id": "c", "name": "f", "args": {}}]})),
        tool("on_tool_start", "T1", json!({"input": {}})),
        tool("on_tool_error", "T1", failed.clone()),
        tool("on_tool_start", "T2", json!({"input": {}})),
        tool("on_tool_error", "T2", failed),
        tool("on_tool_start", "T3", json!({"input": {}})),
        tool("on_tool_end", "T3", answer("c", "finally")),
    ];
    let told = tell(&in_node(&inner, json!({})), &[]);
    assert_eq!(told.lines(CALLS), ["call c f in m", "args c {}", "call-end c", "result c finally"]);
    assert_eq!(told.last(), "finish");
}

#[test]
fn equal_calls_have_one_result_each_in_whatever_order_they_run() {
    let call = |id: &str| json!({"id": id, "name": "f", "args": {"x": 1}});
    let inner = [
        model_end("M", json!({"id": "m", "tool_calls": [call("a"), call("b"), call("c")]})),
        tool("on_tool_start", "T1", json!({"input": {"x": 1}})),
        // Only the end says that it was the second one.
        tool("on_tool_end", "T1", answer("b", "two")),
        tool("on_tool_start", "T2", json!({"input": {"x": 1}})),
        tool("on_tool_error", "T2", json!({"error": "ValueError('x')", "tool_call_id": "c"})),
        tool("on_tool_start", "T3", json!({"input": {"x": 1}})),
        tool("on_tool_end", "T3", answer("a", "one")),
    ];
    let told = tell(&in_node(&inner, json!({})), &[]);
    assert_eq!(told.lines(&["call"]).len(), 3);
    assert_eq!(told.lines(&["result"]), ["result b two", "result a one", "result c ValueError('x') !"]);
    assert_eq!(told.last(), "finish");
}

#[test]
fn a_node_that_is_tried_again_is_a_step_of_its_own() {
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        node("on_chain_start", "n", "N1", "n:1", json!({"input": {}})),
        // The first attempt failed; LangChain does not say so.
        node("on_chain_start", "n", "N2", "n:1", json!({"input": {}})),
        node("on_chain_end", "n", "N2", "n:1", json!({"output": {}})),
        root("on_chain_end", json!({"output": {}})),
    ];
    assert_eq!(
        tell(&lines, &[]).lines(&["step", "step-end"]),
        ["step n", "step-end n", "step n", "step-end n"]
    );
}

#[test]
fn a_node_that_hands_over_ends_before_the_next_one() {
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
        tell(&lines, &[]).lines(&["step", "step-end"]),
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

/// An event of a bridge that knows neither runs nor parents.
fn bare(kind: &str, data: Value) -> Value {
    json!({"event": kind, "data": data})
}

#[test]
fn events_without_runs_are_tied_together_by_their_names() {
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
    let story = tell(&lines, &[]).story();
    assert_eq!(
        story,
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
    // Without a chain around them they are a run, too, and the end of the stream is its end.
    let inner = tell(&lines[1..9], &[]);
    assert_eq!(inner.lines(&["step", "step-end", "finish"]), ["step plan", "step-end plan", "finish"]);
    assert!(tell(&lines[1..4], &[]).last().starts_with("error STREAM_TRUNCATED"), "a node is still open");
}

#[test]
fn an_action_without_a_run_is_answered_by_the_tool_of_its_name() {
    let lines = [
        bare("on_chain_start", json!({"name": "Agent"})),
        bare("on_agent_action", json!({"action": {"tool": "f", "tool_input": {"x": 1}}})),
        bare("on_tool_end", json!({"name": "f", "output": "ok"})),
        bare("on_chain_end", json!({"name": "Agent", "output": {}})),
    ];
    let told = tell(&lines, &[]);
    assert_eq!(told.lines(&["call"]).len(), 1);
    assert_eq!(told.lines(&["result"]), ["result agent-2 ok"]);
    assert_eq!(told.last(), "finish");
}

#[test]
fn an_end_that_says_neither_what_ran_nor_what_came_of_it_is_no_call() {
    let lines =
        in_node(&[json!({"event": "on_tool_end", "run_id": 7, "parent_ids": ["R"], "data": "x"})], json!({}));
    let told = tell(&lines, &[]);
    assert!(told.lines(CALLS).is_empty());
    assert_eq!(told.tally.count("wrong type", "on_tool_end data"), 1);
}

#[test]
fn an_id_that_is_used_again_after_its_answer_is_another_call() {
    // Servers that count the calls of each answer anew give every answer a `call_0`.
    let call = |message: &str, args: &str| {
        let chunk = json!({"id": "call_0", "name": "f", "args": args, "index": 0});
        piece(message, json!(""), json!({"tool_call_chunks": [chunk], "chunk_position": "last"}))
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
        // The old result stands in the list while the new call waits for its own.
        ("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}, a1, r1, a2]})),
        ("messages", json!([r2, meta])),
        ("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}, a1, r1, a2, r2]})),
    ];
    let told = tell_frames(&frames, &[]);
    assert_eq!(
        told.lines(CALLS),
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
    assert_eq!(told.last(), "finish");
    // What waits is the later call, although a result of its id is there.
    assert_eq!(tell_frames(&frames[..7], &[]).last(), r#"finish pending ["call_0#2"]"#);
    // The last list names them as the stream did, also if the thread has forgotten the first.
    let ids = |told: &super::Told| -> Vec<String> {
        let list = told.events.iter().rev().find_map(|event| match &event.body {
            crate::event::Body::MessagesSnapshot { messages } => Some(messages.clone()),
            _ => None,
        });
        let calls = list.unwrap().into_iter().flat_map(|message| message.tool_calls().to_vec());
        calls.map(|call| call.id.as_str().to_owned()).collect()
    };
    assert_eq!(ids(&told), ["call_0", "call_0#2"]);
    let mut short = frames.to_vec();
    short.push(("values", json!({"messages": [{"type": "human", "id": "u", "content": "go"}, a2, r2]})));
    assert_eq!(ids(&tell_frames(&short, &[])), ["call_0#2"]);
}
