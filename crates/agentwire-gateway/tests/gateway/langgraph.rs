//! The LangGraph face: runs, joins, threads, states and checkpoints, and the shapes of refusals.

use std::sync::Arc;

use agentwire_core::event::Event;
use agentwire_gateway::{
    agent::Demo,
    settings::{AgentSettings, History},
};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::*;

pub(crate) async fn ok(request: RequestBuilder) -> Value {
    let (status, body) = answer(request).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

pub(crate) fn path(rest: &str) -> String {
    format!("/langgraph{rest}")
}

pub(crate) fn says(text: &str) -> Value {
    json!({"messages": [{"type": "human", "content": text}]})
}

/// A run request for the agent `demo`.
pub(crate) fn body(input: Value, more: Value) -> Value {
    let mut body = json!({"assistant_id": "demo", "input": input, "stream_mode": ["messages-tuple", "values", "updates", "custom"]});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

pub(crate) async fn new_thread(server: &Server) -> String {
    let thread = ok(server.post(&path("/threads"), &json!({}))).await;
    thread["thread_id"].as_str().expect("an id").to_owned()
}

pub(crate) async fn run(server: &Server, thread: &str, input: Value, more: Value) -> Vec<Frame> {
    let mut stream =
        Stream::of(server.post(&path(&format!("/threads/{thread}/runs/stream")), &body(input, more))).await;
    assert_eq!(stream.status(), 200);
    stream.rest().await
}

pub(crate) fn named<'f>(frames: &'f [Frame], name: &str) -> Vec<&'f Frame> {
    frames.iter().filter(|frame| frame.name.as_deref() == Some(name)).collect()
}

pub(crate) fn texts(values: &Value) -> Vec<String> {
    let messages = values["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["content"].as_str().expect("a text").to_owned()).collect()
}

pub(crate) fn last_values(frames: &[Frame]) -> Value {
    named(frames, "values").last().expect("values").json()
}

pub(crate) fn counter() -> Arc<Puppet> {
    Puppet::eager(|input| talk(input, 2))
}

#[tokio::test]
async fn a_conversation_has_whole_values_in_every_run() {
    for backend in Backend::each().await {
        let server = plan(counter()).on(&backend.store).await;
        let thread = new_thread(&server).await;
        let first = run(&server, &thread, says("one"), json!({})).await;
        assert_eq!(first[0].name.as_deref(), Some("metadata"));
        assert_eq!(named(&first, "values")[0].json()["messages"].as_array().map(Vec::len), Some(1));
        assert!(!named(&first, "messages").is_empty());
        let request =
            server.post(&path(&format!("/threads/{thread}/runs/stream")), &body(says("two"), json!({})));
        let mut second = Stream::of(request).await;
        let run_id = second.header("x-run-id").to_owned();
        assert_eq!(second.header("content-location"), format!("/threads/{thread}/runs/{run_id}"));
        assert_eq!(second.header("location"), format!("/threads/{thread}/runs/{run_id}/stream"));
        let second = second.rest().await;
        let starts = named(&second, "values")[0].json();
        assert_eq!(
            (starts["messages"].as_array().map(Vec::len), &texts(&starts)[0], &texts(&starts)[2]),
            (Some(3), &"one".to_owned(), &"two".to_owned())
        );
        assert_eq!(last_values(&second)["messages"].as_array().map(Vec::len), Some(4));
        // A reader that joins, from the start or in the middle, has whole values too.
        let join = path(&format!("/threads/{thread}/runs/{run_id}/stream"));
        let again =
            Stream::of(server.ask(Method::GET, &join).header("last-event-id", "-1")).await.rest().await;
        assert_eq!(last_values(&again), last_values(&second));
        let middle = second[second.len() / 2].id.clone().expect("an id");
        let rest =
            Stream::of(server.ask(Method::GET, &join).header("last-event-id", middle)).await.rest().await;
        let raw = |frames: &[Frame]| frames.iter().map(|frame| frame.raw.clone()).collect::<Vec<_>>();
        assert_eq!(raw(&rest), raw(&second[second.len() / 2 + 1..]), "byte for byte");
        let ended = second.last().and_then(|last| last.id.clone()).expect("an id");
        let nothing = Stream::of(server.ask(Method::GET, &join).header("last-event-id", ended)).await;
        assert_eq!((nothing.status(), nothing.bytes().await), (200, Vec::new()));
        let only =
            Stream::of(server.ask(Method::GET, &format!("{join}?stream_mode=values"))).await.rest().await;
        assert!(named(&only, "messages").is_empty() && !named(&only, "values").is_empty());
    }
}

#[tokio::test]
async fn the_fetch_transport_needs_one_route() {
    let server = plan(counter()).on_memory().await;
    let post = |text: &str| {
        let body = json!({"input": says(text), "config": {"configurable": {"thread_id": "page"}}});
        server.post(&path("/stream/demo"), &body)
    };
    let first = Stream::of(post("one")).await.rest().await;
    assert_eq!(last_values(&first)["messages"].as_array().map(Vec::len), Some(2));
    let second = Stream::of(post("two")).await.rest().await;
    assert_eq!(texts(&last_values(&second)).len(), 4, "the thread goes on");
    assert_eq!(answer(server.post(&path("/stream/nobody"), &json!({}))).await.0, 422);
}

#[tokio::test]
async fn questions_are_answered_by_command() {
    let server = plan(Puppet::eager(asker_script)).on_memory().await;
    let thread = new_thread(&server).await;
    let asked = run(&server, &thread, says(r#"{"ask":[{"id":"q"},{"id":"p"}]}"#), json!({})).await;
    let interrupts = last_values(&asked)["__interrupt__"].clone();
    assert_eq!((&interrupts[0]["id"], interrupts.as_array().map(Vec::len)), (&json!("q"), Some(2)));
    let state = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}/state")))).await;
    assert_eq!(state["next"], json!(["agent"]));
    assert_eq!(state["tasks"][0]["interrupts"][1]["id"], "p");
    let shown = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}")))).await;
    assert_eq!(shown["status"], "interrupted");
    let runs = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}/runs")))).await;
    assert_eq!(runs[0]["status"], "success", "only the thread is interrupted");
    let found = ok(server.post(&path("/threads/search"), &json!({"status": "interrupted"}))).await;
    assert_eq!(found.as_array().map(Vec::len), Some(1));
    let post =
        |more: Value| server.post(&path(&format!("/threads/{thread}/runs/stream")), &body(Value::Null, more));
    // One answer does not do for two questions.
    let (status, refused) = answer(post(json!({"command": {"resume": {"q": true}}}))).await;
    assert!(status.is_client_error() && refused["detail"].is_string(), "{status} {refused}");
    let (status, refused) =
        answer(server.post(&path(&format!("/threads/{thread}/runs/stream")), &body(says("more"), json!({}))))
            .await;
    assert_eq!(status, 409, "{refused}");
    for (command, part) in
        [(json!({"goto": "x", "resume": 1}), "goto"), (json!({"update": {"a": 1}}), "update")]
    {
        let (status, refused) = answer(post(json!({ "command": command }))).await;
        assert_eq!(status, 422);
        assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains(part)), "{refused}");
    }
    let done = Stream::of(post(json!({"command": {"resume": {"q": {"yes": 1}, "p": {"yes": 2}}}})))
        .await
        .rest()
        .await;
    assert_eq!(last_values(&done).get("__interrupt__"), None);
    let state = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}/state")))).await;
    assert_eq!((&state["next"], &state["tasks"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn history_is_a_chain_and_a_run_may_begin_at_any_of_it() {
    let server = plan(Puppet::eager(|input| {
        let said = input.messages.last().map(|last| format!("{:?}", last.body)).unwrap_or_default();
        let id = format!("a{}-{}", input.messages.len(), input.run);
        let events: Vec<Event> = vec![
            start(&id),
            delta(&id, &format!("{} of {}", input.messages.len(), said.len())),
            end(&id),
            finished(input),
        ];
        events
    }))
    .on_memory()
    .await;
    let thread = new_thread(&server).await;
    let at = |rest: &str| path(&format!("/threads/{thread}{rest}"));
    assert_eq!(ok(server.ask(Method::GET, &at("/state"))).await["checkpoint"], Value::Null);
    assert_eq!(ok(server.post(&at("/history"), &json!({"limit": 5}))).await, json!([]));
    run(&server, &thread, says("one"), json!({})).await;
    run(&server, &thread, says("two"), json!({})).await;
    let history = ok(server.post(&at("/history"), &json!({"limit": 100}))).await;
    let history = history.as_array().expect("a list");
    assert_eq!(history.len(), 6, "before the input, with it, and the end, for each run");
    for pair in history.windows(2) {
        assert_eq!(pair[0]["parent_checkpoint"]["checkpoint_id"], pair[1]["checkpoint"]["checkpoint_id"]);
        assert!(pair[0]["checkpoint_id"].as_str() > pair[1]["checkpoint_id"].as_str(), "ids are in order");
    }
    assert_eq!(history[5]["parent_checkpoint"], Value::Null);
    assert_eq!(history[0], ok(server.ask(Method::GET, &at("/state"))).await);
    assert_eq!(
        (&history[0]["next"], &history[1]["next"], &history[2]["next"]),
        (&json!([]), &json!(["agent"]), &json!(["__start__"]))
    );
    let id = |checkpoint: &Value| checkpoint["checkpoint_id"].as_str().expect("an id").to_owned();
    assert_eq!(ok(server.ask(Method::GET, &at(&format!("/state/{}", id(&history[3]))))).await, history[3]);
    assert_eq!(
        ok(server.post(&at("/state/checkpoint"), &json!({"checkpoint": {"checkpoint_id": id(&history[3])}})))
            .await,
        history[3]
    );
    let older =
        ok(server.ask(Method::GET, &at(&format!("/history?limit=2&before={}", id(&history[3]))))).await;
    assert_eq!(older.as_array().map(Vec::as_slice), Some(&history[4..6]));
    // The newest checkpoint is where the next run begins anyway.
    let next = run(
        &server,
        &thread,
        says("three"),
        json!({"checkpoint": {"checkpoint_id": id(&history[0]), "checkpoint_ns": ""}}),
    )
    .await;
    assert_eq!(texts(&last_values(&next)).len(), 6);
    // An edit of the second message, and of the first.
    let edited =
        run(&server, &thread, says("two again"), json!({"checkpoint": {"checkpoint_id": id(&history[2])}}))
            .await;
    assert_eq!(texts(&last_values(&edited))[2], "two again");
    assert_eq!(texts(&last_values(&edited)).len(), 4);
    let anew = run(&server, &thread, says("first again"), json!({"checkpoint_id": id(&history[5])})).await;
    assert_eq!(texts(&last_values(&anew)).len(), 2, "{:?}", texts(&last_values(&anew)));
    // A regenerated answer: no input.
    let again = run(&server, &thread, Value::Null, json!({"checkpoint_id": id(&history[4])})).await;
    let again_texts = texts(&last_values(&again));
    assert_eq!((again_texts.len(), &*again_texts[0]), (2, "one"), "of a variant that is not the last one");
    let all = ok(server.post(&at("/history"), &json!({"limit": 100}))).await;
    let children = |parent: &str| {
        all.as_array().expect("a list").iter().filter(|it| it["parent_checkpoint_id"] == parent).count()
    };
    assert_eq!(children(&id(&history[3])), 2, "two variants of the second message");
    assert_eq!(children(&id(&history[5])), 2, "two variants of the first message");
    let (status, refused) =
        answer(server.post(&at("/runs/stream"), &body(says("x"), json!({"checkpoint_id": "nothing"})))).await;
    assert_eq!((status.as_u16(), refused["detail"].is_string()), (404, true));
}

#[tokio::test]
async fn the_state_is_changed_from_outside() {
    let server = plan(counter()).on_memory().await;
    let thread = new_thread(&server).await;
    run(&server, &thread, json!({"messages": "one", "topic": "a"}), json!({})).await;
    let at = |rest: &str| path(&format!("/threads/{thread}{rest}"));
    let update = json!({"values": {"topic": "b", "a/b~c": [1], "messages": [{"type": "human", "content": "noted", "id": "n"}]}, "as_node": "agent"});
    let changed = ok(server.post(&at("/state"), &update)).await;
    let state = ok(server.ask(Method::GET, &at("/state"))).await;
    assert_eq!(state["checkpoint"]["checkpoint_id"], changed["checkpoint"]["checkpoint_id"]);
    assert_eq!((&state["values"]["topic"], &state["values"]["a/b~c"]), (&json!("b"), &json!([1])));
    assert_eq!(texts(&state["values"]).last().map(String::as_str), Some("noted"));
    assert_eq!(state["metadata"]["source"], "update");
    let next = run(&server, &thread, says("two"), json!({})).await;
    assert_eq!(last_values(&next)["topic"], "b");
    assert_eq!(texts(&last_values(&next)).len(), 5);
    for bad in [
        json!({"values": 1}),
        json!([]),
        json!({"values": {"messages": [1]}}),
        json!({"values": {}, "checkpoint": 1}),
    ] {
        assert_eq!(answer(server.post(&at("/state"), &bad)).await.0, 422, "{bad}");
    }
}

#[tokio::test]
async fn a_busy_thread_obeys_the_strategy_of_the_request() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let thread = new_thread(&server).await;
    let stream = path(&format!("/threads/{thread}/runs/stream"));
    puppet.allow(100);
    run(&server, &thread, says("zero"), json!({})).await;
    puppet.forbid();
    let start = |text: &str, strategy: &str| {
        server.post(&stream, &body(says(text), json!({"multitask_strategy": strategy})))
    };
    let mut one = Stream::of(start("one", "reject")).await;
    one.take(1).await;
    let (status, refused) = answer(start("two", "reject")).await;
    assert_eq!((status.as_u16(), refused["detail"].is_string()), (409, true));
    let shown = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}")))).await;
    assert_eq!(shown["status"], "busy");
    // The run is undone, and another one takes its place.
    let mut two = Stream::of(start("two", "rollback")).await;
    one.rest().await;
    let first = two.take(2).await;
    assert_eq!(texts(&first[1].json()).last().map(String::as_str), Some("two"));
    assert_eq!(texts(&first[1].json()).len(), 3, "without the run that was undone");
    let mut three = Stream::of(start("three", "interrupt")).await;
    two.rest().await;
    let background =
        ok(server.post(&path(&format!("/threads/{thread}/runs")), &body(says("four"), json!({})))).await;
    assert_eq!(background["status"], "pending");
    puppet.allow(1000);
    three.rest().await;
    let run_id = background["run_id"].as_str().expect("an id");
    let values = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}/runs/{run_id}/join")))).await;
    assert_eq!(texts(&values).iter().rev().nth(1).map(String::as_str), Some("four"));
    let runs = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}/runs?limit=2")))).await;
    assert_eq!(
        (&runs[0]["run_id"], &runs[0]["status"], runs.as_array().map(Vec::len)),
        (&json!(run_id), &json!("success"), Some(2))
    );
    let stopped =
        ok(server.ask(Method::GET, &path(&format!("/threads/{thread}/runs?status=interrupted")))).await;
    assert_eq!(stopped.as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn runs_are_cancelled_by_request_and_by_leaving() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let thread = new_thread(&server).await;
    let stream = path(&format!("/threads/{thread}/runs/stream"));
    let mut live = Stream::of(server.post(&stream, &body(says("one"), json!({})))).await;
    live.take(1).await;
    let run_id = live.header("x-run-id").to_owned();
    let cancel = |query: &str| {
        server.ask(Method::POST, &path(&format!("/threads/{thread}/runs/{run_id}/cancel?{query}")))
    };
    assert_eq!(answer(cancel("action=fly")).await.0, 422);
    assert_eq!(cancel("wait=1&action=interrupt").send().await.expect("a response").status(), 204);
    live.rest().await;
    assert_eq!(server.status(&run_id).await, "stopped");
    assert_eq!(cancel("wait=0").send().await.expect("a response").status(), 202, "idempotent");
    let mut left =
        Stream::of(server.post(&stream, &body(says("two"), json!({"on_disconnect": "cancel"})))).await;
    left.take(1).await;
    let run_id = left.header("x-run-id").to_owned();
    drop(left);
    wait_until("the end of the run that nobody reads", async || server.status(&run_id).await == "stopped")
        .await;
    // An undone run leaves nothing.
    let mut undone = Stream::of(server.post(&stream, &body(says("three"), json!({})))).await;
    undone.take(1).await;
    let before = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}")))).await["values"].clone();
    let run_id = undone.header("x-run-id").to_owned();
    let cancel = server
        .ask(Method::POST, &path(&format!("/threads/{thread}/runs/{run_id}/cancel?wait=1&action=rollback")));
    assert_eq!(cancel.send().await.expect("a response").status(), 204);
    undone.rest().await;
    let after = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}")))).await["values"].clone();
    assert_eq!(texts(&after).len() + 1, texts(&before).len(), "without the input of the run");
}

#[tokio::test]
async fn stateless_runs_leave_no_thread() {
    let server = plan(counter()).on_memory().await;
    let values = ok(server.post(&path("/runs/wait"), &body(says("one"), json!({})))).await;
    assert_eq!(texts(&values).len(), 2);
    let mut stream = Stream::of(server.post(&path("/runs/stream"), &body(says("one"), json!({})))).await;
    let place = stream.header("content-location").to_owned();
    assert!(place.starts_with("/runs/"), "{place}");
    let frames = stream.rest().await;
    let again = Stream::of(server.ask(Method::GET, &path(&format!("{place}/stream")))).await.rest().await;
    assert_eq!(last_values(&again), last_values(&frames));
    wait_until("no thread", async || ok(server.post(&path("/threads/count"), &json!({}))).await == json!(0))
        .await;
    let kept = ok(server.post(&path("/runs"), &body(says("one"), json!({"on_completion": "keep"})))).await;
    assert_eq!(kept["status"].as_str().map(str::is_empty), Some(false));
    assert_eq!(ok(server.post(&path("/threads/count"), &json!({}))).await, json!(1));
}

#[tokio::test]
async fn wait_has_the_questions_and_the_error() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let thread = new_thread(&server).await;
    let wait = |text: &str| {
        server.post(&path(&format!("/threads/{thread}/runs/wait")), &body(says(text), json!({})))
    };
    let failed = ok(wait("fail")).await;
    assert!(
        failed["__error__"]["message"].as_str().is_some_and(|text| text.contains("demo agent failed")),
        "{failed}"
    );
    let state = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}/state")))).await;
    assert!(
        state["tasks"][0]["error"].as_str().is_some_and(|text| text.contains("demo agent failed")),
        "{state}"
    );
    let asked = ok(wait("approve")).await;
    assert_eq!(asked["__interrupt__"].as_array().map(Vec::len), Some(1), "{asked}");
}

#[tokio::test]
async fn threads_are_created_searched_changed_and_deleted() {
    let server = plan(counter()).and("other", AgentSettings::default(), counter()).on_memory().await;
    let create = |body: Value| server.post(&path("/threads"), &body);
    let made = ok(create(json!({"thread_id": "mine", "metadata": {"user": "ada"}}))).await;
    assert_eq!(
        (&made["thread_id"], &made["status"], &made["values"]),
        (&json!("mine"), &json!("idle"), &Value::Null)
    );
    assert_eq!(answer(create(json!({"thread_id": "mine"}))).await.0, 409);
    assert_eq!(
        ok(create(json!({"thread_id": "mine", "if_exists": "do_nothing"}))).await["metadata"]["user"],
        "ada"
    );
    // The first run decides which assistant has the thread.
    let stream = |thread: &str, assistant: &str, more: Value| {
        let mut body = body(says("hi"), more);
        body["assistant_id"] = assistant.into();
        server.post(&path(&format!("/threads/{thread}/runs/stream")), &body)
    };
    Stream::of(stream("mine", "other", json!({}))).await.rest().await;
    let mine = ok(server.ask(Method::GET, &path("/threads/mine"))).await;
    assert_eq!(mine["metadata"], json!({"user": "ada", "graph_id": "other", "assistant_id": "other"}));
    assert_eq!(texts(&mine["values"]).len(), 2);
    assert_eq!(answer(stream("mine", "demo", json!({}))).await.0, 409, "it has runs of another one");
    assert_eq!(answer(stream("unknown", "demo", json!({}))).await.0, 404);
    Stream::of(stream("fresh", "demo", json!({"if_not_exists": "create"}))).await.rest().await;
    let search = |body: Value| server.post(&path("/threads/search"), &body);
    let ids = |list: &Value| -> Vec<String> {
        list.as_array()
            .expect("a list")
            .iter()
            .map(|it| it["thread_id"].as_str().expect("an id").to_owned())
            .collect()
    };
    assert_eq!(ids(&ok(search(json!({}))).await), ["fresh", "mine"], "newest first, of all assistants");
    assert_eq!(
        ids(&ok(search(json!({"sort_by": "thread_id", "sort_order": "desc"}))).await),
        ["mine", "fresh"]
    );
    assert_eq!(ids(&ok(search(json!({"metadata": {"graph_id": "other"}}))).await), ["mine"]);
    assert_eq!(ids(&ok(search(json!({"metadata": {"user": "bob"}}))).await), [] as [&str; 0]);
    assert_eq!(ids(&ok(search(json!({"ids": ["fresh"], "status": "idle"}))).await), ["fresh"]);
    assert_eq!(ids(&ok(search(json!({"limit": 1, "offset": 1}))).await), ["mine"]);
    assert_eq!(
        ok(search(json!({"ids": ["mine"], "select": ["thread_id"]}))).await,
        json!([{"thread_id": "mine"}])
    );
    assert_eq!(
        ok(server.post(&path("/threads/count"), &json!({"metadata": {"graph_id": "demo"}}))).await,
        json!(1)
    );
    let patch =
        server.ask(Method::PATCH, &path("/threads/mine")).json(&json!({"metadata": {"title": "a name"}}));
    assert_eq!(
        ok(patch).await["metadata"],
        json!({"user": "ada", "title": "a name", "graph_id": "other", "assistant_id": "other"})
    );
    let delete = || server.ask(Method::DELETE, &path("/threads/mine"));
    assert_eq!(delete().send().await.expect("a response").status(), 204);
    assert_eq!(answer(delete()).await.0, 404);
    for bad in [
        json!({"metadata": 1}),
        json!({"limit": "x"}),
        json!({"status": "x"}),
        json!({"sort_by": "x"}),
        json!({"ids": 1}),
        json!({"extract": {"a": "b"}}),
        json!([]),
    ] {
        assert_eq!(answer(search(bad.clone())).await.0, 422, "{bad}");
    }
}

#[tokio::test]
async fn assistants_are_the_agents() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .and("other", AgentSettings::default(), counter())
        .on_memory()
        .await;
    let search = ok(server.post(&path("/assistants/search"), &json!({"limit": 10}))).await;
    assert_eq!((&search[0]["assistant_id"], &search[1]["graph_id"]), (&json!("demo"), &json!("other")));
    assert_eq!(
        ok(server.post(&path("/assistants/search"), &json!({"graph_id": "other"})))
            .await
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(ok(server.post(&path("/assistants/count"), &json!({}))).await, json!(2));
    for part in ["", "/schemas", "/graph", "/subgraphs"] {
        ok(server.ask(Method::GET, &path(&format!("/assistants/demo{part}")))).await;
        assert_eq!(answer(server.ask(Method::GET, &path(&format!("/assistants/nobody{part}")))).await.0, 404);
    }
    assert_eq!(ok(server.ask(Method::GET, &path("/ok"))).await, json!({"ok": true}));
    assert!(ok(server.ask(Method::GET, &path("/info"))).await["version"].is_string());
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let server = plan(counter()).set(|settings| settings.faces.langgraph = false).on_memory().await;
    for rest in ["/ok", "/info", "/threads/t/state"] {
        assert_eq!(server.json(&path(rest)).await.0, 404, "{rest}");
    }
    let document = server.json("/openapi.json").await.1.to_string();
    assert!(!document.contains("/langgraph"));
}

#[tokio::test]
async fn refusals_have_the_shape_of_langgraph_server() {
    let server = plan(counter()).on_memory().await;
    let thread = new_thread(&server).await;
    let post = |rest: &str, body: Value| server.post(&path(rest), &body);
    let runs = format!("/threads/{thread}/runs/stream");
    for (request, status) in [
        (post(&runs, json!({"input": {}})), 422),
        (post(&runs, body(says("x"), json!({"assistant_id": "nobody"}))), 422),
        (post(&runs, body(says("x"), json!({"stream_mode": ["bogus"]}))), 422),
        (post(&runs, body(json!({"messages": [{"type": "nothing"}]}), json!({}))), 422),
        (post(&runs, body(Value::Null, json!({}))), 422),
        (post(&runs, json!([])), 422),
        (server.ask(Method::POST, &path(&runs)).header("content-type", "application/json").body("{"), 422),
        (server.ask(Method::POST, &path(&runs)).body("{}"), 415),
        (server.ask(Method::POST, &path(&runs)), 422),
        (post("/threads/unknown/runs/stream", body(says("x"), json!({}))), 404),
        (post("/threads/unknown/runs/wait", body(says("x"), json!({}))), 404),
        (post("/threads/unknown/history", json!({})), 404),
        (server.ask(Method::GET, &path("/threads/unknown")), 404),
        (server.ask(Method::GET, &path("/threads/unknown/state")), 404),
        (server.ask(Method::GET, &path(&format!("/threads/{thread}/runs/unknown"))), 404),
        (server.ask(Method::GET, &path(&format!("/threads/{thread}/runs/unknown/stream"))), 404),
        (server.ask(Method::GET, &path(&format!("/threads/{thread}/runs/unknown/join"))), 404),
        (server.ask(Method::POST, &path(&format!("/threads/{thread}/runs/unknown/cancel"))), 404),
        (server.ask(Method::GET, &path(&format!("/threads/{thread}/state/unknown"))), 404),
        (server.ask(Method::GET, &path("/runs/unknown/stream")), 404),
        (server.ask(Method::GET, &path("/crons")), 404),
        (server.ask(Method::PUT, &path("/threads")), 405),
        (post("/threads", json!({"supersteps": [{}]})), 422),
        (post("/threads", json!({"thread_id": "a\nb"})), 422),
        (post("/threads", json!({"metadata": {"graph_id": "nobody"}})), 422),
    ] {
        let (found, body) = answer(request).await;
        assert_eq!((found.as_u16(), body["detail"].is_string()), (status, true), "{body}");
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body}");
    }
}

#[tokio::test]
async fn nobody_reaches_the_threads_of_another() {
    let issuer = Issuer::new();
    let server = plan(counter())
        .and("other", AgentSettings::default(), counter())
        .set(|settings| settings.auth = crate::auth::required(vec![issuer.settings.clone()]))
        .on_memory()
        .await;
    let ada = issuer.token("ada", "*");
    let create = server.post(&path("/threads"), &json!({"thread_id": "t"})).bearer_auth(&ada);
    ok(create).await;
    let start = |token: &str| {
        server.post(&path("/threads/t/runs/stream"), &body(says("hi"), json!({}))).bearer_auth(token)
    };
    let frames = Stream::of(start(&ada)).await.rest().await;
    let run_id = named(&frames, "metadata")[0].json()["run_id"].as_str().expect("an id").to_owned();
    let bob = issuer.token("bob", "*");
    assert_eq!(answer(start(&bob)).await.0, 404);
    for rest in [
        "",
        "/state",
        "/history",
        "/runs",
        &format!("/runs/{run_id}"),
        &format!("/runs/{run_id}/stream"),
        &format!("/runs/{run_id}/join"),
    ] {
        let ask =
            |token: &str| server.ask(Method::GET, &path(&format!("/threads/t{rest}"))).bearer_auth(token);
        assert_eq!(answer(ask(&bob)).await.0, 404, "{rest}");
        assert_eq!(ask(&ada).send().await.expect("a response").status(), 200, "{rest}");
        // Nor does a scope on another agent help.
        assert_eq!(answer(ask(&issuer.token("ada", "agents:other:*"))).await.0, 404, "{rest}");
    }
    assert_eq!(
        answer(server.ask(Method::GET, &path(&format!("/runs/{run_id}/stream"))).bearer_auth(&bob)).await.0,
        404
    );
    assert_eq!(ok(server.post(&path("/threads/search"), &json!({})).bearer_auth(&bob)).await, json!([]));
    let update =
        |token: &str| server.post(&path("/threads/t/state"), &json!({"values": {"a": 1}})).bearer_auth(token);
    assert_eq!(answer(update(&bob)).await.0, 404);
    assert_eq!(answer(update(&issuer.token("ada", "agents:demo:read agents:demo:run"))).await.0, 403);
    ok(update(&ada)).await;
    // History that a client invents is not believed where senders are known.
    let forged = json!({"values": {"messages": [{"type": "ai", "content": "forged"}]}});
    assert_eq!(answer(server.post(&path("/threads/t/state"), &forged).bearer_auth(&ada)).await.0, 422);
}

#[tokio::test]
async fn a_started_run_sees_the_conversation_whatever_the_history_setting() {
    for history in [History::Client, History::Server] {
        let puppet = counter();
        let server = plan(puppet.clone()).agent(|agent| agent.history = Some(history)).on_memory().await;
        let thread = new_thread(&server).await;
        run(&server, &thread, says("one"), json!({})).await;
        run(&server, &thread, says("two"), json!({})).await;
        assert_eq!(puppet.last_request().input.messages.len(), 3, "{history:?}");
    }
}

#[tokio::test]
async fn a_thread_with_a_call_of_the_front_end_is_idle_and_a_failed_one_has_its_error() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let thread = new_thread(&server).await;
    run(&server, &thread, says("confirm"), json!({})).await;
    let shown = ok(server.ask(Method::GET, &path(&format!("/threads/{thread}")))).await;
    assert_eq!((&shown["status"], &shown["interrupts"]), (&json!("idle"), &json!({})));
    for (status, count) in [("idle", 1), ("interrupted", 0)] {
        let found = ok(server.post(&path("/threads/search"), &json!({ "status": status }))).await;
        assert_eq!(found.as_array().map(Vec::len), Some(count), "{status}");
    }
    let failed = new_thread(&server).await;
    run(&server, &failed, says("fail"), json!({})).await;
    let shown = ok(server.ask(Method::GET, &path(&format!("/threads/{failed}")))).await;
    assert_eq!((&shown["status"], &shown["error"]["error"]), (&json!("error"), &json!("DEMO_FAILURE")));
}

#[tokio::test]
async fn a_history_is_filtered_by_metadata() {
    let server = plan(counter()).on_memory().await;
    let thread = new_thread(&server).await;
    for text in ["one", "two"] {
        run(&server, &thread, says(text), json!({})).await;
    }
    let history = |body: Value| server.post(&path(&format!("/threads/{thread}/history")), &body);
    let all = ok(history(json!({}))).await;
    let inputs = ok(history(json!({"metadata": {"source": "input"}}))).await;
    let is_input = |shown: &&Value| shown["metadata"]["source"] == "input";
    let expected: Vec<&Value> = all.as_array().expect("a list").iter().filter(is_input).collect();
    assert_eq!(
        (inputs.as_array().expect("a list").iter().collect::<Vec<_>>(), expected.len()),
        (expected, 2)
    );
    let newest = ok(history(json!({"metadata": {"source": "input"}, "limit": 1}))).await;
    assert_eq!(newest, json!([inputs[0]]));
    assert_eq!(answer(history(json!({"metadata": 1}))).await.0, 422);
}
