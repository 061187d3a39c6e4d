//! Malformed input is counted, and the events stay valid.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{chunk, event, in_node, model_end, node, read_frames, read_lines, read_text, root};

#[test]
fn unknown_events_are_counted_with_their_frame() {
    let output =
        read_lines(&in_node(&[event("on_future_event", "x", "X", &["R"], json!({}))], json!({})), &[]);
    assert_eq!(output.last(), "finish");
    let found: Vec<_> = output.tally.iter().collect();
    let (kind, name, count) = found[0];
    assert_eq!((kind, name, count.times, count.first_frame), ("unknown event", "on_future_event", 1, 3));
}

#[test]
fn wrong_types_inside_data_are_counted() {
    let inner = [
        event("on_chat_model_stream", "m", "M", &["R", "N"], json!({"chunk": 5})),
        event("on_chat_model_stream", "m", "M", &["R", "N"], json!([])),
        event("on_chat_model_end", "m", "M", &["R", "N"], json!({"output": "text"})),
        chunk(
            "M2",
            json!({"id": {"a": 1}, "content": 7, "tool_call_chunks": [1, {"args": "x"}], "usage_metadata": [], "response_metadata": 3}),
        ),
        model_end(
            "M3",
            json!({"content": {"no": "type"}, "tool_calls": {"a": 1}, "usage_metadata": {"input_tokens": -1}}),
        ),
        event("on_tool_end", "f", "T", &["R", "N"], Value::Null),
        event("on_tool_error", "f", "T2", &["R", "N"], json!({"error": [1]})),
        event("on_llm_stream", "l", "L", &["R", "N"], json!({"chunk": null})),
        event("on_llm_end", "l", "L", &["R", "N"], json!({"output": {"generations": [[1]]}})),
        event("on_agent_action", "a", "A", &["R", "N"], json!({"action": 1})),
        event("on_custom_event", "manually_emit_tool_call", "N", &["R"], json!({"args": 1})),
    ];
    let output = read_lines(&in_node(&inner, json!({"messages": [1, {"type": "ai"}, "x"]})), &[]);
    assert!(output.failure.is_none());
    assert_eq!(output.last().split(' ').next(), Some("finish"));
    for name in
        ["on_chat_model_stream data.chunk", "on_chat_model_end data.output", "content", "tool call chunk"]
    {
        assert!(output.tally.count("wrong type", name) > 0, "{name} was not counted");
    }
}

#[test]
fn accepts_missing_metadata_parents_and_ids() {
    let lines = [
        json!({"event": "on_chain_start", "data": {}}),
        json!({"event": "on_chat_model_stream", "data": {"chunk": {"content": "hi"}}}),
        json!({"event": "on_tool_start", "name": "f"}),
        json!({"event": "on_tool_end", "name": "f", "data": {"output": 1}}),
        json!({"event": "on_chain_end"}),
    ];
    let output = read_lines(&lines, &[]);
    assert_eq!(output.summaries_of(&["+"]), ["+ lc_run--chat_model-2 hi"]);
    assert_eq!(output.last(), "finish");
}

#[test]
fn events_of_another_root_are_counted_and_skipped() {
    let foreign =
        |kind: &str, run: &str, parents: &[&str], data: Value| event(kind, "Other", run, parents, data);
    let output = read_lines(
        &in_node(
            &[
                foreign("on_chain_start", "Q", &[], json!({"input": {}})),
                foreign(
                    "on_chat_model_stream",
                    "QM",
                    &["Q"],
                    json!({"chunk": {"type": "AIMessageChunk", "id": "q", "content": "foreign"}}),
                ),
                foreign("on_chain_end", "Q", &[], json!({"output": {}})),
                chunk("M", json!({"id": "m", "content": "ours"})),
            ],
            json!({}),
        ),
        &[],
    );
    assert_eq!(output.summaries_of(&["+"]), ["+ m ours"]);
    assert!(output.tally.count("event of another run", "Q") >= 2);
    assert_eq!(output.summaries_of(&["finish", "error"]), ["finish"]);
}

#[test]
fn reads_a_stream_from_the_middle() {
    let output = read_lines(
        &[
            chunk("M", json!({"id": "m", "content": "rest"})),
            event(
                "on_tool_end",
                "f",
                "T",
                &["R", "N"],
                json!({"output": {"type": "tool", "content": "ok", "tool_call_id": "c"}}),
            ),
            node("on_chain_end", "n", "N", "n:1", json!({"output": {}})),
            root("on_chain_end", json!({"output": {}})),
        ],
        &[],
    );
    assert_eq!(
        output.summaries(),
        ["start t R", "text m", "+ m rest", "result c ok", "text-end m", "finish"]
    );
}

#[test]
fn nan_becomes_null_and_nul_is_kept() {
    let text = format!(
        "{}\n{}\n{}\n",
        root("on_chain_start", json!({"input": {}})),
        r#"{"event":"on_custom_event","name":"score","run_id":"N","parent_ids":["R"],"data":{"a":NaN,"b":[Infinity,-Infinity],"c":"NaN"}}"#,
        r#"{"event":"on_chat_model_stream","run_id":"M","parent_ids":["R"],"data":{"chunk":{"type":"AIMessageChunk","id":"m","content":"a\u0000b"}}}"#,
    );
    let output = read_text(&text, &[]);
    assert_eq!(output.summaries_of(&["custom"]), [r#"custom score {"a":null,"b":[null,null],"c":"NaN"}"#]);
    assert_eq!(output.summaries_of(&["+"]), ["+ m a\0b"]);
    assert_eq!(output.tally.count("number", "NaN"), 1);
    assert_eq!(output.tally.count("character", "U+0000"), 1);
}

#[test]
fn invalid_json_is_an_error_with_its_position() {
    let output =
        read_text("{\"event\":\"on_chain_start\",\"run_id\":\"R\",\"parent_ids\":[]}\n{broken\n", &[]);
    let failure = output.failure.unwrap();
    assert!(failure.starts_with("line 2 at byte "), "{failure}");
    assert!(failure.contains("not valid JSON"), "{failure}");
    let output = read_text("42\n", &[]);
    assert!(
        output.failure.unwrap().contains("expected an event, a mode tuple or a state, found the number 42")
    );
}

#[test]
fn unknown_frames_are_counted() {
    let output = read_frames(
        &[
            ("metadata", json!({"run_id": "R"})),
            ("surprise", json!({"a": 1})),
            ("values|x:1", json!({"b": 1})),
            ("debug", json!({"type": "new"})),
            ("updates", json!([1])),
            ("messages", json!([5, {}])),
        ],
        &[],
    );
    assert_eq!(output.tally.count("unknown frame", "surprise"), 1);
    assert_eq!(output.tally.count("unknown debug entry", "new"), 1);
    assert_eq!(output.tally.count("wrong type", "updates"), 1);
    assert_eq!(output.last(), "finish");
    let output = read_lines(
        &[json!(["nonsense", 1]), json!([1, 2, 3]), json!({"mode": "odd", "data": 1}), json!({"a": 1})],
        &[],
    );
    assert_eq!(output.tally.count("unknown stream mode", "nonsense"), 1);
    assert_eq!(output.tally.count("unknown stream mode", "odd"), 1);
}

#[test]
fn floods_stay_bounded() {
    let mut lines = vec![root("on_chain_start", json!({"input": {}}))];
    for n in 0..2500 {
        lines.push(chunk(&format!("M{n}"), json!({"id": format!("m{n}"), "content": "x", "tool_call_chunks": [{"id": format!("c{n}"), "name": "f", "args": "{", "index": 0}]})));
        lines.push(node(
            "on_chain_start",
            "same",
            &format!("N{n}"),
            &format!("same:{n}"),
            json!({"input": {}}),
        ));
    }
    lines.push(root("on_chain_end", json!({"output": {}})));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (events, failure) = super::golden::read(&super::FORMAT, text.as_bytes(), usize::MAX, &[]);
    assert_eq!(failure, None);
    assert!(events.last().is_some_and(crate::event::Event::is_terminal));
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    let depth = 8_000;
    let nest = |open: &str, close: &str| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    let deep = [
        nest("{\"error\":", "}"),
        nest("{\"tool_call\":", "}"),
        nest("[", "]"),
        nest("{\"type\":\"non_standard\",\"value\":", "}"),
        nest("{\"update\":", "}"),
        nest("{\"type\":\"ai\",\"content\":", "}"),
    ];
    for deep in deep {
        let mut text = format!("{}\n", root("on_chain_start", json!({"input": {}})));
        for (kind, key) in [
            ("on_tool_error", "error"),
            ("on_chain_start", "input"),
            ("on_tool_end", "output"),
            ("on_agent_action", "action"),
            ("on_chain_error", "error"),
        ] {
            text.push_str(&format!(
                r#"{{"event":"{kind}","name":"n","run_id":"N","parent_ids":["R"],"tags":["graph:step:1"],"data":{{"{key}":{deep}}}}}"#
            ));
            text.push('\n');
        }
        text.push_str(&format!(
            r#"{{"event":"on_chat_model_end","run_id":"M","parent_ids":["R"],"data":{{"output":{{"type":"ai","id":"m","content":{deep},"tool_calls":[{deep}]}}}}}}"#
        ));
        text.push('\n');
        assert_valid_events(text.as_bytes(), &["raw=on"]);
        assert_valid_events(format!("event: values\ndata: {{\"a\":{deep}}}\n\n").as_bytes(), &[]);
    }
}

/// Values of unexpected types.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!("")),
        Just(json!("text")),
        Just(json!(-1)),
        Just(json!(true)),
        Just(json!([[]])),
        Just(json!([{"type": "ai", "content": "x", "id": "m"}])),
        Just(json!({"messages": [{"type": "tool", "tool_call_id": "c", "content": []}]})),
        Just(
            json!({"lc": 1, "type": "constructor", "id": ["x", "AIMessage"], "kwargs": {"content": "y", "id": "m2"}})
        ),
        Just(json!({"__interrupt__": [{"value": 1}]})),
        Just(json!(["values", {"messages": [], "a": 1}])),
        Just(json!({"id": "c", "name": "f", "args": {}, "type": "tool_call", "index": 0})),
    ]
}

fn any_event() -> impl Strategy<Value = Value> {
    let kinds: Vec<&'static str> =
        crate::format::langgraph::EventName::ALL.iter().map(|name| name.as_str()).collect();
    let ids = prop_oneof![Just("R"), Just("N"), Just("M"), Just("T"), Just("")];
    let key = prop_oneof![Just("chunk"), Just("output"), Just("input"), Just("error"), Just("action")];
    (prop::sample::select(kinds), ids, key, odd_value(), odd_value(), odd_value(), any::<bool>()).prop_map(
        |(kind, run, key, value, inner, tags, wraps)| {
            let value = match (wraps, inner) {
                (true, inner) => json!({"type": "AIMessageChunk", "id": "m", "content": inner, "tool_call_chunks": [value.clone()], "tool_calls": value}),
                (false, _) => value,
            };
            let parents: &[&str] = if run == "R" { &[] } else { &["R", "N"] };
            json!({"event": kind, "name": "n", "run_id": run, "parent_ids": parents,
                "tags": if wraps { json!(["graph:step:1"]) } else { tags },
                "metadata": {"langgraph_node": "n", "langgraph_checkpoint_ns": "n:1|x:2", "langgraph_path": ["__pregel_pull"]},
                "data": {key: value}})
        },
    )
}

fn any_frame() -> impl Strategy<Value = (String, Value)> {
    let modes: Vec<&'static str> =
        crate::format::langgraph::StreamMode::ALL.iter().map(|mode| mode.as_str()).collect();
    let namespaces = prop_oneof![Just(""), Just("|a:1"), Just("|a:1|b:2")];
    (prop::sample::select(modes), namespaces, odd_value(), odd_value()).prop_map(|(mode, ns, first, second)| {
        let data = match mode {
            "messages" => json!([{"type": "AIMessageChunk", "id": "m", "content": first}, {"langgraph_checkpoint_ns": "a:1|b:2"}]),
            "updates" => json!({"a": first, "b": second}),
            "tasks" => json!({"id": "1", "name": "a", "triggers": first, "interrupts": second}),
            _ => first,
        };
        (format!("{mode}{ns}"), data)
    })
}

/// Damage to the bytes of a capture.
#[derive(Clone, Debug)]
enum Damage {
    Byte(usize, u8),
    Drop(usize),
    Repeat(usize),
    Swap(usize, usize),
    Cut(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        any::<usize>().prop_map(Damage::Drop),
        any::<usize>().prop_map(Damage::Repeat),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Damage::Swap(a, b)),
        any::<usize>().prop_map(Damage::Cut),
    ]
}

/// Reads bytes and skips malformed frames; every event must be valid.
fn assert_valid_events(bytes: &[u8], pairs: &[&str]) {
    use crate::{
        event::StreamEnd,
        format::{Options, langgraph::FORMAT},
        framing::{Framing, detect},
        order::Checker,
        source::{GuardedSource, SourceOptions},
    };
    let framing = detect(bytes, FORMAT.reads).unwrap_or(Framing::Lines);
    let options = Options::parse(pairs.iter().copied(), FORMAT.options).unwrap();
    let options = SourceOptions { options, lenient: true, ..SourceOptions::default() };
    let mut source = GuardedSource::new(&FORMAT, framing, &options).unwrap();
    let mut checker = Checker::new();
    let mut sink = |event| assert_eq!(checker.check(&event), None, "{event:?}");
    let _ = source.push(bytes, &mut sink);
    let _ = source.end(&StreamEnd::Closed, &mut sink);
    assert_eq!(checker.end(), None);
}

const CAPTURES: &[&str] = &[
    include_str!("../fixtures/parallel_tool_calls.jsonl"),
    include_str!("../fixtures/interrupt_in_tool-1.jsonl"),
    include_str!("../fixtures/nested_subgraph.jsonl"),
    include_str!("../fixtures/reasoning_openai_responses.jsonl"),
    include_str!("../fixtures/one_tool_call.lc.jsonl"),
    include_str!("../fixtures/one_tool_call.modes.jsonl"),
    include_str!("../fixtures/server-tools-multi.sse"),
    include_str!("../fixtures/server-sub-subgraphs.sse"),
    include_str!("../fixtures/server-plain-debug.sse"),
    include_str!("../fixtures/server-v2-tools.sse"),
    include_str!("../fixtures/server-plain-messages.sse"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn damaged_captures_stay_valid(
        capture in prop::sample::select(CAPTURES),
        damages in prop::collection::vec(damage(), 1..12),
        options in prop::sample::select(vec!["raw=off", "subagents=on", "thinking=chains", "steps=tools", "ids=given"]),
    ) {
        let separator = if capture.contains("\r\n\r\n") { "\r\n\r\n" } else { "\n" };
        let mut parts: Vec<Vec<u8>> = capture.split_inclusive(separator).map(|part| part.as_bytes().to_vec()).collect();
        for damage in damages {
            let count = parts.len().max(1);
            match damage {
                Damage::Byte(at, byte) => {
                    let part = &mut parts[at % count];
                    let length = part.len().max(1);
                    part[at / count % length] = byte;
                }
                Damage::Drop(at) if count > 1 => drop(parts.remove(at % count)),
                Damage::Repeat(at) => parts.push(parts[at % count].clone()),
                Damage::Swap(a, b) => parts.swap(a % count, b % count),
                Damage::Cut(at) => {
                    let part = &mut parts[at % count];
                    part.truncate((at / count % part.len().max(1)).max(1));
                }
                Damage::Drop(_) => {}
            }
        }
        assert_valid_events(&parts.concat(), &[options]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_events_make_a_valid_stream(events in prop::collection::vec(any_event(), 0..24), options in prop::sample::select(vec!["raw=off", "subagents=on", "thinking=chains", "steps=tools", "hide_nodes=a", "interrupts=both"])) {
        read_lines(&events, &[options]);
    }

    #[test]
    fn any_frames_make_a_valid_stream(frames in prop::collection::vec(any_frame(), 0..24), options in prop::sample::select(vec!["raw=on", "subagents=on", "ids=given"])) {
        let frames: Vec<(&str, Value)> = frames.iter().map(|(name, data)| (name.as_str(), data.clone())).collect();
        read_frames(&frames, &[options]);
    }
}
