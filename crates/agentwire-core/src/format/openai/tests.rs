use serde_json::{Value, json};

use super::{
    FORMAT,
    input::{Model, to_json},
};
use crate::{
    convert::{Source, SourceOptions},
    event::{
        Body, Content, ContentPart, Context, Event, MediaKind, Message, MessageBody, Outcome, PartSource,
        RunInput, Tool, ToolCall,
    },
    fold::Fold,
    format::{Options, StreamEnd, golden},
    framing::Framing,
    json::Json,
};

#[test]
fn golden_files() {
    golden::run(&FORMAT, "src/format/openai/fixtures");
}

fn chunk(choices: Value) -> Value {
    json!({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": choices})
}

fn delta(delta: Value) -> Value {
    chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]))
}

fn stop(reason: &str) -> Value {
    chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]))
}

fn sse(frames: &[Value]) -> String {
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

fn read(frames: &[Value]) -> (Vec<Event>, Option<String>) {
    golden::read_framed(&FORMAT, Framing::Sse, sse(frames).as_bytes(), usize::MAX, &[])
}

/// The events of a stream whose request is known.
fn answer(frames: &[Value], request: RunInput) -> Vec<Event> {
    let options = SourceOptions {
        thread: request.thread.clone(),
        run: request.run.clone(),
        options: Options::default().for_request(request),
        ..SourceOptions::default()
    };
    let mut source = Source::new(&FORMAT, Framing::Sse, &options).unwrap();
    let mut events = Vec::new();
    source.push(sse(frames).as_bytes(), &mut |event| events.push(event)).unwrap();
    source.end(&StreamEnd::Closed, &mut |event| events.push(event)).unwrap();
    events
}

fn tool(name: &str) -> Tool {
    Tool { name: name.into(), description: "Does it.".into(), parameters: None, metadata: None }
}

fn call(id: &str, name: &str) -> Value {
    delta(json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": name, "arguments": "{}"}}]}))
}

fn texts(events: &[Event]) -> String {
    let text = |event: &Event| match &event.body {
        Body::TextDelta { delta, .. } => Some(delta.to_string()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[test]
fn calls_of_declared_tools_are_what_the_run_waits_for() {
    let mut request = RunInput::new("t", "r");
    request.tools.push(tool("ask"));
    let own = delta(
        json!({"tool_calls": [{"index": 1, "id": "k2", "function": {"name": "mine", "arguments": "{}"}}]}),
    );
    let events = answer(&[call("k1", "ask"), own, stop("tool_calls")], request);
    let Some(Body::RunFinished(finished)) = events.last().map(|event| &event.body) else {
        panic!("{events:#?}")
    };
    assert_eq!(finished.outcome, Some(Outcome::Success { pending: vec!["k1".into()] }));
}

#[test]
fn ids_that_the_conversation_has_are_not_used_again() {
    let mut request = RunInput::new("t", "r");
    let body = MessageBody::Assistant {
        content: None,
        tool_calls: Some(vec![ToolCall::new("call_0", "ask", "{}")]),
    };
    request.messages.push(Message::new("c1", body));
    let events = answer(&[call("call_0", "ask"), stop("tool_calls")], request);
    let started = events.iter().find_map(|event| match &event.body {
        Body::ToolStart { call, parent, .. } => Some((call.to_string(), parent.clone())),
        _ => None,
    });
    assert_eq!(started, Some(("r:message:call".into(), Some("r:message".into()))));
}

#[test]
fn a_response_without_an_id_is_named_after_the_run() {
    let (events, _) = read(&[json!({"choices": [{"delta": {"content": "x"}}]}), stop("stop")]);
    assert!(
        matches!(&events[1].body, Body::TextStart { message, .. } if &**message == "r:message"),
        "{events:#?}"
    );
}

#[test]
fn a_chunk_that_is_taken_apart_says_the_same_as_one_that_is_not() {
    for said in [
        json!({"content": "a\u{e9}\n"}),
        json!({"reasoning": "b"}),
        json!({"reasoning_content": "c", "content": ""}),
    ] {
        let plain = delta(said.clone());
        let mut odd = plain.clone();
        odd["some_new_member"] = json!(1);
        assert_eq!(read(&[plain, stop("stop")]), read(&[odd, stop("stop")]));
    }
}

#[test]
fn what_is_said_twice_under_two_names_is_thought_once() {
    let (events, _) = read(&[delta(json!({"reasoning": "x", "reasoning_content": "x"})), stop("stop")]);
    let thoughts =
        |events: &[Event]| events.iter().filter(|event| event.kind() == "REASONING_MESSAGE_CONTENT").count();
    assert_eq!(thoughts(&events), 1);
    let (events, _) = read(&[delta(json!({"reasoning": "x", "reasoning_content": ""})), stop("stop")]);
    assert_eq!(thoughts(&events), 1, "an empty one says nothing");
}

#[test]
fn text_behind_a_call_goes_on_with_the_message() {
    let (events, _) = read(&[
        delta(json!({"content": "a"})),
        call("k", "f"),
        delta(json!({"content": "b"})),
        delta(json!({"reasoning": "hm"})),
        delta(json!({"content": "c"})),
        stop("stop"),
    ]);
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    let messages = fold.messages();
    let spoken: Vec<_> = messages.iter().filter(|message| &*message.id == "c1").collect();
    assert_eq!(spoken.len(), 1, "{messages:#?}");
    let MessageBody::Assistant { content, tool_calls } = &spoken[0].body else { panic!() };
    assert_eq!(content.as_deref(), Some("abc"));
    assert_eq!(tool_calls.as_ref().map(Vec::len), Some(1));
}

#[test]
fn nothing_behind_the_end_is_read() {
    let text =
        format!("{}data: [DONE]\n\n{}", sse(&[stop("stop")]), sse(&[delta(json!({"content": "late"}))]));
    let (events, failure) = golden::read_framed(&FORMAT, Framing::Sse, text.as_bytes(), usize::MAX, &[]);
    assert_eq!((texts(&events), failure), (String::new(), None));
    assert_eq!(events.last().map(Event::kind), Some("RUN_FINISHED"));
}

#[test]
fn a_stream_without_a_completion_fails() {
    let (events, _) = golden::read_framed(&FORMAT, Framing::Sse, b"data: [DONE]\n\n", usize::MAX, &[]);
    let Some(Body::RunError(error)) = events.last().map(|event| &event.body) else { panic!("{events:#?}") };
    assert_eq!(error.code.as_deref(), Some("UPSTREAM_NO_EVENTS"));
}

#[test]
fn what_is_malformed_is_named_by_its_path() {
    for (frame, path) in [
        (json!({"choices": 1}), "/choices"),
        (json!({"choices": [1]}), "/choices/0"),
        (delta(json!({"content": 1})), "/choices/0/delta/content"),
        (delta(json!({"content": [{"type": "text", "text": 1}]})), "/choices/0/delta/content/0/text"),
        (delta(json!({"tool_calls": {}})), "/choices/0/delta/tool_calls"),
        (
            delta(json!({"tool_calls": [{"function": {"name": 1}}]})),
            "/choices/0/delta/tool_calls/0/function/name",
        ),
        (json!({"choices": [], "usage": {"prompt_tokens": -1}}), "/usage/prompt_tokens"),
        (chunk(json!([{"index": "x", "delta": {}}])), "/choices/0/index"),
        (
            delta(json!({"reasoning_details": [{"type": "reasoning.text", "text": {}}]})),
            "/choices/0/delta/reasoning_details/0/text",
        ),
        (delta(json!({"annotations": [7]})), "/choices/0/delta/annotations/0"),
    ] {
        let (_, failure) = read(std::slice::from_ref(&frame));
        assert!(
            failure.as_ref().is_some_and(|failure| failure.contains(&format!("`{path}`"))),
            "{frame}: {failure:?}"
        );
    }
}

#[test]
fn errors_are_named_by_their_most_exact_word() {
    for (error, code, message) in [
        (json!({"error": {"message": "no", "type": "t", "code": "c"}}), "c", "no"),
        (json!({"error": {"message": "no", "type": "t", "code": null}}), "t", "no"),
        (json!({"error": {"message": "no", "code": 429}}), "429", "no"),
        (json!({"error": {"message": "no"}}), "UPSTREAM_ERROR", "no"),
        (json!({"error": "plain"}), "UPSTREAM_ERROR", "plain"),
        (json!({"error": {"code": "c"}}), "c", "c"),
        (json!({"detail": "Not Found"}), "UPSTREAM_REFUSED", "Not Found"),
    ] {
        for before in [vec![], vec![delta(json!({"content": "x"}))]] {
            let (events, failure) = read(&[before, vec![error.clone()]].concat());
            assert_eq!(failure, None);
            let Some(Body::RunError(said)) = events.last().map(|event| &event.body) else {
                panic!("{events:#?}")
            };
            assert_eq!((said.code.as_deref(), &*said.message), (Some(code), message), "{error}");
        }
    }
}

#[test]
fn tables_are_bounded() {
    let choices: Vec<Value> =
        (0..1000).map(|index| json!({"index": index, "delta": {"content": "x"}})).collect();
    let (events, _) = read(&[chunk(json!(choices))]);
    assert_eq!(texts(&events).len(), 128);
    let calls: Vec<Value> = (0..2000)
        .map(|index| json!({"index": index, "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    let (events, _) = read(&[delta(json!({"tool_calls": calls})), stop("tool_calls")]);
    assert_eq!(events.iter().filter(|event| event.kind() == "TOOL_CALL_START").count(), 1024);
}

fn body(input: &RunInput) -> Value {
    serde_json::from_str(&to_json(input, Model { name: "m", system: Some("Be brief.") })).unwrap()
}

#[test]
fn a_request_streams_and_asks_for_usage() {
    let mut input = RunInput::new("t", "r");
    input.tools.push(tool("ask"));
    input.tools.push(Tool {
        parameters: Some(Json::parse(r#"{"type":"object","required":["q"]}"#).unwrap()),
        ..tool("find")
    });
    input.context.push(Context { description: "Time zone".into(), value: "CET".into() });
    input.messages.push(Message::user("1", "Hi"));
    assert_eq!(
        body(&input),
        json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "system", "content": "Context of the conversation:\n\nTime zone:\nCET"},
                {"role": "user", "content": "Hi"},
            ],
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [
                {"type": "function", "function": {"name": "ask", "description": "Does it.", "parameters": {"type": "object", "properties": {}}}},
                {"type": "function", "function": {"name": "find", "description": "Does it.", "parameters": {"type": "object", "required": ["q"]}}},
            ],
        })
    );
}

#[test]
fn every_call_is_answered_behind_its_message() {
    let mut input = RunInput::new("t", "r");
    let calls =
        vec![ToolCall::new("k1", "a", "{}"), ToolCall::new("k2", "b", ""), ToolCall::new("k3", "c", "{}")];
    let result = |id: &str, call: &str, content: Content, error: Option<&str>| {
        Message::new(id, MessageBody::Tool { call: call.into(), content, error: error.map(Into::into) })
    };
    let image = ContentPart::media(
        MediaKind::Image,
        PartSource::Url { value: "http://x/i.png".into(), mime_type: None },
    );
    input.messages = vec![
        Message::new("1", MessageBody::Assistant { content: Some("".into()), tool_calls: Some(calls) }),
        Message::user("2", "And?"),
        result("3", "k3", "".into(), Some("it broke")),
        result("4", "k1", Content::Parts(vec![ContentPart::text("seen"), image]), None),
        result("5", "nobody", "x".into(), None),
    ];
    let said = &body(&input)["messages"];
    assert_eq!(
        *said,
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "k1", "type": "function", "function": {"name": "a", "arguments": "{}"}},
                {"id": "k2", "type": "function", "function": {"name": "b", "arguments": "{}"}},
                {"id": "k3", "type": "function", "function": {"name": "c", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "k1", "content": "seen"},
            {"role": "tool", "tool_call_id": "k2", "content": "The call was not answered."},
            {"role": "tool", "tool_call_id": "k3", "content": "Error: it broke"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/i.png"}}]},
            {"role": "user", "content": "And?"},
        ])
    );
}

#[test]
fn messages_of_all_roles_and_parts_are_sent() {
    let data = |mime: &str| PartSource::Data { value: "QUJD".into(), mime_type: mime.into() };
    let parts = vec![
        ContentPart::text("Look:"),
        ContentPart::media(MediaKind::Image, data("image/png")),
        ContentPart::media(MediaKind::Audio, data("audio/mpeg")),
        ContentPart::media(MediaKind::Video, PartSource::Url { value: "http://x/v".into(), mime_type: None }),
        ContentPart::media(MediaKind::Document, data("application/pdf")),
        ContentPart::media(
            MediaKind::Document,
            PartSource::File { value: "file-1".into(), provider: None, mime_type: None },
        ),
    ];
    let mut named = Message::user("3", "Named");
    named.name = Some("ada".into());
    let mut odd = Message::user("4", Content::Parts(vec![ContentPart::text("one")]));
    odd.name = Some("Ada Lovelace".into());
    let mut thought = Message::new("5", MessageBody::Reasoning { content: "Hm".into() });
    thought.encrypted = Some(r#"[{"type":"reasoning.encrypted","data":"x"}]"#.into());
    let mut foreign = Message::new("7", MessageBody::Reasoning { content: "Hm".into() });
    foreign.encrypted = Some("opaque".into());
    let mut input = RunInput::new("t", "r");
    input.messages = vec![
        Message::new("0", MessageBody::System { content: "s".into() }),
        Message::new("1", MessageBody::Developer { content: "d".into() }),
        Message::user("2", Content::Parts(parts)),
        named,
        odd,
        thought,
        Message::assistant("6", "Yes"),
        foreign,
        Message::assistant("8", "No"),
        Message::assistant("9", ""),
    ];
    let said = body(&input);
    assert_eq!(
        said["messages"].as_array().unwrap()[1..],
        *json!([
            {"role": "system", "content": "s"},
            {"role": "system", "content": "d"},
            {"role": "user", "content": [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
                {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "mp3"}},
                {"type": "video_url", "video_url": {"url": "http://x/v"}},
                {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
                {"type": "file", "file": {"file_id": "file-1"}},
            ]},
            {"role": "user", "content": "Named", "name": "ada"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "Yes", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
            {"role": "assistant", "content": "No"},
        ])
        .as_array()
        .unwrap()
    );
}

#[test]
fn what_was_answered_can_be_asked_on() {
    let (events, _) = read(&[
        delta(json!({"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]})),
        delta(
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "b", "signature": "s", "index": 0}]}),
        ),
        delta(json!({"content": "So:"})),
        call("k", "f"),
        stop("tool_calls"),
    ]);
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    let mut input = RunInput::new("t", "r2");
    input.messages = fold.messages().to_vec();
    assert_eq!(
        body(&input)["messages"][1],
        json!({
            "role": "assistant",
            "content": "So:",
            "tool_calls": [{"id": "k", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "reasoning_details": [{"type": "reasoning.text", "text": "ab", "signature": "s", "index": 0}],
        })
    );
}
