//! Threads that were begun without this gateway: their past stands on the agent's server.

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
    front::Front,
    server::{Seen, Server, Step, answer, events},
};

const THREAD: &str = "01a1e0b9-8f11-7229-ac8e-dab6be118164";

fn json_answer(status: &str, body: &Value) -> Vec<Step> {
    answer(status, "application/json", body.to_string().as_bytes())
}

fn missing() -> Vec<Step> {
    json_answer("404 Not Found", &json!({"detail": "not found"}))
}

/// A LangGraph Server with one thread, until it is deleted or `broken`.
struct Past {
    server: Server,
    broken: Arc<AtomicBool>,
}

fn is_of(seen: &Seen, method: &str, end: &str) -> bool {
    let line = seen.line();
    line.starts_with(method) && line.split('?').next().unwrap_or_default().ends_with(end)
}

async fn langgraph() -> Past {
    let (broken, deleted) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let flag = Arc::clone(&broken);
    let state = fixture("langgraph_plain_state.json");
    let server = Server::new(move |seen| {
        let known = seen.line().contains(THREAD) && !deleted.load(Ordering::Relaxed);
        if flag.load(Ordering::Relaxed) {
            return answer("500 Internal Server Error", "text/plain", b"secret");
        }
        if is_of(seen, "GET", "/state") {
            return if known { answer("200 OK", "application/json", &state) } else { missing() };
        }
        if is_of(seen, "DELETE", "") {
            deleted.store(true, Ordering::Relaxed);
            return answer("204 No Content", "application/json", b"");
        }
        if is_of(seen, "POST", "/runs/stream") {
            let sent = seen.json()["input"]["messages"].clone();
            let held: Value = serde_json::from_slice(&state).unwrap();
            let mut messages = match known {
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
        if is_of(seen, "GET", "/runs") {
            return json_answer("200 OK", &json!([]));
        }
        json_answer("200 OK", &json!({"status": "success"}))
    })
    .await;
    Past { server, broken }
}

fn graph(past: &Past) -> LangGraph {
    let url = past.server.url.clone();
    LangGraph::new(LangGraphOptions { url, graph: "plain".into(), ..LangGraphOptions::default() }).unwrap()
}

fn ids(messages: &Value) -> Vec<&str> {
    messages.as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap()).collect()
}

const OLD: [&str; 3] = ["h1", "chatcmpl-S1", "h2"];

#[tokio::test]
async fn conversation_and_state_are_read_from_the_server() {
    let past = langgraph().await;
    let front = Front::of(graph(&past)).await;
    let (status, body) = front.json(&format!("/message_snapshot/{THREAD}")).await;
    assert_eq!((status, body["type"].as_str()), (200, Some("MESSAGES_SNAPSHOT")));
    assert_eq!(ids(&body["messages"]), OLD);
    let (status, body) = front.json(&format!("/message_snapshot/{THREAD}?format=ai-sdk")).await;
    assert_eq!((status, body.as_array().unwrap().len()), (200, 3));
    let (status, body) = front.json(&format!("/state_snapshot/{THREAD}")).await;
    assert_eq!((status, &body["snapshot"]["stage"]), (200, &json!("chatbot")));
    // A request that asks nothing gets the same.
    let told = front.run_with("default-user", THREAD, "sync", json!([])).await;
    assert_eq!(ids(&told[1]["messages"]), OLD);
    // Reading makes nothing.
    assert!(past.server.seen().iter().all(|seen| seen.line().starts_with("GET ")));
    assert_eq!(front.json("/thread/list").await, (200, json!([])));
    // Somebody else's thread of that name is another one, and there is none.
    let ask = async |path: String| {
        let response = front.ask(Method::GET, &path).header("x-user-id", "eve").send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    for route in ["message_snapshot", "state_snapshot"] {
        let foreign = ask(format!("/{route}/{THREAD}")).await;
        assert_eq!(foreign.0, 404);
        assert_eq!(foreign, ask(format!("/{route}/nothing")).await);
    }
}

#[tokio::test]
async fn old_messages_stand_before_the_first_new_one() {
    let past = langgraph().await;
    let front = Front::of(graph(&past)).await;
    let told = front.run("default-user", THREAD, "r1").await;
    let snapshots: Vec<_> = told.iter().filter(|event| event["type"] == "MESSAGES_SNAPSHOT").collect();
    // What a client holds is taken away first, so that it comes back behind the others.
    assert_eq!(ids(&snapshots[0]["messages"]), OLD);
    assert_eq!(ids(&snapshots[1]["messages"]), ["h1", "chatcmpl-S1", "h2", "m-r1"]);
    let at = |kind: &str| told.iter().position(|event| event["type"] == kind).unwrap();
    assert!(at("RUN_STARTED") < at("MESSAGES_SNAPSHOT"));
    assert_eq!(told[at("STATE_SNAPSHOT")]["snapshot"]["stage"], "chatbot");
    assert_eq!(told.last().unwrap()["type"], "RUN_FINISHED");
    let (_, body) = front.json(&format!("/message_snapshot/{THREAD}")).await;
    assert_eq!(ids(&body["messages"]), ["h1", "chatcmpl-S1", "h2", "m-r1", "answer"]);
    // Only what is new was sent.
    let sent = past.server.seen().into_iter().find(|seen| is_of(seen, "POST", "/runs/stream")).unwrap();
    assert_eq!(ids(&sent.json()["input"]["messages"]), ["m-r1"]);
    // From now on the gateway knows.
    let before = past.server.seen().len();
    front.json(&format!("/message_snapshot/{THREAD}")).await;
    assert_eq!(past.server.seen().len(), before);
    let told = front.run("default-user", THREAD, "r2").await;
    assert!(told.iter().all(|event| event["metadata"]["agentwire.recalled"].is_null()), "{told:#?}");
}

#[tokio::test]
async fn clients_that_know_the_past_are_not_told_of_it() {
    let past = langgraph().await;
    let said = |id: &str, role: &str| json!({"id": id, "role": role, "content": "x"});
    let own = json!([said("a", "user"), said("b", "assistant"), said("c", "user")]);
    let front = Front::of(graph(&past)).await;
    let told = front.run_with("default-user", THREAD, "r1", own).await;
    let marked = |kind: &str| {
        let of_past =
            |event: &&Value| event["metadata"]["agentwire.recalled"] == true && event["type"] == kind;
        told.iter().filter(of_past).count()
    };
    assert_eq!((marked("MESSAGES_SNAPSHOT"), marked("STATE_SNAPSHOT")), (0, 1));
    // Where the client's word is the conversation, it is that alone.
    let settings = AgentSettings::default().history(History::Client);
    let front = Front::with(graph(&past), settings).await;
    let told = front.run("default-user", THREAD, "r1").await;
    let is_past = |event: &&Value| event["metadata"]["agentwire.recalled"] == true;
    let kinds: Vec<_> = told.iter().filter(is_past).map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["STATE_SNAPSHOT"]);
}

#[tokio::test]
async fn a_past_that_cannot_be_read_is_not_taken_for_none() {
    let past = langgraph().await;
    let front = Front::of(graph(&past)).await;
    past.broken.store(true, Ordering::Relaxed);
    let (status, body) = front.json(&format!("/message_snapshot/{THREAD}")).await;
    assert_eq!((status, body["error"]["code"].as_str()), (502, Some(codes::UPSTREAM_STATUS)));
    assert!(!body.to_string().contains("secret"));
    let told = front.run("default-user", THREAD, "r1").await;
    let last = told.last().unwrap();
    assert_eq!(
        (last["type"].as_str(), last["code"].as_str()),
        (Some("RUN_ERROR"), Some(codes::UPSTREAM_STATUS))
    );
    past.broken.store(false, Ordering::Relaxed);
    front.run("default-user", THREAD, "r2").await;
    let (_, body) = front.json(&format!("/message_snapshot/{THREAD}")).await;
    let held = ids(&body["messages"]);
    assert_eq!(held[..3], OLD, "{held:?}");
    assert_eq!(held.last(), Some(&"answer"));
}

#[tokio::test]
async fn what_is_deleted_does_not_come_back_from_the_server() {
    for run_first in [true, false] {
        let past = langgraph().await;
        let front = Front::of(graph(&past)).await;
        if run_first {
            front.run("default-user", THREAD, "r1").await;
        }
        let delete = |user: &'static str| {
            front.ask(Method::DELETE, &format!("/thread/{THREAD}")).header("x-user-id", user)
        };
        assert_eq!(delete("eve").send().await.unwrap().status(), 404);
        assert!(!past.server.seen().iter().any(|seen| seen.line().starts_with("DELETE")));
        assert_eq!(delete("default-user").send().await.unwrap().status(), 200);
        let deleted: Vec<_> =
            past.server.seen().into_iter().filter(|seen| seen.line().starts_with("DELETE")).collect();
        assert_eq!(deleted.len(), 1);
        assert_eq!(deleted[0].line(), format!("DELETE /threads/{THREAD}"));
        let (status, body) = front.json(&format!("/message_snapshot/{THREAD}")).await;
        assert_eq!((status, body["error"]["code"].as_str()), (404, Some(codes::UNKNOWN_THREAD)));
        assert_eq!(delete("default-user").send().await.unwrap().status(), 404);
    }
}

#[tokio::test]
async fn sessions_of_adk_are_read_as_well() {
    let session = fixture("adk_session.json");
    const ANSWER: &str = r#"data: {"id":"new","invocationId":"e-new","author":"demo","content":{"role":"model","parts":[{"text":"Sunny."}]},"actions":{}}

"#;
    let server = Server::new(move |seen| match seen.line() {
        "POST /run_sse" => events(ANSWER.as_bytes()),
        "GET /apps/demo/users/ada/sessions/s1" => answer("200 OK", "application/json", &session),
        line if line.starts_with("GET ") => missing(),
        _ => json_answer("200 OK", &json!({"id": "x"})),
    })
    .await;
    let adk = Adk::new(AdkOptions { url: server.url.clone(), app: "demo".into(), ..AdkOptions::default() })
        .unwrap();
    let front = Front::of(adk).await;
    let get = async |user: &str, path: &str| -> (u16, Value) {
        let response = front.ask(Method::GET, path).header("x-user-id", user).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    };
    let (status, before) = get("ada", "/message_snapshot/s1").await;
    assert_eq!(status, 200);
    let old = ids(&before["messages"]);
    assert!(old.len() > 3, "{old:?}");
    assert_eq!(before["messages"][0]["content"], "hello there");
    assert_eq!(get("ada", "/state_snapshot/s1").await.1["snapshot"]["counter"], 1);
    assert_eq!(get("bob", "/message_snapshot/s1").await.0, 404);
    front.run("ada", "s1", "r1").await;
    let (_, after) = get("ada", "/message_snapshot/s1").await;
    let all = ids(&after["messages"]);
    assert_eq!(all[..old.len()], old[..]);
    assert_eq!(all[old.len()], "m-r1");
    let run = server.seen().into_iter().find(|seen| seen.line() == "POST /run_sse").unwrap().json();
    assert_eq!(run["newMessage"]["parts"], json!([{"text": "What is the weather?"}]));
    assert!(run.get("stateDelta").is_none(), "{run}");
    // Artifacts of a session that was never run here are reached too.
    assert_eq!(get("bob", "/threads/s1/artifacts").await.1["error"]["code"], codes::UNKNOWN_THREAD);
}

/// The question of a graph that was run by somebody else.
const OPEN: &str = "ab1b7c0f1d4a4e7f9c0e5d1a2b3c4d5e";

/// A thread in which a node waits for an answer, until it gets one.
async fn waiting() -> Server {
    let answered = AtomicBool::new(false);
    Server::new(move |seen| {
        if !seen.line().contains(THREAD) {
            return missing();
        }
        if is_of(seen, "GET", "/state") {
            let interrupt = json!({"id": OPEN, "value": {"message": "Delete 3 files?"}});
            let interrupts = if answered.load(Ordering::Relaxed) { json!([]) } else { json!([interrupt]) };
            let next = if answered.load(Ordering::Relaxed) { json!([]) } else { json!(["approve"]) };
            let state = json!({
                "values": {"messages": [{"type": "human", "id": "h1", "content": "Tidy up."}], "stage": "x"},
                "next": next,
                "tasks": [{"id": "t", "name": "approve", "error": null, "interrupts": interrupts}],
                "checkpoint": {"checkpoint_id": "c"},
            });
            return json_answer("200 OK", &state);
        }
        if is_of(seen, "POST", "/runs/stream") {
            answered.store(true, Ordering::Relaxed);
            return events(b"event: metadata\r\ndata: {\"run_id\":\"r\",\"attempt\":1}\r\n\r\n");
        }
        if is_of(seen, "GET", "/runs") {
            return json_answer("200 OK", &json!([]));
        }
        json_answer("200 OK", &json!({"status": "success"}))
    })
    .await
}

#[tokio::test]
async fn a_question_that_was_asked_elsewhere_can_be_answered_here() {
    let answer =
        |status: &str| json!([{"interruptId": OPEN, "status": status, "payload": {"approved": true}}]);
    let body = |run: &str, resume: Value| {
        json!({"threadId": THREAD, "runId": run, "messages": [], "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "resume": resume})
    };
    let server = waiting().await;
    let past = Past { server, broken: Arc::default() };
    let front = Front::of(graph(&past)).await;
    let post = async |body: Value| {
        let text = front.ask(Method::POST, "/").json(&body).send().await.unwrap().text().await.unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let (status, open) = front.json(&format!("/threads/{THREAD}/pending")).await;
    assert_eq!((status, &open[0]["id"], &open[0]["message"]), (200, &json!(OPEN), &json!("Delete 3 files?")));
    assert_eq!(front.json("/threads/nothing/pending").await.0, 404);
    let asked = || past.server.seen().into_iter().filter(|seen| is_of(seen, "POST", "/runs/stream"));

    // It must be answered before anything else is asked, and nothing else is an answer.
    let told = front.run("default-user", THREAD, "r1").await;
    assert_eq!(told.last().unwrap()["code"], codes::INTERRUPT_UNANSWERED, "{told:#?}");
    let other = json!([{"interruptId": "other", "status": "resolved", "payload": 1}]);
    assert_eq!(post(body("r2", other)).await.last().unwrap()["code"], codes::UNKNOWN_INTERRUPT);
    assert_eq!(asked().count(), 0);
    assert_eq!(front.json(&format!("/threads/{THREAD}/pending")).await.1[0]["id"], OPEN);

    let told = post(body("r3", answer("resolved"))).await;
    assert_eq!(told.last().unwrap()["type"], "RUN_FINISHED", "{told:#?}");
    let sent: Vec<_> = asked().collect();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].json()["command"]["resume"], json!({OPEN: {"approved": true}}));
    // From now on the gateway knows.
    assert_eq!(front.json(&format!("/threads/{THREAD}/pending")).await, (200, json!([])));
    assert_eq!(post(body("r4", answer("resolved"))).await.last().unwrap()["code"], codes::UNKNOWN_INTERRUPT);
}

/// In the words of every protocol.
#[tokio::test]
async fn a_question_that_was_asked_elsewhere_is_answered_from_every_page() {
    let yes = json!({"approved": true});
    let part = json!({"type": "tool-interrupt", "toolCallId": format!("interrupt:{OPEN}"),
        "state": "output-available", "input": {"id": OPEN, "reason": "input_required"}, "output": yes});
    let pages = [
        (
            "/awp",
            json!({"threadId": THREAD, "runId": "r",
                "messages": [{"id": "x", "role": "tool", "toolCallId": OPEN, "content": yes.to_string()}]}),
        ),
        (
            "/api/chat?profile=5",
            json!({"id": THREAD, "trigger": "submit-message", "messages": [
                {"id": "h1", "role": "user", "parts": [{"type": "text", "text": "Tidy up."}]},
                {"id": "a", "role": "assistant", "parts": [part]}]}),
        ),
    ];
    for (path, body) in pages {
        let past = Past { server: waiting().await, broken: Arc::default() };
        let front = Front::of(graph(&past)).await;
        let answer = front.ask(Method::POST, path).json(&body).send().await.unwrap();
        let (status, told) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{path}: {told}");
        let sent: Vec<_> =
            past.server.seen().into_iter().filter(|seen| is_of(seen, "POST", "/runs/stream")).collect();
        assert_eq!(sent.len(), 1, "{path}: {told}");
        assert_eq!(sent[0].json()["command"]["resume"], json!({OPEN: yes}), "{path}: {told}");
    }
}

/// Where a graph stands does not tell whether it waits there or is on its way.
#[tokio::test]
async fn a_run_that_goes_on_elsewhere_is_no_question() {
    let state = json!({"values": {"messages": [{"type": "human", "id": "h1", "content": "Tidy up."}]},
        "next": ["sweep"], "tasks": [{"id": "t", "name": "sweep", "error": null, "interrupts": []}]});
    let server = Server::new(move |seen| match is_of(seen, "POST", "/runs/stream") {
        true => json_answer("409 Conflict", &json!({"detail": "Thread is already running a task."})),
        false => json_answer("200 OK", &state),
    })
    .await;
    let past = Past { server, broken: Arc::default() };
    let front = Front::of(graph(&past)).await;
    assert_eq!(front.json(&format!("/threads/{THREAD}/pending")).await, (200, json!([])));
    let told = front.run("default-user", THREAD, "r1").await;
    assert_eq!(told.last().unwrap()["code"], codes::THREAD_IS_LOCKED, "{told:#?}");
}
