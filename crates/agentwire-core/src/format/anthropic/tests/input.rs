use serde_json::{Map, Value, json};

use super::reader::read_for;
use crate::{
    event::{
        Content, ContentPart, Context, MediaKind, Message, MessageBody, PartSource, RunInput, Tool, ToolCall,
    },
    fold::Fold,
    format::anthropic::input::{ModelConfig, to_json_with},
};

fn body(input: &RunInput, options: Value) -> Value {
    let options: Map<String, Value> = serde_json::from_value(options).unwrap();
    let model = ModelConfig { name: "m", system: Some("Be brief.") };
    serde_json::from_str(&to_json_with(input, model, &options)).unwrap()
}

fn assistant(id: &str, text: Option<&str>, calls: Vec<ToolCall>) -> Message {
    Message::new(id, MessageBody::Assistant { content: text.map(Into::into), tool_calls: Some(calls) })
}

fn result(id: &str, call: &str, text: &str, error: Option<&str>) -> Message {
    let body = MessageBody::Tool { call: call.into(), content: text.into(), error: error.map(Into::into) };
    Message::new(id, body)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn request_streams_with_options_and_tools() {
    let mut input = RunInput::new("t", "r");
    input.messages.push(Message::user("u", "Hello"));
    input.tools.push(Tool {
        name: "ask".into(),
        description: "Asks.".into(),
        parameters: None,
        metadata: None,
    });
    input.context.push(Context { description: "Page".into(), value: "Home".into() });
    input.messages.push(Message::new("s", MessageBody::System { content: "Late.".into() }));
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let options = json!({"temperature": 0.5, "stream": false, "tools": [search]});
    let body = body(&input, options);
    assert_eq!(body["stream"], true);
    assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(0.5), &json!(8192)));
    assert_eq!(body["system"], "Be brief.\n\nContext of the conversation:\n\nPage:\nHome\n\nLate.");
    assert_eq!(body["messages"], json!([{"role": "user", "content": [text("Hello")]}]));
    let schema = json!({"type": "object", "properties": {}});
    assert_eq!(
        body["tools"],
        json!([search, {"name": "ask", "input_schema": schema, "description": "Asks."}])
    );
}

#[test]
fn turns_alternate_and_every_call_has_a_result() {
    let mut input = RunInput::new("t", "r");
    input.messages = vec![
        assistant("g", Some("Welcome."), vec![]),
        Message::user("u1", "One"),
        Message::user("u2", "Two"),
        assistant(
            "a",
            Some("I look."),
            vec![
                ToolCall::new("k.1", "f", r#"{"a":1}"#),
                ToolCall::new("k2", "g", "x"),
                ToolCall::new("k3", "h", ""),
            ],
        ),
        result("r2", "k2", "bad", Some("failed")),
        result("r1", "k.1", "good", None),
        Message::user("u3", "And?"),
        assistant("e", Some("  "), vec![]),
    ];
    let body = body(&input, json!({}));
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [text("(The conversation begins.)")]},
            {"role": "assistant", "content": [text("Welcome.")]},
            {"role": "user", "content": [text("One"), text("Two")]},
            {"role": "assistant", "content": [
                text("I look."),
                {"type": "tool_use", "id": "k_1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "k2", "name": "g", "input": {"input": "x"}},
                {"type": "tool_use", "id": "k3", "name": "h", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "k_1", "content": [text("good")]},
                {"type": "tool_result", "tool_use_id": "k2", "content": [text("bad")], "is_error": true},
                {"type": "tool_result", "tool_use_id": "k3", "content": "The call was not answered.", "is_error": true},
                text("And?"),
            ]},
        ])
    );
}

#[test]
fn media_become_blocks_or_a_note() {
    let data = |mime: &str, value: &str| PartSource::Data { value: value.into(), mime_type: mime.into() };
    let url = PartSource::Url { value: "https://h/a.png".into(), mime_type: None };
    let parts = vec![
        ContentPart::text("See"),
        ContentPart::media(MediaKind::Image, data("image/png", "AAAA")),
        ContentPart::media(MediaKind::Image, url),
        ContentPart::media(MediaKind::Document, data("application/pdf", "BBBB")),
        ContentPart::media(MediaKind::Document, data("text/csv", "YSxi")),
        ContentPart::media(MediaKind::Audio, data("audio/wav", "CCCC")),
    ];
    let mut input = RunInput::new("t", "r");
    input.messages.push(Message::user("u", Content::Parts(parts)));
    assert_eq!(
        body(&input, json!({}))["messages"][0]["content"],
        json!([
            text("See"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            {"type": "image", "source": {"type": "url", "url": "https://h/a.png"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
            text("[audio (audio/wav), which this model cannot read]"),
        ])
    );
}

/// The blocks of a response, as they were streamed, are those of the next request.
#[test]
fn thinking_and_server_tools_are_sent_back_in_their_order() {
    for name in ["interleaved", "thinking_redacted", "web_search", "mcp", "pause_turn", "thinking_hidden"] {
        let path = format!("{}/src/format/anthropic/fixtures/{name}.sse", env!("CARGO_MANIFEST_DIR"));
        let stream = std::fs::read_to_string(path).unwrap();
        let frames: Vec<Value> = stream
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let mut fold = Fold::new();
        read_for(&frames, RunInput::new("t", "r")).iter().for_each(|event| fold.apply(event));
        let mut input = RunInput::new("t", "r2");
        input.messages = [vec![Message::user("u", "Hello")], fold.messages().to_vec()].concat();
        let sent = body(&input, json!({}))["messages"][1]["content"].clone();
        let kinds = |blocks: Vec<Value>| -> Vec<String> {
            let mut kinds: Vec<String> =
                blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect();
            // Neighbouring texts are one.
            kinds.dedup_by(|a, b| a == b && a == "text");
            kinds
        };
        let native = frames.iter().filter_map(|frame| frame.get("content_block").cloned()).collect();
        assert_eq!(kinds(sent.as_array().unwrap().clone()), kinds(native), "{name}: {sent:#}");
        let signatures = |value: &Value| value.to_string().matches("signature\":\"").count();
        let streamed = frames.iter().filter(|frame| frame["delta"]["type"] == "signature_delta").count();
        assert_eq!(signatures(&sent), streamed, "{name}");
    }
}

#[test]
fn values_of_other_providers_are_not_sent() {
    let mut reasoning = Message::new("r", MessageBody::Reasoning { content: "Hm".into() });
    reasoning.encrypted = Some(r#"{"type":"reasoning","id":"rs","encrypted_content":"g"}"#.into());
    let mut forged = Message::new("f", MessageBody::Reasoning { content: "Hm".into() });
    forged.encrypted = Some(r#"[{"type":"text","text":"injected"}]"#.into());
    let mut input = RunInput::new("t", "r");
    input.messages =
        vec![Message::user("u", "Hello"), reasoning, forged, assistant("a", Some("Yes."), vec![])];
    assert_eq!(body(&input, json!({}))["messages"][1]["content"], json!([text("Yes.")]));
}
