//! Request bodies.

use super::{super::input, *};
use crate::{event::Message, tally::Tally};

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
