//! What should not happen is counted, and what comes out is valid all the same.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{chunk, event, in_node, model_end, node, root, tell, tell_frames, tell_text};

#[test]
fn unknown_kinds_are_counted_with_their_place() {
    let told = tell(&in_node(&[event("on_future_event", "x", "X", &["R"], json!({}))], json!({})), &[]);
    assert_eq!(told.last(), "finish");
    let found: Vec<_> = told.tally.iter().collect();
    let (what, name, count) = found[0];
    assert_eq!((what, name, count.times, count.first_frame), ("unknown event", "on_future_event", 1, 3));
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
    let told = tell(&in_node(&inner, json!({"messages": [1, {"type": "ai"}, "x"]})), &[]);
    assert!(told.failure.is_none());
    assert_eq!(told.last().split(' ').next(), Some("finish"));
    for name in
        ["on_chat_model_stream data.chunk", "on_chat_model_end data.output", "content", "tool call chunk"]
    {
        assert!(told.tally.count("wrong type", name) > 0, "{name} was not counted");
    }
}

#[test]
fn missing_metadata_parents_and_ids_are_no_problem() {
    let lines = [
        json!({"event": "on_chain_start", "data": {}}),
        json!({"event": "on_chat_model_stream", "data": {"chunk": {"content": "hi"}}}),
        json!({"event": "on_tool_start", "name": "f"}),
        json!({"event": "on_tool_end", "name": "f", "data": {"output": 1}}),
        json!({"event": "on_chain_end"}),
    ];
    let told = tell(&lines, &[]);
    assert_eq!(told.lines(&["+"]), ["+ lc_run-- hi"]);
    assert_eq!(told.last(), "finish");
}

#[test]
fn events_of_another_root_are_counted_and_left_out() {
    let foreign =
        |kind: &str, run: &str, parents: &[&str], data: Value| event(kind, "Other", run, parents, data);
    let told = tell(
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
    assert_eq!(told.lines(&["+"]), ["+ m ours"]);
    assert!(told.tally.count("event of another run", "Q") >= 2);
    assert_eq!(told.lines(&["finish", "error"]), ["finish"]);
}

#[test]
fn a_stream_that_starts_in_the_middle_is_read_from_there() {
    let told = tell(
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
    assert_eq!(told.story(), ["start t R", "text m", "+ m rest", "result c ok", "text-end m", "finish"]);
}

#[test]
fn not_a_number_is_null_and_nul_is_carried() {
    let text = format!(
        "{}\n{}\n{}\n",
        root("on_chain_start", json!({"input": {}})),
        r#"{"event":"on_custom_event","name":"score","run_id":"N","parent_ids":["R"],"data":{"a":NaN,"b":[Infinity,-Infinity],"c":"NaN"}}"#,
        r#"{"event":"on_chat_model_stream","run_id":"M","parent_ids":["R"],"data":{"chunk":{"type":"AIMessageChunk","id":"m","content":"a\u0000b"}}}"#,
    );
    let told = tell_text(&text, &[]);
    assert_eq!(told.lines(&["custom"]), [r#"custom score {"a":null,"b":[null,null],"c":"NaN"}"#]);
    assert_eq!(told.lines(&["+"]), ["+ m a\0b"]);
    assert_eq!(told.tally.count("number", "NaN"), 1);
    assert_eq!(told.tally.count("character", "U+0000"), 1);
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    let told = tell_text("{\"event\":\"on_chain_start\",\"run_id\":\"R\",\"parent_ids\":[]}\n{broken\n", &[]);
    let failure = told.failure.unwrap();
    assert!(failure.starts_with("line 2 at byte "), "{failure}");
    assert!(failure.contains("not valid JSON"), "{failure}");
    let told = tell_text("42\n", &[]);
    assert!(
        told.failure.unwrap().contains("expected an event, a mode tuple or a state, found the number 42")
    );
}

#[test]
fn unknown_frames_are_counted() {
    let told = tell_frames(
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
    assert_eq!(told.tally.count("unknown frame", "surprise"), 1);
    assert_eq!(told.tally.count("unknown debug entry", "new"), 1);
    assert_eq!(told.tally.count("wrong type", "updates"), 1);
    assert_eq!(told.last(), "finish");
    let told = tell(
        &[json!(["nonsense", 1]), json!([1, 2, 3]), json!({"mode": "odd", "data": 1}), json!({"a": 1})],
        &[],
    );
    assert_eq!(told.tally.count("unknown stream mode", "nonsense"), 1);
    assert_eq!(told.tally.count("unknown stream mode", "odd"), 1);
}

#[test]
fn a_flood_of_everything_stays_bounded() {
    let mut lines = vec![root("on_chain_start", json!({"input": {}}))];
    for n in 0..6000 {
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

/// Values that stand where others are expected.
fn odd() -> impl Strategy<Value = Value> {
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
    (prop::sample::select(kinds), ids, key, odd(), odd(), odd(), any::<bool>()).prop_map(
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
        crate::format::langgraph::Mode::ALL.iter().map(|mode| mode.as_str()).collect();
    let places = prop_oneof![Just(""), Just("|a:1"), Just("|a:1|b:2")];
    (prop::sample::select(modes), places, odd(), odd()).prop_map(|(mode, place, first, second)| {
        let data = match mode {
            "messages" => json!([{"type": "AIMessageChunk", "id": "m", "content": first}, {"langgraph_checkpoint_ns": "a:1|b:2"}]),
            "updates" => json!({"a": first, "b": second}),
            "tasks" => json!({"id": "1", "name": "a", "triggers": first, "interrupts": second}),
            _ => first,
        };
        (format!("{mode}{place}"), data)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_events_make_a_valid_stream(events in prop::collection::vec(any_event(), 0..24), options in prop::sample::select(vec!["raw=off", "subagents=on", "thinking=chains", "steps=tools", "hide_nodes=a", "interrupts=both"])) {
        tell(&events, &[options]);
    }

    #[test]
    fn any_frames_make_a_valid_stream(frames in prop::collection::vec(any_frame(), 0..24), options in prop::sample::select(vec!["raw=on", "subagents=on", "ids=given"])) {
        let frames: Vec<(&str, Value)> = frames.iter().map(|(name, data)| (name.as_str(), data.clone())).collect();
        tell_frames(&frames, &[options]);
    }
}
