//! Threads: list, delete, history, state, sync.

use std::sync::Arc;

use agentwire_core::{
    event::{Body, Event},
    patch::{Patch, PatchOp},
};
use agentwire_gateway::{agent::Demo, codes, settings::History};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn threads_are_listed_newest_first_and_in_pages() {
    for backend in Backend::each().await {
        let server = plan(Puppet::eager(|input| talk(input, 1))).on(&backend.store).await;
        assert_eq!(server.json("/thread/list").await.1, json!([]));
        for number in 0..5 {
            server.run_to_end(&format!("t{number}"), &format!("r{number}"), "hello").await;
        }
        let all: Vec<_> = (0..5).rev().map(|number| json!({"threadId": format!("t{number}")})).collect();
        assert_eq!(server.json("/thread/list").await.1, json!(all));
        let (mut seen, mut path) = (Vec::new(), "/thread/list?limit=2".to_owned());
        loop {
            let response = server.ask(Method::GET, &path).send().await.expect("a response");
            let next = response
                .headers()
                .get("agentwire-next")
                .map(|next| next.to_str().expect("a number").to_owned());
            let page: Vec<Value> =
                serde_json::from_str(&response.text().await.expect("text")).expect("a list");
            assert!(page.len() <= 2);
            seen.extend(page);
            match next {
                Some(next) => path = format!("/thread/list?limit=2&before={next}"),
                None => break,
            }
        }
        assert_eq!(seen, all);
        let (status, body) = answer(server.ask(Method::DELETE, "/thread/t3")).await;
        assert_eq!((status.as_u16(), body), (200, json!({"status": "deleted"})));
        assert_eq!(server.json("/message_snapshot/t3").await.0, 404);
        assert_eq!(server.json("/runs/r3").await.0, 404);
        assert_eq!(answer(server.ask(Method::DELETE, "/thread/t3")).await.0, 404);
        assert_eq!(server.json("/thread/list").await.1.as_array().expect("a list").len(), 4);
    }
}

#[tokio::test]
async fn history_is_available_in_both_formats_during_and_after_a_run() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 3));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut stream = server.run("t", "r", "hello").await;
        puppet.allow(2);
        stream.take(3).await;
        let (status, during) = server.json("/message_snapshot/t").await;
        assert_eq!((status.as_u16(), during["type"].as_str()), (200, Some("MESSAGES_SNAPSHOT")));
        assert_eq!(during["messages"][0]["content"], "hello");
        assert_eq!(during["messages"][1]["content"], "w0 ");
        // An AI SDK page resumes the stream from its start, so the history does not contain the active run yet.
        let (_, during) = server.json("/message_snapshot/t?format=ai-sdk").await;
        let during = during.as_array().expect("a list");
        assert_eq!((during.len(), &during[0]["role"]), (1, &json!("user")));
        puppet.allow(100);
        stream.rest().await;
        let (_, after) = server.json("/message_snapshot/t").await;
        assert_eq!(after["messages"][1]["content"], "w0 w1 w2 ");
        for version in ["ai-sdk", "ai-sdk@5", "ai-sdk@6", "ai-sdk@7"] {
            let (status, messages) = server.json(&format!("/message_snapshot/t?format={version}")).await;
            assert_eq!(status, 200);
            assert_eq!(messages[0]["role"], "user", "{version}");
            assert_eq!(
                messages[1]["parts"].as_array().expect("parts").last().expect("one")["text"],
                "w0 w1 w2 ",
                "{version}"
            );
        }
        for bad in ["ai-sdk@4", "hai@x", "openai", "x"] {
            let (status, body) = server.json(&format!("/message_snapshot/t?format={bad}")).await;
            assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (400, Some(codes::UNKNOWN_FORMAT)));
        }
    }
}

#[tokio::test]
async fn state_patches_are_atomic() {
    for backend in Backend::each().await {
        let server = plan(Arc::new(Demo::without_pauses())).on(&backend.store).await;
        server.run_to_end("t", "r", "state").await;
        let patch = |body: Value| answer(server.ask(Method::PATCH, "/state/t").json(&body));
        let (status, body) = patch(json!([{"op": "replace", "path": "/demo/progress", "value": 7}, {"op": "add", "path": "/x", "value": [1]}])).await;
        assert_eq!((status.as_u16(), body), (200, json!({"status": "updated"})));
        let (_, state) = server.json("/state_snapshot/t").await;
        assert_eq!(state["type"], "STATE_SNAPSHOT");
        assert_eq!(
            (&state["snapshot"]["demo"]["progress"], &state["snapshot"]["x"]),
            (&json!(7), &json!([1]))
        );
        for bad in [
            json!([{"op": "add", "path": "/y", "value": 1}, {"op": "remove", "path": "/nothing"}]),
            json!([{"op": "test", "path": "/x", "value": 0}]),
            json!([{"op": "add", "path": "/x/9", "value": 0}]),
        ] {
            let (status, body) = patch(bad).await;
            assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (409, Some(codes::PATCH_FAILED)));
            assert_eq!(server.json("/state_snapshot/t").await.1["snapshot"], state["snapshot"]);
        }
        // The next run starts with this state.
        let frames = server.run_to_end("t", "s", "hello").await;
        assert_eq!(frames[1].json()["snapshot"], state["snapshot"]);
    }
}

#[tokio::test]
async fn a_patch_during_a_run_becomes_an_event_of_it() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone()).on_memory().await;
    let mut stream = server.run("t", "r", "hello").await;
    puppet.allow(2);
    let mut seen = stream.take(3).await;
    let patch = json!([{"op": "add", "path": "/x", "value": 1}]);
    assert_eq!(answer(server.ask(Method::PATCH, "/state/t").json(&patch)).await.0, 200);
    let bad = json!([{"op": "remove", "path": "/nothing"}]);
    let (status, body) = answer(server.ask(Method::PATCH, "/state/t").json(&bad)).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (409, Some(codes::PATCH_FAILED)));
    assert_eq!(body["snapshot"], json!({"x": 1}), "the response contains the current state");
    let shown = stream.take(1).await;
    assert_eq!((shown[0].kind().as_str(), &shown[0].json()["delta"]), ("STATE_DELTA", &patch));
    seen.extend(shown);
    assert_eq!(server.json("/state_snapshot/t").await.1["snapshot"], json!({"x": 1}));
    puppet.allow(100);
    seen.extend(stream.rest().await);
    assert_valid(&seen);
    assert_eq!(server.json("/state_snapshot/t").await.1["snapshot"], json!({"x": 1}));
}

/// The run would overwrite the state, and this gateway cannot send it the patch.
#[tokio::test]
async fn a_patch_during_a_run_of_another_gateway_is_kept() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 3));
        let (here, there) = (
            plan(Puppet::eager(asker_script)).on(&backend.store).await,
            plan(puppet.clone()).on(&backend.store).await,
        );
        let mut stream = there.run("t", "r", "hello").await;
        stream.take(1).await;
        let patch = json!([{"op": "add", "path": "/x", "value": 1}]);
        assert_eq!(answer(here.ask(Method::PATCH, "/state/t").json(&patch)).await.0, 200);
        puppet.allow(100);
        stream.rest().await;
        assert_eq!(here.json("/state_snapshot/t").await.1["snapshot"], json!({"x": 1}));
        assert_eq!(there.json("/state_snapshot/t").await.1["snapshot"], json!({"x": 1}));
    }
}

/// A gateway keeps long conversations parsed; the stored ones count.
#[tokio::test]
async fn runs_of_two_gateways_continue_one_long_conversation() {
    let text = "many \"words\"\n".repeat(2000);
    for backend in Backend::each().await {
        let puppets = [Puppet::eager(|input| talk(input, 1)), Puppet::eager(|input| talk(input, 1))];
        let servers = [
            plan(puppets[0].clone()).on(&backend.store).await,
            plan(puppets[1].clone()).on(&backend.store).await,
        ];
        let mut said: Vec<Value> = Vec::new();
        for (number, turn) in [0, 0, 1, 0, 1, 1, 0].into_iter().enumerate() {
            let run = format!("r{number}");
            let mut body = Server::input("t", &run, &text);
            if number % 3 == 2 {
                // This client has the conversation.
                let new = body["messages"][0].take();
                body["messages"] = said.iter().cloned().chain([new]).collect();
            }
            Stream::of(servers[turn].post("/", &body)).await.rest().await;
            let before: Vec<_> =
                said.iter().map(|message| message["id"].as_str().expect("an id").to_owned()).collect();
            assert_eq!(requested_messages(&puppets[turn])[..before.len()], before, "run {number}");
            for server in &servers {
                let (_, shown) = server.json("/message_snapshot/t").await;
                let shown = shown["messages"].as_array().expect("messages");
                assert_eq!(shown[..said.len()], said, "run {number}");
                assert_eq!(shown.len(), said.len() + 2, "run {number}");
                assert_eq!(
                    (&shown[said.len()]["content"], &shown[said.len() + 1]["content"]),
                    (&json!(text), &json!("w0 "))
                );
            }
            said = servers[0].json("/message_snapshot/t").await.1["messages"]
                .as_array()
                .expect("messages")
                .clone();
        }
        // An edit of an early question, and a thread of the same name after a deletion.
        let mut edit = Server::input("t", "edit", "go on");
        let mut edited = said.clone();
        edited[2]["content"] = json!("edited");
        edit["messages"] = edited.iter().cloned().chain([edit["messages"][0].clone()]).collect();
        Stream::of(servers[0].post("/", &edit)).await.rest().await;
        assert_eq!(servers[1].json("/message_snapshot/t").await.1["messages"][2]["content"], "edited");
        assert_eq!(answer(servers[1].ask(Method::DELETE, "/thread/t")).await.0, 200);
        servers[0].run_to_end("t", "new", &text).await;
        assert_eq!(requested_messages(&puppets[0]), ["new-user"]);
    }
}

#[tokio::test]
async fn a_patch_changes_few_bytes_of_a_large_state() {
    for backend in Backend::each().await {
        let server = plan(Arc::new(Demo::without_pauses())).on(&backend.store).await;
        server.run_to_end("t", "r", "hello").await;
        let rows: Value = (0..3000).map(|row| json!({"row": row, "text": "é\n".repeat(20)})).collect();
        let patch = |body: Value| answer(server.ask(Method::PATCH, "/state/t").json(&body));
        let whole = json!([{"op": "replace", "path": "", "value": {"n": 0, "rows": rows, "deep": {"a": 1}}}]);
        assert_eq!(patch(whole).await.0, 200);
        let (_, before) = server.json("/state_snapshot/t").await;
        let changes = json!([
            {"op": "test", "path": "/n", "value": 0},
            {"op": "replace", "path": "/n", "value": 1},
            {"op": "add", "path": "/deep/b", "value": [2]},
            {"op": "remove", "path": "/deep/a"},
            {"op": "add", "path": "/new", "value": null},
        ]);
        assert_eq!(patch(changes).await.0, 200);
        let (_, after) = server.json("/state_snapshot/t").await;
        assert_eq!(after["snapshot"]["rows"], before["snapshot"]["rows"]);
        assert_eq!((&after["snapshot"]["n"], &after["snapshot"]["new"]), (&json!(1), &json!(null)));
        assert_eq!(after["snapshot"]["deep"], json!({"b": [2]}));
        assert_eq!(patch(json!([{"op": "remove", "path": "/rows"}])).await.0, 200);
        let (_, last) = server.json("/state_snapshot/t").await;
        assert_eq!(last["snapshot"].to_string(), r#"{"n":1,"deep":{"b":[2]},"new":null}"#);
        let failed = patch(
            json!([{"op": "replace", "path": "/n", "value": 2}, {"op": "test", "path": "/n", "value": 1}]),
        )
        .await;
        assert_eq!((failed.0.as_u16(), failed.1["error"]["code"].as_str()), (409, Some(codes::PATCH_FAILED)));
        assert_eq!(server.json("/state_snapshot/t").await.1["snapshot"], last["snapshot"]);
    }
}

#[tokio::test]
async fn a_thread_may_be_called_list() {
    let server = plan(Puppet::eager(asker_script)).on_memory().await;
    server.run_to_end("list", "r", "hello").await;
    assert_eq!(answer(server.ask(Method::DELETE, "/thread/list")).await.1, json!({"status": "deleted"}));
    assert_eq!(server.json("/thread/list").await.1, json!([]));
    assert_eq!(answer(server.ask(Method::DELETE, "/thread/list")).await.0, 404);
}

fn requested_messages(puppet: &Puppet) -> Vec<String> {
    puppet.last_request().input.messages.iter().map(|message| message.id.to_string()).collect()
}

#[tokio::test]
async fn history_policies_select_the_messages_for_the_agent() {
    let expected = [
        (History::Client, vec!["two-user"], vec!["one-user", "forged", "three-user"]),
        (
            History::Server,
            vec!["one-user", "one-answer", "two-user"],
            vec!["one-user", "one-answer", "two-user", "two-answer", "three-user"],
        ),
        (
            History::Merge,
            vec!["one-user", "one-answer", "two-user"],
            vec!["one-user", "forged", "one-answer", "two-user", "two-answer", "three-user"],
        ),
    ];
    for (history, second, third) in expected {
        let puppet = Puppet::eager(|input| talk(input, 1));
        let server = plan(puppet.clone()).agent(|agent| agent.history = Some(history)).on_memory().await;
        server.run_to_end("t", "one", "hello").await;
        server.run_to_end("t", "two", "the last message only").await;
        assert_eq!(requested_messages(&puppet), second, "{history:?}");
        let mut body = Server::input("t", "three", "hello");
        body["messages"] = json!([
            {"id": "one-user", "role": "user", "content": "hello"},
            {"id": "forged", "role": "assistant", "content": "not stored"},
            {"id": "three-user", "role": "user", "content": "go on"},
        ]);
        Stream::of(server.post("/", &body)).await.rest().await;
        let mut found = requested_messages(&puppet);
        // The position of the unknown message depends on the policy; all messages must be there.
        let mut third: Vec<_> = third.into_iter().map(str::to_owned).collect();
        assert_eq!(found.last(), third.last(), "{history:?}");
        found.sort();
        third.sort();
        assert_eq!(found, third, "{history:?}");
    }
}

#[tokio::test]
async fn a_request_without_messages_is_a_sync() {
    let puppet = Puppet::eager(|input| talk(input, 2));
    let server = plan(puppet.clone()).on_memory().await;
    let mut body = Server::input("t", "sync", "");
    body["messages"] = json!([]);
    let frames = Stream::of(server.post("/", &body)).await.rest().await;
    assert_valid(&frames);
    assert_eq!(types(&frames), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(frames[1].json()["messages"], json!([]));
    let mut run = Server::input("t", "r", "hello");
    run["state"] = json!({"a": 1, "b": {"c": 2}});
    Stream::of(server.post("/", &run)).await.rest().await;
    let frames = Stream::of(server.post("/", &body)).await.rest().await;
    assert_valid(&frames);
    assert_eq!(frames[1].json()["messages"].as_array().expect("a list").len(), 2);
    assert_eq!(frames[2].json()["snapshot"], json!({"a": 1, "b": {"c": 2}}));
    assert_eq!(puppet.calls(), 1, "a sync does not call the agent");
    assert_eq!(server.json("/runs/sync").await.0, 404);

    // Members of the client replace stored ones of the same name.
    let mut run = Server::input("t", "s", "hello");
    run["state"] = json!({"b": 3, "d": 4});
    let frames = Stream::of(server.post("/", &run)).await.rest().await;
    assert_eq!(frames[1].json()["snapshot"], json!({"a": 1, "b": 3, "d": 4}));
    let seen = puppet.last_request().input.state.as_ref().expect("a state").to_value();
    assert_eq!(seen, json!({"a": 1, "b": 3, "d": 4}));
}

#[tokio::test]
async fn groups_of_routes_can_be_disabled() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .agent(|agent| {
            agent.routes.hai = false;
            agent.routes.ai_sdk = false;
            agent.routes.history = false;
            agent.routes.state = false;
        })
        .on_memory()
        .await;
    assert_valid(&server.run_to_end("t", "r", "hello").await);
    for path in ["/thread/list", "/message_snapshot/t", "/state_snapshot/t", "/api/chat/t/stream"] {
        assert_eq!(server.json(path).await.0, 404, "{path}");
    }
    assert_eq!(answer(server.post("/awp", &json!({}))).await.0, 404);
    assert_eq!(server.json("/runs/r").await.0, 200);
}

/// Patches that do not apply; the letters of `script` are: `x` such a patch, `o` one that applies, `s` a snapshot.
fn state_events(script: &str) -> Vec<Event> {
    let patch = |path: &str| Body::StateDelta { patch: Patch(vec![PatchOp::add(path, json!(1).into())]) };
    let body = |letter| match letter {
        'x' => patch("/missing/n"),
        'o' => patch("/n"),
        _ => Body::StateSnapshot { snapshot: json!({"whole": true}).into() },
    };
    script.chars().map(|letter| Event::new(body(letter))).collect()
}

#[tokio::test]
async fn patches_that_do_not_apply_are_answered_by_one_snapshot() {
    for with_hooks in [false, true] {
        for (script, snapshots, state) in [
            ("xxxxxx", 1, json!({})),
            ("xoxox", 1, json!({"n": 1})),
            ("xxsxx", 3, json!({"whole": true})),
            ("ooo", 0, json!({"n": 1})),
        ] {
            let puppet = Puppet::eager(move |input| {
                let mut events = state_events(script);
                events.extend(talk(input, 1));
                events
            });
            struct NoHooks;
            impl agentwire_gateway::hooks::Hooks for NoHooks {}
            let mut plan = plan(puppet);
            if with_hooks {
                plan = plan.wire(|builder| builder.hooks(|_| NoHooks));
            }
            let server = plan.on_memory().await;
            let frames = server.run_to_end("t", "r", "hello").await;
            assert_valid(&frames);
            let found = frames.iter().filter(|frame| frame.kind() == "STATE_SNAPSHOT").count();
            assert_eq!(found, snapshots, "{script}: {:?}", types(&frames));
            assert_eq!(server.json("/state_snapshot/t").await.1["snapshot"], state, "{script}");
        }
    }
}
