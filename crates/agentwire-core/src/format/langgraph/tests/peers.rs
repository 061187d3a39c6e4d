//! What the known adapters get wrong on the same input, so that this one never does.

use serde_json::{Value, json};

use super::{chunk, event, in_node, model_end, tell, tell_frames, tell_text};

/// Both keep "the current message", so chunks of two models that alternate end up in one.
#[test]
fn parallel_branches_do_not_mix() {
    let told = tell_text(include_str!("../fixtures/parallel_branches.jsonl"), &[]);
    let of = |id: &str| -> String {
        told.lines(&["+"])
            .iter()
            .filter_map(|line| line.strip_prefix(&format!("+ {id} ")).map(str::to_owned))
            .collect()
    };
    assert_eq!(of("msg_left"), "left says one two three four");
    assert_eq!(of("msg_right"), "right says one two three four");
}

/// The text on the chunk that also carries the finish reason is dropped.
#[test]
fn the_last_words_are_kept() {
    let told = tell(
        &in_node(
            &[chunk(
                "M",
                json!({"id": "m", "content": "end.", "response_metadata": {"finish_reason": "stop"}}),
            )],
            json!({}),
        ),
        &[],
    );
    assert_eq!(told.lines(&["+"]), ["+ m end."]);
}

/// Only the first entry of `tool_call_chunks` is looked at.
#[test]
fn every_call_of_a_chunk_is_shown() {
    let told = tell_text(include_str!("../fixtures/parallel_tool_calls_interleaved.jsonl"), &[]);
    assert_eq!(told.lines(&["call"]).len(), 2);
    let of = |id: &str| -> String {
        told.lines(&["args"])
            .iter()
            .filter_map(|line| line.strip_prefix(&format!("args {id} ")).map(str::to_owned))
            .collect()
    };
    assert_eq!(of("call_i0"), r#"{"query": "alpha", "k": 1}"#);
    assert_eq!(of("call_i1"), r#"{"query": "beta", "k": 2}"#);
}

/// A tool that fails leaves its call open for ever.
#[test]
fn a_failed_tool_has_a_result() {
    let told = tell_text(include_str!("../fixtures/tool_error_handled.jsonl"), &[]);
    assert_eq!(
        told.lines(&["result"]),
        ["result call_e1 Error: ValueError('tool exploded with code 7')\n Please fix your mistakes. !"]
    );
}

/// A stream that is cut is reported as a success, with a message still open.
#[test]
fn a_cut_stream_is_no_success() {
    let told = tell_text(include_str!("../fixtures/truncated_stream.jsonl"), &[]);
    assert_eq!(told.lines(&["text-end"]), ["text-end tr1"]);
    assert!(told.last().starts_with("error STREAM_TRUNCATED"));
}

/// Reasoning beside text in one chunk: the first match wins and the rest is lost.
#[test]
fn reasoning_does_not_swallow_text() {
    let both = json!({"id": "m", "content": "said", "additional_kwargs": {"reasoning_content": "thought"}});
    let told = tell(&in_node(&[chunk("M", both)], json!({})), &[]);
    assert_eq!(told.lines(&["~", "+"]), ["~ m-r0 thought", "+ m said"]);
}

/// Ids of reasoning are random, so the same stream read twice is two conversations.
#[test]
fn the_same_bytes_give_the_same_events() {
    for text in [
        include_str!("../fixtures/reasoning_anthropic.jsonl"),
        include_str!("../fixtures/custom_events.jsonl"),
        include_str!("../fixtures/synthetic_other_bridges.jsonl"),
    ] {
        assert_eq!(tell_text(text, &[]).events, tell_text(text, &[]).events);
    }
}

/// A whole snapshot of the state after every node, changed or not, built by assignment so that reducers are
/// ignored.
#[test]
fn state_is_exact_and_sent_once() {
    let told = tell_text(include_str!("../fixtures/state_extra_keys.jsonl"), &[]);
    assert_eq!(
        told.lines(&["state", "patch"]),
        [r#"state {"facts":["seed","sky is blue","the end"],"stage":"finished","counters":{"agent":2}}"#]
    );
}

/// A model that does not stream shows nothing, or nothing but its calls.
#[test]
fn models_that_do_not_stream_are_shown() {
    let told = tell_text(include_str!("../fixtures/non_streaming_model.jsonl"), &[]);
    assert_eq!(
        told.lines(&["+", "call"]),
        ["+ ns1 Checking. ", "call call_ns get_weather in ns1", "+ ns2 Bern: 21."]
    );
}

/// Messages that a node returns without streaming do not appear until the snapshot.
#[test]
fn messages_that_were_never_streamed_are_shown() {
    let told = tell_text(include_str!("../fixtures/multi_message.jsonl"), &[]);
    assert!(told.lines(&["+"]).contains(&"+ msg_static (static sign-off, never streamed)".to_owned()));
}

/// Results get random message ids that differ from those in the snapshot, and land behind the answer.
#[test]
fn results_keep_their_place_and_id() {
    let told = tell_text(include_str!("../fixtures/one_tool_call.jsonl"), &[]);
    assert_eq!(
        told.lines(&["messages"]).last().unwrap(),
        "messages h1 chatcmpl-T1 call_w1-result chatcmpl-T2"
    );
}

/// An interrupt inside a tool is shown as a failed tool.
#[test]
fn an_interrupt_is_no_failure() {
    let told = tell_text(include_str!("../fixtures/interrupt_in_tool-1.jsonl"), &[]);
    assert!(told.lines(&["result", "error"]).is_empty());
    assert_eq!(told.last(), "finish interrupt 859961475a451f39acb8c3852a564ba3(call_m1)");
}

/// A resumed tool is announced again, so that its call stands in the conversation twice.
#[test]
fn a_resumed_call_is_not_made_again() {
    let told = tell_text(include_str!("../fixtures/interrupt_in_tool-2-resume.jsonl"), &[]);
    assert_eq!(told.lines(&["call", "result"]), ["result call_m1 sent 100 to Bob"]);
}

/// Two tools of one name that run at the same time share one entry.
#[test]
fn tools_are_known_by_run_and_not_by_name() {
    let tool = |kind: &str, run: &str, data: Value| event(kind, "search", run, &["R", "N"], data);
    let told = tell(
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
    assert_eq!(told.lines(&["result"]), ["result A found a", "result B found b"]);
}

/// An answer that only calls tools leaves an empty message.
#[test]
fn a_call_makes_no_empty_message() {
    let told = tell(
        &in_node(
            &[model_end("M", json!({"id": "m", "tool_calls": [{"id": "c", "name": "f", "args": {}}]}))],
            json!({}),
        ),
        &[],
    );
    assert!(told.lines(&["text"]).is_empty());
}

/// The stream writer's output is lost.
#[test]
fn what_the_stream_writer_says_is_kept() {
    let told = tell_frames(
        &[
            ("custom", json!({"type": "progress", "pct": 1})),
            ("custom", json!("text")),
            ("custom", json!({"type": "agent_custom_event", "name": "chart", "payload": 1})),
        ],
        &[],
    );
    assert_eq!(
        told.lines(&["custom"]),
        ["custom progress {\"type\":\"progress\",\"pct\":1}", "custom custom \"text\"", "custom chart 1"]
    );
}
