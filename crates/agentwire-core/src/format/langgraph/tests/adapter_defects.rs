//! Defects of other adapters on the same input, which this reader must not have. Each comment describes theirs.

use serde_json::{Value, json};

use super::{chunk, event, in_node, model_end, read_frames, read_lines, read_text};

/// Both keep one "current message", so that alternating chunks of two models are merged.
#[test]
fn parallel_branches_do_not_mix() {
    let output = read_text(include_str!("../fixtures/parallel_branches.jsonl"), &[]);
    let of = |id: &str| -> String {
        output
            .summaries_of(&["+"])
            .iter()
            .filter_map(|line| line.strip_prefix(&format!("+ {id} ")).map(str::to_owned))
            .collect()
    };
    assert_eq!(of("msg_left"), "left says one two three four");
    assert_eq!(of("msg_right"), "right says one two three four");
}

/// The text of the chunk with the finish reason is dropped.
#[test]
fn text_beside_the_finish_reason_is_kept() {
    let output = read_lines(
        &in_node(
            &[chunk(
                "M",
                json!({"id": "m", "content": "end.", "response_metadata": {"finish_reason": "stop"}}),
            )],
            json!({}),
        ),
        &[],
    );
    assert_eq!(output.summaries_of(&["+"]), ["+ m end."]);
}

/// Only the first entry of `tool_call_chunks` is read.
#[test]
fn every_call_of_a_chunk_is_shown() {
    let output = read_text(include_str!("../fixtures/parallel_tool_calls_interleaved.jsonl"), &[]);
    assert_eq!(output.summaries_of(&["call"]).len(), 2);
    let of = |id: &str| -> String {
        output
            .summaries_of(&["args"])
            .iter()
            .filter_map(|line| line.strip_prefix(&format!("args {id} ")).map(str::to_owned))
            .collect()
    };
    assert_eq!(of("call_i0"), r#"{"query": "alpha", "k": 1}"#);
    assert_eq!(of("call_i1"), r#"{"query": "beta", "k": 2}"#);
}

/// The call of a failed tool stays open.
#[test]
fn failed_tool_has_a_result() {
    let output = read_text(include_str!("../fixtures/tool_error_handled.jsonl"), &[]);
    assert_eq!(
        output.summaries_of(&["result"]),
        ["result call_e1 Error: ValueError('tool exploded with code 7')\n Please fix your mistakes. !"]
    );
}

/// A truncated stream is reported as a success, with a message still open.
#[test]
fn cut_stream_is_not_a_success() {
    let output = read_text(include_str!("../fixtures/truncated_stream.jsonl"), &[]);
    assert_eq!(output.summaries_of(&["text-end"]), ["text-end tr1"]);
    assert!(output.last().starts_with("error STREAM_TRUNCATED"));
}

/// Of reasoning and text in one chunk, only the first match is emitted.
#[test]
fn reasoning_does_not_drop_text() {
    let both = json!({"id": "m", "content": "said", "additional_kwargs": {"reasoning_content": "thought"}});
    let output = read_lines(&in_node(&[chunk("M", both)], json!({})), &[]);
    assert_eq!(output.summaries_of(&["~", "+"]), ["~ m-r0 thought", "+ m said"]);
}

/// Reasoning ids are random, so that reading a stream twice gives two conversations.
#[test]
fn same_bytes_give_the_same_events() {
    for text in [
        include_str!("../fixtures/reasoning_anthropic.jsonl"),
        include_str!("../fixtures/custom_events.jsonl"),
        include_str!("../fixtures/synthetic_other_bridges.jsonl"),
    ] {
        assert_eq!(read_text(text, &[]).events, read_text(text, &[]).events);
    }
}

/// A snapshot of the state follows every node, changed or not, and ignores reducers.
#[test]
fn state_is_exact_and_sent_once() {
    let output = read_text(include_str!("../fixtures/state_extra_keys.jsonl"), &[]);
    assert_eq!(
        output.summaries_of(&["state", "patch"]),
        [r#"state {"facts":["seed","sky is blue","the end"],"stage":"finished","counters":{"agent":2}}"#]
    );
}

/// A model without streaming emits nothing, or tool calls only.
#[test]
fn output_of_models_without_streaming_is_shown() {
    let output = read_text(include_str!("../fixtures/non_streaming_model.jsonl"), &[]);
    assert_eq!(
        output.summaries_of(&["+", "call"]),
        ["+ ns1 Checking. ", "call call_ns get_weather in ns1", "+ ns2 Bern: 21."]
    );
}

/// Messages that a node returns without streaming appear only in the snapshot.
#[test]
fn messages_without_streaming_are_shown() {
    let output = read_text(include_str!("../fixtures/multi_message.jsonl"), &[]);
    assert!(
        output.summaries_of(&["+"]).contains(&"+ msg_static (static sign-off, never streamed)".to_owned())
    );
}

/// Results get random message ids that differ from those in the snapshot, and follow the wrong message.
#[test]
fn results_keep_their_position_and_id() {
    let output = read_text(include_str!("../fixtures/one_tool_call.jsonl"), &[]);
    assert_eq!(
        output.summaries_of(&["messages"]).last().unwrap(),
        "messages h1 chatcmpl-T1 call_w1-result chatcmpl-T2"
    );
}

/// An interrupt inside a tool is reported as a failed tool.
#[test]
fn interrupt_is_not_an_error() {
    let output = read_text(include_str!("../fixtures/interrupt_in_tool-1.jsonl"), &[]);
    assert!(output.summaries_of(&["result", "error"]).is_empty());
    assert_eq!(output.last(), "finish interrupt 859961475a451f39acb8c3852a564ba3(call_m1)");
}

/// A resumed tool is reported again, so that the conversation contains its call twice.
#[test]
fn resumed_call_is_not_repeated() {
    let output = read_text(include_str!("../fixtures/interrupt_in_tool-2-resume.jsonl"), &[]);
    assert_eq!(output.summaries_of(&["call", "result"]), ["result call_m1 sent 100 to Bob"]);
}

/// Two concurrent tools of one name share one entry.
#[test]
fn tools_are_identified_by_run_id() {
    let tool = |kind: &str, run: &str, data: Value| event(kind, "search", run, &["R", "N"], data);
    let output = read_lines(
        &in_node(
            &[
                tool("on_tool_start", "A", json!({"input": {"q": "a"}})),
                tool("on_tool_start", "B", json!({"input": {"q": "b"}})),
                tool("on_tool_end", "A", json!({"output": "found a"})),
                tool("on_tool_end", "B", json!({"output": "found b"})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(output.summaries_of(&["result"]), ["result A found a", "result B found b"]);
}

/// A message with tool calls only creates an empty message.
#[test]
fn call_does_not_create_an_empty_message() {
    let output = read_lines(
        &in_node(
            &[model_end("M", json!({"id": "m", "tool_calls": [{"id": "c", "name": "f", "args": {}}]}))],
            json!({}),
        ),
        &[],
    );
    assert!(output.summaries_of(&["text"]).is_empty());
}

/// The stream writer's output is lost.
#[test]
fn stream_writer_output_is_kept() {
    let output = read_frames(
        &[
            ("custom", json!({"type": "progress", "pct": 1})),
            ("custom", json!("text")),
            ("custom", json!({"type": "agent_custom_event", "name": "chart", "payload": 1})),
        ],
        &[],
    );
    assert_eq!(
        output.summaries_of(&["custom"]),
        ["custom progress {\"type\":\"progress\",\"pct\":1}", "custom custom \"text\"", "custom chart 1"]
    );
}
