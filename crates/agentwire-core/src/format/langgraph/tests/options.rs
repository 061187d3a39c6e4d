//! What the options change.

use serde_json::json;

use super::{chunk, event, in_node, model_end, node, root, tell, tell_frames};
use crate::event::Body;

#[test]
fn chains_can_be_shown_as_thinking() {
    let mut inner = event("on_chain_start", "RunnableSequence", "C", &["R", "N"], json!({}));
    inner["tags"] = json!(["seq:step:1"]);
    let mut end = event("on_chain_end", "RunnableSequence", "C", &["R", "N"], json!({"output": 1}));
    end["tags"] = json!(["seq:step:1"]);
    let told = tell(&in_node(&[inner, end], json!({})), &["thinking=chains", "steps=none"]);
    assert_eq!(
        told.story(),
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
fn steps_can_be_those_that_use_tools() {
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
    let steps = |pair: &str| tell(&lines, &[pair]).lines(&["step", "step-end"]);
    assert_eq!(steps("steps=nodes"), ["step agent", "step-end agent", "step tools", "step-end tools"]);
    assert_eq!(steps("steps=tools"), ["step tools", "step-end tools"]);
    assert!(steps("steps=none").is_empty());
}

#[test]
fn custom_events_without_the_marker_can_be_left_out() {
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
    let told = tell(&lines, &[]);
    assert_eq!(
        told.lines(&["custom", "+"]),
        [
            "custom display_chart {\"a\":1}",
            "custom agent_custom_event {\"payload\":1}",
            "custom empty null",
            "custom progress null",
            "+ x hi",
        ]
    );
    let told = tell(&lines, &["custom=marker-only"]);
    assert_eq!(
        told.lines(&["custom", "+"]),
        ["custom display_chart {\"a\":1}", "custom agent_custom_event {\"payload\":1}", "custom empty null"]
    );
}

#[test]
fn reasoning_can_be_by_hand_only() {
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
    assert_eq!(tell(&lines, &["reasoning=manual"]).lines(&["~"]), ["~ N-reasoning-1 by hand"]);
    let told = tell(&lines, &["reasoning=auto"]);
    assert_eq!(told.lines(&["~", "custom"]), ["~ m-r0 hm", "custom reasoning \"by hand\""]);
}

#[test]
fn results_can_be_json_throughout() {
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
        tell(&lines, &[]).lines(&["result"]),
        ["result A text", "result B {\"ü\":[1]}", "result C text"]
    );
    assert_eq!(
        tell(&lines, &["tool_result=json"]).lines(&["result"]),
        ["result A \"text\"", "result B {\"ü\":[1]}", "result C \"text\""]
    );
}

#[test]
fn native_events_can_travel_along() {
    let lines = in_node(
        &[
            event("on_prompt_start", "p", "P", &["R", "N"], json!({})),
            chunk("M", json!({"id": "m", "content": "x"})),
        ],
        json!({}),
    );
    let told = tell(&lines, &["raw=on"]);
    let carried =
        told.events.iter().filter(|event| event.raw().is_some() || matches!(event.body, Body::Raw { .. }));
    assert_eq!(carried.count(), lines.len(), "each native event once: {:#?}", told.story());
    assert_eq!(told.lines(&["raw"]).len(), 1, "the prompt became nothing else");
    assert!(tell(&lines, &[]).events.iter().all(|event| event.raw().is_none()));
    // The server names the run before it begins, and sends more after it has ended.
    let frames = [
        ("metadata", json!({"run_id": "R7", "attempt": 1})),
        ("updates", json!({"n": {}})),
        ("error", json!({"error": "ValueError", "message": "no"})),
        ("updates", json!({"n": {}})),
    ];
    let story = tell_frames(&frames, &["raw=on"]).story();
    assert_eq!(story, ["start t R7", "raw", "step n", "step-end n", "error ValueError no"]);
}

#[test]
fn nodes_and_tags_can_be_left_out() {
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
        let told = tell(&lines, &[pair]);
        assert!(
            told.lines(&["+", "call", "text"]).iter().all(|line| !line.contains("secret")),
            "{pair}: {:?}",
            told.story()
        );
        assert_eq!(told.lines(&["messages"]), ["messages open"], "{pair}");
    }
    assert!(tell(&lines, &["hide_nodes=n"]).lines(&["step"]).is_empty());
    let mut custom = event("on_custom_event", "chart", "N", &["R"], json!(1));
    custom["metadata"] = json!({"langgraph_node": "n", "langgraph_checkpoint_ns": "n:1"});
    let lines = in_node(&[custom], json!({}));
    assert_eq!(tell(&lines, &[]).lines(&["custom"]), ["custom chart 1"]);
    let told = tell(&lines, &["hide_nodes=n", "thinking=chains"]);
    assert_eq!(told.lines(&["custom", "think"]), ["think chain-R LangGraph"]);
    let frames = [
        (
            "messages",
            json!([{"type": "AIMessageChunk", "id": "m", "content": "x"}, {"langgraph_checkpoint_ns": "n:1", "tags": ["quiet"]}]),
        ),
        ("updates", json!({"n": {"messages": [{"type": "ai", "id": "m", "content": "x"}]}})),
    ];
    for pair in ["hide_nodes=n", "hide_tags=quiet"] {
        assert!(tell_frames(&frames, &[pair]).lines(&["+"]).is_empty(), "{pair}");
    }
}

#[test]
fn interrupts_can_come_the_old_way() {
    let chunk =
        json!({"chunk": {"__interrupt__": [{"value": {"q": 1}, "id": "0123456789abcdef0123456789abcdef"}]}});
    let lines = [
        root("on_chain_start", json!({"input": {}})),
        root("on_chain_stream", chunk),
        root("on_chain_end", json!({"output": {}})),
    ];
    let custom = "custom on_interrupt {\"q\":1}";
    let outcome = "finish interrupt 0123456789abcdef0123456789abcdef";
    let told = |pair: &str| tell(&lines, &[pair]).lines(&["custom", "finish"]);
    assert_eq!(told("interrupts=outcome"), [outcome]);
    assert_eq!(told("interrupts=legacy"), [custom, "finish"]);
    assert_eq!(told("interrupts=both"), [custom, outcome]);
}

#[test]
fn nested_graphs_can_be_subagents() {
    let place = |event: serde_json::Value, ns: &str, agent: &str| {
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
        place(chunk("M", json!({"id": "m", "content": "hi"})), "tools:1|model:2", "helper"),
        place(model_end("M", json!({"id": "m", "content": "hi"})), "tools:1|model:2", "helper"),
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
    let told = tell(&lines, &["subagents=on"]);
    assert_eq!(
        told.lines(&["step", "step-end", "subagent", "subagent-end", "+", "result"]),
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
        told.events.iter().map(|event| &event.body).find(|body| matches!(body, Body::SubagentStarted(_)))
    else {
        panic!()
    };
    assert_eq!(started.parent_call.as_deref(), Some("c"));
    assert!(tell(&lines, &[]).lines(&["subagent"]).is_empty(), "only when asked for");
}

#[test]
fn a_subagent_that_has_not_ended_ends_as_the_run_does() {
    let chunk = json!({"type": "AIMessageChunk", "id": "m", "content": "hi", "chunk_position": "last"});
    let said = ("messages", json!([chunk, {"langgraph_checkpoint_ns": "a:1|b:2|c:3"}]));
    for (last, ends) in [
        (("updates", json!({"__interrupt__": [{"id": "i", "value": 1}]})), "SubagentFinished"),
        (("error", json!({"error": "E", "message": "no"})), "SubagentError"),
    ] {
        let told = tell_frames(&[said.clone(), last], &["subagents=on"]);
        let ended = told.events.iter().filter(|event| format!("{:?}", event.body).starts_with(ends));
        let ended: Vec<_> = ended.map(|event| event.subagent.as_ref().unwrap().as_str()).collect();
        assert_eq!(ended, ["b:2", "a:1"], "the inner one first");
        assert!(told.repairs.is_empty(), "{:?}", told.repairs);
    }
}

#[test]
fn ids_of_the_request_can_be_kept() {
    let mut start = root("on_chain_start", json!({"input": {}}));
    start["metadata"]["thread_id"] = json!("T9");
    let lines = [start, root("on_chain_end", json!({"output": {}}))];
    assert_eq!(tell(&lines, &[]).story(), ["start T9 R", "finish"]);
    assert_eq!(tell(&lines, &["ids=given"]).story(), ["start t r", "finish"]);
}
