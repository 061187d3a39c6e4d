//! Tools that need a person's yes before the front end runs them.

use std::sync::Arc;

use agentwire_gateway::agent::Demo;
use serde_json::{Value, json};

use crate::support::*;

fn body(run: &str, extra: &[(&str, Value)]) -> Value {
    let mut body = Server::input("t", run, "confirm");
    body["messages"] = json!([{"id": "u", "role": "user", "content": "please confirm"}]);
    body["tools"] = json!([{"name": "confirmAction", "description": "asks", "parameters": {}}]);
    for (key, value) in extra {
        body[*key] = value.clone();
    }
    body
}

async fn asked(server: &Server) -> (String, String) {
    let frames = Stream::of(server.post("/", &body("r1", &[]))).await.rest().await;
    valid(&frames);
    let end = frames.last().expect("an end").json();
    let question = &end["outcome"]["interrupts"][0];
    assert_eq!(end["outcome"]["type"], "interrupt");
    assert_eq!(question["metadata"]["arguments"]["action"], "Show a demo", "the true arguments are shown");
    let (_, open) = server.json("/threads/t/pending").await;
    assert_eq!((open.as_array().map(Vec::len), &open[0]["kind"]), (Some(1), &json!("approval")));
    let text = |value: &Value| value.as_str().expect("an id").to_owned();
    (text(&question["id"]), text(&question["toolCallId"]))
}

async fn gated() -> Server {
    plan(Arc::new(Demo::without_pauses()))
        .agent(|agent| agent.approve = vec!["confirm*".into()])
        .on_memory()
        .await
}

#[tokio::test]
async fn a_yes_gives_the_call_to_the_front_end_and_its_result_to_the_agent() {
    let server = gated().await;
    let (question, call) = asked(&server).await;
    let result = json!([{"id": "u", "role": "user", "content": "please confirm"}, {"id": "x", "role": "tool", "toolCallId": call, "content": "true"}]);
    let early =
        Stream::of(server.post("/", &body("early", &[("messages", result.clone())]))).await.rest().await;
    assert_eq!(early.last().expect("an end").json()["code"], "UNKNOWN_TOOL_CALL", "nobody has said yes yet");

    let yes = json!([{"interruptId": question, "status": "resolved", "payload": {"approved": true}}]);
    let frames = Stream::of(server.post("/", &body("r2", &[("resume", yes)]))).await.rest().await;
    valid(&frames);
    assert_eq!(types(&frames), ["RUN_STARTED", "RUN_FINISHED"], "the agent is not asked");
    assert_eq!(frames[1].json()["outcome"]["pendingToolCallIds"], json!([call]));
    assert_eq!(server.status("r2").await, "waiting");

    let frames = Stream::of(server.post("/", &body("r3", &[("messages", result)]))).await.rest().await;
    valid(&frames);
    let said: String =
        frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(said, "Your front end answered true.");
}

#[tokio::test]
async fn a_no_is_the_result_of_the_call() {
    let server = gated().await;
    let (question, call) = asked(&server).await;
    let no = json!([{"interruptId": question, "status": "resolved", "payload": {"approved": false, "reason": "too dear"}}]);
    let frames = Stream::of(server.post("/", &body("r2", &[("resume", no)]))).await.rest().await;
    valid(&frames);
    let result =
        frames.iter().map(Frame::json).find(|event| event["type"] == "TOOL_CALL_RESULT").expect("a result");
    assert_eq!((&result["toolCallId"], &result["content"]), (&json!(call), &json!("too dear")));
    let said: String =
        frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(said, "Your front end failed: too dear.");
}
