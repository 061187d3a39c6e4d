//! Two gateways on one store: every route gives the same answer at both, and no acknowledged change is lost.
//!
//! The first gateway drives the runs; the second one has a handle of its own on the same SQLite file, as another process would.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use agentwire_gateway::{codes, settings::*};
use agentwire_store::{ManualClock, Options, Store, Time};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::{langgraph::path, support::*};

struct Pair {
    backend: Backend,
    _second: Arc<dyn Store>,
    puppet: Arc<Puppet>,
    one: Server,
    two: Server,
}

async fn pair(change: impl Fn(&mut AgentSettings)) -> Pair {
    let backend = Backend::sqlite().await;
    let second = backend.reopened().await;
    let puppet = Puppet::new(|input| talk(input, 10));
    let one = plan(puppet.clone()).agent(&change).on(&backend.store).await;
    let two = plan(puppet.clone()).agent(&change).on(&second).await;
    Pair { backend, _second: second, puppet, one, two }
}

async fn patch(server: &Server, operations: serde_json::Value) -> (u16, serde_json::Value) {
    let (status, body) = answer(server.ask(Method::PATCH, "/state/t").json(&operations)).await;
    (status.as_u16(), body)
}

async fn post(server: &Server, path: &str) -> (u16, serde_json::Value) {
    let (status, body) = answer(server.ask(Method::POST, path)).await;
    (status.as_u16(), body)
}

/// P3: readers at the other gateway get every event, from the start, from a cursor and from a cursor of the future.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_run_is_followed_at_another_gateway_from_any_cursor() {
    let Pair { puppet, one, two, backend: _backend, .. } = pair(|_| {}).await;
    let mut first = one.run("t", "r", "hello").await;
    puppet.allow(3);
    let seen = first.take(4).await;
    let mut whole = two.follow("/runs/r/stream").await;
    assert_eq!(whole.verdict(), "whole");
    assert_eq!(whole.take(4).await, seen);
    let mut resumed = two.follow("/runs/r/stream?after=r:1").await;
    assert_eq!(resumed.take(2).await, seen[2..]);
    let mut future = two.follow("/runs/r/stream?after=r:999").await;
    assert_eq!(future.verdict(), "gap");
    let mut gap = future.take(1).await;
    puppet.allow(100);
    let rest = first.rest().await;
    let log: Vec<Frame> = seen.iter().cloned().chain(rest.clone()).collect();
    assert_valid(&log);
    assert_eq!(whole.rest().await, rest);
    assert_eq!(resumed.rest().await, rest);
    gap.extend(future.rest().await);
    assert_valid(&gap);
}

/// History, state and the open step during a run come from the same source at both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_and_state_of_a_run_are_the_same_at_another_gateway() {
    let Pair { puppet, one, two, backend: _backend, .. } = pair(|_| {}).await;
    let mut first = one.run("t", "r", "hello").await;
    puppet.allow(3);
    first.take(4).await;
    assert_eq!(patch(&one, json!([{"op": "add", "path": "/a", "value": 1}])).await.0, 200);
    for path in ["/message_snapshot/t", "/state_snapshot/t"] {
        let (mut here, mut there) = (one.json(path).await.1, two.json(path).await.1);
        here["timestamp"] = json!(0);
        there["timestamp"] = json!(0);
        assert_eq!(here, there, "{path}");
    }
    assert_eq!(two.json("/state_snapshot/t").await.1["snapshot"]["a"], 1);
    assert_eq!(two.json("/message_snapshot/t").await.1["messages"].as_array().map(Vec::len), Some(2));
    assert_eq!(one.json("/runs/r").await.1, two.json("/runs/r").await.1);
}

/// Stop, pause, resume and PATCH at a gateway that does not drive the run: never 409 because of where the run is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_controlled_from_another_gateway() {
    let Pair { puppet, one, two, backend: _backend, .. } = pair(|_| {}).await;
    let mut first = one.run("t", "r", "hello").await;
    puppet.allow(3);
    first.take(4).await;
    let (status, paused) = post(&two, "/runs/r/pause").await;
    assert_eq!((status, &paused["status"], &paused["mode"]), (200, &json!("paused"), &json!("soft")));
    assert_eq!(one.status("r").await, "paused");
    assert_eq!(post(&two, "/runs/r/resume").await.0, 200);
    for round in 0..10 {
        let done = patch(&two, json!([{"op": "add", "path": "/n", "value": round}])).await;
        assert_eq!(done.0, 200, "{}", done.1);
        assert_eq!(one.json("/state_snapshot/t").await.1["snapshot"]["n"], round);
    }
    let (status, failed) = patch(&two, json!([{"op": "remove", "path": "/none"}])).await;
    assert_eq!((status, &failed["error"]["code"]), (409, &json!(codes::PATCH_FAILED)), "{failed}");
    assert_eq!(failed["snapshot"]["n"], 9, "with the current state");
    let (status, stopped) = post(&two, "/runs/r/stop").await;
    assert_eq!((status, &stopped["status"]), (200, &json!("stopped")));
    assert_eq!(post(&two, "/runs/r/stop").await.0, 200, "idempotent");
    assert_eq!(post(&two, "/runs/r/pause").await.0, 409, "it has ended");
    assert_valid(&two.follow("/runs/r/stream").await.rest().await);
    assert_eq!(one.json("/state_snapshot/t").await.1["snapshot"]["n"], 9);
    assert_eq!(puppet.dropped(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_a_new_message_at_another_gateway_interrupts_the_run() {
    let Pair { puppet, one, two, backend: _backend, .. } = pair(|agent| agent.busy = Busy::Interrupt).await;
    let mut first = one.run("t", "r", "hello").await;
    puppet.allow(3);
    first.take(4).await;
    let mut second = two.run("t", "s", "and now").await;
    first.rest().await;
    assert_eq!(one.status("r").await, "stopped");
    puppet.allow(100);
    assert_valid(&second.rest().await);
    assert_eq!(two.status("s").await, "finished");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_keep_their_order_across_gateways() {
    let Pair { puppet, one, two, backend: _backend, .. } =
        pair(|agent| agent.busy = Busy::Enqueue { limit: 9 }).await;
    let mut streams = vec![one.run("t", "r0", "hello").await];
    puppet.allow(3);
    streams[0].take(4).await;
    for number in 1..5 {
        let server = if number % 2 == 0 { &one } else { &two };
        streams.push(server.run("t", &format!("r{number}"), "hello").await);
        wait_until("it is queued", async || server.status(&format!("r{number}")).await == "queued").await;
    }
    puppet.allow(1000);
    for stream in &mut streams {
        stream.rest().await;
    }
    assert_eq!(puppet.runs(), ["r0", "r1", "r2", "r3", "r4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_is_deleted_at_another_gateway() {
    let Pair { puppet, one, two, backend: _backend, .. } = pair(|_| {}).await;
    let mut first = one.run("t", "r", "hello").await;
    puppet.allow(3);
    let mut seen = first.take(4).await;
    let deleted = two.ask(Method::DELETE, "/thread/t").send().await.expect("a response");
    assert_eq!(deleted.status(), 200);
    seen.extend(first.rest().await);
    assert_valid(&seen);
    assert_eq!(seen.last().expect("a last frame").json()["code"], codes::THREAD_DELETED);
    assert_eq!(one.json("/runs/r").await.0, 404);
    assert_eq!(puppet.dropped(), 1);
}

/// Sends a change until it is acknowledged: a busy store refuses some.
async fn change(server: &Server, method: Method, path: &str, body: serde_json::Value) {
    wait_until("it is acknowledged", async || {
        let (status, text) = answer(server.ask(method.clone(), path).json(&body)).await;
        assert!([200, 503].contains(&status.as_u16()), "{status}: {text}");
        status == 200
    })
    .await;
}

/// Clients change the metadata and the messages of a thread at both gateways at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_change_of_a_thread_is_lost() {
    let Pair { puppet, one, two, backend: _backend, .. } = pair(|_| {}).await;
    puppet.allow(100);
    one.run_to_end("t", "r", "hello").await;
    let changes = (0..16).map(|number| {
        let server = if number % 2 == 0 { &one } else { &two };
        async move {
            let name = format!("m{number}");
            let metadata = json!({"metadata": {&name: number}});
            change(server, Method::PATCH, &path("/threads/t"), metadata).await;
            let message = json!({"type": "human", "id": &name, "content": "hi"});
            let values = json!({"values": {"messages": [message]}});
            change(server, Method::POST, &path("/threads/t/state"), values).await;
        }
    });
    tokio::join!(
        join_all(changes),
        change(&one, Method::PATCH, "/threads/t", json!({"title": "a title"})),
        change(&two, Method::PATCH, "/threads/t", json!({"archived": true}))
    );
    let (_, threads) = two.json("/threads").await;
    let shown = &threads["threads"][0];
    assert_eq!((&shown["title"], &shown["archived"]), (&json!("a title"), &json!(true)), "{threads}");
    let (_, thread) = one.json(&path("/threads/t")).await;
    let (_, messages) = two.json("/message_snapshot/t").await;
    for number in 0..16 {
        let name = format!("m{number}");
        assert_eq!(thread["metadata"][&name], number, "{thread}");
        let has_message =
            messages["messages"].as_array().is_some_and(|all| all.iter().any(|it| it["id"] == name));
        assert!(has_message, "{name}: {messages}");
    }
}

/// A queue of runs of both gateways ends with its thread, in the order that lets none of them call its agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_a_thread_is_deleted_with_the_queues_of_both_gateways() {
    let Pair { puppet, one, two, backend: _backend, .. } =
        pair(|agent| agent.busy = Busy::Enqueue { limit: 8 }).await;
    for round in 0..6 {
        let thread = format!("t{round}");
        let mut streams = Vec::new();
        for (server, run) in [(&one, "a"), (&one, "b"), (&two, "c")] {
            streams.push(server.run(&thread, &format!("{run}{round}"), "hello").await);
        }
        let at = if round % 2 == 0 { &two } else { &one };
        let deleted = at.ask(Method::DELETE, &format!("/thread/{thread}")).send().await;
        assert_eq!(deleted.expect("a response").status(), 200);
        for mut stream in streams {
            let frames = stream.rest().await;
            assert_valid(&frames);
            assert_eq!(frames.last().expect("a last frame").json()["code"], codes::THREAD_DELETED);
        }
    }
    assert_eq!(puppet.runs(), ["a0", "a1", "a2", "a3", "a4", "a5"]);
}

/// A run that began while another gateway deleted its thread ends, although its agent is silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_a_run_without_a_record_ends() {
    let backend = Backend::sqlite().await;
    let second = backend.reopened().await;
    let puppet = Puppet::new(|input| talk(input, 10));
    let server =
        plan(puppet.clone()).set(|settings| settings.lease = Duration::from_secs(1)).on(&backend.store).await;
    let mut stream = server.run("t", "r", "hello").await;
    puppet.allow(2);
    let mut seen = stream.take(3).await;
    let owner = agentwire_store::Owner::new("default", "default-user", "demo");
    second.delete_thread(&owner, &"t".into()).await.expect("it exists");
    seen.extend(stream.rest().await);
    assert_valid(&seen);
    assert_eq!(seen.last().expect("a last frame").json()["code"], codes::THREAD_DELETED);
    wait_until("the agent is stopped", async || puppet.dropped() == 1 && puppet.stops() == 1).await;
}

/// `on_disconnect = cancel`: a reader at the other gateway keeps the run alive, and its leaving stops it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_disconnect_cancel_counts_readers_of_all_gateways() {
    let Pair { puppet, one, two, backend, .. } =
        pair(|agent| agent.on_disconnect = OnDisconnect::Cancel).await;
    let mut first = one.run("t", "r", "hello").await;
    puppet.allow(3);
    first.take(4).await;
    let mut second = two.follow("/runs/r/stream").await;
    second.take(4).await;
    let owner = agentwire_store::Owner::new("default", "default-user", "demo");
    let key = agentwire_store::RunKey { owner, run: "r".into() };
    wait_until("the reader is known", async || {
        backend.store.has_readers(&key, &"nobody".into()).await.expect("a store")
    })
    .await;
    drop(first);
    // Longer than a run without readers lives.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(one.status("r").await, "running");
    puppet.allow(1);
    second.take(1).await;
    drop(second);
    wait_until("the run is stopped", async || one.status("r").await == "stopped").await;
    assert_eq!(puppet.dropped(), 1);
}

/// The owner dies. Commands at the other gateway are answered once it has ended the run, and the patch is applied after the
/// fold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_nothing_acknowledged_is_lost_when_the_owner_dies() {
    for end_by in ["patch", "stop", "run"] {
        let backend = Backend::sqlite().await;
        let second = backend.reopened().await;
        let puppet = Puppet::new(|input| talk(input, 10));
        let lease = |settings: &mut Settings| {
            settings.lease = Duration::from_secs(3);
            settings.store_patience = Duration::from_secs(200);
        };
        let one = plan(puppet.clone()).set(lease).killable(&backend.store).await;
        let two = plan(puppet.clone()).set(lease).on(&second).await;
        let mut first = one.run("t", "r", "hello").await;
        puppet.allow(3);
        let seen = first.take(4).await;
        assert_eq!(patch(&two, json!([{"op": "add", "path": "/kept", "value": 1}])).await.0, 200);
        let mut reader = two.follow("/runs/r/stream").await;
        assert_eq!(reader.take(4).await, seen);
        one.crash().await;
        match end_by {
            "patch" => {
                let done = patch(&two, json!([{"op": "add", "path": "/later", "value": 2}])).await;
                assert_eq!(done.0, 200, "{}", done.1);
                assert_eq!(two.json("/state_snapshot/t").await.1["snapshot"]["later"], 2);
            }
            "stop" => assert_eq!(post(&two, "/runs/r/stop").await.0, 200),
            _ => {}
        }
        let mut whole = seen.clone();
        whole.extend(reader.rest().await);
        assert_valid(&whole);
        assert_eq!(whole.last().expect("a last frame").json()["code"], codes::GATEWAY_LOST, "{end_by}");
        assert_eq!(two.json("/state_snapshot/t").await.1["snapshot"]["kept"], 1, "{end_by}");
        puppet.allow(100);
        let next = two.run_to_end("t", "next", "and then").await;
        assert_valid(&next);
        let messages = two.json("/message_snapshot/t").await.1["messages"].clone();
        assert_eq!(messages[0]["id"], "r-user", "{messages}");
    }
}

/// A run that only waited for its thread when its gateway died is run by the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_a_queued_run_of_a_dead_gateway_is_run() {
    let backend = Backend::sqlite().await;
    let second = backend.reopened().await;
    let puppet = Puppet::new(|input| talk(input, 3));
    let queue = |agent: &mut AgentSettings| agent.busy = Busy::Enqueue { limit: 9 };
    let lease = |settings: &mut Settings| settings.lease = Duration::from_secs(3);
    let one = plan(puppet.clone()).set(lease).agent(queue).killable(&backend.store).await;
    let two = plan(puppet.clone()).set(lease).agent(queue).on(&second).await;
    let mut first = two.run("t", "first", "hello").await;
    puppet.allow(1);
    first.take(2).await;
    let _queued = one.run("t", "queued", "me too").await;
    wait_until("it is queued", async || two.status("queued").await == "queued").await;
    let mut third = two.run("t", "third", "and me").await;
    one.crash().await;
    puppet.allow(1000);
    assert_valid(&third.rest().await);
    wait_until("it has run", async || two.status("queued").await == "finished").await;
    assert_valid(&two.follow("/runs/queued/stream").await.rest().await);
    assert_eq!(puppet.runs(), ["first", "queued", "third"], "each once, in order");
}

/// The owner sleeps longer than its lease, by the clock of the store; a PATCH at the other gateway ends its run first, and
/// nothing that the owner writes afterwards counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_an_owner_that_slept_overwrites_no_acknowledged_patch() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    let backend = Backend::sqlite_at(clock.clone()).await;
    let options = Options { clock: clock.clone(), ..Options::default() };
    let second = agentwire_store::open(&backend.address, options).await.expect("an existing file");
    let puppet = Puppet::new(|input| talk(input, 10));
    // A long lease means late renewals, as on a suspended machine.
    let long = |settings: &mut Settings| settings.lease = Duration::from_secs(3000);
    let slow = plan(puppet.clone()).set(long).on(&backend.store).await;
    let other = plan(puppet.clone()).on(&second).await;
    let mut stream = slow.run("t", "r", "hello").await;
    puppet.allow(3);
    let mut seen = stream.take(4).await;
    assert_eq!(patch(&slow, json!([{"op": "add", "path": "/first", "value": 1}])).await.0, 200);
    clock.advance(Duration::from_secs(4000));
    assert_eq!(patch(&other, json!([{"op": "add", "path": "/second", "value": 2}])).await.0, 200);
    puppet.allow(100);
    seen.extend(stream.rest().await);
    assert_valid(&seen);
    assert_eq!(seen.last().expect("a last frame").json()["code"], codes::GATEWAY_LOST);
    for server in [&slow, &other] {
        let state = server.json("/state_snapshot/t").await.1["snapshot"].clone();
        assert_eq!((&state["first"], &state["second"]), (&json!(1), &json!(2)));
    }
    assert_valid(&other.run_to_end("t", "next", "go on").await);
}

/// The answer to the append of a patch is lost, and another gateway ends the run before the owner asks again: the patch is
/// acknowledged if the store answers in time, and is not made a second time in the stored state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p8_a_patch_of_an_owner_that_slept_is_not_made_twice() {
    for is_answered_later in [true, false] {
        let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
        let backend = Backend::sqlite_at(clock.clone()).await;
        let options = Options { clock: clock.clone(), ..Options::default() };
        let second = agentwire_store::open(&backend.address, options).await.expect("an existing file");
        let puppet = Puppet::new(|input| talk(input, 10));
        let faulty = FaultyStore::new(backend.store.clone());
        let store: Arc<dyn Store> = faulty.clone();
        let slow = plan(puppet.clone()).set(|settings| {
            settings.lease = Duration::from_secs(3000);
            settings.store_patience = Duration::from_secs(if is_answered_later { 600 } else { 2 });
        });
        let slow = slow.on(&store).await;
        let other = plan(puppet.clone()).on(&second).await;
        let mut stream = slow.run("t", "r", "hello").await;
        puppet.allow(3);
        stream.take(4).await;
        assert_eq!(patch(&slow, json!([{"op": "add", "path": "/list", "value": []}])).await.0, 200);
        faulty.appends_have_no_answer.store(true, SeqCst);
        let add = json!([{"op": "add", "path": "/list/-", "value": 1}]);
        let patched = tokio::spawn(answer(slow.ask(Method::PATCH, "/state/t").json(&add)));
        let list = async || other.json("/state_snapshot/t").await.1["snapshot"]["list"].take();
        wait_until("the log has the patch", async || list().await == json!([1])).await;
        clock.advance(Duration::from_secs(4000));
        assert_eq!(patch(&other, json!([{"op": "add", "path": "/second", "value": 2}])).await.0, 200);
        faulty.appends_have_no_answer.store(!is_answered_later, SeqCst);
        let (status, body) = patched.await.expect("no panic");
        let expected = if is_answered_later { 200 } else { 503 };
        assert_eq!((list().await, status.as_u16()), (json!([1]), expected), "{body}");
    }
}

/// As before, but the agent is silent: the owner appends nothing that would be refused, and learns from its next renewal that
/// its run was taken over and ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_an_owner_that_slept_closes_a_silent_agent() {
    let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
    let backend = Backend::sqlite_at(clock.clone()).await;
    let options = Options { clock: clock.clone(), ..Options::default() };
    let second = agentwire_store::open(&backend.address, options).await.expect("an existing file");
    let puppet = Puppet::new(|input| talk(input, 10));
    let long = |settings: &mut Settings| settings.lease = Duration::from_secs(3000);
    // No timeout of the agent ends the run in place of the renewal.
    let endless = Timeouts { connect: None, first_byte: None, idle: None, total: None };
    let slow =
        plan(puppet.clone()).agent(|agent| agent.timeouts = endless).set(long).on(&backend.store).await;
    let other = plan(puppet.clone()).on(&second).await;
    let mut stream = slow.run("t", "r", "hello").await;
    puppet.allow(3);
    stream.take(4).await;
    clock.advance(Duration::from_secs(4000));
    assert_eq!(patch(&other, json!([{"op": "add", "path": "/second", "value": 2}])).await.0, 200);
    assert_eq!(other.json("/runs/r").await.1["cause"], codes::GATEWAY_LOST);
    assert_eq!(puppet.dropped(), 0);
    // The start of another run renews the lease, which had expired.
    let _other = slow.run("u", "next", "hello").await;
    wait_until("the agent is dropped", async || puppet.dropped() == 1).await;
}

/// A drain cuts readers of runs that go on elsewhere; a client resumes at the owner without loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_drain_cuts_readers_of_runs_elsewhere() {
    let Pair { puppet, one, two, backend: _backend, .. } = pair(|_| {}).await;
    let mut first = one.run("t", "r", "hello").await;
    puppet.allow(3);
    let seen = first.take(4).await;
    let mut reader = two.follow("/runs/r/stream").await;
    assert_eq!(reader.take(4).await, seen);
    two.drain();
    assert!(reader.rest().await.is_empty());
    assert!(reader.broken, "no regular end without the end of the run");
    assert!(reader.asides.iter().any(|aside| aside.starts_with("retry:")), "{:?}", reader.asides);
    puppet.allow(100);
    let rest = first.rest().await;
    assert_eq!(one.follow("/runs/r/stream?after=r:3").await.rest().await, rest);
}

/// Queued runs of a gateway that drains go on at another one; their readers are cut with a delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_a_drain_releases_queued_runs() {
    let Pair { puppet, one, two, backend: _backend, .. } =
        pair(|agent| agent.busy = Busy::Enqueue { limit: 9 }).await;
    let mut first = two.run("t", "first", "hello").await;
    puppet.allow(3);
    first.take(4).await;
    let mut queued = one.run("t", "queued", "me too").await;
    wait_until("it is queued", async || two.status("queued").await == "queued").await;
    one.drain();
    assert!(queued.rest().await.is_empty());
    assert!(queued.broken, "no regular end without the end of the run");
    assert!(queued.asides.iter().any(|aside| aside.starts_with("retry:")), "{:?}", queued.asides);
    one.ended().await;
    let mut followed = two.follow("/runs/queued/stream").await;
    puppet.allow(1000);
    first.rest().await;
    assert_valid(&followed.rest().await);
    assert_eq!(two.status("queued").await, "finished");
    assert_eq!(puppet.runs(), ["first", "queued"]);
}

/// Questions that a run left are listed and answered at the other gateway, also under the id of the waiting run, and also if
/// the same answer is given to the same question twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_are_answered_at_another_gateway() {
    let backend = Backend::sqlite().await;
    let second = backend.reopened().await;
    let agent = asker();
    let one = plan(agent.clone()).on(&backend.store).await;
    let two = plan(agent.clone()).on(&second).await;
    let script = r#"{"ask": [{"id": "q"}]}"#;
    one.run_to_end("t", "r1", script).await;
    let (_, open) = two.json("/threads/t/pending").await;
    assert_eq!(open[0]["id"], "q", "{open}");
    let resume = json!([{"interruptId": "q", "status": "resolved", "payload": "blue"}]);
    let body = |run: &str| {
        json!({"threadId": "t", "runId": run, "messages": [], "tools": [], "context": [], "state": {},
            "forwardedProps": {}, "resume": resume})
    };
    let answered = Stream::of(two.post("/", &body("r1"))).await.rest().await;
    assert_valid(&answered);
    assert_eq!(one.status("r1").await, "finished");
    assert_eq!(one.json("/threads/t/pending").await.1, json!([]));
    let again = Stream::of(one.post("/", &body("r1"))).await.rest().await;
    assert_eq!(again, answered, "the same answer starts no second run");
    assert_eq!(agent.calls(), 2);
}

/// A run that another gateway ends keeps the settings that it began with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ending_uses_the_settings_that_the_run_began_with() {
    let backend = Backend::sqlite().await;
    let second = backend.reopened().await;
    let puppet = Puppet::new(|input| talk(input, 3));
    let lease = |settings: &mut Settings| settings.lease = Duration::from_secs(3);
    let of_client = |agent: &mut AgentSettings| agent.history = Some(History::Client);
    let one = plan(puppet.clone()).set(lease).agent(of_client).killable(&backend.store).await;
    let two = plan(puppet.clone()).set(lease).on(&second).await;
    puppet.allow(100);
    one.run_to_end("t", "before", "hello").await;
    puppet.forbid();
    let mut stream = one.run("t", "r", "anew").await;
    puppet.allow(1);
    stream.take(2).await;
    one.crash().await;
    wait_until("the run has its ending", async || two.status("r").await == "failed").await;
    let messages = two.json("/message_snapshot/t").await.1["messages"].clone();
    assert_eq!(messages[0]["id"], "r-user", "the client's messages replace the stored ones: {messages}");
}
