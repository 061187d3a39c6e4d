//! The routes in another axum app: all, or group by group, under any prefix.

use agentwire_gateway::{
    AgentConfig, Gateway,
    agent::agent_fn,
    codes,
    settings::{Identity, IdentityField, IdentitySource, Settings},
};
use axum::{Router, routing::get};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// A gateway whose agent counts its runs in the state.
async fn gateway(settings: Settings) -> Gateway {
    let agent = agent_fn(|request, emit| async move {
        let runs = emit.state().get("/runs").and_then(|runs| runs.as_u64()).unwrap_or(0);
        emit.state().set("/runs", runs + 1).await?;
        let mut message = emit.message();
        for word in request.user_text().split_inclusive(' ') {
            message.push(word).await?;
        }
        Ok(())
    });
    let gateway = Gateway::builder(Backend::memory().await.store, settings).agent("echo", agent).build();
    gateway.recover().await;
    gateway
}

/// An app that `axum::serve` serves.
struct App {
    base: String,
    client: reqwest::Client,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl App {
    async fn serve(gateway: Gateway, app: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let served = tokio::spawn(async move {
            let end = async move {
                stopped.await;
                gateway.drain().await;
            };
            axum::serve(listener, app).with_graceful_shutdown(end).await
        });
        let client = agentwire_client::transport::builder().no_proxy().build().expect("a client");
        Self { base, client, stop, served }
    }

    fn ask(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    async fn json(&self, path: &str) -> (u16, Value) {
        let (status, body) = answer(self.ask(Method::GET, path)).await;
        (status.as_u16(), body)
    }

    async fn run(&self, path: &str, thread: &str, run: &str) -> Vec<Frame> {
        let request = self.ask(Method::POST, path).json(&Server::input(thread, run, "hello you"));
        Stream::of(request).await.rest().await
    }

    async fn end(self) {
        self.stop.cancel();
        with_timeout("the end of the app", self.served).await.expect("no panic").expect("no error");
    }
}

#[tokio::test]
async fn the_whole_gateway_can_be_nested() {
    let gateway = gateway(Settings::default()).await;
    let app = Router::new().route("/", get(|| async { "mine" })).nest("/ai/v1", gateway.router());
    let app = App::serve(gateway, app).await;
    assert_eq!(
        app.ask(Method::GET, "/").send().await.expect("a response").text().await.expect("text"),
        "mine"
    );
    for (main, thread) in [("/ai/v1", "t1"), ("/ai/v1/agents/echo", "t2")] {
        let frames = app.run(main, thread, &format!("run-{thread}")).await;
        assert_valid(&frames);
        assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"), "{main}");
    }
    assert_eq!(app.json("/ai/v1/state_snapshot/t1").await.1["snapshot"], json!({"runs": 1}));
    assert_eq!(app.json("/ai/v1/runs/run-t2").await.1["status"], "finished");
    assert_eq!(app.json("/ai/v1/readyz").await.0, 200);
    assert_eq!(app.json("/ai/v1/agents").await.1["agents"][0]["url"], "/ai/v1/agents/echo");
    assert_eq!(app.json("/ai/v1/openapi.json").await.1["servers"], json!([{"url": "/ai/v1"}]));
    let (status, body) = app.json("/ai/v1/nothing").await;
    assert_eq!((status, body["error"]["code"].as_str()), (404, Some(codes::UNKNOWN_ROUTE)));
    assert_eq!(app.json("/nothing").await.0, 404);
    let mut rest = Stream::of(app.ask(Method::GET, "/ai/v1/runs/run-t1/stream?after=run-t1:3")).await;
    valid_tail(&rest.rest().await);
    app.end().await;
}

fn valid_tail(frames: &[Frame]) {
    assert_eq!(types(frames).last().map(String::as_str), Some("RUN_FINISHED"));
}

#[tokio::test]
async fn groups_of_routes_can_be_mounted_apart() {
    let gateway = gateway(Settings::default()).await;
    let app = Router::new()
        .nest("/chat", gateway.main_routes())
        .nest("/archive", gateway.history_routes())
        .nest("/shared/{room}", gateway.state_routes());
    let app = App::serve(gateway, app).await;
    assert_valid(&app.run("/chat", "t", "r1").await);
    assert_eq!(app.json("/archive/thread/list").await, (200, json!([{"threadId": "t"}])));
    let (_, messages) = app.json("/archive/agents/echo/message_snapshot/t").await;
    assert_eq!(messages["messages"][1]["content"], "hello you");
    assert_eq!(app.json("/shared/blue/state_snapshot/t").await.1["snapshot"], json!({"runs": 1}));
    let patch = json!([{"op": "add", "path": "/by", "value": "hand"}]);
    let patched = answer(app.ask(Method::PATCH, "/shared/red/state/t").json(&patch)).await;
    assert_eq!((patched.0.as_u16(), patched.1), (200, json!({"status": "updated"})));
    assert_valid(&app.run("/chat", "t", "r2").await);
    assert_eq!(
        app.json("/shared/blue/agents/echo/state_snapshot/t").await.1["snapshot"],
        json!({"runs": 2, "by": "hand"})
    );
    assert_eq!(answer(app.ask(Method::DELETE, "/archive/thread/t")).await.0, 200);
    assert_eq!(app.json("/shared/blue/state_snapshot/t").await.0, 404);
    // No route is mounted elsewhere.
    for (method, path) in [
        (Method::GET, "/chat/thread/list"),
        (Method::GET, "/chat/state_snapshot/t"),
        (Method::GET, "/archive/state_snapshot/t"),
        (Method::POST, "/archive"),
        (Method::GET, "/shared/blue/thread/list"),
        (Method::GET, "/archive/livez"),
    ] {
        let status = app.ask(method.clone(), path).send().await.expect("a response").status();
        assert!(matches!(status.as_u16(), 404 | 405), "{method} {path}: {status}");
    }
    app.end().await;
}

#[tokio::test]
async fn hai_routes_are_at_the_configured_paths() {
    let paths = ["/api/v1/hai/chat", "/task"].map(str::to_owned).to_vec();
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .agent(|settings| settings.hai_paths = paths)
        .on_memory()
        .await;
    let body = |run: &str| json!({"threadId": run, "runId": run, "messages": [{"id": "u", "role": "user", "content": "hi"}]});
    for (path, found) in [("/api/v1/hai/chat", true), ("/task", true), ("/awp", false), ("/chat", false)] {
        let response = server
            .ask(Method::POST, path)
            .json(&body(&path.replace('/', "-")))
            .send()
            .await
            .expect("a response");
        assert_eq!(response.status() == 200, found, "{path}");
    }
    let (_, document) = server.json("/openapi.json").await;
    assert!(document["paths"]["/task"]["post"].is_object() && document["paths"]["/awp"].is_null());
}

#[tokio::test]
async fn history_and_state_routes_have_identity_settings_of_their_own() {
    let from = |source: IdentitySource, default: Option<&str>| IdentityField {
        source,
        default: default.map(str::to_owned),
    };
    let settings = Settings::default()
        .identity(
            Identity::default()
                .user(from(IdentitySource::Body("/forwardedProps/user".into()), None))
                .thread(Some(from(IdentitySource::Body("/forwardedProps/room".into()), None))),
        )
        .history_identity(Some(
            Identity::default().user(IdentityField::header("x-user-id", Some("default-user"))),
        ))
        .state_identity(Some(
            Identity::default()
                .user(from(IdentitySource::Path("user".into()), None))
                .thread(Some(from(IdentitySource::Header("x-room".into()), Some("default-session")))),
        ));
    let gateway = gateway(settings).await;
    let app = Router::new()
        .nest("/chat", gateway.main_routes())
        .nest("/archive", gateway.history_routes())
        .nest("/users/{user}", gateway.state_routes());
    let app = App::serve(gateway, app).await;
    for (user, room) in [("ada", "kitchen"), ("ada", "default-session"), ("bob", "kitchen")] {
        let mut input = Server::input("ignored", &format!("{user}-{room}"), "hello");
        input["forwardedProps"] = json!({"user": user, "room": room});
        let frames = Stream::of(app.ask(Method::POST, "/chat").json(&input)).await.rest().await;
        assert_valid(&frames);
        assert_eq!(frames[0].json()["threadId"], room);
    }
    let list = async |user: Option<&str>| {
        let mut request = app.ask(Method::GET, "/archive/thread/list");
        if let Some(user) = user {
            request = request.header("x-user-id", user);
        }
        answer(request).await.1.as_array().map(Vec::len)
    };
    assert_eq!(
        (list(Some("ada")).await, list(Some("bob")).await, list(None).await),
        (Some(2), Some(1), Some(0))
    );
    let kitchen = app.ask(Method::GET, "/archive/message_snapshot/kitchen").header("x-user-id", "bob");
    assert_eq!(answer(kitchen).await.0, 200);
    assert_eq!(
        app.json("/archive/message_snapshot/kitchen").await.0,
        404,
        "the default user has no such thread"
    );
    // The path has a thread, but these settings read it from another backend.
    let state = app.ask(Method::GET, "/users/ada/state_snapshot/any").header("x-room", "kitchen");
    assert_eq!(answer(state).await.1["snapshot"], json!({"runs": 1}));
    assert_eq!(app.json("/users/ada/state_snapshot/any").await.0, 200, "the default session");
    assert_eq!(app.json("/users/bob/state_snapshot/any").await.0, 404, "bob has none");
    app.end().await;
}

/// The app shuts down during a run.
#[tokio::test]
async fn a_mounted_gateway_drains_with_its_app() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let settings = Settings::default().drain_grace(std::time::Duration::ZERO);
    let gateway = Gateway::builder(Backend::memory().await.store, settings)
        .agent("puppet", AgentConfig::shared(puppet.clone()))
        .build();
    gateway.recover().await;
    let app = App::serve(gateway.clone(), Router::new().nest("/ai", gateway.router())).await;
    let request = app.ask(Method::POST, "/ai").json(&Server::input("t", "r", "hello"));
    let mut stream = Stream::of(request).await;
    stream.take(1).await;
    app.stop.cancel();
    let rest = stream.rest().await;
    assert_eq!(rest.last().expect("a last frame").json()["code"], codes::GATEWAY_SHUTDOWN);
    app.end().await;
}
