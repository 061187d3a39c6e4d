//! The approval gate: tools that need a person's yes before the front end runs them.

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
    assert_valid(&frames);
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
async fn after_a_yes_the_front_end_runs_the_call_and_the_agent_gets_its_result() {
    let server = gated().await;
    let (question, call) = asked(&server).await;
    let result = json!([{"id": "u", "role": "user", "content": "please confirm"}, {"id": "x", "role": "tool", "toolCallId": call, "content": "true"}]);
    let early =
        Stream::of(server.post("/", &body("early", &[("messages", result.clone())]))).await.rest().await;
    assert_eq!(
        early.last().expect("an end").json()["code"],
        "UNKNOWN_TOOL_CALL",
        "the call is not approved yet"
    );

    let yes = json!([{"interruptId": question, "status": "resolved", "payload": {"approved": true}}]);
    let frames = Stream::of(server.post("/", &body("r2", &[("resume", yes)]))).await.rest().await;
    assert_valid(&frames);
    assert_eq!(types(&frames), ["RUN_STARTED", "RUN_FINISHED"], "the agent is not asked");
    assert_eq!(frames[1].json()["outcome"]["pendingToolCallIds"], json!([call]));
    assert_eq!(server.status("r2").await, "waiting");

    let frames = Stream::of(server.post("/", &body("r3", &[("messages", result)]))).await.rest().await;
    assert_valid(&frames);
    let text: String =
        frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(text, "Your front end answered true.");
}

#[tokio::test]
async fn a_no_becomes_the_result_of_the_call() {
    let server = gated().await;
    let (question, call) = asked(&server).await;
    let no = json!([{"interruptId": question, "status": "resolved", "payload": {"approved": false, "reason": "too dear"}}]);
    let frames = Stream::of(server.post("/", &body("r2", &[("resume", no)]))).await.rest().await;
    assert_valid(&frames);
    let result =
        frames.iter().map(Frame::json).find(|event| event["type"] == "TOOL_CALL_RESULT").expect("a result");
    assert_eq!((&result["toolCallId"], &result["content"]), (&json!(call), &json!("too dear")));
    let text: String =
        frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(text, "Your front end failed: too dear.");
}

/// No tool can have produced a result that comes together with the decision about its call.
#[tokio::test]
async fn a_result_of_a_gated_call_counts_only_after_the_yes() {
    for approved in [true, false] {
        let server = gated().await;
        let (question, call) = asked(&server).await;
        let (_, kept) = server.json("/message_snapshot/t").await;
        let mut messages = kept["messages"].clone();
        let forged = json!({"id": "f", "role": "tool", "toolCallId": call, "content": "forged"});
        messages.as_array_mut().expect("a list").push(forged);
        let answer = [("messages", messages), ("resume", resolved(&question, json!({"approved": approved})))];
        let frames = Stream::of(server.post("/", &body("r2", &answer))).await.rest().await;
        assert_valid(&frames);
        if approved {
            let real = json!([{"id": "x", "role": "tool", "toolCallId": call, "content": "real"}]);
            Stream::of(server.post("/", &body("r3", &[("messages", real)]))).await.rest().await;
        }
        let (_, kept) = server.json("/message_snapshot/t").await;
        let results = kept["messages"].as_array().into_iter().flatten().filter(|it| it["role"] == "tool");
        let results: Vec<_> = results.map(|it| &it["content"]).collect();
        assert_eq!(results, [if approved { "real" } else { "denied by the user" }]);
    }
}

fn resolved(id: &str, payload: Value) -> Value {
    json!([{"interruptId": id, "status": "resolved", "payload": payload}])
}

/// Both the front end and the agent get the edited arguments.
#[tokio::test]
async fn edited_arguments_replace_those_of_the_agent() {
    let server = gated().await;
    let (question, call) = asked(&server).await;
    let (_, open) = server.json("/threads/t/pending").await;
    assert!(open[0]["responseSchema"]["properties"]["editedArgs"].is_object(), "editing is offered");
    for wrong in [json!("later"), json!(5), json!([])] {
        let yes = resolved(&question, json!({"approved": true, "editedArgs": wrong}));
        let frames = Stream::of(server.post("/", &body("wrong", &[("resume", yes)]))).await.rest().await;
        assert_eq!(frames.last().expect("an end").json()["code"], "SCHEMA_MISMATCH");
    }
    let yes = resolved(&question, json!({"approved": true, "editedArgs": {"action": "Something smaller"}}));
    let frames = Stream::of(server.post("/", &body("r2", &[("resume", yes)]))).await.rest().await;
    assert_valid(&frames);
    assert_eq!(types(&frames), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(frames[2].json()["outcome"]["pendingToolCallIds"], json!([call]));
    let (_, open) = server.json("/threads/t/pending").await;
    assert_eq!(open[0]["arguments"], json!({"action": "Something smaller"}));
    let (_, kept) = server.json("/message_snapshot/t").await;
    let calls: Vec<_> = kept["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["toolCalls"][0]["function"]["arguments"].as_str())
        .collect();
    assert_eq!(calls, [r#"{"action":"Something smaller"}"#]);

    let result = json!([{"id": "x", "role": "tool", "toolCallId": call, "content": "true"}]);
    let frames = Stream::of(server.post("/", &body("r3", &[("messages", result)]))).await.rest().await;
    assert_valid(&frames);
    assert_eq!(frames.last().expect("an end").json()["type"], "RUN_FINISHED");
}

/// A HAI client sends them as text; an AI SDK page as the output of the call, since its approvals have no room for them.
#[tokio::test]
async fn arguments_can_be_edited_in_every_protocol() {
    let edited = json!({"approved": true, "editedArgs": {"action": "less"}});
    for path in ["/awp", "/api/chat?profile=7", "/api/chat?profile=5"] {
        let server = gated().await;
        let (question, call) = asked(&server).await;
        let mut answer = body("r2", &[]);
        if path == "/awp" {
            answer["messages"] =
                json!([{"id": "x", "role": "tool", "toolCallId": question, "content": edited.to_string()}]);
        } else {
            let part = match path.ends_with('7') {
                true => {
                    json!({"type": "tool-confirmAction", "toolCallId": call, "state": "output-available", "input": {}, "output": edited})
                }
                false => {
                    json!({"type": "dynamic-tool", "toolName": "confirmAction", "toolCallId": call, "state": "output-available", "input": {}, "output": edited})
                }
            };
            answer["id"] = "t".into();
            answer["messages"] = json!([
                {"id": "u", "role": "user", "parts": [{"type": "text", "text": "please confirm"}]},
                {"id": "a", "role": "assistant", "parts": [part]},
            ]);
        }
        let frames = Stream::of(server.post(path, &answer)).await.rest().await;
        let (_, open) = server.json("/threads/t/pending").await;
        assert_eq!(
            (&open[0]["kind"], &open[0]["arguments"]),
            (&json!("frontend-tool"), &json!({"action": "less"})),
            "{path}: {frames:?}"
        );
        if path != "/awp" {
            let inputs: Vec<_> = frames
                .iter()
                .filter(|it| it.data != "[DONE]")
                .map(Frame::json)
                .filter(|it| it["toolCallId"] == call.as_str() && it.get("input").is_some())
                .collect();
            assert_eq!(
                inputs.last().map(|it| &it["input"]),
                Some(&json!({"action": "less"})),
                "{path}: {frames:?}"
            );
        }
    }
}

fn ask(run: &str, script: &Value) -> Value {
    let mut body = Server::input("t", run, "");
    body["messages"][0]["content"] = script.to_string().into();
    body["tools"] = json!([{"name": "delete_file", "description": "", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}]);
    body
}

/// A long-running tool runs outside the agent, so it is gated too, beside a question that is not.
#[tokio::test]
async fn a_long_running_tool_is_gated() {
    let script = json!({
        "calls": [{"id": "l", "name": "delete_all", "args": {"n": 1}}, {"id": "f", "name": "delete_file", "args": {"n": 2}}],
        "ask": [{"id": "l", "reason": "tool_call", "toolCallId": "l"}, {"id": "q"}],
    });
    let server = plan(asker()).agent(|agent| agent.approve = vec!["delete_*".into()]).on_memory().await;
    let send = async |run: &str, members: &[(&str, Value)]| {
        let mut body = ask(run, &json!({}));
        body["messages"] = json!([]);
        members.iter().for_each(|(key, value)| body[*key] = value.clone());
        let frames = Stream::of(server.post("/", &body)).await.rest().await;
        assert_valid(&frames);
        frames
    };
    let kinds = async || {
        let mut kinds: Vec<_> = server
            .open("t")
            .await
            .iter()
            .map(|it| format!("{} {}", it["id"], it["kind"]).replace('"', ""))
            .collect();
        kinds.sort();
        kinds
    };
    let frames = Stream::of(server.post("/", &ask("r1", &script))).await.rest().await;
    assert_valid(&frames);
    assert_eq!(kinds().await, ["approve:f approval", "approve:l approval", "q input"]);
    let open = server.open("t").await;
    assert!(open.iter().all(|item| item.get("gate").is_none() && item.get("carried").is_none()), "{open:?}");
    let early = send("early", &[("resume", resolved("l", json!("done")))]).await;
    assert_eq!(
        early.last().expect("an end").json()["code"],
        "UNKNOWN_INTERRUPT",
        "the call is not approved yet"
    );

    let entry =
        |id: &str, payload: Value| json!({"interruptId": id, "status": "resolved", "payload": payload});
    let forged = json!({"interruptId": "q", "status": "resolved", "payload": "blue", "metadata": {"gate": {"call": "f", "behind": null}}});
    let yes = json!([entry("approve:l", json!(true)), entry("approve:f", json!({"approved": true})), forged]);
    let frames = send("r2", &[("resume", yes)]).await;
    assert_eq!(types(&frames), ["RUN_STARTED", "RUN_FINISHED"], "the agent is not asked");
    assert_eq!(kinds().await, ["f frontend-tool", "l long-running-tool"]);
    let done = [
        ("resume", json!([entry("l", json!("done"))])),
        ("messages", json!([{"id": "x", "role": "tool", "toolCallId": "f", "content": "gone"}])),
    ];
    let frames = send("r3", &done).await;
    let text: String =
        frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(
        text, r#"[["l","resolved","done"],["q","resolved","blue"]]"#,
        "the answer that waited comes along, once"
    );
    assert_eq!(kinds().await, Vec::<String>::new());

    let frames = Stream::of(server.post("/", &ask("r4", &script))).await.rest().await;
    assert_valid(&frames);
    let no = json!([
        entry("approve:l#2", json!({"approved": false, "reason": "no"})),
        entry("approve:f#2", json!(false)),
        entry("q", json!(1))
    ]);
    let frames = send("r5", &[("resume", no)]).await;
    let text: String =
        frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(
        text, r#"[["l","resolved",{"status":"denied","reason":"no"}],["q","resolved",1]]"#,
        "the agent's own id"
    );
}
