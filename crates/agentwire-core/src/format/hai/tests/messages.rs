//! Messages of snapshots and requests.

use bytes::BytesMut;

use super::super::{
    reader::messages::{MessagePurpose, read_list},
    writer::messages::{MessageOptions, write_list},
};
use crate::{
    event::{Content, Message, MessageBody, Role},
    json::{ArrayWriter, Fields, Path},
    tally::Tally,
};

fn read(text: &str, reading: MessagePurpose) -> Vec<Message> {
    let mut f = Fields::parse(text, Path::Root).unwrap();
    read_list(&mut f, reading, "r", &mut Tally::default()).unwrap()
}

fn written(messages: &[Message], writing: MessageOptions) -> serde_json::Value {
    let mut out = BytesMut::new();
    let mut list = ArrayWriter::new(&mut out);
    write_list(&mut list, messages, writing);
    list.end();
    serde_json::from_slice(&out).unwrap()
}

const DISPLAY: MessageOptions = MessageOptions { wrapped: true, developer: false, is_request: false };

#[test]
fn assistant_message_is_split_and_restored() {
    let content = concat!(
        r#"{"output":{"type":"thinking","data":{"content":"hm","thinking":true}}}"#,
        r#"{"output":{"type":"thinking","data":{"content":"!","thinking":false}}}"#,
        r#"{"output":{"type":"text","content":"A"},"layout":{"x":0}}"#,
        r#"{"output":{"type":"button","data":{"name":"Go"}},"blockId":"b"}"#,
        r#"{"output":{"type":"text","content":"B"}}"#,
    );
    let given = serde_json::json!({"messages": [
        {"id": "m", "role": "assistant", "content": content, "name": "bot", "timestamp": 5, "extra": {"k": [1]}},
        {"id": "d", "role": "developer", "content": "x"},
    ]});
    let messages = read(&given.to_string(), MessagePurpose::Snapshot);
    let roles: Vec<_> = messages.iter().map(|message| (&*message.id, message.role())).collect();
    let wanted = [
        ("m:thinking:0", Role::Reasoning),
        ("m", Role::Assistant),
        ("m:b", Role::Activity),
        ("d", Role::Developer),
    ];
    assert_eq!(roles, wanted);
    let MessageBody::Assistant { content: Some(text), .. } = &messages[1].body else { panic!() };
    assert_eq!(&**text, "AB");
    assert_eq!(written(&messages, DISPLAY)[0], given["messages"][0]);
    assert_eq!(written(&messages, DISPLAY).as_array().unwrap().len(), 1, "developer messages are not shown");
    let requested = read(&given.to_string(), MessagePurpose::Request);
    assert_eq!(requested.iter().filter(|message| message.role() == Role::Activity).count(), 0);
    let writing = MessageOptions { developer: true, ..DISPLAY };
    assert_eq!(written(&requested, writing), given["messages"]);
}

#[test]
fn changed_assistant_message_is_wrapped_again() {
    let content =
        r#"{"output":{"type":"thinking","data":{"content":"hm"}}}{"output":{"type":"text","content":"A"}}"#;
    let given = serde_json::json!({"messages": [{"id": "m", "role": "assistant", "content": content}]});
    let mut messages = read(&given.to_string(), MessagePurpose::Snapshot);
    messages[1] = Message::assistant("m", "B");
    let back = written(&messages, DISPLAY);
    assert_eq!(
        back[0]["content"],
        r#"{"output":{"type":"thinking","data":{"content":"hm","thinking":false,"collapse":true}}}"#
    );
    assert_eq!(back[1]["content"], r#"{"output":{"type":"text","content":"B"}}"#);
}

#[test]
fn attachments_become_content_parts() {
    let part = serde_json::json!({"type": "image", "source": {"type": "url", "value": "https://x/y.png"}});
    let given = serde_json::json!({"messages": [
        {"id": "u", "role": "user", "content": "look", "extra": {"attachments": [part], "k": 1}},
        {"id": "v", "role": "user", "content": [part, {"type": "text", "text": "and"}]},
    ]});
    let messages = read(&given.to_string(), MessagePurpose::Request);
    let MessageBody::User { content: Content::Parts(parts) } = &messages[0].body else { panic!() };
    assert_eq!(parts.len(), 2);
    let back = written(&messages, DISPLAY);
    assert_eq!(back[0], given["messages"][0]);
    assert_eq!(back[1]["content"], "and");
    assert_eq!(read(&serde_json::json!({ "messages": back }).to_string(), MessagePurpose::Request), messages);
}
