//! The LangGraph face in protocol v2: commands, and the events of a thread.

use std::sync::Arc;

use agentwire_gateway::{agent::Demo, settings::AgentSettings};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::*;

fn path(thread: &str, rest: &str) -> String {
    format!("/langgraph/threads/{thread}/{rest}").trim_end_matches('/').to_owned()
}

fn says(text: &str) -> Value {
    json!({"messages": [{"type": "human", "content": text}]})
}

/// The response to a command.
async fn command(server: &Server, thread: &str, method: &str, params: Value) -> Value {
    let body = json!({"id": 7, "method": method, "params": params});
    let (status, response) = answer(server.post(&path(thread, "commands"), &body)).await;
    assert_eq!((status, &response["id"]), (StatusCode::OK, &json!(7)), "{response}");
    response
}

/// Starts a run; its id.
async fn begin(server: &Server, thread: &str, input: Value) -> String {
    let response =
        command(server, thread, "run.start", json!({"assistant_id": "demo", "input": input})).await;
    assert_eq!(response["type"], "success", "{response}");
    assert!(response["meta"]["applied_through_seq"].is_u64(), "{response}");
    response["result"]["run_id"].as_str().expect("an id").to_owned()
}

async fn listen(server: &Server, thread: &str, body: Value) -> Stream {
    let stream = Stream::of(server.post(&path(thread, "stream/events"), &body)).await;
    assert_eq!((stream.status(), stream.header("content-type")), (200, "text/event-stream"));
    stream
}

/// The events up to the end of `runs` runs.
async fn until_end(stream: &mut Stream, runs: usize) -> Vec<Value> {
    let (mut events, mut ended) = (Vec::new(), 0);
    while ended < runs {
        let event = stream.next().await.expect("an event").json();
        let status = &event["params"]["data"]["event"];
        let is_root = event["params"]["namespace"] == json!([]);
        if event["method"] == "lifecycle" && is_root && status != "running" {
            ended += 1;
        }
        events.push(event);
    }
    events
}

fn of<'e>(events: &'e [Value], method: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["method"] == method).map(|event| &event["params"]["data"]).collect()
}

const ALL: [&str; 8] =
    ["values", "checkpoints", "messages", "tools", "lifecycle", "input", "custom", "updates"];

#[tokio::test]
async fn a_stream_has_all_runs_of_a_thread_and_those_to_come() {
    for backend in Backend::each().await {
        let server = plan(Arc::new(Demo::without_pauses())).on(&backend.store).await;
        let first_run = begin(&server, "t", says("hello")).await;
        let mut stream = listen(&server, "t", json!({"channels": ALL})).await;
        let first = until_end(&mut stream, 1).await;
        assert_eq!(first[0]["event_id"], format!("synth:{first_run}:lc||running"));
        assert_eq!(first[0]["params"]["data"], json!({"event": "running", "graph_name": "demo"}));
        assert!(of(&first, "messages").iter().any(|it| it["delta"]["type"] == "text-delta"));
        assert_eq!(
            of(&first, "values").last().expect("values")["messages"].as_array().map(Vec::len),
            Some(2)
        );
        begin(&server, "t", says("tools")).await;
        let second = until_end(&mut stream, 1).await;
        let tools = of(&second, "tools");
        assert!(
            tools.iter().any(|it| it["event"] == "tool-started" && it["tool_name"] == "weather"),
            "{tools:?}"
        );
        assert!(tools.iter().any(|it| it["event"] == "tool-finished"), "{tools:?}");
        let messages = of(&second, "values").last().expect("values")["messages"].clone();
        let state = answer(server.ask(Method::GET, &path("t", "state"))).await.1;
        assert_eq!(messages, state["values"]["messages"], "whole values");
        let last = of(&second, "checkpoints").last().copied().cloned().expect("a checkpoint");
        assert_eq!((&last["id"], &last["step"]), (&state["checkpoint_id"], &state["metadata"]["step"]));
        // Numbers increase, ids are unique, and another stream has the same ones.
        let whole: Vec<Value> = first.into_iter().chain(second).collect();
        let seqs: Vec<u64> = whole.iter().map(|it| it["seq"].as_u64().expect("a number")).collect();
        assert!(seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
        let again = until_end(&mut listen(&server, "t", json!({"channels": ALL})).await, 2).await;
        assert_eq!(again, whole);
        let since = json!({"channels": ALL, "since": seqs[10]});
        assert_eq!(until_end(&mut listen(&server, "t", since).await, 2).await, whole[11..]);
        let filter = json!({"channels": ["lifecycle"], "namespaces": [[]], "depth": 0});
        let some = until_end(&mut listen(&server, "t", filter).await, 2).await;
        assert!(some.len() == 4 && some.iter().all(|event| whole.contains(event)), "{some:?}");
    }
}

#[tokio::test]
async fn values_are_whole_whoever_started_the_run() {
    let server = plan(Puppet::eager(|input| talk(input, 2))).on_memory().await;
    server.run_to_end("t", "r1", "one").await;
    server.run_to_end("t", "r2", "two").await;
    begin(&server, "t", says("three")).await;
    let events =
        until_end(&mut listen(&server, "t", json!({"channels": ["values", "lifecycle"]})).await, 3).await;
    let counts: Vec<_> =
        of(&events, "values").iter().map(|it| it["messages"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!((counts.first(), counts.last()), (Some(&1), Some(&6)), "{counts:?}");
    assert!(counts.is_sorted(), "{counts:?}");
}

#[tokio::test]
async fn a_question_is_answered_by_command() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let none = json!({"interrupt_id": "x", "response": true, "namespace": []});
    assert_eq!(command(&server, "t", "input.respond", none.clone()).await["error"], "no_such_run");
    begin(&server, "t", says("approve")).await;
    let mut stream = listen(&server, "t", json!({"channels": ["input", "lifecycle", "values"]})).await;
    let asked = until_end(&mut stream, 1).await;
    assert_eq!(of(&asked, "lifecycle").last().expect("an end")["event"], "interrupted");
    let question = of(&asked, "input.requested")[0].clone();
    assert!(question["payload"].is_object(), "{question}");
    assert_eq!(command(&server, "t", "input.respond", none).await["error"], "no_such_interrupt");
    for bad in [
        json!({}),
        json!({"interrupt_id": 1}),
        json!({"responses": []}),
        json!({"responses": [{"response": 1}]}),
        json!({"interrupt_id": question["interrupt_id"], "namespace": "x"}),
    ] {
        assert_eq!(
            command(&server, "t", "input.respond", bad.clone()).await["error"],
            "invalid_argument",
            "{bad}"
        );
    }
    let goto = json!({"interrupt_id": question["interrupt_id"], "response": 1, "goto": "x"});
    assert_eq!(command(&server, "t", "input.respond", goto).await["error"], "not_supported");
    let entry =
        json!({"interrupt_id": question["interrupt_id"], "response": {"approved": true}, "namespace": []});
    let done = command(&server, "t", "input.respond", json!({"responses": [entry]})).await;
    assert_eq!((&done["type"], &done["result"]), (&json!("success"), &json!({})), "{done}");
    let rest = until_end(&mut stream, 1).await;
    assert_eq!(of(&rest, "lifecycle").last().expect("an end")["event"], "completed");
    assert!(rest[0]["seq"].as_u64() > done["meta"]["applied_through_seq"].as_u64());
    // The input of `run.start` is the answer, too.
    begin(&server, "u", says("approve")).await;
    let mut stream = listen(&server, "u", json!({"channels": ["lifecycle"]})).await;
    until_end(&mut stream, 1).await;
    begin(&server, "u", json!({"approved": true})).await;
    let rest = until_end(&mut stream, 1).await;
    assert_eq!(of(&rest, "lifecycle").last().expect("an end")["event"], "completed");
}

#[tokio::test]
async fn a_failed_and_a_stopped_run_end_with_a_status() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    begin(&server, "t", says("fail")).await;
    let mut stream = listen(&server, "t", json!({"channels": ["lifecycle"]})).await;
    let failed = until_end(&mut stream, 1).await;
    let last = &failed.last().expect("an end")["params"]["data"];
    assert_eq!(last["event"], "failed");
    assert!(last["error"].as_str().is_some_and(|text| text.contains("demo agent failed")), "{last}");
    let silent = Puppet::new(|input| talk(input, 3));
    let server = plan(silent).on_memory().await;
    let run = begin(&server, "t", says("one")).await;
    let mut stream = listen(&server, "t", json!({"channels": ["lifecycle"]})).await;
    assert_eq!(stream.next().await.expect("an event").json()["params"]["data"]["event"], "running");
    let stop = server.ask(Method::POST, &path("t", &format!("runs/{run}/cancel")));
    assert_eq!(stop.send().await.expect("a response").status(), 202);
    assert_eq!(until_end(&mut stream, 1).await[0]["params"]["data"]["event"], "interrupted");
    let tree = command(&server, "t", "agent.getTree", json!({})).await;
    assert_eq!(tree["result"]["tree"]["status"], "interrupted");
}

#[tokio::test]
async fn broken_commands_and_filters_get_the_shapes_of_the_server() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let post = |rest: &str, body: &'static str| {
        let request = server.ask(Method::POST, &path("t", rest));
        request.header("content-type", "application/json").body(body)
    };
    for body in ["", "{", "nonsense"] {
        let (status, response) = answer(post("commands", body)).await;
        assert_eq!((status.as_u16(), response), (400, json!({"detail": "Invalid JSON body"})), "{body}");
    }
    for body in
        ["[]", "1", "{}", r#"{"id":"x","method":"run.start"}"#, r#"{"id":1}"#, r#"{"id":1,"method":2}"#]
    {
        let (status, response) = answer(post("commands", body)).await;
        assert_eq!((status.as_u16(), &response["type"]), (400, &json!("error")), "{body}");
        assert_eq!(response["error"], "invalid_argument", "{body}");
    }
    for (method, params, error) in [
        ("run.fly", json!({}), "unknown_command"),
        ("state.get", json!({}), "unknown_command"),
        ("subscription.subscribe", json!({"channels": ["values"]}), "not_supported"),
        ("agent.getTree", json!({}), "no_such_run"),
        ("run.start", json!({}), "invalid_argument"),
        ("run.start", json!({"assistant_id": ""}), "invalid_argument"),
        ("run.start", json!({"assistant_id": "nobody", "input": says("x")}), "invalid_argument"),
        ("run.start", json!({"assistant_id": "demo", "input": 1}), "invalid_argument"),
        ("run.start", json!({"assistant_id": "demo", "input": null}), "invalid_argument"),
        (
            "run.start",
            json!({"assistant_id": "demo", "config": {"configurable": {"checkpoint_id": 1}}}),
            "invalid_argument",
        ),
        (
            "run.start",
            json!({"assistant_id": "demo", "input": says("x"), "config": {"configurable": {"checkpoint_id": "none"}}}),
            "no_such_checkpoint",
        ),
    ] {
        let response = command(&server, "t", method, params.clone()).await;
        assert_eq!(
            (&response["type"], &response["error"]),
            (&json!("error"), &json!(error)),
            "{method} {params}"
        );
        let message = response["message"].as_str().expect("a sentence");
        assert!(!message.contains("struct") && !message.contains("::"), "{message}");
    }
    let unknown = answer(post("stream/events", r#"{"channels":["values"]}"#)).await;
    assert_eq!((unknown.0.as_u16(), unknown.1["detail"].is_string()), (404, true), "{unknown:?}");
    for body in ["", "[]", "{}", r#"{"channels":[]}"#, r#"{"channels":["debug"]}"#, r#"{"channels":[{}]}"#] {
        let (status, response) = answer(post("stream/events", body)).await;
        assert_eq!((status.as_u16(), response["detail"].is_string()), (400, true), "{body}: {response}");
    }
}

#[tokio::test]
async fn a_refused_run_leaves_the_thread_at_its_newest_checkpoint() {
    let server = plan(Puppet::eager(|input| talk(input, 2)))
        .and("slow", AgentSettings::default(), Puppet::new(|input| talk(input, 2)))
        .set(|settings| settings.limits.runs = 1)
        .on_memory()
        .await;
    let read = async |rest: &str| answer(server.ask(Method::GET, &path("t", rest))).await.1;
    for text in ["one", "two"] {
        // A run has its place a moment longer than its thread.
        wait_until("a place for the run", async || {
            let body = json!({"assistant_id": "demo", "input": says(text), "if_not_exists": "create"});
            answer(server.post(&path("t", "runs"), &body)).await.0 == 200
        })
        .await;
        wait_until("the end of the run", async || read("").await["status"] == "idle").await;
    }
    let (state, history) = (read("state").await, read("history").await);
    let earlier = &history.as_array().expect("a list").last().expect("a checkpoint")["checkpoint_id"];
    // The other run takes the only place.
    wait_until("the start of the other run", async || {
        let body = json!({"assistant_id": "slow", "input": says("x"), "if_not_exists": "create"});
        answer(server.post(&path("other", "runs"), &body)).await.0 == 200
    })
    .await;
    let at = json!({"configurable": {"checkpoint_id": earlier}});
    let params = json!({"assistant_id": "demo", "input": says("again"), "config": at});
    let by_command = json!({"id": 1, "method": "run.start", "params": params});
    let classic = json!({"assistant_id": "demo", "input": says("again"), "checkpoint_id": earlier});
    for (rest, body) in [("commands", by_command), ("runs", classic.clone()), ("runs/stream", classic)] {
        let (status, refused) = answer(server.post(&path("t", rest), &body)).await;
        assert_eq!((status.as_u16(), refused["detail"].is_string()), (503, true), "{rest}: {refused}");
        let values = |state: &Value| (state["values"].clone(), state["next"].clone());
        assert_eq!(values(&read("state").await), values(&state), "{rest}");
    }
}
