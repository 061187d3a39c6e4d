//! The forms in which clients send answers: with a message after them, as text, as `command`, under a reused id.

use serde_json::{Value, json};

use crate::support::*;

const TOOLS: &str = r#"[{"name": "pick", "description": "", "parameters": {}}]"#;

/// A request of AG-UI or HAI with `members`.
fn request(run: &str, members: &Value) -> Value {
    let mut body = json!({"threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {}});
    body["tools"] = serde_json::from_str(TOOLS).expect("JSON");
    for (key, value) in members.as_object().expect("members") {
        body[key] = value.clone();
    }
    body
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "content": text})
}

fn result(id: &str, call: &str, content: &str) -> Value {
    json!({"id": id, "role": "tool", "toolCallId": call, "content": content})
}

/// The messages of an AI SDK page: the question, the part with the answer, and a new message of the person.
fn page(asked: &Value, part: Value) -> Value {
    json!([
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": asked.to_string()}]},
        {"id": "a1", "role": "assistant", "parts": [part]},
        {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "and hurry"}]},
    ])
}

async fn send(server: &Server, path: &str, body: &Value) -> String {
    let stream = Stream::of(server.post(path, body)).await;
    assert_eq!(stream.status(), 200, "{path} {body}");
    String::from_utf8(stream.bytes().await.to_vec()).expect("text")
}

/// A server whose agent has run `script`.
async fn asked(script: &Value) -> (Server, std::sync::Arc<Puppet>) {
    let agent = asker();
    let server = plan(agent.clone()).on_memory().await;
    send(&server, "/", &request("r1", &json!({"messages": [user("u1", &script.to_string())]}))).await;
    assert!(!server.open("t").await.is_empty());
    (server, agent)
}

async fn is_answered(server: &Server, agent: &Puppet, case: &str) {
    assert_eq!(server.open("t").await, Vec::<Value>::new(), "{case}");
    assert_eq!((agent.calls(), server.status("r1").await.as_str()), (2, "finished"), "{case}");
}

#[tokio::test]
async fn an_answer_and_a_new_message_fit_into_one_request() {
    let call = json!({"calls": [{"id": "c", "name": "pick", "args": {}}]});
    let late = json!({"ask": [{"id": "l", "reason": "tool_call", "toolCallId": "l"}], "own": [], "calls": [{"id": "l", "name": "wait", "args": {}}]});
    let question = json!({"ask": [{"id": "q"}]});
    let approval = json!({"ask": [{"id": "q", "reason": "tool_call", "toolCallId": "c"}], "calls": [{"id": "c", "name": "pay", "args": {}}]});
    let output = |call: &str, name: &str, output: Value| json!({"type": "dynamic-tool", "toolName": name, "toolCallId": call, "state": "output-available", "input": {}, "output": output});
    let decided = json!({"type": "dynamic-tool", "toolName": "pay", "toolCallId": "c", "state": "approval-responded", "input": {}, "approval": {"id": "q", "approved": true}});
    let words = |call: &str| json!({"messages": [result("x", call, "1"), user("u2", "and hurry")]});
    for (case, script, path, answer) in [
        ("a tool", &call, "/", words("c")),
        ("a tool", &call, "/awp", words("c")),
        ("a tool", &call, "/api/chat", json!({"messages": page(&call, output("c", "pick", json!(1)))})),
        ("a tool that takes long", &late, "/", words("l")),
        ("a tool that takes long", &late, "/awp", words("l")),
        ("a question", &question, "/", words("q")),
        ("a question", &question, "/awp", words("q")),
        (
            "a question",
            &question,
            "/",
            json!({"resume": [{"interruptId": "q", "status": "resolved", "payload": 1}], "messages": [user("u2", "x")]}),
        ),
        (
            "an approval",
            &approval,
            "/api/chat?profile=6",
            json!({"messages": page(&approval, decided.clone())}),
        ),
        (
            "an approval by output",
            &approval,
            "/api/chat?profile=7",
            json!({"messages": page(&approval, output("c", "pay", json!({"approved": true})))}),
        ),
    ] {
        let (server, agent) = asked(script).await;
        let mut body = request("r2", &answer);
        body["id"] = "t".into();
        send(&server, path, &body).await;
        is_answered(&server, &agent, &format!("{case} {path}")).await;
    }
}

/// A page repeats its decision with every later request.
#[tokio::test]
async fn a_repeated_approval_counts_once() {
    let script = json!({"ask": [{"id": "q", "reason": "tool_call", "toolCallId": "c"}], "calls": [{"id": "c", "name": "pay", "args": {}}]});
    let (server, agent) = asked(&script).await;
    let decided = json!({"type": "dynamic-tool", "toolName": "pay", "toolCallId": "c", "state": "approval-responded", "input": {}, "approval": {"id": "q", "approved": true}});
    let mut messages = page(&script, decided);
    let body = |messages: &Value| json!({"id": "t", "messages": messages});
    send(&server, "/api/chat?profile=6", &body(&messages)).await;
    assert_eq!(agent.calls(), 2);
    messages.as_array_mut().expect("a list").push(
        json!({"id": "u3", "role": "user", "parts": [{"type": "text", "text": "{\"ask\": [{\"id\": \"other\"}]}"}]}),
    );
    send(&server, "/api/chat?profile=6", &body(&messages)).await;
    assert_eq!(agent.calls(), 3, "it is a run of its own");
    assert_eq!(server.open("t").await[0]["id"], "other");
}

#[tokio::test]
async fn text_is_read_by_the_response_schema() {
    for (schema, text, got) in [
        (json!({"type": "string"}), "12345", json!("12345")),
        (json!({"type": "string"}), "true", json!("true")),
        (json!({"type": "string", "pattern": "^[0-9]+$"}), "\"77\"", json!("77")),
        (json!({"type": "integer"}), "12345", json!(12345)),
        (json!({"type": ["string", "integer"]}), "12345", json!(12345)),
        (json!({"type": "object"}), "{\"a\":1}", json!({"a": 1})),
        (
            json!({"type": "object", "properties": {"approved": {}}, "required": ["approved"]}),
            "true",
            json!(true),
        ),
        (Value::Null, "12345", json!(12345)),
    ] {
        let script = json!({"ask": [{"id": "q", "responseSchema": schema}]});
        let (server, agent) = asked(&script).await;
        let text =
            send(&server, "/awp", &request("r2", &json!({"messages": [result("x", "q", text)]}))).await;
        is_answered(&server, &agent, &format!("{schema}: {text}")).await;
        let (_, kept) = server.json("/message_snapshot/t").await;
        let text =
            kept["messages"].as_array().and_then(|it| it.last()).expect("a message")["content"].clone();
        let answers: Value = serde_json::from_str(text.as_str().expect("text")).expect("JSON");
        assert_eq!(answers, json!([["q", "resolved", got]]), "{schema}");
    }
}

#[tokio::test]
async fn questions_for_permission_accept_a_plain_yes_or_no() {
    let seat = json!({"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]});
    let decide =
        json!({"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]});
    let unknown = json!({"$schema": "https://example.org/mine", "type": "string", "maxLength": 1});
    let cases = [
        (json!({"id": "q", "responseSchema": seat}), json!(true), false),
        (json!({"id": "q", "responseSchema": seat}), json!({"approved": true}), false),
        (json!({"id": "q", "responseSchema": {"type": "integer"}}), json!(false), false),
        (json!({"id": "q", "responseSchema": unknown}), json!([5]), false),
        (json!({"id": "q", "responseSchema": unknown}), json!("5"), true),
        (json!({"id": "q", "responseSchema": seat, "toolCallId": "q"}), json!({"confirmed": true}), false),
        (json!({"id": "q", "responseSchema": seat, "toolCallId": "c"}), json!({"confirmed": true}), true),
        (json!({"id": "q", "responseSchema": decide}), json!(true), true),
        (json!({"id": "q", "responseSchema": decide}), json!({"confirmed": false}), true),
        (json!({"id": "q", "responseSchema": seat, "reason": "confirmation"}), json!(false), true),
    ];
    for (number, (question, answer, fits)) in cases.iter().flat_map(|case| [case, case]).enumerate() {
        let (server, agent) = asked(&json!({"ask": [question]})).await;
        let resume = json!({"resume": [{"interruptId": "q", "status": "resolved", "payload": answer}]});
        let message = json!({"messages": [result("x", "q", &answer.to_string())]});
        let (path, body) = if number % 2 == 0 { ("/", resume) } else { ("/awp", message) };
        let text = send(&server, path, &request("r2", &body)).await;
        assert_eq!(!text.contains("SCHEMA_MISMATCH"), *fits, "{question} {answer}: {text}");
        assert_eq!(agent.calls(), if *fits { 2 } else { 1 });
    }
}

#[tokio::test]
async fn command_answers_one_question_or_several() {
    let one = json!({"ask": [{"id": "a"}]});
    let two = json!({"ask": [{"id": "a"}, {"id": "b"}]});
    for (script, messages, answer, got) in [
        (&one, json!([]), json!("yes"), Some(json!([["a", "resolved", "yes"]]))),
        (&one, json!([user("u2", "x")]), json!({"a": 1}), Some(json!([["a", "resolved", 1]]))),
        (&two, json!([]), json!({"b": 2, "a": 1}), Some(json!([["a", "resolved", 1], ["b", "resolved", 2]]))),
        (&two, json!([]), json!({"a": 1}), None),
        (&two, json!([]), json!("yes"), None),
    ] {
        let (server, agent) = asked(script).await;
        let body = json!({"messages": messages, "forwardedProps": {"command": {"resume": answer}}});
        let text = send(&server, "/", &request("r2", &body)).await;
        match got {
            Some(got) => {
                is_answered(&server, &agent, &text).await;
                assert!(text.contains(&json!(got.to_string()).to_string()), "{answer}: {text}");
            }
            None => assert!(text.contains("INTERRUPT_UNANSWERED"), "{answer}: {text}"),
        }
    }
}

/// A LangGraph node may ask under one id until the answer is acceptable, and a client sends the whole conversation.
#[tokio::test]
async fn a_question_asked_again_is_answered_by_the_last_result() {
    let agent = Puppet::eager(|input| {
        let answer = input.resume.as_ref().map(|entries| entries[0].payload.clone());
        match answer.flatten() {
            Some(answer) if answer.get() != "\"bad\"" => talk(input, 1),
            _ => asker_script(&{
                let mut input = input.clone();
                input.resume = None;
                input.messages = vec![agentwire_core::event::Message::user("u", r#"{"ask": [{"id": "q"}]}"#)];
                input
            }),
        }
    });
    let server = plan(agent.clone()).on_memory().await;
    send(&server, "/awp", &request("r1", &json!({"messages": [user("u1", "go")]}))).await;
    let first = json!([user("u1", "go"), result("x1", "q", "bad")]);
    send(&server, "/awp", &request("r2", &json!({"messages": first}))).await;
    assert_eq!(server.status("r2").await, "waiting");
    let more = json!([user("u1", "go"), result("x1", "q", "bad"), user("u2", "what?")]);
    let text = send(&server, "/awp", &request("r3", &json!({"messages": more}))).await;
    assert!(text.contains("INTERRUPT_UNANSWERED"), "the old answer is none: {text}");
    let second = json!([user("u1", "go"), result("x1", "q", "bad"), result("x2", "q", "good")]);
    send(&server, "/awp", &request("r4", &json!({"messages": second}))).await;
    assert_eq!((server.status("r4").await.as_str(), agent.calls()), ("finished", 3));
    assert_eq!(server.open("t").await, Vec::<Value>::new());
}

/// Some servers number the calls of every turn from the start.
#[tokio::test]
async fn a_call_with_a_reused_id_is_another_call() {
    let agent = asker();
    let server = plan(agent.clone()).on_memory().await;
    for number in 1..3 {
        let script = json!({"calls": [{"id": "call_0", "name": "pick", "args": {"n": number}}]}).to_string();
        let run = format!("r{number}");
        send(&server, "/", &request(&run, &json!({"messages": [user(&format!("u{number}"), &script)]})))
            .await;
    }
    let open = server.open("t").await;
    let shown: Vec<_> = open.iter().map(|item| (&item["id"], &item["runId"], &item["arguments"])).collect();
    let expected = [
        (&json!("call_0"), &json!("r1"), &json!({"n": 1})),
        (&json!("call_0#2"), &json!("r2"), &json!({"n": 2})),
    ];
    assert_eq!(shown, expected);
    let text =
        send(&server, "/", &request("r3", &json!({"messages": [result("x", "call_0#2", "done")]}))).await;
    assert!(text.contains(r#"[\"call_0\",\"done\",null]"#), "the agent gets its own id: {text}");
    let open = server.open("t").await;
    assert_eq!(open.iter().map(|item| &item["id"]).collect::<Vec<_>>(), ["call_0"]);
}
