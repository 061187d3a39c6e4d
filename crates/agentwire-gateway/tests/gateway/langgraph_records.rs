//! The LangGraph face: stopped and rolled back runs, changes from outside in the history, and the options of a run.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    langgraph::{body, counter, new_thread, ok, path, run, says, texts},
    support::*,
};

/// The path of a thread.
fn of(thread: &str, rest: &str) -> String {
    path(&format!("/threads/{thread}{rest}"))
}

async fn history(server: &Server, thread: &str) -> Vec<Value> {
    let all = ok(server.post(&of(thread, "/history"), &json!({"limit": 100}))).await;
    all.as_array().expect("a list").clone()
}

async fn cancel(server: &Server, thread: &str, run: &str, query: &str) {
    let cancel = server.ask(Method::POST, &of(thread, &format!("/runs/{run}/cancel?wait=1{query}")));
    assert_eq!(cancel.send().await.expect("a response").status(), 204);
}

#[tokio::test]
async fn a_stopped_run_leaves_an_interrupted_thread_that_can_go_on() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let thread = new_thread(&server).await;
    let mut live = Stream::of(server.post(&of(&thread, "/runs/stream"), &body(says("one"), json!({})))).await;
    live.take(1).await;
    cancel(&server, &thread, live.header("x-run-id"), "").await;
    live.rest().await;
    let state = ok(server.ask(Method::GET, &of(&thread, "/state"))).await;
    assert_eq!((&state["next"], &state["interrupts"]), (&json!(["agent"]), &json!([])));
    let task = &state["tasks"][0];
    assert_eq!((&task["name"], &task["error"]), (&json!("agent"), &json!("CancelledError()")));
    let shown = ok(server.ask(Method::GET, &of(&thread, ""))).await;
    assert_eq!(
        (&shown["status"], &shown["error"]["error"]),
        (&json!("interrupted"), &json!("UserInterrupt"))
    );
    let found = ok(server.post(&path("/threads/search"), &json!({"status": "interrupted"}))).await;
    assert_eq!(found.as_array().map(Vec::len), Some(1));
    puppet.allow(100);
    run(&server, &thread, says("two"), json!({})).await;
    let state = ok(server.ask(Method::GET, &of(&thread, "/state"))).await;
    assert_eq!((&state["next"], &state["tasks"]), (&json!([]), &json!([])));
    let shown = ok(server.ask(Method::GET, &of(&thread, ""))).await;
    assert_eq!((&shown["status"], &shown["error"]), (&json!("idle"), &Value::Null));
}

#[tokio::test]
async fn a_run_that_was_rolled_back_leaves_no_checkpoint() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let thread = new_thread(&server).await;
    puppet.allow(100);
    run(&server, &thread, says("zero"), json!({})).await;
    puppet.forbid();
    let before = history(&server, &thread).await;
    let mut live = Stream::of(server.post(&of(&thread, "/runs/stream"), &body(says("one"), json!({})))).await;
    live.take(1).await;
    cancel(&server, &thread, live.header("x-run-id"), "&action=rollback").await;
    live.rest().await;
    assert_eq!(history(&server, &thread).await, before);
    let shown = ok(server.ask(Method::GET, &of(&thread, ""))).await;
    assert_eq!((&shown["status"], &shown["error"]), (&json!("idle"), &Value::Null));
    assert_eq!(shown["metadata"], json!({"graph_id": "demo", "assistant_id": "demo"}), "nothing of ours");
}

#[tokio::test]
async fn a_run_that_ended_in_the_queue_leaves_no_checkpoint() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let thread = new_thread(&server).await;
    let mut live = Stream::of(server.post(&of(&thread, "/runs/stream"), &body(says("one"), json!({})))).await;
    live.take(1).await;
    let queued = ok(server.post(&of(&thread, "/runs"), &body(says("two"), json!({})))).await;
    assert_eq!(queued["status"], "pending");
    cancel(&server, &thread, queued["run_id"].as_str().expect("an id"), "").await;
    puppet.allow(100);
    live.rest().await;
    let all = history(&server, &thread).await;
    assert_eq!((all.len(), &all[0]["next"], texts(&all[0]["values"]).len()), (3, &json!([]), 2));
    assert_eq!(ok(server.ask(Method::GET, &of(&thread, ""))).await["status"], "idle");
    let stopped = ok(server.ask(Method::GET, &of(&thread, "/runs?status=interrupted"))).await;
    assert_eq!(stopped[0]["run_id"], queued["run_id"]);
}

#[tokio::test]
async fn changes_from_outside_stay_in_the_history() {
    let server = plan(counter()).on_memory().await;
    let thread = new_thread(&server).await;
    run(&server, &thread, json!({"messages": "one", "topic": "a", "gone": 1}), json!({})).await;
    let first = ok(server.ask(Method::GET, &of(&thread, "/state"))).await;
    let mut changes = Vec::new();
    for values in [
        json!({"topic": "b"}),
        json!({"topic": "c", "messages": [{"type": "human", "content": "noted", "id": "n"}]}),
    ] {
        let changed = ok(server.post(&of(&thread, "/state"), &json!({ "values": values }))).await;
        changes.push(changed["checkpoint_id"].clone());
    }
    // The id of a checkpoint stays when the thread changes otherwise.
    ok(server.ask(Method::PATCH, &of(&thread, "")).json(&json!({"metadata": {"title": "mine"}}))).await;
    let before = history(&server, &thread).await;
    let ids = |list: &[Value]| -> Vec<Value> { list.iter().map(|it| it["checkpoint_id"].clone()).collect() };
    assert_eq!(ids(&before[..3]), [&changes[1], &changes[0], &first["checkpoint_id"]].map(Clone::clone));
    // A branch from an older checkpoint, and a turn behind it.
    let from = json!({"checkpoint_id": first["checkpoint_id"]});
    run(&server, &thread, says("two"), from).await;
    run(&server, &thread, says("three"), json!({})).await;
    let all = history(&server, &thread).await;
    assert_eq!(all[all.len() - before.len()..], before, "the older part is the same");
    let branch = &all[all.len() - before.len() - 1];
    assert_eq!(branch["parent_checkpoint_id"], first["checkpoint_id"]);
    // A run may begin at each of them.
    let from = json!({"checkpoint_id": changes[1]});
    let again = run(&server, &thread, says("four"), from).await;
    let values = crate::langgraph::last_values(&again);
    assert_eq!((&values["topic"], &*texts(&values)[2]), (&json!("c"), "noted"));
    let from = json!({"checkpoint_id": changes[0]});
    let again = run(&server, &thread, says("five"), from).await;
    assert_eq!(crate::langgraph::last_values(&again)["topic"], "b");
    let parents: Vec<_> =
        history(&server, &thread).await.iter().map(|it| it["parent_checkpoint_id"].clone()).collect();
    assert!(changes.iter().all(|id| parents.contains(id)), "the branches begin at the changes: {parents:?}");
    let shown = ok(server.ask(Method::GET, &of(&thread, ""))).await;
    assert_eq!(shown["metadata"]["title"], "mine");
    assert_eq!(shown["metadata"].as_object().map(serde_json::Map::len), Some(3), "{}", shown["metadata"]);
}

#[tokio::test]
async fn a_feature_that_is_not_there_is_named() {
    let server = plan(counter()).on_memory().await;
    let thread = new_thread(&server).await;
    for (method, rest, status, named) in [
        (Method::POST, "/runs/crons", 404, "Crons"),
        (Method::POST, "/runs/crons/search", 404, "Crons"),
        (Method::POST, &*format!("/threads/{thread}/runs/crons"), 405, "Crons"),
        (Method::PUT, "/store/items", 404, "The store"),
        (Method::POST, "/runs/batch", 404, "Several runs"),
        (Method::POST, "/threads/prune", 405, "Pruning"),
        (Method::POST, &*format!("/threads/{thread}/copy"), 404, "Copies"),
        (Method::GET, &*format!("/threads/{thread}/stream"), 404, "The stream"),
        (Method::DELETE, &*format!("/threads/{thread}/runs/x"), 405, "Deletion"),
        (Method::POST, "/assistants", 404, "Changes"),
        (Method::DELETE, "/assistants/demo", 405, "Changes"),
        (Method::POST, "/assistants/demo/versions", 404, "Changes"),
        (Method::GET, "/nothing", 404, "No such route"),
    ] {
        let (found, body) = answer(server.ask(method, &path(rest))).await;
        assert_eq!(found.as_u16(), status, "{rest}");
        assert!(body["detail"].as_str().is_some_and(|text| text.starts_with(named)), "{rest}: {body}");
    }
}

#[tokio::test]
async fn a_run_shows_the_options_of_its_request() {
    let server = plan(counter()).on_memory().await;
    let thread = new_thread(&server).await;
    let options = json!({"multitask_strategy": "interrupt", "metadata": {"mine": 1}, "context": {"who": "ada"},
        "config": {"tags": ["x"], "configurable": {"k": 2}}, "stream_mode": "values", "stream_resumable": true,
        "stream_subgraphs": true, "durability": "exit"});
    let started = ok(server.post(&of(&thread, "/runs"), &body(says("one"), options))).await;
    let id = started["run_id"].as_str().expect("an id");
    ok(server.ask(Method::GET, &of(&thread, &format!("/runs/{id}/join")))).await;
    let stored = ok(server.ask(Method::GET, &of(&thread, &format!("/runs/{id}")))).await;
    let listed = ok(server.ask(Method::GET, &of(&thread, "/runs"))).await[0].clone();
    for shown in [&started, &stored, &listed] {
        assert_eq!(shown["multitask_strategy"], "interrupt");
        assert_eq!(shown["metadata"], json!({"mine": 1, "graph_id": "demo", "assistant_id": "demo"}));
        let kwargs = &shown["kwargs"];
        assert_eq!((&kwargs["input"], &kwargs["context"]), (&says("one"), &json!({"who": "ada"})));
        assert_eq!(
            (&kwargs["config"]["tags"], &kwargs["config"]["configurable"]["k"]),
            (&json!(["x"]), &json!(2))
        );
        assert_eq!((&kwargs["stream_mode"], &kwargs["durability"]), (&json!(["values"]), &json!("exit")));
        assert_eq!((&kwargs["resumable"], &kwargs["subgraphs"]), (&json!(true), &json!(true)));
    }
    let some = ok(server.ask(Method::GET, &of(&thread, "/runs?select=run_id&select=status"))).await;
    assert_eq!(some, json!([{"run_id": id, "status": "success"}]));
    // A run of another protocol.
    let input = json!({"threadId": thread, "runId": "r", "messages": [{"id": "u", "role": "user", "content": "two"}]});
    Stream::of(server.post("/", &input)).await.rest().await;
    let other = ok(server.ask(Method::GET, &of(&thread, "/runs/r"))).await;
    assert_eq!((&other["multitask_strategy"], &other["status"]), (&json!("enqueue"), &json!("success")));
    assert_eq!(other["kwargs"]["input"]["messages"][0]["content"], "two");
}
