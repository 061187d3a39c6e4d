//! The CopilotKit face: both transports, coming back, stop by thread, threads, and the shapes of refusals.

use std::sync::Arc;

use agentwire_gateway::{agent::Demo, settings::AgentSettings};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::*;

const BASE: &str = "/copilotkit/agent/demo";

/// The request of CopilotKit's client, which declares no protocol version.
fn input(thread: &str, run: &str, text: &str) -> Value {
    let mut input = Server::input(thread, run, text);
    input.as_object_mut().expect("an object").remove("protocolVersion");
    input
}

fn sync(thread: &str, run: &str) -> Value {
    let mut input = input(thread, run, "");
    input["messages"] = json!([]);
    input
}

async fn ok(request: RequestBuilder) -> Value {
    let (status, body) = answer(request).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

/// The names of the threads in a list.
fn ids_of(list: &Value) -> Vec<&str> {
    list["threads"].as_array().expect("threads").iter().map(|it| it["id"].as_str().expect("an id")).collect()
}

#[tokio::test]
async fn info_names_the_agents_and_says_what_there_is() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .and("other", AgentSettings::default(), Arc::new(Demo::without_pauses()))
        .on_memory()
        .await;
    let info = ok(server.ask(Method::GET, "/copilotkit/info")).await;
    let agents: Vec<_> = info["agents"].as_object().expect("agents").keys().collect();
    assert_eq!(agents, ["demo", "other", "default"]);
    assert_eq!(info["agents"]["default"]["capabilities"]["identity"]["name"], "demo");
    assert_eq!(info["mode"], "sse");
    assert_eq!(info["suggestions"], false);
    let flags = json!({"list": true, "inspect": true, "mutations": true, "realtimeMetadata": false});
    assert_eq!(info["threadEndpoints"], flags);
    assert_eq!(info["singleRoute"], json!({"resourceOperations": true, "threadEndpoints": flags}));
    assert_eq!(ok(server.post("/copilotkit", &json!({"method": "info"}))).await, info);
    assert_eq!(ok(server.post("/copilotkit/", &json!({"method": "info"}))).await, info);
    // Flags are honest.
    let server =
        plan(Arc::new(Demo::without_pauses())).agent(|agent| agent.routes.history = false).on_memory().await;
    let info = ok(server.ask(Method::GET, "/copilotkit/info")).await;
    assert_eq!(info["threadEndpoints"]["list"], false);
    let list = ok(server.ask(Method::GET, "/copilotkit/threads?agentId=demo")).await;
    assert_eq!(ids_of(&list), [] as [&str; 0]);
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .set(|settings| settings.faces.copilotkit = false)
        .on_memory()
        .await;
    for path in ["/copilotkit/info", "/copilotkit/threads"] {
        assert_eq!(server.json(path).await.0, 404, "{path}");
    }
    assert_eq!(answer(server.post("/copilotkit", &json!({"method": "info"}))).await.0, 404);
    let document = server.json("/openapi.json").await.1.to_string();
    assert!(!document.contains("copilotkit"));
    let off =
        plan(Arc::new(Demo::without_pauses())).agent(|agent| agent.routes.ag_ui = false).on_memory().await;
    let (status, body) = answer(off.post(&format!("{BASE}/run"), &input("t", "r", "hi"))).await;
    assert_eq!((status.as_u16(), &body["error"]), (404, &json!("Agent not found")));
    assert_eq!(ok(off.ask(Method::GET, "/copilotkit/info")).await["agents"], json!({}));
}

#[tokio::test]
async fn both_transports_run_and_connect() {
    let puppet = Puppet::eager(|input| talk(input, 3));
    let server = plan(puppet).on_memory().await;
    let run = |thread: &str, run: &str, single: bool| {
        let body = input(thread, run, "hello");
        match single {
            true => server.post(
                "/copilotkit",
                &json!({"method": "agent/run", "params": {"agentId": "default"}, "body": body}),
            ),
            false => server.post(&format!("{BASE}/run"), &body),
        }
    };
    for single in [false, true] {
        let thread = format!("t-{single}");
        let frames = Stream::of(run(&thread, &format!("r-{single}"), single)).await.rest().await;
        assert_eq!(types(&frames).first().map(String::as_str), Some("RUN_STARTED"));
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"));
        let body = sync(&thread, "fresh");
        let connect = match single {
            true => server.post(
                "/copilotkit",
                &json!({"method": "agent/connect", "params": {"agentId": "demo"}, "body": body}),
            ),
            false => server.post(&format!("{BASE}/connect"), &body),
        };
        let frames = Stream::of(connect).await.rest().await;
        assert_eq!(types(&frames), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]);
        assert_eq!(frames[1].json()["messages"].as_array().map(Vec::len), Some(2));
    }
    // An unknown thread is an empty stream.
    let empty = Stream::of(server.post(&format!("{BASE}/connect"), &sync("unknown", "x"))).await;
    assert_eq!((empty.status(), empty.header("content-type")), (200, "text/event-stream"));
    assert_eq!(empty.bytes().await, b"");
    assert_eq!(server.json("/runs/x").await.0, 404, "nothing is stored");
}

#[tokio::test]
async fn connect_during_a_run_has_the_history_and_the_live_tail_once() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    puppet.allow(100);
    server.run_to_end("t", "one", "hello").await;
    puppet.forbid();
    let mut live = Stream::of(server.post(&format!("{BASE}/run"), &input("t", "two", "again"))).await;
    live.take(1).await;
    let mut back = Stream::of(server.post(&format!("{BASE}/connect"), &sync("t", "fresh"))).await;
    let first = back.take(3).await;
    assert_eq!(types(&first), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]);
    assert_eq!(first[0].json()["runId"], "two");
    puppet.allow(100);
    let rest = back.rest().await;
    let text = |frames: &[Frame]| -> String {
        frames
            .iter()
            .filter(|it| it.kind() == "TEXT_MESSAGE_CONTENT")
            .map(|it| it.json()["delta"].as_str().expect("text").to_owned())
            .collect()
    };
    let lived = live.rest().await;
    assert_eq!(text(&rest), text(&lived));
    assert!(!text(&rest).is_empty());
    assert_eq!(types(&rest).last().map(String::as_str), Some("RUN_FINISHED"));
}

#[tokio::test]
async fn stop_by_thread_ends_the_active_run() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let stop = |thread: &str, body: Value| server.post(&format!("{BASE}/stop/{thread}"), &body);
    assert_eq!(ok(stop("t", json!({}))).await["stopped"], false);
    let mut live = Stream::of(server.post(&format!("{BASE}/run"), &input("t", "one", "hello"))).await;
    live.take(1).await;
    assert_eq!(ok(stop("t", json!({"runId": "other"}))).await["stopped"], false);
    assert_eq!(answer(stop("t", json!({"threadId": "t"}))).await.0, 400);
    let stopped = ok(stop("t", json!({"runId": "one"}))).await;
    assert_eq!(stopped["stopped"], true);
    assert_eq!(
        stopped["interrupt"],
        json!({"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"})
    );
    live.rest().await;
    assert_eq!(server.status("one").await, "stopped");
    // Without a body, and through the other transport.
    let mut live = Stream::of(server.post(&format!("{BASE}/run"), &input("t", "two", "hello"))).await;
    live.take(1).await;
    let call = json!({"method": "agent/stop", "params": {"agentId": "demo", "threadId": "t"}});
    assert_eq!(ok(server.post("/copilotkit", &call)).await["stopped"], true);
    live.rest().await;
    assert_eq!(server.status("two").await, "stopped");
}

#[tokio::test]
async fn a_question_is_answered_and_comes_back() {
    let puppet = Puppet::eager(asker_script);
    let server = plan(puppet).on_memory().await;
    let asked = input("t", "r", r#"{"ask":[{"id":"q"}]}"#);
    let frames = Stream::of(server.post(&format!("{BASE}/run"), &asked)).await.rest().await;
    let last = frames.last().expect("a last frame").json();
    assert_eq!(
        (&last["outcome"]["type"], &last["outcome"]["interrupts"][0]["id"]),
        (&json!("interrupt"), &json!("q"))
    );
    assert_eq!(last["outcome"].get("pendingToolCallIds"), None);
    let back = Stream::of(server.post(&format!("{BASE}/connect"), &sync("t", "fresh"))).await.rest().await;
    let last = back.last().expect("a last frame").json();
    assert_eq!(last["outcome"]["interrupts"][0]["id"], "q", "the question is open after a reload");
    // CopilotKit answers under the id of the interrupted run.
    let mut answer = asked.clone();
    answer["resume"] = json!([{"interruptId": "q", "status": "resolved", "payload": {"yes": true}}]);
    let frames = Stream::of(server.post(&format!("{BASE}/run"), &answer)).await.rest().await;
    let last = frames.last().expect("a last frame").json();
    assert_eq!((&last["type"], &last["outcome"]["type"] == "interrupt"), (&json!("RUN_FINISHED"), false));
}

#[tokio::test]
async fn threads_are_listed_renamed_archived_and_deleted() {
    for backend in Backend::each().await {
        let puppet = Puppet::eager(|input| talk(input, 2));
        let server =
            plan(puppet.clone()).and("other", AgentSettings::default(), puppet).on(&backend.store).await;
        for at in 1..=5 {
            server.run_to_end(&format!("t{at}"), &format!("r{at}"), &format!("question {at}")).await;
        }
        let list = |query: &str| server.ask(Method::GET, &format!("/copilotkit/threads?{query}"));
        let first = ok(list("agentId=demo&limit=2")).await;
        assert_eq!(ids_of(&first), ["t5", "t4"], "newest first");
        let row = &first["threads"][0];
        assert_eq!(
            (&row["name"], &row["agentId"], &row["archived"]),
            (&json!("question 5"), &json!("demo"), &json!(false))
        );
        assert!(row["createdAt"].as_str().is_some_and(|at| at.ends_with('Z')));
        let cursor = first["nextCursor"].as_str().expect("one more page");
        assert_eq!(
            ids_of(&ok(list(&format!("agentId=default&limit=9&cursor={cursor}"))).await),
            ["t3", "t2", "t1"]
        );
        assert_eq!(ids_of(&ok(list("agentId=other")).await), [] as [&str; 0]);
        assert_eq!(ids_of(&ok(list("agentId=nobody")).await), [] as [&str; 0]);
        assert_eq!(answer(list("agentId=demo&cursor=x")).await.0, 400);

        let patch = |body: Value| server.ask(Method::PATCH, "/copilotkit/threads/t5").json(&body);
        let renamed = ok(patch(json!({"agentId": "demo", "name": "a name"}))).await;
        assert_eq!((&renamed["id"], &renamed["name"]), (&json!("t5"), &json!("a name")));
        let archived = server.post("/copilotkit/threads/t5/archive", &json!({"agentId": "default"}));
        assert_eq!(ok(archived).await, json!({"threadId": "t5", "archived": true}));
        assert_eq!(ids_of(&ok(list("agentId=demo")).await), ["t4", "t3", "t2", "t1"]);
        let all = ok(list("agentId=demo&includeArchived=true")).await;
        assert_eq!((ids_of(&all)[0], &all["threads"][0]["archived"]), ("t5", &json!(true)));
        // A page of an archive is filled from the next one.
        assert_eq!(ids_of(&ok(list("agentId=demo&limit=1")).await), ["t4"]);
        let back = ok(patch(json!({"agentId": "demo", "archived": false}))).await;
        assert_eq!((&back["archived"], &back["name"]), (&json!(false), &json!("a name")));
        for bad in [
            json!([]),
            json!({"agentId": 1}),
            json!({"agentId": "demo", "archived": 1}),
            json!({"agentId": "demo", "name": 1}),
        ] {
            assert_eq!(answer(patch(bad.clone())).await.0, 400, "{bad}");
        }
        let delete = |thread: &str| {
            server
                .ask(Method::DELETE, &format!("/copilotkit/threads/{thread}"))
                .json(&json!({"agentId": "demo"}))
        };
        assert_eq!(ok(delete("t4")).await, json!({"threadId": "t4", "deleted": true}));
        let (status, body) = answer(delete("t4")).await;
        assert_eq!((status.as_u16(), &body["error"]), (404, &json!("Thread not found")));
        assert_eq!(ids_of(&ok(list("agentId=demo")).await), ["t5", "t3", "t2", "t1"]);
        // The same through the other transport.
        let resource = |method: &str, path: &str, body: Value| {
            server.post("/copilotkit", &json!({"method": "resource/request", "params": {"path": path, "httpMethod": method}, "body": body}))
        };
        assert_eq!(ids_of(&ok(resource("GET", "/threads?agentId=demo&limit=1", Value::Null)).await), ["t5"]);
        assert_eq!(ok(resource("DELETE", "/threads/t3", json!({"agentId": "demo"}))).await["deleted"], true);
        assert_eq!(answer(resource("GET", "/info", Value::Null)).await.0, 404);
    }
}

#[tokio::test]
async fn a_thread_is_inspected_by_its_id() {
    let demo = Arc::new(Demo::without_pauses());
    let server = plan(demo.clone()).and("other", AgentSettings::default(), demo).on_memory().await;
    let run = server.post("/agents/other/", &Server::input("t", "one", "tools state"));
    Stream::of(run).await.rest().await;
    Stream::of(server.post("/agents/other/", &Server::input("t", "two", "fail"))).await.rest().await;
    Stream::of(server.post("/agents/other/", &Server::input("t", "three", "hello"))).await.rest().await;
    let get = |part: &str| server.ask(Method::GET, &format!("/copilotkit/threads/t/{part}"));
    let messages = ok(get("messages")).await;
    let calls =
        messages["messages"].as_array().expect("messages").iter().find_map(|it| it["toolCalls"].as_array());
    let call = &calls.expect("a call")[0];
    assert!(call["name"].is_string() && call["args"].is_string() && call.get("function").is_none(), "{call}");
    let events = ok(get("events")).await;
    let kinds: Vec<_> = events["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|it| it["type"].as_str().expect("a type"))
        .collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "RUN_STARTED").count(), 3, "also after a failed run");
    assert_eq!(kinds.last(), Some(&"RUN_FINISHED"));
    assert_eq!(ok(get("state")).await["state"]["demo"]["progress"], 100);
    for (part, empty) in [
        ("messages", json!({"messages": []})),
        ("events", json!({"events": []})),
        ("state", json!({"state": null})),
    ] {
        assert_eq!(ok(server.ask(Method::GET, &format!("/copilotkit/threads/unknown/{part}"))).await, empty);
    }
}

#[tokio::test]
async fn an_encoded_name_is_that_of_the_agent() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    for (at, name) in ["d%65mo", "%64%65%6d%6F", "def%61ult"].into_iter().enumerate() {
        let path = |rest: &str| format!("/copilotkit/agent/{name}/{rest}");
        let input = input(&format!("t{at}"), &format!("r{at}"), "hi");
        let mut run = Stream::of(server.post(&path("run"), &input)).await;
        assert_eq!(run.status(), 200, "{name}");
        assert_eq!(run.rest().await.last().expect("an event").json()["type"], "RUN_FINISHED");
        let stop = answer(server.post(&path(&format!("stop/t{at}")), &json!({}))).await;
        assert_eq!((stop.0.as_u16(), &stop.1["stopped"]), (200, &json!(false)), "{name}");
    }
    for name in ["nob%6fdy", "demo%2Fx", "de%20mo"] {
        let (status, body) = answer(server.post(&format!("/copilotkit/agent/{name}/run"), &json!({}))).await;
        assert_eq!((status.as_u16(), &body["error"]), (404, &json!("Agent not found")), "{name}");
    }
    let (status, _) = answer(server.post("/copilotkit/agent/d%65mo/fly", &json!({}))).await;
    assert_eq!(status, 404);
    let (status, _) = answer(server.ask(reqwest::Method::GET, "/copilotkit/agent/d%65mo/run")).await;
    assert_eq!(status, 405);
}

#[tokio::test]
async fn refusals_have_the_shapes_of_copilotkit() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let post = |path: &str, body: Value| server.post(path, &body);
    for (request, status, error) in [
        (post("/copilotkit/agent/nobody/run", input("t", "r", "hi")), 404, "Agent not found"),
        (post("/copilotkit/agent/nobody/stop/t", json!({})), 404, "Agent not found"),
        (post("/copilotkit/agent/%ff/run", json!({})), 400, "Invalid request body"),
        (post("/copilotkit/agent/demo/fly", json!({})), 404, "Agent not found"),
        (post("/copilotkit/agent/demo/run", json!([])), 400, "Invalid request body"),
        (post("/copilotkit/agent/demo/run", json!({"threadId": 1})), 400, "Invalid request body"),
        (post("/copilotkit/agent/demo/connect", json!({"messages": 1})), 400, "Invalid request body"),
        (post("/copilotkit/memories", json!({})), 404, "Not found"),
        (post("/copilotkit/threads/subscribe", json!({})), 405, "Method not allowed"),
        (post("/copilotkit", json!({"method": "agent/suggest"})), 400, "Invalid request body"),
        (
            post("/copilotkit", json!({"method": "agent/run", "params": {"agentId": "x"}, "body": {}})),
            404,
            "Agent not found",
        ),
        (post("/copilotkit", json!([])), 400, "Invalid request body"),
        (server.ask(Method::GET, "/copilotkit"), 405, "Method not allowed"),
        (server.ask(Method::PUT, "/copilotkit/threads"), 405, "Method not allowed"),
        (server.ask(Method::POST, "/copilotkit").body("{}"), 415, "Unsupported Media Type"),
        (
            server.ask(Method::PATCH, "/copilotkit/threads/x").json(&json!({"agentId": "nobody"})),
            404,
            "Thread not found",
        ),
    ] {
        let (found, body) = answer(request).await;
        assert_eq!((found.as_u16(), &body["error"]), (status, &json!(error)), "{body}");
        assert!(body["message"].is_string() && body["code"].is_string(), "{body}");
    }
}

#[tokio::test]
async fn an_envelope_opens_nothing_that_its_scope_does_not() {
    let issuer = Issuer::new();
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .and("other", AgentSettings::default(), Arc::new(Demo::without_pauses()))
        .set(|settings| settings.auth = crate::auth::required(vec![issuer.settings.clone()]))
        .on_memory()
        .await;
    let call = |agent: &str, scope: &str| {
        let body =
            json!({"method": "agent/run", "params": {"agentId": agent}, "body": input("t", "r", "hi")});
        server.post("/copilotkit", &body).bearer_auth(issuer.token("ada", scope))
    };
    assert_eq!(answer(call("demo", "agents:other:run")).await.0, 403);
    assert_eq!(answer(call("demo", "agents:nobody:run")).await.0, 403);
    assert_eq!(answer(call("demo", "agents:demo:read")).await.0, 403);
    assert_eq!(answer(call("demo", "agents:demo:run")).await.0, 200);
    let info =
        server.ask(Method::GET, "/copilotkit/info").bearer_auth(issuer.token("ada", "agents:other:run"));
    let agents: Vec<_> = ok(info).await["agents"].as_object().expect("agents").keys().cloned().collect();
    assert_eq!(agents, ["other"]);
    // Threads of an agent that the sender may not read do not exist.
    let read = |scope: &str| {
        server.ask(Method::GET, "/copilotkit/threads/t/messages").bearer_auth(issuer.token("ada", scope))
    };
    assert_eq!(ok(read("agents:other:read")).await, json!({"messages": []}));
    assert_ne!(ok(read("agents:demo:read")).await, json!({"messages": []}));
    let delete = server.ask(Method::DELETE, "/copilotkit/threads/t").json(&json!({"agentId": "demo"}));
    assert_eq!(answer(delete.bearer_auth(issuer.token("ada", "agents:other:delete"))).await.0, 404);
}
