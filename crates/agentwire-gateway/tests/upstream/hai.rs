//! Upstream `hai` against a scripted server that checks requests as the models of the reference server do.

use agentwire_gateway::upstream::{Exec, ExecOptions, Hai, HaiOptions};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    gateway::TestGateway,
    server::{ReceivedRequest, Server, Step, events, response},
};

/// The demo task of the reference server, with 14 patches for items that its page makes.
fn reference_task() -> Vec<u8> {
    let file = "../agentwire-core/src/format/hai/fixtures/reference_task.sse";
    std::fs::read(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The problem that the models `HAIAgentRequest` and `HAIMessage` of the reference server find in a request.
fn problem(body: &Value) -> Option<String> {
    let message = |message: &Value| {
        ["id", "role", "content"]
            .iter()
            .find(|key| !message[**key].is_string())
            .map(|key| format!("{key}: {message}"))
    };
    for key in ["threadId", "runId"] {
        if !body[key].is_string() {
            return Some(key.into());
        }
    }
    let lists = ["messages", "context"].iter().flat_map(|key| body[*key].as_array().into_iter().flatten());
    lists
        .filter_map(message)
        .next()
        .or_else(|| (!body["forwardedProps"].is_object()).then(|| "forwardedProps".into()))
}

/// A server with those models, and the stream of `script` for each request.
async fn server(script: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> Server {
    Server::new(move |request: &ReceivedRequest| -> Vec<Step> {
        let body = request.json();
        if let Some(problem) = problem(&body) {
            return response("422 Unprocessable Entity", "application/json", problem.as_bytes());
        }
        let stream: String = script(&body).iter().map(|event| format!("data: {event}\n\n")).collect();
        events(stream.as_bytes())
    })
    .await
}

fn started(message: &str) -> Value {
    json!({"type": "RUN_STARTED", "messageId": message, "role": "assistant", "timestamp": 1})
}

fn finished(message: &str) -> Value {
    json!({"type": "RUN_FINISHED", "messageId": message, "role": "assistant", "timestamp": 9})
}

fn said(message: &str, text: &str) -> Vec<Value> {
    vec![
        json!({"type": "BUSINESS_DATA_START", "messageId": message, "role": "assistant"}),
        json!({"type": "BUSINESS_DATA_CONTENT", "messageId": message, "delta": {"output": {"type": "text", "content": text}}}),
        json!({"type": "BUSINESS_DATA_END", "messageId": message}),
    ]
}

async fn gateway_of(server: &Server) -> TestGateway {
    let url = format!("{}/api/v1/hai/chat", server.url);
    TestGateway::of(Hai::new(HaiOptions { url, headers: Vec::new() }).unwrap()).await
}

/// The events of a run on the HAI route.
async fn hai_run(gateway: &TestGateway, body: Value) -> Vec<Value> {
    let response = gateway.request(Method::POST, "/awp").json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_type<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test]
async fn request_of_every_turn_passes_the_reference_models() {
    let server = server(|body| {
        let count = body["messages"].as_array().unwrap().len();
        let mut stream = vec![started("a")];
        stream.extend(said(&format!("a{count}"), "hello"));
        stream.push(finished("a"));
        stream
    })
    .await;
    let gateway = gateway_of(&server).await;
    let body = json!({"threadId": "t", "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": "hi"}],
        "context": [{"description": "time zone", "value": "CET"}], "tools": [], "state": {"a": 1},
        "forwardedProps": {"model": "x"}});
    let response = gateway.request(Method::POST, "/").json(&body).send().await.unwrap();
    assert!(response.text().await.unwrap().contains("RUN_FINISHED"));
    let second = gateway
        .run_with("default-user", "t", "r2", json!([{"id": "u2", "role": "user", "content": "more"}]))
        .await;
    assert_eq!(second.last().unwrap()["type"], "RUN_FINISHED", "{second:?}");
    let requests = server.requests();
    assert_eq!(requests[0].line(), "POST /api/v1/hai/chat");
    let first = requests[0].json();
    assert_eq!(first["context"][0]["content"], "CET");
    assert_eq!((&first["forwardedProps"]["model"], &first["state"]["a"]), (&json!("x"), &json!(1)));
    let messages = requests[1].json()["messages"].clone();
    let contents: Vec<_> =
        messages.as_array().unwrap().iter().map(|message| message["content"].clone()).collect();
    assert_eq!(contents, ["hi", "hello", "more"]);
}

#[tokio::test]
async fn call_of_a_front_end_tool_is_answered_by_a_tool_message() {
    let server = server(|body| {
        let last = body["messages"].as_array().unwrap().last().unwrap().clone();
        let mut stream = vec![started("a")];
        if last["role"] == "tool" {
            stream.extend(said("a2", &format!("{} for {}", last["content"].as_str().unwrap(), last["toolCallId"])));
        } else {
            stream.extend([
                json!({"type": "TOOL_CALL_START", "toolCallId": "tool-123", "toolCallName": "confirmAction", "parentMessageId": "msg-456"}),
                json!({"type": "TOOL_CALL_ARGS", "toolCallId": "tool-123", "delta": {"action": "Deploy"}}),
                json!({"type": "TOOL_CALL_END", "toolCallId": "tool-123"}),
            ]);
        }
        stream.push(finished("a"));
        stream
    })
    .await;
    for route in ["/", "/awp"] {
        let gateway = gateway_of(&server).await;
        let thread = format!("t{route}");
        let body = |run: &str, messages: Value| {
            json!({"threadId": thread, "runId": run, "messages": messages, "state": {},
            "context": [], "tools": [{"name": "confirmAction", "description": "", "parameters": {}}], "forwardedProps": {}})
        };
        let text = |body: Value| {
            let request = gateway.request(Method::POST, route).json(&body);
            async move { request.send().await.unwrap().text().await.unwrap() }
        };
        let question = json!({"id": "u1", "role": "user", "content": "deploy"});
        let asked = text(body("r1", json!([question]))).await;
        assert!(asked.contains("TOOL_CALL_END"), "{asked}");
        let (_, pending) = gateway.json(&format!("/threads/{}/pending", thread.replace('/', "%2F"))).await;
        assert!(pending.to_string().contains("tool-123"), "{pending}");
        let answer = json!({"id": "result-789", "role": "tool", "content": "true", "toolCallId": "tool-123"});
        let answered = text(body("r2", json!([question, answer]))).await;
        assert!(answered.contains("true for"), "{answered}");
    }
}

/// An agent behind another gateway asks by an interrupt, which HAI shows as a call.
#[tokio::test]
async fn answer_to_an_interrupt_is_a_tool_message() {
    let server = server(|body| {
        let last = body["messages"].as_array().unwrap().last().unwrap().clone();
        let mut end = finished("a");
        if last["role"] == "tool" {
            let said = said("a2", &format!("{}={} {}", last["toolCallId"].as_str().unwrap(), last["content"].as_str().unwrap(), last["error"]));
            return [vec![started("a")], said, vec![end]].concat();
        }
        end["outcome"] = json!({"type": "interrupt", "interrupts": [{"id": "i1", "reason": "input_required", "message": "Sure?"}]});
        vec![started("a"), end]
    })
    .await;
    for (entry, wanted) in [
        (
            json!({"interruptId": "i1", "status": "resolved", "payload": {"ok": true}}),
            r#"i1={\"ok\":true} null"#,
        ),
        (json!({"interruptId": "i1", "status": "cancelled"}), r#"i1= \"cancelled\""#),
    ] {
        let gateway = gateway_of(&server).await;
        let body = |run: &str| {
            json!({"threadId": "t", "runId": run, "messages": [{"id": "u", "role": "user", "content": "go"}],
            "state": {}, "context": [], "tools": [], "forwardedProps": {}})
        };
        let asked =
            gateway.request(Method::POST, "/").json(&body("r1")).send().await.unwrap().text().await.unwrap();
        assert!(asked.contains("Sure?"), "{asked}");
        let mut resume = body("r2");
        resume["resume"] = json!([entry]);
        let response = gateway.request(Method::POST, "/").json(&resume).send().await.unwrap();
        let answered = response.text().await.unwrap();
        assert!(answered.contains(wanted), "{answered}");
    }
}

/// The sample of the standard uses the same ids in every run.
#[tokio::test]
async fn two_turns_with_constant_ids_stay_two_answers() {
    let server = server(|_| {
        [vec![started("msgId-001")], said("msgId-001", "hello"), vec![finished("msgId-001")]].concat()
    })
    .await;
    let gateway = gateway_of(&server).await;
    for (run, id) in [("r1", "msgId-001"), ("r2", "msgId-001#2")] {
        let question = json!({"id": format!("u-{run}"), "role": "user", "content": "hi"});
        let body = json!({"threadId": "t", "runId": run, "messages": [question]});
        let events = hai_run(&gateway, body).await;
        let with_id = [
            "RUN_STARTED",
            "BUSINESS_DATA_START",
            "BUSINESS_DATA_CONTENT",
            "BUSINESS_DATA_END",
            "RUN_FINISHED",
        ];
        for kind in with_id {
            assert_eq!(of_type(&events, kind)[0]["messageId"], id, "{kind}: {events:?}");
        }
    }
    let (_, snapshot) = gateway.json("/message_snapshot/t").await;
    let messages = snapshot["messages"].as_array().unwrap();
    let contents: Vec<_> = messages.iter().map(|message| message["content"].clone()).collect();
    assert_eq!(contents, ["hi", "hello", "hi", "hello"], "{snapshot}");
}

#[tokio::test]
async fn message_id_of_the_agents_run_is_kept() {
    let server = server(|_| {
        let mut start = started("msgId-001");
        start["threadId"] = json!("their-thread");
        [vec![start], said("msgId-001", "hello"), vec![finished("msgId-001")]].concat()
    })
    .await;
    let gateway = gateway_of(&server).await;
    let body =
        json!({"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "hi"}]});
    let events = hai_run(&gateway, body).await;
    let start = of_type(&events, "RUN_STARTED")[0];
    assert_eq!(
        (&start["messageId"], &start["threadId"], &start["runId"]),
        (&json!("msgId-001"), &json!("t"), &json!("r"))
    );
    assert_eq!(start["metadata"]["hai"]["threadId"], "their-thread");
    assert_eq!(of_type(&events, "BUSINESS_DATA_START")[0]["messageId"], "msgId-001");
    assert_eq!(of_type(&events, "RUN_FINISHED")[0]["messageId"], "msgId-001");
    let again = gateway.get("/runs/r/stream?format=hai").await.text().await.unwrap();
    assert!(again.contains(r#""messageId":"msgId-001","role":"assistant","threadId":"t""#), "{again}");
}

#[tokio::test]
async fn slow_agent_does_not_delay_the_start_of_the_run_for_ever() {
    let server = Server::always(vec![Step::Hang]).await;
    let gateway = gateway_of(&server).await;
    let body =
        json!({"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "hi"}]});
    let mut response = gateway.request(Method::POST, "/awp").json(&body).send().await.unwrap();
    let first = response.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("RUN_STARTED"));
}

#[tokio::test]
async fn state_of_the_reference_task_is_built_without_snapshots() {
    let task = reference_task();
    let done = json!({"status": "done"});
    let stored = json!({"workflowItems": [done, done, done, done, done]});
    let file = std::env::temp_dir().join(format!("agentwire-hai-{}.sse", std::process::id()));
    std::fs::write(&file, &task).unwrap();
    let server = Server::always(events(&task)).await;
    let command = vec!["cat".into(), file.to_str().unwrap().into()];
    let gateways = [
        gateway_of(&server).await,
        TestGateway::of(Exec::new(ExecOptions { command, ..ExecOptions::default() }).unwrap()).await,
    ];
    for gateway in gateways {
        for run in ["r1", "r2"] {
            let events = gateway.run("default-user", "t", run).await;
            assert_eq!(of_type(&events, "STATE_DELTA").len(), 14);
            // The second run of a client that sends no state starts with the stored one.
            assert_eq!(of_type(&events, "STATE_SNAPSHOT").len(), usize::from(run == "r2"), "{run}");
            assert_eq!(gateway.json("/state_snapshot/t").await.1["snapshot"], stored);
        }
        // A HAI page has the items, so it gets the patches as the agent sent them.
        let again = gateway.get("/runs/r1/stream?format=hai").await.text().await.unwrap();
        let patches: Vec<Value> = again
            .lines()
            .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
            .filter(|event: &Value| event["type"] == "STATE_DELTA")
            .collect();
        assert_eq!(patches.len(), 14);
        assert_eq!(
            patches[0]["delta"],
            json!([{"op": "add", "path": "/workflowItems/0/status", "value": "running"}])
        );
        assert!(patches.iter().all(|patch| patch["delta"].as_array().unwrap().len() == 1));
    }
    std::fs::remove_file(file).unwrap();
}
