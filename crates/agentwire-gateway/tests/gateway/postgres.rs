//! A gateway on PostgreSQL: silence when idle, health without questions.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::settings::Settings;
use agentwire_store::{Options, Store};

use crate::{hostile::stored::starts_at_two_gateways, support::*};

async fn open(address: &str) -> Arc<dyn Store> {
    agentwire_store::open(address, Options::default()).await.expect("a store")
}

/// A gateway that would sweep every second.
fn hasty(settings: &mut Settings) {
    settings.lease = Duration::from_secs(3);
    settings.store_patience = Duration::from_secs(1);
}

/// Without runs and readers nothing is asked, so that a serverless database can sleep; `/readyz` does not ask either. The first
/// request after it wakes the gateway, which settles what another one has left meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_gateway_asks_nothing() {
    let name = format!("idle{}", std::process::id());
    let address = postgres_server::fresh();
    let store = open(&format!("{address}&application_name={name}")).await;
    let puppet = Puppet::new(|input| talk(input, 3));
    puppet.allow(100);
    let server = plan(puppet.clone()).set(hasty).on(&store).await;
    assert_valid(&server.run_to_end("t", "r", "hello").await);
    let last_question = async || {
        let sql = format!("SELECT max(query_start) FROM pg_stat_activity WHERE application_name = '{name}'");
        let address = address.clone();
        tokio::task::spawn_blocking(move || postgres_server::psql(&address, &sql)).await.expect("an answer")
    };
    wait_until("silence", async || {
        let before = last_question().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        last_question().await == before
    })
    .await;
    let before = last_question().await;
    assert_ne!(before, "");
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(server.json("/readyz").await.0, 200);
    }
    assert_eq!(last_question().await, before);

    puppet.forbid();
    let other = plan(puppet.clone()).set(hasty).killable(&open(&address).await).await;
    let mut stream = other.run("u", "s", "hello").await;
    stream.take(1).await;
    other.crash().await;
    wait_until("the orphan has its ending", async || server.status("s").await == "failed").await;
}

/// A failed call makes `/readyz` 503, and it recovers by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_follows_the_server() {
    let mut database = postgres_server::Server::start("fsync=off");
    let store = open(&format!("{}?connect_timeout=2", database.address)).await;
    let server = plan(Puppet::eager(|input| talk(input, 3))).set(hasty).on(&store).await;
    let readyz = async || {
        let response = server.ask(reqwest::Method::GET, "/readyz").send().await.expect("a response");
        (response.status().as_u16(), response.text().await.expect("a body"))
    };
    wait_until("the gateway is ready", async || readyz().await.0 == 200).await;
    let (_, body) = readyz().await;
    assert!(body.contains("store: responded ") && body.contains("system "), "{body}");
    database.kill();
    let failed = answer(server.post("/", &Server::input("t", "r", "hello"))).await;
    assert_eq!(failed.0.as_u16(), 503, "{}", failed.1);
    wait_until("the gateway is not ready", async || readyz().await.0 == 503).await;
    database.start_again();
    wait_until("the gateway is ready again", async || readyz().await.0 == 200).await;
    assert_valid(&server.run_to_end("t", "r2", "hello").await);
}

/// A server that can be read and not written is no store: a refused change makes `/readyz` 503 until changes are accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_needs_a_server_that_can_be_written() {
    let database = postgres_server::Server::start("fsync=off");
    let store = open(&database.address).await;
    let server = plan(Puppet::eager(|input| talk(input, 3))).set(hasty).on(&store).await;
    assert_valid(&server.run_to_end("t", "r", "hello").await);
    let set = async |value: &str| {
        let address = format!("{}?schema=agentwire", database.address);
        let sql = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        let change = move || {
            postgres_server::psql(&address, &sql);
            postgres_server::psql(&address, "SELECT pg_reload_conf()")
        };
        tokio::task::spawn_blocking(change).await.expect("an answer");
    };
    let is_ready = async || server.json("/readyz").await.0 == 200;
    wait_until("the gateway is ready", is_ready).await;
    set("on").await;
    let patch = || server.ask(reqwest::Method::PATCH, "/state/t").json(&serde_json::json!([]));
    wait_until("a change is refused", async || answer(patch()).await.0 == 503).await;
    wait_until("the gateway is not ready", async || !is_ready().await).await;
    assert_eq!(server.json("/state_snapshot/t").await.0, 200, "reads go on");
    set("off").await;
    wait_until("the gateway is ready again", is_ready).await;
    assert_eq!(answer(patch()).await.0, 200);
}

/// Of starts at once, as many get through as there are places, whichever gateway they come to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_starts_at_two_gateways_do_not_exceed_a_quota() {
    starts_at_two_gateways(Backend::postgres(None).await).await;
}
