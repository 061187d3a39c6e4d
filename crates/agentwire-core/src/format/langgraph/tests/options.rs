//! Effects of the options.

use serde_json::json;

use super::{chunk, event, in_node, model_end, node, read_frames, read_lines, root};
use crate::event::Body;

#[test]
fn chains_can_be_shown_as_reasoning() {
    let mut inner = event("on_chain_start", "RunnableSequence", "C", &["R", "N"], json!({}));
    inner["tags"] = json!(["seq:step:1"]);
    let mut end = event("on_chain_end", "RunnableSequence", "C", &["R", "N"], json!({"output": 1}));
    end["tags"] = json!(["seq:step:1"]);
    let output = read_lines(&in_node(&[inner, end], json!({})), &["thinking=chains", "steps=none"]);
    assert_eq!(
        output.summaries(),
        [
            "start t R",
            "think chain-R LangGraph",
            "think chain-N n",
            "think chain-C RunnableSequence",
            "think-end chain-C",
            "think-end chain-N",
            "think-end chain-R",
            "finish",
        ]
    );
}

#[test]
fn steps_can_be_limited_to_nodes_with_tools() {
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        node("on_chain_start", "agent", "A", "agent:1", json!({"input": {}})),
        node("on_chain_end", "agent", "A", "agent:1", json!({"output": {}})),
        node("on_chain_start", "tools", "T", "tools:1", json!({"input": {}})),
        event("on_tool_start", "f", "F", &["R", "T"], json!({"input": {}})),
        event("on_tool_end", "f", "F", &["R", "T"], json!({"output": "ok"})),
        node("on_chain_end", "tools", "T", "tools:1", json!({"output": {}})),
        root("on_chain_end", json!({"output": {}})),
    ];
    let steps = |pair: &str| read_lines(&lines, &[pair]).summaries_of(&["step", "step-end"]);
    assert_eq!(steps("steps=nodes"), ["step agent", "step-end agent", "step tools", "step-end tools"]);
    assert_eq!(steps("steps=tools"), ["step tools", "step-end tools"]);
    assert!(steps("steps=none").is_empty());
}

#[test]
fn custom_events_without_the_marker_can_be_dropped() {
    let custom = |name: &str, data: serde_json::Value| event("on_custom_event", name, "N", &["R"], data);
    let lines = in_node(
        &[
            custom("agent_custom_event", json!({"name": "display_chart", "payload": {"a": 1}})),
            custom("agent_custom_event", json!({"payload": 1})),
            custom("agent_custom_event", json!({"name": "empty"})),
            custom("progress", json!(null)),
            custom("manually_emit_message", json!({"message_id": "x", "message": "hi"})),
        ],
        json!({}),
    );
    let output = read_lines(&lines, &[]);
    assert_eq!(
        output.summaries_of(&["custom", "+"]),
        [
            "custom display_chart {\"a\":1}",
            "custom agent_custom_event {\"payload\":1}",
            "custom empty null",
            "custom progress null",
            "+ x hi",
        ]
    );
    let output = read_lines(&lines, &["custom=marker-only"]);
    assert_eq!(
        output.summaries_of(&["custom", "+"]),
        ["custom display_chart {\"a\":1}", "custom agent_custom_event {\"payload\":1}", "custom empty null"]
    );
}

#[test]
fn reasoning_can_be_manual_only() {
    let thinking = json!({"id": "m", "content": [{"type": "thinking", "thinking": "hm", "index": 0}]});
    let lines = in_node(
        &[
            chunk("M", thinking.clone()),
            model_end("M", thinking),
            event(
                "on_custom_event",
                "agent_custom_event",
                "N",
                &["R"],
                json!({"name": "reasoning", "payload": "by hand"}),
            ),
        ],
        json!({}),
    );
    assert_eq!(read_lines(&lines, &["reasoning=manual"]).summaries_of(&["~"]), ["~ N-reasoning-1 by hand"]);
    let output = read_lines(&lines, &["reasoning=auto"]);
    assert_eq!(output.summaries_of(&["~", "custom"]), ["~ m-r0 hm", "custom reasoning \"by hand\""]);
}

#[test]
fn results_can_always_be_json() {
    let tool = |run: &str, output: serde_json::Value| {
        [
            event("on_tool_start", "f", run, &["R", "N"], json!({"input": {}})),
            event("on_tool_end", "f", run, &["R", "N"], json!({"output": output})),
        ]
    };
    let message = json!({"type": "tool", "content": "text", "tool_call_id": "c"});
    let lines = in_node(
        &[tool("A", json!("text")), tool("B", json!({"ü": [1]})), tool("C", message)].concat(),
        json!({}),
    );
    assert_eq!(
        read_lines(&lines, &[]).summaries_of(&["result"]),
        ["result A text", "result B {\"ü\":[1]}", "result C text"]
    );
    assert_eq!(
        read_lines(&lines, &["tool_result=json"]).summaries_of(&["result"]),
        ["result A \"text\"", "result B {\"ü\":[1]}", "result C \"text\""]
    );
}

#[test]
fn native_events_can_be_attached() {
    let lines = in_node(
        &[
            event("on_prompt_start", "p", "P", &["R", "N"], json!({})),
            chunk("M", json!({"id": "m", "content": "x"})),
        ],
        json!({}),
    );
    let output = read_lines(&lines, &["raw=on"]);
    let carried =
        output.events.iter().filter(|event| event.raw().is_some() || matches!(event.body, Body::Raw { .. }));
    assert_eq!(carried.count(), lines.len(), "each native event once: {:#?}", output.summaries());
    assert_eq!(output.summaries_of(&["raw"]).len(), 1, "the prompt became nothing else");
    assert!(read_lines(&lines, &[]).events.iter().all(|event| event.raw().is_none()));
    // The server sends the run id before the run starts, and frames after its end.
    let frames = [
        ("metadata", json!({"run_id": "R7", "attempt": 1})),
        ("updates", json!({"n": {}})),
        ("error", json!({"error": "ValueError", "message": "no"})),
        ("updates", json!({"n": {}})),
    ];
    let summaries = read_frames(&frames, &["raw=on"]).summaries();
    assert_eq!(summaries, ["start t R7", "raw", "step n", "step-end n", "error ValueError no"]);
}

#[test]
fn nodes_and_tags_can_be_hidden() {
    let call = json!([{"id": "c", "name": "f", "args": {}}]);
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        node("on_chain_start", "n", "N", "n:1", json!({"input": {}})),
        {
            let mut chunk = chunk("M", json!({"id": "secret", "content": "shh"}));
            chunk["tags"] = json!(["nostream"]);
            chunk["metadata"] = json!({"langgraph_node": "n", "langgraph_checkpoint_ns": "n:1"});
            chunk
        },
        model_end("M", json!({"id": "secret", "content": "shh", "tool_calls": call})),
        node(
            "on_chain_end",
            "n",
            "N",
            "n:1",
            json!({"output": {"messages": [{"type": "ai", "id": "secret", "content": "shh", "tool_calls": call}]}}),
        ),
        root(
            "on_chain_end",
            json!({"output": {"messages": [{"type": "ai", "id": "secret", "content": "shh"}, {"type": "ai", "id": "open", "content": "hi"}]}}),
        ),
    ];
    for pair in ["hide_nodes=x,n", "hide_tags=nostream"] {
        let output = read_lines(&lines, &[pair]);
        assert!(
            output.summaries_of(&["+", "call", "text"]).iter().all(|line| !line.contains("secret")),
            "{pair}: {:?}",
            output.summaries()
        );
        assert_eq!(output.summaries_of(&["messages"]), ["messages open"], "{pair}");
    }
    assert!(read_lines(&lines, &["hide_nodes=n"]).summaries_of(&["step"]).is_empty());
    let mut custom = event("on_custom_event", "chart", "N", &["R"], json!(1));
    custom["metadata"] = json!({"langgraph_node": "n", "langgraph_checkpoint_ns": "n:1"});
    let lines = in_node(&[custom], json!({}));
    assert_eq!(read_lines(&lines, &[]).summaries_of(&["custom"]), ["custom chart 1"]);
    let output = read_lines(&lines, &["hide_nodes=n", "thinking=chains"]);
    assert_eq!(output.summaries_of(&["custom", "think"]), ["think chain-R LangGraph"]);
    let frames = [
        (
            "messages",
            json!([{"type": "AIMessageChunk", "id": "m", "content": "x"}, {"langgraph_checkpoint_ns": "n:1", "tags": ["quiet"]}]),
        ),
        ("updates", json!({"n": {"messages": [{"type": "ai", "id": "m", "content": "x"}]}})),
    ];
    for pair in ["hide_nodes=n", "hide_tags=quiet"] {
        assert!(read_frames(&frames, &[pair]).summaries_of(&["+"]).is_empty(), "{pair}");
    }
}

#[test]
fn interrupts_can_be_legacy_custom_events() {
    let chunk =
        json!({"chunk": {"__interrupt__": [{"value": {"q": 1}, "id": "0123456789abcdef0123456789abcdef"}]}});
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        root("on_chain_stream", chunk),
        root("on_chain_end", json!({"output": {}})),
    ];
    let custom = "custom on_interrupt {\"q\":1}";
    let outcome = "finish interrupt 0123456789abcdef0123456789abcdef";
    let output = |pair: &str| read_lines(&lines, &[pair]).summaries_of(&["custom", "finish"]);
    assert_eq!(output("interrupts=outcome"), [outcome]);
    assert_eq!(output("interrupts=legacy"), [custom, "finish"]);
    assert_eq!(output("interrupts=both"), [custom, outcome]);
}

#[test]
fn nested_graphs_can_be_subagents() {
    let at_namespace = |event: serde_json::Value, ns: &str, agent: &str| {
        let mut event = event;
        event["metadata"]["langgraph_checkpoint_ns"] = json!(ns);
        event["metadata"]["lc_agent_name"] = json!(agent);
        event
    };
    let mut inner = node("on_chain_start", "model", "I", "tools:1|model:2", json!({"input": {}}));
    inner["parent_ids"] = json!(["R", "N", "T", "G"]);
    let mut inner_end = node("on_chain_end", "model", "I", "tools:1|model:2", json!({"output": {}}));
    inner_end["parent_ids"] = json!(["R", "N", "T", "G"]);
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        model_end("M0", json!({"id": "m0", "tool_calls": [{"id": "c", "name": "ask", "args": {}}]})),
        node(
            "on_chain_start",
            "tools",
            "N",
            "tools:1",
            json!({"input": [{"name": "ask", "args": {}, "id": "c", "type": "tool_call"}]}),
        ),
        event("on_tool_start", "ask", "T", &["R", "N"], json!({"input": {}})),
        inner,
        at_namespace(chunk("M", json!({"id": "m", "content": "hi"})), "tools:1|model:2", "helper"),
        at_namespace(model_end("M", json!({"id": "m", "content": "hi"})), "tools:1|model:2", "helper"),
        inner_end,
        event(
            "on_tool_end",
            "ask",
            "T",
            &["R", "N"],
            json!({"output": {"type": "tool", "content": "hi", "tool_call_id": "c"}}),
        ),
        node("on_chain_end", "tools", "N", "tools:1", json!({"output": {}})),
        root("on_chain_end", json!({"output": {}})),
    ];
    let output = read_lines(&lines, &["subagents=on"]);
    assert_eq!(
        output.summaries_of(&["step", "step-end", "subagent", "subagent-end", "+", "result"]),
        [
            "step tools",
            "subagent tools @tools:1",
            "step tools/model @tools:1",
            "+ m hi @tools:1",
            "step-end tools/model @tools:1",
            "result c hi",
            "subagent-end @tools:1",
            "step-end tools",
        ]
    );
    let Some(Body::SubagentStarted(started)) =
        output.events.iter().map(|event| &event.body).find(|body| matches!(body, Body::SubagentStarted(_)))
    else {
        panic!()
    };
    assert_eq!(started.parent_call.as_deref(), Some("c"));
    assert!(read_lines(&lines, &[]).summaries_of(&["subagent"]).is_empty(), "only with the option");
}

#[test]
fn open_subagent_ends_with_the_outcome_of_the_run() {
    let chunk = json!({"type": "AIMessageChunk", "id": "m", "content": "hi", "chunk_position": "last"});
    let chunk_frame = ("messages", json!([chunk, {"langgraph_checkpoint_ns": "a:1|b:2|c:3"}]));
    for (last, ends) in [
        (("updates", json!({"__interrupt__": [{"id": "i", "value": 1}]})), "SubagentFinished"),
        (("error", json!({"error": "E", "message": "no"})), "SubagentError"),
    ] {
        let output = read_frames(&[chunk_frame.clone(), last], &["subagents=on"]);
        let ended = output.events.iter().filter(|event| format!("{:?}", event.body).starts_with(ends));
        let ended: Vec<_> = ended.map(|event| event.subagent.as_ref().unwrap().as_str()).collect();
        assert_eq!(ended, ["b:2", "a:1"], "innermost first");
        assert!(output.repairs.is_empty(), "{:?}", output.repairs);
    }
}

#[test]
fn ids_of_the_request_can_be_kept() {
    let mut start = root("on_chain_start", json!({"input": {}}));
    start["metadata"]["thread_id"] = json!("T9");
    let lines = [start, root("on_chain_end", json!({"output": {}}))];
    assert_eq!(read_lines(&lines, &[]).summaries(), ["start T9 R", "finish"]);
    assert_eq!(read_lines(&lines, &["ids=given"]).summaries(), ["start t r", "finish"]);
}
