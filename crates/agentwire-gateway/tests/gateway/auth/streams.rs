//! Streams end with their credential, and T9: tickets.

use agentwire_gateway::{auth::Secret, settings::Replicas};
use agentwire_store::KeyChange;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    INVALID,
    keys::{key, with_keys},
    ok, refusal, required, status,
};
use crate::support::*;

#[tokio::test]
async fn a_stream_is_cut_at_the_end_of_the_token_and_the_run_goes_on() {
    let mut issuer = Issuer::new();
    issuer.settings.leeway = std::time::Duration::ZERO;
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .set(|settings| settings.auth = required(vec![issuer.settings.clone()]))
        .on_memory()
        .await;
    let short = issuer.token_with("ada", "*", &[("exp", json!(now() + 3))]);
    let mut stream = Stream::of(server.post("/", &Server::input("t", "r", "hi")).bearer_auth(&short)).await;
    assert_eq!(stream.status(), 200);
    let first = stream.take(1).await;
    let rest = stream.rest().await;
    assert!(stream.broken, "a regular end would look like the end of the run");
    assert!(stream.asides.iter().any(|line| line.starts_with("retry:")), "{:?}", stream.asides);
    assert!(rest.iter().all(|frame| !["RUN_ERROR", "RUN_FINISHED"].contains(&&*frame.kind())));
    puppet.allow(100);
    // The client comes back with a new token and misses nothing.
    let after = first.last().and_then(|frame| frame.id.clone()).expect("an id");
    let fresh = issuer.token("ada", "*");
    let again = server.ask(Method::GET, "/runs/r/stream").header("last-event-id", after).bearer_auth(&fresh);
    let mut again = Stream::of(again).await;
    let frames: Vec<Frame> = first.into_iter().chain(again.rest().await).collect();
    assert_valid(&frames);
}

/// Requests of LangGraph's client that wait for the end of a run get nothing once their credential has ended.
#[tokio::test]
async fn a_request_that_waits_for_a_run_ends_with_its_credential() {
    let mut issuer = Issuer::new();
    issuer.settings.leeway = std::time::Duration::ZERO;
    let puppet = Puppet::new(|input| talk(input, 3));
    let backend = Backend::memory().await;
    let server = plan(puppet.clone())
        .set(|settings| {
            settings.auth = with_keys();
            settings.auth.jwt = vec![issuer.settings.clone()];
        })
        .on(&backend.store)
        .await;
    let wait = |credential: &str| {
        let body = json!({"assistant_id": "demo", "input": {"messages": [{"role": "user", "content": "x"}]}});
        refusal(server.post("/langgraph/runs/wait", &body).bearer_auth(credential))
    };
    let short = issuer.token_with("ada", "*", &[("exp", json!(now() + 3))]);
    let (status, code, _) = wait(&short).await;
    assert_eq!((status, code.as_str()), (401, "TOKEN_EXPIRED"));

    let (text, id) = key(&backend.store, "ada", &["*"], &[]).await;
    let revoke = async {
        wait_until("the second run", async || puppet.calls() == 2).await;
        backend.store.change_key(&id, KeyChange::Revoke).await.expect("it is there");
    };
    let ((status, code, _), ()) = tokio::join!(wait(&text), revoke);
    assert_eq!((status, code.as_str()), (401, "UNAUTHENTICATED"));
    puppet.allow(100);
}

async fn ticket_of(server: &Server, base: &str, run: &str, credential: &str) -> String {
    let made =
        ok(server.post(&format!("{base}/tickets"), &json!({"run": run})).bearer_auth(credential)).await;
    assert_eq!(made["expiresIn"], 60);
    made["ticket"].as_str().expect("a ticket").to_owned()
}

/// A page asks one gateway for a ticket, and its stream comes to another one: a key that they share is enough.
#[tokio::test]
async fn a_ticket_opens_a_stream_at_another_gateway() {
    let issuer = Issuer::new();
    let ada = issuer.token("ada", "*");
    let backend = Backend::sqlite().await;
    let puppet = Puppet::eager(|input| talk(input, 2));
    let start = async |key: &str| {
        let key = Secret::Value(key.as_bytes().to_vec());
        plan(puppet.clone())
            .set(|settings| {
                settings.auth = required(vec![issuer.settings.clone()]);
                settings.replicas = Replicas::new(key);
            })
            .on(&backend.reopened().await)
            .await
    };
    let one = start("a key of sixteen bytes").await;
    let two = start("a key of sixteen bytes").await;
    let stranger = start("another key of sixteen bytes").await;
    Stream::of(one.post("/", &Server::input("t", "r", "hi")).bearer_auth(&ada)).await.rest().await;
    let path = format!("/runs/r/stream?ticket={}", ticket_of(&one, "", "r", &ada).await);
    assert_valid(&Stream::of(two.ask(Method::GET, &path)).await.rest().await);
    assert_eq!(refusal(stranger.ask(Method::GET, &path)).await.0, 401);
}

#[tokio::test]
async fn t9_a_ticket_opens_one_stream_for_a_minute() {
    let clock = std::sync::Arc::new(agentwire_store::ManualClock::at(agentwire_store::Time(now() * 1000)));
    let backend = Backend::sqlite_at(clock.clone()).await;
    let puppet = Puppet::eager(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .and("other", agentwire_gateway::settings::AgentSettings::default(), puppet.clone())
        .set(|settings| settings.auth = with_keys())
        .on(&backend.store)
        .await;
    let (ada, _) = key(&backend.store, "ada", &["agents:demo:*"], &[]).await;
    let (eve, _) = key(&backend.store, "eve", &["agents:*:*"], &[]).await;
    let (blind, _) = key(&backend.store, "ada", &["agents:*:run"], &[]).await;
    for run in ["r1", "r2"] {
        let mut stream = Stream::of(server.post("/", &Server::input(run, run, "hi")).bearer_auth(&ada)).await;
        assert_valid(&stream.rest().await);
    }
    let ticket = ticket_of(&server, "", "r1", &ada).await;
    let get = |path: &str, ticket: &str| server.ask(Method::GET, &format!("{path}?ticket={ticket}"));
    for path in ["/runs/r1/stream", "/agents/demo/runs/r1/stream"] {
        for _ in 0..2 {
            let mut stream = Stream::of(get(path, &ticket)).await;
            assert_eq!(stream.header("referrer-policy"), "no-referrer");
            assert_valid(&stream.rest().await);
        }
    }
    let invalid = (401, "UNAUTHENTICATED".to_owned(), INVALID.to_owned());
    let missing = (401, "UNAUTHENTICATED".to_owned(), "Bearer".to_owned());
    assert_eq!(refusal(get("/runs/r2/stream", &ticket)).await, invalid, "another run");
    assert_eq!(refusal(get("/agents/other/runs/r1/stream", &ticket)).await, invalid, "another agent");
    let mut changed = ticket.clone();
    changed.replace_range(5..6, if &changed[5..6] == "a" { "b" } else { "a" });
    for forged in [
        changed,
        format!("{ticket}x"),
        ticket.replace('.', ""),
        String::new(),
        ".".into(),
        "x".repeat(10_000),
    ] {
        assert_eq!(refusal(get("/runs/r1/stream", &forged)).await, invalid);
    }
    for path in ["/runs/r1", "/threads/r1/stream", "/message_snapshot/r1", "/thread/list"] {
        assert_eq!(refusal(get(path, &ticket)).await, missing, "{path}");
    }
    let posted = server.ask(Method::POST, &format!("/runs/r1/stop?ticket={ticket}"));
    assert_eq!(refusal(posted).await, missing, "POST");
    assert_eq!(refusal(get("/runs/r1/stream", &ticket).bearer_auth(&ada)).await, invalid, "two credentials");
    // Nobody gets a ticket for somebody else's run, nor without the scope.
    let unknown = answer(server.post("/tickets", &json!({"run": "nothing"})).bearer_auth(&eve)).await;
    assert_eq!(unknown.0, 404);
    assert_eq!(answer(server.post("/tickets", &json!({"run": "r1"})).bearer_auth(&eve)).await, unknown);
    assert_eq!(status(server.post("/tickets", &json!({"run": "r1"})).bearer_auth(&blind)).await, 403);
    assert_eq!(status(server.post("/tickets", &json!({"run": "r1"}))).await, 401);
    for body in [json!({}), json!({"run": 1}), Value::Null] {
        assert_eq!(status(server.post("/tickets", &body).bearer_auth(&ada)).await, 400);
    }
    clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(refusal(get("/runs/r1/stream", &ticket)).await.1, "TOKEN_EXPIRED");
}

#[tokio::test]
async fn t9_a_ticket_ends_with_the_credential_that_made_it() {
    let backend = Backend::sqlite().await;
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone()).set(|settings| settings.auth = with_keys()).on(&backend.store).await;
    let (ada, id) = key(&backend.store, "ada", &["*"], &[]).await;
    let mut own = Stream::of(server.post("/", &Server::input("t", "r", "hi")).bearer_auth(&ada)).await;
    own.take(1).await;
    let ticket = ticket_of(&server, "", "r", &ada).await;
    let open = || server.ask(Method::GET, &format!("/runs/r/stream?ticket={ticket}"));
    let mut stream = Stream::of(open()).await;
    stream.take(1).await;
    backend.store.change_key(&id, KeyChange::Revoke).await.expect("it is there");
    stream.rest().await;
    assert!(stream.broken);
    assert_eq!(refusal(open()).await.1, "UNAUTHENTICATED");
}

#[tokio::test]
async fn an_anonymous_gateway_gives_tickets_too() {
    let server = plan(Puppet::eager(|input| talk(input, 3))).on_memory().await;
    server.run_to_end("t", "r", "hi").await;
    let made = ok(server.post("/tickets", &json!({"run": "r"}))).await;
    let ticket = made["ticket"].as_str().expect("a ticket");
    let mut stream = Stream::of(server.ask(Method::GET, &format!("/runs/r/stream?ticket={ticket}"))).await;
    assert_valid(&stream.rest().await);
    assert_eq!(status(server.ask(Method::GET, "/runs/r/stream?ticket=x")).await, 401);
}
