use super::*;

fn body(input: &RunInput) -> Value {
    serde_json::from_str(&to_json(input, ModelConfig { name: "m", system: Some("Be brief.") })).unwrap()
}

#[test]
fn request_streams_and_includes_usage() {
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
fn every_call_is_followed_by_a_result() {
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
    let messages = &body(&input)["messages"];
    assert_eq!(
        *messages,
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
fn sends_messages_of_all_roles_and_parts() {
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
    let body = body(&input);
    assert_eq!(
        body["messages"].as_array().unwrap()[1..],
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
fn reasoning_details_are_sent_back() {
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
