//! Many costly requests at once: other users go on, and the queue has an end.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use agentwire_core::event::{Body, Event};
use agentwire_gateway::{codes, settings::*};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::*;

/// The clients of one user that keep every processor busy.
const CLIENTS: usize = 64;

/// Threads for blocking work, fewer than clients.
const THREADS: usize = 6;

fn users(settings: &mut Settings) {
    settings.identity = Identity::default().user(IdentityField::header("x-user", None));
    settings.limits.patch_work = 8 << 20;
}

fn large_state() -> Value {
    json!({"a": (0..20_000).collect::<Vec<_>>()})
}

/// Costs all the work that a patch may take.
fn costly_patch() -> Value {
    vec![json!({"op": "move", "from": "/a/0", "path": "/a/-"}); 2000].into()
}

/// Needs a processor, because the state is large, and little of it.
fn cheap_patch() -> Value {
    json!([{"op": "replace", "path": "/a/0", "value": 1}])
}

/// An agent that sends a large state, and answers a run named `live` no further.
fn agent() -> Arc<dyn agentwire_gateway::agent::Agent> {
    play(|request, sink: agentwire_gateway::agent::EventSink| async move {
        if request.input.thread.as_str().starts_with("large") {
            sink.send(Event::new(Body::StateSnapshot { snapshot: large_state().into() })).await?;
        }
        if request.input.run.as_str().starts_with("live") {
            return std::future::pending().await;
        }
        for event in talk(&request.input, 3) {
            sink.send(event).await?;
        }
        Ok(())
    })
}

struct Flood {
    server: Arc<Server>,
    /// Costly requests that were answered.
    done: Arc<AtomicUsize>,
    clients: JoinSet<()>,
    _streams: Vec<Stream>,
}

fn patch(server: &Server, user: &str, thread: &str, patch: &Value) -> RequestBuilder {
    server.ask(Method::PATCH, &format!("/state/{thread}")).header("x-user", user).json(patch)
}

fn chat(server: &Server, user: &str, thread: &str, run: &str) -> RequestBuilder {
    server.post("/", &Server::input(thread, run, "hello")).header("x-user", user)
}

impl Flood {
    /// Sends costly patches without end, to threads with and without a live run.
    async fn new(server: Server) -> Self {
        let mut streams = Vec::new();
        for number in 0..CLIENTS {
            let run = if number % 2 == 0 { format!("live-{number}") } else { format!("done-{number}") };
            let mut stream = Stream::of(chat(&server, "eve", &format!("large-{number}"), &run)).await;
            assert_eq!(stream.status(), 200);
            match number % 2 {
                0 => _ = stream.take(2).await,
                _ => _ = stream.rest().await,
            }
            streams.push(stream);
        }
        let mut ada = Stream::of(chat(&server, "ada", "large-own", "own")).await;
        ada.rest().await;
        let (server, done) = (Arc::new(server), Arc::new(AtomicUsize::new(0)));
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let (server, done) = (server.clone(), done.clone());
            clients.spawn(async move {
                loop {
                    let request = patch(&server, "eve", &format!("large-{number}"), &costly_patch());
                    let (status, body) = answer(request).await;
                    assert_eq!(
                        (status.as_u16(), body["error"]["code"].as_str()),
                        (413, Some(codes::PATCH_TOO_COSTLY))
                    );
                    done.fetch_add(1, SeqCst);
                }
            });
        }
        let flood = Self { server, done, clients, _streams: streams };
        wait_until("the flood has begun", async || flood.done.load(SeqCst) > 2).await;
        flood
    }

    fn check(&mut self) {
        if let Some(Err(error)) = self.clients.try_join_next() {
            panic!("{error}");
        }
    }
}

/// Another user chats, reads and patches meanwhile, and waits for some of the costly requests, not for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_costly_requests_of_one_user_do_not_delay_another() {
    let backend = Backend::sqlite().await;
    let server = plan(agent()).set(users).with_few_threads(&backend.store, THREADS).await;
    let mut flood = Flood::new(server).await;
    let server = flood.server.clone();
    let mut waited_for = Vec::new();
    for round in 0..5 {
        assert_eq!(server.ask(Method::GET, "/livez").send().await.expect("a response").status(), 200);
        let run = format!("r{round}");
        let frames = Stream::of(chat(&server, "ada", "small", &run)).await.rest().await;
        assert_valid(&frames);
        let snapshot = server.ask(Method::GET, "/message_snapshot/small").header("x-user", "ada");
        assert_eq!(answer(snapshot).await.0, 200);
        let before = flood.done.load(SeqCst);
        assert_eq!(answer(patch(&server, "ada", "large-own", &cheap_patch())).await.0, 200);
        waited_for.push(flood.done.load(SeqCst) - before);
    }
    // In the order of arrival each patch would wait for all clients. The least counts: a busy machine delays some.
    assert!(waited_for.iter().any(|count| *count < CLIENTS / 2), "{waited_for:?}");
    flood.check();
    let before = flood.done.load(SeqCst);
    wait_until("the flood goes on", async || flood.done.load(SeqCst) > before).await;
    flood.check();
}

/// A user who sends more than can wait is refused, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_queue_that_is_full_refuses_its_user() {
    let backend = Backend::sqlite().await;
    // As costly as it gets, so that they come faster than they go.
    let plan = plan(agent()).set(users).set(|settings| settings.limits.patch_work = 256 << 20);
    let server = plan.with_few_threads(&backend.store, THREADS).await;
    for (user, thread) in [("eve", "large"), ("ada", "large")] {
        Stream::of(chat(&server, user, thread, "r")).await.rest().await;
    }
    let body = costly_patch().to_string();
    let mut clients = JoinSet::new();
    for _ in 0..400 {
        let request = server.ask(Method::PATCH, "/state/large").header("x-user", "eve");
        clients.spawn(answer(request.header("content-type", "application/json").body(body.clone())));
    }
    let mut refused = 0;
    while refused == 0 {
        let (status, body) = clients.join_next().await.expect("one is refused").expect("no panic");
        match (status.as_u16(), body["error"]["code"].as_str()) {
            (503, Some(codes::OVERLOADED)) => refused += 1,
            (413, Some(codes::PATCH_TOO_COSTLY)) => {}
            other => panic!("{other:?}: {body}"),
        }
    }
    assert_eq!(answer(patch(&server, "ada", "large", &cheap_patch())).await.0, 200, "another user has room");
    assert_eq!(server.ask(Method::GET, "/livez").send().await.expect("a response").status(), 200);
    // Those who leave make room.
    clients.shutdown().await;
    wait_until("there is room again", async || {
        answer(patch(&server, "eve", "large", &cheap_patch())).await.0 == 200
    })
    .await;
}
