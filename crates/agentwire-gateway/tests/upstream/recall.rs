//! Recall: threads that started without this gateway, whose history is on the agent's server.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use agentwire_gateway::{
    codes,
    settings::{AgentSettings, History},
    upstream::{Adk, AdkOptions, LangGraph, LangGraphOptions},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    fixture,
    gateway::TestGateway,
    scoped_id,
    server::{ReceivedRequest, Server, Step, events, response},
};

const THREAD: &str = "01a1e0b9-8f11-7229-ac8e-dab6be118164";

/// Its id on the server, for a request without a name.
fn server_thread() -> String {
    scoped_id("default", "default-user", THREAD)
}

fn json_response(status: &str, body: &Value) -> Vec<Step> {
    response(status, "application/json", body.to_string().as_bytes())
}

fn missing() -> Vec<Step> {
    json_response("404 Not Found", &json!({"detail": "not found"}))
}

/// A LangGraph Server with one thread, until the thread is deleted or the server is `broken`.
struct ThreadServer {
    server: Server,
    broken: Arc<AtomicBool>,
}

fn matches(request: &ReceivedRequest, method: &str, end: &str) -> bool {
    let line = request.line();
    line.starts_with(method) && line.split('?').next().unwrap_or_default().ends_with(end)
}

async fn langgraph() -> ThreadServer {
    let (broken, deleted) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let flag = Arc::clone(&broken);
    let state = fixture("langgraph_plain_state.json");
    let server = Server::new(move |request| {
        let exists = request.line().contains(&server_thread()) && !deleted.load(Ordering::Relaxed);
        if flag.load(Ordering::Relaxed) {
            return response("500 Internal Server Error", "text/plain", b"secret");
        }
        if matches(request, "GET", "/state") {
            return if exists { response("200 OK", "application/json", &state) } else { missing() };
        }
        if matches(request, "DELETE", "") {
            deleted.store(true, Ordering::Relaxed);
            return response("204 No Content", "application/json", b"");
        }
        if matches(request, "POST", "/runs/stream") {
            let sent = request.json()["input"]["messages"].clone();
            let held: Value = serde_json::from_slice(&state).unwrap();
            let mut messages = match exists {
                true => held["values"]["messages"].as_array().unwrap().clone(),
                false => Vec::new(),
            };
            messages.extend(sent.as_array().unwrap().iter().cloned());
            messages.push(json!({"type": "ai", "id": "answer", "content": "Sunny."}));
            let values = json!({"messages": messages, "stage": "done", "notes": []});
            let body = format!(
                "event: metadata\r\ndata: {{\"run_id\":\"r\",\"attempt\":1}}\r\n\r\nevent: values\r\ndata: {values}\r\n\r\n"
            );
            return events(body.as_bytes());
        }
        if matches(request, "GET", "/runs") {
            return json_response("200 OK", &json!([]));
        }
        json_response("200 OK", &json!({"status": "success"}))
    })
    .await;
    ThreadServer { server, broken }
}

fn graph(threads: &ThreadServer) -> LangGraph {
    let url = threads.server.url.clone();
    LangGraph::new(LangGraphOptions { url, graph: "plain".into(), ..LangGraphOptions::default() }).unwrap()
}

fn ids(messages: &Value) -> Vec<&str> {
    messages.as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap()).collect()
}

const OLD: [&str; 3] = ["h1", "chatcmpl-S1", "h2"];

#[tokio::test]
async fn messages_and_state_are_read_from_the_server() {
    let threads = langgraph().await;
    let gateway = TestGateway::of(graph(&threads)).await;
    let (status, body) = gateway.json(&format!("/message_snapshot/{THREAD}")).await;
    assert_eq!((status, body["type"].as_str()), (200, Some("MESSAGES_SNAPSHOT")));
    assert_eq!(ids(&body["messages"]), OLD);
    let (status, body) = gateway.json(&format!("/message_snapshot/{THREAD}?format=ai-sdk")).await;
    assert_eq!((status, body.as_array().unwrap().len()), (200, 3));
    let (status, body) = gateway.json(&format!("/state_snapshot/{THREAD}")).await;
    assert_eq!((status, &body["snapshot"]["stage"]), (200, &json!("chatbot")));
    // A request without messages gets the same.
    let received = gateway.run_with("default-user", THREAD, "sync", json!([])).await;
    assert_eq!(ids(&received[1]["messages"]), OLD);
    // Reading creates nothing.
    assert!(threads.server.requests().iter().all(|request| request.line().starts_with("GET ")));
    assert_eq!(gateway.json("/thread/list").await, (200, json!([])));
    // A thread with that id does not exist for another user.
    let ask = async |path: String| {
        let response = gateway.request(Method::GET, &path).header("x-user-id", "eve").send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    for route in ["message_snapshot", "state_snapshot"] {
        let foreign = ask(format!("/{route}/{THREAD}")).await;
        assert_eq!(foreign.0, 404);
        assert_eq!(foreign, ask(format!("/{route}/nothing")).await);
    }
}

#[tokio::test]
async fn recalled_messages_precede_the_first_new_one() {
    let threads = langgraph().await;
    let gateway = TestGateway::of(graph(&threads)).await;
    let received = gateway.run("default-user", THREAD, "r1").await;
    let snapshots: Vec<_> = received.iter().filter(|event| event["type"] == "MESSAGES_SNAPSHOT").collect();
    // The first snapshot removes the client's own message, so that it follows the recalled ones in the second.
    assert_eq!(ids(&snapshots[0]["messages"]), OLD);
    assert_eq!(ids(&snapshots[1]["messages"]), ["h1", "chatcmpl-S1", "h2", "m-r1"]);
    let at = |kind: &str| received.iter().position(|event| event["type"] == kind).unwrap();
    assert!(at("RUN_STARTED") < at("MESSAGES_SNAPSHOT"));
    assert_eq!(received[at("STATE_SNAPSHOT")]["snapshot"]["stage"], "chatbot");
    assert_eq!(received.last().unwrap()["type"], "RUN_FINISHED");
    let (_, body) = gateway.json(&format!("/message_snapshot/{THREAD}")).await;
    assert_eq!(ids(&body["messages"]), ["h1", "chatcmpl-S1", "h2", "m-r1", "answer"]);
    // Only the new message was sent.
    let sent = threads
        .server
        .requests()
        .into_iter()
        .find(|request| matches(request, "POST", "/runs/stream"))
        .unwrap();
    assert_eq!(ids(&sent.json()["input"]["messages"]), ["m-r1"]);
    // From now on the gateway has the thread itself.
    let before = threads.server.requests().len();
    gateway.json(&format!("/message_snapshot/{THREAD}")).await;
    assert_eq!(threads.server.requests().len(), before);
    let received = gateway.run("default-user", THREAD, "r2").await;
    assert!(received.iter().all(|event| event["metadata"]["agentwire.recalled"].is_null()), "{received:#?}");
}

#[tokio::test]
async fn clients_that_send_the_history_get_no_message_snapshot() {
    let threads = langgraph().await;
    let message = |id: &str, role: &str| json!({"id": id, "role": role, "content": "x"});
    let own = json!([message("a", "user"), message("b", "assistant"), message("c", "user")]);
    let gateway = TestGateway::of(graph(&threads)).await;
    let received = gateway.run_with("default-user", THREAD, "r1", own).await;
    let marked = |kind: &str| {
        let is_marked =
            |event: &&Value| event["metadata"]["agentwire.recalled"] == true && event["type"] == kind;
        received.iter().filter(is_marked).count()
    };
    assert_eq!((marked("MESSAGES_SNAPSHOT"), marked("STATE_SNAPSHOT")), (0, 1));
    // With `History::Client` the messages of the client are the conversation.
    let settings = AgentSettings::default().history(Some(History::Client));
    let gateway = TestGateway::with(graph(&threads), settings).await;
    let received = gateway.run("default-user", THREAD, "r1").await;
    let is_recalled = |event: &&Value| event["metadata"]["agentwire.recalled"] == true;
    let kinds: Vec<_> = received.iter().filter(is_recalled).map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["STATE_SNAPSHOT"]);
}

#[tokio::test]
async fn an_unreadable_history_is_an_error_and_not_an_empty_one() {
    let threads = langgraph().await;
    let gateway = TestGateway::of(graph(&threads)).await;
    threads.broken.store(true, Ordering::Relaxed);
    let (status, body) = gateway.json(&format!("/message_snapshot/{THREAD}")).await;
    assert_eq!((status, body["error"]["code"].as_str()), (502, Some(codes::UPSTREAM_STATUS)));
    assert!(!body.to_string().contains("secret"));
    let received = gateway.run("default-user", THREAD, "r1").await;
    let last = received.last().unwrap();
    assert_eq!(
        (last["type"].as_str(), last["code"].as_str()),
        (Some("RUN_ERROR"), Some(codes::UPSTREAM_STATUS))
    );
    threads.broken.store(false, Ordering::Relaxed);
    gateway.run("default-user", THREAD, "r2").await;
    let (_, body) = gateway.json(&format!("/message_snapshot/{THREAD}")).await;
    let held = ids(&body["messages"]);
    assert_eq!(held[..3], OLD, "{held:?}");
    assert_eq!(held.last(), Some(&"answer"));
}

#[tokio::test]
async fn a_deleted_thread_is_deleted_on_the_server_too() {
    for run_first in [true, false] {
        let threads = langgraph().await;
        let gateway = TestGateway::of(graph(&threads)).await;
        if run_first {
            gateway.run("default-user", THREAD, "r1").await;
        }
        let delete = |user: &'static str| {
            gateway.request(Method::DELETE, &format!("/thread/{THREAD}")).header("x-user-id", user)
        };
        assert_eq!(delete("eve").send().await.unwrap().status(), 404);
        assert!(!threads.server.requests().iter().any(|request| request.line().starts_with("DELETE")));
        assert_eq!(delete("default-user").send().await.unwrap().status(), 200);
        let deleted: Vec<_> = threads
            .server
            .requests()
            .into_iter()
            .filter(|request| request.line().starts_with("DELETE"))
            .collect();
        assert_eq!(deleted.len(), 1);
        assert_eq!(deleted[0].line(), format!("DELETE /threads/{}", server_thread()));
        let (status, body) = gateway.json(&format!("/message_snapshot/{THREAD}")).await;
        assert_eq!((status, body["error"]["code"].as_str()), (404, Some(codes::UNKNOWN_THREAD)));
        assert_eq!(delete("default-user").send().await.unwrap().status(), 404);
    }
}

#[tokio::test]
async fn adk_sessions_are_recalled() {
    let session = fixture("adk_session.json");
    const ANSWER: &str = r#"data: {"id":"new","invocationId":"e-new","author":"demo","content":{"role":"model","parts":[{"text":"Sunny."}]},"actions":{}}

"#;
    let server = Server::new(move |request| match request.line() {
        "POST /run_sse" => events(ANSWER.as_bytes()),
        "GET /apps/demo/users/ada/sessions/s1" => response("200 OK", "application/json", &session),
        line if line.starts_with("GET ") => missing(),
        _ => json_response("200 OK", &json!({"id": "x"})),
    })
    .await;
    let adk = Adk::new(AdkOptions { url: server.url.clone(), app: "demo".into(), ..AdkOptions::default() })
        .unwrap();
    let gateway = TestGateway::of(adk).await;
    let get = async |user: &str, path: &str| -> (u16, Value) {
        let response = gateway.request(Method::GET, path).header("x-user-id", user).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    };
    let (status, before) = get("ada", "/message_snapshot/s1").await;
    assert_eq!(status, 200);
    let old = ids(&before["messages"]);
    assert!(old.len() > 3, "{old:?}");
    assert_eq!(before["messages"][0]["content"], "hello there");
    assert_eq!(get("ada", "/state_snapshot/s1").await.1["snapshot"]["counter"], 1);
    assert_eq!(get("bob", "/message_snapshot/s1").await.0, 404);
    gateway.run("ada", "s1", "r1").await;
    let (_, after) = get("ada", "/message_snapshot/s1").await;
    let all = ids(&after["messages"]);
    assert_eq!(all[..old.len()], old[..]);
    assert_eq!(all[old.len()], "m-r1");
    let run = server.requests().into_iter().find(|request| request.line() == "POST /run_sse").unwrap().json();
    assert_eq!(run["newMessage"]["parts"], json!([{"text": "What is the weather?"}]));
    assert!(run.get("stateDelta").is_none(), "{run}");
    // The artifacts of another user's session are not reachable.
    assert_eq!(get("bob", "/threads/s1/artifacts").await.1["error"]["code"], codes::UNKNOWN_THREAD);
}

/// The id of an interrupt from a run that another client started.
const INTERRUPT: &str = "ab1b7c0f1d4a4e7f9c0e5d1a2b3c4d5e";

/// A server with a thread in which a node waits for an answer.
async fn interrupted() -> Server {
    let answered = AtomicBool::new(false);
    Server::new(move |request| {
        if !request.line().contains(&server_thread()) {
            return missing();
        }
        if matches(request, "GET", "/state") {
            let interrupt = json!({"id": INTERRUPT, "value": {"message": "Delete 3 files?"}});
            let interrupts = if answered.load(Ordering::Relaxed) { json!([]) } else { json!([interrupt]) };
            let next = if answered.load(Ordering::Relaxed) { json!([]) } else { json!(["approve"]) };
            let state = json!({
                "values": {"messages": [{"type": "human", "id": "h1", "content": "Tidy up."}], "stage": "x"},
                "next": next,
                "tasks": [{"id": "t", "name": "approve", "error": null, "interrupts": interrupts}],
                "checkpoint": {"checkpoint_id": "c"},
            });
            return json_response("200 OK", &state);
        }
        if matches(request, "POST", "/runs/stream") {
            answered.store(true, Ordering::Relaxed);
            return events(b"event: metadata\r\ndata: {\"run_id\":\"r\",\"attempt\":1}\r\n\r\n");
        }
        if matches(request, "GET", "/runs") {
            return json_response("200 OK", &json!([]));
        }
        json_response("200 OK", &json!({"status": "success"}))
    })
    .await
}

#[tokio::test]
async fn a_recalled_interrupt_can_be_answered() {
    let answer =
        |status: &str| json!([{"interruptId": INTERRUPT, "status": status, "payload": {"approved": true}}]);
    let body = |run: &str, resume: Value| {
        json!({"threadId": THREAD, "runId": run, "protocolVersion": "1.0", "messages": [], "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "resume": resume})
    };
    let server = interrupted().await;
    let threads = ThreadServer { server, broken: Arc::default() };
    let gateway = TestGateway::of(graph(&threads)).await;
    let post = async |body: Value| {
        let text = gateway.request(Method::POST, "/").json(&body).send().await.unwrap().text().await.unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let (status, open) = gateway.json(&format!("/threads/{THREAD}/pending")).await;
    assert_eq!(
        (status, &open[0]["id"], &open[0]["message"]),
        (200, &json!(INTERRUPT), &json!("Delete 3 files?"))
    );
    assert_eq!(gateway.json("/threads/nothing/pending").await.0, 404);
    let started =
        || threads.server.requests().into_iter().filter(|request| matches(request, "POST", "/runs/stream"));

    // New messages are rejected until it is answered, and so are answers to other interrupts.
    let received = gateway.run("default-user", THREAD, "r1").await;
    assert_eq!(received.last().unwrap()["code"], codes::INTERRUPT_UNANSWERED, "{received:#?}");
    let other = json!([{"interruptId": "other", "status": "resolved", "payload": 1}]);
    assert_eq!(post(body("r2", other)).await.last().unwrap()["code"], codes::UNKNOWN_INTERRUPT);
    assert_eq!(started().count(), 0);
    assert_eq!(gateway.json(&format!("/threads/{THREAD}/pending")).await.1[0]["id"], INTERRUPT);

    let received = post(body("r3", answer("resolved"))).await;
    assert_eq!(received.last().unwrap()["type"], "RUN_FINISHED", "{received:#?}");
    let sent: Vec<_> = started().collect();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].json()["command"]["resume"], json!({INTERRUPT: {"approved": true}}));
    // From now on the gateway has the thread itself.
    assert_eq!(gateway.json(&format!("/threads/{THREAD}/pending")).await, (200, json!([])));
    assert_eq!(post(body("r4", answer("resolved"))).await.last().unwrap()["code"], codes::UNKNOWN_INTERRUPT);
}

#[tokio::test]
async fn a_recalled_interrupt_can_be_answered_in_every_protocol() {
    let yes = json!({"approved": true});
    let part = json!({"type": "tool-interrupt", "toolCallId": format!("interrupt:{INTERRUPT}"),
        "state": "output-available", "input": {"id": INTERRUPT, "reason": "input_required"}, "output": yes});
    let pages = [
        (
            "/awp",
            json!({"threadId": THREAD, "runId": "r",
                "messages": [{"id": "x", "role": "tool", "toolCallId": INTERRUPT, "content": yes.to_string()}]}),
        ),
        (
            "/api/chat?profile=5",
            json!({"id": THREAD, "trigger": "submit-message", "messages": [
                {"id": "h1", "role": "user", "parts": [{"type": "text", "text": "Tidy up."}]},
                {"id": "a", "role": "assistant", "parts": [part]}]}),
        ),
    ];
    for (path, body) in pages {
        let threads = ThreadServer { server: interrupted().await, broken: Arc::default() };
        let gateway = TestGateway::of(graph(&threads)).await;
        let response = gateway.request(Method::POST, path).json(&body).send().await.unwrap();
        let (status, received) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, 200, "{path}: {received}");
        let sent: Vec<_> = threads
            .server
            .requests()
            .into_iter()
            .filter(|request| matches(request, "POST", "/runs/stream"))
            .collect();
        assert_eq!(sent.len(), 1, "{path}: {received}");
        assert_eq!(sent[0].json()["command"]["resume"], json!({INTERRUPT: yes}), "{path}: {received}");
    }
}

/// `next` in the state is set both while a graph is running and while it is interrupted.
#[tokio::test]
async fn a_run_in_progress_elsewhere_is_not_pending() {
    let state = json!({"values": {"messages": [{"type": "human", "id": "h1", "content": "Tidy up."}]},
        "next": ["sweep"], "tasks": [{"id": "t", "name": "sweep", "error": null, "interrupts": []}]});
    let server = Server::new(move |request| match matches(request, "POST", "/runs/stream") {
        true => json_response("409 Conflict", &json!({"detail": "Thread is already running a task."})),
        false => json_response("200 OK", &state),
    })
    .await;
    let threads = ThreadServer { server, broken: Arc::default() };
    let gateway = TestGateway::of(graph(&threads)).await;
    assert_eq!(gateway.json(&format!("/threads/{THREAD}/pending")).await, (200, json!([])));
    let received = gateway.run("default-user", THREAD, "r1").await;
    assert_eq!(received.last().unwrap()["code"], codes::THREAD_IS_LOCKED, "{received:#?}");
}
