//! The builder compared to the standard.

use super::{super::Builder, *};
use crate::event::Message;

/// The standard's backend sample, line by line, yields the events of the sample's stream.
#[test]
fn builder_reproduces_the_sample() {
    let outputer = Builder::new(|| 1_758_000_000_000);
    let id = "msgId-001";
    let task = json!({"id": "task-1", "name": "回答问题"});
    let mut stream = vec![
        outputer.build_sse_data(outputer.build_run_started(id).role("assistant")),
        outputer.build_sse_data(outputer.build_agent_collaborative_message_start("USER", "Agent", id)),
        outputer.build_sse_data(outputer.build_agent_collaborative_message_content(task, id)),
        outputer.build_sse_data(outputer.build_agent_collaborative_message_end(id)),
        outputer.build_sse_data(outputer.build_state_delta("add", "/workflowItems/0/status", "running")),
        outputer.build_sse_data(outputer.build_state_delta("replace", "/workflowItems/0/status", "done")),
        outputer.build_sse_data(outputer.build_step_started("智能处理")),
        outputer.build_sse_data(outputer.build_business_data_start(id)),
    ];
    for chunk in ["大棚", "的", "温度是 21 度。"] {
        let output = outputer.build_text(chunk);
        stream.push(outputer.build_sse_data(outputer.build_business_data_content(output, id)));
    }
    stream.push(outputer.build_sse_data(outputer.build_business_data_end(id)));
    stream.push(outputer.build_sse_data(outputer.build_step_finished("智能处理")));
    stream.push(outputer.build_sse_data(outputer.build_run_finished(id)));
    let (events, failure) = read(&FORMAT, stream.concat().as_bytes(), usize::MAX, &[]);
    assert_eq!(failure, None);
    let (sample, _) = read(&FORMAT, &fixture("builder_sample.sse"), usize::MAX, &[]);
    let untimed = |events: &[Event]| {
        let mut events = without_default_roles(events);
        for event in &mut events {
            event.as_object_mut().unwrap().shift_remove("timestamp");
        }
        events
    };
    assert_eq!(untimed(&events), untimed(&sample));
}

/// Fields and defaults of every builder method.
#[test]
fn fields_and_defaults_are_those_of_the_standard() {
    let b = Builder::new(|| 5);
    let wanted = [
        (
            b.build_run_started("m"),
            json!({"type": "RUN_STARTED", "messageId": "m", "role": "assistant", "timestamp": 5}),
        ),
        (
            b.build_run_finished("m").timestamp(6),
            json!({"type": "RUN_FINISHED", "messageId": "m", "role": "assistant", "timestamp": 6}),
        ),
        (b.build_step_started("s"), json!({"type": "STEP_STARTED", "stepName": "s"})),
        (b.build_step_finished("s"), json!({"type": "STEP_FINISHED", "stepName": "s"})),
        (
            b.build_business_data_start("m"),
            json!({"type": "BUSINESS_DATA_START", "messageId": "m", "role": "assistant", "timestamp": 5}),
        ),
        (
            b.build_business_data_end("m"),
            json!({"type": "BUSINESS_DATA_END", "messageId": "m", "role": "assistant", "timestamp": 5}),
        ),
        (
            b.build_business_data_content(b.build_text_output("x"), "m")
                .layout(json!({}))
                .block_id("")
                .style(json!({})),
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": {"output": {"type": "text", "content": "x"}}, "timestamp": 5}),
        ),
        (
            b.build_business_data_content(b.build_thinking_output("x"), "m")
                .layout(json!({"x": 0}))
                .block_id("b")
                .style(json!({"s": 1})),
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "timestamp": 5, "blockId": "b", "style": {"s": 1}, "delta": {
                "output": {"type": "thinking", "data": {"content": "x", "elapsed": 10, "thinking": true, "collapse": true}},
                "layout": {"x": 0}, "blockId": "b", "style": {"s": 1},
            }}),
        ),
        (
            b.build_business_data_content(b.build_fold_output("x").position("end").fold(true), "m"),
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": {"output": {"type": "fold", "data": {"title": "x", "fold": true, "position": "end"}}}, "timestamp": 5}),
        ),
        (
            b.build_agent_collaborative_message_start("A", "B", "m"),
            json!({"type": "AGENT_COLLABORATIVE_MESSAGE_START", "from": "A", "to": "B", "messageId": "m", "timestamp": 5}),
        ),
        (
            b.build_agent_collaborative_message_content(json!({"id": 1}), "m"),
            json!({"type": "AGENT_COLLABORATIVE_MESSAGE_CONTENT", "delta": {"task": {"id": 1}}, "messageId": "m", "timestamp": 5}),
        ),
        (
            b.build_agent_collaborative_message_end("m"),
            json!({"type": "AGENT_COLLABORATIVE_MESSAGE_END", "messageId": "m", "timestamp": 5}),
        ),
        (
            b.build_state_delta("add", "/a", 1),
            json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 1, "from": ""}], "timestamp": 5}),
        ),
        (
            b.build_state_delta("replace", "/a", 2).from_value("1"),
            json!({"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/a", "value": 2, "from": "1"}], "timestamp": 5}),
        ),
        (
            b.build_tool_call_start("c", "f", "m"),
            json!({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f", "parentMessageId": "m"}),
        ),
        (
            b.build_tool_call_args("c", json!({"a": 1})),
            json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{\"a\":1}"}),
        ),
        (b.build_tool_call_end("c"), json!({"type": "TOOL_CALL_END", "toolCallId": "c"})),
        (
            b.build_tool_call_result("m", "c", "ok"),
            json!({"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "ok", "role": "tool"}),
        ),
        (
            b.build_run_error("no", Some("E")),
            json!({"type": "RUN_ERROR", "message": "no", "code": "E", "timestamp": 5}),
        ),
        (
            b.build_state_snapshot(json!({"a": 1})),
            json!({"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}, "timestamp": 5}),
        ),
        (
            b.build_custom("n", json!([1])),
            json!({"type": "CUSTOM", "name": "n", "value": [1], "timestamp": 5}),
        ),
        (b.build_raw(json!(1), Some("s")), json!({"type": "RAW", "event": 1, "source": "s", "timestamp": 5})),
    ];
    for (built, wanted) in wanted {
        assert_eq!(built.to_value(), wanted);
    }
    let image: Value = b.build_image_output("image/png").url("https://x").alt("a").name("n").into();
    assert_eq!(
        image,
        json!({"type": "image", "data": {"mimeType": "image/png", "url": "https://x", "alt": "a", "name": "n"}})
    );
    let snapshot = b.build_message_snapshot(&[Message::user("u", "hi")]);
    assert_eq!(snapshot.to_value()["messages"], json!([{"id": "u", "role": "user", "content": "hi"}]));
}

#[test]
fn null_fields_are_dropped_and_default_fields_added() {
    let b = Builder::new(|| 5).default_field("agent", "gardener").default_field("role", "system");
    let error = b.build_sse_data(b.build_run_error("no", None));
    assert_eq!(
        error,
        "data: {\"type\":\"RUN_ERROR\",\"message\":\"no\",\"timestamp\":5,\"agent\":\"gardener\",\"role\":\"system\"}\n\n"
    );
    assert!(b.build_sse_data(b.build_run_started("m")).contains(r#""role":"assistant""#));
    assert_eq!(b.build_sse_data("[DONE]"), "data: [DONE]\n\n");
    let objects = Builder::new(|| 5).object_deltas();
    let frame = objects.build_sse_data(objects.build_business_data_content(objects.build_text("a}{b"), "m"));
    assert!(frame.contains(r#""delta":{"output":{"type":"text","content":"a}{b"}}"#));
    assert!(
        b.build_sse_data(b.build_business_data_content(b.build_text("a}{b"), "m")).contains(r"a}\\u007bb")
    );
}
