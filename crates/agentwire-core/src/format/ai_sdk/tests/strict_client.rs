//! Client model in Rust, as strict as the strictest build of each version, for tests with generated streams.
//!
//! The field tables come from the schemas of `ai` 5.0.0, 6.0.0 and 7.0.0, the order rules from their message builders. The
//! tests with the real packages are in `e2e/ai-sdk`.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::super::{wire, writer::encode};

/// Type of a field.
#[derive(Clone, Copy, PartialEq)]
enum FieldType {
    Text,
    Bool,
    /// Any value, including `null`.
    Any,
    Provider,
    Reason,
}

use FieldType::{Any, Bool, Provider, Reason, Text};

/// Fields of a chunk: name, type, and true if required.
fn fields(kind: &str, version: u8) -> Option<Vec<(&'static str, FieldType, bool)>> {
    let provider_metadata = ("providerMetadata", Provider, false);
    let id = ("id", Text, true);
    let call = ("toolCallId", Text, true);
    let name = ("toolName", Text, true);
    let dynamic = ("dynamic", Bool, false);
    let executed = ("providerExecuted", Bool, false);
    let title = ("title", Text, false);
    Some(match kind {
        "start" => vec![("messageId", Text, false), ("messageMetadata", Any, false)],
        "start-step" | "finish-step" => vec![],
        "text-start" | "text-end" | "reasoning-start" | "reasoning-end" => vec![id, provider_metadata],
        "text-delta" | "reasoning-delta" => vec![id, ("delta", Text, true), provider_metadata],
        "tool-input-start" if version > 5 => vec![call, name, executed, dynamic, title],
        "tool-input-start" => vec![call, name, executed, dynamic],
        "tool-input-delta" => vec![call, ("inputTextDelta", Text, true)],
        "tool-input-available" if version > 5 => {
            vec![call, name, ("input", Any, true), executed, provider_metadata, dynamic, title]
        }
        "tool-input-available" => {
            vec![call, name, ("input", Any, true), executed, provider_metadata, dynamic]
        }
        "tool-input-error" if version > 5 => {
            vec![
                call,
                name,
                ("input", Any, true),
                executed,
                provider_metadata,
                dynamic,
                ("errorText", Text, true),
                title,
            ]
        }
        "tool-output-available" if version > 5 => {
            vec![call, ("output", Any, true), executed, dynamic, ("preliminary", Bool, false)]
        }
        "tool-output-available" => vec![call, ("output", Any, true), executed, dynamic],
        "tool-output-error" => vec![call, ("errorText", Text, true), executed, dynamic],
        "tool-output-denied" if version > 5 => vec![call],
        "tool-approval-request" if version > 5 => vec![("approvalId", Text, true), call],
        "source-url" => {
            vec![("sourceId", Text, true), ("url", Text, true), ("title", Text, false), provider_metadata]
        }
        "source-document" => vec![
            ("sourceId", Text, true),
            ("mediaType", Text, true),
            ("title", Text, true),
            ("filename", Text, false),
            provider_metadata,
        ],
        "file" => vec![("url", Text, true), ("mediaType", Text, true), provider_metadata],
        "message-metadata" => vec![("messageMetadata", Any, true)],
        "finish" if version > 5 => vec![("finishReason", Reason, false), ("messageMetadata", Any, false)],
        "finish" => vec![("messageMetadata", Any, false)],
        "abort" => vec![],
        "error" => vec![("errorText", Text, true)],
        "custom" if version > 6 => vec![("kind", Text, true), provider_metadata],
        kind if kind.starts_with("data-") => {
            vec![("id", Text, false), ("data", Any, true), ("transient", Bool, false)]
        }
        _ => return None,
    })
}

/// Content that a client holds at the end of a response.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClientContent {
    /// Text and reasoning by the message ids in their provider metadata.
    pub(super) texts: BTreeMap<String, String>,
    pub(super) reasoning: BTreeMap<String, String>,
    /// Name and input of calls.
    pub(super) calls: BTreeMap<String, (String, Value)>,
    /// Outputs and errors by call.
    pub(super) outputs: BTreeMap<String, Value>,
    pub(super) state: Option<Value>,
}

#[derive(Default)]
struct ToolPart {
    dynamic: bool,
    step: usize,
    streaming: bool,
    approval: bool,
    name: String,
    arguments: String,
}

/// Reads a response as the strictest client of `version`; panics where that client would fail.
pub(super) fn receive(version: u8, body: &str) -> ClientContent {
    let mut content = ClientContent::default();
    let mut texts: HashMap<String, String> = HashMap::new();
    let mut reasoning: HashMap<String, String> = HashMap::new();
    let mut tools: HashMap<String, ToolPart> = HashMap::new();
    let (mut step, mut in_step, mut is_over, mut is_done) = (0, false, false, false);
    let mut is_first = true;
    for frame in body.split_terminator("\n\n") {
        let data = frame.strip_prefix("data: ").unwrap_or_else(|| panic!("not a frame: {frame}"));
        assert!(!is_done, "nothing follows [DONE]: {frame}");
        if data == "[DONE]" {
            is_done = true;
            continue;
        }
        assert!(!data.contains('\n'), "one line per frame");
        let chunk: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
        check_keys(&chunk);
        let kind = chunk["type"].as_str().expect("a chunk has a type");
        check_fields(kind, version, &chunk);
        let text = |key: &str| chunk[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(kind == "start", is_first, "start comes first, once: {chunk}");
        is_first = false;
        if is_over {
            // Another run in the same response, or the `finish` after an error.
            is_over = kind == "finish";
        }
        let message = || chunk["providerMetadata"]["agentwire"]["messageId"].as_str().map(str::to_owned);
        match kind {
            "start-step" => {
                assert!(!in_step, "steps do not nest");
                (in_step, step) = (true, step + 1);
            }
            "finish-step" => {
                assert!(in_step, "a step was begun");
                assert!(texts.is_empty() && reasoning.is_empty(), "text never spans a step");
                assert!(!tools.values().any(|part| part.streaming), "arguments never span a step");
                in_step = false;
            }
            "text-start" | "reasoning-start" => {
                assert!(in_step, "parts lie in steps: {chunk}");
                let open = if kind == "text-start" { &mut texts } else { &mut reasoning };
                let message = message().expect("our parts name their message");
                assert_eq!(open.insert(text("id"), message), None, "the part was not open");
            }
            "text-delta" => {
                let message = texts.get(&text("id")).unwrap_or_else(|| panic!("text is open: {chunk}"));
                content.texts.entry(message.clone()).or_default().push_str(&text("delta"));
            }
            "reasoning-delta" => {
                let message = reasoning.get(&text("id")).unwrap_or_else(|| panic!("it is open: {chunk}"));
                content.reasoning.entry(message.clone()).or_default().push_str(&text("delta"));
            }
            "text-end" => assert!(texts.remove(&text("id")).is_some(), "text is open: {chunk}"),
            "reasoning-end" => assert!(reasoning.remove(&text("id")).is_some(), "it is open: {chunk}"),
            "tool-input-start" => {
                let dynamic = chunk["dynamic"] == true;
                let name = text("toolName");
                tools.insert(
                    text("toolCallId"),
                    ToolPart { dynamic, step, streaming: true, name, ..ToolPart::default() },
                );
                content.outputs.remove(&text("toolCallId"));
            }
            "tool-input-delta" => {
                let part = tools.get_mut(&text("toolCallId")).expect("a call that streams");
                assert!(part.streaming && part.step == step, "arguments stream in their step: {chunk}");
                part.arguments.push_str(&text("inputTextDelta"));
            }
            "tool-input-available" | "tool-input-error" => {
                let dynamic = chunk["dynamic"] == true;
                let part = tools.entry(text("toolCallId")).or_insert(ToolPart {
                    dynamic,
                    step,
                    ..ToolPart::default()
                });
                assert_eq!(part.dynamic, dynamic, "dynamic stays: {chunk}");
                assert!(!part.streaming || part.step == step, "a call is completed in its step: {chunk}");
                part.streaming = false;
                content.calls.insert(text("toolCallId"), (text("toolName"), chunk["input"].clone()));
                if kind == "tool-input-error" {
                    content.outputs.insert(text("toolCallId"), chunk["errorText"].clone());
                }
            }
            "tool-output-error" if chunk["errorText"] == wire::UNFINISHED => {
                let part = tools.get_mut(&text("toolCallId")).expect("a call that failed");
                assert!(part.streaming && part.step == step, "it was not said before: {chunk}");
                assert_eq!(part.dynamic, chunk["dynamic"] == true, "dynamic is repeated: {chunk}");
                part.streaming = false;
                let input = encode::tool_input(&part.arguments).to_value();
                content.calls.insert(text("toolCallId"), (part.name.clone(), input));
            }
            "tool-output-available" | "tool-output-error" | "tool-output-denied" => {
                let part = tools.get(&text("toolCallId")).unwrap_or_else(|| panic!("no call: {chunk}"));
                assert!(!part.streaming, "a result follows its call: {chunk}");
                if kind != "tool-output-denied" {
                    assert_eq!(part.dynamic, chunk["dynamic"] == true, "dynamic is repeated: {chunk}");
                } else {
                    assert!(part.approval, "what is denied was asked for");
                }
                let output =
                    if kind == "tool-output-available" { &chunk["output"] } else { &chunk["errorText"] };
                content.outputs.insert(text("toolCallId"), output.clone());
            }
            "tool-approval-request" => {
                let part = tools.get_mut(&text("toolCallId")).expect("a call to approve");
                part.approval = true;
            }
            "finish" | "abort" | "error" => {
                assert!(texts.is_empty() && reasoning.is_empty(), "everything is closed at the end");
                assert!(!in_step, "the step has ended");
                is_over = true;
            }
            "data-state" if chunk["id"] == "state" => content.state = Some(chunk["data"].clone()),
            _ => {}
        }
    }
    assert!(is_over && is_done, "the response has an end");
    content
}

fn check_fields(kind: &str, version: u8, chunk: &Value) {
    let known = fields(kind, version).unwrap_or_else(|| panic!("`{kind}` is unknown to version {version}"));
    let object = chunk.as_object().expect("a chunk is an object");
    for (key, value) in object {
        if key == "type" {
            continue;
        }
        let (_, wanted, _) = known
            .iter()
            .find(|(name, ..)| name == key)
            .unwrap_or_else(|| panic!("`{kind}.{key}` is unknown to version {version}: {chunk}"));
        let is_valid = match wanted {
            Text => value.is_string(),
            Bool => value.is_boolean(),
            Any => true,
            Provider => value.as_object().is_some_and(|it| it.values().all(Value::is_object)),
            Reason => {
                let words = ["stop", "length", "content-filter", "tool-calls", "error", "other"];
                value.as_str().is_some_and(|word| words.contains(&word))
            }
        };
        assert!(is_valid, "`{kind}.{key}` is wrong: {chunk}");
    }
    for (name, _, is_required) in known {
        assert!(!is_required || object.contains_key(name), "`{kind}.{name}` is missing: {chunk}");
    }
}

/// Panics on keys that the SDK's parser refuses.
fn check_keys(value: &Value) {
    match value {
        Value::Object(map) => {
            assert!(!map.contains_key("__proto__"), "__proto__");
            if let Some(constructor) = map.get("constructor") {
                assert!(!constructor.is_null() && constructor.get("prototype").is_none(), "constructor");
            }
            map.values().for_each(check_keys);
        }
        Value::Array(list) => list.iter().for_each(check_keys),
        _ => {}
    }
}

/// Reads a data stream as the client of version 4; panics where that client would fail.
pub(super) fn receive4(body: &str) -> ClientContent {
    let mut content = ClientContent::default();
    let mut streaming = HashSet::new();
    let mut calls = HashSet::new();
    let mut in_step = false;
    let (mut text, mut reasoning) = (String::new(), String::new());
    for line in body.split_terminator('\n') {
        let (code, json) = line.split_once(':').expect("a line has a code");
        let value: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {line}"));
        let call = || value["toolCallId"].as_str().expect("a tool call id").to_owned();
        match code {
            "0" => text.push_str(value.as_str().expect("text")),
            "g" => reasoning.push_str(value.as_str().expect("reasoning")),
            "3" => assert!(value.is_string()),
            "2" | "8" => assert!(value.is_array()),
            "b" => {
                assert!(value["toolName"].is_string());
                streaming.insert(call());
                calls.insert(call());
                content.outputs.remove(&call());
            }
            "c" => assert!(streaming.contains(&call()) && value["argsTextDelta"].is_string(), "{line}"),
            "9" => {
                assert!(
                    value["toolName"].is_string()
                        && matches!(value["args"], Value::Object(_) | Value::Array(_) | Value::Null)
                );
                calls.insert(call());
                let name = value["toolName"].as_str().unwrap_or_default().to_owned();
                content.calls.insert(call(), (name, value["args"].clone()));
            }
            "a" => {
                assert!(calls.contains(&call()), "a result follows its call: {line}");
                let result = value.get("result").expect("a result");
                if result["error"] == wire::UNFINISHED {
                    continue;
                }
                content.outputs.insert(call(), result.clone());
            }
            "f" => {
                assert!(!in_step && value["messageId"].is_string(), "{line}");
                in_step = true;
            }
            "e" => {
                assert!(in_step && value["finishReason"].is_string(), "{line}");
                in_step = false;
            }
            "d" => assert!(!in_step && value["finishReason"].is_string(), "{line}"),
            "h" => assert!(value.is_object()),
            "i" => assert!(value["data"].is_string()),
            "j" => assert!(value["signature"].is_string()),
            "k" => assert!(value["data"].is_string() && value["mimeType"].is_string()),
            other => panic!("the data stream has no code `{other}`"),
        }
    }
    content.texts.insert(String::new(), text);
    content.reasoning.insert(String::new(), reasoning);
    content
}
