//! Messages in snapshots and requests.

use bytes::BytesMut;

use super::super::{
    reader::messages::{Reading, list},
    writer::messages::{Writing, write},
};
use crate::{
    event::{Content, Message, MessageBody, Role},
    json::{ArrayWriter, Fields, Path},
    tally::Tally,
};

fn read(text: &str, reading: Reading) -> Vec<Message> {
    let mut f = Fields::parse(text, Path::Root).unwrap();
    list(&mut f, reading, "r", &mut Tally::default()).unwrap()
}

fn written(messages: &[Message], writing: Writing) -> serde_json::Value {
    let mut out = BytesMut::new();
    let mut list = ArrayWriter::new(&mut out);
    write(&mut list, messages, writing);
    list.end();
    serde_json::from_slice(&out).unwrap()
}

const SHOWN: Writing = Writing { wrapped: true, developer: false, activity: true };

#[test]
fn an_answer_of_many_outputs_is_taken_apart_and_put_together() {
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
    let messages = read(&given.to_string(), Reading::Snapshot);
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
    assert_eq!(written(&messages, SHOWN)[0], given["messages"][0]);
    assert_eq!(written(&messages, SHOWN).as_array().unwrap().len(), 1, "developer messages are not shown");
    let asked = read(&given.to_string(), Reading::Request);
    assert_eq!(asked.iter().filter(|message| message.role() == Role::Activity).count(), 0);
    let writing = Writing { developer: true, ..SHOWN };
    assert_eq!(written(&asked, writing), given["messages"]);
}

#[test]
fn a_changed_answer_does_not_go_back_as_it_was() {
    let content =
        r#"{"output":{"type":"thinking","data":{"content":"hm"}}}{"output":{"type":"text","content":"A"}}"#;
    let given = serde_json::json!({"messages": [{"id": "m", "role": "assistant", "content": content}]});
    let mut messages = read(&given.to_string(), Reading::Snapshot);
    messages[1] = Message::assistant("m", "B");
    let back = written(&messages, SHOWN);
    assert_eq!(
        back[0]["content"],
        r#"{"output":{"type":"thinking","data":{"content":"hm","thinking":false,"collapse":true}}}"#
    );
    assert_eq!(back[1]["content"], r#"{"output":{"type":"text","content":"B"}}"#);
}

#[test]
fn attachments_are_parts() {
    let part = serde_json::json!({"type": "image", "source": {"type": "url", "value": "https://x/y.png"}});
    let given = serde_json::json!({"messages": [
        {"id": "u", "role": "user", "content": "look", "extra": {"attachments": [part], "k": 1}},
        {"id": "v", "role": "user", "content": [part, {"type": "text", "text": "and"}]},
    ]});
    let messages = read(&given.to_string(), Reading::Request);
    let MessageBody::User { content: Content::Parts(parts) } = &messages[0].body else { panic!() };
    assert_eq!(parts.len(), 2);
    let back = written(&messages, SHOWN);
    assert_eq!(back[0], given["messages"][0]);
    assert_eq!(back[1]["content"], "and");
    assert_eq!(read(&serde_json::json!({ "messages": back }).to_string(), Reading::Request), messages);
}
