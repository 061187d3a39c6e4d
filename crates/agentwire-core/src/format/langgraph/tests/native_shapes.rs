//! The native forms of model output, tool calls and nodes.

use serde_json::json;

use super::{chunk, event, in_node, model_end, node, read_frames, read_lines, root};

const TEXT: &[&str] = &["text", "+", "text-end"];
const THINK: &[&str] = &["think", "thought", "~", "sealed", "thought-end", "think-end", "text", "+"];
const CALLS: &[&str] = &["call", "args", "call-end", "result"];

#[test]
fn message_keeps_the_id_it_was_first_shown_under() {
    let output = read_lines(
        &in_node(
            &[
                chunk("M", json!({"id": null, "content": "Hel"})),
                chunk("M", json!({"id": "gen-1", "content": "lo"})),
                model_end("M", json!({"id": "gen-1", "content": "Hello"})),
            ],
            json!({"messages": [{"type": "ai", "id": "gen-1", "content": "Hello"}]}),
        ),
        &[],
    );
    assert_eq!(
        output.summaries_of(TEXT),
        ["text lc_run--M", "+ lc_run--M Hel", "+ lc_run--M lo", "text-end lc_run--M"]
    );
    assert_eq!(output.summaries_of(&["messages"]), ["messages lc_run--M"]);
}

#[test]
fn two_model_runs_with_one_id_are_two_messages() {
    let output = read_lines(
        &in_node(
            &[
                chunk("M1", json!({"id": "same", "content": "a"})),
                chunk("M2", json!({"id": "same", "content": "b"})),
                model_end("M1", json!({"id": "same", "content": "a"})),
                model_end("M2", json!({"id": "same", "content": "b"})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(output.summaries_of(&["+"]), ["+ same a", "+ lc_run--M2 b"]);
}

#[test]
fn chunk_may_contain_reasoning_text_and_a_call() {
    let output = read_lines(
        &in_node(
            &[
                chunk(
                    "M",
                    json!({"id": "m", "content": [
                        {"type": "thinking", "thinking": "hm", "index": 0},
                        {"type": "text", "text": "ok", "index": 1},
                        {"type": "tool_use", "id": "c", "name": "f", "input": {}, "index": 2},
                    ], "tool_call_chunks": [{"id": "c", "name": "f", "args": "{}", "index": 2}]}),
                ),
                model_end(
                    "M",
                    json!({"id": "m", "content": "ok", "tool_calls": [{"id": "c", "name": "f", "args": {}}]}),
                ),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(
        output.summaries_of(&[THINK, CALLS].concat()),
        [
            "think m-r0",
            "thought m-r0",
            "~ m-r0 hm",
            "thought-end m-r0",
            "think-end m-r0",
            "text m",
            "+ m ok",
            "call c f in m",
            "args c {}",
            "call-end c",
        ]
    );
}

#[test]
fn reads_reasoning_of_every_provider() {
    let forms = [
        ("anthropic", json!({"content": [{"type": "thinking", "thinking": "hm", "index": 0}]})),
        (
            "responses",
            json!({"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm", "index": 0}], "index": 0}]}),
        ),
        ("v1", json!({"content": [{"type": "reasoning", "reasoning": "hm", "index": 0}]})),
        ("deepseek", json!({"additional_kwargs": {"reasoning_content": "hm"}})),
        ("openrouter", json!({"additional_kwargs": {"reasoning": "hm"}})),
        (
            "old openai",
            json!({"additional_kwargs": {"reasoning": {"summary": [{"type": "summary_text", "text": "hm"}]}}}),
        ),
        (
            "bedrock",
            json!({"content": [{"type": "reasoning_content", "reasoning_content": {"text": "hm"}, "index": 0}]}),
        ),
        (
            "wrapped",
            json!({"content": [{"type": "non_standard", "value": {"type": "thinking", "thinking": "hm", "index": 0}}]}),
        ),
    ];
    for (provider, form) in forms {
        let mut form = form.clone();
        form["id"] = json!("m");
        for complete in [false, true] {
            let inner = if complete {
                vec![model_end("M", form.clone())]
            } else {
                vec![chunk("M", form.clone()), model_end("M", form.clone())]
            };
            let output = read_lines(&in_node(&inner, json!({})), &[]);
            let wanted = ["think m-r0", "thought m-r0", "~ m-r0 hm", "thought-end m-r0", "think-end m-r0"];
            assert_eq!(output.summaries_of(THINK), wanted, "{provider}, complete: {complete}");
            assert!(output.summaries_of(&["+"]).is_empty(), "{provider}: reasoning is not text");
        }
    }
}

#[test]
fn encrypted_reasoning_has_a_message() {
    let redacted = json!({"id": "m", "content": [{"type": "redacted_thinking", "data": "xyz", "index": 0}]});
    let output =
        read_lines(&in_node(&[chunk("M", redacted.clone()), model_end("M", redacted)], json!({})), &[]);
    assert_eq!(
        output.summaries_of(THINK),
        ["think m-r0", "thought m-r0", "sealed Message(\"m-r0\") xyz", "thought-end m-r0", "think-end m-r0"]
    );
    let signature = json!({"content": [{"type": "reasoning", "reasoning": "", "extras": {"signature": "sig"}, "index": 0}]});
    let output = read_lines(
        &in_node(
            &[
                chunk(
                    "M",
                    json!({"id": "m", "content": [{"type": "reasoning", "reasoning": "a", "index": 0}]}),
                ),
                chunk("M", json!({"id": "m", "content": "b"})),
                chunk("M", signature),
                model_end("M", json!({"id": "m", "content": "b"})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(output.summaries_of(&["sealed", "thought"]), ["thought m-r0", "sealed Message(\"m-r0\") sig"]);
}

#[test]
fn signatures_name_the_entity_they_sign() {
    let bedrock = |inner: serde_json::Value, index: u8| {
        chunk(
            "M",
            json!({"id": "m", "content": [{"type": "reasoning_content", "reasoning_content": inner, "index": index}]}),
        )
    };
    let output = read_lines(
        &in_node(
            &[
                bedrock(json!({"redacted_content": "dark"}), 0),
                bedrock(json!({"text": "hm"}), 1),
                bedrock(json!({"signature": "sig"}), 1),
                // The end of a block has no event.
                chunk("M", json!({"id": "m", "content": [{"index": 1}]})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(
        output.summaries_of(&["~", "sealed", "custom"]),
        ["sealed Message(\"m-r0\") dark", "~ m-r1 hm", "sealed Message(\"m-r1\") sig"]
    );
    let gemini = json!({
        "id": "m", "content": [{"type": "text", "text": "yes", "extras": {"signature": "s1"}}],
        "tool_calls": [{"id": "c", "name": "f", "args": {}}],
        "additional_kwargs": {"__gemini_function_call_thought_signatures__": {"c": "s2", "unknown": "s3"}},
    });
    let mut first = gemini.clone();
    first["tool_calls"] = json!([]);
    first["tool_call_chunks"] = json!([{"id": "c", "name": "f", "args": "{}", "index": null}]);
    // Modes report the last chunk of a model, but not its end.
    let mut last = first.clone();
    (last["type"], last["chunk_position"]) = (json!("AIMessageChunk"), json!("last"));
    let tuple = ("messages", json!([last, {"langgraph_checkpoint_ns": "n:1"}]));
    assert_eq!(read_frames(&[tuple], &[]).summaries_of(&["sealed"]).len(), 2);
    for inner in [vec![model_end("M", gemini.clone())], vec![chunk("M", first), model_end("M", gemini)]] {
        let output = read_lines(&in_node(&inner, json!({})), &[]);
        assert_eq!(
            output.summaries_of(&["+", "sealed"]),
            ["+ m yes", "sealed Message(\"m\") s1", "sealed ToolCall(\"c\") s2"]
        );
        assert!(
            read_lines(&in_node(&inner, json!({})), &["reasoning=manual"])
                .summaries_of(&["sealed"])
                .is_empty()
        );
    }
}

#[test]
fn complete_calls_in_one_chunk_are_separate_calls() {
    let output = read_lines(
        &in_node(
            &[
                chunk(
                    "M",
                    json!({"id": "m", "tool_call_chunks": [
                        {"id": "a", "name": "f", "args": "{\"x\":1}", "index": null},
                        {"id": "b", "name": "f", "args": "{\"x\":2}", "index": null},
                    ]}),
                ),
                model_end(
                    "M",
                    json!({"id": "m", "tool_calls": [
                        {"id": "a", "name": "f", "args": {"x": 1}}, {"id": "b", "name": "f", "args": {"x": 2}},
                    ]}),
                ),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(
        output.summaries_of(CALLS),
        [
            "call a f in m",
            "args a {\"x\":1}",
            "call b f in m",
            "args b {\"x\":2}",
            "call-end a",
            "call-end b"
        ]
    );
    assert_eq!(output.last(), "finish pending [\"a\", \"b\"]");
}

#[test]
fn id_repeated_in_every_chunk_is_one_call() {
    let call_chunk = |args: &str| {
        chunk(
            "M",
            json!({"id": "m", "tool_call_chunks": [{"id": "a", "name": "f", "args": args, "index": 0}]}),
        )
    };
    let output = read_lines(&in_node(&[call_chunk("{\"x\""), call_chunk(":1}")], json!({})), &[]);
    assert_eq!(output.summaries_of(CALLS), ["call a f in m", "args a {\"x\"", "args a :1}", "call-end a"]);
}

#[test]
fn new_id_at_the_same_index_is_a_new_call() {
    let call_chunk = |id: &str, args: &str| {
        chunk(
            "M",
            json!({"id": "m", "tool_call_chunks": [{"id": id, "name": "f", "args": args, "index": 0}]}),
        )
    };
    let output = read_lines(&in_node(&[call_chunk("a", "{}"), call_chunk("b", "{}")], json!({})), &[]);
    assert_eq!(output.summaries_of(&["call"]), ["call a f in m", "call b f in m"]);
}

#[test]
fn chunks_without_index_or_id_belong_to_the_last_call() {
    let call_chunk =
        |call_chunk: serde_json::Value| chunk("M", json!({"id": "m", "tool_call_chunks": [call_chunk]}));
    let output = read_lines(
        &in_node(
            &[
                call_chunk(json!({"id": "a", "name": "f", "args": "", "index": null})),
                call_chunk(json!({"id": null, "name": null, "args": "{}", "index": null})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(output.summaries_of(CALLS), ["call a f in m", "args a {}", "call-end a"]);
}

#[test]
fn call_without_an_id_gets_a_stable_one() {
    let output = read_lines(
        &in_node(
            &[
                chunk(
                    "M",
                    json!({"id": "m", "tool_call_chunks": [{"id": null, "name": "f", "args": "{}", "index": 0}]}),
                ),
                model_end("M", json!({"id": "m", "tool_calls": [{"id": "late", "name": "f", "args": {}}]})),
                event("on_tool_start", "f", "T", &["R", "N"], json!({"input": {}})),
                event(
                    "on_tool_end",
                    "f",
                    "T",
                    &["R", "N"],
                    json!({"output": {"type": "tool", "content": "ok", "tool_call_id": "late"}}),
                ),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(
        output.summaries_of(CALLS),
        ["call m-call-0 f in m", "args m-call-0 {}", "call-end m-call-0", "result m-call-0 ok"]
    );
}

#[test]
fn invalid_calls_are_shown_and_ended() {
    let output = read_lines(
        &in_node(
            &[model_end(
                "M",
                json!({"id": "m", "invalid_tool_calls": [{"id": "a", "name": "f", "args": "{\"x\":", "error": "cut"}]}),
            )],
            json!({}),
        ),
        &[],
    );
    assert_eq!(output.summaries_of(CALLS), ["call a f in m", "args a {\"x\":", "call-end a"]);
}

#[test]
fn parallel_calls_of_one_tool_get_their_own_results_in_any_order() {
    let call = |id: &str, x: i32| json!({"id": id, "name": "f", "args": {"x": x}});
    let tool = |kind: &str, run: &str, data: serde_json::Value| event(kind, "f", run, &["R", "N"], data);
    let output = read_lines(
        &in_node(
            &[
                model_end("M", json!({"id": "m", "tool_calls": [call("a", 1), call("b", 2)]})),
                tool("on_tool_start", "T2", json!({"input": {"x": 2}})),
                tool("on_tool_start", "T1", json!({"input": {"x": 1}})),
                // Bare outputs contain no call id; only the run id identifies the call.
                tool("on_tool_end", "T2", json!({"output": "two"})),
                tool("on_tool_end", "T1", json!({"output": "one"})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(output.summaries_of(&["result"]), ["result b two", "result a one"]);
}

#[test]
fn tool_without_a_model_call_uses_its_run_id() {
    let output = read_lines(
        &in_node(
            &[
                event("on_tool_start", "f", "T", &["R", "N"], json!({"input": {"x": [1, "é"]}})),
                event("on_tool_end", "f", "T", &["R", "N"], json!({"output": {"deep": [1, null]}})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(
        output.summaries_of(CALLS),
        ["call T f in -", "args T {\"x\":[1,\"é\"]}", "call-end T", "result T {\"deep\":[1,null]}"]
    );
}

#[test]
fn unknown_tool_and_failed_validation_have_results() {
    let call = |id: &str| json!({"id": id, "name": "f", "args": {}});
    let message = |id: &str, text: &str| json!({"type": "tool", "content": text, "tool_call_id": id, "status": "error"});
    let output = read_lines(
        &[
            root("on_chain_start", json!({"input": {}})),
            node("on_chain_start", "agent", "N", "agent:1", json!({"input": {}})),
            model_end("M", json!({"id": "m", "tool_calls": [call("a"), call("b")]})),
            node("on_chain_end", "agent", "N", "agent:1", json!({"output": {}})),
            node("on_chain_start", "tools", "T", "tools:1", json!({"input": {}})),
            node(
                "on_chain_end",
                "tools",
                "T",
                "tools:1",
                json!({"output": [
                    {"messages": [message("a", "no such tool")]},
                    {"graph": null, "update": {"messages": [message("b", "x is missing")]}, "resume": null, "goto": []},
                ]}),
            ),
            root("on_chain_end", json!({"output": {}})),
        ],
        &[],
    );
    assert_eq!(output.summaries_of(&["result"]), ["result a no such tool !", "result b x is missing !"]);
}

#[test]
fn media_and_citations_are_typed_events() {
    let output = read_lines(
        &in_node(
            &[
                chunk(
                    "M",
                    json!({"id": "m", "content": [
                        {"type": "text", "text": "see", "index": 0, "annotations": [{"type": "url_citation", "url": "https://a", "title": "A"}]},
                        {"type": "image", "base64": "AAAA", "mime_type": "image/png", "index": 1},
                        {"type": "audio", "url": "https://b/c.wav", "index": 2},
                        {"type": "server_tool_call", "name": "web_search", "index": 3},
                    ]}),
                ),
                model_end("M", json!({"id": "m", "content": "see"})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(
        output.summaries_of(&["source", "file", "custom"]),
        [
            "source m-s0 https://a",
            "file m-f1 image",
            "file m-f2 audio",
            "custom content_block {\"type\":\"server_tool_call\",\"name\":\"web_search\",\"index\":3,\"messageId\":\"m\"}",
        ]
    );
}

#[test]
fn fan_out_numbers_its_steps() {
    let output = read_lines(
        &[
            root("on_chain_start", json!({"input": {}})),
            node("on_chain_start", "w", "A", "w:1", json!({"input": {}})),
            node("on_chain_start", "w", "B", "w:2", json!({"input": {}})),
            node("on_chain_end", "w", "A", "w:1", json!({"output": {}})),
            node("on_chain_start", "w", "C", "w:3", json!({"input": {}})),
            node("on_chain_end", "w", "C", "w:3", json!({"output": {}})),
            node("on_chain_end", "w", "B", "w:2", json!({"output": {}})),
            root("on_chain_end", json!({"output": {}})),
        ],
        &[],
    );
    assert_eq!(
        output.summaries_of(&["step", "step-end"]),
        ["step w", "step w#2", "step-end w", "step w", "step-end w", "step-end w#2"]
    );
}

#[test]
fn internal_and_hidden_chains_are_not_steps() {
    let mut plumbing = node("on_chain_start", "tools_condition", "P", "n:1", json!({}));
    plumbing["tags"] = json!(["seq:step:3"]);
    let mut hidden = node("on_chain_start", "__start__", "H", "n:1", json!({}));
    hidden["tags"] = json!(["graph:step:0", "langsmith:hidden"]);
    let output = read_lines(&in_node(&[plumbing, hidden], json!({})), &[]);
    assert_eq!(output.summaries_of(&["step"]), ["step n"]);
}

#[test]
fn nodes_are_recognised_without_tags() {
    let strip = |mut event: serde_json::Value| {
        event["tags"] = json!([]);
        event
    };
    let mut inner = event("on_chain_start", "n", "I", &["R", "N"], json!({}));
    inner["metadata"] = json!({"langgraph_node": "n", "langgraph_checkpoint_ns": "n:1"});
    let output = read_lines(
        &[
            root("on_chain_start", json!({"input": {}})),
            strip(node("on_chain_start", "n", "N", "n:1", json!({}))),
            inner,
            strip(node("on_chain_end", "n", "N", "n:1", json!({"output": {}}))),
            root("on_chain_end", json!({"output": {}})),
        ],
        &[],
    );
    assert_eq!(output.summaries_of(&["step", "step-end"]), ["step n", "step-end n"]);
}

#[test]
fn message_with_an_id_from_the_graph_is_shown_once() {
    let message = json!({"type": "ai", "content": "static"});
    let mut named = message.clone();
    named["id"] = json!("29857793-e265-4af3-9fb1-3171d1baf059");
    let output = read_lines(
        &[
            root("on_chain_start", json!({"input": {}})),
            node("on_chain_start", "n", "N", "n:1", json!({"input": {}})),
            node("on_chain_end", "n", "N", "n:1", json!({"output": {"messages": [message]}})),
            root("on_chain_stream", json!({"chunk": {"n": {"messages": [named]}}})),
            root("on_chain_end", json!({"output": {"messages": [named]}})),
        ],
        &[],
    );
    assert_eq!(output.summaries_of(&["+"]), ["+ 29857793-e265-4af3-9fb1-3171d1baf059 static"]);
}

#[test]
fn usage_adds_up_per_provider_and_model() {
    let with = |mut event: serde_json::Value, provider: &str, model: &str| {
        event["metadata"] = json!({"ls_provider": provider, "ls_model_name": model});
        event
    };
    let usage = |input: u64, output: u64| json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output, "input_token_details": {"cache_read": 1, "cache_creation": 2}, "output_token_details": {"reasoning": 3}});
    let output = read_lines(
        &in_node(
            &[
                // The first chunk counts the input, the last one the output, and the end has the sum.
                with(
                    chunk(
                        "A",
                        json!({"id": "a", "content": "x", "usage_metadata": {"input_tokens": 5, "output_tokens": 0, "total_tokens": 5}}),
                    ),
                    "p",
                    "m",
                ),
                with(
                    chunk(
                        "A",
                        json!({"id": "a", "usage_metadata": {"input_tokens": 0, "output_tokens": 7, "total_tokens": 7}}),
                    ),
                    "p",
                    "m",
                ),
                with(
                    model_end("A", json!({"id": "a", "content": "x", "usage_metadata": usage(5, 7)})),
                    "p",
                    "m",
                ),
                with(
                    model_end("B", json!({"id": "b", "content": "y", "usage_metadata": usage(10, 20)})),
                    "p",
                    "m",
                ),
                // Without an end, the chunks count.
                with(
                    chunk(
                        "C",
                        json!({"id": "c", "content": "z", "usage_metadata": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}),
                    ),
                    "q",
                    "n",
                ),
            ],
            json!({}),
        ),
        &[],
    );
    let crate::event::Body::RunFinished(finished) = &output.events.last().unwrap().body else { panic!() };
    let output: Vec<_> = finished
        .usage
        .iter()
        .map(|it| {
            (
                it.provider.as_deref(),
                it.input,
                it.output,
                it.total,
                it.reasoning,
                it.cached_input,
                it.cache_write_input,
            )
        })
        .collect();
    assert_eq!(
        output,
        [
            (Some("p"), Some(15), Some(27), Some(42), Some(6), Some(2), Some(4)),
            (Some("q"), Some(1), Some(1), Some(2), None, None, None),
        ]
    );
}

#[test]
fn state_changes_are_sent_as_patches() {
    let values = |value: serde_json::Value| ("values", value);
    let long: Vec<u32> = (0..200).collect();
    let output = read_frames(
        &[
            ("metadata", json!({"run_id": "R"})),
            values(json!({"messages": [], "n": 1, "list": long})),
            values(json!({"messages": [], "n": 2, "list": long})),
            values(json!({"messages": [], "n": 2, "list": long})),
            values(json!({"messages": [], "other": true})),
        ],
        &[],
    );
    let lines = output.summaries_of(&["state", "patch"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[1], "patch replace/n");
    assert_eq!(lines[2], "state {\"other\":true}", "shorter than a patch");
}

#[test]
fn accumulated_messages_stream_their_new_part() {
    let partial = |content: serde_json::Value, calls: serde_json::Value| {
        ("messages/partial", json!([{"type": "ai", "id": "m", "content": content, "tool_calls": calls}]))
    };
    let thinking = |text: &str| json!({"type": "thinking", "thinking": text});
    let text_block = |text: &str| json!({"type": "text", "text": text});
    let output = read_frames(
        &[
            ("metadata", json!({"run_id": "R"})),
            partial(json!([thinking("h")]), json!([])),
            partial(json!([thinking("hm")]), json!([])),
            partial(json!([thinking("hm"), text_block("a")]), json!([])),
            partial(json!([thinking("hm"), text_block("ab")]), json!([{"id": "c", "name": "f", "args": {}}])),
            partial(
                json!([thinking("hm"), text_block("ab")]),
                json!([{"id": "c", "name": "f", "args": {"x": 1}}]),
            ),
            ("messages/complete", json!([{"type": "tool", "id": "r", "content": "ok", "tool_call_id": "c"}])),
        ],
        &[],
    );
    assert_eq!(
        output.summaries_of(&["~", "+", "call", "args", "result"]),
        ["~ m-r0 h", "~ m-r0 m", "+ m a", "+ m b", "result c ok", "call c f in m", "args c {\"x\":1}"]
    );
}

#[test]
fn both_message_modes_at_once_are_one_message() {
    let tuple =
        |text: &str| ("messages", json!([{"type": "AIMessageChunk", "id": "m", "content": text}, {}]));
    let partial = |text: &str| ("messages/partial", json!([{"type": "ai", "id": "m", "content": text}]));
    let output = read_frames(&[tuple("a"), partial("a"), tuple("b"), partial("ab")], &[]);
    assert_eq!(output.summaries_of(&["+"]), ["+ m a", "+ m b"]);
    let output = read_frames(&[partial("a"), tuple("a"), partial("ab"), tuple("b")], &[]);
    assert_eq!(output.summaries_of(&["+"]), ["+ m a", "+ m b"]);
}

#[test]
fn events_and_modes_together_are_emitted_once() {
    let message = json!({"type": "ai", "id": "m", "content": "hi"});
    let output = read_frames(
        &[
            ("metadata", json!({"run_id": "R"})),
            ("events", root("on_chain_start", json!({"input": {}}))),
            ("values", json!({"messages": [{"type": "human", "id": "h", "content": "?"}]})),
            ("events", node("on_chain_start", "n", "N", "n:1", json!({"input": {}}))),
            ("events", chunk("M", json!({"id": "m", "content": "hi"}))),
            (
                "messages",
                json!([{"type": "AIMessageChunk", "id": "m", "content": "hi"}, {"langgraph_checkpoint_ns": "n:1"}]),
            ),
            ("events", model_end("M", json!({"id": "m", "content": "hi"}))),
            ("events", node("on_chain_end", "n", "N", "n:1", json!({"output": {"messages": [message]}}))),
            ("updates", json!({"n": {"messages": [message]}})),
            ("values", json!({"messages": [{"type": "human", "id": "h", "content": "?"}, message]})),
            ("custom", json!({"type": "progress"})),
            (
                "events",
                root(
                    "on_chain_end",
                    json!({"output": {"messages": [{"type": "human", "id": "h", "content": "?"}, message]}}),
                ),
            ),
        ],
        &[],
    );
    assert_eq!(
        output.summaries(),
        [
            "start t R",
            "messages h",
            "step n",
            "text m",
            "+ m hi",
            "text-end m",
            "step-end n",
            "custom progress {\"type\":\"progress\"}",
            "messages h m",
            "finish",
        ]
    );
}

#[test]
fn protocol_v2_shows_tools_and_nested_graphs() {
    let frame = |method: &str, ns: serde_json::Value, data: serde_json::Value| json!({"type": "event", "method": method, "params": {"namespace": ns, "timestamp": 5, "data": data}});
    let output = read_lines(
        &[
            json!({"type": "success", "id": 1, "result": {"run_id": "R2"}}),
            frame("lifecycle", json!([]), json!({"event": "running"})),
            frame("lifecycle", json!(["research:1"]), json!({"event": "running"})),
            frame(
                "messages",
                json!(["research:1"]),
                json!({"event": "message-start", "role": "ai", "id": "m"}),
            ),
            frame(
                "messages",
                json!(["research:1"]),
                json!({"event": "content-block-start", "index": 0, "content": {"type": "reasoning", "reasoning": ""}}),
            ),
            frame(
                "messages",
                json!(["research:1"]),
                json!({"event": "content-block-delta", "index": 0, "delta": {"type": "reasoning-delta", "reasoning": "hm"}}),
            ),
            frame(
                "messages",
                json!(["research:1"]),
                json!({"event": "content-block-finish", "index": 0, "content": {"type": "reasoning", "reasoning": "hm", "extras": {"signature": "s"}}}),
            ),
            frame(
                "messages",
                json!(["research:1"]),
                json!({"event": "content-block-finish", "index": 1, "content": {"type": "tool_call", "id": "c", "name": "f", "args": {"x": 1}}}),
            ),
            frame("messages", json!(["research:1"]), json!({"event": "message-finish"})),
            frame(
                "tools",
                json!(["research:1"]),
                json!({"event": "tool-started", "tool_call_id": "c", "tool_name": "f"}),
            ),
            frame(
                "tools",
                json!(["research:1"]),
                json!({"event": "tool-error", "tool_call_id": "c", "message": "boom"}),
            ),
            frame("lifecycle", json!(["research:1"]), json!({"event": "completed"})),
            frame("custom", json!([]), json!({"name": "chart", "payload": [1]})),
            frame("lifecycle", json!([]), json!({"event": "failed", "error": "ValueError('x')"})),
            frame("values", json!([]), json!({"late": 1})),
        ],
        &[],
    );
    assert_eq!(
        output.summaries(),
        [
            "start t R2",
            "step research",
            "think m-r0",
            "thought m-r0",
            "~ m-r0 hm",
            "sealed Message(\"m-r0\") s",
            "thought-end m-r0",
            "think-end m-r0",
            "call c f in m",
            "args c {\"x\":1}",
            "call-end c",
            "step-end research",
            "custom chart [1]",
            "result c boom !",
            "error ValueError ValueError('x')",
        ]
    );
    assert_eq!(output.tally.count("event after the end", "values"), 1);
    assert!(output.events.iter().all(|event| event.timestamp == Some(5)));
}

#[test]
fn every_name_parses_back() {
    use crate::format::langgraph::{EventName, ProtocolMethod, StreamMode};
    for name in EventName::ALL {
        assert_eq!(EventName::parse(name.as_str()), Some(*name));
    }
    for mode in StreamMode::ALL {
        assert_eq!(StreamMode::parse(mode.as_str()), Some(*mode));
    }
    for method in ProtocolMethod::ALL {
        assert_eq!(ProtocolMethod::parse(method.as_str()), Some(*method));
    }
    assert_eq!(EventName::parse("on_future_event"), None);
}

#[test]
fn recording_may_be_one_array() {
    let lines = in_node(&[chunk("M", json!({"id": "m", "content": "hi"}))], json!({}));
    let wanted = read_lines(&lines, &[]).summaries();
    let array = serde_json::Value::from(lines);
    assert_eq!(super::read_text(&array.to_string(), &[]).summaries(), wanted);
    assert_eq!(super::read_text(&serde_json::to_string_pretty(&array).unwrap(), &[]).summaries(), wanted);
}

#[test]
fn tuples_of_any_arity_are_modes() {
    let message = json!({"type": "AIMessageChunk", "id": "m", "content": "a"});
    for line in [
        json!(["messages", [message, {}]]),
        json!([[], "messages", [message, {}]]),
        json!([["outer:1"], "messages", [message, {}]]),
        json!([message, {"langgraph_node": "n"}]),
        json!({"type": "messages", "ns": [], "data": [message, {}]}),
        json!({"mode": "messages", "ns": [], "data": [message, {}]}),
    ] {
        // A single line could be a complete recording in an array.
        assert_eq!(
            read_lines(&[line.clone(), line.clone()], &[]).summaries_of(&["+"]),
            ["+ m a", "+ m a"],
            "{line}"
        );
    }
}
