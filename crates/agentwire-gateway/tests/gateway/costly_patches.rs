//! Patches that take much work for their size: refused, with the state unchanged, and off the workers.

use std::sync::Arc;

use agentwire_core::{
    event::{Body, Event},
    format::ag_ui,
};
use agentwire_gateway::{
    agent::{Agent, EventSink, Request},
    codes,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

/// A state of some 1.5 MB.
fn large_state() -> Value {
    let list: Vec<usize> = (0..100_000).collect();
    let members: serde_json::Map<_, _> = (0..20_000).map(|key| (format!("k{key}"), json!(key))).collect();
    json!({"a": list, "o": members, "p": {"q": {}}})
}

/// Compares by text, because the order of members counts.
async fn assert_unchanged(server: &Server, case: &str) {
    let (_, state) = server.json("/state_snapshot/t").await;
    let (after, before) = (state["snapshot"].to_string(), large_state().to_string());
    assert!(after == before, "{case}: the state has changed");
}

/// Patches of some 200 kB, each with the name of its family.
fn families() -> Vec<(&'static str, Value)> {
    const COUNT: usize = 4000;
    let repeated = |operation: Value| Value::from(vec![operation; COUNT]);
    let pairs = |first: Value, second: Value| Value::from(vec![vec![first, second]; COUNT / 2].concat());
    let test = json!({"op": "test", "path": "/a", "value": large_state()["a"]});
    let mut failing = vec![json!({"op": "remove", "path": "/a/0"}); COUNT];
    failing.push(json!({"op": "remove", "path": "/nothing"}));
    vec![
        ("remove the first element", repeated(json!({"op": "remove", "path": "/a/0"}))),
        ("add before the first", repeated(json!({"op": "add", "path": "/a/0", "value": 1}))),
        ("move front to back", repeated(json!({"op": "move", "from": "/a/0", "path": "/a/-"}))),
        (
            "move a large value deeper and back",
            pairs(
                json!({"op": "move", "from": "/a", "path": "/p/q/a"}),
                json!({"op": "move", "from": "/p/q/a", "path": "/a"}),
            ),
        ),
        (
            "remove the first members",
            (0..COUNT).map(|key| json!({"op": "remove", "path": format!("/o/k{key}")})).collect(),
        ),
        ("copy large values", repeated(json!({"op": "copy", "from": "/a", "path": "/b"}))),
        ("test large values", Value::from(vec![test; 15])),
        ("copy the root into itself", repeated(json!({"op": "copy", "from": "", "path": "/p/q/root"}))),
        (
            "rename members",
            (0..COUNT)
                .map(|key| json!({"op": "move", "from": format!("/o/k{key}"), "path": format!("/o/x{key}")}))
                .collect(),
        ),
        ("move into the middle", repeated(json!({"op": "move", "from": "/a/0", "path": "/a/50000"}))),
        ("a failing last operation", failing.into()),
    ]
}

fn state_agent(patch: Option<Value>) -> Arc<dyn Agent> {
    play(move |request: Request, sink: EventSink| {
        let patch = patch.clone();
        async move {
            sink.send(Event::new(Body::StateSnapshot { snapshot: large_state().into() })).await?;
            if let Some(patch) = patch {
                let patch = ag_ui::patch_from_json(&patch.to_string()).expect("a patch");
                sink.send(Event::new(Body::StateDelta { patch })).await?;
            }
            sink.send(finished(&request.input)).await?;
            Ok(())
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_costly_patches_are_refused() {
    let server =
        plan(state_agent(None)).set(|settings| settings.limits.patch_work = 16 << 20).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    for (name, patch) in families() {
        let refused = answer(server.ask(Method::PATCH, "/state/t").json(&patch));
        let (refused, livez) = tokio::join!(refused, server.ask(Method::GET, "/livez").send());
        assert_eq!(livez.expect("a response").status(), 200);
        let (status, body) = refused;
        let code = body["error"]["code"].as_str();
        assert_eq!((status.as_u16(), code), (413, Some(codes::PATCH_TOO_COSTLY)), "{name}");
        assert_unchanged(&server, name).await;
    }
    // A long patch of cheap operations applies.
    let cheap = vec![json!({"op": "add", "path": "/a/-", "value": 1}); 4000];
    assert_eq!(answer(server.ask(Method::PATCH, "/state/t").json(&cheap)).await.0, 200);
    let (_, state) = server.json("/state_snapshot/t").await;
    assert_eq!(state["snapshot"]["a"].as_array().map(Vec::len), Some(104_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_costly_patches_are_refused_during_a_run() {
    let puppet = Puppet::new(|input| {
        let mut events = talk(input, 3);
        events.insert(0, Event::new(Body::StateSnapshot { snapshot: large_state().into() }));
        events
    });
    let server = plan(puppet.clone()).set(|settings| settings.limits.patch_work = 16 << 20).on_memory().await;
    let mut stream = server.run("t", "r", "hello").await;
    puppet.allow(2);
    stream.take(3).await;
    for (name, patch) in families() {
        let (status, body) = answer(server.ask(Method::PATCH, "/state/t").json(&patch)).await;
        let code = body["error"]["code"].as_str();
        assert_eq!((status.as_u16(), code), (413, Some(codes::PATCH_TOO_COSTLY)), "{name}");
    }
    puppet.allow(100);
    let rest = stream.rest().await;
    assert_eq!(rest.last().expect("a last frame").json()["type"], "RUN_FINISHED");
    assert_unchanged(&server, "after the run").await;
}

/// The run ends, and neither its log nor the stored state has the patch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_costly_patch_of_an_agent_ends_the_run() {
    for (name, patch) in families() {
        let agent = state_agent(Some(patch));
        let server = plan(agent).set(|settings| settings.limits.patch_work = 16 << 20).on_memory().await;
        let frames = server.run_to_end("t", "r", "hello").await;
        assert_valid(&frames);
        let last = frames.last().expect("a last frame").json();
        let ending = (last["type"].as_str(), last["code"].as_str());
        assert_eq!(ending, (Some("RUN_ERROR"), Some(codes::LIMIT_EXCEEDED)), "{name}");
        assert!(frames.iter().all(|frame| frame.json()["type"] != "STATE_DELTA"), "{name}");
        assert_unchanged(&server, name).await;
    }
}

/// Many small patches instead of a large one: each is within the limits of a patch, and the copies of all of them within
/// those of the run. The state of a thread has a limit too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_many_tiny_costly_patches_end_the_run() {
    let families: [(&str, &[Value]); 3] = [
        (
            "copies",
            &[json!({"op": "copy", "from": "/a", "path": "/b"}), json!({"op": "remove", "path": "/b"})],
        ),
        ("doubling", &[json!({"op": "copy", "from": "", "path": "/p/q/root"})]),
        ("longer and longer", &[json!({"op": "copy", "from": "/o", "path": "/a/-"})]),
    ];
    for (name, operations) in families {
        let operations = operations.to_vec();
        let agent = play(move |request: Request, sink: EventSink| {
            let operations = operations.clone();
            async move {
                sink.send(Event::new(Body::StateSnapshot { snapshot: large_state().into() })).await?;
                for operation in operations.iter().cycle().take(400) {
                    let patch = ag_ui::patch_from_json(&json!([operation]).to_string()).expect("a patch");
                    sink.send(Event::new(Body::StateDelta { patch })).await?;
                }
                sink.send(finished(&request.input)).await?;
                Ok(())
            }
        });
        let server = plan(agent).agent(|agent| agent.limits.max_bytes = 16 << 20).on_memory().await;
        let run = server.run_to_end("t", "r", "hello");
        let (frames, livez) = tokio::join!(run, server.ask(Method::GET, "/livez").send());
        assert_eq!(livez.expect("a response").status(), 200);
        let last = frames.last().expect("a last frame").json();
        let code = last["code"].as_str().unwrap_or_default();
        assert!([codes::LIMIT_EXCEEDED, codes::THREAD_TOO_LARGE].contains(&code), "{name}: {last}");
    }
}

/// An operation on the root of an activity is charged like any other, and a content that is no object is undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_patches_of_the_root_of_an_activity() {
    let agent = play(move |request: Request, sink: EventSink| async move {
        let activity = |content: Value| Body::ActivitySnapshot {
            message: "act".into(),
            kind: "plan".into(),
            content: agentwire_core::json::Json::from(content).into_object().expect("an object"),
            replace: None,
        };
        sink.send(Event::new(activity(json!({"list": [1, 2, 3]})))).await?;
        for operations in [
            json!([{"op": "replace", "path": "", "value": 7}]),
            json!([{"op": "remove", "path": "/list/0"}, {"op": "add", "path": "", "value": []}]),
            json!([{"op": "add", "path": "/list/-", "value": 4}, {"op": "test", "path": "", "value": 1}]),
        ] {
            let patch = ag_ui::patch_from_json(&operations.to_string()).expect("a patch");
            let delta = Body::ActivityDelta { message: "act".into(), kind: "plan".into(), patch };
            sink.send(Event::new(delta)).await?;
        }
        sink.send(finished(&request.input)).await?;
        Ok(())
    });
    let server = plan(agent).on_memory().await;
    server.run_to_end("t", "r", "hello").await;
    let (_, snapshot) = server.json("/message_snapshot/t").await;
    let activity = &snapshot["messages"][1];
    assert_eq!(activity["content"], json!({"list": [1, 2, 3]}), "{snapshot}");
}
