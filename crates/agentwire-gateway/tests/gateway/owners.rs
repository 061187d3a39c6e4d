//! Threads and runs belong to an agent, or to a group of agents.

use std::sync::Arc;

use agentwire_gateway::{
    UpstreamError,
    agent::{Agent, BoxFuture, EventSink, Recalled, Request},
    codes,
    settings::{AgentSettings, Routes},
};
use agentwire_store::Store;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

/// A gateway with the agents `demo` (the default one) and `other`.
async fn two_agents(store: &Arc<dyn Store>, settings: AgentSettings) -> (Server, Arc<Puppet>, Arc<Puppet>) {
    let (one, two) = (Puppet::eager(|input| talk(input, 1)), Puppet::eager(|input| talk(input, 2)));
    let plan = plan(one.clone()).agent(|it| it.threads.clone_from(&settings.threads));
    (plan.and("other", settings, two.clone()).on(store).await, one, two)
}

async fn run(server: &Server, agent: &str, thread: &str, run: &str) -> Vec<Frame> {
    let path = format!("/agents/{agent}");
    let frames = Stream::of(server.post(&path, &Server::input(thread, run, agent))).await.rest().await;
    assert_eq!(frames.last().expect("an end").kind(), "RUN_FINISHED", "{frames:?}");
    frames
}

async fn texts(server: &Server, agent: &str, thread: &str) -> Vec<Value> {
    let (status, snapshot) = server.json(&format!("/agents/{agent}/message_snapshot/{thread}")).await;
    assert_eq!(status, 200, "{snapshot}");
    snapshot["messages"].as_array().expect("a list").iter().map(|it| it["content"].clone()).collect()
}

#[tokio::test]
async fn two_agents_with_one_thread_id_have_two_conversations() {
    for backend in Backend::each().await {
        let (server, one, two) = two_agents(&backend.store, AgentSettings::default()).await;
        run(&server, "demo", "default-session", "r1").await;
        run(&server, "other", "default-session", "r1").await;
        assert_eq!((one.calls(), two.calls()), (1, 1), "each agent has a run of its own");
        assert_eq!(texts(&server, "demo", "default-session").await, ["demo", "w0 "]);
        assert_eq!(texts(&server, "other", "default-session").await, ["other", "w0 w1 "]);
        assert_eq!(
            two.last_request().input.messages.len(),
            1,
            "the agent does not get the other conversation"
        );
        // The same request again joins the run of the same agent.
        run(&server, "other", "default-session", "r1").await;
        assert_eq!((one.calls(), two.calls()), (1, 1));
        // The routes at `/` are those of the default agent.
        assert_eq!(server.json("/runs/r1").await.1["agent"], "demo");
        assert_eq!(server.json("/agents/other/runs/r1").await.1["agent"], "other");
        // A change of one thread leaves the other as it is.
        let (status, _) = answer(server.ask(Method::DELETE, "/agents/demo/thread/default-session")).await;
        assert_eq!(status, 200);
        assert_eq!(server.json("/agents/demo/thread/list").await.1, json!([]));
        assert_eq!(texts(&server, "other", "default-session").await.len(), 2);
    }
}

#[tokio::test]
async fn p7_another_agents_thread_looks_like_an_unknown_one_on_every_route() {
    for backend in Backend::each().await {
        let settings = AgentSettings::default().routes(Routes { history: false, ..Routes::default() });
        let (server, ..) = two_agents(&backend.store, settings).await;
        run(&server, "other", "secret", "r1").await;
        let routes = |thread: &str, run: &str| {
            let get = |path: String| (Method::GET, path, None);
            vec![
                get(format!("/message_snapshot/{thread}")),
                get(format!("/message_snapshot/{thread}?format=ai-sdk")),
                get(format!("/state_snapshot/{thread}")),
                get(format!("/threads/{thread}/stream")),
                get(format!("/threads/{thread}/pending")),
                get(format!("/threads/{thread}/feedback")),
                get(format!("/threads/{thread}/artifacts")),
                get(format!("/threads/{thread}/artifacts/a.txt")),
                get(format!("/api/chat/{thread}/stream")),
                get(format!("/api/chat?chatId={thread}")),
                get(format!("/runs/{run}")),
                get(format!("/runs/{run}/stream")),
                get(format!("/runs/{run}/stream?after={run}:0")),
                (Method::POST, format!("/runs/{run}/stop"), None),
                (Method::POST, format!("/runs/{run}/pause"), None),
                (Method::POST, format!("/runs/{run}/resume"), None),
                (Method::POST, format!("/api/chat/{thread}/stop"), None),
                (Method::DELETE, format!("/thread/{thread}"), None),
                (Method::PATCH, format!("/state/{thread}"), Some(json!([]))),
                (Method::POST, "/feedback".into(), Some(json!({"threadId": thread, "rating": "up"}))),
                (
                    Method::POST,
                    "/feedback".into(),
                    Some(json!({"threadId": thread, "runId": run, "rating": "up"})),
                ),
            ]
        };
        let ask = async |(method, path, body): (Method, String, Option<Value>)| {
            let request = server.ask(method, &path);
            let (status, body) = answer(match body {
                Some(body) => request.json(&body),
                None => request,
            })
            .await;
            format!("{status} {body}")
        };
        for (known, unknown) in routes("secret", "r1").into_iter().zip(routes("nobody", "r0")) {
            let path = known.1.clone();
            let foreign = ask(known).await.replace("secret", "nobody").replace("r1", "r0");
            assert_eq!(foreign, ask(unknown).await, "{path}");
            assert!(!foreign.contains("w0"), "{path}: {foreign}");
        }
        // A sync request finds nothing either.
        let empty = json!({"threadId": "secret", "runId": "r9", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {}});
        let frames = Stream::of(server.post("/", &empty)).await.rest().await;
        assert!(frames.iter().all(|frame| !frame.data.contains("w0")), "{frames:?}");
        assert_eq!(server.json("/thread/list").await.1, json!([]));
        // It is untouched.
        assert_eq!(server.json("/agents/other/runs/r1").await.1["status"], "finished");
    }
}

#[tokio::test]
async fn agents_of_a_group_share_their_threads() {
    for backend in Backend::each().await {
        let settings = AgentSettings::default().threads(Some("team".into()));
        let (server, one, two) = two_agents(&backend.store, settings).await;
        run(&server, "demo", "t", "r1").await;
        run(&server, "other", "t", "r2").await;
        assert_eq!(two.last_request().input.messages.len(), 3, "it gets the whole conversation");
        for agent in ["demo", "other"] {
            assert_eq!(texts(&server, agent, "t").await, ["demo", "w0 ", "other", "w0 w1 "]);
            assert_eq!(server.json(&format!("/agents/{agent}/runs/r1")).await.1["agent"], "demo");
            assert_eq!(
                server.json(&format!("/agents/{agent}/thread/list")).await.1,
                json!([{"threadId": "t"}])
            );
        }
        // The run of one agent is not the answer of another.
        let (status, body) = answer(server.post("/agents/other", &Server::input("t", "r1", "hello"))).await;
        assert_eq!((status.as_u16(), &body["error"]["code"]), (409, &json!(codes::RUN_ID_TAKEN)));
        assert_eq!((one.calls(), two.calls()), (1, 1));
    }
}

#[tokio::test]
async fn threads_follow_their_agent_into_a_group() {
    let backend = Backend::sqlite().await;
    let (server, ..) = two_agents(&backend.store, AgentSettings::default()).await;
    run(&server, "demo", "t1", "r1").await;
    run(&server, "other", "t2", "r2").await;
    run(&server, "demo", "both", "r3").await;
    run(&server, "other", "both", "r4").await;
    server.drain();
    server.ended().await;
    let settings = AgentSettings::default().threads(Some("team".into()));
    let (server, ..) = two_agents(&backend.store, settings).await;
    wait_until("the threads are moved", async || {
        server.json("/thread/list").await.1.as_array().is_some_and(|list| list.len() == 3)
    })
    .await;
    assert_eq!(texts(&server, "other", "t1").await, ["demo", "w0 "]);
    assert_eq!(texts(&server, "demo", "t2").await, ["other", "w0 w1 "]);
    run(&server, "other", "t1", "r5").await;
    server.drain();
    server.ended().await;
    // A thread that had no place in the group is where it was.
    let (server, ..) = two_agents(&backend.store, AgentSettings::default()).await;
    assert_eq!(texts(&server, "other", "both").await, ["other", "w0 w1 "]);
}

/// An agent whose server has a conversation under every id without a scope, as a shared LangGraph server would.
struct SharedServer;

impl Agent for SharedServer {
    fn run(&self, _: Request, _: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn recall(
        &self,
        request: Request,
    ) -> Option<BoxFuture<'static, Result<Option<Recalled>, UpstreamError>>> {
        let messages = vec![agentwire_core::event::Message::user("m", "from the server")];
        let recalled =
            Recalled { messages, state: agentwire_core::json::Json::null(), interrupts: Vec::new() };
        let found = request.upstream_scope.is_none().then_some(recalled);
        Some(Box::pin(std::future::ready(Ok(found))))
    }
}

#[tokio::test]
async fn p7_an_agents_thread_is_not_recalled_by_another_agent_of_the_same_server() {
    for backend in Backend::each().await {
        let settings = AgentSettings::default().routes(Routes { history: false, ..Routes::default() });
        let server = plan(Arc::new(SharedServer)).and("other", settings, Arc::new(SharedServer));
        let server = server.on(&backend.store).await;
        assert_eq!(texts(&server, "demo", "t").await, ["from the server"], "nobody has it here");
        run(&server, "other", "t", "r1").await;
        assert_eq!(server.json("/message_snapshot/t").await.0, 404);
        assert_eq!(server.json("/state_snapshot/t").await.0, 404);
        assert_eq!(server.json("/threads/t/pending").await.0, 404);
        let (status, _) = answer(server.ask(Method::DELETE, "/thread/t")).await;
        assert_eq!(status, 404);
    }
}
