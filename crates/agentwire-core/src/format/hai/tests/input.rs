//! Request bodies.

use super::{super::input, *};
use crate::{
    event::{Content, Message, MessageBody},
    tally::Tally,
};

#[test]
fn requests_of_hai_clients_are_read() {
    // The standard's sample, the context of the reference server, and omissions of clients.
    let body = json!({
        "threadId": "", "runId": null,
        "messages": [
            {"id": "msg_1", "role": "user", "content": "介绍下HAI", "timestamp": 5, "name": "Ann"},
            {"role": "assistant", "content": "{\"output\":{\"type\":\"text\",\"content\":\"好\"}}{\"output\":{\"type\":\"button\",\"data\":{\"name\":\"B\"}}}"},
            {"id": "result-789", "role": "tool", "content": "true", "toolCallId": "tool-123"},
        ],
        "context": [{"id": "c", "role": "user", "content": "Bern"}, {"description": "tz", "value": "CET"}, {"description": "n", "value": 3}],
        "tools": [{"name": "confirmAction", "parameters": {"type": "object"}}],
        "forwardedProps": {"hai": {"delta": "text", "tool_args": "whole", "include_developer": "yes", "snapshot_name": "X"}},
        "state": null,
        "extension": {"kept": true},
    });
    let tally = &mut Tally::default();
    let input = input::from_json(&body.to_string(), &"T".into(), &"R".into(), tally).unwrap();
    assert_eq!((&*input.thread, &*input.run), ("T", "R"));
    assert_eq!(input.state, None);
    assert_eq!(&*input.messages[1].id, "R:message:1");
    assert_eq!(input.messages[1].body, Message::assistant("x", "好").body);
    let context: Vec<_> = input.context.iter().map(|it| (&*it.description, &*it.value)).collect();
    assert_eq!(context, [("user", "Bern"), ("tz", "CET"), ("n", "3")]);
    assert_eq!(&*input.tools[0].description, "");
    assert_eq!(input.unknown.as_ref().unwrap().get(), r#"{"extension":{"kept":true}}"#);
    let preferences = input::output_preferences(&input, tally);
    assert_eq!(preferences.profile, Some("text"));
    assert_eq!(preferences.options, ["tool_args=whole"]);
    assert_eq!(
        tally.count("unknown wish", "include_developer=yes"),
        1,
        "a client cannot request developer messages"
    );

    let written = value(&input::to_json(&input));
    for (index, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        assert_eq!(written["messages"][index]["content"], message["content"]);
    }
    assert_eq!(written["messages"][0], body["messages"][0]);
    assert_eq!(written["extension"], body["extension"]);
    let again =
        input::from_json(&written.to_string(), &"".into(), &"".into(), &mut Tally::default()).unwrap();
    assert_eq!(again, input);
}

#[test]
fn malformed_requests_are_rejected_with_the_path() {
    let rejected = |body: Value| {
        input::from_json(&body.to_string(), &"t".into(), &"r".into(), &mut Tally::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(rejected(json!({"messages": 7})), "at `/messages`: expected an array, found the number 7");
    assert_eq!(
        rejected(json!({"messages": [{"id": "m"}]})),
        "at `/messages/0`: `role` is missing, expected a role"
    );
    assert_eq!(
        rejected(json!({"messages": [{"role": "tool", "content": "x"}]})),
        "at `/messages/0`: `toolCallId` is missing, expected a string"
    );
    assert_eq!(rejected(json!({"tools": [{}]})), "at `/tools/0`: `name` is missing, expected a string");
    assert_eq!(rejected(json!([])), "expected an object, found an array");
}

#[test]
fn requests_satisfy_the_models_of_the_reference_server() {
    let body = json!({
        "threadId": "t", "runId": "r",
        "messages": [
            {"id": "u", "role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "url", "value": "http://h/x.png"}}]},
            {"id": "a", "role": "assistant", "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"id": "x", "role": "tool", "content": "1", "toolCallId": "c"},
            {"id": "b", "role": "reasoning", "content": "hm"},
        ],
        "context": [{"description": "tz", "value": "CET"}, {"id": "c", "role": "user", "content": "Bern"}],
        "forwardedProps": null,
        "resume": [{"interruptId": "i1", "status": "resolved", "payload": "yes"}, {"interruptId": "i2", "status": "resolved", "payload": "true"},
            {"interruptId": "i3", "status": "resolved", "payload": {"n": 1}}, {"interruptId": "i4", "status": "cancelled"}],
    });
    let read = |text: &str| input::from_json(text, &"".into(), &"".into(), &mut Tally::default()).unwrap();
    let input = read(&body.to_string());
    let text = input::to_json(&input);
    let written = value(&text);
    for list in ["messages", "context"] {
        for message in written[list].as_array().unwrap() {
            assert!(["id", "role", "content"].iter().all(|key| message[*key].is_string()), "{message}");
        }
    }
    assert_eq!(written["forwardedProps"], json!({}));
    let answers: Vec<_> = written["messages"].as_array().unwrap()[4..]
        .iter()
        .map(|answer| (&answer["toolCallId"], &answer["content"], &answer["error"]))
        .collect();
    assert_eq!(
        json!(answers),
        json!([
            ["i1", "yes", null],
            ["i2", "\"true\"", null],
            ["i3", "{\"n\":1}", null],
            ["i4", "", "cancelled"]
        ])
    );
    let again = read(&text);
    assert_eq!((&again.messages[..4], &again.context), (&input.messages[..], &input.context));
}

/// The messages of a page, as section 4.1 of the standard sends them.
#[test]
fn messages_with_contents_are_read() {
    let mut tally = Tally::default();
    let mut read = |role: &str, contents: Value| {
        let body = json!({"messages": [{"id": "m", "role": role, "avatar": "a.png", "contents": contents, "content": null}]});
        let mut input = input::from_json(&body.to_string(), &"t".into(), &"r".into(), &mut tally).unwrap();
        input.messages.remove(0).into_data().body
    };
    let hello = Message::user("m", "Hello").into_data().body;
    assert_eq!(
        read("user", json!([{"type": "text", "content": "Hel"}, {"type": "text", "content": "lo"}])),
        hello
    );
    assert_eq!(read("user", json!(["Hello"])), hello);
    assert_eq!(
        read("user", json!([{"output": {"type": "text", "content": "Hello"}, "layout": {"x": 0}}])),
        hello
    );
    assert_eq!(read("user", json!([])), Message::user("m", "").body);
    let answer =
        json!([{"output": {"type": "text", "content": "Hello"}}, {"type": "button", "data": {"name": "Go"}}]);
    assert_eq!(read("assistant", answer), Message::assistant("m", "Hello").body);
    assert_eq!(
        read("assistant", json!([{"type": "text", "content": "Hi"}])),
        Message::assistant("m", "Hi").body
    );
    let image =
        json!([{"type": "text", "content": "see"}, {"type": "image", "data": {"url": "http://h/x.png"}}]);
    let MessageBody::User { content: Content::Parts(parts) } = read("user", image) else {
        panic!("no parts")
    };
    assert_eq!(parts.len(), 2);
    assert_eq!(tally.count("old shape", "message with `contents`"), 7);
    let both = json!({"messages": [{"id": "m", "role": "user", "content": "kept", "contents": ["other"]}]});
    let input = input::from_json(&both.to_string(), &"t".into(), &"r".into(), &mut tally).unwrap();
    assert_eq!(input.messages[0].body, Message::user("m", "kept").body);
}
